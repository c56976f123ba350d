"""What learning many columns will take, told before it is begun.

A few made rows are learned by a network as it will be; how many rows there are follows from the
size of the sources and of their first rows.
"""

from __future__ import annotations

from time import thread_time
from typing import Final

import numpy as np

from kbnn.core.engine import open_session
from kbnn.core.layout import layout_of
from kbnn.core.state import init
from kbnn.core.wide import leading_directions
from kbnn.model.model import OnlineModel
from kbnn.model.rehearsal import REPLAY_ROWS
from kbnn.model.settings import WIDE_COVARIANCE_INPUTS
from kbnn.stream.opening import Stream
from kbnn.wording import format_count, format_number

TRIAL_ROWS: Final = 8
MAX_TRIAL_COVARIANCES: Final = 1 << 24
"""Covariances beyond which even a trial would take long."""


def measure_row_seconds(model: OnlineModel) -> float | None:
    """Processor time of learning one row; None where that is not worth a trial, or too much."""
    width, settings = (
        model.schema.width,
        model.settings.list_candidates(inputs=model.schema.width)[0],
    )
    if width < WIDE_COVARIANCE_INPUTS:
        return None
    config = settings.make_config(model.task, width, model.task.max_outputs, 1.0)
    if layout_of(config).size > MAX_TRIAL_COVARIANCES:
        return None
    generator = np.random.default_rng(0)
    x = generator.standard_normal((TRIAL_ROWS, width))
    y = np.abs(
        generator.standard_normal((TRIAL_ROWS, config.labels)).round(0) % max(config.classes, 2)
    )
    session = open_session(
        init(config, directions=leading_directions(x) if config.directions else None)
    )
    session.learn(x, y)
    start = thread_time()
    session.learn(x, y)
    return (thread_time() - start) / TRIAL_ROWS


def estimate_cost(model: OnlineModel, stream: Stream, passes: int) -> str | None:
    """The sentence about it, where there is something to say."""
    each = measure_row_seconds(model)
    if each is None:
        return None
    said = f"{format_count(model.schema.width)} columns: {_format_duration(each)} a row to learn"
    rows = stream.expected_rows
    if rows is None:
        return said
    racers = len(model.settings.list_candidates(inputs=model.schema.width))
    rehearsed = max(one.replay_ratio for one in model.settings.list_candidates()) * min(
        rows, 2 * REPLAY_ROWS
    )
    total = each * (rows * passes + min(rows, REPLAY_ROWS) * racers + rehearsed)
    whole = _format_duration(total) if total >= 1.0 else "a second"
    return f"{said}, about {whole} for about {format_number(rows, 2)} rows"


def _format_duration(seconds: float) -> str:
    for unit, name in ((86400.0, "days"), (3600.0, "hours"), (60.0, "minutes"), (1.0, "s")):
        if seconds >= unit:
            return f"{format_number(seconds / unit, 2)} {name}"
    return f"{format_number(1e3 * seconds, 2)} ms"
