"""What `kbnn evaluate` prints: verdict, figures, pictures, time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rich.text import Text

from kbnn.wording import clean_text, format_count, format_number, format_rows
from kbnn_cli.show_figures import figures_table, verdict_text

if TYPE_CHECKING:
    from rich.console import RenderableType

    from kbnn.run.evaluating import Evaluation

MAX_NAMED_SOURCES = 3
"""Sources named in the title; the others are counted."""

LEARNING_NOTES = {
    False: "The model is frozen: it does not learn from these rows.",
    True: "The model learns each row after predicting it; nothing is saved.",
}


def evaluation_parts(
    evaluation: Evaluation, model: str, sources: Sequence[str], *, plots: bool
) -> Iterator[RenderableType]:
    """The parts of the answer, to print one after the other."""
    yield Text(f"{clean_text(model)} on {format_source_names(sources)}", style="dim")
    yield Text(LEARNING_NOTES[evaluation.learning], style="dim")
    sections = evaluation.build_sections()
    for section in sections:
        yield Text()
        if len(sections) > 1:
            yield Text(clean_text(section.name), style="bold underline")
        yield from verdict_text(section.verdict)
        yield Text()
        yield figures_table(section.table)
        loss = evaluation.pinball.get(section.name)
        if loss is not None:
            means = zip(loss.shares.tolist(), loss.mean_losses(), strict=True)
            told = ", ".join(f"{share:g}: {format_number(mean)}" for share, mean in means)
            yield Text(f"pinball loss {told}")
        if plots:
            from kbnn_cli.charts import section_charts

            yield Text()
            yield from section_charts(section)
    if evaluation.keys is not None:
        from kbnn_cli.show_fleet import key_ranking_parts

        yield from key_ranking_parts(evaluation.keys.to_json())
    yield Text()
    yield Text(format_rows_line(evaluation), style="dim")
    yield Text(format_time_line(evaluation), style="dim")


def format_source_names(sources: Sequence[str]) -> str:
    """The sources by name, as far as they are few."""
    names = [clean_text("stdin" if name == "-" else name) for name in sources]
    if len(names) <= MAX_NAMED_SOURCES:
        return ", ".join(names)
    return f"{', '.join(names[: MAX_NAMED_SOURCES - 1])} and {len(names) - MAX_NAMED_SOURCES + 1} others"


def format_rows_line(evaluation: Evaluation) -> str:
    """How many rows were scored, and what became of the others."""
    scored, without, unreadable = evaluation.row_counts
    left = [
        f"{format_count(number)} {what}"
        for number, what in ((without, "without a target"), (unreadable, "unreadable"))
        if number
    ]
    told = [f"intervals {evaluation.intervals}"] if evaluation.intervals else []
    return ", ".join([f"{format_rows(scored)} scored", *left, *told])


def format_time_line(evaluation: Evaluation) -> str:
    """Seconds, where they went, and rows a second."""
    timing = evaluation.timing
    parts = ", ".join(
        f"{name} {format_number(seconds, 2)}"
        for name, seconds in (
            ("read", timing.read),
            ("predict", timing.predict),
            ("score", timing.score),
        )
    )
    rate = evaluation.rows_per_second
    return f"{format_number(timing.total, 3)} s ({parts}), {format_count(rate or 0)} rows/s"
