"""What the keys of a fleet begin from: the common model as it was where a window of rows began.

The common model learns every row. How far keys have moved from their beginning says how wide the
next ones begin (kbnn.fleet.start); keys that come before the common model has begun hold their rows
until it has.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import numpy as np

from kbnn.core.normal import FloatArray
from kbnn.fleet.forms import Forms
from kbnn.fleet.start import Widths, begun, first_bytes
from kbnn.model.model import Model
from kbnn.model.plain import value_of
from kbnn.model.rows import Rows
from kbnn.model.settings import Settings
from kbnn.score.score import count

LONGEST_MOVE: Final = 1 + 4 * 1024
"""Numbers that say how far a key has moved: four of a layer, and its noise."""
NEW: Final = b""
"""What rests of a key that begins from ignorance."""
WINDOW: Final = 8192
STEPS: Final = 16
"""New keys begin from the common model as it was where a window of the stream began: of 8,192 rows,
and of a sixteenth to an eighth of all rows so far while these are fewer. How far keys have moved
counts from the window after the next on. So no row waits for what the one before has taught."""


def window_start(row: int) -> int:
    """Where the window began in which the row after so many is."""
    size = min(max(1, (1 << row.bit_length()) // STEPS), WINDOW)
    return row // size * size


def window_end(row: int) -> int:
    """Where the window ends in which the row after so many is."""
    size = min(max(1, (1 << row.bit_length()) // STEPS), WINDOW)
    return window_start(row) + size


class Beginnings:
    """The common model, if there is one, and what is known of how keys differ from it."""

    def __init__(self, settings: Settings, forms: Forms, common: Model | None) -> None:
        self.common = common
        self.widths = Widths()
        self.young: set[str] = set()  # keys that came before the common model had begun
        self._settings, self._forms = settings, forms
        self._moved: list[tuple[int, list[float]]] = []  # by row, what the widths have to learn
        self._start: Model | bytes = NEW  # what new keys begin from in this window

    @property
    def begins(self) -> bool:
        """Whether there is a common model that keys begin from."""
        return self.common is not None and not self.common.warming_up

    def room(self, row: int) -> int:
        """Rows that are left in the window of the row after so many; one before it all begins."""
        return window_end(row) - row if self.begins else 1

    def settled_before(self, row: int) -> int | None:
        """Where a window begins, the row up to which is to be known what became of keys."""
        if not self.begins or row != window_start(row):
            return None
        return window_start(row - 1)

    def look_around(self, before: int) -> None:
        """A window begins: how far keys have moved counts for those that are new in it."""
        self._start = NEW
        while self._moved and self._moved[0][0] <= before:
            self.widths.learn(np.array(self._moved.pop(0)[1]))

    def moved(self, first: int, moves: Iterable[tuple[int, FloatArray]]) -> None:
        """Keys have moved that far, by place in a block that begins after so many rows."""
        if self.common is not None:
            self._moved += [(first + at + 1, move.tolist()) for at, move in moves]

    def first(self) -> bytes:
        """What a new key begins from in this window."""
        if self.begins and not self._start:
            self._start = self.like_others()
        if isinstance(self._start, Model):
            self._start = first_bytes(self._start, self._forms)
        return self._start

    def like_others(self) -> Model:
        """The model of a key of which no more is known than of keys at large."""
        assert self.common is not None
        return begun(self._settings, self.common, self.widths)

    def learn(self, rows: Rows, row: int, again: bool) -> None:
        """The common model goes on, and what this window's keys begin from does not."""
        if self.common is None:
            return
        if self.begins and not self._start and len(rows.y) < self.room(row):
            self._start = self.like_others()
        self.common.learn(rows, again)

    def to_json(self) -> dict[str, Any]:
        """Plain data for the fleet's state, beside the common model and `first`."""
        return {
            "young": sorted(self.young),
            "widths": self.widths.to_json(),
            "moved": self._moved,
        }

    def restore(self, plain: Mapping[str, Any], start: bytes) -> None:
        """The inverse of `to_json`."""
        self.young = set(value_of(list[str], plain["young"], "young"))
        self.widths = Widths.from_json(plain["widths"])
        self._moved = [(count(row), _checked_move(move)) for row, move in plain.get("moved", [])]
        self._start = start

    def kept(self) -> bytes:
        """What keys begin from in this window, as far as that is settled."""
        return self.first() if self._start else NEW


def _checked_move(move: Any) -> list[float]:
    """How far a key has moved, see `moved_by`, from a file; its noise alone may be unknown."""
    values = np.array(move, np.float64)
    fits = values.ndim == 1 and len(values) % 4 == 1 and len(values) <= LONGEST_MOVE
    if not fits or not np.all(values[:-1] >= 0.0) or np.isinf(values).any():
        raise ValueError("how far a key has moved is damaged")
    return list(move)
