"""Everything that is recorded about forecasts and what came true: scores, curve, summaries.

One object for `train` (prequential: each row is forecast before it is learned), for `evaluate`, and
for the model file. What a score is made of is the task's business.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any, Protocol

import numpy as np

from kbnn.errors import ModelError
from kbnn.score.curve import CurvePoint, LearningCurve
from kbnn.score.rowsums import FloatArray, IntArray
from kbnn.score.score import Score, ScoredBatch, check_finite
from kbnn.score.summaries import MAX_SAMPLED_ROWS, StreamSummaries

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
