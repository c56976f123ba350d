"""Streaming metrics of class probabilities, in constant memory.

A row with label c and probabilities p adds

    accuracy  1 if argmax p = c (the first of equals)
    log-loss  -log max(p_c, eps)
    Brier     1/2 sum_k (p_k - 1[k = c])^2     (with two classes that is (p_1 - y)^2)
    ECE       | mean confidence - share correct | per bin of the confidence max p, weighted by rows

The baseline predicts the class frequencies of the same rows. Classes may appear during the stream:
probability arrays may grow wider, and a label beyond the last column has probability 0.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Self

import numpy as np

from kbnn.array_types import BoolArray, FloatArray, IntArray
from kbnn.metrics import score as base
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
