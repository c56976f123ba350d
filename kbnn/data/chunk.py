"""Chunks: rows as they were read, with what is known to be wrong with some of them.

How many rows make a block: as many as keep whoever uses it busy for a fifth of a second.

Signals, checkpoints and progress wait for the end of a block, and a row may take a microsecond or,
in a very large network, a second. To open and close a belief takes as long as 15 to 50 of its rows,
so there is a least size. No result depends on where a stream is cut.

Read ahead in a thread, a bounded distance, so that reading overlaps with learning.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Generic, NamedTuple, TypeVar

import pyarrow as pa

from kbnn.array_types import BoolArray, FloatArray


class RowError(NamedTuple):
    """Why a row cannot be used; column and value are empty when the whole row is meant."""

    column: str
    value: str
    reason: str
    remedy: str = ""


class BadRow(NamedTuple):
    """A row that was not used, for messages and for the list of bad rows."""

    source: str
    line: int  # physical line of a text file (a header is line 1), otherwise row number
    column: str
    value: str
    reason: str
    text: bool
    row: int  # number of the row in its source, as in `Block.rows`

    def __str__(self) -> str:
        place = f"{self.source}:{self.line}: " if self.text else f"{self.source}: row {self.line}: "
        return (
            f"{place}column '{self.column}': {self.reason}" if self.column else place + self.reason
        )


@dataclass(frozen=True)
class Chunk:
    """Consecutive rows of one source, flawed ones in their places."""

    source: str
    batch: pa.RecordBatch
    first_row: int  # number of the first row, counted from 1 without the header
    row_errors: dict[int, RowError] = field(default_factory=dict)  # by position in the batch
    line_of: Callable[[int], int] | None = None  # physical line of a position; None: not text
    offset: int = 0  # position of the first row for `line_of`
    span: tuple[int, int] = (0, 0)  # bytes of the sources read before it, and with it
    typed: Mapping[str, BoolArray] = field(default_factory=dict)  # texts that were numbers
    table: FloatArray | None = None  # (columns, rows) where every value is a plain decimal

    @property
    def size(self) -> int:
        """The number of rows."""
        return int(self.batch.num_rows)

    def slice(self, start: int, stop: int) -> Chunk:
        """The rows from `start` up to `stop`."""
        begin, end = self.span
        each = (end - begin) / max(self.size, 1)
        return Chunk(
            self.source,
            self.batch.slice(start, stop - start),
            self.first_row + start,
            {at - start: flaw for at, flaw in self.row_errors.items() if start <= at < stop},
            self.line_of,
            self.offset + start,
            (begin + int(each * start), end if stop >= self.size else begin + int(each * stop)),
            {name: which[start:stop] for name, which in self.typed.items()},
            None if self.table is None else self.table[:, start:stop],
        )

    def make_bad_row(self, position: int, flaw: RowError) -> BadRow:
        """Name the place of a flaw."""
        text = self.line_of is not None
        row = self.first_row + position
        line = self.line_of(self.offset + position) if self.line_of else row
        return BadRow(self.source, line, flaw.column, flaw.value, flaw.reason, text, row)


def shorten(value: str, limit: int = 40) -> str:
    """A value as it may stand in a message: printable and not too long."""
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in value)
    return shown if len(shown) <= limit else shown[: limit - 3] + "..."


def encoding_error(column: str, error: UnicodeDecodeError) -> RowError:
    """The flaw of a value in another encoding."""
    value = shorten(error.object.decode(errors="backslashreplace"))
    reason = f"byte 0x{error.object[error.start]:02X} is not UTF-8"
    return RowError(column, value, reason, "convert it with iconv -f WINDOWS-1252 -t UTF-8")


@dataclass
class ReadHints:
    """What the readers may know about columns; it changes how values travel, never what they are.

    Columns in `numbers` are parsed to float64 on the way in; only columns in `wanted` are parsed
    at all (None: every column), and where `late` is true those that are not `known`. `named` are
    those that the user named: a first line with one of them is a header. Columns in `ignored` may
    hold anything, damaged values too.
    """

    numbers: frozenset[str] = frozenset()
    booleans: frozenset[str] = frozenset()
    wanted: frozenset[str] | None = None
    missing: tuple[str, ...] = ()
    known: frozenset[str] = frozenset()
    named: frozenset[str] = frozenset()
    late: bool = False
    ignored: frozenset[str] = frozenset()

    def is_wanted(self, name: str) -> bool:
        """Whether a column is to be parsed."""
        if self.wanted is None or name in self.wanted:
            return True
        return self.late and name not in self.known


TARGET_BATCH_SECONDS = 0.2
MIN_BATCH_ROWS = 128
MAX_BATCH_GROWTH = 4


class BatchSizer:
    """The size of the next block, at most `most`."""

    def __init__(self, max_rows: int) -> None:
        self.max_rows = max_rows
        self.rows = min(MIN_BATCH_ROWS, max_rows)

    def record_duration(self, rows: int, seconds: float) -> None:
        """A block of so many rows was used for so long."""
        fits = int(rows * TARGET_BATCH_SECONDS / max(seconds, 1e-9))
        self.rows = min(max(fits, MIN_BATCH_ROWS), MAX_BATCH_GROWTH * self.rows, self.max_rows)


T = TypeVar("T")
READ_AHEAD_ITEMS: Final = 2


class _EndOfItems:
    """The end of the items, with the error that caused it, if any."""

    def __init__(self, error: BaseException | None) -> None:
        self.error = error


class ReadAhead(Generic[T]):
    """The same items as the iterator it is given, in order, and the same error at the same place.

    At most DEPTH items wait and one is being made. `close` ends the thread; an
    iterator that it never began is left to whoever made it.
    """

    def __init__(self, items: Iterator[T]) -> None:
        self._items = items
        self._queue: queue.Queue[T | _EndOfItems] = queue.Queue(READ_AHEAD_ITEMS)
        self._stop = threading.Event()
        self._done = False
        self._thread: threading.Thread | None = None  # begins with the first item asked for

    def _read_items(self) -> None:
        error: BaseException | None = None
        try:
            for item in self._items:
                self._queue.put(item)
                if self._stop.is_set():
                    break
        except BaseException as caught:  # handed to the consumer, whatever it is
            error = caught
        finally:
            close = getattr(self._items, "close", None)
            if close is not None:
                close()
        self._queue.put(_EndOfItems(error))

    def __iter__(self) -> ReadAhead[T]:
        return self

    def __next__(self) -> T:
        if self._done:
            raise StopIteration
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._read_items, name="kbnn-read-ahead", daemon=True
            )
            self._thread.start()
        item = self._queue.get()
        if not isinstance(item, _EndOfItems):
            return item
        self._done = True
        self._thread.join()
        if item.error is not None:
            raise item.error
        raise StopIteration

    def close(self) -> None:
        """Stop reading: what was read ahead is dropped."""
        self._stop.set()
        if self._thread is None:
            self._done = True
            return
        while not self._done:
            self._done = isinstance(self._queue.get(), _EndOfItems)
        self._thread.join()
