"""Read Parquet files, Arrow files, Arrow streams and tables in memory into chunks.

Encoded Arrow types (dictionaries, run-length encoding, views) are decoded here, so that later
steps see plain columns only. Damaged files raise DataError and never crash the process.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.ipc
import pyarrow.parquet

from kbnn.data.chunk import Chunk, ReadHints, shorten
from kbnn.data.csv_records import check_unique_names, check_width
from kbnn.data.inputs import BatchReader
from kbnn.data.periods import decode_periods, match_period_frequency
from kbnn.data.sources import ByteReader, ReadOnlyFile
from kbnn.data.values import cast_to_text
from kbnn.errors import DataError

ARROW_BATCH_ROWS: Final = 4096

# Arrow raises all of these on damaged files; they have no common base class.
_ARROW_ERRORS: Final = (
    pa.ArrowException,
    OSError,
    ValueError,
    KeyError,
    TypeError,
    OverflowError,
    MemoryError,
    UnicodeDecodeError,
    struct.error,
)


class ArrowReader:
    """Read record batches as chunks; rows are numbered from 1."""

    def __init__(
        self,
        name: str,
        what: str,
        hints: ReadHints,
        schema: pa.Schema,
        batches: Iterator[pa.RecordBatch],
        progress: Callable[[int], None] = lambda rows: None,
        constant: Mapping[str, str | None] | None = None,
    ) -> None:
        """Open a source; `constant` columns come first and have one value in all rows."""
        self.name = name
        own = frozenset(schema.names)
        self._constant = {n: v for n, v in (constant or {}).items() if n not in own}
        self._what = what
        self._hints = hints
        self._batches = batches
        self._progress = progress
        check_width(len(schema), name, hints)
        try:
            own_columns = list(schema.names)
            self.columns: list[str] = [*self._constant, *own_columns]
        except UnicodeDecodeError as error:
            raise damaged_data_error(name, what, error) from error
        check_unique_names(self.columns, name)
        self.notices = [
            f"{name}: column '{shorten(field.name)}': unknown time zone "
            f"'{shorten(field.type.tz)}': its times are read as UTC"
            for field in schema
            if pa.types.is_timestamp(field.type)
            and not is_known_zone(field.type.tz)
            and hints.is_wanted(field.name)
            and field.name not in hints.ignored
        ]
        if not self.columns:
            raise DataError(f"{name}: has no columns")

    def read_chunks(self) -> Iterator[Chunk]:
        """Yield all batches as chunks, in order, as they arrive."""
        row = 1
        while True:
            try:
                batch = next(self._batches, None)
                if batch is not None:
                    batch = self._select_wanted(batch)
            except _ARROW_ERRORS as error:
                raise damaged_data_error(self.name, self._what, error) from error
            if batch is None:
                return
            for start in range(0, batch.num_rows, ARROW_BATCH_ROWS):
                try:
                    part = _decode_batch(batch.slice(start, ARROW_BATCH_ROWS))
                except _ARROW_ERRORS as error:
                    raise damaged_data_error(self.name, self._what, error) from error
                part = self._add_constants(part)
                first, row = row, row + part.num_rows
                self._progress(row - 1)
                yield Chunk(self.name, part, first)

    def _add_constants(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        wanted = {n: v for n, v in self._constant.items() if self._hints.is_wanted(n)}
        if not wanted:
            return batch
        values = [pa.repeat(pa.scalar(v, pa.string()), batch.num_rows) for v in wanted.values()]
        names = [*wanted, *batch.schema.names]
        return pa.RecordBatch.from_arrays([*values, *batch.columns], names=names)

    def _select_wanted(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Select the wanted columns and validate them."""
        chosen = [
            (at, name) for at, name in enumerate(batch.schema.names) if self._hints.is_wanted(name)
        ]
        chosen = chosen or [(0, batch.schema.names[0])]
        columns = []
        for at, name in chosen:
            column = batch.column(at)
            try:
                column.validate(full=True)  # damaged data may crash Arrow's functions later
            except _ARROW_ERRORS:
                if name not in self._hints.ignored:
                    raise
                column = pa.nulls(batch.num_rows)
            columns.append(column)
        return pa.RecordBatch.from_arrays(columns, names=[name for _, name in chosen])


def _decode_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Decode every column of a batch to a type that Arrow's compute functions support."""
    columns = []
    for field, column in zip(batch.schema, batch.columns, strict=True):
        frequency = match_period_frequency(field)
        columns.append(
            decode_column(column) if frequency is None else decode_periods(column, frequency)
        )
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def decode_column(column: pa.Array) -> pa.Array:
    """Decode dictionaries, run-length encoding and views to plain values, at any depth.

    Few of Arrow's functions support the encoded types. An unknown time zone is dropped, so that
    its times are read as UTC. Values that cannot be decoded become text.
    """
    try:
        return _decode_encoded_column(column)
    except pa.ArrowNotImplementedError:
        return cast_to_text(column)


def _decode_encoded_column(column: pa.Array) -> pa.Array:
    kind = column.type
    if isinstance(kind, pa.BaseExtensionType) and _is_encoded(kind.storage_type):
        return decode_column(column.storage)
    if pa.types.is_dictionary(kind):
        names = decode_column(column.dictionary)
        return pa.DictionaryArray.from_arrays(column.indices, names).dictionary_decode()
    if pa.types.is_run_end_encoded(kind):
        places = column.offset + np.arange(len(column))
        runs = np.searchsorted(column.run_ends.to_numpy(), places, side="right")
        return decode_column(column.values).take(pa.array(runs))
    if pa.types.is_string_view(kind):
        return column.cast(pa.string())
    if pa.types.is_binary_view(kind):
        return column.cast(pa.binary())
    if pa.types.is_timestamp(kind) and not is_known_zone(kind.tz):
        return column.cast(pa.int64()).cast(pa.timestamp(kind.unit))
    if pa.types.is_struct(kind):
        parts = [decode_column(part) for part in column.flatten()]
        names = [kind.field(at).name for at in range(kind.num_fields)]
        return pa.StructArray.from_arrays(parts, names, mask=column.is_null())
    if pa.types.is_nested(kind) and _is_encoded(kind):
        return cast_to_text(column)
    return column


def _is_encoded(kind: pa.DataType) -> bool:
    """Return whether a type is, or contains, an encoded type or an unknown time zone."""
    inner = [kind.field(at).type for at in range(kind.num_fields)]
    return (
        pa.types.is_dictionary(kind)
        or pa.types.is_run_end_encoded(kind)
        or pa.types.is_string_view(kind)
        or pa.types.is_binary_view(kind)
        or (pa.types.is_timestamp(kind) and not is_known_zone(kind.tz))
        or any(map(_is_encoded, inner))
    )


@cache
def is_known_zone(zone: str | None) -> bool:
    """Return whether times of a zone can be converted to local time."""
    if zone is None:
        return True
    start = pa.array([0], pa.timestamp("s", tz=zone))
    try:
        pc.local_timestamp(start)
        start.to_pylist()  # Python has its own list of zones
    except (pa.ArrowException, KeyError, ValueError):
        return False
    return True


def damaged_data_error(name: str, what: str, error: BaseException) -> DataError:
    """Make the error for data that Arrow cannot read."""
    lines = str(error).strip().splitlines()
    first = lines[0] if lines else type(error).__name__
    return DataError(f"{name}: the {what} data are damaged ({first[:120].rstrip('. ')})")


def open_parquet(reader: ByteReader, hints: ReadHints) -> ArrowReader:
    """Open a Parquet file; a pipe is first copied to a temporary file (the index is at the end)."""
    name = reader.source.name
    path = reader.source.seekable_path(reader)
    try:
        check_width(_read_parquet_width(path), name, hints)
        file = pyarrow.parquet.ParquetFile(path, memory_map=False)
        schema = file.schema_arrow
        total = file.metadata.num_rows
        chosen = [column for column in schema.names if hints.wanted and hints.is_wanted(column)]
        batches = file.iter_batches(
            batch_size=ARROW_BATCH_ROWS, use_threads=False, columns=chosen or None
        )
    except _ARROW_ERRORS as error:
        raise damaged_data_error(name, "Parquet", error) from error
    size = reader.source.size or 0

    def report_progress(rows: int) -> None:
        reader.bytes_read = size * rows // max(total, 1)

    return ArrowReader(
        name, "Parquet", hints, schema, batches, report_progress, constant=reader.source.columns
    )


def _read_parquet_width(path: str) -> int:
    """Read the number of columns from the start of a Parquet index; 0 if it cannot be read.

    Arrow would load the whole index, 2 kB per column. The index is encoded in Thrift: field 1 is
    the version; field 2 is a list of the root and the columns, which begins with its length.
    """
    with open(path, "rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(size - 8, 0))
        length = int.from_bytes(file.read(4), "little")
        if not 8 < length <= size - 12:
            return 0
        file.seek(size - 8 - length)
        start = file.read(10)
    if start[0] != 0x15 or start[1] > 0x7F or start[2] != 0x19:
        return 0
    if start[3] >> 4 < 15:
        return (start[3] >> 4) - 1
    elements = 0
    for place, byte in enumerate(start[4:9]):
        elements |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            break
    return elements - 1


def open_arrow_file(reader: ByteReader, hints: ReadHints) -> ArrowReader:
    """Open an Arrow file; a pipe is first copied to a temporary file."""
    name = reader.source.name
    path = reader.source.seekable_path(reader)
    try:
        file = pyarrow.ipc.open_file(pa.OSFile(path, "rb"))
        schema = file.schema
        number = file.num_record_batches
    except _ARROW_ERRORS as error:
        raise damaged_data_error(name, "Arrow", error) from error
    size = reader.source.size or 0

    def read_batches() -> Iterator[pa.RecordBatch]:
        for at in range(number):
            reader.bytes_read = size * at // number
            yield file.get_batch(at)
        reader.bytes_read = size

    return ArrowReader(name, "Arrow", hints, schema, read_batches())


def open_arrow_stream(reader: ByteReader, hints: ReadHints) -> ArrowReader:
    """Open an Arrow stream; batches are delivered as they arrive, also from a pipe."""
    name = reader.source.name
    try:
        stream = pyarrow.ipc.open_stream(pa.PythonFile(_ExactReader(reader), mode="r"))
        schema = stream.schema
    except _ARROW_ERRORS as error:
        raise damaged_data_error(name, "Arrow", error) from error
    return ArrowReader(name, "Arrow", hints, schema, iter(stream))


def open_table(reader: BatchReader, hints: ReadHints) -> ArrowReader:
    """Open a table in memory."""
    return ArrowReader(reader.source.name, "table's", hints, reader.schema, reader.batches)


class _ExactReader(ReadOnlyFile):
    """File over a byte reader that returns exactly the requested bytes, fewer only at the end."""

    def __init__(self, reader: ByteReader) -> None:
        super().__init__()
        self._reader = reader

    def read(self, size: int) -> bytes:
        parts = [self.data]
        have = len(self.data)
        while have < size:
            more = self._reader.read()
            if not more:
                break
            parts.append(more)
            have += len(more)
        self.data = b"".join(parts)
        return super().read(size)
