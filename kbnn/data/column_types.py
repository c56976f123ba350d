"""Infer the kind of a column from its first values, and report what the user may want to change.

A column holds numbers, booleans or categories, or is ignored. Notices suggest options where the
first rows leave room for doubt: codes, dates, row counters, classes written as numbers.
`SentinelDetector` reports a first negative number such as -999, which often means missing; it
looks at the first negative number only, so that the report does not depend on chunk boundaries.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kbnn.array_types import FloatArray
from kbnn.data.chunk import Chunk, shorten
from kbnn.data.number_format import (
    PLAIN_FORM,
    Form,
    NumberMarks,
    add_gap_spelling,
    detect_number_format,
    report_ambiguous_points,
)
from kbnn.data.schema import Column, ColumnKind
from kbnn.data.timestamps import TIME_COLUMN_NAME, format_timestamps, get_zone, is_date_or_timestamp
from kbnn.data.values import (
    BOOLEAN_VALUES,
    MAX_LABEL_LENGTH,
    MissingSpellings,
    is_temporal,
    is_text,
    is_usable,
    looks_like_time,
    read_texts,
)

MOSTLY_UNIQUE: Final = "values that nearly all differ"
FREE_TEXT: Final = "free text"
AMBIGUOUS_DATES: Final = "dates that can be read in more than one way"
_SHORT_DATE: Final = re.compile(r"\d{1,2}([-/.])\d{1,2}\1\d{2}([T ,].*)?")
_MIN_UNIQUE_VALUES: Final = 20  # values needed before "nearly all differ" means anything


class ColumnSample(NamedTuple):
    """The first values of a column as text (None: missing), or why it cannot be used."""

    values: list[str | None]
    unusable: str | None
    typed: bool = False  # numbers that were never text
    zone: str = ""  # of timestamps, if its offset may change

    @property
    def present_values(self) -> list[str]:
        """The values that are not missing."""
        return [value for value in self.values if value is not None]


def sample_column(arrays: Sequence[pa.Array], missing: MissingSpellings) -> ColumnSample:
    """Collect the first values of a column as text, from arrays of any type."""
    values: list[str | None] = []
    unusable = None
    for array in arrays:
        if is_temporal(array.type):
            unusable = "timestamps"
        elif not is_usable(array.type):
            unusable = "nested values" if pa.types.is_nested(array.type) else "binary values"
        is_time = is_date_or_timestamp(array.type)
        values.extend(format_timestamps(array) if is_time else read_texts(array, missing))
    typed = not any(is_text(array.type) for array in arrays)
    zone = next((zone for array in arrays if (zone := get_zone(array.type))), "")
    return ColumnSample(values, unusable, typed, zone)


def detect_column_format(
    seen: ColumnSample, stated: NumberMarks, first: str = "", *, any_sign: bool = False
) -> Form:
    """Detect how a column writes numbers and missing values."""
    present = seen.present_values
    if not present or (seen.typed and not all(map(str.isdecimal, present))):
        return PLAIN_FORM
    return add_gap_spelling(
        detect_number_format(present, stated, first, any_sign=any_sign), present
    )


def infer_kind(seen: ColumnSample, form: Form = PLAIN_FORM) -> tuple[ColumnKind, str]:
    """Infer the kind of a column and, if it is ignored, what it holds instead.

    A column is numeric if at least three quarters of its values are numbers: a stray text is then
    reported with its line instead of silently turning a measurement into labels.
    """
    if seen.unusable:
        return "ignored", seen.unusable
    present = seen.present_values
    if not present:
        return "undecided", ""
    if are_booleans(present):
        return "boolean", ""
    values = [value for value in present if value != form.gap]
    if 4 * sum(form.parse_number(value) is not None for value in values) >= 3 * len(values):
        return "number", ""
    if all(value.startswith(("{", "[")) for value in present):
        return "ignored", "nested values"
    if all(looks_like_time(value) for value in present):
        return "ignored", "timestamps"
    if all(map(_SHORT_DATE.fullmatch, present)):
        return "ignored", AMBIGUOUS_DATES
    if 2 * sum(len(value) > MAX_LABEL_LENGTH for value in present) >= len(present):
        return "ignored", FREE_TEXT
    if len(present) >= _MIN_UNIQUE_VALUES and 10 * len(set(present)) > 9 * len(present):
        return "ignored", MOSTLY_UNIQUE
    return "category", ""


def are_booleans(values: Sequence[str]) -> bool:
    """Return whether values are booleans: `true` and `false`, or two values in several spellings.

    `yes` and `no` alone are ordinary labels, since a third label may follow; `Yes`, `yes`, `N`
    and `no` are two values in four spellings. `0`, `1` and `1.0` without a word are numbers.
    """
    lower = {value.lower() for value in values}
    if lower <= {"true", "false"}:
        return True
    words = lower - {"0", "1", "0.0", "1.0"}
    spellings = len(set(values))
    return (
        bool(words) and lower <= BOOLEAN_VALUES.keys() and (spellings > 2 or spellings > len(lower))
    )


SENTINEL_VALUES: Final = (-99.0, -999.0, -9999.0, -99999.0)


class SentinelDetector:
    """Reports, once per column, a first negative number that often means missing (-999)."""

    def __init__(self, notice: Notice) -> None:
        self._notice = notice
        self._decided: set[str] = set()

    def check_chunk(
        self, values: Mapping[str, FloatArray], good: npt.NDArray[np.bool_], chunk: Chunk
    ) -> None:
        """Check the usable rows of a chunk, in order."""
        for name, column in values.items():
            if name in self._decided or not np.fmin.reduce(column, initial=0.0) < 0.0:
                continue
            below = np.flatnonzero((column < 0.0) & good)
            if not len(below):
                continue
            self._decided.add(name)
            value = float(column[below[0]])
            if value in SENTINEL_VALUES:
                row, shown = chunk.first_row + int(below[0]), f"{value:.15g}"
                self._notice(
                    f"column '{shorten(name)}': {shown} in row {row:,} is its first negative "
                    f"number and is read as a number (--na {shown} if it means missing)"
                )


Notice = Callable[[str], None]

MAX_SUGGESTED_CLASSES: Final = 10
_MIN_HINT_VALUES: Final = 20  # fewer values are too few for a suggestion
_MEASURE: Final = re.compile(
    r"(?:[-+~<>=≤≥±$€£¥₹]|EUR|USD|GBP|CHF)?\s?[-+$€£¥₹]?\d[\d.,']*\s?[%‰°$€£¥₹]?[a-zA-Zµ/²³]{0,5}"
)
_CODE: Final = re.compile(r"0\d+")
_DATE: Final = re.compile(r"(19|20)\d\d(0[1-9]|1[0-2])(0[1-9]|[12]\d|3[01])")
_EXCEL_DAY_RANGE: Final = (20_000.0, 60_000.0)  # 1954 to 2064
_COUNTER_COLUMN_NAME: Final = re.compile(
    r"(.*[ _.-])?(id|idx|index|row|nr|no|unnamed: 0|column1)|[a-z]+Id", re.I
)


def report_column(column: Column, seen: ColumnSample, notice: Notice) -> None:
    """Report what is doubtful about a single column."""
    if column.kind == "number" and column.form.is_plain and not seen.typed:
        report_ambiguous_points(column.name, seen.present_values, notice)
    if column.role == "feature" and column.kind == "number":
        _report_codes(column, seen, notice)
    if column.kind == "boolean" and not {v.lower() for v in seen.present_values} <= {
        "true",
        "false",
    }:
        shown = ", ".join(
            f"'{shorten(v, 12)}'" for v in list(dict.fromkeys(seen.present_values))[:4]
        )
        notice(f"column '{shorten(column.name)}': {shown} are read as true and false")
    report_measures(column, seen, notice)


def report_measures(column: Column, seen: ColumnSample, notice: Notice) -> None:
    """Report numbers with differing signs or units ($3, €5) that are read as text."""
    if column.kind != "category" or column.role not in ("feature", "target") or column.buckets:
        return
    present = [value for value in seen.present_values if len(value) <= MAX_LABEL_LENGTH]
    measures = [value for value in present if _MEASURE.fullmatch(value)]
    marked = [value for value in measures if column.form.parse_number(value) is None]
    if marked and 2 * len(measures) > len(present):
        noun = "classes" if column.role == "target" else "categories"
        name = shorten(column.name)
        notice(
            f"column '{name}' holds text such as '{shorten(marked[0])}': numbers with a sign or "
            f"unit are read as {noun} (--numeric {name} reads them as numbers if the unit is "
            "always the same)"
        )


def _report_codes(column: Column, seen: ColumnSample, notice: Notice) -> None:
    """Report numbers that may be codes, dates, Excel day numbers or row counters."""
    name = shorten(column.name)
    codes = [value for value in seen.present_values if _CODE.fullmatch(value)]
    if codes and not seen.typed:
        notice(
            f"column '{name}': '{shorten(codes[0])}' is read as {float(codes[0]):.15g} "
            f"(--categorical {name} or --hash {name}:32 if it is a code)"
        )
        return
    dates = [value for value in seen.present_values if _DATE.fullmatch(value)]
    if dates and len(dates) == len(seen.present_values):
        notice(
            f"column '{name}': '{dates[0]}' looks like a date and is learned as a number "
            f"(--time {name} makes it the clock)"
        )
        return
    days = [column.form.parse_number(value) for value in seen.present_values]
    if TIME_COLUMN_NAME.fullmatch(column.name) and len(days) > 1 and all(map(_is_excel_day, days)):
        notice(
            f"column '{name}': '{seen.present_values[0]}' may be an Excel day number and is "
            "learned as a number (write it as a date to make it the clock)"
        )
        return
    if len(seen.present_values) < _MIN_HINT_VALUES or not _COUNTER_COLUMN_NAME.fullmatch(
        column.name
    ):
        return
    values = [column.form.parse_number(value) for value in seen.present_values]
    if all(b is not None and a is not None and b == a + 1 for a, b in pairwise(values)):
        notice(
            f"column '{name}' counts the rows and is learned as a number "
            f"(--ignore {name} leaves it out)"
        )


def _is_excel_day(value: float | None) -> bool:
    """Return whether a number is a plausible Excel date (days since 1900)."""
    return value is not None and _EXCEL_DAY_RANGE[0] <= value <= _EXCEL_DAY_RANGE[1]


def suggest_classification(target: Column, seen: ColumnSample, notice: Notice) -> None:
    """Suggest classification for a target with few different whole numbers."""
    values = {target.form.parse_number(value) for value in seen.present_values}
    whole = all(value is not None and value.is_integer() for value in values)
    if len(seen.present_values) < _MIN_HINT_VALUES or not whole:
        return
    if values in ({0.0}, {1.0}):
        notice(
            f"target '{shorten(target.name)}' is {values.pop():g} in all of the first rows: it is "
            "learned as a number (--task classification if it is 0 or 1)"
        )
    elif 2 <= len(values) <= MAX_SUGGESTED_CLASSES:
        notice(
            f"target '{shorten(target.name)}' has {len(values)} different whole numbers: they are "
            "learned as numbers (--task classification learns classes)"
        )


def suggest_hashing(name: str) -> str:
    """Suggest hashing for a column of many different values."""
    return f"--hash {name}:32 learns from values that recur"
