"""However a stream is cut, the belief and the predictions are the same bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kbnn import Config, State, init
from kbnn.core import kernel, reference
from kbnn.core.reference import Records
from tests.networks import Stream, identical, stream

CONFIGS: list[dict[str, Any]] = [
    {"hidden": (11,), "covariance": "neuron"},
    {"hidden": (11,), "covariance": "group", "group_size": 4},
    {"hidden": (4, 9), "covariance": "full"},
    {"hidden": (6,), "covariance": "group", "outputs": 3, "observation": "categorical"},
    {"hidden": (3, 2), "covariance": "paper", "activation": "tanh"},
    {"hidden": (), "covariance": "full", "outputs": 2},
]


def learn_in(sizes: list[int], start: State, data: Stream) -> tuple[State, Records]:
    state, parts, at = start, [], 0
    for size in sizes:
        part = data.part(slice(at, at + size))
        state, records = kernel.learn_arrays(state, *part)
        parts.append(records)
        at += size
    return state, Records(*(np.concatenate(column) for column in zip(*parts, strict=True)))


@pytest.mark.parametrize("options", CONFIGS, ids=lambda o: f"{o['covariance']}-{o['hidden']}")
def test_any_chunking_gives_identical_bits(options: dict[str, Any]) -> None:
    config = Config(inputs=5, **options)
    data = stream(config, 600, seed=1, missing=0.1, noisy=0.1)
    data.y[400:, 0] = 0.0 if config.classes else 6.0  # an alarm on the way
    data.y[[7, 8, 36, 37, 200, 201, 202, 598]] = np.nan  # predicted, not learned
    whole, records = learn_in([600], init(config, 2), data)
    for sizes in ([1] * 600, [37] * 16 + [8], [0, 599, 0, 1], [3, 90, 507]):
        state, parts = learn_in(sizes, init(config, 2), data)
        assert identical(state, whole)
        assert all(np.array_equal(a, b) for a, b in zip(parts, records, strict=True))


def test_the_twin_is_chunk_invariant_too() -> None:
    config = Config(inputs=4, hidden=(7,))
    data = stream(config, 120, missing=0.1)
    whole, _ = reference.learn_arrays(init(config), *data)
    state = init(config)
    for at in range(0, 120, 17):
        state, _ = reference.learn_arrays(state, *data.part(slice(at, at + 17)))
    assert identical(state, whole)


def test_a_prediction_never_sees_its_label() -> None:
    config = Config(inputs=3, hidden=(8,))
    data = stream(config, 40)
    other = data._replace(y=data.y.copy())
    other.y[20:] += 100.0
    _, one = learn_in([40], init(config), data)
    _, two = learn_in([40], init(config), other)
    assert np.array_equal(one.mean[:21], two.mean[:21])
    assert not np.array_equal(one.mean[21:], two.mean[21:])
