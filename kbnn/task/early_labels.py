"""What is said of classes before there is a network: how often each has come."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from kbnn.core.normal import FloatArray
from kbnn.task.base import Early, blank
from kbnn.task.forecast import Forecast


class EarlyLabels(Early):
    """How often each class has come, one added to each."""

    def __init__(self, shown: Callable[[FloatArray], int]) -> None:
        self._shown, self._seen = shown, np.zeros((0, 1))

    def tell(self, y: FloatArray) -> Forecast:
        """The shares of the classes that are known by then."""
        first, seen = len(self._seen), np.concatenate((self._seen, y))
        known = [self._shown(seen[:row]) for row in range(first, len(seen))]
        probability = np.zeros((len(y), max(known, default=0)))
        for row, classes in enumerate(known):
            labels = seen[: first + row]
            counts = np.bincount(labels[np.isfinite(labels)].astype(np.int64), minlength=classes)
            probability[row, :classes] = (counts + 1.0) / np.sum(counts + 1.0)
        self._seen = seen[np.isfinite(seen[:, 0])]
        return blank(len(y), 0)._replace(probability=probability)

    def varied_after(self, y: FloatArray) -> int:
        """A single class is a beginning too."""
        return 0
