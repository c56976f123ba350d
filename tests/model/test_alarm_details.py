"""Drift alarms: their times, the columns that moved, and marks on charts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kbnn
from kbnn.model.diagnostics import describe_alarms
from kbnn.model.model import OnlineModel
from kbnn.model.settings import Settings
from tests.bench.data import block, schema

ROWS, CHANGE = 1600, 900


def table(moves: str) -> dict[str, Any]:
    """An hourly table in which one column, or only the relation to the target, changes."""
    rng = np.random.default_rng(4)
    a, b = rng.standard_normal((2, ROWS))
    late = np.arange(ROWS) >= CHANGE
    if moves == "a":
        a = a + 6.0 * late
    y = a + 0.5 * b + 0.1 * rng.standard_normal(ROWS)
    y = np.where(late, y + 8.0 if moves == "y" else 3.0 * b - y, y)
    when = np.datetime64("2024-03-01T00:00:00") + np.arange(ROWS) * np.timedelta64(1, "h")
    return {"when": when, "a": a, "b": b, "y": y}


def train(data: dict[str, Any]) -> kbnn.Model:
    return kbnn.train(data, target="y", time="when", lags="off", layers=10)


@pytest.mark.parametrize("moves", ["a", "y"])
def test_an_alarm_has_a_time_and_the_columns_that_moved(moves: str) -> None:
    data = table(moves)
    model = train(data)
    details = model.inspect()["health"]["alarm_details"]
    assert details
    first = details[0]
    assert CHANGE <= first["row"] <= CHANGE + 60
    assert first["time"] == str(data["when"][first["row"] - 1])
    assert first["moved"][0] == moves
    assert "b" not in first["moved"]


def test_times_of_alarms_are_saved_and_do_not_depend_on_batches(tmp_path: Path) -> None:
    data = table("a")
    whole = train(data).inspect()["health"]["alarm_details"]
    model = train({name: values[:700] for name, values in data.items()})
    for start in range(700, ROWS, 173):
        model.save(tmp_path / "m.npz")
        model = kbnn.load(tmp_path / "m.npz")
        model.learn({name: values[start : start + 173] for name, values in data.items()})
    assert model.inspect()["health"]["alarm_details"] == whole


def test_without_a_clock_alarms_have_no_time() -> None:
    data = table("a")
    del data["when"]
    details = kbnn.train(data, target="y", layers=10).inspect()["health"]["alarm_details"]
    assert details
    assert details[0]["time"] is None


def test_alarms_of_one_change_all_name_its_columns_and_never_the_clock(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = table("y")
    model = OnlineModel(Settings(hidden=(10,), kind="regression"), schema(2))
    x = np.column_stack((data["a"], data["b"]))
    model.learn(block(x, data["y"][:, None]))
    hourly = train(data).inspect()["health"]["alarm_details"]
    assert all(not name.startswith("when") for one in hourly for name in one["moved"])
    rows = [CHANGE + 7, CHANGE + 15, CHANGE + 22]
    monkeypatch.setattr(OnlineModel, "alarms", rows)
    assert [one.moved for one in describe_alarms(model)] == [["y0"]] * 3
