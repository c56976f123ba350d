"""The confusion table: true classes down, predicted classes across."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

MAX_SHOWN_CLASSES = 10
"""Most classes shown by name; rarer ones are added up under "others"."""

CLASS_NAME_COLUMNS = 14


def fold_classes(
    counts: Sequence[Sequence[int]], names: Sequence[str], shown: int
) -> tuple[list[list[int]], list[str]]:
    """The table of the commonest classes, the rest added up as one class at the end."""
    size = len(counts)
    labels = [names[k] if k < len(names) else str(k) for k in range(size)]
    if size <= shown + 1:
        return [list(row) for row in counts], labels
    ranked = sorted(range(size), key=lambda k: (-sum(counts[k]), k))
    groups = [[k] for k in sorted(ranked[:shown])] + [sorted(ranked[shown:])]
    table = [[sum(counts[i][j] for i in a for j in b) for b in groups] for a in groups]
    return table, [*(labels[group[0]] for group in groups[:-1]), f"{size - shown} others"]


def shorten_class_name(name: str) -> str:
    """A class name that leaves room for the others; control characters become blanks."""
    clean = "".join(c if c.isprintable() else " " for c in name)
    return clean if len(clean) <= CLASS_NAME_COLUMNS else clean[: CLASS_NAME_COLUMNS - 2] + ".."


class ConfusionTable:
    """The confusion table with as many classes by name as the width holds."""

    def __init__(self, counts: Sequence[Sequence[int]], names: Sequence[str]) -> None:
        self.counts, self.names = counts, names

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Fold more classes into "others" until the table fits."""
        wide = options.update(width=1000)
        table = build_confusion_table(self.counts, self.names, 1)
        for shown in range(MAX_SHOWN_CLASSES, 1, -1):
            tried = build_confusion_table(self.counts, self.names, shown)
            if console.measure(tried, options=wide).maximum <= options.max_width:
                table = tried
                break
        yield Text("Confusion: true class down, predicted across", style="bold")
        yield table


def build_confusion_table(
    counts: Sequence[Sequence[int]], names: Sequence[str], shown: int
) -> Table:
    """Rows by true class (down) and most probable class (across), with the share found."""
    rows, labels = fold_classes(counts, names, shown)
    table = Table(
        box=None,
        pad_edge=False,
        padding=(0, 2, 0, 0),
    )
    table.add_column("", no_wrap=True)
    for label in labels:
        table.add_column(Text(shorten_class_name(label)), justify="right", no_wrap=True)
    table.add_column(Text("found", style="dim"), justify="right", no_wrap=True)
    for i, (label, row) in enumerate(zip(labels, rows, strict=True)):
        total = sum(row)
        cells = [
            Text(f"{value:,}", style="bold cyan" if i == j else "yellow" if value else "dim")
            for j, value in enumerate(row)
        ]
        share = f"{100 * row[i] / total:.1f} %" if total else "-"
        table.add_row(
            Text(shorten_class_name(label), style="bold"), *cells, Text(share, style="dim")
        )
    return table
