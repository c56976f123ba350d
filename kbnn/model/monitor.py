"""Monitor the targets of a stream: surprise of each row, and alerts (kbnn.model.anomaly).

A monitor holds one detector per target. Rows are scored under the distributions predicted before
they were learned, in the order in which they are learned; later passes do not count. A model has a
monitor only after `set_alert_rate`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from kbnn.array_types import FloatArray, IntArray
from kbnn.core import normal
from kbnn.data.batch import Anomalies, RowAlert, Rows
from kbnn.data.clock import DAY_SECONDS, MONTH_SECONDS, YEAR_SECONDS
from kbnn.data.schema import Schema
from kbnn.distributions.dispatch import read_distribution
from kbnn.distributions.predictive import PARAM
from kbnn.errors import UsageError
from kbnn.model.anomaly import (
    init_detector,
    measure_surprise,
    score_labels,
    update_detector,
)
from kbnn.model.anomaly_reference import SCALAR, DetectorState
from kbnn.targets.base import TargetType
from kbnn.targets.prediction import IN_WARMUP, Forecast

if TYPE_CHECKING:
    from kbnn.model.model import OnlineModel

DEFAULT_ALERT_RATE: Final = 1e-3
"""False alarms per row."""
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


def start_monitor(schema: Schema, task: TargetType, rate: float, seed: int = 0) -> Monitor:
    """Start a monitor that has seen no row."""
    detectors = [
        init_detector(
            has_value=not task.labels, has_clock=schema.clock is not None, seed=seed % 2**53
        )
        for _ in task.targets
    ]
    return Monitor(tuple(detectors), rate)


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
    model.monitor = (
        start_monitor(model.schema, model.task, known, model.settings.seed)
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
    surprise = np.empty_like(z)
    seconds = None if rows.time is None else np.ascontiguousarray(rows.time[:, 1])
    detectors, alerts = [], []
    for j, detector in enumerate(monitor.detectors):
        y = np.ascontiguousarray(rows.y[:, j])
        first = int(detector.scalars[SCALAR.row])
        detector, found = update_detector(
            detector,
            np.full_like(y, np.nan) if task.labels else y,
            z[:, j],
            rate=monitor.rate / len(monitor.detectors),
            seconds=seconds,
            missing=np.isnan(y).astype(np.float64),
        )
        detectors.append(detector)
        surprise[:, j] = found.surprise
        for alert in found.alerts:
            if not alert.is_open:
                continue
            at = alert.row - first
            start = max(1, int(rows.number[at]) - (alert.row - alert.start))
            alerts.append(
                RowAlert(
                    at,
                    j,
                    alert.kind,
                    start,
                    alert.length,
                    float(found.surprise[at]),
                    alert.score / math.log(10.0),
                )
            )
    alerts.sort(key=lambda alert: (alert.at, alert.target))
    return monitor._replace(detectors=tuple(detectors)), Anomalies(surprise, pit, tuple(alerts))


def judge_rows(
    monitor: Monitor | None, task: TargetType, rows: Rows, forecast: Forecast
) -> Anomalies:
    """Compute surprise and PIT of rows without updating a monitor; there are no alerts.

    Without a monitor, surprise is that of the stated tail probabilities.
    """
    z, pit = score_targets(task, rows.y, rows.number, forecast)
    surprise = np.empty_like(z)
    for j in range(z.shape[1]):
        detector = init_detector(history=1) if monitor is None else monitor.detectors[j]
        surprise[:, j] = measure_surprise(detector, z[:, j])
    return Anomalies(surprise, pit)


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
