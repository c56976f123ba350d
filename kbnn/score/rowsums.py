"""Sums taken in row order, so that the way a stream was cut into blocks leaves no trace.

`np.sum` adds in pairs and its last bits depend on where a block begins. Here s_0 = carry and
s_t = s_(t-1) + x_t, strictly one after another: adding 1,000 rows at once or one by one gives the
same bits.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from kbnn.core.constants import LARGEST_TERM
from kbnn.core.engine import exceeds_limits

FloatArray: TypeAlias = NDArray[np.float64]
IntArray: TypeAlias = NDArray[np.int64]
BoolArray: TypeAlias = NDArray[np.bool_]


def shared_ones(n: int) -> FloatArray:
    """n ones, not to be written to."""
    return _cached_ones(1 << n.bit_length())[:n]


@lru_cache(maxsize=1)
def _cached_ones(n: int) -> FloatArray:
    made = np.ones(n)
    made.flags.writeable = False
    return made


def clip_terms(values: FloatArray) -> FloatArray:
    """Values limited to +-LARGEST_TERM; the same array where none is beyond."""
    far = exceeds_limits(values, 0.0, LARGEST_TERM)[0]
    return np.clip(values, -LARGEST_TERM, LARGEST_TERM) if far else values


def restore_floats(values: object, shape: tuple[int, ...]) -> FloatArray:
    """Stored numbers as an array of that shape; ValueError when they are not, or not finite."""
    array = np.array(values, dtype=np.float64)
    if array.shape != shape or not np.isfinite(array).all():
        raise ValueError(f"expected {shape} finite numbers, found {array.shape}")
    return array


def restore_counts(values: object, shape: tuple[int, ...]) -> IntArray:
    """Stored counts as an array of that shape; ValueError when they are none."""
    counts = restore_floats(values, shape)
    if np.any(counts < 0.0) or np.any(counts > 2.0**53):
        raise ValueError("expected counts")
    return counts.astype(np.int64)


def to_float_list(values: FloatArray) -> list[float]:
    """A JSON list that restores the same bits: `json` writes the shortest exact decimal."""
    return [float(value) for value in values]
