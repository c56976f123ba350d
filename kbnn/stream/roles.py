"""What the user said about columns, and what of it cannot be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kbnn.errors import DataError, UsageError
from kbnn.model.schema import MAX_CATEGORIES, Kind, Role
from kbnn.stream.forms import Stated
from kbnn.stream.header import no_column
from kbnn.stream.kinds import Sample
from kbnn.stream.series import Asked
from kbnn.task.table import TASKS


@dataclass(frozen=True)
class Named:
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
class Roles(Named):
    """What the user said about columns."""

    hashed: Mapping[str, int] = field(default_factory=dict)  # buckets by column
    marks: Stated = field(default_factory=Stated)
    about_time: Asked = field(default_factory=Asked)
    id: str | None = None
    wait: int = 0  # rows that may wait for their target, with an id
    key: tuple[str, ...] = ()  # columns that say which series a row belongs to

    @property
    def labels(self) -> bool:
        """Whether the stated task takes its target as labels."""
        return self.task in TASKS and TASKS[self.task].labels

    @property
    def kinds(self) -> frozenset[str]:
        """Columns whose kind was stated."""
        return frozenset((*self.categorical, *self.numeric, *self.hashed))


def check_kinds(role_of: Mapping[str, Role], roles: Roles, names: list[str]) -> None:
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


def stated_kind(name: str, seen: Sample, roles: Roles) -> Kind:
    """The kind that the user stated."""
    if seen.unusable:
        what = "a number" if name in roles.numeric else "a category"
        raise DataError(f"column '{name}' holds {seen.unusable}, which cannot be {what}")
    return "number" if name in roles.numeric else "category"
