"""Histograms of a stream in bounded memory, independent of the order of its rows."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kbnn.array_types import FloatArray, IntArray
from kbnn.metrics.figures import restore_counts, restore_floats

PIT_BINS = 40
"""Fine bins of the PIT: pairs form the 20 bars shown, folding at 1/2 gives the coverage curve."""

FEATURE_BINS = 64
"""Bins kept for each feature."""

MIN_BIN_EXPONENT = -1000
"""Smallest binary exponent of a bin width."""


MAX_BIN_EXPONENT = 1024
"""Largest binary exponent a bin width can have."""


class PitHistogram:
    """Counts of the probability integral transform u = P(Y <= y) of one target's forecasts.

    Calibrated forecasts make u uniform on [0, 1]. The central interval of level p holds y exactly
    when |2 u - 1| <= p, so the same counts give the observed coverage of every level 5, 10, ... %.
    """

    def __init__(self) -> None:
        self.counts: IntArray = np.zeros(PIT_BINS, dtype=np.int64)

    @classmethod
    def from_json(cls, counts: object) -> PitHistogram:
        """Restore the histogram from stored counts."""
        pit = cls()
        pit.counts = restore_counts(counts, (PIT_BINS,))
        return pit

    def add(self, u: FloatArray) -> None:
        """Add rows; each u lies in [0, 1]."""
        index = np.minimum((u * PIT_BINS).astype(np.int64), PIT_BINS - 1)
        self.counts += np.bincount(index, minlength=PIT_BINS)

    def bar_counts(self) -> IntArray:
        """Return counts in 20 equal bins of u."""
        return np.asarray(self.counts.reshape(-1, 2).sum(axis=1))

    def coverage_curve(self) -> tuple[FloatArray, FloatArray]:
        """Return levels 0.05, 0.10, ..., 0.95 and the share of rows inside each interval."""
        half = PIT_BINS // 2
        rings = self.counts[half:] + self.counts[:half][::-1]
        inside = np.cumsum(rings)
        levels = np.arange(1, half) / half
        if inside[-1] == 0:
            return levels, np.full(half - 1, np.nan)
        return levels, inside[:-1] / inside[-1]


class FeatureHistograms:
    """FEATURE_BINS counts for each feature, in bins of width 2^k aligned to zero: floor(x / 2^k).

    k is the smallest for which all values seen fit, so the range grows by doubling the bins. The
    counts depend only on the values, not on their order or on how they are cut into batches.
    """

    def __init__(self, features: int) -> None:
        self.level: IntArray = np.full(features, MIN_BIN_EXPONENT, dtype=np.int64)
        self.first: IntArray = np.zeros(features, dtype=np.int64)
        """Lattice index floor(smallest / 2^k) of the first bin."""
        self.low = np.full(features, np.inf)
        self.high = np.full(features, -np.inf)
        self.missing: IntArray = np.zeros(features, dtype=np.int64)
        self.counts: IntArray = np.zeros((features, FEATURE_BINS), dtype=np.int64)

    @property
    def feature_count(self) -> int:
        """Number of features."""
        return int(self.level.shape[0])

    def add_features(self, features: int, unseen: FloatArray | None = None) -> None:
        """Append features; the rows so far held 0 there, or the values `unseen`."""
        new = features - self.feature_count
        if new <= 0:
            return
        rows = int(self.counts[0].sum() + self.missing[0]) if self.feature_count else 0
        added = FeatureHistograms(new)
        if rows:
            added.low[:] = added.high[:] = 0.0
            added.level[:] = fitting_level(0.0, 0.0)
            added.counts[:, 0] = rows
            if unseen is not None:
                added._mark_missing(np.isnan(unseen[self.feature_count :]), rows)
        for name in ("level", "first", "low", "high", "missing", "counts"):
            setattr(self, name, np.concatenate((getattr(self, name), getattr(added, name))))

    def _mark_missing(self, features: NDArray[np.bool_], rows: int) -> None:
        """Count these features as missing in the `rows` rows so far."""
        blank = FeatureHistograms(1)
        for name in ("level", "first", "low", "high", "counts"):
            getattr(self, name)[features] = getattr(blank, name)
        self.missing[features] = rows

    def add(self, x: FloatArray) -> None:
        """Add the values of x (n, D); values that are not finite count as missing."""
        if x.shape[0] == 0:
            return
        self.add_features(x.shape[1])
        x = np.ascontiguousarray(x.T)
        finite = np.isfinite(x)
        if not finite.all():
            self.missing += np.count_nonzero(~finite, axis=1)
            low = np.where(finite, x, np.inf).min(axis=1)
            high = np.where(finite, x, -np.inf).max(axis=1)
            x = np.where(finite, x, 0.0)
        else:
            low, high = x.min(axis=1), x.max(axis=1)
        for j in np.flatnonzero((low < self.low) | (high > self.high)):
            self._extend_range(
                int(j), float(min(low[j], self.low[j])), float(max(high[j], self.high[j]))
            )
        narrow = np.ldexp(1.0, -self.level.astype(np.int32))  # powers of two: products are exact
        first = self.first - np.arange(self.feature_count) * FEATURE_BINS
        index = np.floor(x * narrow[:, None]).astype(np.int64) - first[:, None]
        flat = index[finite]
        self.counts += np.bincount(flat, minlength=self.counts.size).reshape(self.counts.shape)

    def _extend_range(self, j: int, low: float, high: float) -> None:
        """Widen the bins of feature j to hold [low, high].

        2^(k' - k) bins of width 2^k merge into one of width 2^k'.
        """
        level = fitting_level(low, high)
        old_level, old_first = int(self.level[j]), int(self.first[j])
        first = lattice_index(low, level)
        self.low[j], self.high[j] = low, high
        if (level, first) == (old_level, old_first):
            return
        merged = np.zeros(FEATURE_BINS, dtype=np.int64)
        for i in np.flatnonzero(self.counts[j]):
            place = ((old_first + int(i)) >> (level - old_level)) - first
            merged[max(place, 0)] += self.counts[j, i]  # below 0 only where floats underflow
        self.level[j], self.first[j], self.counts[j] = level, first, merged

    def used_bins(self, feature: int) -> tuple[FloatArray, IntArray]:
        """Return edges (m + 1) and counts (m) of the bins in use."""
        if not np.isfinite(self.low[feature]):
            return np.zeros(1), np.zeros(0, dtype=np.int64)
        used = (
            lattice_index(self.high[feature], int(self.level[feature]))
            - int(self.first[feature])
            + 1
        )
        steps = (int(self.first[feature]) + np.arange(used + 1)).astype(np.float64)
        return np.ldexp(steps, int(self.level[feature])), self.counts[feature, :used].copy()

    def to_json(self) -> dict[str, Any]:
        """Return everything except the counts; indices as integers, values as exact decimals."""
        empty = ~np.isfinite(self.low)
        return {
            "level": self.level.tolist(),
            "first": self.first.tolist(),
            "low": np.where(empty, 0.0, self.low).tolist(),
            "high": np.where(empty, 0.0, self.high).tolist(),
            "empty": empty.tolist(),
            "missing": self.missing.tolist(),
        }

    @classmethod
    def from_json(cls, state: Mapping[str, Any], counts: FloatArray) -> FeatureHistograms:
        """Restore the histograms from `to_json` and the array of counts."""
        histograms = cls(len(state["level"]))
        empty = np.array(state["empty"], dtype=np.bool_)
        histograms.level = np.array(state["level"], dtype=np.int64)
        histograms.first = np.array(state["first"], dtype=np.int64)
        histograms.low = np.where(empty, np.inf, restore_floats(state["low"], empty.shape))
        histograms.high = np.where(empty, -np.inf, restore_floats(state["high"], empty.shape))
        histograms.missing = np.array(state["missing"], dtype=np.int64)
        features = histograms.feature_count
        histograms.counts = restore_counts(counts, (features, FEATURE_BINS))
        columns = (histograms.first, histograms.low, histograms.missing)
        if any(column.shape != (features,) for column in columns) or (
            np.any((histograms.level < MIN_BIN_EXPONENT) | (histograms.level > MAX_BIN_EXPONENT))
        ):
            raise ValueError("the feature histograms do not fit together")
        for j in np.flatnonzero(~empty):
            low, high = float(histograms.low[j]), float(histograms.high[j])
            level = int(histograms.level[j])
            if (
                low > high
                or level != fitting_level(low, high)
                or lattice_index(low, level) != int(histograms.first[j])
            ):
                raise ValueError("a feature's histogram does not fit its range")
            used = lattice_index(high, level) - lattice_index(low, level) + 1
            if np.any(histograms.counts[j, used:]):
                raise ValueError("a feature's histogram has counts beyond its range")
        if np.any(histograms.counts[empty]) or np.any(histograms.missing < 0):
            raise ValueError("a feature without values has counts")
        return histograms


def lattice_index(value: float, level: int) -> int:
    """Return floor(value / 2^level), exactly."""
    return math.floor(math.ldexp(value, -level))


def fitting_level(low: float, high: float) -> int:
    """Return the smallest k >= MIN_BIN_EXPONENT with [low, high] in FEATURE_BINS bins."""
    level = max(MIN_BIN_EXPONENT, _binary_exponent(max(abs(low), abs(high))) - 52)
    if high > low:
        level = max(level, _binary_exponent(high / FEATURE_BINS - low / FEATURE_BINS) - 1)
    while lattice_index(high, level) - lattice_index(low, level) >= FEATURE_BINS:
        level += 1
    return level


def _binary_exponent(value: float) -> int:
    """Return the binary exponent of a value; that of 0 is below all others, so bins only widen."""
    return math.frexp(value)[1] if value else MIN_BIN_EXPONENT
