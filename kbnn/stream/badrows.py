"""The list of rows that could not be read, for `--bad-rows`: one line of CSV for each."""

from __future__ import annotations

import csv
import io

from kbnn.closing import Closeable
from kbnn.errors import UsageError
from kbnn.sink import open_sink
from kbnn.stream.chunk import BadRow

BAD_ROW_COLUMNS = ("source", "row", "column", "value", "reason")
"""`row` is the physical line in a text file (a header is line 1), otherwise the row's number."""


class BadRowWriter(Closeable):
    """Takes bad rows and writes them to a file at once; without a file it only counts them."""

    def __init__(self, path: str | None) -> None:
        self.count = 0
        self.path = path
        if path == "-":
            raise UsageError("--bad-rows needs a file: standard output carries the result")
        self._sink = None if path is None else open_sink(path)
        self._write_line(BAD_ROW_COLUMNS)

    def __call__(self, bad: BadRow) -> None:
        """Take one."""
        self.count += 1
        self._write_line((bad.source, bad.line, bad.column, bad.value, bad.reason))

    def _write_line(self, cells: tuple[object, ...]) -> None:
        if self._sink is not None:
            line = io.StringIO(newline="")
            csv.writer(line, lineterminator="\n").writerow(cells)
            self._sink.write(line.getvalue().encode(errors="surrogateescape"))

    def close(self) -> None:
        """Close the file; a second call does nothing."""
        if self._sink is not None:
            self._sink.close()
