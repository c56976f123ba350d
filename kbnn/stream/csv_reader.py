"""Delimited text to chunks: records are cut here, and parsed in bulk with pinned types.

A chunk whose numbers all read goes straight to float64. Any trouble in a chunk sends it through a
second, slower reading as raw text, which finds the rows at fault; both readings give the same
values, so it does not matter where chunks begin and end.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import chain, pairwise

import pyarrow as pa
import pyarrow.csv

from kbnn.errors import DataError
from kbnn.stream.chunk import Chunk, Flaw, FloatArray, Pins, not_utf8
from kbnn.stream.decimals import decimals, lines
from kbnn.stream.formats import (
    DELIMITERS,
    check_comment,
    check_text,
    sniff_delimiter,
    split_fields,
)
from kbnn.stream.header import Expectation, check_width, count, read_first_line
from kbnn.stream.records import (
    MAX_RECORD,
    RecordSplitter,
    at_most_fields,
    first_record,
    is_closed,
    line_finder,
    record_starts,
)

_SEPARATOR = re.compile(rb'"?sep=([,;\t|])"?\r?\n', re.I)
_UNBALANCED = Flaw("", "", "a quote is opened and never closed", "use --on-error skip")


class CsvReader:
    """Reads one delimited text; names, delimiter and header are known once it is made."""

    def __init__(
        self,
        name: str,
        pieces: Iterator[bytes],
        pins: Pins,
        *,
        delimiter: str | None = None,
        header: bool | None = None,
        expected: Expectation | None = None,
    ) -> None:
        self.name = name
        self._pieces = pieces
        self._pins = pins
        self._line = 1
        self._row = 1
        first, self._head = self._first(b"", delimiter or "".join(DELIMITERS))
        stated = _SEPARATOR.fullmatch(first)
        if stated is not None:  # Excel's own line, which says what separates the cells below
            self._line += 1
            delimiter = delimiter or stated[1].decode()
            first, self._head = self._first(self._head, delimiter)
        check_text(first, name)
        if header is None:
            check_comment(first, name)
        self.delimiter = delimiter or sniff_delimiter(first)
        check_width(at_most_fields(first, self.delimiter), name, pins)
        cells = [self._decode(cell) for cell in split_fields(first, self.delimiter)]
        self.columns, self.header = read_first_line(
            cells, name, header, expected, pins.missing.__contains__, pins.named
        )
        if self.header:
            self._line += first.count(b"\n")
        else:
            self._head = first + self._head

    def _first(self, data: bytes, delimiters: str) -> tuple[bytes, bytes]:
        """The first record that is not blank, and what came behind it."""
        for piece in chain([b""], self._pieces):
            data += piece
            found = first_record(data, delimiters)
            if found is not None:
                break
            if len(data) > MAX_RECORD:
                raise self._too_long()
        else:
            found = (len(data) - len(data.lstrip(b"\r\n")), len(data))
            if not is_closed(data, delimiters):
                raise DataError(f"{self.name}:1: {_UNBALANCED.reason}")
        start, end = found
        if not data[start:].strip():
            raise DataError(f"{self.name}: is empty")
        self._line += data.count(b"\n", 0, start)
        return data[start:end], data[end:]

    def _decode(self, cell: bytes) -> str:
        try:
            return cell.decode()
        except UnicodeDecodeError as error:
            flaw = not_utf8("", error)
            raise DataError(f"{self.name}:{self._line}: {flaw.reason} ({flaw.remedy})") from error

    def _too_long(self) -> DataError:
        size = f"{MAX_RECORD >> 20} MiB"
        return DataError(
            f"{self.name}:{self._line}: a record is longer than {size} (an unbalanced quote?)"
        )

    def chunks(self) -> Iterator[Chunk]:
        """All records, as they become complete."""
        splitter = RecordSplitter(self.delimiter)
        for piece in chain([self._head], self._pieces):
            data = splitter.feed(piece)
            if len(data) > MAX_RECORD:
                yield from self._check_lengths(data)
            elif data:
                yield from self._parse(data)
            if splitter.size > MAX_RECORD:
                raise self._too_long()
        tail = splitter.rest()
        if is_closed(tail, self.delimiter):
            yield from self._parse(tail)
        else:
            yield from self._parse_lines(tail)

    def _check_lengths(self, data: bytes) -> Iterator[Chunk]:
        starts = [*record_starts(data, self.delimiter), len(data)]
        for start, end in pairwise(starts):
            if end - start > MAX_RECORD:
                yield from self._parse(data[:start])
                raise self._too_long()
        yield from self._parse(data)

    def _parse(self, data: bytes) -> Iterator[Chunk]:
        """Complete records to a chunk; blank lines alone make none."""
        table = self._read_decimals(data)
        if table is not None:
            columns = [pa.array(column) for column in table]
            batch = pa.RecordBatch.from_arrays(columns, names=self.columns)
            yield replace(self._chunk(data, batch, {}), table=table)
            self._line += batch.num_rows  # such a table has a row in every line
            return
        if data.lstrip(b"\r\n"):
            numbers = self._pins.numbers
            flaws: dict[int, Flaw] = {}
            batch = self._read(data, lambda name: pa.float64() if name in numbers else pa.string())
            if batch is None:
                batch, flaws = self._read_slowly(self._records(data), {})
            yield self._chunk(data, batch, flaws)
        self._line += lines(data)

    def _parse_lines(self, data: bytes) -> Iterator[Chunk]:
        """The end of a text whose last quote never closes: line by line, to save what is whole."""
        lines = [line for line in data.replace(b"\r", b"\n").split(b"\n") if line]
        flaws = {
            at: _UNBALANCED for at, line in enumerate(lines) if not is_closed(line, self.delimiter)
        }
        batch, flaws = self._read_slowly([line + b"\n" for line in lines], flaws)
        yield self._chunk(data, batch, flaws, by_line=True)

    def _chunk(
        self, data: bytes, batch: pa.RecordBatch, flaws: dict[int, Flaw], by_line: bool = False
    ) -> Chunk:
        row, self._row = self._row, self._row + batch.num_rows
        line_of = line_finder(data, self._line, None if by_line else self.delimiter)
        return Chunk(self.name, batch, row, flaws, line_of)

    def _records(self, data: bytes) -> list[bytes]:
        starts = [*record_starts(data, self.delimiter), len(data)]
        return [data[start:end] for start, end in pairwise(starts)]

    def _read_decimals(self, data: bytes) -> FloatArray | None:
        """Parse a table of plain decimals; None when a column is none of numbers, or a value."""
        if not self._pins.numbers.issuperset(self.columns):
            return None
        if not all(map(self._pins.wants, self.columns)):
            return None
        return decimals(data, self.delimiter, len(self.columns))

    def _read(self, data: bytes, type_of: Callable[[str], pa.DataType]) -> pa.RecordBatch | None:
        """Parse in bulk; None when a value does not fit its type or a row has not all fields."""
        included = [name for name in self.columns if self._pins.wants(name)]
        included = included or self.columns[:1]
        try:
            table = pyarrow.csv.read_csv(
                pa.BufferReader(data),
                read_options=pyarrow.csv.ReadOptions(
                    column_names=self.columns, use_threads=False, block_size=len(data) + 1
                ),
                parse_options=pyarrow.csv.ParseOptions(
                    delimiter=self.delimiter, newlines_in_values=True
                ),
                convert_options=pyarrow.csv.ConvertOptions(
                    column_types={name: type_of(name) for name in included},
                    include_columns=included,
                    null_values=self._pins.missing,
                    strings_can_be_null=False,
                ),
            )
        except (pa.ArrowInvalid, pa.ArrowKeyError):
            return None
        return _one_batch(table)

    def _count_fields(self, record: bytes) -> int:
        if b'"' in record:
            return len(split_fields(record, self.delimiter))
        return record.count(self.delimiter.encode()) + 1

    def _read_slowly(
        self, records: list[bytes], flaws: dict[int, Flaw]
    ) -> tuple[pa.RecordBatch, dict[int, Flaw]]:
        """Parse as raw text, an empty row in the place of every record that is none."""
        width = len(self.columns)
        empty = self.delimiter.encode() * (width - 1) + b"\n" if width > 1 else b'""\n'
        records = [empty if at in flaws else record for at, record in enumerate(records)]
        for at, record in enumerate(records):
            fields = self._count_fields(record)
            if fields != width:
                text = record.rstrip(b"\r\n").decode(errors="backslashreplace")
                what = "the header" if self.header else "the first line"
                reason = f"has {count(fields, 'field')}, {what} has {width}"
                flaws[at] = Flaw("", text, reason, "use --on-error skip")
                records[at] = empty
        batch = self._read(b"".join(records), lambda _: pa.binary())
        if batch is None or batch.num_rows != len(records):
            raise DataError(f"{self.name}:{self._line}: cannot be read as delimited text")
        columns = [
            _checked(name, array, flaws)
            for name, array in zip(batch.schema.names, batch.columns, strict=True)
        ]
        return pa.RecordBatch.from_arrays(columns, names=batch.schema.names), flaws


def _one_batch(table: pa.Table) -> pa.RecordBatch:
    batches = table.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=table.schema)


def _checked(name: str, array: pa.Array, flaws: dict[int, Flaw]) -> pa.Array:
    """Raw text as strings; a value that is not UTF-8 flaws its row and is left empty."""
    try:
        return array.cast(pa.string())
    except pa.ArrowInvalid:
        pass
    texts: list[str | None] = []
    for at, value in enumerate(array.to_pylist()):
        try:
            texts.append(value.decode())
        except UnicodeDecodeError as error:
            flaws.setdefault(at, not_utf8(name, error))
            texts.append(None)
    return pa.array(texts, pa.string())
