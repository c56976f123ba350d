"""Infer the schema from the first rows: column kinds from the values, roles from the options.

The module also chooses the target, the target type, the clock and the number formats, and reports
each choice that the user did not make.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

from kbnn.data.chunk import shorten
from kbnn.data.column_types import (
    AMBIGUOUS_DATES,
    FREE_TEXT,
    MOSTLY_UNIQUE,
    ColumnSample,
    Notice,
    detect_column_format,
    infer_kind,
    report_column,
    suggest_classification,
    suggest_hashing,
)
from kbnn.data.csv_records import format_plural, missing_column_error
from kbnn.data.number_format import PLAIN_FORM, Form, detect_decimal_mark, report_number_formats
from kbnn.data.read_options import ReadOptions, check_stated_kinds, stated_kind
from kbnn.data.schema import Column, ColumnKind, ColumnRole, Place, Schema
from kbnn.data.time_series import (
    LAGS_OFF,
    TimeColumn,
    add_clock_and_lags,
    find_time_column,
    looks_like_times,
)
from kbnn.errors import DataError, UsageError
from kbnn.targets.registry import TARGET_TYPES, TargetChoice, TargetSample, choose_target_type

INFERENCE_ROWS: Final = 32


def infer_schema(
    names: list[str],
    samples: list[ColumnSample],
    options: ReadOptions,
    notice: Notice,
    *,
    first_row: bool = False,
) -> Schema:
    """Build the schema from the samples of all columns and report what was decided.

    `first_row`: rows come one by one, so that a target without a value is a number so far, any text
    may be a class, and features may still appear.
    """
    found = dict(zip(names, samples, strict=True))
    targets = _choose_targets(names, found, options, notice)
    sd_of = _match_input_sd(names, targets, options)
    columns: list[Column] = []
    unusable: list[str] = []
    features = frozenset(options.features or names)
    role_of = {name: _assign_role(name, targets, sd_of, features, options) for name in names}
    check_stated_kinds(role_of, options, names)
    clock = _detect_time_column(found, targets, features, sd_of, options)
    time = None if clock is None else clock.name
    used = {n: found[n] for n in names if role_of[n] not in ("none", "id") and n != time}
    mark = options.marks.decimal or _detect_table_mark(used)
    for name in names:
        role = role_of[name]
        form = _detect_used_format(name, used, options, mark)
        kind, what = infer_kind(found[name], form)
        if name == time:
            kind, role = "time", "feature"
        elif name in options.columns_with_kind:
            kind = stated_kind(name, found[name], options)
        elif role == "none":
            kind = "ignored"
        elif role == "id":
            kind = "category"
        elif role in ("weight", "input_sd"):
            kind = "number"
        elif role == "target":
            kind = _check_target_kind(name, kind, what, found[name], options, first_row)
        elif kind == "ignored":
            kind, role = _handle_unusable_feature(name, what, found[name], options, notice)
            unusable.append(f"'{shorten(name)}' holds {what}")
        column = Column(name, kind, role, sd_of.get(name))
        column.form = form if kind == "number" else PLAIN_FORM
        column.buckets = options.buckets.get(name, 0) if role == "feature" else 0
        columns.append(column)
        report_column(column, found[name], notice)
    _report_column_formats(columns, found, options, notice)
    has_lags = options.time_options.lags not in (None, LAGS_OFF)
    if not (has_lags or first_row or any(column.role == "feature" for column in columns)):
        why = ", ".join(unusable[:3]) or "every column is the target or ignored"
        raise DataError(
            f"no column is left to learn from: {why}. To forecast a series from its own past, "
            "add --lags 1,2."
        )
    choice = _choose_task([c for c in columns if c.role == "target"], found, options.task)
    if choice.notice:
        notice(choice.notice)
    if choice.guessed:
        suggest_classification(
            next(c for c in columns if c.role == "target"), found[targets[0]], notice
        )
    schema = Schema(
        columns,
        choice.task,
        choice.classes,
        choice.closed,
        max_categories=options.max_categories,
        chosen=bool(options.features),
        decimal=options.marks.decimal or (mark if mark == "," else ""),
        thousands=options.marks.thousands,
        missing=list(options.na),
        wait=options.max_pending,
    )
    schema.layout = [
        Place(column.name, None)
        for column in columns
        if column.role == "feature" and column.kind != "time"
    ]
    add_clock_and_lags(schema, clock, options.time_options, notice)
    if options.key and clock is not None and len(clock.points.points) == 1 and not first_row:
        _report_unknown_steps(schema, options, notice)
    return schema


def _report_unknown_steps(schema: Schema, options: ReadOptions, notice: Notice) -> None:
    """Report that a fleet gets no default lags, because the first rows have one of each key."""
    if options.time_options.lags is None and TARGET_TYPES[schema.task].supports_differencing:
        notice(
            "no lags are learned: the first rows have one row of each key, which do not show its "
            "time step (--lags 1,2 adds lags, for forecasts with --horizon)"
        )


def _detect_time_column(
    found: dict[str, ColumnSample],
    targets: list[str],
    features: frozenset[str],
    sd_of: dict[str, str],
    options: ReadOptions,
) -> TimeColumn | None:
    """Find the time column, if there is one."""
    named = options.time_options.time
    if named is not None and named in (*options.ignore, options.weight):
        raise UsageError(f"column '{named}' cannot be both the clock and ignored or the weight")
    if named is not None and named in options.columns_with_kind:
        raise UsageError(
            f"column '{named}' cannot be both the clock and categorical, numeric or hashed"
        )
    others = (*options.ignore, *sd_of, *options.columns_with_kind, options.weight, options.id)
    rows = _select_one_series(found, options.key)
    values = {
        name: [seen.values[at] for at in rows]
        for name, seen in found.items()
        if name == named or (name in features and name not in others)
    }
    column = find_time_column(values, targets, options.time_options)
    if column is None or not found[column.name].unusable:
        return column
    # Typed timestamps are not written in any way: only dates have a layout.
    are_dates = all(each.written == "day" for each in column.points.points)
    layout = column.points.layout if are_dates else ""
    points = column.points._replace(layout=layout, zone=found[column.name].zone)
    return column._replace(points=points)


def _select_one_series(found: dict[str, ColumnSample], key: tuple[str, ...]) -> list[int]:
    """Return the positions of the rows of the most frequent key; all rows without keys."""
    count = min(len(seen.values) for seen in found.values())
    keys = [tuple(found[name].values[at] for name in key if name in found) for at in range(count)]
    if not keys:
        return []
    commonest = Counter(keys).most_common(1)[0][0]
    return [at for at, each in enumerate(keys) if each == commonest]


def _choose_targets(
    names: list[str], found: dict[str, ColumnSample], options: ReadOptions, notice: Notice
) -> list[str]:
    there = frozenset(names)
    for name in (*options.target, *options.features, *options.ignore):
        if name not in there:
            raise missing_column_error(name, names)
    for one in (options.weight, options.id):
        if one is not None and one not in names:
            raise missing_column_error(one, names)
    named = _drop_empty_columns(names, found)
    targets = list(dict.fromkeys(options.target)) or [_choose_last_column(named, found, options)]
    if not options.target:
        last = "last column" if targets[0] == named[-1] else "last column except the clock,"
        last += " that is not empty," if targets[0] == named[-1] != names[-1] else ""
        notice(f"target: {last} '{targets[0]}' (choose with --target)")
    for name in targets:
        for what, others in (("ignored", options.ignore), ("a feature", options.features)):
            if name in others:
                raise UsageError(f"column '{name}' cannot be both the target and {what}")
        if name == options.weight:
            raise UsageError(f"column '{name}' cannot be both the target and the weight")
        if name == options.id:
            raise UsageError(f"column '{name}' cannot be both the target and the id")
    return targets


def _drop_empty_columns(names: list[str], found: dict[str, ColumnSample]) -> list[str]:
    """Drop columns at the end that have neither a name nor a value."""
    end = len(names)
    while end > 1 and names[end - 1] == f"column{end}" and not found[names[end - 1]].present_values:
        end -= 1
    return names[:end]


def _choose_last_column(
    names: list[str], found: dict[str, ColumnSample], options: ReadOptions
) -> str:
    """Return the last column, or the one before it if the last is the clock."""
    last = names[-1]
    clock = last == options.time_options.time or looks_like_times(found[last].values)
    return names[-2] if clock and len(names) > 1 and names[-2] not in options.ignore else last


def _match_input_sd(names: list[str], targets: list[str], options: ReadOptions) -> dict[str, str]:
    """Match columns of standard deviations (NAME_sd) to the columns they describe."""
    if not options.input_sd:
        return {}
    pairs = {f"{name}_sd": name for name in names if name not in targets}
    found = {sd: name for sd, name in pairs.items() if sd in names and sd not in targets}
    if not found:
        raise UsageError("--input-sd: no column is named like another column with _sd appended")
    return found


def _assign_role(
    name: str,
    targets: list[str],
    sd_of: dict[str, str],
    features: frozenset[str],
    options: ReadOptions,
) -> ColumnRole:
    if name in targets:
        return "target"
    if name == options.weight:
        return "weight"
    if name == options.id:
        return "id"
    if name in options.ignore:
        return "none"
    if name in sd_of:
        return "input_sd"
    return "feature" if name in features else "none"


def _handle_unusable_feature(
    name: str, what: str, seen: ColumnSample, options: ReadOptions, notice: Notice
) -> tuple[ColumnKind, ColumnRole]:
    first = next((value for value in seen.values if value is not None), "")
    if name in options.features:
        if what in (FREE_TEXT, MOSTLY_UNIQUE):
            return "category", "feature"
        raise DataError(f"column '{name}' holds {what}, which cannot be a feature")
    example = (
        f" such as '{shorten(first)}'"
        if what in (FREE_TEXT, MOSTLY_UNIQUE, AMBIGUOUS_DATES)
        else ""
    )
    remedies = {
        MOSTLY_UNIQUE: suggest_hashing(shorten(name)),
        AMBIGUOUS_DATES: "write years with four digits",
    }
    remedy = f" ({remedies[what]})" if what in remedies else ""
    notice(f"column '{name}' is ignored: it holds {what}{example}{remedy}")
    return "ignored", "none"


def _check_target_kind(
    name: str,
    kind: ColumnKind,
    what: str,
    seen: ColumnSample,
    options: ReadOptions,
    first_row: bool,
) -> ColumnKind:
    if first_row and kind in ("ignored", "undecided") and not seen.unusable:
        return "category" if seen.present_values else "number"
    if kind == "ignored" and not (what in (FREE_TEXT, MOSTLY_UNIQUE) and options.has_label_target):
        if what == "timestamps":
            first = f" such as '{shorten(seen.present_values[0])}'" if seen.present_values else ""
            raise DataError(
                f"target '{name}' holds dates or times{first}, which cannot be predicted (choose "
                "another with --target; to predict a time, use the days or hours until then as "
                "the target)"
            )
        different = (
            f" ({len(set(seen.values))} different values)"
            if what in (FREE_TEXT, MOSTLY_UNIQUE)
            else ""
        )
        raise DataError(
            f"target '{name}' holds {what}{different}, which cannot be predicted "
            "(choose with --target)"
        )
    if kind == "undecided":
        raise DataError(
            f"target '{name}' has no value in the first {format_plural(len(seen.values), 'row')} "
            "(choose with --target)"
        )
    return "category" if kind == "ignored" else kind


def _choose_task(
    targets: list[Column], found: dict[str, ColumnSample], stated: str
) -> TargetChoice:
    """Choose the target type from the values of the targets."""
    seen = []
    for target in targets:
        values = {value for value in found[target.name].values if value is not None}
        read = {target.form.parse_number(value) for value in values if value != target.form.gap}
        numbers = {value for value in read if value is not None}
        seen.append(
            TargetSample(target.name, target.kind, values, numbers if None not in read else None)
        )
    return choose_target_type(seen, stated)


def _detect_table_mark(used: Mapping[str, ColumnSample]) -> str:
    """Detect the decimal mark of the table; "" if all numbers are in the plain format."""
    columns = [seen.present_values for seen in used.values()]
    if all(PLAIN_FORM.parse_number(value) is not None for values in columns for value in values):
        return ""
    return detect_decimal_mark(columns)


def _detect_used_format(
    name: str, used: Mapping[str, ColumnSample], options: ReadOptions, mark: str
) -> Form:
    if name not in used:
        return PLAIN_FORM
    return detect_column_format(used[name], options.marks, mark, any_sign=name in options.numeric)


def _report_column_formats(
    columns: list[Column], found: dict[str, ColumnSample], options: ReadOptions, notice: Notice
) -> None:
    forms = {c.name: c.form for c in columns if c.kind == "number" and not found[c.name].typed}
    report_number_formats(
        forms, {name: found[name].present_values for name in forms}, options.marks, notice
    )
