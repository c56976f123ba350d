"""Figures of absolute errors on a stream: MAPE, sMAPE, median absolute error, MASE.

With y the true value, m its forecast and e = y - m, over rows

    MAPE    mean of |e| / |y|, of rows with y other than 0
    sMAPE   mean of 2 |e| / (|y| + |m|), of rows where not both are 0
    median  of |e|
    MASE    mean of |e| divided by the mean absolute error of a naive forecast

The median needs the distribution of |e|. `QuantileSketch` keeps the first EXACT_ROWS values, up to
where quantiles are exact. Then it counts values in bins whose edges grow by a constant factor, so
that a quantile has a relative error of at most RELATIVE_ERROR. Memory is constant, and results do
not depend on how rows are cut into batches.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Self

import numpy as np

from kbnn.array_types import FloatArray
from kbnn.core.kernel import sum_in_order
from kbnn.metrics.class_ranking import EXACT_ROWS, Estimate
from kbnn.metrics.figures import clip_terms, restore_floats, shared_ones

RELATIVE_ERROR = 0.005
"""Largest relative error of a quantile of many values."""
LOG_BIN_RATIO = math.log1p(RELATIVE_ERROR) - math.log1p(-RELATIVE_ERROR)
"""Logarithm of the ratio of a bin's edges; its middle is within RELATIVE_ERROR of its values."""
MIN_VALUE, MAX_VALUE = 1e-150, 1e150
"""Values beyond these count as these; 0 has a bin of its own."""
FIRST_BIN = math.floor(math.log(MIN_VALUE) / LOG_BIN_RATIO)
BIN_COUNT = math.ceil(math.log(MAX_VALUE) / LOG_BIN_RATIO) - FIRST_BIN + 1


class QuantileSketch:
    """Quantiles of values >= 0."""

    def __init__(self) -> None:
        self._values = np.zeros(0)
        self._weight = np.zeros(0)
        self._bins: FloatArray | None = None  # the first bin holds 0

    def add(self, values: FloatArray, weight: FloatArray | None = None) -> None:
        """Add values in order."""
        w = shared_ones(len(values)) if weight is None else weight
        if self._bins is None:
            self._values = np.concatenate((self._values, values))
            self._weight = np.concatenate((self._weight, w))
            if len(self._values) <= EXACT_ROWS:
                return
            self._bins = np.zeros(1 + BIN_COUNT)
            values, w = self._values, self._weight
            self._values, self._weight = self._values[:0], self._weight[:0]
        size = np.log(np.clip(values, MIN_VALUE, MAX_VALUE))
        index = np.floor(size / LOG_BIN_RATIO).astype(np.int64) - FIRST_BIN
        np.add.at(self._bins, np.where(values > 0.0, 1 + np.clip(index, 0, BIN_COUNT - 1), 0), w)

    def merge(self, other: QuantileSketch) -> None:
        """Add the values of another stream."""
        if other._bins is None:
            self.add(other._values, other._weight)
            return
        if self._bins is None:
            values, weight = self._values, self._weight
            self._values, self._weight = values[:0], weight[:0]
            self._bins = np.zeros(1 + BIN_COUNT)
            self.add(values, weight)
        self._bins += other._bins

    def quantile(self, share: float) -> Estimate | None:
        """Return a quantile; between two values, if the share lies between them, their mean."""
        if self._bins is None:
            order = np.argsort(self._values, kind="stable")
            values, weight = self._values[order], self._weight[order]
        else:
            middles = (np.arange(BIN_COUNT) + FIRST_BIN + 0.5) * LOG_BIN_RATIO
            values = np.concatenate(([0.0], np.exp(middles) / math.cosh(0.5 * LOG_BIN_RATIO)))
            weight = self._bins
        total = np.cumsum(weight)
        if not len(total) or total[-1] <= 0.0:
            return None
        level = share * total[-1]
        low = int(np.searchsorted(total, level, side="left"))
        high = min(int(np.searchsorted(total, level, side="right")), len(values) - 1)
        value = 0.5 * float(values[low] + values[high])
        return Estimate(value, 0.0 if self._bins is None else RELATIVE_ERROR * value)

    def to_arrays(self) -> dict[str, FloatArray]:
        """Return the whole state; `from_arrays` restores it."""
        bins = np.zeros(0) if self._bins is None else self._bins
        used = np.flatnonzero(bins)
        return {
            "values": self._values,
            "weight": self._weight,
            "binned": np.array([float(self._bins is not None)]),
            "bins": np.stack((used.astype(np.float64), bins[used])),
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, FloatArray]) -> Self:
        """Restore the state; raise ValueError if it is damaged."""
        found = cls()
        n = len(arrays["values"])
        found._values = restore_floats(arrays["values"], (n,))
        found._weight = restore_floats(arrays["weight"], (n,))
        if restore_floats(arrays["binned"], (1,))[0]:
            index, counts = restore_floats(arrays["bins"], (2, np.shape(arrays["bins"])[1]))
            if np.any(index < 0) or np.any(index > BIN_COUNT):
                raise ValueError("a bin of the sketch is out of range")
            found._bins = np.zeros(1 + BIN_COUNT)
            found._bins[index.astype(np.int64)] = counts
        return found


class AbsoluteErrors:
    """MAPE, sMAPE, median absolute error and MASE of one target."""

    def __init__(self) -> None:
        self._sums = np.zeros(6)  # weight and sum of |e|, of MAPE's terms, of sMAPE's terms
        self.sketch = QuantileSketch()

    def add(self, y: FloatArray, mean: FloatArray, weight: FloatArray | None = None) -> None:
        """Add rows in order: finite true values and forecasts."""
        w = shared_ones(len(y)) if weight is None else weight
        with np.errstate(over="ignore"):
            error = np.abs(clip_terms(y - mean))
            total = np.abs(clip_terms(y)) + np.abs(clip_terms(mean))
        share = np.divide(error, np.abs(y), out=np.zeros(len(y)), where=y != 0.0)
        both = np.divide(2.0 * error, total, out=np.zeros(len(y)), where=total > 0.0)
        terms = [w, w * error, w * (y != 0.0), w * clip_terms(share), w * (total > 0.0), w * both]
        self._sums = sum_in_order(self._sums, terms)
        self.sketch.add(error, weight)

    def merge(self, other: AbsoluteErrors) -> None:
        """Add the rows of another stream."""
        self._sums = self._sums + other._sums
        self.sketch.merge(other.sketch)

    def mean_absolute_error(self) -> float | None:
        """Return the mean absolute error; None without rows."""
        return self._mean(0)

    def mape(self) -> float | None:
        """Return the mean absolute percentage error as a share; None without a y other than 0."""
        return self._mean(2)

    def smape(self) -> float | None:
        """Return the symmetric mean absolute percentage error as a share, 0 to 2."""
        return self._mean(4)

    def median(self) -> Estimate | None:
        """Return the median absolute error; None without rows."""
        return self.sketch.quantile(0.5)

    def mase(self, naive_mae: float) -> float | None:
        """Return the mean absolute error in units of that of a naive forecast."""
        mae = self.mean_absolute_error()
        return None if mae is None or not naive_mae > 0.0 else mae / naive_mae

    def _mean(self, at: int) -> float | None:
        weight, total = self._sums[at : at + 2].tolist()
        return total / weight if weight > 0.0 else None

    def to_arrays(self) -> dict[str, FloatArray]:
        """Return the whole state; `from_arrays` restores it."""
        return {"sums": self._sums, **self.sketch.to_arrays()}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, FloatArray]) -> Self:
        """Restore the state; raise ValueError if it is damaged."""
        found = cls()
        found._sums = restore_floats(arrays["sums"], (6,))
        found.sketch = QuantileSketch.from_arrays(arrays)
        return found
