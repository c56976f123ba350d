"""How good class probabilities were, row by row, in constant memory.

A row with label c and probabilities p adds

    accuracy  1 if argmax p = c (the first of equals)
    log-loss  -log max(p_c, eps)
    Brier     sum_k (p_k - 1[k = c])^2     (halved with two classes, where it is (p_1 - y)^2)
    ECE       | mean confidence - share correct | per bin of the confidence max p, weighted by rows

The baseline knows only the class frequencies of the same rows. Classes may be admitted on the way:
probability arrays may grow wider, and a label beyond the last column has probability 0.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from kbnn.score.rowsums import FloatArray, IntArray, add_rows, floats, restored

BINS = 15
"""Equal bins of the confidence for the calibration error."""

EPS = float(np.finfo(np.float64).eps)
"""Probabilities are raised to this before the logarithm: a certain error costs 36 nats, not inf."""

TERMS = ("weight", "correct", "log_loss", "brier", "confidence")


def confidence_bin(confidence: FloatArray) -> IntArray:
    """Index of the bin (j / BINS, (j + 1) / BINS] that holds each confidence."""
    index = np.ceil(confidence * BINS).astype(np.int64) - 1
    return np.clip(index, 0, BINS - 1)


class ClassScore:
    """Streaming figures for one class target; the same bits however the rows are cut."""

    def __init__(self) -> None:
        self.rows = 0
        self.skipped = 0
        """Rows without a label."""
        self.invalid = 0
        """Rows whose probabilities were not finite; a model gives none."""
        self._sums = np.zeros(len(TERMS))
        self._recent = np.zeros(len(TERMS))
        self._bins = np.zeros((3, BINS))
        self._frequency = np.zeros(0)

    def add(
        self, label: FloatArray, probability: FloatArray, weight: FloatArray | None = None
    ) -> None:
        """Score rows in order: `label` (n,) holds class indices or NaN, `probability` is (n, K)."""
        self._widen(probability.shape[1])
        known = np.isfinite(label) & (label >= 0)
        usable = known & np.isfinite(probability).all(axis=1)
        if not usable.all():
            self.skipped += int(np.count_nonzero(~known))
            self.invalid += int(np.count_nonzero(known & ~usable))
            label, probability = label[usable], probability[usable]
            weight = None if weight is None else weight[usable]
        n = label.shape[0]
        if n == 0:
            return
        c = label.astype(np.int64)
        p = widened(probability, int(c.max()) + 1)
        w = np.ones(n) if weight is None else np.ascontiguousarray(weight)
        row = np.arange(n)
        top = np.argmax(p, axis=1)
        confidence = p[row, top]
        p_c = p[row, c]
        gap = p.copy()
        gap[row, c] = 1 - p_c
        correct = (top == c).astype(np.float64)
        terms = np.vstack((np.ones(n), correct, self._log_loss(p_c), squares(gap), confidence))
        terms *= w
        self._sums = add_rows(self._sums, terms)
        self._recent = add_rows(self._recent, terms)
        bins = confidence_bin(confidence)
        for total, values in zip(self._bins, (terms[0], terms[1], terms[4]), strict=True):
            np.add.at(total, bins, values)  # one row after the other, so chunks leave no trace
        self._widen(p.shape[1])
        np.add.at(self._frequency, c, w)
        self.rows += n

    def _widen(self, classes: int) -> None:
        if classes > self.classes:
            self._frequency = np.pad(self._frequency, (0, classes - self.classes))

    @staticmethod
    def _log_loss(p_c: FloatArray) -> FloatArray:
        return -np.log(np.clip(p_c, EPS, 1.0))

    def mark(self) -> None:
        """Start a new stretch for `since`."""
        self._recent = np.zeros(len(TERMS))

    def since(self) -> dict[str, float | None]:
        """Accuracy and log-loss of the rows since the last `mark`."""
        weight, correct, log_loss, _, _ = floats(self._recent)
        if weight <= 0:
            return {"accuracy": None, "log_loss": None}
        return {"accuracy": correct / weight, "log_loss": log_loss / weight}

    def average(self, term: str) -> float | None:
        """Weighted mean of one of TERMS over all rows, None before the first row."""
        weight = float(self._sums[0])
        return float(self._sums[TERMS.index(term)]) / weight if weight > 0 else None

    @property
    def classes(self) -> int:
        """Number of classes met so far, in the labels or in the forecasts."""
        return int(self._frequency.shape[0])

    def figures(self) -> dict[str, Any]:
        """All figures under the names of `kbnn evaluate --json`; None where undefined."""
        brier = self.average("brier")
        half = 0.5 if self.classes <= 2 else 1.0
        weight = float(self._sums[0])
        share = [f / weight for f in floats(self._frequency) if f > 0] if weight > 0 else []
        return {
            "rows": self.rows,
            "skipped": self.skipped,
            "accuracy": self.average("correct"),
            "log_loss": self.average("log_loss"),
            "brier": None if brier is None else half * brier,
            "ece": self.calibration_error(),
            "baseline_accuracy": max(share) if share else None,
            "baseline_log_loss": math.fsum(-f * math.log(f) for f in share) + 0.0
            if share
            else None,
            "baseline_brier": half * max(1 - math.fsum(f * f for f in share), 0) if share else None,
        }

    def calibration_error(self) -> float | None:
        """ECE = sum over bins of |sum of confidence - sum of correct| / total weight."""
        weight = float(self._sums[0])
        if weight <= 0:
            return None
        _, correct, confidence = self._bins
        return math.fsum(floats(np.abs(confidence - correct))) / weight

    def reliability(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Per bin: weight, mean confidence and share correct (NaN where a bin is empty)."""
        weight, correct, confidence = self._bins
        empty = np.full(BINS, np.nan)
        filled = weight > 0
        return (
            weight.copy(),
            np.divide(confidence, weight, out=empty.copy(), where=filled),
            np.divide(correct, weight, out=empty.copy(), where=filled),
        )

    def to_json(self) -> dict[str, Any]:
        """The whole state; `from_json` restores it bit for bit."""
        return {
            "rows": self.rows,
            "skipped": self.skipped,
            "invalid": self.invalid,
            "sums": dict(zip(TERMS, floats(self._sums), strict=True)),
            "recent": dict(zip(TERMS, floats(self._recent), strict=True)),
            "bins": [floats(row) for row in self._bins],
            "frequency": floats(self._frequency),
        }

    @classmethod
    def from_json(cls, state: Mapping[str, Any]) -> ClassScore:
        """The score that `to_json` described."""
        score = cls()
        score.rows, score.skipped = int(state["rows"]), int(state["skipped"])
        score.invalid = int(state["invalid"])
        score._sums = restored([state["sums"][name] for name in TERMS], (len(TERMS),))
        score._recent = restored([state["recent"][name] for name in TERMS], (len(TERMS),))
        score._bins = restored(state["bins"], (3, BINS))
        score._frequency = restored(state["frequency"], (len(state["frequency"]),))
        return score


def widened(probability: FloatArray, classes: int) -> FloatArray:
    """The array with columns of zeros added up to `classes`, contiguous."""
    missing = classes - probability.shape[1]
    p = np.ascontiguousarray(probability, dtype=np.float64)
    return np.pad(p, ((0, 0), (0, missing))) if missing > 0 else p


def squares(gap: FloatArray) -> FloatArray:
    """Row sums of squares, first class to last: extra columns of zeros change no bit."""
    return np.ascontiguousarray(np.add.accumulate(gap * gap, axis=1)[:, -1])
