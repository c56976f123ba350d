"""Columns that come late are admitted, those that vanish are missing, however rows are cut."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import kbnn
from kbnn.data.batch import Rows, slice_rows
from kbnn.data.schema import MAX_LATE_COLUMNS, Column, Place, Schema
from kbnn.model.model import OnlineModel
from kbnn.model.serialize import copy_model, to_state
from kbnn.model.settings import Settings
from tests.commands import kbnn as command
from tests.streams import assert_same, look


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def rows(count: int = 200) -> list[dict[str, Any]]:
    """A number from row 61 on, categories from row 101 on, both gone again at the end."""
    draw = np.random.default_rng(0)
    made: list[dict[str, Any]] = []
    for at in range(1, count + 1):
        a, late = draw.normal(size=2).tolist()
        kind = "uvw"[int(draw.integers(3))]
        y = a + (2.0 * late if at > 60 else 0.0) + (kind == "u") * (at > 100)
        row: dict[str, Any] = {"a": a, "y": y}
        if 60 < at <= 180:
            row["late"] = late
        if 100 < at <= 180:
            row["kind"] = kind
        made.append(row)
    return made


def write_lines(name: str, made: list[dict[str, Any]]) -> str:
    Path(name).write_text("".join(json.dumps(row) + "\n" for row in made))
    return name


def test_blocks_of_any_size_give_the_same_rows() -> None:
    source = write_lines("t", rows())
    seen = look([source], target=("y",))
    assert seen.schema is not None
    assert [place[0] for place in seen.schema["layout"]] == ["a", "late", *["kind"] * 3]
    assert np.isnan(seen.x[:60, 1]).all()
    assert np.isfinite(seen.x[60:180, 1]).all()
    assert np.isnan(seen.x[180:, 1]).all()
    assert not seen.x[:100, 2:].any()
    for size in (1, 700):
        assert_same(look([source], target=("y",), read_size=size), seen)
    for size in (1, 37):
        assert_same(look([source], target=("y",), block_rows=size), seen)


def test_the_same_model_however_the_rows_come() -> None:
    """Lines of JSON, one row at a time, and blocks of any size; early rows too."""
    made = rows()
    lines = kbnn.train(write_lines("t", made), "y", layers=6)
    single = kbnn.Model("y", layers=6)
    for row in made:
        single.learn_one({name: value for name, value in row.items() if name != "y"}, row["y"])
    x = [{name: value for name, value in row.items() if name != "y"} for row in made[:100]]
    for row in x:
        assert lines.predict_one(row).mean == single.predict_one(row).mean
    assert lines.features == single.features == ["a", "late", "kind"]
    early = [{**row, "soon": 1.0 * at} if at > 20 else row for at, row in enumerate(made)]
    there = kbnn.train(write_lines("early", early), "y", layers=6)
    assert "soon" in there.features


def two_numbers() -> Schema:
    columns = [Column(name, "number", "feature") for name in "ab"]
    layout = [Place(name, None) for name in "ab"]
    return Schema([*columns, Column("y", "number", "target")], "regression", layout=layout)


@pytest.mark.parametrize("start", [10, 60, 400])
def test_a_late_number_is_learned_at_its_row_whatever_the_blocks(start: int) -> None:
    """Before the scale is known, in the young stream, and later: the same bits in any cut."""
    draw = np.random.default_rng(1)
    x = draw.normal(size=(600, 3))
    x[:start, 2] = np.nan
    y = x[:, :1] + np.nan_to_num(x[:, 2:])
    narrow, wide = two_numbers(), two_numbers()
    wide.add_late_column("late", "number")
    states = []
    for cuts in ([600], [start, 600], [start - 3, start + 5, 600], list(range(1, 601))):
        model = OnlineModel(Settings(hidden=(6,)), narrow)
        at = 0
        for stop in cuts:
            schema = wide if stop > start else narrow
            block = Rows(x, y, np.arange(1, 601), schema=schema)
            block = slice_rows(block, at, stop)
            if stop <= start:
                block = block._replace(x=block.x[:, :2])
            model.learn(block)
            if stop < 600 and len(cuts) < 9:
                model = copy_model(model)  # through what a file holds
            at = stop
        states.append(to_state(model))
    for header, arrays in states[1:]:
        assert header == states[0][0]
        for name, array in arrays.items():
            np.testing.assert_array_equal(array, states[0][1][name], err_msg=name)


def test_a_late_column_is_as_good_as_one_that_was_missing() -> None:
    """What was learned before it came stays, and from then on it is used."""
    draw = np.random.default_rng(2)
    frame = pd.DataFrame(draw.normal(size=(1500, 2)), columns=["a", "late"])
    frame["y"] = frame["a"] + 2.0 * frame["late"] + 0.1 * draw.normal(size=1500)
    model = kbnn.train(frame[:300][["a", "y"]], "y")
    model.learn(frame[300:])
    scored = model.evaluate(frame)["rmse"]
    from_start = kbnn.train(frame.assign(late=frame["late"].where(frame.index >= 300)), "y")
    assert scored < 0.3
    assert scored < 1.5 * from_start.evaluate(frame)["rmse"]


def test_files_may_differ_in_their_columns() -> None:
    frame = pd.DataFrame(rows()[100:180]).assign(b=1.0)
    frame[["a", "b", "y"]].to_csv("1.csv", index=False)
    frame.to_csv("2.csv", index=False)
    pq.write_table(pa.table(frame[["y", "b", "late"]]), "3.parquet")
    ran = command("train", "1.csv", "2.csv", "3.parquet", "--target", "y", "-m", "m.npz")
    assert ran.code == 0
    assert "2.csv: the column 'late' comes first in row 1: it is learned from now on" in ran.err
    assert "kbnn: 3.parquet: has no column 'a': read as missing" in ran.err
    assert kbnn.load("m.npz").features == ["a", "b", "kind", "late"]
    ran = command("predict", "m.npz", "1.csv", "--only-predictions")
    assert ran.code == 0
    assert "kbnn: 1.csv: has no column 'late': read as missing" in ran.err
    again = command("train", "1.csv", "-m", "m.npz")
    assert again.code == 0


def test_columns_that_were_chosen_stay_the_only_ones() -> None:
    frame = pd.DataFrame(rows()[100:180])
    frame[["a", "y"]].to_csv("1.csv", index=False)
    frame.to_csv("2.csv", index=False)
    ran = command("train", "1.csv", "--target", "y", "--features", "a", "-m", "m.npz")
    assert ran.code == 0
    ran = command("train", "2.csv", "-m", "m.npz")
    assert "2.csv: unknown columns are ignored: late, kind" in ran.err
    assert kbnn.load("m.npz").features == ["a"]
    model = kbnn.load("m.npz")
    model.learn_one({"a": 1.0, "late": 2.0}, 3.0)
    assert model.features == ["a"]


def test_a_renamed_column_is_no_new_one() -> None:
    Path("1.csv").write_text("temp,hum,y\n" + "".join(f"{i},{i % 7},{i}\n" for i in range(40)))
    Path("2.csv").write_text("tmp,hum,y\n1,2,3\n")
    ran = command("train", "1.csv", "2.csv", "--target", "y", "-m", "m.npz")
    assert ran.code == 1
    assert "2.csv: no column 'temp' (did you mean 'tmp'?)" in ran.err


def test_only_so_many_may_come_late() -> None:
    made: list[dict[str, Any]] = [{"a": at % 5, "y": at} for at in range(40)]
    made += [{"a": 1, "y": 2, f"k{at:02}": 1.5} for at in range(MAX_LATE_COLUMNS + 6)]
    seen = look([write_lines("t", made)], target=("y",))
    assert seen.schema is not None
    assert len(seen.schema["layout"]) == 1 + MAX_LATE_COLUMNS
    ignored = [text for text in seen.notices if "at most 64 columns may come late" in text]
    assert len(ignored) == 6
    single = kbnn.Model("y", layers=2)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for row in made:
            single.learn_one({name: v for name, v in row.items() if name != "y"}, row["y"])
    told = [str(one.message) for one in caught]
    assert sum("at most 64 columns may come late" in text for text in told) == 6
    assert len(single.features) == 1 + MAX_LATE_COLUMNS
