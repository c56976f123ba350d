"""Which line names the columns, and whether a source has the columns that are needed."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Sequence
from typing import Final, NamedTuple

from kbnn.errors import DataError
from kbnn.model.form import PLAIN_FORM
from kbnn.stream.chunk import ReadHints, shorten
from kbnn.stream.forms import looks_numeric

MAX_COLUMNS: Final = 20_000
"""Columns that are read: a network of 50 units has a million weights with as many."""
MAX_NAME_LENGTH: Final = 1000
"""Characters of a column's name."""


class ExpectedColumns(NamedTuple):
    """What the columns should be: names in order, those without the target, and a test of data."""

    names: list[str]
    without_target: list[str] | None  # the names when the target may be absent, else None
    misfit: Callable[[Sequence[str], Sequence[str]], str | None]  # (names, cells) -> why not data


class FirstLine(NamedTuple):
    """The column names, and whether the first line was the header."""

    names: list[str]
    header: bool


def is_number(text: str) -> bool:
    """Whether a trimmed text reads as a number."""
    return PLAIN_FORM.parse_number(text) is not None


def read_first_line(
    cells: list[str],
    source: str,
    header: bool | None,
    expected: ExpectedColumns | None,
    is_missing: Callable[[str], bool],
    named: Collection[str] = (),
) -> FirstLine:
    """Decide whether the first line is a header and name the columns.

    A line that shares a name with what is expected is a header. Without expectation a line of
    nothing but numbers (and missing values) is data, unless one of them is a column that the user
    `named`. Columns without names are column1, column2...
    """
    cells = [cell.strip() for cell in cells]
    told = header is not None
    if header is None:
        numbers = [is_number(cell) or looks_numeric(cell) for cell in cells]
        numeric = any(numbers) and all(
            number or is_missing(cell) for number, cell in zip(numbers, cells, strict=True)
        )
        if expected is None:
            header = not numeric or not set(cells).isdisjoint(named)
        else:
            # A value may happen to be a name (columns may be called 0, 1, 2): a line that reads
            # as data is a header only when all names are in it.
            shared = set(cells) & set(expected.names)
            header = len(shared) == len(expected.names) or (
                bool(shared) and not (any(numbers) and _fits_expected(cells, expected))
            )
    if header:
        names = [name or f"column{at}" for at, name in enumerate(cells, 1)]
        check_unique_names(names, source)
        return FirstLine(names, True)
    if expected is None:
        return FirstLine([f"column{at}" for at in range(1, len(cells) + 1)], False)
    return FirstLine(_name_by_position(cells, source, expected, told), False)


def _list_expected_names(expected: ExpectedColumns) -> list[list[str]]:
    bare = expected.without_target
    return [expected.names] if bare is None else [expected.names, bare]


def _fits_expected(cells: list[str], expected: ExpectedColumns) -> bool:
    return any(
        len(names) == len(cells) and expected.misfit(names, cells) is None
        for names in _list_expected_names(expected)
    )


def _name_by_position(
    cells: list[str], source: str, expected: ExpectedColumns, told: bool
) -> list[str]:
    """The names of a line without header: by position, as in the data seen before.

    A line that does not read as data is refused, unless the user said that it is data.
    """
    for names in _list_expected_names(expected):
        if len(names) == len(cells):
            why = None if told else expected.misfit(names, cells)
            if why is None:
                return names
            raise DataError(
                f"{source}:1: the first line is neither the expected header "
                f"({_format_names(expected.names)}) nor data: {why}"
            )
    raise DataError(
        f"{source}:1: the first line is not the expected header ({_format_names(expected.names)}) and has "
        f"{format_plural(len(cells), 'field')} where the data have {len(expected.names)}"
    )


def _format_names(names: Sequence[str]) -> str:
    shown = ", ".join(shorten(name, 20) for name in names[:4])
    return shown + (", ..." if len(names) > 4 else "")


def format_plural(number: int, noun: str) -> str:
    """`1 field`, `2 fields`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def check_unique_names(names: Sequence[str], source: str) -> None:
    """Refuse two columns of one name."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise DataError(
                f"{source}: two columns are named '{shorten(name)}' (rename one of them)"
            )
        if len(name) > MAX_NAME_LENGTH:
            raise DataError(
                f"{source}: the name of a column has {len(name):,} characters, {MAX_NAME_LENGTH:,} are "
                f"the most: '{shorten(name)}'"
            )
        seen.add(name)


def check_width(columns: int, source: str, hints: ReadHints) -> None:
    """Refuse more columns than are ever read, before any of them is, unless some are chosen."""
    if columns > MAX_COLUMNS and hints.wanted is None:
        raise DataError(
            f"{source}: has {columns:,} columns, {MAX_COLUMNS:,} are the most that are read "
            "(choose some: --target and --features for train, --only-predictions for predict)"
        )


def has_close_match(name: str, names: Sequence[str]) -> bool:
    """Whether one of the names may be the same one, spelt otherwise."""
    return bool(difflib.get_close_matches(name, names, 1))


def missing_column_error(name: str, names: Sequence[str], source: str = "") -> DataError:
    """The error for a column that is not there, with the closest names that are."""
    close = difflib.get_close_matches(name, names, 2)
    hint = " or ".join(f"'{match}'" for match in close)
    place = f"{source}: " if source else ""
    remedy = f" (did you mean {hint}?)" if close else f" (there are: {_format_names(names)})"
    return DataError(f"{place}no column '{shorten(name)}'{remedy}")
