"""Pieces every section is made of: framed charts, verdict, tiles, tables.

The section of one target: its task says what to show, here it is drawn.

The HTML page: headline, verdict, pictures, tables and model card, all in one file.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from kbnn.metrics.verdicts import ChartGroup, ConfusionMatrix, MetricTile, Verdict
from kbnn.report import plots
from kbnn.report.report_data import Dependence, ReportData, TargetReport, WorstRows
from kbnn.report.styles import CSS, drawing_style, escape_html, inline_svg
from kbnn.sink import write_atomically
from kbnn.wording import clean_page, format_count, format_percent

CHART_SIZE_INCHES = (4.2, 2.9)
"""Inches of a chart: about 300 points, so that 9-point text stays readable on a phone."""

SCROLL_BOX = '<div class="box scroll" tabindex="0">'
"""Wide tables scroll in their own box, also by keyboard; the page never does."""


class ChartGallery:
    """Draws charts one by one and frames each with its title and a line on how to read it."""

    def __init__(self, figure_class: Any, key: str) -> None:
        self.figure_class, self.key, self.drawn = figure_class, key, 0

    def draw_chart(
        self,
        title: str,
        reading: str,
        draw: Callable[[Any], None],
        size: tuple[float, float] = CHART_SIZE_INCHES,
    ) -> str:
        """One framed chart."""
        figure = self.figure_class(figsize=size, layout="constrained")
        draw(figure.add_subplot())
        self.drawn += 1
        svg = inline_svg(figure, f"{self.key}f{self.drawn}", title)
        words = f"<h4>{escape_html(title)}</h4><p>{escape_html(reading)}</p>"
        return f"<figure><figcaption>{words}</figcaption>{svg}</figure>"


def grid_html(title: str, charts: list[str]) -> str:
    """A titled group of charts, nothing when there are none."""
    if not charts:
        return ""
    return f'<h3>{escape_html(title)}</h3><div class="grid">{"".join(charts)}</div>'


def verdict_html(verdict: Verdict) -> str:
    """The judgement in plain words."""
    sentences = "".join(f"<p>{escape_html(text)}</p>" for text in verdict.sentences)
    head = f"<strong>{escape_html(verdict.headline)}</strong>"
    return f'<div class="verdict {verdict.level}">{head}{sentences}</div>'


def tiles_html(items: Sequence[MetricTile]) -> str:
    """Headline figures."""
    cells = "".join(
        f'<div class="tile"><span>{escape_html(label)}</span><b>{escape_html(value)}</b>'
        f"<span>{escape_html(remark)}</span></div>"
        for label, value, remark in items
    )
    across = len(items) if len(items) < 6 else (len(items) + 1) // 2
    return f'<div class="tiles" style="--n: {across}">{cells}</div>'


def worst_rows_html(worst: WorstRows | None) -> str:
    """The most surprising rows."""
    if worst is None or not worst.rows:
        return ""
    head = "".join(
        f'<th title="{escape_html(name)}">{escape_html(name)}</th>' for name in worst.columns
    )
    body = "".join(
        "<tr>" + "".join(f"<td>{escape_html(cell)}</td>" for cell in row) + "</tr>"
        for row in worst.rows
    )
    return (
        "<h3>Rows that surprised the model most</h3>"
        f"{SCROLL_BOX}<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def effects_html(data: TargetReport, gallery: ChartGallery) -> str:
    """Effects of the features and partial dependence."""
    charts = []
    if data.effects:
        shown = min(len(data.effects), plots.MAX_FEATURES)
        charts.append(
            gallery.draw_chart(
                "Sensitivity",
                f"Change of {data.effect} per standard deviation of the feature (category: "
                "present, against one never seen), with 90 % intervals; grey ones may be zero.",
                lambda ax: plots.draw_sensitivities(ax, data.effects),
                (CHART_SIZE_INCHES[0], max(CHART_SIZE_INCHES[1], 0.6 + 0.24 * shown)),
            )
        )
    for item in data.dependence:
        charts.append(
            gallery.draw_chart(
                f"Along {item.feature}",
                dependence_caption(item),
                lambda ax, item=item: plots.draw_dependence(ax, item, data.drawn),  # type: ignore[misc]  # bound now
            )
        )
    return grid_html("What it has learned", charts)


def dependence_caption(item: Dependence) -> str:
    """How to read a partial dependence: not all have a band, categories have no histogram."""
    doubt = " with its 90 % interval" if item.sd.any() else ""
    below = "; below, where the data lie" if item.categories is None else ""
    return f"Average prediction{doubt}{below}."


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
"""The kinds of charts, each with the function that draws it on given axes."""


def section_html(data: TargetReport, figure_class: Any, key: str) -> str:
    """Verdict, figures, pictures and tables of a target."""
    gallery = ChartGallery(figure_class, key)
    section = data.section
    parts = [verdict_html(section.verdict), tiles_html(section.tiles)]
    parts += [group_html(group, gallery) for group in section.groups[:1]]
    if section.crossed is not None:
        parts.append(confusion_html(section.crossed))
    parts += [group_html(group, gallery) for group in section.groups[1:]]
    parts += [effects_html(data, gallery), worst_rows_html(data.worst)]
    return "".join(parts)


def group_html(group: ChartGroup, gallery: ChartGallery) -> str:
    """The charts of a group that belong on a page."""
    charts = [
        gallery.draw_chart(
            chart.title,
            chart.reading,
            lambda ax, chart=chart: CHART_FUNCTIONS[chart.kind](ax, **chart.data),  # type: ignore[misc]  # bound now
        )
        for chart in group.charts
        if chart.reading
    ]
    return grid_html(group.title, charts)


def confusion_html(data: ConfusionMatrix) -> str:
    """What was true down, what was said across, shaded by the share of the row."""
    head = "".join(
        f'<th title="{escape_html(name)}">{escape_html(name)}</th>' for name in data.names
    )
    rows = []
    for i, counts in enumerate(data.counts):
        total = max(sum(counts), 1)
        cells = "".join(
            f'<td class="{cell_class(i, j, value)}" style="--p: {round(70 * value / total)}%">'
            f"{format_count(value)}</td>"
            for j, value in enumerate(counts)
        )
        found = format_percent(counts[i] / total) if sum(counts) else "-"
        rows.append(
            f'<tr><th class="left">{escape_html(data.names[i])}</th>{cells}<td>{found}</td></tr>'
        )
    return (
        f"<h3>{escape_html(data.title)}</h3>"
        f'{SCROLL_BOX}<table class="heat"><thead><tr><th></th>{head}<th>found</th></tr>'
        f"</thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


def cell_class(i: int, j: int, value: int) -> str:
    """How a cell of the table is marked."""
    if i == j:
        return "own"
    return "wrong" if value else "zero"


SECURITY_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
"""The browser itself is told to load nothing and to run no script."""


def report_html(data: ReportData) -> str:
    """The whole page as text."""
    sections = []
    with drawing_style() as figure:
        for i, target in enumerate(data.targets):
            body = section_html(target, figure, f"t{i}")
            name = escape_html(target.section.name)
            title = f'<h2 id="t{i}">{name}</h2>' if len(data.targets) > 1 else ""
            sections.append(f"<section>{title}{body}</section>")
    links = [
        f'<a href="#t{i}">{escape_html(target.section.name)}</a>'
        for i, target in enumerate(data.targets)
    ]
    nav = f"<nav>{''.join(links)}</nav>" if len(links) > 1 else ""
    notes = "".join(f'<p class="sub">{escape_html(note)}</p>' for note in data.notes)
    made = f"Made by kbnn {escape_html(data.version)}".strip()
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{SECURITY_POLICY}">
<link rel="icon" href="data:,">
<title>{escape_html(data.title)}</title>
<style>
{CSS}</style>
</head>
<body>
<main>
<header><h1>{escape_html(data.title)}</h1><p class="sub">{escape_html(data.subtitle)}</p>{notes}{nav}</header>
{"".join(sections)}
{model_card(data)}
<footer>{made}. This page loads nothing from anywhere: keep it, print it, send it.</footer>
</main>
</body>
</html>
"""


def model_card(data: ReportData) -> str:
    """What the model is and what it has seen."""
    if not data.card:
        return ""
    items = "".join(
        f"<dt>{escape_html(name)}</dt><dd>{escape_html(value)}</dd>" for name, value in data.card
    )
    return f'<h3>Model card</h3><div class="box"><dl>{items}</dl></div>'


def write_report(data: ReportData, path: str | Path) -> None:
    """Write the page; a reader never sees half of it."""
    write_atomically(str(path), clean_page(report_html(data)).encode())
