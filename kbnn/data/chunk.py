"""Chunks of rows as read from a source, the errors of single rows, batch sizes and read-ahead.

`BatchSizer` chooses batches that take about a fifth of a second each, because signals,
checkpoints and progress wait for the end of a batch. Batches have a minimum size, because opening
and closing a model state takes as long as 15 to 50 rows. `ReadAhead` reads a bounded distance
ahead in a thread. No result depends on where a stream is cut.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Generic, Literal, NamedTuple, TypeVar

import pyarrow as pa

from kbnn.array_types import BoolArray

OnError = Literal["stop", "skip", "keep"]


class RowError(NamedTuple):
    """Why a row cannot be used; column and value are empty if the whole row is meant."""

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
    row: int  # number of the row in its source, as in `Rows.number`

    def __str__(self) -> str:
        place = f"{self.source}:{self.line}: " if self.text else f"{self.source}: row {self.line}: "
        return (
            f"{place}column '{self.column}': {self.reason}" if self.column else place + self.reason
        )


@dataclass(frozen=True)
class Chunk:
    """Consecutive rows of one source, including the rows with errors."""

    source: str
    batch: pa.RecordBatch
    first_row: int  # number of the first row, counted from 1 without the header
    row_errors: dict[int, RowError] = field(default_factory=dict)  # by position in the batch
    line_of: Callable[[int], int] | None = None  # physical line by position; None: not text
    offset: int = 0  # position of the first row for `line_of`
    span: tuple[int, int] = (0, 0)  # bytes read before this chunk, and including it
    typed: Mapping[str, BoolArray] = field(default_factory=dict)  # texts that were numbers
    is_plain: bool = False  # every value is a number that needs no check

    @property
    def size(self) -> int:
        """The number of rows."""
        return int(self.batch.num_rows)

    def slice(self, start: int, stop: int) -> Chunk:
        """Return the rows from `start` up to `stop`."""
        begin, end = self.span
        each = (end - begin) / max(self.size, 1)
        return Chunk(
            self.source,
            self.batch.slice(start, stop - start),
            self.first_row + start,
            {
                at - start: row_error
                for at, row_error in self.row_errors.items()
                if start <= at < stop
            },
            self.line_of,
            self.offset + start,
            (begin + int(each * start), end if stop >= self.size else begin + int(each * stop)),
            {name: which[start:stop] for name, which in self.typed.items()},
            self.is_plain,
        )

    def make_bad_row(self, position: int, row_error: RowError) -> BadRow:
        """Describe a bad row: its place in the source and its error."""
        text = self.line_of is not None
        row = self.first_row + position
        line = self.line_of(self.offset + position) if self.line_of else row
        return BadRow(
            self.source, line, row_error.column, row_error.value, row_error.reason, text, row
        )


def shorten(value: str, limit: int = 40) -> str:
    """Make a value printable and at most `limit` characters long, for messages."""
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in value)
    return shown if len(shown) <= limit else shown[: limit - 3] + "..."


def encoding_error(column: str, error: UnicodeDecodeError) -> RowError:
    """Make the row error for a value that is not UTF-8."""
    value = shorten(error.object.decode(errors="backslashreplace"))
    reason = f"byte 0x{error.object[error.start]:02X} is not UTF-8"
    return RowError(column, value, reason, "convert it with iconv -f WINDOWS-1252 -t UTF-8")


@dataclass
class ReadHints:
    """Hints that make reading faster; they never change the values that are read.

    Columns in `numbers` are parsed directly to float64. Only columns in `wanted` are parsed
    (None: every column) and, if `late` is true, those not in `known`. `named` are the columns
    that the user named: a first line that contains one of them is a header. Columns in `ignored`
    may hold anything, even damaged values.
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
        """Return whether a column is to be parsed."""
        if self.wanted is None or name in self.wanted:
            return True
        return self.late and name not in self.known


TARGET_BATCH_SECONDS = 0.2
MIN_BATCH_ROWS = 128
MAX_BATCH_GROWTH = 4


class BatchSizer:
    """Chooses the number of rows of the next batch, at most `max_rows`."""

    def __init__(self, max_rows: int) -> None:
        self.max_rows = max_rows
        self.rows = min(MIN_BATCH_ROWS, max_rows)

    def record_duration(self, rows: int, seconds: float) -> None:
        """Adapt the batch size to the time that the last batch took."""
        fits = int(rows * TARGET_BATCH_SECONDS / max(seconds, 1e-9))
        self.rows = min(max(fits, MIN_BATCH_ROWS), MAX_BATCH_GROWTH * self.rows, self.max_rows)


T = TypeVar("T")
READ_AHEAD_ITEMS: Final = 2


class _EndOfItems:
    """Marks the end of the items, with the error that caused it, if any."""

    def __init__(self, error: BaseException | None) -> None:
        self.error = error


class ReadAhead(Generic[T]):
    """Iterate over the items of an iterator, read ahead in a thread.

    Items come in the same order, and an error is raised at the same place. At most
    READ_AHEAD_ITEMS items wait while one more is read. `close` ends the thread; it does not close
    an iterator from which nothing was read.
    """

    def __init__(self, items: Iterator[T]) -> None:
        self._items = items
        self._queue: queue.Queue[T | _EndOfItems] = queue.Queue(READ_AHEAD_ITEMS)
        self._stop = threading.Event()
        self._done = False
        self._thread: threading.Thread | None = None  # started by the first __next__

    def _read_items(self) -> None:
        error: BaseException | None = None
        try:
            for item in self._items:
                self._queue.put(item)
                if self._stop.is_set():
                    break
        except BaseException as caught:  # raised again in the consumer's thread
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
        """Stop reading and drop what was read ahead."""
        self._stop.set()
        if self._thread is None:
            self._done = True
            return
        while not self._done:
            self._done = isinstance(self._queue.get(), _EndOfItems)
        self._thread.join()
