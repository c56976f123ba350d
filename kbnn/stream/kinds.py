"""What a column is by its first values: numbers, truth values, categories, or nothing of use."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

import pyarrow as pa

from kbnn.model.form import USUAL, Form
from kbnn.model.schema import Kind
from kbnn.stream.forms import Stated, form_of, with_gap
from kbnn.stream.times import is_point
from kbnn.stream.times import written as points
from kbnn.stream.values import (
    MAX_LABEL,
    TRUTH,
    is_temporal,
    is_text,
    is_usable,
    looks_like_time,
    texts,
)

MANY: Final = "values that nearly all differ"
TEXT: Final = "free text"
SHORT: Final = "dates that can be read in more than one way"
_SHORT_DATE: Final = re.compile(r"\d{1,2}([-/.])\d{1,2}\1\d{2}([T ,].*)?")
_ENOUGH: Final = 20  # values needed before "nearly all differ" means anything


class Sample(NamedTuple):
    """The first values of a column as texts (None: missing), or why it cannot be used."""

    values: list[str | None]
    unusable: str | None
    typed: bool = False  # numbers that were never text

    @property
    def present(self) -> list[str]:
        """The values that are there."""
        return [value for value in self.values if value is not None]


def sample(arrays: Sequence[pa.Array], tokens: pa.Array) -> Sample:
    """Look at the first values of a column, whatever types they came in."""
    values: list[str | None] = []
    unusable = None
    for array in arrays:
        if is_temporal(array.type):
            unusable = "timestamps"
        elif not is_usable(array.type):
            unusable = "nested values" if pa.types.is_nested(array.type) else "binary values"
        values.extend(points(array) if is_point(array.type) else texts(array, tokens))
    return Sample(values, unusable, not any(is_text(array.type) for array in arrays))


def written(seen: Sample, stated: Stated, first: str = "", *, any_sign: bool = False) -> Form:
    """How a column's numbers are written, its gaps among them."""
    present = seen.present
    if not present or (seen.typed and not all(map(str.isdecimal, present))):
        return USUAL
    return with_gap(form_of(present, stated, first, any_sign=any_sign), present)


def kind_of(seen: Sample, form: Form = USUAL) -> tuple[Kind, str]:
    """The kind of a column and, when it is ignored, what it holds instead of values.

    Three quarters numbers make a number column: then the odd text is reported by its line rather
    than quietly turning a measurement into labels.
    """
    if seen.unusable:
        return "ignored", seen.unusable
    present = seen.present
    if not present:
        return "undecided", ""
    if are_truths(present):
        return "boolean", ""
    values = [value for value in present if value != form.gap]
    if 4 * sum(form.number(value) is not None for value in values) >= 3 * len(values):
        return "number", ""
    if all(value.startswith(("{", "[")) for value in present):
        return "ignored", "nested values"
    if all(looks_like_time(value) for value in present):
        return "ignored", "timestamps"
    if all(map(_SHORT_DATE.fullmatch, present)):
        return "ignored", SHORT
    if 2 * sum(len(value) > MAX_LABEL for value in present) >= len(present):
        return "ignored", TEXT
    if len(present) >= _ENOUGH and 10 * len(set(present)) > 9 * len(present):
        return "ignored", MANY
    return "category", ""


def are_truths(values: Sequence[str]) -> bool:
    """Whether values are true or false: by these words, or in more spellings than two.

    `yes` and `no` alone are labels like others, and a third may come; `Yes`, `yes`, `N` and `no`
    are two values in four spellings. `0`, `1` and `1.0` without a word among them are numbers.
    """
    lower = {value.lower() for value in values}
    if lower <= {"true", "false"}:
        return True
    words = lower - {"0", "1", "0.0", "1.0"}
    spelt = len(set(values))
    return bool(words) and lower <= TRUTH.keys() and (spelt > 2 or spelt > len(lower))
