"""Axes of terminal charts: where a value falls, and which round numbers to print."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Axis:
    """A range on a linear or logarithmic scale."""

    low: float
    high: float
    log: bool = False

    def position_of(self, value: float) -> float:
        """Position of `value`: 0 at the low end, 1 at the high end, outside beyond them."""
        if self.log:
            value = max(value, 1e-300)
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)

    def ticks(self, wanted: int) -> list[float]:
        """Round values in the range, about `wanted` of them."""
        return log_ticks(self.low, self.high, wanted) if self.log else linear_ticks(self, wanted)


def linear_ticks(axis: Axis, wanted: int) -> list[float]:
    """Multiples of 1, 2, 2.5 or 5 times a power of ten; two at least, for one gives no scale."""
    raw = (axis.high - axis.low) / max(wanted, 1)
    power = 10.0 ** math.floor(math.log10(raw))
    step = next((m * power for m in (1, 2, 2.5, 5) if m * power >= raw * 0.999), 10 * power)
    first = math.ceil(axis.low / step - 1e-9)
    last = math.floor(axis.high / step + 1e-9)
    if last <= first and wanted < 8:
        return linear_ticks(axis, wanted + 1)
    return [0.0 if k == 0 else float(f"{k * step:.12g}") for k in range(first, last + 1)]


def log_ticks(low: float, high: float, wanted: int) -> list[float]:
    """Powers of ten, every second or third one if there are many; else the two ends."""
    first = math.ceil(math.log10(low) - 1e-9)
    last = math.floor(math.log10(high) + 1e-9)
    stride = max(1, math.ceil((last - first + 1) / max(wanted, 1)))
    found = [10.0**k for k in range(first, last + 1, stride)]
    return found if len(found) > 1 else [low, high]


def format_tick(value: float) -> str:
    """A tick label: 0, 0.25, 1.5, 200, 1k, 32k, 1M, 2e-05."""
    size = abs(value)
    for unit, name in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if unit <= size < 1e12:
            return f"{value / unit:.3g}{name}"
    return f"{value:.3g}" if size == 0 or 1e-3 <= size < 1e3 else f"{value:.1e}"


def span_values(values: Iterable[float], *, log: bool = False, margin: float = 0.04) -> Axis:
    """An axis that holds all finite `values`, a little air included, never of zero length."""
    known = [v for v in values if math.isfinite(v) and (v > 0 or not log)]
    low, high = (min(known), max(known)) if known else (1.0, 2.0)
    if log:
        return Axis(low, high, True) if high > low * 1.01 else Axis(low / 2, high * 2, True)
    gap = high - low
    if gap <= 1e-9 * max(abs(low), abs(high)):
        gap = abs(high) or 1.0
    return Axis(low - margin * gap, high + margin * gap)
