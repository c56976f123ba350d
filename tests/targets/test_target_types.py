"""What a task decides and says of what a network said: by hand, for numbers and for classes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from kbnn.array_types import FloatArray
from kbnn.core.kernel import Prediction
from kbnn.metrics.sections import build_target_section, describe_dependence
from kbnn.output.fields import OutputOptions, list_output_fields
from kbnn.targets.base import TargetScale, choose_covariance
from kbnn.targets.prediction import Forecast, blank_rows
from kbnn.targets.registry import TargetSample, choose_target_type
from tests.judging import label_card, label_task, labels, number_card, number_task, numbers

NAN = np.nan


def said(mean: Any, function_var: Any, noise_var: Any, inlier: Any) -> Prediction:
    """What a network says of numbers."""
    rows = len(inlier)
    means, function, noise = (np.array(part, float) for part in (mean, function_var, noise_var))
    return Prediction(means, function, noise, np.zeros((rows, 0)), np.array(inlier), np.ones(rows))


def said_of_classes(probability: FloatArray) -> Prediction:
    rows, none = len(probability), np.zeros((len(probability), 0))
    return Prediction(none, none, none, probability, np.ones(rows), np.ones(rows))


def test_numbers_come_back_in_their_units() -> None:
    made = said([[0.5, -1.0]], [[0.09, 0.16]], [[0.16, 0.09]], [0.9])
    scaled = TargetScale(np.array([100.0, 0.0]), np.array([10.0, 2.0]))
    plain = number_task("a", "b").init_calibration(False)
    found = number_task("a", "b").build_forecast(made, scaled, True, plain)
    assert found.mean == pytest.approx(np.array([[105.0, -2.0]]))
    assert found.sd == pytest.approx(np.array([[5.0, 1.0]]))
    assert found.function_sd == pytest.approx(np.array([[3.0, 0.8]]))
    assert found.noise_sd == pytest.approx(np.array([[4.0, 0.6]]))
    assert found.outlier == pytest.approx([0.1])
    assert np.isnan(number_task("a", "b").build_forecast(made, scaled, False, plain).outlier[0])


def test_the_likelihood_of_numbers_adds_targets_and_stops_at_ten_deviations() -> None:
    made = said([[0.0, 1.0]] * 3, [[0.5, 3.0]] * 3, [[0.5, 1.0]] * 3, [1.0] * 3)
    y = np.array([[2.0, -1.0], [50.0, NAN], [NAN, NAN]])
    one, two = -0.5 * math.log(2 * math.pi), -0.5 * math.log(2 * math.pi * 4.0)
    found = number_task("a", "b").log_likelihood(made, y)
    assert found == pytest.approx([one - 2.0 + two - 0.5, one - 50.0, 0.0])
    near = number_task("a", "b").log_likelihood(made, np.array([[9.0, NAN]] * 3))
    assert near == pytest.approx([one - 40.5] * 3)


def test_the_likelihood_of_a_class_is_its_probability() -> None:
    p = np.array([[0.25, 0.75], [0.0, 1.0], [0.5, 0.5], [0.5, 0.5]])
    y = np.array([[1.0], [0.0], [NAN], [2.0]])
    found = label_task().log_likelihood(said_of_classes(p), y)
    assert found == pytest.approx([math.log(0.75), math.log(1e-12), 0.0, 0.0])


@pytest.mark.parametrize(
    ("y", "after"),
    [
        ([[1.0, 2.0], [1.5, 2.0]], 3),
        ([[1.0, 2.0], [1.5, NAN]], 3),
        ([[1.0, 2.0], [1.5, NAN], [1.0, 3.0], [1.0, 3.0]], 3),
        ([[1.0, 2.0], [1.5, 3.0], [1.0, 3.0]], 2),
        ([[NAN, NAN]], 2),
        ([], 1),
    ],
)
def test_numbers_have_varied_when_every_target_has(y: Any, after: int) -> None:
    targets = np.array(y).reshape(-1, 2)
    assert number_task("a", "b").make_cold_start().rows_until_varied(targets) == after
    assert label_task().make_cold_start().rows_until_varied(np.zeros((len(y), 1))) == 0
    for told in range(len(y) + 1):
        early = number_task("a", "b").make_cold_start()
        early.predict_then_update(targets[:told])
        assert early.rows_until_varied(targets[told:]) == max(0, after - told)


def test_few_classes_are_grouped() -> None:
    assert [choose_covariance(label_task(), k) for k in (2, 4, 5)] == ["group", "group", "neuron"]
    assert choose_covariance(number_task(), 9) == "group"


def test_a_network_has_an_output_for_each_class_that_came() -> None:
    y = np.array([[0.0], [NAN], [2.0], [1.0]])
    some = label_task(["a", "b", "c", "d"])
    assert [some.count_outputs(y[:n]) for n in (0, 1, 2, 3)] == [2, 2, 2, 3]
    assert some.count_outputs(y, 7) == 7
    assert label_task(["a", "b", "c", "d"], closed=True).count_outputs(y[:1]) == 4
    assert [some.first_row_without_output(y, outputs) for outputs in (2, 3)] == [2, 4]
    assert [
        number_task().first_row_without_output(y, 1),
        number_task("a", "b").count_outputs(y),
    ] == [4, 2]


def test_nothing_is_said_of_a_row_but_what_became_of_it() -> None:
    forecast = numbers(np.array([1.0, 2.0]), np.array([3.0, 4.0]))
    forecast = forecast._replace(status=np.array([1, 8]))
    found = blank_rows(forecast, np.array([False, True]))
    assert found.mean[:, 0] == pytest.approx([1.0, NAN], nan_ok=True)
    assert found.sd[:, 0] == pytest.approx([3.0, NAN], nan_ok=True)
    assert found.status.tolist() == [1, 8]
    assert found.status.dtype == forecast.status.dtype


def columns(fields: Any, forecast: Forecast) -> dict[str, Any]:
    return {field.name: list(field.values(forecast)) for field in fields}


def test_the_columns_of_numbers() -> None:
    forecast = numbers(np.array([[1.0, 10.0]]), np.array([[2.0, 3.0]]))
    forecast = forecast._replace(
        function_sd=np.array([[0.5, 0.6]]),
        noise_sd=np.array([[0.7, 0.8]]),
        outlier=np.array([0.2]),
    )
    found = columns(
        list_output_fields(number_task("a", "b"), OutputOptions(decompose=True, outlier=True)),
        forecast,
    )
    z = 1.6448536269514722
    assert found == {
        "mean_a": [1.0],
        "sd_a": [2.0],
        "lower_a": [pytest.approx(1.0 - 2.0 * z)],
        "upper_a": [pytest.approx(1.0 + 2.0 * z)],
        "function_sd_a": [0.5],
        "noise_sd_a": [0.7],
        "mean_b": [10.0],
        "sd_b": [3.0],
        "lower_b": [pytest.approx(10.0 - 3.0 * z)],
        "upper_b": [pytest.approx(10.0 + 3.0 * z)],
        "function_sd_b": [0.6],
        "noise_sd_b": [0.8],
        "outlier": [0.2],
    }
    assert list(columns(list_output_fields(number_task("a"), OutputOptions(0.5)), forecast)) == [
        "mean",
        "sd",
        "lower",
        "upper",
    ]


def test_the_columns_of_classes() -> None:
    p = labels(np.array([[0.3, 0.7], [0.6, 0.4], [NAN, NAN]]))
    task = label_task(["no", "yes"])
    named = ["yes", "no", None]
    found = columns(list_output_fields(task, OutputOptions()), p)
    assert found["label"] == named
    assert found["p_yes"][:2] == [0.7, 0.4]
    growing = columns(list_output_fields(task, OutputOptions(open=True)), p)
    assert list(growing) == ["label", "probability"]
    assert growing["probability"][:2] == [0.7, 0.6]
    assert list(
        columns(
            list_output_fields(label_task(["no", "yes"], closed=True), OutputOptions(open=True)), p
        )
    ) == [
        "label",
        "p_no",
        "p_yes",
    ]


@pytest.mark.parametrize(
    ("seen", "task"),
    [({0.0, 1.0}, "classification"), ({0.0}, "regression"), ({0.0, 1.0, 2.0}, "regression")],
)
def test_numbers_are_classes_where_they_are_0_and_1(seen: set[float], task: str) -> None:
    target = TargetSample("y", "number", {str(value) for value in seen}, seen)
    found = choose_target_type([target], "auto")
    assert found.task == task
    assert found.closed == (task == "classification")
    assert choose_target_type([target], "regression").task == "regression"
    stated = choose_target_type([target], "classification")
    assert (stated.task, stated.closed) == ("classification", seen == {0.0, 1.0})


@pytest.mark.parametrize(("classes", "drawn"), [(["a", "b"], "b"), (["a", "b", "c"], "c")])
def test_the_second_of_two_classes_is_drawn_or_the_one_that_came_most_often(
    classes: list[str], drawn: str
) -> None:
    task, shown = label_task(classes), classes.index(drawn)
    card = label_card(1, classes)
    y = np.array([len(classes) - 1.0] * 6 + [0.0, 0.0, 1.0])[:, None]
    p = np.tile([0.7, *[0.3 / (len(classes) - 1)] * (len(classes) - 1)], (9, 1))
    card.add(y, y, labels(p))  # the first is what was said each time
    found = describe_dependence(task, card.scores[0], card.summaries, 0)
    assert found.name == f"probability of {drawn}"
    assert found.values(labels(p)).value.tolist() == p[:, shown].tolist()
    assert found.truth(y[:, 0]).tolist() == (y[:, 0] == shown).astype(float).tolist()


def test_headlines_stand_beside_the_constant_or_say_what_they_mean() -> None:
    card = number_card(1, 1)
    y = np.array([0.0, 4.0] * 20)[:, None]
    card.add(y, y, numbers(y + 1.0, np.ones_like(y)))
    card.add(y[:2], np.full((2, 1), np.nan), numbers(y[:2], np.ones((2, 1))))
    section = build_target_section(number_task("y"), card.scores[0], card.summaries, 0, [], 1300)
    tiles = {tile.label: tile for tile in section.tiles}
    assert tiles["Rows"][1:] == ("40", "2 without a target, 1,300 unreadable")
    assert tiles["RMSE"][1:] == ("1.000", "2.000 for the best constant")
    assert tiles["MAE"][1:] == ("1.000", "the mean size of the error")
    card = number_card(1, 1)
    card.add(y, y, numbers(y + 1.0, np.ones_like(y)))
    section = build_target_section(number_task("y"), card.scores[0], card.summaries, 0, [])
    assert section.tiles[0].remark == "all scored"
