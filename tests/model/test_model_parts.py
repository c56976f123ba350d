"""Small parts whose change larger tests would not notice, each by itself."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from kbnn.core.config import Config
from kbnn.core.constants import RECENT_ROWS
from kbnn.core.input_moments import leading_directions
from kbnn.core.layout import layout_of
from kbnn.core.state import COUNT, init
from kbnn.data.batch import slice_rows
from kbnn.data.lags import History
from kbnn.data.row_encoder import RowEncoder
from kbnn.distributions import calibration
from kbnn.model import candidates, learner, merge, recursive_forecast, replay, scaler
from kbnn.model.learner import LearnEvents, _select_replayable_rows
from kbnn.model.model import OnlineModel
from kbnn.model.replay import BufferedRows, ReplayState
from kbnn.model.rescale import grow_state
from kbnn.model.settings import Settings
from kbnn.targets.registry import make_target_type
from tests.bench.data import block, schema


def test_loose_weights_lose_their_surplus_too() -> None:
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


def test_after_an_alarm_fewer_rows_are_owed() -> None:
    calm, alarmed = ReplayState(), ReplayState(since=1000)
    assert replay.add_to_backlog(calm, 32, 8).backlog == 32 * 8
    assert replay.add_to_backlog(alarmed, 1032, 8).backlog == 32 * replay.ALARM_REPLAY_RATIO
    assert replay.add_to_backlog(alarmed, 1032, 1).backlog == 32


@pytest.mark.parametrize(("seen", "left"), [(480, 1.0), (512, 0.5), (1024, 0.5), (1056, 1.0)])
def test_evidence_counts_half_whenever_rows_have_doubled(seen: int, left: float) -> None:
    candidate = OnlineModel(Settings(), schema(1)).candidates[0]
    two = (replace(candidate, evidence=30.0), replace(candidate, evidence=-8.0))
    aged = candidates._discount_evidence(two, seen)
    assert [one.evidence for one in aged] == [30.0 * left, -8.0 * left]
    assert (
        candidates._discount_evidence(two[:1], seen)[0].evidence == 30.0
    )  # alone there is nothing to compare


def test_rows_of_a_later_pass_have_no_width_of_new_ones() -> None:
    known = calibration.init_calibration(2)
    known[:, [calibration.SCALE_FACTOR, calibration.MEAN_SCALE_FACTOR]] = 1.7
    again = calibration.reset_scale_and_gains(known)
    assert np.all(again[:, [calibration.SCALE_FACTOR, calibration.MEAN_SCALE_FACTOR]] == 1.0)
    assert np.array_equal(known[:, calibration.SCALE_FACTOR], [1.7, 1.7])  # the given ones stay


def test_one_wild_count_does_not_say_where_a_network_begins() -> None:
    task = make_target_type(schema(1), Settings(kind="count"))
    usual = np.tile([2.0, 3.0, 4.0], 11)[:, None]
    wild = usual.copy()
    wild[5] = 1e9
    plain, told = (task.initial_output_mean(y) for y in (usual, wild))
    assert plain is not None
    assert told is not None
    assert abs(float(told[0] - plain[0])) < 1.5  # a mean of millions would be 25 away


def test_a_path_may_go_a_little_beyond_all_that_was_seen() -> None:
    history = History(1, 1)
    history.low[0], history.high[0] = 10.0, 30.0
    low, high = recursive_forecast._compute_path_range([history])
    reach = 20.0 * recursive_forecast.RANGE_MARGIN_SHARE
    assert reach > 0.0
    assert (low[0], high[0]) == (10.0 - reach, 30.0 + reach)


def test_an_input_that_joins_a_wide_network_is_seen_as_it_is() -> None:
    z = np.random.default_rng(0).standard_normal((60, 12))
    config = Config(inputs=12, hidden=(4,), covariance="wide", directions=3)
    state = init(config, directions=leading_directions(z, 3))
    more = grow_state(state, 14, 1)
    assert np.array_equal(more.view[:12], state.view)
    assert np.all(more.view[12:, 0] == 1.0)  # its gain
    assert np.all(more.view[12:, 1:] == 0.0)  # no shift, and part of no direction


def test_statistics_of_shares_together_are_those_of_all_rows() -> None:
    raw = np.random.default_rng(1).normal([5.0, -2.0], [1.0, 30.0], (300, 2))
    raw[200:] += [3.0, 100.0]
    parts = [scaler.fit_scaler(part) for part in (raw[:200], raw[200:])]
    for part, rows in zip(parts, (raw[:200], raw[200:]), strict=True):
        part[:, scaler.MEAN] = rows.mean(axis=0)
        part[:, scaler.SQUARES] = len(rows) * rows.var(axis=0)
    whole = merge._merge_columns(parts, np.zeros(2))
    assert whole[:, scaler.COUNT] == pytest.approx([300.0, 300.0])
    assert whole[:, scaler.CENTER] == pytest.approx(raw.mean(axis=0))
    assert whole[:, scaler.SCALE] == pytest.approx(raw.std(axis=0))


def test_the_share_that_was_forecast_better_weighs_more_and_rows_are_numbered_on() -> None:
    rng = np.random.default_rng(2)
    x = rng.standard_normal((300, 1))
    models = []
    for noise in (0.1, 2.0):
        model = OnlineModel(Settings(hidden=(4,), kind="regression"), schema(1))
        model.learn(block(x, np.sin(x[:, 0]) + noise * rng.standard_normal(300)))
        models.append(model)
    good, bad = merge._merge_weights(models).weight
    assert good + bad == pytest.approx(1.0)
    assert bad < 0.05
    kept = merge._merge_buffers(models, [model.learner_state.buffer.rows() for model in models])
    numbers = kept.rows().number
    assert np.all(np.diff(numbers) > 0.0)
    assert numbers[-1] == 600.0


def test_rows_that_may_be_outliers_or_have_no_target_are_not_rehearsed() -> None:
    y = np.array([[1.0], [np.nan], [2.0], [3.0]])
    trust = np.array([0.9, 1.0, 0.4, 0.5])
    kept = BufferedRows(np.zeros((4, 1)), np.zeros((4, 0)), y, np.ones(4), np.arange(4.0), trust)
    assert _select_replayable_rows(kept).tolist() == [0, 3]


@pytest.mark.parametrize(("rows", "noted"), [(60, False), (200, True)])
def test_an_alarm_among_the_first_rows_is_no_change_of_the_world(
    rows: int, noted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = np.random.default_rng(4).standard_normal((rows + 1, 1))
    model = OnlineModel(Settings(hidden=(4,), kind="regression"), schema(1))
    taken = block(x, np.sin(x[:, 0]))
    model.learn(slice_rows(taken, 0, rows))
    monkeypatch.setattr(learner, "events_of", lambda said, first: LearnEvents([first]))
    model.learn(slice_rows(taken, rows, rows + 1))
    assert model.learner_state.replay_state.alarm == (rows + 1 if noted else 0)


@pytest.mark.parametrize(("rehearse", "changes"), [("auto", 1), (8, 1), (0, 0)])
def test_without_rehearsal_a_young_stream_bears_a_scale_that_is_a_little_off(
    rehearse: str | int, changes: int
) -> None:
    """After 32 rows the scale is set, after 64 it is 7 % off."""
    at = np.arange(100)
    x = np.where(at < 32, 1.0, 1.134) * np.where(at % 2, 1.0, -1.0)
    model = OnlineModel(Settings(rehearse=rehearse, kind="regression"), schema(1))
    model.learn(block(x[:, None], np.where(at // 2 % 2, 1.0, -1.0)[:, None]))
    assert model.learner_state.changes == changes


@pytest.mark.parametrize(
    ("rows", "closely", "moves"), [(64, True, True), (64, False, False), (4096, True, False)]
)
def test_a_young_scale_is_held_to_half_the_tolerance(rows: int, closely: bool, moves: bool) -> None:
    columns = scaler.blank_columns(1)
    spread = 1.0 + 0.7 * scaler._SCALE_TOLERANCE
    columns[0, [scaler.COUNT, scaler.SCALE]] = rows, 1.0
    columns[0, scaler.SQUARES] = rows * spread**2
    after = scaler.refit_scale(columns, np.zeros(1), closely)
    assert after[0, scaler.SCALE] == pytest.approx(spread if moves else 1.0)


def test_a_scale_that_was_outgrown_forgets_all_but_the_last_rows() -> None:
    columns = scaler.blank_columns(1)
    columns[0, [scaler.COUNT, scaler.SCALE, scaler.SQUARES]] = 5000.0, 2.0, 5000.0 * 4.0
    columns[0, [scaler.RECENT, scaler.RECENT_SQUARE]] = 10.0, 109.0
    after = scaler.refit_scale(columns, np.zeros(1))
    assert after[0, scaler.COUNT] == RECENT_ROWS
    assert after[0, scaler.CENTER] == pytest.approx(2.0 * 10.0)
    assert after[0, scaler.SCALE] == pytest.approx(2.0 * np.sqrt(109.0 - 100.0))


@pytest.mark.parametrize("value", [1e-200, -1e-200, 0.0])
def test_what_is_too_small_to_reckon_with_is_0_in_a_single_row(value: float) -> None:
    reader = RowEncoder(schema(2), lambda text: None)
    assert reader.plain_columns == ["x0", "x1"]
    row = reader.encode_features({"x0": value, "x1": 2.0}, admit=True)
    assert row.tolist() == [[0.0, 2.0]]


def test_of_two_kinds_one_is_left_at_row_480() -> None:
    candidate = OnlineModel(Settings(kind="regression"), schema(1)).candidates[0]
    counting = replace(
        candidate.learner, settings=replace(candidate.learner.settings, kind="count")
    )

    def left(seen: int) -> list[float]:
        learned = candidate.learned._replace(seen=seen)
        two = (
            replace(candidate, learned=learned, evidence=3.0),
            replace(candidate, learned=learned, learner=counting, evidence=1.0),
        )
        return [one.evidence for one in candidates._eliminate_candidates(two)]

    assert left(448) == [3.0, 1.0]
    assert left(480) == [3.0]
