"""Several passes over few rows: better, and still honest about what is not known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from kbnn.core.kernel import open_session
from kbnn.core.state import COUNT
from kbnn.distributions import calibration
from kbnn.model.model import OnlineModel
from kbnn.model.serialize import copy_model
from kbnn.model.settings import REPEATS_BY_COVARIANCE, Settings
from tests.bench.data import Scores, block, judged, schema
from tests.modelling import differences, network, restored


def friedman(
    seed: int, rehearse: str | int, count: int = 300, test: int = 400
) -> tuple[list[Scores], OnlineModel]:
    """Scores on new rows of a well-known function after 1, 2, .. 10 passes over a few."""
    rng = np.random.default_rng(seed)
    x = rng.random((count + test, 6))
    y = (
        10.0 * np.sin(np.pi * x[:, 0] * x[:, 1])
        + 20.0 * (x[:, 2] - 0.5) ** 2
        + 10.0 * x[:, 3]
        + 5.0 * x[:, 4]
        + rng.standard_normal(count + test)
    )
    model = OnlineModel(Settings(hidden=(30,), seed=seed, rehearse=rehearse), schema(6))
    found = []
    for number in range(10):
        model.learn(block(x[:count], y[:count]), again=number > 0)
        found.append(judged(model, x[count:], y[count:]))
    return found, model


def test_passes_help_and_intervals_stay_honest() -> None:
    runs = [friedman(seed, 0)[0] for seed in range(4)]
    first, last = (np.mean([run[at] for run in runs], axis=0) for at in (0, -1))
    assert last[0] < 0.9 * first[0]
    assert last[1] < first[1] - 0.1
    assert 0.80 < last[2] < 0.97
    assert 0.84 < first[2] < 0.99


def test_one_pass_with_rehearsal_is_nearly_as_good_as_ten_without() -> None:
    once = np.mean([friedman(seed, "auto")[0][0] for seed in range(4)], axis=0)
    ten = np.mean([friedman(seed, 0)[0][-1] for seed in range(4)], axis=0)
    first = np.mean([friedman(seed, 0)[0][0] for seed in range(4)], axis=0)
    assert once[0] < 1.1 * ten[0] < 0.95 * first[0]
    assert once[1] < first[1] - 0.1
    assert 0.84 < once[2] < 0.97


def test_later_passes_touch_neither_scale_nor_record() -> None:
    rng = np.random.default_rng(1)
    x = rng.standard_normal((200, 2))
    rows = block(x, x[:, 0] + 0.1 * rng.standard_normal(200))
    model = OnlineModel(Settings(hidden=(8,)), schema(2))
    model.learn(rows)
    columns, figures = model.learner_state.columns.copy(), model.card.metric_values()
    model.learn(rows, again=True)
    assert np.array_equal(model.learner_state.columns, columns)
    assert model.card.metric_values() == figures
    assert (model.learner_state.get_count("rows"), model.learner_state.get_count("distinct")) == (
        400,
        200,
    )


def test_the_stated_uncertainty_grows_with_repetition_and_falls_with_news() -> None:
    rng = np.random.default_rng(2)
    x = rng.standard_normal((600, 2))
    y = x[:, 0] + 0.1 * rng.standard_normal(600)
    model = OnlineModel(Settings(hidden=(8,), rehearse=0), schema(2))
    model.learn(block(x[:200], y[:200]))
    for _ in range(3):
        model.learn(block(x[:200], y[:200]), again=True)
    state = network(model)
    once = state._replace(counts=state.counts.copy())
    once.counts[COUNT.distinct] = once.counts[COUNT.rows]
    other = copy_model(model)
    other.learner_state = other.learner_state._replace(members=(open_session(once),))
    test = block(x[400:], y[400:])
    ratio = model.predict(test).function_sd / other.predict(test).function_sd
    assert np.allclose(ratio**2, 4.0 ** REPEATS_BY_COVARIANCE["group"])  # four passes


@pytest.mark.parametrize("held", [5, 31])
def test_a_second_pass_over_a_handful_of_rows_ends_the_warm_up(held: int) -> None:
    rng = np.random.default_rng(3)
    x = rng.standard_normal((held, 2))
    rows = block(x, x[:, 0])
    model = OnlineModel(Settings(hidden=(4,)), schema(2))
    model.learn(rows)
    assert model.held_rows == held
    model.learn(rows, again=True)
    assert model.held_rows == 0
    assert model.rows == 2 * held
    assert differences(model, restored(model)) == []


def test_a_stated_noise_is_as_it_is_where_the_target_has_not_varied() -> None:
    x = np.random.default_rng(5).standard_normal((9, 2))
    model = OnlineModel(Settings(hidden=(4,), noise=0.5), schema(2))
    for again in (False, True):
        model.learn(block(x, np.full(9, 3.0)), again=again)
    assert network(model).config.noise == 0.25


def test_a_target_that_nobody_has_seen_is_not_learned() -> None:
    """A second pass ends the warm-up, whatever was seen by then."""
    x = np.random.default_rng(4).standard_normal((20, 2))
    y = np.column_stack([x[:, 0], np.full(20, np.nan)])
    model = OnlineModel(Settings(hidden=(4,)), schema(2, 2))
    for again in (False, True):
        model.learn(block(x[:9], y[:9]), again=again)
    noise = network(model).noise
    model.learn(block(x[9:], y[9:]))
    assert model.rows == 29
    assert not np.array_equal(network(model).noise[0], noise[0])
    assert np.array_equal(network(model).noise[1], noise[1])
    assert np.array_equal(noise[1], [1.0, 0.03])


def test_the_papers_smoother_is_narrowed_where_it_overstates_what_it_does_not_know() -> None:
    """On rows with next to no noise its 90 % intervals held all of the new ones."""
    rng = np.random.default_rng(0)
    x = rng.random((700, 4))
    y = np.exp(2.0 * x[:, 0]) * x[:, 1] + np.sin(3.0 * x[:, 2]) + 0.01 * rng.standard_normal(700)
    model = OnlineModel(Settings(covariance="paper", kind="regression"), schema(4))
    for number in range(10):
        model.learn(block(x[:300], y[:300]), again=number > 0)
    found = judged(model, x[300:], y[300:])
    assert 0.86 < found.coverage < 0.97
    model.learner_state.calibration[:, calibration.MEAN_SCALE_FACTOR] = 1.0
    as_said = judged(model, x[300:], y[300:])
    assert as_said.coverage > 0.98
    assert found.nll < as_said.nll - 0.5


@pytest.mark.parametrize(
    ("settings", "narrows"),
    [
        (Settings(covariance="paper"), True),
        (Settings(covariance="paper", robust=False), False),
        (Settings(covariance="group"), False),
    ],
)
def test_nothing_else_is_narrowed_by_rows_that_were_learned_before(
    settings: Settings, narrows: bool
) -> None:
    rng = np.random.default_rng(1)
    x = rng.standard_normal((120, 2))
    rows = block(x, 3.0 * x[:, 0])
    model = OnlineModel(replace(settings, hidden=(8,), kind="regression"), schema(2))
    model.learn(rows)
    model.learn(rows, again=True)
    assert np.all(model.learner_state.calibration[:, calibration.MEAN_SCALE_FACTOR] == 1.0) == (
        not narrows
    )


def test_scale_calibration_ignores_rows_of_later_passes() -> None:
    known = calibration.init_calibration(2)
    known[:, [calibration.SCALE_FACTOR, calibration.MEAN_SCALE_FACTOR]] = 1.7
    again = calibration.reset_scale_and_gains(known)
    assert np.all(again[:, [calibration.SCALE_FACTOR, calibration.MEAN_SCALE_FACTOR]] == 1.0)
    assert np.array_equal(known[:, calibration.SCALE_FACTOR], [1.7, 1.7])  # the given ones stay
