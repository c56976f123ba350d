"""What is said of classes before there is a network: how often each has come."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from kbnn.core.normal import FloatArray
from kbnn.task.base import ColdStart, make_empty_forecast
from kbnn.task.forecast import Forecast


class ClassColdStart(ColdStart):
    """How often each class has come, one added to each."""

    def __init__(self, count_classes: Callable[[FloatArray], int]) -> None:
        self._count_classes, self._seen = count_classes, np.zeros((0, 1))

    def predict_then_update(self, y: FloatArray) -> Forecast:
        """The shares of the classes that are known by then."""
        first, seen = len(self._seen), np.concatenate((self._seen, y))
        known = [self._count_classes(seen[:row]) for row in range(first, len(seen))]
        probability = np.zeros((len(y), max(known, default=0)))
        for row, classes in enumerate(known):
            labels = seen[: first + row]
            counts = np.bincount(labels[np.isfinite(labels)].astype(np.int64), minlength=classes)
            probability[row, :classes] = (counts + 1.0) / np.sum(counts + 1.0)
        self._seen = seen[np.isfinite(seen[:, 0])]
        return make_empty_forecast(len(y), 0)._replace(probability=probability)

    def rows_until_varied(self, y: FloatArray) -> int:
        """A single class is a beginning too."""
        return 0
