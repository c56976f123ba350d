"""Missing and noisy inputs: the conditional Gaussian of what is not known exactly.

A running Gaussian (mu, Sigma) of the standardised inputs starts at (0, I), which counts as one row.
Given x with measurement variances R (0 exact, infinite missing) the network receives the moments of
    m = mu + Sigma (Sigma + R)^-1 (x - mu),   V = Sigma - Sigma (Sigma + R)^-1 Sigma,
computed one present column after another as scalar Kalman steps: no matrix is inverted. The network
takes the diagonal of V (its inputs are modelled as independent: an approximation).

Many inputs: leading directions joint, the rest diagonal.

A wide network keeps its inputs in units of its own, x <- gain x - shift, and sees
    s = V' x,   r = x - V s,
V the leading directions of the first rows. The weights of s are correlated as in a group, those of
r are loose: a row costs O(d K) instead of O(d^2).

Missing and noisy inputs have the same structure, Sigma ~ V L V' + D with a full L and a diagonal D:
    x = mu + V t + e,   t ~ N(0, L),   e ~ N(0, D).
With W = 1/(D + R) over what was measured, A = V' W V and L = C C' the directions are
    t | x ~ N(S V' W (x - mu), S),   S = C (I + C' A C)^-1 C',
in O(d K^2); what is missing is V t with variance D + V S V', what is noisy lies in between.
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


OVERSAMPLING = 8
POWER_ITERATIONS = 8
MAX_VIEW_CHANGE = 8.0


class WideInputs(NamedTuple):
    """What the network sees of one row, s and r, and the inputs in its units; with variances."""

    mean: FloatArray
    var: FloatArray
    x: FloatArray
    x_var: FloatArray


def condition_wide_inputs(
    view: FloatArray, mu: FloatArray, spread: FloatArray, x: FloatArray, x_var: FloatArray
) -> WideInputs:
    """The inputs of one row given what was measured; NaN in x is missing."""
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
    """Mean and variance of every input given those that were measured."""
    low, d = _split_covariance(spread, v.shape[1])
    d = np.maximum(d, SMALLEST_SPREAD)
    known = np.isfinite(x) & np.isfinite(noise)
    w = np.where(known, 1.0 / (d + np.where(known, noise, 0.0)), 0.0)
    miss = np.where(known, x - mu, 0.0)
    c = np.linalg.cholesky(low + SMALLEST_SPREAD * np.eye(len(low)))
    inner = np.eye(len(low)) + c.T @ ((v * w[:, None]).T @ v) @ c
    half = np.linalg.solve(np.linalg.cholesky(inner), c.T)
    s = half.T @ half
    said = mu + v @ (s @ (v.T @ (w * miss)))
    doubt = np.sum((v @ s) * v, axis=1)
    share = d * w  # of what was measured in what is believed; 0 where nothing was
    mean = np.where(known, said + share * (np.where(known, x, 0.0) - said), said)
    var = (1.0 - share) * d + (1.0 - share) ** 2 * doubt
    return np.where(exact, x, mean), np.where(exact, 0.0, var)


def update_wide_inputs(
    view: FloatArray, mu: FloatArray, spread: FloatArray, rows: int, seen: WideInputs
) -> None:
    """Count a row's inputs into (mu, L, D) in place; `rows` were counted before it."""
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
    """L as a matrix and D, a view."""
    size = directions * (directions + 1) // 2
    return unpack_triangle(spread[:size], directions), spread[size:]


def leading_directions(
    rows: FloatArray, count: int = DIRECTIONS, limit: float = INPUT_LIMIT
) -> FloatArray:
    """The leading directions (inputs, count) of standardised rows, missing values at their mean.

    Found by turning a random frame towards them a few times. Directions beyond what the rows have
    are 0; the largest entry of each is positive.
    """
    z = np.clip(np.nan_to_num(rows), -limit, limit)  # or a single outlier would be a direction
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
    """Whether an input's own units have become others than those of its first rows."""
    gain, shift = view[:, :1], view[:, 1:2]
    return bool(
        np.any(
            (gain > MAX_VIEW_CHANGE)
            | (gain < 1.0 / MAX_VIEW_CHANGE)
            | (np.abs(shift) > MAX_VIEW_CHANGE)
        )
    )
