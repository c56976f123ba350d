"""The figures of one target as a table: the model beside the best constant, with units."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from kbnn.wording import clean, number, percent

if TYPE_CHECKING:
    from kbnn.score.verdict import Verdict

LEVEL_STYLES = {"good": "green", "fair": "yellow", "poor": "red", "unknown": "dim"}

Row = tuple[str, str, str, str]
"""Name, the model's value, the constant's value, remark."""


def verdict_text(verdict: Verdict) -> list[Text]:
    """The judgement: a headline, then its reasons."""
    style = f"bold {LEVEL_STYLES[verdict.level]}"
    return [Text(verdict.headline, style=style), *(Text(text) for text in verdict.sentences)]


def figures_table(figures: Mapping[str, Any], name: str) -> Table:
    """All figures of a target; `figures` are those of a number or of a class."""
    classes = "accuracy" in figures
    return table(
        class_rows(figures) if classes else number_rows(figures, name),
        "class shares" if classes else "constant",
    )


def table(rows: Sequence[Row], baseline: str) -> Table:
    """The rows under their heads, numbers to the right."""
    made = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0))
    made.add_column("", no_wrap=True)
    made.add_column(Text("model", style="dim"), justify="right", no_wrap=True)
    made.add_column(Text(baseline, style="dim"), justify="right", no_wrap=True)
    made.add_column("", style="dim")
    for name, value, constant, remark in rows:
        made.add_row(Text(name), Text(value, style="bold"), Text(constant), Text(remark))
    return made


def number_rows(figures: Mapping[str, Any], name: str) -> list[Row]:
    """The figures of a numeric target."""
    coverage = figures["coverage"]
    return [
        (
            "RMSE",
            number(figures["rmse"]),
            number(figures["baseline_rmse"]),
            f"in the units of {clean(name)}",
        ),
        ("MAE", number(figures["mae"]), "", "the mean size of the error"),
        ("R2", number(figures["r2"]), number(0.0, 2), "share of the variance explained"),
        ("NLL", number(figures["nll"]), number(figures["baseline_nll"]), "nats a row"),
        ("CRPS", number(figures["crps"]), "", "as the MAE, for the whole forecast"),
        *(
            (f"inside {level} %", percent(share), "", "" if level != "50" else "rows in interval")
            for level, share in coverage.items()
        ),
        ("width of 90 %", number(figures["interval_width_90"]), "", "mean interval"),
    ]


def class_rows(figures: Mapping[str, Any]) -> list[Row]:
    """The figures of a class target."""
    return [
        ("accuracy", percent(figures["accuracy"]), percent(figures["baseline_accuracy"]), ""),
        (
            "log-loss",
            number(figures["log_loss"]),
            number(figures["baseline_log_loss"]),
            "nats a row",
        ),
        (
            "Brier",
            number(figures["brier"]),
            number(figures["baseline_brier"]),
            "squared error, all classes",
        ),
        ("calibration error", percent(figures["ece"]), "", "ECE over 15 bins"),
    ]
