"""Writers of prediction tables: CSV, TSV, JSON lines, Parquet and Arrow.

One row is written per input row, in order: the row's own columns, then the prediction columns of
the target type. Missing values are empty cells or null. Text has DEFAULT_DIGITS digits of what
matters in each row: of sd for mean, lower, upper and quantiles, of the smaller of p and 1 - p for a
probability. Parquet and Arrow, and columns after the predictions, have all digits. The file name's
ending selects the format.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from kbnn.array_types import FloatArray
from kbnn.data.batch import Anomalies, Rows
from kbnn.data.schema import Schema
from kbnn.data.values import (
    MissingSpellings,
    cast_to_text,
    is_numeric,
    is_text,
    parse_numbers,
    python_values,
)
from kbnn.errors import DataError, UsageError
from kbnn.output.fields import OutputField, decode_targets, make_output_name
from kbnn.sink import Closeable, Sink, open_sink, standard_output
from kbnn.targets.base import TargetType
from kbnn.targets.prediction import Forecast

STDOUT: Final = "-"
DEFAULT_DIGITS: Final = 8
"""Digits of text predictions, unless requested otherwise."""


class AddedField(NamedTuple):
    """A column after the predictions; `values` maps what is written with a block to its cells."""

    name: str
    text: bool
    values: Callable[[Any], Any]  # (n,) float64, or a list of texts
    is_rank: bool = False  # whole numbers, which are not rounded


Field = OutputField | AddedField


class Writer(Closeable):
    """A table written in blocks; the first block determines the columns."""

    is_text = False

    def __init__(self, path: str, fields: Sequence[Field]) -> None:
        self.path = path
        self.rows = 0
        self.digits: int | None = None
        """Significant digits of predicted numbers; None: those that matter in text, else all."""
        self._fields = list(fields)
        self._leading: pa.Schema | None = None

    def write(
        self,
        forecast: Forecast,
        batch: pa.RecordBatch | None = None,
        *,
        added: Any = None,
        anomalies: Anomalies | None = None,
    ) -> None:
        """Write a block: the columns of `batch`, if any, the predictions, fields of `added`.

        `anomalies` are needed if surprise is among the columns.
        """
        if self._leading is None:
            self._leading = self._resolve_columns(
                batch.schema if batch is not None else pa.schema([])
            )
        leading = [(field, _find_column(batch, field.name)) for field in self._leading]
        predicted = [
            self._read_added(field, added)
            if isinstance(field, AddedField)
            else self._read_predicted(field, forecast, anomalies)
            for field in self._fields
        ]
        self._write_columns(leading, predicted)
        self.rows += len(forecast.status)

    def _read_added(self, field: AddedField, added: Any) -> Any:
        """Return the cells of a column after the predictions."""
        values = field.values(added)
        if field.text or field.is_rank or self.digits is None:
            return values
        return round_values(values, self.digits)

    def _read_predicted(
        self, field: OutputField, forecast: Forecast, anomalies: Anomalies | None
    ) -> Any:
        """Return the cells of a predicted column."""
        values = field.read(forecast, anomalies)
        if field.text or (self.digits is None and not self.is_text):
            return values
        if self.digits is not None:
            return round_values(values, self.digits)
        size = None if field.size is None else field.size(forecast, values)
        return round_values(values, DEFAULT_DIGITS, size)

    def _resolve_columns(self, schema: pa.Schema) -> pa.Schema:
        """Fix the leading columns; prefix prediction columns whose name is in use."""
        taken = set(schema.names)
        self._fields = [
            field._replace(name=make_output_name(field.name, taken)) for field in self._fields
        ]
        return schema

    def _write_columns(
        self, leading: list[tuple[pa.Field, pa.Array | None]], predicted: list[Any]
    ) -> None:
        raise NotImplementedError

    def checkpoint(self) -> int | None:
        """Sync to disk; return the size so far, None if the file cannot be truncated there."""
        return None

    def close(self) -> None:
        """Finish the file."""


class LineWriter(Writer):
    """A text table that can be truncated after any block."""

    is_text = True

    _file: Sink

    def checkpoint(self) -> int | None:
        """Sync to disk; return the size so far, None if the output is not seekable."""
        if self.path == STDOUT or not self._file.seekable():
            return None
        self._file.sync()
        return self._file.tell()

    def close(self) -> None:
        """Close the file; standard output stays open."""
        if self.path != STDOUT:
            self._file.close()


def open_output(path: str, keep: int | None) -> Sink:
    """Open a file, truncated after its first `keep` bytes; `-` is standard output."""
    if path == STDOUT:
        return standard_output()
    if keep is None:
        return open_sink(path)
    file = open_sink(path, "r+")
    size = file.seek(0, os.SEEK_END)
    if size < keep:
        file.close()
        raise DataError(
            f"{path}: is shorter than when the model was saved, so it cannot be continued"
        )
    file.truncate(keep)
    file.seek(keep)
    return file


def _find_column(batch: pa.RecordBatch | None, name: str) -> pa.Array | None:
    at = -1 if batch is None else batch.schema.get_field_index(name)
    return batch.column(at) if batch is not None and at >= 0 else None


def leading_columns(rows: Rows, task: TargetType, key: Sequence[str] = ()) -> pa.RecordBatch:
    """Return the columns before the predictions: row number, key, id and true targets."""
    columns = {"row": pa.array(rows.number)}
    for name in key:
        columns[name] = rows.original.column(rows.original.schema.get_field_index(name))
    if rows.schema is not None and rows.schema.id is not None and rows.id is not None:
        columns[rows.schema.id] = pa.array(rows.id, pa.string())
    for j, name in enumerate(task.targets):
        kind = pa.string() if task.labels else pa.float64()
        columns[name] = pa.array(decode_targets(task, rows.y[:, j]), kind, from_pandas=True)
    return pa.RecordBatch.from_pydict(columns)


class TextWriter(LineWriter):
    """Writes CSV or TSV to a file or standard output."""

    def __init__(self, path: str, fields: Sequence[Field], *, keep: int | None = None) -> None:
        super().__init__(path, fields)
        self._header = keep is None  # whether the header must still be written
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
        """Format a column as cells; text stays as it is."""
        if array is None:
            return [""] * size
        cells: list[str] = cast_to_text(array).fill_null("").to_pylist()
        return cells if is_numeric(array.type) else self._quote_cells(cells)

    def _quote_cells(self, cells: list[str]) -> list[str]:
        """Quote cells that hold a delimiter, a quote or a line break."""
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
"""Rows per row group (Parquet) or record batch (Arrow)."""


class TypedWriter(Writer):
    """A table whose column types are taken from its first block."""

    format_name: str

    def __init__(
        self, path: str, fields: Sequence[Field], schema: Schema, *, keep: int | None = None
    ) -> None:
        super().__init__(path, fields)
        self._known = schema
        self._missing = MissingSpellings(schema.missing)
        self._file = open_output(path, keep)
        self._types: pa.Schema | None = None

    def _resolve_columns(self, schema: pa.Schema) -> pa.Schema:
        """Fix the column types; text in number columns becomes numbers."""
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
        """Return whether the format has the type of a column; otherwise it is written as text."""
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
                return pa.array(parse_numbers(array, self._missing).values, from_pandas=True)
            return cast_to_text(array) if field.type == pa.string() else array.cast(field.type)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise DataError(
                f"{self.path}: column '{field.name}' changes from {field.type} to {array.type}, "
                f"which {self.format_name} cannot hold (write CSV instead)"
            ) from error


class BinaryWriter(TypedWriter):
    """A file that is readable only after it is closed."""

    def __init__(self, path: str, fields: Sequence[Field], schema: Schema) -> None:
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
                    f"{self.path}: {self.format_name} cannot hold a value "
                    f"({str(error).splitlines()[0]}). Write CSV, JSON or Arrow instead."
                ) from error

    def close(self) -> None:
        """Write the remaining rows and the index at the end of the file."""
        if self._file.closed:
            return
        if self._types is None:
            self._resolve_columns(pa.schema([]))
        self._write_group()
        self._table.close()
        self._file.close()


class ParquetFileWriter(BinaryWriter):
    """Writes a Parquet file."""

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
    """Writes an Arrow file."""

    format_name = "Arrow"

    def _open_table(self, types: pa.Schema) -> Any:
        return pa.ipc.new_file(self._file, types)


class JsonLinesWriter(LineWriter, TypedWriter):
    """Writes one JSON object per line; missing values are null."""

    format_name = "JSON"

    def _cast_column(self, field: pa.Field, array: pa.Array | None, size: int) -> pa.Array:
        try:
            return super()._cast_column(field, array, size)
        except DataError:  # types may differ from line to line
            return array

    def _write_batch(self, arrays: list[pa.Array]) -> None:
        assert self._types is not None
        names, columns = self._types.names, map(python_values, arrays)
        rows = zip(*columns, strict=True)
        lines = [_format_line(dict(zip(names, row, strict=True))) for row in rows]
        self._file.write("\n".join([*lines, ""]).encode())


def _format_line(row: dict[str, Any]) -> str:
    """Format a row as a JSON object."""
    try:
        return json.dumps(row, ensure_ascii=False, allow_nan=False, default=str)
    except ValueError:  # a copied column may hold NaN or infinity
        return json.dumps(_replace_nonfinite(row), ensure_ascii=False, allow_nan=False, default=str)


def _replace_nonfinite(value: Any) -> Any:
    """Replace numbers that JSON lacks: NaN by null, infinity by text."""
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


MAX_EXACT_POWER: Final = 22
"""Largest power of ten that is a float64, so that dividing by it rounds once."""


def round_values(values: Any, digits: int, size: FloatArray | None = None) -> FloatArray:
    """Round numbers to significant digits; each becomes the float nearest to its decimal.

    Parameters
    ----------
    values
        Numbers (n,).
    digits
        Number of digits.
    size
        Numbers (n,) whose digits count; the values are rounded at the same decimal place, and stay
        whole where the size is 0 or not finite. None: the values themselves.
    """
    values = np.asarray(values, dtype=np.float64)
    rounded: FloatArray
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        places = digits - 1 - np.floor(np.log10(np.abs(values if size is None else size)))
        power = 10.0 ** np.minimum(np.abs(places), MAX_EXACT_POWER)
        shifted = np.rint(np.where(places >= 0, values * power, values / power))
        rounded = np.where(places >= 0, shifted / power, shifted * power)
        exact = (np.abs(places) <= MAX_EXACT_POWER) & (np.abs(shifted) < 2.0**53)
    rounded = np.where(exact, rounded, values)
    if size is None:
        for at in np.flatnonzero(~exact & np.isfinite(values)).tolist():
            rounded[at] = float(f"{values[at]:.{digits}g}")
    return rounded


def open_writer(
    path: str,
    fields: Sequence[Field],
    schema: Schema,
    *,
    keep: int | None = None,
    digits: int | None = None,
) -> Writer:
    """Open a table in the format of the name's ending, CSV by default; `-` is standard output.

    Parameters
    ----------
    path
        File to write.
    fields
        Prediction columns.
    schema
        The model's schema, which types the leading columns.
    keep
        Number of bytes of an existing text file to keep, to resume a run.
    digits
        Significant digits of predicted numbers; None: DEFAULT_DIGITS of what matters in text, all
        in Parquet and Arrow.
    """
    writer = _open_format(path, fields, schema, keep)
    writer.digits = digits
    return writer


def _open_format(path: str, fields: Sequence[Field], schema: Schema, keep: int | None) -> Writer:
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
    """Refuse a name whose ending is not a supported format."""
    if _file_suffix(path) not in (*_TEXT, *_JSON, *_BINARY):
        kinds = "tables are written as .csv, .tsv, .txt, .jsonl, .parquet or .arrow"
        raise UsageError(f"{path}: {kinds}, not {_file_suffix(path)}")


def _file_suffix(path: str) -> str:
    return os.path.splitext(path)[1].lower()
