"""Backtest of multi-step forecasts (`kbnn evaluate --horizon`).

From up to `MAX_ORIGINS` evenly spaced rows of a stream (origins), the model forecasts the next
steps from the rows before the origin, and each step is compared with the value that followed. By
default the network learns nothing; only the weights by which its forecasts are combined with naive
ones, and the widths of intervals, follow the outcomes known at each origin. With `learn`, the model
learns all rows before each origin, as a live system does.

MASE and MSIS are divided by the mean absolute change over a season (over one row without a season)
of all values scored and the model's last ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np

from kbnn.array_types import FloatArray
from kbnn.data.batch import Rows, concat_rows, slice_rows, take_rows
from kbnn.data.dataset import Stream
from kbnn.data.lags import History
from kbnn.distributions.dispatch import read_distribution
from kbnn.errors import DataError
from kbnn.metrics.verdicts import StepFigures, Verdict, judge_steps
from kbnn.model.model import OnlineModel
from kbnn.model.recursive_forecast import (
    HorizonPath,
    SequenceNotices,
    align_history,
    forecast_origins,
)
from kbnn.targets.prediction import Forecast, join_forecasts
from kbnn.workflows.forecast import check_horizon

MAX_ORIGINS: Final = 500
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


class BacktestResult(NamedTuple):
    """Metrics of all steps, and the number of origins."""

    origins: int
    steps: list[BacktestStep]
    learning: bool = False  # whether the model learned between origins

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
        }


def run_backtest(
    model: OnlineModel,
    stream: Stream,
    steps: int,
    notice: Callable[[str], None] = lambda text: None,
    *,
    learn: bool = False,
) -> BacktestResult:
    """Forecast from many origins of a stream, and score every step.

    With `learn` the model learns the rows before each origin (pass a copy).
    """
    check_horizon(model, steps)
    rows = concat_rows(list(stream))
    if len(rows.y) < steps:
        raise DataError(
            f"--horizon {steps} needs {steps} rows or more, but there are {len(rows.y)}"
        )
    places = np.unique(np.linspace(0, len(rows.y) - steps, MAX_ORIGINS).astype(np.int64))
    past = align_history(model.schema, model.timeline, model.history, rows, SequenceNotices(notice))
    past = past.copy()
    make = _forecast_while_learning if learn else _forecast_origins
    made = make(model, past, rows, places, steps)
    return _score_steps(model, past, rows, places, made)._replace(learning=learn)


def _forecast_while_learning(
    model: OnlineModel, past: History, rows: Rows, places: Any, steps: int
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
    model: OnlineModel, past: History, rows: Rows, places: Any, steps: int
) -> list[Forecast]:
    """Forecast the steps from each origin; an origin is the number of rows before it.

    The network does not change. Weights and widths by step follow the outcomes of earlier origins.
    """
    history, errors, done, scored = past.copy(), model.step_errors, 0, 0
    if not np.array_equal(past.values, model.history.values, equal_nan=True):
        errors = errors.drop_pending()
    targets = _join_targets(model, past, rows)
    future = _hide_unknown_inputs(model, rows)
    made: list[Forecast] = []
    for start in range(0, len(places), _ORIGINS_PER_BATCH):
        chosen = places[start : start + _ORIGINS_PER_BATCH]
        known: list[History] = []
        for place in chosen.tolist():
            model.timeline.append_rows(history, slice_rows(rows, done, place))
            done = place
            known.append(history.copy())
        ahead = [take_rows(future, chosen + h) for h in range(steps)]
        paths = forecast_origins(model.forecast_context, known, ahead)
        for k, place in enumerate(chosen.tolist()):
            values = targets[: len(past.values) + place]
            errors = errors.advance(place - scored).resolve_pending(
                values, model.forecast_context.season
            )
            scored, path = place, paths.select_origin(k)
            combined = errors.open_combiner().combine(path.candidates)
            errors = errors.add_origin(path.candidates, combined)
            made.append(path.apply_combination(combined))
    return made


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


def _score_steps(
    model: OnlineModel, past: History, rows: Rows, places: Any, made: list[Forecast]
) -> BacktestResult:
    """Score each step against the true values, the last value and the value one season earlier."""
    clock = model.schema.clock
    season = 0 if clock is None else clock.season_steps
    every = _join_targets(model, past, rows)
    origin = len(past.values) + places
    last = np.array([_last_known(every[: int(end)]) for end in origin])
    change = np.abs(every[season or 1 :] - every[: -(season or 1)])
    scale = float(np.nanmean(change)) if np.isfinite(change).any() else 0.0
    means = np.stack([forecast.mean[:, 0] for forecast in made])
    distributions = np.stack([forecast.stated[:, 0] for forecast in made])
    found = []
    for h in range(means.shape[1]):
        truth, mean = every[origin + h], means[:, h]
        lower, upper = read_distribution(distributions[:, h]).interval(0.9)
        seen = np.isfinite(truth) & np.isfinite(mean)
        inside = (truth >= lower) & (truth <= upper)
        miss = np.maximum(lower - truth, 0.0) + np.maximum(truth - upper, 0.0)
        ago = _season_ago(every, origin, h, season)
        score = float(np.mean((upper - lower + _MISS_PENALTY * miss)[seen]))
        size = (np.abs(truth) + np.abs(mean))[seen]
        missed = np.abs(truth - mean)[seen]
        found.append(
            BacktestStep(
                h + 1,
                int(seen.sum()),
                _root_mean_square((truth - mean)[seen]),
                _root_mean_square((truth - last)[seen]),
                None if ago is None else _root_mean_square((truth - ago)[seen]),
                float(np.mean(inside[seen])),
                float(np.mean((upper - lower)[seen])),
                score,
                float(np.mean(missed)) / scale if scale else None,
                float(np.mean(200.0 * missed / size)) if np.all(size > 0.0) else None,
                score / scale if scale else None,
            )
        )
    return BacktestResult(len(places), found)


def _season_ago(every: FloatArray, origin: Any, h: int, season: int) -> FloatArray | None:
    """Return the values a whole number of seasons before step h that are known at the origin."""
    if not season:
        return None
    back = season * (h // season + 1)
    source = origin + h - back
    return np.where(source >= 0, every[np.maximum(source, 0)], np.nan)


def _last_known(values: FloatArray) -> float:
    """Return the last finite value, NaN if there is none."""
    known = values[np.isfinite(values)]
    return float(known[-1]) if len(known) else float("nan")


def _root_mean_square(errors: FloatArray) -> float:
    known = errors[np.isfinite(errors)]
    return float(np.sqrt(np.mean(known**2))) if len(known) else float("nan")
