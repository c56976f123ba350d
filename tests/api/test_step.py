"""A step: bytes and rows in, bytes and forecasts out."""

from __future__ import annotations

import doctest
import pickle
import sys
from functools import partial
from typing import Any

import numpy as np
import pytest

import kbnn

LEARN = partial(kbnn.step, target="y", layers=10)


def made(rows: int) -> list[dict[str, Any]]:
    draw = np.random.default_rng(0)
    return [
        {"x": float(x), "kind": "ab"[k % 2], "y": float(2.0 * x + draw.normal())}
        for k, x in enumerate(draw.normal(size=rows))
    ]


def test_how_a_stream_is_cut_into_steps_changes_no_bit() -> None:
    rows = made(200)
    whole, said = LEARN(None, rows)
    state, parts = None, []
    for start, stop in ((0, 40), (40, 41), (41, 41 + 90), (131, 200)):
        state, some = LEARN(state, rows[start:stop])
        parts.append(some.mean)
    assert state == whole
    assert np.array_equal(np.concatenate(parts), said.mean, equal_nan=True)


def test_it_is_what_a_model_learns_and_said() -> None:
    rows = made(80)
    state, _ = LEARN(None, rows[:60])
    before = kbnn.Model.from_bytes(state).predict_one({"x": rows[60]["x"], "kind": "a"})
    again, said = LEARN(state, [rows[60]])
    assert said.mean[0] == pytest.approx(before.mean, rel=1e-12)
    assert kbnn.Model.from_bytes(again).rows == 61
    assert kbnn.Model.from_bytes(state).rows == 60


def test_it_is_pure_and_travels() -> None:
    rows = made(50)
    state, said = LEARN(None, rows)
    there = pickle.loads(pickle.dumps(LEARN))
    assert there(None, rows)[0] == state
    back = pickle.loads(pickle.dumps(said))
    for name in said:
        assert np.array_equal(back[name], said[name], equal_nan=True)


def test_a_table_is_rows_too() -> None:
    rows = made(40)
    table = {name: [row[name] for row in rows] for name in rows[0]}
    assert LEARN(None, table)[0] == LEARN(None, rows)[0]


def test_a_row_may_have_what_the_first_has_not() -> None:
    rows = made(40)
    for row in rows[3:]:
        row["late"] = row["x"] ** 2
    table = {name: [row.get(name) for row in rows] for name in ("x", "kind", "y", "late")}
    state, _ = LEARN(None, rows)
    assert state == LEARN(None, table)[0]
    assert kbnn.Model.from_bytes(state).features == ["x", "kind", "late"]


@pytest.mark.parametrize(
    ("state", "rows", "why"),
    [
        (b"nothing", [{"x": 1.0, "y": 1.0}], "the state: is not a model file"),
        (None, [{"x": 1.0}], "no column 'y'"),
        (None, 7, "data cannot be a int"),
    ],
)
def test_what_is_no_step_is_a_sentence(state: bytes | None, rows: Any, why: str) -> None:
    with pytest.raises(kbnn.KbnnError, match=why):
        LEARN(state, rows)


def test_a_row_that_cannot_be_learned_leaves_the_state() -> None:
    state, _ = LEARN(None, made(40))
    with pytest.raises(kbnn.DataError, match="cannot read 'much' as a number"):
        LEARN(state, [{"x": "much", "kind": "a", "y": 1.0}])


def test_an_option_of_a_run_is_none_of_a_step() -> None:
    with pytest.raises(kbnn.UsageError, match="a step has no option epochs"):
        LEARN(None, made(3), epochs=3)  # type: ignore[call-arg]  # that is the point


def test_the_example_runs() -> None:
    module = sys.modules["kbnn.api.functions"]
    result = doctest.testmod(module)
    assert result.failed == 0
    assert result.attempted >= 4
