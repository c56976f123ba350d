"""Amounts: 0 with probability p_0, otherwise a positive number as in kbnn.distributions.log_link.

With G the distribution function of the latter, P(Y <= y) = p_0 + (1 - p_0) G(y).

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

from kbnn.array_types import FloatArray
from kbnn.core import normal
from kbnn.distributions import log_link, normal_mixture
from kbnn.distributions.log_link import UNIT_MEDIANS, apply_inverse_link, apply_link, log_slope
from kbnn.distributions.negative_binomial import hash_uniform, interval_levels
from kbnn.distributions.normal_mixture import PARAM, TAIL_SHARES, RowScores

ZERO_BIN_MEDIANS: Final = 0.01
"""Width of the values that round to 0, in medians of the first amounts."""
_TINY: Final = float(np.finfo(np.float64).tiny)


def zero_bin_width(unit: FloatArray) -> FloatArray:
    """Return the width of the values that round to 0, for links of this unit."""
    return np.asarray(np.maximum(ZERO_BIN_MEDIANS / UNIT_MEDIANS * unit, _TINY))


def possible(y: FloatArray) -> FloatArray:
    """Return 1 for finite values from 0 on, otherwise 0."""
    return np.asarray((y >= 0.0) & (y < np.inf), dtype=np.float64)


def cdf(y: FloatArray, rows: FloatArray) -> FloatArray:
    """Return P(Y <= y)."""
    none = rows[:, PARAM.none]
    with np.errstate(invalid="ignore"):
        below = normal_mixture.cdf(apply_link(np.maximum(y, _TINY), rows[:, PARAM.unit]), rows)
    return np.where(y < 0.0, 0.0, none + (1.0 - none) * np.where(y > 0.0, below, 0.0))


def randomized_pit(y: FloatArray, rows: FloatArray) -> FloatArray:
    """Return P(Y <= y); for 0 a random point between 0 and P(Y <= 0)."""
    return np.where(y > 0.0, 1.0, hash_uniform(y, rows)) * cdf(y, rows)


def quantile(rows: FloatArray, share: float) -> FloatArray:
    """Return the smallest value y with P(Y <= y) >= share."""
    return _find_quantiles(rows, np.full(len(rows), share))


def interval(rows: FloatArray, share: float) -> tuple[FloatArray, FloatArray]:
    """Return the central interval of probability `share`, as calibrated."""
    low, high = interval_levels(rows, 0.5 - share / 2, rows[:, PARAM.none])
    return _find_quantiles(rows, low), _find_quantiles(rows, high)


def judge(y: FloatArray, rows: FloatArray) -> RowScores:
    """Score amounts against their predictive distributions."""
    none = rows[:, PARAM.none]
    u = randomized_pit(y, rows)
    edges = [interval_levels(rows, outside, none) for outside in TAIL_SHARES]
    start = np.where(y > 0.0, u, 0.0)  # where the step at y begins
    step = np.where(y > 0.0, 0.0, none)
    return RowScores(
        _negative_log_density(y, rows),
        log_link.crps(y, rows),
        u,
        np.where(u < 0.5, 1.0, -1.0) * normal.lower_quantiles(np.minimum(u, 1.0 - u)),
        _find_quantiles(rows, edges[2][0]),
        _find_quantiles(rows, edges[2][1]),
        *(_share_inside(start, step, low, high) for low, high in edges),
    )


def log_density(y: FloatArray, rows: FloatArray, zero_bin_width: float = 1.0) -> FloatArray:
    """Return the log density of amounts; of whole numbers, the log mass that rounds to them.

    The bin of 0 has the width `zero_bin_width` (see kbnn.distributions.dispatch).
    """
    none, some = rows[:, PARAM.none], y > 0.0
    mass = cdf(np.full(len(y), 0.5 * zero_bin_width), rows)
    found = np.log(np.where(some, 1.0 - none, mass))
    if some.any():
        found[some] += log_link.log_density(y[some], rows[some])
    return found


def _negative_log_density(y: FloatArray, rows: FloatArray) -> FloatArray:
    none, unit, some = rows[:, PARAM.none], rows[:, PARAM.unit], y > 0.0
    safe = np.where(some, y, 1.0)
    much = log_slope(safe, unit) - normal_mixture.log_pdf(apply_link(safe, unit), rows)
    return np.where(some, much - np.log(1.0 - none), np.log(zero_bin_width(unit)) - np.log(none))


def _share_inside(
    start: FloatArray, step: FloatArray, low: FloatArray, high: FloatArray
) -> FloatArray:
    """Return the share of a step, which may have no height, that lies between two levels."""
    part = np.minimum(start + step, high) - np.maximum(start, low)
    at = (start >= low) & (start <= high)
    return np.where(step > 0.0, np.maximum(part, 0.0) / np.maximum(step, _TINY), at)


def _find_quantiles(rows: FloatArray, share: FloatArray) -> FloatArray:
    """Return the smallest value y with P(Y <= y) >= share."""
    none = rows[:, PARAM.none]
    some = share > none
    found = np.zeros(len(rows))
    if some.any():
        none, share, rows = none[some], share[some], rows[some]
        below, above = (share - none) / (1.0 - none), (1.0 - share) / (1.0 - none)
        found[some] = apply_inverse_link(
            normal_mixture.row_quantiles(rows, below, above), rows[:, PARAM.unit]
        )
    return found
