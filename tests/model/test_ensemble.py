"""Several networks as one: weights that follow success, and a mixture no worse than its parts."""

from __future__ import annotations

import time

import numpy as np
import pytest

from kbnn.array_types import FloatArray
from kbnn.core import kernel
from kbnn.core.config import Config
from kbnn.core.kernel import predict
from kbnn.core.state import init
from kbnn.model import ensemble
from kbnn.model.model import OnlineModel
from kbnn.model.serialize import copy_model
from kbnn.model.settings import Settings
from tests.bench.class_streams import learned, log_loss, probabilities
from tests.bench.data import block, judged, schema, trained
from tests.modelling import network, same


def rows(count: int, seed: int) -> tuple[FloatArray, FloatArray]:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((count, 4))
    return x, np.sin(2.0 * x[:, 0]) + x[:, 1] * x[:, 2] + 0.1 * rng.standard_normal(count)


def test_one_member_is_the_single_network() -> None:
    x, y = rows(300, 1)
    alone = trained(x, y, hidden=(8,), rehearse=0)
    one = trained(x, y, hidden=(8,), ensemble=1, rehearse=0)
    assert same(alone.predict(block(x, y)), one.predict(block(x, y)))
    several = trained(x, y, hidden=(8,), ensemble=3, rehearse=0)
    assert np.array_equal(network(several).mean, network(alone).mean)
    assert not np.array_equal(network(several, 1).mean, network(alone).mean)


def random_predictions(
    count: int, members: int, targets: int, seed: int = 2
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Labels, and means and variances of networks of different quality."""
    rng = np.random.default_rng(seed)
    y = rng.standard_normal((count, targets))
    spread = np.linspace(0.3, 2.0, members)[:, None]
    mean = y[:, None] + spread * rng.standard_normal((count, members, targets))
    var = np.broadcast_to(spread**2, mean.shape) * rng.uniform(0.5, 2.0, mean.shape)
    return y, mean, np.ascontiguousarray(var)


def pooled_log_density(w: FloatArray, m: FloatArray, v: FloatArray, y: float, c: float) -> float:
    """Log density of one label under the pooled moments."""
    mean = w @ m
    var = c * (w @ (v + (m - mean) ** 2))
    return float(-0.5 * np.log(2.0 * np.pi * var) - 0.5 * (y - mean) ** 2 / var)


def test_weights_move_along_the_gradient_of_the_pooled_log_density() -> None:
    y, mean, var = random_predictions(1, 3, 1)
    pool = ensemble.make_equal_weights(3)._replace(weight=np.array([0.5, 0.3, 0.2]), scale=1.3)
    _, after = ensemble.update_weights(pool, np.zeros((1, 0)), mean, var, y)
    w, m, v = pool.weight, mean[0, :, 0], var[0, :, 0]
    step = 1e-6
    slopes = []
    for k in range(3):
        moved = w + step * (np.arange(3) == k)
        # Along the simplex: what is added to one weight is taken from all in proportion.
        gain = pooled_log_density(moved / moved.sum(), m, v, y[0, 0], 1.3)
        slopes.append((gain - pooled_log_density(w, m, v, y[0, 0], 1.3)) / step)
    wanted = w * (1.0 + np.array(slopes) / (1.0 + 12.0))
    assert np.allclose(after.weight, wanted / wanted.sum(), atol=1e-6)


def test_benefits_compare_the_pool_with_and_without_a_network() -> None:
    y, mean, var = random_predictions(1, 3, 1, seed=5)
    pool = ensemble.make_equal_weights(3)._replace(weight=np.array([0.5, 0.3, 0.2]))
    _, after = ensemble.update_weights(pool, np.zeros((1, 0)), mean, var, y)
    w, m, v = pool.weight, mean[0, :, 0], var[0, :, 0]
    for k in range(3):
        rest = np.delete(w, k) / np.delete(w, k).sum()
        without = pooled_log_density(rest, np.delete(m, k), np.delete(v, k), y[0, 0], 1.0)
        assert after.benefit[k] == pytest.approx(
            pooled_log_density(w, m, v, y[0, 0], 1.0) - without, abs=1e-9
        )


def test_weights_of_classes_maximise_the_mixture() -> None:
    rng = np.random.default_rng(6)
    p = rng.uniform(0.05, 1.0, (4000, 3)) * np.array([1.0, 0.9, 0.3])
    none = np.zeros((4000, 3, 0))
    _, after = ensemble.update_weights(
        ensemble.make_equal_weights(3), np.log(p), none, none, np.zeros((4000, 0))
    )
    best = max(
        ((a, b, 1 - a - b) for a in np.linspace(0, 1, 21) for b in np.linspace(0, 1 - a, 21)),
        key=lambda w: np.log(p @ np.array(w)).mean(),
    )
    assert np.abs(after.weight - best).max() < 0.25  # a memory of 64 rows leaves noise
    assert after.weight[2] < 0.1


@pytest.mark.parametrize("targets", [0, 1, 2])
def test_kernel_and_reference_follow_the_same_weights_in_any_chunks(targets: int) -> None:
    y, mean, var = random_predictions(300, 4, max(targets, 1))
    y, mean, var = y[:, :targets], mean[..., :targets], var[..., :targets]
    if targets:
        y[::5, 0] = np.nan
        y[7] = 1e6
    scores = np.random.default_rng(8).normal(-1.0, 2.0, (300, 0 if targets else 4))
    given = [np.ascontiguousarray(array) for array in (scores, mean, var, y)]
    found = []
    engines = [kernel.follow_weights] if kernel.is_compiled() else []
    for follow in (*engines, ensemble.follow_weights):
        weight, benefit, scale = np.full(4, 0.25), np.zeros(4), np.ones(1)
        used = np.empty((300, 5))
        follow(*given[:4], weight, scale, benefit, used, 16.0, ensemble._LIMITS)  # type: ignore[arg-type,call-arg]  # four arrays
        found.append(np.concatenate((weight, benefit, scale, used.ravel())))
    assert np.allclose(found[0], found[-1], rtol=1e-9, atol=1e-12)
    pool = ensemble.make_equal_weights(4)
    whole, end = ensemble.update_weights(pool, *given)
    first, pool = ensemble.update_weights(pool, *(array[:130] for array in given))
    second, pool = ensemble.update_weights(pool, *(array[130:] for array in given))
    assert np.array_equal(np.vstack((first, second)), whole)
    assert np.array_equal(pool.weight, end.weight)
    assert np.array_equal(pool.benefit, end.benefit)
    assert pool.scale == end.scale
    assert np.allclose(whole[:, :-1].sum(axis=1), 1.0)


def test_no_members_give_no_results() -> None:
    assert ensemble.map_members(lambda k: k, [], 100_000) == []


def test_a_network_that_does_not_pay_is_dropped_and_recorded() -> None:
    x, _ = rows(2100, 3)
    y = np.random.default_rng(4).standard_normal(2100)  # nothing to learn
    model = OnlineModel(Settings(kind="regression"), schema(4))
    model.learn(block(x[:2047], y[:2047, None]))
    before = model.learner_state
    assert len(before.members) == 4
    model.learn(block(x[2047:], y[2047:, None]))
    after = model.learner_state
    assert len(after.members) == len(after.specs) == len(after.bins) == len(after.pool.weight) == 3
    (dropped,) = after.dropped
    assert dropped.row == 2048
    worst = before.specs.index(dropped.member)
    rate = before.pool.benefit[worst] / before.pool.benefit_rows  # one row before the check
    assert dropped.benefit == pytest.approx(rate, abs=0.01)
    assert dropped.benefit < dropped.price
    assert set(before.specs) - set(after.specs) == {dropped.member}
    assert copy_model(model).learner_state.dropped == after.dropped


def test_a_network_that_doubles_the_cost_must_earn_the_margin() -> None:
    prices = ensemble.compute_prices(np.array([1.0, 1.0]), ensemble.compute_margin(2048, 1))
    assert np.allclose(prices, ensemble.MARGIN_NATS)
    assert ensemble.compute_margin(65536, 1) == 32 * ensemble.MARGIN_NATS
    assert ensemble.compute_margin(65536, 10) == ensemble.MARGIN_NATS
    pool = ensemble.make_equal_weights(2)._replace(benefit=np.array([9.0, 11.0]), benefit_rows=2000)
    assert ensemble.find_costly_member(pool, prices) == 0
    pool = pool._replace(benefit=np.array([11.0, 11.0]))
    assert ensemble.find_costly_member(pool, prices) is None


def test_requested_networks_are_exactly_those_requested() -> None:
    assert Settings(hidden=(50,)).list_members() == (ensemble.Member((50,)),)
    assert len(Settings(hidden=(50,), ensemble=3).list_members()) == 3
    assert Settings(covariance="full").list_members() == (ensemble.Member((50,), "full"),)
    assert len(Settings().list_members(inputs=5)) == 4
    assert len(Settings().list_members(inputs=5, is_series=True)) == 2
    assert len(Settings(rehearse=0).list_members(inputs=5)) == 3
    assert len(Settings().list_members(inputs=5, outputs=10)) == 4
    assert len(Settings().list_members(inputs=64, outputs=10)) == 3  # too many to encode
    assert len(Settings(hidden="best").list_members(inputs=5, outputs=10, is_series=True)) == 1
    encodings = {member.encoding for member in Settings(encoding="none").list_members(5)}
    assert encodings == {"none"}
    assert {one.encoding for one in Settings().list_members(inputs=300)} == {"none"}


def test_a_mixture_has_the_moments_of_its_parts() -> None:
    x = np.random.default_rng(3).standard_normal((6, 4))
    members = [predict(init(Config(4, hidden=(5,)), seed), x) for seed in range(3)]
    made = ensemble.pool_predictions(members, np.tile([0.5, 0.3, 0.2, 1.7], (6, 1)))
    means = np.stack([m.mean[:, 0] for m in members])
    second = np.stack([m.function_var[:, 0] + m.noise_var[:, 0] for m in members]) + means**2
    share = np.array([0.5, 0.3, 0.2])
    assert np.allclose(made.mean[:, 0], share @ means)
    total = made.function_var[:, 0] + made.noise_var[:, 0]
    assert np.allclose(total, 1.7 * (share @ second - (share @ means) ** 2))


def test_a_mixture_doubts_a_label_as_its_parts_do() -> None:
    x = np.zeros((2, 1))
    members = [predict(init(Config(1, hidden=(2,)), seed), x) for seed in range(2)]
    first, second = np.array([1.0, 0.2]), np.array([0.0, 0.6])
    members = [members[0]._replace(inlier=first), members[1]._replace(inlier=second)]
    made = ensemble.pool_predictions(members, np.array([[0.75, 0.25, 1.0], [0.5, 0.5, 1.0]]))
    assert made.inlier == pytest.approx([0.75, 0.4])


def give_weight(*weight: float) -> ensemble.PoolWeights:
    """Weights of an ensemble."""
    return ensemble.make_equal_weights(len(weight))._replace(weight=np.array(weight))


def test_a_prediction_is_mixed_by_the_evidence_so_far() -> None:
    x, y = rows(200, 9)
    model, alone = (trained(x, y, hidden=(5,), ensemble=count, rehearse=0) for count in (2, 1))
    model.learner_state = model.learner_state._replace(pool=give_weight(1.0, 0.0))
    assert np.allclose(model.predict(block(x, y)).mean, alone.predict(block(x, y)).mean)
    model.learner_state = model.learner_state._replace(pool=give_weight(0.0, 1.0))
    assert not np.allclose(model.predict(block(x, y)).mean, alone.predict(block(x, y)).mean)


def test_members_differ_in_the_scale_of_their_priors() -> None:
    """Of means and of standard deviations, the first member's as they are."""
    x, y = rows(40, 8)
    model = trained(x, y, hidden=(400,), ensemble=5)
    first = network(model)
    for k, (means, sds) in enumerate([(1, 1), (2, 2), (1, 2), (2, 1), (0.5, 1)]):
        member = network(model, k)
        assert np.allclose(member.prior_var, sds**2 * first.prior_var)
        spread = np.std(member.prior_mean[:2000]) / np.std(first.prior_mean[:2000])
        assert spread == pytest.approx(means, rel=0.1)


@pytest.mark.parametrize("seed", range(2))
def test_a_mixture_beats_its_average_member(seed: int) -> None:
    x, y = rows(900, seed + 4)
    model = trained(x[:600], y[:600], hidden=(20,), ensemble=4, seed=seed)
    mixed = judged(model, x[600:], y[600:])
    parts = []
    for k in range(4):
        alone = copy_model(model)
        one = alone.learner_state.members[k : k + 1]
        alone.learner_state = alone.learner_state._replace(
            members=one,
            pool=ensemble.make_equal_weights(1),
            bins=alone.learner_state.bins[:1],
            specs=alone.learner_state.specs[:1],
        )
        parts.append(judged(alone, x[600:], y[600:]))
    assert mixed.rmse < max(part.rmse for part in parts)
    assert mixed.nll < np.mean([part.nll for part in parts])


def test_classes_are_mixed_too() -> None:
    x, _ = rows(500, 6)
    y = (x[:, 0] * x[:, 1] > 0).astype(np.float64)
    model = learned(x[:400], y[:400], 2, hidden=(15,), ensemble=3)
    p = probabilities(model, x[400:])
    assert np.allclose(np.sum(p, axis=1), 1.0)
    assert log_loss(p, y[400:]) < 0.6


def test_no_members_need_no_threads() -> None:
    """Replay finds no network once every network that replays was dropped."""
    assert ensemble.map_members(lambda member: member, [], ensemble.THREAD_ROWS) == []


def test_an_ensemble_of_many_classes_gives_the_same_bits_in_any_chunks() -> None:
    rng = np.random.default_rng(11)
    y = rng.integers(0, 5, 700).astype(np.float64)
    x = rng.standard_normal((700, 3)) + 2.0 * y[:, None] * np.array([1.0, 0.0, -1.0])
    whole = learned(x, y, 5)
    chunked = OnlineModel(Settings(), schema(3, 1, 5))
    for start in range(0, 700, 37):
        stop = min(start + 37, 700)
        chunked.learn(block(x[start:stop], y[start:stop], first=start + 1))
        if start == 333:
            chunked = copy_model(chunked)
    assert [len(m.learner_state.members) for m in (whole, chunked)] == [4, 4]
    assert np.array_equal(whole.learner_state.pool.weight, chunked.learner_state.pool.weight)
    found = [probabilities(model, x[:50]) for model in (whole, chunked)]
    assert np.array_equal(found[0], found[1])


def test_encoded_networks_are_dropped_when_classes_become_many() -> None:
    rng = np.random.default_rng(12)
    y = np.sort(rng.integers(0, 6, 600)).astype(np.float64)
    x = rng.standard_normal((600, 3)) + y[:, None]
    model = learned(x, y, 6)
    specs = model.learner_state.specs
    assert len(specs) == 3
    assert all(spec.encoding == "none" for spec in specs)
    assert np.isclose(np.sum(model.learner_state.pool.weight), 1.0)


def test_processor_time_of_threads_is_counted_for_the_caller() -> None:
    def work(member: int) -> int:
        until = time.thread_time() + 0.02
        while time.thread_time() < until:
            pass
        return member + 1

    before = ensemble.get_helper_seconds() + time.thread_time()
    assert ensemble.map_members(work, [1, 2, 3], 100_000) == [2, 3, 4]
    assert 0.06 <= ensemble.get_helper_seconds() + time.thread_time() - before < 0.09
    before = ensemble.get_helper_seconds()
    assert ensemble.map_members(work, [1, 2], 1) == [2, 3]
    assert ensemble.get_helper_seconds() == before
