"""What is stated of classes: probabilities as sharp as the stream has shown that they may be.

The network says probabilities p. For a sharpness s they become

    q_s ~ p^s           for s >= 1: odds are raised to the power s
    q_s ~ pi (p/pi)^s   for s < 1: with pi, the shares of the classes so far, where s is 0

Stated is the mixture of all q_s on a grid of sharpnesses, with weights ~ prior_s exp(e_s): the
evidence e_s is the sum of log q_s of the labels that came, each after it was stated, and the prior
favours s = 1. So a mixture costs no more than its prior in all, and one surprise is never infinite.
Whenever 256 rows have come, evidence and counts of the classes are halved. The first row of a class
says how common it is, and nothing of sharpness: nobody could know of it. Before there is any
evidence the probabilities are stated as they are.

The compiled twin is csrc/temperature.c. Nothing depends on how rows are grouped.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from kbnn.array_types import FloatArray, IntArray
from kbnn.core import kernel
from kbnn.core.constants import LEAST_PROBABILITY, SHARE_START, SHARPNESS_EVERY

_STEPS: Final = np.arange(-6, 7)
LOG2_POWERS: Final = _STEPS / 2.0
POWERS: Final[FloatArray] = np.exp2(LOG2_POWERS)
"""The sharpnesses: from an eighth to eight, two in an octave."""
LOG_PRIOR: Final[FloatArray] = -np.abs(_STEPS) - np.log(np.sum(np.exp(-np.abs(_STEPS))))
"""Each is e times as likely as the next one farther from 1: where 1 is right the others cost 0.8
nats in all."""
POWER_GRID: Final[FloatArray] = np.stack((POWERS, LOG_PRIOR))

EVIDENCE_ROWS: Final = 0
EVIDENCE: Final = slice(1, 1 + len(POWERS))
CLASS_COUNTS: Final = slice(1 + len(POWERS), None)
"""Fields of what is known: rows that were evidence, the evidence, rows of each class."""
STORED_LIMIT: Final = 1e12

NO_TEMPERATURE: Final[FloatArray] = np.zeros(0)
"""Of a target that is no class."""


def init_temperature(labels: FloatArray, classes: int) -> FloatArray:
    """What is known after labels that nothing was said of."""
    known = np.zeros(CLASS_COUNTS.start + classes)
    told = labels[np.isfinite(labels)].astype(np.int64)
    known[CLASS_COUNTS] = np.bincount(told, minlength=classes)
    return known


def is_valid_temperature(known: FloatArray) -> bool:
    """Whether numbers from a file can be what is known."""
    seen, counts = known[:1], known[CLASS_COUNTS]
    return bool(
        np.all(np.abs(known) <= STORED_LIMIT)
        and np.all(seen == np.floor(np.abs(seen)))
        and np.all(counts >= 0.0)
    )


def extend_classes(known: FloatArray, classes: int) -> FloatArray:
    """The same where there are so many classes; nothing where nothing is to be known."""
    if not len(known):
        return known
    return np.append(known, np.zeros(max(0, CLASS_COUNTS.start + classes - len(known))))


def reorder_classes(known: FloatArray, places: IntArray) -> FloatArray:
    """The same where class k has become class places[k]."""
    moved = known.copy()
    if len(known):
        moved[CLASS_COUNTS.start + places] = known[CLASS_COUNTS]
    return moved


def merge_temperatures(parts: Sequence[FloatArray], rows: Sequence[float]) -> FloatArray:
    """What is known of several streams: evidence is each one's by its rows, counts add up."""
    if not all(len(part) for part in parts):
        return NO_TEMPERATURE
    classes = max(len(part) for part in parts) - CLASS_COUNTS.start
    known = np.stack([extend_classes(part, classes) for part in parts])
    share = np.asarray(rows) / np.sum(rows)
    whole = np.sum(known, axis=0)
    whole[EVIDENCE] = share @ known[:, EVIDENCE]
    return np.asarray(whole)


def power_weights(known: FloatArray) -> FloatArray:
    """Of the sharpnesses, as evidence has it."""
    log_weight = LOG_PRIOR + known[EVIDENCE]
    weight = np.exp(log_weight - np.max(log_weight))
    return np.asarray(weight / np.sum(weight))


def inverse_temperature(known: FloatArray) -> float:
    """The sharpness in the middle of what is stated; 1 where there is no evidence."""
    return float(np.exp2(power_weights(known) @ LOG2_POWERS)) if known[EVIDENCE_ROWS] else 1.0


def apply_temperature(
    known: FloatArray,
    probability: FloatArray,
    label: FloatArray | None = None,
    weight: FloatArray | None = None,
    compiled: bool | None = None,
) -> FloatArray:
    """What is stated (n, K) of rows one after another.

    With the labels (n,) that came true, what is known, in place, learns from each, and a row counts
    `weight` times.
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
    """log q_s."""
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
