"""`evaluate --learn` scores a model that goes on learning, and changes nothing that is kept."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kbnn
from tests.commands import kbnn as run

ROWS = 600


def drifting(seed: int = 0) -> dict[str, Any]:
    """A relation that turns round in the second half."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(ROWS)
    slope = np.where(np.arange(ROWS) < ROWS // 2, 2.0, -2.0)
    y = slope * x + 0.2 * rng.standard_normal(ROWS)
    place = rng.choice(["a", "b"], ROWS)
    place[ROWS // 2 :: 5] = "late"
    return {
        "x": x,
        "place": place,
        "who": rng.choice(["k1", "k2", "k3"], ROWS),
        "z": 100.0 + 10.0 * y,
        "label": np.where(y > 0, "up", "down"),
        "y": y,
    }


def write(path: Path, made: dict[str, Any], span: slice) -> str:
    """Those rows as a file."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(made)
        columns = (np.asarray(column)[span].tolist() for column in made.values())
        writer.writerows(zip(*columns, strict=True))
    return str(path)


CASES = {
    "regression": ["--target", "y", "--ignore", "z,label,who"],
    "several targets": ["--target", "y,z", "--ignore", "label,who"],
    "classes": ["--target", "label", "--ignore", "y,z,who"],
    "lags": ["--target", "y", "--ignore", "z,label,who", "--lags", "1,2"],
    "fleet": ["--target", "y", "--ignore", "z,label", "--key", "who"],
}


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    made = drifting()
    half = ROWS // 2
    early = write(tmp_path / "early.csv", made, slice(0, half))
    return early, write(tmp_path / "later.csv", made, slice(half, None))


def contents(path: Path) -> dict[str, bytes]:
    """All that is kept of a model."""
    found = [path] if path.is_file() else sorted(path.iterdir())
    beside = ("-shm", "-wal")  # which reading alone makes
    return {each.name: each.read_bytes() for each in found if not each.name.endswith(beside)}


@pytest.mark.parametrize("case", CASES)
def test_figures_are_those_of_rows_that_train_goes_on_with(
    case: str, files: tuple[str, str], tmp_path: Path
) -> None:
    """What `train` said of each row before it learned it, written down, has the same error."""
    early, later = files
    model, said = tmp_path / "model", tmp_path / "said.csv"
    assert run("train", early, "-m", model, "-q", "--layers", "5", *CASES[case]).code == 0
    before = contents(model)
    ran = run("evaluate", model, later, "--learn", "--json")
    assert ran.code == 0
    assert contents(model) == before
    got = json.loads(ran.out)
    assert got["learning"] is True
    assert run("train", later, "-m", model, "-q", "--predictions", said, "--digits", "17").code == 0
    with said.open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == ROWS // 2
    if case == "classes":
        wrong = np.mean([row["label"] != row["kbnn_label"] for row in rows])
        assert got["accuracy"] == pytest.approx(1.0 - wrong, abs=1e-12)
        return
    for name, one in got.get("targets", {"y": got}).items():
        suffix = f"_{name}" if "targets" in got else ""
        off = [float(row[f"mean{suffix}"]) - float(row[name]) for row in rows]
        assert one["rmse"] == pytest.approx(np.sqrt(np.mean(np.square(off))), rel=1e-9)


def test_the_situation_and_the_remedy_are_stated(files: tuple[str, str], tmp_path: Path) -> None:
    early, later = files
    model = tmp_path / "m.npz"
    assert run("train", early, "-m", model, "-q", *CASES["regression"]).code == 0
    frozen = run("evaluate", model, later).out
    assert "The model is frozen: it does not learn from these rows." in frozen
    words = " ".join(frozen.split())
    assert "`kbnn train` continues to learn" in words
    assert "`kbnn evaluate --learn` measures" in words
    assert json.loads(run("evaluate", model, later, "--json").out)["learning"] is False
    learning = run("evaluate", model, later, "--learn").out
    assert "The model learns each row after predicting it; nothing is saved." in learning
    assert "evaluate --learn" not in learning
    page = tmp_path / "page.html"
    assert run("evaluate", model, later, "--report", page).code == 0
    assert "measures that without saving" in page.read_text()


def test_a_frozen_model_that_is_right_needs_no_remedy(tmp_path: Path) -> None:
    model, rows = tmp_path / "m.npz", write(tmp_path / "rows.csv", drifting(1), slice(0, ROWS // 2))
    assert run("train", rows, "-m", model, "-q", *CASES["regression"]).code == 0
    said = run("evaluate", model, rows).out
    assert "error bars" in said
    assert "--learn" not in said


@pytest.mark.parametrize(
    ("more", "why"),
    [
        (("--intervals", "stated"), "--intervals"),
        (("--engine", "dask"), "--engine"),
    ],
)
def test_what_does_not_go_with_learning_is_refused(
    more: tuple[str, ...], why: str, files: tuple[str, str], tmp_path: Path
) -> None:
    model = tmp_path / "m.npz"
    assert run("train", files[0], "-m", model, "-q", *CASES["lags"]).code == 0
    ran = run("evaluate", model, files[1], "--learn", *more)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("kbnn: --learn ")
    assert why in ran.err
    assert len(ran.err.splitlines()) == 1


def test_a_model_in_python_stays_as_it_is() -> None:
    made = drifting()
    half = ROWS // 2
    early = {name: column[:half] for name, column in made.items()}
    later = {name: column[half:] for name, column in made.items()}
    model = kbnn.Model(target="y", ignore=["z", "label", "who"], layers=5)
    model.learn(early)
    before = model.to_bytes()
    frozen, learning = model.evaluate(later), model.evaluate(later, learn=True)
    assert model.to_bytes() == before
    assert (frozen["learning"], learning["learning"]) == (False, True)
    assert learning["rmse"] < 0.8 * frozen["rmse"]
    assert "evaluate --learn" in frozen.verdict
    assert "evaluate --learn" not in learning.verdict


def test_a_fleet_in_memory_stays_as_it_is() -> None:
    made = drifting()
    half = ROWS // 2
    early = {name: column[:half] for name, column in made.items()}
    later = {name: column[half:] for name, column in made.items()}
    fleet = kbnn.train(early, "y", key=["who"], ignore=["z", "label"])
    first = fleet.evaluate(later, learn=True)
    frozen = fleet.evaluate(later)
    again = fleet.evaluate(later, learn=True)
    assert first["rmse"] == again["rmse"] < frozen["rmse"]
    assert fleet.rows == half
    fleet.learn(later)
    assert fleet.rows == ROWS


def write_values(path: Path, values: list[str]) -> Path:
    hours = [f"2026-01-{1 + k // 24:02d} {k % 24:02d}:00" for k in range(len(values))]
    rows = [f"{when},{value}" for when, value in zip(hours, values, strict=True)]
    path.write_text("\n".join(["time,y", *rows]) + "\n")
    return path


@pytest.mark.parametrize("learned", [2, 10, 100])
def test_a_constant_target_is_not_said_to_be_missing(learned: int, tmp_path: Path) -> None:
    source, model = write_values(tmp_path / "s.csv", ["5"] * learned), tmp_path / "m.npz"
    later = write_values(tmp_path / "later.csv", ["5"] * 25)
    assert run("train", source, "-m", model, "-q").code == 0
    told = run("evaluate", model, later, "--learn")
    assert told.code == 1
    assert (
        "nothing to evaluate: the model is still in its warm-up, which ends after 32 rows with "
        "different changes of 'y'"
    ) in told.err
    told = run("evaluate", model, later)
    assert told.code == 1
    assert "the model has no error bars yet. It needs more rows, with different changes" in told.err
    if learned > 2:
        for words in ((), ("--learn",)):
            told = run("evaluate", model, later, "--horizon", "3", *words)
            assert told.code == 0, told.err
            assert "Nothing to forecast" in told.out
            assert "The values do not change: repeating the last one has no error." in told.out


@pytest.mark.parametrize("words", [(), ("--learn",), ("--horizon", "3")])
def test_rows_without_values_are_counted(words: tuple[str, ...], tmp_path: Path) -> None:
    values = [f"{k % 7}.{k % 3}" for k in range(100)]
    source, model = write_values(tmp_path / "s.csv", values), tmp_path / "m.npz"
    later = write_values(tmp_path / "later.csv", ["NA"] * 6)
    assert run("train", source, "-m", model, "-q", "--layers", "2").code == 0
    told = run("evaluate", model, later, *words)
    assert told.code == 1
    assert "nothing to evaluate: none of the 6 rows has a value of 'y'" in told.err


def test_steps_without_values_are_left_blank_without_warnings(tmp_path: Path) -> None:
    values = [f"{k % 7}.{k % 3}" for k in range(100)]
    source, model = write_values(tmp_path / "s.csv", values), tmp_path / "m.npz"
    later = write_values(tmp_path / "later.csv", ["1.5", "NA", "NA"])
    assert run("train", source, "-m", model, "-q", "--layers", "2").code == 0
    told = run("evaluate", model, later, "--horizon", "3")
    assert told.code == 0
    assert "Warning" not in told.err
