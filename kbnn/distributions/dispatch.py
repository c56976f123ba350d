"""Make distribution objects from the parameters of forecasts.

The field `kind` of a row says which distribution its parameters describe. Rows of one stream may
have different distributions, because the target type may change during learning.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from kbnn.array_types import BoolArray, FloatArray
from kbnn.distributions.negative_binomial import NegativeBinomial
from kbnn.distributions.normal_mixture import NormalMixture
from kbnn.distributions.predictive import (
    PARAM,
    PredictiveDistribution,
    RowScores,
)
from kbnn.distributions.transformed_normal import Hurdle, LogitLink, LogLink

DISTRIBUTIONS: Final[dict[int, type[PredictiveDistribution]]] = {
    kind.code: kind for kind in (NormalMixture, LogLink, NegativeBinomial, Hurdle, LogitLink)
}
"""Distributions by code."""


def read_distribution(rows: FloatArray) -> PredictiveDistribution:
    """Return the distributions with parameters (n, fields)."""
    kinds = rows[:, PARAM.kind]
    first = kinds.item(0) if len(rows) else NormalMixture.code
    if np.count_nonzero(kinds == first) == len(rows):
        return DISTRIBUTIONS[int(first)](rows)
    return DifferentKinds(rows)


class DifferentKinds(PredictiveDistribution):
    """Rows whose distributions are of different kinds."""

    def __getitem__(self, at: Any) -> PredictiveDistribution:
        """Select rows by a slice, a mask or indices."""
        return read_distribution(self.rows[at])

    def _map_kinds(self, method: str, *args: Any) -> Any:
        """Call a method of each kind's distributions and put the results in the order of rows."""
        kinds = np.nan_to_num(self.rows[..., PARAM.kind])  # rows without a forecast are NaN
        made: Any = None
        for code in np.unique(kinds):
            at = kinds == code
            own = [arg[..., at] if isinstance(arg, np.ndarray) else arg for arg in args]
            part = getattr(DISTRIBUTIONS[int(code)](self.rows[at]), method)(*own)
            several = isinstance(part, tuple)
            parts = part if several else (part,)
            if made is None:
                blank = [np.empty((*one.shape[:-1], len(kinds)), one.dtype) for one in parts]
                made = type(part)(*blank) if hasattr(part, "_fields") else tuple(blank)
            for whole, one in zip(made, parts, strict=True):
                whole[..., at] = one
        return made if several else made[0]

    @staticmethod
    def is_possible(y: FloatArray) -> BoolArray:
        """Return whether values are numbers; `in_support` knows each row's distribution."""
        return np.isfinite(y)

    def in_support(self, y: FloatArray) -> BoolArray:
        """Return whether each row's value is in the support of its distribution."""
        found: BoolArray = self._map_kinds("in_support", y)
        return found

    def has_forecast(self) -> BoolArray:
        """Return whether each row holds a distribution."""
        found: BoolArray = self._map_kinds("has_forecast")
        return found

    def nearest_possible(self, y: FloatArray) -> FloatArray:
        """Return the value of the support nearest below."""
        found: FloatArray = self._map_kinds("nearest_possible", y)
        return found

    def mean_and_sd(self) -> tuple[FloatArray, FloatArray]:
        """Return means and sds."""
        found: tuple[FloatArray, FloatArray] = self._map_kinds("mean_and_sd")
        return found

    def cdf(self, y: FloatArray) -> FloatArray:
        """Return P(Y <= y)."""
        found: FloatArray = self._map_kinds("cdf", y)
        return found

    def log_density(self, y: FloatArray, zero_bin_width: float = 1.0) -> FloatArray:
        """Return the log density of values."""
        found: FloatArray = self._map_kinds("log_density", y, zero_bin_width)
        return found

    def quantile(self, share: float) -> FloatArray:
        """Return the quantile of level `share`."""
        found: FloatArray = self._map_kinds("quantile", share)
        return found

    def interval(self, share: float) -> tuple[FloatArray, FloatArray]:
        """Return the calibrated interval of probability `share`."""
        found: tuple[FloatArray, FloatArray] = self._map_kinds("interval", share)
        return found

    def interval_levels(self, outside: float) -> tuple[FloatArray, FloatArray]:
        """Return the probabilities below the edges of an interval."""
        found: tuple[FloatArray, FloatArray] = self._map_kinds("interval_levels", outside)
        return found

    def crps(self, y: FloatArray) -> FloatArray:
        """Return the CRPS of values."""
        found: FloatArray = self._map_kinds("crps", y)
        return found

    def score_values(self, y: FloatArray) -> RowScores:
        """Score values."""
        found: RowScores = self._map_kinds("score_values", y)
        return found

    def sample(self, rng: np.random.Generator) -> FloatArray:
        """Draw one value of each row."""
        found: FloatArray = self._map_kinds("sample", rng)
        return found
