"""Backtest of multi-step forecasts (`kbnn evaluate --horizon`).

From up to `MAX_ORIGINS` evenly spaced rows of a stream (origins), the model forecasts the next
steps from the rows before the origin, and each step is compared with the value that followed. The
network learns nothing; only the weights by which its forecasts are combined with naive ones, and
the widths of intervals, follow the outcomes known at each origin.
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
from kbnn.model.model import OnlineModel
from kbnn.model.recursive_forecast import SequenceNotices, align_history, forecast_origins
from kbnn.targets.prediction import Forecast
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


class BacktestResult(NamedTuple):
    """Metrics of all steps, and the number of origins."""

    origins: int
    steps: list[BacktestStep]

    def to_json(self) -> dict[str, Any]:
        """Return the object of `evaluate --horizon --json`."""
        return {"origins": self.origins, "steps": [step._asdict() for step in self.steps]}


def run_backtest(
    model: OnlineModel,
    stream: Stream,
    steps: int,
    notice: Callable[[str], None] = lambda text: None,
) -> BacktestResult:
    """Forecast from many origins of a stream, and score every step."""
    check_horizon(model, steps)
    rows = concat_rows(list(stream))
    if len(rows.y) < steps:
        raise DataError(
            f"--horizon {steps} needs {steps} rows or more, but there are {len(rows.y)}"
        )
    places = np.unique(np.linspace(0, len(rows.y) - steps, MAX_ORIGINS).astype(np.int64))
    past = align_history(model.schema, model.timeline, model.history, rows, SequenceNotices(notice))
    made = _forecast_origins(model, past, rows, places, steps)
    return _score_steps(model, past, rows, places, made)


def _forecast_origins(
    model: OnlineModel, past: History, rows: Rows, places: Any, steps: int
) -> list[Forecast]:
    """Forecast the steps from each origin; an origin is the number of rows before it.

    The network does not change. Weights and widths by step follow the outcomes of earlier origins.
    """
    history, errors, done, scored = past.copy(), model.step_errors, 0, 0
    if past is not model.history:
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
            errors = errors.advance(place - scored).resolve_pending(values)
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
        found.append(
            BacktestStep(
                h + 1,
                int(seen.sum()),
                _root_mean_square((truth - mean)[seen]),
                _root_mean_square((truth - last)[seen]),
                None if ago is None else _root_mean_square((truth - ago)[seen]),
                float(np.mean(inside[seen])),
                float(np.mean((upper - lower)[seen])),
                float(np.mean((upper - lower + _MISS_PENALTY * miss)[seen])),
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
