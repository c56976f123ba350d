"""Candidates for forecasts of a series: the network's path, naive forecasts and series models.

Also the rows from which forecasts are recorded while a model learns. Origins are the row numbers t
with frac(t g) < 1/spacing, g the golden ratio: evenly spread, and not in step with any season.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np

from kbnn.array_types import FloatArray, IntArray

CANDIDATES: Final = 6
"""Network, last value, season, moved season or trend, smoothing, autoregression."""
NAIVE: Final = slice(1, 4)
MODELED: Final = slice(4, 6)
"""Places of the naive forecasts and of the series models among the candidates."""
COMBINED_STEPS: Final = 48
"""Steps whose errors are recorded; later steps use the weights of the last one."""
TREND: Final = 3
"""Index of the candidate that follows the drift."""
DRIFT_ROWS: Final = 48
"""Rows over which the drift of a series is a mean; one season if it is longer."""
ORIGIN_SPACING: Final = ((512, 12), (2048, 42), (4096, 89), (2**62, 144))
"""Mean rows between origins up to a number of rows: learning a row costs less in a long stream."""
SHORT_STEPS: Final = 12
FULL_PATH_ORIGINS: Final = 2
"""One origin in two has all steps, the other only the first 12: errors of many steps are
correlated among near origins."""
_GOLDEN_RATIO: Final = 2654435769
"""2^32 times the fractional part of the golden ratio."""


def is_origin(row: int) -> bool:
    """Return whether forecasts are made after this row of a stream."""
    return (row * _GOLDEN_RATIO) % 2**32 < 2**32 // get_origin_spacing(row)


def count_path_steps(row: int) -> int:
    """Return how many steps are forecast at an origin."""
    place = (row * _GOLDEN_RATIO) % 2**32 * get_origin_spacing(row) * FULL_PATH_ORIGINS
    return COMBINED_STEPS if place < 2**32 else SHORT_STEPS


def get_origin_spacing(row: int) -> int:
    """Return the mean rows between origins at a row of a stream."""
    return next(spacing for rows, spacing in ORIGIN_SPACING if row <= rows)


def count_rows_to_origin(row: int) -> int:
    """Count the rows after `row` up to and including the next origin."""
    count = 1
    while not is_origin(row + count):
        count += 1
    return count


class CandidatePaths(NamedTuple):
    """Forecasts of the candidates from n origins."""

    mean: FloatArray  # (n, 6, S), NaN where a candidate has no value
    var: FloatArray  # (n, S) mean one-step variance of the network along its path


def build_candidates(
    network_mean: FloatArray,
    path_var: FloatArray,
    values: FloatArray,
    season: int,
    modeled: FloatArray,
    holiday: FloatArray | float = 0.0,
    first_step: int = 1,
) -> CandidatePaths:
    """Build the candidates from n origins over S steps from `first_step` on.

    Parameters
    ----------
    network_mean, path_var
        The network's forecasts (n, S) and its mean one-step variances.
    values
        The targets (n, W) up to each origin, newest last; NaN where unknown.
    season
        Rows per season, 0 without one.
    modeled
        Forecasts (n, 2, S) of the series models.
    holiday
        What holidays add (n, S), by the network: simple candidates do not know them.
    """
    n, steps = network_mean.shape
    mean = np.full((n, CANDIDATES, steps), np.nan)
    mean[:, 0], mean[:, MODELED] = network_mean, modeled
    last = _find_last_known(values)
    mean[:, 1] = last[:, None]
    width, ahead = values.shape[1], first_step + np.arange(steps)

    def look_up(rows_back: int) -> FloatArray:
        known = rows_back < width
        return values[:, width - 1 - rows_back] if known else np.full(n, np.nan)

    drift = _compute_drift(last, look_up, season)[:, None]
    if not season:
        mean[:, 3] = last[:, None] + drift * ahead
    elif season <= width:
        mean[:, 2] = values[:, width - season + (ahead - 1) % season]
        moved = (last - look_up(season))[:, None] + drift * (season * ((ahead - 1) // season))
        mean[:, 3] = mean[:, 2] + moved
    mean[:, 1:] += np.broadcast_to(holiday, (n, steps))[:, None]
    return CandidatePaths(mean, path_var)


def _compute_drift(
    last: FloatArray, look_up: Callable[[int], FloatArray], season: int
) -> FloatArray:
    """Return the mean change per row before some rows, 0 where it is unknown.

    `last` are the values at these rows, and `look_up` returns those some rows before. Where the
    history is short, the change is that of half as many rows, and so on.
    """
    unit = season or 1
    count, drift = -(-DRIFT_ROWS // unit), np.full(last.shape, np.nan)
    while count and np.isnan(drift).any():
        rows = count * unit
        drift = np.where(np.isnan(drift), (last - look_up(rows)) / rows, drift)
        count //= 2
    return np.asarray(np.nan_to_num(drift))


def compute_naive_errors(values: FloatArray, rows: int, season: int) -> FloatArray:
    """Return the errors (rows, 3, S) of the naive candidates at the last of the values (W,).

    An error at step h is that of the forecast made h rows before.
    """
    step = np.arange(1, COMBINED_STEPS + 1)
    end = np.arange(len(values) - rows, len(values))[:, None]

    def look_up(rows_back: IntArray) -> FloatArray:
        source = end - rows_back
        return np.where(source >= 0, values[np.maximum(source, 0)], np.nan)

    errors = np.full((rows, 3, COMBINED_STEPS), np.nan)
    last = look_up(step)
    errors[:, 0] = last - values[end]
    drift = _compute_drift(last, lambda rows: look_up(step + rows), season)
    if season:
        ago = look_up(season * ((step - 1) // season + 1))
        errors[:, 1] = ago - values[end]
        errors[:, 2] = ago + last - look_up(step + season) - values[end]
        errors[:, 2] += drift * (season * ((step - 1) // season))
    else:
        errors[:, 2] = last + drift * step - values[end]
    return errors


def _find_last_known(values: FloatArray) -> FloatArray:
    """Return the last known value of each row (n, W) -> (n,)."""
    known = np.isfinite(values)
    at = np.max(np.where(known, np.arange(values.shape[1]), -1), axis=1, initial=-1)
    return np.where(at >= 0, values[np.arange(len(values)), np.maximum(at, 0)], np.nan)
