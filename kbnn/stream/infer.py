"""Infer the schema from the first rows: kinds by what the values read as, roles by the options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from kbnn.errors import DataError, UsageError
from kbnn.model.form import USUAL, Form
from kbnn.model.schema import MAX_CATEGORIES, Column, Kind, Place, Role, Schema
from kbnn.stream.chunk import shorten
from kbnn.stream.forms import Stated, table_mark, tell_forms
from kbnn.stream.header import count, no_column
from kbnn.stream.hints import Notice, hashing, tell_column, tell_few
from kbnn.stream.kinds import MANY, TEXT, Sample, kind_of, written
from kbnn.task.table import TASKS, Choice, Seen, choose

WARMUP: Final = 32


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
    categorical: tuple[str, ...] = ()
    numeric: tuple[str, ...] = ()
    hashed: Mapping[str, int] = field(default_factory=dict)  # buckets by column
    marks: Stated = field(default_factory=Stated)

    @property
    def labels(self) -> bool:
        """Whether the stated task takes its target as labels."""
        return self.task in TASKS and TASKS[self.task].labels


def infer(names: list[str], samples: list[Sample], roles: Roles, notice: Notice) -> Schema:
    """Build the schema from the samples of all columns and tell the user what was decided."""
    found = dict(zip(names, samples, strict=True))
    targets = _targets(names, roles, notice)
    sd_of = _input_sd(names, targets, roles)
    columns: list[Column] = []
    unusable: list[str] = []
    features = frozenset(roles.features or names)
    role_of = {name: _role(name, targets, sd_of, features, roles) for name in names}
    _check_kinds(role_of, roles, names)
    used = {name: found[name] for name in names if role_of[name] != "none"}
    mark = roles.marks.decimal or _table_mark(used)
    for name in names:
        role = role_of[name]
        form = _form(name, used, roles, mark)
        kind, what = kind_of(found[name], form)
        if name in roles.hashed or name in roles.categorical or name in roles.numeric:
            kind = _stated_kind(name, found[name], role, roles)
        elif role == "none":
            kind = "ignored"
        elif role in ("weight", "input_sd"):
            kind = "number"
        elif role == "target":
            kind = _target_kind(name, kind, what, found[name], roles)
        elif kind == "ignored":
            kind, role = _unusable_feature(name, what, found[name], roles, notice)
            unusable.append(f"'{shorten(name)}' holds {what}")
        column = Column(name, kind, role, sd_of.get(name))
        column.form = form if kind == "number" else USUAL
        column.buckets = roles.hashed.get(name, 0) if role == "feature" else 0
        columns.append(column)
        tell_column(column, found[name], notice)
    _tell_forms(columns, found, roles, notice)
    if not any(column.role == "feature" for column in columns):
        why = ", ".join(unusable[:3]) or "every one is the target or ignored"
        raise DataError(f"no column is left to learn from: {why}")
    choice = _choice([c for c in columns if c.role == "target"], found, roles.task)
    if choice.notice:
        notice(choice.notice)
    if choice.task == "regression" and len(targets) == 1:
        tell_few(
            next(c for c in columns if c.role == "target"), found[targets[0]], roles.task, notice
        )
    schema = Schema(
        columns,
        choice.task,
        choice.classes,
        choice.closed,
        max_categories=roles.max_categories,
        chosen=bool(roles.features),
        decimal=roles.marks.decimal or (mark if mark == "," else ""),
        thousands=roles.marks.thousands,
    )
    schema.layout = [Place(column.name, None) for column in columns if column.role == "feature"]
    return schema


def _targets(names: list[str], roles: Roles, notice: Notice) -> list[str]:
    there = frozenset(names)
    for name in (*roles.target, *roles.features, *roles.ignore):
        if name not in there:
            raise no_column(name, names)
    if roles.weight is not None and roles.weight not in names:
        raise no_column(roles.weight, names)
    targets = list(dict.fromkeys(roles.target)) or [names[-1]]
    if not roles.target:
        notice(f"target: last column '{names[-1]}' (choose with --target)")
    for name in targets:
        for what, others in (("ignored", roles.ignore), ("a feature", roles.features)):
            if name in others:
                raise UsageError(f"column '{name}' cannot be both the target and {what}")
        if name == roles.weight:
            raise UsageError(f"column '{name}' cannot be both the target and the weight")
    return targets


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
    if name in roles.ignore:
        return "none"
    if name in sd_of:
        return "input_sd"
    return "feature" if name in features else "none"


def _unusable_feature(
    name: str, what: str, seen: Sample, roles: Roles, notice: Notice
) -> tuple[Kind, Role]:
    first = next((value for value in seen.values if value is not None), "")
    if name in roles.features:
        if what in (TEXT, MANY):
            return "category", "feature"
        raise DataError(f"column '{name}' holds {what}, which cannot be a feature")
    example = f" such as '{shorten(first)}'" if what in (TEXT, MANY) else ""
    remedy = f" ({hashing(shorten(name))})" if what == MANY else ""
    notice(f"column '{name}' is ignored: it holds {what}{example}{remedy}")
    return "ignored", "none"


def _target_kind(name: str, kind: Kind, what: str, seen: Sample, roles: Roles) -> Kind:
    if kind == "ignored" and not (what in (TEXT, MANY) and roles.labels):
        if what == "timestamps":
            first = f" such as '{shorten(seen.present[0])}'" if seen.present else ""
            raise DataError(
                f"target '{name}' holds dates or times{first}, which cannot be predicted (choose "
                "another with --target; of a time to be foretold, learn the days or hours "
                "until then)"
            )
        different = f" ({len(set(seen.values))} different values)" if what in (TEXT, MANY) else ""
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
        read = {target.form.number(value) for value in values if value != target.form.gap}
        numbers = {value for value in read if value is not None}
        seen.append(Seen(target.name, target.kind, values, numbers if None not in read else None))
    return choose(seen, stated)


def _table_mark(used: Mapping[str, Sample]) -> str:
    """The decimal mark of the table, if a column is written otherwise than usual."""
    columns = [seen.present for seen in used.values()]
    if all(USUAL.number(value) is not None for values in columns for value in values):
        return ""
    return table_mark(columns)


def _form(name: str, used: Mapping[str, Sample], roles: Roles, mark: str) -> Form:
    if name not in used:
        return USUAL
    return written(used[name], roles.marks, mark, any_sign=name in roles.numeric)


def _tell_forms(
    columns: list[Column], found: dict[str, Sample], roles: Roles, notice: Notice
) -> None:
    forms = {c.name: c.form for c in columns if c.kind == "number" and not found[c.name].typed}
    tell_forms(forms, {name: found[name].present for name in forms}, roles.marks, notice)


def _check_kinds(role_of: Mapping[str, Role], roles: Roles, names: list[str]) -> None:
    """Refuse kinds stated of columns that are not there, or have none."""
    for option, stated in (
        ("--categorical", roles.categorical),
        ("--numeric", roles.numeric),
        ("--hash", tuple(roles.hashed)),
    ):
        for name in stated:
            if name not in role_of:
                raise no_column(name, names)
            role = role_of[name]
            if role == "feature" or (role == "target" and option == "--numeric"):
                continue
            why = {
                "target": "is the target (--task classification learns classes)",
                "none": "is ignored",
            }.get(role, "is no feature")
            raise UsageError(f"{option} {name}: that column {why}")


def _stated_kind(name: str, seen: Sample, role: Role, roles: Roles) -> Kind:
    """The kind that the user stated."""
    if seen.unusable:
        what = "a number" if name in roles.numeric else "a category"
        raise DataError(f"column '{name}' holds {seen.unusable}, which cannot be {what}")
    return "number" if name in roles.numeric else "category"
