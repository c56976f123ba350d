"""The Gaussian predictive distribution N(mean, sd^2), row by row."""

from __future__ import annotations

import math
from functools import cache
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from kbnn.core import normal
from kbnn.core.normal import FloatArray

LOG_2PI_2 = 0.5 * math.log(2 * math.pi)
INV_SQRT_PI = 1 / math.sqrt(math.pi)


@cache
def half_width(share: float) -> float:
    """Standard deviations from the mean to the edge of the central interval of that share."""
    return NormalDist().inv_cdf(0.5 + share / 2.0)


Z = {level: half_width(level / 100) for level in (50, 80, 90, 95)}
"""Half-width of the usual central intervals, by percentage."""


def nll(z: FloatArray, sd: FloatArray) -> FloatArray:
    """-log N(y; mean, sd^2) = log(sd) + z^2 / 2 + log(2 pi) / 2, in nats; z = (y - mean) / sd."""
    return np.log(sd) + 0.5 * z * z + LOG_2PI_2


def crps(z: FloatArray, sd: FloatArray, below: FloatArray) -> FloatArray:
    """Integral over t of (Phi((t - mean) / sd) - 1[t >= y])^2, in the units of y; below: Phi(z)."""
    return sd * (z * (2 * below - 1) + 2 * normal.pdf(z) - INV_SQRT_PI)


class Gaussian(NamedTuple):
    """Forecasts of one target as distributions."""

    mean: FloatArray
    sd: FloatArray

    def quantile(self, share: float) -> FloatArray:
        """The value that so large a share of the probability lies below."""
        return np.asarray(self.mean + NormalDist().inv_cdf(share) * self.sd)

    def interval(self, share: float) -> tuple[FloatArray, FloatArray]:
        """The central interval of that probability."""
        half = half_width(share) * self.sd
        return np.asarray(self.mean - half), np.asarray(self.mean + half)

    def cdf(self, y: FloatArray) -> FloatArray:
        """P(Y <= y)."""
        return normal.cdf((y - self.mean) / self.sd)

    def log_density(self, y: FloatArray) -> FloatArray:
        """log N(y; mean, sd^2)."""
        return -nll((y - self.mean) / self.sd, self.sd)

    def crps(self, y: FloatArray) -> FloatArray:
        """Continuous ranked probability score, in the units of y."""
        z = (y - self.mean) / self.sd
        return crps(z, self.sd, normal.cdf(z))
