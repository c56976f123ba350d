"""Networks of a series that see only some inputs: the target's lags, or lags of other columns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kbnn
from kbnn.array_types import FloatArray
from kbnn.errors import ModelError
from kbnn.model import serialize
from kbnn.model.ensemble import NO_BINS, Member, describe_member, encode_inputs, select_bins
from kbnn.model.learner import encode_member_inputs
from kbnn.model.model import OnlineModel

ROWS = 400


def make_table(rows: int = ROWS, columns: int = 3, seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    start = np.datetime64("2024-01-01T00:00")
    times = start + np.arange(rows) * np.timedelta64(1, "h")
    y = np.sin(np.arange(rows) / 4.0) + 0.3 * rng.normal(size=rows)
    others = {f"c{k}": np.cumsum(rng.normal(size=rows)).tolist() for k in range(columns)}
    return {"time": times.astype(str).tolist(), **others, "y": y.tolist()}


def train_model(columns: int = 3, **options: Any) -> OnlineModel:
    model = kbnn.Model("y", **options)
    model.learn(make_table(columns=columns))
    return model._model  # type: ignore[return-value]


def list_subsets(model: OnlineModel) -> list[tuple[int, ...]]:
    return [spec.inputs for spec in model.learner_state.specs]


def test_one_network_sees_only_the_lags_of_the_target_and_the_clock() -> None:
    model = train_model()
    *whole, subset = list_subsets(model)
    assert whole == [(), ()]
    names = [model.schema.layout[at].column for at in subset]
    others = [place.column for place in model.schema.layout if place.column not in names]
    lags = [f"c{k} lag {rows}" for k in range(3) for rows in (1, 2)]
    assert others == ["c0", "c1", "c2", *lags]
    network = model.learner_state.members[-1]
    assert network.config.inputs == len(subset) == model.schema.width - 9
    assert describe_member(model.learner_state.specs[-1]) == f"50 on {len(subset)} inputs"


def test_a_series_beside_other_columns_has_no_trend_among_its_inputs() -> None:
    """It would outgrow its scale again and again, and changes follow a trend without."""
    trend = "time elapsed"
    for lags, there in ((None, False), ("1,2", False), ("2,3", True), ("off", True)):
        clock = train_model(lags=lags).schema.clock
        assert clock is not None
        assert (trend in clock.names) == there


def test_one_network_sees_the_lags_of_other_columns() -> None:
    model = train_model()
    first, second, third = model.learner_state.specs
    hidden = [model.schema.layout[at].column for at in first.excludes]
    assert hidden == [f"c{k} lag {rows}" for k in range(3) for rows in (1, 2)]
    assert second.excludes == third.excludes == ()
    widths = [member.config.inputs for member in model.learner_state.members]
    assert widths == [model.schema.width - 6, model.schema.width, model.schema.width - 9]
    described = [describe_member(spec, model.learner.optional_inputs) for spec in (first, second)]
    assert described == ["50", "50 without replay with lags of other columns"]


@pytest.mark.parametrize(
    "options",
    [
        {"lags": "1,2,3,24,25"},
        {"lags": "off"},
        {"layers": [4]},
        {"ensemble": 2},
        {"preset": "fast"},
        {"covariance": "neuron"},
    ],
)
def test_lags_of_other_columns_need_the_default_ensemble_and_lags(options: dict[str, Any]) -> None:
    model = train_model(**options)
    assert {lag.column for lag in model.schema.lags} <= {"y"}
    assert not any(spec.excludes for spec in model.learner_state.specs)


@pytest.mark.parametrize(("columns", "rows"), [(12, {1, 2}), (13, {1}), (24, {1}), (25, set())])
def test_many_columns_have_fewer_lags(columns: int, rows: set[int]) -> None:
    model = kbnn.Model("y")
    model.learn(make_table(40, columns))
    lags = [lag for lag in model._model.schema.lags if lag.optional]  # type: ignore[union-attr]
    assert {lag.rows for lag in lags} == rows
    assert len(lags) == columns * len(rows)


def make_driven_table(rows: int) -> dict[str, Any]:
    """A target that follows the driver of two rows before; gaps, and categories that come late."""
    rng = np.random.default_rng(8)
    table = make_table(rows, columns=2, seed=8)
    driver, y = rng.normal(size=rows), np.zeros(rows)
    for k in range(2, rows):
        y[k] = 0.5 * y[k - 1] + driver[k - 2] + 0.1 * rng.normal()
    shown = np.where(rng.random(rows) < 0.02, np.nan, driver).tolist()
    return {
        **table,
        "c0": shown,
        "kind": [f"k{k % (2 + k // 100)}" for k in range(rows)],
        "y": y.tolist(),
    }


def test_a_delayed_driver_is_learned_by_default() -> None:
    rmse = []
    every: list[dict[str, Any]] = [{}, {"lags": "1,2,3,24,25"}]
    for options in every:
        model = kbnn.Model("y", **options)
        model.learn(make_driven_table(ROWS))
        rmse.append(model.record()["rmse"])
    assert rmse[0] < 0.6 * rmse[1]


def test_lags_of_other_columns_do_not_depend_on_chunks_or_saving(tmp_path: Path) -> None:
    table = make_driven_table(ROWS)
    whole = kbnn.Model("y")
    whole.learn(table)
    parts = kbnn.Model("y")
    for start in range(0, ROWS, 57):
        if start == 228:
            parts.save(tmp_path / "m.npz")
            parts = kbnn.load(tmp_path / "m.npz")
        parts.learn({name: values[start : start + 57] for name, values in table.items()})
    one, other = (model.forecast(6) for model in (whole, parts))
    np.testing.assert_array_equal(one.mean, other.mean)
    np.testing.assert_array_equal(one.sd, other.sd)


def test_lags_that_do_not_pay_are_dropped() -> None:
    model = kbnn.Model("y")
    model.learn(make_table(4100, 6, seed=5))
    inner: OnlineModel = model._model  # type: ignore[assignment]
    assert inner.learner_state.specs == (Member((50,), inputs=inner.learner.own_inputs),)
    described = [describe_member(one.member, (1,)) for one in inner.learner_state.dropped]
    assert "50 without replay with lags of other columns" in described


def test_without_other_columns_or_with_layers_given_networks_see_all_inputs() -> None:
    assert list_subsets(train_model(columns=0)) == [(), ()]
    assert list_subsets(train_model(layers=[4])) == [()]
    assert list_subsets(train_model(lags="off", ensemble=2)) == [(), ()]


def test_other_columns_do_not_move_the_network_that_does_not_see_them() -> None:
    """Through changes of the scale, too, which occur at the same rows."""
    states = []
    for factor in (1.0, -1.0):
        table = make_table()
        table["c0"] = [factor * value for value in table["c0"]]
        model = kbnn.Model("y", robust="off")
        model.learn(table)
        states.append([one.state().mean for one in model._model.learner_state.members])  # type: ignore[union-attr]
    np.testing.assert_array_equal(states[0][-1], states[1][-1])
    assert not np.allclose(states[0][0], states[1][0])


def test_with_unrelated_columns_the_network_without_them_pays_most() -> None:
    model = kbnn.Model("y")
    model.learn(make_table(900, 10, seed=3))
    pool = model._model.learner_state.pool  # type: ignore[union-attr]
    assert int(np.argmax(pool.benefit)) == 2


def test_subsets_are_saved_and_checked() -> None:
    model = train_model()
    header, arrays = serialize.to_state(model)
    again = serialize.from_state(header, arrays)
    assert list_subsets(again) == list_subsets(model)
    rows = model.learner_state.buffer.rows(model.schema.width).x[:5]
    before, after = (one.learner.predict(one.learner_state, rows, None) for one in (model, again))
    np.testing.assert_array_equal(before.mean, after.mean)
    first, *_, last = (one["member"] for one in header["racers"][0]["networks"])
    stored = list(first["excludes"])
    for wrong in ([0], [*stored[:-1], stored[0]], [*stored[:-1], 90]):
        first["excludes"] = wrong
        with pytest.raises(ModelError):
            serialize.from_state(header, arrays)
    first["excludes"] = stored
    for wrong in ([0], [0, 0, *range(7)], [*range(90, 98)]):
        last["inputs"] = wrong
        with pytest.raises(ModelError):
            serialize.from_state(header, arrays)


def test_a_network_receives_its_bins_and_its_inputs() -> None:
    z: FloatArray = np.random.default_rng(2).normal(size=(6, 3))
    bins = np.array([[0.0, 1.0, 0.0, -1.0, 1.0], [2.0, 1.0, 0.0, -1.0, 1.0]])
    member = Member((4,), encoding="piecewise", inputs=(2, 1))
    own = select_bins(member, bins)
    assert own[:, 0].tolist() == [2.0]
    found, var = encode_member_inputs(member, own, z, np.ones_like(z))
    whole, _ = encode_inputs(bins, z, np.ones_like(z))
    np.testing.assert_array_equal(found, whole[:, [1, 4, 3]])
    assert var is not None
    assert var.shape == found.shape
    np.testing.assert_array_equal(select_bins(Member((4,)), bins), bins)
    without = Member((4,), encoding="piecewise", excludes=(0,))
    assert select_bins(without, bins)[:, 0].tolist() == [2.0]
    found, _ = encode_member_inputs(without, own, z, None)
    np.testing.assert_array_equal(found, encode_inputs(bins, z, None)[0][:, [1, 3, 4]])
    assert select_bins(member, NO_BINS) is NO_BINS
