"""The estimators are scikit-learn's own: its checks, and what its users do."""

from __future__ import annotations

import doctest
import pickle
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

sklearn = pytest.importorskip("sklearn")

from sklearn.base import clone  # noqa: E402
from sklearn.datasets import load_iris, make_regression  # noqa: E402
from sklearn.model_selection import GridSearchCV, cross_val_score  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402
from sklearn.preprocessing import StandardScaler  # noqa: E402
from sklearn.utils.estimator_checks import check_estimator  # noqa: E402

import kbnn.sklearn as ours  # noqa: E402
from kbnn.sklearn import KBNNClassifier, KBNNRegressor  # noqa: E402

EXPECTED = {
    "check_sample_weight_equivalence_on_dense_data": (
        "a learner that minds the order of its rows: a row of weight 2 is not the same row twice"
    )
}


@pytest.mark.filterwarnings("ignore:invalid value encountered in cast:RuntimeWarning")
@pytest.mark.parametrize("estimator", [KBNNRegressor(layers=10), KBNNClassifier(layers=10)])
def test_scikit_learns_checks_pass(estimator: Any) -> None:
    """All of them but one, which must fail: a check that passes is not expected to fail."""
    found = check_estimator(
        estimator, expected_failed_checks=EXPECTED, on_skip=None, on_fail="raise"
    )
    assert {one["check_name"] for one in found if one["status"] == "xfail"} == set(EXPECTED)
    assert sum(one["status"] == "passed" for one in found) > 45


def regression(rows: int = 400) -> tuple[Any, Any]:
    x = np.random.default_rng(0).normal(size=(rows, 3))
    noise = 0.3 * np.random.default_rng(1).normal(size=rows)
    return x, np.sin(2.0 * x[:, 0]) + x[:, 1] * x[:, 2] + noise


def test_error_bars_hold_what_they_promise() -> None:
    x, y = regression(900)
    model = KBNNRegressor(epochs=5).fit(x[:600], y[:600])
    mean, sd = model.predict(x[600:], return_std=True)
    np.testing.assert_array_equal(mean, model.predict(x[600:]))
    assert np.sqrt(np.mean((mean - y[600:]) ** 2)) < 0.45
    edges = model.predict_interval(x[600:], 0.8)
    inside = np.mean((edges[:, 0] < y[600:]) & (y[600:] < edges[:, 1]))
    assert 0.70 < inside < 0.92
    np.testing.assert_allclose(edges[:, 1] - mean, 1.2815515655446004 * sd, rtol=0.2)
    quantiles = model.predict_quantiles(x[600:], (0.1, 0.5, 0.9))
    np.testing.assert_allclose(
        quantiles[:, 2] - quantiles[:, 1], 1.2815515655446004 * sd, rtol=0.05
    )
    with pytest.raises(ValueError, match="must lie between 0 and 1"):
        model.predict_quantiles(x, (0.0,))


def test_fit_starts_anew_and_partial_fit_goes_on() -> None:
    x, y = regression()
    whole = KBNNRegressor(shuffle=False, layers=8).fit(x, y)
    parts = KBNNRegressor(layers=8)
    for start in range(0, 400, 57):
        parts.partial_fit(x[start : start + 57], y[start : start + 57])
    np.testing.assert_array_equal(parts.predict(x), whole.predict(x))
    assert parts.model_.rows == 400
    parts.set_params(shuffle=False).fit(x, y)
    assert parts.model_.to_bytes() == whole.model_.to_bytes()
    with pytest.raises(ValueError, match="y has the shape"):
        parts.partial_fit(x, np.stack([y, y], axis=1))


def test_several_outputs() -> None:
    x, y = make_regression(300, 4, n_targets=2, random_state=0, noise=1.0)
    model = KBNNRegressor(layers=8).fit(x, y)
    mean, sd = model.predict(x, return_std=True)
    assert mean.shape == sd.shape == (300, 2)
    assert model.predict_interval(x).shape == (300, 2, 2)
    assert model.score(x, y) > 0.9


def test_weights_count_and_none_is_left_out() -> None:
    x, y = regression()
    weight = np.ones(400)
    weight[200:] = 0.0
    some = KBNNRegressor(layers=8, shuffle=False).fit(x, y, weight)
    np.testing.assert_array_equal(
        some.predict(x),
        KBNNRegressor(layers=8, shuffle=False).fit(x[:200], y[:200]).predict(x),
    )
    heavy = KBNNRegressor(layers=8, shuffle=False).fit(x, y, np.where(weight > 0, 5.0, 1.0))
    assert not np.array_equal(heavy.predict(x), some.predict(x))


def test_missing_numbers_are_missing() -> None:
    x, y = regression()
    x[::7, 0] = np.nan
    model = KBNNRegressor(layers=8).fit(x, y)
    mean, sd = model.predict(x, return_std=True)
    assert np.isfinite(mean).all()
    assert sd[::7].mean() > np.delete(sd, np.arange(0, 400, 7)).mean()


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_tables_with_categories(frame: Any) -> None:
    draw = np.random.default_rng(0)
    kind = draw.choice(["low", "high", "none"], 400)
    a = draw.normal(size=400)
    y = np.where(kind == "high", 3.0 + a, np.where(kind == "low", -3.0 - a, 0.0))
    x = frame({"a": a, "kind": kind, "on": a > 0})
    model = KBNNRegressor(layers=10).fit(x, y)
    assert model.feature_names_in_.tolist() == ["a", "kind", "on"]
    assert model.score(x, y) > 0.95
    assert np.isfinite(model.predict(frame({"a": [0.0], "kind": ["new"], "on": [True]}))).all()
    model.partial_fit(frame({"a": [0.0], "kind": ["new"], "on": [True]}), [50.0])
    assert model.model_._require_model().schema.get_column("kind").categories[-1] == "new"
    labels = np.array(["yes", "no"])[(y > 0).astype(int)]
    assert KBNNClassifier(layers=10).fit(x, labels).score(x, labels) > 0.9
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame({"kind": ["low"], "a": [0.0], "on": [True]}))


def test_classes_keep_their_type_and_order() -> None:
    x, y = load_iris(return_X_y=True)
    for labels in (y, np.array(["c", "a", "b"])[y], y.astype(float), y == 1):
        model = KBNNClassifier(layers=10).fit(x, labels)
        assert model.classes_.tolist() == np.unique(labels).tolist()
        assert model.predict(x).dtype == labels.dtype
        assert np.mean(model.predict(x) == labels) > 0.93
        np.testing.assert_allclose(model.predict_proba(x).sum(axis=1), 1.0)


def test_partial_fit_is_told_all_classes() -> None:
    x, y = load_iris(return_X_y=True)
    model = KBNNClassifier(layers=10)
    with pytest.raises(ValueError, match="needs all classes"):
        model.partial_fit(x[:50], y[:50])
    model.partial_fit(x[:50], y[:50], classes=[0, 1, 2])
    assert model.predict_proba(x).shape == (150, 3)
    model.partial_fit(x[50:], y[50:])
    with pytest.raises(ValueError, match="not among the classes"):
        model.partial_fit(x[:1], [7])


def test_it_lives_in_the_world_of_scikit_learn() -> None:
    x, y = regression()
    model = KBNNRegressor(layers=8, random_state=3)
    assert clone(model).get_params() == model.get_params()
    model.fit(x, y)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(x), model.predict(x))
    assert cross_val_score(make_pipeline(StandardScaler(), model), x, y).mean() > 0.6
    search = GridSearchCV(KBNNRegressor(), {"layers": [4, (8, 8)]}, cv=2).fit(x, y)
    assert search.best_params_["layers"] in (4, (8, 8))
    with pytest.raises(ValueError, match="--covariance is auto"):
        KBNNRegressor(covariance="odd").fit(x, y)


@pytest.mark.parametrize("labels", [["", "a"], ["a", " a"], [1, 2]])
def test_labels_that_no_column_could_hold_are_learned_all_the_same(labels: list[Any]) -> None:
    X = np.random.default_rng(0).standard_normal((80, 1))
    y = np.array(labels)[(X[:, 0] > 0.0).astype(int)]
    fitted = KBNNClassifier(layers=4).fit(X, y)
    assert fitted.classes_.tolist() == sorted(labels)
    assert np.mean(fitted.predict(X) == y) > 0.9
    assert len(set(fitted.model_.classes)) == 2
    assert all(fitted.model_.classes)


def test_intervals_hold_nine_in_ten_where_nothing_is_said() -> None:
    X = np.random.default_rng(0).standard_normal((60, 1))
    fitted = KBNNRegressor(layers=4).fit(X, X[:, 0])
    usual, stated = fitted.predict_interval(X), fitted.predict_quantiles(X, (0.05, 0.95))
    assert usual == pytest.approx(stated)
    assert (fitted.predict_interval(X, 0.5)[:, 1] < usual[:, 1]).all()


@pytest.mark.parametrize("estimator", [KBNNRegressor, KBNNClassifier])
@pytest.mark.parametrize("kind", [np.float32, np.int64, np.bool_])
def test_weights_of_any_type_are_weights(estimator: Any, kind: Any) -> None:
    x = np.random.default_rng(4).normal(size=(80, 2))
    y = (x[:, 0] > 0.0) if estimator is KBNNClassifier else x[:, 0]
    weight = np.ones(80)
    weight[::3] = 0.0
    one = estimator().fit(x, y, sample_weight=weight.astype(kind))
    other = estimator().fit(x, y, sample_weight=weight)
    np.testing.assert_array_equal(one.predict(x), other.predict(x))


def test_the_examples_of_the_docstrings_run() -> None:
    found = doctest.testmod(ours)
    assert found.failed == 0
    assert found.attempted > 0
