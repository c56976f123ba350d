"""Define the interface of target types: likelihood, predictive distribution and presentation.

A target type chooses the observation model of the network, turns network outputs into a predictive
distribution in the user's units, and provides metrics, verdict, output columns and chart data. No
module outside this package depends on a particular target type.
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
    """What a target type needs to know of the columns (see kbnn.data.schema.Schema)."""

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
    """A quantity whose changes are shown as effects of features, in the units of forecasts."""

    name: str
    title: str
    unit: str
    values: Callable[[Forecast], FloatArray]  # (n,)
    target: int | None  # index of the target if it is a mean; None: a probability


class TargetScale(NamedTuple):
    """Center and scale of the targets in the user's units."""

    center: FloatArray
    scale: FloatArray


class ProgressColumn(NamedTuple):
    """One column of the progress lines of training: head, width and cell."""

    head: str
    width: int
    cell: Callable[[CurvePoint, float | None], str]  # from a point and the noise sd


class CalibrationUpdate(NamedTuple):
    """The labels that calibration and temperature learn from.

    See kbnn.distributions.calibration and kbnn.distributions.temperature.
    """

    y: FloatArray | None  # (n, T) as the network learns it
    mixed: bool  # whether the outlier mixture is learned
    tracked: bool  # whether intervals are calibrated online
    compiled: bool | None = None  # whether the compiled kernel is used; None: if available
    weight: FloatArray | None = None  # weight of each row; None: 1


FROZEN: Final = CalibrationUpdate(None, False, False)
"""The update of a model that no longer learns."""


class OutputOptions(NamedTuple):
    """Which predicted columns are requested."""

    interval: float = 0.9  # probability between lower and upper
    quantiles: tuple[float, ...] = ()
    decompose: bool = False  # both parts of sd
    outlier: bool = False
    open: bool = False  # more classes may still appear


class ColdStart(ABC):
    """Cold-start predictor: used until the scaler has enough rows to initialise the network."""

    @abstractmethod
    def predict_then_update(self, y: FloatArray) -> Forecast:
        """Predict each row of these targets (n, T) before it is learned from."""

    @abstractmethod
    def rows_until_varied(self, y: FloatArray) -> int:
        """Return how many of these rows are needed until every target has varied; n + 1 if more."""


class TargetType(ABC):
    """One target type; an instance knows the names of a model's targets."""

    name: ClassVar[str]
    title: ClassVar[str] = ""
    """Name shown before "of" and the target; the default is `name`."""
    observation: ClassVar[str]
    score: ClassVar[type[Score]]
    baseline_name: ClassVar[str]
    """Name of the best constant in tables."""
    baseline_phrase: ClassVar[str]
    """Name of the best constant in a remark: for ..."""
    labels: ClassVar[bool]
    """Whether the target is read as labels, which become class indices."""
    value_description: ClassVar[str] = "any number"
    """The values that it allows, in words."""
    paper_deviations: ClassVar[Sequence[str]] = ()
    """In which respects its labels are not learned as in the paper."""
    supports_batched_kernel: ClassVar[bool] = False
    """Whether the kernel learns many models of one such target at once (kbnn.fleet)."""
    is_default: ClassVar[bool] = False
    """Whether it allows any number and is assumed until the data show another type."""
    requires_margin: ClassVar[bool] = False
    """Whether it must lead the default type by a margin of evidence."""
    supports_differencing: ClassVar[bool] = False
    """Whether the target can be learned as a difference, and so be forecast steps ahead."""
    error_power: ClassVar[int]
    """The power of the values of `errors`: 2 for squared errors, 1 for error rates."""
    progress_columns: ClassVar[Sequence[ProgressColumn]]
    """The columns of the progress lines that training prints."""

    def __init__(self, schema: TargetSchema) -> None:
        self.schema = schema
        self.targets: tuple[str, ...] = tuple(schema.targets)
        """Names of the targets; they never change."""
        self.scaled = 0 if self.labels else len(self.targets)
        """Number of targets that are standardised: all or none."""
        self.numbers = 0 if self.labels else len(self.targets)
        """Number of targets that are forecast as numbers: all or none."""

    # Columns.

    @classmethod
    def is_classification(cls, numbers: T, labels: T) -> T:
        """Return `labels` for class targets and `numbers` for numeric targets."""
        return numbers

    @classmethod
    def supports_target_count(cls, targets: int) -> bool:
        """Return whether this number of targets can be learned together."""
        return True

    @classmethod
    def supports_lags(cls, kind: str) -> bool:
        """Return whether earlier values of a target in a column of this type can be inputs."""
        return kind == "number"

    @classmethod
    def uses_differencing(cls, targets: Sequence[str], last: frozenset[str]) -> bool:
        """Return whether targets are learned as differences.

        `last` holds the columns whose last value is known.
        """
        return cls.supports_differencing and last.issuperset(targets)

    @classmethod
    def is_series(cls, columns: int) -> bool:
        """Return whether a target is a series of its own, given the number of columns.

        The time column is not counted.
        """
        return cls.supports_differencing and columns == 1

    def first_invalid_row(self, y: FloatArray) -> int:
        """Return the first row with a target (n, T) that the type does not allow; n if none."""
        return len(y)

    # Network.

    @abstractmethod
    def count_outputs(self, y: FloatArray, known: int = 0) -> int:
        """Return the outputs that a network needs for targets (n, T), at least `known`."""

    @property
    def max_outputs(self) -> int:
        """Number of outputs when everything known of the targets has been seen."""
        return self.count_outputs(np.zeros((0, len(self.targets))))

    def first_row_without_output(self, y: FloatArray, outputs: int) -> int:
        """Return the first row whose target has no output in the network; n if none."""
        return len(y)

    def is_valid_output_count(self, outputs: int) -> bool:
        """Return whether a network of this type can have this number of outputs."""
        return outputs == len(self.targets)

    def choose_covariance(self, outputs: int) -> str:
        """Choose the covariance structure for this number of outputs."""
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
        """Return the variance of a given noise in standardised units; None if none was given.

        `scale` is the scale of the target.
        """
        if not self.supports_given_noise or isinstance(noise, str):
            return None
        ratio = min(float(noise) / scale, MAX_NOISE_VARIANCE)
        return min(ratio * ratio, MAX_NOISE_VARIANCE)

    def noise_sd(
        self, learned: FloatArray, given: float | None, scale: Sequence[float]
    ) -> list[float]:
        """Return the noise sd of each target in its units; empty if there is none.

        `learned` (T, 2) is the noise state of the network, (0, 2) if the noise was given.
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
        """Return the noise of each target, as in the last of `progress_columns`."""
        return self.noise_sd(learned, given, scaled.scale.tolist())

    def describe_noise(self, noise: str | float, levels: dict[str, float]) -> list[tuple[str, str]]:
        """Describe how the noise is learned and its levels, as pairs of label and value."""
        if not self.has_noise:
            return []
        modes = {"auto": "learned, depends on the input", "constant": "learned, constant"}
        level = ", ".join(
            f"{format_number(sd)} ({clean_text(name)})" if len(levels) > 1 else format_number(sd)
            for name, sd in levels.items()
        )
        how = modes.get(str(noise), "as given")
        return [("noise", how + (f"; typical sd {level}" if level else ""))]

    def uses_scale_calibration(self, mixed: bool) -> bool:
        """Return whether the scale of the predictive distribution is calibrated."""
        return mixed and self.scaled > 0

    def standardize_targets(self, y: FloatArray, standard: FloatArray) -> FloatArray:
        """Return what a network learns for targets (n, T): `standard` if they are scaled."""
        return standard if self.scaled else y

    def initial_output_mean(self, y: FloatArray) -> FloatArray | None:
        """Return the initial mean of the outputs, from targets (n, T); None: 0."""
        return None

    def displayed_scale(self, scaled: TargetScale, calibration_state: FloatArray) -> TargetScale:
        """Return center and scale of what the network learns, in the units of the targets.

        Through a link that is the value at the center, and half the distance between the values one
        scale below and above it.
        """
        low, center, high = (
            self.inverse_link((scaled.center + step * scaled.scale)[None], calibration_state)[0]
            for step in (-1.0, 0.0, 1.0)
        )
        return TargetScale(center, 0.5 * (high - low))

    def link(self, y: FloatArray, calibration_state: FloatArray) -> FloatArray:
        """Map targets (n, T) to the scale on which the network learns, before standardisation.

        The default is the identity. `calibration_state` holds the unit of the link.
        """
        return y

    def inverse_link(self, y: FloatArray, calibration_state: FloatArray) -> FloatArray:
        """Invert `link`."""
        return y

    # Forecasts.

    @abstractmethod
    def make_cold_start(self) -> ColdStart:
        """Make the predictor used before there is a network."""

    def init_calibration(self, mixed: bool, y: FloatArray | None = None) -> FloatArray:
        """Initialise the calibration state; `y` (n, T) are the targets of the warm-up rows.

        Classes have none.
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
        """Turn network outputs into forecasts in the user's units.

        With an `update`, `calibration_state` is updated in place.
        """

    @classmethod
    def init_temperature(cls, mixed: bool, outputs: int, y: FloatArray | None = None) -> FloatArray:
        """Initialise the temperature state; `y` (n, T) are the targets of the warm-up rows.

        Numbers have none, and without `mixed` no target type has one.
        """
        return NO_TEMPERATURE

    def apply_temperature(
        self,
        forecast: Forecast,
        temperature_state: FloatArray,
        update: CalibrationUpdate | None = None,
    ) -> Forecast:
        """Apply the temperature to a forecast; with an `update`, the state is updated in place."""
        return forecast

    @abstractmethod
    def log_likelihood(self, prediction: Prediction, y: FloatArray) -> FloatArray:
        """Return log p of each row's label (n, T) in the network's units; 0 where it is missing."""

    @abstractmethod
    def log_density(
        self, forecast: Forecast, y: FloatArray, zero_bin_width: float = 1.0
    ) -> FloatArray:
        """Return log p of each row's target (n, T) in the user's units; 0 where it is missing.

        For `zero_bin_width` see `finest` in kbnn.distributions.dispatch.
        """

    @abstractmethod
    def standardized_residuals(self, y: FloatArray, forecast: Forecast) -> FloatArray:
        """Return the distance of targets (n, T) from their forecasts, in standard deviations."""

    @property
    def supports_paths(self) -> bool:
        """Whether forecasts several steps ahead have closed-form error bars: one real target."""
        return self.supports_differencing and len(self.targets) == 1

    def check_horizon_support(self) -> None:
        """Raise UsageError if the target cannot be forecast several steps ahead."""
        if not self.supports_paths:
            raise UsageError(
                "--horizon: several steps ahead need one target of --task regression, "
                f"and this model is of --task {self.name}"
            )

    def zero_bin_width(self, calibration_state: FloatArray) -> float:
        """Return the bin width at 0, from the calibration state."""
        return 1.0

    # Metrics and charts.

    @abstractmethod
    def score_forecasts(
        self, y: FloatArray, forecast: Forecast, weight: FloatArray | None
    ) -> Sequence[ScoredRows]:
        """Pair each target's forecasts with the true values."""

    @abstractmethod
    def prediction_columns(self, forecast: Forecast, scored: Sequence[ScoredRows]) -> FloatArray:
        """Return the forecast as columns (n, F) for the sampled rows."""

    @abstractmethod
    def errors(self, y: FloatArray, columns: FloatArray) -> FloatArray:
        """Return the error of each sampled row (n,).

        `y` are targets (n, T) and `columns` the result of `prediction_columns` (n, F).
        """

    @abstractmethod
    def format_error(self, mean: float) -> str:
        """Format the mean of `errors`."""

    @abstractmethod
    def build_verdict(self, score: Score) -> Verdict:
        """Turn the metrics into a verdict in plain words."""

    def build_table(self, values: MetricValues, target: str, *, brief: bool = False) -> MetricTable:
        """Build the table of one target's metrics beside those of the best constant."""
        return MetricTable(
            self.baseline_name,
            format_metric_rows(self.score.figures_listed, values, target, brief=brief),
        )

    def build_tiles(self, values: MetricValues, target: str, unreadable: int) -> list[MetricTile]:
        """Build the headline tiles of one target's metrics."""
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
        """Build everything shown of one target; `points` are empty if nothing was learned."""

    @abstractmethod
    def format_row(self, y: FloatArray, columns: FloatArray, target: int) -> tuple[str, str]:
        """Format the true value and the prediction of a sampled row."""

    @abstractmethod
    def partial_dependence_spec(
        self, score: Score, summaries: StreamSummaries, target: int
    ) -> PartialDependenceSpec:
        """Describe how the target is drawn as a function of the inputs."""

    @abstractmethod
    def format_headline(self, values: MetricValues) -> str:
        """Format the most important metric, for a progress bar."""

    # Output columns and texts.

    @abstractmethod
    def output_fields(self, wanted: OutputOptions) -> list[OutputField]:
        """List the predicted columns."""

    @abstractmethod
    def single_prediction(self, forecast: Forecast) -> Any:
        """Return the forecast of the first row: a `Number`, a dict by target, or a `Label`."""

    @abstractmethod
    def numeric_values(self, values: FloatArray, what: str = "mean") -> FloatArray:
        """Return numeric values (n, T), or (n,) for a single target; UsageError for classes."""

    @abstractmethod
    def class_probabilities(self, forecast: Forecast) -> FloatArray:
        """Return (n, classes) in the order of `class_names`; UsageError for numbers."""

    @property
    def class_names(self) -> list[str]:
        """Names of the classes; empty for numbers."""
        return []

    def interval_mode(self, mode: str) -> str | None:
        """Return how intervals are made, `tracked` or `stated`; None if there are none."""
        return mode

    @abstractmethod
    def decode_targets(self, y: FloatArray) -> FloatArray | list[str | None]:
        """Return targets (n,) in the form that users know."""

    @abstractmethod
    def effect_quantities(self, outputs: int) -> list[EffectQuantity]:
        """List the quantities that effects are shown on, given the number of outputs."""

    @property
    def description(self) -> str:
        """Description of the target type and its targets."""
        return (
            f"{self.title or self.name} of {', '.join(clean_text(name) for name in self.targets)}"
        )

    def target_details(
        self, temperature_state: FloatArray = NO_TEMPERATURE
    ) -> list[tuple[str, str]]:
        """Return further details of targets and forecasts, as pairs of label and value."""
        return []


def make_empty_forecast(rows: int, targets: int) -> Forecast:
    """Make a forecast without information."""
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
