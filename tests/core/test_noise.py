"""The learned noise: level, its shape over the inputs, outliers and weights."""

from __future__ import annotations

import numpy as np
import pytest

from kbnn import Config, init, learn, predict
from kbnn.array_types import FloatArray
from kbnn.core import likelihoods
from kbnn.core.config import Covariance
from kbnn.core.layout import unpack_triangle
from kbnn.core.likelihoods import Residual


def linear_stream(rows: int, sd: float, seed: int = 0) -> tuple[FloatArray, FloatArray]:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((rows, 3))
    return x, x @ np.array([0.7, -0.5, 0.3]) + sd * rng.standard_normal(rows)


@pytest.mark.parametrize("sd", [0.02, 0.2, 1.0])
@pytest.mark.parametrize("covariance", ["paper", "neuron", "group", "full"])
def test_the_level_is_found(covariance: Covariance, sd: float) -> None:
    x, y = linear_stream(4000, sd)
    config = Config(inputs=3, hidden=(10,), covariance=covariance, noise_head=False)
    _, out = learn(init(config), x, y)
    assert np.median(np.sqrt(out.noise_var[2000:, 0])) == pytest.approx(sd, rel=0.2)


def test_the_fixed_point_is_the_variational_one_pinned_to_two_turns() -> None:
    belief, r = likelihoods.learn_level(np.array([2.0, 1.0]), Residual(0.8, 0.3, 0.3, 1.0, 1.0))
    wanted = 0.5
    for _ in range(2):
        gain = wanted / (0.3 + wanted)
        wanted = (1.0 + 0.5 * (0.64 * gain**2 + 0.3 * gain)) / 2.5
    assert r == pytest.approx(wanted)
    assert belief[1] / belief[0] == pytest.approx(wanted)
    assert belief[0] == pytest.approx(0.99 * 2.5)


@pytest.mark.parametrize("weight", [0.2, 3.0, 30.0])
def test_a_rows_weight_does_not_bias_the_level(weight: float) -> None:
    """Weights inside the gain once drove the noise to nothing within a few hundred rows."""
    x, y = linear_stream(2000, 0.2)
    config = Config(inputs=3, hidden=(10,))
    state, out = learn(init(config), x, y, weight=np.full(2000, weight))
    assert np.median(np.sqrt(out.noise_var[1000:, 0])) == pytest.approx(0.2, rel=0.25)
    assert state.counts[4] <= 1


def test_the_head_finds_where_noise_is_larger() -> None:
    rng = np.random.default_rng(2)
    x = rng.uniform(-2.0, 2.0, (12_000, 1))
    sd = np.where(x[:, 0] > 0.0, 0.5, 0.1)
    y = np.sin(x[:, 0]) + sd * rng.standard_normal(12_000)
    state, _ = learn(init(Config(inputs=1, hidden=(20,))), x, y)
    quiet, loud = np.sqrt(predict(state, np.array([[-1.5], [1.5]])).noise_var[:, 0])
    assert loud / quiet > 2.5
    assert quiet == pytest.approx(0.1, rel=0.6)
    assert loud == pytest.approx(0.5, rel=0.6)


def test_the_heads_covariance_stays_positive_definite_and_symmetric() -> None:
    rng = np.random.default_rng(3)
    size = 12
    mean, cov = np.zeros(size), np.eye(size)
    for _ in range(3000):
        features = np.concatenate([[1.0], 3.0 * np.maximum(rng.standard_normal(size - 1), 0.0)])
        now = likelihoods.forecast_noise(np.array([5.0, 0.2]), mean, cov, features)
        seen = Residual(float(rng.standard_t(2)), 0.1, 0.2, 1.0, 1.0)
        mean, cov = likelihoods.learn_head(mean, cov, now, seen)
        assert np.array_equal(cov, cov.T)
    assert np.linalg.eigvalsh(cov)[0] > 0.0
    assert np.all(np.isfinite(mean))


def test_the_kernels_head_stays_positive_definite_too() -> None:
    rng = np.random.default_rng(4)
    x = rng.standard_normal((5000, 3))
    config = Config(inputs=3, hidden=(12,))
    state, _ = learn(init(config), x, x[:, 0] + np.exp(x[:, 1]) * rng.standard_normal(5000))
    for row in state.head_cov:
        assert np.linalg.eigvalsh(unpack_triangle(row, 13))[0] > 0.0


def test_outliers_are_seen_as_such_and_cost_little() -> None:
    x, y = linear_stream(4000, 0.1)
    rng = np.random.default_rng(5)
    bad = rng.random(4000) < 0.1
    dirty = np.where(bad, y + 10.0 * rng.standard_normal(4000), y)
    robust = Config(inputs=3, hidden=(10,))
    state, out = learn(init(robust), x, dirty)
    plain, _ = learn(init(Config(inputs=3, hidden=(10,), robust=False)), x, dirty)
    held, truth = linear_stream(500, 0.0, seed=9)

    def rmse(learned: object) -> float:
        return float(np.sqrt(np.mean((predict(learned, held).mean[:, 0] - truth) ** 2)))  # type: ignore[arg-type]  # a State

    assert rmse(state) < 0.5 * rmse(plain)
    clear = bad & (np.abs(dirty - y) > 3.0)
    assert np.mean(out.inlier[clear][50:] < 0.1) > 0.95
    assert np.mean(out.inlier[~bad] > 0.5) > 0.97


@pytest.mark.parametrize("label", [1e3, 1e50, 1e99, -1e99])
def test_one_absurd_label_does_not_poison_the_noise(label: float) -> None:
    x, y = linear_stream(1500, 0.1)
    y[700] = label
    _, out = learn(init(Config(inputs=3, hidden=(10,))), x, y)
    assert np.sqrt(out.noise_var[720, 0]) < 0.3
    assert np.sqrt(np.mean((out.mean[720:, 0] - y[720:]) ** 2)) < 0.15


def test_inlier_probability_falls_with_the_residual() -> None:
    p = [likelihoods.residual_inlier_probability(e, 1.0) for e in (0.0, 2.0, 4.0, 6.0, 1e200)]
    assert p == sorted(p, reverse=True)
    assert p[0] > 0.99
    assert p[-1] == 0.0
