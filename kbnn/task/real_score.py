"""How good Gaussian forecasts N(mean, sd^2) were, row by row, in constant memory.

With error e = y - mean and z = e / sd, a row of weight w adds to each sum

    RMSE      e^2                               (square root of the weighted mean)
    NLL       log(sd) + z^2 / 2 + log(2 pi) / 2
    CRPS      sd (z (2 Phi(z) - 1) + 2 phi(z) - 1 / sqrt(pi))
    coverage  1 if |z| <= Phi^-1((1 + p) / 2)   for p = 0.5, 0.8, 0.9, 0.95

The baseline is the best constant for the same rows: the mean and variance of y, by Welford's
recursion, written with running sums so that it is exact in row order and still vectorised.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property
from typing import Any, Self

import numpy as np

from kbnn.core.normal import cdf
from kbnn.score import score as base
from kbnn.score.figures import Figure
from kbnn.score.histograms import PitHistogram
from kbnn.score.rowsums import LIMIT, BoolArray, FloatArray, cut, floats, ones, restored, running
from kbnn.task.gaussian import LOG_2PI_2, Z, crps, nll
from kbnn.wording import percent

LEVELS = (50, 80, 90, 95)
"""Percentages of the central intervals whose coverage is counted."""


def standardised(y: FloatArray, mean: FloatArray, sd: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Error e = y - mean and z = e / sd, both cut so that their squares stay finite."""
    with np.errstate(over="ignore"):
        e = cut(y - mean)
        return e, cut(e / sd)


class Judged:
    """Forecasts of one target beside what came true, for the rows that have both."""

    def __init__(
        self,
        y: FloatArray,
        mean: FloatArray,
        sd: FloatArray,
        weight: FloatArray | None = None,
    ) -> None:
        known = np.isfinite(y)
        self.usable: BoolArray = known & np.isfinite(mean) & np.isfinite(sd) & (sd > 0)
        self.skipped = int(np.count_nonzero(~known))
        self.invalid = int(np.count_nonzero(known & ~self.usable))
        if self.skipped or self.invalid:
            y, mean, sd = y[self.usable], mean[self.usable], sd[self.usable]
            weight = None if weight is None else weight[self.usable]
        self.y, self.mean, self.sd = (
            np.ascontiguousarray(part, dtype=np.float64) for part in (y, mean, sd)
        )
        self.even = weight is None
        self.weight = ones(y.shape[0]) if weight is None else np.ascontiguousarray(weight)
        self.error, self.z = standardised(self.y, self.mean, self.sd)

    @cached_property
    def nll(self) -> FloatArray:
        """Of each row, in nats."""
        return nll(self.z, self.sd)

    @cached_property
    def below(self) -> FloatArray:
        """Phi(z): what was forecast for the probability of less than came true."""
        return cdf(self.z)

    @property
    def surprise(self) -> FloatArray:
        """The NLL of all rows, NaN where one cannot be judged."""
        found = np.full(self.usable.shape[0], np.nan)
        found[self.usable] = self.nll
        return found


def _coverage(level: int) -> Figure:
    return Figure(
        f"coverage.{level}",
        f"inside {level} %",
        "rows in their interval" if level == 90 else "",
        lambda j: np.abs(j.z) <= Z[level],
        better="neither",
        form=percent,
        brief=level == 90,
        curve="coverage_90" if level == 90 else "",
    )


def _explained(score: RealScore) -> float | None:
    square, spread = score.average("rmse"), score.constant_variance()
    return None if square is None or not spread else 1 - square / spread


def _constant_rmse(score: RealScore) -> float | None:
    spread = score.constant_variance()
    return None if spread is None else math.sqrt(spread)


def _constant_nll(score: RealScore) -> float | None:
    spread = score.constant_variance()
    return 0.5 * math.log(spread) + LOG_2PI_2 + 0.5 if spread else None


FIGURES = (
    Figure(
        "rmse",
        "RMSE",
        "in the units of {target}",
        lambda j: j.error * j.error,
        math.sqrt,
        baseline="baseline_rmse",
        brief=True,
        curve="loss",
    ),
    Figure("mae", "MAE", "the mean size of the error", lambda j: np.abs(j.error)),
    Figure(
        "r2",
        "R2",
        "share of the variance explained",
        derive=_explained,
        better="higher",
        baseline=0.0,
    ),
    Figure(
        "nll",
        "NLL",
        "nats a row",
        lambda j: j.nll,
        baseline="baseline_nll",
        brief=True,
        curve="nll",
    ),
    Figure(
        "crps", "CRPS", "as the MAE, for the whole forecast", lambda j: crps(j.z, j.sd, j.below)
    ),
    *(_coverage(level) for level in LEVELS),
    Figure(
        "interval_width_90",
        "width of 90 %",
        "mean interval",
        lambda j: cut(j.sd),
        lambda sd: 2 * Z[90] * sd,
    ),
    Figure("bias", term=lambda j: j.error, better="neither"),
    Figure("spread", term=lambda j: j.z * j.z, finish=math.sqrt, better="neither"),
    Figure("baseline_rmse", derive=_constant_rmse),
    Figure("baseline_nll", derive=_constant_nll),
)


class RealScore(base.Score):
    """Streaming figures for one numeric target."""

    figures_listed = FIGURES

    def __init__(self) -> None:
        super().__init__()
        self.pit = PitHistogram()
        self._origin: float | None = None
        self._total = 0.0  # weight of the rows in the baseline
        self._shift = 0.0
        self._spread = 0.0

    def add(self, judged: base.Judged) -> None:
        """Count rows in order."""
        assert isinstance(judged, Judged)
        super().add(judged)
        if judged.y.shape[0]:
            self.pit.add(judged.below)
            self._add_constant(judged.y, judged.weight)

    def _add_constant(self, y: FloatArray, w: FloatArray) -> None:
        """Welford: m_t = m_(t-1) + w d / W_t, M2_t = M2_(t-1) + w d (y - m_t), d = y - m_(t-1).

        m_t is written as origin + (sum of w (y - origin)) / W_t, which cumulative sums give for
        every row at once; M2 then adds up terms that cannot cancel.
        """
        if self._origin is None:
            self._origin = float(cut(y[:1])[0])
        with np.errstate(over="ignore"):
            d = cut(y - self._origin)
        weights = running(self._total, w)
        shifts = running(self._shift, w * d)
        before = np.divide(shifts[:-1], weights[:-1], out=d.copy(), where=weights[:-1] > 0)
        after = shifts[1:] / weights[1:]
        gain = np.maximum(w * (d - before) * (d - after), 0.0)
        self._spread = float(running(self._spread, gain)[-1])
        self._total, self._shift = float(weights[-1]), float(shifts[-1])

    def constant_variance(self) -> float | None:
        """Variance of y: the mean square error of the best constant."""
        return self._spread / self._total if self._total > 0 else None

    def mean_target(self) -> float | None:
        """Mean of y: the best constant prediction."""
        if self._origin is None or self._total <= 0:
            return None
        return self._origin + self._shift / self._total

    def to_json(self) -> dict[str, Any]:
        """The whole state; `from_json` restores it bit for bit."""
        return {
            **super().to_json(),
            "pit": self.pit.counts.tolist(),
            "constant": {
                "origin": self._origin,
                "weight": self._total,
                "shift": self._shift,
                "spread": self._spread,
            },
        }

    @classmethod
    def from_json(cls, state: Mapping[str, Any]) -> Self:
        """The score that `to_json` described."""
        score = super().from_json(state)
        score.pit = PitHistogram.from_json(state["pit"])
        constant = state["constant"]
        known = restored([constant[name] for name in ("weight", "shift", "spread")], (3,))
        score._total, score._shift, score._spread = floats(known)
        if not (abs(score._shift) <= 2.0 * LIMIT * score._total and score._spread >= 0.0):
            raise ValueError("its baseline is none")
        if constant["origin"] is not None:
            score._origin = float(restored(constant["origin"], ()))
        return score
