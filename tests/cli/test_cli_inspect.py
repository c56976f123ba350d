"""`kbnn inspect`: what a model says about itself, in words, as JSON and as a page."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from kbnn.core.layout import layout_of
from kbnn.model import file as modelfile
from kbnn.workflows.comparing import weight_variances
from kbnn.workflows.inspecting import inspect_model
from tests.commands import SAMPLES, kbnn, trained
from tests.modelling import network


@pytest.fixture(scope="module")
def plant(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("models")
    words = ("--layers", "10", "--limit", "600", "--task", "regression")
    return trained(folder / "plant.npz", "sensors.csv", *words)


@pytest.fixture(scope="module")
def more(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("models")
    words = ("--layers", "10", "--limit", "900", "--task", "regression")
    return trained(folder / "more.npz", "sensors.csv", *words)


@pytest.fixture(scope="module")
def moons(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("models")
    return trained(folder / "moons.npz", "moons.csv", "--layers", "5", "--limit", "300")


def test_in_words(plant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(plant).parent)
    ran = kbnn("inspect", "plant.npz")
    assert (ran.code, ran.err) == (0, "")
    lines = ran.out.splitlines()
    assert lines[0] == "plant.npz: regression of power_kw, 600 rows learned"
    for title in ("What it is", "What it has seen", "Health", "Columns"):
        assert title in lines
    labels = {line[:19].strip() for line in lines}
    assert {"network", "covariance", "noise", "engine", "size", "drift alarms"} <= labels
    assert {"scale changes", "repairs", "smallest variance", "clipped inputs"} <= labels
    assert "valve: open, throttled, bypass, recycle" in lines
    assert "Sensitivity of power_kw to each feature" in lines
    assert "\x1b" not in ran.out
    assert not any(line.endswith(" ") for line in lines)


def test_json(plant: str) -> None:
    got = json.loads(kbnn("inspect", plant, "--json").out)
    assert (got["task"], got["targets"], got["rows"]) == ("regression", ["power_kw"], 600)
    assert got["bytes"] == Path(plant).stat().st_size
    assert got["settings"]["hidden"] == [10]
    assert got["network"]["inputs"] == len(got["sensitivity"]["power_kw"])
    assert got["noise_sd"]["power_kw"] > 0
    assert 0 < got["health"]["smallest_variance_ratio"] <= 1
    by_name = {column["name"]: column for column in got["columns"]}
    assert by_name["valve"]["kind"] == "category"
    assert by_name["load_pct"]["scale"] > 1
    assert 0 < by_name["load_pct"]["missing"] < 0.1
    assert got["prequential"]["power_kw"]["rmse"] < got["prequential"]["power_kw"]["baseline_rmse"]
    assert "weights" not in got


def test_an_effect_is_the_slope_times_the_scale(plant: str) -> None:
    got = json.loads(kbnn("inspect", plant, "--json").out)
    scales = {column["name"]: column["scale"] for column in got["columns"]}
    effects = {effect["feature"]: effect for effect in got["sensitivity"]["power_kw"]}
    load = effects["load_pct"]
    assert load["effect"] == pytest.approx(load["slope"] * scales["load_pct"])
    assert load["effect"] > 3 * load["effect_sd"] > 0
    assert effects["valve=open"]["effect"] == effects["valve=open"]["slope"]


def test_weights(plant: str) -> None:
    listed = list(csv.DictReader(io.StringIO(kbnn("inspect", plant, "--weights").out)))
    state = network(modelfile.load(plant))
    assert len(listed) == state.config.weights
    assert [float(row["mean"]) for row in listed] == state.mean.tolist()
    sd = [float(row["sd"]) for row in listed]
    assert sd == np.sqrt(weight_variances(state)).tolist()
    dense = layout_of(state.config).unpack_blocks(state.cov)
    for block, order in zip(dense, layout_of(state.config).block_positions, strict=True):
        assert np.array_equal(np.diag(block), weight_variances(state)[order])
    assert [row["source"] for row in listed[:2]] == ["bias", "load_pct"]
    inside = json.loads(kbnn("inspect", plant, "--weights", "--json").out)["weights"]
    assert [weight["sd"] for weight in inside] == sd


def test_diff_with_itself(plant: str) -> None:
    ran = kbnn("inspect", plant, "--diff", plant)
    assert ran.out.splitlines()[-1] == "The models are the same."


def test_diff(plant: str, more: str) -> None:
    ran = kbnn("inspect", more, "--diff", plant)
    assert ran.code == 0
    lines = [" ".join(line.split()) for line in ran.out.splitlines()]
    assert "rows 600 900 +300" in lines
    assert any(line.startswith("Weights that moved most") for line in lines)
    got = json.loads(kbnn("inspect", more, "--diff", plant, "--json").out)
    assert {"name": "rows", "first": 600, "second": 900} in got["facts"]
    sizes = [abs(move["prior_sds"]) for move in got["moves"]]
    assert sizes == sorted(sizes, reverse=True)
    assert got["settings"] == []


def test_diff_counts_moves_in_prior_sds_and_gaps_in_doubts(plant: str, more: str) -> None:
    got = json.loads(kbnn("inspect", more, "--diff", plant, "--json").out)
    told = [json.loads(kbnn("inspect", name, "--weights", "--json").out) for name in (plant, more)]
    first, second = (
        {(w["layer"], w["unit"], w["source"]): w for w in one["weights"]} for one in told
    )
    moved = [(w["mean"] - first[k]["mean"]) / first[k]["prior_sd"] for k, w in second.items()]
    largest = sorted(moved, key=abs, reverse=True)[: len(got["moves"])]
    assert [move["prior_sds"] for move in got["moves"]] == pytest.approx(largest)
    assert got["root_mean_square_move"] == pytest.approx(np.sqrt(np.mean(np.square(moved))))
    before, now = ({e["feature"]: e for e in one["sensitivity"]["power_kw"]} for one in told)
    gaps = []
    for change in got["effects"]["power_kw"]:
        a, b = before[change["feature"]], now[change["feature"]]
        assert (change["first"], change["second"]) == (a["effect"], b["effect"])
        gap = (b["effect"] - a["effect"]) / np.hypot(a["effect_sd"], b["effect_sd"])
        assert change["gap"] == pytest.approx(gap)
        gaps.append(abs(gap))
    assert gaps == sorted(gaps, reverse=True)
    assert len(gaps) == len(now)


def test_diff_of_other_kinds(plant: str, moons: str) -> None:
    got = json.loads(kbnn("inspect", moons, "--diff", plant, "--json").out)
    assert {"name": "hidden", "first": [10], "second": [5]} in got["settings"]
    assert got["figures"] == {}
    assert got["moves"] == []
    assert kbnn("inspect", moons, "--diff", plant).out.splitlines()[-1] == (
        "Weights are not compared: the networks differ in shape or seed."
    )


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ([], "none"),
        ([40], "1, at row 40"),
        ([40, 1500], "2, at rows 40, 1,500"),
        ([10, 20, 30, 40, 50, 60], "6, the last at rows 20, 30, 40, 50, 60"),
    ],
)
def test_of_many_alarms_the_last_are_named(plant: str, rows: list[int], told: str) -> None:
    found = inspect_model(modelfile.load(plant), plant)
    alarmed = replace(found, health={**found.health, "alarms": len(rows), "alarm_rows": rows})
    assert dict(alarmed.history_lines())["drift alarms"] == told


def test_the_share_that_is_missing_is_one_of_all_rows(tmp_path: Path) -> None:
    source = tmp_path / "gaps.csv"
    source.write_text("a,y\n" + "".join(f"{'' if k % 4 else k},{k % 7}\n" for k in range(80)))
    model = tmp_path / "m.npz"
    assert kbnn("train", source, "-m", model, "-q", "--task", "regression").code == 0
    columns = json.loads(kbnn("inspect", model, "--json").out)["columns"]
    assert {c["name"]: c["missing"] for c in columns}["a"] == 0.75


def test_classes(moons: str) -> None:
    out = kbnn("inspect", moons).out
    assert "Sensitivity of the probability of 1 to each feature" in out
    assert "accuracy" in out


def test_report_holds_the_learning_curve(plant: str, tmp_path: Path) -> None:
    page, picture = tmp_path / "r.html", tmp_path / "p.png"
    assert kbnn("inspect", plant, "--report", page, "--plot", picture).code == 0
    text = page.read_text(encoding="utf-8")
    for title in ("RMSE by rows seen", "Sensitivity", "Importance", "Along load_pct", "Model card"):
        assert title in text
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_charts_on_a_terminal(moons: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kbnn_cli.display.on_terminal", lambda: True)
    assert "Log-loss by rows seen" in kbnn("inspect", moons).out
    assert "Log-loss by rows seen" not in kbnn("inspect", moons, "--no-plots").out


def test_a_model_that_is_warming_up(tmp_path: Path) -> None:
    model = trained(tmp_path / "warm.npz", "sensors.csv", "--limit", "20")
    out = kbnn("inspect", model).out
    assert "20 rows held until the scale is known" in out
    got = json.loads(kbnn("inspect", model, "--json").out)
    assert (got["network"], got["sensitivity"]) == (None, {})
    assert got["health"]["warming_up"] is True
    page = tmp_path / "r.html"
    assert kbnn("inspect", model, "--report", page).code == 0
    assert kbnn("predict", model, SAMPLES / "sensors_test.csv", "--limit", "5").code == 0


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--diff", "no.npz"], 1, "no.npz: no such model file"),
        (["--diff", "no.npz", "--weights"], 2, "--diff and --weights cannot be combined"),
        (["--report", "r.txt"], 2, "--report 'r.txt': the name must end in .html or .htm"),
        (["--plot", "p"], 2, "--plot 'p': the name must end in .png, .svg or .pdf"),
        (["--report", "no/r.html"], 1, "no/r.html: cannot be written (no such file or directory)"),
    ],
)
def test_wrong_options(
    options: list[str],
    code: int,
    message: str,
    moons: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert kbnn("inspect", moons, *options) == (code, "", f"kbnn: {message}\n")


def test_help_ends_with_examples() -> None:
    ran = kbnn("inspect", "--help")
    assert ran.out.rstrip().endswith("kbnn inspect model.npz --weights > weights.csv")
