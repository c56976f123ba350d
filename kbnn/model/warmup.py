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
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from kbnn.core.normal import FloatArray
from kbnn.model.rows import Rows
from kbnn.task.base import Early

WARM_UP_ROWS = 32
MOST_HELD = 512
MOST_CELLS = 1 << 18
"""Values of inputs that are kept; of wide rows fewer are, but never less than 512."""


class KeptRows(NamedTuple):
    """Rows in the user's units; x_sd has no columns where every input was exact.

    `number` counts the rows of the stream from 1; `trust` is the probability that the target was
    no outlier.
    """

    x: FloatArray
    x_sd: FloatArray
    y: FloatArray
    weight: FloatArray
    number: FloatArray
    trust: FloatArray


class _Part(NamedTuple):
    """Rows as they came: exact where x_sd is None, of weight 1 where that is, numbered in turn."""

    x: FloatArray
    x_sd: FloatArray | None
    y: FloatArray
    weight: FloatArray | None
    first: int
    trust: FloatArray | None

    def goes_on(self, other: _Part) -> bool:
        """Whether another one comes right after it and is like it."""
        return (
            other.first == self.first + len(self.y)
            and other.x.shape[1] == self.x.shape[1]
            and (other.x_sd is None) == (self.x_sd is None)
            and (other.weight is None) == (self.weight is None)
            and (other.trust is None) == (self.trust is None)
        )

    def whole(self, width: int, exact: bool, unseen: FloatArray) -> KeptRows:
        """The same in full, x and x_sd of that width."""
        n = len(self.y)
        sd = np.zeros((n, 0)) if exact or self.x_sd is None else self.x_sd
        return KeptRows(
            widened(self.x, width, unseen),
            widened(sd, 0 if exact else width),
            self.y,
            np.ones(n) if self.weight is None else self.weight,
            np.arange(self.first, self.first + n, dtype=np.float64),
            np.ones(n) if self.trust is None else self.trust,
        )


class Kept:
    """The last `most` rows; how they came grouped makes no difference."""

    def __init__(self, most: int, targets: int, rows: KeptRows | None = None) -> None:
        self.most, self.targets = most, targets
        self._rest = nothing(targets) if rows is None else rows
        self._parts: deque[_Part] = deque()
        self._count = len(self._rest.y)
        self.unseen = np.zeros(0)
        """What a column of x held before it was known (see `unseen`); 0 beyond its end."""

    def __len__(self) -> int:
        return min(self._count, self.most)

    def add(self, rows: Rows, width: int, first: int, trust: FloatArray | None = None) -> None:
        """Keep more rows, `width` columns of x, the first of them row `first` of the stream."""
        start = max(0, len(rows.y) - self.most)
        exact = rows.x_sd is None or not np.count_nonzero(rows.x_sd)
        self._append(
            _Part(
                rows.x[start:, :width].copy(),
                None if rows.x_sd is None or exact else rows.x_sd[start:, :width].copy(),
                rows.y[start:].copy(),
                None if rows.weight is None else rows.weight[start:].copy(),
                first + start,
                None if trust is None else trust[start:],
            )
        )

    def _append(self, part: _Part) -> None:
        self._parts.append(part)
        self._count += len(part.y)
        oldest = len(self._rest.y)
        if self._count - oldest >= self.most:
            if oldest:
                self._rest = nothing(self.targets)
                self._count -= oldest
            while self._count - len(self._parts[0].y) >= self.most:
                self._count -= len(self._parts.popleft().y)

    def clear(self) -> None:
        """Keep nothing so far."""
        self._parts.clear()
        self._rest = nothing(self.targets)
        self._count = 0

    def trusted(self, trust: FloatArray) -> None:
        """Note how far each row kept is trusted now."""
        rows = self.rows()
        self._rest = rows._replace(trust=trust[len(trust) - len(rows.y) :])

    def drop_before(self, number: int) -> None:
        """Keep only rows from that number on."""
        rows = self.rows()
        self._rest = KeptRows._make(array[rows.number >= number] for array in rows)
        self._count = len(self._rest.y)

    def copy(self) -> Kept:
        """The same rows; what is added later goes to one of the two."""
        copied = Kept(self.most, self.targets, self.rows())
        copied.unseen = self.unseen
        return copied

    def rows(self, width: int = 0) -> KeptRows:
        """All rows kept, oldest first, x at least so wide."""
        rest, parts = self._rest, self._parts
        width = max(width, rest.x.shape[1], *(part.x.shape[1] for part in parts))
        exact = not rest.x_sd.any() and all(part.x_sd is None for part in parts)
        first = rest._replace(
            x=widened(rest.x, width, self.unseen),
            x_sd=widened(rest.x_sd, 0 if exact else width),
        )
        whole = [first, *(part.whole(width, exact, self.unseen) for part in _runs(parts))]
        joined = KeptRows._make(np.concatenate(arrays) for arrays in zip(*whole, strict=True))
        last = KeptRows._make(array[-self.most :] for array in joined)
        if not last.x_sd.any():
            last = last._replace(x_sd=np.zeros((len(last.y), 0)))
        self._rest, self._parts, self._count = last, deque(), len(last.y)
        return last


def _runs(parts: Iterable[_Part]) -> Iterator[_Part]:
    """Parts that follow one another and are alike as one: rows may have come one by one."""
    waiting: list[_Part] = []
    for part in parts:
        if waiting and not waiting[-1].goes_on(part):
            yield _joined(waiting)
            waiting = []
        waiting.append(part)
    if waiting:
        yield _joined(waiting)


def _joined(parts: list[_Part]) -> _Part:
    if len(parts) == 1:
        return parts[0]
    x, x_sd, y, weight, firsts, trust = zip(*parts, strict=True)
    return _Part(
        np.concatenate(x),
        None if x_sd[0] is None else np.concatenate(x_sd),
        np.concatenate(y),
        None if weight[0] is None else np.concatenate(weight),
        firsts[0],
        None if trust[0] is None else np.concatenate(trust),
    )


def nothing(targets: int) -> KeptRows:
    """No rows."""
    none = np.zeros((0, 0))
    return KeptRows(none, none, np.zeros((0, targets)), np.zeros(0), np.zeros(0), np.zeros(0))


def unseen(indicators: FloatArray) -> FloatArray:
    """What columns of x held before they were known: a category was not there, a number missing."""
    return np.where(indicators > 0.0, 0.0, np.nan)


def widened(rows: FloatArray, width: int, fill: FloatArray | None = None) -> FloatArray:
    """The columns of x, and on their right up to `width` those of `fill`, or zeros."""
    known = rows.shape[1]
    if known >= width:
        return rows[:, :width]
    wide = np.zeros((len(rows), width))
    if fill is not None and len(fill) > known:
        wide[:, : len(fill)] = fill[:width]
    wide[:, :known] = rows
    return wide


def rows_kept(inputs: int, most: int) -> int:
    """How many rows of so many inputs are kept."""
    return min(most, max(MOST_HELD, MOST_CELLS // max(inputs, 1)))


def window(count: int) -> tuple[int, int]:
    """Which row the next `room` rows are told from, after `count` rows with a target: its place.

    It moves on by half of what is held at a time, so that telling costs little, and depends on
    counts alone.
    """
    half = MOST_HELD // 2
    return max(0, count // half - 1) * half, half - count % half


def rows_to_hold(early: Early, held: int, y: FloatArray, room: int) -> tuple[int, bool]:
    """How many of the rows with these targets are held, and whether the model then begins.

    So many are held already. A row without a target counts for nothing, and of those with one
    there are `room` at most.
    """
    labelled = np.flatnonzero(np.isfinite(y).any(axis=1))
    if len(labelled) > room:
        y, labelled = y[: labelled[room]], labelled[:room]
    needed = max(1, WARM_UP_ROWS - held, early.varied_after(y[labelled]))
    if needed > len(labelled):
        return len(y), False
    return int(labelled[needed - 1]) + 1, True
