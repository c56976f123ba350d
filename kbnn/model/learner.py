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
from kbnn.core.tails import MEAN_WIDTH, WIDTH, known_again, narrowed
from kbnn.model import rehearsal, scaling
from kbnn.model.changes import SETTLING, Changes, next_refit
from kbnn.model.learned import Events, Learned, events_of, warned
from kbnn.model.rows import Rows, sliced
from kbnn.model.warmup import Kept, KeptRows, rows_kept, unseen
from kbnn.task.base import Following
from kbnn.task.forecast import Forecast


class Learner(Changes):
    """Rows are learned, and rehearsed while a stream is young."""

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
        raw = np.hstack([held.y[:, : self.task.scaled], held.x])
        units, outputs = self.settings.units, self.task.outputs(held.y)
        learned = Learned(
            members=(),
            columns=scaling.warm_up(raw) if units else scaling.given_columns(raw.shape[1]),
            log_weight=np.zeros(self.settings.ensemble),
            seen=len(held.y),
            changes=0,
            kept=Kept(rows_kept(width, self.settings.keep), held.y.shape[1], held),
            tails=tails,
            sharpness=self.task.sharpness(self.settings.robust, outputs, held.y),
        )
        learned, events = self._begin(learned, held, outputs)
        return self._rehearsed(learned, len(held.y)), events

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
            learned = learned._replace(tails=self._known_again(learned, labels, made))
            said = self._forecast(learned, made)
            return learned, _as_before(said, surprised), events_of(said, first)
        before = learned.seen
        burst, refit = rehearsal.next_burst(learned.rehearsal, before), next_refit(before)
        due = min(refit, burst) if self.often else refit
        learned, said, outgrown = self._follow(learned, rows, due)
        done = len(said.status)
        known = rows if done == len(rows.y) else sliced(rows, 0, done)
        learned.kept.add(known, len(learned.columns) - self.task.scaled, first, _trust(said))
        events = events_of(said, first)
        if events.alarms and before >= SETTLING:
            learned = warned(learned, events.alarms[-1])
        changes, spent = learned.changes, 0
        if refit == learned.seen or outgrown:
            learned, restarted = self._refit(learned)
            if restarted is not None:
                events = events._replace(alarms=restarted.alarms, restarted=True)
            spent = len(learned.kept) if learned.changes > changes else 0
        if learned.seen == burst and self.often:
            learned = self._rehearsed(self._owing(learned), spent)
        return learned, _as_before(said, surprised), events

    def _known_again(self, learned: Learned, labels: FloatArray, made: Prediction) -> FloatArray:
        """What is stated from rows of a later pass on, what networks said of them beside them.

        Squares of errors at new rows are larger than at known ones by half the power of passes by
        which what a network does not know is.
        """
        if not self.overstating:
            return known_again(learned.tails)
        with np.errstate(over="ignore"):
            squares = (labels - made.mean) ** 2 / (made.function_var + made.noise_var)
        network = learned.members[0]
        after = np.cumsum((made.status.astype(np.int64) & LEARNED) > 0)
        rows = network.counts["rows"] - after[-1:] + after
        passes = np.maximum(rows / max(1, network.counts["distinct"]), 1.0)
        return narrowed(learned.tails, squares, passes ** (0.5 * network.config.repeats))

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
        labels, z, outgrown = scaling.follow(columns, y[:, :t], x, fixed, self.compiled)
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
            learned.sharpness.copy(),
        )
        x_sd = None if rows.x_sd is None else rows.x_sd[:done]
        weight = None if rows.weight is None else rows.weight[:done]
        y = y if done == stop else y[:done]
        learned, made = self._step(learned, z, self.task.taught(y, labels), x_sd, weight)
        following = Following(y, self.settings.robust, self.tracked, self.compiled, weight)
        said = self._forecast(learned, made, following)
        if self.overstating:  # at rest it goes by the width that the last rows asked for
            tails[:, MEAN_WIDTH] = tails[:, WIDTH]
        return learned, said, outgrown

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
        grown = learned.seen >= learned.rehearsal.grown and learned.rehearsal.debt < 1.0
        return self.settled(learned) if grown else learned

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


def _trust(said: Forecast) -> FloatArray | None:
    """How probable it is that a row's target was no outlier; None: nobody asks, of any row."""
    return None if math.isnan(said.outlier.item(0)) else 1.0 - said.outlier


def _worth_rehearsing(rows: KeptRows) -> IntArray:
    """Rows with a target that is probably no outlier; -inf is one, see kbnn.task.amount."""
    return np.flatnonzero((rows.y < np.inf).any(axis=1) & (rows.trust >= 0.5))


def _as_before(said: Forecast, surprised: Forecast | None) -> Forecast:
    """The forecasts with that of the first row as it was before its class was known."""
    if surprised is None:
        return said
    probability = said.probability.copy()
    probability[0] = 0.0
    probability[0, : surprised.probability.shape[1]] = surprised.probability[0]
    return said._replace(probability=probability)
