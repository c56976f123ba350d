"""Several steps ahead of the last row learned, see kbnn.model.recursion."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from kbnn.errors import ArgumentError, UsageError
from kbnn.model.lags import History
from kbnn.model.model import Model
from kbnn.model.recursion import Ahead, ForecastPath
from kbnn.model.rows import Rows

MOST_STEPS: Final = 10_000


def check_horizon(model: Model, steps: int) -> None:
    """Refuse a horizon that a model cannot see."""
    schema = model.schema
    if not isinstance(steps, int | np.integer):
        raise ArgumentError(f"--horizon is a whole number of steps, not {steps!r}")
    if not 1 <= steps <= MOST_STEPS:
        raise UsageError(f"--horizon is between 1 and {MOST_STEPS:,}, not {steps}")
    model.task.check_ahead()
    if not any(lag.column in schema.targets for lag in schema.lags):
        raise UsageError(
            f"--horizon needs a model with lags of '{schema.targets[0]}' (kbnn train --lags)"
        )


def coming(model: Model, steps: int) -> Rows:
    """Rows that follow the last one learned: the clock goes on, all else is missing."""
    schema = model.schema
    x = np.full((steps, schema.width), np.nan)
    time = None
    if schema.clock is not None:
        known = model.history.time[np.isfinite(model.history.time[:, 0])]
        last = known[-1] if len(known) else np.full(2, np.nan)
        time = schema.clock.after(last, steps)
        names = schema.encoded_names()
        x[:, [names.index(name) for name in schema.clock.names]] = schema.clock.values(time)
    number = np.arange(1, steps + 1)
    return Rows(x, np.full((steps, 1), np.nan), number, schema=schema, time=time)


def ahead(model: Model, histories: Sequence[History], steps: Sequence[Rows]) -> Ahead:
    """Go on from n histories: `steps` has the n rows of each step, their targets not looked at."""
    path = ForecastPath(model.network, histories, len(steps))
    parts = [path.step(rows) for rows in steps]
    return Ahead(*(np.stack(part, axis=1) for part in zip(*parts, strict=True)))
