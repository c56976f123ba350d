"""Networks of a series that see only the target's lags and the clock."""

from __future__ import annotations

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
    assert others == ["c0", "c1", "c2"]
    network = model.learner_state.members[-1]
    assert network.config.inputs == len(subset) == model.schema.width - 3
    assert describe_member(model.learner_state.specs[-1]) == f"50 on {len(subset)} inputs"


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
    for wrong in ([0], [0, 0, *range(7)], [*range(90, 98)]):
        header["racers"][0]["networks"][-1]["member"]["inputs"] = wrong
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
    assert select_bins(member, NO_BINS) is NO_BINS
