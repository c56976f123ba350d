"""Draws of the function and rows to label next, in tables and in Python."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import numpy as np
import pytest

import kbnn
from kbnn.errors import UsageError
from tests.commands import SAMPLES, Ran, trained
from tests.commands import kbnn as command

TEST = SAMPLES / "sensors_test.csv"


def read_rows(ran: Ran) -> list[dict[str, str]]:
    assert ran.code == 0, ran.err
    return list(csv.DictReader(io.StringIO(ran.out)))


@pytest.fixture(scope="module")
def plant(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("models")
    options = ("--layers", "5", "--limit", "300", "--task", "regression", "--replay", "off")
    return trained(folder / "plant.npz", "sensors.csv", *options)


@pytest.fixture(scope="module")
def moons(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("models")
    return trained(folder / "moons.npz", "moons.csv", "--layers", "5", "--limit", "60")


def test_written_draws_are_those_of_python_and_have_the_spread_of_the_function(plant: str) -> None:
    words = ("predict", plant, TEST, "--limit", "30", "--only-predictions", "--decompose")
    rows = read_rows(command(*words, "--samples", "400", "--seed", "7"))
    drawn = kbnn.load(plant).sample(str(TEST), 400, seed=7, limit=30)
    written = [[float(row[f"sample_{k}"]) for row in rows] for k in range(1, 401)]
    assert drawn.tolist() == written
    mean = np.array([float(row["mean"]) for row in rows])
    sd = np.array([float(row["function_sd"]) for row in rows])
    assert np.max(np.abs(drawn.mean(axis=0) - mean) / sd) < 0.25
    assert np.abs(np.log(drawn.std(axis=0) / sd)).max() < 0.2
    other = kbnn.load(plant).sample(str(TEST), 400, seed=8, limit=30)
    assert not np.array_equal(drawn, other)


def test_draws_of_classes_are_probabilities(moons: str) -> None:
    words = ("predict", moons, SAMPLES / "moons.csv", "--limit", "4", "--only-predictions")
    rows = read_rows(command(*words, "--samples", "2"))
    names = [f"sample_{k}_p_{label}" for k in (1, 2) for label in (0, 1)]
    assert list(rows[0])[-4:] == names
    for row in rows:
        for k in (1, 2):
            total = float(row[f"sample_{k}_p_0"]) + float(row[f"sample_{k}_p_1"])
            assert total == pytest.approx(1.0)
    assert kbnn.load(moons).sample(str(SAMPLES / "moons.csv"), 3, limit=4).shape == (3, 4, 2)


def test_the_rows_asked_for_are_numbered(plant: str, tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    ran = command("predict", plant, TEST, "--limit", "50", "--ask", "5", "-o", out, "--json")
    said = json.loads(ran.out)
    assert 0.0 < said["ask_remaining"] < 1.0
    left = f"{100 * said['ask_remaining']:.0f} %"
    assert f"the labels asked for leave at least {left} of the variance" in ran.err
    with open(out, encoding="utf-8") as file:
        marks = [row["ask"] for row in csv.DictReader(file)]
    few = command("predict", plant, TEST, "--limit", "50", "--ask", "30", "--digits", "1", "-q")
    assert len({row["ask"] for row in read_rows(few)}) == 31  # ranks are not rounded
    asked = kbnn.load(plant).ask(str(TEST), 5, limit=50)
    assert [marks[row] for row in asked.rows] == ["1", "2", "3", "4", "5"]
    assert marks.count("") == 45
    assert asked.remaining[-1] == pytest.approx(said["ask_remaining"])


def test_a_copy_of_the_first_row_is_not_asked_for_next(plant: str, tmp_path: Path) -> None:
    lines = TEST.read_text().splitlines()[:9]
    source = tmp_path / "in.csv"
    source.write_text("\n".join([lines[0], *lines[1:], *lines[1:], ""]))
    first, second = kbnn.load(plant).ask(str(source), 2).rows.tolist()
    assert first % 8 != second % 8


def test_an_unreadable_row_is_neither_drawn_nor_asked_for(plant: str, tmp_path: Path) -> None:
    lines = TEST.read_text().splitlines()[:4]
    lines[1] = lines[1].replace(lines[1].split(",")[0], "abc", 1)
    source = tmp_path / "in.csv"
    source.write_text("\n".join([*lines, ""]))
    rows = read_rows(command("predict", plant, source, "--samples", "1", "--ask", "9", "-q"))
    assert (rows[0]["sample_1"], rows[0]["ask"]) == ("", "")
    assert sorted(row["ask"] for row in rows) == ["", "1", "2"]
    assert all(row["sample_1"] for row in rows[1:])


def test_what_cannot_be_sampled_is_refused(plant: str, tmp_path: Path) -> None:
    for option in (["--samples", "2"], ["--ask", "2"]):
        ran = command("predict", plant, TEST, *option, "--horizon", "3")
        assert (ran.code, ran.out) == (2, "")
        assert f"{option[0]} cannot be combined with --horizon" in ran.err
    assert command("predict", plant, TEST, "--samples", "0").code == 2
    assert command("predict", plant, TEST, "--ask", "0").code == 2
    model = kbnn.Model("y", layers=3, lags="1")
    model.learn({"y": [float(step % 5) for step in range(60)]})
    model.save(tmp_path / "m.npz")
    source = tmp_path / "in.csv"
    source.write_text("y\n1\n2\n")
    for option in (["--samples", "2"], ["--ask", "2"]):
        ran = command("predict", tmp_path / "m.npz", source, *option)
        assert (ran.code, ran.out) == (2, "")
        assert f"{option[0]} is for models without lags" in ran.err
    with pytest.raises(UsageError, match="sample is for models without lags"):
        model.sample({"y": [1.0]}, 2)
    words = ("--key", "valve", "-q", "--layers", "3", "--limit", "200")
    assert command("train", SAMPLES / "sensors.csv", "-m", tmp_path / "fleet", *words).code == 0
    ran = command("predict", tmp_path / "fleet", TEST, "--ask", "2")
    assert ran.code == 2
    assert "--ask is for one model" in ran.err
