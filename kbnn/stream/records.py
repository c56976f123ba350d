"""Cut a byte stream after complete records, minding quoted newlines, and find records again.

The rule is the bulk parser's: a quote opens a quoted stretch only at the start of a field, `""`
inside it is a quote, and whatever follows the closing quote is plain. Cutting by the parity of
quotes alone would go wrong at a stray one (`5" pipe`), so parity is used only where every opening
quote is checked to be at the start of a field, and the exact scan serves otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kbnn.core.layout import IntArray

_Bytes = NDArray[np.uint8]

MAX_RECORD_BYTES: Final = 16 << 20  # a longer record means an unbalanced quote or no table at all
_NEWLINE: Final = 10
_RETURN: Final = 13
_QUOTE: Final = 34
_LINE_END: Final = re.compile(rb"[\r\n]")
_SPECIAL: Final = re.compile(rb'[\r\n"]')


def find_last_end(data: bytes, delimiters: str) -> int:
    """The position after the last complete record in `data`, which starts at a record."""
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
    """Whether every second of these quotes opens a field, or is one of a pair inside it."""
    openers = quotes[::2]
    before = values[openers - 1]
    starts = _field_starts(delimiters)[before] | (before == _QUOTE) | (openers == 0)
    return bool(starts.all())


def _field_starts(delimiters: str) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Which bytes may stand before the first byte of a field."""
    table = np.zeros(256, np.bool_)
    table[[ord(delimiter) for delimiter in delimiters]] = True
    table[[_NEWLINE, _RETURN]] = True
    return table


def _scan_last_end(data: bytes, delimiters: str) -> int:
    """The same as `last_end`, quote by quote."""
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
    """The position after the quote that closes a stretch whose inside starts at `at`; -1: none.

    A quote at the very end may be the first of a pair, so it does not close yet.
    """
    while True:
        close = data.find(b'"', at)
        if close < 0 or close + 1 == len(data):
            return -1
        if data[close + 1] != _QUOTE:
            return close + 1
        at = close + 2


class RecordSplitter:
    """Collects pieces of any size and hands out complete records."""

    def __init__(self, delimiters: str | None) -> None:
        self._delimiters = delimiters
        self._pending: list[bytes] = []
        self._size = 0

    @property
    def pending_bytes(self) -> int:
        """How many bytes wait for the end of their record."""
        return self._size

    def feed(self, piece: bytes) -> bytes:
        """Add a piece; return all records complete by now, or nothing."""
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
        """The bytes after the last complete record; the splitter is empty afterwards."""
        data = b"".join(self._pending)
        self._pending, self._size = [], 0
        return data


def is_closed(data: bytes, delimiters: str) -> bool:
    """Whether the last record would be complete if a newline followed."""
    return find_last_end(data + b"\n", delimiters) == len(data) + 1


def find_record_starts(data: bytes, delimiter: str | None) -> list[int]:
    """Where each record in `data` starts; blank lines are no records.

    For looking up a line number or a bad record, so plain code rather than fast code.
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
    """The position of the line end that closes the record at `start`."""
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
    """The same as `_record_end`, at once where quotes are as they should be."""
    values = np.frombuffer(data, np.uint8, offset=start)
    quotes = np.flatnonzero(values == _QUOTE)
    ends = np.flatnonzero((values == _NEWLINE) | (values == _RETURN))
    before = np.searchsorted(quotes, ends)
    outside = np.flatnonzero(before % 2 == 0)
    if len(outside) and _is_parity_reliable(values, quotes[: before[outside[0]]], delimiters):
        return start + int(ends[outside[0]])
    return _find_record_end(data, start, _field_starts(delimiters))


def find_first_record(data: bytes, delimiters: str) -> tuple[int, int] | None:
    """Start and end of the first record that is not blank; None while it is incomplete."""
    start = len(data) - len(data.lstrip(b"\r\n"))
    newline = data.find(b"\n", start)
    if data.find(b'"', start, newline) >= 0:  # the line may go on inside quotes
        newline = data.find(b"\n", _find_first_end(data, start, delimiters))
    return None if newline < 0 else (start, newline + 1)


def max_field_count(record: bytes, delimiter: str) -> int:
    """How many fields one record can have, counted without cutting it."""
    values = np.frombuffer(record, np.uint8)
    quotes = np.flatnonzero(values == _QUOTE)
    splits = np.flatnonzero(values == ord(delimiter))
    inside = np.searchsorted(quotes[: len(quotes) // 2 * 2], splits) % 2
    return len(splits) - int(np.count_nonzero(inside)) + 1


def make_line_finder(data: bytes, first_line: int, delimiter: str | None) -> Callable[[int], int]:
    """A function from a record's position to its physical line, which looks only when asked."""
    starts: list[int] = []

    def line_of(position: int) -> int:
        if not starts:
            starts.extend(find_record_starts(data, delimiter))
        return first_line + data.count(b"\n", 0, starts[position])

    return line_of
