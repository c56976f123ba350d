"""Forecasts of batches and of single rows, as returned by models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kbnn.array_types import FloatArray, IntArray
from kbnn.core import normal
from kbnn.distributions.categorical import Categorical
from kbnn.distributions.dispatch import read_distribution
from kbnn.distributions.predictive import PARAM, PARAM_COUNT

if TYPE_CHECKING:
    from kbnn.targets.base import TargetType

IN_WARMUP = 16
"""A further bit of `Forecast.status`: the row is held until warm-up is complete."""
MAX_NORMAL_SCORE: Final = 12.0
"""Limit of normal scores: one extreme row must not decide the means of 50 rows for long."""


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


def score_targets(
    task: TargetType, y: FloatArray, number: IntArray, forecast: Forecast
) -> tuple[FloatArray, FloatArray]:
    """Return normal scores and PIT (n, T) of targets; NaN without target or forecast.

    The PIT of a number is the predicted probability of less than the value. Of a label it is the
    probability of the labels that are at most as probable. Both are uniform between 0 and 1 if
    forecasts are calibrated: counts and labels are randomised by a hash.

    The scores are those of ordinary values: with the share of outliers, all distant values would be
    about as likely as that share, and a history could not tell them apart.
    """
    z, pit = np.full(y.shape, np.nan), np.full(y.shape, np.nan)
    made = (forecast.status & IN_WARMUP) == 0
    if task.labels:
        p = forecast.probability
        usable = made & np.isfinite(y[:, 0]) & bool(p.shape[1])
        usable[usable] &= np.isfinite(p[usable]).all(axis=1)
        if usable.any():
            label = y[usable, 0].astype(np.int64)
            known = np.pad(p[usable], ((0, 0), (0, max(0, int(label.max()) + 1 - p.shape[1]))))
            scores = np.minimum(score_labels(known, label, number[usable]), MAX_NORMAL_SCORE)
            z[usable, 0] = scores
            pit[usable, 0] = 2.0 * normal.cdf(-scores)
        return z, pit
    for j in range(y.shape[1]):
        stated = forecast.stated[:, j]
        told = read_distribution(stated)
        usable = made & np.isfinite(y[:, j]) & np.isfinite(forecast.mean[:, j])
        usable &= told.has_forecast()
        if usable.any():
            usable &= told.in_support(y[:, j])
        if usable.any():
            values = np.ascontiguousarray(y[usable, j])
            pit[usable, j] = told[usable].score_values(values).below
            ordinary = stated[usable].copy()
            ordinary[..., PARAM.share] = 0.0
            scores = read_distribution(ordinary).score_values(values).score
            z[usable, j] = np.clip(scores, -MAX_NORMAL_SCORE, MAX_NORMAL_SCORE)
    return z, pit


def score_labels(probability: FloatArray, label: IntArray, number: IntArray) -> FloatArray:
    """Return the normal scores of labels (n,), all positive.

    The tail probability of a label is that of the labels that are less probable, plus a share of
    the labels that are as probable as it. The share is a hash of the row number, so that tail
    probabilities of calibrated forecasts are uniform.

    Parameters
    ----------
    probability
        Predicted probabilities (n, classes).
    label
        Index of each row's class (n,).
    number
        Row numbers (n,).
    """
    own = np.take_along_axis(probability, label[:, None], axis=1)
    less = np.sum(np.where(probability < own, probability, 0.0), axis=1)
    same = np.sum(np.where(probability == own, probability, 0.0), axis=1)
    bits = number.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        bits = (bits ^ (bits >> np.uint64(shift))) * np.uint64(factor)
    u = ((bits ^ (bits >> np.uint64(31))) >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return -normal.lower_quantiles(np.minimum(0.5 * (less + u * same), 0.5))
