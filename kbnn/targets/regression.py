"""Numeric targets, and real targets: a Gaussian around the network's mean, mixed with outliers."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np

from kbnn.array_types import FloatArray
from kbnn.core.kernel import Prediction
from kbnn.distributions import calibration
from kbnn.distributions.calibration import CalibratedPrediction
from kbnn.distributions.normal_mixture import NormalMixture
from kbnn.distributions.predictive import PARAM
from kbnn.targets.base import (
    FROZEN,
    CalibrationUpdate,
    ColdStart,
    NumericColdStart,
    TargetScale,
    TargetType,
)
from kbnn.targets.prediction import Forecast


class NumericTarget(TargetType):
    """One or several numbers."""

    def count_outputs(self, y: FloatArray, known: int = 0) -> int:
        """Return one output per target."""
        return len(self.targets)

    def init_calibration(self, mixed: bool, y: FloatArray | None = None) -> FloatArray:
        """Initialise the calibration state; without `mixed` the distribution is a Gaussian."""
        return calibration.init_calibration(len(self.targets), mixed)

    @abstractmethod
    def cold_start_distribution(self, mean: FloatArray, sd: FloatArray) -> FloatArray:
        """Build predictive distributions from mean and sd of the linked targets alone."""

    def make_cold_start(self) -> ColdStart:
        """Predict mean and spread of the rows before."""
        return NumericColdStart(self)


class Real(NumericTarget):
    """One or several numbers of any size."""

    name = "regression"
    observation = "gaussian"
    distribution = NormalMixture
    has_noise = supports_given_noise = True
    supports_differencing = supports_batched_kernel = True

    def build_forecast(
        self,
        prediction: Prediction,
        scaled: TargetScale,
        robust: bool,
        calibration_state: FloatArray,
        update: CalibrationUpdate | None = None,
    ) -> Forecast:
        """Build the predictive distribution in the user's units, and split its sd."""
        outputs = prediction.mean, prediction.function_var, prediction.noise_var, *scaled
        calibrated = self.convert_distribution(
            calibration.calibrate_outputs(calibration_state, outputs, *(update or FROZEN)[:4]),
            prediction,
        )
        return Forecast(
            *calibrated[1:],
            prediction.probability,
            1.0 - prediction.inlier if robust else np.full(len(prediction.inlier), np.nan),
            prediction.status.astype(np.int64),
            calibrated.stated,
        )

    def convert_distribution(
        self, told: CalibratedPrediction, prediction: Prediction
    ) -> CalibratedPrediction:
        """Adapt the distribution to the target type; here unchanged."""
        return told

    def cold_start_distribution(self, mean: FloatArray, sd: FloatArray) -> FloatArray:
        """Build a Gaussian of the linked targets."""
        state = self.init_calibration(False)[: len(self.targets)]
        rows = calibration.apply_calibration(state, mean, sd)
        rows[..., PARAM.kind] = self.distribution.code
        return rows

    def log_likelihood(self, prediction: Prediction, y: FloatArray) -> FloatArray:
        """Return the Gaussian log density, with squared standardised errors clipped at 100."""
        var = np.maximum(prediction.function_var + prediction.noise_var, 1e-300)
        score = -0.5 * (
            np.log(2.0 * np.pi * var) + np.minimum((y - prediction.mean) ** 2 / var, 100.0)
        )
        return np.asarray(np.sum(np.where(np.isfinite(y), score, 0.0), axis=1))
