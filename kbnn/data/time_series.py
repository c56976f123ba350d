"""Choose the clock and the lags of a stream, and fill in the lags of its rows.

A stream with a regular clock and one numeric target is a series: it gets lags of the target by
default, also with other columns beside it. Lags of these are optional: only one network of the
ensemble sees them (`Lag.optional`). If the last value is a lag, targets are learned as changes from
it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np

from kbnn.array_types import FloatArray
from kbnn.core.series_models import MODELS, SeriesState, learn_series
from kbnn.data.batch import Rows
from kbnn.data.clock import DAY_SECONDS, Clock, make_unique_name, mark_holidays
from kbnn.data.csv_records import missing_column_error
from kbnn.data.lags import (
    History,
    Lag,
    LagSpec,
    compute_lag_window,
    find_last_values,
    look_up_lags,
    parse_lags,
)
from kbnn.data.schema import Column, Place, Schema
from kbnn.data.timestamps import (
    TimeSample,
    build_clock,
    describe_clock,
    detect_times,
    has_repeated_times,
    require_times,
)
from kbnn.errors import UsageError
from kbnn.targets.base import TargetType
from kbnn.targets.prediction import Forecast, shift_forecast
from kbnn.targets.registry import TARGET_TYPES, uses_differencing


class LaggedBatch(NamedTuple):
    """Rows with lags, and the base (n, T) from which targets are changes; None: targets as is."""

    rows: Rows
    base: FloatArray | None

    @property
    def training_rows(self) -> Rows:
        """The rows as learned, with targets as changes from the base."""
        return self.rows if self.base is None else self.rows._replace(y=self.rows.y - self.base)

    def restore_level(self, said: Forecast) -> Forecast:
        """Convert a prediction of changes to a prediction of the targets."""
        return said if self.base is None else shift_forecast(said, self.base)


class Timeline:
    """Fills in the lags of a schema from a `History` of earlier rows."""

    def __init__(self, schema: Schema) -> None:
        self.lags = schema.lags
        self.changes = schema.changes
        self.columns = list(dict.fromkeys(lag.column for lag in schema.lags))
        at = {place: index for index, place in enumerate(schema.layout)}
        self.places = [at[Place(lag.name, None)] for lag in schema.lags]
        self._targets = schema.targets
        self.input_places = [at.get(Place(name, None), -1) for name in self.columns]
        self.hidden_places = [at[Place(name, None)] for name in schema.lag_only]
        step = 0.0 if schema.clock is None else schema.clock.step
        self.lag_window = compute_lag_window(self.lags, step)
        season = 0 if schema.clock is None else schema.clock.season_steps
        self.season = season if season < self.lag_window.rows else 0
        """Rows per season; 0 without one, or if it is longer than the history."""
        is_number = len(self._targets) == 1 and not schema.classes
        self.has_series_models = is_number and self._targets[0] in self.columns
        """Whether statistical models learn the target: a number that has lags."""

    def make_history(self) -> History:
        """Return an empty history."""
        series = SeriesState.create(self.season) if self.has_series_models else None
        return History(len(self.columns), len(self._targets), series)

    def make_history_like(self, history: History) -> History:
        """Return a history without rows that keeps the ranges of another."""
        empty = self.make_history()
        empty.low, empty.high = history.low, history.high
        return empty.copy()

    def add_lags(self, history: History, rows: Rows) -> LaggedBatch:
        """Fill in the lags of rows and append the rows to the history, if there are lags."""
        if not self.lags:
            return LaggedBatch(rows, None)
        placed = self.look_up_lags(history, rows)
        self.append_rows(history, rows)
        return placed

    def append_rows(self, history: History, rows: Rows) -> None:
        """Append rows to the history."""
        history.append_rows(
            _get_times(rows), self._select_lagged_values(rows), rows.y, self.lag_window
        )

    def look_up_lags(self, history: History, rows: Rows) -> LaggedBatch:
        """Fill in the lags of rows; the history is not changed."""
        values, time = self._select_lagged_values(rows), _get_times(rows)
        found = look_up_lags(
            self.lags, self.columns, history, time, values, rows.y, self.lag_window
        )
        x = rows.x.copy()
        x[:, self.places] = found.lags
        x[:, self.hidden_places] = np.nan
        return LaggedBatch(rows._replace(x=x), found.base if self.changes else None)

    def forecast_rows(self, history: History, rows: Rows, steps: int) -> FloatArray:
        """Forecast from before each row with the series models (n, 2, steps), NaN without them.

        Each row sees the rows before it; the history is not changed.
        """
        if history.series is None:
            return np.full((len(rows.y), MODELS, steps), np.nan)
        return learn_series(history.series, rows.y[:, 0], steps)[1]

    def look_up_naive(
        self, history: History, rows: Rows, paths: FloatArray | None = None
    ) -> FloatArray:
        """Return simple forecasts (n, targets, 5); NaN where unknown.

        They are the last value, the value a season ago, and that value moved by the change since
        then, the last two only of targets that have lags; and those of the series models.
        """
        naive = np.full((*rows.y.shape, 5), np.nan)
        if paths is None:
            paths = self.forecast_rows(history, rows, 1)
        naive[:, 0, 3:] = paths[:, :, 0]
        naive[..., 0] = find_last_values(history.last, rows.y)
        lagged = [name for name in self._targets if self.season and name in self.columns]
        for name in lagged:
            j, known = self._targets.index(name), history.values[:, self.columns.index(name)]
            ahead = np.full(self.season + 1, np.nan)
            every = np.concatenate((ahead, known, rows.y[:, j]))
            at = np.arange(len(known), len(known) + len(rows.y))
            naive[:, j, 1] = every[at + 1]
            naive[:, j, 2] = every[at + 1] + naive[:, j, 0] - every[at]
        return naive

    def _select_lagged_values(self, rows: Rows) -> FloatArray:
        """Return the values (n, columns) of the columns that have lags."""
        out = np.empty((len(rows.y), len(self.columns)))
        for k, (name, at) in enumerate(zip(self.columns, self.input_places, strict=True)):
            out[:, k] = rows.y[:, self._targets.index(name)] if at < 0 else rows.x[:, at]
        return out


def _get_times(rows: Rows) -> FloatArray:
    return np.full((len(rows.y), 2), np.nan) if rows.time is None else rows.time


LAGS_OFF: Final = "off"
DEFAULT_LAG_ROWS: Final = (1, 2, 3)
"""Default lags of a series, in addition to those of its season."""
NONE_KNOWN: Final = "none"
"""Value of --known-ahead if no column is known ahead."""
MAX_NAMES_SHOWN: Final = 5
OPTIONAL_LAG_ROWS: Final = (1, 2)
"""Lags of other columns that are tried. Where drivers act after 2 or 3 rows, lag 2 lowered the log
loss of made tables by 0.8 nats; elsewhere it cost up to 0.01, and a lag of the season 0.03."""
MAX_OPTIONAL_LAGS: Final = 24
"""Lags of other columns that are tried at most: 2 lags of up to 12 columns, 1 of up to 24."""
MAX_WEEK_ROWS: Final = 2016
"""Largest number of rows per week for which a weekly lag is added: one row in five minutes."""

_NO_SPLIT_REASON: Final = (
    ", and a held-out row would be the past of the rows after it (every row is predicted before it "
    "is learned, so the scores of a run are already a test)"
)

Notice = Callable[[str], None]


class TimeColumn(NamedTuple):
    """The time column and its first timestamps."""

    name: str
    points: TimeSample


class TimeOptions(NamedTuple):
    """The options about time."""

    time: str | None = None
    time_unit: str = "auto"
    lags: str | None = None  # None: default lags if there is a regular clock
    reordering_option: str = ""  # the option that changes the order of rows, if any
    has_late_labels: bool = False  # whether targets may arrive after their rows
    known_ahead: tuple[str, ...] = ()  # inputs that are known when forecasts are made
    holidays: str = ""  # country whose public holidays are an input
    tries_lags: bool = False  # whether an ensemble can try lags of other columns

    def check(self) -> None:
        """Raise UsageError if the options contradict each other."""
        if self.lags is None or self.lags == LAGS_OFF:
            return
        parse_lags(self.lags)
        if self.has_late_labels:
            raise UsageError(
                "--lags and --id contradict each other: a late target is not known when the next "
                "row arrives"
            )
        if self.reordering_option:
            raise UsageError(
                f"--lags and {self.reordering_option} contradict each other: "
                "lags need rows in order"
                + _NO_SPLIT_REASON
                * (self.reordering_option == "--test-split")
            )


def looks_like_times(values: Sequence[str | None]) -> bool:
    """Return whether the values of a column are written as timestamps."""
    present = [value for value in values if value is not None]
    plain = any(not value.isdigit() for value in present)
    return plain and detect_times("", values) is not None


def find_time_column(
    samples: Mapping[str, Sequence[str | None]], targets: Sequence[str], asked: TimeOptions
) -> TimeColumn | None:
    """Find the time column: the one that the user named, or the first that holds timestamps."""
    if asked.time is not None:
        if asked.time not in samples:
            raise missing_column_error(asked.time, list(samples))
        if asked.time in targets:
            raise UsageError(f"column '{asked.time}' cannot be both the target and the clock")
        return TimeColumn(
            asked.time, require_times(asked.time, samples[asked.time], asked.time_unit)
        )
    others = [name for name in samples if name not in targets]
    for name in others:
        found = detect_times(name, samples[name], alone=len(others) == 1)
        if found is not None:
            return TimeColumn(name, found)
    return None


def add_clock_and_lags(
    schema: Schema, found: TimeColumn | None, asked: TimeOptions, notice: Notice
) -> None:
    """Add clock and lags to a schema, append their columns of x, and report them."""
    names = [column.name for column in schema.columns]
    series = found is not None and _is_series(schema, found) and not asked.has_late_labels
    has_steps_ahead = TARGET_TYPES[schema.task].supports_differencing
    lagged = series and has_steps_ahead and not asked.reordering_option
    if series:
        _report_missing_lags(schema, asked, has_steps_ahead, notice)
    others = _list_other_features(schema, found)
    schema.changes = _learns_changes(schema, asked, lagged)
    if found is not None:
        # A trend grows beyond its scale, which relearns all rows; changes follow it without.
        elapsed = not schema.changes
        if asked.holidays:
            mark_holidays(asked.holidays, np.zeros(0))  # report a wrong country at once
        schema.clock = build_clock(found.name, found.points, elapsed, names, asked.holidays)
        schema.layout += [Place(name, None) for name in schema.clock.names]
        notice(
            describe_clock(schema.clock, any(each.has_short_year for each in found.points.points))
        )
        if has_repeated_times([each.instant for each in found.points.points]):
            notice(
                f"several rows have the same time in '{found.name}': if the data hold more than "
                "one series, --key COLUMN keeps one model per series, with its own lags and cycles"
            )
    elif asked.holidays:
        raise UsageError(
            f"--holidays {asked.holidays} needs a time column: name it with --time COLUMN"
        )
    if asked.lags == LAGS_OFF or (asked.lags is None and not lagged):
        if asked.known_ahead:
            raise UsageError(
                "--known-ahead needs lags of the target: add --lags, or name a time column"
            )
        return
    specs = (
        parse_lags(asked.lags) if asked.lags is not None else _default_lags(schema.clock, others)
    )
    schema.lags = _build_lags(schema, specs)
    _report_lags(schema, asked, notice)
    if asked.lags is None and asked.tries_lags:
        schema.lags += _build_optional_lags(schema, others, notice)
    schema.layout += [Place(lag.name, None) for lag in schema.lags]
    _apply_known_ahead(schema, others, asked.known_ahead, notice)


def _list_other_features(schema: Schema, found: TimeColumn | None) -> list[str]:
    """Return the features beside the clock."""
    clock = "" if found is None else found.name
    return [c.name for c in schema.columns if c.role == "feature" and c.name != clock]


def _is_series(schema: Schema, found: TimeColumn) -> bool:
    """Return whether there is one numeric target and a clock whose rows follow in order.

    With other features beside the target the clock must have a regular step.
    """
    others = _list_other_features(schema, found)
    return (
        not TARGET_TYPES[schema.task].labels
        and len(schema.targets) == 1
        and found.points.is_chronological
        and not has_repeated_times([each.instant for each in found.points.points])
        and (not others or found.points.has_regular_step)
    )


def _report_missing_lags(
    schema: Schema, asked: TimeOptions, has_steps_ahead: bool, notice: Notice
) -> None:
    """Report why a series gets no default lags, or cannot be forecast several steps ahead."""
    if asked.lags == LAGS_OFF:
        return
    if asked.reordering_option:
        if asked.lags is None and has_steps_ahead:
            notice(f"no lags are learned with {asked.reordering_option}: they need rows in order")
    elif not has_steps_ahead and asked.lags is None:
        notice(
            f"--task {schema.task} learns no lags by itself and forecasts no steps ahead: --task "
            "regression does both (--lags 1,2 adds lags, for forecasts of the next row)"
        )
    elif not has_steps_ahead:
        notice(
            f"--task {schema.task} forecasts the next row only: --task regression forecasts "
            "several steps ahead"
        )


def _apply_known_ahead(
    schema: Schema, others: list[str], known: tuple[str, ...], notice: Notice
) -> None:
    """Record which features are known ahead; the others are used only through their lags.

    Without `known`, all features remain inputs of their row, and none is known ahead.
    """
    if not known:
        if others and any(lag.column in schema.targets for lag in schema.lags):
            notice(
                f"{_quote_names(others)} "
                f"{'are inputs' if len(others) > 1 else 'is an input'} of the same row, and not "
                "known several steps ahead (--known-ahead names columns that are)"
            )
        return
    known = () if known == (NONE_KNOWN,) and NONE_KNOWN not in others else known
    for name in known:
        if name not in others:
            raise missing_column_error(name, others)
    lagged = {lag.column for lag in schema.lags}
    schema.known_ahead = [name for name in others if name in known]
    schema.lag_only = [name for name in others if name not in known and name in lagged]
    dropped = [name for name in others if name not in known and name not in lagged]
    for column in schema.columns:
        if column.name in dropped:
            column.kind, column.role = "ignored", "none"
    schema.layout = [place for place in schema.layout if place.column not in dropped]
    if dropped:
        notice(f"{_quote_names(dropped)} ignored: not known ahead, and without lags")


def _learns_changes(schema: Schema, asked: TimeOptions, has_default_lags: bool) -> bool:
    """Return whether lag 1 of every target is among the lags, so that changes are learned."""
    if asked.lags is None:
        return has_default_lags
    if asked.lags == LAGS_OFF:
        return False
    last = [lag.column for lag in parse_lags(asked.lags) if lag.rows == 1]
    named = schema.targets if None in last else [name for name in last if name is not None]
    return uses_differencing(schema.task, schema.targets, frozenset(named))


def _default_lags(clock: Clock | None, others: Sequence[str]) -> tuple[LagSpec, ...]:
    """Return the default lags: last values, a season ago and, for steps below a day, a week ago.

    The lags of a week are left out if there are other features.
    """
    season = 0 if clock is None else clock.season_steps
    rounds = [season] if season else []
    if (
        not others
        and clock is not None
        and 0.0 < clock.step < DAY_SECONDS
        and 7 * season <= MAX_WEEK_ROWS
    ):
        rounds += [7 * s for s in rounds]
    rows = sorted({*DEFAULT_LAG_ROWS, *rounds, *(s + 1 for s in rounds)})
    return tuple(LagSpec(None, str(k), k, 0.0) for k in rows)


def _build_optional_lags(schema: Schema, others: Sequence[str], notice: Notice) -> list[Lag]:
    """Build the lags of other columns, which must earn their place, and report them."""
    numeric = [name for name in others if schema.get_column(name).kind in ("number", "boolean")]
    if not numeric:
        return []
    rows = [k for k in OPTIONAL_LAG_ROWS if k * len(numeric) <= MAX_OPTIONAL_LAGS]
    if not rows:
        notice(
            f"lags of the {len(numeric):,} other columns are not tried: that would cost too much "
            f"with more than {MAX_OPTIONAL_LAGS} (--lags chooses some)"
        )
        return []
    listed = ", ".join(map(str, rows))
    notice(
        f"lag{'s' if len(rows) > 1 else ''} {listed} of {_quote_names(numeric)} must earn "
        f"{'their' if len(rows) * len(numeric) > 1 else 'its'} place: one network of the ensemble "
        "sees them, and is dropped if it does not pay"
    )
    specs = [LagSpec(name, str(k), k, 0.0) for name in numeric for k in rows]
    return [replace(lag, optional=True) for lag in _build_lags(schema, specs)]


def _quote_names(names: Sequence[str]) -> str:
    """Return the first names in quotes, and how many more there are."""
    quoted = ", ".join(f"'{name}'" for name in names[:MAX_NAMES_SHOWN])
    more = len(names) - MAX_NAMES_SHOWN
    return f"{quoted} and {more} more" if more > 0 else quoted


def _build_lags(schema: Schema, specs: Sequence[LagSpec]) -> list[Lag]:
    known = {column.name: column for column in schema.columns}
    taken, lags = [*known, *schema.derived_columns], []
    for column, text, rows, seconds in specs:
        if not rows and schema.clock is None:
            raise UsageError(f"--lags {text}: a duration needs a clock (--time names its column)")
        if column is not None and column not in known:
            raise missing_column_error(column, list(known))
        for name in [column] if column is not None else schema.targets:
            _check_lag_column(known[name], TARGET_TYPES[schema.task])
            lags.append(Lag(make_unique_name(f"{name} lag {text}", taken), name, rows, seconds))
            taken.append(lags[-1].name)
    return lags


def _check_lag_column(column: Column, task: type[TargetType]) -> None:
    """Raise UsageError if a column cannot have lags."""
    if column.role == "target":
        usable, what = not task.labels and column.kind == "number", "is a class"
    else:
        usable = column.role == "feature" and column.kind in ("number", "boolean")
        what = "is not a numeric feature"
    if not usable:
        raise UsageError(f"--lags: column '{column.name}' {what}")


def _report_lags(schema: Schema, asked: TimeOptions, notice: Notice) -> None:
    """Report the lags that are used."""
    by: dict[str, list[str]] = {}
    for lag in schema.lags:
        by.setdefault(lag.column, []).append(lag.name.removeprefix(f"{lag.column} lag "))
    listed = " and ".join(f"{', '.join(texts)} of '{name}'" for name, texts in by.items())
    change = "; the change from the last value is learned" if schema.changes else ""
    hint = " (--lags chooses others, --lags off none)" if asked.lags is None else ""
    notice(f"lags {listed} are inputs{change}{hint}")
