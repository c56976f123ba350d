"""The list of rows that could not be read, for `--bad-rows`: one line of CSV for each."""

from __future__ import annotations

import csv

from kbnn.closing import Closing
from kbnn.errors import DataError, UsageError
from kbnn.stream.chunk import BadRow
from kbnn.wording import reason_of

COLUMNS = ("source", "row", "column", "value", "reason")
"""`row` is the physical line in a text file (a header is line 1), otherwise the row's number."""


class BadRowList(Closing):
    """Takes bad rows and writes them to a file at once; without a file it only counts them."""

    def __init__(self, path: str | None) -> None:
        self.count = 0
        self.path = path
        self._file = None
        if path == "-":
            raise UsageError("--bad-rows needs a file: standard output carries the result")
        if path is not None:
            try:
                self._file = open(path, "w", encoding="utf-8", newline="")  # noqa: SIM115  # held
            except OSError as error:
                raise DataError(f"{path}: cannot be written ({reason_of(error)})") from error
            self._writer = csv.writer(self._file, lineterminator="\n")
            self._write(COLUMNS)

    def __call__(self, bad: BadRow) -> None:
        """Take one."""
        self.count += 1
        self._write((bad.source, bad.line, bad.column, bad.value, bad.reason))

    def _write(self, cells: tuple[object, ...]) -> None:
        if self._file is not None:
            try:
                self._writer.writerow(cells)
                self._file.flush()
            except OSError as error:
                raise DataError(f"{self.path}: cannot be written ({reason_of(error)})") from error

    def close(self) -> None:
        """Close the file; a second call does nothing."""
        if self._file is not None:
            self._file.close()
