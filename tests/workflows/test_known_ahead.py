"""Series with other columns: default lags, columns known ahead, and columns used through lags."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.commands import kbnn as command

ROWS, KNOWN = 500, 420


def write(path: Path, rows: range, heat_of: Any = None, step_minutes: int = 60) -> Path:
    """A load that follows the heat of the hour before; another column is noise."""
    rng = np.random.default_rng(4)
    heat, noise = rng.normal(size=(2, ROWS))
    load = np.zeros(ROWS)
    for k in range(1, ROWS):
        load[k] = 0.6 * load[k - 1] + 2.0 * heat[k - 1] + 0.1 * noise[k]
    shown = heat if heat_of is None else heat_of
    gaps = np.arange(ROWS) * step_minutes if step_minutes else np.cumsum(rng.integers(1, 900, ROWS))
    start = np.datetime64("2026-01-01T00:00")
    lines = [f"{start + int(gaps[k])},{shown[k]},{noise[k]},{load[k]}" for k in rows]
    path.write_text("\n".join(["time,heat,noise,load", *lines]) + "\n")
    return path


def train(folder: Path, *options: str) -> tuple[Path, str]:
    model = folder / "m.npz"
    ran = command("train", write(folder / "t.csv", range(KNOWN)), "-m", model, "--fresh", *options)
    assert ran.code == 0, ran.err
    return model, ran.err


def predicted(model: Path, path: Path) -> list[str]:
    ran = command("predict", model, path)
    assert ran.code == 0, ran.err
    return [row["mean"] for row in csv.DictReader(io.StringIO(ran.out))]


def test_a_regular_clock_gives_lags_beside_other_columns(tmp_path: Path) -> None:
    _, said = train(tmp_path)
    assert "lags 1, 2, 3, 24, 25 of 'load' are inputs" in said
    assert "'heat', 'noise' are inputs of the same row, and not known several steps ahead" in said
    _, said = train(tmp_path, "--lags", "off")
    assert "lags 1" not in said
    assert "must earn" not in said
    assert "known several steps" not in said


def test_lags_of_other_columns_are_announced(tmp_path: Path) -> None:
    _, said = train(tmp_path)
    assert "lags 1, 2 of 'heat', 'noise' must earn their place" in said
    ran = command("inspect", tmp_path / "m.npz")
    assert "50 without replay with lags of other columns" in ran.out
    _, said = train(tmp_path, "--layers", "5")
    assert "must earn" not in said


def test_fleets_have_lags_of_the_target_alone(tmp_path: Path) -> None:
    lines = write(tmp_path / "t.csv", range(KNOWN)).read_text().splitlines()
    keyed = [f"{line},{f's{k % 2}' if k else 'site'}" for k, line in enumerate(lines)]
    (tmp_path / "t.csv").write_text("\n".join(keyed) + "\n")
    options = ("--target", "load", "--key", "site")
    ran = command("train", tmp_path / "t.csv", "-m", tmp_path / "fleet", *options)
    assert "lags 1, 2, 3, 12, 13 of 'load'" in ran.err
    assert "must earn" not in ran.err


def test_a_column_that_is_not_known_ahead_is_used_through_its_lags(tmp_path: Path) -> None:
    model, said = train(tmp_path, "--known-ahead", "noise")
    assert "lags 1, 2 of 'heat', 'noise' must earn their place" in said
    assert "ignored" not in said
    now = predicted(model, write(tmp_path / "n.csv", range(KNOWN, KNOWN + 1)))
    other = predicted(model, write(tmp_path / "n.csv", range(KNOWN, KNOWN + 1), np.full(ROWS, 9.0)))
    assert now == other


def test_an_irregular_clock_gives_none_beside_other_columns(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", range(ROWS), step_minutes=0)
    ran = command("train", path, "-m", tmp_path / "m.npz")
    assert ran.code == 0
    assert "are inputs" not in ran.err


def test_a_column_can_be_used_through_its_lags_alone(tmp_path: Path) -> None:
    model, said = train(tmp_path, "--known-ahead", "none", "--lags", "load:1,2;heat:1")
    assert "1 of 'heat' are inputs" in said
    assert "'noise' ignored: not known ahead, and without lags" in said
    now = predicted(model, write(tmp_path / "n.csv", range(KNOWN, KNOWN + 1)))
    other = predicted(model, write(tmp_path / "n.csv", range(KNOWN, KNOWN + 1), np.full(ROWS, 9.0)))
    assert now == other
    ahead = command("predict", model, "--horizon", "3")
    assert ahead.code == 0
    assert "missing in the steps" not in ahead.err


def test_without_inputs_of_the_row_the_first_step_is_the_prediction_of_the_next_row(
    tmp_path: Path,
) -> None:
    model, _ = train(tmp_path, "--known-ahead", "none", "--lags", "load:1,2;heat:1")
    path = write(tmp_path / "n.csv", range(KNOWN, KNOWN + 1))
    tables = [command("predict", model, path), command("predict", model, "--horizon", "3")]
    row, step = (next(csv.DictReader(io.StringIO(ran.out))) for ran in tables)
    for name in ("mean", "sd", "lower", "upper"):
        assert step[name] == row[name]


def test_lags_of_another_column_are_learned(tmp_path: Path) -> None:
    rest, found = write(tmp_path / "n.csv", range(KNOWN, ROWS)), []
    for lags in ("load:1,2;heat:1", "load:1,2"):
        model, _ = train(tmp_path, "--known-ahead", "none", "--lags", lags)
        ran = command("evaluate", model, rest, "--json")
        found.append(json.loads(ran.out)["rmse"])
    assert found[0] < 0.4 * found[1]


def test_a_backtest_hides_what_is_not_known_ahead(tmp_path: Path) -> None:
    model, _ = train(tmp_path)
    rest = write(tmp_path / "n.csv", range(KNOWN, KNOWN + 1))
    before = command("evaluate", model, rest, "--horizon", "1", "--json")
    write(rest, range(KNOWN, KNOWN + 1), np.full(ROWS, 2.5))
    changed = command("evaluate", model, rest, "--horizon", "1", "--json")
    assert json.loads(before.out)["steps"][0]["rmse"] == pytest.approx(
        json.loads(changed.out)["steps"][0]["rmse"]
    )
    model, _ = train(tmp_path, "--known-ahead", "heat")
    ran = command("predict", model, "--horizon", "3")
    assert "'heat' is known ahead: name a file with its future values" in ran.err


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--known-ahead", "cold"), "no column 'cold'"),
        (("--known-ahead", "heat", "--lags", "off"), "--known-ahead needs lags of the target"),
    ],
)
def test_what_cannot_be_known_ahead(
    options: tuple[str, ...], sentence: str, tmp_path: Path
) -> None:
    path = write(tmp_path / "t.csv", range(100))
    ran = command("train", path, "-m", tmp_path / "m.npz", *options)
    assert ran.code != 0
    assert sentence in ran.err


def test_known_ahead_must_agree_with_a_model_that_is_continued(tmp_path: Path) -> None:
    model, _ = train(tmp_path)
    rows = write(tmp_path / "more.csv", range(KNOWN, ROWS))
    ran = command("train", rows, "-m", model, "--known-ahead", "heat")
    assert ran.code == 2
    assert "--known-ahead heat contradicts" in ran.err
    model, _ = train(tmp_path, "--known-ahead", "heat")
    assert command("train", rows, "-m", model, "--known-ahead", "heat").code == 0
    model, _ = train(tmp_path, "--known-ahead", "none")
    assert command("train", rows, "-m", model, "--known-ahead", "none").code == 0


def test_the_noise_is_that_of_the_network_that_counts(tmp_path: Path) -> None:
    model, _ = train(tmp_path)  # the load follows heat an hour ago, with a noise of .1
    found = json.loads(command("inspect", model, "--json").out)
    assert found["noise_sd"]["load"] < 0.5
