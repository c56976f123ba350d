"""Which keys are open: each has a number, and by number arrays say where its model is.

So a block of rows costs one look into a dictionary a row, and the rest is done for all at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from kbnn.core.layout import IntArray

INITIAL_CAPACITY: Final = 64
"""Numbers that there are to begin with; they double when they are taken."""
UNPACKED: Final = -1
"""In the place of a herd: the model is an object of its own."""


class KeyIndex:
    """The numbers of open keys."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._keys: list[str] = [""] * INITIAL_CAPACITY
        self._free = list(range(INITIAL_CAPACITY))
        self.herd: IntArray = np.full(INITIAL_CAPACITY, UNPACKED)
        self.place: IntArray = np.zeros(INITIAL_CAPACITY, np.int64)
        self._used: IntArray = np.zeros(INITIAL_CAPACITY, np.int64)
        self._changed = np.zeros(INITIAL_CAPACITY, np.bool_)
        self._turn = 0

    def __contains__(self, key: str) -> bool:
        return key in self._numbers

    def __len__(self) -> int:
        return len(self._numbers)

    def list_unopened(self, keys: Sequence[str]) -> list[str]:
        """Those of the keys that are not open, each once."""
        if None not in map(self._numbers.get, keys):
            return []
        return [key for key in dict.fromkeys(keys) if key not in self._numbers]

    def number_of(self, key: str) -> int:
        """The number of an open key."""
        return self._numbers[key]

    def numbers_of(self, keys: Sequence[str]) -> IntArray:
        """The numbers of open keys."""
        return np.fromiter(map(self._numbers.__getitem__, keys), np.int64, len(keys))

    def key_of(self, number: int) -> str:
        """The key that has a number."""
        return self._keys[number]

    def add(self, key: str, herd: int, place: int) -> int:
        """The number of a key whose model is there now."""
        number = self._numbers.get(key)
        if number is None:
            if not self._free:
                self._grow_arrays()
            number = self._numbers[key] = self._free.pop()
            self._keys[number], self._changed[number] = key, False
        self.herd[number], self.place[number] = herd, place
        self._used[number] = self._turn
        return number

    def _grow_arrays(self) -> None:
        room = len(self._keys)
        self._free = list(range(room, 2 * room))
        self._keys += [""] * room
        for name in ("herd", "place", "_used", "_changed"):
            setattr(self, name, np.concatenate((getattr(self, name), getattr(self, name))))

    def remove_key(self, number: int) -> None:
        """A key is open no longer."""
        del self._numbers[self._keys[number]]
        self._keys[number] = ""
        self._free.append(number)

    def mark_used(self, numbers: IntArray, changed: bool) -> None:
        """These are used now, and changed by that or not."""
        self._turn += 1
        self._used[numbers] = self._turn
        if changed:
            self._changed[numbers] = True

    def is_changed(self, number: int) -> bool:
        """Whether a model has changed since all was written down."""
        return bool(self._changed[number])

    def list_changed(self) -> list[int]:
        """The numbers of those that have changed since, in the order of the keys."""
        there = self._all_numbers()
        return self._sort_by_key(there[self._changed[there]])

    def clear_changed(self) -> None:
        """All is written down: none has changed."""
        self._changed[:] = False

    def list_least_recent(self, count: int) -> list[int]:
        """The numbers of so many that were not used for longest, in the order of the keys."""
        if count <= 0:
            return []
        there = self._all_numbers()
        return self._sort_by_key(there[np.argpartition(self._used[there], count - 1)[:count]])

    def _all_numbers(self) -> IntArray:
        return np.fromiter(self._numbers.values(), np.int64, len(self._numbers))

    def _sort_by_key(self, numbers: IntArray) -> list[int]:
        return sorted(numbers.tolist(), key=self._keys.__getitem__)
