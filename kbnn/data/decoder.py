"""Decode the columns of a chunk, collect row errors, and add new columns and labels to the schema.

Everything happens in row order, and within a row in column order, so that kinds, classes and
categories do not depend on how rows are grouped into chunks. Labels of a hashed column are mapped
to a fixed number of buckets by their text alone, so no table of labels is stored; labels in the
same bucket are the same input to the network.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from kbnn.array_types import FloatArray
from kbnn.data.cells import CellDecoder, DecodedColumn, check_new_class
from kbnn.data.chunk import Chunk, RowError, shorten
from kbnn.data.column_types import (
    ColumnSample,
    Notice,
    detect_column_format,
    infer_kind,
    report_column,
    sample_column,
)
from kbnn.data.number_format import NumberMarks, report_number_formats
from kbnn.data.schema import MAX_LATE_COLUMNS, Column, ColumnKind, Schema
from kbnn.data.values import (
    MAX_LABEL_LENGTH,
    Labels,
    MissingSpellings,
    find_present_rows,
    read_texts,
)
from kbnn.targets.registry import TARGET_TYPES


class ChunkDecoder:
    """Decodes one chunk; the steps must be called in the order in which they are defined."""

    def __init__(
        self,
        schema: Schema,
        chunk: Chunk,
        missing: MissingSpellings,
        *,
        stop: bool,
        admit: bool,
        use_target: bool,
        late: bool = False,
        notice: Notice,
    ) -> None:
        self.schema = schema
        self.chunk = chunk
        self.size = chunk.size
        self.stop = stop
        self.values: dict[str, FloatArray] = {}
        self.labels: dict[str, Labels] = {}
        self.time: FloatArray | None = None
        self.admitted: dict[int, int] = {}  # column of x -> row in which it first appears
        self.good = np.ones(self.size, np.bool_)
        self.tiny_columns: set[str] = set()  # columns with values that count as 0
        self._errors: dict[int, tuple[int, RowError]] = {}  # row -> (rank of its column, error)
        self._missing = missing
        self._admit = admit
        self._use_target = use_target
        self._late = late
        self._notice = notice
        self._places = {name: at for at, name in enumerate(chunk.batch.schema.names)}
        self._rank = {column.name: at for at, column in enumerate(schema.columns)}
        for at, row_error in chunk.row_errors.items():
            self._add_row_error(at, -1, row_error)

    @property
    def row_errors(self) -> dict[int, RowError]:
        """The error of each bad row, in row order; only the first one if it stops the stream."""
        found = {at: row_error for at, (_, row_error) in sorted(self._errors.items())}
        return dict(list(found.items())[:1]) if self.stop else found

    def _add_row_error(self, at: int, rank: int, row_error: RowError) -> None:
        """Record a row error; of several in one row, the one of the first column is kept."""
        if at not in self._errors or rank < self._errors[at][0]:
            self._errors[at] = (rank, row_error)
        self.good[at : None if self.stop else at + 1] = False

    def _get_array(self, name: str) -> pa.Array:
        at = self._places.get(name)
        return pa.nulls(self.size) if at is None else self.chunk.batch.column(at)

    def _make_cells(self, column: Column) -> CellDecoder:
        # With an id, the row with the features has the weight.
        gap_weight = np.nan if self.schema.id is None else 1.0
        return CellDecoder(
            column, self._missing, self.schema.clock, grows=self._admit, gap_weight=gap_weight
        )

    def read_numbers(self) -> None:
        """Read numbers, booleans and times, and record values that cannot be used.

        A chunk of plain decimals needs no checks: none is missing or out of range.
        """
        is_plain = self.chunk.is_plain and not self._missing.has_own
        for column in self.schema.list_used(self._use_target):
            name = column.name
            any_size = column.kind == "number" and column.role in ("feature", "target")
            if is_plain and any_size and name in self._places:
                self.values[name] = self._get_array(name).to_numpy()
            elif column.kind in ("number", "boolean"):
                self._read_column(column)
            elif column.kind == "time":
                decoded = self._make_cells(column).decode_times(self._get_array(name))
                self.time = self._record_errors(column, decoded)

    def _read_column(self, column: Column) -> None:
        name = column.name
        decoded = self._make_cells(column).decode_numbers(
            self._get_array(name), self.chunk.typed.get(name)
        )
        if decoded.has_tiny:
            self.tiny_columns.add(name)
        self.values[name] = self._record_errors(column, decoded)

    def _record_errors(self, column: Column, decoded: DecodedColumn) -> FloatArray:
        for at, row_error in decoded.errors.items():
            self._add_row_error(at, self._rank[column.name], row_error)
        return decoded.values

    def read_ids(self) -> list[str | None] | None:
        """Read the id of each row; None if the stream has no id column."""
        name = self.schema.id
        return None if name is None else read_texts(self._get_array(name), self._missing)

    def decide_kinds(self) -> None:
        """Infer the kind of columns with a first value, in row order; new columns come last."""
        if not self._admit:
            return
        waiting = {
            column.name: (self._rank[column.name], column.name)
            for column in self.schema.list_used(self._use_target)
            if column.kind == "undecided" and column.role == "feature"
        }
        new = [name for name in self._places if name not in self._rank] if self._late else []
        waiting.update((name, (len(self._rank), name)) for name in new if name)
        held = {name: find_present_rows(self._get_array(name), self._missing) for name in waiting}
        while True:
            firsts = [
                (int(np.argmax(held[name] & self.good)), rank)
                for name, rank in waiting.items()
                if (held[name] & self.good).any()
            ]
            if not firsts:
                return
            at, (_, name) = min(firsts)
            del waiting[name]
            seen = sample_column([self._get_array(name).slice(at, 1)], self._missing)
            first = f"{self.chunk.source}: the column '{shorten(name)}' comes first in row"
            first = f"{first} {self.chunk.first_row + at:,}"
            column = decide_column(self.schema, name, seen, first, self._notice)
            self._rank.setdefault(name, len(self._rank))
            if column.kind in ("number", "boolean"):
                self._read_column(column)

    def _find_new_labels(self, found: Labels, known: dict[str, int]) -> list[tuple[int, int]]:
        """Find unknown labels, each as (first good row that has it, its code)."""
        codes = np.where(self.good, found.codes, -1)
        unknown = [at for at, name in enumerate(found.names) if name not in known]
        firsts = [(int(np.argmax(codes == at)), at) for at in unknown if (codes == at).any()]
        return sorted(firsts)

    def read_classes(self) -> None:
        """Read the target of a classification as class indices; new classes are added."""
        schema = self.schema
        if not TARGET_TYPES[schema.task].labels or not self._use_target:
            return
        column = schema.get_column(schema.targets[0])
        numbers = None if column.kind == "category" else self.values[column.name]
        found = self._make_cells(column).decode_classes(self._get_array(column.name), numbers)
        known = {name: at for at, name in enumerate(schema.classes)}
        for row, at in self._find_new_labels(found, known):
            if self.stop and not self.good[row]:
                break
            name = found.names[at]
            refusal = check_new_class(schema, column, name, grows=self._admit)
            if refusal is None:
                known[name] = len(schema.classes)
                schema.classes.append(name)
                continue
            for position in np.flatnonzero((found.codes == at) & self.good).tolist():
                self._add_row_error(position, self._rank[column.name], refusal)
        index = np.array([known.get(name, np.nan) for name in found.names] + [np.nan], np.float64)
        self.values[column.name] = index[found.codes]

    def read_categories(self) -> None:
        """Read category columns; new categories are added in row order, then column order."""
        events: list[tuple[int, int, Column, str]] = []
        for column in self.schema.list_used(self._use_target):
            if column.kind == "category" and column.role == "feature":
                found, has_long = self._make_cells(column).decode_labels(
                    self._get_array(column.name)
                )
                if has_long:
                    self._notice(
                        f"{self.chunk.source}: column '{shorten(column.name)}': a text of more "
                        f"than {MAX_LABEL_LENGTH} characters cannot be a category: read as missing"
                    )
                self.labels[column.name] = found
                known = {name: at for at, name in enumerate(column.categories)}
                rank = self._rank[column.name]
                new = self._find_new_labels(found, known) if self._admit else []
                events += [(row, rank, column, found.names[at]) for row, at in new]
        full: dict[str, None] = {}
        for row, _, column, name in sorted(events, key=lambda event: event[:2]):
            first = not column.categories
            place = self.schema.add_category(column, name)
            if place is None:
                full[column.name] = None
            if place is not None and (column.late or not first):
                self.admitted[place] = row
        for name in full:
            shown, most = shorten(name), self.schema.max_categories
            self._notice(
                f"column '{shown}' has more than {most} values: those after the first {most} are "
                f"treated alike (--hash {shown}:32 assigns every value to one of 32 inputs)"
            )


def decide_column(
    schema: Schema, name: str, seen: ColumnSample, first: str, notice: Notice
) -> Column:
    """Infer the kind of an undecided column, or add a new column, from its first value.

    `first` says where a new column comes from.
    """
    marks = NumberMarks(schema.decimal, schema.thousands)
    form = detect_column_format(seen, marks)
    kind, what = infer_kind(seen, form)
    column = next((column for column in schema.columns if column.name == name), None)
    if column is not None:
        column.kind = kind
        if kind == "ignored":
            notice(f"column '{name}' is ignored: it holds {what}")
    else:
        column = _add_late_column(schema, name, kind, what, first, notice)
    if column.kind == "number":
        column.form = form
        report_number_formats({name: form}, {name: seen.present_values}, marks, notice)
    report_column(column, seen, notice)
    return column


def _add_late_column(
    schema: Schema, name: str, kind: ColumnKind, what: str, first: str, notice: Notice
) -> Column:
    if kind != "ignored" and schema.late_feature_count >= MAX_LATE_COLUMNS:
        kind = "ignored"
        notice(f"{first} and is ignored: at most {MAX_LATE_COLUMNS} columns may come late")
    elif kind == "ignored":
        notice(f"{first} and is ignored: it holds {what}")
    else:
        notice(f"{first}: it is learned from now on (--features names those to learn)")
    return schema.add_late_column(name, kind)
