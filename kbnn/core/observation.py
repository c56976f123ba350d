"""What a label says about the outputs, as a sequence of scalar measurements in output space.

The outputs before their activation are a ~ N(m, Q). A label is one measurement, or several, of
directions d'a. With v = d'Q d each amounts to two numbers, a pull and an information gamma:
    m += Q d pull,   Q -= gamma (Q d)(Q d)'.
Every output is linear in the weights near their mean, Cov(w, a) = G, so the weights follow:
    w += G b,   P -= (G B)(G B)',
where b and the columns of B collect the measurements in terms of the *prior* gain: with A = I at
first, b += A d pull, a new column sqrt(gamma) A d, A -= gamma (A d)(Q d)'. P stays positive
definite by construction, and no matrix is inverted.

Measurements of one label:
    real         each observed output, noise r:  pull = e/(v + r),  gamma = 1/(v + r)
    two classes  the sign of a seen through Phi(lambda a): exact moments of the posterior
    classes      "c beats k" for every rival k in order, each a probit measurement of a_c - a_k
    sigmoid      the paper's way: a Gaussian label 0 or 1 on z = sigmoid(a)
"""

from __future__ import annotations

import numpy as np

from kbnn.core import normal
from kbnn.core.activations import ACTIVATIONS, LAMBDA
from kbnn.core.normal import FloatArray

PROBIT_VAR = float(1.0 / LAMBDA**2)
"""Phi(lambda a) is a sign seen through Gaussian noise of this variance."""

_SMALLEST_VAR = 1e-12


class Measured:
    """The outputs while a label is worked in: moments m, Q and the evidence b, B so far."""

    def __init__(self, mean: FloatArray, cov: FloatArray, extra_var: FloatArray) -> None:
        self.mean, self.cov, self.extra_var = mean.copy(), cov.copy(), extra_var
        self.pull = np.zeros_like(mean)
        self.columns: list[FloatArray] = []
        self._gain = np.eye(len(mean))

    @property
    def spread(self) -> FloatArray:
        """B, one column per measurement."""
        return np.array(self.columns).reshape(-1, len(self.mean)).T

    def moments(self, direction: FloatArray) -> tuple[float, float]:
        """Mean and variance of d'a, the variance including that of uncertain inputs."""
        var = max(float(direction @ self.cov @ direction), 0.0)
        return float(direction @ self.mean), var + float(direction**2 @ self.extra_var)

    def measure(self, direction: FloatArray, pull: float, information: float) -> None:
        """Work in one measurement of d'a."""
        cov_d, gain_d = self.cov @ direction, self._gain @ direction
        self.mean += cov_d * pull
        self.pull += gain_d * pull
        self.columns.append(gain_d * np.sqrt(information))
        self.cov -= information * np.outer(cov_d, cov_d)
        self._gain -= information * np.outer(gain_d, cov_d)


def gaussian(
    outputs: Measured, target: FloatArray, noise_var: FloatArray, least_noise: float
) -> None:
    """Real labels; outputs of infinite noise were not observed.

    `least_noise` is the least share of an output's variance that counts as noise.
    """
    for o in np.flatnonzero(np.isfinite(noise_var)):
        direction = _unit(len(target), int(o))
        mean, var = outputs.moments(direction)
        noise = max(noise_var[o], least_noise * outputs.cov[o, o])
        total = max(var + noise, _SMALLEST_VAR)
        outputs.measure(direction, (target[o] - mean) / total, 1.0 / total)


def bernoulli(outputs: Measured, label: float, weight: float) -> None:
    """A label 0 or 1 with p(1|a) = Phi(lambda a)."""
    _probit(outputs, np.array([1.0 if label > 0.5 else -1.0]), weight)


def categorical(outputs: Measured, label: int, weight: float) -> None:
    """Class `label` beats every rival, one probit measurement after another."""
    classes = len(outputs.mean)
    for rival in range(classes):
        if rival != label:
            _probit(outputs, _unit(classes, label) - _unit(classes, rival), weight)


def sigmoid(outputs: Measured, label: float, noise_var: float, weight: float) -> None:
    """S = Var z + noise, h = E z'(a): pull = h (y - E z)/S, gamma = h^2/S."""
    direction = np.ones(1)
    mean, var = outputs.moments(direction)
    z = ACTIVATIONS["sigmoid"](np.array([mean]), np.array([var]))
    h = float(z.cov[0]) / max(var, _SMALLEST_VAR)
    total = max(float(z.var[0]) + noise_var, _SMALLEST_VAR)
    _weighted(
        outputs, direction, var, h * (label - float(z.mean[0])) / total, h * h / total, weight
    )


def _probit(outputs: Measured, direction: FloatArray, weight: float) -> None:
    """d'a > 0 seen through Phi: with T^2 = 1/lambda^2 + v, u = d'm/T and rho = N(u)/Phi(u),
    pull = rho/T and gamma = rho (rho + u)/T^2.
    """
    mean, var = outputs.moments(direction)
    t = np.sqrt(PROBIT_VAR + var)
    u = mean / t
    rho = float(normal.hazard(u))
    information = min(max(rho * (rho + u), 0.0), 1.0) / (t * t)
    _weighted(outputs, direction, var, rho / t, information, weight)


def _weighted(
    outputs: Measured,
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
    factor = weight / (1.0 + (weight - 1.0) * min(information * var, 1.0))
    outputs.measure(direction, pull * factor, information * factor)


def _unit(size: int, index: int) -> FloatArray:
    direction = np.zeros(size)
    direction[index] = 1.0
    return direction


def bernoulli_probabilities(outputs: Measured) -> FloatArray:
    """P(0) and P(1) = Phi(mean / sqrt(1/lambda^2 + var))."""
    mean, var = outputs.moments(np.ones(1))
    u = mean / np.sqrt(PROBIT_VAR + var)
    return np.exp(normal.log_cdf(np.array([-u, u])))


def class_probabilities(outputs: Measured) -> FloatArray:
    """p_k ~ prod_j Phi((m_k - m_j)/sqrt(1/lambda^2 + Var(a_k - a_j))), normalised.

    Deterministic, and for two classes exactly the probit probability.
    """
    classes = len(outputs.mean)
    log_p = np.zeros(classes)
    for k in range(classes):
        for j in range(classes):
            if j != k:
                mean, var = outputs.moments(_unit(classes, k) - _unit(classes, j))
                log_p[k] += float(normal.log_cdf(mean / np.sqrt(PROBIT_VAR + var)))
    p = np.exp(log_p - np.max(log_p))
    return np.asarray(p / np.sum(p))
