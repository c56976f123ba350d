"""Amounts: exactly 0 in many rows, otherwise a number above 0 (rain, sales, claims, call times).

The network has two outputs for each target. The first is that of a positive target
(kbnn.targets.positive) and learns only from rows with an amount; the second is a binary class:
whether there is an amount. The network learns the link's z, and its limit -inf where the target is
0. The predictive distribution combines both (kbnn.distributions.transformed_normal).

The calibration state has two rows per target: the mixture of the amounts, and the intervals of the
whole distribution.
"""

from __future__ import annotations

import numpy as np

from kbnn.array_types import FloatArray
from kbnn.core.activations import ACTIVATIONS
from kbnn.core.constants import LEAST_SHARE, PRESENCE_RATE, PROBIT_VAR
from kbnn.core.kernel import Prediction
from kbnn.core.likelihoods import presence_probability
from kbnn.core.normal import lower_quantiles
from kbnn.distributions import calibration, transformed_normal
from kbnn.distributions.calibration import FIRST_MEAN, LINK_UNIT, MEAN_SCALE_FACTOR
from kbnn.distributions.predictive import PARAM
from kbnn.distributions.transformed_normal import Hurdle, LogLink
from kbnn.targets.base import AmountColdStart, CalibrationUpdate, ColdStart, TargetScale
from kbnn.targets.positive import Positive
from kbnn.targets.prediction import Forecast

UNKNOWN_AMOUNT_SD = 1.0
"""Sd of the linked target while all amounts so far were the same: about a factor e."""


class Amount(Positive):
    """Numbers from 0 on, many of them 0."""

    name = "amount"
    title = ""
    value_description = "0 and numbers above it"
    distribution = Hurdle
    observation = "amount"

    def count_outputs(self, y: FloatArray, known: int = 0) -> int:
        """Return two outputs per target: all amounts, then whether each is present."""
        return 2 * len(self.targets)

    def initial_output_mean(self, y: FloatArray) -> FloatArray:
        """Return the share of rows with an amount, on the scale of the presence output."""
        known, some = np.sum(~np.isnan(y), axis=0), np.sum(np.isfinite(y), axis=0)
        share = (some + 0.5) / (known + 1.0)
        side = np.where(share < 0.5, 1.0, -1.0)
        u = side * lower_quantiles(np.minimum(share, 1.0 - share))
        whether = u * np.sqrt(PROBIT_VAR + PRESENCE_RATE**2) / PRESENCE_RATE
        return np.concatenate((np.zeros(len(share)), whether))

    def init_calibration(self, mixed: bool, y: FloatArray | None = None) -> FloatArray:
        """Initialise the state of the amounts, then that of the whole distributions."""
        amounts = super().init_calibration(mixed, y)
        whole = calibration.init_calibration(len(self.targets), False)
        whole[:, LINK_UNIT] = amounts[:, LINK_UNIT]
        return np.concatenate((amounts, whole))

    def zero_bin_width(self, calibration_state: FloatArray) -> float:
        """Return the width of the values rounded to 0, for the target with the smallest unit."""
        return float(np.min(transformed_normal.zero_bin_width(calibration_state[:, LINK_UNIT])))

    def link(self, y: FloatArray, calibration_state: FloatArray) -> FloatArray:
        """Apply the link: -inf for 0, NaN (no label) for values below 0."""
        z = transformed_normal.apply_link(y, calibration_state[: len(self.targets), LINK_UNIT])
        return np.where(y == 0.0, -np.inf, z)

    def inverse_link(self, y: FloatArray, calibration_state: FloatArray) -> FloatArray:
        """Return the values; NaN where there was no label."""
        values = super().inverse_link(y, calibration_state[: len(self.targets)])
        return np.where(y == -np.inf, 0.0, values)

    def build_forecast(
        self,
        prediction: Prediction,
        scaled: TargetScale,
        robust: bool,
        calibration_state: FloatArray,
        update: CalibrationUpdate | None = None,
    ) -> Forecast:
        """Combine amount and presence, and the uncertainty about both."""
        t = len(self.targets)
        amounts, whether = (
            _select_outputs(prediction, slice(0, t)),
            _select_outputs(prediction, slice(t, None)),
        )
        plain = None if update is None else update._replace(tracked=False)
        forecast = super().build_forecast(amounts, scaled, robust, calibration_state[:t], plain)
        rows = forecast.stated
        none = presence_probability(-whether.mean, whether.function_var)
        rows[..., PARAM.kind] = Hurdle.code
        rows[:, scaled.scale == 0.0, PARAM.spread] = UNKNOWN_AMOUNT_SD
        rows[..., PARAM.none] = np.clip(none, LEAST_SHARE, 1.0 - LEAST_SHARE)
        rows[..., PARAM.gain : PARAM.most] = calibration_state[t:, FIRST_MEAN:MEAN_SCALE_FACTOR]
        if update is not None and update.y is not None:
            self._calibrate_intervals(calibration_state[t:], rows, update.y, update.tracked)
        mean, sd = Hurdle(rows).mean_and_sd()
        much, spread = LogLink(rows).mean_and_sd()
        share = np.divide(forecast.function_sd, spread, out=np.zeros_like(sd), where=spread > 0.0)
        whether_sd = np.sqrt(_presence_var(whether))
        function_sd = np.hypot(whether_sd * much, (1.0 - rows[..., PARAM.none]) * share * spread)
        function_sd = np.minimum(function_sd, sd)
        known_share = np.divide(function_sd, sd, out=np.zeros_like(sd), where=sd > 0.0)
        return forecast._replace(
            mean=mean,
            sd=sd,
            function_sd=function_sd,
            noise_sd=sd * np.sqrt(1.0 - known_share**2),
        )

    def _calibrate_intervals(
        self,
        calibration_state: FloatArray,
        distribution: FloatArray,
        z: FloatArray,
        calibrated: bool,
    ) -> None:
        """Write the interval gains into the distributions, and update them with the labels."""
        z = np.where(z == np.inf, np.nan, z)
        y = np.where(
            z == -np.inf,
            0.0,
            transformed_normal.apply_inverse_link(z, calibration_state[:, LINK_UNIT]),
        )
        for j in range(len(self.targets)):
            rows = np.ascontiguousarray(distribution[:, j])
            u = Hurdle(rows).randomized_pit(y[:, j])
            none = np.ascontiguousarray(rows[:, PARAM.none])
            seen = np.ascontiguousarray(z[:, j])
            calibration.update_count_intervals(
                calibration_state[j], seen, u, none, calibrated, rows
            )
            distribution[:, j] = rows

    def make_cold_start(self) -> ColdStart:
        """Predict the share of zeros among the rows before, and mean and spread of the others."""
        return AmountColdStart(self)

    def log_likelihood(self, prediction: Prediction, y: FloatArray) -> FloatArray:
        """Return the log likelihood of presence and, where present, of the amount."""
        t = len(self.targets)
        whether = _select_outputs(prediction, slice(t, None))
        much = super().log_likelihood(_select_outputs(prediction, slice(0, t)), y)
        side = np.where(np.isfinite(y), 1.0, -1.0)
        p = np.log(
            np.maximum(presence_probability(side * whether.mean, whether.function_var), LEAST_SHARE)
        )
        return np.asarray(much + np.sum(np.where(y < np.inf, p, 0.0), axis=1))


def _select_outputs(prediction: Prediction, outputs: slice) -> Prediction:
    """Select some outputs of a prediction."""
    parts = prediction.mean, prediction.function_var, prediction.noise_var
    mean, function_var, noise_var = (np.ascontiguousarray(part[:, outputs]) for part in parts)
    return prediction._replace(mean=mean, function_var=function_var, noise_var=noise_var)


def _presence_var(whether: Prediction) -> FloatArray:
    """Return the variance of the presence probability that is due to the network's uncertainty."""
    mean, var = PRESENCE_RATE * whether.mean, PRESENCE_RATE**2 * whether.function_var
    found = ACTIVATIONS["sigmoid"].moments(mean.ravel(), np.maximum(var.ravel(), 1e-12))
    return np.asarray(np.maximum(found.var, 0.0).reshape(mean.shape))
