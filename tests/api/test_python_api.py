"""The front door: one model, whoever holds the rows and whichever way they come."""

from __future__ import annotations

import copy
import doctest
import json
import logging
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from inspect import signature
from pathlib import Path
from types import ModuleType
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import kbnn
from kbnn.api import arrays as array_models
from kbnn.api import forecasts
from kbnn.api import online_model as front
from kbnn.api.keywords import TrainKeywords
from kbnn.errors import UsageError
from kbnn.option_table import FORMER_KEYWORDS
from kbnn_cli.app import load_command
from tests.commands import SAMPLES, trained
from tests.commands import kbnn as command
from tests.training_data import rows_of_classes, rows_of_numbers

NUMBERS = "a,b,c,y\n" + "\n".join(rows_of_numbers(300)) + "\n"
CLASSES = "a,b,label\n" + "\n".join(rows_of_classes(200)) + "\n"


@pytest.fixture
def csv(tmp_path: Path) -> Path:
    path = tmp_path / "data.csv"
    path.write_text(NUMBERS)
    return path


def table(text: str = NUMBERS) -> pd.DataFrame:
    header, *lines = text.splitlines()
    frame = pd.DataFrame([line.split(",") for line in lines], columns=header.split(","))
    for name in frame.columns:
        if name not in ("c", "label"):
            frame[name] = [float(cell) if cell else np.nan for cell in frame[name]]
    return frame


def arrays() -> dict[str, Any]:
    frame = table()
    return {name: frame[name].to_numpy() for name in frame}


def structured() -> np.ndarray[Any, Any]:
    columns = arrays()
    kinds = [(name, "U1" if name == "c" else "f8") for name in columns]
    made = np.empty(len(columns["y"]), dtype=kinds)
    for name, values in columns.items():
        made[name] = values
    return made


HOLDERS: dict[str, Callable[[], Any]] = {
    "pandas": table,
    "pandas categories": lambda: table().astype({"c": "category"}),
    "pandas with an index": lambda: table().set_index(pd.Index(range(7, 307), name="id")),
    "polars": lambda: pl.DataFrame(arrays()),
    "polars categories": lambda: pl.DataFrame(arrays(), schema_overrides={"c": pl.Categorical}),
    "pyarrow": lambda: pa.table(arrays()),
    "pyarrow batches": lambda: pa.table(arrays()).to_reader(max_chunksize=37),
    "duckdb": lambda: duckdb.from_arrow(pa.table(arrays())),
    "dict": arrays,
    "numpy": structured,
}


@pytest.mark.parametrize("holder", HOLDERS)
def test_the_same_table_gives_the_same_bytes(holder: str, csv: Path) -> None:
    learned = kbnn.train(HOLDERS[holder](), "y", layers=6)
    assert learned.to_bytes() == kbnn.train(csv, "y", layers=6).to_bytes()


def test_columns_may_be_called_by_numbers() -> None:
    rows = np.random.default_rng(0).normal(size=(50, 3))
    learned = kbnn.train(pd.DataFrame(rows), 1, ignore=[0], layers=5, na=-999)
    assert (learned.target, learned.features) == (["1"], ["2"])
    model = kbnn.Model(2, layers=5, ignore=0)
    model.learn(pd.DataFrame(rows))
    assert (model.target, model.features) == (["2"], ["1"])


def test_parquet_and_globs_are_paths_too(csv: Path, tmp_path: Path) -> None:
    pq.write_table(pa.table(arrays()), tmp_path / "data.parquet")
    expected = kbnn.train(csv, "y", layers=6).to_bytes()
    assert kbnn.train(str(tmp_path / "data.parquet"), "y", layers=6).to_bytes() == expected
    assert kbnn.train(str(tmp_path / "*.csv"), "y", layers=6).to_bytes() == expected


def test_the_command_line_and_python_write_the_same_bytes(csv: Path, tmp_path: Path) -> None:
    """Both ways, with options of every kind."""
    words = "--target y --layers 6,4 --epochs 2 --shuffle --seed 3 --noise constant --ignore b"
    there, here = tmp_path / "there.npz", tmp_path / "here.npz"
    ran = command("train", csv, "-m", there, "-q", "--robust", "off", *words.split())
    assert ran.code == 0
    kbnn.train(
        str(csv),
        target="y",
        model=here,
        layers=(6, 4),
        epochs=2,
        shuffle=True,
        seed=3,
        noise="constant",
        ignore=["b"],
        robust=False,
    )
    assert here.read_bytes() == there.read_bytes()
    kbnn.load(here).save(tmp_path / "again.npz")
    assert (tmp_path / "again.npz").read_bytes() == there.read_bytes()


def test_python_has_the_options_of_the_command() -> None:
    # What is printed, and where; and what only an exit code tells.
    shown = {"log", "dry_run", "json", "quiet", "help_all", "fail_if", "plot"}
    said = {p.name for p in load_command("train").params} - shown - {"sources"}
    here = {*signature(kbnn.train).parameters, *TrainKeywords.__annotations__} - {"data", "options"}
    former = set(FORMER_KEYWORDS)
    assert former < here
    assert said == here - {"columns"} - former


@pytest.mark.parametrize(
    ("words", "flags"),
    [
        ({"layers": "x"}, ["--layers", "x"]),
        ({"target": "nobody"}, ["--target", "nobody"]),
        ({"task": "guess"}, ["--task", "guess"]),
        ({"on_error": "weep"}, ["--on-error", "weep"]),
        ({"epochs": 0}, ["--epochs", "0"]),
        ({"ensemble": 65}, ["--ensemble", "65"]),
        ({"interval": 2.0}, ["--interval", "2"]),
        ({"fresh": True, "resume": True}, ["--fresh", "--resume"]),
    ],
)
def test_errors_are_the_command_lines_own(
    words: dict[str, Any], flags: list[str], csv: Path, tmp_path: Path
) -> None:
    ran = command("train", csv, "-m", tmp_path / "m.npz", *flags)
    with pytest.raises(kbnn.KbnnError) as caught:
        kbnn.train(csv, **words)
    assert ran.err.splitlines()[-1] == f"kbnn: {caught.value}"


def test_a_misspelt_option_is_pointed_out() -> None:
    with pytest.raises(kbnn.UsageError, match="lyers: did you mean layers"):
        kbnn.train({}, lyers=3)  # type: ignore[call-arg]


def test_rows_one_at_a_time_make_the_model_of_the_table() -> None:
    whole = kbnn.train(table(), "y", layers=6)
    single = kbnn.Model("y", layers=6)
    for row in table().to_dict("records"):
        single.learn_one({name: row[name] for name in "abc"}, row["y"])
    assert single.to_bytes() == whole.to_bytes()
    for row in table()[:20].to_dict("records"):
        said = single.predict_one({name: row[name] for name in "cba"})
        expected = whole.predict({name: [value] for name, value in row.items()}, decompose=True)
        assert said == tuple(expected[name][0] for name in said._fields)


def test_an_iterator_brings_what_comes(csv: Path) -> None:
    taken: list[int] = []

    def tables() -> Iterator[Any]:
        for start in range(0, 300, 100):
            taken.append(start)
            yield table()[start : start + 100]

    parts = kbnn.train(tables(), "y", layers=6, epochs=2)
    assert taken == [0, 100, 200]
    whole = kbnn.train(csv, "y", layers=6, epochs=2)
    np.testing.assert_array_equal(parts.predict(table()).mean, whole.predict(csv).mean)


def test_forecasts_are_columns_and_a_table() -> None:
    model = kbnn.train(table(), "y", layers=6)
    said = model.predict(table(), interval=0.5)
    assert said.columns == ["mean", "sd", "lower", "upper"]
    assert len(said) == 300
    np.testing.assert_allclose(said.upper - said.mean, 0.6744897501960817 * said.sd, rtol=0.2)
    np.testing.assert_allclose(said.sd**2, said.function_sd**2 + said.noise_sd**2)
    reach = said.quantile(0.75) - said.quantile(0.5)
    np.testing.assert_allclose(reach, 0.6744897501960817 * said.sd, rtol=0.05)
    stated = kbnn.train(table(), "y", layers=6, intervals="stated").predict(table(), interval=0.5)
    np.testing.assert_allclose(stated.quantile(0.75), stated.upper)
    np.testing.assert_array_equal(stated.mean, said.mean)
    assert pl.DataFrame(said)["mean"].to_list() == said.mean.tolist()
    assert pa.table(said).column_names == said.columns
    assert list(pd.DataFrame(dict(said)).columns) == said.columns
    assert "300 rows" in repr(said)
    assert "<table>" in said._repr_html_()
    with pytest.raises(kbnn.UsageError, match="numbers have no classes"):
        _ = said.probability


def test_classes_have_labels_and_probabilities(tmp_path: Path) -> None:
    model = kbnn.train(table(CLASSES), "label", layers=6)
    said = model.predict(table(CLASSES))
    assert said.classes == model.classes
    assert said.probability.shape == (200, len(model.classes))
    np.testing.assert_allclose(said.probability.sum(axis=1), 1.0)
    best = [model.classes[at] for at in said.probability.argmax(axis=1)]
    assert said.label.tolist() == best
    one = model.predict_one({"a": 2.0, "b": 1.0})
    assert one.label == max(one.probability, key=one.probability.__getitem__)
    model.learn_one({"a": 0.0, "b": 9.0}, "yellow")
    assert model.predict_one({"a": 0.0, "b": 9.0}).probability["yellow"] > 0.0


def test_several_targets_are_arrays_and_dicts() -> None:
    frame = table()
    frame["z"] = 2.0 * frame["y"]
    model = kbnn.train(frame, ["y", "z"], layers=6)
    assert model.predict(frame).mean.shape == (300, 2)
    assert model.predict(frame).lower.shape == (300, 2)
    said = model.predict_one({"a": 1.0, "b": 0.0, "c": "u"})
    assert set(said) == {"y", "z"}
    model.learn_one({"a": 1.0, "b": 0.0, "c": "u"}, {"y": 1.0, "z": 2.0})
    assert model.rows == 301
    with pytest.raises(kbnn.DataError, match="a row has 2 targets, not 1"):
        model.learn_one({"a": 1.0}, [1.0])


def test_figures_are_those_of_evaluate(csv: Path, tmp_path: Path) -> None:
    import json

    path = tmp_path / "m.npz"
    model = kbnn.train(csv, "y", model=path, layers=6)
    printed = json.loads(command("evaluate", path, csv, "--json", "-q").out)
    here = model.evaluate(table())
    timed = ("seconds", "rows_per_second")
    assert {k: v for k, v in here.items() if k not in timed} == {
        k: v for k, v in printed.items() if k not in timed
    }
    assert "RMSE" in repr(here)
    assert model.record()["rows"] > 0


def test_a_model_can_be_kept_in_any_way(csv: Path, tmp_path: Path) -> None:
    model = kbnn.train(csv, "y", layers=6)
    model.save(tmp_path / "m.npz")
    kept = [
        kbnn.load(tmp_path / "m.npz"),
        kbnn.Model.from_bytes(model.to_bytes()),
        pickle.loads(pickle.dumps(model)),
        copy.deepcopy(model),
    ]
    for other in kept:
        other.learn(csv)
    model.learn(csv)
    assert {other.to_bytes() for other in kept} == {model.to_bytes()}
    assert not (tmp_path / "m.npz.lock").exists()
    with pytest.raises(kbnn.ModelError, match="the bytes: is not a model file"):
        kbnn.Model.from_bytes(b"nothing of the kind")


def test_a_model_shows_what_it_is() -> None:
    model = kbnn.Model("y")
    assert repr(model) == "<kbnn.Model of y: nothing learned yet>"
    with pytest.raises(kbnn.UsageError, match="learned nothing yet"):
        model.predict({"a": [1.0]})
    model.learn(table())
    assert repr(model) == "<kbnn.Model: regression of y from a, b, c, 300 rows learned>"
    assert "<td>RMSE</td>" in model._repr_html_()
    assert (model.task, model.features, model.target) == ("regression", ["a", "b", "c"], ["y"])


def test_what_there_is_to_say_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "kbnn"):
        kbnn.train(table(), layers=6)
    assert "target: last column 'y' (choose with --target)" in caplog.messages


@pytest.mark.parametrize(
    ("data", "options", "why"),
    [
        (7, {}, "data cannot be a int: give a table"),
        ([], {}, "no input"),
        ({"a": [1.0], "y": [1.0, 2.0]}, {}, "the columns differ in length \\('a' 1, 'y' 2\\)"),
        ({"a": 1.0, "y": 2.0}, {}, "column 'a' is not a list or array"),
        ({"a": [{}, object()], "y": [1, 2]}, {}, "column 'a': data: cannot be read as a table"),
        (np.zeros(3), {}, "must have two dimensions, not 1"),
        (np.zeros((3, 2)), {"columns": ["a"]}, "columns names 1 columns, but the array has 2"),
        ({"a": [1.0]}, {"columns": ["a"]}, "this table has names"),
        ({"a": ["1", "x!", "3", "4"], "y": [1, 2, 3, 4]}, {}, "data: row 2: column 'a'"),
        ({"a": [1.0, np.inf], "y": [1, 2]}, {}, "inf is not a finite number"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), {}, "data: cannot be read as a table"),
    ],
)
def test_what_cannot_be_learned_is_said_in_a_sentence(
    data: Any, options: dict[str, Any], why: str
) -> None:
    with pytest.raises(kbnn.KbnnError, match=why):
        kbnn.train(data, **options)


@pytest.mark.parametrize(
    ("x", "y", "why"),
    [
        ({"a": "abc"}, 1.0, "column 'a': cannot read 'abc' as a number"),
        ({"a": float("inf")}, 1.0, "column 'a': inf is not a finite number"),
        ({"a": 1e200}, 1.0, "too large \\(limit 1e\\+140\\)"),
        ({"a": 1.0}, "tall", "column 'y': cannot read 'tall' as a number"),
    ],
)
def test_a_row_that_cannot_be_learned_changes_nothing(x: Any, y: Any, why: str) -> None:
    model = kbnn.Model("y", layers=6)
    for value in range(50):
        model.learn_one({"a": float(value), "b": True}, 2.0 * value)
    before = model.to_bytes()
    with pytest.raises(kbnn.DataError, match=why):
        model.learn_one(x, y)
    assert model.to_bytes() == before


def test_rows_before_a_flaw_are_learned_and_the_model_goes_on() -> None:
    frame = table().astype({"a": object})
    frame.loc[150, "a"] = "nonsense"
    frame["a"] = frame["a"].astype(str)
    model = kbnn.Model("y", layers=6)
    with pytest.raises(kbnn.DataError, match="row 151: column 'a'"):
        model.learn(frame)
    assert model.rows == 150
    model.learn(frame, on_error="skip")
    assert model.rows == 150 + 299


def test_the_way_in_loads_nothing_before_it_is_used() -> None:
    code = "import sys, kbnn; sys.exit(bool({'numpy', 'pyarrow'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0
    assert set(kbnn.__all__) <= set(dir(kbnn))
    for name in kbnn.__all__:
        assert getattr(kbnn, name) is not None


@pytest.mark.parametrize("module", [front, array_models, forecasts])
def test_the_examples_of_the_docstrings_run(module: ModuleType) -> None:
    found = doctest.testmod(module)
    assert found.failed == 0
    assert found.attempted > 0


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="memory as POSIX tells it")
def test_a_large_table_is_read_where_it_lies() -> None:
    """A million rows, 112 MB: learning them needs no copy."""
    code = """if True:
        import resource, numpy as np, polars as pl, kbnn
        draw = np.random.default_rng(0)
        table = pl.DataFrame({f"x{j}": draw.normal(size=1_000_000) for j in range(14)})
        kbnn.train(table[:5000], "x13", covariance="neuron", layers=10)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        kbnn.train(table, "x13", covariance="neuron", layers=10)
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
    """
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=True
    )
    assert int(done.stdout) < 20_000  # kB


@pytest.mark.parametrize(("rows", "shown", "more"), [(1, 1, False), (5, 5, False), (6, 5, True)])
def test_of_many_forecasts_the_first_are_shown(rows: int, shown: int, more: bool) -> None:
    model = kbnn.train(table(), layers=3, task="regression")
    lines = repr(model.predict(table()[:rows])).splitlines()
    assert lines[0] == f"<forecasts of y: {rows} row{'' if rows == 1 else 's'}>"
    assert len(lines) == 2 + shown + more
    assert (lines[-1] == "...") == more


def test_names_from_strangers_are_text_in_a_notebook() -> None:
    model = kbnn.train(
        {"a": [0.5 * (k % 7) for k in range(80)], "<b>y": [k % 5 for k in range(80)]}
    )
    shown: list[Any] = [model.record(), model.predict({"a": [1.0]}), model]
    for one in shown:
        assert "<b>y" not in one._repr_html_()
        assert "&lt;b&gt;y" in one._repr_html_()


def test_a_row_that_cannot_be_read_has_its_place_and_no_forecast() -> None:
    model = kbnn.train(table(), "y", layers=3, task="regression")
    asked = {"a": ["1.0", "what", "2.0"], "b": [1.0, 2.0, 3.0], "c": ["u", "u", "v"]}
    assert np.isnan(model.predict(asked).mean).tolist() == [False, True, False]
    with pytest.raises(kbnn.DataError, match="cannot read 'what' as a number"):
        model.predict(asked, on_error="stop")


def test_inspection_in_python_is_that_of_the_command(tmp_path: Path) -> None:
    path = trained(tmp_path / "m.npz", "sensors.csv", "--limit", "300", "--layers", "5")
    model = kbnn.load(path)
    printed = json.loads(command("inspect", path, "--json").out)
    found = json.loads(json.dumps(model.inspect()))
    assert printed.pop("model") == path
    assert abs(found.pop("bytes") - printed.pop("bytes")) < 1000
    assert found == printed
    sizes = [column._asdict() for column in model.importance()["mean"]]
    assert sizes == printed["importance"]["mean"]
    assert [one["size"] for one in sizes] == sorted((one["size"] for one in sizes), reverse=True)
    assert all(0.0 < one["error"] < one["size"] for one in sizes)
    assert model.alarms == printed["health"]["alarm_rows"]
    assert json.loads(json.dumps(model.candidates)) == printed["race"]


def test_a_fleet_is_inspected_by_key(tmp_path: Path) -> None:
    fleet = kbnn.train(
        str(SAMPLES / "sensors.csv"), key="valve", limit=200, layers=3, model=tmp_path / "fleet"
    )
    assert sum(key["rows"] for key in fleet.inspect()["keys"]) == 200
    for call in (fleet.importance, lambda: fleet.alarms, lambda: fleet.candidates):
        with pytest.raises(UsageError, match="fleet"):
            call()
