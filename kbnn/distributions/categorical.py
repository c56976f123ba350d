"""Predictive distributions of classes: a probability for each class."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from kbnn.array_types import FloatArray

MIN_PROBABILITY: Final = 1e-12
"""Probabilities are raised to this before the logarithm."""


class Categorical:
    """Class probabilities (n, classes); a value is the index of a class."""

    def __init__(self, probability: FloatArray) -> None:
        self.probability = probability

    def __len__(self) -> int:
        return len(self.probability)

    def __getitem__(self, at: Any) -> Categorical:
        """Select rows by a slice, a mask or indices."""
        return Categorical(self.probability[at])

    def log_density(self, y: FloatArray) -> FloatArray:
        """Return the log probability of each row's class; 0 if it is missing or unknown."""
        known = np.isfinite(y) & (y >= 0) & (y < self.probability.shape[1])
        index = np.where(known, y, 0.0).astype(np.int64)
        p = self.probability[np.arange(len(y)), index]
        return np.where(known, np.log(np.maximum(p, MIN_PROBABILITY)), 0.0)

    def sample(self, rng: np.random.Generator) -> FloatArray:
        """Draw the index of one class for each row."""
        total = np.cumsum(self.probability, axis=1)
        drawn = rng.random((len(self), 1)) * total[:, -1:]
        return np.asarray(np.argmax(total > drawn, axis=1), np.float64)
