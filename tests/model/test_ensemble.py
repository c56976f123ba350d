"""Several networks as one: weights that follow success, and a mixture no worse than its parts."""

from __future__ import annotations

import numpy as np
import pytest

from kbnn.array_types import FloatArray
from kbnn.core.config import Config
from kbnn.core.kernel import predict
from kbnn.core.state import init
from kbnn.model import ensemble
from kbnn.model.serialize import copy_model
from tests.bench.class_streams import learned, log_loss, probabilities
from tests.bench.data import block, judged, trained
from tests.modelling import network, same


def rows(count: int, seed: int) -> tuple[FloatArray, FloatArray]:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((count, 4))
    return x, np.sin(2.0 * x[:, 0]) + x[:, 1] * x[:, 2] + 0.1 * rng.standard_normal(count)


def test_one_member_is_the_single_network() -> None:
    x, y = rows(300, 1)
    alone = trained(x, y, hidden=(8,), rehearse=0)
    one = trained(x, y, hidden=(8,), ensemble=1, rehearse=0)
    assert same(alone.predict(block(x, y)), one.predict(block(x, y)))
    several = trained(x, y, hidden=(8,), ensemble=3, rehearse=0)
    assert np.array_equal(network(several).mean, network(alone).mean)
    assert not np.array_equal(network(several, 1).mean, network(alone).mean)


def test_weights_are_discounted_likelihoods_and_sum_to_one() -> None:
    scores = np.random.default_rng(2).normal(-1.0, 1.0, (50, 3))
    weights, after = ensemble.update_weights(np.zeros(3), scores)
    assert np.allclose(weights[0], 1.0 / 3.0)
    assert np.allclose(np.sum(weights, axis=1), 1.0)
    log_weight = 0.99 ** np.arange(49, -1, -1.0) @ scores
    assert np.allclose(after, log_weight - np.max(log_weight))
    evidence = np.exp(0.3 * (0.99 * scores[0] + scores[1]))
    assert np.allclose(weights[2], evidence / np.sum(evidence))
    first, middle = ensemble.update_weights(np.zeros(3), scores[:20])
    second, end = ensemble.update_weights(middle, scores[20:])
    assert np.array_equal(np.vstack([first, second]), weights)
    assert np.array_equal(end, after)


def test_a_mixture_has_the_moments_of_its_parts() -> None:
    x = np.random.default_rng(3).standard_normal((6, 4))
    members = [predict(init(Config(4, hidden=(5,)), seed), x) for seed in range(3)]
    weights = np.tile([0.5, 0.3, 0.2], (6, 1))
    made = ensemble.mix_predictions(members, weights)
    means = np.stack([m.mean[:, 0] for m in members])
    second = np.stack([m.function_var[:, 0] + m.noise_var[:, 0] for m in members]) + means**2
    share = np.array([0.5, 0.3, 0.2])
    assert np.allclose(made.mean[:, 0], share @ means)
    total = made.function_var[:, 0] + made.noise_var[:, 0]
    assert np.allclose(total, share @ second - (share @ means) ** 2)


def test_a_mixture_doubts_a_label_as_its_parts_do() -> None:
    x = np.zeros((2, 1))
    members = [predict(init(Config(1, hidden=(2,)), seed), x) for seed in range(2)]
    first, second = np.array([1.0, 0.2]), np.array([0.0, 0.6])
    members = [members[0]._replace(inlier=first), members[1]._replace(inlier=second)]
    made = ensemble.mix_predictions(members, np.array([[0.75, 0.25], [0.5, 0.5]]))
    assert made.inlier == pytest.approx([0.75, 0.4])


def test_a_prediction_is_mixed_by_the_evidence_so_far() -> None:
    x, y = rows(200, 9)
    model, alone = (trained(x, y, hidden=(5,), ensemble=count, rehearse=0) for count in (2, 1))
    model.learner_state = model.learner_state._replace(log_weight=np.array([0.0, -1e6]))
    assert np.allclose(model.predict(block(x, y)).mean, alone.predict(block(x, y)).mean)
    model.learner_state = model.learner_state._replace(log_weight=np.array([-1e6, 0.0]))
    assert not np.allclose(model.predict(block(x, y)).mean, alone.predict(block(x, y)).mean)


def test_members_differ_in_the_scale_of_their_priors() -> None:
    """Of means and of standard deviations, the first member's as they are."""
    x, y = rows(40, 8)
    model = trained(x, y, hidden=(400,), ensemble=5)
    first = network(model)
    for k, (means, sds) in enumerate([(1, 1), (2, 2), (1, 2), (2, 1), (0.5, 1)]):
        member = network(model, k)
        assert np.allclose(member.prior_var, sds**2 * first.prior_var)
        spread = np.std(member.prior_mean[:2000]) / np.std(first.prior_mean[:2000])
        assert spread == pytest.approx(means, rel=0.1)


@pytest.mark.parametrize("seed", range(2))
def test_a_mixture_beats_its_average_member(seed: int) -> None:
    x, y = rows(900, seed + 4)
    model = trained(x[:600], y[:600], hidden=(20,), ensemble=4, seed=seed)
    mixed = judged(model, x[600:], y[600:])
    parts = []
    for k in range(4):
        alone = copy_model(model)
        one = alone.learner_state.members[k : k + 1]
        alone.learner_state = alone.learner_state._replace(members=one, log_weight=np.zeros(1))
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
