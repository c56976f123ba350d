"""Figures as markdown tables, ours first, the sets across."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tests.bench import anchors
from tests.bench.data import SETS

TITLES = {"rmse": "RMSE", "nll": "NLL"}


def text(value: float | None, name: str, measure: str, places: int = 3) -> str:
    """A figure with three decimals; Naval's RMSE times 1,000."""
    if value is None:
        return "-"
    return f"{1000 * value if (name, measure) == ('naval', 'rmse') else value:.{places}f}"


def kept(method: str, value: float | None, name: str, measure: str) -> str:
    """A figure of others in the digits to which it is known."""
    if value is None:
        return "-"
    places = anchors.places(method, measure, name, value)
    return text(
        value, name, measure, places - 3 if (name, measure) == ("naval", "rmse") else places
    )


def line(label: str, cells: Iterable[str]) -> str:
    """One row of a table."""
    return f"| {label:<30} |" + "".join(f" {cell:>8} |" for cell in cells)


def heading(names: Sequence[str]) -> str:
    """The sets, and the rule below them."""
    return line("", [name.capitalize() for name in names]) + "\n" + "|---" * (len(names) + 1) + "|"


def beside_anchors(ours: Mapping[str, Mapping[str, float]]) -> list[str]:
    """Our figures and the kept ones of others: bold is lower than ours, = a tie."""
    names = [name for name in SETS if name in ours]
    lines = [heading(names)]
    for measure, table in (("rmse", anchors.RMSE), ("nll", anchors.NLL)):
        title = f"**{TITLES[measure]}** kbnn"
        lines.append(line(title, [text(ours[n][measure], n, measure) for n in names]))
        error = f"{measure}_error"
        lines.append(line("± standard error", [text(ours[n][error], n, measure) for n in names]))
        lines += [
            line(method, [beside(method, measure, n, ours[n]) for n in names]) for method in table
        ]
    lines.append(line("in 90 %", [f"{ours[n]['coverage']:.1f}" for n in names]))
    lines.append(line("us a row and pass", [f"{ours[n]['micros']:.1f}" for n in names]))
    lines.append(line("alarms a run", [f"{ours[n]['alarms']:.2f}" for n in names]))
    return lines


def beside(method: str, measure: str, name: str, ours: Mapping[str, float]) -> str:
    """A kept figure beside ours."""
    value = anchors.anchor(anchors.RMSE if measure == "rmse" else anchors.NLL, method, name)
    cell = kept(method, value, name, measure)
    if anchors.ties(method, measure, name, ours[measure], ours[f"{measure}_error"]):
        return f"{cell} ="
    ahead = value is not None and not anchors.lower(method, measure, name, ours[measure])
    return f"**{cell}**" if ahead else cell
