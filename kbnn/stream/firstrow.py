"""The schema that a first row suggests, where rows come one at a time."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from kbnn.errors import ArgumentError, DataError, UsageError
from kbnn.model.schema import Column, Place, Role, Schema
from kbnn.stream.chunk import shorten
from kbnn.stream.forms import tell_forms
from kbnn.stream.hints import Notice
from kbnn.stream.kinds import Sample, kind_of, written
from kbnn.stream.roles import Roles
from kbnn.stream.series import add_time, find_clock
from kbnn.stream.values import cell, is_writable, number_text
from kbnn.task.table import Seen, choose


def value_text(value: Any) -> str | None:
    """A value as text, None where it is missing."""
    value = cell(value)
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return value.strip()
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return str(value)
    return None if math.isnan(number) else number_text(number)


def check_name(name: object) -> None:
    """Refuse what cannot be the name of a column."""
    if not isinstance(name, str):
        raise ArgumentError(f"the names of columns are texts, not {shorten(repr(name))}")
    if not is_writable(name):
        raise UsageError(f"column {name!a}: the name holds a lone surrogate, which is no text")


def check_label(name: str, label: str) -> None:
    """Refuse what cannot be a class or a category of a column."""
    if not is_writable(label):
        raise DataError(f"column '{name}': {label!a} holds a lone surrogate, which is no text")


def first_schema(
    x: Mapping[str, Any],
    targets: Mapping[str, Any],
    roles: Roles,
    notice: Notice = lambda text: None,
) -> Schema:
    """The schema that a first row suggests; the kind of a value is all there is to go by."""
    columns: list[Column] = []
    seen: list[Seen] = []
    for name in (*targets, *x):
        check_name(name)
    for name, value in targets.items():
        text = value_text(value)
        column, _ = column_of(name, value, "target", roles, notice)
        if _is_nested(value):
            raise DataError(f"target '{name}' holds nested values, which cannot be predicted")
        if column.kind in ("ignored", "undecided"):
            column.kind = "number" if text is None else "category"
        columns.append(column)
        number = None if text is None else column.form.number(text)
        numbers = None if number is None else {number}
        seen.append(Seen(name, column.kind, set() if text is None else {text}, numbers))
    choice = choose(seen, roles.task)
    target_columns = columns
    schema = Schema([], choice.task, list(choice.classes), choice.closed)
    schema.max_categories, schema.chosen = roles.max_categories, bool(roles.features)
    wanted = tuple(name for name in roles.features or tuple(x) if name != roles.id)
    usable = {
        name: [value_text(x.get(name))]
        for name in wanted
        if name not in roles.ignore and name not in roles.kinds
    }
    clock = find_clock(usable, (), roles.about_time)
    for name in wanted:
        if clock is not None and name == clock.name:
            schema.columns.append(Column(name, "time", "feature"))
        elif name not in roles.ignore:
            column, what = column_of(name, x.get(name), "feature", roles, notice)
            schema.columns.append(column)
            if column.kind != "ignored" or name in roles.features:
                schema.layout.append(Place(name, None))
            else:
                column.role = "none"
                notice(f"column '{shorten(name)}' is ignored: it holds {what}")
    schema.columns.extend(Column(name, "ignored", "none") for name in roles.ignore)
    schema.columns.extend(target_columns)
    if roles.id is not None:
        schema.columns.append(Column(roles.id, "category", "id"))
        schema.wait = roles.wait
    schema.decimal, schema.thousands = roles.marks.decimal, roles.marks.thousands
    add_time(schema, clock, roles.about_time, notice)
    return schema


def column_of(
    name: str, value: Any, role: Role, roles: Roles, notice: Notice
) -> tuple[Column, str]:
    """A column by its first value and by what was said of it, and what it holds if of no use."""
    seen = _sample(value)
    form = written(seen, roles.marks, any_sign=name in roles.numeric)
    kind, what = kind_of(seen, form)
    if name in roles.numeric:
        kind = "number"
    elif name in roles.categorical or name in roles.hashed:
        kind = "category"
    column = Column(name, kind, role)
    column.buckets = roles.hashed.get(name, 0) if role == "feature" else 0
    if kind == "number":
        column.form = form
        if not seen.typed:
            tell_forms({name: form}, {name: seen.present}, roles.marks, notice)
    return column, what


def _sample(value: Any) -> Sample:
    unusable = "nested values" if _is_nested(value) else None
    return Sample([value_text(value)], unusable, not isinstance(value, str))


def _is_nested(value: Any) -> bool:
    return isinstance(value, Mapping | Sequence) and not isinstance(value, str)
