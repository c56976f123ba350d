"""What is shown of steps ahead: a chart in the terminal or a file, and how good they were."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from kbnn.wording import format_count, format_number, format_percent
from kbnn_cli import show

if TYPE_CHECKING:
    from rich.console import RenderableType

    from kbnn.model.model import OnlineModel
    from kbnn.run.onward import HorizonForecast
    from kbnn.run.origins import BacktestResult

LISTED_STEPS = (1, 2, 3, 6, 12, 18, 24, 36, 48, 72, 96, 168)
"""Steps that are listed, beside the last one; all are in the JSON."""


def show_forecast(
    model: OnlineModel, steps: HorizonForecast, plot: str | None, *, terminal: bool
) -> None:
    """Draw a forecast where it is asked for, and where a person looks."""
    from kbnn.run import onward

    if plot is not None:
        from kbnn.report import write_picture

        write_picture(onward.build_forecast_chart(model, steps), plot)
    if terminal and show.on_terminal():
        from kbnn_cli.charts import single_chart

        show.print_parts([single_chart(onward.build_forecast_chart(model, steps))])


def backtest_parts(judged: BacktestResult) -> Iterator[RenderableType]:
    """How good forecasts were, step by step."""
    yield Text(f"steps ahead, from {format_count(judged.origins)} rows on:")
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0))
    for head in ("step", "RMSE", "last value", "season ago", "inside 90 %", "width", "score"):
        table.add_column(Text(head, style="dim"), justify="right")
    last = judged.steps[-1].step
    for step in judged.steps:
        if step.step in LISTED_STEPS or step.step == last:
            season = "-" if step.season_rmse is None else format_number(step.season_rmse)
            table.add_row(
                str(step.step),
                format_number(step.rmse),
                format_number(step.last_rmse),
                season,
                format_percent(step.coverage_90),
                format_number(step.width_90),
                format_number(step.interval_score_90),
            )
    yield table
    yield Text("score: the width, and 20 times every miss; smaller is better", style="dim")
