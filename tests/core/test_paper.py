"""Scheme `paper` against the paper's equations written out, and against the block filter."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from kbnn import State, init
from kbnn.array_types import FloatArray
from kbnn.core import block_filter, kernel, paper_smoother, reference
from kbnn.core.activations import ACTIVATIONS
from kbnn.core.belief import open_belief
from kbnn.core.input_moments import InputMoments
from kbnn.core.layout import layout_of
from tests.networks import distance, plain, spread_state, stream

Layers = list[tuple[list[FloatArray], list[FloatArray]]]


def literal(layers: Layers, activation: str, x: FloatArray, y: FloatArray, noise: float) -> Layers:
    """Both algorithms for one row with full matrices, posterior moments instead of changes.

    Each layer holds its units' weight means and covariances. C_z is a diagonal matrix with a zero
    for the bias. Smoothing II treats w of unit n and the layer's input z as jointly Gaussian with
    a_n = z'w: the Kalman gains are L_n = C_w mu_z / var_a and k_n = C_z mu_w / var_a.
    """
    moments = ACTIVATIONS[activation].moments
    mu_z, c_z = np.concatenate([[1.0], x]), np.zeros((len(x) + 1, len(x) + 1))
    passed = []
    for depth, (means, covs) in enumerate(layers):
        mu_a = np.array([w @ mu_z for w in means])
        var_a = np.array(
            [
                w @ c_z @ w + mu_z @ c @ mu_z + np.trace(c @ c_z)
                for w, c in zip(means, covs, strict=True)
            ]
        )
        out = moments(mu_a, var_a)
        passed.append((mu_z, c_z, mu_a, var_a, out))
        if depth + 1 < len(layers):
            mu_z = np.concatenate([[1.0], out.mean])
            c_z = np.diag(np.concatenate([[0.0], out.var]))
    _, _, mu_a, var_a, _ = passed[-1]
    gain = var_a / (var_a + noise)
    post_mu_a, post_var_a = mu_a + gain * (y - mu_a), var_a - gain * var_a
    new: Layers = []
    for depth in range(len(layers) - 1, -1, -1):
        means, covs = layers[depth]
        mu_z, c_z, mu_a, var_a, _ = passed[depth]
        smoothed_mu, smoothed_c = mu_z.copy(), c_z.copy()
        new_means, new_covs = [], []
        for n, (w, c) in enumerate(zip(means, covs, strict=True)):
            step, shrink = post_mu_a[n] - mu_a[n], post_var_a[n] - var_a[n]
            big_l, k = c @ mu_z / var_a[n], c_z @ w / var_a[n]
            new_means.append(w + big_l * step)
            new_covs.append(c + np.outer(big_l, big_l) * shrink)
            smoothed_mu = smoothed_mu + k * step
            smoothed_c = smoothed_c + np.outer(k, k) * shrink
        new.insert(0, (new_means, new_covs))
        if depth:
            _, _, below_mu, below_var, out = passed[depth - 1]
            j = out.cov / out.var
            post_mu_a = below_mu + j * (smoothed_mu[1:] - out.mean)
            post_var_a = below_var + j**2 * (np.diag(smoothed_c)[1:] - out.var)
    return new


def opened(state: State) -> Layers:
    layout = layout_of(state.config)
    blocks = iter(layout.unpack_blocks(state.cov))
    return [
        (
            [row.copy() for row in layout.weight_matrix(state.mean, layer)],
            [next(blocks) for _ in range(layout.widths[layer + 1])],
        )
        for layer in range(layout.layers)
    ]


@pytest.mark.parametrize("activation", ["relu", "tanh"])
@pytest.mark.parametrize("hidden", [(), (4,), (4, 3), (3, 2, 4)])
def test_rows_follow_the_papers_equations(hidden: tuple[int, ...], activation: str) -> None:
    config = plain(3, hidden=hidden, activation=activation, covariance="paper", noise=0.01)
    state = init(config, 4)
    data = stream(config, 40, seed=2)
    for i in range(40):
        wanted = literal(opened(state), activation, data.x[i], data.y[i], 0.01)
        state, _ = reference.learn_arrays(state, *data.part(slice(i, i + 1)))
        for (means, covs), (new_means, new_covs) in zip(opened(state), wanted, strict=True):
            assert np.allclose(means, new_means, rtol=1e-9, atol=1e-11)
            assert np.allclose(covs, new_covs, rtol=1e-9, atol=1e-11)


def test_given_the_same_predictive_variance_paper_and_neuron_agree() -> None:
    """One hidden layer, one output: the filter's noise makes up for the variance it leaves out."""
    printed = plain(4, hidden=(7,), covariance="paper", noise=0.05)
    neuron = plain(4, hidden=(7,), covariance="neuron", noise=0.05, activation_spread=1.0)
    one, two = init(printed, 1), init(neuron, 1)
    data = stream(printed, 200, seed=6)
    for i in range(200):
        inputs = InputMoments(data.x[i], None)
        matched = paper_smoother.predict_outputs(open_belief(one), inputs)[0].cov[0, 0]
        q = block_filter.predict_outputs(open_belief(two), inputs)[0].cov[0, 0]
        two = two._replace(config=replace(neuron, noise=0.05 + matched - q))
        row = data.part(slice(i, i + 1))
        one, _ = reference.learn_arrays(one, *row)
        two, _ = reference.learn_arrays(two, *row)
    assert distance(two, one) <= 1e-10


def test_several_outputs_cannot_take_more_than_all_of_a_units_variance() -> None:
    """Without the clip some of these updates make a hidden unit's covariance indefinite."""
    config = plain(3, hidden=(5,), outputs=6, covariance="paper", noise=1e-6)
    clipped = 0
    for seed in range(60):
        state = spread_state(config, seed, scale=0.05)
        state = state._replace(mean=3.0 * state.mean)
        rng = np.random.default_rng(seed)
        x, y = rng.standard_normal((1, 3)), 3.0 * rng.standard_normal((1, 6))
        belief = open_belief(state)
        out, passes = paper_smoother.predict_outputs(belief, InputMoments(x[0], None))
        beta = 1.0 / (np.diag(out.cov) + 1e-6)
        shrink = belief.layer_weights(1)[:, 1:].T ** 2 @ beta
        clipped += int(np.any(shrink * passes[0].var_z > 1.0))
        new, _ = kernel.learn_arrays(state, x, y)
        for block in layout_of(config).unpack_blocks(new.cov):
            assert np.linalg.eigvalsh(block)[0] > -1e-12
    assert clipped > 10


def test_without_noise_it_is_the_printed_algorithm_and_exempt_from_the_floor() -> None:
    config = plain(2, hidden=(), covariance="paper", noise=0.0)
    x = np.array([[1.0, 0.0]])
    state, _ = kernel.learn_arrays(init(config), x, np.array([[0.7]]))
    assert float(kernel.predict_arrays(state, x).mean[0, 0]) == pytest.approx(0.7)
    assert float(kernel.predict_arrays(state, x).function_var[0, 0]) == pytest.approx(0.0, abs=1e-9)
    assert state.counts[2] == 0


def test_the_papers_moons_are_learned_as_it_reports() -> None:
    """Two hidden layers of ten, a Gaussian label on a sigmoid, 0.01 of noise: 99 % and more."""
    rng = np.random.default_rng(0)
    angle = np.pi * rng.random(1500)
    upper = rng.random(1500) < 0.5
    x = np.column_stack([np.cos(angle), np.sin(angle)])
    x = np.where(upper[:, None], x, np.array([1.0, 0.5]) - x) + 0.1 * rng.standard_normal((1500, 2))
    x = (x - np.mean(x, axis=0)) / np.std(x, axis=0)
    config = plain(
        2, hidden=(10, 10), covariance="paper", observation="sigmoid", noise=0.01, hidden_noise=0.01
    )
    label = upper[:, None].astype(np.float64)
    state, _ = kernel.learn_arrays(init(config, 3), x[:1350], label[:1350])
    guess = kernel.predict_arrays(state, x[1350:]).mean[:, 0] > 0.0
    assert np.mean(guess == upper[1350:]) >= 0.98
