"""Filling a report from a scorecard, and partial dependence from anything that predicts."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from kbnn.class_metrics import ClassScore
from kbnn.class_verdict import verdict
from kbnn.report.data import ClassReport, Dependence, NumericReport, Sensitivity, WorstRows
from kbnn.rowsums import FloatArray, IntArray
from kbnn.scorecard import Scorecard
from kbnn.wording import number

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
) -> NumericReport | ClassReport:
    """Everything a scorecard knows about one target, with what only the model can add."""
    score = card.scores[target]
    curve = card.points()[target] if learning else []
    worst = worst_rows(card, target, name, features, classes)
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
    shown: int = 10,
    columns: int = 5,
) -> WorstRows:
    """The most surprising rows as text: row number, truth, forecast, surprise, first features."""
    worst = card.summaries.worst
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
        cells = [f"{int(worst.row[i]):,}", truth, told, number(float(worst.priority[i]), 3)]
        rows.append([*cells, *(number(float(v)) for v in worst.x[i, :used])])
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
    step = max(1, background.shape[0] // rows)
    x = background[::step][:rows]
    table = np.repeat(x[None, :, :], grid.shape[0], axis=0)
    table[:, :, feature] = grid[:, None]
    mean, sd = predict(table.reshape(-1, x.shape[1]))
    shape = (grid.shape[0], x.shape[0])
    spread = np.sqrt((np.asarray(sd).reshape(shape) ** 2).mean(axis=1))
    centre = np.asarray(mean).reshape(shape).mean(axis=1)
    return Dependence(name, grid, centre, spread, edges, counts, categories)
