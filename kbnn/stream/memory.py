"""Tables in memory as sources: whatever speaks Arrow's stream interface, dicts, numpy arrays.

A table from pandas, polars, pyarrow or duckdb is read where it lies, a slice at a time: nothing is
copied but the rows that are being learned.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from kbnn.closing import Closing
from kbnn.errors import DataError, UsageError

NAME: Final = "data"
"""What a table is called in messages."""

# What a table that cannot be had makes Arrow, pandas and others raise.
_REFUSALS: Final = (pa.ArrowException, ValueError, TypeError, OverflowError, AttributeError)


def is_table(data: object) -> bool:
    """Whether this is a table in memory."""
    return (
        hasattr(data, "__arrow_c_stream__")
        or hasattr(data, "__arrow_c_array__")
        or isinstance(data, Mapping | np.ndarray)
    )


class TableSource:
    """A table in memory; one that can be read only once is kept where `keep` asks for it."""

    live = False
    size: int | None = None

    def __init__(self, table: Any, columns: Sequence[str] | None, *, keep: bool = False) -> None:
        self.name = NAME
        self.once = hasattr(table, "__next__")
        self._table = self._named(table, columns)
        self._keep = keep and self.once
        self._kept: list[pa.RecordBatch] = []
        self._used = False

    def _named(self, table: Any, columns: Sequence[str] | None) -> Any:
        """The table as one that speaks Arrow."""
        if isinstance(table, np.ndarray) and table.dtype.names:
            return _from_columns({name: table[name] for name in table.dtype.names})
        if isinstance(table, np.ndarray):
            return _from_array(table, columns)
        if columns is not None:
            raise UsageError("columns names those of a numpy array: this table has names")
        return _from_columns(table) if isinstance(table, Mapping) else table

    def open(self) -> BatchReader:
        """Open for reading from the start."""
        if self.once and self._used:
            if not self._keep:
                raise UsageError(f"{self.name}: can be read only once")
            return BatchReader(self, self._kept[0].schema if self._kept else None, self._kept)
        self._used = True
        try:
            reader = pa.RecordBatchReader.from_stream(self._table)
        except _REFUSALS as error:
            raise refused(error) from error
        return BatchReader(self, reader.schema, self._read(reader))

    def _read(self, reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        for batch in reader:
            if self._keep:
                self._kept.append(batch)
            yield batch

    def close(self) -> None:
        """Let go of what was kept."""
        self._kept = []


class BatchReader(Closing):
    """One reading of a table."""

    count = 0
    """Bytes read, which nobody knows of a table."""

    def __init__(self, source: TableSource, schema: Any, batches: Any) -> None:
        self.source = source
        self.schema = schema if schema is not None else pa.schema([])
        self.batches = iter(batches)
        self.index = _index_columns(self.schema)


def refused(error: BaseException) -> DataError:
    """The error for a table that cannot be had."""
    lines = str(error).strip().splitlines()
    why = lines[0] if lines else type(error).__name__
    return DataError(f"{NAME}: cannot be read as a table ({why[:160].rstrip('. ')})")


def _from_columns(columns: Mapping[Any, Any]) -> pa.Table:
    arrays = {}
    for name, values in columns.items():
        if isinstance(values, str | bytes) or not hasattr(values, "__len__"):
            raise DataError(
                f"{NAME}: column '{name}' is no list or array of values (one row: learn_one)"
            )
        try:
            arrays[str(name)] = pa.array(_moments(values))
        except _REFUSALS as error:
            raise DataError(f"{NAME}: column '{name}': {refused(error)}") from error
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        shown = ", ".join(f"'{name}' {length:,}" for name, length in list(lengths.items())[:4])
        raise DataError(f"{NAME}: its columns differ in length ({shown})")
    return pa.table(arrays)


def _moments(values: Any) -> Any:
    """Hours and other moments of numpy that Arrow has no type for, to the second."""
    kind = getattr(values, "dtype", None)
    if not isinstance(kind, np.dtype) or kind.kind != "M" or np.datetime_data(kind)[0] not in _LONG:
        return values
    return values.astype("datetime64[s]")


_LONG = ("m", "h", "W", "M", "Y")


def _from_array(array: np.ndarray[Any, Any], columns: Sequence[str] | None) -> pa.Table:
    if array.ndim != 2:
        raise DataError(f"{NAME}: a numpy array of rows has two dimensions, not {array.ndim}")
    width = array.shape[1]
    names = [f"column{at}" for at in range(1, width + 1)] if columns is None else list(columns)
    if len(names) != width:
        raise UsageError(f"columns names {len(names)} columns, but the array has {width}")
    return _from_columns({name: array[:, at] for at, name in enumerate(names)})


def _index_columns(schema: pa.Schema) -> frozenset[str]:
    """The columns that hold a pandas index, which is no column of its table."""
    said = (schema.metadata or {}).get(b"pandas")
    if said is None:
        return frozenset()
    names = json.loads(said).get("index_columns", [])
    return frozenset(name for name in names if isinstance(name, str))
