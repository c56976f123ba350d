"""Rows that wait to be counted are counted as they came, whatever came between."""

from __future__ import annotations

import numpy as np

from kbnn.data.batch import Rows
from kbnn.model.record import MAX_UNSCORED_ROWS, UnscoredRows
from kbnn.targets.base import make_empty_forecast
from kbnn.targets.prediction import Forecast


def block(start: int, rows: int, width: int = 2, weight: float | None = None) -> Rows:
    number = np.arange(start, start + rows)
    x = np.tile(number[:, None] + 0.5, width)
    weights = None if weight is None else np.full(rows, weight)
    y = 2.0 * number[:, None].astype(np.float64)
    return Rows(x, y, number, weight=weights)


def said(rows: Rows) -> Forecast:
    return make_empty_forecast(len(rows.y), 1)._replace(mean=rows.y + 0.25)


def test_what_is_taken_is_what_came_row_by_row() -> None:
    waiting, total = UnscoredRows(), 0
    for size in (1, 1, 20, 3, 40):  # beyond the first room, and beyond the next
        rows = block(total, size)
        assert waiting.add(rows, said(rows))
        total += size
    rows, forecast = waiting.get_rows()
    whole = block(0, total)
    assert np.array_equal(rows.x, whole.x)
    assert np.array_equal(rows.y, whole.y)
    assert np.array_equal(rows.number, whole.number)
    assert rows.weight is None
    assert np.array_equal(forecast.mean, whole.y + 0.25)
    assert waiting.make_empty().rows == 0
    assert waiting.rows == total


def test_weights_that_some_rows_have_are_1_for_the_others_and_do_not_stay() -> None:
    waiting = UnscoredRows()
    for rows in (block(0, 2), block(2, 1, weight=3.0), block(3, 1)):
        waiting.add(rows, said(rows))
    weight = waiting.get_rows()[0].weight
    assert weight is not None
    assert weight.tolist() == [1.0, 1.0, 3.0, 1.0]
    waiting = waiting.make_empty()
    waiting.add(block(4, 2), said(block(4, 2)))
    assert waiting.get_rows()[0].weight is None


def test_rows_of_another_shape_and_too_many_rows_find_no_room() -> None:
    waiting = UnscoredRows()
    assert waiting.add(block(0, MAX_UNSCORED_ROWS - 1), said(block(0, MAX_UNSCORED_ROWS - 1)))
    assert not waiting.add(block(0, 1, width=3), said(block(0, 1)))
    assert not waiting.add(block(0, 2), said(block(0, 2)))
    assert waiting.rows == MAX_UNSCORED_ROWS - 1
    waiting = waiting.make_empty()
    assert waiting.add(block(7, 1, width=3), said(block(7, 1)))
    assert waiting.get_rows()[0].x.shape == (1, 3)
    assert not waiting.add(block(0, MAX_UNSCORED_ROWS + 1), said(block(0, MAX_UNSCORED_ROWS + 1)))


def test_taking_no_more_room_loses_nothing() -> None:
    waiting = UnscoredRows()
    waiting.add(block(0, 3), said(block(0, 3)))
    waiting.shrink_to_fit()
    waiting.add(block(3, 2), said(block(3, 2)))
    assert np.array_equal(waiting.get_rows()[0].number, np.arange(5))
