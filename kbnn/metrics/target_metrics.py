"""How forecasts of each target type are scored, summarised and judged.

`METRICS_BY_TYPE` names the types that differ from other numbers; a numeric type without an entry is
scored as `NUMERIC`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from kbnn.array_types import FloatArray
from kbnn.metrics.class_metrics import ClassScore, ScoredClassBatch
from kbnn.metrics.figures import MetricTable, MetricValues, Score, ScoredRows, format_metric_rows
from kbnn.metrics.numeric_metrics import NumericScore, ScoredNumericBatch
from kbnn.metrics.verdicts import Verdict, judge_class_score, judge_numeric_score
from kbnn.targets.base import TargetType
from kbnn.targets.prediction import Forecast
from kbnn.wording import format_number, format_percent

if TYPE_CHECKING:
    from kbnn.metrics.scorecard import CurvePoint


class ProgressColumn(NamedTuple):
    """One column of the progress lines of training: head, width and cell."""

    head: str
    width: int
    cell: Callable[[CurvePoint, float | None], str]  # from a point and the noise sd


class TargetMetrics(NamedTuple):
    """Scoring of one target type.

    score               streaming metrics of one target
    baseline_name       name of the best constant in tables
    baseline_phrase     name of the best constant in a remark: for ...
    score_forecasts     pair the forecasts of each target with the true values y (n, T)
    prediction_columns  the forecast as columns (n, F) for the sampled rows
    errors              error of each sampled row (n,), from y (n, T) and these columns
    error_power         power of the errors: 2 for squared errors, 1 for error rates
    format_error        format the mean of the errors, given the number of targets
    judge               turn the metrics into a verdict in plain words
    format_headline     format the most important metric
    progress_columns    columns of the progress lines of training
    """

    score: type[Score]
    baseline_name: str
    baseline_phrase: str
    score_forecasts: Callable[[FloatArray, Forecast, FloatArray | None], Sequence[ScoredRows]]
    prediction_columns: Callable[[Forecast, Sequence[ScoredRows]], FloatArray]
    errors: Callable[[FloatArray, FloatArray], FloatArray]
    error_power: int
    format_error: Callable[[float, int], str]
    judge: Callable[[Any], Verdict]
    format_headline: Callable[[MetricValues], str]
    progress_columns: Sequence[ProgressColumn]


def _score_numbers(
    y: FloatArray, forecast: Forecast, weight: FloatArray | None
) -> list[ScoredNumericBatch]:
    return [
        ScoredNumericBatch(y[:, j], forecast.mean[:, j], forecast.stated[:, j], weight)
        for j in range(y.shape[1])
    ]


def _number_columns(forecast: Forecast, scored: Sequence[ScoredRows]) -> FloatArray:
    """Return the means, then the sds, then the lower and upper edges of 90 % intervals."""
    edges = [one.interval_edges for one in scored if isinstance(one, ScoredNumericBatch)]
    return np.column_stack(
        (forecast.mean, forecast.sd, *(e[0] for e in edges), *(e[1] for e in edges))
    )


def _squared_errors(y: FloatArray, columns: FloatArray) -> FloatArray:
    """Return squared errors, averaged over targets in units of their variance if several."""
    targets = y.shape[1]
    scale = np.nanvar(y, axis=0) if targets > 1 else np.ones(1)
    squares = (y - columns[:, :targets]) ** 2 / np.where(scale > 0.0, scale, 1.0)
    return np.asarray(np.mean(squares, axis=1))


def _format_squared_error(mean: float, targets: int) -> str:
    what = "RMSE" if targets == 1 else "a standardised RMSE of"
    return f"{what} {format_number(float(np.sqrt(mean)), 3)}"


def _score_classes(
    y: FloatArray, forecast: Forecast, weight: FloatArray | None
) -> list[ScoredClassBatch]:
    return [ScoredClassBatch(y[:, 0], forecast.probability, weight)]


def _wrong_classes(y: FloatArray, columns: FloatArray) -> FloatArray:
    """Return 1 where the most probable class was wrong."""
    wrong = np.argmax(columns, axis=1) != y[:, 0]
    return np.where(np.isfinite(y[:, 0]), wrong.astype(np.float64), np.nan)


NUMERIC: Final = TargetMetrics(
    NumericScore,
    "constant",
    "for the best constant",
    _score_numbers,
    _number_columns,
    _squared_errors,
    2,
    _format_squared_error,
    judge_numeric_score,
    lambda values: f"RMSE {format_number(values['rmse'], 3)}",
    (
        ProgressColumn("RMSE", 10, lambda point, noise: format_number(point.loss)),
        ProgressColumn("since last", 12, lambda point, noise: format_number(point.since_loss)),
        ProgressColumn("NLL", 10, lambda point, noise: format_number(point.nll)),
        ProgressColumn("in 90 %", 10, lambda point, noise: format_percent(point.coverage_90)),
        ProgressColumn("noise sd", 10, lambda point, noise: format_number(noise)),
    ),
)

METRICS_BY_TYPE: Final = {
    "count": NUMERIC._replace(
        progress_columns=(
            *NUMERIC.progress_columns[:-1],
            ProgressColumn("dispersion", 12, lambda point, noise: format_number(noise)),
        )
    ),
    "classification": TargetMetrics(
        ClassScore,
        "class shares",
        "for the class shares",
        _score_classes,
        lambda forecast, scored: forecast.probability,
        _wrong_classes,
        1,
        lambda mean, targets: f"{format_percent(1.0 - mean)} right",
        judge_class_score,
        lambda values: f"accuracy {format_percent(values['accuracy'])}",
        (
            ProgressColumn("errors", 10, lambda point, noise: format_percent(point.loss)),
            ProgressColumn("since last", 12, lambda point, noise: format_percent(point.since_loss)),
            ProgressColumn("log-loss", 10, lambda point, noise: format_number(point.nll)),
            ProgressColumn("since last", 12, lambda point, noise: format_number(point.since_nll)),
        ),
    ),
}
"""Target types that are not scored as `NUMERIC`, by name."""


def find_metrics(task: TargetType) -> TargetMetrics:
    """Return how a target type is scored."""
    return METRICS_BY_TYPE.get(task.name, NUMERIC)


def build_metric_table(
    task: TargetType, values: MetricValues, target: str, *, brief: bool = False
) -> MetricTable:
    """Build the table of one target's metrics beside those of the best constant."""
    known = find_metrics(task)
    rows = format_metric_rows(known.score.figures_listed, values, target, brief=brief)
    return MetricTable(known.baseline_name, rows)
