"""Rows as arrays of numbers, for estimators: the schema is stated, and nothing is inferred."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from kbnn.core.normal import FloatArray
from kbnn.front.forecasts import Forecasts
from kbnn.front.model import Model
from kbnn.model import model as inner
from kbnn.model.rows import Rows, sliced
from kbnn.model.schema import Column, Kind, Place, Schema
from kbnn.run.choices import check_size
from kbnn.run.trainoptions import ModelWords, stated
from kbnn.stream.blocks import joined
from kbnn.stream.opening import ReadOptions, open_stream
from kbnn.task.table import Target

BLOCK_ROWS: Final = 256
"""Rows that are learned in one go."""


def new_model(
    names: Sequence[str],
    kinds: Sequence[Kind],
    targets: Sequence[str],
    target: Target,
    words: ModelWords,
) -> Model:
    """A model of columns that are known."""
    task, classes, closed = target.choice[:3]
    schema = Schema(
        [
            *(Column(n, k, "feature") for n, k in zip(names, kinds, strict=True)),
            *(Column(name, target.kind, "target") for name in targets),
        ],
        task,
        classes,
        closed=closed,
        layout=[Place(name, None) for name in names],
        chosen=True,
    )
    settings = stated((), targets, **words).choices.settings()
    check_size(settings, schema)
    return Model._of(inner.Model.create(settings, schema))


def encoded(model: Model, table: Any, *, admit: bool) -> Rows:
    """The features of a table, encoded as the model knows them; with `admit` it may learn of more.

    What it learns of is part of the rows, and of the model once they are learned.
    """
    options = ReadOptions(use_target=False, admit=admit)
    with open_stream(table, options=options, schema=model._known().schema) as stream:
        return joined(list(stream))


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
