"""What the pictures of `inspect` and `evaluate` are drawn from: bounded, exact, kept in the model.

PIT counts, feature histograms, an even sample of rows and the most surprising rows. All of it
depends on the rows alone, not on how they were cut into blocks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from kbnn.score.class_metrics import EPS, widened
from kbnn.score.histograms import PIT_BINS, FeatureHistograms, PitHistogram
from kbnn.score.metrics import gaussian_nll, standardised
from kbnn.score.reservoir import KeptRows, row_hash
from kbnn.score.rowsums import FloatArray, IntArray, restored

SAMPLE = 512
"""Rows in the even sample; fewer when rows are wide."""

SAMPLE_CELLS = 1 << 16
"""Numbers the sample may hold, except that it always holds 64 rows."""

WORST = 20
"""Most surprising rows kept."""


EVERY_ROW = 4096
ONE_IN = 16
"""Feature histograms count every row at first, then one in ONE_IN: their shape is known by then."""


class Summaries:
    """Streaming summaries for `targets` numeric targets, or for one class target (`targets=0`)."""

    def __init__(self, targets: int, features: int, seed: int = 0, sample: int = SAMPLE) -> None:
        self.targets = targets
        self.seed = seed
        self.rows = 0
        self.pit = PitHistogram(targets)
        self.features = FeatureHistograms(features)
        self.sample = KeptRows(max(min(sample, 64), min(sample, SAMPLE_CELLS // max(features, 1))))
        self.worst = KeptRows(WORST)
        self.confusion: IntArray = np.zeros((0, 0), dtype=np.int64)
        """Rows of true class (down) and most probable class (across); classes only."""

    def add(
        self,
        x: FloatArray,
        y: FloatArray,
        mean: FloatArray | None,
        sd: FloatArray | None,
        probability: FloatArray | None = None,
        rows: IntArray | None = None,
    ) -> None:
        """Take in rows in order: x (n, D), y (n, T) and the forecast of those rows."""
        n = x.shape[0]
        order = np.arange(self.rows, self.rows + n, dtype=np.float64)
        numbers = order + 1 if rows is None else rows.astype(np.float64)
        self.rows += n
        self.features.widen(x.shape[1])
        thinned = (order < EVERY_ROW) | (order % ONE_IN == 0)
        self.features.add(x if thinned.all() else x[thinned])
        if probability is not None:
            forecast, surprise = probability, self._count_classes(y[:, 0], probability)
        elif mean is not None and sd is not None:
            forecast, surprise = np.concatenate((mean, sd), axis=1), self._count_pit(y, mean, sd)
        else:
            raise ValueError("a forecast is either mean and sd, or probability")
        scored = np.flatnonzero(np.isfinite(surprise))
        if scored.shape[0] < n:
            order, numbers, surprise = order[scored], numbers[scored], surprise[scored]
            x, y, forecast = x[scored], y[scored], forecast[scored]
        self.sample.offer(order, numbers, row_hash(order, self.seed), x, y, forecast)
        self.worst.offer(order, numbers, surprise, x, y, forecast)

    def _count_pit(self, y: FloatArray, mean: FloatArray, sd: FloatArray) -> FloatArray:
        """Count the PIT; the NLL of each row, summed over its known targets (NaN: none known)."""
        usable = np.isfinite(y) & np.isfinite(mean) & np.isfinite(sd) & (sd > 0)
        scale = np.where(usable, sd, 1.0)
        _, z = standardised(np.where(usable, y, 0.0), np.where(usable, mean, 0.0), scale)
        self.pit.add(np.where(usable, z, np.nan))
        nll = np.where(usable, gaussian_nll(z, scale), 0.0)
        total = np.add.accumulate(nll, axis=1)[:, -1]
        return np.where(usable.any(axis=1), total, np.nan)

    def _count_classes(self, label: FloatArray, probability: FloatArray) -> FloatArray:
        """Count the confusion table; the log-loss of each row (NaN: label unknown)."""
        known = np.isfinite(label) & (label >= 0) & np.isfinite(probability).all(axis=1)
        c = label[known].astype(np.int64)
        p = widened(probability[known], int(c.max(initial=-1)) + 1)
        classes = max(p.shape[1], self.confusion.shape[0])
        grow = classes - self.confusion.shape[0]
        counts = np.pad(self.confusion, ((0, grow), (0, grow)))
        if c.shape[0]:
            np.add.at(counts, (c, np.argmax(p, axis=1)), 1)
        self.confusion = counts
        loss = np.full(label.shape[0], np.nan)
        loss[known] = -np.log(np.clip(p[np.arange(c.shape[0]), c], EPS, 1.0))
        return loss

    def quantiles(self, feature: int, levels: FloatArray) -> FloatArray:
        """Quantiles of a feature in the even sample (NaN when it was never present)."""
        if feature >= self.sample.x.shape[1]:
            return np.full(levels.shape[0], np.nan)
        known = self.sample.x[:, feature]
        known = known[np.isfinite(known)]
        return np.quantile(known, levels) if known.shape[0] else np.full(levels.shape[0], np.nan)

    def to_state(self) -> tuple[dict[str, Any], dict[str, FloatArray]]:
        """JSON header and float64 arrays; `from_state` restores the same bits."""
        header = {
            "targets": self.targets,
            "seed": self.seed,
            "rows": self.rows,
            "sample_size": self.sample.size,
            "features": self.features.to_json(),
        }
        arrays = {
            "pit": self.pit.counts.astype(np.float64),
            "feature_counts": self.features.counts.astype(np.float64),
            "confusion": self.confusion.astype(np.float64),
            **self.sample.arrays("sample"),
            **self.worst.arrays("worst"),
        }
        return header, arrays

    @classmethod
    def from_state(cls, header: Mapping[str, Any], arrays: dict[str, FloatArray]) -> Summaries:
        """The summaries that `to_state` described."""
        summaries = cls(int(header["targets"]), len(header["features"]["level"]))
        summaries.seed, summaries.rows = int(header["seed"]), int(header["rows"])
        shape = (summaries.targets, PIT_BINS)
        summaries.pit.counts = restored(arrays["pit"], shape).astype(np.int64)
        summaries.features = FeatureHistograms.from_json(
            header["features"], arrays["feature_counts"]
        )
        size = len(arrays["confusion"])
        summaries.confusion = restored(arrays["confusion"], (size, size)).astype(np.int64)
        summaries.sample = KeptRows.from_arrays(int(header["sample_size"]), "sample", arrays)
        summaries.worst = KeptRows.from_arrays(WORST, "worst", arrays)
        return summaries
