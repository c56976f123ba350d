"""The figures of one target as a table: the model beside the best constant, and what each is in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from kbnn.wording import clean_text

if TYPE_CHECKING:
    from kbnn.score.figures import MetricTable as Figures
    from kbnn.score.verdict import Verdict

LEVEL_STYLES = {"good": "green", "fair": "yellow", "poor": "red", "unknown": "dim"}


def verdict_text(verdict: Verdict) -> list[Text]:
    """The judgement: a headline, then its reasons."""
    style = f"bold {LEVEL_STYLES[verdict.level]}"
    return [Text(verdict.headline, style=style), *(Text(text) for text in verdict.sentences)]


def figures_table(figures: Figures) -> Table:
    """The rows under their heads, numbers to the right."""
    made = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0))
    made.add_column("", no_wrap=True)
    made.add_column(Text("model", style="dim"), justify="right", no_wrap=True)
    made.add_column(Text(figures.baseline, style="dim"), justify="right", no_wrap=True)
    made.add_column("", style="dim")
    for name, value, constant, remark in figures.rows:
        made.add_row(
            Text(name), Text(value, style="bold"), Text(constant), Text(clean_text(remark))
        )
    return made
