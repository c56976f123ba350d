"""The clock of a stream: its time column and the inputs computed from it.

Calendar cycles (day, week, year) become pairs of sine and cosine, which enter the network without
standardisation. The clock is fixed by the first rows and stored in the schema, so that a row is
encoded the same whenever it arrives. Cycles follow local time as written; elapsed time is
computed from instants, so a change to summer time shifts the cycles but not elapsed time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from kbnn.array_types import FloatArray, IntArray
from kbnn.errors import UsageError

DAY_SECONDS: Final = 86400.0
YEAR_SECONDS: Final = 365.25 * DAY_SECONDS
MONTH_SECONDS: Final = YEAR_SECONDS / 12

CYCLES: Final = {"day": DAY_SECONDS, "week": 7 * DAY_SECONDS, "year": YEAR_SECONDS}
"""Calendar cycles and their lengths in seconds."""

DateArray = npt.NDArray[np.datetime64]
TimeUnit = Literal["text", "s", "ms", "us", "ns", "year"]
TimestampStyle = Literal["text", "day", "month", "number"]


@dataclass(frozen=True)
class Clock:
    """The time column of a stream and the columns of x made from it.

    unit      unit of numeric times; "text" for texts and timestamps, which need none
    start     origin of elapsed time, in seconds since 1970
    step      seconds between two rows, 0 if the rows are not in order of time
    cycles    calendar cycles that the rows can resolve
    names     names of the columns of x: two per cycle, one for holidays and one for elapsed time
              if they are used
    holidays  country whose public holidays are an input, with its subdivision: DE, US-CA; "" none
    layout    how the first rows write times: of texts see `format_layout`; of numbers their
              decimals (0.00 always two, 0.## at most two); "" for ISO 8601 and for whole numbers
    zone      zone of times of a typed column, whose offset may change; "" if it is fixed or unknown
    """

    column: str
    unit: TimeUnit
    start: float
    step: float
    cycles: list[str]
    names: list[str]
    day_first: bool = False  # 03/04/2026 is in April
    written: TimestampStyle = "text"
    zoned: bool = False
    weekdays: bool = False  # daily rows without Saturdays and Sundays
    month_end: bool = False  # rows at the last days of months
    holidays: str = ""
    layout: str = ""
    zone: str = ""
    month_day: int = 0  # day of the month of all rows if it is above 28; the last one if shorter
    month_weekdays: bool = False  # rows at the last weekdays of months; first ones if no month_end
    even_weeks: bool = False  # whole weeks between all rows: 13 weeks are no 3 months

    @property
    def unscaled_columns(self) -> int:
        """Number of columns of x that are not standardised: cycles and holidays."""
        return 2 * len(self.cycles) + bool(self.holidays)

    @property
    def has_elapsed_time(self) -> bool:
        """Whether elapsed time is an input."""
        return len(self.names) > self.unscaled_columns

    @property
    def longest_step(self) -> float:
        """Longest time in seconds between two rows without a gap."""
        return 3.0 * self.step if self.weekdays else self.step

    @property
    def months_per_step(self) -> int:
        """Whole months between two rows, 0 if the step is not a whole number of months."""
        months = round(self.step / MONTH_SECONDS)
        return months if months and abs(self.step / MONTH_SECONDS - months) < 0.05 * months else 0

    @property
    def season_steps(self) -> int:
        """Steps per season (a day, a week or a year, by the step), 0 if no season is usable."""
        step = self.step
        if self.weekdays:
            return WEEKDAYS
        if self.months_per_step:
            return (
                12 // self.months_per_step
                if 12 % self.months_per_step == 0 and self.months_per_step < 12
                else 0
            )
        if 0.0 < step <= DAY_SECONDS / 2:
            rows = round(DAY_SECONDS / step)
            return (
                rows
                if rows <= MAX_SEASON_STEPS and abs(rows * step - DAY_SECONDS) < 0.01 * DAY_SECONDS
                else 0
            )
        return {1: 7, 7: 52}.get(round(step / DAY_SECONDS), 0)

    def encode_times(self, time: FloatArray) -> FloatArray:
        """Compute the columns of x (n, names) from instants and local times (n, 2).

        A cycle with phase p in [0, 1) gives sin(2 pi p) and cos(2 pi p); a public holiday is 1, any
        other day 0; elapsed time is (instant - start) in days.
        """
        out = np.empty((len(time), len(self.names)))
        for at, cycle in enumerate(self.cycles):
            angle = 2.0 * np.pi * compute_cycle_phase(cycle, time[:, 1])
            out[:, 2 * at], out[:, 2 * at + 1] = np.sin(angle), np.cos(angle)
        if self.holidays:
            out[:, 2 * len(self.cycles)] = mark_holidays(self.holidays, time[:, 1])
        if self.has_elapsed_time:
            out[:, -1] = (time[:, 0] - self.start) / DAY_SECONDS
        return out

    def extend_times(self, time: FloatArray, steps: int) -> FloatArray:
        """Compute the times (steps, 2) that follow one time (2,).

        Steps of days or longer go by local time, shorter ones by instants. The offset from UTC is
        that of the zone if it is known, otherwise that of the given time.
        """
        ahead = np.arange(1, steps + 1)
        offset = float(time[1] - time[0])
        if self.step < DAY_SECONDS:
            instants = time[0] + ahead * self.step
        else:
            local = self._extend_days(float(time[1]), ahead)
            instants = (
                _convert_to_instants(local, self.zone, offset) if self.zone else local - offset
            )
        local = _convert_to_local(instants, self.zone, offset) if self.zone else instants + offset
        return np.stack((instants, local), axis=1)

    def _extend_days(self, local: float, ahead: IntArray) -> FloatArray:
        """Compute the local times that follow one by whole days, weekdays or months."""
        if self.weekdays and np.isfinite(local):
            day = np.datetime64(int(np.floor(local / DAY_SECONDS)), "D")
            later = np.busday_offset(day, ahead, roll="backward") - day
            return np.asarray(local + later.astype(np.float64) * DAY_SECONDS)
        if not self.months_per_step or self.even_weeks:
            return np.asarray(local + ahead * self.step)
        if not np.isfinite(local):
            return np.full(len(ahead), local)
        day = np.datetime64(int(np.floor(local / DAY_SECONDS)), "D")
        months = day.astype("datetime64[M]") + ahead * self.months_per_step
        wanted = self.month_day or int((day - day.astype("datetime64[M]")).astype(int)) + 1
        if self.month_end or self.month_weekdays:
            wanted = 31 if self.month_end else 1
        days = find_month_days(months, wanted, self.month_weekdays)
        return np.asarray(days.astype(np.float64) * DAY_SECONDS + local % DAY_SECONDS)


def _convert_to_local(instants: FloatArray, zone: str, offset: float) -> FloatArray:
    """Convert instants to the local time of a zone; `offset` holds where the zone is unknown."""
    import pyarrow as pa  # late: --help needs this module without it
    import pyarrow.compute as pc

    if not np.isfinite(instants).all():
        return instants + offset
    micros = np.round(instants * 1e6).astype(np.int64)
    try:
        local = pc.local_timestamp(pa.array(micros, pa.timestamp("us", tz=zone)))
    except pa.ArrowInvalid:
        return instants + offset
    ahead = local.cast(pa.int64()).to_numpy(zero_copy_only=False) - micros
    return np.asarray(instants + ahead / 1e6)


def _convert_to_instants(local: FloatArray, zone: str, offset: float) -> FloatArray:
    """Convert local times of a zone to instants; `offset` holds where the zone is unknown.

    A local time that the change to summer time skips becomes the first instant after it; of one
    that is repeated, the first is meant.
    """
    import pyarrow as pa  # late: --help needs this module without it
    import pyarrow.compute as pc

    if not np.isfinite(local).all():
        return local - offset
    micros = np.round(local * 1e6).astype(np.int64)
    try:
        instants = pc.assume_timezone(
            pa.array(micros, pa.timestamp("us")), zone, ambiguous="earliest", nonexistent="latest"
        )
    except pa.ArrowInvalid:
        return local - offset
    ahead = micros - instants.cast(pa.int64()).to_numpy(zero_copy_only=False)
    return np.asarray(local - ahead / 1e6)


MAX_SEASON_STEPS: Final = 1440
WEEKDAYS: Final = 5


def compute_cycle_phase(cycle: str, local: FloatArray) -> FloatArray:
    """Compute the phase of local times in a cycle, from 0 to 1; NaN where the time is missing."""
    known = np.isfinite(local)
    seconds = np.where(known, local, 0.0)
    if cycle != "year":
        length = CYCLES[cycle]
        begin = 4 * DAY_SECONDS if cycle == "week" else 0.0  # 1970 began on a Thursday
        found = np.mod(seconds - begin, length) / length
    else:
        year = np.floor(seconds).astype("datetime64[s]").astype("datetime64[Y]")
        first = year.astype("datetime64[s]").astype(np.float64)
        last = (year + 1).astype("datetime64[s]").astype(np.float64)
        found = (seconds - first) / (last - first)
    return np.where(known, found, np.nan)


def mark_holidays(country: str, local: FloatArray) -> FloatArray:
    """Return 1 for local times on a public holiday, 0 on other days, NaN where it is missing.

    Parameters
    ----------
    country
        Code of a country, with a subdivision after a dash: DE, US-CA.
    local
        Local times (n,), in seconds since 1970.

    Raises
    ------
    UsageError
        If the package `holidays` is not installed, or does not know the country.
    """
    known = np.isfinite(local)
    days, place = np.unique(np.floor(local[known] / DAY_SECONDS), return_inverse=True)
    calendar = _load_holidays(country)
    dates = days.astype(np.int64).astype("datetime64[D]").tolist()
    marks = np.array([float(day in calendar) for day in dates])
    found = np.full(len(local), np.nan)
    found[known] = marks[place] if len(marks) else 0.0
    return found


@lru_cache(maxsize=8)
def _load_holidays(country: str) -> Any:
    """Load the public holidays of a country."""
    try:
        import holidays
    except ImportError as error:
        raise UsageError(
            f"--holidays {country}: the package holidays is not installed. "
            "Install it with pip install 'kbnn[holidays]'."
        ) from error
    code, _, part = country.partition("-")
    try:
        return holidays.country_holidays(code, subdiv=part or None)
    except NotImplementedError:
        known = holidays.list_supported_countries()
        near = sorted(name for name in known if name.startswith(code[:1].upper()))
        shown = f"its regions are {', '.join(known[code])}" if code in known else ", ".join(near)
        raise UsageError(f"--holidays {country}: no such country or region ({shown})") from None


def name_time_columns(
    column: str, cycles: Sequence[str], elapsed: bool, taken: Sequence[str], holidays: bool = False
) -> list[str]:
    """Name the columns of x that a clock adds."""
    wanted = [f"{column} {cycle} {wave}" for cycle in cycles for wave in ("sin", "cos")]
    wanted += [f"{column} holiday"] if holidays else []
    wanted += [f"{column} elapsed"] if elapsed else []
    return [make_unique_name(name, taken) for name in wanted]


def make_unique_name(name: str, taken: Sequence[str]) -> str:
    """Append apostrophes to a name until no other column has it."""
    while name in taken:
        name += "'"
    return name


def find_month_days(months: DateArray, day: int, weekdays: bool = False) -> DateArray:
    """Return one day in each month: that with a number, the last one in shorter months.

    With `weekdays`, a Saturday or Sunday becomes the next weekday at the start of a month,
    otherwise the one before.
    """
    last = (months + 1).astype("datetime64[D]") - 1
    days: DateArray = np.minimum(months.astype("datetime64[D]") + (day - 1), last)
    if weekdays:
        days = np.busday_offset(days, 0, roll="forward" if day == 1 else "backward")
    return days


def format_times(clock: Clock, time: FloatArray) -> list[str]:
    """Format times (n, 2) in the way the stream writes them."""
    return [_format_time(clock, float(instant), float(local)) for instant, local in time]


def _format_time(clock: Clock, instant: float, local: float) -> str:
    if not np.isfinite(instant):
        return ""
    if clock.unit == "year":
        year = int(str(np.datetime64(int(np.floor(local)), "s").astype("datetime64[Y]")))
        return _format_number(year, 1, clock.layout)
    if clock.unit != "text":
        ticks = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[clock.unit]
        return _format_number(instant, ticks, clock.layout)
    if clock.layout and (written := format_layout(clock.layout, instant, local)):
        return written
    micros = np.datetime64(round(local * 1e6), "us")
    if clock.written in ("day", "month"):
        return str(micros.astype("datetime64[D]" if clock.written == "day" else "datetime64[M]"))
    text = str(micros.astype("datetime64[s]")) if round(local * 1e6) % 10**6 == 0 else str(micros)
    if not clock.zoned:
        return text
    return text + _format_offset(instant, local)


MAX_DECIMALS: Final = 6
"""Largest number of decimals with which numeric times are written."""


def _format_number(value: float, ticks: int, layout: str) -> str:
    """Format a value times the ticks per unit with the decimals of a layout, see `Clock`."""
    micros = Decimal(round(value * 1e6))  # times are exact to microseconds
    text = f"{micros.scaleb(-6) * ticks:.{max(len(layout) - 2, 0)}f}"
    return text.rstrip("0").rstrip(".") if layout.endswith("#") else text


def _format_offset(instant: float, local: float) -> str:
    """Format the offset of local time from UTC: +01:00."""
    minutes = round((local - instant) / 60.0)
    return f"{'-' if minutes < 0 else '+'}{abs(minutes) // 60:02d}:{abs(minutes) % 60:02d}"


MONTH_NAMES: Final = (
    *("January", "February", "March", "April", "May", "June", "July", "August", "September"),
    *("October", "November", "December"),
)
DAY_NAMES: Final = (
    *("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"),
)

_DATES: Final = (-62135596800.0, 253402300799.0)
"""The years 1 to 9999, in seconds since 1970."""


def format_layout(layout: str, instant: float, local: float) -> str:
    """Format a time in a layout, "" beyond the years 1 to 9999.

    A layout is a text with directives: %Y %y year, %m %n month, %B %b its name, %q quarter, %d %e
    day, %A %a its name, %H %h hour, %I %i hour of a half day, %p %P am or AM without the m, %M
    minute, %S second, %1 to %9 digits of its fraction, %f point and six digits, %F point and digits
    without zeros at the end (both nothing on a whole second), %z %Z %k offset as +01:00, +0100 or
    +01. Of two directives for a number the first has a leading zero. %^b is a name in upper case,
    %_b in lower case.
    """
    if not _DATES[0] <= local < _DATES[1]:
        return ""
    moment: datetime = np.datetime64(round(local * 1e6), "us").item()
    month, half = MONTH_NAMES[moment.month - 1], (moment.hour + 11) % 12 + 1
    day = DAY_NAMES[moment.weekday()]
    fraction = f".{moment.microsecond:06d}" if moment.microsecond else ""
    offset, noon = _format_offset(instant, local), "p" if moment.hour > 11 else "a"
    parts = {
        **{"Y": f"{moment.year:04d}", "y": f"{moment.year % 100:02d}", "B": month, "b": month[:3]},
        **{"q": str((moment.month + 2) // 3), "M": f"{moment.minute:02d}", "p": noon},
        **{"P": noon.upper(), "S": f"{moment.second:02d}"},
        **{"A": day, "a": day[:3], "f": fraction, "F": fraction.rstrip("0")},
        **{"z": offset, "Z": offset.replace(":", ""), "k": offset[:3]},
        **{str(k): f"{moment.microsecond:06d}000"[:k] for k in range(1, 10)},
    }
    for padded, plain, value in (
        *(("m", "n", moment.month), ("d", "e", moment.day)),
        *(("H", "h", moment.hour), ("I", "i", half)),
    ):
        parts[padded], parts[plain] = f"{value:02d}", str(value)
    cases: dict[str, Callable[[str], str]] = {"": str, "^": str.upper, "_": str.lower}
    return re.sub(r"%([\^_]?)(.)", lambda found: cases[found[1]](parts.get(found[2], "")), layout)
