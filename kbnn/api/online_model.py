"""`kbnn.Model`: learns, predicts and evaluates tables, files and single rows.

Notices are logged; a notice about ignored data is also a warning.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from html import escape
from threading import RLock
from typing import Any, Final, Self, Unpack

from kbnn.api.forecasts import Figures, Forecasts
from kbnn.api.keywords import LearnKeywords, ModelKeywords, PredictKeywords, ReadKeywords
from kbnn.api.notices import LoggingListener, log_notice, run_training
from kbnn.array_types import FloatArray
from kbnn.data.batch import Rows
from kbnn.data.row_encoder import RowEncoder, check_row, infer_row_schema, split_targets
from kbnn.errors import ArgumentError, UsageError
from kbnn.metrics.decision_figures import DecisionOptions
from kbnn.metrics.sections import describe_target
from kbnn.metrics.verdicts import build_metric_table, find_metrics
from kbnn.model import file as modelfile
from kbnn.model.candidates import rank_candidates
from kbnn.model.explain import Explanation, Importance, RowExplanation, compute_importance
from kbnn.model.function_posterior import QueryRanking
from kbnn.model.interface import StreamModel
from kbnn.model.model import OnlineModel
from kbnn.model.serialize import to_state
from kbnn.option_table import ColumnNames, parse_keywords, parse_names
from kbnn.output.fields import make_single_prediction
from kbnn.wording import clean_text, format_rows
from kbnn.workflows import evaluating, explaining, inspecting, keyed, predicting
from kbnn.workflows import forecast as forecast_module
from kbnn.workflows.checkpoint import Checkpoint
from kbnn.workflows.options import build_train_options
from kbnn.workflows.predicting import collect_forecasts
from kbnn.workflows.run_results import list_prequential_figures
from kbnn.workflows.training import Training, create_model

_SHOWN_OPTIONS: Final = PredictKeywords.__annotations__.keys() - ReadKeywords.__annotations__.keys()


class Model:
    """An online Bayesian neural network that learns row by row.

    The column types are inferred from the first rows. `data` is a table (pandas, polars, pyarrow,
    duckdb, or anything else with `__arrow_c_stream__`), a dict of arrays, a list of dicts, one per
    row, a numpy array with `columns`, a path, a glob, or an iterator of those. A pandas index of
    times or periods is a column, and a Series is a table with one column besides its index (`y` if
    it has no name). Notices are logged to `logging.getLogger("kbnn")`; ignored columns also raise
    a UserWarning.

    Any number of threads may share a model. Learning is serialised: `learn` and `learn_one` of
    other threads wait. Every other call sees the model before or after a row that is being learned
    (before or after a block of rows of `learn`), never in between. If `learn_one` raises, even a
    KeyboardInterrupt, the model is as before or as after the row.

    Parameters
    ----------
    target
        Column or columns to predict; `learn` uses the last column by default.
    **options
        Options of `kbnn train` by the same names, such as `layers`, `task` or `seed`.

    Raises
    ------
    UsageError
        If an option is unknown or has an invalid value.

    Examples
    --------
    >>> import kbnn
    >>> model = kbnn.Model(target="price", layers=20)
    >>> for size in range(1, 101):
    ...     model.learn_one({"size": size}, 2.0 * size)
    >>> model
    <kbnn.Model: regression of price from size, 100 rows learned>
    """

    def __init__(self, target: ColumnNames | None = None, **options: Unpack[ModelKeywords]) -> None:
        self._target = () if target is None else parse_names(target)
        self._keywords: ModelKeywords = options
        self._model: StreamModel | None = None
        self._reader: RowEncoder | None = None
        self._learning_lock = RLock()
        """Held during a whole `learn`; always taken before the model's own lock."""
        build_train_options((), self._target, **options)  # report invalid options at once

    # Tables.

    def learn(self, data: Any, **options: Unpack[LearnKeywords]) -> None:
        """Learn every row, in order; each row is predicted before it is learned (see `record`).

        Parameters
        ----------
        data
            Rows with features and targets, see `Model`.
        **options
            How rows are read and learned, such as `epochs`, `shuffle` or `on_error`.

        Raises
        ------
        DataError
            If a row cannot be read; the rows before it are learned. `on_error="skip"` skips it.
        UsageError
            If an option is unknown or has an invalid value.

        Examples
        --------
        >>> import kbnn
        >>> model = kbnn.Model("y", layers=5)
        >>> model.learn({"x": [1.0, 2.0, 3.0], "y": [2.0, 4.0, 6.0]})
        >>> model.rows
        3
        """
        words: Any = {**self._keywords, **options}
        chosen = build_train_options(data, self._target or None, **words)
        with self._learning_lock:
            training = Training(chosen, LoggingListener(), self._model)
            try:
                run_training(training)
            finally:
                if training.ready:
                    self._model = training.model

    def predict(self, data: Any, **options: Unpack[PredictKeywords]) -> Forecasts:
        """Predict every row, in order; nothing is learned.

        Parameters
        ----------
        data
            Rows with the model's features, see `Model`.
        **options
            `interval`: probability between `lower` and `upper`, 0.9 by default.
            `quantiles`: levels of quantile columns to add, such as [0.05, 0.95].
            `decompose`: whether to add the columns `function_sd` and `noise_sd`.
            `surprise`: whether to add `surprise` and `pit` of the targets in `data`.
            Others say how rows are read, such as `na` or `on_error`.

        Returns
        -------
        Forecasts
            One forecast per row. A row that cannot be read has missing values
            (`on_error="stop"` raises instead).

        Raises
        ------
        UsageError
            If nothing has been learned, or an option has an invalid value.
        DataError
            If the data cannot be read, or lack a column.

        Examples
        --------
        >>> import kbnn
        >>> model = kbnn.Model("y", layers=5)
        >>> model.learn({"x": range(100), "y": range(100)})
        >>> forecasts = model.predict({"x": [1, 50]})
        >>> forecasts.mean.shape, bool((forecasts["lower"] < forecasts["upper"]).all())
        ((2,), True)
        """
        words: dict[str, Any] = dict(options)
        surprise = bool(words.pop("surprise", False))
        shown = {name: words.pop(name) for name in _SHOWN_OPTIONS & words.keys()}
        words = parse_keywords("predict", words, ReadKeywords.__annotations__)
        with (
            self._locked_model() as model,
            predicting.open_inference_stream(
                model, data, notice=log_notice, use_target=False, surprise=surprise, **words
            ) as (stream, _),
        ):
            made, anomalies = collect_forecasts(model, stream, log_notice, surprise)
            return Forecasts(model.task, made, **shown, anomalies=anomalies)

    def explain(self, data: Any, **options: Unpack[ReadKeywords]) -> Explanation:
        """Compute what each column contributes to the predictions; nothing is learned.

        The contributions are Shapley values: a column that is not known is integrated out, given
        those that are. They are exact with up to 10 columns; with more they are sampled until their
        standard error (root mean square over the columns) is at most 1 % of the sum of their sizes,
        or 64 pairs of orders have been used; `errors` has the standard error of each.

        Parameters
        ----------
        data
            Rows with the model's features, see `Model`.
        **options
            How rows are read, such as `na` or `on_error`.

        Returns
        -------
        Explanation
            `columns`, `quantities` and, for every row and quantity, `value`, `base` and
            `contributions`, which add up to `value - base`. A row that cannot be read has NaN.

        Raises
        ------
        UsageError
            If nothing has been learned, or an option has an invalid value.
        DataError
            If the data cannot be read, or lack a column.

        Examples
        --------
        >>> import kbnn
        >>> model = kbnn.Model("y", layers=5)
        >>> model.learn({"x": range(100), "z": [0, 1] * 50, "y": range(100)})
        >>> found = model.explain({"x": [1, 90], "z": [0, 0]})
        >>> found.columns, bool(found.select("mean")[1, 0] > 0)
        (['x', 'z'], True)
        """
        words = parse_keywords("predict", options, ReadKeywords.__annotations__)
        with (
            self._locked_model() as model,
            predicting.open_inference_stream(
                model, data, notice=log_notice, use_target=False, **words
            ) as (stream, _),
        ):
            return explaining.explain_batches(model, stream, log_notice)

    def sample(
        self, data: Any, count: int, *, seed: int = 0, **options: Unpack[ReadKeywords]
    ) -> FloatArray:
        """Draw functions from the posterior and evaluate each at every row.

        A draw is one function for all rows, so that it can be maximised (Thompson sampling) or
        summed over rows. The noise of the target is not part of it.

        Parameters
        ----------
        data
            Rows with the model's features, see `Model`.
        count
            Number of functions.
        seed
            Random seed; the same seed and model give the same functions.
        **options
            How rows are read, such as `na` or `on_error`.

        Returns
        -------
        ndarray
            (count, rows); (count, rows, targets) if there are several targets; the probabilities
            of classes (count, rows, classes).

        Raises
        ------
        UsageError
            If nothing has been learned, the model is a fleet or has lags, or an option is invalid.

        Examples
        --------
        >>> import kbnn
        >>> model = kbnn.Model("y", layers=5)
        >>> model.learn({"x": range(100), "y": range(100)})
        >>> model.sample({"x": [1, 50, 200]}, 4).shape
        (4, 3)
        """
        chosen = parse_keywords("predict", {"samples": count, "seed": seed}, ("samples", "seed"))
        with self._locked_rows(data, "sample", options) as (model, stream):
            drawn = explaining.sample_batches(model, stream, chosen["samples"], chosen["seed"])
            several = model.task.labels or drawn.shape[2] > 1
            return drawn if several else drawn[:, :, 0]

    def ask(self, data: Any, count: int, **options: Unpack[ReadKeywords]) -> QueryRanking:
        """Choose the rows whose labels would reduce the uncertainty about all rows most.

        Parameters
        ----------
        data
            Rows with the model's features, see `Model`; targets are ignored.
        count
            Number of rows to choose.
        **options
            How rows are read, such as `na` or `on_error`.

        Returns
        -------
        QueryRanking
            `rows`: positions from 0, best first, and `remaining`: the share of the function's
            variance, summed over the rows, that is expected to be left after each label.

        Raises
        ------
        UsageError
            If nothing has been learned, the model is a fleet or has lags, or an option is invalid.

        Examples
        --------
        >>> import kbnn
        >>> model = kbnn.Model("y", layers=5)
        >>> model.learn({"x": range(100), "y": range(100)})
        >>> len(model.ask({"x": range(0, 400, 10)}, 3).rows)
        3
        """
        chosen = parse_keywords("predict", {"ask": count}, ("ask",))
        with self._locked_rows(data, "ask", options) as (model, stream):
            return explaining.rank_batches(model, list(stream), chosen["ask"])

    @contextmanager
    def _locked_rows(
        self, data: Any, call: str, options: Mapping[str, Any]
    ) -> Iterator[tuple[OnlineModel, Iterable[Rows]]]:
        """Yield the model, locked against learning, and the encoded rows of data."""
        words = parse_keywords("predict", options, ReadKeywords.__annotations__)
        with self._locked_single_model() as model:
            explaining.check_independent_rows(model, call)
            with predicting.open_inference_stream(
                model, data, notice=log_notice, use_target=False, **words
            ) as (stream, _):
                yield model, stream

    def forecast(
        self, horizon: int, data: Any = None, *, interval: float = 0.9, decompose: bool = False
    ) -> Forecasts:
        """Forecast the steps after the last row learned; each step uses the forecasts before it.

        The model must have lags of its target (`lags`); a time series gets them automatically.

        Parameters
        ----------
        horizon
            Number of steps.
        data
            Rows with what is known about the steps: times, and inputs other than lags.
        interval
            Probability between `lower` and `upper`.
        decompose
            Whether to add the columns `function_sd` and `noise_sd`.

        Returns
        -------
        Forecasts
            One forecast per step; `when` lists the times of the steps, which are also a column of
            the table that pandas, polars and Arrow read.

        Raises
        ------
        UsageError
            If the model has no lags of its target, or needs inputs and `data` is not given, or the
            horizon is not a whole number from 1 to 10,000.
        DataError
            If `data` has fewer rows after the model's end than steps.

        Examples
        --------
        >>> import kbnn
        >>> model = kbnn.Model("y", layers=5, lags="1,2")
        >>> model.learn({"y": [float(step % 7) for step in range(200)]})
        >>> len(model.forecast(3))
        3
        """
        with self._locked_single_model() as model:
            if data is None:
                made = forecast_module.forecast_horizon(model, horizon)
            else:
                with predicting.open_inference_stream(
                    model, data, notice=log_notice, on_error="stop", use_target=False
                ) as (stream, _):
                    made = forecast_module.forecast_horizon(model, horizon, stream, log_notice)
            return Forecasts(model.task, made.forecast, interval, decompose, when=made.when)

    def evaluate(
        self,
        data: Any,
        *,
        learn: bool = False,
        horizon: int | None = None,
        threshold: float | None = None,
        cost_fn: float | None = None,
        cost_fp: float | None = None,
        positive: str | None = None,
        **options: Unpack[ReadKeywords],
    ) -> Figures:
        """Score the model on rows: the metrics of `kbnn evaluate --json`.

        Parameters
        ----------
        data
            Rows with features and targets, see `Model`.
        learn
            Whether a copy of the model learns each row after predicting it (prequential
            evaluation). The model itself never changes.
        horizon
            Number of steps that are forecast from up to 500 of the rows: the backtest of
            `kbnn evaluate --horizon`, with the metrics of each step in `steps`.
        threshold
            Probability from which the positive of two classes is predicted; `decision` has the
            figures of these labels.
        cost_fn, cost_fp
            Costs of missing the positive class and of a false alarm. Without a threshold, that of
            least cost is found.
        positive
            The positive of two classes, of which `auc`, `average_precision`, the threshold and the
            costs are; the last in order by default.
        **options
            How rows are read, such as `na` or `on_error`.

        Returns
        -------
        Figures
            Metrics by name; shown as a verdict in plain words.

        Raises
        ------
        UsageError
            If nothing has been learned, or an option has an invalid value.
        DataError
            If no row has a target, or a row cannot be read.

        Examples
        --------
        >>> import kbnn
        >>> model = kbnn.Model("y", layers=5)
        >>> model.learn({"x": range(100), "y": range(100)})
        >>> figures = model.evaluate({"x": [10, 20, 30], "y": [10, 20, 30]})
        >>> figures["rows"], figures["rmse"] < 10.0
        (3, True)
        """
        words = parse_keywords("evaluate", options, ReadKeywords.__annotations__)
        asked: dict[str, Any] = {"threshold": threshold, "cost_fn": cost_fn, "cost_fp": cost_fp}
        asked["positive"] = positive
        given = {name: value for name, value in asked.items() if value is not None}
        decision = DecisionOptions(**parse_keywords("evaluate", given, given))
        if horizon is not None and given:
            raise UsageError(f"horizon cannot be combined with {next(iter(given))}")
        with self._locked_model() as own:
            model = keyed.copy_model(own) if learn else own
            with predicting.open_inference_stream(
                model, data, notice=log_notice, learn=learn, **words
            ) as (stream, _):
                if horizon is not None:
                    steps = forecast_module.run_backtest(
                        model, stream, horizon, log_notice, learn=learn
                    )
                    return Figures(steps.to_json(), [(model.schema.targets[0], steps.verdict)])
                made = evaluating.evaluate(
                    model, stream, decision=decision, learn=learn, notice=log_notice
                )
            return Figures(made.to_json(), made.list_verdicts())

    # One row.

    def learn_one(self, x: Mapping[str, Any], y: Any, weight: float = 1.0) -> None:
        """Learn one row.

        Parameters
        ----------
        x
            Features by name. An absent feature, None and NaN are missing values; a new feature
            becomes a column.
        y
            The target; a dict by name if there are several targets.
        weight
            Weight of the row.

        Raises
        ------
        DataError
            If a value cannot be read; the model stays as it was.

        Examples
        --------
        >>> import kbnn
        >>> model = kbnn.Model("y", layers=5)
        >>> model.learn_one({"x": 1.0, "color": "red"}, 2.5)
        >>> model.rows
        1
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
                model.learn(self._row_reader().encode_row(x, y, weight, model.rows_seen + 1))

    def predict_one(self, x: Mapping[str, Any]) -> Any:
        """Predict one row.

        Parameters
        ----------
        x
            Features by name. An absent feature, None and NaN are missing values; an unknown
            feature is ignored.

        Returns
        -------
        Number, Label or dict
            A `Number` (mean, sd, lower, upper, ...), a dict of them by target if there are several
            targets, or a `Label` (label, probability).

        Raises
        ------
        UsageError
            If nothing has been learned, or the model is a fleet.
        DataError
            If a value cannot be read.

        Examples
        --------
        >>> import kbnn
        >>> model = kbnn.Model("y", layers=5)
        >>> for x in range(100):
        ...     model.learn_one({"x": x}, 2.0 * x)
        >>> prediction = model.predict_one({"x": 50})
        >>> prediction.lower < 100.0 < prediction.upper
        True
        """
        if type(x) is not dict:
            check_row(x)
        model = self._require_single_model()
        with model.lock:
            model.recover_transaction()
            return make_single_prediction(
                model.task, model.open_predictor()(self._row_reader().encode_query(x))
            )

    def explain_one(self, x: Mapping[str, Any]) -> dict[str, RowExplanation]:
        """Compute what each column contributes to the prediction of one row.

        Parameters
        ----------
        x
            Features by name, as for `predict_one`.

        Returns
        -------
        dict
            For each explained number (`mean`, `function_sd`, `noise_sd`; `log_odds` of the
            predicted label for classes) its `value`, `base`, `contributions` and `errors`.

        Raises
        ------
        UsageError
            If nothing has been learned, or the model is a fleet.
        DataError
            If a value cannot be read.

        Examples
        --------
        >>> import kbnn
        >>> model = kbnn.Model("y", layers=5)
        >>> model.learn({"x": range(100), "y": range(100)})
        >>> why = model.explain_one({"x": 90})["mean"]
        >>> round(why.base + why.contributions["x"] - why.value, 9)
        0.0
        """
        if type(x) is not dict:
            check_row(x)
        model = self._require_single_model()
        with model.lock:
            model.recover_transaction()
            rows = self._row_reader().encode_query(x)
            return explaining.explain_batches(model, [rows], log_notice).get_row(0)

    def _learn_first(self, x: Mapping[str, Any], y: Any, weight: float) -> None:
        """Create the model from its first row, and learn the row."""
        model = self._create_from_row(x, y)
        try:
            model.learn(RowEncoder(model.schema, log_notice).encode_row(x, y, weight, 1))
        finally:
            if model.rows_seen:
                self._model = model

    def _create_from_row(self, x: Mapping[str, Any], y: Any) -> OnlineModel:
        """Create a model with the schema of a first row."""
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
        schema = infer_row_schema(x, targets, chosen.read, log_notice)
        return create_model(chosen.choices.make_settings(), schema)

    def _row_reader(self) -> RowEncoder:
        """Return the encoder of single rows for the current schema; hold the model's lock."""
        schema = self._require_model().schema
        if self._reader is None or self._reader.schema is not schema:
            self._reader = RowEncoder(schema, log_notice)
        return self._reader

    # The model.

    def _require_model(self) -> StreamModel:
        """Return the inner model; UsageError before the first row."""
        if self._model is None:
            raise UsageError("the model has learned nothing yet. Call learn or learn_one first.")
        return self._model

    def _require_single_model(self) -> OnlineModel:
        """Return the inner model; UsageError if it is a fleet."""
        model = self._require_model()
        if not isinstance(model, OnlineModel):
            raise UsageError("a fleet has one model per key, and this call needs a single model")
        return model

    @contextmanager
    def _locked_model(self) -> Iterator[StreamModel]:
        """Yield the model or fleet, locked against learning."""
        model = self._require_model()
        with model.lock:
            model.recover_transaction()
            yield model

    @contextmanager
    def _locked_single_model(self) -> Iterator[OnlineModel]:
        """Yield the model, locked against learning; UsageError if it is a fleet."""
        model = self._require_single_model()
        with self._locked_model():
            yield model

    @property
    def rows(self) -> int:
        """Number of rows learned, over all passes."""
        if self._model is None:
            return 0
        with self._locked_model() as model:
            return model.rows

    @property
    def target(self) -> list[str]:
        """Names of the targets."""
        return list(self._target) if self._model is None else self._model.schema.targets

    @property
    def features(self) -> list[str]:
        """Names of the features."""
        return [] if self._model is None else self._model.schema.features

    @property
    def classes(self) -> list[str]:
        """The known classes; empty for numeric targets."""
        return [] if self._model is None else list(self._model.schema.classes)

    @property
    def task(self) -> str | None:
        """Target type, such as `regression` or `count`; None before the first row."""
        return None if self._model is None else self._model.task.name

    def record(self) -> Figures:
        """Return the prequential metrics: every row predicted before it was learned.

        Returns
        -------
        Figures
            Metrics by name, as for `evaluate`.

        Examples
        --------
        >>> import kbnn
        >>> model = kbnn.Model("y", layers=5)
        >>> model.learn({"x": range(100), "y": range(100)})
        >>> model.record()["rmse"] < 29.0
        True
        """
        with self._locked_model() as model:
            scores = zip(model.task.targets, model.card.scores, strict=True)
            verdicts = [(name, find_metrics(model.task).judge(score)) for name, score in scores]
            return Figures(list_prequential_figures(model), verdicts)

    def inspect(self) -> dict[str, Any]:
        """Describe the model: what `kbnn inspect --json` prints.

        Returns
        -------
        dict
            Settings, network, columns, sensitivity, importance, health and metrics, see the
            [JSON keys](json.md); for a fleet its keys.

        Raises
        ------
        UsageError
            If nothing has been learned.

        Examples
        --------
        >>> import kbnn
        >>> model = kbnn.Model("y", layers=5)
        >>> model.learn({"x": range(100), "y": range(100)})
        >>> model.inspect()["network"]["inputs"]
        1
        """
        with self._locked_model() as model:
            if not isinstance(model, OnlineModel):
                return keyed.summarize_fleet(model, "")
            size = keyed.measure_file_size(model)
            found = inspecting.inspect_model(model, "", size, explain=True)
            return {name: value for name, value in found.to_json().items() if name != "model"}

    def importance(self) -> dict[str, list[Importance]]:
        """Compute how much each column contributes to predictions, on sampled rows.

        Returns
        -------
        dict
            For each explained number (`mean`, `function_sd`, `noise_sd`; `log_odds` for classes)
            the columns, largest first: `column`, `size` (mean absolute contribution) and `error`
            (its standard error). Empty during the warm-up and with more than 250 columns.

        Raises
        ------
        UsageError
            If nothing has been learned, or the model is a fleet.

        Examples
        --------
        >>> import kbnn
        >>> model = kbnn.Model("y", layers=5)
        >>> model.learn({"x": range(100), "z": [0, 1] * 50, "y": range(100)})
        >>> model.importance()["mean"][0].column
        'x'
        """
        with self._locked_single_model() as model:
            return compute_importance(model)

    @property
    def alarms(self) -> list[int]:
        """Rows, from 1, at which the model raised a drift alarm (the last ones)."""
        with self._locked_single_model() as model:
            return list(model.alarms)

    @property
    def candidates(self) -> list[dict[str, Any]]:
        """Settings that were compared with the leading ones: `settings`, `nats` behind, `row`."""
        with self._locked_single_model() as model:
            found = rank_candidates(model.candidates, model.eliminated)
            return [candidate._asdict() for candidate in found]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a model file; `kbnn.load` and the command line read it.

        Parameters
        ----------
        path
            Path of the file, such as "model.npz"; an existing file is replaced atomically.

        Raises
        ------
        UsageError
            If nothing has been learned, or the model is a fleet.
        ModelError
            If the file cannot be written, or another process is training it.

        Examples
        --------
        >>> import kbnn, tempfile
        >>> model = kbnn.Model("y", layers=5)
        >>> model.learn_one({"x": 1.0}, 2.5)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     model.save(f"{folder}/model.npz")
        ...     kbnn.load(f"{folder}/model.npz").rows
        1
        """
        with self._locked_single_model() as model:
            state = to_state(model)
        with Checkpoint(check_path(path)) as checkpoint:
            checkpoint.save_state(*state)

    def to_bytes(self) -> bytes:
        """Return the content of a model file as bytes.

        Returns
        -------
        bytes
            What `save` would write.

        Examples
        --------
        >>> import kbnn
        >>> model = kbnn.Model("y", layers=5)
        >>> model.learn_one({"x": 1.0}, 2.5)
        >>> kbnn.Model.from_bytes(model.to_bytes()).rows
        1
        """
        with self._locked_single_model() as model:
            state = to_state(model)
        return modelfile.to_bytes(*state)

    @classmethod
    def from_bytes(cls, content: bytes) -> Self:
        """Return the model that `to_bytes` wrote.

        Parameters
        ----------
        content
            The content of a model file.

        Returns
        -------
        Model
            The model.

        Raises
        ------
        ModelError
            If the content is damaged or of a newer format.

        Examples
        --------
        >>> import kbnn
        >>> model = kbnn.Model("y", layers=5)
        >>> model.learn_one({"x": 1.0}, 2.5)
        >>> kbnn.Model.from_bytes(model.to_bytes())
        <kbnn.Model: regression of y from x, 1 row learned>
        """
        return cls._from_inner(modelfile.load_bytes(content))

    @classmethod
    def _from_inner(cls, model: StreamModel) -> Self:
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
        return self._format_with(_format_model_text)

    def _repr_html_(self) -> str:
        return self._format_with(_format_model_html)

    def _format_with(self, show: Callable[[StreamModel | None, Sequence[str]], str]) -> str:
        if self._model is None:
            return show(None, self._target)
        with self._locked_model() as model:
            return show(model, self._target)


def check_path(path: str | os.PathLike[str]) -> str:
    """Return a path as text; refuse any other type."""
    if not isinstance(path, str | os.PathLike):
        raise ArgumentError(f"a path must be a str or a Path, not {path!r}")
    return os.fspath(path)


def _format_names(names: Sequence[str], most: int = 3) -> str:
    """Join names, or count them if there are more than `most`."""
    if len(names) > most:
        return f"{len(names):,} columns"
    return ", ".join(map(clean_text, names)) or "nothing"


def _format_model_text(model: StreamModel | None, target: Sequence[str]) -> str:
    """Describe a model in one line, for the console; None before the first row."""
    if model is None:
        return f"<kbnn.Model of {_format_names(target) if target else 'y'}: nothing learned yet>"
    schema = model.schema
    what = f"{describe_target(model.task)} from {_format_names(schema.features)}"
    return f"<kbnn.Model: {what}, {format_rows(model.rows)} learned>"


def _format_model_html(model: StreamModel | None, target: Sequence[str]) -> str:
    """Describe a model with its prequential metrics as HTML, for a notebook."""
    title = f"<p><b>{escape(_format_model_text(model, target).strip('<>'))}</b></p>"
    if model is None or not any(score.rows for score in model.card.scores):
        return title
    body = ""
    for name, score in zip(model.task.targets, model.card.scores, strict=True):
        table = build_metric_table(model.task, score.metric_values(), name, brief=True)
        heads = (escape(clean_text(name)), "", escape(table.baseline))
        body += f"<tr>{''.join(f'<th>{head}</th>' for head in heads)}</tr>"
        for row in table.rows:
            cells = (row.label, row.value, row.constant or "")
            body += f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in cells)}</tr>"
    return f"{title}<p>Each row was predicted before it was learned:</p><table>{body}</table>"
