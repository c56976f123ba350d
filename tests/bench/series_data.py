"""The series of `tests.bench.series`: public ones that ship with packages, and made ones.

The list was fixed before anything was measured. Constants of the model are chosen on the series at
even places (`role` "choose") and reported on those at odd places ("report").
"""

from __future__ import annotations

import csv
import os
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


class Series(NamedTuple):
    """A series as a file holds it; `others` are columns beside the target."""

    name: str
    season: int  # rows per season for the naive forecast, 0 without one
    time_column: str
    times: list[str]
    values: Floats
    role: str = "choose"
    others: dict[str, Floats] = {}  # noqa: RUF012

    def take(self, start: int, stop: int) -> dict[str, Any]:
        """Return rows as columns."""
        columns: dict[str, Any] = {self.time_column: self.times[start:stop]}
        for name, values in self.others.items():
            columns[name] = values[start:stop].tolist()
        columns["value"] = self.values[start:stop].tolist()
        return columns

    def write(self, folder: str, start: int = 0) -> str:
        """Write the series from a row on as a file, and return its path."""
        path = os.path.join(folder, "series.csv")
        columns = self.take(start, len(self.values))
        with open(path, "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(columns)
            writer.writerows(zip(*columns.values(), strict=True))
        return path


def load_series() -> list[Series]:
    """Load all series, each with its role."""
    makers = [*_PUBLIC, *_MADE]
    return [
        make()._replace(role="choose" if at % 2 == 0 else "report")
        for at, make in enumerate(makers)
    ]


def _series(name: str, season: int, times: Any, values: Any, column: str = "time") -> Series:
    return Series(name, season, column, [str(t) for t in times], np.asarray(values, np.float64))


def _dates(start: str, rows: int, freq: str) -> list[str]:
    import pandas as pd

    index = pd.date_range(start, periods=rows, freq=freq)
    return [str(t) for t in (index if freq[-1] in "hn" else index.date)]


def _statsmodels(name: str) -> Any:
    import statsmodels.api as sm

    return getattr(sm.datasets, name).load_pandas().data


def _vega(name: str) -> Any:
    import vega_datasets

    return getattr(vega_datasets.local_data, name)()


def _sktime(name: str) -> Any:
    import pandas as pd
    import sktime

    folder = os.path.join(os.path.dirname(str(sktime.__file__)), "datasets", "data")
    return pd.read_csv(os.path.join(folder, name, f"{name}.csv"))


def _airline() -> Series:
    from river import datasets

    rows = list(datasets.AirlinePassengers())
    return _series("airline", 12, [x["month"].strftime("%Y-%m") for x, _ in rows],
                   [y for _, y in rows])  # fmt: skip


def _water_flow() -> Series:
    from river import datasets

    rows = list(datasets.WaterFlow())
    return _series("water flow", 24, [x["Time"] for x, _ in rows], [y for _, y in rows])


def _approval() -> Series:
    from datetime import date

    from river import datasets

    rows = list(datasets.TrumpApproval())
    return _series("approval", 7, [date.fromordinal(x["ordinal_date"]) for x, _ in rows],
                   [y for _, y in rows])  # fmt: skip


def _co2_monthly() -> Series:
    found = _statsmodels("co2")["co2"].resample("MS").mean().ffill().round(3)
    return _series("CO2 monthly", 12, found.index.date, found)


def _co2_weekly() -> Series:
    found = _statsmodels("co2")["co2"].ffill()
    return _series("CO2 weekly", 52, found.index.date, found)


def _sunspots() -> Series:
    found = _statsmodels("sunspots")
    return _series("sunspots", 0, found["YEAR"].astype(int), found["SUNACTIVITY"], "year")


def _el_nino() -> Series:
    found = _statsmodels("elnino").to_numpy()[:, 1:].ravel()
    return _series("El Nino", 12, _dates("1950-01-01", len(found), "MS"), found)


def _nile() -> Series:
    found = _statsmodels("nile")
    return _series("Nile", 0, found["year"].astype(int), found["volume"], "year")


def _macro(name: str, column: str) -> Series:
    found = _statsmodels("macrodata")[column]
    return _series(name, 4, _dates("1959-01-01", len(found), "QS"), found)


def _weather(name: str, column: str) -> Series:
    found = _vega("seattle_weather")
    return _series(name, 7, found["date"].dt.date, found[column])


def _temperatures(name: str, source: str) -> Series:
    found = _vega(source)
    return _series(name, 24, found["date"], found["temp"])


def _stock(symbol: str) -> Series:
    found = _vega("stocks")
    found = found[found["symbol"] == symbol]
    return _series(f"{symbol} monthly", 12, found["date"].dt.date, found["price"])


def _employment() -> Series:
    found = _vega("us_employment")
    return _series("employment", 12, found["month"], found["nonfarm"])


def _pmdarima(name: str, season: int, start: str, freq: str) -> Series:
    import pmdarima.datasets

    found = getattr(pmdarima.datasets, f"load_{name}")()
    return _series(name, season, _dates(start, len(found), freq), found)


def _microsoft(column: str, name: str) -> Series:
    import pmdarima.datasets

    found = pmdarima.datasets.load_msft().iloc[-3000:]
    return _series(name, 5, found["Date"], found[column])


def _solar() -> Series:
    found = _sktime("solar")
    return _series("solar", 48, found["datetime_gmt"], found["solar_gen"])


def _yahoo() -> Series:
    found = _sktime("yahoo")
    return _series("yahoo", 24, _dates("2020-01-01", len(found), "h"), found["data"])


def _seat_belts() -> Series:
    found = _sktime("seatbelts")
    return _series("seat belts", 12, found.iloc[:, 0], found["KSI"])


_PUBLIC: list[Callable[[], Series]] = [
    _airline,
    _water_flow,
    _approval,
    _co2_monthly,
    _co2_weekly,
    _sunspots,
    _el_nino,
    _nile,
    lambda: _macro("real GDP", "realgdp"),
    lambda: _macro("unemployment", "unemp"),
    lambda: _weather("Seattle", "temp_max"),
    lambda: _weather("Seattle wind", "wind"),
    lambda: _temperatures("San Francisco", "sf_temps"),
    lambda: _temperatures("Seattle hourly", "seattle_temps"),
    lambda: _stock("MSFT"),
    _employment,
    lambda: _pmdarima("ausbeer", 4, "1956-01-01", "QS"),
    lambda: _pmdarima("wineind", 12, "1980-01-01", "MS"),
    lambda: _microsoft("Close", "MSFT daily"),
    lambda: _microsoft("Volume", "MSFT volume"),
    _solar,
    _yahoo,
    _seat_belts,
]


def _random_walk(rows: int, freq: str, season: int, name: str, seed: int) -> Series:
    noise = np.random.default_rng([seed, 1]).standard_normal(rows)
    return _series(name, season, _dates("2020-01-01", rows, freq), 100.0 + np.cumsum(noise))


def _make_hourly(seed: int, rows: int) -> tuple[Floats, Floats, np.random.Generator]:
    """Return the row numbers, a daily and weekly pattern, and a generator."""
    generator = np.random.default_rng([seed, 2])
    t = np.arange(rows, dtype=np.float64)
    day = np.sin(2 * np.pi * t / 24) + 0.5 * np.cos(4 * np.pi * t / 24 + 1.0)
    week = np.where((t // 24) % 7 < 5, 1.0, 0.5)
    return t, day * week, generator


def _ar1(generator: np.random.Generator, rows: int, phi: float, sd: float) -> Floats:
    out, noise = np.zeros(rows), sd * generator.standard_normal(rows)
    for k in range(1, rows):
        out[k] = phi * out[k - 1] + noise[k]
    return out


def _drifting_level() -> Series:
    t, pattern, generator = _make_hourly(1, 4000)
    level = np.cumsum(0.08 * generator.standard_normal(len(t)))
    values = 20.0 + 2.0 * pattern + level + 0.3 * generator.standard_normal(len(t))
    return _series("drifting level", 24, _dates("2021-01-01", len(t), "h"), values)


def _mean_reverting() -> Series:
    _, _, generator = _make_hourly(2, 3000)
    return _series("mean reverting", 24, _dates("2021-01-01", 3000, "h"),
                   5.0 + _ar1(generator, 3000, 0.9, 1.0))  # fmt: skip


def _business_days() -> Series:
    _, _, generator = _make_hourly(3, 1500)
    weekday = np.tile([0.0, 1.5, 2.0, 1.0, -3.0], 300)
    values = 50.0 + weekday + _ar1(generator, 1500, 0.98, 0.7)
    return _series("business days", 5, _dates("2019-01-01", 1500, "B"), values)


def _heavy_tails() -> Series:
    t, pattern, generator = _make_hourly(4, 3000)
    values = 10.0 + 3.0 * pattern + 0.5 * generator.standard_t(2.5, len(t))
    return _series("heavy tails", 24, _dates("2021-01-01", len(t), "h"), values)


def _level_jumps() -> Series:
    t, pattern, generator = _make_hourly(5, 4000)
    level = np.repeat(generator.normal(0.0, 6.0, 8), 500)
    values = 30.0 + 2.0 * pattern + level + _ar1(generator, len(t), 0.7, 0.5)
    return _series("level jumps", 24, _dates("2021-01-01", len(t), "h"), values)


def _volatile_days() -> Series:
    t, pattern, generator = _make_hourly(6, 4000)
    sd = 0.2 + 1.5 * (np.sin(2 * np.pi * t / 24) > 0.0)
    values = 10.0 + 2.0 * pattern + sd * generator.standard_normal(len(t))
    return _series("volatile days", 24, _dates("2021-01-01", len(t), "h"), values)


def make_transformer(rows: int, seed: int, alone: bool) -> Series:
    """Make seven correlated hourly columns whose levels and coupling change halfway.

    Six loads follow daily patterns and slow levels. The target is an oil temperature: a slow
    response to two loads and to the weather. After half of the rows the coupling and the level
    of the weather change.
    """
    t, pattern, generator = _make_hourly(seed, rows)
    late = t >= rows / 2
    weather = 15.0 - 12.0 * np.cos(2 * np.pi * t / 8766.0) + 3.0 * np.sin(2 * np.pi * (t - 9) / 24)
    weather += _ar1(generator, rows, 0.97, 0.8) - 8.0 * late
    level = np.cumsum(0.03 * generator.standard_normal(rows))
    loads = {}
    for k, name in enumerate(("high useful", "high useless", "middle useful", "middle useless",
                              "low useful", "low useless")):  # fmt: skip
        own = _ar1(generator, rows, 0.8, 0.6)
        loads[name] = np.round((5.0 - 0.6 * k) * (1.0 + 0.4 * pattern) + level + own, 3)
    drive = np.where(late, 0.5, 1.1) * loads["high useful"] + 0.4 * loads["low useful"] + weather
    oil = np.zeros(rows)
    oil[0] = drive[0]
    for k in range(1, rows):
        oil[k] = oil[k - 1] + 0.06 * (drive[k - 1] - oil[k - 1]) + 0.35 * generator.normal()
    name = "transformer alone" if alone else "transformer"
    made = _series(name, 24, _dates("2016-07-01", rows, "h"), np.round(oil, 3))
    return made if alone else made._replace(others=loads)


_MADE: list[Callable[[], Series]] = [
    lambda: _random_walk(3000, "h", 24, "random walk", 1),
    lambda: _random_walk(1000, "B", 5, "random walk B", 2),
    _drifting_level,
    _mean_reverting,
    _business_days,
    _heavy_tails,
    _level_jumps,
    _volatile_days,
    lambda: make_transformer(6000, 7, alone=True),
    lambda: make_transformer(6000, 7, alone=False),
    lambda: make_transformer(6000, 8, alone=False),
    lambda: make_transformer(6000, 8, alone=True),
]
