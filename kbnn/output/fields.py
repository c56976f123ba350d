"""What a prediction becomes when it is written: the task's columns, beside the row's own."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from kbnn.errors import ArgumentError, UsageError
from kbnn.model.rows import Rows
from kbnn.model.settings import INTERVALS
from kbnn.task.base import TargetType


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


def check_interval_mode(wanted: str | None) -> str | None:
    """Refuse what intervals cannot be."""
    if wanted is not None and wanted not in INTERVALS:
        raise UsageError(f"--intervals is {' or '.join(INTERVALS)}, not '{wanted}'")
    return wanted
