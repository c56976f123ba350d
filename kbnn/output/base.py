"""A table of predictions that grows by blocks, whatever it is written as.

One row is written for each row of the input, in order. What is not known is an empty cell, or null.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa

from kbnn.closing import Closeable
from kbnn.errors import DataError
from kbnn.sink import Sink, open_sink, standard_output
from kbnn.task.base import OutputField
from kbnn.task.forecast import Forecast

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
