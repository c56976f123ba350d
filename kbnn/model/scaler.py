"""Standardisation that adapts to the stream.

Every column has a Welford mean and variance of its winsorised values (clipped to 8 running standard
deviations once 32 were seen, so that one outlier cannot flatten a scale), and the mean and mean
square of its standardised values over about the last 64 rows. `center` and `scale` are those in
use. They change only in `refit_scale`, together with the networks (kbnn.model.rescale).

A column that has not varied has scale 0 and is standardised to exactly 0, which leaves its weights
at their prior; its first deviation becomes its scale. A column without any value so far is
standardised to 0 as well. Indicator columns are fixed: they are not standardised.

Frequent outliers (a tenth of the rows is enough) widen the running statistics together with the
clipping bounds. When a scale is refitted, median and MAD of the last buffered rows distinguish them
from a wider column, and the statistics are corrected (`leave_out_outliers`).
"""

from __future__ import annotations

import math
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kbnn.array_types import FloatArray
from kbnn.core import kernel
from kbnn.core.constants import OUTGROWN as OUTGROWN
from kbnn.core.constants import RECENT_ROWS, TRUSTED, WINSOR

COUNT, MEAN, SQUARES, RECENT, RECENT_SQUARE, CENTER, SCALE = range(7)
FIELDS = 7

_NORMAL_MAD = 1.4826
"""Standard deviation of a normal distribution, in median absolute deviations."""
_WARM_UP_WINSOR = 8.0 * _NORMAL_MAD
_SCALE_TOLERANCE = 0.1
"""Relative tolerance of a scale and, in units of it, of a center. It is halved in the first
_CLOSE_FIT_ROWS rows if rows are replayed: there, relearning all rows is useful in itself."""
_CLOSE_FIT_ROWS = 512
_FAR_RATIO = float(np.log(1.5))
_FAR_SHIFT = 0.5

OUTLIER_REACH = 20.0
"""Robust standard deviations (1.4826 MAD) from the median beyond which a value may be an outlier.
Below that, a tenth of the rows widens a scale by a factor of 6 at most, which costs little, and
values may be events that the network will learn to predict."""
MAX_OUTLIER_SHARE = 0.3
"""Largest share of outliers; with more distant values, the column has changed."""
CHANGE_ROWS, CHANGE_REACH, CHANGE_SHARE = 16, 5.0, 0.4
"""If more than CHANGE_SHARE of the last CHANGE_ROWS rows are beyond CHANGE_REACH robust standard
deviations, the column has changed: outliers are scattered. With a tenth of outliers, the test is
wrong once in 2,000 times."""
OUTLIER_ROWS = 512
"""Last rows searched for outliers; if a scale was outgrown, the last RECENT_ROWS."""
MIN_INFLATION_RATIO = 1.5
"""Factor by which outliers must have widened a target's scale; heavy tails widen it less."""
OUTGROWN_RATIO = 2.0
"""A scale is outgrown if rows without outliers are wider or narrower by at least this factor."""


class Scale(NamedTuple):
    """Center and scale of each column; scale 0 where a column has not varied."""

    center: FloatArray
    scale: FloatArray


def blank_columns(width: int) -> FloatArray:
    """Return statistics of columns without any value."""
    columns = np.zeros((width, FIELDS))
    columns[:, RECENT_SQUARE] = 1.0
    return columns


def identity_columns(width: int) -> FloatArray:
    """Return columns that are never standardised: center 0, scale 1."""
    columns = blank_columns(width)
    columns[:, COUNT] = columns[:, SCALE] = 1.0
    return columns


def get_scale(columns: FloatArray) -> Scale:
    """Return a copy of the scale in use."""
    return Scale(columns[:, CENTER].copy(), columns[:, SCALE].copy())


def compute_output_map(
    old: Scale, new: Scale, targets: int, outputs: int
) -> tuple[FloatArray, FloatArray]:
    """Return gain and shift of the outputs, y' = gain y + shift, when the scale changes.

    Targets come first in a scale, and among the outputs.
    """
    gain, shift = np.ones(outputs), np.zeros(outputs)
    t = slice(targets)
    before, after = (np.where(s.scale[t] > 0.0, s.scale[t], 1.0) for s in (old, new))
    gain[t], shift[t] = before / after, (old.center[t] - new.center[t]) / after
    return gain, shift


def fit_scaler(raw: FloatArray) -> FloatArray:
    """Fit statistics and scale to the rows of the warm-up.

    Values are winsorised about the median, since among few rows an outlier would set the scale.
    """
    columns = blank_columns(raw.shape[1])
    for column, values in zip(columns, raw.T.tolist(), strict=True):
        seen = [value for value in values if math.isfinite(value)]
        if not seen:
            continue
        middle = _median(seen)
        reach = _WARM_UP_WINSOR * _median([abs(value - middle) for value in seen])
        low, high = (middle - reach, middle + reach) if reach > 0.0 else (-math.inf, math.inf)
        mean, squares = 0.0, 0.0
        for count, value in enumerate(seen, start=1):
            value = low if value < low else high if value > high else value
            delta = value - mean
            mean += delta / count
            squares += delta * (value - mean)
        column[COUNT], column[MEAN], column[SQUARES] = len(seen), mean, squares
        column[CENTER], column[SCALE] = mean, math.sqrt(squares / len(seen))
    return columns


def _median(values: list[float]) -> float:
    """Return the median; three times as fast as the standard library's."""
    values = sorted(values)
    half = len(values) // 2
    return values[half] if len(values) % 2 else (values[half - 1] + values[half]) / 2


def _update_moments(column: FloatArray, value: float) -> None:
    """Add one value to a column's Welford mean and sum of squares."""
    column[COUNT] += 1.0
    delta = value - column[MEAN]
    column[MEAN] += delta / column[COUNT]
    column[SQUARES] += delta * (value - column[MEAN])


def standardize_rows(columns: FloatArray, raw: FloatArray, fixed: FloatArray) -> FloatArray:
    """Standardise rows with the scale in use; NaN stays NaN except in columns without any value."""
    scale = columns[:, SCALE]
    if np.count_nonzero(scale) == len(scale) and not np.count_nonzero(fixed):
        with np.errstate(over="ignore"):  # an infinite value is treated as missing
            return np.ascontiguousarray((raw - columns[:, CENTER]) / scale)
    safe = np.where(scale > 0.0, scale, 1.0)
    unvaried = np.where(np.isnan(raw), raw, 0.0)
    out = np.where(scale > 0.0, (raw - columns[:, CENTER]) / safe, unvaried)
    out = np.where((columns[:, COUNT] == 0.0) & np.isnan(raw), 0.0, out)
    return np.ascontiguousarray(np.where(fixed > 0.0, raw, out))


class StandardizedRows(NamedTuple):
    """The first rows, standardised, and whether the last of them outgrew a scale."""

    labels: FloatArray  # (n, T)
    inputs: FloatArray  # (n, D)
    outgrown: bool


def standardize_and_update(
    columns: FloatArray,
    y: FloatArray,
    x: FloatArray,
    fixed: FloatArray,
    compiled: bool | None = None,
) -> StandardizedRows:
    """Standardise scaled targets y and inputs x in order, adding each row to the statistics.

    Stop after the first row at which a column has outgrown its scale. Stop also before a row
    (except the first) in which a constant column varies: results must not depend on a scale that is
    set within a batch. `compiled`: whether the kernel is used, if known.
    """
    if kernel.is_compiled() if compiled is None else compiled:
        y, x = np.ascontiguousarray(y), np.ascontiguousarray(x)
        return _as_standardized(kernel.scale_rows(columns, y, x, fixed))
    targets = y.shape[1]
    raw = np.hstack([y, x])
    out = np.empty_like(raw)
    done, outgrown = _update_rows(columns, raw, out, fixed)
    labels = np.where(np.isnan(y[:done]), np.nan, out[:done, :targets])
    return StandardizedRows(labels, np.ascontiguousarray(out[:done, targets:]), outgrown)


_as_standardized = partial(tuple.__new__, StandardizedRows)


def _update_rows(
    columns: FloatArray, raw: FloatArray, out: FloatArray, fixed: FloatArray
) -> tuple[int, bool]:
    """Standardise rows in numpy, as the kernel does; return rows done and whether one outgrew."""
    for row, values in enumerate(raw):
        constant = (columns[:, SCALE] == 0.0) & (columns[:, COUNT] > 0.0) & (fixed == 0.0)
        if row and np.any(constant & np.isfinite(values) & (values != columns[:, CENTER])):
            return row, False
        restless = False
        for j, value in enumerate(values):
            if fixed[j]:
                out[row, j] = value
            elif not np.isfinite(value):
                out[row, j] = 0.0 if np.isnan(value) and columns[j, COUNT] == 0.0 else value
            else:
                out[row, j] = _update_value(columns[j], float(value))
                restless |= bool(columns[j, RECENT_SQUARE] > OUTGROWN)
        if restless:
            return row + 1, True
    return len(raw), False


def _update_value(column: FloatArray, value: float) -> float:
    """Add one value to a column's statistics and return it standardised."""
    if column[COUNT] == 0.0:
        column[COUNT] = 1.0
        column[CENTER] = column[MEAN] = value
        return 0.0
    if column[SCALE] == 0.0 and value != column[CENTER]:
        column[SCALE] = abs(value - column[CENTER])
    sd = np.sqrt(column[SQUARES] / column[COUNT])
    seen = value
    if column[COUNT] >= TRUSTED and sd > 0.0:
        seen = min(max(value, column[MEAN] - WINSOR * sd), column[MEAN] + WINSOR * sd)
    _update_moments(column, seen)
    if column[SCALE] == 0.0:
        return 0.0
    z = (value - column[CENTER]) / column[SCALE]
    bounded = min(max(z, -WINSOR), WINSOR)
    column[RECENT] += (bounded - column[RECENT]) / RECENT_ROWS
    column[RECENT_SQUARE] += (bounded * bounded - column[RECENT_SQUARE]) / RECENT_ROWS
    return float(z)


def is_large_change(old: Scale, new: Scale) -> bool:
    """Whether a column's scale changes by more than half, or its center by half its scale."""
    varied = (old.scale > 0.0) & (new.scale > 0.0)
    ratio = new.scale[varied] / old.scale[varied]
    shift = (new.center[varied] - old.center[varied]) / new.scale[varied]
    return bool(np.any(np.abs(np.log(ratio)) > _FAR_RATIO) or np.any(np.abs(shift) > _FAR_SHIFT))


class LastRows(NamedTuple):
    """The last rows in the user's units: (n, columns), the scaled targets first.

    `expected` (n,) is whether a row's targets were not outliers to the network.
    """

    values: FloatArray
    targets: int
    expected: NDArray[np.bool_]


class Bulk(NamedTuple):
    """Mean and standard deviation of values without outliers."""

    mean: float
    sd: float


def find_bulk(values: FloatArray, expected: NDArray[np.bool_] | None) -> Bulk | None:
    """Return mean and sd without outliers; None if there are none, or too many.

    An outlier lies OUTLIER_REACH robust standard deviations from the median and is not `expected`.
    A column of which half the values are equal has a MAD of 0 and no outliers.
    """
    known = np.isfinite(values)
    seen = values[known]
    if len(seen) < TRUSTED:
        return None
    gap = np.abs(seen - np.median(seen))
    unit = _NORMAL_MAD * np.median(gap)
    if np.mean(gap[-CHANGE_ROWS:] > CHANGE_REACH * unit) > CHANGE_SHARE:
        return None
    out = gap > OUTLIER_REACH * unit
    if expected is not None:
        out &= ~expected[known]
    if not (unit > 0.0 and 0.0 < np.mean(out) <= MAX_OUTLIER_SHARE):
        return None
    bulk = seen[~out]
    with np.errstate(over="ignore"):
        return Bulk(float(np.mean(bulk)), float(np.std(bulk)))


def leave_out_outliers(columns: FloatArray, fixed: FloatArray, last: LastRows) -> None:
    """Correct, in place, the statistics of columns that outliers among the last rows have widened.

    A scale that only outliers have outgrown stays as it is.
    """
    for j in np.flatnonzero((fixed == 0.0) & (columns[:, SCALE] > 0.0)):
        column = columns[j]
        outgrown = column[RECENT_SQUARE] > OUTGROWN
        rows = slice(-int(RECENT_ROWS) if outgrown else -OUTLIER_ROWS, None)
        is_target = j < last.targets
        bulk = find_bulk(last.values[rows, j], last.expected[rows] if is_target else None)
        if bulk is None or not 0.0 < bulk.sd < np.inf:
            continue
        scale, least = column[SCALE], MIN_INFLATION_RATIO if is_target else 1.0
        if outgrown and _is_scale_adequate(bulk, column):
            bulk = Bulk(column[CENTER], scale)
        elif not outgrown and column[SQUARES] <= column[COUNT] * (least * bulk.sd) ** 2:
            continue
        column[MEAN], column[SQUARES] = bulk.mean, column[COUNT] * bulk.sd**2
        column[RECENT], column[RECENT_SQUARE] = 0.0, 1.0


def _is_scale_adequate(bulk: Bulk, column: FloatArray) -> bool:
    """Whether the scale in use is close to that of the rows without outliers."""
    ratio, shift = bulk.sd / column[SCALE], abs(bulk.mean - column[CENTER]) / column[SCALE]
    return bool(1.0 / OUTGROWN_RATIO < ratio < OUTGROWN_RATIO and shift < 0.5 * OUTGROWN_RATIO)


def refit_scale(
    columns: FloatArray,
    fixed: FloatArray,
    closely: bool = False,
    last: LastRows | None = None,
    scheduled: bool = True,
) -> FloatArray:
    """Return statistics with a scale that fits the stream.

    `closely` halves the tolerance during the first rows. `last` are the last buffered rows, if any;
    outliers among them are left out. A refit that is not `scheduled` is due to a column that seems
    to have outgrown its scale; if only outliers have, all scales stay until the next scheduled one.

    A column that has outgrown its scale takes its recent mean and spread, and its count is reduced
    to the recent rows. If any column has left the scale in use, all columns are set to their
    running statistics.
    """
    new = columns.copy()
    if last is not None:
        leave_out_outliers(new, fixed, last)
    outgrown = (new[:, RECENT_SQUARE] > OUTGROWN) & (fixed == 0.0)
    if not (scheduled or np.any(outgrown)):
        return new
    for j in np.flatnonzero(outgrown):
        column = new[j]
        if column[SCALE] > 0.0:
            spread = np.sqrt(max(column[RECENT_SQUARE] - column[RECENT] ** 2, 1.0))
            column[MEAN] = column[CENTER] + column[SCALE] * column[RECENT]
            column[COUNT] = min(column[COUNT], RECENT_ROWS)
            column[SQUARES] = column[COUNT] * (column[SCALE] * spread) ** 2
    count, mean, squares, used = new[:, COUNT], new[:, MEAN], new[:, SQUARES], new[:, SCALE]
    scale = np.sqrt(squares / np.maximum(count, 1.0))
    at = (fixed == 0.0) & (used > 0.0) & (scale > 0.0) & np.isfinite(scale)
    ratio = np.where(at, scale, 1.0) / np.where(at, used, 1.0)
    shift = np.abs(mean - new[:, CENTER]) / np.where(at, scale, 1.0)
    near = (
        np.where(count > _CLOSE_FIT_ROWS, _SCALE_TOLERANCE, 0.5 * _SCALE_TOLERANCE)
        if closely
        else _SCALE_TOLERANCE
    )
    if np.any(at & ((np.maximum(ratio, 1.0 / ratio) > 1.0 + near) | (shift > near))):
        new[at, CENTER], new[at, SCALE] = mean[at], scale[at]
        new[at, RECENT], new[at, RECENT_SQUARE] = 0.0, 1.0
    return new
