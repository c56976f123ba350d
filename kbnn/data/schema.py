"""The schema: the kind and role of each column, and the columns of x made from it.

The schema is plain data, stored in the model file. It only grows: classes and categories are added
in order of appearance, and new indicator columns are appended at the right end of x, so that
indices never change. It does not depend on the file format.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final, Literal, NamedTuple

from kbnn.data.clock import CYCLES, Clock
from kbnn.data.lags import MAX_HISTORY_ROWS, Lag
from kbnn.data.number_format import PLAIN_FORM, Form
from kbnn.errors import ModelError
from kbnn.plain_values import read_dataclass
from kbnn.targets.registry import TARGET_TYPES, supports_target_count

ColumnKind = Literal["number", "boolean", "category", "time", "ignored", "undecided"]
ColumnRole = Literal["feature", "target", "weight", "input_sd", "id", "none"]

MAX_CATEGORIES = 64
MAX_CLASSES = 64
MAX_BUCKETS = 4096
MAX_LATE_COLUMNS = 64
"""Largest number of columns that may be added after the first rows."""

DEFAULT_MAX_PENDING: Final = 10_000
"""Default maximum number of pending rows."""
MAX_PENDING_LIMIT: Final = 1_000_000


@dataclass
class Column:
    """One column of the source; `of` names the feature whose standard deviation it holds."""

    name: str
    kind: ColumnKind
    role: ColumnRole
    of: str | None = None
    categories: list[str] = field(default_factory=list)
    late: bool = False  # first appeared after the first rows
    form: Form = PLAIN_FORM  # number format
    buckets: int = 0  # number of buckets for hashed labels; 0: one category per label


class Place(NamedTuple):
    """The content of one column of x: a feature, or the indicator of one of its categories."""

    column: str
    category: str | None


@dataclass
class Schema:
    """The columns in the order of the source, the target type, and the layout of x."""

    columns: list[Column]
    task: str  # see kbnn.targets.registry
    classes: list[str] = field(default_factory=list)
    closed: bool = False  # no class may be added, as for {0, 1} and booleans
    layout: list[Place] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)  # additional spellings of missing values
    max_categories: int = MAX_CATEGORIES
    chosen: bool = False  # the user named the features: no other column becomes one
    decimal: str = ""  # decimal mark, stated or detected in the first rows
    thousands: str = ""
    clock: Clock | None = None
    lags: list[Lag] = field(default_factory=list)
    changes: bool = False  # the model learns the change from the last value
    known_ahead: list[str] = field(default_factory=list)  # features known when forecasts are made
    lag_only: list[str] = field(default_factory=list)  # features used only through their lags
    wait: int = 0  # maximum number of pending rows, if there is an id

    @property
    def derived_columns(self) -> list[str]:
        """Columns of x computed from other columns: clock columns and lags."""
        made = [] if self.clock is None else list(self.clock.names)
        return made + [lag.name for lag in self.lags]

    @property
    def cycle_columns(self) -> frozenset[str]:
        """Columns of x that are sines and cosines of calendar cycles."""
        clock = self.clock
        return frozenset() if clock is None else frozenset(clock.names[: clock.unscaled_columns])

    @property
    def width(self) -> int:
        """The number of columns of x."""
        return len(self.layout)

    @property
    def targets(self) -> list[str]:
        """The names of the targets."""
        return self.get_names("target")

    @property
    def features(self) -> list[str]:
        """The names of the features."""
        return self.get_names("feature")

    @property
    def weight(self) -> str | None:
        """The name of the column of row weights."""
        return next(iter(self.get_names("weight")), None)

    @property
    def id(self) -> str | None:
        """The name of the column that matches late targets to their rows."""
        return next(iter(self.get_names("id")), None)

    @property
    def is_ordered(self) -> bool:
        """Whether rows must be processed in order, because of lags or pending labels."""
        return bool(self.lags) or self.id is not None

    def get_names(self, role: ColumnRole) -> list[str]:
        """Return the names of all columns with a role."""
        return [column.name for column in self.columns if column.role == role]

    @property
    def unknown_ahead(self) -> list[str]:
        """Features beside the clock whose values are not known when forecasts are made."""
        clock = "" if self.clock is None else self.clock.column
        return [name for name in self.features if name not in (clock, *self.known_ahead)]

    def list_used(self, use_target: bool) -> list[Column]:
        """List the columns that are read at all; targets and weights only on request."""
        unused = ("none",) if use_target else ("none", "target", "weight")
        return [column for column in self.columns if column.role not in unused]

    def get_column(self, name: str) -> Column:
        """Return the column with a name."""
        return next(column for column in self.columns if column.name == name)

    def encoded_names(self) -> list[str]:
        """Return a name for each column of x: the feature, or `feature=category`."""
        return [p.column if p.category is None else f"{p.column}={p.category}" for p in self.layout]

    def add_category(self, column: Column, category: str) -> int | None:
        """Add a category and return its column of x; None if the column has its maximum.

        The first category takes the place reserved for its feature; the others are appended. The
        layout therefore does not depend on when the kind of the column became known.
        """
        if len(column.categories) >= (column.buckets or self.max_categories):
            return None
        place = Place(column.name, category)
        at = len(self.layout)
        if column.categories:
            self.layout.append(place)
        else:
            at = self.layout.index(Place(column.name, None))
            self.layout[at] = place
        column.categories.append(category)
        return at

    @property
    def late_feature_count(self) -> int:
        """The number of features added after the first rows."""
        return sum(column.late and column.role == "feature" for column in self.columns)

    def add_late_column(self, name: str, kind: ColumnKind) -> Column:
        """Add a column that was absent from the first rows: a feature, unless it is ignored."""
        role: ColumnRole = "none" if kind == "ignored" else "feature"
        column = Column(name, kind, role, late=True)
        self.columns.append(column)
        if role == "feature":
            self.layout.append(Place(name, None))
        return column

    def to_json(self) -> dict[str, Any]:
        """Convert to plain lists, strings and numbers, for the header of the model file."""
        plain = asdict(self)
        plain["layout"] = [list(place) for place in self.layout]
        return plain

    @classmethod
    def from_json(cls, plain: dict[str, Any]) -> Schema:
        """Restore a schema from `to_json`; raise ModelError if it is damaged."""
        try:
            schema = read_dataclass(cls, plain)
        except (TypeError, ValueError) as error:
            raise ModelError(f"the model's schema is damaged ({error})") from error
        schema._check_consistency()
        return schema

    def copy(self) -> Schema:
        """Return an independent copy."""
        columns = [replace(column, categories=list(column.categories)) for column in self.columns]
        other = replace(self, columns=columns)
        for name in ("classes", "layout", "missing", "lags"):
            setattr(other, name, list(getattr(self, name)))
        return other

    def _unencoded_features(self) -> list[str]:
        """Return the features that have exactly one column of x and no categories."""
        return [
            column.name
            for column in self.columns
            if column.role == "feature" and not column.categories and column.kind != "time"
        ]

    def _has_valid_timing(self, known: dict[str, Column]) -> bool:
        """Return whether clock and lags are consistent with the columns."""
        clock = self.clock
        timed = [column.name for column in self.columns if column.kind == "time"]
        lagged = all(
            lag.column in known
            and known[lag.column].role in ("target", "feature")
            and not known[lag.column].categories
            and (1 <= lag.rows <= MAX_HISTORY_ROWS or (lag.rows == 0 and lag.seconds > 0.0))
            for lag in self.lags
        )
        features = {column.name for column in self.columns if column.role == "feature"}
        lagged = lagged and set(self.known_ahead) <= features - set(self.lag_only)
        lagged = lagged and set(self.lag_only) <= {lag.column for lag in self.lags}
        if clock is None:
            return lagged and not timed and all(lag.rows for lag in self.lags)
        sound = set(clock.cycles) <= set(CYCLES) and clock.step >= 0.0
        extra = len(clock.names) - clock.unscaled_columns
        return lagged and sound and timed == [clock.column] and extra in (0, 1)

    def _check_consistency(self) -> None:
        names = [column.name for column in self.columns]
        known = {column.name: column for column in self.columns}
        labels = {(column.name, label) for column in self.columns for label in column.categories}
        indicators = [place for place in self.layout if place.category is not None]
        bare = [place for place in self.layout if place.category is None]
        sound = (
            self.task in TARGET_TYPES
            and len(known) == len(names)
            and all(len(set(c.categories)) == len(c.categories) for c in self.columns)
            and len(set(self.classes)) == len(self.classes) <= MAX_CLASSES
            and self.max_categories >= 1
            and all(0 <= column.buckets <= MAX_BUCKETS for column in self.columns)
            and {(place.column, place.category) for place in indicators} == labels
            and len(indicators) == len(labels)
            and sorted(place.column for place in bare)
            == sorted([*self._unencoded_features(), *self.derived_columns])
            and self._has_valid_timing(known)
            and all(column.of in known for column in self.columns if column.of is not None)
            and all(column.of is not None for column in self.columns if column.role == "input_sd")
            and len(self.get_names("weight")) <= 1
            and len(self.get_names("id")) == (self.wait > 0)
            and not (self.wait and self.lags)
            and bool(self.targets)
            and supports_target_count(self.task, len(self.targets))
        )
        if not sound:
            raise ModelError("the model's schema is damaged (its parts do not fit together)")
