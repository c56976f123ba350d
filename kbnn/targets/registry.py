"""The tasks, listed once, and which of them a target calls for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Literal, NamedTuple, Protocol

import numpy as np

from kbnn.array_types import FloatArray
from kbnn.errors import DataError, UsageError
from kbnn.targets.amount import Amount
from kbnn.targets.base import TargetSchema, TargetType
from kbnn.targets.classification import Classes, SigmoidClasses
from kbnn.targets.count import Count
from kbnn.targets.positive import Positive
from kbnn.targets.regression import Real

TARGET_TYPES: Final[dict[str, type[TargetType]]] = {
    task.name: task for task in (Real, Classes, Positive, Count, Amount)
}


LARGE_COUNT_MEDIAN: Final = 100.0
"""Whole numbers above 0 that are typically as large as this are told by their size, not counted:
prices in whole euros are positive numbers."""
MEDIUM_COUNT_MEDIAN: Final = 10.0
"""From here on whole numbers may be counts or amounts."""


MIN_ZERO_ROWS: Final = 2
MIN_ZERO_SHARE: Final = 0.05
"""As many of the first values, and so large a share of them, are 0 where 0 may be a value of its
own."""


class ValueRange(NamedTuple):
    """What values a kind of number has."""

    words: str
    possible: Callable[[FloatArray], FloatArray]


FALLBACK_TYPES: Final = {Positive.name: Amount.name, Count.name: Amount.name}
"""What a kind of number that was found by evidence is given up for first."""
VALUE_RANGES: Final[dict[str, ValueRange]] = {
    kind.name: ValueRange(kind.value_description, kind.possible)
    for kind in (Count, Positive, Amount)
}
"""Of kinds that cannot have any value."""


def find_value_ranges(kind: str) -> dict[str, ValueRange]:
    """Those of all kinds that a target may turn out to be which is taken for this one."""
    return TARGET_TYPES[kind].is_classification(VALUE_RANGES, {})


def widen_target_type(kind: str, y: FloatArray) -> str:
    """What targets (n, T) are taken for that a kind found by evidence cannot have."""
    other = FALLBACK_TYPES.get(kind, Real.name)
    if other in VALUE_RANGES and not np.all(VALUE_RANGES[other].possible(y[np.isfinite(y)])):
        return Real.name
    return other


class NamedTargetSchema(TargetSchema, Protocol):
    """A schema says its task by name."""

    @property
    def task(self) -> str: ...


class TargetSettings(Protocol):
    """What settings say of the task."""

    @property
    def link(self) -> str: ...
    @property
    def kind(self) -> str: ...


def make_target_type(schema: NamedTargetSchema, settings: TargetSettings) -> TargetType:
    """The task of a schema: numbers are of the chosen kind, class labels have the chosen link."""
    kind = TARGET_TYPES[schema.task]
    if not kind.labels:
        return (kind if settings.kind == "auto" else TARGET_TYPES[settings.kind])(schema)
    if settings.link != SigmoidClasses.observation:
        return kind(schema)
    if len(schema.classes) > 2:
        raise UsageError(
            f"--link sigmoid tells two classes apart, but '{schema.targets[0]}' has "
            f"{len(schema.classes)} (use --link probit)"
        )
    return SigmoidClasses(schema)


NUMERIC_TYPES: Final = tuple(name for name, task in TARGET_TYPES.items() if not task.labels)
"""The kinds of numbers by name."""
DEFAULT_TYPE: Final = next(name for name in NUMERIC_TYPES if TARGET_TYPES[name].is_default)


def choose_default_type(kinds: Sequence[str]) -> str:
    """The one that takes any number, or the first where none does."""
    return DEFAULT_TYPE if DEFAULT_TYPE in kinds else kinds[0]


LEAD_MARGIN_NATS: Final = 10.0
"""Nats: by less a hasty kind is not believed rather than the safest."""


def may_lead(kind: str, evidence: float, best: Mapping[str, float]) -> bool:
    """Whether a candidate of that kind and evidence may lead; `best` is that of every kind."""
    close = DEFAULT_TYPE in best and evidence <= best[DEFAULT_TYPE] + LEAD_MARGIN_NATS
    return not (close and TARGET_TYPES[kind].requires_margin)


def find_rival_type(kind: str, behind: Sequence[tuple[float, str]]) -> tuple[float, str] | None:
    """The nearest of other kinds by nats behind, but the safest where that is among them.

    None where there is none, and beside the safest: that is no news.
    """
    others = [one for one in behind if one[1] != kind and kind != DEFAULT_TYPE]
    return min([one for one in others if one[1] == DEFAULT_TYPE] or others, default=None)


def requested_numeric_type(stated: str) -> str | None:
    """The kind of number that a stated task is; None where none was stated."""
    return None if stated == "auto" or TARGET_TYPES[stated].labels else stated


def candidate_types(schema: NamedTargetSchema, y: FloatArray) -> list[str]:
    """The tasks that the first targets (n, T) can be taken for, the likeliest first.

    That is a real target, but for whole numbers of several sizes with a 0 among them, and for
    amounts, among which there are several zeros.
    """
    if TARGET_TYPES[schema.task].labels:
        return [Real.name]  # of no consequence
    if schema.task != Real.name or len(schema.targets) > 1:
        return [schema.task]
    y = y[np.isfinite(y)]
    kinds: list[type[TargetType]] = [Real]
    positive = bool(np.all(y > 0.0))
    if positive:
        kinds.append(Positive)
    size = float(np.median(y[y > 0.0])) if np.any(y > 0.0) else 0.0
    none = int(np.count_nonzero(y == 0.0))
    whole = bool(np.all((y >= 0.0) & (y == np.rint(y))))
    often = none >= max(MIN_ZERO_ROWS, MIN_ZERO_SHARE * y.size) and size > 0.0
    if often and np.all(y >= 0.0) and (size >= MEDIUM_COUNT_MEDIAN or not whole):
        kinds.insert(0, Amount)
    if whole and not (size >= LARGE_COUNT_MEDIAN and (positive or Amount in kinds)):
        several = not positive and np.any(y > 1.0)
        kinds.insert(0 if several else len(kinds), Count)
    return [kind.name for kind in kinds]


class TargetSample(NamedTuple):
    """What the first rows show of a target column."""

    name: str
    kind: str  # number, boolean or category
    values: set[str]  # as text, the missing ones left out
    numbers: set[float] | None  # the same, where all of them are numbers


class TargetChoice(NamedTuple):
    """A task by name, the classes known from the start, whether that is all, and why."""

    task: str
    classes: list[str]
    closed: bool = False
    notice: str = ""
    guessed: bool = False  # numbers are learned as such, which nobody said


def choose_target_type(targets: list[TargetSample], stated: str) -> TargetChoice:
    """The task that the targets call for, or the one that was stated; UsageError if it cannot be.

    `stated` is "auto" or a task's name.
    """
    labelled = next((target for target in targets if target.kind == "category"), None)
    _check_values(targets, stated)
    auto = stated == "auto"
    numeric = Real.name if auto else stated
    if len(targets) > 1:
        if TARGET_TYPES[numeric].labels or labelled is not None:
            name = labelled.name if labelled else targets[0].name
            raise UsageError(f"several targets need numbers, but '{name}' holds classes")
        return TargetChoice(numeric, [])
    target = targets[0]
    binary = target.kind == "number" and target.numbers == {0.0, 1.0}
    if not auto and not TARGET_TYPES[stated].labels:
        if labelled is not None:
            raise DataError(
                f"target '{target.name}' holds text such as '{min(target.values)}': --task "
                f"{stated} needs numbers (use --task classification)"
            )
        return TargetChoice(stated, [])
    if stated == Classes.name and not binary and target.kind == "number":
        return TargetChoice(Classes.name, [])
    if target.kind == "boolean":
        why = f"task: classification, since '{target.name}' is true or false"
        return TargetChoice(Classes.name, ["false", "true"], True, why)
    if binary:
        why = (
            f"task: classification, since '{target.name}' is 0 or 1 "
            "(otherwise use --task regression)"
        )
        return TargetChoice(Classes.name, ["0", "1"], True, why if auto else "")
    if target.kind == "number":
        why = f"task: regression, since '{target.name}' holds numbers"
        return TargetChoice(Real.name, [], notice=why, guessed=True)
    why = f"task: classification, since '{target.name}' holds text"
    return TargetChoice(Classes.name, [], notice=why if auto else "")


def _check_values(targets: list[TargetSample], stated: str) -> None:
    """Refuse first values that a stated kind of number cannot have."""
    if stated not in VALUE_RANGES:
        return
    words, possible = VALUE_RANGES[stated]
    for target in targets:
        wrong = [v for v in sorted(target.numbers or ()) if not possible(np.array([v]))[0]]
        if wrong:
            other = widen_target_type(stated, np.array(wrong))
            raise DataError(
                f"target '{target.name}' holds {wrong[0]:g}: --task {stated} is for {words} "
                f"(use --task {other})"
            )


class DeclaredTarget(NamedTuple):
    """A target that is known before any row: the kind of its columns, and the choice."""

    kind: Literal["number", "category"]
    choice: TargetChoice


def declare_numeric_target() -> DeclaredTarget:
    """Numbers of any size."""
    return DeclaredTarget("number", TargetChoice(Real.name, []))


def declare_class_target(classes: Sequence[str]) -> DeclaredTarget:
    """One of these classes."""
    return DeclaredTarget("category", TargetChoice(Classes.name, list(classes), closed=True))


def suggest_task_option(value: float | None) -> str:
    """What to do about a value of a target of which only 0 and 1 came first; None: no number."""
    if value is None or value < 0.0:
        return "use --task regression or --on-error skip"
    kind = "count if it counts things" if value.is_integer() else "amount if 0 is none at all"
    return f"use --task {kind}, --task regression for any number, or --on-error skip"
