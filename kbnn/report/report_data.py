"""What a report shows, as plain data, and the rows that surprised most."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from kbnn.array_types import FloatArray
from kbnn.metrics.samples import StreamSummaries
from kbnn.metrics.sections import TargetSection, find_section_parts
from kbnn.model.dependence import Dependence, Interaction
from kbnn.model.diagnostics import Effect
from kbnn.model.explain import Importance
from kbnn.targets.base import TargetType
from kbnn.wording import format_number


@dataclass(frozen=True)
class WorstRows:
    """The rows the model found least probable: a table of text, most surprising first."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class TargetReport:
    """One target: what its task shows, and what only the model knows.

    `effect` says what the effects are changes of, `drawn` what the dependences show. `importance`
    lists the mean size of each column's contributions.
    """

    section: TargetSection
    effects: Sequence[Effect] = ()
    effect: str = ""
    importance: Sequence[Importance] = ()
    dependence: Sequence[Dependence] = ()
    interaction: Interaction | None = None
    drawn: str = ""
    worst: WorstRows | None = None


@dataclass(frozen=True)
class ReportData:
    """The whole page: what was judged on what, each target, and the model card (label, value)."""

    title: str
    subtitle: str
    targets: Sequence[TargetReport]
    card: Sequence[tuple[str, str]] = ()
    version: str = ""
    notes: Sequence[str] = field(default=())


FormatCells = Callable[[FloatArray], Sequence[str]]
"""One row of x to what a reader is shown of it, a text for each feature."""


def worst_rows(
    task: TargetType,
    summaries: StreamSummaries,
    target: int,
    features: Sequence[str],
    cells: FormatCells | None = None,
    shown: int = 10,
    columns: int = 5,
) -> WorstRows:
    """The most surprising rows as text: row number, truth, forecast, surprise, first features.

    `features` name the columns of x, or the texts that `cells` makes of a row.
    """
    worst = summaries.worst_rows
    format_row = find_section_parts(task).format_row
    cells = cells or (lambda x: [format_number(float(value)) for value in x])
    used = min(columns, len(features), worst.x.shape[1])
    head = ["row", f"{task.targets[target]}, true", "forecast", "NLL, nats"]
    rows = []
    for i in worst.rank_rows()[:shown]:
        truth, told = format_row(task, worst.y[i], worst.forecast[i], target)
        first = [f"{int(worst.row[i]):,}", truth, told, format_number(float(worst.priority[i]), 3)]
        rows.append([*first, *cells(worst.x[i])[:used]])
    return WorstRows([*head, *features[:used]], rows)
