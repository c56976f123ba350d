"""List the target types, and choose the types that a target column allows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Literal, NamedTuple, Protocol

import numpy as np

from kbnn.array_types import BoolArray, FloatArray
from kbnn.errors import DataError, UsageError
from kbnn.targets.amount import Amount
from kbnn.targets.base import TargetSchema, TargetType
from kbnn.targets.classification import Classes, SigmoidClasses
from kbnn.targets.count import Count
from kbnn.targets.positive import Positive, Share
from kbnn.targets.regression import Real

TARGET_TYPES: Final[dict[str, type[TargetType]]] = {
    task.name: task for task in (Real, Classes, Positive, Count, Amount, Share)
}


LARGE_COUNT_MEDIAN: Final = 100.0
"""Positive whole numbers with a median from here on are sizes (prices in euros), not counts."""
MEDIUM_COUNT_MEDIAN: Final = 10.0
"""From this median on, whole numbers may be counts or amounts."""


MIN_ZERO_ROWS: Final = 2
MIN_ZERO_SHARE: Final = 0.05
"""Minimum number and share of zeros among the first values for a target to be an amount."""


class ValueRange(NamedTuple):
    """The values that a numeric target type allows."""

    words: str
    possible: Callable[[FloatArray], BoolArray]


FALLBACK_TYPES: Final = {Positive.name: Amount.name, Count.name: Amount.name}
"""Type tried first when a value contradicts a target type that was selected from the data."""
VALUE_RANGES: Final[dict[str, ValueRange]] = {
    kind.name: ValueRange(kind.value_description, kind.distribution.is_possible)
    for kind in TARGET_TYPES.values()
    if not kind.labels and kind is not Real
}
"""Ranges of the target types that do not allow every number."""


def find_value_ranges(kind: str) -> dict[str, ValueRange]:
    """Return the ranges that can apply to targets of this type; none for classes."""
    return {} if TARGET_TYPES[kind].labels else VALUE_RANGES


def widen_target_type(kind: str, y: FloatArray) -> str:
    """Choose the type for targets (n, T) that contradict a type selected from the data."""
    other = FALLBACK_TYPES.get(kind, Real.name)
    if other in VALUE_RANGES and not np.all(VALUE_RANGES[other].possible(y[np.isfinite(y)])):
        return Real.name
    return other


class NamedTargetSchema(TargetSchema, Protocol):
    """A schema that names its target type."""

    @property
    def task(self) -> str: ...


class TargetSettings(Protocol):
    """The settings that affect the target type."""

    @property
    def link(self) -> str: ...
    @property
    def kind(self) -> str: ...


def make_target_type(schema: NamedTargetSchema, settings: TargetSettings) -> TargetType:
    """Make the target type of a schema, with the selected numeric type or class link."""
    kind = TARGET_TYPES[schema.task]
    if not kind.labels:
        return (kind if settings.kind == "auto" else TARGET_TYPES[settings.kind])(schema)
    if settings.link != SigmoidClasses.observation:
        return kind(schema)
    if len(schema.classes) > 2:
        raise UsageError(
            f"--link sigmoid supports two classes, but '{schema.targets[0]}' has "
            f"{len(schema.classes)} (use --link probit)"
        )
    return SigmoidClasses(schema)


NUMERIC_TYPES: Final = tuple(name for name, task in TARGET_TYPES.items() if not task.labels)
"""Names of the numeric target types."""
DEFAULT_TYPE: Final = Real.name
"""The type that allows any number; it is assumed until the data show another type."""


def choose_default_type(kinds: Sequence[str]) -> str:
    """Return the type that allows any number, or the first type if none does."""
    return DEFAULT_TYPE if DEFAULT_TYPE in kinds else kinds[0]


LEAD_MARGIN_NATS: Final = 10.0
"""Evidence, in nats, by which the types in MARGIN_TYPES must lead the default type."""
MARGIN_TYPES: Final = (Positive.name, Amount.name)


def may_lead(kind: str, evidence: float, best: Mapping[str, float]) -> bool:
    """Return whether a candidate of this type and evidence may lead.

    `best` holds the best evidence of every type.
    """
    close = DEFAULT_TYPE in best and evidence <= best[DEFAULT_TYPE] + LEAD_MARGIN_NATS
    return not (close and kind in MARGIN_TYPES)


def find_rival_type(kind: str, behind: Sequence[tuple[float, str]]) -> tuple[float, str] | None:
    """Return the closest candidate of another type, as nats behind and type.

    The default type is preferred if it is among them. None without another type, or if `kind` is
    the default type itself.
    """
    others = [one for one in behind if one[1] != kind and kind != DEFAULT_TYPE]
    return min([one for one in others if one[1] == DEFAULT_TYPE] or others, default=None)


def requested_numeric_type(stated: str) -> str | None:
    """Return the numeric type requested by --task; None if none was."""
    return None if stated == "auto" or TARGET_TYPES[stated].labels else stated


def supports_target_count(kind: str, targets: int) -> bool:
    """Return whether this number of targets can be learned together: of classes, one."""
    return targets == 1 or not TARGET_TYPES[kind].labels


def uses_differencing(kind: str, targets: Sequence[str], last: frozenset[str]) -> bool:
    """Return whether targets are learned as differences.

    `last` holds the columns whose last value is known.
    """
    return TARGET_TYPES[kind].supports_differencing and last.issuperset(targets)


def candidate_types(schema: NamedTargetSchema, y: FloatArray) -> list[str]:
    """List the target types that the first targets (n, T) allow, the most likely first.

    The most likely type is a real target, except for whole numbers of several sizes that include 0
    (counts), and for targets with several zeros (amounts).
    """
    if TARGET_TYPES[schema.task].labels:
        return [Real.name]  # ignored for classes
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
    values: set[str]  # as text, without missing values
    numbers: set[float] | None  # the same values if all of them are numbers


class TargetChoice(NamedTuple):
    """A target type by name, the classes known from the start, and the reason for the choice."""

    task: str
    classes: list[str]
    closed: bool = False
    notice: str = ""
    guessed: bool = False  # a numeric type was inferred, not requested


def choose_target_type(targets: list[TargetSample], stated: str) -> TargetChoice:
    """Choose the target type from the columns, or check the requested one.

    `stated` is "auto" or the name of a type. Raises UsageError if the type does not fit.
    """
    labelled = next((target for target in targets if target.kind == "category"), None)
    _check_values(targets, stated)
    auto = stated == "auto"
    numeric = Real.name if auto else stated
    if len(targets) > 1:
        if TARGET_TYPES[numeric].labels or labelled is not None:
            name = labelled.name if labelled else targets[0].name
            raise UsageError(f"several targets must be numeric, but '{name}' holds classes")
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
    """Reject first values that a requested target type does not allow."""
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
    """A target declared before any row is read: its column type and its target type."""

    kind: Literal["number", "category"]
    choice: TargetChoice


def declare_numeric_target() -> DeclaredTarget:
    """Declare a target of any numbers."""
    return DeclaredTarget("number", TargetChoice(Real.name, []))


def declare_class_target(classes: Sequence[str]) -> DeclaredTarget:
    """Declare a target of these classes."""
    return DeclaredTarget("category", TargetChoice(Classes.name, list(classes), closed=True))


def suggest_task_option(value: float | None) -> str:
    """Suggest a fix for a value of a target whose first values were only 0 and 1.

    `value` is None if it is not a number.
    """
    if value is None or value < 0.0:
        return "use --task regression or --on-error skip"
    kind = "count if it counts things" if value.is_integer() else "amount if 0 means nothing"
    return f"use --task {kind}, --task regression for any number, or --on-error skip"
