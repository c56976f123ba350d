"""Metrics: descriptions, streaming scores, and conditions on their values.

A metric with a `term` is the weighted mean of that term over rows, passed through `finish` (a
square root, for example); one with `derive` is computed from the whole score. JSON, terminal,
report and `--fail-if` all read the same list.

A `Score` adds up the terms of its target type's metrics in row order, so the result is the same,
bit for bit, however the rows are cut into batches. Sums are stored by name: a metric missing from
an older record starts empty, and its mean is over the rows since.

`PinballLoss` scores quantiles: a quantile of level p that lies g below the true value costs p g,
one that lies g above costs (1 - p) g; the true quantile has the lowest mean cost.

A check (`rmse>3`, `coverage_90<0.85`, `rmse>baseline_rmse`) names a metric of `evaluate`, a
comparison and a limit: a number, a percentage or another metric. With several targets it applies to
each of them, or to one: `yield.rmse>3`. A metric that is undefined (no row could be scored) meets
every check, so that a script never passes unchecked.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal, NamedTuple, Protocol, Self

import numpy as np

from kbnn.array_types import FloatArray, IntArray
from kbnn.core.constants import LARGEST_TERM
from kbnn.core.kernel import exceeds_limits, sum_in_order
from kbnn.errors import UsageError
from kbnn.wording import format_number


def shared_ones(n: int) -> FloatArray:
    """Return n ones as a shared read-only array."""
    return _cached_ones(1 << n.bit_length())[:n]


@lru_cache(maxsize=1)
def _cached_ones(n: int) -> FloatArray:
    made = np.ones(n)
    made.flags.writeable = False
    return made


def clip_terms(values: FloatArray) -> FloatArray:
    """Clip values to +-LARGEST_TERM; return the same array if none is beyond."""
    far = exceeds_limits(values, 0.0, LARGEST_TERM)[0]
    return np.clip(values, -LARGEST_TERM, LARGEST_TERM) if far else values


def restore_floats(values: object, shape: tuple[int, ...]) -> FloatArray:
    """Convert stored numbers to an array of this shape; ValueError if they are not that."""
    array = np.array(values, dtype=np.float64)
    if array.shape != shape or not np.isfinite(array).all():
        raise ValueError(f"expected {shape} finite numbers, found {array.shape}")
    return array


def restore_counts(values: object, shape: tuple[int, ...]) -> IntArray:
    """Convert stored counts to an array of this shape; ValueError if they are not counts."""
    counts = restore_floats(values, shape)
    if np.any(counts < 0.0) or np.any(counts > 2.0**53):
        raise ValueError("expected counts")
    return counts.astype(np.int64)


def to_float_list(values: FloatArray) -> list[float]:
    """Return a JSON list that restores the same bits: `json` writes the shortest exact decimal."""
    return [float(value) for value in values]


MetricValues = Mapping[str, Any]
"""Metrics of one target by name; a dotted name is nested: `coverage.90`."""


def identity(value: float) -> float:
    """Return the value unchanged."""
    return value


class Metric(NamedTuple):
    """One number that measures the quality of forecasts.

    name      name in JSON and checks; `coverage.90` is `90` in `coverage`, and `coverage_90`
    label     name in tables; without one the metric is not shown
    remark    short explanation; `{target}` stands for the target's name
    term      the term that each row adds, from a scored batch
    finish    converts the weighted mean of the terms to the metric
    derive    computes the metric from the whole score instead
    better    whether lower or higher values are better
    form      formats the value
    baseline  the metric of the best constant by name, or its value
    brief     whether it is in the short table after training
    curve     which line of the learning curve it is: loss, nll or coverage_90
    on_curve  converts the mean for the learning curve; the default is `finish`
    """

    name: str
    label: str = ""
    remark: str = ""
    term: Callable[[Any], FloatArray] | None = None
    finish: Callable[[float], float] = identity
    derive: Callable[[Any], float | None] | None = None
    better: Literal["lower", "higher", "neither"] = "lower"
    form: Callable[[float | None], str] = format_number
    baseline: str | float = ""
    brief: bool = False
    curve: Literal["", "loss", "nll", "coverage_90"] = ""
    on_curve: Callable[[float], float] | None = None

    def __deepcopy__(self, memo: object) -> Metric:
        return self  # it never changes


class MetricRow(NamedTuple):
    """One line of a table: metric, value of the model, value of the best constant, explanation."""

    label: str
    value: str
    constant: str
    remark: str


class MetricTable(NamedTuple):
    """The metrics of one target beside those of the best constant, named `baseline`."""

    baseline: str
    rows: list[MetricRow]


def nest_metrics(pairs: Sequence[tuple[str, float | None]]) -> dict[str, Any]:
    """Return metrics as in JSON: dotted names become objects."""
    found: dict[str, Any] = {}
    for name, value in pairs:
        outer, _, inner = name.partition(".")
        if inner:
            found.setdefault(outer, {})[inner] = value
        else:
            found[name] = value
    return found


def flatten_metrics(values: MetricValues) -> dict[str, float | None]:
    """Return metrics by the names used in checks, such as `coverage_90`; tables are left out."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            found.update({f"{name}_{key}": part for key, part in value.items()})
        else:
            found[name] = value
    return {name: value for name, value in found.items() if not isinstance(value, list | str)}


def format_metric_rows(
    figures: Sequence[Metric], values: MetricValues, target: str, *, brief: bool
) -> list[MetricRow]:
    """Format the lines of a table: the `brief` ones or all."""
    known = flatten_metrics(values)
    made = []
    for figure in figures:
        if not figure.label or (brief and not figure.brief):
            continue
        constant = ""
        if figure.baseline != "":
            level = figure.baseline
            constant = figure.form(known[level] if isinstance(level, str) else level)
        made.append(
            MetricRow(
                figure.label,
                figure.form(known[figure.name.replace(".", "_")]),
                constant,
                figure.remark.format(target=target),
            )
        )
    return made


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
            terms = [_limit_terms(term) for term in terms]
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


def _limit_terms(terms: FloatArray) -> FloatArray:
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


_CHECK_PATTERN = re.compile(r"(.+)(>=|<=|>|<)(.+)", re.DOTALL)
_COMPARISONS = {">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le}


class MetricCheck(NamedTuple):
    """One parsed check; `target` is None if it applies to every target."""

    text: str
    target: str | None
    figure: str
    comparison: str
    limit: float | str


def parse_check(text: str, figures: Sequence[str], targets: Sequence[str]) -> MetricCheck:
    """Parse a check on the given metrics and targets; raise UsageError if it is invalid."""
    match = _CHECK_PATTERN.fullmatch(text)
    if match is None:
        raise UsageError(f"--fail-if '{text}': write a check such as 'rmse>3'")
    name, comparison, limit = (part.strip() for part in match.groups())
    target, figure = _parse_metric_name(text, name, figures, targets)
    return MetricCheck(text, target, figure, comparison, _parse_limit(text, limit, figures))


def _parse_metric_name(
    text: str, name: str, figures: Sequence[str], targets: Sequence[str]
) -> tuple[str | None, str]:
    """Return the target (None: all targets) and the metric that a name refers to."""
    if _normalize_name(name) in figures:
        return None, _normalize_name(name)
    for target in targets:
        rest = name.removeprefix(f"{target}.")
        if rest != name and _normalize_name(rest) in figures:
            return target, _normalize_name(rest)
    raise UsageError(
        f"--fail-if '{text}': unknown metric '{name}' (choose from {', '.join(figures)})"
    )


def _normalize_name(name: str) -> str:
    """Return the name as checks spell it: `coverage.90` and `Coverage_90` are `coverage_90`."""
    return name.lower().replace(".", "_")


def _parse_limit(text: str, limit: str, figures: Sequence[str]) -> float | str:
    if _normalize_name(limit) in figures:
        return _normalize_name(limit)
    try:
        value = float(limit.removesuffix("%")) / (100 if limit.endswith("%") else 1)
    except ValueError:
        value = math.nan
    if math.isfinite(value):
        return value
    raise UsageError(f"--fail-if '{text}': '{limit}' is neither a number nor a metric")


def explain_met_checks(
    checks: Sequence[MetricCheck], by_target: Mapping[str, MetricValues]
) -> list[str]:
    """Return one sentence for every check that is met, per target; empty if none is."""
    found = []
    for check in checks:
        for target, figures in by_target.items():
            if check.target in (None, target):
                reason = _explain_check(check, flatten_metrics(figures))
                if reason:
                    found.append(f"{target}: {reason}" if len(by_target) > 1 else reason)
    return found


def _explain_check(check: MetricCheck, figures: Mapping[str, float | None]) -> str | None:
    value = figures[check.figure]
    named = isinstance(check.limit, str)
    limit = figures[check.limit] if isinstance(check.limit, str) else check.limit
    if value is None or limit is None:
        unknown = check.figure if value is None else check.limit
        return f"{unknown} is undefined, so '{check.text}' cannot be checked"
    if not _COMPARISONS[check.comparison](value, limit):
        return None
    against = f" ({check.limit} is {format_number(limit)})" if named else ""
    return f"{check.figure} is {format_number(value)}, so '{check.text}' is met{against}"
