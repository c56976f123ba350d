"""What costs more than it should: numbers next to 0, classes that come one by one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kbnn.core import engine
from kbnn.model import learner
from kbnn.model.file import load
from tests.commands import kbnn

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

    monkeypatch.setattr(learner, "open_session", lambda state: Counting(engine.open_session(state)))
    return counted


@pytest.mark.parametrize("factor", [1e-160, 1e-200, 1e-310, 5e-324])
def test_columns_next_to_zero_cost_what_others_cost(
    tmp_path: Path, factor: float, steps: list[int]
) -> None:
    assert kbnn("train", table(tmp_path / "one.csv", [1.0] * 3), "-m", tmp_path / "o").code == 0
    ordinary = len(steps)
    steps.clear()
    ran = kbnn("train", table(tmp_path / "t.csv", [factor] * 3), "-m", tmp_path / "t")
    assert ran.code == 0
    assert len(steps) <= ordinary + 3
    assert ran.err.count("column 'a': values closer to 0 than 1e-140 count as 0") == 1


def test_a_column_that_is_now_and_then_next_to_zero_loses_no_row(tmp_path: Path) -> None:
    ran = kbnn("train", table(tmp_path / "t.csv", [1e-310] * 3, 0.5), "-m", tmp_path / "m.npz")
    assert (ran.code, load(str(tmp_path / "m.npz")).rejected) == (0, 0)
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
        words = ("--covariance", "full", "--layers", "3", "--task", "classification")
        ran = kbnn("train", tmp_path / name, "-m", tmp_path / f"{name}.npz", "-q", *words)
        assert ran.code == 0, ran.err
        learned.append(sum(steps))
    assert learned[1] <= learned[0]
