"""What a column is by its first values: numbers, truth values, categories, or nothing of use."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

import pyarrow as pa

from kbnn.model.form import PLAIN_FORM, Form
from kbnn.model.schema import ColumnKind
from kbnn.stream.forms import NumberMarks, add_gap_spelling, detect_number_format
from kbnn.stream.times import format_timestamps as points
from kbnn.stream.times import is_date_or_timestamp
from kbnn.stream.values import (
    BOOLEAN_VALUES,
    MAX_LABEL_LENGTH,
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
    """The first values of a column as texts (None: missing), or why it cannot be used."""

    values: list[str | None]
    unusable: str | None
    typed: bool = False  # numbers that were never text

    @property
    def present_values(self) -> list[str]:
        """The values that are there."""
        return [value for value in self.values if value is not None]


def sample_column(arrays: Sequence[pa.Array], tokens: pa.Array) -> ColumnSample:
    """Look at the first values of a column, whatever types they came in."""
    values: list[str | None] = []
    unusable = None
    for array in arrays:
        if is_temporal(array.type):
            unusable = "timestamps"
        elif not is_usable(array.type):
            unusable = "nested values" if pa.types.is_nested(array.type) else "binary values"
        values.extend(
            points(array) if is_date_or_timestamp(array.type) else read_texts(array, tokens)
        )
    return ColumnSample(values, unusable, not any(is_text(array.type) for array in arrays))


def detect_column_format(
    seen: ColumnSample, stated: NumberMarks, first: str = "", *, any_sign: bool = False
) -> Form:
    """How a column's numbers are written, its gaps among them."""
    present = seen.present_values
    if not present or (seen.typed and not all(map(str.isdecimal, present))):
        return PLAIN_FORM
    return add_gap_spelling(
        detect_number_format(present, stated, first, any_sign=any_sign), present
    )


def infer_kind(seen: ColumnSample, form: Form = PLAIN_FORM) -> tuple[ColumnKind, str]:
    """The kind of a column and, when it is ignored, what it holds instead of values.

    Three quarters numbers make a number column: then the odd text is reported by its line rather
    than quietly turning a measurement into labels.
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
    """Whether values are true or false: by these words, or in more spellings than two.

    `yes` and `no` alone are labels like others, and a third may come; `Yes`, `yes`, `N` and `no`
    are two values in four spellings. `0`, `1` and `1.0` without a word among them are numbers.
    """
    lower = {value.lower() for value in values}
    if lower <= {"true", "false"}:
        return True
    words = lower - {"0", "1", "0.0", "1.0"}
    spelt = len(set(values))
    return bool(words) and lower <= BOOLEAN_VALUES.keys() and (spelt > 2 or spelt > len(lower))
