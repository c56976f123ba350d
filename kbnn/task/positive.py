"""A positive target: its logarithm is what the network learns."""

from __future__ import annotations

import numpy as np

from kbnn.core.mixture import STATED
from kbnn.core.normal import FloatArray
from kbnn.task.base import Following
from kbnn.task.logged import powers
from kbnn.task.real import Real
from kbnn.task.stated import POSITIVE

MOST_VARIANCE = 40.0
"""Of a logarithm: the mean of what is wider says nothing."""


class Positive(Real):
    """Numbers above 0 whose size varies by factors: prices, durations, concentrations."""

    name = "positive"

    @property
    def noisy(self) -> bool:
        """Of the logarithm, and not in units that could be given."""
        return False

    def linked(self, y: FloatArray) -> FloatArray:
        """The logarithm; what has none is no label."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(np.isnan(y), np.nan, np.where(y > 0.0, np.log(y), np.inf))

    def stated(
        self, mean: FloatArray, sd: FloatArray, known: FloatArray, following: Following | None
    ) -> FloatArray:
        """The mixture of the logarithm."""
        told = super().stated(mean, sd, known, following)
        told[..., STATED.kind] = POSITIVE
        return told

    def early_stated(self, mean: FloatArray, sd: FloatArray) -> FloatArray:
        """A log-normal."""
        told = super().early_stated(mean, sd)
        told[..., STATED.kind] = POSITIVE
        return told

    def shown(self, told: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Of the ordinary values; no mean is above the largest value seen."""
        var = np.minimum(told[..., STATED.spread] ** 2, MOST_VARIANCE)
        most = told[..., STATED.most]
        mean = told[..., STATED.place] + 0.5 * var
        mean = powers(np.where(np.isfinite(most), np.minimum(mean, most), mean))
        return mean, np.sqrt(np.expm1(var)) * mean
