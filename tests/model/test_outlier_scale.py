"""Outliers do not set the scale of a column; a column that really changes still does."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from kbnn.array_types import FloatArray
from kbnn.data.batch import slice_rows
from kbnn.model import scaler
from kbnn.model.model import OnlineModel
from kbnn.model.scaler import CENTER, COUNT, MEAN, RECENT, RECENT_SQUARE, SCALE, SQUARES
from kbnn.model.settings import Settings
from tests.bench.data import block, schema, trained
from tests.bench.outliers import add_outliers
from tests.modelling import differences, learn_in, restored, same


def rows(count: int, seed: int = 0) -> tuple[FloatArray, FloatArray, np.random.Generator]:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((count, 3))
    y = np.sin(x[:, :1]) + 0.5 * x[:, 1:2] * x[:, 2:] + 0.2 * rng.standard_normal((count, 1))
    return x, y / 6.0, rng  # its range is about 1


def scales(model: OnlineModel) -> FloatArray:
    assert model.learner_state is not None
    return model.learner_state.columns[:, SCALE]


@pytest.mark.parametrize("way", ["moved", "replaced"])
def test_the_scale_of_a_target_is_that_of_its_clean_values(way: str) -> None:
    x, y, rng = rows(1200)
    wild = add_outliers(y, way, rng)
    assert np.std(wild) > 8.0 * np.std(y)
    model = OnlineModel(Settings(hidden=(8,)), schema(3))
    said = model.learn(block(x, wild))
    assert 0.6 * np.std(y) < scales(model)[0] < 1.6 * np.std(y)
    clean = OnlineModel(Settings(hidden=(8,)), schema(3)).learn(block(x, y))
    error, least = (np.nanmedian(np.abs(one.mean[200:] - y[200:])) for one in (said, clean))
    assert error < 1.35 * least


def test_the_scale_of_an_input_is_that_of_its_clean_values() -> None:
    x, y, rng = rows(1200)
    x[:, :2] = add_outliers(x[:, :2], "moved", rng)
    model = trained(x, y[:, 0], hidden=(8,))
    assert np.all(np.abs(scales(model)[1:] - 1.0) < 0.3)


@pytest.mark.parametrize("at", [300, 2020])
def test_a_scale_that_grows_for_good_is_followed(at: int) -> None:
    x, y, _ = rows(at + 600)
    y[at:] *= 50.0
    x[at:, 1] *= 50.0
    model = trained(x, y[:, 0], hidden=(8,))
    assert scales(model)[0] > 10.0 * np.std(y[:at])
    assert scales(model)[2] > 10.0


def test_a_column_that_moves_for_good_is_followed() -> None:
    rng = np.random.default_rng(1)
    walk = np.cumsum(rng.standard_normal(1500))
    model = trained(walk[:-1, None], walk[1:], hidden=(8,))
    assert model.learner_state is not None
    assert abs(model.learner_state.columns[0, CENTER] - walk[-1]) < 4.0 * scales(model)[0]


def looked_at(values: FloatArray, expected: FloatArray | None = None) -> scaler.LastRows:
    known = np.zeros(len(values)) if expected is None else expected
    return scaler.LastRows(values, 1, known > 0.5)


@pytest.mark.parametrize(
    "kind", ["normal", "laplace", "binary", "zero-inflated", "rare", "constant", "missing"]
)
def test_columns_without_outliers_keep_their_statistics_to_the_bit(kind: str) -> None:
    rng = np.random.default_rng(2)
    values = {
        "normal": rng.standard_normal(600),
        "laplace": rng.laplace(size=600),
        "binary": (rng.random(600) < 0.5) * 1.0,
        "zero-inflated": np.where(rng.random(600) < 0.6, 0.0, 50.0 + rng.standard_normal(600)),
        "rare": (rng.random(600) < 0.02) * 1.0,
        "constant": np.full(600, 3.0),
        "missing": np.full(600, np.nan),
    }[kind][:, None]
    columns = scaler.fit_scaler(values)
    after = columns.copy()
    scaler.leave_out_outliers(after, np.zeros(1), looked_at(values))
    assert np.array_equal(after, columns)


def test_what_the_network_expects_is_no_outlier_of_a_target() -> None:
    rng = np.random.default_rng(3)
    values = rng.standard_normal((400, 1))
    event = rng.random(400) < 0.05
    values[event] += 40.0
    columns = scaler.fit_scaler(values)
    columns[0, MEAN], columns[0, SQUARES] = values.mean(), values.var() * columns[0, COUNT]
    expected, surprising = columns.copy(), columns.copy()
    scaler.leave_out_outliers(expected, np.zeros(1), looked_at(values, np.ones(400)))
    scaler.leave_out_outliers(surprising, np.zeros(1), looked_at(values))
    assert np.array_equal(expected, columns)
    sd = np.sqrt(surprising[0, SQUARES] / surprising[0, COUNT])
    assert sd == pytest.approx(values[~event].std())
    assert surprising[0, MEAN] == pytest.approx(values[~event].mean())


def test_a_scale_that_only_outliers_have_outgrown_stays_as_it_is() -> None:
    rng = np.random.default_rng(4)
    values = rng.standard_normal((64, 1))
    columns = scaler.fit_scaler(values)
    values[::8] = 500.0
    columns[0, [RECENT, RECENT_SQUARE]] = 1.0, scaler.OUTGROWN + 0.5
    new = scaler.refit_scale(columns, np.zeros(1), False, looked_at(values))
    assert np.array_equal(new[0, [CENTER, SCALE]], columns[0, [CENTER, SCALE]])
    assert new[0, RECENT_SQUARE] == 1.0
    wider = 40.0 * rng.standard_normal((64, 1))
    assert scaler.refit_scale(columns, np.zeros(1), False, looked_at(wider))[0, SCALE] > 2.0


def test_cutting_and_saving_change_no_bit_where_outliers_are_left_out() -> None:
    x, y, rng = rows(700)
    x[:, :1] = add_outliers(x[:, :1], "moved", rng)
    all_rows = block(x, add_outliers(y, "moved", rng))
    whole, other, first = (OnlineModel(Settings(hidden=(5,)), schema(3)) for _ in range(3))
    said = whole.learn(all_rows)
    assert same(learn_in(other, all_rows, [1] * 130 + [300, 270]), said)
    assert differences(whole, other) == []
    first.learn(slice_rows(all_rows, 0, 256))
    second = restored(first)
    second.learn(slice_rows(all_rows, 256, 700))
    assert differences(whole, second) == []


def test_if_only_outliers_outgrew_a_scale_all_scales_wait_for_the_scheduled_refit() -> None:
    rng = np.random.default_rng(4)
    values = rng.standard_normal((64, 2))
    columns = scaler.fit_scaler(values)
    values[::8, 0] = 500.0
    columns[0, [RECENT, RECENT_SQUARE]] = 1.0, scaler.OUTGROWN + 0.5
    columns[1, SQUARES] *= 1.5  # a scale that a scheduled refit changes
    refit = partial(scaler.refit_scale, columns, np.zeros(2), False)
    waiting, moved = (refit(looked_at(values), scheduled=each) for each in (False, True))
    assert np.array_equal(waiting[:, [CENTER, SCALE]], columns[:, [CENTER, SCALE]])
    assert waiting[0, RECENT_SQUARE] == 1.0
    assert moved[1, SCALE] > columns[1, SCALE]
    wider = refit(looked_at(40.0 * rng.standard_normal((64, 2))), scheduled=False)
    assert np.all(wider[:, SCALE] > columns[:, SCALE])
