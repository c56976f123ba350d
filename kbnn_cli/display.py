"""Output for people: tables, the summary of training, progress bars and notices.

Results go to standard output, progress and notices to standard error. All text is cleaned of
control characters, since names and categories come from files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from kbnn.metrics.sections import describe_target
from kbnn.metrics.target_metrics import build_metric_table, find_metrics
from kbnn.model.diagnostics import list_displayed_noise, list_model_noise, list_networks
from kbnn.model.ensemble import describe_member
from kbnn.model.warmup import WARM_UP_ROWS
from kbnn.option_table import LOCAL_ENGINE
from kbnn.wording import clean_page, clean_text, format_count, format_number, format_rows
from kbnn.workflows import run_results
from kbnn.workflows.keyed import get_overall_model
from kbnn.workflows.run_results import RowTally, list_prequential_figures

if TYPE_CHECKING:
    from rich.console import RenderableType

    from kbnn.metrics.scorecard import CurvePoint
    from kbnn.metrics.target_metrics import ProgressColumn
    from kbnn.model.interface import StreamModel
    from kbnn.model.model import OnlineModel
    from kbnn.workflows.training import Training
if TYPE_CHECKING:
    from kbnn.metrics.figures import MetricTable as Figures
    from kbnn.metrics.verdicts import Verdict
import sys
from collections.abc import Callable
from contextlib import contextmanager
from time import perf_counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import RenderableType

    from kbnn.data.dataset import Stream
from kbnn_cli import exit_codes

if TYPE_CHECKING:
    from kbnn.data.reading import BadRowWriter


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
    layers = " + ".join(map(describe_member, list_networks(get_overall_model(model))))
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

    def __init__(self, doing: str) -> None:
        self._doing = doing
        self._start = self._last = perf_counter()

    def report(self, rows: int) -> None:
        """Print the number of rows so far if the last line was long ago."""
        now = perf_counter()
        if now - self._last >= HEARTBEAT_SECONDS:
            self._last = now
            speed = format_count(rows / (now - self._start))
            exit_codes.print_message(f"{self._doing}: {format_rows(rows)} so far, {speed} rows/s")

    def postpone(self) -> None:
        """Count the time from now on, since another line was printed."""
        self._last = perf_counter()


@contextmanager
def show_progress(stream: Stream, doing: str, quiet: bool) -> Iterator[Callable[[int], None]]:
    """Show a progress bar of bytes if standard error is a terminal; yield its update function.

    A live stream has no bar, since its end is unknown. Without a bar, a line is printed every
    HEARTBEAT_SECONDS.
    """
    total, done = stream.total_bytes, 0
    if quiet or not sys.stderr.isatty() or stream.is_live or total is None:
        heartbeat = Heartbeat(doing)

        def count_rows(rows: int) -> None:
            nonlocal done
            done += rows
            if not quiet:
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
    ) as bar:
        task = bar.add_task(doing, total=total, rows=0)

        def on_rows(rows: int) -> None:
            nonlocal done
            done += rows
            bar.update(task, completed=stream.bytes_read, rows=done)

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
