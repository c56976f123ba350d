"""Rows held out of learning: chosen by their number in the source and a seed alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kbnn.core.layout import IntArray
from kbnn.model.rows import Rows
from kbnn.score.reservoir import hash_row_order
from kbnn.stream.blocks import take_rows

_HELD_OUT_SALT: Final = 0x5EED_7E57
"""Another choice than that of the rows sampled for pictures."""


def is_held_out(number: IntArray, share: float, seed: int) -> NDArray[np.bool_]:
    """Which rows are held out."""
    return hash_row_order(number.astype(np.float64), seed + _HELD_OUT_SALT) < share


def select_split(
    blocks: Iterator[Rows], share: float, seed: int, *, testing: bool
) -> Iterator[Rows]:
    """The rows that are held out, or those that are not; blocks without any vanish."""
    for block in blocks:
        wanted = is_held_out(block.number, share, seed) == testing
        if wanted.all():
            yield block
        elif wanted.any():
            yield take_rows(block, np.flatnonzero(wanted))
