"""Bounded summaries of a stream, kept in the model for the figures of `inspect` and `evaluate`.

They hold feature histograms, an even sample of rows and the rows with the largest loss. Both
samples keep the `size` rows of largest priority. For the even sample the priority is a hash of the
row's position in the stream, so it is seeded and needs no generator state; for the worst rows it is
the NLL, where the earlier of equal rows is kept. All of it depends only on the rows, not on how
they are cut into batches.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kbnn.array_types import FloatArray, IntArray
from kbnn.metrics.figures import check_stored_count, restore_counts, restore_floats

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


SAMPLE_FIELDS: Final = ("order", "row", "priority", "x", "y", "forecast")
MATRIX_FIELDS: Final = ("x", "y", "forecast")

MAX_SAMPLE_ROWS = 1 << 20
"""Largest size of a sample."""

MAX_UNMERGED_ROWS = 64
"""Rows buffered before they are merged: late in a stream few rows of a batch are selected."""


def hash_row_order(order: FloatArray, seed: int) -> FloatArray:
    """Return a number in [0, 1) for each position in the stream: the splitmix64 finaliser."""
    word: NDArray[np.uint64] = order.astype(np.uint64)
    word *= np.uint64(0x9E3779B97F4A7C15)
    word += np.uint64(seed & 0xFFFFFFFFFFFFFFFF)
    word ^= word >> np.uint64(30)
    word *= np.uint64(0xBF58476D1CE4E5B9)
    word ^= word >> np.uint64(27)
    word *= np.uint64(0x94D049BB133111EB)
    word ^= word >> np.uint64(31)
    return np.asarray((word >> np.uint64(11)) * 2.0**-53, np.float64)


class PrioritySample:
    """The `size` rows of largest priority, in stream order.

    order (k,)       position in the stream, from 0    row (k,)   row number in its source
    x (k, D)         features, NaN = missing           y (k, T)   targets
    forecast (k, F)  the forecast as columns of its target type
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.order = np.zeros(0)
        self.row = np.zeros(0)
        self.priority = np.zeros(0)
        self.x = np.zeros((0, 0))
        self.y = np.zeros((0, 0))
        self.forecast = np.zeros((0, 0))
        self._threshold = -np.inf  # rows must have a larger priority to be kept
        self._new: list[tuple[FloatArray | IntArray, ...]] = []

    def __len__(self) -> int:
        return int(self.merge_new_rows().order.shape[0])

    def offer_rows(
        self,
        order: FloatArray,
        row: FloatArray | IntArray,
        priority: FloatArray,
        x: FloatArray,
        y: FloatArray,
        forecast: FloatArray,
    ) -> None:
        """Add the rows of a batch that may be kept; `merge_new_rows` sorts them in."""
        self._pad_columns(x.shape[1], y.shape[1], forecast.shape[1])
        chosen = np.flatnonzero(priority > self._threshold)
        if chosen.shape[0] == 0:
            return
        self._new.append(tuple(part[chosen] for part in (order, row, priority, x, y, forecast)))
        if sum(len(part[0]) for part in self._new) > MAX_UNMERGED_ROWS:
            self.merge_new_rows()

    def merge_new_rows(self) -> PrioritySample:
        """Merge buffered rows into the sample."""
        if not self._new:
            return self
        merged = PrioritySample(self.size)
        for name, *new in zip(SAMPLE_FIELDS, *self._new, strict=True):
            join = stack_padded if name in MATRIX_FIELDS else _concatenate_rows
            setattr(merged, name, join(getattr(self, name), *new))
        merged._keep_rows(np.sort(merged.rank_rows()[: self.size]))
        merged._update_threshold()
        self.__dict__.update(merged.__dict__)  # in one step, safe against interruption
        return self

    def _update_threshold(self) -> None:
        """Set the priority that a row must exceed to be kept."""
        full = self.size and len(self) >= self.size
        self._threshold = float(self.priority.min()) if full else -np.inf

    def _pad_columns(self, *widths: int) -> None:
        """Pad columns to the width of the stream, even if no wide row is kept."""
        for name, width in zip(MATRIX_FIELDS, widths, strict=True):
            kept = getattr(self, name)
            if kept.shape[1] < width:
                setattr(self, name, stack_padded(kept, np.zeros((0, width))))

    def add_columns(self, unseen: FloatArray) -> None:
        """Add columns of x; `unseen` holds their values in the rows so far."""
        self.merge_new_rows()
        known = self.x.shape[1]
        more = np.tile(unseen[known:], (len(self), 1))
        self.x = np.concatenate((self.x, more), axis=1)

    def _keep_rows(self, index: NDArray[np.intp]) -> None:
        for name in SAMPLE_FIELDS:
            setattr(self, name, getattr(self, name)[index])

    def rank_rows(self) -> NDArray[np.intp]:
        """Return positions from the largest priority to the smallest."""
        return np.lexsort((self.order, -self.priority))

    def to_arrays(self, prefix: str) -> dict[str, FloatArray]:
        """Return the whole state as float64 arrays named `prefix.field`."""
        return {f"{prefix}.{name}": getattr(self.merge_new_rows(), name) for name in SAMPLE_FIELDS}

    @classmethod
    def from_arrays(cls, size: int, prefix: str, arrays: dict[str, FloatArray]) -> PrioritySample:
        """Restore a sample from `to_arrays`; ValueError if the arrays do not fit."""
        kept = cls(size)
        for name in SAMPLE_FIELDS:
            stored = np.array(arrays[f"{prefix}.{name}"], dtype=np.float64)
            if stored.ndim != (2 if name in MATRIX_FIELDS else 1) or stored.shape[0] != len(
                arrays[f"{prefix}.order"]
            ):
                raise ValueError(f"{prefix}.{name} does not fit the other arrays")
            setattr(kept, name, stored)
        if not 0 <= size <= MAX_SAMPLE_ROWS or len(kept) > size:
            raise ValueError(f"{prefix} holds {len(kept)} rows of at most {size}")
        kept._update_threshold()
        return kept


def _concatenate_rows(*parts: FloatArray | IntArray) -> FloatArray:
    return np.concatenate(parts)


def stack_padded(*parts: FloatArray | IntArray) -> FloatArray:
    """Stack rows; a narrower part is padded with 0 on the right (a column not yet known)."""
    both = np.zeros((sum(map(len, parts)), max(part.shape[1] for part in parts)))
    at = 0
    for part in parts:
        both[at : at + len(part), : part.shape[1]] = part
        at += len(part)
    return both


MAX_SAMPLED_ROWS = 512
"""Rows in the even sample; fewer if rows are wide."""

MAX_SAMPLE_CELLS = 1 << 16
"""Numbers that the sample may hold, except that it always holds 64 rows."""

MAX_WORST_ROWS = 20
"""Number of rows of largest loss that are kept."""


FULL_COUNT_ROWS = 4096
SPARSE_COUNT_STEP = 16
"""Feature histograms count every row at first, then one in SPARSE_COUNT_STEP."""


def choose_sample_rows(features: int, most: int = MAX_SAMPLED_ROWS) -> int:
    """Return the number of rows in a sample of this many features."""
    return max(min(most, 64), min(most, MAX_SAMPLE_CELLS // max(features, 1)))


class StreamSummaries:
    """Streaming summaries of rows and their forecasts; a sample of size 0 keeps none."""

    def __init__(self, features: int, seed: int = 0, sample: int = MAX_SAMPLED_ROWS) -> None:
        self.seed = seed
        self.rows = 0
        self.features = FeatureHistograms(features)
        self._sample = PrioritySample(choose_sample_rows(features, sample))
        self._worst = PrioritySample(MAX_WORST_ROWS)

    @property
    def sample(self) -> PrioritySample:
        """An even sample of the stream."""
        return self._sample.merge_new_rows()

    @property
    def worst_rows(self) -> PrioritySample:
        """The rows of largest loss."""
        return self._worst.merge_new_rows()

    def add(
        self,
        x: FloatArray,
        y: FloatArray,
        columns: FloatArray,
        surprise: FloatArray,
        number: IntArray | None = None,
    ) -> None:
        """Add rows in order: x (n, D), y (n, T) and their forecasts as columns (n, F).

        `surprise` is the NLL of each row, NaN if the row could not be scored.
        """
        n = x.shape[0]
        if not self._sample.size:
            self.rows += n
            return
        order = np.arange(self.rows, self.rows + n, dtype=np.float64)
        numbers = order + 1 if number is None else number
        self.features.add_features(x.shape[1])
        every = max(0, FULL_COUNT_ROWS - self.rows)
        self.features.add(x[:every])
        self.features.add(x[every + -(self.rows + every) % SPARSE_COUNT_STEP :: SPARSE_COUNT_STEP])
        self.rows += n
        scored = np.flatnonzero(np.isfinite(surprise))
        if scored.shape[0] < n:
            order, numbers, surprise = order[scored], numbers[scored], surprise[scored]
            x, y, columns = x[scored], y[scored], columns[scored]
        self._sample.offer_rows(order, numbers, hash_row_order(order, self.seed), x, y, columns)
        self._worst.offer_rows(order, numbers, surprise, x, y, columns)

    def add_columns(self, unseen: FloatArray) -> None:
        """Add columns of x; `unseen` holds their values in the rows so far."""
        if not self._sample.size:
            return
        self.features.add_features(len(unseen), unseen)
        self._sample.add_columns(unseen)
        self._worst.add_columns(unseen)

    def feature_quantiles(self, feature: int, levels: FloatArray) -> FloatArray:
        """Return quantiles of a feature in the even sample (NaN if it was never present)."""
        kept = self.sample.x
        if feature >= kept.shape[1]:
            return np.full(levels.shape[0], np.nan)
        known = kept[:, feature]
        known = known[np.isfinite(known)]
        return np.quantile(known, levels) if known.shape[0] else np.full(levels.shape[0], np.nan)

    def to_state(self) -> tuple[dict[str, Any], dict[str, FloatArray]]:
        """Return JSON header and float64 arrays; `from_state` restores the same bits."""
        header = {
            "seed": self.seed,
            "rows": self.rows,
            "sample_size": self.sample.size,
            "features": self.features.to_json(),
        }
        arrays = {
            "feature_counts": self.features.counts.astype(np.float64),
            **self.sample.to_arrays("sample"),
            **self.worst_rows.to_arrays("worst"),
        }
        return header, arrays

    @classmethod
    def from_state(
        cls, header: Mapping[str, Any], arrays: dict[str, FloatArray]
    ) -> StreamSummaries:
        """Restore the summaries from `to_state`."""
        summaries = cls(len(header["features"]["level"]))
        summaries.seed, summaries.rows = (
            check_stored_count(header["seed"]),
            check_stored_count(header["rows"]),
        )
        summaries.features = FeatureHistograms.from_json(
            header["features"], arrays["feature_counts"]
        )
        summaries._sample = PrioritySample.from_arrays(
            check_stored_count(header["sample_size"]), "sample", arrays
        )
        summaries._worst = PrioritySample.from_arrays(MAX_WORST_ROWS, "worst", arrays)
        return summaries


TRACE_BINS: Final = 512
MAX_MARKS: Final = 1000
_TRACE_FIELDS: Final = (
    ("low", np.fmin),
    ("high", np.fmax),
    ("lower", np.fmin),
    ("upper", np.fmax),
    ("surprise", np.fmax),
)


class StreamTrace:
    """Ranges of a value, of its predicted interval and of its surprise along a stream.

    Rows are summarised in at most TRACE_BINS bins; when they are full, neighbours are merged.
    """

    def __init__(self) -> None:
        self.first = 1  # number of the first row
        self.rows = 0
        self.marks: list[int] = []  # numbers of rows that are marked, at most MAX_MARKS
        self._bin_rows = 1
        self._bins = np.full((len(_TRACE_FIELDS), TRACE_BINS), np.nan)

    def add(
        self,
        y: FloatArray,
        interval: tuple[FloatArray, FloatArray],
        surprise: FloatArray,
        marks: Sequence[int] = (),
    ) -> None:
        """Add rows; `marks` are positions in them."""
        place = (self.rows + np.arange(len(y))) // self._bin_rows
        while len(place) and place[-1] >= TRACE_BINS:
            for k, (_, merge) in enumerate(_TRACE_FIELDS):
                half = merge(self._bins[k, ::2], self._bins[k, 1::2])
                self._bins[k] = np.concatenate((half, np.full_like(half, np.nan)))
            self._bin_rows *= 2
            place //= 2
        for k, values in enumerate((y, y, *interval, surprise)):
            _TRACE_FIELDS[k][1].at(self._bins[k], place, values)
        room = MAX_MARKS - len(self.marks)
        self.marks += [self.first + self.rows + at for at in marks][:room]
        self.rows += len(y)

    def to_arrays(self) -> dict[str, FloatArray]:
        """Return row numbers, the fields of each bin, and the marked rows."""
        count = -(-self.rows // self._bin_rows)
        row = self.first + self._bin_rows * (np.arange(count) + 0.5) - 0.5
        known = {name: self._bins[k, :count] for k, (name, _) in enumerate(_TRACE_FIELDS)}
        return {"row": row, **known, "marks": np.array(self.marks, dtype=np.float64)}
