"""Shuffle a stream of rows in bounded memory, the same way however the rows are grouped.

A buffer of `size` rows is kept; each further row takes the place of a random one, which leaves. At
the end the buffer leaves in random order. One random number is drawn for each row, in row order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import numpy as np

from kbnn.stream.blocks import joined, sliced, taken
from kbnn.stream.encode import Block

SHUFFLE_ROWS: Final = 16_384


def shuffled(
    blocks: Iterator[Block], size: int, seed: int, epoch: int, width: Callable[[], int]
) -> Iterator[Block]:
    """Blocks of the same rows in random order; x is as wide as `width()` says when it leaves."""
    random = np.random.default_rng([seed, epoch])
    held: Block | None = None
    filling: list[Block] = []
    room = size
    for block in blocks:
        rest = block
        if room > 0:
            head = sliced(block, 0, room)
            rest = sliced(block, room, len(block.rows))
            filling.append(head)
            room -= len(head.rows)
        if len(rest.rows):
            if held is None:
                held, filling = joined(filling, width()), []
            slots = (random.random(len(rest.rows)) * size).astype(np.int64)
            held, leaving = _exchanged(held, rest, slots.tolist(), width())
            yield leaving
    if held is None and filling:
        held = joined(filling, width())
    if held is not None:
        # Drawn like the others, one number a row, so that the order depends on nothing else.
        order = np.argsort(random.random(len(held.rows)), kind="stable")
        yield joined([taken(held, order)], width())


def _exchanged(held: Block, block: Block, slots: list[int], width: int) -> tuple[Block, Block]:
    """Put each row of `block` into its slot; what was there leaves, in that order."""
    size = len(held.rows)
    pool = joined([held, block], width)
    content = list(range(size))
    leaving: list[int] = []
    for row, slot in enumerate(slots, size):
        leaving.append(content[slot])
        content[slot] = row
    return taken(pool, np.array(content)), taken(pool, np.array(leaving))
