"""The section of one target: its task says what to show, here it is drawn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from kbnn.report import model_plots, plots
from kbnn.report.data import TargetReport
from kbnn.report.parts import (
    SCROLL_BOX,
    ChartGallery,
    effects_html,
    grid_html,
    tiles_html,
    verdict_html,
    worst_rows_html,
)
from kbnn.report.text import escape_html
from kbnn.task.section import ChartGroup, ConfusionMatrix
from kbnn.wording import format_count, format_percent

CHART_FUNCTIONS: Final[dict[str, Callable[..., None]]] = {
    "calibration": plots.draw_calibration,
    "pit": plots.draw_pit,
    "width_error": plots.draw_width_error,
    "truth": plots.draw_predicted_true,
    "residuals": plots.draw_residuals,
    "bell": plots.draw_error_histogram,
    "learning": plots.draw_learning_curve,
    "ahead": model_plots.draw_horizon,
    "reliability": model_plots.draw_reliability,
    "confidence_bars": model_plots.draw_confidence_bars,
    "selective": model_plots.draw_selective_accuracy,
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
