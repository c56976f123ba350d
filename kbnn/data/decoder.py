"""Decode the columns of a chunk, collect row errors, and add new columns and labels to the schema.

Everything happens in row order, and within a row in column order, so that kinds, classes and
categories do not depend on how rows are grouped into chunks. Labels of a hashed column are mapped
to a fixed number of buckets by their text alone, so no table of labels is stored; labels in the
same bucket are the same input to the network.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Final, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kbnn.array_types import FloatArray
from kbnn.core.kernel import exceeds_limits
from kbnn.data.batch import MAX_ABS_VALUE, MIN_ABS_VALUE
from kbnn.data.chunk import Chunk, RowError, shorten
from kbnn.data.column_types import (
    Notice,
    detect_column_format,
    infer_kind,
    report_column,
    sample_column,
)
from kbnn.data.number_format import (
    PLAIN_FORM,
    NumberMarks,
    report_number_formats,
    suggest_mark_option,
)
from kbnn.data.schema import MAX_BUCKETS, MAX_CLASSES, MAX_LATE_COLUMNS, Column, ColumnKind, Schema
from kbnn.data.timestamps import parse_times
from kbnn.data.values import (
    MAX_LABEL_LENGTH,
    Labels,
    ParsedNumbers,
    are_default_tokens,
    encode_labels,
    find_present_rows,
    number_to_text,
    parse_booleans,
    parse_numbers,
    read_texts,
)
from kbnn.errors import UsageError
from kbnn.targets.registry import TARGET_TYPES, suggest_task_option

OnError = Literal["stop", "skip", "keep"]
_SKIP_HINT: Final = "use --on-error skip"


class ColumnDecoder:
    """Decodes one chunk; the steps must be called in the order in which they are defined."""

    def __init__(
        self,
        schema: Schema,
        chunk: Chunk,
        tokens: pa.Array,
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
        self.row_errors: dict[
            int, tuple[int, RowError]
        ] = {}  # row -> (position of the column, error)
        self.good = np.ones(self.size, np.bool_)
        self._tokens = tokens
        self._admit = admit
        self._use_target = use_target
        self._late = late
        self._notice = notice
        self.tiny_columns: set[str] = set()  # columns with values that count as 0
        self._places = {name: at for at, name in enumerate(chunk.batch.schema.names)}
        self._rank = {column.name: at for at, column in enumerate(schema.columns)}
        for at, row_error in chunk.row_errors.items():
            self._add_row_error(at, -1, row_error)

    def _add_row_error(self, at: int, rank: int, row_error: RowError) -> None:
        """Record a row error; of several in one row, the one of the first column is kept."""
        if at not in self.row_errors or rank < self.row_errors[at][0]:
            self.row_errors[at] = (rank, row_error)
        self.good[at : None if self.stop else at + 1] = False

    def _get_array(self, name: str) -> pa.Array:
        at = self._places.get(name)
        return pa.nulls(self.size) if at is None else self.chunk.batch.column(at)

    def _used_columns(self) -> list[Column]:
        """The columns that are read at all."""
        unused = {"none"} if self._use_target else {"none", "target", "weight"}
        return [column for column in self.schema.columns if column.role not in unused]

    def read_numbers(self) -> None:
        """Read numbers, booleans and times, and record values that cannot be used.

        A table of plain decimals needs no checks: none is missing or out of range.
        """
        table = self.chunk.table if are_default_tokens(self._tokens) else None
        for column in self._used_columns():
            at = self._places.get(column.name)
            any_size = column.kind == "number" and column.role in ("feature", "target")
            if table is not None and at is not None and any_size:
                self.values[column.name] = table[at]
            elif column.kind in ("number", "boolean"):
                self._read_column(column)
            elif column.kind == "time":
                self._read_time(column)

    def _read_time(self, column: Column) -> None:
        clock = self.schema.clock
        assert clock is not None
        read = parse_times(self._get_array(column.name), clock.unit, clock.day_first, self._tokens)
        for at, text in read.unparsed.items():
            shown = shorten(text)
            reason = f"cannot read '{shown}' as a timestamp"
            remedy = f"use --na '{shown}' or --on-error skip"
            self._add_row_error(
                at, self._rank[column.name], RowError(column.name, text, reason, remedy)
            )
        self.time = read.values

    def _read_column(self, column: Column) -> None:
        name, rank = column.name, self._rank[column.name]
        if column.kind == "number":
            sign = f" with '{column.form.sign}'" if column.form.sign else ""
            read, what = self._parse_numbers(column), f"a number{sign}"
        else:
            read, what = parse_booleans(self._get_array(name), self._tokens), "true or false"
        for at, text in read.unparsed.items():
            reason = f"cannot read '{shorten(text)}' as {what}"
            self._add_row_error(
                at, rank, RowError(name, text, reason, self._suggest_fix(column, text))
            )
        values = read.values
        large, small = exceeds_limits(values, MIN_ABS_VALUE, MAX_ABS_VALUE)
        if large:
            self._reject_rows(column, np.isinf(values), values, "{} is not a finite number")
            vast = np.isfinite(values) & (np.abs(values) > MAX_ABS_VALUE)
            limit = f"{MAX_ABS_VALUE:g}"
            self._reject_rows(column, vast, values, "{} is too large (limit " + limit + ")")
        if column.role == "weight" and self.schema.id is not None:
            values = np.nan_to_num(values, nan=1.0)  # the row with the features has the weight
        if column.role == "weight":
            self._reject_rows(column, ~(values > 0), values, "a weight must be positive, not {}")
        elif column.role == "input_sd":
            self._reject_rows(column, values < 0, values, "a standard deviation cannot be {}")
            values = np.nan_to_num(values, nan=0.0)
        if small and column.role != "weight":
            self.tiny_columns.add(name)
            values = np.where(np.abs(values) < MIN_ABS_VALUE, 0.0, values)
        self.values[name] = values

    def _parse_numbers(self, column: Column) -> ParsedNumbers:
        """Parse the texts of a column in its number format; typed numbers are used as they are."""
        array = self._get_array(column.name)
        read = parse_numbers(array, self._tokens, column.form)
        typed = self.chunk.typed.get(column.name)
        if typed is None or column.form.is_plain:
            return read
        plain = parse_numbers(array, self._tokens)
        unread = {at: text for at, text in read.unparsed.items() if not typed[at]}
        return ParsedNumbers(np.where(typed, plain.values, read.values), unread)

    def _suggest_fix(self, column: Column, text: str) -> str:
        """Suggest options for a text that is not a number, or not a boolean."""
        shown, name = shorten(text), shorten(column.name)
        marks = (
            suggest_mark_option(text, column.form)
            if column.kind == "number" and self._admit
            else None
        )
        if marks is not None:
            return f"use {marks}, or --on-error skip"
        plain = PLAIN_FORM.parse_number(text) is not None
        code = (not plain and any(map(str.isdigit, text))) or (text.isupper() and len(text) <= 3)
        if self._admit and column.role == "feature" and code:
            return (
                f"use --categorical {name} if these are labels, --na '{shown}' or --on-error skip"
            )
        return f"use --na '{shown}' or --on-error skip"

    def _reject_rows(
        self, column: Column, where: npt.NDArray[np.bool_], values: FloatArray, reason: str
    ) -> None:
        for at in np.flatnonzero(where).tolist():
            shown = "missing" if np.isnan(values[at]) else number_to_text(values[at])
            row_error = RowError(column.name, shown, reason.format(shown), _SKIP_HINT)
            self._add_row_error(at, self._rank[column.name], row_error)

    def read_ids(self) -> list[str | None] | None:
        """Read the id of each row; None if the stream has no id column."""
        name = self.schema.id
        return None if name is None else read_texts(self._get_array(name), self._tokens)

    def decide_kinds(self) -> None:
        """Infer the kind of columns with a first value, in row order; new columns come last."""
        if not self._admit:
            return
        waiting = {
            column.name: (self._rank[column.name], column.name)
            for column in self._used_columns()
            if column.kind == "undecided" and column.role == "feature"
        }
        new = [name for name in self._places if name not in self._rank] if self._late else []
        waiting.update((name, (len(self._rank), name)) for name in new if name)
        held = {name: find_present_rows(self._get_array(name), self._tokens) for name in waiting}
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
            seen = sample_column([self._get_array(name).slice(at, 1)], self._tokens)
            marks = NumberMarks(self.schema.decimal, self.schema.thousands)
            form = detect_column_format(seen, marks)
            kind, what = infer_kind(seen, form)
            column = self._set_kind(name, kind, what, at)
            if kind == "number" and column.kind == "number":
                column.form = form
                report_number_formats(
                    {name: form}, {name: seen.present_values}, marks, self._notice
                )
            report_column(column, seen, self._notice)
            if column.kind in ("number", "boolean"):
                self._read_column(column)

    def _set_kind(self, name: str, kind: ColumnKind, what: str, at: int) -> Column:
        """Set the kind of an undecided column, or add a new column of that kind."""
        if name in self._rank:
            column = self.schema.get_column(name)
            column.kind = kind
            if kind == "ignored":
                self._notice(f"column '{name}' is ignored: it holds {what}")
            return column
        first = f"{self.chunk.source}: the column '{shorten(name)}' comes first in row"
        first = f"{first} {self.chunk.first_row + at:,}"
        if kind != "ignored" and self.schema.late_feature_count >= MAX_LATE_COLUMNS:
            kind = "ignored"
            self._notice(
                f"{first} and is ignored: at most {MAX_LATE_COLUMNS} columns may come late"
            )
        elif kind == "ignored":
            self._notice(f"{first} and is ignored: it holds {what}")
        else:
            self._notice(f"{first}: it is learned from now on (--features names those to learn)")
        self._rank[name] = len(self._rank)
        return self.schema.add_late_column(name, kind)

    def _find_new_labels(
        self, column: Column, found: Labels, known: dict[str, int]
    ) -> list[tuple[int, int]]:
        """Find unknown labels, each as (first good row that has it, its code)."""
        codes = np.where(self.good, found.codes, -1)
        unknown = [at for at, name in enumerate(found.names) if name not in known]
        firsts = [(int(np.argmax(codes == at)), at) for at in unknown if (codes == at).any()]
        return sorted(firsts)

    def read_classes(self) -> None:
        """Read the target of a classification as class indices; new classes are added."""
        if not TARGET_TYPES[self.schema.task].labels or not self._use_target:
            return
        column = self.schema.get_column(self.schema.targets[0])
        found = self._read_class_labels(column)
        known = {name: at for at, name in enumerate(self.schema.classes)}
        for row, at in self._find_new_labels(column, found, known):
            if self.stop and not self.good[row]:
                break
            name = found.names[at]
            refusal = self._check_new_class(column, name)
            if refusal is None:
                known[name] = len(self.schema.classes)
                self.schema.classes.append(name)
                continue
            for position in np.flatnonzero((found.codes == at) & self.good).tolist():
                self._add_row_error(position, self._rank[column.name], refusal)
        index = np.array([known.get(name, np.nan) for name in found.names] + [np.nan], np.float64)
        self.values[column.name] = index[found.codes]

    def _read_class_labels(self, column: Column) -> Labels:
        if column.kind == "category":
            return encode_labels(self._get_array(column.name), self._tokens)
        values = self.values[column.name]
        names = ["false", "true"] if column.kind == "boolean" else []
        codes = np.full(self.size, -1, np.int64)
        there = ~np.isnan(values)
        if column.kind == "boolean":
            codes[there] = values[there].astype(np.int64)
            return Labels(names, codes)
        unique, inverse = np.unique(values[there], return_inverse=True)
        codes[there] = inverse
        return Labels([number_to_text(value) for value in unique.tolist()], codes)

    def _check_new_class(self, column: Column, name: str) -> RowError | None:
        """Return why a class cannot be added; None if it can."""
        shown = shorten(name)
        if len(name) > MAX_LABEL_LENGTH:
            reason = (
                f"class labels are limited to {MAX_LABEL_LENGTH} characters (got {len(name):,})"
            )
            return RowError(column.name, name, reason, _SKIP_HINT)
        if self.schema.closed:
            reason = f"{shown} is neither {' nor '.join(self.schema.classes)}"
            value = float(name) if column.kind == "number" else None
            return RowError(column.name, name, reason, suggest_task_option(value))
        if not self._admit:
            return RowError(column.name, name, f"class '{shown}' was never learned", _SKIP_HINT)
        if len(self.schema.classes) >= MAX_CLASSES:
            reason = f"'{shown}' would be class {MAX_CLASSES + 1}, the limit is {MAX_CLASSES}"
            return RowError(column.name, name, reason, _SKIP_HINT)
        return None

    def _read_category_labels(self, column: Column) -> Labels:
        """Read the labels of a feature; a text that is too long counts as missing."""
        found = encode_labels(self._get_array(column.name), self._tokens)
        if column.buckets:
            return hash_labels(found, column.buckets)
        long = [at for at, name in enumerate(found.names) if len(name) > MAX_LABEL_LENGTH]
        if long:
            found.codes[np.isin(found.codes, long)] = -1
            self._notice(
                f"{self.chunk.source}: column '{shorten(column.name)}': a text of more than "
                f"{MAX_LABEL_LENGTH} characters cannot be a category: read as missing"
            )
        return found

    def read_categories(self) -> None:
        """Read category columns; new categories are added in row order, then column order."""
        events: list[tuple[int, int, Column, str]] = []
        for column in self._used_columns():
            if column.kind == "category" and column.role == "feature":
                found = self._read_category_labels(column)
                self.labels[column.name] = found
                known = {name: at for at, name in enumerate(column.categories)}
                rank = self._rank[column.name]
                new = self._find_new_labels(column, found, known) if self._admit else []
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


def hash_label(label: str, buckets: int) -> str:
    """Return the bucket of a label, crc32(label) mod buckets, as the name of a category."""
    return f"#{zlib.crc32(label.encode()) % buckets}"


def hash_labels(found: Labels, buckets: int) -> Labels:
    """Replace labels by their buckets."""
    names: dict[str, int] = {}
    at = [names.setdefault(hash_label(name, buckets), len(names)) for name in found.names]
    codes = np.array([*at, -1], np.int64)[found.codes]
    return Labels(list(names), codes)


def parse_hash_options(texts: Sequence[str]) -> tuple[tuple[str, int], ...]:
    """Parse texts such as `device:32` to pairs of a column and its number of buckets."""
    pairs = []
    for text in texts:
        name, _, number = text.rpartition(":")
        if not name or not number.isdecimal() or not 2 <= int(number) <= MAX_BUCKETS:
            raise UsageError(
                "--hash takes COLUMN:BUCKETS such as device:32, with 2 to "
                f"{MAX_BUCKETS:,} buckets, not '{text}'"
            )
        pairs.append((name, int(number)))
    return tuple(pairs)


def check_conflicting_kinds(
    categorical: Sequence[str], numeric: Sequence[str], hashed: Sequence[tuple[str, int]]
) -> None:
    """Raise UsageError if two options state the kind of one column."""
    stated: dict[str, str] = {}
    for option, names in (
        ("--categorical", categorical),
        ("--numeric", numeric),
        ("--hash", [name for name, _ in hashed]),
    ):
        for name in dict.fromkeys(names):
            if name in stated:
                raise UsageError(f"column '{name}' cannot be both {stated[name]} and {option}")
            stated[name] = option
