"""Figures that only an evaluation computes: of labels and rankings, and of absolute errors.

A model stores none of them: they need more memory than the metrics of its record. All are
computed on the stream in bounded memory; `approximation` lists bounds of the errors of those that
are not exact. Those of labels are in `kbnn.metrics.class_metrics`.

With y the true value, m its forecast and e = y - m, over rows

    MAPE    mean of |e| / |y|, of rows with y other than 0
    sMAPE   mean of 2 |e| / (|y| + |m|), of rows where not both are 0
    median  of |e|
    MASE    mean of |e| divided by the mean absolute error of a naive forecast

The median needs the distribution of |e|. `QuantileSketch` keeps the first EXACT_ROWS values, up to
where quantiles are exact. Then it counts values in bins whose edges grow by a constant factor, so
that a quantile has a relative error of at most RELATIVE_ERROR. Memory is constant, and results do
not depend on how rows are cut into batches.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Self

import numpy as np

from kbnn.array_types import FloatArray
from kbnn.core.kernel import sum_in_order
from kbnn.errors import UsageError
from kbnn.metrics.class_metrics import (
    EXACT_ROWS,
    ClassRanking,
    ConfusionCounts,
    Estimate,
    ScoredClassBatch,
)
from kbnn.metrics.figures import MetricRow, clip_terms, restore_floats, shared_ones
from kbnn.wording import clean_text, format_number, format_percent

RELATIVE_ERROR = 0.005
"""Largest relative error of a quantile of many values."""
LOG_BIN_RATIO = math.log1p(RELATIVE_ERROR) - math.log1p(-RELATIVE_ERROR)
"""Logarithm of the ratio of a bin's edges; its middle is within RELATIVE_ERROR of its values."""
MIN_VALUE, MAX_VALUE = 1e-150, 1e150
"""Values beyond these count as these; 0 has a bin of its own."""
FIRST_BIN = math.floor(math.log(MIN_VALUE) / LOG_BIN_RATIO)
BIN_COUNT = math.ceil(math.log(MAX_VALUE) / LOG_BIN_RATIO) - FIRST_BIN + 1


class QuantileSketch:
    """Quantiles of values >= 0."""

    def __init__(self) -> None:
        self._values = np.zeros(0)
        self._weight = np.zeros(0)
        self._bins: FloatArray | None = None  # the first bin holds 0

    def add(self, values: FloatArray, weight: FloatArray | None = None) -> None:
        """Add values in order."""
        w = shared_ones(len(values)) if weight is None else weight
        if self._bins is None:
            self._values = np.concatenate((self._values, values))
            self._weight = np.concatenate((self._weight, w))
            if len(self._values) <= EXACT_ROWS:
                return
            self._bins = np.zeros(1 + BIN_COUNT)
            values, w = self._values, self._weight
            self._values, self._weight = self._values[:0], self._weight[:0]
        size = np.log(np.clip(values, MIN_VALUE, MAX_VALUE))
        index = np.floor(size / LOG_BIN_RATIO).astype(np.int64) - FIRST_BIN
        np.add.at(self._bins, np.where(values > 0.0, 1 + np.clip(index, 0, BIN_COUNT - 1), 0), w)

    def merge(self, other: QuantileSketch) -> None:
        """Add the values of another stream."""
        if other._bins is None:
            self.add(other._values, other._weight)
            return
        if self._bins is None:
            values, weight = self._values, self._weight
            self._values, self._weight = values[:0], weight[:0]
            self._bins = np.zeros(1 + BIN_COUNT)
            self.add(values, weight)
        self._bins += other._bins

    def quantile(self, share: float) -> Estimate | None:
        """Return a quantile; between two values, if the share lies between them, their mean."""
        if self._bins is None:
            order = np.argsort(self._values, kind="stable")
            values, weight = self._values[order], self._weight[order]
        else:
            middles = (np.arange(BIN_COUNT) + FIRST_BIN + 0.5) * LOG_BIN_RATIO
            values = np.concatenate(([0.0], np.exp(middles) / math.cosh(0.5 * LOG_BIN_RATIO)))
            weight = self._bins
        total = np.cumsum(weight)
        if not len(total) or total[-1] <= 0.0:
            return None
        level = share * total[-1]
        low = int(np.searchsorted(total, level, side="left"))
        high = min(int(np.searchsorted(total, level, side="right")), len(values) - 1)
        value = 0.5 * float(values[low] + values[high])
        return Estimate(value, 0.0 if self._bins is None else RELATIVE_ERROR * value)

    def to_arrays(self) -> dict[str, FloatArray]:
        """Return the whole state; `from_arrays` restores it."""
        bins = np.zeros(0) if self._bins is None else self._bins
        used = np.flatnonzero(bins)
        return {
            "values": self._values,
            "weight": self._weight,
            "binned": np.array([float(self._bins is not None)]),
            "bins": np.stack((used.astype(np.float64), bins[used])),
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, FloatArray]) -> Self:
        """Restore the state; raise ValueError if it is damaged."""
        found = cls()
        n = len(arrays["values"])
        found._values = restore_floats(arrays["values"], (n,))
        found._weight = restore_floats(arrays["weight"], (n,))
        if restore_floats(arrays["binned"], (1,))[0]:
            index, counts = restore_floats(arrays["bins"], (2, np.shape(arrays["bins"])[1]))
            if np.any(index < 0) or np.any(index > BIN_COUNT):
                raise ValueError("a bin of the sketch is out of range")
            found._bins = np.zeros(1 + BIN_COUNT)
            found._bins[index.astype(np.int64)] = counts
        return found


class AbsoluteErrors:
    """MAPE, sMAPE, median absolute error and MASE of one target."""

    def __init__(self) -> None:
        self._sums = np.zeros(6)  # weight and sum of |e|, of MAPE's terms, of sMAPE's terms
        self.sketch = QuantileSketch()

    def add(self, y: FloatArray, mean: FloatArray, weight: FloatArray | None = None) -> None:
        """Add rows in order: finite true values and forecasts."""
        w = shared_ones(len(y)) if weight is None else weight
        with np.errstate(over="ignore"):
            error = np.abs(clip_terms(y - mean))
            total = np.abs(clip_terms(y)) + np.abs(clip_terms(mean))
        share = np.divide(error, np.abs(y), out=np.zeros(len(y)), where=y != 0.0)
        both = np.divide(2.0 * error, total, out=np.zeros(len(y)), where=total > 0.0)
        terms = [w, w * error, w * (y != 0.0), w * clip_terms(share), w * (total > 0.0), w * both]
        self._sums = sum_in_order(self._sums, terms)
        self.sketch.add(error, weight)

    def merge(self, other: AbsoluteErrors) -> None:
        """Add the rows of another stream."""
        self._sums = self._sums + other._sums
        self.sketch.merge(other.sketch)

    def mean_absolute_error(self) -> float | None:
        """Return the mean absolute error; None without rows."""
        return self._mean(0)

    def mape(self) -> float | None:
        """Return the mean absolute percentage error as a share; None without a y other than 0."""
        return self._mean(2)

    def smape(self) -> float | None:
        """Return the symmetric mean absolute percentage error as a share, 0 to 2."""
        return self._mean(4)

    def median(self) -> Estimate | None:
        """Return the median absolute error; None without rows."""
        return self.sketch.quantile(0.5)

    def mase(self, naive_mae: float) -> float | None:
        """Return the mean absolute error in units of that of a naive forecast."""
        mae = self.mean_absolute_error()
        return None if mae is None or not naive_mae > 0.0 else mae / naive_mae

    def _mean(self, at: int) -> float | None:
        weight, total = self._sums[at : at + 2].tolist()
        return total / weight if weight > 0.0 else None

    def to_arrays(self) -> dict[str, FloatArray]:
        """Return the whole state; `from_arrays` restores it."""
        return {"sums": self._sums, **self.sketch.to_arrays()}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, FloatArray]) -> Self:
        """Restore the state; raise ValueError if it is damaged."""
        found = cls()
        found._sums = restore_floats(arrays["sums"], (6,))
        found.sketch = QuantileSketch.from_arrays(arrays)
        return found


MAX_LISTED_CLASSES = 10
"""Largest number of classes whose F1 is a line of the table; JSON has all of them."""


DECISION_FLAGS = ("--threshold", "--cost-fn", "--cost-fp", "--positive")


class DecisionOptions(NamedTuple):
    """How the label of two classes is decided, and what errors cost.

    The positive class is predicted from the probability `threshold` on. Without one it is the
    threshold of least cost if a cost is given, and otherwise the more probable class is predicted.
    """

    threshold: float | None = None
    cost_fn: float | None = None  # of a row of the positive class that is predicted as the other
    cost_fp: float | None = None
    positive: str | None = None  # None: the last class in order

    @property
    def has_costs(self) -> bool:
        """Whether errors have a cost; one that is not given is 1."""
        return self.cost_fn is not None or self.cost_fp is not None

    def check(self, classes: Sequence[str]) -> None:
        """Raise UsageError if there are options and not two classes, or no such class."""
        for value, option in zip(self, DECISION_FLAGS, strict=True):
            if value is not None and len(classes) != 2:
                found = f"has {len(classes)} classes" if classes else "is a number"
                raise UsageError(f"{option} is for two classes, and the target {found}")
        if self.positive is not None and self.positive not in classes:
            known = " or ".join(f"'{clean_text(name)}'" for name in classes)
            raise UsageError(
                f"--positive: unknown class '{clean_text(self.positive)}' (choose {known})"
            )

    def find_positive(self, classes: Sequence[str]) -> int:
        """Return the index of the positive of two classes: as asked, or the last in order.

        Numbers are ordered by value and precede texts, so that it is 1 of 0 and 1, true of false
        and true, and spam of ham and spam.
        """
        if self.positive is not None:
            return classes.index(self.positive)
        return max(range(len(classes)), key=lambda at: _order_class(classes[at]), default=0)


def _order_class(name: str) -> tuple[bool, float, str]:
    """Return a key that orders numbers by value and texts after them."""
    try:
        return False, float(name), name
    except ValueError:
        return True, 0.0, name


class ClassFigures:
    """AUC, average precision, F1, MCC and the confusion matrix of classes."""

    def __init__(
        self, decision: DecisionOptions | None = None, classes: Sequence[str] = ()
    ) -> None:
        self._decision = decision or DecisionOptions()
        self._positive = self._decision.find_positive(classes)
        self._ranking = ClassRanking()
        self._confusion = ConfusionCounts()
        self._at_threshold = ConfusionCounts()

    def add(self, y: FloatArray, probability: FloatArray, weight: FloatArray | None) -> None:
        """Add rows in order: class indices (n,), NaN if unknown, and probabilities."""
        scored = ScoredClassBatch(y, probability, weight)
        used = None if weight is None else scored.weight
        self._ranking.add(scored.label, scored.p, used)
        self._confusion.add(scored.label, scored.top, used)
        limit = self._decision.threshold
        if limit is not None and scored.p.shape[1] == 2:
            chosen = scored.p[:, self._positive] >= limit
            decided = np.where(chosen, self._positive, 1 - self._positive)
            self._at_threshold.add(scored.label, decided, used)

    def values(self, names: Sequence[str]) -> dict[str, Any]:
        """Return the figures by name, those of single classes by the names of the classes."""
        ranked = {
            "auc": self._ranking.auc(self._positive),
            "average_precision": self._ranking.average_precision(self._positive),
        }
        known = self._confusion
        known.widen(len(names))
        by_class = {"f1": known.f1(), "precision": known.precision(), "recall": known.recall()}
        found: dict[str, Any] = {
            **{name: None if one is None else one.value for name, one in ranked.items()},
            "f1_macro": known.macro_f1(),
            "mcc": known.mcc(),
            **{
                name: dict(zip(names, part.tolist(), strict=False))
                for name, part in by_class.items()
            },
            "confusion": {"classes": list(names), "counts": _list_counts(known.counts)},
            "approximation": _list_bounds(ranked),
        }
        if len(names) == 2:
            found["positive_class"] = names[self._positive]
        decided = self._decide(names)
        return found if decided is None else {**found, "decision": decided}

    def _decide(self, names: Sequence[str]) -> dict[str, Any] | None:
        """Return the figures of the labels that follow from the threshold or the costs."""
        decision = self._decision
        if decision.threshold is None and not decision.has_costs:
            return None
        fn, fp = (1.0 if cost is None else cost for cost in (decision.cost_fn, decision.cost_fp))
        limit: float | None = decision.threshold
        known = self._at_threshold
        known.widen(2)
        counts = known.counts if self._positive == 1 else known.counts[::-1, ::-1]
        if limit is None and self._ranking.classes == 2:
            ranked = self._ranking.rank_rows(self._positive)
            best = ranked.best_threshold(fn, fp)
            if best is not None:
                limit = best.threshold
                above = ranked.score >= limit
                own, others = float(ranked.own[above].sum()), float(ranked.others[above].sum())
                counts = np.array(
                    [
                        [float(ranked.others.sum()) - others, others],
                        [float(ranked.own.sum()) - own, own],
                    ]
                )
        known = ConfusionCounts()
        known.counts = counts
        (tn, wrong), (missed, tp) = counts.tolist()
        total = tn + wrong + missed + tp
        found = {
            "class": names[self._positive] if len(names) > 1 else None,
            "threshold": limit,
            "accuracy": (tn + tp) / total if total else None,
            "precision": float(known.precision()[1]) if total else None,
            "recall": float(known.recall()[1]) if total else None,
            "f1": float(known.f1()[1]) if total else None,
            "mcc": known.mcc(),
            "confusion": _list_counts(counts),
        }
        if decision.has_costs:
            found["cost"] = (fn * missed + fp * wrong) / total if total else None
        return found

    def build_rows(self, values: Mapping[str, Any]) -> list[MetricRow]:
        """Build the lines of a table from `values`."""
        names = values["confusion"]["classes"]
        of = f"of {clean_text(names[self._positive])}" if len(names) == 2 else "mean of the classes"
        bounds = values["approximation"]
        rows = [
            MetricRow(
                "AUC", format_number(values["auc"]), "0.5000", _name_bound(of, bounds, "auc")
            ),
            MetricRow(
                "average precision",
                format_number(values["average_precision"]),
                "",
                _name_bound(of, bounds, "average_precision"),
            ),
            MetricRow("F1, macro", format_number(values["f1_macro"]), "", "mean of the classes"),
            MetricRow("MCC", format_number(values["mcc"]), "0", "correlation of the labels"),
        ]
        if len(names) <= MAX_LISTED_CLASSES:
            rows += [
                MetricRow(
                    f"F1 of {clean_text(name)}",
                    format_number(values["f1"][name]),
                    "",
                    f"precision {format_percent(values['precision'][name])}, "
                    f"recall {format_percent(values['recall'][name])}",
                )
                for name in names
                if name in values["f1"]
            ]
        decided = values.get("decision")
        if decided is not None:
            cost = f"cost {format_number(decided['cost'])} a row, " if "cost" in decided else ""
            rows.append(
                MetricRow(
                    "threshold",
                    format_number(decided["threshold"]),
                    "",
                    f"{clean_text(str(decided['class']))} from here on: {cost}"
                    f"accuracy {format_percent(decided['accuracy'])}, "
                    f"precision {format_percent(decided['precision'])}, "
                    f"recall {format_percent(decided['recall'])}",
                )
            )
        return rows


class NumberFigures:
    """MAPE, sMAPE, median absolute error and, for a series, MASE of one target."""

    def __init__(self, *, is_series: bool = False) -> None:
        self._errors = AbsoluteErrors()
        self._naive = AbsoluteErrors()  # of the last value
        self._is_series = is_series
        self._last = np.nan

    def add(self, y: FloatArray, mean: FloatArray, weight: FloatArray | None) -> None:
        """Add rows in order: true values and forecasts; NaN is left out."""
        known = np.isfinite(y) & np.isfinite(mean)
        self._errors.add(y[known], mean[known], None if weight is None else weight[known])
        if self._is_series and known.any():
            before = np.concatenate(([self._last], y[known][:-1]))
            kept = np.isfinite(before)
            self._naive.add(y[known][kept], before[kept])
            self._last = float(y[known][-1])

    def values(self, names: Sequence[str] = ()) -> dict[str, Any]:
        """Return the figures by name; `names` of classes are ignored."""
        median = self._errors.median()
        found: dict[str, Any] = {
            "mape": self._errors.mape(),
            "smape": self._errors.smape(),
            "median_absolute_error": None if median is None else median.value,
        }
        if self._is_series:
            naive = self._naive.mean_absolute_error()
            found["mase"] = None if naive is None else self._errors.mase(naive)
        return {**found, "approximation": _list_bounds({"median_absolute_error": median})}

    def build_rows(self, values: Mapping[str, Any]) -> list[MetricRow]:
        """Build the lines of a table from `values`."""
        bounds = values["approximation"]
        rows = [
            MetricRow(
                "median error",
                format_number(values["median_absolute_error"]),
                "",
                _name_bound("half of the errors are smaller", bounds, "median_absolute_error"),
            ),
            MetricRow("MAPE", format_percent(values["mape"]), "", "of rows other than 0"),
            MetricRow("sMAPE", format_percent(values["smape"]), "", "symmetric, 0 to 200 %"),
        ]
        if "mase" in values:
            remark = "1: as good as the last value"
            rows.append(MetricRow("MASE", format_number(values["mase"]), "", remark))
        return rows


def _list_counts(counts: FloatArray) -> list[list[float]]:
    """Return counts as whole numbers unless rows have weights."""
    whole = bool(np.all(counts == np.round(counts)))
    found: list[list[float]] = (counts.astype(np.int64) if whole else counts).tolist()
    return found


def _list_bounds(found: Mapping[str, Estimate | None]) -> dict[str, float]:
    """Return bounds of the errors of figures that are not exact."""
    return {name: one.error for name, one in found.items() if one is not None and one.error > 0.0}


def _name_bound(remark: str, bounds: Mapping[str, float], name: str) -> str:
    return f"{remark}, ±{format_number(bounds[name], 2)}" if name in bounds else remark
