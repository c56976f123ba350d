"""Everything that is recorded about forecasts and what came true: scores, curve, summaries.

One object for `train` (prequential: each row is forecast before it is learned), for `evaluate`, and
for the model file. What a score is made of is the task's business.

The best constant for the same rows, beside which forecasts of numbers are judged.

Its mean m and the sum of squares M2 about it follow Welford's recursion, for a row of weight w

    m_t = m_(t-1) + w d / W_t      M2_t = M2_(t-1) + w d (y - m_t)      d = y - m_(t-1)

with m_t written as origin + (sum of w (y - origin)) / W_t, the origin being the first number. So it
is exact in row order however rows were cut into blocks, and M2 adds up terms that cannot cancel.

The learning curve: figures at 32, 64, 128, ... rows, each overall and since the point before.

Doubling keeps it short for ever (a curve of 10^12 rows has 36 points) and even on a log axis. The
points fall on the same rows however the stream is cut, because blocks are split at them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from kbnn.array_types import FloatArray, IntArray
from kbnn.core import kernel
from kbnn.core.constants import LARGEST_TERM
from kbnn.errors import ModelError
from kbnn.metrics.figures import clip_terms, restore_floats, to_float_list
from kbnn.metrics.samples import MAX_SAMPLED_ROWS, StreamSummaries
from kbnn.metrics.score import CURVE_LINES, Score, ScoredBatch, check_finite, check_stored_count

SCORECARD_ARRAYS = (
    "feature_counts",
    *(
        f"{kept}.{field}"
        for kept in ("sample", "worst")
        for field in ("order", "row", "priority", "x", "y", "forecast")
    ),
)
"""Names of the arrays in a stored state."""


class ScoredRows(ScoredBatch, Protocol):
    """A block of one target's forecasts, row by row."""

    @property
    def row_losses(self) -> FloatArray: ...


class ForecastScorer(Protocol):
    """What a scorecard needs of a task."""

    @property
    def targets(self) -> Sequence[str]: ...
    @property
    def score(self) -> type[Score]: ...
    def prediction_columns(self, forecast: Any, judged: Any) -> FloatArray: ...
    def score_forecasts(
        self, y: FloatArray, forecast: Any, weight: FloatArray | None
    ) -> Sequence[ScoredRows]: ...


class Scorecard:
    """Scores of every target, the learning curve and the summaries of one stream."""

    def __init__(
        self,
        scorer: ForecastScorer,
        features: int = 0,
        *,
        seed: int = 0,
        sample: int = MAX_SAMPLED_ROWS,
    ) -> None:
        self.scorer = scorer
        self.scores: list[Score] = [scorer.score() for _ in scorer.targets]
        self.curve = LearningCurve(len(self.scores))
        self.summaries = StreamSummaries(features, seed, sample)

    def copy(self) -> Scorecard:
        """Copy everything but the judge."""
        return deepcopy(self, {id(self.scorer): self.scorer})

    def add_columns(self, unseen: FloatArray) -> None:
        """Make room for columns of x up to the last of `unseen`: what they held in rows so far."""
        self.summaries.add_columns(unseen)

    def add(
        self,
        x: FloatArray,
        y: FloatArray,
        forecast: Any,
        weight: FloatArray | None = None,
        number: IntArray | None = None,
    ) -> None:
        """Score a block in row order: x (n, D), y (n, T) and the task's forecast of its rows."""
        surprise = np.empty(y.shape[0])
        said: list[FloatArray] = []
        for piece in self.curve.split_at_points(y.shape[0]):
            part = type(forecast)(*(array[piece] for array in forecast))
            w = None if weight is None else weight[piece]
            compared = self.scorer.score_forecasts(y[piece], part, w)
            for score, one in zip(self.scores, compared, strict=True):
                score.add(one)
            surprise[piece] = _sum_targets([one.row_losses for one in compared])
            said.append(self.scorer.prediction_columns(part, compared))
            self.curve.advance_rows(piece.stop - piece.start, self.scores)
        if said:
            told = said[0] if len(said) == 1 else np.concatenate(said)
            self.summaries.add(x, y, told, surprise, number)

    def metric_values(self, names: Sequence[str] | None = None) -> dict[str, Any]:
        """Figures of `train --json`: flat for one target, else per name under `targets`."""
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
        """The learning curve of each target, closed by the present figures."""
        return self.curve.points_to_date(self.scores)

    def to_state(self) -> tuple[dict[str, Any], dict[str, FloatArray]]:
        """JSON header and float64 arrays; `from_state` restores the same bits."""
        header, arrays = self.summaries.to_state()
        return {
            "scores": [score.to_json() for score in self.scores],
            "curve": self.curve.to_json(),
            "summaries": header,
        }, arrays

    @classmethod
    def from_state(
        cls,
        scorer: ForecastScorer,
        header: Mapping[str, Any],
        arrays: dict[str, FloatArray],
        name: str = "the model",
    ) -> Scorecard:
        """The scorecard that `to_state` described; ModelError when it cannot be one."""
        card = cls(scorer)
        try:
            card.scores = [scorer.score.from_json(state) for state in header["scores"]]
            card.curve = LearningCurve.from_json(header["curve"])
            card.summaries = StreamSummaries.from_state(header["summaries"], arrays)
            if not len(card.curve.points) == len(card.scores) == len(scorer.targets):
                raise ValueError("its parts speak of different targets")
            for score in card.scores:
                check_finite(score)  # sums that no rows can have do not make figures
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
    """Summed over the targets that can be judged; NaN where none can."""
    if len(surprises) == 1:
        return surprises[0]
    known = [np.isfinite(part) for part in surprises]
    total = np.zeros_like(surprises[0])
    for part, there in zip(surprises, known, strict=True):
        total += np.where(there, part, 0.0)
    return np.where(np.any(known, axis=0), total, np.nan)


LARGEST_SPREAD = 1e300
"""Of M2: a weight of 1e140 times the square of a deviation of 1e100 is no number any more."""

_SUM_NAMES = ("weight", "shift", "spread")


class ConstantBaseline:
    """Mean and variance of the numbers so far."""

    def __init__(self) -> None:
        self.sums = np.array([np.nan, 0.0, 0.0, 0.0])
        """What numbers are counted from (NaN before the first), then W, W (m - origin) and M2."""

    def add(self, y: FloatArray, weight: FloatArray) -> None:
        """Count numbers in order."""
        if not len(y):
            return
        if kernel.is_compiled():
            self.sums = kernel.update_constant(self.sums, y, weight, LARGEST_TERM)
            self._limit_spread()
            return
        origin, total, shift, spread = to_float_list(self.sums)
        if np.isnan(origin):
            origin = float(clip_terms(y[:1])[0])
        with np.errstate(over="ignore"):
            d = clip_terms(y - origin)
        weights = _partial_sums(total, weight)
        shifts = _partial_sums(shift, weight * d)
        before = np.divide(shifts[:-1], weights[:-1], out=d.copy(), where=weights[:-1] > 0)
        after = np.divide(shifts[1:], weights[1:], out=d.copy(), where=weights[1:] > 0)
        with np.errstate(over="ignore"):
            gain = np.fmax(weight * (d - before) * (d - after), 0.0)
            total_spread = _partial_sums(spread, gain)[-1]
        self.sums = np.array([origin, weights[-1], shifts[-1], total_spread])
        self._limit_spread()

    def _limit_spread(self) -> None:
        """Keep M2 a number where large weights meet large deviations."""
        self.sums[3] = min(self.sums[3], LARGEST_SPREAD)

    @property
    def variance(self) -> float | None:
        """The mean square error of the best constant, None before the first number."""
        _, total, _, spread = to_float_list(self.sums)
        return spread / total if total > 0.0 else None

    @property
    def mean(self) -> float | None:
        """The best constant, None before the first number."""
        origin, total, shift, _ = to_float_list(self.sums)
        return origin + shift / total if total > 0.0 else None

    def to_json(self) -> dict[str, Any]:
        """The whole state; `from_json` restores it bit for bit."""
        origin, *sums = to_float_list(self.sums)
        return {
            "origin": None if np.isnan(origin) else origin,
            **dict(zip(_SUM_NAMES, sums, strict=True)),
        }

    @classmethod
    def from_json(cls, state: Mapping[str, Any]) -> ConstantBaseline:
        """The constant that `to_json` described."""
        constant = cls()
        total, shift, spread = to_float_list(
            restore_floats([state[name] for name in _SUM_NAMES], (3,))
        )
        if not (abs(shift) <= 2.0 * LARGEST_TERM * total and spread >= 0.0):
            raise ValueError("its baseline is none")
        origin = np.nan if state["origin"] is None else float(restore_floats(state["origin"], ()))
        constant.sums = np.array([origin, total, shift, spread])
        return constant


def _partial_sums(carry: float, values: FloatArray) -> FloatArray:
    """The n + 1 partial sums carry, carry + x_1, carry + x_1 + x_2, ... in row order."""
    partial = np.empty(values.shape[0] + 1)
    partial[0] = carry
    partial[1:] = values
    return np.add.accumulate(partial, out=partial)


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
