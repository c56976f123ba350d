"""How good each key of a fleet is: three figures a key, so that there may be many."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kbnn.model.rows import Rows
from kbnn.score.score import Score
from kbnn.task.base import TargetType
from kbnn.task.forecast import Forecast, select_rows


class KeyScores:
    """Scores of the first target by key: what a learning curve shows, and nothing else."""

    def __init__(self, task: TargetType) -> None:
        shown = [figure for figure in task.score.figures_listed if figure.curve]
        self._score_class: type[Score] = type("Brief", (Score,), {"figures_listed": shown})
        self._task = task
        self._scores: dict[str, Score] = {}

    def add(self, keys: Sequence[str], rows: Rows, forecast: Forecast) -> None:
        """Count rows of these keys."""
        places: dict[str, list[int]] = {}
        for at, key in enumerate(keys):
            places.setdefault(key, []).append(at)
        for key, group in places.items():
            here = np.array(group)
            weight = None if rows.weight is None else rows.weight[here]
            judged = self._task.score_forecasts(rows.y[here], select_rows(forecast, here), weight)
            self._scores.setdefault(key, self._score_class()).add(judged[0])

    def rank_keys(self) -> list[dict[str, Any]]:
        """The keys that were scored, the best first; of equals in the order of the alphabet."""
        found = []
        for key, score in self._scores.items():
            lines = {name: now for name, (now, _) in score.curve_values().items()}
            if lines.get("loss") is not None:
                coverage = lines.get("coverage_90")
                figures = {"loss": lines["loss"], "nll": lines.get("nll"), "coverage_90": coverage}
                found.append({"key": key, "rows": score.rows, **figures})
        return sorted(found, key=lambda one: (one["loss"], one["key"]))

    def to_json(self) -> dict[str, Any]:
        """How many keys were scored, and the best, the median and the worst of them."""
        ranked = self.rank_keys()
        if not ranked:
            return {"count": 0}
        middle = ranked[(len(ranked) - 1) // 2]
        return {"count": len(ranked), "best": ranked[0], "median": middle, "worst": ranked[-1]}
