"""Base class of numeric targets: forecasts with error bars, for any predictive distribution."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar

import numpy as np

from kbnn.array_types import FloatArray
from kbnn.distributions import calibration, dispatch
from kbnn.errors import UsageError
from kbnn.metrics.figures import MetricValues
from kbnn.metrics.numeric_metrics import NumericScore, ScoredNumericBatch
from kbnn.metrics.samples import StreamSummaries
from kbnn.metrics.score import Score
from kbnn.metrics.scorecard import CurvePoint, ScoredRows
from kbnn.metrics.verdicts import (
    ChartGroup,
    ChartSpec,
    PartialDependenceSpec,
    PredictionCurve,
    TargetSection,
    Verdict,
    judge_numeric_score,
    make_learning_chart,
)
from kbnn.targets.base import (
    ColdStart,
    EffectQuantity,
    OutputField,
    OutputOptions,
    ProgressColumn,
    TargetType,
)
from kbnn.targets.cold_start import NumericColdStart
from kbnn.targets.prediction import Forecast, Number
from kbnn.wording import format_number, format_percent, format_rows

IMPOSSIBLE_PENALTY_NATS = 50.0
"""Penalty, in nats, for a value outside the support of the predictive distribution."""


class NumericTarget(TargetType):
    """One or several numbers."""

    score = NumericScore
    baseline_name = "constant"
    baseline_phrase = "for the best constant"
    labels = False
    error_power = 2
    progress_columns: ClassVar[Sequence[ProgressColumn]] = (
        ProgressColumn("RMSE", 10, lambda point, noise: format_number(point.loss)),
        ProgressColumn("since last", 12, lambda point, noise: format_number(point.since_loss)),
        ProgressColumn("NLL", 10, lambda point, noise: format_number(point.nll)),
        ProgressColumn("in 90 %", 10, lambda point, noise: format_percent(point.coverage_90)),
        ProgressColumn("noise sd", 10, lambda point, noise: format_number(noise)),
    )

    def count_outputs(self, y: FloatArray, known: int = 0) -> int:
        """Return one output per target."""
        return len(self.targets)

    def init_calibration(self, mixed: bool, y: FloatArray | None = None) -> FloatArray:
        """Initialise the calibration state; without `mixed` the distribution is a Gaussian."""
        return calibration.init_calibration(len(self.targets), mixed)

    @abstractmethod
    def cold_start_distribution(self, mean: FloatArray, sd: FloatArray) -> FloatArray:
        """Build predictive distributions from mean and sd of the linked targets alone."""

    @abstractmethod
    def mean_and_sd(self, distribution: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return mean and sd, in the user's units, of predictive distributions (n, T, fields)."""

    def make_cold_start(self) -> ColdStart:
        """Predict mean and spread of the rows before."""
        return NumericColdStart(self)

    def log_density(
        self, forecast: Forecast, y: FloatArray, zero_bin_width: float = 1.0
    ) -> FloatArray:
        """Sum the log densities of the targets under their predictive distributions."""
        total = np.zeros(len(y))
        for j in range(len(self.targets)):
            rows = forecast.stated[:, j]
            known = np.isfinite(y[:, j]) & np.isfinite(forecast.mean[:, j])
            possible = known & (dispatch.possible(y[:, j], rows) > 0.0)
            if possible.all():
                total += dispatch.log_density(y[:, j], rows, zero_bin_width)
                continue
            total[known & ~possible] -= IMPOSSIBLE_PENALTY_NATS
            total[possible] += dispatch.log_density(y[possible, j], rows[possible], zero_bin_width)
        return total

    def standardized_residuals(self, y: FloatArray, forecast: Forecast) -> FloatArray:
        """Return (y - mean) / sd."""
        return np.asarray((y - forecast.mean) / forecast.sd)

    def score_forecasts(
        self, y: FloatArray, forecast: Forecast, weight: FloatArray | None
    ) -> list[ScoredNumericBatch]:
        """Pair each target's forecasts with the true values."""
        return [
            ScoredNumericBatch(y[:, j], forecast.mean[:, j], forecast.stated[:, j], weight)
            for j in range(len(self.targets))
        ]

    def prediction_columns(self, forecast: Forecast, scored: Sequence[ScoredRows]) -> FloatArray:
        """Return the means, then the sds, then the lower and upper edges of 90 % intervals."""
        edges = [one.interval_edges for one in scored if isinstance(one, ScoredNumericBatch)]
        return np.column_stack(
            (forecast.mean, forecast.sd, *(e[0] for e in edges), *(e[1] for e in edges))
        )

    def errors(self, y: FloatArray, columns: FloatArray) -> FloatArray:
        """Return squared errors, averaged over targets in units of their variance if several."""
        targets = len(self.targets)
        scale = np.nanvar(y, axis=0) if targets > 1 else np.ones(1)
        squares = (y - columns[:, :targets]) ** 2 / np.where(scale > 0.0, scale, 1.0)
        return np.asarray(np.mean(squares, axis=1))

    def format_error(self, mean: float) -> str:
        """Format the square root of the mean."""
        what = "RMSE" if len(self.targets) == 1 else "a standardised RMSE of"
        return f"{what} {format_number(float(np.sqrt(mean)), 3)}"

    def single_prediction(self, forecast: Forecast) -> Number | dict[str, Number]:
        """Return a `Number`, or a dict of them by target."""
        made = [self._single_number(forecast, j) for j in range(len(self.targets))]
        return made[0] if len(made) == 1 else dict(zip(self.targets, made, strict=True))

    def _single_number(self, forecast: Forecast, j: int) -> Number:
        lower, upper = dispatch.interval(forecast.stated[:1, j], 0.9)
        parts = (forecast.function_sd, forecast.noise_sd)
        return Number(
            float(forecast.mean[0, j]),
            float(forecast.sd[0, j]),
            float(lower[0]),
            float(upper[0]),
            *(float(part[0, j]) for part in parts),
        )

    def numeric_values(self, values: FloatArray, what: str = "mean") -> FloatArray:
        """Return the values; of a single target as (n,)."""
        return values[:, 0] if values.shape[1] == 1 else values

    def class_probabilities(self, forecast: Forecast) -> FloatArray:
        """Raise UsageError: numbers have no classes."""
        raise UsageError("numbers have no classes: see mean and sd")

    def build_verdict(self, score: Score) -> Verdict:
        """Judge whether forecasts are useful, biased, over- or under-confident."""
        assert isinstance(score, NumericScore)
        return judge_numeric_score(score)

    def format_headline(self, values: MetricValues) -> str:
        """Format the RMSE."""
        return f"RMSE {format_number(values['rmse'], 3)}"

    def sampled_predictions(self, summaries: StreamSummaries, target: int) -> dict[str, FloatArray]:
        """Return truth, mean and the edges of the 90 % interval of the sampled rows."""
        sample, targets = summaries.sample, len(self.targets)
        if not len(sample):
            return {name: np.zeros(0) for name in ("y", "mean", "lower", "upper")}
        truth, columns = sample.y[:, target], sample.forecast
        mean, lower, upper = (columns[:, k * targets + target] for k in (0, 2, 3))
        kept = np.isfinite(truth) & np.isfinite(mean) & np.isfinite(lower) & np.isfinite(upper)
        return {
            "y": truth[kept],
            "mean": mean[kept],
            "lower": lower[kept],
            "upper": upper[kept],
        }

    def build_section(
        self,
        score: Score,
        summaries: StreamSummaries,
        target: int,
        points: Sequence[CurvePoint],
        unreadable: int = 0,
    ) -> TargetSection:
        """Build the charts of calibration, predictions and learning, with verdict and metrics."""
        assert isinstance(score, NumericScore)
        values, name = score.metric_values(), self.targets[target]
        groups: list[ChartGroup] = []
        if score.rows:
            sample = self.sampled_predictions(summaries, target)
            groups += [_calibration_charts(score, sample), _prediction_charts(sample, name)]
        if len(points) > 1:
            groups.append(_numeric_learning_charts(points, values))
        return TargetSection(
            name,
            self.build_verdict(score),
            self.build_table(values, name),
            self.build_tiles(values, name, unreadable),
            groups,
        )

    def format_row(self, y: FloatArray, columns: FloatArray, target: int) -> tuple[str, str]:
        """Format the number, and mean ± sd."""
        mean, sd = float(columns[target]), float(columns[len(self.targets) + target])
        return format_number(float(y[target])), f"{format_number(mean)} ± {format_number(sd, 3)}"

    def partial_dependence_spec(
        self, score: Score, summaries: StreamSummaries, target: int
    ) -> PartialDependenceSpec:
        """Describe the mean, with the bands of the prediction and of the function."""
        name = self.targets[target]

        def predict_curve(f: Forecast) -> PredictionCurve:
            parts = (f.mean[:, target], f.sd[:, target], f.function_sd[:, target])
            return PredictionCurve(*parts, *dispatch.interval(f.stated[:, target], 0.9))

        return PartialDependenceSpec(
            name=name,
            sd_name="standard deviation",
            effect=name,
            values=predict_curve,
            truth=lambda y: y,
            marks=False,
            chart=ChartSpec(
                "truth", name, {**self.sampled_predictions(summaries, target), "name": name}
            ),
        )

    def output_fields(self, wanted: OutputOptions) -> list[OutputField]:
        """List mean, sd, lower and upper, then what else is requested."""
        made: list[OutputField] = []
        for j, target in enumerate(self.targets):
            suffix = f"_{target}" if len(self.targets) > 1 else ""
            made += _target_fields(j, suffix, wanted)
        return (
            [*made, OutputField("outlier", False, lambda f: f.outlier)] if wanted.outlier else made
        )

    def decode_targets(self, y: FloatArray) -> FloatArray:
        """Return the numbers unchanged."""
        return y

    def effect_quantities(self, outputs: int) -> list[EffectQuantity]:
        """List the predicted mean of each target."""
        return [
            EffectQuantity(name, name, f"units of {name}", lambda f, j=j: f.mean[:, j], j)  # type: ignore[misc]  # bound now
            for j, name in enumerate(self.targets)
        ]


def first_impossible_row(y: FloatArray, possible: Callable[[FloatArray], FloatArray]) -> int:
    """Return the first row with a target (n, T) that is not possible; n if none."""
    wrong = np.any(np.isfinite(y) & (possible(y) == 0.0), axis=1)
    return int(np.argmax(wrong)) if wrong.any() else len(y)


def _target_fields(j: int, suffix: str, wanted: OutputOptions) -> list[OutputField]:
    def interval_field(side: int) -> OutputField:
        name = ("lower", "upper")[side]
        return OutputField(
            f"{name}{suffix}",
            False,
            lambda f: dispatch.interval(f.stated[:, j], wanted.interval)[side],
        )

    def quantile_field(share: float) -> OutputField:
        return OutputField(
            f"{quantile_name(share)}{suffix}",
            False,
            lambda f: dispatch.quantile(f.stated[:, j], share),
        )

    parts = [
        OutputField(f"function_sd{suffix}", False, lambda f: f.function_sd[:, j]),
        OutputField(f"noise_sd{suffix}", False, lambda f: f.noise_sd[:, j]),
    ]
    return [
        OutputField(f"mean{suffix}", False, lambda f: f.mean[:, j]),
        OutputField(f"sd{suffix}", False, lambda f: f.sd[:, j]),
        interval_field(0),
        interval_field(1),
        *(quantile_field(share) for share in wanted.quantiles),
        *(parts if wanted.decompose else []),
    ]


def quantile_name(share: float) -> str:
    """Name the column of a quantile: q05 for 0.05, q975 for 0.975."""
    return "q" + f"{share:.12g}".removeprefix("0.").ljust(2, "0")


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
