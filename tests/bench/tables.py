"""Figures as markdown tables, ours first, the sets across."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tests.bench import anchors
from tests.bench.data import SETS

TITLES = {"rmse": "RMSE", "nll": "NLL"}


def text(value: float | None, name: str, measure: str) -> str:
    """A figure with three decimals; Naval's RMSE times 1,000."""
    if value is None:
        return "-"
    return f"{1000 * value if (name, measure) == ('naval', 'rmse') else value:.3f}"


def line(label: str, cells: Iterable[str]) -> str:
    """One row of a table."""
    return f"| {label:<30} |" + "".join(f" {cell:>8} |" for cell in cells)


def heading(names: Sequence[str]) -> str:
    """The sets, and the rule below them."""
    return line("", [name.capitalize() for name in names]) + "\n" + "|---" * (len(names) + 1) + "|"


def beside_anchors(ours: Mapping[str, Mapping[str, float]]) -> list[str]:
    """Our figures and the kept ones of others; bold ones are lower than ours."""
    names = [name for name in SETS if name in ours]
    lines = [heading(names)]
    for measure, table in (("rmse", anchors.RMSE), ("nll", anchors.NLL)):
        title = f"**{TITLES[measure]}** kbnn"
        lines.append(line(title, [text(ours[n][measure], n, measure) for n in names]))
        error = f"{measure}_error"
        lines.append(line("  ± standard error", [text(ours[n][error], n, measure) for n in names]))
        for method in table:
            cells = []
            for name in names:
                value = anchors.anchor(table, method, name)
                ahead = value is not None and value < ours[name][measure]
                cells.append(
                    f"**{text(value, name, measure)}**" if ahead else text(value, name, measure)
                )
            lines.append(line(method, cells))
    lines.append(line("in 90 %", [f"{ours[n]['coverage']:.1f}" for n in names]))
    lines.append(line("us a row and pass", [f"{ours[n]['micros']:.1f}" for n in names]))
    lines.append(line("alarms a run", [f"{ours[n]['alarms']:.2f}" for n in names]))
    return lines
