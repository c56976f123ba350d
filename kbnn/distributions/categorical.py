"""Predictive distributions of classes, calibrated online with an inverse temperature s.

The network predicts probabilities p. For an inverse temperature s they become

    q_s ~ p^s           for s >= 1: odds are raised to the power s
    q_s ~ pi (p/pi)^s   for s < 1: shrunk towards pi, the class shares so far, reached at s = 0

The predicted probabilities are the mixture of all q_s on a grid of s, with weights ~ prior_s
exp(e_s): the evidence e_s is the sum of log q_s of the labels, each scored before it is learned,
and the prior favours s = 1. The total cost of mixing is therefore bounded by the prior, and no
single row has infinite loss. Every 256 rows evidence and class counts are halved. The first row of
a class counts for its share, but not as evidence, because no model could predict it. Without
evidence the probabilities are not changed.

The compiled version is csrc/temperature.c. Results do not depend on how rows are grouped into
batches.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from kbnn.array_types import FloatArray, IntArray
from kbnn.core import kernel
from kbnn.core.constants import LEAST_PROBABILITY, SHARE_START, SHARPNESS_EVERY

MIN_PROBABILITY: Final = 1e-12
"""Probabilities are raised to this before the logarithm."""


class Categorical:
    """Class probabilities (n, classes); a value is the index of a class."""

    def __init__(self, probability: FloatArray) -> None:
        self.probability = probability

    def __len__(self) -> int:
        return len(self.probability)

    def __getitem__(self, at: Any) -> Categorical:
        """Select rows by a slice, a mask or indices."""
        return Categorical(self.probability[at])

    def log_density(self, y: FloatArray) -> FloatArray:
        """Return the log probability of each row's class; 0 if it is missing or unknown."""
        known = np.isfinite(y) & (y >= 0) & (y < self.probability.shape[1])
        index = np.where(known, y, 0.0).astype(np.int64)
        p = self.probability[np.arange(len(y)), index]
        return np.where(known, np.log(np.maximum(p, MIN_PROBABILITY)), 0.0)

    def sample(self, rng: np.random.Generator) -> FloatArray:
        """Draw the index of one class for each row."""
        total = np.cumsum(self.probability, axis=1)
        drawn = rng.random((len(self), 1)) * total[:, -1:]
        return np.asarray(np.argmax(total > drawn, axis=1), np.float64)


_STEPS: Final = np.arange(-6, 7)
LOG2_POWERS: Final = _STEPS / 2.0
POWERS: Final[FloatArray] = np.exp2(LOG2_POWERS)
"""Grid of inverse temperatures: from 1/8 to 8, two per octave."""
LOG_PRIOR: Final[FloatArray] = -np.abs(_STEPS) - np.log(np.sum(np.exp(-np.abs(_STEPS))))
"""Each is e times as likely as the next farther from 1; if 1 is right the others cost 0.8 nats."""
POWER_GRID: Final[FloatArray] = np.stack((POWERS, LOG_PRIOR))

EVIDENCE_ROWS: Final = 0
EVIDENCE: Final = slice(1, 1 + len(POWERS))
CLASS_COUNTS: Final = slice(1 + len(POWERS), None)
"""Fields of the state: rows of evidence, evidence per grid point, rows per class."""
STORED_LIMIT: Final = 1e12

NO_TEMPERATURE: Final[FloatArray] = np.zeros(0)
"""State of a target that is not a class."""


def init_temperature(labels: FloatArray, classes: int) -> FloatArray:
    """Initialise the state with the counts of labels that were not predicted."""
    known = np.zeros(CLASS_COUNTS.start + classes)
    seen = labels[np.isfinite(labels)].astype(np.int64)
    known[CLASS_COUNTS] = np.bincount(seen, minlength=classes)
    return known


def is_valid_temperature(known: FloatArray) -> bool:
    """Return whether numbers from a file can be a temperature state."""
    seen, counts = known[:1], known[CLASS_COUNTS]
    return bool(
        np.all(np.abs(known) <= STORED_LIMIT)
        and np.all(seen == np.floor(np.abs(seen)))
        and np.all(counts >= 0.0)
    )


def extend_classes(known: FloatArray, classes: int) -> FloatArray:
    """Extend the state to `classes` classes; an empty state stays empty."""
    if not len(known):
        return known
    return np.append(known, np.zeros(max(0, CLASS_COUNTS.start + classes - len(known))))


def reorder_classes(known: FloatArray, places: IntArray) -> FloatArray:
    """Reorder the state: class k becomes class places[k]."""
    moved = known.copy()
    if len(known):
        moved[CLASS_COUNTS.start + places] = known[CLASS_COUNTS]
    return moved


def merge_temperatures(parts: Sequence[FloatArray], rows: Sequence[float]) -> FloatArray:
    """Merge the states of several streams: evidence is averaged by rows, counts are added."""
    if not all(len(part) for part in parts):
        return NO_TEMPERATURE
    classes = max(len(part) for part in parts) - CLASS_COUNTS.start
    known = np.stack([extend_classes(part, classes) for part in parts])
    share = np.asarray(rows) / np.sum(rows)
    whole = np.sum(known, axis=0)
    whole[EVIDENCE] = share @ known[:, EVIDENCE]
    return np.asarray(whole)


def power_weights(known: FloatArray) -> FloatArray:
    """Return the posterior weights of the grid points."""
    log_weight = LOG_PRIOR + known[EVIDENCE]
    weight = np.exp(log_weight - np.max(log_weight))
    return np.asarray(weight / np.sum(weight))


def inverse_temperature(known: FloatArray) -> float:
    """Return the posterior mean inverse temperature, on a log scale; 1 without evidence."""
    return float(np.exp2(power_weights(known) @ LOG2_POWERS)) if known[EVIDENCE_ROWS] else 1.0


def apply_temperature(
    known: FloatArray,
    probability: FloatArray,
    label: FloatArray | None = None,
    weight: FloatArray | None = None,
    compiled: bool | None = None,
) -> FloatArray:
    """Return calibrated probabilities (n, K), row by row.

    With labels (n,) the state is updated in place after each row; a row counts `weight` times.
    """
    if kernel.is_compiled() if compiled is None else compiled:
        return kernel.apply_temperature(known, probability, label, weight, POWER_GRID)
    made = probability.copy()
    for i, p in enumerate(probability):
        if not np.all(np.isfinite(p)):
            continue
        log_p = np.log(np.maximum(p, LEAST_PROBABILITY))
        counts = known[CLASS_COUNTS] + SHARE_START
        log_share = np.log(counts / np.sum(counts))
        bent = np.stack([_temper_probabilities(log_p, log_share, s) for s in POWERS])
        if known[EVIDENCE_ROWS]:
            made[i] = power_weights(known) @ np.exp(bent)
        if label is None or not 0.0 <= label[i] < len(p):
            continue
        _learn_evidence(known, bent, int(label[i]), 1.0 if weight is None else float(weight[i]))
    return made


def _temper_probabilities(log_p: FloatArray, log_share: FloatArray, s: float) -> FloatArray:
    """Return log q_s."""
    level = s * log_p if s >= 1.0 else log_share + s * (log_p - log_share)
    level = level - np.max(level)
    return np.asarray(level - math.log(np.sum(np.exp(level))))


def _learn_evidence(known: FloatArray, bent: FloatArray, label: int, weight: float) -> None:
    times = min(weight, SHARPNESS_EVERY)
    first = known[CLASS_COUNTS][label] == 0.0
    known[CLASS_COUNTS][label] += times
    if first:
        return
    known[EVIDENCE] += times * bent[:, label]
    known[EVIDENCE_ROWS] += 1.0
    if known[EVIDENCE_ROWS] % SHARPNESS_EVERY == 0.0:
        known[EVIDENCE] = (known[EVIDENCE] - np.max(known[EVIDENCE])) / 2.0
        known[CLASS_COUNTS] /= 2.0
