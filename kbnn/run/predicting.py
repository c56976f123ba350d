"""Predicting a stream: one forecast for every row, and none for rows that could not be read."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from kbnn.model.learner import Forecast
from kbnn.model.model import Model
from kbnn.output.writers import Writer
from kbnn.score.rowsums import FloatArray
from kbnn.stream.badrows import BadRowList
from kbnn.stream.opening import Stream


def predict_stream(
    model: Model,
    stream: Stream,
    bad: BadRowList,
    writer: Writer,
    *,
    on_rows: Callable[[int], None] = lambda rows: None,
) -> None:
    """Write the forecast of every row, in order; `bad` is the stream's list of bad rows."""
    bad.fresh()
    for block in stream:
        forecast = model.predict(block)
        unreadable = bad.fresh()
        if unreadable:
            forecast = without_rows(forecast, np.isin(block.rows, unreadable))
        writer.write(forecast, block.batch)
        on_rows(len(block.rows))


def without_rows(forecast: Forecast, unreadable: npt.NDArray[np.bool_]) -> Forecast:
    """The forecast with nothing said of the rows that could not be read."""
    unknown = unreadable[:, None]

    def blank(values: FloatArray) -> FloatArray:
        return np.where(unknown, np.nan, values)

    return forecast._replace(
        mean=blank(forecast.mean),
        sd=blank(forecast.sd),
        function_sd=blank(forecast.function_sd),
        noise_sd=blank(forecast.noise_sd),
        probability=None if forecast.probability is None else blank(forecast.probability),
    )
