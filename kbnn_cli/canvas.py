"""A small plotting area made of characters: Braille dots where the terminal can, else ASCII.

A Braille cell is 2 x 4 dots, so a plot of 30 x 10 cells has 60 x 40 dots. Each cell has one style:
what is drawn later covers what was drawn before. Without colour, a reference line is told from the
data by being dotted.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from rich.text import Text

from kbnn_cli.axes import Axis, format_tick

DOT_BITS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
"""Bit of the dot in row r, column c of a Braille character."""

AXIS_STYLE = "dim"

Point = tuple[float, float]


class Canvas:
    """Cells of a plot: draw points and lines in data coordinates, then take the lines of text."""

    def __init__(self, width: int, height: int, x: Axis, y: Axis, *, plain: bool = False) -> None:
        self.x, self.y = x, y
        self.plain = plain
        self.labels = [(value, format_tick(value)) for value in y.ticks(max(2, height // 2))]
        self.gutter = max(len(text) for _, text in self.labels) + 2 if self.labels else 2
        self.width, self.height = max(width - self.gutter, 8), height
        self._bits: dict[tuple[int, int], int] = {}
        self._style: dict[tuple[int, int], str] = {}
        self._mark: dict[tuple[int, int], str] = {}

    @property
    def dot_size(self) -> tuple[int, int]:
        """Dots across and down."""
        return (self.width, self.height) if self.plain else (2 * self.width, 4 * self.height)

    def _find_dot(self, point: Point) -> tuple[int, int] | None:
        across, down = self.dot_size
        u, v = self.x.position_of(point[0]), self.y.position_of(point[1])
        if not (-1e-9 <= u <= 1 + 1e-9 and -1e-9 <= v <= 1 + 1e-9):
            return None
        return min(int(u * across), across - 1), down - 1 - min(int(v * down), down - 1)

    def _set_dot(self, dot: tuple[int, int], style: str, mark: str) -> None:
        column, row = dot
        cell = dot if self.plain else (column // 2, row // 4)
        bit = 1 if self.plain else DOT_BITS[row % 4][column % 2]
        if self._style.get(cell) != style:
            self._bits[cell] = 0
        self._bits[cell] = self._bits.get(cell, 0) | bit
        self._style[cell], self._mark[cell] = style, mark

    def draw_points(self, points: Sequence[Point], style: str, mark: str = "o") -> None:
        """Single dots; those outside the axes are left out."""
        for point in points:
            dot = self._find_dot(point)
            if dot is not None:
                self._set_dot(dot, style, mark)

    def draw_line(
        self, points: Sequence[Point], style: str, mark: str = "*", *, dotted: bool = False
    ) -> None:
        """Straight strokes from point to point on the (possibly logarithmic) axes."""
        across, down = self.dot_size
        stride = (1 if self.plain else 3) if dotted else 1
        drawn = 0
        for (x0, y0), (x1, y1) in itertools.pairwise(points):
            u0, v0, u1, v1 = (
                self.x.position_of(x0),
                self.y.position_of(y0),
                self.x.position_of(x1),
                self.y.position_of(y1),
            )
            count = max(int(max(abs(u1 - u0) * across, abs(v1 - v0) * down)), 1)
            for i in range(count + 1):
                drawn += 1
                if drawn % stride:
                    continue
                u, v = u0 + (u1 - u0) * i / count, v0 + (v1 - v0) * i / count
                if 0 <= u <= 1 and 0 <= v <= 1:
                    column = min(int(u * across), across - 1)
                    self._set_dot((column, down - 1 - min(int(v * down), down - 1)), style, mark)

    def render_lines(self) -> list[Text]:
        """The plot with its axes: `height` rows, the horizontal axis and its labels."""
        rows = {self._find_row(value): text for value, text in self.labels}
        found = []
        for row in range(self.height):
            label = rows.get(row, "")
            edge = ("+" if label else "|") if self.plain else ("┤" if label else "│")
            text = Text.assemble((f"{label:>{self.gutter - 1}}{edge}", AXIS_STYLE))
            for column in range(self.width):
                cell = (column, row)
                text.append(self._cell_character(cell), style=self._style.get(cell, ""))
            found.append(text)
        return [*found, *self._render_bottom()]

    def _find_row(self, value: float) -> int:
        return (
            self.height
            - 1
            - min(max(int(self.y.position_of(value) * self.height), 0), self.height - 1)
        )

    def _cell_character(self, cell: tuple[int, int]) -> str:
        bits = self._bits.get(cell, 0)
        if not bits:
            return " "
        return self._mark[cell] if self.plain else chr(0x2800 + bits)

    def _render_bottom(self) -> list[Text]:
        """The horizontal axis with its ticks, and the labels under them."""
        corner, dash, tick = ("+", "-", "+") if self.plain else ("└", "─", "┬")
        axis = [dash] * self.width
        labels = [" "] * (self.width + self.gutter)
        end = 0
        for value in self.x.ticks(max(2, self.width // 9)):
            column = min(max(int(self.x.position_of(value) * self.width), 0), self.width - 1)
            text = format_tick(value)
            start = max(self.gutter + column - len(text) // 2, 0)
            start = min(start, len(labels) - len(text))
            if start < end + 1 and end:
                continue
            axis[column] = tick
            labels[start : start + len(text)] = text
            end = start + len(text)
        line = " " * (self.gutter - 1) + corner + "".join(axis)
        return [Text(line, style=AXIS_STYLE), Text("".join(labels).rstrip(), style=AXIS_STYLE)]
