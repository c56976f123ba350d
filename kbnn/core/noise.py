"""The observation noise of a real target, learned from the stream.

Level: the noise variance is inverse-gamma(a, b) with mean-like value r = b/a, discounted by 0.99 a
row, so it follows the stream with a memory of a hundred rows.

Shape: a head h(x) = w_h . [1, z], z the last hidden layer's means, w_h ~ N(head_mean, head_cov),
says by what factor exp(h) the noise at x differs from the level. It is detached: it never touches
the mean. The predicted noise variance is EV = r exp(m_h + v_h/2).

Outliers: a residual e comes from (1 - eps) N(0, S) + eps N(0, 100 S); with p the probability of the
first, the row counts with weight lambda = p + (1 - p)/100.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kbnn.core.constants import (
    HEAD_LOG_MEAN_HIGH,
    HEAD_LOG_MEAN_LOW,
    HEAD_LOG_VAR_CAP,
    HEAD_STEP_CAP,
    NOISE_LOSS,
    NOISE_ROUNDS,
    OUTLIER_DECAY,
    OUTLIER_ODDS,
    OUTLIER_REACH,
    OUTLIER_VAR_RATIO,
    SMALLEST_VAR,
)
from kbnn.core.normal import FloatArray


class NoiseForecast(NamedTuple):
    """What is believed of one output's noise at one x."""

    level: float  # r
    var: float  # EV, or r without a head
    log_mean: float  # m_h
    log_var: float  # v_h, not capped
    gain: FloatArray  # head_cov [1, z]


def forecast_noise(
    noise: FloatArray,
    head_mean: FloatArray | None,
    head_cov: FloatArray | None,
    features: FloatArray,
) -> NoiseForecast:
    """The noise variance expected at a row whose last hidden layer is `features` = [1, z]."""
    level = float(noise[1] / noise[0])
    if head_mean is None or head_cov is None:
        return NoiseForecast(level, level, 0.0, 0.0, np.zeros(0))
    gain = head_cov @ features
    log_mean = float(np.clip(head_mean @ features, HEAD_LOG_MEAN_LOW, HEAD_LOG_MEAN_HIGH))
    log_var = max(float(features @ gain), 0.0)
    var = level * np.exp(log_mean + 0.5 * min(log_var, HEAD_LOG_VAR_CAP))
    return NoiseForecast(level, float(var), log_mean, log_var, gain)


def residual_inlier_probability(e: float, total_var: float) -> float:
    """p of the contaminated normal for a residual e of predictive variance `total_var`."""
    odds = OUTLIER_ODDS * np.exp(-OUTLIER_DECAY * min(e * e / total_var, OUTLIER_REACH))
    return float(odds / (1.0 + odds))


def inlier_weight(p: float) -> float:
    """lambda = p + (1 - p)/100: how far a residual that is no outlier with probability p counts."""
    return p + (1.0 - p) / OUTLIER_VAR_RATIO


class Residual(NamedTuple):
    """A residual as the noise sees it."""

    e: float
    var: float  # of the function where it was predicted
    inflated_var: float  # the same, made up for repeated passes
    trust: float  # lambda, 1 for what is surely no outlier
    share: float  # how much of a row it counts: lambda times the row's weight


def learn_level(noise: FloatArray, seen: Residual) -> tuple[FloatArray, float]:
    """(a, b) and r after a residual.

    A variational fixed point: with R = r/trust and gain = R/(var + R) the noise part of the
    residual has second moment (e gain)^2 + v R/(v + R), v the stated variance; then
    a += share/2, b += share (..)/2, r = b/a. The row's weight has no part in R: a residual tells
    no less of the noise because its row counts often, and r would run away to 0.
    """
    e, var, stated, trust, share = seen
    a, b = noise
    r = b / a
    a_new = a + 0.5 * share
    for _ in range(int(NOISE_ROUNDS)):
        gain = r / (var * trust + r)
        rest = stated * r / (stated * trust + r)
        r = max((b + 0.5 * share * (e * e * gain * gain + rest)) / a_new, SMALLEST_VAR)
    keep = 1.0 / (1.0 + NOISE_LOSS * share)
    return np.array([keep * a_new, keep * r * a_new]), float(r)


def learn_head(
    head_mean: FloatArray, head_cov: FloatArray, now: NoiseForecast, seen: Residual
) -> tuple[FloatArray, FloatArray]:
    """The head after a residual: eps^2 -> V -> h by Gaussian smoothing.

    K = EV/(var + EV), rest = v EV/(v + EV), v the stated variance: the noise part of e has
    E eps^2 = m2 = (K e)^2 + rest and Var eps^2 = s2 = 2 rest^2 + 4 rest (K e)^2.
    With D = 3 exp(v_h) - 1: Dm = v_h (m2/EV - 1)/D, Dv = v_h^2 (s2/(EV D)^2 - 1/D).
    """
    e, var, stated, trust, share = seen
    v = min(now.log_var, HEAD_LOG_VAR_CAP)
    if now.log_var <= SMALLEST_VAR:
        return head_mean, head_cov
    k = now.var / (var + now.var)
    e2, rest = (k * e) ** 2, stated * now.var / (stated + now.var)
    m2, s2 = e2 + rest, 2.0 * rest * rest + 4.0 * rest * e2
    d = 3.0 * np.exp(v) - 1.0
    share = min(share, trust)  # no row moves the head more than once
    dm = share * v * (m2 / now.var - 1.0) / d
    dv = share * v * v * (s2 / (now.var * d) ** 2 - 1.0 / d)
    dm = np.clip(dm, -HEAD_STEP_CAP, HEAD_STEP_CAP)
    dv = min(dv, 0.0)  # and never below -v/7, whatever v: v_h stays positive
    # Divided by the uncapped variance: anything smaller would make the covariance indefinite.
    u = now.gain * (np.sqrt(-dv) / now.log_var)
    return head_mean + now.gain * (dm / now.log_var), head_cov - np.outer(u, u)
