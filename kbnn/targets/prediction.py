"""Forecasts of batches and of single rows, as returned by models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kbnn.array_types import FloatArray, IntArray
from kbnn.distributions.categorical import Categorical
from kbnn.distributions.dispatch import read_distribution
from kbnn.distributions.predictive import PARAM, PARAM_COUNT

IN_WARMUP = 16
"""A further bit of `Forecast.status`: the row is held until warm-up is complete."""


class Forecast(NamedTuple):
    """Forecasts of n rows; parts that a target type does not have are without columns."""

    mean: FloatArray  # (n, targets)
    sd: FloatArray  # (n, targets) of the predictive distribution
    function_sd: FloatArray  # (n, targets) epistemic: reducible by more rows
    noise_sd: FloatArray  # (n, targets) aleatoric: noise of the target
    probability: FloatArray  # (n, classes)
    outlier: FloatArray  # (n,) probability that the target was an outlier, NaN if not requested
    status: IntArray  # (n,) bits LEARNED, REJECTED, ALARM, UNLABELLED, HELD
    stated: FloatArray  # (n, targets, fields) parameters, see kbnn.distributions.dispatch
    naive: FloatArray = np.zeros((0, 0))  # (n, 2 targets) last value and value a season ago of each
    # target, NaN if unknown; without columns if the model has no lags


def select_rows(forecast: Forecast, rows: slice | NDArray[np.bool_] | IntArray) -> Forecast:
    """Select the forecasts of some rows."""
    return Forecast._make(part[rows] for part in forecast)


def blank_rows(forecast: Forecast, rows: NDArray[np.bool_]) -> Forecast:
    """Replace the forecasts of these rows by NaN."""
    blank = [np.where(rows.reshape(-1, *[1] * (part.ndim - 1)), np.nan, part) for part in forecast]
    return Forecast._make(blank)._replace(status=forecast.status)


def make_missing_forecast(rows: int, numbers: int) -> Forecast:
    """Make a forecast of NaN."""
    none = np.full((rows, numbers), np.nan)
    stated = np.full((rows, numbers, PARAM_COUNT), np.nan)
    blank = (none, none, none, none, np.zeros((rows, 0)), np.full(rows, np.nan))
    return Forecast(*blank, np.zeros(rows, np.int64), stated, np.zeros((rows, 0)))


def shift_forecast(forecast: Forecast, base: FloatArray) -> Forecast:
    """Add `base` (n, targets) to forecasts of real targets."""
    stated = forecast.stated.copy()
    stated[..., PARAM.place] += base
    return forecast._replace(mean=forecast.mean + base, stated=stated)


def join_forecasts(parts: Sequence[Forecast]) -> Forecast:
    """Concatenate forecasts; classes unknown to earlier rows get probability 0."""
    if len(parts) == 1:
        return parts[0]
    columns = list(zip(*parts, strict=True))
    at = Forecast._fields.index("probability")
    classes = {part.shape[1] for part in columns[at]}
    if len(classes) > 1:
        columns[at] = tuple(_pad_probability(known, max(classes)) for known in columns[at])
    at = Forecast._fields.index("naive")
    widths = {part.shape[1] for part in columns[at]}
    if len(widths) > 1:
        columns[at] = tuple(
            np.pad(part, ((0, 0), (0, max(widths) - part.shape[1])), constant_values=np.nan)
            for part in columns[at]
        )
    return Forecast._make(map(np.concatenate, columns))


def _pad_probability(probability: FloatArray, classes: int) -> FloatArray:
    missing = classes - probability.shape[1]
    return np.pad(probability, ((0, 0), (0, missing))) if missing else probability


IMPOSSIBLE_PENALTY_NATS: Final = 50.0
"""Penalty, in nats, for a value outside the support of the predictive distribution."""


def log_density(forecast: Forecast, y: FloatArray, zero_bin_width: float = 1.0) -> FloatArray:
    """Return log p of each row's target (n, T) in the user's units; 0 where it is missing.

    Summed over targets. For `zero_bin_width` see `PredictiveDistribution.log_density`.
    """
    if not forecast.stated.shape[1]:
        return Categorical(forecast.probability).log_density(y[:, 0])
    total = np.zeros(len(y))
    for j, values in enumerate(y.T):
        distribution = read_distribution(forecast.stated[:, j])
        known = np.isfinite(values) & np.isfinite(forecast.mean[:, j])
        possible = known & distribution.in_support(values)
        if possible.all():
            total += distribution.log_density(values, zero_bin_width)
            continue
        total[known & ~possible] -= IMPOSSIBLE_PENALTY_NATS
        some = distribution[possible]
        total[possible] += some.log_density(values[possible], zero_bin_width)
    return total


class Number(NamedTuple):
    """Forecast of one number.

    `sd` combines `function_sd` (epistemic: reducible by more rows) and `noise_sd` (aleatoric); 90 %
    of the values lie between `lower` and `upper`.
    """

    mean: float
    sd: float
    lower: float
    upper: float
    function_sd: float
    noise_sd: float


class Label(NamedTuple):
    """Forecast of one label: the most probable class, and the probability of each."""

    label: str | None
    probability: dict[str, float]
