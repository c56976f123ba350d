"""Output for people: tables, the progress and the summary of training, its log, and notices.

Results go to standard output, progress and notices to standard error. All text is cleaned of
control characters, since names and categories come from files.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from time import perf_counter
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from rich.console import Console, ConsoleOptions, RenderableType
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from kbnn.errors import DataError, ReaderLeft
from kbnn.metrics.scorecard import CurvePoint
from kbnn.metrics.sections import describe_target
from kbnn.metrics.verdicts import build_metric_table, find_metrics
from kbnn.model.candidates import TARGET_TYPE_SELECTION_ROWS, compare_target_types, format_evidence
from kbnn.model.diagnostics import list_displayed_noise, list_model_noise, list_networks
from kbnn.model.ensemble import describe_member
from kbnn.model.warmup import WARM_UP_ROWS
from kbnn.option_table import LOCAL_ENGINE
from kbnn.sink import open_sink
from kbnn.wording import (
    clean_page,
    clean_text,
    format_count,
    format_json,
    format_number,
    format_rows,
)
from kbnn.workflows import run_results
from kbnn.workflows.keyed import get_overall_model
from kbnn.workflows.run_results import RowTally, list_prequential_figures, summarize_training
from kbnn.workflows.training import Listener, Training
from kbnn_cli import exit_codes

if TYPE_CHECKING:
    from rich.console import RenderableType

    from kbnn.data.dataset import Stream
    from kbnn.data.reading import BadRowWriter
    from kbnn.metrics.figures import MetricTable as Figures
    from kbnn.metrics.scorecard import CurvePoint
    from kbnn.metrics.verdicts import ProgressColumn, Verdict
    from kbnn.model.interface import StreamModel
    from kbnn.model.model import OnlineModel
    from kbnn.workflows.training import Training


class CleanConsole(Console):
    """A console without markup and control characters, since text comes from files."""

    def __init__(self, *, stderr: bool = False) -> None:
        super().__init__(stderr=stderr, highlight=False, markup=False, emoji=False)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Clean every segment of text; keep the console's own control codes."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=clean_page(segment.text))


MAX_SHOWN_ALARMS = 8
HEARTBEAT_SECONDS = 10.0
"""Longest time without a line on standard error while rows are processed."""


class DoublingLines:
    """Lines of scores at 32, 64, 128, ... rows: overall, and since the line before."""

    def __init__(self, model: OnlineModel) -> None:
        self._model = model
        self._columns: Sequence[ProgressColumn] = ()
        self._names = [clean_text(name) for name in model.task.targets]
        self._several = len(self._names) > 1

    def format_points(self, points: Sequence[Sequence[CurvePoint]], speed: float) -> Iterator[str]:
        """Format new points, with column heads first and wherever they change."""
        columns, noise = (
            find_metrics(self._model.task).progress_columns,
            list_displayed_noise(self._model),
        )
        for same_rows in zip(*points, strict=True):
            if [line.head for line in columns] != [line.head for line in self._columns]:
                self._columns = columns
                yield self._format_heads()
            for j, point in enumerate(same_rows):
                yield self._format_line(point, j, noise[j] if j < len(noise) else None, speed)

    def _format_heads(self) -> str:
        return self._align_cells(
            ["rows", *(line.head for line in self._columns), "rows/s"], "target"
        )

    def _format_line(self, point: CurvePoint, j: int, noise: float | None, speed: float) -> str:
        cells = [line.cell(point, noise) for line in self._columns]
        return self._align_cells(
            [format_count(point.rows), *cells, format_count(speed)], self._names[j]
        )

    def _align_cells(self, cells: list[str], name: str) -> str:
        """Align the cells in columns, within 80 characters."""
        widths = [10 if self._several else 12, *(line.width for line in self._columns), 10]
        line = "".join(f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True))
        return f"{line}  {name}" if self._several else line


def summary_parts(training: Training) -> Iterator[RenderableType]:
    """Build the summary of a run: metrics and best constant, rows, time, alarms."""
    model, overall = training.model, training.overall_model
    figures = list_prequential_figures(model)
    names = model.schema.targets
    if (overall.is_warming_up and not model.key) or not model.card.curve.rows:
        why = "the first 32 rows only set the scale"
        if overall.held_rows >= WARM_UP_ROWS:
            why = "rows are held until every target has varied"
        yield Text(f"no figures yet: {why}", style="dim")
        names = []
    else:
        yield Text("each row was predicted before it was learned:", style="dim")
    for name in names:
        one = figures["targets"][name] if len(names) > 1 else figures
        if len(names) > 1:
            yield Text(clean_text(name), style="bold")
        yield figures_table(build_metric_table(model.task, one, name, brief=True))
    if training.test is not None:
        yield Text("rows held out, never learned:", style="dim")
        for name, held in training.test.figures().items():
            yield figures_table(build_metric_table(model.task, held, name, brief=True))
    yield Text()
    yield _facts_table(training)
    held_out = None if training.test is None else training.test.card
    for name, verdict in run_results.judge_targets(model, held_out) if names else ():
        yield Text()
        if len(names) > 1:
            yield Text(clean_text(name), style="bold underline")
        yield from verdict_text(verdict)


def _facts_table(training: Training) -> Table:
    """Rows, time and what else happened, one line each."""
    model, seconds = training.model, training.seconds
    overall = training.overall_model
    tally = RowTally.from_model(model).since(training.tally_before)
    facts = Table(box=None, pad_edge=False, show_header=False, padding=(0, 3, 0, 0))
    facts.add_column(style="dim", no_wrap=True)
    facts.add_column()
    rows = [f"{format_count(tally.rows)} learned"]
    rows += [f"{format_count(tally.skipped)} without a target"] if tally.skipped else []
    rows += [f"{format_count(tally.rejected)} rejected"]
    rows += [f"{format_count(training.bad_rows)} unreadable"] if training.bad_rows else []
    rows += [f"{format_count(model.rows)} in the model"] if training.continued else []
    facts.add_row("rows", ", ".join(rows))
    if model.schema.wait:
        facts.add_row("waiting", overall.pending_rows.format_summary())
    if training.position.epochs > 1:
        facts.add_row("passes", f"{training.position.epochs}; the figures are those of the first")
    if list_model_noise(overall):
        level = ", ".join(format_number(sd) for sd in list_model_noise(overall))
        facts.add_row("noise", f"sd {level}")
    if model.interval_mode == "tracked":
        facts.add_row("bands", "calibrated online to their nominal coverage")
    if overall.alarms:
        facts.add_row("drift", _format_alarms(overall))
    spent = {name: getattr(seconds, name) for name in ("read", "encode", "learn", "save")}
    if training.options.engine != LOCAL_ENGINE:
        spent["start"] = seconds.start
    split = ", ".join(f"{name} {format_number(value, 2)}" for name, value in spent.items())
    facts.add_row("time", f"{format_number(seconds.total, 3)} s: {split}")
    if training.rows and seconds.total > 0.0:
        speed = format_count(training.rows / seconds.total)
        each = format_number(1e6 * training.processor_seconds / training.rows, 3)
        facts.add_row(
            "speed", f"{speed} rows/s; learning {each} microseconds of processor time a row"
        )
    return facts


def _format_alarms(model: OnlineModel) -> str:
    shown = [format_count(row) for row in model.alarms[-MAX_SHOWN_ALARMS:]]
    count = model.learner_state.get_count("alarms")
    noun = "alarm" if count == 1 else "alarms"
    last = "" if len(shown) == count else "the last "
    place = "row" if len(shown) == 1 else "rows"
    return f"{format_count(count)} {noun}, {last}at {place} {', '.join(shown)}"


def schema_parts(model: StreamModel) -> Iterator[RenderableType]:
    """Show the type and role of each column, and the network."""
    schema = model.schema
    columns = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0))
    for head in ("column", "kind", "role"):
        columns.add_column(Text(head, style="dim"), overflow="fold")
    for column in schema.columns:
        role = {"none": "ignored", "input_sd": f"sd of {column.of}"}.get(column.role, column.role)
        kind = "-" if column.kind == "ignored" else column.kind
        columns.add_row(Text(clean_text(column.name)), kind, Text(clean_text(role)))
    yield columns
    yield Text()
    overall = get_overall_model(model)
    optional = overall.learner.optional_inputs
    layers = " + ".join(describe_member(one, optional) for one in list_networks(overall))
    yield Text(
        f"{describe_target(model.task)} from {len(schema.features)} "
        f"{'feature' if len(schema.features) == 1 else 'features'}; layers {layers}"
    )
    if model.rows:
        yield Text(f"the model has learned {format_rows(model.rows)}")


LEVEL_STYLES = {"good": "green", "fair": "yellow", "poor": "red", "unknown": "dim"}


def verdict_text(verdict: Verdict) -> list[Text]:
    """Format a verdict: the headline, then the reasons."""
    style = f"bold {LEVEL_STYLES[verdict.level]}"
    return [Text(verdict.headline, style=style), *(Text(text) for text in verdict.sentences)]


def figures_table(figures: Figures) -> Table:
    """Build the table of metrics beside those of the best constant."""
    made = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0))
    made.add_column("", no_wrap=True)
    made.add_column(Text("model", style="dim"), justify="right", no_wrap=True)
    made.add_column(Text(figures.baseline, style="dim"), justify="right", no_wrap=True)
    made.add_column("", style="dim")
    for name, value, constant, remark in figures.rows:
        made.add_row(
            Text(name), Text(value, style="bold"), Text(constant), Text(clean_text(remark))
        )
    return made


def on_terminal() -> bool:
    """Tell whether standard output is a terminal."""
    return sys.stdout.isatty()


def print_parts(found: Iterable[RenderableType]) -> None:
    """Print renderables to standard output."""
    console = CleanConsole()
    if console.is_terminal:
        for part in found:
            console.print(part)
        return
    for part in found:
        with console.capture() as capture:
            console.print(part)
        # Tables are padded to their width; files need no trailing blanks.
        lines = capture.get().split("\n")[:-1]
        console.file.write("".join(f"{line.rstrip()}\n" for line in lines))


def print_json(found: dict[str, Any]) -> None:
    """Print one JSON object to standard output."""
    from kbnn.sink import standard_output
    from kbnn.wording import format_json

    standard_output().write(f"{format_json(found, indent=2)}\n".encode())


def print_csv(head: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table as CSV to standard output."""
    import csv
    import io

    from kbnn.sink import standard_output

    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(head)
    writer.writerows(rows)
    standard_output().write(text.getvalue().encode())


class Heartbeat:
    """Says every HEARTBEAT_SECONDS that a run without a progress bar continues."""

    def __init__(self, doing: str, quiet: bool = False) -> None:
        self._doing = doing
        self._quiet = quiet
        self._start = self._last = perf_counter()

    def report(self, rows: int) -> None:
        """Print the number of rows so far if the last line was long ago."""
        speed = format_count(rows / max(perf_counter() - self._start, 1e-9))
        self.report_state(f"{format_rows(rows)} so far, {speed} rows/s")

    def report_state(self, state: str) -> None:
        """Print how far the run is if the last line was long ago."""
        now = perf_counter()
        if not self._quiet and now - self._last >= HEARTBEAT_SECONDS:
            self._last = now
            exit_codes.print_message(f"{self._doing}: {state}")

    def postpone(self) -> None:
        """Count the time from now on, since another line was printed."""
        self._last = perf_counter()


@contextmanager
def show_progress(
    stream: Stream, doing: str, quiet: bool, *, bar: bool = True
) -> Iterator[Callable[[int], None]]:
    """Show a progress bar of bytes if standard error is a terminal; yield its update function.

    A live stream has no bar, since its end is unknown. Without a bar, a line is printed every
    HEARTBEAT_SECONDS.
    """
    total, done = stream.total_bytes, 0
    bar = bar and sys.stderr.isatty()
    if quiet or not bar or stream.is_live or total is None:
        heartbeat = Heartbeat(doing, quiet)

        def count_rows(rows: int) -> None:
            nonlocal done
            done += rows
            heartbeat.report(done)

        yield count_rows
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    with Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=None),
        TextColumn("{task.fields[rows]:,} rows"),
        TimeRemainingColumn(),
        console=CleanConsole(stderr=True),
        transient=True,
    ) as shown:
        task = shown.add_task(doing, total=total, rows=0)

        def on_rows(rows: int) -> None:
            nonlocal done
            done += rows
            shown.update(task, completed=stream.bytes_read, rows=done)

        yield on_rows


def make_notifier(quiet: bool) -> Callable[[str], None]:
    """Return the function that prints notices, or drops them if `quiet`."""
    return (lambda text: None) if quiet else exit_codes.print_message


def report_bad_rows(bad: BadRowWriter, fate: str, quiet: bool) -> None:
    """Report how many rows could not be read and what happened to them."""
    if bad.count and not quiet:
        from kbnn.wording import format_rows

        where = f"see {bad.path}" if bad.path else "--bad-rows FILE lists them"
        exit_codes.print_message(f"{format_rows(bad.count)} could not be read: {fate} ({where})")


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
        self._lines: DoublingLines | None = None
        self._heartbeat = Heartbeat("training")
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
        kinds = {candidate.learner.settings.kind for candidate in overall.candidates}
        self._selecting_target_type = overall.is_warming_up or len(kinds) > 1
        self._log_event("start", training, continued=training.continued)
        if self._quiet:
            return
        stream = training.stream
        total = None if stream is None or stream.is_live else stream.total_bytes
        if total is None or not sys.stderr.isatty():
            self._lines = DoublingLines(overall)
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
        for part in summary_parts(training):
            console.print(part)

    def _announce_target_type(self, training: Training) -> None:
        """Announce the selected target type unless it is plain regression."""
        self._selecting_target_type = False
        model = training.overall_model
        selected = compare_target_types(model.candidates, model.eliminated)
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
