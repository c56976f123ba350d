"""Find the clock among the columns, by the first rows: which one, in which unit, which cycles.

A cycle is learned where the rows can show it: in a stream that runs forward when its steps are at
most half as long as the cycle, otherwise when its phases differ.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from statistics import median
from typing import Final, NamedTuple

import numpy as np

from kbnn.errors import DataError
from kbnn.model.clock import (
    CYCLES,
    DAY_SECONDS,
    Clock,
    TimestampStyle,
    TimeUnit,
    compute_cycle_phase,
    name_time_columns,
)
from kbnn.stream.header import is_number
from kbnn.stream.times import SHORT_YEARS, Timestamp, parse_timestamp
from kbnn.stream.values import TICKS_PER_SECOND

TIME_UNITS: Final = ("auto", "s", "ms", "us", "ns", "year")
TIME_COLUMN_NAME: Final = re.compile(
    r"(unix|epoch|event|local|utc)?[ _]?"
    r"(date|day|time|timestamp|datetime|ts|ds|epoch|zeit|datum|zeitstempel)[ _]?(utc|s|ms|us|ns)?",
    re.I,
)
_YEAR_COLUMN_NAME: Final = re.compile(r"years?|jahr|yyyy", re.I)


class TimeSample(NamedTuple):
    """The first points of time of a column, and how they were read."""

    points: list[Timestamp]
    unit: TimeUnit
    day_first: bool

    @property
    def is_chronological(self) -> bool:
        """Whether no row is before the one above it, and not all are at once."""
        instants = [each.instant for each in self.points]
        pairs = pairwise(instants)
        return len(set(instants)) > 1 and all(a <= b for a, b in pairs)

    @property
    def step_seconds(self) -> float:
        """Seconds between two rows."""
        instants = sorted({each.instant for each in self.points})
        gaps = [b - a for a, b in pairwise(instants)]
        return median(gaps) if gaps and self.is_chronological else 0.0


def detect_times(
    name: str, values: Sequence[str | None], unit: str = "auto", alone: bool = False
) -> TimeSample | None:
    """A column as points of time; None when it holds something else.

    `alone`: it stands beside the target and nothing else, so that a year may be a clock.
    """
    present = [value for value in values if value is not None]
    if not present:
        return None
    if unit == "auto" and all(map(is_number, present)):
        return _detect_numeric_times(name, present, alone)
    if unit in (*TICKS_PER_SECOND, "year"):
        return _sample_numeric_times(present, unit)
    return _sample_text_times(present)


def _sample_text_times(present: list[str]) -> TimeSample | None:
    points = [parse_timestamp(text) for text in present]
    known = [each for each in points if each is not None]
    if len(known) < len(points):
        return None
    orders = {each.order for each in known}
    day_first = "day" in orders
    if day_first and "month" in orders:
        return None
    if day_first:
        known = [each for text in present if (each := parse_timestamp(text, True)) is not None]
    return TimeSample(known, "text", day_first)


def _sample_numeric_times(present: list[str], unit: str) -> TimeSample | None:
    if not all(map(is_number, present)):
        return None
    numbers = [float(text) for text in present]
    if unit == "year":
        if not all(number.is_integer() and 1 <= number <= 9999 for number in numbers):
            return None
        known = [parse_timestamp(f"{int(number):04d}-01") for number in numbers]
        return TimeSample([each for each in known if each is not None], "year", False)
    seconds = [number / TICKS_PER_SECOND[unit] for number in numbers]
    return TimeSample([Timestamp(each, each) for each in seconds], unit, False)  # type: ignore[arg-type]  # one of TICKS


def _detect_numeric_times(name: str, present: list[str], alone: bool) -> TimeSample | None:
    """Numbers that are a clock by their name, their size and their order."""
    numbers = [float(text) for text in present]
    rising = all(a <= b for a, b in pairwise(numbers))
    if not rising or not all(number.is_integer() for number in numbers):
        return None
    if _YEAR_COLUMN_NAME.fullmatch(name):
        lone = alone and len(set(numbers)) == len(numbers) > 1
        return (
            _sample_numeric_times(present, "year") if lone and 1000 <= numbers[0] <= 2999 else None
        )
    if not TIME_COLUMN_NAME.fullmatch(name):
        return None
    dates = _sample_text_times([f"{number:.0f}" for number in numbers])
    if dates is not None and all(1 <= n // 10**4 <= 9999 for n in numbers):
        return dates
    return (
        _sample_numeric_times(present, guess_tick_unit(numbers[0])) if numbers[0] >= 1e8 else None
    )


def guess_tick_unit(number: float) -> str:
    """The unit of ticks since 1970 that a number of our time is in."""
    return "s" if number < 1e11 else "ms" if number < 1e14 else "us" if number < 1e17 else "ns"


def require_times(name: str, values: Sequence[str | None], unit: str) -> TimeSample:
    """The column that was said to be the clock, or why it cannot be."""
    present = [value for value in values if value is not None]
    if unit == "auto" and present and all(map(is_number, present)):
        number = abs(float(present[0]))
        digits = _sample_text_times(present)
        unit = (
            "auto" if digits is not None else "year" if number < 3000 else guess_tick_unit(number)
        )
        if digits is not None:
            return digits
    found = detect_times(name, values, unit)
    if found is None:
        example = next((value for value in present), "nothing")
        raise DataError(
            f"--time {name}: '{example}' is no point of time (--time-unit says what numbers are)"
        )
    return found


def build_clock(name: str, found: TimeSample, elapsed: bool, taken: Sequence[str]) -> Clock:
    """The clock that a column is."""
    cycles = [cycle for cycle in CYCLES if _supports_cycle(found, cycle)]
    elapsed = elapsed or not cycles
    shapes = {each.written for each in found.points}
    written: TimestampStyle = "text"
    if shapes == {"month"}:
        written = "month"
    elif shapes <= {"day", "month"} or _are_at_midnight(found):
        written = "day"
    return Clock(
        name,
        found.unit,
        found.points[0].instant,
        found.step_seconds,
        cycles,
        name_time_columns(name, cycles, elapsed, taken),
        found.day_first,
        written,
        any(each.has_zone for each in found.points),
    )


def _are_at_midnight(found: TimeSample) -> bool:
    return found.step_seconds >= DAY_SECONDS and all(
        each.local % DAY_SECONDS == 0.0 for each in found.points
    )


def _supports_cycle(found: TimeSample, cycle: str) -> bool:
    if len(found.points) == 1:  # one row shows nothing: the spelling has to do
        return cycle != "day" or found.points[0].written == "text"
    length = CYCLES[cycle]
    if found.is_chronological:
        return 0.0 < found.step_seconds <= 0.5 * length
    phases = compute_cycle_phase(cycle, np.array([each.local for each in found.points]))
    return len(np.unique(np.round(phases, 3))) >= 3


def describe_clock(clock: Clock, short: bool = False) -> str:
    """What is learned from a clock, in words; `short`: its years have two digits."""
    words = {"day": "hour of the day", "week": "day of the week", "year": "day of the year"}
    learned = [words[cycle] for cycle in clock.cycles]
    if len(clock.names) > 2 * len(clock.cycles):
        learned.append("elapsed time")
    *most, last = learned
    listed = f"{', '.join(most)} and {last}" if most else last
    order = ""
    if clock.day_first:
        order = ", days before months"
    if short:
        order += ", years {} to {} in two digits".format(*SHORT_YEARS)
    return (
        f"column '{clock.column}' is the clock{order}: {listed} (--ignore {clock.column} drops it)"
    )


def has_repeated_times(instants: Sequence[float]) -> bool:
    """Whether rows come several at a time, as where a file holds more than one series."""
    return len(instants) > 1 and 2 * len(set(instants)) <= len(instants)
