"""First-layer moments, and the moments of a whole network, against sampling."""

from __future__ import annotations

import numpy as np
import pytest

from kbnn.array_types import FloatArray
from kbnn.core import block_filter, paper_smoother
from kbnn.core.belief import open_belief
from kbnn.core.input_moments import InputMoments
from kbnn.core.layout import layout_of
from tests.networks import plain, spread_state

SAMPLES = 400_000


def sampled_first_layer(
    covariance: str, uncertain: bool
) -> tuple[FloatArray, InputMoments, FloatArray]:
    """Pre-activations (samples, units) of a first layer with correlated weights."""
    config = plain(3, hidden=(2,), covariance=covariance, activation_spread=1.0)
    state = spread_state(config, 5)
    rng = np.random.default_rng(1)
    layout = layout_of(config)
    weights = np.empty((SAMPLES, len(state.mean)))
    for order, block in zip(layout.block_positions, layout.unpack_blocks(state.cov), strict=True):
        noise = rng.standard_normal((SAMPLES, len(order))) @ np.linalg.cholesky(block).T
        weights[:, order] = state.mean[order] + noise
    mean = np.array([0.5, -1.2, 2.0])
    var = np.array([0.3, 0.0, 0.8]) if uncertain else np.zeros(3)
    x = mean + np.sqrt(var) * rng.standard_normal((SAMPLES, 3))
    first = weights[:, :8].reshape(SAMPLES, 2, 4)
    a = np.einsum("sui,si->su", first, np.column_stack([np.ones(SAMPLES), x]))
    return a, InputMoments(mean, np.diag(var) if uncertain else None), weights


@pytest.mark.parametrize("uncertain", [False, True])
@pytest.mark.parametrize("covariance", ["paper", "group", "full"])
def test_first_layer_moments_agree_with_sampling(covariance: str, uncertain: bool) -> None:
    a, inputs, _ = sampled_first_layer(covariance, uncertain)
    config = plain(3, hidden=(2,), covariance=covariance, activation_spread=1.0)
    belief = open_belief(spread_state(config, 5))
    mu_a = belief.layer_weights(0) @ np.concatenate([[1.0], inputs.mean])
    sd = np.std(a, axis=0)
    assert np.all(np.abs(np.mean(a, axis=0) - mu_a) <= 5.0 * sd / np.sqrt(SAMPLES))
    z = np.concatenate([[1.0], inputs.mean])
    var_a = (
        belief.own_gain(0, z) @ z
        + (belief.layer_weights(0) ** 2 + belief.own_diagonal(0))[:, 1:] @ inputs.var
    )
    assert np.allclose(np.var(a, axis=0), var_a, rtol=0.015)
    if not uncertain:  # a product of Gaussians is none: the activation's mean is then approximate
        forward = block_filter.run_forward(belief, inputs)
        relu = np.maximum(a, 0.0)
        assert np.all(
            np.abs(np.mean(relu, axis=0) - forward.inputs[1][1:])
            <= 5.0 * np.std(relu, axis=0) / np.sqrt(SAMPLES)
        )
        assert np.allclose(np.mean(a > 0.0, axis=0), forward.slopes[0], atol=0.004)


def test_the_papers_output_variance_is_that_of_independent_neurons() -> None:
    """With exact inputs and one hidden layer every moment of scheme `paper` is exact."""
    a, inputs, weights = sampled_first_layer("paper", False)
    config = plain(3, hidden=(2,), covariance="paper")
    out, passes = paper_smoother.predict_outputs(open_belief(spread_state(config, 5)), inputs)
    relu = np.maximum(a, 0.0)
    y = np.einsum("si,si->s", weights[:, 8:], np.column_stack([np.ones(SAMPLES), relu]))
    assert out.mean[0] == pytest.approx(np.mean(y), abs=5.0 * np.std(y) / np.sqrt(SAMPLES))
    assert out.cov[0, 0] == pytest.approx(np.var(y), rel=0.02)
    assert np.allclose(passes[0].var_z, np.var(relu, axis=0), rtol=0.02)
    cov = np.mean((a - np.mean(a, axis=0)) * (relu - np.mean(relu, axis=0)), axis=0)
    assert np.allclose(passes[0].cov_az, cov, rtol=0.02)


def test_the_filters_variance_leaves_out_what_its_update_cannot_learn() -> None:
    """q = H P H' is at most the moment-matched variance, and what the paper adds is positive."""
    for seed in range(5):
        neuron = plain(3, hidden=(6,), covariance="neuron", activation_spread=1.0)
        printed = plain(3, hidden=(6,), covariance="paper")
        state = spread_state(neuron, seed)
        inputs = InputMoments(np.array([0.3, 1.0, -2.0]), None)
        q = block_filter.predict_outputs(open_belief(state), inputs)[0].cov[0, 0]
        matched = paper_smoother.predict_outputs(
            open_belief(state._replace(config=printed)), inputs
        )[0].cov[0, 0]
        assert 0.0 < q < matched
