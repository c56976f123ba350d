"""Effects, scales and health of a model: by hand from the weights of a linear one."""

from __future__ import annotations

import numpy as np
import pytest

from kbnn import Config, init
from kbnn.core.jacobian import compute_sensitivity
from kbnn.core.layout import layout_of
from kbnn.model.diagnostics import (
    collect_health,
    compute_effects,
    describe_scales,
    list_model_noise,
    rank_features,
)
from kbnn.model.model import OnlineModel
from kbnn.model.scaler import CENTER, SCALE
from kbnn.model.settings import Settings
from tests.bench.data import block, schema, trained
from tests.modelling import mixed_rows, network, new_model


def test_the_slopes_of_a_linear_network_are_its_weights() -> None:
    """However many rows it is asked at: the doubt about a weight is the same at each of them."""
    config = Config(inputs=2, hidden=(), covariance="full")
    cov = np.array([[0.5, 0.1, 0.0], [0.1, 0.04, 0.01], [0.0, 0.01, 0.09]])
    state = init(config)._replace(
        mean=np.array([9.0, -2.0, 0.7]), cov=layout_of(config).pack_blocks([cov])
    )
    x = np.random.default_rng(0).standard_normal((7, 2))
    x[2, 0] = np.nan
    for rows in (x[:1], x):
        found = compute_sensitivity(state, rows)
        assert found.slope == pytest.approx(np.array([[-2.0, 0.7]]))
        assert found.sd == pytest.approx(np.array([[0.2, 0.3]]))
        assert found.size == pytest.approx(np.array([[2.0, 0.7]]))


def test_slopes_that_cancel_have_a_size() -> None:
    """relu units of weights 3 and -1 that bend at 0: the slope is 3 on one side, -1 on the other.

    Their outgoing weights are 1 and 1, and a row of 50 counts as one of 8.
    """
    config = Config(inputs=1, hidden=(2, 1), activation="relu", covariance="neuron")
    mean = np.array([0.0, 3.0, 0.0, -1.0, 100.0, 1.0, 1.0, 0.0, 1.0])
    state = init(config)
    state = state._replace(mean=mean, cov=1e-9 * state.cov)
    found = compute_sensitivity(state, np.array([[2.0], [2.0], [2.0], [-2.0]]))
    assert found.slope[0, 0] == pytest.approx((3 * 3.0 - 1.0) / 4, rel=1e-6)
    assert found.size[0, 0] == pytest.approx(np.sqrt((3 * 9.0 + 1.0) / 4), rel=1e-6)
    late = state._replace(mean=np.array([-20.0, 1.0, -20.0, 0.0, 100.0, 1.0, 1.0, 0.0, 1.0]))
    assert compute_sensitivity(late, np.array([[50.0]])).slope[0, 0] == pytest.approx(0.0, abs=1e-6)


def test_effects_are_told_in_the_units_of_the_columns() -> None:
    rng = np.random.default_rng(1)
    x = rng.normal([5.0, 100.0], [0.2, 30.0], (300, 2))
    y = 40.0 * x[:, 0] - 0.5 * x[:, 1] + rng.standard_normal(300)
    model = trained(x, y, hidden=(), covariance="full")
    state, columns = network(model), model.learner_state.columns
    sd = np.sqrt(np.diag(layout_of(state.config).unpack_blocks(state.cov)[0]))
    (told,) = compute_effects(model)
    for j, effect in enumerate(told.effects, start=1):
        ratio = columns[0, SCALE] / columns[j, SCALE]
        assert effect.feature == f"x{j - 1}"
        assert effect.slope == pytest.approx(ratio * state.mean[j])
        assert effect.slope_sd == pytest.approx(ratio * sd[j])
        assert effect.effect == pytest.approx(columns[0, SCALE] * state.mean[j])
        assert effect.effect_sd == pytest.approx(columns[0, SCALE] * sd[j])
        assert effect.size == pytest.approx(abs(state.mean[j]))
    assert told.effects[0].slope == pytest.approx(40.0, rel=0.1)
    assert told.effects[1].slope == pytest.approx(-0.5, rel=0.1)
    assert rank_features(model, told.effects) == ["x1", "x0"]


def test_with_two_classes_effects_are_on_the_second_against_the_first() -> None:
    rng = np.random.default_rng(2)
    x = rng.standard_normal((300, 2))
    model = OnlineModel(Settings(hidden=()), schema(2, 1, 2))
    model.learn(block(x, (x[:, 0] - 0.5 * x[:, 1] > 0).astype(np.float64)))
    (told,) = compute_effects(model)
    assert told.name == "1"
    assert (told.title, told.unit) == ("the probability of 1", "probability")
    state = network(model)
    first, second = layout_of(state.config).weight_matrix(state.mean, 0)
    weights = (second - first)[1:]
    effect = np.array([effect.effect for effect in told.effects])
    # The derivative of the link is the same for both, but for what doubt adds to it.
    assert effect / effect[0] == pytest.approx(weights / weights[0], rel=0.02)
    step = model.learner_state.columns[:, SCALE]
    assert np.allclose([effect.slope for effect in told.effects], effect / step)
    assert np.all(np.abs(effect) < 1.0)
    assert told.effects[0].effect > 0.0 > told.effects[1].effect


def test_health_and_scales_of_a_model() -> None:
    model = new_model(hidden=(), covariance="neuron", drift=False)
    assert collect_health(model)["smallest_variance_ratio"] is None
    model.learn(mixed_rows(400))
    state = network(model)
    (block_cov,) = layout_of(state.config).unpack_blocks(state.cov)
    ratio = np.min(np.diag(block_cov) / state.prior_var)
    assert collect_health(model)["smallest_variance_ratio"] == pytest.approx(ratio, rel=1e-12)
    told = describe_scales(model)
    assert [one["name"] for one in told] == ["y", "x0", "x1", "x2", "c=a", "c=b"]
    roles = ["target", "feature", "feature", "feature", "indicator", "indicator"]
    assert [one["role"] for one in told] == roles
    columns = model.learner_state.columns
    assert [one["center"] for one in told[:4]] == columns[:4, CENTER].tolist()
    assert [one["scale"] for one in told] == [*columns[:4, SCALE], 1.0, 1.0]


def test_the_noise_of_a_model_is_told_in_the_units_of_the_target() -> None:
    rng = np.random.default_rng(3)
    x = rng.standard_normal((500, 1))
    y = 200.0 + 80.0 * x[:, 0] + 20.0 * rng.standard_normal(500)
    assert list_model_noise(trained(x, y, hidden=(), noise=7.5)) == pytest.approx([7.5])
    assert list_model_noise(trained(x, y, hidden=())) == pytest.approx([20.0], rel=0.15)
    assert list_model_noise(trained(x[:9], y[:9], hidden=())) == []  # nothing is learned yet
