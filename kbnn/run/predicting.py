"""Predicting a stream: one forecast for every row, and none for rows that could not be read."""

from __future__ import annotations

from collections.abc import Callable

from kbnn.model.model import Model
from kbnn.output.writers import Writer
from kbnn.stream.opening import Stream
from kbnn.task.forecast import without


def predict_stream(
    model: Model,
    stream: Stream,
    writer: Writer,
    *,
    on_rows: Callable[[int], None] = lambda rows: None,
) -> None:
    """Write the forecast of every row, in order."""
    for rows in stream:
        forecast = model.predict(rows)
        if rows.unreadable is not None:
            forecast = without(forecast, rows.unreadable)
        writer.write(forecast, rows.original)
        on_rows(len(rows.y))
