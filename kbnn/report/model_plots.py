"""Charts of what the model has learned, and of class probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kbnn.model.effects import Effect
from kbnn.report.data import Dependence
from kbnn.report.palette import BLUE, GREEN, INK, MUTED, ORANGE
from kbnn.report.text import shorten_label
from kbnn.score.rowsums import FloatArray
from kbnn.task.gaussian import INTERVAL_HALF_WIDTHS_SD

MAX_FEATURES = 12


def draw_sensitivities(ax: Any, effects: Sequence[Effect]) -> None:
    """Effect of each feature with its 90 % interval, largest on top."""
    order = sorted(effects, key=lambda effect: -abs(effect.effect))[:MAX_FEATURES][::-1]
    place = np.arange(len(order))
    value = np.array([effect.effect for effect in order])
    half = INTERVAL_HALF_WIDTHS_SD[90] * np.array([effect.effect_sd for effect in order])
    certain = np.abs(value) > half
    ax.axvline(0, color=INK, lw=0.9)
    for chosen, colour in ((certain, BLUE), (~certain, MUTED)):
        ax.errorbar(
            value[chosen],
            place[chosen],
            xerr=half[chosen],
            fmt="o",
            ms=4,
            color=colour,
            elinewidth=1.6,
        )
    ax.set_yticks(place, [shorten_label(effect.feature, 18) for effect in order])
    ax.tick_params(axis="y", length=0, labelcolor=INK)
    ax.grid(axis="y", visible=False)
    ax.set_ylim(-0.7, len(order) - 0.3)
    ax.margins(x=0.08)


def draw_dependence(ax: Any, data: Dependence, target: str) -> None:
    """Average prediction along one feature with its 90 % band, and where the data lie."""
    half = INTERVAL_HALF_WIDTHS_SD[90] * data.sd
    if data.categories is not None:
        place = np.arange(len(data.categories))
        ax.errorbar(place, data.mean, half, fmt="o", ms=4, color=BLUE, elinewidth=1.4)
        ax.set_xticks(place, [shorten_label(name, 10) for name in data.categories])
        ax.grid(axis="x", visible=False)
        ax.set_xlim(-0.6, len(place) - 0.4)
    else:
        ax.fill_between(data.grid, data.mean - half, data.mean + half, color=BLUE, alpha=0.18, lw=0)
        ax.plot(data.grid, data.mean, color=BLUE)
        ax.set_xlim(float(data.grid[0]), float(data.grid[-1]))
        draw_rug(ax, data)
    ax.set(xlabel=shorten_label(data.feature), ylabel=shorten_label(target))


def draw_rug(ax: Any, data: Dependence) -> None:
    """The histogram of the feature as low bars along the bottom."""
    if data.edges is None or data.counts is None or data.counts.shape[0] == 0:
        return
    low, high = ax.get_ylim()
    height = 0.14 * (high - low) * data.counts / max(int(data.counts.max()), 1)
    start = low - 0.16 * (high - low)
    widths = np.diff(data.edges)
    inside = (data.edges[1:] > data.grid[0]) & (data.edges[:-1] < data.grid[-1])
    ax.bar(
        data.edges[:-1][inside],
        height[inside],
        width=widths[inside],
        bottom=start,
        align="edge",
        color=MUTED,
        alpha=0.45,
        lw=0,
    )
    ax.set_ylim(start, high)


def draw_reliability(
    ax: Any, weight: FloatArray, confidence: FloatArray, right: FloatArray
) -> None:
    """Share right against stated confidence; the size of a dot is the number of rows."""
    filled = weight > 0
    q, r, w = confidence[filled], right[filled], weight[filled]
    error = 2 * np.sqrt(np.maximum(r * (1 - r), 0.25 / np.maximum(w, 1)) / np.maximum(w, 1))
    ax.plot([0, 100], [0, 100], color=MUTED, lw=0.9, ls=(0, (4, 3)))
    ax.errorbar(100 * q, 100 * r, 100 * error, fmt="none", ecolor=BLUE, elinewidth=1, alpha=0.5)
    many = w >= 5  # a line through bins of a row or two would jump between 0 and 100
    ax.plot(100 * q[many], 100 * r[many], color=BLUE, lw=1.2)
    share = w / max(float(w.sum()), 1e-300)
    ax.scatter(100 * q, 100 * r, s=8 + 120 * share, color=BLUE, linewidths=0, zorder=3)
    ax.set(xlim=(0, 101), ylim=(0, 101), xlabel="sure, %", ylabel="right, %")


def draw_confidence_bars(ax: Any, weight: FloatArray, accuracy: float, confidence: float) -> None:
    """How sure the model was: share of rows per bin of confidence, with means of sure and right."""
    edges = np.linspace(0, 100, weight.shape[0] + 1)
    share = 100 * weight / max(float(weight.sum()), 1e-300)
    ax.bar(edges[:-1], share, width=0.92 * edges[1], align="edge", color=BLUE, alpha=0.6, lw=0)
    ax.axvline(100 * accuracy, color=ORANGE, lw=1.4, label="right, on average")
    ax.axvline(100 * confidence, color=INK, lw=1.2, ls=(0, (4, 3)), label="sure, on average")
    ax.grid(axis="x", visible=False)
    ax.set(xlim=(0, 101), xlabel="sure, %", ylabel="rows, %")
    ax.legend(loc="lower right", bbox_to_anchor=(1.02, 0.99), ncols=2)


def draw_selective_accuracy(ax: Any, weight: FloatArray, right: FloatArray) -> None:
    """Share right and share kept if rows below a confidence are set aside."""
    hits = np.cumsum(np.where(weight > 0, weight * np.nan_to_num(right), 0.0)[::-1])[::-1]
    kept = np.cumsum(weight[::-1])[::-1]
    least = 100 * np.arange(weight.shape[0]) / weight.shape[0]
    some = kept > 0
    ax.plot(least[some], 100 * hits[some] / kept[some], color=BLUE, marker="o", ms=3, label="right")
    ax.plot(
        least[some],
        100 * kept[some] / max(float(kept[0]), 1e-300),
        color=GREEN,
        marker="o",
        ms=3,
        ls=(0, (2, 1.5)),
        label="kept",
    )
    ax.set(xlim=(0, 101), ylim=(0, 103), xlabel="at least so sure, %", ylabel="rows, %")
    ax.legend(loc="lower left")


def draw_horizon(ax: Any, past: FloatArray, mean: FloatArray, sd: FloatArray, name: str) -> None:
    """The last values, and a forecast with its 90 % band; 0 is the last row learned."""
    before = np.arange(1 - len(past), 1)
    after = np.arange(1, len(mean) + 1)
    half = INTERVAL_HALF_WIDTHS_SD[90] * sd
    ax.fill_between(after, mean - half, mean + half, color=BLUE, alpha=0.22, lw=0)
    ax.plot(before, past, color=INK, lw=1.2)
    ax.plot(after, mean, color=BLUE, lw=1.4)
    ax.axvline(0.5, color=MUTED, lw=0.8, ls=(0, (4, 3)))
    ax.set(xlabel="steps from the last row", ylabel=shorten_label(name))
