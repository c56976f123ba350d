"""The link of a positive target y: what the network learns is z, and y = u log(1 + e^z).

Far below the unit u that is the logarithm, z = log(y/u): small values are told by factors. Far
above it z = y/u: large ones are told by differences, as their errors are, and no forecast explodes.
With u four times the median of the first targets, prices that vary by factors are learned as their
logarithms would be, while a few large values among many small ones are still forecast closely.

A unit of 0 stands for the plain logarithm, y = e^z.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from kbnn.core.normal import FloatArray

UNIT_MEDIANS: Final = 4.0
"""The unit, in medians of the first targets."""
MAX_LOG: Final = 690.0
"""Logarithms beyond which there are no numbers to speak of."""
MAX_UNITS: Final = 1e300
"""A value counts as at most so many units: far beyond what is taken for a measurement."""
MAX_FLOAT: Final = float(np.finfo(np.float64).max)


def choose_link_unit(y: FloatArray) -> float:
    """The unit that first targets call for; 0 where none of them is positive."""
    known = y[np.isfinite(y) & (y > 0.0)]
    return UNIT_MEDIANS * float(np.median(known)) if known.size else 0.0


def apply_link(y: FloatArray, unit: FloatArray) -> FloatArray:
    """z of values above 0; infinite where there is none, NaN where nothing is known."""
    soft = unit > 0.0
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        share = np.minimum(y / np.where(soft, unit, 1.0), MAX_UNITS)
        z = np.where(soft, share + np.log(-np.expm1(-share)), np.log(y))
    return np.where(np.isnan(y), np.nan, np.where(y > 0.0, z, np.inf))


def apply_inverse_link(z: FloatArray, unit: FloatArray) -> FloatArray:
    """y of what was learned, all of them numbers above 0."""
    plain = np.exp(np.clip(z, -MAX_LOG, MAX_LOG))
    soft = np.maximum(z, 0.0) + np.log1p(np.exp(-np.abs(np.maximum(z, -MAX_LOG))))
    soft = np.where(z < -30.0, plain, soft)  # where 1 + e^z is 1
    return np.where(unit > 0.0, multiply_clipped(unit, soft), plain)


def multiply_clipped(unit: FloatArray, size: FloatArray) -> FloatArray:
    """So many units, all of them numbers."""
    with np.errstate(over="ignore"):
        return np.minimum(unit * size, MAX_FLOAT)


def log_slope(y: FloatArray, unit: FloatArray) -> FloatArray:
    """log dy/dz at values above 0: what the density of z loses."""
    soft = unit > 0.0
    safe = np.where(soft, unit, 1.0)
    with np.errstate(over="ignore"):
        share = y / safe
    return np.where(soft, np.log(safe) + np.log(-np.expm1(-share)), np.log(y))
