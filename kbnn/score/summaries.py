"""What the pictures of `inspect` and `evaluate` are drawn from: bounded, exact, kept in the model.

Feature histograms, an even sample of rows and the most surprising rows. All of it depends on the
rows alone, not on how they were cut into blocks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from kbnn.score.histograms import FeatureHistograms
from kbnn.score.reservoir import PrioritySample, hash_row_order
from kbnn.score.rowsums import FloatArray, IntArray
from kbnn.score.score import check_stored_count

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
