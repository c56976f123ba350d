"""A stream that means harm: nothing breaks, nothing is lost, and the model stays good."""

from __future__ import annotations

from typing import Any, NamedTuple, get_args

import numpy as np
import pytest

from kbnn import REJECTED, UNLABELLED, Config, Prediction, State, init, learn
from kbnn.array_types import FloatArray
from kbnn.core import reference
from kbnn.core.config import Covariance
from kbnn.core.constants import VARIANCE_FLOOR
from kbnn.core.layout import layout_of, unpack_triangle
from kbnn.core.state import COUNT
from tests.networks import identical

INPUTS = 4
WILD = np.array([0.0, 1e-300, -1e-300, 1e300, -1e300, 5e-324, 1e150, np.inf, -np.inf, np.nan, 1e8])


class Mixed(NamedTuple):
    """A stream with hostile rows in it, and where the normal ones are."""

    x: FloatArray
    y: FloatArray
    normal: Any


def hostile(rows: int, share: float, seed: int = 0) -> Mixed:
    """Normal rows mixed with constants, duplicates, extremes, infinities and missing labels."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((rows, INPUTS))
    y = np.sin(x[:, 0]) + 0.5 * np.tanh(x[:, 1]) + 0.1 * rng.standard_normal(rows)
    normal = rng.random(rows) >= share
    for i in np.flatnonzero(~normal):
        kind = rng.integers(7)
        if kind == 0:
            x[i] = 1.0
            y[i] = np.sin(1.0) + 0.5 * np.tanh(1.0)
        elif kind == 1 and i:
            x[i], y[i] = x[i - 1], y[i - 1]
        elif kind == 2:
            x[i, rng.integers(INPUTS)] = rng.choice(WILD)
        elif kind == 3:
            x[i] = rng.choice(WILD, INPUTS)
        elif kind == 4:
            y[i] = rng.choice(WILD)
        elif kind == 5:
            y[i] = rng.choice([1e50, -1e99, 1e20, -1e6])
        else:
            x[i], y[i] = rng.choice(WILD, INPUTS), rng.choice(WILD)
    return Mixed(x, y, normal)


def inspect(state: State, out: Prediction) -> None:
    """Everything finite, every variance positive, every covariance positive semi-definite."""
    for array in (
        *out,
        state.mean,
        state.cov,
        state.noise,
        state.head_mean,
        state.head_cov,
        state.input_mean,
        state.input_cov,
        state.surprise,
    ):
        assert np.all(np.isfinite(array))
    assert np.all(out.function_var >= 0.0)
    assert np.all(out.function_var + out.noise_var > 0.0)
    layout = layout_of(state.config)
    for order, block in zip(layout.block_positions, layout.unpack_blocks(state.cov), strict=True):
        assert np.all(np.diag(block) >= VARIANCE_FLOOR * state.prior_var[order])
        assert np.linalg.eigvalsh(block)[0] >= -1e-12 * np.max(np.diag(block))
    for row in state.head_cov:
        assert np.linalg.eigvalsh(unpack_triangle(row, state.head_mean.shape[1]))[0] > 0.0
    joint = state.config.directions or INPUTS  # of a wide network the rest is diagonal
    size = joint * (joint + 1) // 2
    assert np.linalg.eigvalsh(unpack_triangle(state.input_cov[:size], joint))[0] > 0.0
    assert np.all(state.input_cov[size:] > 0.0)


def survives(config: Config, rows: int) -> float:
    """Learn a hostile stream; returns RMSE on its normal rows over that of a clean run."""
    data = hostile(rows, 0.2)
    state, out = learn(init(config), data.x, data.y)
    inspect(state, out)
    rejected, unlabelled = out.status == REJECTED, out.status == UNLABELLED
    assert np.array_equal(unlabelled, np.isnan(data.y))
    assert state.counts[COUNT.rejected] == np.sum(rejected) > 0.01 * rows
    assert state.counts[COUNT.rows] == rows - np.sum(rejected) - np.sum(unlabelled)
    assert not np.any((rejected | unlabelled) & data.normal)
    _, clean = learn(init(config), data.x[data.normal], data.y[data.normal])
    y = data.y[data.normal]
    half = len(y) // 2
    with_them = out.mean[data.normal, 0] - y
    without = clean.mean[:, 0] - y
    return float(np.sqrt(np.mean(with_them[half:] ** 2) / np.mean(without[half:] ** 2)))


@pytest.mark.parametrize("covariance", ["paper", "neuron", "group", "full"])
def test_a_hostile_stream_costs_at_most_a_twentieth(covariance: Covariance) -> None:
    assert survives(Config(inputs=INPUTS, hidden=(10,), covariance=covariance), 60_000) <= 1.05


@pytest.mark.parametrize(
    "options",
    [
        {"hidden": (6, 5)},
        {"hidden": (), "covariance": "full"},
        {"hidden": (8,), "activation": "tanh"},
        {"hidden": (8,), "noise": 0.01},
    ],
)
def test_other_networks_survive_too(options: dict[str, Any]) -> None:
    assert survives(Config(inputs=INPUTS, **options), 20_000) <= 1.05


@pytest.mark.slow
def test_a_million_hostile_rows() -> None:
    ratio = survives(Config(inputs=INPUTS, hidden=(20,)), 1_000_000)
    print(f"RMSE on normal rows, with hostile ones over without: {ratio:.4f}")
    assert ratio <= 1.05


@pytest.mark.parametrize(
    "config",
    [
        Config(inputs=2, hidden=(5,)),
        Config(inputs=2, hidden=(5,), covariance="paper"),
        Config(inputs=2, hidden=(5,), observation="bernoulli"),
        Config(inputs=2, hidden=(5,), outputs=3, observation="categorical"),
    ],
    ids=["group", "paper", "bernoulli", "categorical"],
)
def test_a_rejected_row_changes_nothing_but_its_count(config: Config) -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((50, 2))
    state, _ = learn(init(config), x, (x[:, 0] > 0.0) * 1.0)
    bad_rows = [
        ([np.inf, 0.0], 1.0, 1.0),
        ([0.0, 0.0], np.inf, 1.0),
        ([0.0, 0.0], 1e200, 1.0),
        ([0.0, 0.0], 1.0, 0.0),
        ([0.0, 0.0], 1.0, np.nan),
        ([0.0, 0.0], 1.0, np.inf),
        ([0.0, 0.0], 1.0, -1.0),
        ([0.0, 0.0], 1.0, 1e301),
        ([0.0, 0.0], 1.0, 5e-324),
    ]
    for row, label, weight in bad_rows:
        after, out = learn(state, [row], [label], weight=[weight])
        assert out.status[0] == REJECTED
        by_twin, _ = reference.learn_arrays(
            state, np.array([row]), np.array([[label]]), weight=np.array([weight])
        )
        assert identical(by_twin, after)
        assert np.all(np.isfinite(out.mean))
        assert after.counts[COUNT.rejected] == state.counts[COUNT.rejected] + 1
        assert identical(after._replace(counts=state.counts), state)


@pytest.mark.parametrize("weight", [1e-300, 1e-12, 1e12, 1e300])
def test_absurd_weights_break_nothing(weight: float) -> None:
    rng = np.random.default_rng(1)
    x = rng.standard_normal((400, INPUTS))
    for covariance in get_args(Covariance):
        config = Config(inputs=INPUTS, hidden=(6,), covariance=covariance)
        weights = np.where(rng.random(400) < 0.1, weight, 1.0)
        state, out = learn(init(config), x, np.tanh(x[:, 0]), weight=weights)
        inspect(state, out)


def test_a_far_row_of_the_largest_weight_leaves_a_finite_noise() -> None:
    rng = np.random.default_rng(1)
    x = rng.standard_normal((100, INPUTS))
    for weight in (1e100, 1.7e308):
        config = Config(inputs=INPUTS, hidden=(6,), robust=False)
        weights = np.where(x[:, 1] > 1.0, weight, 1.0)
        state, out = learn(init(config), x, 1e9 * x[:, 0], weight=weights)
        inspect(state, out)


def test_noiseless_duplicates_hold_the_floor() -> None:
    """One row a hundred thousand times over: no variance reaches zero, no interval vanishes."""
    config = Config(inputs=INPUTS, hidden=(5,))
    x = np.tile(np.array([0.3, -1.0, 2.0, 0.0]), (100_000, 1))
    state, out = learn(init(config), x, np.full(100_000, 0.7))
    inspect(state, out)
    assert out.mean[-1, 0] == pytest.approx(0.7, abs=1e-3)
