"""Pictures of a scorecard for the terminal: calibration, PIT, learning curve, residuals, classes.

Every chart fits the width it is given, two or three side by side, in Braille dots and blocks where
the terminal can show them and in ASCII where it cannot. Colour only repeats what shape says.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from kbnn_cli.axes import Axis, span_values
from kbnn_cli.bars import draw_bars
from kbnn_cli.canvas import Canvas, Point
from kbnn_cli.confusion import ConfusionTable

if TYPE_CHECKING:
    from rich.console import RenderableType

    from kbnn.score.curve import CurvePoint
    from kbnn.task.section import ChartSpec as TaskChart
    from kbnn.task.section import TargetSection

DATA_STYLE = "cyan"
SECOND_STYLE = "yellow"
REFERENCE_STYLE = "bright_black"
CHART_HEIGHT_ROWS = 11  # odd, so that 0, 20, ... 100 % fall on every second row
MIN_CHART_COLUMNS = 36
CHART_GAP_COLUMNS = 3

DrawFunction = Callable[[int, bool], list[Text]]
Array = Any
"""A numpy array; the command line does no arithmetic of its own."""


@dataclass(frozen=True)
class TerminalChart:
    """A title, a hint how to read it, and a function that draws it at a width."""

    title: str
    hint: str
    draw: DrawFunction

    def render_lines(self, width: int, plain: bool) -> list[Text]:
        """The chart as lines no wider than `width`."""
        head = [Text(self.title, style="bold"), Text(self.hint, style="dim")]
        for line in head:
            line.truncate(width, overflow="crop" if plain else "ellipsis")
        return [*head, *self.draw(width, plain)]


class ChartGrid:
    """Charts side by side, as many as the width holds."""

    def __init__(self, charts: Sequence[TerminalChart]) -> None:
        self.charts = list(charts)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw for the width and the encoding of the console."""
        plain = options.ascii_only
        room = min(options.max_width, 132)
        columns = max(
            1,
            min(
                len(self.charts),
                3,
                (room + CHART_GAP_COLUMNS) // (MIN_CHART_COLUMNS + CHART_GAP_COLUMNS),
            ),
        )
        if len(self.charts) == 4:
            columns = min(columns, 2)  # two and two sit better than three and one
        width = min((room + CHART_GAP_COLUMNS) // columns - CHART_GAP_COLUMNS, 60)
        for start in range(0, len(self.charts), columns):
            block = [
                chart.render_lines(width, plain) for chart in self.charts[start : start + columns]
            ]
            for row in range(max(len(lines) for lines in block)):
                yield join_columns(
                    [lines[row] if row < len(lines) else Text() for lines in block], width
                )
            if start + columns < len(self.charts):
                yield Text()


def join_columns(parts: Sequence[Text], width: int) -> Text:
    """Pieces of equal width on one line, without trailing blanks."""
    line = Text(no_wrap=True)
    for i, part in enumerate(parts):
        line.append_text(part)
        if i + 1 < len(parts):
            line.append(" " * (width - part.cell_len + CHART_GAP_COLUMNS))
    line.rstrip()
    return line


def calibration_chart(levels: Array, observed: Array, rows: int) -> DrawFunction:
    """Share of rows inside the central interval of each level, against the level."""

    def draw(width: int, plain: bool) -> list[Text]:
        canvas = Canvas(width, CHART_HEIGHT_ROWS, Axis(0, 100), Axis(0, 100), plain=plain)
        canvas.draw_line([(0, 0), (100, 100)], REFERENCE_STYLE, ".", dotted=True)
        points = [
            (100 * p, 100 * q) for p, q in zip(levels.tolist(), observed.tolist(), strict=True)
        ]
        canvas.draw_line([(0.0, 0.0), *points, (100.0, 100.0)], DATA_STYLE)
        return canvas.render_lines()

    return draw


def pit_chart(bars: Array) -> DrawFunction:
    """Histogram of where the truth fell in its forecast, 1 = as many rows as if honest."""

    def draw(width: int, plain: bool) -> list[Text]:
        return draw_bars(bars.tolist(), width, CHART_HEIGHT_ROWS, plain)

    return draw


def learning_curve_chart(
    points: Sequence[CurvePoint], field: str, name: str, baseline: float | None
) -> DrawFunction:
    """One figure against rows seen, since the point before (line) and overall (dotted)."""

    def curve_points(line: str) -> list[Point]:
        pairs = [(float(p.rows), getattr(p, line)) for p in points]
        return [(rows, float(value)) for rows, value in pairs if value is not None]

    def draw(width: int, plain: bool) -> list[Text]:
        since, overall = curve_points(f"since_{field}"), curve_points(field)
        extra = [baseline] if baseline is not None else []
        x = span_values((rows for rows, _ in overall), log=True)
        y = span_values([value for _, value in (*since, *overall)] + extra)
        canvas = Canvas(width, CHART_HEIGHT_ROWS, x, y, plain=plain)
        if baseline is not None:
            canvas.draw_line(
                [(x.low, baseline), (x.high, baseline)], REFERENCE_STYLE, "-", dotted=True
            )
        canvas.draw_line(overall, SECOND_STYLE, ".", dotted=True)
        canvas.draw_line(since, DATA_STYLE)
        return canvas.render_lines()

    return draw


def trim_tails(values: Sequence[float], part: int = 100) -> list[float]:
    """The values without a `part`-th at each end: a few rows must not set the scale."""
    ranked = sorted(values)
    out = len(ranked) // part
    return ranked[out : len(ranked) - out]


def funnel_chart(y: Array, mean: Array, lower: Array, upper: Array) -> DrawFunction:
    """Errors of sampled rows against half the width of their 90 % interval, with its edges."""

    residuals, halves = (y - mean).tolist(), (0.5 * (upper - lower)).tolist()

    def draw(width: int, plain: bool) -> list[Text]:
        x = span_values(trim_tails(halves, 20))
        x = Axis(max(x.low, 0.0), x.high)
        top = max([abs(r) for r in trim_tails(residuals)] + [1.05 * x.high])
        canvas = Canvas(width, CHART_HEIGHT_ROWS, x, Axis(-1.05 * top, 1.05 * top), plain=plain)
        canvas.draw_line([(x.low, 0), (x.high, 0)], REFERENCE_STYLE, "-", dotted=True)
        canvas.draw_points(list(zip(halves, residuals, strict=True)), DATA_STYLE)
        for sign in (-1, 1):
            edge = [(x.low, sign * x.low), (x.high, sign * x.high)]
            canvas.draw_line(edge, SECOND_STYLE, "~")
        return canvas.render_lines()

    return draw


def truth_chart(y: Array, mean: Array, lower: Array, upper: Array, name: str) -> DrawFunction:
    """Predictions of sampled rows against what came true."""

    def draw(width: int, plain: bool) -> list[Text]:
        both = span_values([*y.tolist(), *mean.tolist()])
        canvas = Canvas(width, CHART_HEIGHT_ROWS, both, both, plain=plain)
        canvas.draw_points(list(zip(y.tolist(), mean.tolist(), strict=True)), DATA_STYLE)
        canvas.draw_line(
            [(both.low, both.low), (both.high, both.high)], SECOND_STYLE, ".", dotted=True
        )
        return canvas.render_lines()

    return draw


def forecast_chart(past: Array, mean: Array, sd: Array, name: str) -> DrawFunction:
    """The last values, then a forecast in its 90 % band; 0 is the last row learned."""

    def draw(width: int, plain: bool) -> list[Text]:
        known, path, half = past.tolist(), mean.tolist(), (1.645 * sd).tolist()
        lower = [(k + 1.0, m - h) for k, (m, h) in enumerate(zip(path, half, strict=True))]
        upper = [(k + 1.0, m + h) for k, (m, h) in enumerate(zip(path, half, strict=True))]
        before = [(float(k - len(known) + 1), v) for k, v in enumerate(known) if math.isfinite(v)]
        x = Axis(min([1.0 - len(known), 0.0]), float(len(path)))
        y = span_values([value for _, value in (*before, *lower, *upper)])
        canvas = Canvas(width, CHART_HEIGHT_ROWS, x, y, plain=plain)
        for edge in (lower, upper):
            canvas.draw_line(edge, SECOND_STYLE, "~", dotted=True)
        canvas.draw_line(before, REFERENCE_STYLE, ".")
        canvas.draw_line([(k + 1.0, m) for k, m in enumerate(path)], DATA_STYLE)
        return canvas.render_lines()

    return draw


def reliability_chart(weight: Array, confidence: Array, right: Array) -> DrawFunction:
    """Share right against stated confidence, for the bins that hold rows."""

    def draw(width: int, plain: bool) -> list[Text]:
        canvas = Canvas(width, CHART_HEIGHT_ROWS, Axis(0, 100), Axis(0, 100), plain=plain)
        canvas.draw_line([(0, 0), (100, 100)], REFERENCE_STYLE, ".", dotted=True)
        points = [
            (100 * q, 100 * r)
            for w, q, r in zip(weight.tolist(), confidence.tolist(), right.tolist(), strict=True)
            if w > 0.002 * weight.sum() and math.isfinite(q)
        ]
        canvas.draw_line(points, DATA_STYLE)
        canvas.draw_points(points, DATA_STYLE)
        return canvas.render_lines()

    return draw


CHART_FACTORIES: Final[dict[str, Callable[..., DrawFunction]]] = {
    "calibration": calibration_chart,
    "pit": pit_chart,
    "truth": truth_chart,
    "funnel": funnel_chart,
    "learning": learning_curve_chart,
    "reliability": reliability_chart,
    "ahead": forecast_chart,
}
"""The kinds of charts that a terminal can show."""


def section_charts(section: TargetSection) -> list[RenderableType]:
    """Everything worth drawing about one target; print the parts one after the other."""
    charts = [
        TerminalChart(chart.title, chart.hint, CHART_FACTORIES[chart.kind](**chart.data))
        for group in section.groups
        for chart in group.charts
        if chart.hint
    ]
    if not charts:
        return [Text("No row has been scored yet: nothing to draw.", style="dim")]
    if section.crossed is None:
        return [ChartGrid(charts)]
    counts = [list(row) for row in section.crossed.counts]
    return [ChartGrid(charts), Text(), ConfusionTable(counts, list(section.crossed.names))]


def single_chart(chart: TaskChart) -> RenderableType:
    """One chart by itself, as wide as there is room."""
    return ChartGrid(
        [TerminalChart(chart.title, chart.hint, CHART_FACTORIES[chart.kind](**chart.data))]
    )
