"""Rows as arrays of numbers, for estimators: the schema is stated, and nothing is inferred."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from kbnn.core.normal import FloatArray
from kbnn.front.forecasts import Forecasts
from kbnn.front.model import Model
from kbnn.front.notices import announce
from kbnn.model import model as inner
from kbnn.model.rows import Rows, sliced
from kbnn.model.schema import Column, Place, Schema
from kbnn.run.choices import check_size
from kbnn.run.trainoptions import ModelWords, stated
from kbnn.stream.blocks import joined
from kbnn.stream.opening import ReadOptions, open_stream
from kbnn.task.table import Target

BLOCK_ROWS: Final = 256
"""Rows that are learned in one go."""


def new_model(
    names: Sequence[str],
    targets: Sequence[str],
    target: Target,
    words: ModelWords,
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
    return _created(schema, targets, words)


def new_table_model(
    table: pa.Table,
    targets: Sequence[str],
    target: Target,
    words: ModelWords,
    categorical: Sequence[str],
) -> Model:
    """A model of a table's columns, which are what they would be in a file of the same rows."""
    blank = pa.repeat(pa.scalar(1.0), table.num_rows)
    for name in targets:
        table = table.append_column(name, blank)
    options = ReadOptions(target=tuple(targets), categorical=tuple(categorical), lags="off")
    with open_stream(table, options=options, on_notice=announce) as stream:
        schema = stream.schema.copy()
    schema.task, schema.classes, schema.closed = target.choice[:3]
    schema.chosen = True
    for name in targets:
        schema.column(name).kind = target.kind
    return _created(schema, targets, words)


def _created(schema: Schema, targets: Sequence[str], words: ModelWords) -> Model:
    settings = stated((), targets, **words).choices.settings()
    check_size(settings, schema)
    return Model._of(inner.Model.create(settings, schema))


def encoded(model: Model, table: pa.Table, *, admit: bool) -> Rows:
    """The features of a table, encoded as the model knows them; with `admit` it may learn of more.

    What it learns of is part of the rows, and of the model once they are learned.
    """
    options = ReadOptions(use_target=False, admit=admit)
    notice = announce if admit else lambda text: None
    known = model._known().schema
    with open_stream(table, options=options, schema=known, on_notice=notice) as stream:
        return joined(list(stream))


def takes_numbers(model: Model) -> bool:
    """Whether all that the model learns from are numbers, one column each."""
    schema = model._known().schema
    return (
        schema.clock is None
        and all(column.kind == "number" for column in schema.columns if column.role == "feature")
        and len(schema.layout) == len(schema.columns) - len(schema.targets)
    )


def numbers(x: FloatArray) -> Rows:
    """Features that are numbers, as rows."""
    return Rows(x, np.full((len(x), 1), np.nan), np.arange(1, len(x) + 1))


def learn(
    model: Model, rows: Rows, y: FloatArray, weight: FloatArray | None, again: bool = False
) -> None:
    """Learn rows with targets y (n, T), classes by their number.

    Blocks are short: an interrupt waits for the end of one, and so do predictions elsewhere.
    """
    with model._learning:
        known = model._known()
        rows = rows._replace(y=y, number=known.met + 1 + np.arange(len(y)), weight=weight)
        for start in range(0, len(y), BLOCK_ROWS):
            known.learn(sliced(rows, start, start + BLOCK_ROWS), again)


def predict(model: Model, rows: Callable[[], Rows]) -> Forecasts:
    """Predict rows, which are encoded while the model learns nothing."""
    with model._at_rest() as known:
        return Forecasts(known.task, known.ahead()(rows()), 0.9, False)
