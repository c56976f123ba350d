"""Calibrate predictive distributions online: outliers, scale and intervals follow the stream.

Real targets. The network predicts mean m and variance v. With V = c v, the predictive distribution
is the mixture

    (1 - eps) N(m, V) + eps N(m + d sqrt(V), R V)

that inference assumes, but with its share eps, ratio R, shift d and scale factor c learned from the
stream, in units of the forecasts. A residual t = (y - m)/sqrt(V) is an outlier with probability w;
eps follows the mean of w, d and R follow mean and variance of t weighted by w, and c follows t^2
weighted by 1 - w. Before the first outlier, an outlier may be any value that the target has had,
however narrow forecasts have become. The means are not changed.

Counts. The network predicts mean mu and dispersion 1/alpha of a negative binomial. The predictive
distribution is the mixture of kbnn.core.likelihoods,

    (1 - eps) NB(mu, c/alpha) + eps s/((s + y)(s + y + 1)),    s = mu + 1

with share eps and factor c learned from the stream: eps follows the mean of the probability w that
a count is an outlier, log c follows the slope of the log mass in log c, weighted by 1 - w.

Intervals. The central intervals of 50, 80, 90 and 95 % are recalibrated online to their nominal
coverage: each side's distance from the median has a gain that grows with every row beyond the edge
and shrinks by less with every other row, so that it settles where the nominal share lies beyond,
whatever the distribution is. For counts the gains apply to the normal scores of the edges.

The compiled version is csrc/calibration.c. Everything is free of units, and results do not depend
on how rows are grouped into batches.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Final, NamedTuple

import numpy as np

from kbnn.array_types import FloatArray
from kbnn.core import kernel, likelihoods
from kbnn.core.constants import (
    ANY_SHARE,
    DISPERSION_MOVE,
    DISPERSION_STEP,
    EXTREMES_MEMORY,
    HALF_60,
    HALF_80,
    HALF_90,
    LEAST_GAIN,
    LEAST_RATIO,
    LEAST_SHARE,
    LEAST_WIDTH,
    LOG_ODDS_LIMIT,
    MOST_GAIN,
    MOST_RATIO,
    MOST_WIDTH,
    OUTLIER_SHARE,
    TAILS_EVERY,
    TAILS_MEMORY,
    TAILS_REACH,
    TAILS_YOUNG,
    TRACK_STEP,
    WIDTH_CAP,
    WIDTH_FEW,
    WIDTH_FIRST,
    WIDTH_PACE,
    WIDTH_REST,
    WIDTH_STEP,
)
from kbnn.distributions.normal_mixture import OutlierShape, mixture_median, tail_probability
from kbnn.distributions.predictive import (
    GAIN_COUNT,
    HALF_WIDTHS_SD,
    PARAM,
    PARAM_COUNT,
    TAIL_SHARES,
)

_SMALLEST_SD: Final = float(np.finfo(np.float64).tiny)
"""Replaces an sd of 0, whose two parts are 0 too."""
_LATER_PASS_CAP: Final = 9.0
"""Cap of squared errors at rows that were learned before."""
INITIAL_CALIBRATION: Final = (0.9, 300.0, 5.0, 250.0, 0.0, 1.0, 0.0, -np.inf, 0.0, 0.0, 0.0)
OUTLIERS, OUTLIER_ROWS, EXTREMES, SQUARES, MEAN, SCALE_FACTOR, ROWS_SEEN, LARGEST_VALUE = range(8)
VALUE_MEAN, VALUE_VAR, SPREAD_VAR, SHARE, RATIO, SHIFT, FIRST_GAIN = range(8, 15)
"""Fields of the calibration state of one target: sums over weighted outliers, the scale factor c,
rows seen and the largest value among them; then eps, R and d, and a gain for the lower and the
upper edge of each level."""
FIRST_MEAN: Final = FIRST_GAIN + GAIN_COUNT
MEAN_SCALE_FACTOR: Final = FIRST_MEAN + GAIN_COUNT
"""Averages of gains and scale factor, shrunk towards 1 for few rows, used by frozen models."""
LINK_UNIT: Final = MEAN_SCALE_FACTOR + 1
"""Unit of a positive target's link, see kbnn.distributions.transformed_normal."""
CALIBRATION_FIELDS: Final = LINK_UNIT + 1


def init_calibration(targets: int, mixed: bool = True) -> FloatArray:
    """Initialise the calibration state (T, fields); without `mixed` it describes a Gaussian."""
    shape = (
        (
            INITIAL_CALIBRATION[0] / INITIAL_CALIBRATION[1],
            INITIAL_CALIBRATION[3] / INITIAL_CALIBRATION[2],
            0.0,
        )
        if mixed
        else (0.0, 1.0, 0.0)
    )
    tail = (*INITIAL_CALIBRATION, *shape, *(1.0,) * (LINK_UNIT - FIRST_GAIN), 0.0)
    return np.array([tail] * targets).reshape(targets, CALIBRATION_FIELDS)


def is_valid_calibration(calibration: FloatArray) -> bool:
    """Return whether numbers from a file can be a calibration state."""
    sums, rest, unit = (
        calibration[:, :LARGEST_VALUE],
        calibration[:, SHARE:LINK_UNIT],
        calibration[:, LINK_UNIT],
    )
    sizes = calibration[:, LARGEST_VALUE + 1 : SHARE]
    positive = calibration[
        :, [OUTLIER_ROWS, EXTREMES, SQUARES, SCALE_FACTOR, RATIO, MEAN_SCALE_FACTOR]
    ]
    share, gains = calibration[:, [SHARE]], calibration[:, FIRST_GAIN:MEAN_SCALE_FACTOR]
    return bool(
        np.all(np.abs(sums) <= 1e12)
        and np.all(np.abs(rest) <= 1e12)
        and np.all(np.abs(sizes) <= 1e300)
        and np.all(sizes[:, 1:] >= 0.0)
        and np.all(positive > 0.0)
        and np.all(
            (calibration[:, OUTLIERS] >= 0.0)
            & (calibration[:, OUTLIERS] < calibration[:, OUTLIER_ROWS])
        )
        and np.all((share >= 0.0) & (share < 1.0))
        and np.all((gains >= LEAST_GAIN) & (gains <= MOST_GAIN))
        and np.all(calibration[:, LARGEST_VALUE] < np.inf)
        and np.all((unit >= 0.0) & (unit <= 1e300))
    )


def reset_scale_and_gains(calibration: FloatArray) -> FloatArray:
    """Reset scale and gains to 1 for a later pass: those of new rows do not apply to seen rows."""
    asked = [SCALE_FACTOR, *range(FIRST_GAIN, LINK_UNIT)]
    if np.all(calibration[:, asked] == 1.0):
        return calibration
    after = calibration.copy()
    after[:, asked] = 1.0
    return after


def shrink_scale(calibration: FloatArray, squares: FloatArray, more: FloatArray) -> FloatArray:
    """Shrink the scale in a later pass (n, T), where networks overstate their uncertainty.

    `squares` are squared errors at rows that were learned before, in units of the predicted
    variance; at new rows they are `more` (n,) times as large. The scale is their average over about
    one pass, and at most 1.
    """
    after = (
        reset_scale_and_gains(calibration)
        if np.any(calibration[:, FIRST_GAIN:FIRST_MEAN] != 1.0)
        else calibration.copy()
    )
    expected = more[:, None] * np.minimum(squares, _LATER_PASS_CAP)
    for tail, column in zip(after, expected.T.tolist(), strict=True):
        width, rate = (
            float(tail[SCALE_FACTOR]),
            1.0 / min(float(tail[ROWS_SEEN]) + 1.0, TAILS_MEMORY),
        )
        for square in column:
            if math.isfinite(square):
                width += rate * (square - width)
        tail[SCALE_FACTOR] = min(max(width, LEAST_WIDTH), MOST_WIDTH)
        tail[MEAN_SCALE_FACTOR] = min(tail[SCALE_FACTOR], 1.0)
    return after


def apply_calibration(calibration: FloatArray, mean: FloatArray, sd: FloatArray) -> FloatArray:
    """Build distributions from means and sds (n, T) with a frozen calibration state."""
    rows = np.empty((*mean.shape, PARAM_COUNT))
    rows[..., PARAM.place] = mean
    rows[..., PARAM.spread] = np.sqrt(calibration[:, MEAN_SCALE_FACTOR]) * sd
    rows[..., PARAM.share : PARAM.gain] = calibration[:, SHARE:FIRST_GAIN]
    rows[..., PARAM.gain : PARAM.most] = calibration[:, FIRST_MEAN:MEAN_SCALE_FACTOR]
    rows[..., PARAM.most] = calibration[:, LARGEST_VALUE]
    rows[..., PARAM.kind] = 0.0
    rows[..., PARAM.unit] = calibration[:, LINK_UNIT]
    rows[..., PARAM.none] = 0.0
    return rows


class CalibratedPrediction(NamedTuple):
    """Distributions (n, T, fields), their location and spread, and the two parts of the spread."""

    stated: FloatArray
    mean: FloatArray
    sd: FloatArray
    function_sd: FloatArray
    noise_sd: FloatArray


def calibrate_outputs(
    calibration: FloatArray,
    said: kernel.NetworkOutputs,
    y: FloatArray | None,
    mix: bool,
    track: bool,
    compiled: bool | None = None,
) -> CalibratedPrediction:
    """Build calibrated distributions from network outputs, in the units of the targets.

    With labels y the calibration state is updated in place, row by row (see `update_calibration`).
    """
    if kernel.is_compiled() if compiled is None else compiled:
        center, scale = np.ascontiguousarray(said[3]), np.ascontiguousarray(said[4])
        said = (*said[:3], center, scale)
        seen = None if y is None else np.ascontiguousarray(y)
        return _as_calibrated(kernel.calibrate_outputs(calibration, said, seen, mix, track))
    mean, function_var, noise_var, center, scale = said
    root = np.sqrt(function_var + noise_var)
    place, spread = center + scale * mean, scale * root
    if y is None:
        rows = apply_calibration(calibration, place, spread)
    else:
        rows = update_calibration(calibration, place, spread, y, mix, track, False)
    shown = rows[..., PARAM.spread].copy()
    return CalibratedPrediction(rows, place, shown, *split_sd(shown, function_var, noise_var))


_as_calibrated = partial(tuple.__new__, CalibratedPrediction)


def split_sd(
    shown: FloatArray, function_var: FloatArray, noise_var: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Split the sd in proportion to the two variances of the network."""
    wider = shown / np.maximum(np.sqrt(function_var + noise_var), _SMALLEST_SD)
    return np.sqrt(function_var) * wider, np.sqrt(noise_var) * wider


def update_calibration(
    calibration: FloatArray,
    mean: FloatArray,
    sd: FloatArray,
    y: FloatArray,
    mix: bool,
    track: bool,
    compiled: bool | None = None,
) -> FloatArray:
    """Build each row's distribution, then update the calibration state in place with its label.

    With `mix` the mixture is learned, with `track` the gains of the intervals. `compiled` is
    whether the compiled kernel is used; None: if available.
    """
    if kernel.is_compiled() if compiled is None else compiled:
        mean, sd, y = (np.ascontiguousarray(part) for part in (mean, sd, y))
        return kernel.update_calibration(calibration, mean, sd, y, mix, track)
    rows = np.empty((*mean.shape, PARAM_COUNT))
    for j, tail in enumerate(calibration):
        median = None
        for i in range(len(mean)):
            labelled = math.isfinite(y[i, j])
            if (
                mix
                and labelled
                and (tail[ROWS_SEEN] < TAILS_YOUNG or tail[ROWS_SEEN] % TAILS_EVERY == 0.0)
            ):
                _refresh_mixture(tail)
                median = None
            rows[i, j] = apply_calibration(
                tail[None], mean[i : i + 1, j : j + 1], sd[i : i + 1, j : j + 1]
            )
            rows[i, j, PARAM.spread] = math.sqrt(tail[SCALE_FACTOR]) * sd[i, j]
            rows[i, j, PARAM.gain : PARAM.most] = tail[FIRST_GAIN:FIRST_MEAN]
            t = _standardize_residual(float(y[i, j] - mean[i, j]), float(rows[i, j, PARAM.spread]))
            if not labelled or math.isnan(t):
                continue
            shape = (float(tail[SHARE]), float(tail[RATIO]), float(tail[SHIFT]))
            if track and median is None:
                median = mixture_median(shape)
            if mix:
                _learn_mixture(tail, t)
                _learn_value_moments(tail, float(y[i, j]), float(rows[i, j, PARAM.spread]))
            if median is not None:
                _update_gains(tail[FIRST_GAIN:FIRST_MEAN], shape, median, t)
            average_gains(tail)
            tail[ROWS_SEEN] += 1.0
            tail[LARGEST_VALUE] = max(tail[LARGEST_VALUE], y[i, j])
        seen = float(tail[ROWS_SEEN])
        tail[MEAN_SCALE_FACTOR] = math.pow(tail[SCALE_FACTOR], seen / (seen + WIDTH_REST))
    return rows


def _standardize_residual(gap: float, spread: float) -> float:
    """Return the error in spreads, clipped to TAILS_REACH; NaN if error and spread are 0."""
    if spread == 0.0:
        return math.copysign(TAILS_REACH, gap) if abs(gap) > 0.0 else math.nan
    return min(max(gap / spread, -TAILS_REACH), TAILS_REACH)


def _refresh_mixture(tail: FloatArray) -> None:
    tail[SHARE] = tail[OUTLIERS] / tail[OUTLIER_ROWS]
    any_value = tail[VALUE_VAR] / tail[SPREAD_VAR] if tail[SPREAD_VAR] > 0.0 else 0.0
    ratio = (tail[SQUARES] + ANY_SHARE * any_value) / tail[EXTREMES]
    tail[RATIO] = min(max(ratio, LEAST_RATIO), MOST_RATIO)
    tail[SHIFT] = tail[MEAN]


def count_outlier(tail: FloatArray, w: float) -> None:
    """Add a value that is an outlier with probability w."""
    tail[OUTLIERS] += w
    tail[OUTLIER_ROWS] += 1.0
    if tail[OUTLIER_ROWS] > TAILS_MEMORY:
        tail[OUTLIERS] *= TAILS_MEMORY / tail[OUTLIER_ROWS]
        tail[OUTLIER_ROWS] = TAILS_MEMORY
    tail[OUTLIERS] = max(tail[OUTLIERS], LEAST_SHARE * tail[OUTLIER_ROWS])


def _learn_mixture(tail: FloatArray, t: float) -> None:
    share, ratio, shift = (float(part) for part in tail[SHARE : SHIFT + 1])
    far = t - shift
    odds = math.log((1.0 - share) / share) + 0.5 * math.log(ratio)
    odds -= 0.5 * (t * t - far * far / ratio)
    w = 1.0 / (1.0 + math.exp(min(max(odds, -LOG_ODDS_LIMIT), LOG_ODDS_LIMIT)))
    count_outlier(tail, w)
    tail[EXTREMES] += w
    gap = t - float(tail[MEAN])
    tail[MEAN] += w * gap / tail[EXTREMES]
    tail[SQUARES] += w * gap * (t - float(tail[MEAN]))
    if tail[EXTREMES] > EXTREMES_MEMORY:
        tail[SQUARES] *= EXTREMES_MEMORY / tail[EXTREMES]
        tail[EXTREMES] = EXTREMES_MEMORY
    seen = float(tail[ROWS_SEEN])
    step = max(WIDTH_PACE / (seen + WIDTH_FIRST), WIDTH_STEP)
    grown = tail[SCALE_FACTOR] * math.exp(step * (1.0 - w) * (min(t * t, WIDTH_CAP) - 1.0))
    tail[SCALE_FACTOR] = min(max(grown, WIDTH_FEW / (seen + WIDTH_FEW), LEAST_WIDTH), MOST_WIDTH)


def _learn_value_moments(tail: FloatArray, y: float, spread: float) -> None:
    rate = 1.0 / min(float(tail[ROWS_SEEN]) + 1.0, TAILS_MEMORY)
    reach = TAILS_REACH * spread
    gap = min(max(y - float(tail[VALUE_MEAN]), -reach), reach)
    tail[VALUE_MEAN] += rate * gap
    tail[VALUE_VAR] += rate * ((1.0 - rate) * gap * gap - tail[VALUE_VAR])
    tail[SPREAD_VAR] += rate * (spread * spread - tail[SPREAD_VAR])


def average_gains(tail: FloatArray) -> None:
    """Update the running averages of the gains."""
    gains, mean = tail[FIRST_GAIN:FIRST_MEAN], tail[FIRST_MEAN:MEAN_SCALE_FACTOR]
    mean += (gains - mean) / min(float(tail[ROWS_SEEN]) + 1.0 + TAILS_YOUNG, TAILS_MEMORY)


def average_scale(tail: FloatArray, seen: float) -> None:
    """Update the running average of the scale factor after `seen` rows."""
    tail[MEAN_SCALE_FACTOR] += (tail[SCALE_FACTOR] - tail[MEAN_SCALE_FACTOR]) / min(
        seen + 1.0 + WIDTH_REST, TAILS_MEMORY
    )


def _update_gains(gains: FloatArray, shape: OutlierShape, median: float, t: float) -> None:
    """Update each gain by whether t lies beyond its edge.

    The edge need not be computed: t lies beyond it if t, moved towards the median by the gain, has
    less than the nominal share beyond it.
    """
    for at in range(GAIN_COUNT):
        outside, side = TAIL_SHARES[at // 2], -1.0 if at % 2 else 1.0
        drawn = median + (t - median) / float(gains[at])
        missed = side * (t - median) < 0.0 and tail_probability(shape, drawn, side) < outside
        grown = float(gains[at]) * math.exp(TRACK_STEP * (missed - outside))
        gains[at] = min(max(grown, LEAST_GAIN), MOST_GAIN)


ONE_SIDED_HALF_WIDTHS_SD: Final = (0.0, HALF_60, HALF_80, HALF_90)
"""Half-widths with the shares of both tails beyond the upper edge."""


def init_count_calibration(targets: int, mixed: bool) -> FloatArray:
    """Initialise the state of counts; without `mixed` the distribution is a negative binomial."""
    calibration = init_calibration(targets, mixed)
    calibration[:, OUTLIERS] = OUTLIER_SHARE * calibration[:, OUTLIER_ROWS]
    if mixed:
        calibration[:, SHARE] = calibration[:, OUTLIERS] / calibration[:, OUTLIER_ROWS]
    return calibration


def update_count_mixture(tail: FloatArray, y: FloatArray, rows: FloatArray) -> None:
    """Write outlier share and dispersion into `rows` (n, fields), and update them with each count.

    Location and spread of `rows` are mu and 1/alpha; y (n,) is NaN where the count is missing.
    """
    if kernel.is_compiled():
        kernel.update_count_mixture(tail, y, rows)
        return
    seen = float(tail[ROWS_SEEN])
    for i, value in enumerate(y.tolist()):
        rows[i, PARAM.spread] *= tail[SCALE_FACTOR]
        rows[i, PARAM.share] = tail[SHARE]
        if math.isnan(value):
            continue
        mu, inverse = float(rows[i, PARAM.place]), float(rows[i, PARAM.spread])
        p = likelihoods.count_inlier_probability(value, mu, inverse, float(tail[SHARE]))
        move = min(
            max(likelihoods.dispersion_slope(value, mu, inverse), -DISPERSION_MOVE), DISPERSION_MOVE
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
    """Write gains and largest value into `rows`, and update them with each count.

    y (n,) is NaN where the count is missing, u its randomised PIT, `none` the predicted probability
    of 0. If the lower edge is 0 nothing lies below it, and the upper edge leaves out both shares.
    """
    if kernel.is_compiled():
        kernel.update_count_intervals(tail, y, u, none, track, rows)
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


WIDTH_HALF_LIVES_ROWS: Final = (1000.0, 50.0)
"""Half-lives of the mean squared errors that compete with the predicted variance."""
_WIDTH_DECAY: Final = 0.5 ** (1.0 / np.repeat(WIDTH_HALF_LIVES_ROWS, 2))
_SCORE_DECAY: Final = 0.5 ** (1.0 / WIDTH_HALF_LIVES_ROWS[0])
_WIDTH_PRIOR_ROWS: Final = 3.0
_WIDTH_RATIO_PRIOR_ROWS: Final = 10.0
_WIDTH_ERROR_LIMIT_SD: Final = 8.0
_WIDTH_SQUARE_LIMIT: Final = 25.0
"""Limits of an error in predicted sds, and of its square in the score of a width."""
_WIDTH_VAR_LIMITS: Final = (1e-280, 1e280)
_USUAL_LOG_SDS: Final = 2.0
_LEAST_LOG_SPREAD: Final = 0.3
WIDTH_FIELDS: Final = 13
"""Number and squares of errors by half-life (4), number and sums of squared errors over the three
variances (4), log scores of the three (3), sums of log predicted variances and their squares."""


def learn_widths(
    widths: FloatArray, mean: FloatArray, sd: FloatArray, y: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Combine predicted sds with past errors, row by row.

    The variance that a network predicts competes with the mean squared errors e^2 of many and of
    few past rows. Each is scaled so that e^2/v has mean 1 so far and scored by its past Gaussian
    log densities l_c, all with a half-life of 1,000 rows:

        log v = sum_c w_c log v_c,   w_c ~ exp(l_c).

    A width that varies for no reason loses against a constant one. Where the predicted variance is
    larger than usual (as if inputs are missing), by more than two sds of its logarithm so far, the
    excess multiplies all three.

    Parameters
    ----------
    widths
        The state (WIDTH_FIELDS,), zeros at first.
    mean, sd, y
        Consecutive rows (n,); rows without a target or an sd change nothing.

    Returns
    -------
    The state after the rows, and the combined sd (n,) of each row before its target was known.
    """
    used = np.isfinite(mean) & np.isfinite(y) & np.isfinite(sd) & (sd > 0.0)
    limit = np.where(used, _WIDTH_ERROR_LIMIT_SD * sd, 0.0)
    square = np.clip(np.where(used, y - mean, 0.0), -limit, limit) ** 2
    errors = sum_discounted(widths[:4], np.column_stack((used, square, used, square)), _WIDTH_DECAY)
    log_var = 2.0 * np.log(np.where(used, sd, 1.0))
    logs = sum_discounted(widths[11:], np.column_stack((log_var, log_var**2)), _SCORE_DECAY)
    usual = np.column_stack((errors[:-1, 0], logs[:-1]))
    variances = _list_variances(sd, errors[:-1], usual)
    ratio = np.minimum(square[:, None] / variances, 2.0 * _WIDTH_SQUARE_LIMIT)
    ratios = sum_discounted(widths[4:8], np.column_stack((used, ratio)), _SCORE_DECAY)
    variances = _scale_variances(variances, ratios[:-1])
    limited = np.minimum(square[:, None] / variances, _WIDTH_SQUARE_LIMIT)
    score = np.where(used[:, None], -0.5 * (np.log(variances) + limited), 0.0)
    scores = sum_discounted(widths[8:11], score, _SCORE_DECAY)
    after = np.concatenate((errors[-1], ratios[-1], scores[-1], logs[-1]))
    return after, _average_variances(sd, variances, scores[:-1])


def apply_widths(widths: FloatArray, sd: FloatArray) -> FloatArray:
    """Combine predicted sds (n,) with past errors; the state does not change."""
    state = widths[None]
    variances = _list_variances(sd, state[:, :4], state[:, [0, 11, 12]])
    return _average_variances(sd, _scale_variances(variances, state[:, 4:8]), state[:, 8:11])


def _list_variances(sd: FloatArray, sums: FloatArray, logs: FloatArray) -> FloatArray:
    """Return the predicted variances and those of past errors (n, 3).

    `logs` are the number of rows, and sums of log predicted variances and of their squares.
    """
    var = np.clip(np.where(sd > 0.0, sd, 1.0), *np.sqrt(_WIDTH_VAR_LIMITS)) ** 2
    log_var, number = np.log(var), logs[:, 0] + _WIDTH_PRIOR_ROWS
    mean = (logs[:, 1] + _WIDTH_PRIOR_ROWS * log_var) / number
    spread = (logs[:, 2] + _WIDTH_PRIOR_ROWS * log_var**2) / number - mean**2
    usual = mean + _USUAL_LOG_SDS * np.sqrt(np.maximum(spread, _LEAST_LOG_SPREAD**2))
    unusual = np.exp(np.maximum(log_var - usual, 0.0))[:, None]
    prior = _WIDTH_PRIOR_ROWS * var[:, None]
    past = (sums[:, 1::2] * unusual + prior) / (sums[:, ::2] + _WIDTH_PRIOR_ROWS)
    return np.asarray(np.clip(np.column_stack((var, past)), *_WIDTH_VAR_LIMITS))


def _scale_variances(variances: FloatArray, sums: FloatArray) -> FloatArray:
    """Return variances (n, 3) times their mean ratios so far."""
    ratio = (sums[:, 1:] + _WIDTH_RATIO_PRIOR_ROWS) / (sums[:, :1] + _WIDTH_RATIO_PRIOR_ROWS)
    return np.asarray(np.clip(variances * ratio, *_WIDTH_VAR_LIMITS))


def _average_variances(sd: FloatArray, variances: FloatArray, scores: FloatArray) -> FloatArray:
    """Return the combined sds (n,); sds of 0 or NaN are left as they are."""
    weights = np.exp(scores - np.max(scores, axis=1, keepdims=True))
    weights /= np.sum(weights, axis=1, keepdims=True)
    made = np.exp(0.5 * np.sum(weights * np.log(variances), axis=1))
    return np.where(np.isfinite(sd) & (sd > 0.0), made, sd)


def sum_discounted(start: FloatArray, values: FloatArray, decay: FloatArray | float) -> FloatArray:
    """Return the discounted sums (n + 1, k) before each row of values (n, k) and after all."""
    sums = np.empty((len(values) + 1, len(start)))
    sums[0] = start
    for at, row in enumerate(values):
        np.multiply(sums[at], decay, out=sums[at + 1])
        sums[at + 1] += row
    return sums
