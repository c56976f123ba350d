"""Class targets: the probability of every class, where classes may appear while learning.

`Classes` uses one output per class. `SigmoidClasses` follows the paper for two classes: one output,
a sigmoid on it, and a Gaussian label 0 or 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from kbnn.array_types import FloatArray
from kbnn.core.kernel import Prediction
from kbnn.distributions import temperature
from kbnn.distributions.temperature import NO_TEMPERATURE
from kbnn.errors import DataError, UsageError
from kbnn.metrics.class_metrics import ClassScore, ScoredClassBatch
from kbnn.metrics.figures import MetricValues
from kbnn.metrics.samples import StreamSummaries
from kbnn.metrics.score import Score
from kbnn.metrics.scorecard import CurvePoint, ScoredRows
from kbnn.metrics.verdicts import (
    ChartGroup,
    ChartSpec,
    ConfusionMatrix,
    PartialDependenceSpec,
    PredictionCurve,
    TargetSection,
    Verdict,
    judge_class_score,
    make_learning_chart,
)
from kbnn.targets.base import (
    CalibrationUpdate,
    ColdStart,
    EffectQuantity,
    OutputField,
    OutputOptions,
    ProgressColumn,
    T,
    TargetScale,
    TargetType,
    make_empty_forecast,
)
from kbnn.targets.cold_start import ClassColdStart
from kbnn.targets.prediction import IN_WARMUP, Forecast, Label
from kbnn.wording import clean_text, format_number, format_percent, format_rows

MAX_GROUPED_CLASSES = 4
"""Up to this many classes, covariance blocks span groups; their cost grows with the outputs."""
UNCHANGED_TEMPERATURE_MARGIN = 0.05
"""An inverse temperature this close to 1 leaves probabilities almost unchanged."""


class Classes(TargetType):
    """One of several labels; the target is the index of the class."""

    name = "classification"
    observation = "categorical"
    score = ClassScore
    baseline_name = "class shares"
    baseline_phrase = "for the class shares"
    labels = True
    paper_deviations: ClassVar[Sequence[str]] = ("class labels by probit",)
    error_power = 1
    progress_columns = (
        ProgressColumn("errors", 10, lambda point, noise: format_percent(point.loss)),
        ProgressColumn("since last", 12, lambda point, noise: format_percent(point.since_loss)),
        ProgressColumn("log-loss", 10, lambda point, noise: format_number(point.nll)),
        ProgressColumn("since last", 12, lambda point, noise: format_number(point.since_nll)),
    )

    @classmethod
    def is_classification(cls, numbers: T, labels: T) -> T:
        """Return `labels`."""
        return labels

    @classmethod
    def supports_target_count(cls, targets: int) -> bool:
        """Return whether there is one target."""
        return targets == 1

    @classmethod
    def supports_lags(cls, kind: str) -> bool:
        """Return False: earlier classes cannot be inputs."""
        return False

    def count_outputs(self, y: FloatArray, known: int = 0) -> int:
        """Return one output per class."""
        return self.count_classes(y, known)

    def count_classes(self, y: FloatArray, known: int = 0) -> int:
        """Return the number of classes seen, or of all classes if they are closed; at least 2."""
        labels = y[np.isfinite(y)]
        complete = len(self.schema.classes) if self.schema.closed else 0
        return max(2, known, complete, int(np.max(labels)) + 1 if len(labels) else 0)

    @property
    def max_outputs(self) -> int:
        """One output per named class, at least 2."""
        return max(2, len(self.schema.classes))

    def first_row_without_output(self, y: FloatArray, outputs: int) -> int:
        """Return the first row with a new label; n if none."""
        new = y[:, 0] >= outputs
        return int(np.argmax(new)) if new.any() else len(y)

    def is_valid_output_count(self, outputs: int) -> bool:
        """Return whether there are 2 outputs, or more and each has a named class."""
        return 2 <= outputs <= max(2, len(self.schema.classes))

    def choose_covariance(self, outputs: int) -> str:
        """Choose groups for few classes, neurons for many."""
        return "group" if outputs <= MAX_GROUPED_CLASSES else "neuron"

    def make_cold_start(self) -> ColdStart:
        """Predict the class frequencies of the rows before."""
        return ClassColdStart(self.count_classes)

    def build_forecast(
        self,
        prediction: Prediction,
        scaled: TargetScale,
        robust: bool,
        calibration_state: FloatArray,
        update: CalibrationUpdate | None = None,
    ) -> Forecast:
        """Return the probabilities of the network."""
        empty = make_empty_forecast(len(prediction.status), 0)
        return empty._replace(
            probability=prediction.probability, status=prediction.status.astype(np.int64)
        )

    @classmethod
    def init_temperature(cls, mixed: bool, outputs: int, y: FloatArray | None = None) -> FloatArray:
        """Initialise the state with the class counts of the warm-up rows."""
        held = np.zeros(0) if y is None else y[:, 0]
        return temperature.init_temperature(held, max(2, outputs)) if mixed else NO_TEMPERATURE

    def apply_temperature(
        self,
        forecast: Forecast,
        temperature_state: FloatArray,
        update: CalibrationUpdate | None = None,
    ) -> Forecast:
        """Apply the temperature learned from the labels so far."""
        if not len(temperature_state):
            return forecast
        p = np.ascontiguousarray(forecast.probability)
        if update is None or update.y is None:
            return forecast._replace(
                probability=temperature.apply_temperature(temperature_state, p)
            )
        label, weight = np.ascontiguousarray(update.y[:, 0]), update.weight
        weight = None if weight is None else np.ascontiguousarray(weight)
        p = temperature.apply_temperature(temperature_state, p, label, weight, update.compiled)
        return forecast._replace(probability=p)

    def log_likelihood(self, prediction: Prediction, y: FloatArray) -> FloatArray:
        """Return the logarithm of the label's probability."""
        return _log_probability(prediction.probability, y[:, 0])

    def log_density(
        self, forecast: Forecast, y: FloatArray, zero_bin_width: float = 1.0
    ) -> FloatArray:
        """Return the logarithm of the label's probability."""
        return _log_probability(forecast.probability, y[:, 0])

    def standardized_residuals(self, y: FloatArray, forecast: Forecast) -> FloatArray:
        """Return the labels: classes have no distance."""
        return y

    def score_forecasts(
        self, y: FloatArray, forecast: Forecast, weight: FloatArray | None
    ) -> list[ScoredClassBatch]:
        """Pair the labels with their probabilities."""
        return [ScoredClassBatch(y[:, 0], forecast.probability, weight)]

    def prediction_columns(self, forecast: Forecast, scored: Sequence[ScoredRows]) -> FloatArray:
        """Return the probabilities."""
        return forecast.probability

    def build_verdict(self, score: Score) -> Verdict:
        """Judge whether probabilities are useful, over-confident or under-confident."""
        assert isinstance(score, ClassScore)
        return judge_class_score(score)

    def format_headline(self, values: MetricValues) -> str:
        """Format the accuracy."""
        return f"accuracy {format_percent(values['accuracy'])}"

    def class_name(self, index: int) -> str:
        """Return the name of a class."""
        names = self.schema.classes
        return names[index] if index < len(names) else str(index)

    def build_section(
        self,
        score: Score,
        summaries: StreamSummaries,
        target: int,
        points: Sequence[CurvePoint],
        unreadable: int = 0,
    ) -> TargetSection:
        """Build the charts of reliability, confusion and learning, with verdict and metrics."""
        assert isinstance(score, ClassScore)
        values, name = score.metric_values(), self.targets[target]
        groups: list[ChartGroup] = []
        crossed = None
        if score.rows:
            groups.append(_reliability_charts(score, values["accuracy"]))
            crossed = ConfusionMatrix(
                "Confusion: true class down, predicted across",
                [self.class_name(k) for k in range(len(score.confusion))],
                score.confusion.tolist(),
            )
        if len(points) > 1:
            groups.append(_class_learning_charts(points, values))
        return TargetSection(
            name,
            self.build_verdict(score),
            self.build_table(values, name),
            self.build_tiles(values, name, unreadable),
            groups,
            crossed,
        )

    def format_row(self, y: FloatArray, columns: FloatArray, target: int) -> tuple[str, str]:
        """Format the label, and the most probable class."""
        top = int(np.argmax(columns))
        return self.class_name(int(y[0])), f"{self.class_name(top)} ({100 * columns[top]:.1f} %)"

    def partial_dependence_spec(
        self, score: Score, summaries: StreamSummaries, target: int
    ) -> PartialDependenceSpec:
        """Describe the probability of one class: the second of two, otherwise the most common."""
        assert isinstance(score, ClassScore)
        shown = min(1, max(len(self.schema.classes) - 1, 0))
        if len(self.schema.classes) > 2 and score.confusion.size:
            shown = int(np.argmax(score.confusion.sum(axis=1)))

        def predict_curve(forecast: Forecast) -> PredictionCurve:
            p = forecast.probability[:, shown]
            return PredictionCurve(p, np.sqrt(p * (1 - p)))

        name = clean_text(self.class_name(shown))
        weight, confidence, right = score.reliability_curve()
        reliability = {"weight": weight, "confidence": confidence, "right": right}
        return PartialDependenceSpec(
            name=f"probability of {name}",
            sd_name="standard deviation of the label",
            effect=f"the probability of {self.class_name(shown)}",
            values=predict_curve,
            truth=lambda y: (y == shown).astype(np.float64),
            marks=True,
            chart=ChartSpec("reliability", name, reliability),
        )

    def output_fields(self, wanted: OutputOptions) -> list[OutputField]:
        """List the label and the probability of each class.

        While classes may still appear, only the probability of the predicted label is listed.
        """
        for asked, option in ((wanted.quantiles, "--quantiles"), (wanted.decompose, "--decompose")):
            if asked:
                raise UsageError(f"{option} is for numbers, and the target holds classes")
        made = [OutputField("label", True, self._predicted_labels)]
        if wanted.open and not self.schema.closed:
            return [*made, OutputField("probability", False, _max_probability)]
        return made + [
            OutputField(f"p_{name}", False, lambda f, k=k: f.probability[:, k])  # type: ignore[misc]  # bound now
            for k, name in enumerate(self.schema.classes)
        ]

    def _predicted_labels(self, forecast: Forecast) -> list[str | None]:
        p = forecast.probability
        if not p.shape[1]:
            return [None] * len(p)
        # Before any class is known all are equally probable, and naming the first class would
        # reveal the row's own label.
        even = (forecast.status & IN_WARMUP > 0) & (p.max(axis=1) * np.sum(p > 0.0, axis=1) <= 1.0)
        known = np.atleast_1d(np.isfinite(p).all(axis=1) & ~even).tolist()
        best = p.argmax(axis=1).tolist()
        return [self.class_name(k) if sure else None for k, sure in zip(best, known, strict=True)]

    def single_prediction(self, forecast: Forecast) -> Label:
        """Return the label, and the probability of each class."""
        known = forecast.probability[0].tolist()
        names = enumerate(self.class_names)
        named = {name: known[k] if k < len(known) else 0.0 for k, name in names}
        return Label(max(named, key=named.__getitem__) if named else None, named)

    def numeric_values(self, values: FloatArray, what: str = "mean") -> FloatArray:
        """Raise UsageError: classes have no numeric values."""
        raise UsageError(f"classes have no {what}: see label and probability")

    def class_probabilities(self, forecast: Forecast) -> FloatArray:
        """Return probabilities of all classes; 0 for classes that appeared after the forecast."""
        known, classes = forecast.probability, len(self.class_names)
        missing = max(classes - known.shape[1], 0)
        return np.pad(known, ((0, 0), (0, missing)))[:, :classes]

    @property
    def class_names(self) -> list[str]:
        """Names of all classes so far."""
        return list(self.schema.classes)

    def interval_mode(self, mode: str) -> None:
        """Return None: classes have no intervals."""

    def errors(self, y: FloatArray, columns: FloatArray) -> FloatArray:
        """Return 1 where the most probable class was wrong."""
        wrong = np.argmax(columns, axis=1) != y[:, 0]
        return np.where(np.isfinite(y[:, 0]), wrong.astype(np.float64), np.nan)

    def format_error(self, mean: float) -> str:
        """Format the accuracy."""
        return f"{format_percent(1.0 - mean)} right"

    def decode_targets(self, y: FloatArray) -> list[str | None]:
        """Return the labels."""
        return [None if np.isnan(value) else self.class_name(int(value)) for value in y]

    def effect_quantities(self, outputs: int) -> list[EffectQuantity]:
        """List the probability of each class; for two classes, that of the second."""
        names = list(enumerate(self.schema.classes[: max(2, outputs)]))
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

    def target_details(
        self, temperature_state: FloatArray = NO_TEMPERATURE
    ) -> list[tuple[str, str]]:
        """Return the names of the classes, and the temperature of their probabilities."""
        found = [("classes", ", ".join(clean_text(name) for name in self.schema.classes))]
        if len(temperature_state) and temperature_state[temperature.EVIDENCE_ROWS]:
            s, rows = (
                temperature.inverse_temperature(temperature_state),
                int(temperature_state[temperature.EVIDENCE_ROWS]),
            )
            how = "raised to this power" if s > 1.0 else "drawn towards the class shares"
            if abs(s - 1.0) < UNCHANGED_TEMPERATURE_MARGIN:
                how = "left as they are"
            text = (
                f"{format_number(s, 3)}: probabilities are {how}, learned from {format_rows(rows)}"
            )
            found.append(("sharpness", text))
        return found


def _max_probability(forecast: Forecast) -> FloatArray:
    p = forecast.probability
    return p.max(axis=1) if p.shape[1] else np.full(len(p), np.nan)


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


def _log_probability(probability: FloatArray, label: FloatArray) -> FloatArray:
    known = np.isfinite(label) & (label >= 0) & (label < probability.shape[1])
    index = np.where(known, label, 0.0).astype(np.int64)
    p = probability[np.arange(len(label)), index]
    return np.where(known, np.log(np.maximum(p, 1e-12)), 0.0)


class SigmoidClasses(Classes):
    """Two classes; the second has probability E sigmoid(a)."""

    observation = "sigmoid"
    paper_deviations = ()

    @property
    def supports_given_noise(self) -> bool:
        """True: the noise of the label; 0 if none is given."""
        return True

    def count_outputs(self, y: FloatArray, known: int = 0) -> int:
        """Return 1."""
        return 1

    @property
    def max_outputs(self) -> int:
        """One output."""
        return 1

    def first_row_without_output(self, y: FloatArray, outputs: int) -> int:
        """Return the first row of a third class; raise DataError if that is the first row."""
        third = np.flatnonzero(y[:, 0] >= 2)
        if len(third) and third[0] == 0:
            raise DataError(
                f"target '{self.targets[0]}' has a third class, '{self.class_name(int(y[0, 0]))}': "
                "--link sigmoid supports two (use --link probit)"
            )
        return int(third[0]) if len(third) else len(y)

    def is_valid_output_count(self, outputs: int) -> bool:
        """Return whether there is one output."""
        return outputs == 1
