"""Batches of encoded rows, as passed from a stream to a model, and the result of learning them.

`Rows` holds the arrays of one batch. The module also defines the range of supported numbers and
the rule by which a column counts as silent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kbnn.array_types import FloatArray, IntArray
from kbnn.data.schema import Schema
from kbnn.targets.prediction import Forecast

MAX_ABS_VALUE = 1e140
"""Largest supported absolute value: sums of squares of larger ones may overflow float64."""

MIN_ABS_VALUE = 1e-140
"""Values closer to 0 count as 0: their squares underflow, so no scale can be computed."""


GAP_ROWS: Final = 200
GAP_VALUES: Final = 20
"""A column counts as dead after GAP_ROWS rows without a value in which GAP_VALUES were expected."""


def longest_usual_gap(active: int, rows: int) -> int:
    """Compute the number of rows in which GAP_VALUES values are expected, at least GAP_ROWS.

    The expected gap is GAP_VALUES * max(rows, GAP_ROWS) / active, rounded up, where `active` of
    `rows` rows had a value. The lower bound on rows keeps the first few values from deciding.
    """
    return max(GAP_ROWS, -(-GAP_VALUES * max(rows, GAP_ROWS) // active))


class Rows(NamedTuple):
    """A batch of n rows; NaN means missing."""

    x: FloatArray  # (n, D) as the schema lays it out
    y: FloatArray  # (n, T); the class index where the target is a label
    number: IntArray  # (n,) row number in the source, from 1
    x_sd: FloatArray | None = None  # (n, D) standard deviations of the inputs, 0 = exact
    weight: FloatArray | None = None  # (n,) positive
    unreadable: NDArray[np.bool_] | None = None  # (n,) rows that could not be parsed
    schema: Schema | None = None  # the schema after these rows, which may have added to it
    original: Any = None  # the columns as read (an Arrow batch), if requested
    time: FloatArray | None = None  # (n, 2) instant and local time, see kbnn.data.clock
    id: list[str | None] | None = None  # matches labels to rows, see kbnn.model.pending_labels

    @property
    def count(self) -> int:  # type: ignore[override]  # rows, not equal entries
        """The number of rows."""
        return len(self.number)


class TargetTypeChange(NamedTuple):
    """A switch of an inferred target type, caused by a row whose target does not fit it."""

    old_type: str
    row: int
    value: float
    new_type: str  # the target type from this row on


class RowAlert(NamedTuple):
    """An alert: the first row of an anomaly at which it was detected."""

    at: int  # position in the batch
    target: int
    kind: str  # see kbnn.model.anomaly
    start: int  # number of the row where the anomaly began, estimated
    length: int  # rows since then
    surprise: float  # of the row; NaN without a forecast
    score: float  # -log10 of the rate at which so high a score occurs on an ordinary stream


class Anomalies(NamedTuple):
    """How unlikely the targets of n rows were, see kbnn.model.monitor."""

    surprise: FloatArray  # (n, T) -log10 of the calibrated tail probability
    pit: FloatArray  # (n, T)
    alerts: tuple[RowAlert, ...] = ()


class LearnResult(NamedTuple):
    """The predictions for a batch, made before learning it, and the target type changes in it."""

    forecast: Forecast
    type_changes: tuple[TargetTypeChange, ...] = ()
    anomalies: Anomalies | None = None  # if the model has a monitor


def join_anomalies(parts: Sequence[tuple[int, Anomalies | None]], targets: int) -> Anomalies | None:
    """Concatenate the anomalies of consecutive parts (rows, anomalies); None if no part has any."""
    if not any(part is not None for _, part in parts):
        return None
    first, alerts = 0, []
    arrays: list[tuple[FloatArray, FloatArray]] = []
    for rows, part in parts:
        none = np.full((rows, targets), np.nan)
        arrays.append((none, none) if part is None else part[:2])
        if part is not None:
            alerts += [alert._replace(at=first + alert.at) for alert in part.alerts]
        first += rows
    surprise, pit = (np.concatenate(column) for column in zip(*arrays, strict=True))
    return Anomalies(surprise, pit, tuple(alerts))


def slice_rows(rows: Rows, start: int, stop: int) -> Rows:
    """Return the rows from `start` up to `stop`, without copying."""
    return Rows(
        rows.x[start:stop],
        rows.y[start:stop],
        rows.number[start:stop],
        None if rows.x_sd is None else rows.x_sd[start:stop],
        None if rows.weight is None else rows.weight[start:stop],
        None if rows.unreadable is None else rows.unreadable[start:stop],
        rows.schema,
        None if rows.original is None else rows.original[start:stop],
        None if rows.time is None else rows.time[start:stop],
        None if rows.id is None else rows.id[start:stop],
    )


def make_fill_values(indicators: FloatArray) -> FloatArray:
    """Return the values of new columns of x in earlier rows: 0 for indicators, NaN for numbers."""
    return np.where(indicators > 0.0, 0.0, np.nan)


def pad_columns(rows: FloatArray, width: int, fill: FloatArray | None = None) -> FloatArray:
    """Cut or pad x to `width` columns; new columns on the right take `fill`, or zeros."""
    known = rows.shape[1]
    if known >= width:
        return rows[:, :width]
    wide = np.zeros((len(rows), width))
    if fill is not None and len(fill) > known:
        wide[:, : len(fill)] = fill[:width]
    wide[:, :known] = rows
    return wide
