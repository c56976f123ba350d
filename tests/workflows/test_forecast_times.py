"""Forecasts write times in the form of the input, and they are the right instants."""

from __future__ import annotations

import csv
import io
from calendar import monthrange
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import kbnn
from tests.commands import kbnn as command

ROWS, AHEAD = 60, 3
CET = timezone(timedelta(hours=1))
BERLIN = ZoneInfo("Europe/Berlin")


def step_by(start: datetime, **step: float) -> list[datetime]:
    return [start + k * timedelta(**step) for k in range(ROWS + AHEAD)]


HOURS = step_by(datetime(2026, 3, 13, 15, 9), hours=1)
DAYS = step_by(datetime(2026, 1, 1, tzinfo=CET), days=1)
MONTHS = [datetime(2020 + k // 12, k % 12 + 1, 1, tzinfo=CET) for k in range(ROWS + AHEAD)]
TENTHS = step_by(datetime(2026, 3, 13, 15, 9), milliseconds=100)


def write_half_day(when: datetime) -> str:
    return f"{when.month}/{when.day}/{when:%Y} {when.hour % 12 or 12}:{when:%M %p}"


def write_epoch(per_second: int) -> Callable[[datetime], str]:
    return lambda when: str(round(when.replace(tzinfo=UTC).timestamp() * 10) * per_second // 10)


FORMS: dict[str, tuple[list[datetime], str | Callable[[datetime], str]]] = {
    "ISO 8601": (HOURS, "%Y-%m-%dT%H:%M:%S"),
    "ISO 8601 in UTC": (HOURS, "%Y-%m-%dT%H:%M:%SZ"),
    "ISO 8601 with an offset": (HOURS, "%Y-%m-%d %H:%M:%S-05:00"),
    "short offset": (HOURS, "%Y-%m-%dT%H:%M:%S+01"),
    "name of UTC": (HOURS, "%Y-%m-%d %H:%M UTC"),
    "slashes": (HOURS, "%Y/%m/%d %H:%M"),
    "points": (HOURS, "%d.%m.%Y %H:%M"),
    "half days": (HOURS, write_half_day),
    "month names": (HOURS, "%d %b %Y %H:%M"),
    "lower case": (HOURS, lambda when: f"{when:%d %b %Y %H:%M}".lower()),
    "upper case": (HOURS, lambda when: f"{when:%d-%b-%Y %H:%M}".upper()),
    "weekdays": (HOURS, "%a, %d %b %Y %H:%M"),
    "long names": (HOURS, "%A, %d %B %Y %H:%M"),
    "mail": (HOURS, "%a, %d %b %Y %H:%M:%S GMT"),
    "years of two digits": (HOURS, "%d-%b-%y %H:%M"),
    "digits": (HOURS, "%Y%m%dT%H%M%S"),
    "digits and Z": (HOURS, "%Y%m%dT%H%M%SZ"),
    "zero milliseconds": (HOURS, "%Y-%m-%dT%H:%M:%S.000Z"),
    "zero microseconds": (HOURS, "%Y-%m-%dT%H:%M:%S.000000+00:00"),
    "milliseconds": (TENTHS, lambda when: when.isoformat(timespec="milliseconds")),
    "microseconds, if any": (TENTHS, datetime.isoformat),
    "microseconds after a space, if any": (TENTHS, str),
    "fractions without zeros at the end": (
        TENTHS,
        lambda when: when.isoformat(timespec="milliseconds").rstrip("0").rstrip("."),
    ),
    "comma": (TENTHS, lambda when: f"{when:%Y-%m-%d %H:%M:%S},{when.microsecond // 1000:03d}"),
    "days": (DAYS, "%Y-%m-%d"),
    "midnights": (DAYS, "%Y-%m-%dT00:00:00"),
    "midnights to the minute": (DAYS, "%d.%m.%Y 00:00"),
    "midnights with an offset": (DAYS, "%Y-%m-%dT00:00:00+01:00"),
    "midnights as in mails": (DAYS, "%a, %d %b %Y 00:00:00 +0100"),
    "days with names": (DAYS, "%B %d, %Y"),
    "days with weekdays": (DAYS, "%a, %d %b %Y"),
    "days, months first": (DAYS, "%m/%d/%Y"),
    "days without zeros": (DAYS, lambda when: f"{when.day}.{when.month}.{when.year}"),
    "days in years of two digits": (DAYS, "%d-%b-%y"),
    "days in digits": (DAYS, "%Y%m%d"),
    "months": (MONTHS, "%Y-%m"),
    "months by name": (MONTHS, "%b %Y"),
    "months with an offset": (MONTHS, "%Y-%m-%dT00:00:00+01:00"),
    "epoch s": (HOURS, write_epoch(1)),
    "epoch ms": (TENTHS, write_epoch(10**3)),
    "epoch us": (TENTHS, write_epoch(10**6)),
    "epoch ns": (TENTHS, write_epoch(10**9)),
    "epoch s with a decimal": (HOURS, lambda when: write_epoch(1)(when) + ".0"),
}


def write_csv(path: Path, times: list[str]) -> Path:
    values = 10.0 + np.sin(np.arange(len(times))) + 0.1 * np.arange(len(times))
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([("time", "y"), *zip(times, values.round(3), strict=True)])
    return path


@pytest.mark.parametrize("name", FORMS)
def test_every_form_of_times_comes_back(name: str, tmp_path: Path) -> None:
    moments, form = FORMS[name]
    times = [each.strftime(form) if isinstance(form, str) else form(each) for each in moments]
    source = write_csv(tmp_path / "s.csv", times[:ROWS])
    assert kbnn.train(source, layers=2).forecast(AHEAD).when == times[ROWS:]


def test_decimals_of_numeric_times_come_back(tmp_path: Path) -> None:
    times = [f"{1773414540 + k / 2:.12g}" for k in range(ROWS + AHEAD)]
    source = write_csv(tmp_path / "s.csv", times[:ROWS])
    made = kbnn.train(source, layers=2, time="time").forecast(AHEAD)
    assert made.when == times[ROWS:]
    years = [str(1900 + k) for k in range(ROWS + AHEAD)]
    source = write_csv(tmp_path / "s.csv", years[:ROWS])
    assert kbnn.train(source, layers=2, time="time").forecast(AHEAD).when == years[ROWS:]


def list_berlin_days(start: datetime) -> list[datetime]:
    naive = [start + timedelta(days=k) for k in range(ROWS + AHEAD)]
    return [each.replace(tzinfo=BERLIN) for each in naive]


def list_berlin_hours(start: datetime) -> list[datetime]:
    first = start.replace(tzinfo=BERLIN).astimezone(UTC)
    return [(first + timedelta(hours=k)).astimezone(BERLIN) for k in range(ROWS + AHEAD)]


@pytest.mark.parametrize(
    "moments",
    [
        list_berlin_days(datetime(2026, 3, 10)),  # summer time begins in the first rows
        list_berlin_days(datetime(2026, 2, 10)),  # and in later ones
        list_berlin_hours(datetime(2026, 3, 28)),
        list_berlin_hours(datetime(2026, 3, 27, 2)),
    ],
)
def test_texts_continue_with_the_last_offset(moments: list[datetime], tmp_path: Path) -> None:
    times = [each.isoformat() for each in moments]
    source = write_csv(tmp_path / "s.csv", times[:ROWS])
    assert kbnn.train(source, layers=2).forecast(AHEAD).when == times[ROWS:]


def test_an_offset_in_texts_does_not_change_ahead(tmp_path: Path) -> None:
    times = [each.isoformat() for each in list_berlin_days(datetime(2026, 1, 28))]
    source = write_csv(tmp_path / "s.csv", times[:ROWS])
    made = kbnn.train(source, layers=2).forecast(AHEAD).when
    assert made == [f"2026-03-{day}T00:00:00+01:00" for day in (29, 30, 31)]


def read_utc(made: kbnn.Forecasts) -> list[Any]:
    return [each.astimezone(UTC) for each in made.to_arrow()["time"].to_pylist()]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize(
    "moments",
    [
        list_berlin_days(datetime(2026, 1, 28)),  # the steps ahead cross to summer time
        list_berlin_days(datetime(2026, 8, 25)),  # and back
        list_berlin_hours(datetime(2026, 3, 26, 13)),
        list_berlin_hours(datetime(2026, 10, 22, 14)),
    ],
)
def test_a_named_zone_is_followed(unit: str, moments: list[datetime], tmp_path: Path) -> None:
    kind = pa.timestamp(unit, "Europe/Berlin")
    y = 10.0 + np.sin(np.arange(ROWS))
    table = pa.table({"time": pa.array(moments[:ROWS], kind), "y": y})
    pq.write_table(table, tmp_path / "s.parquet")
    for source in (table, tmp_path / "s.parquet"):
        made = kbnn.train(source, layers=2).forecast(AHEAD)
        instants = [each.astimezone(UTC) for each in moments[ROWS:]]
        assert read_utc(made) == instants
        assert made.when == [each.astimezone(BERLIN).isoformat() for each in instants]


def test_a_local_time_that_is_skipped_becomes_the_end_of_the_gap() -> None:
    moments = list_berlin_days(datetime(2026, 1, 28, 2, 30))[:ROWS]
    kind = pa.timestamp("us", "Europe/Berlin")
    table = pa.table({"time": pa.array(moments, kind), "y": np.sin(np.arange(ROWS))})
    assert kbnn.train(table, layers=2).forecast(2).when == [
        "2026-03-29T03:00:00+02:00",
        "2026-03-30T02:30:00+02:00",
    ]


def test_typed_times_without_a_zone_are_iso_8601() -> None:
    for moments, when in (
        (HOURS, [each.isoformat() for each in HOURS[ROWS:]]),
        ([d.replace(tzinfo=None) for d in DAYS], [d.date().isoformat() for d in DAYS[ROWS:]]),
        ([d.date() for d in DAYS], [d.date().isoformat() for d in DAYS[ROWS:]]),
        (TENTHS, [each.isoformat() for each in TENTHS[ROWS:]]),
    ):
        table = pa.table({"time": pa.array(moments[:ROWS]), "y": np.sin(np.arange(ROWS))})
        assert kbnn.train(table, layers=2).forecast(AHEAD).when == when


def test_the_table_of_predict_has_the_times_of_the_input(tmp_path: Path) -> None:
    times = [f"{each:%Y-%m-%dT00:00:00+01:00}" for each in DAYS]
    model = tmp_path / "m.npz"
    source = write_csv(tmp_path / "s.csv", times[:ROWS])
    assert command("train", source, "--layers", "2", "-m", model, "-q").code == 0
    ran = command("predict", model, "--horizon", str(AHEAD))
    assert [row["time"] for row in csv.DictReader(io.StringIO(ran.out))] == times[ROWS:]


FREQUENCIES = {
    **{f"W-{day}": "2022-01-01" for day in ("MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN")},
    **dict.fromkeys(("B", "2D", "2W", "4W", "13W", "52W"), "1990-01-01"),
    **dict.fromkeys(("MS", "BMS", "ME", "BME", "2MS", "2ME"), "2010-01-01"),
    **dict.fromkeys(("QS", "BQS", "QE", "BQE", "QE-NOV"), "2000-01-01"),
    **dict.fromkeys(("YS", "BYS", "YE", "BYE", "YE-JUN"), "1940-01-01"),
}


@pytest.mark.parametrize("frequency", FREQUENCIES)
@pytest.mark.parametrize("rows", [ROWS, ROWS + 5])
def test_forecasts_continue_the_dates_of_pandas(frequency: str, rows: int) -> None:
    pandas = pytest.importorskip("pandas")
    start, ahead = FREQUENCIES[frequency], 14
    dates = pandas.date_range(start, periods=rows + ahead, freq=frequency)
    times = dates.strftime("%Y-%m-%d").to_list()
    made = kbnn.train({"time": times[:rows], "y": np.sin(np.arange(rows))}, layers=2)
    assert made.forecast(ahead).when == times[rows:]


@pytest.mark.parametrize("day", [29, 30])
@pytest.mark.parametrize("rows", [ROWS, ROWS + 2])
def test_a_day_past_the_end_of_february_comes_back(day: int, rows: int) -> None:
    dates = []
    for k in range(rows + AHEAD):
        year, month = 2010 + k // 12, k % 12 + 1
        dates.append(f"{year}-{month:02d}-{min(day, monthrange(year, month)[1]):02d}")
    made = kbnn.train({"time": dates[:rows], "y": np.sin(np.arange(rows))}, layers=2)
    assert made.forecast(AHEAD).when == dates[rows:]


@pytest.mark.parametrize("clock", ["step", "mean", "sd", "lower", "upper", "time", "kbnn_step"])
def test_output_columns_have_different_names(clock: str, tmp_path: Path) -> None:
    times = [f"{each:%Y-%m-%d %H:%M}" for each in HOURS]
    y = np.sin(np.arange(ROWS)).tolist()
    with (tmp_path / "s.csv").open("w", newline="") as file:
        rows = zip(times, y, strict=False)
        csv.writer(file).writerows([(clock, "y"), *rows])
    model = tmp_path / "m.npz"
    ran = command("train", tmp_path / "s.csv", "--target", "y", "--layers", "2", "-m", model, "-q")
    assert ran.code == 0
    table = command("predict", model, "--horizon", "2").out.splitlines()
    usual = ["mean", "sd", "lower", "upper"]
    taken = [f"kbnn_{name}" if name == clock else name for name in ("step", *usual)]
    assert table[0].split(",") == [taken[0], clock, *taken[1:]]
    assert table[1].split(",")[:2] == ["1", times[ROWS]]
    made = kbnn.load(model).forecast(2)
    names = made.to_arrow().schema.names
    assert len(set(names)) == len(names) == 5
    assert made.when == times[ROWS : ROWS + 2]


@pytest.mark.parametrize(
    ("key", "clock", "leading"),
    [
        ("site", "step", ["site", "kbnn_step", "step"]),
        ("step", "time", ["step", "kbnn_step", "time"]),
        ("mean", "sd", ["mean", "step", "sd"]),
        ("step", "kbnn_step", ["step", "kbnn_kbnn_step", "kbnn_step"]),
    ],
)
def test_columns_of_a_fleet_have_different_names(
    key: str, clock: str, leading: list[str], tmp_path: Path
) -> None:
    times = [f"{each:%Y-%m-%d %H:%M}" for each in HOURS]
    with (tmp_path / "s.csv").open("w", newline="") as file:
        rows = [(site, times[k], np.sin(k)) for k in range(ROWS) for site in ("north", "south")]
        csv.writer(file).writerows([(key, clock, "y"), *rows])
    words = ("--target", "y", "--key", key, "--layers", "2", "-m", tmp_path / "fleet", "-q")
    assert command("train", tmp_path / "s.csv", *words).code == 0
    table = [line.split(",") for line in command("predict", tmp_path / "fleet", "--horizon", "1")
             .out.splitlines()]  # fmt: skip
    assert table[0][:3] == leading
    assert len(set(table[0])) == len(table[0]) == 7
    assert [row[:3] for row in table[1:]] == [
        ["north", "1", times[ROWS]],
        ["south", "1", times[ROWS]],
    ]
