"""Amounts: 0 with probability p_0, otherwise a positive number (transformed_normal.LogLink).

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

from kbnn.array_types import BoolArray, FloatArray
from kbnn.core import normal
from kbnn.distributions.negative_binomial import find_interval_levels, hash_uniform
from kbnn.distributions.normal_mixture import log_pdf, row_quantiles
from kbnn.distributions.predictive import PARAM, TAIL_SHARES, RowScores
from kbnn.distributions.transformed_normal import (
    UNIT_MEDIANS,
    LogLink,
    apply_inverse_link,
    apply_link,
    log_slope,
)

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

    def cdf_before(self, y: FloatArray) -> FloatArray:
        """Return P(Y < y) for values (..., n)."""
        return np.where(y > 0.0, self.cdf(y), 0.0)

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
