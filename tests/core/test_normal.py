"""The normal distribution's functions against integrals that converge in both tails.

With t = -u >= 0: Phi(u)/N(u) = int_0^inf exp(-t x - x^2/2) dx and
M(u)/N(u) = int_0^inf x exp(-t x - x^2/2) dx.
"""

from __future__ import annotations

import numpy as np
import pytest

from kbnn.core import normal

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(40)
TAIL = [0.0, 1e-6, 0.3, 1.0, 2.7, 5.0, 8.0, 15.0, 30.0, 37.0]


def tail_integral(t: float, power: int) -> float:
    """int_0^inf x^power exp(-t x - x^2/2) dx by panels that follow the decay."""
    scale = 1.0 / (1.0 + t)
    edges = scale * np.linspace(0.0, 60.0, 121)
    half = 0.5 * np.diff(edges)[:, None]
    x = edges[:-1, None] + half * (1.0 + _NODES)
    return float(np.sum(half * _WEIGHTS * x**power * np.exp(-t * x - 0.5 * x * x)))


@pytest.mark.parametrize("t", TAIL)
def test_hazard_is_the_inverse_of_the_tail_integral(t: float) -> None:
    got = float(normal.hazard(np.array(-t)))
    assert got == pytest.approx(1.0 / tail_integral(t, 0), rel=1e-13)


@pytest.mark.parametrize("t", TAIL)
def test_cdf_and_its_logarithm_agree_with_the_tail_integral(t: float) -> None:
    log_density = -0.5 * t * t - 0.5 * np.log(2.0 * np.pi)
    expected = np.log(tail_integral(t, 0)) + log_density
    assert float(normal.log_cdf(np.array(-t))) == pytest.approx(expected, rel=1e-13)
    assert float(normal.cdf(np.array(-t))) == pytest.approx(np.exp(expected), rel=1e-11)
    assert float(normal.cdf(np.array(t))) == pytest.approx(1.0 - np.exp(expected), rel=1e-15)


@pytest.mark.parametrize("t", TAIL)
def test_expected_excess_keeps_its_relative_accuracy_far_out(t: float) -> None:
    below = float(normal.pdf(np.array(t))) * tail_integral(t, 1)
    got = float(normal.expected_excess(np.array(-t)))
    # 1 - t times a ratio near 1/t: the difference is of order 1/t^2.
    assert got == pytest.approx(below, rel=1e-14 + 1e-15 * t**2)
    assert float(normal.expected_excess(np.array(t))) == pytest.approx(t + below, rel=1e-15)


@pytest.mark.parametrize("u", [-1e8, -1e3, 1e3, 1e8])
def test_nothing_overflows_or_is_lost_beyond_the_tails(u: float) -> None:
    at = np.array(u)
    assert np.isfinite(normal.log_cdf(at))
    assert float(normal.hazard(at)) == pytest.approx(max(-u, 0.0), rel=1e-5, abs=1e-300)
    assert float(normal.expected_excess(at)) == pytest.approx(max(u, 0.0))
