"""Forecasts of several steps: later rows use earlier forecasts as their lags.

The network's path is recursive: the mean of each step is that of the network at lags which are
means themselves, limited to the range seen so far plus a quarter of it on either side. Every step
is combined with naive forecasts by past errors (kbnn.model.forecast_combination). The first step
keeps the shape of the network's predictive distribution; error bars of later steps follow from the
errors of past forecasts.

`SequentialPredictor` is what `predict` and `evaluate` use for consecutive rows: known targets are
used by the rows after them, and where targets are missing the forecast continues.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kbnn.array_types import BoolArray, FloatArray
from kbnn.core import series_models
from kbnn.core.series_models import MODELS, forecast_series
from kbnn.data.batch import Rows, concat_rows, slice_rows
from kbnn.data.clock import Clock, format_times
from kbnn.data.lags import MAX_HISTORY_ROWS, History
from kbnn.data.schema import Schema
from kbnn.data.time_series import LaggedBatch, Timeline
from kbnn.distributions import calibration
from kbnn.distributions.predictive import PARAM
from kbnn.model import ensemble, scaler
from kbnn.model.forecast_candidates import COMBINED_STEPS, TREND, CandidatePaths, build_candidates
from kbnn.model.forecast_combination import (
    MAX_GROWING_STEPS,
    CalibrationOptions,
    CombinedForecast,
    OneStepForecast,
    StepErrors,
)
from kbnn.model.learner import Learner, LearnerState, encode_for_members
from kbnn.targets.base import TargetType, make_empty_forecast, supports_paths
from kbnn.targets.prediction import (
    Forecast,
    blank_rows,
    join_forecasts,
    select_rows,
    shift_forecast,
)

RANGE_MARGIN_SHARE: Final = 0.25


class ForecastContext(NamedTuple):
    """What forecasts need from a model; the model does not change."""

    schema: Schema
    timeline: Timeline
    learner: Learner
    learned: LearnerState
    errors: StepErrors

    @property
    def season(self) -> int:
        """Rows per season, 0 without one."""
        return 0 if self.schema.clock is None else self.schema.clock.season_steps

    @property
    def combines_forecasts(self) -> bool:
        """Whether forecasts are combined with naive ones."""
        return can_combine(self.schema, self.learner.task)

    def combine_one_step(
        self, forecast: Forecast, naive: FloatArray
    ) -> tuple[Forecast, FloatArray]:
        """Combine the network's forecasts of one step with simple ones (n, 5).

        Returns the combined forecasts and the network's share (n,) in their means.
        """
        scale, mean_scale = self.learned.calibration[
            0, [calibration.SCALE_FACTOR, calibration.MEAN_SCALE_FACTOR]
        ]
        made = self.errors.combine_one_step(
            forecast.mean[:, 0], forecast.sd[:, 0], naive, float(np.sqrt(scale / mean_scale))
        )
        return apply_one_step(forecast, made), made.network_weight

    def learn_one_step(
        self, mean: FloatArray, sd: FloatArray, naive: FloatArray, y: FloatArray
    ) -> tuple[StepErrors, OneStepForecast]:
        """Combine the network's forecasts of consecutive rows, and record their errors."""
        learner = self.learner
        options = CalibrationOptions(
            learner.settings.robust, learner.uses_interval_calibration, learner.uses_kernel
        )
        return self.errors.learn_one_step(mean, sd, naive, y, options)


def apply_one_step(forecast: Forecast, made: OneStepForecast) -> Forecast:
    """Return forecasts with their combined distributions, where there are any."""
    known = np.isfinite(made.mean)[:, None]
    stated = np.where(known[:, :, None], made.stated[:, None], forecast.stated)
    sd = np.where(known, stated[..., PARAM.spread], forecast.sd)
    wider = np.divide(sd, forecast.sd, out=np.ones_like(sd), where=known & (forecast.sd > 0.0))
    return forecast._replace(
        mean=np.where(known, made.mean[:, None], forecast.mean),
        sd=sd,
        function_sd=forecast.function_sd * wider,
        noise_sd=forecast.noise_sd * wider,
        stated=stated,
    )


def attach_naive(forecast: Forecast, naive: FloatArray) -> Forecast:
    """Return forecasts with the naive ones (n, targets, 3) that they are compared with."""
    return forecast._replace(naive=naive[..., :2].reshape(len(naive), -1))


def can_combine(schema: Schema, task: TargetType) -> bool:
    """Return whether forecasts of several steps are possible, so that errors are recorded."""
    lagged = {lag.column for lag in schema.lags}
    return supports_paths(task) and schema.targets[0] in lagged and not schema.wait


class MomentPredictor:
    """Predicts only the moments of the first target, at a fraction of the cost of `predict`."""

    def __init__(self, learner: Learner, learned: LearnerState) -> None:
        columns = learned.columns
        self._width = len(columns) - 1
        fixed = learner.unscaled_inputs[: self._width] > 0.0
        scale = columns[1:, scaler.SCALE]
        self._center = np.where(fixed, 0.0, columns[1:, scaler.CENTER])
        self._gain = np.where(fixed, 1.0, np.where(scale > 0.0, 1.0 / np.where(scale, scale, 1), 0))
        self._blank = np.flatnonzero((columns[1:, scaler.COUNT] == 0.0) & ~fixed)
        self._target = float(columns[0, scaler.CENTER]), float(columns[0, scaler.SCALE])
        self._learned = learned
        self._used = ensemble.repeat_weights(learned.pool, 1)[0]

    def __call__(self, x: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Predict mean, epistemic and aleatoric variance (n,), in the units that are learned."""
        z = x[:, : self._width] - self._center
        z *= self._gain
        if len(self._blank):
            z[:, self._blank] = 0.0
        center, scale = self._target
        inputs = encode_for_members(self._learned, z, None)
        pairs = zip(self._learned.members, inputs, strict=True)
        made = [part for member, (encoded, _) in pairs for part in member.predict(encoded)[:3]]
        every = np.concatenate(made)[:, 0].reshape(-1, 3, len(x))  # (K, 3, n)
        mean, function_var, noise_var = every[0]
        if len(every) > 1:  # as ensemble.pool_predictions, for one target
            np.minimum(every, ensemble.MAX_MOMENT, out=every)
            np.maximum(every, -ensemble.MAX_MOMENT, out=every)
            weights, spread_scale = self._used[:-1], float(self._used[-1])
            pooled = weights @ every.reshape(len(every), -1)
            mean, function_var, noise_var = pooled.reshape(3, -1)
            function_var += weights @ (every[:, 0] - mean) ** 2
            scale_var = scale**2 * spread_scale
        else:
            scale_var = scale**2
        return center + scale * mean, scale_var * function_var, scale_var * noise_var


def make_future_rows(schema: Schema, history: History, steps: int) -> Rows:
    """Make the rows after those of a history: times continue, other inputs are missing."""
    x = np.full((steps, schema.width), np.nan)
    time = None
    if schema.clock is not None:
        known = history.time[np.isfinite(history.time[:, 0])]
        last = known[-1] if len(known) else np.full(2, np.nan)
        time = schema.clock.extend_times(last, steps)
        names = schema.encoded_names()
        x[:, [names.index(name) for name in schema.clock.names]] = schema.clock.encode_times(time)
    number = np.arange(1, steps + 1)
    return Rows(x, np.full((steps, 1), np.nan), number, schema=schema, time=time)


class NetworkPath:
    """The network's recursive forecasts from n histories."""

    def __init__(self, network: ForecastContext, histories: Sequence[History]) -> None:
        timeline = network.timeline
        self._network, n = network, len(histories)
        self._predict = MomentPredictor(network.learner, network.learned)
        self._target = timeline.columns.index(network.schema.targets[0])
        self._inputs = [(k, at) for k, at in enumerate(timeline.input_places) if at >= 0]
        self._columns = [timeline.columns.index(lag.column) for lag in timeline.lags]
        self._rows = np.array([lag.rows for lag in timeline.lags])
        self._timed = [k for k, lag in enumerate(timeline.lags) if not lag.rows]
        width = max((len(history.values) for history in histories), default=0)
        width = max(width, int(np.max(self._rows, initial=0)), 1)
        self._values = np.full((n, len(timeline.columns), width + COMBINED_STEPS), np.nan)
        self._instants = np.full((n, width + COMBINED_STEPS), np.nan)
        for k, history in enumerate(histories):
            self._values[k, :, width - len(history.values) : width] = history.values.T
            self._instants[k, width - len(history.time) : width] = history.time[:, 0]
        self._places, self._hidden_places = timeline.places, timeline.hidden_places
        self._end = width
        self._base = np.array([history.last[0] for history in histories])
        self._low, self._high = _compute_path_range(histories)
        stored = max((len(history.values) for history in histories), default=0)
        self._rows_seen = max(network.errors.rows.item(0), float(stored), 1.0)
        self._holiday = _find_holiday_place(network.schema)
        self.holiday_effect = np.zeros(n)
        """What a holiday adds to the network's forecast of the last step."""
        self._series = [history.series for history in histories]
        self._modeled = np.full((n, MODELS, 0), np.nan)

    @property
    def base(self) -> FloatArray:
        """The last target or forecast (n,), from which changes are predicted."""
        return self._base

    def limit_candidates(self, paths: CandidatePaths, first_step: int = 1) -> CandidatePaths:
        """Limit candidates of steps from `first_step` on to the range of the path.

        A trend may continue: after n rows, candidates that follow it may leave the range seen by
        the share h/n of its width at step h.
        """
        low, high = self._low[:, None, None], self._high[:, None, None]
        mean = np.clip(paths.mean, low, high)
        steps = first_step + np.arange(mean.shape[2])
        ahead = steps / (self._rows_seen * RANGE_MARGIN_SHARE)
        margin = (high - low)[:, 0] * RANGE_MARGIN_SHARE / (1.0 + 2.0 * RANGE_MARGIN_SHARE)
        more = margin * np.maximum(ahead - 1.0, 0.0)
        trends = paths.mean[:, TREND:]
        mean[:, TREND:] = np.clip(trends, low - more[:, None], high + more[:, None])
        return paths._replace(mean=mean)

    def forecast_series_models(self, first_step: int, steps: int) -> FloatArray:
        """Return the series models' forecasts (n, 2, steps) from a step on.

        Beyond the recorded steps an autoregression that is not stable could go anywhere: its last
        season is repeated or, without one, its last value; a longer season is left out.
        """
        stop = first_step - 1 + steps
        if self._modeled.shape[2] < stop:
            length = max(stop, 2 * self._modeled.shape[2], COMBINED_STEPS)
            unknown = np.full((MODELS, length), np.nan)
            self._modeled = np.stack([
                unknown if series is None else forecast_series(series, length)
                for series in self._series
            ])  # fmt: skip
            season = self._network.season or 1
            later = np.arange(COMBINED_STEPS, length)
            source = COMBINED_STEPS - season + (later - COMBINED_STEPS) % season
            path = self._modeled[:, series_models.AUTOREGRESSION]
            path[:, later] = path[:, source] if season <= COMBINED_STEPS else np.nan
        return self._modeled[:, :, first_step - 1 : stop]

    @property
    def known_targets(self) -> FloatArray:
        """The targets (n, W) so far; after the first step, forecasts are among them."""
        return self._values[:, self._target, : self._end].copy()

    def look_up_inputs(self, x: FloatArray, time: FloatArray | None) -> FloatArray:
        """Return the inputs (n, width) of the next row of each history, given all but its lags."""
        end, lags = self._end, self._network.timeline.lags
        if end == self._values.shape[2]:  # keep only what lags can reach
            end = self._end = self._values.shape[2] - COMBINED_STEPS
            for kept in (self._values, self._instants):
                kept[..., :end] = kept[..., COMBINED_STEPS:].copy()
                kept[..., end:] = np.nan
        for column, at in self._inputs:
            self._values[:, column, end] = x[:, at]
        found = self._values[:, self._columns, end - self._rows]
        if self._timed:
            self._instants[:, end] = np.nan if time is None else time[:, 0]
            for k in self._timed:
                found[:, k] = self._find_at_instant(self._columns[k], lags[k].seconds)
        x = x.copy()
        x[:, self._places] = found
        x[:, self._hidden_places] = np.nan
        return x

    def _find_at_instant(self, column: int, seconds: float) -> FloatArray:
        """Return the values (n,) of a column at the row nearest to some seconds ago."""
        end, slack = self._end, self._network.timeline.lag_window.slack
        instants = self._instants[:, end - 1 :: -1]  # of equals, the latest row
        gap = np.abs(instants - (self._instants[:, end, None] - seconds))
        gap = np.where(np.isfinite(gap), gap, np.inf)
        nearest = np.argmin(gap, axis=1)
        each = np.arange(len(gap))
        found = self._values[each, column, end - 1 - nearest]
        return np.where(gap[each, nearest] <= slack, found, np.nan)

    def forecast_step(self, x: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Forecast the next row from its inputs, and use the mean as its target.

        Returns mean, epistemic and aleatoric variance of the step alone, (n,) each.
        """
        mean, function_var, noise_var = self._predict(x)
        self.holiday_effect = self._compute_holiday_effect(x, mean)
        if self._network.schema.changes:
            mean = mean + self._base
        self._base = mean = np.minimum(np.maximum(mean, self._low), self._high)
        self._values[:, self._target, self._end] = mean
        self._end += 1
        return mean, function_var, noise_var

    def _compute_holiday_effect(self, x: FloatArray, mean: FloatArray) -> FloatArray:
        """Return forecasts (n,) less those of the same rows without a holiday."""
        effect = np.zeros(len(x))
        at = np.flatnonzero(x[:, self._holiday] > 0.0) if self._holiday >= 0 else ()
        if len(at):
            usual = x[at]
            usual[:, self._holiday] = 0.0
            effect[at] = mean[at] - self._predict(usual)[0]
        return effect


class FirstStep(NamedTuple):
    """The network's forecasts of the first step from n origins, and the naive ones."""

    network: Forecast
    naive: FloatArray  # (n, 5)
    unknown: BoolArray  # (n,) whether the other inputs are unknown

    def combine(self, context: ForecastContext) -> Forecast:
        """Combine them; NaN where inputs are unknown, as errors are of rows with inputs."""
        return blank_rows(context.combine_one_step(self.network, self.naive)[0], self.unknown)


class OriginPaths(NamedTuple):
    """Forecasts from n origins over S steps, before they are combined."""

    first: FirstStep
    candidates: CandidatePaths
    share: FloatArray  # (n, S) epistemic share of the network's variance

    def select_origin(self, at: int) -> OriginPaths:
        """Return the paths of one origin."""
        part = slice(at, at + 1)
        candidates = CandidatePaths(*(array[part] for array in self.candidates))
        network, naive, unknown = self.first
        first = FirstStep(select_rows(network, part), naive[part], unknown[part])
        return OriginPaths(first, candidates, self.share[part])

    def apply_combination(self, made: CombinedForecast, context: ForecastContext) -> Forecast:
        """Return the forecasts of the steps of one origin."""
        steps = _make_gaussian_forecast(made.mean[0], made.sd[0], self.share[0])
        first = self.first.combine(context)
        if not np.isfinite(first.mean[0, 0]):
            return steps
        return join_forecasts([first, select_rows(steps, slice(1, None))])


def forecast_origins(
    network: ForecastContext, histories: Sequence[History], steps: Sequence[Rows]
) -> OriginPaths:
    """Forecast from n histories; `steps` has n rows per step, whose targets are not used."""
    path = HorizonPath(network, histories)
    found = [path.advance(rows) for rows in steps]
    first, means, shares = found[0][0], [one[1] for one in found], [one[2] for one in found]
    mean = np.concatenate([part.mean for part in means], axis=2)
    var = np.concatenate([part.var for part in means], axis=1)
    assert first is not None
    return OriginPaths(first, CandidatePaths(mean, var), np.stack(shares, axis=1))


def forecast_candidates(network: ForecastContext, history: History, steps: int) -> CandidatePaths:
    """Forecast some steps from the end of a history, with other inputs unknown."""
    rows = make_future_rows(network.schema, history, steps)
    path = NetworkPath(network, [history])
    targets = path.known_targets
    mean, var, holiday = np.empty((3, 1, steps))
    for h in range(steps):
        time = None if rows.time is None else rows.time[h : h + 1]
        x = path.look_up_inputs(rows.x[h : h + 1], time)
        mean[:, h], function_var, noise_var = path.forecast_step(x)
        var[:, h], holiday[:, h] = function_var + noise_var, path.holiday_effect
    path_var = np.cumsum(var, axis=1) / np.arange(1, steps + 1)
    modeled = path.forecast_series_models(1, steps)
    made = build_candidates(mean, path_var, targets, network.season, modeled, holiday)
    return path.limit_candidates(made)


def forecast_next_row(network: ForecastContext, history: History) -> FirstStep | None:
    """Forecast the row after a history, with other inputs unknown; None if there are none."""
    others = _find_other_places(network.schema)
    if not others:
        return None
    rows, path = make_future_rows(network.schema, history, 1), NetworkPath(network, [history])
    x = path.look_up_inputs(rows.x, rows.time)
    return _forecast_first_step(network, [history], rows, x, path.base, others)


def _find_holiday_place(schema: Schema) -> int:
    """Find the column of x that marks public holidays, -1 without one."""
    clock = schema.clock
    if clock is None or not clock.holidays:
        return -1
    return schema.encoded_names().index(clock.names[clock.unscaled_columns - 1])


def _find_other_places(schema: Schema) -> list[int]:
    """Find the columns of x whose values networks see in the row itself."""
    left_out = {*schema.derived_columns, *schema.lag_only}
    return [at for at, place in enumerate(schema.layout) if place.column not in left_out]


def _forecast_first_step(
    network: ForecastContext,
    histories: Sequence[History],
    rows: Rows,
    x: FloatArray,
    base: FloatArray,
    others: list[int],
) -> FirstStep:
    """Forecast the first row of each history from its inputs x and the last targets (n,)."""
    alone = network.learner.predict(network.learned, x, None)
    alone = shift_forecast(alone, base[:, None]) if network.schema.changes else alone
    naive = [
        network.timeline.look_up_naive(each, slice_rows(rows, k, k + 1))[:, 0]
        for k, each in enumerate(histories)
    ]
    unknown = np.full(len(rows.x), bool(others))
    unknown &= np.all(np.isnan(rows.x[:, others]), axis=1)
    return FirstStep(alone, np.concatenate(naive), unknown)


def weight_first_step(
    context: ForecastContext, first: FirstStep | None, made: CombinedForecast
) -> CombinedForecast:
    """Return combined forecasts whose first step has the weights of one step.

    Where other inputs are unknown, its mean has the weights that follow from the errors at every
    row, which are better known than those of few origins. Its width is that of the origins, because
    errors of rows with inputs are smaller.
    """
    if first is None or not first.unknown.any():
        return made
    mean = context.combine_one_step(first.network, first.naive)[0].mean[:, 0]
    mean = np.where(first.unknown & np.isfinite(mean), mean, made.mean[:, 0])
    return made._replace(mean=np.column_stack((mean, made.mean[:, 1:])))


class HorizonPath:
    """Combined forecasts, step by step, from n histories."""

    def __init__(self, network: ForecastContext, histories: Sequence[History]) -> None:
        self._network, self._histories = network, histories
        self._path = NetworkPath(network, histories)
        self._known = self._path.known_targets
        errors = network.errors
        if not errors.simple_number.any():  # during the warm-up
            errors = errors.resolve_pending(self._known[0], network.season)
        self._combiner = errors.open_combiner()
        self._step = 0
        self._function_var, self._noise_var = np.zeros((2, len(histories)))
        self._others = _find_other_places(network.schema)

    def advance(self, rows: Rows) -> tuple[FirstStep | None, CandidatePaths, FloatArray]:
        """Forecast the next row of each history (n rows, whose targets are not used).

        Returns the forecasts of the first step (later None), the candidates of the step, and the
        epistemic share of the network's variance.
        """
        network, path = self._network, self._path
        x, base = path.look_up_inputs(rows.x, rows.time), path.base
        mean, function_var, noise_var = path.forecast_step(x)
        self._step += 1
        if self._step <= MAX_GROWING_STEPS:
            self._function_var += (function_var - self._function_var) / self._step
            self._noise_var += (noise_var - self._noise_var) / self._step
        var = self._function_var + self._noise_var
        first = None
        if self._step == 1:
            first = _forecast_first_step(network, self._histories, rows, x, base, self._others)
        candidates = build_candidates(
            mean[:, None],
            var[:, None],
            self._known,
            network.season,
            path.forecast_series_models(self._step, 1),
            path.holiday_effect[:, None],
            self._step,
        )
        if len(self._others):
            given = np.isfinite(rows.x[:, self._others]).any(axis=1)
            candidates.mean[given, 1:] = np.nan
        share = np.divide(self._function_var, var, out=np.zeros_like(var), where=var > 0.0)
        return first, path.limit_candidates(candidates, self._step), share

    def forecast_step(self, rows: Rows) -> Forecast:
        """Forecast the next row of each history (n rows, whose targets are not used)."""
        step, candidates, share = self.advance(rows)
        first = None if step is None else step.combine(self._network)
        if first is not None and np.isfinite(first.mean).all():
            return first
        made = self._combiner.combine(candidates, self._step)
        made = weight_first_step(self._network, step, made)
        combined = _make_gaussian_forecast(made.mean[:, 0], made.sd[:, 0], share)
        if first is None:
            return combined
        known = np.isfinite(first.mean[:, 0])
        at = np.where(known, np.arange(len(known)), len(known) + np.arange(len(known)))
        return select_rows(join_forecasts([first, combined]), at)


def _make_gaussian_forecast(mean: FloatArray, sd: FloatArray, share: FloatArray) -> Forecast:
    """Make Gaussian forecasts of n rows; `share` of the variance is epistemic."""
    mean, sd, share = mean[:, None], sd[:, None], share[:, None]
    return make_empty_forecast(len(mean), 1)._replace(
        mean=mean,
        sd=sd,
        function_sd=sd * np.sqrt(share),
        noise_sd=sd * np.sqrt(1.0 - share),
        stated=calibration.apply_calibration(
            calibration.init_calibration(1, mixed=False), mean, sd
        ),
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
        self._path: HorizonPath | None = None
        self._placed: list[Rows] = []
        self._weights: list[FloatArray] = []
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
        self._uncertain.series = None

    def __call__(self, rows: Rows) -> Forecast:
        """Predict a batch of rows."""
        self._placed, self._weights = [], []
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

    def get_inputs(self) -> Rows:
        """Return the rows of the last call with the lags they were predicted from.

        Lags that are forecasts have their sd in `x_sd`.
        """
        if any(part.x_sd is not None for part in self._placed):
            exact = [np.zeros_like(part.x) for part in self._placed]
            parts = zip(self._placed, exact, strict=True)
            self._placed = [
                part if part.x_sd is not None else part._replace(x_sd=sd) for part, sd in parts
            ]
        return concat_rows(self._placed)

    def get_network_weights(self) -> FloatArray:
        """Return the network's share in the means of the last call: (n,), 1 without naive ones."""
        return np.concatenate(self._weights)

    def _predict_part(self, rows: Rows, measured: bool) -> Forecast:
        """Predict rows of which only the last may lack its target, or one row of a gap."""
        network = self._network
        if self._gap:
            self._notices.report_gap(int(rows.number[0]))
        elif not measured and supports_paths(network.learner.task):
            before = self._history.copy()
            network.timeline.append_rows(before, slice_rows(rows, 0, len(rows.y) - 1))
            self._path = HorizonPath(network, [before])
        forecast = self._predict_lagged(rows)
        if self._path is not None:
            ahead = self._path.forecast_step(slice_rows(rows, len(rows.y) - 1, len(rows.y)))
            forecast = ahead._replace(naive=forecast.naive) if self._gap else forecast
        self._gap = 0 if measured else self._gap + 1
        if measured:
            self._path = None
        else:
            self._fill_in(rows, forecast)
        return forecast

    def _predict_lagged(self, rows: Rows) -> Forecast:
        """Predict rows from the history, and append them to it."""
        network = self._network
        placed = network.timeline.look_up_lags(self._history, rows)
        naive = network.timeline.look_up_naive(self._history, rows)
        if self._gap:
            naive[:] = np.nan
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
        self._placed.append(Rows(placed.rows.x, rows.y, rows.number, x_sd))
        forecast = network.learner.predict(network.learned, placed.rows.x, x_sd)
        if placed.base is None or np.isfinite(placed.base).all():
            forecast = placed.restore_level(forecast)
        else:
            forecast = self._level_without_past(forecast, placed)
        weight = np.ones(len(rows.y))
        if network.combines_forecasts and not self._gap:
            forecast, weight = network.combine_one_step(forecast, naive[:, 0])
        self._weights.append(weight)
        return attach_naive(forecast, naive)

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


def _compute_path_range(histories: Sequence[History]) -> tuple[FloatArray, FloatArray]:
    """Return the lower and upper limit of the mean path from each origin."""
    low = np.array([history.low[0] for history in histories])
    high = np.array([history.high[0] for history in histories])
    reach = RANGE_MARGIN_SHARE * (high - low)
    return low - reach, high + reach
