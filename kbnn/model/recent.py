"""The last rows of a stream, kept for the day a scale turns out to be wrong.

A change of units carries over what the rows said about the weights as they were. That is exact for
a linear model; a network that goes on in other units is another function of the same weights, and
what was said about its units counts for less. The last 2,048 rows are therefore learned once more
after a large change. While they are all that was ever learned, the network starts anew from its
prior, as if the better units had been known in advance.
"""

from __future__ import annotations

from collections import deque

import numpy as np

from kbnn.core.normal import FloatArray
from kbnn.model.holding import Held

MOST_KEPT = 2048


class Recent:
    """Rows in the user's units; how they came grouped makes no difference."""

    def __init__(self, rows: Held | None = None) -> None:
        self._parts: deque[Held] = deque()
        self._count = 0
        if rows is not None:
            self.add(rows.x, rows.x_sd, rows.y, rows.weight, rows.number)

    def __len__(self) -> int:
        return min(self._count, MOST_KEPT)

    def add(
        self,
        x: FloatArray,
        x_sd: FloatArray | None,
        y: FloatArray,
        weight: FloatArray,
        number: FloatArray,
    ) -> None:
        """Keep more rows, and let the oldest go."""
        if not len(y):
            return
        last = slice(-MOST_KEPT, None)
        sd = np.zeros((len(x), 0)) if x_sd is None or not np.any(x_sd) else x_sd
        self._parts.append(
            Held(
                x[last].copy(),
                sd[last].copy(),
                y[last].copy(),
                weight[last].copy(),
                number[last].copy(),
            )
        )
        self._count += len(self._parts[-1])
        while self._count - len(self._parts[0]) >= MOST_KEPT:
            self._count -= len(self._parts.popleft())

    def clear(self) -> None:
        """Keep nothing so far."""
        self._parts.clear()
        self._count = 0

    def rows(self, targets: int) -> Held:
        """All rows kept, oldest first; x_sd has no columns where every input was exact."""
        all_rows = Held.nothing(targets)
        if self._parts:
            width = max(part.x.shape[1] for part in self._parts)
            for part in self._parts:
                part.widen(width)
            all_rows = Held(
                *(
                    np.concatenate([getattr(part, name) for part in self._parts])
                    for name in ("x", "x_sd", "y", "weight", "number")
                )
            )
            all_rows.forget_oldest(MOST_KEPT)
        if not np.any(all_rows.x_sd):
            all_rows.x_sd = np.zeros((len(all_rows), 0))
        return all_rows
