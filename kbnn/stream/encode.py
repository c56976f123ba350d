"""Encode rows to arrays: schema and chunk in, Rows out, and the flaws of the rows left out.

Nothing here depends on how rows are grouped into chunks. Categories and classes are admitted row by
row, and within a row in the order of the columns; a block is as wide as the schema at its end, with
0 in an indicator column for rows before its category was first seen, which is what a narrower
earlier block stands for. A missing category is NaN in the indicators known by that row.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from kbnn.core.engine import stack_columns
from kbnn.model.rows import MIN_ABS_VALUE, Rows
from kbnn.model.schema import Schema
from kbnn.score.rowsums import BoolArray
from kbnn.stream.admission import ColumnDecoder, OnError
from kbnn.stream.blocks import take_rows
from kbnn.stream.chunk import Chunk, RowError
from kbnn.stream.dead_columns import DeadColumns
from kbnn.stream.hints import Notice
from kbnn.stream.sentinels import SentinelDetector
from kbnn.stream.values import FloatArray, IntArray, missing_tokens
from kbnn.stream.watch import ClockMonitor


class EncodedChunk(NamedTuple):
    """The rows (None: none is left), the flawed ones, and whether the first of them ends it all."""

    rows: Rows | None
    row_errors: dict[int, RowError]
    stopped: bool


class ChunkEncoder:
    """Turns chunks into blocks and lets the schema grow on the way."""

    def __init__(
        self,
        schema: Schema,
        *,
        on_error: OnError = "stop",
        admit: bool = True,
        use_target: bool = True,
        original: bool = False,
        late: bool = False,
        keyed: bool = False,
        notice: Notice = lambda text: None,
    ) -> None:
        self.schema = schema
        self._sent_schema = schema.copy()  # what goes out with rows is nobody's to change
        self._size = measure_schema(schema)  # of what was told
        self._on_error = on_error
        self._admit = admit
        self._use_target = use_target
        self._original = original
        self._late = late
        self._notice = notice
        self._tiny: set[str] = set()
        self._watch = ClockMonitor(schema, notice, keyed=keyed)
        self._sentinels = SentinelDetector(notice)
        self._dead_columns = DeadColumns(notice)
        self._tokens = pa.array(missing_tokens(schema.missing), pa.string())

    def encode(self, chunk: Chunk) -> EncodedChunk:
        """Encode all rows of a chunk, in order."""
        found = ColumnDecoder(
            self.schema,
            chunk,
            self._tokens,
            stop=self._on_error == "stop",
            admit=self._admit,
            use_target=self._use_target,
            late=self._late,
            notice=self._notice,
        )
        found.read_numbers()
        self._report_tiny_values(found.tiny_columns)
        self._watch.check_chunk(found.time, chunk)
        found.decide_kinds()
        found.read_classes()
        found.read_categories()
        if self._admit:
            self._sentinels.check_chunk(found.values, found.good, chunk)
        flaws = {at: flaw for at, (_, flaw) in sorted(found.row_errors.items())}
        stopped = found.stop and bool(flaws)
        if stopped:
            first = min(flaws)
            flaws = {first: flaws[first]}
        size = measure_schema(self.schema)
        if size != self._size:
            self._sent_schema, self._size = self.schema.copy(), size
        if self._on_error == "keep":
            rows = self._make_rows(found, None, ~found.good if flaws else None)
        elif found.good.all():
            rows = self._make_rows(found, None, None)
        elif found.good.any():
            rows = self._make_rows(found, np.flatnonzero(found.good), None)
        else:
            return EncodedChunk(None, flaws, stopped)
        if self._admit:
            self._dead_columns.look(rows, self._sent_schema, chunk.source)
        return EncodedChunk(rows, flaws, stopped)

    def _report_tiny_values(self, names: set[str]) -> None:
        """Say once of each column that it has values too small to reckon with."""
        for name in sorted(names - self._tiny):
            self._notice(f"column '{name}': values closer to 0 than {MIN_ABS_VALUE:g} count as 0")
        self._tiny |= names

    def _make_rows(
        self, found: ColumnDecoder, chosen: IntArray | None, unreadable: BoolArray | None
    ) -> Rows:
        rows = _assemble_rows(found, unreadable, found.chunk.batch if self._original else None)
        rows = rows._replace(schema=self._sent_schema)
        return rows if chosen is None else take_rows(rows, chosen)


def measure_schema(schema: Schema) -> tuple[int, ...]:
    """Changes with every step in which a schema grows."""
    labels = sum(len(column.categories) for column in schema.columns)
    bare = sum(place.category is None for place in schema.layout)
    decided = sum(column.kind != "undecided" for column in schema.columns)
    return schema.width, bare, labels, decided, len(schema.classes)


def _assemble_rows(
    found: ColumnDecoder, unreadable: BoolArray | None, original: pa.RecordBatch | None
) -> Rows:
    """Put the arrays together, with nothing known about the spoilt rows."""
    schema, size = found.schema, found.size
    places: dict[str, list[int]] = {}
    for at, place in enumerate(schema.layout):
        places.setdefault(place.column, []).append(at)
    missing = np.full(size if places.keys() - found.values.keys() else 0, np.nan)
    x = stack_columns([found.values.get(place.column, missing) for place in schema.layout], size)
    for name in found.labels.keys() & places.keys():
        _fill_indicators(found, x, places[name], name)
    if schema.clock is not None and found.time is not None:
        x[:, [places[name][0] for name in schema.clock.names]] = schema.clock.encode_times(
            found.time
        )
    y = np.full((size, len(schema.targets)), np.nan)
    for at, name in enumerate(schema.targets):
        y[:, at] = found.values.get(name, np.nan)
    weight = found.values.get(schema.weight) if schema.weight else None
    x_sd = _assemble_input_sd(found, places)
    if unreadable is not None:
        rows = np.flatnonzero(unreadable)
        for at in range(schema.width):
            x[rows, at] = np.where(rows >= found.admitted.get(at, 0), np.nan, 0.0)
        y[rows] = np.nan
        weight = None if weight is None else np.where(unreadable, 1.0, weight)
        if x_sd is not None:
            x_sd[rows] = 0.0
    number = found.chunk.first_row + np.arange(size)
    return Rows(
        x,
        y,
        number,
        x_sd,
        weight,
        unreadable,
        original=original,
        time=found.time,
        id=found.read_ids(),
    )


def _fill_indicators(found: ColumnDecoder, x: FloatArray, own: list[int], name: str) -> None:
    """Set the indicator columns of one feature: 1 for the label, NaN when it is missing."""
    names, codes = found.labels[name]
    at = {found.schema.layout[place].category: place for place in own}
    x[:, own] = 0.0
    targets = np.array([at.get(label, -1) for label in names] + [-1], np.int64)[codes]
    rows = np.flatnonzero(targets >= 0)
    x[rows, targets[rows]] = 1.0
    missing = np.flatnonzero(codes < 0)
    for place in own:
        x[missing[missing >= found.admitted.get(place, 0)], place] = np.nan


def _assemble_input_sd(found: ColumnDecoder, places: dict[str, list[int]]) -> FloatArray | None:
    """The stated standard deviations, 0 for every input that has none."""
    pairs = [column for column in found.schema.columns if column.role == "input_sd"]
    if not pairs:
        return None
    x_sd = np.zeros((found.size, found.schema.width))
    for column in pairs:
        if column.of in places and found.schema.get_column(column.of).kind == "number":
            x_sd[:, places[column.of][0]] = found.values[column.name]
    return x_sd
