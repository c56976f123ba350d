"""The charts of a numeric target: each function draws one idea on given axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kbnn.report.palette import BLUE, GREEN, INK, MUTED, ORANGE
from kbnn.report.text import format_row_tick, shorten_label
from kbnn.score.curve import CurvePoint
from kbnn.score.rowsums import FloatArray, IntArray
from kbnn.task.gaussian import INTERVAL_HALF_WIDTHS_SD

MAX_ERROR_BARS = 200
"""Most rows drawn with error bars: more would be a grey block."""


def evenly_spaced(n: int, most: int) -> IntArray:
    """Indices of at most `most` of n rows, evenly spaced."""
    return np.unique(np.linspace(0, max(n - 1, 0), min(n, most)).astype(np.int64))


def central_range(values: FloatArray) -> tuple[float, float]:
    """The middle 99 % of the values with some air: single outliers do not set the scale."""
    if values.shape[0] == 0:
        return 0.0, 1.0
    low, high = np.quantile(values, [0.005, 0.995])
    air = 0.06 * (high - low) or 0.5 * abs(high) or 1.0
    return float(low - air), float(high + air)


def draw_calibration(ax: Any, levels: FloatArray, observed: FloatArray, rows: int) -> None:
    """Observed against promised coverage, with the band that chance allows n honest rows."""
    p = np.concatenate(([0.0], levels, [1.0]))
    q = np.concatenate(([0.0], observed, [1.0]))
    error = 2 * np.sqrt(p * (1 - p) / max(rows, 1))
    ax.fill_between(100 * p, 100 * (p - error), 100 * (p + error), color=MUTED, alpha=0.18, lw=0)
    ax.plot([0, 100], [0, 100], color=MUTED, lw=0.9, ls=(0, (4, 3)))
    ax.plot(100 * p, 100 * q, color=BLUE, marker="o", ms=3)
    ax.set(xlim=(0, 100), ylim=(0, 100), xlabel="promised, %", ylabel="rows inside, %")


def draw_pit(ax: Any, bars: IntArray) -> None:
    """Histogram of the PIT relative to even, with the band that chance allows."""
    total = int(bars.sum())
    even = max(total / bars.shape[0], 1e-12)
    error = 2 * np.sqrt((1 - 1 / bars.shape[0]) / even)
    edges = np.linspace(0, 1, bars.shape[0] + 1)
    ax.bar(edges[:-1], bars / even, width=0.9 * edges[1], align="edge", color=BLUE, lw=0)
    ax.axhspan(max(1 - error, 0), 1 + error, color=MUTED, alpha=0.22, lw=0)
    ax.axhline(1, color=INK, lw=0.9, ls=(0, (4, 3)))
    ax.grid(axis="x", visible=False)
    ax.set(xlim=(0, 1), xlabel="where the truth fell in its forecast", ylabel="rows, 1 = even")


def draw_predicted_true(
    ax: Any, y: FloatArray, mean: FloatArray, lower: FloatArray, upper: FloatArray, name: str
) -> None:
    """Predicted against true with 90 % intervals."""
    index = evenly_spaced(y.shape[0], MAX_ERROR_BARS)
    y, mean, lower, upper = y[index], mean[index], lower[index], upper[index]
    low, high = central_range(np.concatenate((y, mean)))
    missed = _misses_interval(y, lower, upper)
    for chosen, colour in ((~missed, BLUE), (missed, ORANGE)):
        ax.vlines(y[chosen], lower[chosen], upper[chosen], color=colour, lw=0.7, alpha=0.4)
        ax.plot(y[chosen], mean[chosen], ".", color=colour, ms=4, alpha=0.85)
    ax.plot([low, high], [low, high], color=INK, lw=0.9, ls=(0, (4, 3)))
    ax.set(xlim=(low, high), ylim=(low, high))
    ax.set(xlabel=shorten_label(f"{name}, true"), ylabel="predicted, 90 % interval")


def draw_residuals(
    ax: Any, y: FloatArray, mean: FloatArray, lower: FloatArray, upper: FloatArray
) -> None:
    """Errors in half-widths of their 90 % interval against the prediction."""
    z, missed = _relative_errors(y, mean, lower, upper), _misses_interval(y, lower, upper)
    ax.axhspan(-1, 1, color=MUTED, alpha=0.15, lw=0)
    ax.axhline(0, color=INK, lw=0.9, ls=(0, (4, 3)))
    for chosen, colour in ((~missed, BLUE), (missed, ORANGE)):
        ax.plot(mean[chosen], z[chosen], ".", color=colour, ms=4, alpha=0.7)
    reach = min(max(float(np.abs(z).max(initial=2.0)), 2.0), 4.0)
    ax.set(xlim=central_range(mean), ylim=(-1.08 * reach, 1.08 * reach))
    ax.set(xlabel="predicted", ylabel="error / reach of 90 %")


def draw_error_histogram(
    ax: Any, y: FloatArray, mean: FloatArray, lower: FloatArray, upper: FloatArray
) -> None:
    """Histogram of errors in half-widths of 90 %, with that of a normal distribution."""
    z = np.clip(INTERVAL_HALF_WIDTHS_SD[90] * _relative_errors(y, mean, lower, upper), -4.2, 4.2)
    edges = np.linspace(-4.2, 4.2, 29)
    share = np.histogram(z, edges)[0] / max(z.shape[0], 1) / (edges[1] - edges[0])
    ax.bar(edges[:-1], share, width=0.9 * (edges[1] - edges[0]), align="edge", color=BLUE, lw=0)
    grid = np.linspace(-4.2, 4.2, 85)
    ax.plot(grid, np.exp(-0.5 * grid**2) / np.sqrt(2 * np.pi), color=ORANGE)
    ax.grid(axis="x", visible=False)
    ax.set(xlim=(-4.2, 4.2), xlabel="error, 90 % within 1.64", ylabel="density")


def draw_width_error(
    ax: Any, y: FloatArray, mean: FloatArray, lower: FloatArray, upper: FloatArray
) -> None:
    """Size of the error against the width of the 90 % interval; orange ones missed."""
    width, error = upper - lower, np.abs(y - mean)
    x_low, x_high = central_range(width)
    x_low = max(x_low, 0.0)
    missed = _misses_interval(y, lower, upper)
    ax.plot([x_low, x_high], [x_low / 2, x_high / 2], color=INK, lw=0.9, ls=(0, (4, 3)))
    for chosen, colour in ((~missed, BLUE), (missed, ORANGE)):
        ax.plot(width[chosen], error[chosen], ".", color=colour, ms=4, alpha=0.7)
    ax.set(xlim=(x_low, x_high), ylim=(0, max(central_range(error)[1], 0.55 * x_high)))
    ax.set(xlabel="width of the 90 % interval", ylabel="size of the error")


def _misses_interval(y: FloatArray, lower: FloatArray, upper: FloatArray) -> NDArray[np.bool_]:
    return np.asarray((y < lower) | (y > upper))


def _relative_errors(
    y: FloatArray, mean: FloatArray, lower: FloatArray, upper: FloatArray
) -> FloatArray:
    """Errors in units of how far the 90 % interval reaches on their side."""
    reach = np.where(y < mean, mean - lower, upper - mean)
    return (y - mean) / np.maximum(reach, 1e-300)


def draw_learning_curve(
    ax: Any,
    points: Sequence[CurvePoint],
    field: str,
    name: str,
    baseline: float | None,
    baseline_name: str = "best constant",
) -> None:
    """A figure against rows seen: since the point before, overall, and the best constant."""
    for attribute, colour, text in (
        (f"since_{field}", BLUE, "latest rows"),
        (field, GREEN, "all rows so far"),
    ):
        pairs = [(p.rows, getattr(p, attribute)) for p in points]
        known = [(rows, value) for rows, value in pairs if value is not None]
        ax.plot(
            [rows for rows, _ in known],
            [value for _, value in known],
            color=colour,
            marker="o",
            ms=3,
            ls="-" if colour == BLUE else (0, (2, 1.5)),
            label=text,
        )
    if baseline is not None:
        ax.axhline(baseline, color=MUTED, lw=0.9, ls=(0, (4, 3)), label=baseline_name)
    ax.set_xscale("log")
    ax.xaxis.set_major_formatter(lambda value, _: format_row_tick(value))
    ax.minorticks_off()
    ax.set(xlabel="rows seen", ylabel=name)
    ax.legend(loc="lower right", bbox_to_anchor=(1.02, 0.99), ncols=3, columnspacing=1.2)
