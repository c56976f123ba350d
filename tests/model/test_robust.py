"""Wrong targets are seen for what they are, cost little, and are not taken for drift."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from kbnn.array_types import FloatArray
from kbnn.model.model import OnlineModel
from kbnn.model.settings import Settings
from tests.bench.data import block, judged, schema, trained


def rows(count: int, seed: int) -> tuple[FloatArray, FloatArray]:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((count, 3))
    return x, np.sin(x[:, 0]) + 0.5 * x[:, 1] * x[:, 2] + 0.1 * rng.standard_normal(count)


def spoilt(y: FloatArray, seed: int, share: float = 0.05) -> tuple[FloatArray, NDArray[np.bool_]]:
    rng = np.random.default_rng(seed)
    wrong = rng.random(len(y)) < share
    return y + wrong * rng.choice([-1.0, 1.0], len(y)) * rng.uniform(6.0, 12.0, len(y)), wrong


@pytest.mark.parametrize("covariance", ["paper", "neuron", "group", "full"])
def test_planted_outliers_are_flagged_and_others_are_not(covariance: str) -> None:
    x, y = rows(1500, 1)
    wrong_y, wrong = spoilt(y, 2)
    model = OnlineModel(Settings(hidden=(20,), covariance=covariance), schema(3))
    score = model.learn(block(x, wrong_y)).outlier
    assert score is not None
    late = np.arange(1500) > 300
    assert np.mean(score[late & wrong] > 0.9) > 0.9
    assert np.mean(score[late & ~wrong] > 0.5) < 0.01


@pytest.mark.parametrize("seed", range(3))
def test_outliers_are_no_drift(seed: int) -> None:
    x, y = rows(3000, seed)
    model = trained(x, spoilt(y, seed + 10)[0], hidden=(20,), seed=seed)
    assert model.learner_state.get_count("alarms") == 0
    y[2000:2004] += 30.0  # nor are four in a row
    assert trained(x, y, hidden=(20,), seed=seed).learner_state.get_count("alarms") == 0


@pytest.mark.slow
def test_protection_costs_nothing_when_clean_and_saves_much_when_not() -> None:
    errors: dict[tuple[bool, bool], list[float]] = {}
    for seed in (3, 4, 5, 6):
        x, y = rows(2500, seed)
        wrong_y, _ = spoilt(y[:2000], seed + 1, 0.1)
        for robust in (True, False):
            for clean in (True, False):
                learned = y[:2000] if clean else wrong_y
                model = trained(x[:2000], learned, hidden=(20,), robust=robust)
                error = judged(model, x[2000:], y[2000:]).rmse
                errors.setdefault((robust, clean), []).append(error)
    found = {how: float(np.mean(np.log(some))) for how, some in errors.items()}
    assert found[True, True] - found[False, True] < np.log(1.05)
    assert found[True, False] - found[True, True] < np.log(1.25)
    assert found[True, False] - found[False, False] < np.log(0.5)


def test_without_protection_there_is_no_score() -> None:
    x, y = rows(100, 5)
    model = OnlineModel(Settings(hidden=(5,), robust=False), schema(3))
    assert np.all(np.isnan(model.learn(block(x, y)).outlier))


@pytest.mark.parametrize("value", [1e12, -1e60, 1e200])
def test_one_absurd_target_leaves_no_trace(value: float) -> None:
    x, y = rows(1200, 6)
    spoilt_y = y.copy()
    spoilt_y[500] = value
    clean = judged(trained(x[:1000], y[:1000], hidden=(20,)), x[1000:], y[1000:])
    after = judged(trained(x[:1000], spoilt_y[:1000], hidden=(20,)), x[1000:], y[1000:])
    assert after.rmse < 1.1 * clean.rmse
    assert after.nll < clean.nll + 0.1
