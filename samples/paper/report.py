"""Tables: on the terminal with rich, and as markdown beside the figures."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table as RichTable

from samples.paper.options import Options
from samples.paper.published import Figure


class Table(NamedTuple):
    """Rows of text under a title; the note says what the reader must know to compare."""

    name: str
    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""


def summary(values: Sequence[float]) -> Figure:
    """Mean and standard deviation over the seeds."""
    spread = float(np.std(values, ddof=1)) if len(values) > 1 else None
    return Figure(float(np.mean(values)), spread)


def text(figure: Figure | None, digits: int = 3) -> str:
    """A figure as "mean ± spread", or a dash where there is none."""
    if figure is None:
        return "-"
    mean = f"{figure.mean:.{digits}f}"
    return mean if figure.spread is None else f"{mean} ± {figure.spread:.{digits}f}"


def verdict(ours: Figure, theirs: Figure) -> str:
    """Whether the smaller is ours: "better", "worse", or "even" within the two spreads."""
    gap = ours.mean - theirs.mean
    if abs(gap) <= np.hypot(ours.spread or 0.0, theirs.spread or 0.0):
        return "even"
    return "better" if gap < 0 else "worse"


def show(table: Table, options: Options) -> None:
    """Print a table and keep it as markdown."""
    shown = RichTable(
        title=table.title, caption=table.note or None, title_justify="left", caption_justify="left"
    )
    for number, column in enumerate(table.columns):
        shown.add_column(column, justify="left" if number == 0 else "right")
    for row in table.rows:
        shown.add_row(*row)
    console = Console()
    if not console.is_terminal:  # a file has no width: do not break the cells
        console = Console(width=170)
    console.print(shown)
    console.print()
    (options.out / f"{table.name}.md").write_text(markdown(table), encoding="utf-8")


def markdown(table: Table) -> str:
    """The same table for a README."""
    lines = [
        f"**{table.title}**",
        "",
        "| " + " | ".join(table.columns) + " |",
        "|" + "|".join("---" if n == 0 else "---:" for n in range(len(table.columns))) + "|",
        *("| " + " | ".join(row) + " |" for row in table.rows),
    ]
    return "\n".join([*lines, "", table.note] if table.note else lines) + "\n"
