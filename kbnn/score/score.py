"""A score: the figures of one target, row after row, in constant memory.

It adds up the terms of its task's figures in row order, so the same bits come out however the rows
are cut into blocks. Sums are stored under the names of their figures: a record written before a
figure was thought of starts it empty, and its mean is over the rows since.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, Self

import numpy as np

from kbnn.core.engine import totals
from kbnn.score.figures import Figure, flat, nested
from kbnn.score.rowsums import FloatArray, floats, restored

LARGEST_SUM = 1e220
"""No sum is larger: terms are cut before they are squared, see kbnn.score.rowsums."""
LARGEST_WEIGHTED = 1e204
"""Of a row's term times its weight: the sum of 10^16 rows is within LARGEST_SUM."""

LINES = ("loss", "nll", "coverage_90")
"""The lines of a learning curve."""


class Judged(Protocol):
    """A block of forecasts beside what came true: the rows that have both."""

    weight: FloatArray
    """(n,) of the rows that can be judged."""
    even: bool
    """Whether every weight is 1."""
    skipped: int
    """Rows without a target."""
    invalid: int
    """Rows whose forecast was no distribution; a model gives none."""


class Score:
    """Streaming figures of one target; a task adds what its baseline and pictures need."""

    figures_listed: Sequence[Figure] = ()

    def __init__(self) -> None:
        self.rows = 0
        self.skipped = 0
        self.invalid = 0
        self._summed = [figure for figure in self.figures_listed if figure.term is not None]
        self._place = {figure.name: at for at, figure in enumerate(self._summed)}
        self._drawn = [at for at, figure in enumerate(self._summed) if figure.curve]
        self._weight = 0.0
        self._sums = np.zeros(len(self._summed))
        self._began = np.zeros(len(self._summed))  # weight of the rows before each began
        self._recent = np.zeros(1 + len(self._drawn))  # weight and sums since the last `mark`

    def add(self, judged: Judged) -> None:
        """Count rows in order."""
        self.skipped += judged.skipped
        self.invalid += judged.invalid
        n = judged.weight.shape[0]
        if n == 0:
            return
        terms = [figure.term(judged) for figure in self._summed if figure.term is not None]
        if not judged.even:
            with np.errstate(over="ignore"):
                terms = [term * judged.weight for term in terms]
            terms = [_limit_terms(term) for term in terms]
        whole, drawn = [judged.weight, *terms], [terms[at] for at in self._drawn]
        before = np.concatenate(((self._weight,), self._sums, self._recent))
        after = totals(before, [*whole, judged.weight, *drawn])
        self._weight = float(after[0])
        self._sums, self._recent = after[1 : len(whole)], after[len(whole) :]
        self.rows += n

    def mark(self) -> None:
        """Start a new stretch of the learning curve."""
        self._recent = np.zeros_like(self._recent)

    def average(self, name: str) -> float | None:
        """Weighted mean of a figure's term over its rows, None before the first."""
        at = self._place[name]
        weight = self._weight - float(self._began[at])
        return float(self._sums[at]) / weight if weight > 0 else None

    def value(self, figure: Figure) -> float | None:
        """The figure now; None where it is undefined."""
        if figure.derive is not None:
            return figure.derive(self)
        mean = self.average(figure.name)
        return None if mean is None else figure.finish(mean)

    def figures(self) -> dict[str, Any]:
        """All figures under the names of `kbnn evaluate --json`."""
        return {
            "rows": self.rows,
            "skipped": self.skipped,
            **nested([(figure.name, self.value(figure)) for figure in self.figures_listed]),
        }

    def lines(self) -> dict[str, tuple[float | None, float | None]]:
        """What a learning curve shows: overall, and since the last `mark`."""
        found: dict[str, tuple[float | None, float | None]] = {}
        weight, *recent = floats(self._recent)
        for at, since in zip(self._drawn, recent, strict=True):
            figure = self._summed[at]
            finish = figure.on_curve or figure.finish
            mean = self.average(figure.name)
            found[figure.curve] = (
                None if mean is None else finish(mean),
                finish(since / weight) if weight > 0 else None,
            )
        return found

    def to_json(self) -> dict[str, Any]:
        """The whole state; `from_json` restores it bit for bit."""
        names = list(self._place)
        drawn = [names[at] for at in self._drawn]
        began = {name: float(value) for name, value in zip(names, self._began, strict=True)}
        return {
            "rows": self.rows,
            "skipped": self.skipped,
            "invalid": self.invalid,
            "weight": self._weight,
            "sums": dict(zip(names, floats(self._sums), strict=True)),
            "began": {name: value for name, value in began.items() if value},
            "recent": dict(zip(("weight", *drawn), floats(self._recent), strict=True)),
        }

    @classmethod
    def from_json(cls, state: Mapping[str, Any]) -> Self:
        """The score that `to_json` described, whichever figures it knew."""
        score = cls()
        score.rows, score.skipped = count(state["rows"]), count(state["skipped"])
        score.invalid = count(state["invalid"])
        score._weight = float(restored(state["weight"], ()))
        sums = {name: float(restored(value, ())) for name, value in state["sums"].items()}
        began = state.get("began", {})
        recent = {name: float(restored(value, ())) for name, value in state["recent"].items()}
        if score._weight < 0.0:
            raise ValueError("a score has no negative weight")
        score.go_on_from({"weight": score._weight, **sums}, recent)
        for name in began.keys() & score._place.keys():
            score._began[score._place[name]] = restored(began[name], ())
        if np.any(np.abs(score._sums) > LARGEST_SUM) or np.any(score._began > score._weight):
            raise ValueError("a sum of the record is out of range")
        return score

    def go_on_from(self, sums: Mapping[str, float], recent: Mapping[str, float]) -> None:
        """Take over sums by name, `weight` among them; a figure that has none begins here."""
        self._weight, self._recent[0] = sums["weight"], recent["weight"]
        for name, at in self._place.items():
            self._sums[at] = sums.get(name, 0.0)
            self._began[at] = 0.0 if name in sums else self._weight
        names = list(self._place)
        for place, at in enumerate(self._drawn, start=1):
            self._recent[place] = recent.get(names[at], 0.0)


def _limit_terms(terms: FloatArray) -> FloatArray:
    """Limit terms to what can be added up; the same array where none is beyond."""
    far = np.abs(terms) > LARGEST_WEIGHTED
    return np.clip(terms, -LARGEST_WEIGHTED, LARGEST_WEIGHTED) if far.any() else terms


def check_finite(score: Score) -> None:
    """Refuse, with ValueError, a score whose figures and lines are not all finite numbers."""
    found = [value for pair in score.lines().values() for value in pair]
    found += flat(score.figures()).values()
    if not all(value is None or math.isfinite(value) for value in found):
        raise ValueError("a figure of the record is not finite")


def count(value: object) -> int:
    """A stored count, which a float64 holds too; ValueError when it is none."""
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**53:
        raise ValueError(f"expected a count, found {value!r:.40}")
    return value
