"""Several steps ahead of the last row learned, see kbnn.model.recursion."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from kbnn.errors import ArgumentError, UsageError
from kbnn.model.lags import History
from kbnn.model.model import OnlineModel
from kbnn.model.recursion import ForecastPath, MultiStepForecast
from kbnn.model.rows import Rows

MAX_HORIZON_STEPS: Final = 10_000


def check_horizon(model: OnlineModel, steps: int) -> None:
    """Refuse a horizon that a model cannot see."""
    schema = model.schema
    if not isinstance(steps, int | np.integer):
        raise ArgumentError(f"--horizon is a whole number of steps, not {steps!r}")
    if not 1 <= steps <= MAX_HORIZON_STEPS:
        raise UsageError(f"--horizon is between 1 and {MAX_HORIZON_STEPS:,}, not {steps}")
    model.task.check_horizon_support()
    if not any(lag.column in schema.targets for lag in schema.lags):
        raise UsageError(
            f"--horizon needs a model with lags of '{schema.targets[0]}' (kbnn train --lags)"
        )


def make_future_rows(model: OnlineModel, steps: int) -> Rows:
    """Rows that follow the last one learned: the clock goes on, all else is missing."""
    schema = model.schema
    x = np.full((steps, schema.width), np.nan)
    time = None
    if schema.clock is not None:
        known = model.history.time[np.isfinite(model.history.time[:, 0])]
        last = known[-1] if len(known) else np.full(2, np.nan)
        time = schema.clock.extend_times(last, steps)
        names = schema.encoded_names()
        x[:, [names.index(name) for name in schema.clock.names]] = schema.clock.encode_times(time)
    number = np.arange(1, steps + 1)
    return Rows(x, np.full((steps, 1), np.nan), number, schema=schema, time=time)


def forecast_steps(
    model: OnlineModel, histories: Sequence[History], steps: Sequence[Rows]
) -> MultiStepForecast:
    """Go on from n histories: `steps` has the n rows of each step, their targets not looked at."""
    path = ForecastPath(model.forecast_context, histories, len(steps))
    parts = [path.forecast_step(rows) for rows in steps]
    return MultiStepForecast(*(np.stack(part, axis=1) for part in zip(*parts, strict=True)))
