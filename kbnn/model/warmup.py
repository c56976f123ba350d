"""The rows a model keeps: the first ones until their scale is known, the last ones ever after.

At the start rows are held, at most the last 512, until 32 rows with a target have come and every
target has varied; then their scale is taken and they are learned in order.

A later change of scale carries over what the rows said about the weights as they were. That is
exact for a linear model; a network that goes on in another scale is another function of the same
weights, and what was said about its units counts for less. The last 2,048 rows are therefore
learned once more after a large change. While they are all that was ever learned, the network starts
anew from its prior, as if the better scale had been known in advance.

Kept rows are part of the model: nothing is lost between two runs.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

import numpy as np

from kbnn.core.normal import FloatArray
from kbnn.model.rows import Rows
from kbnn.task.base import Task

WARM_UP_ROWS = 32
MOST_HELD = 512
MOST_KEPT = 2048


class KeptRows(NamedTuple):
    """Rows in the user's units; x_sd has no columns where every input was exact.

    `number` counts the rows of the stream from 1.
    """

    x: FloatArray
    x_sd: FloatArray
    y: FloatArray
    weight: FloatArray
    number: FloatArray


class Kept:
    """The last `most` rows; how they came grouped makes no difference."""

    def __init__(self, most: int, targets: int, rows: KeptRows | None = None) -> None:
        self.most, self.targets = most, targets
        self._parts: deque[KeptRows] = deque()
        self._count = 0
        if rows is not None:
            self._append(rows)

    def __len__(self) -> int:
        return min(self._count, self.most)

    def add(self, rows: Rows, width: int, first: int) -> None:
        """Keep more rows, `width` columns of x, the first of them row `first` of the stream."""
        n = rows.y.shape[0]
        last = slice(max(0, n - self.most), n)
        exact = rows.x_sd is None or not rows.x_sd.any()
        self._append(
            KeptRows(
                rows.x[last, :width].copy(),
                np.zeros((n - last.start, 0))
                if exact or rows.x_sd is None
                else rows.x_sd[last, :width].copy(),
                rows.y[last].copy(),
                np.ones(n - last.start) if rows.weight is None else rows.weight[last].copy(),
                np.arange(first + last.start, first + n, dtype=np.float64),
            )
        )

    def _append(self, part: KeptRows) -> None:
        if not len(part.y):
            return
        self._parts.append(part)
        self._count += len(part.y)
        while self._count - len(self._parts[0].y) >= self.most:
            self._count -= len(self._parts.popleft().y)

    def clear(self) -> None:
        """Keep nothing so far."""
        self._parts.clear()
        self._count = 0

    def rows(self, width: int = 0) -> KeptRows:
        """All rows kept, oldest first, x at least so wide: what was not known then was 0."""
        parts = list(self._parts) or [nothing(self.targets)]
        width = max(width, *(part.x.shape[1] for part in parts))
        exact = not any(part.x_sd.any() for part in parts)
        joined = KeptRows(
            np.concatenate([widened(part.x, width) for part in parts]),
            np.concatenate([widened(part.x_sd, 0 if exact else width) for part in parts]),
            *(np.concatenate([part[at] for part in parts]) for at in (2, 3, 4)),
        )
        whole = KeptRows(*(array[-self.most :] for array in joined))
        if whole.x_sd.shape[1] and not whole.x_sd.any():
            whole = whole._replace(x_sd=np.zeros((len(whole.y), 0)))
        self._parts = deque([whole] if len(whole.y) else [])
        self._count = len(whole.y)
        return whole


def nothing(targets: int) -> KeptRows:
    """No rows."""
    none = np.zeros((0, 0))
    return KeptRows(none, none, np.zeros((0, targets)), np.zeros(0), np.zeros(0))


def widened(rows: FloatArray, width: int) -> FloatArray:
    """The columns of x, and zeros on their right up to `width`."""
    missing = width - rows.shape[1]
    return np.pad(rows, ((0, 0), (0, missing))) if missing > 0 else rows[:, :width]


def rows_to_hold(task: Task, held: FloatArray, y: FloatArray) -> tuple[int, bool]:
    """How many of the rows with these targets are held, and whether the model then begins.

    `held` are the targets held before; a row without a target counts for nothing.
    """
    labelled = np.flatnonzero(np.isfinite(y).any(axis=1))
    missing = max(1, WARM_UP_ROWS - len(held))
    for end in range(missing, len(labelled) + 1):
        seen = np.concatenate((held, y[labelled[:end]]))[-MOST_HELD:]
        if task.varied(seen):
            return int(labelled[end - 1]) + 1, True
    return len(y), False
