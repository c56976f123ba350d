"""Values with their intervals on one line each, on a common axis through zero."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

WHISKER_COLUMNS = 25


def draw_whiskers(
    values: Sequence[float], halves: Sequence[float], plain: bool, width: int = WHISKER_COLUMNS
) -> list[Text]:
    """One line a value: a dot, a stroke for value +- half, and a mark at zero.

    A stroke that holds zero is dim: the effect may be none.
    """
    low = min([0.0, *(v - h for v, h in zip(values, halves, strict=True))])
    high = max([0.0, *(v + h for v, h in zip(values, halves, strict=True))])
    span = (high - low) or 1.0
    dot, stroke, zero = ("o", "-", "|") if plain else ("●", "─", "│")

    def to_column(value: float) -> int:
        return min(max(int((value - low) / span * width), 0), width - 1)

    lines = []
    for value, half in zip(values, halves, strict=True):
        cells = [" "] * width
        cells[to_column(0.0)] = zero
        for at in range(to_column(value - half), to_column(value + half) + 1):
            cells[at] = stroke
        cells[to_column(value)] = dot
        lines.append(Text("".join(cells), style="cyan" if abs(value) > half else "bright_black"))
    return lines
