"""The learning curve: figures at 32, 64, 128, ... rows, each overall and since the point before.

Doubling keeps it short for ever (a curve of 10^12 rows has 36 points) and even on a log axis. The
points fall on the same rows however the stream is cut, because blocks are split at them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kbnn.score.class_metrics import ClassScore
from kbnn.score.metrics import RegressionScore

FIRST = 32
"""Rows at the first point."""


@dataclass(frozen=True)
class CurvePoint:
    """One target at one row count; `loss` is RMSE or error rate, `nll` the NLL or log-loss.

    `since_*` are the same over the rows after the point before. Coverage (of the 90 % interval) is
    None for classes; anything is None while there was no row to judge.
    """

    rows: int
    loss: float | None
    nll: float | None
    coverage_90: float | None
    since_loss: float | None
    since_nll: float | None
    since_coverage_90: float | None

    def to_json(self) -> list[float | None]:
        """The fields in order."""
        return [
            self.rows,
            self.loss,
            self.nll,
            self.coverage_90,
            self.since_loss,
            self.since_nll,
            self.since_coverage_90,
        ]

    @classmethod
    def from_json(cls, fields: Sequence[Any]) -> CurvePoint:
        """The point that `to_json` described."""
        return cls(int(fields[0]), *fields[1:])


def point(rows: int, score: RegressionScore | ClassScore) -> CurvePoint:
    """What `score` says now, after `rows` rows of the stream."""
    since = score.since()
    if isinstance(score, ClassScore):
        return CurvePoint(
            rows,
            rest(score.average("correct")),
            score.average("log_loss"),
            None,
            rest(since["accuracy"]),
            since["log_loss"],
            None,
        )
    square = score.average("square")
    return CurvePoint(
        rows,
        None if square is None else float(square**0.5),
        score.average("nll"),
        score.average("in90"),
        since["rmse"],
        since["nll"],
        since["coverage_90"],
    )


def rest(share: float | None) -> float | None:
    """1 - share: the error rate that belongs to an accuracy."""
    return None if share is None else 1 - share


class LearningCurve:
    """Points of every target at doubling row counts."""

    def __init__(self, targets: int) -> None:
        self.rows = 0
        """Rows offered so far, scored or not: all targets share the axis."""
        self.points: list[list[CurvePoint]] = [[] for _ in range(targets)]

    @property
    def next_point(self) -> int:
        """Row count at which the next point falls."""
        return FIRST << len(self.points[0])

    def pieces(self, rows: int) -> Iterator[slice]:
        """Cut a block of `rows` rows so that every piece ends at the next point or before it."""
        start = 0
        while start < rows:
            stop = min(rows, start + self.next_point - self.rows)
            yield slice(start, stop)
            start = stop

    def advance(self, rows: int, scores: Sequence[RegressionScore | ClassScore]) -> bool:
        """Count a piece that `scores` have just taken in; True if a point fell at its end."""
        self.rows += rows
        if self.rows < self.next_point:
            return False
        for points, score in zip(self.points, scores, strict=True):
            points.append(point(self.rows, score))
            score.mark()
        return True

    def with_now(self, scores: Sequence[RegressionScore | ClassScore]) -> list[list[CurvePoint]]:
        """The points of each target, closed by the present figures."""
        if not self.rows or (self.points[0] and self.points[0][-1].rows == self.rows):
            return [list(points) for points in self.points]
        return [
            [*points, point(self.rows, score)]
            for points, score in zip(self.points, scores, strict=True)
        ]

    def to_json(self) -> dict[str, Any]:
        """The whole state; `from_json` restores it exactly."""
        return {
            "rows": self.rows,
            "points": [[p.to_json() for p in points] for points in self.points],
        }

    @classmethod
    def from_json(cls, state: Mapping[str, Any]) -> LearningCurve:
        """The curve that `to_json` described."""
        curve = cls(len(state["points"]))
        curve.rows = int(state["rows"])
        curve.points = [[CurvePoint.from_json(p) for p in points] for points in state["points"]]
        return curve
