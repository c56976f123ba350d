"""An amount: exactly 0 in many rows, else a number above 0; rain, sales, claims, seconds of calls.

The network has two outputs for each target. The first is that of a positive target
(kbnn.targets.positive) and learns from rows with an amount alone; the second says whether there is
any, as of two classes. What is learned is the link's z, and -inf, its limit at 0, where there is
none. Stated is the product of both (kbnn.distributions.hurdle).

Two rows are kept of the tails of each target: how amounts are spread, and then the intervals, which
are those of the whole.
"""

from __future__ import annotations

import numpy as np

from kbnn.array_types import FloatArray
from kbnn.core.activations import ACTIVATIONS
from kbnn.core.constants import LEAST_SHARE, PRESENCE_RATE, PROBIT_VAR
from kbnn.core.kernel import Prediction
from kbnn.core.likelihoods import presence_probability
from kbnn.core.normal import lower_quantiles
from kbnn.distributions import calibration, hurdle, log_link
from kbnn.distributions.calibration import FIRST_MEAN, LINK_UNIT, MEAN_SCALE_FACTOR
from kbnn.distributions.dispatch import HURDLE_CODE
from kbnn.distributions.normal_mixture import PARAM
from kbnn.targets.base import (
    CalibrationUpdate,
    ColdStart,
    EffectQuantity,
    OutputField,
    OutputOptions,
    TargetScale,
)
from kbnn.targets.cold_start import AmountColdStart
from kbnn.targets.positive import Positive
from kbnn.targets.prediction import Forecast

UNKNOWN_AMOUNT_SD = 1.0
"""The spread of what is learned where all amounts so far were the same: about a factor e."""


class Amount(Positive):
    """Numbers from 0 on, many of them 0."""

    name = "amount"
    title = ""
    value_description = "0 and numbers above it"
    possible = staticmethod(hurdle.possible)
    observation = "amount"

    def count_outputs(self, y: FloatArray, known: int = 0) -> int:
        """Of each target how much, then of each whether there is any."""
        return 2 * len(self.targets)

    def is_valid_output_count(self, outputs: int) -> bool:
        """As many."""
        return outputs == 2 * len(self.targets)

    def initial_output_mean(self, y: FloatArray) -> FloatArray:
        """How often there is an amount, seen through the link."""
        known, some = np.sum(~np.isnan(y), axis=0), np.sum(np.isfinite(y), axis=0)
        share = (some + 0.5) / (known + 1.0)
        side = np.where(share < 0.5, 1.0, -1.0)
        u = side * lower_quantiles(np.minimum(share, 1.0 - share))
        whether = u * np.sqrt(PROBIT_VAR + PRESENCE_RATE**2) / PRESENCE_RATE
        return np.concatenate((np.zeros(len(share)), whether))

    def init_calibration(self, mixed: bool, y: FloatArray | None = None) -> FloatArray:
        """Of the amounts, then of the whole."""
        amounts = super().init_calibration(mixed, y)
        whole = calibration.init_calibration(len(self.targets), False)
        whole[:, LINK_UNIT] = amounts[:, LINK_UNIT]
        return np.concatenate((amounts, whole))

    def zero_bin_width(self, calibration_state: FloatArray) -> float:
        """What is rounded to 0, of the finest target."""
        return float(np.min(hurdle.zero_bin_width(calibration_state[:, LINK_UNIT])))

    def link(self, y: FloatArray, calibration_state: FloatArray) -> FloatArray:
        """Through the link, -inf where there is none; what is below 0 is no label."""
        z = log_link.apply_link(y, calibration_state[: len(self.targets), LINK_UNIT])
        return np.where(y == 0.0, -np.inf, z)

    def inverse_link(self, y: FloatArray, calibration_state: FloatArray) -> FloatArray:
        """The values; NaN where there was no label."""
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
        """Both parts together, and what is unknown of either."""
        t = len(self.targets)
        amounts, whether = (
            _select_outputs(prediction, slice(0, t)),
            _select_outputs(prediction, slice(t, None)),
        )
        plain = None if update is None else update._replace(tracked=False)
        said = super().build_forecast(amounts, scaled, robust, calibration_state[:t], plain)
        rows = said.stated
        none = presence_probability(-whether.mean, whether.function_var)
        rows[..., PARAM.kind] = HURDLE_CODE
        rows[:, scaled.scale == 0.0, PARAM.spread] = UNKNOWN_AMOUNT_SD
        rows[..., PARAM.none] = np.clip(none, LEAST_SHARE, 1.0 - LEAST_SHARE)
        rows[..., PARAM.gain : PARAM.most] = calibration_state[t:, FIRST_MEAN:MEAN_SCALE_FACTOR]
        if update is not None and update.y is not None:
            self._calibrate_intervals(calibration_state[t:], rows, update.y, update.tracked)
        mean, sd = self.mean_and_sd(rows)
        much, spread = super().mean_and_sd(rows)
        share = np.divide(said.function_sd, spread, out=np.zeros_like(sd), where=spread > 0.0)
        whether_sd = np.sqrt(_presence_var(whether))
        function_sd = np.hypot(whether_sd * much, (1.0 - rows[..., PARAM.none]) * share * spread)
        function_sd = np.minimum(function_sd, sd)
        known_share = np.divide(function_sd, sd, out=np.zeros_like(sd), where=sd > 0.0)
        return said._replace(
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
        """Write the gains into what is stated, and let them follow what came true."""
        z = np.where(z == np.inf, np.nan, z)
        y = np.where(
            z == -np.inf, 0.0, log_link.apply_inverse_link(z, calibration_state[:, LINK_UNIT])
        )
        for j in range(len(self.targets)):
            rows = np.ascontiguousarray(distribution[:, j])
            u = hurdle.randomized_pit(y[:, j], rows)
            none = np.ascontiguousarray(rows[:, PARAM.none])
            seen = np.ascontiguousarray(z[:, j])
            calibration.update_count_intervals(
                calibration_state[j], seen, u, none, calibrated, rows
            )
            distribution[:, j] = rows

    def mean_and_sd(self, distribution: FloatArray) -> tuple[FloatArray, FloatArray]:
        """With w = 1 - p_0 and mean M and variance V of an amount, w M and w V + w p_0 M^2."""
        much, spread = super().mean_and_sd(distribution)
        none = distribution[..., PARAM.none]
        sd = np.sqrt(1.0 - none) * np.hypot(spread, np.sqrt(none) * much)
        return (1.0 - none) * much, sd

    def make_cold_start(self) -> ColdStart:
        """The share of zeros among the rows before, and mean and spread of the others."""
        return AmountColdStart(self)

    def cold_start_distribution(self, mean: FloatArray, sd: FloatArray) -> FloatArray:
        """A log-normal, and something at all."""
        told = calibration.apply_calibration(
            self.init_calibration(False)[: len(self.targets)], mean, sd
        )
        told[..., PARAM.kind] = HURDLE_CODE
        return told

    def log_likelihood(self, prediction: Prediction, y: FloatArray) -> FloatArray:
        """Whether there is any, and how much."""
        t = len(self.targets)
        whether = _select_outputs(prediction, slice(t, None))
        much = super().log_likelihood(_select_outputs(prediction, slice(0, t)), y)
        side = np.where(np.isfinite(y), 1.0, -1.0)
        p = np.log(
            np.maximum(presence_probability(side * whether.mean, whether.function_var), LEAST_SHARE)
        )
        return np.asarray(much + np.sum(np.where(y < np.inf, p, 0.0), axis=1))

    def output_fields(self, wanted: OutputOptions) -> list[OutputField]:
        """The probability of none at all is added."""
        made = super().output_fields(wanted)
        for j, target in enumerate(self.targets):
            suffix = f"_{target}" if len(self.targets) > 1 else ""
            made.append(
                OutputField(f"p_0{suffix}", False, lambda f, j=j: f.stated[:, j, PARAM.none])  # type: ignore[misc]  # bound now
            )
        return made

    def effect_quantities(self, outputs: int) -> list[EffectQuantity]:
        """The predicted mean of each target, then the probability that it is not 0."""
        return super().effect_quantities(outputs) + [
            EffectQuantity(
                f"{name} > 0",
                f"the probability of {name} > 0",
                "probability",
                lambda f, j=j: 1.0 - f.stated[:, j, PARAM.none],  # type: ignore[misc]  # bound now
                None,
            )
            for j, name in enumerate(self.targets)
        ]


def _select_outputs(prediction: Prediction, outputs: slice) -> Prediction:
    """What is predicted of some outputs."""
    parts = prediction.mean, prediction.function_var, prediction.noise_var
    mean, function_var, noise_var = (np.ascontiguousarray(part[:, outputs]) for part in parts)
    return prediction._replace(mean=mean, function_var=function_var, noise_var=noise_var)


def _presence_var(whether: Prediction) -> FloatArray:
    """The variance that doubt about the network gives to the probability of an amount."""
    mean, var = PRESENCE_RATE * whether.mean, PRESENCE_RATE**2 * whether.function_var
    found = ACTIVATIONS["sigmoid"].moments(mean.ravel(), np.maximum(var.ravel(), 1e-12))
    return np.asarray(np.maximum(found.var, 0.0).reshape(mean.shape))
