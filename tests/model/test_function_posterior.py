"""Draws of functions and rows to label, against exact posteriors of linear models."""

from __future__ import annotations

import numpy as np
import pytest

from kbnn.array_types import FloatArray
from kbnn.core.belief import open_belief
from kbnn.core.block_filter import predict_outputs
from kbnn.core.input_moments import InputMoments
from kbnn.core.jacobian import compute_slopes, function_var, multiply_covariance
from kbnn.core.likelihoods import OutputEvidence, find_likelihood
from kbnn.model import function_posterior
from kbnn.model.ensemble import encode_inputs, shrink_scale
from kbnn.model.function_posterior import (
    FunctionSampler,
    class_probabilities_of,
    rank_queries,
)
from kbnn.model.model import OnlineModel
from kbnn.model.settings import Settings
from tests.bench.data import block, schema, trained
from tests.modelling import network


def curved_rows(count: int, inputs: int = 3, seed: int = 0) -> tuple[FloatArray, FloatArray]:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((count, inputs))
    return x, np.tanh(x[:, 0]) + 0.5 * x[:, 1] ** 2 + 0.1 * rng.standard_normal(count)


@pytest.mark.parametrize("hidden", [(), (5,), (4, 3)])
def test_slopes_of_every_output_agree_with_the_filter(hidden: tuple[int, ...]) -> None:
    x, y = curved_rows(200)
    model = trained(x, np.column_stack((y, -y * y)), hidden=hidden)
    belief = open_belief(network(model))
    z = x[:4]
    for output in range(2):
        found = compute_slopes(belief, z, output)
        var = function_var(belief, found.weights)
        same = np.einsum("nw,nw->n", multiply_covariance(belief, found.weights), found.weights)
        assert same == pytest.approx(var, rel=1e-12)
        for row in range(4):
            out, _ = predict_outputs(belief, InputMoments(z[row], None))
            assert found.mean[row] == pytest.approx(out.mean[output], rel=1e-12)
            stated = belief.variance_inflation * out.cov[output, output]
            assert var[row] == pytest.approx(stated, rel=1e-9)


def pool_scale(model: OnlineModel) -> float:
    """The factor of pooled variances."""
    pool = model.learner_state.pool
    return float(shrink_scale(np.array([pool.scale]), np.array([pool.rows]))[0])


def pooled_covariance(model: OnlineModel, x: FloatArray) -> FloatArray:
    """The covariance of the first output at rows, of the mixture of all networks."""
    learned = model.learner_state
    z, _ = model.learner.standardize_inputs(learned, x, None)
    within, means = np.zeros((len(x), len(x))), []
    for member, bins, weight in zip(
        learned.members, learned.bins, learned.pool.weight.tolist(), strict=True
    ):
        belief, encoded = open_belief(member.state()), encode_inputs(bins, z, None)[0]
        h = compute_slopes(belief, encoded).weights
        within += weight * (multiply_covariance(belief, h) @ h.T)
        means.append(member.predict(encoded).mean[:, 0])
    off = np.array(means) - learned.pool.weight @ np.array(means)
    return pool_scale(model) * (within + off.T @ (learned.pool.weight[:, None] * off))


def test_draws_have_the_mean_sd_and_correlations_of_the_function() -> None:
    x, y = curved_rows(300)
    model = trained(x, y)
    at = np.array([[0.0, 0.0, 0.0], [0.1, 0.0, 0.0], [2.5, -2.0, 1.0]])
    rows = block(at, np.zeros(3))
    draws = FunctionSampler(model, 4000, seed=1).draw(rows)[:, :, 0]
    told = model.predict(rows)
    sd = told.function_sd[:, 0]
    assert np.all(np.abs(draws.mean(axis=0) - told.mean[:, 0]) < 4.5 * sd / np.sqrt(4000))
    assert draws.std(axis=0) == pytest.approx(sd, rel=0.06)
    cov = pooled_covariance(model, at)
    exact = cov / np.sqrt(np.outer(np.diag(cov), np.diag(cov)))
    assert np.corrcoef(draws.T) == pytest.approx(exact, abs=0.06)
    assert exact[0, 1] > 0.9 > exact[0, 2]


def test_the_same_functions_are_evaluated_in_every_batch() -> None:
    x, y = curved_rows(200)
    model = trained(x, y, ensemble=2)
    sampler = FunctionSampler(model, 5, seed=2)
    whole = sampler.draw(block(x[:6], y[:6]))
    parts = [sampler.draw(block(x[:2], y[:2])), sampler.draw(block(x[2:6], y[2:6]))]
    assert np.concatenate(parts, axis=1) == pytest.approx(whole, rel=1e-12)
    assert np.array_equal(FunctionSampler(model, 5, seed=2).draw(block(x[:6], y[:6])), whole)
    assert not np.array_equal(FunctionSampler(model, 5, seed=3).draw(block(x[:6], y[:6])), whole)


@pytest.mark.parametrize("kind", ["positive", "count", "amount", "share"])
def test_draws_of_other_numbers_average_to_the_mean(kind: str) -> None:
    x, y = curved_rows(400)
    rng = np.random.default_rng(0)
    y = {
        "positive": np.exp(y),
        "count": rng.poisson(np.exp(y)).astype(float),
        "amount": np.where(y > 0.3, np.exp(y), 0.0),
        "share": 1.0 / (1.0 + np.exp(-y)),
    }[kind]
    # Pooled moments of the presence of an amount are not those of the mixture: one network.
    model = trained(x, y, kind=kind, hidden=(20,)) if kind == "amount" else trained(x, y, kind=kind)
    rows = block(x[:20], y[:20])
    draws = FunctionSampler(model, 2000).draw(rows)[:, :, 0]
    assert np.all(draws >= 0.0)
    told = model.predict(rows)
    assert draws.mean(axis=0) == pytest.approx(told.mean[:, 0], rel=0.12, abs=0.02)
    assert draws.std(axis=0) == pytest.approx(told.function_sd[:, 0], rel=0.35, abs=0.02)


def test_draws_of_classes_average_to_their_probabilities() -> None:
    x, y = curved_rows(400)
    for labels in (np.digitize(y, [0.0, 1.0]).astype(float), (y > 0.5).astype(float)):
        classes = int(labels.max()) + 1
        model = OnlineModel(Settings(), schema(3, classes=classes))
        model.learn(block(x, labels))
        rows = block(x[:30], labels[:30])
        draws = FunctionSampler(model, 1000).draw(rows)
        assert draws.shape == (1000, 30, classes)
        assert draws.sum(axis=2) == pytest.approx(np.ones((1000, 30)), abs=1e-9)
        assert draws.mean(axis=0) == pytest.approx(model.predict(rows).probability, abs=0.03)
        assert np.all((draws >= 0.0) & (draws <= 1.0))


@pytest.mark.parametrize("name", ["bernoulli", "categorical"])
def test_probabilities_of_known_outputs_are_those_of_the_likelihood(name: str) -> None:
    outputs = np.random.default_rng(0).standard_normal((9, 1 if name == "bernoulli" else 4)) * 3.0
    width = outputs.shape[1]
    likelihood = find_likelihood(name)
    for row, p in zip(outputs, class_probabilities_of(outputs), strict=True):
        known = OutputEvidence(row, np.zeros((width, width)), np.zeros(width))
        assert p == pytest.approx(likelihood.class_probabilities(known), abs=1e-12)


def test_rows_to_label_are_those_of_the_exact_posterior() -> None:
    """A linear model: every candidate is learned in turn, and the variances are summed."""
    x, y = curved_rows(60)
    x[:, 2] *= 0.1
    x[50:, 2] *= 30.0
    model = trained(x, y, hidden=())
    rows = block(x, y)
    found = rank_queries(model, rows, 6)
    state = network(model)
    belief = open_belief(state)
    z, _ = model.learner.standardize_inputs(model.learner_state, rows.x, None)
    h = np.column_stack((np.ones(len(z)), np.clip(z, -8.0, 8.0)))
    p = belief.variance_inflation * belief.stacks[0].cov[0]
    told = model.learner_state.members[0].predict(z)
    noise = told.noise_var[:, 0]
    start = float(np.einsum("ni,ij,nj->", h, p, h))
    for step, chosen in enumerate(found.rows):
        left = {}
        for j in set(range(60)) - set(found.rows[:step].tolist()):
            ph = p @ h[j]
            after = p - np.outer(ph, ph) / (h[j] @ ph + noise[j])
            left[j] = float(np.einsum("ni,ij,nj->", h, after, h))
        assert chosen == min(left, key=left.__getitem__)
        assert found.remaining[step] == pytest.approx(left[int(chosen)] / start, rel=1e-9)
        ph = p @ h[chosen]
        p = p - np.outer(ph, ph) / (h[chosen] @ ph + noise[chosen])


def test_rows_to_label_follow_the_pooled_covariance_of_several_networks() -> None:
    x, y = curved_rows(60)
    model = trained(x, y)
    learned = model.learner_state
    assert len(learned.members) > 1
    found = rank_queries(model, block(x, y), 3)
    z, _ = model.learner.standardize_inputs(learned, x, None)
    parts = zip(learned.members, learned.bins, learned.pool.weight.tolist(), strict=True)
    noise = sum(w * m.predict(encode_inputs(b, z, None)[0]).noise_var[:, 0] for m, b, w in parts)
    noise = noise * pool_scale(model)
    cov = pooled_covariance(model, x)
    start = np.trace(cov)
    for row, remaining in zip(found.rows, found.remaining, strict=True):
        gain = np.sum(cov**2, axis=1) / (np.diag(cov) + noise)
        assert row == np.argmax(gain)
        cov = cov - np.outer(cov[row], cov[row]) / (cov[row, row] + noise[row])
        assert remaining == pytest.approx(np.trace(cov) / start, rel=1e-9)


def test_a_batch_of_questions_is_not_one_question_repeated() -> None:
    """Of ten copies of the most uncertain row and one other, the second label goes to the other."""
    x, y = curved_rows(300)
    model = trained(x, y)
    pool = np.vstack([np.full((10, 3), 2.5), [[-2.5, 2.5, -2.5]], x[:20] * 0.1])
    found = rank_queries(model, block(pool, np.zeros(len(pool))), 2)
    assert set(found.rows.tolist()) & set(range(10))
    assert 10 in found.rows.tolist()
    assert np.all(np.diff(found.remaining) < 0.0)


def test_every_target_type_can_be_asked_about(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = curved_rows(200)
    rng = np.random.default_rng(0)
    models = [
        trained(x, np.exp(y), kind="positive"),
        trained(x, rng.poisson(np.exp(y)).astype(float), kind="count"),
        trained(x, np.where(y > 0.3, np.exp(y), 0.0), kind="amount"),
        trained(x, np.column_stack((y, 1e3 * y)), hidden=(5,)),
        trained(x, y, ensemble=2),
        OnlineModel(Settings(), schema(3, classes=3)),
    ]
    models[-1].learn(block(x, np.digitize(y, [0.0, 1.0]).astype(float)))
    for model in models:
        whole = rank_queries(model, block(x, y), 5)
        assert len(set(whole.rows.tolist())) == 5
        assert np.all(np.diff(whole.remaining) < 0.0)
        assert 0.0 < whole.remaining[-1] < 1.0
        with monkeypatch.context() as patch:
            patch.setattr(function_posterior, "BLOCK_NUMBERS", 100_000)
            patch.setattr(function_posterior, "MAX_CANDIDATE_ROWS", 40)
            cut = rank_queries(model, block(x, y), 5)
        assert cut.rows[0] == whole.rows[0]
        assert cut.remaining[0] == pytest.approx(whole.remaining[0], rel=1e-9)
    assert len(rank_queries(models[0], block(x[:3], y[:3]), 9).rows) == 3
