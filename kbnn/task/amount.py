"""An amount: exactly 0 in many rows, else a number above 0; rain, sales, claims, seconds of calls.

The network has two outputs for each target. The first is that of a positive target
(kbnn.task.positive) and learns from rows with an amount alone; the second says whether there is
any, as of two classes. What is learned is the link's z, and -inf, its limit at 0, where there is
none. Stated is the product of both (kbnn.task.two_part).

Two rows are kept of the tails of each target: how amounts are spread, and then the intervals, which
are those of the whole.
"""

from __future__ import annotations

import numpy as np

from kbnn.core import count_tails, tails
from kbnn.core.activations import ACTIVATIONS
from kbnn.core.constants import LEAST_SHARE, PRESENCE_RATE, PROBIT_VAR
from kbnn.core.mixture import STATED
from kbnn.core.network import Prediction
from kbnn.core.normal import FloatArray, scores
from kbnn.core.observation import present
from kbnn.core.tails import FIRST_MEAN, MEAN_WIDTH, UNIT
from kbnn.task import link, two_part
from kbnn.task.base import Early, Field, Following, Quantity, Scaled, Wanted
from kbnn.task.early_numbers import EarlyAmounts
from kbnn.task.forecast import Forecast
from kbnn.task.positive import Positive
from kbnn.task.stated import AMOUNT

UNKNOWN = 1.0
"""The spread of what is learned where all amounts so far were the same: about a factor e."""


class Amount(Positive):
    """Numbers from 0 on, many of them 0."""

    name = "amount"
    title = ""
    words = "0 and numbers above it"
    possible = staticmethod(two_part.possible)
    observation = "amount"

    def outputs(self, y: FloatArray, known: int = 0) -> int:
        """Of each target how much, then of each whether there is any."""
        return 2 * len(self.targets)

    def fits(self, outputs: int) -> bool:
        """As many."""
        return outputs == 2 * len(self.targets)

    def output_mean(self, y: FloatArray) -> FloatArray:
        """How often there is an amount, seen through the link."""
        known, some = np.sum(~np.isnan(y), axis=0), np.sum(np.isfinite(y), axis=0)
        share = (some + 0.5) / (known + 1.0)
        side = np.where(share < 0.5, 1.0, -1.0)
        u = side * scores(np.minimum(share, 1.0 - share))
        whether = u * np.sqrt(PROBIT_VAR + PRESENCE_RATE**2) / PRESENCE_RATE
        return np.concatenate((np.zeros(len(share)), whether))

    def tails(self, mixed: bool, y: FloatArray | None = None) -> FloatArray:
        """Of the amounts, then of the whole."""
        amounts = super().tails(mixed, y)
        whole = tails.blank(len(self.targets), False)
        whole[:, UNIT] = amounts[:, UNIT]
        return np.concatenate((amounts, whole))

    def finest(self, known: FloatArray) -> float:
        """What is rounded to 0, of the finest target."""
        return float(np.min(two_part.finest(known[:, UNIT])))

    def linked(self, y: FloatArray, known: FloatArray) -> FloatArray:
        """Through the link, -inf where there is none; what is below 0 is no label."""
        z = link.linked(y, known[: len(self.targets), UNIT])
        return np.where(y == 0.0, -np.inf, z)

    def unlinked(self, y: FloatArray, known: FloatArray) -> FloatArray:
        """The values; NaN where there was no label."""
        values = super().unlinked(y, known[: len(self.targets)])
        return np.where(y == -np.inf, 0.0, values)

    def forecast(
        self,
        made: Prediction,
        scaled: Scaled,
        robust: bool,
        known: FloatArray,
        following: Following | None = None,
    ) -> Forecast:
        """Both parts together, and what is unknown of either."""
        t = len(self.targets)
        amounts, whether = _cut(made, slice(0, t)), _cut(made, slice(t, None))
        plain = None if following is None else following._replace(tracked=False)
        said = super().forecast(amounts, scaled, robust, known[:t], plain)
        rows = said.stated
        none = present(-whether.mean, whether.function_var)
        rows[..., STATED.kind] = AMOUNT
        rows[:, scaled.scale == 0.0, STATED.spread] = UNKNOWN
        rows[..., STATED.none] = np.clip(none, LEAST_SHARE, 1.0 - LEAST_SHARE)
        rows[..., STATED.gain : STATED.most] = known[t:, FIRST_MEAN:MEAN_WIDTH]
        if following is not None and following.y is not None:
            self._track(known[t:], rows, following.y, following.tracked)
        mean, sd = self.shown(rows)
        much, spread = super().shown(rows)
        share = np.divide(said.function_sd, spread, out=np.zeros_like(sd), where=spread > 0.0)
        whether_sd = np.sqrt(_presence_var(whether))
        function_sd = np.hypot(whether_sd * much, (1.0 - rows[..., STATED.none]) * share * spread)
        function_sd = np.minimum(function_sd, sd)
        known_share = np.divide(function_sd, sd, out=np.zeros_like(sd), where=sd > 0.0)
        return said._replace(
            mean=mean,
            sd=sd,
            function_sd=function_sd,
            noise_sd=sd * np.sqrt(1.0 - known_share**2),
        )

    def _track(self, known: FloatArray, told: FloatArray, z: FloatArray, tracked: bool) -> None:
        """Write the gains into what is stated, and let them follow what came true."""
        z = np.where(z == np.inf, np.nan, z)
        y = np.where(z == -np.inf, 0.0, link.valued(z, known[:, UNIT]))
        for j in range(len(self.targets)):
            rows = np.ascontiguousarray(told[:, j])
            u = two_part.drawn(y[:, j], rows)
            none = np.ascontiguousarray(rows[:, STATED.none])
            seen = np.ascontiguousarray(z[:, j])
            count_tails.follow(known[j], seen, u, none, tracked, rows)
            told[:, j] = rows

    def shown(self, told: FloatArray) -> tuple[FloatArray, FloatArray]:
        """With w = 1 - p_0 and mean M and variance V of an amount, w M and w V + w p_0 M^2."""
        much, spread = super().shown(told)
        none = told[..., STATED.none]
        sd = np.sqrt(1.0 - none) * np.hypot(spread, np.sqrt(none) * much)
        return (1.0 - none) * much, sd

    def early(self) -> Early:
        """The share of zeros among the rows before, and mean and spread of the others."""
        return EarlyAmounts(self)

    def early_stated(self, mean: FloatArray, sd: FloatArray) -> FloatArray:
        """A log-normal, and something at all."""
        told = tails.stated(self.tails(False)[: len(self.targets)], mean, sd)
        told[..., STATED.kind] = AMOUNT
        return told

    def log_likelihood(self, made: Prediction, y: FloatArray) -> FloatArray:
        """Whether there is any, and how much."""
        t = len(self.targets)
        whether = _cut(made, slice(t, None))
        much = super().log_likelihood(_cut(made, slice(0, t)), y)
        side = np.where(np.isfinite(y), 1.0, -1.0)
        p = np.log(np.maximum(present(side * whether.mean, whether.function_var), LEAST_SHARE))
        return np.asarray(much + np.sum(np.where(y < np.inf, p, 0.0), axis=1))

    def fields(self, wanted: Wanted) -> list[Field]:
        """The probability of none at all is added."""
        made = super().fields(wanted)
        for j, target in enumerate(self.targets):
            suffix = f"_{target}" if len(self.targets) > 1 else ""
            made.append(
                Field(f"p_0{suffix}", False, lambda f, j=j: f.stated[:, j, STATED.none])  # type: ignore[misc]  # bound now
            )
        return made

    def quantities(self, outputs: int) -> list[Quantity]:
        """The predicted mean of each target, then the probability that it is not 0."""
        return super().quantities(outputs) + [
            Quantity(
                f"{name} > 0",
                f"the probability of {name} > 0",
                "probability",
                lambda f, j=j: 1.0 - f.stated[:, j, STATED.none],  # type: ignore[misc]  # bound now
                None,
            )
            for j, name in enumerate(self.targets)
        ]


def _cut(made: Prediction, outputs: slice) -> Prediction:
    """What is predicted of some outputs."""
    parts = made.mean, made.function_var, made.noise_var
    mean, function_var, noise_var = (np.ascontiguousarray(part[:, outputs]) for part in parts)
    return made._replace(mean=mean, function_var=function_var, noise_var=noise_var)


def _presence_var(whether: Prediction) -> FloatArray:
    """The variance that doubt about the network gives to the probability of an amount."""
    mean, var = PRESENCE_RATE * whether.mean, PRESENCE_RATE**2 * whether.function_var
    found = ACTIVATIONS["sigmoid"].moments(mean.ravel(), np.maximum(var.ravel(), 1e-12))
    return np.asarray(np.maximum(found.var, 0.0).reshape(mean.shape))
