"""What the user said about columns, and what of it cannot be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kbnn.errors import DataError, UsageError
from kbnn.model.schema import MAX_CATEGORIES, ColumnKind, ColumnRole
from kbnn.stream.forms import NumberMarks
from kbnn.stream.header import missing_column_error
from kbnn.stream.kinds import ColumnSample
from kbnn.stream.series import TimeOptions
from kbnn.task.table import TARGET_TYPES


@dataclass(frozen=True)
class ColumnRoles:
    """Which columns the user named, and as what."""

    target: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    weight: str | None = None
    input_sd: bool = False
    task: str = "auto"
    max_categories: int = MAX_CATEGORIES
    categorical: tuple[str, ...] = ()
    numeric: tuple[str, ...] = ()


@dataclass(frozen=True)
class ColumnOptions(ColumnRoles):
    """What the user said about columns."""

    hashed: Mapping[str, int] = field(default_factory=dict)  # buckets by column
    marks: NumberMarks = field(default_factory=NumberMarks)
    time_options: TimeOptions = field(default_factory=TimeOptions)
    id: str | None = None
    wait: int = 0  # rows that may wait for their target, with an id
    key: tuple[str, ...] = ()  # columns that say which series a row belongs to

    @property
    def has_label_target(self) -> bool:
        """Whether the stated task takes its target as labels."""
        return self.task in TARGET_TYPES and TARGET_TYPES[self.task].labels

    @property
    def columns_with_kind(self) -> frozenset[str]:
        """Columns whose kind was stated."""
        return frozenset((*self.categorical, *self.numeric, *self.hashed))


def check_stated_kinds(
    role_of: Mapping[str, ColumnRole], options: ColumnOptions, names: list[str]
) -> None:
    """Refuse kinds stated of columns that are not there, or have none."""
    for option, stated in (
        ("--categorical", options.categorical),
        ("--numeric", options.numeric),
        ("--hash", tuple(options.hashed)),
    ):
        for name in stated:
            if name not in role_of:
                raise missing_column_error(name, names)
            role = role_of[name]
            if role == "feature" or (role == "target" and option == "--numeric"):
                continue
            why = {
                "target": "is the target (--task classification learns classes)",
                "none": "is ignored",
            }.get(role, "is no feature")
            raise UsageError(f"{option} {name}: that column {why}")


def stated_kind(name: str, seen: ColumnSample, options: ColumnOptions) -> ColumnKind:
    """The kind that the user stated."""
    if seen.unusable:
        what = "a number" if name in options.numeric else "a category"
        raise DataError(f"column '{name}' holds {seen.unusable}, which cannot be {what}")
    return "number" if name in options.numeric else "category"
