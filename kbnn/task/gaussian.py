"""Half-widths of the usual central intervals of a normal distribution."""

from __future__ import annotations

from kbnn.core.mixture import HALF_WIDTHS_SD, INTERVAL_PERCENTS

INTERVAL_HALF_WIDTHS_SD = dict(zip(INTERVAL_PERCENTS, HALF_WIDTHS_SD, strict=True))
"""In standard deviations, by percentage."""
