"""Read the values of a column as numbers, booleans or labels, and find missing values.

A value means the same in every format: the text `1.5` in CSV, the string "1.5" in Parquet or JSON,
and the number 1.5 are the same value.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kbnn.array_types import FloatArray, IntArray
from kbnn.data.number_format import PLAIN_FORM, Form, normalize_numbers

_MISSING_TOKENS: Final = (
    "",
    "NA",
    "N/A",
    "null",
    "none",
    "nan",
    "NaN",
    ".",
    "<NA>",
    "#N/A",
    "#NA",
    "\\N",
)
_SPREADSHEET_ERRORS: Final = ("#DIV/0!", "#VALUE!", "#REF!", "#NUM!", "#NAME?", "#NULL!")
"""Error values of spreadsheets, which count as missing."""
_NAN_PATTERN: Final = re.compile(r"[-+]?nan(\([a-z0-9_]*\))?", re.I)
BOOLEAN_VALUES: Final = {
    **dict.fromkeys(("true", "t", "yes", "y", "on", "ja", "j", "oui", "si", "sí", "wahr"), 1.0),
    **dict.fromkeys(("false", "f", "no", "n", "off", "nein", "non", "falsch", "faux"), 0.0),
    **dict.fromkeys(("1", "1.0"), 1.0),
    **dict.fromkeys(("0", "0.0"), 0.0),
}
_TIME_PATTERN: Final = re.compile(
    r"\d{4}[-/.]\d{1,2}[-/.]\d{1,2}([T ]\d{1,2}:\d{2}(:\d{2}([.,]\d+)?)?)?"
    r"\s?(Z|UTC|[-+]\d{2}:?\d{2})?"
    r"|\d{1,2}[-/.]\d{1,2}[-/.]\d{4}([T ,]+\d{1,2}:\d{2}(:\d{2}([.,]\d+)?)?)?"
    r"|\d{1,2}:\d{2}(:\d{2}([.,]\d+)?)?"
)


_CONVERSION_ERRORS: Final = (pa.ArrowException, ValueError, OverflowError, KeyError)
"""Raised by Arrow for values that Python cannot hold: a year 10000, an unknown time zone."""

MAX_LABEL_LENGTH: Final = 200
"""Largest number of characters of a category or class; a longer text is free text."""


class MissingSpellings:
    """The spellings of missing values: the usual ones, and those that the user added.

    `none` is an ordinary label unless the user added it. A number among the user's own spellings,
    such as -999, is missing in typed columns too.
    """

    def __init__(self, own: Sequence[str] = ()) -> None:
        usual = dict.fromkeys(
            form for t in _MISSING_TOKENS for form in (t, t.lower(), t.upper(), t.title())
        )
        own = [token.strip() for token in own]
        read = [PLAIN_FORM.parse_number(token) for token in own]
        self.listed = (*usual, *_SPREADSHEET_ERRORS, *own)
        self.texts = frozenset(self.listed)
        self.labels = frozenset([t for t in self.listed if t.lower() != "none"] + own)
        self.numbers = frozenset(value for value in read if value is not None)
        self.has_own = bool(own)
        self._arrays = {
            False: pa.array(self.listed, pa.string()),
            True: pa.array(sorted(self.labels), pa.string()),
        }

    def find_texts(self, array: pa.Array, *, labels: bool = False) -> pa.Array:
        """Return which trimmed texts are missing values; `labels`: by the rule for labels."""
        return pc.is_in(array, value_set=self._arrays[labels])

    def drop_texts(self, array: pa.Array) -> pa.Array:
        """Replace missing values among trimmed texts by null."""
        return pc.if_else(self.find_texts(array), pa.scalar(None, pa.string()), array)

    def drop_numbers(self, values: FloatArray) -> FloatArray:
        """Replace numbers that the user declared as missing by NaN."""
        gone = tuple(self.numbers)
        return np.where(np.isin(values, gone), np.nan, values) if gone else values


class ParsedNumbers(NamedTuple):
    """A column as numbers, NaN where missing, and the texts that could not be parsed."""

    values: FloatArray
    unparsed: dict[int, str]


def is_text(kind: pa.DataType) -> bool:
    """Return whether a type holds strings, directly or in a dictionary."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return bool(
        pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    )


def is_numeric(kind: pa.DataType) -> bool:
    """Return whether a type holds numbers, including durations."""
    return bool(
        pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_decimal(kind)
        or pa.types.is_duration(kind)
    )


def is_temporal(kind: pa.DataType) -> bool:
    """Return whether a type holds times or dates; durations are numbers."""
    return bool(pa.types.is_temporal(kind) and not pa.types.is_duration(kind))


def is_usable(kind: pa.DataType) -> bool:
    """Return whether values of a type can be features, or are all null."""
    return bool(
        is_text(kind) or is_numeric(kind) or pa.types.is_boolean(kind) or pa.types.is_null(kind)
    )


def looks_like_time(text: str) -> bool:
    """Return whether a text is a date, a time of day, or both."""
    return _TIME_PATTERN.fullmatch(text) is not None


def trim_texts(array: pa.Array) -> pa.Array:
    """Convert a text column to plain strings without surrounding white space."""
    if array.type != pa.string():
        array = array.cast(pa.string())
    return pc.utf8_trim_whitespace(array)


def python_values(array: pa.Array) -> list[Any]:
    """Convert a column to Python values; times that Python cannot hold become ISO 8601 text."""
    try:
        return list(array.to_pylist())
    except _CONVERSION_ERRORS:
        return [_python_value(value) for value in array]


def _python_value(value: pa.Scalar) -> Any:
    try:
        return value.as_py()
    except _CONVERSION_ERRORS:
        kind = value.type
        if pa.types.is_dictionary(kind):
            return _python_value(value.value)
        if pa.types.is_struct(kind):
            return {name: _python_value(value[name]) for name in value}
        if hasattr(value, "values") and value.values is not None:
            return python_values(value.values)
        return format_time(value) if pa.types.is_temporal(kind) else str(value)


def format_time(value: pa.Scalar) -> str:
    """Format a time of any size as an ISO 8601 text, or as a number with its unit."""
    kind, ticks = value.type, int(value.value)
    if pa.types.is_date32(kind):
        return str(np.int64(ticks).view("datetime64[D]"))
    if pa.types.is_date64(kind):
        return str(np.int64(ticks).view("datetime64[ms]").astype("datetime64[D]"))
    if pa.types.is_timestamp(kind):
        zone = "" if kind.tz is None else "Z"
        return f"{np.int64(ticks).view(f'datetime64[{kind.unit}]')}{zone}"
    return f"{ticks} {kind.unit}"


def cast_to_text(array: pa.Array) -> pa.Array:
    """Convert a column of any type to plain strings; null stays null."""
    try:
        return array.cast(pa.string())
    except pa.ArrowException:
        found = python_values(array)
        return pa.array([None if value is None else str(value) for value in found], pa.string())


def read_texts(array: pa.Array, missing: MissingSpellings) -> list[str | None]:
    """Convert values to text, None where missing; numbers are as short as possible.

    Used for the few values that are handled one by one.
    """
    if is_text(array.type):
        return list(missing.drop_texts(trim_texts(array)).to_pylist())
    if pa.types.is_boolean(array.type):
        return [None if v is None else str(v).lower() for v in array.to_pylist()]
    if is_numeric(array.type):
        values = missing.drop_numbers(to_float_array(array))
        return [None if np.isnan(v) else number_to_text(v) for v in values]
    return [None] * len(array)


def value_to_text(value: Any) -> str | None:
    """Convert one value to text as `read_texts` does a column, None if it is null or NaN."""
    value = normalize_cell(value)
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return value.strip()
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return str(value)
    return None if math.isnan(number) else number_to_text(number)


def number_to_text(value: float) -> str:
    """Format a number as text: 3 instead of 3.0."""
    return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(float(value))


def is_encodable(text: str) -> bool:
    """Return whether a text can be encoded as UTF-8, that is, has no lone surrogate."""
    return text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text)


TICKS_PER_SECOND: Final = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
"""Ticks per second, by unit."""


def ticks_to_seconds(ticks: IntArray, unit: str) -> FloatArray:
    """Convert ticks to seconds; whole microseconds give the same bits in "us" and in "ns"."""
    if unit != "ns":
        return np.asarray(ticks / TICKS_PER_SECOND[unit], dtype=np.float64)
    whole = ticks % 1000 == 0
    return np.where(whole, ticks // 1000 / TICKS_PER_SECOND["us"], ticks / TICKS_PER_SECOND["ns"])


def normalize_cell(value: Any) -> Any:
    """Convert a value of Python, numpy or pandas to None, bool, number, str or datetime.

    Durations become seconds. Other values are returned unchanged.
    """
    if value is None or isinstance(value, str | float):
        return value if not isinstance(value, np.generic) else value.item()
    if isinstance(value, np.datetime64):
        return None if np.isnat(value) else value.astype("datetime64[us]").item()
    if isinstance(value, np.timedelta64):
        return None if np.isnat(value) else _timedelta_seconds(value)
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, datetime | date):
        return value if value == value else None  # NaT is not equal to itself
    if isinstance(value, timedelta):
        return _timedelta_seconds(np.timedelta64(value))
    if isinstance(value, Decimal):
        return None if value.is_nan() else float(value)
    return None if type(value).__name__ == "NAType" else value


def _timedelta_seconds(value: np.timedelta64) -> float:
    unit = np.datetime_data(value.dtype)[0]
    if unit not in TICKS_PER_SECOND:  # hours, days; months have no fixed length: an error
        value, unit = value.astype("timedelta64[s]"), "s"
    return float(ticks_to_seconds(np.array([value.astype(np.int64)]), unit)[0])


def to_float_array(array: pa.Array) -> FloatArray:
    """Convert a numeric column to float64, NaN where null."""
    if pa.types.is_duration(array.type):
        ticks = array.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
        there = array.is_valid().to_numpy(zero_copy_only=False)
        return np.where(there, ticks_to_seconds(ticks, array.type.unit), np.nan)
    if pa.types.is_decimal(array.type):  # via text: Arrow's direct cast does not round correctly
        array = array.cast(pa.string())
    if array.type != pa.float64():
        array = array.cast(pa.float64(), safe=False)
    return array.to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]  # pyarrow is untyped


def parse_numbers(
    array: pa.Array, missing: MissingSpellings, form: Form = PLAIN_FORM
) -> ParsedNumbers:
    """Read a column as numbers; texts are parsed in the number format `form`."""
    read = _parse_number_column(array, missing, form)
    return ParsedNumbers(missing.drop_numbers(read.values), read.unparsed)


def _parse_number_column(array: pa.Array, missing: MissingSpellings, form: Form) -> ParsedNumbers:
    if is_numeric(array.type):
        return ParsedNumbers(to_float_array(array), {})
    if is_text(array.type) and not form.is_plain:
        return _parse_formatted_numbers(missing.drop_texts(trim_texts(array)), form)
    if is_text(array.type):
        if array.type != pa.string():
            array = array.cast(pa.string())
        try:
            return ParsedNumbers(to_float_array(array.cast(pa.float64())), {})
        except pa.ArrowInvalid:
            pass
        array = missing.drop_texts(pc.utf8_trim_whitespace(array))
        try:
            return ParsedNumbers(to_float_array(array.cast(pa.float64())), {})
        except pa.ArrowInvalid:
            return _parse_each_number(array.to_pylist())
    return _parse_each_number(read_texts(array, missing))


def _parse_formatted_numbers(array: pa.Array, form: Form) -> ParsedNumbers:
    if form.gap:
        gap = pc.fill_null(pc.equal(array, form.gap), False)
        array = pc.if_else(gap, pa.scalar(None, pa.string()), array)
    usual = normalize_numbers(array, form)
    if usual is not None:
        try:
            return ParsedNumbers(to_float_array(usual.cast(pa.float64())), {})
        except pa.ArrowInvalid:
            pass
    return _parse_each_number(array.to_pylist(), form)


def _parse_each_number(values: list[str | None], form: Form = PLAIN_FORM) -> ParsedNumbers:
    read = np.full(len(values), np.nan)
    unread: dict[int, str] = {}
    for at, text in enumerate(values):
        if text is None or _NAN_PATTERN.fullmatch(text):
            continue
        value = form.parse_number(text)
        if value is None:
            unread[at] = text
        else:
            read[at] = value
    return ParsedNumbers(read, unread)


def parse_booleans(array: pa.Array, missing: MissingSpellings) -> ParsedNumbers:
    """Read a column as booleans: 0 or 1, NaN where missing."""
    if pa.types.is_boolean(array.type):
        return ParsedNumbers(to_float_array(array.cast(pa.int8())), {})
    read = np.full(len(array), np.nan)
    unread: dict[int, str] = {}
    for at, text in enumerate(read_texts(array, missing)):
        if text is None:
            continue
        value = BOOLEAN_VALUES.get(text.lower())
        if value is None:
            unread[at] = text
        else:
            read[at] = value
    return ParsedNumbers(read, unread)


class Labels(NamedTuple):
    """A column as labels: texts in order of appearance, and the code of each row, -1 if missing."""

    names: list[str]
    codes: IntArray


def encode_labels(array: pa.Array, missing: MissingSpellings) -> Labels:
    """Read a column as labels; numbers and booleans become text."""
    if not is_text(array.type):
        array = pa.array(read_texts(array, missing), pa.string())
    array = trim_texts(array)
    encoded = array.dictionary_encode()
    names = encoded.dictionary.to_pylist()
    codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    gone = missing.find_texts(encoded.dictionary, labels=True).to_pylist()
    if any(gone):
        codes[np.isin(codes, np.flatnonzero(gone))] = -1
    return Labels(names, codes)


def find_present_rows(array: pa.Array, missing: MissingSpellings) -> npt.NDArray[np.bool_]:
    """Return which rows hold a value."""
    if is_text(array.type):
        there = pc.invert(missing.find_texts(trim_texts(array)))
        mask = pc.and_(there, array.is_valid())
    elif is_numeric(array.type):
        return ~np.isnan(missing.drop_numbers(to_float_array(array)))
    else:
        mask = array.is_valid()
    return mask.to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]  # pyarrow is untyped
