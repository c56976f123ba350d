"""Blocks cut, joined, reordered and widened."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from kbnn.stream.encode import Block, taken

__all__ = ["joined", "sliced", "taken", "widened"]


def sliced(block: Block, start: int, stop: int) -> Block:
    """The rows from `start` up to `stop`, without copying."""
    return Block(
        block.x[start:stop],
        None if block.x_sd is None else block.x_sd[start:stop],
        block.y[start:stop],
        None if block.weight is None else block.weight[start:stop],
        block.rows[start:stop],
        None if block.batch is None else block.batch.slice(start, stop - start),
    )


def widened(block: Block, width: int) -> Block:
    """Zeros appended on the right for categories admitted since."""
    gap = width - block.x.shape[1]
    if gap == 0:
        return block
    x_sd = None if block.x_sd is None else np.pad(block.x_sd, ((0, 0), (0, gap)))
    return block._replace(x=np.pad(block.x, ((0, 0), (0, gap))), x_sd=x_sd)


def joined(parts: Sequence[Block], width: int) -> Block:
    """All rows of several blocks, one after another."""
    parts = [widened(part, width) for part in parts]
    x_sd = [part.x_sd for part in parts if part.x_sd is not None]
    weight = [part.weight for part in parts if part.weight is not None]
    batches = [part.batch for part in parts if part.batch is not None]
    return Block(
        np.concatenate([part.x for part in parts]),
        np.concatenate(x_sd) if x_sd else None,
        np.concatenate([part.y for part in parts]),
        np.concatenate(weight) if weight else None,
        np.concatenate([part.rows for part in parts]),
        _one_batch(batches) if batches else None,
    )


def _one_batch(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Batches as one; sources may differ in their extra columns and their types."""
    tables = [pa.Table.from_batches([batch]) for batch in batches]
    try:
        table = pa.concat_tables(tables, promote_options="permissive")
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        as_text = [table.cast(pa.schema([(n, pa.string()) for n in table.schema.names]))
                   for table in tables]  # fmt: skip
        table = pa.concat_tables(as_text, promote_options="default")
    return table.combine_chunks().to_batches()[0]
