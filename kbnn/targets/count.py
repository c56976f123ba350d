"""Counts: a negative binomial whose rate is the exponential of the network's output.

The network predicts mean m and variance q of the logarithm of the rate, and a dispersion phi (see
kbnn.core.likelihoods). The predictive distribution is the negative binomial with the same first two
moments, mu = e^(m + q/2) and 1/alpha = e^q (1 + phi) - 1, mixed with outliers
(kbnn.distributions.calibration).
"""

from __future__ import annotations

import numpy as np

from kbnn.array_types import FloatArray
from kbnn.core.constants import (
    COUNT_RATE,
    LEAST_DISPERSION,
    LEAST_RATE_VAR,
    LOG_RATE_LIMIT,
    MOST_DISPERSION,
    MOST_RATE_VAR,
)
from kbnn.core.kernel import Prediction
from kbnn.core.likelihoods import count_dispersion
from kbnn.distributions import calibration
from kbnn.distributions.negative_binomial import NegativeBinomial
from kbnn.distributions.predictive import PARAM
from kbnn.targets.base import CalibrationUpdate, TargetScale, TargetSchema
from kbnn.targets.prediction import Forecast, log_density
from kbnn.targets.regression import NumericTarget

MAX_COUNT_MEDIANS = 20.0
"""Counts are clipped to this many medians (plus one) for the initial output mean."""


class Count(NumericTarget):
    """Numbers of things: 0, 1, 2, ..."""

    name = "count"
    observation = "count"
    distribution = NegativeBinomial
    value_description = "whole numbers from 0 on"

    def __init__(self, schema: TargetSchema) -> None:
        super().__init__(schema)
        self.scaled = 0

    def displayed_noise(
        self,
        learned: FloatArray,
        given: float | None,
        scaled: TargetScale,
        calibration_state: FloatArray,
    ) -> list[float]:
        """Return the dispersion phi: the variance of a count of mean mu is mu + phi mu^2."""
        return [count_dispersion((float(a), float(b))) for a, b in learned]

    def initial_output_mean(self, y: FloatArray) -> FloatArray:
        """Return the logarithm of the mean on the scale of the output; large counts are clipped."""
        known = np.where(np.isfinite(y) & (y >= 0.0), y, np.nan)
        if not len(known):
            return np.zeros(y.shape[1])
        seen = np.where(np.isfinite(known).any(axis=0), known, 0.0)
        most = MAX_COUNT_MEDIANS * (1.0 + np.nanmedian(seen, axis=0))
        total = np.nansum(np.minimum(known, most), axis=0)
        return np.asarray(
            np.log((total + 0.5) / (np.isfinite(known).sum(axis=0) + 0.5)) / COUNT_RATE
        )

    def init_calibration(self, mixed: bool, y: FloatArray | None = None) -> FloatArray:
        """Initialise the state with the outlier share that inference assumes."""
        return calibration.init_count_calibration(len(self.targets), mixed)

    def build_forecast(
        self,
        prediction: Prediction,
        scaled: TargetScale,
        robust: bool,
        calibration_state: FloatArray,
        update: CalibrationUpdate | None = None,
    ) -> Forecast:
        """Build the distribution, and split its sd into function_sd and noise_sd."""
        m = np.clip(COUNT_RATE * prediction.mean, -LOG_RATE_LIMIT, LOG_RATE_LIMIT)
        q = np.clip(COUNT_RATE**2 * prediction.function_var, LEAST_RATE_VAR, MOST_RATE_VAR)
        phi = np.clip(prediction.noise_var, LEAST_DISPERSION, MOST_DISPERSION)
        mu = np.exp(np.minimum(m + 0.5 * q, LOG_RATE_LIMIT))
        distribution = self.build_distribution(
            mu, np.exp(q) * (1.0 + phi) - 1.0, calibration_state, update
        )
        mean, sd = NegativeBinomial(distribution).mean_and_sd()
        function_sd = np.minimum(mean * np.sqrt(np.expm1(q)), sd)
        return Forecast(
            mean,
            sd,
            function_sd,
            np.sqrt(np.maximum(sd**2 - function_sd**2, 0.0)),
            prediction.probability,
            1.0 - prediction.inlier if robust else np.full(len(prediction.inlier), np.nan),
            prediction.status.astype(np.int64),
            distribution,
            np.empty((len(mean), 0)),
        )

    def build_distribution(
        self,
        mean: FloatArray,
        sd: FloatArray,
        calibration_state: FloatArray,
        update: CalibrationUpdate | None,
    ) -> FloatArray:
        """Build distributions of means mu and dispersions 1/alpha, updating the calibration."""
        plain = calibration_state.copy()
        plain[:, calibration.MEAN_SCALE_FACTOR] = 1.0
        if update is None:
            sd = sd * calibration_state[:, calibration.MEAN_SCALE_FACTOR]
        distribution = calibration.apply_calibration(plain, mean, sd)
        distribution[..., PARAM.kind] = NegativeBinomial.code
        if update is None or update.y is None:
            return distribution
        for j in range(len(self.targets)):
            y = update.y[:, j]
            rows = np.ascontiguousarray(distribution[:, j])
            y = np.where(NegativeBinomial.is_possible(y), y, np.nan)
            if update.mixed:
                calibration.update_count_mixture(calibration_state[j], y, rows)
            counts = NegativeBinomial(rows)
            u, none = counts.randomized_pit(y), counts.cdf(np.zeros(len(y)))
            calibration.update_count_intervals(
                calibration_state[j], y, u, none, update.tracked, rows
            )
            distribution[:, j] = rows
        return distribution

    def cold_start_distribution(self, mean: FloatArray, sd: FloatArray) -> FloatArray:
        """Build a negative binomial of this mean and sd."""
        mu = np.maximum(mean, 1e-9)
        spread = np.clip((sd**2 - mu) / mu**2, LEAST_DISPERSION, MOST_DISPERSION)
        distribution = calibration.apply_calibration(self.init_calibration(False), mu, spread)
        distribution[..., PARAM.kind] = NegativeBinomial.code
        return distribution

    def log_likelihood(self, prediction: Prediction, y: FloatArray) -> FloatArray:
        """Return the log mass of each row under one network's prediction, at least -50."""
        forecast = self.build_forecast(
            prediction, TargetScale(np.zeros(0), np.zeros(0)), False, self.init_calibration(False)
        )
        return np.asarray(np.maximum(log_density(forecast, y), -50.0))
