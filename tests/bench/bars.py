"""What accuracy is promised, counted over the sets that were run.

Lower counts where our mean is lower in the digits the other figure is known to. A difference within
the standard error of our mean over the splits is a tie and is named as one, whoever is ahead.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tests.bench import anchors
from tests.bench.data import SETS

Found = dict[tuple[str, int, str], dict[str, float]]
"""By way, passes and set: figures, and their standard errors as rmse_error and nll_error."""

COVERED = (86.0, 94.0)
REHEARSED = {"rmse": 0.01, "nll": 0.01}
"""How much worse than without rehearsal a set may be: a share of the RMSE, nats."""
STRUCTURES = ("defaults", "neuron", "full", "paper")


class Bar(NamedTuple):
    """One count: `met` of `of` sets where all eight must have `asked`."""

    what: str
    met: int
    of: int
    asked: int  # 0: no promise is made
    ties: Sequence[str] = ()
    behind: Sequence[str] = ()

    @property
    def kept(self) -> bool:
        """Whether the promise holds on the sets that were run."""
        return self.met >= self.asked - (len(SETS) - self.of)

    def __str__(self) -> str:
        mark = ("ok  " if self.kept else "MISS") if self.asked else "    "
        asked = f" (promised {self.asked}/{len(SETS)})" if self.asked else ""
        ties = f"; ties: {', '.join(self.ties)}" if self.ties else ""
        behind = f"; not: {', '.join(self.behind)}" if self.behind else ""
        return f"{mark} {self.what}: {self.met}/{self.of}{asked}{ties}{behind}"


def bars(found: Found) -> list[Bar]:
    """Every count that the runs allow."""
    out: list[Bar] = []
    for way, passes in dict.fromkeys((way, passes) for way, passes, _ in found):
        ours = {n: found[way, passes, n] for n in SETS if (way, passes, n) in found}
        label = f"{way}, {passes} pass{'es' if passes > 1 else ''}"
        for measure, method, asked in _asked(way, passes):
            out.append(against(label, ours, measure, method, asked))
        out.append(_covered(label, ours, _coverage_asked(way, passes)))
    out += _rehearsal(found)
    return [*out, *_boosting(out)]


def _asked(way: str, passes: int) -> Iterable[tuple[str, str, int]]:
    """Measure, method and promise of the comparisons with figures of others."""
    both = ("rmse", "nll")
    if passes == 1:
        yield from ((measure, "PBP 1", 0) for measure in both)
        yield from ((measure, "TAGI-V 1", 0) for measure in both)
        yield "rmse", "PBP 40", {"defaults": 7, "best": 8}.get(way, 0)
        yield "nll", "PBP 40", 7 if way == "defaults" else 0
        return
    for method in ("PBP 40", "TAGI-V 50", "paper KBNN 10"):
        promised = 8 if (way, passes, method) == ("defaults", 10, "paper KBNN 10") else 0
        yield "rmse", method, promised
        yield "nll", method, 0
    yield "rmse", "boosting, batch", 0


def _coverage_asked(way: str, passes: int) -> int:
    if way not in STRUCTURES:
        return 0
    return 8 if (way, passes) == ("defaults", 1) else 7


def against(
    label: str, ours: dict[str, dict[str, float]], measure: str, method: str, asked: int
) -> Bar:
    """On how many sets we are lower than a method whose figures are kept."""
    table = anchors.RMSE if measure == "rmse" else anchors.NLL
    met = of = 0
    ties, behind = [], []
    for name, one in ours.items():
        theirs = anchors.anchor(table, method, name)
        if theirs is None:
            continue
        of += 1
        lower = anchors.lower(method, measure, name, one[measure])
        met += lower
        words = f"{name} {one[measure]:.4g} against {theirs:.4g}"
        if anchors.ties(method, measure, name, one[measure], one[f"{measure}_error"]):
            ties.append(words)
        elif not lower:
            behind.append(words)
    return Bar(f"{label}: {measure.upper()} lower than {method}", met, of, asked, ties, behind)


def _covered(label: str, ours: dict[str, dict[str, float]], asked: int) -> Bar:
    low, high = COVERED
    outside = [
        f"{name} {one['coverage']:.1f}"
        for name, one in ours.items()
        if not low <= one["coverage"] <= high
    ]
    what = f"{label}: 90 % intervals hold {low:.0f} to {high:.0f} %"
    return Bar(what, len(ours) - len(outside), len(ours), asked, behind=outside)


def _rehearsal(found: Found) -> list[Bar]:
    """One pass beside one pass without rehearsal."""
    out = []
    for measure, allowed in REHEARSED.items():
        behind, of = [], 0
        for name in SETS:
            if ("defaults", 1, name) not in found or ("off", 1, name) not in found:
                continue
            on, off = (found[way, 1, name][measure] for way in ("defaults", "off"))
            of += 1
            if on - off > allowed * (off if measure == "rmse" else 1.0):
                behind.append(f"{name} {on:.4g} against {off:.4g}")
        if of:
            much = "1 %" if measure == "rmse" else f"{allowed} nats"
            what = f"1 pass: rehearsal costs no more than {much} of {measure.upper()}"
            out.append(Bar(what, of - len(behind), of, len(SETS), behind=behind))
    return out


def _boosting(counted: list[Bar]) -> list[Bar]:
    """The promise that shapes or an ensemble make, by whichever does better."""
    wanted = [f"{way}, 10 passes: RMSE lower than boosting" for way in ("best", "ensemble")]
    tried = [bar for bar in counted if bar.what.startswith(tuple(wanted))]
    best = max(tried, key=lambda bar: bar.met, default=None)
    return [] if best is None else [best._replace(asked=5)]
