"""What is shown of one target, as plain data: the terminal and the report only render it.

A chart names its kind and carries its numbers; whoever draws knows kinds, never tasks. A chart with
a `hint` is drawn in the terminal, one with a `reading` on the page.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from kbnn.core.normal import FloatArray
from kbnn.score.curve import CurvePoint
from kbnn.score.figures import MetricTable
from kbnn.score.verdict import Verdict
from kbnn.task.forecast import Forecast


class ChartSpec(NamedTuple):
    """One picture: its kind, its words, and the arguments of the function that draws it."""

    kind: str
    title: str
    data: dict[str, Any]
    reading: str = ""
    hint: str = ""


class ChartGroup(NamedTuple):
    """Charts under one heading."""

    title: str
    charts: Sequence[ChartSpec]


class ConfusionMatrix(NamedTuple):
    """A table of counts: what was true down, what was said across."""

    title: str
    names: Sequence[str]
    counts: Sequence[Sequence[int]]


class MetricTile(NamedTuple):
    """A headline figure: name, value, remark."""

    label: str
    value: str
    remark: str


class TargetSection(NamedTuple):
    """Everything about one target but what only the model knows."""

    name: str
    verdict: Verdict
    table: MetricTable
    tiles: Sequence[MetricTile]
    groups: Sequence[ChartGroup]
    crossed: ConfusionMatrix | None = None


class PredictionCurve(NamedTuple):
    """What is drawn of forecasts, each (n,)."""

    value: FloatArray
    sd: FloatArray
    function_sd: FloatArray | None = None  # None: it has no bands
    lower: FloatArray | None = None  # of the 90 % interval
    upper: FloatArray | None = None


class PartialDependenceSpec(NamedTuple):
    """A target as a function of its inputs, for partial dependences and the main picture.

    values   makes of forecasts what is drawn
    truth    makes of targets (n,) what they are drawn as
    marks    whether the truth is yes or no: rows are marked, not placed
    chart    the picture where there are too many inputs for one of the function
    """

    name: str
    sd_name: str
    effect: str  # what an effect of a feature is a change of
    values: Callable[[Forecast], PredictionCurve]
    truth: Callable[[FloatArray], FloatArray]
    marks: bool
    chart: ChartSpec


def make_learning_chart(
    points: Sequence[CurvePoint],
    line: str,
    name: str,
    baseline: float | None,
    *,
    terminal: bool = True,
) -> ChartSpec:
    """A figure against rows seen."""
    return ChartSpec(
        "learning",
        f"{name} by rows seen",
        {"points": points, "field": line, "name": name, "baseline": baseline},
        "Each row is predicted before it is learned.",
        "line latest, dots all, level constant" if terminal else "",
    )
