"""Detect anomalies in a stream with a stated rate of false alarms.

Each row has a value and its normal score z: the normal quantile of the probability of less than the
value, as the model stated it before the row. The tail probability of the row is 2 Phi(-|z|). Seven
components look at the row and at the rows before it. Each component returns a score in nats, -log
of the rate at which so high a score starts on an ordinary stream:

    value      the value, against its own history
    unlikely   50-row mean of the -log tail probabilities of forecast and value
    season     20-row mean of the value minus the median of seven days at this time of day
    evidence   Shiryaev-Roberts statistic of bets against the stated tail probabilities
    movement   30-row mean of the absolute change: too much or too little
    flat       Shiryaev-Roberts statistic of bets on repeated values
    missing    Shiryaev-Roberts statistic of bets on missing values

Combined, S = log of the weighted mean of exp(score). An alert starts where S > log(1/rate) after
QUIET_ROWS rows below it: one alert per episode.

Scores are calibrated against a history of the statistic x (`calibrated_tail`). Up to its 90 %
quantile u, the score is -log of the rank. Beyond u it follows a generalised Pareto tail with mean
excess b and shape xi from probability-weighted moments:

    log((m+1)/(k+1)) + log(1 + xi (x-u)/s)/xi,    s = b (1 - xi),    xi <- 1.3 xi + 1/n

m values are held, k of them beyond u, n is the number of independent ones among the k. The factor
1.3 corrects the bias of heavy tails at this quantile, and 1/n is the uncertainty of b: the
predictive distribution of an exponential excess given n others is Pareto with shape 1/n.
The score of a statistic that is correlated in time is reduced to starts of clusters by the
extremal index (Ferro and Segers 2003) of its exceedances of the 98 % quantile.

A history is a sorted sample of HISTORY_ROWS values: every value at first, later each value with
probability HISTORY_ROWS / MEMORY_ROWS in place of a random one, so that old values fade with a mean
life of MEMORY_ROWS rows. Randomness is a hash of seed and row number. Memory is constant, and
results do not depend on how rows are grouped into batches.

The readable version is kbnn.model.anomaly_reference, the compiled one csrc/anomaly.c.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import numpy as np

from kbnn.array_types import FloatArray, IntArray
from kbnn.core import kernel, normal
from kbnn.model import anomaly_reference
from kbnn.model.anomaly_reference import (
    CLOSED,
    COUNT_FIELDS,
    EVENT,
    HISTORY_ROWS,
    KIND,
    KINDS,
    LENGTH,
    OPENED,
    RUN_BUCKETS,
    SCALAR,
    SCALARS,
    SCORE,
    SEASON_DAYS,
    SEASON_FIELDS,
    SEASON_SLOTS,
    SIDES,
    START,
    STATISTICS,
    SURPRISE,
    TAIL,
    TAIL_FIELDS,
    WINDOW_ROWS,
    WINDOWS,
    DetectorState,
)

_COUNTED_SCALARS: Final = [
    SCALAR.seed,
    SCALAR.row,
    SCALAR.flat_run,
    SCALAR.missing_run,
    SCALAR.is_open,
    SCALAR.kind,
    SCALAR.unusual_values,
]
"""Scalars of a detector that are whole numbers."""


class Alert(NamedTuple):
    """One episode of anomalous rows, when it is detected or when it is over.

    Rows are counted from 0 over all rows that the detector has seen.
    """

    row: int  # row that opened or closed the episode
    is_open: bool
    kind: str  # one of KINDS; may be corrected when the episode closes
    start: int  # estimated first row of the deviation
    length: int  # rows from `start` to the last exceedance
    score: float  # S of the row, in nats


class DetectorScores(NamedTuple):
    """Scores of n rows, and the episodes that opened or closed at them."""

    surprise: FloatArray  # (n,) -log10 of the calibrated tail probability, NaN without a forecast
    score: FloatArray  # (n,) S in nats
    alerts: list[Alert]


def init_detector(
    *, has_value: bool = True, has_clock: bool = False, history: int = HISTORY_ROWS, seed: int = 0
) -> DetectorState:
    """Create the state of a detector that has seen no row.

    Parameters
    ----------
    has_value
        Whether rows have a number; False for classes, of which only the stated probability counts.
    has_clock
        Whether rows have a time. Without one, `season` compares values with their own history.
    history
        Values held per statistic. Memory is 48 bytes times this, plus 26 KB with a clock.
    seed
        Seed of the sampled histories, below 2^53.

    Returns
    -------
    DetectorState
        Plain arrays of float64; `kbnn.model.file` can store them as they are.
    """
    scalars = np.zeros(SCALARS)
    scalars[[SCALAR.seed, SCALAR.has_value]] = seed, has_value
    scalars[SCALAR.last_value] = np.nan
    scalars[SCALAR.quiet_rows] = np.inf
    tails = np.zeros((len(SIDES), TAIL_FIELDS))
    tails[:, TAIL.cluster_threshold] = np.inf
    tails[:, TAIL.extremal_index] = 1.0
    return DetectorState(
        np.zeros((len(STATISTICS), history)),
        np.zeros((len(STATISTICS), COUNT_FIELDS)),
        tails,
        np.zeros((WINDOWS, WINDOW_ROWS)),
        np.zeros((SEASON_SLOTS if has_clock else 0, SEASON_FIELDS)),
        np.zeros((2, RUN_BUCKETS, 2)),
        scalars,
    )


def is_valid_detector(state: DetectorState, like: DetectorState) -> bool:
    """Return whether arrays read from a file can be the state of a detector shaped as `like`."""
    if any(part.shape != other.shape for part, other in zip(state, like, strict=True)):
        return False
    held, seen = state.counts.T
    s, days = state.scalars, state.season[:, SEASON_DAYS + 1]
    whole = np.concatenate(
        (state.counts.ravel(), days, s[_COUNTED_SCALARS], s[SCALAR.window_counts :][:WINDOWS])
    )
    fits = bool(np.all((whole >= 0.0) & (whole < 2.0**53) & (whole == np.floor(whole))))
    fits = fits and bool(np.all((held <= state.history.shape[1]) & (held <= seen)))
    fits = fits and bool(np.all(np.isfinite(state.history)) and np.all(np.isfinite(state.windows)))
    fits = fits and bool(s[SCALAR.has_value] == like.scalars[SCALAR.has_value])
    fits = fits and bool(np.all(s[[SCALAR.evidence, SCALAR.flat, SCALAR.missing]] >= 0.0))
    fits = fits and s[SCALAR.kind] < len(KINDS) and not np.isnan(s[SCALAR.quiet_rows])
    known = np.isfinite(state.runs).all() and np.all(state.runs >= 0.0)
    tails = state.tails
    theta = tails[:, TAIL.extremal_index]
    fits = fits and bool(known) and not np.any(np.isnan(tails))
    return bool(fits and np.all((theta > 0.0) & (theta <= 1.0)))


def update_detector(
    state: DetectorState,
    value: FloatArray,
    z: FloatArray,
    *,
    rate: float,
    seconds: FloatArray | None = None,
    missing: FloatArray | None = None,
) -> tuple[DetectorState, DetectorScores]:
    """Score rows in order, each against what was known before it.

    Parameters
    ----------
    state
        State after the rows before; it is not changed.
    value
        Observed values (n,); NaN where missing; all NaN for classes.
    z
        Normal scores (n,) under the distributions stated before the rows, as `RowScores.score`;
        of classes, see `score_labels`. NaN without a forecast.
    rate
        False alarms per row.
    seconds
        Local time in seconds since any midnight (n,), for the season.
    missing
        1 where the target is missing (n,); by default where `value` is NaN, for classes where `z`
        is.

    Returns
    -------
    DetectorState
        The state after the rows.
    DetectorScores
        Surprise, score and alerts.

    Examples
    --------
    >>> x = np.random.default_rng(0).standard_normal(2000)
    >>> x[1500] = 9.0
    >>> state, found = update_detector(init_detector(), x, x, rate=1e-3)
    >>> [(a.row, a.kind) for a in found.alerts if a.is_open]
    [(1500, 'spike')]
    """
    n = len(value)
    if missing is None:
        missing = np.isnan(value if state.scalars[SCALAR.has_value] else z).astype(float)
    rows = np.empty((n, 5))
    rows[:, 0] = np.where(np.isfinite(value), value, np.nan)
    rows[:, 1] = _tail_nats(z)
    rows[:, 2] = np.nan_to_num(z)
    rows[:, 3] = np.nan if seconds is None else seconds
    rows[:, 4] = missing
    after = DetectorState._make(part.copy() for part in state)
    first = int(state.scalars[SCALAR.row])
    if kernel.is_compiled():
        fixed = anomaly_reference.list_constants()
        out = kernel.detect_anomalies(after, rows, math.log(1.0 / rate), fixed)
    else:
        out = anomaly_reference.detect_anomalies(after, rows, math.log(1.0 / rate))
    alerts = [
        Alert(
            first + i,
            bool(out[i, EVENT] == OPENED),
            KINDS[int(out[i, KIND])],
            int(out[i, START]),
            int(out[i, LENGTH]),
            float(out[i, SCORE]),
        )
        for i in np.flatnonzero((out[:, EVENT] == OPENED) | (out[:, EVENT] == CLOSED)).tolist()
    ]
    return after, DetectorScores(out[:, SURPRISE], out[:, SCORE], alerts)


def measure_surprise(state: DetectorState, z: FloatArray) -> FloatArray:
    """Return -log10 of calibrated tail probabilities (n,) without updating the detector.

    For `predict` on rows whose target is known: the history is that of the rows learned so far.
    """
    c = _tail_nats(z)
    if anomaly_reference.is_calibrated(state, anomaly_reference.STATED):
        c = np.array([anomaly_reference.calibrated_tail(state, 0, x) for x in c.tolist()])
    return np.asarray(np.maximum(c, 0.0) / math.log(10.0))


def score_labels(probability: FloatArray, label: IntArray, number: IntArray) -> FloatArray:
    """Return the normal scores of labels (n,), all positive.

    The tail probability of a label is that of the labels that are less probable, plus a share of
    the labels that are as probable as it. The share is a hash of the row number, so that tail
    probabilities of calibrated forecasts are uniform.

    Parameters
    ----------
    probability
        Predicted probabilities (n, classes).
    label
        Index of each row's class (n,).
    number
        Row numbers (n,).
    """
    own = np.take_along_axis(probability, label[:, None], axis=1)
    less = np.sum(np.where(probability < own, probability, 0.0), axis=1)
    same = np.sum(np.where(probability == own, probability, 0.0), axis=1)
    bits = number.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        bits = (bits ^ (bits >> np.uint64(shift))) * np.uint64(factor)
    u = ((bits ^ (bits >> np.uint64(31))) >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return -normal.lower_quantiles(np.minimum(0.5 * (less + u * same), 0.5))


def _tail_nats(z: FloatArray) -> FloatArray:
    """Return -log of the two-sided tail probability, -log(2 Phi(-|z|))."""
    return np.maximum(-math.log(2.0) - normal.log_cdf(-np.abs(z)), 0.0)


def count_bytes(state: DetectorState) -> int:
    """Return the memory of a state in bytes."""
    return sum(part.nbytes for part in state)
