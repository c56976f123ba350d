"""Open a source as what it is, and read several sources as one sequence of chunks."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import replace
from importlib import import_module
from typing import Final, Protocol

from kbnn.errors import DataError
from kbnn.stream.chunk import Chunk, Pins, shorten
from kbnn.stream.csv_reader import CsvReader
from kbnn.stream.formats import NOUNS, Binary, recognise
from kbnn.stream.header import Expectation, is_close, is_number, no_column
from kbnn.stream.inputs import Inputs
from kbnn.stream.json_reader import JsonReader
from kbnn.stream.memory import BatchReader
from kbnn.stream.sources import ByteReader
from kbnn.stream.textbytes import TextBytes

SHOWN: Final = 5
"""Columns named in a message."""
_TABLES: Final = "kbnn.stream.arrow_reader"  # loaded when it is needed, as other binary formats


class Reader(Protocol):
    """What every format's reader offers."""

    columns: list[str]

    def chunks(self) -> Iterator[Chunk]: ...


class Reading:
    """Opens sources one after another; later ones must have the columns that are expected."""

    def __init__(
        self,
        sources: Inputs,
        pins: Pins,
        *,
        format: str,
        delimiter: str | None,
        header: bool | None,
        notice: Callable[[str], None],
    ) -> None:
        self.sources = sources
        self.pins = pins
        self.expected: Expectation | None = None
        self.needed: list[str] = []
        self.features: frozenset[str] = frozenset()
        """Those of the needed columns that count as missing where they are not there."""
        self.by_id: str | None = None  # the only column that every source must have
        self.admit = False  # columns that are new are left to whoever encodes the rows
        self.delimiter: str | None = None
        self.first: Reader | None = None
        self.opened = 0
        self.bytes_done = 0
        self._format = format
        self._told_delimiter = "\t" if format == "tsv" and delimiter is None else delimiter
        self._told_header = header
        self.notice = notice
        self._bytes: ByteReader | BatchReader | None = None

    @property
    def columns(self) -> list[str]:
        """The names of the first source's columns, none before it is opened."""
        return self.first.columns if self.first else []

    @property
    def bytes_read(self) -> int:
        """Bytes taken from all sources so far (compressed bytes, where compressed)."""
        return self.bytes_done + (self._bytes.count if self._bytes else 0)

    def chunks(self) -> Generator[Chunk]:
        """All chunks of all sources."""
        rows = before = 0
        for source in self.sources:
            with source.open() as reader:
                self._bytes = reader
                empty = True
                opened = self._open(reader)
                for chunk in opened.chunks():
                    empty = False
                    rows += chunk.size
                    span = (before, self.bytes_read)
                    before = self.bytes_read
                    yield replace(chunk, span=span)
                if empty and self.sources.alone:
                    what = "a header but " if isinstance(opened, CsvReader) else ""
                    raise DataError(f"{source.name}: holds {what}no rows")
                if empty:
                    self.notice(f"{source.name} holds no rows")
                self._bytes = None
                self.bytes_done += source.size or reader.count
        if rows == 0:
            raise DataError("the sources hold no rows")

    def _open(self, reader: ByteReader | BatchReader) -> Reader:
        """Recognise the format and check the columns."""
        name = reader.source.name
        opened = self._open_as(reader, name)
        if isinstance(opened, CsvReader) and self.first is None:
            self.delimiter = opened.delimiter
            if not opened.header and self._told_header is None:
                self.notice(f"{name} has no header: {_no_header(opened.columns, self.expected)}")
        if not isinstance(opened, JsonReader):
            self._check(opened.columns, name)
        for text in getattr(opened, "notices", ()):
            self.notice(text)
        self.first = self.first or opened
        self.opened += 1
        return opened

    def _open_as(self, reader: ByteReader | BatchReader, name: str) -> Reader:
        if isinstance(reader, BatchReader):
            table: Reader = import_module(_TABLES).open_table(reader, self.pins)
            return table
        kind = recognise(reader.head(), name)
        told = self._format
        expected = self._expectation()
        if isinstance(kind, Binary) and told in ("auto", kind.format):
            module, function = kind.reader.split(":")
            binary: Reader = getattr(import_module(module), function)(reader, self.pins)
            return binary
        if told in NOUNS:
            raise DataError(f"{name}: is {f'not {NOUNS[told]}' if reader.head() else 'empty'}")
        if isinstance(kind, Binary):
            raise DataError(f"{name}: is {kind.format.title()}, not {told.upper()}")
        text = TextBytes(reader)
        if told == "json" or (told == "auto" and text.kind == "json"):
            known = None if expected is None else expected.without_target or expected.names
            return JsonReader(
                name,
                iter(text),
                self.pins,
                known,
                lambda keys: self._check_keys(keys, name),
                self.notice,
                self.admit,
            )
        return CsvReader(
            name,
            iter(text),
            self.pins,
            delimiter=self._told_delimiter,
            header=self._told_header,
            expected=expected,
        )

    def _expectation(self) -> Expectation | None:
        """What the columns should be: as the schema says, or as in the first source."""
        if self.expected is not None or self.first is None:
            return self.expected
        return Expectation(
            self.first.columns,
            None,
            lambda names, cells: None if any(map(is_number, cells)) else "it holds no number",
        )

    def _check_keys(self, keys: list[str], name: str) -> None:
        """In JSON an absent key is a missing value, but not when all are absent."""
        absent = [needed for needed in self.needed if needed not in keys]
        if absent and len(absent) == len(self.needed):
            raise no_column(absent[0], keys, name)
        for needed in absent:
            self.notice(f"{name}: the first line has no '{needed}': read as missing")
        self._tell_unknown(keys, name)

    def _check(self, columns: list[str], name: str) -> None:
        """Every needed column must be there, but for features that have vanished."""
        expected = self._expectation()
        needed = self.needed if self.expected or expected is None else expected.names
        there = frozenset(columns)
        absent = [column for column in needed if column not in there]
        strangers = [column for column in columns if column not in self.pins.known]
        spared = self.features
        if self.by_id is not None and self.expected is None:
            spared = frozenset(needed) - {self.by_id}
        some = not spared.isdisjoint(there)
        for column in absent:
            if column not in spared or not some or is_close(column, strangers):
                raise no_column(column, columns, name)
            self.notice(f"{name}: has no column '{shorten(column)}': read as missing")
        self._tell_unknown(columns, name)

    def _tell_unknown(self, columns: list[str], name: str) -> None:
        if self.admit:
            return
        expected = self._expectation()
        known = self.pins.known.union(columns if expected is None else expected.names)
        extra = [column for column in columns if column not in known]
        if extra:
            shown = ", ".join(shorten(column) for column in extra[:SHOWN])
            more = f" and {len(extra) - SHOWN} more" if len(extra) > SHOWN else ""
            self.notice(f"{name}: unknown columns are ignored: {shown}{more}")


def _no_header(columns: list[str], expected: Expectation | None) -> str:
    if expected is not None:
        return "columns are taken by position"
    return (
        f"the first line is all numbers, so columns are named {columns[0]} to {columns[-1]} "
        "(otherwise use --header)"
    )
