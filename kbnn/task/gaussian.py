"""Half-widths of the usual central intervals of a normal distribution."""

from __future__ import annotations

from kbnn.core.mixture import HALVES, LEVELS

Z = dict(zip(LEVELS, HALVES, strict=True))
"""In standard deviations, by percentage."""
