"""A model: schema, networks and the record of what they forecast, in the user's units."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from threading import RLock
from typing import Any

import numpy as np

from kbnn.array_types import IntArray
from kbnn.core.kernel import open_session
from kbnn.core.reference import UNLABELLED
from kbnn.data.batch import LearnResult, Rows, TargetTypeChange, make_fill_values, slice_rows
from kbnn.data.schema import Schema
from kbnn.data.time_series import LaggedBatch, Timeline
from kbnn.distributions.calibration import FIRST_GAIN, MEAN_SCALE_FACTOR
from kbnn.errors import UsageError
from kbnn.metrics.samples import choose_sample_rows
from kbnn.metrics.scorecard import Scorecard
from kbnn.model import candidates, scaler
from kbnn.model.candidates import Candidate, EliminatedCandidate
from kbnn.model.learner import Learner, LearnerState
from kbnn.model.pending_labels import PendingRows, learn_by_id, restore_pending_forecasts
from kbnn.model.recursive_forecast import ForecastContext, SequenceNotices, SequentialPredictor
from kbnn.model.replay_buffer import (
    MAX_HELD_ROWS,
    ReplayBuffer,
    count_rows_to_hold,
    find_cold_start_window,
)
from kbnn.model.settings import Settings
from kbnn.model.transaction import Transaction
from kbnn.model.unscored_rows import UnscoredRows
from kbnn.targets.base import ColdStart, TargetScale, TargetType, make_empty_forecast
from kbnn.targets.prediction import IN_WARMUP, Forecast, join_forecasts, select_rows, shift_forecast
from kbnn.targets.registry import candidate_types, make_target_type, widen_target_type

__all__ = ["IN_WARMUP", "Forecast", "OnlineModel", "Rows"]


class OnlineModel:
    """Learns blocks of rows and predicts; `learn` moves it forward.

    Rows take one way: hold (until the scale is known), predict, learn, score. Several candidates
    may race (kbnn.model.candidates); the first of the racers leads, and is what the model is.
    """

    key: tuple[str, ...] = ()
    """The columns by which rows find their model, of a fleet (kbnn.fleet)."""
    is_scored: bool = True
    """Whether what it says goes into its record; it learns the same without."""
    predict_backend: Callable[[Rows], Forecast] | None = None
    """Who predicts in its place, see kbnn.workflows.engines."""

    def __init__(self, settings: Settings, schema: Schema) -> None:
        targets = len(schema.targets)
        if targets > 1 and not isinstance(settings.noise, str) and settings.noise > 0.0:
            raise UsageError(
                f"noise {settings.noise:g} is in the units of one target, but there "
                f"are {targets} (choose auto or constant)"
            )
        self.settings = settings
        self._schema = schema
        candidate = settings.list_candidates()[0]
        learner = self.make_learner(candidate)
        nothing = LearnerState(
            (),
            scaler.blank_columns(0),
            np.zeros(settings.ensemble),
            0,
            0,
            ReplayBuffer(MAX_HELD_ROWS, targets),
            learner.task.init_calibration(settings.robust),
        )
        self.racers: tuple[Candidate, ...] = (Candidate(learner, nothing),)
        self.lost: tuple[EliminatedCandidate, ...] = ()
        self.skipped = 0  # rows without a target
        self.let_go = 0  # rows held and let go before any target had varied
        self.met = 0  # rows of the stream, in all passes
        self.position: dict[str, Any] = {}
        self._card: Scorecard | Callable[[], Scorecard] = Scorecard(
            self.task,
            seed=settings.seed,
            sample=min(choose_sample_rows(schema.width), settings.sample),
        )
        self._unscored = UnscoredRows()
        self._trial_state: LearnerState | None = None
        self._cold_start: tuple[int, ColdStart] | None = None
        self.timeline = Timeline(schema)
        self.history = self.timeline.make_history()
        self.pending_rows = PendingRows(schema.wait)
        self.lock = RLock()
        """Held while rows are learned or predicted, and by whoever asks for more than one thing."""
        self._unfinished: Transaction | None = None

    @classmethod
    def create(cls, settings: Settings, schema: Schema) -> OnlineModel:
        """A model that has seen nothing."""
        return cls(settings, schema)

    @property
    def task(self) -> TargetType:
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
            replace(racer, learner=self.make_learner(racer.learner.settings, racer.learner.task))
            for racer in self.racers
        )
        if wider:
            before = make_fill_values(self.learner.indicators)
            for racer in self.racers:
                racer.learned.kept.fill_values = before
            card = self._count_unscored().copy()
            card.add_columns(before)
            self._card = card

    def make_learner(self, settings: Settings, task: TargetType | None = None) -> Learner:
        """How a candidate with these settings learns; `task` is what it has learned so far."""
        if task is None:
            task = make_target_type(self._schema, settings)
        task.schema = self._schema
        layout, late = self._schema.layout, {c.name for c in self._schema.columns if c.late}
        indicators = np.array([place.category is not None for place in layout], np.float64)
        came_late = np.array([place.column in late for place in layout], np.float64)
        waves = self._schema.cycle_columns
        cycles = np.array([place.column in waves for place in layout], np.float64)
        return Learner(settings, task, indicators, came_late, cycles)

    @property
    def learner(self) -> Learner:
        """How the leader learns."""
        return self.racers[0].learner

    @property
    def learner_state(self) -> LearnerState:
        """What the leader has learned; set, it races alone."""
        return self.racers[0].learned

    @learner_state.setter
    def learner_state(self, learned: LearnerState) -> None:
        self.racers = (replace(self.racers[0], learned=learned),)

    @property
    def alarms(self) -> list[int]:
        """Rows that raised an alarm, the last hundred."""
        return list(self.racers[0].alarms)

    @property
    def card(self) -> Scorecard:
        """The record of every row, forecast before it was learned."""
        with self.lock:
            self.recover_transaction()
            return self._count_unscored()

    def _count_unscored(self) -> Scorecard:
        """Count rows that wait into a copy of the record, which takes the record's place."""
        card = self._card if isinstance(self._card, Scorecard) else self._card()
        card.scorer = self.task
        unscored = self._unscored
        if unscored.rows:
            card, (rows, said) = card.copy(), unscored.get_rows()
            card.add(rows.x, rows.y, said, rows.weight, rows.number)
            unscored = unscored.make_empty()
        self._card, self._unscored = card, unscored  # at once: no row counts twice
        return card

    def compact_buffers(self) -> None:
        """Hold rows that came one by one as few blocks, which take a small part of the room."""
        self._unscored.shrink_to_fit()
        for racer in self.racers:
            racer.learned.kept.shrink_to_fit()

    def set_record(self, card: Callable[[], Scorecard]) -> None:
        """Take over a record, made when it is first asked for: predicting needs none."""
        self._card = card

    @property
    def interval_mode(self) -> str | None:
        """Whether intervals are `tracked`, or `stated` as the distribution has them, if any."""
        kept = self.learner_state.tails[:, FIRST_GAIN:MEAN_SCALE_FACTOR]
        moved = bool(kept.size) and not bool(np.all(kept == 1.0))
        return self.task.interval_mode("tracked" if moved else "stated")

    def set_interval_mode(self, wanted: str | None) -> None:
        """Take intervals as stated from now on, whatever was tracked; UsageError if not tracked."""
        if wanted == "tracked" and self.settings.intervals == "stated":
            raise UsageError("the model was trained with --intervals model: leave out --intervals")
        if wanted == "stated":
            tails = self.learner_state.tails.copy()
            tails[:, FIRST_GAIN:MEAN_SCALE_FACTOR] = 1.0
            self.learner_state = self.learner_state._replace(tails=tails)

    @property
    def wants_saving(self) -> bool:
        """Whether it is to be saved soon; a fleet in workers may want it."""
        return False

    @property
    def is_warming_up(self) -> bool:
        """Whether rows are still held back for their scale."""
        return not self.learner_state.members

    @property
    def held_rows(self) -> int:
        """Rows held back."""
        return len(self.learner_state.kept) if self.is_warming_up else 0

    def get_network_count(self, which: str) -> int:
        """A count of the (first) network, see kbnn.core.state.Counts."""
        return self.learner_state.members[0].counts[which] if self.learner_state.members else 0

    @property
    def rows(self) -> int:
        """Rows learned in all passes, held ones included."""
        return self.get_network_count("rows") + self.held_rows

    @property
    def rejected_rows(self) -> int:
        """Rows with a target that could not be learned from."""
        return self.get_network_count("rejected") + self.let_go

    @property
    def repair_count(self) -> int:
        """Variances that had to be raised to their floor."""
        return self.get_network_count("repairs")

    @property
    def alarm_count(self) -> int:
        """Drift alarms raised so far."""
        return self.get_network_count("alarms")

    @property
    def target_scale(self) -> list[float]:
        """The scale of each scaled target."""
        return [float(s) for s in self.learner_state.columns[: self.task.scaled, scaler.SCALE]]

    @property
    def shown_scales(self) -> TargetScale:
        """Center and scale of each scaled target, in its units."""
        columns = self.learner_state.columns[: self.task.scaled]
        scaled = TargetScale(columns[:, scaler.CENTER], columns[:, scaler.SCALE])
        return (
            self.task.displayed_scale(scaled, self.learner_state.tails) if len(columns) else scaled
        )

    @property
    def noise_sd(self) -> list[float]:
        """The level of each target's noise, in its units; empty where there is none."""
        if self.is_warming_up:
            return []
        member = self.learner_state.members[0]
        return self.task.noise_sd(member.noise, member.config.noise, self.target_scale)

    @property
    def noise_shown(self) -> list[float]:
        """The quantity of each target's noise that training prints, see `Task.noise_shown`."""
        if self.is_warming_up:
            return []
        member, columns = (
            self.learner_state.members[0],
            self.learner_state.columns[: self.task.scaled],
        )
        scaled = TargetScale(columns[:, scaler.CENTER], columns[:, scaler.SCALE])
        return self.task.displayed_noise(
            member.noise, member.config.noise, scaled, self.learner_state.tails
        )

    def learn(self, rows: Rows, again: bool = False) -> Forecast:
        """Predict each row, then learn it; unless learned `again`, rows are scored too."""
        return self.learn_batch(rows, again).forecast

    def learn_batch(self, rows: Rows, again: bool = False) -> LearnResult:
        """The same, and what happened.

        Rows are learned whole: if anything is raised, the model is as before or as after them all.
        """
        with self.lock:
            self.recover_transaction()
            transaction = Transaction(self, rows, again)
            self._unfinished = transaction
            try:
                lesson = self._learn_rows(rows, again)
                transaction.done = True
            except BaseException:
                self.recover_transaction()
                raise
            transaction.end()
            self._unfinished = None
            return lesson

    def recover_transaction(self) -> None:
        """Undo rows whose learning was interrupted, or complete them if a network knows them."""
        transaction = self._unfinished
        if transaction is None:
            return
        if not transaction.done:
            transaction.restore(self)
            if transaction.has_learned:
                try:
                    self._learn_rows(transaction.rows, transaction.again)
                except MemoryError:
                    raise
                except Exception:  # it fails every time: what was learned so far stays
                    transaction.done = True
                    raise
            transaction.done = True
        transaction.end()
        self._unfinished = None

    def _learn_rows(self, rows: Rows, again: bool) -> LearnResult:
        if rows.schema is not None and rows.schema is not self._schema:
            self.schema = rows.schema
        if self._schema.wait and rows.id is not None:
            indicators = self.learner.indicators
            return learn_by_id(
                self.pending_rows, rows, indicators, self._predict_unlabelled, self._learn_labelled
            )
        return self._learn_labelled(rows, {}, again)

    def _predict_unlabelled(self, rows: Rows) -> Forecast:
        """Predict rows without a target, of which nothing is learned, not even their scale."""
        if self.is_warming_up:
            said = make_empty_forecast(len(rows.y), self.task.numbers)
            said = said._replace(mean=np.full_like(said.mean, np.nan), sd=said.sd + np.nan)
        else:
            said = self._predict_independent(rows)
        self.skipped += len(rows.y)
        self.met += len(rows.y)
        said = said._replace(status=np.full(len(rows.y), UNLABELLED))
        if not self.is_warming_up:
            self._score_rows(rows, said, False)
        return said

    def _learn_labelled(
        self, rows: Rows, then: dict[int, Forecast], again: bool = False
    ) -> LearnResult:
        """Predict and learn rows; of some, by place, a forecast was made when they came."""
        self._trial_state = None
        held = not self.racers[0].learned.members
        if held and (again or not self.settings.units):
            self.finish_warmup()
            held = False
        placed = self._add_lags(rows)
        parts: list[Forecast] = []
        refuted: tuple[TargetTypeChange, ...] = ()
        at = 0
        rows = placed.training_rows
        while at < len(rows.y):
            rest = rows if at == 0 else slice_rows(rows, at, len(rows.y))
            if not self.racers[0].learned.members:
                said = self._hold_rows(rest)
            else:
                rest, given_up = self._split_at_invalid_target(rest)
                refuted += given_up
                self.racers, said, skipped, lost = candidates.learn_candidates(
                    self.racers, rest, self.met + 1, again
                )
                self.met += len(said.status)
                self.skipped += skipped
                self.lost += lost
            parts.append(said)
            at += len(said.status)
        forecast = placed.restore_level(
            join_forecasts(parts) if parts else make_empty_forecast(0, self.task.numbers)
        )
        forecast = restore_pending_forecasts(forecast, then)
        if not again:
            self._score_rows(placed.rows, forecast, held)
            if self._schema.lags:
                off = self.task.standardized_residuals(placed.rows.y, forecast)
                self.history.record_errors(
                    np.where((forecast.status & IN_WARMUP)[:, None], np.nan, off)
                )
        return LearnResult(forecast, refuted)

    def _split_at_invalid_target(self, rows: Rows) -> tuple[Rows, tuple[TargetTypeChange, ...]]:
        """Rows up to the next that the kind of target found by evidence cannot have.

        Where the first is one, that evidence was wrong: what was learned is learned anew as a kind
        that can have it, from the rows kept. While kinds race that is one more of them, which
        starts where the best is.
        """
        if self.settings.kind != "auto":
            return rows, ()
        stop = candidates.find_first_invalid_row(self.racers, rows.y)
        if stop:
            return rows if stop == len(rows.y) else slice_rows(rows, 0, stop), ()
        if not len(self.learner_state.kept):  # in a later pass, where all rows were seen before
            return slice_rows(rows, 0, 1), ()
        able = candidates.select_valid_candidates(self.racers, rows.y[:1])
        if not able:
            kind = widen_target_type(self.task.name, rows.y[:1])
            place = int(rows.number[0]), float(rows.y[0, 0])
            refuted = TargetTypeChange(self.task.name, *place, kind)
            self.racers = (self._restart_as(self.racers[0], kind),)
            rest, more_refuted = self._split_at_invalid_target(rows)
            return rest, (refuted, *more_refuted)
        known = {racer.learner.settings.kind for racer in able}
        best = max(racer.evidence for racer in able)
        more = [
            replace(self._restart_as(racer, kind), evidence=best)
            for racer in self.racers
            if racer not in able
            and (kind := widen_target_type(racer.learner.settings.kind, rows.y[:1])) not in known
        ]
        self.racers = (*able, *more)
        return self._split_at_invalid_target(rows)

    def _restart_as(self, leader: Candidate, kind: str) -> Candidate:
        """A candidate as another kind of number."""
        before, task = leader.learned, leader.learner.task
        kept = before.kept.rows(len(before.columns) - task.scaled)
        raw = kept._replace(y=task.inverse_link(kept.y, before.tails))
        settings = replace(leader.learner.settings, kind=kind)
        learner = self.make_learner(settings)
        began, events = learner.initialize_state(ReplayBuffer(len(raw.y), raw.y.shape[1], raw))
        pairs = zip(began.members, before.members, strict=True)
        members = [new.state()._replace(counts=old.state().counts) for new, old in pairs]
        whole = began.seen == before.seen
        began = began._replace(
            members=tuple(map(open_session, members)),
            seen=before.seen,
            rehearsal=began.rehearsal if whole else before.rehearsal,
        )
        return Candidate(learner, began, 0.0, leader.alarms).record_rows(
            began, events._replace(restarted=False)
        )

    def _add_lags(self, rows: Rows) -> LaggedBatch:
        """Rows beside those before them, which they join."""
        if not self._schema.lags:
            return LaggedBatch(rows, None)
        return self.timeline.add_lags(self.history, rows)

    def start_pass(self) -> None:
        """A further pass begins: what comes next has nothing before it."""
        with self.lock:
            self.recover_transaction()
            self.history = self.timeline.make_history()

    def predict(self, rows: Rows) -> Forecast:
        """Predict rows; the model stays as it is (rows still held are learned in a trial).

        Each is beside the others and after all that was learned: lags are as x says. `ahead` is for
        rows that come one after another.
        """
        with self.lock:
            self.recover_transaction()
            return self._predict_independent(rows)

    def _predict_independent(self, rows: Rows) -> Forecast:
        said = self._predict_rows(rows)
        return shift_forecast(said, self.history.last) if self._schema.changes else said

    def _predict_rows(self, rows: Rows) -> Forecast:
        """What is said of rows as they are learned."""
        return self.learner.predict(self._find_prediction_state(), rows.x, rows.x_sd)

    def get_prediction_state(self) -> LearnerState:
        """What has been learned; rows still held are learned in a trial."""
        with self.lock:
            self.recover_transaction()
            return self._find_prediction_state()

    def _find_prediction_state(self) -> LearnerState:
        learned = self.racers[0].learned
        if learned.members:
            return learned
        if self._trial_state is None:
            self._trial_state, _ = self.learner.initialize_state(self._copy_held_rows())
        return self._trial_state

    @property
    def forecast_context(self) -> ForecastContext:
        """What forecasts need of it."""
        return ForecastContext(
            self._schema, self.timeline, self.learner, self.get_prediction_state()
        )

    def open_predictor(self, notices: SequenceNotices | None = None) -> Callable[[Rows], Forecast]:
        """Open a predictor of rows that come after those learned: each is after those above it."""
        if self.predict_backend is not None:
            return self.predict_backend
        if not self._schema.lags:
            return self.predict
        with self.lock:
            self.recover_transaction()
            return SequentialPredictor(
                self.forecast_context, self.history, notices or SequenceNotices()
            )

    def finish_warmup(self) -> None:
        """End the warm-up now: take the scale from the rows held, and learn them in order."""
        self._trial_state = None
        held = self._copy_held_rows()
        racers = []
        # What a row's own past is part of goes on in its own units.
        settled = self._schema.lags or self.settings.kind != "auto"
        kinds = (
            [self.learner.settings.kind]
            if settled
            else candidate_types(self._schema, held.rows().y)
        )
        for settings in self.settings.list_candidates(kinds, held.rows().x.shape[1]):
            same = settings.kind == self.learner.settings.kind
            learner = self.make_learner(settings, self.task if same else None)
            racers.append(
                Candidate(learner, self.learner_state).record_rows(
                    *learner.initialize_state(self._copy_held_rows())
                )
            )
        self.racers = tuple(racers)

    def _hold_rows(self, rows: Rows) -> Forecast:
        """Hold rows until the scale is known; what is said of them is a stopgap."""
        kept = self.learner_state.kept
        held = len(kept)
        since, room = find_cold_start_window(self.let_go + held)
        early = self._get_cold_start(since)
        count, ready = count_rows_to_hold(early, held, rows.y[:MAX_HELD_ROWS], room)
        rows = slice_rows(rows, 0, count)
        labelled = np.isfinite(rows.y).any(axis=1)
        first = self.met + 1
        # A row without a target is told what the next one with a target is told.
        place: IntArray = np.cumsum(labelled) - labelled
        y = np.concatenate((rows.y[labelled], np.full((1, rows.y.shape[1]), np.nan)))
        said = select_rows(early.predict_then_update(y), place)
        framed = np.concatenate(([False], labelled, [False]))
        edges = np.flatnonzero(framed[1:] != framed[:-1]).tolist()
        for start, stop in zip(edges[::2], edges[1::2], strict=True):
            kept.add(slice_rows(rows, start, stop), rows.x.shape[1], first + start)
        self._cold_start = since, early
        self.skipped += int(np.sum(~labelled))
        self.let_go += held + int(np.sum(labelled)) - len(kept)
        self.met += count
        if ready:
            self.finish_warmup()
        return said._replace(status=np.where(labelled, IN_WARMUP, UNLABELLED))

    def _get_cold_start(self, since: int) -> ColdStart:
        """Who speaks of the next rows held, having been told those held from that place on."""
        before, self._cold_start = self._cold_start, None
        if before is not None and before[0] == since:
            return before[1]
        early = self.task.make_cold_start()
        held = self.learner_state.kept.rows().y[since - self.let_go :]
        if len(held):
            early.predict_then_update(held)
        return early

    def _copy_held_rows(self) -> ReplayBuffer:
        """The rows held."""
        kept = self.learner_state.kept
        return ReplayBuffer(kept.max_rows, kept.targets, kept.rows())

    def _score_rows(self, rows: Rows, forecast: Forecast, held: bool) -> None:
        """Count rows into the record, but for those held."""
        if not self.is_scored:
            return
        if held:
            made = (forecast.status & IN_WARMUP) == 0
            rows = Rows(
                rows.x[made],
                rows.y[made],
                rows.number[made],
                weight=None if rows.weight is None else rows.weight[made],
            )
            forecast = select_rows(forecast, made)
        if self._unscored.add(rows, forecast):
            return
        card = self._count_unscored()
        if not self._unscored.add(rows, forecast):
            card = card.copy()
            card.add(rows.x, rows.y, forecast, rows.weight, rows.number)
            self._card = card
