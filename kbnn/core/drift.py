"""Has the stream changed? A cumulative sum of bounded surprise, and what follows an alarm.

A row's surprise is (e^2/S - 1)/2 for a real target (S the variance predicted before the row) and
the log-loss against its own expectation, in units of its spread, for classes: zero on average
while the predictions are honest. c = max(0, c + min(surprise, cap) - slack) stays near zero then;
c > threshold raises the alarm: c = 0, every covariance returns a share of the way to its prior (the
means stay, so what is still right is kept) and the noise belief forgets all but its last twenty
rows. The cap is low, so that outliers, however wild, do not look like drift. Rows of a later pass
raise no alarm: they are no news.
"""

from __future__ import annotations

import numpy as np

from kbnn.core.constants import NOISE_MEMORY, SURPRISE_VAR, TINY, DriftDetector
from kbnn.core.normal import FloatArray


def update_detector(detector: DriftDetector, evidence: FloatArray, surprise: float) -> bool:
    """Add a row's surprise to the evidence, in place; True raises the alarm."""
    evidence[0] = max(0.0, evidence[0] + min(surprise, detector.cap) - detector.slack)
    if evidence[0] <= detector.threshold:
        return False
    evidence[0] = 0.0
    return True


def shorten_noise_memory(noise: FloatArray) -> FloatArray:
    """The noise belief with its memory cut to twenty rows."""
    factor = np.minimum(1.0, NOISE_MEMORY / noise[:, :1])
    return noise * factor


def class_surprise(probability: FloatArray, label: int) -> float:
    """(s - H)/sqrt(2 (V + 0.1)): the log-loss s of a label against its mean H and variance V."""
    p = np.maximum(probability, TINY)
    information = -np.log(p)
    entropy = float(p @ information)
    var = float(p @ (information * information)) - entropy * entropy
    return (float(information[label]) - entropy) / float(np.sqrt(2.0 * (var + SURPRISE_VAR)))
