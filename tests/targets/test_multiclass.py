"""Classes: probabilities that are one, that stay the same, and a class that comes late."""

from __future__ import annotations

import numpy as np
import pytest

from kbnn.array_types import FloatArray
from kbnn.core.reference import LEARNED, REJECTED
from kbnn.data.batch import slice_rows
from kbnn.model.model import OnlineModel
from kbnn.model.settings import Settings
from tests.bench.class_streams import learned, log_loss, probabilities
from tests.bench.data import block, schema
from tests.bench.made import clumps
from tests.modelling import differences, learn_in, restored, same

CENTERS = 2.0 * np.random.default_rng(4).standard_normal((4, 2, 3))


def rows(count: int, classes: int, seed: int = 0) -> tuple[FloatArray, FloatArray]:
    return clumps(np.random.default_rng(seed), count, classes, CENTERS)


@pytest.mark.parametrize("covariance", ["neuron", "group", "full"])
@pytest.mark.parametrize("classes", [2, 4])
def test_probabilities_are_learned_and_are_a_distribution(covariance: str, classes: int) -> None:
    x, y = rows(900, classes)
    test_x, test_y = rows(400, classes, 1)
    model = learned(x, y, classes, hidden=(15,), covariance=covariance)
    p = probabilities(model, test_x)
    assert np.allclose(np.sum(p, axis=1), 1.0, atol=1e-12)
    assert np.all(p >= 0.0)
    assert np.array_equal(p, probabilities(model, test_x))
    assert log_loss(p, test_y) < 0.45
    assert np.mean(np.argmax(p, axis=1) == test_y) > 0.85
    confident = np.max(p, axis=1) > 0.9
    assert np.mean((np.argmax(p, axis=1) == test_y)[confident]) > 0.93


def test_better_than_a_network_fed_row_by_row() -> None:
    datasets = pytest.importorskip("sklearn.datasets")
    network = pytest.importorskip("sklearn.neural_network")
    x, y = datasets.load_iris(return_X_y=True)
    order = np.random.default_rng(5).permutation(150)
    train, test = order[:120], order[120:]
    p = probabilities(learned(x[train], y[train].astype(np.float64), 3), x[test])
    z = (x - x[train].mean(axis=0)) / x[train].std(axis=0)
    other = network.MLPClassifier((50,), random_state=0)
    for row in train:
        other.partial_fit(z[row : row + 1], y[row : row + 1], classes=np.arange(3))
    assert log_loss(p, y[test]) < log_loss(other.predict_proba(z[test]), y[test])


@pytest.mark.parametrize("covariance", ["auto", "neuron", "group", "full"])
@pytest.mark.parametrize("before", [2, 3])
def test_a_new_class_is_admitted_when_it_comes(covariance: str, before: int) -> None:
    x, y = rows(3000, before + 1, 2)
    keep = (y < before) | (np.arange(3000) >= 1500)
    x, y = x[keep], y[keep]
    first = int(np.flatnonzero(y == before)[0])
    model = OnlineModel(Settings(hidden=(15,), covariance=covariance), schema(3, 1, before + 1))
    said = model.learn(block(x, y))
    assert said.probability is not None
    assert said.probability.shape == (len(y), before + 1)
    assert np.all(said.probability[32 : first + 1, before] == 0.0)
    assert np.all(said.probability[first + 1 :, before] > 0.0)
    assert np.allclose(np.sum(said.probability, axis=1), 1.0)
    assert np.all(said.status[32:] & LEARNED)
    test_x, test_y = rows(600, before + 1, 3)
    new = test_y == before
    p = probabilities(model, test_x)
    assert np.mean(np.argmax(p[new], axis=1) == before) > 0.7
    assert log_loss(p, test_y) < 0.5


def test_cutting_and_saving_change_no_bit_when_a_class_comes_late() -> None:
    x, y = rows(500, 3, 4)
    keep = (y < 2) | (np.arange(500) > 200)
    all_rows = block(x[keep], y[keep])
    count = int(np.sum(keep))
    whole = OnlineModel(Settings(hidden=(7,)), schema(3, 1, 3))
    other = OnlineModel(Settings(hidden=(7,)), schema(3, 1, 3))
    said = whole.learn(all_rows)
    assert same(learn_in(other, all_rows, [1] * 60 + [count - 60]), said)
    assert differences(whole, other) == []
    first = OnlineModel(Settings(hidden=(7,)), schema(3, 1, 3))
    first.learn(slice_rows(all_rows, 0, 150))
    second = restored(first)
    second.learn(slice_rows(all_rows, 150, count))
    assert differences(whole, second) == []


def test_rows_without_a_label_are_skipped_and_odd_labels_rejected() -> None:
    x, y = rows(100, 2, 5)
    y[50], y[60] = np.nan, -1.0
    model = OnlineModel(Settings(hidden=(5,)), schema(3, 1, 2))
    said = model.learn(block(x, y))
    assert model.skipped == 1
    assert said.status[60] == REJECTED
    assert model.rows == 98
    assert np.all(np.isnan(said.outlier))
