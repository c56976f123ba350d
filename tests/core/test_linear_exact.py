"""Without a hidden layer the filter is Bayesian linear (or probit) regression, exactly."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import special

from kbnn import Config, State, init, learn
from kbnn.array_types import FloatArray
from kbnn.core import kernel, reference
from kbnn.core.layout import layout_of
from tests.networks import plain

STRUCTURES = ["paper", "neuron", "group", "full"]
NOISE = 0.09


def dense(state: State) -> FloatArray:
    """The covariance of all weights in the order of the mean vector."""
    layout = layout_of(state.config)
    cov = np.zeros((len(state.mean), len(state.mean)))
    for order, block in zip(layout.block_positions, layout.unpack_blocks(state.cov), strict=True):
        cov[np.ix_(order, order)] = block
    return cov


@pytest.mark.parametrize("compiled", [False, True], ids=["twin", "engine"])
@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize("covariance", STRUCTURES)
def test_every_prefix_is_the_batch_posterior(covariance: str, outputs: int, compiled: bool) -> None:
    rng = np.random.default_rng(outputs)
    config = plain(4, hidden=(), outputs=outputs, covariance=covariance, noise=NOISE)
    x = rng.standard_normal((60, 4))
    y = x @ rng.standard_normal((4, outputs)) + 0.3 * rng.standard_normal((60, outputs))
    features = np.column_stack([np.ones(60), x])
    start = state = init(config, 3)
    for n in range(60):
        row = slice(n, n + 1)
        step = kernel.learn_arrays if compiled else reference.learn_arrays
        state, _ = step(state, x[row], y[row])
        cov = np.linalg.inv(
            np.diag(1.0 / start.prior_var[:5]) + features[: n + 1].T @ features[: n + 1] / NOISE
        )
        got = dense(state)
        for o in range(outputs):
            at = slice(5 * o, 5 * o + 5)
            prior = start.prior_mean[at] / start.prior_var[at]
            mean = cov @ (prior + features[: n + 1].T @ y[: n + 1, o] / NOISE)
            assert np.max(np.abs(state.mean[at] - mean)) <= 1e-8
            assert np.max(np.abs(got[at, at] - cov)) <= 1e-8
            got[at, at] = 0.0
        assert np.max(np.abs(got)) <= 1e-12  # separate outputs stay independent


def test_weights_count_rows_and_missing_targets_are_skipped() -> None:
    config = plain(2, hidden=(), outputs=2, covariance="full", noise=NOISE)
    rng = np.random.default_rng(1)
    x, y = rng.standard_normal((30, 2)), rng.standard_normal((30, 2))
    y[rng.random(y.shape) < 0.3] = np.nan
    y[np.all(np.isnan(y), axis=1), 0] = 0.0
    weight = rng.integers(1, 4, 30).astype(float)
    once, _ = kernel.learn_arrays(init(config), x, y, weight=weight)
    times = np.repeat(np.arange(30), weight.astype(int))
    repeated, _ = kernel.learn_arrays(init(config), x[times], y[times])
    assert np.allclose(once.mean, repeated.mean, atol=1e-10)
    assert np.allclose(once.cov, repeated.cov, atol=1e-10)


def moments_by_quadrature(
    mean: FloatArray, cov: FloatArray, direction: FloatArray, sign: float
) -> tuple[FloatArray, FloatArray]:
    """Mean and covariance of N(mean, cov) times Phi(sign lambda d'w), on a two-dimensional grid."""
    t = np.linspace(-9.0, 9.0, 361)
    root = np.linalg.cholesky(cov)
    one, two = np.meshgrid(t, t, indexing="ij")
    w = mean + np.stack([one, two], axis=-1) @ root.T
    likelihood = special.ndtr(sign * np.sqrt(np.pi / 8.0) * (w @ direction))
    mass = np.exp(-0.5 * (one**2 + two**2)) * likelihood
    mass /= np.sum(mass)
    first = np.einsum("ij,ijk->k", mass, w)
    return first, np.einsum("ij,ijk,ijl->kl", mass, w - first, w - first)


@pytest.mark.parametrize("covariance", ["neuron", "full"])
def test_two_classes_match_the_moments_of_the_exact_posterior(covariance: str) -> None:
    config = plain(1, hidden=(), covariance=covariance, observation="bernoulli")
    state = init(config, 2)
    rng = np.random.default_rng(8)
    for x in rng.standard_normal(12):
        label = float(rng.random() < 0.4)
        wanted = moments_by_quadrature(state.mean, dense(state), np.array([1.0, x]), 2 * label - 1)
        state, _ = kernel.learn_arrays(state, np.array([[x]]), np.array([[label]]))
        assert np.max(np.abs(state.mean - wanted[0])) <= 1e-8
        assert np.max(np.abs(dense(state) - wanted[1])) <= 1e-8


def test_the_predictive_variance_is_that_of_the_posterior() -> None:
    config = plain(3, hidden=(), covariance="full", noise=NOISE)
    rng = np.random.default_rng(4)
    x = rng.standard_normal((40, 3))
    state, _ = learn(init(config), x, x[:, 0])
    features = np.column_stack([np.ones(40), x])
    wanted = np.einsum("ni,ij,nj->n", features, dense(state), features)
    got = kernel.predict_arrays(state, x)
    assert np.allclose(got.function_var[:, 0], wanted, rtol=1e-10)
    assert np.all(got.noise_var == NOISE)


def test_no_input_at_all_learns_a_mean() -> None:
    config = Config(inputs=0, hidden=(), noise=1.0, robust=False, drift=False)
    start = init(config)
    state, _ = kernel.learn_arrays(start, np.zeros((50, 0)), np.full((50, 1), 2.0))
    assert state.mean[0] == pytest.approx((start.mean[0] + 100.0) / 51.0)
