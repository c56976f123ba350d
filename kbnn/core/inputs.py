"""Missing and noisy inputs: the conditional Gaussian of what is not known exactly.

A running Gaussian (mu, Sigma) of the standardised inputs starts at (0, I), which counts as one row.
Given x with measurement variances R (0 exact, infinite missing) the network receives the moments of
    m = mu + Sigma (Sigma + R)^-1 (x - mu),   V = Sigma - Sigma (Sigma + R)^-1 Sigma,
computed one present column after another as scalar Kalman steps: no matrix is inverted. The network
takes the diagonal of V (its inputs are modelled as independent: an approximation).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kbnn.core.constants import SMALLEST_VAR
from kbnn.core.normal import FloatArray


class InputMoments(NamedTuple):
    """Mean and covariance of one row's inputs; `cov` is None where all are exact."""

    mean: FloatArray
    cov: FloatArray | None

    @property
    def var(self) -> FloatArray:
        """Variance of each input."""
        return np.zeros_like(self.mean) if self.cov is None else np.diag(self.cov).copy()


def condition_inputs(
    mu: FloatArray, sigma: FloatArray, x: FloatArray, x_var: FloatArray
) -> InputMoments:
    """The inputs of one row given what was measured; NaN in x is missing."""
    if np.all(np.isfinite(x)) and not np.any(x_var > 0.0):
        return InputMoments(x, None)
    m, v = mu.copy(), sigma.copy()
    for j in np.flatnonzero(np.isfinite(x) & np.isfinite(x_var)):
        total = v[j, j] + x_var[j]
        if total <= SMALLEST_VAR:
            continue
        gain = v[:, j] / total
        m += gain * (x[j] - m[j])
        v -= np.outer(gain, gain) * total
    exact = np.isfinite(x) & (x_var <= 0.0)
    m[exact] = x[exact]
    v[exact, :] = 0.0
    v[:, exact] = 0.0
    np.fill_diagonal(v, np.maximum(np.diag(v), 0.0))
    return InputMoments(m, v)


def update_input_moments(
    mu: FloatArray, sigma: FloatArray, rows: int, inputs: InputMoments
) -> None:
    """Count a row's inputs into (mu, Sigma) in place; `rows` were counted before it.

    Adding V keeps Sigma from shrinking when values are missing.
    """
    k = rows + 2.0
    delta = inputs.mean - mu
    mu += delta / k
    spread = np.outer(delta, delta) * ((k - 1.0) / k)
    if inputs.cov is not None:
        spread += inputs.cov
    sigma += (spread - sigma) / k
