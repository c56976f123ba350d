"""Prediction of a stream with an existing model, and how evaluation and prediction read sources.

Every row gets one forecast; unreadable rows get missing values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from kbnn.data.batch import Rows
from kbnn.data.dataset import Stream, open_stream
from kbnn.data.read_options import ReadOptions
from kbnn.data.reading import BadRowWriter
from kbnn.model.interface import StreamModel
from kbnn.model.recursive_forecast import SequenceNotices
from kbnn.output.writers import Writer
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
    **how: Any,
) -> Iterator[tuple[Stream, BadRowWriter]]:
    """Open the sources with the model's schema; yield the stream and the writer of bad rows.

    The schema is frozen unless the model is to `learn`; then categories and classes may be added.
    `how` are further fields of `ReadOptions`. If the model has lags of its targets, target columns
    are read whenever they are present, because later rows depend on them.
    """
    if any(lag.column in model.schema.targets for lag in model.schema.lags):
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


def predict_stream(
    model: StreamModel,
    stream: Stream,
    writer: Writer,
    *,
    bare: bool = False,
    on_rows: Callable[[int], None] = lambda rows: None,
    notice: Notice = lambda text: None,
) -> None:
    """Write the forecast of every row, in order, after its own columns unless `bare`."""
    for rows, forecast in predict_rows(model, stream, notice):
        writer.write(forecast, None if bare else rows.original)
        on_rows(len(rows.y))


def collect_forecasts(model: StreamModel, stream: Stream, notice: Notice) -> Forecast:
    """Return the forecasts of all rows, in order."""
    return join_forecasts([forecast for _, forecast in predict_rows(model, stream, notice)])


def predict_rows(
    model: StreamModel, batches: Iterable[Rows], notice: Notice, *, learn: bool = False
) -> Iterator[tuple[Rows, Forecast]]:
    """Yield rows with their forecasts, in order; `learn`: each row is learned once predicted.

    Prediction, evaluation and the Python interface share this function: the scored forecasts are
    the written ones.
    """
    predict = model.learn if learn else model.open_predictor(SequenceNotices(notice))
    for rows in batches:
        forecast = predict(rows)
        if rows.unreadable is not None:
            forecast = blank_rows(forecast, rows.unreadable)
        yield rows, forecast
