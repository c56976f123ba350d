"""Rows beside those before them: lags filled in, and targets as changes where those are learned."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kbnn.core.normal import FloatArray
from kbnn.model.lags import History, compute_lag_window, look_up_lags
from kbnn.model.rows import Rows
from kbnn.model.schema import Place, Schema
from kbnn.task.forecast import Forecast, shift_forecast


class LaggedBatch(NamedTuple):
    """Rows with their lags, and what their targets are the change from (n, T); None: from 0."""

    rows: Rows
    base: FloatArray | None

    @property
    def training_rows(self) -> Rows:
        """The rows as they are learned."""
        return self.rows if self.base is None else self.rows._replace(y=self.rows.y - self.base)

    def restore_level(self, said: Forecast) -> Forecast:
        """What was said of changes, said of the targets."""
        return said if self.base is None else shift_forecast(said, self.base)


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
        self.lag_window = compute_lag_window(self.lags, step)

    def make_history(self) -> History:
        """A past in which nothing was."""
        return History(len(self.columns), len(self._targets))

    def make_history_like(self, history: History) -> History:
        """A past in which nothing was, but for what was learned of ranges and errors."""
        empty = self.make_history()
        empty.low, empty.high, empty.missed = history.low, history.high, history.missed
        return empty.copy()

    def add_lags(self, history: History, rows: Rows) -> LaggedBatch:
        """Rows beside what was before them; the history moves on."""
        placed = self.look_up_lags(history, rows)
        self.append_rows(history, rows)
        return placed

    def append_rows(self, history: History, rows: Rows) -> None:
        """Rows become part of what was before."""
        history.append_rows(
            _get_times(rows), self._select_lagged_values(rows), rows.y, self.lag_window
        )

    def look_up_lags(self, history: History, rows: Rows) -> LaggedBatch:
        """Rows beside what was before them."""
        values, time = self._select_lagged_values(rows), _get_times(rows)
        found = look_up_lags(
            self.lags, self.columns, history, time, values, rows.y, self.lag_window
        )
        x = rows.x.copy()
        x[:, self.places] = found.lags
        return LaggedBatch(rows._replace(x=x), found.base if self.changes else None)

    def _select_lagged_values(self, rows: Rows) -> FloatArray:
        """What the columns that lags look at hold (n, columns)."""
        out = np.empty((len(rows.y), len(self.columns)))
        for k, (name, at) in enumerate(zip(self.columns, self._inputs, strict=True)):
            out[:, k] = rows.y[:, self._targets.index(name)] if at < 0 else rows.x[:, at]
        return out


def _get_times(rows: Rows) -> FloatArray:
    return np.full((len(rows.y), 2), np.nan) if rows.time is None else rows.time
