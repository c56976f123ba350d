"""Networks that learn rows in the user's units: standardise, grow, predict, learn, change scale.

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

from kbnn.core import engine
from kbnn.core.config import NO_LIMIT
from kbnn.core.engine import Session, open_session
from kbnn.core.layout import IntArray
from kbnn.core.network import ALARM, LEARNED, UNLABELLED, Prediction, predicted
from kbnn.core.normal import FloatArray
from kbnn.core.state import State, init
from kbnn.core.tails import known_again
from kbnn.core.wide import leading, strayed
from kbnn.model import ensemble, rehearsal, scaling
from kbnn.model.growth import grow
from kbnn.model.rehearsal import Rehearsal
from kbnn.model.rescale import rescaled
from kbnn.model.rows import Rows, sliced
from kbnn.model.scaling import Scale
from kbnn.model.settings import Settings
from kbnn.model.warmup import Kept, KeptRows, rows_kept, unseen, widened
from kbnn.task.base import Following, Scaled, Task
from kbnn.task.forecast import Forecast

FIRST_REFIT = 64
VIEWED = 512
"""Rows up to which a wide network looks for its directions anew, see kbnn.core.wide."""
SETTLING = 128
"""Rows whose alarms say that little is known yet, not that the world has changed: what was before
them is rehearsed all the same."""
KNOWLEDGE_CARRIED = 0.05
"""Share of the old information that outlives a large change of scale, see kbnn.model.warmup."""


class Learned(NamedTuple):
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
    kept: Kept
    tails: FloatArray  # of what is stated, see kbnn.core.tails
    rehearsal: Rehearsal = Rehearsal()


class Events(NamedTuple):
    """What happened among the rows of one step."""

    alarms: list[int]  # numbers of the rows that raised one
    skipped: int = 0  # rows without a target
    restarted: bool = False  # all rows were learned anew: these are all alarms there were


@dataclass(frozen=True)
class Learner:
    """How to learn: the settings, the task, and which columns of x are indicators of a category.

    An indicator passes as it is. One that has been 0 in every row so far is not part of the network
    yet, and neither is a number that came after the first rows and has been missing in all.
    """

    settings: Settings
    task: Task
    indicators: FloatArray  # (D,) 1 or 0
    late: FloatArray  # (D,) 1 for columns that came after the first rows, else 0
    cycles: FloatArray  # (D,) 1 for sines and cosines, which need no scale, else 0

    @cached_property
    def as_is(self) -> FloatArray:
        """1 for the columns of x that pass as they are."""
        return np.maximum(self.indicators, self.cycles)

    @cached_property
    def passing(self) -> FloatArray:
        """1 for the columns, scaled targets first, that pass as they are."""
        every = np.concatenate((np.zeros(self.task.scaled), self.as_is))
        return every if self.settings.units else np.ones_like(every)

    @cached_property
    def compiled(self) -> bool:
        """Whether the kernel serves: to ask for every row would cost more than to scale it."""
        return engine.compiled()

    @cached_property
    def often(self) -> int:
        """How often a row is rehearsed while the stream is young."""
        return self.settings.often

    @cached_property
    def tracked(self) -> bool:
        """Whether intervals are kept to their promise."""
        return self.settings.intervals == "tracked"

    def start(self, kept: Kept) -> tuple[Learned, Events]:
        """Take the scale from the rows held, make the networks, and learn the rows in order."""
        kept.unseen = unseen(self.indicators)
        held = kept.rows(len(self.indicators))
        tails = self.task.tails(self.settings.robust, held.y)
        held = held._replace(y=self.task.linked(held.y, tails))
        used = np.flatnonzero(
            np.any(self._needed(held.x, 0), axis=0) | (self.indicators + self.late == 0.0)
        )
        width = int(used[-1]) + 1 if len(used) else 0
        held = held._replace(x=held.x[:, :width], x_sd=held.x_sd[:, :width])
        raw = np.hstack([held.y, held.x]) if self.task.scaled else held.x
        units = self.settings.units
        learned = Learned(
            members=(),
            columns=scaling.warm_up(raw) if units else scaling.given_columns(raw.shape[1]),
            log_weight=np.zeros(self.settings.ensemble),
            seen=len(held.y),
            changes=0,
            kept=Kept(rows_kept(width, self.settings.keep), held.y.shape[1], held),
            tails=tails,
        )
        learned, events = self._begin(learned, held, self.task.outputs(held.y))
        return self._rehearsed(learned, len(held.y)), events

    def predict(self, learned: Learned, x: FloatArray, x_sd: FloatArray | None) -> Forecast:
        """Predict rows; nothing changes."""
        width = len(learned.columns) - self.task.scaled
        z = scaling.standardise(
            learned.columns[self.task.scaled :], x[:, :width], self.as_is[:width]
        )
        var = self._variances(learned.columns, x_sd)
        if len(learned.members) == 1:
            return self._forecast(learned, predicted(learned.members[0], z, var))
        made = ensemble.in_parallel(lambda member: predicted(member, z, var), learned.members)
        weights = np.tile(ensemble.mixture_weights(learned.log_weight), (len(z), 1))
        return self._forecast(learned, ensemble.mix(made, weights))

    def advance(
        self, learned: Learned, rows: Rows, first: int, again: bool = False
    ) -> tuple[Learned, Forecast, Events]:
        """Learn rows up to the next growth or change of scale: at least one, perhaps not all.

        `first` is the number of the first row in the stream; `again`: they were learned before.
        """
        learned, rows, surprised = self._grown(learned, rows)
        if again:
            learned.kept.clear()
            learned = self.settled(learned)
            width = len(learned.columns) - self.task.scaled
            z = scaling.standardise(
                learned.columns[self.task.scaled :], rows.x[:, :width], self.as_is[:width]
            )
            labels = self._labels(learned.columns, rows.y)
            learned, made = self._step(learned, z, labels, rows.x_sd, rows.weight, again=True)
            learned = learned._replace(tails=known_again(learned.tails))
            said = self._forecast(learned, made)
            return learned, _as_before(said, surprised), _events(said, first)
        before = learned.seen
        burst, refit = rehearsal.next_burst(learned.rehearsal, before), next_refit(before)
        due = min(refit, burst) if self.often else refit
        learned, said, outgrown = self._follow(learned, rows, due)
        done = len(said.status)
        known = rows if done == len(rows.y) else sliced(rows, 0, done)
        learned.kept.add(known, len(learned.columns) - self.task.scaled, first, _trust(said))
        events = _events(said, first)
        if events.alarms and before >= SETTLING:
            learned = _warned(learned, events.alarms[-1])
        changes, spent = learned.changes, 0
        if refit == learned.seen or outgrown:
            learned, restarted = self._refit(learned)
            if restarted is not None:
                events = events._replace(alarms=restarted.alarms, restarted=True)
            spent = len(learned.kept) if learned.changes > changes else 0
        if learned.seen == burst and self.often:
            learned = self._rehearsed(self._owing(learned), spent)
        return learned, _as_before(said, surprised), events

    def _follow(self, learned: Learned, rows: Rows, due: int) -> tuple[Learned, Forecast, bool]:
        """Standardise rows, count them into the scale, and learn them, up to the row count `due`
        or to where a scale is set or outgrown; whether it was outgrown.
        """
        t = self.task.scaled
        width = len(learned.columns) - t
        fixed = self.passing[: t + width]
        stop = min(len(rows.y), due - learned.seen)
        x, y = rows.x, rows.y
        if x.shape != (stop, width):
            x, y = x[:stop, :width], y[:stop]
        columns = learned.columns.copy()
        labels, z, outgrown = scaling.follow(columns, y if t else y[:, :0], x, fixed, self.compiled)
        done = len(z)
        tails = learned.tails.copy()
        learned = Learned(
            learned.members,
            columns,
            learned.log_weight,
            learned.seen + done,
            learned.changes,
            learned.kept,
            tails,
            learned.rehearsal,
        )
        x_sd = None if rows.x_sd is None else rows.x_sd[:done]
        weight = None if rows.weight is None else rows.weight[:done]
        y = y if done == stop else y[:done]
        learned, made = self._step(learned, z, labels if t else y, x_sd, weight)
        following = Following(y, self.settings.robust, self.tracked, self.compiled)
        return learned, self._forecast(learned, made, following), outgrown

    def _step(
        self,
        learned: Learned,
        z: FloatArray,
        labels: FloatArray,
        x_sd: FloatArray | None,
        weight: FloatArray | None,
        again: bool = False,
    ) -> tuple[Learned, Prediction]:
        """Predict and learn standardised rows."""
        if not self.settings.units:  # beyond this no belief could be kept
            labels = np.where(np.abs(labels) > NO_LIMIT, np.copysign(np.inf, labels), labels)
        z, labels = np.ascontiguousarray(z), np.ascontiguousarray(labels)
        var = self._variances(learned.columns, x_sd)
        counts = None if weight is None else np.ascontiguousarray(weight)
        if len(learned.members) == 1:
            return learned, learned.members[0].learn(z, labels, var, counts, again)
        made = ensemble.in_parallel(
            lambda member: member.learn(z, labels, var, counts, again), learned.members
        )
        scores = np.stack([self.task.log_likelihood(one, labels) for one in made], axis=1)
        weights, log_weight = ensemble.follow_weights(learned.log_weight, scores)
        return learned._replace(log_weight=log_weight), ensemble.mix(made, weights)

    def _rehearsed(self, learned: Learned, spent: int) -> Learned:
        """Rehearse what is owed and may be, `spent` rows having been learned anew just now."""
        debt = learned.rehearsal.debt
        count = int(min(debt, max(0, rehearsal.BUDGET - spent)))
        if count > 0:
            kept = learned.kept.rows(len(learned.columns) - self.task.scaled)
            worth = _worth_rehearsing(kept)
            if len(worth):
                chosen = rehearsal.drawn(self.settings.seed, learned.seen, len(worth), count)
                rows = KeptRows._make(array[worth[chosen]] for array in kept)
                self._rehearse(learned, rows)
            else:  # what cannot be rehearsed is not owed
                debt, count = 0.0, 0
            done = learned.rehearsal.rows + count
            learned = learned._replace(
                rehearsal=learned.rehearsal._replace(debt=debt - count, rows=done)
            )
        grown = learned.seen >= rehearsal.YOUNG and learned.rehearsal.debt < 1.0
        return self.settled(learned) if grown else learned

    def _rehearse(self, learned: Learned, rows: KeptRows) -> None:
        """All members learn these rows once more."""
        z, labels, x_sd = self._standard(learned.columns, rows)
        var = self._variances(learned.columns, x_sd)
        z, labels = np.ascontiguousarray(z), np.ascontiguousarray(labels)
        settled = learned.rehearsal.settled
        ensemble.in_parallel(
            lambda member: member.rehearse(z, labels, var, rows.weight, settled), learned.members
        )

    def settled(self, learned: Learned) -> Learned:
        """The end of youth: what rehearsed rows pretended to know is taken back, once."""
        if learned.rehearsal.settled or not self.often:
            return learned
        return learned._replace(
            members=tuple(
                open_session(rehearsal.taken_back(member.state())) for member in learned.members
            ),
            rehearsal=learned.rehearsal._replace(settled=True),
        )

    def _owing(self, learned: Learned) -> Learned:
        """What is to be rehearsed now; after an alarm the stream is young again."""
        now, often = learned.rehearsal, self.often
        if not rehearsal.accrues(now, learned.seen):
            return learned
        if not now.alarm:
            now = rehearsal.accrued(now, learned.seen, often)
            return learned._replace(rehearsal=now)
        learned.kept.drop_before(now.alarm)
        owed = min(often, rehearsal.AFTER_ALARM) * len(learned.kept)
        now = now._replace(debt=float(owed), since=learned.seen, alarm=0)
        return learned._replace(rehearsal=now)

    def _begin(self, learned: Learned, rows: KeptRows, outputs: int) -> tuple[Learned, Events]:
        """Make the networks, and learn their first rows."""
        t = self.task.scaled
        inputs = len(learned.columns) - t
        scale = float(learned.columns[0, scaling.SCALE]) if t else 1.0
        config = self.settings.config(self.task, inputs, outputs, scale or 1.0)
        z, labels, x_sd = self._standard(learned.columns, rows)
        directions = (
            leading(z, config.directions, config.input_limit) if config.directions else None
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
                    output_mean=self.task.output_mean(rows.y),
                )
            )
            for k in range(self.settings.ensemble)
            for means, sds in [ensemble.prior_scales(k)]
        )
        learned = learned._replace(members=members, log_weight=np.zeros(self.settings.ensemble))
        learned, made = self._step(learned, z, labels, x_sd, rows.weight)
        owed = self.often * min(learned.seen, rehearsal.YOUNG)
        settled = learned.seen > rehearsal.YOUNG
        learned = learned._replace(rehearsal=Rehearsal(float(owed), 0, settled))
        learned.kept.trusted(made.inlier)
        raised = np.flatnonzero(made.status.astype(np.int64) & ALARM)
        alarms = [int(number) for number in rows.number[raised]]
        if len(raised) and raised[-1] >= SETTLING:
            learned = _warned(learned, alarms[-1])
        return learned, Events(alarms, restarted=True)

    def _grown(self, learned: Learned, rows: Rows) -> tuple[Learned, Rows, Forecast | None]:
        """Networks that have what the first row needs, and the rows up to the next that needs more.

        What was said of a label that nobody knew cannot have reckoned with it; it comes third.
        """
        width = len(learned.columns) - self.task.scaled
        if rows.x.shape[1] > width:
            used = np.flatnonzero(self._needed(rows.x[:1, width:], width)[0])
            wider = width + (int(used[-1]) + 1 if len(used) else 0)
            if wider > width:
                learned = _grow(learned, wider, learned.members[0].config.outputs)
                learned.kept.unseen = unseen(self.indicators)
                blank = scaling.blank_columns if self.settings.units else scaling.given_columns
                more = blank(wider - width)
                learned = learned._replace(columns=np.vstack([learned.columns, more]))
                width = wider
        outputs = learned.members[0].config.outputs
        surprised = None
        stop = self.task.beyond(rows.y, outputs)
        if stop == 0:
            surprised = self.predict(
                learned, rows.x[:1], None if rows.x_sd is None else rows.x_sd[:1]
            )
            outputs = self.task.outputs(rows.y[:1], outputs)
            learned = _grow(learned, width, outputs)
            stop = self.task.beyond(rows.y, outputs)
        if rows.x.shape[1] > width:
            wide = np.any(self._needed(rows.x[:stop, width:], width), axis=1)
            stop = int(np.argmax(wide)) if wide.any() else stop
        return learned, rows if stop == len(rows.y) else sliced(rows, 0, stop), surprised

    def _needed(self, x: FloatArray, start: int) -> NDArray[np.bool_]:
        """Which values of x, its columns from `start` on, a network must have an input for."""
        number = self.indicators[start : start + x.shape[1]] == 0.0
        return np.where(number, ~np.isnan(x), x != 0.0)

    def _variances(self, columns: FloatArray, x_sd: FloatArray | None) -> FloatArray | None:
        """Measurement variances of the inputs in the network's scale."""
        if x_sd is None or not np.any(x_sd > 0.0):
            return None
        scale = columns[self.task.scaled :, scaling.SCALE]
        safe = np.where(scale > 0.0, scale, np.inf)
        with np.errstate(over="ignore"):  # beyond all numbers is as good as missing
            return np.ascontiguousarray((np.nan_to_num(x_sd[:, : len(scale)]) / safe) ** 2)

    def _labels(self, columns: FloatArray, y: FloatArray) -> FloatArray:
        t = self.task.scaled
        if not t:
            return y
        z = scaling.standardise(columns[:t], y, np.zeros(t))
        return np.where(np.isnan(y), np.nan, z)

    def _standard(
        self, columns: FloatArray, rows: KeptRows
    ) -> tuple[FloatArray, FloatArray, FloatArray | None]:
        """Kept rows in the network's scale, and their stated standard deviations."""
        t = self.task.scaled
        width = len(columns) - t
        x = widened(rows.x, width, unseen(self.indicators))
        x = scaling.standardise(columns[t:], x, self.as_is[:width])
        x_sd = widened(rows.x_sd, width) if rows.x_sd.shape[1] else None
        return x, self._labels(columns, rows.y), x_sd

    def _forecast(
        self, learned: Learned, made: Prediction, following: Following | None = None
    ) -> Forecast:
        """A prediction in the user's units; the tails, in place, follow what came true."""
        t, columns = self.task.scaled, learned.columns
        scaled = Scaled(columns[:t, scaling.CENTER], columns[:t, scaling.SCALE])
        return self.task.forecast(made, scaled, self.settings.robust, learned.tails, following)

    def _refit(self, learned: Learned) -> tuple[Learned, Events | None]:
        """Change the scale if the stream has left it; events if all was learned anew."""
        t = self.task.scaled
        width = len(learned.columns) - t
        closely = self.settings.often > 0
        columns = scaling.refit(learned.columns, self.passing[: t + width], closely)
        old, new = scaling.scale_of(learned.columns), scaling.scale_of(columns)
        learned = learned._replace(columns=columns)
        outputs, directions = (
            learned.members[0].config.outputs,
            learned.members[0].config.directions,
        )
        same = all(np.array_equal(a, b) for a, b in zip(old, new, strict=True))
        looking = (
            directions and learned.seen <= VIEWED
        )  # for directions, which few rows cannot tell
        if same and not looking:
            return learned, None
        learned = learned._replace(changes=learned.changes + (not same))
        rows = learned.kept.rows(width)
        if len(rows.y) == learned.seen <= rehearsal.YOUNG:  # all there ever was, and none again
            return self._begin(learned, rows, outputs)
        gain, shift = np.ones(outputs), np.zeros(outputs)
        if t:
            old_scale = np.where(old.scale[:t] > 0.0, old.scale[:t], 1.0)
            new_scale = np.where(new.scale[:t] > 0.0, new.scale[:t], 1.0)
            gain[:t] = old_scale / new_scale
            shift[:t] = (old.center[:t] - new.center[:t]) / new_scale
        before = Scale(old.center[t:], old.scale[t:])
        after = Scale(new.center[t:], new.scale[t:])
        large = not directions and scaling.far_apart(old, new) and len(rows.y) > 0
        share = KNOWLEDGE_CARRIED if large else 1.0
        rows = KeptRows._make(part[-rehearsal.YOUNG :] for part in rows)
        standard = self._standard(columns, rows) if large else None

        def moved(member: Session) -> Session:
            state = rescaled(member.state(), before, after, gain, shift, share)
            if standard is not None:
                z, labels, x_sd = standard
                state = _learned_again(
                    state, z, labels, self._variances(columns, x_sd), rows.weight
                )
            return open_session(state)

        learned = learned._replace(members=tuple(ensemble.in_parallel(moved, learned.members)))
        if len(rows.y) >= VIEWED and strayed(learned.members[0].state().view):
            learned = self._looked_anew(learned, rows)
        return learned, None

    def _looked_anew(self, learned: Learned, rows: KeptRows) -> Learned:
        """Wide networks with the directions of the rows kept, and what these say; counts go on."""
        began, _ = self._begin(learned, rows, learned.members[0].config.outputs)
        pairs = zip(began.members, learned.members, strict=True)
        members = [new.state()._replace(counts=old.state().counts) for new, old in pairs]
        return began._replace(
            members=tuple(map(open_session, members)), rehearsal=learned.rehearsal
        )


def next_refit(seen: int) -> int:
    """The row count after `seen` at which the scale is looked at: 64, 128, 256, ..."""
    return max(FIRST_REFIT, 1 << seen.bit_length())


def _learned_again(
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


def _grow(learned: Learned, inputs: int, outputs: int) -> Learned:
    members = tuple(
        open_session(grow(member.state(), inputs, outputs)) for member in learned.members
    )
    return learned._replace(members=members)


def copied(learned: Learned) -> Learned:
    """The same, to go another way."""
    return learned._replace(
        members=tuple(open_session(member.state()) for member in learned.members),
        kept=learned.kept.copy(),
    )


def _warned(learned: Learned, number: int) -> Learned:
    """After an alarm raised by the row of that number."""
    return learned._replace(rehearsal=learned.rehearsal._replace(alarm=number))


def _trust(said: Forecast) -> FloatArray | None:
    """How probable it is that a row's target was no outlier; None: nobody asks, of any row."""
    return None if math.isnan(said.outlier.item(0)) else 1.0 - said.outlier


def _worth_rehearsing(rows: KeptRows) -> IntArray:
    """Rows with a target that is probably no outlier; -inf is one, see kbnn.task.amount."""
    return np.flatnonzero((rows.y < np.inf).any(axis=1) & (rows.trust >= 0.5))


def _events(said: Forecast, first: int) -> Events:
    """What the status of rows tells, the first of them row `first` of the stream."""
    if np.count_nonzero(said.status == LEARNED) == len(said.status):
        return Events([])
    raised = np.flatnonzero(said.status & ALARM)
    skipped = int(np.count_nonzero(said.status & UNLABELLED))
    return Events([first + int(at) for at in raised], skipped)


def _as_before(said: Forecast, surprised: Forecast | None) -> Forecast:
    """The forecasts with that of the first row as it was before its class was known."""
    if surprised is not None:
        said.probability[0] = 0.0
        said.probability[0, : surprised.probability.shape[1]] = surprised.probability[0]
    return said
