"""Sums taken in row order, so that the way a stream was cut into blocks leaves no trace.

`np.sum` adds in pairs and its last bits depend on where a block begins. Here s_0 = carry and
s_t = s_(t-1) + x_t, strictly one after another: adding 1,000 rows at once or one by one gives the
same bits.

Figures: each judges forecasts by one number, and each is listed once, by its task.

A figure with a `term` is the weighted mean of that term over rows, finished (a square root, say);
one with `derive` follows from others. The entry says everything that is shown of it: JSON,
terminal, report and `--fail-if` all read the same list.
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
    """n ones, not to be written to."""
    return _cached_ones(1 << n.bit_length())[:n]


@lru_cache(maxsize=1)
def _cached_ones(n: int) -> FloatArray:
    made = np.ones(n)
    made.flags.writeable = False
    return made


def clip_terms(values: FloatArray) -> FloatArray:
    """Values limited to +-LARGEST_TERM; the same array where none is beyond."""
    far = exceeds_limits(values, 0.0, LARGEST_TERM)[0]
    return np.clip(values, -LARGEST_TERM, LARGEST_TERM) if far else values


def restore_floats(values: object, shape: tuple[int, ...]) -> FloatArray:
    """Stored numbers as an array of that shape; ValueError when they are not, or not finite."""
    array = np.array(values, dtype=np.float64)
    if array.shape != shape or not np.isfinite(array).all():
        raise ValueError(f"expected {shape} finite numbers, found {array.shape}")
    return array


def restore_counts(values: object, shape: tuple[int, ...]) -> IntArray:
    """Stored counts as an array of that shape; ValueError when they are none."""
    counts = restore_floats(values, shape)
    if np.any(counts < 0.0) or np.any(counts > 2.0**53):
        raise ValueError("expected counts")
    return counts.astype(np.int64)


def to_float_list(values: FloatArray) -> list[float]:
    """A JSON list that restores the same bits: `json` writes the shortest exact decimal."""
    return [float(value) for value in values]


MetricValues = Mapping[str, Any]
"""The figures of one target by name; a dotted name is nested: `coverage.90`."""


def identity(value: float) -> float:
    """The value as it is."""
    return value


class Metric(NamedTuple):
    """One number that judges forecasts.

    name      in JSON and checks; `coverage.90` is `90` in `coverage`, and `coverage_90`
    label     in tables; without one it is in none
    remark    what it means, in a few words; `{target}` stands for the target's name
    term      what a row adds, from what its task makes of a block of forecasts and truths
    finish    makes the figure of the weighted mean of its term
    derive    makes it of the whole score instead
    better    which way is better, if either is
    form      the number as text
    baseline  the figure that the best constant has, by name, or its value
    brief     whether it stands in the short table after training
    curve     which line of the learning curve it is: loss, nll or coverage_90
    on_curve  what the curve takes of the mean; `finish` if not said
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
    """One line of a table: the figure, the model's value, the constant's, what it means."""

    label: str
    value: str
    constant: str
    remark: str


class MetricTable(NamedTuple):
    """The figures of one target beside those of the best constant, named `baseline`."""

    baseline: str
    rows: list[MetricRow]


def nest_metrics(pairs: Sequence[tuple[str, float | None]]) -> dict[str, Any]:
    """Figures as JSON has them: dotted names become objects."""
    found: dict[str, Any] = {}
    for name, value in pairs:
        outer, _, inner = name.partition(".")
        if inner:
            found.setdefault(outer, {})[inner] = value
        else:
            found[name] = value
    return found


def flatten_metrics(values: MetricValues) -> dict[str, float | None]:
    """The figures as checks name them: `coverage_90`."""
    found: dict[str, float | None] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            found.update({f"{name}_{key}": part for key, part in value.items()})
        else:
            found[name] = value
    return found


def format_metric_rows(
    figures: Sequence[Metric], values: MetricValues, target: str, *, brief: bool
) -> list[MetricRow]:
    """The lines of a table, the `brief` one or all."""
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
