"""A histogram of vertical bars, in eighths of a character where the terminal can show them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.text import Text

BAR_EIGHTHS = " ▁▂▃▄▅▆▇█"


def merge_bins(counts: Sequence[int], width: int) -> list[int]:
    """Counts added up in pairs until every bar has two columns and a gap."""
    bars = list(counts)
    while len(bars) > 5 and len(bars) % 2 == 0 and 3 * len(bars) > width:
        bars = [a + b for a, b in zip(bars[::2], bars[1::2], strict=True)]
    return bars


def format_bar_cell(height: float, row: int, plain: bool) -> str:
    """What a bar of `height` cells shows in the cell `row` above the axis."""
    filled = min(max(height - row, 0.0), 1.0)
    if plain:
        return "#" if filled >= 0.5 else " "
    return BAR_EIGHTHS[round(8 * filled)]


def draw_bars(counts: Sequence[int], width: int, height: int, plain: bool) -> list[Text]:
    """Bars relative to their mean, with a line where equal bars would end.

    Bars further than three standard errors from even, 3 sqrt(m (1 - 1 / bars)), stand out.
    """
    gutter = 4
    bars = merge_bins(counts, width - gutter)
    total = sum(bars)
    mean = total / len(bars) if total else 1.0
    error = 3 * math.sqrt(mean * (1 - 1 / len(bars)))
    top = max(2.0, max(bars) / mean)
    scale = height / top
    even = min(int(scale), height - 1)
    each = max((width - gutter) // len(bars), 2)
    vertical, dash = ("|", "_") if plain else ("│", "▁")
    found = []
    for row in reversed(range(height)):
        label = "1" if row == even else f"{top:.2g}" if row == height - 1 else ""
        text = Text.assemble((f"{label:>{gutter - 1}}{vertical}", "dim"))
        for count in bars:
            cell = format_bar_cell(count / mean * scale, row, plain)
            style = "yellow" if abs(count - mean) > error else "cyan"
            if cell == " " and row == even:
                text.append(dash * each, style="bright_black")
                continue
            text.append(cell * (each - 1), style=style)
            text.append(dash if row == even else " ", style="bright_black")
        found.append(text)
    corner, line = ("+", "-") if plain else ("└", "─")
    inner = each * len(bars)
    axis = " " * (gutter - 1) + corner + line * inner
    labels = f"{'0':>{gutter + 1}}{'0.5':^{inner - 2}}1"
    return [*found, Text(axis, style="dim"), Text(labels, style="dim")]
