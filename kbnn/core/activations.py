"""Moments of an activation f under a Gaussian pre-activation a ~ N(mu, var).

Each entry of `ACTIVATIONS` has E f(a), Var f(a) and Cov(a, f(a)) as functions of (mu, var), and its
code in csrc/activation.h: a new activation is added there and here only. By Stein's identity Cov(a,
f(a)) / var = E f'(a), so the covariance is also the expected slope.

Most are exact. sigmoid and tanh are approximated by Phi(lambda a), lambda = sqrt(pi/8), whose
moments are exact: `errors` is the largest distance to those of the true function over mu in [-30,
30], var in [1e-12, 1e6], measured in tests/test_moments.py.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from kbnn.array_types import FloatArray
from kbnn.core import normal
from kbnn.core.constants import LAMBDA, NODE_WEIGHTS, NODES, TAIL_REACH, TINY

_NAME_SEPARATOR = re.compile(r",(?![^(]*\))")
_PIECEWISE = re.compile(r"max\(\s*([0-9.eE+-]+)\s*,\s*([0-9.eE+-]+)\s*\)")


class Moments(NamedTuple):
    """E f(a), Var f(a) and Cov(a, f(a))."""

    mean: FloatArray
    var: FloatArray
    cov: FloatArray


MomentFunction = Callable[[FloatArray, FloatArray], Moments]


class PrintedVar(NamedTuple):
    """The paper's Var f(a), and how many of them had to be raised to be variances."""

    var: FloatArray
    raised: int


PrintedVarFunction = Callable[[FloatArray, FloatArray, FloatArray], PrintedVar]


@dataclass(frozen=True)
class Activation:
    """One activation: the moments for the numpy reference, and the parameters for the kernel."""

    name: str
    code: int  # in the enum of csrc/activation.h
    function: Callable[[FloatArray], FloatArray]  # f itself
    moments: MomentFunction
    alpha: float = 0.0  # slope for a < 0; of a probit the slope in Phi(alpha a)
    beta: float = 0.0  # slope for a > 0
    printed_var: PrintedVarFunction | None = (
        None  # of (mean, var_a, cov), where the paper prints another
    )
    errors: tuple[float, float, float] = (0.0, 0.0, 0.0)  # of the mean, the sd, the slope cov/var


def linear_moments(mu: FloatArray, var: FloatArray) -> Moments:
    """Return the moments of f(a) = a."""
    return Moments(mu + 0.0, var + 0.0, var + 0.0)


def make_piecewise_moments(alpha: float, beta: float) -> MomentFunction:
    """Make the moments of f(a) = max(alpha a, beta a) = alpha a + (beta - alpha) relu(a).

    Here 0 <= alpha <= beta. With u = mu/s and M(u) = u Phi(u) + N(u) the rectified part has mean s
    M(u), covariance s^2 Phi(u) and variance s^2 (Phi(u) - M(u) M(-u)): no difference of large
    numbers.
    """
    rise = beta - alpha

    def piecewise_moments(mu: FloatArray, var: FloatArray) -> Moments:
        s = np.sqrt(var)
        u = mu / np.maximum(s, TINY)
        above = normal.cdf(u)
        excess, shortfall = normal.expected_excess(u), normal.expected_excess(-u)
        mean = alpha * mu + rise * np.where(s > 0.0, s * excess, np.maximum(mu, 0.0))
        cov = var * (alpha + rise * above)
        relu_var = var * np.maximum(above - excess * shortfall, above * above)
        return Moments(
            mean, var * alpha**2 + 2.0 * alpha * rise * var * above + rise**2 * relu_var, cov
        )

    return piecewise_moments


def make_probit_moments(slope: float) -> MomentFunction:
    """f(a) = Phi(slope a), exactly.

    With t^2 = 1 + slope^2 var and h = slope mu / t the mean is Phi(h), the covariance
    slope var N(h) / t. The variance Phi(h) - Phi(h)^2 - 2 T(h, c), c = 1/sqrt(1 + 2 slope^2 var),
    is a difference of Owen's T at 1 and c, hence the integral
        (1/pi) int_c^1 exp(-h^2 (1 + x^2)/2) / (1 + x^2) dx,
    which has no cancellation as var -> 0; 32 Gauss-Legendre nodes leave an error below 1e-12.
    """

    def probit_moments(mu: FloatArray, var: FloatArray) -> Moments:
        k = slope * slope * var
        t = np.sqrt(1.0 + k)
        h = slope * mu / t
        return Moments(normal.cdf(h), _probit_var(h, k), slope * var * normal.pdf(h) / t)

    return probit_moments


def _probit_var(h: FloatArray, k: FloatArray) -> FloatArray:
    root = np.sqrt(1.0 + 2.0 * k)
    lower = 1.0 / root
    width = 2.0 * k / (root * (1.0 + root))
    h2 = h * h
    # For large h the integrand falls by exp(-40) just above `lower`: integrate only that part.
    reach = TAIL_REACH / np.maximum(h2, TINY)
    width = np.minimum(width, reach / (np.sqrt(lower * lower + reach) + lower))
    x = lower[..., None] + 0.5 * width[..., None] * (1.0 + NODES)
    x2 = 1.0 + x * x
    integrand = np.exp(-0.5 * h2[..., None] * x2) / x2
    return np.asarray(0.5 * width / np.pi * (integrand @ NODE_WEIGHTS))


def tanh_moments(mu: FloatArray, var: FloatArray) -> Moments:
    """Return the moments of tanh(a) = 2 sigmoid(2 a) - 1 (the paper prints 2 sigmoid(a) + 1)."""
    inner = _SIGMOID(2.0 * mu, 4.0 * var)
    return Moments(2.0 * inner.mean - 1.0, 4.0 * inner.var, inner.cov)


def step_moments(mu: FloatArray, var: FloatArray) -> Moments:
    """Return the moments of f(a) = 1 for a > 0, otherwise 0: a Bernoulli with p = Phi(mu/s)."""
    s = np.sqrt(var)
    u = mu / np.maximum(s, TINY)
    p = np.where(s > 0.0, normal.cdf(u), np.where(mu > 0.0, 1.0, 0.0))
    density = np.where(s > 0.0, normal.pdf(np.clip(u, -1e3, 1e3)), 0.0)
    # p (1 - p) from the two tails, so that neither is lost to rounding.
    return Moments(p, p * np.where(s > 0.0, normal.cdf(-u), 0.0), s * density)


def printed_sigmoid_var(mean: FloatArray, var_a: FloatArray, cov: FloatArray) -> PrintedVar:
    """Return the paper's sigmoid variance mean (1 - mean) (1 - 1/t), raised where necessary.

    As printed it can fall below cov^2 / var_a, which no joint distribution allows.
    """
    t = np.sqrt(1.0 + LAMBDA**2 * var_a)
    var, least = mean * (1.0 - mean) * (1.0 - 1.0 / t), cov * cov / np.maximum(var_a, TINY)
    return PrintedVar(np.maximum(var, least), int(np.sum(var < least)))


def printed_tanh_var(mean: FloatArray, var_a: FloatArray, cov: FloatArray) -> PrintedVar:
    """Return the paper's variance of tanh(a) = 2 sigmoid(2 a) - 1, raised where necessary."""
    inner = printed_sigmoid_var(0.5 + 0.5 * mean, 4.0 * var_a, cov)
    return PrintedVar(4.0 * inner.var, inner.raised)


_SIGMOID = make_probit_moments(LAMBDA)
_CODE_PIECEWISE, _CODE_PROBIT, _CODE_TANH, _CODE_STEP = range(4)


def _make_piecewise(name: str, alpha: float, beta: float) -> Activation:
    def function(a: FloatArray) -> FloatArray:
        return np.maximum(alpha * a, beta * a)

    return Activation(
        name, _CODE_PIECEWISE, function, make_piecewise_moments(alpha, beta), alpha, beta
    )


_LIST = (
    Activation("linear", _CODE_PIECEWISE, np.positive, linear_moments, 1.0, 1.0),
    _make_piecewise("relu", 0.0, 1.0),
    _make_piecewise("leaky_relu", 0.01, 1.0),
    Activation(
        "sigmoid",
        _CODE_PROBIT,
        lambda a: 0.5 + 0.5 * np.tanh(0.5 * a),
        _SIGMOID,
        LAMBDA,
        printed_var=printed_sigmoid_var,
        errors=(0.018, 0.0095, 0.0117),
    ),
    Activation(
        "tanh",
        _CODE_TANH,
        np.tanh,
        tanh_moments,
        LAMBDA,
        printed_var=printed_tanh_var,
        errors=(0.036, 0.0191, 0.0465),
    ),
    Activation("probit", _CODE_PROBIT, normal.cdf, make_probit_moments(1.0), 1.0),
    Activation("step", _CODE_STEP, lambda a: np.where(a > 0.0, 1.0, 0.0), step_moments),
)
ACTIVATIONS: dict[str, Activation] = {activation.name: activation for activation in _LIST}


def find_activation(name: str) -> Activation:
    """Return an activation by name; `max(alpha,beta)` is the general piecewise-linear one."""
    if name in ACTIVATIONS:
        return ACTIVATIONS[name]
    match = _PIECEWISE.fullmatch(name)
    if match is None:
        known = ", ".join([*ACTIVATIONS, "max(alpha,beta)"])
        raise ValueError(f"unknown activation {name!r} (known: {known})")
    alpha, beta = float(match[1]), float(match[2])
    if not (0.0 <= alpha <= beta and alpha <= 1.0 and math.isfinite(beta)):
        raise ValueError(f"max(alpha,beta) needs 0 <= alpha <= 1 and alpha <= beta, got {name!r}")
    return _make_piecewise(name, alpha, beta)


def split_names(names: str) -> list[str]:
    """Split a text at commas into names."""
    return [name.strip() for name in _NAME_SEPARATOR.split(names)]


def parse_activations(names: str, layers: int) -> tuple[Activation, ...]:
    """Return the activation of each hidden layer: one name for all, or one per layer."""
    found = tuple(find_activation(name) for name in split_names(names))
    if len(found) == 1:
        return found * layers
    if len(found) != layers:
        raise ValueError(f"activation {names!r} is for {len(found)} hidden layers, not {layers}")
    return found
