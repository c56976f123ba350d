"""Single terms of a row, each against quadrature or a formula worked out by hand.

The beliefs are chosen so that one term decides the result and everything else is exact. Both
engines are asked: an error that they share would pass every comparison of the two.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import special

from kbnn import Config, State, init
from kbnn.array_types import FloatArray
from kbnn.core import kernel, reference
from kbnn.core.config import Covariance
from kbnn.core.layout import layout_of, pack_triangle, unpack_triangle
from kbnn.core.reference import Records
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
