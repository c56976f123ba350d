"""What there is to say to a caller in Python: logged, and a warning where data are left out.

`kbnn.Model`: learn, predict, evaluate and save, from whatever holds rows.

A model in one line for the console, and as a small table for a notebook.

`kbnn.step`: one step of a stream that somebody else keeps, as bytes in and bytes out.

A keyed stream engine (Spark, Flink, Bytewax) sends rows to their key, keeps what it is told to keep
there, and brings it back with the next rows. A step is all that it needs: nothing is left lying
between two of them.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from html import escape
from threading import RLock
from typing import Any, Final, Self, Unpack

import numpy as np

from kbnn.api.forecasts import Figures, Forecasts
from kbnn.data.dataset import open_stream
from kbnn.data.row_encoder import RowEncoder, check_row, infer_row_schema, split_targets
from kbnn.errors import ArgumentError, UsageError
from kbnn.model import file as modelfile
from kbnn.model import model as inner
from kbnn.model.model import OnlineModel
from kbnn.model.serialize import to_state
from kbnn.targets.base import make_empty_forecast
from kbnn.targets.prediction import join_forecasts
from kbnn.wording import clean_text, format_rows
from kbnn.workflows import evaluating, keyed, predicting
from kbnn.workflows import forecast as forecast_module
from kbnn.workflows.checkpoint import Checkpoint
from kbnn.workflows.options import (
    ColumnNames,
    LearnKeywords,
    ModelKeywords,
    ReadKeywords,
    TrainKeywords,
    build_train_options,
    check_network_size,
    list_names,
)
from kbnn.workflows.predicting import collect_forecasts
from kbnn.workflows.run_results import list_prequential_figures
from kbnn.workflows.signals import Interrupted, InterruptGuard
from kbnn.workflows.training import Listener, Training

_log = logging.getLogger("kbnn")
_PACKAGE: Final = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


def log_notice(text: str) -> None:
    """Log a notice; one that says what is ignored is a warning at the caller's line too."""
    _log.info(text)
    if " ignored" in text:
        warnings.warn(text, UserWarning, stacklevel=_caller_stack_level())


def _caller_stack_level() -> int:
    """The stack level, as `announce` counts, of the first frame outside this package."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        level, frame = level + 1, frame.f_back
    return level


class PredictKeywords(ReadKeywords, total=False):
    """How rows are predicted."""

    interval: float
    quantiles: Sequence[float]
    decompose: bool


class Model:
    """An online Bayesian neural network that learns rows as they come.

    A new model knows its target and its network, and finds out what the columns are when it meets
    the first rows:

    >>> import kbnn
    >>> model = kbnn.Model(target="price", layers=20)
    >>> for size in range(1, 101):
    ...     model.learn_one({"size": size}, 2.0 * size)
    >>> model
    <kbnn.Model: regression of price from size, 100 rows learned>

    The options are those of `kbnn train`, by the same names. `data` is a table (pandas, polars,
    pyarrow, duckdb, or anything else with `__arrow_c_stream__`), a dict of arrays, a list of dicts,
    one a row, a numpy array with `columns`, a path, a glob, or an iterator of those. A pandas index
    of times is a column. What there is to say is logged by `logging.getLogger("kbnn")`, and a
    UserWarning says which columns are ignored.

    A model may be used by any number of threads. Learning is serialised: `learn` and `learn_one` of
    other threads wait until it is done. Every other call sees the model before or after a row that
    is learned meanwhile (before or after a block of rows of `learn`), never in between. If
    `learn_one` raises anything, even KeyboardInterrupt, the model is as before or as after the row.
    """

    def __init__(self, target: ColumnNames | None = None, **options: Unpack[ModelKeywords]) -> None:
        self._target = list_names(target)
        self._keywords: ModelKeywords = options
        self._model: inner.OnlineModel | None = None
        self._reader: RowEncoder | None = None
        self._learning_lock = RLock()
        """Held while rows are learned, between two blocks too; then the model's own lock."""
        build_train_options(
            (), self._target, **options
        ).choices.make_settings()  # refuse at once what makes no sense

    # Tables.

    def learn(self, data: Any, **options: Unpack[LearnKeywords]) -> None:
        """Learn every row, in order; each is predicted first, which is what `record` tells of.

        Where a row cannot be read, the rows before it have been learned (`on_error="skip"` leaves
        it out).
        """
        words: Any = {**self._keywords, **options}
        chosen = build_train_options(data, self._target or None, **words)
        with self._learning_lock:
            training = Training(chosen, _LoggingListener(), self._model)
            try:
                _run_training(training)
            finally:
                if training.ready:
                    self._model = training.model

    def predict(self, data: Any, **options: Unpack[PredictKeywords]) -> Forecasts:
        """Predict every row: one forecast for each, in order; nothing is learned.

        interval     the probability that `lower` and `upper` enclose, 0.9
        quantiles    shares whose quantiles are added, such as [0.05, 0.95]
        decompose    whether the table has `function_sd` and `noise_sd` too
        """
        words: dict[str, Any] = dict(options)
        interval, decompose = words.pop("interval", 0.9), words.pop("decompose", False)
        quantiles = words.pop("quantiles", ())
        how = predicting.check_predict_on_error(words.pop("on_error", "skip"))
        with (
            self._locked_model() as model,
            predicting.open_inference_stream(
                model, data, notice=log_notice, on_error=how, use_target=False, **words
            ) as (stream, _),
        ):
            made = collect_forecasts(model, stream, log_notice)
            return Forecasts(model.task, made, interval, decompose, quantiles)

    def forecast(
        self, horizon: int, data: Any = None, *, interval: float = 0.9, decompose: bool = False
    ) -> Forecasts:
        """Forecast steps ahead of the last row learned, each looking back to the one before.

        data    rows that tell what is known of the steps: times, and inputs other than lags

        The model must have lags of its target; a series has them. `when` says the time of a step.
        """
        with self._locked_model(alone=True) as model:
            if data is None:
                made = forecast_module.forecast_horizon(model, horizon)
            else:
                with predicting.open_inference_stream(
                    model, data, notice=log_notice, on_error="stop", use_target=False
                ) as (stream, _):
                    made = forecast_module.forecast_horizon(model, horizon, stream, log_notice)
            return Forecasts(model.task, made.forecast, interval, decompose, when=made.when)

    def evaluate(
        self, data: Any, *, learn: bool = False, **options: Unpack[ReadKeywords]
    ) -> Figures:
        """Score the model on rows: the figures of `kbnn evaluate --json`.

        The model stays as it is. With `learn` a copy of it learns each row after predicting it, as
        in training.
        """
        words: dict[str, Any] = dict(options)
        how = predicting.check_evaluate_on_error(words.pop("on_error", "stop"))
        with self._locked_model() as own:
            model = keyed.copy_model(own) if learn else own
            with predicting.open_inference_stream(
                model, data, notice=log_notice, on_error=how, learn=learn, **words
            ) as (stream, _):
                made = evaluating.evaluate(model, stream, learn=learn, notice=log_notice)
            return Figures(made.to_json(), made.list_verdicts())

    # One row.

    def learn_one(self, x: Mapping[str, Any], y: Any, weight: float = 1.0) -> None:
        """Learn one row: its features by name, and its target (for several a dict by name).

        A feature that is not there, None or NaN is missing; one that is new becomes a column.
        """
        if type(x) is not dict:
            check_row(x)
        with self._learning_lock:
            if self._model is None:
                self._learn_first(x, y, weight)
                return
            model = self._require_single_model()
            with model.lock:
                model.recover_transaction()
                model.learn(self._row_reader().encode_row(x, y, weight, model.met + 1))

    def predict_one(self, x: Mapping[str, Any]) -> Any:
        """Predict one row: a `Number` (mean, sd, lower, upper, ...), a dict of them where there are
        several targets, or a `Label` (label, probability).
        """
        if type(x) is not dict:
            check_row(x)
        model = self._require_single_model()
        with model.lock:
            model.recover_transaction()
            return model.task.single_prediction(
                model.open_predictor()(self._row_reader().encode_query(x))
            )

    def _learn_first(self, x: Mapping[str, Any], y: Any, weight: float) -> None:
        """Create the model that a first row calls for, and learn the row."""
        model = self._create_from_row(x, y)
        try:
            model.learn(RowEncoder(model.schema, log_notice).encode_row(x, y, weight, 1))
        finally:
            if model.met:
                self._model = model

    def _create_from_row(self, x: Mapping[str, Any], y: Any) -> inner.OnlineModel:
        """The model that a first row calls for."""
        names = self._target or ("y",)
        if len(names) == 1:
            targets = {names[0]: y}
        else:
            targets = (
                dict(y)
                if isinstance(y, Mapping)
                else dict(zip(names, split_targets(names, y), strict=True))
            )
        for name in names:
            if name in x:
                raise UsageError(f"column '{name}' cannot be both the target and a feature")
        chosen = build_train_options((), names, **self._keywords)
        schema = infer_row_schema(x, targets, chosen.read.column_options, log_notice)
        check_network_size(chosen.choices.make_settings(), schema)
        return inner.OnlineModel.create(chosen.choices.make_settings(), schema)

    def _row_reader(self) -> RowEncoder:
        """What reads single rows by the schema as it is now; the model's lock must be held."""
        schema = self._require_model().schema
        if self._reader is None or self._reader.schema is not schema:
            self._reader = RowEncoder(schema, log_notice)
        return self._reader

    # The model.

    def _require_model(self) -> inner.OnlineModel:
        if self._model is None:
            raise UsageError("the model has learned nothing yet: learn first")
        return self._model

    def _require_single_model(self) -> inner.OnlineModel:
        """The model, which is no fleet."""
        model = self._require_model()
        if model.key:
            raise UsageError("a fleet has a model for every key: this is asked of one of them")
        return model

    @contextmanager
    def _locked_model(self, *, alone: bool = False) -> Iterator[inner.OnlineModel]:
        """The model, which learns nothing meanwhile; `alone`: it must be no fleet."""
        model = self._require_single_model() if alone else self._require_model()
        with model.lock:
            model.recover_transaction()
            yield model

    @property
    def rows(self) -> int:
        """Rows learned, in all passes."""
        if self._model is None:
            return 0
        with self._locked_model() as model:
            return model.rows

    @property
    def target(self) -> list[str]:
        """What it predicts."""
        return list(self._target) if self._model is None else self._model.schema.targets

    @property
    def features(self) -> list[str]:
        """What it learns from."""
        return [] if self._model is None else self._model.schema.features

    @property
    def classes(self) -> list[str]:
        """The classes it knows, none if it predicts numbers."""
        return [] if self._model is None else list(self._model.schema.classes)

    @property
    def task(self) -> str | None:
        """`regression`, `positive`, `count`, `amount` or `classification`; None before any row."""
        return None if self._model is None else self._model.task.name

    def record(self) -> Figures:
        """The figures of every row learned so far, each predicted before it was learned."""
        with self._locked_model() as model:
            scores = zip(model.task.targets, model.card.scores, strict=True)
            verdicts = [(name, model.task.build_verdict(score)) for name, score in scores]
            return Figures(list_prequential_figures(model), verdicts)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a model file, which the command line reads too."""
        with self._locked_model(alone=True) as model:
            state = to_state(model)
        with Checkpoint(_check_path(path)) as checkpoint:
            checkpoint.save_state(*state)

    def to_bytes(self) -> bytes:
        """What a model file holds."""
        with self._locked_model(alone=True) as model:
            state = to_state(model)
        return modelfile.to_bytes(*state)

    @classmethod
    def from_bytes(cls, content: bytes) -> Self:
        """The model that `to_bytes` made."""
        return cls._from_inner(modelfile.load_bytes(content))

    @classmethod
    def _from_inner(cls, model: inner.OnlineModel) -> Self:
        made = cls(model.schema.targets)
        made._model = model
        return made

    def __getstate__(self) -> dict[str, Any]:
        learned = None if self._model is None else self.to_bytes()
        return {"target": self._target, "options": dict(self._keywords), "learned": learned}

    def __setstate__(self, state: dict[str, Any]) -> None:
        Model.__init__(self, state["target"], **state["options"])
        if state["learned"] is not None:
            self._model = modelfile.load_bytes(state["learned"])

    def __repr__(self) -> str:
        return self._format_with(format_model_text)

    def _repr_html_(self) -> str:
        return self._format_with(format_model_html)

    def _format_with(self, show: Callable[[inner.OnlineModel | None, Sequence[str]], str]) -> str:
        if self._model is None:
            return show(None, self._target)
        with self._locked_model() as model:
            return show(model, self._target)


class _LoggingListener(Listener):
    """Logs what there is to say."""

    def on_notice(self, text: str) -> None:
        log_notice(text)


def _run_training(training: Training) -> None:
    """Train; a signal is heard between two blocks of rows, so that no row is half learned."""
    caught = None
    with InterruptGuard() as interruption:
        try:
            training.run(interruption)
        except Interrupted as interrupted:
            caught = interrupted.number
    if caught is not None:
        signal.raise_signal(caught)


def train(
    data: Any,
    target: ColumnNames | None = None,
    *,
    model: str | os.PathLike[str] | None = None,
    **options: Unpack[TrainKeywords],
) -> Model:
    """Learn from data: what `kbnn train` does, with its options by the same names.

    data      a table, a dict of arrays, a numpy array (with `columns`), a path, a glob, or an
              iterator or list of those
    target    what to predict; the last column if not said
    model     a file that is created or gone on with, saved on the way; in memory if not said;
              with `key` a folder, which holds a model for every key
    """
    path = None if model is None else _check_path(model)
    training = Training(build_train_options(data, target, path, **options), _LoggingListener())
    _run_training(training)
    return (
        load(path) if path is not None and training.model.key else Model._from_inner(training.model)
    )


def load(path: str | os.PathLike[str]) -> Model:
    """The model in a file, or the fleet in a folder, whoever wrote it."""
    return Model._from_inner(keyed.load(_check_path(path)))


def _check_path(path: str | os.PathLike[str]) -> str:
    if not isinstance(path, str | os.PathLike):
        raise ArgumentError(f"a path is a text or a Path, not {path!r}")
    return os.fspath(path)


def _format_names(names: Sequence[str], most: int = 3) -> str:
    if len(names) > most:
        return f"{len(names):,} columns"
    return ", ".join(map(clean_text, names)) or "nothing"


def format_model_text(model: OnlineModel | None, target: Sequence[str]) -> str:
    """`<kbnn.Model: regression of price from 13 columns, 4,000 rows learned>`."""
    if model is None:
        return f"<kbnn.Model of {_format_names(target) if target else 'y'}: nothing learned yet>"
    schema = model.schema
    what = f"{model.task.description} from {_format_names(schema.features)}"
    return f"<kbnn.Model: {what}, {format_rows(model.rows)} learned>"


def format_model_html(model: OnlineModel | None, target: Sequence[str]) -> str:
    """The same with the figures of what it forecast."""
    title = f"<p><b>{escape(format_model_text(model, target).strip('<>'))}</b></p>"
    if model is None or not any(score.rows for score in model.card.scores):
        return title
    body = ""
    for name, score in zip(model.task.targets, model.card.scores, strict=True):
        table = model.task.build_table(score.metric_values(), name, brief=True)
        body += f"<tr><th>{escape(clean_text(name))}</th><th></th><th>{escape(table.baseline)}</th></tr>"
        for row in table.rows:
            cells = (row.label, row.value, row.constant or "")
            body += f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in cells)}</tr>"
    return f"{title}<p>Each row was predicted before it was learned:</p><table>{body}</table>"


class StepKeywords(ModelKeywords, ReadKeywords, total=False):
    """What can be said about a step: what a model is, and how rows are read."""


def step(
    state: bytes | None,
    rows: Any,
    target: str | Sequence[str] | None = None,
    **options: Unpack[StepKeywords],
) -> tuple[bytes, Forecasts]:
    """Learn rows: what a model file would hold afterwards, and what was said of each row before.

    state      what the last step gave; None before the first
    rows       a table, a dict of arrays, or a list of dicts, one a row
    target, options    as for `kbnn.train`; of a new model (later steps need only say how to read)

    It is pure: the same state and rows give the same bytes, and a step that fails leaves nothing.

    >>> import kbnn
    >>> state, said = kbnn.step(None, [{"x": 1.0, "y": 2.5}, {"x": 2.0, "y": 3.5}], "y")
    >>> state, said = kbnn.step(state, [{"x": 3.0, "y": 4.5}])
    >>> len(said), kbnn.Model.from_bytes(state).rows
    (1, 3)
    """
    model = None if state is None else modelfile.load_bytes(state, "the state")
    for word in options:
        if word not in StepKeywords.__annotations__:
            raise UsageError(f"a step has no option {word}")
    chosen = build_train_options(rows, target, **options)
    chosen.check()
    with open_stream(
        chosen.sources,
        options=chosen.read,
        schema=None if model is None else model.schema,
        on_notice=log_notice,
    ) as stream:
        if model is None:
            settings = chosen.choices.make_settings()
            check_network_size(settings, stream.schema)
            model = OnlineModel.create(settings, stream.schema.copy())
        said = [make_empty_forecast(0, model.task.numbers)]
        for block in stream:
            number = model.met + 1 + np.arange(block.count)
            said.append(model.learn(block._replace(number=number)))
    return modelfile.to_bytes(*to_state(model)), Forecasts(model.task, join_forecasts(said))
