"""Piecewise-linear encoding of numeric inputs.

A network on raw inputs needs many rows to learn a threshold. An encoded network sees, beside each
standardised input z, how far z has come through each of a few bins. The bins lie between quantiles
q_0 < ... < q_K of the first rows, and component k is

    e_k = (clip((z - q_k)/(q_(k+1) - q_k), 0, 1) - center_k) / scale_k
        = clip(slope_k z + offset_k, low_k, high_k)

with center and scale of the rows that the bins were fitted to. The components of a missing input
are missing. A noisy input, z ~ N(m, v), enters by the exact mean and variance of its components.
Indicators, cycles and columns with fewer than three distinct values are not encoded.

The components come before the standardised inputs, so that columns added later extend the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from kbnn.array_types import FloatArray, IntArray
from kbnn.core import normal
from kbnn.model.scaler import Scale

COLUMN, SLOPE, OFFSET, LOW, HIGH = range(5)
"""Fields of a bin; the column is an index of the inputs."""
BIN_FIELDS: Final = 5
NO_BINS: Final[FloatArray] = np.zeros((0, BIN_FIELDS))

MAX_BINS: Final = 8
"""Bins of one column; sixteen were no better."""
MAX_COMPONENTS: Final = 512
"""Components of all columns; many columns have fewer bins each."""
FEW_OUTPUTS: Final = 3
MANY_CLASS_BINS: Final = 3
MANY_CLASS_COMPONENTS: Final = 96
"""Limits for more outputs than FEW_OUTPUTS, whose networks have a covariance per neuron: their cost
grows with the square of the inputs."""
MIN_BIN_WIDTH: Final = 1e-3
"""Smallest width of a bin, in standard deviations: a smaller distance is rounding."""


def count_bins(columns: int, outputs: int = 1) -> int:
    """Return how many bins each of the encoded columns has; below 2 there are none."""
    if outputs > FEW_OUTPUTS:
        return min(MANY_CLASS_BINS, MANY_CLASS_COMPONENTS // max(columns, 1))
    return min(MAX_BINS, MAX_COMPONENTS // max(columns, 1))


def fit_bins(z: FloatArray, encodable: FloatArray, outputs: int = 1) -> FloatArray:
    """Fit bins (B, BIN_FIELDS) to standardised rows.

    Parameters
    ----------
    z : (n, D)
        Standardised inputs; NaN where missing.
    encodable : (D,)
        1 for the columns that may be encoded, else 0.
    outputs
        Number of the network's outputs.
    """
    columns = np.flatnonzero(encodable)
    count = count_bins(len(columns), outputs)
    if count < 2:
        return NO_BINS
    return np.vstack([NO_BINS, *(_fit_column(z[:, j], int(j), count) for j in columns)])


def _fit_column(values: FloatArray, column: int, count: int) -> FloatArray:
    """Fit the bins of one column: between its values if these are few, else between quantiles."""
    values = values[np.isfinite(values)]
    edges = np.unique(values)
    if len(edges) > count + 1:
        edges = np.quantile(values, np.linspace(0.0, 1.0, count + 1))
    kept = edges[:1].tolist()
    for edge in edges[1:].tolist():
        if edge - kept[-1] >= MIN_BIN_WIDTH:
            kept.append(edge)
    if len(kept) < 3:  # a single bin would be the input itself
        return NO_BINS
    start, width = np.array(kept[:-1]), np.diff(kept)
    ramps = np.clip((values[:, None] - start) / width, 0.0, 1.0)
    center, scale = np.mean(ramps, axis=0), np.std(ramps, axis=0)
    bins = np.empty((len(start), BIN_FIELDS))
    bins[:, COLUMN] = column
    bins[:, SLOPE] = 1.0 / (width * scale)
    bins[:, OFFSET] = -start / (width * scale) - center / scale
    bins[:, LOW], bins[:, HIGH] = -center / scale, (1.0 - center) / scale
    return bins


def encode_inputs(
    bins: FloatArray, z: FloatArray, var: FloatArray | None
) -> tuple[FloatArray, FloatArray | None]:
    """Return means and variances of the network's inputs: components, then standardised inputs.

    `var` (n, D) are the variances of noisy inputs; None if all are exact.
    """
    if not len(bins):
        return np.ascontiguousarray(z), var
    at = bins[:, COLUMN].astype(np.int64)
    if var is None:
        ramps = z[:, at]
        ramps *= bins[:, SLOPE]
        ramps += bins[:, OFFSET]
        np.clip(ramps, bins[:, LOW], bins[:, HIGH], out=ramps)
        return np.ascontiguousarray(np.hstack([ramps, z])), None
    mean, spread = _compute_clipped_moments(bins, z[:, at], var[:, at])
    return (
        np.ascontiguousarray(np.hstack([mean, z])),
        np.ascontiguousarray(np.hstack([spread, var])),
    )


def _compute_clipped_moments(
    bins: FloatArray, z: FloatArray, var: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return mean and variance of clip(u, low, high), u ~ N(slope z + offset, slope^2 var).

    With a = max(u - low, 0) and b = max(u - high, 0) the clipped value is low + a - b, and
    (a - b)^2 = a^2 - b^2 - 2 (high - low) b.
    """
    u, low, high = bins[:, SLOPE] * z + bins[:, OFFSET], bins[:, LOW], bins[:, HIGH]
    known = np.isfinite(var)
    sd = bins[:, SLOPE] * np.sqrt(np.where(known, var, 0.0))
    safe = np.maximum(sd, 1e-12)
    parts = []
    for edge in (low, high):
        t = (u - edge) / safe
        cdf, pdf = normal.cdf(t), normal.pdf(t)
        first = (u - edge) * cdf + safe * pdf
        parts.append((first, (u - edge) * first + safe**2 * cdf))
    (a, a_square), (b, b_square) = parts
    mean = a - b
    spread = np.maximum(a_square - b_square - 2.0 * (high - low) * b - mean**2, 0.0)
    exact = sd <= 1e-12
    return (
        np.where(exact, np.clip(u, low, high), low + mean),
        np.where(known, np.where(exact, 0.0, spread), np.inf),
    )


def find_active_slopes(bins: FloatArray, z: FloatArray) -> tuple[FloatArray, IntArray]:
    """Return the derivative of each component (n, B) with respect to its column (B,)."""
    at = bins[:, COLUMN].astype(np.int64)
    u = bins[:, SLOPE] * z[:, at] + bins[:, OFFSET]
    inside = (u > bins[:, LOW]) & (u < bins[:, HIGH])
    return np.where(inside, bins[:, SLOPE], 0.0), at


def rescale_bins(bins: FloatArray, old: Scale, new: Scale) -> FloatArray:
    """Convert bins to another scale of the inputs: the components of a row stay the same."""
    at = bins[:, COLUMN].astype(np.int64)
    before = np.where(old.scale > 0.0, old.scale, 1.0)[at]
    after = np.where(new.scale > 0.0, new.scale, 1.0)[at]
    moved = bins.copy()
    moved[:, SLOPE] = bins[:, SLOPE] * after / before
    moved[:, OFFSET] = bins[:, OFFSET] + bins[:, SLOPE] * (new.center - old.center)[at] / before
    return moved


def reorder_bins(bins: FloatArray, inputs: IntArray) -> FloatArray:
    """Return the bins of a network whose input i has become input inputs[i]."""
    moved = bins.copy()
    moved[:, COLUMN] = inputs[bins[:, COLUMN].astype(np.int64)]
    return moved


def prepend_bins(scale: Scale, bins: FloatArray) -> Scale:
    """Return the scale of all network inputs; components have a scale of their own."""
    none = np.zeros(len(bins))
    return Scale(np.append(none, scale.center), np.append(none + 1.0, scale.scale))


def is_valid_bins(bins: FloatArray, inputs: int) -> bool:
    """Return whether stored bins can be those of a network with this number of raw inputs."""
    if bins.shape[1:] != (BIN_FIELDS,) or len(bins) > MAX_COMPONENTS:
        return False
    column = bins[:, COLUMN]
    fits = np.all((column >= 0.0) & (column < inputs) & (column == np.rint(column)))
    ordered = np.all((bins[:, SLOPE] > 0.0) & (bins[:, LOW] < bins[:, HIGH]))
    return bool(fits and ordered and np.all(np.abs(bins) < 1e100))


def list_bin_names(bins: FloatArray, names: Sequence[str]) -> list[str]:
    """Return a name for each component; `names` are those of the inputs."""
    columns = bins[:, COLUMN].astype(np.int64).tolist()
    return [f"{names[at]} bin {columns[: k + 1].count(at)}" for k, at in enumerate(columns)]
