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
from kbnn.output.base import Lines, Writer, opened
from kbnn.stream.values import as_text, is_text, missing_tokens, numbers, python_values
from kbnn.task.base import Field

GROUP_ROWS: Final = 65_536
"""Rows that a Parquet or Arrow file holds together."""


class TypedTable(Writer):
    """A table whose columns have the types that its first block suggests."""

    form: str

    def __init__(
        self, path: str, fields: Sequence[Field], schema: Schema, *, keep: int | None = None
    ) -> None:
        super().__init__(path, fields)
        self._known = schema
        self._tokens = pa.array(missing_tokens(schema.missing), pa.string())
        self._file = opened(path, keep)
        self._types: pa.Schema | None = None

    def _settle(self, schema: pa.Schema) -> pa.Schema:
        """Texts of number columns become numbers."""
        numeric = {column.name for column in self._known.columns if column.kind == "number"}
        for at, field in enumerate(schema):
            if pa.types.is_null(field.type) or not self._holds(field):
                schema = schema.set(at, pa.field(field.name, pa.string()))
            elif field.name in numeric and is_text(field.type):
                schema = schema.set(at, pa.field(field.name, pa.float64()))
        schema = super()._settle(schema)
        predicted = [
            pa.field(field.name, pa.string() if field.text else pa.float64())
            for field in self._fields
        ]
        self._types = pa.schema([*schema, *predicted])
        return schema

    def _holds(self, field: pa.Field) -> bool:
        """Whether the format has the type of a column; otherwise it is written as text."""
        return True

    def _put(self, leading: list[tuple[pa.Field, pa.Array | None]], predicted: list[Any]) -> None:
        size = len(predicted[0])
        arrays = [self._typed(field, array, size) for field, array in leading]
        for field, values in zip(self._fields, predicted, strict=True):
            kind = pa.string() if field.text else pa.float64()
            arrays.append(pa.array(values, kind, from_pandas=True))
        self._take(arrays)

    def _take(self, arrays: list[pa.Array]) -> None:
        raise NotImplementedError

    def _typed(self, field: pa.Field, array: pa.Array | None, size: int) -> pa.Array:
        if array is None:
            return pa.nulls(size, field.type)
        if array.type == field.type:
            return array
        try:
            if field.type == pa.float64() and is_text(array.type):
                return pa.array(numbers(array, self._tokens).values, from_pandas=True)
            return as_text(array) if field.type == pa.string() else array.cast(field.type)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise DataError(
                f"{self.path}: column '{field.name}' changes from {field.type} to {array.type}, "
                f"which {self.form} cannot hold (write CSV instead)"
            ) from error


class BinaryTable(TypedTable):
    """A file that is readable once it is closed."""

    def __init__(self, path: str, fields: Sequence[Field], schema: Schema) -> None:
        super().__init__(path, fields, schema)
        self._table: Any = None
        self._waiting: list[pa.RecordBatch] = []

    def _begin(self, types: pa.Schema) -> Any:
        raise NotImplementedError

    def _take(self, arrays: list[pa.Array]) -> None:
        self._waiting.append(pa.RecordBatch.from_arrays(arrays, schema=self._types))
        if sum(batch.num_rows for batch in self._waiting) >= GROUP_ROWS:
            self._write_group()

    def _write_group(self) -> None:
        if self._table is None:
            self._table = self._begin(self._types)
        if self._waiting:
            group, self._waiting = pa.Table.from_batches(self._waiting).combine_chunks(), []
            try:
                self._table.write_table(group)
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
                raise DataError(
                    f"{self.path}: {self.form} cannot hold a value ({str(error).splitlines()[0]}). "
                    "Write CSV, JSON or Arrow instead."
                ) from error

    def close(self) -> None:
        """Write what is left and the index at the end of the file."""
        if self._file.closed:
            return
        if self._types is None:
            self._settle(pa.schema([]))
        self._write_group()
        self._table.close()
        self._file.close()


class ParquetTable(BinaryTable):
    """A Parquet file."""

    form = "Parquet"

    def _holds(self, field: pa.Field) -> bool:
        try:
            pq.ParquetWriter(pa.BufferOutputStream(), pa.schema([field])).close()
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            return False
        return True

    def _begin(self, types: pa.Schema) -> Any:
        return pq.ParquetWriter(self._file, types)


class ArrowTable(BinaryTable):
    """An Arrow file."""

    form = "Arrow"

    def _begin(self, types: pa.Schema) -> Any:
        return pa.ipc.new_file(self._file, types)


class JsonLines(Lines, TypedTable):
    """One object a line; what is not known is null."""

    form = "JSON"

    def _typed(self, field: pa.Field, array: pa.Array | None, size: int) -> pa.Array:
        try:
            return super()._typed(field, array, size)
        except DataError:  # every line has types of its own
            return array

    def _take(self, arrays: list[pa.Array]) -> None:
        assert self._types is not None
        names, columns = self._types.names, map(python_values, arrays)
        rows = zip(*columns, strict=True)
        lines = [_line(dict(zip(names, row, strict=True))) for row in rows]
        self._file.write("\n".join([*lines, ""]).encode())


def _line(row: dict[str, Any]) -> str:
    """An object as JSON."""
    try:
        return json.dumps(row, ensure_ascii=False, allow_nan=False, default=str)
    except ValueError:  # a column that is passed on may hold what JSON has no number for
        return json.dumps(_finite(row), ensure_ascii=False, allow_nan=False, default=str)


def _finite(value: Any) -> Any:
    """A value without numbers that are none in JSON: NaN is null, infinity is a text."""
    if isinstance(value, dict):
        return {name: _finite(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    return value
