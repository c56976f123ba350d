"""The rows a model keeps: which, in which order, with which numbers of the stream."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kbnn.core import kernel
from kbnn.core.reference import ALARM
from kbnn.data.batch import Rows, slice_rows
from kbnn.errors import ModelError
from kbnn.model.model import OnlineModel
from kbnn.model.replay import BufferedRows, ReplayBuffer
from kbnn.model.serialize import from_state, to_state
from kbnn.model.settings import Settings
from tests.bench.data import block, schema
from tests.modelling import differences, restored


def numbered(count: int, first: int = 1) -> Rows:
    """Row n holds n, its target is -n and its weight 1/n."""
    n = np.arange(first, first + count, dtype=np.float64)
    return Rows(n[:, None], -n[:, None], np.arange(first, first + count), None, 1.0 / n)


def holds(kept: BufferedRows, numbers: Any) -> bool:
    n = np.asarray(numbers, dtype=np.float64)
    return (
        np.array_equal(kept.number, n)
        and np.array_equal(kept.x[:, 0], n)
        and np.array_equal(kept.y[:, 0], -n)
        and np.array_equal(kept.weight, 1.0 / n)
    )


@pytest.mark.parametrize("sizes", [[12], [3, 4, 5], [1] * 12, [5, 7], [11, 1]])
@pytest.mark.parametrize("look", [False, True])
def test_the_last_rows_are_kept_in_order(sizes: list[int], look: bool) -> None:
    kept, at = ReplayBuffer(5, 1), 10
    for size in sizes:
        kept.add(numbered(size, at), 1, at)
        at += size
        if look:
            assert holds(kept.rows(), range(max(10, at - 5), at))
    assert len(kept) == 5
    assert holds(kept.rows(), range(17, 22))
    kept.clear()
    assert len(kept) == len(kept.rows().y) == 0


@pytest.mark.parametrize("more", [49, 50, 51])
def test_a_block_may_be_nearly_all_that_is_kept(more: int) -> None:
    kept = ReplayBuffer(50, 1)
    kept.add(numbered(100, 1), 1, 1)
    kept.add(numbered(more, 101), 1, 101)
    assert holds(kept.rows(), range(51 + more, 101 + more))


def test_kept_rows_are_copies_and_become_wider() -> None:
    kept, rows = ReplayBuffer(5, 1), numbered(2)
    kept.add(rows, 1, 1)
    rows.x[:] = 99.0
    wide = kept.rows(3)
    assert np.array_equal(wide.x, [[1.0, 0.0, 0.0], [2.0, 0.0, 0.0]])


@pytest.mark.parametrize("most", [3, 40, 200])
def test_what_was_handed_out_stays_and_two_ways_part(most: int) -> None:
    kept = ReplayBuffer(most, 1)
    handed: list[tuple[BufferedRows, range]] = []
    for at in range(1, 120):
        kept.add(numbered(1, at), 1, at)
        handed.append((kept.rows(), range(max(1, at + 1 - most), at + 1)))
    other = kept.copy()
    other.add(numbered(2, 500), 1, 500)
    kept.add(numbered(1, 120), 1, 120)
    assert all(holds(rows, numbers) for rows, numbers in handed)
    assert holds(kept.rows(), range(max(1, 121 - most), 121))
    assert other.rows().number[-2:].tolist() == [500.0, 501.0]
    kept.shrink_to_fit()
    assert holds(kept.rows(), range(max(1, 121 - most), 121))


def test_what_is_not_said_of_a_row_is_plain() -> None:
    """Weight 1, trusted, exact: also among rows of which more is said."""
    rows = numbered(4)
    said = rows._replace(x_sd=np.full((4, 1), 0.5), weight=np.full(4, 2.0))
    plain = rows._replace(weight=None)
    for first, second in ((plain, said), (said, plain)):
        kept = ReplayBuffer(20, 1)
        kept.add(first, 1, 1, None if first is plain else np.full(4, 0.25))
        kept.add(second, 1, 5, None if second is plain else np.full(4, 0.25))
        made = kept.rows()
        places = slice(0, 4) if first is said else slice(4, 8)
        for values, stated, usual in (
            (made.weight, 2.0, 1.0),
            (made.trust, 0.25, 1.0),
            (made.x_sd[:, 0], 0.5, 0.0),
        ):
            expected = np.full(8, usual)
            expected[places] = stated
            assert np.array_equal(values, expected)


def test_the_last_rows_may_be_trusted_anew() -> None:
    kept = ReplayBuffer(6, 1)
    kept.add(numbered(8), 1, 1, np.linspace(0.1, 0.8, 8))
    kept.set_trust(np.array([0.0, 1.0]))
    assert kept.rows().trust == pytest.approx([0.3, 0.4, 0.5, 0.6, 0.0, 1.0])
    kept.set_trust(np.full(9, 0.5))
    assert kept.rows().trust.tolist() == [0.5] * 6
    kept.clear()
    kept.set_trust(np.zeros(0))
    assert len(kept.rows().trust) == 0


def test_a_row_may_be_wider_or_narrower_than_those_before() -> None:
    kept = ReplayBuffer(9, 1)
    kept.fill_values = np.array([np.nan, np.nan])
    kept.add(numbered(1, 1), 1, 1)
    wide = Rows(np.array([[2.0, 7.0]]), -np.array([[2.0]]), np.array([2]), None, np.array([0.5]))
    kept.add(wide, 2, 2)
    kept.add(numbered(1, 3), 1, 3)
    assert np.array_equal(kept.rows().x, [[1.0, np.nan], [2.0, 7.0], [3.0, np.nan]], equal_nan=True)


def test_parts_of_any_layout_are_put_where_they_belong() -> None:
    """In one call where they lie as they are, else one by one."""
    plain = np.arange(6.0).reshape(3, 2)
    for part in (plain, np.asfortranarray(plain), plain[:0], plain.astype(np.int64)):
        arrays = [np.zeros((5, 2)), np.zeros(5, np.int64)]
        kernel.copy_rows(arrays, 1, (part, np.arange(len(part))))
        assert np.array_equal(arrays[0][1 : 1 + len(part)], part)
        assert np.array_equal(arrays[1][1 : 1 + len(part)], np.arange(len(part)))
        assert not arrays[0][0].any()
        assert not arrays[0][1 + len(part) :].any()
    with pytest.raises(ValueError, match="broadcast"):
        kernel.copy_rows([np.zeros((2, 2))], 1, (np.zeros((2, 2)),))


def model_of(rows: Rows, *cuts: int) -> OnlineModel:
    model = OnlineModel(Settings(hidden=(3,)), schema(1))
    for start, stop in zip((0, *cuts), (*cuts, rows.count), strict=True):
        model.learn(slice_rows(rows, start, stop))
    return model


def test_a_model_numbers_the_rows_of_its_stream() -> None:
    rows = numbered(120)
    rows.y[[0, 4, 5, 31]] = np.nan  # during the warm-up a row without a target is not kept
    labelled = np.delete(np.arange(1, 121), [0, 4, 5, 31])
    for cuts in ((), (1,), (33,), (20, 60)):
        model = model_of(rows, *cuts)
        assert holds(model.learner_state.buffer.rows(), labelled)
        assert model.rows_seen == 120
    assert holds(model_of(slice_rows(rows, 0, 20)).learner_state.buffer.rows(), labelled[:17])


def test_numbers_go_on_after_saving() -> None:
    rows = numbered(150)
    rows.y[[3, 70]] = np.nan
    rows.x[90] = np.inf
    first = model_of(slice_rows(rows, 0, 100))
    second = restored(first)
    assert second.rows_seen == first.rows_seen == 100
    second.learn(slice_rows(rows, 100, 150))
    assert np.array_equal(second.learner_state.buffer.rows().number[-50:], np.arange(101, 151))
    assert differences(second, model_of(rows)) == []


def test_a_later_pass_keeps_nothing() -> None:
    rows = numbered(80)
    model = model_of(rows)
    model.learn(rows, again=True)
    assert len(model.learner_state.buffer) == 0
    model.learn(numbered(10, 81))
    assert np.array_equal(model.learner_state.buffer.rows().number, np.arange(161, 171))


def test_only_the_last_rows_held_tell_whether_every_target_has_varied() -> None:
    """At most 512 are held: a target that varied before them has not varied."""
    y = np.column_stack([np.full(700, 5.0), np.full(700, 7.0)])
    y[0, 0], y[512:, 1] = 4.0, 8.0
    x = np.arange(700.0)[:, None]
    model = OnlineModel(Settings(hidden=(3,)), schema(1, 2))
    model.learn(block(x, y))
    assert model.is_warming_up
    assert model.held_rows == 512
    assert np.array_equal(model.learner_state.buffer.rows().number, np.arange(189, 701))
    model.learn(block(x[:1], np.array([[6.0, 8.0]])))
    assert len(model.learner_state.members) == 1
    assert np.array_equal(model.learner_state.buffer.rows().number, np.arange(190, 702))


def test_more_rows_than_are_ever_kept_are_damage() -> None:
    header, arrays = to_state(model_of(numbered(20)))
    for name in BufferedRows._fields:
        name = f"racer0/kept/{name}"
        arrays[name] = np.repeat(arrays[name], 26, axis=0)
    with pytest.raises(ModelError, match="invalid replay buffer"):
        from_state(header, arrays)


def test_the_last_hundred_alarms_are_remembered() -> None:
    rng = np.random.default_rng(0)
    count = 12_000
    x = rng.standard_normal((count, 1))
    sign = np.where(np.arange(count) // 60 % 2, 1.0, -1.0)
    y = sign * x[:, 0] + 0.05 * rng.standard_normal(count)
    model = OnlineModel(Settings(hidden=(), covariance="neuron", rehearse=0), schema(1))
    said = model.learn(block(x, y))
    raised = np.flatnonzero(said.status & ALARM) + 1
    assert len(raised) > 110
    assert model.learner_state.get_count("alarms") == len(raised)
    assert model.alarms == raised[-100:].tolist()
