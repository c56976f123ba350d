"""What is shown of steps ahead: a chart in the terminal or a file, and how good they were."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from kbnn.wording import count, number, percent
from kbnn_cli import show

if TYPE_CHECKING:
    from rich.console import RenderableType

    from kbnn.model.model import Model
    from kbnn.run.onward import Onward
    from kbnn.run.origins import Judged

SHOWN = (1, 2, 3, 6, 12, 18, 24, 36, 48, 72, 96, 168)
"""Steps that are listed, beside the last one; all are in the JSON."""


def draw(model: Model, steps: Onward, plot: str | None, *, terminal: bool) -> None:
    """Draw a forecast where it is asked for, and where a person looks."""
    from kbnn.run import onward

    if plot is not None:
        from kbnn.report import write_picture

        write_picture(onward.chart(model, steps), plot)
    if terminal and show.on_terminal():
        from kbnn_cli.charts import single

        show.parts([single(onward.chart(model, steps))])


def judged_parts(judged: Judged) -> Iterator[RenderableType]:
    """How good forecasts were, step by step."""
    yield Text(f"steps ahead, from {count(judged.origins)} rows on:")
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0))
    for head in ("step", "RMSE", "last value", "season ago", "inside 90 %", "width", "score"):
        table.add_column(Text(head, style="dim"), justify="right")
    last = judged.steps[-1].step
    for step in judged.steps:
        if step.step in SHOWN or step.step == last:
            season = "-" if step.season_rmse is None else number(step.season_rmse)
            table.add_row(
                str(step.step),
                number(step.rmse),
                number(step.last_rmse),
                season,
                percent(step.coverage_90),
                number(step.width_90),
                number(step.interval_score_90),
            )
    yield table
    yield Text("score: the width, and 20 times every miss; smaller is better", style="dim")
