"""Statistics of columns: plain where data are plain, robust where they are not, exact late."""

from __future__ import annotations

import numpy as np
import pytest

from kbnn.array_types import FloatArray
from kbnn.core import kernel
from kbnn.model import scaler
from kbnn.model.scaler import CENTER, COUNT, MEAN, RECENT_SQUARE, SCALE, SQUARES
from tests.bench.data import trained


def followed(raw: FloatArray, held: int = 32) -> tuple[FloatArray, FloatArray]:
    """Columns and standardised values after a warm-up and all further rows."""
    columns = scaler.fit_scaler(raw[:held])
    _, z, _ = scaler.standardize_and_update(
        columns, raw[held:, :0], raw[held:], np.zeros(raw.shape[1])
    )
    return columns, z


def test_statistics_of_plain_data_are_mean_and_variance() -> None:
    raw = np.random.default_rng(1).normal([3.0, -500.0], [2.0, 40.0], (900, 2))
    columns, z = followed(raw)
    assert np.allclose(columns[:, MEAN], raw.mean(axis=0), rtol=1e-12)
    assert np.allclose(columns[:, SQUARES] / columns[:, COUNT], raw.var(axis=0), rtol=1e-12)
    units = scaler.get_scale(columns)
    assert np.allclose(units.center, raw[:32].mean(axis=0))
    assert np.allclose(z, (raw[32:] - units.center) / units.scale)


def test_kernel_and_twin_agree_to_the_bit() -> None:
    raw = np.random.default_rng(2).standard_t(2, (300, 5))
    raw[:, 1] = np.where(np.arange(300) < 150, 0.1, raw[:, 1])  # varies late
    raw[::7, 2] = np.nan
    raw[5, 3] = np.inf
    raw[:, 4] = np.nan  # absent
    fixed = np.array([1.0, 0.0, 0.0, 0.0, 0.0])
    compiled, plain = scaler.fit_scaler(raw[:20]), scaler.fit_scaler(raw[:20])
    y, x = raw[20:, :2], raw[20:, 2:]
    labels, z, outgrown = scaler.standardize_and_update(compiled, y, x, fixed, True)
    others, out, restless = scaler.standardize_and_update(plain, y, x, fixed, False)
    assert np.array_equal(labels, others, equal_nan=True)
    assert outgrown == restless
    assert np.array_equal(z, out, equal_nan=True)
    assert np.array_equal(compiled, plain)


@pytest.mark.parametrize("inputs", [1, 4, 7])
@pytest.mark.parametrize("drift", [0.0, 0.02, 0.4])
def test_columns_that_all_have_a_scale_are_followed_to_the_bit_too(
    inputs: int, drift: float
) -> None:
    """With outliers, repeated values, and a drift that a scale is outgrown by."""
    raw = np.random.default_rng(3).standard_normal((600, 1 + inputs))
    raw[::50, -1] *= 40.0
    raw[1::9, 1] = raw[0, 1]
    raw[:, -1] += drift * np.arange(600)
    fixed = np.zeros(1 + inputs)
    compiled, plain = scaler.fit_scaler(raw[:40]), scaler.fit_scaler(raw[:40])
    done = 40
    for cut in (40, 41, 300, 600):
        while done < cut:
            y, x = raw[done:cut, :1], raw[done:cut, 1:]
            told = scaler.standardize_and_update(compiled, y, x, fixed, True)
            other = scaler.standardize_and_update(plain, y, x, fixed, False)
            assert np.array_equal(told.labels, other.labels)
            assert np.array_equal(told.inputs, other.inputs)
            assert told.outgrown == other.outgrown
            assert np.array_equal(compiled, plain)
            done += len(told.labels)
            if told.outgrown:
                compiled, plain = (scaler.refit_scale(one, fixed) for one in (compiled, plain))


@pytest.mark.parametrize("at", [3, 200])
def test_one_wild_value_does_not_flatten_a_scale(at: int) -> None:
    raw = np.random.default_rng(3).standard_normal((400, 1))
    raw[at] = 1e9
    columns, _ = followed(raw)
    sd = np.sqrt(columns[0, SQUARES] / columns[0, COUNT])
    assert sd < 1.3
    assert abs(columns[0, MEAN]) < 0.2
    assert columns[0, RECENT_SQUARE] < scaler.OUTGROWN


def test_a_column_is_exactly_zero_until_it_varies() -> None:
    raw = np.full((80, 1), 0.1)  # 31 copies of 0.1 do not average to 0.1
    raw[60:, 0] = 0.4
    columns, z = followed(raw)
    assert len(z) == 28  # the row with which it varies begins a block
    assert np.all(z == 0.0)
    assert columns[0, CENTER] == 0.1
    _, later, _ = scaler.standardize_and_update(columns, raw[60:, :0], raw[60:], np.zeros(1))
    assert columns[0, SCALE] == abs(0.4 - 0.1)
    assert len(later) == 20
    assert np.all(later == 1.0)


def test_a_column_that_varies_late_has_its_weights_at_the_prior_until_then() -> None:
    rng = np.random.default_rng(4)
    x = rng.standard_normal((300, 3))
    x[:, 1] = 7.3
    state = (
        trained(x, x[:, 0] + 0.1 * rng.standard_normal(300), hidden=(6,))
        .learner_state.members[0]
        .state()
    )
    weights = state.mean[:24].reshape(6, 4)
    prior = state.prior_mean[:24].reshape(6, 4)
    assert np.array_equal(weights[:, 2], prior[:, 2])
    assert not np.any(weights[:, 1] == prior[:, 1])


def test_an_absent_column_is_zero_and_a_missing_value_stays_missing() -> None:
    raw = np.column_stack([np.arange(40.0), np.full(40, np.nan)])
    raw[35, 0] = np.nan
    columns = scaler.fit_scaler(raw[:32])
    z = scaler.standardize_rows(columns, raw, np.zeros(2))
    assert np.all(z[:, 1] == 0.0)
    assert np.isnan(z[35, 0])
    assert np.isfinite(np.delete(z[:, 0], 35)).all()
    raw[36, 1] = np.inf  # no value, and not missing either: its row cannot be learned
    for compiled in {kernel.is_compiled(), False}:
        after = columns.copy()
        _, followed, _ = scaler.standardize_and_update(
            after, raw[32:, :0], raw[32:], np.zeros(2), compiled
        )
        assert np.array_equal(followed[:, 0], z[32:, 0], equal_nan=True)
        assert np.array_equal(followed[:, 1], np.where(np.isinf(raw[32:, 1]), np.inf, 0.0))
        assert np.array_equal(after[:, COUNT], [39.0, 0.0])


def test_indicators_pass_as_they_are() -> None:
    raw = (np.random.default_rng(5).random((90, 2)) < 0.2).astype(np.float64)
    columns = scaler.fit_scaler(raw[:32])
    fixed = np.array([1.0, 0.0])
    z = scaler.standardize_rows(columns, raw, fixed)
    assert np.array_equal(z[:, 0], raw[:, 0])
    assert np.allclose(z[:, 1], (raw[:, 1] - columns[1, CENTER]) / columns[1, SCALE])
    assert np.array_equal(
        scaler.standardize_and_update(columns, raw[:, :0], raw, np.ones(2))[1], raw
    )


def test_units_that_fit_stay_and_those_outgrown_change() -> None:
    rng = np.random.default_rng(6)
    raw = np.column_stack([rng.standard_normal(200), rng.standard_normal(200)])
    raw[100:, 1] *= 50.0
    columns = scaler.fit_scaler(raw[:64])
    _, z, _ = scaler.standardize_and_update(columns, raw[64:, :0], raw[64:], np.zeros(2))
    assert 36 < len(z) < 66  # stops soon after the scale has changed, at row 36 of these
    columns[0, [MEAN, SQUARES]] = columns[0, CENTER], columns[0, COUNT] * columns[0, SCALE] ** 2
    new = scaler.refit_scale(columns, np.zeros(2))
    assert np.array_equal(new[0, [CENTER, SCALE]], columns[0, [CENTER, SCALE]])
    assert new[1, SCALE] > 2.0 * columns[1, SCALE]
    assert not scaler.is_large_change(scaler.get_scale(columns[:1]), scaler.get_scale(new[:1]))
    assert scaler.is_large_change(scaler.get_scale(columns), scaler.get_scale(new))
