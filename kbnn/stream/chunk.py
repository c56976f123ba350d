"""Chunks: rows as they were read, with what is known to be wrong with some of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

BoolArray = npt.NDArray[np.bool_]
FloatArray = npt.NDArray[np.float64]


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
