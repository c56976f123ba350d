"""A real target: Gaussian forecasts with error bars."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from kbnn.core.constants import OUTLIER_SHARE, OUTLIER_VAR_RATIO
from kbnn.core.network import Prediction
from kbnn.core.normal import FloatArray
from kbnn.score.curve import CurvePoint
from kbnn.score.figures import Values
from kbnn.score.score import Score
from kbnn.score.summaries import Summaries
from kbnn.score.verdict import Verdict
from kbnn.task.base import Early, Field, Line, Scaled, Task
from kbnn.task.early_numbers import EarlyNumbers
from kbnn.task.forecast import Forecast
from kbnn.task.gaussian import Gaussian
from kbnn.task.real_score import Judged, RealScore
from kbnn.task.real_verdict import real_verdict
from kbnn.task.section import Chart, Drawn, Group, Section, learning_chart
from kbnn.wording import number, percent, rows_of

_OUTLYING = math.sqrt(OUTLIER_VAR_RATIO)
"""Standard deviation of outliers beside that of the others."""


class Real(Task):
    """One or several numbers."""

    name = "regression"
    observation = "gaussian"
    score = RealScore
    baseline = "constant"
    against = "for the best constant"
    labels = False
    lines = (
        Line("RMSE", 10, lambda point, noise: number(point.loss)),
        Line("since last", 12, lambda point, noise: number(point.since_loss)),
        Line("NLL", 10, lambda point, noise: number(point.nll)),
        Line("in 90 %", 10, lambda point, noise: percent(point.coverage_90)),
        Line("noise sd", 10, lambda point, noise: number(noise)),
    )

    @property
    def noisy(self) -> bool:
        """It has."""
        return True

    def outputs(self, y: FloatArray, known: int = 0) -> int:
        """One for each target."""
        return len(self.targets)

    def early(self) -> Early:
        """Mean and spread of the rows before."""
        return EarlyNumbers(len(self.targets))

    def forecast(self, made: Prediction, scaled: Scaled, robust: bool) -> Forecast:
        """Means and standard deviations in the user's units."""
        center, scale = scaled
        return Forecast(
            center + scale * made.mean,
            scale * np.sqrt(made.function_var + made.noise_var),
            scale * np.sqrt(made.function_var),
            scale * np.sqrt(made.noise_var),
            made.probability,
            1.0 - made.inlier if robust else np.full(len(made.inlier), np.nan),
            made.status.astype(np.int64),
        )

    def log_likelihood(self, made: Prediction, y: FloatArray) -> FloatArray:
        """The Gaussian density, with no row more than 100 squared deviations away."""
        var = np.maximum(made.function_var + made.noise_var, 1e-300)
        score = -0.5 * (np.log(2.0 * np.pi * var) + np.minimum((y - made.mean) ** 2 / var, 100.0))
        return np.asarray(np.sum(np.where(np.isfinite(y), score, 0.0), axis=1))

    def log_density(self, forecast: Forecast, y: FloatArray) -> FloatArray:
        """That of the targets, each with its share of outliers: none of them decides alone."""
        known = np.isfinite(y) & np.isfinite(forecast.mean)
        seen = np.where(known, y, 0.0)
        mean, sd = np.where(known, forecast.mean, 0.0), np.where(known, forecast.sd, 1.0)
        score = np.logaddexp(
            math.log1p(-OUTLIER_SHARE) + Gaussian(mean, sd).log_density(seen),
            math.log(OUTLIER_SHARE) + Gaussian(mean, _OUTLYING * sd).log_density(seen),
        )
        return np.asarray(np.sum(np.where(known, score, 0.0), axis=1))

    def judge(self, y: FloatArray, forecast: Forecast, weight: FloatArray | None) -> list[Judged]:
        """Each target's errors."""
        return [
            Judged(y[:, j], forecast.mean[:, j], forecast.sd[:, j], weight)
            for j in range(len(self.targets))
        ]

    def said(self, forecast: Forecast) -> FloatArray:
        """The means, then the standard deviations."""
        return np.concatenate((forecast.mean, forecast.sd), axis=1)

    def verdict(self, score: Score) -> Verdict:
        """Useful, biased, over- or under-confident?"""
        assert isinstance(score, RealScore)
        return real_verdict(score)

    def headline(self, values: Values) -> str:
        """The RMSE."""
        return f"RMSE {number(values['rmse'], 3)}"

    def sampled(self, summaries: Summaries, target: int) -> dict[str, FloatArray]:
        """Truth, mean and standard deviation of the sampled rows."""
        sample, targets = summaries.sample, len(self.targets)
        if not len(sample):
            return {"y": np.zeros(0), "mean": np.zeros(0), "sd": np.zeros(0)}
        truth, said = sample.y[:, target], sample.forecast
        mean, sd = said[:, target], said[:, targets + target]
        kept = np.isfinite(truth) & np.isfinite(mean) & np.isfinite(sd)
        return {"y": truth[kept], "mean": mean[kept], "sd": sd[kept]}

    def section(
        self,
        score: Score,
        summaries: Summaries,
        target: int,
        points: Sequence[CurvePoint],
        unreadable: int = 0,
    ) -> Section:
        """Can the error bars be trusted, what was predicted, how was it learned."""
        assert isinstance(score, RealScore)
        values, name = score.figures(), self.targets[target]
        groups: list[Group] = []
        if score.rows:
            sample = self.sampled(summaries, target)
            groups += [_trust(score, sample), _predictions(sample, name)]
        if len(points) > 1:
            groups.append(_learning(points, values))
        return Section(
            name,
            self.verdict(score),
            self.table(values, name),
            self.tiles(values, name, unreadable),
            groups,
        )

    def told(self, y: FloatArray, said: FloatArray, target: int) -> tuple[str, str]:
        """The number, and mean ± sd."""
        mean, sd = float(said[target]), float(said[len(self.targets) + target])
        return number(float(y[target])), f"{number(mean)} ± {number(sd, 3)}"

    def drawn(self, score: Score, summaries: Summaries, target: int) -> Drawn:
        """The mean, with the band of the prediction and that of the function."""
        name = self.targets[target]
        return Drawn(
            name=name,
            sd_name="standard deviation",
            effect=name,
            values=lambda f: (f.mean[:, target], f.sd[:, target], f.function_sd[:, target]),
            truth=lambda y: y,
            marks=False,
            chart=Chart("truth", name, {**self.sampled(summaries, target), "name": name}),
        )

    def fields(
        self, interval: float, *, decompose: bool = False, outlier: bool = False, open: bool = False
    ) -> list[Field]:
        """mean, sd, lower and upper; `decompose` adds the two parts of sd."""
        made: list[Field] = []
        for j, target in enumerate(self.targets):
            suffix = f"_{target}" if len(self.targets) > 1 else ""
            made += _fields(j, suffix, interval, decompose)
        return [*made, Field("outlier", False, lambda f: f.outlier)] if outlier else made

    def truth(self, y: FloatArray) -> FloatArray:
        """The numbers."""
        return y

    def effects(self, outputs: int) -> list[tuple[str, str, list[tuple[int, float]]]]:
        """One list for each target."""
        return [(name, name, [(j, 1.0)]) for j, name in enumerate(self.targets)]


def _fields(j: int, suffix: str, interval: float, decompose: bool) -> list[Field]:
    def edge(side: int) -> Field:
        name = ("lower", "upper")[side]
        return Field(
            f"{name}{suffix}",
            False,
            lambda f: Gaussian(f.mean[:, j], f.sd[:, j]).interval(interval)[side],
        )

    parts = [
        Field(f"function_sd{suffix}", False, lambda f: f.function_sd[:, j]),
        Field(f"noise_sd{suffix}", False, lambda f: f.noise_sd[:, j]),
    ]
    return [
        Field(f"mean{suffix}", False, lambda f: f.mean[:, j]),
        Field(f"sd{suffix}", False, lambda f: f.sd[:, j]),
        edge(0),
        edge(1),
        *(parts if decompose else []),
    ]


def _trust(score: RealScore, sample: dict[str, FloatArray]) -> Group:
    levels, observed = score.pit.coverage()
    return Group(
        "Can the error bars be trusted?",
        [
            Chart(
                "calibration",
                "Calibration",
                {"levels": levels, "observed": observed, "rows": score.rows},
                "On the dashed line the intervals keep their promise; below, they are too narrow. "
                "Grey: what chance allows.",
                "inside by promised %; low: too narrow",
            ),
            Chart(
                "pit",
                "PIT histogram",
                {"bars": score.pit.bars()},
                "Even bars: honest. A valley: too narrow. A hill: too wide. A slope: biased.",
                "flat: honest; U: error bars too narrow",
            ),
            Chart(
                "width_error",
                "Interval width and error",
                sample,
                "Wide intervals should hold the large errors; above the line (orange) they missed.",
            ),
        ],
    )


def _predictions(sample: dict[str, FloatArray], name: str) -> Group:
    rows = f"{rows_of(len(sample['y']))}, evenly sampled"
    return Group(
        "Predictions",
        [
            Chart(
                "truth",
                "Predicted and true",
                {**sample, "name": name},
                f"At most 200 of {rows}; orange intervals missed.",
                "on the dotted line: right",
            ),
            Chart(
                "residuals",
                "Residuals",
                sample,
                "Errors in units of their stated sd; 90 % belong in the grey band.",
            ),
            Chart(
                "bell",
                "Errors and the bell curve",
                sample,
                "Errors in units of their stated sd should follow the line.",
            ),
            Chart(
                "funnel",
                "Residuals by stated sd",
                sample,
                hint="the funnel holds 90 % of honest errors",
            ),
        ],
    )


def _learning(points: Sequence[CurvePoint], values: Values) -> Group:
    inside = learning_chart(points, "coverage_90", "90 % intervals", 0.9, terminal=False)
    inside.data.update(name="rows inside, share", baseline_name="promised")
    return Group(
        "How it learned",
        [
            learning_chart(points, "loss", "RMSE", values["baseline_rmse"]),
            learning_chart(points, "nll", "NLL", values["baseline_nll"]),
            inside._replace(reading="Rows inside the interval; the dashed line is the promise."),
        ],
    )
