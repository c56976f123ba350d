"""Filling a report from a scorecard, and partial dependence from anything that predicts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from kbnn.report.data import ClassReport, Dependence, NumericReport, Sensitivity, WorstRows
from kbnn.score.class_metrics import ClassScore
from kbnn.score.class_verdict import verdict
from kbnn.score.rowsums import FloatArray, IntArray
from kbnn.score.scorecard import Scorecard
from kbnn.wording import number

Cells = Callable[[FloatArray], Sequence[str]]
"""One row of x to what a reader is shown of it, a text for each feature."""

Predict = Callable[[FloatArray], tuple[FloatArray, FloatArray]]
"""Features (n, D) to the mean (n,) and standard deviation (n,) of one target."""


def target_report(
    card: Scorecard,
    target: int,
    name: str,
    features: Sequence[str],
    classes: Sequence[str] = (),
    *,
    learning: bool = True,
    sensitivity: Sensitivity | None = None,
    dependence: Sequence[Dependence] = (),
    cells: Cells | None = None,
    shown: str = "",
) -> NumericReport | ClassReport:
    """Everything a scorecard knows about one target, with what only the model can add.

    `features` name the columns of x, or the texts that `cells` makes of a row.
    """
    score = card.scores[target]
    curve = card.points()[target] if learning else []
    worst = worst_rows(card, target, name, features, classes, cells)
    if isinstance(score, ClassScore):
        known = [classes[k] if k < len(classes) else str(k) for k in range(score.classes)]
        return ClassReport(
            name,
            verdict(score),
            score.figures(),
            known,
            score.reliability(),
            card.summaries.confusion,
            curve,
            sensitivity,
            dependence,
            worst,
            shown,
        )
    summaries = card.summaries
    levels, observed = summaries.pit.coverage(target)
    sample = summaries.sample
    truth, mean, sd = (
        (
            sample.y[:, target],
            sample.forecast[:, target],
            sample.forecast[:, summaries.targets + target],
        )
        if len(sample)
        else (np.zeros(0), np.zeros(0), np.zeros(0))
    )
    kept = np.isfinite(truth) & np.isfinite(mean) & np.isfinite(sd)
    return NumericReport(
        name,
        verdict(score),
        score.figures(),
        levels,
        observed,
        summaries.pit.bars(target),
        truth[kept],
        mean[kept],
        sd[kept],
        curve,
        sensitivity,
        dependence,
        worst,
    )


def worst_rows(
    card: Scorecard,
    target: int,
    name: str,
    features: Sequence[str],
    classes: Sequence[str] = (),
    cells: Cells | None = None,
    shown: int = 10,
    columns: int = 5,
) -> WorstRows:
    """The most surprising rows as text: row number, truth, forecast, surprise, first features."""
    worst = card.summaries.worst
    cells = cells or (lambda x: [number(float(value)) for value in x])
    used = min(columns, len(features), worst.x.shape[1])
    head = ["row", f"{name}, true", "forecast", "NLL, nats"]
    rows = []
    for i in worst.ranked()[:shown]:
        y, forecast = worst.y[i], worst.forecast[i]
        if card.classes:
            label = int(y[0])
            truth = classes[label] if label < len(classes) else str(label)
            top = int(np.argmax(forecast))
            said = classes[top] if top < len(classes) else str(top)
            told = f"{said} ({100 * forecast[top]:.1f} %)"
        else:
            truth = number(float(y[target]))
            sd = float(forecast[card.summaries.targets + target])
            told = f"{number(float(forecast[target]))} ± {number(sd, 3)}"
        first = [f"{int(worst.row[i]):,}", truth, told, number(float(worst.priority[i]), 3)]
        rows.append([*first, *cells(worst.x[i])[:used]])
    return WorstRows([*head, *features[:used]], rows)


def partial_dependence(
    predict: Predict,
    background: FloatArray,
    feature: int,
    grid: FloatArray,
    name: str,
    *,
    rows: int = 64,
    edges: FloatArray | None = None,
    counts: IntArray | None = None,
    categories: Sequence[str] | None = None,
) -> Dependence:
    """Average prediction over `rows` background rows with one feature set to each grid value.

    mean(g) is the average of m(x with x_j = g), sd(g)^2 the average of s^2(x with x_j = g): it is
    not narrowed by averaging because the errors of one model move together.
    """
    table = repeated(background, grid.shape[0], rows)
    table[:, :, feature] = grid[:, None]
    return Dependence(name, grid, *averaged(predict, table), edges, counts, categories)


def category_dependence(
    predict: Predict,
    background: FloatArray,
    indicators: Mapping[str, int],
    name: str,
    *,
    rows: int = 64,
) -> Dependence:
    """The same with a category set to each of its values; `indicators` are their columns of x."""
    columns = list(indicators.values())
    table = repeated(background, len(columns), rows)
    table[:, :, columns] = np.eye(len(columns))[:, None, :]
    grid = np.arange(float(len(columns)))
    return Dependence(name, grid, *averaged(predict, table), categories=list(indicators))


def repeated(background: FloatArray, times: int, rows: int) -> FloatArray:
    """About `rows` evenly chosen background rows, the same ones for each grid value."""
    step = max(1, background.shape[0] // rows)
    return np.repeat(background[::step][:rows][None, :, :], times, axis=0)


def averaged(predict: Predict, table: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Mean and root mean square sd of the predictions for each grid value."""
    mean, sd = predict(table.reshape(-1, table.shape[2]))
    spread = np.sqrt((np.asarray(sd).reshape(table.shape[:2]) ** 2).mean(axis=1))
    return np.asarray(mean).reshape(table.shape[:2]).mean(axis=1), spread
