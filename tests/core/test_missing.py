"""Missing and uncertain inputs: exact where the world is linear and Gaussian, useful elsewhere."""

from __future__ import annotations

import numpy as np
import pytest

from kbnn import Config, init, learn, predict
from kbnn.array_types import FloatArray
from kbnn.core.config import Covariance
from kbnn.core.layout import pack_triangle
from kbnn.distributions.calibration import MEAN_SCALE_FACTOR
from kbnn.model.scaler import get_scale
from tests.bench.data import block, judged, trained
from tests.modelling import network
from tests.networks import stream


def correlated(count: int, seed: int) -> tuple[FloatArray, FloatArray]:
    """Three correlated inputs, the third nearly the sum of the others, and a linear target."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((count, 3))
    x[:, 2] = 0.7 * x[:, 0] + 0.7 * x[:, 1] + 0.2 * x[:, 2]
    return x, x @ np.array([1.0, -0.5, 2.0]) + 0.1 * rng.standard_normal(count)


@pytest.mark.parametrize("covariance", ["neuron", "group", "full"])
@pytest.mark.parametrize("gone", range(3))
def test_a_linear_model_answers_with_the_conditional_gaussian(
    covariance: Covariance, gone: int
) -> None:
    rng = np.random.default_rng(1)
    root = rng.standard_normal((3, 3))
    sigma, mu, w = root @ root.T + 0.3 * np.eye(3), rng.standard_normal(3), rng.standard_normal(4)
    blank = init(Config(3, hidden=(), covariance=covariance, noise=0.01))
    state = blank._replace(
        mean=w, cov=1e-14 * blank.cov, input_mean=mu, input_cov=pack_triangle(sigma)
    )
    x = rng.standard_normal((5, 3))
    x[:, gone] = np.nan
    said = predict(state, x)
    rest = [i for i in range(3) if i != gone]
    gain = sigma[gone, rest] @ np.linalg.inv(sigma[np.ix_(rest, rest)])
    filled = x.copy()
    filled[:, gone] = mu[gone] + (x[:, rest] - mu[rest]) @ gain
    var = sigma[gone, gone] - gain @ sigma[rest, gone]
    assert np.allclose(said.mean[:, 0], w[0] + filled @ w[1:], atol=1e-9)
    assert np.allclose(said.function_var[:, 0], w[gone + 1] ** 2 * var, rtol=1e-6)


def test_a_model_uses_what_the_other_columns_say() -> None:
    shares = []
    for seed in (2, 3, 4):
        x, y = correlated(3000, seed)
        rng = np.random.default_rng(seed + 1)
        holes = np.where(rng.random(x.shape) < 0.1, np.nan, x)
        filled = np.where(np.isnan(holes), 0.0, holes)
        ours = judged(trained(holes[:2500], y[:2500], hidden=(20,)), holes[2500:], y[2500:])
        mean = judged(trained(filled[:2500], y[:2500], hidden=(20,)), filled[2500:], y[2500:])
        shares.append(ours.rmse / mean.rmse)
        assert ours.nll < mean.nll - 0.5
        assert 0.85 < ours.coverage < 0.97
    assert np.mean(shares) < 0.8


def test_a_row_with_nothing_but_gaps_gets_an_honest_answer() -> None:
    x, y = correlated(1500, 4)
    model = trained(x, y, hidden=(20,))
    said = model.predict(block(np.full((1, 3), np.nan), np.zeros(1)))
    assert abs(said.mean[0, 0] - np.mean(y)) < 0.3 * np.std(y)
    assert 0.6 * np.std(y) < said.sd[0, 0] < 1.5 * np.std(y)


def test_a_stated_error_widens_the_answer_by_the_slope() -> None:
    x, y = correlated(1500, 5)
    model = trained(x, y, hidden=(20,))
    at = np.zeros((3, 3))
    errors = np.zeros((3, 3))
    errors[1, 2], errors[2, 2] = 0.1, 5.0
    sd = model.predict(block(at, np.zeros(3), x_sd=errors)).sd[:, 0]
    assert sd[0] < sd[1] < sd[2]
    missing = np.array([[0.0, 0.0, np.nan]])
    gone = model.predict(block(missing, np.zeros(1))).sd[0, 0]
    assert sd[2] == pytest.approx(gone, rel=0.02)  # an error of five is as good as no value


def test_a_stated_error_is_a_standard_deviation_in_the_units_of_its_column() -> None:
    x, y = correlated(300, 9)
    x *= np.array([10.0, 0.2, 3.0])
    model = trained(x, y, hidden=())
    center, scale = get_scale(model.learner_state.columns)
    x_sd = np.abs(np.random.default_rng(3).normal(0.0, 0.5, (20, 3))) * scale[1:]
    said = model.predict(block(x[:20], y[:20], x_sd=x_sd))
    z, var = (x[:20] - center[1:]) / scale[1:], x_sd**2 / scale[1:] ** 2
    wanted = predict(network(model), z, x_var=var)
    wider = np.sqrt(model.learner_state.calibration[0, MEAN_SCALE_FACTOR])
    assert np.allclose(said.function_sd, wider * scale[0] * np.sqrt(wanted.function_var))


def test_a_column_may_come_late_and_go_again() -> None:
    x, y = correlated(900, 6)
    x[:300, 1] = np.nan
    x[700:, 0] = np.nan
    model = trained(x, y, hidden=(12,))
    assert model.rejected_rows == 0
    assert judged(model, x[700:], y[700:]).rmse < 0.6 * np.std(y)


@pytest.mark.parametrize("covariance", ["paper", "neuron", "group", "full"])
def test_all_structures_take_gaps(covariance: Covariance) -> None:
    x, y = correlated(400, 7)
    x[np.random.default_rng(8).random(x.shape) < 0.3] = np.nan
    model = trained(x, y, hidden=(6, 5), covariance=covariance)
    assert model.rows == 400
    assert judged(model, x, y).rmse < np.std(y)


@pytest.mark.parametrize("covariance", ["paper", "neuron", "group", "full", "wide"])
@pytest.mark.parametrize("hidden", [(), (6, 5)])
def test_rows_with_the_same_gaps_are_predicted_as_each_alone(
    covariance: Covariance, hidden: tuple[int, ...]
) -> None:
    config = Config(12, hidden=hidden, covariance=covariance)
    learned = stream(config, 60, seed=3, missing=0.2)
    state = learn(init(config), learned.x, learned.y)[0]
    rng = np.random.default_rng(4)
    gaps = np.repeat(rng.random((6, 12)) < 0.4, [1, 5, 1, 4, 3, 6], axis=0)
    gaps[5] = False
    x = np.where(gaps, np.nan, rng.standard_normal(gaps.shape))
    together = predict(state, x)
    for row in range(len(x)):
        alone = predict(state, x[row : row + 1])
        assert together.mean[row] == alone.mean[0]
        assert together.function_var[row] == alone.function_var[0]
