"""The standard normal distribution: the one place that evaluates its cdf and density.

Everything is safe in the far tails: ratios are formed with the scaled complementary error function,
never as a quotient of two underflowing numbers. Commands need the cdf and its logarithm, and have
them from the compiled module: importing scipy.special would take them longer than anything else
they import.
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
"""Bytes that scipy.special needs to load (85 MB), and some more: asked for, and given back."""
_SQRT_2 = np.sqrt(2.0)
_INV_SQRT_2PI = 1.0 / np.sqrt(2.0 * np.pi)
_SQRT_2_OVER_PI = np.sqrt(2.0 / np.pi)
_SQRT_PI_OVER_2 = np.sqrt(np.pi / 2.0)


@cache
def load_scipy_special() -> ModuleType:
    # The matrix library that comes with it waits for ever for memory it does not get.
    mmap(-1, _SCIPY_LOAD_BYTES).close()
    return import_module("scipy.special")


def cdf(u: FloatArray) -> FloatArray:
    """Phi(u) = P(U <= u)."""
    if not _BUILT:
        return np.asarray(load_scipy_special().ndtr(u))
    out = np.empty(np.shape(u))
    normal_cdf(np.ravel(np.asarray(u, dtype=float)), out.reshape(-1))
    return out


@lru_cache(256)
def quantile(p: float) -> float:
    """The u with Phi(u) = p."""
    return NormalDist().inv_cdf(p)


def lower_quantiles(p: FloatArray) -> FloatArray:
    """The u with Phi(u) = p, for p up to a half, and one that stands for all farther away."""
    return np.where(p > TINY, load_scipy_special().ndtri(p), -FARTHEST_SCORE)


def log_cdf(u: FloatArray) -> FloatArray:
    """log Phi(u), finite for every finite u."""
    if not _BUILT:
        return np.asarray(load_scipy_special().log_ndtr(u))
    out = np.empty(np.shape(u))
    normal_log_cdf(np.ravel(np.asarray(u, dtype=float)), out.reshape(-1))
    return out


def pdf(u: FloatArray) -> FloatArray:
    """N(u) = exp(-u^2 / 2) / sqrt(2 pi)."""
    return np.asarray(_INV_SQRT_2PI * np.exp(-0.5 * u * u))


def hazard(u: FloatArray) -> FloatArray:
    """rho(u) = N(u) / Phi(u), about -u for u << 0."""
    return np.asarray(_SQRT_2_OVER_PI / load_scipy_special().erfcx(-u / _SQRT_2))


def expected_excess(u: FloatArray) -> FloatArray:
    """M(u) = E max(0, u + U) = u Phi(u) + N(u), without cancellation for u << 0."""
    below = np.minimum(u, 0.0)
    tail = pdf(below) * (
        1.0 + below * _SQRT_PI_OVER_2 * load_scipy_special().erfcx(-below / _SQRT_2)
    )
    return np.where(u > 0.0, u * cdf(u) + pdf(u), np.maximum(tail, 0.0))
