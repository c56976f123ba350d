"""Recursive multi-step forecasts: later rows use earlier forecasts as their lags.

The mean of each step is that of the network at lags which are means themselves. Uncertainty is
propagated in closed form. With y_h the target h steps ahead, H its derivative with respect to the
weights and J_l with respect to its lags (including the lag that a change is relative to),

    D_h = H_h + sum_l J_l D_(h-l),    A_h = sum_l J_l A_(h-l) + sqrt(EV_h) e_h,

are the total derivative with respect to the weights, which all steps share, and the contributions
of each step's own noise; var y_h = kappa D_h P D_h' + |A_h|^2. This is exact to first order in the
uncertainty. The mean path is limited to the range seen so far plus a quarter of it on either side,
and so is the sd.

The width of a 90 % interval is calibrated by the last one-step errors. In units of their predicted
sd they are e_t, and sum_k A_hk e_(t+k)/|A_h| is the error that the same path would have had from
row t on. The ratio of the 90 % quantile of their absolute values to that of a Gaussian widens or
narrows each step. This accounts for heavy tails, which sums have less of, and for autocorrelated
errors.

`SequentialPredictor` is what `predict` and `evaluate` use for consecutive rows: known targets are
used by the rows after them, and where targets are missing the forecast continues.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kbnn.array_types import FloatArray
from kbnn.core.belief import Belief, open_belief
from kbnn.core.jacobian import compute_slopes, function_var
from kbnn.data.batch import Rows, slice_rows
from kbnn.data.clock import Clock, format_times
from kbnn.data.lags import ERROR_WINDOW_ROWS, MAX_HISTORY_ROWS, History, Lag
from kbnn.data.schema import Schema
from kbnn.data.time_series import LaggedBatch, Timeline
from kbnn.distributions import calibration
from kbnn.distributions.predictive import INTERVAL_HALF_WIDTHS_SD
from kbnn.model import scaler
from kbnn.model.learner import Learner, LearnerState
from kbnn.targets.base import make_empty_forecast, supports_paths
from kbnn.targets.prediction import Forecast, join_forecasts

RANGE_MARGIN_SHARE: Final = 0.25
MIN_ERROR_ROWS: Final = 64
"""Smallest number of errors from which widths are calibrated."""
OWN_WIDTH_LIMITS: Final = (0.9, 1.5)
CARRIED_WIDTH_LIMITS: Final = (0.7, 1.5)
"""Limits of the width factors: of one-step errors, and of errors propagated along the path."""
GROWING_STEPS: Final = 256
"""Steps without a known target over which the error bars of `SequentialPredictor` grow; after that
they stay constant and only the mean changes."""


class ForecastContext(NamedTuple):
    """What forecasts need from a model; the model does not change."""

    schema: Schema
    timeline: Timeline
    learner: Learner
    learned: LearnerState


class MultiStepForecast(NamedTuple):
    """Forecasts from n origins over S steps."""

    mean: FloatArray  # (n, S)
    function_var: FloatArray  # (n, S) epistemic
    noise_var: FloatArray  # (n, S) aleatoric

    @property
    def sd(self) -> FloatArray:
        """Standard deviations of the forecasts (n, S)."""
        return np.sqrt(self.function_var + self.noise_var)

    def to_forecast(self) -> Forecast:
        """Return the steps of the first origin as forecasts of rows."""
        mean, function_var, noise_var = (part[0][:, None] for part in self)
        forecast, sd = make_empty_forecast(len(mean), 1), np.sqrt(function_var + noise_var)
        return forecast._replace(
            mean=mean,
            sd=sd,
            function_sd=np.sqrt(function_var),
            noise_sd=np.sqrt(noise_var),
            stated=calibration.apply_calibration(
                calibration.init_calibration(1, mixed=False),
                mean,
                np.sqrt(function_var + noise_var),
            ),
        )


def compute_width_factor(errors: FloatArray, shares: FloatArray) -> float:
    """Return the factor of a step's sd that makes 90 % intervals fit the last errors.

    `shares` are the contributions of noise A_h. There are only about n/h independent stretches of h
    among n errors; the power n/(n + h) shrinks the factor accordingly.
    """
    n, h, norm = len(errors), len(shares), float(np.linalg.norm(shares))
    alone = float(np.quantile(np.abs(errors), 0.9)) if n >= MIN_ERROR_ROWS else 0.0
    if alone == 0.0 or norm == 0.0:
        return 1.0
    carried = np.abs(np.convolve(errors, shares[::-1] / norm, "valid"))
    more = (float(np.quantile(carried, 0.9)) / alone) ** (n / (n + h))
    return float(
        np.clip(alone / INTERVAL_HALF_WIDTHS_SD[90], *OWN_WIDTH_LIMITS)
        * np.clip(more, *CARRIED_WIDTH_LIMITS)
    )


def count_lag_steps(lag: Lag, step: float) -> int:
    """Return how many steps a lag looks back."""
    return lag.rows or (round(lag.seconds / step) if step else 0)


class _MemberPath:
    """The path of one network from n histories over up to `most` steps."""

    def __init__(
        self, network: ForecastContext, belief: Belief, histories: Sequence[History], most: int
    ) -> None:
        schema, columns = network.schema, network.learned.columns
        step = 0.0 if schema.clock is None else schema.clock.step
        self._network, self._belief = network, belief
        self._lags = [
            (
                place,
                count_lag_steps(lag, step),
                _replace_zero_scale(columns[1 + place, scaler.SCALE]),
            )
            for place, lag in zip(network.timeline.places, schema.lags, strict=True)
            if lag.column == schema.targets[0]
        ]
        self._histories = [history.copy() for history in histories]
        self._low, self._high = _compute_path_range(self._histories)
        self._d: list[FloatArray] = []
        self._a = np.zeros((most, len(histories), most))
        self._width = [1.0] * len(histories)

    def forecast_step(self, rows: Rows) -> MultiStepForecast:
        """Forecast the next row of each history (n rows, targets are ignored): parts are (n,)."""
        network, h, a = self._network, len(self._d), self._a
        schema, timeline, columns = network.schema, network.timeline, network.learned.columns
        center, scale = columns[0, scaler.CENTER], columns[0, scaler.SCALE]
        width, n = len(columns) - 1, len(self._histories)
        rows = rows._replace(y=np.full((n, 1), np.nan))
        placed = [
            timeline.look_up_lags(past, slice_rows(rows, k, k + 1))
            for k, past in enumerate(self._histories)
        ]
        x = np.concatenate([one.rows.x for one in placed])[:, :width]
        z = scaler.standardize_rows(columns[1:], x, network.learner.unscaled_inputs[:width])
        found = compute_slopes(self._belief, z)
        mean = center + scale * found.mean
        now = scale * found.weights
        a[h, :, h] = scale * np.sqrt(found.new_var)
        feeds = [(at, scale * found.inputs[:, place] / unit) for place, at, unit in self._lags]
        if schema.changes:
            mean = mean + np.concatenate([one.base for one in placed if one.base is not None])[:, 0]
            feeds.append((1, np.ones(n)))
        for at, slope in feeds:
            if 1 <= at <= h:
                now = now + slope[:, None] * self._d[h - at]
                a[h] += slope[:, None] * a[h - at]
        function, noise = function_var(self._belief, now), np.sum(a[h] ** 2, axis=1)
        share = _compute_sd_shrinkage(function + noise, self._high - self._low)
        self._d.append(now * share[:, None])
        a[h] *= share[:, None]
        mean = np.clip(mean, self._low, self._high)
        if 2 * (h + 1) <= ERROR_WINDOW_ROWS:  # there are too few longer stretches
            self._width = [
                compute_width_factor(past.missed[:, 0], a[h, k, : h + 1])
                for k, past in enumerate(self._histories)
            ]
        widened = (share * np.array(self._width)) ** 2
        for k, past in enumerate(self._histories):
            timeline.append_rows(past, slice_rows(rows, k, k + 1)._replace(y=mean[k : k + 1, None]))
        return MultiStepForecast(mean, function * widened, noise * widened)


class ForecastPath:
    """Step-by-step forecasts from n histories, by all networks of an ensemble."""

    def __init__(self, network: ForecastContext, histories: Sequence[History], most: int) -> None:
        learned = network.learned
        self._weights = learned.pool.weight
        self._width = learned.tails[0, calibration.MEAN_SCALE_FACTOR]
        self._members = [
            _MemberPath(network, open_belief(member.state()), histories, most)
            for member in learned.members
        ]

    def forecast_step(self, rows: Rows) -> MultiStepForecast:
        """Forecast the next row of each history: parts are (n,)."""
        parts = [member.forecast_step(rows) for member in self._members]
        pairs = list(zip(self._weights, parts, strict=True))
        mean = np.asarray(sum(w * part.mean for w, part in pairs))
        between = sum(w * (p.mean - mean) ** 2 for w, p in pairs)
        function = sum(w * p.function_var for w, p in pairs)
        noise = sum(w * p.noise_var for w, p in pairs)
        return MultiStepForecast(
            mean, np.asarray(function + between) * self._width, np.asarray(noise) * self._width
        )


class SequenceNotices:
    """Report unusual properties of consecutive rows, each kind once."""

    def __init__(self, notice: Callable[[str], None] = lambda text: None) -> None:
        self._notice = notice
        self._reported: set[str] = set()

    def report(self, kind: str, text: str) -> None:
        """Report a notice unless its kind was reported before."""
        if kind not in self._reported:
            self._reported.add(kind)
            self._notice(text)

    def report_gap(self, row: int) -> None:
        """Report the first row whose lags contain a forecast."""
        self.report(
            "gap",
            f"row {row:,}: the target of the row before is missing. From here on forecasts "
            "replace missing targets, and error bars grow.",
        )


def align_history(
    schema: Schema, timeline: Timeline, history: History, rows: Rows, notices: SequenceNotices
) -> History:
    """Return the history of rows: the model's, unless their first time is before the model's end.

    Without a clock, rows follow those learned. A gap in time is reported and otherwise ignored, as
    in training: lags of rows look back across it, lags of durations find no value in it.
    """
    clock = schema.clock
    known = history.time[np.isfinite(history.time[:, 0])]
    if clock is None or rows.time is None or not len(known) or not len(rows.time):
        return history
    end, first = known[np.argmax(known[:, 0])], rows.time[0]
    if not np.isfinite(first[0]):
        return history
    end_text, first_text = format_times(clock, np.stack((end, first)))
    if first[0] < end[0]:
        notices.report(
            "overlap",
            f"the first row ({first_text}) is before the model's end ({end_text}). Its lags start "
            "empty and look back to rows of this input only.",
        )
        return timeline.make_history_like(history)
    missing = count_missing_steps(clock, end, first)
    if missing:
        notices.report(
            "break",
            f"{missing:,} step{'s are' if missing > 1 else ' is'} missing between the model's end "
            f"({end_text}) and the first row ({first_text}). Lags counted in rows look back across "
            "the gap.",
        )
    return history


def count_missing_steps(clock: Clock, end: FloatArray, first: FloatArray) -> int:
    """Count the clock's steps between two times (2,); 0 without a steady step."""
    if not clock.step or first[0] - end[0] < 1.5 * clock.step:
        return 0
    steps = min(int((first[0] - end[0]) / (0.9 * clock.step)) + 1, MAX_HISTORY_ROWS)
    return int(np.sum(clock.extend_times(end, steps)[:, 0] < first[0] - 0.5 * clock.step))


class SequentialPredictor:
    """Predict consecutive rows; the model does not change.

    A row looks back to the known targets of the rows before it, as in training. While targets are
    missing, forecasts replace them: the mean continues recursively and the error bars grow. Later
    rows treat a forecast among their lags as an uncertain input.

    Parameters
    ----------
    network
        What the model has learned.
    history
        The rows before the first one.
    notices
        Reports missing targets, and times that do not follow the model's end.
    """

    def __init__(
        self, network: ForecastContext, history: History, notices: SequenceNotices
    ) -> None:
        self._network = network
        self._set_history(history)
        self._notices = notices
        self._began = False
        self._gap = 0  # rows since the last known target
        self._path: ForecastPath | None = None
        self._last: MultiStepForecast | None = None
        targets = network.schema.targets
        self._places = [
            (network.timeline.columns.index(name), at)
            for at, name in enumerate(targets)
            if name in network.timeline.columns
        ]

    def _set_history(self, history: History) -> None:
        self._history = history.copy()
        self._uncertain = history.copy()  # holds the sd of each value; 0 where it was measured
        self._uncertain.values = np.zeros_like(history.values)

    def __call__(self, rows: Rows) -> Forecast:
        """Predict a batch of rows."""
        if not self._began and len(rows.y):
            schema, timeline = self._network.schema, self._network.timeline
            self._set_history(align_history(schema, timeline, self._history, rows, self._notices))
            self._began = True
        looked_at = [at for _, at in self._places]
        measured: NDArray[np.bool_] = np.all(np.isfinite(rows.y[:, looked_at]), axis=1)
        parts, start = [], 0
        while start < len(rows.y):
            stop = start + 1
            if not self._gap:
                missing = np.flatnonzero(~measured[start:])
                stop = start + int(missing[0]) + 1 if len(missing) else len(rows.y)
            part = rows if stop - start == len(rows.y) else slice_rows(rows, start, stop)
            parts.append(self._predict_part(part, bool(measured[stop - 1])))
            start = stop
        return (
            join_forecasts(parts)
            if parts
            else make_empty_forecast(0, self._network.learner.task.numbers)
        )

    def _predict_part(self, rows: Rows, measured: bool) -> Forecast:
        """Predict rows of which only the last may lack its target, or one row of a gap."""
        network = self._network
        last = slice_rows(rows, len(rows.y) - 1, len(rows.y))
        if self._gap:
            self._notices.report_gap(int(rows.number[0]))
        before = None
        if not self._gap and not measured and supports_paths(network.learner.task):
            before = self._history.copy()
            network.timeline.append_rows(before, slice_rows(rows, 0, len(rows.y) - 1))
        forecast = self._predict_lagged(rows)
        if before is not None:
            self._path = ForecastPath(network, [before], GROWING_STEPS)
            self._last = self._path.forecast_step(last)
        elif self._gap and self._path is not None:
            if self._gap < GROWING_STEPS:
                self._last = self._path.forecast_step(last)
            elif self._last is not None:
                low, high = _compute_path_range([self._history])
                self._last = self._last._replace(mean=np.clip(forecast.mean[:, 0], low, high))
        if self._gap and self._path is not None and self._last is not None:
            forecast = MultiStepForecast(*(part[None] for part in self._last)).to_forecast()
        self._gap = 0 if measured else self._gap + 1
        if measured:
            self._path = self._last = None
        else:
            self._fill_in(rows, forecast)
        return forecast

    def _predict_lagged(self, rows: Rows) -> Forecast:
        """Predict rows from the history, and append them to it."""
        network = self._network
        placed = network.timeline.look_up_lags(self._history, rows)
        x_sd = placed.rows.x_sd
        if np.any(self._uncertain.values):
            x_sd = np.zeros_like(rows.x) if x_sd is None else x_sd.copy()
            exact = rows._replace(x=np.zeros_like(rows.x), y=np.zeros_like(rows.y))
            found = network.timeline.look_up_lags(self._uncertain, exact).rows.x
            x_sd[:, network.timeline.places] = np.nan_to_num(found[:, network.timeline.places])
        network.timeline.append_rows(self._history, rows)
        network.timeline.append_rows(
            self._uncertain, rows._replace(x=np.zeros_like(rows.x), y=np.zeros_like(rows.y))
        )
        forecast = network.learner.predict(network.learned, placed.rows.x, x_sd)
        if placed.base is None or np.isfinite(placed.base).all():
            return placed.restore_level(forecast)
        return self._level_without_past(forecast, placed)

    def _level_without_past(self, forecast: Forecast, placed: LaggedBatch) -> Forecast:
        """Spread changes without a known last value uniformly over the range seen so far.

        The base is the middle of the range, and (high - low)/sqrt(12) is added to the sd.
        """
        low, high = self._history.low, self._history.high
        base = placed.base
        assert base is not None
        unknown = np.isnan(base) & np.isfinite(high - low)
        forecast = placed._replace(base=np.where(unknown, 0.5 * (low + high), base)).restore_level(
            forecast
        )
        function_sd = np.where(unknown, np.hypot(forecast.function_sd, (high - low) / 12**0.5), 0.0)
        sd = np.hypot(function_sd, forecast.noise_sd)
        wide = calibration.apply_calibration(
            calibration.init_calibration(len(low), mixed=False), forecast.mean, sd
        )
        return forecast._replace(
            sd=np.where(unknown, sd, forecast.sd),
            function_sd=np.where(unknown, function_sd, forecast.function_sd),
            stated=np.where(unknown[..., None], wide, forecast.stated),
        )

    def _fill_in(self, rows: Rows, forecast: Forecast) -> None:
        """Replace a missing target in the history by its forecast."""
        for column, at in self._places:
            if not np.isfinite(rows.y[-1, at]):
                self._history.values[-1, column] = forecast.mean[-1, at]
                self._history.last[at] = forecast.mean[-1, at]
                self._uncertain.values[-1, column] = forecast.sd[-1, at]


def _compute_sd_shrinkage(var: FloatArray, most: FloatArray) -> FloatArray:
    """Return factors that limit the sd of a path to the range seen so far."""
    beyond = (var > most**2) & (most > 0.0)
    return np.where(beyond, most / np.sqrt(np.where(beyond, var, 1.0)), 1.0)


def _replace_zero_scale(scale: float) -> float:
    """Replace a scale of 0 by infinity, so that the input has no effect."""
    return float(scale) if scale > 0.0 else np.inf


def _compute_path_range(histories: Sequence[History]) -> tuple[FloatArray, FloatArray]:
    """Return the lower and upper limit of the mean path from each origin."""
    low = np.array([history.low[0] for history in histories])
    high = np.array([history.high[0] for history in histories])
    reach = RANGE_MARGIN_SHARE * (high - low)
    return low - reach, high + reach
