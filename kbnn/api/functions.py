"""`kbnn.train`, `kbnn.load` and `kbnn.step`: the functions of the Python interface.

`step` learns with bytes in and bytes out, for stream engines that keep the state themselves (Spark,
Flink, Bytewax).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Unpack

import numpy as np

from kbnn.api.forecasts import Forecasts
from kbnn.api.keywords import StepKeywords, TrainKeywords
from kbnn.api.notices import LoggingListener, log_notice, run_training
from kbnn.api.online_model import Model, check_path
from kbnn.data.dataset import open_stream
from kbnn.errors import UsageError
from kbnn.model import file as modelfile
from kbnn.model.serialize import to_state
from kbnn.option_table import ColumnNames
from kbnn.targets.base import make_empty_forecast
from kbnn.targets.prediction import join_forecasts
from kbnn.workflows import keyed
from kbnn.workflows.options import build_train_options
from kbnn.workflows.predicting import predict_rows
from kbnn.workflows.training import Training, create_model


def train(
    data: Any,
    target: ColumnNames | None = None,
    *,
    model: str | os.PathLike[str] | None = None,
    **options: Unpack[TrainKeywords],
) -> Model:
    """Train a model, as `kbnn train` does, with its options by the same names.

    Parameters
    ----------
    data
        Rows with features and targets: a table, a pandas Series with an index of times, a dict of
        arrays, a numpy array (with `columns`), a path, a glob, or an iterator or list of those.
    target
        Column or columns to predict; the last column by default.
    model
        File to create or continue, saved during training; with `key` a folder, which holds
        one model per key. By default the model stays in memory.
    **options
        Options of `kbnn train`, such as `layers`, `epochs` or `test_split`.

    Returns
    -------
    Model
        The trained model.

    Raises
    ------
    UsageError
        If an option is unknown or has an invalid value.
    DataError
        If the data cannot be read.
    ModelError
        If the model file cannot be read or written.

    Examples
    --------
    >>> import kbnn
    >>> kbnn.train({"x": range(100), "y": range(100)}, "y", layers=5)
    <kbnn.Model: regression of y from x, 100 rows learned>
    """
    path = None if model is None else check_path(model)
    training = Training(build_train_options(data, target, path, **options), LoggingListener())
    run_training(training)
    return (
        load(path) if path is not None and training.model.key else Model._from_inner(training.model)
    )


def load(path: str | os.PathLike[str]) -> Model:
    """Load the model of a file, or the fleet of a folder.

    Parameters
    ----------
    path
        Path that `Model.save`, `kbnn.train` or the command line wrote.

    Returns
    -------
    Model
        The model.

    Raises
    ------
    ModelError
        If the file does not exist, is damaged, or is of a newer format.

    Examples
    --------
    >>> import kbnn, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = f"{folder}/model.npz"
    ...     _ = kbnn.train({"x": range(100), "y": range(100)}, "y", model=path, layers=5)
    ...     kbnn.load(path)
    <kbnn.Model: regression of y from x, 100 rows learned>
    """
    return Model._from_inner(keyed.load(check_path(path)))


def step(
    state: bytes | None,
    rows: Any,
    target: str | Sequence[str] | None = None,
    **options: Unpack[StepKeywords],
) -> tuple[bytes, Forecasts]:
    """Learn rows: a state in, a new state and the forecasts made before learning out.

    The function is pure: the same state and rows give the same bytes, and if it raises, the caller
    still holds the old state.

    Parameters
    ----------
    state
        The state that the last step returned (the content of a model file); None for a new model.
    rows
        A table, a dict of arrays, or a list of dicts, one per row.
    target
        Column or columns to predict; needed only for a new model.
    **options
        Options of `kbnn.Model` for a new model, and how rows are read.

    Returns
    -------
    tuple of bytes and Forecasts
        The new state, and the forecast of each row before it was learned.

    Raises
    ------
    UsageError
        If an option is unknown or has an invalid value.
    DataError
        If a row cannot be read or learned.
    ModelError
        If the state is damaged or of a newer format.

    Examples
    --------
    >>> import kbnn
    >>> state, forecasts = kbnn.step(None, [{"x": 1.0, "y": 2.5}, {"x": 2.0, "y": 3.5}], "y")
    >>> state, forecasts = kbnn.step(state, [{"x": 3.0, "y": 4.5}])
    >>> len(forecasts), kbnn.Model.from_bytes(state).rows
    (1, 3)
    """
    model = None if state is None else modelfile.load_bytes(state, "the state")
    for word in options:
        if word not in StepKeywords.__annotations__:
            raise UsageError(f"a step has no option {word}")
    chosen = build_train_options(rows, target, **options)
    with open_stream(
        chosen.sources,
        options=chosen.read,
        schema=None if model is None else model.schema,
        on_notice=log_notice,
    ) as stream:
        if model is None:
            model = create_model(chosen.choices.make_settings(), stream.schema.copy())
        first = make_empty_forecast(0, model.task.numbers)
        numbered = (
            block._replace(number=model.rows_seen + 1 + np.arange(block.count)) for block in stream
        )
        made = [one.forecast for one in predict_rows(model, numbered, log_notice, learn=True)]
    return modelfile.to_bytes(*to_state(model)), Forecasts(
        model.task, join_forecasts([first, *made])
    )
