"""Rows on their way from a stream to a learner: one tuple; and what comes of them."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kbnn.array_types import FloatArray, IntArray
from kbnn.data.schema import Schema
from kbnn.targets.prediction import Forecast

MAX_ABS_VALUE = 1e140
"""The largest number taken: sums of squares of larger ones leave the range of float64."""

MIN_ABS_VALUE = 1e-140
"""What is closer to 0 counts as 0: its square is no number, and no scale can be made of it."""


GAP_ROWS: Final = 200
GAP_VALUES: Final = 20
"""Rows without a value, and values to be expected in them, from which on a column seems dead."""


def longest_usual_gap(active: int, rows: int) -> int:
    """Rows in which GAP_VALUES values are to be expected, given rows with a value among all.

    The share is taken of GAP_ROWS rows at least: the first few values say little about it.
    """
    return max(GAP_ROWS, -(-GAP_VALUES * max(rows, GAP_ROWS) // active))


class Rows(NamedTuple):
    """n rows; NaN is missing."""

    x: FloatArray  # (n, D) as the schema lays it out
    y: FloatArray  # (n, T); the class index where the target is a label
    number: IntArray  # (n,) row number in the source, from 1
    x_sd: FloatArray | None = None  # (n, D) stated standard deviations, 0 = exact
    weight: FloatArray | None = None  # (n,) positive
    unreadable: NDArray[np.bool_] | None = None  # (n,) rows of which nothing is known
    schema: Schema | None = None  # as it is after these rows, where it may have grown
    original: Any = None  # the columns as they were read (an Arrow batch), when asked for
    time: FloatArray | None = None  # (n, 2) as kbnn.data.clock has it
    id: list[str | None] | None = (
        None  # by which a label finds its row, see kbnn.model.pending_labels
    )

    @property
    def count(self) -> int:  # type: ignore[override]  # rows, not equal entries
        """How many."""
        return len(self.number)


class TargetTypeChange(NamedTuple):
    """A kind of target that was found by evidence, and the row that it cannot have."""

    old_type: str
    row: int
    value: float
    new_type: str  # what is learned from now on


class LearnResult(NamedTuple):
    """What a model said of rows, and which kinds of target were given up among them."""

    forecast: Forecast
    type_changes: tuple[TargetTypeChange, ...] = ()


def slice_rows(rows: Rows, start: int, stop: int) -> Rows:
    """The rows from `start` up to `stop`, without copying."""
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
    """What columns of x held before they were known: a category was not there, a number missing."""
    return np.where(indicators > 0.0, 0.0, np.nan)


def pad_columns(rows: FloatArray, width: int, fill: FloatArray | None = None) -> FloatArray:
    """The columns of x, and on their right up to `width` those of `fill`, or zeros."""
    known = rows.shape[1]
    if known >= width:
        return rows[:, :width]
    wide = np.zeros((len(rows), width))
    if fill is not None and len(fill) > known:
        wide[:, : len(fill)] = fill[:width]
    wide[:, :known] = rows
    return wide
