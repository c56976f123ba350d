"""Rows learned once more while a stream is young: how many, which, when, and at what price."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kbnn.core import kernel, reference
from kbnn.core.config import Config, Covariance
from kbnn.core.input_moments import leading_directions
from kbnn.core.kernel import learn, open_session
from kbnn.core.layout import layout_of
from kbnn.core.state import ARRAYS, COUNT, State, init
from kbnn.data.batch import slice_rows
from kbnn.model import learner, replay
from kbnn.model.learner import LearnEvents, _select_replayable_rows
from kbnn.model.model import OnlineModel
from kbnn.model.replay import (
    MAX_BURST_ROWS,
    MAX_REPLAY_INTERVAL_ROWS,
    REPLAY_END_ROWS,
    REPLAY_INTERVAL_ROWS,
    BufferedRows,
    ReplayState,
)
from kbnn.model.settings import REPLAY_ROWS, Settings
from tests.bench.data import FloatArray, block, schema, trained
from tests.modelling import differences, learn_in, mixed_rows, network, new_model, restored, same


def rows(count: int, seed: int = 0) -> tuple[FloatArray, FloatArray]:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((count, 3))
    return x, np.sin(2.0 * x[:, 0]) + x[:, 1] * x[:, 2] + 0.1 * rng.standard_normal(count)


def beliefs(**config: Any) -> list[Any]:
    """The same rows through kernel and twin: learned, rehearsed, and rehearsed for the means."""
    rng = np.random.default_rng(1)
    x = rng.standard_normal((50, 3))
    x[rng.random(x.shape) < 0.1] = np.nan
    config = {"outputs": 1, "observation": "gaussian", **config}
    y = np.sin(np.nan_to_num(x[:, :1])) * np.ones((1, config["outputs"]))
    if config["observation"] == "categorical":
        y = (x[:, :1] > 0.0).astype(float)
    weight = rng.choice([0.5, 1.0, 2.0], 50)
    made = []
    for session in (
        open_session(init(Config(inputs=3, **config), 2)),
        reference.ReferenceSession(init(Config(inputs=3, **config), 2)),
    ):
        session.learn(x, y, None, weight)
        session.replay(x[:30], y[:30], None, weight[:30])
        session.learn(x[:7], y[:7])
        before = session.state()
        session.replay(x[20:], y[20:], np.full((30, 3), 0.01), weight[20:], means_alone=True)
        after = session.state()
        session.learn(x[7:20], y[7:20])
        made.append((before, after, session.state()))
    return made


@pytest.mark.thinned(5)
@pytest.mark.parametrize("covariance", ["paper", "neuron", "group", "full"])
@pytest.mark.parametrize("hidden", [(), (7,), (5, 4)])
@pytest.mark.parametrize(
    "outputs", [{}, {"outputs": 2}, {"observation": "categorical", "outputs": 2}]
)
def test_kernel_and_twin_rehearse_alike(
    covariance: str, hidden: tuple[int, ...], outputs: dict[str, Any]
) -> None:
    ours, theirs = beliefs(covariance=covariance, hidden=hidden, **outputs)
    for one, other in zip(ours, theirs, strict=True):
        for name in ARRAYS:
            assert getattr(one, name) == pytest.approx(getattr(other, name), rel=1e-9, abs=1e-11)


@pytest.mark.parametrize("covariance", ["paper", "neuron", "group", "full"])
def test_what_moves_the_means_alone_leaves_everything_else(covariance: str) -> None:
    for before, after, _ in beliefs(covariance=covariance, hidden=(5, 4)):
        for name in ("cov", "prior_mean", "input_mean", "input_cov", "surprise"):
            assert np.array_equal(getattr(before, name), getattr(after, name)), name
        assert not np.array_equal(before.mean, after.mean)
        assert not np.array_equal(before.noise, after.noise)
        changed = np.flatnonzero(before.counts != after.counts)
        assert changed.tolist() == [COUNT.moved]
        assert after.counts[COUNT.moved] == 30
        assert after.counts[COUNT.rehearsed] == 30


def test_no_live_row_waits_for_more_than_512() -> None:
    """A hundred rounds are owed of 32 rows; those that the networks began with are counted in."""
    x = np.random.default_rng(0).standard_normal((34, 1))
    model = OnlineModel(Settings(hidden=(3,), rehearse=100), schema(1))
    for stop, rehearsed in ((32, 480), (33, 992), (34, 1504)):
        start = 0 if stop == 32 else stop - 1
        model.learn(block(x[start:stop], x[start:stop, 0]))
        assert network(model).counts[COUNT.rehearsed] == rehearsed


def test_rows_that_cannot_be_learned_are_not_counted_again() -> None:
    session = open_session(init(Config(inputs=1, hidden=(3,))))
    x, y = np.zeros((3, 1)), np.array([[1.0], [np.inf], [np.nan]])
    session.learn(x, y)
    session.replay(x, y)
    assert session.counts["rejected"] == 1
    assert session.counts["rehearsed"] == 1


def test_bursts_come_where_row_counts_say() -> None:
    at, places = 0, []
    while at < 40_000:
        following = replay.find_next_burst(ReplayState(), at)
        inside = range(at, following, max(1, (following - at) // 7))
        assert {replay.find_next_burst(ReplayState(), place) for place in inside} == {following}
        places.append(following - at)
        at = following
    assert places[: REPLAY_ROWS // REPLAY_INTERVAL_ROWS] == [REPLAY_INTERVAL_ROWS] * (
        REPLAY_ROWS // REPLAY_INTERVAL_ROWS
    )
    assert max(places) == MAX_REPLAY_INTERVAL_ROWS
    assert sorted(places) == places
    late = ReplayState(since=50_016)
    assert replay.find_next_burst(late, 50_020) == 50_016 + REPLAY_INTERVAL_ROWS


def test_the_debt_of_a_stream_is_k_rows_each_and_then_tends_to_nothing() -> None:
    now, at, young = ReplayState(), 0, 0.0
    while at < 200_000:
        at = replay.find_next_burst(ReplayState(), at)
        now = replay.add_to_backlog(now, at, 8)
        young = now.backlog if at == REPLAY_ROWS else young
    assert young == 8 * REPLAY_ROWS
    late = now.backlog - young
    assert late == pytest.approx(8 * REPLAY_ROWS * np.log(REPLAY_END_ROWS / REPLAY_ROWS), rel=0.02)


def test_every_row_is_drawn_before_one_is_drawn_twice() -> None:
    drawn = replay.draw_replay_rows(3, 64, 10, 35)
    assert np.bincount(drawn[:30], minlength=10).tolist() == [3] * 10
    assert np.bincount(drawn, minlength=10).max() == 4
    assert not np.array_equal(drawn[:10], drawn[10:20])
    assert np.array_equal(drawn, replay.draw_replay_rows(3, 64, 10, 35))
    assert not np.array_equal(drawn, replay.draw_replay_rows(4, 64, 10, 35))
    assert not np.array_equal(drawn, replay.draw_replay_rows(3, 96, 10, 35))


@pytest.mark.parametrize("covariance", ["neuron", "group", "full"])
def test_the_surplus_is_taken_back_exactly(covariance: Covariance) -> None:
    """For a linear model of known noise the rows counted k times become rows counted once."""
    rng = np.random.default_rng(4)
    x = rng.standard_normal((40, 3))
    y = x[:, :1] + 0.3 * rng.standard_normal((40, 1))
    config = Config(
        inputs=3, hidden=(), covariance=covariance, noise=0.09, robust=False, drift=False
    )
    once, twice = (open_session(init(config, 1)) for _ in range(2))
    once.learn(x, y)
    twice.learn(x, y)
    for _ in range(3):
        twice.replay(x, y)
    back = replay.remove_replayed_information(twice.state())
    wanted: State = once.state()
    assert back.cov == pytest.approx(wanted.cov, rel=1e-9)
    assert (back.counts[COUNT.rows], back.counts[COUNT.rehearsed]) == (40, 0)
    assert not np.allclose(twice.state().cov, wanted.cov)
    assert replay.remove_replayed_information(wanted) is wanted


def test_what_has_no_precision_stays() -> None:
    state = init(Config(inputs=1, hidden=(), covariance="paper", noise=0.0))
    counts = state.counts.copy()
    counts[COUNT.rows], counts[COUNT.rehearsed] = 4, 4
    flat = state._replace(cov=0.0 * state.cov, counts=counts)
    assert np.array_equal(replay.remove_replayed_information(flat).cov, flat.cov)


def test_a_young_stream_pays_its_debt_and_settles() -> None:
    x, y = rows(REPLAY_ROWS + 64)
    model = OnlineModel(Settings(hidden=(6,), rehearse=4), schema(3))
    model.learn(block(x[:600], y[:600]))
    young = model.learner_state.replay_state
    assert not young.is_corrected
    assert young.rows == network(model).counts[COUNT.rehearsed] > 0
    assert network(model).counts[COUNT.moved] == 0
    model.learn(block(x[600:], y[600:]))
    old = model.learner_state.replay_state
    assert old.is_corrected
    assert network(model).counts[COUNT.rehearsed] == 0
    assert network(model).counts[COUNT.moved] > 0
    assert model.rows == REPLAY_ROWS + 64  # what is rehearsed is not counted as learned


def test_what_is_owed_is_rehearsed_after_each_of_the_next_rows() -> None:
    owing = ReplayState(backlog=1.0)
    assert replay.find_next_burst(owing, 40) == 41
    assert replay.find_next_burst(owing._replace(backlog=0.9), 40) == 64
    assert replay.find_next_burst(owing._replace(alarm=39), 40) == 64  # old rows are in doubt
    accruing = [n for n in range(1, 3 * REPLAY_ROWS) if replay.is_replay_due(owing, n)]
    assert accruing[:3] == [
        REPLAY_INTERVAL_ROWS,
        2 * REPLAY_INTERVAL_ROWS,
        3 * REPLAY_INTERVAL_ROWS,
    ]
    assert np.diff(accruing).max() == 2 * REPLAY_INTERVAL_ROWS
    x, y = rows(80)
    model = OnlineModel(Settings(hidden=(4,), rehearse=32), schema(3))
    model.learn(block(x[:64], y[:64]))
    before = model.learner_state.replay_state
    assert before.backlog > MAX_BURST_ROWS
    model.learn(block(x[64:65], y[64:65]))
    after = model.learner_state.replay_state
    assert (after.backlog, after.rows) == (
        before.backlog - MAX_BURST_ROWS,
        before.rows + MAX_BURST_ROWS,
    )


def test_rows_without_a_target_are_not_owed() -> None:
    x, y = rows(80)
    y[:] = np.nan
    model = OnlineModel(Settings(hidden=(4,), rehearse=8), schema(3))
    model.learn(block(x, y))
    assert model.learner_state.replay_state.backlog == 0.0


def test_between_two_rows_no_more_is_learned_than_the_budget(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The scale changes again and again; what is learned anew then counts."""
    x, y = rows(2200)
    x *= np.exp(np.arange(2200) / 700.0)[:, None]
    spent: list[int] = []
    work = _counting(monkeypatch)
    model = OnlineModel(Settings(hidden=(4,), rehearse=8, drift=False), schema(3))
    for at in range(len(y)):
        before = work[0]
        model.learn(block(x[at : at + 1], y[at : at + 1]))
        spent.append(work[0] - before)
    assert max(spent) == REPLAY_ROWS + 1  # all rows of a stream at the end of its youth
    assert np.median(spent) <= 1
    anew = {64, 128, 256, 512, 1024}
    others = [count for at, count in enumerate(spent, 1) if at not in anew and count <= REPLAY_ROWS]
    assert MAX_BURST_ROWS / 2 < max(others) <= MAX_BURST_ROWS + 1


def _counting(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Counts rows that sessions learn."""
    from kbnn.model import learner

    work = [0]

    class Counting:
        def __init__(self, state: State) -> None:
            self.inner = open_session(state)

        def __getattr__(self, name: str) -> Any:
            value = getattr(self.inner, name)
            if name not in ("learn", "replay"):
                return value

            def call(x: FloatArray, *rest: Any) -> Any:
                work[0] += len(x)
                return value(x, *rest)

            return call

    for module in (learner, learner):
        monkeypatch.setattr(module, "open_session", Counting)
    return work


def test_outliers_are_not_rehearsed() -> None:
    x, y = rows(400)
    y[50:400:10] += 40.0
    model = OnlineModel(Settings(hidden=(6,), rehearse=8), schema(3))
    model.learn(block(x, y))
    kept = model.learner_state.buffer.rows()
    wild = np.isin(kept.number, np.arange(51, 401, 10))
    assert np.all(kept.trust[wild] < 0.5)
    assert np.mean(kept.trust[~wild] > 0.5) > 0.95


def test_after_an_alarm_only_what_came_since_is_rehearsed() -> None:
    x, y = rows(1500)
    y[900:] = -3.0 * x[900:, 0] + 5.0
    model = OnlineModel(Settings(hidden=(10,), rehearse=8), schema(3))
    model.learn(block(x, y))
    alarm = model.alarms[-1]
    assert 900 < alarm < 960
    now = model.learner_state.replay_state
    assert now.alarm == 0
    assert alarm < now.since <= alarm + REPLAY_INTERVAL_ROWS
    assert now.since % REPLAY_INTERVAL_ROWS == 0
    assert model.learner_state.buffer.rows().number[0] == alarm


def test_a_change_is_learned_faster_with_rehearsal() -> None:
    x, y = rows(2600, 3)
    y[1300:] = np.cos(2.0 * x[1300:, 1]) - x[1300:, 0]
    errors = {}
    for often in (0, 8):
        model = OnlineModel(Settings(hidden=(30,), rehearse=often), schema(3))
        said = model.learn(block(x, y))
        errors[often] = np.sqrt(np.mean((said.mean[1400:1900, 0] - y[1400:1900]) ** 2))
    assert errors[8] < 0.9 * errors[0]


def test_gaps_weights_growth_and_classes_rehearse_alike_in_any_cut() -> None:
    stream = mixed_rows(2300)
    whole, cut = new_model(rehearse=8), new_model(rehearse=8)
    said = whole.learn(stream)
    parts = [1] * 40 + [7] * 100 + [500, 1, 31, 33]
    parts.append(2300 - sum(parts))
    assert same(said, learn_in(cut, stream, parts))
    assert differences(whole, cut) == []
    assert whole.learner_state.replay_state.rows > 2000


@pytest.mark.parametrize("at", [33, 64, 100, 512, 1023, 1024, 1025, 1500])
def test_saving_amid_debt_changes_no_bit(at: int) -> None:
    stream = mixed_rows(1700)
    whole, saved = new_model(rehearse=8), new_model(rehearse=8)
    whole.learn(stream)
    learn_in(saved, stream_part(stream, 0, at), [at])
    saved = restored(saved)
    saved.learn(stream_part(stream, at, 1700))
    assert differences(whole, saved) == []


def stream_part(stream: Any, start: int, stop: int) -> Any:
    from kbnn.data.batch import slice_rows

    return slice_rows(stream, start, stop)


def test_one_pass_with_rehearsal_beats_one_without() -> None:
    better = []
    for seed in range(5, 11):
        x, y = rows(900, seed)
        found = {}
        for often in (0, 8):
            model = trained(x[:600], y[:600], hidden=(30,), rehearse=often)
            said = model.predict(block(x[600:], y[600:]))
            found[often] = np.sqrt(np.mean((said.mean[:, 0] - y[600:]) ** 2))
        better.append(found[8] / found[0])
    assert np.mean(better) < 0.8
    assert max(better) < 1.0


def test_the_layout_of_a_rehearsed_model_is_sound() -> None:
    x, y = rows(1200, 6)
    state = network(trained(x, y, hidden=(8,)))
    for cov in layout_of(state.config).unpack_blocks(state.cov):
        assert np.min(np.linalg.eigvalsh(cov)) > 0.0


def test_an_alarm_among_the_first_rows_does_not_end_rehearsal() -> None:
    """This stream raises one before row 64; a scale learned anew leaves no trace of it."""
    x = np.random.default_rng(1).standard_normal((400, 3))
    y = np.sin(2.0 * x[:, 0]) + 0.1 * x[:, 2]
    model = trained(x[:, :2], y, hidden=(3,))
    now = model.learner_state.replay_state
    assert (now.since, now.alarm) == (0, 0)
    assert now.rows > 4 * len(y)


def test_replayed_information_is_removed_from_loose_weights() -> None:
    z = np.random.default_rng(0).standard_normal((60, 12))
    config = Config(inputs=12, hidden=(4,), covariance="wide", directions=3)
    state = init(config, directions=leading_directions(z, 3))
    layout = layout_of(config)
    assert len(layout.loose_positions)
    prior = state.prior_var[layout.loose_positions]
    narrow = layout.pack_blocks(layout.unpack_blocks(state.cov), prior / 5.0)
    counts = state.counts.copy()
    counts[COUNT.rows], counts[COUNT.rehearsed] = 10, 30
    back = replay.remove_replayed_information(state._replace(cov=narrow, counts=counts))
    # 1/P = 5/P0 from 40 rows of which 10 were new: 1/P0 + (4/P0)/4.
    assert layout.loose_var(back.cov) == pytest.approx(prior / 2.0)


def test_fewer_rows_are_replayed_after_an_alarm() -> None:
    calm, alarmed = ReplayState(), ReplayState(since=1000)
    assert replay.add_to_backlog(calm, 32, 8).backlog == 32 * 8
    assert replay.add_to_backlog(alarmed, 1032, 8).backlog == 32 * replay.ALARM_REPLAY_RATIO
    assert replay.add_to_backlog(alarmed, 1032, 1).backlog == 32


def test_outliers_and_rows_without_target_are_not_replayed() -> None:
    y = np.array([[1.0], [np.nan], [2.0], [3.0]])
    trust = np.array([0.9, 1.0, 0.4, 0.5])
    kept = BufferedRows(np.zeros((4, 1)), np.zeros((4, 0)), y, np.ones(4), np.arange(4.0), trust)
    assert _select_replayable_rows(kept).tolist() == [0, 3]


@pytest.mark.parametrize(("rows", "noted"), [(60, False), (200, True)])
def test_alarms_among_the_first_rows_do_not_restart_replay(
    rows: int, noted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = np.random.default_rng(4).standard_normal((rows + 1, 1))
    model = OnlineModel(Settings(hidden=(4,), kind="regression"), schema(1))
    taken = block(x, np.sin(x[:, 0]))
    model.learn(slice_rows(taken, 0, rows))
    monkeypatch.setattr(learner, "events_of", lambda said, first: LearnEvents([first]))
    model.learn(slice_rows(taken, rows, rows + 1))
    assert model.learner_state.replay_state.alarm == (rows + 1 if noted else 0)


def turning_rows(count: int, turns: float) -> tuple[FloatArray, FloatArray]:
    """Return two inputs, and the side of a line through 0 that turns steadily after row 400."""
    rng = np.random.default_rng(5)
    x = rng.standard_normal((count, 2))
    angle = 2.0 * np.pi * turns * np.maximum(np.arange(count) - 400, 0) / count
    return x, (x[:, 0] * np.cos(angle) + x[:, 1] * np.sin(angle) > 0.0).astype(float)


@pytest.mark.parametrize("turns", [0.0, 0.6])
def test_rows_that_a_gradual_change_has_outdated_are_dropped(turns: float) -> None:
    x, y = turning_rows(1400, turns)
    cuts = [block(x, y)], [block(x[:700], y[:700]), block(x[700:], y[700:], first=701)]
    models = []
    for cut in cuts:
        model = OnlineModel(Settings(hidden=(10,), drift=False), schema(2, classes=2))
        for part in cut:
            model.learn(part)
        models.append(model)
    one, two = (len(model.learner_state.buffer) for model in models)
    assert one == two
    assert one == 1400 if turns == 0.0 else one < 800
    assert not differences(*models)


def test_an_ensemble_with_a_network_without_replay_keeps_its_rows() -> None:
    x, y = turning_rows(1400, 0.6)
    model = OnlineModel(Settings(drift=False), schema(2, classes=2))
    model.learn(block(x, y))
    assert {spec.replays for spec in model.learner_state.specs} == {False, True}
    assert len(model.learner_state.buffer) == 1400


@pytest.mark.parametrize(("gap", "outdated"), [(0.6, False), (0.8, True), (-0.8, False)])
def test_rows_are_outdated_four_standard_errors_below(gap: float, outdated: bool) -> None:
    newest = np.resize(
        [-1.0, 1.0], 64
    )  # the difference of means has the error sqrt(2 / 64) = 0.177
    assert replay.are_outdated(newest - gap, newest) == outdated
    assert not replay.are_outdated(np.full(64, -np.inf), newest)


def test_kept_information_is_a_share_of_that_beyond_the_prior() -> None:
    for state in (
        init(Config(3, hidden=(4,)), 1),
        init(
            Config(5, hidden=(4,), covariance="wide", directions=2),
            1,
            directions=leading_directions(np.random.default_rng(1).standard_normal((50, 5)), 2),
        ),
    ):
        rng = np.random.default_rng(0)
        x = rng.standard_normal((50, state.config.inputs))
        learned, _ = learn(state, x, x[:, :1])
        kept = replay.keep_information(learned, 0.25)
        layout = layout_of(state.config)
        for before, after, order in zip(
            layout.unpack_blocks(learned.cov),
            layout.unpack_blocks(kept.cov),
            layout.block_positions,
            strict=True,
        ):
            prior = np.diag(1.0 / learned.prior_var[order])
            gained = [np.linalg.inv(cov) - prior for cov in (before, after)]
            assert gained[1] == pytest.approx(0.25 * gained[0], abs=1e-6)
        assert np.array_equal(kept.mean, learned.mean)
        assert np.array_equal(replay.keep_information(learned, 1.0).mean, learned.mean)


def test_kernel_and_numpy_keep_the_same_information(monkeypatch: pytest.MonkeyPatch) -> None:
    if not kernel.is_compiled():
        pytest.skip("the kernel is not built")
    state = init(Config(13, hidden=(30,), covariance="group"), 1)
    x = np.random.default_rng(0).standard_normal((200, 13))
    state, _ = learn(state, x, np.sin(x[:, :1]))
    kept = replay.keep_information(state, 0.3)
    monkeypatch.setattr(kernel, "is_compiled", lambda: False)
    assert np.array_equal(replay.keep_information(state, 0.3).cov, kept.cov)
    with pytest.raises(ValueError, match="prior variance"):
        kernel.keep_information(state.cov.copy(), np.ones(3), np.array([2]), 0.5)


def test_only_the_network_without_replay_forgets_and_gradual_changes_are_followed() -> None:
    assert [one.forgets for one in Settings().list_members(3, 1)] == [False, False, False, True]
    assert not any(one.forgets for one in Settings(rehearse=0).list_members(3, 1))
    rng = np.random.default_rng(0)
    x = rng.standard_normal((6000, 5))
    angle = np.linspace(0.0, np.pi, 6000)
    u = np.cos(angle) * x[:, 0] + np.sin(angle) * x[:, 1]
    y = np.sin(1.5 * u) + 0.25 * rng.standard_normal(6000)
    errors = []
    for rows in (1e12, replay.FORGETTING_ROWS):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(replay, "FORGETTING_ROWS", rows)
            model = OnlineModel(Settings(kind="regression"), schema(5))
            forecast = model.learn(block(x, y))
        errors.append(np.sqrt(np.mean((y - forecast.mean[:, 0])[3000:] ** 2)))
    assert errors[1] < 0.97 * errors[0]
