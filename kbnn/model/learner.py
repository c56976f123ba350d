"""Learn rows in the user's units: standardise, predict, learn, grow, refit the scale and replay.

`Learner.learn_rows(state, rows)` returns the new state, the forecasts made before each row was
learned, and the events (drift alarms, unlabelled rows). Results do not depend on how rows are
grouped into batches: networks grow at the row that needs it, and the scale is refitted after fixed
row counts or at the row where a column outgrows it.

While the replay buffer holds every row learned so far, a new scale restarts the networks from their
prior. Later, networks are converted to the new scale (kbnn.model.rescale).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kbnn.array_types import FloatArray, IntArray
from kbnn.core import kernel
from kbnn.core.config import Config
from kbnn.core.input_moments import is_view_outdated, leading_directions
from kbnn.core.kernel import Prediction, Session, open_session, predict_parallel
from kbnn.core.reference import ALARM, LEARNED, UNLABELLED
from kbnn.core.state import COUNT, State, init
from kbnn.data.batch import Rows, make_fill_values, pad_columns, slice_rows
from kbnn.data.schema import Schema
from kbnn.distributions.calibration import (
    MEAN_SCALE_FACTOR,
    SCALE_FACTOR,
    reset_scale_and_gains,
    shrink_scale,
)
from kbnn.distributions.categorical import NO_TEMPERATURE, extend_classes
from kbnn.model import ensemble, relevance, replay, scaler
from kbnn.model.ensemble import (
    FEW_OUTPUTS,
    NO_BINS,
    Member,
    PoolWeights,
    encode_inputs,
    fit_bins,
    prepend_bins,
    rescale_bins,
    select_bins,
    select_input_scale,
    select_inputs,
)
from kbnn.model.replay import BufferedRows, ReplayBuffer, ReplayState, compute_buffer_rows
from kbnn.model.rescale import grow_state, rescale_state
from kbnn.model.scaler import Scale
from kbnn.model.settings import REPLAY_ROWS, Settings, is_within_limits
from kbnn.targets.base import CalibrationUpdate, TargetScale, TargetType
from kbnn.targets.classification import apply_class_temperature, init_class_temperature
from kbnn.targets.prediction import Forecast
from kbnn.targets.registry import make_target_type


class DroppedMember(NamedTuple):
    """A network that was dropped because it did not pay."""

    member: Member
    row: int
    benefit: float  # nats per row
    price: float


class LearnerState(NamedTuple):
    """Networks, scale, replay buffer and calibration of one candidate; `learn_rows` consumes it.

    Sessions and the replay buffer are updated in place. `columns` holds the statistics of the
    scaled targets, then those of the inputs. Before the networks are initialised, the replay buffer
    holds the rows of the warm-up.
    """

    members: tuple[Session, ...]
    columns: FloatArray
    pool: PoolWeights
    seen: int  # rows in the scale statistics
    changes: int  # number of changes of the scale
    buffer: ReplayBuffer
    calibration: FloatArray  # see kbnn.distributions.calibration
    replay_state: ReplayState = ReplayState()
    temperature: FloatArray = (
        NO_TEMPERATURE  # of class probabilities, see distributions.categorical
    )
    specs: tuple[Member, ...] = ()  # what distinguishes each member
    bins: tuple[FloatArray, ...] = ()  # bins of each member's inputs, see kbnn.model.ensemble
    dropped: tuple[DroppedMember, ...] = ()

    def get_count(self, which: str) -> int:
        """Return a count of the first network, see kbnn.core.state.Counts; 0 in the warm-up."""
        return self.members[0].counts[which] if self.members else 0


class LearnEvents(NamedTuple):
    """Events among the rows of one step."""

    alarms: list[int]  # numbers of the rows that raised an alarm
    skipped: int = 0  # rows without a target
    restarted: bool = False  # all rows were relearned: `alarms` replaces earlier alarms


def record_alarm(state: LearnerState, number: int) -> LearnerState:
    """Store the number of the row that raised the last drift alarm."""
    return state._replace(replay_state=state.replay_state._replace(alarm=number))


def events_of(forecast: Forecast, first: int) -> LearnEvents:
    """Collect alarms and unlabelled rows from a forecast whose first row has number `first`."""
    if not int(np.bitwise_or.reduce(forecast.status)) & (ALARM | UNLABELLED):
        return LearnEvents([])
    raised = np.flatnonzero(forecast.status & ALARM)
    skipped = int(np.count_nonzero(forecast.status & UNLABELLED))
    return LearnEvents([first + int(at) for at in raised], skipped)


@dataclass(frozen=True)
class Learner:
    """Learns rows in the user's units with the networks of a state.

    It standardises rows, creates, grows and rescales networks when rows require it, learns each row
    after predicting it, and replays buffered rows on the schedule of kbnn.model.replay.

    `indicators` marks the columns of x that indicate a category; they are not standardised. An
    indicator that has been 0 in every row so far has no network input yet, and neither has a late
    numeric column whose values were all missing.
    """

    settings: Settings
    task: TargetType
    indicators: FloatArray  # (D,) 1 or 0
    late: FloatArray  # (D,) 1 for columns added after the first rows, else 0
    cycles: FloatArray  # (D,) 1 for sines and cosines, which are not scaled, else 0
    is_series: bool = False  # whether inputs are lags of the target
    own_inputs: tuple[int, ...] = ()  # the target's lags and the clock, beside other inputs
    optional_inputs: tuple[int, ...] = ()  # lags of other columns that must earn their place

    @cached_property
    def unscaled_inputs(self) -> FloatArray:
        """Mark with 1 the columns of x that are not standardised."""
        return np.maximum(self.indicators, self.cycles)

    @cached_property
    def unscaled_columns(self) -> FloatArray:
        """Mark with 1 the columns that are not standardised, scaled targets first."""
        every = np.concatenate((np.zeros(self.task.scaled), self.unscaled_inputs))
        return every if self.settings.units else np.ones_like(every)

    @cached_property
    def uses_kernel(self) -> bool:
        """Whether the compiled kernel is used; cached, because the check is slow."""
        return kernel.is_compiled()

    @cached_property
    def replay_ratio(self) -> int:
        """Replayed rows per new row during the first REPLAY_ROWS rows."""
        return self.settings.replay_ratio

    @cached_property
    def has_overstated_variance(self) -> bool:
        """Whether networks overstate their epistemic variance, as the paper's smoother does."""
        return self.settings.covariance == "paper" and (
            self.settings.robust and self.task.scaled > 0
        )

    @cached_property
    def uses_interval_calibration(self) -> bool:
        """Whether intervals are recalibrated online to their nominal coverage."""
        return self.settings.intervals == "tracked"

    def predict(self, learned: LearnerState, x: FloatArray, x_sd: FloatArray | None) -> Forecast:
        """Predict rows without changing the state."""
        return self.predict_standardized(learned, *self.standardize_inputs(learned, x, x_sd))

    def standardize_inputs(
        self, learned: LearnerState, x: FloatArray, x_sd: FloatArray | None
    ) -> tuple[FloatArray, FloatArray | None]:
        """Return rows and their inputs' variances in the units of the networks."""
        width = len(learned.columns) - self.task.scaled
        z = scaler.standardize_rows(
            learned.columns[self.task.scaled :], x[:, :width], self.unscaled_inputs[:width]
        )
        return z, self._scale_input_variances(learned.columns, x_sd)

    def predict_standardized(
        self, learned: LearnerState, z: FloatArray, var: FloatArray | None = None
    ) -> Forecast:
        """Predict rows that are already standardised, without changing the state."""
        inputs = encode_for_members(learned, z, var)
        if len(learned.members) == 1:
            return self.make_forecast(learned, predict_parallel(learned.members[0], *inputs[0]))
        made = ensemble.map_members(
            lambda k: predict_parallel(learned.members[k], *inputs[k]), range(len(inputs)), len(z)
        )
        pooled = ensemble.pool_predictions(made, ensemble.repeat_weights(learned.pool, len(z)))
        return self.make_forecast(learned, pooled)

    def _predict_and_learn(
        self,
        learned: LearnerState,
        z: FloatArray,
        labels: FloatArray,
        x_sd: FloatArray | None,
        weight: FloatArray | None,
        again: bool = False,
    ) -> tuple[LearnerState, Prediction]:
        """Predict and learn standardised rows."""
        labels = np.ascontiguousarray(labels)
        inputs = encode_for_members(learned, z, self._scale_input_variances(learned.columns, x_sd))
        weight = None if weight is None else np.ascontiguousarray(weight)
        if len(learned.members) == 1:
            z, var = inputs[0]
            return learned, learned.members[0].learn(z, labels, var, weight, again)
        made = ensemble.map_members(
            lambda k: learned.members[k].learn(inputs[k][0], labels, inputs[k][1], weight, again),
            range(len(inputs)),
            len(z),
        )
        if again:  # errors on rows that were learned before say little about new rows
            return learned, ensemble.pool_predictions(
                made, ensemble.repeat_weights(learned.pool, len(z))
            )
        if self.task.observation == "gaussian":
            scores, y = np.zeros((len(z), 0)), labels
            mean = np.stack([one.mean for one in made], axis=1)
            var = np.stack([one.function_var + one.noise_var for one in made], axis=1)
        else:
            scores = np.stack([self.task.log_likelihood(one, labels) for one in made], axis=1)
            mean = var = np.zeros((len(z), len(made), 0))
            y = np.zeros((len(z), 0))
        weights, pool = ensemble.update_weights(learned.pool, scores, mean, var, y)
        return learned._replace(pool=pool), ensemble.pool_predictions(made, weights)

    def _replay_rows(self, learned: LearnerState, rows: BufferedRows) -> None:
        """Let all members learn buffered rows again."""
        z, labels, x_sd = self._standardize_buffered_rows(learned.columns, rows)
        inputs = encode_for_members(learned, z, self._scale_input_variances(learned.columns, x_sd))
        labels = np.ascontiguousarray(labels)
        settled = learned.replay_state.is_corrected
        ensemble.map_members(
            lambda k: learned.members[k].replay(
                inputs[k][0], labels, inputs[k][1], rows.weight, settled
            ),
            [k for k, spec in enumerate(learned.specs) if spec.replays],
            len(z),
        )

    def _scale_input_variances(
        self, columns: FloatArray, x_sd: FloatArray | None
    ) -> FloatArray | None:
        """Convert the inputs' measurement standard deviations to standardised variances."""
        if x_sd is None or not np.any(x_sd > 0.0):
            return None
        scale = columns[self.task.scaled :, scaler.SCALE]
        safe = np.where(scale > 0.0, scale, np.inf)
        with np.errstate(over="ignore"):  # an infinite variance means a missing value
            return np.ascontiguousarray((np.nan_to_num(x_sd[:, : len(scale)]) / safe) ** 2)

    def _standardize_labels(self, columns: FloatArray, y: FloatArray) -> FloatArray:
        """Standardise targets with the scale in `columns`."""
        t = self.task.scaled
        scaled = y[:, :t]
        z = scaler.standardize_rows(columns[:t], scaled, np.zeros(t))
        return np.where(np.isnan(scaled), np.nan, z) if t else y

    def _standardize_buffered_rows(
        self, columns: FloatArray, rows: BufferedRows
    ) -> tuple[FloatArray, FloatArray, FloatArray | None]:
        """Standardise buffered rows; return inputs, labels and the inputs' standard deviations."""
        t = self.task.scaled
        width = len(columns) - t
        x = pad_columns(rows.x, width, make_fill_values(self.indicators))
        x = scaler.standardize_rows(columns[t:], x, self.unscaled_inputs[:width])
        x_sd = pad_columns(rows.x_sd, width) if rows.x_sd.shape[1] else None
        return x, self._standardize_labels(columns, rows.y), x_sd

    def make_forecast(
        self, learned: LearnerState, made: Prediction, update: CalibrationUpdate | None = None
    ) -> Forecast:
        """Build forecasts in the user's units.

        With a `CalibrationUpdate`, calibration and temperature are updated in place from the
        observed targets.
        """
        t, columns = self.task.scaled, learned.columns
        scaled = TargetScale(columns[:t, scaler.CENTER], columns[:t, scaler.SCALE])
        forecast = self.task.build_forecast(
            made, scaled, self.settings.robust, learned.calibration, update
        )
        return apply_class_temperature(forecast, learned.temperature, update)

    def _create_networks(
        self,
        learned: LearnerState,
        rows: BufferedRows,
        outputs: int,
        input_gain: FloatArray | None = None,
    ) -> tuple[LearnerState, LearnEvents]:
        """Initialise the networks from the prior and learn the given rows.

        `input_gain` (D,) are the inputs' factors of the prior, see kbnn.model.relevance.
        """
        t = self.task.scaled
        inputs = len(learned.columns) - t
        scale = next(iter(learned.columns[:t, scaler.SCALE].tolist()), 1.0)
        z, labels, x_sd = self._standardize_buffered_rows(learned.columns, rows)
        specs = learned.specs or self.settings.list_members(
            inputs, outputs, self.is_series, self.own_inputs, self.optional_inputs
        )
        fitted = NO_BINS
        if any(spec.encoding == "piecewise" for spec in specs):
            fitted = fit_bins(z, 1.0 - self.unscaled_inputs[:inputs], outputs)
        bins = tuple(
            select_bins(spec, fitted) if spec.encoding == "piecewise" else NO_BINS for spec in specs
        )
        output_mean = self.task.initial_output_mean(rows.y)
        pool = learned.pool if learned.members else ensemble.make_equal_weights(len(specs))

        def create_network(spec: Member, bins: FloatArray) -> Session:
            width = ensemble.count_inputs(spec, inputs) + len(bins)
            config = self.settings.make_config(spec, self.task, width, outputs, scale or 1.0)
            directions, gain = None, None
            if input_gain is not None and spec.adapts_prior:
                of_bins = input_gain[bins[:, ensemble.COLUMN].astype(np.int64)]
                gain = np.append(of_bins, select_inputs(spec, input_gain))
            if config.directions:
                encoded, _ = encode_member_inputs(spec, bins, z, None)
                if gain is not None:
                    encoded = np.clip(encoded, -config.input_limit, config.input_limit) * gain
                limit = config.input_limit * (1.0 if gain is None else relevance.MOST_GAIN)
                directions = leading_directions(encoded, config.directions, limit)
            means, sds = ensemble.prior_scales(spec.variant)
            state = init(
                config,
                self.settings.seed + 1000003 * spec.variant,
                mean_scale=means,
                sd_scale=sds,
                prior_variance=self.settings.prior_variance,
                directions=directions,
                output_mean=output_mean,
                input_gain=gain,
            )
            return open_session(state)

        learned = learned._replace(
            members=tuple(map(create_network, specs, bins)),
            pool=pool,
            specs=specs,
            bins=bins,
        )
        learned, made = self._predict_and_learn(learned, z, labels, x_sd, rows.weight)
        # Without replay in between, errors and variances here are not those of later rows.
        learned = learned._replace(pool=pool)
        backlog = self.replay_ratio * min(learned.seen, REPLAY_ROWS)
        settled = learned.seen > REPLAY_ROWS
        learned = learned._replace(replay_state=ReplayState(float(backlog), 0, settled))
        learned.buffer.set_trust(made.inlier)
        raised = np.flatnonzero(made.status.astype(np.int64) & ALARM)
        alarms = [int(number) for number in rows.number[raised]]
        if len(raised) and raised[-1] >= ALARM_GRACE_ROWS:
            learned = record_alarm(learned, alarms[-1])
        return learned, LearnEvents(alarms, restarted=True)

    def _grow_for_rows(
        self, learned: LearnerState, rows: Rows
    ) -> tuple[LearnerState, Rows, Forecast | None]:
        """Grow the networks to fit the first row; return rows up to the next that needs more.

        The third result is the forecast of the first row before its new class was added, else None.
        """
        width = len(learned.columns) - self.task.scaled
        if rows.x.shape[1] > width:
            used = np.flatnonzero(self._find_needed_inputs(rows.x[:1, width:], width)[0])
            wider = width + (int(used[-1]) + 1 if len(used) else 0)
            if wider > width:
                learned = self._grow_networks(learned, wider, learned.members[0].config.outputs)
                learned.buffer.fill_values = make_fill_values(self.indicators)
                blank = scaler.blank_columns if self.settings.units else scaler.identity_columns
                more = blank(wider - width)
                learned = learned._replace(columns=np.vstack([learned.columns, more]))
                width = wider
        outputs = learned.members[0].config.outputs
        earlier_forecast = None
        stop = self.task.first_row_without_output(rows.y, outputs)
        if stop == 0:
            earlier_forecast = self.predict(
                learned, rows.x[:1], None if rows.x_sd is None else rows.x_sd[:1]
            )
            outputs = self.task.count_outputs(rows.y[:1], outputs)
            learned = self._grow_networks(learned, width, outputs)
            stop = self.task.first_row_without_output(rows.y, outputs)
        if rows.x.shape[1] > width:
            wide = np.any(self._find_needed_inputs(rows.x[:stop, width:], width), axis=1)
            stop = int(np.argmax(wide)) if wide.any() else stop
        return learned, rows if stop == len(rows.y) else slice_rows(rows, 0, stop), earlier_forecast

    def _grow_networks(self, learned: LearnerState, inputs: int, outputs: int) -> LearnerState:
        """Add inputs and outputs to all networks.

        Encoded networks for few outputs are dropped when there are many: they would cost ten times
        as much.
        """

        def grow_network(member: Session, spec: Member, bins: FloatArray) -> Session:
            width = ensemble.count_inputs(spec, inputs) + len(bins)
            config = self._split_groups(member.config, spec, width, outputs)
            return open_session(grow_state(member.state(), width, outputs, config))

        if learned.members[0].config.outputs <= FEW_OUTPUTS < outputs:
            raw = [k for k, spec in enumerate(learned.specs) if spec.encoding == "none"]
            learned = _keep_members(learned, raw or range(len(learned.specs)))
        members = tuple(map(grow_network, learned.members, learned.specs, learned.bins))
        return learned._replace(
            members=members, temperature=extend_classes(learned.temperature, outputs)
        )

    def _split_groups(self, now: Config, spec: Member, inputs: int, outputs: int) -> Config | None:
        """Choose a covariance per neuron once there are more classes than MAX_GROUPED_CLASSES.

        The warm-up rows may contain few of the classes that follow. With group covariances, every
        class of every row costs a pass over all covariances.
        """
        wanted = self.settings.make_config(spec, self.task, inputs, outputs, 1.0)
        change = (now.covariance, wanted.covariance)
        if outputs <= MAX_GROUPED_CLASSES or change != ("group", "neuron"):
            return None
        grown = now.resize(inputs, outputs)
        return replace(grown, covariance="neuron", group_size=None, repeats=wanted.repeats)

    def _find_needed_inputs(self, x: FloatArray, start: int) -> NDArray[np.bool_]:
        """Find the values of x (columns from `start` on) that require a network input."""
        number = self.indicators[start : start + x.shape[1]] == 0.0
        return np.where(number, ~np.isnan(x), x != 0.0)

    def _refit_scale(
        self, learned: LearnerState, scheduled: bool
    ) -> tuple[LearnerState, LearnEvents | None]:
        """Refit the scale if the stream has left it; return events if all rows were relearned.

        `scheduled` is false where a column outgrew its scale between the fixed row counts.
        """
        t = self.task.scaled
        width = len(learned.columns) - t
        closely = self.settings.replay_ratio > 0
        fixed, rows = self.unscaled_columns[: t + width], learned.buffer.rows(width)
        last = _select_last_rows(rows, t)
        columns = scaler.refit_scale(learned.columns, fixed, closely, last, scheduled)
        old, new = scaler.get_scale(learned.columns), scaler.get_scale(columns)
        before_change, learned = learned, learned._replace(columns=columns)
        outputs = learned.members[0].config.outputs
        same = all(np.array_equal(a, b) for a, b in zip(old, new, strict=True))
        # Few rows determine neither directions nor bins, so early ones are recomputed.
        adapts = any(
            m.config.directions or len(b)
            for m, b in zip(learned.members, learned.bins, strict=True)
        )
        if same and not (scheduled and adapts and learned.seen <= DIRECTION_SEARCH_ROWS):
            return learned, None
        learned = learned._replace(changes=learned.changes + (not same))
        if len(rows.y) == learned.seen <= REPLAY_ROWS:  # no row was dropped
            return self._create_networks(
                learned, rows, outputs, self._compute_input_gains(before_change, rows)
            )
        gain, shift = scaler.compute_output_map(old, new, t, outputs)
        before = Scale(old.center[t:], old.scale[t:])
        after = Scale(new.center[t:], new.scale[t:])
        large = scaler.is_large_change(old, new) and len(rows.y) > 0
        rows = BufferedRows._make(part[-REPLAY_ROWS:] for part in rows)
        standard = self._standardize_buffered_rows(columns, rows) if large else None

        moved = {id(bins): rescale_bins(bins, before, after) for bins in learned.bins}

        def rescale_network(member: Session, spec: Member, bins: FloatArray) -> Session:
            relearned = standard is not None and not member.config.directions
            state = rescale_state(
                member.state(),
                prepend_bins(select_input_scale(spec, before), bins),
                prepend_bins(select_input_scale(spec, after), bins),
                gain,
                shift,
                CARRIED_INFORMATION_SHARE if relearned else 1.0,
            )
            if standard is not None and relearned:
                z, labels, x_sd = standard
                var = self._scale_input_variances(columns, x_sd)
                z, var = encode_member_inputs(spec, moved[id(bins)], z, var)
                state = _relearn_rows(state, z, labels, var, rows.weight)
            return open_session(state)

        members = ensemble.map_members(
            lambda k: rescale_network(learned.members[k], learned.specs[k], learned.bins[k]),
            range(len(learned.members)),
            len(rows.y),
        )
        if not all(is_within_limits(member.state()) for member in members):
            return self._rebuild_networks(learned, rows), None
        learned = learned._replace(
            members=tuple(members), bins=tuple(moved[id(bins)] for bins in learned.bins)
        )
        outdated = any(
            is_view_outdated(m.state().view, relevance.GAIN_MARGIN if spec.adapts_prior else 1.0)
            for m, spec in zip(learned.members, learned.specs, strict=True)
        )
        if len(rows.y) >= DIRECTION_SEARCH_ROWS and outdated:
            learned = self._rebuild_networks(learned, rows)
        return learned, None

    def _compute_input_gains(self, learned: LearnerState, rows: BufferedRows) -> FloatArray | None:
        """Return the factors of the prior of each input; None where the prior treats all alike.

        Class labels had no gain: tables of images, for example, were learned worse.
        """
        if self.task.observation != "gaussian" or not learned.specs[0].adapts_prior:
            return None
        if rows.x.shape[1] * len(rows.y) < relevance.IRRELEVANT_EVIDENCE:  # the prior cannot change
            return None
        last = BufferedRows._make(part[-relevance.MEASURED_ROWS :] for part in rows)
        z, labels, _ = self._standardize_buffered_rows(learned.columns, last)
        columns = np.arange(z.shape[1])
        effects, output = relevance.measure_effects(
            [member.state() for member in learned.members],
            learned.pool.weight,
            [x for x, _ in encode_for_members(learned, z, None)],
            [
                np.append(bins[:, ensemble.COLUMN].astype(np.int64), columns)
                for bins in learned.bins
            ],
            relevance.draw_other_rows(self.settings.seed, learned.seen, len(z)),
        )
        error = labels - output[:, : labels.shape[1]]
        return relevance.compute_input_gains(effects, float(np.nanmean(error * error)), len(rows.y))

    def _rebuild_networks(self, learned: LearnerState, rows: BufferedRows) -> LearnerState:
        """Create new networks from the buffered rows only; counts are carried over.

        Networks with many inputs recompute their directions from these rows. This is also the
        fallback after a change of scale too large to convert the networks.
        """
        began, _ = self._create_networks(learned, rows, learned.members[0].config.outputs)
        pairs = zip(began.members, learned.members, strict=True)
        members = [new.state()._replace(counts=old.state().counts) for new, old in pairs]
        return began._replace(
            members=tuple(map(open_session, members)), replay_state=learned.replay_state
        )

    def initialize_state(self, kept: ReplayBuffer) -> tuple[LearnerState, LearnEvents]:
        """Fit the scale to the warm-up rows, create the networks and learn the rows in order."""
        kept.fill_values = make_fill_values(self.indicators)
        held = kept.rows(len(self.indicators))
        calibration = self.task.init_calibration(self.settings.robust, held.y)
        held = held._replace(y=self.task.link(held.y, calibration))
        used = np.flatnonzero(
            np.any(self._find_needed_inputs(held.x, 0), axis=0)
            | (self.indicators + self.late == 0.0)
        )
        width = int(used[-1]) + 1 if len(used) else 0
        held = held._replace(x=held.x[:, :width], x_sd=held.x_sd[:, :width])
        raw = np.hstack([held.y[:, : self.task.scaled], held.x])
        units, outputs = self.settings.units, self.task.count_outputs(held.y)
        learned = LearnerState(
            members=(),
            columns=scaler.fit_scaler(raw) if units else scaler.identity_columns(raw.shape[1]),
            pool=ensemble.make_equal_weights(1),
            seen=len(held.y),
            changes=0,
            buffer=ReplayBuffer(
                compute_buffer_rows(width, self.settings.keep), held.y.shape[1], held
            ),
            calibration=calibration,
            temperature=init_class_temperature(
                self.task.labels, self.settings.robust, outputs, held.y
            ),
        )
        learned, events = self._create_networks(learned, held, outputs)
        return self._replay_due_rows(learned, len(held.y)), events

    def learn_rows(
        self, learned: LearnerState, rows: Rows, first: int, again: bool = False
    ) -> tuple[LearnerState, Forecast, LearnEvents]:
        """Learn rows up to the next growth or change of scale: at least one, perhaps not all.

        `first` is the number of the first row in the stream. `again` means that the rows were
        learned in an earlier pass.
        """
        learned, rows, earlier_forecast = self._grow_for_rows(learned, rows)
        if again:
            learned.buffer.clear()
            learned = self.correct_replayed_state(learned)
            width = len(learned.columns) - self.task.scaled
            z = scaler.standardize_rows(
                learned.columns[self.task.scaled :], rows.x[:, :width], self.unscaled_inputs[:width]
            )
            labels = self._standardize_labels(learned.columns, rows.y)
            learned, made = self._predict_and_learn(
                learned, z, labels, rows.x_sd, rows.weight, again=True
            )
            learned = learned._replace(
                calibration=self._calibrate_relearned_rows(learned, labels, made)
            )
            forecast = self.make_forecast(learned, made)
            return (
                learned,
                _restore_first_probability(forecast, earlier_forecast),
                events_of(forecast, first),
            )
        before = learned.seen
        burst, refit = replay.find_next_burst(learned.replay_state, before), next_refit(before)
        due = min(refit, burst) if self.replay_ratio else refit
        learned, forecast, outgrown = self._learn_new_rows(learned, rows, due)
        done = len(forecast.status)
        known = rows if done == len(rows.y) else slice_rows(rows, 0, done)
        learned.buffer.add(
            known,
            len(learned.columns) - self.task.scaled,
            first,
            _compute_inlier_probability(forecast),
        )
        events = events_of(forecast, first)
        if events.alarms and before >= ALARM_GRACE_ROWS:
            learned = record_alarm(learned, events.alarms[-1])
        changes, spent = learned.changes, 0
        if refit == learned.seen or outgrown:
            learned, restarted = self._refit_scale(learned, scheduled=refit == learned.seen)
            if restarted is not None:
                events = events._replace(alarms=restarted.alarms, restarted=True)
                if refit != learned.seen:
                    learned = _scale_backlog(learned, OUTGROWN_REPLAY_SHARE)
            spent = len(learned.buffer) if learned.changes > changes else 0
            if learned.seen >= ensemble.FIRST_CHECK_ROWS and refit == learned.seen:
                learned = self._drop_costly_member(learned)
        if learned.seen == burst and self.replay_ratio:
            learned = self._forget_information(learned)
            learned = self._replay_due_rows(self._update_replay_backlog(learned), spent)
        return learned, _restore_first_probability(forecast, earlier_forecast), events

    def _forget_information(self, learned: LearnerState) -> LearnerState:
        """Let the information of networks that forget decay, at fixed row counts.

        Classes do not forget: most tables of classes were learned worse.
        """
        due = replay.is_forgetting_due(learned.replay_state, learned.seen)
        if not due or self.task.observation != "gaussian":
            return learned
        share = math.exp(-replay.FORGETTING_INTERVAL_ROWS / replay.FORGETTING_ROWS)
        return learned._replace(
            members=tuple(
                open_session(replay.keep_information(member.state(), share))
                if spec.forgets
                else member
                for member, spec in zip(learned.members, learned.specs, strict=True)
            )
        )

    def _drop_costly_member(self, learned: LearnerState) -> LearnerState:
        """Drop the network that pays least for its cost, if its price exceeds its benefit."""
        outputs, is_priced = learned.members[0].config.outputs, self.settings.is_priced
        if len(learned.members) == 1 or not (is_priced or outputs <= FEW_OUTPUTS):
            return learned
        n = learned.seen - learned.replay_state.since
        share = self.replay_ratio * replay.compute_replay_share(n, self.settings.replay_rows)
        costs = np.array(
            [
                ensemble.estimate_row_cost(member.config) * (1.0 + share * spec.replays)
                for member, spec in zip(learned.members, learned.specs, strict=True)
            ]
        )
        margin = ensemble.compute_margin(learned.seen, outputs) if is_priced else 0.0
        prices = ensemble.compute_prices(costs, margin)
        worst = ensemble.find_costly_member(learned.pool, prices)
        pool = learned.pool
        if worst is None:
            return learned._replace(pool=ensemble.restart_benefits(pool))
        benefit = float(pool.benefit[worst] / pool.benefit_rows)
        dropped = DroppedMember(learned.specs[worst], learned.seen, benefit, float(prices[worst]))
        keep = [k for k in range(len(learned.members)) if k != worst]
        return _keep_members(learned, keep)._replace(dropped=(*learned.dropped, dropped))

    def _calibrate_relearned_rows(
        self, learned: LearnerState, labels: FloatArray, made: Prediction
    ) -> FloatArray:
        """Update the scale calibration from rows of a later pass.

        Rows that were learned before have smaller errors than new rows. The squared errors are
        corrected by passes^(repeats/2), half the power by which the epistemic variance shrinks.
        """
        if not self.has_overstated_variance:
            return reset_scale_and_gains(learned.calibration)
        with np.errstate(over="ignore"):
            squares = (labels - made.mean) ** 2 / (made.function_var + made.noise_var)
        network = learned.members[0]
        after = np.cumsum((made.status.astype(np.int64) & LEARNED) > 0)
        rows = network.counts["rows"] - after[-1:] + after
        passes = np.maximum(rows / max(1, network.counts["distinct"]), 1.0)
        return shrink_scale(learned.calibration, squares, passes ** (0.5 * network.config.repeats))

    def _learn_new_rows(
        self, learned: LearnerState, rows: Rows, due: int
    ) -> tuple[LearnerState, Forecast, bool]:
        """Standardise rows, add them to the scale statistics, predict and learn them.

        Stop at the row count `due`, or where a column gets its first scale or outgrows it. The last
        result is whether a scale was outgrown.
        """
        t = self.task.scaled
        width = len(learned.columns) - t
        fixed = self.unscaled_columns[: t + width]
        stop = min(len(rows.y), due - learned.seen)
        x, y = rows.x, rows.y
        if x.shape != (stop, width):
            x, y = x[:stop, :width], y[:stop]
        columns = learned.columns.copy()
        labels, z, outgrown = scaler.standardize_and_update(
            columns, y[:, :t], x, fixed, self.uses_kernel
        )
        done = len(z)
        calibration = learned.calibration.copy()
        learned = LearnerState(
            learned.members,
            columns,
            learned.pool,
            learned.seen + done,
            learned.changes,
            learned.buffer,
            calibration,
            learned.replay_state,
            learned.temperature.copy(),
            learned.specs,
            learned.bins,
            learned.dropped,
        )
        x_sd = None if rows.x_sd is None else rows.x_sd[:done]
        weight = None if rows.weight is None else rows.weight[:done]
        y = y if done == stop else y[:done]
        learned, made = self._predict_and_learn(
            learned, z, labels if self.task.scaled else y, x_sd, weight
        )
        update = CalibrationUpdate(
            y, self.settings.robust, self.uses_interval_calibration, self.uses_kernel, weight
        )
        forecast = self.make_forecast(learned, made, update)
        # `predict` uses the mean scale factor, which follows the last rows learned.
        if self.has_overstated_variance:
            calibration[:, MEAN_SCALE_FACTOR] = calibration[:, SCALE_FACTOR]
        return learned, forecast, outgrown

    def _replay_due_rows(self, learned: LearnerState, spent: int) -> LearnerState:
        """Replay the backlog, at most MAX_BURST_ROWS rows including `spent` rows just relearned."""
        backlog = learned.replay_state.backlog
        count = int(min(backlog, max(0, replay.MAX_BURST_ROWS - spent)))
        if count > 0:
            kept = learned.buffer.rows(len(learned.columns) - self.task.scaled)
            replayable = _select_replayable_rows(kept)
            if len(replayable):
                chosen = replay.draw_replay_rows(
                    self.settings.seed, learned.seen, len(replayable), count
                )
                rows = BufferedRows._make(array[replayable[chosen]] for array in kept)
                self._replay_rows(learned, rows)
            else:  # no row can be replayed: clear the backlog
                backlog, count = 0.0, 0
            done = learned.replay_state.rows + count
            learned = learned._replace(
                replay_state=learned.replay_state._replace(backlog=backlog - count, rows=done)
            )
        state = learned.replay_state
        due = learned.seen >= state.correction_row and state.backlog < 1.0
        return self.correct_replayed_state(learned) if due else learned

    def correct_replayed_state(self, learned: LearnerState) -> LearnerState:
        """Remove, once, the surplus information that replayed rows have added."""
        if learned.replay_state.is_corrected or not self.replay_ratio:
            return learned
        return learned._replace(
            members=tuple(
                open_session(replay.remove_replayed_information(member.state()))
                for member in learned.members
            ),
            replay_state=learned.replay_state._replace(is_corrected=True),
        )

    def _update_replay_backlog(self, learned: LearnerState) -> LearnerState:
        """Compute how many buffered rows to replay; a drift alarm resets the schedule."""
        now, ratio = learned.replay_state, self.replay_ratio
        if not replay.is_replay_due(now, learned.seen):
            return learned
        if not now.alarm:
            before = now.backlog
            now = replay.add_to_backlog(now, learned.seen, ratio, self.settings.replay_rows)
            if now.backlog > before and all(spec.replays for spec in learned.specs):
                _drop_outdated_rows(self, learned)
            return learned._replace(replay_state=now)
        learned.buffer.drop_before(now.alarm)
        backlog = min(ratio, replay.ALARM_REPLAY_RATIO) * len(learned.buffer)
        now = now._replace(backlog=float(backlog), since=learned.seen, alarm=0)
        return learned._replace(replay_state=now)


FIRST_REFIT_ROWS = 64
DIRECTION_SEARCH_ROWS = 512
"""Rows up to which a low-rank network recomputes its directions, see kbnn.core.input_moments."""
ALARM_GRACE_ROWS = 128
"""Alarms in the first rows show that little is known yet, not that the stream has changed: rows
before them are still replayed."""
CARRIED_INFORMATION_SHARE = 0.05
"""Share of the information kept after a large change of scale, see kbnn.model.replay."""

OUTGROWN_REPLAY_SHARE = 0.5
"""Share of the usual replay after a restart between the fixed row counts, because a column outgrew
its scale. Rows from before matter less then, and the next restart is often near: more replay gains
nothing, or loses where scales drift."""
MAX_GROUPED_CLASSES = 16
"""Largest number of classes with group covariances. They lower the log-loss by 1 % with 12 classes;
with 40 classes by a third of that, at eight times the run time."""


def _select_last_rows(rows: BufferedRows, targets: int) -> scaler.LastRows:
    """Take the last OUTLIER_ROWS buffered rows, from which outliers are detected."""
    y, x, trust = (part[-scaler.OUTLIER_ROWS :] for part in (rows.y, rows.x, rows.trust))
    return scaler.LastRows(np.hstack([y[:, :targets], x]), targets, trust >= 0.5)


def _scale_backlog(learned: LearnerState, share: float) -> LearnerState:
    """Multiply the number of rows that wait for replay."""
    state = learned.replay_state
    return learned._replace(replay_state=state._replace(backlog=share * state.backlog))


def next_refit(seen: int) -> int:
    """Return the next row count after `seen` at which the scale is checked: 64, 128, 256, ..."""
    return max(FIRST_REFIT_ROWS, 1 << seen.bit_length())


def _relearn_rows(
    state: State,
    z: FloatArray,
    labels: FloatArray,
    var: FloatArray | None,
    weight: FloatArray,
) -> State:
    """Learn buffered rows again in a new scale, without changing counts and input moments.

    The log-variance head restarts from its prior, because it was fitted relative to another noise
    level.
    """
    quiet = open_session(state._replace(config=replace(state.config, drift=False)))
    quiet.learn(np.ascontiguousarray(z), np.ascontiguousarray(labels), var, weight)
    blank = init(state.config)
    return quiet.state()._replace(
        config=state.config,
        counts=state.counts,
        head_mean=blank.head_mean,
        head_cov=blank.head_cov,
        input_mean=state.input_mean,
        input_cov=state.input_cov,
    )


def _carry_alarm_count(old: Session, new: Session) -> Session:
    """Return a network that continues the alarm count of another."""
    state, count = new.state(), old.counts["alarms"]
    counts = state.counts.copy()
    counts[COUNT.alarms] = max(count, min(1, counts[COUNT.alarms]))
    return open_session(state._replace(counts=counts))


def _keep_members(learned: LearnerState, keep: Sequence[int]) -> LearnerState:
    """Return the state with only these networks; the first one counts the alarms of the model."""
    if len(keep) == len(learned.members):
        return learned
    members = [learned.members[k] for k in keep]
    if keep[0] != 0:
        members[0] = _carry_alarm_count(learned.members[0], members[0])
    return learned._replace(
        members=tuple(members),
        specs=tuple(learned.specs[k] for k in keep),
        bins=tuple(learned.bins[k] for k in keep),
        pool=ensemble.select_members(learned.pool, keep),
    )


def encode_for_members(
    learned: LearnerState, z: FloatArray, var: FloatArray | None
) -> list[tuple[FloatArray, FloatArray | None]]:
    """Return the inputs of each network and their variances; equal encodings are computed once."""
    made: dict[tuple[Any, ...], tuple[FloatArray, FloatArray | None]] = {}
    found = []
    for spec, bins in zip(learned.specs, learned.bins, strict=True):
        key = id(bins), spec.inputs, spec.excludes
        if key not in made:
            made[key] = encode_member_inputs(spec, bins, z, var)
        found.append(made[key])
    return found


def encode_member_inputs(
    spec: Member, bins: FloatArray, z: FloatArray, var: FloatArray | None
) -> tuple[FloatArray, FloatArray | None]:
    """Return the inputs of one network, of those that it sees, and their variances."""
    if ensemble.sees_all_inputs(spec):
        return encode_inputs(bins, z, var)
    mean, spread = encode_inputs(bins, z, var)
    kept = [*range(len(bins)), *(len(bins) + at for at in ensemble.list_inputs(spec, z.shape[1]))]
    return (
        np.ascontiguousarray(mean[:, kept]),
        None if spread is None else np.ascontiguousarray(spread[:, kept]),
    )


def _compute_inlier_probability(forecast: Forecast) -> FloatArray | None:
    """Return the probability that each target is not an outlier; None if not modelled."""
    return None if math.isnan(forecast.outlier.item(0)) else 1.0 - forecast.outlier


def _select_replayable_rows(rows: BufferedRows) -> IntArray:
    """Select rows with a target that is probably not an outlier.

    -inf counts as a target, see kbnn.targets.amount.
    """
    return np.flatnonzero((rows.y < np.inf).any(axis=1) & (rows.trust >= 0.5))


def _drop_outdated_rows(learner: Learner, learned: LearnerState) -> None:
    """Drop the older half of the buffer if the network fits the oldest rows worse.

    All buffered rows were learned. Only a gradual change makes the oldest fit worse than the
    newest; replaying them would undo what the network has learned since. An ensemble with a
    network that does not replay needs no such test.
    """
    kept = learned.buffer.rows(len(learned.columns) - learner.task.scaled)
    replayable = _select_replayable_rows(kept)
    if len(replayable) < 2 * replay.COMPARED_ROWS:
        return
    ends = np.concatenate((replayable[: replay.COMPARED_ROWS], replayable[-replay.COMPARED_ROWS :]))
    rows = BufferedRows._make(array[ends] for array in kept)
    z, labels, x_sd = learner._standardize_buffered_rows(learned.columns, rows)
    inputs = encode_for_members(learned, z, learner._scale_input_variances(learned.columns, x_sd))
    made = predict_parallel(learned.members[0], *inputs[0])
    with np.errstate(over="ignore"):  # an extreme target has the log likelihood -inf
        scores = learner.task.log_likelihood(made, np.ascontiguousarray(labels))
    if replay.are_outdated(*np.split(scores, 2)):
        learned.buffer.drop_before(int(kept.number[replayable[len(replayable) // 2]]))


def _restore_first_probability(forecast: Forecast, earlier_forecast: Forecast | None) -> Forecast:
    """Replace the first row's probabilities by those predicted before its class was known."""
    if earlier_forecast is None:
        return forecast
    probability = forecast.probability.copy()
    probability[0] = 0.0
    probability[0, : earlier_forecast.probability.shape[1]] = earlier_forecast.probability[0]
    return forecast._replace(probability=probability)


def make_learner(schema: Schema, settings: Settings, task: TargetType | None = None) -> Learner:
    """Create the learner of a candidate; `task` is its target type if that exists already."""
    if task is None:
        task = make_target_type(schema, settings)
    task.schema = schema
    layout, late = schema.layout, {column.name for column in schema.columns if column.late}
    indicators = np.array([place.category is not None for place in layout], np.float64)
    came_late = np.array([place.column in late for place in layout], np.float64)
    waves = schema.cycle_columns
    cycles = np.array([place.column in waves for place in layout], np.float64)
    own = _find_own_inputs(schema)
    return Learner(
        settings,
        task,
        indicators,
        came_late,
        cycles,
        bool(schema.lags),
        own,
        _find_optional_inputs(schema),
    )


def _find_own_inputs(schema: Schema) -> tuple[int, ...]:
    """Return the inputs that are lags of the target or of the clock, if there are others beside.

    Empty without lags of the target.
    """
    own = {lag.name for lag in schema.lags if lag.column in schema.targets}
    if not own:
        return ()
    own |= set(() if schema.clock is None else schema.clock.names)
    found = tuple(at for at, place in enumerate(schema.layout) if place.column in own)
    return found if len(found) < len(schema.layout) else ()


def _find_optional_inputs(schema: Schema) -> tuple[int, ...]:
    """Return the inputs that are lags of other columns and must earn their place."""
    optional = {lag.name for lag in schema.lags if lag.optional}
    return tuple(at for at, place in enumerate(schema.layout) if place.column in optional)
