"""The numbers that Python and C share: each reaches the kernel, and each matters there."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest

from kbnn import Config, State, init
from kbnn.core import constants, kernel, reference
from kbnn.core.reference import Records
from kbnn.core.state import ARRAYS, COUNT
from kbnn.distributions import calibration, categorical
from kbnn.distributions.predictive import PARAM, PARAM_COUNT
from kbnn.fleet.packing import PackedLayout
from kbnn.model import scaler
from kbnn.model.settings import Settings
from tests.networks import stream

_kernel = pytest.importorskip("kbnn.core._kernel", reason="built without a compiler")

PYTHON_ALONE = {"noise_discount", "variance_floor", "least_noise_ratio"}
"""These reach the kernel in another form: derived, or as part of a configuration."""


def value_of(name: str) -> float:
    return float(getattr(constants, name.upper()))


def made(**changed: float) -> Any:
    """The kernel's constants with some of them changed."""
    return _kernel.Constants(
        lambda name: changed.get(name, value_of(name)), constants.NODES, constants.NODE_WEIGHTS
    )


NAMES = made().names


def test_every_constant_reaches_the_kernel() -> None:
    stated = {name.lower() for name, value in vars(constants).items() if isinstance(value, float)}
    assert stated == set(NAMES) | PYTHON_ALONE


def extreme(config: Config) -> tuple[State, Any]:
    """A learned belief, and rows at the edge of what is believed."""
    data = stream(config, 60, missing=0.1, noisy=0.1)
    state, _ = reference.learn_arrays(init(config), *data)
    rows = stream(config, 40, seed=1)
    x, y, x_var, weight = (array.copy() for array in rows)
    x[:6, 0] = [900.0, 1100.0, 5.0, -5.0, 0.0, np.nan]
    x_var[6:9, 0] = [1e-13, 0.5, np.inf]
    if config.observation == "count":
        y[9:20, 0] = [0.0, 1.0, 40.0, 1e3, 1e7, 1e15, 8e15, 1.0e16, 0.5, -1.0, 3.0]
    elif not config.classes:
        y[9:20, 0] = [3.0, -6.0, 30.0, -1e3, 1e7, 0.9e100, 1.1e100, 8.0, 8.0, 8.0, 8.0]
    weight[20:26] = [0.9e-300, 1.1e-300, 0.9e100, 1.1e100, 0.5, 4.0]
    return state, (x, y, x_var, weight)


def sunk(state: State) -> State:
    """Certain of its weights, of its noise and of its inputs: every floor is near."""
    return state._replace(
        cov=1e-14 * state.cov,
        noise=np.column_stack([state.noise[:, 0], 1e-13 * state.noise[:, 1]]),
        head_cov=1e-13 * state.head_cov,
        input_cov=1e-13 * state.input_cov,
    )


def far(state: State, level: float) -> State:
    """The noise head at one end of its range, and unsure of itself."""
    head = state.head_mean.copy()
    head[:, 0] = level
    return state._replace(head_mean=head, head_cov=50.0 * state.head_cov)


def alarmed(state: State) -> State:
    """A noise belief of long memory, one row before an alarm."""
    return state._replace(
        noise=state.noise * np.where(np.ones_like(state.noise), 50.0, 1.0),
        surprise=np.array([state.config.kind.detector.threshold]),
    )


@cache
def all_scenes() -> list[tuple[State, Any]]:
    return list(scenes())


def scenes() -> Iterator[tuple[State, Any]]:
    """Beliefs and rows that together come near every bound of the kernel."""
    common: dict[str, Any] = {"inputs": 2, "hidden": (4,)}
    for options in (
        {},
        {"activation": "sigmoid", "covariance": "paper", "noise": 0.1},
        {"observation": "bernoulli"},
        {"observation": "categorical", "outputs": 3},
        {"observation": "sigmoid", "noise": 0.1, "covariance": "neuron"},
        {"observation": "count"},
        {"observation": "amount", "outputs": 2},
        {"robust": False, "drift": False, "noise_head": False},
        {"covariance": "wide", "directions": 1},
    ):
        state, rows = extreme(Config(**common | options))
        yield state, rows
        yield sunk(state), rows
        yield alarmed(state), rows
        if state.config.observation == "count":
            for sums in ([3.0, 1e-6], [3.0, 600.0]):
                yield state._replace(noise=np.array([sums]), mean=60.0 * state.mean), rows
            yield state._replace(cov=1e6 * state.cov, prior_var=1e6 * state.prior_var), rows
        if state.config.has_head:
            yield far(state, -20.0), rows
            yield far(state, 20.0), rows
        if state.config.classes:
            sure = np.where(np.arange(len(state.mean)) % 2, 300.0, -300.0)
            yield state._replace(mean=sure), rows
        if state.config.directions:  # nothing is known of the first row, and no doubt is left
            yield sunk(state), (np.full_like(rows[0], np.nan), *rows[1:])
        if state.config.covariance == "paper":
            flat = state._replace(mean=0.0 * state.mean, cov=1e-290 * state.cov)
            yield flat, rows


def run(shared: Any, state: State, rows: Any) -> tuple[State, Records]:
    session = _kernel.Session(
        kernel.build_net(state.config, shared), state, Records._make, ARRAYS, COUNT._fields
    )
    records = session.learn(*rows)
    session.replay(rows[0], rows[1], means_alone=True)
    session.learn(*rows)
    return session.state(), records


def scaled(shared: Any) -> list[Any]:
    """What standardising a column does that jumps and then settles elsewhere."""
    rng = np.random.default_rng(0)
    raw = rng.standard_normal((400, 1))
    raw[40] = 300.0
    raw[200:] += 25.0
    columns = scaler.fit_scaler(raw[:2])
    raw[2] = 40.0
    _, z, outgrown = _kernel.scale_rows(columns, raw[2:, :0], raw[2:], np.zeros(1), shared)
    return [len(z), columns, z, outgrown]


def stated(shared: Any) -> list[Any]:
    """What is stated of values with heavy tails, of some beyond all bounds, and of counts."""
    rng = np.random.default_rng(0)
    y = rng.standard_t(2, size=(1500, 1))
    y[300:330] *= 1e7
    y[600:700] *= 1e-3
    found: list[Any] = []
    for scale in (1.0, 40.0, 1e-3):
        known, mean, sd = calibration.init_calibration(1), np.zeros_like(y), np.full_like(y, scale)
        said = _kernel.update_calibration(known, mean, sd, y, True, True, shared)
        found += [known, said, _kernel.score_rows(y[:, 0], said[:, 0].copy(), shared)]
        found += [_kernel.mixture_edges(said, 0.07, 1.476, False, shared)]
        found += [_kernel.mixture_edges(said, 0.1, 1.2815515655446004, False, shared)]
    known, zero = calibration.init_calibration(1), np.zeros((9, 1))
    known[0, calibration.SQUARES] = 5.0
    found += [_kernel.update_calibration(known, zero, zero + 1.0, zero, True, True, shared)]
    known, rows = calibration.init_calibration(1)[0], said[:, 0].copy()
    u, none = rng.random(1500), np.where(np.arange(1500) % 2, 0.0, 0.3)
    _kernel.update_count_intervals(known, np.ones(1500), u, none, True, rows, shared)
    return [*found, known, rows, *mixed_counts(shared)]


def mixed_counts(shared: Any) -> list[Any]:
    """What is stated of counts, some far off, some as expected for so long that none seem so."""
    found: list[Any] = []
    for values, share in (([3.0, 1e6, 0.0] * 100, 0.01), ([2.0] * 40, 1e-12)):
        known, rows = calibration.init_calibration(1)[0], np.ones((len(values), PARAM_COUNT))
        rows[:, PARAM.place], rows[:, PARAM.spread] = 2.0, 0.1
        known[calibration.OUTLIERS], known[calibration.SHARE] = (
            share * known[calibration.OUTLIER_ROWS],
            share,
        )
        _kernel.update_count_mixture(known, np.array(values), rows, shared)
        found += [known, rows]
    return found


def sharpened(shared: Any) -> list[Any]:
    """What is stated of classes for longer than is remembered, some as good as impossible."""
    rng = np.random.default_rng(0)
    p = np.sort(rng.dirichlet(np.full(3, 0.05), size=600), axis=1)
    known, y = categorical.init_temperature(np.zeros(0), 3), (rng.random(600) * 3.0) // 1.0
    return [known, _kernel.apply_temperature(known, p, y, None, categorical.POWER_GRID, shared)]


def counted(shared: Any) -> list[Any]:
    """The record of a packed model after a target beyond all that is squared."""
    form = PackedLayout(Settings(hidden=(3,)), Config(2, hidden=(3,)), 0)
    net = kernel.build_net(form.config, shared)
    many = _kernel.BatchedSession(net, Records._make, form.kernel_offsets)
    models, at = np.zeros((1, form.size)), np.zeros(3, np.int64)
    drawn = np.zeros(len(form.curve_figures) + 1, np.int64)
    terms = np.ones((3, 1 + len(form.figures)))
    many.count(models, at, terms, drawn, at, np.array([1.0, 2.0, 1e110]))
    return [models]


def outcomes(shared: Any) -> list[Any]:
    found: list[Any] = scaled(shared) + stated(shared) + sharpened(shared) + counted(shared)
    for state, rows in all_scenes():
        after, records = run(shared, state, rows)
        found += [*records, *(getattr(after, name) for name in ARRAYS)]
    return found


@pytest.fixture(scope="module")
def usual() -> list[Any]:
    return outcomes(made())


def moved(found: list[Any], usual: list[Any]) -> bool:
    return any(not np.array_equal(a, b, equal_nan=True) for a, b in zip(found, usual, strict=True))


def test_the_same_constants_move_nothing(usual: list[Any]) -> None:
    assert not moved(outcomes(made()), usual)


@pytest.mark.parametrize("name", NAMES)
def test_no_constant_is_dead_in_the_kernel(name: str, usual: list[Any]) -> None:
    value = value_of(name)
    changes = [1.5 * value, 0.5 * value, value + 1.0, 1e-5]
    assert any(moved(outcomes(made(**{name: other})), usual) for other in changes)


@pytest.mark.parametrize("which", [0, 1])
def test_the_nodes_are_those_that_were_handed_over(which: int, usual: list[Any]) -> None:
    given = [constants.NODES.copy(), constants.NODE_WEIGHTS.copy()]
    given[which][5] *= 1.01
    assert moved(outcomes(_kernel.Constants(value_of, *given)), usual)
    with pytest.raises(ValueError, match="the kernel takes 32 nodes, got 31"):
        _kernel.Constants(value_of, constants.NODES[1:], constants.NODE_WEIGHTS[1:])


def test_a_constant_that_python_lacks_is_an_error() -> None:
    with pytest.raises(AttributeError):
        _kernel.Constants(lambda name: getattr(reference, name.upper()), *[constants.NODES] * 2)
