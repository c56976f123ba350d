"""A positive number: its logarithm has the mixture of kbnn.core.mixture.

With E min(X, y) = e^(m + s^2/2) Phi(w - s) + y Phi(-w), w = (ln y - m)/s, and
E min(X, X') = sum over both of e^(m + s^2/2) Phi(-(m - m' + s^2)/sqrt(s^2 + s'^2)), the CRPS is
y - 2 E min(X, y) + E min(X, X'): no mean appears, which a wide part would have beyond all numbers.
"""

from __future__ import annotations

import numpy as np

from kbnn.core import mixture, normal
from kbnn.core.mixture import STATED, Verdicts
from kbnn.core.normal import FloatArray

MOST_LOG = 690.0
"""Logarithms beyond which there are no numbers to speak of."""
LEAST_WHOLE = 0.5


def possible(y: FloatArray) -> FloatArray:
    """Above 0."""
    return (y > 0.0).astype(np.float64)


def quantile(rows: FloatArray, share: float) -> FloatArray:
    """The value that so large a share lies below."""
    return powers(mixture.quantile(rows, share))


def interval(rows: FloatArray, share: float) -> tuple[FloatArray, FloatArray]:
    """The central interval of that share."""
    lower, upper = mixture.interval(rows, share)
    return powers(lower), powers(upper)


def judge(y: FloatArray, rows: FloatArray) -> Verdicts:
    """Values beside what was stated of them."""
    log_y = np.log(y)
    told = mixture.judge(log_y, rows)
    return told._replace(
        nll=told.nll + log_y, crps=crps(y, rows), lower=powers(told.lower), upper=powers(told.upper)
    )


def log_density(y: FloatArray, rows: FloatArray) -> FloatArray:
    """Of values; of whole numbers the mass of what would be rounded to them."""
    log_y = np.log(y)
    fine = mixture.log_pdf(log_y, rows) - log_y
    whole = y == np.rint(y)
    if not whole.any():
        return fine
    low = np.log(np.maximum(y - LEAST_WHOLE, np.finfo(float).tiny))
    return np.where(whole, mixture.log_between(low, np.log(y + LEAST_WHOLE), rows), fine)


def crps(y: FloatArray, rows: FloatArray) -> FloatArray:
    """Continuous ranked probability score, in the units of y."""
    place, spread, share, ratio, shift = rows[:, : STATED.gain].T
    parts = [(1.0 - share, place, spread), (share, place + shift * spread, np.sqrt(ratio) * spread)]
    log_y = np.log(y)
    found = y.copy()
    for weight, m, s in parts:
        w = (log_y - m) / s
        found -= 2.0 * weight * (_tail(m + s * s / 2.0, w - s) + y * normal.cdf(-w))
        for other, m2, s2 in parts:
            both = np.hypot(s, s2)
            # The two halves of E min come from the pair and from the pair turned round.
            found += 2.0 * weight * other * _tail(m + s * s / 2.0, -(m - m2 + s * s) / both)
    return found


def powers(logs: FloatArray) -> FloatArray:
    """e to these, all of them numbers."""
    return np.exp(np.clip(logs, -MOST_LOG, MOST_LOG))


def _tail(log_factor: FloatArray, u: FloatArray) -> FloatArray:
    """e^log_factor Phi(u), without a product of what is beyond all numbers and 0."""
    return powers(log_factor + normal.log_cdf(u))
