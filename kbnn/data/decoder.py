"""Decode cells and chunks: what a value of a file, a table or a Python row means in its column.

A `CellDecoder` holds the rules of one column: missing values, number format, booleans, timestamps,
labels and limits. It decodes a whole Arrow column or one Python value. Both ways use the same
tables and the same messages, so that a cell means the same wherever it comes from.

A `ChunkDecoder` decodes the columns of a chunk, collects row errors, and adds new columns and
labels to the schema. Everything happens in row order, and within a row in column order, so that
kinds, classes and categories do not depend on how rows are grouped into chunks. Labels of a hashed
column are mapped to a fixed number of buckets by their text alone, so no table of labels is stored;
labels in the same bucket are the same input to the network.
"""

from __future__ import annotations

import math
import zlib
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from kbnn.array_types import MAX_ABS_VALUE, MIN_ABS_VALUE, FloatArray
from kbnn.core.kernel import exceeds_limits
from kbnn.data.chunk import Chunk, RowError, shorten
from kbnn.data.clock import Clock
from kbnn.data.column_types import (
    ColumnSample,
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
from kbnn.data.schema import MAX_CLASSES, MAX_LATE_COLUMNS, Column, ColumnKind, Schema
from kbnn.data.timestamps import parse_time_value, parse_times
from kbnn.data.values import (
    BOOLEAN_VALUES,
    MAX_LABEL_LENGTH,
    Labels,
    MissingSpellings,
    ParsedNumbers,
    encode_labels,
    find_present_rows,
    is_encodable,
    normalize_cell,
    number_to_text,
    parse_booleans,
    parse_numbers,
    read_texts,
    value_to_text,
)
from kbnn.errors import DataError
from kbnn.targets.registry import TARGET_TYPES, suggest_task_option

SKIP_HINT: Final = "use --on-error skip"
_NAN: Final = math.nan


class DecodedColumn(NamedTuple):
    """The values of a column, NaN where missing, and the errors by row."""

    values: FloatArray  # (n,), or (n, 2) for times
    errors: dict[int, RowError]
    has_tiny: bool = False  # some values are so small that they count as 0


class CellDecoder:
    """Decodes the cells of one column; `grows` tells whether rows are being learned."""

    def __init__(
        self,
        column: Column,
        missing: MissingSpellings,
        clock: Clock | None = None,
        *,
        grows: bool = True,
        gap_weight: float = _NAN,
    ) -> None:
        """Set the rules; `gap_weight` replaces a missing weight."""
        self.column = column
        self._missing = missing
        self._clock = clock
        self._grows = grows
        self._gap_weight = gap_weight

    # Numbers and booleans.

    def decode_number(self, value: Any) -> float:
        """Decode one value as a number; raise DataError if it cannot be used."""
        if type(value) is not float:
            value = self._parse_value(value)
        if value in self._missing.numbers:
            return _NAN
        reason = self._find_fault(value)
        if reason is not None:
            raise self._make_error(reason)
        return 0.0 if abs(value) < MIN_ABS_VALUE else float(value)

    def _parse_value(self, value: Any) -> float:
        if self.column.kind == "boolean" or isinstance(value, str):
            text = self.decode_text(value)
            if text is None or text == self.column.form.gap:
                return _NAN
            parsed = self._parse_text(text)
            if parsed is None:
                raise self._make_error(self._describe_misfit(text))
            return parsed
        value = normalize_cell(value)
        try:
            return _NAN if value is None else float(value)
        except (TypeError, ValueError, OverflowError):
            raise self._make_error(self._describe_misfit(str(value))) from None

    def _parse_text(self, text: str) -> float | None:
        if self.column.kind == "boolean":
            return BOOLEAN_VALUES.get(text.lower())
        return self.column.form.parse_number(text)

    def decode_numbers(self, array: pa.Array, typed: Any = None) -> DecodedColumn:
        """Decode a column of numbers or booleans; `typed` marks texts that were numbers."""
        column = self.column
        if column.kind == "boolean":
            read = parse_booleans(array, self._missing)
        else:
            read = self._parse_numbers(array, typed)
        errors = {
            at: self._make_row_error(text, self._describe_misfit(text), self._suggest_fix(text))
            for at, text in read.unparsed.items()
        }
        values = read.values
        large, small = exceeds_limits(values, MIN_ABS_VALUE, MAX_ABS_VALUE)
        suspect = np.abs(values) > MAX_ABS_VALUE if large else np.zeros(0, np.bool_)
        if column.role == "weight":
            values = np.where(np.isnan(values), self._gap_weight, values)
            suspect = ~((values > 0.0) & (values <= MAX_ABS_VALUE))
        elif column.role == "input_sd":
            suspect = (values < 0.0) | (values > MAX_ABS_VALUE)
        for at in np.flatnonzero(suspect).tolist():
            reason = self._find_fault(values[at])
            if reason is not None and at not in errors:
                shown = _format_number(values[at])
                errors[at] = self._make_row_error(shown, reason, SKIP_HINT)
        if column.role == "input_sd":
            values = np.where(np.isnan(values), 0.0, values)
        has_tiny = small and column.role != "weight"
        if has_tiny:
            values = np.where(np.abs(values) < MIN_ABS_VALUE, 0.0, values)
        return DecodedColumn(values, errors, has_tiny)

    def _parse_numbers(self, array: pa.Array, typed: Any) -> ParsedNumbers:
        """Parse texts in the number format of the column; typed numbers are used as they are."""
        form = self.column.form
        read = parse_numbers(array, self._missing, form)
        if typed is None or form.is_plain:
            return read
        plain = parse_numbers(array, self._missing)
        unread = {at: text for at, text in read.unparsed.items() if not typed[at]}
        return ParsedNumbers(np.where(typed, plain.values, read.values), unread)

    def _find_fault(self, value: float) -> str | None:
        """Return why a number cannot be used; None if it can."""
        role = self.column.role
        if math.isinf(value):
            return f"{_format_number(value)} is not a finite number"
        if abs(value) > MAX_ABS_VALUE:
            return f"{_format_number(value)} is too large (limit {MAX_ABS_VALUE:g})"
        if role == "weight" and not value > 0.0:
            return f"a weight must be positive, not {_format_number(value)}"
        if role == "input_sd" and value < 0.0:
            return f"a standard deviation cannot be {_format_number(value)}"
        return None

    # Times, labels and texts.

    def decode_time(self, value: Any) -> tuple[float, float]:
        """Decode one value as instant and local time; NaN if it is missing."""
        clock = self._clock
        assert clock is not None
        text = self.decode_text(value)
        if text is None:
            return _NAN, _NAN
        found = parse_time_value(value, clock.unit, clock.day_first)
        if found is None:
            raise self._make_error(self._describe_misfit(str(value)))
        return found

    def decode_times(self, array: pa.Array) -> DecodedColumn:
        """Decode a column as instants and local times (n, 2)."""
        clock = self._clock
        assert clock is not None
        read = parse_times(array, clock.unit, clock.day_first, self._missing)
        errors = {
            at: self._make_row_error(
                text, self._describe_misfit(text), f"use --na '{shorten(text)}' or {_SKIP}"
            )
            for at, text in read.unparsed.items()
        }
        return DecodedColumn(read.values, errors)

    def decode_label(self, value: Any) -> str | None:
        """Decode one value as a category, or its bucket; None if it is missing or too long."""
        text = value_to_text(value)
        if text is None or text in self._missing.labels:
            return None
        if self.column.buckets:
            check_label(self.column.name, text)
            return hash_label(text, self.column.buckets)
        return None if len(text) > MAX_LABEL_LENGTH else text

    def decode_labels(self, array: pa.Array) -> tuple[Labels, bool]:
        """Decode a column as categories; also return whether a text was too long."""
        found = encode_labels(array, self._missing)
        if self.column.buckets:
            return hash_labels(found, self.column.buckets), False
        long = [at for at, name in enumerate(found.names) if len(name) > MAX_LABEL_LENGTH]
        if long:
            found.codes[np.isin(found.codes, long)] = -1
        return found, bool(long)

    def decode_class(self, value: Any) -> str | None:
        """Decode one value as the name of a class, None if it is missing."""
        text = value_to_text(value)
        named = self.column.kind == "category"
        gaps = self._missing.labels if named else self._missing.texts
        return None if text is None or text in gaps else text

    def decode_classes(self, array: pa.Array, numbers: FloatArray | None) -> Labels:
        """Decode a column as classes; `numbers` are its values if it holds no labels."""
        if numbers is None:
            return encode_labels(array, self._missing)
        codes = np.full(len(numbers), -1, np.int64)
        there = ~np.isnan(numbers)
        if self.column.kind == "boolean":
            codes[there] = numbers[there].astype(np.int64)
            return Labels(["false", "true"], codes)
        unique, codes[there] = np.unique(numbers[there], return_inverse=True)
        return Labels([number_to_text(value) for value in unique.tolist()], codes)

    def decode_text(self, value: Any) -> str | None:
        """Decode one value as text, None if it is missing."""
        text = value_to_text(value)
        return None if text is None or text in self._missing.texts else text

    # Messages.

    def _describe_misfit(self, text: str) -> str:
        """Say that a text cannot be read as what the column holds."""
        column = self.column
        what = {"boolean": "true or false", "time": "a timestamp"}.get(column.kind, "a number")
        if column.kind == "number" and column.form.sign:
            what += f" with '{column.form.sign}'"
        return f"cannot read '{shorten(text)}' as {what}"

    def _suggest_fix(self, text: str) -> str:
        """Suggest options for a text that is not a number, or not a boolean."""
        column, shown = self.column, shorten(text)
        if self._grows and column.kind == "number":
            marks = suggest_mark_option(text, column.form)
            if marks is not None:
                return f"use {marks}, or {_SKIP}"
        plain = PLAIN_FORM.parse_number(text) is not None
        code = (not plain and any(map(str.isdigit, text))) or (text.isupper() and len(text) <= 3)
        if self._grows and column.role == "feature" and code:
            name = shorten(column.name)
            return f"use --categorical {name} if these are labels, --na '{shown}' or {_SKIP}"
        return f"use --na '{shown}' or {_SKIP}"

    def _make_row_error(self, value: str, reason: str, remedy: str) -> RowError:
        return RowError(self.column.name, value, reason, remedy)

    def _make_error(self, reason: str) -> DataError:
        return DataError(f"column '{self.column.name}': {reason}")


_SKIP: Final = "--on-error skip"


def _format_number(value: float) -> str:
    return "missing" if math.isnan(value) else number_to_text(float(value))


def check_label(name: str, label: str) -> None:
    """Raise DataError if a label cannot be a class or a category of a column."""
    if not is_encodable(label):
        raise DataError(f"column '{name}': {_describe_surrogate(label)}")


def _describe_surrogate(text: str) -> str:
    return f"{text!a} holds a lone surrogate, which is not valid Unicode text"


def hash_label(label: str, buckets: int) -> str:
    """Return the bucket of a label, crc32(label) mod buckets, as the name of a category."""
    return f"#{zlib.crc32(label.encode()) % buckets}"


def hash_labels(found: Labels, buckets: int) -> Labels:
    """Replace labels by their buckets."""
    names: dict[str, int] = {}
    at = [names.setdefault(hash_label(name, buckets), len(names)) for name in found.names]
    codes = np.array([*at, -1], np.int64)[found.codes]
    return Labels(list(names), codes)


def check_new_class(schema: Schema, column: Column, name: str, *, grows: bool) -> RowError | None:
    """Return why a class cannot be added to the schema; None if it can."""
    shown, remedy = shorten(name), SKIP_HINT
    if len(name) > MAX_LABEL_LENGTH:
        reason = f"class labels are limited to {MAX_LABEL_LENGTH} characters (got {len(name):,})"
    elif schema.closed:
        reason = f"{shown} is neither {' nor '.join(schema.classes)}"
        remedy = suggest_task_option(
            PLAIN_FORM.parse_number(name) if column.kind == "number" else None
        )
    elif not grows:
        reason = f"class '{shown}' was never learned"
    elif len(schema.classes) >= MAX_CLASSES:
        reason = f"'{shown}' would be class {MAX_CLASSES + 1}, the limit is {MAX_CLASSES}"
    elif not is_encodable(name):
        reason = _describe_surrogate(name)
    else:
        return None
    return RowError(column.name, name, reason, remedy)


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
