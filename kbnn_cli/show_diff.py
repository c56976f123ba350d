"""What `kbnn inspect --diff` prints: the differences of two models, side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from kbnn.wording import clean_text, format_count, format_number
from kbnn_cli.show_inspect import make_heading

if TYPE_CHECKING:
    from rich.console import RenderableType

    from kbnn.run.comparing import Comparison, EffectChange, ValueChange, WeightChange

MAX_SHOWN_CHANGES = 10


def comparison_parts(made: Comparison, first: str, second: str) -> Iterator[RenderableType]:
    """The parts of the answer, to print one after the other."""
    yield Text.assemble((clean_text(first), "bold"), " against ", (clean_text(second), "bold"))
    if made.is_same:
        yield Text("The models are the same.")
        return
    several = len(made.figures) > 1
    groups: list[tuple[str, Sequence[ValueChange]]] = [
        ("Settings", made.settings),
        ("Columns", made.columns),
        ("Rows and counts", made.facts),
    ]
    for name, figures in made.figures.items():
        groups.append((f"Forecasts of {clean_text(name)}" if several else "Forecasts", figures))
    for title, found in groups:
        if found:
            yield from make_heading(title)
            yield changes_table(found)
    for name, effects in made.effects.items():
        yield from make_heading(
            f"Sensitivity of {clean_text(name)}, per standard deviation of the feature"
        )
        yield effects_table(effects[:MAX_SHOWN_CHANGES])
    if made.moves:
        yield from make_heading(
            f"Weights that moved most, of {format_count(made.weights_compared)} compared"
        )
        yield moves_table(made.moves)
        moved = format_number(made.root_mean_square_move, 3)
        yield Text(f"root mean square move {moved} prior sds", style="dim")
    elif not made.weights_compared:
        yield Text()
        yield Text("Weights are not compared: the networks differ in shape or seed.", style="dim")


def format_any_value(value: Any) -> str:
    """A value of any kind."""
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, int):
        return format_count(value)
    if isinstance(value, list):
        return ", ".join(str(part) for part in value)
    return (
        format_number(value)
        if isinstance(value, float) or value is None
        else clean_text(str(value))
    )


def format_difference(change: float) -> str:
    """A difference with its sign."""
    text = format_count(change) if isinstance(change, int) else format_number(change, 3)
    return text if text.startswith("-") else f"+{text}"


def make_number_table(*names: str) -> Table:
    """A table whose first column is text and whose others are numbers."""
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="dim")
    table.add_column(names[0], overflow="fold")
    for name in names[1:]:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def changes_table(found: Sequence[ValueChange]) -> Table:
    """Name, first, second and, of numbers, the difference."""
    table = make_number_table("", "first", "second", "change")
    for change in found:
        pair = (change.first, change.second)
        numbers = all(isinstance(v, int | float) and not isinstance(v, bool) for v in pair)
        gap = format_difference(change.second - change.first) if numbers else ""
        table.add_row(
            Text(clean_text(change.name)),
            Text(format_any_value(pair[0])),
            Text(format_any_value(pair[1])),
            Text(gap),
        )
    return table


def effects_table(found: Sequence[EffectChange]) -> Table:
    """Both effects with their doubt, and the gap in standard deviations of that doubt."""
    table = make_number_table("feature", "first", "sd", "second", "sd", "gap in sds")
    for change in found:
        values = (change.first, change.first_sd, change.second, change.second_sd, change.gap)
        table.add_row(
            Text(clean_text(change.feature)), *(Text(format_number(v, 3)) for v in values)
        )
    return table


def moves_table(found: Sequence[WeightChange]) -> Table:
    """Where the weight leads, its means, and the move in prior standard deviations."""
    table = make_number_table("weight", "first", "second", "prior sds")
    several = any(move.network > 1 for move in found)
    for move in found:
        network = f"network {move.network}, " if several else ""
        where = f"{network}layer {move.layer}, unit {move.unit}, from {clean_text(move.source)}"
        table.add_row(
            Text(where),
            Text(format_number(move.first, 3)),
            Text(format_number(move.second, 3)),
            Text(f"{move.prior_sds:+.3g}"),
        )
    return table
