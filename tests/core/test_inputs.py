"""Missing and noisy inputs: conditioning, the running Gaussian, what the network makes of it."""

from __future__ import annotations

import numpy as np
import pytest

from kbnn import Config, init, learn, predict
from kbnn.core.config import Covariance
from kbnn.core.input_moments import (
    MOMENT_ROWS,
    InputMoments,
    condition_inputs,
    follow_inputs,
    follow_levels,
    init_watched_inputs,
    update_input_moments,
    widen_levels,
)
from kbnn.core.layout import unpack_triangle
from tests.networks import plain


def test_conditioning_is_the_matrix_formula() -> None:
    rng = np.random.default_rng(0)
    root = rng.standard_normal((5, 5))
    sigma, mu = root @ root.T, rng.standard_normal(5)
    x, x_var = rng.standard_normal(5), np.array([0.0, 0.4, 0.0, 2.0, 0.1])
    x[2] = np.nan
    seen = np.array([0, 1, 3, 4])
    gain = sigma[:, seen] @ np.linalg.inv(sigma[np.ix_(seen, seen)] + np.diag(x_var[seen]))
    got = condition_inputs(mu, sigma, x, x_var)
    assert got.cov is not None
    assert np.allclose(got.mean, mu + gain @ (x[seen] - mu[seen]), atol=1e-10)
    assert np.allclose(got.cov, sigma - gain @ sigma[seen], atol=1e-10)
    assert got.var[0] == 0.0


def test_what_follows_from_the_others_has_no_variance_below_0() -> None:
    """Columns in step: rounding alone would leave some a little below."""
    rng = np.random.default_rng(0)
    for a in rng.standard_normal((100, 3)):
        noise = np.array([1e-20, 0.0, 0.0])
        given = condition_inputs(
            np.zeros(3), np.outer(a, a), np.array([a[0], np.nan, np.nan]), noise
        )
        assert np.all(given.var >= 0.0)
        assert np.all(given.var <= 1e-14)


def test_an_infinite_variance_is_a_missing_value() -> None:
    sigma, mu = np.array([[1.0, 0.9], [0.9, 1.0]]), np.zeros(2)
    missing = condition_inputs(mu, sigma, np.array([2.0, np.nan]), np.zeros(2))
    infinite = condition_inputs(mu, sigma, np.array([2.0, 7.0]), np.array([0.0, np.inf]))
    assert missing.mean == pytest.approx([2.0, 1.8])
    assert infinite.mean == pytest.approx(missing.mean)
    assert infinite.var == pytest.approx(missing.var)


def test_exact_inputs_are_handed_on_untouched() -> None:
    x = np.array([0.1, -3.0])
    got = condition_inputs(np.ones(2), np.eye(2), x, np.zeros(2))
    assert got.cov is None
    assert got.mean is x


def test_the_running_gaussian_is_that_of_the_rows_and_one_standard_row() -> None:
    rng = np.random.default_rng(3)
    x = rng.standard_normal((200, 3)) @ rng.standard_normal((3, 3)) + 1.0
    mu, sigma = np.zeros(3), np.eye(3)
    for rows, row in enumerate(x):
        update_input_moments(mu, sigma, rows, InputMoments(row, None))
    assert np.allclose(mu, np.sum(x, axis=0) / 201)
    centred = np.vstack([np.zeros(3), x]) - mu
    assert np.allclose(sigma, (centred.T @ centred + np.eye(3)) / 201)


def test_missing_values_do_not_shrink_the_running_gaussian() -> None:
    """Absorbing conditional means alone would."""
    rng = np.random.default_rng(4)
    common = rng.standard_normal((4000, 1))
    x = 0.8 * common + 0.6 * rng.standard_normal((4000, 3))
    x[rng.random(x.shape) < 0.4] = np.nan
    config = plain(3, hidden=(), noise=1.0)
    state, _ = learn(init(config), x, np.zeros(4000))
    got = unpack_triangle(state.input_cov, 3)
    assert np.allclose(np.diag(got), 1.0, atol=0.08)
    assert np.allclose(got[np.triu_indices(3, 1)], 0.64, atol=0.12)


@pytest.mark.parametrize("covariance", ["neuron", "group", "full"])
def test_stated_errors_stay_honest_with_holes_in_the_data(covariance: Covariance) -> None:
    rng = np.random.default_rng(5)
    x = rng.standard_normal((6000, 4))
    y = x @ np.array([1.0, -0.7, 0.5, 0.2]) + 0.05 * rng.standard_normal(6000)
    x[rng.random(x.shape) < 0.3] = np.nan
    config = Config(inputs=4, hidden=(20,), covariance=covariance, noise_head=False)
    _, out = learn(init(config), x, y)
    late = slice(3000, None)
    z2 = (y[late] - out.mean[late, 0]) ** 2 / (out.function_var + out.noise_var)[late, 0]
    assert 0.8 < np.mean(z2) < 1.25
    whole = ~np.any(np.isnan(x[late]), axis=1)
    holes = np.sum(np.isnan(x[late]), axis=1) >= 2
    stated = (out.function_var + out.noise_var)[late, 0]
    assert np.mean(stated[holes]) > 5.0 * np.mean(stated[whole])


def test_noisy_inputs_do_not_attenuate_the_slope() -> None:
    """Taking the measurement at its word gives about half the true slope of 1."""
    rng = np.random.default_rng(6)
    true = rng.standard_normal(8000)
    seen = true + rng.standard_normal(8000)
    y = true + 0.1 * rng.standard_normal(8000)
    config = plain(1, hidden=(), noise_head=False)
    state, _ = learn(init(config), seen[:, None], y, x_var=np.ones((8000, 1)))
    naive, _ = learn(init(config), seen[:, None], y)
    line = np.array([[-1.0], [1.0]])
    slope = np.diff(predict(state, line).mean[:, 0])[0] / 2.0
    attenuated = np.diff(predict(naive, line).mean[:, 0])[0] / 2.0
    assert attenuated == pytest.approx(0.5, abs=0.1)
    assert slope == pytest.approx(1.0, abs=0.15)


def test_an_uncertain_input_widens_the_prediction() -> None:
    config = Config(inputs=2, hidden=(15,))
    rng = np.random.default_rng(7)
    x = rng.standard_normal((1500, 2))
    state, _ = learn(init(config), x, x[:, 0] + 0.1 * rng.standard_normal(1500))
    at = np.array([[0.5, 0.5]])
    sharp = predict(state, at)
    vague = predict(state, at, x_var=np.array([[0.25, 0.0]]))
    unseen = predict(state, np.array([[np.nan, 0.5]]))
    assert vague.function_var[0, 0] > sharp.function_var[0, 0] + 0.1
    assert unseen.function_var[0, 0] > vague.function_var[0, 0]
    assert unseen.function_var[0, 0] == pytest.approx(1.0, rel=0.3)


def test_watched_inputs_are_predicted_as_by_the_exact_conditional() -> None:
    """Against the textbook formula with the moments of the rows seen, some values missing."""
    rng = np.random.default_rng(3)
    mix = rng.standard_normal((4, 4))
    x = 5.0 + rng.standard_normal((MOMENT_ROWS + 3, 4)) @ mix
    state, mean, sd = follow_inputs(init_watched_inputs(4), x[:MOMENT_ROWS])
    assert np.isnan(mean).all()
    last = x[MOMENT_ROWS:].copy()
    last[1, 2] = np.nan
    _, mean, sd = follow_inputs(state, last)
    first = x[:MOMENT_ROWS]
    mu, sigma = first.mean(0), np.cov(first.T, bias=True)
    for i, row in enumerate(last):
        for j in range(4):
            others = [k for k in range(4) if k != j and np.isfinite(row[k])]
            gain = np.linalg.solve(sigma[np.ix_(others, others)], sigma[others, j])
            assert mean[i, j] == pytest.approx(mu[j] + gain @ (row[others] - mu[others]), rel=1e-3)
            var = sigma[j, j] - gain @ sigma[others, j]
            assert sd[i, j] == pytest.approx(np.sqrt(var), rel=1e-3)


def test_watched_inputs_do_not_depend_on_batches() -> None:
    rng = np.random.default_rng(4)
    x = rng.standard_normal((300, 5)).cumsum(axis=1)
    x[rng.random(x.shape) < 0.05] = np.nan
    x[:, 4] = 7.0  # constant: never predicted
    x[200, 0] += 1e6
    whole, mean, sd = follow_inputs(init_watched_inputs(5), x)
    assert np.isnan(mean[:, 4]).all()
    assert np.isfinite(mean[MOMENT_ROWS:, :4]).all()
    assert np.sqrt(whole.cov[0, 0]) < 3.0  # a fault does not widen the distribution
    assert abs(mean[200, 1]) < 10.0  # nor does it change what is expected of the others
    state, at = init_watched_inputs(5), 0
    for size in (1, 62, 1, 1, 100, 35, 100):
        state, m, s = follow_inputs(state, x[at : at + size])
        np.testing.assert_array_equal(m, mean[at : at + size])
        np.testing.assert_array_equal(s, sd[at : at + size])
        at += size
    for a, b in zip(whole, state, strict=True):
        np.testing.assert_array_equal(a, b)


def test_levels_are_those_of_the_rows_before_in_any_batches() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal([5.0, -2.0, 3.0], [1.0, 0.1, 0.0], (400, 3))
    x[rng.random(x.shape) < 0.1] = np.nan
    start = widen_levels(None, 3)
    whole, off = follow_levels(start, x)
    for cut in (1, 63, 64, 130):
        first, one = follow_levels(start, x[:cut])
        second, two = follow_levels(first, x[cut:])
        assert np.array_equal(np.concatenate((one, two)), off)
        assert all(np.array_equal(a, b) for a, b in zip(second, whole, strict=True))
    known = x[:384]  # the last 16 rows wait for 48 others
    assert whole.mean == pytest.approx(np.nanmean(known, axis=0))
    assert whole.var == pytest.approx(np.nanvar(known, axis=0), abs=1e-12)
    assert whole.filled[0] == 16
    assert not off[:64].any()  # nothing is known yet
    assert not off[:, 2].any()  # a constant deviates from nothing
    last = np.flatnonzero(np.isfinite(x[384:, 0])) + 384
    assert off[last, 0] == pytest.approx((x[last, 0] - whole.mean[0]) / np.sqrt(whole.var[0]))


def test_levels_forget_and_grow() -> None:
    rng = np.random.default_rng(1)
    state, _ = follow_levels(widen_levels(None, 1), rng.normal(0.0, 1.0, (2048, 1)))
    state, off = follow_levels(widen_levels(state, 2), rng.normal(100.0, 1.0, (8192, 2)))
    assert abs(off[0, 0]) > 50.0
    assert np.all(np.abs(off[-100:]) < 5.0)
    assert state.mean == pytest.approx([100.0, 100.0], abs=0.2)
