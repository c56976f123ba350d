"""What a stream's columns say about time: its clock, and which lags are learned.

A file of a clock and one number is a series: its own past is all there is to learn from, so it has
lags without being asked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from kbnn.errors import UsageError
from kbnn.model.clock import DAY, Clock, free
from kbnn.model.lags import Lag, Said, parse
from kbnn.model.schema import Column, Place, Schema
from kbnn.stream.clock import Ticking, clock_of, several, tell, ticking, told
from kbnn.stream.header import no_column
from kbnn.task.base import Task
from kbnn.task.table import TASKS

OFF: Final = "off"
NEAR: Final = (1, 2, 3)
"""Lags of a series beside those of its season."""
LONGEST_WEEK: Final = 2016
"""Rows of a week that a lag looks back over: one in five minutes."""

_NO_SPLIT: Final = (
    ", and a row held out would be the past of those after it (every row is forecast before it is "
    "learned: the record of a run is its test)"
)

Notice = Callable[[str], None]


class Found(NamedTuple):
    """The column that is the clock, and its first points of time."""

    name: str
    points: Ticking


class Asked(NamedTuple):
    """What was said about time."""

    time: str | None = None
    time_unit: str = "auto"
    lags: str | None = None  # None: a series gets its own
    mixed: str = ""  # the option by which rows do not follow one another
    late: bool = False  # and targets later than their rows

    def check(self) -> None:
        """Refuse what makes no sense."""
        if self.lags is None or self.lags == OFF:
            return
        parse(self.lags)
        if self.late:
            raise UsageError(
                "--lags and --id contradict each other: a target that comes late is not known "
                "before the next row"
            )
        if self.mixed:
            raise UsageError(
                f"--lags and {self.mixed} contradict each other: lags need rows in order"
                + _NO_SPLIT * (self.mixed == "--test-split")
            )


def holds_time(values: Sequence[str | None]) -> bool:
    """Whether a column is spelt as points of time."""
    present = [value for value in values if value is not None]
    plain = any(not value.isdigit() for value in present)
    return plain and ticking("", values) is not None


def find_clock(
    samples: Mapping[str, Sequence[str | None]], targets: Sequence[str], asked: Asked
) -> Found | None:
    """The clock among columns that may be one: the one named, or the first that is spelt so."""
    if asked.time is not None:
        if asked.time not in samples:
            raise no_column(asked.time, list(samples))
        if asked.time in targets:
            raise UsageError(f"column '{asked.time}' cannot be both the target and the clock")
        return Found(asked.time, told(asked.time, samples[asked.time], asked.time_unit))
    others = [name for name in samples if name not in targets]
    for name in others:
        found = ticking(name, samples[name], alone=len(others) == 1)
        if found is not None:
            return Found(name, found)
    return None


def add_time(schema: Schema, found: Found | None, asked: Asked, notice: Notice) -> None:
    """Give a schema its clock and its lags, with columns of x at its end, and say so."""
    names = [column.name for column in schema.columns]
    series = found is not None and _is_series(schema, found) and not asked.late
    lone = series and not asked.mixed
    if series and not lone and asked.lags is None:
        notice(f"no lags are learned with {asked.mixed}: they need rows in order")
    if found is not None:
        wanted = asked.lags is None and lone
        schema.clock = clock_of(found.name, found.points, not wanted, names)
        schema.layout += [Place(name, None) for name in schema.clock.names]
        notice(tell(schema.clock, any(each.short for each in found.points.points)))
        if several([each.instant for each in found.points.points]):
            notice(
                f"rows of '{found.name}' come several at a time: where a file holds more than one "
                "series, --key COLUMN keeps a model for each, with lags and cycles of its own"
            )
    if asked.lags == OFF or (asked.lags is None and not lone):
        return
    said = parse(asked.lags) if asked.lags is not None else _usual(schema.clock)
    schema.lags = _lags(schema, said)
    schema.layout += [Place(lag.name, None) for lag in schema.lags]
    last = frozenset(lag.column for lag in schema.lags if lag.rows == 1)
    schema.changes = TASKS[schema.task].changes(schema.targets, last)
    _tell(schema, asked, notice)


def _is_series(schema: Schema, found: Found) -> bool:
    """Whether there is a clock that runs forward, one number, and nothing else."""
    others = [c for c in schema.columns if c.role != "none" and c.name != found.name]
    return (
        TASKS[schema.task].is_series(len(others))
        and found.points.forward
        and not several([each.instant for each in found.points.points])
    )


def _usual(clock: Clock | None) -> tuple[Said, ...]:
    """The lags of a series: the last values, those of a season ago and, within days, a week ago."""
    season = 0 if clock is None else clock.season
    rounds = [season] if season else []
    if clock is not None and 0.0 < clock.step < DAY and 7 * season <= LONGEST_WEEK:
        rounds += [7 * s for s in rounds]
    rows = sorted({*NEAR, *rounds, *(s + 1 for s in rounds)})
    return tuple(Said(None, str(k), k, 0.0) for k in rows)


def _lags(schema: Schema, said: Sequence[Said]) -> list[Lag]:
    known = {column.name: column for column in schema.columns}
    taken, lags = [*known, *schema.derived], []
    for column, text, rows, seconds in said:
        if not rows and schema.clock is None:
            raise UsageError(f"--lags {text}: a duration needs a clock (--time names its column)")
        if column is not None and column not in known:
            raise no_column(column, list(known))
        for name in [column] if column is not None else schema.targets:
            _check_lagged(known[name], TASKS[schema.task])
            lags.append(Lag(free(f"{name} lag {text}", taken), name, rows, seconds))
            taken.append(lags[-1].name)
    return lags


def _check_lagged(column: Column, task: type[Task]) -> None:
    """Refuse lags of what is no number."""
    if column.role == "target":
        usable, what = task.lagged(column.kind), "is a class"
    else:
        usable = column.role == "feature" and column.kind in ("number", "boolean")
        what = "is no number that is learned from"
    if not usable:
        raise UsageError(f"--lags: column '{column.name}' {what}")


def _tell(schema: Schema, asked: Asked, notice: Notice) -> None:
    """Say which lags there are."""
    by: dict[str, list[str]] = {}
    for lag in schema.lags:
        by.setdefault(lag.column, []).append(lag.name.removeprefix(f"{lag.column} lag "))
    listed = " and ".join(f"{', '.join(texts)} of '{name}'" for name, texts in by.items())
    change = "; the change from the last value is learned" if schema.changes else ""
    hint = " (--lags chooses others, --lags off none)" if asked.lags is None else ""
    notice(f"lags {listed} are inputs{change}{hint}")
