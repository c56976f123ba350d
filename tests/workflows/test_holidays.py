"""Public holidays as an input of the clock."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kbnn
from kbnn.data.clock import mark_holidays
from kbnn.errors import UsageError

holidays = pytest.importorskip("holidays")

DAYS = 1400


def series() -> dict[str, Any]:
    """Daily sales that fall by 40 on German public holidays."""
    rng = np.random.default_rng(2)
    day = np.datetime64("2019-01-01") + np.arange(DAYS)
    calendar = holidays.country_holidays("DE")
    closed = np.array([date in calendar for date in day.tolist()])
    sales = 100.0 + 5.0 * np.sin(np.arange(DAYS) * 2 * np.pi / 7) - 40.0 * closed
    return {"day": day.astype(str).tolist(), "sales": sales + rng.standard_normal(DAYS)}


def test_holidays_are_those_of_the_country_and_region() -> None:
    dates = np.array(
        ["2024-10-03", "2024-10-04", "2024-11-01", "NaT"], dtype="datetime64[D]"
    ).astype(np.float64)
    seconds = np.where(np.arange(4) == 3, np.nan, dates * 86400.0 + 3600.0)
    np.testing.assert_array_equal(mark_holidays("DE", seconds), [1.0, 0.0, 0.0, np.nan])
    np.testing.assert_array_equal(mark_holidays("DE-BY", seconds), [1.0, 0.0, 1.0, np.nan])


def test_a_forecast_knows_the_next_holiday() -> None:
    data = series()
    plain = kbnn.train(data, target="sales", layers=20, robust=False)
    model = kbnn.train(data, target="sales", layers=20, robust=False, holidays="DE")
    assert model.record()["rmse"] < 0.7 * plain.record()["rmse"]
    last = np.datetime64(data["day"][-1])
    forecast = model.forecast(90)
    calendar = holidays.country_holidays("DE")
    days = [(last + 1 + k).tolist() for k in range(90)]
    closed = np.array([day in calendar for day in days])
    mean = np.asarray(forecast.mean)
    assert closed.any()
    assert np.mean(mean[closed]) < np.mean(mean[~closed]) - 33.0


def test_a_saved_model_continues_bit_for_bit(tmp_path: Path) -> None:
    data = series()
    whole = kbnn.train(data, target="sales", layers=5, holidays="DE")
    model = kbnn.train(
        {name: values[:600] for name, values in data.items()},
        target="sales",
        layers=5,
        holidays="DE",
    )
    model.save(tmp_path / "m.npz")
    again = kbnn.load(tmp_path / "m.npz")
    again.learn({name: values[600:] for name, values in data.items()})
    np.testing.assert_array_equal(again.forecast(30).mean, whole.forecast(30).mean)


@pytest.mark.parametrize(
    ("country", "words"),
    [("ZZ", "no such country or region"), ("DE-QQ", "its regions are BB, BE")],
)
def test_unknown_countries_are_refused(country: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        kbnn.train(series(), target="sales", holidays=country)


def test_without_a_clock_there_are_no_holidays() -> None:
    with pytest.raises(UsageError, match="needs a time column"):
        kbnn.train({"x": [1.0, 2.0] * 40, "y": list(range(80))}, holidays="DE")


def test_without_the_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from kbnn.data import clock

    data = series()
    clock._load_holidays.cache_clear()
    monkeypatch.setitem(sys.modules, "holidays", None)
    with pytest.raises(UsageError, match=r"pip install 'kbnn\[holidays\]'"):
        kbnn.train(data, target="sales", holidays="FR")
