"""What costs more than it should: numbers next to 0, targets that never vary, classes that come
one by one.

Costs are counted in rows that are learned or looked at; nothing is rehearsed, so that each new row
counts once.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kbnn.core import kernel
from kbnn.data.batch import Rows, slice_rows
from kbnn.model import learner
from kbnn.model.file import load
from kbnn.model.model import OnlineModel
from kbnn.model.settings import Settings
from kbnn.targets.base import NumericColdStart
from kbnn.targets.prediction import Forecast, join_forecasts
from tests.bench.data import block, schema
from tests.commands import kbnn
from tests.modelling import differences, restored, same

ROWS = 600


def table(path: Path, factors: list[float], shares: float = 1.0) -> Path:
    random = np.random.default_rng(3)
    x = random.standard_normal((ROWS, 3))
    y = x[:, 0] + 0.1 * random.standard_normal(ROWS)
    small = random.random((ROWS, 3)) < shares
    x = np.where(small, x * factors, x)
    lines = [",".join(map(repr, [*row, label])) for row, label in zip(x.tolist(), y, strict=True)]
    text = "\n".join(["a,b,c,y", *lines]).replace("np.float64(", "").replace(")", "")
    path.write_text(text + "\n")
    return path


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Rows of each call of the network's own learning."""
    counted: list[int] = []

    class Counting:
        def __init__(self, session: Any) -> None:
            self._session = session

        def __getattr__(self, name: str) -> Any:
            return getattr(self._session, name)

        def learn(self, x: Any, *rest: Any) -> Any:
            counted.append(len(x))
            return self._session.learn(x, *rest)

    for module in (learner, learner):
        monkeypatch.setattr(
            module, "open_session", lambda state: Counting(kernel.open_session(state))
        )
    return counted


@pytest.mark.parametrize("factor", [1e-160, 1e-200, 1e-310, 5e-324])
def test_columns_next_to_zero_cost_what_others_cost(
    tmp_path: Path, factor: float, steps: list[int]
) -> None:
    once = ("--rehearse", "off")
    ran = kbnn("train", table(tmp_path / "one.csv", [1.0] * 3), "-m", tmp_path / "o", *once)
    assert ran.code == 0
    ordinary, rows = len(steps), sum(steps)
    steps.clear()
    ran = kbnn("train", table(tmp_path / "t.csv", [factor] * 3), "-m", tmp_path / "t", *once)
    assert ran.code == 0
    assert len(steps) <= ordinary + 3
    assert ROWS <= sum(steps) <= rows
    assert ran.err.count("column 'a': values closer to 0 than 1e-140 count as 0") == 1


def test_a_column_that_is_now_and_then_next_to_zero_loses_no_row(tmp_path: Path) -> None:
    ran = kbnn("train", table(tmp_path / "t.csv", [1e-310] * 3, 0.5), "-m", tmp_path / "m.npz")
    assert (ran.code, load(str(tmp_path / "m.npz")).rejected_rows) == (0, 0)
    assert "Warning" not in ran.err


def test_a_weight_next_to_zero_is_a_weight(tmp_path: Path) -> None:
    (tmp_path / "w.csv").write_text("a,w,y\n" + "".join(f"{k},1e-200,{k}\n" for k in range(80)))
    ran = kbnn("train", tmp_path / "w.csv", "-m", tmp_path / "m.npz", "--weight", "w")
    assert (ran.code, load(str(tmp_path / "m.npz")).rows) == (0, 80)


def test_a_new_class_relearns_nothing(tmp_path: Path, steps: list[int]) -> None:
    random = np.random.default_rng(1)
    x = random.standard_normal((200, 2))
    learned = []
    known, late = np.arange(200) % 20, np.minimum(np.arange(200) // 8, 19)
    for name, classes in (("known", known), ("late", late)):
        steps.clear()
        lines = [f"{a},{b},k{k}" for (a, b), k in zip(x.tolist(), classes, strict=True)]
        (tmp_path / name).write_text("\n".join(["a,b,y", *lines]) + "\n")
        words = [
            "-q",
            "--covariance",
            "full",
            "--layers",
            "3",
            "--task",
            "classification",
            "--rehearse",
            "off",
        ]
        ran = kbnn("train", tmp_path / name, "-m", tmp_path / f"{name}.npz", *words)
        assert ran.code == 0, ran.err
        learned.append(sum(steps))
    assert learned[1] <= learned[0]


def unvaried(rows: int, kind: str) -> Rows:
    """Rows whose targets, or one of the two, never vary; some have no target."""
    random = np.random.default_rng(5)
    y = np.full((rows, 2), 5.0)
    if kind == "other":
        y[:, 0] = random.standard_normal(rows)
    y[random.random(rows) < 0.1, 0] = np.nan
    y[random.random(rows) < 0.1] = np.nan
    return block(random.standard_normal((rows, 2)), y)


def learned(rows: Rows, cuts: Sequence[int], saved: bool = False) -> tuple[OnlineModel, Forecast]:
    model = OnlineModel(Settings(hidden=(3,), rehearse=0), schema(2, 2))
    parts = []
    for start, stop in pairwise([0, *cuts, rows.count]):
        parts.append(model.learn(slice_rows(rows, start, stop)))
        model = restored(model) if saved else model
    return model, join_forecasts(parts)


@pytest.mark.parametrize("kind", ["both", "other"])
def test_targets_that_never_vary_are_told_the_same_however_they_are_cut(kind: str) -> None:
    rows = unvaried(1500, kind)
    rows.y[1400, :] = [6.0, 7.0]  # and at last they do
    whole, said = learned(rows, [])
    assert not whole.is_warming_up
    assert np.isfinite(said.mean[1:1400]).all()
    for cuts in ([1], [255, 257, 513], range(1, 1500, 97), range(400, 1300)):
        for saved in (False, True) if len(cuts) < 50 else (False,):
            model, again = learned(rows, cuts, saved)
            assert same(said, again)
            assert differences(model, whole) == []


@pytest.mark.slow
def test_a_target_that_never_varies_is_told_twice_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    told = []

    def counted(early: NumericColdStart, y: Any) -> Forecast:
        told.append(len(y))
        return tell(early, y)

    tell = NumericColdStart.predict_then_update
    monkeypatch.setattr(NumericColdStart, "predict_then_update", counted)
    rows = unvaried(5000, "both")
    every: list[Sequence[int]] = [[], range(1, 5000)]
    for cuts in every:
        told.clear()
        model, _ = learned(rows, cuts)
        assert model.is_warming_up
        assert sum(told) < 2.1 * 5000 + len(cuts)
    told.clear()
    learned(rows, [])
    assert len(told) < 5000 / 100


def test_rows_let_go_before_a_target_varied_are_counted(tmp_path: Path) -> None:
    lines = "".join(f"{k},5\n" for k in range(700)) + "1,\n"
    (tmp_path / "t.csv").write_text(f"a,y\n{lines}")
    ran = kbnn("train", tmp_path / "t.csv", "-m", tmp_path / "m.npz")
    assert ran.code == 0
    assert "no figures yet: rows are held until every target has varied" in ran.err
    said = "the target, or its change from row to row, was the same in more than 512 rows: only the"
    assert ran.err.count(said) == 1
    model = load(str(tmp_path / "m.npz"))
    counts = (model.rows, model.rejected_rows, model.skipped, model.rows_seen)
    assert counts == (512, 188, 1, 701)
    model.learn(block(np.zeros((1, 1)), np.array([6.0])))
    assert (model.rows, model.rejected_rows, model.rows_seen) == (512, 189, 702)
    assert restored(model).rows_seen == 702
