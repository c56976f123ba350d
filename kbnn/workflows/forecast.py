"""Multi-step forecasts after the last row learned, and their backtest (`evaluate --horizon`).

The recursion over steps is in `kbnn.model.recursive_forecast`.

In a backtest, from up to `MAX_ORIGINS` evenly spaced rows of a stream (origins), the model
forecasts the next steps from the rows before the origin, and each step is compared with the value
that followed. By default the network learns nothing; only the weights by which its forecasts are
combined with naive ones, and the widths of intervals, follow the outcomes known at each origin.
With `learn`, the model learns all rows before each origin, as a live system does.

MASE and MSIS are divided by the mean absolute change over a season (over one row without a season)
of all values scored and the model's last ones.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kbnn.array_types import FloatArray, IntArray
from kbnn.data.batch import Rows, concat_rows, slice_rows, take_rows
from kbnn.data.clock import Clock, format_times
from kbnn.data.dataset import Stream
from kbnn.data.lags import History
from kbnn.data.schema import Schema
from kbnn.data.time_series import MAX_NAMES_SHOWN
from kbnn.data.timestamps import find_steps
from kbnn.distributions.dispatch import read_distribution
from kbnn.distributions.predictive import INTERVAL_HALF_WIDTHS_SD
from kbnn.errors import ArgumentError, DataError, UsageError
from kbnn.fleet.fleet import Fleet
from kbnn.fleet.key_index import group_by_key, read_keys
from kbnn.metrics.sections import ChartGroup, ChartSpec, TargetSection
from kbnn.metrics.verdicts import StepFigures, Verdict, judge_steps
from kbnn.model.forecast_candidates import COMBINED_STEPS
from kbnn.model.forecast_combination import StepErrors
from kbnn.model.interface import StreamModel
from kbnn.model.model import OnlineModel
from kbnn.model.recursive_forecast import (
    FirstStep,
    ForecastContext,
    HorizonPath,
    SequenceNotices,
    align_history,
    count_missing_steps,
    forecast_origins,
    make_future_rows,
    weight_first_step,
)
from kbnn.output.fields import make_output_name
from kbnn.targets.base import check_horizon_support
from kbnn.targets.prediction import Forecast, join_forecasts, select_rows

MAX_HORIZON_STEPS: Final = 10_000


def check_horizon(model: OnlineModel, steps: int) -> None:
    """Raise if the model cannot forecast this number of steps."""
    schema = model.schema
    if not isinstance(steps, int | np.integer) or isinstance(steps, bool):
        raise ArgumentError(f"--horizon must be a whole number of steps, not {steps!r}")
    if not 1 <= steps <= MAX_HORIZON_STEPS:
        raise UsageError(f"--horizon must be between 1 and {MAX_HORIZON_STEPS:,}, not {steps}")
    check_horizon_support(model.task)
    if not any(lag.column in schema.targets for lag in schema.lags):
        raise UsageError(
            f"--horizon needs a model with lags of '{schema.targets[0]}': train one with --lags "
            "1,2 (in Python lags='1,2', also for rows learned one by one)"
        )


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
    skipped, schema = 0, model.schema
    if schema.clock is not None:
        schema = replace(schema, clock=find_steps(schema.clock, model.history.time))
    if stream is None:
        _check_inputs_known(schema, notice)
        rows = make_future_rows(schema, model.history, steps)
    else:
        rows = _read_future(model, stream, steps, notice)
        skipped = _count_steps_between(schema.clock, _end_of(model), rows, notice)
        if skipped:
            between = make_future_rows(schema, model.history, skipped)
            rows = concat_rows([between._replace(schema=rows.schema), rows])
    path = HorizonPath(model.forecast_context, [model.history])
    forecast = join_forecasts(
        [path.forecast_step(slice_rows(rows, k, k + 1)) for k in range(skipped + steps)]
    )
    clock = schema.clock
    known = clock is not None and rows.time is not None
    when = format_times(clock, rows.time[skipped:]) if known else []  # type: ignore[arg-type,index]  # known
    return HorizonForecast(when, select_rows(forecast, slice(skipped, None)), 1 + skipped)


def forecast_fleet(
    fleet: Fleet, steps: int, notice: Callable[[str], None] = lambda text: None
) -> Iterator[tuple[Forecast, pa.RecordBatch]]:
    """Forecast the next steps of every key, after its own last row.

    Yields the forecasts of each key, those with most rows first, and the leading columns: key,
    step and time. Each key is forecast by its model, as if that were exported.
    """
    if fleet.schema.known_ahead:
        raise UsageError(
            f"--horizon: '{fleet.schema.known_ahead[0]}' is known ahead, and the forecasts of a "
            "fleet take no future values. Export the model of a key (kbnn inspect FLEET --key KEY "
            "--export FILE.npz)."
        )
    reported: set[str] = set()

    def notice_once(text: str) -> None:
        if text not in reported:
            reported.add(text)
            notice(text)

    for key, _ in fleet.models.store.iter_key_metrics():
        model = fleet.models.find_model(key)
        assert model is not None
        ahead = forecast_horizon(model, steps, notice=notice_once)
        cells = next(csv.reader([key]), [""]) if len(fleet.key) > 1 else [key]
        yield (
            ahead.forecast,
            build_step_columns(model, ahead, dict(zip(fleet.key, cells, strict=True))),
        )


def _check_inputs_known(schema: Schema, notice: Callable[[str], None]) -> None:
    """Raise if a model needs inputs whose future values only the user knows."""
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
            "times to forecast (in Python: data)"
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


def _count_steps_between(
    clock: Clock | None, end: FloatArray | None, rows: Rows, notice: Callable[[str], None]
) -> int:
    """Count the steps missing between the model's end and the first row."""
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


def build_step_columns(
    model: OnlineModel, ahead: HorizonForecast, key: Mapping[str, str] | None = None
) -> pa.RecordBatch:
    """Build the leading columns of a forecast: the key, the step number, and its time.

    Columns of the input keep their names: if one is called `step`, the number is `kbnn_step`.
    """
    steps = ahead.first_step + np.arange(len(ahead.forecast.mean))
    given = {name: pa.array([cell] * len(steps)) for name, cell in (key or {}).items()}
    times = {}
    if model.schema.clock is not None and ahead.when:
        times[model.schema.clock.column] = pa.array(ahead.when)
    number = make_output_name("step", [*given, *times])
    return pa.RecordBatch.from_pydict({**given, number: pa.array(steps), **times})


MAX_ORIGINS: Final = 500
MIN_KEY_ORIGINS: Final = 20
"""Origins of a series, and the least of each key of a fleet, which share those of a series."""
_ORIGINS_PER_BATCH: Final = 50
_MISS_PENALTY: Final = 20.0
"""Weight of a miss in the 90 % interval score: 2 / (1 - 0.9)."""


class BacktestStep(NamedTuple):
    """Metrics of the forecasts of one step ahead."""

    step: int
    rows: int
    rmse: float
    last_rmse: float  # of the last value before the origin
    season_rmse: float | None  # of the value one season earlier
    coverage_90: float
    width_90: float
    interval_score_90: float
    mase: float | None  # None if the values never change
    smape: float | None  # in percent; None if a value and its forecast are both 0
    msis: float | None


class ShownOrigin(NamedTuple):
    """Forecasts from one origin beside what followed, for a chart."""

    title: str
    times: list[str]  # of the past and the steps; empty without a clock
    past: FloatArray  # (P,) the last values before the origin
    truth: FloatArray  # (S,)
    mean: FloatArray  # (S,)
    lower: FloatArray  # (S,)
    upper: FloatArray  # (S,)


class KeyBacktest(NamedTuple):
    """Metrics of one key of a fleet, as means over all steps."""

    key: str
    origins: int
    level: str  # of the verdict
    mase: float | None
    smape: float | None
    msis: float | None
    coverage_90: float | None


class BacktestResult(NamedTuple):
    """Metrics of all steps, and the number of origins."""

    origins: int
    steps: list[BacktestStep]
    learning: bool = False  # whether the model learned between origins
    shown: tuple[ShownOrigin, ...] = ()  # the worst, a typical and the best origin of one series
    keys: tuple[KeyBacktest, ...] = ()  # of a fleet

    @property
    def verdict(self) -> Verdict:
        """Whether forecasts beat naive ones and bands hold, by step."""
        return judge_steps(
            [
                StepFigures(
                    step.step,
                    step.rows,
                    step.rmse,
                    step.last_rmse,
                    step.season_rmse,
                    step.coverage_90,
                )
                for step in self.steps
            ]
        )

    def average(self, name: str) -> float | None:
        """Return the mean of a metric over all steps, None if a step has none."""
        values = [getattr(step, name) for step in self.steps]
        return None if None in values else float(np.mean(values))

    def to_json(self) -> dict[str, Any]:
        """Return the object of `evaluate --horizon --json`."""
        verdict = self.verdict
        return {
            "origins": self.origins,
            "learning": self.learning,
            **{name: self.average(name) for name in ("mase", "smape", "msis", "coverage_90")},
            "verdict": {
                "level": verdict.level,
                "headline": verdict.headline,
                "sentences": list(verdict.sentences),
            },
            "steps": [step._asdict() for step in self.steps],
            **({"keys": [key._asdict() for key in self.keys]} if self.keys else {}),
        }


def run_backtest(
    model: StreamModel,
    stream: Stream,
    steps: int,
    notice: Callable[[str], None] = lambda text: None,
    *,
    learn: bool = False,
) -> BacktestResult:
    """Forecast from many origins of a stream, and score every step; of a fleet over all keys.

    With `learn` the model learns the rows before each origin (pass a copy).
    """
    if isinstance(model, Fleet):
        return _run_fleet_backtest(model, stream, steps, notice, learn)
    assert isinstance(model, OnlineModel)
    check_horizon(model, steps)
    rows = concat_rows(list(stream))
    if len(rows.y) < steps:
        raise DataError(
            f"--horizon {steps} needs {steps} rows or more, but there are {len(rows.y)}"
        )
    _check_values_known(model.schema.targets[0], rows)
    found = _follow_origins(model, rows, steps, MAX_ORIGINS, SequenceNotices(notice), learn)
    shown = _select_shown(model, rows, found)
    return _score_steps(found)._replace(learning=learn, shown=shown)


def _check_values_known(target: str, rows: Rows) -> None:
    """Raise DataError if no row has a value to compare forecasts with."""
    if not np.isfinite(rows.y[:, 0]).any():
        raise DataError(
            f"nothing to evaluate: none of the {len(rows.y):,} rows has a value of '{target}'"
        )


def _run_fleet_backtest(
    fleet: Fleet, stream: Stream, steps: int, notice: Callable[[str], None], learn: bool
) -> BacktestResult:
    """Forecast from many origins of every key, and score every step over all keys.

    Each key is scored by its own model, as if that were exported. Errors of a key are divided by
    the mean change of its own values before they are pooled for MASE and MSIS.
    """
    check_horizon(fleet.overall, steps)
    rows = concat_rows(list(stream))
    _check_values_known(fleet.schema.targets[0], rows)
    groups = list(group_by_key(read_keys(rows, fleet.key)))
    origins = max(MIN_KEY_ORIGINS, MAX_ORIGINS // max(len(groups), 1))
    notices, left_out = SequenceNotices(notice), 0
    found: list[OriginOutcomes] = []
    keys: list[KeyBacktest] = []
    for key, places in groups:
        model = fleet.models.find_model(key) if len(places) >= steps else None
        if model is None:
            left_out += 1
            continue
        part = _follow_origins(model, take_rows(rows, places), steps, origins, notices, learn)
        scored = _score_steps(part)
        figures = {name: scored.average(name) for name in ("mase", "smape", "msis", "coverage_90")}
        keys.append(KeyBacktest(key, scored.origins, scored.verdict.level, **figures))
        found.append(part)
    if not found:
        raise DataError(
            f"--horizon {steps} needs a key with {steps} rows or more that the fleet has learned, "
            f"but none of the {len(groups):,} keys of {stream.source} is one"
        )
    if left_out:
        notice(
            f"left out {left_out:,} of {len(groups):,} keys: they have no model, or fewer than "
            f"{steps} rows"
        )
    pooled = OriginOutcomes(*map(np.concatenate, zip(*found, strict=True)))
    return _score_steps(pooled)._replace(learning=learn, keys=tuple(keys))


class OriginOutcomes(NamedTuple):
    """Forecasts from n origins over S steps, and what followed."""

    place: IntArray  # (n,) rows before each origin
    truth: FloatArray  # (n, S)
    mean: FloatArray  # (n, S)
    lower: FloatArray  # (n, S) edges of the 90 % interval
    upper: FloatArray  # (n, S)
    last: FloatArray  # (n, S) the last value before the origin
    season_ago: FloatArray  # (n, S) NaN without a season
    scale: FloatArray  # (n, 1) mean absolute change of the values over a season

    @property
    def scaled_errors(self) -> FloatArray:
        """Mean absolute error of each origin (n,), divided by the scale; NaN if unknown."""
        error = np.abs(self.truth - self.mean)
        seen = np.isfinite(error)
        total = np.sum(np.where(seen, error, 0.0), axis=1)
        size = self.scale[:, 0] * np.sum(seen, axis=1)
        unknown = np.full(len(total), np.nan)
        return np.asarray(np.divide(total, size, out=unknown, where=size > 0.0))


def _follow_origins(
    model: OnlineModel,
    rows: Rows,
    steps: int,
    origins: int,
    notices: SequenceNotices,
    learn: bool,
) -> OriginOutcomes:
    """Forecast from evenly spaced rows of one series."""
    places = np.unique(np.linspace(0, len(rows.y) - steps, origins).astype(np.int64))
    past = align_history(model.schema, model.timeline, model.history, rows, notices).copy()
    make = _forecast_while_learning if learn else _forecast_origins
    made = make(model, past, rows, places, steps)
    return _compare_with_truth(model, past, rows, places, made)


SHOWN_PAST_STEPS: Final = 48


def _select_shown(model: OnlineModel, rows: Rows, found: OriginOutcomes) -> tuple[ShownOrigin, ...]:
    """Select the origins with the largest, the median and the smallest error."""
    order = np.argsort(found.scaled_errors)
    order = order[np.isfinite(found.scaled_errors[order])]
    if not len(order):
        return ()
    titles = ("worst origin", "typical origin", "best origin")
    clock, steps = model.schema.clock, found.mean.shape[1]
    shown = []
    for title, at in zip(titles, order[[-1, len(order) // 2, 0]].tolist(), strict=True):
        place = int(found.place[at])
        start = max(0, place - SHOWN_PAST_STEPS)
        times: list[str] = []
        if clock is not None and rows.time is not None:
            times = format_times(clock, rows.time[start : place + steps])
        one = (found.truth[at], found.mean[at], found.lower[at], found.upper[at])
        shown.append(ShownOrigin(title, times, rows.y[start:place, 0], *one))
    return tuple(shown)


def _forecast_while_learning(
    model: OnlineModel, past: History, rows: Rows, places: IntArray, steps: int
) -> list[Forecast]:
    """Forecast the steps from each origin by a model that has learned all rows before it."""
    future, done, made = _hide_unknown_inputs(model, rows), 0, []
    for place in places.tolist():
        if place > done:
            model.learn(slice_rows(rows, done, place))
            done = place
        ahead = [slice_rows(future, place + h, place + h + 1) for h in range(steps)]
        path = HorizonPath(model.forecast_context, [model.history])
        made.append(join_forecasts([path.forecast_step(one) for one in ahead]))
    return made


def _forecast_origins(
    model: OnlineModel, past: History, rows: Rows, places: IntArray, steps: int
) -> list[Forecast]:
    """Forecast the steps from each origin; an origin is the number of rows before it.

    The network does not change. Weights and widths by step follow the outcomes of earlier origins,
    those of the first step too.
    """
    history, errors, done, scored = past.copy(), model.step_errors, 0, 0
    context = model.forecast_context
    if not np.array_equal(past.values, model.history.values, equal_nan=True):
        errors = errors.drop_pending()
    targets = _join_targets(model, past, rows)
    future = _hide_unknown_inputs(model, rows)
    made: list[Forecast] = []
    for start in range(0, len(places), _ORIGINS_PER_BATCH):
        chosen = places[start : start + _ORIGINS_PER_BATCH]
        known: list[History] = []
        modeled: list[FloatArray] = []
        for place in chosen.tolist():
            between = slice_rows(rows, done, place)
            modeled.append(model.timeline.forecast_rows(history, between, COMBINED_STEPS))
            model.timeline.append_rows(history, between)
            done = place
            known.append(history.copy())
        ahead = [take_rows(future, chosen + h) for h in range(steps)]
        paths = forecast_origins(context, known, ahead)
        for k, place in enumerate(chosen.tolist()):
            values = targets[: len(past.values) + place]
            errors = errors.learn_series_models(modeled[k], rows.y[scored:place, 0])
            errors = errors.advance(place - scored).resolve_pending(values, context.season)
            scored, path = place, paths.select_origin(k)
            combined = errors.open_combiner().combine(path.candidates)
            context = context._replace(errors=errors)
            combined = weight_first_step(context, path.first, combined)
            made.append(path.apply_combination(combined, context))
            errors = _learn_first_step(context, path.first, rows.y[place : place + 1, 0])
            errors = errors.add_origin(path.candidates, combined)
    return made


def _learn_first_step(context: ForecastContext, first: FirstStep, y: FloatArray) -> StepErrors:
    """Record the error of the first step from one origin, unless its inputs were unknown."""
    if first.unknown[0]:
        return context.errors
    mean, sd = first.network.mean[:, 0], first.network.sd[:, 0]
    return context.learn_one_step(mean, sd, first.naive, y)[0]


def _hide_unknown_inputs(model: OnlineModel, rows: Rows) -> Rows:
    """Return the rows as known at an origin: without inputs that are not known ahead."""
    schema, x = model.schema, rows.x.copy()
    unknown = set(schema.unknown_ahead)
    x[:, [at for at, place in enumerate(schema.layout) if place.column in unknown]] = np.nan
    return rows._replace(x=x)


def _join_targets(model: OnlineModel, past: History, rows: Rows) -> FloatArray:
    """Return the targets of the history and of the rows."""
    at = model.timeline.columns.index(model.schema.targets[0])
    return np.concatenate((past.values[:, at], rows.y[:, 0]))


def _compare_with_truth(
    model: OnlineModel, past: History, rows: Rows, places: IntArray, made: list[Forecast]
) -> OriginOutcomes:
    """Return forecasts beside the true values, the last value and the value one season earlier."""
    clock = model.schema.clock
    season = 0 if clock is None else clock.season_steps
    every = _join_targets(model, past, rows)
    origin = len(past.values) + places
    last = np.array([_last_known(every[: int(end)]) for end in origin])
    change = np.abs(every[season or 1 :] - every[: -(season or 1)])
    scale = float(np.nanmean(change)) if np.isfinite(change).any() else 0.0
    mean = np.stack([forecast.mean[:, 0] for forecast in made])
    lower, upper = np.empty_like(mean), np.empty_like(mean)
    for k, forecast in enumerate(made):
        lower[k], upper[k] = read_distribution(forecast.stated[:, 0]).interval(0.9)
    steps = mean.shape[1]
    return OriginOutcomes(
        places,
        every[origin[:, None] + np.arange(steps)],
        mean,
        lower,
        upper,
        np.repeat(last[:, None], steps, axis=1),
        np.stack([_season_ago(every, origin, h, season) for h in range(steps)], axis=1),
        np.full((len(places), 1), scale),
    )


def _score_steps(found: OriginOutcomes) -> BacktestResult:
    """Score each step against the true values, the last value and the value one season earlier."""
    scored = []
    for h in range(found.mean.shape[1]):
        truth, mean, lower, upper, last, ago = (part[:, h] for part in found[1:7])
        seen = np.isfinite(truth) & np.isfinite(mean)
        inside = (truth >= lower) & (truth <= upper)
        miss = np.maximum(lower - truth, 0.0) + np.maximum(truth - upper, 0.0)
        score = upper - lower + _MISS_PENALTY * miss
        size = (np.abs(truth) + np.abs(mean))[seen]
        missed = np.abs(truth - mean)
        scaled = seen & (found.scale[:, 0] > 0.0)
        scale = found.scale[scaled, 0]
        scored.append(
            BacktestStep(
                h + 1,
                int(seen.sum()),
                _root_mean_square((truth - mean)[seen]),
                _root_mean_square((truth - last)[seen]),
                _root_mean_square((truth - ago)[seen]) if np.isfinite(ago).any() else None,
                _mean_of(inside[seen]),
                _mean_of((upper - lower)[seen]),
                _mean_of(score[seen]),
                float(np.mean(missed[scaled] / scale)) if len(scale) else None,
                _mean_of(200.0 * missed[seen] / size) if np.all(size > 0.0) else None,
                float(np.mean(score[scaled] / scale)) if len(scale) else None,
            )
        )
    return BacktestResult(len(found.place), scored)


def _season_ago(every: FloatArray, origin: IntArray, h: int, season: int) -> FloatArray:
    """Return the values a whole number of seasons before step h that are known at the origin."""
    if not season:
        return np.full(len(origin), np.nan)
    back = season * (h // season + 1)
    source = origin + h - back
    return np.where(source >= 0, every[np.maximum(source, 0)], np.nan)


def _last_known(values: FloatArray) -> float:
    """Return the last finite value, NaN if there is none."""
    known = values[np.isfinite(values)]
    return float(known[-1]) if len(known) else float("nan")


def _mean_of(values: npt.NDArray[Any]) -> float:
    """Return the mean, NaN if there are no values."""
    return float(np.mean(values)) if len(values) else float("nan")


def _root_mean_square(errors: FloatArray) -> float:
    known = errors[np.isfinite(errors)]
    return float(np.sqrt(np.mean(known**2))) if len(known) else float("nan")


DEFAULT_CHART_STEPS: Final = 24
"""Steps drawn for a series without a season."""
MAX_CHART_STEPS: Final = 96


def build_forecast_chart(model: OnlineModel, ahead: HorizonForecast) -> ChartSpec:
    """Build a chart of the last values and the forecast."""
    target, clock = model.schema.targets[0], model.schema.clock
    past = model.history.values[-MAX_CHART_STEPS:, model.timeline.columns.index(target)]
    mean, half = ahead.forecast.mean[:, 0], INTERVAL_HALF_WIDTHS_SD[90] * ahead.forecast.sd[:, 0]
    span = f"{ahead.when[0]} to {ahead.when[-1]}" if ahead.when else f"{len(mean)} steps"
    times = ahead.when
    if clock is not None and ahead.when:
        times = [*format_times(clock, model.history.time[-len(past) :]), *times]
    return ChartSpec(
        "ahead",
        "What comes next",
        {"past": past, "mean": mean, "lower": mean - half, "upper": mean + half, "name": target,
         "times": times},
        f"The last values, and the forecast of {span} with its 90 % band.",
        "known, then forecast with 90 % band",
    )  # fmt: skip


def build_backtest_charts(model: OnlineModel, judged: BacktestResult) -> list[ChartSpec]:
    """Build charts of the worst, a typical and the best origin of a backtest."""
    name = model.schema.targets[0]
    return [
        ChartSpec("ahead", shown.title, {**shown._asdict(), "name": name}) for shown in judged.shown
    ]


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
