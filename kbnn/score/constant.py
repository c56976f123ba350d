"""The best constant for the same rows, beside which forecasts of numbers are judged.

Its mean m and the sum of squares M2 about it follow Welford's recursion, for a row of weight w

    m_t = m_(t-1) + w d / W_t      M2_t = M2_(t-1) + w d (y - m_t)      d = y - m_(t-1)

with m_t written as origin + (sum of w (y - origin)) / W_t, the origin being the first number. So it
is exact in row order however rows were cut into blocks, and M2 adds up terms that cannot cancel.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from kbnn.core import engine
from kbnn.core.constants import LARGEST_TERM
from kbnn.score.rowsums import FloatArray, clip_terms, restore_floats, to_float_list

LARGEST_SPREAD = 1e300
"""Of M2: a weight of 1e140 times the square of a deviation of 1e100 is no number any more."""

_SUM_NAMES = ("weight", "shift", "spread")


class ConstantBaseline:
    """Mean and variance of the numbers so far."""

    def __init__(self) -> None:
        self.sums = np.array([np.nan, 0.0, 0.0, 0.0])
        """What numbers are counted from (NaN before the first), then W, W (m - origin) and M2."""

    def add(self, y: FloatArray, weight: FloatArray) -> None:
        """Count numbers in order."""
        if not len(y):
            return
        if engine.is_compiled():
            self.sums = engine.update_constant(self.sums, y, weight, LARGEST_TERM)
            self._limit_spread()
            return
        origin, total, shift, spread = to_float_list(self.sums)
        if np.isnan(origin):
            origin = float(clip_terms(y[:1])[0])
        with np.errstate(over="ignore"):
            d = clip_terms(y - origin)
        weights = _partial_sums(total, weight)
        shifts = _partial_sums(shift, weight * d)
        before = np.divide(shifts[:-1], weights[:-1], out=d.copy(), where=weights[:-1] > 0)
        after = np.divide(shifts[1:], weights[1:], out=d.copy(), where=weights[1:] > 0)
        with np.errstate(over="ignore"):
            gain = np.fmax(weight * (d - before) * (d - after), 0.0)
            total_spread = _partial_sums(spread, gain)[-1]
        self.sums = np.array([origin, weights[-1], shifts[-1], total_spread])
        self._limit_spread()

    def _limit_spread(self) -> None:
        """Keep M2 a number where large weights meet large deviations."""
        self.sums[3] = min(self.sums[3], LARGEST_SPREAD)

    @property
    def variance(self) -> float | None:
        """The mean square error of the best constant, None before the first number."""
        _, total, _, spread = to_float_list(self.sums)
        return spread / total if total > 0.0 else None

    @property
    def mean(self) -> float | None:
        """The best constant, None before the first number."""
        origin, total, shift, _ = to_float_list(self.sums)
        return origin + shift / total if total > 0.0 else None

    def to_json(self) -> dict[str, Any]:
        """The whole state; `from_json` restores it bit for bit."""
        origin, *sums = to_float_list(self.sums)
        return {
            "origin": None if np.isnan(origin) else origin,
            **dict(zip(_SUM_NAMES, sums, strict=True)),
        }

    @classmethod
    def from_json(cls, state: Mapping[str, Any]) -> ConstantBaseline:
        """The constant that `to_json` described."""
        constant = cls()
        total, shift, spread = to_float_list(
            restore_floats([state[name] for name in _SUM_NAMES], (3,))
        )
        if not (abs(shift) <= 2.0 * LARGEST_TERM * total and spread >= 0.0):
            raise ValueError("its baseline is none")
        origin = np.nan if state["origin"] is None else float(restore_floats(state["origin"], ()))
        constant.sums = np.array([origin, total, shift, spread])
        return constant


def _partial_sums(carry: float, values: FloatArray) -> FloatArray:
    """The n + 1 partial sums carry, carry + x_1, carry + x_1 + x_2, ... in row order."""
    partial = np.empty(values.shape[0] + 1)
    partial[0] = carry
    partial[1:] = values
    return np.add.accumulate(partial, out=partial)
