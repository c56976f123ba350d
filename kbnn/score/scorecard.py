"""Everything that is recorded about forecasts and what came true: scores, curve, summaries.

One object for `train` (prequential: each row is forecast before it is learned), for `evaluate`, and
for the model file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kbnn.errors import ModelError
from kbnn.score.class_metrics import ClassScore
from kbnn.score.curve import CurvePoint, LearningCurve
from kbnn.score.metrics import RegressionScore
from kbnn.score.rowsums import FloatArray, IntArray
from kbnn.score.summaries import SAMPLE, Summaries

ARRAYS = (
    "pit",
    "feature_counts",
    "confusion",
    *(
        f"{kept}.{field}"
        for kept in ("sample", "worst")
        for field in ("order", "row", "priority", "x", "y", "forecast")
    ),
)
"""Names of the arrays in a stored state."""


class Scorecard:
    """Scores of every target, the learning curve and the summaries of one stream."""

    def __init__(
        self,
        targets: int = 1,
        features: int = 0,
        *,
        classes: bool = False,
        seed: int = 0,
        sample: int = SAMPLE,
    ) -> None:
        if classes and targets != 1:
            raise ValueError("a class target stands alone")
        self.classes = classes
        self.scores: Sequence[RegressionScore | ClassScore] = (
            [ClassScore()] if classes else [RegressionScore() for _ in range(targets)]
        )
        self.curve = LearningCurve(targets)
        self.summaries = Summaries(0 if classes else targets, features, seed, sample)

    def add(
        self,
        x: FloatArray,
        y: FloatArray,
        *,
        mean: FloatArray | None = None,
        sd: FloatArray | None = None,
        probability: FloatArray | None = None,
        weight: FloatArray | None = None,
        rows: IntArray | None = None,
    ) -> list[list[CurvePoint]]:
        """Score a block in row order; the new points of the learning curve, one list a target."""
        new: list[list[CurvePoint]] = [[] for _ in self.scores]
        for piece in self.curve.pieces(y.shape[0]):
            w = None if weight is None else weight[piece]
            for j, score in enumerate(self.scores):
                if isinstance(score, ClassScore):
                    assert probability is not None
                    score.add(y[piece, 0], probability[piece], w)
                else:
                    assert mean is not None
                    assert sd is not None
                    score.add(y[piece, j], mean[piece, j], sd[piece, j], w)
            if self.curve.advance(piece.stop - piece.start, self.scores):
                for found, points in zip(new, self.curve.points, strict=True):
                    found.append(points[-1])
        self.summaries.add(x, y, mean, sd, probability, rows)
        return new

    def figures(self, names: list[str] | None = None) -> dict[str, Any]:
        """Figures of `evaluate --json`: flat for one target, else per name under `targets`."""
        if len(self.scores) == 1:
            return self.scores[0].figures()
        labels = names if names is not None else [str(j) for j in range(len(self.scores))]
        return {
            "rows": self.curve.rows,
            "skipped": self.curve.rows - max(score.rows for score in self.scores),
            "targets": {
                name: score.figures() for name, score in zip(labels, self.scores, strict=True)
            },
        }

    def points(self) -> list[list[CurvePoint]]:
        """The learning curve of each target, closed by the present figures."""
        return self.curve.with_now(self.scores)

    def to_state(self) -> tuple[dict[str, Any], dict[str, FloatArray]]:
        """JSON header and float64 arrays; `from_state` restores the same bits."""
        header, arrays = self.summaries.to_state()
        return {
            "classes": self.classes,
            "scores": [score.to_json() for score in self.scores],
            "curve": self.curve.to_json(),
            "summaries": header,
        }, arrays

    @classmethod
    def from_state(cls, header: Mapping[str, Any], arrays: dict[str, FloatArray]) -> Scorecard:
        """The scorecard that `to_state` described; ModelError when it cannot be one."""
        try:
            return cls._restore(header, arrays)
        except (
            KeyError,
            TypeError,
            ValueError,
            IndexError,
            OverflowError,
            AttributeError,
        ) as error:
            raise ModelError(f"The record of past forecasts is damaged ({error}).") from error

    @classmethod
    def _restore(cls, header: Mapping[str, Any], arrays: dict[str, FloatArray]) -> Scorecard:
        card = cls(len(header["scores"]), classes=bool(header["classes"]))
        if card.classes:
            card.scores = [ClassScore.from_json(state) for state in header["scores"]]
        else:
            card.scores = [RegressionScore.from_json(state) for state in header["scores"]]
        card.curve = LearningCurve.from_json(header["curve"])
        card.summaries = Summaries.from_state(header["summaries"], arrays)
        targets = 0 if card.classes else len(card.scores)
        if len(card.curve.points) != len(card.scores) or card.summaries.targets != targets:
            raise ValueError("its parts speak of different targets")
        return card
