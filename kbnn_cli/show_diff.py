"""What `kbnn inspect --diff` prints: the differences of two models, side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from kbnn.wording import clean, count, number
from kbnn_cli.show_inspect import section

if TYPE_CHECKING:
    from rich.console import RenderableType

    from kbnn.run.comparing import Change, Comparison, EffectChange, Move

SHOWN = 10


def comparison_parts(made: Comparison, first: str, second: str) -> Iterator[RenderableType]:
    """The parts of the answer, to print one after the other."""
    yield Text.assemble((clean(first), "bold"), " against ", (clean(second), "bold"))
    if made.same:
        yield Text("The models are the same.")
        return
    several = len(made.figures) > 1
    groups: list[tuple[str, Sequence[Change]]] = [
        ("Settings", made.settings),
        ("Columns", made.columns),
        ("Rows and counts", made.facts),
    ]
    for name, figures in made.figures.items():
        groups.append((f"Forecasts of {clean(name)}" if several else "Forecasts", figures))
    for title, found in groups:
        if found:
            yield from section(title)
            yield changes_table(found)
    for name, effects in made.effects.items():
        yield from section(f"Sensitivity of {clean(name)}, per standard deviation of the feature")
        yield effects_table(effects[:SHOWN])
    if made.moves:
        yield from section(f"Weights that moved most, of {count(made.weights_compared)} compared")
        yield moves_table(made.moves)
        moved = number(made.root_mean_square_move, 3)
        yield Text(f"root mean square move {moved} prior sds", style="dim")
    elif not made.weights_compared:
        yield Text()
        yield Text("Weights are not compared: the networks differ in shape or seed.", style="dim")


def shown(value: Any) -> str:
    """A value of any kind."""
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, int):
        return count(value)
    if isinstance(value, list):
        return ", ".join(str(part) for part in value)
    return number(value) if isinstance(value, float) or value is None else clean(str(value))


def signed(change: float) -> str:
    """A difference with its sign."""
    text = count(change) if isinstance(change, int) else number(change, 3)
    return text if text.startswith("-") else f"+{text}"


def heads(*names: str) -> Table:
    """A table whose first column is text and whose others are numbers."""
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="dim")
    table.add_column(names[0], overflow="fold")
    for name in names[1:]:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def changes_table(found: Sequence[Change]) -> Table:
    """Name, first, second and, of numbers, the difference."""
    table = heads("", "first", "second", "change")
    for change in found:
        pair = (change.first, change.second)
        numbers = all(isinstance(v, int | float) and not isinstance(v, bool) for v in pair)
        gap = signed(change.second - change.first) if numbers else ""
        table.add_row(
            Text(clean(change.name)), Text(shown(pair[0])), Text(shown(pair[1])), Text(gap)
        )
    return table


def effects_table(found: Sequence[EffectChange]) -> Table:
    """Both effects with their doubt, and the gap in standard deviations of that doubt."""
    table = heads("feature", "first", "sd", "second", "sd", "gap in sds")
    for change in found:
        values = (change.first, change.first_sd, change.second, change.second_sd, change.gap)
        table.add_row(Text(clean(change.feature)), *(Text(number(v, 3)) for v in values))
    return table


def moves_table(found: Sequence[Move]) -> Table:
    """Where the weight leads, its means, and the move in prior standard deviations."""
    table = heads("weight", "first", "second", "prior sds")
    several = any(move.network > 1 for move in found)
    for move in found:
        network = f"network {move.network}, " if several else ""
        where = f"{network}layer {move.layer}, unit {move.unit}, from {clean(move.source)}"
        table.add_row(
            Text(where),
            Text(number(move.first, 3)),
            Text(number(move.second, 3)),
            Text(f"{move.prior_sds:+.3g}"),
        )
    return table
