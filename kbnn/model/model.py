"""Online model: schema, candidates, pending labels and prequential record, in the user's units.

`OnlineModel` holds rows until the warm-up ends, then predicts, learns and scores every row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from threading import RLock
from typing import Any

import numpy as np

from kbnn.array_types import FloatArray, IntArray
from kbnn.core.kernel import open_session
from kbnn.core.reference import UNLABELLED
from kbnn.data.batch import (
    LearnResult,
    Rows,
    TargetTypeChange,
    join_anomalies,
    make_fill_values,
    slice_rows,
)
from kbnn.data.schema import Schema
from kbnn.data.time_series import LaggedBatch, Timeline
from kbnn.distributions.calibration import FIRST_GAIN, MEAN_SCALE_FACTOR
from kbnn.errors import UsageError
from kbnn.metrics.samples import choose_sample_rows
from kbnn.metrics.scorecard import Scorecard
from kbnn.model import candidates, scaler
from kbnn.model.candidates import Candidate, EliminatedCandidate
from kbnn.model.ensemble import Member, make_equal_weights
from kbnn.model.forecast_combination import (
    StepErrors,
    count_path_steps,
    count_rows_to_origin,
    is_origin,
)
from kbnn.model.learner import Learner, LearnerState
from kbnn.model.monitor import (
    DEFAULT_ALERT_RATE,
    AlertRate,
    Monitor,
    monitor_rows,
    start_monitor,
)
from kbnn.model.pending_labels import PendingRows, learn_by_id, restore_pending_forecasts
from kbnn.model.recursive_forecast import (
    ForecastContext,
    SequenceNotices,
    SequentialPredictor,
    can_combine,
    forecast_candidates,
)
from kbnn.model.replay_buffer import (
    MAX_HELD_ROWS,
    ReplayBuffer,
    count_rows_to_hold,
    find_cold_start_window,
)
from kbnn.model.settings import Settings
from kbnn.model.transaction import Transaction
from kbnn.model.unscored_rows import UnscoredRows
from kbnn.targets.base import (
    ColdStart,
    TargetScale,
    TargetType,
    displayed_scale,
    list_noise_sds,
    make_empty_forecast,
    max_outputs,
)
from kbnn.targets.prediction import (
    IN_WARMUP,
    Forecast,
    join_forecasts,
    select_rows,
    shift_forecast,
)
from kbnn.targets.registry import candidate_types, make_target_type, widen_target_type

__all__ = ["IN_WARMUP", "Forecast", "OnlineModel", "Rows"]


class OnlineModel:
    """Online model that learns batches of rows and predicts.

    Each row is held (until the scale is known), predicted, learned and scored. Several candidates
    may compete (kbnn.model.candidates); the first is the leader, whose forecasts are the model's.
    """

    key: tuple[str, ...] = ()
    """Key columns; only a fleet has them (kbnn.fleet)."""
    is_scored: bool = True
    """Whether forecasts are added to the prequential record; learning does not depend on it."""
    predict_backend: Callable[[Rows], Forecast] | None = None
    """Function that predicts instead of this model, see kbnn.workflows.engines."""

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
            make_equal_weights(1),
            0,
            0,
            ReplayBuffer(MAX_HELD_ROWS, targets),
            learner.task.init_calibration(settings.robust),
        )
        self.racers: tuple[Candidate, ...] = (Candidate(learner, nothing),)
        self.lost: tuple[EliminatedCandidate, ...] = ()
        self.skipped = 0  # rows without a target
        self.let_go = 0  # rows dropped in the warm-up before any target had varied
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
        self.step_errors = StepErrors.create()
        self.pending_rows = PendingRows(schema.wait)
        self.monitor: Monitor | None = None
        self.lock = RLock()
        """Held while rows are learned or predicted, and by callers that need a consistent state."""
        self._unfinished: Transaction | None = None

    @classmethod
    def create(cls, settings: Settings, schema: Schema) -> OnlineModel:
        """Create a model without rows."""
        return cls(settings, schema)

    @property
    def task(self) -> TargetType:
        """Target type of the leader."""
        return self.learner.task

    @property
    def schema(self) -> Schema:
        """Names and types of the columns."""
        return self._schema

    @schema.setter
    def schema(self, schema: Schema) -> None:
        wider = schema.width > self._schema.width
        if wider and self._unscored.rows:
            self._count_unscored()  # these rows have the old width
        self._schema = schema
        self.timeline = Timeline(schema)
        self.racers = tuple(
            replace(
                candidate,
                learner=self.make_learner(candidate.learner.settings, candidate.learner.task),
            )
            for candidate in self.racers
        )
        if wider:
            before = make_fill_values(self.learner.indicators)
            for candidate in self.racers:
                candidate.learned.kept.fill_values = before
            card = self._count_unscored().copy()
            card.add_columns(before)
            self._card = card

    def make_learner(self, settings: Settings, task: TargetType | None = None) -> Learner:
        """Create the learner of a candidate; `task` is its target type if that exists already."""
        if task is None:
            task = make_target_type(self._schema, settings)
        task.schema = self._schema
        layout, late = self._schema.layout, {c.name for c in self._schema.columns if c.late}
        indicators = np.array([place.category is not None for place in layout], np.float64)
        came_late = np.array([place.column in late for place in layout], np.float64)
        waves = self._schema.cycle_columns
        cycles = np.array([place.column in waves for place in layout], np.float64)
        return Learner(settings, task, indicators, came_late, cycles, bool(self._schema.lags))

    @property
    def learner(self) -> Learner:
        """Learner of the leader."""
        return self.racers[0].learner

    @property
    def learner_state(self) -> LearnerState:
        """State of the leader; setting it drops all other candidates."""
        return self.racers[0].learned

    @learner_state.setter
    def learner_state(self, learned: LearnerState) -> None:
        self.racers = (replace(self.racers[0], learned=learned),)

    @property
    def networks(self) -> tuple[Member, ...]:
        """The networks of the leader, or those that it will start with."""
        return self.learner_state.specs or self.settings.list_members(
            self._schema.width, max_outputs(self.task), bool(self._schema.lags)
        )

    @property
    def alarms(self) -> list[int]:
        """Numbers of the last hundred rows that raised a drift alarm."""
        return list(self.racers[0].alarms)

    @property
    def card(self) -> Scorecard:
        """Prequential record: every row was forecast before it was learned."""
        with self.lock:
            self.recover_transaction()
            return self._count_unscored()

    def _count_unscored(self) -> Scorecard:
        """Add unscored rows to a copy of the record, which then replaces it."""
        card = self._card if isinstance(self._card, Scorecard) else self._card()
        card.task = self.task
        unscored = self._unscored
        if unscored.rows:
            card, (rows, forecast) = card.copy(), unscored.get_rows()
            card.add(rows.x, rows.y, forecast, rows.weight, rows.number)
            unscored = unscored.make_empty()
        self._card, self._unscored = card, unscored  # together, so that no row counts twice
        return card

    def compact_buffers(self) -> None:
        """Release spare capacity of all buffers."""
        self._unscored.shrink_to_fit()
        for candidate in self.racers:
            candidate.learned.kept.shrink_to_fit()

    def set_record(self, card: Callable[[], Scorecard]) -> None:
        """Set a function that returns the record when it is first needed; predicting needs none."""
        self._card = card

    @property
    def interval_mode(self) -> str | None:
        """`tracked` if intervals are calibrated online, else `stated`; None if there are none."""
        kept = self.learner_state.tails[:, FIRST_GAIN:MEAN_SCALE_FACTOR]
        moved = bool(kept.size) and not bool(np.all(kept == 1.0))
        if self.task.labels:
            return None
        return "tracked" if moved else "stated"

    def set_interval_mode(self, wanted: str | None) -> None:
        """Switch calibration off if `stated` is wanted; UsageError if `tracked` is impossible."""
        if wanted == "tracked" and self.settings.intervals == "stated":
            raise UsageError("the model was trained with --intervals model: leave out --intervals")
        if wanted == "stated":
            tails = self.learner_state.tails.copy()
            tails[:, FIRST_GAIN:MEAN_SCALE_FACTOR] = 1.0
            self.learner_state = self.learner_state._replace(tails=tails)

    def start_monitor(self, rate: AlertRate | None = None) -> None:
        """Monitor the rows learned from now on, or change the rate of a monitor.

        Parameters
        ----------
        rate
            False alarms; None keeps the rate of a monitor, or sets DEFAULT_ALERT_RATE per row.
        """
        before = self.monitor
        if rate is not None:
            known = rate.per_row(self._schema)
        else:
            known = DEFAULT_ALERT_RATE if before is None else before.rate
        self.monitor = (
            start_monitor(self._schema, self.task, known, self.settings.seed)
            if before is None
            else before._replace(rate=known)
        )

    @property
    def wants_saving(self) -> bool:
        """Whether the model asks to be saved soon; only a fleet in workers does."""
        return False

    @property
    def is_warming_up(self) -> bool:
        """Whether rows are still held until their scale is known."""
        return not self.learner_state.members

    @property
    def held_rows(self) -> int:
        """Number of rows held in the warm-up."""
        return len(self.learner_state.kept) if self.is_warming_up else 0

    def get_network_count(self, which: str) -> int:
        """Return a count of the (first) network, see kbnn.core.state.Counts."""
        return self.learner_state.members[0].counts[which] if self.learner_state.members else 0

    @property
    def rows(self) -> int:
        """Rows learned in all passes, including held rows."""
        return self.get_network_count("rows") + self.held_rows

    @property
    def rejected_rows(self) -> int:
        """Rows with a target that could not be learned."""
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
        """Center and scale of each scaled target, in the user's units."""
        columns = self.learner_state.columns[: self.task.scaled]
        scaled = TargetScale(columns[:, scaler.CENTER], columns[:, scaler.SCALE])
        return (
            displayed_scale(self.task, scaled, self.learner_state.tails) if len(columns) else scaled
        )

    @property
    def noise_sd(self) -> list[float]:
        """Noise level of each target, in its units; empty where there is none."""
        if self.is_warming_up:
            return []
        member = self.learner_state.members[0]
        return list_noise_sds(self.task, member.noise, member.config.noise, self.target_scale)

    @property
    def noise_shown(self) -> list[float]:
        """Noise of each target as shown to users, see `TargetType.displayed_noise`."""
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
        """Predict each row, then learn it; rows are scored except in a later pass (`again`)."""
        return self.learn_batch(rows, again).forecast

    def learn_batch(self, rows: Rows, again: bool = False) -> LearnResult:
        """Predict and learn rows as `learn` does, and return forecasts and changes of target type.

        Learning is atomic: after an exception the model is as before the rows or as after all of
        them.
        """
        with self.lock:
            self.recover_transaction()
            transaction = Transaction(self, rows, again)
            self._unfinished = transaction
            try:
                result = self._learn_rows(rows, again)
                transaction.done = True
            except BaseException:
                self.recover_transaction()
                raise
            transaction.end()
            self._unfinished = None
            return result

    def recover_transaction(self) -> None:
        """Undo rows whose learning was interrupted; complete them if a network has learned some."""
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
                except Exception:  # it would fail every time: keep what was learned
                    transaction.done = True
                    raise
            transaction.done = True
        transaction.end()
        self._unfinished = None

    def _learn_rows(self, rows: Rows, again: bool) -> LearnResult:
        """Learn rows, by id if labels may be late."""
        if rows.schema is not None and rows.schema is not self._schema:
            self.schema = rows.schema
        if self._schema.wait and rows.id is not None:
            indicators = self.learner.indicators
            return learn_by_id(
                self.pending_rows, rows, indicators, self._predict_unlabelled, self._learn_labelled
            )
        if again or not self.combines_forecasts:
            return self._learn_labelled(rows, {}, again)
        return self._learn_between_origins(rows)

    @property
    def combines_forecasts(self) -> bool:
        """Whether forecasts of several steps are possible, so that their errors are recorded."""
        return can_combine(self._schema, self.task)

    def _learn_between_origins(self, rows: Rows) -> LearnResult:
        """Learn rows, and record a forecast of the next steps at each origin among them."""
        parts: list[LearnResult] = []
        at = 0
        while at < len(rows.y) or not parts:
            before = int(self.step_errors.rows[0])
            stop = min(at + count_rows_to_origin(before), len(rows.y))
            part = rows if stop - at == len(rows.y) else slice_rows(rows, at, stop)
            parts.append(self._learn_labelled(part, {}))
            self.step_errors = self.step_errors.advance(stop - at)
            if is_origin(before + stop - at) and self.racers[0].learned.members:
                self._record_origin(before + stop - at)
            at = stop
        if len(parts) == 1:
            return parts[0]
        forecast = join_forecasts([part.forecast for part in parts])
        anomalies = join_anomalies(
            [(len(part.forecast.status), part.anomalies) for part in parts], rows.y.shape[1]
        )
        return LearnResult(forecast, sum((part.type_changes for part in parts), ()), anomalies)

    def _record_origin(self, row: int) -> None:
        """Record the errors known by now, and forecast the next steps."""
        context = self._make_context(self.learner_state)
        paths = forecast_candidates(context, self.history, count_path_steps(row))
        values = self.history.values[:, self.timeline.columns.index(self._schema.targets[0])]
        errors = self.step_errors.resolve_pending(values)
        made = errors.open_combiner().combine(paths, calibrated=False)
        self.step_errors = errors.add_origin(paths, made)

    def _predict_unlabelled(self, rows: Rows) -> Forecast:
        """Predict rows without a target; nothing is learned from them, not even their scale."""
        if self.is_warming_up:
            forecast = make_empty_forecast(len(rows.y), self.task.numbers)
            forecast = forecast._replace(
                mean=np.full_like(forecast.mean, np.nan), sd=forecast.sd + np.nan
            )
        else:
            forecast = self._predict_independent(rows)
        self.skipped += len(rows.y)
        self.met += len(rows.y)
        forecast = forecast._replace(status=np.full(len(rows.y), UNLABELLED))
        if not self.is_warming_up:
            self.score_rows(rows, forecast, False)
        return forecast

    def _learn_labelled(
        self, rows: Rows, earlier_forecasts: dict[int, Forecast], again: bool = False
    ) -> LearnResult:
        """Predict and learn rows; `earlier_forecasts` are those of some rows, by position."""
        self._trial_state = None
        held = not self.racers[0].learned.members
        if held and (again or not self.settings.units):
            self.finish_warmup()
            held = False
        combines = not again and self.combines_forecasts
        naive = self.timeline.look_up_naive(self.history, rows) if combines else None
        placed = self._add_lags(rows)
        parts: list[Forecast] = []
        type_changes: tuple[TargetTypeChange, ...] = ()
        at = 0
        rows = placed.training_rows
        while at < len(rows.y):
            rest = rows if at == 0 else slice_rows(rows, at, len(rows.y))
            if not self.racers[0].learned.members:
                part = self._hold_rows(rest)
            else:
                rest, new_changes = self._split_at_invalid_target(rest)
                type_changes += new_changes
                self.racers, part, skipped, lost = candidates.learn_candidates(
                    self.racers, rest, self.met + 1, again
                )
                self.met += len(part.status)
                self.skipped += skipped
                self.lost += lost
            parts.append(part)
            at += len(part.status)
        forecast = placed.restore_level(
            join_forecasts(parts) if parts else make_empty_forecast(0, self.task.numbers)
        )
        forecast = restore_pending_forecasts(forecast, earlier_forecasts)
        anomalies = None
        if naive is not None:
            forecast = self._combine_with_naive(placed.rows.y, forecast, naive)
        if not again:
            if self.monitor is not None:
                self.monitor, anomalies = monitor_rows(
                    self.monitor, self.task, placed.rows, forecast
                )
            self.score_rows(placed.rows, forecast, held)
        return LearnResult(forecast, type_changes, anomalies)

    def _combine_with_naive(self, y: FloatArray, forecast: Forecast, naive: FloatArray) -> Forecast:
        """Combine forecasts of one step with naive ones, except those of the warm-up."""
        network = np.where(forecast.status & IN_WARMUP, np.nan, forecast.mean[:, 0])
        self.step_errors, mean = self.step_errors.learn_one_step(
            network, forecast.sd[:, 0], naive, y[:, 0]
        )
        shift = np.where(np.isfinite(network), mean - network, 0.0)
        return shift_forecast(forecast, shift[:, None])

    def _split_at_invalid_target(self, rows: Rows) -> tuple[Rows, tuple[TargetTypeChange, ...]]:
        """Return rows up to the next target that the selected target type excludes.

        If the first row is excluded, the selected type was wrong: the buffered rows are relearned
        with a type that allows the target. While target types compete, such a type joins the
        candidates with the evidence of the best one.
        """
        if self.settings.kind != "auto":
            return rows, ()
        stop = candidates.find_first_invalid_row(self.racers, rows.y)
        if stop:
            return rows if stop == len(rows.y) else slice_rows(rows, 0, stop), ()
        if not len(self.learner_state.kept):  # in a later pass nothing is buffered
            return slice_rows(rows, 0, 1), ()
        valid = candidates.select_valid_candidates(self.racers, rows.y[:1])
        if not valid:
            kind = widen_target_type(self.task.name, rows.y[:1])
            place = int(rows.number[0]), float(rows.y[0, 0])
            type_changes = TargetTypeChange(self.task.name, *place, kind)
            self.racers = (self._restart_as(self.racers[0], kind),)
            rest, more_changes = self._split_at_invalid_target(rows)
            return rest, (type_changes, *more_changes)
        known = {candidate.learner.settings.kind for candidate in valid}
        best = max(candidate.evidence for candidate in valid)
        more = [
            replace(self._restart_as(candidate, kind), evidence=best)
            for candidate in self.racers
            if candidate not in valid
            and (kind := widen_target_type(candidate.learner.settings.kind, rows.y[:1]))
            not in known
        ]
        self.racers = (*valid, *more)
        return self._split_at_invalid_target(rows)

    def _restart_as(self, leader: Candidate, kind: str) -> Candidate:
        """Restart a candidate with another target type from its buffered rows."""
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
        """Add lag columns to rows, and the rows to the history."""
        if not self._schema.lags:
            return LaggedBatch(rows, None)
        return self.timeline.add_lags(self.history, rows)

    def start_pass(self) -> None:
        """Start a further pass with an empty history."""
        with self.lock:
            self.recover_transaction()
            self.history = self.timeline.make_history()
            self.step_errors = self.step_errors.drop_pending()

    def predict(self, rows: Rows) -> Forecast:
        """Predict rows; the model does not change (held rows are learned in a temporary copy).

        Rows are independent of one another and follow the last row learned; lags are taken from x.
        Use `open_predictor` for consecutive rows.
        """
        with self.lock:
            self.recover_transaction()
            return self._predict_independent(rows)

    def _predict_independent(self, rows: Rows) -> Forecast:
        """Predict rows after the last row learned; changes are added to its value."""
        forecast = self._predict_rows(rows)
        return shift_forecast(forecast, self.history.last) if self._schema.changes else forecast

    def _predict_rows(self, rows: Rows) -> Forecast:
        """Predict rows in the units in which they are learned."""
        return self.learner.predict(self._find_prediction_state(), rows.x, rows.x_sd)

    def get_prediction_state(self) -> LearnerState:
        """Return the leader's state; held rows are learned in a temporary copy."""
        with self.lock:
            self.recover_transaction()
            return self._find_prediction_state()

    def _find_prediction_state(self) -> LearnerState:
        """Return the leader's state, or during the warm-up that of a temporary learner."""
        learned = self.racers[0].learned
        if learned.members:
            return learned
        if self._trial_state is None:
            self._trial_state, _ = self.learner.initialize_state(self._copy_held_rows())
        return self._trial_state

    @property
    def forecast_context(self) -> ForecastContext:
        """What recursive forecasts need from the model."""
        return self._make_context(self.get_prediction_state())

    def _make_context(self, learned: LearnerState) -> ForecastContext:
        return ForecastContext(self._schema, self.timeline, self.learner, learned, self.step_errors)

    def open_predictor(self, notices: SequenceNotices | None = None) -> Callable[[Rows], Forecast]:
        """Open a predictor of consecutive rows that follow the last row learned."""
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
        """End the warm-up: fit the scale to the held rows, and learn them in order."""
        self._trial_state = None
        held = self._copy_held_rows()
        started = []
        # With lags, targets are also inputs and keep their target type.
        settled = self._schema.lags or self.settings.kind != "auto"
        kinds = (
            [self.learner.settings.kind]
            if settled
            else candidate_types(self._schema, held.rows().y)
        )
        for settings in self.settings.list_candidates(kinds):
            same = settings.kind == self.learner.settings.kind
            learner = self.make_learner(settings, self.task if same else None)
            started.append(
                Candidate(learner, self.learner_state).record_rows(
                    *learner.initialize_state(self._copy_held_rows())
                )
            )
        self.racers = tuple(started)

    def _hold_rows(self, rows: Rows) -> Forecast:
        """Hold rows until the scale is known; forecasts come from the cold-start predictor."""
        kept = self.learner_state.kept
        held = len(kept)
        since, room = find_cold_start_window(self.let_go + held)
        cold_start = self._get_cold_start(since)
        count, ready = count_rows_to_hold(cold_start, held, rows.y[:MAX_HELD_ROWS], room)
        rows = slice_rows(rows, 0, count)
        labelled = np.isfinite(rows.y).any(axis=1)
        first = self.met + 1
        # A row without a target gets the forecast of the next row with one.
        place: IntArray = np.cumsum(labelled) - labelled
        y = np.concatenate((rows.y[labelled], np.full((1, rows.y.shape[1]), np.nan)))
        forecast = select_rows(cold_start.predict_then_update(y), place)
        framed = np.concatenate(([False], labelled, [False]))
        edges = np.flatnonzero(framed[1:] != framed[:-1]).tolist()
        for start, stop in zip(edges[::2], edges[1::2], strict=True):
            kept.add(slice_rows(rows, start, stop), rows.x.shape[1], first + start)
        self._cold_start = since, cold_start
        self.skipped += int(np.sum(~labelled))
        self.let_go += held + int(np.sum(labelled)) - len(kept)
        self.met += count
        if ready:
            self.finish_warmup()
        return forecast._replace(status=np.where(labelled, IN_WARMUP, UNLABELLED))

    def _get_cold_start(self, since: int) -> ColdStart:
        """Return the cold-start predictor, fitted to the held rows from `since` on."""
        before, self._cold_start = self._cold_start, None
        if before is not None and before[0] == since:
            return before[1]
        cold_start = self.task.make_cold_start()
        held = self.learner_state.kept.rows().y[since - self.let_go :]
        if len(held):
            cold_start.predict_then_update(held)
        return cold_start

    def _copy_held_rows(self) -> ReplayBuffer:
        """Copy the rows held."""
        kept = self.learner_state.kept
        return ReplayBuffer(kept.max_rows, kept.targets, kept.rows())

    def score_rows(self, rows: Rows, forecast: Forecast, held: bool) -> None:
        """Add rows to the record, except those held."""
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
