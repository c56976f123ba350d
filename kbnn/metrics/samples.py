"""Bounded summaries of a stream, kept in the model for the figures of `inspect` and `evaluate`.

They hold feature histograms, an even sample of rows and the rows with the largest loss. Both
samples keep the `size` rows of largest priority. For the even sample the priority is a hash of the
row's position in the stream, so it is seeded and needs no generator state; for the worst rows it is
the NLL, where the earlier of equal rows is kept. All of it depends only on the rows, not on how
they are cut into batches.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kbnn.array_types import FloatArray, IntArray
from kbnn.metrics.histograms import FeatureHistograms
from kbnn.metrics.score import check_stored_count

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
