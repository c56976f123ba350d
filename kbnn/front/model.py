"""`kbnn.Model`: learn, predict, evaluate and save, from whatever holds rows."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import RLock
from typing import Any, Self, Unpack

from kbnn.errors import ArgumentError, UsageError
from kbnn.front.figures import Figures
from kbnn.front.forecasts import Forecasts
from kbnn.front.notices import log_notice
from kbnn.front.shown import format_model_html, format_model_text
from kbnn.model import file as modelfile
from kbnn.model import model as inner
from kbnn.model.stored import to_state
from kbnn.run import evaluating, fleets, onward, standing
from kbnn.run.checkpoint import Checkpoint
from kbnn.run.choices import check_network_size
from kbnn.run.interruption import Interrupted, InterruptGuard
from kbnn.run.outcome import list_prequential_figures
from kbnn.run.predicting import collect_forecasts
from kbnn.run.training import Listener, Training
from kbnn.run.trainoptions import (
    ColumnNames,
    LearnKeywords,
    ModelKeywords,
    ReadKeywords,
    TrainKeywords,
    build_train_options,
    list_names,
)
from kbnn.stream.firstrow import infer_row_schema
from kbnn.stream.onerow import RowEncoder, check_row, split_targets


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
        how = standing.check_predict_on_error(words.pop("on_error", "skip"))
        with (
            self._locked_model() as model,
            standing.open_inference_stream(
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
                made = onward.forecast_horizon(model, horizon)
            else:
                with standing.open_inference_stream(
                    model, data, notice=log_notice, on_error="stop", use_target=False
                ) as (stream, _):
                    made = onward.forecast_horizon(model, horizon, stream, log_notice)
            return Forecasts(model.task, made.forecast, interval, decompose, when=made.when)

    def evaluate(
        self, data: Any, *, learn: bool = False, **options: Unpack[ReadKeywords]
    ) -> Figures:
        """Score the model on rows: the figures of `kbnn evaluate --json`.

        The model stays as it is. With `learn` a copy of it learns each row after predicting it, as
        in training.
        """
        words: dict[str, Any] = dict(options)
        how = standing.check_evaluate_on_error(words.pop("on_error", "stop"))
        with self._locked_model() as own:
            model = fleets.copy_model(own) if learn else own
            with standing.open_inference_stream(
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
    return Model._from_inner(fleets.load(_check_path(path)))


def _check_path(path: str | os.PathLike[str]) -> str:
    if not isinstance(path, str | os.PathLike):
        raise ArgumentError(f"a path is a text or a Path, not {path!r}")
    return os.fspath(path)
