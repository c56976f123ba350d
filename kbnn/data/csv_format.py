"""Read delimited text (CSV, TSV) into chunks, decompressed if necessary.

Complete records are parsed in bulk. Tables of plain decimals ([-]digits[.digits]) are parsed by
the compiled module, others by Arrow with the types of the schema; both give the double nearest to
each decimal. A chunk that does not fit is parsed again as raw text, which is slower and finds the
bad rows. All ways give the same values, so chunk boundaries do not matter.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import chain, pairwise
from typing import Any

import pyarrow as pa
import pyarrow.csv

from kbnn.array_types import MAX_ABS_VALUE, MIN_ABS_VALUE, FloatArray
from kbnn.data.chunk import Chunk, ReadHints, RowError, encoding_error
from kbnn.data.csv_records import (
    MAX_RECORD_BYTES,
    ExpectedColumns,
    RecordSplitter,
    check_width,
    find_first_record,
    find_record_starts,
    format_plural,
    is_closed,
    make_line_finder,
    max_field_count,
    read_first_line,
)
from kbnn.data.formats import (
    COMPRESSIONS,
    DELIMITERS,
    ContentType,
    KeyedFormat,
    check_comment,
    check_text,
    detect_format,
    has_enough_bytes,
    sniff_delimiter,
    split_fields,
)
from kbnn.data.sources import DECODERS, ByteReader
from kbnn.errors import DataError

try:
    from kbnn.core import _kernel

    _BUILT = True
except ImportError:  # built without a compiler
    _BUILT = False


def parse_decimals(text: bytes, delimiter: str, columns: int) -> FloatArray | None:
    """Parse a text of plain decimals to (columns, lines); None if it holds anything else."""
    if not _BUILT or delimiter not in DELIMITERS:
        return None
    return _kernel.parse_decimals(text, delimiter, columns)


def count_lines(text: bytes) -> int:
    """Count the newlines of a text."""
    return _kernel.count_lines(text) if _BUILT else text.count(b"\n")


def read_plain_row(x: Mapping[str, Any], names: list[str]) -> FloatArray | None:
    """Read one row of plain floats as (1, D); None if any value is missing or not a plain float."""
    return _kernel.read_plain_row(x, names, MIN_ABS_VALUE, MAX_ABS_VALUE) if _BUILT else None


_BOM = b"\xef\xbb\xbf"


class DecompressedText:
    """Pieces of decompressed text as they arrive; `content_type` is the format inside."""

    def __init__(self, reader: ByteReader) -> None:
        name = reader.source.name
        self._reader = reader
        self._compression = detect_format(reader.peek_head(), name)
        self._pieces = self._read_decompressed() if self._is_compressed else self._read_raw()
        head = b""
        while not has_enough_bytes(head):
            piece = next(self._pieces, b"")
            if not piece:
                break
            head += piece
        self.content_type: ContentType = detect_format(head, name)
        is_text = self.content_type == "text" or isinstance(self.content_type, KeyedFormat)
        if self._is_compressed and not is_text:
            inner = "compressed data" if self.content_type in COMPRESSIONS else "Parquet or Arrow"
            raise DataError(
                f"{name}: holds {inner} inside {self._compression}: decompress it first"
            )
        self._head = head.removeprefix(_BOM)

    @property
    def _is_compressed(self) -> bool:
        return self._compression in COMPRESSIONS

    def _read_raw(self) -> Iterator[bytes]:
        while piece := self._reader.read():
            yield piece

    def _read_decompressed(self) -> Iterator[bytes]:
        decoder = DECODERS[str(self._compression)](self._reader.source.name)
        for data in self._read_raw():
            yield from decoder.decode(data)
        decoder.finish()

    def __iter__(self) -> Iterator[bytes]:
        return _normalize_newlines(chain([self._head], self._pieces))


def _normalize_newlines(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Replace lone carriage returns by newlines if the first line ends in one (old Mac files)."""
    head, classic = b"", False
    for piece in pieces:
        looked = max(0, len(head) - 1)  # the byte after a carriage return decides what it is
        head += piece
        newline, lone = head.find(b"\n", looked), head.find(b"\r", looked, len(head) - 1)
        if newline >= 0 or lone >= 0 or len(head) > MAX_RECORD_BYTES:
            classic = lone >= 0 and not 0 <= newline <= lone + 1
            break
    if head:
        yield head.replace(b"\r", b"\n") if classic else head
    for piece in pieces:
        yield piece.replace(b"\r", b"\n") if classic else piece


_SEPARATOR = re.compile(rb'"?sep=([,;\t|])"?\r?\n', re.I)
_UNBALANCED_QUOTE = RowError("", "", "a quote is opened and never closed", "use --on-error skip")


class CsvReader:
    """Read one delimited text; the constructor determines names, delimiter and header."""

    def __init__(
        self,
        name: str,
        pieces: Iterator[bytes],
        hints: ReadHints,
        *,
        delimiter: str | None = None,
        header: bool | None = None,
        expected: ExpectedColumns | None = None,
    ) -> None:
        self.name = name
        self._pieces = pieces
        self._hints = hints
        self._line = 1
        self._row = 1
        first, self._head = self._read_first_record(b"", delimiter or "".join(DELIMITERS))
        stated = _SEPARATOR.fullmatch(first)
        if stated is not None:  # a `sep=;` line, with which Excel declares the delimiter
            self._line += 1
            delimiter = delimiter or stated[1].decode()
            first, self._head = self._read_first_record(self._head, delimiter)
        check_text(first, name)
        if header is None:
            check_comment(first, name)
        self.delimiter = delimiter or sniff_delimiter(first)
        check_width(max_field_count(first, self.delimiter), name, hints)
        cells = [self._decode_cell(cell) for cell in split_fields(first, self.delimiter)]
        self.columns, self.header = read_first_line(
            cells, name, header, expected, hints.missing.__contains__, hints.named
        )
        if self.header:
            self._line += first.count(b"\n")
        else:
            self._head = first + self._head

    def _read_first_record(self, data: bytes, delimiters: str) -> tuple[bytes, bytes]:
        """Return the first record that is not blank, and the bytes after it."""
        for piece in chain([b""], self._pieces):
            data += piece
            found = find_first_record(data, delimiters)
            if found is not None:
                break
            if len(data) > MAX_RECORD_BYTES:
                raise self._too_long_error()
        else:
            found = (len(data) - len(data.lstrip(b"\r\n")), len(data))
            if not is_closed(data, delimiters):
                raise DataError(f"{self.name}:1: {_UNBALANCED_QUOTE.reason}")
        start, end = found
        if not data[start:].strip():
            raise DataError(f"{self.name}: is empty")
        self._line += data.count(b"\n", 0, start)
        return data[start:end], data[end:]

    def _decode_cell(self, cell: bytes) -> str:
        try:
            return cell.decode()
        except UnicodeDecodeError as error:
            row_error = encoding_error("", error)
            raise DataError(
                f"{self.name}:{self._line}: {row_error.reason} ({row_error.remedy})"
            ) from error

    def _too_long_error(self) -> DataError:
        size = f"{MAX_RECORD_BYTES >> 20} MiB"
        return DataError(
            f"{self.name}:{self._line}: a record is longer than {size} (an unbalanced quote?)"
        )

    def read_chunks(self) -> Iterator[Chunk]:
        """Yield all records in chunks, as they become complete."""
        splitter = RecordSplitter(self.delimiter)
        for piece in chain([self._head], self._pieces):
            data = splitter.feed(piece)
            if len(data) > MAX_RECORD_BYTES:
                yield from self._check_lengths(data)
            elif data:
                yield from self._parse_records(data)
            if splitter.pending_bytes > MAX_RECORD_BYTES:
                raise self._too_long_error()
        tail = splitter.take_rest()
        if is_closed(tail, self.delimiter):
            yield from self._parse_records(tail)
        else:
            yield from self._parse_lines(tail)

    def _check_lengths(self, data: bytes) -> Iterator[Chunk]:
        starts = [*find_record_starts(data, self.delimiter), len(data)]
        for start, end in pairwise(starts):
            if end - start > MAX_RECORD_BYTES:
                yield from self._parse_records(data[:start])
                raise self._too_long_error()
        yield from self._parse_records(data)

    def _parse_records(self, data: bytes) -> Iterator[Chunk]:
        """Parse complete records to a chunk; blank lines alone give no chunk."""
        table = self._read_decimals(data)
        if table is not None:
            columns = [pa.array(column) for column in table]
            batch = pa.RecordBatch.from_arrays(columns, names=self.columns)
            yield replace(self._make_chunk(data, batch, {}), is_plain=True)
            self._line += batch.num_rows  # a table of plain decimals has one row per line
            return
        if data.lstrip(b"\r\n"):
            numbers = self._hints.numbers
            row_errors: dict[int, RowError] = {}
            batch = self._parse_bulk(
                data, lambda name: pa.float64() if name in numbers else pa.string()
            )
            if batch is None:
                batch, row_errors = self._read_slowly(self._split_records(data), {})
            yield self._make_chunk(data, batch, row_errors)
        self._line += count_lines(data)

    def _parse_lines(self, data: bytes) -> Iterator[Chunk]:
        """Parse the end of a text with an unclosed quote line by line, to keep the good rows."""
        lines = [line for line in data.replace(b"\r", b"\n").split(b"\n") if line]
        row_errors = {
            at: _UNBALANCED_QUOTE
            for at, line in enumerate(lines)
            if not is_closed(line, self.delimiter)
        }
        batch, row_errors = self._read_slowly([line + b"\n" for line in lines], row_errors)
        yield self._make_chunk(data, batch, row_errors, by_line=True)

    def _make_chunk(
        self,
        data: bytes,
        batch: pa.RecordBatch,
        row_errors: dict[int, RowError],
        by_line: bool = False,
    ) -> Chunk:
        row, self._row = self._row, self._row + batch.num_rows
        line_of = make_line_finder(data, self._line, None if by_line else self.delimiter)
        return Chunk(self.name, batch, row, row_errors, line_of)

    def _split_records(self, data: bytes) -> list[bytes]:
        starts = [*find_record_starts(data, self.delimiter), len(data)]
        return [data[start:end] for start, end in pairwise(starts)]

    def _read_decimals(self, data: bytes) -> FloatArray | None:
        """Parse a table of plain decimals; None if a column or a value is anything else."""
        if not self._hints.numbers.issuperset(self.columns):
            return None
        if not all(map(self._hints.is_wanted, self.columns)):
            return None
        return parse_decimals(data, self.delimiter, len(self.columns))

    def _parse_bulk(
        self, data: bytes, type_of: Callable[[str], pa.DataType]
    ) -> pa.RecordBatch | None:
        """Parse in bulk; None if a value does not fit its type or a row lacks fields."""
        included = [name for name in self.columns if self._hints.is_wanted(name)]
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
                    null_values=self._hints.missing,
                    strings_can_be_null=False,
                ),
            )
        except (pa.ArrowInvalid, pa.ArrowKeyError):
            return None
        return _to_single_batch(table)

    def _count_fields(self, record: bytes) -> int:
        if b'"' in record:
            return len(split_fields(record, self.delimiter))
        return record.count(self.delimiter.encode()) + 1

    def _read_slowly(
        self, records: list[bytes], row_errors: dict[int, RowError]
    ) -> tuple[pa.RecordBatch, dict[int, RowError]]:
        """Parse as raw text; a record with an error becomes an empty row."""
        width = len(self.columns)
        empty = self.delimiter.encode() * (width - 1) + b"\n" if width > 1 else b'""\n'
        records = [empty if at in row_errors else record for at, record in enumerate(records)]
        for at, record in enumerate(records):
            fields = self._count_fields(record)
            if fields != width:
                text = record.rstrip(b"\r\n").decode(errors="backslashreplace")
                what = "the header" if self.header else "the first line"
                reason = f"has {format_plural(fields, 'field')}, {what} has {width}"
                row_errors[at] = RowError("", text, reason, "use --on-error skip")
                records[at] = empty
        batch = self._parse_bulk(b"".join(records), lambda _: pa.binary())
        if batch is None or batch.num_rows != len(records):
            raise DataError(f"{self.name}:{self._line}: cannot be read as delimited text")
        columns = [
            _decode_text_column(name, array, row_errors)
            for name, array in zip(batch.schema.names, batch.columns, strict=True)
        ]
        return pa.RecordBatch.from_arrays(columns, names=batch.schema.names), row_errors


def _to_single_batch(table: pa.Table) -> pa.RecordBatch:
    batches = table.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=table.schema)


def _decode_text_column(name: str, array: pa.Array, row_errors: dict[int, RowError]) -> pa.Array:
    """Decode raw text; a value that is not UTF-8 becomes null and adds an error to its row."""
    try:
        return array.cast(pa.string())
    except pa.ArrowInvalid:
        pass
    texts: list[str | None] = []
    for at, value in enumerate(array.to_pylist()):
        try:
            texts.append(value.decode())
        except UnicodeDecodeError as error:
            row_errors.setdefault(at, encoding_error(name, error))
            texts.append(None)
    return pa.array(texts, pa.string())
