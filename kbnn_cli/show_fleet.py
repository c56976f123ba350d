"""What is shown of a fleet: its keys and how they stand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from kbnn.wording import clean_text, format_count, format_number, format_percent, format_rows
from kbnn_cli.show_figures import figures_table

if TYPE_CHECKING:
    from rich.console import RenderableType

    from kbnn.model.model import OnlineModel

MAX_SHOWN_KEYS = 20
"""Keys that are shown; `--json` has all."""
MAX_KEY_CHARACTERS = 40
"""Characters of a key that are shown."""


def overview_parts(model: OnlineModel, found: dict[str, Any]) -> Iterator[RenderableType]:
    """The fleet, the record of all rows, and its keys, those with most rows first."""
    keys = found["keys"]
    by = clean_text(", ".join(found["key"]))
    yield Text(
        f"{clean_text(found['fleet'])}: {model.task.description} "
        f"by {by}, {format_count(len(keys))} {'key' if len(keys) == 1 else 'keys'}, "
        f"{format_rows(found['rows'])} learned"
    )
    names = model.schema.targets
    figures = found["prequential"]
    if model.card.curve.rows:
        yield Text("\neach row was predicted before it was learned:", style="dim")
        for name in names:
            one = figures["targets"][name] if len(names) > 1 else figures
            yield figures_table(model.task.build_table(one, name, brief=True))
    yield Text()
    table = _make_key_table(by, "rows", "error", "in 90 %", "alarms")
    for one in keys[:MAX_SHOWN_KEYS]:
        figures = [
            format_number(one["loss"]),
            format_percent(one["coverage_90"]),
            format_count(one["alarms"]),
        ]
        table.add_row(_format_key(one["key"]), format_count(one["rows"]), *figures)
    yield table
    if len(keys) > MAX_SHOWN_KEYS:
        yield Text(
            f"and {format_count(len(keys) - MAX_SHOWN_KEYS)} more (--json lists all)", style="dim"
        )


def key_ranking_parts(found: dict[str, Any]) -> Iterator[RenderableType]:
    """The best, the median and the worst key."""
    yield Text()
    table = _make_key_table(
        f"of {format_count(found['count'])} keys", "", "rows", "error", "in 90 %"
    )
    for which in ("best", "median", "worst"):
        if which in found:
            one = found[which]
            figures = [format_number(one["loss"]), format_percent(one["coverage_90"])]
            table.add_row(which, _format_key(one["key"]), format_count(one["rows"]), *figures)
    yield table


def _make_key_table(*heads: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for head in heads:
        right = head in ("rows", "error", "in 90 %", "alarms")
        table.add_column(head, justify="right" if right else "left", no_wrap=True)
    return table


def _format_key(key: str) -> Text:
    text = clean_text(key)
    return Text(text if len(text) <= MAX_KEY_CHARACTERS else f"{text[: MAX_KEY_CHARACTERS - 3]}...")
