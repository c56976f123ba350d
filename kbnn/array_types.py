"""Array types used across the package."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

MAX_ABS_VALUE = 1e140
"""Largest supported absolute value: sums of squares of larger ones may overflow float64."""

MIN_ABS_VALUE = 1e-140
"""Values closer to 0 count as 0: their squares underflow, so no scale can be computed."""
