"""Rows joined, reordered and widened, with the columns as they were read."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from kbnn.core.layout import IntArray
from kbnn.model.rows import Rows, make_fill_values, pad_columns
from kbnn.model.schema import Schema
from kbnn.stream.values import cast_to_text


def take_rows(rows: Rows, order: IntArray) -> Rows:
    """The rows of the given positions, in that order."""
    return Rows(
        rows.x[order],
        rows.y[order],
        rows.number[order],
        None if rows.x_sd is None else rows.x_sd[order],
        None if rows.weight is None else rows.weight[order],
        None if rows.unreadable is None else rows.unreadable[order],
        rows.schema,
        None if rows.original is None else rows.original.take(pa.array(order)),
        None if rows.time is None else rows.time[order],
        None if rows.id is None else [rows.id[at] for at in order.tolist()],
    )


def widen_batch(rows: Rows, schema: Schema | None, width: int) -> Rows:
    """Columns appended on the right for what was admitted since: categories 0, numbers missing."""
    known = rows.x.shape[1]
    if width == known:
        return rows
    indicators = np.ones(width)
    if schema is not None:
        indicators[:] = [place.category is not None for place in schema.layout]
    x_sd = None if rows.x_sd is None else np.pad(rows.x_sd, ((0, 0), (0, width - known)))
    return rows._replace(x=pad_columns(rows.x, width, make_fill_values(indicators)), x_sd=x_sd)


def concat_rows(parts: Sequence[Rows]) -> Rows:
    """All rows of several blocks, one after another; the last knows the schema."""
    width = parts[-1].x.shape[1]
    parts = [widen_batch(part, parts[-1].schema, width) for part in parts]
    x_sd = [part.x_sd for part in parts if part.x_sd is not None]
    weight = [part.weight for part in parts if part.weight is not None]
    batches = [part.original for part in parts if part.original is not None]
    time = [part.time for part in parts if part.time is not None]
    unreadable = [
        np.zeros(len(part.y), np.bool_) if part.unreadable is None else part.unreadable
        for part in parts
    ]
    return Rows(
        np.concatenate([part.x for part in parts]),
        np.concatenate([part.y for part in parts]),
        np.concatenate([part.number for part in parts]),
        np.concatenate(x_sd) if x_sd else None,
        np.concatenate(weight) if weight else None,
        np.concatenate(unreadable) if any(part.any() for part in unreadable) else None,
        parts[-1].schema,
        _concat_batches(batches) if batches else None,
        np.concatenate(time) if time else None,
        _concat_ids(parts),
    )


def _concat_ids(parts: Sequence[Rows]) -> list[str | None] | None:
    if all(part.id is None for part in parts):
        return None
    return [name for part in parts for name in part.id or [None] * len(part.y)]


def _concat_batches(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Batches as one; sources may differ in their extra columns and their types."""
    tables = [pa.Table.from_batches([batch]) for batch in batches]
    try:
        table = pa.concat_tables(tables, promote_options="permissive")
    except pa.ArrowException:
        written = [
            pa.table({name: cast_to_text(batch.column(name)) for name in batch.schema.names})
            for batch in batches
        ]
        table = pa.concat_tables(written, promote_options="default")
    return table.combine_chunks().to_batches()[0]
