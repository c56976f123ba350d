"""What is said of rows before there is a network: worked out by hand from the rows before them."""

from __future__ import annotations

import numpy as np
import pytest

from kbnn.array_types import FloatArray
from kbnn.core.reference import UNLABELLED
from kbnn.model.model import IN_WARMUP, OnlineModel
from kbnn.model.settings import Settings
from kbnn.targets.base import TargetType
from kbnn.targets.prediction import Forecast
from tests.bench.data import block, schema
from tests.judging import label_task, number_task

NAN = np.nan


def told(task: TargetType, y: FloatArray, first: int = 0) -> Forecast:
    """What is said of the rows from the first on, those before having been told one by one."""
    early = task.make_cold_start()
    for row in y[:first]:
        early.predict_then_update(row[None])
    return early.predict_then_update(y[first:])


def test_a_number_gets_mean_and_widened_spread_of_the_rows_before() -> None:
    """sd^2 = var (1 + 2/n): the doubt about the mean, and as much again about the spread."""
    y = np.array([[2.0], [4.0], [9.0], [1.0]])
    said = told(number_task(), y)
    assert said.mean[:, 0] == pytest.approx([NAN, 2.0, 3.0, 5.0], nan_ok=True)
    wanted = [NAN, 2.0 * np.sqrt(3.0), np.sqrt(2.0), np.sqrt(26.0 / 3.0 * (5.0 / 3.0))]
    assert said.sd[:, 0] == pytest.approx(wanted, rel=1e-12, nan_ok=True)
    assert np.array_equal(said.noise_sd, said.sd, equal_nan=True)
    assert np.all(said.function_sd[1:] == 0.0)


def test_gaps_count_for_nothing_and_each_target_for_itself() -> None:
    y = np.array([[1.0, NAN], [3.0, 7.0], [NAN, 9.0], [0.0, 0.0]])
    said = told(number_task("a", "b"), y, 2)
    assert said.mean == pytest.approx(np.array([[2.0, 7.0], [2.0, 8.0]]))
    one, two = np.sqrt(3.0), np.sqrt(2.0)
    assert said.sd == pytest.approx(np.array([[two, 7.0 * one], [two, two]]))


def test_what_never_varied_has_a_spread_of_a_millionth() -> None:
    said = told(number_task(), np.array([[5.0], [5.0], [5.0]]), 2)
    assert said.sd[0, 0] == pytest.approx(6e-6)


def test_a_class_gets_its_count_and_one() -> None:
    y = np.array([[0.0], [2.0], [0.0], [NAN]])
    said = told(label_task(["a", "b", "c"]), y)
    wanted = [[1 / 2, 1 / 2, 0], [2 / 3, 1 / 3, 0], [2 / 5, 1 / 5, 2 / 5], [3 / 6, 1 / 6, 2 / 6]]
    assert said.probability == pytest.approx(np.array(wanted))


def test_classes_that_are_all_known_share_from_the_start() -> None:
    said = told(label_task(["a", "b", "c"], closed=True), np.array([[1.0], [0.0]]))
    assert said.probability == pytest.approx(np.array([[1 / 3] * 3, [1 / 4, 1 / 2, 1 / 4]]))


def test_a_row_without_a_target_is_told_what_the_next_with_one_is_told() -> None:
    y = np.array([2.0, NAN, 4.0, NAN, NAN, 9.0])
    model = OnlineModel(Settings(hidden=(3,)), schema(1))
    said = model.learn(block(np.zeros((6, 1)), y))
    assert said.mean[:, 0] == pytest.approx([NAN, 2.0, 2.0, 3.0, 3.0, 3.0], nan_ok=True)
    waits, skipped = IN_WARMUP, UNLABELLED
    assert said.status.tolist() == [waits, skipped, waits, skipped, skipped, waits]
    assert (model.held_rows, model.skipped, model.rows_seen) == (3, 3, 6)
    assert model.card.metric_values()["rows"] == 0  # none of this is scored
