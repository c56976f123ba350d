"""A count seen through a negative binomial: what it says of the logarithm of its rate.

eta = a/2 is the logarithm of the rate, m and q its mean and variance, and a count y has the
likelihood e^(y eta)/(k + e^eta)^(y + k), k = 1/phi. The posterior's mode by Newton's method, with
s = 1/(1 + k e^-eta): gradient (m - eta)/q + y - (y + k) s, curvature 1/q + I, where
I = (y + k) s (1 - s); its variance v = q/(1 + q I), and its mean eta - I (1 - 2s) v^2/2, corrected
by the third derivative.
Half the network's output keeps rates from running away where nothing has been seen.

phi is the ratio of two discounted sums, (V - what a Poisson of the same mean would have)/(mu^2 e^q)
weighted by how much each row can tell.

Outliers: a count comes from the negative binomial or, one in a hundred, from
s/((s + y)(s + y + 1)), s = mu + 1, whose tail is as heavy as 1/y^2; it counts as far as it is none.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from kbnn.core.constants import (
    COUNT_NEWTON_REST,
    COUNT_NEWTON_STEP,
    COUNT_NEWTON_TURNS,
    COUNT_RATE,
    DISPERSION_BOUND,
    DISPERSION_KEPT,
    LEAST_DISPERSION,
    LEAST_RATE_VAR,
    LOG_ODDS_LIMIT,
    LOG_RATE_LIMIT,
    MOST_DISPERSION,
    MOST_RATE_VAR,
    OUTLIER_SHARE,
    RESIDUAL_BOUND,
)


class LogRate(NamedTuple):
    """What is believed of the logarithm of a rate."""

    mean: float
    var: float


def make_log_rate(mean: float, var: float) -> LogRate:
    """Of an output of that mean and variance."""
    eta = min(max(COUNT_RATE * mean, -LOG_RATE_LIMIT), LOG_RATE_LIMIT)
    return LogRate(eta, min(max(COUNT_RATE**2 * var, LEAST_RATE_VAR), MOST_RATE_VAR))


def count_dispersion(sums: tuple[float, float]) -> float:
    """phi of its two sums, weight first."""
    return min(max(sums[1] / sums[0], LEAST_DISPERSION), MOST_DISPERSION)


def count_moments(now: LogRate, phi: float) -> tuple[float, float]:
    """mu and 1/alpha of the negative binomial that is predicted."""
    mu = math.exp(min(now.mean + 0.5 * now.var, LOG_RATE_LIMIT))
    return mu, math.exp(now.var) * (1.0 + phi) - 1.0


def log_rate_posterior(now: LogRate, y: float, phi: float) -> LogRate:
    """What is believed once y was seen."""
    m, q = now
    k = 1.0 / phi
    h = y * k / (y + k)
    eta = m if y == 0.0 else (m / q + h * math.log(y)) / (1.0 / q + h)
    for _ in range(int(COUNT_NEWTON_TURNS)):
        s = 1.0 / (1.0 + k * math.exp(-eta))
        step = ((m - eta) / q + y - (y + k) * s) / (1.0 / q + (y + k) * s * (1.0 - s))
        step = min(max(step, -COUNT_NEWTON_STEP), COUNT_NEWTON_STEP)
        eta += step
        if abs(step) <= COUNT_NEWTON_REST * (1.0 + abs(eta)):
            break
    s = 1.0 / (1.0 + k * math.exp(-eta))
    information = (y + k) * s * (1.0 - s)
    var = q / (1.0 + q * information)
    return LogRate(eta - 0.5 * information * (1.0 - 2.0 * s) * var * var, var)


def count_inlier_probability(
    y: float, mu: float, inverse: float, share: float = OUTLIER_SHARE
) -> float:
    """That a count is no outlier, of which there are such a share; `inverse` is 1/alpha."""
    alpha, s = 1.0 / inverse, mu + 1.0
    log_mass = math.lgamma(y + alpha) - math.lgamma(alpha) - math.lgamma(y + 1.0)
    log_mass += -alpha * math.log1p(mu * inverse) - y * math.log1p(alpha / mu)
    log_far = math.log(s) - math.log(s + y) - math.log(s + y + 1.0)
    odds = math.log((1.0 - share) / share) + log_mass - log_far
    return 1.0 / (1.0 + math.exp(min(max(-odds, -LOG_ODDS_LIMIT), LOG_ODDS_LIMIT)))


def dispersion_slope(y: float, mu: float, inverse: float) -> float:
    """d log mass/d log(1/alpha) = -alpha (psi(y + alpha) - psi(alpha) - log(1 + mu/alpha)
    + (mu - y)/(mu + alpha)): above 0 where the count asks for more dispersion.
    """
    alpha = 1.0 / inverse
    slope = digamma(y + alpha) - digamma(alpha) - math.log1p(mu * inverse)
    return -alpha * (slope + (mu - y) / (mu + alpha))


def digamma(x: float) -> float:
    """psi of a number above 0: by its recurrence up to 8, and its series from there."""
    below = 0.0
    while x < 8.0:
        below += 1.0 / x
        x += 1.0
    z = 1.0 / (x * x)
    series = 0.0
    for term in (691 / 32760, 1 / 132, 1 / 240, 1 / 252, 1 / 120, 1 / 12):
        series = z * (term - series)
    return math.log(x) - 0.5 / x - series - below


def learn_dispersion(
    sums: tuple[float, float], now: LogRate, phi: float, y: float, share: float
) -> tuple[float, float]:
    """The two sums after a count that is `share` of a row."""
    mu, inverse = count_moments(now, phi)
    var = mu + mu * mu * inverse
    scale = mu * mu * math.exp(now.var)
    weight = share * (scale / var) ** 2
    square = min((y - mu) ** 2, DISPERSION_BOUND * var)
    more = (square - mu - mu * mu * math.expm1(now.var)) / scale
    kept = 1.0 - (1.0 - DISPERSION_KEPT) * min(share, 1.0)
    return kept * (sums[0] + weight), kept * (sums[1] + weight * more)


def count_bound(mu: float, inverse: float) -> float:
    """The most that a count is taken for: so many standard deviations above what was expected."""
    return mu + RESIDUAL_BOUND * math.sqrt(mu + mu * mu * inverse)


def count_surprise(y: float, mu: float, inverse: float) -> float:
    """How far beyond what was expected, as kbnn.core.drift counts it."""
    return (y - mu) ** 2 / (mu + mu * mu * inverse)
