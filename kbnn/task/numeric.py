"""Numbers: forecasts with error bars, whichever distribution is stated."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar

import numpy as np

from kbnn.core import tails
from kbnn.core.normal import FloatArray
from kbnn.errors import UsageError
from kbnn.score.curve import CurvePoint
from kbnn.score.figures import Values
from kbnn.score.score import Score
from kbnn.score.scorecard import Compared
from kbnn.score.summaries import Summaries
from kbnn.score.verdict import Verdict
from kbnn.task import stated
from kbnn.task.answer import Number
from kbnn.task.base import Early, Field, Line, Quantity, Task, Wanted
from kbnn.task.early_numbers import EarlyNumbers
from kbnn.task.forecast import Forecast
from kbnn.task.numeric_score import Judged, NumericScore
from kbnn.task.numeric_verdict import numeric_verdict
from kbnn.task.section import Chart, Curve, Drawn, Group, Section, learning_chart
from kbnn.wording import number, percent, rows_of

IMPOSSIBLE = 50.0
"""Nats that a value costs which what is stated cannot have."""


class Numeric(Task):
    """One or several numbers."""

    score = NumericScore
    baseline = "constant"
    against = "for the best constant"
    labels = False
    error_power = 2
    lines: ClassVar[Sequence[Line]] = (
        Line("RMSE", 10, lambda point, noise: number(point.loss)),
        Line("since last", 12, lambda point, noise: number(point.since_loss)),
        Line("NLL", 10, lambda point, noise: number(point.nll)),
        Line("in 90 %", 10, lambda point, noise: percent(point.coverage_90)),
        Line("noise sd", 10, lambda point, noise: number(noise)),
    )

    def outputs(self, y: FloatArray, known: int = 0) -> int:
        """One for each target."""
        return len(self.targets)

    def tails(self, mixed: bool, y: FloatArray | None = None) -> FloatArray:
        """What is known of the tails before the first row; not `mixed`, they are a Gaussian's."""
        return tails.blank(len(self.targets), mixed)

    @abstractmethod
    def early_stated(self, mean: FloatArray, sd: FloatArray) -> FloatArray:
        """What is stated where no more than mean and spread of targets, linked, are known."""

    @abstractmethod
    def shown(self, told: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Mean and standard deviation in the user's units of what is stated (n, T, fields)."""

    def early(self) -> Early:
        """Mean and spread of the rows before."""
        return EarlyNumbers(self)

    def log_density(self, forecast: Forecast, y: FloatArray, finest: float = 1.0) -> FloatArray:
        """That of what is stated of the targets."""
        total = np.zeros(len(y))
        for j in range(len(self.targets)):
            told = forecast.stated[:, j]
            known = np.isfinite(y[:, j]) & np.isfinite(forecast.mean[:, j])
            possible = known & (stated.possible(y[:, j], told) > 0.0)
            if possible.all():
                total += stated.log_density(y[:, j], told, finest)
                continue
            total[known & ~possible] -= IMPOSSIBLE
            total[possible] += stated.log_density(y[possible, j], told[possible], finest)
        return total

    def misses(self, y: FloatArray, forecast: Forecast) -> FloatArray:
        """Errors in standard deviations."""
        return np.asarray((y - forecast.mean) / forecast.sd)

    def judge(self, y: FloatArray, forecast: Forecast, weight: FloatArray | None) -> list[Judged]:
        """Each target's errors."""
        return [
            Judged(y[:, j], forecast.mean[:, j], forecast.stated[:, j], weight)
            for j in range(len(self.targets))
        ]

    def said(self, forecast: Forecast, judged: Sequence[Compared]) -> FloatArray:
        """The means, then standard deviations, then lower and upper edges of 90 %."""
        edges = [one.edges for one in judged if isinstance(one, Judged)]
        return np.column_stack(
            (forecast.mean, forecast.sd, *(e[0] for e in edges), *(e[1] for e in edges))
        )

    def errors(self, y: FloatArray, said: FloatArray) -> FloatArray:
        """Squares, the mean over targets, each in its scale where there are several."""
        targets = len(self.targets)
        scale = np.nanvar(y, axis=0) if targets > 1 else np.ones(1)
        squares = (y - said[:, :targets]) ** 2 / np.where(scale > 0.0, scale, 1.0)
        return np.asarray(np.mean(squares, axis=1))

    def error_told(self, mean: float) -> str:
        """Its root."""
        what = "RMSE" if len(self.targets) == 1 else "a standardised RMSE of"
        return f"{what} {number(float(np.sqrt(mean)), 3)}"

    def one(self, forecast: Forecast) -> Number | dict[str, Number]:
        """A number, or each target's."""
        made = [self._one(forecast, j) for j in range(len(self.targets))]
        return made[0] if len(made) == 1 else dict(zip(self.targets, made, strict=True))

    def _one(self, forecast: Forecast, j: int) -> Number:
        lower, upper = stated.interval(forecast.stated[:1, j], 0.9)
        parts = (forecast.function_sd, forecast.noise_sd)
        return Number(
            float(forecast.mean[0, j]),
            float(forecast.sd[0, j]),
            float(lower[0]),
            float(upper[0]),
            *(float(part[0, j]) for part in parts),
        )

    def numbers_of(self, values: FloatArray, what: str = "mean") -> FloatArray:
        """As they are."""
        return values[:, 0] if values.shape[1] == 1 else values

    def probabilities(self, forecast: Forecast) -> FloatArray:
        """There are none."""
        raise UsageError("numbers have no classes: see mean and sd")

    def verdict(self, score: Score) -> Verdict:
        """Useful, biased, over- or under-confident?"""
        assert isinstance(score, NumericScore)
        return numeric_verdict(score)

    def headline(self, values: Values) -> str:
        """The RMSE."""
        return f"RMSE {number(values['rmse'], 3)}"

    def sampled(self, summaries: Summaries, target: int) -> dict[str, FloatArray]:
        """Truth, mean and the edges of the 90 % interval of the sampled rows."""
        sample, targets = summaries.sample, len(self.targets)
        if not len(sample):
            return {name: np.zeros(0) for name in ("y", "mean", "lower", "upper")}
        truth, said = sample.y[:, target], sample.forecast
        mean, lower, upper = (said[:, k * targets + target] for k in (0, 2, 3))
        kept = np.isfinite(truth) & np.isfinite(mean) & np.isfinite(lower) & np.isfinite(upper)
        return {
            "y": truth[kept],
            "mean": mean[kept],
            "lower": lower[kept],
            "upper": upper[kept],
        }

    def section(
        self,
        score: Score,
        summaries: Summaries,
        target: int,
        points: Sequence[CurvePoint],
        unreadable: int = 0,
    ) -> Section:
        """Can the error bars be trusted, what was predicted, how was it learned."""
        assert isinstance(score, NumericScore)
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

        def values(f: Forecast) -> Curve:
            parts = (f.mean[:, target], f.sd[:, target], f.function_sd[:, target])
            return Curve(*parts, *stated.interval(f.stated[:, target], 0.9))

        return Drawn(
            name=name,
            sd_name="standard deviation",
            effect=name,
            values=values,
            truth=lambda y: y,
            marks=False,
            chart=Chart("truth", name, {**self.sampled(summaries, target), "name": name}),
        )

    def fields(self, wanted: Wanted) -> list[Field]:
        """mean, sd, lower and upper, then what else is wanted."""
        made: list[Field] = []
        for j, target in enumerate(self.targets):
            suffix = f"_{target}" if len(self.targets) > 1 else ""
            made += _fields(j, suffix, wanted)
        return [*made, Field("outlier", False, lambda f: f.outlier)] if wanted.outlier else made

    def truth(self, y: FloatArray) -> FloatArray:
        """The numbers."""
        return y

    def quantities(self, outputs: int) -> list[Quantity]:
        """The predicted mean of each target."""
        return [
            Quantity(name, name, f"units of {name}", lambda f, j=j: f.mean[:, j], j)  # type: ignore[misc]  # bound now
            for j, name in enumerate(self.targets)
        ]


def first_impossible(y: FloatArray, possible: Callable[[FloatArray], FloatArray]) -> int:
    """The first row with a target (n, T) that is not possible; n if there is none."""
    wrong = np.any(np.isfinite(y) & (possible(y) == 0.0), axis=1)
    return int(np.argmax(wrong)) if wrong.any() else len(y)


def _fields(j: int, suffix: str, wanted: Wanted) -> list[Field]:
    def edge(side: int) -> Field:
        name = ("lower", "upper")[side]
        return Field(
            f"{name}{suffix}",
            False,
            lambda f: stated.interval(f.stated[:, j], wanted.interval)[side],
        )

    def quantile(share: float) -> Field:
        return Field(
            f"{quantile_name(share)}{suffix}",
            False,
            lambda f: stated.quantile(f.stated[:, j], share),
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
        *(quantile(share) for share in wanted.quantiles),
        *(parts if wanted.decompose else []),
    ]


def quantile_name(share: float) -> str:
    """q05 for 0.05, q975 for 0.975."""
    return "q" + f"{share:.12g}".removeprefix("0.").ljust(2, "0")


def _trust(score: NumericScore, sample: dict[str, FloatArray]) -> Group:
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
                "Errors in units of the reach of their 90 % interval; 90 % belong in the band.",
            ),
            Chart(
                "bell",
                "Errors and the bell curve",
                sample,
                "Errors in units of what was stated follow the line where tails are light.",
            ),
            Chart(
                "funnel",
                "Residuals by width of interval",
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
