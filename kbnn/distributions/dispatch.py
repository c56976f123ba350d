"""What is stated of numbers, whichever kind of distribution it is.

A row's fields are those of kbnn.distributions.normal_mixture, and the last of them says whose they are: the
mixture's own, the same mixture of what a link makes of a positive number, a negative binomial's, or
that of an amount, which may be none at all. Rows of a stream whose
kind of target was settled on the way may be of several.
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
"""By the code in a row: each has `quantile`, `interval`, `judge`, `possible` and `log_density`."""


def quantile(rows: FloatArray, share: float) -> FloatArray:
    """The value that so large a share of what is stated (n, fields) lies below."""
    return _map_by_distribution(rows, lambda kind, at: kind.quantile(rows[at], share))


def interval(rows: FloatArray, share: float) -> tuple[FloatArray, FloatArray]:
    """The central interval of that share, as it is kept to its promise."""
    lower, upper = _map_parts_by_distribution(
        rows, lambda kind, at: kind.interval(rows[at], share), 2
    )
    return lower, upper


def judge(y: FloatArray, rows: FloatArray) -> RowScores:
    """Values (n,) beside what was stated of them."""
    parts = len(RowScores._fields)
    return RowScores._make(
        _map_parts_by_distribution(rows, lambda kind, at: kind.judge(y[at], rows[at]), parts)
    )


def log_density(y: FloatArray, rows: FloatArray, zero_bin_width: float = 1.0) -> FloatArray:
    """Of values (n,); a whole number is told by the mass of what would be rounded to it.

    Values that are told apart from 0 are `finest` away from it: 0 is told by the mass of what would
    be rounded to it in such steps, so that kinds to which 0 is a value of its own can be compared
    with kinds to which it is one of many.
    """
    return _map_by_distribution(
        rows, lambda kind, at: kind.log_density(y[at], rows[at], zero_bin_width)
    )


def possible(y: FloatArray, rows: FloatArray) -> FloatArray:
    """Whether a value can be one of what was stated, 1 or 0."""
    return _map_by_distribution(rows, lambda kind, at: kind.possible(y[at]))


def _map_by_distribution(
    rows: FloatArray, make: Callable[[ModuleType, Any], FloatArray]
) -> FloatArray:
    """What each row's kind makes of it, (n,)."""
    (made,) = _map_parts_by_distribution(rows, lambda kind, at: (make(kind, at),), 1)
    return made


def _map_parts_by_distribution(
    rows: FloatArray, make: Callable[[ModuleType, Any], Sequence[FloatArray]], parts: int
) -> Sequence[FloatArray]:
    """So many things that each row's kind makes of it, each (n,)."""
    kinds = rows[:, PARAM.kind]
    first = kinds.item(0) if len(rows) else NORMAL_MIXTURE_CODE
    if np.count_nonzero(kinds == first) == len(rows):
        return make(DISTRIBUTIONS[int(first)], slice(None))
    kinds = np.nan_to_num(kinds)  # nothing is stated of some rows
    made = np.empty((parts, len(rows)))
    for code in np.unique(kinds):
        at = kinds == code
        made[:, at] = make(DISTRIBUTIONS[int(code)], at)
    return list(made)
