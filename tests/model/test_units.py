"""A change of units is exact: it equals having learned in the new units from the start."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from kbnn import Config, State, init, learn, predict
from kbnn.array_types import FloatArray
from kbnn.core.config import Covariance
from kbnn.core.layout import layout_of, unpack_triangle
from kbnn.core.state import COUNT
from kbnn.model.rescale import rescale_state
from kbnn.model.scaler import Scale

OLD = Scale(np.array([0.2, -1.0, 0.0]), np.array([1.0, 0.5, 2.0]))
NEW = Scale(np.array([-0.3, 0.4, 0.5]), np.array([2.5, 1.5, 0.8]))
STRUCTURES: tuple[Covariance, ...] = ("neuron", "group", "full")
SHAPES: tuple[tuple[int, ...], ...] = ((7,), (6, 5), (4, 3, 3))


def standard(raw: FloatArray, units: Scale) -> FloatArray:
    return (raw - units.center) / units.scale


def rows(outputs: int = 1, count: int = 60) -> tuple[FloatArray, FloatArray]:
    rng = np.random.default_rng(7)
    x = rng.standard_normal((count, 3))
    y = np.tanh(x @ rng.standard_normal((3, outputs))) + 0.2 * rng.standard_normal((count, outputs))
    return x, y


def learned(covariance: Covariance, hidden: tuple[int, ...]) -> State:
    x, y = rows()
    config = Config(3, hidden=hidden, covariance=covariance, robust=False, drift=False)
    return learn(init(config, 3), standard(x, OLD), y)[0]


@pytest.mark.parametrize("covariance", STRUCTURES)
@pytest.mark.parametrize("outputs", [1, 2])
def test_linear_models_are_refitted_exactly(covariance: Covariance, outputs: int) -> None:
    x, y = rows(outputs)
    gain, shift = np.full(outputs, 1.7), np.linspace(-0.4, 0.6, outputs)
    config = Config(
        3, outputs, hidden=(), covariance=covariance, noise=0.04, robust=False, drift=False
    )
    before, _ = learn(init(config, 5), standard(x, OLD), y)
    carried = rescale_state(before, OLD, NEW, gain, shift)
    afresh, _ = learn(
        init(replace(config, noise=0.04 * 1.7**2), 5), standard(x, NEW), gain * y + shift
    )
    assert np.allclose(carried.mean, afresh.mean, rtol=0.0, atol=1e-10)
    assert np.allclose(carried.cov, afresh.cov, rtol=0.0, atol=1e-10)
    assert carried.config == replace(afresh.config, noise=carried.config.noise)
    assert carried.config.noise == pytest.approx(afresh.config.noise)
    new, _ = learn(carried, standard(x, NEW), gain * y + shift)
    again, _ = learn(afresh, standard(x, NEW), gain * y + shift)
    assert np.allclose(new.mean, again.mean, rtol=0.0, atol=1e-9)


@pytest.mark.parametrize("covariance", STRUCTURES)
@pytest.mark.parametrize("hidden", SHAPES)
def test_what_has_learned_nothing_has_the_prior_in_the_new_units(
    covariance: Covariance, hidden: tuple[int, ...]
) -> None:
    blank = init(Config(3, hidden=hidden, covariance=covariance), 1)
    moved = rescale_state(blank, OLD, NEW, np.array([0.3]), np.array([2.0]))
    assert np.allclose(moved.mean, blank.mean, atol=1e-10)
    assert np.allclose(moved.cov, blank.cov, atol=1e-10)


@pytest.mark.parametrize("covariance", STRUCTURES)
@pytest.mark.parametrize("hidden", SHAPES)
def test_there_and_back_again(covariance: Covariance, hidden: tuple[int, ...]) -> None:
    state = learned(covariance, hidden)
    gain, shift = np.array([0.4]), np.array([1.5])
    there = rescale_state(state, OLD, NEW, gain, shift)
    back = rescale_state(there, NEW, OLD, 1.0 / gain, -shift / gain)
    assert not np.allclose(there.mean, state.mean, atol=1e-3)
    for name in ("mean", "cov", "prior_mean", "noise", "input_mean", "input_cov"):
        assert np.allclose(getattr(back, name), getattr(state, name), atol=1e-7), name
    for block in layout_of(there.config).unpack_blocks(there.cov):
        assert np.min(np.linalg.eigvalsh(block)) > 0.0
        assert np.array_equal(block, block.T)


@pytest.mark.parametrize("covariance", STRUCTURES)
@pytest.mark.parametrize("hidden", SHAPES)
def test_after_an_alarm_the_function_does_not_jump(
    covariance: Covariance, hidden: tuple[int, ...]
) -> None:
    state = learned(covariance, hidden)
    counts = state.counts.copy()
    counts[COUNT.alarms] = 1
    state = state._replace(prior_mean=state.mean.copy(), counts=counts)
    gain, shift = np.array([2.0]), np.array([-0.7])
    moved = rescale_state(state, OLD, NEW, gain, shift)
    x, _ = rows()
    config = replace(state.config, activation_spread=0.0)  # the mean function alone
    said = predict(state._replace(config=config), standard(x, OLD)).mean
    now = predict(moved._replace(config=config), standard(x, NEW)).mean
    assert np.allclose(now, gain * said + shift, atol=1e-8)


def test_the_gaussian_of_the_inputs_moves_along() -> None:
    state = learned("group", (7,))
    moved = rescale_state(state, OLD, NEW, np.ones(1), np.zeros(1))
    for units, one in ((OLD, state), (NEW, moved)):
        cov = unpack_triangle(one.input_cov, 3) * np.outer(units.scale, units.scale)
        mean = units.center + units.scale * one.input_mean
        if units is OLD:
            kept = mean, cov
    assert np.allclose(mean, kept[0])
    assert np.allclose(cov, kept[1])


@pytest.mark.parametrize("covariance", ["paper", "full"])
def test_the_noise_of_a_linear_model_moves_along_with_its_shape(covariance: Covariance) -> None:
    """Without a hidden layer the shape is a function of the inputs themselves."""
    state, (x, _) = learned(covariance, ()), rows()
    said = predict(state, standard(x, OLD)).noise_var
    assert np.ptp(np.log(said)) > 0.1
    moved = rescale_state(state, OLD, NEW, np.array([3.0]), np.array([0.5]))
    assert np.allclose(predict(moved, standard(x, NEW)).noise_var, 9.0 * said)


def test_a_share_of_nothing_is_the_prior() -> None:
    state = learned("group", (7,))
    moved = rescale_state(state, OLD, NEW, np.array([2.0]), np.array([0.1]), share=0.0)
    blank = init(state.config, 3)
    assert np.allclose(moved.mean, blank.mean, atol=1e-9)
    assert np.allclose(moved.cov, blank.cov, atol=1e-9)


def test_without_information_to_separate_the_function_is_kept() -> None:
    x, y = rows()
    config = Config(3, hidden=(), noise=0.0, robust=False, drift=False)
    state, _ = learn(init(config), standard(x, OLD), y)
    singular = state._replace(cov=np.zeros_like(state.cov))
    moved = rescale_state(singular, OLD, NEW, np.ones(1), np.zeros(1))
    assert np.allclose(
        predict(moved, standard(x, NEW)).mean, predict(singular, standard(x, OLD)).mean
    )


def test_a_block_without_precision_leaves_those_beside_it_alone() -> None:
    state = init(Config(inputs=3, hidden=(5,), covariance="neuron"), 1)
    layout = layout_of(state.config)
    flawed = layout.unpack_blocks(state.cov)
    flawed[2] = np.zeros_like(flawed[2])
    gain, shift = np.array([2.0]), np.array([0.1])
    whole = rescale_state(state, OLD, NEW, gain, shift)
    beside = rescale_state(state._replace(cov=layout.pack_blocks(flawed)), OLD, NEW, gain, shift)
    for index, order in enumerate(layout.block_positions):
        same = np.array_equal(beside.mean[order], whole.mean[order])
        assert same == (index != 2)
        assert np.array_equal(layout.unpack_blocks(beside.cov)[2], flawed[2])
