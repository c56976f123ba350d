"""A model: schema, networks and the record of what they forecast, in the user's units."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from threading import RLock
from typing import Any

import numpy as np

from kbnn.core.engine import open_session
from kbnn.core.layout import IntArray
from kbnn.core.network import UNLABELLED
from kbnn.core.tails import FIRST_GAIN, MEAN_WIDTH
from kbnn.errors import UsageError
from kbnn.model import race, scaling
from kbnn.model.learned import Learned
from kbnn.model.learner import Learner
from kbnn.model.race import Lost, Racer
from kbnn.model.recursion import Network, SequenceNotices, SequentialPredictor
from kbnn.model.rows import Lesson, Refuted, Rows, sliced
from kbnn.model.schema import Schema
from kbnn.model.settings import Settings
from kbnn.model.timeline import Placed, Timeline
from kbnn.model.transaction import Transaction
from kbnn.model.unscored import Unscored
from kbnn.model.waiting import Room, learn_by_id, told
from kbnn.model.warmup import MOST_HELD, Kept, rows_to_hold, unseen, window
from kbnn.score.scorecard import Scorecard
from kbnn.score.summaries import sample_rows
from kbnn.task.base import Early, Scaled, Task, blank
from kbnn.task.forecast import HELD, Forecast, joined, shifted, taken
from kbnn.task.table import kinds_of, task_of, wider

__all__ = ["HELD", "Forecast", "Model", "Rows"]


class Model:
    """Learns blocks of rows and predicts; `learn` moves it forward.

    Rows take one way: hold (until the scale is known), predict, learn, score. Several candidates
    may race (kbnn.model.race); the first of the racers leads, and is what the model is.
    """

    key: tuple[str, ...] = ()
    """The columns by which rows find their model, of a fleet (kbnn.fleet)."""
    scored: bool = True
    """Whether what it says goes into its record; it learns the same without."""
    elsewhere: Callable[[Rows], Forecast] | None = None
    """Who predicts in its place, see kbnn.run.engines."""

    def __init__(self, settings: Settings, schema: Schema) -> None:
        targets = len(schema.targets)
        if targets > 1 and not isinstance(settings.noise, str) and settings.noise > 0.0:
            raise UsageError(
                f"noise {settings.noise:g} is in the units of one target, but there "
                f"are {targets} (choose auto or constant)"
            )
        self.settings = settings
        self._schema = schema
        candidate = settings.candidates()[0]
        learner = self.learner_of(candidate)
        nothing = Learned(
            (),
            scaling.blank_columns(0),
            np.zeros(settings.ensemble),
            0,
            0,
            Kept(MOST_HELD, targets),
            learner.task.tails(settings.robust),
        )
        self.racers: tuple[Racer, ...] = (Racer(learner, nothing),)
        self.lost: tuple[Lost, ...] = ()
        self.skipped = 0  # rows without a target
        self.let_go = 0  # rows held and let go before any target had varied
        self.met = 0  # rows of the stream, in all passes
        self.position: dict[str, Any] = {}
        self._card: Scorecard | Callable[[], Scorecard] = Scorecard(
            self.task, seed=settings.seed, sample=min(sample_rows(schema.width), settings.sample)
        )
        self._unscored = Unscored()
        self._trial: Learned | None = None
        self._early: tuple[int, Early] | None = None
        self.timeline = Timeline(schema)
        self.history = self.timeline.begin()
        self.room = Room(schema.wait)
        self.lock = RLock()
        """Held while rows are learned or predicted, and by whoever asks for more than one thing."""
        self._unfinished: Transaction | None = None

    @classmethod
    def create(cls, settings: Settings, schema: Schema) -> Model:
        """A model that has seen nothing."""
        return cls(settings, schema)

    @property
    def task(self) -> Task:
        """What the targets are, as the leader has it."""
        return self.learner.task

    @property
    def schema(self) -> Schema:
        """What each column is."""
        return self._schema

    @schema.setter
    def schema(self, schema: Schema) -> None:
        wider = schema.width > self._schema.width
        if wider and self._unscored.rows:
            self._count_unscored()  # as it was
        self._schema = schema
        self.timeline = Timeline(schema)
        self.racers = tuple(
            replace(racer, learner=self.learner_of(racer.learner.settings, racer.learner.task))
            for racer in self.racers
        )
        if wider:
            before = unseen(self.learner.indicators)
            for racer in self.racers:
                racer.learned.kept.unseen = before
            card = self._count_unscored().copy()
            card.widen(before)
            self._card = card

    def learner_of(self, settings: Settings, task: Task | None = None) -> Learner:
        """How a candidate with these settings learns; `task` is what it has learned so far."""
        if task is None:
            task = task_of(self._schema, settings)
        task.schema = self._schema
        layout, late = self._schema.layout, {c.name for c in self._schema.columns if c.late}
        indicators = np.array([place.category is not None for place in layout], np.float64)
        came_late = np.array([place.column in late for place in layout], np.float64)
        waves = self._schema.cycles
        cycles = np.array([place.column in waves for place in layout], np.float64)
        return Learner(settings, task, indicators, came_late, cycles)

    @property
    def learner(self) -> Learner:
        """How the leader learns."""
        return self.racers[0].learner

    @property
    def learned(self) -> Learned:
        """What the leader has learned; set, it races alone."""
        return self.racers[0].learned

    @learned.setter
    def learned(self, learned: Learned) -> None:
        self.racers = (replace(self.racers[0], learned=learned),)

    @property
    def alarms(self) -> list[int]:
        """Rows that raised an alarm, the last hundred."""
        return list(self.racers[0].alarms)

    @property
    def card(self) -> Scorecard:
        """The record of every row, forecast before it was learned."""
        with self.lock:
            self.complete()
            return self._count_unscored()

    def _count_unscored(self) -> Scorecard:
        """Count rows that wait into a copy of the record, which takes the record's place."""
        card = self._card if isinstance(self._card, Scorecard) else self._card()
        card.judge = self.task
        unscored = self._unscored
        if unscored.rows:
            card, (rows, said) = card.copy(), unscored.waiting()
            card.add(rows.x, rows.y, said, rows.weight, rows.number)
            unscored = unscored.emptied()
        self._card, self._unscored = card, unscored  # at once: no row counts twice
        return card

    def gather(self) -> None:
        """Hold rows that came one by one as few blocks, which take a small part of the room."""
        self._unscored.fit()
        for racer in self.racers:
            racer.learned.kept.fit()

    def remember(self, card: Callable[[], Scorecard]) -> None:
        """Take over a record, made when it is first asked for: predicting needs none."""
        self._card = card

    @property
    def intervals(self) -> str | None:
        """Whether intervals are `tracked`, or `stated` as the distribution has them, if any."""
        kept = self.learned.tails[:, FIRST_GAIN:MEAN_WIDTH]
        moved = bool(kept.size) and not bool(np.all(kept == 1.0))
        return self.task.intervals("tracked" if moved else "stated")

    def with_intervals(self, wanted: str | None) -> None:
        """Take intervals as stated from now on, whatever was tracked; UsageError if not tracked."""
        if wanted == "tracked" and self.settings.intervals == "stated":
            raise UsageError(
                "the model learned with --intervals stated: nothing was tracked (leave it out)"
            )
        if wanted == "stated":
            tails = self.learned.tails.copy()
            tails[:, FIRST_GAIN:MEAN_WIDTH] = 1.0
            self.learned = self.learned._replace(tails=tails)

    @property
    def wants_saving(self) -> bool:
        """Whether it is to be saved soon; a fleet in workers may want it."""
        return False

    @property
    def warming_up(self) -> bool:
        """Whether rows are still held back for their scale."""
        return not self.learned.members

    @property
    def held(self) -> int:
        """Rows held back."""
        return len(self.learned.kept) if self.warming_up else 0

    def count(self, which: str) -> int:
        """A count of the (first) network, see kbnn.core.state.Counts."""
        return self.learned.members[0].counts[which] if self.learned.members else 0

    @property
    def rows(self) -> int:
        """Rows learned in all passes, held ones included."""
        return self.count("rows") + self.held

    @property
    def rejected(self) -> int:
        """Rows with a target that could not be learned from."""
        return self.count("rejected") + self.let_go

    @property
    def repairs(self) -> int:
        """Variances that had to be raised to their floor."""
        return self.count("repairs")

    @property
    def alarm_count(self) -> int:
        """Drift alarms raised so far."""
        return self.count("alarms")

    @property
    def target_scale(self) -> list[float]:
        """The scale of each scaled target."""
        return [float(s) for s in self.learned.columns[: self.task.scaled, scaling.SCALE]]

    @property
    def shown_scales(self) -> Scaled:
        """Center and scale of each scaled target, in its units."""
        columns = self.learned.columns[: self.task.scaled]
        scaled = Scaled(columns[:, scaling.CENTER], columns[:, scaling.SCALE])
        return self.task.scale_shown(scaled, self.learned.tails) if len(columns) else scaled

    @property
    def noise_sd(self) -> list[float]:
        """The level of each target's noise, in its units; empty where there is none."""
        if self.warming_up:
            return []
        member = self.learned.members[0]
        return self.task.noise_sd(member.noise, member.config.noise, self.target_scale)

    @property
    def noise_shown(self) -> list[float]:
        """The quantity of each target's noise that training prints, see `Task.noise_shown`."""
        if self.warming_up:
            return []
        member, columns = self.learned.members[0], self.learned.columns[: self.task.scaled]
        scaled = Scaled(columns[:, scaling.CENTER], columns[:, scaling.SCALE])
        return self.task.noise_shown(member.noise, member.config.noise, scaled, self.learned.tails)

    def learn(self, rows: Rows, again: bool = False) -> Forecast:
        """Predict each row, then learn it; unless learned `again`, rows are scored too."""
        return self.teach(rows, again).said

    def teach(self, rows: Rows, again: bool = False) -> Lesson:
        """The same, and what happened.

        Rows are learned whole: if anything is raised, the model is as before or as after them all.
        """
        with self.lock:
            self.complete()
            transaction = Transaction(self, rows, again)
            self._unfinished = transaction
            try:
                lesson = self._teach_rows(rows, again)
                transaction.done = True
            except BaseException:
                self.complete()
                raise
            transaction.end()
            self._unfinished = None
            return lesson

    def complete(self) -> None:
        """Undo rows whose learning was interrupted, or complete them if a network knows them."""
        transaction = self._unfinished
        if transaction is None:
            return
        if not transaction.done:
            transaction.restore(self)
            if transaction.has_learned:
                try:
                    self._teach_rows(transaction.rows, transaction.again)
                except MemoryError:
                    raise
                except Exception:  # it fails every time: what was learned so far stays
                    transaction.done = True
                    raise
            transaction.done = True
        transaction.end()
        self._unfinished = None

    def _teach_rows(self, rows: Rows, again: bool) -> Lesson:
        if rows.schema is not None and rows.schema is not self._schema:
            self.schema = rows.schema
        if self._schema.wait and rows.id is not None:
            indicators = self.learner.indicators
            return learn_by_id(self.room, rows, indicators, self._pass_by, self._learn)
        return self._learn(rows, {}, again)

    def _pass_by(self, rows: Rows) -> Forecast:
        """Predict rows without a target, of which nothing is learned, not even their scale."""
        if self.warming_up:
            said = blank(len(rows.y), self.task.numbers)
            said = said._replace(mean=np.full_like(said.mean, np.nan), sd=said.sd + np.nan)
        else:
            said = self._predict_beside(rows)
        self.skipped += len(rows.y)
        self.met += len(rows.y)
        said = said._replace(status=np.full(len(rows.y), UNLABELLED))
        if not self.warming_up:
            self._score(rows, said, False)
        return said

    def _learn(self, rows: Rows, then: dict[int, Forecast], again: bool = False) -> Lesson:
        """Predict and learn rows; of some, by place, a forecast was made when they came."""
        self._trial = None
        held = not self.racers[0].learned.members
        if held and (again or not self.settings.units):
            self.settle()
            held = False
        placed = self._placed(rows)
        parts: list[Forecast] = []
        refuted: tuple[Refuted, ...] = ()
        at = 0
        rows = placed.changes
        while at < len(rows.y):
            rest = rows if at == 0 else sliced(rows, at, len(rows.y))
            if not self.racers[0].learned.members:
                said = self._hold(rest)
            else:
                rest, given_up = self._until_beyond(rest)
                refuted += given_up
                self.racers, said, skipped, lost = race.learn(
                    self.racers, rest, self.met + 1, again
                )
                self.met += len(said.status)
                self.skipped += skipped
                self.lost += lost
            parts.append(said)
            at += len(said.status)
        forecast = placed.level(joined(parts) if parts else blank(0, self.task.numbers))
        forecast = told(forecast, then)
        if not again:
            self._score(placed.rows, forecast, held)
            if self._schema.lags:
                off = self.task.misses(placed.rows.y, forecast)
                self.history.judge(np.where((forecast.status & HELD)[:, None], np.nan, off))
        return Lesson(forecast, refuted)

    def _until_beyond(self, rows: Rows) -> tuple[Rows, tuple[Refuted, ...]]:
        """Rows up to the next that the kind of target found by evidence cannot have.

        Where the first is one, that evidence was wrong: what was learned is learned anew as a kind
        that can have it, from the rows kept. While kinds race that is one more of them, which
        starts where the best is.
        """
        if self.settings.kind != "auto":
            return rows, ()
        stop = race.beyond(self.racers, rows.y)
        if stop:
            return rows if stop == len(rows.y) else sliced(rows, 0, stop), ()
        if not len(self.learned.kept):  # in a later pass, where all rows were seen before
            return sliced(rows, 0, 1), ()
        able = race.able(self.racers, rows.y[:1])
        if not able:
            kind = wider(self.task.name, rows.y[:1])
            place = int(rows.number[0]), float(rows.y[0, 0])
            refuted = Refuted(self.task.name, *place, kind)
            self.racers = (self._anew(self.racers[0], kind),)
            rest, more_refuted = self._until_beyond(rows)
            return rest, (refuted, *more_refuted)
        known = {racer.learner.settings.kind for racer in able}
        best = max(racer.evidence for racer in able)
        more = [
            replace(self._anew(racer, kind), evidence=best)
            for racer in self.racers
            if racer not in able
            and (kind := wider(racer.learner.settings.kind, rows.y[:1])) not in known
        ]
        self.racers = (*able, *more)
        return self._until_beyond(rows)

    def _anew(self, leader: Racer, kind: str) -> Racer:
        """A candidate as another kind of number."""
        before, task = leader.learned, leader.learner.task
        kept = before.kept.rows(len(before.columns) - task.scaled)
        raw = kept._replace(y=task.unlinked(kept.y, before.tails))
        settings = replace(leader.learner.settings, kind=kind)
        learner = self.learner_of(settings)
        began, events = learner.start(Kept(len(raw.y), raw.y.shape[1], raw))
        pairs = zip(began.members, before.members, strict=True)
        members = [new.state()._replace(counts=old.state().counts) for new, old in pairs]
        whole = began.seen == before.seen
        began = began._replace(
            members=tuple(map(open_session, members)),
            seen=before.seen,
            rehearsal=began.rehearsal if whole else before.rehearsal,
        )
        return Racer(learner, began, 0.0, leader.alarms).after(
            began, events._replace(restarted=False)
        )

    def _placed(self, rows: Rows) -> Placed:
        """Rows beside those before them, which they join."""
        if not self._schema.lags:
            return Placed(rows, None)
        return self.timeline.place(self.history, rows)

    def rewind(self) -> None:
        """A further pass begins: what comes next has nothing before it."""
        with self.lock:
            self.complete()
            self.history = self.timeline.begin()

    def predict(self, rows: Rows) -> Forecast:
        """Predict rows; the model stays as it is (rows still held are learned in a trial).

        Each is beside the others and after all that was learned: lags are as x says. `ahead` is for
        rows that come one after another.
        """
        with self.lock:
            self.complete()
            return self._predict_beside(rows)

    def _predict_beside(self, rows: Rows) -> Forecast:
        said = self._said(rows)
        return shifted(said, self.history.last) if self._schema.changes else said

    def _said(self, rows: Rows) -> Forecast:
        """What is said of rows as they are learned."""
        return self.learner.predict(self._known_now(), rows.x, rows.x_sd)

    def known(self) -> Learned:
        """What has been learned; rows still held are learned in a trial."""
        with self.lock:
            self.complete()
            return self._known_now()

    def _known_now(self) -> Learned:
        learned = self.racers[0].learned
        if learned.members:
            return learned
        if self._trial is None:
            self._trial, _ = self.learner.start(self._held())
        return self._trial

    @property
    def network(self) -> Network:
        """What forecasts need of it."""
        return Network(self._schema, self.timeline, self.learner, self.known())

    def ahead(self, notices: SequenceNotices | None = None) -> Callable[[Rows], Forecast]:
        """Open a predictor of rows that come after those learned: each is after those above it."""
        if self.elsewhere is not None:
            return self.elsewhere
        if not self._schema.lags:
            return self.predict
        with self.lock:
            self.complete()
            return SequentialPredictor(self.network, self.history, notices or SequenceNotices())

    def settle(self) -> None:
        """End the warm-up now: take the scale from the rows held, and learn them in order."""
        self._trial = None
        held = self._held()
        racers = []
        # What a row's own past is part of goes on in its own units.
        settled = self._schema.lags or self.settings.kind != "auto"
        kinds = [self.learner.settings.kind] if settled else kinds_of(self._schema, held.rows().y)
        for settings in self.settings.candidates(kinds, held.rows().x.shape[1]):
            same = settings.kind == self.learner.settings.kind
            learner = self.learner_of(settings, self.task if same else None)
            racers.append(Racer(learner, self.learned).after(*learner.start(self._held())))
        self.racers = tuple(racers)

    def _hold(self, rows: Rows) -> Forecast:
        """Hold rows until the scale is known; what is said of them is a stopgap."""
        kept = self.learned.kept
        held = len(kept)
        since, room = window(self.let_go + held)
        early = self._speaker(since)
        count, ready = rows_to_hold(early, held, rows.y[:MOST_HELD], room)
        rows = sliced(rows, 0, count)
        labelled = np.isfinite(rows.y).any(axis=1)
        first = self.met + 1
        # A row without a target is told what the next one with a target is told.
        place: IntArray = np.cumsum(labelled) - labelled
        y = np.concatenate((rows.y[labelled], np.full((1, rows.y.shape[1]), np.nan)))
        said = taken(early.tell(y), place)
        framed = np.concatenate(([False], labelled, [False]))
        edges = np.flatnonzero(framed[1:] != framed[:-1]).tolist()
        for start, stop in zip(edges[::2], edges[1::2], strict=True):
            kept.add(sliced(rows, start, stop), rows.x.shape[1], first + start)
        self._early = since, early
        self.skipped += int(np.sum(~labelled))
        self.let_go += held + int(np.sum(labelled)) - len(kept)
        self.met += count
        if ready:
            self.settle()
        return said._replace(status=np.where(labelled, HELD, UNLABELLED))

    def _speaker(self, since: int) -> Early:
        """Who speaks of the next rows held, having been told those held from that place on."""
        before, self._early = self._early, None
        if before is not None and before[0] == since:
            return before[1]
        early = self.task.early()
        held = self.learned.kept.rows().y[since - self.let_go :]
        if len(held):
            early.tell(held)
        return early

    def _held(self) -> Kept:
        """The rows held."""
        kept = self.learned.kept
        return Kept(kept.most, kept.targets, kept.rows())

    def _score(self, rows: Rows, forecast: Forecast, held: bool) -> None:
        """Count rows into the record, but for those held."""
        if not self.scored:
            return
        if held:
            made = (forecast.status & HELD) == 0
            rows = Rows(
                rows.x[made],
                rows.y[made],
                rows.number[made],
                weight=None if rows.weight is None else rows.weight[made],
            )
            forecast = taken(forecast, made)
        if self._unscored.add(rows, forecast):
            return
        card = self._count_unscored()
        if not self._unscored.add(rows, forecast):
            card = card.copy()
            card.add(rows.x, rows.y, forecast, rows.weight, rows.number)
            self._card = card
