"""An eye on the first negative number of each column: a -999 among measurements may be a gap.

Only the first is looked at, in whatever rows it comes, so that a column that goes below 0 as a
matter of course is never remarked on, and any cut of a stream says the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import numpy.typing as npt

from kbnn.stream.chunk import Chunk, shorten
from kbnn.stream.hints import Notice
from kbnn.stream.values import FloatArray

SENTINEL_VALUES: Final = (-99.0, -999.0, -9999.0, -99999.0)


class SentinelDetector:
    """Tells, once of each column, of a first negative number that many write for a gap."""

    def __init__(self, notice: Notice) -> None:
        self._notice = notice
        self._decided: set[str] = set()

    def check_chunk(
        self, values: Mapping[str, FloatArray], good: npt.NDArray[np.bool_], chunk: Chunk
    ) -> None:
        """Look at the rows of a chunk that are used, in order."""
        for name, column in values.items():
            if name in self._decided or not np.fmin.reduce(column, initial=0.0) < 0.0:
                continue
            below = np.flatnonzero((column < 0.0) & good)
            if not len(below):
                continue
            self._decided.add(name)
            value = float(column[below[0]])
            if value in SENTINEL_VALUES:
                row, shown = chunk.first_row + int(below[0]), f"{value:.15g}"
                self._notice(
                    f"column '{shorten(name)}': {shown} in row {row:,} is its first negative "
                    f"number and is read as one (--na {shown} if it is a gap)"
                )
