"""The scorecard of a stream: scores of every target, learning curve and summaries.

It is used by `train` (prequential: each row is predicted before it is learned), by `evaluate`, and
stored in the model file.

`LearningCurve` holds metrics at 32, 64, 128, ... rows, each overall and since the previous point. A
curve of 10^12 rows has 36 points, evenly spaced on a log axis. Batches are split at the points.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np

from kbnn.array_types import FloatArray, IntArray
from kbnn.errors import ModelError
from kbnn.metrics.figures import (
    CURVE_LINES,
    Score,
    check_finite,
    check_stored_count,
    restore_floats,
)
from kbnn.metrics.samples import MAX_SAMPLED_ROWS, StreamSummaries
from kbnn.metrics.verdicts import find_metrics
from kbnn.targets.base import TargetType
from kbnn.targets.prediction import Forecast, select_rows


class Scorecard:
    """Scores of every target, the learning curve and the summaries of one stream."""

    def __init__(
        self,
        task: TargetType,
        features: int = 0,
        *,
        seed: int = 0,
        sample: int = MAX_SAMPLED_ROWS,
    ) -> None:
        self.task = task
        self.scores: list[Score] = [find_metrics(task).score() for _ in task.targets]
        self.curve = LearningCurve(len(self.scores))
        self.summaries = StreamSummaries(features, seed, sample)

    def copy(self) -> Scorecard:
        """Copy everything except the target type."""
        return deepcopy(self, {id(self.task): self.task})

    def add_columns(self, unseen: FloatArray) -> None:
        """Add columns of x; `unseen` holds the values of all columns in the rows so far."""
        self.summaries.add_columns(unseen)

    def add(
        self,
        x: FloatArray,
        y: FloatArray,
        forecast: Forecast,
        weight: FloatArray | None = None,
        number: IntArray | None = None,
    ) -> None:
        """Score a batch in row order: x (n, D), y (n, T) and the forecasts of its rows."""
        metrics = find_metrics(self.task)
        surprise = np.empty(y.shape[0])
        parts: list[FloatArray] = []
        for piece in self.curve.split_at_points(y.shape[0]):
            part = select_rows(forecast, piece)
            w = None if weight is None else weight[piece]
            compared = metrics.score_forecasts(y[piece], part, w)
            for score, one in zip(self.scores, compared, strict=True):
                score.add(one)
            surprise[piece] = _sum_targets([one.row_losses for one in compared])
            parts.append(metrics.prediction_columns(part, compared))
            self.curve.advance_rows(piece.stop - piece.start, self.scores)
        if parts:
            columns = parts[0] if len(parts) == 1 else np.concatenate(parts)
            self.summaries.add(x, y, columns, surprise, number)

    def metric_values(self, names: Sequence[str] | None = None) -> dict[str, Any]:
        """Return the metrics of `train --json`: flat for one target, otherwise under `targets`."""
        if len(self.scores) == 1:
            return self.scores[0].metric_values()
        labels = names if names is not None else [str(j) for j in range(len(self.scores))]
        return {
            "rows": self.curve.rows,
            "skipped": self.curve.rows - max(score.rows for score in self.scores),
            "targets": {
                name: score.metric_values() for name, score in zip(labels, self.scores, strict=True)
            },
        }

    def curve_points(self) -> list[list[CurvePoint]]:
        """Return the learning curve of each target, ending with the current metrics."""
        return self.curve.points_to_date(self.scores)

    def to_state(self) -> tuple[dict[str, Any], dict[str, FloatArray]]:
        """Return JSON header and float64 arrays; `from_state` restores the same bits."""
        header, arrays = self.summaries.to_state()
        return {
            "scores": [score.to_json() for score in self.scores],
            "curve": self.curve.to_json(),
            "summaries": header,
        }, arrays

    @classmethod
    def from_state(
        cls,
        task: TargetType,
        header: Mapping[str, Any],
        arrays: dict[str, FloatArray],
        name: str = "the model",
    ) -> Scorecard:
        """Restore the scorecard from `to_state`; ModelError if it is damaged."""
        card = cls(task)
        try:
            card.scores = [find_metrics(task).score.from_json(state) for state in header["scores"]]
            card.curve = LearningCurve.from_json(header["curve"])
            card.summaries = StreamSummaries.from_state(header["summaries"], arrays)
            if not len(card.curve.points) == len(card.scores) == len(task.targets):
                raise ValueError("its parts are of different targets")
            for score in card.scores:
                check_finite(score)  # reject sums that no rows can produce
        except (
            KeyError,
            TypeError,
            ValueError,
            IndexError,
            ArithmeticError,
            AttributeError,
        ) as error:
            raise ModelError(
                f"{name}: its record of past forecasts is damaged ({error})"
            ) from error
        return card


def _sum_targets(surprises: Sequence[FloatArray]) -> FloatArray:
    """Sum losses over the targets that can be scored; NaN if none can."""
    if len(surprises) == 1:
        return surprises[0]
    known = [np.isfinite(part) for part in surprises]
    total = np.zeros_like(surprises[0])
    for part, there in zip(surprises, known, strict=True):
        total += np.where(there, part, 0.0)
    return np.where(np.any(known, axis=0), total, np.nan)


FIRST_POINT_ROWS = 32
"""Rows at the first point of the learning curve."""


@dataclass(frozen=True)
class CurvePoint:
    """One target at one row count; `loss` is RMSE or error rate, `nll` the NLL or log-loss.

    `since_*` are the same over the rows since the previous point. A metric that the target type
    does not have (classes have no intervals) is None, as is any metric without scored rows.
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
        """Return the fields in order."""
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
        """Restore the point from `to_json`."""
        rows, *values = fields
        if len(values) != 6:
            raise ValueError("a point of the learning curve is damaged")
        restore_floats([0.0 if value is None else value for value in values], (6,))
        return cls(check_stored_count(rows), *values)


def make_curve_point(rows: int, score: Score) -> CurvePoint:
    """Make a point from the current values of `score`, after `rows` rows of the stream."""
    lines = score.curve_values()
    pairs = [lines.get(name, (None, None)) for name in CURVE_LINES]
    return CurvePoint(rows, *(now for now, _ in pairs), *(since for _, since in pairs))


class LearningCurve:
    """Points of every target at doubling row counts."""

    def __init__(self, targets: int) -> None:
        self.rows = 0
        """Rows so far, scored or not: all targets share the axis."""
        self.points: list[list[CurvePoint]] = [[] for _ in range(targets)]

    @property
    def next_point_rows(self) -> int:
        """Row count of the next point."""
        return FIRST_POINT_ROWS << len(self.points[0])

    def split_at_points(self, rows: int) -> Iterator[slice]:
        """Split a batch of `rows` rows so that no piece extends beyond the next point."""
        start = 0
        while start < rows:
            stop = min(rows, start + self.next_point_rows - self.rows)
            yield slice(start, stop)
            start = stop

    def advance_rows(self, rows: int, scores: Sequence[Score]) -> bool:
        """Count a piece that was added to `scores`; return whether it ends at a point."""
        self.rows += rows
        if self.rows < self.next_point_rows:
            return False
        for points, score in zip(self.points, scores, strict=True):
            points.append(make_curve_point(self.rows, score))
            score.start_curve_segment()
        return True

    def points_to_date(self, scores: Sequence[Score]) -> list[list[CurvePoint]]:
        """Return the points of each target, ending with the current metrics."""
        if not self.rows or (self.points[0] and self.points[0][-1].rows == self.rows):
            return [list(points) for points in self.points]
        return [
            [*points, make_curve_point(self.rows, score)]
            for points, score in zip(self.points, scores, strict=True)
        ]

    def to_json(self) -> dict[str, Any]:
        """Return the whole state; `from_json` restores it exactly."""
        return {
            "rows": self.rows,
            "points": [[p.to_json() for p in points] for points in self.points],
        }

    @classmethod
    def from_json(cls, state: Mapping[str, Any]) -> LearningCurve:
        """Restore the curve from `to_json`."""
        return cls.restore(
            check_stored_count(state["rows"]),
            [[CurvePoint.from_json(p) for p in points] for points in state["points"]],
        )

    @classmethod
    def restore(cls, rows: int, points: list[list[CurvePoint]]) -> LearningCurve:
        """Make a curve from stored points; ValueError if no stream can have them.

        A curve whose next point lies before its last row would never reach it.
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
