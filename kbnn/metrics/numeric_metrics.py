"""Streaming metrics of numeric forecasts, in constant memory.

With error e = y - mean, u = P(Y <= y) as predicted, and z = Phi^-1(u), a row of weight w adds to
each sum

    RMSE      e^2                               (square root of the weighted mean)
    NLL       -log p(y)                         log density; for counts, log mass
    CRPS      integral of (P(Y <= t) - 1[t >= y])^2
    coverage  1 if y is in its central interval of p = 0.5, 0.8, 0.9, 0.95
    spread    z^2                               1 on average if forecasts are calibrated

The baseline is the best constant for the same rows. Its mean m and the sum of squares M2 about it
follow Welford's recursion, for a row of weight w

    m_t = m_(t-1) + w d / W_t      M2_t = M2_(t-1) + w d (y - m_t)      d = y - m_(t-1)

with m_t written as origin + (sum of w (y - origin)) / W_t, the origin being the first number. The
result does not depend on how rows are cut into batches, and M2 adds up terms that cannot cancel.

`pack_score` and `unpack_score` convert a score to arrays and back for models stored in a fleet.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np

from kbnn.array_types import BoolArray, FloatArray
from kbnn.core import kernel
from kbnn.core.constants import LARGEST_TERM
from kbnn.distributions.dispatch import read_distribution
from kbnn.distributions.predictive import INTERVAL_PERCENTS, RowScores
from kbnn.metrics import figures as base
from kbnn.metrics.figures import (
    Metric,
    Score,
    clip_terms,
    restore_floats,
    shared_ones,
    to_float_list,
)
from kbnn.metrics.samples import PitHistogram
from kbnn.wording import format_percent

HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)


class ScoredNumericBatch:
    """Forecasts of one target with their true values, for the rows that have both."""

    def __init__(
        self,
        y: FloatArray,
        mean: FloatArray,
        told: FloatArray,
        weight: FloatArray | None = None,
        verdicts: RowScores | None = None,
    ) -> None:
        """Score distributions `told`, see kbnn.distributions.dispatch.

        `verdicts` are their scores if already computed.
        """
        known = np.isfinite(y)
        distribution = read_distribution(told)
        self.usable: BoolArray = known & np.isfinite(mean) & distribution.has_forecast()
        if np.count_nonzero(self.usable):
            self.usable &= distribution.in_support(y)
        self.skipped = len(y) - int(np.count_nonzero(known))
        self.invalid = len(y) - int(np.count_nonzero(self.usable)) - self.skipped
        if self.skipped or self.invalid:
            y, mean, distribution = y[self.usable], mean[self.usable], distribution[self.usable]
            weight = None if weight is None else weight[self.usable]
        self.y, self.mean = (np.ascontiguousarray(part, dtype=np.float64) for part in (y, mean))
        self.is_unweighted = weight is None
        self.weight = shared_ones(y.shape[0]) if weight is None else np.ascontiguousarray(weight)
        with np.errstate(over="ignore"):
            self.error = clip_terms(self.y - self.mean)
        self.told = distribution.score_values(self.y) if verdicts is None else verdicts
        self.nll = clip_terms(self.told.nll)
        self.inside = dict(
            zip(INTERVAL_PERCENTS, self.told[-len(INTERVAL_PERCENTS) :], strict=True)
        )

    @property
    def row_losses(self) -> FloatArray:
        """NLL of all rows, NaN if a row cannot be scored."""
        return self._expand_to_rows(self.nll)

    @property
    def interval_edges(self) -> tuple[FloatArray, FloatArray]:
        """Edges of the 90 % intervals of all rows, NaN if a row cannot be scored."""
        return self._expand_to_rows(self.told.lower), self._expand_to_rows(self.told.upper)

    def _expand_to_rows(self, values: FloatArray) -> FloatArray:
        if len(values) == len(self.usable):
            return values
        found = np.full(self.usable.shape[0], np.nan)
        found[self.usable] = values
        return found


LARGEST_SPREAD = 1e300
"""Limit of M2: large weights times squared deviations can overflow."""

_SUM_NAMES = ("weight", "shift", "spread")


class ConstantBaseline:
    """Mean and variance of the numbers so far."""

    def __init__(self) -> None:
        self.sums = np.array([np.nan, 0.0, 0.0, 0.0])
        """The origin (NaN before the first number), then W, W (m - origin) and M2."""

    def add(self, y: FloatArray, weight: FloatArray) -> None:
        """Add numbers in order."""
        if not len(y):
            return
        if kernel.is_compiled():
            self.sums = kernel.update_constant(self.sums, y, weight, LARGEST_TERM)
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
        """Keep M2 finite for large weights and deviations."""
        self.sums[3] = min(self.sums[3], LARGEST_SPREAD)

    @property
    def variance(self) -> float | None:
        """Mean squared error of the best constant, None before the first number."""
        _, total, _, spread = to_float_list(self.sums)
        return spread / total if total > 0.0 else None

    @property
    def mean(self) -> float | None:
        """The best constant, None before the first number."""
        origin, total, shift, _ = to_float_list(self.sums)
        return origin + shift / total if total > 0.0 else None

    def to_json(self) -> dict[str, Any]:
        """Return the whole state; `from_json` restores it bit for bit."""
        origin, *sums = to_float_list(self.sums)
        return {
            "origin": None if np.isnan(origin) else origin,
            **dict(zip(_SUM_NAMES, sums, strict=True)),
        }

    @classmethod
    def from_json(cls, state: Mapping[str, Any]) -> ConstantBaseline:
        """Restore the baseline from `to_json`."""
        constant = cls()
        total, shift, spread = to_float_list(
            restore_floats([state[name] for name in _SUM_NAMES], (3,))
        )
        if not (abs(shift) <= 2.0 * LARGEST_TERM * total and spread >= 0.0):
            raise ValueError("its baseline is invalid")
        origin = np.nan if state["origin"] is None else float(restore_floats(state["origin"], ()))
        constant.sums = np.array([origin, total, shift, spread])
        return constant


def _partial_sums(carry: float, values: FloatArray) -> FloatArray:
    """Return the n + 1 partial sums carry, carry + x_1, carry + x_1 + x_2, ... in row order."""
    partial = np.empty(values.shape[0] + 1)
    partial[0] = carry
    partial[1:] = values
    return np.add.accumulate(partial, out=partial)


def _coverage_metric(level: int) -> Metric:
    return Metric(
        f"coverage.{level}",
        f"inside {level} %",
        "rows in their interval" if level == 90 else "",
        lambda j: j.inside[level],
        better="neither",
        form=format_percent,
        brief=level == 90,
        curve="coverage_90" if level == 90 else "",
    )


def _derive_r2(score: NumericScore) -> float | None:
    square, spread = score.mean_term("rmse"), score.constant.variance
    return None if square is None or not spread else 1 - min(square / spread, base.LARGEST_SUM)


def _derive_constant_rmse(score: NumericScore) -> float | None:
    spread = score.constant.variance
    return None if spread is None else math.sqrt(spread)


def _derive_constant_nll(score: NumericScore) -> float | None:
    spread = score.constant.variance
    return 0.5 * math.log(spread) + HALF_LOG_2PI + 0.5 if spread else None


NUMERIC_METRICS = (
    Metric(
        "rmse",
        "RMSE",
        "in the units of {target}",
        lambda j: j.error * j.error,
        math.sqrt,
        baseline="baseline_rmse",
        brief=True,
        curve="loss",
    ),
    Metric("mae", "MAE", "the mean size of the error", lambda j: np.abs(j.error)),
    Metric(
        "r2",
        "R2",
        "share of the variance explained",
        derive=_derive_r2,
        better="higher",
        baseline=0.0,
    ),
    Metric(
        "nll",
        "NLL",
        "nats a row",
        lambda j: j.nll,
        baseline="baseline_nll",
        brief=True,
        curve="nll",
    ),
    Metric("crps", "CRPS", "as the MAE, for the whole forecast", lambda j: clip_terms(j.told.crps)),
    *(_coverage_metric(level) for level in INTERVAL_PERCENTS),
    Metric(
        "interval_width_90",
        "width of 90 %",
        "mean interval",
        lambda j: clip_terms(j.told.upper) - clip_terms(j.told.lower),
    ),
    Metric("bias", term=lambda j: j.error, better="neither"),
    Metric("spread", term=lambda j: j.told.score**2, finish=math.sqrt, better="neither"),
    Metric("baseline_rmse", derive=_derive_constant_rmse),
    Metric("baseline_nll", derive=_derive_constant_nll),
)


class NumericScore(base.Score):
    """Streaming metrics of one numeric target."""

    figures_listed = NUMERIC_METRICS

    def __init__(self) -> None:
        super().__init__()
        self.pit = PitHistogram()
        self.constant = ConstantBaseline()

    def add(self, judged: base.ScoredBatch) -> None:
        """Add rows in order."""
        assert isinstance(judged, ScoredNumericBatch)
        super().add(judged)
        if judged.y.shape[0]:
            self.pit.add(judged.told.below)
            self.constant.add(judged.y, judged.weight)

    def to_json(self) -> dict[str, Any]:
        """Return the whole state; `from_json` restores it bit for bit."""
        return {
            **super().to_json(),
            "pit": self.pit.counts.tolist(),
            "constant": self.constant.to_json(),
        }

    @classmethod
    def from_json(cls, state: Mapping[str, Any]) -> Self:
        """Restore the score from `to_json`."""
        score = super().from_json(state)
        score.pit = PitHistogram.from_json(state["pit"])
        score.constant = ConstantBaseline.from_json(state["constant"])
        return score


def pack_score(score: Score) -> dict[str, Any]:
    """Pack sums (weight first), recent sums, baseline and PIT counts into arrays."""
    assert isinstance(score, NumericScore)
    return {
        "sums": np.concatenate(([score._weight], score._sums)),
        "recent": score._recent,
        "constant": score.constant.sums,
        "pit": score.pit.counts,
    }


def unpack_score(
    score: Score, kept: Mapping[str, Any], figures: Sequence[str], drawn: Sequence[str]
) -> None:
    """Invert `pack_score`; `figures` and `drawn` name the sums and the recent sums."""
    assert isinstance(score, NumericScore)
    score.restore_sums(
        dict(zip(("weight", *figures), kept["sums"].tolist(), strict=True)),
        dict(zip(("weight", *drawn), kept["recent"].tolist(), strict=True)),
    )
    score.constant.sums = kept["constant"].copy()
    score.pit.counts = kept["pit"].copy()
