"""Moments of an activation f under a Gaussian pre-activation a ~ N(mu, var).

Each entry of `ACTIVATIONS` maps (mu, var) to E f(a), Var f(a) and Cov(a, f(a)). By Stein's identity
Cov(a, f(a)) / var = E f'(a), so the covariance is also the expected slope.

Exact: linear, relu, leaky_relu, piecewise max(alpha a, beta a), probit, step.
Approximate: sigmoid and tanh stand for Phi(lambda a), lambda = sqrt(pi/8), whose moments are then
exact. Worst error against the true function over mu in [-30, 30], var in [1e-12, 1e6], measured in
tests/test_moments.py:
    sigmoid  mean 0.018   sd 0.0095   covariance 0.0117 var (an error of the expected slope)
    tanh     mean 0.036   sd 0.0191   covariance 0.0465 var
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from kbnn.core import normal
from kbnn.core.normal import FloatArray

LAMBDA: float = float(np.sqrt(np.pi / 8.0))
"""The slope at which Phi(lambda a) is closest in shape to the logistic sigmoid."""

_NODES, _NODE_WEIGHTS = np.polynomial.legendre.leggauss(32)
_TAIL_EXPONENT = 40.0
_TINY = 1e-300


class Moments(NamedTuple):
    """E f(a), Var f(a) and Cov(a, f(a))."""

    mean: FloatArray
    var: FloatArray
    cov: FloatArray


Gaussian = Callable[[FloatArray, FloatArray], Moments]


def linear(mu: FloatArray, var: FloatArray) -> Moments:
    """f(a) = a."""
    return Moments(mu + 0.0, var + 0.0, var + 0.0)


def piecewise(alpha: float, beta: float) -> Gaussian:
    """f(a) = max(alpha a, beta a) = alpha a + (beta - alpha) relu(a), 0 <= alpha <= beta.

    With u = mu/s and M(u) = u Phi(u) + N(u) the rectified part has mean s M(u),
    covariance s^2 Phi(u) and variance s^2 (Phi(u) - M(u) M(-u)): no difference of large numbers.
    """
    rise = beta - alpha

    def moments(mu: FloatArray, var: FloatArray) -> Moments:
        s = np.sqrt(var)
        u = mu / np.maximum(s, _TINY)
        above = normal.cdf(u)
        excess, shortfall = normal.expected_excess(u), normal.expected_excess(-u)
        mean = alpha * mu + rise * np.where(s > 0.0, s * excess, np.maximum(mu, 0.0))
        cov = var * (alpha + rise * above)
        spread = np.where(np.abs(u) < 40.0, above - excess * shortfall, (u > 0.0) * 1.0)
        relu_var = var * np.maximum(spread, above * above)
        return Moments(
            mean, var * alpha**2 + 2.0 * alpha * rise * var * above + rise**2 * relu_var, cov
        )

    return moments


def scaled_probit(slope: float) -> Gaussian:
    """f(a) = Phi(slope a), exactly.

    With t^2 = 1 + slope^2 var and h = slope mu / t the mean is Phi(h), the covariance
    slope var N(h) / t. The variance Phi(h) - Phi(h)^2 - 2 T(h, c), c = 1/sqrt(1 + 2 slope^2 var),
    is a difference of Owen's T at 1 and c, hence the integral
        (1/pi) int_c^1 exp(-h^2 (1 + x^2)/2) / (1 + x^2) dx,
    which has no cancellation as var -> 0; 32 Gauss-Legendre nodes leave an error below 1e-12.
    """

    def moments(mu: FloatArray, var: FloatArray) -> Moments:
        k = slope * slope * var
        t = np.sqrt(1.0 + k)
        h = slope * mu / t
        return Moments(normal.cdf(h), _probit_var(h, k), slope * var * normal.pdf(h) / t)

    return moments


def _probit_var(h: FloatArray, k: FloatArray) -> FloatArray:
    root = np.sqrt(1.0 + 2.0 * k)
    lower = 1.0 / root
    width = 2.0 * k / (root * (1.0 + root))
    h2 = h * h
    # Far out the integrand falls by exp(-40) within a sliver above `lower`: integrate that alone.
    reach = 2.0 * _TAIL_EXPONENT / np.maximum(h2, _TINY)
    width = np.minimum(width, reach / (np.sqrt(lower * lower + reach) + lower))
    x = lower[..., None] + 0.5 * width[..., None] * (1.0 + _NODES)
    x2 = 1.0 + x * x
    integrand = np.exp(-0.5 * h2[..., None] * x2) / x2
    return np.asarray(0.5 * width / np.pi * (integrand @ _NODE_WEIGHTS))


def tanh(mu: FloatArray, var: FloatArray) -> Moments:
    """tanh(a) = 2 sigmoid(2 a) - 1 (the paper prints 2 sigmoid(a) + 1)."""
    inner = _SIGMOID(2.0 * mu, 4.0 * var)
    return Moments(2.0 * inner.mean - 1.0, 4.0 * inner.var, inner.cov)


def step(mu: FloatArray, var: FloatArray) -> Moments:
    """f(a) = 1 for a > 0, else 0: a Bernoulli with p = Phi(mu/s)."""
    s = np.sqrt(var)
    u = mu / np.maximum(s, _TINY)
    p = np.where(s > 0.0, normal.cdf(u), np.where(mu > 0.0, 1.0, 0.0))
    density = np.where(s > 0.0, normal.pdf(np.clip(u, -1e3, 1e3)), 0.0)
    # p (1 - p) from the two tails, so that neither is lost to rounding.
    return Moments(p, p * np.where(s > 0.0, normal.cdf(-u), 0.0), s * density)


_SIGMOID = scaled_probit(float(LAMBDA))

ACTIVATIONS: dict[str, Gaussian] = {
    "linear": linear,
    "relu": piecewise(0.0, 1.0),
    "leaky_relu": piecewise(0.01, 1.0),
    "sigmoid": _SIGMOID,
    "tanh": tanh,
    "probit": scaled_probit(1.0),
    "step": step,
}


def printed_sigmoid_var(mean: FloatArray, var_a: FloatArray, cov: FloatArray) -> FloatArray:
    """The paper's sigmoid variance mean (1 - mean) (1 - 1/t), raised to where it can be one.

    As printed it can fall below cov^2 / var_a, which no joint distribution allows.
    """
    t = np.sqrt(1.0 + LAMBDA**2 * var_a)
    return np.asarray(
        np.maximum(mean * (1.0 - mean) * (1.0 - 1.0 / t), cov * cov / np.maximum(var_a, _TINY))
    )
