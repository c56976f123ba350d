"""A table of predictions that grows by blocks, whatever it is written as.

One row is written for each row of the input, in order. What is not known is an empty cell, or null.

What a prediction becomes when it is written: the task's columns, beside the row's own.

Predictions as CSV or TSV; a number is the shortest text that reads back as the same float64.

Predictions with types: Parquet, Arrow and JSON lines, where a number is a number.

Which table of predictions a name asks for.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from kbnn.data.batch import Rows
from kbnn.data.schema import Schema
from kbnn.data.values import (
    cast_to_text,
    is_numeric,
    is_text,
    missing_tokens,
    parse_numbers,
    python_values,
)
from kbnn.errors import ArgumentError, DataError, UsageError
from kbnn.sink import Closeable, Sink, open_sink, standard_output
from kbnn.targets.base import OutputField, TargetType
from kbnn.targets.prediction import Forecast

STDOUT: Final = "-"


class Writer(Closeable):
    """A table that grows by blocks; the columns are settled by the first one."""

    def __init__(self, path: str, fields: Sequence[OutputField]) -> None:
        self.path = path
        self.rows = 0
        self._fields = list(fields)
        self._leading: pa.Schema | None = None

    def write(self, forecast: Forecast, batch: pa.RecordBatch | None = None) -> None:
        """Write a block: the columns of `batch`, if any, and then what was predicted."""
        if self._leading is None:
            self._leading = self._resolve_columns(
                batch.schema if batch is not None else pa.schema([])
            )
        leading = [(field, _find_column(batch, field.name)) for field in self._leading]
        self._write_columns(leading, [field.values(forecast) for field in self._fields])
        self.rows += len(forecast.status)

    def _resolve_columns(self, schema: pa.Schema) -> pa.Schema:
        taken = set(schema.names)
        self._fields = [
            field._replace(name=f"kbnn_{field.name}") if field.name in taken else field
            for field in self._fields
        ]
        return schema

    def _write_columns(
        self, leading: list[tuple[pa.Field, pa.Array | None]], predicted: list[Any]
    ) -> None:
        raise NotImplementedError

    def checkpoint(self) -> int | None:
        """Bring everything to the disk; the size so far, None where it cannot be cut there."""
        return None

    def close(self) -> None:
        """Finish the file."""


class LineWriter(Writer):
    """A table that can be cut after any of its blocks, and be closed as it is."""

    _file: Sink

    def checkpoint(self) -> int | None:
        """Bring everything to the disk; the size so far."""
        if self.path == STDOUT or not self._file.seekable():
            return None
        self._file.sync()
        return self._file.tell()

    def close(self) -> None:
        """Close the file."""
        if self.path != STDOUT:
            self._file.close()


def open_output(path: str, keep: int | None) -> Sink:
    """The file, cut after its first `keep` bytes; `-` is standard output."""
    if path == STDOUT:
        return standard_output()
    if keep is None:
        return open_sink(path)
    file = open_sink(path, "r+")
    size = file.seek(0, os.SEEK_END)
    if size < keep:
        file.close()
        raise DataError(f"{path}: is shorter than when the model was saved; it cannot go on")
    file.truncate(keep)
    file.seek(keep)
    return file


def _find_column(batch: pa.RecordBatch | None, name: str) -> pa.Array | None:
    at = -1 if batch is None else batch.schema.get_field_index(name)
    return batch.column(at) if batch is not None and at >= 0 else None


def check_interval_level(interval: float) -> None:
    """Refuse what is no probability, or one that no interval has."""
    _check_level("--interval", interval)


def leading_columns(rows: Rows, task: TargetType, key: Sequence[str] = ()) -> pa.RecordBatch:
    """What stands before the predictions: the row's number, its key and what came true."""
    columns = {"row": pa.array(rows.number)}
    for name in key:
        columns[name] = rows.original.column(rows.original.schema.get_field_index(name))
    if rows.schema is not None and rows.schema.id is not None and rows.id is not None:
        columns[rows.schema.id] = pa.array(rows.id, pa.string())
    for j, name in enumerate(task.targets):
        true, kind = (
            task.decode_targets(rows.y[:, j]),
            task.is_classification(pa.float64(), pa.string()),
        )
        columns[name] = pa.array(true, kind, from_pandas=True)
    return pa.RecordBatch.from_pydict(columns)


def check_quantile_level(share: float) -> None:
    """Refuse what no quantile is of."""
    _check_level("--quantiles", share)


def _check_level(option: str, share: object) -> None:
    if not isinstance(share, float | int | np.number):
        raise ArgumentError(f"{option} must be a number between 0 and 1, not {share!r}")
    if not 0.0 < share < 1.0:
        raise UsageError(f"{option} must lie between 0 and 1, not {share:g}")


class TextWriter(LineWriter):
    """CSV (or TSV) to a file or to standard output."""

    def __init__(
        self, path: str, fields: Sequence[OutputField], *, keep: int | None = None
    ) -> None:
        super().__init__(path, fields)
        self._header = keep is None  # whether the header is still to be written
        self._delimiter = "\t" if path.lower().endswith(".tsv") else ","
        self._file = open_output(path, keep)

    def _write_columns(
        self, leading: list[tuple[pa.Field, pa.Array | None]], predicted: list[Any]
    ) -> None:
        size = len(predicted[0])
        columns = [self._format_cells(array, size) for _, array in leading]
        columns += [
            self._format_cells(pa.array(values, from_pandas=True), size) for values in predicted
        ]
        if self._header:
            names = [field.name for field, _ in leading] + [field.name for field in self._fields]
            columns = [
                [*self._quote_cells([name]), *cells]
                for name, cells in zip(names, columns, strict=True)
            ]
            self._header = False
        lines = map(self._delimiter.join, zip(*columns, strict=True))
        self._file.write("\n".join([*lines, ""]).encode())

    def _format_cells(self, array: pa.Array | None, size: int) -> list[str]:
        """A column as cells; texts as they were."""
        if array is None:
            return [""] * size
        cells: list[str] = cast_to_text(array).fill_null("").to_pylist()
        return cells if is_numeric(array.type) else self._quote_cells(cells)

    def _quote_cells(self, cells: list[str]) -> list[str]:
        """Cells that hold a delimiter, a quote or the end of a line, in quotes."""
        special = (self._delimiter, '"', "\n", "\r")
        together = "".join(cells)
        if not any(mark in together for mark in special):
            return cells
        doubled = '""'
        return [
            f'"{cell.replace(chr(34), doubled)}"' if any(mark in cell for mark in special) else cell
            for cell in cells
        ]


ROW_GROUP_ROWS: Final = 65_536
"""Rows that a Parquet or Arrow file holds together."""


class TypedWriter(Writer):
    """A table whose columns have the types that its first block suggests."""

    format_name: str

    def __init__(
        self, path: str, fields: Sequence[OutputField], schema: Schema, *, keep: int | None = None
    ) -> None:
        super().__init__(path, fields)
        self._known = schema
        self._tokens = pa.array(missing_tokens(schema.missing), pa.string())
        self._file = open_output(path, keep)
        self._types: pa.Schema | None = None

    def _resolve_columns(self, schema: pa.Schema) -> pa.Schema:
        """Texts of number columns become numbers."""
        numeric = {column.name for column in self._known.columns if column.kind == "number"}
        for at, field in enumerate(schema):
            if pa.types.is_null(field.type) or not self._supports_type(field):
                schema = schema.set(at, pa.field(field.name, pa.string()))
            elif field.name in numeric and is_text(field.type):
                schema = schema.set(at, pa.field(field.name, pa.float64()))
        schema = super()._resolve_columns(schema)
        predicted = [
            pa.field(field.name, pa.string() if field.text else pa.float64())
            for field in self._fields
        ]
        self._types = pa.schema([*schema, *predicted])
        return schema

    def _supports_type(self, field: pa.Field) -> bool:
        """Whether the format has the type of a column; otherwise it is written as text."""
        return True

    def _write_columns(
        self, leading: list[tuple[pa.Field, pa.Array | None]], predicted: list[Any]
    ) -> None:
        size = len(predicted[0])
        arrays = [self._cast_column(field, array, size) for field, array in leading]
        for field, values in zip(self._fields, predicted, strict=True):
            kind = pa.string() if field.text else pa.float64()
            arrays.append(pa.array(values, kind, from_pandas=True))
        self._write_batch(arrays)

    def _write_batch(self, arrays: list[pa.Array]) -> None:
        raise NotImplementedError

    def _cast_column(self, field: pa.Field, array: pa.Array | None, size: int) -> pa.Array:
        if array is None:
            return pa.nulls(size, field.type)
        if array.type == field.type:
            return array
        try:
            if field.type == pa.float64() and is_text(array.type):
                return pa.array(parse_numbers(array, self._tokens).values, from_pandas=True)
            return cast_to_text(array) if field.type == pa.string() else array.cast(field.type)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise DataError(
                f"{self.path}: column '{field.name}' changes from {field.type} to {array.type}, "
                f"which {self.format_name} cannot hold (write CSV instead)"
            ) from error


class BinaryWriter(TypedWriter):
    """A file that is readable once it is closed."""

    def __init__(self, path: str, fields: Sequence[OutputField], schema: Schema) -> None:
        super().__init__(path, fields, schema)
        self._table: Any = None
        self._waiting: list[pa.RecordBatch] = []

    def _open_table(self, types: pa.Schema) -> Any:
        raise NotImplementedError

    def _write_batch(self, arrays: list[pa.Array]) -> None:
        self._waiting.append(pa.RecordBatch.from_arrays(arrays, schema=self._types))
        if sum(batch.num_rows for batch in self._waiting) >= ROW_GROUP_ROWS:
            self._write_group()

    def _write_group(self) -> None:
        if self._table is None:
            self._table = self._open_table(self._types)
        if self._waiting:
            group, self._waiting = pa.Table.from_batches(self._waiting).combine_chunks(), []
            try:
                self._table.write_table(group)
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
                raise DataError(
                    f"{self.path}: {self.format_name} cannot hold a value ({str(error).splitlines()[0]}). "
                    "Write CSV, JSON or Arrow instead."
                ) from error

    def close(self) -> None:
        """Write what is left and the index at the end of the file."""
        if self._file.closed:
            return
        if self._types is None:
            self._resolve_columns(pa.schema([]))
        self._write_group()
        self._table.close()
        self._file.close()


class ParquetFileWriter(BinaryWriter):
    """A Parquet file."""

    format_name = "Parquet"

    def _supports_type(self, field: pa.Field) -> bool:
        try:
            pq.ParquetWriter(pa.BufferOutputStream(), pa.schema([field])).close()
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            return False
        return True

    def _open_table(self, types: pa.Schema) -> Any:
        return pq.ParquetWriter(self._file, types)


class ArrowFileWriter(BinaryWriter):
    """An Arrow file."""

    format_name = "Arrow"

    def _open_table(self, types: pa.Schema) -> Any:
        return pa.ipc.new_file(self._file, types)


class JsonLinesWriter(LineWriter, TypedWriter):
    """One object a line; what is not known is null."""

    format_name = "JSON"

    def _cast_column(self, field: pa.Field, array: pa.Array | None, size: int) -> pa.Array:
        try:
            return super()._cast_column(field, array, size)
        except DataError:  # every line has types of its own
            return array

    def _write_batch(self, arrays: list[pa.Array]) -> None:
        assert self._types is not None
        names, columns = self._types.names, map(python_values, arrays)
        rows = zip(*columns, strict=True)
        lines = [_format_line(dict(zip(names, row, strict=True))) for row in rows]
        self._file.write("\n".join([*lines, ""]).encode())


def _format_line(row: dict[str, Any]) -> str:
    """An object as JSON."""
    try:
        return json.dumps(row, ensure_ascii=False, allow_nan=False, default=str)
    except ValueError:  # a column that is passed on may hold what JSON has no number for
        return json.dumps(_replace_nonfinite(row), ensure_ascii=False, allow_nan=False, default=str)


def _replace_nonfinite(value: Any) -> Any:
    """A value without numbers that are none in JSON: NaN is null, infinity is a text."""
    if isinstance(value, dict):
        return {name: _replace_nonfinite(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_replace_nonfinite(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    return value


_TEXT: Final = ("", ".csv", ".tsv", ".txt")
_JSON: Final = (".jsonl", ".ndjson")
_BINARY: Final = {
    ".parquet": ParquetFileWriter,
    ".pq": ParquetFileWriter,
    ".arrow": ArrowFileWriter,
    ".feather": ArrowFileWriter,
}


def open_writer(
    path: str,
    fields: Sequence[OutputField],
    schema: Schema,
    *,
    keep: int | None = None,
) -> Writer:
    """Open the table that the name's ending asks for, CSV if none; `-` is standard output.

    keep     go on with a text file after its first `keep` bytes, to resume
    """
    check_name(path)
    ending = _file_suffix(path)
    if ending in _JSON:
        return JsonLinesWriter(path, fields, schema, keep=keep)
    if ending in _BINARY:
        if keep is not None:
            form = _BINARY[ending].format_name
            raise UsageError(f"{path}: {form} cannot be continued (use .csv to resume)")
        return _BINARY[ending](path, fields, schema)
    return TextWriter(path, fields, keep=keep)


def check_name(path: str) -> None:
    """Refuse a name whose ending says a format that no table is written in."""
    if _file_suffix(path) not in (*_TEXT, *_JSON, *_BINARY):
        kinds = "tables are written as .csv, .tsv, .txt, .jsonl, .parquet or .arrow"
        raise UsageError(f"{path}: {kinds}, not {_file_suffix(path)}")


def _file_suffix(path: str) -> str:
    return os.path.splitext(path)[1].lower()
