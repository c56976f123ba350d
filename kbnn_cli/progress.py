"""Report training to the user: notices, a bar or lines of scores, the log, the summary."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from time import perf_counter
from types import TracebackType
from typing import Any, Self

from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from kbnn.errors import DataError, ReaderLeft
from kbnn.metrics.scorecard import CurvePoint
from kbnn.metrics.target_metrics import find_metrics
from kbnn.model.candidates import (
    TARGET_TYPE_SELECTION_ROWS,
    compare_target_types,
    format_evidence,
)
from kbnn.sink import open_sink
from kbnn.wording import format_count, format_json, format_rows
from kbnn.workflows.run_results import summarize_training
from kbnn.workflows.training import Listener, Training
from kbnn_cli import display, exit_codes
from kbnn_cli.display import CleanConsole


class TrainListener(Listener):
    """Write notices and progress to stderr, and the log to its file.

    Failed writes never stop the training. A log that cannot be written is reported once, and
    `log_failed` is set.
    """

    def __init__(self, quiet: bool, log: str | None) -> None:
        self._quiet = quiet
        self._stack = ExitStack()
        self._log = None if log is None else self._stack.enter_context(open_sink(log, "a"))
        self.log_failed = False
        self._start = perf_counter()
        self._lines: display.DoublingLines | None = None
        self._heartbeat = display.Heartbeat("training")
        self._bar: Progress | None = None
        self._task = TaskID(0)
        self._alarms = 0
        self._resumed = False
        self._selecting_target_type = False

    def on_notice(self, text: str) -> None:
        """Print a notice unless --quiet was given."""
        if self._quiet:
            return
        if self._bar is not None:
            self._bar.console.print(exit_codes.wrap_line(f"kbnn: {text}"), soft_wrap=True)
        else:
            exit_codes.print_message(text)

    def on_open(self, training: Training) -> None:
        """Announce the model and prepare the display of progress."""
        path, model = training.options.model, training.model
        if training.continued:
            self.on_notice(f"continuing {path}, which has learned {format_rows(model.rows)}")
        else:
            self.on_notice(f"new model {path}")
        if training.position.rows or training.position.epoch:
            self.on_notice(f"resuming {_format_place(training)}")
            self._resumed = True
        overall = training.overall_model
        self._alarms = overall.learner_state.get_count("alarms")
        kinds = {racer.learner.settings.kind for racer in overall.racers}
        self._selecting_target_type = overall.is_warming_up or len(kinds) > 1
        self._log_event("start", training, continued=training.continued)
        if self._quiet:
            return
        stream = training.stream
        total = None if stream is None or stream.is_live else stream.total_bytes
        if total is None or not sys.stderr.isatty():
            self._lines = display.DoublingLines(overall)
            return
        self._bar = self._stack.enter_context(
            Progress(
                TextColumn("{task.description}"),
                BarColumn(bar_width=None),
                TextColumn("{task.percentage:>3.0f} %"),
                TextColumn("{task.fields[figures]}"),
                TimeRemainingColumn(compact=True),
                TextColumn("left"),
                console=CleanConsole(stderr=True),
                transient=True,
            )
        )
        size = total * training.position.epochs
        self._task = self._bar.add_task("training", total=size, figures="")

    def on_progress(self, training: Training, points: list[list[CurvePoint]]) -> None:
        """Show progress, new scores and alarms."""
        model = training.overall_model
        if points[0]:
            for j, name in enumerate(model.schema.targets):
                for point in points[j]:
                    self._log_event("point", training, target=name, **_point_fields(point))
            if self._lines is not None:
                for line in self._lines.format_points(points, self._rows_per_second(training)):
                    exit_codes.print_line(line)
                self._heartbeat.postpone()
        if self._lines is not None:
            self._heartbeat.report(training.rows)
        if model.learner_state.get_count("alarms") > self._alarms:
            new = model.alarms[self._alarms - model.learner_state.get_count("alarms") :]
            self._alarms = model.learner_state.get_count("alarms")
            for row in new:
                self._log_event("alarm", training, row=row)
        if self._selecting_target_type and model.learner_state.seen >= TARGET_TYPE_SELECTION_ROWS:
            self._announce_target_type(training)
        if self._bar is not None and training.stream is not None and training.stream.total_bytes:
            passes = training.position.epoch * training.stream.total_bytes
            speed = format_count(self._rows_per_second(training))
            figures = f"{format_rows(training.rows)}, {speed}/s{_format_loss(training)}"
            done = passes + training.stream.bytes_read
            if self._resumed:  # skipped rows took no time and must not enter the estimate
                self._bar.reset(self._task, completed=done, figures=figures)
                self._resumed = False
            self._bar.update(self._task, completed=done, figures=figures)

    def on_save(self, training: Training) -> None:
        """Log a checkpoint."""
        self._log_event("saved", training)

    def on_end(self, training: Training, code: int) -> None:
        """Remove the bar and show the summary."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
        if not training.ready:
            return
        self._log_event("end", training, summary=summarize_training(training))
        if self._quiet:
            return
        if self._selecting_target_type and training.model.rows:
            self._announce_target_type(training)
        if code != exit_codes.EXIT_DONE:
            self.on_notice(f"stopped {_format_place(training)}; {training.options.model} is saved")
        console = CleanConsole(stderr=True)
        console.print()
        for part in display.summary_parts(training):
            console.print(part)

    def _announce_target_type(self, training: Training) -> None:
        """Announce the selected target type unless it is plain regression."""
        self._selecting_target_type = False
        model = training.overall_model
        selected = compare_target_types(model.racers, model.lost)
        if selected is None:
            return
        kind, other, nats = selected
        rows = format_rows(min(model.learner_state.seen, TARGET_TYPE_SELECTION_ROWS))
        self.on_notice(
            f"task: {kind}, {format_evidence(nats, other)} after {rows} (override: --task {other})"
        )

    def _rows_per_second(self, training: Training) -> float:
        return training.rows / max(perf_counter() - self._start, 1e-9)

    def _log_event(self, event: str, training: Training, **more: Any) -> None:
        if self._log is None or self.log_failed:
            return
        entry = {
            "event": event,
            "seconds": round(perf_counter() - self._start, 6),
            "epoch": training.position.epoch,
            "row": training.position.rows,
            "rows": training.model.rows,
            **more,
        }
        try:
            self._log.write(f"{format_json(entry)}\n".encode())
        except (DataError, ReaderLeft) as error:
            self.log_failed = True
            why = str(error) if isinstance(error, DataError) else f"{error}: the reader closed it"
            exit_codes.print_message(f"{why}; training continues without the log")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()


def _format_place(training: Training) -> str:
    position = training.position
    after = f"after row {format_count(position.rows)}"
    return f"{after} of pass {position.epoch + 1}" if position.epochs > 1 else after


def _format_loss(training: Training) -> str:
    """Format the main metric for the bar."""
    model = training.model
    return f", {find_metrics(model.task).format_headline(model.card.scores[0].metric_values())}"


def _point_fields(point: CurvePoint) -> dict[str, float | None]:
    names = ("rows_scored", "loss", "nll", "coverage_90")
    since = ("since_loss", "since_nll", "since_coverage_90")
    return dict(zip((*names, *since), point.to_json(), strict=True))
