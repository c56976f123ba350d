"""What `kbnn evaluate` prints: verdict, figures, pictures, time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rich.text import Text

from kbnn.wording import clean, count, number, rows_of
from kbnn_cli.show_figures import figures_table, verdict_text

if TYPE_CHECKING:
    from rich.console import RenderableType

    from kbnn.run.evaluating import Evaluation

NAMED = 3
"""Sources named in the title; the others are counted."""


def evaluation_parts(
    evaluation: Evaluation, model: str, sources: Sequence[str], *, plots: bool
) -> Iterator[RenderableType]:
    """The parts of the answer, to print one after the other."""
    yield Text(f"{clean(model)} on {source_names(sources)}", style="dim")
    verdicts = evaluation.verdicts()
    for at, (name, figures) in enumerate(evaluation.figures().items()):
        yield Text()
        if len(verdicts) > 1:
            yield Text(clean(name), style="bold underline")
        yield from verdict_text(verdicts[name])
        yield Text()
        yield figures_table(figures, name)
        if plots:
            from kbnn_cli.charts import card_charts

            yield Text()
            yield from card_charts(evaluation.card, at, evaluation.classes, learning=False)
    yield Text()
    yield Text(rows_line(evaluation), style="dim")
    yield Text(time_line(evaluation), style="dim")


def source_names(sources: Sequence[str]) -> str:
    """The sources by name, as far as they are few."""
    names = [clean("stdin" if name == "-" else name) for name in sources]
    if len(names) <= NAMED:
        return ", ".join(names)
    return f"{', '.join(names[: NAMED - 1])} and {len(names) - NAMED + 1} others"


def rows_line(evaluation: Evaluation) -> str:
    """How many rows were scored, and what became of the others."""
    figures = evaluation.figures()
    scored = max(found["rows"] for found in figures.values())
    left = []
    without = evaluation.rows - evaluation.bad_rows - scored
    if without:
        left.append(f"{count(without)} without a target")
    if evaluation.bad_rows:
        left.append(f"{count(evaluation.bad_rows)} unreadable")
    return f"{rows_of(scored)} scored{', ' if left else ''}{', '.join(left)}"


def time_line(evaluation: Evaluation) -> str:
    """Seconds, where they went, and rows a second."""
    timing = evaluation.timing
    parts = ", ".join(
        f"{name} {number(seconds, 2)}"
        for name, seconds in (
            ("read", timing.read),
            ("predict", timing.predict),
            ("score", timing.score),
        )
    )
    rate = evaluation.rows_per_second
    return f"{number(timing.total, 3)} s ({parts}), {count(rate or 0)} rows/s"
