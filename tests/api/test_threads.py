"""Models that several threads use: predictions are the same, and learning is serialised."""

from __future__ import annotations

import copy
import pickle
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import kbnn

Row = tuple[dict[str, Any], Any]
TARGETS: dict[str, Callable[[float], Any]] = {
    "number": lambda v: v,
    "count": lambda v: int(abs(v) * 3),
    "class": lambda v: "low" if v < 0 else "high",
}


@pytest.fixture(autouse=True)
def _switch_often() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def rows(count: int, make: Callable[[float], Any] = float) -> list[Row]:
    x = np.random.default_rng(count).standard_normal((count, 3))
    return [
        ({"a": float(a), "b": float(b), "c": "uvw"[k % 3]}, make(float(a + 2 * b + 0.1 * c)))
        for k, (a, b, c) in enumerate(x)
    ]


def taught(count: int, make: Callable[[float], Any] = float, **options: Any) -> kbnn.Model:
    model = kbnn.Model(target="y", layers=10, **options)
    for x, y in rows(count, make):
        model.learn_one(x, y)
    return model


def in_threads(*works: Callable[[], object]) -> None:
    """Run all at once; what one of them raises is raised here."""
    raised: list[BaseException] = []

    def run(work: Callable[[], object]) -> None:
        try:
            work()
        except BaseException as error:
            raised.append(error)

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if raised:
        raise raised[0]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("learned", [10, 120])  # during the warm-up, and after it
def test_predictions_of_threads_are_those_of_one(target: str, learned: int) -> None:
    model = taught(learned, TARGETS[target])
    asked = [x for x, _ in rows(40)]
    expected = [repr(model.predict_one(x)) for x in asked]

    def predict() -> None:
        for _ in range(3):
            assert [repr(model.predict_one(x)) for x in asked] == expected

    in_threads(*[predict] * 4)


def test_tables_lags_and_ensembles_are_predicted_in_threads() -> None:
    table = {"a": np.arange(60.0), "y": np.arange(60.0) % 7}
    model = kbnn.Model(target="y", layers=5, lags="1,2", ensemble=2)
    model.learn(table)
    expected = model.predict(table).mean, model.evaluate(table)["rmse"], model.to_bytes()

    def ask() -> None:
        for _ in range(3):
            assert np.array_equal(model.predict(table).mean, expected[0])
            assert model.evaluate(table)["rmse"] == expected[1]
            assert model.to_bytes() == expected[2]

    in_threads(*[ask] * 3)


def test_every_row_of_learning_threads_counts_once() -> None:
    model = kbnn.Model(target="y", layers=10)
    parts = [rows(count) for count in (80, 90, 100)]

    def learn(part: list[Row]) -> None:
        for x, y in part:
            model.learn_one(x, y)

    in_threads(*[lambda part=part: learn(part) for part in parts])
    assert model.rows == 270
    assert kbnn.Model.from_bytes(model.to_bytes()).rows == 270
    assert model.record()["rows"] == 270 - 32


@pytest.mark.parametrize("target", TARGETS)
def test_a_prediction_beside_a_learner_is_of_some_whole_number_of_rows(target: str) -> None:
    asked, stream = {"a": 0.3, "b": -0.2, "c": "u"}, rows(140, TARGETS[target])
    model = kbnn.Model(target="y", layers=10)
    possible = []
    for x, y in stream:
        model.learn_one(x, y)
        possible.append(repr(model.predict_one(asked)))
    model = kbnn.Model(target="y", layers=10)
    model.learn_one(*stream[0])
    done = threading.Event()
    seen: list[str] = []

    def learn() -> None:
        for x, y in stream[1:]:
            model.learn_one(x, y)
        done.set()

    def predict() -> None:
        while not done.is_set():
            seen.append(repr(model.predict_one(asked)))
            assert model.rows >= 1
            assert "learned" in repr(model)

    in_threads(learn, predict, predict)
    assert set(seen) <= set(possible)
    alone = kbnn.Model(target="y", layers=10)
    for x, y in stream:
        alone.learn_one(x, y)
    assert model.to_bytes() == alone.to_bytes()


def test_tables_are_learned_while_others_predict_learn_and_save() -> None:
    stream = rows(300)
    table = {name: [x[name] for x, _ in stream] for name in "abc"} | {"y": [y for _, y in stream]}
    model = kbnn.Model(target="y", layers=10)
    model.learn(table)
    done = threading.Event()

    def learn() -> None:
        for _ in range(3):
            model.learn(table)
        done.set()

    def ask() -> None:
        while not done.is_set():
            kbnn.Model.from_bytes(model.to_bytes())
            assert np.isfinite(model.predict_one(stream[0][0]).mean)
            assert np.isfinite(model.predict(table).mean).all()
            assert model.record()["rows"]

    def learn_one() -> None:
        for k, (x, y) in enumerate(stream[:40]):
            model.learn_one({**x, f"new{k // 10}": 1.0}, y)

    in_threads(learn, learn_one, ask, ask)
    assert model.rows == 1240


def test_copies_and_pickles_have_locks_of_their_own() -> None:
    model = taught(60)
    for other in (copy.deepcopy(model), copy.copy(model), pickle.loads(pickle.dumps(model))):
        assert other.to_bytes() == model.to_bytes()
        with model._learning_lock:
            in_threads(lambda other=other: other.learn_one(*rows(1)[0]))  # type: ignore[misc]  # bound now
        assert other.rows == 61
    assert model.rows == 60


def test_estimators_of_scikit_learn_predict_and_learn_in_threads() -> None:
    sklearn = pytest.importorskip("kbnn.sklearn")
    x = np.random.default_rng(0).standard_normal((300, 3))
    y = x @ np.array([1.0, 2.0, 3.0])
    estimator = sklearn.KBNNRegressor(10).fit(x, y)
    expected = estimator.predict(x)

    def predict() -> None:
        for _ in range(5):
            assert np.array_equal(estimator.predict(x), expected)

    in_threads(*[predict] * 3)
    classes = sklearn.KBNNClassifier(10)

    def learn() -> None:
        for k in range(0, 300, 50):
            classes.partial_fit(x[k : k + 50], y[k : k + 50] > 0, classes=[False, True])

    in_threads(*[learn] * 3)
    assert classes.model_.rows == 900
    assert pickle.loads(pickle.dumps(classes)).model_.rows == 900


def test_estimators_of_river_learn_in_threads() -> None:
    river = pytest.importorskip("kbnn.river")
    estimator = river.KBNNRegressor(10)

    def learn() -> None:
        for x, y in rows(60):
            estimator.learn_one(x, y)
            estimator.predict_one(x)

    in_threads(*[learn] * 3)
    assert estimator.model.rows == 180


def test_a_fleet_is_asked_by_threads(tmp_path: Any) -> None:
    a = np.arange(300.0) % 11
    table = {"key": [f"k{k % 5}" for k in range(300)], "a": a, "y": 2.0 * a}
    fleet = kbnn.train(table, "y", key="key", model=tmp_path / "fleet")
    expected = fleet.predict(table).mean

    def predict() -> None:
        assert np.array_equal(fleet.predict(table).mean, expected)

    in_threads(*[predict] * 3)
