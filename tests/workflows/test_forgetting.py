"""The order of rows: the remark about a model that forgot, and rows that are held out."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from kbnn import train as train_here
from kbnn.array_types import FloatArray
from kbnn.data.batch import is_held_out
from kbnn.metrics.verdicts import find_metrics
from kbnn.workflows import run_results
from kbnn.workflows.run_results import judge_targets, measure_forgetting
from tests.commands import kbnn
from tests.modelling import train_line
from tests.streams import look
from tests.training_data import train


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def sorted_file(name: str, rows: int = 600) -> str:
    """A file sorted by what decides the target, of which no feature tells."""
    rng = np.random.default_rng(3)
    place = np.linspace(0.0, 1.0, rows)
    x = rng.normal(size=(rows, 2))
    y = x[:, 0] * (1 - 2 * place) + 8 * place + 0.1 * rng.normal(size=rows)
    lines = [f"{a:.6f},{b:.6f},{t:.6f}\n" for (a, b), t in zip(x, y, strict=True)]
    Path(name).write_text("a,b,y\n" + "".join(lines))
    return name


REMARK = "on a sample of earlier rows the final model has RMSE "


def test_a_sorted_file_is_remarked_on_with_both_figures() -> None:
    ran = kbnn("train", sorted_file("t.csv"), "-m", "m.npz", "--drift", "off")
    assert ran.code == 0
    line = next(line for line in ran.err.splitlines() if REMARK in line)
    now, then = (float(part.split(",")[0].split()[0]) for part in line.split("RMSE ")[1:])
    assert now > 1.25 * then
    assert "Try --shuffle." in line
    assert "--drift off" not in line
    mixed = kbnn("train", "t.csv", "-m", "s.npz", "--shuffle")
    assert mixed.code == 0
    assert REMARK not in mixed.err


def test_even_rows_are_not_remarked_on() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(500, 3))
    rows = [f"{a:.5f},{b:.5f},{c:.5f},{a * b + c:.5f}\n" for a, b, c in x]
    Path("t.csv").write_text("a,b,c,y\n" + "".join(rows))
    training = train(["t.csv"], Path("m.npz"))
    assert measure_forgetting(training.overall_model) is None


def test_classes_are_remarked_on_by_what_is_right() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=800)
    label = np.where(np.arange(800) < 400, x > 0, x < 0)
    rows = [f"{v:.5f},{'p' if t else 'q'}\n" for v, t in zip(x, label, strict=True)]
    Path("t.csv").write_text("a,y\n" + "".join(rows))
    ran = kbnn("train", "t.csv", "-m", "m.npz")
    line = next(line for line in ran.err.splitlines() if "on a sample of earlier rows" in line)
    assert "% right" in line


def test_the_rows_held_out_are_the_same_whatever_the_chunks() -> None:
    sorted_file("t.csv")
    number = np.arange(1, 601)
    out = is_held_out(number, 0.2, 0)
    assert 80 < np.count_nonzero(out) < 160
    assert np.count_nonzero(out != is_held_out(number, 0.2, 1)) > 50
    for size in (1, 999, 1 << 20):
        seen = look(["t.csv"], test_split=0.2, read_size=size, block_rows=size)
        assert seen.rows == number[~out].tolist()


def test_rows_held_out_are_never_learned() -> None:
    sorted_file("t.csv")
    out = is_held_out(np.arange(1, 601), 0.2, 0)
    head, *lines = Path("t.csv").read_text().splitlines()
    cut = [line.rsplit(",", 1) for line in lines]
    ran = kbnn("train", "t.csv", "-m", "a.npz", "--test-split", "20%", "--json", "-q")
    figures = json.loads(ran.out)
    assert figures["rows"] == 600 - np.count_nonzero(out)
    assert figures["test"]["rows"] == np.count_nonzero(out)
    changed = [f"{x},{'77' if held else y}" for (x, y), held in zip(cut, out, strict=True)]
    Path("t.csv").write_text("\n".join([head, *changed]) + "\n")
    ran = kbnn("train", "t.csv", "-m", "b.npz", "--test-split", "0.2", "--json", "-q")
    assert Path("a.npz").read_bytes() == Path("b.npz").read_bytes()
    assert json.loads(ran.out)["test"]["rmse"] > figures["test"]["rmse"] + 10


def test_held_out_rows_are_those_that_evaluate_would_score() -> None:
    sorted_file("t.csv")
    out = is_held_out(np.arange(1, 601), 0.2, 0)
    head, *lines = Path("t.csv").read_text().splitlines()
    figures = json.loads(kbnn("train", "t.csv", "-m", "m.npz", "--test-split", "0.2", "--json").out)
    rest = [line for line, held in zip(lines, out, strict=True) if held]
    Path("out.csv").write_text("\n".join([head, *rest]) + "\n")
    scored = json.loads(kbnn("evaluate", "m.npz", "out.csv", "--json").out)
    assert scored["rmse"] == figures["test"]["rmse"]


def test_a_split_that_is_none_is_refused() -> None:
    sorted_file("t.csv")
    assert kbnn("train", "t.csv", "--test-split", "1.5").code == 2
    assert kbnn("train", "t.csv", "--test-split", "x").code == 2


def test_rows_that_need_their_order_are_not_held_out() -> None:
    days = [f"2024-{1 + at // 28:02}-{1 + at % 28:02},{2 * at + at % 7}.5\n" for at in range(300)]
    Path("s.csv").write_text("day,y\n" + "".join(days))
    ran = kbnn("train", "s.csv", "--lags", "1", "--test-split", "0.1")
    assert ran.code == 2
    assert "--lags and --test-split contradict each other: lags need rows in order" in ran.err
    ran = kbnn("train", "s.csv", "--id", "day", "--test-split", "0.1")
    assert ran.code == 2
    assert "--id and --test-split contradict each other: rows are processed in order" in ran.err
    ran = kbnn("train", "s.csv", "-m", "a.npz", "--test-split", "0.1")
    assert ran.code == 0
    assert "no lags are learned with --test-split: they need rows in order" in ran.err
    ran = kbnn("train", "s.csv", "-m", "b.npz")
    assert ran.code == 0
    assert "no lags" not in ran.err
    assert "on a sample of earlier rows" not in ran.err  # each had another value before it
    for option in (["--test-split", "0.1"], ["--shuffle"]):
        ran = kbnn("train", "s.csv", "-m", "b.npz", *option)
        assert ran.code == 2
        assert f"{option[0]}: the model has lags and needs rows in order" in ran.err


def test_a_run_cut_short_goes_on_with_the_same_split() -> None:
    sorted_file("t.csv")
    whole = kbnn("train", "t.csv", "-m", "a.npz", "--test-split", "0.2", "--json", "-q")
    lines = Path("t.csv").read_text().splitlines(keepends=True)
    Path("t.csv").write_text("".join([*lines[:300], "oops,1\n", *lines[300:]]))
    assert kbnn("train", "t.csv", "-m", "b.npz", "--test-split", "0.2", "-q").code == 1
    Path("t.csv").write_text("".join(lines))
    refused = kbnn("train", "t.csv", "-m", "b.npz", "--resume")
    assert "the run began with --test-split 0.2, not no --test-split" in refused.err
    rest = kbnn("train", "t.csv", "-m", "b.npz", "--test-split", "0.2", "--resume", "--json", "-q")
    assert json.loads(rest.out)["test"]["rmse"] == json.loads(whole.out)["test"]["rmse"]
    assert Path("a.npz").read_bytes() == Path("b.npz").read_bytes()


def test_nobody_is_told_to_shuffle_rows_that_need_their_order() -> None:
    rng = np.random.default_rng(0)
    a = rng.normal(size=600)
    y = np.where((np.arange(600) // 40) % 2 == 0, -5.0, 5.0) + 0.1 * a
    data = {"a": a, "y": y}
    free, bound = train_here(data), train_here(data, lags="a:1")
    for model, advised in ((free, True), (bound, False)):
        assert model._model is not None
        [(_, verdict)] = judge_targets(model._model)
        [changed] = [text for text in verdict.sentences if text.startswith("The stream changed")]
        assert ("--shuffle" in changed) == advised
        assert "--drift off" in changed


@pytest.mark.parametrize(("ratio", "told"), [(1.4, False), (1.8, True)])
def test_forgetting_is_judged_by_squared_errors(
    ratio: float, told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = train_line()
    answers = iter((ratio, 1.0))

    def errors(y: FloatArray, said: FloatArray) -> FloatArray:
        return np.full(len(y), next(answers))

    metrics = find_metrics(model.task)._replace(errors=errors)
    monkeypatch.setattr(run_results, "find_metrics", lambda task: metrics)
    assert (run_results.measure_forgetting(model) is not None) == told


def test_errors_of_several_targets_are_scaled() -> None:
    model = train_line(targets=2)
    y = np.array([[0.0, 0.0], [1.0, 100.0], [2.0, 200.0]])
    said = y + np.array([[0.5, 0.0], [0.0, 50.0], [0.0, 0.0]])
    errors = find_metrics(model.task).errors(y, said)
    assert errors[0] == pytest.approx(errors[1])
    assert errors[2] == 0.0
