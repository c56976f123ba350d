"""Ensembles of networks: members learn side by side and are mixed by predictive likelihood.

Members differ in seed and in the scale of their prior. The evidence of a member is the likelihood
of the labels it predicted, discounted by 0.99 per row: log e_t = 0.99 log e_(t-1) + log p_t. Its
weight is proportional to e^0.3: the errors of members are correlated, and with an exponent of 1 a
single member would soon have all the weight.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np

from kbnn.array_types import FloatArray
from kbnn.core.kernel import Prediction

EVIDENCE_DISCOUNT = 0.99
EVIDENCE_EXPONENT = 0.3
_PRIOR_SCALES = ((1.0, 1.0), (2.0, 2.0), (1.0, 2.0), (2.0, 1.0), (0.5, 1.0))

_MAX_MOMENT = 1e150
"""Bound of each member's moments, so that their squares do not overflow."""

T = TypeVar("T")
U = TypeVar("U")


def prior_scales(member: int) -> tuple[float, float]:
    """Return the factors of a member's prior standard deviation, of means and of weights."""
    return _PRIOR_SCALES[member % len(_PRIOR_SCALES)]


def map_members(work: Callable[[T], U], members: Sequence[T]) -> list[U]:
    """Apply `work` to all members in parallel threads, and return results in order."""
    if len(members) == 1:
        return [work(members[0])]
    with ThreadPoolExecutor(min(len(members), os.cpu_count() or 1)) as pool:
        return list(pool.map(work, members))


def update_weights(log_weight: FloatArray, scores: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the weights before each row (n, members) and the log weights after the last row.

    `scores` (n, members) are the log-likelihoods of the labels.
    """
    weights = np.empty_like(scores)
    for i, score in enumerate(scores):
        weights[i] = mixture_weights(log_weight)
        log_weight = EVIDENCE_DISCOUNT * log_weight + score
        log_weight = log_weight - np.max(log_weight)
    return weights, log_weight


def mixture_weights(log_weight: FloatArray) -> FloatArray:
    """Compute weights that sum to one, proportional to exp(0.3 log_weight)."""
    weights = np.exp(EVIDENCE_EXPONENT * (log_weight - np.max(log_weight)))
    return np.asarray(weights / np.sum(weights))


def mix_predictions(members: list[Prediction], weights: FloatArray) -> Prediction:
    """Return the moments of the mixture of the members' predictions; weights (n, members)."""
    if len(members) == 1:
        return members[0]
    w = weights[:, :, None]

    def average_field(field: str) -> FloatArray:
        values = np.stack([getattr(m, field) for m in members], axis=1)
        return np.asarray(np.sum(w * np.clip(values, -_MAX_MOMENT, _MAX_MOMENT), axis=1))

    mean = average_field("mean")
    means = np.clip(np.stack([m.mean for m in members], axis=1), -_MAX_MOMENT, _MAX_MOMENT)
    spread = np.sum(w * (means - mean[:, None, :]) ** 2, axis=1)
    first = members[0]
    return first._replace(
        mean=mean,
        function_var=average_field("function_var") + spread,
        noise_var=average_field("noise_var"),
        probability=average_field("probability"),
        inlier=np.minimum(np.sum(weights * np.stack([m.inlier for m in members], 1), 1), 1.0),
    )
