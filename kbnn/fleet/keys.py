"""What the key of a row is: the text of one column, or of several as one line of CSV.

A key may hold anything. One that is missing is the empty one; numbers are as they are written.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from kbnn.errors import DataError
from kbnn.model.rows import Rows
from kbnn.stream.chunk import shorten
from kbnn.stream.values import number_to_text, python_values


def read_keys(rows: Rows, columns: Sequence[str]) -> list[str]:
    """The key of each row; a source without a column of the key is an error."""
    batch = rows.original
    for name in columns:
        if batch is None or name not in batch.schema.names:
            raise DataError(f"the column '{shorten(name)}' of the key is not there")
    parts = [_column_texts(batch.column(batch.schema.get_field_index(name))) for name in columns]
    return (
        parts[0]
        if len(parts) == 1
        else [join_key_cells(cells) for cells in zip(*parts, strict=True)]
    )


def join_key_cells(cells: Sequence[str]) -> str:
    """The cells of a key as one text."""
    if len(cells) == 1:
        return cells[0]
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(cells)
    return text.getvalue()


def _column_texts(column: pa.Array) -> list[str]:
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    values = python_values(column)
    if pa.types.is_string(column.type) and not column.null_count:
        return values
    return [_value_text(value) for value in values]


def _value_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return number_to_text(value) if isinstance(value, float) else str(value)
