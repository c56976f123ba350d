"""Multi-step forecasts after the last row learned, as a table and as a chart.

The recursion over steps is in `kbnn.model.recursive_forecast`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from kbnn.array_types import FloatArray
from kbnn.data.batch import Rows, concat_rows, slice_rows, take_rows
from kbnn.data.clock import format_times
from kbnn.data.dataset import Stream
from kbnn.data.time_series import MAX_NAMES_SHOWN
from kbnn.errors import ArgumentError, DataError, UsageError
from kbnn.metrics.sections import ChartGroup, ChartSpec, TargetSection
from kbnn.model.model import OnlineModel
from kbnn.model.recursive_forecast import HorizonPath, count_missing_steps, make_future_rows
from kbnn.targets.base import check_horizon_support
from kbnn.targets.prediction import Forecast, join_forecasts, select_rows

MAX_HORIZON_STEPS: Final = 10_000


def check_horizon(model: OnlineModel, steps: int) -> None:
    """Raise if the model cannot forecast this number of steps."""
    schema = model.schema
    if not isinstance(steps, int | np.integer):
        raise ArgumentError(f"--horizon must be a whole number of steps, not {steps!r}")
    if not 1 <= steps <= MAX_HORIZON_STEPS:
        raise UsageError(f"--horizon must be between 1 and {MAX_HORIZON_STEPS:,}, not {steps}")
    check_horizon_support(model.task)
    if not any(lag.column in schema.targets for lag in schema.lags):
        raise UsageError(
            f"--horizon needs a model with lags of '{schema.targets[0]}' (kbnn train --lags)"
        )


DEFAULT_CHART_STEPS: Final = 24
"""Steps drawn for a series without a season."""
MAX_CHART_STEPS: Final = 96


class HorizonForecast(NamedTuple):
    """Forecasts of steps ahead, with the time of each step as text (empty without a clock).

    `first_step` is the distance of the first step from the model's last row.
    """

    when: list[str]
    forecast: Forecast
    first_step: int = 1


def forecast_horizon(
    model: OnlineModel,
    steps: int,
    stream: Stream | None = None,
    notice: Callable[[str], None] = lambda text: None,
) -> HorizonForecast:
    """Forecast the next steps; a stream gives their known inputs.

    Rows of the stream at or before the model's end are skipped. If the stream starts later than
    one step after the end, the steps between are forecast too, but not returned.
    """
    check_horizon(model, steps)
    skipped = 0
    if stream is None:
        _check_inputs_known(model, notice)
        rows = make_future_rows(model.schema, model.history, steps)
    else:
        rows = _read_future(model, stream, steps, notice)
        skipped = _count_steps_between(model, rows, notice)
        if skipped:
            rows = concat_rows(
                [
                    make_future_rows(model.schema, model.history, skipped)._replace(
                        schema=rows.schema
                    ),
                    rows,
                ]
            )
    path = HorizonPath(model.forecast_context, [model.history])
    forecast = join_forecasts(
        [path.forecast_step(slice_rows(rows, k, k + 1)) for k in range(skipped + steps)]
    )
    clock = model.schema.clock
    known = clock is not None and rows.time is not None
    when = format_times(clock, rows.time[skipped:]) if known else []  # type: ignore[arg-type,index]  # known
    return HorizonForecast(when, select_rows(forecast, slice(skipped, None)), 1 + skipped)


def _check_inputs_known(model: OnlineModel, notice: Callable[[str], None]) -> None:
    """Raise if the model needs inputs whose future values only the user knows."""
    schema = model.schema
    if schema.known_ahead:
        raise UsageError(
            f"--horizon: '{schema.known_ahead[0]}' is known ahead: name a file with its future "
            "values"
        )
    unknown = [name for name in schema.unknown_ahead if name not in schema.lag_only]
    if unknown:
        quoted = ", ".join(f"'{name}'" for name in unknown[:MAX_NAMES_SHOWN])
        notice(
            f"{quoted}{' and others' if len(unknown) > MAX_NAMES_SHOWN else ''} missing in the "
            "steps to forecast: without future values, forecasts leave inputs out"
        )
    if schema.clock is not None and not schema.clock.step:
        raise UsageError(
            f"--horizon: '{schema.clock.column}' has no regular time step: name a file with the "
            "times to forecast"
        )


def _read_future(
    model: OnlineModel, stream: Stream, steps: int, notice: Callable[[str], None]
) -> Rows:
    """Read the first rows after the model's end, one per step."""
    parts: list[Rows] = []
    end, read, past = _end_of(model), 0, 0
    for rows in stream:
        read += len(rows.y)
        if end is not None and rows.time is not None:
            later = ~(rows.time[:, 0] <= end[0])
            past += int(np.sum(~later))
            rows = rows if later.all() else take_rows(rows, np.flatnonzero(later))
        parts.append(rows)
        if sum(len(part.y) for part in parts) >= steps:
            break
    found = sum(len(part.y) for part in parts)
    clock = model.schema.clock
    if past and clock is not None and end is not None:
        text = format_times(clock, end[None])[0]
        if found == 0:
            raise DataError(
                f"--horizon: none of the {read:,} rows of {stream.source} is after the model's end "
                f"({text}). Name a file with later rows, or train on the rows up to these first."
            )
        notice(
            f"skipped {past:,} row{'s' if past > 1 else ''} of {stream.source} at or before the "
            f"model's end ({text})"
        )
    if found < steps:
        raise DataError(
            f"--horizon {steps} needs {steps:,} rows after the model's end, "
            f"but {stream.source} has {found:,}"
        )
    return slice_rows(concat_rows(parts), 0, steps)


def _end_of(model: OnlineModel) -> FloatArray | None:
    """Return the time of the last row learned (2,); None if it is unknown."""
    known = model.history.time[np.isfinite(model.history.time[:, 0])]
    return known[np.argmax(known[:, 0])] if len(known) and model.schema.clock else None


def _count_steps_between(model: OnlineModel, rows: Rows, notice: Callable[[str], None]) -> int:
    """Count the steps missing between the model's end and the first row."""
    end, clock = _end_of(model), model.schema.clock
    if end is None or clock is None or rows.time is None or not np.isfinite(rows.time[0, 0]):
        return 0
    missing = count_missing_steps(clock, end, rows.time[0])
    if not missing:
        return 0
    end_text, first_text = format_times(clock, np.stack((end, rows.time[0])))
    if missing + len(rows.y) > MAX_HORIZON_STEPS:
        raise DataError(
            f"--horizon: the first row ({first_text}) is {missing:,} steps after the model's end "
            f"({end_text}), and at most {MAX_HORIZON_STEPS:,} steps can be forecast. Train on "
            "later rows."
        )
    notice(
        f"the first row ({first_text}) is {missing + 1:,} steps after the model's end "
        f"({end_text}). The steps between are forecast too, without their inputs."
    )
    return missing


def build_step_columns(model: OnlineModel, ahead: HorizonForecast) -> pa.RecordBatch:
    """Build the leading columns of a forecast: the step number, and its time."""
    columns = {"step": pa.array(ahead.first_step + np.arange(len(ahead.forecast.mean)))}
    if model.schema.clock is not None and ahead.when:
        columns[model.schema.clock.column] = pa.array(ahead.when)
    return pa.RecordBatch.from_pydict(columns)


def build_forecast_chart(model: OnlineModel, ahead: HorizonForecast) -> ChartSpec:
    """Build a chart of the last values and the forecast."""
    target = model.schema.targets[0]
    past = model.history.values[-MAX_CHART_STEPS:, model.timeline.columns.index(target)]
    mean, sd = ahead.forecast.mean[:, 0], ahead.forecast.sd[:, 0]
    span = f"{ahead.when[0]} to {ahead.when[-1]}" if ahead.when else f"{len(mean)} steps"
    return ChartSpec(
        "ahead",
        "What comes next",
        {"past": past, "mean": mean, "sd": sd, "name": target},
        f"The last values, and the forecast of {span} with its 90 % band.",
        "known, then forecast with 90 % band",
    )


def add_forecast_chart(model: OnlineModel, section: TargetSection) -> TargetSection:
    """Add a forecast chart to the section, if the model can forecast."""
    return (
        section._replace(groups=[*section.groups, *_forecast_groups(model)])
        if model.schema.lags
        else section
    )


def _forecast_groups(model: OnlineModel) -> list[ChartGroup]:
    try:
        season = 0 if model.schema.clock is None else model.schema.clock.season_steps
        steps = min(max(season, DEFAULT_CHART_STEPS), MAX_CHART_STEPS)
        ahead = forecast_horizon(model, steps)
    except UsageError:
        return []
    if not np.isfinite(ahead.forecast.mean).all():
        return []
    return [ChartGroup("What comes next", [build_forecast_chart(model, ahead)])]
