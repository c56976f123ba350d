"""The section of one target: its task says what to show, here it is drawn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from kbnn.report import model_plots, plots
from kbnn.report.data import TargetReport
from kbnn.report.parts import SCROLL, Gallery, grid, learned, tiles, verdict_box, worst_table
from kbnn.report.text import safe
from kbnn.task.section import Crossed, Group
from kbnn.wording import count, percent

DRAW: Final[dict[str, Callable[..., None]]] = {
    "calibration": plots.calibration,
    "pit": plots.pit,
    "width_error": plots.width_error,
    "truth": plots.truth,
    "residuals": plots.residuals,
    "bell": plots.bell,
    "learning": plots.learning,
    "ahead": model_plots.ahead,
    "reliability": model_plots.reliability,
    "confidence_bars": model_plots.confidence_bars,
    "selective": model_plots.selective,
}
"""The kinds of charts, each with the function that draws it on given axes."""


def section_html(data: TargetReport, figure_class: Any, key: str) -> str:
    """Verdict, figures, pictures and tables of a target."""
    gallery = Gallery(figure_class, key)
    section = data.section
    parts = [verdict_box(section.verdict), tiles(section.tiles)]
    parts += [group_html(group, gallery) for group in section.groups[:1]]
    if section.crossed is not None:
        parts.append(crossed_table(section.crossed))
    parts += [group_html(group, gallery) for group in section.groups[1:]]
    parts += [learned(data, gallery), worst_table(data.worst)]
    return "".join(parts)


def group_html(group: Group, gallery: Gallery) -> str:
    """The charts of a group that belong on a page."""
    charts = [
        gallery.chart(
            chart.title,
            chart.reading,
            lambda ax, chart=chart: DRAW[chart.kind](ax, **chart.data),  # type: ignore[misc]  # bound now
        )
        for chart in group.charts
        if chart.reading
    ]
    return grid(group.title, charts)


def crossed_table(data: Crossed) -> str:
    """What was true down, what was said across, shaded by the share of the row."""
    head = "".join(f'<th title="{safe(name)}">{safe(name)}</th>' for name in data.names)
    rows = []
    for i, counts in enumerate(data.counts):
        total = max(sum(counts), 1)
        cells = "".join(
            f'<td class="{cell_class(i, j, value)}" style="--p: {round(70 * value / total)}%">'
            f"{count(value)}</td>"
            for j, value in enumerate(counts)
        )
        found = percent(counts[i] / total) if sum(counts) else "-"
        rows.append(f'<tr><th class="left">{safe(data.names[i])}</th>{cells}<td>{found}</td></tr>')
    return (
        f"<h3>{safe(data.title)}</h3>"
        f'{SCROLL}<table class="heat"><thead><tr><th></th>{head}<th>found</th></tr>'
        f"</thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


def cell_class(i: int, j: int, value: int) -> str:
    """How a cell of the table is marked."""
    if i == j:
        return "own"
    return "wrong" if value else "zero"
