"""Arguments that make no sense end in an error of kbnn with one clear sentence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kbnn
from kbnn.errors import ArgumentError, DataError, KbnnError, ModelError, UsageError

SURROGATE = "a\ud800"


def taught(**options: Any) -> kbnn.Model:
    model = kbnn.Model("y", layers=3, **options)
    for k in range(40):
        model.learn_one({"a": float(k % 7), "c": "uv"[k % 2]}, float(k % 7) + 0.1 * k)
    return model


CALLS: dict[str, tuple[type[KbnnError], str, Callable[[kbnn.Model], object]]] = {
    "new name": (UsageError, "lone surrogate", lambda m: m.learn_one({SURROGATE: 1.0}, 1.0)),
    "first name": (
        UsageError,
        "lone surrogate",
        lambda m: kbnn.Model("y").learn_one({SURROGATE: 1.0}, 1.0),
    ),
    "target name": (
        UsageError,
        "lone surrogate",
        lambda m: kbnn.Model(SURROGATE).learn_one({"a": 1.0}, 1.0),
    ),
    "table name": (
        DataError,
        "lone surrogate",
        lambda m: kbnn.Model("y").learn({SURROGATE: [1.0, 2.0], "y": [1.0, 2.0]}),
    ),
    "hashed label": (
        DataError,
        "lone surrogate",
        lambda m: kbnn.Model("y", hash="c:8").learn_one({"c": SURROGATE}, 1.0),
    ),
    "new category": (DataError, "lone surrogate", lambda m: m.learn_one({"c": SURROGATE}, 1.0)),
    "first class": (
        DataError,
        "lone surrogate",
        lambda m: kbnn.Model("y").learn_one({"a": 1.0}, SURROGATE),
    ),
    "name is no text": (
        ArgumentError,
        "column names must be strings",
        lambda m: kbnn.Model("y").learn_one({1: 2.0}, 1.0),  # type: ignore[dict-item]  # on purpose
    ),
    "no weight": (ArgumentError, "not None", lambda m: m.learn_one({"a": 1.0}, 1.0, None)),  # type: ignore[arg-type]  # on purpose
    "text as weight": (ArgumentError, "not 'x'", lambda m: m.learn_one({"a": 1.0}, 1.0, "x")),  # type: ignore[arg-type]  # on purpose
    "list as weight": (ArgumentError, r"not \[1\]", lambda m: m.learn_one({"a": 1.0}, 1.0, [1])),  # type: ignore[arg-type]  # on purpose
    "vast weight": (DataError, "finite", lambda m: m.learn_one({"a": 1.0}, 1.0, 10**400)),
    "negative weight": (DataError, "not -1", lambda m: m.learn_one({"a": 1.0}, 1.0, -1)),
    "list as row": (ArgumentError, "a row must be a dict", lambda m: m.learn_one([1, 2], 1.0)),  # type: ignore[arg-type]  # on purpose
    "list as first row": (
        ArgumentError,
        "a row must be a dict",
        lambda m: kbnn.Model("y").learn_one([1, 2], 1.0),  # type: ignore[arg-type]  # on purpose
    ),
    "no row": (ArgumentError, "not None", lambda m: m.predict_one(None)),  # type: ignore[arg-type]  # on purpose
    "text as row": (ArgumentError, "not 'text'", lambda m: m.predict_one("text")),  # type: ignore[arg-type]  # on purpose
    "one of two targets": (
        ArgumentError,
        "2 targets",
        lambda m: kbnn.Model(["y", "z"]).learn_one({"a": 1.0}, 1.0),
    ),
    "too few targets": (
        DataError,
        "2 targets, not 1",
        lambda m: kbnn.Model(["y", "z"]).learn_one({"a": 1.0}, [1.0]),
    ),
    "nested target": (DataError, "nested", lambda m: kbnn.Model("y").learn_one({"a": 1.0}, [1])),
    "text as state": (ArgumentError, "bytes, not str", lambda m: kbnn.step("text", [{"y": 1}])),  # type: ignore[arg-type]  # on purpose
    "bad state": (ModelError, "not a model file", lambda m: kbnn.step(b"text", [{"y": 1}])),
    "text as bytes": (ArgumentError, "bytes, not str", lambda m: kbnn.Model.from_bytes("x")),  # type: ignore[arg-type]  # on purpose
    "number as path": (ArgumentError, "a path must be", lambda m: kbnn.load(5)),  # type: ignore[arg-type]  # on purpose
    "text as interval": (
        ArgumentError,
        "--interval takes a share such as 0.9 or 90%, not 'x'",
        lambda m: m.predict({"a": [1.0]}, interval="x"),
    ),
    "text as quantiles": (
        ArgumentError,
        "--quantiles takes shares such as 0.05,0.5,0.95, not 'x'",
        lambda m: m.predict({"a": [1.0]}, quantiles="x"),
    ),
    "text as horizon": (
        ArgumentError,
        "whole number of steps",
        lambda m: taught(lags="1").forecast("x"),  # type: ignore[arg-type]  # on purpose
    ),
}


@pytest.mark.parametrize("call", CALLS)
def test_arguments_that_make_no_sense_are_refused_and_change_nothing(call: str) -> None:
    kind, message, make = CALLS[call]
    model = taught()
    before = model.to_bytes()
    with pytest.raises(kind, match=message) as raised:
        make(model)
    assert "\n" not in str(raised.value)
    assert str(raised.value).isascii()
    assert model.to_bytes() == before
    model.learn_one({"a": 1.0}, 1.0)


def test_wrong_types_are_type_errors_too() -> None:
    with pytest.raises(TypeError):
        taught().predict_one(None)  # type: ignore[arg-type]  # on purpose


@pytest.mark.parametrize("name", ["KBNNRegressor", "KBNNClassifier"])
@pytest.mark.parametrize("method", ["fit", "partial_fit"])
def test_negative_sample_weights_are_refused_by_row(name: str, method: str) -> None:
    sklearn = pytest.importorskip("kbnn.sklearn")
    x = np.arange(20.0).reshape(-1, 1)
    weight = np.ones(20)
    weight[7] = -2.0
    estimator = getattr(sklearn, name)(3)
    more = {"classes": [0, 1]} if (name, method) == ("KBNNClassifier", "partial_fit") else {}
    with pytest.raises(ValueError, match=r"sample_weight\[7\] is -2"):
        getattr(estimator, method)(x, np.arange(20) % 2, sample_weight=weight, **more)
    assert not hasattr(estimator, "model_")


def hostile(task: str) -> list[tuple[dict[str, float], Any]]:
    """Rows at the edges of what numbers can be, targets such as the task has."""
    rng = np.random.default_rng(7)
    power = rng.integers(-99, 99, (2, 120)).astype(float)
    sign = rng.choice([-1.0, 1.0], 120)
    targets: dict[str, Any] = {
        "regression": sign * 10.0 ** power[0],
        "positive": 10.0 ** power[0],
        "count": np.where(sign > 0, rng.integers(0, 2**53, 120), rng.integers(0, 3, 120)),
        "amount": np.where(sign > 0, 10.0 ** power[0], 0.0),
        "classification": rng.choice(["u", "v", "w"], 120),
    }
    x = rng.choice([-1.0, 1.0], 120) * 10.0 ** power[1]
    pairs = zip(x.tolist(), targets[task].tolist(), strict=True)
    return [({"a": a, "b": float(k)}, y) for k, (a, y) in enumerate(pairs)]


@pytest.mark.parametrize("task", ["regression", "positive", "count", "amount", "classification"])
@pytest.mark.parametrize(
    "options",
    [{}, {"units": "off"}, {"ensemble": 2}, {"covariance": "paper"}, {"robust": False}],
    ids=str,
)
def test_extreme_rows_raise_no_warning(task: str, options: dict[str, Any]) -> None:
    """Warnings are errors in these tests."""
    rows = hostile(task)
    model = kbnn.Model("y", layers=3, task=task, rehearse=1, **options)
    for k, (x, y) in enumerate(rows):
        model.learn_one(x, y, 10.0 ** (k % 5 - 2))
    table: dict[str, Any] = {name: [x[name] for x, _ in rows] for name in ("a", "b")}
    said = model.predict(table)
    assert repr(said)
    assert said.to_arrow().num_rows == len(rows)
    model.evaluate({**table, "y": [y for _, y in rows]})
    assert repr(model.predict_one(rows[0][0]))
    assert model._repr_html_()
    model.record()
    again = kbnn.Model("y", layers=3, task=task, rehearse=1, **options)
    again.learn({**table, "y": [y for _, y in rows]})


def test_nothing_stated_raises_no_warning() -> None:
    model = kbnn.Model("y", layers=3)
    for k in range(40):
        model.learn_one({"a": 1e99 if k % 2 else -1e99}, 1e99)
    with pytest.raises(DataError, match="no error bars yet"):
        model.evaluate({"a": [1e99], "y": [5.0]})


def test_an_ensemble_under_vast_weights_raises_no_warning() -> None:
    rng = np.random.default_rng(0)
    model = kbnn.Model("y", layers=4, ensemble=2)
    for k in range(120):
        model.learn_one({"a": float(k)}, float(k % 5), 10.0 ** float(rng.integers(-300, 300)))
        model.predict_one({"a": 1.0})
