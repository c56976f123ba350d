"""Describe metrics, each listed once, and format their values.

A metric with a `term` is the weighted mean of that term over rows, passed through `finish` (a
square root, for example); one with `derive` is computed from the whole score. JSON, terminal,
report and `--fail-if` all read the same list.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import numpy as np

from kbnn.array_types import FloatArray, IntArray
from kbnn.core.constants import LARGEST_TERM
from kbnn.core.kernel import exceeds_limits
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
    optional  whether tables leave it out if it has no value
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
    optional: bool = False
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
        value = known[figure.name.replace(".", "_")]
        if figure.optional and value is None:
            continue
        constant = ""
        if figure.baseline != "":
            level = figure.baseline
            constant = figure.form(known[level] if isinstance(level, str) else level)
        made.append(
            MetricRow(
                figure.label,
                figure.form(value),
                constant,
                figure.remark.format(target=target),
            )
        )
    return made
