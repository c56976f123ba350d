"""Buffer of learned rows and their forecasts until they are added to the scorecard.

Scoring rows one by one would cost more than learning them. Rows are copied into preallocated
arrays, which is cheaper than allocating memory for each row.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kbnn.array_types import FloatArray
from kbnn.core import kernel
from kbnn.data.batch import Rows
from kbnn.targets.prediction import Forecast

MAX_UNSCORED_ROWS: Final = 256
MIN_UNSCORED_CAPACITY_ROWS: Final = 16


class UnscoredRows:
    """At most MAX_UNSCORED_ROWS rows of one shape."""

    def __init__(self) -> None:
        self.rows = 0
        self._shape = (-1, -1)  # columns of x, and of probability
        self._arrays: list[NDArray[Any]] = []
        self._weight = np.ones(0)
        self._weighted = False

    def add(self, rows: Rows, forecast: Forecast) -> bool:
        """Append rows; False if the buffer is full and must be scored first."""
        start, stop = self.rows, self.rows + len(rows.y)
        shape = rows.x.shape[1], forecast.probability.shape[1]
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

    def _make_room(self, parts: tuple[Any, ...], shape: tuple[int, int], rows: int) -> None:
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
