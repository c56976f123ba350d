"""Find the header and split a byte stream into complete records, with quoted newlines.

The quoting rules are those of Arrow's CSV parser: a quote opens a quoted section only at the start
of a field, `""` inside it is a quote, and text after the closing quote is plain. Splitting by the
parity of quotes alone fails at a stray quote (`5" pipe`). Parity is therefore used only if every
opening quote is at the start of a field; otherwise an exact scan is used.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Collection, Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kbnn.array_types import IntArray
from kbnn.data.chunk import ReadHints, shorten
from kbnn.data.number_format import PLAIN_FORM, looks_numeric
from kbnn.errors import DataError

MAX_COLUMNS: Final = 20_000
"""Largest number of columns: a network of 50 units then has a million weights."""
MAX_NAME_LENGTH: Final = 1000
"""Largest number of characters of a column name."""


class ExpectedColumns(NamedTuple):
    """The expected columns: names in order, names without the target, and a check for data."""

    names: list[str]
    without_target: list[str] | None  # the names when the target may be absent, else None
    misfit: Callable[[Sequence[str], Sequence[str]], str | None]  # (names, cells) -> why not data


class FirstLine(NamedTuple):
    """The column names, and whether the first line was the header."""

    names: list[str]
    header: bool


def is_number(text: str) -> bool:
    """Return whether a trimmed text is a number."""
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

    A line that shares a name with the expected columns is a header. Without expected columns, a
    line of only numbers and missing values is data, unless one of them is a column that the user
    `named`. Columns without names are called column1, column2, ...
    """
    cells = [cell.strip() for cell in cells]
    stated = header is not None
    if header is None:
        numbers = [is_number(cell) or looks_numeric(cell) for cell in cells]
        numeric = any(numbers) and all(
            number or is_missing(cell) for number, cell in zip(numbers, cells, strict=True)
        )
        if expected is None:
            header = not numeric or not set(cells).isdisjoint(named)
        else:
            # A value may equal a name (columns may be called 0, 1, 2): a line that can be read
            # as data is a header only if it contains all names.
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
    return FirstLine(_name_by_position(cells, source, expected, stated), False)


def _list_expected_names(expected: ExpectedColumns) -> list[list[str]]:
    bare = expected.without_target
    return [expected.names] if bare is None else [expected.names, bare]


def _fits_expected(cells: list[str], expected: ExpectedColumns) -> bool:
    return any(
        len(names) == len(cells) and expected.misfit(names, cells) is None
        for names in _list_expected_names(expected)
    )


def _name_by_position(
    cells: list[str], source: str, expected: ExpectedColumns, stated: bool
) -> list[str]:
    """Name the columns of a file without header by position, as in the earlier data.

    Raise DataError if the line is not data, unless the user `stated` that the header is absent.
    """
    for names in _list_expected_names(expected):
        if len(names) == len(cells):
            why = None if stated else expected.misfit(names, cells)
            if why is None:
                return names
            raise DataError(
                f"{source}:1: the first line is neither the expected header "
                f"({_format_names(expected.names)}) nor data: {why}"
            )
    raise DataError(
        f"{source}:1: the first line is not the expected header "
        f"({_format_names(expected.names)}) and has {format_plural(len(cells), 'field')} where "
        f"the data have {len(expected.names)}"
    )


def _format_names(names: Sequence[str]) -> str:
    shown = ", ".join(shorten(name, 20) for name in names[:4])
    return shown + (", ..." if len(names) > 4 else "")


def format_plural(number: int, noun: str) -> str:
    """Format a number with a noun: `1 field`, `2 fields`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def check_unique_names(names: Sequence[str], source: str) -> None:
    """Raise DataError if two columns have the same name, or a name is too long."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise DataError(
                f"{source}: two columns are named '{shorten(name)}' (rename one of them)"
            )
        if len(name) > MAX_NAME_LENGTH:
            raise DataError(
                f"{source}: a column name has {len(name):,} characters, the limit is "
                f"{MAX_NAME_LENGTH:,}: '{shorten(name)}'"
            )
        seen.add(name)


def check_width(columns: int, source: str, hints: ReadHints) -> None:
    """Raise DataError if there are too many columns, unless the user chose some of them."""
    if columns > MAX_COLUMNS and hints.wanted is None:
        raise DataError(
            f"{source}: has {columns:,} columns, the limit is {MAX_COLUMNS:,} "
            "(choose some: --target and --features for train, --only-predictions for predict)"
        )


def has_close_match(name: str, names: Sequence[str]) -> bool:
    """Return whether one of the names is similar to `name`, perhaps a different spelling."""
    return bool(difflib.get_close_matches(name, names, 1))


def missing_column_error(name: str, names: Sequence[str], source: str = "") -> DataError:
    """Make the error for a missing column, with the most similar names that exist."""
    close = difflib.get_close_matches(name, names, 2)
    hint = " or ".join(f"'{match}'" for match in close)
    place = f"{source}: " if source else ""
    remedy = f" (did you mean {hint}?)" if close else f" (available: {_format_names(names)})"
    return DataError(f"{place}no column '{shorten(name)}'{remedy}")


_Bytes = NDArray[np.uint8]

MAX_RECORD_BYTES: Final = 16 << 20  # a longer record means an unclosed quote or not a table
_NEWLINE: Final = 10
_RETURN: Final = 13
_QUOTE: Final = 34
_LINE_END: Final = re.compile(rb"[\r\n]")
_SPECIAL: Final = re.compile(rb'[\r\n"]')


def find_last_end(data: bytes, delimiters: str) -> int:
    """Return the position after the last complete record in `data`, which starts at a record."""
    if b'"' not in data:
        return data.rfind(b"\n") + 1
    values = np.frombuffer(data, np.uint8)
    quotes = np.flatnonzero(values == _QUOTE)
    if not _is_parity_reliable(values, quotes, delimiters):
        return _scan_last_end(data, delimiters)
    end = len(data)
    while True:
        cut = data.rfind(b"\n", 0, end)
        inside = int(np.searchsorted(quotes, cut))
        if cut < 0 or inside % 2 == 0:
            return cut + 1
        end = int(quotes[inside - 1])


def _is_parity_reliable(values: _Bytes, quotes: IntArray, delimiters: str) -> bool:
    """Return whether every second quote opens a field or belongs to a pair inside one."""
    openers = quotes[::2]
    before = values[openers - 1]
    starts = _field_starts(delimiters)[before] | (before == _QUOTE) | (openers == 0)
    return bool(starts.all())


def _field_starts(delimiters: str) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Return a table of the bytes that may precede the first byte of a field."""
    table = np.zeros(256, np.bool_)
    table[[ord(delimiter) for delimiter in delimiters]] = True
    table[[_NEWLINE, _RETURN]] = True
    return table


def _scan_last_end(data: bytes, delimiters: str) -> int:
    """Do the same as `find_last_end`, quote by quote."""
    starts = _field_starts(delimiters)
    at = end = 0
    while True:
        quote = data.find(b'"', at)
        newline = data.rfind(b"\n", at, len(data) if quote < 0 else quote)
        end = max(end, newline + 1)
        if quote < 0:
            return end
        if quote > 0 and not starts[data[quote - 1]]:
            at = quote + 1
            continue
        at = _find_closing_quote(data, quote + 1)
        if at < 0:
            return end


def _find_closing_quote(data: bytes, at: int) -> int:
    """Return the position after the quote that closes the quoted section at `at`; -1 if none.

    A quote at the very end may be the first of a pair, so it does not count as closing.
    """
    while True:
        close = data.find(b'"', at)
        if close < 0 or close + 1 == len(data):
            return -1
        if data[close + 1] != _QUOTE:
            return close + 1
        at = close + 2


class RecordSplitter:
    """Collects pieces of any size and returns complete records."""

    def __init__(self, delimiters: str | None) -> None:
        self._delimiters = delimiters
        self._pending: list[bytes] = []
        self._size = 0

    @property
    def pending_bytes(self) -> int:
        """The number of bytes of the incomplete record at the end."""
        return self._size

    def feed(self, piece: bytes) -> bytes:
        """Add a piece and return all records that are now complete."""
        waiting, self._size = self._pending, self._size + len(piece)
        if b"\n" not in piece:
            waiting.append(piece)
            return b""
        if self._delimiters is None or not any(b'"' in part for part in (piece, *waiting)):
            cut = piece.rfind(b"\n") + 1
            data = b"".join((*waiting, memoryview(piece)[:cut]))
            rest = piece[cut:]
        else:
            data = b"".join((*waiting, piece))
            cut = find_last_end(data, self._delimiters)
            data, rest = data[:cut], data[cut:]
        self._pending = [rest] if rest else []
        self._size = len(rest)
        return data

    def take_rest(self) -> bytes:
        """Remove and return the bytes after the last complete record."""
        data = b"".join(self._pending)
        self._pending, self._size = [], 0
        return data


def is_closed(data: bytes, delimiters: str) -> bool:
    """Return whether the last record would be complete if a newline followed."""
    return find_last_end(data + b"\n", delimiters) == len(data) + 1


def find_record_starts(data: bytes, delimiter: str | None) -> list[int]:
    """Return where each record in `data` starts; blank lines do not count as records.

    Used only to look up line numbers and bad records, so it need not be fast.
    """
    starts: list[int] = []
    fields = None if delimiter is None else _field_starts(delimiter)
    at = 0
    while at < len(data):
        if data[at] in b"\r\n":
            at += 1
            continue
        starts.append(at)
        at = _find_record_end(data, at, fields)
    return starts


def _find_record_end(
    data: bytes, start: int, fields: np.ndarray[tuple[int], np.dtype[np.bool_]] | None
) -> int:
    """Return the position of the line end that closes the record at `start`."""
    at = start
    special = _LINE_END if fields is None else _SPECIAL
    while found := special.search(data, at):
        here = found.start()
        if fields is None or data[here] != _QUOTE:
            return here
        if here > start and not fields[data[here - 1]]:
            at = here + 1
            continue
        at = _find_closing_quote(data, here + 1)
        if at < 0:
            break
    return len(data)


def _find_first_end(data: bytes, start: int, delimiters: str) -> int:
    """Do the same as `_find_record_end`, vectorised if the quotes are well-formed."""
    values = np.frombuffer(data, np.uint8, offset=start)
    quotes = np.flatnonzero(values == _QUOTE)
    ends = np.flatnonzero((values == _NEWLINE) | (values == _RETURN))
    before = np.searchsorted(quotes, ends)
    outside = np.flatnonzero(before % 2 == 0)
    if len(outside) and _is_parity_reliable(values, quotes[: before[outside[0]]], delimiters):
        return start + int(ends[outside[0]])
    return _find_record_end(data, start, _field_starts(delimiters))


def find_first_record(data: bytes, delimiters: str) -> tuple[int, int] | None:
    """Return start and end of the first record that is not blank; None while incomplete."""
    start = len(data) - len(data.lstrip(b"\r\n"))
    newline = data.find(b"\n", start)
    if data.find(b'"', start, newline) >= 0:  # a quoted newline may continue the record
        newline = data.find(b"\n", _find_first_end(data, start, delimiters))
    return None if newline < 0 else (start, newline + 1)


def max_field_count(record: bytes, delimiter: str) -> int:
    """Count the fields that one record can have at most, without splitting it."""
    values = np.frombuffer(record, np.uint8)
    quotes = np.flatnonzero(values == _QUOTE)
    splits = np.flatnonzero(values == ord(delimiter))
    inside = np.searchsorted(quotes[: len(quotes) // 2 * 2], splits) % 2
    return len(splits) - int(np.count_nonzero(inside)) + 1


def make_line_finder(data: bytes, first_line: int, delimiter: str | None) -> Callable[[int], int]:
    """Make a function from a record's position to its physical line; it computes lazily."""
    starts: list[int] = []

    def line_of(position: int) -> int:
        if not starts:
            starts.extend(find_record_starts(data, delimiter))
        return first_line + data.count(b"\n", 0, starts[position])

    return line_of
