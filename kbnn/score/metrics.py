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
from statistics import NormalDist
from typing import Any

import numpy as np

from kbnn.core.normal import cdf, pdf
from kbnn.score.rowsums import FloatArray, add_rows, cut, floats, restored, running

LEVELS = (50, 80, 90, 95)
"""Percentages of the central intervals whose coverage is counted."""

Z = {level: NormalDist().inv_cdf(0.5 + level / 200) for level in LEVELS}
"""Half-width of each central interval in standard deviations."""

TERMS = ("error", "absolute", "square", "nll", "crps", "sd", "z2", *(f"in{p}" for p in LEVELS))
RECENT = ("weight", "square", "nll", "in90")

LOG_2PI_2 = 0.5 * math.log(2 * math.pi)
INV_SQRT_PI = 1 / math.sqrt(math.pi)


def gaussian_nll(z: FloatArray, sd: FloatArray) -> FloatArray:
    """-log N(y; mean, sd^2) = log(sd) + z^2 / 2 + log(2 pi) / 2, in nats."""
    return np.log(sd) + 0.5 * z * z + LOG_2PI_2


def gaussian_crps(z: FloatArray, sd: FloatArray) -> FloatArray:
    """Integral over t of (Phi((t - mean) / sd) - 1[t >= y])^2, in the units of y."""
    return sd * (z * (2 * cdf(z) - 1) + 2 * pdf(z) - INV_SQRT_PI)


def standardised(y: FloatArray, mean: FloatArray, sd: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Error e = y - mean and z = e / sd, both cut so that their squares stay finite."""
    with np.errstate(over="ignore"):
        e = cut(y - mean)
        return e, cut(e / sd)


class RegressionScore:
    """Streaming figures for one numeric target; the same bits however the rows are cut."""

    def __init__(self) -> None:
        self.rows = 0
        self.skipped = 0
        """Rows without a target."""
        self.invalid = 0
        """Rows whose forecast was no distribution (not finite, sd <= 0); a model gives none."""
        self._sums = np.zeros(len(TERMS))
        self._recent = np.zeros(len(RECENT))
        self._origin: float | None = None
        self._weight = 0.0
        self._shift = 0.0
        self._spread = 0.0

    def add(
        self,
        y: FloatArray,
        mean: FloatArray,
        sd: FloatArray,
        weight: FloatArray | None = None,
    ) -> None:
        """Score rows in order; all arguments are one-dimensional and of the same length."""
        known = np.isfinite(y)
        usable = known & np.isfinite(mean) & np.isfinite(sd) & (sd > 0)
        if not usable.all():
            self.skipped += int(np.count_nonzero(~known))
            self.invalid += int(np.count_nonzero(known & ~usable))
            y, mean, sd = y[usable], mean[usable], sd[usable]
            weight = None if weight is None else weight[usable]
        if y.shape[0] == 0:
            return
        y, mean, sd = (np.ascontiguousarray(part, dtype=np.float64) for part in (y, mean, sd))
        w = np.ones(y.shape[0]) if weight is None else np.ascontiguousarray(weight)
        e, z = standardised(y, mean, sd)
        distance = np.abs(z)
        terms = np.empty((len(TERMS), y.shape[0]))
        terms[0] = e
        terms[1] = np.abs(e)
        terms[2] = e * e
        terms[3] = gaussian_nll(z, sd)
        terms[4] = gaussian_crps(z, sd)
        terms[5] = cut(sd)
        terms[6] = z * z
        for j, level in enumerate(LEVELS, start=7):
            terms[j] = distance <= Z[level]
        if weight is not None:
            terms *= w
        recent = np.vstack((w, terms[2], terms[3], terms[TERMS.index("in90")]))
        self._sums = add_rows(self._sums, terms)
        self._recent = add_rows(self._recent, recent)
        self._add_constant(y, w)
        self.rows += y.shape[0]

    def _add_constant(self, y: FloatArray, w: FloatArray) -> None:
        """Welford: m_t = m_(t-1) + w d / W_t, M2_t = M2_(t-1) + w d (y - m_t), d = y - m_(t-1).

        m_t is written as origin + (sum of w (y - origin)) / W_t, which cumulative sums give for
        every row at once; M2 then adds up terms that cannot cancel.
        """
        if self._origin is None:
            self._origin = float(cut(y[:1])[0])
        with np.errstate(over="ignore"):
            d = cut(y - self._origin)
        weights = running(self._weight, w)
        shifts = running(self._shift, w * d)
        before = np.divide(shifts[:-1], weights[:-1], out=d.copy(), where=weights[:-1] > 0)
        after = shifts[1:] / weights[1:]
        gain = np.maximum(w * (d - before) * (d - after), 0.0)
        self._spread = float(running(self._spread, gain)[-1])
        self._weight, self._shift = float(weights[-1]), float(shifts[-1])

    def mark(self) -> None:
        """Start a new stretch for `since`."""
        self._recent = np.zeros(len(RECENT))

    def since(self) -> dict[str, float | None]:
        """RMSE, NLL and 90 % coverage of the rows since the last `mark`."""
        weight, square, nll, inside = floats(self._recent)
        if weight <= 0:
            return {"rmse": None, "nll": None, "coverage_90": None}
        return {
            "rmse": math.sqrt(square / weight),
            "nll": nll / weight,
            "coverage_90": inside / weight,
        }

    def average(self, term: str) -> float | None:
        """Weighted mean of one of TERMS over all rows, None before the first row."""
        if self._weight <= 0:
            return None
        return float(self._sums[TERMS.index(term)]) / self._weight

    def figures(self) -> dict[str, Any]:
        """All figures under the names of `kbnn evaluate --json`; None where undefined."""
        square, spread = self.average("square"), self._constant_variance()
        sd = self.average("sd")
        return {
            "rows": self.rows,
            "skipped": self.skipped,
            "rmse": None if square is None else math.sqrt(square),
            "mae": self.average("absolute"),
            "r2": None if square is None or not spread else 1 - square / spread,
            "nll": self.average("nll"),
            "crps": self.average("crps"),
            "coverage": {str(level): self.average(f"in{level}") for level in LEVELS},
            "interval_width_90": None if sd is None else 2 * Z[90] * sd,
            "bias": self.average("error"),
            "baseline_rmse": None if spread is None else math.sqrt(spread),
            "baseline_nll": 0.5 * math.log(spread) + LOG_2PI_2 + 0.5 if spread else None,
        }

    def _constant_variance(self) -> float | None:
        return self._spread / self._weight if self._weight > 0 else None

    def mean_target(self) -> float | None:
        """Mean of y: the best constant prediction."""
        if self._origin is None or self._weight <= 0:
            return None
        return self._origin + self._shift / self._weight

    def to_json(self) -> dict[str, Any]:
        """The whole state; `from_json` restores it bit for bit."""
        return {
            "rows": self.rows,
            "skipped": self.skipped,
            "invalid": self.invalid,
            "sums": dict(zip(TERMS, floats(self._sums), strict=True)),
            "recent": dict(zip(RECENT, floats(self._recent), strict=True)),
            "origin": self._origin,
            "weight": self._weight,
            "shift": self._shift,
            "spread": self._spread,
        }

    @classmethod
    def from_json(cls, state: Mapping[str, Any]) -> RegressionScore:
        """The score that `to_json` described."""
        score = cls()
        score.rows, score.skipped = int(state["rows"]), int(state["skipped"])
        score.invalid = int(state["invalid"])
        score._sums = restored([state["sums"][name] for name in TERMS], (len(TERMS),))
        score._recent = restored([state["recent"][name] for name in RECENT], (len(RECENT),))
        constant = restored([state[name] for name in ("weight", "shift", "spread")], (3,))
        score._weight, score._shift, score._spread = floats(constant)
        if state["origin"] is not None:
            score._origin = float(restored(state["origin"], ()))
        return score
