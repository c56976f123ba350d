"""The first rows of a stream: held until their scale is known, forecast by what came before them.

Held are the last 512 rows at most, until 32 rows with a target have come and every target has
varied. They are part of the model: nothing is lost between two runs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kbnn.core.normal import FloatArray

WARM_UP_ROWS = 32
MOST_HELD = 512
_LEAST_SD = 1e-6


@dataclass
class Held:
    """Rows in the user's units; y has a column per target, or the class index.

    `number` counts the rows of the stream from 1.
    """

    x: FloatArray
    x_sd: FloatArray
    y: FloatArray
    weight: FloatArray
    number: FloatArray

    @classmethod
    def nothing(cls, targets: int) -> Held:
        """No rows."""
        return cls(
            np.zeros((0, 0)), np.zeros((0, 0)), np.zeros((0, targets)), np.zeros(0), np.zeros(0)
        )

    def __len__(self) -> int:
        return len(self.y)

    def add(
        self,
        x: FloatArray,
        x_sd: FloatArray | None,
        y: FloatArray,
        weight: FloatArray,
        number: FloatArray,
    ) -> None:
        """Hold more rows; a wider x means that earlier rows had 0 there."""
        self.widen(x.shape[1])
        x_sd = np.zeros_like(x) if x_sd is None else x_sd
        self.x, self.x_sd = np.vstack([self.x, x]), np.vstack([self.x_sd, x_sd])
        self.y = np.vstack([self.y, y])
        self.weight = np.concatenate([self.weight, weight])
        self.number = np.concatenate([self.number, number])

    def forget_oldest(self, most: int) -> None:
        """Keep the last rows only."""
        for name in ("x", "x_sd", "y", "weight", "number"):
            setattr(self, name, getattr(self, name)[-most:])

    def widen(self, width: int) -> None:
        """Make x so wide: the new columns were 0 in the rows held."""
        self.x, self.x_sd = _widened(self.x, width), _widened(self.x_sd, width)

    def ready(self, varies: bool) -> bool:
        """Whether the scale is known; `varies` asks that every target has varied."""
        seen = np.isfinite(self.y)
        if np.sum(np.any(seen, axis=1)) < WARM_UP_ROWS:
            return False
        return not varies or all(
            len(np.unique(column[np.isfinite(column)])) > 1 for column in self.y.T
        )

    def forecast(self) -> tuple[FloatArray, FloatArray]:
        """Mean and standard deviation of the targets held so far, for the row to come."""
        mean, sd = np.zeros(self.y.shape[1]), np.ones(self.y.shape[1])
        for j, column in enumerate(self.y.T):
            seen = column[np.isfinite(column)]
            if len(seen):
                mean[j] = np.mean(seen)
                spread = np.std(seen) if len(seen) > 1 else abs(mean[j])
                sd[j] = max(
                    spread * np.sqrt(1.0 + 2.0 / len(seen)), _LEAST_SD * (1.0 + abs(mean[j]))
                )
        return mean, sd

    def class_forecast(self, classes: int) -> FloatArray:
        """Class frequencies held so far, one added to each."""
        seen = self.y[np.isfinite(self.y)].astype(np.int64)
        counts = np.bincount(seen, minlength=classes)[:classes] + 1.0
        return np.asarray(counts / np.sum(counts))


def _widened(rows: FloatArray, width: int) -> FloatArray:
    return np.hstack([rows, np.zeros((len(rows), max(0, width - rows.shape[1])))])
