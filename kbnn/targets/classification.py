"""Class targets: the probability of every class, where classes may appear while learning.

`Classes` uses one output per class. `SigmoidClasses` follows the paper for two classes: one output,
a sigmoid on it, and a Gaussian label 0 or 1.
"""

from __future__ import annotations

import numpy as np

from kbnn.array_types import FloatArray
from kbnn.core.kernel import Prediction
from kbnn.distributions import categorical
from kbnn.distributions.categorical import NO_TEMPERATURE, Categorical
from kbnn.errors import DataError
from kbnn.targets.base import (
    CalibrationUpdate,
    ClassColdStart,
    ColdStart,
    TargetScale,
    TargetType,
    make_empty_forecast,
)
from kbnn.targets.prediction import Forecast


def balance_classes(counts: FloatArray, labels: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Weigh rows so that every class counts the same: n / (K n_c), of the rows up to each row.

    Parameters
    ----------
    counts
        Rows of each class before (K,).
    labels
        Indices of the classes (n,); NaN where there is none.

    Returns
    -------
    weights
        The weight of each row (n,); 1 without a label.
    counts
        Rows of each class after.
    """
    known = np.flatnonzero(np.isfinite(labels))
    weights = np.ones(len(labels))
    if not len(known):
        return weights, counts
    index = labels[known].astype(np.int64)
    counts = np.pad(counts, (0, max(0, int(index.max()) + 1 - len(counts))))
    so_far = counts + np.cumsum(np.eye(len(counts))[index], axis=0)
    own = so_far[np.arange(len(index)), index]
    weights[known] = so_far.sum(axis=1) / (np.count_nonzero(so_far, axis=1) * own)
    return weights, so_far[-1]


class Classes(TargetType):
    """One of several labels; the target is the index of the class."""

    name = "classification"
    observation = "categorical"
    labels = True

    def count_outputs(self, y: FloatArray, known: int = 0) -> int:
        """Return one output per class."""
        return self.count_classes(y, known)

    def count_classes(self, y: FloatArray, known: int = 0) -> int:
        """Return the number of classes seen, or of all classes if they are closed; at least 2."""
        labels = y[np.isfinite(y)]
        complete = len(self.schema.classes) if self.schema.closed else 0
        return max(2, known, complete, int(np.max(labels)) + 1 if len(labels) else 0)

    def first_row_without_output(self, y: FloatArray, outputs: int) -> int:
        """Return the first row with a new label; n if none."""
        new = y[:, 0] >= outputs
        return int(np.argmax(new)) if new.any() else len(y)

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

    def log_likelihood(self, prediction: Prediction, y: FloatArray) -> FloatArray:
        """Return the logarithm of the label's probability."""
        return Categorical(prediction.probability).log_density(y[:, 0])


class SigmoidClasses(Classes):
    """Two classes; the second has probability E sigmoid(a)."""

    observation = "sigmoid"
    supports_given_noise = True
    """The noise of the label; 0 if none is given."""

    def count_outputs(self, y: FloatArray, known: int = 0) -> int:
        """Return 1."""
        return 1

    def first_row_without_output(self, y: FloatArray, outputs: int) -> int:
        """Return the first row of a third class; raise DataError if that is the first row."""
        third = np.flatnonzero(y[:, 0] >= 2)
        if len(third) and third[0] == 0:
            name = class_name(self, int(y[0, 0]))
            raise DataError(
                f"target '{self.targets[0]}' has a third class, '{name}': "
                "--link sigmoid supports two (use --link probit)"
            )
        return int(third[0]) if len(third) else len(y)


def class_name(task: TargetType, index: int) -> str:
    """Return the name of a class."""
    names = task.schema.classes
    return names[index] if index < len(names) else str(index)


def init_class_temperature(
    labels: bool, mixed: bool, outputs: int, y: FloatArray | None = None
) -> FloatArray:
    """Initialise the temperature state with the class counts of the warm-up rows y (n, 1).

    Numbers have none, and without `mixed` no target type has one.
    """
    held = np.zeros(0) if y is None else y[:, 0]
    if not (labels and mixed):
        return NO_TEMPERATURE
    return categorical.init_temperature(held, max(2, outputs))


def apply_class_temperature(
    forecast: Forecast, temperature_state: FloatArray, update: CalibrationUpdate | None = None
) -> Forecast:
    """Apply the temperature to a forecast; with an `update`, the state is updated in place."""
    if not len(temperature_state):
        return forecast
    p = np.ascontiguousarray(forecast.probability)
    if update is None or update.y is None:
        return forecast._replace(probability=categorical.apply_temperature(temperature_state, p))
    label, weight = np.ascontiguousarray(update.y[:, 0]), update.weight
    weight = None if weight is None else np.ascontiguousarray(weight)
    p = categorical.apply_temperature(temperature_state, p, label, weight, update.compiled)
    return forecast._replace(probability=p)
