"""What is shown of a fleet: its keys and how they stand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from kbnn.wording import clean, count, number, percent, rows_of
from kbnn_cli.show_figures import figures_table

if TYPE_CHECKING:
    from rich.console import RenderableType

    from kbnn.model.model import Model

SHOWN = 20
"""Keys that are shown; `--json` has all."""
WIDEST = 40
"""Characters of a key that are shown."""


def overview_parts(model: Model, found: dict[str, Any]) -> Iterator[RenderableType]:
    """The fleet, the record of all rows, and its keys, those with most rows first."""
    keys = found["keys"]
    by = clean(", ".join(found["key"]))
    yield Text(
        f"{clean(found['fleet'])}: {model.task.called} "
        f"by {by}, {count(len(keys))} {'key' if len(keys) == 1 else 'keys'}, "
        f"{rows_of(found['rows'])} learned"
    )
    names = model.schema.targets
    figures = found["prequential"]
    if model.card.curve.rows:
        yield Text("\neach row was predicted before it was learned:", style="dim")
        for name in names:
            one = figures["targets"][name] if len(names) > 1 else figures
            yield figures_table(model.task.table(one, name, brief=True))
    yield Text()
    table = _table(by, "rows", "error", "in 90 %", "alarms")
    for one in keys[:SHOWN]:
        figures = [number(one["loss"]), percent(one["coverage_90"]), count(one["alarms"])]
        table.add_row(_shown(one["key"]), count(one["rows"]), *figures)
    yield table
    if len(keys) > SHOWN:
        yield Text(f"and {count(len(keys) - SHOWN)} more (--json lists all)", style="dim")


def ranked_parts(found: dict[str, Any]) -> Iterator[RenderableType]:
    """The best, the median and the worst key."""
    yield Text()
    table = _table(f"of {count(found['count'])} keys", "", "rows", "error", "in 90 %")
    for which in ("best", "median", "worst"):
        if which in found:
            one = found[which]
            figures = [number(one["loss"]), percent(one["coverage_90"])]
            table.add_row(which, _shown(one["key"]), count(one["rows"]), *figures)
    yield table


def _table(*heads: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for head in heads:
        right = head in ("rows", "error", "in 90 %", "alarms")
        table.add_column(head, justify="right" if right else "left", no_wrap=True)
    return table


def _shown(key: str) -> Text:
    text = clean(key)
    return Text(text if len(text) <= WIDEST else f"{text[: WIDEST - 3]}...")
