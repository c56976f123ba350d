"""Series, indexes of times, periods and durations of pandas, polars and Arrow."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import kbnn
from kbnn.data.periods import decode_periods, match_period_frequency

pandas: Any = pytest.importorskip("pandas")
polars: Any = pytest.importorskip("polars")

ROWS = 80
Y = 10.0 + np.sin(np.arange(ROWS)) + 0.1 * np.arange(ROWS)
HOURS = pandas.date_range("2026-01-01", periods=ROWS, freq="h")
MONTHS = pandas.period_range("2015-01", periods=ROWS, freq="M")
NEXT_HOUR, NEXT_MONTH = "2026-01-04T08:00:00", "2021-09"


@pytest.mark.parametrize(
    ("data", "clock", "target", "when"),
    [
        (pandas.Series(Y, index=HOURS, name="load"), "index", "load", NEXT_HOUR),
        (pandas.Series(Y, index=HOURS), "index", "y", NEXT_HOUR),
        (pandas.Series(Y, index=HOURS.rename("at"), name="load"), "at", "load", NEXT_HOUR),
        (pandas.Series(Y, index=HOURS.rename("load"), name="load"), "index", "load", NEXT_HOUR),
        (pandas.Series(Y, index=HOURS, name=0), "index", "0", NEXT_HOUR),
        (pandas.Series(Y, index=MONTHS, name="load"), "index", "load", NEXT_MONTH),
        (pandas.Series(Y, index=MONTHS), "index", "y", NEXT_MONTH),
        (pandas.DataFrame({"load": Y}, index=MONTHS), "index", "load", NEXT_MONTH),
        (pandas.DataFrame({"load": Y}, index=MONTHS.rename("m")), "m", "load", NEXT_MONTH),
        (pandas.DataFrame({"m": MONTHS, "load": Y}), "m", "load", NEXT_MONTH),
        ({"m": MONTHS, "load": Y}, "m", "load", NEXT_MONTH),
        ({"m": list(MONTHS), "load": Y}, "m", "load", NEXT_MONTH),
    ],
)
def test_a_series_of_times_or_periods_is_forecast(
    data: Any, clock: str, target: str, when: str
) -> None:
    model = kbnn.train(data, layers=2)
    assert (model.features, model.target) == ([clock], [target])
    made = model.forecast(2)
    assert made.when[0] == when
    assert np.isfinite(made.mean).all()


@pytest.mark.parametrize(
    "data",
    [
        pandas.Series(Y),
        polars.Series(Y),
        pa.array(Y),
        pa.chunked_array([Y]),
    ],
)
def test_a_column_without_times_needs_lags(data: Any) -> None:
    with pytest.raises(kbnn.KbnnError, match="To forecast a series from its own past, add --lags"):
        kbnn.train(data, layers=2)
    model = kbnn.train(data, layers=2, lags="1,2")
    assert model.target == ["y"]
    assert len(model.forecast(2)) == 2
    assert kbnn.train(polars.Series("load", Y), lags="1").target == ["load"]


FREQUENCIES = ["Y", "Y-JUN", "Q-NOV", "W", "W-MON", "W-SAT", "D", "h", "3h", "15min", "s", "ms"]


@pytest.mark.parametrize("frequency", FREQUENCIES)
def test_periods_begin_where_pandas_says(frequency: str) -> None:
    periods = pandas.period_range("2019-12-27 10:00", periods=40, freq=frequency)
    periods = periods.insert(3, pandas.NaT)
    typed = pa.array(periods)
    field = pa.field("t", typed.type)
    # Without pandas, Arrow has the numbers and keeps the type in the metadata of the field.
    bare = pa.field("t", pa.int64(), metadata={
        "ARROW:extension:name": "pandas.period",
        "ARROW:extension:metadata": typed.type.__arrow_ext_serialize__(),
    })  # fmt: skip
    starts = [None if each is pandas.NaT else each.start_time for each in periods]
    for one, column in ((field, typed), (bare, typed.storage)):
        match = match_period_frequency(one)
        assert match is not None
        found = decode_periods(column, match).to_pylist()
        assert [None if each is None else pandas.Timestamp(each) for each in found] == starts


@pytest.mark.parametrize(
    ("frequency", "when"),
    [("M", "2006-09"), ("Q", "2020Q1"), ("Y", "2080-01-01"), ("W", "2001-07-09"),
     ("D", "2000-03-21"), ("h", "2000-01-04T08:00:00")],
)  # fmt: skip
def test_periods_are_continued_in_tables_and_files(
    frequency: str, when: str, tmp_path: Any
) -> None:
    periods = pandas.period_range("2000-01-01", periods=ROWS, freq=frequency)
    table = pandas.DataFrame({"t": periods, "y": Y})
    table.to_parquet(tmp_path / "t.parquet")
    for data in (table, tmp_path / "t.parquet"):
        assert kbnn.train(data, layers=2).forecast(1).when == [when]


def test_a_file_of_periods_reads_the_same_without_their_type(tmp_path: Any) -> None:
    table = pa.Table.from_pandas(pandas.DataFrame({"t": MONTHS, "y": Y}))
    kind = table.schema.field("t").type
    field = pa.field("t", pa.int64(), metadata={
        "ARROW:extension:name": "pandas.period",
        "ARROW:extension:metadata": kind.__arrow_ext_serialize__(),
    })  # fmt: skip
    plain = table["t"].combine_chunks().storage
    schema = pa.schema([field, table.schema.field("y")])
    pq.write_table(pa.table([plain, table["y"]], schema=schema), tmp_path / "t.parquet")
    assert kbnn.train(tmp_path / "t.parquet", layers=2).forecast(1).when == [NEXT_MONTH]


@pytest.mark.parametrize("horizon", [True, False, 0, -1, 2.5, "3", None, 10**6, [1]])
def test_a_horizon_that_is_no_number_of_steps_is_refused(horizon: Any) -> None:
    model = kbnn.train(pandas.Series(Y, index=HOURS), layers=2)
    with pytest.raises(kbnn.UsageError, match=r"--horizon must be .*, not "):
        model.forecast(horizon)
    steps: Any = np.int64(3)
    assert len(model.forecast(steps)) == 3


DURATIONS = pandas.to_timedelta(np.arange(ROWS) * 1.5, unit="s")


@pytest.mark.parametrize(
    "column",
    [
        DURATIONS,
        DURATIONS.to_numpy(),
        DURATIONS.to_pytimedelta().tolist(),
        polars.Series(DURATIONS.to_numpy()),
        pa.array(DURATIONS.to_numpy(), pa.duration("ms")),
    ],
)
def test_durations_are_seconds(column: Any) -> None:
    seconds = {"d": np.arange(ROWS) * 1.5, "y": Y}
    plain = kbnn.train(seconds, "y", layers=2)
    model = kbnn.train({"d": column, "y": Y}, "y", layers=2)
    assert model.record() == plain.record()
    mean = model.predict({"d": column}).mean
    np.testing.assert_array_equal(mean, plain.predict({"d": seconds["d"]}).mean)
    assert model.predict_one({"d": DURATIONS[3]}) == plain.predict_one({"d": 4.5})
    target = kbnn.train({"x": Y, "d": column}, "d", layers=2)
    assert target.record() == kbnn.train({"x": Y, "d": seconds["d"]}, "d", layers=2).record()


def test_durations_are_seconds_in_scikit_learn() -> None:
    estimators = pytest.importorskip("kbnn.sklearn")
    plain = estimators.KBNNRegressor(layers=2).fit(Y[:, None], np.arange(ROWS) * 1.5)
    expected = plain.predict(Y[:, None])
    for y in (DURATIONS, DURATIONS.to_numpy(), pandas.Series(DURATIONS)):
        made = estimators.KBNNRegressor(layers=2).fit(Y[:, None], y).predict(Y[:, None])
        np.testing.assert_array_equal(made, expected)
    inputs = pandas.DataFrame({"d": DURATIONS, "x": Y})
    numbers = pandas.DataFrame({"d": np.arange(ROWS) * 1.5, "x": Y})
    one, other = (estimators.KBNNRegressor(layers=2).fit(X, Y).predict(X)
                  for X in (inputs, numbers))  # fmt: skip
    np.testing.assert_allclose(one, other)
    with pytest.warns(UserWarning, match="the PeriodIndex of X is ignored"):
        indexed = estimators.KBNNRegressor(layers=2).fit(inputs.set_index(MONTHS), Y)
    np.testing.assert_array_equal(indexed.predict(inputs), one)


START = datetime(2026, 1, 28)
BERLIN = ZoneInfo("Europe/Berlin")


def make_hour(k: int) -> datetime:
    return START + timedelta(hours=k)


def make_day(k: int) -> datetime:
    return START + timedelta(days=k)


@pytest.mark.parametrize(
    ("make", "when"),
    [
        (make_hour, ["2026-01-30T12:00:00", "2026-01-30T13:00:00"]),
        (lambda k: f"{make_hour(k):%d.%m.%Y %H:%M}", ["30.01.2026 12:00", "30.01.2026 13:00"]),
        (lambda k: 1700000000 + 60 * k, ["1700003600", "1700003660"]),
        (make_day, ["2026-03-29", "2026-03-30"]),
        (lambda k: make_day(k).date(), ["2026-03-29", "2026-03-30"]),
        (lambda k: np.datetime64(make_day(k).date()), ["2026-03-29", "2026-03-30"]),
        (lambda k: pandas.Timestamp(make_day(k)), ["2026-03-29", "2026-03-30"]),
        (
            lambda k: make_day(k).replace(tzinfo=BERLIN),
            ["2026-03-29T00:00:00+01:00", "2026-03-30T00:00:00+02:00"],
        ),
        (
            lambda k: (np.datetime64("2015-01") + k + 1).astype("M8[D]") - 1,
            ["2020-01-31", "2020-02-29"],
        ),
        (
            lambda k: np.busday_offset(np.datetime64("2026-01-01"), k),
            ["2026-03-26", "2026-03-27", "2026-03-30"],
        ),
    ],
)
def test_rows_learned_one_by_one_show_the_step_of_the_clock(
    make: Callable[[int], Any], when: list[str]
) -> None:
    model = kbnn.Model("y", layers=2, lags="1,2")
    for k in range(60):
        model.learn_one({"time": make(k)}, float(Y[k]))
    made = model.forecast(len(when))
    assert made.when == when
    assert np.isfinite(made.mean).all()
    assert kbnn.Model.from_bytes(model.to_bytes()).forecast(1).when == when[:1]


def test_rows_without_lags_or_order_say_what_to_do() -> None:
    model, jumbled = kbnn.Model("y", layers=2), kbnn.Model("y", layers=2, lags="1,2")
    for k in range(60):
        model.learn_one({"time": make_hour(k)}, float(Y[k]))
        jumbled.learn_one({"time": make_hour(7 * k % 60)}, float(Y[k]))
    with pytest.raises(kbnn.UsageError, match="in Python lags='1,2', also for rows learned one by"):
        model.forecast(2)
    with pytest.raises(kbnn.UsageError, match=r"has no regular time step: name a file .*: data"):
        jumbled.forecast(2)
    ahead = {"time": [make_hour(60), make_hour(61)]}
    assert jumbled.forecast(2, ahead).when == ["2026-01-30T12:00:00", "2026-01-30T13:00:00"]


def test_a_missing_time_in_the_first_row_decides_nothing() -> None:
    model = kbnn.Model("y", layers=2)
    model.learn_one({"x": 1.0, "late": pandas.NaT}, 1.0)
    model.learn_one({"x": 1.0, "late": 2.0}, 1.0)
    assert model.features == ["x", "late"]
