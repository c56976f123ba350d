"""The sources of a stream: files, tables in memory, or iterators of these.

Tables are objects with Arrow's stream interface (pandas, polars, pyarrow, duckdb), dicts of
columns, and numpy arrays. They are read in place, a slice at a time: only the rows being learned
are copied.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from kbnn.data.chunk import shorten
from kbnn.data.periods import match_period_frequency
from kbnn.data.sources import STDIN, Source, expand_paths, parse_folder_columns
from kbnn.data.values import is_encodable, normalize_cell
from kbnn.errors import DataError, UsageError
from kbnn.sink import Closeable

TABLE_NAME: Final = "data"
"""The name of a table in messages."""

INDEX_NAME: Final = "index"
"""The name of an unnamed pandas index, as given by `reset_index`."""

SERIES_NAME: Final = "y"
"""The name of a column that has none: an unnamed Series or an Arrow array."""

# Raised by Arrow, pandas and others for tables that cannot be converted.
_TABLE_ERRORS: Final = (pa.ArrowException, ValueError, TypeError, OverflowError, AttributeError)


def is_table(data: object) -> bool:
    """Return whether this is a table in memory."""
    return (
        hasattr(data, "__arrow_c_stream__")
        or hasattr(data, "__arrow_c_array__")
        or isinstance(data, Mapping | np.ndarray)
        or _is_lone_column(data)
    )


def _is_lone_column(data: Any) -> bool:
    """Return whether this is a Series of pandas or polars; one of structs is a table."""
    is_column = hasattr(data, "to_frame") and hasattr(data, "name") and hasattr(data, "dtype")
    return is_column and not str(data.dtype).lower().startswith("struct")


class TableSource:
    """A table in memory; with `keep`, one that can be read only once is stored for later passes."""

    is_live = False
    size: int | None = None

    def __init__(self, table: Any, columns: Sequence[str] | None, *, keep: bool = False) -> None:
        self.name = TABLE_NAME
        self.is_read_once = hasattr(table, "__next__")
        self._table = self._prepare_table(table, columns)
        self._keep = keep and self.is_read_once
        self._kept: list[pa.RecordBatch] = []
        self._used = False

    def _prepare_table(self, table: Any, columns: Sequence[str] | None) -> Any:
        """Convert a table to one with Arrow's stream interface."""
        if isinstance(table, np.ndarray) and table.dtype.names:
            return _table_from_columns({name: table[name] for name in table.dtype.names})
        if isinstance(table, np.ndarray):
            return _table_from_array(table, columns)
        if columns is not None:
            raise UsageError("columns names the columns of a numpy array: this table has names")
        if _is_lone_column(table):
            return table.to_frame(SERIES_NAME if table.name in (None, "") else str(table.name))
        if isinstance(table, pa.Array | pa.ChunkedArray) and not pa.types.is_struct(table.type):
            return pa.table({SERIES_NAME: table})
        return _table_from_columns(table) if isinstance(table, Mapping) else table

    def open(self) -> BatchReader:
        """Open for reading from the start."""
        if self.is_read_once and self._used:
            if not self._keep:
                raise UsageError(f"{self.name}: can be read only once")
            return BatchReader(self, self._kept[0].schema if self._kept else None, self._kept)
        self._used = True
        try:
            reader = pa.RecordBatchReader.from_stream(self._table)
        except _TABLE_ERRORS as error:
            raise unreadable_table_error(error) from error
        order, names = _order_columns(reader.schema)
        schema = pa.schema(
            [reader.schema.field(at).with_name(n) for at, n in zip(order, names, strict=True)]
        )
        return BatchReader(self, schema, self._read_batches(reader, order, schema))

    def _read_batches(
        self, reader: pa.RecordBatchReader, order: list[int], schema: pa.Schema
    ) -> Iterator[pa.RecordBatch]:
        for batch in reader:
            columns = [batch.column(at) for at in order]
            batch = (
                pa.RecordBatch.from_arrays(columns, schema=schema) if columns else batch.select([])
            )
            if self._keep:
                self._kept.append(batch)
            yield batch

    def close(self) -> None:
        """Release the stored batches."""
        self._kept = []


class BatchReader(Closeable):
    """Reads the batches of a table once."""

    bytes_read = 0
    """Always 0: the size of a table in bytes is unknown."""

    def __init__(self, source: TableSource, schema: Any, batches: Any) -> None:
        self.source = source
        self.schema = schema if schema is not None else pa.schema([])
        self.batches = iter(batches)


def unreadable_table_error(error: BaseException) -> DataError:
    """Make the error for a table that cannot be read."""
    lines = str(error).strip().splitlines()
    why = lines[0] if lines else type(error).__name__
    return DataError(f"{TABLE_NAME}: cannot be read as a table ({why[:160].rstrip('. ')})")


def _table_from_columns(columns: Mapping[Any, Any]) -> pa.Table:
    arrays = {}
    for name, values in columns.items():
        if not is_encodable(str(name)):
            raise DataError(
                f"{TABLE_NAME}: column {name!a}: the name holds a lone surrogate, which is not "
                "valid Unicode text"
            )
        if isinstance(values, str | bytes) or not hasattr(values, "__len__"):
            raise DataError(
                f"{TABLE_NAME}: column '{name}' is not a list or array of values (for one row, "
                "use learn_one)"
            )
        try:
            arrays[str(name)] = _make_arrow_column(values)
        except _TABLE_ERRORS as error:
            raise DataError(
                f"{TABLE_NAME}: column '{name}': {unreadable_table_error(error)}"
            ) from error
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        shown = ", ".join(f"'{name}' {length:,}" for name, length in list(lengths.items())[:4])
        raise DataError(f"{TABLE_NAME}: the columns differ in length ({shown})")
    return pa.table(arrays)


def rows_as_columns(rows: Sequence[Mapping[Any, Any]]) -> dict[Any, list[Any]]:
    """Convert a list of dicts to columns, with None where a row lacks a key."""
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: [row.get(name) for row in rows] for name in names}


def is_row_list(data: object) -> bool:
    """Return whether this is a list of dicts, one per row, and not a list of tables."""
    if not isinstance(data, list | tuple) or not all(isinstance(row, Mapping) for row in data):
        return False
    cells = (value for row in data for value in row.values())
    return any(isinstance(value, str | bytes) or not hasattr(value, "__len__") for value in cells)


def _make_arrow_column(values: Any) -> pa.Array:
    """Convert a column to an array; values of mixed types become text."""
    values = _cast_long_units(values)
    try:
        return pa.array(values, from_pandas=True)
    except (pa.ArrowException, ValueError, TypeError):
        plain = [normalize_cell(value) for value in values]
        if any(isinstance(value, Mapping | Sequence) and not isinstance(value, str)
               for value in plain):  # fmt: skip
            raise
        return pa.array([_format_cell(value) for value in plain], pa.string())


def _format_cell(value: Any) -> str | None:
    if isinstance(value, bool):
        return str(value).lower()
    return None if value is None or value != value else str(value)


def _cast_long_units(values: Any) -> Any:
    """Cast numpy times and durations in units that Arrow lacks (minutes, days...) to seconds."""
    kind = getattr(values, "dtype", None)
    if not isinstance(kind, np.dtype) or kind.kind not in "mM":
        return values
    unit = np.datetime_data(kind)[0]
    if unit in _LONG_UNITS or (kind.kind == "m" and unit == "D"):
        return values.astype(f"{kind.kind}8[s]")
    return values


_LONG_UNITS = ("m", "h", "W", "M", "Y")


def _table_from_array(array: np.ndarray[Any, Any], columns: Sequence[str] | None) -> pa.Table:
    if array.ndim != 2:
        raise DataError(f"{TABLE_NAME}: a numpy array must have two dimensions, not {array.ndim}")
    width = array.shape[1]
    names = [f"column{at}" for at in range(1, width + 1)] if columns is None else list(columns)
    if len(names) != width:
        raise UsageError(f"columns names {len(names)} columns, but the array has {width}")
    return _table_from_columns({name: array[:, at] for at, name in enumerate(names)})


def _order_columns(schema: pa.Schema) -> tuple[list[int], list[str]]:
    """Return positions and names of the columns to read; a pandas index is skipped unless temporal.

    An index of timestamps or periods comes first, under its name or as `index`, unless a column
    has that name.
    """
    index = _index_columns(schema)
    order = [at for at, name in enumerate(schema.names) if name not in index]
    names = [schema.names[at] for at in order]
    for at, name in enumerate(schema.names):
        shown = INDEX_NAME if name.startswith("__index_level_") else name
        field = schema.field(at)
        is_time = pa.types.is_timestamp(field.type) or match_period_frequency(field) is not None
        if name in index and is_time and shown not in names:
            return [at, *order], [shown, *names]
    return order, names


def _index_columns(schema: pa.Schema) -> frozenset[str]:
    """Return the columns that hold a pandas index."""
    metadata = (schema.metadata or {}).get(b"pandas")
    if metadata is None:
        return frozenset()
    names = json.loads(metadata).get("index_columns", [])
    return frozenset(name for name in names if isinstance(name, str))


def to_arrow_table(data: Any) -> pa.Table:
    """Convert a table in memory, or a list of dicts, to an Arrow table of the columns to read."""
    table = rows_as_columns(data) if is_row_list(data) else data
    reader = TableSource(table, None).open()
    return pa.Table.from_batches(list(reader.batches), schema=reader.schema)


AnySource = Source | TableSource


class SourceList(Closeable):
    """Sources in order, iterated over once per pass.

    Items of an iterator are taken when they are needed, in the thread that reads them. With
    `keep`, they are stored for later passes.
    """

    def __init__(
        self,
        data: Any,
        *,
        read_size: int,
        keep: bool,
        columns: Sequence[str] | None,
        notice: Callable[[str], None],
    ) -> None:
        self._read_size = read_size
        self._keep = keep
        self._columns = columns
        self._notice = notice
        self._made: list[AnySource] = []
        self._more: Iterator[Any] | None = None
        for item in _list_items(data):
            if isinstance(item, Iterator) and not is_table(item):
                self._more = item
                if keep:
                    notice("data are kept in memory for later epochs")
            else:
                self._made.extend(self._make_sources(item))
        if columns is not None and not any(isinstance(s, TableSource) for s in self._made):
            self._refuse_columns()

    def _refuse_columns(self) -> None:
        if self._more is None:
            raise UsageError("columns names the columns of a numpy array: a file has names")

    def _make_sources(self, item: Any) -> Iterable[AnySource]:
        if isinstance(item, str | os.PathLike):
            return self._make_file_sources(os.fspath(item))
        if not is_table(item):
            raise UsageError(
                f"data cannot be a {type(item).__name__}: give a table (pandas, polars, Arrow, "
                "duckdb), a dict of arrays, a numpy array, a path, or an iterator of those"
            )
        source = TableSource(item, self._columns, keep=self._keep)
        if self._keep and source.is_read_once:
            self._notice("data are kept in memory for later epochs")
        return [source]

    def _make_file_sources(self, path: str) -> list[Source]:
        """Make a source for each file of a path, a glob or a folder."""
        if not os.path.isdir(path):
            return [self._make_file_source(one, {}) for one in expand_paths([path])]
        found = {one: parse_folder_columns(path, one) for one in expand_paths([path])}
        named = dict.fromkeys(name for columns in found.values() for name in columns)
        if named:
            shown = ", ".join(map(shorten, named))
            self._notice(f"{path}: folder names are read as columns: {shown}")
        return [self._make_file_source(one, columns) for one, columns in found.items()]

    def _make_file_source(self, path: str, columns: dict[str, str | None]) -> Source:
        source = Source(path, read_size=self._read_size, keep=self._keep, columns=columns)
        if self._keep and source.is_read_once:
            self._notice(f"{source.name} is kept in a temporary file for later epochs")
        return source

    def __iter__(self) -> Iterator[AnySource]:
        yield from self._made
        for item in self._more or ():
            for source in self._make_sources(item):
                if self._keep:
                    self._made.append(source)
                yield source

    @property
    def is_single(self) -> bool:
        """Whether there is exactly one source."""
        return self._more is None and len(self._made) == 1

    @property
    def is_live(self) -> bool:
        """Whether more rows may still arrive."""
        return self._more is not None or any(source.is_live for source in self._made)

    @property
    def supports_read_ahead(self) -> bool:
        """Whether reading ahead in a thread helps: only if all sources are regular files."""
        return not self.is_live and all(isinstance(source, Source) for source in self._made)

    @property
    def total_bytes(self) -> int | None:
        """The size of all sources, None if unknown."""
        sizes = [source.size for source in self._made]
        return None if self.is_live or None in sizes else sum(size or 0 for size in sizes)

    def close(self) -> None:
        """Remove temporary files."""
        for source in self._made:
            source.close()


def _list_items(data: Any) -> list[Any]:
    """Return the inputs as a list, checked as far as possible without reading them."""
    if is_row_list(data):
        data = rows_as_columns(data)
    several = list(data) if isinstance(data, list | tuple) else [data]
    if not several:
        raise UsageError("no input: name a file, or - for standard input")
    if sum(isinstance(item, str) and item == STDIN for item in several) > 1:
        raise UsageError("standard input (-) can be read only once")
    return several


def list_source_names(data: Any) -> tuple[str, ...]:
    """Return the names of the sources; sources without a path are named like standard input."""
    return tuple(
        os.fspath(item) if isinstance(item, str | os.PathLike) else STDIN
        for item in _list_items(data)
    )


def list_source_paths(data: Any) -> tuple[str, ...]:
    """Return the paths of the sources that have one."""
    return tuple(name for name in list_source_names(data) if name != STDIN)
