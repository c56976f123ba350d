"""Infer the schema from the first rows: kinds by what the values read as, roles by the options."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import pyarrow as pa

from kbnn.errors import DataError, UsageError
from kbnn.model.schema import MAX_CATEGORIES, Column, Kind, Place, Role, Schema
from kbnn.stream.chunk import shorten
from kbnn.stream.header import count, is_number, no_column
from kbnn.stream.series import Asked, Found, add_time, find_clock, holds_time
from kbnn.stream.times import is_point, written
from kbnn.stream.values import MAX_LABEL, is_temporal, is_usable, looks_like_time, texts
from kbnn.task.table import TASKS, Choice, Seen, choose

WARMUP: Final = 32
_ENOUGH: Final = 20  # values needed before "nearly all differ" means anything

_MEASURE: Final = re.compile(
    r"(?:[-+~<>=≤≥±$€£¥₹]|EUR|USD|GBP|CHF)?\s?[-+$€£¥₹]?\d[\d.,']*\s?[%‰°$€£¥₹]?[a-zA-Zµ/²³]{0,5}"
)
_COMMA: Final = re.compile(r"[-+]?\d[\d.]*,\d+")

Notice = Callable[[str], None]


@dataclass(frozen=True)
class Roles:
    """What the user said about columns."""

    target: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    weight: str | None = None
    input_sd: bool = False
    task: str = "auto"
    max_categories: int = MAX_CATEGORIES
    about_time: Asked = field(default_factory=Asked)
    id: str | None = None
    wait: int = 0  # rows that may wait for their target, with an id

    @property
    def labels(self) -> bool:
        """Whether the stated task takes its target as labels."""
        return self.task in TASKS and TASKS[self.task].labels


class Sample(NamedTuple):
    """The first values of a column as texts (None: missing), or why it cannot be used."""

    values: list[str | None]
    unusable: str | None


def sample(arrays: Sequence[pa.Array], tokens: pa.Array) -> Sample:
    """Look at the first values of a column, whatever types they came in."""
    values: list[str | None] = []
    unusable = None
    for array in arrays:
        if is_temporal(array.type):
            unusable = "timestamps"
        elif not is_usable(array.type):
            unusable = "nested values" if pa.types.is_nested(array.type) else "binary values"
        values.extend(written(array) if is_point(array.type) else texts(array, tokens))
    return Sample(values, unusable)


def kind_of(seen: Sample) -> tuple[Kind, str]:
    """The kind of a column and, when it is ignored, what it holds instead of values.

    Three quarters numbers make a number column: then the odd text is reported by its line rather
    than quietly turning a measurement into labels.
    """
    if seen.unusable:
        return "ignored", seen.unusable
    present = [value for value in seen.values if value is not None]
    if not present:
        return "undecided", ""
    if all(value.lower() in ("true", "false") for value in present):
        return "boolean", ""
    if 4 * sum(is_number(value) for value in present) >= 3 * len(present):
        return "number", ""
    commas = sum(_COMMA.fullmatch(value) is not None for value in present)
    if 4 * commas >= 3 * len(present):
        return "ignored", "numbers with commas"
    if all(value.startswith(("{", "[")) for value in present):
        return "ignored", "nested values"
    if all(looks_like_time(value) for value in present):
        return "ignored", "timestamps"
    if 2 * sum(len(value) > MAX_LABEL for value in present) >= len(present):
        return "ignored", "free text"
    if len(present) >= _ENOUGH and 10 * len(set(present)) > 9 * len(present):
        return "ignored", "free text"
    return "category", ""


def infer(names: list[str], samples: list[Sample], roles: Roles, notice: Notice) -> Schema:
    """Build the schema from the samples of all columns and tell the user what was decided."""
    found = dict(zip(names, samples, strict=True))
    targets = _targets(names, found, roles, notice)
    sd_of = _input_sd(names, targets, roles)
    columns: list[Column] = []
    unusable: list[str] = []
    features = frozenset(roles.features or names)
    clock = _clock(found, targets, features, sd_of, roles)
    for name in names:
        role = _role(name, targets, sd_of, features, roles)
        kind, what = kind_of(found[name])
        if clock is not None and name == clock.name:
            kind, role = "time", "feature"
        elif role == "none":
            kind = "ignored"
        elif role == "id":
            kind = "category"
        elif role in ("weight", "input_sd"):
            kind = "number"
        elif role == "target":
            kind = _target_kind(name, kind, what, found[name], roles)
        elif kind == "ignored":
            kind, role = _unusable_feature(name, what, found[name], roles, notice)
            unusable.append(f"'{shorten(name)}' holds {what}")
        columns.append(Column(name, kind, role, sd_of.get(name)))
        tell_measures(columns[-1], found[name], notice)
    if not any(column.role == "feature" for column in columns):
        why = ", ".join(unusable[:3]) or "every one is the target or ignored"
        raise DataError(f"no column is left to learn from: {why}")
    choice = _choice([c for c in columns if c.role == "target"], found, roles.task)
    if choice.notice:
        notice(choice.notice)
    schema = Schema(
        columns,
        choice.task,
        choice.classes,
        choice.closed,
        max_categories=roles.max_categories,
        chosen=bool(roles.features),
        wait=roles.wait if roles.id is not None else 0,
    )
    schema.layout = [
        Place(column.name, None)
        for column in columns
        if column.role == "feature" and column.kind != "time"
    ]
    add_time(schema, clock, roles.about_time, notice)
    return schema


def _clock(
    found: dict[str, Sample],
    targets: list[str],
    features: frozenset[str],
    sd_of: dict[str, str],
    roles: Roles,
) -> Found | None:
    """The column that tells the time, if there is one."""
    named = roles.about_time.time
    if named is not None and named in (*roles.ignore, roles.weight):
        raise UsageError(f"column '{named}' cannot be the clock and left out of it")
    values = {
        name: seen.values
        for name, seen in found.items()
        if name == named
        or (name in features and name not in (*roles.ignore, *sd_of, roles.weight, roles.id))
    }
    return find_clock(values, targets, roles.about_time)


def tell_measures(column: Column, seen: Sample, notice: Notice) -> None:
    """Say so when numbers with a sign or a unit (14.5%, $3, 20 km) were taken for mere texts."""
    present = [value for value in seen.values if value is not None and len(value) <= MAX_LABEL]
    if column.kind != "category" or column.role not in ("feature", "target"):
        return
    measures = [value for value in present if _MEASURE.fullmatch(value)]
    marked = [value for value in measures if not is_number(value)]
    if marked and 2 * len(measures) > len(present):
        taken = "classes" if column.role == "target" else "categories"
        notice(
            f"column '{shorten(column.name)}' holds text such as '{shorten(marked[0])}': numbers "
            f"with a sign or unit are taken for {taken} (take off the sign or unit to have numbers)"
        )


def _targets(names: list[str], found: dict[str, Sample], roles: Roles, notice: Notice) -> list[str]:
    there = frozenset(names)
    for name in (*roles.target, *roles.features, *roles.ignore):
        if name not in there:
            raise no_column(name, names)
    for one in (roles.weight, roles.id):
        if one is not None and one not in names:
            raise no_column(one, names)
    targets = list(dict.fromkeys(roles.target)) or [_last(names, found, roles)]
    if not roles.target:
        last = "last column" if targets[0] == names[-1] else "last column but the clock,"
        notice(f"target: {last} '{targets[0]}' (choose with --target)")
    for name in targets:
        for what, others in (("ignored", roles.ignore), ("a feature", roles.features)):
            if name in others:
                raise UsageError(f"column '{name}' cannot be both the target and {what}")
        if name == roles.weight:
            raise UsageError(f"column '{name}' cannot be both the target and the weight")
        if name == roles.id:
            raise UsageError(f"column '{name}' cannot be both the target and the id")
    return targets


def _last(names: list[str], found: dict[str, Sample], roles: Roles) -> str:
    """The last column, but for a clock."""
    last = names[-1]
    clock = last == roles.about_time.time or holds_time(found[last].values)
    return names[-2] if clock and len(names) > 1 and names[-2] not in roles.ignore else last


def _input_sd(names: list[str], targets: list[str], roles: Roles) -> dict[str, str]:
    """Which columns hold the standard deviation of which others."""
    if not roles.input_sd:
        return {}
    pairs = {f"{name}_sd": name for name in names if name not in targets}
    found = {sd: name for sd, name in pairs.items() if sd in names and sd not in targets}
    if not found:
        raise UsageError("--input-sd: no column is named like another one with _sd at its end")
    return found


def _role(
    name: str,
    targets: list[str],
    sd_of: dict[str, str],
    features: frozenset[str],
    roles: Roles,
) -> Role:
    if name in targets:
        return "target"
    if name == roles.weight:
        return "weight"
    if name == roles.id:
        return "id"
    if name in roles.ignore:
        return "none"
    if name in sd_of:
        return "input_sd"
    return "feature" if name in features else "none"


def _unusable_feature(
    name: str, what: str, seen: Sample, roles: Roles, notice: Notice
) -> tuple[Kind, Role]:
    first = next((value for value in seen.values if value is not None), "")
    example = f" such as '{shorten(first)}'" if what == "free text" else ""
    if name in roles.features:
        if what == "free text":
            return "category", "feature"
        raise DataError(f"column '{name}' holds {what}, which cannot be a feature")
    notice(f"column '{name}' is ignored: it holds {what}{example}")
    return "ignored", "none"


def _target_kind(name: str, kind: Kind, what: str, seen: Sample, roles: Roles) -> Kind:
    if kind == "ignored" and not (what == "free text" and roles.labels):
        different = f" ({len(set(seen.values))} different values)" if what == "free text" else ""
        raise DataError(
            f"target '{name}' holds {what}{different}, which cannot be predicted "
            "(choose with --target)"
        )
    if kind == "undecided":
        raise DataError(
            f"target '{name}' has no value in the first {count(len(seen.values), 'row')} "
            "(choose with --target)"
        )
    return "category" if kind == "ignored" else kind


def _choice(targets: list[Column], found: dict[str, Sample], stated: str) -> Choice:
    """The task that the targets call for."""
    seen = []
    for target in targets:
        values = {value for value in found[target.name].values if value is not None}
        numbers = {float(value) for value in values} if all(map(is_number, values)) else None
        seen.append(Seen(target.name, target.kind, values, numbers))
    return choose(seen, stated)
