"""Exponential smoothing and an autoregression: kernel, numpy version and least squares agree."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import Ridge

from kbnn.array_types import FloatArray
from kbnn.core import kernel, series_models
from kbnn.core.series_models import (
    AUTOREGRESSION,
    LAGS,
    LARGEST,
    SMOOTHING,
    SeriesState,
    compute_lag_slopes,
    forecast_series,
    learn_series,
    make_prior,
)

needs_kernel = pytest.mark.skipif(not kernel.is_compiled(), reason="the kernel is not built")


def make_series(rows: int, season: int = 12, seed: int = 0) -> FloatArray:
    rng = np.random.default_rng(seed)
    cycle = 8.0 * np.sin(2.0 * np.pi * np.arange(rows) / max(season, 5))
    return np.asarray(60.0 + cycle + np.cumsum(rng.normal(size=rows)) + rng.normal(size=rows))


def make_awkward(kind: str) -> FloatArray:
    """Series with gaps, jumps, negative, constant and huge values."""
    y = make_series(150)
    if kind == "gaps":
        y[[0, 1, 20, 21, 22, 70]] = np.nan
        y[80:110] = np.nan
    elif kind == "negative":
        y -= 60.0
    elif kind == "constant":
        y[:] = 7.0
    elif kind == "zeros":
        y[:] = 0.0
    elif kind == "huge":
        y *= 1e300
    elif kind == "mixed scales":
        y[::3] *= 1e200
    elif kind == "tiny":
        y *= 1e-300
    elif kind == "jump":
        y[75:] += 1e9
    elif kind == "unknown":
        y[:] = np.nan
    return y


KINDS = ("plain", "gaps", "negative", "constant", "zeros", "huge", "mixed scales", "tiny", "jump")


@needs_kernel
@pytest.mark.parametrize("season", [0, 2, 12, 400, 500])
@pytest.mark.parametrize("kind", ["plain", "gaps", "negative", "constant", "jump", "unknown"])
def test_the_kernel_is_the_numpy_version(kind: str, season: int) -> None:
    y, start = make_awkward(kind), SeriesState.create(season)
    fast, made = learn_series(start, y, 9, compiled=True)
    slow, expected = learn_series(start, y, 9, compiled=False)
    np.testing.assert_allclose(made, expected, rtol=1e-7, atol=1e-7)
    for one, other in zip(fast, slow, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(
        forecast_series(fast, 30, compiled=True),
        forecast_series(slow, 30, compiled=False),
        rtol=1e-6,
        atol=1e-6,
    )


@pytest.mark.parametrize("compiled", [pytest.param(True, marks=needs_kernel), False])
def test_any_cut_gives_the_same_bits_and_learning_leaves_the_state_as_it_was(
    compiled: bool,
) -> None:
    y, start = make_awkward("gaps"), SeriesState.create(12)
    whole, paths = learn_series(start, y, 5, compiled)
    state, parts = start, []
    for cut in np.split(y, [1, 2, 40, 41, 90]):
        state, made = learn_series(state, cut, 5, compiled)
        parts.append(made)
    np.testing.assert_array_equal(np.concatenate(parts), paths)
    for one, other in zip(state, whole, strict=True):
        np.testing.assert_array_equal(one, other)
    for one, other in zip(start, SeriesState.create(12), strict=True):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(learn_series(state, y[:1], 5)[1][0], forecast_series(state, 5))


@pytest.mark.parametrize("compiled", [pytest.param(True, marks=needs_kernel), False])
@pytest.mark.parametrize("kind", [*KINDS, "unknown"])
@pytest.mark.parametrize("season", [0, 12])
def test_forecasts_are_finite_once_there_are_values(kind: str, season: int, compiled: bool) -> None:
    """Warnings are errors here."""
    y = make_awkward(kind)
    state, paths = learn_series(SeriesState.create(season), y, 48, compiled)
    assert state.is_valid()
    known = np.isfinite(y).any()
    seen = np.cumsum(np.isfinite(y)) > 0
    assert np.isfinite(paths[1:, SMOOTHING][seen[:-1]]).all()
    limited = np.clip(y[np.isfinite(y)], -LARGEST, LARGEST)
    varies = known and np.ptp(limited) > 1e-150
    assert bool(np.isfinite(paths[-1, AUTOREGRESSION]).all()) == varies
    assert np.isfinite(forecast_series(state, 300, compiled)[SMOOTHING]).all() == known


@pytest.mark.parametrize(("slope", "season"), [(0.0, 0), (2.0, 0), (1.0, 12)])
def test_a_line_with_a_season_is_continued(slope: float, season: int) -> None:
    """Damped trends fall behind by less than half of the way that the line goes."""
    row = np.arange(300.0)
    y = 50.0 + slope * row
    if season:
        y += 9.0 * np.sin(2 * np.pi * row / 12) + 4.0 * (row % 12 == 3)
    state, _ = learn_series(SeriesState.create(season), y[:276])
    behind = y[276:] - forecast_series(state, 24)
    way = slope * np.arange(1, 25)
    assert np.all(np.abs(behind[SMOOTHING]) <= 0.45 * way + 1e-9)
    if slope:
        assert np.all(np.abs(behind[AUTOREGRESSION]) <= 0.2 * way + 0.1)
        assert np.sqrt(np.mean(behind[AUTOREGRESSION] ** 2)) < 0.12 * way[-1]


def test_growth_is_continued_in_proportion() -> None:
    """Rules on logarithms: of growth by 3 % a row, more than two thirds after ten rows."""
    y = 10.0 * 1.03 ** np.arange(130.0)
    state, _ = learn_series(SeriesState.create(0), y[:120])
    made = forecast_series(state, 10)[SMOOTHING]
    assert made[0] == pytest.approx(y[120], rel=0.006)
    assert (made[-1] - y[119]) / (y[-1] - y[119]) > 0.67


@pytest.mark.parametrize("season", [0, 7])
def test_the_autoregression_is_ridge_regression(
    season: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without forgetting, recursive least squares are those of scikit-learn at the end."""
    monkeypatch.setattr(series_models, "CHANGE_DECAY", 1.0)
    monkeypatch.setattr(series_models, "MAX_CHANGE_SD", 1e9)
    y = make_series(200, 7)
    state, _ = learn_series(SeriesState.create(season), y, compiled=False)
    prior_mean, prior_var = make_prior(season)
    at, scale = 2 * season + LAGS + 2, np.sqrt(prior_var)
    change, errors = np.concatenate((np.zeros(at + 1), np.diff(y))), np.zeros(at + len(y))
    regressors, targets, weight = [], [], prior_mean
    for row in range(LAGS + 1, len(y)):
        sd, end = np.sqrt(np.mean(np.diff(y)[: row - 1] ** 2)), at + row
        x = [change[end - k] for k in range(1, LAGS + 1)] + [errors[end - 1]]
        if season:
            x += [change[end - season], change[end - season - 1], change[end - 2 * season]]
            x += [y[row - 1] - y[row - 1 - season] if row > season else 0.0]
            x += [errors[end - season], errors[end - season - 1]]
        x.append(y[row - 1] - np.mean(y[:row]))
        regressors.append(np.append(np.array(x) / sd, 1.0) * scale)
        targets.append(change[end] / sd)
        errors[end] = sd * (targets[-1] - regressors[-1] / scale @ weight)
        rest = targets - np.array(regressors) / scale @ prior_mean
        ridge = Ridge(alpha=1.0, fit_intercept=False).fit(regressors, rest)
        weight = prior_mean + scale * ridge.coef_
    np.testing.assert_allclose(state.weight, weight, atol=1e-8)


def test_smoothing_is_the_textbook_recursion(monkeypatch: pytest.MonkeyPatch) -> None:
    """One rule: damped additive Holt-Winters, row by row."""
    rules = np.array([[0.3, 0.1, 0.9, 0.2, 0.0]])
    monkeypatch.setattr(series_models, "_RULES", (rules, rules))
    monkeypatch.setattr(series_models, "_count_seasonal", lambda season: 1)
    season, y = 4, make_series(60, 4)
    _, paths = learn_series(SeriesState.create(season), y, 3, compiled=False)
    state, _ = learn_series(SeriesState.create(season), y[:8], 0, compiled=False)
    level, trend, terms = state.level[0], state.trend[0], state.seasonal[0].copy()
    for row in range(8, 60):
        for step in (1, 2, 3):
            drift = sum(0.9**k for k in range(1, step + 1)) * trend
            expected = level + drift + terms[(row + step - 1) % 4]
            assert paths[row, SMOOTHING, step - 1] == pytest.approx(expected, rel=1e-12)
        error = y[row] - (level + 0.9 * trend + terms[row % 4])
        level, trend = level + 0.9 * trend + 0.3 * error, 0.9 * trend + 0.1 * 0.3 * error
        terms[row % 4] += 0.2 * 0.7 * error


def test_rules_count_by_their_errors() -> None:
    """A walk is forecast as its last value, a level with noise as its mean."""
    rng = np.random.default_rng(3)
    walk, noise = np.cumsum(rng.normal(size=600)) + 500.0, rng.normal(size=600) + 500.0
    made = {}
    for name, y in (("walk", walk), ("noise", noise)):
        state, paths = learn_series(SeriesState.create(0), y, 1)
        made[name] = np.sqrt(np.mean((paths[100:, SMOOTHING, 0] - y[100:]) ** 2))
        assert forecast_series(state, 1)[SMOOTHING, 0] == pytest.approx(y[-30:].mean(), abs=6.0)
    assert made["walk"] < 1.03
    assert made["noise"] < 1.06


@pytest.mark.parametrize("season", [0, 7])
def test_slopes_of_the_autoregression_are_those_of_its_forecast(season: int) -> None:
    """With fixed weights and mean and no drift, values change the forecast alone."""
    y, lags = make_series(300, 7), [1, 2, 3, 7, 8, 9, 15]
    state, _ = learn_series(SeriesState.create(season), y[:250])
    fixed = state._replace(
        cov=np.zeros_like(state.cov), counts=state.counts.copy(), weight=state.weight.copy()
    )
    fixed.counts[-2], fixed.weight[-1] = 1e15, 0.0
    slopes = compute_lag_slopes(fixed, lags)[AUTOREGRESSION]
    assert abs(slopes[0]) > 0.1
    plain = forecast_series(learn_series(fixed, y[250:])[0], 1)[AUTOREGRESSION, 0]
    for lag, slope in zip(lags, slopes, strict=True):
        moved = y[250:].copy()
        moved[-lag] += 1e-3
        after, _ = learn_series(fixed, moved)
        found = forecast_series(after, 1)[AUTOREGRESSION, 0]
        assert (found - plain) / 1e-3 == pytest.approx(slope, abs=1e-6)


def test_a_forecast_never_flees_from_the_mean() -> None:
    """A weight of y - mean above 0, as in growth, is ignored: the forecast does not explode."""
    state, _ = learn_series(SeriesState.create(0), make_series(300))
    known = {"recent": np.full_like(state.recent, 100.0), "errors": np.zeros_like(state.errors)}
    for weight, expected in ((0.5, 100.0), (-0.5, float(state.counts[-1]))):
        moved = state._replace(weight=np.zeros_like(state.weight), **known)
        moved.weight[-2] = weight
        for compiled in {kernel.is_compiled(), False}:
            made = forecast_series(moved, 40, compiled)[AUTOREGRESSION, -1]
            assert made == pytest.approx(expected)


def test_slopes_of_smoothing_are_those_of_its_forecast(monkeypatch: pytest.MonkeyPatch) -> None:
    rules = np.array([[0.3, 0.1, 0.9, 0.0, 0.0]])
    monkeypatch.setattr(series_models, "_RULES", (rules, rules))
    y, lags = make_series(80), [1, 2, 3, 12, 13]
    state, _ = learn_series(SeriesState.create(0), y, 0, compiled=False)
    slopes = compute_lag_slopes(state, lags)[SMOOTHING]
    plain = forecast_series(state, 1, compiled=False)[SMOOTHING, 0]
    for lag, slope in zip(lags, slopes, strict=True):
        moved = y.copy()
        moved[-lag] += 1.0
        after, _ = learn_series(SeriesState.create(0), moved, 0, compiled=False)
        found = forecast_series(after, 1, compiled=False)[SMOOTHING, 0] - plain
        assert found == pytest.approx(slope, abs=1e-9)


@pytest.mark.parametrize("name", SeriesState._fields)
def test_broken_states_are_found(name: str) -> None:
    state, _ = learn_series(SeriesState.create(7), make_series(60))
    assert state.is_valid()
    part = getattr(state, name)
    assert not state._replace(**{name: part[..., :-1]}).is_valid()
    broken = part.copy()
    broken.flat[0] = np.inf
    assert not state._replace(**{name: broken}).is_valid()


@pytest.mark.parametrize("compiled", [pytest.param(True, marks=needs_kernel), False])
def test_a_glitch_does_not_spoil_later_forecasts_and_a_new_level_is_reached(
    compiled: bool,
) -> None:
    rng = np.random.default_rng(1)
    row = np.arange(420)
    y = 10.0 + 3.0 * np.sin(2.0 * np.pi * row / 12) + rng.normal(size=420)
    glitch, shift = y.copy(), y.copy()
    glitch[300], shift[300:] = 1e6, shift[300:] + 1e6
    for values, level in ((glitch, 10.0), (shift, 1e6 + 10.0)):
        state, _ = learn_series(SeriesState.create(12), values, 0, compiled)
        made = forecast_series(state, 24, compiled)
        assert np.all(np.abs(made[SMOOTHING] - level) < (8.0 if level < 1e3 else 1e5))
        assert np.all(np.abs(made[AUTOREGRESSION] - level) < (8.0 if level < 1e3 else 2e5))
