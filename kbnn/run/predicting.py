"""Predicting a stream: one forecast for every row, and none for rows that could not be read."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from kbnn.model.model import OnlineModel
from kbnn.model.recursion import SequenceNotices
from kbnn.model.rows import Rows
from kbnn.output.writers import Writer
from kbnn.stream.opening import Stream
from kbnn.task.forecast import Forecast, blank_rows, join_forecasts

Notice = Callable[[str], None]


def predict_stream(
    model: OnlineModel,
    stream: Stream,
    writer: Writer,
    *,
    bare: bool = False,
    on_rows: Callable[[int], None] = lambda rows: None,
    notice: Notice = lambda text: None,
) -> None:
    """Write the forecast of every row, in order, beside its columns unless `bare`."""
    for rows, forecast in predict_rows(model, stream, notice):
        writer.write(forecast, None if bare else rows.original)
        on_rows(len(rows.y))


def collect_forecasts(model: OnlineModel, stream: Stream, notice: Notice) -> Forecast:
    """The forecast of every row, in order."""
    return join_forecasts([forecast for _, forecast in predict_rows(model, stream, notice)])


def predict_rows(
    model: OnlineModel, stream: Stream, notice: Notice
) -> Iterator[tuple[Rows, Forecast]]:
    """Predict the rows of a stream in order; the model stays as it is.

    Predicting and evaluating both do it here, so that what is scored is what would be written.
    """
    predict = model.open_predictor(SequenceNotices(notice))
    for rows in stream:
        forecast = predict(rows)
        if rows.unreadable is not None:
            forecast = blank_rows(forecast, rows.unreadable)
        yield rows, forecast
