"""Predict a stream with an existing model, and choose where rows are learned and predicted.

Every row gets one forecast; unreadable rows get missing values. An engine is this process or Dask
workers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

from kbnn.data.batch import (
    Anomalies,
    LearnResult,
    Rows,
    TargetTypeChange,
    concat_rows,
    join_anomalies,
    slice_anomalies,
)
from kbnn.data.dataset import Stream, open_stream
from kbnn.data.read_options import ReadOptions
from kbnn.data.reading import BadRowWriter
from kbnn.fleet.dask_backend import DaskCluster, RemotePredictor
from kbnn.fleet.fleet import Fleet
from kbnn.fleet.key_index import read_keys
from kbnn.model.anomaly import judge_rows
from kbnn.model.interface import StreamModel
from kbnn.model.model import OnlineModel
from kbnn.model.recursive_forecast import SequenceNotices
from kbnn.option_table import LOCAL_ENGINE
from kbnn.output.writers import AddedField, Writer
from kbnn.targets.prediction import Forecast, blank_rows, join_forecasts, select_rows

SENT_ROWS: Final = 4096
"""Rows sent to workers in one block, unless the stream is live."""
MAX_BLOCKS_AHEAD: Final = 1
"""Blocks that workers may be learning while the next one is read."""


@contextmanager
def use_engine(model: StreamModel, engine: str, cluster: str) -> Iterator[None]:
    """Run the model's work on an engine within the block; results are identical bit for bit."""
    if engine == LOCAL_ENGINE:
        yield
        return
    dask = DaskCluster(cluster)
    try:
        if isinstance(model, Fleet):
            model.models.use_cluster(dask)
        elif isinstance(model, OnlineModel) and not model.schema.lags:  # lags need single rows
            model.predict_backend = RemotePredictor(dask, model).predict
        yield
    finally:
        if isinstance(model, Fleet):
            model.models.use_cluster(None)
        elif isinstance(model, OnlineModel):
            model.predict_backend = None
        dask.close()


class LearnedRows(NamedTuple):
    """Rows that were learned, with the forecasts made before, and what was noticed in them."""

    rows: Rows
    forecast: Forecast
    first_invalid_rows: tuple[TargetTypeChange, ...] = ()
    anomalies: Anomalies | None = None


class LearningPipeline:
    """Sends rows to a model; rows learned by workers are returned later.

    Reading and the pooled model continue while workers learn, and rows are sent in large blocks.
    On a live stream each block is answered before the next one is read.
    """

    def __init__(self, model: StreamModel, live: bool) -> None:
        self._model = model
        remote = isinstance(model, Fleet) and model.models.uses_workers and not live
        self._fleet = model if remote and isinstance(model, Fleet) else None
        self._unsent: list[tuple[Rows, list[str]]] = []
        self._sent: list[list[Rows]] = []
        self._again = False

    @property
    def is_delayed(self) -> bool:
        """Whether rows may be returned later than they were sent."""
        return self._fleet is not None

    def learn(self, rows: Rows, again: bool) -> Iterator[LearnedRows]:
        """Predict and learn rows; yield these or earlier rows with their forecasts, in order."""
        if self._fleet is None:
            yield LearnedRows(rows, *self._model.learn_batch(rows, again))
            return
        self._unsent.append((rows, read_keys(rows, self._fleet.key)))
        self._again = again
        if sum(len(keys) for _, keys in self._unsent) >= SENT_ROWS:
            self._send_block(self._fleet)
            yield from self._receive_blocks(self._fleet, MAX_BLOCKS_AHEAD)

    def finish(self) -> Iterator[LearnedRows]:
        """Yield the remaining rows."""
        if self._fleet is not None:
            if self._unsent:
                self._send_block(self._fleet)
            yield from self._receive_blocks(self._fleet, 0)

    def _send_block(self, fleet: Fleet) -> None:
        unsent, self._unsent = self._unsent, []
        self._sent.append([rows for rows, _ in unsent])
        whole = concat_rows([rows._replace(original=None) for rows, _ in unsent])
        fleet.send_block([key for _, keys in unsent for key in keys], whole, self._again)

    def _receive_blocks(self, fleet: Fleet, most: int) -> Iterator[LearnedRows]:
        """Yield finished blocks until at most `most` are in flight."""
        while fleet.blocks_in_flight > most:
            (forecast, _, anomalies), at = fleet.receive_block(), 0
            for rows in self._sent.pop(0):
                end = at + len(rows.y)
                found = slice_anomalies(anomalies, at, end)
                yield LearnedRows(rows, select_rows(forecast, slice(at, end)), (), found)
                at = end


@contextmanager
def open_inference_stream(
    model: StreamModel,
    sources: Any,
    *,
    notice: Callable[[str], None],
    bad_rows: str | None = None,
    na: Sequence[str] = (),
    learn: bool = False,
    surprise: bool = False,
    **how: Any,
) -> Iterator[tuple[Stream, BadRowWriter]]:
    """Open the sources with the model's schema; yield the stream and the writer of bad rows.

    The schema is frozen unless the model is to `learn`; then categories and classes may be added.
    `how` are further fields of `ReadOptions`. If the model has lags of its targets, target columns
    are read whenever they are present, because later rows depend on them; likewise for `surprise`.
    """
    if surprise or any(lag.column in model.schema.targets for lag in model.schema.lags):
        how["target_may_be_absent"] = not how.get("use_target", True)
        how["use_target"] = True
    schema = model.schema.copy()
    schema.missing.extend(token for token in na if token not in schema.missing)
    original = how.pop("original", False) or bool(model.key)
    chosen = ReadOptions(admit=learn, original=original, key=tuple(model.key), **how)
    chosen.check()
    with (
        BadRowWriter(bad_rows) as bad,
        open_stream(
            sources, options=chosen, schema=schema, on_notice=notice, on_bad_row=bad
        ) as stream,
    ):
        yield stream, bad


Notice = Callable[[str], None]


class AddedColumns(NamedTuple):
    """Columns after the predictions, and what computes the value that their fields read."""

    fields: list[AddedField]
    compute: Callable[[Rows, Forecast], Any]


def join_added_columns(parts: Sequence[AddedColumns]) -> AddedColumns:
    """Join several groups of added columns."""
    fields = [
        field._replace(values=lambda values, at=at, read=field.values: read(values[at]))  # type: ignore[misc]  # bound now
        for at, part in enumerate(parts)
        for field in part.fields
    ]
    return AddedColumns(
        fields, lambda rows, forecast: [part.compute(rows, forecast) for part in parts]
    )


def predict_stream(
    model: StreamModel,
    stream: Iterable[Rows],
    writer: Writer,
    *,
    bare: bool = False,
    added: AddedColumns | None = None,
    surprise: bool = False,
    on_rows: Callable[[int], None] = lambda rows: None,
    notice: Notice = lambda text: None,
) -> None:
    """Write the forecast of every row, in order, after its own columns unless `bare`.

    `surprise`: also how unlikely its target was, where it is there.
    """
    for rows, forecast, _ in predict_rows(model, stream, notice):
        values = None if added is None else added.compute(rows, forecast)
        anomalies = _judge_rows(model, rows, forecast) if surprise else None
        original = None if bare else rows.original
        writer.write(forecast, original, added=values, anomalies=anomalies)
        on_rows(len(rows.y))


def collect_forecasts(
    model: StreamModel, stream: Stream, notice: Notice, surprise: bool = False
) -> tuple[Forecast, Anomalies | None]:
    """Return the forecasts of all rows, in order, and their surprise if it is requested."""
    parts, found = [], []
    for rows, forecast, _ in predict_rows(model, stream, notice):
        parts.append(forecast)
        anomalies = _judge_rows(model, rows, forecast) if surprise else None
        found.append((len(rows.y), anomalies))
    return join_forecasts(parts), join_anomalies(found, len(model.task.targets))


def _judge_rows(model: StreamModel, rows: Rows, forecast: Forecast) -> Anomalies:
    """Compute surprise and PIT of predicted rows."""
    if isinstance(model, Fleet):
        return model.judge_rows(rows, forecast)
    assert isinstance(model, OnlineModel)
    return judge_rows(model.monitor, model.task, rows, forecast)


class PredictedRows(NamedTuple):
    """Rows with their forecasts, and what a model with a monitor found while learning them."""

    rows: Rows
    forecast: Forecast
    anomalies: Anomalies | None


def predict_rows(
    model: StreamModel, batches: Iterable[Rows], notice: Notice, *, learn: bool = False
) -> Iterator[PredictedRows]:
    """Yield rows with their forecasts, in order; `learn`: each row is learned once predicted.

    Prediction, evaluation and the Python interface share this function: the scored forecasts are
    the written ones.
    """
    predict = None if learn else model.open_predictor(SequenceNotices(notice))
    for rows in batches:
        made = model.learn_batch(rows) if predict is None else LearnResult(predict(rows))
        forecast = made.forecast
        if rows.unreadable is not None:
            forecast = blank_rows(forecast, rows.unreadable)
        yield PredictedRows(rows, forecast, made.anomalies)
