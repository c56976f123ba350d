"""Lags: values of columns some rows, or some time, before a row.

A lag is a column of x that the model fills in from earlier rows as they were learned, never from
the row itself. The values needed are kept in a `History`, which is part of the model, so that lags
do not depend on how a stream is cut into batches. If the last value of the target is a lag, the
model learns the change from it, which is easier to predict than the next level; `LagValues.base`
is that last value.
"""

from __future__ import annotations

import re
from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np

from kbnn.array_types import FloatArray
from kbnn.core.series_models import SeriesState, learn_series
from kbnn.errors import UsageError

MAX_LAGS: Final = 64
MIN_HISTORY_ROWS: Final = 240
"""Rows that are always kept: to be plotted beside a forecast, and to score earlier forecasts."""
MAX_HISTORY_ROWS: Final = 100_000
"""Largest number of rows in a history."""

_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)(s|min|h|d|w)")
_SECONDS: Final = {"s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}


@dataclass(frozen=True)
class Lag:
    """One column of x: a column `rows` rows ago, or `seconds` seconds ago if `rows` is 0."""

    name: str  # of the column of x
    column: str
    rows: int
    seconds: float = 0.0
    optional: bool = False  # whether only one network of an ensemble sees it


class LagSpec(NamedTuple):
    """A lag as written by the user; without a column it applies to every target."""

    column: str | None
    text: str  # 24, 7d
    rows: int
    seconds: float


def parse_lags(text: str) -> tuple[LagSpec, ...]:
    """Parse `1,2,24` or `temp:1,2;load:1h,7d`; raise UsageError if it is malformed."""
    found = []
    for group in text.split(";"):
        column, colon, listed = group.rpartition(":")
        for item in (listed if colon else group).split(","):
            found.append(_parse_lag(column.strip() if colon else None, item.strip()))
    if len(found) > MAX_LAGS:
        raise UsageError(f"--lags: at most {MAX_LAGS} lags are allowed, not {len(found)}")
    return tuple(dict.fromkeys(found))


def _parse_lag(column: str | None, item: str) -> LagSpec:
    if item.isdigit() and 1 <= int(item) <= MAX_HISTORY_ROWS:
        return LagSpec(column, item, int(item), 0.0)
    duration = _DURATION.fullmatch(item)
    if duration and float(duration[1]) > 0.0:
        return LagSpec(column, item, 0, float(duration[1]) * _SECONDS[duration[2]])
    raise UsageError(
        f"--lags takes rows (1,2,24), durations (1h,7d) or columns (temp:1,2;load:24), not '{item}'"
    )


class History:
    """The last rows that lags need, the last value and the range of each target, and series models.

    The first target is learned by statistical models (`series`), unless they are left out.
    """

    def __init__(self, columns: int, targets: int, series: SeriesState | None = None) -> None:
        self.series = series
        self.time = np.zeros((0, 2))
        self.values = np.zeros((0, columns))
        self.last = np.full(targets, np.nan)
        self.low = np.full(targets, np.nan)
        self.high = np.full(targets, np.nan)

    def copy(self) -> History:
        """Return an independent copy."""
        other = History(self.values.shape[1], len(self.last))
        other.__dict__.update({name: array.copy() for name, array in self.arrays().items()})
        other.series = self.series
        return other

    def arrays(self) -> dict[str, FloatArray]:
        """Return all but the series models, by name."""
        return {name: part for name, part in self.__dict__.items() if name != "series"}

    def mark(self) -> dict[str, Any]:
        """Return a mark with which `reset` drops all rows appended later."""
        return dict(self.__dict__)

    def reset(self, mark: dict[str, Any]) -> None:
        """Go back to a mark; valid because arrays are replaced and never modified in place."""
        self.__dict__.update(mark)

    def append_rows(
        self, time: FloatArray, values: FloatArray, y: FloatArray, window: LagWindow
    ) -> None:
        """Append rows and drop those that no lag can reach any more."""
        self.time = np.concatenate((self.time, time))
        self.values = np.concatenate((self.values, values))
        start = window.find_start(self.time[:, 0])
        self.time, self.values = self.time[start:], self.values[start:]
        if self.series is not None:
            self.series, _ = learn_series(self.series, y[:, 0])
        self.last, self.low, self.high = self.last.copy(), self.low.copy(), self.high.copy()
        for at, column in enumerate(y.T):
            seen = column[np.isfinite(column)]
            if len(seen):
                self.last[at] = seen[-1]
                self.low[at] = np.fmin(self.low[at], seen.min())
                self.high[at] = np.fmax(self.high[at], seen.max())


class LagWindow(NamedTuple):
    """How far lags look back, in rows and in seconds; times match within `slack` seconds."""

    rows: int
    seconds: float
    slack: float

    def find_start(self, instants: FloatArray) -> int:
        """Return the first of the given rows that the next row can look back to."""
        first = max(0, len(instants) - self.rows)
        if self.seconds:
            newest = np.fmax.reduce(instants, initial=-np.inf)
            recent = instants >= newest - self.seconds - self.slack
            first = min(first, int(np.argmax(recent)) if recent.any() else len(instants))
        return max(first, len(instants) - MAX_HISTORY_ROWS)


class LagValues(NamedTuple):
    """The lags of rows (n, lags), and the last value of each target before them (n, T)."""

    lags: FloatArray
    base: FloatArray


def compute_lag_window(lags: Sequence[Lag], step: float) -> LagWindow:
    """Compute how far lags look back; a time matches if it is within half a step.

    The window is twice the longest time lag, so that late rows also find their lags.
    """
    rows = max((lag.rows for lag in lags), default=0)
    seconds = max((lag.seconds for lag in lags), default=0.0)
    return LagWindow(max(rows, MIN_HISTORY_ROWS), 2.0 * seconds, 0.5 * step if step else 0.5)


def look_up_lags(
    lags: Sequence[Lag],
    columns: Sequence[str],
    history: History,
    time: FloatArray,
    values: FloatArray,
    y: FloatArray,
    window: LagWindow,
) -> LagValues:
    """Look up the lags of rows; each row sees only the rows before it."""
    before, n = len(history.values), len(y)
    every = np.concatenate((history.values, values))
    back = np.array([lag.rows for lag in lags], np.int64)
    place = np.array([columns.index(lag.column) for lag in lags], np.int64)
    source = np.arange(before, before + n)[:, None] - back
    known = (source >= 0) & (back > 0)
    out = np.where(known, every[np.where(known, source, 0), place], np.nan)
    if window.seconds:
        _fill_time_lags(lags, columns, history, time, every, out, window)
    return LagValues(out, find_last_values(history.last, y))


def find_last_values(last: FloatArray, y: FloatArray) -> FloatArray:
    """Return the last known value of each target before each row."""
    rows = np.concatenate((last[None], y))[:-1]
    known = np.where(np.isfinite(rows), np.arange(len(rows))[:, None], 0)
    place = np.maximum.accumulate(known, axis=0)
    return np.take_along_axis(rows, place, axis=0)


def _fill_time_lags(
    lags: Sequence[Lag],
    columns: Sequence[str],
    history: History,
    time: FloatArray,
    every: FloatArray,
    out: FloatArray,
    window: LagWindow,
) -> None:
    """Fill in time lags from the row with the nearest instant; of equals, the latest row."""
    before = len(history.values)
    instants = np.concatenate((history.time[:, 0], time[:, 0]))
    wanted = [(at, lag.seconds, columns.index(lag.column)) for at, lag in enumerate(lags)
              if not lag.rows]  # fmt: skip
    first, newest = 0, -np.inf
    order: list[tuple[float, int]] = []
    for row, now in enumerate(instants.tolist()):
        if row >= before and np.isfinite(now):
            oldest = newest - window.seconds - window.slack
            while first < row and not instants[first] >= oldest:
                first += 1
            for at, seconds, column in wanted:
                found = _find_nearest_row(
                    order, now - seconds, window.slack, max(first, row - MAX_HISTORY_ROWS)
                )
                if found is not None:
                    out[row - before, at] = every[found, column]
        if np.isfinite(now):
            newest = max(newest, now)
            insort(order, (now, row))


def _find_nearest_row(
    order: list[tuple[float, int]], wanted: float, slack: float, first: int
) -> int | None:
    """Return the row nearest to an instant within `slack`; of equals, the last one."""
    at = bisect_left(order, (wanted - slack, -1))
    best: tuple[float, int] | None = None
    while at < len(order) and order[at][0] <= wanted + slack:
        instant, row = order[at]
        if row >= first and (best is None or (abs(instant - wanted), -row) < best):
            best = (abs(instant - wanted), -row)
        at += 1
    return None if best is None else -best[1]
