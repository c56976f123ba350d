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
from kbnn.fleet.forms import PackedLayouts
from kbnn.fleet.start import BetweenKeyVariance, create_pooled_model, serialize_initial_model
from kbnn.model.model import OnlineModel
from kbnn.model.plain import read_value
from kbnn.model.rows import Rows
from kbnn.model.settings import Settings
from kbnn.score.score import check_stored_count

MAX_SHIFT_VALUES: Final = 1 + 4 * 1024
"""Numbers that say how far a key has moved: four of a layer, and its noise."""
EMPTY_MODEL: Final = b""
"""What rests of a key that begins from ignorance."""
MAX_WINDOW_ROWS: Final = 8192
WINDOWS_PER_DOUBLING: Final = 16
"""New keys begin from the common model as it was where a window of the stream began: of 8,192 rows,
and of a sixteenth to an eighth of all rows so far while these are fewer. How far keys have moved
counts from the window after the next on. So no row waits for what the one before has taught."""


def window_start(row: int) -> int:
    """Where the window began in which the row after so many is."""
    size = min(max(1, (1 << row.bit_length()) // WINDOWS_PER_DOUBLING), MAX_WINDOW_ROWS)
    return row // size * size


def window_end(row: int) -> int:
    """Where the window ends in which the row after so many is."""
    size = min(max(1, (1 << row.bit_length()) // WINDOWS_PER_DOUBLING), MAX_WINDOW_ROWS)
    return window_start(row) + size


class Pooling:
    """The common model, if there is one, and what is known of how keys differ from it."""

    def __init__(
        self, settings: Settings, forms: PackedLayouts, common: OnlineModel | None
    ) -> None:
        self.pooled_model = common
        self.key_variance = BetweenKeyVariance()
        self.unpooled_keys: set[str] = set()  # keys that came before the common model had begun
        self._settings, self._layouts = settings, forms
        self._queued_shifts: list[
            tuple[int, list[float]]
        ] = []  # by row, what the widths have to learn
        self._initial: OnlineModel | bytes = EMPTY_MODEL  # what new keys begin from in this window

    @property
    def is_ready(self) -> bool:
        """Whether there is a common model that keys begin from."""
        return self.pooled_model is not None and not self.pooled_model.is_warming_up

    def rows_left_in_window(self, row: int) -> int:
        """Rows that are left in the window of the row after so many; one before it all begins."""
        return window_end(row) - row if self.is_ready else 1

    def results_needed_before(self, row: int) -> int | None:
        """Where a window begins, the row up to which is to be known what became of keys."""
        if not self.is_ready or row != window_start(row):
            return None
        return window_start(row - 1)

    def start_window(self, before: int) -> None:
        """A window begins: how far keys have moved counts for those that are new in it."""
        self._initial = EMPTY_MODEL
        while self._queued_shifts and self._queued_shifts[0][0] <= before:
            self.key_variance.add_shift(np.array(self._queued_shifts.pop(0)[1]))

    def add_shifts(self, first: int, moves: Iterable[tuple[int, FloatArray]]) -> None:
        """Keys have moved that far, by place in a block that begins after so many rows."""
        if self.pooled_model is not None:
            self._queued_shifts += [(first + at + 1, move.tolist()) for at, move in moves]

    def make_initial_bytes(self) -> bytes:
        """What a new key begins from in this window."""
        if self.is_ready and not self._initial:
            self._initial = self.create_new_key_model()
        if isinstance(self._initial, OnlineModel):
            self._initial = serialize_initial_model(self._initial, self._layouts)
        return self._initial

    def create_new_key_model(self) -> OnlineModel:
        """The model of a key of which no more is known than of keys at large."""
        assert self.pooled_model is not None
        return create_pooled_model(self._settings, self.pooled_model, self.key_variance)

    def learn(self, rows: Rows, row: int, again: bool) -> None:
        """The common model goes on, and what this window's keys begin from does not."""
        if self.pooled_model is None:
            return
        if self.is_ready and not self._initial and len(rows.y) < self.rows_left_in_window(row):
            self._initial = self.create_new_key_model()
        self.pooled_model.learn(rows, again)

    def to_json(self) -> dict[str, Any]:
        """Plain data for the fleet's state, beside the common model and `first`."""
        return {
            "young": sorted(self.unpooled_keys),
            "widths": self.key_variance.to_json(),
            "moved": self._queued_shifts,
        }

    def restore(self, plain: Mapping[str, Any], start: bytes) -> None:
        """The inverse of `to_json`."""
        self.unpooled_keys = set(read_value(list[str], plain["young"], "young"))
        self.key_variance = BetweenKeyVariance.from_json(plain["widths"])
        self._queued_shifts = [
            (check_stored_count(row), _check_shift(move)) for row, move in plain.get("moved", [])
        ]
        self._initial = start

    def settled_initial_bytes(self) -> bytes:
        """What keys begin from in this window, as far as that is settled."""
        return self.make_initial_bytes() if self._initial else EMPTY_MODEL


def _check_shift(move: Any) -> list[float]:
    """How far a key has moved, see `moved_by`, from a file; its noise alone may be unknown."""
    values = np.array(move, np.float64)
    fits = values.ndim == 1 and len(values) % 4 == 1 and len(values) <= MAX_SHIFT_VALUES
    if not fits or not np.all(values[:-1] >= 0.0) or np.isinf(values).any():
        raise ValueError("how far a key has moved is damaged")
    return list(move)
