"""Figures that only an evaluation computes, against scikit-learn."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn import metrics
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine, make_moons

import kbnn
from kbnn.errors import UsageError
from kbnn.metrics.decision_figures import DecisionOptions
from tests.commands import SAMPLES, trained
from tests.commands import kbnn as command

SETS = {
    "moons": lambda: make_moons(600, noise=0.4, random_state=0),
    "breast cancer": lambda: load_breast_cancer(return_X_y=True),
    "iris": lambda: load_iris(return_X_y=True),
    "wine": lambda: load_wine(return_X_y=True),
    "digits": lambda: load_digits(return_X_y=True),
}


def make_table(x: np.ndarray, y: np.ndarray, names: np.ndarray) -> dict[str, list[Any]]:
    columns = {f"x{k}": x[:, k].tolist() for k in range(min(x.shape[1], 8))}
    return {**columns, "y": names[y].tolist()}


@pytest.mark.parametrize("name", SETS)
def test_class_figures_are_those_of_scikit_learn(name: str) -> None:
    x, y = SETS[name]()
    order = np.random.default_rng(0).permutation(len(y))
    x, y = x[order], y[order]
    names = np.array([f"class {k}" for k in range(y.max() + 1)])
    model = kbnn.Model("y", layers=3, replay="off", task="classification")
    model.learn(make_table(x[:300], y[:300], names))
    test = make_table(x[100:], y[100:], names)
    figures = model.evaluate(test)
    forecasts = model.predict({key: test[key] for key in test if key != "y"})
    places = [forecasts.classes.index(label) for label in names]
    p, truth = forecasts.probability[:, places], y[100:]
    label = np.argmax(forecasts.probability, axis=1)
    predicted = np.array([list(names).index(forecasts.classes[k]) for k in label])
    if len(names) == 2:
        auc = metrics.roc_auc_score(truth, p[:, 1])
        average = metrics.average_precision_score(truth, p[:, 1])
    else:
        auc = metrics.roc_auc_score(truth, p, multi_class="ovr", average="macro")
        average = metrics.average_precision_score(np.eye(len(names))[truth], p, average="macro")
    f1 = metrics.f1_score(truth, predicted, average=None)
    assert figures["auc"] == pytest.approx(auc, abs=1e-9)
    assert figures["average_precision"] == pytest.approx(average, abs=1e-9)
    assert figures["f1_macro"] == pytest.approx(np.mean(f1), abs=1e-9)
    assert figures["mcc"] == pytest.approx(metrics.matthews_corrcoef(truth, predicted), abs=1e-9)
    assert [figures["f1"][one] for one in names] == pytest.approx(f1.tolist(), abs=1e-9)
    crossed = metrics.confusion_matrix(truth, predicted)
    assert np.array(figures["confusion"]["counts"])[np.ix_(places, places)].tolist() == (
        crossed.tolist()
    )
    assert figures["approximation"] == {}


@pytest.fixture(scope="module")
def moons(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("models")
    options = ("--layers", "3", "--limit", "60", "--replay", "off")
    return trained(folder / "moons.npz", "moons.csv", *options)


def read_moons(model: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the labels of the sample and the probabilities of the second class."""
    source = SAMPLES / "moons.csv"
    with open(source, encoding="utf-8") as file:
        truth = np.array([row["label"] == "1" for row in csv.DictReader(file)])
    return truth, np.asarray(kbnn.load(model).predict(str(source)).probability[:, 1])


def test_a_threshold_decides_the_label(moons: str) -> None:
    truth, p = read_moons(moons)
    words = ("evaluate", moons, SAMPLES / "moons.csv", "--json", "--threshold", "20%")
    decided = json.loads(command(*words, "--cost-fn", "5").out)["decision"]
    predicted = p >= 0.2
    assert decided["class"] == "1"
    assert decided["confusion"] == metrics.confusion_matrix(truth, predicted).tolist()
    assert decided["precision"] == pytest.approx(metrics.precision_score(truth, predicted))
    assert decided["recall"] == pytest.approx(metrics.recall_score(truth, predicted))
    cost = np.mean(5.0 * (truth & ~predicted) + 1.0 * (~truth & predicted))
    assert decided["cost"] == pytest.approx(cost)
    assert "cost" not in json.loads(command(*words).out)["decision"]


@pytest.mark.parametrize("first", ["spam", "ham"])
def test_the_positive_class_does_not_depend_on_which_came_first(first: str) -> None:
    x, y = SETS["moons"]()
    order = np.argsort((np.array(["ham", "spam"])[y] != first) & (np.arange(len(y)) < 40))
    rows = make_table(x[order], y[order], np.array(["ham", "spam"]))
    rows["y"][0] = first
    model = kbnn.Model("y", layers=3, replay="off")
    model.learn(rows)
    assert model.classes[0] == first
    p = model.predict({key: rows[key] for key in rows if key != "y"})
    chance = dict(zip(p.classes, p.probability.T, strict=True))
    for asked, positive in ((None, "spam"), ("spam", "spam"), ("ham", "ham")):
        truth = np.array(rows["y"]) == positive
        figures = model.evaluate(rows, positive=asked, threshold=0.3)
        predicted = chance[positive] >= 0.3
        decided = figures["decision"]
        assert figures["positive_class"] == decided["class"] == positive
        score = metrics.average_precision_score(truth, chance[positive])
        assert figures["average_precision"] == pytest.approx(score, abs=1e-9)
        assert decided["confusion"] == metrics.confusion_matrix(truth, predicted).tolist()
        found = model.evaluate(rows, positive=asked, cost_fn=5.0)["decision"]
        costs = 5.0 * (truth & (chance[positive] < found["threshold"]))
        costs += ~truth & (chance[positive] >= found["threshold"])
        assert found["cost"] == pytest.approx(np.mean(costs))
    with pytest.raises(UsageError, match="--positive: unknown class 'eggs'"):
        model.evaluate(rows, positive="eggs")


def test_numbers_precede_texts_and_are_ordered_by_value() -> None:
    for classes in (["10", "9"], ["9", "10"], ["false", "true"], ["true", "-1"], ["0", "1"]):
        assert classes[DecisionOptions().find_positive(classes)] in ("10", "true", "1")


def test_costs_find_the_threshold_of_least_cost(moons: str) -> None:
    truth, p = read_moons(moons)
    figures = kbnn.load(moons).evaluate(str(SAMPLES / "moons.csv"), cost_fn=8.0, cost_fp=1.0)
    decided = figures["decision"]

    def cost(threshold: float) -> float:
        predicted = p >= threshold
        return float(np.mean(8.0 * (truth & ~predicted) + (~truth & predicted)))

    assert decided["cost"] == pytest.approx(cost(decided["threshold"]))
    assert decided["cost"] == pytest.approx(min(cost(one) for one in [*p, 2.0]))
    assert decided["threshold"] < 0.5


def test_number_figures_are_those_of_scikit_learn() -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal(300)
    y = 10.0 + x + 0.3 * rng.standard_normal(300)
    model = kbnn.Model("y", layers=3, task="regression")
    model.learn({"x": x[:200], "y": y[:200]})
    test = {"x": x[200:], "y": y[200:]}
    figures = model.evaluate(test)
    mean = model.predict({"x": x[200:]}).mean
    expected = {
        "mape": metrics.mean_absolute_percentage_error(y[200:], mean),
        "median_absolute_error": metrics.median_absolute_error(y[200:], mean),
        "smape": np.mean(2.0 * np.abs(y[200:] - mean) / (np.abs(y[200:]) + np.abs(mean))),
    }
    assert {name: figures[name] for name in expected} == pytest.approx(expected, abs=1e-9)
    assert "mase" not in figures


def test_a_series_is_compared_with_its_last_value(tmp_path: Path) -> None:
    model = kbnn.Model("y", layers=3, lags="off", task="regression")
    times = np.datetime64("2024-01-01") + np.arange(200)
    y = np.sin(np.arange(200.0) / 5.0)
    model.learn({"time": times[:150], "y": y[:150]})
    figures = model.evaluate({"time": times[150:], "y": y[150:]})
    naive = np.mean(np.abs(np.diff(y[150:])))
    assert figures["mase"] == pytest.approx(figures["mae"] / naive, abs=1e-9)


def test_the_chosen_metric_comes_first_and_can_fail(moons: str) -> None:
    source = SAMPLES / "moons.csv"
    shown = command("evaluate", moons, source, "--metric", "f1_1")
    lines = [line.split()[0] for line in shown.out.splitlines() if line.strip()]
    assert lines[lines.index("model") + 1] == "f1_1"
    assert "Confusion: true class down, predicted across" in shown.out
    said = json.loads(command("evaluate", moons, source, "--metric", "f1_1", "--json").out)
    assert said["metric"] == "f1_1"
    assert command("evaluate", moons, source, "--fail-if", "auc<2").code == 3
    wrong = command("evaluate", moons, source, "--metric", "rmse")
    assert (wrong.code, wrong.out) == (2, "")
    assert "--metric: unknown metric 'rmse' (choose from rows, " in wrong.err
    assert command("evaluate", moons, source, "--fail-if", "confusion_counts<2").code == 2


def test_decisions_are_for_two_classes(tmp_path: Path) -> None:
    model = kbnn.Model("y", layers=3)
    model.learn({"x": range(60), "y": ["a", "b", "c"] * 20})
    with pytest.raises(UsageError, match="--threshold is for two classes, and the target has 3"):
        model.evaluate({"x": [1], "y": ["a"]}, threshold=0.3)
    numbers = trained(tmp_path / "m.npz", "cubic.csv", "--limit", "100", "--layers", "3")
    ran = command("evaluate", numbers, SAMPLES / "cubic.csv", "--cost-fp", "2")
    assert (ran.code, ran.out) == (2, "")
    assert "--cost-fp is for two classes, and the target is a number" in ran.err
    ran = command("evaluate", numbers, SAMPLES / "cubic.csv", "--cost-fp", "-1")
    assert "--cost-fp must be 0 or more" in ran.err
    ran = command("evaluate", numbers, SAMPLES / "cubic.csv", "--horizon", "3", "--metric", "mae")
    assert "--horizon cannot be combined with --metric" in ran.err
