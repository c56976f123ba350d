"""Many inputs: the wide structure against exact conditioning, its twin, and itself."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kbnn
from kbnn.array_types import FloatArray
from kbnn.core import input_moments, reference
from kbnn.core import kernel as kernel_module
from kbnn.core.belief import open_belief
from kbnn.core.config import Config
from kbnn.core.constants import SMALLEST_SPREAD
from kbnn.core.jacobian import compute_sensitivity, compute_slopes, function_var
from kbnn.core.layout import layout_of, pack_triangle
from kbnn.core.state import ARRAYS, COUNT, State, init
from kbnn.model.ensemble import Member
from kbnn.model.replay import compute_buffer_rows
from kbnn.model.rescale import grow_state, rescale_state
from kbnn.model.scaler import Scale
from kbnn.model.settings import MAX_BUFFER_ROWS, WIDE_COVARIANCE_INPUTS, Settings
from kbnn.targets.regression import Real
from tests.commands import kbnn as command

D, K = 30, 5


def rows(n: int = 90, d: int = D, seed: int = 0) -> tuple[FloatArray, FloatArray]:
    """Inputs of four factors, and a target of two."""
    rng = np.random.default_rng(seed)
    factors = rng.standard_normal((n, 4))
    x = factors @ rng.standard_normal((4, d)) / 2.0 + 0.5 * rng.standard_normal((n, d))
    return x, np.sin(factors[:, 0]) + 0.5 * factors[:, 1]


def wide_state(d: int = D, **options: Any) -> State:
    config = Config(**{"inputs": d, "hidden": (9,), **options}, covariance="wide", directions=K)
    state = init(config, 3, directions=input_moments.leading_directions(rows(d=d)[0], K))
    rng = np.random.default_rng(1)
    view = state.view.copy()
    view[:, 0], view[:, 1] = rng.uniform(0.8, 1.2, d), 0.1 * rng.standard_normal(d)
    return state._replace(view=view)


@pytest.mark.thinned(3)
@pytest.mark.parametrize("engine_name", ["avx512", "avx2", "portable"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"hidden": (9, 6)},
        {"hidden": ()},
        {"outputs": 2},
        {"hidden": (), "outputs": 2},
        {"observation": "bernoulli"},
        {"observation": "categorical", "outputs": 4},
        {"observation": "categorical", "outputs": 9, "group_size": 1},
    ],
)
def test_the_kernel_does_what_the_twin_does(
    options: dict[str, Any], engine_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = pytest.importorskip("kbnn.core._kernel")
    if not kernel.use_instruction_set(engine_name):
        pytest.skip(f"no {engine_name} here")
    monkeypatch.setenv("KBNN_ENGINE", engine_name)
    rng = np.random.default_rng(2)
    state = wide_state(**options)
    x, target = rows()
    x[rng.random(x.shape) < 0.05] = np.nan
    x[3], x[5, 2], x[7, 1] = np.nan, 50.0, 1e7
    x_var = np.where(rng.random(x.shape) < 0.1, rng.random(x.shape), 0.0)
    outputs = state.config.outputs
    y = np.column_stack([target + o for o in range(outputs)])
    if state.config.classes:
        y = rng.integers(0, max(outputs, 2), (len(x), 1)).astype(np.float64)
    sessions = reference.ReferenceSession(state), kernel_module.open_session(state)
    said = []
    for session in sessions:
        said.append(session.learn(x, y, x_var, rng.uniform(1.0, 1.0, len(x))))
        session.replay(x[:20], y[:20], means_alone=True)
        session.replay(x[:20], y[:20])
    for a, b in zip(*said, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-11)
    for name in ARRAYS:
        a, b = (getattr(session.state(), name) for session in sessions)
        np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-10, err_msg=name)
    kernel.use_instruction_set("")


def test_missing_inputs_are_conditioned_exactly() -> None:
    """Against the dense Gaussian with the same Sigma = V L V' + D."""
    rng = np.random.default_rng(4)
    v = input_moments.leading_directions(rows()[0], K)
    root = rng.standard_normal((K, K))
    low, d = root @ root.T + np.eye(K), rng.uniform(0.2, 1.0, D)
    mu, x = rng.standard_normal(D), rng.standard_normal(D)
    noise = np.zeros(D)
    x[[2, 11]], noise[[5, 20]] = np.nan, [0.3, 2.0]
    view = np.column_stack([np.ones(D), np.zeros(D), v])
    seen = input_moments.condition_wide_inputs(
        view, mu, np.concatenate([pack_triangle(low), d]), x, noise
    )
    low += SMALLEST_SPREAD * np.eye(K)
    sigma = v @ low @ v.T + np.diag(d)
    known = np.isfinite(x)
    gain = sigma[:, known] @ np.linalg.inv(sigma[np.ix_(known, known)] + np.diag(noise[known]))
    exact = mu + gain @ (x[known] - mu[known])
    left = np.diag(sigma - gain @ sigma[known])
    np.testing.assert_allclose(seen.x, np.where(known & (noise == 0.0), x, exact), rtol=1e-8)
    np.testing.assert_allclose(seen.x_var[[2, 5, 11, 20]], left[[2, 5, 11, 20]], rtol=1e-8)
    np.testing.assert_allclose(seen.mean[:K], v.T @ seen.x, rtol=1e-12)
    np.testing.assert_allclose(seen.mean[K:], seen.x - v @ (v.T @ seen.x), atol=1e-12)


@pytest.mark.parametrize("module", [kernel_module, reference], ids=["engine", "twin"])
def test_what_missing_and_noisy_inputs_add_to_the_variance(module: Any) -> None:
    """Inputs of no direction, their weights N(w, C): C x^2 + (w^2 + C) v, v = D, or D R/(D + R)."""
    config = Config(inputs=3, hidden=(), covariance="wide", directions=1, noise=0.1)
    first = init(config, directions=np.array([[1.0], [0.0], [0.0]]))
    state = first._replace(
        mean=np.array([0.3, 0.7, 9.0, 0.5, -2.0]),
        cov=np.array([0.0, 0.0, 0.0, 0.0, 0.03, 0.05]),
        input_mean=np.array([0.1, 0.2, -0.4]),
        input_cov=np.array([0.6, 0.5, 0.8, 0.9]),
    )
    said = module.predict_arrays(
        state, np.array([[1.5, np.nan, 1.1]]), np.array([[0.0, 0.0, 0.45]])
    )
    noisy = -0.4 + 0.9 / (0.9 + 0.45) * 1.5
    assert said.mean[0, 0] == pytest.approx(0.3 + 0.7 * 1.5 + 0.5 * 0.2 - 2.0 * noisy)
    wanted = 0.03 * 0.2**2 + 0.05 * noisy**2 + (0.25 + 0.03) * 0.8 + (4.0 + 0.05) * 0.3
    assert said.function_var[0, 0] == pytest.approx(wanted)


def test_all_directions_and_no_rest_is_a_group() -> None:
    """With as many directions as inputs, turned not at all, the rest is 0 and a group is left."""
    x, y = rows(60, 4)
    group = init(Config(inputs=4, hidden=(9,)), 3, prior_variance=0.2)
    many = init(
        Config(inputs=4, hidden=(9,), covariance="wide", directions=4),
        3,
        prior_variance=0.2,
        directions=np.eye(4),
    )
    layout = layout_of(many.config)
    mean = many.mean.copy()
    layout.weight_matrix(mean, 0)[:, :5] = layout_of(group.config).weight_matrix(group.mean, 0)
    mean[layout.layer_starts[1] :] = group.mean[layout_of(group.config).layer_starts[1] :]
    many = many._replace(mean=mean, prior_mean=mean)
    _, said = reference.learn_arrays(group, x, y[:, None])
    _, other = reference.learn_arrays(many, x, y[:, None])
    np.testing.assert_allclose(said.mean, other.mean, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(said.function_var, other.function_var, rtol=1e-9)


def test_leading_directions_are_those_of_the_covariance() -> None:
    x = rows(400)[0]
    found = input_moments.leading_directions(x, 4)
    z = x - x.mean(axis=0)
    _, vectors = np.linalg.eigh(z.T @ z)
    overlap = np.abs(np.sum(found * vectors[:, ::-1][:, :4], axis=0))
    assert np.all(overlap > 1.0 - 1e-6)
    np.testing.assert_allclose(found.T @ found, np.eye(4), atol=1e-9)
    few = input_moments.leading_directions(x[:3], 4)
    assert np.count_nonzero(np.any(few != 0.0, axis=0)) == 2


def test_a_change_of_units_changes_nothing() -> None:
    state, _ = reference.learn_arrays(
        wide_state(), *(a if a.ndim > 1 else a[:, None] for a in rows())
    )
    rng = np.random.default_rng(0)
    old = Scale(rng.standard_normal(D), rng.uniform(1.0, 2.0, D))
    new = Scale(old.center + 0.1 * rng.standard_normal(D), old.scale * rng.uniform(0.9, 1.1, D))
    raw = old.center + old.scale * np.clip(rows(20, seed=5)[0], -4, 4)
    moved = rescale_state(state, old, new, np.ones(1), np.zeros(1))
    before = reference.predict_arrays(state, (raw - old.center) / old.scale)
    after = reference.predict_arrays(moved, (raw - new.center) / new.scale)
    np.testing.assert_allclose(before.mean, after.mean, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(before.function_var, after.function_var, rtol=1e-9)


def test_what_is_known_of_loose_weights_of_an_output_is_known_in_its_new_units() -> None:
    """Seen as w + N(0, s^2) they are seen as a w + N(0, a^2 s^2), beside the same prior."""
    state = wide_state(hidden=())
    layout, rng = layout_of(state.config), np.random.default_rng(2)
    at = layout.loose_positions
    prior, begun = state.prior_var[at], state.prior_mean[at]
    seen, doubt = rng.standard_normal(at.shape), prior * rng.uniform(0.1, 3.0, at.shape)

    def known(a: float) -> tuple[FloatArray, FloatArray]:
        var = 1.0 / (1.0 / prior + 1.0 / (a**2 * doubt))
        return var * (begun / prior + a * seen / (a**2 * doubt)), var

    mean = state.mean.copy()
    mean[at], var = known(1.0)
    state = state._replace(mean=mean, cov=layout.pack_blocks(layout.unpack_blocks(state.cov), var))
    same = Scale(np.zeros(D), np.ones(D))
    moved = rescale_state(state, same, same, np.array([1.7]), np.zeros(1))
    wanted = known(1.7)
    np.testing.assert_allclose(moved.mean[at], wanted[0], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(layout.loose_var(moved.cov), wanted[1], rtol=1e-9)


@pytest.mark.parametrize("alarms", [0, 1])
def test_other_units_of_the_target_are_taken_over_by_all_weights_of_an_output(alarms: int) -> None:
    x, y = rows(600)
    state, _ = reference.learn_arrays(wide_state(hidden=()), x, y[:, None])
    counts = state.counts.copy()
    counts[COUNT.alarms] = alarms
    state = state._replace(counts=counts)
    same = Scale(np.zeros(D), np.ones(D))
    moved = rescale_state(state, same, same, np.array([2.0]), np.array([0.7]))
    before, after = (reference.predict_arrays(one, x[:50]).mean for one in (state, moved))
    assert np.std(before) > 0.5
    np.testing.assert_allclose(after, 2.0 * before + 0.7, atol=0.1 * float(np.std(before)))
    at = layout_of(state.config).loose_positions
    np.testing.assert_array_equal(moved.prior_mean[at], (1 + alarms) * state.prior_mean[at])


def test_another_input_that_is_0_changes_nothing() -> None:
    x, y = rows()
    state, _ = reference.learn_arrays(wide_state(), x, y[:, None])
    grown = grow_state(state, D + 2, 1)
    asked = rows(20, seed=5)[0]
    before = reference.predict_arrays(state, asked)
    after = reference.predict_arrays(grown, np.hstack([asked, np.zeros((20, 2))]))
    np.testing.assert_allclose(before.mean, after.mean, rtol=1e-12)
    np.testing.assert_allclose(before.function_var, after.function_var, rtol=1e-12)
    reference.learn_arrays(grown, np.hstack([x, np.ones((len(x), 2))]), y[:, None])


def test_effects_are_slopes_of_the_prediction() -> None:
    x, y = rows(200)
    state, _ = reference.learn_arrays(wide_state(activation="tanh"), x, y[:, None])
    state = state._replace(cov=1e-12 * state.cov)
    row, step = rows(1, seed=9)[0], 1e-5
    slope = compute_sensitivity(state, row).slope[0]
    ends = [
        reference.predict_arrays(state, row + sign * step * np.eye(D)).mean[:, 0]
        for sign in (1.0, -1.0)
    ]
    np.testing.assert_allclose(slope, (ends[0] - ends[1]) / (2 * step), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("hidden", [(), (9,), (6, 5)])
def test_derivatives_of_many_rows_are_those_of_each(hidden: tuple[int, ...]) -> None:
    x, y = rows(200)
    state, _ = reference.learn_arrays(wide_state(hidden=hidden, activation="tanh"), x, y[:, None])
    asked = rows(7, seed=4)[0]
    asked[2, 3] = np.nan
    found, said = compute_slopes(open_belief(state), asked), reference.predict_arrays(state, asked)
    np.testing.assert_allclose(found.mean, said.mean[:, 0], rtol=1e-9)
    own = function_var(open_belief(state), found.weights) + found.new_var
    np.testing.assert_allclose(own, (said.function_var + said.noise_var)[:, 0], rtol=1e-9)
    sure, step = state._replace(cov=1e-12 * state.cov), 1e-5
    ends = [
        reference.predict_arrays(sure, asked[0] + sign * step * np.eye(D)).mean[:, 0]
        for sign in (1.0, -1.0)
    ]
    slope = compute_slopes(open_belief(sure), asked[:1]).inputs[0]
    np.testing.assert_allclose(slope, (ends[0] - ends[1]) / (2 * step), rtol=1e-5, atol=1e-7)


def test_many_columns_have_a_past_and_a_future(tmp_path: Path) -> None:
    known, coming = tmp_path / "t.csv", tmp_path / "next.csv"
    head, *lines = write(known, 300).read_text().splitlines()
    known.write_text("\n".join([head, *lines[:290]]) + "\n")
    coming.write_text("\n".join([head, *(f"{r.rpartition(',')[0]}," for r in lines[290:])]) + "\n")
    model = tmp_path / "m.npz"
    ran = command("train", known, "-m", model, "--layers", "8", "--lags", "1,2", "-q")
    assert ran.code == 0, ran.err
    ran = command("predict", model, coming, "--horizon", "10", "-o", tmp_path / "out.csv")
    assert ran.code == 0, ran.err
    steps = np.genfromtxt(tmp_path / "out.csv", delimiter=",", names=True)
    assert len(steps) == 10
    assert np.all(np.isfinite(steps["mean"]) & (steps["sd"] > 0.0))


def test_up_to_90_columns_nothing_changes() -> None:
    class Described:
        targets, classes, closed = ("y",), (), False

    task = Real(Described())  # type: ignore[arg-type]  # all that is asked of it
    assert WIDE_COVARIANCE_INPUTS == 91
    made = {d: Settings().make_config(Member((50,)), task, d, 1, 1.0) for d in (90, 91)}
    assert made[90] == replace(Config(inputs=90), repeats=0.8)
    assert made[91].covariance == "wide"
    assert compute_buffer_rows(90, MAX_BUFFER_ROWS) == MAX_BUFFER_ROWS


def write(path: Path, n: int = 700, d: int = 100) -> Path:
    x, y = rows(n, d)
    rng = np.random.default_rng(7)
    x[rng.random(x.shape) < 0.01] = np.nan
    lines = [",".join("" if np.isnan(v) else f"{v:.5g}" for v in row) for row in np.c_[x, y]]
    path.write_text("\n".join([",".join([*(f"x{i}" for i in range(d)), "y"]), *lines]) + "\n")
    return path


def test_wide_models_are_the_same_however_they_are_learned(tmp_path: Path) -> None:
    whole, text = tmp_path / "t.csv", write(tmp_path / "t.csv").read_text().splitlines(True)
    ran = command("train", whole, "-m", tmp_path / "a.npz", "--layers", "8", "--json")
    assert ran.code == 0
    assert "100 columns: " in ran.err
    assert re.search(r" (ms|us) a row to learn, about ", ran.err)
    # Cut short at a flawed row, mended and resumed.
    whole.write_text("".join([*text[:300], "oops\n", *text[300:]]))
    assert command("train", whole, "-m", tmp_path / "b.npz", "--layers", "8").code == 1
    whole.write_text("".join(text))
    assert command("train", whole, "-m", tmp_path / "b.npz", "--layers", "8", "--resume").code == 0
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()
    shown = json.loads(command("inspect", tmp_path / "a.npz", "--json").out)
    assert shown["network"]["covariance"] == "wide"
    one = kbnn.Model(target="y", layers=8)
    names = text[0].strip().split(",")
    for line in text[1:]:
        cells = [float(cell) if cell else None for cell in line.strip("\n").split(",")]
        row = dict(zip(names, cells, strict=True))
        one.learn_one(row, row.pop("y"))
    loaded = kbnn.load(tmp_path / "a.npz")
    asked = {"x3": 1.0, "x70": -1.0}
    assert one.predict_one(asked) == loaded.predict_one(asked)


@pytest.mark.slow
def test_a_column_that_leaves_its_units_is_looked_at_anew() -> None:
    x, y = rows(2000, 200)  # more than are kept of so wide rows
    x[1500:, 7] *= 1e4
    x[1700:, 8] += 100.0
    learned = kbnn.Model(target="y", layers=8, rehearse="off")
    names = [f"x{i}" for i in range(200)]
    for start in range(0, 2000, 100):
        part = slice(start, start + 100)
        learned.learn({**dict(zip(names, x[part].T, strict=True)), "y": y[part]})
    assert learned.rows == 2000
    view = learned._model.learner_state.members[0].state().view  # type: ignore[union-attr]
    assert not input_moments.is_view_outdated(view)
    figures = learned.evaluate({**dict(zip(names, x[1900:].T, strict=True)), "y": y[1900:]})
    assert figures["rmse"] < 0.6 * figures["baseline_rmse"]


def test_a_single_outlier_is_no_direction() -> None:
    x = rows(400)[0]
    wild = x.copy()
    wild[7, 3] = 1e6
    found, usual = input_moments.leading_directions(wild, 4), input_moments.leading_directions(x, 4)
    assert np.all(np.linalg.svd(found.T @ usual, compute_uv=False) > 0.95)  # one space


def test_the_doubt_about_a_slope_is_in_the_units_of_its_input_too() -> None:
    """a = w (g x): the slope by x is g w, and its standard deviation g times that of w."""
    state = wide_state(activation="linear")
    view = state.view.copy()
    view[:, 0] = 1.0
    plain = compute_sensitivity(state._replace(view=view), np.zeros((1, D)))
    found = compute_sensitivity(state, np.zeros((1, D)))
    gain = state.view[:, 0]
    np.testing.assert_allclose(found.slope[0], gain * plain.slope[0], rtol=1e-12)
    np.testing.assert_allclose(found.sd[0], gain * plain.sd[0], rtol=1e-12)


@pytest.mark.parametrize("module", [kernel_module, reference], ids=["engine", "twin"])
def test_a_direction_is_as_doubtful_as_the_squares_of_its_parts_say(module: Any) -> None:
    """Nothing is known of x: Var x_i = v_i' L v_i + D_i, s = V'x, and a certain weight of s."""
    config = Config(inputs=3, hidden=(), covariance="wide", directions=1, noise=0.1)
    v, low, rest, w = np.array([0.6, -0.8, 0.0]), 0.6, np.array([0.5, 0.3, 0.2]), 0.7
    state = init(config, directions=v[:, None])
    state = state._replace(
        mean=np.array([0.3, w, 0.0, 0.0, 0.0]),
        cov=np.zeros_like(state.cov),
        input_mean=np.zeros(3),
        input_cov=np.concatenate([[low], rest]),
    )
    said = module.predict_arrays(state, np.full((1, 3), np.nan))
    wanted = w**2 * (v**2 @ (v**2 * low + rest))
    assert said.function_var[0, 0] == pytest.approx(wanted, rel=1e-5)


@pytest.mark.parametrize("module", [kernel_module, reference], ids=["engine", "twin"])
def test_an_input_that_never_varied_has_a_variance_of_a_millionth(module: Any) -> None:
    config = Config(inputs=2, hidden=(), covariance="wide", directions=1, noise=0.1)
    state = init(config, directions=np.array([[1.0], [0.0]]))
    state = state._replace(
        mean=np.array([0.0, 0.0, 0.0, 3.0]),
        cov=np.zeros_like(state.cov),
        input_cov=np.array([1.0, 1.0, 0.0]),
    )
    said = module.predict_arrays(state, np.array([[0.5, np.nan]]))
    assert said.function_var[0, 0] == pytest.approx(9e-6, rel=1e-9)


@pytest.mark.parametrize("module", [kernel_module, reference], ids=["engine", "twin"])
def test_a_missing_value_leaves_what_is_known_of_its_input_alone(module: Any) -> None:
    config = Config(inputs=3, hidden=(), covariance="wide", directions=1, noise=0.1)
    state = init(config, directions=np.array([[0.6], [0.8], [0.0]]))
    state = state._replace(
        input_mean=np.array([0.1, 0.2, -0.4]), input_cov=np.array([0.6, 0.5, 0.8, 0.9])
    )
    after, _ = module.learn_arrays(state, np.array([[1.5, 0.3, np.nan]]), np.zeros((1, 1)))
    assert after.input_mean[2] == -0.4
    assert after.input_cov[3] == pytest.approx(0.9, rel=1e-12)
    assert after.input_mean[0] == pytest.approx(0.1 + 1.4 / 2.0)  # beside one row before the first
