"""Targets learned through a link (distributions.transformed_normal): positive numbers, shares."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from kbnn.array_types import FloatArray
from kbnn.core.kernel import Prediction
from kbnn.distributions import calibration
from kbnn.distributions.calibration import LINK_UNIT, CalibratedPrediction
from kbnn.distributions.normal_mixture import LinkedMixture
from kbnn.distributions.predictive import PARAM
from kbnn.distributions.transformed_normal import LogitLink, LogLink
from kbnn.targets.base import TargetScale, displayed_scale
from kbnn.targets.regression import Real


class LinkedTarget(Real):
    """Numbers whose linked values are learned; the link is that of `distribution`.

    The noise is on the scale of the link, not in units that could be given.
    """

    distribution: ClassVar[type[LinkedMixture]]
    has_noise = supports_given_noise = False
    supports_differencing = supports_batched_kernel = False

    def displayed_noise(
        self,
        learned: FloatArray,
        given: float | None,
        scaled: TargetScale,
        calibration_state: FloatArray,
    ) -> list[float]:
        """Return the noise sd at the center of the linked targets, in the units of the target."""
        if not len(learned):
            return []
        targets = len(self.targets)
        level = np.sqrt(learned[:targets, 1] / learned[:targets, 0])
        at_center = scaled._replace(scale=level * scaled.scale)
        return [float(sd) for sd in displayed_scale(self, at_center, calibration_state).scale]

    def init_calibration(self, mixed: bool, y: FloatArray | None = None) -> FloatArray:
        """Initialise the state, with the unit of the link chosen from the first targets."""
        known = super().init_calibration(mixed)
        if y is not None:
            known[:, LINK_UNIT] = [self.distribution.choose_link_unit(column) for column in y.T]
        return known

    def link(self, y: FloatArray, calibration_state: FloatArray) -> FloatArray:
        """Apply the link; no finite number (no label) for values that are not possible."""
        return self.distribution.apply_link(y, calibration_state[:, LINK_UNIT])

    def inverse_link(self, y: FloatArray, calibration_state: FloatArray) -> FloatArray:
        """Return the values; NaN where there was no label."""
        values = self.distribution.apply_inverse_link(y, calibration_state[:, LINK_UNIT])
        return np.where(np.isfinite(y), values, np.nan)

    def convert_distribution(
        self, told: CalibratedPrediction, prediction: Prediction
    ) -> CalibratedPrediction:
        """Mark the mixture as one of linked values, and compute mean and sd of the values."""
        told.stated[..., PARAM.kind] = self.distribution.code
        mean, sd = self.distribution(told.stated).mean_and_sd()
        split = calibration.split_sd(sd, prediction.function_var, prediction.noise_var)
        return CalibratedPrediction(told.stated, mean, sd, *split)


class Positive(LinkedTarget):
    """Numbers above 0 whose size varies by factors: prices, durations, concentrations."""

    name = "positive"
    title = "positive regression"
    value_description = "numbers above 0"
    distribution = LogLink


class Share(LinkedTarget):
    """Numbers between 0 and 1: rates, fill levels, probabilities."""

    name = "share"
    title = "share"
    value_description = "numbers from 0 to 1"
    distribution = LogitLink
