"""Tables of predictions, in CSV or Parquet.

One row is written for each row of the input, in order. A number is the shortest text that reads
back as the same float64. What is not known is an empty cell, or null.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from kbnn.closing import Closing
from kbnn.errors import DataError, UsageError
from kbnn.model.schema import Schema
from kbnn.sink import Sink, open_sink, standard_output
from kbnn.stream.values import is_numeric, is_text, missing_tokens, numbers
from kbnn.task.base import Field
from kbnn.task.forecast import Forecast

__all__ = ["STDOUT", "Writer", "check_name", "open_writer"]

STDOUT: Final = "-"
GROUP_ROWS: Final = 65_536
"""Rows of a Parquet row group."""
_TEXT: Final = ("", ".csv", ".tsv", ".txt")
_PARQUET: Final = (".parquet", ".pq")


class Writer(Closing):
    """A table that grows by blocks; the columns are settled by the first one."""

    def __init__(self, path: str, fields: Sequence[Field]) -> None:
        self.path = path
        self.rows = 0
        self._fields = list(fields)
        self._leading: pa.Schema | None = None

    def write(self, forecast: Forecast, batch: pa.RecordBatch | None = None) -> None:
        """Write a block: the columns of `batch`, if any, and then what was predicted."""
        if self._leading is None:
            self._leading = self._settle(batch.schema if batch is not None else pa.schema([]))
        leading = [(field, _column(batch, field.name)) for field in self._leading]
        self._put(leading, [field.values(forecast) for field in self._fields])
        self.rows += len(forecast.status)

    def _settle(self, schema: pa.Schema) -> pa.Schema:
        taken = set(schema.names)
        self._fields = [
            field._replace(name=f"kbnn_{field.name}") if field.name in taken else field
            for field in self._fields
        ]
        return schema

    def _put(self, leading: list[tuple[pa.Field, pa.Array | None]], predicted: list[Any]) -> None:
        raise NotImplementedError

    def checkpoint(self) -> int | None:
        """Bring everything to the disk; the size so far, None where it cannot be cut there."""
        return None

    def close(self) -> None:
        """Finish the file."""


class TextWriter(Writer):
    """CSV (or TSV) to a file or to standard output."""

    def __init__(self, path: str, fields: Sequence[Field], *, keep: int | None = None) -> None:
        super().__init__(path, fields)
        self._header = keep is None  # whether the header is still to be written
        self._delimiter = "\t" if path.lower().endswith(".tsv") else ","
        self._file = standard_output() if path == STDOUT else _opened(path, keep)

    def _put(self, leading: list[tuple[pa.Field, pa.Array | None]], predicted: list[Any]) -> None:
        size = len(predicted[0])
        columns = [self._cells(array, size) for _, array in leading]
        columns += [self._cells(pa.array(values, from_pandas=True), size) for values in predicted]
        if self._header:
            names = [field.name for field, _ in leading] + [field.name for field in self._fields]
            columns = [
                [*self._quoted([name]), *cells] for name, cells in zip(names, columns, strict=True)
            ]
            self._header = False
        lines = map(self._delimiter.join, zip(*columns, strict=True))
        self._file.write("\n".join([*lines, ""]).encode())

    def _cells(self, array: pa.Array | None, size: int) -> list[str]:
        """A column as cells; texts as they were."""
        if array is None:
            return [""] * size
        if is_text(array.type):
            return self._quoted(array.cast(pa.string()).fill_null("").to_pylist())
        try:
            cells: list[str] = array.cast(pa.string()).fill_null("").to_pylist()
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            values = array.to_pylist()
            return self._quoted(["" if value is None else str(value) for value in values])
        return cells if is_numeric(array.type) else self._quoted(cells)

    def _quoted(self, cells: list[str]) -> list[str]:
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


class ParquetTable(Writer):
    """A Parquet file, readable once it is closed."""

    def __init__(self, path: str, fields: Sequence[Field], schema: Schema) -> None:
        super().__init__(path, fields)
        self._known = schema
        self._tokens = pa.array(missing_tokens(schema.missing), pa.string())
        self._file = _opened(path, None)
        self._table: pq.ParquetWriter | None = None
        self._waiting: list[pa.RecordBatch] = []

    def _settle(self, schema: pa.Schema) -> pa.Schema:
        """Texts of number columns become numbers."""
        numeric = {column.name for column in self._known.columns if column.kind == "number"}
        for at, field in enumerate(schema):
            if pa.types.is_null(field.type):
                schema = schema.set(at, pa.field(field.name, pa.string()))
            elif field.name in numeric and is_text(field.type):
                schema = schema.set(at, pa.field(field.name, pa.float64()))
        schema = super()._settle(schema)
        predicted = [
            pa.field(field.name, pa.string() if field.text else pa.float64())
            for field in self._fields
        ]
        self._table = pq.ParquetWriter(self._file, pa.schema([*schema, *predicted]))
        return schema

    def _put(self, leading: list[tuple[pa.Field, pa.Array | None]], predicted: list[Any]) -> None:
        assert self._table is not None
        size = len(predicted[0])
        arrays = [self._typed(field, array, size) for field, array in leading]
        for field, values in zip(self._fields, predicted, strict=True):
            kind = pa.string() if field.text else pa.float64()
            arrays.append(pa.array(values, kind, from_pandas=True))
        self._waiting.append(pa.RecordBatch.from_arrays(arrays, schema=self._table.schema))
        if sum(batch.num_rows for batch in self._waiting) >= GROUP_ROWS:
            self._write_group()

    def _typed(self, field: pa.Field, array: pa.Array | None, size: int) -> pa.Array:
        if array is None:
            return pa.nulls(size, field.type)
        if array.type == field.type:
            return array
        try:
            if field.type == pa.float64() and is_text(array.type):
                return pa.array(numbers(array, self._tokens).values, from_pandas=True)
            return array.cast(field.type)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise DataError(
                f"{self.path}: column '{field.name}' changes from {field.type} to {array.type}, "
                "which Parquet cannot hold (write CSV instead)"
            ) from error

    def _write_group(self) -> None:
        if self._table is not None and self._waiting:
            self._table.write_table(pa.Table.from_batches(self._waiting))
            self._waiting = []

    def close(self) -> None:
        """Write what is left and the index at the end of the file."""
        if self._file.closed:
            return
        if self._table is None:
            self._settle(pa.schema([]))
        self._write_group()
        assert self._table is not None
        self._table.close()
        self._file.close()


def open_writer(
    path: str,
    fields: Sequence[Field],
    schema: Schema,
    *,
    keep: int | None = None,
) -> Writer:
    """Open a table: Parquet if the name says so, otherwise CSV; `-` is standard output.

    keep     go on with a text file after its first `keep` bytes, to resume
    """
    check_name(path)
    if _ending(path) in _PARQUET:
        if keep is not None:
            raise UsageError(f"{path}: a Parquet file cannot be continued (use .csv to resume)")
        return ParquetTable(path, fields, schema)
    return TextWriter(path, fields, keep=keep)


def check_name(path: str) -> None:
    """Refuse a name whose ending says a format that no table is written in."""
    if _ending(path) not in (*_TEXT, *_PARQUET):
        kinds = "tables are written as .csv, .tsv, .txt or .parquet"
        raise UsageError(f"{path}: {kinds}, not {_ending(path)}")


def _ending(path: str) -> str:
    return os.path.splitext(path)[1].lower()


def _opened(path: str, keep: int | None) -> Sink:
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


def _column(batch: pa.RecordBatch | None, name: str) -> pa.Array | None:
    at = -1 if batch is None else batch.schema.get_field_index(name)
    return batch.column(at) if batch is not None and at >= 0 else None
