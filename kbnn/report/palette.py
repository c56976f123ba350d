"""Colours told apart by every kind of eye (after Okabe and Ito), for light and for dark paper.

Charts are drawn with the light values; in the page each one becomes a CSS variable, so the same
drawing follows the reader's light or dark setting.
"""

from __future__ import annotations

INK = "#1c1e22"
MUTED = "#666c76"
GRID = "#dfe2e6"
BLUE = "#0072b2"
ORANGE = "#d55e00"
GREEN = "#009e73"
PAPER = "#ffffff"

VARIABLES = {
    "ink": (INK, "#e8eaed"),
    "muted": (MUTED, "#9aa1ab"),
    "grid": (GRID, "#363b43"),
    "blue": (BLUE, "#5ab4e8"),
    "orange": (ORANGE, "#f08b45"),
    "green": (GREEN, "#3cc79c"),
    "paper": (PAPER, "#1b1e23"),
}
"""CSS variable: value on light paper, value on dark paper."""
