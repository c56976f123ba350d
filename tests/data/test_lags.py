"""Lags: what was before a row and nothing else, the same however the stream is cut."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kbnn
from kbnn.data.dataset import open_stream
from kbnn.data.lags import History, Lag, compute_lag_window, look_up_lags, parse_lags
from kbnn.errors import ModelError, UsageError
from kbnn.model import file as modelfile
from kbnn.model.model import OnlineModel
from kbnn.model.serialize import from_state, to_state
from kbnn.workflows.options import build_train_options
from kbnn.workflows.training import Training
from tests.commands import kbnn as command


def values(rows: int = 300, seed: int = 0) -> list[float]:
    rng = np.random.default_rng(seed)
    level = 50 + 10 * np.sin(np.arange(rows) * 2 * np.pi / 24) + rng.normal(0, 1, rows).cumsum() / 5
    return [round(float(value), 3) for value in level]


def moment(at: int) -> str:
    return f"2026-01-{1 + at // 24:02d} {at % 24:02d}:00"


def series(path: Path, rows: int = 300, gaps: tuple[int, ...] = (40, 41, 150)) -> Path:
    """Time and one number; some rows without it."""
    lines = [f"{moment(i)},{'' if i in gaps else v}" for i, v in enumerate(values(rows))]
    path.write_text("time,load\n" + "\n".join(lines) + "\n")
    return path


def trained(path: Path, **words: Any) -> OnlineModel:
    training = Training(build_train_options(str(path), **words))
    training.run()
    return training.overall_model


def bits(model: OnlineModel) -> list[Any]:
    header, arrays = to_state(model)
    header.pop("position")
    return [header, *[(name, array.tobytes()) for name, array in sorted(arrays.items())]]


def test_a_series_gets_lags_and_says_so(tmp_path: Path) -> None:
    ran = command("train", series(tmp_path / "s.csv"), "-m", tmp_path / "m.npz")
    assert ran.code == 0
    assert (
        "lags 1, 2, 3, 24, 25, 168, 169 of 'load' are inputs; the change from the last value is "
        "learned (--lags chooses others, --lags off none)" in ran.err
    )
    model = modelfile.load(str(tmp_path / "m.npz"))
    assert [lag.rows for lag in model.schema.lags] == [1, 2, 3, 24, 25, 168, 169]
    off = command("train", series(tmp_path / "s.csv"), "-m", tmp_path / "o.npz", "--lags", "off")
    assert "are inputs" not in off.err
    assert not modelfile.load(str(tmp_path / "o.npz")).schema.lags


def test_lags_are_the_values_before(tmp_path: Path) -> None:
    model = trained(series(tmp_path / "s.csv", gaps=(40, 41)), layers=5)
    kept = model.learner_state.buffer.rows(model.schema.width)
    numbers = kept.number.astype(int) - 1
    every = np.array(values())
    every[[40, 41]] = np.nan
    names = [place.column for place in model.schema.layout]
    for lag in (1, 2, 3, 24, 25, 168, 169):
        column = kept.x[:, names.index(f"load lag {lag}")]
        wanted = [every[at - lag] if at >= lag else math.nan for at in numbers]
        np.testing.assert_array_equal(column, wanted)
    base = [every[:at][np.isfinite(every[:at])][-1] for at in numbers if at]
    learnable = np.isfinite(kept.y[:, 0])
    np.testing.assert_array_equal(
        kept.y[learnable, 0], (every[numbers] - np.array([0.0, *base])[-len(numbers) :])[learnable]
    )


@pytest.mark.parametrize(
    "words",
    [
        {"layers": 6},
        pytest.param({"layers": "auto"}, marks=pytest.mark.slow),
        pytest.param({"layers": 5, "ensemble": 2}, marks=pytest.mark.slow),
        pytest.param({"layers": 5, "epochs": 3}, marks=pytest.mark.slow),
        pytest.param({"layers": 5, "lags": "1,1h,1d"}, marks=pytest.mark.slow),
    ],
)
def test_any_cut_gives_the_same_bits(words: dict[str, Any], tmp_path: Path) -> None:
    path = series(tmp_path / "s.csv")
    whole = bits(trained(path, **words))
    epochs = words.get("epochs", 1)
    for size in (1, 37):
        options = build_train_options(str(path), **words)
        cut = Training(replace(options, read=replace(options.read, block_rows=size, read_size=50)))
        cut.run()
        assert bits(cut.overall_model) == whole, (size, epochs)


def test_a_resumed_run_gives_the_same_bits(tmp_path: Path) -> None:
    path, model = series(tmp_path / "s.csv"), tmp_path / "m.npz"
    whole = trained(path, lags="1,24,2h,1d")
    text = path.read_text().splitlines(keepends=True)
    for cut in (30, 77, 200):
        part = tmp_path / "part.csv"
        part.write_text("".join(text[: cut + 1]))
        assert (
            command("train", part, "-m", model, "--fresh", "-q", "--lags", "1,24,2h,1d").code == 0
        )
        rest = tmp_path / "rest.csv"
        rest.write_text(text[0] + "".join(text[cut + 1 :]))
        assert command("train", rest, "-m", model, "-q").code == 0
        gone_on = modelfile.load(str(model))
        for name, array in whole.history.arrays().items():
            np.testing.assert_array_equal(getattr(gone_on.history, name), array)
        assert whole.history.series is not None
        assert gone_on.history.series is not None
        for array, expected in zip(gone_on.history.series, whole.history.series, strict=True):
            np.testing.assert_array_equal(array, expected)
        for one, other in zip(gone_on.candidates, whole.candidates, strict=True):
            mine, theirs = one.learned.members[0].state(), other.learned.members[0].state()
            assert np.array_equal(mine.mean, theirs.mean)
            assert np.array_equal(mine.cov, theirs.cov)


def test_no_row_knows_its_own_target(tmp_path: Path) -> None:
    """What is said of a row and those above it does not move with its target."""
    made = []
    for last in ("50", "90"):
        path = series(tmp_path / "s.csv", 200, gaps=())
        text = path.read_text().splitlines()
        text[-1] = f"{moment(199)},{last}"
        path.write_text("\n".join(text) + "\n")
        out = tmp_path / "p.csv"
        assert command("train", path, "-m", tmp_path / "m.npz", "--fresh", "-q",
                       "--predictions", out).code == 0  # fmt: skip
        made.append([line.split(",")[2:6] for line in out.read_text().splitlines()])
    assert made[0] == made[1]


def test_lags_by_time_find_the_row_of_then(tmp_path: Path) -> None:
    """Gaps, doubled rows and rows out of order: the row nearest in time, the last of equals."""
    path = tmp_path / "s.csv"
    order = [at for at in range(100) if at not in (30, 31, 32)]
    order[60], order[61] = order[61], order[60]
    order.insert(70, order[69])
    level = values(101)
    rows = [(at, level[k]) for k, at in enumerate(order)]
    path.write_text("time,load\n" + "\n".join(f"{moment(at)},{v}" for at, v in rows) + "\n")
    model = trained(path, lags="1,3h", layers=4)
    kept = model.learner_state.buffer.rows(model.schema.width)
    names = [place.column for place in model.schema.layout]
    found = kept.x[:, names.index("load lag 3h")]
    for row, number in enumerate(kept.number.astype(int) - 1):
        before = [v for at, v in rows[:number] if at == rows[number][0] - 3]
        np.testing.assert_array_equal(found[row], before[-1] if before else math.nan)


def test_lags_of_other_columns(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    temp = rng.normal(size=200).round(3)
    load = np.concatenate(([0.0, 0.0], temp[:-2])) + 0.01 * rng.normal(size=200).round(3)
    path = tmp_path / "s.csv"
    path.write_text("temp,load\n" + "\n".join(f"{a},{b}" for a, b in zip(temp, load, strict=True)))
    model = trained(path, lags="temp:1,2;load:3", layers=8)
    assert [(lag.column, lag.rows) for lag in model.schema.lags] == [
        ("temp", 1),
        ("temp", 2),
        ("load", 3),
    ]
    assert not model.schema.changes
    assert model.card.scores[0].metric_values()["rmse"] < 0.3  # two rows ago tells all of it


@pytest.mark.parametrize(
    ("lags", "sentence"),
    [
        ("1,x", "--lags takes rows (1,2,24), durations (1h,7d) or columns"),
        ("0", "--lags takes rows"),
        ("1h", "a duration needs a clock"),
        ("c:1", "--lags: column 'c' is not a numeric feature"),
        ("temper:1", "no column 'temper'"),
    ],
)
def test_lags_that_cannot_be(lags: str, sentence: str, tmp_path: Path) -> None:
    path = tmp_path / "s.csv"
    path.write_text("temp,c,y\n" + "\n".join(f"{i},{'ab'[i % 2]},{i % 9}" for i in range(60)))
    ran = command("train", path, "-m", tmp_path / "m.npz", "--lags", lags)
    assert ran.code in (1, 2)
    assert sentence in ran.err


@pytest.mark.parametrize("text", ["0h", "0.0d", "0"])
def test_no_time_at_all_is_no_lag(text: str) -> None:
    with pytest.raises(UsageError, match="--lags takes rows"):
        parse_lags(text)


@pytest.mark.parametrize(("late", "found"), [(-0.5, 7.0), (0.5, 7.0), (0.501, np.nan)])
def test_a_row_is_of_then_if_it_is_so_by_half_a_step(late: float, found: float) -> None:
    lag = [Lag("y an hour ago", "y", 0, 4.0)]
    time = np.array([[0.0, 0.0], [4.0 + late, 4.0 + late]])
    y = np.array([[7.0], [8.0]])
    seen = look_up_lags(lag, ["y"], History(1, 1), time, y, y, compute_lag_window(lag, 1.0))
    assert np.array_equal(seen.lags, [[np.nan], [found]], equal_nan=True)


def test_a_class_has_no_lags_and_a_shuffled_stream_neither(tmp_path: Path) -> None:
    path = tmp_path / "s.csv"
    path.write_text("x,y\n" + "\n".join(f"{i},{'ab'[i % 2]}" for i in range(60)))
    ran = command("train", path, "-m", tmp_path / "m.npz", "--lags", "1")
    assert "--lags: column 'y' is a class" in ran.err
    ran = command("train", path, "-m", tmp_path / "m.npz", "--lags", "1", "--shuffle")
    assert "--lags and --shuffle contradict each other" in ran.err
    series(path)
    ran = command("train", path, "-m", tmp_path / "m.npz", "--shuffle")
    assert ran.code == 0
    assert "are inputs" not in ran.err


def test_a_class_is_learned_from_what_other_columns_were_before(tmp_path: Path) -> None:
    path = tmp_path / "c.csv"
    a = np.random.default_rng(0).integers(0, 3, 401).tolist()
    rows = [f"{now},{'no' if before else 'yes'}\n" for before, now in pairwise(a)]
    path.write_text("a,y\n" + "".join(rows))
    model = trained(path, lags="a:1", layers=4)
    assert model.card.scores[0].metric_values()["accuracy"] > 0.9
    path.write_text("a,y\n" + "".join(f"{k % 7},{k % 5}\n" for k in range(60)))
    said = ("--task", "classification", "--lags", "1")
    ran = command("train", path, "-m", tmp_path / "m.npz", *said)
    assert "--lags: column 'y' is a class" in ran.err


def test_a_model_keeps_its_lags(tmp_path: Path) -> None:
    path, model = series(tmp_path / "s.csv"), tmp_path / "m.npz"
    assert command("train", path, "-m", model, "-q").code == 0
    ran = command("train", path, "-m", model, "--lags", "1,2")
    assert "--lags load lag 1, load lag 2 contradicts" in ran.err
    ran = command("train", path, "-m", model, "--time", "load")
    assert "--time load contradicts" in ran.err


def test_evaluate_and_predict_go_on_after_the_last_row(tmp_path: Path) -> None:
    path, model = series(tmp_path / "s.csv", gaps=()), tmp_path / "m.npz"
    text = path.read_text().splitlines(keepends=True)
    (tmp_path / "a.csv").write_text("".join(text[:251]))
    (tmp_path / "b.csv").write_text(text[0] + "".join(text[251:]))
    learned = kbnn.train(str(tmp_path / "a.csv"), model=str(model))
    figures = learned.evaluate(str(tmp_path / "b.csv"))
    changes = np.diff(values()[249:])
    assert figures["rmse"] < np.sqrt(np.mean(changes**2))
    one = learned.predict_one({"time": moment(250)})
    several = learned.predict(str(tmp_path / "b.csv"))
    assert one.mean == several.mean[0]
    assert abs(one.mean - values()[250]) < 3.0


def test_single_rows_make_the_same_network() -> None:
    table = {"x": list(np.arange(120) % 5 * 1.0), "y": values(120)}
    whole = kbnn.train(table, "y", lags="1,2", layers=4)
    single = kbnn.Model("y", lags=[1, 2], layers=4)
    for x, y in zip(table["x"], table["y"], strict=True):
        single.learn_one({"x": x}, y)
    mine, theirs = (
        model._require_single_model().learner_state.members[0].state() for model in (single, whole)
    )
    assert np.array_equal(mine.mean, theirs.mean)


def test_damaged_lags_are_refused(tmp_path: Path) -> None:
    header, arrays = to_state(trained(series(tmp_path / "s.csv"), layers=3))
    for name, array in (
        ("past/last", np.zeros(3)),
        ("past/values", np.full((9, 1), 1e200)),
        ("past/time", np.zeros((2, 2))),
    ):
        with pytest.raises(ModelError):
            from_state(header, {**arrays, name: array})


def test_lags_are_said_in_two_ways() -> None:
    assert [(s.column, s.rows, s.seconds) for s in parse_lags("temp:1,2;load:1h,7d")] == [
        ("temp", 1, 0.0),
        ("temp", 2, 0.0),
        ("load", 0, 3600.0),
        ("load", 0, 604800.0),
    ]


def test_a_run_cut_short_resumes_at_the_row_with_its_past(tmp_path: Path) -> None:
    """A bad row ends it; `--resume` goes on, to the bits of a run that was never cut."""
    path = series(tmp_path / "s.csv")
    text = path.read_text().splitlines()
    text.insert(180, "soon,51")
    path.write_text("\n".join(text) + "\n")
    cut, whole = tmp_path / "cut.npz", tmp_path / "whole.npz"
    assert command("train", path, "-m", cut, "-q").code == 1
    before = modelfile.load(str(cut))
    assert before.history.last[0] == values()[178]
    assert command("train", path, "-m", cut, "-q", "--resume", "--on-error", "skip").code == 0
    assert command("train", path, "-m", whole, "-q", "--on-error", "skip").code == 0
    assert bits(modelfile.load(str(cut))) == bits(modelfile.load(str(whole)))


@pytest.mark.parametrize(
    ("minutes", "season", "week"), [(5, 288, [2016, 2017]), (4, 360, []), (1440, 7, [])]
)
def test_a_week_ago_is_looked_at_where_its_rows_are_not_too_many(
    minutes: int, season: int, week: list[int], tmp_path: Path
) -> None:
    start = np.datetime64("2026-01-01T00:00")
    when = start + minutes * np.arange(40).astype("timedelta64[m]")
    path = tmp_path / "s.csv"
    rows = [f"{t},{v}\n" for t, v in zip(when, values(40), strict=True)]
    path.write_text("time,load\n" + "".join(rows))
    with open_stream([str(path)]) as stream:
        lags = [lag.rows for lag in stream.schema.lags]
    assert lags == [1, 2, 3, season, season + 1, *week]


def test_a_gap_is_told_where_lags_count_rows(tmp_path: Path) -> None:
    path = tmp_path / "s.csv"
    rows = [f"{moment(at)},{v}" for at, v in enumerate(values(100)) if at != 60]
    path.write_text("time,load\n" + "\n".join(rows) + "\n")
    told = "there is a time gap before row 61: lags count rows (--lags 1h,1d count time)"
    assert told in command("train", path, "-m", tmp_path / "m.npz").err
    ran = command("train", path, "-m", tmp_path / "n.npz", "--lags", "1h,1d")
    assert "there is a time gap" not in ran.err


@pytest.mark.parametrize(
    ("options", "elapsed"),
    [
        ({}, False),
        ({"lags": "1,24"}, False),
        ({"lags": "1"}, False),
        ({"lags": "y:1;x:1"}, False),
        ({"lags": "24"}, True),
        ({"lags": "1h,24h"}, True),
        ({"lags": "x:1"}, True),
        ({"lags": "off"}, True),
        ({"lags": "1", "task": "count"}, True),
        ({"lags": "1", "target": ["y", "x"]}, False),
        ({"lags": "y:1", "target": ["y", "x"]}, True),
    ],
)
def test_elapsed_time_is_an_input_unless_changes_are_learned(
    options: dict[str, Any], elapsed: bool
) -> None:
    times = [f"2026-01-{1 + k // 24:02d} {k % 24:02d}:00" for k in range(60)]
    table = {"time": times, "x": [k % 5 for k in range(60)], "y": [k % 7 for k in range(60)]}
    model: Any = kbnn.train(table, layers=2, **{"target": "y", **options})
    schema = model._model.schema
    assert schema.clock.has_elapsed_time == elapsed
    assert schema.changes != elapsed
