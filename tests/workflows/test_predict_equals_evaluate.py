"""`predict` writes what `evaluate` scores, and time moves on from the model's end."""

from __future__ import annotations

import csv
import io
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kbnn
from kbnn.array_types import FloatArray
from kbnn.metrics.scorecard import Scorecard
from kbnn.targets.prediction import Forecast, join_forecasts
from tests.commands import Ran
from tests.commands import kbnn as command

ROWS, KNOWN = 400, 330


def level(rows: int = ROWS) -> FloatArray:
    rng = np.random.default_rng(3)
    hour = np.arange(rows)
    return 40.0 + 10.0 * np.sin(hour * np.pi / 12) + np.cumsum(rng.normal(0.0, 0.4, rows))


def times(rows: int = ROWS) -> list[str]:
    start = np.datetime64("2026-01-01T00")
    return [str(start + np.timedelta64(k, "h")).replace("T", " ") + ":00" for k in range(rows)]


def table(task: str) -> dict[str, Any]:
    """A series with another input, its target of the type."""
    y = level()
    rng = np.random.default_rng(4)
    other = np.roll(y, 2) + rng.normal(0.0, 1.0, ROWS)
    target: Any = {
        "regression": y,
        "positive": np.exp(0.05 * y),
        "count": rng.poisson(np.maximum(y, 1.0)).astype(float),
        "amount": np.where(y > np.median(y), y, 0.0),
        "classification": np.where(y > np.median(y), "high", "low"),
    }[task]
    return {"time": times(), "other": other, "kind": np.where(other > 40, "a", "b"), "y": target}


def part(data: dict[str, Any], rows: slice) -> dict[str, Any]:
    return {name: column[rows] for name, column in data.items()}


def scored(model: kbnn.Model, data: Any, monkeypatch: pytest.MonkeyPatch) -> Forecast:
    """What `evaluate` compares with the targets."""
    seen: list[Forecast] = []
    add = Scorecard.add

    def note(self: Scorecard, x: Any, y: Any, said: Forecast, *rest: Any) -> None:
        seen.append(said)
        add(self, x, y, said, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(Scorecard, "add", note)
        model.evaluate(data)
    return join_forecasts(seen)


def assert_same(said: Any, other: Forecast) -> None:
    made = said._forecast if hasattr(said, "_forecast") else said._made
    for name in ("mean", "sd", "probability", "stated"):
        assert np.array_equal(getattr(made, name), getattr(other, name), equal_nan=True), name


OPTIONS: dict[str, dict[str, Any]] = {
    "rows": {"lags": "y:1,2,24"},
    "durations": {"lags": "y:1h,1d;other:2h"},
    "other columns": {"lags": "other:1,3"},
    "ensemble": {"lags": "y:1,2", "ensemble": 2},
    "neuron": {"lags": "y:1", "covariance": "neuron"},
    "units off": {"lags": "y:1,2", "units": "off"},
    "no lags": {"lags": "off"},
}


@pytest.mark.thinned(2)
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("task", ["regression", "positive", "count", "amount", "classification"])
def test_what_is_predicted_is_what_is_scored(
    task: str, options: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = dict(OPTIONS[options])
    if task == "classification" and "y:" in words["lags"]:
        words["lags"] = words["lags"].replace("y:", "other:").partition(";")[0]
    data = table(task)
    model = kbnn.train(part(data, slice(KNOWN)), target="y", task=task, layers=6, **words)
    rest = part(data, slice(KNOWN, ROWS))
    found = scored(model, rest, monkeypatch)
    assert_same(model.predict(rest), found)
    blocks = [part(rest, slice(k, k + 7)) for k in range(0, ROWS - KNOWN, 7)]
    assert_same(model.predict(iter(blocks)), found)


def test_several_targets_and_gaps_too(monkeypatch: pytest.MonkeyPatch) -> None:
    y = level()
    data = {"time": times(), "a": y, "b": np.roll(y, 3)}
    model = kbnn.train(part(data, slice(KNOWN)), target=["a", "b"], layers=6, lags="1,2")
    rest = part(data, slice(KNOWN, ROWS))
    rest["a"] = np.where(np.arange(ROWS - KNOWN) % 9 < 3, np.nan, rest["a"])
    assert_same(model.predict(rest), scored(model, rest, monkeypatch))


def test_a_fleet_predicts_what_it_scores_however_few_models_are_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    y = level()
    names = np.array(["n", "s", "w"])[np.arange(ROWS) % 3]
    data = {"site": names, "x": np.roll(y, 1), "y": y + 5.0 * (names == "s")}
    for most in (1, 100):
        path = tmp_path / f"fleet{most}"
        fleet = kbnn.train(
            part(data, slice(KNOWN)), target="y", key="site", lags="1,2", layers=4, model=path
        )
        rest = part(data, slice(KNOWN, ROWS))
        blocks = [part(rest, slice(k, k + 5)) for k in range(0, ROWS - KNOWN, 5)]
        fleet._model.models.most_open = most  # type: ignore[union-attr]  # it is a fleet
        found = scored(fleet, iter(blocks), monkeypatch)
        assert_same(fleet.predict(rest), found)
        assert_same(fleet.predict(iter(blocks)), found)


@pytest.fixture(scope="module")
def load(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A model of a series, and the folder it is in."""
    folder = tmp_path_factory.mktemp("load")
    write(folder / "past.csv", range(KNOWN))
    ran = command("train", folder / "past.csv", "-m", folder / "m.npz", "-q", "--layers", "8")
    assert ran.code == 0, ran.err
    return folder / "m.npz", folder


def write(path: Path, rows: Any, known: Any = lambda row: True) -> Path:
    y, when = level(), times()
    lines = [f"{when[k]},{y[k]:.3f}" if known(k) else f"{when[k]}," for k in rows]
    path.write_text("time,y\n" + "\n".join(lines) + "\n")
    return path


def column(ran: Ran, name: str) -> FloatArray:
    assert ran.code == 0, ran.err
    return np.array([float(row[name]) for row in csv.DictReader(io.StringIO(ran.out))])


def test_targets_in_the_file_are_the_past_of_the_rows_below(load: tuple[Path, Path]) -> None:
    model, folder = load
    ran = command(
        "predict", model, write(folder / "next.csv", range(KNOWN, ROWS)), "--digits", "17"
    )
    judged = kbnn.load(model).evaluate(folder / "next.csv")
    error = column(ran, "mean") - np.round(level()[KNOWN:], 3)
    assert np.sqrt(np.mean(error**2)) == pytest.approx(judged["rmse"], rel=1e-12)
    assert ran.err == ""


def test_missing_targets_continue_from_the_last_known_value(load: tuple[Path, Path]) -> None:
    model, folder = load
    whole = command("predict", model, write(folder / "next.csv", range(KNOWN, ROWS)))
    gap = write(folder / "gap.csv", range(KNOWN, ROWS), lambda row: row < KNOWN + 20)
    ran = command("predict", model, gap)
    mean, sd = column(ran, "mean"), column(ran, "sd")
    assert np.array_equal(mean[:21], column(whole, "mean")[:21])
    assert np.array_equal(sd[:21], column(whole, "sd")[:21])
    assert sd[21:26].min() > sd[20]
    assert sd[40] > 2.0 * sd[20]
    assert "row 22: the target of the row before is missing" in ran.err
    assert ran.err.count("\n") == 1


def test_a_file_without_the_target_is_what_comes_next(load: tuple[Path, Path]) -> None:
    model, folder = load
    bare = folder / "bare.csv"
    bare.write_text("time\n" + "\n".join(times()[KNOWN : KNOWN + 30]) + "\n")
    ran = command("predict", model, bare, "--digits", "17")
    ahead = command("predict", model, "--horizon", "30", "--digits", "17")
    assert column(ran, "mean") == pytest.approx(column(ahead, "mean"), rel=1e-9)
    assert column(ran, "sd")[1:] == pytest.approx(column(ahead, "sd")[1:], rel=1e-9)
    python = kbnn.load(model).predict({"time": times()[KNOWN : KNOWN + 30]})
    assert np.array_equal(python.mean, column(ran, "mean"))


@pytest.mark.parametrize("task", ["positive", "count", "amount"])
def test_other_targets_go_on_with_growing_error_bars(task: str) -> None:
    data = table(task)
    model = kbnn.train(part(data, slice(KNOWN)), target="y", task=task, layers=6, lags="y:1,2")
    rest = part(data, slice(KNOWN, ROWS))
    rest["y"] = np.where(np.arange(ROWS - KNOWN) < 10, rest["y"], np.nan)
    said = model.predict(rest)
    known = model.predict(part(data, slice(KNOWN, ROWS)))
    assert np.array_equal(said.mean[:11], known.mean[:11])
    assert np.isfinite(said.mean).all()
    assert np.median(said.sd[11:] / known.sd[11:]) > 1.0


def test_a_long_gap_stays_finite_and_bounded() -> None:
    data = {"time": times(), "y": level()}
    model = kbnn.train(data, target="y", layers=4)
    said = model.predict({"time": times(ROWS + 600)[ROWS:]})
    assert np.isfinite(said.mean).all()
    assert said.mean.min() > -20.0
    assert said.mean.max() < 100.0
    assert said.sd.max() < 4.0 * said.sd[47]
    assert said.sd[-24:].max() <= 1.001 * said.sd[-48:-24].max()


def test_rows_before_the_models_end_have_no_past(load: tuple[Path, Path]) -> None:
    model, folder = load
    ran = command("predict", model, write(folder / "old.csv", range(40)))
    mean, sd = column(ran, "mean"), column(ran, "sd")
    assert "the first row (2026-01-01 00:00) is before the model's end (2026-01-14 17" in ran.err
    assert np.isfinite(mean).all()
    assert sd[0] > 3.0 * sd[30]
    assert np.abs(mean[30:] - level()[30:40]).max() < 10.0
    ran = command("predict", model, folder / "old.csv", "--horizon", "3")
    assert ran.code == 1
    assert "none of the 40 rows" in ran.err
    assert "is after the model's end (2026-01-14 17:00)" in ran.err


def test_a_gap_after_the_models_end_is_reported(load: tuple[Path, Path]) -> None:
    model, folder = load
    late = write(folder / "late.csv", range(KNOWN + 28, ROWS))
    ran = command("predict", model, late)
    assert "28 steps are missing between the model's end" in ran.err
    ran = command("predict", model, late, "--horizon", "3")
    ahead = command("predict", model, "--horizon", "31")
    assert column(ran, "step").tolist() == [29, 30, 31]
    assert column(ran, "mean") == pytest.approx(column(ahead, "mean")[28:], rel=1e-12)
    assert "29 steps after the model's end" in ran.err


def test_rows_that_the_model_knows_are_skipped_by_horizon(load: tuple[Path, Path]) -> None:
    model, folder = load
    both = write(folder / "both.csv", range(KNOWN - 5, ROWS))
    ran = command("predict", model, both, "--horizon", "3")
    assert ran.out == command("predict", model, "--horizon", "3").out
    assert "skipped 5 rows" in ran.err
    judged = command("evaluate", model, both, "--horizon", "2")
    assert "is before the model's end" in judged.err


def test_notices_reach_python_by_the_log(
    load: tuple[Path, Path], caplog: pytest.LogCaptureFixture
) -> None:
    model, folder = load
    with caplog.at_level(logging.INFO, "kbnn"):
        kbnn.load(model).predict(write(folder / "old.csv", range(40)))
    assert "is before the model's end" in caplog.text
