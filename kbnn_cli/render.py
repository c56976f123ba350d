"""How training looks: doubling lines on the way, a summary at the end, the columns beforehand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from kbnn.model.warmup import WARM_UP_ROWS
from kbnn.run import remedies
from kbnn.run.outcome import RowTally, list_prequential_figures
from kbnn.run.trainoptions import LOCAL_ENGINE
from kbnn.wording import clean_text, format_count, format_number, format_rows
from kbnn_cli.show_figures import figures_table, verdict_text

if TYPE_CHECKING:
    from rich.console import RenderableType

    from kbnn.model.model import OnlineModel
    from kbnn.run.training import Training
    from kbnn.score.curve import CurvePoint
    from kbnn.task.base import ProgressColumn

MAX_SHOWN_ALARMS = 8


class DoublingLines:
    """Lines at 32, 64, 128, ... rows: overall, and since the line before."""

    def __init__(self, model: OnlineModel) -> None:
        self._model = model
        self._columns: Sequence[ProgressColumn] = ()
        self._names = [clean_text(name) for name in model.task.targets]
        self._several = len(self._names) > 1

    def format_points(self, points: Sequence[Sequence[CurvePoint]], speed: float) -> Iterator[str]:
        """The lines of new points, with heads before the first and where the heads change."""
        columns, noise = self._model.task.progress_columns, self._model.noise_shown
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
        """Cells under each other, within 80 columns."""
        widths = [10 if self._several else 12, *(line.width for line in self._columns), 10]
        line = "".join(f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True))
        return f"{line}  {name}" if self._several else line


def summary_parts(training: Training) -> Iterator[RenderableType]:
    """The end of a run: figures beside the best constant, rows, time, alarms."""
    model = training.model
    figures = list_prequential_figures(model)
    names = model.schema.targets
    if (model.is_warming_up and not model.key) or not model.card.curve.rows:
        why = "the first 32 rows only set the scale"
        if model.held_rows >= WARM_UP_ROWS:
            why = "rows are held until every target has varied"
        yield Text(f"no figures yet: {why}", style="dim")
        names = []
    else:
        yield Text("each row was predicted before it was learned:", style="dim")
    for name in names:
        one = figures["targets"][name] if len(names) > 1 else figures
        if len(names) > 1:
            yield Text(clean_text(name), style="bold")
        yield figures_table(model.task.build_table(one, name, brief=True))
    if training.test is not None:
        yield Text("rows held out, never learned:", style="dim")
        for name, held in training.test.figures().items():
            yield figures_table(model.task.build_table(held, name, brief=True))
    yield Text()
    yield _facts_table(training)
    held_out = None if training.test is None else training.test.card
    for name, verdict in remedies.judge_targets(model, held_out) if names else ():
        yield Text()
        if len(names) > 1:
            yield Text(clean_text(name), style="bold underline")
        yield from verdict_text(verdict)


def _facts_table(training: Training) -> Table:
    """Rows, time and what else happened, one line each."""
    model, seconds = training.model, training.seconds
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
        facts.add_row("waiting", model.pending_rows.format_summary())
    if training.position.epochs > 1:
        facts.add_row("passes", f"{training.position.epochs}; the figures are those of the first")
    if model.noise_sd:
        level = ", ".join(format_number(sd) for sd in model.noise_sd)
        facts.add_row("noise", f"sd {level}")
    if model.interval_mode == "tracked":
        facts.add_row("bands", "tracked: kept to their promise as the stream goes on")
    if model.alarms:
        facts.add_row("drift", _format_alarms(model))
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
    noun = "alarm" if model.alarm_count == 1 else "alarms"
    last = "" if len(shown) == model.alarm_count else "the last "
    place = "row" if len(shown) == 1 else "rows"
    return f"{format_count(model.alarm_count)} {noun}, {last}at {place} {', '.join(shown)}"


def schema_parts(model: OnlineModel) -> Iterator[RenderableType]:
    """What each column is taken for, and the network that follows."""
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
    layers = ",".join(map(str, model.learner.settings.hidden)) or "none"
    yield Text(
        f"{model.task.description} from {len(schema.features)} "
        f"{'feature' if len(schema.features) == 1 else 'features'}; layers {layers}"
    )
    if model.rows:
        yield Text(f"the model has learned {format_rows(model.rows)}")
