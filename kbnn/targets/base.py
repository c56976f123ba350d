"""Define the interface of target types: likelihood, link, noise and predictive distribution.

A target type chooses the observation model of the network and turns network outputs into a
predictive distribution in the user's units. How its forecasts are scored is in
kbnn.metrics.verdicts, what is shown of them in kbnn.metrics.sections, and which columns they
have in kbnn.output.fields.

Its cold-start predictor gives the forecasts before there is a network: running mean and spread of
numbers, running frequencies of classes.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple, Protocol

import numpy as np

from kbnn.array_types import FloatArray
from kbnn.core.config import MAX_NOISE_VARIANCE
from kbnn.core.kernel import Prediction
from kbnn.distributions import calibration
from kbnn.distributions.normal_mixture import NormalMixture
from kbnn.distributions.predictive import PARAM, PARAM_COUNT, PredictiveDistribution
from kbnn.errors import UsageError
from kbnn.targets.prediction import Forecast

if TYPE_CHECKING:
    from kbnn.targets.regression import NumericTarget


class TargetSchema(Protocol):
    """What a target type needs to know of the columns (see kbnn.data.schema.Schema)."""

    @property
    def targets(self) -> list[str]: ...
    @property
    def classes(self) -> list[str]: ...
    @property
    def closed(self) -> bool: ...


class TargetScale(NamedTuple):
    """Center and scale of the targets in the user's units."""

    center: FloatArray
    scale: FloatArray


class CalibrationUpdate(NamedTuple):
    """The labels that calibration and temperature learn from.

    See kbnn.distributions.calibration and kbnn.distributions.categorical.
    """

    y: FloatArray | None  # (n, T) as the network learns it
    mixed: bool  # whether the outlier mixture is learned
    tracked: bool  # whether intervals are calibrated online
    compiled: bool | None = None  # whether the compiled kernel is used; None: if available
    weight: FloatArray | None = None  # weight of each row; None: 1


FROZEN: Final = CalibrationUpdate(None, False, False)
"""The update of a model that no longer learns."""


class ColdStart(ABC):
    """Cold-start predictor: used until the scaler has enough rows to initialise the network."""

    @abstractmethod
    def predict_then_update(self, y: FloatArray) -> Forecast:
        """Predict each row of these targets (n, T) before it is learned from."""

    @abstractmethod
    def rows_until_varied(self, y: FloatArray) -> int:
        """Return how many of these rows are needed until every target has varied; n + 1 if more."""


MAX_GROUPED_CLASSES: Final = 4
"""Up to this many classes, covariance blocks span groups; their cost grows with the outputs."""


class TargetType(ABC):
    """One target type; an instance knows the names of a model's targets."""

    name: ClassVar[str]
    title: ClassVar[str] = ""
    """Name shown before "of" and the target; the default is `name`."""
    observation: ClassVar[str]
    """Likelihood of the network, see kbnn.core.likelihoods."""
    distribution: ClassVar[type[PredictiveDistribution]]
    """Predictive distribution of numbers; classes have none."""
    labels: ClassVar[bool] = False
    """Whether the target is read as labels, which become class indices."""
    value_description: ClassVar[str] = "any number"
    """The values that it allows, in words."""
    has_noise: ClassVar[bool] = False
    """Whether the target has an observation noise in its own units."""
    supports_given_noise: ClassVar[bool] = False
    """Whether an observation noise can be given."""
    supports_batched_kernel: ClassVar[bool] = False
    """Whether the kernel learns many models of one such target at once (kbnn.fleet)."""
    supports_differencing: ClassVar[bool] = False
    """Whether the target can be learned as a difference, and so be forecast steps ahead."""

    def __init__(self, schema: TargetSchema) -> None:
        self.schema = schema
        self.targets: tuple[str, ...] = tuple(schema.targets)
        """Names of the targets; they never change."""
        self.scaled = 0 if self.labels else len(self.targets)
        """Number of targets that are standardised: all or none."""
        self.numbers = 0 if self.labels else len(self.targets)
        """Number of targets that are forecast as numbers: all or none."""

    @abstractmethod
    def count_outputs(self, y: FloatArray, known: int = 0) -> int:
        """Return the outputs that a network needs for targets (n, T), at least `known`."""

    def first_row_without_output(self, y: FloatArray, outputs: int) -> int:
        """Return the first row whose target has no output in the network; n if none."""
        return len(y)

    def initial_output_mean(self, y: FloatArray) -> FloatArray | None:
        """Return the initial mean of the outputs, from targets (n, T); None: 0."""
        return None

    def displayed_noise(
        self,
        learned: FloatArray,
        given: float | None,
        scaled: TargetScale,
        calibration_state: FloatArray,
    ) -> list[float]:
        """Return the noise of each target as it is shown to users."""
        return list_noise_sds(self, learned, given, scaled.scale.tolist())

    def link(self, y: FloatArray, calibration_state: FloatArray) -> FloatArray:
        """Map targets (n, T) to the scale on which the network learns, before standardisation.

        The default is the identity. `calibration_state` holds the unit of the link.
        """
        return y

    def inverse_link(self, y: FloatArray, calibration_state: FloatArray) -> FloatArray:
        """Invert `link`."""
        return y

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

    @abstractmethod
    def log_likelihood(self, prediction: Prediction, y: FloatArray) -> FloatArray:
        """Return log p of each row's label (n, T) in the network's units; 0 where it is missing."""

    def zero_bin_width(self, calibration_state: FloatArray) -> float:
        """Return the bin width at 0, from the calibration state."""
        return 1.0


def first_invalid_row(task: TargetType, y: FloatArray) -> int:
    """Return the first row with a target (n, T) that the type does not allow; n if none."""
    if task.labels or task.distribution is NormalMixture:
        return len(y)
    wrong = np.any(np.isfinite(y) & ~task.distribution.is_possible(y), axis=1)
    return int(np.argmax(wrong)) if wrong.any() else len(y)


def max_outputs(task: TargetType) -> int:
    """Return the number of outputs when everything known of the targets has been seen."""
    return task.count_outputs(np.zeros((0, len(task.targets))), len(task.schema.classes))


def is_valid_output_count(task: TargetType, outputs: int) -> bool:
    """Return whether a network can have this number of outputs: for classes, from two on."""
    most = max_outputs(task)
    return min(2, most) <= outputs <= most if task.labels else outputs == most


def choose_covariance(task: TargetType, outputs: int) -> str:
    """Choose the covariance structure: groups, or neurons for many classes."""
    return "neuron" if task.labels and outputs > MAX_GROUPED_CLASSES else "group"


def given_noise_var(task: TargetType, noise: str | float, scale: float) -> float | None:
    """Return the variance of a given noise in standardised units; None if none was given.

    `scale` is the scale of the target.
    """
    if not task.supports_given_noise or isinstance(noise, str):
        return None
    ratio = min(float(noise) / scale, MAX_NOISE_VARIANCE)
    return min(ratio * ratio, MAX_NOISE_VARIANCE)


def list_noise_sds(
    task: TargetType, learned: FloatArray, given: float | None, scale: Sequence[float]
) -> list[float]:
    """Return the noise sd of each target in its units; empty if there is none.

    `learned` (T, 2) is the noise state of the network, (0, 2) if the noise was given.
    """
    if not task.has_noise:
        return []
    level = (
        np.sqrt(learned[:, 1] / learned[:, 0])
        if len(learned)
        else np.full(len(scale), np.sqrt(given or 0.0))
    )
    return [float(sd) for sd in level * np.array(scale)]


def displayed_scale(
    task: TargetType, scaled: TargetScale, calibration_state: FloatArray
) -> TargetScale:
    """Return center and scale of what the network learns, in the units of the targets.

    Through a link that is the value at the center, and half the distance between the values one
    scale below and above it.
    """
    low, center, high = (
        task.inverse_link((scaled.center + step * scaled.scale)[None], calibration_state)[0]
        for step in (-1.0, 0.0, 1.0)
    )
    return TargetScale(center, 0.5 * (high - low))


def supports_paths(task: TargetType) -> bool:
    """Return whether forecasts several steps ahead have closed-form error bars: one real target."""
    return task.supports_differencing and len(task.targets) == 1


def check_horizon_support(task: TargetType) -> None:
    """Raise UsageError if the target cannot be forecast several steps ahead."""
    if not supports_paths(task):
        count = len(task.targets)
        found = f"has {count} targets" if count > 1 else f"is of --task {task.name}"
        raise UsageError(
            "--horizon: several steps ahead need one target of --task regression, "
            f"and this model {found}. Train another with one target and --task regression."
        )


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
        np.zeros((rows, 0)),
    )


MIN_SD_SHARE: Final = 1e-6
"""Minimum sd of a constant target, as a share of 1 + its absolute value."""


class NumericColdStart(ColdStart):
    """Running sums of each target; the first row has no prediction."""

    def __init__(self, task: NumericTarget) -> None:
        targets = len(task.targets)
        self._task = task
        self._sums = [(0, 0.0, 0.0)] * targets  # count, mean, sum of squares about it
        self._low = np.full((1, targets), np.nan)
        self._high = self._low

    def predict_then_update(self, y: FloatArray) -> Forecast:
        """Predict with sd^2 = var (1 + 2/n): 1/n each for uncertain mean and uncertain spread."""
        moments: list[float] = []
        for j, column in enumerate(
            self._task.link(y, self._task.init_calibration(False)).T.tolist()
        ):
            n, center, squares = self._sums[j]
            for value in column:
                if n:
                    spread = math.sqrt(squares / n) if n > 1 else abs(center)
                    least = MIN_SD_SHARE * (1.0 + abs(center))
                    moments += center, max(spread * math.sqrt(1.0 + 2.0 / n), least)
                else:
                    moments += math.nan, math.nan
                if math.isfinite(value):
                    n += 1
                    gap = value - center
                    center += gap / n
                    squares += gap * (value - center)
            self._sums[j] = n, center, squares
        mean, sd = np.array(moments).reshape(*y.T.shape, 2).T
        low, high = self._running_extremes(y)
        self._low, self._high = low[-1:], high[-1:]
        empty = make_empty_forecast(*y.shape)
        stated = self._task.cold_start_distribution(mean, sd)
        mean, sd = self._task.distribution(stated).mean_and_sd()
        return empty._replace(
            mean=mean,
            sd=sd,
            noise_sd=sd,
            function_sd=np.where(np.isnan(sd), sd, 0.0),
            stated=stated,
        )

    def rows_until_varied(self, y: FloatArray) -> int:
        """Return the number of rows until every target has had two values."""
        low, high = self._running_extremes(y)
        varied = (low < high).all(axis=1)
        return int(np.argmax(varied)) if varied.any() else len(y) + 1

    def _running_extremes(self, y: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return running minimum and maximum of each target, before and after each row."""
        seen = np.where(np.isfinite(y), y, np.nan)
        return (
            np.fmin.accumulate(np.concatenate((self._low, seen)), axis=0),
            np.fmax.accumulate(np.concatenate((self._high, seen)), axis=0),
        )


class AmountColdStart(NumericColdStart):
    """Running sums of amounts, and the share of zeros with one row of each kind added."""

    def __init__(self, task: NumericTarget) -> None:
        super().__init__(task)
        self._seen: FloatArray = np.zeros((1, len(task.targets)))
        self._none: FloatArray = self._seen

    def predict_then_update(self, y: FloatArray) -> Forecast:
        """Predict as for numbers, with the share of zeros; NaN before the first amount."""
        forecast = super().predict_then_update(y)
        seen = np.cumsum(np.concatenate((self._seen, (y >= 0.0) * 1.0)), axis=0)
        none = np.cumsum(np.concatenate((self._none, (y == 0.0) * 1.0)), axis=0)
        self._seen, self._none = seen[-1:], none[-1:]
        forecast.stated[..., PARAM.none] = (none[:-1] + 1.0) / (seen[:-1] + 2.0)
        mean, sd = self._task.distribution(forecast.stated).mean_and_sd()
        return forecast._replace(mean=mean, sd=sd, noise_sd=sd)


class ClassColdStart(ColdStart):
    """Running class frequencies, with one row added to each class."""

    def __init__(self, count_classes: Callable[[FloatArray], int]) -> None:
        self._count_classes, self._seen = count_classes, np.zeros((0, 1))

    def predict_then_update(self, y: FloatArray) -> Forecast:
        """Predict the frequencies of the classes known at each row."""
        first, seen = len(self._seen), np.concatenate((self._seen, y))
        known = [self._count_classes(seen[:row]) for row in range(first, len(seen))]
        probability = np.zeros((len(y), max(known, default=0)))
        for row, classes in enumerate(known):
            labels = seen[: first + row]
            counts = np.bincount(labels[np.isfinite(labels)].astype(np.int64), minlength=classes)
            probability[row, :classes] = (counts + 1.0) / np.sum(counts + 1.0)
        self._seen = seen[np.isfinite(seen[:, 0])]
        return make_empty_forecast(len(y), 0)._replace(probability=probability)

    def rows_until_varied(self, y: FloatArray) -> int:
        """Return 0: a single class is enough to start."""
        return 0
