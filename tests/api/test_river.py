"""The estimators are river's own: its checks, and what its users do."""

from __future__ import annotations

import doctest
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

river = pytest.importorskip("river")

from river import checks, compose, datasets, evaluate, metrics, stream  # noqa: E402

import kbnn.river as ours  # noqa: E402
from kbnn.river import KBNNClassifier, KBNNRegressor  # noqa: E402

SMALL = (KBNNRegressor(layers=5, rehearse="off"), KBNNClassifier(layers=5, rehearse="off"))
NAMES = {type(model).__name__: model for model in SMALL}


def kinds(model: Any) -> list[str]:
    """The names of river's checks, each once however many sets it goes through."""
    return list(dict.fromkeys(check.__name__ for check in checks.yield_checks(model)))


CASES = [(name, check) for name, model in NAMES.items() for check in kinds(model)]


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_rivers_checks_pass(name: str, kind: str) -> None:
    model = NAMES[name]
    mine = [check for check in checks.yield_checks(model) if check.__name__ == kind]
    assert mine
    for check in mine:
        check(model.clone())


@pytest.mark.slow
@pytest.mark.parametrize("model", [KBNNRegressor(), KBNNClassifier()])
def test_rivers_checks_pass_with_every_default(model: Any) -> None:
    for check in checks.yield_checks(model):
        check(model.clone())


def rows(count: int = 300) -> list[tuple[dict[str, Any], float]]:
    draw = random.Random(0)
    made = []
    for _ in range(count):
        x: dict[str, Any] = {"a": draw.gauss(0, 1), "b": draw.gauss(0, 1)}
        x["c"] = draw.choice("uvw")
        made.append((x, x["a"] * (2.0 if x["c"] == "u" else -1.0) + 0.1 * draw.gauss(0, 1)))
    return made


def test_a_distribution_is_as_wide_as_the_noise() -> None:
    model = KBNNRegressor(layers=10)
    assert model.predict_one({"a": 1.0}) == 0.0
    for x, y in rows(600):
        model.learn_one(x, y)
    said = model.predict_one({"a": 1.0, "b": 0.0, "c": "u"}, with_dist=True)
    assert said.mu == model.predict_one({"a": 1.0, "b": 0.0, "c": "u"})
    assert abs(said.mu - 2.0) < 0.3
    assert 0.05 < said.sigma < 0.4


def test_a_late_feature_is_learned_from_and_a_vanished_one_is_missing() -> None:
    model = KBNNRegressor(layers=10)
    draw = random.Random(1)
    for at in range(800):
        x = {"a": draw.gauss(0, 1), "late": draw.gauss(0, 1)}
        y = x["a"] + (3.0 * x["late"] if at >= 200 else 0.0)
        model.learn_one(x if at >= 200 else {"a": x["a"]}, y)
    assert abs(model.predict_one({"a": 0.0, "late": 1.0}) - 3.0) < 0.7
    known = model.predict_one({"a": 0.0, "late": 0.0}, with_dist=True)
    gone = model.predict_one({"a": 0.0}, with_dist=True)
    assert gone.sigma > 3.0 * known.sigma


def test_the_order_of_features_means_nothing_from_the_first_row_on() -> None:
    forth, back = KBNNRegressor(layers=5), KBNNRegressor(layers=5)
    for x, y in rows(80):
        forth.learn_one(x, y)
        back.learn_one(dict(reversed(x.items())), y)
    assert forth.model is not None
    assert back.model is not None
    assert forth.model.to_bytes() == back.model.to_bytes()


def test_many_rows_are_the_rows_one_by_one() -> None:
    plain = [({"a": x["a"], "b": x["b"]}, y) for x, y in rows()]
    one, many = KBNNRegressor(layers=5), KBNNRegressor(layers=5)
    for x, y in plain:
        one.learn_one(x, y)
    for start in range(0, 300, 70):
        part = plain[start : start + 70]
        many.learn_many(pd.DataFrame([x for x, _ in part]), pd.Series([y for _, y in part]))
    assert one.model is not None
    assert many.model is not None
    assert one.model.to_bytes() == many.model.to_bytes()


def labelled(make: Callable[[bool], Any]) -> list[tuple[dict[str, Any], Any]]:
    return [(x, make(y > 0)) for x, y in rows()]


@pytest.mark.parametrize("make", [bool, np.bool_, int, lambda y: "yes" if y else "no"])
def test_labels_come_back_as_they_were(make: Callable[[bool], Any]) -> None:
    model = KBNNClassifier(layers=10)
    assert model.predict_proba_one({"a": 1.0}) == {}
    for x, y in labelled(make):
        model.learn_one(x, y)
    said = model.predict_one({"a": 1.0, "b": 0.0, "c": "u"})
    assert said == make(True)
    assert type(said) is type(make(True))


def test_it_lives_in_pipelines_and_evaluations() -> None:
    model = compose.Discard("ordinal_date") | KBNNRegressor(layers=5)
    score = evaluate.progressive_val_score(datasets.TrumpApproval().take(200), model, metrics.MAE())
    assert score.get() < 1.5
    numbered = KBNNRegressor(layers=5)
    for x, y in stream.iter_array(np.random.default_rng(0).normal(size=(60, 3)), np.arange(60.0)):
        numbered.learn_one(x, y)  # features named 0, 1, 2
    assert numbered.model is not None
    assert numbered.model.features == ["0", "1", "2"]


def test_the_examples_of_the_docstrings_run() -> None:
    found = doctest.testmod(ours)
    assert found.failed == 0
    assert found.attempted > 0


def test_lags_are_learned_from() -> None:
    """Of a series whose next value is told by the last two alone."""
    level = [0.0, 1.0]
    for at in range(300):
        level.append(1.6 * level[-1] - 0.95 * level[-2] + ((at * 7919) % 13 - 6) * 0.05)
    errors: dict[str | None, float] = {}
    for lags in (None, "1,2"):
        model, total = KBNNRegressor(layers=5, rehearse="off", lags=lags), 0.0
        for at, y in enumerate(level):
            x = {"a": float(at % 3)}
            total += abs(model.predict_one(x) - y) if at > 150 else 0.0
            model.learn_one(x, y)
        errors[lags] = total
    assert errors["1,2"] < 0.4 * errors[None]


def test_of_truth_values_both_are_known_after_one() -> None:
    model = KBNNClassifier(layers=3)
    model.learn_one({"a": 1.0}, True)
    said = model.predict_proba_one({"a": 1.0})
    assert set(map(type, said)) == {bool}
    assert set(said) == {True, False}
