"""Real public tables that come with packages: read where those are installed, never copied here.

    pip install vega_datasets statsmodels scikit-learn river

A value is a number, a text, a date or None; the last column of a table is its target.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from datetime import date
from functools import cache
from typing import Any

MOST_ROWS = 300
PACKAGES = ("vega_datasets", "statsmodels", "sklearn", "river")

Table = dict[str, list[Any]]


def _table(frame: Any, *columns: str) -> Table:
    """The first rows of some columns of a frame of pandas."""
    return {name: [_plain(value) for value in frame[name][:MOST_ROWS]] for name in columns}


def _plain(value: Any) -> Any:
    """A value as Python has it; None for a gap."""
    if hasattr(value, "item"):
        value = value.item()
    if hasattr(value, "date"):
        return value.date()
    if isinstance(value, float) and value != value:
        return None
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def _vega(name: str, *columns: str) -> Table:
    from vega_datasets import local_data

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # how it calls pandas is not ours to mend
        return _table(getattr(local_data, name)(), *columns)


def _stats(name: str, *columns: str) -> Table:
    import statsmodels.api as sm

    return _table(getattr(sm.datasets, name).load_pandas().data, *columns)


def _learn(name: str, *columns: str) -> Table:
    import sklearn.datasets

    return _table(getattr(sklearn.datasets, f"load_{name}")(as_frame=True).frame, *columns)


def _co2() -> Table:
    import statsmodels.api as sm

    series = sm.datasets.co2.load_pandas().data["co2"][:MOST_ROWS]
    when = [date(day.year, day.month, day.day) for day in series.index]
    return {"day": when, "co2": [_plain(value) for value in series]}


def _river(name: str) -> Table:
    from river import datasets

    rows = [{**x, "y": y} for x, y in getattr(datasets, name)().take(MOST_ROWS)]
    return {key: [_plain(row[key]) for row in rows] for key in rows[0]}


SETS: dict[str, Callable[[], Table]] = {
    "cars": lambda: _vega("cars", "Name", "Cylinders", "Displacement", "Horsepower",
                          "Weight_in_lbs", "Year", "Origin", "Miles_per_Gallon"),
    "weather": lambda: _vega("seattle_weather", "date", "precipitation", "wind", "weather",
                             "temp_max"),
    "stocks": lambda: _vega("stocks", "symbol", "date", "price"),
    "airports": lambda: _vega("airports", "iata", "city", "state", "latitude", "longitude"),
    "employment": lambda: _vega("us_employment", "month", "construction", "manufacturing",
                                "mining_and_logging", "nonfarm"),
    "electricity": lambda: _vega("iowa_electricity", "year", "source", "net_generation"),
    "barley": lambda: _vega("barley", "variety", "year", "site", "yield"),
    "riots": lambda: _vega("la_riots", "death_date", "gender", "race", "latitude", "longitude",
                           "age"),
    "iris": lambda: _vega("iris", "sepalLength", "sepalWidth", "petalLength", "species"),
    "visits": lambda: _stats("randhie", "lncoins", "idp", "physlm", "disea", "mdvis"),
    "grunfeld": lambda: _stats("grunfeld", "firm", "year", "value", "capital", "invest"),
    "macro": lambda: _stats("macrodata", "year", "quarter", "realcons", "infl", "unemp", "realgdp"),
    "travel": lambda: _stats("modechoice", "individual", "mode", "invt", "gc", "ttme"),
    "schools": lambda: _stats("star98", "LOWINC", "PERMINTE", "AVSALK", "PTRATIO", "NABOVE"),
    "diabetes": lambda: _learn("diabetes", "age", "bmi", "bp", "s5", "target"),
    "wine": lambda: _learn("wine", "alcohol", "ash", "magnesium", "proline", "target"),
    "chicks": lambda: _river("ChickWeights"),
    "co2": _co2,
}  # fmt: skip


@cache
def table(name: str) -> Table:
    """A table by its name."""
    return SETS[name]()
