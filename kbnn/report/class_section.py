"""The section of a class target."""

from __future__ import annotations

from typing import Any

from kbnn.report import model_plots
from kbnn.report.data import ClassReport
from kbnn.report.parts import (
    SCROLL,
    Gallery,
    curves,
    grid,
    learned,
    tiles,
    verdict_box,
    worst_table,
)
from kbnn.report.text import safe
from kbnn.wording import count, number, percent


def class_section(data: ClassReport, figure_class: Any, key: str) -> str:
    """Verdict, figures, pictures and confusion table of a class target."""
    gallery = Gallery(figure_class, key)
    f = data.figures
    frequency = "for the class frequencies"
    skipped = f"{count(f['skipped'])} without label" if f["skipped"] else "all scored"
    items = [
        ("Rows", count(f["rows"]), skipped),
        ("Accuracy", percent(f["accuracy"]), f"{percent(f['baseline_accuracy'])} {frequency}"),
        ("Log-loss", number(f["log_loss"]), f"{number(f['baseline_log_loss'])} {frequency}"),
        ("Brier", number(f["brier"]), f"{number(f['baseline_brier'])} {frequency}"),
        ("Calibration error", percent(f["ece"]), "ECE, 15 bins"),
    ]
    parts = [verdict_box(data.verdict), tiles(items)]
    if f["rows"]:
        weight, confidence, right = data.reliability
        filled = weight > 0
        sure = float((confidence[filled] * weight[filled]).sum() / weight.sum())
        charts = [
            gallery.chart(
                "Reliability",
                "On the dashed line it is as often right as it is sure; below, over-confident. "
                "Bars: what chance allows.",
                lambda ax: model_plots.reliability(ax, weight, confidence, right),
            ),
            gallery.chart(
                "How sure it was",
                "Share of rows by the probability of the most probable class.",
                lambda ax: model_plots.confidence_bars(ax, weight, f["accuracy"], sure),
            ),
            gallery.chart(
                "Keeping only the sure ones",
                "Share right among the rows it was at least so sure of, and how many those are.",
                lambda ax: model_plots.selective(ax, weight, right),
            ),
        ]
        parts.append(grid("Can the probabilities be trusted?", charts))
        parts.append(confusion_table(data))
        baseline = f["baseline_accuracy"]
        error = None if baseline is None else 1 - baseline
        loss = ("Log-loss", f["baseline_log_loss"])
        parts.append(curves(data, gallery, ("Error rate", error), loss))
    parts += [learned(data, gallery, data.shown or data.name), worst_table(data.worst)]
    return "".join(parts)


def confusion_table(data: ClassReport) -> str:
    """True classes down, predicted classes across, shaded by the share of the row."""
    size = data.confusion.shape[0]
    names = [data.classes[k] if k < len(data.classes) else str(k) for k in range(size)]
    head = "".join(f'<th title="{safe(name)}">{safe(name)}</th>' for name in names)
    rows = []
    for i, counts in enumerate(data.confusion.tolist()):
        total = max(sum(counts), 1)
        cells = "".join(
            f'<td class="{cell_class(i, j, value)}" style="--p: {round(70 * value / total)}%">'
            f"{count(value)}</td>"
            for j, value in enumerate(counts)
        )
        found = percent(counts[i] / total) if sum(counts) else "-"
        rows.append(f'<tr><th class="left">{safe(names[i])}</th>{cells}<td>{found}</td></tr>')
    return (
        "<h3>Confusion: true class down, predicted across</h3>"
        f'{SCROLL}<table class="heat"><thead><tr><th></th>{head}<th>found</th></tr>'
        f"</thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


def cell_class(i: int, j: int, value: int) -> str:
    """How a cell of the confusion table is marked."""
    if i == j:
        return "own"
    return "wrong" if value else "zero"
