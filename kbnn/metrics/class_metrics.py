"""Streaming metrics of class probabilities, in constant memory.

A row with label c and probabilities p adds

    accuracy  1 if argmax p = c (the first of equals)
    log-loss  -log max(p_c, eps)
    Brier     1/2 sum_k (p_k - 1[k = c])^2     (with two classes that is (p_1 - y)^2)
    ECE       | mean confidence - share correct | per bin of the confidence max p, weighted by rows

The baseline predicts the class frequencies of the same rows. Classes may appear during the stream:
probability arrays may grow wider, and a label beyond the last column has probability 0.

`ClassRanking` computes AUC, average precision and thresholds for an evaluation. It keeps the
probabilities of the first EXACT_ROWS rows. Up to there AUC, average precision and thresholds are
exact. Then all rows are counted in bins of the log-odds, and values come with a bound of their
error: within a bin, the order of unequal probabilities is unknown.

`ConfusionCounts` keeps the weight of every pair of true and predicted class, so that F1, MCC,
precision and recall are exact.

Memory is constant for a number of classes, and the result does not depend on how rows are cut into
batches.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Self

import numpy as np

from kbnn.array_types import BoolArray, FloatArray, IntArray
from kbnn.metrics import figures as base
from kbnn.metrics.figures import Metric, restore_counts, restore_floats, shared_ones, to_float_list
from kbnn.wording import format_percent

CONFIDENCE_BINS = 15
"""Equal bins of the confidence for the calibration error."""

MIN_PROBABILITY = float(np.finfo(np.float64).eps)
"""Probabilities are raised to this before the logarithm: a certain error costs 36 nats, not inf."""


def confidence_bin_index(confidence: FloatArray) -> IntArray:
    """Return the index of the bin (j / BINS, (j + 1) / BINS] of each confidence."""
    index = np.ceil(confidence * CONFIDENCE_BINS).astype(np.int64) - 1
    return np.clip(index, 0, CONFIDENCE_BINS - 1)


class ScoredClassBatch:
    """Probabilities (n, K) with their true labels (n,), class indices or NaN."""

    def __init__(
        self, label: FloatArray, probability: FloatArray, weight: FloatArray | None = None
    ) -> None:
        self.known = probability.shape[1]
        there = np.isfinite(label) & (label >= 0)
        self.usable: BoolArray = there & np.isfinite(probability).all(axis=1)
        self.skipped = int(np.count_nonzero(~there))
        self.invalid = int(np.count_nonzero(there & ~self.usable))
        if self.skipped or self.invalid:
            label, probability = label[self.usable], probability[self.usable]
            weight = None if weight is None else weight[self.usable]
        n = label.shape[0]
        self.is_unweighted = weight is None
        self.weight = shared_ones(n) if weight is None else np.ascontiguousarray(weight)
        self.label = label.astype(np.int64)
        self.p = pad_classes(probability, int(self.label.max(initial=-1)) + 1)
        row = np.arange(n)
        self.top: IntArray = np.argmax(self.p, axis=1) if self.p.shape[1] else self.label
        self.confidence = self.p[row, self.top]
        self.p_label = self.p[row, self.label]
        self.correct = (self.top == self.label).astype(np.float64)
        self.log_loss = -np.log(np.clip(self.p_label, MIN_PROBABILITY, 1.0))

    @property
    def brier(self) -> FloatArray:
        """sum_k (p_k - 1[k = c])^2; half of it is the score."""
        gap = self.p.copy()
        gap[np.arange(gap.shape[0]), self.label] = 1 - self.p_label
        return sum_squares(gap)

    @property
    def row_losses(self) -> FloatArray:
        """Log-loss of all rows, NaN if a row cannot be scored."""
        found = np.full(self.usable.shape[0], np.nan)
        found[self.usable] = self.log_loss
        return found


def _derive_brier(score: ClassScore) -> float | None:
    """Return half of the mean sum of squares: between 0 and 1 for any number of classes."""
    mean = score.mean_term("brier")
    return None if mean is None else 0.5 * mean


def _derive_constant_accuracy(score: ClassScore) -> float | None:
    return max(score.class_shares(), default=None)


def _derive_constant_log_loss(score: ClassScore) -> float | None:
    shares = score.class_shares()
    return math.fsum(-f * math.log(f) for f in shares) + 0.0 if shares else None


def _derive_constant_brier(score: ClassScore) -> float | None:
    shares = score.class_shares()
    return 0.5 * max(1 - math.fsum(f * f for f in shares), 0) if shares else None


CLASS_METRICS = (
    Metric(
        "accuracy",
        "accuracy",
        "",
        lambda j: j.correct,
        better="higher",
        form=format_percent,
        baseline="baseline_accuracy",
        brief=True,
        curve="loss",
        on_curve=lambda share: 1 - share,
    ),
    Metric(
        "log_loss",
        "log-loss",
        "nats a row",
        lambda j: j.log_loss,
        baseline="baseline_log_loss",
        brief=True,
        curve="nll",
    ),
    Metric(
        "brier",
        "Brier",
        "half the squared error, 0 to 1",
        lambda j: j.brier,
        derive=_derive_brier,
        baseline="baseline_brier",
    ),
    Metric(
        "ece",
        "calibration error",
        "ECE over 15 bins",
        derive=lambda score: score.calibration_error(),
        form=format_percent,
    ),
    Metric("confidence", term=lambda j: j.confidence, better="neither"),
    Metric("baseline_accuracy", derive=_derive_constant_accuracy, better="higher"),
    Metric("baseline_log_loss", derive=_derive_constant_log_loss),
    Metric("baseline_brier", derive=_derive_constant_brier),
)


class ClassScore(base.Score):
    """Streaming metrics of one class target."""

    figures_listed = CLASS_METRICS

    def __init__(self) -> None:
        super().__init__()
        self._bins = np.zeros((3, CONFIDENCE_BINS))
        self._frequency = np.zeros(0)
        self.confusion: IntArray = np.zeros((0, 0), dtype=np.int64)
        """Rows of true class (down) and most probable class (across)."""

    @property
    def class_count(self) -> int:
        """Number of classes seen so far, in the labels or in the forecasts."""
        return int(self._frequency.shape[0])

    def class_shares(self) -> list[float]:
        """Return the frequency of each class seen."""
        return [f / self._weight for f in to_float_list(self._frequency) if f > 0]

    def add(self, judged: base.ScoredBatch) -> None:
        """Add rows in order."""
        assert isinstance(judged, ScoredClassBatch)
        super().add(judged)
        self._add_classes(max(judged.known, judged.p.shape[1]))
        if not judged.label.shape[0]:
            return
        bins, w = confidence_bin_index(judged.confidence), judged.weight
        # Row by row, so that the result does not depend on batches.
        for total, values in zip(
            self._bins, (w, judged.correct * w, judged.confidence * w), strict=True
        ):
            np.add.at(total, bins, values)
        np.add.at(self._frequency, judged.label, w)
        np.add.at(self.confusion, (judged.label, judged.top), 1)

    def _add_classes(self, classes: int) -> None:
        more = max(0, classes - self.class_count)
        self._frequency = np.pad(self._frequency, (0, more))
        self.confusion = np.pad(self.confusion, ((0, more), (0, more)))

    def calibration_error(self) -> float | None:
        """Return ECE = sum over bins of |sum of confidence - sum of correct| / total weight."""
        if self._weight <= 0:
            return None
        _, correct, confidence = self._bins
        return math.fsum(to_float_list(np.abs(confidence - correct))) / self._weight

    def reliability_curve(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return weight, mean confidence and share correct per bin (NaN if a bin is empty)."""
        weight, correct, confidence = self._bins
        empty = np.full(CONFIDENCE_BINS, np.nan)
        filled = weight > 0
        return (
            weight.copy(),
            np.divide(confidence, weight, out=empty.copy(), where=filled),
            np.divide(correct, weight, out=empty.copy(), where=filled),
        )

    def to_json(self) -> dict[str, Any]:
        """Return the whole state; `from_json` restores it bit for bit."""
        return {
            **super().to_json(),
            "bins": [to_float_list(row) for row in self._bins],
            "frequency": to_float_list(self._frequency),
            "confusion": self.confusion.tolist(),
        }

    @classmethod
    def from_json(cls, state: Mapping[str, Any]) -> Self:
        """Restore the score from `to_json`."""
        score = super().from_json(state)
        score._bins = restore_floats(state["bins"], (3, CONFIDENCE_BINS))
        weight, *shares = score._bins
        slack = weight * (1 + 1e-9) + 1e-9
        if np.any(score._bins < 0.0) or any(np.any(share > slack) for share in shares):
            raise ValueError("the confidence bins do not fit the number of rows")
        classes = len(state["frequency"])
        score._frequency = restore_floats(state["frequency"], (classes,))
        most = score._weight * (1 + 1e-9) + 1e-9
        if np.any(score._frequency < 0.0) or np.any(score._frequency > most):
            raise ValueError("the class counts do not fit the number of rows")
        confusion = np.reshape(state["confusion"], (classes, classes))
        score.confusion = restore_counts(confusion, (classes, classes))
        return score


def pad_classes(probability: FloatArray, classes: int) -> FloatArray:
    """Pad the array with columns of zeros up to `classes`; the result is contiguous."""
    missing = classes - probability.shape[1]
    p = np.ascontiguousarray(probability, dtype=np.float64)
    return np.pad(p, ((0, 0), (0, missing))) if missing > 0 else p


def sum_squares(gap: FloatArray) -> FloatArray:
    """Return row sums of squares, first class to last: extra columns of zeros change no bit."""
    return np.ascontiguousarray(np.add.accumulate(gap * gap, axis=1)[:, -1])


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

    def auc(self, positive: int = 1) -> Estimate | None:
        """Return the AUC of the positive of two classes, or the mean of all against the rest."""
        return self._average([self.rank_rows(k).auc() for k in self._ranked_classes(positive)])

    def average_precision(self, positive: int = 1) -> Estimate | None:
        """Return the average precision of the positive of two classes, or the mean of all."""
        return self._average(
            [self.rank_rows(k).average_precision() for k in self._ranked_classes(positive)]
        )

    def _ranked_classes(self, positive: int) -> Sequence[int]:
        return (positive,) if self.classes == 2 else range(self.classes)

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
