"""How networks begin, grow and change their scale.

The first rows are kept: as long as they are all there ever was, a new scale means a new beginning.
Later a network is carried into the new scale (kbnn.model.rescale).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from kbnn.core.config import Config
from kbnn.core.engine import Session, open_session
from kbnn.core.network import ALARM
from kbnn.core.normal import FloatArray
from kbnn.core.sharpness import extend_classes
from kbnn.core.state import State, init
from kbnn.core.wide import is_view_outdated, leading_directions
from kbnn.model import ensemble, rehearsal, scaling
from kbnn.model.growth import grow_state
from kbnn.model.learned import LearnerState, LearnEvents, record_alarm
from kbnn.model.limits import is_within_limits
from kbnn.model.networks import Networks
from kbnn.model.rehearsal import ReplayState
from kbnn.model.rescale import rescale_state
from kbnn.model.rows import Rows, make_fill_values, slice_rows
from kbnn.model.scaling import Scale
from kbnn.model.warmup import BufferedRows
from kbnn.task.forecast import Forecast

FIRST_REFIT_ROWS = 64
DIRECTION_SEARCH_ROWS = 512
"""Rows up to which a wide network looks for its directions anew, see kbnn.core.wide."""
ALARM_GRACE_ROWS = 128
"""Rows whose alarms say that little is known yet, not that the world has changed: what was before
them is rehearsed all the same."""
CARRIED_INFORMATION_SHARE = 0.05
"""Share of the old information that outlives a large change of scale, see kbnn.model.warmup."""

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
        scale = next(iter(learned.columns[:t, scaling.SCALE].tolist()), 1.0)
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
        owed = self.replay_ratio * min(learned.seen, rehearsal.REPLAY_ROWS)
        settled = learned.seen > rehearsal.REPLAY_ROWS
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
                blank = scaling.blank_columns if self.settings.units else scaling.identity_columns
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
        columns = scaling.refit_scale(learned.columns, fixed, closely, _select_last_rows(rows, t))
        old, new = scaling.get_scale(learned.columns), scaling.get_scale(columns)
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
        if (
            len(rows.y) == learned.seen <= rehearsal.REPLAY_ROWS
        ):  # all there ever was, and none again
            return self._create_networks(learned, rows, outputs)
        gain, shift = scaling.compute_output_map(old, new, t, outputs)
        before = Scale(old.center[t:], old.scale[t:])
        after = Scale(new.center[t:], new.scale[t:])
        large = not directions and scaling.is_large_change(old, new) and len(rows.y) > 0
        share = CARRIED_INFORMATION_SHARE if large else 1.0
        rows = BufferedRows._make(part[-rehearsal.REPLAY_ROWS :] for part in rows)
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


def _select_last_rows(rows: BufferedRows, targets: int) -> scaling.LastRows:
    """Take what a scale is looked at with from the rows kept."""
    y, x, trust = (part[-scaling.OUTLIER_ROWS :] for part in (rows.y, rows.x, rows.trust))
    return scaling.LastRows(np.hstack([y[:, :targets], x]), targets, trust >= 0.5)


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
