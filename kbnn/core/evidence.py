"""What a label says about the outputs, as a sequence of scalar measurements in output space.

The outputs before their activation are a ~ N(m, Q). A label is one measurement, or several, of
directions d'a. With v = d'Q d each amounts to two numbers, a pull and an information gamma:
    m += Q d pull,   Q -= gamma (Q d)(Q d)'.
Every output is linear in the weights near their mean, Cov(w, a) = G, so the weights follow:
    w += G b,   P -= (G B)(G B)',
where b and the columns of B collect the measurements in terms of the *prior* gain: with A = I at
first, b += A d pull, a new column sqrt(gamma) A d, A -= gamma (A d)(Q d)'. P stays positive
definite by construction, and no matrix is inverted.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kbnn.core import normal
from kbnn.core.constants import PROBIT_VAR, SMALLEST_VAR
from kbnn.core.normal import FloatArray


class OutputMoments(NamedTuple):
    """The outputs of one row before their activation."""

    mean: FloatArray
    cov: FloatArray  # of the function
    input_var: FloatArray  # what uncertain inputs add to each output's variance
    features: FloatArray  # [1, z] of the last hidden layer

    @property
    def var(self) -> FloatArray:
        """Variance of each output."""
        return self.inflated_var(1.0)

    def inflated_var(self, kappa: float) -> FloatArray:
        """The variance that predictions state: that of the function counts kappa times."""
        return kappa * np.maximum(np.diag(self.cov), 0.0) + self.input_var


class OutputEvidence:
    """The outputs while a label is worked in: moments m, Q and the evidence b, B so far."""

    def __init__(self, mean: FloatArray, cov: FloatArray, extra_var: FloatArray) -> None:
        self.mean, self.cov, self.extra_var = mean.copy(), cov.copy(), extra_var
        self.pull = np.zeros_like(mean)
        self.columns: list[FloatArray] = []
        self._gain = np.eye(len(mean))

    @property
    def root_information(self) -> FloatArray:
        """B, one column per measurement."""
        return np.array(self.columns).reshape(-1, len(self.mean)).T

    def project_moments(self, direction: FloatArray) -> tuple[float, float]:
        """Mean and variance of d'a, the variance including that of uncertain inputs."""
        var = max(float(direction @ self.cov @ direction), 0.0)
        return float(direction @ self.mean), var + float(direction**2 @ self.extra_var)

    def add_measurement(self, direction: FloatArray, pull: float, information: float) -> None:
        """Work in one measurement of d'a."""
        cov_d, gain_d = self.cov @ direction, self._gain @ direction
        self.mean += cov_d * pull
        self.pull += gain_d * pull
        self.columns.append(gain_d * np.sqrt(information))
        self.cov -= information * np.outer(cov_d, cov_d)
        self._gain -= information * np.outer(gain_d, cov_d)


def measure_real(outputs: OutputEvidence, o: int, target: float, noise_var: float) -> None:
    """Output o seen through noise r: pull = e/(v + r), gamma = 1/(v + r)."""
    direction = unit_vector(len(outputs.mean), o)
    mean, var = outputs.project_moments(direction)
    total = max(var + noise_var, SMALLEST_VAR)
    outputs.add_measurement(direction, (target - mean) / total, 1.0 / total)


def measure_probit(outputs: OutputEvidence, direction: FloatArray, weight: float) -> None:
    """d'a > 0 seen through Phi: with T^2 = 1/lambda^2 + v, u = d'm/T and rho = N(u)/Phi(u),
    pull = rho/T and gamma = rho (rho + u)/T^2.
    """
    mean, var = outputs.project_moments(direction)
    t = np.sqrt(PROBIT_VAR + var)
    u = mean / t
    rho = float(normal.hazard(u))
    information = min(max(rho * (rho + u), 0.0), 1.0) / (t * t)
    measure_weighted(outputs, direction, var, rho / t, information, weight)


def measure_weighted(
    outputs: OutputEvidence,
    direction: FloatArray,
    var: float,
    pull: float,
    information: float,
    weight: float,
) -> None:
    """A measurement that counts `weight` times: its Gaussian site has its precision multiplied.

    The site's variance is 1/gamma - v; with that over `weight`, gamma becomes
    weight gamma / (1 + (weight - 1) gamma v), and the pull changes in proportion.
    """
    rest = 1.0 + (weight - 1.0) * min(information * var, 1.0)
    factor = weight / max(rest, min(weight, 1.0))
    outputs.add_measurement(direction, pull * factor, information * factor)


def unit_vector(size: int, index: int) -> FloatArray:
    """The direction of one output."""
    direction = np.zeros(size)
    direction[index] = 1.0
    return direction
