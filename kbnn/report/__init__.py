"""One self-contained HTML page about a model, and its main picture as a file.

The charts are drawn by matplotlib, the optional extra `kbnn[report]`; it is imported only when
something is drawn.
"""

from __future__ import annotations

from kbnn.report.page import (
    PictureData,
    ReportData,
    TargetReport,
    WorstRows,
    report_html,
    worst_rows,
    write_picture,
    write_report,
)

__all__ = [
    "PictureData",
    "ReportData",
    "TargetReport",
    "WorstRows",
    "report_html",
    "worst_rows",
    "write_picture",
    "write_report",
]
