"""The standard normal distribution: the one place that evaluates its cdf and density.

Everything is safe in the far tails: ratios are formed with the scaled complementary error function,
never as a quotient of two underflowing numbers.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import special

FloatArray = NDArray[np.float64]

_SQRT_2 = np.sqrt(2.0)
_INV_SQRT_2PI = 1.0 / np.sqrt(2.0 * np.pi)
_SQRT_2_OVER_PI = np.sqrt(2.0 / np.pi)
_SQRT_PI_OVER_2 = np.sqrt(np.pi / 2.0)


def cdf(u: FloatArray) -> FloatArray:
    """Phi(u) = P(U <= u)."""
    return np.asarray(special.ndtr(u))


def log_cdf(u: FloatArray) -> FloatArray:
    """log Phi(u), finite for every finite u."""
    return np.asarray(special.log_ndtr(u))


def pdf(u: FloatArray) -> FloatArray:
    """N(u) = exp(-u^2 / 2) / sqrt(2 pi)."""
    return np.asarray(_INV_SQRT_2PI * np.exp(-0.5 * u * u))


def hazard(u: FloatArray) -> FloatArray:
    """rho(u) = N(u) / Phi(u), about -u for u << 0."""
    return np.asarray(_SQRT_2_OVER_PI / special.erfcx(-u / _SQRT_2))


def expected_excess(u: FloatArray) -> FloatArray:
    """M(u) = E max(0, u + U) = u Phi(u) + N(u), without cancellation for u << 0."""
    below = np.minimum(u, 0.0)
    tail = pdf(below) * (1.0 + below * _SQRT_PI_OVER_2 * special.erfcx(-below / _SQRT_2))
    return np.where(u > 0.0, u * cdf(u) + pdf(u), np.maximum(tail, 0.0))
