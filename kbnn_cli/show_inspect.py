"""What `kbnn inspect` prints: what the model is, has seen and believes, and how it forecast."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from kbnn.task.gaussian import INTERVAL_HALF_WIDTHS_SD
from kbnn.wording import clean_text, format_number, format_percent
from kbnn_cli.show_figures import figures_table, verdict_text
from kbnn_cli.whiskers import draw_whiskers

if TYPE_CHECKING:
    from rich.console import RenderableType

    from kbnn.model.effects import Effect
    from kbnn.run.inspecting import Inspection

MAX_SHOWN_EFFECTS = 15
MAX_SHOWN_CATEGORIES = 8


def inspection_parts(found: Inspection, *, plots: bool) -> Iterator[RenderableType]:
    """The parts of the answer, to print one after the other."""
    yield Text.assemble((clean_text(found.path), "bold"), f": {found.summary}")
    for title, lines in (
        ("What it is", found.identity_lines()),
        ("What it has seen", found.history_lines()),
        ("Health", found.health_lines()),
    ):
        yield from make_heading(title)
        yield label_table(lines)
    yield from make_heading("Columns")
    yield columns_table(found.columns)
    for column in found.columns:
        if column["categories"]:
            yield Text.assemble(
                (f"{clean_text(column['name'])}: ", "dim"),
                format_category_names(column["categories"]),
            )
    for told in found.effects:
        yield from make_heading(f"Sensitivity of {clean_text(told.title)} to each feature")
        yield Text(
            f"change in {clean_text(told.unit)} per unit and per standard deviation of the feature "
            "(category: present, against one never seen)",
            style="dim",
        )
        yield EffectsTable(told.effects)
    for shown in found.sections:
        several = f" of {clean_text(shown.name)}" if len(found.sections) > 1 else ""
        yield from make_heading(f"Forecasts{several}, each made before its row was learned")
        yield from verdict_text(shown.verdict)
        if found.figures[shown.name]["rows"]:
            yield Text()
            yield figures_table(shown.table)
        if plots:
            from kbnn_cli.charts import section_charts

            yield Text()
            yield from section_charts(shown)


def make_heading(title: str) -> list[Text]:
    """A heading with a blank line before it."""
    return [Text(), Text(title, style="bold")]


def label_table(lines: Sequence[tuple[str, str]]) -> Table:
    """Labels and values in two columns."""
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True, min_width=17)
    table.add_column(overflow="fold")
    for label, value in lines:
        table.add_row(Text(label), Text(value))
    return table


def columns_table(columns: Sequence[dict[str, Any]]) -> Table:
    """Every column of the source."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("name", overflow="fold")
    table.add_column("kind", no_wrap=True)
    table.add_column("role", no_wrap=True)
    for head in ("center", "scale", "missing"):
        table.add_column(head, justify="right", no_wrap=True)
    for column in columns:
        numeric = column["kind"] == "number"
        missing = "" if column["missing"] is None else format_percent(column["missing"])
        numeric = numeric and column["scale"] is not None
        role = {"none": "not used", "input_sd": f"sd of {column['of']}"}.get(
            column["role"], column["role"]
        )
        role += " (change)" if column.get("as_change") else ""
        table.add_row(
            Text(clean_text(column["name"])),
            Text(column["kind"]),
            Text(clean_text(role)),
            Text(format_number(column["center"]) if numeric else ""),
            Text(format_number(column["scale"]) if numeric else ""),
            Text(missing),
        )
    return table


def format_category_names(names: Sequence[str]) -> str:
    """The first categories by name."""
    shown = ", ".join(clean_text(name) for name in names[:MAX_SHOWN_CATEGORIES])
    left = len(names) - MAX_SHOWN_CATEGORIES
    return f"{shown} and {left} more" if left > 0 else shown


class EffectsTable:
    """Effects with their 90 % intervals, the largest first."""

    def __init__(self, effects: Sequence[Effect]) -> None:
        self.effects = sorted(effects, key=lambda effect: -abs(effect.effect))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw in the characters that the console has."""
        shown = self.effects[:MAX_SHOWN_EFFECTS]
        sign = "+-" if options.ascii_only else "±"
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
        table.add_column("feature", overflow="fold")
        table.add_column(Text("per unit"), justify="right", no_wrap=True)
        table.add_column(Text("per sd"), justify="right", no_wrap=True)
        table.add_column(Text(f"{sign} sd"), justify="right", no_wrap=True)
        table.add_column(Text("90 % interval"), no_wrap=True)
        lines = draw_whiskers(
            [effect.effect for effect in shown],
            [INTERVAL_HALF_WIDTHS_SD[90] * effect.effect_sd for effect in shown],
            options.ascii_only,
        )
        for effect, line in zip(shown, lines, strict=True):
            table.add_row(
                Text(clean_text(effect.feature)),
                Text(format_number(effect.slope, 3)),
                Text(format_number(effect.effect, 3), style="bold"),
                Text(format_number(effect.effect_sd, 2)),
                line,
            )
        yield table
        left = len(self.effects) - len(shown)
        if left:
            yield Text(f"and {left} smaller ones (--json has them all)", style="dim")
