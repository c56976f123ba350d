"""Data for the HTML report and the main figure of a model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from kbnn import __version__, report
from kbnn.array_types import FloatArray
from kbnn.errors import DataError, UsageError
from kbnn.metrics.scorecard import Scorecard
from kbnn.metrics.sections import (
    ChartGroup,
    ChartSpec,
    build_target_section,
    describe_dependence,
    mark_alarms,
)
from kbnn.model.dependence import predict_curve
from kbnn.model.model import OnlineModel
from kbnn.report import PictureData, ReportData, TargetReport
from kbnn.report.page import PICTURE_FORMATS
from kbnn.report.plots import load_figure_class
from kbnn.wording import clean_text, format_number
from kbnn.workflows.forecast import add_forecast_chart
from kbnn.workflows.inspecting import Inspection
from kbnn.workflows.run_results import advise_frozen


def check_report_paths(page: str | None, picture: str | None = None) -> None:
    """Refuse output paths that cannot be written, before any row is evaluated."""
    for option, path, endings in (
        ("--report", page, (".html", ".htm")),
        ("--plot", picture, tuple(f".{kind}" for kind in PICTURE_FORMATS)),
    ):
        if path is None:
            continue
        if not path.lower().endswith(endings):
            known = f"{', '.join(endings[:-1])} or {endings[-1]}"
            raise UsageError(f"{option} '{path}': the name must end in {known}")
        if not Path(path).resolve().parent.is_dir():
            raise DataError(f"{path}: cannot be written (no such file or directory)")
        load_figure_class()


def format_file_name(path: str) -> str:
    """Return the file name of a path, safe to show."""
    return clean_text(Path(path).name)


class ReportContext(NamedTuple):
    """Title, whether the model learned the rows, number of unreadable rows, charts of alerts."""

    title: str
    learning: bool = True
    unreadable: int = 0
    alerts: Sequence[ChartSpec] = ()  # one of each target, if they were asked for


def write_report_files(
    model: OnlineModel,
    card: Scorecard,
    inspection: Inspection,
    shown: ReportContext,
    *,
    page: str | None = None,
    picture: str | None = None,
) -> None:
    """Write the report page and the figure that were requested."""
    if page is not None:
        report.write_report(build_page_data(model, card, inspection, shown), page)
    if picture is not None:
        drawn = shown.alerts[0] if shown.alerts else build_picture_data(model, card)
        report.write_picture(drawn, picture)


def build_page_data(
    model: OnlineModel, card: Scorecard, inspection: Inspection, shown: ReportContext
) -> ReportData:
    """Collect everything that the report page shows."""
    points = card.curve_points() if shown.learning else [[] for _ in card.scores]
    targets = []
    for at, score in enumerate(card.scores):
        drawn = describe_dependence(model.task, score, card.summaries, at)
        section = build_target_section(
            model.task, score, card.summaries, at, points[at], shown.unreadable
        )
        if shown.learning:
            section = mark_alarms(section, model.alarms)
        else:
            section = section._replace(verdict=advise_frozen(section.verdict))
        if at < len(shown.alerts):
            group = ChartGroup("Alerts", [shown.alerts[at]])
            section = section._replace(groups=[group, *section.groups])
        effects = next((t.effects for t in inspection.effects if t.title == drawn.effect), [])
        targets.append(
            TargetReport(
                add_forecast_chart(model, section),
                effects,
                clean_text(drawn.effect),
                inspection.list_importance(at),
                inspection.dependence.get(model.task.targets[at], ()),
                inspection.interactions.get(model.task.targets[at]),
                drawn.name,
                report.worst_rows(
                    model.task,
                    card.summaries,
                    at,
                    list_shown_columns(model),
                    lambda x: format_row_cells(model, x),
                ),
            )
        )
    return ReportData(
        shown.title, inspection.summary, targets, inspection.list_lines(), __version__
    )


def list_shown_columns(model: OnlineModel) -> list[str]:
    """List the columns shown for a row: features, and lags instead of the clock."""
    schema = model.schema
    clock = "" if schema.clock is None else schema.clock.column
    return [name for name in schema.features if name != clock] + [lag.name for lag in schema.lags]


def format_row_cells(model: OnlineModel, x: FloatArray) -> list[str]:
    """Format an encoded row for readers: numbers, and categories by name."""
    found: dict[str, str] = {}
    for place, value in zip(model.schema.layout, x.tolist(), strict=False):
        if place.category is None:
            found[place.column] = format_number(value)
        elif value == 1.0:
            found[place.column] = place.category
        else:
            found.setdefault(place.column, "-")
    return [found.get(name, "-") for name in list_shown_columns(model)]


def build_picture_data(model: OnlineModel, card: Scorecard, target: int = 0) -> PictureData:
    """Collect the data of the main figure for one target."""
    summaries = card.summaries
    names = model.schema.encoded_names()
    drawn = describe_dependence(model.task, card.scores[target], summaries, target)
    x, truth = np.zeros((0, len(names))), np.zeros(0)
    if len(summaries.sample):
        kept = np.isfinite(summaries.sample.y[:, target])
        x, truth = summaries.sample.x[kept], drawn.truth(summaries.sample.y[kept, target])
    return PictureData(
        model.task.targets[target],
        names,
        x,
        truth,
        drawn,
        lambda at: predict_curve(model, drawn, at),
    )
