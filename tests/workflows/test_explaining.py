"""Explanations of predicted rows: in tables, in Python, with lags, and for fleets."""

from __future__ import annotations

import csv
import io
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kbnn
from kbnn.errors import UsageError
from kbnn.model import file as modelfile
from kbnn.workflows.explaining import (
    MAX_BARS,
    RowExplainer,
    build_waterfall,
    explain_batches,
)
from kbnn_cli.charts import CHART_FACTORIES
from tests.bench.data import block
from tests.bench.data import trained as trained_model
from tests.commands import SAMPLES, Ran, trained
from tests.commands import kbnn as command


def read_rows(ran: Ran) -> list[dict[str, str]]:
    assert ran.code == 0, ran.err
    return list(csv.DictReader(io.StringIO(ran.out)))


def add_up(row: dict[str, str], columns: list[str], part: str = "") -> float:
    """Return base plus all contributions of a written row."""
    return float(row[f"base{part}"]) + sum(float(row[f"why{part}_{name}"]) for name in columns)


@pytest.fixture(scope="module")
def plant(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("models")
    options = ("--layers", "5", "--limit", "300", "--task", "regression", "--replay", "off")
    return trained(folder / "plant.npz", "sensors.csv", *options)


@pytest.fixture(scope="module")
def moons(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("models")
    return trained(folder / "moons.npz", "moons.csv", "--layers", "5", "--limit", "300")


def test_written_contributions_add_up_to_the_written_prediction(plant: str) -> None:
    words = ("predict", plant, SAMPLES / "sensors_test.csv", "--limit", "20", "--decompose")
    plain = read_rows(command(*words, "--digits", "17"))
    rows = read_rows(command(*words, "--explain"))
    columns = kbnn.load(plant).features
    assert [{name: row[name] for name in plain[0]} for row in rows] == plain
    assert [name for name in rows[0] if name not in plain[0]][: 1 + len(columns)] == [
        "base",
        *(f"why_{name}" for name in columns),
    ]
    for row in rows:
        assert add_up(row, columns) == pytest.approx(float(row["mean"]), rel=1e-9)
        for part in ("function_sd", "noise_sd"):
            assert add_up(row, columns, f"_{part}") == pytest.approx(float(row[part]), rel=1e-9)
    assert len({round(float(row["base"]), 6) for row in rows}) == 1


def test_an_explanation_of_a_label_is_of_its_log_odds(moons: str) -> None:
    words = ("predict", moons, SAMPLES / "moons.csv", "--limit", "9", "--only-predictions")
    for row in read_rows(command(*words, "--explain")):
        p = float(row[f"p_{row['label']}"])
        assert add_up(row, ["x1", "x2"]) == pytest.approx(np.log(p / (1.0 - p)), rel=1e-6)


def test_the_text_names_the_largest_contributions(plant: str) -> None:
    words = ("predict", plant, SAMPLES / "sensors_test.csv", "--limit", "5", "--only-predictions")
    numbers = read_rows(command(*words, "--explain"))
    texts = read_rows(command(*words, "--explain-text", "2"))
    assert list(texts[0]) == ["mean", "sd", "lower", "upper", "why"]
    for row, shown in zip(numbers, texts, strict=True):
        sizes = {name[4:]: float(row[name]) for name in row if name.startswith("why_")}
        first, second = sorted(sizes, key=lambda name: -abs(sizes[name]))[:2]
        assert shown["why"] == f"{first} {sizes[first]:+.3g}, {second} {sizes[second]:+.3g}"


@pytest.mark.parametrize("ending", ["jsonl", "parquet"])
def test_typed_tables_hold_explanations(plant: str, tmp_path: Path, ending: str) -> None:
    import pyarrow.json
    import pyarrow.parquet

    out = tmp_path / f"out.{ending}"
    words = ("--limit", "3", "--explain", "--explain-text", "1", "-o", out)
    assert command("predict", plant, SAMPLES / "sensors_test.csv", *words).code == 0
    read = pyarrow.json.read_json if ending == "jsonl" else pyarrow.parquet.read_table
    table = read(out)
    assert (table["why_valve"].type, table["why"].type) == (pyarrow.float64(), pyarrow.string())


def test_an_unreadable_row_has_no_explanation(plant: str, tmp_path: Path) -> None:
    source = tmp_path / "in.csv"
    lines = (SAMPLES / "sensors_test.csv").read_text().splitlines()[:3]
    lines[1] = lines[1].replace(lines[1].split(",")[0], "abc", 1)
    source.write_text("\n".join([*lines, ""]))
    broken, whole = read_rows(command("predict", plant, source, "--explain", "--explain-text", "1"))
    assert (broken["mean"], broken["base"], broken["why_valve"], broken["why"]) == ("",) * 4
    assert whole["why_valve"]
    assert whole["why"]


def test_what_cannot_be_explained_is_refused(plant: str) -> None:
    source = SAMPLES / "sensors_test.csv"
    for option in (["--explain"], ["--explain-text", "2"]):
        ran = command("predict", plant, source, *option, "--horizon", "3")
        assert ran.code == 2
        assert f"{option[0]} cannot be combined with --horizon" in ran.err
        ran = command("predict", plant, source, *option, "--engine", "dask")
        assert ran.code == 2
        assert f"{option[0]} works in this process only" in ran.err
    ran = command("predict", plant, source, "--explain-text", "0")
    assert ran.code == 2
    assert "--explain-text must be at least 1" in ran.err


def test_python_gives_what_the_command_writes(plant: str) -> None:
    model = kbnn.load(plant)
    found = model.explain(str(SAMPLES / "sensors_test.csv"), limit=4)
    words = ("predict", plant, SAMPLES / "sensors_test.csv", "--limit", "4", "--explain")
    rows = read_rows(command(*words))
    written = [[float(row[f"why_{name}"]) for name in found.columns] for row in rows]
    assert found.select("mean").tolist() == written
    with open(SAMPLES / "sensors_test.csv", encoding="utf-8") as file:
        first = next(csv.DictReader(file))
    one = model.explain_one(first)["mean"]
    assert one.value == model.predict_one(first).mean
    assert list(one.contributions.values()) == pytest.approx(written[0], rel=1e-9)
    assert set(one.errors.values()) == {0.0}
    empty = explain_batches(modelfile.load(plant), [], print)
    assert empty.contributions.shape == (0, 3, len(found.columns))


def test_many_columns_state_their_standard_error(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((200, 12))
    columns = {f"x{k}": x[:, k] for k in range(12)}
    model = kbnn.Model("y", layers=5, task="regression")
    model.learn({**columns, "y": x[:, 0] * x[:, 1] + x[:, 2]})
    found = model.explain({name: values[:3] for name, values in columns.items()})
    assert np.all(found.errors.max(axis=2) > 0.0)
    model.save(tmp_path / "m.npz")
    source = tmp_path / "in.csv"
    lines = [",".join(columns), *(",".join(map(str, row)) for row in x[:3].tolist())]
    source.write_text("\n".join([*lines, ""]))
    rows = read_rows(command("predict", tmp_path / "m.npz", source, "--explain"))
    written = [float(row["sampling_error"]) for row in rows]
    assert written == pytest.approx(found.errors[:, 0].max(axis=1).tolist(), rel=1e-6)


def test_lags_count_as_one_column_and_the_written_mean_is_explained(tmp_path: Path) -> None:
    model = kbnn.Model("y", layers=5, lags="1,2")
    values = [float(step % 7) for step in range(200)]
    model.learn({"y": values})
    model.save(tmp_path / "m.npz")
    source = tmp_path / "in.csv"
    source.write_text("y\n1\n2\n\n\n3\n")
    rows = read_rows(command("predict", tmp_path / "m.npz", source, "--explain"))
    assert [name for name in rows[0] if name.startswith("why_")] == ["why_y"]
    for row in rows:
        assert add_up(row, ["y"]) == pytest.approx(float(row["mean"]), abs=1e-9)
    assert model.explain_one({})["mean"].value == model.predict_one({}).mean


@pytest.mark.parametrize("lags", ["1,2", "2,3"])
def test_the_naive_part_of_a_forecast_is_explained(lags: str) -> None:
    """It belongs to the target's past: its column, or `base` if changes are learned (lag 1)."""
    rng = np.random.default_rng(3)
    x = rng.standard_normal(600)
    y = np.cumsum(0.5 * rng.standard_normal(600) + x)
    model = kbnn.Model("y", layers=5, lags=lags)
    model.learn({"x": x[:500], "y": y[:500]})
    rows = {"x": x[500:], "y": y[500:]}
    found, told = model.explain(rows), model.predict(rows, decompose=True)
    places = {column: place for place, column in enumerate(found.columns)}
    total = found.base + found.contributions.sum(axis=2)
    assert np.max(np.abs(total - found.value)) < 1e-9
    assert total[:, 0] == pytest.approx(np.asarray(told["mean"]), abs=1e-9)
    assert found.value[:, 1] == pytest.approx(np.asarray(told["function_sd"]), rel=1e-9)
    last = y[499:599]
    holder = found.base[:, 0] if lags == "1,2" else found.select("mean")[:, places["y"]]
    assert np.corrcoef(holder, last)[0, 1] > 0.99
    assert lags == "1,2" or np.ptp(found.base[:, 0]) < 1e-9  # the same empty row for all
    # x is independent of the past: known or not, it adds about the same
    low, high = {"x": -2.0}, {"x": 2.0}
    change = model.predict_one(high).mean - model.predict_one(low).mean
    parts = [model.explain_one(row)["mean"].contributions["x"] for row in (low, high)]
    assert 0.6 < (parts[1] - parts[0]) / change < 1.7


def test_rows_of_a_fleet_are_explained_by_the_model_of_their_key(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    x = rng.standard_normal(300)
    keys = np.array(["up", "down", "up"] * 100)
    y = np.where(keys == "up", 3.0, -3.0) * x
    lines = [f"{key},{a},{b}" for key, a, b in zip(keys, x.tolist(), y.tolist(), strict=True)]
    source, fleet = tmp_path / "in.csv", tmp_path / "fleet"
    source.write_text("\n".join(["key,x,y", *lines, ""]))
    words = ("--key", "key", "-q", "--layers", "3", "--task", "regression")
    assert command("train", source, "-m", fleet, *words).code == 0
    query = tmp_path / "query.csv"
    query.write_text("key,x\nup,1\ndown,1\nup,-1\n")
    rows = read_rows(command("predict", fleet, query, "--explain"))
    for row in rows:
        assert add_up(row, ["x"]) == pytest.approx(float(row["mean"]), abs=1e-9)
    assert [float(row["why_x"]) > 0 for row in rows] == [True, False, False]
    with pytest.raises(UsageError, match="fleet"):
        kbnn.load(fleet).explain_one({"x": 1.0})


@pytest.mark.parametrize("ending", ["png", "svg"])
def test_the_first_row_is_drawn(plant: str, moons: str, tmp_path: Path, ending: str) -> None:
    picture = tmp_path / f"why.{ending}"
    for model, source in ((plant, "sensors_test.csv"), (moons, "moons.csv")):
        words = ("--limit", "2", "--explain", "--plot", picture, "-q")
        ran = command("predict", model, SAMPLES / source, *words)
        assert (ran.code, ran.err) == (0, "")
        assert picture.stat().st_size > 5_000
        picture.unlink()
    ran = command("predict", plant, SAMPLES / "sensors_test.csv", "--plot", picture)
    assert (ran.code, ran.out) == (2, "")
    assert "--plot needs --horizon or --explain" in ran.err


def test_a_first_row_without_a_prediction_is_not_drawn(plant: str, tmp_path: Path) -> None:
    source, picture = tmp_path / "in.csv", tmp_path / "why.png"
    lines = (SAMPLES / "sensors_test.csv").read_text().splitlines()[:3]
    lines[1] = lines[1].replace(lines[1].split(",")[0], "abc", 1)
    source.write_text("\n".join([*lines, ""]))
    ran = command("predict", plant, source, "--explain", "--plot", picture, "-q")
    assert ran.code == 1
    assert ran.err == "kbnn: --plot: the first row has no prediction to explain\n"
    assert not picture.exists()


def test_bars_of_a_waterfall_lead_from_the_base_to_the_value() -> None:
    from matplotlib.figure import Figure

    from kbnn.report.plots import draw_waterfall

    x = np.random.default_rng(0).standard_normal((80, MAX_BARS + 5))
    model, row = trained_model(x, x[:, 0] - 2.0 * x[:, 1], hidden=(3,)), block(x[:1], np.zeros(1))
    explainer = RowExplainer(model)
    explainer.explain(row, model.predict(row))
    chart = build_waterfall(explainer)
    base, value, sizes = (chart.data[name] for name in ("base", "value", "contributions"))
    assert list(np.abs(sizes[:-1])) == sorted(np.abs(sizes[:-1]), reverse=True)
    axes: Any = Figure().add_subplot()
    draw_waterfall(axes, **chart.data)
    bars = [(bar.get_x(), bar.get_x() + bar.get_width()) for bar in axes.patches]
    assert bars[0][0] == pytest.approx(base)
    assert bars[-1][1] == pytest.approx(value)
    assert all(one[1] == pytest.approx(two[0]) for one, two in itertools.pairwise(bars))
    low, high = axes.get_xlim()
    assert all(low < end < high for bar in bars for end in bar)
    assert len(bars) == MAX_BARS + 1
    assert axes.get_yticklabels()[-1].get_text() == "5 others"


@pytest.mark.parametrize("plain", [False, True])
def test_the_waterfall_of_a_terminal_has_a_line_per_column(plain: bool) -> None:
    draw = CHART_FACTORIES["waterfall"](
        base=1.0, value=2.0, names=["a", "long name"], contributions=np.array([2.0, -1.0]), name="y"
    )
    lines = [line.plain for line in draw(40, plain)]
    up, down = ("+", "-") if plain else ("█", "█")
    assert lines == [
        f"a         {up * 19}         +2",
        f"long name {down:>10}{down * 9}         -1",
    ]


def test_a_number_after_explain_is_explained(plant: str) -> None:
    ran = command("predict", plant, "3", SAMPLES / "sensors_test.csv", "--explain")
    assert (ran.code, ran.out) == (2, "")
    assert "--explain takes no number: --explain-text 3 lists the largest" in ran.err


def test_output_columns_of_one_name_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    x = np.random.default_rng(0).standard_normal((2, 60))
    kbnn.train({"x": x[0], "function_sd_x": x[1], "y": x[0] + x[1]}, model="m.npz", layers=3)
    Path("rows.csv").write_text("x,function_sd_x\n1,2\n")
    ran = command("predict", "m.npz", "rows.csv", "--explain", "--decompose")
    assert (ran.code, ran.out) == (2, "")
    assert "two output columns would be named 'why_function_sd_x'" in ran.err
    assert command("predict", "m.npz", "rows.csv", "--explain").code == 0
