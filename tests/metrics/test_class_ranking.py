"""AUC, average precision, F1, MCC and thresholds, against scikit-learn on five sets."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kbnn.array_types import FloatArray, IntArray
from kbnn.metrics import class_metrics
from kbnn.metrics.class_metrics import ClassRanking, ConfusionCounts

datasets = pytest.importorskip("sklearn.datasets")
sk = pytest.importorskip("sklearn.metrics")
naive_bayes = pytest.importorskip("sklearn.naive_bayes")

SETS = ["iris", "wine", "digits", "breast_cancer", "moons"]


def predicted(name: str) -> tuple[IntArray, FloatArray, FloatArray]:
    """Labels, probabilities of naive Bayes fitted to every third row, and weights."""
    if name == "moons":
        x, y = datasets.make_moons(900, noise=0.3, random_state=0)
    else:
        x, y = getattr(datasets, f"load_{name}")(return_X_y=True)
    x = x + np.random.default_rng(0).standard_normal(x.shape) * x.std(axis=0)
    p = naive_bayes.GaussianNB(var_smoothing=1e-2).fit(x[::3], y[::3]).predict_proba(x)
    p = np.round(p, 3)  # ties
    p = p / p.sum(axis=1, keepdims=True)
    return y.astype(np.int64), p, np.random.default_rng(1).choice([0.5, 1.0, 3.0], len(y))


def made_figures(y: IntArray, p: FloatArray, weight: FloatArray | None) -> dict[str, float]:
    """What scikit-learn computes."""
    known: dict[str, Any] = {"sample_weight": weight}
    if p.shape[1] == 2:
        auc = sk.roc_auc_score(y, p[:, 1], **known)
        ap = sk.average_precision_score(y, p[:, 1], **known)
    else:
        each = [(y == k).astype(int) for k in range(p.shape[1])]
        auc = np.mean([sk.roc_auc_score(one, p[:, k], **known) for k, one in enumerate(each)])
        ap = np.mean(
            [sk.average_precision_score(one, p[:, k], **known) for k, one in enumerate(each)]
        )
    return {"auc": float(auc), "ap": float(ap)}


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", SETS)
def test_figures_of_few_rows_are_those_of_scikit_learn(name: str, weighted: bool) -> None:
    y, p, w = predicted(name)
    weight = w if weighted else None
    ranking, confusion = ClassRanking(), ConfusionCounts()
    for cut in np.array_split(np.arange(len(y)), 4):
        part = None if weight is None else weight[cut]
        ranking.add(y[cut], p[cut], part)
        confusion.add(y[cut], p[cut].argmax(axis=1), part)
    exact, top = made_figures(y, p, weight), p.argmax(axis=1)
    auc, ap = ranking.auc(), ranking.average_precision()
    assert auc is not None
    assert ap is not None
    assert auc.value == pytest.approx(exact["auc"], abs=1e-9)
    assert ap.value == pytest.approx(exact["ap"], abs=1e-9)
    assert auc.error == ap.error == 0.0
    known: dict[str, Any] = {"sample_weight": weight}
    assert confusion.counts == pytest.approx(sk.confusion_matrix(y, top, **known), abs=1e-9)
    assert confusion.f1() == pytest.approx(sk.f1_score(y, top, average=None, **known), abs=1e-9)
    macro = sk.f1_score(y, top, average="macro", **known)
    assert confusion.macro_f1() == pytest.approx(macro, abs=1e-9)
    assert confusion.mcc() == pytest.approx(sk.matthews_corrcoef(y, top, **known), abs=1e-9)
    precision, recall, _, _ = sk.precision_recall_fscore_support(y, top, zero_division=0, **known)
    assert confusion.precision() == pytest.approx(precision, abs=1e-9)
    assert confusion.recall() == pytest.approx(recall, abs=1e-9)


@pytest.mark.parametrize("name", SETS)
def test_binned_figures_are_within_their_stated_error(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    y, p, w = predicted(name)
    monkeypatch.setattr(class_metrics, "EXACT_ROWS", 50)
    ranking = ClassRanking()
    for cut in np.array_split(np.arange(len(y)), 7):
        ranking.add(y[cut], p[cut], w[cut])
    exact = made_figures(y, p, w)
    for found, value in (
        (ranking.auc(), exact["auc"]),
        (ranking.average_precision(), exact["ap"]),
    ):
        assert found is not None
        assert abs(found.value - value) <= found.error + 1e-12
        assert 0.0 < found.error < 0.12


def test_many_rows_have_a_small_error_and_batches_do_not_matter() -> None:
    rng = np.random.default_rng(0)
    logit = rng.normal(0.0, 2.0, 20_000)
    y = (rng.random(20_000) < 1.0 / (1.0 + np.exp(-logit))).astype(np.int64)
    one = 1.0 / (1.0 + np.exp(-logit))
    p, w = np.column_stack((1.0 - one, one)), rng.random(20_000)
    whole, cut, left, right = (ClassRanking() for _ in range(4))
    whole.add(y, p, w)
    for at in np.split(np.arange(20_000), [10, 4000, 4097, 9000]):
        cut.add(y[at], p[at], w[at])
    for state, other in zip(whole.to_arrays().values(), cut.to_arrays().values(), strict=True):
        assert np.array_equal(state, other)
    found, exact = whole.auc(), made_figures(y, p, w)
    assert found is not None
    assert abs(found.value - exact["auc"]) <= found.error < 2e-3
    precision = whole.average_precision()
    assert precision is not None
    assert abs(precision.value - exact["ap"]) <= precision.error < 1e-2
    left.add(y[:3000], p[:3000], w[:3000])
    right.add(y[3000:], p[3000:], w[3000:])
    for one_side, other_side in ((left, right), (right, left)):
        both = ClassRanking.from_arrays(one_side.to_arrays())
        both.merge(other_side)
        assert both.rows == 20_000
        assert both.auc() == pytest.approx(found, rel=1e-9)


def test_a_class_may_appear_late() -> None:
    ranking = ClassRanking()
    ranking.add(np.array([0, 1, 1]), np.array([[0.7, 0.3], [0.2, 0.8], [0.6, 0.4]]))
    ranking.add(np.array([2, 0]), np.array([[0.4, 0.6], [0.9, 0.1]]))
    assert ranking.classes == 3
    assert ranking.auc() is not None
    assert ranking.rank_rows(2).auc() == (0.5, 0.0)  # no row had a probability of it
    assert ClassRanking().auc() is None


@pytest.mark.parametrize(("cost_fn", "cost_fp"), [(1.0, 1.0), (10.0, 1.0), (1.0, 25.0)])
@pytest.mark.parametrize("limit", [4096, 20])
def test_the_best_threshold_has_the_least_cost(
    cost_fn: float, cost_fp: float, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(class_metrics, "EXACT_ROWS", limit)
    y, p, _ = predicted("breast_cancer")
    ranking = ClassRanking()
    ranking.add(y, p)
    found = ranking.rank_rows(1).best_threshold(cost_fn, cost_fp)
    assert found is not None

    def cost(threshold: float) -> float:
        said = p[:, 1] >= threshold
        return float(np.mean(cost_fn * (~said & (y == 1)) + cost_fp * (said & (y == 0))))

    least = min(cost(t) for t in [*np.unique(p[:, 1]), 2.0])
    assert found.cost == pytest.approx(cost(found.threshold), abs=1e-9)
    if limit == 4096:
        assert found.cost == pytest.approx(least, abs=1e-12)
    else:
        assert least <= found.cost < least + 0.02


def test_no_row_is_predicted_where_that_costs_least() -> None:
    ranking = ClassRanking()
    ranking.add(np.array([0, 0, 1]), np.array([[0.1, 0.9], [0.5, 0.5], [0.9, 0.1]]))
    found = ranking.rank_rows(1).best_threshold(1.0, 100.0)
    assert found is not None
    assert found.threshold > 0.9
    assert found.cost == pytest.approx(1.0 / 3.0)


def test_confusions_of_two_streams_add_up() -> None:
    y, p, w = predicted("digits")
    whole, left, right = ConfusionCounts(), ConfusionCounts(), ConfusionCounts()
    top = p.argmax(axis=1)
    whole.add(y, top, w)
    left.add(y[:9], top[:9], w[:9])
    right.add(y[9:], top[9:], w[9:])
    left.merge(right)
    assert left.counts == pytest.approx(whole.counts, abs=1e-9)
    assert ConfusionCounts().mcc() is None
    assert ConfusionCounts().macro_f1() is None
