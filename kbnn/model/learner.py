"""Networks that learn rows in the user's units: standardise, grow, predict, learn, change scale.

What has been learned goes in and comes out: `advance(learned, rows)` gives it back with the
forecasts of its rows and the events among them. Nothing depends on how rows are grouped into
blocks: the network grows at the row that needs it, and the scale changes after fixed row counts or
at the row that outgrew it.
"""

from __future__ import annotations

import math

import numpy as np

from kbnn.core.engine import open_session
from kbnn.core.layout import IntArray
from kbnn.core.network import LEARNED, Prediction
from kbnn.core.normal import FloatArray
from kbnn.core.tails import MEAN_SCALE_FACTOR, SCALE_FACTOR, reset_scale_and_gains, shrink_scale
from kbnn.model import rehearsal, scaling
from kbnn.model.changes import ALARM_GRACE_ROWS, Changes, next_refit
from kbnn.model.learned import LearnerState, LearnEvents, events_of, record_alarm
from kbnn.model.rows import Rows, make_fill_values, slice_rows
from kbnn.model.warmup import BufferedRows, ReplayBuffer, compute_buffer_rows
from kbnn.task.base import CalibrationUpdate
from kbnn.task.forecast import Forecast


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
            columns=scaling.fit_scaler(raw) if units else scaling.identity_columns(raw.shape[1]),
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
            z = scaling.standardize_rows(
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
        burst, refit = rehearsal.find_next_burst(learned.rehearsal, before), next_refit(before)
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
        labels, z, outgrown = scaling.standardize_and_update(
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
        count = int(min(debt, max(0, rehearsal.MAX_BURST_ROWS - spent)))
        if count > 0:
            kept = learned.kept.rows(len(learned.columns) - self.task.scaled)
            worth = _select_replayable_rows(kept)
            if len(worth):
                chosen = rehearsal.draw_replay_rows(
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
                open_session(rehearsal.remove_replayed_information(member.state()))
                for member in learned.members
            ),
            rehearsal=learned.rehearsal._replace(settled=True),
        )

    def _update_replay_backlog(self, learned: LearnerState) -> LearnerState:
        """What is to be rehearsed now; after an alarm the stream is young again."""
        now, often = learned.rehearsal, self.replay_ratio
        if not rehearsal.is_replay_due(now, learned.seen):
            return learned
        if not now.alarm:
            now = rehearsal.add_to_backlog(now, learned.seen, often)
            return learned._replace(rehearsal=now)
        learned.kept.drop_before(now.alarm)
        owed = min(often, rehearsal.ALARM_REPLAY_RATIO) * len(learned.kept)
        now = now._replace(debt=float(owed), since=learned.seen, alarm=0)
        return learned._replace(rehearsal=now)


def _compute_inlier_probability(said: Forecast) -> FloatArray | None:
    """How probable it is that a row's target was no outlier; None: nobody asks, of any row."""
    return None if math.isnan(said.outlier.item(0)) else 1.0 - said.outlier


def _select_replayable_rows(rows: BufferedRows) -> IntArray:
    """Rows with a target that is probably no outlier; -inf is one, see kbnn.task.amount."""
    return np.flatnonzero((rows.y < np.inf).any(axis=1) & (rows.trust >= 0.5))


def _restore_first_probability(said: Forecast, surprised: Forecast | None) -> Forecast:
    """The forecasts with that of the first row as it was before its class was known."""
    if surprised is None:
        return said
    probability = said.probability.copy()
    probability[0] = 0.0
    probability[0, : surprised.probability.shape[1]] = surprised.probability[0]
    return said._replace(probability=probability)
