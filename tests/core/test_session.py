"""A session: rows learned and predicted in place, bit for bit as in one call."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from kbnn import ALARM, LEARNED, REJECTED, UNLABELLED, Config, State, init
from kbnn.core import kernel, reference
from kbnn.core.kernel import Session
from kbnn.core.reference import Records
from kbnn.core.state import ARRAYS, COUNT
from tests.networks import Stream, identical, stream

CONFIGS: list[dict[str, Any]] = [
    {"hidden": (11,), "covariance": "neuron"},
    {"hidden": (3,), "covariance": "neuron", "outputs": 2},
    {"hidden": (11,), "covariance": "group", "group_size": 4},
    {"hidden": (4, 9), "covariance": "full"},
    {"hidden": (6,), "covariance": "group", "outputs": 3, "observation": "categorical"},
    {"hidden": (5,), "covariance": "group", "observation": "bernoulli"},
    {"hidden": (3, 2), "covariance": "paper", "activation": "tanh"},
    {"hidden": (), "covariance": "full", "outputs": 2},
]
each_config = pytest.mark.parametrize(
    "options", CONFIGS, ids=lambda o: f"{o['covariance']}-{o['hidden']}-{o.get('outputs', 1)}"
)
OPENERS: dict[str, Callable[[State], Session]] = {
    "engine": kernel.open_session,
    "twin": reference.ReferenceSession,
}
each_engine = pytest.mark.parametrize("opened", OPENERS.values(), ids=OPENERS)


def rows(config: Config, count: int) -> Stream:
    """Missing and noisy inputs, rows without a label, rejected ones and an alarm."""
    data = stream(config, count, seed=1, missing=0.1, noisy=0.1)
    half = count // 2
    if config.classes:  # which are told by the first input, until they change places
        data.y[:, 0] = data.x[:, 0] > 0.0
    data.y[half:, 0] = (data.y[half:, 0] + 1.0) % config.classes if config.classes else 6.0
    data.y[[7, 8, count // 3, count - 2]] = np.nan
    data.x[5, 0] = np.inf
    return data


def same(a: Records, b: Records) -> bool:
    return all(np.array_equal(one, other) for one, other in zip(a, b, strict=True))


def interleaved(session: Session, data: Stream, seed: int) -> Records:
    """Learn a stream in random pieces, asking for everything in between."""
    rng = np.random.default_rng(seed)
    parts, at = [], 0
    while at < len(data.x):
        size = int(rng.choice([0, 1, 1, 1, 2, 3, 40]))
        parts.append(session.learn(*data.part(slice(at, at + size))))
        at += size
        for question in rng.choice(4, size=rng.integers(3)):
            if question == 0:
                some = rng.integers(len(data.x), size=3)
                session.predict(data.x[some], data.x_var[some])
            elif question == 1:
                session.predict(np.zeros((2, session.config.inputs)))
            elif question == 2:
                session.state()
            else:
                assert session.counts == count_of(session.state())
    return Records(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def count_of(state: State) -> dict[str, int]:
    return {name: int(state.counts[at]) for name, at in COUNT._asdict().items()}


@each_config
@pytest.mark.parametrize("seed", range(6))
def test_any_interleaving_gives_identical_bits(options: dict[str, Any], seed: int) -> None:
    config = Config(inputs=5, **options)
    start, data = init(config, 2), rows(config, 300)
    whole, records = kernel.learn_arrays(start, *data)
    assert whole.counts[COUNT.alarms] >= 1
    session = kernel.open_session(start)
    assert same(interleaved(session, data, seed), records)
    assert identical(session.state(), whole)
    predicted = session.predict(data.x[:20], data.x_var[:20])
    assert same(predicted, kernel.predict_arrays(whole, data.x[:20], data.x_var[:20]))


def test_the_twin_is_interleaved_too() -> None:
    config = Config(inputs=4, hidden=(5,))
    start, data = init(config, 2), rows(config, 90)
    whole, records = reference.learn_arrays(start, *data)
    session = reference.ReferenceSession(start)
    assert same(interleaved(session, data, 0), records)
    assert identical(session.state(), whole)


@each_config
def test_pending_updates_are_counted(options: dict[str, Any]) -> None:
    """A prior so wide that most rows raise variances to their floor: the last row's are counted."""
    config = Config(inputs=3, drift=False, **options)
    start = init(config)
    start = start._replace(prior_var=1e12 * start.prior_var)
    data = stream(config, 60)
    one, other = kernel.open_session(start), kernel.open_session(start)
    for i in range(60):
        row = data.part(slice(i, i + 1))
        one.learn(*row)
        other.learn(*row)
        assert one.counts == count_of(other.state())
    assert one.counts["repairs"] > 0


@each_engine
@each_config
def test_states_and_callers_arrays_are_left_alone(
    opened: Callable[[State], Session], options: dict[str, Any]
) -> None:
    config = Config(inputs=5, **options)
    start, data = init(config), rows(config, 40)
    kept = start._replace(**{name: getattr(start, name).copy() for name in ARRAYS})
    for name in ARRAYS:
        getattr(start, name).flags.writeable = False
    for array in data:
        array.flags.writeable = False
    session = opened(start)
    session.learn(*data.part(slice(20)))
    middle = session.state()
    copied = middle._replace(**{name: getattr(middle, name).copy() for name in ARRAYS})
    assert session.state() is middle
    session.predict(data.x)
    assert session.state() is middle
    noise = session.noise
    assert np.array_equal(noise, middle.noise)
    session.learn(*data.part(slice(20, 40)))
    assert identical(middle, copied)
    assert identical(start, kept)
    assert np.array_equal(noise, middle.noise)
    assert session.state() is not middle
    assert session.state().seed == start.seed
    assert session.config == config


@each_engine
def test_what_becomes_of_a_row(opened: Callable[[State], Session]) -> None:
    session = opened(init(Config(inputs=1, outputs=2, hidden=(3,))))
    nan, inf = np.nan, np.inf
    y = np.array([[1, 2], [1, nan], [nan, nan], [nan, inf], [nan, 1e101], [nan, nan], [0.5, 0.5]])
    x = np.array([[0.0], [0.1], [0.2], [0.3], [0.4], [inf], [nan]])
    weight = np.array([1.0, 1.0, nan, 1.0, 1.0, 1.0, 1.0])
    records = session.learn(x, y, weight=weight)
    expected = [LEARNED, LEARNED, UNLABELLED, REJECTED, REJECTED, UNLABELLED, LEARNED]
    assert records.status.tolist() == expected
    assert session.learn(np.array([[inf]]), y[:1]).status.tolist() == [REJECTED]
    assert (session.counts["rows"], session.counts["rejected"]) == (3, 3)
    assert np.all(np.isfinite(records.mean))


@each_engine
def test_rows_of_a_later_pass_raise_no_alarm(opened: Callable[[State], Session]) -> None:
    config = Config(inputs=2, hidden=(4,))
    data = stream(config, 80)
    jump = data._replace(y=data.y + 50.0)
    session = opened(init(config))
    session.learn(*data)
    assert not np.any(session.learn(*jump, again=True).status.astype(int) & ALARM)
    assert (session.counts["rows"], session.counts["distinct"]) == (160, 80)
    session.learn(*data._replace(y=data.y - 500.0))
    assert session.counts["alarms"] >= 1


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "narrow x": ({"x": np.zeros((2, 2))}, r"x must have shape \(rows, 3\), got \(2, 2\)"),
    "flat x": ({"x": np.zeros(3)}, r"x must have shape \(rows, 3\), got \(3,\)"),
    "wide y": ({"y": np.zeros((2, 2))}, r"y must have shape \(2, 1\), got \(2, 2\)"),
    "few y": ({"y": np.zeros((1, 1))}, r"y must have shape \(2, 1\), got \(1, 1\)"),
    "flat y": ({"y": np.zeros(2)}, r"y must have shape \(2, 1\), got \(2,\)"),
    "x_var": ({"x_var": np.zeros((1, 3))}, r"x_var must have shape \(2, 3\), got \(1, 3\)"),
    "weight": ({"weight": np.ones(3)}, r"weight must have shape \(2,\), got \(3,\)"),
}


@each_engine
@pytest.mark.parametrize("wrong", WRONG)
def test_arrays_of_a_wrong_shape_are_refused(
    opened: Callable[[State], Session], wrong: str
) -> None:
    change, message = WRONG[wrong]
    start = init(Config(inputs=3, hidden=(4,)))
    session = opened(start)
    with pytest.raises(ValueError, match=message):
        session.learn(**{"x": np.zeros((2, 3)), "y": np.zeros((2, 1))} | change)
    assert identical(session.state(), start)
    assert session.counts["rows"] == 0
    session.learn(np.zeros((2, 3)), np.zeros((2, 1)))


@pytest.mark.skipif(not kernel.is_compiled(), reason="built without a compiler")
def test_only_plain_arrays_reach_the_kernel() -> None:
    start = init(Config(inputs=3, hidden=(4,)))
    session = kernel.open_session(start)
    for x in (np.zeros((3, 2)).T, np.zeros((2, 6))[:, ::2]):
        with pytest.raises(ValueError, match="x must be a contiguous array"):
            session.predict(x)
    for kind in (np.float32, np.int64):
        with pytest.raises(ValueError, match="x must hold 8-byte floats"):
            session.predict(np.zeros((2, 3), dtype=kind))
    with pytest.raises(ValueError, match="y must be a contiguous array"):
        session.learn(np.zeros((2, 3)), None)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="cov must have 211 entries, got 210"):
        kernel.open_session(start._replace(cov=start.cov[1:]))
    with pytest.raises(ValueError, match="counts must hold 8-byte integers"):
        kernel.open_session(start._replace(counts=start.counts.astype(float)))


@pytest.mark.skipif(not kernel.is_compiled(), reason="built without a compiler")
def test_a_session_at_work_in_one_thread_makes_others_wait() -> None:
    config = Config(inputs=60, hidden=(60,), covariance="full")
    session = kernel.open_session(init(config))
    x = np.random.default_rng(0).standard_normal((40, 60))
    expected = session.predict(x[:1]).mean
    worker = threading.Thread(target=session.predict, args=(x,))
    worker.start()
    while worker.is_alive():
        assert session.counts["rows"] == 0
        assert np.array_equal(session.predict(x[:1]).mean, expected)
    worker.join()


@pytest.mark.parametrize("choice", ["numpy", ""])
def test_calls_in_a_log_return_what_they_returned_and_run_once(
    choice: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KBNN_ENGINE", choice)
    session = kernel.open_session(init(Config(inputs=3, hidden=(4,))))
    x, y = np.random.default_rng(1).standard_normal((2, 3)), np.ones((2, 1))

    def calls() -> tuple[object, ...]:
        before = session.predict(x).mean.tolist()
        learned = session.learn(x, y).mean.tolist()
        rows, noise = session.counts["rows"], session.noise.tolist()
        session.replay(x, y)
        return before, learned, rows, noise, session.state().mean.tolist()

    session.begin_log()
    first = calls()
    assert session.has_learned
    state = session.state()
    session.rewind_log()
    assert calls() == first
    assert identical(session.state(), state)
    session.end_log()
    assert session.counts["rows"] == 2
    session.learn(x, y)
    assert session.counts["rows"] == 4


def test_more_rows_than_memory_holds_are_an_error_and_change_nothing() -> None:
    session = kernel.open_session(init(Config(inputs=0, hidden=(2,))))
    before = session.state()
    rows = np.lib.stride_tricks.as_strided(np.zeros(1), (1 << 46, 0), (8, 8))
    with pytest.raises(MemoryError):
        session.predict(rows)
    assert session.state() is before
    session.predict(np.zeros((1, 0)))


SHORT = """
import resource
import numpy as np
from kbnn import Config, init, learn, predict
from kbnn.core import kernel
state = init(Config(inputs=40, hidden=(60,), covariance="full"))
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (4 << 20), resource.RLIM_INFINITY))
before = state.cov.sum()
for use in (kernel.open_session, lambda s: learn(s, np.zeros((1, 40)), [0.0])):
    try:
        use(state)
    except MemoryError as error:
        print(error)
print(before == state.cov.sum(), int(state.counts.sum()))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="limits memory the way Linux does")
@pytest.mark.skipif(not kernel.is_compiled(), reason="built without a compiler")
def test_short_memory_is_an_error_and_not_a_lost_state() -> None:
    run = subprocess.run(
        [sys.executable, "-c", SHORT], capture_output=True, text=True, check=True, timeout=60
    )
    message = "not enough memory for the network's working copy"
    assert run.stdout.splitlines() == [message, message, "True 0"]
