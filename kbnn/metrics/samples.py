"""A few whole rows kept from a long stream: an even sample, and the rows that surprised most.

Both keep the `size` rows of largest priority. For the sample the priority is a hash of the row's
place in the stream, so it is seeded, needs no generator state, and keeps the same rows however the
stream was cut. For the surprises it is the row's NLL; of equals the earlier stays.

What the pictures of `inspect` and `evaluate` are drawn from: bounded, exact, kept in the model.

Feature histograms, an even sample of rows and the most surprising rows. All of it depends on the
rows alone, not on how they were cut into blocks.
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
"""More rows than this are never kept."""

MAX_UNMERGED_ROWS = 64
"""Rows that are not put in their places at once: late in a stream few of a block are selected."""


def hash_row_order(order: FloatArray, seed: int) -> FloatArray:
    """A number in [0, 1) for each place in the stream: the splitmix64 finaliser."""
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

    order (k,)     place in the stream, from 0      row (k,)   row number in its source
    x (k, D)       features, NaN = missing          y (k, T)   targets
    forecast (k, F)  what the model said, as its task puts it into columns
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.order = np.zeros(0)
        self.row = np.zeros(0)
        self.priority = np.zeros(0)
        self.x = np.zeros((0, 0))
        self.y = np.zeros((0, 0))
        self.forecast = np.zeros((0, 0))
        self._threshold = -np.inf  # no row of a priority as small belongs among them
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
        """Take in the rows of a block that may belong among the kept ones; `settle` places them."""
        self._pad_columns(x.shape[1], y.shape[1], forecast.shape[1])
        chosen = np.flatnonzero(priority > self._threshold)
        if chosen.shape[0] == 0:
            return
        self._new.append(tuple(part[chosen] for part in (order, row, priority, x, y, forecast)))
        if sum(len(part[0]) for part in self._new) > MAX_UNMERGED_ROWS:
            self.merge_new_rows()

    def merge_new_rows(self) -> PrioritySample:
        """Put new rows in their places."""
        if not self._new:
            return self
        merged = PrioritySample(self.size)
        for name, *new in zip(SAMPLE_FIELDS, *self._new, strict=True):
            join = stack_padded if name in MATRIX_FIELDS else _concatenate_rows
            setattr(merged, name, join(getattr(self, name), *new))
        merged._keep_rows(np.sort(merged.rank_rows()[: self.size]))
        merged._update_threshold()
        self.__dict__.update(merged.__dict__)  # at once: reading may be interrupted
        return self

    def _update_threshold(self) -> None:
        """Note what a row must be above to be kept."""
        full = self.size and len(self) >= self.size
        self._threshold = float(self.priority.min()) if full else -np.inf

    def _pad_columns(self, *widths: int) -> None:
        """Be as wide as the stream even when no wide row is kept: blocks leave no trace."""
        for name, width in zip(MATRIX_FIELDS, widths, strict=True):
            kept = getattr(self, name)
            if kept.shape[1] < width:
                setattr(self, name, stack_padded(kept, np.zeros((0, width))))

    def add_columns(self, unseen: FloatArray) -> None:
        """Columns of x that were not known before; `unseen` is what they held."""
        self.merge_new_rows()
        known = self.x.shape[1]
        more = np.tile(unseen[known:], (len(self), 1))
        self.x = np.concatenate((self.x, more), axis=1)

    def _keep_rows(self, index: NDArray[np.intp]) -> None:
        for name in SAMPLE_FIELDS:
            setattr(self, name, getattr(self, name)[index])

    def rank_rows(self) -> NDArray[np.intp]:
        """Positions from the largest priority to the smallest."""
        return np.lexsort((self.order, -self.priority))

    def to_arrays(self, prefix: str) -> dict[str, FloatArray]:
        """The whole state as float64 arrays named `prefix.field`."""
        return {f"{prefix}.{name}": getattr(self.merge_new_rows(), name) for name in SAMPLE_FIELDS}

    @classmethod
    def from_arrays(cls, size: int, prefix: str, arrays: dict[str, FloatArray]) -> PrioritySample:
        """The rows that `arrays` described."""
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
    """Rows under rows; a narrower part is filled with 0 on the right (a column not yet known)."""
    both = np.zeros((sum(map(len, parts)), max(part.shape[1] for part in parts)))
    at = 0
    for part in parts:
        both[at : at + len(part), : part.shape[1]] = part
        at += len(part)
    return both


MAX_SAMPLED_ROWS = 512
"""Rows in the even sample; fewer when rows are wide."""

MAX_SAMPLE_CELLS = 1 << 16
"""Numbers the sample may hold, except that it always holds 64 rows."""

MAX_WORST_ROWS = 20
"""Most surprising rows kept."""


FULL_COUNT_ROWS = 4096
SPARSE_COUNT_STEP = 16
"""Feature histograms count every row at first, then one in ONE_IN: their shape is known by then."""


def choose_sample_rows(features: int, most: int = MAX_SAMPLED_ROWS) -> int:
    """Rows in the sample of so many features."""
    return max(min(most, 64), min(most, MAX_SAMPLE_CELLS // max(features, 1)))


class StreamSummaries:
    """Streaming summaries of rows and of what was said of them; a sample of none keeps none."""

    def __init__(self, features: int, seed: int = 0, sample: int = MAX_SAMPLED_ROWS) -> None:
        self.seed = seed
        self.rows = 0
        self.features = FeatureHistograms(features)
        self._sample = PrioritySample(choose_sample_rows(features, sample))
        self._worst = PrioritySample(MAX_WORST_ROWS)

    @property
    def sample(self) -> PrioritySample:
        """Rows of all the stream, evenly."""
        return self._sample.merge_new_rows()

    @property
    def worst_rows(self) -> PrioritySample:
        """The rows that surprised most."""
        return self._worst.merge_new_rows()

    def add(
        self,
        x: FloatArray,
        y: FloatArray,
        columns: FloatArray,
        surprise: FloatArray,
        number: IntArray | None = None,
    ) -> None:
        """Take in rows in order: x (n, D), y (n, T), what was said of them (n, F).

        `surprise` is the NLL of each row; a row where it is NaN could not be judged.
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
        """Make room for columns of x; in the rows so far they held what `unseen` says."""
        if not self._sample.size:
            return
        self.features.add_features(len(unseen), unseen)
        self._sample.add_columns(unseen)
        self._worst.add_columns(unseen)

    def feature_quantiles(self, feature: int, levels: FloatArray) -> FloatArray:
        """Quantiles of a feature in the even sample (NaN when it was never present)."""
        kept = self.sample.x
        if feature >= kept.shape[1]:
            return np.full(levels.shape[0], np.nan)
        known = kept[:, feature]
        known = known[np.isfinite(known)]
        return np.quantile(known, levels) if known.shape[0] else np.full(levels.shape[0], np.nan)

    def to_state(self) -> tuple[dict[str, Any], dict[str, FloatArray]]:
        """JSON header and float64 arrays; `from_state` restores the same bits."""
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
        """The summaries that `to_state` described."""
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
