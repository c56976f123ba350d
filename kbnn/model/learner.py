"""What has been learned, and what happened among the rows of a step.

How networks are asked and taught: rows in their scale, what they say in the user's units.

How networks begin, grow and change their scale.

The first rows are kept: as long as they are all there ever was, a new scale means a new beginning.
Later a network is carried into the new scale (kbnn.model.rescale).

Networks that learn rows in the user's units: standardise, grow, predict, learn, change scale.

What has been learned goes in and comes out: `advance(learned, rows)` gives it back with the
forecasts of its rows and the events among them. Nothing depends on how rows are grouped into
blocks: the network grows at the row that needs it, and the scale changes after fixed row counts or
at the row that outgrew it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kbnn.array_types import FloatArray, IntArray
from kbnn.core import kernel
from kbnn.core.config import Config
from kbnn.core.input_moments import is_view_outdated, leading_directions
from kbnn.core.kernel import Prediction, Session, open_session, predict_parallel
from kbnn.core.reference import ALARM, LEARNED, UNLABELLED
from kbnn.core.state import State, init
from kbnn.data.batch import Rows, make_fill_values, pad_columns, slice_rows
from kbnn.distributions.calibration import (
    MEAN_SCALE_FACTOR,
    SCALE_FACTOR,
    reset_scale_and_gains,
    shrink_scale,
)
from kbnn.distributions.temperature import NO_TEMPERATURE, extend_classes
from kbnn.model import ensemble, replay, scaler
from kbnn.model.limits import is_within_limits
from kbnn.model.replay import ReplayState
from kbnn.model.replay_buffer import BufferedRows, ReplayBuffer, compute_buffer_rows
from kbnn.model.rescale import grow_state, rescale_state
from kbnn.model.scaler import Scale
from kbnn.model.settings import Settings
from kbnn.targets.base import CalibrationUpdate, TargetScale, TargetType
from kbnn.targets.prediction import Forecast


class LearnerState(NamedTuple):
    """What has been learned; `advance` uses it up.

    The members are open beliefs that move on in place, and so do the rows kept. `columns` holds
    the statistics of the scaled targets and then of the inputs. While there are no members, the
    rows kept are those held.
    """

    members: tuple[Session, ...]
    columns: FloatArray
    log_weight: FloatArray
    seen: int  # rows counted into the scale
    changes: int  # of the scale
    kept: ReplayBuffer
    tails: FloatArray  # of what is stated, see kbnn.distributions.calibration
    rehearsal: ReplayState = ReplayState()
    sharpness: FloatArray = (
        NO_TEMPERATURE  # of what is stated of classes, see kbnn.distributions.temperature
    )


class LearnEvents(NamedTuple):
    """What happened among the rows of one step."""

    alarms: list[int]  # numbers of the rows that raised one
    skipped: int = 0  # rows without a target
    restarted: bool = False  # all rows were learned anew: these are all alarms there were


def copy_state(state: LearnerState) -> LearnerState:
    """The same, to go another way."""
    return state._replace(
        members=tuple(open_session(member.state()) for member in state.members),
        kept=state.kept.copy(),
    )


def record_alarm(state: LearnerState, number: int) -> LearnerState:
    """After an alarm raised by the row of that number."""
    return state._replace(rehearsal=state.rehearsal._replace(alarm=number))


def events_of(said: Forecast, first: int) -> LearnEvents:
    """What the status of rows tells, the first of them row `first` of the stream."""
    if not int(np.bitwise_or.reduce(said.status)) & (ALARM | UNLABELLED):
        return LearnEvents([])
    raised = np.flatnonzero(said.status & ALARM)
    skipped = int(np.count_nonzero(said.status & UNLABELLED))
    return LearnEvents([first + int(at) for at in raised], skipped)


@dataclass(frozen=True)
class Networks:
    """The settings, the task, and which columns of x are indicators of a category.

    An indicator passes as it is. One that has been 0 in every row so far is not part of the network
    yet, and neither is a number that came after the first rows and has been missing in all.
    """

    settings: Settings
    task: TargetType
    indicators: FloatArray  # (D,) 1 or 0
    late: FloatArray  # (D,) 1 for columns that came after the first rows, else 0
    cycles: FloatArray  # (D,) 1 for sines and cosines, which need no scale, else 0

    @cached_property
    def unscaled_inputs(self) -> FloatArray:
        """1 for the columns of x that pass as they are."""
        return np.maximum(self.indicators, self.cycles)

    @cached_property
    def unscaled_columns(self) -> FloatArray:
        """1 for the columns, scaled targets first, that pass as they are."""
        every = np.concatenate((np.zeros(self.task.scaled), self.unscaled_inputs))
        return every if self.settings.units else np.ones_like(every)

    @cached_property
    def uses_kernel(self) -> bool:
        """Whether the kernel serves: to ask for every row would cost more than to scale it."""
        return kernel.is_compiled()

    @cached_property
    def replay_ratio(self) -> int:
        """How often a row is rehearsed while the stream is young."""
        return self.settings.replay_ratio

    @cached_property
    def has_overstated_variance(self) -> bool:
        """Whether networks overstate what they do not know, as the paper's smoother does."""
        return self.settings.covariance == "paper" and self.task.uses_scale_calibration(
            self.settings.robust
        )

    @cached_property
    def uses_interval_calibration(self) -> bool:
        """Whether intervals are kept to their promise."""
        return self.settings.intervals == "tracked"

    def predict(self, learned: LearnerState, x: FloatArray, x_sd: FloatArray | None) -> Forecast:
        """Predict rows; nothing changes."""
        width = len(learned.columns) - self.task.scaled
        z = scaler.standardize_rows(
            learned.columns[self.task.scaled :], x[:, :width], self.unscaled_inputs[:width]
        )
        return self.predict_standardized(
            learned, z, self._scale_input_variances(learned.columns, x_sd)
        )

    def predict_standardized(
        self, learned: LearnerState, z: FloatArray, var: FloatArray | None = None
    ) -> Forecast:
        """Predict rows that are in the network's scale already; nothing changes."""
        if len(learned.members) == 1:
            return self._make_forecast(learned, predict_parallel(learned.members[0], z, var))
        made = ensemble.map_members(
            lambda member: predict_parallel(member, z, var), learned.members
        )
        weights = np.tile(ensemble.mixture_weights(learned.log_weight), (len(z), 1))
        return self._make_forecast(learned, ensemble.mix_predictions(made, weights))

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
        z, labels = np.ascontiguousarray(z), np.ascontiguousarray(labels)
        var = self._scale_input_variances(learned.columns, x_sd)
        weight = None if weight is None else np.ascontiguousarray(weight)
        if len(learned.members) == 1:
            return learned, learned.members[0].learn(z, labels, var, weight, again)
        made = ensemble.map_members(
            lambda member: member.learn(z, labels, var, weight, again), learned.members
        )
        scores = np.stack([self.task.log_likelihood(one, labels) for one in made], axis=1)
        weights, log_weight = ensemble.update_weights(learned.log_weight, scores)
        return learned._replace(log_weight=log_weight), ensemble.mix_predictions(made, weights)

    def _replay_rows(self, learned: LearnerState, rows: BufferedRows) -> None:
        """All members learn these rows once more."""
        z, labels, x_sd = self._standardize_buffered_rows(learned.columns, rows)
        var = self._scale_input_variances(learned.columns, x_sd)
        z, labels = np.ascontiguousarray(z), np.ascontiguousarray(labels)
        settled = learned.rehearsal.settled
        ensemble.map_members(
            lambda member: member.replay(z, labels, var, rows.weight, settled), learned.members
        )

    def _scale_input_variances(
        self, columns: FloatArray, x_sd: FloatArray | None
    ) -> FloatArray | None:
        """Measurement variances of the inputs in the network's scale."""
        if x_sd is None or not np.any(x_sd > 0.0):
            return None
        scale = columns[self.task.scaled :, scaler.SCALE]
        safe = np.where(scale > 0.0, scale, np.inf)
        with np.errstate(over="ignore"):  # beyond all numbers is as good as missing
            return np.ascontiguousarray((np.nan_to_num(x_sd[:, : len(scale)]) / safe) ** 2)

    def _standardize_labels(self, columns: FloatArray, y: FloatArray) -> FloatArray:
        t = self.task.scaled
        scaled = y[:, :t]
        z = scaler.standardize_rows(columns[:t], scaled, np.zeros(t))
        return self.task.standardize_targets(y, np.where(np.isnan(scaled), np.nan, z))

    def _standardize_buffered_rows(
        self, columns: FloatArray, rows: BufferedRows
    ) -> tuple[FloatArray, FloatArray, FloatArray | None]:
        """Kept rows in the network's scale, and their stated standard deviations."""
        t = self.task.scaled
        width = len(columns) - t
        x = pad_columns(rows.x, width, make_fill_values(self.indicators))
        x = scaler.standardize_rows(columns[t:], x, self.unscaled_inputs[:width])
        x_sd = pad_columns(rows.x_sd, width) if rows.x_sd.shape[1] else None
        return x, self._standardize_labels(columns, rows.y), x_sd

    def _make_forecast(
        self, learned: LearnerState, made: Prediction, following: CalibrationUpdate | None = None
    ) -> Forecast:
        """In the user's units; tails and sharpness, in place, follow what came true."""
        t, columns = self.task.scaled, learned.columns
        scaled = TargetScale(columns[:t, scaler.CENTER], columns[:t, scaler.SCALE])
        said = self.task.build_forecast(
            made, scaled, self.settings.robust, learned.tails, following
        )
        return self.task.apply_temperature(said, learned.sharpness, following)


FIRST_REFIT_ROWS = 64
DIRECTION_SEARCH_ROWS = 512
"""Rows up to which a wide network looks for its directions anew, see kbnn.core.input_moments."""
ALARM_GRACE_ROWS = 128
"""Rows whose alarms say that little is known yet, not that the world has changed: what was before
them is rehearsed all the same."""
CARRIED_INFORMATION_SHARE = 0.05
"""Share of the old information that outlives a large change of scale, see kbnn.model.replay_buffer."""

MAX_GROUPED_CLASSES = 16
"""Classes up to which a network that began with groups keeps them: of 12 they are worth 1 % of the
log-loss, of 40 a third of that at eight times the time."""


class Changes(Networks):
    """What becomes of networks when rows ask for others."""

    def _create_networks(
        self, learned: LearnerState, rows: BufferedRows, outputs: int
    ) -> tuple[LearnerState, LearnEvents]:
        """Make the networks, and learn their first rows."""
        t = self.task.scaled
        inputs = len(learned.columns) - t
        scale = next(iter(learned.columns[:t, scaler.SCALE].tolist()), 1.0)
        config = self.settings.make_config(self.task, inputs, outputs, scale or 1.0)
        z, labels, x_sd = self._standardize_buffered_rows(learned.columns, rows)
        directions = (
            leading_directions(z, config.directions, config.input_limit)
            if config.directions
            else None
        )
        members = tuple(
            open_session(
                init(
                    config,
                    self.settings.seed + 1000003 * k,
                    mean_scale=means,
                    sd_scale=sds,
                    prior_variance=self.settings.prior_variance,
                    directions=directions,
                    output_mean=self.task.initial_output_mean(rows.y),
                )
            )
            for k in range(self.settings.ensemble)
            for means, sds in [ensemble.prior_scales(k)]
        )
        learned = learned._replace(members=members, log_weight=np.zeros(self.settings.ensemble))
        learned, made = self._predict_and_learn(learned, z, labels, x_sd, rows.weight)
        owed = self.replay_ratio * min(learned.seen, replay.REPLAY_ROWS)
        settled = learned.seen > replay.REPLAY_ROWS
        learned = learned._replace(rehearsal=ReplayState(float(owed), 0, settled))
        learned.kept.set_trust(made.inlier)
        raised = np.flatnonzero(made.status.astype(np.int64) & ALARM)
        alarms = [int(number) for number in rows.number[raised]]
        if len(raised) and raised[-1] >= ALARM_GRACE_ROWS:
            learned = record_alarm(learned, alarms[-1])
        return learned, LearnEvents(alarms, restarted=True)

    def _grow_for_rows(
        self, learned: LearnerState, rows: Rows
    ) -> tuple[LearnerState, Rows, Forecast | None]:
        """Networks that have what the first row needs, and the rows up to the next that needs more.

        What was said of a label that nobody knew cannot have reckoned with it; it comes third.
        """
        width = len(learned.columns) - self.task.scaled
        if rows.x.shape[1] > width:
            used = np.flatnonzero(self._find_needed_inputs(rows.x[:1, width:], width)[0])
            wider = width + (int(used[-1]) + 1 if len(used) else 0)
            if wider > width:
                learned = _grow_networks(learned, wider, learned.members[0].config.outputs)
                learned.kept.fill_values = make_fill_values(self.indicators)
                blank = scaler.blank_columns if self.settings.units else scaler.identity_columns
                more = blank(wider - width)
                learned = learned._replace(columns=np.vstack([learned.columns, more]))
                width = wider
        outputs = learned.members[0].config.outputs
        surprised = None
        stop = self.task.first_row_without_output(rows.y, outputs)
        if stop == 0:
            surprised = self.predict(
                learned, rows.x[:1], None if rows.x_sd is None else rows.x_sd[:1]
            )
            outputs = self.task.count_outputs(rows.y[:1], outputs)
            learned = _grow_networks(
                learned, width, outputs, self._split_groups(learned, width, outputs)
            )
            stop = self.task.first_row_without_output(rows.y, outputs)
        if rows.x.shape[1] > width:
            wide = np.any(self._find_needed_inputs(rows.x[:stop, width:], width), axis=1)
            stop = int(np.argmax(wide)) if wide.any() else stop
        return learned, rows if stop == len(rows.y) else slice_rows(rows, 0, stop), surprised

    def _split_groups(self, learned: LearnerState, inputs: int, outputs: int) -> Config | None:
        """Choose separate neurons once a stream has more classes than groups are meant for.

        The rows before the first network may hold few of the classes that follow; groups cost a
        pass over all covariances for every class of every row.
        """
        now = learned.members[0].config
        wanted = self.settings.make_config(self.task, inputs, outputs, 1.0)
        change = (now.covariance, wanted.covariance)
        if outputs <= MAX_GROUPED_CLASSES or change != ("group", "neuron"):
            return None
        grown = now.resize(inputs, outputs)
        return replace(grown, covariance="neuron", group_size=None, repeats=wanted.repeats)

    def _find_needed_inputs(self, x: FloatArray, start: int) -> NDArray[np.bool_]:
        """Which values of x, its columns from `start` on, a network must have an input for."""
        number = self.indicators[start : start + x.shape[1]] == 0.0
        return np.where(number, ~np.isnan(x), x != 0.0)

    def _refit_scale(self, learned: LearnerState) -> tuple[LearnerState, LearnEvents | None]:
        """Change the scale if the stream has left it; events if all was learned anew."""
        t = self.task.scaled
        width = len(learned.columns) - t
        closely = self.settings.replay_ratio > 0
        fixed, rows = self.unscaled_columns[: t + width], learned.kept.rows(width)
        columns = scaler.refit_scale(learned.columns, fixed, closely, _select_last_rows(rows, t))
        old, new = scaler.get_scale(learned.columns), scaler.get_scale(columns)
        learned = learned._replace(columns=columns)
        outputs, directions = (
            learned.members[0].config.outputs,
            learned.members[0].config.directions,
        )
        same = all(np.array_equal(a, b) for a, b in zip(old, new, strict=True))
        looking = (
            directions and learned.seen <= DIRECTION_SEARCH_ROWS
        )  # for directions, which few rows cannot tell
        if same and not looking:
            return learned, None
        learned = learned._replace(changes=learned.changes + (not same))
        if len(rows.y) == learned.seen <= replay.REPLAY_ROWS:  # all there ever was, and none again
            return self._create_networks(learned, rows, outputs)
        gain, shift = scaler.compute_output_map(old, new, t, outputs)
        before = Scale(old.center[t:], old.scale[t:])
        after = Scale(new.center[t:], new.scale[t:])
        large = not directions and scaler.is_large_change(old, new) and len(rows.y) > 0
        share = CARRIED_INFORMATION_SHARE if large else 1.0
        rows = BufferedRows._make(part[-replay.REPLAY_ROWS :] for part in rows)
        standard = self._standardize_buffered_rows(columns, rows) if large else None

        def rescale_member(member: Session) -> Session:
            state = rescale_state(member.state(), before, after, gain, shift, share)
            if standard is not None:
                z, labels, x_sd = standard
                state = _relearn_rows(
                    state, z, labels, self._scale_input_variances(columns, x_sd), rows.weight
                )
            return open_session(state)

        members = tuple(ensemble.map_members(rescale_member, learned.members))
        if not all(is_within_limits(member.state()) for member in members):
            return self._rebuild_networks(learned, rows), None
        learned = learned._replace(members=members)
        if len(rows.y) >= DIRECTION_SEARCH_ROWS and is_view_outdated(
            learned.members[0].state().view
        ):
            learned = self._rebuild_networks(learned, rows)
        return learned, None

    def _rebuild_networks(self, learned: LearnerState, rows: BufferedRows) -> LearnerState:
        """New networks that learn the stored rows only; counts are carried over.

        Wide networks find their directions in these rows. After a change of scale too large to be
        carried over, nothing else of what was learned has a meaning.
        """
        began, _ = self._create_networks(learned, rows, learned.members[0].config.outputs)
        pairs = zip(began.members, learned.members, strict=True)
        members = [new.state()._replace(counts=old.state().counts) for new, old in pairs]
        return began._replace(
            members=tuple(map(open_session, members)), rehearsal=learned.rehearsal
        )


def _select_last_rows(rows: BufferedRows, targets: int) -> scaler.LastRows:
    """Take what a scale is looked at with from the rows kept."""
    y, x, trust = (part[-scaler.OUTLIER_ROWS :] for part in (rows.y, rows.x, rows.trust))
    return scaler.LastRows(np.hstack([y[:, :targets], x]), targets, trust >= 0.5)


def next_refit(seen: int) -> int:
    """The row count after `seen` at which the scale is looked at: 64, 128, 256, ..."""
    return max(FIRST_REFIT_ROWS, 1 << seen.bit_length())


def _relearn_rows(
    state: State,
    z: FloatArray,
    labels: FloatArray,
    var: FloatArray | None,
    weight: FloatArray,
) -> State:
    """Rows that were learned before, in another scale: counts and inputs are no news.

    The shape of the noise starts anew after them: it was measured against another level.
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


def _grow_networks(
    learned: LearnerState, inputs: int, outputs: int, config: Config | None = None
) -> LearnerState:
    members = tuple(
        open_session(grow_state(member.state(), inputs, outputs, config))
        for member in learned.members
    )
    return learned._replace(members=members, sharpness=extend_classes(learned.sharpness, outputs))


class Learner(Changes):
    """Rows are learned, and rehearsed while a stream is young."""

    def initialize_state(self, kept: ReplayBuffer) -> tuple[LearnerState, LearnEvents]:
        """Take the scale from the rows held, make the networks, and learn the rows in order."""
        kept.fill_values = make_fill_values(self.indicators)
        held = kept.rows(len(self.indicators))
        tails = self.task.init_calibration(self.settings.robust, held.y)
        held = held._replace(y=self.task.link(held.y, tails))
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
            log_weight=np.zeros(self.settings.ensemble),
            seen=len(held.y),
            changes=0,
            kept=ReplayBuffer(
                compute_buffer_rows(width, self.settings.keep), held.y.shape[1], held
            ),
            tails=tails,
            sharpness=self.task.init_temperature(self.settings.robust, outputs, held.y),
        )
        learned, events = self._create_networks(learned, held, outputs)
        return self._replay_due_rows(learned, len(held.y)), events

    def learn_rows(
        self, learned: LearnerState, rows: Rows, first: int, again: bool = False
    ) -> tuple[LearnerState, Forecast, LearnEvents]:
        """Learn rows up to the next growth or change of scale: at least one, perhaps not all.

        `first` is the number of the first row in the stream; `again`: they were learned before.
        """
        learned, rows, surprised = self._grow_for_rows(learned, rows)
        if again:
            learned.kept.clear()
            learned = self.correct_replayed_state(learned)
            width = len(learned.columns) - self.task.scaled
            z = scaler.standardize_rows(
                learned.columns[self.task.scaled :], rows.x[:, :width], self.unscaled_inputs[:width]
            )
            labels = self._standardize_labels(learned.columns, rows.y)
            learned, made = self._predict_and_learn(
                learned, z, labels, rows.x_sd, rows.weight, again=True
            )
            learned = learned._replace(tails=self._calibrate_relearned_rows(learned, labels, made))
            said = self._make_forecast(learned, made)
            return learned, _restore_first_probability(said, surprised), events_of(said, first)
        before = learned.seen
        burst, refit = replay.find_next_burst(learned.rehearsal, before), next_refit(before)
        due = min(refit, burst) if self.replay_ratio else refit
        learned, said, outgrown = self._learn_new_rows(learned, rows, due)
        done = len(said.status)
        known = rows if done == len(rows.y) else slice_rows(rows, 0, done)
        learned.kept.add(
            known, len(learned.columns) - self.task.scaled, first, _compute_inlier_probability(said)
        )
        events = events_of(said, first)
        if events.alarms and before >= ALARM_GRACE_ROWS:
            learned = record_alarm(learned, events.alarms[-1])
        changes, spent = learned.changes, 0
        if refit == learned.seen or outgrown:
            learned, restarted = self._refit_scale(learned)
            if restarted is not None:
                events = events._replace(alarms=restarted.alarms, restarted=True)
            spent = len(learned.kept) if learned.changes > changes else 0
        if learned.seen == burst and self.replay_ratio:
            learned = self._replay_due_rows(self._update_replay_backlog(learned), spent)
        return learned, _restore_first_probability(said, surprised), events

    def _calibrate_relearned_rows(
        self, learned: LearnerState, labels: FloatArray, made: Prediction
    ) -> FloatArray:
        """What is stated from rows of a later pass on, what networks said of them beside them.

        Squares of errors at new rows are larger than at known ones by half the power of passes by
        which what a network does not know is.
        """
        if not self.has_overstated_variance:
            return reset_scale_and_gains(learned.tails)
        with np.errstate(over="ignore"):
            squares = (labels - made.mean) ** 2 / (made.function_var + made.noise_var)
        network = learned.members[0]
        after = np.cumsum((made.status.astype(np.int64) & LEARNED) > 0)
        rows = network.counts["rows"] - after[-1:] + after
        passes = np.maximum(rows / max(1, network.counts["distinct"]), 1.0)
        return shrink_scale(learned.tails, squares, passes ** (0.5 * network.config.repeats))

    def _learn_new_rows(
        self, learned: LearnerState, rows: Rows, due: int
    ) -> tuple[LearnerState, Forecast, bool]:
        """Standardise rows, count them into the scale, and learn them, up to the row count `due`
        or to where a scale is set or outgrown; whether it was outgrown.
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
        tails = learned.tails.copy()
        learned = LearnerState(
            learned.members,
            columns,
            learned.log_weight,
            learned.seen + done,
            learned.changes,
            learned.kept,
            tails,
            learned.rehearsal,
            learned.sharpness.copy(),
        )
        x_sd = None if rows.x_sd is None else rows.x_sd[:done]
        weight = None if rows.weight is None else rows.weight[:done]
        y = y if done == stop else y[:done]
        learned, made = self._predict_and_learn(
            learned, z, self.task.standardize_targets(y, labels), x_sd, weight
        )
        following = CalibrationUpdate(
            y, self.settings.robust, self.uses_interval_calibration, self.uses_kernel, weight
        )
        said = self._make_forecast(learned, made, following)
        if (
            self.has_overstated_variance
        ):  # at rest it goes by the width that the last rows asked for
            tails[:, MEAN_SCALE_FACTOR] = tails[:, SCALE_FACTOR]
        return learned, said, outgrown

    def _replay_due_rows(self, learned: LearnerState, spent: int) -> LearnerState:
        """Rehearse what is owed and may be, `spent` rows having been learned anew just now."""
        debt = learned.rehearsal.debt
        count = int(min(debt, max(0, replay.MAX_BURST_ROWS - spent)))
        if count > 0:
            kept = learned.kept.rows(len(learned.columns) - self.task.scaled)
            worth = _select_replayable_rows(kept)
            if len(worth):
                chosen = replay.draw_replay_rows(
                    self.settings.seed, learned.seen, len(worth), count
                )
                rows = BufferedRows._make(array[worth[chosen]] for array in kept)
                self._replay_rows(learned, rows)
            else:  # what cannot be rehearsed is not owed
                debt, count = 0.0, 0
            done = learned.rehearsal.rows + count
            learned = learned._replace(
                rehearsal=learned.rehearsal._replace(debt=debt - count, rows=done)
            )
        grown = learned.seen >= learned.rehearsal.grown and learned.rehearsal.debt < 1.0
        return self.correct_replayed_state(learned) if grown else learned

    def correct_replayed_state(self, learned: LearnerState) -> LearnerState:
        """The end of youth: what rehearsed rows pretended to know is taken back, once."""
        if learned.rehearsal.settled or not self.replay_ratio:
            return learned
        return learned._replace(
            members=tuple(
                open_session(replay.remove_replayed_information(member.state()))
                for member in learned.members
            ),
            rehearsal=learned.rehearsal._replace(settled=True),
        )

    def _update_replay_backlog(self, learned: LearnerState) -> LearnerState:
        """What is to be rehearsed now; after an alarm the stream is young again."""
        now, often = learned.rehearsal, self.replay_ratio
        if not replay.is_replay_due(now, learned.seen):
            return learned
        if not now.alarm:
            now = replay.add_to_backlog(now, learned.seen, often)
            return learned._replace(rehearsal=now)
        learned.kept.drop_before(now.alarm)
        owed = min(often, replay.ALARM_REPLAY_RATIO) * len(learned.kept)
        now = now._replace(debt=float(owed), since=learned.seen, alarm=0)
        return learned._replace(rehearsal=now)


def _compute_inlier_probability(said: Forecast) -> FloatArray | None:
    """How probable it is that a row's target was no outlier; None: nobody asks, of any row."""
    return None if math.isnan(said.outlier.item(0)) else 1.0 - said.outlier


def _select_replayable_rows(rows: BufferedRows) -> IntArray:
    """Rows with a target that is probably no outlier; -inf is one, see kbnn.targets.amount."""
    return np.flatnonzero((rows.y < np.inf).any(axis=1) & (rows.trust >= 0.5))


def _restore_first_probability(said: Forecast, surprised: Forecast | None) -> Forecast:
    """The forecasts with that of the first row as it was before its class was known."""
    if surprised is None:
        return said
    probability = said.probability.copy()
    probability[0] = 0.0
    probability[0, : surprised.probability.shape[1]] = surprised.probability[0]
    return said._replace(probability=probability)
