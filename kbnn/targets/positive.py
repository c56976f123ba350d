"""Positive targets: numbers above 0, learned through the link of kbnn.distributions.log_link."""

from __future__ import annotations

import numpy as np

from kbnn.array_types import FloatArray
from kbnn.core.kernel import Prediction
from kbnn.distributions import calibration, log_link
from kbnn.distributions.calibration import LINK_UNIT, CalibratedPrediction
from kbnn.distributions.dispatch import LOG_LINK_CODE
from kbnn.distributions.log_link import exp_clipped
from kbnn.distributions.normal_mixture import PARAM
from kbnn.targets.base import TargetScale
from kbnn.targets.numeric import first_impossible_row
from kbnn.targets.regression import Real

MAX_LOG_VAR = 40.0
"""Limit of the variance of a logarithm: the mean of a wider distribution is meaningless."""
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(32)
_NODE_SHARES = _WEIGHTS / np.sum(_WEIGHTS)


class Positive(Real):
    """Numbers above 0 whose size varies by factors: prices, durations, concentrations."""

    name = "positive"
    is_default = supports_differencing = supports_batched_kernel = False
    requires_margin = True
    title = "positive regression"
    value_description = "numbers above 0"
    possible = staticmethod(log_link.possible)

    @property
    def has_noise(self) -> bool:
        """False: the learned noise is on the log scale, not in units that could be given."""
        return False

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
        return [
            float(sd)
            for sd in self.displayed_scale(
                scaled._replace(scale=level * scaled.scale), calibration_state
            ).scale
        ]

    def first_invalid_row(self, y: FloatArray) -> int:
        """Return the first row with a target that the type does not allow; n if none."""
        return first_impossible_row(y, self.possible)

    def init_calibration(self, mixed: bool, y: FloatArray | None = None) -> FloatArray:
        """Initialise the state, with the unit of the link chosen from the first targets."""
        known = super().init_calibration(mixed)
        if y is not None:
            known[:, LINK_UNIT] = [log_link.choose_link_unit(column) for column in y.T]
        return known

    def link(self, y: FloatArray, calibration_state: FloatArray) -> FloatArray:
        """Apply the link; NaN (no label) for values that are not above 0."""
        return log_link.apply_link(y, calibration_state[:, LINK_UNIT])

    def inverse_link(self, y: FloatArray, calibration_state: FloatArray) -> FloatArray:
        """Return the values; NaN where there was no label."""
        return np.where(
            np.isfinite(y), log_link.apply_inverse_link(y, calibration_state[:, LINK_UNIT]), np.nan
        )

    def convert_distribution(
        self, told: CalibratedPrediction, prediction: Prediction
    ) -> CalibratedPrediction:
        """Mark the mixture as one of linked values, and compute mean and sd of the values."""
        told.stated[..., PARAM.kind] = LOG_LINK_CODE
        mean, sd = self.mean_and_sd(told.stated)
        split = calibration.split_sd(sd, prediction.function_var, prediction.noise_var)
        return CalibratedPrediction(told.stated, mean, sd, *split)

    def cold_start_distribution(self, mean: FloatArray, sd: FloatArray) -> FloatArray:
        """Build a log-normal."""
        rows = super().cold_start_distribution(mean, sd)
        rows[..., PARAM.kind] = LOG_LINK_CODE
        return rows

    def mean_and_sd(self, distribution: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return mean and sd without outliers; no mean is above the largest value seen."""
        place, unit, most = (distribution[..., at] for at in (PARAM.place, PARAM.unit, PARAM.most))
        var = np.minimum(distribution[..., PARAM.spread] ** 2, MAX_LOG_VAR)
        mean, sd = exp_clipped(place + 0.5 * var), np.zeros_like(place)
        if np.any(unit > 0.0):
            z = place[..., None] + np.sqrt(var)[..., None] * _NODES
            soft = log_link.apply_inverse_link(
                z, np.ones(1)
            )  # in units of the link: squares of the values may overflow
            first = np.sum(soft * _NODE_SHARES, axis=-1)
            var_soft = np.sum((soft - first[..., None]) ** 2 * _NODE_SHARES, axis=-1)
            sd = log_link.multiply_clipped(unit, np.sqrt(var_soft))
            mean = np.where(unit > 0.0, log_link.multiply_clipped(unit, first), mean)
        seen = np.isfinite(most)
        mean = np.where(
            seen,
            np.minimum(mean, log_link.apply_inverse_link(np.where(seen, most, 0.0), unit)),
            mean,
        )
        return mean, np.where(
            unit > 0.0, sd, log_link.multiply_clipped(np.sqrt(np.expm1(var)), mean)
        )
