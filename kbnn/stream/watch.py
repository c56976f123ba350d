"""An eye on the clock: rows that go back, double or leave a gap are learned, and told of once."""

from __future__ import annotations

import numpy as np

from kbnn.model.schema import Schema
from kbnn.stream.chunk import Chunk
from kbnn.stream.hints import Notice
from kbnn.stream.values import FloatArray


class ClockMonitor:
    """Tells, once each, of what is unusual about the order of rows."""

    def __init__(self, schema: Schema, notice: Notice, *, keyed: bool = False) -> None:
        """`keyed`: rows are of many series, each with a past of its own."""
        self._clock = None if keyed else schema.clock
        self._by_rows = any(lag.rows for lag in schema.lags)
        self._notice = notice
        self._last = np.nan
        self._reported: set[str] = set()

    def check_chunk(self, time: FloatArray | None, chunk: Chunk) -> None:
        """Look at the rows of a chunk, in order."""
        clock = self._clock
        if time is None or clock is None or not clock.step:
            return
        instants = time[:, 0]
        known = np.flatnonzero(np.isfinite(instants))
        if not len(known):
            return
        passed = np.diff(np.concatenate(([self._last], instants[known])))
        self._last = float(instants[known[-1]])
        ways = [("back", passed < 0.0), ("twice", passed == 0.0)]
        if self._by_rows:
            ways.append(("gap", passed > 1.5 * clock.step))
        for way, found in ways:
            if way not in self._reported and found.any():
                self._reported.add(way)
                at = int(known[np.argmax(found)])
                self._notice(f"{chunk.source}: {_CLOCK_NOTICES[way].format(chunk.first_row + at)}")


_CLOCK_NOTICES = {
    "back": "the clock goes back in row {:,}: rows are taken in the order they come (where "
    "another series begins, --key COLUMN keeps a model for each)",
    "twice": "row {:,} has the time of the row above it: the two are taken one after the other",
    "gap": "there is a gap before row {:,}: lags count rows (--lags 1h,1d count time)",
}
