"""Terminal charts: calibration, PIT, learning, residuals, forecasts, contributions, confusions.

Charts are drawn with Braille dots and blocks, or with ASCII where the terminal has neither. A
Braille cell is 2 x 4 dots, so a plot of 30 x 10 cells has 60 x 40 dots; each cell has one style,
that of the last thing drawn. Charts fit the given width, up to three side by side. They can be read
without colour: reference lines are dotted.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from rich.console import RenderableType

    from kbnn.metrics.scorecard import CurvePoint
    from kbnn.metrics.sections import ChartSpec as TaskChart
    from kbnn.metrics.sections import TargetSection

DOT_BITS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
"""Bit of the dot in row r, column c of a Braille character."""

AXIS_STYLE = "dim"

Point = tuple[float, float]


class Canvas:
    """A plot: draw points and lines in data coordinates, then render lines of text."""

    def __init__(self, width: int, height: int, x: Axis, y: Axis, *, plain: bool = False) -> None:
        self.x, self.y = x, y
        self.plain = plain
        self.labels = [(value, format_tick(value)) for value in y.ticks(max(2, height // 2))]
        self.gutter = max(len(text) for _, text in self.labels) + 2 if self.labels else 2
        self.width, self.height = max(width - self.gutter, 8), height
        self._bits: dict[tuple[int, int], int] = {}
        self._style: dict[tuple[int, int], str] = {}
        self._mark: dict[tuple[int, int], str] = {}

    @property
    def dot_size(self) -> tuple[int, int]:
        """Number of dots across and down."""
        return (self.width, self.height) if self.plain else (2 * self.width, 4 * self.height)

    def _find_dot(self, point: Point) -> tuple[int, int] | None:
        across, down = self.dot_size
        u, v = self.x.position_of(point[0]), self.y.position_of(point[1])
        if not (-1e-9 <= u <= 1 + 1e-9 and -1e-9 <= v <= 1 + 1e-9):
            return None
        return min(int(u * across), across - 1), down - 1 - min(int(v * down), down - 1)

    def _set_dot(self, dot: tuple[int, int], style: str, mark: str) -> None:
        column, row = dot
        cell = dot if self.plain else (column // 2, row // 4)
        bit = 1 if self.plain else DOT_BITS[row % 4][column % 2]
        if self._style.get(cell) != style:
            self._bits[cell] = 0
        self._bits[cell] = self._bits.get(cell, 0) | bit
        self._style[cell], self._mark[cell] = style, mark

    def draw_points(self, points: Sequence[Point], style: str, mark: str = "o") -> None:
        """Draw single dots; those outside the axes are left out."""
        for point in points:
            dot = self._find_dot(point)
            if dot is not None:
                self._set_dot(dot, style, mark)

    def draw_line(
        self, points: Sequence[Point], style: str, mark: str = "*", *, dotted: bool = False
    ) -> None:
        """Draw straight lines from point to point on the (possibly logarithmic) axes."""
        across, down = self.dot_size
        stride = (1 if self.plain else 3) if dotted else 1
        drawn = 0
        for (x0, y0), (x1, y1) in itertools.pairwise(points):
            u0, v0, u1, v1 = (
                self.x.position_of(x0),
                self.y.position_of(y0),
                self.x.position_of(x1),
                self.y.position_of(y1),
            )
            count = max(int(max(abs(u1 - u0) * across, abs(v1 - v0) * down)), 1)
            for i in range(count + 1):
                drawn += 1
                if drawn % stride:
                    continue
                u, v = u0 + (u1 - u0) * i / count, v0 + (v1 - v0) * i / count
                if 0 <= u <= 1 and 0 <= v <= 1:
                    column = min(int(u * across), across - 1)
                    self._set_dot((column, down - 1 - min(int(v * down), down - 1)), style, mark)

    def render_lines(self) -> list[Text]:
        """Render the plot: `height` rows, the horizontal axis and its labels."""
        rows = {self._find_row(value): text for value, text in self.labels}
        found = []
        for row in range(self.height):
            label = rows.get(row, "")
            edge = ("+" if label else "|") if self.plain else ("┤" if label else "│")
            text = Text.assemble((f"{label:>{self.gutter - 1}}{edge}", AXIS_STYLE))
            for column in range(self.width):
                cell = (column, row)
                text.append(self._cell_character(cell), style=self._style.get(cell, ""))
            found.append(text)
        return [*found, *self._render_bottom()]

    def _find_row(self, value: float) -> int:
        return (
            self.height
            - 1
            - min(max(int(self.y.position_of(value) * self.height), 0), self.height - 1)
        )

    def _cell_character(self, cell: tuple[int, int]) -> str:
        bits = self._bits.get(cell, 0)
        if not bits:
            return " "
        return self._mark[cell] if self.plain else chr(0x2800 + bits)

    def _render_bottom(self) -> list[Text]:
        """Render the horizontal axis with its ticks, and the labels under them."""
        corner, dash, tick = ("+", "-", "+") if self.plain else ("└", "─", "┬")
        axis = [dash] * self.width
        labels = [" "] * (self.width + self.gutter)
        end = 0
        for value in self.x.ticks(max(2, self.width // 9)):
            column = min(max(int(self.x.position_of(value) * self.width), 0), self.width - 1)
            text = format_tick(value)
            start = max(self.gutter + column - len(text) // 2, 0)
            start = min(start, len(labels) - len(text))
            if start < end + 1 and end:
                continue
            axis[column] = tick
            labels[start : start + len(text)] = text
            end = start + len(text)
        line = " " * (self.gutter - 1) + corner + "".join(axis)
        return [Text(line, style=AXIS_STYLE), Text("".join(labels).rstrip(), style=AXIS_STYLE)]


@dataclass(frozen=True)
class Axis:
    """A range on a linear or logarithmic scale."""

    low: float
    high: float
    log: bool = False

    def position_of(self, value: float) -> float:
        """Return the position of `value`: 0 at the low end, 1 at the high end."""
        if self.log:
            value = max(value, 1e-300)
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)

    def ticks(self, wanted: int) -> list[float]:
        """Return about `wanted` round values in the range."""
        return log_ticks(self.low, self.high, wanted) if self.log else linear_ticks(self, wanted)


def linear_ticks(axis: Axis, wanted: int) -> list[float]:
    """Return at least two multiples of 1, 2, 2.5 or 5 times a power of ten."""
    raw = (axis.high - axis.low) / max(wanted, 1)
    power = 10.0 ** math.floor(math.log10(raw))
    step = next((m * power for m in (1, 2, 2.5, 5) if m * power >= raw * 0.999), 10 * power)
    first = math.ceil(axis.low / step - 1e-9)
    last = math.floor(axis.high / step + 1e-9)
    if last <= first and wanted < 8:
        return linear_ticks(axis, wanted + 1)
    return [0.0 if k == 0 else float(f"{k * step:.12g}") for k in range(first, last + 1)]


def log_ticks(low: float, high: float, wanted: int) -> list[float]:
    """Return powers of ten, thinned out if there are many; or the two ends."""
    first = math.ceil(math.log10(low) - 1e-9)
    last = math.floor(math.log10(high) + 1e-9)
    stride = max(1, math.ceil((last - first + 1) / max(wanted, 1)))
    found = [10.0**k for k in range(first, last + 1, stride)]
    return found if len(found) > 1 else [low, high]


def format_tick(value: float) -> str:
    """Format a tick label: 0, 0.25, 1.5, 200, 1k, 32k, 1M, 2e-05."""
    size = abs(value)
    for unit, name in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if unit <= size < 1e12:
            return f"{value / unit:.3g}{name}"
    return f"{value:.3g}" if size == 0 or 1e-3 <= size < 1e3 else f"{value:.1e}"


def span_values(values: Iterable[float], *, log: bool = False, margin: float = 0.04) -> Axis:
    """Make an axis that holds all finite `values` with a margin, never of zero length."""
    known = [v for v in values if math.isfinite(v) and (v > 0 or not log)]
    low, high = (min(known), max(known)) if known else (1.0, 2.0)
    if log:
        return Axis(low, high, True) if high > low * 1.01 else Axis(low / 2, high * 2, True)
    gap = high - low
    if gap <= 1e-9 * max(abs(low), abs(high)):
        gap = abs(high) or 1.0
    return Axis(low - margin * gap, high + margin * gap)


BAR_EIGHTHS = " ▁▂▃▄▅▆▇█"


def merge_bins(counts: Sequence[int], width: int) -> list[int]:
    """Add up counts in pairs until every bar has two columns and a gap."""
    bars = list(counts)
    while len(bars) > 5 and len(bars) % 2 == 0 and 3 * len(bars) > width:
        bars = [a + b for a, b in zip(bars[::2], bars[1::2], strict=True)]
    return bars


def format_bar_cell(height: float, row: int, plain: bool) -> str:
    """Return the character of a bar of `height` cells in the cell `row` above the axis."""
    filled = min(max(height - row, 0.0), 1.0)
    if plain:
        return "#" if filled >= 0.5 else " "
    return BAR_EIGHTHS[round(8 * filled)]


def draw_bars(counts: Sequence[int], width: int, height: int, plain: bool) -> list[Text]:
    """Draw bars relative to their mean, with a line where equal bars would end.

    Bars further than three standard errors from even, 3 sqrt(m (1 - 1 / bars)), stand out.
    """
    gutter = 4
    bars = merge_bins(counts, width - gutter)
    total = sum(bars)
    mean = total / len(bars) if total else 1.0
    error = 3 * math.sqrt(mean * (1 - 1 / len(bars)))
    top = max(2.0, max(bars) / mean)
    scale = height / top
    even = min(int(scale), height - 1)
    each = max((width - gutter) // len(bars), 2)
    vertical, dash = ("|", "_") if plain else ("│", "▁")
    found = []
    for row in reversed(range(height)):
        label = "1" if row == even else f"{top:.2g}" if row == height - 1 else ""
        text = Text.assemble((f"{label:>{gutter - 1}}{vertical}", "dim"))
        for count in bars:
            cell = format_bar_cell(count / mean * scale, row, plain)
            style = "yellow" if abs(count - mean) > error else "cyan"
            if cell == " " and row == even:
                text.append(dash * each, style="bright_black")
                continue
            text.append(cell * (each - 1), style=style)
            text.append(dash if row == even else " ", style="bright_black")
        found.append(text)
    corner, line = ("+", "-") if plain else ("└", "─")
    inner = each * len(bars)
    axis = " " * (gutter - 1) + corner + line * inner
    labels = f"{'0':>{gutter + 1}}{'0.5':^{inner - 2}}1"
    return [*found, Text(axis, style="dim"), Text(labels, style="dim")]


WHISKER_COLUMNS = 25


def draw_whiskers(
    values: Sequence[float], halves: Sequence[float], plain: bool, width: int = WHISKER_COLUMNS
) -> list[Text]:
    """Draw one line per value: a dot, a bar for value +- half, and a mark at zero.

    A stroke that holds zero is dim: the effect may be none.
    """
    low = min([0.0, *(v - h for v, h in zip(values, halves, strict=True))])
    high = max([0.0, *(v + h for v, h in zip(values, halves, strict=True))])
    span = (high - low) or 1.0
    dot, stroke, zero = ("o", "-", "|") if plain else ("●", "─", "│")

    def to_column(value: float) -> int:
        return min(max(int((value - low) / span * width), 0), width - 1)

    lines = []
    for value, half in zip(values, halves, strict=True):
        cells = [" "] * width
        cells[to_column(0.0)] = zero
        for at in range(to_column(value - half), to_column(value + half) + 1):
            cells[at] = stroke
        cells[to_column(value)] = dot
        lines.append(Text("".join(cells), style="cyan" if abs(value) > half else "bright_black"))
    return lines


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
        """Render the chart as lines no wider than `width`."""
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
    """Join pieces of equal width on one line, without trailing blanks."""
    line = Text(no_wrap=True)
    for i, part in enumerate(parts):
        line.append_text(part)
        if i + 1 < len(parts):
            line.append(" " * (width - part.cell_len + CHART_GAP_COLUMNS))
    line.rstrip()
    return line


def calibration_chart(levels: Array, observed: Array, rows: int) -> DrawFunction:
    """Plot the share of rows inside the central interval of each level against the level."""

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
    """Plot the histogram of PIT values; 1 is the count of a calibrated forecast."""

    def draw(width: int, plain: bool) -> list[Text]:
        return draw_bars(bars.tolist(), width, CHART_HEIGHT_ROWS, plain)

    return draw


def learning_curve_chart(
    points: Sequence[CurvePoint],
    field: str,
    name: str,
    baseline: float | None,
    alarms: Sequence[int] = (),
) -> DrawFunction:
    """Plot a metric against rows, since the point before (line) and overall (dotted).

    Drift alarms are dotted vertical lines.
    """

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
        for row in alarms:
            if x.low <= row <= x.high:
                ends = [(float(row), y.low), (float(row), y.high)]
                canvas.draw_line(ends, REFERENCE_STYLE, "|", dotted=True)
        canvas.draw_line(overall, SECOND_STYLE, ".", dotted=True)
        canvas.draw_line(since, DATA_STYLE)
        return canvas.render_lines()

    return draw


def trim_tails(values: Sequence[float], part: int = 100) -> list[float]:
    """Drop one in `part` values at each end, so that a few rows do not set the scale."""
    ranked = sorted(values)
    out = len(ranked) // part
    return ranked[out : len(ranked) - out]


def funnel_chart(y: Array, mean: Array, lower: Array, upper: Array) -> DrawFunction:
    """Plot errors of sampled rows against half the width of their 90 % interval."""

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
    """Plot predictions of sampled rows against true values."""

    def draw(width: int, plain: bool) -> list[Text]:
        both = span_values([*y.tolist(), *mean.tolist()])
        canvas = Canvas(width, CHART_HEIGHT_ROWS, both, both, plain=plain)
        canvas.draw_points(list(zip(y.tolist(), mean.tolist(), strict=True)), DATA_STYLE)
        canvas.draw_line(
            [(both.low, both.low), (both.high, both.high)], SECOND_STYLE, ".", dotted=True
        )
        return canvas.render_lines()

    return draw


def forecast_chart(
    past: Array, mean: Array, lower: Array, upper: Array, name: str, times: Sequence[str]
) -> DrawFunction:
    """Plot the last values and the forecast with its 90 % interval; 0 is the last row learned."""

    def draw(width: int, plain: bool) -> list[Text]:
        known, path = past.tolist(), mean.tolist()
        edges = [[(k + 1.0, v) for k, v in enumerate(edge.tolist())] for edge in (lower, upper)]
        before = [(float(k - len(known) + 1), v) for k, v in enumerate(known) if math.isfinite(v)]
        x = Axis(min([1.0 - len(known), 0.0]), float(len(path)))
        y = span_values([value for _, value in (*before, *edges[0], *edges[1])])
        canvas = Canvas(width, CHART_HEIGHT_ROWS, x, y, plain=plain)
        for edge in edges:
            canvas.draw_line(edge, SECOND_STYLE, "~", dotted=True)
        canvas.draw_line(before, REFERENCE_STYLE, ".")
        canvas.draw_line([(k + 1.0, m) for k, m in enumerate(path)], DATA_STYLE)
        return canvas.render_lines()

    return draw


def waterfall_chart(
    base: float, value: float, names: Sequence[str], contributions: Array, name: str
) -> DrawFunction:
    """Draw one bar per column, from the value before it to that after it."""

    def draw(width: int, plain: bool) -> list[Text]:
        sizes = contributions.tolist()
        ends = list(itertools.accumulate(sizes, initial=base))
        axis = span_values([value, *ends], margin=0.0)
        gutter = min(max(map(len, names), default=0), width // 3)
        inner = width - gutter - 12
        lines = []
        for at, (column, size) in enumerate(zip(names, sizes, strict=True)):
            places = sorted(round(axis.position_of(end) * (inner - 1)) for end in ends[at : at + 2])
            mark = ("+" if size >= 0.0 else "-") if plain else "█"
            bar = " " * places[0] + mark * (places[1] - places[0] + 1)
            line = Text(f"{column[:gutter]:<{gutter}} ")
            line.append(f"{bar:<{inner}}", style=DATA_STYLE if size >= 0.0 else SECOND_STYLE)
            lines.append(line.append(f" {size:+10.3g}"))
        return lines

    return draw


def reliability_chart(weight: Array, confidence: Array, right: Array) -> DrawFunction:
    """Plot accuracy against predicted confidence, for the bins that hold rows."""

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
    "waterfall": waterfall_chart,
}
"""The charts that a terminal can show."""


def section_charts(section: TargetSection) -> list[RenderableType]:
    """Yield the charts of one target."""
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
    """Return one chart of the full width."""
    return ChartGrid(
        [TerminalChart(chart.title, chart.hint, CHART_FACTORIES[chart.kind](**chart.data))]
    )


MAX_SHOWN_CLASSES = 10
"""Largest number of classes shown by name; rarer ones are added up under "others"."""

CLASS_NAME_COLUMNS = 14


def fold_classes(
    counts: Sequence[Sequence[int]], names: Sequence[str], shown: int
) -> tuple[list[list[int]], list[str]]:
    """Return the table of the commonest classes, with the rest added up as the last class."""
    size = len(counts)
    labels = [names[k] if k < len(names) else str(k) for k in range(size)]
    if size <= shown + 1:
        return [list(row) for row in counts], labels
    ranked = sorted(range(size), key=lambda k: (-sum(counts[k]), k))
    groups = [[k] for k in sorted(ranked[:shown])] + [sorted(ranked[shown:])]
    table = [[sum(counts[i][j] for i in a for j in b) for b in groups] for a in groups]
    return table, [*(labels[group[0]] for group in groups[:-1]), f"{size - shown} others"]


def shorten_class_name(name: str) -> str:
    """Shorten a class name; control characters become blanks."""
    clean = "".join(c if c.isprintable() else " " for c in name)
    return clean if len(clean) <= CLASS_NAME_COLUMNS else clean[: CLASS_NAME_COLUMNS - 2] + ".."


class ConfusionTable:
    """The confusion table with as many classes by name as the width holds."""

    def __init__(self, counts: Sequence[Sequence[int]], names: Sequence[str]) -> None:
        self.counts, self.names = counts, names

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Fold more classes into "others" until the table fits."""
        wide = options.update(width=1000)
        table = build_confusion_table(self.counts, self.names, 1)
        for shown in range(MAX_SHOWN_CLASSES, 1, -1):
            tried = build_confusion_table(self.counts, self.names, shown)
            if console.measure(tried, options=wide).maximum <= options.max_width:
                table = tried
                break
        yield Text("Confusion: true class down, predicted across", style="bold")
        yield table


def build_confusion_table(
    counts: Sequence[Sequence[int]], names: Sequence[str], shown: int
) -> Table:
    """Build the table of true class (down) by most probable class (across), with recall."""
    rows, labels = fold_classes(counts, names, shown)
    table = Table(
        box=None,
        pad_edge=False,
        padding=(0, 2, 0, 0),
    )
    table.add_column("", no_wrap=True)
    for label in labels:
        table.add_column(Text(shorten_class_name(label)), justify="right", no_wrap=True)
    table.add_column(Text("found", style="dim"), justify="right", no_wrap=True)
    for i, (label, row) in enumerate(zip(labels, rows, strict=True)):
        total = sum(row)
        cells = [
            Text(f"{value:,}", style="bold cyan" if i == j else "yellow" if value else "dim")
            for j, value in enumerate(row)
        ]
        share = f"{100 * row[i] / total:.1f} %" if total else "-"
        table.add_row(
            Text(shorten_class_name(label), style="bold"), *cells, Text(share, style="dim")
        )
    return table
