"""Going on from the last row learned: forecasts of steps ahead, as a table and as a picture."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from kbnn.errors import DataError, UsageError
from kbnn.model.clock import text_of
from kbnn.model.horizon import ahead, check_horizon, coming
from kbnn.model.model import Model
from kbnn.model.rows import Rows, sliced
from kbnn.stream.blocks import joined
from kbnn.stream.opening import Stream
from kbnn.task.forecast import Forecast
from kbnn.task.section import Chart, Group, Section

USUAL_STEPS: Final = 24
"""Steps drawn of a series that has no season."""
MOST_DRAWN: Final = 96


class Onward(NamedTuple):
    """Steps ahead: when each is, as the stream writes it (none without a clock), what is said."""

    when: list[str]
    forecast: Forecast


def go_on(model: Model, steps: int, stream: Stream | None = None) -> Onward:
    """Forecast the next steps; a stream tells what is known of them."""
    check_horizon(model, steps)
    rows = coming(model, steps) if stream is None else _told(stream, steps)
    if stream is None:
        _check_alone(model)
    said = ahead(model, [model.history], [sliced(rows, k, k + 1) for k in range(steps)])
    clock = model.schema.clock
    known = clock is not None and rows.time is not None
    return Onward(text_of(clock, rows.time) if known else [], said.forecast())  # type: ignore[arg-type]  # known


def _check_alone(model: Model) -> None:
    """Refuse to go on without inputs that nobody but the user can know."""
    schema = model.schema
    clock = "" if schema.clock is None else schema.clock.column
    others = [name for name in schema.features if name != clock]
    if others:
        raise UsageError(
            f"--horizon: the model learns from '{others[0]}' too: name a file of its future values"
        )
    if schema.clock is not None and not schema.clock.step:
        raise UsageError(
            f"--horizon: rows of '{clock}' come in no steady step: name a file of the moments to "
            "forecast"
        )


def _told(stream: Stream, steps: int) -> Rows:
    """The first rows of a stream, as many as there are steps."""
    parts: list[Rows] = []
    for rows in stream:
        parts.append(rows)
        if sum(len(part.y) for part in parts) >= steps:
            break
    found = sum(len(part.y) for part in parts)
    if found < steps:
        raise DataError(f"--horizon {steps} needs as many rows, but {stream.source} has {found}")
    return sliced(joined(parts), 0, steps)


def leading_columns(model: Model, onward: Onward) -> pa.RecordBatch:
    """What stands before the forecasts: the number of the step, and its time."""
    columns = {"step": pa.array(np.arange(1, len(onward.forecast.mean) + 1))}
    if model.schema.clock is not None and onward.when:
        columns[model.schema.clock.column] = pa.array(onward.when)
    return pa.RecordBatch.from_pydict(columns)


def chart(model: Model, onward: Onward) -> Chart:
    """The last values and what comes next."""
    target = model.schema.targets[0]
    past = model.history.values[-MOST_DRAWN:, model.timeline.columns.index(target)]
    mean, sd = onward.forecast.mean[:, 0], onward.forecast.sd[:, 0]
    span = f"{onward.when[0]} to {onward.when[-1]}" if onward.when else f"{len(mean)} steps"
    return Chart(
        "ahead",
        "What comes next",
        {"past": past, "mean": mean, "sd": sd, "name": target},
        f"The last values, and the forecast of {span} with its 90 % band.",
        "known, then forecast with 90 % band",
    )


def with_next(model: Model, section: Section) -> Section:
    """The section with a picture of what comes next, where the model can say so."""
    return (
        section._replace(groups=[*section.groups, *_next(model)]) if model.schema.lags else section
    )


def _next(model: Model) -> list[Group]:
    try:
        season = 0 if model.schema.clock is None else model.schema.clock.season
        steps = min(max(season, USUAL_STEPS), MOST_DRAWN)
        onward = go_on(model, steps)
    except UsageError:
        return []
    if not np.isfinite(onward.forecast.mean).all():
        return []
    return [Group("What comes next", [chart(model, onward)])]
