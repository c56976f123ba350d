"""The rows a model keeps: the first ones until their scale is known, the last ones ever after.

At the start rows are held, at most the last 512, until 32 rows with a target have come and every
target has varied; then their scale is taken and they are learned in order.

A later change of scale carries over what the rows said about the weights as they were. That is
exact for a linear model; a network that goes on in another scale is another function of the same
weights, and what was said about its neurons counts for less. The last 2,048 rows are therefore
learned once more after a large change. While they are all that was ever learned, the network starts
anew from its prior, as if the better scale had been known in advance.

Kept rows are part of the model: nothing is lost between two runs.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kbnn.array_types import FloatArray
from kbnn.core import kernel
from kbnn.data.batch import Rows, pad_columns
from kbnn.targets.base import ColdStart

WARM_UP_ROWS = 32
MAX_HELD_ROWS = 512
MAX_BUFFER_CELLS = 1 << 18
"""Values of inputs that are kept; of wide rows fewer are, but never less than 512."""
MIN_BUFFER_CAPACITY_ROWS = 16
"""Rows that there is room for at least, where one comes after another."""


class BufferedRows(NamedTuple):
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


class ReplayBuffer:
    """The last `most` rows; how they came grouped makes no difference.

    Rows are written behind one another into arrays with room for more, and when there is none, the
    last rows move to new ones: what `rows` has handed out stays as it is.
    """

    def __init__(self, most: int, targets: int, rows: BufferedRows | None = None) -> None:
        self.max_rows, self.targets = most, targets
        self._set_rows(make_empty_rows(targets) if rows is None else rows)
        self.fill_values = np.zeros(0)
        """What a column of x held before it was known (see `unseen`); 0 beyond its end."""

    def _set_rows(self, rows: BufferedRows) -> None:
        self._room, self._stop = rows, len(rows.y)

    def __len__(self) -> int:
        return min(self._stop, self.max_rows)

    def add(self, rows: Rows, width: int, first: int, trust: FloatArray | None = None) -> None:
        """Keep more rows, `width` columns of x, the first of them row `first` of the stream."""
        skipped = max(0, len(rows.y) - self.max_rows)
        number = first + skipped
        at, stop = self._stop, self._stop + len(rows.y) - skipped
        exact = rows.x_sd is None or not np.count_nonzero(rows.x_sd)
        room = self._room
        known = room.x.shape[1]
        if stop > len(room.y) or width > known or not (exact or room.x_sd.shape[1]):
            self._make_room(stop - at, max(width, known), exact)
            room, at = self._room, self._stop
            stop, known = at + len(rows.y) - skipped, room.x.shape[1]
        x, y = rows.x[:, :width], rows.y
        if skipped or width < known:
            x, y = pad_columns(x[skipped:], known, self.fill_values), y[skipped:]
        kernel.copy_rows([room.x, room.y], at, (x, y))
        if rows.x_sd is not None and not exact:
            room.x_sd[at:stop] = pad_columns(rows.x_sd[skipped:, :width], known)
        if rows.weight is not None:
            room.weight[at:stop] = rows.weight[skipped:]
        if trust is not None:
            room.trust[at:stop] = trust[skipped:]
        room.number[at:stop] = number if stop - at == 1 else np.arange(number, number + stop - at)
        self._stop = stop

    def _make_room(self, more: int, width: int, exact: bool) -> None:
        """New arrays that have room for more rows; what is not said of a row is 0 or 1."""
        kept = self.rows(width)
        if more >= self.max_rows:  # none of those will be among the last
            kept = BufferedRows._make(array[:0] for array in kept)
        held = len(kept.y)
        size = held + max(more, min(held, self.max_rows // 2), MIN_BUFFER_CAPACITY_ROWS)
        exact = exact and not kept.x_sd.shape[1]
        room = BufferedRows(
            np.empty((size, width)),
            np.zeros((size, 0 if exact else width)),
            np.empty((size, self.targets)),
            np.ones(size),
            np.empty(size),
            np.ones(size),
        )
        for new, old in zip(room, kept, strict=True):
            if old.shape[1:] == new.shape[1:]:
                new[:held] = old
        self._room, self._stop = room, held

    def mark(self) -> tuple[BufferedRows, int, FloatArray]:
        """What `reset` needs to forget all rows that are added later."""
        return self._room, self._stop, self.fill_values

    def reset(self, mark: tuple[BufferedRows, int, FloatArray]) -> None:
        """Go back to a mark; what was written behind its rows is blank again."""
        self._room, self._stop, self.fill_values = mark
        if self._stop < len(self._room.y):
            self._room.x_sd[self._stop :] = 0.0
            self._room.weight[self._stop :] = self._room.trust[self._stop :] = 1.0

    def clear(self) -> None:
        """Keep nothing so far."""
        self._set_rows(make_empty_rows(self.targets))

    def set_trust(self, trust: FloatArray) -> None:
        """Note how far each row kept is trusted now, or each of the last ones."""
        rows = self.rows()
        older = max(0, len(rows.y) - len(trust))
        last = trust[len(trust) - len(rows.y) + older :]
        self._set_rows(rows._replace(trust=np.concatenate((rows.trust[:older], last))))

    def drop_before(self, number: int) -> None:
        """Keep only rows from that number on."""
        rows = self.rows()
        self._set_rows(BufferedRows._make(array[rows.number >= number] for array in rows))

    def copy(self) -> ReplayBuffer:
        """The same rows; what is added later goes to one of the two."""
        copied = ReplayBuffer(self.max_rows, self.targets, self.rows())
        copied.fill_values = self.fill_values
        return copied

    def shrink_to_fit(self) -> None:
        """Take no more room than the rows need."""
        self._set_rows(BufferedRows._make(array.copy() for array in self.rows()))

    def rows(self, width: int = 0) -> BufferedRows:
        """All rows kept, oldest first, x at least so wide."""
        room, stop = self._room, self._stop
        start = max(0, stop - self.max_rows)
        if start or stop < len(room.y):
            room = BufferedRows._make([array[start:stop] for array in room])
        width = max(width, room.x.shape[1])
        exact = not room.x_sd.shape[1]
        if exact and width == room.x.shape[1]:
            return room
        sd = pad_columns(room.x_sd, 0 if exact or not room.x_sd.any() else width)
        return room._replace(x=pad_columns(room.x, width, self.fill_values), x_sd=sd)


def make_empty_rows(targets: int) -> BufferedRows:
    """No rows."""
    none = np.zeros((0, 0))
    return BufferedRows(none, none, np.zeros((0, targets)), np.zeros(0), np.zeros(0), np.zeros(0))


def compute_buffer_rows(inputs: int, most: int) -> int:
    """How many rows of so many inputs are kept."""
    return min(most, max(MAX_HELD_ROWS, MAX_BUFFER_CELLS // max(inputs, 1)))


def find_cold_start_window(count: int) -> tuple[int, int]:
    """Which row the next `room` rows are told from, after `count` rows with a target: its place.

    It moves on by half of what is held at a time, so that telling costs little, and depends on
    counts alone.
    """
    half = MAX_HELD_ROWS // 2
    return max(0, count // half - 1) * half, half - count % half


def count_rows_to_hold(early: ColdStart, held: int, y: FloatArray, room: int) -> tuple[int, bool]:
    """How many of the rows with these targets are held, and whether the model then begins.

    So many are held already. A row without a target counts for nothing, and of those with one
    there are `room` at most.
    """
    labelled = np.flatnonzero(np.isfinite(y).any(axis=1))
    if len(labelled) > room:
        y, labelled = y[: labelled[room]], labelled[:room]
    needed = max(1, WARM_UP_ROWS - held, early.rows_until_varied(y[labelled]))
    if needed > len(labelled):
        return len(y), False
    return int(labelled[needed - 1]) + 1, True
