"""Tells the user how training goes: notices, a bar or doubling lines, the log, the summary."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from time import perf_counter
from types import TracebackType
from typing import Any, Self

from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from kbnn.errors import DataError, ReaderLeft
from kbnn.model.race import KIND_DECIDED, evidence_text, kinds_told, standings
from kbnn.run.outcome import summary
from kbnn.run.training import Listener, Training
from kbnn.score.curve import CurvePoint
from kbnn.sink import open_sink
from kbnn.wording import count, json_text, number, rows_of
from kbnn_cli import exits, render
from kbnn_cli.console import CleanConsole


class TrainListener(Listener):
    """Everything goes to stderr, the log to its file.

    Nothing here stops the training: what nobody hears is lost, and a log that cannot be written is
    said once and remembered in `log_failed`.
    """

    def __init__(self, quiet: bool, log: str | None) -> None:
        self._quiet = quiet
        self._stack = ExitStack()
        self._log = None if log is None else self._stack.enter_context(open_sink(log, "a"))
        self.log_failed = False
        self._start = perf_counter()
        self._lines: render.DoublingLines | None = None
        self._bar: Progress | None = None
        self._task = TaskID(0)
        self._alarms = 0
        self._resumed = False
        self._racing = False
        self._kinds = False

    def notice(self, text: str) -> None:
        """Say it, unless quiet was asked for."""
        if self._quiet:
            return
        if self._bar is not None:
            self._bar.console.print(exits.folded(f"kbnn: {text}"), soft_wrap=True)
        else:
            exits.say(text)

    def opened(self, training: Training) -> None:
        """Say which model it is, and get ready to show progress."""
        path, model = training.options.model, training.model
        if training.continued:
            self.notice(f"going on with {path}, which has learned {rows_of(model.rows)}")
        else:
            self.notice(f"new model {path}")
        if training.position.rows or training.position.epoch:
            self.notice(f"resuming {_place(training)}")
            self._resumed = True
        self._alarms = model.alarm_count
        self._racing = model.settings.hidden == "auto" and not model.lost
        kinds = {racer.learner.settings.kind for racer in model.racers}
        self._kinds = model.warming_up or len(kinds) > 1
        self._record("start", training, continued=training.continued)
        if self._quiet:
            return
        stream = training.stream
        total = None if stream is None or stream.live else stream.total_bytes
        if total is None or not sys.stderr.isatty():
            self._lines = render.DoublingLines(model)
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

    def advanced(self, training: Training, points: list[list[CurvePoint]]) -> None:
        """Show it."""
        model = training.model
        if points[0]:
            for j, name in enumerate(model.schema.targets):
                for point in points[j]:
                    self._record("point", training, target=name, **_point(point))
            if self._lines is not None:
                for line in self._lines.lines(points, self._speed(training)):
                    exits.tell(line)
        if model.alarm_count > self._alarms:
            new = model.alarms[self._alarms - model.alarm_count :]
            self._alarms = model.alarm_count
            for row in new:
                self._record("alarm", training, row=row)
        if self._kinds and model.learned.seen >= KIND_DECIDED:
            self._announce_kind(training)
        if self._racing and len(model.racers) == 1:
            self._racing = False
            self._announce(training)
        if self._bar is not None and training.stream is not None and training.stream.total_bytes:
            passes = training.position.epoch * training.stream.total_bytes
            figures = f"{rows_of(training.rows)}, {count(self._speed(training))}/s{_loss(training)}"
            done = passes + training.stream.bytes_read
            if self._resumed:  # what was skipped took no time and says nothing of what is left
                self._bar.reset(self._task, completed=done, figures=figures)
                self._resumed = False
            self._bar.update(self._task, completed=done, figures=figures)

    def saved(self, training: Training) -> None:
        """Note it in the log."""
        self._record("saved", training)

    def ended(self, training: Training, code: int) -> None:
        """Take the bar away and show the summary."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
        if not training.ready:
            return
        self._record("end", training, summary=summary(training))
        if self._quiet:
            return
        if self._kinds and training.model.rows:
            self._announce_kind(training)
        if self._racing and training.model.rows:
            self._announce(training)
        if code != exits.DONE:
            self.notice(f"stopped {_place(training)}; {training.options.model} is saved")
        console = CleanConsole(stderr=True)
        console.print()
        for part in render.summary_parts(training):
            console.print(part)

    def _announce_kind(self, training: Training) -> None:
        """What kind of number the target is taken for, where it is not any number."""
        self._kinds = False
        model = training.model
        told = kinds_told(model.racers, model.lost)
        if told is None:
            return
        kind, other, nats = told
        self.notice(
            f"task: {kind}, {evidence_text(nats, other)} after "
            f"{rows_of(min(model.learned.seen, KIND_DECIDED))} (--task {other} has it otherwise)"
        )

    def _announce(self, training: Training) -> None:
        """Which shape won the race, by how much, and what it costs."""
        rivals = standings(training.model.racers, training.model.lost)
        if not rivals:
            return
        nearest = min(rivals, key=lambda rival: rival.nats)
        cost = 1e6 * training.processor / max(training.rows, 1)
        self.notice(
            f"{nearest.leader} is in use, {evidence_text(nearest.nats, nearest.settings)} after "
            f"{rows_of(training.model.learned.seen)} "
            f"({number(cost, 3)} us of processor time a row so far)"
        )

    def _speed(self, training: Training) -> float:
        return training.rows / max(perf_counter() - self._start, 1e-9)

    def _record(self, event: str, training: Training, **more: Any) -> None:
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
            self._log.write(f"{json_text(entry)}\n".encode())
        except (DataError, ReaderLeft) as error:
            self.log_failed = True
            why = str(error) if isinstance(error, DataError) else f"{error}: its reader has left"
            exits.say(f"{why}; the training goes on without the log")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()


def _place(training: Training) -> str:
    position = training.position
    after = f"after row {count(position.rows)}"
    return f"{after} of pass {position.epoch + 1}" if position.epochs > 1 else after


def _loss(training: Training) -> str:
    """The figure that matters, for the bar."""
    model = training.model
    return f", {model.task.headline(model.card.scores[0].figures())}"


def _point(point: CurvePoint) -> dict[str, float | None]:
    names = ("rows_scored", "loss", "nll", "coverage_90")
    since = ("since_loss", "since_nll", "since_coverage_90")
    return dict(zip((*names, *since), point.to_json(), strict=True))
