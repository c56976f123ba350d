"""The same cells by every door: files, tables, estimators and single rows agree to the bit."""

from __future__ import annotations

import csv
import math
import warnings
from collections.abc import Callable
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

import kbnn

ZONE = timezone(timedelta(hours=2))
ROWS = 80
NAMES = ["number", "whole", "truth", "label", "price", "span", "when"]


def cells() -> list[dict[str, Any]]:
    """Rows of every kind of value, most of them missing somewhere."""
    rng = np.random.default_rng(5)
    start = datetime(2024, 3, 1, tzinfo=ZONE)
    rows = []
    for k in range(ROWS):
        row: dict[str, Any] = {
            "number": float(rng.standard_normal()),
            "whole": int(rng.integers(-99, 99)),
            "truth": bool(rng.integers(2)),
            "label": ["red", "green", "Grün é"][k % 3],
            "price": Decimal(int(rng.integers(1, 10**9))) / Decimal(1000),
            "span": timedelta(days=200, microseconds=int(rng.integers(0, 10**12))),
            "when": start + timedelta(hours=k, microseconds=int(rng.integers(1, 10**6))),
        }
        if k % 7 == 3:
            row[NAMES[k % 6]] = None
        row["y"] = row["number"] or 0.5
        rows.append(row)
    return rows


def written(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, timedelta):
        return repr(value / timedelta(seconds=1))
    return value.isoformat() if isinstance(value, datetime) else str(value)


def as_csv(rows: list[dict[str, Any]], path: Path) -> str:
    with open(path / "rows.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(rows[0])
        writer.writerows([written(value) for value in row.values()] for row in rows)
    return str(path / "rows.csv")


def as_pandas(rows: list[dict[str, Any]], path: Path) -> pd.DataFrame:
    frame = pd.DataFrame(rows)
    frame["label"] = frame["label"].astype("category")
    frame["when"] = pd.to_datetime(frame["when"])
    assert frame["span"].dtype.kind == "m"
    return frame


def as_parquet(rows: list[dict[str, Any]], path: Path) -> str:
    as_polars(rows, path).write_parquet(path / "rows.parquet")
    return str(path / "rows.parquet")


def as_polars(rows: list[dict[str, Any]], path: Path) -> pl.DataFrame:
    columns = as_lists(rows, path)
    columns["when"] = pl.Series(columns["when"]).dt.convert_time_zone("Etc/GMT-2")
    return pl.DataFrame(columns)


def as_lists(rows: list[dict[str, Any]], path: Path) -> dict[str, Any]:
    return {name: [row[name] for row in rows] for name in rows[0]}


DOORS: dict[str, Callable[[list[dict[str, Any]], Path], Any]] = {
    "csv": as_csv,
    "parquet": as_parquet,
    "pandas": as_pandas,
    "polars": as_polars,
    "lists": as_lists,
    "dicts": lambda rows, path: rows,
}


def options() -> dict[str, Any]:
    return {"layers": 5, "lags": "off", "rehearse": 0}


@pytest.fixture(scope="module")
def by_csv(tmp_path_factory: pytest.TempPathFactory) -> kbnn.Model:
    model = kbnn.Model("y", **options())
    model.learn(as_csv(cells(), tmp_path_factory.mktemp("doors")))
    assert model.features == NAMES
    return model


@pytest.mark.parametrize("door", DOORS)
def test_tables_and_files_teach_and_ask_the_same(
    door: str, by_csv: kbnn.Model, tmp_path: Path
) -> None:
    table = DOORS[door](cells(), tmp_path)
    expected = by_csv.predict(as_csv(cells(), tmp_path)).mean
    assert np.array_equal(by_csv.predict(table).mean, expected)
    model = kbnn.Model("y", **options())
    model.learn(table)
    assert model.features == NAMES
    assert np.array_equal(model.predict(table).mean, expected)


@pytest.mark.parametrize("make", [dict, lambda row: pd.DataFrame([row]).to_dict("records")[0]])
def test_single_rows_ask_the_same(by_csv: kbnn.Model, make: Any, tmp_path: Path) -> None:
    expected = by_csv.predict(as_csv(cells(), tmp_path)).mean.tolist()
    for row, mean in zip(cells(), expected, strict=True):
        assert by_csv.predict_one(make({name: row[name] for name in NAMES})).mean == mean


def test_estimators_agree_with_models_and_with_one_another() -> None:
    sklearn = pytest.importorskip("kbnn.sklearn")
    rows = cells()
    y = np.array([row["y"] for row in rows])
    frame = as_pandas(rows, Path())[NAMES]
    objects = np.array([[row[name] for name in NAMES] for row in rows], dtype=object)
    said = []
    for x in (frame, as_polars(rows, Path())[NAMES], objects):
        estimator = sklearn.KBNNRegressor(5, rehearse=0, shuffle=False).fit(x, y)
        said.append(estimator.predict(x))
    assert np.array_equal(said[0], said[1])
    assert np.array_equal(said[0], said[2])
    model = kbnn.Model("y", **options())
    model.learn(frame.assign(y=y))
    assert np.array_equal(model.predict(frame).mean, said[0])


def test_river_and_single_rows_teach_the_same() -> None:
    river = pytest.importorskip("kbnn.river")
    estimator = river.KBNNRegressor(5, rehearse=0, lags="off")
    model = kbnn.Model("target", **options())
    for row in cells():
        x = {name: row[name] for name in sorted(NAMES)}
        estimator.learn_one(x, row["y"])
        model.learn_one(x, row["y"])
    for row in cells():
        x = {name: row[name] for name in NAMES}
        assert estimator.predict_one(x) == model.predict_one(x).mean


def test_times_are_learned_by_scikit_learn() -> None:
    sklearn = pytest.importorskip("kbnn.sklearn")
    when = pd.date_range("2024-01-01", periods=400, freq="h")
    x = pd.DataFrame({"when": when, "a": np.arange(400.0) % 7})
    y = np.sin(2 * np.pi * when.hour / 24)
    estimator = sklearn.KBNNRegressor(10).fit(x, y)
    later = x.assign(when=when + pd.Timedelta("6h"))
    assert np.abs(estimator.predict(x) - estimator.predict(later)).max() > 0.5


def test_an_index_of_times_is_the_clock() -> None:
    when = pd.date_range("2024-01-01", periods=100, freq="h")
    y = np.sin(2 * np.pi * when.hour / 24)
    by_index = kbnn.Model("y", layers=5)
    by_index.learn(pd.DataFrame({"a": 1.0, "y": y}, index=when))
    by_column = kbnn.Model("y", layers=5)
    by_column.learn(pd.DataFrame({"index": when, "a": 1.0, "y": y}))
    assert by_index.features == by_column.features == ["index", "a"]
    assert by_index.to_bytes() == by_column.to_bytes()
    plain = kbnn.Model("y", layers=5)
    plain.learn(pd.DataFrame({"a": np.arange(50.0), "y": np.arange(50.0)}, index=range(5, 55)))
    assert plain.features == ["a"]


def test_what_is_ignored_is_a_warning() -> None:
    sklearn = pytest.importorskip("kbnn.sklearn")
    when = pd.date_range("2024-01-01", periods=60, freq="h")
    y = np.arange(60.0)
    two = pd.DataFrame({"when": when, "sent": when[::-1], "a": y})
    with pytest.warns(UserWarning, match="'sent' is ignored: it holds timestamps") as caught:
        sklearn.KBNNRegressor(3).fit(two, y)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    with pytest.warns(UserWarning, match="DatetimeIndex of X is ignored"):
        sklearn.KBNNRegressor(3).fit(pd.DataFrame({"a": y}, index=when), y)
    with pytest.warns(UserWarning, match="'sent' is ignored"):
        kbnn.Model("y", layers=3).learn(two.assign(y=y))
    model = kbnn.Model("y", layers=3)
    with pytest.warns(UserWarning, match="'sent' is ignored"):
        model.learn_one({"a": 1.0, "when": when[0], "sent": when[1]}, 1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.learn_one({"a": 2.0, "when": when[1], "sent": when[1]}, 2.0)


@pytest.mark.parametrize(
    "missing",
    [None, math.nan, np.float32("nan"), pd.NaT, pd.NA, np.datetime64("NaT"), Decimal("NaN"), ""],
)
def test_every_missing_value_is_missing_in_every_kind_of_column(missing: Any) -> None:
    model = kbnn.Model("y", **options())
    rows = [{name: row[name] for name in NAMES} for row in cells()]
    for row, y in zip(rows, range(ROWS), strict=True):
        model.learn_one(row, float(y))
    for name in NAMES:
        expected = model.predict_one({n: v for n, v in rows[0].items() if n != name})
        assert model.predict_one({**rows[0], name: missing}) == expected


def test_dates_and_mixed_values_in_lists_of_dicts() -> None:
    rows = [{"d": date(2024, 1, 1) + timedelta(days=k), "m": "x" if k % 2 else k % 5, "y": k}
            for k in range(50)]  # fmt: skip
    model = kbnn.Model("y", layers=3, lags="off", task="regression")
    model.learn(rows)
    assert model.features == ["d", "m"]
    said = model.predict(rows[:4]).mean.tolist()
    assert said == [model.predict_one({"d": r["d"], "m": r["m"]}).mean for r in rows[:4]]
