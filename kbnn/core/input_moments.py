"""Missing and noisy inputs: the conditional Gaussian of inputs that are not known exactly.

A running Gaussian (mu, Sigma) of the standardised inputs starts at (0, I), which counts as one row.
Given x with measurement variances R (0 exact, infinite missing) the network receives the moments

    m = mu + Sigma (Sigma + R)^-1 (x - mu),   V = Sigma - Sigma (Sigma + R)^-1 Sigma

computed column by column as scalar Kalman steps, without inverting a matrix. The network uses the
diagonal of V (its inputs are modelled as independent, which is an approximation).

With many inputs ("wide"), leading directions are joint and the rest diagonal. A wide network keeps
its inputs in units of its own, x <- gain x - shift, and sees

    s = V' x,   r = x - V s

with V the leading directions of the first rows. The weights of s are correlated as in a group,
those of r are independent: a row costs O(d K) instead of O(d^2). Missing and noisy inputs have the
same structure, Sigma ~ V L V' + D with a full L and a diagonal D:

    x = mu + V t + e,   t ~ N(0, L),   e ~ N(0, D)

With W = 1/(D + R) over the measured inputs, A = V' W V and L = C C' the directions are

    t | x ~ N(S V' W (x - mu), S),   S = C (I + C' A C)^-1 C'

in O(d K^2); a missing input is V t with variance D + V S V', a noisy one lies in between.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kbnn.array_types import FloatArray
from kbnn.core.config import DIRECTIONS, INPUT_LIMIT
from kbnn.core.constants import SMALLEST_SPREAD, SMALLEST_VAR
from kbnn.core.layout import pack_triangle, unpack_triangle


class InputMoments(NamedTuple):
    """Mean and covariance of one row's inputs; `cov` is None if all are exact."""

    mean: FloatArray
    cov: FloatArray | None

    @property
    def var(self) -> FloatArray:
        """Variance of each input."""
        return np.zeros_like(self.mean) if self.cov is None else np.diag(self.cov).copy()


def condition_inputs(
    mu: FloatArray, sigma: FloatArray, x: FloatArray, x_var: FloatArray
) -> InputMoments:
    """Return the moments of one row's inputs given the measured ones; NaN in x is missing."""
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
    """Add a row's inputs to (mu, Sigma) in place, after `rows` rows.

    Adding V keeps Sigma from shrinking when values are missing.
    """
    k = rows + 2.0
    delta = inputs.mean - mu
    mu += delta / k
    spread = np.outer(delta, delta) * ((k - 1.0) / k)
    if inputs.cov is not None:
        spread += inputs.cov
    sigma += (spread - sigma) / k


OVERSAMPLING = 8
POWER_ITERATIONS = 8
MAX_VIEW_CHANGE = 8.0


class WideInputs(NamedTuple):
    """What the network sees of one row, s and r, and the inputs in its units, with variances."""

    mean: FloatArray
    var: FloatArray
    x: FloatArray
    x_var: FloatArray


def condition_wide_inputs(
    view: FloatArray, mu: FloatArray, spread: FloatArray, x: FloatArray, x_var: FloatArray
) -> WideInputs:
    """Return the moments of one row's inputs given the measured ones; NaN in x is missing."""
    gain, shift, v = view[:, 0], view[:, 1], view[:, 2:]
    x, noise = gain * x - shift, gain * gain * x_var
    exact = np.isfinite(x) & (noise <= 0.0)
    var = np.zeros_like(x)
    if not np.all(exact):
        x, var = _impute_inputs(v, mu, spread, x, noise, exact)
    s = v.T @ x
    mean = np.concatenate([s, x - v @ s])
    return WideInputs(mean, np.concatenate([(v**2).T @ var, var]), x, var)


def _impute_inputs(
    v: FloatArray,
    mu: FloatArray,
    spread: FloatArray,
    x: FloatArray,
    noise: FloatArray,
    exact: NDArray[np.bool_],
) -> tuple[FloatArray, FloatArray]:
    """Return mean and variance of every input given the measured ones."""
    low, d = _split_covariance(spread, v.shape[1])
    d = np.maximum(d, SMALLEST_SPREAD)
    known = np.isfinite(x) & np.isfinite(noise)
    w = np.where(known, 1.0 / (d + np.where(known, noise, 0.0)), 0.0)
    miss = np.where(known, x - mu, 0.0)
    c = np.linalg.cholesky(low + SMALLEST_SPREAD * np.eye(len(low)))
    inner = np.eye(len(low)) + c.T @ ((v * w[:, None]).T @ v) @ c
    half = np.linalg.solve(np.linalg.cholesky(inner), c.T)
    s = half.T @ half
    predicted = mu + v @ (s @ (v.T @ (w * miss)))
    doubt = np.sum((v @ s) * v, axis=1)
    share = d * w  # weight of the measurement; 0 where the input is missing
    mean = np.where(known, predicted + share * (np.where(known, x, 0.0) - predicted), predicted)
    var = (1.0 - share) * d + (1.0 - share) ** 2 * doubt
    return np.where(exact, x, mean), np.where(exact, 0.0, var)


def update_wide_inputs(
    view: FloatArray, mu: FloatArray, spread: FloatArray, rows: int, seen: WideInputs
) -> None:
    """Add a row's inputs to (mu, L, D) in place, after `rows` rows."""
    k, v = rows + 2.0, view[:, 2:]
    delta = seen.x - mu
    mu += delta / k
    e = v.T @ delta
    rest = delta - v @ e
    low, d = _split_covariance(spread, v.shape[1])
    more = np.outer(e, e) * ((k - 1.0) / k) + np.diag(seen.var[: len(e)])
    size = len(spread) - len(d)
    spread[:size] += pack_triangle(more - low) / k
    d += (rest**2 * ((k - 1.0) / k) + seen.x_var - d) / k


def _split_covariance(spread: FloatArray, directions: int) -> tuple[FloatArray, FloatArray]:
    """Return L as a matrix, and D as a view."""
    size = directions * (directions + 1) // 2
    return unpack_triangle(spread[:size], directions), spread[size:]


def leading_directions(
    rows: FloatArray, count: int = DIRECTIONS, limit: float = INPUT_LIMIT
) -> FloatArray:
    """Return the leading directions (inputs, count) of standardised rows; missing values are 0.

    They are found by randomised subspace iteration. Directions beyond the rank of the rows are 0;
    the largest entry of each is positive.
    """
    z = np.clip(np.nan_to_num(rows), -limit, limit)  # a single outlier would become a direction
    z = z - np.mean(z, axis=0)
    frame = np.random.default_rng(0).standard_normal((z.shape[1], count + OVERSAMPLING))
    for _ in range(POWER_ITERATIONS):
        frame = np.linalg.qr(z.T @ (z @ frame))[0]
    values, vectors = np.linalg.eigh(frame.T @ (z.T @ (z @ frame)))
    values, top = values[::-1][:count], (frame @ vectors[:, ::-1])[:, :count]
    top = np.where(values > 1e-9 * max(float(values[0]), 1e-300), top, 0.0)
    top *= np.where(top[np.argmax(np.abs(top), axis=0), np.arange(top.shape[1])] < 0.0, -1.0, 1.0)
    return np.pad(top, ((0, 0), (0, count - top.shape[1])))


def is_view_outdated(view: FloatArray) -> bool:
    """Return whether an input's units differ much from those of its first rows."""
    gain, shift = view[:, :1], view[:, 1:2]
    return bool(
        np.any(
            (gain > MAX_VIEW_CHANGE)
            | (gain < 1.0 / MAX_VIEW_CHANGE)
            | (np.abs(shift) > MAX_VIEW_CHANGE)
        )
    )
