"""The HTML report: one self-contained page with a verdict, charts, tables and the model card.

Charts are drawn here; the page itself is made of the Jinja2 templates in `templates/`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

from kbnn.errors import UsageError
from kbnn.metrics.sections import ChartGroup, ConfusionMatrix, MetricTile
from kbnn.metrics.verdicts import Verdict
from kbnn.report import plots
from kbnn.report.report_data import Dependence, ReportData, TargetReport, WorstRows
from kbnn.report.styles import css_variables, drawing_style, escape_html, inline_svg
from kbnn.sink import write_atomically
from kbnn.wording import clean_page, format_count, format_percent

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
        for item in data.dependence:
            charts.append(
                self.draw_chart(
                    f"Along {item.feature}",
                    dependence_caption(item),
                    lambda ax, item=item: plots.draw_dependence(ax, item, data.drawn),  # type: ignore[misc]  # bound now
                )
            )
        return FramedGroup("What it has learned", charts)


def dependence_caption(item: Dependence) -> str:
    """Say how to read a partial dependence: not all have a band, categories have no histogram."""
    band = " with its 90 % interval" if item.sd.any() else ""
    below = "; below, where the data lie" if item.categories is None else ""
    return f"Average prediction{band}{below}."


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
