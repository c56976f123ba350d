"""Partial dependence: the average prediction as one column varies, or two, with its uncertainty.

With the other columns as they came in n sampled rows, the dependence on x_j and its variance are

    m(g) = mean over rows of m(x with x_j = g)        s^2(g) = mean over rows of s^2(x with x_j = g)

where s is the standard deviation of the function; it is not narrowed by averaging, because the
errors of one model move together. Over a grid of two columns f(g, h) has an additive part, its row
and column means, and a rest. The strength of their interaction is the share of the rest:

    sum (f - f_g - f_h + f_mean)^2 / sum (f - f_mean)^2

(Friedman's H^2 on a grid). Its standard error is the spread over functions drawn from the posterior
(kbnn.model.function_posterior).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from kbnn.array_types import FloatArray, IntArray
from kbnn.data.batch import Rows
from kbnn.metrics.samples import StreamSummaries
from kbnn.metrics.scorecard import Scorecard
from kbnn.metrics.sections import PartialDependenceSpec, PredictionCurve
from kbnn.model.function_posterior import FunctionSampler
from kbnn.model.model import OnlineModel
from kbnn.wording import clean_text

MAX_DEPENDENCES = 5
"""Number of the most important columns whose partial dependence is computed."""
GRID_POINTS = 40
BACKGROUND_ROWS = 64
"""Sampled rows over which predictions are averaged."""
INTERACTION_POINTS = 12
"""Grid points of each of two columns."""
INTERACTION_ROWS = 24
INTERACTION_DRAWS = 24
"""Sampled rows, and functions drawn, for the interaction of two columns."""


@dataclass(frozen=True)
class Dependence:
    """The average prediction as one column varies and the others stay as they came.

    grid (g,)        values of the column; `categories` names them if they are categories
    mean (g,)        average prediction        sd (g,)   its standard deviation, for the band
    edges, counts    histogram of the column in the data
    """

    feature: str
    grid: FloatArray
    mean: FloatArray
    sd: FloatArray
    edges: FloatArray | None = None
    counts: IntArray | None = None
    categories: Sequence[str] | None = None


@dataclass(frozen=True)
class Interaction:
    """The average prediction (g, h) as two columns vary, and the share that is not additive.

    `grids` are the values of both columns; `categories` names them where they are categories.
    `share` is None where the prediction does not vary; `error` is its standard error.
    """

    columns: tuple[str, str]
    grids: tuple[FloatArray, FloatArray]
    categories: tuple[Sequence[str] | None, Sequence[str] | None]
    mean: FloatArray
    share: float | None
    error: float | None

    def to_json(self) -> dict[str, object]:
        """Return plain data."""
        known = [
            c if c is not None else g.tolist()
            for c, g in zip(self.categories, self.grids, strict=True)
        ]
        return {
            "columns": list(self.columns),
            "grids": known,
            "mean": self.mean.tolist(),
            "share": self.share,
            "error": self.error,
        }


class _Axis(NamedTuple):
    """Values of one column: `cells` (g, inputs) are written to the inputs of x."""

    grid: FloatArray
    inputs: list[int]
    cells: FloatArray
    categories: list[str] | None


def predict_curve(
    model: OnlineModel, spec: PartialDependenceSpec, x: FloatArray
) -> PredictionCurve:
    """Predict what is drawn of a target for encoded rows (n, D)."""
    return spec.values(model.predict(_make_rows(model, x)))


def _make_rows(model: OnlineModel, x: FloatArray) -> Rows:
    unknown = np.full((len(x), len(model.task.targets)), np.nan)
    return Rows(x, unknown, np.arange(1, len(x) + 1))


def compute_dependences(
    model: OnlineModel, card: Scorecard, columns: Sequence[str], spec: PartialDependenceSpec
) -> list[Dependence]:
    """Compute the partial dependence on each of the columns; those that did not vary are left out.

    Parameters
    ----------
    model
        The model; it does not change.
    card
        Record whose sampled rows are the background.
    columns
        Names of features, most important first; at most MAX_DEPENDENCES are used.
    spec
        What is predicted: the mean of a target, or the probability of a class.

    Returns
    -------
    list of Dependence
        Empty if no row was sampled.
    """
    found: list[Dependence] = []
    for column in columns:
        axis = _make_axis(model, card.summaries, column, GRID_POINTS)
        if axis is None or len(found) == MAX_DEPENDENCES:
            continue
        table = _repeat_background(card.summaries, BACKGROUND_ROWS, len(axis.grid))
        table[:, :, axis.inputs] = axis.cells[:, None, :]
        made = predict_curve(model, spec, table.reshape(-1, table.shape[2]))
        sd = np.zeros_like(made.value) if made.function_sd is None else made.function_sd
        edges, counts = None, None
        if axis.categories is None:
            edges, counts = card.summaries.features.used_bins(axis.inputs[0])
        found.append(
            Dependence(
                column,
                axis.grid,
                made.value.reshape(table.shape[:2]).mean(axis=1),
                np.sqrt((sd.reshape(table.shape[:2]) ** 2).mean(axis=1)),
                edges,
                counts,
                axis.categories,
            )
        )
    return found


def compute_interaction(
    model: OnlineModel, card: Scorecard, columns: Sequence[str], spec: PartialDependenceSpec
) -> Interaction | None:
    """Compute the interaction of the first two columns that varied; None if there are not two.

    Parameters
    ----------
    model
        The model; it does not change.
    card
        Record whose sampled rows are the background.
    columns
        Names of features, most important first.
    spec
        What is predicted: the mean of a target, or the probability of a class.
    """
    axes: dict[str, _Axis] = {}
    for column in columns:
        axis = _make_axis(model, card.summaries, column, INTERACTION_POINTS)
        if axis is not None and len(axes) < 2:
            axes[column] = axis
    if len(axes) < 2 or model.is_warming_up:
        return None
    (name, first), (other, second) = axes.items()
    shape = len(first.grid), len(second.grid)
    table = _repeat_background(card.summaries, INTERACTION_ROWS, shape[0] * shape[1])
    table = table.reshape(*shape, *table.shape[1:])
    table[..., first.inputs] = first.cells[:, None, None, :]
    table[..., second.inputs] = second.cells[None, :, None, :]
    x = table.reshape(-1, table.shape[-1])

    def average(values: FloatArray) -> FloatArray:
        return np.asarray(values.reshape(*shape, -1).mean(axis=2))

    mean = average(predict_curve(model, spec, x).value)
    draws = FunctionSampler(model, INTERACTION_DRAWS, model.settings.seed).draw(
        _make_rows(model, x)
    )
    shares = [measure_interaction(average(draw[:, spec.output])) for draw in draws]
    known = [share for share in shares if share is not None]
    return Interaction(
        (name, other),
        (first.grid, second.grid),
        (first.categories, second.categories),
        mean,
        measure_interaction(mean),
        float(np.std(known)) if known else None,
    )


def describe_interaction(pair: Interaction) -> str:
    """Describe the strength of an interaction in one sentence."""
    first, second = (clean_text(name) for name in pair.columns)
    if pair.share is None:
        return f"{first} and {second} do not change the prediction."
    error = "" if pair.error is None else f" ± {100.0 * pair.error:.1f}"
    return (
        f"{100.0 * pair.share:.1f}{error} % of the joint effect of {first} and {second} is "
        "interaction."
    )


def measure_interaction(mean: FloatArray) -> float | None:
    """Return the share of the variation of a table (g, h) that is not additive; None if it is 0."""
    centred = mean - mean.mean()
    total = float(np.sum(centred**2))
    if not total > 1e-20 * float(np.sum(mean**2)):
        return None
    rest = centred - centred.mean(axis=1, keepdims=True) - centred.mean(axis=0, keepdims=True)
    return float(np.sum(rest**2)) / total


def _make_axis(
    model: OnlineModel, summaries: StreamSummaries, column: str, points: int
) -> _Axis | None:
    """Return the values of a feature: between its 1 % and 99 % quantiles, or its categories."""
    own = {p.category: at for at, p in enumerate(model.schema.layout) if p.column == column}
    if not own or not len(summaries.sample):
        return None
    if None not in own:
        categories = [str(category) for category in own]
        cells = np.eye(len(own))
        return _Axis(np.arange(float(len(own))), list(own.values()), cells, categories)
    low, high = summaries.feature_quantiles(own[None], np.array([0.01, 0.99])).tolist()
    grid = np.linspace(low, high, points)
    if not np.isfinite(grid).all() or not grid[0] < grid[-1]:
        return None
    return _Axis(grid, [own[None]], grid[:, None], None)


def _repeat_background(summaries: StreamSummaries, rows: int, times: int) -> FloatArray:
    """Return about `rows` evenly chosen sampled rows, repeated: (times, rows, D)."""
    background = summaries.sample.x
    step = max(1, len(background) // rows)
    return np.repeat(background[::step][:rows][None], times, axis=0)
