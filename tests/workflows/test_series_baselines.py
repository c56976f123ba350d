"""Series beside naive forecasts: summaries, verdicts, backtests in words, and fleets by key."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

import kbnn
from kbnn.array_types import FloatArray
from kbnn.errors import UsageError
from kbnn.metrics.verdicts import StepFigures, judge_steps
from tests.commands import kbnn as command

ROWS = 500


def make_values(rows: int = ROWS, seed: int = 0) -> FloatArray:
    """Hourly values with a daily cycle."""
    noise = np.random.default_rng(seed).normal(size=rows)
    return np.round(50.0 + 10.0 * np.sin(2 * np.pi * np.arange(rows) / 24) + noise, 3)


def make_times(rows: int) -> list[str]:
    start = np.datetime64("2026-01-01T00:00")
    return [str(start + 60 * k) for k in range(rows)]


def write(path: Path, y: FloatArray, first: int = 0) -> Path:
    times = make_times(len(y))
    lines = [f"{t},{v}\n" for t, v in zip(times[first:], y[first:].tolist(), strict=True)]
    path.write_text("time,y\n" + "".join(lines))
    return path


def walk(rows: int = ROWS) -> FloatArray:
    values: FloatArray = np.cumsum(np.random.default_rng(4).normal(size=rows))
    return np.round(values, 3)


def test_a_record_holds_the_errors_of_naive_forecasts(tmp_path: Path) -> None:
    y = make_values()
    found = kbnn.train(write(tmp_path / "s.csv", y), target="y", layers=[4]).record()
    scored = found["rows"]
    last, season = y[1:] - y[:-1], y[24:] - y[:-24]
    assert found["last_rmse"] == pytest.approx(np.sqrt(np.mean(last[-scored:] ** 2)))
    assert found["season_rmse"] == pytest.approx(np.sqrt(np.mean(season[-scored:] ** 2)))
    assert found["rmse"] < found["season_rmse"] < found["last_rmse"]


@pytest.mark.parametrize("size", [1, 33])
def test_naive_errors_do_not_depend_on_chunks_and_saves(size: int, tmp_path: Path) -> None:
    y, times = make_values(200), make_times(200)
    whole, parts = (kbnn.Model("y", layers=[4]) for _ in range(2))
    whole.learn({"time": times, "y": y.tolist()})
    parts.learn({"time": times[:40], "y": y[:40].tolist()})
    for start in range(40, 200, size):
        stop = start + size
        parts.learn({"time": times[start:stop], "y": y[start:stop].tolist()})
        if start == 40:
            parts.save(tmp_path / "m.npz")
            parts = kbnn.load(tmp_path / "m.npz")
    for name in ("last_rmse", "season_rmse", "rmse"):
        assert whole.record()[name] == parts.record()[name]


def test_evaluate_compares_with_the_rows_before_each_row(tmp_path: Path) -> None:
    y = make_values()
    model = kbnn.train(write(tmp_path / "s.csv", y[:400]), target="y", layers=[4])
    found = model.evaluate({"time": make_times(ROWS)[400:], "y": y[400:].tolist()})
    assert found["last_rmse"] == pytest.approx(np.sqrt(np.mean((y[400:] - y[399:-1]) ** 2)))
    assert found["season_rmse"] == pytest.approx(np.sqrt(np.mean((y[400:] - y[376:-24]) ** 2)))


def test_a_model_that_the_last_value_beats_is_never_good(tmp_path: Path) -> None:
    """On a walk the network explains nearly all of the variance, and yet nothing."""
    ran = command("train", write(tmp_path / "w.csv", walk()), "-m", tmp_path / "m.npz")
    assert ran.code == 0
    found = json.loads(command("inspect", tmp_path / "m.npz", "--json").out)["prequential"]["y"]
    said = ran.out + ran.err
    assert found["r2"] > 0.9
    assert ("No better than the last value" in said) == (found["rmse"] >= found["last_rmse"])
    assert ("Good" in said) == (found["rmse"] < found["last_rmse"])
    kept = command("train", write(tmp_path / "s.csv", make_values()), "-m", tmp_path / "n.npz")
    assert "for the value a season ago" in kept.out + kept.err
    worse = command("evaluate", tmp_path / "n.npz", write(tmp_path / "later.csv", walk() + 50.0))
    assert "No better than the last value" in worse.out
    assert "Good" not in worse.out


def test_without_lags_there_are_no_naive_forecasts() -> None:
    x = np.random.default_rng(0).normal(size=60)
    model = kbnn.Model("y", layers=[4])
    model.learn({"x": x.tolist(), "y": (2 * x).tolist()})
    assert model.record()["last_rmse"] is None
    assert model.record()["season_rmse"] is None


def test_a_condition_may_compare_with_the_last_value(tmp_path: Path) -> None:
    command("train", write(tmp_path / "s.csv", make_values()), "-m", tmp_path / "m.npz", "-q")
    ran = command("evaluate", tmp_path / "m.npz", tmp_path / "s.csv", "--fail-if",
                  "rmse<last_rmse", "-q")  # fmt: skip
    assert ran.code == 3


def step(step: int, rmse: float, coverage: float = 0.9, season: float | None = None) -> StepFigures:
    return StepFigures(step, 100, rmse, 1.0, season, coverage)


@pytest.mark.parametrize(
    ("steps", "level", "sentence"),
    [
        ([step(1, 0.8), step(2, 0.9)], "good", "More accurate than the last value at all 2 steps."),
        ([step(1, 0.8), step(2, 1.2)], "fair", "more than 3 % at step 2."),
        ([step(1, 1.2), step(2, 1.2)], "poor", "Worse than the last value by more than 3 % at st"),
        ([step(1, 0.8, 0.5), step(2, 0.8)], "poor", "The 90 % bands are too narrow at step 1 (in"),
        ([step(1, 0.8, season=0.7)], "poor", "Worse than the better of the last value and the val"),
        ([step(1, 0.7, season=0.7)], "poor", "As accurate as the better of the last value and the"),
        (
            [step(1, 1e-12, 1.0, season=0.0)],
            "poor",
            "The 90 % bands hold at step 1: 100 % of",
        ),
        (
            [step(1, 0.5)._replace(rows=0), step(2, 0.5)],
            "good",
            "More accurate than the last value at",
        ),
        ([step(1, 0.6), step(2, 1.01)], "fair", "as accurate as the better of them (within 3 %)."),
        ([step(1, 1.01), step(2, 1.0)], "poor", "As accurate as the last value at all 2 steps (wi"),
    ],
)
def test_steps_are_judged_in_words(steps: list[StepFigures], level: str, sentence: str) -> None:
    verdict = judge_steps(steps)
    assert verdict.level == level
    assert sentence in " ".join(verdict.sentences)


def backtest(model: Path, rows: Path, *words: str) -> dict[str, Any]:
    ran = command("evaluate", model, rows, "--horizon", "6", "--json", "-q", *words)
    assert ran.code == 0, ran.err
    found: dict[str, Any] = json.loads(ran.out)
    return found


def test_a_backtest_may_learn_between_origins(tmp_path: Path) -> None:
    """The level moves away after training: learning changes forecasts, as training by hand does."""
    y = make_values(360)
    y[200:] = np.round(3.0 * y[200:] + 40.0, 3)
    model = tmp_path / "m.npz"
    command("train", write(tmp_path / "s.csv", y[:200]), "--layers", "4", "-m", model, "-q")
    rest, before = write(tmp_path / "rest.csv", y, 200), model.read_bytes()
    frozen, learning = backtest(model, rest), backtest(model, rest, "--learn")
    assert (frozen["learning"], learning["learning"]) == (False, True)
    assert model.read_bytes() == before
    assert learning["mase"] != frozen["mase"]
    by_hand, errors, times = kbnn.load(model), [], make_times(360)
    for place in range(200, 355):
        errors.append(by_hand.forecast(6).mean[5] - y[place + 5])
        by_hand.learn({"time": times[place : place + 1], "y": y[place : place + 1].tolist()})
    assert learning["steps"][5]["rmse"] == pytest.approx(np.sqrt(np.mean(np.square(errors))))


def test_figures_of_a_backtest(tmp_path: Path) -> None:
    y = make_values(300)
    model = tmp_path / "m.npz"
    command("train", write(tmp_path / "s.csv", y[:240]), "--layers", "4", "-m", model, "-q")
    found = backtest(model, write(tmp_path / "rest.csv", y, 240))
    scale = np.mean(np.abs(y[24:] - y[:-24]))
    one = found["steps"][0]
    assert one["msis"] == pytest.approx(one["interval_score_90"] / scale)
    assert found["mase"] == pytest.approx(np.mean([s["mase"] for s in found["steps"]]))
    assert 0.0 < one["smape"] < 20.0
    shown = command("evaluate", model, tmp_path / "rest.csv", "--horizon", "6").out
    assert found["verdict"]["headline"] in shown
    assert "MASE" in shown


def test_pandas_and_polars_read_the_times_of_a_forecast() -> None:
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    index = pandas.date_range("2026-03-28", periods=100, freq="h", tz="Europe/Berlin", name="at")
    y = make_values(100)
    wait = pandas.to_timedelta(np.arange(100) % 7, unit="min")
    model = kbnn.Model("y", layers=[4])
    model.learn(pandas.DataFrame({"y": y, "wait": wait}, index=index))  # the index is the clock
    schema = cast(Any, model)._model.schema
    kinds = {column.name: column.kind for column in schema.columns}
    assert (schema.clock.column, kinds["wait"]) == ("at", "number")
    made = model.forecast(3)
    frame = polars.DataFrame(made)
    assert frame.columns == ["at", "mean", "sd", "lower", "upper"]
    expected = [index[-1] + pandas.Timedelta(hours=h) for h in (1, 2, 3)]
    assert [pandas.Timestamp(t) for t in frame["at"]] == expected
    naive = kbnn.Model("y", layers=[4])
    naive.learn(pandas.DataFrame({"y": y, "at": index.tz_localize(None)}))
    frame = (
        pandas.DataFrame.from_arrow(naive.forecast(2))
        if hasattr(pandas.DataFrame, "from_arrow")
        else naive.forecast(2).to_arrow().to_pandas()
    )
    assert frame["at"].tolist() == [pandas.Timestamp("2026-04-01T05:00"),
                                    pandas.Timestamp("2026-04-01T06:00")]  # fmt: skip


def test_a_fleet_forecasts_as_the_exported_models_do(tmp_path: Path) -> None:
    lines = ["time,shop,till,y\n"]
    series = {("a", "x,1"): make_values(60, 1), ("b", "y"): make_values(90, 2) + 30.0}
    for (shop, till), y in series.items():
        for t, value in zip(make_times(len(y)), y.tolist(), strict=True):
            lines.append(f'{t},{shop},"{till}",{value}\n')
    (tmp_path / "f.csv").write_text("".join(lines))
    fleet = tmp_path / "fleet"
    ran = command("train", tmp_path / "f.csv", "--target", "y", "--key", "shop,till", "-m", fleet)
    assert ran.code == 0, ran.err
    head, *rows = command("predict", fleet, "--horizon", "30").out.splitlines()
    assert head == "shop,till,step,time,mean,sd,lower,upper"
    assert len(rows) == 60
    for key, quoted in (("b,y", "b,y,"), ('a,"x,1"', 'a,"x,1",')):
        one = tmp_path / "one.npz"
        command("inspect", fleet, "--key", key, "--export", one, "--force")
        alone = command("predict", one, "--horizon", "30").out.splitlines()[1:]
        assert [r.removeprefix(quoted) for r in rows if r.startswith(quoted)] == alone
        assert alone[0].startswith("1,2026-01-0")
    refused = command("predict", fleet, tmp_path / "f.csv", "--horizon", "3")
    assert (refused.code, "leave out" in refused.err) == (2, True)


def test_a_fleet_is_backtested_by_the_models_of_its_keys(tmp_path: Path) -> None:
    y, times = make_values(200), make_times(200)
    rows = {"a": y, "b": 3.0 * y + 5.0}
    for name, part in (("s.csv", slice(0, 150)), ("rest.csv", slice(150, 200))):
        lines = [
            f"{key},{t},{v}"
            for key in rows
            for t, v in zip(times[part], rows[key][part], strict=True)
        ]
        (tmp_path / name).write_text("\n".join(["key,time,y", *lines]) + "\n")
    fleet, rest = tmp_path / "fleet", tmp_path / "rest.csv"
    assert command("train", tmp_path / "s.csv", "--key", "key", "-m", fleet, "-q").code == 0
    found = backtest(fleet, rest)
    assert [key["key"] for key in found["keys"]] == ["a", "b"]
    alone = []
    for key in rows:
        model = tmp_path / f"{key}.npz"
        command("inspect", fleet, "--key", key, "--export", model)
        lines = [line for line in rest.read_text().splitlines() if line[:2] in ("ke", f"{key},")]
        (tmp_path / f"{key}.csv").write_text("\n".join(lines) + "\n")
        plot = tmp_path / f"{key}.svg"
        alone.append(backtest(model, tmp_path / f"{key}.csv", "--plot", str(plot)))
        assert "worst origin" in plot.read_text()
        assert any(time in plot.read_text() for time in times[150:])
    for key, one in zip(found["keys"], alone, strict=True):
        assert key["mase"] == pytest.approx(one["mase"], rel=1e-12)
    assert found["mase"] == pytest.approx(np.mean([one["mase"] for one in alone]), rel=1e-9)
    assert found["origins"] == sum(one["origins"] for one in alone)


def test_the_backtest_of_python_is_that_of_the_command(tmp_path: Path) -> None:
    times, y = make_times(ROWS), make_values().tolist()
    model = kbnn.train({"time": times[:400], "y": y[:400]}, layers=5)
    model.save(tmp_path / "m.npz")
    later = tmp_path / "later.csv"
    cells = zip(times[400:], y[400:], strict=True)
    later.write_text("time,y\n" + "".join(f"{when},{value}\n" for when, value in cells))
    for learn in (False, True):
        figures = model.evaluate(later, horizon=6, learn=learn)
        words = ("--learn",) if learn else ()
        ran = command("evaluate", tmp_path / "m.npz", later, "--horizon", "6", "--json", *words)
        assert dict(figures) == json.loads(ran.out)
        assert "More accurate than the last value" in repr(figures)
    assert model.rows == 399
    with pytest.raises(UsageError, match="horizon cannot be combined with threshold"):
        model.evaluate(later, horizon=6, threshold=0.5)
