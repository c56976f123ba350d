"""A positive target: a number above 0, learned through the link of kbnn.task.link."""

from __future__ import annotations

import numpy as np

from kbnn.core import tails
from kbnn.core.mixture import STATED
from kbnn.core.network import Prediction
from kbnn.core.normal import FloatArray
from kbnn.core.tails import UNIT, Told
from kbnn.task import link, logged
from kbnn.task.base import Scaled
from kbnn.task.logged import powers
from kbnn.task.numeric import first_impossible
from kbnn.task.real import Real
from kbnn.task.stated import POSITIVE

MOST_VARIANCE = 40.0
"""Of a logarithm: the mean of what is wider says nothing."""
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(32)
_SHARES = _WEIGHTS / np.sum(_WEIGHTS)


class Positive(Real):
    """Numbers above 0 whose size varies by factors: prices, durations, concentrations."""

    name = "positive"
    safest = differences = in_herds = False
    hasty = True
    title = "positive regression"
    words = "numbers above 0"
    possible = staticmethod(logged.possible)

    @property
    def noisy(self) -> bool:
        """Of what is learned, and not in units that could be given."""
        return False

    def noise_shown(
        self, learned: FloatArray, given: float | None, scaled: Scaled, known: FloatArray
    ) -> list[float]:
        """The noise at the center of what is learned, in the units of the target."""
        if not len(learned):
            return []
        targets = len(self.targets)
        level = np.sqrt(learned[:targets, 1] / learned[:targets, 0])
        return [
            float(sd)
            for sd in self.scale_shown(scaled._replace(scale=level * scaled.scale), known).scale
        ]

    def refuted(self, y: FloatArray) -> int:
        """The first row with another number."""
        return first_impossible(y, self.possible)

    def tails(self, mixed: bool, y: FloatArray | None = None) -> FloatArray:
        """With the unit of the link that the first targets call for."""
        known = super().tails(mixed)
        if y is not None:
            known[:, UNIT] = [link.unit_of(column) for column in y.T]
        return known

    def linked(self, y: FloatArray, known: FloatArray) -> FloatArray:
        """Through the link; what is not above 0 is no label."""
        return link.linked(y, known[:, UNIT])

    def unlinked(self, y: FloatArray, known: FloatArray) -> FloatArray:
        """The values; NaN where there was no label."""
        return np.where(np.isfinite(y), link.valued(y, known[:, UNIT]), np.nan)

    def presented(self, told: Told, made: Prediction) -> Told:
        """The mixture is one of what is learned."""
        told.stated[..., STATED.kind] = POSITIVE
        mean, sd = self.shown(told.stated)
        split = tails.parts(sd, made.function_var, made.noise_var)
        return Told(told.stated, mean, sd, *split)

    def early_stated(self, mean: FloatArray, sd: FloatArray) -> FloatArray:
        """A log-normal."""
        told = super().early_stated(mean, sd)
        told[..., STATED.kind] = POSITIVE
        return told

    def shown(self, told: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Of the ordinary values; no mean is above the largest value seen."""
        place, unit, most = (told[..., at] for at in (STATED.place, STATED.unit, STATED.most))
        var = np.minimum(told[..., STATED.spread] ** 2, MOST_VARIANCE)
        mean, sd = powers(place + 0.5 * var), np.zeros_like(place)
        if np.any(unit > 0.0):
            z = place[..., None] + np.sqrt(var)[..., None] * _NODES
            soft = link.valued(z, np.ones(1))  # in units: squares of values may be beyond all
            first = np.sum(soft * _SHARES, axis=-1)
            var_soft = np.sum((soft - first[..., None]) ** 2 * _SHARES, axis=-1)
            sd = link.times(unit, np.sqrt(var_soft))
            mean = np.where(unit > 0.0, link.times(unit, first), mean)
        seen = np.isfinite(most)
        mean = np.where(seen, np.minimum(mean, link.valued(np.where(seen, most, 0.0), unit)), mean)
        return mean, np.where(unit > 0.0, sd, link.times(np.sqrt(np.expm1(var)), mean))
