"""A network of one neuron against Bayes' rule computed by brute force in its four weights.

The filter replaces the network by its expected linearisation over the prior. Stated error, in
shares of what the label changes: means within 3 %, falling with the square of the prior's spread;
variances within 25 %, because the residual times the network's curvature is left out (as in the
method of Gauss and Newton), and within 3 % where the label is as predicted.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy import special

from kbnn import init
from kbnn.array_types import FloatArray
from kbnn.core import kernel
from kbnn.core.layout import layout_of
from tests.networks import plain

NOISE = 0.05


def exact(mean: FloatArray, spread: float, x: float, y: float) -> tuple[FloatArray, FloatArray]:
    """Posterior means and variances of (b1, w1, b2, w2) by Gauss-Hermite quadrature."""
    t, weight = np.polynomial.hermite_e.hermegauss(24)
    grid = np.meshgrid(t, t, t, t, indexing="ij")
    mass = np.prod(np.meshgrid(weight, weight, weight, weight, indexing="ij"), axis=0)
    b1, w1, b2, w2 = (m + spread * g for m, g in zip(mean, grid, strict=True))
    f = b2 + w2 * special.ndtr(b1 + w1 * x)
    mass = mass * np.exp(-0.5 * (y - f) ** 2 / NOISE)
    mass /= np.sum(mass)
    first = np.array([np.sum(mass * v) for v in (b1, w1, b2, w2)])
    second = np.array([np.sum(mass * v * v) for v in (b1, w1, b2, w2)])
    return first, second - first**2


def filtered(
    mean: FloatArray, spread: float, x: float, y: float, covariance: str
) -> tuple[FloatArray, FloatArray]:
    config = plain(
        1,
        hidden=(1,),
        activation="probit",
        covariance=covariance,
        noise=NOISE,
        activation_spread=1.0,
    )
    layout = layout_of(config)
    cov = layout.pack_blocks([spread**2 * np.eye(dim) for dim in layout.block_dims])
    start = init(config)._replace(mean=mean.copy(), cov=cov)
    state, _ = kernel.learn_arrays(start, np.array([[x]]), np.array([[y]]))
    var = np.empty(4)
    for order, block in zip(layout.block_positions, layout.unpack_blocks(state.cov), strict=True):
        var[order] = np.diag(block)
    return state.mean, var


MEAN = np.array([0.2, 0.7, -0.1, 0.9])
SURPRISING = ((0.8, 1.2), (-0.5, -0.2), (1.5, 0.1))
EXPECTED = tuple((x, -0.1 + 0.9 * float(special.ndtr(0.2 + 0.7 * x))) for x in (0.8, -0.5, 1.5))


def error(
    spread: float, covariance: str, labels: tuple[tuple[float, float], ...]
) -> tuple[float, float]:
    """Errors of means and variances as shares of the changes that the label makes."""
    worst = np.zeros(2)
    for x, y in labels:
        wanted, got = exact(MEAN, spread, x, y), filtered(MEAN, spread, x, y, covariance)
        moved = np.linalg.norm(wanted[0] - MEAN), np.linalg.norm(wanted[1] - spread**2)
        worst = np.maximum(worst, [np.linalg.norm(got[k] - wanted[k]) / moved[k] for k in (0, 1)])
    return float(worst[0]), float(worst[1])


@pytest.mark.parametrize("covariance", ["neuron", "full"])
def test_means_approach_bayes_rule_as_the_prior_narrows(covariance: str) -> None:
    wide, narrow = error(0.2, covariance, SURPRISING), error(0.05, covariance, SURPRISING)
    assert wide[0] <= 0.03
    assert narrow[0] <= wide[0] / 5.0


@pytest.mark.parametrize("covariance", ["neuron", "full"])
def test_variances_leave_out_residual_times_curvature_alone(covariance: str) -> None:
    assert error(0.1, covariance, SURPRISING)[1] <= 0.25
    assert error(0.1, covariance, EXPECTED)[1] <= 0.03


def test_prediction_is_the_average_over_the_prior() -> None:
    mean, spread, x = MEAN, 0.3, 0.8
    t, weight = np.polynomial.hermite_e.hermegauss(40)
    a = mean[0] + mean[1] * x + spread * np.sqrt(1.0 + x * x) * t
    wanted = mean[2] + mean[3] * float(weight @ special.ndtr(a)) / np.sqrt(2.0 * np.pi)
    config = plain(1, hidden=(1,), activation="probit", covariance="neuron", activation_spread=1.0)
    layout = layout_of(config)
    cov = layout.pack_blocks([spread**2 * np.eye(dim) for dim in layout.block_dims])
    got = kernel.predict_arrays(init(config)._replace(mean=mean, cov=cov), np.array([[x]]))
    assert float(got.mean[0, 0]) == pytest.approx(wanted, abs=1e-12)
