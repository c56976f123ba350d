"""Every activation's moments against quadrature, and what no joint distribution can break."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special

from kbnn.array_types import FloatArray
from kbnn.core.activations import (
    ACTIVATIONS,
    Moments,
    find_activation,
    printed_sigmoid_var,
    tanh_moments,
)
from tests.gauss import moments

MEANS = np.concatenate([np.linspace(-30.0, 30.0, 25), [-7.3, -1.0, -1e-3, 1e-7, 0.2, 1.0, 3.1]])
VARIANCES = np.logspace(-12.0, 6.0, 19)
GENERAL = "max(0.1,2)"
ALL = [*ACTIVATIONS, GENERAL]
EXACT = [name for name in ALL if not any(find_activation(name).errors)]
APPROXIMATE = [name for name in ALL if any(find_activation(name).errors)]


def change(name: str, mu: float, d: FloatArray) -> FloatArray:
    """f(mu + d) - f(mu), without cancellation where f is straight."""
    activation = find_activation(name)
    alpha, beta = activation.alpha, activation.beta
    if beta:
        here, other = (beta, alpha) if mu > 0.0 else (alpha, beta)
        crossed = (mu + d > 0.0) != (mu > 0.0)
        return np.asarray(np.where(crossed, other * (mu + d) - here * mu, here * d))
    return np.asarray(value(name, mu + d) - value(name, np.array(mu)))


def value(name: str, a: FloatArray) -> FloatArray:
    """f(a)."""
    return np.asarray(find_activation(name).function(a))


FAMILIAR = {
    "linear": (-2.0, 0.0, 2.0),
    "relu": (0.0, 0.0, 2.0),
    "leaky_relu": (-0.02, 0.0, 2.0),
    "max(0.1,2)": (-0.2, 0.0, 4.0),
    "sigmoid": (1.0 / (1.0 + np.e**2), 0.5, 1.0 / (1.0 + np.e**-2)),
    "tanh": (-np.tanh(2.0), 0.0, np.tanh(2.0)),
    "probit": (special.ndtr(-2.0), 0.5, special.ndtr(2.0)),
    "step": (0.0, 0.0, 1.0),
}


@pytest.mark.parametrize("name", FAMILIAR)
def test_familiar_functions_are_what_they_are_called(name: str) -> None:
    assert value(name, np.array([-2.0, 0.0, 2.0])) == pytest.approx(FAMILIAR[name])


def computed(name: str, mu: float, var: float) -> tuple[float, float, float]:
    with np.errstate(over="ignore", under="ignore"):  # as the rows run
        out = find_activation(name).moments(np.array([mu]), np.array([var]))
    return float(out.mean[0]), float(out.var[0]), float(out.cov[0])


def expected(name: str, mu: float, var: float) -> tuple[float, float, float]:
    return moments(lambda at, d: change(name, at, d), float(value(name, np.array(mu))), mu, var)


@pytest.mark.parametrize("name", EXACT)
def test_exact_moments_agree_with_quadrature(name: str) -> None:
    """Within 1e-9 of sqrt(mu^2 + var) for means and of var for variances and covariances.

    A step's output does not shrink with its input: its own sizes 1, 1 and sqrt(var) are the measure
    where they are larger.
    """
    for mu in MEANS:
        for var in VARIANCES:
            got, wanted = computed(name, mu, var), expected(name, mu, var)
            sizes = np.array([np.hypot(mu, np.sqrt(var)), var, var])
            if name == "step":
                sizes = np.maximum(sizes, [1.0, 1.0, np.sqrt(var)])
            assert np.all(np.abs(np.subtract(got, wanted)) <= 1e-9 * sizes), (mu, var)


@pytest.mark.parametrize("name", APPROXIMATE)
def test_approximations_err_as_much_as_the_table_says(name: str) -> None:
    stated = find_activation(name).errors
    worst = np.zeros(3)
    for mu in np.concatenate([np.linspace(0.0, 6.0, 121), np.linspace(7.0, 30.0, 24)]):
        for var in np.logspace(-12.0, 6.0, 37)[:: 1 if mu < 4.0 else 3]:
            got, wanted = computed(name, mu, var), expected(name, mu, var)
            errors = [
                abs(got[0] - wanted[0]),
                abs(np.sqrt(got[1]) - np.sqrt(max(wanted[1], 0.0))),
                abs(got[2] - wanted[2]) / var,
            ]
            worst = np.maximum(worst, errors)
    assert np.all(worst <= stated)
    assert np.all(worst >= 0.9 * np.array(stated))


@given(name=st.sampled_from(ALL), mu=st.floats(-30.0, 30.0), log_var=st.floats(-12.0, 6.0))
def test_variance_and_covariance_are_those_of_a_joint_distribution(
    name: str, mu: float, log_var: float
) -> None:
    var_a = 10.0**log_var
    _, var_z, cov = computed(name, mu, var_a)
    assert var_z >= 0.0
    assert cov >= 0.0
    assert cov * cov <= var_a * var_z * (1.0 + 1e-9) + 1e-300


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("mu", [-30.0, -1.0, 1e-3, 2.0, 30.0])
def test_a_known_input_gives_a_known_output(name: str, mu: float) -> None:
    for var in (0.0, 1e-300):
        mean, var_z, cov = computed(name, mu, var)
        reach = find_activation(name).errors[0]
        assert mean == pytest.approx(float(value(name, np.array(mu))), rel=1e-6, abs=reach)
        assert (var_z, cov) == pytest.approx((0.0, 0.0), abs=1e-280)


def test_a_distant_kink_leaves_the_variance_whole() -> None:
    """The naive E f^2 - (E f)^2 is off by most of its value here."""
    _, var_z, cov = computed("relu", 100.0, 1e-12)
    assert (var_z, cov) == pytest.approx((1e-12, 1e-12), rel=1e-12)


def test_the_printed_sigmoid_variance_breaks_cauchy_schwarz_unless_raised() -> None:
    mu, var = np.meshgrid(np.linspace(-6.0, 6.0, 49), np.logspace(-3.0, 3.0, 25))
    out: Moments = ACTIVATIONS["sigmoid"].moments(mu, var)
    t = np.sqrt(1.0 + np.pi / 8.0 * var)
    printed = out.mean * (1.0 - out.mean) * (1.0 - 1.0 / t)
    assert np.max(out.cov**2 / (var * printed)) > 1.2
    raised, count = printed_sigmoid_var(out.mean, var, out.cov)
    assert count == np.sum(out.cov**2 / var > printed) > 100
    assert np.all(out.cov**2 <= var * raised * (1.0 + 1e-12))
    assert np.all(raised >= printed)
    assert np.all(out.cov**2 <= var * out.var * (1.0 + 1e-12))


def test_the_printed_tanh_variance_is_that_of_the_sigmoid_it_is_made_of() -> None:
    mu, var = np.meshgrid(np.linspace(-3.0, 3.0, 25), np.logspace(-3.0, 2.0, 11))
    out, inner = tanh_moments(mu, var), ACTIVATIONS["sigmoid"].moments(2.0 * mu, 4.0 * var)
    printed = ACTIVATIONS["tanh"].printed_var
    assert printed is not None
    wanted = printed_sigmoid_var(inner.mean, 4.0 * var, inner.cov)
    got = printed(out.mean, var, out.cov)
    assert np.allclose(got.var, 4.0 * wanted.var, rtol=1e-12, atol=1e-15)
    assert got.raised == wanted.raised > 0
    assert np.all(out.cov**2 <= var * got.var * (1.0 + 1e-12))
