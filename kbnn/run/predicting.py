"""Predicting a stream: one forecast for every row, and none for rows that could not be read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from kbnn.learner import Forecast
from kbnn.model import Model
from kbnn.score.rowsums import FloatArray
from kbnn.stream.badrows import BadRowList
from kbnn.stream.encode import Block
from kbnn.stream.opening import Stream
from kbnn.stream.predicted import Field, Forecasts
from kbnn.stream.writers import Writer


def predict_stream(
    model: Model,
    stream: Stream,
    bad: BadRowList,
    writer: Writer,
    *,
    on_rows: Callable[[int], None] = lambda rows: None,
) -> None:
    """Write the forecast of every row, in order; `bad` is the stream's list of bad rows."""
    for block in stream:
        forecast = model.predict(block)
        if bad.fresh():
            forecast = without_unreadable(forecast, block)
        writer.write(forecast, block.batch)
        on_rows(len(block.rows))


def honest_labels(fields: Sequence[Field]) -> list[Field]:
    """The columns, where a row without probabilities has no label either."""
    return [
        field._replace(values=partial(_known_labels, field)) if field.text else field
        for field in fields
    ]


def _known_labels(field: Field, forecast: Forecasts) -> list[str | None]:
    assert forecast.probability is not None  # only classes have a column of text
    known = np.atleast_1d(np.isfinite(forecast.probability).all(axis=1))
    labels = field.values(forecast)
    return [label if sure else None for label, sure in zip(labels, known, strict=True)]


def without_unreadable(forecast: Forecast, block: Block) -> Forecast:
    """The forecast with nothing said of rows of which nothing is known.

    A kept bad row arrives with every feature missing. In a block that holds one, a good row whose
    features are all missing looks the same, and is left empty too.
    """
    unknown = np.asarray(np.isnan(block.x).all(axis=1))[:, None]

    def blank(values: FloatArray) -> FloatArray:
        return np.where(unknown, np.nan, values)

    return forecast._replace(
        mean=blank(forecast.mean),
        sd=blank(forecast.sd),
        function_sd=blank(forecast.function_sd),
        noise_sd=blank(forecast.noise_sd),
        probability=None if forecast.probability is None else blank(forecast.probability),
    )
