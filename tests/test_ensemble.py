"""Several networks as one: weights that follow success, and a mixture no worse than its parts."""

from __future__ import annotations

import numpy as np
import pytest

from kbnn.core.network import Config, init, predict
from kbnn.core.normal import FloatArray
from kbnn.model import ensemble
from kbnn.model.stored import copy
from tests.bench.class_streams import learned, log_loss, probabilities
from tests.bench.data import block, judged, trained
from tests.modelling import network, same


def rows(count: int, seed: int) -> tuple[FloatArray, FloatArray]:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((count, 4))
    return x, np.sin(2.0 * x[:, 0]) + x[:, 1] * x[:, 2] + 0.1 * rng.standard_normal(count)


def test_one_member_is_the_single_network() -> None:
    x, y = rows(300, 1)
    alone, one = trained(x, y, hidden=(8,)), trained(x, y, hidden=(8,), ensemble=1)
    assert same(alone.predict(block(x, y)), one.predict(block(x, y)))
    several = trained(x, y, hidden=(8,), ensemble=3)
    assert np.array_equal(network(several).mean, network(alone).mean)
    assert not np.array_equal(network(several, 1).mean, network(alone).mean)


def test_weights_are_discounted_likelihoods_and_sum_to_one() -> None:
    scores = np.random.default_rng(2).normal(-1.0, 1.0, (50, 3))
    weights, after = ensemble.follow_weights(np.zeros(3), scores)
    assert np.allclose(weights[0], 1.0 / 3.0)
    assert np.allclose(np.sum(weights, axis=1), 1.0)
    ages = ensemble.DISCOUNT ** np.arange(49, -1, -1.0)
    log_weight = ages @ scores
    assert np.allclose(after, log_weight - np.max(log_weight))
    first, middle = ensemble.follow_weights(np.zeros(3), scores[:20])
    second, end = ensemble.follow_weights(middle, scores[20:])
    assert np.array_equal(np.vstack([first, second]), weights)
    assert np.array_equal(end, after)


def test_a_mixture_has_the_moments_of_its_parts() -> None:
    x = np.random.default_rng(3).standard_normal((6, 4))
    members = [predict(init(Config(4, hidden=(5,)), seed), x) for seed in range(3)]
    weights = np.tile([0.5, 0.3, 0.2], (6, 1))
    made = ensemble.mix(members, weights)
    means = np.stack([m.mean[:, 0] for m in members])
    second = np.stack([m.function_var[:, 0] + m.noise_var[:, 0] for m in members]) + means**2
    share = np.array([0.5, 0.3, 0.2])
    assert np.allclose(made.mean[:, 0], share @ means)
    total = made.function_var[:, 0] + made.noise_var[:, 0]
    assert np.allclose(total, share @ second - (share @ means) ** 2)


@pytest.mark.parametrize("seed", range(2))
def test_a_mixture_beats_its_average_member(seed: int) -> None:
    x, y = rows(900, seed + 4)
    model = trained(x[:600], y[:600], hidden=(20,), ensemble=4, seed=seed)
    mixed = judged(model, x[600:], y[600:])
    parts = []
    for k in range(4):
        alone = copy(model)
        one = alone.learned.members[k : k + 1]
        alone.learned = alone.learned._replace(members=one, log_weight=np.zeros(1))
        parts.append(judged(alone, x[600:], y[600:]))
    assert mixed.rmse < max(part.rmse for part in parts)
    assert mixed.nll < np.mean([part.nll for part in parts])


def test_classes_are_mixed_too() -> None:
    x, _ = rows(500, 6)
    y = (x[:, 0] * x[:, 1] > 0).astype(np.float64)
    model = learned(x[:400], y[:400], 2, hidden=(15,), ensemble=3)
    p = probabilities(model, x[400:])
    assert np.allclose(np.sum(p, axis=1), 1.0)
    assert log_loss(p, y[400:]) < 0.6
