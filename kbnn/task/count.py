"""A count: a negative binomial whose rate is an exponential of the network's output.

The network says mean and variance of the logarithm of the rate, m and q, and a dispersion phi (see
kbnn.core.counts). Stated is the negative binomial with the first two moments of all that,
mu = e^(m + q/2) and 1/alpha = e^q (1 + phi) - 1, and outliers (kbnn.core.count_tails).
"""

from __future__ import annotations

import numpy as np

from kbnn.core import count_tails, tails
from kbnn.core.constants import (
    COUNT_RATE,
    LEAST_DISPERSION,
    LEAST_RATE_VAR,
    LOG_RATE_LIMIT,
    MOST_DISPERSION,
    MOST_RATE_VAR,
)
from kbnn.core.counts import dispersion
from kbnn.core.mixture import STATED
from kbnn.core.network import Prediction
from kbnn.core.normal import FloatArray
from kbnn.task import counted
from kbnn.task.base import Described, Field, Following, Line, Scaled, Wanted
from kbnn.task.forecast import Forecast
from kbnn.task.numeric import Numeric, first_impossible
from kbnn.task.stated import COUNT
from kbnn.wording import number

FAR = 20.0
"""Medians beyond which a count says nothing of where a network should begin."""


class Count(Numeric):
    """Numbers of things: 0, 1, 2, .."""

    name = "count"
    observation = "count"
    lines = (
        *Numeric.lines[:-1],
        Line("dispersion", 12, lambda point, noise: number(noise)),
    )
    words = "whole numbers from 0 on"
    possible = staticmethod(counted.possible)

    def __init__(self, schema: Described) -> None:
        super().__init__(schema)
        self.scaled = 0

    def noise_shown(
        self, learned: FloatArray, given: float | None, scaled: Scaled, known: FloatArray
    ) -> list[float]:
        """The dispersion phi: the variance of a count of mean mu is mu + phi mu^2."""
        return [dispersion((float(a), float(b))) for a, b in learned]

    def refuted(self, y: FloatArray) -> int:
        """The first row with another number."""
        return first_impossible(y, self.possible)

    def output_mean(self, y: FloatArray) -> FloatArray:
        """The logarithm of the mean, seen through the link; no count is far beyond the others."""
        known = np.where(np.isfinite(y) & (y >= 0.0), y, np.nan)
        if not len(known):
            return np.zeros(y.shape[1])
        seen = np.where(np.isfinite(known).any(axis=0), known, 0.0)
        most = FAR * (1.0 + np.nanmedian(seen, axis=0))
        total = np.nansum(np.minimum(known, most), axis=0)
        return np.asarray(
            np.log((total + 0.5) / (np.isfinite(known).sum(axis=0) + 0.5)) / COUNT_RATE
        )

    def tails(self, mixed: bool, y: FloatArray | None = None) -> FloatArray:
        """As many outliers as inference reckons with."""
        return count_tails.begin(len(self.targets), mixed)

    def forecast(
        self,
        made: Prediction,
        scaled: Scaled,
        robust: bool,
        known: FloatArray,
        following: Following | None = None,
    ) -> Forecast:
        """What is stated, and the parts of its spread that more rows would and would not mend."""
        m = np.clip(COUNT_RATE * made.mean, -LOG_RATE_LIMIT, LOG_RATE_LIMIT)
        q = np.clip(COUNT_RATE**2 * made.function_var, LEAST_RATE_VAR, MOST_RATE_VAR)
        phi = np.clip(made.noise_var, LEAST_DISPERSION, MOST_DISPERSION)
        mu = np.exp(np.minimum(m + 0.5 * q, LOG_RATE_LIMIT))
        told = self.stated(mu, np.exp(q) * (1.0 + phi) - 1.0, known, following)
        mean, sd = self.shown(told)
        function_sd = np.minimum(mean * np.sqrt(np.expm1(q)), sd)
        return Forecast(
            mean,
            sd,
            function_sd,
            np.sqrt(np.maximum(sd**2 - function_sd**2, 0.0)),
            made.probability,
            1.0 - made.inlier if robust else np.full(len(made.inlier), np.nan),
            made.status.astype(np.int64),
            told,
        )

    def stated(
        self, mean: FloatArray, sd: FloatArray, known: FloatArray, following: Following | None
    ) -> FloatArray:
        """The rows of means mu and dispersions 1/alpha, as they follow what came true."""
        plain = known.copy()
        plain[:, tails.MEAN_WIDTH] = 1.0
        if following is None:
            sd = sd * known[:, tails.MEAN_WIDTH]
        told = tails.stated(plain, mean, sd)
        told[..., STATED.kind] = COUNT
        if following is None or following.y is None:
            return told
        for j in range(len(self.targets)):
            y = following.y[:, j]
            rows = np.ascontiguousarray(told[:, j])
            y = np.where(counted.possible(y) > 0.0, y, np.nan)
            if following.mixed:
                count_tails.mix(known[j], y, rows)
            u, none = counted.drawn(y, rows), counted.cdf(np.zeros(len(y)), rows)
            count_tails.follow(known[j], y, u, none, following.tracked, rows)
            told[:, j] = rows
        return told

    def early_stated(self, mean: FloatArray, sd: FloatArray) -> FloatArray:
        """A negative binomial of that mean and spread."""
        mu = np.maximum(mean, 1e-9)
        spread = np.clip((sd**2 - mu) / mu**2, LEAST_DISPERSION, MOST_DISPERSION)
        told = tails.stated(self.tails(False), mu, spread)
        told[..., STATED.kind] = COUNT
        return told

    def shown(self, told: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Mean and standard deviation; no mean is above the largest count seen."""
        mu, most = told[..., STATED.place], told[..., STATED.most]
        mean = np.where(np.isfinite(most), np.minimum(mu, np.maximum(most, 0.5)), mu)
        return mean, np.sqrt(mean + mean**2 * told[..., STATED.spread])

    def log_likelihood(self, made: Prediction, y: FloatArray) -> FloatArray:
        """The mass of what a member states, none less than e^-50."""
        said = self.forecast(made, Scaled(np.zeros(0), np.zeros(0)), False, self.tails(False))
        return np.asarray(np.maximum(self.log_density(said, y), -50.0))

    def fields(self, wanted: Wanted) -> list[Field]:
        """The probability of none at all is added."""
        made = super().fields(wanted)
        for j, target in enumerate(self.targets):
            suffix = f"_{target}" if len(self.targets) > 1 else ""
            made.append(
                Field(
                    f"p_0{suffix}",
                    False,
                    lambda f, j=j: counted.cdf(np.zeros(len(f.mean)), f.stated[:, j]),  # type: ignore[misc]  # bound now
                )
            )
        return made
