"""The interface of predictive distributions of numbers, and the layout of their parameters.

A distribution object covers n rows of one target; every method works on all rows at once. The
parameters of a row are an array whose fields `DistributionParams` names, so that forecasts can be
sliced, joined, stored and passed to the compiled kernel as arrays.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Final, NamedTuple

import numpy as np

from kbnn.array_types import BoolArray, FloatArray
from kbnn.core.constants import (
    HALF_50,
    HALF_80,
    HALF_90,
    HALF_95,
    OUTSIDE_50,
    OUTSIDE_80,
    OUTSIDE_90,
    OUTSIDE_95,
)

INTERVAL_PERCENTS: Final = (50, 80, 90, 95)
"""Percentages of the central intervals that are calibrated."""
TAIL_SHARES: Final = (OUTSIDE_50, OUTSIDE_80, OUTSIDE_90, OUTSIDE_95)
"""Probability beyond each edge of these intervals."""
HALF_WIDTHS_SD: Final = (HALF_50, HALF_80, HALF_90, HALF_95)
INTERVAL_HALF_WIDTHS_SD = dict(zip(INTERVAL_PERCENTS, HALF_WIDTHS_SD, strict=True))
"""Half-widths for a normal distribution, in standard deviations, by percentage."""
GAIN_COUNT: Final = 2 * len(INTERVAL_PERCENTS)


class DistributionParams(NamedTuple):
    """Indices of the fields of a row."""

    place: int = 0  # m
    spread: int = 1  # sqrt(V)
    share: int = 2
    ratio: int = 3
    shift: int = 4
    gain: int = 5  # the first of them
    most: int = 5 + GAIN_COUNT  # largest value seen before
    kind: int = 6 + GAIN_COUNT  # code of the distribution, see kbnn.distributions.dispatch
    unit: int = 7 + GAIN_COUNT  # unit of a link (kbnn.distributions.transformed_normal)
    none: int = (
        8 + GAIN_COUNT
    )  # probability of exactly 0 of an amount (kbnn.distributions.transformed_normal)


PARAM: Final = DistributionParams()
PARAM_COUNT: Final = PARAM.none + 1


class RowScores(NamedTuple):
    """Scores of rows, each (n,)."""

    nll: FloatArray
    crps: FloatArray
    below: FloatArray  # PIT: predicted probability of less than the true value
    score: FloatArray  # its normal quantile: standard normal if forecasts are calibrated
    lower: FloatArray  # lower edge of the 90 % interval
    upper: FloatArray
    in_50: FloatArray
    in_80: FloatArray
    in_90: FloatArray
    in_95: FloatArray


class PredictiveDistribution(ABC):
    """Predictive distributions of n rows of one number, in the user's units.

    Parameters
    ----------
    rows
        Parameters (n, fields), see `DistributionParams`.
    """

    code: ClassVar[int]
    """Value of the field `kind`."""

    def __init__(self, rows: FloatArray) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, at: Any) -> PredictiveDistribution:
        """Select rows by a slice, a mask or indices."""
        return type(self)(self.rows[at])

    @staticmethod
    @abstractmethod
    def is_possible(y: FloatArray) -> BoolArray:
        """Return whether values are in the support."""

    def nearest_possible(self, y: FloatArray) -> FloatArray:
        """Return the largest value of the support up to y (n,), or its smallest value."""
        return y

    def in_support(self, y: FloatArray) -> BoolArray:
        """Return whether each row's value is in the support of its distribution."""
        return self.is_possible(y)

    def has_forecast(self) -> BoolArray:
        """Return whether each row holds a distribution: its spread is above 0."""
        spread = self.rows[:, PARAM.spread].copy()
        return np.isfinite(spread) & (spread > 0)

    @abstractmethod
    def mean_and_sd(self) -> tuple[FloatArray, FloatArray]:
        """Return mean and sd of the ordinary values, without outliers; also of (n, T, fields)."""

    def mean(self) -> FloatArray:
        """Return the means."""
        return self.mean_and_sd()[0]

    def sd(self) -> FloatArray:
        """Return the standard deviations."""
        return self.mean_and_sd()[1]

    @abstractmethod
    def cdf(self, y: FloatArray) -> FloatArray:
        """Return P(Y <= y) for values (..., n)."""

    @abstractmethod
    def log_density(self, y: FloatArray, zero_bin_width: float = 1.0) -> FloatArray:
        """Return the log density of values (n,); of a whole number, the log mass that rounds to it.

        The bin of 0 has the width `zero_bin_width`, so that target types for which 0 has a
        probability of its own can be compared with types for which it is one value of many.
        """

    @abstractmethod
    def quantile(self, share: float) -> FloatArray:
        """Return the smallest value y with P(Y <= y) >= share."""

    @abstractmethod
    def interval(self, share: float) -> tuple[FloatArray, FloatArray]:
        """Return the central interval of probability `share`, as calibrated."""

    @abstractmethod
    def interval_levels(self, outside: float) -> tuple[FloatArray, FloatArray]:
        """Return the probabilities below the two edges of a calibrated interval.

        Uncalibrated they are `outside` and 1 - `outside`.
        """

    @abstractmethod
    def crps(self, y: FloatArray) -> FloatArray:
        """Return the continuous ranked probability score of values (n,), in their units."""

    @abstractmethod
    def score_values(self, y: FloatArray) -> RowScores:
        """Score values (n,) against their predictive distributions."""

    @abstractmethod
    def sample(self, rng: np.random.Generator) -> FloatArray:
        """Draw one value of each row."""
