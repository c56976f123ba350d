"""Real targets: any number, a Gaussian around the network's mean, mixed with outliers."""

from __future__ import annotations

import numpy as np

from kbnn.array_types import FloatArray
from kbnn.core.kernel import Prediction
from kbnn.distributions import calibration
from kbnn.distributions.calibration import CalibratedPrediction
from kbnn.distributions.normal_mixture import PARAM
from kbnn.targets.base import FROZEN, CalibrationUpdate, TargetScale
from kbnn.targets.numeric import NumericTarget
from kbnn.targets.prediction import Forecast


class Real(NumericTarget):
    """One or several numbers of any size."""

    name = "regression"
    is_default = True
    supports_differencing = True
    supports_batched_kernel = True
    observation = "gaussian"

    @property
    def has_noise(self) -> bool:
        """True: the noise is given or learned."""
        return True

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

    def mean_and_sd(self, distribution: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return location and spread of the ordinary values."""
        return distribution[..., PARAM.place].copy(), distribution[..., PARAM.spread].copy()

    def cold_start_distribution(self, mean: FloatArray, sd: FloatArray) -> FloatArray:
        """Build a Gaussian."""
        return calibration.apply_calibration(self.init_calibration(False), mean, sd)

    def log_likelihood(self, prediction: Prediction, y: FloatArray) -> FloatArray:
        """Return the Gaussian log density, with squared standardised errors clipped at 100."""
        var = np.maximum(prediction.function_var + prediction.noise_var, 1e-300)
        score = -0.5 * (
            np.log(2.0 * np.pi * var) + np.minimum((y - prediction.mean) ** 2 / var, 100.0)
        )
        return np.asarray(np.sum(np.where(np.isfinite(y), score, 0.0), axis=1))
