"""Pieces every section is made of: framed charts, verdict, tiles, tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kbnn.report import model_plots
from kbnn.report.data import Dependence, TargetReport, WorstRows
from kbnn.report.svg import inline_svg
from kbnn.report.text import escape_html
from kbnn.score.verdict import Verdict
from kbnn.task.section import MetricTile

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
        shown = min(len(data.effects), model_plots.MAX_FEATURES)
        charts.append(
            gallery.draw_chart(
                "Sensitivity",
                f"Change of {data.effect} per standard deviation of the feature (category: "
                "present, against one never seen), with 90 % intervals; grey ones may be zero.",
                lambda ax: model_plots.draw_sensitivities(ax, data.effects),
                (CHART_SIZE_INCHES[0], max(CHART_SIZE_INCHES[1], 0.6 + 0.24 * shown)),
            )
        )
    for item in data.dependence:
        charts.append(
            gallery.draw_chart(
                f"Along {item.feature}",
                dependence_caption(item),
                lambda ax, item=item: model_plots.draw_dependence(ax, item, data.drawn),  # type: ignore[misc]  # bound now
            )
        )
    return grid_html("What it has learned", charts)


def dependence_caption(item: Dependence) -> str:
    """How to read a partial dependence: not all have a band, categories have no histogram."""
    doubt = " with its 90 % interval" if item.sd.any() else ""
    below = "; below, where the data lie" if item.categories is None else ""
    return f"Average prediction{doubt}{below}."
