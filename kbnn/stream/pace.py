"""How many rows make a block: as many as keep whoever uses it busy for a fifth of a second.

Signals, checkpoints and progress wait for the end of a block, and a row may take a microsecond or,
in a very large network, a second. To open and close a belief takes as long as 15 to 50 of its rows,
so there is a least size. No result depends on where a stream is cut.
"""

from __future__ import annotations

TARGET_BATCH_SECONDS = 0.2
MIN_BATCH_ROWS = 128
MAX_BATCH_GROWTH = 4


class BatchSizer:
    """The size of the next block, at most `most`."""

    def __init__(self, max_rows: int) -> None:
        self.max_rows = max_rows
        self.rows = min(MIN_BATCH_ROWS, max_rows)

    def record_duration(self, rows: int, seconds: float) -> None:
        """A block of so many rows was used for so long."""
        fits = int(rows * TARGET_BATCH_SECONDS / max(seconds, 1e-9))
        self.rows = min(max(fits, MIN_BATCH_ROWS), MAX_BATCH_GROWTH * self.rows, self.max_rows)
