"""What the first rows suggest that nobody asked: said once, with the option that would do it."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import pairwise
from typing import Final

from kbnn.model.schema import Column
from kbnn.stream.chunk import shorten
from kbnn.stream.clock import TIME_COLUMN_NAME
from kbnn.stream.forms import report_ambiguous_points
from kbnn.stream.kinds import ColumnSample
from kbnn.stream.values import MAX_LABEL_LENGTH

Notice = Callable[[str], None]

MAX_SUGGESTED_CLASSES: Final = 10
_MIN_HINT_VALUES: Final = 20  # values before their number says anything
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
    """What there is to say of a column by itself."""
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
    """Say so when numbers with different signs or units ($3, €5, 20 furlongs) are mere texts."""
    if column.kind != "category" or column.role not in ("feature", "target") or column.buckets:
        return
    present = [value for value in seen.present_values if len(value) <= MAX_LABEL_LENGTH]
    measures = [value for value in present if _MEASURE.fullmatch(value)]
    marked = [value for value in measures if column.form.parse_number(value) is None]
    if marked and 2 * len(measures) > len(present):
        taken = "classes" if column.role == "target" else "categories"
        name = shorten(column.name)
        notice(
            f"column '{name}' holds text such as '{shorten(marked[0])}': numbers with a sign or "
            f"unit are taken for {taken} (--numeric {name} reads them where it is always the same)"
        )


def _report_codes(column: Column, seen: ColumnSample, notice: Notice) -> None:
    """Numbers that look like names: with zeros before them, or counting the rows."""
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
            f"column '{name}': '{seen.present_values[0]}' may be a date as Excel counts days and is "
            "learned as a number (written as a date it is the clock)"
        )
        return
    if len(seen.present_values) < _MIN_HINT_VALUES or not _COUNTER_COLUMN_NAME.fullmatch(
        column.name
    ):
        return
    values = [column.form.parse_number(value) for value in seen.present_values]
    if all(b is not None and a is not None and b == a + 1 for a, b in pairwise(values)):
        notice(f"column '{name}' counts the rows and is learned as a number (--ignore {name})")


def _is_excel_day(value: float | None) -> bool:
    """Whether a number is a day of our time, counted from 1900."""
    return value is not None and _EXCEL_DAY_RANGE[0] <= value <= _EXCEL_DAY_RANGE[1]


def suggest_classification(target: Column, seen: ColumnSample, notice: Notice) -> None:
    """A target of few whole numbers may be a class."""
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
    """The remedy for a column of many values."""
    return f"--hash {name}:32 learns from those that come back"
