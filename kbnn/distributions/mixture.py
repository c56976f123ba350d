"""A mixture of K predictive distributions, with weights of its own for each row.

With members F_k and weights w_k, summing to 1 in each row,

    P(Y <= y) = sum_k w_k F_k(y)            log p(y) = logsumexp_k (log w_k + log p_k(y))
    mean = sum_k w_k m_k                    var = sum_k w_k (s_k^2 + (m_k - mean)^2)
    CRPS(y) = sum_k w_k CRPS_k(y) - integral of sum_k w_k (F_k(x) - F(x))^2 dx

The integral has a closed form if all members are normal mixtures: half of sum_jk w_j w_k E|X_j -
X_k| - sum_k w_k E|X_k - X_k'|. Otherwise it is computed by Gauss-Legendre quadrature between the
`quadrature_points` of the members, to about 1e-6 of the CRPS (1e-4 for counts).

A quantile lies between the smallest and the largest quantile of the members, where the sum of the
distribution functions is solved for the level. An edge of a calibrated interval has the level that
the edges of the members have on average. Hence members that agree, or a weight of 1, give the
members' own numbers.

The parameters are an array (n, K, fields + 1), the last field being the weight, or with an axis of
targets (n, T, K, fields + 1).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from kbnn.array_types import BoolArray, FloatArray
from kbnn.core import normal
from kbnn.distributions.hurdle import share_inside
from kbnn.distributions.negative_binomial import MAX_SINGLE_STEPS, NegativeBinomial, hash_uniform
from kbnn.distributions.normal_mixture import NormalMixture, expected_distance
from kbnn.distributions.predictive import (
    PARAM,
    PARAM_COUNT,
    TAIL_SHARES,
    PredictiveDistribution,
    RowScores,
)

ScalarT = TypeVar("ScalarT", bound=np.generic)
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(7)
_BATCH_ROWS: Final = 64
"""Rows that are integrated at a time."""
_MAX_STEPS: Final = 200
_RELATIVE_ERROR: Final = 1e-13
"""Relative width of the bracket at which a quantile is accepted."""


def stack_members(params: Sequence[FloatArray], weight: FloatArray) -> FloatArray:
    """Return the parameters of a mixture, from those of K members and weights (n, K).

    The parameters of each member are (n, fields), or (n, T, fields) with several targets.
    """
    members = np.stack(params, axis=-2)
    shape = (len(weight), *[1] * (members.ndim - 3), weight.shape[1], 1)
    weights = np.broadcast_to(weight.reshape(shape), (*members.shape[:-1], 1))
    return np.concatenate((members, weights), axis=-1)


def join_params(parts: Sequence[FloatArray]) -> FloatArray:
    """Concatenate parameters (n, T, fields) or (n, T, K, fields + 1) of any K along the rows.

    If one part holds mixtures all become mixtures; missing members get the weight 0.
    """
    if all(part.ndim == 3 for part in parts):
        return np.concatenate(parts)
    parts = [
        stack_members([part], np.ones((len(part), 1))) if part.ndim == 3 else part for part in parts
    ]
    members = max(part.shape[2] for part in parts)
    padded = []
    for part in parts:
        more = np.repeat(part[:, :, :1], members - part.shape[2], axis=2)
        more[..., PARAM_COUNT] = 0.0
        padded.append(np.concatenate((part, more), axis=2))
    return np.concatenate(padded)


class MixtureDistribution(PredictiveDistribution):
    """Mixture of K predictive distributions.

    Parameters
    ----------
    members
        Distributions of n K rows: the K members of the first row, then those of the second, ...
    weight
        Weights (n, K); the members of weight 0 do not matter.
    """

    def __init__(self, members: PredictiveDistribution, weight: FloatArray) -> None:
        super().__init__(members.rows.reshape(*weight.shape, -1))
        self.members, self.weight = members, weight
        self.used: BoolArray = weight > 0.0

    def __getitem__(self, at: Any) -> MixtureDistribution:
        """Select rows by a slice, a mask or indices."""
        count = self.weight.shape[1]
        rows = np.arange(len(self))[at]
        flat = (rows[:, None] * count + np.arange(count)).ravel()
        return MixtureDistribution(self.members[flat], self.weight[at])

    def _repeat(self, y: FloatArray) -> FloatArray:
        """Repeat values (..., n) for each member: (..., n K)."""
        return np.repeat(y, self.weight.shape[1], axis=-1)

    def _split(self, values: NDArray[ScalarT]) -> NDArray[ScalarT]:
        """Reshape values of the members (..., n K) to (..., n, K)."""
        return values.reshape(*values.shape[:-1], *self.weight.shape)

    def _average(self, values: FloatArray) -> FloatArray:
        """Average values (..., n K) of the members with the weights."""
        return np.asarray(np.sum(np.where(self.used, self.weight * self._split(values), 0.0), -1))

    @staticmethod
    def is_possible(y: FloatArray) -> BoolArray:
        """Return whether values are numbers; `in_support` knows the members."""
        return np.isfinite(y)

    def in_support(self, y: FloatArray) -> BoolArray:
        """Return whether a value is in the support of any member."""
        inside = self._split(self.members.in_support(self._repeat(y)))
        return np.asarray(np.any(inside & self.used, axis=-1))

    def nearest_possible(self, y: FloatArray) -> FloatArray:
        """Return the largest value of any member's support up to y, or the smallest value."""
        near = self._split(self.members.nearest_possible(self._repeat(y)))
        below = np.max(np.where(self.used & (near <= y[..., None]), near, -np.inf), axis=-1)
        least = np.min(np.where(self.used, near, np.inf), axis=-1)
        return np.asarray(np.where(np.isfinite(below), below, least))

    def has_forecast(self) -> BoolArray:
        """Return whether every member that is used holds a distribution."""
        known = self._split(self.members.has_forecast())
        return np.asarray(np.all(known | ~self.used, axis=-1) & np.any(self.used, axis=-1))

    def is_discrete(self) -> BoolArray:
        """Return whether the values of every member are whole numbers."""
        return np.asarray(np.all(self._split(self.members.is_discrete()) | ~self.used, axis=-1))

    def mean_and_sd(self) -> tuple[FloatArray, FloatArray]:
        """Return mean and sd by the moments of the members."""
        mean, sd = self.members.mean_and_sd()
        center = self._average(mean)
        return center, np.sqrt(self._average(sd**2 + (mean - self._repeat(center)) ** 2))

    def split_sd(self) -> tuple[FloatArray, FloatArray]:
        """Return the sd between the means of the members (epistemic) and the sd within them."""
        mean, sd = self.members.mean_and_sd()
        between = self._average((mean - self._repeat(self._average(mean))) ** 2)
        return np.sqrt(between), np.sqrt(self._average(sd**2))

    def cdf(self, y: FloatArray) -> FloatArray:
        """Return P(Y <= y) for values (..., n)."""
        return self._average(self.members.cdf(self._repeat(y)))

    def cdf_before(self, y: FloatArray) -> FloatArray:
        """Return P(Y < y) for values (..., n)."""
        return self._average(self.members.cdf_before(self._repeat(y)))

    def smooth_cdf(self, y: FloatArray) -> FloatArray:
        """Return P(Y <= y) for quadrature."""
        return self._average(self.members.smooth_cdf(self._repeat(y)))

    def log_density(self, y: FloatArray, zero_bin_width: float = 1.0) -> FloatArray:
        """Return the log density of values; of whole numbers, the log mass that rounds to them."""
        return self._mix_logs(
            y, lambda members, values: members.log_density(values, zero_bin_width)
        )

    def _mix_logs(
        self, y: FloatArray, make: Callable[[PredictiveDistribution, FloatArray], FloatArray]
    ) -> FloatArray:
        """Return logsumexp of log w + the members' log densities; -inf outside their support."""
        values = self._repeat(y)
        asked = self.members.in_support(values) & self.used.ravel()
        logs = np.full(len(values), -np.inf)
        if asked.all():
            logs = make(self.members, values)
        elif asked.any():
            logs[asked] = make(self.members[asked], values[asked])
        with np.errstate(divide="ignore"):
            return np.asarray(np.logaddexp.reduce(np.log(self.weight) + self._split(logs), axis=-1))

    def quantile(self, share: float) -> FloatArray:
        """Return the smallest value y with P(Y <= y) >= share."""
        return self._solve(self.members.quantile(share), np.full(len(self), share))

    def interval(self, share: float) -> tuple[FloatArray, FloatArray]:
        """Return the central interval of probability `share`, as calibrated."""
        edges = self.members.interval(share)
        levels = self.interval_levels(0.5 - share / 2)
        return self._solve(edges[0], levels[0]), self._solve(edges[1], levels[1])

    def interval_levels(self, outside: float) -> tuple[FloatArray, FloatArray]:
        """Return the average levels of the edges of the members' calibrated intervals."""
        low, high = self.members.interval_levels(outside)
        return self._average(low), self._average(high)

    def _solve(self, points: FloatArray, level: FloatArray) -> FloatArray:
        """Return the smallest y with P(Y <= y) >= level, between the members' `points` (n K,)."""
        points = self._split(points)
        low = np.where(self.used, points, np.inf).min(axis=-1)
        high = np.where(self.used, points, -np.inf).max(axis=-1)
        found = np.where(np.any(self.used, axis=-1), high, np.nan)
        asked = np.flatnonzero(low < high)
        if not len(asked):
            return found
        steps = np.any(self._split(self.members.is_discrete()) & self.used, axis=-1)
        for solve, at in ((_find_root, asked[~steps[asked]]), (_find_step, asked[steps[asked]])):
            if len(at):
                found[at] = solve(self[at], level[at], low[at], high[at])
        return found

    def crps(self, y: FloatArray) -> FloatArray:
        """Return the CRPS, see the module docstring."""
        values = self._repeat(y)
        near = self.members.nearest_possible(values)
        return self._mix_crps(values, near, self.members.crps(near))

    def _mix_crps(self, values: FloatArray, near: FloatArray, crps: FloatArray) -> FloatArray:
        """Return the CRPS of values (n K,), from the members' CRPS of `near` in their support.

        Between `near` and the value a member's cdf is constant, so that its CRPS is linear.
        """
        if np.any(near != values):
            below = np.where(values < near, 0.0, self.members.cdf(near))
            crps = crps + (values - near) * (2.0 * below - 1.0)
        found = self._average(crps)
        mixed = np.flatnonzero(np.count_nonzero(self.used, axis=1) > 1)
        for start in range(0, len(mixed), _BATCH_ROWS):
            at = mixed[start : start + _BATCH_ROWS]
            found[at] -= self[at]._disagreement()
        return found

    def _disagreement(self) -> FloatArray:
        """Return the integral of sum_k w_k (F_k(x) - F(x))^2 over x."""
        if type(self.members) is NormalMixture:
            return self._normal_disagreement()
        points = self.members.quadrature_points().reshape(-1, *self.weight.shape)
        points = np.where(self.used, points, 0.0).transpose(1, 0, 2).reshape(len(self), -1)
        edges = [points, np.zeros((len(self), 1))]
        counts, total = np.arange(MAX_SINGLE_STEPS), np.zeros(len(self))
        if type(self.members) is NegativeBinomial:
            squares = self._spread_of_cdfs(np.repeat(counts[:, None], len(self), axis=1))
            total = np.sum(np.ascontiguousarray(squares.T), axis=1)
            edges = [np.maximum(points, MAX_SINGLE_STEPS)]
        elif np.any(self._split(self.members.is_discrete()) & self.used):
            edges.append(np.tile(counts + 1.0, (len(self), 1)))
        edge = np.sort(np.concatenate(edges, axis=1), axis=1).T[..., None]  # (panels + 1, n, 1)
        wide = np.any(edge[1:] > edge[:-1], axis=(1, 2))
        a, b = edge[:-1][wide], edge[1:][wide]
        share = 0.5 * (1.0 + _NODES)
        # Panels above 0 may span orders of magnitude: there the logarithm is the variable.
        ratio = np.log(np.where(a > 0.0, b / np.where(a > 0.0, a, 1.0), 1.0))
        x = np.where(a > 0.0, a * np.exp(ratio * share), a + (b - a) * share)
        slope = np.where(a > 0.0, x * ratio, b - a)
        x = np.moveaxis(x, -1, 0)  # (nodes, panels, n)
        square = self._spread_of_cdfs(x)
        inner = np.moveaxis(square, 0, -1) * slope * (0.5 * _WEIGHTS)  # (panels, n, nodes)
        # Each row is summed on its own, so that results do not depend on how rows are batched.
        return np.asarray(total + np.sum(np.moveaxis(inner, 1, 0).reshape(len(self), -1), axis=1))

    def _spread_of_cdfs(self, x: FloatArray) -> FloatArray:
        """Return sum_k w_k (F_k(x) - F(x))^2 for values (..., n)."""
        each = self._split(self.members.smooth_cdf(self._repeat(x)))
        each = np.where(self.used, each, 0.0)
        middle = np.sum(self.weight * each, axis=-1, keepdims=True)
        return np.asarray(np.sum(self.weight * (each - middle) ** 2, axis=-1))

    def _normal_disagreement(self) -> FloatArray:
        """Return the same in closed form for normal mixtures."""
        place, spread, share, ratio, shift = np.moveaxis(self.rows[..., : PARAM.gain], -1, 0)
        own = np.stack((1.0 - share, share), axis=-1)  # (n, K, 2)
        center = np.stack((place, place + shift * spread), axis=-1)
        var = np.stack((spread**2, ratio * spread**2), axis=-1)
        count = 2 * self.weight.shape[1]
        c, v, o = (part.reshape(-1, count) for part in (center, var, own))
        weight = np.repeat(self.weight, 2, axis=1)
        sd = np.sqrt(v[:, :, None] + v[:, None, :])
        apart = expected_distance(c[:, :, None] - c[:, None, :], sd)
        apart = apart * o[:, :, None] * o[:, None, :]
        same = np.kron(np.eye(self.weight.shape[1]), np.ones((2, 2)))
        pair = weight[:, :, None] * weight[:, None, :] - same * weight[:, :, None]
        total = np.where(pair != 0.0, pair * apart, 0.0).reshape(len(self), -1)
        return np.asarray(0.5 * np.sum(total, axis=1))

    def score_values(self, y: FloatArray) -> RowScores:
        """Score values (n,) against their predictive distributions."""
        values = self._repeat(y)
        near = self.members.nearest_possible(values)
        scores = self.members.score_values(near)
        possible = self.members.in_support(values)
        best = np.arange(len(self)) * self.weight.shape[1] + np.argmax(self.weight, axis=1)
        start, stop = self.cdf_before(y), self.cdf(y)
        step = stop - start
        # Both tails are summed, so that the smaller one is exact.
        below, above = (
            self._average(np.where(possible, normal.cdf(side * scores.score), outside))
            for side, outside in (
                (1.0, np.where(values < near, 0.0, 1.0)),
                (-1.0, np.where(values < near, 1.0, 0.0)),
            )
        )
        drawn = start + step * hash_uniform(y, self.members.rows[best])
        below = np.where(step > 0.0, drawn, below)
        above = np.where(step > 0.0, 1.0 - drawn, above)
        under = below < above
        u = np.clip(np.where(under, below, 1.0 - above), 0.0, 1.0)
        tail = np.clip(np.where(under, below, above), 0.0, 0.5)
        levels = [self.interval_levels(outside) for outside in TAIL_SHARES]
        start = np.where(step > 0.0, start, u)
        nll = np.where(possible, scores.nll, np.inf)
        mixed = RowScores(
            -self._mix_logs(y, lambda members, own: -nll[possible & self.used.ravel()]),
            self._mix_crps(values, near, scores.crps),
            u,
            np.where(under, 1.0, -1.0) * normal.lower_quantiles(tail),
            self._solve(scores.lower, levels[2][0]),
            self._solve(scores.upper, levels[2][1]),
            *(share_inside(start, step, low, high) for low, high in levels),
        )
        single = (np.count_nonzero(self.used, axis=1) == 1) & possible[best]
        if not single.any():
            return mixed
        return RowScores._make(
            np.where(single, own[best], one) for own, one in zip(scores, mixed, strict=True)
        )

    def sample(self, rng: np.random.Generator) -> FloatArray:
        """Draw one value of each row."""
        total = np.cumsum(self.weight, axis=1)
        chosen = np.argmax(total > rng.random((len(self), 1)) * total[:, -1:], axis=1)
        count = self.weight.shape[1]
        return self.members[np.arange(len(self)) * count + chosen].sample(rng)

    def quadrature_points(self) -> FloatArray:
        """Return the points of all members."""
        points = self.members.quadrature_points().reshape(-1, *self.weight.shape)
        return np.asarray(points.transpose(0, 2, 1).reshape(-1, len(self)))


def _find_root(
    mixture: MixtureDistribution, level: FloatArray, low: FloatArray, high: FloatArray
) -> FloatArray:
    """Solve P(Y <= y) = level between two values by the method of Chandrupatla.

    Inverse quadratic interpolation where it is safe, otherwise bisection. Rows are independent of
    each other.
    """
    a, b = high.copy(), low.copy()
    fa, fb = mixture.cdf(a) - level, mixture.cdf(b) - level
    c, fc = a.copy(), fa.copy()
    t = np.full(len(level), 0.5)
    # The infimum itself may reach the level, where there is a step at 0.
    found, active = np.where(fb >= 0.0, low, high), (fb < 0.0) & (fa > 0.0)
    for _ in range(_MAX_STEPS):
        at = np.flatnonzero(active)
        if not len(at):
            break
        x = a[at] + t[at] * (b[at] - a[at])
        fx = mixture[at].cdf(x) - level[at]
        same = np.sign(fx) == np.sign(fa[at])
        c[at], fc[at] = np.where(same, a[at], b[at]), np.where(same, fa[at], fb[at])
        b[at], fb[at] = np.where(same, b[at], a[at]), np.where(same, fb[at], fa[at])
        a[at], fa[at] = x, fx
        best = np.where(np.abs(fa[at]) < np.abs(fb[at]), a[at], b[at])
        found[at] = best
        width = np.abs(b[at] - a[at])
        limit = 0.5 * _RELATIVE_ERROR * np.abs(best) / np.maximum(width, np.finfo(float).tiny)
        with np.errstate(divide="ignore", invalid="ignore"):
            xi = (a[at] - b[at]) / (c[at] - b[at])
            phi = (fa[at] - fb[at]) / (fc[at] - fb[at])
            safe = (phi**2 < xi) & ((1.0 - phi) ** 2 < 1.0 - xi)
            quadratic = fa[at] / (fb[at] - fa[at]) * fc[at] / (fb[at] - fc[at])
            quadratic += (
                (c[at] - a[at])
                / (b[at] - a[at])
                * fa[at]
                / (fc[at] - fa[at])
                * fb[at]
                / (fc[at] - fb[at])
            )
        step = np.where(safe & np.isfinite(quadratic), quadratic, 0.5)
        t[at] = np.clip(step, np.minimum(limit, 0.5), np.maximum(1.0 - limit, 0.5))
        active[at] = (limit < 0.5) & (fx != 0.0)
    return found


def _find_step(
    mixture: MixtureDistribution, level: FloatArray, low: FloatArray, high: FloatArray
) -> FloatArray:
    """Return the smallest y with P(Y <= y) >= level by bisection, where some members are counts."""
    whole = mixture.is_discrete()
    least = low
    reached = mixture.cdf(low) >= level
    for _ in range(_MAX_STEPS):
        middle = 0.5 * (low + high)
        middle = np.where(whole, np.floor(middle), middle)
        if np.all((middle <= low) | (high - low <= _RELATIVE_ERROR * np.abs(high))):
            break
        enough = mixture.cdf(middle) >= level
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    near = np.rint(high)
    step = (np.abs(high - near) <= 1e-9 * (1.0 + np.abs(near))) & (mixture.cdf(near) >= level)
    return np.where(reached, least, np.where(step, near, high))
