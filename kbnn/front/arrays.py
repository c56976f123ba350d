"""Rows as arrays of numbers, for estimators: the schema is stated, and nothing is inferred."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from kbnn.core.normal import FloatArray
from kbnn.front.forecasts import Forecasts
from kbnn.front.model import Model
from kbnn.front.notices import log_notice
from kbnn.model import model as inner
from kbnn.model.rows import Rows, slice_rows
from kbnn.model.schema import Column, Place, Schema
from kbnn.run.choices import check_network_size
from kbnn.run.trainoptions import ModelKeywords, build_train_options
from kbnn.stream.blocks import concat_rows
from kbnn.stream.opening import ReadOptions, open_stream
from kbnn.task.table import DeclaredTarget

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
