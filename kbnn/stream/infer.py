"""Infer the schema from the first rows: kinds by what the values read as, roles by the options."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

from kbnn.errors import DataError, UsageError
from kbnn.model.form import USUAL, Form
from kbnn.model.schema import Column, Kind, Place, Role, Schema
from kbnn.stream.chunk import shorten
from kbnn.stream.forms import table_mark, tell_forms
from kbnn.stream.header import count, no_column
from kbnn.stream.hints import Notice, hashing, tell_column, tell_few
from kbnn.stream.kinds import MANY, SHORT, TEXT, Sample, kind_of, written
from kbnn.stream.roles import Roles, check_kinds, stated_kind
from kbnn.stream.series import OFF, Found, add_time, find_clock, holds_time
from kbnn.task.table import Choice, Seen, choose

WARMUP: Final = 32


def infer(names: list[str], samples: list[Sample], roles: Roles, notice: Notice) -> Schema:
    """Build the schema from the samples of all columns and tell the user what was decided."""
    found = dict(zip(names, samples, strict=True))
    targets = _targets(names, found, roles, notice)
    sd_of = _input_sd(names, targets, roles)
    columns: list[Column] = []
    unusable: list[str] = []
    features = frozenset(roles.features or names)
    role_of = {name: _role(name, targets, sd_of, features, roles) for name in names}
    check_kinds(role_of, roles, names)
    clock = _clock(found, targets, features, sd_of, roles)
    told = None if clock is None else clock.name
    used = {n: found[n] for n in names if role_of[n] not in ("none", "id") and n != told}
    mark = roles.marks.decimal or _table_mark(used)
    for name in names:
        role = role_of[name]
        form = _form(name, used, roles, mark)
        kind, what = kind_of(found[name], form)
        if name == told:
            kind, role = "time", "feature"
        elif name in roles.kinds:
            kind = stated_kind(name, found[name], roles)
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
        column = Column(name, kind, role, sd_of.get(name))
        column.form = form if kind == "number" else USUAL
        column.buckets = roles.hashed.get(name, 0) if role == "feature" else 0
        columns.append(column)
        tell_column(column, found[name], notice)
    _tell_forms(columns, found, roles, notice)
    has_lags = roles.about_time.lags not in (None, OFF)
    if not has_lags and not any(column.role == "feature" for column in columns):
        why = ", ".join(unusable[:3]) or "every one is the target or ignored"
        raise DataError(
            f"no column is left to learn from: {why}. To forecast a series from its own past, "
            "add --lags 1,2."
        )
    choice = _choice([c for c in columns if c.role == "target"], found, roles.task)
    if choice.notice:
        notice(choice.notice)
    if choice.guessed:
        tell_few(next(c for c in columns if c.role == "target"), found[targets[0]], notice)
    schema = Schema(
        columns,
        choice.task,
        choice.classes,
        choice.closed,
        max_categories=roles.max_categories,
        chosen=bool(roles.features),
        decimal=roles.marks.decimal or (mark if mark == "," else ""),
        thousands=roles.marks.thousands,
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
    if named is not None and named in roles.kinds:
        raise UsageError(f"column '{named}' cannot be the clock and of another kind")
    others = (*roles.ignore, *sd_of, *roles.kinds, roles.weight, roles.id)
    rows = _one_series(found, roles.key)
    values = {
        name: [seen.values[at] for at in rows]
        for name, seen in found.items()
        if name == named or (name in features and name not in others)
    }
    return find_clock(values, targets, roles.about_time)


def _one_series(found: dict[str, Sample], key: tuple[str, ...]) -> list[int]:
    """Of the first rows those of one key, the commonest; all of them where there is none."""
    count = min(len(seen.values) for seen in found.values())
    keys = [tuple(found[name].values[at] for name in key if name in found) for at in range(count)]
    if not keys:
        return []
    commonest = Counter(keys).most_common(1)[0][0]
    return [at for at, each in enumerate(keys) if each == commonest]


def _targets(names: list[str], found: dict[str, Sample], roles: Roles, notice: Notice) -> list[str]:
    there = frozenset(names)
    for name in (*roles.target, *roles.features, *roles.ignore):
        if name not in there:
            raise no_column(name, names)
    for one in (roles.weight, roles.id):
        if one is not None and one not in names:
            raise no_column(one, names)
    named = _named(names, found)
    targets = list(dict.fromkeys(roles.target)) or [_last(named, found, roles)]
    if not roles.target:
        last = "last column" if targets[0] == named[-1] else "last column but the clock,"
        last += " that is not empty," if targets[0] == named[-1] != names[-1] else ""
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


def _named(names: list[str], found: dict[str, Sample]) -> list[str]:
    """The columns without those at the end that have neither a name nor a value."""
    end = len(names)
    while end > 1 and names[end - 1] == f"column{end}" and not found[names[end - 1]].present:
        end -= 1
    return names[:end]


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
    if name in roles.features:
        if what in (TEXT, MANY):
            return "category", "feature"
        raise DataError(f"column '{name}' holds {what}, which cannot be a feature")
    example = f" such as '{shorten(first)}'" if what in (TEXT, MANY, SHORT) else ""
    remedies = {MANY: hashing(shorten(name)), SHORT: "write years with four digits"}
    remedy = f" ({remedies[what]})" if what in remedies else ""
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
