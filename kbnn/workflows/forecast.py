"""Several steps ahead of the last row learned, see kbnn.model.recursive_forecast.

Going on from the last row learned: forecasts of steps ahead, as a table and as a picture.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from kbnn.array_types import FloatArray
from kbnn.data.batch import Rows, slice_rows
from kbnn.data.clock import format_times
from kbnn.data.dataset import Stream
from kbnn.data.lags import History
from kbnn.data.row_blocks import concat_rows
from kbnn.data.row_blocks import take_rows as blocks_taken
from kbnn.errors import ArgumentError, DataError, UsageError
from kbnn.metrics.verdicts import ChartGroup, ChartSpec, TargetSection
from kbnn.model.model import OnlineModel
from kbnn.model.recursive_forecast import ForecastPath, MultiStepForecast, count_missing_steps
from kbnn.targets.prediction import Forecast, select_rows

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


DEFAULT_CHART_STEPS: Final = 24
"""Steps drawn of a series that has no season."""
MAX_CHART_STEPS: Final = 96


class HorizonForecast(NamedTuple):
    """Steps ahead: when each is, as the stream writes it (none without a clock), what is said.

    `first` is how many steps after the model's end the first of them is.
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
    """Forecast the next steps; a stream tells what is known of them.

    Rows of the stream that are not after the model's end are skipped. Where it starts later than
    one step after the end, the steps between are forecast too, but not given back.
    """
    check_horizon(model, steps)
    skipped = 0
    if stream is None:
        _check_inputs_known(model)
        rows = make_future_rows(model, steps)
    else:
        rows = _read_future(model, stream, steps, notice)
        skipped = _count_steps_between(model, rows, notice)
        if skipped:
            rows = concat_rows(
                [make_future_rows(model, skipped)._replace(schema=rows.schema), rows]
            )
    said = forecast_steps(
        model, [model.history], [slice_rows(rows, k, k + 1) for k in range(skipped + steps)]
    ).to_forecast()
    clock = model.schema.clock
    known = clock is not None and rows.time is not None
    when = format_times(clock, rows.time[skipped:]) if known else []  # type: ignore[arg-type,index]  # known
    return HorizonForecast(when, select_rows(said, slice(skipped, None)), 1 + skipped)


def _check_inputs_known(model: OnlineModel) -> None:
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


def _read_future(
    model: OnlineModel, stream: Stream, steps: int, notice: Callable[[str], None]
) -> Rows:
    """Read the first rows after the model's end, as many as there are steps."""
    parts: list[Rows] = []
    end, read, past = _end_of(model), 0, 0
    for rows in stream:
        read += len(rows.y)
        if end is not None and rows.time is not None:
            later = ~(rows.time[:, 0] <= end[0])
            past += int(np.sum(~later))
            rows = rows if later.all() else blocks_taken(rows, np.flatnonzero(later))
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
                f"({text}). Name a file of later rows, or train on the rows up to these first."
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
    """The time of the last row learned (2,), if it is known."""
    known = model.history.time[np.isfinite(model.history.time[:, 0])]
    return known[np.argmax(known[:, 0])] if len(known) and model.schema.clock else None


def _count_steps_between(model: OnlineModel, rows: Rows, notice: Callable[[str], None]) -> int:
    """Count the steps that are missing between the model's end and the first row."""
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
            f"({end_text}), and at most {MAX_HORIZON_STEPS:,} steps can be forecast. Train on later rows."
        )
    notice(
        f"the first row ({first_text}) is {missing + 1:,} steps after the model's end "
        f"({end_text}). The steps between are forecast too, without their inputs."
    )
    return missing


def build_step_columns(model: OnlineModel, onward: HorizonForecast) -> pa.RecordBatch:
    """What stands before the forecasts: the number of the step, and its time."""
    columns = {"step": pa.array(onward.first_step + np.arange(len(onward.forecast.mean)))}
    if model.schema.clock is not None and onward.when:
        columns[model.schema.clock.column] = pa.array(onward.when)
    return pa.RecordBatch.from_pydict(columns)


def build_forecast_chart(model: OnlineModel, onward: HorizonForecast) -> ChartSpec:
    """The last values and what comes next."""
    target = model.schema.targets[0]
    past = model.history.values[-MAX_CHART_STEPS:, model.timeline.columns.index(target)]
    mean, sd = onward.forecast.mean[:, 0], onward.forecast.sd[:, 0]
    span = f"{onward.when[0]} to {onward.when[-1]}" if onward.when else f"{len(mean)} steps"
    return ChartSpec(
        "ahead",
        "What comes next",
        {"past": past, "mean": mean, "sd": sd, "name": target},
        f"The last values, and the forecast of {span} with its 90 % band.",
        "known, then forecast with 90 % band",
    )


def add_forecast_chart(model: OnlineModel, section: TargetSection) -> TargetSection:
    """The section with a picture of what comes next, where the model can say so."""
    return (
        section._replace(groups=[*section.groups, *_forecast_groups(model)])
        if model.schema.lags
        else section
    )


def _forecast_groups(model: OnlineModel) -> list[ChartGroup]:
    try:
        season = 0 if model.schema.clock is None else model.schema.clock.season_steps
        steps = min(max(season, DEFAULT_CHART_STEPS), MAX_CHART_STEPS)
        onward = forecast_horizon(model, steps)
    except UsageError:
        return []
    if not np.isfinite(onward.forecast.mean).all():
        return []
    return [ChartGroup("What comes next", [build_forecast_chart(model, onward)])]
