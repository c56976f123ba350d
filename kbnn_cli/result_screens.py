"""Screens of results: forecasts, `evaluate`, `inspect`, `inspect --diff` and fleets.

Each function yields the parts of one screen, which are printed one after the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import isfinite
from typing import TYPE_CHECKING, Any

from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from kbnn.distributions.predictive import INTERVAL_HALF_WIDTHS_SD
from kbnn.metrics.sections import ChartSpec, describe_target
from kbnn.metrics.verdicts import build_metric_table
from kbnn.model.dependence import describe_interaction
from kbnn.model.settings import format_interval_mode
from kbnn.wording import clean_text, format_count, format_number, format_percent, format_rows
from kbnn_cli import charts, display
from kbnn_cli.charts import draw_whiskers
from kbnn_cli.display import figures_table, verdict_text

if TYPE_CHECKING:
    from rich.console import RenderableType

    from kbnn.model.diagnostics import Effect
    from kbnn.model.explain import Importance
    from kbnn.model.interface import StreamModel
    from kbnn.workflows.comparing import Comparison, EffectChange, ValueChange, WeightChange
    from kbnn.workflows.evaluating import Evaluation
    from kbnn.workflows.forecast import BacktestResult, KeyBacktest
    from kbnn.workflows.inspecting import Inspection

LISTED_STEPS = (1, 2, 3, 6, 12, 18, 24, 36, 48, 72, 96, 168)
"""Steps listed besides the last one; --json has all of them."""


MAX_SHOWN_KEYS = 5


def show_chart(chart: ChartSpec | Sequence[ChartSpec], plot: str | None, *, terminal: bool) -> None:
    """Draw a chart to a file if requested, and on a terminal; several only to a file."""
    if plot is not None:
        from kbnn.report import write_picture

        write_picture(chart, plot)
    if terminal and isinstance(chart, ChartSpec) and display.on_terminal():
        from kbnn_cli.charts import single_chart

        display.print_parts([single_chart(chart)])


def backtest_parts(judged: BacktestResult) -> Iterator[RenderableType]:
    """Show the scores of forecasts by step."""
    keys = f" of {format_count(len(judged.keys))} keys" if judged.keys else ""
    yield Text(f"steps ahead, from {format_count(judged.origins)} rows{keys} on:")
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0))
    for head in ("step", "RMSE", "last value", "season ago", "inside 90 %", "width", "score"):
        table.add_column(Text(head, style="dim"), justify="right")
    last = judged.steps[-1].step
    for step in judged.steps:
        if step.step in LISTED_STEPS or step.step == last:
            season = "-" if step.season_rmse is None else format_number(step.season_rmse)
            table.add_row(
                str(step.step),
                format_number(step.rmse),
                format_number(step.last_rmse),
                season,
                format_percent(step.coverage_90),
                format_number(step.width_90),
                format_number(step.interval_score_90),
            )
    yield table
    yield Text("score: the width, and 20 times every miss; smaller is better", style="dim")
    averages = [
        f"{label} {format_number(value)}{unit}"
        for label, name, unit in (("MASE", "mase", ""), ("sMAPE", "smape", " %"),
                                  ("MSIS", "msis", ""))
        if (value := judged.average(name)) is not None
    ]  # fmt: skip
    if averages:
        yield Text(f"over all steps: {', '.join(averages)}")
    yield from key_backtest_parts(judged.keys)
    yield Text("")
    yield from verdict_text(judged.verdict)
    yield Text(
        "The model learned all rows before each origin."
        if judged.learning
        else "The network did not learn from these rows (--learn does, as a live system).",
        style="dim",
    )


def key_backtest_parts(keys: Sequence[KeyBacktest]) -> Iterator[RenderableType]:
    """Show the keys whose forecasts have the largest scaled errors."""
    known = sorted(
        (key for key in keys if key.mase is not None), key=lambda key: -(key.mase or 0.0)
    )
    if not known:
        return
    yield Text("")
    yield Text(f"keys with the largest MASE, of {format_count(len(keys))}:")
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0))
    table.add_column(Text("key", style="dim"))
    for head in ("rows", "MASE", "inside 90 %"):
        table.add_column(Text(head, style="dim"), justify="right")
    for key in known[:MAX_SHOWN_KEYS]:
        inside = "-" if key.coverage_90 is None else format_percent(key.coverage_90)
        mase = format_number(key.mase or 0.0)
        table.add_row(clean_text(key.key), format_count(key.origins), mase, inside)
    yield table


MAX_SHOWN_CHANGES = 10


def comparison_parts(made: Comparison, first: str, second: str) -> Iterator[RenderableType]:
    """Yield the parts of the screen."""
    yield Text.assemble((clean_text(first), "bold"), " against ", (clean_text(second), "bold"))
    if made.is_same:
        yield Text("The models are the same.")
        return
    several = len(made.figures) > 1
    groups: list[tuple[str, Sequence[ValueChange]]] = [
        ("Settings", made.settings),
        ("Columns", made.columns),
        ("Rows and counts", made.facts),
    ]
    for name, figures in made.figures.items():
        groups.append((f"Forecasts of {clean_text(name)}" if several else "Forecasts", figures))
    for title, found in groups:
        if found:
            yield from make_heading(title)
            yield changes_table(found)
    for name, effects in made.effects.items():
        yield from make_heading(
            f"Sensitivity of {clean_text(name)}, per standard deviation of the feature"
        )
        yield effects_table(effects[:MAX_SHOWN_CHANGES])
    if made.moves:
        yield from make_heading(
            f"Weights that moved most, of {format_count(made.weights_compared)} compared"
        )
        yield moves_table(made.moves)
        moved = format_number(made.root_mean_square_move, 3)
        yield Text(f"root mean square move {moved} prior sds", style="dim")
    elif not made.weights_compared:
        yield Text()
        yield Text("Weights are not compared: the networks differ in shape or seed.", style="dim")


def format_any_value(value: Any) -> str:
    """Format a value of any type."""
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, int):
        return format_count(value)
    if isinstance(value, list):
        return ", ".join(str(part) for part in value)
    return (
        format_number(value)
        if isinstance(value, float) or value is None
        else clean_text(str(value))
    )


def format_difference(change: float) -> str:
    """Format a difference with its sign."""
    text = format_count(change) if isinstance(change, int) else format_number(change, 3)
    return text if text.startswith("-") else f"+{text}"


def make_number_table(*names: str) -> Table:
    """Make a table with a text column first and numbers after it."""
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="dim")
    table.add_column(names[0], overflow="fold")
    for name in names[1:]:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def changes_table(found: Sequence[ValueChange]) -> Table:
    """List name, first value, second value and, for numbers, the difference."""
    table = make_number_table("", "first", "second", "change")
    for change in found:
        pair = (change.first, change.second)
        numbers = all(isinstance(v, int | float) and not isinstance(v, bool) for v in pair)
        gap = format_difference(change.second - change.first) if numbers else ""
        table.add_row(
            Text(clean_text(change.name)),
            Text(format_any_value(pair[0])),
            Text(format_any_value(pair[1])),
            Text(gap),
        )
    return table


def effects_table(found: Sequence[EffectChange]) -> Table:
    """List both effects with their sd, and the difference in units of that sd."""
    table = make_number_table("feature", "first", "sd", "second", "sd", "gap in sds")
    for change in found:
        values = (change.first, change.first_sd, change.second, change.second_sd, change.gap)
        table.add_row(
            Text(clean_text(change.feature)), *(Text(format_number(v, 3)) for v in values)
        )
    return table


def moves_table(found: Sequence[WeightChange]) -> Table:
    """List the place of a weight, its means, and the change in prior standard deviations."""
    table = make_number_table("weight", "first", "second", "prior sds")
    several = any(move.network > 1 for move in found)
    for move in found:
        network = f"network {move.network}, " if several else ""
        where = f"{network}layer {move.layer}, unit {move.unit}, from {clean_text(move.source)}"
        table.add_row(
            Text(where),
            Text(format_number(move.first, 3)),
            Text(format_number(move.second, 3)),
            Text(f"{move.prior_sds:+.3g}"),
        )
    return table


MAX_NAMED_SOURCES = 3
"""Sources named in the title; the others are only counted."""

LEARNING_NOTES = {
    False: "The model is frozen: it does not learn from these rows.",
    True: "The model learns each row after predicting it; nothing is saved.",
}


def evaluation_parts(
    evaluation: Evaluation, model: str, sources: Sequence[str], *, plots: bool
) -> Iterator[RenderableType]:
    """Yield the parts of the screen."""
    yield Text(f"{clean_text(model)} on {format_source_names(sources)}", style="dim")
    yield Text(LEARNING_NOTES[evaluation.learning], style="dim")
    sections = evaluation.build_sections()
    for section in sections:
        yield Text()
        if len(sections) > 1:
            yield Text(clean_text(section.name), style="bold underline")
        yield from verdict_text(section.verdict)
        yield Text()
        yield figures_table(section.table)
        loss = evaluation.pinball.get(section.name)
        if loss is not None:
            means = zip(loss.shares.tolist(), loss.mean_losses(), strict=True)
            losses = ", ".join(f"{share:g}: {format_number(mean)}" for share, mean in means)
            yield Text(f"pinball loss {losses}")
        if plots:
            from kbnn_cli.charts import section_charts

            yield Text()
            yield from section_charts(section)
        elif section.crossed is not None:
            from kbnn_cli.charts import ConfusionTable

            counts = [list(row) for row in section.crossed.counts]
            yield Text()
            yield ConfusionTable(counts, list(section.crossed.names))
    if evaluation.keys is not None:
        pass

        yield from key_ranking_parts(evaluation.keys.to_json())
    if evaluation.alerts is not None:
        yield Text()
        yield from map(Text, evaluation.alerts.format_lines())
        if plots:
            for spec in evaluation.alerts.trace.build_charts():
                yield from (Text(), AlertChart(spec))
    yield Text()
    yield Text(format_rows_line(evaluation), style="dim")
    yield Text(format_time_line(evaluation), style="dim")


ALERT_STYLE = "red"
SURPRISE_ROWS = 5


class AlertChart:
    """A stream with its interval and alerts, and below it the surprise, in the full width."""

    def __init__(self, spec: ChartSpec) -> None:
        self.spec = spec

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw for the width and the encoding of the console."""
        chart = charts.TerminalChart(self.spec.title, self.spec.hint, self._draw)
        yield from chart.render_lines(min(options.max_width, 132), options.ascii_only)

    def _draw(self, width: int, plain: bool) -> list[Text]:
        data, inside = self.spec.data, (charts.SECOND_STYLE, "~")
        row = data["row"].tolist()
        points = {
            name: [(r, v) for r, v in zip(row, data[name].tolist(), strict=True) if isfinite(v)]
            for name in ("low", "high", "lower", "upper", "surprise")
        }
        x = charts.Axis(row[0], max(row[-1], row[0] + 1.0))
        values = charts.trim_tails([v for _, v in points["low"] + points["high"]], 1000)
        y = charts.span_values(values or [0.0, 1.0], margin=0.1)
        most = max([v for _, v in points["surprise"]], default=1.0)
        top = charts.Canvas(width, charts.CHART_HEIGHT_ROWS, x, y, plain=plain)
        below = charts.Canvas(width, SURPRISE_ROWS, x, charts.Axis(0.0, most), plain=plain)
        for canvas in (top, below):  # one above the other
            gutter = max(top.gutter, below.gutter)
            canvas.width, canvas.gutter = canvas.width + canvas.gutter - gutter, gutter
        for name in ("lower", "upper"):
            top.draw_line(points[name], *inside, dotted=True)
        for (r, low), (_, high) in zip(points["low"], points["high"], strict=True):
            ends = [(r, min(max(v, y.low), y.high)) for v in (low, high)]
            top.draw_line(ends, charts.DATA_STYLE, "o")
        for r, v in points["surprise"]:
            below.draw_line([(r, 0.0), (r, v)], charts.DATA_STYLE, "|")
        signs = [" "] * below.width
        for r in data["marks"].tolist():
            signs[min(int(x.position_of(r) * below.width), below.width - 1)] = "^" if plain else "▲"
        marks = Text(" " * below.gutter + "".join(signs), style=ALERT_STYLE)
        shown = top.render_lines()[: charts.CHART_HEIGHT_ROWS] if values else []
        return [*shown, marks, *below.render_lines()]


def format_source_names(sources: Sequence[str]) -> str:
    """Name the first sources and count the others."""
    names = [clean_text("stdin" if name == "-" else name) for name in sources]
    if len(names) <= MAX_NAMED_SOURCES:
        return ", ".join(names)
    named = ", ".join(names[: MAX_NAMED_SOURCES - 1])
    return f"{named} and {len(names) - MAX_NAMED_SOURCES + 1} others"


def format_rows_line(evaluation: Evaluation) -> str:
    """Format how many rows were scored and why others were not."""
    scored, without, unreadable = evaluation.row_counts
    left = [
        f"{format_count(number)} {what}"
        for number, what in ((without, "without a target"), (unreadable, "unreadable"))
        if number
    ]
    mode = evaluation.intervals
    intervals = [f"{format_interval_mode(mode)} intervals"] if mode else []
    return ", ".join([f"{format_rows(scored)} scored", *left, *intervals])


def format_time_line(evaluation: Evaluation) -> str:
    """Format the seconds, their parts, and rows per second."""
    timing = evaluation.timing
    parts = ", ".join(
        f"{name} {format_number(seconds, 2)}"
        for name, seconds in (
            ("read", timing.read),
            ("predict", timing.predict),
            ("score", timing.score),
        )
    )
    rate = evaluation.rows_per_second
    return f"{format_number(timing.total, 3)} s ({parts}), {format_count(rate or 0)} rows/s"


MAX_SHOWN_KEYS = 20
"""Keys shown; --json has all of them."""
MAX_KEY_CHARACTERS = 40
"""Characters shown of a key."""


def overview_parts(model: StreamModel, found: dict[str, Any]) -> Iterator[RenderableType]:
    """Show a fleet, the scores of all rows, and its keys by number of rows."""
    keys = found["keys"]
    by = clean_text(", ".join(found["key"]))
    yield Text(
        f"{clean_text(found['fleet'])}: {describe_target(model.task)} "
        f"by {by}, {format_count(len(keys))} {'key' if len(keys) == 1 else 'keys'}, "
        f"{format_rows(found['rows'])} learned"
    )
    names = model.schema.targets
    figures = found["prequential"]
    if model.card.curve.rows:
        yield Text("\neach row was predicted before it was learned:", style="dim")
        for name in names:
            one = figures["targets"][name] if len(names) > 1 else figures
            yield figures_table(build_metric_table(model.task, one, name, brief=True))
    yield Text()
    table = _make_key_table(by, "rows", "error", "in 90 %", "alarms")
    for one in keys[:MAX_SHOWN_KEYS]:
        figures = [
            format_number(one["loss"]),
            format_percent(one["coverage_90"]),
            format_count(one["alarms"]),
        ]
        table.add_row(_format_key(one["key"]), format_count(one["rows"]), *figures)
    yield table
    if len(keys) > MAX_SHOWN_KEYS:
        yield Text(
            f"and {format_count(len(keys) - MAX_SHOWN_KEYS)} more (--json lists all)", style="dim"
        )


def key_ranking_parts(found: dict[str, Any]) -> Iterator[RenderableType]:
    """Show the best, the median and the worst key."""
    yield Text()
    table = _make_key_table(
        f"of {format_count(found['count'])} keys", "", "rows", "error", "in 90 %"
    )
    for which in ("best", "median", "worst"):
        if which in found:
            one = found[which]
            figures = [format_number(one["loss"]), format_percent(one["coverage_90"])]
            table.add_row(which, _format_key(one["key"]), format_count(one["rows"]), *figures)
    yield table


def _make_key_table(*heads: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for head in heads:
        right = head in ("rows", "error", "in 90 %", "alarms")
        table.add_column(head, justify="right" if right else "left", no_wrap=True)
    return table


def _format_key(key: str) -> Text:
    text = clean_text(key)
    return Text(text if len(text) <= MAX_KEY_CHARACTERS else f"{text[: MAX_KEY_CHARACTERS - 3]}...")


MAX_SHOWN_EFFECTS = 15
MAX_SHOWN_CATEGORIES = 8


def inspection_parts(found: Inspection, *, plots: bool) -> Iterator[RenderableType]:
    """Yield the parts of the screen."""
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
    for quantity, columns in found.importance.items():
        if not quantity.startswith(("mean", "log_odds")):
            continue
        yield from make_heading(
            f"Importance: mean size of each column's contribution to {quantity}"
        )
        yield ImportanceTable(columns)
    pairs = [pair for pair in found.interactions.values() if pair is not None]
    if pairs:
        yield from make_heading("Interaction of the two strongest columns")
        for pair in pairs:
            yield Text(describe_interaction(pair))
    for target in found.effects:
        yield from make_heading(f"Sensitivity of {clean_text(target.title)} to each feature")
        yield Text(
            f"change in {clean_text(target.unit)} per unit and per standard deviation "
            "of the feature (category: present, against one never seen)",
            style="dim",
        )
        yield EffectsTable(target.effects)
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
    """Make a heading with a blank line before it."""
    return [Text(), Text(title, style="bold")]


def label_table(lines: Sequence[tuple[str, str]]) -> Table:
    """Make a table of labels and values."""
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True, min_width=17)
    table.add_column(overflow="fold")
    for label, value in lines:
        table.add_row(Text(label), Text(value))
    return table


def columns_table(columns: Sequence[dict[str, Any]]) -> Table:
    """Make the table of the columns of the source."""
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
    """Name the first categories."""
    shown = ", ".join(clean_text(name) for name in names[:MAX_SHOWN_CATEGORIES])
    left = len(names) - MAX_SHOWN_CATEGORIES
    return f"{shown} and {left} more" if left > 0 else shown


class ImportanceTable:
    """Columns by the mean size of their contributions, with standard errors."""

    def __init__(self, columns: Sequence[Importance]) -> None:
        self.columns = columns

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw with the characters that the console can show."""
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
        table.add_column("column", overflow="fold")
        table.add_column(Text("size"), justify="right", no_wrap=True)
        sign = "+-" if options.ascii_only else "±"
        table.add_column(Text(f"{sign} se"), justify="right", no_wrap=True)
        for column in self.columns[:MAX_SHOWN_EFFECTS]:
            table.add_row(
                Text(clean_text(column.column)),
                Text(format_number(column.size, 3), style="bold"),
                Text(format_number(column.error, 2)),
            )
        yield table
        left = len(self.columns) - MAX_SHOWN_EFFECTS
        if left > 0:
            yield Text(f"and {left} smaller ones (--json has them all)", style="dim")


class EffectsTable:
    """The effects of features with their 90 % intervals, the largest first."""

    def __init__(self, effects: Sequence[Effect]) -> None:
        self.effects = sorted(effects, key=lambda effect: -abs(effect.effect))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw with the characters that the console can show."""
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
