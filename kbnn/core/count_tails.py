"""What is stated of counts follows the stream: outliers, dispersion, and intervals.

The network says mean mu and dispersion 1/alpha of a negative binomial. Stated is, with 1/alpha
widened c times, the mixture that inference reckons with (see kbnn.core.counts),

    (1 - eps) NB(mu, c/alpha) + eps s/((s + y)(s + y + 1)),    s = mu + 1

but with its share eps and width c learned from the stream: eps follows the mean of the probability
w that a count is an outlier, log c the slope of the log mass in log c, weighted by 1 - w. The mean
is left alone. The fields are those of kbnn.core.tails, and so is how intervals are tracked, but for
the gains, which are those of the edges' normal scores. The compiled twin is in csrc/calibration.c.
"""

from __future__ import annotations

import math
from typing import Final

from kbnn.core import counts, engine
from kbnn.core.constants import (
    DISPERSION_MOVE,
    DISPERSION_STEP,
    HALF_60,
    HALF_80,
    HALF_90,
    LEAST_GAIN,
    LEAST_WIDTH,
    MOST_GAIN,
    MOST_WIDTH,
    OUTLIER_SHARE,
    TRACK_STEP,
)
from kbnn.core.mixture import HALF_WIDTHS_SD, PARAM, TAIL_SHARES
from kbnn.core.normal import FloatArray
from kbnn.core.tails import (
    FIRST_GAIN,
    FIRST_MEAN,
    LARGEST_VALUE,
    OUTLIER_ROWS,
    OUTLIERS,
    ROWS_SEEN,
    SCALE_FACTOR,
    SHARE,
    average_gains,
    average_scale,
    count_outlier,
    init_calibration,
)

ONE_SIDED_HALF_WIDTHS_SD: Final = (0.0, HALF_60, HALF_80, HALF_90)
"""Half-widths with both shares of each level beyond."""


def init_count_calibration(targets: int, mixed: bool) -> FloatArray:
    """Tails of which nothing is known; not `mixed`, they state a negative binomial."""
    tails = init_calibration(targets, mixed)
    tails[:, OUTLIERS] = OUTLIER_SHARE * tails[:, OUTLIER_ROWS]
    if mixed:
        tails[:, SHARE] = tails[:, OUTLIERS] / tails[:, OUTLIER_ROWS]
    return tails


def update_count_mixture(tail: FloatArray, y: FloatArray, rows: FloatArray) -> None:
    """Outliers and dispersion: written into `rows` (n, fields), whose place and spread are mu and
    1/alpha; the tail learns from each count y (n,), NaN where none was seen.
    """
    if engine.is_compiled():
        engine.update_count_mixture(tail, y, rows)
        return
    seen = float(tail[ROWS_SEEN])
    for i, value in enumerate(y.tolist()):
        rows[i, PARAM.spread] *= tail[SCALE_FACTOR]
        rows[i, PARAM.share] = tail[SHARE]
        if math.isnan(value):
            continue
        mu, inverse = float(rows[i, PARAM.place]), float(rows[i, PARAM.spread])
        p = counts.count_inlier_probability(value, mu, inverse, float(tail[SHARE]))
        move = min(
            max(counts.dispersion_slope(value, mu, inverse), -DISPERSION_MOVE), DISPERSION_MOVE
        )
        wider = tail[SCALE_FACTOR] * math.exp(DISPERSION_STEP * p * move)
        tail[SCALE_FACTOR] = min(max(wider, LEAST_WIDTH), MOST_WIDTH)
        count_outlier(tail, 1.0 - p)
        tail[SHARE] = tail[OUTLIERS] / tail[OUTLIER_ROWS]
        average_scale(tail, seen)
        seen += 1.0


def update_count_intervals(
    tail: FloatArray, y: FloatArray, u: FloatArray, none: FloatArray, track: bool, rows: FloatArray
) -> None:
    """Gains and largest value: written into `rows`, and learned from each count.

    y (n,) is NaN where nothing was seen, u its place in what was stated, `none` the stated
    probability of 0. Where the lower edge is 0 nothing lies below it, and the upper one leaves out
    both shares.
    """
    if engine.is_compiled():
        engine.update_count_intervals(tail, y, u, none, track, rows)
        return
    for i, value in enumerate(y.tolist()):
        rows[i, PARAM.gain : PARAM.most] = tail[FIRST_GAIN:FIRST_MEAN]
        rows[i, PARAM.most] = tail[LARGEST_VALUE]
        if math.isnan(value):
            continue
        if track:
            _update_count_gains(tail[FIRST_GAIN:FIRST_MEAN], float(u[i]), float(none[i]))
        average_gains(tail)
        tail[ROWS_SEEN] += 1.0
        tail[LARGEST_VALUE] = max(tail[LARGEST_VALUE], value)


def _update_count_gains(gains: FloatArray, u: float, none: float) -> None:
    for level, (outside, half) in enumerate(zip(TAIL_SHARES, HALF_WIDTHS_SD, strict=True)):
        low, high = 2 * level, 2 * level + 1
        under = _normal_cdf(-half * float(gains[low]))
        from_zero = none >= under
        reach = ONE_SIDED_HALF_WIDTHS_SD[level] if from_zero else half
        beyond = 2.0 * outside if from_zero else outside
        moves = (
            [] if reach == 0.0 else [(high, (u > _normal_cdf(reach * float(gains[high]))) - beyond)]
        )
        moves += [] if from_zero else [(low, (u < under) - outside)]
        for at, move in moves:
            grown = float(gains[at]) * math.exp(TRACK_STEP * move)
            gains[at] = min(max(grown, LEAST_GAIN), MOST_GAIN)


def _normal_cdf(u: float) -> float:
    return 0.5 * math.erfc(-0.7071067811865476 * u)
