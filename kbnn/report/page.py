"""The HTML report, one self-contained page, and the main picture of a model as a file.

Charts are drawn here; the page itself is made of the Jinja2 templates in `templates/`.

The main picture is a PNG, SVG or PDF. One feature: the prediction with its bands, over the data.
Two features: the fields of the mean and of the standard deviation. Otherwise: predicted against
true with 90 % intervals.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from kbnn.array_types import FloatArray
from kbnn.distributions.predictive import INTERVAL_HALF_WIDTHS_SD
from kbnn.errors import UsageError
from kbnn.metrics.samples import StreamSummaries
from kbnn.metrics.sections import (
    ChartGroup,
    ChartSpec,
    ConfusionMatrix,
    MetricTile,
    PartialDependenceSpec,
    PredictionCurve,
    TargetSection,
    find_section_parts,
)
from kbnn.metrics.verdicts import Verdict
from kbnn.model.dependence import Dependence, Interaction, describe_interaction
from kbnn.model.diagnostics import Effect
from kbnn.model.explain import Importance
from kbnn.report import plots
from kbnn.report.plots import (
    BLUE,
    INK,
    MUTED,
    css_variables,
    drawing_style,
    escape_html,
    inline_svg,
    shorten_label,
)
from kbnn.sink import write_atomically
from kbnn.targets.base import TargetType
from kbnn.wording import clean_page, format_count, format_number, format_percent


@dataclass(frozen=True)
class WorstRows:
    """The rows the model found least probable: a table of text, most surprising first."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class TargetReport:
    """One target: what its task shows, and what only the model knows.

    `effect` says what the effects are changes of, `drawn` what the dependences show. `importance`
    lists the mean size of each column's contributions.
    """

    section: TargetSection
    effects: Sequence[Effect] = ()
    effect: str = ""
    importance: Sequence[Importance] = ()
    dependence: Sequence[Dependence] = ()
    interaction: Interaction | None = None
    drawn: str = ""
    worst: WorstRows | None = None


@dataclass(frozen=True)
class ReportData:
    """The whole page: what was judged on what, each target, and the model card (label, value)."""

    title: str
    subtitle: str
    targets: Sequence[TargetReport]
    card: Sequence[tuple[str, str]] = ()
    version: str = ""
    notes: Sequence[str] = field(default=())


FormatCells = Callable[[FloatArray], Sequence[str]]
"""One row of x to what a reader is shown of it, a text for each feature."""


def worst_rows(
    task: TargetType,
    summaries: StreamSummaries,
    target: int,
    features: Sequence[str],
    cells: FormatCells | None = None,
    shown: int = 10,
    columns: int = 5,
) -> WorstRows:
    """The most surprising rows as text: row number, truth, forecast, surprise, first features.

    `features` name the columns of x, or the texts that `cells` makes of a row.
    """
    worst = summaries.worst_rows
    format_row = find_section_parts(task).format_row
    cells = cells or (lambda x: [format_number(float(value)) for value in x])
    used = min(columns, len(features), worst.x.shape[1])
    head = ["row", f"{task.targets[target]}, true", "forecast", "NLL, nats"]
    rows = []
    for i in worst.rank_rows()[:shown]:
        truth, told = format_row(task, worst.y[i], worst.forecast[i], target)
        first = [f"{int(worst.row[i]):,}", truth, told, format_number(float(worst.priority[i]), 3)]
        rows.append([*first, *cells(worst.x[i])[:used]])
    return WorstRows([*head, *features[:used]], rows)


CHART_SIZE_INCHES = (4.2, 2.9)
"""Inches of a chart: about 300 points, so that 9-point text stays readable on a phone."""

SECURITY_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
"""Tells the browser to load nothing and to run no script."""

TEMPLATES: Final = Path(__file__).parent / "templates"

CHART_FUNCTIONS: Final[dict[str, Callable[..., None]]] = {
    "calibration": plots.draw_calibration,
    "pit": plots.draw_pit,
    "width_error": plots.draw_width_error,
    "truth": plots.draw_predicted_true,
    "residuals": plots.draw_residuals,
    "bell": plots.draw_error_histogram,
    "learning": plots.draw_learning_curve,
    "ahead": plots.draw_horizon,
    "reliability": plots.draw_reliability,
    "confidence_bars": plots.draw_confidence_bars,
    "selective": plots.draw_selective_accuracy,
    "waterfall": plots.draw_waterfall,
    "alerts": plots.draw_alerts,
}
"""The function that draws each kind of chart on given axes."""


class FramedChart(NamedTuple):
    """A chart as SVG, with its title and a line on how to read it."""

    title: str
    reading: str
    svg: Any


class FramedGroup(NamedTuple):
    """Charts under one title."""

    title: str
    charts: list[FramedChart]


class ConfusionCell(NamedTuple):
    """A count, how it is marked, and the strength of its shade."""

    text: str
    mark: str
    percent: int


class ConfusionRow(NamedTuple):
    """The rows of one true class."""

    name: str
    cells: list[ConfusionCell]
    found: str


class ConfusionGrid(NamedTuple):
    """A confusion matrix as it is shown."""

    title: str
    names: list[str]
    rows: list[ConfusionRow]


class ReportSection(NamedTuple):
    """Everything that the template shows of one target."""

    key: str
    name: str
    verdict: Verdict
    tiles: list[MetricTile]
    groups: list[FramedGroup]
    confusion: ConfusionGrid | None
    effects: FramedGroup
    worst: WorstRows | None


class ChartGallery:
    """Draws the charts of one section."""

    def __init__(self, figure_class: Any, key: str) -> None:
        self.figure_class, self.key, self.drawn = figure_class, key, 0

    def draw_chart(
        self,
        title: str,
        reading: str,
        draw: Callable[[Any], None],
        size: tuple[float, float] = CHART_SIZE_INCHES,
    ) -> FramedChart:
        """Draw one chart."""
        from markupsafe import Markup

        figure = self.figure_class(figsize=size, layout="constrained")
        draw(figure.add_subplot())
        self.drawn += 1
        svg = inline_svg(figure, f"{self.key}f{self.drawn}", title)
        return FramedChart(title, reading, Markup(svg))

    def draw_group(self, group: ChartGroup) -> FramedGroup:
        """Draw the charts of a group that belong on a page."""
        charts = [
            self.draw_chart(
                chart.title,
                chart.reading,
                lambda ax, chart=chart: CHART_FUNCTIONS[chart.kind](ax, **chart.data),  # type: ignore[misc]  # bound now
            )
            for chart in group.charts
            if chart.reading
        ]
        return FramedGroup(group.title, charts)

    def draw_effects(self, data: TargetReport) -> FramedGroup:
        """Draw the effects of the features and their partial dependence."""
        charts = []
        if data.effects:
            shown = min(len(data.effects), plots.MAX_FEATURES)
            charts.append(
                self.draw_chart(
                    "Sensitivity",
                    f"Change of {data.effect} per standard deviation of the feature (category: "
                    "present, against one never seen), with 90 % intervals; grey ones may be zero.",
                    lambda ax: plots.draw_sensitivities(ax, data.effects),
                    (CHART_SIZE_INCHES[0], max(CHART_SIZE_INCHES[1], 0.6 + 0.24 * shown)),
                )
            )
        if data.importance:
            shown = min(len(data.importance), plots.MAX_FEATURES)
            charts.append(
                self.draw_chart(
                    "Importance",
                    "Mean size of each column's contribution to a prediction, with 90 % intervals.",
                    lambda ax: plots.draw_importance(ax, data.importance),
                    (CHART_SIZE_INCHES[0], max(CHART_SIZE_INCHES[1], 0.6 + 0.24 * shown)),
                )
            )
        for item in data.dependence:
            charts.append(
                self.draw_chart(
                    f"Along {item.feature}",
                    dependence_caption(item),
                    lambda ax, item=item: plots.draw_dependence(ax, item, data.drawn),  # type: ignore[misc]  # bound now
                )
            )
        pair = data.interaction
        if pair is not None:
            charts.append(
                self.draw_chart(
                    f"{pair.columns[0]} and {pair.columns[1]}",
                    interaction_caption(pair),
                    lambda ax: plots.draw_interaction(ax, pair, data.drawn),
                )
            )
        return FramedGroup("What it has learned", charts)


def dependence_caption(item: Dependence) -> str:
    """Say how to read a partial dependence: not all have a band, categories have no histogram."""
    band = " with its 90 % interval" if item.sd.any() else ""
    below = "; below, where the data lie" if item.categories is None else ""
    return f"Average prediction{band}{below}."


def interaction_caption(pair: Interaction) -> str:
    """Say how strongly two columns interact; parallel lines mean that they do not."""
    return f"Average prediction; lines that are not parallel interact. {describe_interaction(pair)}"


def build_section(data: TargetReport, figure_class: Any, key: str) -> ReportSection:
    """Draw the charts of a target and gather what its section shows."""
    gallery, section = ChartGallery(figure_class, key), data.section
    return ReportSection(
        key,
        section.name,
        section.verdict,
        list(section.tiles),
        [gallery.draw_group(group) for group in section.groups],
        None if section.crossed is None else build_confusion_table(section.crossed),
        gallery.draw_effects(data),
        data.worst,
    )


def build_confusion_table(data: ConfusionMatrix) -> ConfusionGrid:
    """Format a confusion matrix: true classes down, predicted ones across."""
    rows = []
    for i, counts in enumerate(data.counts):
        total = max(sum(counts), 1)
        cells = [
            ConfusionCell(
                format_count(value),
                "own" if i == j else "wrong" if value else "zero",
                round(70 * value / total),
            )
            for j, value in enumerate(counts)
        ]
        found = format_percent(counts[i] / total) if sum(counts) else "-"
        rows.append(ConfusionRow(data.names[i], cells, found))
    return ConfusionGrid(data.title, list(data.names), rows)


@cache
def load_templates() -> Any:
    """Open the templates; UsageError where Jinja2 is not installed."""
    try:
        from jinja2 import Environment, FileSystemLoader, StrictUndefined
        from markupsafe import Markup
    except ImportError as error:
        raise UsageError(
            "the report needs Jinja2, which is not installed: pip install 'kbnn[report]'"
        ) from error
    templates = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        keep_trailing_newline=True,
    )
    templates.filters["text"] = lambda name: Markup(escape_html(name))
    return templates


def load_style() -> str:
    """Load the stylesheet, the colours of light and dark paper first."""
    light = f"{css_variables(False)} --back: #f5f4f1; --edge: #e4e2dd; --shade: #f0efeb;"
    dark = f"{css_variables(True)} --back: #121418; --edge: #2b2f36; --shade: #23272d;"
    return (
        f":root {{ color-scheme: light dark; {light} }}\n"
        f"@media screen and (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}\n\n"
        f"{(TEMPLATES / 'report.css').read_text(encoding='utf-8')}"
    )


def report_html(data: ReportData) -> str:
    """Make the whole page as text."""
    templates = load_templates()
    with drawing_style() as figure:
        sections = [build_section(target, figure, f"t{i}") for i, target in enumerate(data.targets)]
    from markupsafe import Markup

    page = templates.get_template("page.html")
    return str(
        page.render(
            data=data,
            sections=sections,
            policy=Markup(SECURITY_POLICY),
            style=Markup(load_style()),
        )
    )


def write_report(data: ReportData, path: str | Path) -> None:
    """Write the page; a reader never sees half of it."""
    write_atomically(str(path), clean_page(report_html(data)).encode())


PICTURE_FORMATS = ("png", "svg", "pdf")
GRID_POINTS = 80
"""Points of the grid along each feature."""


@dataclass(frozen=True)
class PictureData:
    """What the picture needs: a sample of rows, and the model as a function when D is 1 or 2.

    features (D names)   x (k, D)   truth (k,): what was true of them, as the task draws it
    predict              features (n, D) to what is drawn
    """

    target: str
    features: Sequence[str]
    x: FloatArray
    truth: FloatArray
    drawn: PartialDependenceSpec
    predict: Callable[[FloatArray], PredictionCurve]


def write_picture(data: PictureData | ChartSpec | Sequence[ChartSpec], path: str | Path) -> None:
    """Draw and write; the ending of the name decides the format."""
    kind = Path(path).suffix.lower().removeprefix(".")
    if kind not in PICTURE_FORMATS:
        raise UsageError(f"--plot {os.fspath(path)!r}: the name must end in .png, .svg or .pdf.")
    overrides = {"font.size": 10, "axes.facecolor": "white", "figure.facecolor": "white"}
    if kind != "svg":
        overrides["svg.fonttype"] = "path"
    with drawing_style(
        **overrides, **{"savefig.facecolor": "white", "svg.hashsalt": "kbnn"}
    ) as figure:
        buffer = io.BytesIO()
        metadata = {"Date": None} if kind == "svg" else {"CreationDate": None}
        drawn = draw_picture(figure, data)
        drawn.savefig(buffer, format=kind, dpi=200, metadata=None if kind == "png" else metadata)
    write_atomically(str(path), buffer.getvalue())


def draw_picture(figure_class: Any, data: PictureData | ChartSpec | Sequence[ChartSpec]) -> Any:
    """Draw the charts, one below the other, or the figure that suits the number of features."""
    if not isinstance(data, PictureData):
        charts = [data] if isinstance(data, ChartSpec) else data
        figure = figure_class(figsize=(8.0, 1.2 + 3.0 * len(charts)), layout="constrained")
        for at, chart in enumerate(charts):
            ax = figure.add_subplot(len(charts), 1, at + 1)
            CHART_FUNCTIONS[chart.kind](ax, **chart.data)
        return figure
    if len(data.features) == 1:
        figure = figure_class(figsize=(6.4, 4.2), layout="constrained")
        draw_band(figure.add_subplot(), data)
        return figure
    if len(data.features) == 2:
        figure = figure_class(figsize=(9.6, 4.2), layout="constrained")
        draw_planes(figure, data)
        return figure
    figure = figure_class(figsize=(5.4, 5.0), layout="constrained")
    chart = data.drawn.chart
    CHART_FUNCTIONS[chart.kind](figure.add_subplot(), **chart.data)
    return figure


def padded_range(values: FloatArray) -> tuple[float, float]:
    """Range of the known values with a tenth of air on both sides."""
    known = values[np.isfinite(values)]
    if known.shape[0] == 0:
        return 0.0, 1.0
    low, high = float(known.min()), float(known.max())
    air = 0.1 * (high - low) or 1.0
    return low - air, high + air


def draw_band(ax: Any, data: PictureData) -> None:
    """What is drawn, the 90 % band of the prediction, and inside it that of the function."""
    grid = np.linspace(*padded_range(data.x[:, 0]), 4 * GRID_POINTS)
    made = data.predict(grid[:, None])
    if made.function_sd is not None:
        lower, upper = made.lower, made.upper
        half = INTERVAL_HALF_WIDTHS_SD[90] * made.function_sd
        inner = [np.clip(made.value + side * half, lower, upper) for side in (-1.0, 1.0)]
        for edges, alpha, text in (
            ((lower, upper), 0.16, "90 %, data"),
            (inner, 0.32, "90 %, function"),
        ):
            ax.fill_between(grid, *edges, color=BLUE, alpha=alpha, lw=0, label=text)
    named = data.drawn.name
    ax.plot(
        grid, made.value, color=BLUE, label=shorten_label(named if data.drawn.marks else "mean")
    )
    ax.plot(data.x[:, 0], data.truth, ".", color=INK, ms=4, alpha=0.6, label="rows", zorder=1)
    ax.set(
        xlim=(grid[0], grid[-1]),
        xlabel=shorten_label(data.features[0]),
        ylabel=shorten_label(named),
    )
    ax.legend(loc="best")


def draw_planes(figure: Any, data: PictureData) -> None:
    """What is drawn and its standard deviation over the plane of two features."""
    across, up = (np.linspace(*padded_range(data.x[:, j]), GRID_POINTS) for j in (0, 1))
    table = np.column_stack([part.ravel() for part in np.meshgrid(across, up)])
    made = data.predict(table)
    drawn = data.drawn
    for ax, values, name, colours in zip(
        figure.subplots(1, 2, sharex=True, sharey=True),
        (made.value, made.sd),
        (drawn.name if drawn.marks else "mean", drawn.sd_name),
        ("cividis", "magma_r"),
        strict=True,
    ):
        image = ax.pcolormesh(
            across,
            up,
            values.reshape(GRID_POINTS, GRID_POINTS),
            cmap=colours,
            shading="gouraud",
            rasterized=True,
        )
        dark = (data.truth == 1) & drawn.marks
        for chosen, colour in ((~dark, "white"), (dark, INK)):
            x, y = data.x[chosen, 0], data.x[chosen, 1]
            ax.plot(x, y, ".", color=colour, mec=MUTED, mew=0.4, ms=5, alpha=0.8)
        ax.grid(visible=False)
        ax.set(xlabel=shorten_label(data.features[0]), title=shorten_label(name, 40))
        ax.set(xlim=(across[0], across[-1]), ylim=(up[0], up[-1]))
        figure.colorbar(image, ax=ax, shrink=0.92)
    figure.axes[0].set_ylabel(shorten_label(data.features[1]))
