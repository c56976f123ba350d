"""What a report shows, as plain data: whoever has a model fills these in.

The rows that surprised most, and partial dependence from anything that predicts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from kbnn.array_types import FloatArray, IntArray
from kbnn.metrics.samples import StreamSummaries
from kbnn.metrics.sections import TargetSection, find_section_parts
from kbnn.model.diagnostics import Effect
from kbnn.targets.base import TargetType
from kbnn.wording import format_number


@dataclass(frozen=True)
class Dependence:
    """The prediction as one feature varies and the others stay as they came (partial dependence).

    grid (g,)        values of the feature; `categories` names them when they are categories
    mean (g,)        average prediction        sd (g,)   its standard deviation, for the band
    edges, counts    histogram of the feature in the data, drawn faintly below
    """

    feature: str
    grid: FloatArray
    mean: FloatArray
    sd: FloatArray
    edges: FloatArray | None = None
    counts: IntArray | None = None
    categories: Sequence[str] | None = None


@dataclass(frozen=True)
class WorstRows:
    """The rows the model found least probable: a table of text, most surprising first."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class TargetReport:
    """One target: what its task shows, and what only the model knows.

    `effect` says what the effects are changes of, `drawn` what the dependences show.
    """

    section: TargetSection
    effects: Sequence[Effect] = ()
    effect: str = ""
    dependence: Sequence[Dependence] = ()
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

Predict = Callable[[FloatArray], tuple[FloatArray, FloatArray]]
"""Features (n, D) to the mean (n,) and standard deviation (n,) of one target."""


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
    table = repeat_background(background, grid.shape[0], rows)
    table[:, :, feature] = grid[:, None]
    return Dependence(name, grid, *average_predictions(predict, table), edges, counts, categories)


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
    table = repeat_background(background, len(columns), rows)
    table[:, :, columns] = np.eye(len(columns))[:, None, :]
    grid = np.arange(float(len(columns)))
    return Dependence(name, grid, *average_predictions(predict, table), categories=list(indicators))


def repeat_background(background: FloatArray, times: int, rows: int) -> FloatArray:
    """About `rows` evenly chosen background rows, the same ones for each grid value."""
    step = max(1, background.shape[0] // rows)
    return np.repeat(background[::step][:rows][None, :, :], times, axis=0)


def average_predictions(predict: Predict, table: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Mean and root mean square sd of the predictions for each grid value."""
    mean, sd = predict(table.reshape(-1, table.shape[2]))
    spread = np.sqrt((np.asarray(sd).reshape(table.shape[:2]) ** 2).mean(axis=1))
    return np.asarray(mean).reshape(table.shape[:2]).mean(axis=1), spread
