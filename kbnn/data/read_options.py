"""What the user said about columns, and what of it cannot be.

How to read: the options of a stream.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields

from kbnn.data.column_types import ColumnSample
from kbnn.data.csv_records import missing_column_error
from kbnn.data.decoder import OnError, check_conflicting_kinds
from kbnn.data.formats import FORMATS
from kbnn.data.number_format import NumberMarks
from kbnn.data.row_blocks import SHUFFLE_ROWS
from kbnn.data.schema import (
    DEFAULT_MAX_PENDING,
    MAX_CATEGORIES,
    MAX_PENDING_LIMIT,
    ColumnKind,
    ColumnRole,
    Schema,
)
from kbnn.data.sources import READ_SIZE
from kbnn.data.time_series import TimeOptions
from kbnn.data.timestamps import TIME_UNITS
from kbnn.errors import DataError, UsageError
from kbnn.targets.registry import TARGET_TYPES


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


@dataclass(frozen=True)
class ReadOptions(ColumnRoles):
    """How to read; every default is the usual case."""

    format: str = "auto"
    delimiter: str | None = None
    header: bool | None = None
    columns: tuple[str, ...] | None = None  # names of those of a numpy array
    na: tuple[str, ...] = ()
    hashed: tuple[tuple[str, int], ...] = ()  # columns and their buckets
    decimal: str = ""
    thousands: str = ""
    time: str | None = None  # the column that is the clock
    time_unit: str = "auto"
    lags: str | None = None  # None: a series gets its own
    key: tuple[str, ...] = ()  # columns that say which series a row belongs to
    id: str | None = None  # the column by which late targets find their rows
    wait: int | None = None  # rows that may wait for theirs
    on_error: OnError = "stop"
    limit: int | None = None  # rows of the sources read, good or bad
    skip: int = 0  # rows not delivered at the start of the first pass, to resume
    shuffle: bool = False
    seed: int = 0
    shuffle_rows: int = SHUFFLE_ROWS
    test_split: float = 0.0  # share of the rows that is held out
    epoch: int = 0  # the number of the first pass
    epochs: int = 1  # passes in all; more than one keeps a pipe in a temporary file
    admit: bool = True  # whether the schema may grow
    use_target: bool = True  # False: targets and weights may be absent and are not read
    target_may_be_absent: bool = False  # they are read where they are there
    original: bool = False  # whether blocks carry the source's columns
    read_ahead: bool = True
    read_size: int = READ_SIZE
    block_rows: int = 16_384

    @property
    def column_options(self) -> ColumnOptions:
        """What is said about columns."""
        late = self.id is not None
        return ColumnOptions(
            **{field.name: getattr(self, field.name) for field in fields(ColumnRoles)},
            hashed=dict(self.hashed),
            marks=NumberMarks(self.decimal, self.thousands),
            time_options=TimeOptions(
                self.time, self.time_unit, self.lags, self.reordering_option, late
            ),
            id=self.id,
            wait=DEFAULT_MAX_PENDING if self.wait is None else self.wait,
            key=self.key,
        )

    @property
    def reordering_option(self) -> str:
        """The option by which rows do not follow one another, "" where they do."""
        return "--shuffle" if self.shuffle else "--test-split" if self.test_split else ""

    @property
    def only_columns(self) -> frozenset[str] | None:
        """The only columns to read, where all of them are named; None: whatever is there."""
        if not self.target or not self.features or self.input_sd:
            return None
        return self.named_columns

    @property
    def named_columns(self) -> frozenset[str]:
        """Columns that have a role because the user named them."""
        others = [name for name in (self.weight, self.time, self.id) if name is not None]
        return frozenset([*self.target, *self.features, *self.ignore, *self.key, *others])

    def check(self) -> None:
        """Refuse values that make no sense."""
        NumberMarks(self.decimal, self.thousands)
        check_conflicting_kinds(self.categorical, self.numeric, self.hashed)
        if self.format not in FORMATS:
            known = f"{', '.join(FORMATS[:-1])} or {FORMATS[-1]}"
            raise UsageError(f"--format is {known}, not '{self.format}'")
        if self.task != "auto" and self.task not in TARGET_TYPES:
            known = ", ".join(TARGET_TYPES)
            raise UsageError(f"--task is auto, {known}, not '{self.task}'")
        if self.time_unit not in TIME_UNITS:
            known = f"{', '.join(TIME_UNITS[:-1])} or {TIME_UNITS[-1]}"
            raise UsageError(f"--time-unit is {known}, not '{self.time_unit}'")
        self.column_options.time_options.check()
        self._check_late_labels()
        if self.delimiter is not None and (
            len(self.delimiter.encode()) != 1 or self.delimiter in '"\r\n'
        ):
            raise UsageError(f"--delimiter is one character, not '{self.delimiter}'")
        for name in ("skip", "epoch"):
            if (getattr(self, name) or 0) < 0:
                raise UsageError(f"{name} cannot be negative")
        if self.limit is not None and self.limit < 1:
            raise UsageError(f"--limit must be at least 1, not {self.limit}")
        if not 0.0 <= self.test_split < 1.0:
            raise UsageError(
                f"--test-split is a share of the rows below 1, not {self.test_split:g}"
            )
        if self.epochs < 1:
            raise UsageError(f"--epochs must be at least 1, not {self.epochs}")
        for name in ("read_size", "block_rows", "shuffle_rows", "max_categories"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name.replace('_', ' ')} must be at least 1")

    def _check_late_labels(self) -> None:
        """Refuse what cannot be where targets come late."""
        if self.wait is not None and not 1 <= self.wait <= MAX_PENDING_LIMIT:
            raise UsageError(
                f"--max-pending is between 1 and {MAX_PENDING_LIMIT:,}, not {self.wait}"
            )
        option = self.reordering_option or ("--epochs" if self.epochs > 1 else "")
        if self.id is not None and option:
            raise UsageError(
                f"--id and {option} contradict each other: rows come in their order, and each is "
                "learned once, when its label is there"
            )

    def check_against(self, schema: Schema) -> None:
        """Options that contradict a schema are an error."""
        if self.target and set(self.target) != set(schema.targets):
            raise UsageError(
                f"the model predicts {_quote_names(schema.targets)}, not {_quote_names(self.target)}"
            )
        if self.weight is not None and self.weight != schema.weight:
            raise UsageError(f"the model was trained without the weight '{self.weight}'")
        if self.task not in ("auto", schema.task):
            raise UsageError(f"the model is a {schema.task}, not a {self.task}")
        if self.reordering_option and (schema.lags or schema.id is not None):
            what = "an id" if schema.id is not None else "lags"
            raise UsageError(
                f"{self.reordering_option}: the model has {what}, and takes rows in their order"
            )


def _quote_names(names: Sequence[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)
