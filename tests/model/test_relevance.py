"""The prior of restarted networks follows the effects of the inputs so far."""

from __future__ import annotations

import numpy as np
import pytest

from kbnn.array_types import FloatArray
from kbnn.core.config import Config
from kbnn.core.kernel import predict
from kbnn.core.layout import layout_of
from kbnn.core.state import State, init
from kbnn.model import relevance
from kbnn.model.serialize import from_state, to_state
from kbnn.model.settings import Settings
from tests.bench.data import block, judged, trained
from tests.modelling import network

ROWS, INPUTS = 40, 5


def make_certain(state: State) -> State:
    """Return a state whose weights are known, so that it predicts as its means do."""
    return state._replace(cov=state.cov * 1e-14)


def make_states() -> dict[str, State]:
    directions = np.linalg.qr(np.random.default_rng(3).standard_normal((INPUTS, 2)))[0]
    wide = init(
        Config(INPUTS, hidden=(6,), covariance="wide", directions=2), 1, directions=directions
    )
    view = wide.view.copy()
    view[:, 0], view[:, 1] = [0.5, 2.0, 1.0, 3.0, 0.2], [0.3, -1.0, 0.0, 2.0, 0.1]
    return {
        "group": init(Config(INPUTS, hidden=(7,)), 1),
        "two layers": init(Config(INPUTS, hidden=(6, 4)), 2),
        "two outputs": init(Config(INPUTS, hidden=(6,), outputs=2), 2),
        "linear": init(Config(INPUTS, hidden=()), 3),
        "wide": wide._replace(view=view),
    }


@pytest.mark.parametrize("name", make_states())
def test_effects_are_those_of_predictions_with_a_column_replaced(name: str) -> None:
    state = make_certain(make_states()[name])
    x = np.random.default_rng(0).standard_normal((ROWS, INPUTS))
    order = relevance.draw_other_rows(0, 100, ROWS)
    found, output = relevance.measure_effects(
        [state, state], np.array([0.3, 0.7]), [x, x], [np.arange(INPUTS)] * 2, order
    )
    expected = []
    for j in range(INPUTS):
        other = x.copy()
        other[:, j] = x[order, j]
        change = predict(state, other).mean - predict(state, x).mean
        expected.append(np.mean(np.sum(change**2, axis=1)))
    assert found == pytest.approx(expected, rel=1e-4)
    assert output == pytest.approx(predict(state, x).mean, abs=1e-5)


def test_the_effect_of_a_column_includes_that_of_its_bins() -> None:
    state = make_certain(init(Config(3, hidden=(6,)), 1))
    rng = np.random.default_rng(0)
    z = rng.standard_normal((ROWS, 2))
    x = np.column_stack([np.clip(z[:, 1], 0.0, 1.0), z])
    order = relevance.draw_other_rows(0, 100, ROWS)
    found, _ = relevance.measure_effects([state], np.ones(1), [x], [np.array([1, 0, 1])], order)
    other = x.copy()
    other[:, [0, 2]] = x[order][:, [0, 2]]
    change = predict(state, other).mean - predict(state, x).mean
    assert found[1] == pytest.approx(np.mean(change**2), rel=1e-4)


def test_gains_keep_the_variance_and_trust_few_rows_less() -> None:
    effects = np.r_[1.0, 3.0, 2.0, np.full(9, 0.001)]
    few, many = (relevance.compute_input_gains(effects, 1.0, rows) for rows in (200, 4096))
    assert np.mean(few**2) == pytest.approx(1.0) == np.mean(many**2)
    assert np.ptp(few) < 0.95 * np.ptp(many)
    assert many[1] > many[2] > many[0] > 1.0 > many[3]
    assert np.all(relevance.compute_input_gains(np.zeros(3), 1.0, 1000) == 1.0)
    alone = relevance.compute_input_gains(np.r_[1.0, np.full(99, 1e-6)], 1.0, 100_000)
    assert alone[0] == relevance.MOST_GAIN
    assert alone[1] == pytest.approx(0.05**0.5, rel=0.02)


@pytest.mark.parametrize(
    ("effects", "rows"),
    [
        (np.r_[np.ones(7), np.full(6, 1e-6)], 5000),  # most inputs are relevant
        (np.r_[1.0, np.full(12, 1e-6)], 100),  # few rows
    ],
)
def test_the_prior_changes_only_where_many_inputs_are_irrelevant(
    effects: FloatArray, rows: int
) -> None:
    assert np.all(relevance.compute_input_gains(effects, 1.0, rows) == 1.0)


def test_inputs_that_never_varied_keep_their_prior() -> None:
    effects = np.r_[1.0, 0.0, np.full(5, 1e-3), 0.0]
    gain = relevance.compute_input_gains(effects, 1.0, 1000)
    assert gain[1] == gain[-1] == 1.0
    assert gain[2] < 1.0 < gain[0]
    assert np.sum(gain[effects > 0.0] ** 2) == pytest.approx(6.0)


def test_an_effect_beyond_the_error_is_relevant() -> None:
    effects = np.r_[1.0, np.full(31, 0.01)]
    noisy, exact = (relevance.compute_input_gains(effects, error, 1000) for error in (1.0, 1e-5))
    assert np.ptp(exact) < 0.1 < 1.0 < np.ptp(noisy)


def make_rows(count: int, seed: int) -> tuple[FloatArray, FloatArray]:
    """A product and a sine of three inputs among twenty-four."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((count, 24))
    y = np.sin(2.0 * x[:, 0]) + 0.5 * x[:, 5] * x[:, 11] + 0.1 * rng.standard_normal(count)
    return x, y


def test_inputs_that_matter_get_a_wider_prior_and_a_lower_error() -> None:
    x, y = make_rows(1300, 0)
    model = trained(x, y, kind="regression")
    state = network(model)
    var = layout_of(state.config).weight_matrix(state.prior_var, 0)[:, 1:].mean(axis=0)
    assert np.min(var[[0, 5, 11]]) > 3.0 * np.max(np.delete(var, [0, 5, 11]))
    x_test, y_test = make_rows(500, 1)
    assert judged(model, x_test, y_test).rmse < 0.3  # 0.36 with an even prior


def test_requested_networks_and_series_have_an_even_prior() -> None:
    x, y = make_rows(200, 0)
    state = network(trained(x, y, hidden=(8,), kind="regression"))
    var = layout_of(state.config).weight_matrix(state.prior_var, 0)
    assert np.ptp(var) == 0.0
    assert not any(spec.adapts_prior for spec in Settings().list_members(3, 1, is_series=True))
    assert all(spec.adapts_prior for spec in Settings(hidden="best").list_members(3, 1))


def test_files_without_the_field_keep_an_even_prior() -> None:
    x, y = make_rows(100, 0)
    header, arrays = to_state(trained(x, y, kind="regression"))
    for candidate in header["racers"]:
        for one in candidate["networks"]:
            del one["member"]["adapts_prior"]
    model = from_state(header, arrays)
    assert not any(spec.adapts_prior for spec in model.learner_state.specs)
    model.learn(block(*make_rows(100, 1), first=101))
    state = network(model)
    assert np.ptp(layout_of(state.config).weight_matrix(state.prior_var, 0)) == 0.0
