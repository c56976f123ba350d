"""Rows beside those before them: lags filled in, and targets as changes where those are learned."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kbnn.core.normal import FloatArray
from kbnn.model.lags import History, past, reach_of
from kbnn.model.rows import Rows
from kbnn.model.schema import Place, Schema
from kbnn.task.forecast import Forecast, shifted


class Placed(NamedTuple):
    """Rows with their lags, and what their targets are the change from (n, T); None: from 0."""

    rows: Rows
    base: FloatArray | None

    @property
    def changes(self) -> Rows:
        """The rows as they are learned."""
        return self.rows if self.base is None else self.rows._replace(y=self.rows.y - self.base)

    def level(self, said: Forecast) -> Forecast:
        """What was said of changes, said of the targets."""
        return said if self.base is None else shifted(said, self.base)


class Timeline:
    """How a schema's lags are filled in; what was before is a `History` that moves on."""

    def __init__(self, schema: Schema) -> None:
        self.lags = schema.lags
        self.changes = schema.changes
        self.columns = list(dict.fromkeys(lag.column for lag in schema.lags))
        at = {place: index for index, place in enumerate(schema.layout)}
        self.places = [at[Place(lag.name, None)] for lag in schema.lags]
        self._targets = schema.targets
        self._inputs = [at.get(Place(name, None), -1) for name in self.columns]
        step = 0.0 if schema.clock is None else schema.clock.step
        self.reach = reach_of(self.lags, step)

    def begin(self) -> History:
        """A past in which nothing was."""
        return History(len(self.columns), len(self._targets))

    def begin_like(self, history: History) -> History:
        """A past in which nothing was, but for what was learned of ranges and errors."""
        empty = self.begin()
        empty.low, empty.high, empty.missed = history.low, history.high, history.missed
        return empty.copy()

    def place(self, history: History, rows: Rows) -> Placed:
        """Rows beside what was before them; the history moves on."""
        placed = self.look(history, rows)
        self.move(history, rows)
        return placed

    def move(self, history: History, rows: Rows) -> None:
        """Rows become part of what was before."""
        history.move(_times(rows), self._values(rows), rows.y, self.reach)

    def look(self, history: History, rows: Rows) -> Placed:
        """Rows beside what was before them."""
        values, time = self._values(rows), _times(rows)
        found = past(self.lags, self.columns, history, time, values, rows.y, self.reach)
        x = rows.x.copy()
        x[:, self.places] = found.lags
        return Placed(rows._replace(x=x), found.base if self.changes else None)

    def _values(self, rows: Rows) -> FloatArray:
        """What the columns that lags look at hold (n, columns)."""
        out = np.empty((len(rows.y), len(self.columns)))
        for k, (name, at) in enumerate(zip(self.columns, self._inputs, strict=True)):
            out[:, k] = rows.y[:, self._targets.index(name)] if at < 0 else rows.x[:, at]
        return out


def _times(rows: Rows) -> FloatArray:
    return np.full((len(rows.y), 2), np.nan) if rows.time is None else rows.time
