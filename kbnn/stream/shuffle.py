"""Shuffle a stream of rows in bounded memory, the same way however the rows are grouped.

A buffer of `size` rows is kept; each further row takes the place of a random one, which leaves. At
the end the buffer leaves in random order. One random number is drawn for each row, in row order.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from kbnn.model.rows import Rows, sliced
from kbnn.stream.blocks import joined, taken

SHUFFLE_ROWS: Final = 16_384


def shuffled(blocks: Iterator[Rows], size: int, seed: int, epoch: int) -> Iterator[Rows]:
    """Blocks of the same rows in random order, as wide as the widest that came before."""
    random = np.random.default_rng([seed, epoch])
    held: Rows | None = None
    filling: list[Rows] = []
    room = size
    for block in blocks:
        rest = block
        if room > 0:
            head = sliced(block, 0, room)
            rest = sliced(block, room, len(block.y))
            filling.append(head)
            room -= len(head.y)
        if len(rest.y):
            if held is None:
                held, filling = joined(filling), []
            slots = (random.random(len(rest.y)) * size).astype(np.int64)
            held, leaving = _exchanged(held, rest, slots.tolist())
            yield leaving
    if held is None and filling:
        held = joined(filling)
    if held is not None:
        # Drawn like the others, one number a row, so that the order depends on nothing else.
        order = np.argsort(random.random(len(held.y)), kind="stable")
        yield taken(held, order)


def _exchanged(held: Rows, block: Rows, slots: list[int]) -> tuple[Rows, Rows]:
    """Put each row of `block` into its slot; what was there leaves, in that order."""
    size = len(held.y)
    pool = joined([held, block])
    content = list(range(size))
    leaving: list[int] = []
    for row, slot in enumerate(slots, size):
        leaving.append(content[slot])
        content[slot] = row
    return taken(pool, np.array(content)), taken(pool, np.array(leaving))
