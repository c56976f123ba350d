"""Online model: schema, candidates, pending labels and prequential record, in the user's units.

`OnlineModel` holds rows until the warm-up ends, then predicts, learns and scores every row.

Learning is atomic: after any exception (Ctrl-C, out of memory) rows are learned fully or not. A
`Transaction` records the model's state before its rows. This costs a few references, because most
parts are replaced rather than changed, and the others can be reset to a mark. Only network sessions
learn in place. They log the results of their calls, so that rows which some network has already
learned are completed by running the same calls again: logged calls return their logged results.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from operator import attrgetter
from threading import RLock
from typing import Any, Final

import numpy as np

from kbnn.array_types import FloatArray
from kbnn.core.kernel import Session
from kbnn.core.reference import ALARM, UNLABELLED
from kbnn.data.batch import (
    LearnResult,
    Rows,
    TargetTypeChange,
    join_anomalies,
    make_fill_values,
    slice_rows,
)
from kbnn.data.schema import Schema
from kbnn.data.time_series import Timeline
from kbnn.distributions.calibration import FIRST_GAIN, MEAN_SCALE_FACTOR
from kbnn.errors import UsageError
from kbnn.metrics.samples import choose_sample_rows
from kbnn.metrics.scorecard import Scorecard
from kbnn.model import candidates, scaler
from kbnn.model.anomaly import Monitor, monitor_rows
from kbnn.model.candidates import Candidate, EliminatedCandidate
from kbnn.model.ensemble import make_equal_weights
from kbnn.model.forecast_candidates import (
    COMBINED_STEPS,
    count_path_steps,
    count_rows_to_origin,
    is_origin,
)
from kbnn.model.forecast_combination import StepErrors
from kbnn.model.learner import Learner, LearnerState, make_learner
from kbnn.model.pending_labels import PendingRows, learn_by_id, restore_pending_forecasts
from kbnn.model.record import PrequentialRecord
from kbnn.model.recursive_forecast import (
    ForecastContext,
    SequenceNotices,
    SequentialPredictor,
    apply_one_step,
    attach_naive,
    can_combine,
    forecast_candidates,
    forecast_next_row,
    weight_first_step,
)
from kbnn.model.replay import MAX_HELD_ROWS, ReplayBuffer
from kbnn.model.settings import Settings
from kbnn.model.warmup import find_prediction_state, finish_warmup, hold_rows
from kbnn.targets.base import ColdStart, TargetType, make_empty_forecast
from kbnn.targets.classification import balance_classes
from kbnn.targets.prediction import IN_WARMUP, Forecast, join_forecasts, shift_forecast

__all__ = ["IN_WARMUP", "Forecast", "OnlineModel", "Rows"]


class OnlineModel:
    """Online model that learns batches of rows and predicts.

    Each row is held (until the scale is known), predicted, learned and scored. Several candidates
    may compete (kbnn.model.candidates); the first is the leader, whose forecasts are the model's.
    """

    key: tuple[str, ...] = ()
    """Key columns; only a fleet has them (kbnn.fleet)."""
    predict_backend: Callable[[Rows], Forecast] | None = None
    """Function that predicts instead of this model, see kbnn.workflows.predicting."""

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
        learner = make_learner(schema, candidate)
        nothing = LearnerState(
            (),
            scaler.blank_columns(0),
            make_equal_weights(1),
            0,
            0,
            ReplayBuffer(MAX_HELD_ROWS, targets),
            learner.task.init_calibration(settings.robust),
        )
        self.candidates: tuple[Candidate, ...] = (Candidate(learner, nothing),)
        self.eliminated: tuple[EliminatedCandidate, ...] = ()
        if settings.class_weight != "none" and not learner.task.labels:
            raise UsageError(
                f"--class-weight needs classes, but '{schema.targets[0]}' holds numbers. "
                "Leave it out, or read the target as classes with --task classification."
            )
        self.alarm_times: dict[int, list[float]] = {}  # instant and local time of alarms, by row
        self.class_counts = np.zeros(0)  # labelled rows of each class, for --class-weight balanced
        self.skipped = 0  # rows without a target
        self.dropped_rows = 0  # rows dropped in the warm-up before any target had varied
        self.rows_seen = 0  # rows of the stream, in all passes
        self.position: dict[str, Any] = {}
        self.record = PrequentialRecord(
            Scorecard(
                self.task,
                seed=settings.seed,
                sample=min(choose_sample_rows(schema.width), settings.sample),
            )
        )
        self.trial_state: LearnerState | None = None  # for predictions during the warm-up
        self.cold_start: tuple[int, ColdStart] | None = None  # fitted to rows from this one on
        self.timeline = Timeline(schema)
        self.history = self.timeline.make_history()
        self.step_errors = StepErrors.create(settings.robust)
        self.pending_rows = PendingRows(schema.wait)
        self.monitor: Monitor | None = None
        self.lock = RLock()
        """Held while rows are learned or predicted, and by callers that need a consistent state."""
        self._unfinished: Transaction | None = None

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
        if wider:
            self.record.count_rows(self.task)  # its rows have the old width
        self._schema = schema
        self.timeline = Timeline(schema)
        self.candidates = tuple(
            replace(
                candidate,
                learner=make_learner(schema, candidate.learner.settings, candidate.learner.task),
            )
            for candidate in self.candidates
        )
        if wider:
            before = make_fill_values(self.learner.indicators)
            for candidate in self.candidates:
                candidate.learned.buffer.fill_values = before
            self.record.add_columns(self.task, before)

    @property
    def learner(self) -> Learner:
        """Learner of the leader."""
        return self.candidates[0].learner

    @property
    def learner_state(self) -> LearnerState:
        """State of the leader; setting it drops all other candidates."""
        return self.candidates[0].learned

    @learner_state.setter
    def learner_state(self, learned: LearnerState) -> None:
        self.candidates = (replace(self.candidates[0], learned=learned),)

    @property
    def alarms(self) -> list[int]:
        """Numbers of the last hundred rows that raised a drift alarm."""
        return list(self.candidates[0].alarms)

    @property
    def card(self) -> Scorecard:
        """Prequential record: every row was forecast before it was learned."""
        with self.lock:
            self.recover_transaction()
            return self.record.count_rows(self.task)

    @property
    def interval_mode(self) -> str | None:
        """`tracked` if intervals are calibrated online, else `stated`; None if there are none."""
        kept = self.learner_state.calibration[:, FIRST_GAIN:MEAN_SCALE_FACTOR]
        moved = bool(kept.size) and not bool(np.all(kept == 1.0))
        if self.task.labels:
            return None
        return "tracked" if moved else "stated"

    def set_interval_mode(self, wanted: str | None) -> None:
        """Switch calibration off if `stated` is wanted; UsageError if `tracked` is impossible."""
        if wanted == "tracked" and self.settings.intervals == "stated":
            raise UsageError("the model was trained with --intervals model: leave out --intervals")
        if wanted == "stated":
            calibration = self.learner_state.calibration.copy()
            combined = self.step_errors.calibration.copy()
            for state in (calibration, combined):
                state[:, FIRST_GAIN:MEAN_SCALE_FACTOR] = 1.0
            self.learner_state = self.learner_state._replace(calibration=calibration)
            self.step_errors = self.step_errors._replace(calibration=combined)

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
        return len(self.learner_state.buffer) if self.is_warming_up else 0

    @property
    def rows(self) -> int:
        """Rows learned in all passes, including held rows."""
        return self.learner_state.get_count("rows") + self.held_rows

    @property
    def rejected_rows(self) -> int:
        """Rows with a target that could not be learned."""
        return self.learner_state.get_count("rejected") + self.dropped_rows

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
        if again or not can_combine(self._schema, self.task):
            return self._learn_labelled(rows, {}, again)
        return _learn_between_origins(self, rows)

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
        self.rows_seen += len(rows.y)
        forecast = forecast._replace(status=np.full(len(rows.y), UNLABELLED))
        if not self.is_warming_up:
            self.record.add_rows(self.task, rows, forecast, False)
        return forecast

    def _learn_labelled(
        self, rows: Rows, earlier_forecasts: dict[int, Forecast], again: bool = False
    ) -> LearnResult:
        """Predict and learn rows; `earlier_forecasts` are those of some rows, by position."""
        self.trial_state = None
        held = not self.candidates[0].learned.members
        if held and (again or not self.settings.units):
            finish_warmup(self)
            held = False
        naive = paths = None
        if self._schema.lags and not again:
            paths = self.timeline.forecast_rows(self.history, rows, COMBINED_STEPS)
            naive = self.timeline.look_up_naive(self.history, rows, paths)
        given, placed = rows, self.timeline.add_lags(self.history, rows)
        parts: list[Forecast] = []
        type_changes: tuple[TargetTypeChange, ...] = ()
        at = 0
        rows = _weigh_classes(self, placed.training_rows, again)
        while at < len(rows.y):
            rest = rows if at == 0 else slice_rows(rows, at, len(rows.y))
            if not self.candidates[0].learned.members:
                part = hold_rows(self, rest)
            else:
                if self.settings.kind == "auto":
                    self.candidates, rest, new_changes = candidates.split_at_invalid_target(
                        self.candidates, self._schema, rest
                    )
                    type_changes += new_changes
                self.candidates, part, skipped, eliminated = candidates.learn_candidates(
                    self.candidates, rest, self.rows_seen + 1, again
                )
                _record_alarm_times(self, rest, part)
                self.rows_seen += len(part.status)
                self.skipped += skipped
                self.eliminated += eliminated
            parts.append(part)
            at += len(part.status)
        forecast = placed.restore_level(
            join_forecasts(parts) if parts else make_empty_forecast(0, self.task.numbers)
        )
        forecast = restore_pending_forecasts(forecast, earlier_forecasts)
        anomalies = None
        if naive is not None and paths is not None:
            forecast = attach_naive(forecast, naive)
            if can_combine(self._schema, self.task):
                forecast = _combine_with_simple(self, placed.rows.y, forecast, naive[:, 0])
                self.step_errors = self.step_errors.learn_series_models(paths, given.y[:, 0])
        if not again:
            if self.monitor is not None:
                self.monitor, anomalies = monitor_rows(
                    self.monitor, self.task, self._schema, given, forecast
                )
            self.record.add_rows(self.task, placed.rows, forecast, held)
        return LearnResult(forecast, type_changes, anomalies)

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
        forecast = self.learner.predict(find_prediction_state(self), rows.x, rows.x_sd)
        return shift_forecast(forecast, self.history.last) if self._schema.changes else forecast

    def get_prediction_state(self) -> LearnerState:
        """Return the leader's state; held rows are learned in a temporary copy."""
        with self.lock:
            self.recover_transaction()
            return find_prediction_state(self)

    @property
    def forecast_context(self) -> ForecastContext:
        """What recursive forecasts need from the model."""
        return _make_context(self, self.get_prediction_state())

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


def _record_alarm_times(model: OnlineModel, rows: Rows, forecast: Forecast) -> None:
    """Record when the rows that raised a drift alarm were measured, if there is a clock."""
    if rows.time is None:
        return
    raised = np.flatnonzero(forecast.status & ALARM)
    if not len(raised):
        return
    times = {model.rows_seen + 1 + int(at): rows.time[at].tolist() for at in raised}
    known = {**model.alarm_times, **times}
    model.alarm_times = {row: time for row, time in known.items() if row in model.alarms}


def _weigh_classes(model: OnlineModel, rows: Rows, again: bool) -> Rows:
    """Multiply the weights of rows by those of their classes; scores do not change."""
    wanted = model.settings.class_weight
    if wanted == "none":
        return rows
    labels = rows.y[:, 0]
    if wanted == "balanced":
        weight, counts = balance_classes(model.class_counts, labels)
        model.class_counts = model.class_counts if again else counts
    else:
        weights = json.loads(wanted)
        known = np.array([weights.get(name, 1.0) for name in model.schema.classes])
        weight = np.array([known[int(label)] if label == label else 1.0 for label in labels])
    return rows._replace(weight=weight if rows.weight is None else weight * rows.weight)


def _learn_between_origins(model: OnlineModel, rows: Rows) -> LearnResult:
    """Learn rows, and record a forecast of the next steps at each origin among them."""
    parts: list[LearnResult] = []
    at = 0
    while at < len(rows.y) or not parts:
        before = int(model.step_errors.rows[0])
        stop = min(at + count_rows_to_origin(before), len(rows.y))
        part = rows if stop - at == len(rows.y) else slice_rows(rows, at, stop)
        parts.append(model._learn_labelled(part, {}))
        model.step_errors = model.step_errors.advance(stop - at)
        if is_origin(before + stop - at) and model.candidates[0].learned.members:
            _record_origin(model, before + stop - at)
        at = stop
    if len(parts) == 1:
        return parts[0]
    forecast = join_forecasts([part.forecast for part in parts])
    anomalies = join_anomalies(
        [(len(part.forecast.status), part.anomalies) for part in parts], rows.y.shape[1]
    )
    return LearnResult(forecast, sum((part.type_changes for part in parts), ()), anomalies)


def _record_origin(model: OnlineModel, row: int) -> None:
    """Record the errors known by now, and forecast the next steps."""
    context = _make_context(model, model.learner_state)
    paths = forecast_candidates(context, model.history, count_path_steps(row))
    values = model.history.values[:, model.timeline.columns.index(model.schema.targets[0])]
    errors = model.step_errors.resolve_pending(values, context.season)
    made = errors.open_combiner().combine(paths, calibrated=False)
    made = weight_first_step(context, forecast_next_row(context, model.history), made)
    model.step_errors = errors.add_origin(paths, made)


def _make_context(model: OnlineModel, learned: LearnerState) -> ForecastContext:
    """Return what recursive forecasts with a state need from the model."""
    return ForecastContext(model.schema, model.timeline, model.learner, learned, model.step_errors)


def _combine_with_simple(
    model: OnlineModel, y: FloatArray, forecast: Forecast, naive: FloatArray
) -> Forecast:
    """Combine forecasts of one step with simple ones, except those of the warm-up."""
    network = np.where(forecast.status & IN_WARMUP, np.nan, forecast.mean[:, 0])
    context = _make_context(model, model.learner_state)
    model.step_errors, made = context.learn_one_step(network, forecast.sd[:, 0], naive, y[:, 0])
    return apply_one_step(forecast, made)


_REPLACED: Final = (
    "_schema",
    "timeline",
    "candidates",
    "eliminated",
    "skipped",
    "dropped_rows",
    "rows_seen",
    "monitor",
    "step_errors",
    "class_counts",
    "alarm_times",
)
"""Attributes of a model that learning replaces."""

_get_replaced = attrgetter(*_REPLACED)


class Transaction:
    """A model's state before some rows, and these rows."""

    __slots__ = (
        "_before",
        "_history",
        "_kept",
        "_record",
        "_room",
        "_sessions",
        "again",
        "done",
        "rows",
    )

    def __init__(self, model: OnlineModel, rows: Rows, again: bool) -> None:
        self.rows, self.again = rows, again
        self.done = False
        """Whether the rows were learned, so that only the logs have to be closed."""
        self._before = _get_replaced(model)
        self._record = model.record.mark()
        self._history = model.history.mark() if model._schema.lags else None
        self._room = model.pending_rows.mark() if model._schema.wait else None
        self._kept: list[tuple[ReplayBuffer, Any]] = []
        self._sessions: tuple[Session, ...] = ()
        for candidate in model.candidates:
            learned = candidate.learned
            self._kept.append((learned.buffer, learned.buffer.mark()))
            self._sessions += learned.members
            for session in learned.members:
                session.begin_log()

    @property
    def has_learned(self) -> bool:
        """Whether some network has learned any of the rows."""
        return any(session.has_learned for session in self._sessions)

    def restore(self, model: OnlineModel) -> None:
        """Restore the model, except for the networks, whose logs are rewound."""
        for name, value in zip(_REPLACED, self._before, strict=True):
            setattr(model, name, value)
        for candidate in model.candidates:
            candidate.learner.task.schema = model._schema
        model.record.reset(self._record)
        if self._history is not None:
            model.history.reset(self._history)
        if self._room is not None:
            model.pending_rows.reset(self._room)
        for kept, mark in self._kept:
            kept.reset(mark)
        for session in self._sessions:
            session.rewind_log()
        model.trial_state = model.cold_start = None

    def end(self) -> None:
        """Close the logs of all sessions."""
        for session in self._sessions:
            session.end_log()
