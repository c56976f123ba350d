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
change the history keeps a share CHANGE_SHARE of its values and starts again: when the share of
values beyond the 90 % (and 10 %) quantile, averaged over CHANGE_ROWS, differs from that of the
history by CHANGE_SD standard errors (`_has_changed`). Memory is constant, and results do not depend
on how rows are grouped into batches.

The readable version is kbnn.model.anomaly_reference, the compiled one csrc/anomaly.c.

A `Monitor` holds one detector per target and per watched input, whose forecast is its conditional
distribution given the other numeric inputs (kbnn.core.input_moments). Rows are scored under the
distributions predicted before they were learned, in the order in which they are learned; later
passes do not count. A model has a monitor only after `set_alert_rate`. In a fleet each key has a
monitor of its own (kbnn.fleet.key_index), with FLEET_HISTORY_ROWS values per statistic and without
times of day.
"""

from __future__ import annotations

import math
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from kbnn.array_types import MAX_ABS_VALUE, FloatArray
from kbnn.core import kernel, normal
from kbnn.core.input_moments import (
    MOMENT_ROWS,
    InputLevels,
    WatchedInputs,
    follow_inputs,
    follow_levels,
    init_watched_inputs,
    widen_levels,
)
from kbnn.data.batch import Anomalies, RowAlert, Rows
from kbnn.data.schema import Schema
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
from kbnn.model.settings import (
    DEFAULT_ALERT_RATE,
    AlertRate,
    WatchedColumns,
    choose_watched,
    find_numeric_inputs,
)
from kbnn.targets.base import TargetType
from kbnn.targets.prediction import MAX_NORMAL_SCORE, Forecast, score_targets

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


_CONSTANTS: Final = anomaly_reference.list_constants()


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
        of classes, see `kbnn.targets.prediction.score_labels`. NaN without a forecast.
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
    if missing is None:
        missing = np.isnan(value if state.scalars[SCALAR.has_value] else z).astype(float)
    first = int(state.scalars[SCALAR.row])
    state, out = _run_detector(state, _stack_inputs(value, z, seconds, missing), rate)
    alerts = [
        Alert(
            first + i,
            bool(out[i, EVENT] == OPENED),
            _name_kind(state, out[i, KIND]),
            int(out[i, START]),
            int(out[i, LENGTH]),
            float(out[i, SCORE]),
        )
        for i in np.flatnonzero((out[:, EVENT] == OPENED) | (out[:, EVENT] == CLOSED)).tolist()
    ]
    return state, DetectorScores(out[:, SURPRISE], out[:, SCORE], alerts)


def _stack_inputs(
    value: FloatArray, z: FloatArray, seconds: FloatArray | None, missing: FloatArray
) -> FloatArray:
    """Return the rows of a detector (n, 5): value, -log tail, residual, seconds, missing."""
    rows = np.empty((len(value), 5))
    rows[:, 0] = np.where(np.isfinite(value), value, np.nan)
    rows[:, 1] = _tail_nats(z)
    rows[:, 2] = np.nan_to_num(z)
    rows[:, 3] = np.nan if seconds is None else seconds
    rows[:, 4] = missing
    return rows


def _run_detector(
    state: DetectorState, rows: FloatArray, rate: float
) -> tuple[DetectorState, FloatArray]:
    """Run the compiled or the readable detector on rows (n, 5); `state` is not changed."""
    after = DetectorState._make([part.copy() for part in state])
    if kernel.is_compiled():
        out = kernel.detect_anomalies(after, rows, math.log(1.0 / rate), _CONSTANTS)
    else:
        out = anomaly_reference.detect_anomalies(after, rows, math.log(1.0 / rate))
    return after, out


def _name_kind(state: DetectorState, code: float) -> str:
    """Return the name of a kind; labels have no level that could shift or drift."""
    kind = KINDS[int(code)]
    has_level = bool(state.scalars[SCALAR.has_value])
    return kind if has_level or kind not in ("level shift", "drift") else "sustained deviation"


def measure_surprise(state: DetectorState, z: FloatArray) -> FloatArray:
    """Return -log10 of calibrated tail probabilities (n,) without updating the detector.

    For `predict` on rows whose target is known: the history is that of the rows learned so far.
    """
    c = _tail_nats(z)
    if anomaly_reference.is_calibrated(state, anomaly_reference.STATED):
        c = np.array([anomaly_reference.calibrated_tail(state, 0, x) for x in c.tolist()])
    return np.where(np.isnan(z), np.nan, np.maximum(c, 0.0) / math.log(10.0))


def _tail_nats(z: FloatArray) -> FloatArray:
    """Return -log of the two-sided tail probability, -log(2 Phi(-|z|))."""
    return np.maximum(-math.log(2.0) - normal.log_cdf(-np.abs(z)), 0.0)


def count_bytes(state: DetectorState) -> int:
    """Return the memory of a state in bytes."""
    return sum(part.nbytes for part in state)


MAX_LEVEL_INPUTS: Final = 256
"""Numeric inputs whose level is followed; of wider rows the first ones."""
MAX_DESCRIBED_INPUTS: Final = 3
MIN_DESCRIBED_SD: Final = 2.0
"""Largest number of inputs that an alert names, and their least deviation from their level."""
FLEET_HISTORY_ROWS: Final = 256
"""Values held per statistic by the detector of a key: 15 KB per key and target."""


class InputWatch(NamedTuple):
    """The inputs that are monitored, their joint distribution and a detector for each."""

    chosen: WatchedColumns
    moments: WatchedInputs
    detectors: tuple[DetectorState, ...]


class Monitor(NamedTuple):
    """The detectors of a stream, one per target and watched input, and their rate."""

    detectors: tuple[DetectorState, ...]  # of the targets
    rate: float  # false alarms per row, over all that is watched
    inputs: InputWatch | None = None
    levels: InputLevels | None = None  # of the first numeric inputs; None in a fleet

    @property
    def detector_rate(self) -> float:
        """False alarms per row of each detector that raises alerts."""
        if self.inputs is None:
            return self.rate / len(self.detectors)
        columns, _, has_targets = self.inputs.chosen
        return self.rate / (has_targets * len(self.detectors) + len(columns))


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


def start_input_watch(
    chosen: WatchedColumns, seed: int = 0, *, has_clock: bool = False
) -> InputWatch:
    """Start to watch inputs, before any row."""
    detector = init_detector(has_clock=has_clock, seed=seed % 2**53)
    moments = init_watched_inputs(len(chosen.columns) + len(chosen.others))
    return InputWatch(chosen, moments, (detector,) * len(chosen.columns))


def is_valid_watch(watch: InputWatch, like: InputWatch) -> bool:
    """Return whether arrays read from a file can be those of watched inputs, shaped as `like`."""
    moments = watch.moments
    if any(a.shape != b.shape for a, b in zip(moments, like.moments, strict=True)):
        return False
    filled, rows = moments.counts.tolist()
    sd = np.sqrt(np.maximum(np.diag(moments.cov), 0.0))
    unit = np.where(sd > 0.0, sd, 1.0)
    fits = bool(np.all(np.abs(moments.mean) <= MAX_ABS_VALUE) and np.all(np.isfinite(moments.cov)))
    fits = fits and float(np.linalg.eigvalsh(moments.cov / np.outer(unit, unit))[0]) > -1e-6
    fits = fits and not bool(np.any(np.abs(moments.block) > MAX_ABS_VALUE))
    fits = fits and filled in range(MOMENT_ROWS) and 0.0 <= rows < 2.0**53
    return fits and rows % MOMENT_ROWS == 0.0 and len(watch.detectors) == len(like.detectors)


def is_valid_levels(levels: InputLevels) -> bool:
    """Return whether arrays read from a file can be the levels of inputs."""
    d = len(levels.mean)
    shapes = ((d,), (d,), (d,), (3, d), (1,))
    return (
        d <= MAX_LEVEL_INPUTS
        and all(part.shape == shape for part, shape in zip(levels, shapes, strict=True))
        and all(bool(np.all(np.isfinite(part))) for part in levels)
        and bool(np.all(levels.var >= 0.0) and np.all(levels.number >= 0.0))
        and bool(np.all((levels.sums[[0, 2]] >= 0.0) & (levels.sums[[0]] <= levels.filled)))
        and levels.filled[0] in range(MOMENT_ROWS)
    )


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
        made = [*(part.copy() for part in whole), widen_scalars(scalars)]
        detectors.append(DetectorState._make(made))
        if not is_valid_detector(detectors[-1], shape):
            raise ValueError("a detector is out of range")
    if len(values):
        raise ValueError("a detector is too long")
    return like._replace(detectors=tuple(detectors))


def set_alert_rate(
    model: OnlineModel, rate: AlertRate | None = None, watch: tuple[str, ...] = ()
) -> None:
    """Monitor the rows that a model learns from now on, or change its monitor.

    Parameters
    ----------
    model
        The model.
    rate
        False alarms; None keeps the rate of a monitor, or sets DEFAULT_ALERT_RATE per row.
    watch
        See `choose_watched`; if empty, what the monitor watches, or the targets.
    """
    monitor, schema, seed = model.monitor, model.schema, model.settings.seed
    has_clock = schema.clock is not None
    chosen = choose_watched(schema, watch) if watch else None
    if monitor is None:
        monitor = start_monitor(model.task, DEFAULT_ALERT_RATE, seed, has_clock=has_clock)
    if monitor.levels is None:
        monitor = monitor._replace(levels=widen_levels(None, 0))
    if rate is not None:
        monitor = monitor._replace(rate=rate.per_row(schema))
    if chosen is not None:
        before = monitor.inputs
        if before is not None and before.chosen[:2] == chosen[:2]:
            monitor = monitor._replace(inputs=before._replace(chosen=chosen))
        else:
            new = start_input_watch(chosen, seed, has_clock=has_clock)
            monitor = monitor._replace(inputs=new if chosen.columns else None)
    model.monitor = monitor


def monitor_rows(
    monitor: Monitor, task: TargetType, schema: Schema, rows: Rows, forecast: Forecast
) -> tuple[Monitor, Anomalies]:
    """Score rows in order, each against what was known before it.

    Parameters
    ----------
    monitor
        State after the rows before; it is not changed.
    task
        Target type of the forecasts.
    schema
        Columns of the rows.
    rows
        Rows with their targets, as read.
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
    monitor, surprise, found = update_monitor(monitor, stack_targets(task, rows.y, z, seconds))
    if monitor.inputs is not None:
        inputs, of_inputs = _monitor_inputs(monitor, monitor.inputs, schema, rows, seconds)
        found = of_inputs if not inputs.chosen.has_targets else found + of_inputs
        found.sort(key=lambda alert: (alert.at, alert.target))
        monitor = monitor._replace(inputs=inputs)
    off, names = np.zeros((len(rows.x), 0)), []
    if monitor.levels is not None:
        places = dict(islice(find_numeric_inputs(schema).items(), MAX_LEVEL_INPUTS))
        names = list(places)
        levels = widen_levels(monitor.levels, len(names))
        levels, off = follow_levels(levels, rows.x[:, list(places.values())])
        monitor = monitor._replace(levels=levels)
    alerts = [
        alert._replace(
            start=max(1, int(rows.number[alert.at]) - alert.length + 1),
            inputs=_describe_deviations(names, off[alert.at]),
        )
        for alert in found
    ]
    return monitor, Anomalies(surprise, pit, tuple(alerts))


def _describe_deviations(names: list[str], off: FloatArray) -> str:
    """Describe the inputs farthest from their level: `flow +4.1 sd, speed -2.6 sd`."""
    order = np.argsort(-np.abs(off), kind="stable")[:MAX_DESCRIBED_INPUTS]
    shown = [at for at in order.tolist() if abs(off[at]) >= MIN_DESCRIBED_SD]
    return ", ".join(f"{names[at]} {off[at]:+.3g} sd" for at in shown)


def _monitor_inputs(
    monitor: Monitor, watch: InputWatch, schema: Schema, rows: Rows, seconds: FloatArray | None
) -> tuple[InputWatch, list[RowAlert]]:
    """Predict each watched input from the others, and update its detector."""
    places = {place.column: j for j, place in enumerate(schema.layout) if place.category is None}
    names = watch.chosen.columns + watch.chosen.others
    x = np.full((len(rows.x), len(names)), np.nan)
    for j, name in enumerate(names):
        if name in places:
            x[:, j] = rows.x[:, places[name]]
    moments, mean, sd = follow_inputs(watch.moments, x)
    z = np.clip((x - mean) / sd, -MAX_NORMAL_SCORE, MAX_NORMAL_SCORE)
    detectors, alerts = [], []
    for j, detector in enumerate(watch.detectors):
        given = _stack_inputs(x[:, j], z[:, j], seconds, np.isnan(x[:, j]))
        target = len(monitor.detectors) + j
        detector, _, found = _raise_alerts(detector, given, monitor.detector_rate, target)
        detectors.append(detector)
        for alert in found:
            at = alert.at
            told = (float(x[at, j]), float(mean[at, j]), float(sd[at, j]))
            alerts.append(RowAlert(*alert[:7], names[j], *told))
    return watch._replace(moments=moments, detectors=tuple(detectors)), alerts


def _raise_alerts(
    detector: DetectorState, rows: FloatArray, rate: float, target: int
) -> tuple[DetectorState, FloatArray, list[RowAlert]]:
    """Update a detector with consecutive rows (n, 5); return surprise (n,) and the alerts."""
    detector, out = _run_detector(detector, rows, rate)
    alerts = []
    for at in np.flatnonzero(out[:, EVENT] == OPENED).tolist():
        told = (float(out[at, SURPRISE]), float(out[at, SCORE]) / math.log(10.0))
        kind, length = _name_kind(detector, out[at, KIND]), int(out[at, LENGTH])
        alerts.append(RowAlert(at, target, kind, 0, length, *told))
    return detector, out[:, SURPRISE], alerts


def stack_targets(
    task: TargetType, y: FloatArray, z: FloatArray, seconds: FloatArray | None = None
) -> FloatArray:
    """Return the rows of the detectors (n, T, 5).

    Parameters
    ----------
    task
        Target type.
    y, z
        Targets and their normal scores (n, T), see `score_targets`.
    seconds
        Local time (n,), for the season.
    """
    value = np.full_like(y, np.nan) if task.labels else y
    parts = [
        _stack_inputs(value[:, j], z[:, j], seconds, np.isnan(y[:, j])) for j in range(y.shape[1])
    ]
    return np.stack(parts, axis=1)


def update_monitor(
    monitor: Monitor, rows: FloatArray
) -> tuple[Monitor, FloatArray, list[RowAlert]]:
    """Update the detectors with consecutive rows (n, T, 5), see `stack_targets`.

    Returns the monitor, which was not changed in place, surprise (n, T) and the alerts.
    """
    surprise = np.empty(rows.shape[:2])
    detectors, alerts = [], []
    for j, detector in enumerate(monitor.detectors):
        own = np.ascontiguousarray(rows[:, j])
        detector, surprise[:, j], found = _raise_alerts(detector, own, monitor.detector_rate, j)
        detectors.append(detector)
        alerts += found
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
