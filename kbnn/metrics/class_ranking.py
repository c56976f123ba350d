"""Figures of classes on a stream: AUC, average precision, thresholds, F1, MCC.

`ClassRanking` keeps the probabilities of the first EXACT_ROWS rows. Up to there AUC, average
precision and thresholds are exact. Then all rows are counted in bins of the log-odds, and values
come with a bound of their error: within a bin, the order of unequal probabilities is unknown.

`ConfusionCounts` keeps the weight of every pair of true and predicted class, so that F1, MCC,
precision and recall are exact.

Memory is constant for a number of classes, and the result does not depend on how rows are cut into
batches.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Self

import numpy as np

from kbnn.array_types import BoolArray, FloatArray, IntArray
from kbnn.metrics.class_metrics import pad_classes
from kbnn.metrics.figures import restore_floats, shared_ones

EXACT_ROWS = 4096
"""Rows whose probabilities are kept, before they are counted in bins."""
LOG_ODDS_BINS = 4096
MAX_LOG_ODDS = 37.0
"""Equal bins of the log-odds between plus and minus this; 0 and 1 have bins of their own."""
ALL_BINS = LOG_ODDS_BINS + 2


class Estimate(NamedTuple):
    """A figure and a bound of its error, 0 where it is exact."""

    value: float
    error: float


class ThresholdChoice(NamedTuple):
    """The threshold of least cost: the class is predicted from this probability on."""

    threshold: float
    cost: float  # mean cost of a row


class RankedCounts(NamedTuple):
    """Weights of rows of a class and of other rows, by decreasing probability of the class."""

    score: FloatArray  # (m,) smallest probability of each group
    own: FloatArray  # (m,)
    others: FloatArray  # (m,)
    is_tied: BoolArray  # (m,) whether all probabilities of the group are equal

    def auc(self) -> Estimate | None:
        """Return P(a row of the class ranks above another row), ties half; None if undefined.

        Pairs in the same group count half, so that the error is at most half the share of pairs
        whose order is unknown.
        """
        pairs = float(np.sum(self.own)) * float(np.sum(self.others))
        if pairs <= 0.0:
            return None
        above = np.cumsum(self.own) - self.own
        same = 0.5 * self.own * self.others
        value = (float(np.sum(above * self.others)) + float(np.sum(same))) / pairs
        return Estimate(value, float(np.sum(same[~self.is_tied])) / pairs)

    def average_precision(self) -> Estimate | None:
        """Return the precision averaged over recall; None if undefined.

        AP = sum over groups of (recall gained) (precision so far). Of a bin, the precision lies
        between those of all other rows first and of all own rows first.
        """
        total = float(np.sum(self.own))
        if total <= 0.0:
            return None
        own, others = np.cumsum(self.own), np.cumsum(self.others)
        precision = own / np.maximum(own + others, 1e-300)
        best = own / np.maximum(own + others - self.others, 1e-300)
        worst = (own - self.own) / np.maximum(own - self.own + others, 1e-300)
        off = np.where(self.is_tied, 0.0, np.maximum(best - precision, precision - worst))
        value, error = (float(np.sum(self.own * part)) / total for part in (precision, off))
        return Estimate(value, error)

    def best_threshold(self, cost_fn: float, cost_fp: float) -> ThresholdChoice | None:
        """Return the threshold of least cost, the highest of equals; None without rows."""
        total = float(np.sum(self.own) + np.sum(self.others))
        if total <= 0.0:
            return None
        own = np.concatenate(([0.0], np.cumsum(self.own)))
        others = np.concatenate(([0.0], np.cumsum(self.others)))
        cost = cost_fn * (own[-1] - own) + cost_fp * others
        at = int(np.argmin(cost))
        never = float(np.nextafter(self.score[0], 2.0))
        threshold = never if at == 0 else float(self.score[at - 1])
        return ThresholdChoice(threshold, float(cost[at]) / total)


class ClassRanking:
    """How well probabilities rank the rows of each class above the others."""

    def __init__(self) -> None:
        self.rows = 0
        self._label: IntArray = np.zeros(0, dtype=np.int64)
        self._p = np.zeros((0, 0))
        self._weight = np.zeros(0)
        self._bins: FloatArray | None = None  # (classes, 2, bins): own rows, other rows

    @property
    def classes(self) -> int:
        """The number of classes seen."""
        return int(self._p.shape[1] if self._bins is None else len(self._bins))

    def add(
        self, label: IntArray, probability: FloatArray, weight: FloatArray | None = None
    ) -> None:
        """Add rows in order: labels (n,) and probabilities (n, classes) without NaN."""
        w = shared_ones(len(label)) if weight is None else weight
        classes = max(self.classes, probability.shape[1], int(np.max(label, initial=-1)) + 1)
        self.rows += len(label)
        p = pad_classes(probability, classes)
        if self._bins is None and self.rows <= EXACT_ROWS:
            self._label = np.concatenate((self._label, label.astype(np.int64)))
            self._p = np.concatenate((pad_classes(self._p, classes), p))
            self._weight = np.concatenate((self._weight, w))
            return
        self._count_rows(label, p, w)

    def _count_rows(self, label: IntArray, p: FloatArray, weight: FloatArray) -> None:
        """Count rows in bins, the rows kept so far first."""
        bins = np.zeros((0, 2, ALL_BINS)) if self._bins is None else self._bins
        self._bins = np.pad(bins, ((0, p.shape[1] - len(bins)), (0, 0), (0, 0)))
        if len(self._label):
            kept = self._label, pad_classes(self._p, p.shape[1]), self._weight
            self._label, self._p, self._weight = self._label[:0], self._p[:0, :0], self._weight[:0]
            self._count_rows(*kept)
        for k in range(p.shape[1]):
            other = (label != k).astype(np.int64)
            np.add.at(self._bins[k], (other, _bin_index(p[:, k])), weight)

    def merge(self, other: ClassRanking) -> None:
        """Add the rows of another stream."""
        if other._bins is None:
            self.add(other._label, other._p, other._weight)
            return
        classes = max(self.classes, other.classes)
        self._count_rows(np.zeros(0, np.int64), np.zeros((0, classes)), np.zeros(0))
        assert self._bins is not None
        self._bins[: other.classes] += other._bins
        self.rows += other.rows

    def rank_rows(self, index: int) -> RankedCounts:
        """Return the counts of one class by decreasing probability."""
        if self._bins is not None:
            own, others = self._bins[index][:, ::-1]
            filled = (own > 0.0) | (others > 0.0)
            edges = (np.arange(LOG_ODDS_BINS) / LOG_ODDS_BINS * 2.0 - 1.0) * MAX_LOG_ODDS
            score = np.concatenate(([1.0], 1.0 / (1.0 + np.exp(-edges[::-1])), [0.0]))
            tied = (score == 0.0) | (score == 1.0)
            return RankedCounts(score[filled], own[filled], others[filled], tied[filled])
        score, group = np.unique(-self._p[:, index], return_inverse=True)
        sums = np.zeros((2, len(score)))
        np.add.at(sums, ((self._label != index).astype(np.int64), group), self._weight)
        return RankedCounts(-score, sums[0], sums[1], np.ones(len(score), dtype=bool))

    def auc(self) -> Estimate | None:
        """Return the AUC of the second of two classes, or the mean of all: one against the rest."""
        return self._average([self.rank_rows(k).auc() for k in self._ranked_classes()])

    def average_precision(self) -> Estimate | None:
        """Return the average precision of the second of two classes, or the mean of all."""
        return self._average(
            [self.rank_rows(k).average_precision() for k in self._ranked_classes()]
        )

    def _ranked_classes(self) -> range:
        return range(1, 2) if self.classes == 2 else range(self.classes)

    @staticmethod
    def _average(found: list[Estimate | None]) -> Estimate | None:
        known = [one for one in found if one is not None]
        if not known:
            return None
        value, error = (sum(part) / len(known) for part in zip(*known, strict=True))
        return Estimate(value, error)

    def to_arrays(self) -> dict[str, FloatArray]:
        """Return the whole state; `from_arrays` restores it."""
        bins = np.zeros((0, 2, ALL_BINS)) if self._bins is None else self._bins
        return {
            "rows": np.array([float(self.rows)]),
            "label": self._label.astype(np.float64),
            "p": self._p,
            "weight": self._weight,
            "bins": bins,
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, FloatArray]) -> Self:
        """Restore the state; raise ValueError if it is damaged."""
        found = cls()
        found.rows = int(restore_floats(arrays["rows"], (1,))[0])
        n = len(arrays["label"])
        found._label = restore_floats(arrays["label"], (n,)).astype(np.int64)
        found._p = restore_floats(arrays["p"], (n, np.shape(arrays["p"])[1]))
        found._weight = restore_floats(arrays["weight"], (n,))
        if len(arrays["bins"]):
            found._bins = restore_floats(arrays["bins"], (len(arrays["bins"]), 2, ALL_BINS))
        return found


def _bin_index(p: FloatArray) -> IntArray:
    """Return the bin of each probability's log-odds."""
    with np.errstate(divide="ignore"):
        odds = np.clip(np.log(p) - np.log1p(-p), -MAX_LOG_ODDS, MAX_LOG_ODDS)
    index = ((odds / MAX_LOG_ODDS + 1.0) * (0.5 * LOG_ODDS_BINS)).astype(np.int64)
    index = 1 + np.minimum(index, LOG_ODDS_BINS - 1)
    return np.where(p <= 0.0, 0, np.where(p >= 1.0, ALL_BINS - 1, index))


class ConfusionCounts:
    """Weights of rows by true class (down) and predicted class (across)."""

    def __init__(self) -> None:
        self.counts = np.zeros((0, 0))

    def add(self, label: IntArray, predicted: IntArray, weight: FloatArray | None = None) -> None:
        """Add rows in order."""
        w = shared_ones(len(label)) if weight is None else weight
        self.widen(int(max(np.max(label, initial=-1), np.max(predicted, initial=-1))) + 1)
        np.add.at(self.counts, (label.astype(np.int64), predicted.astype(np.int64)), w)

    def widen(self, classes: int) -> None:
        """Add classes up to this number."""
        more = max(0, classes - len(self.counts))
        self.counts = np.pad(self.counts, ((0, more), (0, more)))

    def merge(self, other: ConfusionCounts) -> None:
        """Add the rows of another stream."""
        self.widen(len(other.counts))
        self.counts[: len(other.counts), : len(other.counts)] += other.counts

    def precision(self) -> FloatArray:
        """Return the share of rows predicted as each class that are of it; 0 if there are none."""
        return _divide(np.diagonal(self.counts), self.counts.sum(axis=0))

    def recall(self) -> FloatArray:
        """Return the share of rows of each class that are predicted as it; 0 if there are none."""
        return _divide(np.diagonal(self.counts), self.counts.sum(axis=1))

    def f1(self) -> FloatArray:
        """Return F1 of each class, 2 TP / (2 TP + FP + FN); 0 where it is undefined."""
        sums = self.counts.sum(axis=0) + self.counts.sum(axis=1)
        return _divide(2.0 * np.diagonal(self.counts), sums)

    def macro_f1(self) -> float | None:
        """Return the mean F1 of the classes seen or predicted; None without rows."""
        seen = self.counts.sum(axis=0) + self.counts.sum(axis=1) > 0.0
        return float(np.mean(self.f1()[seen])) if seen.any() else None

    def mcc(self) -> float | None:
        """Return Matthews' correlation of true and predicted classes; None without rows.

        (c s - sum_k t_k p_k) / sqrt((s^2 - sum_k p_k^2)(s^2 - sum_k t_k^2)) with s rows, c of them
        right, t_k of class k and p_k predicted as k; 0 if either is constant.
        """
        s = float(self.counts.sum())
        if s <= 0.0:
            return None
        t, p = self.counts.sum(axis=1) / s, self.counts.sum(axis=0) / s
        spread = (1.0 - float(p @ p)) * (1.0 - float(t @ t))
        right = float(np.trace(self.counts)) / s
        return (right - float(t @ p)) / spread**0.5 if spread > 0.0 else 0.0


def _divide(part: FloatArray, whole: FloatArray) -> FloatArray:
    return np.divide(part, whole, out=np.zeros(len(whole)), where=whole > 0.0)
