"""Prequential record of a model: the scorecard, and the rows that it has yet to count.

Scoring rows one by one would cost more than learning them. Learned rows and their forecasts are
copied into preallocated arrays, which is cheaper than allocating memory for each row, and counted
several at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kbnn.array_types import FloatArray
from kbnn.core import kernel
from kbnn.data.batch import Rows
from kbnn.metrics.scorecard import Scorecard
from kbnn.targets.base import TargetType
from kbnn.targets.prediction import IN_WARMUP, Forecast, select_rows

MAX_UNSCORED_ROWS: Final = 256
MIN_UNSCORED_CAPACITY_ROWS: Final = 16


class UnscoredRows:
    """At most MAX_UNSCORED_ROWS rows of one shape."""

    def __init__(self) -> None:
        self.rows = 0
        self._shape = (-1, -1, -1)  # columns of x, of probability, and of naive forecasts
        self._arrays: list[NDArray[Any]] = []
        self._weight = np.ones(0)
        self._weighted = False

    def add(self, rows: Rows, forecast: Forecast) -> bool:
        """Append rows; False if the buffer is full and must be scored first."""
        start, stop = self.rows, self.rows + len(rows.y)
        shape = rows.x.shape[1], forecast.probability.shape[1], forecast.naive.shape[1]
        if stop > MAX_UNSCORED_ROWS or (start and shape != self._shape):
            return False
        parts = (rows.x, rows.y, rows.number, *forecast)
        if shape != self._shape or stop > len(self._weight):
            self._make_room(parts, shape, stop)
        kernel.copy_rows(self._arrays, start, parts)
        if rows.weight is not None or self._weighted:
            self._set_weights(slice(start, stop), rows.weight)
        self.rows = stop
        return True

    def _set_weights(self, place: slice, weight: FloatArray | None) -> None:
        """Store weights; rows before the first weighted row have weight 1."""
        if not self._weighted:
            self._weight[: place.start] = 1.0
            self._weighted = True
        self._weight[place] = 1.0 if weight is None else weight

    def get_rows(self) -> tuple[Rows, Forecast]:
        """Return the unscored rows and their forecasts."""
        n = self.rows
        x, y, number, *forecast = (array[:n] for array in self._arrays)
        weight = self._weight[:n] if self._weighted else None
        return Rows(x, y, number, weight=weight), Forecast._make(forecast)

    def make_empty(self) -> UnscoredRows:
        """Return an empty buffer of the same capacity; this one stays as it is."""
        other = UnscoredRows()
        other._shape = self._shape
        other._arrays = [np.empty_like(array) for array in self._arrays]
        other._weight = np.empty_like(self._weight)
        return other

    def mark(self) -> tuple[Any, ...]:
        """Return what `reset` needs to discard all rows that are added later."""
        return self.rows, self._shape, self._arrays, self._weight, self._weighted

    def reset(self, mark: tuple[Any, ...]) -> None:
        """Return to a mark."""
        self.rows, self._shape, self._arrays, self._weight, self._weighted = mark

    def shrink_to_fit(self) -> None:
        """Release spare capacity."""
        self._arrays = [array[: self.rows].copy() for array in self._arrays]
        self._weight = self._weight[: self.rows].copy()

    def _make_room(self, parts: tuple[Any, ...], shape: tuple[int, int, int], rows: int) -> None:
        room = MIN_UNSCORED_CAPACITY_ROWS
        while room < rows:
            room *= 2
        before = [array[: self.rows] for array in (*self._arrays, self._weight)]
        made = [np.empty((room, *part.shape[1:]), part.dtype) for part in (*parts, np.ones(0))]
        if self.rows:
            for new, old in zip(made, before, strict=True):
                new[: self.rows] = old
        *self._arrays, self._weight = made
        self._shape = shape


class PrequentialRecord:
    """Scores of rows that were predicted before they were learned."""

    is_scored: bool = True
    """Whether forecasts are added to the record; learning does not depend on it."""

    def __init__(self, card: Scorecard) -> None:
        self._card: Scorecard | Callable[[], Scorecard] = card
        self._unscored = UnscoredRows()

    def set_card(self, card: Scorecard | Callable[[], Scorecard]) -> None:
        """Set the scorecard, or a function that returns it when it is first needed."""
        self._card = card

    def add_rows(self, task: TargetType, rows: Rows, forecast: Forecast, held: bool) -> None:
        """Add rows and their forecasts; of rows `held` in the warm-up, those predicted after it."""
        if not self.is_scored:
            return
        if held:
            made = (forecast.status & IN_WARMUP) == 0
            rows = Rows(
                rows.x[made],
                rows.y[made],
                rows.number[made],
                weight=None if rows.weight is None else rows.weight[made],
            )
            forecast = select_rows(forecast, made)
        if self._unscored.add(rows, forecast):
            return
        card = self.count_rows(task)
        if not self._unscored.add(rows, forecast):
            card = card.copy()
            card.add(rows.x, rows.y, forecast, rows.weight, rows.number)
            self._card = card

    def count_rows(self, task: TargetType) -> Scorecard:
        """Return the scorecard of all rows; a copy that counts new ones replaces the last one."""
        card = self._card if isinstance(self._card, Scorecard) else self._card()
        card.task = task
        unscored = self._unscored
        if unscored.rows:
            card, (rows, forecast) = card.copy(), unscored.get_rows()
            card.add(rows.x, rows.y, forecast, rows.weight, rows.number)
            unscored = unscored.make_empty()
        self._card, self._unscored = card, unscored  # together, so that no row counts twice
        return card

    def add_columns(self, task: TargetType, fill_values: FloatArray) -> None:
        """Add columns of x; earlier rows have the values `fill_values` there."""
        card = self.count_rows(task).copy()
        card.add_columns(fill_values)
        self._card = card

    def shrink_to_fit(self) -> None:
        """Release spare capacity."""
        self._unscored.shrink_to_fit()

    def mark(self) -> tuple[Any, ...]:
        """Return what `reset` needs to discard all rows that are added later."""
        return self._card, self._unscored, self._unscored.mark()

    def reset(self, mark: tuple[Any, ...]) -> None:
        """Return to a mark."""
        self._card, self._unscored, rows = mark
        self._unscored.reset(rows)
