"""Predictions with types: Parquet, Arrow and JSON lines, where a number is a number."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from kbnn.errors import DataError
from kbnn.model.schema import Schema
from kbnn.output.base import LineWriter, Writer, open_output
from kbnn.stream.values import cast_to_text, is_text, missing_tokens, parse_numbers, python_values
from kbnn.task.base import OutputField

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
