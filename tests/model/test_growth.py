"""A network that grows is the one that had the new input or class from the start."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from kbnn import Config, init, learn
from kbnn.array_types import FloatArray
from kbnn.core.config import Covariance
from kbnn.core.input_moments import leading_directions
from kbnn.core.layout import layout_of, unpack_triangle
from kbnn.core.state import ARRAYS
from kbnn.model.rescale import grow_state

STRUCTURES: tuple[Covariance, ...] = ("paper", "neuron", "group", "full")


def rows(inputs: int) -> tuple[FloatArray, FloatArray]:
    rng = np.random.default_rng(8)
    x = rng.standard_normal((80, inputs))
    return x, np.tanh(x[:, 0]) + 0.2 * rng.standard_normal(80)


def wide(x: FloatArray) -> FloatArray:
    return np.hstack([x, np.zeros((len(x), 2))])


@pytest.mark.parametrize("covariance", STRUCTURES)
@pytest.mark.parametrize("hidden", [(), (7,), (5, 4)])
def test_new_inputs_were_zero_all_along(covariance: Covariance, hidden: tuple[int, ...]) -> None:
    x, y = rows(3)
    blank = init(Config(3, hidden=hidden, covariance=covariance), 4)
    late = grow_state(learn(blank, x, y)[0], 5, 1)
    early, _ = learn(grow_state(blank, 5, 1), wide(x), y)
    for name in ("mean", "cov", "prior_mean", "prior_var", "noise", "head_mean"):
        assert np.allclose(getattr(late, name), getattr(early, name), rtol=1e-9, atol=1e-12), name
    assert late.config == early.config


def test_new_inputs_draw_what_they_would_have_drawn() -> None:
    small, large = init(Config(3, hidden=(6,)), 9), init(Config(5, hidden=(6,)), 9)
    grown = grow_state(small, 5, 1)
    ratio = np.sqrt(6.0 / 4.0)  # fan-in of six against four: the prior keeps its scale
    weights = layout_of(grown.config).weight_matrix(grown.mean, 0)
    assert np.allclose(weights, ratio * layout_of(large.config).weight_matrix(large.mean, 0))


def test_a_new_input_is_a_standard_one_as_long_as_nothing_is_known_of_it() -> None:
    x, y = rows(2)
    state, _ = learn(init(Config(2, hidden=(3,))), x, y)
    grown = grow_state(state, 4, 1)
    wanted = np.eye(4)
    wanted[:2, :2] = unpack_triangle(state.input_cov, 2)
    assert np.array_equal(unpack_triangle(grown.input_cov, 4), wanted)
    assert np.array_equal(grown.input_mean, [*state.input_mean, 0.0, 0.0])


@pytest.mark.parametrize("covariance", STRUCTURES)
def test_a_new_class_starts_from_its_prior_and_leaves_the_rest_alone(
    covariance: Covariance,
) -> None:
    x, y = rows(3)
    config = Config(3, 2, hidden=(6,), covariance=covariance, observation="categorical")
    two, _ = learn(init(config, 2), x, (y > 0).astype(np.float64))
    three = grow_state(two, 3, 3)
    old, new = layout_of(two.config), layout_of(three.config)
    for layer in range(2):
        assert np.array_equal(
            new.weight_matrix(three.mean, layer)[: old.widths[layer + 1]],
            old.weight_matrix(two.mean, layer),
        )
    blank = init(three.config, 2)
    assert np.allclose(new.weight_matrix(three.mean, 1)[2], new.weight_matrix(blank.mean, 1)[2])
    added = [
        np.flatnonzero(np.isin(order, np.arange(new.layer_starts[2] - 7, new.layer_starts[2])))
        for order in new.block_positions
    ]
    for dense, at, order in zip(
        new.unpack_blocks(three.cov), added, new.block_positions, strict=True
    ):
        assert np.allclose(dense[np.ix_(at, at)], np.diag(blank.prior_var[order][at]))
        rest = np.setdiff1d(np.arange(len(dense)), at)
        assert not np.any(dense[np.ix_(rest, at)])
    learned, said = learn(three, x[:9], np.arange(9.0) % 3)
    assert said.probability.shape == (9, 3)
    assert np.all(np.isfinite(learned.mean))


def test_smaller_groups_keep_a_covariance() -> None:
    x, y = rows(16)
    state, _ = learn(init(Config(16, hidden=(20,)), 1), x, y)
    grown = grow_state(state, 30, 1)
    before, after = layout_of(state.config), layout_of(grown.config)
    assert len(after.blocks) > len(before.blocks)
    for block in after.unpack_blocks(grown.cov):
        assert np.min(np.linalg.eigvalsh(block)) > 0.0
    assert grow_state(state, 16, 1) is state


def test_real_targets_cannot_be_added() -> None:
    with pytest.raises(ValueError, match="only classes can be added"):
        grow_state(init(Config(inputs=2, hidden=(3,))), 2, 2)


@pytest.mark.parametrize("hidden", [(), (4,)])
@pytest.mark.parametrize(
    "config",
    [
        Config(3),
        Config(3, outputs=2, observation="categorical"),
        Config(3, observation="count"),
        Config(20, covariance="wide", directions=3),
    ],
    ids=["gaussian", "categorical", "count", "wide"],
)
def test_every_array_has_the_shape_of_a_network_that_began_so(
    config: Config, hidden: tuple[int, ...]
) -> None:
    config = replace(config, hidden=hidden)
    outputs = config.outputs + config.kind.supports_growth
    grown = grow_state(init(config), config.inputs + 2, outputs)
    other = init(replace(config, inputs=config.inputs + 2, outputs=outputs))
    for name in ARRAYS:
        assert getattr(grown, name).shape == getattr(other, name).shape, name


def test_a_new_input_of_a_wide_network_is_not_projected() -> None:
    z = np.random.default_rng(0).standard_normal((60, 12))
    config = Config(inputs=12, hidden=(4,), covariance="wide", directions=3)
    state = init(config, directions=leading_directions(z, 3))
    more = grow_state(state, 14, 1)
    assert np.array_equal(more.view[:12], state.view)
    assert np.all(more.view[12:, 0] == 1.0)  # its gain
    assert np.all(more.view[12:, 1:] == 0.0)  # no shift, and part of no direction
