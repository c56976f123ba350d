"""Shuffle a stream of rows in bounded memory, the same way however the rows are grouped.

A buffer of `size` rows is kept; each further row takes the place of a random one, which leaves. At
the end the buffer leaves in random order. One random number is drawn for each row, in row order.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from kbnn.model.rows import Rows, slice_rows
from kbnn.stream.blocks import concat_rows, take_rows

SHUFFLE_ROWS: Final = 16_384


def shuffle_batches(blocks: Iterator[Rows], size: int, seed: int, epoch: int) -> Iterator[Rows]:
    """Blocks of the same rows in random order, as wide as the widest that came before."""
    random = np.random.default_rng([seed, epoch])
    held: Rows | None = None
    filling: list[Rows] = []
    room = size
    for block in blocks:
        rest = block
        if room > 0:
            head = slice_rows(block, 0, room)
            rest = slice_rows(block, room, len(block.y))
            filling.append(head)
            room -= len(head.y)
        if len(rest.y):
            if held is None:
                held, filling = concat_rows(filling), []
            slots = (random.random(len(rest.y)) * size).astype(np.int64)
            held, leaving = _exchange_rows(held, rest, slots.tolist())
            yield leaving
    if held is None and filling:
        held = concat_rows(filling)
    if held is not None:
        # Drawn like the others, one number a row, so that the order depends on nothing else.
        order = np.argsort(random.random(len(held.y)), kind="stable")
        yield take_rows(held, order)


def _exchange_rows(held: Rows, block: Rows, slots: list[int]) -> tuple[Rows, Rows]:
    """Put each row of `block` into its slot; what was there leaves, in that order."""
    size = len(held.y)
    pool = concat_rows([held, block])
    content = list(range(size))
    leaving: list[int] = []
    for row, slot in enumerate(slots, size):
        leaving.append(content[slot])
        content[slot] = row
    return take_rows(pool, np.array(content)), take_rows(pool, np.array(leaving))
