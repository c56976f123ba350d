"""Readable version of the anomaly detector: one row at a time, as kbnn.model.anomaly describes it.

The compiled version, csrc/anomaly.c, has the same functions in the same order and is tested against
this one. All state is float64; `SCALAR`, `TAIL` and the constants below name its fields, and the
constants reach C through `list_constants`.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import numpy as np

from kbnn.array_types import FloatArray

HISTORY_ROWS: Final = 1536
"""Values held per statistic: 74 KB for the six, 99 KB with windows and season."""
MEMORY_ROWS: Final = 8192.0
"""Mean life of a value in a history, in rows."""
CALIBRATED_ROWS: Final = 50
"""Values from which a history calibrates; before, a component has the score 0."""
TOP_SHARE: Final = 0.1
"""Share of a history to which the tail is fitted."""
CLUSTER_SHARE: Final = 0.02
"""Share whose exceedances give the extremal index, and to which the far tail is fitted."""
FAR_VALUES: Final = 10
"""Values from which the far tail is fitted."""
LEAST_EXTREMAL_INDEX: Final = 0.02
CLUSTER_MEMORY: Final = 200.0
"""Exceedances over which the extremal index is averaged."""
SHAPE_FACTOR: Final = 1.3
"""Correction of the fitted shape: t3 noise fits 0.25 beyond its 90 % quantile, its limit is 1/3."""
MOST_SHAPE: Final = 0.9
EVIDENCE_CAP: Final = 1e6
"""Largest Shiryaev-Roberts statistic: an episode must be able to end."""
REPEAT_FLOOR: Final = 0.1
"""Least assumed probability that a value repeats, or that a missing row follows another."""
REPEAT_BET: Final = 0.05
"""Factor by which a bet on a repeat lowers the probability that the run ends."""
RUN_MEMORY: Final = 4000.0
"""Runs of a bucket beyond which its counts are halved."""
QUIET_ROWS: Final = 75.0
"""Rows without exceedance after which an episode is over."""
SHIFT_ROWS: Final = 10.0
"""Unusual values after which a spike becomes a level shift or a variance change."""

UNUSUAL_NATS: Final = 3.0
"""-log tail probability from which a value is unusual: once in 20 rows."""
SHIFT_SD: Final = 3.0
"""Standard errors by which the mean of residuals must differ from 0 in a level shift."""
SHIFT_SHARE: Final = 0.5
"""Least share of the mean in the root mean square of the residuals of a level shift.

Also the least share of unusual values on one side."""
WIDE_RMS: Final = 1.3
"""Root mean square of residuals from which their variance has changed."""

CHANGE_ROWS: Final = 500.0
"""Rows over which the share of values outside the middle of a history is averaged."""
CHANGE_SD: Final = 6.0
"""Standard errors by which that share must differ from the expected one in a lasting change."""
CHANGE_SHARE: Final = 0.25
"""Share of a history that is kept at a lasting change."""

STATISTICS: Final = ("stated", "value", "unlikely", "season", "evidence", "movement")
"""Statistics with a history."""
STATED, VALUE, UNLIKELY, SEASON, EVIDENCE, MOVEMENT = range(6)
SIDES: Final = (
    (STATED, 1.0),
    (VALUE, 1.0),
    (VALUE, -1.0),
    (UNLIKELY, 1.0),
    (SEASON, 1.0),
    (SEASON, -1.0),
    (EVIDENCE, 1.0),
    (MOVEMENT, 1.0),
    (MOVEMENT, -1.0),
)
"""Tails of the statistics: statistic and sign; sides of one statistic are neighbours."""
FIRST_SIDE: Final = (0, 1, 3, 4, 6, 7)
COMPONENTS: Final = ("value", "unlikely", "season", "evidence", "movement", "flat", "missing")
WEIGHTS: Final = (1.0, 1.0, 1.0, 1.0, 0.5, 0.3, 0.3)
"""Weights of the components in the combined score."""
C_VALUE, C_UNLIKELY, C_SEASON, C_EVIDENCE, C_MOVEMENT, C_FLAT, C_MISSING = range(7)
NEEDS_VALUE: Final = (True, False, True, False, True, True, False)

KINDS: Final = (
    "",
    "spike",
    "level shift",
    "sustained deviation",
    "variance change",
    "flat line",
    "missing data",
    "drift",
)
SPIKE, LEVEL_SHIFT, SUSTAINED, VARIANCE, FLAT_LINE, MISSING_DATA, DRIFT = range(1, 8)

SURPRISE, SCORE, EVENT, KIND, START, LENGTH = range(6)
OUT_FIELDS: Final = 6
OPENED, CLOSED = 1.0, 2.0

WINDOWS: Final = 4
WINDOW_ROWS: Final = 50
W_UNLIKELY, W_RESIDUAL, W_SEASON, W_MOVEMENT = range(WINDOWS)
WINDOW_LENGTHS: Final = (50, 50, 20, 30)
SEASON_SLOTS: Final = 288
"""Times of day: slots of five minutes."""
SEASON_DAYS: Final = 7
SEASON_FIELDS: Final = SEASON_DAYS + 3
"""Seven days and today, number of days, the last day."""
RUN_BUCKETS: Final = 12
"""Run lengths 0, 1, 2-3, 4-7, ..."""
HELD, SEEN = range(2)
COUNT_FIELDS: Final = 2

ALL_BITS: Final = (1 << 64) - 1
GOLDEN_RATIO: Final = 0x9E3779B97F4A7C15
"""Its fraction times 2^64: multiples are spread evenly and follow no period of the stream."""


class TailFields(NamedTuple):
    """Fields of a tail of a statistic."""

    threshold: int
    scale: int
    shape: int
    log_top: int  # log((m+1)/(k+1))
    cluster_threshold: int
    extremal_index: int
    rows_since: int  # since the last exceedance
    exceedances: int
    gap_sum: int  # sum of gap - 1
    gap_square_sum: int  # sum of (gap - 1)(gap - 2)
    far_scale: int  # 0: not fitted yet
    far_shape: int
    far_log_top: int


TAIL: Final = TailFields(*range(13))
TAIL_FIELDS: Final = 13


class ScalarFields(NamedTuple):
    """Fields of `DetectorState.scalars`."""

    seed: int
    has_value: int
    row: int
    last_value: int
    evidence: int  # Shiryaev-Roberts statistic of the stated tail probabilities
    evidence_start: int
    flat: int
    flat_run: int
    missing: int
    missing_run: int
    window_counts: int  # four
    quiet_rows: int
    is_open: int
    kind: int
    start: int
    unusual_sum: int  # unusually high values minus unusually low ones
    peak: int
    unusual_values: int
    changes: int  # six: excess share of values outside the middle of each history


SCALAR: Final = ScalarFields(*range(11), *range(14, 22))
SCALARS: Final = 27


class DetectorState(NamedTuple):
    """State of a detector; all arrays are float64."""

    history: FloatArray  # (statistics, values) sorted
    counts: FloatArray  # (statistics, 2) values held and seen
    tails: FloatArray  # (sides, TAIL_FIELDS)
    windows: FloatArray  # (WINDOWS, WINDOW_ROWS) ring buffers
    season: FloatArray  # (SEASON_SLOTS or 0, SEASON_FIELDS)
    runs: FloatArray  # (flat and missing, RUN_BUCKETS, 2) continued runs, all runs
    scalars: FloatArray  # (SCALARS,)


def list_constants() -> FloatArray:
    """List the constants that the compiled version reads, in its order."""
    return np.array(
        [
            MEMORY_ROWS,
            CALIBRATED_ROWS,
            TOP_SHARE,
            CLUSTER_SHARE,
            FAR_VALUES,
            LEAST_EXTREMAL_INDEX,
            CLUSTER_MEMORY,
            SHAPE_FACTOR,
            MOST_SHAPE,
            EVIDENCE_CAP,
            REPEAT_FLOOR,
            REPEAT_BET,
            RUN_MEMORY,
            QUIET_ROWS,
            SHIFT_ROWS,
            UNUSUAL_NATS,
            SHIFT_SD,
            SHIFT_SHARE,
            WIDE_RMS,
            CHANGE_ROWS,
            CHANGE_SD,
            CHANGE_SHARE,
            *WEIGHTS,
        ]
    )


def detect_anomalies(state: DetectorState, rows: FloatArray, threshold: float) -> FloatArray:
    """Score rows (n, 5) of value, -log tail, residual, seconds, missing; update the state."""
    out = np.zeros((len(rows), OUT_FIELDS))
    for i, (value, stated, residual, seconds, missing) in enumerate(rows.tolist()):
        out[i] = _process_row(state, value, stated, residual, seconds, missing > 0.0, threshold)
    return out


class _RowView(NamedTuple):
    """What the kind of an alert is told from."""

    scores: list[float]  # by component
    row_nats: float  # calibrated -log tail probability
    bet: float  # of the row
    unusual: float  # 1 or -1 if the value is unusually high or low in its history
    is_low: bool  # whether movement is unusually small


def _process_row(
    state: DetectorState,
    value: float,
    stated: float,
    residual: float,
    seconds: float,
    is_missing: bool,
    threshold: float,
) -> list[float]:
    s = state.scalars
    row = int(s[SCALAR.row])
    scores = [0.0] * len(COMPONENTS)
    scores[C_MISSING] = _bet_on_run(state, 1, SCALAR.missing, SCALAR.missing_run, is_missing)
    c, surprise, bet, h = 0.0, math.nan, 0.0, 0.0
    unusual, is_low = 0.0, False
    if not is_missing:
        both = True
        if math.isnan(stated):
            both = False
        else:
            c = stated
            if is_calibrated(state, STATED):
                c = max(calibrated_tail(state, 0, stated, _hash_uniform(state, row, 1)), 0.0)
                bet = _bet_against(c)
                scores[C_EVIDENCE] = _add_evidence(state, row, bet)
            else:
                both = False
            surprise = c / math.log(10.0)
            _add_to_history(state, STATED, stated)
        if s[SCALAR.has_value] and not math.isnan(value):
            scores[C_FLAT] = _bet_on_run(
                state, 0, SCALAR.flat, SCALAR.flat_run, value == s[SCALAR.last_value]
            )
            scores[C_MOVEMENT], is_low = _score_movement(state, value)
            s[SCALAR.last_value] = value
            if is_calibrated(state, VALUE):
                h, scores[C_VALUE], is_below = _score_two_sided(state, VALUE, value)
                unusual = (-1.0 if is_below else 1.0) if h > UNUSUAL_NATS else 0.0
            else:
                both = False
            scores[C_SEASON] = _score_season(state, value, seconds)
            _add_to_history(state, VALUE, value)
        _push(state, W_RESIDUAL, residual)
        if both:
            mean = _push(state, W_UNLIKELY, c + h)
            if not math.isnan(mean):
                scores[C_UNLIKELY] = _score_upper(state, UNLIKELY, mean)
                _add_to_history(state, UNLIKELY, mean)
    score = _combine(scores, s[SCALAR.has_value] > 0.0)
    view = _RowView(scores, c, bet, unusual, is_low)
    event, kind, start, length = _follow_episode(state, row, score, threshold, view)
    s[SCALAR.row] = row + 1
    return [surprise, score, event, kind, start, length]


# Calibration against a history


def is_calibrated(state: DetectorState, statistic: int) -> bool:
    """Return whether a statistic has enough history."""
    return bool(state.counts[statistic, HELD] >= CALIBRATED_ROWS)


def calibrated_tail(state: DetectorState, side: int, x: float, u: float = -1.0) -> float:
    """Return -log of the share of the history beyond x; ties divide at u, all count if u < 0."""
    statistic, sign = SIDES[side]
    tail = state.tails[side]
    m = int(state.counts[statistic, HELD])
    y = sign * x
    if y > tail[TAIL.threshold]:
        if tail[TAIL.scale] <= 0.0:
            return math.log(m + 1.0)
        near = _pareto_tail(
            y - tail[TAIL.threshold], tail[TAIL.scale], tail[TAIL.shape], tail[TAIL.log_top]
        )
        if tail[TAIL.far_scale] <= 0.0 or y <= tail[TAIL.cluster_threshold]:
            return near
        far = _pareto_tail(
            y - tail[TAIL.cluster_threshold],
            tail[TAIL.far_scale],
            tail[TAIL.far_shape],
            tail[TAIL.far_log_top],
        )
        return min(near, far)
    held = state.history[statistic, :m]
    below, through = int(np.searchsorted(held, x)), int(np.searchsorted(held, x, side="right"))
    least, most = (m - through, m - below) if sign > 0.0 else (below, through)
    beyond = most + 1.0 if u < 0.0 else least + u * (most - least + 1.0)
    return -math.log(beyond / (m + 1.0))


def _pareto_tail(excess: float, scale: float, shape: float, log_top: float) -> float:
    """Return -log of the probability of an excess beyond a threshold."""
    return float(log_top + math.log1p(shape * excess / scale) / shape)


def _score_upper(state: DetectorState, statistic: int, x: float) -> float:
    """Score a statistic of which only large values count."""
    if not is_calibrated(state, statistic):
        return 0.0
    side = FIRST_SIDE[statistic]
    theta = float(state.tails[side, TAIL.extremal_index])
    return calibrated_tail(state, side, x) - math.log(theta)


def _score_two_sided(state: DetectorState, statistic: int, x: float) -> tuple[float, float, bool]:
    """Return -log of the two-sided tail probability, the score, and whether the low side led."""
    side = FIRST_SIDE[statistic]
    high, low = calibrated_tail(state, side, x), calibrated_tail(state, side + 1, x)
    high_score = high - math.log(state.tails[side, TAIL.extremal_index])
    low_score = low - math.log(state.tails[side + 1, TAIL.extremal_index])
    nats = max(max(high, low) - math.log(2.0), 0.0)
    return nats, max(high_score, low_score) - math.log(2.0), low_score > high_score


def _add_to_history(state: DetectorState, statistic: int, x: float) -> None:
    """Update extremal index, sample and tails with a value."""
    held = state.history[statistic]
    capacity = len(held)
    m, seen = (int(v) for v in state.counts[statistic])
    sides = [side for side, (of, _) in enumerate(SIDES) if of == statistic]
    for side in sides:
        _count_exceedance(state, side, x, m)
    if m == capacity and _has_changed(state, statistic, sides, x):
        m = seen = _restart_history(state, statistic, m)
    at = int(np.searchsorted(held[:m], x, side="right"))
    if m < capacity:
        held[at + 1 : m + 1] = held[at:m].copy()
        held[at] = x
        m += 1
    else:
        life = min(seen + 1.0, MEMORY_ROWS)
        turns = seen * GOLDEN_RATIO + _mix_bits(int(state.scalars[SCALAR.seed]) + statistic)
        place = float((turns & ALL_BITS) >> 11) * 2.0**-53 * life
        if place < capacity:
            out = int(place)
            if at > out:
                held[out : at - 1] = held[out + 1 : at].copy()
                held[at - 1] = x
            else:
                held[at + 1 : out + 1] = held[at:out].copy()
                held[at] = x
    seen += 1
    state.counts[statistic] = m, seen
    if seen >= 20 and seen % (4 if seen < 256 else 16) == 0:
        for side in sides:
            _fit_tail(state, side)


def _has_changed(state: DetectorState, statistic: int, sides: list[int], x: float) -> bool:
    """Average how often values leave the middle of a full history; return whether that changed."""
    held, count, outside, theta = state.history[statistic], 0, False, 1.0
    for side in sides:
        sign, tail = SIDES[side][1], state.tails[side]
        count += int(np.count_nonzero(sign * held > tail[TAIL.threshold]))
        outside |= bool(sign * x > tail[TAIL.threshold])
        theta = min(theta, float(tail[TAIL.extremal_index]))
    p = (count + 1.0) / (len(held) + 2.0)
    at = SCALAR.changes + statistic
    state.scalars[at] += (outside - p - state.scalars[at]) / CHANGE_ROWS
    limit = CHANGE_SD * math.sqrt(p * (1.0 - p) / (2.0 * CHANGE_ROWS * theta))
    return bool(abs(state.scalars[at]) > limit)


def _restart_history(state: DetectorState, statistic: int, m: int) -> int:
    """Thin out a history, so that the values after a lasting change replace those before it."""
    held, kept = state.history[statistic], int(CHANGE_SHARE * m)
    held[:kept] = held[[i * m // kept for i in range(kept)]]
    held[kept:] = 0.0
    state.scalars[SCALAR.changes + statistic] = 0.0
    return kept


def _fit_tail(state: DetectorState, side: int) -> None:
    """Fit the tail beyond the 90 % quantile and, with enough values, beyond the 98 % quantile."""
    m = state.counts[SIDES[side][0], HELD]
    tail = state.tails[side]
    k, far = max(int(TOP_SHARE * m), 2), int(CLUSTER_SHARE * m)
    fitted = _fit_pareto(state, side, k)
    tail[TAIL.threshold], tail[TAIL.scale], tail[TAIL.shape], tail[TAIL.log_top] = fitted
    fitted = _fit_pareto(state, side, max(far, 1))
    tail[TAIL.cluster_threshold] = fitted[0]
    if far >= FAR_VALUES:
        tail[TAIL.far_scale], tail[TAIL.far_shape], tail[TAIL.far_log_top] = fitted[1:]


def _fit_pareto(state: DetectorState, side: int, k: int) -> tuple[float, float, float, float]:
    """Fit the k largest values by probability-weighted moments.

    Returns threshold, scale, shape and log((m+1)/(k+1)).
    """
    statistic, sign = SIDES[side]
    m, seen = (int(v) for v in state.counts[statistic])
    ordered = state.history[statistic, :m] if sign > 0.0 else -state.history[statistic, :m][::-1]
    u = float(ordered[m - k - 1])
    b0 = b1 = 0.0
    for i in range(k):
        excess = float(ordered[m - k + i]) - u
        b0 += excess
        b1 += excess * (k - 1 - i) / max(k - 1, 1)
    b0, b1 = b0 / k, b1 / k
    spread = b0 - 2.0 * b1
    xi = SHAPE_FACTOR * (2.0 - b0 / spread) if spread > 0.0 else MOST_SHAPE
    xi = min(max(xi, 0.0), MOST_SHAPE)
    independent = float(state.tails[side, TAIL.extremal_index]) * min(seen, MEMORY_ROWS) / m
    n = max(k * min(independent, 1.0), 1.0)
    scale, shape = b0 * (1.0 - xi), min(xi + 1.0 / n, MOST_SHAPE)
    return u, scale, shape, math.log((m + 1.0) / (k + 1.0))


def _count_exceedance(state: DetectorState, side: int, x: float, held: int) -> None:
    """Update the extremal index with the gap since the last exceedance."""
    tail = state.tails[side]
    tail[TAIL.rows_since] += 1.0
    if held < CALIBRATED_ROWS or SIDES[side][1] * x <= tail[TAIL.cluster_threshold]:
        return
    gap = float(tail[TAIL.rows_since])
    tail[TAIL.rows_since] = 0.0
    n = tail[TAIL.exceedances] + 1.0
    s1 = tail[TAIL.gap_sum] + (gap - 1.0)
    s2 = tail[TAIL.gap_square_sum] + (gap - 1.0) * (gap - 2.0)
    if n > CLUSTER_MEMORY:
        kept = CLUSTER_MEMORY / n
        n, s1, s2 = n * kept, s1 * kept, s2 * kept
    theta = 2.0 * s1 * s1 / (n * s2) if s2 > 0.0 and n >= 3.0 else 1.0
    tail[TAIL.exceedances], tail[TAIL.gap_sum], tail[TAIL.gap_square_sum] = n, s1, s2
    tail[TAIL.extremal_index] = min(max(theta, LEAST_EXTREMAL_INDEX), 1.0)


# Components


def _bet_against(c: float) -> float:
    """Return the e-value of p = exp(-c): (1 - p + p ln p)/(p ln^2 p), of mean 1 for uniform p."""
    if c < 1e-3:
        return 0.5 + c / 6.0
    c = min(c, 500.0)
    return (math.expm1(c) - c) / (c * c)


def _add_evidence(state: DetectorState, row: int, bet: float) -> float:
    """Update the Shiryaev-Roberts statistic with a bet; return its score."""
    s = state.scalars
    if s[SCALAR.evidence] < 1.0:
        s[SCALAR.evidence_start] = row
    s[SCALAR.evidence] = min((1.0 + s[SCALAR.evidence]) * bet, EVIDENCE_CAP)
    x = math.log(s[SCALAR.evidence])
    score = _score_upper(state, EVIDENCE, x)
    _add_to_history(state, EVIDENCE, x)
    return score


def _bet_on_run(state: DetectorState, which: int, at: int, run_at: int, continues: bool) -> float:
    """Bet that a run of repeated or missing values continues; return log Shiryaev-Roberts.

    The probability that it does is counted by the length of the run; lengths seen rarely take it
    from shorter ones. A run is counted when it ends, so that it does not excuse itself.
    """
    s, counts = state.scalars, state.runs[which]
    run = int(s[run_at])
    bucket = min(run.bit_length(), RUN_BUCKETS - 1)
    q = REPEAT_FLOOR
    for continued, runs in counts[: bucket + 1].tolist():
        q = (continued + 2.0 * q) / (runs + 2.0)
    q = max(q, REPEAT_FLOOR)
    bet = (1.0 - (1.0 - q) * REPEAT_BET) / q if continues else REPEAT_BET
    if not continues:
        _count_run(counts, run, bucket)
    s[run_at] = run + 1 if continues else 0
    s[at] = min((1.0 + s[at]) * bet, EVIDENCE_CAP)
    return math.log(s[at])


def _count_run(counts: FloatArray, run: int, last: int) -> None:
    """Count a run that has ended: it continued at every length below `run`."""
    for bucket in range(last + 1):
        first = (1 << bucket) >> 1
        beyond = run if bucket == last else 1 << bucket
        counts[bucket] += beyond - first, beyond - first
        if bucket == last:
            counts[bucket, 1] += 1.0
        if counts[bucket, 1] > RUN_MEMORY:
            counts[bucket] *= RUN_MEMORY / 2.0 / counts[bucket, 1]


def _score_movement(state: DetectorState, value: float) -> tuple[float, bool]:
    """Score the mean absolute change; also return whether it is unusually small."""
    change = abs(value - state.scalars[SCALAR.last_value])
    if math.isnan(change):
        return 0.0, False
    mean = _push(state, W_MOVEMENT, float(change))
    if math.isnan(mean):
        return 0.0, False
    score, is_low = 0.0, False
    if is_calibrated(state, MOVEMENT):
        _, score, is_low = _score_two_sided(state, MOVEMENT, mean)
    _add_to_history(state, MOVEMENT, mean)
    return score, is_low


def _score_season(state: DetectorState, value: float, seconds: float) -> float:
    """Score the mean deviation from the median of the last days at this time of day."""
    usual = 0.0
    if len(state.season) and not math.isnan(seconds):
        usual = _follow_season(state, value, seconds)
        if math.isnan(usual):
            return 0.0
    mean = _push(state, W_SEASON, value - usual)
    if math.isnan(mean):
        return 0.0
    score = _score_two_sided(state, SEASON, mean)[1] if is_calibrated(state, SEASON) else 0.0
    _add_to_history(state, SEASON, mean)
    return score


def _follow_season(state: DetectorState, value: float, seconds: float) -> float:
    """Store a value at its time of day; return the median of the days before, NaN without any."""
    day = math.floor(seconds / 86400.0)
    part = (seconds - 86400.0 * day) / (86400.0 / SEASON_SLOTS)
    slot = state.season[min(int(part), SEASON_SLOTS - 1)]
    ring = SEASON_DAYS + 1
    days, last_day = int(slot[ring]), slot[ring + 1]
    today = 1 if days > 0 and last_day == day else 0
    past = sorted(
        float(slot[(days - 1 - j) % ring]) for j in range(today, min(days, today + SEASON_DAYS))
    )
    if today:
        slot[(days - 1) % ring] = value
    else:
        slot[days % ring] = value
        slot[ring], slot[ring + 1] = days + 1, day
    if not past:
        return math.nan
    middle = len(past) // 2
    return past[middle] if len(past) % 2 else 0.5 * (past[middle] + past[middle - 1])


def _push(state: DetectorState, window: int, x: float) -> float:
    """Add a value to a window; return the mean of a full window, otherwise NaN."""
    s, rows = state.scalars, WINDOW_LENGTHS[window]
    count = int(s[SCALAR.window_counts + window])
    state.windows[window, count % rows] = x
    s[SCALAR.window_counts + window] = count + 1
    if count + 1 < rows:
        return math.nan
    total = 0.0
    for kept in state.windows[window, :rows].tolist():
        total += kept
    return total / rows


def _combine(scores: list[float], has_value: bool) -> float:
    """Return the log of the weighted mean of exp(score)."""
    used = [
        (w, x)
        for w, x, needed in zip(WEIGHTS, scores, NEEDS_VALUE, strict=True)
        if has_value or not needed
    ]
    most = max(x for _, x in used)
    total = weights = 0.0
    for w, x in used:
        total += w * math.exp(x - most)
        weights += w
    return most + math.log(total / weights)


# Episodes


def _follow_episode(
    state: DetectorState, row: int, score: float, threshold: float, view: _RowView
) -> tuple[float, float, float, float]:
    """Open, continue or close the episode; return event, kind, start and length.

    While an episode fades out, an exceedance that is rarer than its peak by the rate opens another.
    """
    s = state.scalars
    if score > threshold:
        kind, start = _tell_kind(state, row, threshold, view)
        is_new = s[SCALAR.quiet_rows] >= SHIFT_ROWS and score > s[SCALAR.peak] + threshold
        if s[SCALAR.is_open] == 0.0 or is_new:
            s[SCALAR.is_open], s[SCALAR.kind], s[SCALAR.start] = 1.0, kind, start
            s[SCALAR.peak], s[SCALAR.unusual_values] = score, abs(view.unusual)
            s[SCALAR.unusual_sum] = view.unusual
            s[SCALAR.quiet_rows] = 0.0
            return OPENED, kind, start, row - start + 1.0
        if score > s[SCALAR.peak]:
            s[SCALAR.peak], s[SCALAR.kind] = score, kind
        s[SCALAR.quiet_rows] = 0.0
    else:
        s[SCALAR.quiet_rows] += 1.0
    if s[SCALAR.is_open] == 0.0:
        return 0.0, 0.0, 0.0, 0.0
    s[SCALAR.unusual_values] += abs(view.unusual)
    s[SCALAR.unusual_sum] += view.unusual
    if s[SCALAR.kind] == SPIKE and s[SCALAR.unusual_values] >= SHIFT_ROWS:
        is_shift = abs(s[SCALAR.unusual_sum]) > SHIFT_SHARE * s[SCALAR.unusual_values]
        s[SCALAR.kind] = LEVEL_SHIFT if is_shift else VARIANCE
    if s[SCALAR.quiet_rows] < QUIET_ROWS:
        return 0.0, 0.0, 0.0, 0.0
    s[SCALAR.is_open] = 0.0
    start = float(s[SCALAR.start])
    return CLOSED, float(s[SCALAR.kind]), start, row - s[SCALAR.quiet_rows] - start + 1.0


def _tell_kind(
    state: DetectorState, row: int, threshold: float, view: _RowView
) -> tuple[float, float]:
    """Return the kind of an exceedance and the row at which the deviation began.

    The component with the largest share of the score decides. A run of equal values that is half
    as unlikely as an alert is a flat line in any case. One unlikely row is a spike.
    Residuals of one sign are a level shift, wide ones of both signs a variance change. A value
    outside its history that the forecasts have followed is a drift.
    """
    s = state.scalars
    has_value = s[SCALAR.has_value] > 0.0
    lead, best = C_UNLIKELY, -math.inf
    for i, (w, x) in enumerate(zip(WEIGHTS, view.scores, strict=True)):
        if (has_value or not NEEDS_VALUE[i]) and math.log(w) + x > best:
            lead, best = i, math.log(w) + x
    if lead == C_MISSING:
        return MISSING_DATA, row - s[SCALAR.missing_run] + 1.0
    if lead == C_FLAT or view.scores[C_FLAT] > 0.5 * threshold:
        return FLAT_LINE, float(row - s[SCALAR.flat_run])
    if lead == C_MOVEMENT and view.is_low:
        return FLAT_LINE, max(row - WINDOW_LENGTHS[W_MOVEMENT] + 1.0, 0.0)
    decides = lead == C_VALUE or 2.0 * view.bet > s[SCALAR.evidence]
    if view.row_nats > threshold or (decides and view.row_nats > 0.5 * threshold):
        return SPIKE, float(row)
    rows = 20
    if lead == C_UNLIKELY:
        rows = WINDOW_ROWS
    elif lead == C_EVIDENCE:
        rows = int(min(row - s[SCALAR.evidence_start] + 1.0, WINDOW_ROWS))
    start = max(row - rows + 1.0, 0.0)
    mean, square = _summarize_residuals(state, rows)
    if abs(mean) * math.sqrt(rows) > SHIFT_SD and abs(mean) > SHIFT_SHARE * math.sqrt(square):
        return LEVEL_SHIFT, start
    if lead == C_MOVEMENT or math.sqrt(square) > WIDE_RMS:
        return VARIANCE, start
    return (DRIFT if lead in (C_VALUE, C_SEASON) else SUSTAINED), start


def _summarize_residuals(state: DetectorState, rows: int) -> tuple[float, float]:
    """Return mean and mean square of the last residuals."""
    count = int(state.scalars[SCALAR.window_counts + W_RESIDUAL])
    rows = min(rows, count, WINDOW_ROWS)
    total = squares = 0.0
    for j in range(rows):
        z = float(state.windows[W_RESIDUAL, (count - 1 - j) % WINDOW_ROWS])
        total += z
        squares += z * z
    return (total / rows, squares / rows) if rows else (0.0, 0.0)


# Randomness


def _hash_uniform(state: DetectorState, row: int, stream: int) -> float:
    """Return a uniform number in [0, 1) that depends on seed, row and stream only."""
    bits = _mix_bits(_mix_bits(_mix_bits(int(state.scalars[SCALAR.seed])) ^ row) ^ stream)
    return float(bits >> 11) * 2.0**-53


def _mix_bits(x: int) -> int:
    """Scramble 64 bits (splitmix64)."""
    x = (x + GOLDEN_RATIO) & ALL_BITS
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & ALL_BITS
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & ALL_BITS
    return x ^ (x >> 31)
