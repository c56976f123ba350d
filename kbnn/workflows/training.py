"""The training loop: each row is predicted, then learned; the model is saved regularly.

The model stores its position in the sources (`kbnn.workflows.checkpoint`), so that an interrupted
run can be resumed at the next row. The loop prints nothing; it notifies a `Listener`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from time import monotonic, perf_counter, thread_time

from kbnn.data.batch import slice_rows
from kbnn.data.chunk import shorten
from kbnn.data.dataset import Stream, open_stream
from kbnn.data.inputs import list_source_names
from kbnn.data.reading import BadRowWriter
from kbnn.data.schema import Schema
from kbnn.data.sources import STDIN
from kbnn.errors import DataError, OutputError, ReaderLeft, UsageError
from kbnn.metrics.scorecard import CurvePoint
from kbnn.metrics.verdicts import find_metrics
from kbnn.model import file as modelfile
from kbnn.model.ensemble import get_helper_seconds
from kbnn.model.interface import StreamModel
from kbnn.model.model import OnlineModel
from kbnn.model.settings import Settings
from kbnn.output.fields import OutputOptions, list_output_fields
from kbnn.output.writers import STDOUT, Writer, leading_columns, open_writer
from kbnn.targets.registry import TARGET_TYPES
from kbnn.wording import format_count, format_rows
from kbnn.workflows import keyed
from kbnn.workflows.alerts import (
    AlertCommand,
    AlertTrace,
    AlertWriter,
    describe_alerts,
    start_monitor,
)
from kbnn.workflows.checkpoint import (
    Checkpoint,
    Interrupted,
    InterruptGuard,
    Position,
    format_sources,
)
from kbnn.workflows.evaluating import Evaluation, UnlearnedRowNotices, evaluate
from kbnn.workflows.keyed import FleetCheckpoint
from kbnn.workflows.options import TrainOptions, check_columns, check_network_size
from kbnn.workflows.predicting import LearnedRows, LearningPipeline, use_engine
from kbnn.workflows.run_results import (
    RowTally,
    describe_cost,
    format_forgetting,
    measure_forgetting,
)

__all__ = ["Listener", "TrainOptions", "Training", "TrainingSeconds"]

MIN_LEARN_SAVE_RATIO = 9.0
"""Seconds of learning per second of saving, at least."""


@dataclass
class TrainingSeconds:
    """Seconds by activity.

    Reading runs ahead, so `read` is only the time spent waiting for it. `save` includes checkpoints
    and predictions, `start` is the start-up time of cluster workers.
    """

    read: float = 0.0
    encode: float = 0.0
    learn: float = 0.0
    save: float = 0.0
    start: float = 0.0
    total: float = 0.0


class Listener:
    """Receives the events of a run; every method may be overridden."""

    def on_notice(self, text: str) -> None:
        """Handle a notice to the user."""

    def on_open(self, training: Training) -> None:
        """Handle the start: sources and model are open, no row is learned yet."""

    def on_progress(self, training: Training, points: list[list[CurvePoint]]) -> None:
        """Handle a learned block; `points` are new points of the learning curve by target."""

    def on_save(self, training: Training) -> None:
        """Handle a completed checkpoint."""


def create_model(settings: Settings, schema: Schema) -> OnlineModel:
    """Create a model without rows; raise UsageError if its network is too large."""
    check_network_size(settings, schema)
    return OnlineModel(settings, schema)


class Training:
    """One training run: `run` does it, the attributes describe its progress and result."""

    def __init__(
        self,
        options: TrainOptions,
        listener: Listener | None = None,
        known: StreamModel | None = None,
    ) -> None:
        """Set up a run with checked options.

        `known` is the model to continue if `options.model` names no file.
        """
        self.options = options
        self._given_model = known
        self.listener = listener or Listener()
        self.seconds = TrainingSeconds()
        self.ready = False  # whether model and position are known
        self.continued = False  # whether a model existed before
        self.rows = 0  # rows processed by this run, over all passes
        self.processor_seconds = 0.0  # processor time of learning
        self.alert_count = 0  # alerts of this run
        self.draws_alerts = False  # whether the stream is traced for a chart
        self.trace: AlertTrace | None = None
        self.stream: Stream | None = None
        self.model: StreamModel
        self.position: Position
        self.tally_before = RowTally()
        self.test: Evaluation | None = None  # on the rows held out
        self._checkpoint: Checkpoint | None = None
        self._bad: BadRowWriter | None = None
        self._unlearnable = UnlearnedRowNotices()
        self._writer: Writer | None = None
        self._alerts: AlertWriter | None = None
        self._alert_command: AlertCommand | None = None
        self._pipeline: LearningPipeline
        self._unsaved = False
        self._saved_rows = 0
        self._saved_at = monotonic()
        self._save_interval = 0.0  # minimum seconds between saves, if saving is slow

    @property
    def bad_rows(self) -> int:
        """Number of unreadable rows in this run."""
        return 0 if self._bad is None else self._bad.count

    @property
    def overall_model(self) -> OnlineModel:
        """The model, or of a fleet the model that holds its record."""
        return keyed.get_overall_model(self.model)

    def run(self, interruption: InterruptGuard | None = None) -> None:
        """Train; `Interrupted` and errors in the data are raised after saving."""
        interruption = interruption or InterruptGuard()
        start = perf_counter()
        try:
            with ExitStack() as stack:
                if self.options.model is not None:
                    home = FleetCheckpoint if self._is_fleet else Checkpoint
                    self._checkpoint = stack.enter_context(home(self.options.model))
                    self._report_hard_links(self._checkpoint)
                self._open_stream(stack, interruption)
                if self.stream is not None:
                    self._open_writer(stack, self.stream)
                    self._open_alerts(stack, self.stream)
                    self.listener.on_open(self)
                    cost = describe_cost(self.model, self.stream, self.position.epochs)
                    if cost is not None:
                        self.listener.on_notice(cost)
                    there = use_engine(self.model, self.options.engine, self.options.cluster)
                    waited = perf_counter()
                    with there, self._save_on_failure():
                        self.seconds.start = perf_counter() - waited
                        self._learn_stream(self.stream, interruption)
        finally:
            self.seconds.total = perf_counter() - start

    @property
    def _is_fleet(self) -> bool:
        """Whether the run trains a fleet."""
        path = self.options.model
        return bool(self.options.key) or (path is not None and keyed.is_fleet(path))

    def _report_hard_links(self, checkpoint: Checkpoint) -> None:
        if checkpoint.name_count > 1:
            self.listener.on_notice(
                f"{self.options.model} has another name (a hard link), which keeps the model as it "
                "is now: saving makes a new file"
            )

    @contextmanager
    def _save_on_failure(self) -> Iterator[None]:
        """Save what was learned if learning ends early, then raise the error again."""
        try:
            yield
        except (Interrupted, ReaderLeft):
            self._save_checkpoint()
            raise
        except OutputError:
            # The model must not be ahead of what was written: keep the last save.
            if self._saved_rows:
                kept = f"{self.options.model} stays as it was saved after row {self._saved_rows:,}"
                self.listener.on_notice(f"{kept}. Free some space, then continue with --resume.")
            raise
        except (DataError, UsageError):
            self._save_checkpoint()
            if self.rows:
                were = "was" if self.rows == 1 else "were"
                learned = f"{format_rows(self.rows)} before the error {were} learned"
                saved = " and saved. Fix the error, then continue with --resume."
                self.listener.on_notice(f"{learned}{saved if self._checkpoint else ''}")
            raise

    def find_schema(self) -> None:
        """Find schema and settings; learn and write nothing."""
        with ExitStack() as stack:
            self._open_stream(stack, InterruptGuard())

    def _load_existing(self) -> StreamModel | None:
        """Load the model to continue, None if there is none; raise if the options contradict it."""
        options, path = self.options, self.options.model
        model = self._given_model
        if path is not None and self._is_fleet:
            model = keyed.load_existing(path, self._checkpoint, options)
        elif path is not None:
            if not modelfile.exists(path):
                return None
            if options.fresh:
                modelfile.check_overwrite(path)
                return None
            model = modelfile.load(path)
        if model is not None:
            name = path or "the model"
            options.choices.check_against(name, model.settings)
            check_columns(name, options.read, model.schema)
        return model

    def _open_stream(self, stack: ExitStack, interruption: InterruptGuard) -> None:
        """Find model, position and schema; open no stream if nothing is left to learn."""
        options, notice = self.options, self.listener.on_notice
        model = self._load_existing()
        settings = options.settings if model is None else model.settings
        read = keyed.add_key_columns(options.read, options.key if model is None else model.key)
        last = None if model is None else Position.from_json(model.position)
        begin = Position.at_start(list_source_names(options.sources), options.read, settings.seed)
        self.position = begin if options.model is None else self._find_start(begin, last)
        self.continued = model is not None
        if model is not None and self.position.is_finished:
            self.model = model
            self.tally_before = RowTally.from_model(model)
            self.ready = True
            notice("nothing left to learn: the run was complete")
            return
        self._bad = stack.enter_context(BadRowWriter(options.bad_rows))
        start = perf_counter()
        with interruption.wait_for_input():  # a pipe may block before its first rows
            self.stream = stack.enter_context(
                open_stream(
                    options.sources,
                    options=self.position.to_read_options(read),
                    schema=None if model is None else model.schema,
                    on_notice=notice,
                    on_bad_row=self._bad,
                )
            )
        self.seconds.read += perf_counter() - start
        check_network_size(settings, self.stream.schema)
        self.model = model or self._create_model(settings, self.stream.schema.copy())
        self.tally_before = RowTally.from_model(self.model)
        if self.options.wants_alerts or self.options.surprise:
            start_monitor(self.model, self.options.alert_rate, self.options.watch)
        self.ready = True

    def _create_model(self, settings: Settings, schema: Schema) -> StreamModel:
        if self.options.key:
            return keyed.create_fleet(self._checkpoint, self.options, settings, schema)
        return OnlineModel(settings, schema)

    def _find_start(self, begin: Position, last: Position | None) -> Position:
        """Find the start: the first row, or where a run on the same sources was interrupted."""
        options, notice = self.options, self.listener.on_notice
        if options.resume and last is None:
            notice("nothing to resume: the run starts at the first row")
        if options.resume:
            return begin if last is None else begin.resume_from(last)
        if options.again or last is None:
            return begin
        if not last.reads_same_rows(begin):
            if not last.complete and last.sources == begin.sources and STDIN not in begin.sources:
                notice(
                    f"the last run on {format_sources(begin.sources)} was interrupted and had "
                    "other options: this run starts at the first row (--resume says what differs)"
                )
            return begin
        if not last.complete:
            notice(
                f"the last run on {format_sources(begin.sources)} was interrupted: continuing at "
                "the row where it ended (--relearn learns all rows again)"
            )
            return begin.resume_from(last)
        notice(
            f"{format_sources(begin.sources)}: all rows were learned in an earlier run. They are "
            "learned again and count again."
        )
        return begin

    def _open_writer(self, stack: ExitStack, stream: Stream) -> None:
        path, position = self.options.predictions, self.position
        if path is None:
            return
        keep = None
        if position.epoch or position.rows:
            if position.predictions == path:
                keep = position.predictions_bytes
                if keep is None:
                    raise UsageError(f"{path}: only text can be resumed (use .csv or .jsonl)")
            else:
                self.listener.on_notice(f"the predictions begin at row {position.rows + 1}")
        fields = list_output_fields(
            self.model.task,
            OutputOptions(
                self.options.interval,
                tuple(self.options.quantiles),
                outlier=self.model.settings.robust,
                open=True,
                surprise=self.options.surprise,
            ),
        )
        self._writer = stack.enter_context(
            open_writer(path, fields, stream.schema, keep=keep, digits=self.options.digits)
        )
        self.position = replace(position, predictions=None if path == STDOUT else path)

    def _open_alerts(self, stack: ExitStack, stream: Stream) -> None:
        """Open the file of alerts, truncated to those of the rows already learned."""
        path, position = self.options.alerts, self.position
        if self.options.alert_exec is not None:
            command = AlertCommand(self.options.alert_exec, self.listener.on_notice)
            self._alert_command = stack.enter_context(command)
        if path is None:
            return
        keep = None
        if position.epoch or position.rows:
            keep = position.alerts_bytes if position.alerts == path else None
            if keep is None:
                self.listener.on_notice(f"the alerts begin at row {position.rows + 1}")
        has_key = bool(self.model.key)
        self._alerts = stack.enter_context(
            AlertWriter(path, stream.schema, has_key=has_key, keep=keep)
        )
        self.alert_count = self._alerts.kept_alerts
        self.position = replace(position, alerts=None if path == STDOUT else path)

    def _write_alerts(self, one: LearnedRows) -> None:
        """Write the alerts of learned rows, and run the command for each."""
        if not self.options.wants_alerts or one.anomalies is None:
            return
        if self.draws_alerts:
            self.trace = self.trace or AlertTrace(self.model)
            self.trace.add(one.rows, one.forecast, one.anomalies)
        if not one.anomalies.alerts:
            return
        records = describe_alerts(
            self.model, one.rows, one.forecast, one.anomalies, self.options.interval
        )
        self.alert_count += len(records)
        if self._alerts is not None:
            self._alerts.write(records)
        if self._alert_command is not None:
            for record in records:
                self._alert_command.run(record)

    def _learn_stream(self, stream: Stream, interruption: InterruptGuard) -> None:
        """Learn all rows of all passes, in pieces that end at points of the learning curve."""
        seconds = self.seconds
        self._saved_at = monotonic()
        self._pipeline = LearningPipeline(self.model, stream.is_live)
        if stream.is_live:
            interruption.call_when_idle(self.options.checkpoint_every, self._save_checkpoint)
        while True:
            wall, cpu = perf_counter(), thread_time()
            with interruption.wait_for_input():
                rows = next(stream, None)
            # Waiting uses no processor time: what was used was for encoding.
            used = thread_time() - cpu
            seconds.encode += used
            seconds.read += max(0.0, perf_counter() - wall - used)
            again = self.position.epoch > 0
            if rows is None:
                self._receive_rows(self._pipeline.finish(), again)
            if rows is None and self.position.epoch + 1 >= self.position.epochs:
                break
            if rows is None:
                self.position = replace(self.position, epoch=self.position.epoch + 1, rows=0)
                stream.start_next_pass()
                self.model.start_pass()
            elif again or self._pipeline.is_delayed:
                self._receive_rows(self._pipeline.learn(rows, again), again)
            else:
                while len(rows.y):
                    piece = next(self.model.card.curve.split_at_points(len(rows.y)))
                    part = slice_rows(rows, 0, piece.stop)
                    self._receive_rows(self._pipeline.learn(part, again), again)
                    rows = slice_rows(rows, piece.stop, len(rows.y))
            pause = max(self.options.checkpoint_every, self._save_interval)
            if self.model.wants_saving or monotonic() - self._saved_at >= pause:
                self._save_checkpoint()
        if not self.model.rows:
            raise DataError("no row could be learned: none has a target")
        self.position = replace(self.position, complete=True)
        self._unsaved = True
        self._save_checkpoint()
        if self.options.wants_alerts:
            alerts = format_count(self.alert_count) if self.alert_count else "no"
            path = self.options.alerts
            place = "" if path in (None, STDOUT) else f" ({path})"
            self.listener.on_notice(f"{alerts} alert{'s' * (self.alert_count != 1)}{place}")
        self._score_held_out(stream)

    def _score_held_out(self, stream: Stream) -> None:
        """Report forgetting, and score the rows held out."""
        notice = self.listener.on_notice
        model = self.overall_model
        found = measure_forgetting(model)
        if found is not None:
            shuffled = self.options.read.shuffle
            notice(
                format_forgetting(
                    found, shuffled=shuffled, alarms=model.learner_state.get_count("alarms")
                )
            )
        self._report_class_weights()
        if not self.options.read.test_split:
            return
        stream.start_next_pass(testing=True)
        try:
            self.test = evaluate(self.model, stream, notice=notice)
        except DataError as error:
            notice(f"rows held out: {error}")
            return
        rows, out = self.test.row_counts.scored, self.test.figures()
        figures = next(iter(out.values()))
        headline = (
            f": {find_metrics(self.model.task).format_headline(figures)}" if len(out) == 1 else ""
        )
        notice(f"{format_rows(rows)} held out and never learned{headline}")

    def _report_class_weights(self) -> None:
        """Report weights of classes that did not occur; such a name may be misspelt."""
        asked = self.model.settings.class_weight
        if asked in ("none", "balanced"):
            return
        absent = sorted(set(json.loads(asked)) - set(self.model.schema.classes))
        if absent:
            classes = ", ".join(f"'{shorten(name)}'" for name in self.model.schema.classes[:10])
            self.listener.on_notice(
                f"--class-weight: no row has the class '{shorten(absent[0])}'. Classes without a "
                f"weight count 1; the classes are {classes}"
            )

    def _receive_rows(self, learned: Iterator[LearnedRows], again: bool) -> None:
        """Receive learned rows, and account for time and counts."""
        while True:
            known = len(self.model.card.curve.points[0])
            start, used = perf_counter(), thread_time() + get_helper_seconds()
            one = next(learned, None)
            points = self.model.card.curve.points
            self.processor_seconds += thread_time() + get_helper_seconds() - used
            self.seconds.learn += perf_counter() - start
            if one is None:
                return
            self._count_rows(one, [of_target[known:] for of_target in points], again)

    def _count_rows(self, one: LearnedRows, points: list[list[CurvePoint]], again: bool) -> None:
        """Count learned rows, write their predictions, and notify the listener."""
        rows, learned = one.rows, perf_counter()
        self.rows += len(rows.y)
        self.position = replace(self.position, rows=self.position.rows + len(rows.y))
        self._unsaved = True
        for change in one.first_invalid_rows:
            name, words = (
                self.model.schema.targets[0],
                TARGET_TYPES[change.new_type].value_description,
            )
            self.listener.on_notice(
                f"row {format_count(change.row)}: target '{name}' is {change.value:g}, so it is "
                f"not {change.old_type}: the rows so far are learned again as {words} "
                f"(--task {change.old_type} leaves such rows out)"
            )
        invalid = self._unlearnable.notice_invalid_target(
            rows,
            self.model.task.name,
            self.model.schema.targets,
            settled=self.model.settings.kind != "auto",
        )
        for text in (
            invalid,
            self._unlearnable.notice_dropped_rows(self.overall_model.dropped_rows),
        ):
            if text is not None:
                self.listener.on_notice(text)
        if self._writer is not None and not again:
            leading = leading_columns(rows, self.model.task, self.model.key)
            self._writer.write(one.forecast, leading, anomalies=one.anomalies)
        self._write_alerts(one)
        if self._writer is not None or self._alerts is not None:
            self.seconds.save += perf_counter() - learned
        self.listener.on_progress(self, points)

    def _save_checkpoint(self) -> None:
        """Save the model and the predictions so far, if anything changed."""
        self._receive_rows(self._pipeline.finish(), self.position.epoch > 0)
        if not self._unsaved:
            return
        start = perf_counter()
        if self._writer is not None:
            written = self._writer.checkpoint()
            self.position = replace(self.position, predictions_bytes=written)
        if self._alerts is not None:
            self.position = replace(self.position, alerts_bytes=self._alerts.checkpoint())
        if self._checkpoint is not None:
            self.model.position = self.position.to_json()
            self._checkpoint.save_model(self.model)
        self._unsaved = False
        self._saved_rows = self.position.rows
        self._saved_at = monotonic()
        self._save_interval = MIN_LEARN_SAVE_RATIO * (perf_counter() - start)
        self.seconds.save += perf_counter() - start
        self.listener.on_save(self)
