"""A real target: any number, ordinary ones around the network's mean, and outliers."""

from __future__ import annotations

import numpy as np

from kbnn.core import tails
from kbnn.core.mixture import STATED
from kbnn.core.network import Prediction
from kbnn.core.normal import FloatArray
from kbnn.core.tails import Told
from kbnn.task.base import AT_REST, Following, Scaled
from kbnn.task.forecast import Forecast
from kbnn.task.numeric import Numeric


class Real(Numeric):
    """One or several numbers of any size."""

    name = "regression"
    safest = True
    differences = True
    in_herds = True
    observation = "gaussian"

    @property
    def noisy(self) -> bool:
        """It has."""
        return True

    def forecast(
        self,
        made: Prediction,
        scaled: Scaled,
        robust: bool,
        known: FloatArray,
        following: Following | None = None,
    ) -> Forecast:
        """What is stated, in the user's units, and the two parts of its spread."""
        said = made.mean, made.function_var, made.noise_var, *scaled
        told = self.presented(tails.forecast(known, said, *(following or AT_REST)[:4]), made)
        return Forecast(
            *told[1:],
            made.probability,
            1.0 - made.inlier if robust else np.full(len(made.inlier), np.nan),
            made.status.astype(np.int64),
            told.stated,
        )

    def presented(self, told: Told, made: Prediction) -> Told:
        """What is stated, as the kind of target has it."""
        return told

    def shown(self, told: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Place and spread of the ordinary values."""
        return told[..., STATED.place].copy(), told[..., STATED.spread].copy()

    def early_stated(self, mean: FloatArray, sd: FloatArray) -> FloatArray:
        """A Gaussian."""
        return tails.stated(self.tails(False), mean, sd)

    def log_likelihood(self, made: Prediction, y: FloatArray) -> FloatArray:
        """The Gaussian density, with no row more than 100 squared deviations away."""
        var = np.maximum(made.function_var + made.noise_var, 1e-300)
        score = -0.5 * (np.log(2.0 * np.pi * var) + np.minimum((y - made.mean) ** 2 / var, 100.0))
        return np.asarray(np.sum(np.where(np.isfinite(y), score, 0.0), axis=1))
