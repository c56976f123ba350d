"""Prediction of a stream with an existing model, and how evaluation and prediction read sources.

Every row gets one forecast; unreadable rows get missing values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from kbnn.data.batch import Anomalies, LearnResult, Rows, join_anomalies
from kbnn.data.dataset import Stream, open_stream
from kbnn.data.read_options import ReadOptions
from kbnn.data.reading import BadRowWriter
from kbnn.model.interface import StreamModel
from kbnn.model.model import OnlineModel
from kbnn.model.monitor import judge_rows
from kbnn.model.recursive_forecast import SequenceNotices
from kbnn.output.writers import AddedField, Writer
from kbnn.targets.prediction import Forecast, blank_rows, join_forecasts


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
    chosen = ReadOptions(admit=learn, original=original, **how)
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
        writer.write(forecast, None if bare else rows.original, values, anomalies)
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
    """Compute surprise and PIT of predicted rows; a fleet has no monitor."""
    monitor = model.monitor if isinstance(model, OnlineModel) else None
    return judge_rows(monitor, model.task, rows, forecast)


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
