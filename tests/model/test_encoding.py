"""Piecewise-linear encoding: bins, noisy inputs, changes of scale, and models that use it."""

from __future__ import annotations

import numpy as np
import pytest

from kbnn.array_types import FloatArray
from kbnn.data.batch import slice_rows
from kbnn.model import ensemble
from kbnn.model.model import OnlineModel
from kbnn.model.scaler import Scale
from kbnn.model.serialize import copy_model
from kbnn.model.settings import Settings
from tests.bench.data import block, judged, schema, trained
from tests.modelling import differences


def make_rows(count: int, seed: int = 0) -> tuple[FloatArray, FloatArray]:
    """Rows of a target that is made of thresholds."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((count, 4))
    y = (
        2.0 * (x[:, 0] > 0.3)
        + (x[:, 1] > -0.5) * (x[:, 2] < 0.4)
        + 0.1 * rng.standard_normal(count)
    )
    return x, y


def test_components_are_ramps_between_quantiles_standardised() -> None:
    z = np.random.default_rng(1).standard_normal((2000, 1))
    bins = ensemble.fit_bins(z, np.ones(1))
    made, _ = ensemble.encode_inputs(bins, z, None)
    edges = np.quantile(z[:, 0], np.linspace(0.0, 1.0, 9))
    ramps = np.clip((z - edges[:-1]) / np.diff(edges), 0.0, 1.0)
    wanted = (ramps - ramps.mean(axis=0)) / ramps.std(axis=0)
    assert bins.shape == (8, ensemble.BIN_FIELDS)
    assert np.allclose(made[:, :8], wanted, atol=1e-12)
    assert np.array_equal(made[:, 8:], z)


def test_few_distinct_values_are_the_edges_and_two_are_not_encoded() -> None:
    z = np.tile([[0.0, 0.0], [1.0, 1.0], [2.0, 0.0], [5.0, 1.0]], (8, 1))
    bins = ensemble.fit_bins(z, np.ones(2))
    assert bins[:, ensemble.COLUMN].tolist() == [0.0, 0.0, 0.0]
    made, _ = ensemble.encode_inputs(bins, z[:4], None)
    assert len(np.unique(np.round(made[:, :3], 9), axis=0)) == 4


def test_a_missing_input_has_missing_components() -> None:
    z = np.random.default_rng(2).standard_normal((500, 2))
    bins = ensemble.fit_bins(z, np.array([1.0, 0.0]))
    made, _ = ensemble.encode_inputs(bins, np.array([[np.nan, 1.0], [0.0, np.nan]]), None)
    assert np.isnan(made[0, :9]).all()
    assert np.isfinite(made[1, :9]).all()
    assert np.isnan(made[1, 9])


def test_moments_of_a_noisy_input_agree_with_monte_carlo() -> None:
    rng = np.random.default_rng(3)
    bins = ensemble.fit_bins(rng.standard_normal((1000, 1)), np.ones(1))
    z, var = np.array([[0.2], [-1.5], [3.0]]), np.array([[0.25], [1.0], [0.04]])
    mean, spread = ensemble.encode_inputs(bins, z, var)
    assert spread is not None
    for row in range(3):
        drawn = z[row] + np.sqrt(var[row]) * rng.standard_normal((400_000, 1))
        ramps, _ = ensemble.encode_inputs(bins, drawn, None)
        assert np.allclose(mean[row, :8], ramps[:, :8].mean(axis=0), atol=0.02)
        assert np.allclose(spread[row, :8], ramps[:, :8].var(axis=0), atol=0.03)
    exact, none = ensemble.encode_inputs(bins, z, np.zeros_like(z))
    assert np.array_equal(exact, ensemble.encode_inputs(bins, z, None)[0])
    assert none is not None
    assert not none.any()


def test_bins_keep_their_components_in_another_scale() -> None:
    rng = np.random.default_rng(4)
    x = 3.0 + 2.0 * rng.standard_normal((300, 2))
    old, new = Scale(np.array([3.0, 2.5]), np.array([2.0, 1.0])), Scale(np.ones(2), np.full(2, 0.5))
    z = (x - old.center) / old.scale
    bins = ensemble.fit_bins(z, np.ones(2))
    moved = ensemble.rescale_bins(bins, old, new)
    before, _ = ensemble.encode_inputs(bins, z, None)
    after, _ = ensemble.encode_inputs(moved, (x - new.center) / new.scale, None)
    assert np.allclose(before[:, :16], after[:, :16], atol=1e-10)


def test_slopes_are_the_derivatives_of_components() -> None:
    z = np.random.default_rng(5).standard_normal((400, 2))
    bins = ensemble.fit_bins(z, np.ones(2))
    slopes, at = ensemble.find_active_slopes(bins, z[:50])
    step = 1e-7
    for column in range(2):
        moved = z[:50].copy()
        moved[:, column] += step
        low, high = (ensemble.encode_inputs(bins, rows, None)[0] for rows in (z[:50], moved))
        found = (high - low)[:, :16] / step
        inside = np.abs(found - slopes) < 1e-4
        assert inside[:, at == column].mean() > 0.99  # a step may cross an edge
        assert np.allclose(found[:, at != column], 0.0)


def test_many_columns_have_fewer_bins_each() -> None:
    assert ensemble.count_bins(10) == 8
    assert ensemble.count_bins(128) == 4
    z = np.random.default_rng(6).standard_normal((300, 300))
    assert len(ensemble.fit_bins(z, np.ones(300))) == 0


@pytest.mark.parametrize(
    "settings", [Settings(encoding="piecewise", hidden=(10,)), Settings()], ids=["bins", "default"]
)
def test_chunks_do_not_change_an_encoded_model(settings: Settings) -> None:
    x, y = make_rows(1300)
    whole, parts = (OnlineModel(settings, schema(4)) for _ in range(2))
    whole.learn(block(x, y))
    rows = block(x, y)
    for start, stop in ((0, 7), (7, 500), (500, 501), (501, 1100), (1100, 1300)):
        parts.learn(slice_rows(rows, start, stop))
        parts = copy_model(parts)
    assert not differences(whole, parts)


def test_thresholds_are_learned_better_with_bins() -> None:
    x, y = make_rows(1500)
    raw = trained(x[:1000], y[:1000], hidden=(25,), encoding="none")
    bins = trained(x[:1000], y[:1000], hidden=(25,), encoding="piecewise")
    assert judged(bins, x[1000:], y[1000:]).nll < judged(raw, x[1000:], y[1000:]).nll - 0.2


def test_missing_and_noisy_inputs_of_an_encoded_model_widen_its_error_bars() -> None:
    x, y = make_rows(800)
    x[::7, 1] = np.nan
    model = trained(x, y, hidden=(10,), encoding="piecewise")
    whole, hidden = x[1:40].copy(), x[1:40].copy()
    hidden[:, 0] = np.nan
    known, unknown = (model.predict(block(rows, np.zeros((39, 1)))) for rows in (whole, hidden))
    assert np.mean(unknown.sd) > 1.2 * np.mean(known.sd)
    noisy = block(whole, np.zeros((39, 1)))._replace(x_sd=np.full_like(whole, 0.5))
    assert np.mean(model.predict(noisy).sd) > 1.05 * np.mean(known.sd)


def test_damaged_bins_are_refused() -> None:
    bins = ensemble.fit_bins(np.random.default_rng(7).standard_normal((200, 2)), np.ones(2))
    assert ensemble.is_valid_bins(bins, 2)
    assert not ensemble.is_valid_bins(bins, 1)
    for field, value in ((ensemble.SLOPE, 0.0), (ensemble.HIGH, -1e9), (ensemble.COLUMN, 0.5)):
        wrong = bins.copy()
        wrong[0, field] = value
        assert not ensemble.is_valid_bins(wrong, 2)
