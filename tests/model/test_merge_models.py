"""Models that learned shares of the rows, joined."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import kbnn as library
from kbnn.model import file as modelfile
from kbnn.model import merge, scaler
from kbnn.model.merge import merge_models
from kbnn.model.model import OnlineModel
from kbnn.model.settings import Settings
from tests.bench.data import block, schema
from tests.commands import kbnn
from tests.modelling import train_line


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    draw = np.random.default_rng(0)
    x = draw.normal(size=(1200, 2)) * [1.0, 40.0] + [3.0, 0.0]
    y = 20.0 * np.sin(2.0 * x[:, 0]) + 0.1 * x[:, 1] + draw.normal(size=1200)
    cells = np.column_stack((x, y)).tolist()
    lines = [",".join(f"{cell:.4f}" for cell in row) for row in cells]
    for name, part in (("a", lines[:400]), ("b", lines[400:900]), ("test", lines[900:])):
        (tmp_path / f"{name}.csv").write_text("\n".join(["u,v,y", *part]) + "\n")
    for name in ("a", "b"):
        done = kbnn("train", f"{name}.csv", "-m", f"{name}.npz", "-q", "--task", "regression")
        assert done.code == 0, done.err
    return tmp_path


def rmse(model: str) -> float:
    return float(json.loads(kbnn("evaluate", model, "test.csv", "--json").out)["rmse"])


def test_the_joined_model_mixes_both_by_evidence_and_goes_on(here: Path) -> None:
    done = kbnn("join", "a.npz", "b.npz", "-o", "c.npz", "--json")
    told = json.loads(done.out)
    assert (done.code, told["members"], told["rows"]) == (0, 8, 900)
    whole = merge_models([modelfile.load("a.npz"), modelfile.load("b.npz")], ["a.npz", "b.npz"])
    assert whole.rows_seen == whole.rows == 900  # the next is row 901
    assert sum(told["weights"]) == pytest.approx(1.0)
    asked = {"u": [2.5, 3.5], "v": [10.0, -5.0]}
    both = [library.load(f"{name}.npz").predict(asked).mean for name in ("a", "b")]
    shares = [sum(told["weights"][:4]), sum(told["weights"][4:])]
    mixed = sum(w * mean for w, mean in zip(shares, both, strict=True))
    # Carried to one scale a network is nearly the same function: the prior is that of the scale.
    assert library.load("c.npz").predict(asked).mean == pytest.approx(mixed, abs=3.0)
    assert rmse("c.npz") < 1.1 * max(rmse("a.npz"), rmse("b.npz"))
    assert kbnn("train", "test.csv", "-m", "c.npz", "-q").code == 0
    assert modelfile.load("c.npz").rows == 1200


def test_models_of_one_scale_are_joined_exactly(here: Path) -> None:
    (here / "a2.npz").write_bytes((here / "a.npz").read_bytes())
    assert kbnn("join", "a.npz", "a2.npz", "-o", "c.npz", "-q").code == 0
    asked = {"u": [2.5, 3.5], "v": [10.0, -5.0]}
    one, two = (library.load(name).predict(asked) for name in ("a.npz", "c.npz"))
    assert np.allclose(one.mean, two.mean, rtol=0.05, atol=0.5)


def test_what_is_refused_is_one_sentence(here: Path) -> None:
    (here / "few.csv").write_text("u,v,y\n1,2,3\n2,3,4\n")
    (here / "odd.csv").write_text((here / "a.csv").read_text().replace("u,v,y", "u,w,y"))
    kbnn("train", "few.csv", "-m", "few.npz", "-q")
    kbnn("train", "odd.csv", "-m", "odd.npz", "-q", "--task", "regression")
    kbnn("train", "a.csv", "--target", "v", "-m", "v.npz", "-q", "--task", "regression")
    kbnn("train", "a.csv", "-m", "big.npz", "--layers", "20", "-q", "--task", "regression")
    (here / "lots.csv").write_text("k,u,y\n" + "".join(f"d{i % 2},{i},{i}\n" for i in range(80)))
    kbnn("train", "lots.csv", "--key", "k", "-m", "fleet", "-q")
    there = (here / "b.npz").read_bytes()
    for words, why in (
        (("a.npz",), "join needs two models or more"),
        (("a.npz", "a.npz"), "a.npz: is named twice"),
        (("a.npz", "no.npz"), "no.npz: no such model file"),
        (("a.npz", "a.csv"), "a.csv: is not a model file"),
        (("a.npz", "fleet"), "fleet: is a fleet"),
        (("a.npz", "few.npz"), "few.npz: is still warming up (it holds 2 rows)"),
        (("a.npz", "odd.npz"), "odd.npz: cannot be joined with a.npz: their columns differ"),
        (("a.npz", "v.npz"), "v.npz: cannot be joined with a.npz: it has the target v, not y"),
        (("a.npz", "big.npz"), "big.npz: cannot be joined with a.npz: their networks differ"),
    ):
        done = kbnn("join", *words, "-o", "c.npz")
        assert why in done.err, done.err
        assert (done.code != 0, done.err.count("\n"), Path("c.npz").exists()) == (True, 1, False)
    done = kbnn("join", "a.npz", "odd.npz", "-o", "b.npz")
    assert "-o b.npz: is there already (--force replaces it)" in done.err
    assert "would write over the model a.npz" in kbnn("join", "a.npz", "b.npz", "-o", "a.npz").err
    assert (here / "b.npz").read_bytes() == there


def test_merged_scale_statistics_are_those_of_all_rows() -> None:
    raw = np.random.default_rng(1).normal([5.0, -2.0], [1.0, 30.0], (300, 2))
    raw[200:] += [3.0, 100.0]
    parts = [scaler.fit_scaler(part) for part in (raw[:200], raw[200:])]
    for part, rows in zip(parts, (raw[:200], raw[200:]), strict=True):
        part[:, scaler.MEAN] = rows.mean(axis=0)
        part[:, scaler.SQUARES] = len(rows) * rows.var(axis=0)
    whole = merge._merge_columns(parts, np.zeros(2))
    assert whole[:, scaler.COUNT] == pytest.approx([300.0, 300.0])
    assert whole[:, scaler.CENTER] == pytest.approx(raw.mean(axis=0))
    assert whole[:, scaler.SCALE] == pytest.approx(raw.std(axis=0))


def test_the_better_part_has_more_weight_and_row_numbers_continue() -> None:
    rng = np.random.default_rng(2)
    x = rng.standard_normal((300, 1))
    models = []
    for noise in (0.1, 2.0):
        model = OnlineModel(Settings(hidden=(4,), kind="regression"), schema(1))
        model.learn(block(x, np.sin(x[:, 0]) + noise * rng.standard_normal(300)))
        models.append(model)
    good, bad = merge._merge_weights(models).weight
    assert good + bad == pytest.approx(1.0)
    assert bad < 0.05
    kept = merge._merge_buffers(models, [model.learner_state.buffer.rows() for model in models])
    numbers = kept.rows().number
    assert np.all(np.diff(numbers) > 0.0)
    assert numbers[-1] == 600.0


def test_merged_statistics_of_weighted_rows_are_those_of_all_rows() -> None:
    rng = np.random.default_rng(1)
    near, far = rng.normal(0.0, 1.0, (90, 1)), rng.normal(50.0, 2.0, (60, 1))
    together = merge._merge_columns([scaler.fit_scaler(near), scaler.fit_scaler(far)], np.zeros(1))
    every = np.concatenate((near, far))
    assert together[0, scaler.COUNT] == 150
    assert together[0, scaler.CENTER] == pytest.approx(every.mean())
    assert together[0, scaler.SCALE] == pytest.approx(every.std())


def test_rows_of_parts_are_numbered_one_part_after_another() -> None:
    models = [train_line(60), train_line(50, seed=1)]
    kept = merge._merge_buffers(
        models, [model.learner_state.buffer.rows() for model in models]
    ).rows()
    assert kept.number.tolist() == list(range(1, 111))
