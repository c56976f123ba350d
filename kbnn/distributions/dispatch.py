"""Evaluate predictive distributions of numbers, whichever distribution each row has.

A row's fields are those of kbnn.distributions.normal_mixture; the field `kind` says which
distribution they parametrise: the mixture itself, the mixture of a linked positive number, a
negative binomial, or an amount that may be exactly 0. Rows of one stream may have different
distributions, because the target type may change during learning.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, Final

import numpy as np

from kbnn.array_types import FloatArray
from kbnn.distributions import hurdle, log_link, negative_binomial, normal_mixture
from kbnn.distributions.normal_mixture import PARAM, RowScores

NORMAL_MIXTURE_CODE, LOG_LINK_CODE, NEGATIVE_BINOMIAL_CODE, HURDLE_CODE = range(4)
DISTRIBUTIONS: Final[tuple[ModuleType, ...]] = (normal_mixture, log_link, negative_binomial, hurdle)
"""Modules by code; each has `quantile`, `interval`, `judge`, `possible` and `log_density`."""


def quantile(rows: FloatArray, share: float) -> FloatArray:
    """Return the quantile of level `share` of each row (n, fields)."""
    return _map_by_distribution(rows, lambda kind, at: kind.quantile(rows[at], share))


def interval(rows: FloatArray, share: float) -> tuple[FloatArray, FloatArray]:
    """Return the central interval of probability `share`, as calibrated."""
    lower, upper = _map_parts_by_distribution(
        rows, lambda kind, at: kind.interval(rows[at], share), 2
    )
    return lower, upper


def judge(y: FloatArray, rows: FloatArray) -> RowScores:
    """Score values (n,) against their predictive distributions."""
    parts = len(RowScores._fields)
    return RowScores._make(
        _map_parts_by_distribution(rows, lambda kind, at: kind.judge(y[at], rows[at]), parts)
    )


def log_density(y: FloatArray, rows: FloatArray, zero_bin_width: float = 1.0) -> FloatArray:
    """Return the log density of values (n,); of a whole number, the log mass that rounds to it.

    The bin of 0 has the width `zero_bin_width`, so that target types for which 0 has a probability
    of its own can be compared with types for which it is one value of many.
    """
    return _map_by_distribution(
        rows, lambda kind, at: kind.log_density(y[at], rows[at], zero_bin_width)
    )


def possible(y: FloatArray, rows: FloatArray) -> FloatArray:
    """Return 1 where a value is in the support of its distribution, otherwise 0."""
    return _map_by_distribution(rows, lambda kind, at: kind.possible(y[at]))


def _map_by_distribution(
    rows: FloatArray, make: Callable[[ModuleType, Any], FloatArray]
) -> FloatArray:
    """Apply a function of each row's distribution; the result is (n,)."""
    (made,) = _map_parts_by_distribution(rows, lambda kind, at: (make(kind, at),), 1)
    return made


def _map_parts_by_distribution(
    rows: FloatArray, make: Callable[[ModuleType, Any], Sequence[FloatArray]], parts: int
) -> Sequence[FloatArray]:
    """Apply a function of each row's distribution that returns `parts` arrays of (n,)."""
    kinds = rows[:, PARAM.kind]
    first = kinds.item(0) if len(rows) else NORMAL_MIXTURE_CODE
    if np.count_nonzero(kinds == first) == len(rows):
        return make(DISTRIBUTIONS[int(first)], slice(None))
    kinds = np.nan_to_num(kinds)  # rows without a forecast are NaN
    made = np.empty((parts, len(rows)))
    for code in np.unique(kinds):
        at = kinds == code
        made[:, at] = make(DISTRIBUTIONS[int(code)], at)
    return list(made)
