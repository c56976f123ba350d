"""Open each source with the reader of its format, and read all sources as one sequence of chunks.

`BadRowWriter` writes the rows that could not be read to the CSV file of `--bad-rows`.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Generator, Iterator
from dataclasses import replace
from typing import Final, Protocol

from kbnn.data.chunk import BadRow, Chunk, ReadHints, shorten
from kbnn.data.csv_format import CsvReader, DecompressedText
from kbnn.data.csv_records import ExpectedColumns, has_close_match, is_number, missing_column_error
from kbnn.data.formats import (
    FORMAT_NOUNS,
    KEYED_FORMATS,
    BinaryFormat,
    KeyedFormat,
    detect_format,
    load_reader,
)
from kbnn.data.inputs import BatchReader, SourceList
from kbnn.data.jsonl_format import JsonReader
from kbnn.data.sources import ByteReader
from kbnn.errors import DataError, UsageError
from kbnn.sink import Closeable, open_sink

MAX_SHOWN_COLUMNS: Final = 5
"""Largest number of columns named in a message."""


class FormatReader(Protocol):
    """The interface of the readers of all formats."""

    columns: list[str]

    def read_chunks(self) -> Iterator[Chunk]: ...


class ChunkReader:
    """Opens sources one after another; later sources must have the expected columns."""

    def __init__(
        self,
        sources: SourceList,
        hints: ReadHints,
        *,
        format: str,
        delimiter: str | None,
        header: bool | None,
        notice: Callable[[str], None],
    ) -> None:
        self.sources = sources
        self.hints = hints
        self.expected: ExpectedColumns | None = None
        self.needed: list[str] = []
        self.features: frozenset[str] = frozenset()
        """Needed columns whose values count as missing if a source lacks the column."""
        self.by_id: str | None = None  # the only column that every source must have
        self.admit = False  # whether new columns are passed on to the encoder
        self.delimiter: str | None = None
        self.first_reader: FormatReader | None = None
        self.opened_sources = 0
        self.bytes_done = 0
        self._format = format
        self._given_delimiter = "\t" if format == "tsv" and delimiter is None else delimiter
        self._given_header = header
        self.notice = notice
        self._bytes: ByteReader | BatchReader | None = None

    @property
    def columns(self) -> list[str]:
        """The column names of the first source, empty before it is opened."""
        return self.first_reader.columns if self.first_reader else []

    @property
    def bytes_read(self) -> int:
        """Bytes read from all sources so far (compressed bytes for compressed files)."""
        return self.bytes_done + (self._bytes.bytes_read if self._bytes else 0)

    def read_chunks(self) -> Generator[Chunk]:
        """Yield all chunks of all sources."""
        rows = before = 0
        for source in self.sources:
            with source.open() as reader:
                self._bytes = reader
                empty = True
                opened = self._open_source(reader)
                for chunk in opened.read_chunks():
                    empty = False
                    rows += chunk.size
                    span = (before, self.bytes_read)
                    before = self.bytes_read
                    yield replace(chunk, span=span)
                if empty and self.sources.is_single:
                    what = "a header but " if isinstance(opened, CsvReader) else ""
                    raise DataError(f"{source.name}: holds {what}no rows")
                if empty:
                    self.notice(f"{source.name} holds no rows")
                self._bytes = None
                self.bytes_done += source.size or reader.bytes_read
        if rows == 0:
            raise DataError("the sources hold no rows")

    def _open_source(self, reader: ByteReader | BatchReader) -> FormatReader:
        """Detect the format of a source and check its columns."""
        name = reader.source.name
        opened = self._open_format(reader, name)
        if isinstance(opened, CsvReader) and self.first_reader is None:
            self.delimiter = opened.delimiter
            if not opened.header and self._given_header is None:
                self.notice(
                    f"{name} has no header: {_describe_no_header(opened.columns, self.expected)}"
                )
        if not isinstance(opened, JsonReader):
            self._check_columns(opened.columns, name)
        for text in getattr(opened, "notices", ()):
            self.notice(text)
        self.first_reader = self.first_reader or opened
        self.opened_sources += 1
        return opened

    def _open_format(self, reader: ByteReader | BatchReader, name: str) -> FormatReader:
        if isinstance(reader, BatchReader):
            from kbnn.data.arrow_format import open_table  # only when needed

            return open_table(reader, self.hints)
        kind = detect_format(reader.peek_head(), name)
        stated = self._format
        expected = self._get_expected()
        if isinstance(kind, BinaryFormat) and stated in ("auto", kind.format):
            binary: FormatReader = load_reader(kind)(reader, self.hints)
            return binary
        if stated in FORMAT_NOUNS:
            raise DataError(
                f"{name}: is {f'not {FORMAT_NOUNS[stated]}' if reader.peek_head() else 'empty'}"
            )
        if isinstance(kind, BinaryFormat):
            raise DataError(f"{name}: is {kind.format.title()}, not {stated.upper()}")
        text = DecompressedText(reader)
        keyed = next((each for each in KEYED_FORMATS if each.format == stated), None)
        if stated == "auto" and isinstance(text.content_type, KeyedFormat):
            keyed = text.content_type
        if keyed is not None:
            known = None if expected is None else expected.without_target or expected.names
            lines: FormatReader = load_reader(keyed)(
                name,
                iter(text),
                self.hints,
                known,
                lambda keys: self._check_keys(keys, name),
                self.notice,
                self.admit,
            )
            return lines
        return CsvReader(
            name,
            iter(text),
            self.hints,
            delimiter=self._given_delimiter,
            header=self._given_header,
            expected=expected,
        )

    def _get_expected(self) -> ExpectedColumns | None:
        """Return the expected columns: those of the schema, or of the first source."""
        if self.expected is not None or self.first_reader is None:
            return self.expected
        return ExpectedColumns(
            self.first_reader.columns,
            None,
            lambda names, cells: None if any(map(is_number, cells)) else "it holds no number",
        )

    def _check_keys(self, keys: list[str], name: str) -> None:
        """Check the keys of a JSON source: absent keys count as missing, unless all are absent."""
        absent = [needed for needed in self.needed if needed not in keys]
        if absent and len(absent) == len(self.needed):
            raise missing_column_error(absent[0], keys, name)
        for needed in absent:
            self.notice(f"{name}: the first line has no '{needed}': read as missing")
        self._report_unknown_columns(keys, name)

    def _check_columns(self, columns: list[str], name: str) -> None:
        """Check that all needed columns are present; absent features count as missing."""
        expected = self._get_expected()
        needed = self.needed if self.expected or expected is None else expected.names
        there = frozenset(columns)
        absent = [column for column in needed if column not in there]
        unknown = [column for column in columns if column not in self.hints.known]
        optional = self.features
        if self.by_id is not None and self.expected is None:
            optional = frozenset(needed) - {self.by_id}
        some = not optional.isdisjoint(there)
        for column in absent:
            if column not in optional or not some or has_close_match(column, unknown):
                raise missing_column_error(column, columns, name)
            self.notice(f"{name}: has no column '{shorten(column)}': read as missing")
        self._report_unknown_columns(columns, name)

    def _report_unknown_columns(self, columns: list[str], name: str) -> None:
        if self.admit:
            return
        expected = self._get_expected()
        known = self.hints.known.union(columns if expected is None else expected.names)
        extra = [column for column in columns if column not in known]
        if extra:
            shown = ", ".join(shorten(column) for column in extra[:MAX_SHOWN_COLUMNS])
            more = (
                f" and {len(extra) - MAX_SHOWN_COLUMNS} more"
                if len(extra) > MAX_SHOWN_COLUMNS
                else ""
            )
            self.notice(f"{name}: unknown columns are ignored: {shown}{more}")


def _describe_no_header(columns: list[str], expected: ExpectedColumns | None) -> str:
    if expected is not None:
        return "columns are matched by position"
    return (
        f"the first line is all numbers, so columns are named {columns[0]} to {columns[-1]} "
        "(use --header if it names them)"
    )


BAD_ROW_COLUMNS = ("source", "row", "column", "value", "reason")
"""`row` is the physical line in a text file (a header is line 1), otherwise the row number."""


class BadRowWriter(Closeable):
    """Counts bad rows and, if it has a file, writes each to it immediately."""

    def __init__(self, path: str | None) -> None:
        self.count = 0
        self.path = path
        if path == "-":
            raise UsageError("--bad-rows needs a file: standard output carries the result")
        self._sink = None if path is None else open_sink(path)
        self._write_line(BAD_ROW_COLUMNS)

    def __call__(self, bad: BadRow) -> None:
        """Count a bad row and write it."""
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
