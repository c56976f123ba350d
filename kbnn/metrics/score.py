"""Streaming scores of one target, in row order and constant memory.

A `Score` adds up the terms of its target type's metrics in row order, so the result is the same,
bit for bit, however the rows are cut into batches. Sums are stored by name: a metric missing from
an older record starts empty, and its mean is over the rows since.

`PinballLoss` scores quantiles: a quantile of level p that lies g below the true value costs p g,
one that lies g above costs (1 - p) g; the true quantile has the lowest mean cost.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, Self

import numpy as np

from kbnn.array_types import FloatArray
from kbnn.core.kernel import sum_in_order
from kbnn.metrics.figures import (
    Metric,
    clip_terms,
    flatten_metrics,
    nest_metrics,
    restore_floats,
    shared_ones,
    to_float_list,
)

LARGEST_SUM = 1e220
"""Limit of a sum: terms are clipped before they are squared, see kbnn.metrics.figures."""
LARGEST_WEIGHTED = 1e204
"""Limit of a row's term times its weight: the sum of 10^16 rows is within LARGEST_SUM."""

CURVE_LINES = ("loss", "nll", "coverage_90")
"""The lines of a learning curve."""


class ScoredBatch(Protocol):
    """A batch of forecasts with their true values: the rows that have both."""

    weight: FloatArray
    """(n,) weights of the rows that can be scored."""
    is_unweighted: bool
    """Whether every weight is 1."""
    skipped: int
    """Rows without a target."""
    invalid: int
    """Rows whose forecast is not a distribution; models do not make such forecasts."""


class ScoredRows(ScoredBatch, Protocol):
    """A batch of one target's forecasts with a loss per row."""

    @property
    def row_losses(self) -> FloatArray: ...


class Score:
    """Streaming metrics of one target; subclasses add baselines and data for charts."""

    figures_listed: Sequence[Metric] = ()

    def __init__(self) -> None:
        self.rows = 0
        self.skipped = 0
        self.invalid = 0
        self._summed_metrics = [figure for figure in self.figures_listed if figure.term is not None]
        self._index_by_name = {figure.name: at for at, figure in enumerate(self._summed_metrics)}
        self._curve_indices = [at for at, figure in enumerate(self._summed_metrics) if figure.curve]
        self._weight = 0.0
        self._sums = np.zeros(len(self._summed_metrics))
        self._start_weights = np.zeros(
            len(self._summed_metrics)
        )  # weight of the rows before each metric started
        self._recent = np.zeros(
            1 + len(self._curve_indices)
        )  # weight and sums since the last `start_curve_segment`

    def add(self, judged: ScoredBatch) -> None:
        """Add rows in order."""
        self.skipped += judged.skipped
        self.invalid += judged.invalid
        n = judged.weight.shape[0]
        if n == 0:
            return
        terms = [figure.term(judged) for figure in self._summed_metrics if figure.term is not None]
        if not judged.is_unweighted:
            with np.errstate(over="ignore"):
                terms = [term * judged.weight for term in terms]
            terms = [limit_terms(term) for term in terms]
        whole, drawn = [judged.weight, *terms], [terms[at] for at in self._curve_indices]
        before = np.concatenate(((self._weight,), self._sums, self._recent))
        after = sum_in_order(before, [*whole, judged.weight, *drawn])
        self._weight = float(after[0])
        self._sums, self._recent = after[1 : len(whole)], after[len(whole) :]
        self.rows += n

    def start_curve_segment(self) -> None:
        """Start a new segment of the learning curve."""
        self._recent = np.zeros_like(self._recent)

    def mean_term(self, name: str) -> float | None:
        """Return the weighted mean of a metric's term over its rows; None before the first."""
        at = self._index_by_name[name]
        weight = self._weight - float(self._start_weights[at])
        return float(self._sums[at]) / weight if weight > 0 else None

    def metric_value(self, figure: Metric) -> float | None:
        """Return the current value of a metric; None if it is undefined."""
        if figure.derive is not None:
            return figure.derive(self)
        mean = self.mean_term(figure.name)
        return None if mean is None else figure.finish(mean)

    def metric_values(self) -> dict[str, Any]:
        """Return all metrics under the names of `kbnn evaluate --json`."""
        return {
            "rows": self.rows,
            "skipped": self.skipped,
            **nest_metrics(
                [(figure.name, self.metric_value(figure)) for figure in self.figures_listed]
            ),
        }

    def curve_values(self) -> dict[str, tuple[float | None, float | None]]:
        """Return the values of the learning curve: overall, and in the current segment."""
        found: dict[str, tuple[float | None, float | None]] = {}
        weight, *recent = to_float_list(self._recent)
        for at, since in zip(self._curve_indices, recent, strict=True):
            figure = self._summed_metrics[at]
            finish = figure.on_curve or figure.finish
            mean = self.mean_term(figure.name)
            found[figure.curve] = (
                None if mean is None else finish(mean),
                finish(since / weight) if weight > 0 else None,
            )
        return found

    def to_json(self) -> dict[str, Any]:
        """Return the whole state; `from_json` restores it bit for bit."""
        names = list(self._index_by_name)
        drawn = [names[at] for at in self._curve_indices]
        began = {name: float(value) for name, value in zip(names, self._start_weights, strict=True)}
        return {
            "rows": self.rows,
            "skipped": self.skipped,
            "invalid": self.invalid,
            "weight": self._weight,
            "sums": dict(zip(names, to_float_list(self._sums), strict=True)),
            "began": {name: value for name, value in began.items() if value},
            "recent": dict(zip(("weight", *drawn), to_float_list(self._recent), strict=True)),
        }

    @classmethod
    def from_json(cls, state: Mapping[str, Any]) -> Self:
        """Restore a score from `to_json`, whichever metrics it has."""
        score = cls()
        score.rows, score.skipped = (
            check_stored_count(state["rows"]),
            check_stored_count(state["skipped"]),
        )
        score.invalid = check_stored_count(state["invalid"])
        score._weight = float(restore_floats(state["weight"], ()))
        sums = {name: float(restore_floats(value, ())) for name, value in state["sums"].items()}
        began = state.get("began", {})
        recent = {name: float(restore_floats(value, ())) for name, value in state["recent"].items()}
        if score._weight < 0.0:
            raise ValueError("a score has no negative weight")
        score.restore_sums({"weight": score._weight, **sums}, recent)
        for name in began.keys() & score._index_by_name.keys():
            score._start_weights[score._index_by_name[name]] = restore_floats(began[name], ())
        if np.any(np.abs(score._sums) > LARGEST_SUM) or np.any(
            score._start_weights > score._weight
        ):
            raise ValueError("a sum of the record is out of range")
        return score

    def restore_sums(self, sums: Mapping[str, float], recent: Mapping[str, float]) -> None:
        """Set sums by name, including `weight`; a metric that has none starts here."""
        self._weight, self._recent[0] = sums["weight"], recent["weight"]
        for name, at in self._index_by_name.items():
            self._sums[at] = sums.get(name, 0.0)
            self._start_weights[at] = 0.0 if name in sums else self._weight
        names = list(self._index_by_name)
        for place, at in enumerate(self._curve_indices, start=1):
            self._recent[place] = recent.get(names[at], 0.0)


def limit_terms(terms: FloatArray) -> FloatArray:
    """Clip terms so that sums stay finite; return the same array if none is beyond."""
    far = np.abs(terms) > LARGEST_WEIGHTED
    return np.clip(terms, -LARGEST_WEIGHTED, LARGEST_WEIGHTED) if far.any() else terms


def check_finite(score: Score) -> None:
    """Raise ValueError if any metric of a score or of its learning curve is not finite."""
    found = [value for pair in score.curve_values().values() for value in pair]
    found += flatten_metrics(score.metric_values()).values()
    if not all(value is None or math.isfinite(value) for value in found):
        raise ValueError("a figure of the record is not finite")


def check_stored_count(value: object) -> int:
    """Return a stored count that is exact in float64; ValueError if it is not one."""
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**53:
        raise ValueError(f"expected a count, found {value!r:.40}")
    return value


class PinballLoss:
    """Mean pinball loss of several quantiles of one target."""

    def __init__(self, shares: Sequence[float]) -> None:
        self.shares = np.array(shares, dtype=np.float64)
        self._sums = np.zeros(1 + len(self.shares))  # weight, then losses

    def add(self, y: FloatArray, quantiles: FloatArray, weight: FloatArray | None) -> None:
        """Add rows in order: y (n,) with its quantiles (n, levels)."""
        known = np.isfinite(y) & np.isfinite(quantiles).all(axis=1)
        gap = clip_terms(y[known, None] - quantiles[known])
        w = shared_ones(len(gap)) if weight is None else weight[known]
        loss = np.where(gap > 0.0, self.shares * gap, (self.shares - 1.0) * gap)
        self._sums = sum_in_order(self._sums, [w, *(w[:, None] * loss).T])

    def mean_losses(self) -> list[float | None]:
        """Return the mean loss of each level; None before the first row."""
        weight = float(self._sums[0])
        return [float(loss) / weight if weight > 0.0 else None for loss in self._sums[1:]]
