"""Models and rows for the scikit-learn and river estimators.

The estimators state the schema or take it from a table; nothing else is inferred. Features that
are numbers become one array of rows. Tables with text, categories or times are encoded by the
schema, as a file of the same rows would be.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from kbnn.api.forecasts import Forecasts
from kbnn.api.keywords import ModelKeywords
from kbnn.api.notices import log_notice
from kbnn.api.online_model import Model
from kbnn.array_types import MAX_ABS_VALUE, MIN_ABS_VALUE, FloatArray
from kbnn.core.kernel import exceeds_limits
from kbnn.data.batch import Rows, concat_rows, slice_rows
from kbnn.data.dataset import open_stream
from kbnn.data.read_options import ReadOptions
from kbnn.data.schema import Column, Place, Schema
from kbnn.model.interface import StreamModel
from kbnn.targets.registry import DeclaredTarget
from kbnn.workflows.options import build_train_options
from kbnn.workflows.training import create_model

BLOCK_ROWS: Final = 256
"""Rows learned per block."""


def new_model(
    names: Sequence[str],
    targets: Sequence[str],
    target: DeclaredTarget,
    words: ModelKeywords,
) -> Model:
    """Create a model whose features are all numbers.

    Parameters
    ----------
    names
        Names of the features.
    targets
        Names of the targets.
    target
        Target type, with its classes if it is a class.
    words
        Options of the model, see `kbnn.Model`.

    Returns
    -------
    Model
        A model with this schema and no rows learned.

    Raises
    ------
    UsageError
        If an option has an invalid value or the network is too large.

    Examples
    --------
    >>> from kbnn.api.arrays import new_model
    >>> from kbnn.targets.registry import declare_numeric_target
    >>> new_model(["a", "b"], ["y"], declare_numeric_target(), {"layers": 5})
    <kbnn.Model: regression of y from a, b, 0 rows learned>
    """
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
    """Create a model for the columns of a table, typed as in a file of the same rows.

    Parameters
    ----------
    table
        Rows from which the column types are inferred; it has no target columns.
    targets
        Names of the targets.
    target
        Target type, with its classes if it is a class.
    words
        Options of the model, see `kbnn.Model`.
    categorical
        Columns that are categories whatever their values look like.

    Returns
    -------
    Model
        A model with this schema and no rows learned.

    Raises
    ------
    DataError
        If a column cannot be read.
    UsageError
        If an option has an invalid value or the network is too large.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from kbnn.api.arrays import new_table_model
    >>> from kbnn.targets.registry import declare_numeric_target
    >>> table = pa.table({"size": [1.5, 2.5, 3.5], "color": ["red", "blue", "red"]})
    >>> new_table_model(table, ["y"], declare_numeric_target(), {"layers": 5}, [])
    <kbnn.Model: regression of y from size, color, 0 rows learned>
    """
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
    """Create a model from a complete schema."""
    settings = build_train_options((), targets, **words).choices.make_settings()
    return Model._from_inner(create_model(settings, schema))


def encode_table(model: Model, table: pa.Table, *, admit: bool) -> Rows:
    """Encode the features of a table by the model's schema.

    Parameters
    ----------
    model
        The model whose schema is used; it is not changed.
    table
        Rows with the model's feature columns.
    admit
        Whether new categories are added to the schema of the returned rows. The model
        takes over that schema when it learns the rows.

    Returns
    -------
    Rows
        The encoded rows, with missing targets.

    Raises
    ------
    DataError
        If a cell cannot be read or a column is missing.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from kbnn.api.arrays import encode_table, new_table_model
    >>> from kbnn.targets.registry import declare_numeric_target
    >>> table = pa.table({"size": [1.5, 2.5, 3.5], "color": ["red", "blue", "red"]})
    >>> model = new_table_model(table, ["y"], declare_numeric_target(), {"layers": 5}, [])
    >>> encode_table(model, table, admit=True).x.shape
    (3, 3)
    """
    options = ReadOptions(use_target=False, admit=admit)
    notice = log_notice if admit else lambda text: None
    known = model._require_model().schema
    with open_stream(table, options=options, schema=known, on_notice=notice) as stream:
        return concat_rows(list(stream))


def takes_numbers(model: Model) -> bool:
    """Return whether every feature of the model is a number, one column each."""
    schema = model._require_model().schema
    return (
        schema.clock is None
        and all(column.kind == "number" for column in schema.columns if column.role == "feature")
        and len(schema.layout) == len(schema.columns) - len(schema.targets)
    )


def rows_from_numbers(x: FloatArray) -> Rows:
    """Wrap an array of numeric features (n, d) as rows with missing targets."""
    return Rows(x, np.full((len(x), 1), np.nan), np.arange(1, len(x) + 1))


def learn_rows(
    model: Model, rows: Rows, y: FloatArray, weight: FloatArray | None, again: bool = False
) -> None:
    """Learn encoded rows in blocks of `BLOCK_ROWS`.

    An interrupt, or a prediction in another thread, waits for at most one block.

    Parameters
    ----------
    model
        The model to update.
    rows
        Encoded features.
    y
        Targets (n, T); a class is given by its index.
    weight
        Weight of each row; None weights every row 1.
    again
        Whether this is a further pass over rows learned before.

    Raises
    ------
    DataError
        If a row cannot be learned; the blocks before it are learned.

    Examples
    --------
    >>> import numpy as np
    >>> from kbnn.api.arrays import learn_rows, new_model, rows_from_numbers
    >>> from kbnn.targets.registry import declare_numeric_target
    >>> model = new_model(["a"], ["y"], declare_numeric_target(), {"layers": 5})
    >>> x = np.linspace(0.0, 1.0, 100)[:, None]
    >>> learn_rows(model, rows_from_numbers(x), 2.0 * x, None)
    >>> model.rows
    100
    """
    with model._learning_lock:
        known = model._require_model()
        rows = rows._replace(y=y, number=known.rows_seen + 1 + np.arange(len(y)), weight=weight)
        for start in range(0, len(y), BLOCK_ROWS):
            known.learn(slice_rows(rows, start, start + BLOCK_ROWS), again)


def predict_rows(model: Model, rows: Callable[[], Rows]) -> Forecasts:
    """Predict rows while the model is locked against learning.

    Parameters
    ----------
    model
        The model to predict with.
    rows
        Function that encodes the rows; called under the lock, so that rows and model have
        the same schema.

    Returns
    -------
    Forecasts
        One forecast per row.

    Examples
    --------
    >>> import numpy as np
    >>> from kbnn.api.arrays import learn_rows, new_model, predict_rows, rows_from_numbers
    >>> from kbnn.targets.registry import declare_numeric_target
    >>> model = new_model(["a"], ["y"], declare_numeric_target(), {"layers": 5})
    >>> x = np.linspace(0.0, 1.0, 100)[:, None]
    >>> learn_rows(model, rows_from_numbers(x), 2.0 * x, None)
    >>> predict_rows(model, lambda: rows_from_numbers(x)).mean.shape
    (100,)
    """
    with model._locked_model() as known:
        return Forecasts(known.task, known.open_predictor()(rows()), 0.9, False)


def learn_block(model: Model, table: Any, y: Sequence[Any]) -> bool:
    """Learn the rows of a DataFrame as one block, if all its columns are known numbers.

    Parameters
    ----------
    model
        The model to update.
    table
        A pandas DataFrame of features.
    y
        The target of each row.

    Returns
    -------
    bool
        False if a column is unknown, is not numeric or has a value out of range; then nothing
        is learned, and the caller learns row by row.

    Examples
    --------
    >>> import kbnn
    >>> import pandas as pd
    >>> from kbnn.api.arrays import learn_block
    >>> model = kbnn.Model("y", layers=5)
    >>> model.learn_one({"a": 1.0}, 2.0)
    >>> learn_block(model, pd.DataFrame({"a": [2.0, 3.0]}), [4.0, 6.0])
    True
    >>> learn_block(model, pd.DataFrame({"new": [2.0, 3.0]}), [4.0, 6.0])
    False
    """
    with model._learning_lock, model._locked_model() as known:
        rows = _build_rows(model, known, table, y)
        if rows is None:
            return False
        known.learn(rows)
        return True


def _build_rows(model: Model, known: StreamModel, table: Any, y: Sequence[Any]) -> Rows | None:
    """Build rows from a DataFrame; None where `learn_one` must handle them row by row."""
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
    if any(exceeds_limits(x, MIN_ABS_VALUE, MAX_ABS_VALUE)):
        return None
    targets = np.concatenate([reader.encode_targets(value) for value in y])
    number = known.rows_seen + 1 + np.arange(len(x))
    return Rows(x, targets, number, schema=reader.schema)
