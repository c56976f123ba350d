"""Counts: a negative binomial of mean mu and variance mu + mu^2/alpha, mixed with outliers.

A row holds (mu, 1/alpha, eps, ...), where eps is the share of outliers. An outlier has the mass
s/((s + y)(s + y + 1)), s = mu + 1, so that P(Y > y) = s/(s + y + 1): a tail without a mean. The
CRPS is therefore computed without one, as y - 2 E min(X, y) + E min(X, X').

The distribution function steps from P(Y < y) to P(Y <= y) at a count y; u is drawn between the two
by a hash of the row, so that it is uniform if the forecast is calibrated, and reproducible. The
edges of the central interval are quantiles whose normal scores are calibrated; if the lower edge is
0 nothing lies below it, and the upper edge leaves out both shares.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from kbnn.array_types import BoolArray, FloatArray
from kbnn.core import normal
from kbnn.distributions.normal_mixture import interpolate_gains
from kbnn.distributions.predictive import (
    PARAM,
    TAIL_SHARES,
    PredictiveDistribution,
    RowScores,
)

MAX_COUNT: Final = 2.0**53
"""Largest count: larger whole numbers are not exact in floating point."""
_LOG_V_STEP: Final = 0.25
_LOG_V: Final = np.arange(-37.0, 4.0, _LOG_V_STEP)
"""Quadrature points, see `_mean_min_with_outlier`."""
_BATCH_ROWS: Final = 256
"""Rows that are integrated at a time."""
_T: Final = np.arange(0.0, 10.0, 0.125)
_SINH: Final = np.sinh(_T)
_SINH_WEIGHTS: Final = 0.125 * np.cosh(_T) * np.where(_T > 0.0, 1.0, 0.5)
"""Points and weights of the quadrature in `_integrate_half_mean_difference`."""


def find_interval_levels(
    rows: FloatArray, outside: float, none: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return the probabilities below the two edges of a calibrated interval.

    `none` (n,) is the predicted probability of 0.
    """
    half = -normal.quantile(outside)
    below, above = interpolate_gains(rows, half)
    low = normal.cdf(-half * below)
    from_zero = none >= low
    half = -normal.quantile(min(2.0 * outside, 0.5))
    wide = normal.cdf(half * above)
    high = normal.cdf(-normal.quantile(outside) * above)
    return np.where(from_zero, 0.0, low), np.where(from_zero, wide, high)


def _mean_abs_difference(y: FloatArray, mu: FloatArray, alpha: FloatArray) -> FloatArray:
    """Return E |X - y| of a negative binomial: y (2F(y) - 1) - mu (2F(y - 1; alpha + 1) - 1)."""
    above = _negative_binomial_cdf(y - 1.0, mu * (alpha + 1.0) / alpha, alpha + 1.0)
    return y * (2.0 * _negative_binomial_cdf(y, mu, alpha) - 1.0) - mu * (2.0 * above - 1.0)


def _mean_min_with_outlier(mu: FloatArray, alpha: FloatArray) -> FloatArray:
    """Return E min(X, Z) of a negative binomial X and an outlier Z.

    It is the sum of P(X > k) s/(s + k + 1) over k. As s/(s + k + 1) is the integral of e^(-v) t^(k
    + 1) over v with t = e^(-v/s), the sum is the integral of e^(-v) (1 - G(t))/(1/t - 1), where
    G(t) = (1 + mu (1 - t)/alpha)^-alpha is the generating function of X. In log v the trapezoidal
    rule is exact to rounding.
    """
    v, s = np.exp(_LOG_V), mu[:, None] + 1.0
    lost = -np.expm1(-alpha[:, None] * np.log1p(-(mu / alpha)[:, None] * np.expm1(-v / s)))
    return np.asarray(np.sum(lost / np.expm1(v / s) * (np.exp(-v) * v * _LOG_V_STEP), axis=1))


def _half_mean_difference(rows: FloatArray) -> FloatArray:
    """Return E |X - X'|/2 of a negative binomial: mu/p 2F1(alpha + 1, 1/2; 2; -4 (1 - p)/p^2)."""
    mu, alpha = _mean_and_shape(rows)
    p = alpha / (alpha + mu)
    with np.errstate(over="ignore", invalid="ignore"):
        apart = (
            mu
            / p
            * normal.load_scipy_special().hyp2f1(alpha + 1.0, 0.5, 2.0, -4.0 * (1.0 - p) / (p * p))
        )
    at = np.flatnonzero(~np.isfinite(apart))
    for start in range(0, len(at), _BATCH_ROWS):
        some = at[start : start + _BATCH_ROWS]
        apart[some] = _integrate_half_mean_difference(mu[some], alpha[some])
    return np.asarray(apart)


def _integrate_half_mean_difference(mu: FloatArray, alpha: FloatArray) -> FloatArray:
    """Compute E |X - X'|/2 by quadrature where the series of 2F1 does not converge.

    The variance is v = mu + mu^2/alpha, and c = v/alpha. For whole numbers |n| is the integral of
    (1 - cos n w)/(1 - cos w) over 0 < w < pi, divided by pi; the mean of cos (X - X')w is (1 + 2c
    (1 - cos w))^-alpha. By parts and with u = tan(w/2) that is

        E |X - X'|/2 = 4v/pi times the integral of (1 + 4c u^2/(1 + u^2))^(-alpha - 1)/(1 + u^2)^2

    over u > 0. With u = r sinh t, r the width of the integrand, the trapezoidal rule in t has a
    relative error below 1e-12 for alpha >= 2 and dispersions that can be learned (see
    kbnn.core.constants); a sum over the support would take thousands of terms.
    """
    v = mu + mu * mu / alpha
    c = v / alpha
    r = np.minimum(1.0 / np.sqrt(8.0 * c * (alpha + 1.0)), 1.0)
    square = (r[:, None] * _SINH) ** 2
    base = np.log1p(4.0 * c[:, None] * square / (1.0 + square))
    height = np.exp(-(alpha + 1.0)[:, None] * base) / (1.0 + square) ** 2
    return np.asarray(4.0 * v / np.pi * r * (height @ _SINH_WEIGHTS))


def _negative_binomial_cdf(k: FloatArray, mu: FloatArray, alpha: FloatArray) -> FloatArray:
    """Return P(X <= k) of the negative binomial, k whole or below 0."""
    below = normal.load_scipy_special().betainc(
        alpha, np.maximum(k, 0.0) + 1.0, alpha / (alpha + mu)
    )
    return np.where(k < 0.0, 0.0, below)


def _mean_and_shape(rows: FloatArray) -> tuple[FloatArray, FloatArray]:
    return rows[:, PARAM.place], 1.0 / rows[:, PARAM.spread]


def hash_uniform(y: FloatArray, rows: FloatArray) -> FloatArray:
    """Return a reproducible number for each row, uniform between 0 and 1."""
    bits = np.ascontiguousarray(rows[:, PARAM.place]).view(np.uint64)
    bits = bits ^ (np.ascontiguousarray(y).view(np.uint64) * np.uint64(0x9E3779B97F4A7C15))
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        bits = (bits ^ (bits >> np.uint64(shift))) * np.uint64(factor)
    bits = bits ^ (bits >> np.uint64(31))
    return (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53


class NegativeBinomial(PredictiveDistribution):
    """Counts: 0, 1, 2, ..."""

    code = 2

    @staticmethod
    def is_possible(y: FloatArray) -> BoolArray:
        """Return whether values are whole numbers from 0 to MAX_COUNT."""
        return np.asarray((y >= 0.0) & (y == np.rint(y)) & (y <= MAX_COUNT))

    def nearest_possible(self, y: FloatArray) -> FloatArray:
        """Return the largest count up to y, at least 0."""
        return np.clip(np.floor(y), 0.0, MAX_COUNT)

    def mean_and_sd(self) -> tuple[FloatArray, FloatArray]:
        """Return mean and sd; no mean is above the largest count seen."""
        mu, most = self.rows[..., PARAM.place], self.rows[..., PARAM.most]
        mean = np.where(np.isfinite(most), np.minimum(mu, np.maximum(most, 0.5)), mu)
        return mean, np.sqrt(mean + mean**2 * self.rows[..., PARAM.spread])

    def cdf(self, y: FloatArray) -> FloatArray:
        """Return P(Y <= y) for values (..., n)."""
        return self._cdf_at(np.maximum(np.floor(y), -1.0))

    def _cdf_at(self, k: FloatArray) -> FloatArray:
        share, s = self.rows[:, PARAM.share], self.rows[:, PARAM.place] + 1.0
        near = _negative_binomial_cdf(k, *_mean_and_shape(self.rows))
        return np.asarray((1.0 - share) * near + share * (k + 1.0) / (s + k + 1.0))

    def log_density(self, y: FloatArray, zero_bin_width: float = 1.0) -> FloatArray:
        """Return the log mass of a count; `zero_bin_width` has no effect."""
        mu, alpha = _mean_and_shape(self.rows)
        share, s = self.rows[:, PARAM.share], mu + 1.0
        gammaln = normal.load_scipy_special().gammaln
        chosen = gammaln(y + alpha) - gammaln(alpha) - gammaln(y + 1.0)
        log_p = -np.log1p(mu / alpha)
        with np.errstate(divide="ignore"):
            log_q = -np.log1p(alpha / mu)
            log_share = np.log(share)
        near = chosen + alpha * log_p + np.where(y > 0.0, y * log_q, 0.0)
        far = np.log(s) - np.log(s + y) - np.log(s + y + 1.0)
        return np.asarray(np.logaddexp(np.log1p(-share) + near, log_share + far))

    def quantile(self, share: float) -> FloatArray:
        """Return the smallest count k with P(Y <= k) >= share."""
        return self._find_quantiles(np.full(len(self), share))

    def interval(self, share: float) -> tuple[FloatArray, FloatArray]:
        """Return the central interval of probability `share`, as calibrated."""
        low, high = self.interval_levels(0.5 - share / 2)
        return self._find_quantiles(low), self._find_quantiles(high)

    def interval_levels(self, outside: float) -> tuple[FloatArray, FloatArray]:
        """Return the probabilities below the two edges of a calibrated interval."""
        return find_interval_levels(self.rows, outside, self.cdf(np.zeros(len(self))))

    def score_values(self, y: FloatArray) -> RowScores:
        """Score counts against their predictive distributions."""
        u = self.randomized_pit(y)
        none = self.cdf(np.zeros(len(self)))
        edges = [find_interval_levels(self.rows, outside, none) for outside in TAIL_SHARES]
        tail = np.minimum(u, 1.0 - u)
        return RowScores(
            -self.log_density(y),
            self.crps(y),
            u,
            np.where(u < 0.5, 1.0, -1.0) * normal.lower_quantiles(tail),
            self._find_quantiles(edges[2][0]),
            self._find_quantiles(edges[2][1]),
            *(((u >= low) & (u <= high)).astype(np.float64) for low, high in edges),
        )

    def randomized_pit(self, y: FloatArray) -> FloatArray:
        """Return the randomised PIT u of each row (see the module docstring)."""
        low = self.cdf(y - 1.0)
        return np.clip(low + (self.cdf(y) - low) * hash_uniform(y, self.rows), 0.0, 1.0)

    def crps(self, y: FloatArray) -> FloatArray:
        """Return y - 2 E min(X, y) + E min(X, X'), summed over negative binomial and outliers."""
        mu, alpha = _mean_and_shape(self.rows)
        share, s = self.rows[:, PARAM.share], mu + 1.0
        digamma, trigamma = (
            normal.load_scipy_special().digamma,
            normal.load_scipy_special().polygamma,
        )
        far = s * (digamma(s + y + 1.0) - digamma(s + 1.0))  # the sum of P(X > k) over k < y
        alike = (1.0 - share) ** 2 * (mu - _half_mean_difference(self.rows))
        alike += share**2 * s * s * trigamma(1, s + 1.0)
        mixed = np.flatnonzero(share > 0.0)
        for start in range(0, len(mixed), _BATCH_ROWS):
            at = mixed[start : start + _BATCH_ROWS]
            alike[at] += (
                2.0 * share[at] * (1.0 - share[at]) * _mean_min_with_outlier(mu[at], alpha[at])
            )
        near = 0.5 * (mu + y - _mean_abs_difference(y, mu, alpha))
        return np.asarray(y - 2.0 * ((1.0 - share) * near + share * far) + alike)

    def sample(self, rng: np.random.Generator) -> FloatArray:
        """Draw one count of each row."""
        mu, alpha = _mean_and_shape(self.rows)
        near = rng.poisson(np.minimum(mu * rng.gamma(alpha) / alpha, 1e18)).astype(np.float64)
        s = mu + 1.0
        far = np.ceil(np.minimum(s / np.maximum(rng.random(len(mu)), 1e-300), MAX_COUNT) - s) - 1.0
        outlier = rng.random(len(mu)) < self.rows[:, PARAM.share]
        return np.where(outlier, np.maximum(far, 0.0), near)

    def _find_quantiles(self, share: FloatArray) -> FloatArray:
        """Return the smallest count k with P(Y <= k) >= share, at most MAX_COUNT, by bisection."""
        mu, alpha = _mean_and_shape(self.rows)
        sd = np.sqrt(mu + mu * mu / alpha)
        low, high = np.full(len(self), -1.0), np.ceil(mu + 4.0 * sd) + 1.0
        for _ in range(64):
            short = self.cdf(high) < share
            if not short.any() or np.all(high[short] > MAX_COUNT):
                break
            high = np.where(short, 2.0 * high, high)
        high = np.minimum(high, MAX_COUNT)  # larger counts are not exact in floating point
        while np.any(high - low > 1.0):
            middle = np.floor(0.5 * (low + high))
            enough = self.cdf(middle) >= share
            low, high = np.where(enough, low, middle), np.where(enough, middle, high)
        return np.maximum(high, 0.0)
