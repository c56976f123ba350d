"""Pictures of a scorecard for the terminal: calibration, PIT, learning curve, residuals, classes.

Every chart fits the width it is given, two or three side by side, in Braille dots and blocks where
the terminal can show them and in ASCII where it cannot. Colour only repeats what shape says.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from kbnn.score.class_metrics import ClassScore
from kbnn_cli.axes import Axis, spanning
from kbnn_cli.bars import vertical_bars
from kbnn_cli.canvas import Canvas, Point
from kbnn_cli.confusion import Confusion

if TYPE_CHECKING:
    from rich.console import RenderableType

    from kbnn.score.curve import CurvePoint
    from kbnn.score.scorecard import Scorecard

DATA = "cyan"
SECOND = "yellow"
REFERENCE = "bright_black"
HEIGHT = 11  # odd, so that 0, 20, ... 100 % fall on every second row
NARROWEST = 36
GAP = 3

Draw = Callable[[int, bool], list[Text]]


@dataclass(frozen=True)
class Chart:
    """A title, a hint how to read it, and a function that draws it at a width."""

    title: str
    hint: str
    draw: Draw

    def lines(self, width: int, plain: bool) -> list[Text]:
        """The chart as lines no wider than `width`."""
        head = [Text(self.title, style="bold"), Text(self.hint, style="dim")]
        for line in head:
            line.truncate(width, overflow="crop" if plain else "ellipsis")
        return [*head, *self.draw(width, plain)]


class ChartGrid:
    """Charts side by side, as many as the width holds."""

    def __init__(self, charts: Sequence[Chart]) -> None:
        self.charts = list(charts)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw for the width and the encoding of the console."""
        plain = options.ascii_only
        room = min(options.max_width, 132)
        columns = max(1, min(len(self.charts), 3, (room + GAP) // (NARROWEST + GAP)))
        if len(self.charts) == 4:
            columns = min(columns, 2)  # two and two sit better than three and one
        width = min((room + GAP) // columns - GAP, 60)
        for start in range(0, len(self.charts), columns):
            block = [chart.lines(width, plain) for chart in self.charts[start : start + columns]]
            for row in range(max(len(lines) for lines in block)):
                yield joined([lines[row] if row < len(lines) else Text() for lines in block], width)
            if start + columns < len(self.charts):
                yield Text()


def joined(parts: Sequence[Text], width: int) -> Text:
    """Pieces of equal width on one line, without trailing blanks."""
    line = Text(no_wrap=True)
    for i, part in enumerate(parts):
        line.append_text(part)
        if i + 1 < len(parts):
            line.append(" " * (width - part.cell_len + GAP))
    line.rstrip()
    return line


def calibration_chart(levels: Sequence[float], observed: Sequence[float]) -> Chart:
    """Share of rows inside the central interval of each level, against the level."""

    def draw(width: int, plain: bool) -> list[Text]:
        canvas = Canvas(width, HEIGHT, Axis(0, 100), Axis(0, 100), plain=plain)
        canvas.line([(0, 0), (100, 100)], REFERENCE, ".", dotted=True)
        points = [(100 * p, 100 * q) for p, q in zip(levels, observed, strict=True)]
        canvas.line([(0.0, 0.0), *points, (100.0, 100.0)], DATA)
        return canvas.lines()

    return Chart("Calibration", "inside by promised %; low: too narrow", draw)


def pit_chart(bars: Sequence[int]) -> Chart:
    """Histogram of Phi((y - mean) / sd), 1 = as many rows as honest forecasts give."""

    def draw(width: int, plain: bool) -> list[Text]:
        return vertical_bars(list(bars), width, HEIGHT, plain)

    return Chart("PIT histogram", "flat: honest; U: error bars too narrow", draw)


def learning_chart(
    points: Sequence[CurvePoint], field: str, title: str, level: float | None
) -> Chart:
    """One figure against rows seen, since the point before (line) and overall (dotted)."""

    def series(name: str) -> list[Point]:
        pairs = [(float(p.rows), getattr(p, name)) for p in points]
        return [(rows, float(value)) for rows, value in pairs if value is not None]

    def draw(width: int, plain: bool) -> list[Text]:
        since, overall = series(f"since_{field}"), series(field)
        extra = [level] if level is not None else []
        x = spanning((rows for rows, _ in overall), log=True)
        y = spanning([value for _, value in (*since, *overall)] + extra)
        canvas = Canvas(width, HEIGHT, x, y, plain=plain)
        if level is not None:
            canvas.line([(x.low, level), (x.high, level)], REFERENCE, "-", dotted=True)
        canvas.line(overall, SECOND, ".", dotted=True)
        canvas.line(since, DATA)
        return canvas.lines()

    return Chart(f"{title} by rows seen", "line latest, dots all, level constant", draw)


def central(values: Sequence[float], part: int = 100) -> list[float]:
    """The values without a `part`-th at each end: a few rows must not set the scale."""
    ranked = sorted(values)
    out = len(ranked) // part
    return ranked[out : len(ranked) - out]


def residual_chart(residuals: Sequence[float], sds: Sequence[float]) -> Chart:
    """Errors of sampled rows against their stated sd, with the edges of the 90 % interval."""

    def draw(width: int, plain: bool) -> list[Text]:
        x = spanning(central(sds, 20))
        x = Axis(max(x.low, 0.0), x.high)
        top = max([abs(r) for r in central(residuals)] + [1.7 * x.high])
        canvas = Canvas(width, HEIGHT, x, Axis(-1.05 * top, 1.05 * top), plain=plain)
        canvas.line([(x.low, 0), (x.high, 0)], REFERENCE, "-", dotted=True)
        canvas.points(list(zip(sds, residuals, strict=True)), DATA)
        for sign in (-1, 1):
            edge = [(x.low, sign * 1.645 * x.low), (x.high, sign * 1.645 * x.high)]
            canvas.line(edge, SECOND, "~")
        return canvas.lines()

    return Chart("Residuals by stated sd", "the funnel holds 90 % of honest errors", draw)


def truth_chart(truth: Sequence[float], predicted: Sequence[float]) -> Chart:
    """Predictions of sampled rows against what came true."""

    def draw(width: int, plain: bool) -> list[Text]:
        both = spanning([*truth, *predicted])
        canvas = Canvas(width, HEIGHT, both, both, plain=plain)
        canvas.points(list(zip(truth, predicted, strict=True)), DATA)
        canvas.line([(both.low, both.low), (both.high, both.high)], SECOND, ".", dotted=True)
        return canvas.lines()

    return Chart("Predicted by true", "on the dotted line: right", draw)


def reliability_chart(
    weight: Sequence[float], confidence: Sequence[float], right: Sequence[float]
) -> Chart:
    """Share right against stated confidence, for the bins that hold rows."""

    def draw(width: int, plain: bool) -> list[Text]:
        canvas = Canvas(width, HEIGHT, Axis(0, 100), Axis(0, 100), plain=plain)
        canvas.line([(0, 0), (100, 100)], REFERENCE, ".", dotted=True)
        points = [
            (100 * q, 100 * r)
            for w, q, r in zip(weight, confidence, right, strict=True)
            if w > 0.002 * sum(weight) and math.isfinite(q)
        ]
        canvas.line(points, DATA)
        canvas.points(points, DATA)
        return canvas.lines()

    return Chart("Reliability", "right by sure %; low: over-confident", draw)


def card_charts(
    card: Scorecard, target: int = 0, classes: Sequence[str] = (), *, learning: bool = True
) -> list[RenderableType]:
    """Everything worth drawing about one target; print the parts one after the other.

    `learning=False` leaves out the learning curve, which says nothing when the model stood still.
    """
    score = card.scores[target]
    if score.rows == 0:
        return [Text("No row has been scored yet: nothing to draw.", style="dim")]
    points = card.points()[target] if learning else []
    figures = score.figures()
    if isinstance(score, ClassScore):
        weight, confidence, right = (part.tolist() for part in score.reliability())
        charts = [reliability_chart(weight, confidence, right)]
        if len(points) > 1:
            charts.append(learning_chart(points, "nll", "Log-loss", figures["baseline_log_loss"]))
        table = Confusion(card.summaries.confusion.tolist(), list(classes))
        return [ChartGrid(charts), Text(), table]
    charts = forecast_charts(card, target)
    if len(points) > 1:
        charts.append(learning_chart(points, "loss", "RMSE", figures["baseline_rmse"]))
        charts.append(learning_chart(points, "nll", "NLL", figures["baseline_nll"]))
    return [ChartGrid(charts)]


def forecast_charts(card: Scorecard, target: int) -> list[Chart]:
    """The pictures of one numeric target that need no learning."""
    summaries = card.summaries
    levels, observed = (part.tolist() for part in summaries.pit.coverage(target))
    sample = summaries.sample
    known = [
        (y, mean, sd)
        for y, mean, sd in zip(
            sample.y[:, target].tolist(),
            sample.forecast[:, target].tolist(),
            sample.forecast[:, summaries.targets + target].tolist(),
            strict=True,
        )
        if math.isfinite(y + mean + sd)
    ]
    return [
        calibration_chart(levels, observed),
        pit_chart(summaries.pit.bars(target).tolist()),
        truth_chart([y for y, _, _ in known], [mean for _, mean, _ in known]),
        residual_chart([y - mean for y, mean, _ in known], [sd for _, _, sd in known]),
    ]
