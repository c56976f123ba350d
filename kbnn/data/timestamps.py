"""Parse timestamps, and detect the time column, its unit and its cycles from the first rows.

A timestamp is an instant and a local time, both in seconds since 1970. Without a time zone both
are the time as written; a date without a time is midnight. A calendar cycle is used if the rows
can resolve it: in a chronological stream if its steps are at most half a cycle long, otherwise if
the rows have at least three different phases.
"""

from __future__ import annotations

import re
from calendar import monthrange, timegm
from collections.abc import Sequence
from dataclasses import replace
from datetime import date, datetime
from itertools import pairwise, product
from statistics import median
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kbnn.array_types import FloatArray
from kbnn.data.clock import (
    CYCLES,
    DAY_SECONDS,
    MAX_DECIMALS,
    MONTH_NAMES,
    WEEKDAYS,
    Clock,
    TimestampStyle,
    TimeUnit,
    compute_cycle_phase,
    find_month_days,
    format_layout,
    name_time_columns,
)
from kbnn.data.csv_records import is_number
from kbnn.data.values import (
    TICKS_PER_SECOND,
    MissingSpellings,
    format_time,
    is_numeric,
    is_text,
    normalize_cell,
    parse_numbers,
    ticks_to_seconds,
    trim_texts,
)
from kbnn.errors import DataError

_MONTHS: Final = {
    name.lower(): at for at, full in enumerate(MONTH_NAMES, 1) for name in (full, full[:3])
}
_TIME_OF_DAY: Final = (
    r"(?:(?:[T ]|,\s)\s?(?P<h>\d{1,2}):(?P<n>\d{2})(?::(?P<s>\d{2})(?P<f>[.,]\d{1,9})?)?"
    r"(?:\s?(?P<half>[ap])\.?m\.?)?)?"
    r"\s?(?P<zone>Z|UTC|GMT|[-+]\d{2}(?::?\d{2})?)?"
)
_WEEKDAY: Final = r"(?:(?P<weekday>(?:mon|tue|wed|thu|fri|sat|sun)[a-z]{0,6})\.?,? )?"
_TIMESTAMP_PATTERNS: Final = tuple(
    re.compile(form, re.I)
    for form in (
        r"(?P<y>\d{4})(?P<sep>[-/.])(?P<m>\d{1,2})(?P=sep)(?P<d>\d{1,2})" + _TIME_OF_DAY,
        r"(?P<a>\d{1,2})(?P<sep>[-/.])(?P<b>\d{1,2})(?P=sep)(?P<y>\d{4})" + _TIME_OF_DAY,
        _WEEKDAY
        + r"(?P<d>\d{1,2})[-. ]{1,2}(?P<name>[a-z]{3,9})\.?[-., ]{1,2}(?P<y>\d{4}|\d{2})"
        + _TIME_OF_DAY,
        _WEEKDAY + r"(?P<name>[a-z]{3,9})\.? (?P<d>\d{1,2}),? (?P<y>\d{4})" + _TIME_OF_DAY,
        r"(?P<y>\d{4})(?P<m>\d{2})(?P<d>\d{2})"
        r"(?:[T ]?(?P<h>\d{2})(?P<n>\d{2})(?P<s>\d{2})?)?(?P<zone>Z)?",
        r"(?P<y>\d{4})[-/](?P<m>\d{2})",
        r"(?P<name>[a-z]{3,9})[-. ](?P<y>\d{4})",
        r"(?P<y>\d{4})[- ]?Q(?P<q>[1-4])",
    )
)
SHORT_YEARS: Final = (1969, 2068)
"""The range of years written with two digits, as in POSIX."""


class Timestamp(NamedTuple):
    """A timestamp parsed from text."""

    instant: float
    local: float
    has_zone: bool = False
    written: str = "text"  # "day" without a time of day, "month" without a day
    order: str = ""  # of 03/04/2026: "day", "month", or "either"
    has_short_year: bool = False  # the year has two digits


class ParsedTimes(NamedTuple):
    """A column as times (n, 2), NaN where missing, and the texts that could not be parsed."""

    values: FloatArray
    unparsed: dict[int, str]


def parse_timestamp(text: str, day_first: bool = False) -> Timestamp | None:
    """Parse a text as a timestamp; None if it is not one."""
    found = next((match for form in _TIMESTAMP_PATTERNS if (match := form.fullmatch(text))), None)
    if found is None:
        return None
    part = found.groupdict()
    year, order, short = int(part["y"]), "", len(part["y"]) == 2
    if short:
        year += 2000 if year < SHORT_YEARS[0] % 100 else 1900
    if part.get("name"):
        month, day = _MONTHS.get(part["name"].lower(), 0), int(part.get("d") or 1)
    elif part.get("a"):
        first, second = int(part["a"]), int(part["b"])
        order = "day" if first > 12 else "month" if second > 12 else "either"
        if part["sep"] != "/" and order == "either":
            order = "day"
        dayed = order == "day" or (order == "either" and day_first)
        day, month = (first, second) if dayed else (second, first)
    elif part.get("q"):
        month, day = 3 * int(part["q"]) - 2, 1
    else:
        month, day = int(part["m"]), int(part.get("d") or 1)
    if not 1 <= month <= 12 or year < 1 or not 1 <= day <= monthrange(year, month)[1]:
        return None
    hour, minute, second = (int(part.get(name) or 0) for name in ("h", "n", "s"))
    if part.get("half"):
        if not 1 <= hour <= 12:
            return None
        hour = hour % 12 + (12 if part["half"].lower() == "p" else 0)
    if hour > 23 or minute > 59 or second > 60:
        return None
    figures = (part.get("f") or ".0")[1:]
    whole = timegm((year, month, day, hour, minute, second)), int(figures.ljust(9, "0"))
    local, zone = _join_seconds(*whole), part.get("zone")
    written = "text" if part.get("h") else "day" if part.get("d") or part.get("a") else "month"
    instant = _join_seconds(whole[0] - _parse_zone_offset(zone), whole[1])
    return Timestamp(instant, local, zone is not None, written, order, short)


def _join_seconds(second: int, nanosecond: int) -> float:
    """Return seconds since 1970, bit for bit equal to `ticks_to_seconds`."""
    if nanosecond % 1000:
        return float(second * TICKS_PER_SECOND["ns"] + nanosecond) / TICKS_PER_SECOND["ns"]
    return float(second * TICKS_PER_SECOND["us"] + nanosecond // 1000) / TICKS_PER_SECOND["us"]


def _parse_zone_offset(zone: str | None) -> int:
    """Return the offset of a zone from UTC in seconds."""
    if zone is None or zone[0] not in "+-":
        return 0
    figures = zone[1:].replace(":", "")
    ahead = 3600 * int(figures[:2]) + 60 * int(figures[2:] or 0)
    return -ahead if zone[0] == "-" else ahead


def is_date_or_timestamp(kind: pa.DataType) -> bool:
    """Return whether a type holds dates or timestamps (not times of day)."""
    return bool(pa.types.is_timestamp(kind) or pa.types.is_date(kind))


def parse_times(
    array: pa.Array, unit: TimeUnit, day_first: bool, missing: MissingSpellings
) -> ParsedTimes:
    """Read a column as timestamps."""
    if is_date_or_timestamp(array.type):
        values = _read_arrow_times(array)
        far = np.flatnonzero(np.abs(values[:, 0]) > _MAX_EPOCH_SECONDS).tolist()
        values[far] = np.nan
        return ParsedTimes(values, {at: format_time(array[at]) for at in far})
    if is_text(array.type) and unit == "text":
        return _parse_time_texts(missing.drop_texts(trim_texts(array)), day_first)
    if not is_text(array.type) and not is_numeric(array.type):
        return ParsedTimes(np.full((len(array), 2), np.nan), {})
    read = parse_numbers(array, missing)
    return _parse_time_numbers(read.values, dict(read.unparsed), unit)


def _parse_time_numbers(values: FloatArray, unread: dict[int, str], unit: TimeUnit) -> ParsedTimes:
    """Read numbers as timestamps: ticks since 1970, years, or digits such as 20260131."""
    if unit in TICKS_PER_SECOND:
        instants = values / TICKS_PER_SECOND[unit]
    else:
        instants = np.full(len(values), np.nan)
        for at in np.flatnonzero(np.isfinite(values)).tolist():
            text = f"{values[at]:.0f}"
            made = parse_timestamp(f"{int(text):04d}-01" if unit == "year" else text)
            if made is None or not values[at].is_integer():
                unread[at] = text
            else:
                instants[at] = made.instant
    far = np.flatnonzero(np.abs(instants) > _MAX_EPOCH_SECONDS)
    unread.update((at, f"{values[at]:g}") for at in far.tolist())
    instants[far] = np.nan
    return ParsedTimes(np.stack((instants, instants), axis=1), unread)


_MAX_EPOCH_SECONDS: Final = 2.5e11
"""About the year 9892: later times were read in the wrong unit."""


def _read_arrow_times(array: pa.Array) -> FloatArray:
    """Read Arrow timestamps and dates of any unit and zone."""
    local = array
    if pa.types.is_timestamp(array.type) and array.type.tz is not None:
        try:
            local = pc.local_timestamp(array)
        except pa.ArrowInvalid:  # outside the zone database: the offset is negligible there
            local = array
    return np.stack((_read_arrow_seconds(array), _read_arrow_seconds(local)), axis=1)


def _read_arrow_seconds(array: pa.Array) -> FloatArray:
    kind, there = array.type, array.is_valid().to_numpy(zero_copy_only=False)
    if pa.types.is_date32(kind):
        array, unit = array.cast(pa.int32()).cast(pa.int64()), "s"
    else:
        array, unit = array.cast(pa.int64()), "ms" if pa.types.is_date64(kind) else kind.unit
    ticks = array.fill_null(0).to_numpy(zero_copy_only=False)
    found = ticks_to_seconds(ticks, unit) * (86400.0 if pa.types.is_date32(kind) else 1.0)
    return np.where(there, found, np.nan)


def _parse_time_texts(array: pa.Array, day_first: bool) -> ParsedTimes:
    """Parse texts in bulk if all are ISO 8601, otherwise one by one."""
    try:
        return ParsedTimes(_read_arrow_times(array.cast(pa.timestamp("us"))), {})
    except pa.ArrowInvalid:
        pass
    values = np.full((len(array), 2), np.nan)
    unread: dict[int, str] = {}
    for at, text in enumerate(array.to_pylist()):
        if text is not None:
            made = parse_timestamp(text, day_first)
            if made is None:
                unread[at] = text
            else:
                values[at] = made[:2]
    return ParsedTimes(values, unread)


def parse_time_value(value: Any, unit: TimeUnit, day_first: bool) -> tuple[float, float] | None:
    """Parse one value of any type as (instant, local time); None if it is not a timestamp."""
    value = normalize_cell(value)
    if isinstance(value, datetime):
        fraction = 1000 * value.microsecond + getattr(value, "nanosecond", 0)
        second, ahead = timegm(value.timetuple()), value.utcoffset()
        behind = 0 if ahead is None else int(ahead.total_seconds())
        return _join_seconds(second - behind, fraction), _join_seconds(second, fraction)
    if isinstance(value, date):
        midnight = float(timegm(value.timetuple()))
        return midnight, midnight
    if isinstance(value, str) and unit == "text":
        made = parse_timestamp(value.strip(), day_first)
        return None if made is None else (made.instant, made.local)
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    made_of = _parse_time_numbers(np.array([number]), {}, unit)
    return None if made_of.unparsed else (float(made_of.values[0, 0]), float(made_of.values[0, 1]))


_FIXED_ZONE: Final = re.compile(r"[-+]\d{2}:?\d{2}|UTC|GMT|Z|Etc/.*", re.I)


def has_changing_offset(zone: str) -> bool:
    """Return whether a zone is a place, whose offset from UTC may change, as in Europe/Berlin."""
    return bool(zone) and _FIXED_ZONE.fullmatch(zone) is None


def get_zone(kind: pa.DataType) -> str:
    """Return the name of the zone of an Arrow type, "" without one or if its offset is fixed."""
    zone = getattr(kind, "tz", None) or ""
    return zone if has_changing_offset(zone) else ""


def format_timestamps(array: pa.Array) -> list[str | None]:
    """Format Arrow timestamps as texts that `parse_timestamp` reads, None where missing."""
    texts: list[str | None] = []
    for at, (instant, local) in enumerate(_read_arrow_times(array).tolist()):
        if not np.isfinite(instant):
            texts.append(None)
            continue
        if abs(local) > _MAX_EPOCH_SECONDS:
            texts.append(format_time(array[at]))
            continue
        ahead = round((local - instant) / 60.0)
        zoned = getattr(array.type, "tz", None) is not None
        zone = f"{'-' if ahead < 0 else '+'}{abs(ahead) // 60:02d}:{abs(ahead) % 60:02d}"
        moment = str(np.datetime64(round(local * 1e6), "us"))
        plain = moment.removesuffix(".000000")
        whole = pa.types.is_date(array.type)
        texts.append(plain[:10] if whole else plain + (zone if zoned else ""))
    return texts


TIME_UNITS: Final = ("auto", "s", "ms", "us", "ns", "year")
TIME_COLUMN_NAME: Final = re.compile(
    r"(unix|epoch|event|local|utc)?[ _]?"
    r"(date|day|time|timestamp|datetime|ts|ds|epoch|zeit|datum|zeitstempel)[ _]?(utc|s|ms|us|ns)?",
    re.I,
)
_YEAR_COLUMN_NAME: Final = re.compile(r"years?|jahr|yyyy", re.I)


STEP_TOLERANCE: Final = 0.1
REGULAR_SHARE: Final = 0.7
"""Share of gaps that must be near the median step for a clock with a regular step."""


class TimeSample(NamedTuple):
    """The first timestamps of a column, and how they were read."""

    points: list[Timestamp]
    unit: TimeUnit
    day_first: bool
    layout: str = ""  # how texts and numbers are written, see `Clock`
    zone: str = ""  # name of the zone of a typed column, if its offset may change

    @property
    def is_chronological(self) -> bool:
        """Whether times never decrease and are not all equal."""
        instants = [each.instant for each in self.points]
        pairs = pairwise(instants)
        return len(set(instants)) > 1 and all(a <= b for a, b in pairs)

    @property
    def step_seconds(self) -> float:
        """The median seconds between two rows, 0 if the rows are not chronological."""
        instants = sorted({each.instant for each in self.points})
        gaps = [b - a for a, b in pairwise(instants)]
        return round(median(gaps), 6) if gaps and self.is_chronological else 0.0

    @property
    def has_regular_step(self) -> bool:
        """Whether most rows are one step apart; months and business days count as regular."""
        step = self.step_seconds
        gaps = [b.instant - a.instant for a, b in pairwise(self.points)]
        near = sum(abs(gap - step) <= STEP_TOLERANCE * step for gap in gaps)
        return step > 0.0 and near >= REGULAR_SHARE * len(gaps)


def detect_times(
    name: str, values: Sequence[str | None], unit: str = "auto", alone: bool = False
) -> TimeSample | None:
    """Read the first values of a column as timestamps; None if they are something else.

    `alone`: the column is the only one besides the target, so that years may be the clock.
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
    return TimeSample(known, "text", day_first, _find_layout(present, known, day_first))


def _find_layout(texts: Sequence[str], points: Sequence[Timestamp], day_first: bool) -> str:
    """Find the layout that writes all times as the texts do, "" if none does."""
    longest = max(texts, key=len)  # has a fraction of a second, if any text has one
    match = next(found for form in _TIMESTAMP_PATTERNS if (found := form.fullmatch(longest)))
    groups = {name: text for name, text in match.groupdict().items() if text is not None}
    order = "de", "mn"
    months = {"a": order[not day_first], "b": order[day_first], "m": order[1], "d": order[0]}
    if groups.get("sep", "/") != "/" and points[0].order in ("day", "either"):
        months |= {"a": order[0], "b": order[1]}
    zone, fraction = groups.get("zone", ""), groups.get("f", ".")
    weekday = groups.get("weekday", "Mon")
    hour = "Ii" if "half" in groups else "Hh"
    known = {
        **{"y": "%Y" if len(groups["y"]) == 4 else "%y", "n": "%M", "s": "%S", "q": "%q"},
        "half": "%p" if groups.get("half", "p").islower() else "%P",
        "weekday": _match_case(weekday, "A" if len(weekday) > 3 else "a"),
        "zone": zone if zone[:1] not in ("+", "-") else {6: "%z", 5: "%Z", 3: "%k"}[len(zone)],
    }
    fractions = (f"{fraction[0]}%{len(fraction) - 1}", "%f", "%F")[: 3 if "f" in groups else 1]
    for padded, name, seconds in product((0, 1), "bB", fractions):
        numbers = {group: f"%{pair[padded]}" for group, pair in {**months, "h": hour}.items()}
        month = _match_case(groups.get("name", "Mar"), name)
        written = {**known, **numbers, "name": month, "f": seconds}
        layout, end = "", 0
        for group in sorted(groups.keys() - {"sep"}, key=match.start):
            layout += longest[end : match.start(group)] + written[group]
            end = match.end(group)
        layout += longest[end:]
        made = (format_layout(layout, each.instant, each.local) for each in points)
        if all(one == text for one, text in zip(made, texts, strict=True)):
            return layout
    return ""


def _match_case(name: str, directive: str) -> str:
    """Return the directive that writes a name in upper or lower case, as given."""
    return "%" + ("^" if name.isupper() else "_" if name.islower() else "") + directive


def _sample_numeric_times(present: list[str], unit: str) -> TimeSample | None:
    if not all(map(is_number, present)):
        return None
    numbers = [float(text) for text in present]
    if unit == "year":
        if not all(number.is_integer() and 1 <= number <= 9999 for number in numbers):
            return None
        known = [parse_timestamp(f"{int(number):04d}-01") for number in numbers]
        points = [each for each in known if each is not None]
        return TimeSample(points, "year", False, _find_number_layout(present))
    seconds = [number / TICKS_PER_SECOND[unit] for number in numbers]
    points = [Timestamp(each, each) for each in seconds]
    return TimeSample(points, unit, False, _find_number_layout(present))  # type: ignore[arg-type]  # one of TICKS


def _find_number_layout(texts: Sequence[str]) -> str:
    """Find the decimals of numeric times: 0.00 if all have two, 0.## if the longest has; or ""."""
    plain = [text if re.fullmatch(r"-?\d+\.?\d*", text) else "" for text in texts]
    decimals = [len(text.partition(".")[2]) for text in plain]
    most = min(max(decimals), MAX_DECIMALS)
    return f"0.{('0' if min(decimals) == most else '#') * most}" if most else ""


def _detect_numeric_times(name: str, present: list[str], alone: bool) -> TimeSample | None:
    """Read numbers as timestamps if name, size and order of the column suggest it."""
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
    """Guess the unit of ticks since 1970 from the size of a present-day time."""
    return "s" if number < 1e11 else "ms" if number < 1e14 else "us" if number < 1e17 else "ns"


def require_times(name: str, values: Sequence[str | None], unit: str) -> TimeSample:
    """Read the column named by `--time`; raise DataError if it does not hold timestamps."""
    present = [value for value in values if value is not None]
    if unit == "auto" and present and all(map(is_number, present)):
        digits = _sample_text_times(present)
        if digits is not None:
            return digits
        number = abs(float(present[0]))
        unit = "year" if number < 3000 else guess_tick_unit(number)
    found = detect_times(name, values, unit)
    if found is None:
        example = next((value for value in present), "nothing")
        raise DataError(
            f"--time {name}: cannot read '{example}' as a timestamp "
            "(--time-unit sets the unit of numbers)"
        )
    return found


def build_clock(
    name: str, found: TimeSample, elapsed: bool, taken: Sequence[str], holidays: str = ""
) -> Clock:
    """Build the clock from the first timestamps of the time column."""
    cycles = [cycle for cycle in CYCLES if _supports_cycle(found, cycle)]
    elapsed = elapsed or not cycles
    shapes = {each.written for each in found.points}
    zoned = any(each.has_zone for each in found.points)
    written: TimestampStyle = "text"
    if shapes == {"month"}:
        written = "month"
    elif shapes <= {"day", "month"} or (_are_at_midnight(found) and not zoned):
        written = "day"
    return Clock(
        name,
        found.unit,
        found.points[0].instant,
        found.step_seconds,
        cycles,
        name_time_columns(name, cycles, elapsed, taken, bool(holidays)),
        found.day_first,
        written,
        zoned,
        _has_only_weekdays(found),
        holidays=holidays,
        layout=found.layout,
        zone=found.zone,
        **_find_month_days(found)._asdict(),
    )


def find_steps(clock: Clock, time: FloatArray) -> Clock:
    """Return a clock with the steps of the last rows (n, 2), if its first rows showed none.

    This happens where rows are learned one by one: the clock is fixed by the first row.
    """
    known = time[np.isfinite(time[:, 0])].tolist()
    if clock.step or len(known) < 2:
        return clock
    found = TimeSample([Timestamp(*each) for each in known], clock.unit, clock.day_first)
    at_midnight = clock.written == "text" and _are_at_midnight(found) and not clock.zoned
    return replace(
        clock,
        step=found.step_seconds,
        written="day" if at_midnight else clock.written,
        weekdays=_has_only_weekdays(found),
        **_find_month_days(found)._asdict(),
    )


def _has_only_weekdays(found: TimeSample) -> bool:
    """Return whether daily rows leave out at least one weekend, and have no row on one."""
    days = [int(each.local // DAY_SECONDS) for each in found.points]
    weekday = [(day + 3) % 7 for day in days]  # 1970 began on a Thursday
    return (
        round(found.step_seconds / DAY_SECONDS, 2) == 1.0
        and max(weekday) < WEEKDAYS
        and any(a == WEEKDAYS - 1 and b == 0 for a, b in pairwise(weekday))
    )


class MonthDays(NamedTuple):
    """The days of months that all rows are at, as `Clock` stores them."""

    month_end: bool = False
    month_day: int = 0
    month_weekdays: bool = False
    even_weeks: bool = False


def _find_month_days(found: TimeSample) -> MonthDays:
    """Find the days of months at which all rows are, if they are a month apart or more."""
    local = np.array([each.local for each in found.points])
    days = np.floor(local / DAY_SECONDS).astype(np.int64).astype("datetime64[D]")
    if len(days) < 2 or found.step_seconds <= 27.0 * DAY_SECONDS:
        return MonthDays()
    months = days.astype("datetime64[M]")
    number = int(np.max((days - months).astype(np.int64))) + 1
    if np.array_equal(days, find_month_days(months, 31)):
        return MonthDays(month_end=True)
    if np.array_equal(days, find_month_days(months, number)):
        return MonthDays(month_day=number if number > 28 else 0)
    if np.array_equal(days, find_month_days(months, 31, weekdays=True)):
        return MonthDays(month_end=True, month_weekdays=True)
    if np.array_equal(days, find_month_days(months, 1, weekdays=True)):
        return MonthDays(month_weekdays=True)
    return MonthDays(even_weeks=bool(np.all(np.diff(local) % (7 * DAY_SECONDS) == 0.0)))


def _are_at_midnight(found: TimeSample) -> bool:
    return found.step_seconds >= DAY_SECONDS and all(
        each.local % DAY_SECONDS == 0.0 for each in found.points
    )


def _supports_cycle(found: TimeSample, cycle: str) -> bool:
    if len(found.points) == 1:  # with one row, only its notation can decide
        return cycle != "day" or found.points[0].written == "text"
    length = CYCLES[cycle]
    if found.is_chronological:
        return 0.0 < found.step_seconds <= 0.5 * length
    phases = compute_cycle_phase(cycle, np.array([each.local for each in found.points]))
    return len(np.unique(np.round(phases, 3))) >= 3


def describe_clock(clock: Clock, short: bool = False) -> str:
    """Describe the inputs made from a clock; `short`: its years have two digits."""
    words = {"day": "hour of the day", "week": "day of the week", "year": "day of the year"}
    learned = [words[cycle] for cycle in clock.cycles]
    learned += [f"public holidays of {clock.holidays}"] if clock.holidays else []
    learned += ["elapsed time"] if clock.has_elapsed_time else []
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
    """Return whether times repeat as if the data held more than one series."""
    return len(instants) > 1 and 2 * len(set(instants)) <= len(instants)
