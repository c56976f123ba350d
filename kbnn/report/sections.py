"""The parts of the page that belong to one target."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kbnn.report import model_plots, plots
from kbnn.report.data import ClassReport, NumericReport, WorstRows
from kbnn.report.svg import inline_svg
from kbnn.report.text import safe
from kbnn.verdict import Verdict
from kbnn.wording import count, number, percent, rows_of

SIZE = (4.2, 2.9)
"""Inches of a chart: about 300 points, so that 9-point text stays readable on a phone."""

SCROLL = '<div class="box scroll" tabindex="0">'
"""Wide tables scroll in their own box, also by keyboard; the page never does."""


class Gallery:
    """Draws charts one by one and frames each with its title and a line on how to read it."""

    def __init__(self, figure_class: Any, key: str) -> None:
        self.figure_class, self.key, self.drawn = figure_class, key, 0

    def chart(
        self,
        title: str,
        reading: str,
        draw: Callable[[Any], None],
        size: tuple[float, float] = SIZE,
    ) -> str:
        """One framed chart."""
        figure = self.figure_class(figsize=size, layout="constrained")
        draw(figure.add_subplot())
        self.drawn += 1
        svg = inline_svg(figure, f"{self.key}f{self.drawn}", title)
        words = f"<h4>{safe(title)}</h4><p>{safe(reading)}</p>"
        return f"<figure><figcaption>{words}</figcaption>{svg}</figure>"


def grid(title: str, charts: list[str]) -> str:
    """A titled group of charts, nothing when there are none."""
    if not charts:
        return ""
    return f'<h3>{safe(title)}</h3><div class="grid">{"".join(charts)}</div>'


def verdict_box(verdict: Verdict) -> str:
    """The judgement in plain words."""
    sentences = "".join(f"<p>{safe(text)}</p>" for text in verdict.sentences)
    head = f"<strong>{safe(verdict.headline)}</strong>"
    return f'<div class="verdict {verdict.level}">{head}{sentences}</div>'


def tiles(items: list[tuple[str, str, str]]) -> str:
    """Headline figures: name, value, remark."""
    cells = "".join(
        f'<div class="tile"><span>{safe(name)}</span><b>{safe(value)}</b>'
        f"<span>{safe(remark)}</span></div>"
        for name, value, remark in items
    )
    across = len(items) if len(items) < 6 else (len(items) + 1) // 2
    return f'<div class="tiles" style="--n: {across}">{cells}</div>'


def worst_table(worst: WorstRows | None) -> str:
    """The most surprising rows."""
    if worst is None or not worst.rows:
        return ""
    head = "".join(f'<th title="{safe(name)}">{safe(name)}</th>' for name in worst.columns)
    body = "".join(
        "<tr>" + "".join(f"<td>{safe(cell)}</td>" for cell in row) + "</tr>" for row in worst.rows
    )
    return (
        "<h3>Rows that surprised the model most</h3>"
        f"{SCROLL}<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def learned(data: NumericReport | ClassReport, gallery: Gallery, target: str) -> str:
    """Sensitivities and partial dependence."""
    charts = []
    if data.sensitivity is not None and len(data.sensitivity.features):
        sensitivity = data.sensitivity
        shown = min(len(sensitivity.features), model_plots.MOST_FEATURES)
        charts.append(
            gallery.chart(
                "Sensitivity",
                f"{sensitivity.unit[:1].upper()}{sensitivity.unit[1:]}, with 90 % intervals; "
                "grey ones may be zero.",
                lambda ax: model_plots.sensitivities(ax, sensitivity),
                (SIZE[0], max(SIZE[1], 0.6 + 0.24 * shown)),
            )
        )
    for item in data.dependence:
        charts.append(
            gallery.chart(
                f"Along {item.feature}",
                "Average prediction with its 90 % band; below, where the data lie.",
                lambda ax, item=item: model_plots.dependence(ax, item, target),  # type: ignore[misc]  # bound now
            )
        )
    return grid("What it has learned", charts)


def numeric_section(data: NumericReport, figure_class: Any, key: str) -> str:
    """Verdict, figures and pictures of a numeric target."""
    gallery = Gallery(figure_class, key)
    f = data.figures
    rows = int(f["rows"])
    y, mean, sd = data.truth, data.mean, data.sd
    parts = [verdict_box(data.verdict), tiles(numeric_tiles(f))]
    if rows:
        trust = [
            gallery.chart(
                "Calibration",
                "On the dashed line the intervals keep their promise; below, they are too narrow. "
                "Grey: what chance allows.",
                lambda ax: plots.calibration(ax, data.levels, data.observed, rows),
            ),
            gallery.chart(
                "PIT histogram",
                "Even bars: honest. A valley: too narrow. A hill: too wide. A slope: biased.",
                lambda ax: plots.pit(ax, data.pit),
            ),
            gallery.chart(
                "Interval width and error",
                "Wide intervals should hold the large errors; above the line (orange) they missed.",
                lambda ax: plots.width_error(ax, y, mean, sd),
            ),
        ]
        parts.append(grid("Can the error bars be trusted?", trust))
        sample = f"{rows_of(int(y.shape[0]))}, evenly sampled"
        seen = [
            gallery.chart(
                "Predicted and true",
                f"At most {plots.BARS} of {sample}; orange intervals missed.",
                lambda ax: plots.truth(ax, y, mean, sd, data.name),
            ),
            gallery.chart(
                "Residuals",
                "Errors in units of their stated sd; 90 % belong in the grey band.",
                lambda ax: plots.residuals(ax, y, mean, sd),
            ),
            gallery.chart(
                "Errors and the bell curve",
                "Errors in units of their stated sd should follow the line.",
                lambda ax: plots.bell(ax, y, mean, sd),
            ),
        ]
        parts.append(grid("Predictions", seen))
        parts.append(
            curves(data, gallery, ("RMSE", f["baseline_rmse"]), ("NLL", f["baseline_nll"]))
        )
    parts += [learned(data, gallery, data.name), worst_table(data.worst)]
    return "".join(parts)


def curves(
    data: NumericReport | ClassReport,
    gallery: Gallery,
    loss: tuple[str, float | None],
    nll: tuple[str, float | None],
) -> str:
    """The learning curve, if the model learned."""
    if len(data.curve) < 2:
        return ""
    charts = [
        gallery.chart(
            f"{name} by rows seen",
            "Each row is predicted before it is learned.",
            lambda ax, f=field, n=name, b=base: plots.learning(ax, data.curve, f, n, b),  # type: ignore[misc]  # bound now
        )
        for field, (name, base) in (("loss", loss), ("nll", nll))
    ]
    if isinstance(data, NumericReport):
        charts.append(
            gallery.chart(
                "90 % intervals by rows seen",
                "Rows inside the interval; the dashed line is the promise.",
                lambda ax: plots.learning(
                    ax, data.curve, "coverage_90", "rows inside, share", 0.9, "promised"
                ),
            )
        )
    return grid("How it learned", charts)


def numeric_tiles(f: Any) -> list[tuple[str, str, str]]:
    """Headline figures of a numeric target."""
    skipped = f"{count(f['skipped'])} without target" if f["skipped"] else "all scored"
    return [
        ("Rows", count(f["rows"]), skipped),
        ("RMSE", number(f["rmse"]), f"{number(f['baseline_rmse'])} for the best constant"),
        ("MAE", number(f["mae"]), "mean size of the error"),
        ("Variance explained", percent(f["r2"]), "R2"),
        ("NLL, nats", number(f["nll"]), f"{number(f['baseline_nll'])} for the best constant"),
        ("CRPS", number(f["crps"]), "lower is better"),
        ("Inside 90 %", percent(f["coverage"]["90"]), "should be 90 %"),
        ("Width of 90 %", number(f["interval_width_90"]), "mean interval"),
    ]


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
    parts += [learned(data, gallery, data.name), worst_table(data.worst)]
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
