"""How many rows make a block: as many as keep whoever uses it busy for a fifth of a second.

Signals, checkpoints and progress wait for the end of a block, and a row may take a microsecond or,
in a very large network, a second. To open and close a belief takes as long as 15 to 50 of its rows,
so there is a least size. No result depends on where a stream is cut.
"""

from __future__ import annotations

SECONDS = 0.2
LEAST = 128
GROWTH = 4


class Pace:
    """The size of the next block, at most `most`."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.rows = min(LEAST, most)

    def took(self, rows: int, seconds: float) -> None:
        """A block of so many rows was used for so long."""
        fits = int(rows * SECONDS / max(seconds, 1e-9))
        self.rows = min(max(fits, LEAST), GROWTH * self.rows, self.most)
