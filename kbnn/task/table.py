"""The tasks, listed once, and which of them a target calls for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Literal, NamedTuple, Protocol

import numpy as np

from kbnn.core.normal import FloatArray
from kbnn.errors import DataError, UsageError
from kbnn.task.amount import Amount
from kbnn.task.base import Described, Task
from kbnn.task.classes import Classes
from kbnn.task.count import Count
from kbnn.task.positive import Positive
from kbnn.task.real import Real
from kbnn.task.sigmoid import SigmoidClasses

TASKS: Final[dict[str, type[Task]]] = {
    task.name: task for task in (Real, Classes, Positive, Count, Amount)
}


LARGE: Final = 100.0
"""Whole numbers above 0 that are typically as large as this are told by their size, not counted:
prices in whole euros are positive numbers."""
MEDIUM: Final = 10.0
"""From here on whole numbers may be counts or amounts."""


FEWEST_NONE: Final = 2
LEAST_NONE: Final = 0.05
"""As many of the first values, and so large a share of them, are 0 where 0 may be a value of its
own."""


class Range(NamedTuple):
    """What values a kind of number has."""

    words: str
    possible: Callable[[FloatArray], FloatArray]


WIDER: Final = {Positive.name: Amount.name, Count.name: Amount.name}
"""What a kind of number that was found by evidence is given up for first."""
RANGES: Final[dict[str, Range]] = {
    kind.name: Range(kind.words, kind.possible) for kind in (Count, Positive, Amount)
}
"""Of kinds that cannot have any value."""


def ranges_beside(kind: str) -> dict[str, Range]:
    """Those of all kinds that a target may turn out to be which is taken for this one."""
    return TASKS[kind].either(RANGES, {})


def wider(kind: str, y: FloatArray) -> str:
    """What targets (n, T) are taken for that a kind found by evidence cannot have."""
    other = WIDER.get(kind, Real.name)
    if other in RANGES and not np.all(RANGES[other].possible(y[np.isfinite(y)])):
        return Real.name
    return other


class Named(Described, Protocol):
    """A schema says its task by name."""

    @property
    def task(self) -> str: ...


class Chosen(Protocol):
    """What settings say of the task."""

    @property
    def link(self) -> str: ...
    @property
    def kind(self) -> str: ...


def task_of(schema: Named, settings: Chosen) -> Task:
    """The task of a schema: numbers are of the chosen kind, class labels have the chosen link."""
    kind = TASKS[schema.task]
    if not kind.labels:
        return (kind if settings.kind == "auto" else TASKS[settings.kind])(schema)
    if settings.link != SigmoidClasses.observation:
        return kind(schema)
    if len(schema.classes) > 2:
        raise UsageError(
            f"--link sigmoid tells two classes apart, but '{schema.targets[0]}' has "
            f"{len(schema.classes)} (use --link probit)"
        )
    return SigmoidClasses(schema)


NUMBERS: Final = tuple(name for name, task in TASKS.items() if not task.labels)
"""The kinds of numbers by name."""
SAFEST: Final = next(name for name in NUMBERS if TASKS[name].safest)


def safest_of(kinds: Sequence[str]) -> str:
    """The one that takes any number, or the first where none does."""
    return SAFEST if SAFEST in kinds else kinds[0]


MARGIN: Final = 10.0
"""Nats: by less a hasty kind is not believed rather than the safest."""


def believed(kind: str, evidence: float, best: Mapping[str, float]) -> bool:
    """Whether a candidate of that kind and evidence may lead; `best` is that of every kind."""
    close = SAFEST in best and evidence <= best[SAFEST] + MARGIN
    return not (close and TASKS[kind].hasty)


def rival(kind: str, behind: Sequence[tuple[float, str]]) -> tuple[float, str] | None:
    """The nearest of other kinds by nats behind, but the safest where that is among them.

    None where there is none, and beside the safest: that is no news.
    """
    others = [one for one in behind if one[1] != kind and kind != SAFEST]
    return min([one for one in others if one[1] == SAFEST] or others, default=None)


def stated_kind(stated: str) -> str | None:
    """The kind of number that a stated task is; None where none was stated."""
    return None if stated == "auto" or TASKS[stated].labels else stated


def kinds_of(schema: Named, y: FloatArray) -> list[str]:
    """The tasks that the first targets (n, T) can be taken for, the likeliest first.

    That is a real target, but for whole numbers of several sizes with a 0 among them, and for
    amounts, among which there are several zeros.
    """
    if TASKS[schema.task].labels:
        return [Real.name]  # of no consequence
    if schema.task != Real.name or len(schema.targets) > 1:
        return [schema.task]
    y = y[np.isfinite(y)]
    kinds: list[type[Task]] = [Real]
    positive = bool(np.all(y > 0.0))
    if positive:
        kinds.append(Positive)
    size = float(np.median(y[y > 0.0])) if np.any(y > 0.0) else 0.0
    none = int(np.count_nonzero(y == 0.0))
    whole = bool(np.all((y >= 0.0) & (y == np.rint(y))))
    often = none >= max(FEWEST_NONE, LEAST_NONE * y.size) and size > 0.0
    if often and np.all(y >= 0.0) and (size >= MEDIUM or not whole):
        kinds.insert(0, Amount)
    if whole and not (size >= LARGE and (positive or Amount in kinds)):
        several = not positive and np.any(y > 1.0)
        kinds.insert(0 if several else len(kinds), Count)
    return [kind.name for kind in kinds]


class Seen(NamedTuple):
    """What the first rows show of a target column."""

    name: str
    kind: str  # number, boolean or category
    values: set[str]  # as text, the missing ones left out
    numbers: set[float] | None  # the same, where all of them are numbers


class Choice(NamedTuple):
    """A task by name, the classes known from the start, whether that is all, and why."""

    task: str
    classes: list[str]
    closed: bool = False
    notice: str = ""
    guessed: bool = False  # numbers are learned as such, which nobody said


def choose(targets: list[Seen], stated: str) -> Choice:
    """The task that the targets call for, or the one that was stated; UsageError if it cannot be.

    `stated` is "auto" or a task's name.
    """
    labelled = next((target for target in targets if target.kind == "category"), None)
    _check_values(targets, stated)
    auto = stated == "auto"
    numeric = Real.name if auto else stated
    if len(targets) > 1:
        if TASKS[numeric].labels or labelled is not None:
            name = labelled.name if labelled else targets[0].name
            raise UsageError(f"several targets need numbers, but '{name}' holds classes")
        return Choice(numeric, [])
    target = targets[0]
    binary = target.kind == "number" and target.numbers == {0.0, 1.0}
    if not auto and not TASKS[stated].labels:
        if labelled is not None:
            raise DataError(
                f"target '{target.name}' holds text such as '{min(target.values)}': --task "
                f"{stated} needs numbers (use --task classification)"
            )
        return Choice(stated, [])
    if stated == Classes.name and not binary and target.kind == "number":
        return Choice(Classes.name, [])
    if target.kind == "boolean":
        why = f"task: classification, since '{target.name}' is true or false"
        return Choice(Classes.name, ["false", "true"], True, why)
    if binary:
        why = (
            f"task: classification, since '{target.name}' is 0 or 1 "
            "(otherwise use --task regression)"
        )
        return Choice(Classes.name, ["0", "1"], True, why if auto else "")
    if target.kind == "number":
        why = f"task: regression, since '{target.name}' holds numbers"
        return Choice(Real.name, [], notice=why, guessed=True)
    why = f"task: classification, since '{target.name}' holds text"
    return Choice(Classes.name, [], notice=why if auto else "")


def _check_values(targets: list[Seen], stated: str) -> None:
    """Refuse first values that a stated kind of number cannot have."""
    if stated not in RANGES:
        return
    words, possible = RANGES[stated]
    for target in targets:
        wrong = [v for v in sorted(target.numbers or ()) if not possible(np.array([v]))[0]]
        if wrong:
            other = wider(stated, np.array(wrong))
            raise DataError(
                f"target '{target.name}' holds {wrong[0]:g}: --task {stated} is for {words} "
                f"(use --task {other})"
            )


class Target(NamedTuple):
    """A target that is known before any row: the kind of its columns, and the choice."""

    kind: Literal["number", "category"]
    choice: Choice


def of_numbers() -> Target:
    """Numbers of any size."""
    return Target("number", Choice(Real.name, []))


def of_classes(classes: Sequence[str]) -> Target:
    """One of these classes."""
    return Target("category", Choice(Classes.name, list(classes), closed=True))


def otherwise(value: float | None) -> str:
    """What to do about a value of a target of which only 0 and 1 came first; None: no number."""
    if value is None or value < 0.0:
        return "use --task regression or --on-error skip"
    kind = "count if it counts things" if value.is_integer() else "amount if 0 is none at all"
    return f"use --task {kind}, --task regression for any number, or --on-error skip"
