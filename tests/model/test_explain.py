"""Contributions to predictions, against brute force, the shap package and answers by hand."""

from __future__ import annotations

import itertools
import math
import warnings
from dataclasses import replace

import numpy as np
import pytest

from kbnn.array_types import FloatArray
from kbnn.core.kernel import open_session
from kbnn.core.layout import layout_of, pack_triangle, unpack_triangle
from kbnn.core.state import State
from kbnn.data.batch import Rows
from kbnn.data.clock import Clock
from kbnn.data.lags import Lag
from kbnn.data.schema import Column, Place, Schema
from kbnn.model import explain
from kbnn.model.explain import (
    Explanation,
    compute_importance,
    explain_rows,
    format_contributions,
    group_inputs,
)
from kbnn.model.model import OnlineModel
from kbnn.model.scaler import CENTER, SCALE
from kbnn.model.settings import Settings
from tests.bench.data import block, schema, trained
from tests.modelling import mixed_rows, network, new_model


def correlated_rows(count: int, inputs: int, seed: int = 0) -> tuple[FloatArray, FloatArray]:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((count, inputs)) @ rng.standard_normal((inputs, inputs))
    y = 2.0 * x[:, 0] - np.tanh(x[:, 1] * x[:, 2]) + 0.1 * rng.standard_normal(count)
    return x, y


def gap(found: Explanation) -> float:
    """How far the contributions are from adding up."""
    total = found.base + found.contributions.sum(axis=2)
    return float(np.max(np.abs(total - found.value)))


def with_network(model: OnlineModel, state: State) -> OnlineModel:
    """Put another network into a model."""
    leader = model.candidates[0]
    learned = leader.learned._replace(members=(open_session(state),))
    model.candidates = (replace(leader, learned=learned),)
    return model


def brute_force(v: dict[frozenset[int], float], columns: int) -> list[float]:
    """Average the change that each column makes over all orders of the columns."""
    total = [0.0] * columns
    for order in itertools.permutations(range(columns)):
        seen: frozenset[int] = frozenset()
        for column in order:
            total[column] += v[seen | {column}] - v[seen]
            seen |= {column}
    return [part / math.factorial(columns) for part in total]


def all_subsets(columns: int) -> list[frozenset[int]]:
    return [
        frozenset(some)
        for size in range(columns + 1)
        for some in itertools.combinations(range(columns), size)
    ]


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("regression", ["mean", "function_sd", "noise_sd"]),
        ("positive", ["mean", "function_sd", "noise_sd", "log_mean"]),
        ("count", ["mean", "function_sd", "noise_sd", "log_mean"]),
        ("amount", ["mean", "function_sd", "noise_sd", "log_mean"]),
    ],
)
def test_contributions_add_up_for_numbers(kind: str, names: list[str]) -> None:
    x, z = correlated_rows(300, 4)
    y = {
        "regression": z,
        "positive": np.exp(0.3 * z),
        "count": np.random.default_rng(1).poisson(np.exp(0.3 * z)).astype(float),
        "amount": np.where(z > 0.0, np.exp(0.3 * z), 0.0),
    }[kind]
    model = trained(x, y, kind=kind)
    x[3, 1] = np.nan
    rows = block(x[:20], y[:20])
    found = explain_rows(model, rows)
    assert found.quantities == names
    assert gap(found) < 1e-9
    told = model.predict(rows)
    assert np.array_equal(found.value[:, 0], told.mean[:, 0])
    assert np.array_equal(found.value[:, 1], told.function_sd[:, 0])
    empty = model.predict(block(np.full((1, 4), np.nan), y[:1]))
    assert np.all(found.base[:, 0] == empty.mean[0, 0])
    assert not found.errors.any()
    assert np.all(found.contributions[3, :, 1] == 0.0)  # missing in the row
    assert np.all(found.contributions[3, 0, [0, 2, 3]] != 0.0)


def test_contributions_to_classes_are_those_to_the_log_odds_of_the_predicted_label() -> None:
    x, z = correlated_rows(400, 3)
    y = np.digitize(z, [-1.0, 1.0]).astype(float)
    model = OnlineModel(Settings(), schema(3, classes=3))
    model.learn(block(x, y))
    rows = block(x[:30], y[:30])
    found, told = explain_rows(model, rows), model.predict(rows)
    best = told.probability.max(axis=1)
    assert found.quantities == ["log_odds"]
    assert found.value[:, 0] == pytest.approx(np.log(best / (1.0 - best)), abs=1e-9)
    assert len(np.unique(told.probability.argmax(axis=1))) > 1
    assert gap(found) < 1e-9


def test_a_network_is_explained_as_by_all_orders_of_its_inputs() -> None:
    """Six inputs, 720 orders; every subset is predicted as an ordinary row with gaps."""
    x, y = correlated_rows(400, 6)
    model = trained(x, y)
    found = explain_rows(model, block(x[:2], y[:2]))
    for row in range(2):
        for at, field in enumerate(("mean", "function_sd", "noise_sd")):
            v = {}
            for some in all_subsets(6):
                seen = np.where([j in some for j in range(6)], x[row], np.nan)
                told = model.predict(block(seen[None], y[:1]))
                v[some] = float(getattr(told, field)[0, 0])
            assert found.contributions[row, at] == pytest.approx(brute_force(v, 6), abs=1e-9)


def test_a_linear_model_is_explained_by_conditional_expectations() -> None:
    """E[y | some inputs] of a Gaussian, by inverting its covariance; 6 inputs, all subsets."""
    x, y = correlated_rows(400, 6)
    model = trained(x, y, hidden=(), clip=False)
    state, columns = network(model), model.learner_state.columns
    weights = state.mean[1:] * columns[0, SCALE]
    mu, sigma = state.input_mean, unpack_triangle(state.input_cov, 6)
    rows = x[:3]
    found = explain_rows(model, block(rows, y[:3])).select("mean")
    z = (rows - columns[1:, CENTER]) / columns[1:, SCALE]
    for row in range(3):
        v = {}
        for some in all_subsets(6):
            s = sorted(some)
            gain = sigma[:, s] @ np.linalg.inv(sigma[np.ix_(s, s)])
            v[some] = float(weights @ (mu + gain @ (z[row, s] - mu[s])))
        assert found[row] == pytest.approx(brute_force(v, 6), abs=1e-6)


def test_a_linear_model_with_independent_inputs_is_explained_as_by_shap() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        shap = pytest.importorskip("shap")
    x, y = correlated_rows(300, 5)
    model = trained(x, y, hidden=(), clip=False)
    state = network(model)
    model = with_network(model, state._replace(input_cov=pack_triangle(np.eye(5))))
    columns = model.learner_state.columns
    slope = state.mean[1:] * columns[0, SCALE] / columns[1:, SCALE]
    middle = columns[1:, CENTER] + columns[1:, SCALE] * state.input_mean
    explainer = shap.LinearExplainer((slope, 0.0), (middle, np.eye(5)))
    found = explain_rows(model, block(x[:50], y[:50])).select("mean")
    assert found == pytest.approx(explainer.shap_values(x[:50]), abs=1e-6)


def test_contributions_to_the_uncertainty_of_a_made_model() -> None:
    """y = 3 x0 + x1, variances 1/4 of the bias, 1 and 1/100 of the weights, inputs ~ N(0, I).

    With x0 unknown the variance has 3^2 + 1 instead of x0^2 of the known one; with x1 unknown
    1 + 1/100 instead of x1^2/100.
    """
    x = np.random.default_rng(0).standard_normal((60, 2))
    model = trained(x, x[:, 0] + x[:, 1], hidden=())
    state = network(model)
    cov = np.diag([0.25, 1.0, 0.01])
    state = state._replace(
        mean=np.array([0.0, 3.0, 1.0]),
        cov=layout_of(state.config).pack_blocks([cov]),
        input_mean=np.zeros(2),
        input_cov=pack_triangle(np.eye(2)),
        counts=np.zeros_like(state.counts),
    )
    model = with_network(model, state)
    leader = model.candidates[0].learned
    columns = leader.columns.copy()
    columns[:, CENTER], columns[:, SCALE] = 0.0, 1.0
    calibration = model.task.init_calibration(False)
    learned = leader._replace(columns=columns, calibration=calibration)
    model.candidates = (replace(model.candidates[0], learned=learned),)
    found = explain_rows(model, block(np.array([[0.5, 2.0]]), np.zeros(1)))
    known, unknown = [0.25, 0.04], [10.0, 1.01]
    sd = {
        some: math.sqrt(0.25 + sum(known[j] if j in some else unknown[j] for j in range(2)))
        for some in all_subsets(2)
    }
    assert found.base[0, 1] == pytest.approx(sd[frozenset()], abs=1e-9)
    assert found.select("function_sd")[0] == pytest.approx(brute_force(sd, 2), abs=1e-9)
    assert found.select("mean")[0] == pytest.approx([1.5, 2.0], abs=1e-9)


def test_sampled_contributions_are_within_their_errors_and_add_up() -> None:
    x, y = correlated_rows(500, 8)
    model = trained(x, y)
    rows = block(x[:12], y[:12])
    exact = explain_rows(model, rows)
    sampled = explain_rows(model, rows, max_exact_columns=4, tolerance=0.002, seed=3)
    assert gap(sampled) < 1e-9
    assert sampled.errors.max() > 0.0
    off = sampled.contributions - exact.contributions
    assert np.sqrt(np.mean(off**2)) < 0.02 * np.mean(np.abs(exact.contributions).sum(axis=2))
    known = sampled.errors > 1e-12
    z = off[known] / sampled.errors[known]
    assert 0.7 < np.sqrt(np.mean(z**2)) < 1.6


def test_a_row_is_explained_the_same_whatever_rows_are_beside_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x, y = correlated_rows(300, 6)
    model = trained(x, y)
    for most in (8, 2):
        whole = explain_rows(model, block(x[:9], y[:9]), max_exact_columns=most)
        one = explain_rows(model, block(x[4:5], y[4:5]), max_exact_columns=most)
        assert np.array_equal(whole.contributions[4], one.contributions[0])
        assert np.array_equal(whole.errors[4], one.errors[0])
        with monkeypatch.context() as patch:
            patch.setattr(explain, "BLOCK_PREDICTIONS", 7)
            cut = explain_rows(model, block(x[:9], y[:9]), max_exact_columns=most)
        assert np.array_equal(cut.contributions, whole.contributions)


def test_games_of_pairs_need_one_pair_of_orders() -> None:
    """v(S) = sum of a_i + sum of b_ij over the pairs in S: phi_i = a_i + sum_j b_ij / 2."""
    rng = np.random.default_rng(2)
    a, b = rng.standard_normal(20), np.triu(rng.standard_normal((20, 20)), 1)

    def evaluate(at: np.ndarray, masks: np.ndarray) -> FloatArray:
        some = masks.astype(float)
        value = some @ a + np.einsum("mi,ij,mj->m", some, b, some)
        return np.tile(value[None, :, None], (len(at), 1, 1))

    _, _, found = explain.sample_shapley(evaluate, 1, 20, tolerance=0.0, max_pairs=2)
    assert found.values[0, 0] == pytest.approx(a + 0.5 * (b + b.T).sum(axis=0), abs=1e-9)
    assert found.errors == pytest.approx(np.zeros((1, 1, 20)), abs=1e-9)


def test_categories_and_noisy_inputs_are_explained_by_column() -> None:
    model = new_model()
    rows = mixed_rows(400)
    model.learn(rows)
    some = Rows(rows.x[:30], rows.y[:30], rows.number[:30], rows.x_sd[:30])  # type: ignore[index]
    found = explain_rows(model, some)
    assert found.columns == ["x0", "x1", "x2", "c"]
    assert gap(found) < 1e-9
    told = model.predict(some)
    assert np.array_equal(found.value[:, 0], told.mean[:, 0])


def test_clock_and_lags_belong_to_their_columns() -> None:
    clock = Clock("t", "text", 0.0, 3600.0, ["day"], ["t day sin", "t day cos"])
    layout = ["temp", "t day sin", "t day cos", "y 1", "temp 1"]
    known = Schema(
        [
            Column("t", "time", "feature"),
            Column("temp", "number", "feature"),
            Column("y", "number", "target"),
        ],
        "regression",
        layout=[Place(name, None) for name in layout],
        clock=clock,
        lags=[Lag("y 1", "y", 1), Lag("temp 1", "temp", 1)],
    )
    assert group_inputs(known) == [("temp", (0, 4)), ("t", (1, 2)), ("y", (3,))]


def test_ensembles_and_rows_of_the_warm_up_are_explained() -> None:
    x, y = correlated_rows(300, 3)
    for model in (trained(x, y, ensemble=2), trained(x[:12], y[:12])):
        assert gap(explain_rows(model, block(x[:5], y[:5]))) < 1e-9
    none = explain_rows(model, block(x[:0], y[:0]))
    assert none.contributions.shape == (0, 3, 3)


def test_the_largest_contributions_are_formatted() -> None:
    parts = np.array([0.5, -3.14159, 0.0, 1.2])
    assert format_contributions(["a", "b", "c", "d"], parts, 2) == "b -3.14, d +1.2"
    assert format_contributions(["a", "b", "c", "d"], parts, 9) == "b -3.14, d +1.2, a +0.5"


def test_importance_is_the_mean_size_of_contributions() -> None:
    """y = 5 a - 2 b with independent inputs of sd 1 and 3: mean |phi| is |w| sd sqrt(2 / pi)."""
    x = np.random.default_rng(0).normal(0.0, [1.0, 3.0, 1.0], (2000, 3))
    y = 5.0 * x[:, 0] - 2.0 * x[:, 1] + 0.1 * np.random.default_rng(1).standard_normal(2000)
    model = trained(x, y, hidden=())
    found = compute_importance(model)
    assert list(found) == ["mean", "function_sd", "noise_sd"]
    assert [one.column for one in found["mean"]] == ["x1", "x0", "x2"]
    for one, exact in zip(found["mean"], (6.0, 5.0), strict=False):
        size = exact * math.sqrt(2.0 / math.pi)
        assert abs(one.size - size) < 4.0 * one.error + 0.05
        assert 0.0 < one.error < 0.08 * size
    assert found["mean"][2].size < 0.2  # only through its correlations in the sample
    assert compute_importance(trained(x[:9], y[:9])) == {}


def test_importance_is_that_of_all_sampled_rows_not_of_the_first() -> None:
    rng = np.random.default_rng(5)
    x = rng.standard_normal((600, 2))
    x[:300, 1] = np.nan
    y = x[:, 0] + np.where(np.isnan(x[:, 1]), 0.0, 3.0 * x[:, 1])
    model = trained(x, y, hidden=(6,))
    sizes = {found.column: found.size for found in compute_importance(model)["mean"]}
    assert min(sizes.values()) > 0.2
