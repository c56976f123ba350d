"""The first rows of a stream, from which the kinds of its columns are inferred.

They are the first 32 that are whole, whatever chunks they came in. Where the target has no value in
them, reading goes on to its first value, so that the task can be told.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from kbnn.errors import DataError
from kbnn.stream.chunk import Chunk, RowError
from kbnn.stream.header import MAX_COLUMNS
from kbnn.stream.infer import INFERENCE_ROWS
from kbnn.stream.json_reader import JsonReader
from kbnn.stream.reading import ChunkReader
from kbnn.stream.values import find_present_rows

MAX_TARGET_SEARCH_ROWS: Final = 100_000  # rows read at most in search of a first target value


class FirstRows(NamedTuple):
    """The chunks read so far, the column names, and the values seen, piece by piece."""

    chunks: list[Chunk]
    names: list[str]
    seen: dict[str, list[pa.Array]]


def first_row_error(chunk: Chunk, flaws: dict[int, RowError]) -> DataError:
    """The error that ends a stream at its first flawed row."""
    at = min(flaws)
    remedy = f" ({flaws[at].remedy})" if flaws[at].remedy else ""
    return DataError(f"{chunk.make_bad_row(at, flaws[at])}{remedy}")


def read_first_rows(
    chunks: Iterator[Chunk],
    reading: ChunkReader,
    targets: tuple[str, ...],
    features: tuple[str, ...],
    tokens: pa.Array,
    stop: bool,
) -> FirstRows:
    """Read until the kinds can be inferred; with `stop`, a flawed row on the way is an error."""
    early: list[Chunk] = []
    parts: list[pa.RecordBatch] = []
    rows = last = 0
    for chunk in chunks:
        early.append(chunk)
        good = _find_good_rows(chunk, INFERENCE_ROWS - rows, stop)
        rows += len(good)
        last = chunk.first_row + int(good[-1]) if len(good) else last
        parts.append(chunk.batch.take(pa.array(good)))
        if rows >= INFERENCE_ROWS:
            break
    if not rows:
        raise DataError("no row can be used: every one is flawed")
    names = _resolve_names(reading, last, features)
    seen = {name: [_get_column(part, name) for part in parts] for name in names}
    for target in targets or tuple(names[-1:]):
        if target in seen:
            _find_first_value(target, seen[target], early, chunks, tokens, stop)
    return FirstRows(early, names, seen)


def _find_good_rows(
    chunk: Chunk, need: int, stop: bool
) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    # The first `need` whole rows are among the first that many and one more for each flaw.
    near = np.arange(min(chunk.size, need + len(chunk.row_errors)))
    good = np.setdiff1d(near, list(chunk.row_errors))[:need]
    if stop and chunk.row_errors and (len(good) < need or min(chunk.row_errors) < good[-1]):
        raise first_row_error(chunk, chunk.row_errors)
    return good


def _resolve_names(reading: ChunkReader, last: int, features: tuple[str, ...]) -> list[str]:
    """The columns; in JSON those whose key was seen by the last of the rows, or is a feature.

    Of more columns than are read only those that were chosen count.
    """
    reader = reading.first_reader
    if isinstance(reader, JsonReader):
        seen = reader.seen_at.items()
        names = [name for name, row in seen if row <= last or reading.opened_sources > 1]
        if not names:
            raise DataError(f"{reader.name}: every object is empty: there is no column")
        later = [name for name in dict.fromkeys(features) if name not in names]
        for name in later:
            reading.notice(f"{reader.name}: no '{name}' in the first rows: missing until it comes")
        first = [*later, *names]  # the last one seen stays the last
        reader.fix_columns(first)
    else:
        first = reading.columns
    wanted = reading.hints.wanted
    if wanted is not None and len(first) > MAX_COLUMNS:
        return [name for name in first if name in wanted]
    return first


def _get_column(batch: pa.RecordBatch, name: str) -> pa.Array:
    at = batch.schema.get_field_index(name)
    return batch.column(at) if at >= 0 else pa.nulls(batch.num_rows)


def _find_first_value(
    name: str,
    seen: list[pa.Array],
    early: list[Chunk],
    chunks: Iterator[Chunk],
    tokens: pa.Array,
    stop: bool,
) -> None:
    """Add the first value of a column to what was seen of it, unless there is one already."""
    if any(find_present_rows(array, tokens).any() for array in seen):
        return
    at = 0
    while True:
        if at == len(early):
            chunk = (
                next(chunks, None) if sum(c.size for c in early) < MAX_TARGET_SEARCH_ROWS else None
            )
            if chunk is None:
                return
            early.append(chunk)
        column = _get_column(early[at].batch, name)
        held = find_present_rows(column, tokens)
        held[list(early[at].row_errors)] = False
        flaws = [row for row in early[at].row_errors if not held[:row].any()]
        if stop and flaws:
            raise first_row_error(early[at], early[at].row_errors)
        if held.any():
            seen.append(column.slice(int(np.argmax(held)), 1))
            return
        at += 1
