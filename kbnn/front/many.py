"""Rows of a table of numbers that a model knows, as one block: what `learn_one` would make of them.

A table that holds anything else is left to `learn_one`, row by row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kbnn.front.model import Model
from kbnn.model import model as inner
from kbnn.model.rows import MAX_ABS_VALUE, MIN_ABS_VALUE, Rows


def learn_block(model: Model, table: Any, y: Sequence[Any]) -> bool:
    """Learn the rows; False, and nothing learned, where columns are not all known numbers."""
    with model._learning_lock, model._locked_model() as known:
        rows = _build_rows(model, known, table, y)
        if rows is None:
            return False
        known.learn(rows)
        return True


def _build_rows(
    model: Model, known: inner.OnlineModel, table: Any, y: Sequence[Any]
) -> Rows | None:
    """The rows with their targets."""
    reader = model._row_reader()
    names = reader.plain_columns
    columns = [str(name) for name in table.columns]
    if names is None or not set(columns) <= set(names) or not len(table):
        return None
    if any(getattr(kind, "kind", "O") not in "iuf" for kind in table.dtypes):
        return None
    x = np.full((len(table), len(names)), np.nan)
    for at, name in enumerate(columns):
        x[:, names.index(name)] = table.iloc[:, at]
    size = np.abs(x[~np.isnan(x)])
    if np.any((size > MAX_ABS_VALUE) | ((size < MIN_ABS_VALUE) & (size != 0.0))):
        return None
    targets = np.concatenate([reader.encode_targets(value) for value in y])
    number = known.met + 1 + np.arange(len(x))
    return Rows(x, targets, number, schema=reader.schema)
