"""A stream that changes: the alarm comes soon, is counted and logged, and pays."""

from __future__ import annotations

import numpy as np
import pytest

from kbnn.core.reference import ALARM
from kbnn.model.model import OnlineModel
from kbnn.model.settings import Settings
from tests.bench import data, made
from tests.bench.data import FloatArray


def run(kind: str, seed: int, **settings: object) -> tuple[OnlineModel, FloatArray]:
    """A model of a made stream, and how far it was off at each row."""
    stream = made.drifting(kind, seed, rows=3600)
    model = OnlineModel(Settings(hidden=(20,), seed=seed, **settings), data.schema(5))  # type: ignore[arg-type]  # keyword options
    said = model.learn(data.block(stream.x, stream.y))
    return model, np.abs(stream.clean - said.mean[:, 0])


@pytest.mark.parametrize("seed", range(3))
def test_an_abrupt_change_is_noticed_and_pays(seed: int) -> None:
    model, error = run("two abrupt changes", seed)
    assert 1 <= model.learner_state.get_count("alarms") <= 4
    assert model.learner_state.get_count("alarms") == len(model.alarms)
    assert any(1200 < row <= 1300 for row in model.alarms)
    assert all(row > 1200 for row in model.alarms)
    _, blind = run("two abrupt changes", seed, drift=False)
    assert np.mean(error[1400:2400]) < 0.9 * np.mean(blind[1400:2400])


@pytest.mark.parametrize("kind", ["quiet", "slow blend", "six outliers in a row", "heavy tails"])
def test_no_alarm_without_a_change(kind: str) -> None:
    assert [run(kind, seed)[0].learner_state.get_count("alarms") for seed in range(3)] == [0, 0, 0]


def test_switched_off_there_is_none() -> None:
    model, _ = run("the target jumps", 1, drift=False)
    assert model.alarms == []
    assert run("the target jumps", 1)[0].learner_state.get_count("alarms") >= 1


def test_a_later_pass_is_no_news() -> None:
    stream = made.drifting("two abrupt changes", 2, rows=1500)
    rows = data.block(stream.x, stream.y)
    model = OnlineModel(Settings(hidden=(20,)), data.schema(5))
    model.learn(rows)
    raised = list(model.alarms)
    for _ in range(2):
        assert not np.any(model.learn(rows, again=True).status & ALARM)
    assert model.alarms == raised


def test_classes_that_swap_raise_the_alarm() -> None:
    rng = np.random.default_rng(3)
    centers = 2.0 * rng.standard_normal((3, 2, 3))
    x, y = made.clumps(rng, 2400, 3, centers)
    y[1600:] = (y[1600:] + 1.0) % 3.0
    model = OnlineModel(Settings(hidden=(15,)), data.schema(3, 1, 3))
    model.learn(data.block(x, y))
    assert model.alarms
    assert all(row > 1600 for row in model.alarms)
    assert model.alarms[0] < 1660
