"""Normal mixtures behind a link: numbers above 0, amounts that may be 0, and shares.

The linked value z has the mixture of kbnn.distributions.normal_mixture.

Positive targets y: the network learns z with y = u log(1 + e^z). Far below the unit u this is the
logarithm, z = log(y/u): errors of small values are relative. Far above it z = y/u: errors of large
values are absolute, and no forecast explodes. With u four times the median of the first targets,
prices that vary by factors are learned as their logarithms would be, while a few large values among
many small ones are still forecast closely. A unit of 0 stands for the plain logarithm, y = e^z.

If the link is the plain logarithm, with w = (ln y - m)/s

    E min(X, y) = e^(m + s^2/2) Phi(w - s) + y Phi(-w)
    E min(X, X') = sum over both of e^(m + s^2/2) Phi(-(m - m' + s^2)/sqrt(s^2 + s'^2))
    CRPS = y - 2 E min(X, y) + E min(X, X')

without the mean, which overflows for a wide component. Otherwise the CRPS is the integral of (F(z)
- 1[z > z_y])^2 dy/dz over z, by Gauss-Legendre quadrature between points chosen at every scale of
the integrand. Both include a probability of exactly 0 (amounts), as a component below all others.

Shares y between 0 and 1: the network learns z = log(y/(1 - y)). Values closer to 0 or 1 than an
edge e are learned as e or 1 - e, so that exact 0 and 1 are learned too, and are scored by the
average density between the edge and 0 or 1: log (P(Y <= e)/e). The edge is a tenth of the smallest
distance from 0 and 1 among the first targets between them.

The CRPS is the integral of (F(z) - 1[z > z_y])^2 y (1 - y) over z, by Gauss-Legendre quadrature
between points chosen at every scale of the integrand.

Amounts: 0 with probability p_0, otherwise a positive number as above. With G the distribution
function of the latter, P(Y <= y) = p_0 + (1 - p_0) G(y).

The distribution has no density at 0. The NLL is with respect to length above 0 and, at 0, to the
width r of the values that round to 0 (`zero_bin_width`):

    y = 0:  log r - log p_0          y > 0:  -log((1 - p_0) g(y))

Its unit is that of any other density, so it can be compared with the NLL of a constant or of
another target type.

The distribution function steps from 0 to p_0 at 0. There u is drawn by a hash, as for counts
(kbnn.distributions.negative_binomial), and intervals are calibrated by normal scores as theirs are.
A 0 counts as inside an interval by the share of its step that is inside.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from kbnn.array_types import BoolArray, FloatArray
from kbnn.core import normal
from kbnn.distributions.negative_binomial import find_interval_levels, hash_uniform
from kbnn.distributions.normal_mixture import (
    SMOOTH_EDGES_SD,
    LinkedMixture,
    log_between,
    log_pdf,
    row_quantiles,
)
from kbnn.distributions.predictive import PARAM, TAIL_SHARES, RowScores

UNIT_MEDIANS: Final = 4.0
"""Unit of the link, in medians of the first targets."""
MAX_LOG: Final = 690.0
"""Limit of logarithms before they are exponentiated."""
MAX_UNITS: Final = 1e300
"""Limit of values in units of the link, far beyond any measurement."""
MAX_FLOAT: Final = float(np.finfo(np.float64).max)


def choose_link_unit(y: FloatArray) -> float:
    """Choose the unit of the link from the first targets; 0 if none of them is positive."""
    known = y[np.isfinite(y) & (y > 0.0)]
    return UNIT_MEDIANS * float(np.median(known)) if known.size else 0.0


def apply_link(y: FloatArray, unit: FloatArray) -> FloatArray:
    """Return z of values above 0; inf for other values, NaN for NaN."""
    soft = unit > 0.0
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        share = np.minimum(y / np.where(soft, unit, 1.0), MAX_UNITS)
        z = np.where(soft, share + np.log(-np.expm1(-share)), np.log(y))
    return np.where(np.isnan(y), np.nan, np.where(y > 0.0, z, np.inf))


def apply_inverse_link(z: FloatArray, unit: FloatArray) -> FloatArray:
    """Return y of linked values, always a finite number from 0 on."""
    plain = np.exp(np.clip(z, -MAX_LOG, MAX_LOG))
    soft = np.maximum(z, 0.0) + np.log1p(np.exp(-np.abs(np.maximum(z, -MAX_LOG))))
    soft = np.where(z < -30.0, plain, soft)  # where 1 + e^z is 1
    return np.where(unit > 0.0, multiply_clipped(unit, soft), plain)


def multiply_clipped(unit: FloatArray, size: FloatArray) -> FloatArray:
    """Return unit * size, clipped to finite numbers."""
    with np.errstate(over="ignore"):
        return np.minimum(unit * size, MAX_FLOAT)


def log_slope(y: FloatArray, unit: FloatArray) -> FloatArray:
    """Return log dy/dz at values above 0: the Jacobian term of the density."""
    soft = unit > 0.0
    safe = np.where(soft, unit, 1.0)
    with np.errstate(over="ignore"):
        share = y / safe
    return np.where(soft, np.log(safe) + np.log(-np.expm1(-share)), np.log(y))


ROUNDING_HALF_WIDTH = 0.5
MAX_LOG_VAR: Final = 40.0
"""Limit of the variance of a logarithm: the mean of a wider distribution is meaningless."""
_LINK_EDGES: Final = np.array(
    [-40.0, -30.0, -22.0, -15.0, -10.0, -6.0, -3.0, 0.0, 3.0, 6.0, 10.0, 15.0]
)
"""Quadrature edges of the link: between them its slope is smooth; below the first it is 0."""
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(12)
_NORMAL_NODES, _NORMAL_WEIGHTS = np.polynomial.hermite_e.hermegauss(32)
_NODE_SHARES: Final = _NORMAL_WEIGHTS / np.sum(_NORMAL_WEIGHTS)
_BATCH_ROWS: Final = 256
"""Rows that are integrated at a time."""


def _soft_crps(y: FloatArray, rows: FloatArray) -> FloatArray:
    place, spread, share, ratio, shift = rows[:, : PARAM.gain, None].transpose(1, 0, 2)
    unit = rows[:, PARAM.unit]
    center, wide = place + shift * spread, np.sqrt(ratio) * spread
    none = rows[:, PARAM.none, None]
    value = np.where(y > 0.0, apply_link(y, unit), -np.inf)[:, None]
    points = [
        place + spread * SMOOTH_EDGES_SD,
        center + wide * SMOOTH_EDGES_SD,
        np.tile(_LINK_EDGES, (len(y), 1)),
        value,
    ]
    edges = np.sort(np.maximum(np.concatenate(points, axis=1), _LINK_EDGES[0]), axis=1)
    half = 0.5 * np.diff(edges, axis=1)
    z = (edges[:, :-1] + half)[..., None] + half[..., None] * _NODES
    z = z.reshape(len(y), -1)
    turned = np.where(z < value, 1.0, -1.0)  # the side on which the square is small
    tail = (1.0 - share) * normal.cdf(turned * (z - place) / spread)
    tail += share * normal.cdf(turned * (z - center) / wide)
    tail = (1.0 - none) * tail + np.where(z < value, none, 0.0)
    square = tail**2 / (1.0 + np.exp(-z))
    inner = np.sum(square.reshape(*half.shape, -1) * _WEIGHTS, axis=2)
    # Above the last point both tails of the squared difference are negligible.
    return np.asarray(unit * np.sum(inner * half, axis=1))


def _log_crps(y: FloatArray, rows: FloatArray) -> FloatArray:
    place, spread, share, ratio, shift = rows[:, : PARAM.gain].T
    some = 1.0 - rows[:, PARAM.none]
    parts = [
        (some * (1.0 - share), place, spread),
        (some * share, place + shift * spread, np.sqrt(ratio) * spread),
    ]
    with np.errstate(divide="ignore"):
        log_y = np.log(y)
    found = y.copy()
    for weight, m, s in parts:
        w = (log_y - m) / s
        found -= 2.0 * weight * (_exp_times_normal_cdf(m + s * s / 2.0, w - s) + y * normal.cdf(-w))
        for other, m2, s2 in parts:
            both = np.hypot(s, s2)
            # The two terms of E min come from the pair and from the swapped pair.
            found += (
                2.0
                * weight
                * other
                * _exp_times_normal_cdf(m + s * s / 2.0, -(m - m2 + s * s) / both)
            )
    return found


def exp_clipped(logs: FloatArray) -> FloatArray:
    """Return the exponential, clipped to finite numbers."""
    return np.exp(np.clip(logs, -MAX_LOG, MAX_LOG))


def _exp_times_normal_cdf(log_factor: FloatArray, u: FloatArray) -> FloatArray:
    """Return e^log_factor Phi(u), without multiplying inf by 0."""
    return exp_clipped(log_factor + normal.log_cdf(u))


class LogLink(LinkedMixture):
    """Numbers above 0."""

    code = 1
    choose_link_unit = staticmethod(choose_link_unit)
    apply_link = staticmethod(apply_link)
    apply_inverse_link = staticmethod(apply_inverse_link)
    log_slope = staticmethod(log_slope)

    @staticmethod
    def is_possible(y: FloatArray) -> BoolArray:
        """Return whether values are above 0."""
        return np.asarray(y > 0.0)

    def nearest_possible(self, y: FloatArray) -> FloatArray:
        """Return y, or the smallest number above 0."""
        return np.maximum(y, np.finfo(float).tiny)

    def mean_and_sd(self) -> tuple[FloatArray, FloatArray]:
        """Return mean and sd without outliers; no mean is above the largest value seen."""
        place, unit, most = (self.rows[..., at] for at in (PARAM.place, PARAM.unit, PARAM.most))
        var = np.minimum(self.rows[..., PARAM.spread] ** 2, MAX_LOG_VAR)
        mean, sd = exp_clipped(place + 0.5 * var), np.zeros_like(place)
        if np.any(unit > 0.0):
            z = place[..., None] + np.sqrt(var)[..., None] * _NORMAL_NODES
            # in units of the link: squares of the values may overflow
            soft = apply_inverse_link(z, np.ones(1))
            first = np.sum(soft * _NODE_SHARES, axis=-1)
            var_soft = np.sum((soft - first[..., None]) ** 2 * _NODE_SHARES, axis=-1)
            sd = multiply_clipped(unit, np.sqrt(var_soft))
            mean = np.where(unit > 0.0, multiply_clipped(unit, first), mean)
        seen = np.isfinite(most)
        largest = apply_inverse_link(np.where(seen, most, 0.0), unit)
        mean = np.where(seen, np.minimum(mean, largest), mean)
        plain_sd = multiply_clipped(np.sqrt(np.expm1(var)), mean)
        return mean, np.where(unit > 0.0, sd, plain_sd)

    def log_density(self, y: FloatArray, zero_bin_width: float = 1.0) -> FloatArray:
        """Return the log density of values; of whole numbers, the log mass that rounds to them."""
        unit = self.rows[:, PARAM.unit]
        fine = log_pdf(apply_link(y, unit), self.rows) - log_slope(y, unit)
        whole = y == np.rint(y)
        if not whole.any():
            return fine
        low = apply_link(np.maximum(y - ROUNDING_HALF_WIDTH, np.finfo(float).tiny), unit)
        high = apply_link(y + ROUNDING_HALF_WIDTH, unit)
        return np.where(whole, log_between(low, high, self.rows), fine)

    def crps(self, y: FloatArray) -> FloatArray:
        """Return the continuous ranked probability score, in the units of y."""
        rows = self.rows
        soft = rows[:, PARAM.unit] > 0.0
        found = np.empty(len(y))
        found[~soft] = _log_crps(y[~soft], rows[~soft])
        places = np.flatnonzero(soft)
        for start in range(0, len(places), _BATCH_ROWS):
            at = places[start : start + _BATCH_ROWS]
            found[at] = _soft_crps(y[at], rows[at])
        return found


EDGE_SHARE: Final = 0.1
"""The edge, as a share of the smallest distance from 0 and 1 among the first targets."""
DEFAULT_EDGE: Final = 0.001
"""The edge if no first target is between 0 and 1."""
MIN_EDGE: Final = 1e-9
_LOGIT_EDGES: Final = np.array([-36.0, -22.0, -15.0, -10.0, -6.0, -3.0, 0.0])
"""Quadrature edges of the link, and the same above 0: between them its slope is smooth."""
_LOGIT_NODES, _LOGIT_WEIGHTS = np.polynomial.hermite_e.hermegauss(64)
_LOGIT_NODE_SHARES: Final = _LOGIT_WEIGHTS / np.sum(_LOGIT_WEIGHTS)


def read_edge(unit: FloatArray) -> FloatArray:
    """Return the edge that the field `unit` holds."""
    return np.where(unit > 0.0, unit, DEFAULT_EDGE)


class LogitLink(LinkedMixture):
    """Numbers between 0 and 1."""

    code = 4

    @staticmethod
    def is_possible(y: FloatArray) -> BoolArray:
        """Return whether values are from 0 to 1."""
        return np.asarray((y >= 0.0) & (y <= 1.0))

    def nearest_possible(self, y: FloatArray) -> FloatArray:
        """Return y, at least 0 and at most 1."""
        return np.clip(y, 0.0, 1.0)

    @staticmethod
    def choose_link_unit(y: FloatArray) -> float:
        """Choose the edge from the first targets."""
        inside = y[(y > 0.0) & (y < 1.0)]
        if not inside.size:
            return DEFAULT_EDGE
        return max(EDGE_SHARE * float(np.min(np.minimum(inside, 1.0 - inside))), MIN_EDGE)

    @staticmethod
    def apply_link(y: FloatArray, unit: FloatArray) -> FloatArray:
        """Return z of values from 0 to 1; inf for other values, NaN for NaN."""
        edge = read_edge(unit)
        p = np.clip(y, edge, 1.0 - edge)
        return np.where(np.isnan(y) | LogitLink.is_possible(y), np.log(p) - np.log1p(-p), np.inf)

    @staticmethod
    def apply_inverse_link(z: FloatArray, unit: FloatArray) -> FloatArray:
        """Return y of linked values."""
        small = np.exp(-np.abs(z))
        return np.where(z < 0.0, small, 1.0) / (1.0 + small)

    @staticmethod
    def log_slope(y: FloatArray, unit: FloatArray) -> FloatArray:
        """Return log dy/dz = log y (1 - y)."""
        edge = read_edge(unit)
        p = np.clip(y, edge, 1.0 - edge)
        return np.asarray(np.log(p) + np.log1p(-p))

    def cdf(self, y: FloatArray) -> FloatArray:
        """Return P(Y <= y) for values (..., n)."""
        with np.errstate(divide="ignore", invalid="ignore"):
            z = np.log(y) - np.log1p(-y)
            inside = super(LinkedMixture, self).cdf(z)
        return np.where(y <= 0.0, 0.0, np.where(y >= 1.0, 1.0, inside))

    def mean_and_sd(self) -> tuple[FloatArray, FloatArray]:
        """Return mean and sd without outliers."""
        place, spread = self.rows[..., PARAM.place, None], self.rows[..., PARAM.spread, None]
        y = self.apply_inverse_link(place + spread * _LOGIT_NODES, spread)
        mean = np.sum(y * _LOGIT_NODE_SHARES, axis=-1)
        return mean, np.sqrt(np.sum((y - mean[..., None]) ** 2 * _LOGIT_NODE_SHARES, axis=-1))

    def score_values(self, y: FloatArray) -> RowScores:
        """Score values against their predictive distributions."""
        return super().score_values(y)._replace(nll=-self.log_density(y))

    def log_density(self, y: FloatArray, zero_bin_width: float = 1.0) -> FloatArray:
        """Return the log density of values; beyond an edge, the average density there."""
        unit = self.rows[:, PARAM.unit]
        edge, z = read_edge(unit), self.apply_link(y, unit)
        fine = log_pdf(z, self.rows) - self.log_slope(y, unit)
        far = np.full(len(y), np.inf)
        below = log_between(-far, z, self.rows) - np.log(edge)
        above = log_between(z, far, self.rows) - np.log(edge)
        return np.where(y < edge, below, np.where(y > 1.0 - edge, above, fine))

    def crps(self, y: FloatArray) -> FloatArray:
        """Return the continuous ranked probability score."""
        found = np.empty(len(y))
        for start in range(0, len(y), _BATCH_ROWS):
            at = slice(start, start + _BATCH_ROWS)
            found[at] = _logit_crps(y[at], LogitLink(self.rows[at]))
        return found


def _logit_crps(y: FloatArray, told: LogitLink) -> FloatArray:
    with np.errstate(divide="ignore"):
        value = np.log(y) - np.log1p(-y)
    limit = -_LOGIT_EDGES[0]
    points = [told.quadrature_points().T, value[:, None]]
    points += [np.tile(side * _LOGIT_EDGES, (len(y), 1)) for side in (1.0, -1.0)]
    edges = np.sort(np.clip(np.concatenate(points, axis=1), -limit, limit), axis=1)
    half = 0.5 * np.diff(edges, axis=1)
    z = (edges[:, :-1] + half)[..., None] + half[..., None] * _NODES
    z = np.moveaxis(z, 0, -1)  # (panels, nodes, n)
    place, spread, share, ratio, shift = told.rows[:, : PARAM.gain].T
    turned = np.where(z < value, 1.0, -1.0)  # the side on which the square is small
    t = (z - place) / spread
    tail = (1.0 - share) * normal.cdf(turned * t)
    tail += share * normal.cdf(turned * (t - shift) / np.sqrt(ratio))
    small = np.exp(-np.abs(z))
    square = tail**2 * small / (1.0 + small) ** 2
    inner = np.sum(np.ascontiguousarray(np.moveaxis(square, -1, 0)) * _WEIGHTS, axis=2)
    return np.asarray(np.sum(inner * half, axis=1))


ZERO_BIN_MEDIANS: Final = 0.01
"""Width of the values that round to 0, in medians of the first amounts."""
_TINY: Final = float(np.finfo(np.float64).tiny)


def zero_bin_width(unit: FloatArray) -> FloatArray:
    """Return the width of the values that round to 0, for links of this unit."""
    return np.asarray(np.maximum(ZERO_BIN_MEDIANS / UNIT_MEDIANS * unit, _TINY))


def share_inside(
    start: FloatArray, step: FloatArray, low: FloatArray, high: FloatArray
) -> FloatArray:
    """Return the share of a step, which may have no height, that lies between two levels."""
    part = np.minimum(start + step, high) - np.maximum(start, low)
    at = (start >= low) & (start <= high)
    return np.where(step > 0.0, np.maximum(part, 0.0) / np.maximum(step, _TINY), at)


class Hurdle(LogLink):
    """Numbers from 0 on, exactly 0 with a probability of its own."""

    code = 3

    @staticmethod
    def is_possible(y: FloatArray) -> BoolArray:
        """Return whether values are finite numbers from 0 on."""
        return np.asarray((y >= 0.0) & (y < np.inf))

    def nearest_possible(self, y: FloatArray) -> FloatArray:
        """Return y, at least 0."""
        return np.maximum(y, 0.0)

    def mean_and_sd(self) -> tuple[FloatArray, FloatArray]:
        """Return the mean w M and the sd, sd^2 = w V + w p_0 M^2.

        Here w = 1 - p_0, and M and V are mean and variance of an amount.
        """
        much, spread = super().mean_and_sd()
        none = self.rows[..., PARAM.none]
        sd = np.sqrt(1.0 - none) * np.hypot(spread, np.sqrt(none) * much)
        return (1.0 - none) * much, sd

    def cdf(self, y: FloatArray) -> FloatArray:
        """Return P(Y <= y) for values (..., n)."""
        none = self.rows[:, PARAM.none]
        below = super().cdf(np.maximum(y, _TINY))
        return np.where(y < 0.0, 0.0, none + (1.0 - none) * np.where(y > 0.0, below, 0.0))

    def randomized_pit(self, y: FloatArray) -> FloatArray:
        """Return P(Y <= y); for 0 a random point between 0 and P(Y <= 0)."""
        return np.where(y > 0.0, 1.0, hash_uniform(y, self.rows)) * self.cdf(y)

    def quantile(self, share: float) -> FloatArray:
        """Return the smallest value y with P(Y <= y) >= share."""
        return self._find_quantiles(np.full(len(self), share))

    def interval(self, share: float) -> tuple[FloatArray, FloatArray]:
        """Return the central interval of probability `share`, as calibrated."""
        low, high = self.interval_levels(0.5 - share / 2)
        return self._find_quantiles(low), self._find_quantiles(high)

    def interval_levels(self, outside: float) -> tuple[FloatArray, FloatArray]:
        """Return the probabilities below the two edges of a calibrated interval."""
        return find_interval_levels(self.rows, outside, self.rows[:, PARAM.none])

    def score_values(self, y: FloatArray) -> RowScores:
        """Score amounts against their predictive distributions."""
        none = self.rows[:, PARAM.none]
        u = self.randomized_pit(y)
        edges = [self.interval_levels(outside) for outside in TAIL_SHARES]
        start = np.where(y > 0.0, u, 0.0)  # where the step at y begins
        step = np.where(y > 0.0, 0.0, none)
        return RowScores(
            self._negative_log_density(y),
            self.crps(y),
            u,
            np.where(u < 0.5, 1.0, -1.0) * normal.lower_quantiles(np.minimum(u, 1.0 - u)),
            self._find_quantiles(edges[2][0]),
            self._find_quantiles(edges[2][1]),
            *(share_inside(start, step, low, high) for low, high in edges),
        )

    def log_density(self, y: FloatArray, zero_bin_width: float = 1.0) -> FloatArray:
        """Return the log density of amounts; of whole numbers, the log mass that rounds to them.

        The bin of 0 has the width `zero_bin_width`.
        """
        none, some = self.rows[:, PARAM.none], y > 0.0
        mass = self.cdf(np.full(len(y), 0.5 * zero_bin_width))
        found = np.log(np.where(some, 1.0 - none, mass))
        if some.any():
            found[some] += LogLink(self.rows[some]).log_density(y[some])
        return found

    def sample(self, rng: np.random.Generator) -> FloatArray:
        """Draw one value of each row."""
        return np.where(rng.random(len(self)) < self.rows[:, PARAM.none], 0.0, super().sample(rng))

    def _negative_log_density(self, y: FloatArray) -> FloatArray:
        none, unit, some = self.rows[:, PARAM.none], self.rows[:, PARAM.unit], y > 0.0
        safe = np.where(some, y, 1.0)
        much = log_slope(safe, unit) - log_pdf(apply_link(safe, unit), self.rows)
        at_zero = np.log(zero_bin_width(unit)) - np.log(none)
        return np.where(some, much - np.log(1.0 - none), at_zero)

    def _find_quantiles(self, share: FloatArray) -> FloatArray:
        """Return the smallest value y with P(Y <= y) >= share."""
        rows, none = self.rows, self.rows[:, PARAM.none]
        some = share > none
        found = np.zeros(len(rows))
        if some.any():
            none, share, rows = none[some], share[some], rows[some]
            below, above = (share - none) / (1.0 - none), (1.0 - share) / (1.0 - none)
            z = row_quantiles(rows, below, above)
            found[some] = apply_inverse_link(z, rows[:, PARAM.unit])
        return found
