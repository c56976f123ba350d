"""The learning curve: figures at 32, 64, 128, ... rows, each overall and since the point before.

Doubling keeps it short for ever (a curve of 10^12 rows has 36 points) and even on a log axis. The
points fall on the same rows however the stream is cut, because blocks are split at them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kbnn.score.rowsums import restore_floats
from kbnn.score.score import CURVE_LINES, Score, check_stored_count

FIRST_POINT_ROWS = 32
"""Rows at the first point."""


@dataclass(frozen=True)
class CurvePoint:
    """One target at one row count; `loss` is RMSE or error rate, `nll` the NLL or log-loss.

    `since_*` are the same over the rows after the point before. What a task has no figure for
    (classes have no intervals) is None, and so is anything while there was no row to judge.
    """

    rows: int
    loss: float | None
    nll: float | None
    coverage_90: float | None
    since_loss: float | None
    since_nll: float | None
    since_coverage_90: float | None

    def __deepcopy__(self, memo: object) -> CurvePoint:
        return self  # it never changes

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
        rows, *values = fields
        if len(values) != 6:
            raise ValueError("a point of the learning curve is damaged")
        restore_floats([0.0 if value is None else value for value in values], (6,))
        return cls(check_stored_count(rows), *values)


def make_curve_point(rows: int, score: Score) -> CurvePoint:
    """What `score` says now, after `rows` rows of the stream."""
    lines = score.curve_values()
    pairs = [lines.get(name, (None, None)) for name in CURVE_LINES]
    return CurvePoint(rows, *(now for now, _ in pairs), *(since for _, since in pairs))


class LearningCurve:
    """Points of every target at doubling row counts."""

    def __init__(self, targets: int) -> None:
        self.rows = 0
        """Rows offered so far, scored or not: all targets share the axis."""
        self.points: list[list[CurvePoint]] = [[] for _ in range(targets)]

    @property
    def next_point_rows(self) -> int:
        """Row count at which the next point falls."""
        return FIRST_POINT_ROWS << len(self.points[0])

    def split_at_points(self, rows: int) -> Iterator[slice]:
        """Cut a block of `rows` rows so that every piece ends at the next point or before it."""
        start = 0
        while start < rows:
            stop = min(rows, start + self.next_point_rows - self.rows)
            yield slice(start, stop)
            start = stop

    def advance_rows(self, rows: int, scores: Sequence[Score]) -> bool:
        """Count a piece that `scores` have just taken in; True if a point fell at its end."""
        self.rows += rows
        if self.rows < self.next_point_rows:
            return False
        for points, score in zip(self.points, scores, strict=True):
            points.append(make_curve_point(self.rows, score))
            score.start_curve_segment()
        return True

    def points_to_date(self, scores: Sequence[Score]) -> list[list[CurvePoint]]:
        """The points of each target, closed by the present figures."""
        if not self.rows or (self.points[0] and self.points[0][-1].rows == self.rows):
            return [list(points) for points in self.points]
        return [
            [*points, make_curve_point(self.rows, score)]
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
        return cls.restore(
            check_stored_count(state["rows"]),
            [[CurvePoint.from_json(p) for p in points] for points in state["points"]],
        )

    @classmethod
    def restore(cls, rows: int, points: list[list[CurvePoint]]) -> LearningCurve:
        """Make a curve of stored points; ValueError where no stream of rows has them.

        A curve whose next point lies behind its last row would never come to it.
        """
        curve = cls(len(points))
        known = points[0] if points else []
        places = [FIRST_POINT_ROWS << at for at in range(len(known))]
        if any([point.rows for point in target] != places for target in points):
            raise ValueError("the points of the learning curve are not at the rows they fall on")
        if not (places[-1] if places else 0) <= rows < FIRST_POINT_ROWS << len(known):
            raise ValueError(f"the learning curve cannot have {rows} rows")
        curve.rows, curve.points = rows, points
        return curve
