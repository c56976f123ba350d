"""The options for reading a stream and for its columns, and their validation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kbnn.data.batch import SHUFFLE_ROWS
from kbnn.data.chunk import OnError
from kbnn.data.column_types import ColumnSample
from kbnn.data.csv_records import missing_column_error
from kbnn.data.formats import FORMATS
from kbnn.data.number_format import NumberMarks
from kbnn.data.schema import (
    DEFAULT_MAX_PENDING,
    MAX_BUCKETS,
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


def check_stated_kinds(
    role_of: Mapping[str, ColumnRole], options: ReadOptions, names: list[str]
) -> None:
    """Raise an error if a kind is stated for a column that is missing or not a feature."""
    for option, stated in (
        ("--categorical", options.categorical),
        ("--numeric", options.numeric),
        ("--hash", tuple(options.buckets)),
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
            }.get(role, "is not a feature")
            raise UsageError(f"{option} {name}: that column {why}")


def stated_kind(name: str, seen: ColumnSample, options: ReadOptions) -> ColumnKind:
    """Return the kind that the user stated; raise DataError if the values cannot have it."""
    if seen.unusable:
        what = "a number" if name in options.numeric else "a category"
        raise DataError(f"column '{name}' holds {seen.unusable}, which cannot be {what}")
    return "number" if name in options.numeric else "category"


@dataclass(frozen=True)
class ReadOptions:
    """All options for reading a stream."""

    target: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    weight: str | None = None
    input_sd: bool = False
    task: str = "auto"
    max_categories: int = MAX_CATEGORIES
    categorical: tuple[str, ...] = ()
    numeric: tuple[str, ...] = ()
    format: str = "auto"
    delimiter: str | None = None
    header: bool | None = None
    columns: tuple[str, ...] | None = None  # column names of a numpy array
    na: tuple[str, ...] = ()
    hashed: tuple[tuple[str, int], ...] = ()  # columns and their buckets
    decimal: str = ""
    thousands: str = ""
    time: str | None = None  # the time column
    time_unit: str = "auto"
    lags: str | None = None  # None: default lags if there is a regular clock
    tries_lags: bool = False  # whether lags of other columns of a series are tried
    known_ahead: tuple[str, ...] = ()  # (): other inputs are used, but not known ahead
    holidays: str = ""  # country whose public holidays are an input
    key: tuple[str, ...] = ()  # columns that identify the series of a row
    id: str | None = None  # the column that matches late targets to their rows
    wait: int | None = None  # maximum number of pending rows
    on_error: OnError = "stop"
    limit: int | None = None  # rows to read from the sources, good or bad
    skip: int = 0  # rows to skip at the start of the first pass, to resume
    shuffle: bool = False
    seed: int = 0
    shuffle_rows: int = SHUFFLE_ROWS
    test_split: float = 0.0  # fraction of the rows that is held out
    epoch: int = 0  # the number of the first pass
    epochs: int = 1  # total passes; more than one keeps a pipe in a temporary file
    admit: bool = True  # whether the schema may grow
    use_target: bool = True  # False: targets and weights may be absent and are not read
    target_may_be_absent: bool = False  # targets and weights are read if present
    original: bool = False  # whether batches carry the columns as read
    read_ahead: bool = True
    read_size: int = READ_SIZE
    block_rows: int = 16_384

    @property
    def buckets(self) -> dict[str, int]:
        """The hashed columns and their numbers of buckets."""
        return dict(self.hashed)

    @property
    def columns_with_kind(self) -> frozenset[str]:
        """The columns whose kind the user stated."""
        return frozenset((*self.categorical, *self.numeric, *self.buckets))

    @property
    def has_label_target(self) -> bool:
        """Whether the stated target type has labels as targets."""
        return self.task in TARGET_TYPES and TARGET_TYPES[self.task].labels

    @property
    def marks(self) -> NumberMarks:
        """The decimal and thousands marks; raise UsageError if they are invalid."""
        return NumberMarks(self.decimal, self.thousands)

    @property
    def time_options(self) -> TimeOptions:
        """The options about time."""
        late = self.id is not None
        return TimeOptions(
            self.time,
            self.time_unit,
            self.lags,
            self.reordering_option,
            late,
            self.known_ahead,
            self.holidays,
            self.tries_lags,
        )

    @property
    def max_pending(self) -> int:
        """The maximum number of pending rows, 0 without an id."""
        if self.id is None:
            return 0
        return DEFAULT_MAX_PENDING if self.wait is None else self.wait

    @property
    def reordering_option(self) -> str:
        """The option that changes the order of rows, "" if there is none."""
        return "--shuffle" if self.shuffle else "--test-split" if self.test_split else ""

    @property
    def only_columns(self) -> frozenset[str] | None:
        """The only columns to read, if target and features are named; None: all columns."""
        if not self.target or not self.features or self.input_sd:
            return None
        return self.named_columns

    @property
    def named_columns(self) -> frozenset[str]:
        """The columns to which the user gave a role."""
        others = [name for name in (self.weight, self.time, self.id) if name is not None]
        return frozenset([*self.target, *self.features, *self.ignore, *self.key, *others])

    def check(self) -> None:
        """Raise UsageError if an option is invalid."""
        _ = self.marks
        _check_conflicting_kinds(self.categorical, self.numeric, self.hashed)
        if self.format not in FORMATS:
            known = f"{', '.join(FORMATS[:-1])} or {FORMATS[-1]}"
            raise UsageError(f"--format is {known}, not '{self.format}'")
        if self.time_unit not in TIME_UNITS:
            known = f"{', '.join(TIME_UNITS[:-1])} or {TIME_UNITS[-1]}"
            raise UsageError(f"--time-unit is {known}, not '{self.time_unit}'")
        self.time_options.check()
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
                f"--test-split must be at least 0 and below 1, not {self.test_split:g}"
            )
        if self.epochs < 1:
            raise UsageError(f"--epochs must be at least 1, not {self.epochs}")
        for name in ("read_size", "block_rows", "shuffle_rows", "max_categories"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name.replace('_', ' ')} must be at least 1")

    def _check_late_labels(self) -> None:
        """Raise UsageError if options conflict with late labels."""
        if self.wait is not None and not 1 <= self.wait <= MAX_PENDING_LIMIT:
            raise UsageError(
                f"--max-pending is between 1 and {MAX_PENDING_LIMIT:,}, not {self.wait}"
            )
        option = self.reordering_option or ("--epochs" if self.epochs > 1 else "")
        if self.id is not None and option:
            raise UsageError(
                f"--id and {option} contradict each other: rows are processed in order, and each "
                "is learned once, when its label arrives"
            )

    def check_against(self, schema: Schema) -> None:
        """Raise UsageError if the options contradict the schema of a model."""
        if self.target and set(self.target) != set(schema.targets):
            raise UsageError(
                f"the model predicts {_quote_names(schema.targets)}, "
                f"not {_quote_names(self.target)}"
            )
        if self.weight is not None and self.weight != schema.weight:
            raise UsageError(f"the model was trained without the weight '{self.weight}'")
        if self.task not in ("auto", schema.task):
            raise UsageError(f"the model is a {schema.task}, not a {self.task}")
        if self.reordering_option and (schema.lags or schema.id is not None):
            what = "an id" if schema.id is not None else "lags"
            raise UsageError(
                f"{self.reordering_option}: the model has {what} and needs rows in order"
            )


def _quote_names(names: Sequence[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)


def parse_hash_options(texts: Sequence[str]) -> tuple[tuple[str, int], ...]:
    """Parse texts such as `device:32` to pairs of a column and its number of buckets."""
    pairs = []
    for text in texts:
        name, _, number = text.rpartition(":")
        if not name or not number.isdecimal() or not 2 <= int(number) <= MAX_BUCKETS:
            raise UsageError(
                "--hash takes COLUMN:BUCKETS such as device:32, with 2 to "
                f"{MAX_BUCKETS:,} buckets, not '{text}'"
            )
        pairs.append((name, int(number)))
    return tuple(pairs)


def _check_conflicting_kinds(
    categorical: Sequence[str], numeric: Sequence[str], hashed: Sequence[tuple[str, int]]
) -> None:
    """Raise UsageError if two options state the kind of one column."""
    stated: dict[str, str] = {}
    for option, names in (
        ("--categorical", categorical),
        ("--numeric", numeric),
        ("--hash", [name for name, _ in hashed]),
    ):
        for name in dict.fromkeys(names):
            if name in stated:
                raise UsageError(f"column '{name}' cannot be both {stated[name]} and {option}")
            stated[name] = option
