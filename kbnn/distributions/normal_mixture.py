"""Mixture of two Gaussians as predictive distribution: quantiles, intervals and scores.

A row's fields are those of `DistributionParams`: location m and spread s of the ordinary values,
share eps, ratio R and shift d of the outliers, and the gains of its intervals (see
kbnn.distributions.calibration):

    (1 - eps) N(m, s^2) + eps N(m + d s, R s^2)

With A(x, s) = E |N(x, s^2)| its CRPS is

    sum_i w_i A(y - mu_i, s_i) - sum_ij w_i w_j A(mu_i - mu_j, sqrt(s_i^2 + s_j^2))/2

The compiled version of `NormalMixture.score_values` is csrc/scores.c.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

import numpy as np

from kbnn.array_types import BoolArray, FloatArray
from kbnn.core import kernel, normal
from kbnn.core.constants import LABEL_LIMIT
from kbnn.distributions.predictive import (
    HALF_WIDTHS_SD,
    INTERVAL_PERCENTS,
    PARAM,
    TAIL_SHARES,
    PredictiveDistribution,
    RowScores,
)

OutlierShape: TypeAlias = tuple[float, float, float]
"""Share, ratio and shift of the outliers."""
_LOG_ROOT_2PI = 0.5 * math.log(2.0 * math.pi)


def mixture_median(shape: OutlierShape) -> float:
    """Return the median, in units of the spread."""
    return _edge_quantiles(shape, 0.5)[0]


def tail_probability(shape: OutlierShape, t: float, side: float = 1.0) -> float:
    """Return the probability of a mixture below t, or above t for side -1."""
    share, ratio, shift = shape
    far = (t - shift) / math.sqrt(ratio)
    return (1.0 - share) * _cdf(side * t) + share * _cdf(side * far)


def _edge_quantiles(shape: OutlierShape, outside: float) -> tuple[float, float]:
    """Return both edges with probability `outside` beyond each, in units of the spread."""
    share, ratio, shift = shape
    z = normal.quantile(outside)
    turned = share, ratio, -shift
    return _solve_quantile(shape, outside, z), -_solve_quantile(turned, outside, z)


def _solve_quantile(shape: OutlierShape, p: float, z: float) -> float:
    """Return t with probability p <= 1/2 below it, by guarded Newton steps from the normal's z."""
    share, ratio, shift = shape
    if share <= 0.0:
        return z
    root = math.sqrt(ratio)
    low, high = sorted((z, shift + root * z))
    t = z
    for _ in range(100):
        if low >= high:
            break
        far = (t - shift) / root
        gap = (1.0 - share) * _cdf(t) + share * _cdf(far) - p
        low, high = (low, t) if gap > 0.0 else (t, high)
        slope = (1.0 - share) * _pdf(t) + share * _pdf(far) / root
        after = t - gap / slope if slope > 0.0 else low
        if not low < after < high:
            after = 0.5 * (low + high)
        if abs(after - t) <= 1e-15 * (1.0 + abs(t)):
            return after
        t = after
    return t


def _cdf(u: float) -> float:
    return 0.5 * math.erfc(-0.7071067811865476 * u)


def _pdf(u: float) -> float:
    return 0.3989422804014327 * math.exp(-0.5 * u * u)


def _map_shapes(rows: FloatArray, make: Callable[[OutlierShape], Sequence[float]]) -> FloatArray:
    """Apply a function of (eps, R, d) to each row, once for consecutive equal rows."""
    if not len(rows):
        return np.zeros((len(make((0.0, 1.0, 0.0))), 0))
    shapes = rows[:, PARAM.share : PARAM.gain]
    first = np.concatenate(([True], np.any(shapes[1:] != shapes[:-1], axis=1)))
    made = [make((a, b, c)) for a, b, c in shapes[first].tolist()]
    return np.array(made).T[:, np.cumsum(first) - 1]


def interpolate_gains(rows: FloatArray, half: float) -> tuple[FloatArray, FloatArray]:
    """Return the gains of lower and upper edge at distance `half` from a normal's mean.

    Between two calibrated levels their logarithms are interpolated.
    """
    logs = np.log(rows[:, PARAM.gain : PARAM.most])
    after = int(np.searchsorted(HALF_WIDTHS_SD, half))
    if after in (0, len(HALF_WIDTHS_SD)):
        place = min(after, len(HALF_WIDTHS_SD) - 1)
        return np.exp(logs[:, 2 * place]), np.exp(logs[:, 2 * place + 1])
    share = (half - HALF_WIDTHS_SD[after - 1]) / (HALF_WIDTHS_SD[after] - HALF_WIDTHS_SD[after - 1])
    between = [
        (1.0 - share) * logs[:, 2 * (after - 1) + side] + share * logs[:, 2 * after + side]
        for side in (0, 1)
    ]
    return np.exp(between[0]), np.exp(between[1])


def _log_density(
    t: FloatArray, share: FloatArray, ratio: FloatArray, shift: FloatArray
) -> FloatArray:
    with np.errstate(divide="ignore", over="ignore"):
        far = np.log(share) - 0.5 * np.log(ratio) - 0.5 * (t - shift) ** 2 / ratio
    return np.asarray(np.logaddexp(np.log1p(-share) - 0.5 * t * t, far) - _LOG_ROOT_2PI)


def expected_distance(x: FloatArray, s: FloatArray | float) -> FloatArray:
    """Return E |N(x, s^2)|."""
    return np.asarray(x * (2.0 * normal.cdf(x / s) - 1.0) + 2.0 * s * normal.pdf(x / s))


def _log_normal_between(a: FloatArray, b: FloatArray) -> FloatArray:
    """Return log (Phi(b) - Phi(a)); where that underflows, use the density at the midpoint."""
    turned = a + b > 0.0
    a, b = np.where(turned, -b, a), np.where(turned, -a, b)
    mass = normal.cdf(b) - normal.cdf(a)
    middle = np.log(np.maximum(b - a, 1e-300)) - 0.5 * (0.5 * (a + b)) ** 2 - _LOG_ROOT_2PI
    return np.where(mass > 1e-290, np.log(np.maximum(mass, 1e-300)), middle)


def cdf(y: FloatArray, rows: FloatArray) -> FloatArray:
    """Return the predicted P(Y <= y) for values (..., n)."""
    place, spread, share, ratio, shift = rows[:, : PARAM.gain].T
    t = (y - place) / spread
    far = normal.cdf((t - shift) / np.sqrt(ratio))
    return np.asarray((1.0 - share) * normal.cdf(t) + share * far)


def log_pdf(y: FloatArray, rows: FloatArray) -> FloatArray:
    """Return the logarithm of the density of values (n, ...)."""
    place, spread, share, ratio, shift = np.moveaxis(rows[..., : PARAM.gain], -1, 0)
    # Rows without a forecast have spread 0 and density NaN, which counts as no forecast.
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        t = np.clip((y - place) / spread, -LABEL_LIMIT, LABEL_LIMIT)
        return np.asarray(_log_density(t, share, ratio, shift) - np.log(spread))


def log_between(low: FloatArray, high: FloatArray, rows: FloatArray) -> FloatArray:
    """Return log P(low < Y <= high) under distributions (n, ..., fields)."""
    place, spread, share, ratio, shift = np.moveaxis(rows[..., : PARAM.gain], -1, 0)
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        a, b = (np.clip((edge - place) / spread, -LABEL_LIMIT, LABEL_LIMIT) for edge in (low, high))
        root = np.sqrt(ratio)
        near = np.log1p(-share) + _log_normal_between(a, b)
        far = np.log(share) + _log_normal_between((a - shift) / root, (b - shift) / root)
        return np.asarray(np.logaddexp(near, far))


def row_quantiles(rows: FloatArray, below: FloatArray, above: FloatArray) -> FloatArray:
    """Return the value of each row with its own probability below it, and `above` beyond it.

    Newton steps on the side of the smaller probability, guarded by bisection; each row stops on its
    own, so that results do not depend on other rows.
    """
    share, ratio, shift = rows[:, PARAM.share : PARAM.gain].T
    turned = above < below
    p, shift = np.where(turned, above, below), np.where(turned, -shift, shift)
    root, z = np.sqrt(ratio), normal.lower_quantiles(p)
    wide = shift + root * z
    low, high = np.minimum(z, wide), np.maximum(z, wide)
    t, moving = z, share > 0.0
    for _ in range(100):
        far = (t - shift) / root
        gap = (1.0 - share) * normal.cdf(t) + share * normal.cdf(far) - p
        slope = (1.0 - share) * normal.pdf(t) + share * normal.pdf(far) / root
        low, high = np.where(gap > 0.0, low, t), np.where(gap > 0.0, t, high)
        after = t - gap / np.maximum(slope, np.finfo(float).tiny)
        after = np.where((low < after) & (after < high), after, 0.5 * (low + high))
        t, before = np.where(moving, after, t), t
        moving &= np.abs(t - before) > 1e-15 * (1.0 + np.abs(t))
        if not moving.any():
            break
    t = np.where(turned, -t, t)
    return np.asarray(rows[:, PARAM.place] + rows[:, PARAM.spread] * t)


def _calibrated_edges(rows: FloatArray, outside: float) -> tuple[FloatArray, FloatArray]:
    """Return the calibrated edges with probability `outside` beyond each, in spreads."""
    found = _map_shapes(
        rows, lambda shape: (*_edge_quantiles(shape, outside), _edge_quantiles(shape, 0.5)[0])
    )
    low, high, median = found
    below, above = interpolate_gains(rows, -normal.quantile(outside))
    return median - (median - low) * below, median + (high - median) * above


SMOOTH_EDGES_SD: Final = np.array([-9.0, -5.0, -2.5, 0.0, 2.5, 5.0, 9.0])
"""Quadrature edges of a component, in sds: between them its cdf is smooth."""


class NormalMixture(PredictiveDistribution):
    """Any number: ordinary values and outliers, both Gaussian."""

    code = 0

    @staticmethod
    def is_possible(y: FloatArray) -> BoolArray:
        """Return whether values are finite numbers."""
        return np.isfinite(y)

    def mean_and_sd(self) -> tuple[FloatArray, FloatArray]:
        """Return location and spread of the ordinary values."""
        return self.rows[..., PARAM.place].copy(), self.rows[..., PARAM.spread].copy()

    def cdf(self, y: FloatArray) -> FloatArray:
        """Return P(Y <= y) for values (..., n)."""
        return cdf(y, self.rows)

    def log_density(self, y: FloatArray, zero_bin_width: float = 1.0) -> FloatArray:
        """Return the log density of values; of whole numbers, the log mass that rounds to them."""
        fine = log_pdf(y, self.rows)
        whole = y == np.rint(y)
        if not whole.any():
            return fine
        half = np.where(y == 0.0, 0.5 * zero_bin_width, 0.5)
        return np.where(whole, log_between(y - half, y + half, self.rows), fine)

    def quantile(self, share: float) -> FloatArray:
        """Return the quantile of level `share` of each row."""
        rows = self.rows
        outside = min(share, 1.0 - share)
        side = 0 if share <= 0.5 else 1
        if kernel.is_compiled():
            z = -normal.quantile(outside)
            edges = kernel.mixture_edges(np.ascontiguousarray(rows), outside, z, True)
            return np.asarray(edges[side])
        found = _map_shapes(rows, lambda shape: _edge_quantiles(shape, outside))[side]
        return np.asarray(rows[:, PARAM.place] + rows[:, PARAM.spread] * found)

    def interval(self, share: float) -> tuple[FloatArray, FloatArray]:
        """Return the central interval of probability `share`, as calibrated."""
        rows = self.rows
        if kernel.is_compiled():
            outside = 0.5 - share / 2
            z = -normal.quantile(outside)
            lower, upper = kernel.mixture_edges(np.ascontiguousarray(rows), outside, z, False)
            return lower, upper
        place, spread = rows[:, PARAM.place], rows[:, PARAM.spread]
        low, high = _calibrated_edges(rows, 0.5 - share / 2)
        return place + spread * low, place + spread * high

    def interval_levels(self, outside: float) -> tuple[FloatArray, FloatArray]:
        """Return the probabilities below the two edges of a calibrated interval."""
        low, high = NormalMixture.interval(self, 1.0 - 2.0 * outside)
        return cdf(low, self.rows), cdf(high, self.rows)

    def crps(self, y: FloatArray) -> FloatArray:
        """Return the CRPS, see the module docstring."""
        return self.score_values(y).crps

    def score_values(self, y: FloatArray) -> RowScores:
        """Score values (n,) against their predictive distributions."""
        if kernel.is_compiled():
            return RowScores._make(
                kernel.score_rows(np.ascontiguousarray(y), np.ascontiguousarray(self.rows))
            )
        rows = self.rows
        place, spread, share, ratio, shift = rows[:, : PARAM.gain].T
        root = np.sqrt(ratio)
        with np.errstate(over="ignore"):
            t = np.clip((y - place) / spread, -LABEL_LIMIT, LABEL_LIMIT)
        edges = [side for outside in TAIL_SHARES for side in _calibrated_edges(rows, outside)]
        lower, upper = place + spread * edges[4], place + spread * edges[5]
        inside = [
            ((t >= edges[2 * k]) & (t <= edges[2 * k + 1])) * 1.0
            for k in range(len(INTERVAL_PERCENTS))
        ]
        under = t < _map_shapes(rows, lambda shape: _edge_quantiles(shape, 0.5))[0]
        turned = np.where(under, 1.0, -1.0)
        tail = (1.0 - share) * normal.cdf(turned * t)
        tail = tail + share * normal.cdf(turned * (t - shift) / root)
        near = (1.0 - share) * expected_distance(t, 1.0) + share * expected_distance(
            t - shift, root
        )
        apart = (1.0 - share) ** 2 * expected_distance(np.zeros_like(t), math.sqrt(2.0))
        apart = apart + share**2 * expected_distance(np.zeros_like(t), np.sqrt(2.0 * ratio))
        apart = apart + 2.0 * share * (1.0 - share) * expected_distance(shift, np.sqrt(1.0 + ratio))
        return RowScores(
            np.log(spread) - _log_density(t, share, ratio, shift),
            spread * (near - 0.5 * apart),
            np.where(under, tail, 1.0 - tail),
            turned * normal.lower_quantiles(np.minimum(tail, 0.5)),
            lower,
            upper,
            *inside,
        )

    def sample(self, rng: np.random.Generator) -> FloatArray:
        """Draw one value of each row."""
        place, spread, share, ratio, shift = self.rows[:, : PARAM.gain].T
        far = rng.random(len(self)) < share
        t = rng.standard_normal(len(self))
        return np.asarray(place + spread * np.where(far, shift + np.sqrt(ratio) * t, t))

    def quadrature_points(self) -> FloatArray:
        """Return values of both components, up to 9 sds from their means."""
        place, spread, _, ratio, shift = self.rows[:, : PARAM.gain].T
        edges = SMOOTH_EDGES_SD[:, None]
        far = place + spread * (shift + np.sqrt(ratio) * edges)
        return np.concatenate((place + spread * edges, far))


class LinkedMixture(NormalMixture):
    """Values y whose linked value z has the mixture; subclasses define the link.

    The field `unit` is the parameter of the link.
    """

    @staticmethod
    @abstractmethod
    def choose_link_unit(y: FloatArray) -> float:
        """Choose the parameter of the link from the first targets."""

    @staticmethod
    @abstractmethod
    def apply_link(y: FloatArray, unit: FloatArray) -> FloatArray:
        """Return z of possible values."""

    @staticmethod
    @abstractmethod
    def apply_inverse_link(z: FloatArray, unit: FloatArray) -> FloatArray:
        """Return y of linked values, always possible values."""

    @staticmethod
    @abstractmethod
    def log_slope(y: FloatArray, unit: FloatArray) -> FloatArray:
        """Return log dy/dz at possible values: the Jacobian term of the density."""

    def cdf(self, y: FloatArray) -> FloatArray:
        """Return P(Y <= y) for values (..., n)."""
        with np.errstate(invalid="ignore"):
            below = cdf(
                self.apply_link(self.nearest_possible(y), self.rows[:, PARAM.unit]), self.rows
            )
        return np.where(y < self.nearest_possible(y), 0.0, below)

    def quantile(self, share: float) -> FloatArray:
        """Return the quantile of level `share` of each row."""
        return self.apply_inverse_link(super().quantile(share), self.rows[:, PARAM.unit])

    def interval(self, share: float) -> tuple[FloatArray, FloatArray]:
        """Return the central interval of probability `share`, as calibrated."""
        unit = self.rows[:, PARAM.unit]
        lower, upper = super().interval(share)
        return self.apply_inverse_link(lower, unit), self.apply_inverse_link(upper, unit)

    def score_values(self, y: FloatArray) -> RowScores:
        """Score values against their predictive distributions."""
        unit = self.rows[:, PARAM.unit]
        scores = super().score_values(self.apply_link(y, unit))
        return scores._replace(
            nll=scores.nll + self.log_slope(y, unit),
            crps=self.crps(y),
            lower=self.apply_inverse_link(scores.lower, unit),
            upper=self.apply_inverse_link(scores.upper, unit),
        )

    def sample(self, rng: np.random.Generator) -> FloatArray:
        """Draw one value of each row."""
        return self.apply_inverse_link(super().sample(rng), self.rows[:, PARAM.unit])
