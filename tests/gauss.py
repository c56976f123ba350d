"""Expectations under a Gaussian by brute force: composite Gauss-Legendre, split where f bends."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from kbnn.array_types import FloatArray

Function = Callable[[FloatArray], FloatArray]

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(20)
_REACH = 12.0
_RINGS = np.array([0.0, 0.5, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0, 48.0])


def rule(center: float, width: float) -> tuple[FloatArray, FloatArray]:
    """Nodes t and weights for E g(t), t ~ N(0, 1), with g changing within `width` of `center`."""
    edges = np.concatenate(
        [np.arange(-_REACH, _REACH + 0.25, 0.5), center + width * _RINGS, center - width * _RINGS]
    )
    edges = np.unique(np.clip(edges, -_REACH, _REACH))
    half = 0.5 * np.diff(edges)[:, None]
    t = (edges[:-1, None] + half * (1.0 + _NODES)).ravel()
    weights = (half * _WEIGHTS).ravel() * np.exp(-0.5 * t * t) / np.sqrt(2.0 * np.pi)
    return t, weights


def moments(
    change: Callable[[float, FloatArray], FloatArray], at: float, mu: float, var: float
) -> tuple[float, float, float]:
    """(E f, Var f, Cov(a, f)) for a ~ N(mu, var); change(mu, d) is f(mu + d) - f(mu), at is f(mu).

    Working with the change keeps a small variance from drowning in f(mu).
    """
    s = np.sqrt(var)
    t, weights = rule(-mu / s, 1.0 / s)
    delta = change(mu, s * t)
    shift = float(weights @ delta)
    spread = float(weights @ (delta - shift) ** 2)
    return at + shift, spread, s * float(weights @ (t * delta))
