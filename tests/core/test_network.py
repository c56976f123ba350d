"""The public face: shapes, refusals, and a state that is never changed under its owner."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kbnn import Config, Prediction, init, learn, predict
from kbnn.core import kernel as engines
from kbnn.core.config import Covariance
from tests.networks import identical, stream


def copied(state: Any) -> Any:
    return state._replace(
        **{
            name: value.copy()
            for name, value in state._asdict().items()
            if isinstance(value, np.ndarray)
        }
    )


@pytest.mark.parametrize("engine", ["", "numpy"])
@pytest.mark.parametrize("covariance", ["paper", "neuron", "group", "full"])
def test_learning_leaves_the_given_state_alone(
    covariance: Covariance, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KBNN_ENGINE", engine)
    config = Config(inputs=3, hidden=(6,), covariance=covariance)
    data = stream(config, 60, missing=0.1)
    state = init(config)
    before = copied(state)
    new, _ = learn(state, data.x, data.y)
    assert identical(state, before)
    assert not identical(new, before)
    predict(new, data.x)
    after = copied(new)
    predict(new, data.x)
    assert identical(new, after)


@pytest.mark.parametrize("engine", ["", "numpy"])
def test_an_error_leaves_the_given_state_alone(
    engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KBNN_ENGINE", engine)
    config = Config(inputs=3, hidden=(6,))
    data = stream(config, 20)
    state = init(config)
    before = copied(state)
    calls: list[dict[str, Any]] = [
        {"x": data.x[:, :2], "y": data.y},
        {"x": data.x, "y": data.y[:5]},
        {"x": data.x, "y": data.y, "weight": np.ones(3)},
        {"x": data.x, "y": data.y, "x_var": -np.ones_like(data.x)},
        {"x": [["a", "b", "c"]], "y": [1.0]},
    ]
    for call in calls:
        with pytest.raises(ValueError, match="must"):
            learn(state, **call)
    assert identical(state, before)


def test_predictions_on_all_cores_are_those_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    config = Config(inputs=3, hidden=(8,))
    data = stream(config, 3000, missing=0.05)
    state, _ = learn(init(config), data.x[:500], data.y[:500])
    monkeypatch.setattr("os.cpu_count", lambda: 5)
    many = predict(state, data.x)
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    one = predict(state, data.x)
    assert all(np.array_equal(a, b) for a, b in zip(many, one, strict=True))


@pytest.mark.parametrize("engine", ["", "numpy"])
def test_a_state_that_may_not_be_written_serves_too(
    engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KBNN_ENGINE", engine)
    config = Config(inputs=3, hidden=(8,))
    data = stream(config, 50)
    state, wanted = init(config), predict(init(config), data.x)
    for field in state:
        if isinstance(field, np.ndarray):
            field.setflags(write=False)
    assert np.array_equal(predict(state, data.x).mean, wanted.mean)
    learned, _ = learn(state, data.x, data.y)
    assert identical(learned, learn(init(config), data.x, data.y)[0])


def test_a_prediction_says_what_is_unknown_and_what_is_noise() -> None:
    config = Config(inputs=1, hidden=(20,))
    rng = np.random.default_rng(0)
    x = rng.uniform(-1.0, 1.0, (2000, 1))
    state, _ = learn(init(config), x, np.sin(3.0 * x[:, 0]) + 0.1 * rng.standard_normal(2000))
    out: Prediction = predict(state, np.array([[0.0], [6.0]]))
    assert out.function_var[1, 0] > 50.0 * out.function_var[0, 0]
    assert np.sqrt(out.noise_var[0, 0]) == pytest.approx(0.1, rel=0.3)
    assert out.probability.shape == (2, 0)


def test_the_same_seed_gives_the_same_network_and_another_does_not() -> None:
    config = Config(inputs=2)
    assert identical(init(config, 1), init(config, 1))
    assert not np.array_equal(init(config, 1).mean, init(config, 2).mean)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"hidden": (0,)}, "sizes must be at least 1"),
        ({"group_size": 0}, "sizes must be at least 1"),
        ({"activation": "softplus"}, "unknown activation 'softplus'"),
        ({"activation": "max(2,1)"}, "needs 0 <= alpha <= 1"),
        ({"activation": "relu,swish"}, "unknown activation 'swish'"),
        ({"activation": "relu,tanh"}, "is for 2 hidden layers, not 1"),
        ({"covariance": "diagonal"}, "unknown covariance"),
        ({"observation": "poisson"}, "unknown observation"),
        ({"observation": "bernoulli", "outputs": 2}, "has one output"),
        ({"noise": -1.0}, "finite variance"),
        ({"activation_spread": 1.5}, "activation_spread"),
        ({"hidden_noise": 0.1}, "belong to covariance 'paper'"),
    ],
)
def test_an_impossible_configuration_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Config(inputs=2, **options)


@pytest.mark.parametrize("value", [-0.1, np.nan])
def test_what_is_no_variance_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match="x_var must hold variances >= 0"):
        predict(init(Config(inputs=1)), np.zeros((1, 1)), x_var=np.array([[value]]))


def test_widths_may_come_as_a_list_of_any_numbers() -> None:
    widths: Any = list(np.array([3, 4]))
    config = Config(inputs=2, hidden=widths)
    assert config == Config(inputs=2, hidden=(3, 4))
    assert init(config).config.widths == (2, 3, 4, 1)


def test_the_engine_says_who_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KBNN_ENGINE", "numpy")
    if engines._BUILT:
        assert engines.describe_engine() == "numpy (KBNN_ENGINE=numpy)"
    monkeypatch.setattr(engines, "_BUILT", False)
    monkeypatch.delenv("KBNN_ENGINE")
    assert "no C compiler" in engines.describe_engine()
    config = Config(inputs=2, hidden=(3,))
    state, _ = learn(init(config), np.zeros((2, 2)), [0.0, 1.0])
    assert state.counts[0] == 2


def test_many_rows_are_predicted_as_each_is_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shared out among cores, with their gaps and stated errors."""
    monkeypatch.setattr("os.cpu_count", lambda: 3)
    config = Config(inputs=3, hidden=(6,))
    data = stream(config, 1000, missing=0.1, noisy=0.3)
    state, _ = learn(init(config), data.x, data.y, x_var=data.x_var)
    many = predict(state, data.x, x_var=data.x_var)
    few = [predict(state, data.x[at : at + 1], x_var=data.x_var[at : at + 1]) for at in range(1000)]
    for name in ("mean", "function_var", "noise_var"):
        alone = np.concatenate([getattr(one, name) for one in few])
        assert np.array_equal(getattr(many, name), alone)
