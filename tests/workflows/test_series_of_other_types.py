"""Series of counts, positive numbers and amounts: lags, and what is said about steps ahead."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import kbnn
from tests.commands import kbnn as command

ROWS = 600
STEPS = 0.3 * np.random.default_rng(0).normal(size=ROWS)
LEVEL = np.exp(2.0 + np.array([STEPS[: k + 1] @ 0.95 ** np.arange(k, -1, -1) for k in range(ROWS)]))
TARGETS = {
    "count": np.random.default_rng(1).poisson(LEVEL).astype(float),
    "positive": LEVEL.round(3),
    "amount": np.where(np.arange(ROWS) % 5 == 0, 0.0, LEVEL.round(3)),
    "share": (1.0 / (1.0 + 9.0 / LEVEL)).round(4),
}


def write_hours(path: Path, task: str) -> Path:
    hours = [f"2026-01-{1 + k // 24:02d} {k % 24:02d}:00" for k in range(ROWS)]
    lines = [f"{when},{y:g}" for when, y in zip(hours, TARGETS[task], strict=True)]
    path.write_text("\n".join(["time,y", *lines]) + "\n")
    return path


@pytest.mark.parametrize("task", TARGETS)
def test_a_series_of_another_type_says_what_it_lacks(task: str, tmp_path: Path) -> None:
    source, model = write_hours(tmp_path / "s.csv", task), tmp_path / "m.npz"
    words = ("train", source, "--layers", "2", "-m", model, "--task", task)
    ran = command(*words)
    assert ran.code == 0, ran.err
    said = f"--task {task} learns no lags by itself and forecasts no steps ahead: --task regression"
    assert ran.err.count(said) == 1
    ran = command("predict", model, "--horizon", "2")
    assert ran.code == 2
    assert f"this model is of --task {task}. Train another with one target" in ran.err
    for quiet in (("--lags", "off"), ("--shuffle",)):
        model.unlink()
        ran = command(*words, *quiet)
        assert ran.code == 0
        assert said not in ran.err


@pytest.mark.parametrize("task", TARGETS)
def test_lags_of_other_types_forecast_the_next_row(task: str, tmp_path: Path) -> None:
    source, model = write_hours(tmp_path / "s.csv", task), tmp_path / "m.npz"
    plain = kbnn.train(source, layers=4, task=task).record()["nll"]
    ran = command("train", source, "--layers", "4", "-m", model, "--task", task, "--lags", "1,2,24")
    assert ran.code == 0, ran.err
    assert f"--task {task} forecasts the next row only: --task regression" in ran.err
    assert "learns no lags" not in ran.err
    lagged = kbnn.load(model)
    assert [lag.rows for lag in lagged._model.schema.lags] == [1, 2, 24]  # type: ignore[union-attr]
    assert lagged.record()["nll"] < plain
    with pytest.raises(kbnn.UsageError, match=f"this model is of --task {task}"):
        lagged.forecast(2)
    assert lagged.predict({"time": ["2026-01-13 12:00"]}).mean[0] >= 0.0


def test_the_default_type_says_nothing(tmp_path: Path) -> None:
    source = write_hours(tmp_path / "s.csv", "count")
    ran = command("train", source, "--layers", "2", "-m", tmp_path / "m.npz")
    assert "learns no lags" not in ran.err
    assert "lags 1, 2, 3, 24, 25" in ran.err
