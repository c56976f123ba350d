"""A task: what a target is, and everything that depends on it.

It chooses the observation model of the network, turns what the network says into a predictive
distribution in the user's units, and owns the figures, the verdict, the columns written and, as
plain data, all that is shown. No module outside this package asks which task it is.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Final, NamedTuple, Protocol, TypeVar

import numpy as np

from kbnn.array_types import FloatArray
from kbnn.core.config import MAX_NOISE_VARIANCE
from kbnn.core.kernel import Prediction
from kbnn.distributions import calibration
from kbnn.distributions.normal_mixture import PARAM_COUNT
from kbnn.distributions.temperature import NO_TEMPERATURE
from kbnn.errors import UsageError
from kbnn.metrics.figures import MetricTable, MetricValues, format_metric_rows
from kbnn.metrics.samples import StreamSummaries
from kbnn.metrics.score import Score
from kbnn.metrics.scorecard import CurvePoint, ScoredRows
from kbnn.metrics.verdicts import MetricTile, PartialDependenceSpec, TargetSection, Verdict
from kbnn.targets.prediction import Forecast
from kbnn.wording import clean_text, format_count, format_number

T = TypeVar("T")


class TargetSchema(Protocol):
    """What a task needs to know of the columns (see kbnn.data.schema.Schema)."""

    @property
    def targets(self) -> list[str]: ...
    @property
    def classes(self) -> list[str]: ...
    @property
    def closed(self) -> bool: ...


class OutputField(NamedTuple):
    """One predicted column."""

    name: str
    text: bool
    values: Callable[[Forecast], Any]  # (n,) float64, or a list of texts


class EffectQuantity(NamedTuple):
    """What the effects of features are changes of, in units that forecasts are in."""

    name: str
    title: str
    unit: str
    values: Callable[[Forecast], FloatArray]  # (n,)
    target: int | None  # the target whose mean it is; None: a probability


class TargetScale(NamedTuple):
    """Center and scale of the targets in the user's units."""

    center: FloatArray
    scale: FloatArray


class ProgressColumn(NamedTuple):
    """One column of the lines that training prints: its head, its width, its cell."""

    head: str
    width: int
    cell: Callable[[CurvePoint, float | None], str]  # of a point and the noise sd


class CalibrationUpdate(NamedTuple):
    """What tails and sharpness of a forecast learn from (see kbnn.distributions.calibration, sharpness)."""

    y: FloatArray | None  # (n, T) as the network learns it
    mixed: bool  # whether the mixture is learned
    tracked: bool  # whether intervals are kept to their promise
    compiled: bool | None = None  # whether the kernel serves, where that is known
    weight: FloatArray | None = None  # how often each row counts, once if not said


FROZEN: Final = CalibrationUpdate(None, False, False)
"""Of a model that learns no more."""


class OutputOptions(NamedTuple):
    """Which predicted columns are asked for."""

    interval: float = 0.9  # the share between lower and upper
    quantiles: tuple[float, ...] = ()
    decompose: bool = False  # both parts of sd
    outlier: bool = False
    open: bool = False  # more classes may still come


class ColdStart(ABC):
    """Who speaks before there is a network, from the rows told so far; each counts once."""

    @abstractmethod
    def predict_then_update(self, y: FloatArray) -> Forecast:
        """What is said of rows with these targets (n, T): of each before it counts."""

    @abstractmethod
    def rows_until_varied(self, y: FloatArray) -> int:
        """How many of these rows it takes until every target has varied; n + 1 if more."""


class TargetType(ABC):
    """One kind of target; an instance knows the names of a model's targets."""

    name: ClassVar[str]
    title: ClassVar[str] = ""
    """What it is called before "of" and the target, if not by its name."""
    observation: ClassVar[str]
    score: ClassVar[type[Score]]
    baseline_name: ClassVar[str]
    """What the best constant is called in tables."""
    baseline_phrase: ClassVar[str]
    """The same in a remark: for .."""
    labels: ClassVar[bool]
    """Whether the target is read as labels, which become class indices."""
    value_description: ClassVar[str] = "any number"
    """What values it can have."""
    paper_deviations: ClassVar[Sequence[str]] = ()
    """In what its labels are not learned as the paper prints it."""
    supports_batched_kernel: ClassVar[bool] = False
    """Whether the kernel learns many models of one such target side by side (kbnn.fleet)."""
    is_default: ClassVar[bool] = False
    """Whether it takes any number: what is believed until something else is shown."""
    requires_margin: ClassVar[bool] = False
    """Whether it must be ahead of the safest by some margin before it is believed."""
    supports_differencing: ClassVar[bool] = False
    """Whether the target can be learned as a change, and so be forecast steps ahead."""
    error_power: ClassVar[int]
    """The power of errors that `errors` are: 2 of squares, 1 of shares."""
    progress_columns: ClassVar[Sequence[ProgressColumn]]
    """The figures of the lines that training prints."""

    def __init__(self, schema: TargetSchema) -> None:
        self.schema = schema
        self.targets: tuple[str, ...] = tuple(schema.targets)
        """The names of the targets; they never change."""
        self.scaled = 0 if self.labels else len(self.targets)
        """Targets that are standardised, all or none."""
        self.numbers = 0 if self.labels else len(self.targets)
        """Targets that are forecast as numbers, all or none."""

    # The columns.

    @classmethod
    def is_classification(cls, numbers: T, labels: T) -> T:
        """Of what is done with numbers and what is done with labels, that which is for it."""
        return numbers

    @classmethod
    def supports_target_count(cls, targets: int) -> bool:
        """Whether so many targets can be learned together."""
        return True

    @classmethod
    def supports_lags(cls, kind: str) -> bool:
        """Whether earlier values of a target in a column of that kind can be inputs."""
        return kind == "number"

    @classmethod
    def uses_differencing(cls, targets: Sequence[str], last: frozenset[str]) -> bool:
        """Whether targets are learned as changes; the last value of the columns `last` is known."""
        return cls.supports_differencing and last.issuperset(targets)

    @classmethod
    def is_series(cls, columns: int) -> bool:
        """Whether a target is a series of its own, with so many columns beside the clock."""
        return cls.supports_differencing and columns == 1

    def first_invalid_row(self, y: FloatArray) -> int:
        """The first row with a target (n, T) that it cannot have; n if there is none."""
        return len(y)

    # The network.

    @abstractmethod
    def count_outputs(self, y: FloatArray, known: int = 0) -> int:
        """Outputs that a network needs for these targets (n, T), `known` or more."""

    @property
    def max_outputs(self) -> int:
        """Outputs that a network has when all that is known of the targets has come."""
        return self.count_outputs(np.zeros((0, len(self.targets))))

    def first_row_without_output(self, y: FloatArray, outputs: int) -> int:
        """The first row whose target a network of so many outputs has no output for; n if none."""
        return len(y)

    def is_valid_output_count(self, outputs: int) -> bool:
        """Whether a network of so many outputs can be one of this task's."""
        return outputs == len(self.targets)

    def choose_covariance(self, outputs: int) -> str:
        """The structure that suits so many outputs."""
        return "group"

    @property
    def has_noise(self) -> bool:
        """Whether the target has an observation noise, given or learned."""
        return False

    @property
    def supports_given_noise(self) -> bool:
        """Whether an observation noise can be given."""
        return self.has_noise

    def given_noise_var(self, noise: str | float, scale: float) -> float | None:
        """The variance of a noise that was given, the target's scale being that; None if not."""
        if not self.supports_given_noise or isinstance(noise, str):
            return None
        ratio = min(float(noise) / scale, MAX_NOISE_VARIANCE)
        return min(ratio * ratio, MAX_NOISE_VARIANCE)

    def noise_sd(
        self, learned: FloatArray, given: float | None, scale: Sequence[float]
    ) -> list[float]:
        """The level of each target's noise in its units; empty where there is none.

        `learned` (T, 2) is what a network has learned of it, (0, 2) where it was given.
        """
        if not self.has_noise:
            return []
        level = (
            np.sqrt(learned[:, 1] / learned[:, 0])
            if len(learned)
            else np.full(len(scale), np.sqrt(given or 0.0))
        )
        return [float(sd) for sd in level * np.array(scale)]

    def displayed_noise(
        self,
        learned: FloatArray,
        given: float | None,
        scaled: TargetScale,
        calibration_state: FloatArray,
    ) -> list[float]:
        """The quantity of the noise that training prints, as `lines` names it, of each target."""
        return self.noise_sd(learned, given, scaled.scale.tolist())

    def describe_noise(self, noise: str | float, levels: dict[str, float]) -> list[tuple[str, str]]:
        """How it is learned and what its levels are, label and value."""
        if not self.has_noise:
            return []
        said = {"auto": "learned, depends on the input", "constant": "learned, constant"}
        level = ", ".join(
            f"{format_number(sd)} ({clean_text(name)})" if len(levels) > 1 else format_number(sd)
            for name, sd in levels.items()
        )
        how = said.get(str(noise), "as given")
        return [("noise", how + (f"; typical sd {level}" if level else ""))]

    def uses_scale_calibration(self, mixed: bool) -> bool:
        """Whether the width of what is stated is learned from errors in the network's scale."""
        return mixed and self.scaled > 0

    def standardize_targets(self, y: FloatArray, standard: FloatArray) -> FloatArray:
        """What a network learns of targets (n, T), by those that are standardised."""
        return standard if self.scaled else y

    def initial_output_mean(self, y: FloatArray) -> FloatArray | None:
        """Where the outputs of a network begin that these targets (n, T) call for; None: at 0."""
        return None

    def displayed_scale(self, scaled: TargetScale, calibration_state: FloatArray) -> TargetScale:
        """Center and scale of what the network learns, in the units of the targets.

        Through a link that is the value at the center, and half the distance between the values
        one scale below and above it.
        """
        low, center, high = (
            self.inverse_link((scaled.center + step * scaled.scale)[None], calibration_state)[0]
            for step in (-1.0, 0.0, 1.0)
        )
        return TargetScale(center, 0.5 * (high - low))

    def link(self, y: FloatArray, calibration_state: FloatArray) -> FloatArray:
        """Targets (n, T) as the network learns them, before they are scaled: here as they are.

        `known` of the tails says in which unit.
        """
        return y

    def inverse_link(self, y: FloatArray, calibration_state: FloatArray) -> FloatArray:
        """The inverse of `linked`."""
        return y

    # Forecasts.

    @abstractmethod
    def make_cold_start(self) -> ColdStart:
        """What is said before there is a network."""

    def init_calibration(self, mixed: bool, y: FloatArray | None = None) -> FloatArray:
        """What is known of the tails of forecasts before the first row, but for the targets (n, T)
        of the rows held; classes have none.
        """
        return calibration.init_calibration(0, mixed)

    @abstractmethod
    def build_forecast(
        self,
        prediction: Prediction,
        scaled: TargetScale,
        robust: bool,
        calibration_state: FloatArray,
        update: CalibrationUpdate | None = None,
    ) -> Forecast:
        """What the network said, in the user's units; `known` of the tails, in place, learns."""

    @classmethod
    def init_temperature(cls, mixed: bool, outputs: int, y: FloatArray | None = None) -> FloatArray:
        """What is known of the sharpness of forecasts before the first row, but for the targets
        (n, T) of the rows held; numbers have none, and not `mixed` nothing has.
        """
        return NO_TEMPERATURE

    def apply_temperature(
        self,
        forecast: Forecast,
        temperature_state: FloatArray,
        update: CalibrationUpdate | None = None,
    ) -> Forecast:
        """The forecast as sharp as it may be; what is known of that, in place, learns."""
        return forecast

    @abstractmethod
    def log_likelihood(self, prediction: Prediction, y: FloatArray) -> FloatArray:
        """log p of each row's label (n, T) in the network's units; 0 where there is none."""

    @abstractmethod
    def log_density(
        self, forecast: Forecast, y: FloatArray, zero_bin_width: float = 1.0
    ) -> FloatArray:
        """log p of each row's target (n, T) in the user's units; 0 where there is none.

        For `finest` see kbnn.distributions.dispatch.
        """

    @abstractmethod
    def standardized_residuals(self, y: FloatArray, forecast: Forecast) -> FloatArray:
        """How far targets (n, T) are from what was said, in standard deviations of it."""

    @property
    def supports_paths(self) -> bool:
        """Whether steps ahead have closed-form error bars: of one target of any size."""
        return self.supports_differencing and len(self.targets) == 1

    def check_horizon_support(self) -> None:
        """Refuse to forecast steps ahead what cannot be."""
        if not self.supports_paths:
            raise UsageError(
                "--horizon: steps ahead are forecast of one target of --task regression, "
                f"and this is a model of {self.name}"
            )

    def zero_bin_width(self, calibration_state: FloatArray) -> float:
        """In which steps a 0 is told from other values, by what is known of the tails."""
        return 1.0

    # Judgement.

    @abstractmethod
    def score_forecasts(
        self, y: FloatArray, forecast: Forecast, weight: FloatArray | None
    ) -> Sequence[ScoredRows]:
        """Each target's forecasts beside what came true."""

    @abstractmethod
    def prediction_columns(self, forecast: Forecast, scored: Sequence[ScoredRows]) -> FloatArray:
        """The forecast, beside how it turned out, as columns (n, F), for rows that are kept."""

    @abstractmethod
    def errors(self, y: FloatArray, columns: FloatArray) -> FloatArray:
        """Of each kept row (n,), by its targets (n, T) and what `said` of it (n, F)."""

    @abstractmethod
    def format_error(self, mean: float) -> str:
        """The mean of such errors in words."""

    @abstractmethod
    def build_verdict(self, score: Score) -> Verdict:
        """The figures in plain words."""

    def build_table(self, values: MetricValues, target: str, *, brief: bool = False) -> MetricTable:
        """The figures of one target beside those of the best constant."""
        return MetricTable(
            self.baseline_name,
            format_metric_rows(self.score.figures_listed, values, target, brief=brief),
        )

    def build_tiles(self, values: MetricValues, target: str, unreadable: int) -> list[MetricTile]:
        """The figures as headlines."""
        left = [
            f"{format_count(number)} {what}"
            for number, what in (
                (values["skipped"], "without a target"),
                (unreadable, "unreadable"),
            )
            if number
        ]
        table = self.build_table(values, target)
        return [
            MetricTile("Rows", format_count(values["rows"]), ", ".join(left) or "all scored"),
            *(
                MetricTile(
                    row.label[:1].upper() + row.label[1:],
                    row.value,
                    f"{row.constant} {self.baseline_phrase}" if row.constant else row.remark,
                )
                for row in table.rows
            ),
        ]

    @abstractmethod
    def build_section(
        self,
        score: Score,
        summaries: StreamSummaries,
        target: int,
        points: Sequence[CurvePoint],
        unreadable: int = 0,
    ) -> TargetSection:
        """Everything to show of one target; `points` are empty where nothing was learned."""

    @abstractmethod
    def format_row(self, y: FloatArray, columns: FloatArray, target: int) -> tuple[str, str]:
        """What was true of a kept row and what was said of it, as text."""

    @abstractmethod
    def partial_dependence_spec(
        self, score: Score, summaries: StreamSummaries, target: int
    ) -> PartialDependenceSpec:
        """The target as a function of the inputs."""

    @abstractmethod
    def format_headline(self, values: MetricValues) -> str:
        """The figure that matters most, for a progress bar."""

    # Columns and words.

    @abstractmethod
    def output_fields(self, wanted: OutputOptions) -> list[OutputField]:
        """The predicted columns."""

    @abstractmethod
    def single_prediction(self, forecast: Forecast) -> Any:
        """The forecast of the first row: a `Number`, a dict of them by target, or a `Label`."""

    @abstractmethod
    def numeric_values(self, values: FloatArray, what: str = "mean") -> FloatArray:
        """What is told of numbers (n, T), (n,) of a single one; UsageError of classes."""

    @abstractmethod
    def class_probabilities(self, forecast: Forecast) -> FloatArray:
        """(n, classes) in the order of `class_names`; UsageError of numbers."""

    @property
    def class_names(self) -> list[str]:
        """The classes by name; numbers have none."""
        return []

    def interval_mode(self, mode: str) -> str | None:
        """How intervals are kept, `tracked` or `stated`; None where there are none."""
        return mode

    @abstractmethod
    def decode_targets(self, y: FloatArray) -> FloatArray | list[str | None]:
        """Targets (n,) as a reader knows them."""

    @abstractmethod
    def effect_quantities(self, outputs: int) -> list[EffectQuantity]:
        """What effects of features are shown on, of a network with so many outputs."""

    @property
    def description(self) -> str:
        """What it is, in words."""
        return (
            f"{self.title or self.name} of {', '.join(clean_text(name) for name in self.targets)}"
        )

    def target_details(
        self, temperature_state: FloatArray = NO_TEMPERATURE
    ) -> list[tuple[str, str]]:
        """What else describes the targets and what is said of them, label and value."""
        return []


def make_empty_forecast(rows: int, targets: int) -> Forecast:
    """A forecast that says nothing."""
    none = np.zeros((rows, targets))
    return Forecast(
        none,
        none,
        none,
        none,
        np.zeros((rows, 0)),
        np.full(rows, np.nan),
        np.zeros(rows, np.int64),
        np.zeros((rows, targets, PARAM_COUNT)),
    )
