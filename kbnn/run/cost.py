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
from kbnn.core.wide import leading
from kbnn.model.model import Model
from kbnn.model.rehearsal import YOUNG
from kbnn.model.settings import WIDE_FROM
from kbnn.stream.opening import Stream
from kbnn.wording import count, number

TRIED: Final = 8
MOST_TRIED: Final = 1 << 24
"""Covariances beyond which even a trial would take long."""


def row_seconds(model: Model) -> float | None:
    """Processor time of learning one row; None where that is not worth a trial, or too much."""
    width, settings = model.schema.width, model.settings.candidates(inputs=model.schema.width)[0]
    if width < WIDE_FROM:
        return None
    config = settings.config(model.task, width, model.task.foreseen, 1.0)
    if layout_of(config).size > MOST_TRIED:
        return None
    generator = np.random.default_rng(0)
    x = generator.standard_normal((TRIED, width))
    y = np.abs(generator.standard_normal((TRIED, config.labels)).round(0) % max(config.classes, 2))
    session = open_session(init(config, directions=leading(x) if config.directions else None))
    session.learn(x, y)
    start = thread_time()
    session.learn(x, y)
    return (thread_time() - start) / TRIED


def told(model: Model, stream: Stream, passes: int) -> str | None:
    """The sentence about it, where there is something to say."""
    each = row_seconds(model)
    if each is None:
        return None
    said = f"{count(model.schema.width)} columns: {_time(each)} a row to learn"
    rows = stream.expected_rows
    if rows is None:
        return said
    racers = len(model.settings.candidates(inputs=model.schema.width))
    rehearsed = max(one.often for one in model.settings.candidates()) * min(rows, 2 * YOUNG)
    total = each * (rows * passes + min(rows, YOUNG) * racers + rehearsed)
    whole = _time(total) if total >= 1.0 else "a second"
    return f"{said}, about {whole} for about {number(rows, 2)} rows"


def _time(seconds: float) -> str:
    for unit, name in ((86400.0, "days"), (3600.0, "hours"), (60.0, "minutes"), (1.0, "s")):
        if seconds >= unit:
            return f"{number(seconds / unit, 2)} {name}"
    return f"{number(1e3 * seconds, 2)} ms"
