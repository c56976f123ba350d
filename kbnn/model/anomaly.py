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

A history is a sorted sample of HISTORY_ROWS values: every value at first, later a share
HISTORY_ROWS / MEMORY_ROWS of them, each in place of another, so that old values fade with a mean
life of MEMORY_ROWS rows. Multiples of the golden ratio choose the rows that enter and the ranks
that leave: all ranks leave equally often, and no period of the stream is preferred. After a lasting
change the history keeps a share CHANGE_SHARE of its values and starts anew: when the share of
values beyond the 90 % (and 10 %) quantile, averaged over CHANGE_ROWS, differs from that of the
history by CHANGE_SD standard errors (`_has_changed`). Memory is constant, and results do not depend
on how rows are grouped into batches.

The readable version is kbnn.model.anomaly_reference, the compiled one csrc/anomaly.c.

A `Monitor` holds one detector per target. Rows are scored under the distributions predicted before
they were learned, in the order in which they are learned; later passes do not count. A model has a
monitor only after `set_alert_rate`. In a fleet each key has a monitor of its own
(kbnn.fleet.key_index), with FLEET_HISTORY_ROWS values per statistic and without times of day.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from kbnn.array_types import FloatArray, IntArray
from kbnn.core import kernel, normal
from kbnn.data.batch import Anomalies, RowAlert, Rows
from kbnn.data.clock import DAY_SECONDS, MONTH_SECONDS, YEAR_SECONDS
from kbnn.data.schema import Schema
from kbnn.distributions.dispatch import read_distribution
from kbnn.distributions.predictive import PARAM
from kbnn.errors import UsageError
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
from kbnn.targets.base import TargetType
from kbnn.targets.prediction import IN_WARMUP, Forecast

if TYPE_CHECKING:
    from kbnn.model.model import OnlineModel

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


def widen_scalars(scalars: FloatArray) -> FloatArray:
    """Return the scalars of a detector, completed if they were written without `changes`."""
    if scalars.shape != (SCALAR.changes,):
        return scalars.copy()
    scalars = np.concatenate((scalars, np.zeros(len(STATISTICS))))
    scalars[SCALAR.unusual_sum] = 0.0  # another field then
    return scalars


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
    fits = fits and bool(np.all(np.abs(s[SCALAR.changes :]) <= 1.0))
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


DEFAULT_ALERT_RATE: Final = 1e-3
"""False alarms per row."""
FLEET_HISTORY_ROWS: Final = 256
"""Values held per statistic by the detector of a key: 15 KB per key and target."""
MAX_ALERT_RATE: Final = 0.01
"""Episodes that follow within 75 rows are one, so that alerts cannot be more frequent."""
MIN_ALERT_RATE: Final = 1e-9
MAX_NORMAL_SCORE: Final = 12.0
"""Limit of normal scores: one extreme row must not decide the means of 50 rows for long."""

PERIODS: Final = {
    "hour": 3600.0,
    "day": DAY_SECONDS,
    "week": 7 * DAY_SECONDS,
    "month": MONTH_SECONDS,
    "year": YEAR_SECONDS,
}
"""Periods of a rate of alerts, in seconds."""


class AlertRate(NamedTuple):
    """A rate of false alarms: per row, or per period."""

    alarms: float
    period: str = ""  # one of PERIODS; per row if empty

    def per_row(self, schema: Schema) -> float:
        """Return false alarms per row; UsageError if the rows have no regular time."""
        if not self.period:
            return self.alarms
        step = 0.0 if schema.clock is None else schema.clock.step
        shown = f"--alert-rate {self.alarms:g}/{self.period}"
        if not step > 0.0:
            raise UsageError(
                f"{shown}: needs rows in order of time, with a time column (--time). "
                "Give a rate per row instead, such as 1e-3."
            )
        rate = self.alarms * step / PERIODS[self.period]
        if not MIN_ALERT_RATE <= rate <= MAX_ALERT_RATE:
            raise UsageError(
                f"{shown}: is {rate:.3g} per row at {step:g} seconds between rows, and the rate "
                f"per row must lie between {MIN_ALERT_RATE:g} and {MAX_ALERT_RATE:g}"
            )
        return rate


def parse_alert_rate(value: float | str) -> AlertRate:
    """Parse a rate of false alarms: 1e-3 per row, or 1/week."""
    count, slash, period = str(value).partition("/")
    try:
        rate = AlertRate(float(count), period.strip())
    except ValueError:
        rate = AlertRate(math.nan)
    if slash and rate.period in PERIODS and 0.0 < rate.alarms < math.inf:
        return rate
    if not slash and MIN_ALERT_RATE <= rate.alarms <= MAX_ALERT_RATE:
        return rate
    raise ValueError(
        f"is a rate per row from {MIN_ALERT_RATE:g} to {MAX_ALERT_RATE:g}, or one such as "
        f"1/{', 1/'.join(PERIODS)}; not '{value}'"
    )


class Monitor(NamedTuple):
    """The detectors of a stream, one per target, and their rate of false alarms."""

    detectors: tuple[DetectorState, ...]
    rate: float  # false alarms per row, over all targets


def start_monitor(
    task: TargetType,
    rate: float,
    seed: int = 0,
    *,
    has_clock: bool = False,
    history: int = HISTORY_ROWS,
) -> Monitor:
    """Start a monitor that has seen no row; the arguments are those of `init_detector`."""
    detector = init_detector(
        has_value=not task.labels, has_clock=has_clock, history=history, seed=seed % 2**53
    )
    return Monitor((detector,) * len(task.targets), rate)  # detectors are never changed in place


def pack_monitor(monitor: Monitor) -> bytes:
    """Return the state of the detectors as bytes."""
    return b"".join(part.tobytes() for detector in monitor.detectors for part in detector)


def unpack_monitor(content: bytes, like: Monitor) -> Monitor:
    """Restore a monitor shaped as `like` from `pack_monitor`; ValueError if that is impossible."""
    values, detectors = np.frombuffer(content), []
    sizes = [[part.size for part in shape] for shape in like.detectors]
    if len(values) < sum(map(sum, sizes)):  # written without `changes`, the last scalars
        sizes = [[*size[:-1], SCALAR.changes] for size in sizes]
    for shape, size in zip(like.detectors, sizes, strict=True):
        *parts, scalars = np.split(values[: sum(size)], np.cumsum(size)[:-1])
        values = values[sum(size) :]
        whole = [part.reshape(of.shape) for part, of in zip(parts, shape[:-1], strict=True)]
        detectors.append(DetectorState(*(part.copy() for part in whole), widen_scalars(scalars)))
        if not is_valid_detector(detectors[-1], shape):
            raise ValueError("a detector is out of range")
    if len(values):
        raise ValueError("a detector is too long")
    return like._replace(detectors=tuple(detectors))


def set_alert_rate(model: OnlineModel, rate: AlertRate | None = None) -> None:
    """Monitor the rows that a model learns from now on, or change the rate of its monitor.

    Parameters
    ----------
    model
        The model.
    rate
        False alarms; None keeps the rate of a monitor, or sets DEFAULT_ALERT_RATE per row.
    """
    before = model.monitor
    if rate is not None:
        known = rate.per_row(model.schema)
    else:
        known = DEFAULT_ALERT_RATE if before is None else before.rate
    has_clock = model.schema.clock is not None
    model.monitor = (
        start_monitor(model.task, known, model.settings.seed, has_clock=has_clock)
        if before is None
        else before._replace(rate=known)
    )


def monitor_rows(
    monitor: Monitor, task: TargetType, rows: Rows, forecast: Forecast
) -> tuple[Monitor, Anomalies]:
    """Score rows in order, each against what was known before it.

    Parameters
    ----------
    monitor
        State after the rows before; it is not changed.
    task
        Target type of the forecasts.
    rows
        Rows with their targets.
    forecast
        Forecasts made before the rows were learned.

    Returns
    -------
    Monitor
        The state after the rows.
    Anomalies
        Surprise and PIT of each row and target, and the alerts.
    """
    z, pit = score_targets(task, rows.y, rows.number, forecast)
    seconds = None if rows.time is None else np.ascontiguousarray(rows.time[:, 1])
    monitor, surprise, found = update_monitor(monitor, task, rows.y, z, seconds)
    alerts = [
        alert._replace(start=max(1, int(rows.number[alert.at]) - alert.length + 1))
        for alert in found
    ]
    return monitor, Anomalies(surprise, pit, tuple(alerts))


def update_monitor(
    monitor: Monitor,
    task: TargetType,
    y: FloatArray,
    z: FloatArray,
    seconds: FloatArray | None = None,
) -> tuple[Monitor, FloatArray, list[RowAlert]]:
    """Update the detectors with consecutive rows; return surprise (n, T) and the alerts.

    Parameters
    ----------
    monitor
        State after the rows before; it is not changed.
    task
        Target type.
    y, z
        Targets and their normal scores (n, T), see `score_targets`.
    seconds
        Local time (n,), for the season.
    """
    surprise = np.empty_like(z)
    detectors, alerts = [], []
    for j, detector in enumerate(monitor.detectors):
        value = np.ascontiguousarray(y[:, j])
        first = int(detector.scalars[SCALAR.row])
        detector, found = update_detector(
            detector,
            np.full_like(value, np.nan) if task.labels else value,
            z[:, j],
            rate=monitor.rate / len(monitor.detectors),
            seconds=seconds,
            missing=np.isnan(value).astype(np.float64),
        )
        detectors.append(detector)
        surprise[:, j] = found.surprise
        for alert in found.alerts:
            if not alert.is_open:
                continue
            at, score = alert.row - first, alert.score / math.log(10.0)
            alerts.append(
                RowAlert(at, j, alert.kind, 0, alert.length, float(found.surprise[at]), score)
            )
    alerts.sort(key=lambda alert: (alert.at, alert.target))
    return monitor._replace(detectors=tuple(detectors)), surprise, alerts


def judge_rows(
    monitor: Monitor | None, task: TargetType, rows: Rows, forecast: Forecast
) -> Anomalies:
    """Compute surprise and PIT of rows without updating a monitor; there are no alerts.

    Without a monitor, surprise is that of the stated tail probabilities.
    """
    z, pit = score_targets(task, rows.y, rows.number, forecast)
    return Anomalies(judge_scores(monitor, z), pit)


def judge_scores(monitor: Monitor | None, z: FloatArray) -> FloatArray:
    """Return the surprise of normal scores (n, T), see `judge_rows`."""
    surprise = np.empty_like(z)
    for j in range(z.shape[1]):
        detector = init_detector(history=1) if monitor is None else monitor.detectors[j]
        surprise[:, j] = measure_surprise(detector, z[:, j])
    return surprise


def score_targets(
    task: TargetType, y: FloatArray, number: IntArray, forecast: Forecast
) -> tuple[FloatArray, FloatArray]:
    """Return normal scores and PIT (n, T) of targets; NaN without target or forecast.

    The PIT of a number is the predicted probability of less than the value. Of a label it is the
    probability of the labels that are at most as probable. Both are uniform between 0 and 1 if
    forecasts are calibrated: counts and labels are randomised by a hash.

    The scores are those of ordinary values: with the share of outliers, all distant values would be
    about as likely as that share, and a history could not tell them apart.
    """
    z, pit = np.full(y.shape, np.nan), np.full(y.shape, np.nan)
    made = (forecast.status & IN_WARMUP) == 0
    if task.labels:
        p = forecast.probability
        usable = made & np.isfinite(y[:, 0]) & bool(p.shape[1])
        usable[usable] &= np.isfinite(p[usable]).all(axis=1)
        if usable.any():
            label = y[usable, 0].astype(np.int64)
            known = np.pad(p[usable], ((0, 0), (0, max(0, int(label.max()) + 1 - p.shape[1]))))
            scores = np.minimum(score_labels(known, label, number[usable]), MAX_NORMAL_SCORE)
            z[usable, 0] = scores
            pit[usable, 0] = 2.0 * normal.cdf(-scores)
        return z, pit
    for j in range(y.shape[1]):
        stated = forecast.stated[:, j]
        told = read_distribution(stated)
        usable = made & np.isfinite(y[:, j]) & np.isfinite(forecast.mean[:, j])
        usable &= told.has_forecast()
        if usable.any():
            usable &= told.in_support(y[:, j])
        if usable.any():
            values = np.ascontiguousarray(y[usable, j])
            pit[usable, j] = told[usable].score_values(values).below
            ordinary = stated[usable].copy()
            ordinary[..., PARAM.share] = 0.0
            scores = read_distribution(ordinary).score_values(values).score
            z[usable, j] = np.clip(scores, -MAX_NORMAL_SCORE, MAX_NORMAL_SCORE)
    return z, pit
