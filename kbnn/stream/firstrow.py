"""The schema that a first row suggests, where rows come one at a time."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from kbnn.errors import ArgumentError, DataError, UsageError
from kbnn.model.schema import Column, ColumnRole, Place, Schema
from kbnn.stream.chunk import shorten
from kbnn.stream.forms import report_number_formats
from kbnn.stream.hints import Notice
from kbnn.stream.kinds import ColumnSample, detect_column_format, infer_kind
from kbnn.stream.roles import ColumnOptions
from kbnn.stream.series import add_clock_and_lags, find_time_column
from kbnn.stream.values import is_encodable, normalize_cell, number_to_text
from kbnn.task.table import TargetSample, choose_target_type


def value_to_text(value: Any) -> str | None:
    """A value as text, None where it is missing."""
    value = normalize_cell(value)
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
    return None if math.isnan(number) else number_to_text(number)


def check_column_name(name: object) -> None:
    """Refuse what cannot be the name of a column."""
    if not isinstance(name, str):
        raise ArgumentError(f"the names of columns are texts, not {shorten(repr(name))}")
    if not is_encodable(name):
        raise UsageError(f"column {name!a}: the name holds a lone surrogate, which is no text")


def check_label(name: str, label: str) -> None:
    """Refuse what cannot be a class or a category of a column."""
    if not is_encodable(label):
        raise DataError(f"column '{name}': {label!a} holds a lone surrogate, which is no text")


def infer_row_schema(
    x: Mapping[str, Any],
    targets: Mapping[str, Any],
    options: ColumnOptions,
    notice: Notice = lambda text: None,
) -> Schema:
    """The schema that a first row suggests; the kind of a value is all there is to go by."""
    columns: list[Column] = []
    seen: list[TargetSample] = []
    for name in (*targets, *x):
        check_column_name(name)
    for name, value in targets.items():
        text = value_to_text(value)
        column, _ = infer_column(name, value, "target", options, notice)
        if _is_nested(value):
            raise DataError(f"target '{name}' holds nested values, which cannot be predicted")
        if column.kind in ("ignored", "undecided"):
            column.kind = "number" if text is None else "category"
        columns.append(column)
        number = None if text is None else column.form.parse_number(text)
        numbers = None if number is None else {number}
        seen.append(TargetSample(name, column.kind, set() if text is None else {text}, numbers))
    choice = choose_target_type(seen, options.task)
    target_columns = columns
    schema = Schema([], choice.task, list(choice.classes), choice.closed)
    schema.max_categories, schema.chosen = options.max_categories, bool(options.features)
    wanted = tuple(name for name in options.features or tuple(x) if name != options.id)
    usable = {
        name: [value_to_text(x.get(name))]
        for name in wanted
        if name not in options.ignore and name not in options.columns_with_kind
    }
    clock = find_time_column(usable, (), options.time_options)
    for name in wanted:
        if clock is not None and name == clock.name:
            schema.columns.append(Column(name, "time", "feature"))
        elif name not in options.ignore:
            column, what = infer_column(name, x.get(name), "feature", options, notice)
            schema.columns.append(column)
            if column.kind != "ignored" or name in options.features:
                schema.layout.append(Place(name, None))
            else:
                column.role = "none"
                notice(f"column '{shorten(name)}' is ignored: it holds {what}")
    schema.columns.extend(Column(name, "ignored", "none") for name in options.ignore)
    schema.columns.extend(target_columns)
    if options.id is not None:
        schema.columns.append(Column(options.id, "category", "id"))
        schema.wait = options.wait
    schema.decimal, schema.thousands = options.marks.decimal, options.marks.thousands
    add_clock_and_lags(schema, clock, options.time_options, notice)
    return schema


def infer_column(
    name: str, value: Any, role: ColumnRole, options: ColumnOptions, notice: Notice
) -> tuple[Column, str]:
    """A column by its first value and by what was said of it, and what it holds if of no use."""
    seen = _sample_value(value)
    form = detect_column_format(seen, options.marks, any_sign=name in options.numeric)
    kind, what = infer_kind(seen, form)
    if name in options.numeric:
        kind = "number"
    elif name in options.categorical or name in options.hashed:
        kind = "category"
    column = Column(name, kind, role)
    column.buckets = options.hashed.get(name, 0) if role == "feature" else 0
    if kind == "number":
        column.form = form
        if not seen.typed:
            report_number_formats({name: form}, {name: seen.present_values}, options.marks, notice)
    return column, what


def _sample_value(value: Any) -> ColumnSample:
    unusable = "nested values" if _is_nested(value) else None
    return ColumnSample([value_to_text(value)], unusable, not isinstance(value, str))


def _is_nested(value: Any) -> bool:
    return isinstance(value, Mapping | Sequence) and not isinstance(value, str)
