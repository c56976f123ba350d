"""Which weights share a block, and their packed triangles."""

from __future__ import annotations

import numpy as np
import pytest

from kbnn import Config, init
from kbnn.core.config import Covariance
from kbnn.core.layout import Piece, group_bounds, layout_of, pack_triangle, unpack_triangle


@pytest.mark.parametrize("covariance", ["paper", "neuron", "group", "full"])
@pytest.mark.parametrize(
    ("hidden", "outputs"), [((), 1), ((), 3), ((7,), 1), ((23,), 2), ((5, 12), 1), ((4, 3, 2), 4)]
)
def test_every_weight_is_in_exactly_one_block(
    covariance: Covariance, hidden: tuple[int, ...], outputs: int
) -> None:
    config = Config(inputs=3, hidden=hidden, outputs=outputs, covariance=covariance)
    order = np.concatenate(layout_of(config).block_positions)
    assert np.array_equal(np.sort(order), np.arange(config.weights))


def test_a_group_holds_its_units_incoming_and_outgoing_weights() -> None:
    layout = layout_of(Config(inputs=2, hidden=(4,), covariance="group", group_size=2))
    assert layout.blocks == (
        (Piece(0, 0, 0, 3), Piece(0, 1, 0, 3), Piece(1, 0, 1, 2)),
        (Piece(0, 2, 0, 3), Piece(0, 3, 0, 3), Piece(1, 0, 3, 2)),
        (Piece(1, 0, 0, 1),),
    )
    assert layout.block_dims == (8, 8, 1)


def test_groups_are_even_and_no_larger_than_asked() -> None:
    assert group_bounds(50, 10, 15) == [(0, 10), (10, 20), (20, 30), (30, 40), (40, 50)]
    assert group_bounds(11, 10, 4) == [(0, 5), (5, 11)]
    assert group_bounds(50, None, 91)[0] == (0, 2)  # the weights of two units are all that fit
    assert group_bounds(3, None, 10_000) == [(0, 1), (1, 2), (2, 3)]


def test_triangles_pack_row_after_row() -> None:
    matrix = np.array([[1.0, 2.0, 3.0], [2.0, 4.0, 5.0], [3.0, 5.0, 6.0]])
    packed = pack_triangle(matrix)
    assert packed.tolist() == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    assert np.array_equal(unpack_triangle(packed, 3), matrix)


def test_packing_the_whole_belief_is_reversible() -> None:
    config = Config(inputs=3, hidden=(5, 4))
    layout = layout_of(config)
    cov = np.random.default_rng(0).standard_normal(layout.block_offsets[-1])
    assert np.array_equal(layout.pack_blocks(layout.unpack_blocks(cov)), cov)


def test_the_prior_grows_without_changing_what_was_there() -> None:
    """A column's draws depend on the column and the unit alone."""
    small, large = Config(inputs=2, hidden=(3,)), Config(inputs=4, hidden=(3,))
    few = layout_of(small).weight_matrix(init(small, 5).mean, 0)
    many = layout_of(large).weight_matrix(init(large, 5).mean, 0)
    assert np.allclose(few * np.sqrt(3.0), many[:, :3] * np.sqrt(5.0))


def test_a_covariance_that_cannot_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="choose fewer units or 'neuron'"):
        layout_of(Config(inputs=300, hidden=(2000,), covariance="full"))
