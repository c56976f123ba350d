"""The pinball loss of quantiles, in row order and constant memory.

A quantile of share p that lies g below the truth costs p g, one that lies g above costs (1 - p) g;
none costs less on average than the true one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kbnn.core.engine import sum_in_order
from kbnn.score.rowsums import FloatArray, clip_terms, shared_ones


class PinballLoss:
    """The mean loss of several quantiles of one target."""

    def __init__(self, shares: Sequence[float]) -> None:
        self.shares = np.array(shares, dtype=np.float64)
        self._sums = np.zeros(1 + len(self.shares))  # weight, then losses

    def add(self, y: FloatArray, quantiles: FloatArray, weight: FloatArray | None) -> None:
        """Count rows in order: y (n,) beside its quantiles (n, shares)."""
        known = np.isfinite(y) & np.isfinite(quantiles).all(axis=1)
        gap = clip_terms(y[known, None] - quantiles[known])
        w = shared_ones(len(gap)) if weight is None else weight[known]
        loss = np.where(gap > 0.0, self.shares * gap, (self.shares - 1.0) * gap)
        self._sums = sum_in_order(self._sums, [w, *(w[:, None] * loss).T])

    def mean_losses(self) -> list[float | None]:
        """Of each share; None before the first row."""
        weight = float(self._sums[0])
        return [float(loss) / weight if weight > 0.0 else None for loss in self._sums[1:]]
