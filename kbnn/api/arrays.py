"""Rows as arrays of numbers, for estimators: the schema is stated, and nothing is inferred.

Rows of a table of numbers that a model knows, as one block: what `learn_one` would make of them.

A table that holds anything else is left to `learn_one`, row by row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from kbnn.api.forecasts import Forecasts
from kbnn.api.online_model import Model, log_notice
from kbnn.array_types import FloatArray
from kbnn.data.batch import MAX_ABS_VALUE, MIN_ABS_VALUE, Rows, slice_rows
from kbnn.data.dataset import open_stream
from kbnn.data.read_options import ReadOptions
from kbnn.data.row_blocks import concat_rows
from kbnn.data.schema import Column, Place, Schema
from kbnn.model import model as inner
from kbnn.targets.registry import DeclaredTarget
from kbnn.workflows.options import ModelKeywords, build_train_options, check_network_size

BLOCK_ROWS: Final = 256
"""Rows that are learned in one go."""


def new_model(
    names: Sequence[str],
    targets: Sequence[str],
    target: DeclaredTarget,
    words: ModelKeywords,
) -> Model:
    """A model of columns that are numbers."""
    task, classes, closed = target.choice[:3]
    schema = Schema(
        [
            *(Column(name, "number", "feature") for name in names),
            *(Column(name, target.kind, "target") for name in targets),
        ],
        task,
        classes,
        closed=closed,
        layout=[Place(name, None) for name in names],
        chosen=True,
    )
    return _create_model(schema, targets, words)


def new_table_model(
    table: pa.Table,
    targets: Sequence[str],
    target: DeclaredTarget,
    words: ModelKeywords,
    categorical: Sequence[str],
) -> Model:
    """A model of a table's columns, which are what they would be in a file of the same rows."""
    blank = pa.repeat(pa.scalar(1.0), table.num_rows)
    for name in targets:
        table = table.append_column(name, blank)
    options = ReadOptions(target=tuple(targets), categorical=tuple(categorical), lags="off")
    with open_stream(table, options=options, on_notice=log_notice) as stream:
        schema = stream.schema.copy()
    schema.task, schema.classes, schema.closed = target.choice[:3]
    schema.chosen = True
    for name in targets:
        schema.get_column(name).kind = target.kind
    return _create_model(schema, targets, words)


def _create_model(schema: Schema, targets: Sequence[str], words: ModelKeywords) -> Model:
    settings = build_train_options((), targets, **words).choices.make_settings()
    check_network_size(settings, schema)
    return Model._from_inner(inner.OnlineModel.create(settings, schema))


def encode_table(model: Model, table: pa.Table, *, admit: bool) -> Rows:
    """The features of a table, encoded as the model knows them; with `admit` it may learn of more.

    What it learns of is part of the rows, and of the model once they are learned.
    """
    options = ReadOptions(use_target=False, admit=admit)
    notice = log_notice if admit else lambda text: None
    known = model._require_model().schema
    with open_stream(table, options=options, schema=known, on_notice=notice) as stream:
        return concat_rows(list(stream))


def takes_numbers(model: Model) -> bool:
    """Whether all that the model learns from are numbers, one column each."""
    schema = model._require_model().schema
    return (
        schema.clock is None
        and all(column.kind == "number" for column in schema.columns if column.role == "feature")
        and len(schema.layout) == len(schema.columns) - len(schema.targets)
    )


def rows_from_numbers(x: FloatArray) -> Rows:
    """Features that are numbers, as rows."""
    return Rows(x, np.full((len(x), 1), np.nan), np.arange(1, len(x) + 1))


def learn_rows(
    model: Model, rows: Rows, y: FloatArray, weight: FloatArray | None, again: bool = False
) -> None:
    """Learn rows with targets y (n, T), classes by their number.

    Blocks are short: an interrupt waits for the end of one, and so do predictions elsewhere.
    """
    with model._learning_lock:
        known = model._require_model()
        rows = rows._replace(y=y, number=known.met + 1 + np.arange(len(y)), weight=weight)
        for start in range(0, len(y), BLOCK_ROWS):
            known.learn(slice_rows(rows, start, start + BLOCK_ROWS), again)


def predict_rows(model: Model, rows: Callable[[], Rows]) -> Forecasts:
    """Predict rows, which are encoded while the model learns nothing."""
    with model._locked_model() as known:
        return Forecasts(known.task, known.open_predictor()(rows()), 0.9, False)


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
