"""Predicting a stream: one forecast for every row, and none for rows that could not be read."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from kbnn.model.model import Model
from kbnn.model.rows import Rows
from kbnn.output.writers import Writer
from kbnn.stream.opening import Stream
from kbnn.task.forecast import Forecast, joined, without


def predict_stream(
    model: Model,
    stream: Stream,
    writer: Writer,
    *,
    bare: bool = False,
    on_rows: Callable[[int], None] = lambda rows: None,
) -> None:
    """Write the forecast of every row, in order, beside its columns unless `bare`."""
    for rows, forecast in _predicted(model, stream):
        writer.write(forecast, None if bare else rows.original)
        on_rows(len(rows.y))


def forecasts_of(model: Model, stream: Stream) -> Forecast:
    """The forecast of every row, in order."""
    return joined([forecast for _, forecast in _predicted(model, stream)])


def _predicted(model: Model, stream: Stream) -> Iterator[tuple[Rows, Forecast]]:
    predict = model.ahead()
    for rows in stream:
        forecast = predict(rows)
        if rows.unreadable is not None:
            forecast = without(forecast, rows.unreadable)
        yield rows, forecast
