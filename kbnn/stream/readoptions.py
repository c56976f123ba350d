"""How to read: the options of a stream."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kbnn.errors import UsageError
from kbnn.model.schema import MAX_CATEGORIES, Schema
from kbnn.stream.admission import OnError
from kbnn.stream.formats import FORMATS
from kbnn.stream.forms import Stated
from kbnn.stream.hashing import check_kinds
from kbnn.stream.infer import Roles
from kbnn.stream.shuffle import SHUFFLE_ROWS
from kbnn.stream.sources import READ_SIZE
from kbnn.task.table import TASKS


@dataclass(frozen=True)
class ReadOptions:
    """How to read; every default is the usual case."""

    format: str = "auto"
    delimiter: str | None = None
    header: bool | None = None
    columns: tuple[str, ...] | None = None  # names of those of a numpy array
    na: tuple[str, ...] = ()
    target: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    weight: str | None = None
    input_sd: bool = False
    task: str = "auto"
    max_categories: int = MAX_CATEGORIES
    categorical: tuple[str, ...] = ()
    numeric: tuple[str, ...] = ()
    hashed: tuple[tuple[str, int], ...] = ()  # columns and their buckets
    decimal: str = ""
    thousands: str = ""
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
    original: bool = False  # whether blocks carry the source's columns
    read_ahead: bool = True
    read_size: int = READ_SIZE
    block_rows: int = 4096

    @property
    def roles(self) -> Roles:
        """What is said about columns."""
        return Roles(
            self.target,
            self.features,
            self.ignore,
            self.weight,
            self.input_sd,
            self.task,
            self.max_categories,
            self.categorical,
            self.numeric,
            dict(self.hashed),
            Stated(self.decimal, self.thousands),
        )

    @property
    def chosen(self) -> frozenset[str] | None:
        """The only columns to read, where all of them are named; None: whatever is there."""
        if not self.target or not self.features or self.input_sd:
            return None
        weight = () if self.weight is None else (self.weight,)
        return frozenset([*self.target, *self.features, *self.ignore, *weight])

    def check(self) -> None:
        """Refuse values that make no sense."""
        Stated(self.decimal, self.thousands)
        check_kinds(self.categorical, self.numeric, self.hashed)
        if self.format not in FORMATS:
            known = f"{', '.join(FORMATS[:-1])} or {FORMATS[-1]}"
            raise UsageError(f"--format is {known}, not '{self.format}'")
        if self.task != "auto" and self.task not in TASKS:
            known = ", ".join(TASKS)
            raise UsageError(f"--task is auto, {known}, not '{self.task}'")
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

    def check_against(self, schema: Schema) -> None:
        """Options that contradict a schema are an error."""
        if self.target and set(self.target) != set(schema.targets):
            raise UsageError(
                f"the model predicts {_quoted(schema.targets)}, not {_quoted(self.target)}"
            )
        if self.weight is not None and self.weight != schema.weight:
            raise UsageError(f"the model was trained without the weight '{self.weight}'")
        if self.task not in ("auto", schema.task):
            raise UsageError(f"the model is a {schema.task}, not a {self.task}")


def _quoted(names: Sequence[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)
