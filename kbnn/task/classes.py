"""A class target: the probability of every class, and classes may come while it learns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from kbnn.core import sharpness
from kbnn.core.network import Prediction
from kbnn.core.normal import FloatArray
from kbnn.core.sharpness import NONE
from kbnn.errors import UsageError
from kbnn.score.curve import CurvePoint
from kbnn.score.figures import Values
from kbnn.score.score import Score
from kbnn.score.scorecard import Compared
from kbnn.score.summaries import Summaries
from kbnn.score.verdict import Verdict
from kbnn.task.answer import Label
from kbnn.task.base import (
    Early,
    Field,
    Following,
    Line,
    Quantity,
    Scaled,
    T,
    Task,
    Wanted,
    blank,
)
from kbnn.task.class_score import ClassScore, Judged
from kbnn.task.class_verdict import class_verdict
from kbnn.task.early_labels import EarlyLabels
from kbnn.task.forecast import HELD, Forecast
from kbnn.task.section import Chart, Crossed, Curve, Drawn, Group, Section, learning_chart
from kbnn.wording import clean, number, percent, rows_of

MOST_GROUPED = 4
"""Group blocks cost in proportion to the outputs; with more classes neurons are kept apart."""
UNCHANGED_SHARPNESS = 0.05
"""A sharpness no farther from 1 than this changes no probability by much."""


class Classes(Task):
    """One of several labels; the target is the index of the class."""

    name = "classification"
    observation = "categorical"
    score = ClassScore
    baseline = "class shares"
    against = "for the class shares"
    labels = True
    departures: ClassVar[Sequence[str]] = ("class labels by probit",)
    error_power = 1
    lines = (
        Line("errors", 10, lambda point, noise: percent(point.loss)),
        Line("since last", 12, lambda point, noise: percent(point.since_loss)),
        Line("log-loss", 10, lambda point, noise: number(point.nll)),
        Line("since last", 12, lambda point, noise: number(point.since_nll)),
    )

    @classmethod
    def either(cls, numbers: T, labels: T) -> T:
        """What is done with labels."""
        return labels

    @classmethod
    def takes(cls, targets: int) -> bool:
        """One."""
        return targets == 1

    @classmethod
    def lagged(cls, kind: str) -> bool:
        """Classes are no inputs."""
        return False

    def outputs(self, y: FloatArray, known: int = 0) -> int:
        """One for each class."""
        return self.shown(y, known)

    def shown(self, y: FloatArray, known: int = 0) -> int:
        """Classes that these rows have shown, or all where there can be no more; two or more."""
        labels = y[np.isfinite(y)]
        complete = len(self.schema.classes) if self.schema.closed else 0
        return max(2, known, complete, int(np.max(labels)) + 1 if len(labels) else 0)

    @property
    def foreseen(self) -> int:
        """One for each class by name."""
        return max(2, len(self.schema.classes))

    def beyond(self, y: FloatArray, outputs: int) -> int:
        """The first label that is new."""
        new = y[:, 0] >= outputs
        return int(np.argmax(new)) if new.any() else len(y)

    def fits(self, outputs: int) -> bool:
        """Two or more, and each has a name but for a second one that has not come yet."""
        return 2 <= outputs <= max(2, len(self.schema.classes))

    def covariance(self, outputs: int) -> str:
        """Groups for few classes."""
        return "group" if outputs <= MOST_GROUPED else "neuron"

    def early(self) -> Early:
        """Class frequencies of the rows before."""
        return EarlyLabels(self.shown)

    def forecast(
        self,
        made: Prediction,
        scaled: Scaled,
        robust: bool,
        known: FloatArray,
        following: Following | None = None,
    ) -> Forecast:
        """The probabilities as the network has them."""
        said = blank(len(made.status), 0)
        return said._replace(probability=made.probability, status=made.status.astype(np.int64))

    @classmethod
    def sharpness(cls, mixed: bool, outputs: int, y: FloatArray | None = None) -> FloatArray:
        """How common classes were."""
        held = np.zeros(0) if y is None else y[:, 0]
        return sharpness.blank(held, max(2, outputs)) if mixed else NONE

    def sharpened(
        self, said: Forecast, sharp: FloatArray, following: Following | None = None
    ) -> Forecast:
        """The probabilities as sharp as the labels so far allow."""
        if not len(sharp):
            return said
        p = np.ascontiguousarray(said.probability)
        if following is None or following.y is None:
            return said._replace(probability=sharpness.stated(sharp, p))
        label, weight = np.ascontiguousarray(following.y[:, 0]), following.weight
        weight = None if weight is None else np.ascontiguousarray(weight)
        p = sharpness.stated(sharp, p, label, weight, following.compiled)
        return said._replace(probability=p)

    def log_likelihood(self, made: Prediction, y: FloatArray) -> FloatArray:
        """The logarithm of the label's probability."""
        return _log_probability(made.probability, y[:, 0])

    def log_density(self, forecast: Forecast, y: FloatArray, finest: float = 1.0) -> FloatArray:
        """The same."""
        return _log_probability(forecast.probability, y[:, 0])

    def misses(self, y: FloatArray, forecast: Forecast) -> FloatArray:
        """The labels themselves: there is no distance."""
        return y

    def judge(self, y: FloatArray, forecast: Forecast, weight: FloatArray | None) -> list[Judged]:
        """The label beside its probabilities."""
        return [Judged(y[:, 0], forecast.probability, weight)]

    def said(self, forecast: Forecast, judged: Sequence[Compared]) -> FloatArray:
        """The probabilities."""
        return forecast.probability

    def verdict(self, score: Score) -> Verdict:
        """Useful, surer than right, or righter than sure?"""
        assert isinstance(score, ClassScore)
        return class_verdict(score)

    def headline(self, values: Values) -> str:
        """The accuracy."""
        return f"accuracy {percent(values['accuracy'])}"

    def named(self, index: int) -> str:
        """The name of a class."""
        names = self.schema.classes
        return names[index] if index < len(names) else str(index)

    def section(
        self,
        score: Score,
        summaries: Summaries,
        target: int,
        points: Sequence[CurvePoint],
        unreadable: int = 0,
    ) -> Section:
        """Can the probabilities be trusted, which classes are mistaken, how was it learned."""
        assert isinstance(score, ClassScore)
        values, name = score.figures(), self.targets[target]
        groups: list[Group] = []
        crossed = None
        if score.rows:
            groups.append(_trust(score, values["accuracy"]))
            crossed = Crossed(
                "Confusion: true class down, predicted across",
                [self.named(k) for k in range(len(score.confusion))],
                score.confusion.tolist(),
            )
        if len(points) > 1:
            groups.append(_learning(points, values))
        return Section(
            name,
            self.verdict(score),
            self.table(values, name),
            self.tiles(values, name, unreadable),
            groups,
            crossed,
        )

    def told(self, y: FloatArray, said: FloatArray, target: int) -> tuple[str, str]:
        """The label, and the most probable one."""
        top = int(np.argmax(said))
        return self.named(int(y[0])), f"{self.named(top)} ({100 * said[top]:.1f} %)"

    def drawn(self, score: Score, summaries: Summaries, target: int) -> Drawn:
        """The probability of one class: the second of two, else the commonest."""
        assert isinstance(score, ClassScore)
        shown = min(1, max(len(self.schema.classes) - 1, 0))
        if len(self.schema.classes) > 2 and score.confusion.size:
            shown = int(np.argmax(score.confusion.sum(axis=1)))

        def values(forecast: Forecast) -> Curve:
            p = forecast.probability[:, shown]
            return Curve(p, np.sqrt(p * (1 - p)))

        name = clean(self.named(shown))
        weight, confidence, right = score.reliability()
        reliability = {"weight": weight, "confidence": confidence, "right": right}
        return Drawn(
            name=f"probability of {name}",
            sd_name="standard deviation of the label",
            effect=f"the probability of {self.named(shown)}",
            values=values,
            truth=lambda y: (y == shown).astype(np.float64),
            marks=True,
            chart=Chart("reliability", name, reliability),
        )

    def fields(self, wanted: Wanted) -> list[Field]:
        """The label and each class's probability; while classes may come, the label's alone."""
        for asked, option in ((wanted.quantiles, "--quantiles"), (wanted.decompose, "--decompose")):
            if asked:
                raise UsageError(f"{option} is for numbers, and the target holds classes")
        made = [Field("label", True, self._label)]
        if wanted.open and not self.schema.closed:
            return [*made, Field("probability", False, _certainty)]
        return made + [
            Field(f"p_{name}", False, lambda f, k=k: f.probability[:, k])  # type: ignore[misc]  # bound now
            for k, name in enumerate(self.schema.classes)
        ]

    def _label(self, forecast: Forecast) -> list[str | None]:
        p = forecast.probability
        if not p.shape[1]:
            return [None] * len(p)
        # Before any class has come all are as probable, and the first would be the row's own.
        even = (forecast.status & HELD > 0) & (p.max(axis=1) * np.sum(p > 0.0, axis=1) <= 1.0)
        known = np.atleast_1d(np.isfinite(p).all(axis=1) & ~even).tolist()
        best = p.argmax(axis=1).tolist()
        return [self.named(k) if sure else None for k, sure in zip(best, known, strict=True)]

    def one(self, forecast: Forecast) -> Label:
        """The label, and the probability of each class."""
        known = forecast.probability[0].tolist()
        names = enumerate(self.class_names)
        named = {name: known[k] if k < len(known) else 0.0 for k, name in names}
        return Label(max(named, key=named.__getitem__) if named else None, named)

    def numbers_of(self, values: FloatArray, what: str = "mean") -> FloatArray:
        """There are none."""
        raise UsageError(f"classes have no {what}: see label and probability")

    def probabilities(self, forecast: Forecast) -> FloatArray:
        """Of classes that came after the forecast, 0."""
        known, classes = forecast.probability, len(self.class_names)
        missing = max(classes - known.shape[1], 0)
        return np.pad(known, ((0, 0), (0, missing)))[:, :classes]

    @property
    def class_names(self) -> list[str]:
        """All so far."""
        return list(self.schema.classes)

    def intervals(self, kept: str) -> None:
        """There are none."""

    def errors(self, y: FloatArray, said: FloatArray) -> FloatArray:
        """1 where the most probable class was another."""
        wrong = np.argmax(said, axis=1) != y[:, 0]
        return np.where(np.isfinite(y[:, 0]), wrong.astype(np.float64), np.nan)

    def error_told(self, mean: float) -> str:
        """The share that is right."""
        return f"{percent(1.0 - mean)} right"

    def truth(self, y: FloatArray) -> list[str | None]:
        """The labels."""
        return [None if np.isnan(value) else self.named(int(value)) for value in y]

    def quantities(self, outputs: int) -> list[Quantity]:
        """The probability of each class; of two classes, of the second."""
        names = list(enumerate(self.schema.classes[: max(2, outputs)]))
        return [
            Quantity(
                name,
                f"the probability of {name}",
                "probability",
                lambda f, k=k: f.probability[:, k],  # type: ignore[misc]  # bound now
                None,
            )
            for k, name in (names[1:] if len(names) == 2 else names)
        ]

    def facts(self, sharp: FloatArray = NONE) -> list[tuple[str, str]]:
        """The classes by name, and how sharp their probabilities are."""
        found = [("classes", ", ".join(clean(name) for name in self.schema.classes))]
        if len(sharp) and sharp[sharpness.SEEN]:
            s, rows = sharpness.sharpness(sharp), int(sharp[sharpness.SEEN])
            how = "raised to this power" if s > 1.0 else "drawn towards the class shares"
            if abs(s - 1.0) < UNCHANGED_SHARPNESS:
                how = "left as they are"
            said = f"{number(s, 3)}: probabilities are {how}, learned from {rows_of(rows)}"
            found.append(("sharpness", said))
        return found


def _certainty(forecast: Forecast) -> FloatArray:
    p = forecast.probability
    return p.max(axis=1) if p.shape[1] else np.full(len(p), np.nan)


def _trust(score: ClassScore, accuracy: float) -> Group:
    weight, confidence, right = score.reliability()
    filled = weight > 0
    sure = float((confidence[filled] * weight[filled]).sum() / weight.sum())
    return Group(
        "Can the probabilities be trusted?",
        [
            Chart(
                "reliability",
                "Reliability",
                {"weight": weight, "confidence": confidence, "right": right},
                "On the dashed line it is as often right as it is sure; below, over-confident. "
                "Bars: what chance allows.",
                "right by sure %; low: over-confident",
            ),
            Chart(
                "confidence_bars",
                "How sure it was",
                {"weight": weight, "accuracy": accuracy, "confidence": sure},
                "Share of rows by the probability of the most probable class.",
            ),
            Chart(
                "selective",
                "Keeping only the sure ones",
                {"weight": weight, "right": right},
                "Share right among the rows it was at least so sure of, and how many those are.",
            ),
        ],
    )


def _learning(points: Sequence[CurvePoint], values: Values) -> Group:
    accuracy = values["baseline_accuracy"]
    error = None if accuracy is None else 1 - accuracy
    return Group(
        "How it learned",
        [
            learning_chart(points, "loss", "Error rate", error, terminal=False),
            learning_chart(points, "nll", "Log-loss", values["baseline_log_loss"]),
        ],
    )


def _log_probability(probability: FloatArray, label: FloatArray) -> FloatArray:
    known = np.isfinite(label) & (label >= 0) & (label < probability.shape[1])
    index = np.where(known, label, 0.0).astype(np.int64)
    p = probability[np.arange(len(label)), index]
    return np.where(known, np.log(np.maximum(p, 1e-12)), 0.0)
