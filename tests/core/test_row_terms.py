"""Single terms of a row, each against quadrature or numbers worked out by hand.

The beliefs are chosen so that one term decides the result and everything else is exact. Both
engines are asked: an error that they share would pass every comparison of the two.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import special, stats

from kbnn import Config, State, init
from kbnn.array_types import FloatArray
from kbnn.core import kernel, reference
from kbnn.core.config import Covariance
from kbnn.core.layout import layout_of, pack_triangle, unpack_triangle
from kbnn.core.reference import ALARM, LEARNED, REJECTED, Records
from kbnn.core.state import COUNT

each_engine = pytest.mark.parametrize("module", [kernel, reference], ids=["engine", "twin"])
PLAIN: dict[str, Any] = {"robust": False, "drift": False}


def believed(config: Config, mean: FloatArray, blocks: list[FloatArray]) -> State:
    """A state with these weight means and covariance blocks."""
    cov = layout_of(config).pack_blocks(blocks)
    return init(config)._replace(mean=np.asarray(mean, dtype=float), cov=cov)


def learned(module: Any, state: State, x: FloatArray, y: float) -> tuple[State, Records]:
    found: tuple[State, Records] = module.learn_arrays(state, x, np.array([[y]]))
    return found


def certain_line(level: float, **options: Any) -> tuple[State, FloatArray]:
    """y = 0.3 + 0.5 x as good as certain, with noise of variance `level`; and a row."""
    config = Config(inputs=1, hidden=(), **options)
    state = believed(config, np.array([0.3, 0.5]), [1e-30 * np.eye(2)])
    noise = np.array([[8.0, 8.0 * level]])
    return state._replace(noise=noise), np.array([[2.0]])


@each_engine
@pytest.mark.parametrize("e", [0.02, 0.4, 0.9])
@pytest.mark.parametrize("v", [0.05, 0.7, 2.5])
def test_the_noise_head_is_the_linear_gaussian_update_by_eps_squared(
    module: Any, v: float, e: float
) -> None:
    """h ~ N(m, v), V = r exp(h), eps ~ N(0, V): the update of h by eps^2, moments by quadrature."""
    level, m = 0.2, -0.4
    state, x = certain_line(level, **PLAIN)
    root = np.array([[1.0, 0.3], [0.2, 0.8]])
    features = np.array([1.0, 2.0])
    cov = root @ root.T
    cov *= v / (features @ cov @ features)
    state = state._replace(
        head_mean=np.array([[m - 2.0, 1.0]]), head_cov=pack_triangle(cov)[None, :]
    )
    t, weight = np.polynomial.hermite_e.hermegauss(80)
    weight = weight / np.sum(weight)
    h = m + np.sqrt(v) * t
    noise = level * np.exp(h)
    square = float(weight @ noise)
    var_square = float(weight @ (3.0 * noise**2)) - square**2
    with_h = float(weight @ (h * noise)) - m * square
    gain = with_h / var_square
    after, records = learned(module, state, x, 1.3 + e)
    assert records.noise_var[0, 0] == pytest.approx(square, rel=1e-9)
    moved = float(features @ (after.head_mean[0] - state.head_mean[0]))
    assert moved == pytest.approx(gain * (e * e - square), rel=1e-6)
    left = unpack_triangle(after.head_cov[0], 2)
    assert features @ left @ features == pytest.approx(v - gain * with_h, rel=1e-6)


@each_engine
@pytest.mark.parametrize("e", [1.5, 9.0])
def test_no_residual_moves_the_noise_head_by_more_than_two(module: Any, e: float) -> None:
    state, x = certain_line(0.2, **PLAIN)
    state = state._replace(
        head_mean=np.array([[-3.0, 0.0]]), head_cov=pack_triangle(np.diag([0.3, 0.1]))[None, :]
    )
    after, _ = learned(module, state, x, 1.3 + e)
    # The covariance with h, in proportion: 0.3 and 0.1 times 2, of 0.3 + 0.1 times 4.
    moved = 2.0 * np.array([0.3, 0.2]) / 0.7
    assert after.head_mean[0] - state.head_mean[0] == pytest.approx(moved, rel=1e-9)


@each_engine
@pytest.mark.parametrize("hidden", [(), (2,), (5,)])
def test_what_uncertain_inputs_add_to_the_variance(module: Any, hidden: tuple[int, ...]) -> None:
    """Independent weights into units whose outgoing weights are certain: an exact product.

    Var(sum_n c_n (b_n + sum_i w_ni x_i)) with E x = 0 is
    sum_n c_n^2 C_n,00 + sum_i v_i ((sum_n c_n w_ni)^2 + sum_n c_n^2 C_n,ii).
    """
    config = Config(
        inputs=3, hidden=hidden, activation="linear", covariance="neuron", noise=0.1, **PLAIN
    )
    rng = np.random.default_rng(0)
    units = hidden[0] if hidden else 1
    weights, own = rng.standard_normal((units, 4)), rng.uniform(0.1, 0.9, (units, 4))
    blocks = [np.diag(row) for row in own]
    mean, c = weights.ravel(), np.ones(1)
    if hidden:
        c = rng.standard_normal(units)
        mean = np.concatenate([mean, [0.7], c])
        blocks.append(np.zeros((units + 1, units + 1)))
    v = np.array([0.4, 1.1, 0.2])
    state = believed(config, mean, blocks)._replace(
        input_mean=np.zeros(3), input_cov=pack_triangle(np.diag(v))
    )
    wanted = c**2 @ own[:, 0] + v @ ((c @ weights[:, 1:]) ** 2 + c**2 @ own[:, 1:])
    got = module.predict_arrays(state, np.full((1, 3), np.nan))
    assert got.function_var[0, 0] == pytest.approx(wanted, rel=1e-9)


@each_engine
@pytest.mark.parametrize("covariance", ["neuron", "group", "full"])
def test_a_unit_sees_the_doubt_about_weights_of_uncertain_inputs(
    module: Any, covariance: Covariance
) -> None:
    """a = b + w x with E w = E x = 0 stands at the bend: E f(a) = sqrt(Var a/(2 pi))."""
    config = Config(
        inputs=1, hidden=(1,), covariance=covariance, noise=0.1, activation_spread=1.0, **PLAIN
    )
    own, v = np.array([0.3, 0.8]), 0.5
    state = init(config)
    cov = np.zeros_like(state.cov)
    cov[layout_of(config).variance_positions[:2]] = own
    state = state._replace(mean=np.array([0.0, 0.0, 0.4, 1.7]), cov=cov)
    state = state._replace(input_mean=np.zeros(1), input_cov=np.array([v]))
    said = module.predict_arrays(state, np.array([[np.nan]]))
    wanted = 0.4 + 1.7 * np.sqrt((own[0] + own[1] * v) / (2.0 * np.pi))
    assert said.mean[0, 0] == pytest.approx(wanted, rel=1e-9)


@each_engine
@pytest.mark.parametrize("covariance", ["paper", "neuron", "group", "full"])
def test_the_second_layer_sees_the_variance_of_the_first(module: Any, covariance: str) -> None:
    """Units far above their bend are linear, so z = b a ~ N(b mu, b^2 s^2); the next unit stands at
    its bend: E relu(w (z - b mu)) = |w| b s/sqrt(2 pi), were its own weights certain.
    """
    config = Config(
        inputs=1,
        hidden=(1, 1),
        covariance=covariance,  # type: ignore[arg-type]  # one of four
        activation="max(0,0.6),relu",
        activation_spread=1.0,
        noise=0.1,
        **PLAIN,
    )
    b, s, w, out = 0.6, 0.3, -0.8, 1.7
    mean = np.array([50.0, 0.0, -50.0 * b * w, w, 0.0, out])
    var = np.array([s * s, 0.0, 0.0, 0.0, 0.0, 0.0])
    blocks = [np.diag(var[order]) for order in layout_of(config).block_positions]
    got = module.predict_arrays(believed(config, mean, blocks), np.zeros((1, 1)))
    assert got.mean[0, 0] == pytest.approx(out * abs(w) * b * s / np.sqrt(2.0 * np.pi), rel=1e-6)


def inlier(e: float, var: float) -> float:
    """99 N(e; 0, v) against 1 N(e; 0, 100 v), as densities."""
    good = 0.99 * np.exp(-0.5 * e * e / var) / np.sqrt(var)
    bad = 0.01 * np.exp(-0.5 * e * e / (100.0 * var)) / np.sqrt(100.0 * var)
    return float(good / (good + bad))


@each_engine
@pytest.mark.parametrize(("log_factor", "spread"), [(-4.0, 1.0), (1.5, np.exp(1.5))])
@pytest.mark.parametrize("e", [1.1, 1.6, 2.4])
def test_a_residual_is_judged_by_the_level_or_by_the_head_if_that_says_more(
    module: Any, log_factor: float, spread: float, e: float
) -> None:
    level = 0.2
    state, x = certain_line(level, drift=False)
    head = np.array([[log_factor, 0.0]])
    state = state._replace(head_mean=head, head_cov=1e-30 * state.head_cov)
    _, records = learned(module, state, x, 1.3 + e)
    assert records.noise_var[0, 0] == pytest.approx(level * np.exp(log_factor), rel=1e-9)
    assert records.inlier[0] == pytest.approx(inlier(e, level * spread), rel=1e-9)


@each_engine
@pytest.mark.parametrize("e", [0.1, 1.4, 1.7, 2.0, 40.0])
def test_an_outlier_counts_a_hundredth_of_a_row(module: Any, e: float) -> None:
    """(a, b) of the noise tells the share: a becomes (a + share/2)/(1 + share (1/0.99 - 1))."""
    state, x = certain_line(0.2, noise_head=False, drift=False)
    after, records = learned(module, state, x, 1.3 + e)
    p = inlier(e, 0.2)
    assert records.inlier[0] == pytest.approx(p, rel=1e-9, abs=1e-15)
    share = p + (1.0 - p) / 100.0
    wanted = (8.0 + 0.5 * share) / (1.0 + share / 99.0)
    assert after.noise[0, 0] == pytest.approx(wanted, rel=1e-12)


def passed_over(state: State, kappa: float) -> State:
    """The same after passes whose number asks for kappa times the variance."""
    counts = state.counts.copy()
    counts[COUNT.rows], counts[COUNT.distinct] = round(100 * kappa**2), 100
    return state._replace(counts=counts)


@each_engine
@pytest.mark.parametrize("kappa", [1.0, 2.0, 5.0])
def test_the_probability_of_a_class_knows_of_repeated_passes(module: Any, kappa: float) -> None:
    config = Config(inputs=1, hidden=(), observation="bernoulli")
    block = np.array([[0.5, 0.1], [0.1, 0.9]])
    state = passed_over(believed(config, np.array([0.4, 0.8]), [block]), kappa)
    z = np.array([1.0, 2.0])
    u = 2.0 / np.sqrt(8.0 / np.pi + kappa * (z @ block @ z))
    got = module.predict_arrays(state, np.array([[2.0]])).probability[0]
    assert got == pytest.approx([special.ndtr(-u), special.ndtr(u)], rel=1e-9)


@each_engine
@pytest.mark.parametrize("kappa", [1.0, 3.0])
def test_so_do_the_probabilities_of_several(module: Any, kappa: float) -> None:
    config = Config(inputs=1, hidden=(), outputs=3, observation="categorical")
    own = [np.diag([0.5, 0.3]), np.diag([1.2, 0.1]), np.diag([0.2, 0.8])]
    mean = np.array([0.4, 0.8, -0.3, 0.5, 1.0, -0.2])
    state = passed_over(believed(config, mean, own), kappa)
    z = np.array([1.0, 2.0])
    m, q = mean.reshape(3, 2) @ z, np.array([z @ block @ z for block in own])
    inverse = np.ones(3)
    for k in range(3):
        for j in range(3):
            if j != k:
                u = (m[k] - m[j]) / np.sqrt(8.0 / np.pi + kappa * (q[k] + q[j]))
                inverse[k] += special.ndtr(-u) / special.ndtr(u)
    p = 1.0 / inverse
    got = module.predict_arrays(state, np.array([[2.0]])).probability[0]
    assert got == pytest.approx(p / np.sum(p), rel=1e-9)


CERTAIN = 1e-30 * np.eye(2)
Z = np.array([1.0, 2.0])
X = np.array([[2.0]])


@each_engine
@pytest.mark.parametrize(
    ("e", "evidence"),
    [
        ([2.0, np.sqrt(2.0)], 0.5),  # surprises 1.5 and 0.5: 1 on average, less the slack of 0.5
        ([2.0, np.nan], 1.0),  # a target that is not there has no part in it
        ([9.0, 0.0], 1.5),  # the average counts as at most 2
        ([1.0, 0.5], 0.0),
    ],
)
def test_the_surprise_of_several_targets_is_their_average(
    module: Any, e: list[float], evidence: float
) -> None:
    config = Config(inputs=1, outputs=2, hidden=(), covariance="neuron", noise=0.25, robust=False)
    state = believed(config, np.array([0.3, 0.5, 1.0, 0.0]), [CERTAIN] * 2)
    y = np.array([[1.3, 1.0]]) + 0.5 * np.array([e])
    after, _ = module.learn_arrays(state, X, y)
    assert after.surprise[0] == pytest.approx(evidence, abs=1e-9)


@each_engine
@pytest.mark.parametrize(("mean", "label"), [(0.5, 0), (1.5, 0), (1.5, 1), (-0.2, 1)])
def test_the_surprise_of_a_class_is_its_log_loss_against_what_was_expected(
    module: Any, mean: float, label: int
) -> None:
    """(s - H)/sqrt(2 (V + 0.1)), less the slack of 0.25 and never below 0."""
    config = Config(inputs=1, hidden=(), observation="bernoulli", robust=False)
    state = believed(config, np.array([mean, 0.0]), [CERTAIN])
    state = state._replace(surprise=np.array([3.0]))
    p = special.ndtr(np.array([-1.0, 1.0]) * mean * np.sqrt(np.pi / 8.0))
    loss = stats.rv_discrete(values=(range(2), p))
    information = -np.log(p)
    entropy = loss.entropy()
    var = p @ information**2 - entropy**2
    wanted = (information[label] - entropy) / np.sqrt(2.0 * (var + 0.1))
    after, _ = module.learn_arrays(state, X, np.array([[float(label)]]))
    assert after.surprise[0] == pytest.approx(3.0 + wanted - 0.25, rel=1e-9)


@each_engine
@pytest.mark.parametrize(
    ("kind", "mean", "label", "evidence"),
    [
        ("bernoulli", 1e4, 1.0, 2.75),  # what is certain is no news, and the slack is taken off
        ("bernoulli", 1e4, 0.0, 7.75),  # what cannot be counts as the most there is
        ("amount", -1e4, -np.inf, 2.5),
        ("amount", 1e4, -np.inf, 4.5),
    ],
)
def test_what_is_certain_beyond_all_numbers_surprises_as_it_should(
    module: Any, kind: Any, mean: float, label: float, evidence: float
) -> None:
    outputs = 2 if kind == "amount" else 1
    config = Config(
        inputs=1, outputs=outputs, hidden=(), covariance="neuron", observation=kind, robust=False
    )
    weights = np.array([1.0, 0.0, mean, 0.0])[-2 * outputs :]
    state = believed(config, weights, [CERTAIN] * outputs)._replace(surprise=np.array([3.0]))
    after, _ = module.learn_arrays(state, X, np.array([[label]]))
    assert after.surprise[0] == pytest.approx(evidence, rel=1e-9)


@each_engine
def test_the_row_of_an_alarm_is_learned_by_what_the_alarm_has_left(module: Any) -> None:
    """Covariances go half of the way to the prior, and then the row is one Kalman step."""
    config = Config(inputs=1, hidden=(), covariance="full", noise=0.2, robust=False)
    cov = np.array([[0.05, 0.01], [0.01, 0.03]])
    mean = np.array([0.3, 0.5])
    state = believed(config, mean, [cov])._replace(surprise=np.array([9.9]))
    after, records = module.learn_arrays(state, X, np.array([[5.3]]))
    assert records.status[0] == LEARNED | ALARM
    assert records.function_var[0, 0] == pytest.approx(Z @ cov @ Z)  # said before
    wide = 0.5 * cov + 0.5 * np.diag(state.prior_var)
    gain = wide @ Z
    total = Z @ gain + 0.2
    assert after.mean == pytest.approx(mean + gain * 4.0 / total, rel=1e-9)
    assert layout_of(config).unpack_blocks(after.cov)[0] == pytest.approx(
        wide - np.outer(gain, gain) / total, rel=1e-9
    )
    assert np.array_equal(after.prior_mean, mean)  # information is counted from here on
    assert after.surprise[0] == 0.0
    assert after.counts[COUNT.alarms] == 1


@each_engine
def test_a_row_is_as_doubtful_as_its_most_doubtful_target(module: Any) -> None:
    config = Config(inputs=1, outputs=2, hidden=(), covariance="neuron", noise=0.2, drift=False)
    state = believed(config, np.array([0.3, 0.5, 1.0, 0.0]), [CERTAIN] * 2)
    for e in ([1.6, 0.1], [0.1, 1.6]):
        _, records = module.learn_arrays(state, X, np.array([[1.3, 1.0]]) + np.array([e]))
        assert records.inlier[0] == pytest.approx(inlier(1.6, 0.2), rel=1e-9)


@each_engine
@pytest.mark.parametrize(("weight", "share"), [(0.25, 0.25), (1.0, 1.0), (5.0, 1.0)])
def test_no_row_moves_the_noise_head_more_than_once(
    module: Any, weight: float, share: float
) -> None:
    state, x = certain_line(0.2, **PLAIN)
    y = np.array([[1.9]])
    once, _ = module.learn_arrays(state, x, y)
    found, _ = module.learn_arrays(state, x, y, None, np.array([weight]))
    assert np.any(once.head_mean != 0.0)
    assert found.head_mean == pytest.approx(share * once.head_mean, rel=1e-9)


@each_engine
def test_a_class_label_counts_the_doubt_about_inputs_of_both_classes(module: Any) -> None:
    """The input is missing: each output's variance grows by v (w^2 + C)."""
    config = Config(inputs=1, outputs=2, hidden=(), observation="categorical", drift=False)
    own = [np.diag([0.5, 0.3]), np.diag([1.2, 0.1])]
    mean, v = np.array([0.4, 0.8, -0.3, 1.5]), 0.6
    state = believed(config, mean, own)._replace(
        input_mean=np.zeros(1), input_cov=pack_triangle(np.array([[v]]))
    )
    added = v * (0.8**2 + 0.3) + v * (1.5**2 + 0.1)
    t = np.sqrt(8.0 / np.pi + 0.5 + 1.2 + added)
    u = (-0.3 - 0.4) / t
    rho = stats.norm.pdf(u) / special.ndtr(u)
    after, records = module.learn_arrays(state, np.array([[np.nan]]), np.array([[1.0]]))
    assert records.probability[0, 1] == pytest.approx(special.ndtr(u), rel=1e-9)
    moved = np.array([-0.5, 0.0, 1.2, 0.0]) * rho / t
    assert after.mean == pytest.approx(mean + moved, rel=1e-9)


@each_engine
def test_an_exact_label_leaves_a_millionth_of_the_variance(module: Any) -> None:
    config = Config(inputs=1, hidden=(), covariance="full", noise=0.0, **PLAIN)
    cov = np.array([[0.5, 0.1], [0.1, 0.9]])
    after, _ = module.learn_arrays(believed(config, np.zeros(2), [cov]), X, np.array([[3.0]]))
    left = Z @ layout_of(config).unpack_blocks(after.cov)[0] @ Z
    assert left == pytest.approx(1e-6 * (Z @ cov @ Z), rel=1e-3)
    assert Z @ after.mean == pytest.approx(3.0, rel=1e-5)


@each_engine
@pytest.mark.parametrize("kappa", [1.0, 3.0])
def test_the_noise_level_knows_of_repeated_passes(module: Any, kappa: float) -> None:
    """Two turns of r = (b + (e r/(q + r))^2/2 + (k q r/(k q + r))/2)/(a + 1/2), k = kappa."""
    config = Config(inputs=1, hidden=(), covariance="full", noise_head=False, **PLAIN)
    cov = np.array([[0.05, 0.01], [0.01, 0.03]])
    state = passed_over(believed(config, np.zeros(2), [cov]), kappa)
    state = state._replace(noise=np.array([[8.0, 1.6]]))
    q, e, r = Z @ cov @ Z, 0.7, 0.2
    for _ in range(2):
        k = kappa * q
        r = (1.6 + 0.5 * ((e * r / (q + r)) ** 2 + k * r / (k + r))) / 8.5
    after, _ = module.learn_arrays(state, X, np.array([[e]]))
    assert after.noise[0] == pytest.approx([0.99 * 8.5, 0.99 * 8.5 * r], rel=1e-9)


@each_engine
def test_the_noise_level_is_never_below_its_least(module: Any) -> None:
    state, x = certain_line(1e-15, noise_head=False, **PLAIN)
    after, _ = module.learn_arrays(state, x, np.array([[0.3 + 0.5 * 2.0]]))
    assert after.noise[0] == pytest.approx([0.99 * 8.5, 0.99 * 8.5 * 1e-12], rel=1e-9)


@each_engine
def test_every_clipped_input_is_counted(module: Any) -> None:
    config = Config(inputs=3, hidden=(), noise=0.1, **PLAIN)
    state = believed(config, np.zeros(4), [np.eye(4)])
    x = np.array([[9.0, -20.0, 1.0], [8.0, 0.0, np.nan], [0.0, 0.0, 8.1]])
    after, _ = module.learn_arrays(state, x, np.zeros((3, 1)))
    assert after.counts[COUNT.clipped] == 3


@each_engine
@pytest.mark.parametrize(("var", "share"), [(3e-12, 1.0), (1e-14, 0.01), (0.0, 0.0)])
def test_an_exact_label_of_what_is_known_already_moves_little(
    module: Any, var: float, share: float
) -> None:
    """Nothing is divided by a variance below 1e-12: the step is var/1e-12 of the error."""
    config = Config(inputs=1, hidden=(), covariance="full", noise=0.0, **PLAIN)
    state = believed(config, np.array([0.3, 0.5]), [np.diag([var, 0.0])])
    after, records = module.learn_arrays(state, np.zeros((1, 1)), np.array([[0.7]]))
    assert records.status[0] == LEARNED
    assert after.mean == pytest.approx([0.3 + 0.4 * share, 0.5], rel=1e-5)


@each_engine
def test_an_exact_value_is_taken_as_it_is_where_inputs_have_not_varied(module: Any) -> None:
    """The Gaussian of the inputs says that the first is 3; beside a missing one it is 5."""
    config = Config(inputs=2, hidden=(), noise=0.1, **PLAIN)
    state = believed(config, np.array([0.3, 0.5, 2.0]), [1e-30 * np.eye(3)])._replace(
        input_mean=np.array([3.0, 1.5]), input_cov=pack_triangle(np.diag([0.0, 0.7]))
    )
    said = module.predict_arrays(state, np.array([[5.0, np.nan]]))
    assert said.mean[0, 0] == pytest.approx(0.3 + 0.5 * 5.0 + 2.0 * 1.5)
    assert said.function_var[0, 0] == pytest.approx(4.0 * 0.7)


@each_engine
@pytest.mark.parametrize("y", [0.0, 3.0, 40.0])
def test_a_count_is_an_outlier_beside_a_negative_binomial(module: Any, y: float) -> None:
    """One in a hundred is from s/((s + y)(s + y + 1)), s = mu + 1."""
    config = Config(inputs=1, hidden=(), observation="count", drift=False)
    state = believed(config, np.array([1.2, 0.5]), [CERTAIN])._replace(
        noise=np.array([[50.0, 20.0]])
    )
    mu, alpha = np.exp(0.5 * 2.2), 2.5
    mass = 0.99 * stats.nbinom.pmf(y, alpha, alpha / (alpha + mu))
    far = 0.01 * (mu + 1.0) / ((mu + 1.0 + y) * (mu + 2.0 + y))
    _, records = module.learn_arrays(state, X, np.array([[y]]))
    assert records.inlier[0] == pytest.approx(mass / (mass + far), rel=1e-7)


@each_engine
def test_a_count_far_off_is_taken_for_five_deviations_and_a_hundredth_of_a_row(module: Any) -> None:
    """Expected are 4, of variance 9: no more than 19."""
    options: Any = {"inputs": 1, "hidden": (), "observation": "count", "drift": False}
    phi = (1.0 + 5.0 / 16.0) * np.exp(-0.2) - 1.0
    found = []
    for robust, y, weight in ((True, 1e5, 1.0), (False, 19.0, 0.01)):
        config = Config(**options, covariance="full", robust=robust)
        state = believed(config, np.array([2.0 * np.log(4.0) - 0.2, 0.0]), [np.diag([0.8, 1e-9])])
        state = state._replace(noise=np.array([[50.0, 50.0 * phi]]))
        found.append(module.learn_arrays(state, X, np.array([[y]]), None, np.array([weight]))[0])
    assert abs(found[0].mean[0] - (2.0 * np.log(4.0) - 0.2)) > 1e-3
    assert found[0].mean == pytest.approx(found[1].mean, rel=1e-6)
    assert found[0].cov == pytest.approx(found[1].cov, rel=1e-6)


@each_engine
@pytest.mark.parametrize("y", [0.0, 6.0])
def test_the_dispersion_is_what_neither_poisson_nor_doubt_explains(module: Any, y: float) -> None:
    """((y - mu)^2 - mu - mu^2 (e^q - 1))/(mu^2 e^q), whose mean is phi, by its weight squared."""
    config = Config(inputs=1, hidden=(), observation="count", covariance="full", **PLAIN)
    state = believed(config, np.array([1.2, 0.5]), [np.diag([0.8, 0.3])])
    state = state._replace(noise=np.array([[50.0, 20.0]]))
    m, q, phi = 0.5 * 2.2, 0.25 * (0.8 + 4.0 * 0.3), 0.4
    mu = np.exp(m + q / 2.0)
    scale, var = mu**2 * np.exp(q), mu + mu**2 * (np.exp(q) * (1.0 + phi) - 1.0)
    weight = (scale / var) ** 2
    more = ((y - mu) ** 2 - mu - mu**2 * (np.exp(q) - 1.0)) / scale
    after, _ = module.learn_arrays(state, X, np.array([[y]]))
    wanted = [0.999 * (50.0 + weight), 0.999 * (20.0 + weight * more)]
    assert after.noise[0] == pytest.approx(wanted, rel=1e-9)


@each_engine
def test_a_row_whose_forecast_is_no_number_is_rejected_without_a_word(module: Any) -> None:
    config = Config(inputs=2, hidden=(), noise=0.1, **PLAIN)
    state = believed(config, np.array([0.0, 1e308, -1e308]), [np.eye(3)])
    after, records = module.learn_arrays(state, np.array([[8.0, 8.0]]), np.zeros((1, 1)))
    assert records.status[0] == REJECTED
    assert np.array_equal(after.mean, state.mean)
    assert after.counts[COUNT.rejected] == 1


@each_engine
@pytest.mark.parametrize(("v", "counted"), [(2.0, 2.0), (8.0, 3.0)])
def test_doubt_about_the_noise_adds_at_most_three_halves_to_its_logarithm(
    module: Any, v: float, counted: float
) -> None:
    """r exp(m_h + v_h/2), v_h no more than 3."""
    state, x = certain_line(0.2, **PLAIN)
    state = state._replace(
        head_mean=np.array([[-0.4, 0.0]]), head_cov=pack_triangle(np.diag([v, 0.0]))[None, :]
    )
    said = module.predict_arrays(state, x)
    assert said.noise_var[0, 0] == pytest.approx(0.2 * np.exp(-0.4 + 0.5 * counted), rel=1e-9)


@each_engine
@pytest.mark.parametrize("y", [0.0, 3.0])
def test_a_rate_is_no_farther_from_1_than_e_to_the_40(module: Any, y: float) -> None:
    """Outputs are twice its logarithm; what lies beyond is learned from as if it lay there."""
    config = Config(inputs=1, hidden=(), observation="count", covariance="full", **PLAIN)
    found = []
    for mean in (-80.0, -90.0, -1e4):
        state = believed(config, np.array([mean, 0.0]), [np.diag([0.8, 0.3])])
        after, _ = module.learn_arrays(state, X, np.array([[y]]))
        found.append(after.mean - state.mean)
    assert found[1] == pytest.approx(found[0], rel=1e-9, abs=1e-12)
    assert found[2] == pytest.approx(found[0], rel=1e-9, abs=1e-10)


@each_engine
@pytest.mark.parametrize("covariance", ["neuron", "full"])
def test_a_step_beyond_all_numbers_is_rejected_and_leaves_no_trace(
    module: Any, covariance: Any
) -> None:
    """1e300 off, in units of a variance of 1e-12."""
    config = Config(inputs=1, hidden=(), covariance=covariance, noise=1e-12, **PLAIN)
    state = believed(config, np.array([1e300, 0.0]), [1e-13 * np.eye(2)])
    after, records = module.learn_arrays(state, X, np.zeros((1, 1)))
    assert records.status[0] == REJECTED
    assert np.array_equal(after.mean, state.mean)
    assert np.array_equal(after.cov, state.cov)
    assert after.counts[COUNT.rejected] == 1


@each_engine
@pytest.mark.parametrize("covariance", ["neuron", "group", "full"])
def test_a_step_is_as_long_as_it_is_up_to_its_limit(module: Any, covariance: Any) -> None:
    """1e39 or 1e200 off, of a variance of z'z + 1 = 6."""
    config = Config(inputs=1, hidden=(), covariance=covariance, noise=1.0, **PLAIN)
    state = believed(config, np.array([1e39, 0.0]), [np.eye(2)])
    after, records = module.learn_arrays(state, X, np.zeros((1, 1)))
    assert records.status[0] == LEARNED
    assert after.mean == pytest.approx(1e39 * np.array([1.0 - 1.0 / 6.0, -2.0 / 6.0]), rel=1e-9)
    state = believed(config, np.array([1e200, 0.0]), [np.eye(2)])
    after, records = module.learn_arrays(state, X, np.zeros((1, 1)))
    assert records.status[0] == REJECTED
    assert np.array_equal(after.mean, state.mean)
