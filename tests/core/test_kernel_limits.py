"""Every bound that the kernel writes as a number of its own is where its numpy twin has it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from kbnn import Config, State, init
from kbnn.array_types import FloatArray
from kbnn.core import kernel, reference
from tests.networks import distance, record_distance, stream

pytest.importorskip("kbnn.core._kernel", reason="built without a compiler")

INPUTS = 2


def learned(**options: Any) -> State:
    """A small network that has seen some rows."""
    config = Config(inputs=INPUTS, hidden=(4,), **options)
    data = stream(config, 60)
    return reference.learn_arrays(init(config), *data)[0]


def settled(state: State, share: float = 1e-20) -> State:
    """The same, as good as certain of its weights."""
    return state._replace(cov=share * state.cov)


def check(
    state: State,
    x: FloatArray,
    y: FloatArray,
    x_var: FloatArray | None = None,
    weight: FloatArray | None = None,
) -> None:
    x_var = np.zeros_like(x) if x_var is None else x_var
    weight = np.ones(len(x)) if weight is None else weight
    wanted, wanted_records = reference.learn_arrays(state, x, y, x_var, weight)
    got, records = kernel.learn_arrays(state, x, y, x_var, weight)
    assert np.array_equal(got.counts, wanted.counts)
    assert distance(got, wanted) <= 1e-9
    assert record_distance(records, wanted_records) <= 1e-9


@pytest.mark.parametrize("level", [-30.0, -12.0, 30.0])
def test_the_noise_head(level: float) -> None:
    """Its mean is bounded, and so is its step: far below the level a residual asks for a leap."""
    state = settled(learned(robust=False))
    head = state.head_mean.copy()
    head[:, 0] = level
    check(state._replace(head_mean=head), np.zeros((1, INPUTS)), np.array([[0.5]]))


def test_the_least_noise() -> None:
    state = settled(learned(noise_head=False))._replace(noise=np.array([[10.0, 1e-15]]))
    x = np.zeros((2, INPUTS))
    check(state, x, reference.predict_arrays(state, x, x).mean)


def test_the_least_share_of_noise() -> None:
    state = init(Config(inputs=INPUTS, hidden=(4,), noise=1e-9, robust=False))
    check(state, np.ones((1, INPUTS)), np.ones((1, 1)))


def test_the_least_variance_of_a_unit() -> None:
    state = settled(learned())
    mean = state.mean.copy()
    mean[: 4 * (INPUTS + 1) + 1] = 0.0  # every unit at the bend of its activation, no output bias
    check(state._replace(mean=mean), np.ones((1, INPUTS)), np.zeros((1, 1)))


@pytest.mark.parametrize("options", [{}, {"observation": "sigmoid"}], ids=["gaussian", "sigmoid"])
def test_the_least_variance_of_a_label(options: dict[str, Any]) -> None:
    state = learned(covariance="neuron", robust=False, **options)
    config = replace(state.config, noise=0.0)
    state = settled(state, 1e-16)._replace(
        config=config,
        noise=np.zeros((0, 2)),
        head_mean=state.head_mean[:0],
        head_cov=state.head_cov[:0],
    )
    check(state, np.ones((1, INPUTS)), np.ones((1, 1)))


def test_the_least_variance_of_an_input() -> None:
    state = learned()._replace(input_cov=np.array([0.5e-12, 0.0, 1.0]))
    x_var = np.array([[0.45e-12, 0.0], [0.55e-12, 0.0]])
    check(state, np.ones((2, INPUTS)), np.ones((2, 1)), x_var=x_var)


def test_what_is_believed_of_inputs_labels_and_weights() -> None:
    ones = np.ones(INPUTS)
    check(learned(), np.array([ones, 950.0 * ones, 1050.0 * ones]), np.ones((3, 1)))
    check(learned(), np.array([ones, ones]), np.array([[0.95e100], [1.05e100]]))
    weight = np.array([0.95e-300, 1.05e-300, 0.95e100, 1.05e100])
    check(learned(), np.array([ones] * 4), np.ones((4, 1)), weight=weight)
