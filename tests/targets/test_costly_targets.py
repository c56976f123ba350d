"""The short cuts of large counts and many classes give the results of sums and of the reference."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import special

import kbnn
from kbnn import Config, init
from kbnn.array_types import FloatArray
from kbnn.core import kernel, reference
from kbnn.core.config import Covariance
from kbnn.core.layout import layout_of
from kbnn.distributions.negative_binomial import NegativeBinomial
from kbnn.distributions.predictive import PARAM
from kbnn.model.rescale import grow_state


def stated_counts(mu: FloatArray, alpha: FloatArray) -> FloatArray:
    rows = np.zeros((len(mu), PARAM.none + 1))
    rows[:, PARAM.place], rows[:, PARAM.spread] = mu, 1.0 / alpha
    return rows


def summed_crps(y: float, mu: float, alpha: float) -> float:
    """The sum of (F - [k >= y])^2 over all counts k that matter."""
    sd = np.sqrt(mu + mu * mu / alpha)
    k = np.arange(max(0.0, np.floor(mu - 14 * sd)), np.ceil(mu + 14 * sd + 60))
    below = special.betainc(alpha, k + 1.0, alpha / (alpha + mu))
    return float(np.sum((below - (k >= y)) ** 2))


@pytest.mark.thinned(2)
@pytest.mark.parametrize("mu", [30.0, 600.0, 5e3, 1e5, 1e6])
@pytest.mark.parametrize("alpha", [60.0, 1e3, 1e4])
def test_the_crps_of_many_counts_is_their_sum(mu: float, alpha: float) -> None:
    sd = np.sqrt(mu + mu * mu / alpha)
    y = np.round(mu + sd * np.array([-2.0, 0.0, 3.0]))
    rows = stated_counts(np.full(3, mu), np.full(3, alpha))
    wanted = [summed_crps(value, mu, alpha) for value in y]
    assert NegativeBinomial(rows).crps(y) == pytest.approx(wanted, rel=1e-9)


@pytest.mark.skipif(not kernel.is_compiled(), reason="the kernel beside its twin")
@pytest.mark.parametrize("covariance", ["neuron", "group"])
@pytest.mark.parametrize("hidden", [(6,), (5, 7)])
def test_many_classes_are_learned_as_the_twin_learns_them(
    covariance: Covariance, hidden: tuple[int, ...]
) -> None:
    rng = np.random.default_rng(3)
    x, x_var = rng.standard_normal((40, 3)), 0.01 * rng.random((40, 3))
    y, weight = rng.integers(0, 13, (40, 1)).astype(np.float64), rng.uniform(0.1, 3.0, 40)
    config = Config(3, 13, hidden=hidden, covariance=covariance, observation="categorical")
    session = kernel.open_session(init(config, 1))
    said = session.learn(x, y, x_var, weight)
    state, wanted = reference.learn_arrays(init(config, 1), x, y, x_var, weight)
    assert np.allclose(said.probability, wanted.probability, rtol=1e-9, atol=1e-12)
    assert np.allclose(session.state().mean, state.mean, rtol=1e-9, atol=1e-11)
    assert np.allclose(session.state().cov, state.cov, rtol=1e-9, atol=1e-11)


def test_groups_become_neurons_once_there_are_many_classes() -> None:
    rng = np.random.default_rng(5)
    x = rng.standard_normal((2700, 2))
    late = rng.integers(0, 20, 2700)
    y = np.where(np.arange(2700) < 2500, (x[:, 0] > 0.0) + (x[:, 1] > 1.0), late)
    model = kbnn.Model(target="y", layers=4, rehearse="off")
    for part, covariance in ((slice(2500), "group"), (slice(2500, 2700), "neuron")):
        model.learn({"a": x[part, 0], "b": x[part, 1], "y": [f"c{k}" for k in y[part]]})
        config = model._require_single_model().learner_state.members[0].config
        assert config.covariance == covariance
    assert config.outputs == 20


def test_neurons_keep_what_their_group_knew_of_them() -> None:
    rng = np.random.default_rng(6)
    x, y = rng.standard_normal((60, 3)), rng.integers(0, 3, (60, 1)).astype(np.float64)
    config = Config(3, 3, hidden=(5,), covariance="group", observation="categorical")
    session = kernel.open_session(init(config, 1))
    session.learn(x, y)
    state = session.state()
    apart = Config(3, 4, hidden=(5,), covariance="neuron", observation="categorical")
    grown = grow_state(state, 3, 4, apart)
    old, new = layout_of(config), layout_of(apart)
    blocks = new.unpack_blocks(grown.cov)
    dense = old.unpack_blocks(state.cov)
    joint = {
        int(w): (b, i) for b, order in enumerate(old.block_positions) for i, w in enumerate(order)
    }
    for order, neuron in zip(new.block_positions[:5], blocks[:5], strict=True):
        at = [joint[int(w)] for w in order]
        here = dense[at[0][0]][np.ix_([i for _, i in at], [i for _, i in at])]
        assert np.array_equal(neuron, here)
