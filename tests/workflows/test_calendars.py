"""Forecasts continue the calendar of a series, and write times as the series does."""

from __future__ import annotations

import csv
import io
from datetime import date, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

import kbnn
from tests.commands import kbnn as command

ROWS = 60


def list_days(start: date, step: int, form: str) -> list[str]:
    return [(start + timedelta(days=step * k)).strftime(form) for k in range(ROWS)]


def list_hours(form: str) -> list[str]:
    start = datetime(2024, 1, 3, 1)
    return [(start + timedelta(hours=k)).strftime(form) for k in range(ROWS)]


def list_weekdays(form: str) -> list[str]:
    days = np.busday_offset(np.datetime64("2023-10-16"), np.arange(ROWS)).astype(object)
    return [day.strftime(form) for day in days]


def list_months(form: str, start: str = "2010-01", every: int = 1, end: bool = False) -> list[str]:
    months = np.datetime64(start) + every * np.arange(ROWS)
    days = (months + 1).astype("datetime64[D]") - 1 if end else months.astype("datetime64[D]")
    return [day.strftime(form) for day in days.astype(object)]


def list_zoned_hours() -> list[str]:
    """Summer time begins: 01:00 of +01:00 is followed by 03:00 of +02:00."""
    change, out = datetime(2024, 3, 31, 1), []
    for k in range(ROWS):
        utc = datetime(2024, 3, 29) + timedelta(hours=k)
        ahead = 2 if utc >= change else 1
        out.append((utc + timedelta(hours=ahead)).strftime("%Y-%m-%d %H:%M") + f"+0{ahead}:00")
    return out


CALENDARS = {
    "hours": (list_hours("%Y-%m-%d %H:%M"), ["2024-01-05 13:00", "2024-01-05 14:00"]),
    "hours of a half day": (list_hours("%m/%d/%Y %I:%M %p"), ["01/05/2024 01:00 PM"]),
    "summer time": (list_zoned_hours(), ["2024-03-31 14:00+02:00", "2024-03-31 15:00+02:00"]),
    "epoch": ([str(1704243600 + 3600 * k) for k in range(ROWS)], ["1704459600", "1704463200"]),
    "days": (list_days(date(2024, 1, 3), 1, "%d.%m.%Y"), ["03.03.2024", "04.03.2024"]),
    "weeks": (list_days(date(2023, 1, 6), 7, "%d %b %Y"), ["01 Mar 2024", "08 Mar 2024"]),
    "four weeks": (list_days(date(2020, 1, 1), 28, "%Y-%m-%d"), ["2024-08-07", "2024-09-04"]),
    "business days": (list_weekdays("%m/%d/%Y"), ["01/08/2024", "01/09/2024"]),
    "months": (list_months("%b %Y"), ["Jan 2015", "Feb 2015"]),
    "month ends": (list_months("%d/%m/%Y", end=True), ["31/01/2015", "28/02/2015"]),
    "quarters": (
        [f"{2010 + k // 4}Q{k % 4 + 1}" for k in range(ROWS)],
        ["2025Q1", "2025Q2"],
    ),
    "quarter ends": (
        list_months("%Y-%m-%d", "2010-03", 3, end=True),
        ["2025-03-31", "2025-06-30"],
    ),
    "digits": (list_days(date(2024, 1, 3), 1, "%Y%m%d"), ["20240303", "20240304"]),
}


def write(path: Path, times: list[str]) -> Path:
    values = 10.0 + np.sin(np.arange(len(times))) + 0.1 * np.arange(len(times))
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([("time", "y"), *zip(times, values.round(3), strict=True)])
    return path


@pytest.mark.parametrize("name", CALENDARS)
def test_forecasts_continue_the_calendar_as_it_is_written(name: str, tmp_path: Path) -> None:
    times, later = CALENDARS[name]
    model = tmp_path / "m.npz"
    words = ("--layers", "2", "-m", model, "-q")
    assert command("train", write(tmp_path / "s.csv", times), "--target", "y", *words).code == 0
    ran = command("predict", model, "--horizon", str(len(later)))
    assert ran.code == 0, ran.err
    assert [row["time"] for row in csv.DictReader(io.StringIO(ran.out))] == later
    made = kbnn.load(model).forecast(len(later))
    assert list(made.when) == later
    typed = made.to_arrow()["time"].to_pylist()
    assert len(set(typed)) == len(later)
    assert None not in typed


def test_irregular_steps_are_forecast_at_the_median_step_or_at_given_times(tmp_path: Path) -> None:
    minutes = np.cumsum(np.random.default_rng(0).integers(1, 600, ROWS))
    start = datetime(2024, 1, 3)
    times = [(start + timedelta(minutes=int(k))).strftime("%Y-%m-%d %H:%M") for k in minutes]
    model = tmp_path / "m.npz"
    words = ("--lags", "1", "--layers", "2", "-m", model, "-q")
    assert command("train", write(tmp_path / "s.csv", times), "--target", "y", *words).code == 0
    ran = command("predict", model, "--horizon", "2")
    found = [row["time"] for row in csv.DictReader(io.StringIO(ran.out))]
    first, second = (datetime.strptime(text, "%Y-%m-%d %H:%M") for text in found)
    step = timedelta(minutes=float(np.median(np.diff(minutes[:32]))))
    assert second - first == step
    assert first - datetime.strptime(times[-1], "%Y-%m-%d %H:%M") == step
    future = tmp_path / "future.csv"
    future.write_text("time\n2024-02-20 10:00\n2024-02-20 21:30\n")
    ran = command("predict", model, future, "--horizon", "2")
    assert ran.code == 0, ran.err
    found = [row["time"] for row in csv.DictReader(io.StringIO(ran.out))]
    assert found == ["2024-02-20 10:00", "2024-02-20 21:30"]
