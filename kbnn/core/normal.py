"""The standard normal distribution: its cdf, density, quantiles and ratios.

Everything is accurate in the far tails: ratios use the scaled complementary error function, never a
quotient of two underflowing numbers. The cdf and its logarithm come from the compiled module if it
was built, because importing scipy.special would dominate the start-up time of commands.
"""

from __future__ import annotations

from functools import cache, lru_cache
from importlib import import_module
from mmap import mmap
from statistics import NormalDist
from types import ModuleType

import numpy as np

from kbnn.array_types import FloatArray
from kbnn.core.constants import FARTHEST_SCORE, TINY

try:
    from kbnn.core._kernel import normal_cdf, normal_log_cdf

    _BUILT = True
except ImportError:  # built without a compiler
    _BUILT = False


_SCIPY_LOAD_BYTES = 128 << 20
"""Memory that scipy.special needs to load (85 MB), with a margin; allocated and freed as a test."""
_SQRT_2 = np.sqrt(2.0)
_INV_SQRT_2PI = 1.0 / np.sqrt(2.0 * np.pi)
_SQRT_2_OVER_PI = np.sqrt(2.0 / np.pi)
_SQRT_PI_OVER_2 = np.sqrt(np.pi / 2.0)


@cache
def load_scipy_special() -> ModuleType:
    # OpenBLAS, which scipy loads, hangs if it cannot allocate memory: fail here instead.
    mmap(-1, _SCIPY_LOAD_BYTES).close()
    return import_module("scipy.special")


def cdf(u: FloatArray) -> FloatArray:
    """Return Phi(u) = P(U <= u)."""
    if not _BUILT:
        return np.asarray(load_scipy_special().ndtr(u))
    out = np.empty(np.shape(u))
    normal_cdf(np.ravel(np.asarray(u, dtype=float)), out.reshape(-1))
    return out


@lru_cache(256)
def quantile(p: float) -> float:
    """Return the u with Phi(u) = p."""
    return NormalDist().inv_cdf(p)


def lower_quantiles(p: FloatArray) -> FloatArray:
    """Return the u with Phi(u) = p for p up to 1/2; -FARTHEST_SCORE where p underflows."""
    return np.where(p > TINY, load_scipy_special().ndtri(p), -FARTHEST_SCORE)


def log_cdf(u: FloatArray) -> FloatArray:
    """Return log Phi(u), finite for every finite u."""
    if not _BUILT:
        return np.asarray(load_scipy_special().log_ndtr(u))
    out = np.empty(np.shape(u))
    normal_log_cdf(np.ravel(np.asarray(u, dtype=float)), out.reshape(-1))
    return out


def pdf(u: FloatArray) -> FloatArray:
    """Return N(u) = exp(-u^2 / 2) / sqrt(2 pi)."""
    return np.asarray(_INV_SQRT_2PI * np.exp(-0.5 * u * u))


def hazard(u: FloatArray) -> FloatArray:
    """Return rho(u) = N(u) / Phi(u), about -u for u << 0."""
    return np.asarray(_SQRT_2_OVER_PI / load_scipy_special().erfcx(-u / _SQRT_2))


def expected_excess(u: FloatArray) -> FloatArray:
    """Return M(u) = E max(0, u + U) = u Phi(u) + N(u), without cancellation for u << 0."""
    below = np.minimum(u, 0.0)
    tail = pdf(below) * (
        1.0 + below * _SQRT_PI_OVER_2 * load_scipy_special().erfcx(-below / _SQRT_2)
    )
    return np.where(u > 0.0, u * cdf(u) + pdf(u), np.maximum(tail, 0.0))
