"""The alarm: silent on a quiet stream, raised by a change, and what it does to the belief."""

from __future__ import annotations

import numpy as np
import pytest

from kbnn import ALARM, Config, init, learn
from kbnn.array_types import FloatArray
from kbnn.core import likelihoods
from kbnn.core.belief import close_belief, open_belief
from kbnn.core.constants import NOISE_MEMORY, REAL
from kbnn.core.layout import layout_of
from kbnn.core.state import COUNT
from tests.networks import plain


def changing(rows: int, at: int | None, seed: int) -> tuple[FloatArray, FloatArray]:
    """A smooth function of five inputs that is another one from row `at` on."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((rows, 5))
    before, after = rng.standard_normal((2, 5))
    signal = np.tanh(x @ before)
    if at is not None:
        signal[at:] = np.tanh(x[at:] @ after)
    return x, signal + 0.2 * rng.standard_normal(rows)


@pytest.mark.parametrize("seed", range(3))
def test_a_quiet_stream_raises_no_alarm(seed: int) -> None:
    x, y = changing(6000, None, seed)
    state, _ = learn(init(Config(inputs=5, hidden=(20,))), x, y)
    assert state.counts[COUNT.alarms] <= 1


@pytest.mark.parametrize("seed", range(3))
def test_a_change_raises_the_alarm_soon_and_pays(seed: int) -> None:
    x, y = changing(6000, 3000, seed)
    watching, out = learn(init(Config(inputs=5, hidden=(20,))), x, y)
    _, blind = learn(init(Config(inputs=5, hidden=(20,), drift=False)), x, y)
    alarms = np.flatnonzero(out.status.astype(int) & ALARM)
    assert np.any((alarms >= 3000) & (alarms < 3200))
    assert watching.counts[COUNT.alarms] == len(alarms)
    after = slice(3200, 6000)
    error = np.mean((out.mean[after, 0] - y[after]) ** 2)
    assert error < np.mean((blind.mean[after, 0] - y[after]) ** 2)


def test_a_lone_outlier_is_no_drift() -> None:
    x, y = changing(3000, None, 7)
    y[1500::100] += 20.0
    state, out = learn(init(Config(inputs=5, hidden=(20,))), x, y)
    assert not np.any(out.status[1500::100].astype(int) & ALARM)
    assert state.counts[COUNT.alarms] <= 1


def test_labels_that_turn_round_raise_the_alarm_and_are_learned_again() -> None:
    x, y = changing(4000, None, 1)
    label = np.where(np.arange(4000) < 2000, y > 0.0, y <= 0.0) * 1.0
    config = Config(inputs=5, hidden=(20,), observation="bernoulli")
    quiet, _ = learn(init(config), x[:2000], label[:2000])
    state, out = learn(quiet, x[2000:], label[2000:])
    assert quiet.counts[COUNT.alarms] == 0
    assert state.counts[COUNT.alarms] >= 1
    right = (out.probability[:, 1] > 0.5) == (label[2000:] > 0.5)
    assert np.mean(right[:20]) < 0.5
    assert np.mean(right[300:]) > 0.9


def test_evidence_grows_with_surprise_and_drains_without() -> None:
    evidence = np.zeros(1)
    assert not likelihoods.update_detector(REAL, evidence, -0.5)
    assert evidence[0] == 0.0
    assert not likelihoods.update_detector(REAL, evidence, 1e300)
    assert evidence[0] == REAL.cap - REAL.slack
    needed = int(np.ceil(REAL.threshold / (REAL.cap - REAL.slack)))
    raised = [likelihoods.update_detector(REAL, evidence, 1e300) for _ in range(needed)]
    assert any(raised)


def test_an_alarm_keeps_the_means_and_returns_covariances_part_of_the_way() -> None:
    config = plain(2, hidden=(3,), noise=0.1)
    rng = np.random.default_rng(0)
    x = rng.standard_normal((300, 2))
    state, _ = learn(init(config), x, x[:, 0])
    belief = open_belief(state)
    belief.forget_toward_prior(0.25)
    after = close_belief(belief, state)
    assert np.array_equal(after.mean, state.mean)
    assert np.array_equal(after.prior_mean, state.mean)
    for order, old, new in zip(
        layout_of(config).block_positions,
        layout_of(config).unpack_blocks(state.cov),
        layout_of(config).unpack_blocks(after.cov),
        strict=True,
    ):
        assert np.allclose(new, 0.75 * old + 0.25 * np.diag(state.prior_var[order]))


def test_the_noise_belief_is_cut_to_a_short_memory() -> None:
    noise = np.array([[40.0, 4.0], [3.0, 0.6]])
    short = likelihoods.shorten_noise_memory(noise)
    assert short[0].tolist() == pytest.approx([NOISE_MEMORY, 0.1 * NOISE_MEMORY])
    assert short[1].tolist() == [3.0, 0.6]


def test_class_surprise_is_zero_on_average() -> None:
    p = np.array([0.7, 0.2, 0.1])
    surprise = [likelihoods.class_surprise(p, k) for k in range(3)]
    assert float(p @ surprise) == pytest.approx(0.0, abs=1e-12)
    assert likelihoods.class_surprise(p, 2) > likelihoods.class_surprise(p, 0)


def test_classes_that_change_places_raise_an_alarm_and_quiet_ones_none() -> None:
    rng = np.random.default_rng(3)
    x = rng.standard_normal((6000, 2))
    label = (x[:, 0] + 0.5 * rng.standard_normal(6000) > 0).astype(float)
    config = Config(inputs=2, outputs=2, hidden=(10,), observation="categorical")
    state, quiet = learn(init(config), x[:5000], label[:5000])
    assert not np.any(quiet.status.astype(int) & ALARM)
    _, changed = learn(state, x[5000:], 1.0 - label[5000:])
    alarms = np.flatnonzero(changed.status.astype(int) & ALARM)
    assert len(alarms)
    assert alarms[0] < 50


def test_several_classes_that_overlap_raise_an_alarm_when_they_change_places_alone() -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2000, 5))
    signal = 2.0 * np.tanh(x @ rng.standard_normal((5, 5)))
    label = np.argmax(signal + rng.gumbel(size=signal.shape), axis=1).astype(float)
    label[1500:] = (label[1500:] + 1.0) % 5.0
    config = Config(inputs=5, outputs=5, hidden=(10,), observation="categorical")
    _, said = learn(init(config), x, label)
    alarms = np.flatnonzero(said.status.astype(int) & ALARM)
    assert len(alarms)
    assert 1500 <= alarms[0] < 1550
