"""What is shown of one target, by target type: verdict, metrics, charts, rows and descriptions.

Charts are described as data (`ChartSpec`); the terminal and the report render them by kind without
knowing the target type. A chart with a `hint` is drawn in the terminal, one with a `reading` in the
report. `SECTIONS_BY_TYPE` names the types that differ from other numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from kbnn.array_types import FloatArray
from kbnn.distributions import categorical
from kbnn.distributions.dispatch import read_distribution
from kbnn.metrics.class_metrics import ClassScore
from kbnn.metrics.figures import MetricTable, MetricValues, Score
from kbnn.metrics.numeric_metrics import NumericScore
from kbnn.metrics.samples import StreamSummaries
from kbnn.metrics.scorecard import CurvePoint
from kbnn.metrics.verdicts import Verdict, build_metric_table, find_metrics
from kbnn.targets.base import TargetType
from kbnn.targets.classification import class_name
from kbnn.targets.prediction import Forecast
from kbnn.wording import clean_text, format_count, format_number, format_rows


class ChartSpec(NamedTuple):
    """One chart: its kind, its texts, and the arguments of the function that draws it."""

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
    """A table of counts: true classes down, predicted classes across."""

    title: str
    names: Sequence[str]
    counts: Sequence[Sequence[int]]


class MetricTile(NamedTuple):
    """A headline metric: name, value, remark."""

    label: str
    value: str
    remark: str


class TargetSection(NamedTuple):
    """Everything shown of one target, except what only the model knows."""

    name: str
    verdict: Verdict
    table: MetricTable
    tiles: Sequence[MetricTile]
    groups: Sequence[ChartGroup]
    crossed: ConfusionMatrix | None = None


class PredictionCurve(NamedTuple):
    """What is drawn of forecasts; each array is (n,)."""

    value: FloatArray
    sd: FloatArray
    function_sd: FloatArray | None = None  # None: no bands are drawn
    lower: FloatArray | None = None  # of the 90 % interval
    upper: FloatArray | None = None


class PartialDependenceSpec(NamedTuple):
    """How a target is drawn as a function of its inputs.

    values   convert forecasts to what is drawn
    truth    convert targets (n,) to what is drawn
    marks    whether the truth is binary: rows are marked, not placed by value
    output   index of the target, or of the class, among the draws of the predictive function
    chart    the chart shown when there are too many inputs to draw the function
    """

    name: str
    sd_name: str
    effect: str  # the quantity that a feature changes
    values: Callable[[Forecast], PredictionCurve]
    truth: Callable[[FloatArray], FloatArray]
    marks: bool
    output: int
    chart: ChartSpec


def make_learning_chart(
    points: Sequence[CurvePoint],
    line: str,
    name: str,
    baseline: float | None,
    *,
    terminal: bool = True,
) -> ChartSpec:
    """Describe the chart of one metric against the number of rows seen."""
    return ChartSpec(
        "learning",
        f"{name} by rows seen",
        {"points": points, "field": line, "name": name, "baseline": baseline},
        "Each row is predicted before the model learns from it.",
        "line latest, dots all, level constant" if terminal else "",
    )


def sampled_predictions(
    task: TargetType, summaries: StreamSummaries, target: int
) -> dict[str, FloatArray]:
    """Return truth, mean and the edges of the 90 % interval of the sampled rows."""
    sample, targets = summaries.sample, len(task.targets)
    if not len(sample):
        return {name: np.zeros(0) for name in ("y", "mean", "lower", "upper")}
    truth, columns = sample.y[:, target], sample.forecast
    mean, lower, upper = (columns[:, k * targets + target] for k in (0, 2, 3))
    kept = np.isfinite(truth) & np.isfinite(mean) & np.isfinite(lower) & np.isfinite(upper)
    return {"y": truth[kept], "mean": mean[kept], "lower": lower[kept], "upper": upper[kept]}


def _calibration_charts(score: NumericScore, sample: dict[str, FloatArray]) -> ChartGroup:
    levels, observed = score.pit.coverage_curve()
    return ChartGroup(
        "Can the error bars be trusted?",
        [
            ChartSpec(
                "calibration",
                "Calibration",
                {"levels": levels, "observed": observed, "rows": score.rows},
                "On the dashed line the intervals have their nominal coverage; below, they are "
                "too narrow. Grey: what chance allows.",
                "inside by nominal %; low: too narrow",
            ),
            ChartSpec(
                "pit",
                "PIT histogram",
                {"bars": score.pit.bar_counts()},
                "Even bars: honest. A valley: too narrow. A hill: too wide. A slope: biased.",
                "flat: honest; U: error bars too narrow",
            ),
            ChartSpec(
                "width_error",
                "Interval width and error",
                sample,
                "Wide intervals should contain the large errors; above the line (orange) they "
                "missed.",
            ),
        ],
    )


def _prediction_charts(sample: dict[str, FloatArray], name: str) -> ChartGroup:
    rows = f"{format_rows(len(sample['y']))}, evenly sampled"
    return ChartGroup(
        "Predictions",
        [
            ChartSpec(
                "truth",
                "Predicted and true",
                {**sample, "name": name},
                f"At most 200 of {rows}; orange intervals missed.",
                "on the dotted line: right",
            ),
            ChartSpec(
                "residuals",
                "Residuals",
                sample,
                "Errors in units of their 90 % half-interval; 90 % should lie in the band.",
            ),
            ChartSpec(
                "bell",
                "Errors and the bell curve",
                sample,
                "Errors in units of the predicted spread follow the line where tails are light.",
            ),
            ChartSpec(
                "funnel",
                "Residuals by width of interval",
                sample,
                hint="the funnel holds 90 % of honest errors",
            ),
        ],
    )


def _numeric_learning_charts(points: Sequence[CurvePoint], values: MetricValues) -> ChartGroup:
    inside = make_learning_chart(points, "coverage_90", "90 % intervals", 0.9, terminal=False)
    inside.data.update(name="rows inside, share", baseline_name="nominal")
    return ChartGroup(
        "How it learned",
        [
            make_learning_chart(points, "loss", "RMSE", values["baseline_rmse"]),
            make_learning_chart(points, "nll", "NLL", values["baseline_nll"]),
            inside._replace(reading="Rows inside the interval; the dashed line is nominal."),
        ],
    )


def _numeric_charts(
    task: TargetType,
    score: NumericScore,
    summaries: StreamSummaries,
    target: int,
    points: Sequence[CurvePoint],
) -> tuple[list[ChartGroup], ConfusionMatrix | None]:
    groups: list[ChartGroup] = []
    if score.rows:
        sample = sampled_predictions(task, summaries, target)
        groups += [
            _calibration_charts(score, sample),
            _prediction_charts(sample, task.targets[target]),
        ]
    if len(points) > 1:
        groups.append(_numeric_learning_charts(points, score.metric_values()))
    return groups, None


def _format_numeric_row(
    task: TargetType, y: FloatArray, columns: FloatArray, target: int
) -> tuple[str, str]:
    """Format the number, and mean ± sd."""
    mean, sd = float(columns[target]), float(columns[len(task.targets) + target])
    return format_number(float(y[target])), f"{format_number(mean)} ± {format_number(sd, 3)}"


def _mean_dependence(
    task: TargetType, score: NumericScore, summaries: StreamSummaries, target: int
) -> PartialDependenceSpec:
    """Describe the mean, with the bands of the prediction and of the function."""
    name = task.targets[target]

    def predict_curve(f: Forecast) -> PredictionCurve:
        parts = (f.mean[:, target], f.sd[:, target], f.function_sd[:, target])
        return PredictionCurve(*parts, *read_distribution(f.stated[:, target]).interval(0.9))

    return PartialDependenceSpec(
        name=name,
        sd_name="standard deviation",
        effect=name,
        values=predict_curve,
        truth=lambda y: y,
        marks=False,
        output=target,
        chart=ChartSpec(
            "truth", name, {**sampled_predictions(task, summaries, target), "name": name}
        ),
    )


def _reliability_charts(score: ClassScore, accuracy: float) -> ChartGroup:
    weight, confidence, right = score.reliability_curve()
    filled = weight > 0
    sure = float((confidence[filled] * weight[filled]).sum() / weight.sum())
    return ChartGroup(
        "Can the probabilities be trusted?",
        [
            ChartSpec(
                "reliability",
                "Reliability",
                {"weight": weight, "confidence": confidence, "right": right},
                "On the dashed line accuracy equals confidence; below, over-confident. "
                "Bars: what chance allows.",
                "accuracy by %; low: over-confident",
            ),
            ChartSpec(
                "confidence_bars",
                "Confidence",
                {"weight": weight, "accuracy": accuracy, "confidence": sure},
                "Share of rows by the probability of the most probable class.",
            ),
            ChartSpec(
                "selective",
                "Accuracy of the most confident rows",
                {"weight": weight, "right": right},
                "Accuracy among rows of at least this confidence, and the share of those rows.",
            ),
        ],
    )


def _class_learning_charts(points: Sequence[CurvePoint], values: MetricValues) -> ChartGroup:
    accuracy = values["baseline_accuracy"]
    error = None if accuracy is None else 1 - accuracy
    return ChartGroup(
        "How it learned",
        [
            make_learning_chart(points, "loss", "Error rate", error, terminal=False),
            make_learning_chart(points, "nll", "Log-loss", values["baseline_log_loss"]),
        ],
    )


def _class_charts(
    task: TargetType,
    score: ClassScore,
    summaries: StreamSummaries,
    target: int,
    points: Sequence[CurvePoint],
) -> tuple[list[ChartGroup], ConfusionMatrix | None]:
    values = score.metric_values()
    groups: list[ChartGroup] = []
    crossed = None
    if score.rows:
        groups.append(_reliability_charts(score, values["accuracy"]))
        crossed = ConfusionMatrix(
            "Confusion: true class down, predicted across",
            [class_name(task, k) for k in range(len(score.confusion))],
            score.confusion.tolist(),
        )
    if len(points) > 1:
        groups.append(_class_learning_charts(points, values))
    return groups, crossed


def _format_class_row(
    task: TargetType, y: FloatArray, columns: FloatArray, target: int
) -> tuple[str, str]:
    """Format the label, and the most probable class."""
    top = int(np.argmax(columns))
    return class_name(task, int(y[0])), f"{class_name(task, top)} ({100 * columns[top]:.1f} %)"


def _class_dependence(
    task: TargetType, score: ClassScore, summaries: StreamSummaries, target: int
) -> PartialDependenceSpec:
    """Describe the probability of one class: the second of two, otherwise the most common."""
    classes = len(task.schema.classes)
    shown = min(1, max(classes - 1, 0))
    if classes > 2 and score.confusion.size:
        shown = int(np.argmax(score.confusion.sum(axis=1)))

    def predict_curve(forecast: Forecast) -> PredictionCurve:
        p = forecast.probability[:, shown]
        return PredictionCurve(p, np.sqrt(p * (1 - p)))

    name = clean_text(class_name(task, shown))
    weight, confidence, right = score.reliability_curve()
    reliability = {"weight": weight, "confidence": confidence, "right": right}
    return PartialDependenceSpec(
        name=f"probability of {name}",
        sd_name="standard deviation of the label",
        effect=f"the probability of {class_name(task, shown)}",
        values=predict_curve,
        truth=lambda y: (y == shown).astype(np.float64),
        marks=True,
        output=shown,
        chart=ChartSpec("reliability", name, reliability),
    )


class SectionParts(NamedTuple):
    """The parts of a section that depend on the target type."""

    charts: Callable[..., tuple[list[ChartGroup], ConfusionMatrix | None]]
    format_row: Callable[[TargetType, FloatArray, FloatArray, int], tuple[str, str]]
    dependence: Callable[..., PartialDependenceSpec]


NUMERIC_PARTS: Final = SectionParts(_numeric_charts, _format_numeric_row, _mean_dependence)
SECTIONS_BY_TYPE: Final = {
    "classification": SectionParts(_class_charts, _format_class_row, _class_dependence)
}
"""Target types that are not shown as numbers, by name."""


def find_section_parts(task: TargetType) -> SectionParts:
    """Return how a target type is shown."""
    return SECTIONS_BY_TYPE.get(task.name, NUMERIC_PARTS)


def build_target_section(
    task: TargetType,
    score: Score,
    summaries: StreamSummaries,
    target: int,
    points: Sequence[CurvePoint],
    unreadable: int = 0,
) -> TargetSection:
    """Build everything shown of one target; `points` are empty if nothing was learned."""
    values, name = score.metric_values(), task.targets[target]
    table = build_metric_table(task, values, name)
    groups, crossed = find_section_parts(task).charts(task, score, summaries, target, points)
    return TargetSection(
        name,
        find_metrics(task).judge(score),
        table,
        _build_tiles(table, values, unreadable, find_metrics(task).baseline_phrase),
        groups,
        crossed,
    )


def mark_alarms(section: TargetSection, rows: Sequence[int]) -> TargetSection:
    """Mark the rows of drift alarms on the learning curves of a section."""
    groups = [
        group._replace(
            charts=[
                chart._replace(data={**chart.data, "alarms": list(rows)})
                if chart.kind == "learning" and rows
                else chart
                for chart in group.charts
            ]
        )
        for group in section.groups
    ]
    return section._replace(groups=groups)


def _build_tiles(
    table: MetricTable, values: MetricValues, unreadable: int, baseline_phrase: str
) -> list[MetricTile]:
    left = [
        f"{format_count(number)} {what}"
        for number, what in ((values["skipped"], "without a target"), (unreadable, "unreadable"))
        if number
    ]
    return [
        MetricTile("Rows", format_count(values["rows"]), ", ".join(left) or "all scored"),
        *(
            MetricTile(
                row.label[:1].upper() + row.label[1:],
                row.value,
                f"{row.constant} {baseline_phrase}" if row.constant else row.remark,
            )
            for row in table.rows
        ),
    ]


def describe_dependence(
    task: TargetType, score: Score, summaries: StreamSummaries, target: int
) -> PartialDependenceSpec:
    """Describe how the target is drawn as a function of the inputs."""
    return find_section_parts(task).dependence(task, score, summaries, target)


PRESENCE_TYPES: Final = ("amount",)
"""Numeric target types whose effects on the probability of more than 0 are shown."""
UNCHANGED_TEMPERATURE_MARGIN: Final = 0.05
"""An inverse temperature this close to 1 leaves probabilities almost unchanged."""


def describe_target(task: TargetType) -> str:
    """Describe a target type and its targets."""
    return f"{task.title or task.name} of {', '.join(clean_text(name) for name in task.targets)}"


def describe_noise(
    task: TargetType, noise: str | float, levels: dict[str, float]
) -> list[tuple[str, str]]:
    """Describe how the noise is learned and its levels, as pairs of label and value."""
    if not task.has_noise:
        return []
    modes = {"auto": "learned, depends on the input", "constant": "learned, constant"}
    level = ", ".join(
        f"{format_number(sd)} ({clean_text(name)})" if len(levels) > 1 else format_number(sd)
        for name, sd in levels.items()
    )
    how = modes.get(str(noise), "as given")
    return [("noise", how + (f"; typical sd {level}" if level else ""))]


def describe_classes(task: TargetType, temperature_state: FloatArray) -> list[tuple[str, str]]:
    """Describe the classes and the temperature of their probabilities; nothing for numbers."""
    if not task.labels:
        return []
    found = [("classes", ", ".join(clean_text(name) for name in task.schema.classes))]
    if len(temperature_state) and temperature_state[categorical.EVIDENCE_ROWS]:
        s = categorical.inverse_temperature(temperature_state)
        rows = int(temperature_state[categorical.EVIDENCE_ROWS])
        how = "raised to this power" if s > 1.0 else "drawn towards the class shares"
        if abs(s - 1.0) < UNCHANGED_TEMPERATURE_MARGIN:
            how = "left as they are"
        text = f"{format_number(s, 3)}: probabilities are {how}, learned from {format_rows(rows)}"
        found.append(("sharpness", text))
    return found


class EffectQuantity(NamedTuple):
    """A quantity whose changes are shown as effects of features, in the units of forecasts."""

    name: str
    title: str
    unit: str
    values: Callable[[Forecast], FloatArray]  # (n,)
    target: int | None  # index of the target if it is a mean; None: a probability


def list_effect_quantities(task: TargetType, outputs: int) -> list[EffectQuantity]:
    """List the quantities that effects are shown on, given the number of outputs.

    The mean of each target, and for amounts the probability that it is not 0; of classes the
    probability of each, or of the second of two.
    """
    if task.labels:
        names = list(enumerate(task.schema.classes[: max(2, outputs)]))
        return [
            EffectQuantity(
                name,
                f"the probability of {name}",
                "probability",
                lambda f, k=k: f.probability[:, k],  # type: ignore[misc]  # bound now
                None,
            )
            for k, name in (names[1:] if len(names) == 2 else names)
        ]
    made = [
        EffectQuantity(name, name, f"units of {name}", lambda f, j=j: f.mean[:, j], j)  # type: ignore[misc]  # bound now
        for j, name in enumerate(task.targets)
    ]
    if task.name not in PRESENCE_TYPES:
        return made
    return made + [
        EffectQuantity(
            f"{name} > 0",
            f"the probability of {name} > 0",
            "probability",
            lambda f, j=j: 1.0 - read_distribution(f.stated[:, j]).cdf(np.zeros(len(f.mean))),  # type: ignore[misc]  # bound now
            None,
        )
        for j, name in enumerate(task.targets)
    ]
