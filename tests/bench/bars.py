"""What accuracy must reach, counted over the sets that were run.

An NLL within 0.01 of an anchor, and where ten passes are judged an RMSE within 1 %, is a tie and
counts.
"""

from __future__ import annotations

from typing import NamedTuple

from tests.bench import anchors
from tests.bench.data import SETS

Found = dict[tuple[str, int, str], dict[str, float]]

NLL_TIE = 0.01
RMSE_TIE = 0.01


class Bar(NamedTuple):
    """One count: `met` of `of` sets, `strict` without ties, `asked` when all eight are run."""

    what: str
    met: int
    strict: int
    of: int
    asked: int  # 0: no promise is made
    behind: list[str]

    def __str__(self) -> str:
        mark = "ok  " if self.met >= self.asked - (8 - self.of) else "MISS"
        mark = mark if self.asked else "    "
        behind = f"  behind: {', '.join(self.behind)}" if self.behind else ""
        return (
            f"{mark} {self.what}: {self.met}/{self.of} ({self.strict} without ties, "
            f"{f'asked {self.asked}/8' if self.asked else 'no promise'}){behind}"
        )


def bars(found: Found) -> list[Bar]:
    """Every count that the runs allow."""
    out: list[Bar] = []
    promised = {("group", 1), ("group", 10), ("full", 1)}
    for structure, passes in dict.fromkeys((s, p) for s, p, _ in found):
        ours = {
            name: found[structure, passes, name]
            for name in SETS
            if (structure, passes, name) in found
        }
        label = f"{structure}, {passes} pass{'es' if passes > 1 else ''}"
        if passes == 1:
            for method in ("PBP 1", "TAGI 1", "TAGI-V 1"):
                out.append(_against(label, ours, "nll", method, 8))
                out.append(_against(label, ours, "rmse", method, 7))
            out.append(_against(label, ours, "nll", "PBP 40", 6 if structure == "full" else 4))
            out.append(_covered(label, ours, 86.0, 96.0, 7))
        else:
            for method, asked in (("PBP 40", 8), ("TAGI-V 50", 7), ("paper KBNN 10", 7)):
                out.append(_against(label, ours, "rmse", method, asked))
                out.append(_against(label, ours, "nll", method, asked))
            out.append(_against(label, ours, "nll", "paper MCMC", 7))
            out.append(_covered(label, ours, 86.0, 94.0, 8))
        if (structure, passes) not in promised:
            out = [bar if not bar.what.startswith(label) else bar._replace(asked=0) for bar in out]
    return out


def _against(
    label: str, ours: dict[str, dict[str, float]], measure: str, method: str, asked: int
) -> Bar:
    table = anchors.RMSE if measure == "rmse" else anchors.NLL
    met = strict = of = 0
    behind = []
    for name, one in ours.items():
        theirs = anchors.anchor(table, method, name)
        if theirs is None:
            continue
        of += 1
        allowed = NLL_TIE if measure == "nll" else RMSE_TIE * theirs
        if measure == "rmse" and label.endswith("1 pass"):
            allowed = 0.0
        strict += one[measure] < theirs
        met += one[measure] <= theirs + allowed
        if one[measure] > theirs + allowed:
            behind.append(f"{name} {one[measure]:.4g} > {theirs:.4g}")
    return Bar(f"{label}: {measure.upper()} better than {method}", met, strict, of, asked, behind)


def _covered(
    label: str, ours: dict[str, dict[str, float]], low: float, high: float, asked: int
) -> Bar:
    outside = [
        f"{name} {one['coverage']:.1f}"
        for name, one in ours.items()
        if not low <= one["coverage"] <= high
    ]
    met = len(ours) - len(outside)
    return Bar(
        f"{label}: 90 % coverage within {low:.0f}-{high:.0f}", met, met, len(ours), asked, outside
    )
