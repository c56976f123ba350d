"""Class probabilities: exact for two, a distribution for many, learned from a stream."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import special

from kbnn import REJECTED, UNLABELLED, Config, init, learn, predict
from kbnn.core.config import Covariance
from kbnn.core.likelihoods import LIKELIHOODS, OutputEvidence
from kbnn.core.state import COUNT
from tests.gauss import rule


def test_two_classes_are_the_averaged_link() -> None:
    t, weights = rule(0.0, 1.0)
    for mean, var in ((0.7, 0.4), (-3.0, 9.0)):
        wanted = float(weights @ special.ndtr(np.sqrt(np.pi / 8.0) * (mean + np.sqrt(var) * t)))
        got = LIKELIHOODS["bernoulli"].class_probabilities(
            OutputEvidence(np.array([mean]), np.array([[var]]), np.zeros(1))
        )
        assert got[1] == pytest.approx(wanted, rel=1e-9)
        assert got[0] + got[1] == pytest.approx(1.0)


def test_two_of_many_agree_with_the_two_class_formula() -> None:
    cov = np.array([[1.0, 0.3], [0.3, 0.5]])
    many = LIKELIHOODS["categorical"].class_probabilities(
        OutputEvidence(np.array([0.2, -0.4]), cov, np.zeros(2))
    )
    two = LIKELIHOODS["bernoulli"].class_probabilities(
        OutputEvidence(np.array([0.6]), np.array([[0.9]]), np.zeros(1))
    )
    assert many == pytest.approx(two[::-1])


@pytest.mark.parametrize("size", [1.0, 1e3, 1e8])
def test_probabilities_are_a_distribution_however_far_apart_the_outputs(size: float) -> None:
    rng = np.random.default_rng(0)
    mean = size * rng.standard_normal(6)
    p = LIKELIHOODS["categorical"].class_probabilities(OutputEvidence(mean, np.eye(6), np.zeros(6)))
    assert np.all(p >= 0.0)
    assert np.sum(p) == pytest.approx(1.0)
    assert np.argmax(p) == np.argmax(mean)


@pytest.mark.parametrize("covariance", ["neuron", "group"])
def test_classes_are_learned_to_near_the_best_possible_loss(covariance: Covariance) -> None:
    rng = np.random.default_rng(1)
    x = rng.standard_normal((3000, 2))
    logits = 2.0 * np.column_stack([x[:, 0], -x[:, 0] * x[:, 1], x[:, 1]])
    true = special.softmax(logits, axis=1)
    y = np.array([rng.choice(3, p=p) for p in true])
    config = Config(
        inputs=2, outputs=3, hidden=(20,), observation="categorical", covariance=covariance
    )
    state, _ = learn(init(config), x[:2500], y[:2500])
    p = predict(state, x[2500:]).probability
    loss = -np.mean(np.log(p[np.arange(500), y[2500:]]))
    best = -np.mean(np.log(true[2500:][np.arange(500), y[2500:]]))
    assert loss < best + 0.08


def test_where_nothing_can_be_told_the_shares_of_the_classes_are_said() -> None:
    rng = np.random.default_rng(2)
    shares = np.array([0.5, 0.3, 0.13, 0.07])
    x, y = rng.standard_normal((4000, 2)), rng.choice(4, 4000, p=shares)
    config = Config(inputs=2, outputs=4, hidden=(), observation="categorical")
    state, said = learn(init(config), x, y)
    assert np.mean(predict(state, x).probability, axis=0) == pytest.approx(shares, abs=0.025)
    assert state.counts[COUNT.alarms] == 0
    loss = -np.mean(np.log(said.probability[np.arange(4000), y]))
    assert loss < -np.sum(shares * np.log(shares)) + 0.03


def test_a_label_that_is_no_class_is_rejected() -> None:
    config = Config(inputs=1, outputs=3, hidden=(4,), observation="categorical")
    start = init(config)
    state, out = learn(start, np.zeros((4, 1)), np.array([-1.0, 3.0, np.nan, 1e300]))
    assert out.status.tolist() == [REJECTED, REJECTED, UNLABELLED, REJECTED]
    assert state.counts[COUNT.rejected] == 3
    assert np.array_equal(state.mean, start.mean)
