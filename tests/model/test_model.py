"""A model is its rows: cutting, saving and looking change nothing; every row is accounted for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kbnn import init, learn
from kbnn.core.reference import ALARM, LEARNED, REJECTED, UNLABELLED
from kbnn.data.batch import slice_rows
from kbnn.data.schema import Column, Place, Schema
from kbnn.errors import ModelError, UsageError
from kbnn.model import scaler
from kbnn.model.model import IN_WARMUP, OnlineModel
from kbnn.model.serialize import copy_model
from kbnn.model.settings import MAX_BUFFER_ROWS, Settings
from kbnn.model.warmup import finish_warmup
from tests.bench.data import block, judged, schema, trained
from tests.modelling import differences, learn_in, mixed_rows, network, new_model, restored, same

ROWS = 2600
STRUCTURES = ("paper", "neuron", "group", "full")


@pytest.mark.parametrize(
    "settings",
    [
        *({"covariance": name} for name in STRUCTURES),
        {"hidden": (4, 3)},
        {"hidden": ()},
        pytest.param({"ensemble": 3}, marks=pytest.mark.slow),
        {"noise": 0.2},
        {"noise": "constant"},
    ],
    ids=str,
)
def test_cutting_a_stream_changes_no_bit(settings: dict[str, Any]) -> None:
    count = ROWS if settings == {"covariance": "group"} else 900  # beyond the rows kept, once
    rows = mixed_rows(count)
    whole = new_model(**settings)
    said = whole.learn(rows)
    assert whole.learner_state.changes >= 5
    assert len(whole.learner_state.columns) == 6  # the late category is in
    for sizes in ([7] * (count // 7) + [count % 7], [31, 1, 1, 67, 500, count - 600]):
        other = new_model(**settings)
        assert same(learn_in(other, rows, sizes), said)
        assert differences(whole, other) == []


def test_row_by_row_is_the_same_too() -> None:
    rows = mixed_rows(350)
    whole, other = new_model(), new_model()
    said = whole.learn(rows)
    assert same(learn_in(other, rows, [1] * 350), said)
    assert differences(whole, other) == []


@pytest.mark.parametrize("cut", [0, 10, 32, 40, 700, 2048, 2500])
def test_saving_changes_no_bit(cut: int) -> None:
    rows = mixed_rows(ROWS)
    straight, first = new_model(), new_model()
    straight.learn(rows)
    first.learn(slice_rows(rows, 0, cut))
    second = restored(first)
    assert differences(first, second) == []
    second.learn(slice_rows(rows, cut, ROWS))
    assert differences(straight, second) == []


def test_cutting_changes_no_bit_where_an_inexact_column_varies_late() -> None:
    rows = mixed_rows(200)
    assert rows.x_sd is not None
    rows.x_sd[:, 2] = 0.4  # the column is constant for a hundred rows
    whole, other = new_model(), new_model()
    whole.learn(rows)
    learn_in(other, rows, [1] * 200)
    assert differences(whole, other) == []


def test_further_passes_are_cut_and_saved_alike() -> None:
    rows = mixed_rows(400)
    straight, other = new_model(), new_model()
    for number in range(3):
        straight.learn(rows, again=number > 0)
        learn_in(other, rows, [150, 1, 249], again=number > 0)
        other = restored(other)
    assert differences(straight, other) == []


def test_blocks_may_be_narrow_before_a_category_comes() -> None:
    rows = mixed_rows(500)
    whole, other = new_model(), new_model()
    whole.learn(rows)
    late = int(np.flatnonzero(rows.x[:, 4])[0])
    early = slice_rows(rows, 0, late)
    assert rows.x_sd is not None
    other.learn(early._replace(x=early.x[:, :4].copy(), x_sd=rows.x_sd[:late, :4].copy()))
    other.learn(slice_rows(rows, late, 500))
    sample = ("record/sample.x", "record/worst.x", "record/feature_counts")
    assert [name for name in differences(whole, other) if name not in sample] == []


def test_a_category_that_no_row_has_had_is_no_input_yet() -> None:
    columns = [
        Column("c", "category", "feature", categories=["a"]),
        Column("y", "number", "target"),
    ]
    model = OnlineModel(Settings(), Schema(columns, "regression", layout=[Place("c", "a")]))
    y = np.random.default_rng(0).standard_normal(50)
    x = np.zeros((50, 1))
    model.learn(block(x[:40], y[:40]))
    assert network(model).config.inputs == 0
    x[45] = 1.0
    model.learn(block(x[40:], y[40:]))
    assert network(model).config.inputs == 1


def test_every_row_is_accounted_for() -> None:
    rows = mixed_rows(300)
    rows.x[50, 0] = np.inf
    model = new_model()
    said = model.learn(rows)
    assert set(said.status[:31]) <= {IN_WARMUP, UNLABELLED}
    assert np.all(said.status[np.isnan(rows.y[:, 0])] == UNLABELLED)
    assert said.status[50] == REJECTED
    assert model.skipped == int(np.sum(np.isnan(rows.y)))
    assert model.rejected_rows == 1
    assert model.rows == 300 - model.skipped - 1
    assert np.sum((said.status & LEARNED) > 0) + np.sum(said.status == IN_WARMUP) == model.rows


def test_looking_changes_nothing_even_during_the_warm_up() -> None:
    rows = mixed_rows(400)
    for cut in (5, 20, 300):
        model, twin = new_model(), new_model()
        model.learn(slice_rows(rows, 0, cut))
        twin.learn(slice_rows(rows, 0, cut))
        first = model.predict(slice_rows(rows, 300, 400))
        assert same(first, model.predict(slice_rows(rows, 300, 400)))
        assert model.is_warming_up == (cut < 32)
        assert model.held_rows == (twin.rows if model.is_warming_up else 0)
        assert differences(model, twin) == []
        model.learn(slice_rows(rows, cut, 400))
        twin.learn(slice_rows(rows, cut, 400))
        assert differences(model, twin) == []


def test_a_look_during_the_warm_up_knows_all_rows_held_by_then() -> None:
    rows = mixed_rows(400)
    model, other = new_model(), new_model()
    for start, stop in ((0, 10), (10, 20)):
        model.learn(slice_rows(rows, start, stop))
        said = model.predict(slice_rows(rows, 300, 400))
    other.learn(slice_rows(rows, 0, 20))
    assert model.is_warming_up
    assert same(said, other.predict(slice_rows(rows, 300, 400)))


def test_rows_held_are_learned_on_a_private_copy() -> None:
    x = np.random.default_rng(1).standard_normal((60, 2))
    model = trained(x[:25], 3.0 * x[:25, 0], hidden=(8,))
    settled = copy_model(model)
    finish_warmup(settled)
    test = block(x[25:], x[25:, 0])
    assert same(model.predict(test), settled.predict(test))
    assert np.corrcoef(model.predict(test).mean[:, 0], x[25:, 0])[0, 1] > 0.8
    assert model.is_warming_up


def test_a_target_that_does_not_vary_is_waited_for() -> None:
    x = np.random.default_rng(2).standard_normal((700, 1))
    y = np.full(700, 5.0)
    y[600:] += x[600:, 0]
    model = OnlineModel(Settings(hidden=(4,)), schema(1))
    said = model.learn(block(x, y))
    assert np.all(said.status[:600] == IN_WARMUP)
    assert np.all(said.status[601:] & LEARNED)
    assert np.all(np.isnan(said.sd[0]))  # nothing is known of the very first row
    assert np.all(np.isfinite(said.sd[1:]))
    assert np.all(said.mean[1:600] == 5.0)


def test_a_mistaken_scale_is_as_if_the_right_one_had_been_known() -> None:
    rng = np.random.default_rng(3)
    x = rng.standard_normal((128, 2))
    x[:40, 0] *= 0.05
    y = x[:, 0] - x[:, 1] ** 2 + 0.1 * rng.standard_normal(128)
    model = trained(x, y, hidden=(9,), seed=4, rehearse=0)
    assert model.learner_state.changes >= 1
    center, scale = scaler.get_scale(model.learner_state.columns)
    config = network(model).config
    z = (np.column_stack([y, x]) - center) / scale
    known, _ = learn(init(config, 4), z[:, 1:], z[:, 0])
    assert np.allclose(network(model).mean, known.mean, rtol=0.0, atol=1e-12)
    assert np.allclose(network(model).cov, known.cov, rtol=0.0, atol=1e-12)


@pytest.mark.parametrize("rehearse", [0, "auto"])
def test_a_scale_that_grows_late_is_followed(rehearse: str | int) -> None:
    rng = np.random.default_rng(4)
    count = 5000
    u = rng.standard_normal((count, 2))
    factor = np.where(np.arange(count) < 3000, 1.0, 1000.0)
    x = u * factor[:, None]
    y = np.abs(x[:, 0]) + x[:, 1] + 0.1 * factor * rng.standard_normal(count)
    model = trained(x[:4800], y[:4800], hidden=(20,), rehearse=rehearse)
    assert (
        len(model.learner_state.buffer) == MAX_BUFFER_ROWS or rehearse
    )  # an alarm drops what was before it
    found = judged(model, x[4800:], y[4800:])
    assert found.rmse < 0.25 * np.std(y[4800:])
    assert found.coverage > (0.7 if rehearse else 0.8)  # the few rows after it are rehearsed


def test_alarms_are_logged_with_the_row_that_raised_them() -> None:
    rng = np.random.default_rng(5)
    x = rng.standard_normal((900, 2))
    y = np.where(np.arange(900) < 600, 1.0, -1.0) * (x[:, 0] + x[:, 1]) + 0.1 * rng.normal(size=900)
    y[3:30:5] = np.nan
    model = OnlineModel(Settings(hidden=(8,)), schema(2))
    said = model.learn(block(x, y))
    raised = [int(row) + 1 for row in np.flatnonzero(said.status & ALARM)]
    assert model.alarms == raised
    assert len(raised) == model.learner_state.get_count("alarms") >= 1
    assert 600 < raised[0] < 660


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"noise": "loud"},
            "noise must be auto, constant or a number between 0 and 1e\\+100, got 'loud'",
        ),
        ({"noise": -1.0}, "constant or a number between 0 and 1e\\+100, got -1.0"),
        ({"noise": float("nan")}, "a number between 0 and 1e\\+100, got nan"),
        ({"ensemble": 0}, "ensemble must be between 1 and 64"),
        ({"ensemble": 65}, "ensemble must be between 1 and 64"),
        ({"hidden": (0,)}, "sizes must be at least 1"),
        ({"covariance": "block"}, "unknown covariance"),
        ({"activation": "swish"}, "unknown activation"),
        ({"group_size": -2}, "sizes must be at least 1"),
        ({"hidden_noise": 0.1}, "--hidden-noise 0.1 needs --covariance paper"),
    ],
)
def test_impossible_settings_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Settings(**options)


def test_one_noise_cannot_be_that_of_several_targets() -> None:
    columns = [
        Column("x", "number", "feature"),
        Column("y", "number", "target"),
        Column("z", "number", "target"),
    ]
    two = Schema(columns, "regression", layout=[Place("x", None)])
    with pytest.raises(UsageError, match="is in the units of one target, but there are 2"):
        OnlineModel(Settings(noise=0.5), two)
    OnlineModel(Settings(noise=0.0), two)
    OnlineModel(Settings(noise="constant"), two)


def test_settings_survive_their_plain_form() -> None:
    settings = Settings(hidden=(3, 4), noise=0.5, ensemble=2)
    assert Settings.from_json(settings.to_json()) == settings
    with pytest.raises(ModelError, match="settings are damaged"):
        Settings.from_json({"hidden": [3], "robust": 1})
    with pytest.raises(ModelError, match="was written by a newer kbnn"):
        Settings.from_json({"hidden": [3], "colour": 1})
