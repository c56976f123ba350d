"""The section of a numeric target."""

from __future__ import annotations

from typing import Any

from kbnn.report import plots
from kbnn.report.data import NumericReport
from kbnn.report.parts import Gallery, curves, grid, learned, tiles, verdict_box, worst_table
from kbnn.wording import count, number, percent, rows_of


def numeric_section(data: NumericReport, figure_class: Any, key: str) -> str:
    """Verdict, figures and pictures of a numeric target."""
    gallery = Gallery(figure_class, key)
    f = data.figures
    rows = int(f["rows"])
    y, mean, sd = data.truth, data.mean, data.sd
    parts = [verdict_box(data.verdict), tiles(numeric_tiles(f))]
    if rows:
        trust = [
            gallery.chart(
                "Calibration",
                "On the dashed line the intervals keep their promise; below, they are too narrow. "
                "Grey: what chance allows.",
                lambda ax: plots.calibration(ax, data.levels, data.observed, rows),
            ),
            gallery.chart(
                "PIT histogram",
                "Even bars: honest. A valley: too narrow. A hill: too wide. A slope: biased.",
                lambda ax: plots.pit(ax, data.pit),
            ),
            gallery.chart(
                "Interval width and error",
                "Wide intervals should hold the large errors; above the line (orange) they missed.",
                lambda ax: plots.width_error(ax, y, mean, sd),
            ),
        ]
        parts.append(grid("Can the error bars be trusted?", trust))
        sample = f"{rows_of(int(y.shape[0]))}, evenly sampled"
        seen = [
            gallery.chart(
                "Predicted and true",
                f"At most {plots.BARS} of {sample}; orange intervals missed.",
                lambda ax: plots.truth(ax, y, mean, sd, data.name),
            ),
            gallery.chart(
                "Residuals",
                "Errors in units of their stated sd; 90 % belong in the grey band.",
                lambda ax: plots.residuals(ax, y, mean, sd),
            ),
            gallery.chart(
                "Errors and the bell curve",
                "Errors in units of their stated sd should follow the line.",
                lambda ax: plots.bell(ax, y, mean, sd),
            ),
        ]
        parts.append(grid("Predictions", seen))
        parts.append(
            curves(data, gallery, ("RMSE", f["baseline_rmse"]), ("NLL", f["baseline_nll"]))
        )
    parts += [learned(data, gallery, data.name), worst_table(data.worst)]
    return "".join(parts)


def numeric_tiles(f: Any) -> list[tuple[str, str, str]]:
    """Headline figures of a numeric target."""
    skipped = f"{count(f['skipped'])} without target" if f["skipped"] else "all scored"
    return [
        ("Rows", count(f["rows"]), skipped),
        ("RMSE", number(f["rmse"]), f"{number(f['baseline_rmse'])} for the best constant"),
        ("MAE", number(f["mae"]), "mean size of the error"),
        ("Variance explained", percent(f["r2"]), "R2"),
        ("NLL, nats", number(f["nll"]), f"{number(f['baseline_nll'])} for the best constant"),
        ("CRPS", number(f["crps"]), "lower is better"),
        ("Inside 90 %", percent(f["coverage"]["90"]), "should be 90 %"),
        ("Width of 90 %", number(f["interval_width_90"]), "mean interval"),
    ]
