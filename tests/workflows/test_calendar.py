"""Calendars: the season, the lags and the times of forecasts of many kinds of clocks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kbnn
from kbnn.data.dataset import open_stream

pandas = pytest.importorskip("pandas")

CASES: dict[str, tuple[str, str, int, str, int, list[str]]] = {
    "business days": ("2024-01-01", "B", 120, "%Y-%m-%d", 5,
                      ["2024-06-17", "2024-06-18", "2024-06-19", "2024-06-20", "2024-06-21",
                       "2024-06-24"]),
    "business days to Friday": ("2024-01-01", "B", 125, "%Y-%m-%d", 5,
                                ["2024-06-24", "2024-06-25"]),
    "days": ("2024-01-01", "D", 120, "%Y-%m-%d", 7, ["2024-04-30", "2024-05-01"]),
    "weeks": ("2020-01-05", "W", 120, "%Y-%m-%d", 52, ["2022-04-24", "2022-05-01"]),
    "months": ("2010-01-01", "MS", 121, "%Y-%m", 12, ["2020-02", "2020-03"]),
    "month starts": ("2010-01-01", "MS", 121, "%Y-%m-%d", 12, ["2020-02-01", "2020-03-01"]),
    "month ends": ("2010-01-31", "ME", 122, "%Y-%m-%d", 12, ["2020-03-31", "2020-04-30"]),
    "the 30th": ("2010-01-30", "30", 96, "%Y-%m-%d", 12, ["2018-01-30", "2018-02-28",
                                                          "2018-03-30"]),
    "quarters": ("1990-01-01", "QS", 120, "%Y-%m-%d", 4, ["2020-01-01", "2020-04-01"]),
    "quarter ends": ("1990-03-31", "QE", 120, "%Y-%m-%d", 4, ["2020-03-31", "2020-06-30"]),
    "hours": ("2024-02-28", "h", 60, "%Y-%m-%dT%H:%M:%S", 24, ["2024-03-01T12:00:00"]),
    "half hours": ("2024-02-28", "30min", 120, "%Y-%m-%dT%H:%M:%S", 48, ["2024-03-01T12:00:00"]),
}  # fmt: skip


def make_dates(start: str, freq: str, rows: int) -> Any:
    if freq != "30":
        return pandas.date_range(start, periods=rows, freq=freq)
    months = pandas.date_range(start[:7], periods=rows, freq="MS")
    return [m + pandas.Timedelta(days=min(30, m.days_in_month) - 1) for m in months]


@pytest.mark.parametrize("case", CASES)
def test_forecasts_follow_the_calendar(case: str) -> None:
    start, freq, rows, form, season, expected = CASES[case]
    dates = make_dates(start, freq, rows)
    times = [when.strftime(form) for when in dates]
    phase = 2.0 * np.pi * np.arange(rows) / season
    y = 10.0 + np.sin(phase) + 0.1 * np.random.default_rng(0).normal(size=rows)
    model: Any = kbnn.train({"time": times, "y": y.tolist()}, target="y", layers=4)
    clock = model._model.schema.clock
    assert clock.season_steps == season
    assert season in [lag.rows for lag in model._model.schema.lags]
    made = model.forecast(len(expected))
    assert made.when == expected
    assert np.isfinite(made.sd).all()


def test_weekends_are_no_gaps_and_holidays_are() -> None:
    notices: list[str] = []
    dates = pandas.bdate_range("2024-01-01", periods=100)
    for days in (dates, dates.delete(50)):
        table = {"time": [str(d.date()) for d in days], "y": np.arange(len(days)) % 7.0}
        with open_stream([table], on_notice=notices.append) as stream:
            for _ in stream:
                pass
    assert sum("there is a time gap" in text for text in notices) == 1
