"""The belief before the first row: every variance by hand, and the spread of what is drawn."""

from __future__ import annotations

import numpy as np
import pytest

from kbnn import Config, init
from kbnn.core.layout import group_bounds, layout_of, unpack_triangle


@pytest.mark.parametrize(("observation", "wide"), [("gaussian", 1.0), ("categorical", 25.0)])
def test_weights_have_one_over_fan_in_and_class_outputs_more(observation: str, wide: float) -> None:
    config = Config(inputs=3, outputs=2, hidden=(6, 4), observation=observation)
    state, layout = init(config, 5), layout_of(config)
    for layer, var in enumerate((1 / 4, 1 / 7, wide / 5)):
        assert np.allclose(layout.weight_matrix(state.prior_var, layer), var)
    for dense, order in zip(layout.unpack_blocks(state.cov), layout.block_positions, strict=True):
        assert np.allclose(dense, np.diag(state.prior_var[order]))
    assert np.array_equal(state.mean, state.prior_mean)


def test_means_are_drawn_with_one_over_fan_in_whatever_the_label() -> None:
    for observation in ("gaussian", "categorical"):
        config = Config(inputs=9, outputs=40, hidden=(400,), observation=observation)
        state, layout = init(config, 1), layout_of(config)
        assert np.std(layout.weight_matrix(state.mean, 0)) == pytest.approx(
            np.sqrt(1 / 10), rel=0.05
        )
        assert np.std(layout.weight_matrix(state.mean, 1)) == pytest.approx(
            np.sqrt(1 / 401), rel=0.05
        )


def test_the_noise_head_leaves_the_level_to_the_level() -> None:
    state = init(Config(inputs=2, outputs=2, hidden=(4,)))
    for row in state.head_cov:
        assert np.allclose(unpack_triangle(row, 5), np.diag([0.01, 0.2, 0.2, 0.2, 0.2]))
    assert not np.any(state.head_mean)
    assert np.array_equal(state.noise, [[1.0, 0.03]] * 2)
    assert np.array_equal(unpack_triangle(state.input_cov, 2), np.eye(2))


@pytest.mark.parametrize(
    ("units", "size", "weights", "ends"),
    [
        (10, None, 4, [10]),
        (11, None, 4, [5, 11]),
        (25, None, 4, [8, 16, 25]),
        (10, None, 19, [10]),  # 190 weights
        (10, None, 20, [5, 10]),  # 200 are too many, nine units would be 180
        (4, None, 500, [1, 2, 3, 4]),
        (7, 3, 4, [2, 4, 7]),
    ],
)
def test_groups_have_at_most_ten_units_and_192_weights(
    units: int, size: int | None, weights: int, ends: list[int]
) -> None:
    found = group_bounds(units, size, weights)
    assert [end for _, end in found] == ends
    assert [first for first, _ in found] == [0, *ends[:-1]]
