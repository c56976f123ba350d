"""Decode cells: what a value of a file, a table or a Python row means in its column.

A `CellDecoder` holds the rules of one column: missing values, number format, booleans, timestamps,
labels and limits. It decodes a whole Arrow column or one Python value. Both ways use the same
tables and the same messages, so that a cell means the same wherever it comes from.
"""

from __future__ import annotations

import math
import zlib
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from kbnn.array_types import FloatArray
from kbnn.core.kernel import exceeds_limits
from kbnn.data.batch import MAX_ABS_VALUE, MIN_ABS_VALUE
from kbnn.data.chunk import RowError, shorten
from kbnn.data.clock import Clock
from kbnn.data.number_format import PLAIN_FORM, suggest_mark_option
from kbnn.data.schema import MAX_CLASSES, Column, Schema
from kbnn.data.timestamps import parse_time_value, parse_times
from kbnn.data.values import (
    BOOLEAN_VALUES,
    MAX_LABEL_LENGTH,
    Labels,
    MissingSpellings,
    ParsedNumbers,
    encode_labels,
    is_encodable,
    normalize_cell,
    number_to_text,
    parse_booleans,
    parse_numbers,
    value_to_text,
)
from kbnn.errors import DataError
from kbnn.targets.registry import suggest_task_option

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
