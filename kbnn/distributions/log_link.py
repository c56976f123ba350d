"""The link of a positive target y: what the network learns is z, and y = u log(1 + e^z).

Far below the unit u that is the logarithm, z = log(y/u): small values are told by factors. Far
above it z = y/u: large ones are told by differences, as their errors are, and no forecast explodes.
With u four times the median of the first targets, prices that vary by factors are learned as their
logarithms would be, while a few large values among many small ones are still forecast closely.

A unit of 0 stands for the plain logarithm, y = e^z.

A positive number: what its link makes of it (kbnn.distributions.log_link) has the mixture of
kbnn.distributions.normal_mixture.

Where the link is the plain logarithm, with E min(X, y) = e^(m + s^2/2) Phi(w - s) + y Phi(-w),
w = (ln y - m)/s, and E min(X, X') = sum over both of e^(m + s^2/2) Phi(-(m - m' + s^2)/sqrt(s^2 +
s'^2)), the CRPS is y - 2 E min(X, y) + E min(X, X'): no mean appears, which a wide part would have
beyond all numbers. Elsewhere it is the integral of (F(z) - 1[z > z_y])^2 dy/dz over z, by
Gauss-Legendre between points that follow every scale there is in it. Both also know of a value
that is 0 with a probability of its own (kbnn.distributions.hurdle): a part that is below all others.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from kbnn.array_types import FloatArray
from kbnn.core import normal
from kbnn.distributions import normal_mixture
from kbnn.distributions.normal_mixture import PARAM, RowScores

UNIT_MEDIANS: Final = 4.0
"""The unit, in medians of the first targets."""
MAX_LOG: Final = 690.0
"""Logarithms beyond which there are no numbers to speak of."""
MAX_UNITS: Final = 1e300
"""A value counts as at most so many units: far beyond what is taken for a measurement."""
MAX_FLOAT: Final = float(np.finfo(np.float64).max)


def choose_link_unit(y: FloatArray) -> float:
    """The unit that first targets call for; 0 where none of them is positive."""
    known = y[np.isfinite(y) & (y > 0.0)]
    return UNIT_MEDIANS * float(np.median(known)) if known.size else 0.0


def apply_link(y: FloatArray, unit: FloatArray) -> FloatArray:
    """z of values above 0; infinite where there is none, NaN where nothing is known."""
    soft = unit > 0.0
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        share = np.minimum(y / np.where(soft, unit, 1.0), MAX_UNITS)
        z = np.where(soft, share + np.log(-np.expm1(-share)), np.log(y))
    return np.where(np.isnan(y), np.nan, np.where(y > 0.0, z, np.inf))


def apply_inverse_link(z: FloatArray, unit: FloatArray) -> FloatArray:
    """y of what was learned, all of them numbers above 0."""
    plain = np.exp(np.clip(z, -MAX_LOG, MAX_LOG))
    soft = np.maximum(z, 0.0) + np.log1p(np.exp(-np.abs(np.maximum(z, -MAX_LOG))))
    soft = np.where(z < -30.0, plain, soft)  # where 1 + e^z is 1
    return np.where(unit > 0.0, multiply_clipped(unit, soft), plain)


def multiply_clipped(unit: FloatArray, size: FloatArray) -> FloatArray:
    """So many units, all of them numbers."""
    with np.errstate(over="ignore"):
        return np.minimum(unit * size, MAX_FLOAT)


def log_slope(y: FloatArray, unit: FloatArray) -> FloatArray:
    """log dy/dz at values above 0: what the density of z loses."""
    soft = unit > 0.0
    safe = np.where(soft, unit, 1.0)
    with np.errstate(over="ignore"):
        share = y / safe
    return np.where(soft, np.log(safe) + np.log(-np.expm1(-share)), np.log(y))


ROUNDING_HALF_WIDTH = 0.5
_SMOOTH_EDGES_SD: Final = np.array([-9.0, -5.0, -2.5, 0.0, 2.5, 5.0, 9.0])
"""Between these, in spreads of a part, its cdf is smooth."""
_LINK_EDGES: Final = np.array(
    [-40.0, -30.0, -22.0, -15.0, -10.0, -6.0, -3.0, 0.0, 3.0, 6.0, 10.0, 15.0]
)
"""And between these the slope of the link; below the first it is 0."""
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(12)
_BATCH_ROWS: Final = 256
"""Rows that are integrated at a time."""


def possible(y: FloatArray) -> FloatArray:
    """Above 0."""
    return (y > 0.0).astype(np.float64)


def quantile(rows: FloatArray, share: float) -> FloatArray:
    """The value that so large a share lies below."""
    return apply_inverse_link(normal_mixture.quantile(rows, share), rows[:, PARAM.unit])


def interval(rows: FloatArray, share: float) -> tuple[FloatArray, FloatArray]:
    """The central interval of that share."""
    lower, upper = normal_mixture.interval(rows, share)
    return apply_inverse_link(lower, rows[:, PARAM.unit]), apply_inverse_link(
        upper, rows[:, PARAM.unit]
    )


def judge(y: FloatArray, rows: FloatArray) -> RowScores:
    """Values beside what was stated of them."""
    unit = rows[:, PARAM.unit]
    told = normal_mixture.judge(apply_link(y, unit), rows)
    return told._replace(
        nll=told.nll + log_slope(y, unit),
        crps=crps(y, rows),
        lower=apply_inverse_link(told.lower, unit),
        upper=apply_inverse_link(told.upper, unit),
    )


def log_density(y: FloatArray, rows: FloatArray, zero_bin_width: float = 1.0) -> FloatArray:
    """Of values, none of which is 0; of whole numbers the mass of what would be rounded to them."""
    unit = rows[:, PARAM.unit]
    fine = normal_mixture.log_pdf(apply_link(y, unit), rows) - log_slope(y, unit)
    whole = y == np.rint(y)
    if not whole.any():
        return fine
    low = apply_link(np.maximum(y - ROUNDING_HALF_WIDTH, np.finfo(float).tiny), unit)
    return np.where(
        whole,
        normal_mixture.log_between(low, apply_link(y + ROUNDING_HALF_WIDTH, unit), rows),
        fine,
    )


def crps(y: FloatArray, rows: FloatArray) -> FloatArray:
    """Continuous ranked probability score, in the units of y."""
    soft = rows[:, PARAM.unit] > 0.0
    found = np.empty(len(y))
    found[~soft] = _log_crps(y[~soft], rows[~soft])
    places = np.flatnonzero(soft)
    for start in range(0, len(places), _BATCH_ROWS):
        at = places[start : start + _BATCH_ROWS]
        found[at] = _soft_crps(y[at], rows[at])
    return found


def _soft_crps(y: FloatArray, rows: FloatArray) -> FloatArray:
    place, spread, share, ratio, shift = rows[:, : PARAM.gain, None].transpose(1, 0, 2)
    unit = rows[:, PARAM.unit]
    center, wide = place + shift * spread, np.sqrt(ratio) * spread
    none = rows[:, PARAM.none, None]
    value = np.where(y > 0.0, apply_link(y, unit), -np.inf)[:, None]
    points = [
        place + spread * _SMOOTH_EDGES_SD,
        center + wide * _SMOOTH_EDGES_SD,
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
    # Far above, dy/dz is the unit: what lies beyond the last point is nothing.
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
            # The two halves of E min come from the pair and from the pair turned round.
            found += (
                2.0
                * weight
                * other
                * _exp_times_normal_cdf(m + s * s / 2.0, -(m - m2 + s * s) / both)
            )
    return found


def exp_clipped(logs: FloatArray) -> FloatArray:
    """e to these, all of them numbers."""
    return np.exp(np.clip(logs, -MAX_LOG, MAX_LOG))


def _exp_times_normal_cdf(log_factor: FloatArray, u: FloatArray) -> FloatArray:
    """e^log_factor Phi(u), without a product of what is beyond all numbers and 0."""
    return exp_clipped(log_factor + normal.log_cdf(u))
