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

To watch inputs for anomalies, `follow_inputs` predicts each one from the others under a running
Gaussian of its own, in the units of the data. With P the inverse of the covariance,

    x_j | others ~ N(x_j - (P (x - mu))_j / P_jj, 1 / P_jj)

The Gaussian is updated after every MOMENT_ROWS rows, so that results do not depend on batches.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kbnn.array_types import FloatArray
from kbnn.core.config import DIRECTIONS, INPUT_LIMIT
from kbnn.core.constants import SMALLEST_SPREAD, SMALLEST_VAR
from kbnn.core.layout import multiply, pack_triangle, unpack_triangle


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


LEVEL_MEMORY = 1024.0
"""Rows over which the level of an input is averaged."""


class InputLevels(NamedTuple):
    """Running means and variances of d inputs, and sums of the rows that are not in them yet."""

    mean: FloatArray  # (d,)
    var: FloatArray  # (d,)
    number: FloatArray  # (d,) values in them, at most LEVEL_MEMORY
    sums: FloatArray  # (3, d) number, sum and sum of squares of deviations from the mean
    filled: FloatArray  # (1,) rows in the sums


def widen_levels(state: InputLevels | None, inputs: int) -> InputLevels:
    """Return the levels of `inputs` inputs: those known, and others without a value."""
    if state is None:
        state = InputLevels(np.zeros(0), np.zeros(0), np.zeros(0), np.zeros((3, 0)), np.zeros(1))
    more = inputs - len(state.mean)
    mean, var, number = (np.pad(part, (0, more)) for part in state[:3])
    return InputLevels(mean, var, number, np.pad(state.sums, ((0, 0), (0, more))), state.filled)


def follow_levels(state: InputLevels, x: FloatArray) -> tuple[InputLevels, FloatArray]:
    """Compare consecutive rows (n, d) with the levels before them, then add the rows.

    Levels are updated after every MOMENT_ROWS rows, so that results do not depend on batches.
    Returns the state after the rows, and deviations (n, d) in sds, 0 where one is unknown.
    """
    mean, var, number, sums, filled = (part.copy() for part in state)
    off, at = np.zeros(x.shape), 0
    while at < len(x):
        part = x[at : at + MOMENT_ROWS - int(filled[0])]
        known, gap = np.isfinite(part), np.nan_to_num(part - mean, posinf=0.0, neginf=0.0)
        sd = np.sqrt(var)
        usable = known & (sd > 1e-9 * np.abs(mean)) & (number >= MOMENT_ROWS)
        here = off[at : at + len(part)]
        np.divide(gap, sd, out=here, where=usable)
        terms = np.stack((known.astype(np.float64), gap, gap * gap), axis=1)
        sums = np.cumsum(np.concatenate((sums[None], terms)), axis=0)[-1]  # row after row
        filled += len(part)
        at += len(part)
        if filled[0] == MOMENT_ROWS:
            n, k = number, np.maximum(sums[0], 1.0)
            shift = sums[1] / k
            share = sums[0] / np.maximum(n + sums[0], 1.0)
            spread = sums[2] / k - shift * shift
            var = (1.0 - share) * var + share * (np.maximum(spread, 0.0) + (1.0 - share) * shift**2)
            mean, number = mean + share * shift, np.minimum(n + sums[0], LEVEL_MEMORY)
            sums, filled = np.zeros_like(sums), np.zeros(1)
    return InputLevels(mean, var, number, sums, filled), off


MOMENT_ROWS = 64
MOMENT_MEMORY = 8192.0
"""Rows over which the Gaussian of watched inputs is averaged."""
MOST_SD = 6.0
"""Standard deviations to which values are limited when they are added to the Gaussian."""
FAULT_SD = 5.0
"""Conditional standard deviations from which an input is not used to predict the others."""
RIDGE = 1e-6
"""Added to the correlation matrix: the error of an input has at least 0.001 of its own sd."""


class WatchedInputs(NamedTuple):
    """Running Gaussian of d inputs, and the rows that are not in it yet."""

    mean: FloatArray  # (d,)
    cov: FloatArray  # (d, d)
    block: FloatArray  # (MOMENT_ROWS, d)
    counts: FloatArray  # (2,) rows of the block that are filled, rows in the Gaussian


def init_watched_inputs(inputs: int) -> WatchedInputs:
    """Create the state before the first row."""
    shapes = ((inputs,), (inputs, inputs), (MOMENT_ROWS, inputs), (2,))
    return WatchedInputs(*(np.zeros(shape) for shape in shapes))


def follow_inputs(
    state: WatchedInputs, x: FloatArray
) -> tuple[WatchedInputs, FloatArray, FloatArray]:
    """Predict each input of consecutive rows from the others, then add the rows.

    Parameters
    ----------
    state
        State after the rows before; it is not changed.
    x
        Inputs (n, d); NaN is missing.

    Returns
    -------
    WatchedInputs
        The state after the rows.
    mean, sd
        Predictions (n, d); NaN in the first MOMENT_ROWS rows and for inputs that are constant.
    """
    mean, sd = np.full(x.shape, np.nan), np.full(x.shape, np.nan)
    state = WatchedInputs(*(part.copy() for part in state))
    at = 0
    while at < len(x):
        filled, rows = (int(count) for count in state.counts)
        part = x[at : at + MOMENT_ROWS - filled]
        here = slice(at, at + len(part))
        if rows:
            mean[here], sd[here] = _predict_from_others(state.mean, state.cov, part)
        state.block[filled : filled + len(part)] = part
        state.counts[0] += len(part)
        if state.counts[0] == MOMENT_ROWS:
            state = _add_block(state, rows)
        at += len(part)
    return state, mean, sd


def _predict_from_others(
    mu: FloatArray, sigma: FloatArray, x: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return mean and sd of each input given the others; faulty and missing ones are not used."""
    sd = np.sqrt(np.diag(sigma))
    varies = sd > 1e-9 * np.abs(mu) + np.sqrt(SMALLEST_VAR)
    unit = np.where(varies, sd, 1.0)
    correlation = sigma / np.outer(unit, unit) + RIDGE * np.eye(len(mu))
    u = (x - mu) / unit
    mean, spread = np.full(x.shape, np.nan), np.full(x.shape, np.nan)
    used = np.isfinite(u) & varies
    judged = ~varies[None, :].repeat(len(x), axis=0)  # whose prediction is final
    todo = np.arange(len(x))
    while len(todo):
        for pattern in np.unique(used[todo], axis=0):
            rows = todo[np.all(used[todo] == pattern, axis=1)]
            m, s = _condition_on(correlation, pattern, u[rows])
            mean[rows] = np.where(judged[rows], mean[rows], m)
            spread[rows] = np.where(judged[rows], spread[rows], s)
        far = np.where(used[todo], np.abs(u[todo] - mean[todo]) / spread[todo], 0.0)
        worst = np.argmax(far, axis=1)
        faulty = (far[np.arange(len(todo)), worst] > FAULT_SD) & (np.sum(used[todo], axis=1) > 1)
        todo, worst = todo[faulty], worst[faulty]
        judged[todo, worst] = True
        used[todo, worst] = False
    return mu + unit * mean, unit * spread


def _condition_on(
    correlation: FloatArray, known: NDArray[np.bool_], u: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return mean and sd of standardised inputs, each given the other known ones.

    Sums run over the inputs one by one, so that a row's result does not depend on the others.
    """
    mean, spread = np.zeros(u.shape), np.ones(u.shape)
    here = np.flatnonzero(known)
    inverse = np.linalg.inv(correlation[np.ix_(here, here)])
    others = np.flatnonzero(~known)
    gain = inverse @ correlation[np.ix_(here, others)]
    left = np.diag(correlation)[others] - np.sum(correlation[np.ix_(here, others)] * gain, axis=0)
    weighted = np.zeros((len(u), len(here)))
    for k, j in enumerate(here):
        weighted += u[:, j : j + 1] * inverse[k]
        mean[:, others] += u[:, j : j + 1] * gain[k]
    mean[:, here] = u[:, here] - weighted / np.diag(inverse)
    spread[:, here] = 1.0 / np.sqrt(np.diag(inverse))
    spread[:, others] = np.sqrt(np.maximum(left, RIDGE))
    return mean, spread


def _add_block(state: WatchedInputs, rows: int) -> WatchedInputs:
    """Add a full block to the Gaussian; missing values count with their conditional moments."""
    x, extra = state.block, np.zeros(len(state.mean))
    missing = ~np.isfinite(x)
    if rows:
        mean, sd = _predict_from_others(state.mean, state.cov, x)
        limit = MOST_SD * np.sqrt(np.diag(state.cov))
        extra = np.mean(np.where(missing, np.nan_to_num(sd) ** 2, 0.0), axis=0)
        moving = np.where(limit > 0.0, limit, np.inf)  # a constant input may begin to vary
        x = np.clip(x, state.mean - moving, state.mean + moving)
        x = np.where(missing, np.where(np.isfinite(mean), mean, state.mean), x)
    else:
        count = np.maximum(np.sum(~missing, axis=0), 1)
        x = np.where(missing, np.sum(np.where(missing, 0.0, x), axis=0) / count, x)
    center = np.mean(x, axis=0)
    cov = (x - center).T @ (x - center) / MOMENT_ROWS + np.diag(extra)
    w = MOMENT_ROWS / (min(rows, MOMENT_MEMORY) + MOMENT_ROWS)
    delta = center - state.mean
    return WatchedInputs(
        state.mean + w * delta,
        (1.0 - w) * state.cov + w * cov + w * (1.0 - w) * np.outer(delta, delta) * bool(rows),
        np.zeros_like(state.block),
        np.array([0.0, rows + MOMENT_ROWS]),
    )


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
        frame = np.linalg.qr(multiply(z.T, multiply(z, frame)))[0]
    values, vectors = np.linalg.eigh(multiply(frame.T, multiply(z.T, multiply(z, frame))))
    values, top = values[::-1][:count], (frame @ vectors[:, ::-1])[:, :count]
    top = np.where(values > 1e-9 * max(float(values[0]), 1e-300), top, 0.0)
    top *= np.where(top[np.argmax(np.abs(top), axis=0), np.arange(top.shape[1])] < 0.0, -1.0, 1.0)
    return np.pad(top, ((0, 0), (0, count - top.shape[1])))


def is_view_outdated(view: FloatArray, margin: float = 1.0) -> bool:
    """Return whether an input's units differ much from those of its first rows.

    `margin` is the factor by which the first units may have differed from 1.
    """
    gain, shift, most = view[:, :1], view[:, 1:2], MAX_VIEW_CHANGE * margin
    return bool(np.any((gain > most) | (gain < 1.0 / most) | (np.abs(shift) > most)))
