"""The rows of a block while they are learned: what is said of them comes back in their order."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kbnn.core.layout import IntArray
from kbnn.core.normal import FloatArray
from kbnn.model.rows import Rows
from kbnn.stream.blocks import take_rows
from kbnn.task import forecast as said_of
from kbnn.task.forecast import Forecast


class PartitionUpdate(NamedTuple):
    """What was said of rows, and how far keys have moved that came of age, by place in the rows."""

    forecast: Forecast
    shifts: list[tuple[int, FloatArray]]


class PartitionResult:
    """What is said of the rows of a block, in whichever order they are learned."""

    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        self.shifts: list[tuple[int, FloatArray]] = []
        self._order: list[IntArray] = []
        self._forecasts: list[Forecast] = []

    def select_rows(self, places: IntArray) -> Rows:
        """The rows at these places, in their order."""
        return self.rows if len(places) == len(self.rows.y) else take_rows(self.rows, places)

    def add(self, places: IntArray, said: Forecast) -> None:
        if len(places):
            self._order.append(places)
            self._forecasts.append(said)

    def join_forecasts(self) -> Forecast:
        """In the order of the rows."""
        order = np.concatenate(self._order)
        self.shifts.sort(key=lambda one: one[0])
        said = said_of.join_forecasts(self._forecasts)
        if bool(np.all(order[1:] > order[:-1])):
            return said
        back = np.empty_like(order)
        back[order] = np.arange(len(order))
        return said_of.select_rows(said, back)


def group_places(numbers: IntArray, places: IntArray) -> dict[int, list[int]]:
    """Places by number, in their order."""
    groups: dict[int, list[int]] = {}
    for at, number in zip(places.tolist(), numbers[places].tolist(), strict=True):
        groups.setdefault(number, []).append(at)
    return groups
