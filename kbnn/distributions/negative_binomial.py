"""A count: a negative binomial of mean mu and variance mu + mu^2/alpha, and outliers, a share eps;
its row is (mu, 1/alpha, eps, ..).

An outlier has the mass s/((s + y)(s + y + 1)), s = mu + 1, which is P(Y > y) = s/(s + y + 1): a
tail without a mean. The CRPS is therefore written without one, y - 2 E min(X, y) + E min(X, X').

A count is a step of its distribution, from P(Y < y) to P(Y <= y); u is drawn between the two by a
hash of the row, so that it is even where what is stated is right, and the same whenever it is asked
for. The central interval has its edges at quantiles whose normal scores are tracked; where the
lower is 0 nothing lies below, and the upper one may leave out both shares.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from kbnn.array_types import FloatArray
from kbnn.core import normal
from kbnn.distributions.normal_mixture import PARAM, TAIL_SHARES, RowScores, interpolate_gains

MAX_COUNT: Final = 2.0**53
"""Counts beyond this are not told apart."""
_LOG_V_STEP: Final = 0.25
_LOG_V: Final = np.arange(-37.0, 4.0, _LOG_V_STEP)
"""Where an integral is taken, see `_near_and_far`."""
_BATCH_ROWS: Final = 256
"""Rows that it is taken for at a time."""
_T: Final = np.arange(0.0, 10.0, 0.125)
_SINH: Final = np.sinh(_T)
_SINH_WEIGHTS: Final = 0.125 * np.cosh(_T) * np.where(_T > 0.0, 1.0, 0.5)
"""Places and weights of the rule in `_integrated_apart`."""


def possible(y: FloatArray) -> FloatArray:
    """Whole numbers from 0 on."""
    return np.asarray((y >= 0.0) & (y == np.rint(y)) & (y <= MAX_COUNT), dtype=np.float64)


def cdf(y: FloatArray, rows: FloatArray) -> FloatArray:
    """P(Y <= y)."""
    share, s = rows[:, PARAM.share], rows[:, PARAM.place] + 1.0
    k = np.maximum(np.floor(y), -1.0)
    near = _negative_binomial_cdf(k, *_mean_and_shape(rows))
    return np.asarray((1.0 - share) * near + share * (k + 1.0) / (s + k + 1.0))


def log_density(y: FloatArray, rows: FloatArray, zero_bin_width: float = 1.0) -> FloatArray:
    """The logarithm of the mass of a count, whatever is `finest`."""
    mu, alpha = _mean_and_shape(rows)
    share, s = rows[:, PARAM.share], mu + 1.0
    gammaln = normal.load_scipy_special().gammaln
    chosen = gammaln(y + alpha) - gammaln(alpha) - gammaln(y + 1.0)
    log_p = -np.log1p(mu / alpha)
    with np.errstate(divide="ignore"):
        log_q = -np.log1p(alpha / mu)
        log_share = np.log(share)
    near = chosen + alpha * log_p + np.where(y > 0.0, y * log_q, 0.0)
    far = np.log(s) - np.log(s + y) - np.log(s + y + 1.0)
    return np.asarray(np.logaddexp(np.log1p(-share) + near, log_share + far))


def quantile(rows: FloatArray, share: float) -> FloatArray:
    """The least count that so large a share does not exceed."""
    return _find_quantiles(rows, np.full(len(rows), share))


def interval(rows: FloatArray, share: float) -> tuple[FloatArray, FloatArray]:
    """The central interval of that share."""
    low, high = interval_levels(rows, 0.5 - share / 2, cdf(np.zeros(len(rows)), rows))
    return _find_quantiles(rows, low), _find_quantiles(rows, high)


def interval_levels(
    rows: FloatArray, outside: float, none: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """The shares that lie below the two edges of an interval, as they are kept.

    `none` (n,) is the stated probability of 0.
    """
    half = -normal.quantile(outside)
    below, above = interpolate_gains(rows, half)
    low = normal.cdf(-half * below)
    from_zero = none >= low
    half = -normal.quantile(min(2.0 * outside, 0.5))
    wide = normal.cdf(half * above)
    high = normal.cdf(-normal.quantile(outside) * above)
    return np.where(from_zero, 0.0, low), np.where(from_zero, wide, high)


def judge(y: FloatArray, rows: FloatArray) -> RowScores:
    """Counts beside what was stated of them."""
    u = randomized_pit(y, rows)
    none = cdf(np.zeros(len(rows)), rows)
    edges = [interval_levels(rows, outside, none) for outside in TAIL_SHARES]
    tail = np.minimum(u, 1.0 - u)
    return RowScores(
        -log_density(y, rows),
        crps(y, rows),
        u,
        np.where(u < 0.5, 1.0, -1.0) * normal.lower_quantiles(tail),
        _find_quantiles(rows, edges[2][0]),
        _find_quantiles(rows, edges[2][1]),
        *(((u >= low) & (u <= high)).astype(np.float64) for low, high in edges),
    )


def randomized_pit(y: FloatArray, rows: FloatArray) -> FloatArray:
    """u of each row, see above."""
    low = cdf(y - 1.0, rows)
    return np.clip(low + (cdf(y, rows) - low) * hash_uniform(y, rows), 0.0, 1.0)


def crps(y: FloatArray, rows: FloatArray) -> FloatArray:
    """y - 2 E min(X, y) + E min(X, X'), each by its parts, ordinary and outliers."""
    mu, alpha = _mean_and_shape(rows)
    share, s = rows[:, PARAM.share], mu + 1.0
    digamma, trigamma = normal.load_scipy_special().digamma, normal.load_scipy_special().polygamma
    far = s * (digamma(s + y + 1.0) - digamma(s + 1.0))  # the sum of P(X > k) over k < y
    alike = (1.0 - share) ** 2 * (mu - _half_mean_difference(rows))
    alike += share**2 * s * s * trigamma(1, s + 1.0)
    mixed = np.flatnonzero(share > 0.0)
    for start in range(0, len(mixed), _BATCH_ROWS):
        at = mixed[start : start + _BATCH_ROWS]
        alike[at] += 2.0 * share[at] * (1.0 - share[at]) * _mean_min_with_outlier(mu[at], alpha[at])
    near = 0.5 * (mu + y - _mean_abs_difference(y, mu, alpha))
    return np.asarray(y - 2.0 * ((1.0 - share) * near + share * far) + alike)


def _mean_abs_difference(y: FloatArray, mu: FloatArray, alpha: FloatArray) -> FloatArray:
    """E |X - y| of the ordinary ones: y (2F(y) - 1) - mu (2F(y - 1; alpha + 1) - 1)."""
    above = _negative_binomial_cdf(y - 1.0, mu * (alpha + 1.0) / alpha, alpha + 1.0)
    return y * (2.0 * _negative_binomial_cdf(y, mu, alpha) - 1.0) - mu * (2.0 * above - 1.0)


def _mean_min_with_outlier(mu: FloatArray, alpha: FloatArray) -> FloatArray:
    """E min(X, Z) of an ordinary X and an outlier Z.

    It is the sum of P(X > k) s/(s + k + 1) over k; with s/(s + k + 1) = the integral of
    e^(-v) t^(k + 1), t = e^(-v/s), that of e^(-v) (1 - G(t))/(1/t - 1), where G(t) =
    (1 + mu (1 - t)/alpha)^-alpha is the generating function of X. In log v the rule of even steps
    is exact to rounding.
    """
    v, s = np.exp(_LOG_V), mu[:, None] + 1.0
    lost = -np.expm1(-alpha[:, None] * np.log1p(-(mu / alpha)[:, None] * np.expm1(-v / s)))
    return np.asarray(np.sum(lost / np.expm1(v / s) * (np.exp(-v) * v * _LOG_V_STEP), axis=1))


def _half_mean_difference(rows: FloatArray) -> FloatArray:
    """E |X - X'|/2 of two ordinary ones: mu/p 2F1(alpha + 1, 1/2; 2; -4 (1 - p)/p^2)."""
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
    """Compute E |X - X'|/2 by quadrature where the series does not converge: many and alike.

    The variance is v = mu + mu^2/alpha, and c = v/alpha. For whole numbers |n| is the integral of
    (1 - cos n w)/(1 - cos w) over 0 < w < pi, divided by pi; the mean of cos (X - X')w is
    (1 + 2c (1 - cos w))^-alpha. By parts and with u = tan(w/2) that is

        E |X - X'|/2 = 4v/pi times the integral of (1 + 4c u^2/(1 + u^2))^(-alpha - 1)/(1 + u^2)^2

    over u > 0. With u = r sinh t, r the width of the integrand, the rule of even steps in t has a
    relative error below 1e-12 for alpha >= 2 and dispersions that are learned (see
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
    """P(X <= k) of the negative binomial, k whole or below 0."""
    below = normal.load_scipy_special().betainc(
        alpha, np.maximum(k, 0.0) + 1.0, alpha / (alpha + mu)
    )
    return np.where(k < 0.0, 0.0, below)


def _mean_and_shape(rows: FloatArray) -> tuple[FloatArray, FloatArray]:
    return rows[:, PARAM.place], 1.0 / rows[:, PARAM.spread]


def _find_quantiles(rows: FloatArray, share: FloatArray) -> FloatArray:
    """The least count k with P(Y <= k) >= share, by halving, or the largest that is told apart."""
    mu, alpha = _mean_and_shape(rows)
    sd = np.sqrt(mu + mu * mu / alpha)
    low, high = np.full(len(rows), -1.0), np.ceil(mu + 4.0 * sd) + 1.0
    for _ in range(64):
        short = cdf(high, rows) < share
        if not short.any() or np.all(high[short] > MAX_COUNT):
            break
        high = np.where(short, 2.0 * high, high)
    high = np.minimum(high, MAX_COUNT)  # there is not a number for every count beyond
    while np.any(high - low > 1.0):
        middle = np.floor(0.5 * (low + high))
        enough = cdf(middle, rows) >= share
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    return np.maximum(high, 0.0)


def hash_uniform(y: FloatArray, rows: FloatArray) -> FloatArray:
    """A number between 0 and 1 for each row, even and the same whenever it is asked for."""
    bits = np.ascontiguousarray(rows[:, PARAM.place]).view(np.uint64)
    bits = bits ^ (np.ascontiguousarray(y).view(np.uint64) * np.uint64(0x9E3779B97F4A7C15))
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        bits = (bits ^ (bits >> np.uint64(shift))) * np.uint64(factor)
    bits = bits ^ (bits >> np.uint64(31))
    return (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53
