"""Candidates that learn side by side: who speaks, who is dropped, and that cuts change nothing."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kbnn.data.batch import slice_rows
from kbnn.errors import ModelError
from kbnn.model import candidates
from kbnn.model.candidates import (
    ELIMINATION_MARGIN_NATS,
    REPLAY_SELECTION_ROWS,
    SELECTION_ROWS,
    EliminatedCandidate,
)
from kbnn.model.model import OnlineModel
from kbnn.model.serialize import from_state, to_state
from kbnn.model.settings import Settings
from tests.bench.data import FloatArray, block, judged, schema
from tests.commands import kbnn
from tests.modelling import differences, learn_in, mixed_rows, new_model, restored, same


def curve(count: int, noise: float = 0.1, seed: int = 0) -> tuple[FloatArray, FloatArray]:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((count, 3))
    return x, np.sin(2.0 * x[:, 0]) + x[:, 1] * x[:, 2] + noise * rng.standard_normal(count)


def raced(count: int, **settings: Any) -> OnlineModel:
    x, y = curve(count)
    model = OnlineModel.create(Settings(**{"hidden": (12,), **settings}), schema(3))
    model.learn(block(x, y))
    return model


def test_a_candidate_is_told_by_what_sets_it_apart() -> None:
    """The structure of a network without a hidden layer is always the same."""
    other = Settings(hidden=(5,))
    for settings, words in (
        (Settings(hidden=(), covariance="full"), "--layers none"),
        (Settings(hidden=(4,), covariance="full"), "--layers 4 full"),
        (Settings(hidden=(4, 3), ensemble=2), "--layers 4,3, --ensemble 2"),
    ):
        assert settings.describe_difference(other) == words


def test_of_the_other_kinds_a_real_target_is_told_else_the_nearest() -> None:
    model = OnlineModel.create(Settings(), schema(3))
    count, positive, amount, real = (
        Settings(kind=kind) for kind in ("count", "positive", "amount", "regression")
    )
    leader, second = (
        candidates.Candidate(model.make_learner(one), model.learner_state, nats)
        for one, nats in ((count, 50.0), (amount, 20.0))
    )
    lost = (
        EliminatedCandidate(positive, 40.0, 96, count),
        EliminatedCandidate(positive, 5.0, 96, amount),
    )
    assert candidates.compare_target_types((leader,), ()) is None
    assert candidates.compare_target_types((leader,), lost) == ("count", "positive", 40.0)
    assert candidates.compare_target_types((leader, second), lost) == ("count", "amount", 30.0)
    far = (
        *lost,
        EliminatedCandidate(real, 90.0, 128, count),
        EliminatedCandidate(real, 70.0, 128, count),
    )
    assert candidates.compare_target_types((leader, second), far) == ("count", "regression", 70.0)


def test_rehearsal_wins_where_there_is_something_to_learn() -> None:
    model = raced(1000)
    assert model.learner.settings.rehearse == "auto"
    assert [lost.settings.rehearse for lost in model.lost] == ["later"]
    assert model.lost[0].nats_behind >= ELIMINATION_MARGIN_NATS
    assert model.lost[0].row % 32 == 0


def test_pure_noise_is_not_worth_rehearsing() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((1100, 6)), rng.standard_normal(1100)
    model = OnlineModel.create(Settings(), schema(6))
    model.learn(block(x, y))
    assert model.learner.settings.rehearse == 0


def test_at_the_end_of_youth_a_copy_that_stops_begins() -> None:
    model = raced(SELECTION_ROWS)
    assert [racer.learner.settings.rehearse for racer in model.racers] == [8, 0]
    assert [racer.evidence for racer in model.racers] == [0.0, 0.0]
    one, other = (racer.learned.members[0].state() for racer in model.racers)
    assert np.array_equal(one.mean, other.mean)
    assert np.array_equal(one.cov, other.cov)
    assert model.racers[1].learned.kept is not model.racers[0].learned.kept


def faint(count: int, noise: float = 3.0, seed: int = 0) -> tuple[FloatArray, FloatArray]:
    """Rows that say little of a function, but go on to say it."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((count, 8))
    return x, np.sin(1.5 * x[:, 0]) * x[:, 1] + np.abs(x[:, 2]) + noise * rng.standard_normal(count)


def test_where_nothing_was_rehearsed_a_copy_begins_to_at_the_end_of_youth() -> None:
    x, y = faint(SELECTION_ROWS)
    model = OnlineModel.create(Settings(hidden=(12,)), schema(8))
    model.learn(block(x, y))
    assert [racer.learner.settings.rehearse for racer in model.racers] == [0, 8]
    assert [racer.evidence for racer in model.racers] == [0.0, -candidates.MAX_ROW_ADVANTAGE_NATS]
    one, other = (racer.learned.members[0].state() for racer in model.racers)
    assert np.array_equal(one.mean, other.mean)
    assert np.array_equal(one.cov, other.cov)
    assert model.racers[1].learned.kept is not model.racers[0].learned.kept


def test_what_begins_to_rehearse_late_takes_its_surplus_back_when_that_is_decided() -> None:
    x, y = faint(REPLAY_SELECTION_ROWS + 32)
    model = OnlineModel.create(Settings(hidden=(12,)), schema(8))
    model.learn(block(x[:SELECTION_ROWS], y[:SELECTION_ROWS]))
    model.racers = model.racers[1:]
    model.learn(
        block(
            x[SELECTION_ROWS : REPLAY_SELECTION_ROWS - 1],
            y[SELECTION_ROWS : REPLAY_SELECTION_ROWS - 1],
        )
    )
    model = restored(model)
    begun = model.learner_state
    assert begun.members[0].counts["rehearsed"] > 8_000
    assert not begun.rehearsal.settled
    model.learn(block(x[REPLAY_SELECTION_ROWS - 1 :], y[REPLAY_SELECTION_ROWS - 1 :]))
    after = model.learner_state
    assert after.rehearsal.settled
    assert after.members[0].counts["rehearsed"] == 0
    wider = after.members[0].state().cov.sum() / begun.members[0].state().cov.sum()
    assert wider > 1.0


def test_a_noisy_stream_gains_by_rehearsal_that_begins_late() -> None:
    x, y = faint(10_000, noise=1.0, seed=7)
    model = OnlineModel.create(Settings(), schema(8))
    model.learn(block(x[:SELECTION_ROWS], y[:SELECTION_ROWS]))
    assert model.learner.settings.rehearse == 0
    model.learn(block(x[SELECTION_ROWS:2200], y[SELECTION_ROWS:2200]))
    assert model.learner.settings.rehearse == 8
    alone = OnlineModel.create(Settings(rehearse=0), schema(8))
    alone.learn(block(x[:2200], y[:2200]))
    found, without = (judged(one, x[2200:], y[2200:]) for one in (model, alone))
    assert found.nll < without.nll - 0.005


def test_stale_rows_are_not_rehearsed_for_long() -> None:
    """The function turns slowly: what was true 2,000 rows ago is not."""
    rng = np.random.default_rng(1)
    count = 3500
    x = rng.standard_normal((count, 3))
    angle = np.arange(count) / 500.0
    y = np.cos(angle) * x[:, 0] + np.sin(angle) * x[:, 1] + 0.1 * rng.standard_normal(count)
    model = OnlineModel.create(Settings(hidden=(12,), drift=False), schema(3))
    model.learn(block(x, y))
    assert model.learner.settings.rehearse == 0


def test_only_one_is_left_after_both_races() -> None:
    assert len(raced(REPLAY_SELECTION_ROWS).racers) == 1


def test_no_race_where_the_choice_was_made() -> None:
    for often in (0, 3):
        model = raced(1100, rehearse=often)
        assert len(model.racers) == 1
        assert model.lost == ()
        assert model.learner.settings.rehearse == often


def test_the_leader_speaks() -> None:
    x, y = curve(160, noise=1.0)
    model = OnlineModel.create(Settings(hidden=(12,)), schema(3))
    model.learn(block(x[:128], y[:128]))
    assert len(model.racers) == 2
    alone = OnlineModel.create(
        Settings(hidden=(12,), rehearse=model.learner.settings.replay_ratio), schema(3)
    )
    alone.learn(block(x[:128], y[:128]))
    assert model.racers[0].evidence > model.racers[1].evidence
    assert same(model.predict(block(x[128:], y[128:])), alone.predict(block(x[128:], y[128:])))


def test_no_row_decides_the_race_alone() -> None:
    density = np.array([[-1.0, -900.0], [-2.0, -1.0]])
    assert candidates._clip_log_densities(density).tolist() == [[-1.0, -6.0], [-2.0, -1.0]]


def test_a_later_pass_ends_the_race() -> None:
    x, y = curve(200, noise=1.0)
    model = OnlineModel.create(Settings(hidden=(12,)), schema(3))
    model.learn(block(x, y))
    racing, leader = len(model.racers), model.learner.settings
    model.learn(block(x, y), again=True)
    assert (racing, len(model.racers)) == (2, 1)
    assert model.learner.settings == leader
    assert model.lost[-1].row == 200


@pytest.mark.parametrize(
    "settings", [{}, pytest.param({"hidden": "auto"}, marks=pytest.mark.slow), {"ensemble": 2}]
)
def test_cuts_and_saving_change_no_bit_while_candidates_race(settings: dict[str, Any]) -> None:
    stream = mixed_rows(1300)
    whole, cut = new_model(**settings), new_model(**settings)
    said = whole.learn(stream)
    parts = [1] * 50 + [13] * 30 + [100, 1, 200, 31]
    parts.append(1300 - sum(parts))
    spoken = []
    at = 0
    for size in parts:
        spoken.append(size)
        at += size
        if len(spoken) % 25 == 0:
            cut = restored(cut)
        forecast = learn_in(cut, _part(stream, at - size, at), [size])
        assert same(forecast, _said(said, at - size, at))
    assert differences(whole, cut) == []
    assert whole.lost


def _part(stream: Any, start: int, stop: int) -> Any:
    from kbnn.data.batch import slice_rows

    return slice_rows(stream, start, stop)


def _said(forecast: Any, start: int, stop: int) -> Any:
    from kbnn.targets.prediction import select_rows

    return select_rows(forecast, slice(start, stop))


def test_classes_race_too() -> None:
    rng = np.random.default_rng(2)
    x = rng.standard_normal((600, 2))
    y = (x[:, 0] * x[:, 1] > 0.0).astype(float)
    model = OnlineModel.create(Settings(hidden=(12,)), schema(2, classes=2))
    model.learn(block(x, y))
    assert model.learner_state.rehearsal.rows > 0
    assert model.racers[0].evidence < 0.0


@pytest.mark.slow
def test_shapes_race_and_a_straight_line_is_found_straight() -> None:
    rng = np.random.default_rng(3)
    x = rng.standard_normal((1100, 4))
    y = x @ np.array([1.0, -2.0, 0.5, 0.0]) + 0.5 * rng.standard_normal(1100)
    model = OnlineModel.create(Settings(hidden="auto"), schema(4))
    model.learn(block(x, y))
    assert model.learner.settings.hidden == ()
    kinds = {(lost.settings.hidden, lost.settings.covariance) for lost in model.lost}
    assert kinds == {((50,), "auto"), ((50, 50), "neuron"), ((50, 50), "group")}


def test_a_covariance_that_was_said_is_kept_by_all_shapes() -> None:
    made = Settings(hidden="auto", covariance="neuron").list_candidates()
    assert {one.covariance for one in made} == {"neuron"}
    assert {one.hidden for one in made} == {(50,), (50, 50), ()}


def test_several_networks_race_against_one_unless_all_are_several() -> None:
    made = Settings(hidden="auto").list_candidates()
    assert [one.hidden for one in made if one.ensemble > 1] == [(50,), (50, 50)]
    assert {one.ensemble for one in Settings(hidden="auto", ensemble=2).list_candidates()} == {2}
    assert {one.ensemble for one in Settings(ensemble=3).list_candidates()} == {3}
    wide = Settings(hidden="auto").list_candidates(inputs=500)
    assert sorted((one.hidden, one.ensemble) for one in wide if one.rehearse) == [
        ((), 1), ((50,), 1), ((50,), 1), ((50,), 5), ((50, 50), 1), ((50, 50), 5),
    ]  # fmt: skip


def noisy(count: int) -> Any:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((count, 8))
    y = np.sin(x[:, 0]) + 0.5 * x[:, 1] * x[:, 2] + 1.5 * rng.standard_normal(count)
    return block(x, y)


def test_several_networks_that_race_go_on_after_saving() -> None:
    rows = noisy(120)
    whole, cut = (
        OnlineModel.create(Settings(hidden="auto", kind="regression"), schema(8)) for _ in "ab"
    )
    whole.learn(rows)
    assert 5 in {len(racer.learned.members) for racer in whole.racers}
    cut.learn(slice_rows(rows, 0, 70))
    cut = restored(cut)
    cut.learn(slice_rows(rows, 70, 120))
    assert differences(cut, whole) == []


@pytest.mark.slow
def test_a_noisy_table_is_learned_by_several() -> None:
    model = OnlineModel.create(Settings(hidden="auto", kind="regression"), schema(8))
    model.learn(noisy(1100))
    assert model.learner.settings.ensemble == 5


def test_the_command_says_who_won_and_inspect_by_how_much(tmp_path: Path) -> None:
    x, y = curve(1060)
    lines = ["a,b,c,y", *(",".join(f"{v:.5f}" for v in (*r, t)) for r, t in zip(x, y, strict=True))]
    (tmp_path / "d.csv").write_text("\n".join(lines) + "\n")
    model = tmp_path / "m.npz"
    said = ("--layers", "auto", "--covariance", "neuron", "--task", "regression")
    ran = kbnn("train", tmp_path / "d.csv", "-m", model, *said)
    assert ran.code == 0
    assert re.search(r"is in use, [0-9.]+ nats (ahead of|behind) --", ran.err)
    assert "us of processor time a row" in ran.err
    shown = kbnn("inspect", model)
    assert "nats ahead of" in " ".join(shown.out.split())
    told = json.loads(kbnn("inspect", model, "--json").out)
    assert told["race"]
    assert {"leader", "settings", "nats", "row"} == set(told["race"][0])
    assert told["health"]["rehearsed"] > 0
    assert told["network"]["members"] in (1, 5)
    refused = kbnn("train", tmp_path / "d.csv", "-m", model, "--rehearse", "off")
    assert refused.code == 2
    assert "--replay off contradicts" in refused.err


@pytest.mark.parametrize("text", ["-1", "often", "101", "2.5"])
def test_what_rehearse_takes(text: str, tmp_path: Path) -> None:
    ran = kbnn("train", tmp_path / "d.csv", f"--rehearse={text}")
    assert ran.code == 2
    assert "--replay is auto, off, or a number up to 100" in ran.err


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("racers", 0, "evidence"), "much"),
        (("racers", 0, "rehearsal", "debt"), -1.0),
        (("racers", 0, "rehearsal", "debt"), 1e300),
        (("racers", 0, "rehearsal", "since"), 10**9),
        (("racers", 0, "rehearsal", "settled"), 1),
        (("racers", 0, "settings", "rehearse"), 1000),
        (("racers", 0, "settings", "ensemble"), 2),
        (("racers", 1, "scale", "rows"), 7),
        (("racers",), []),
        (("racers",), {}),
        (("lost",), [3]),
        (("lost",), [{"settings": {}, "nats": "x", "row": 1}]),
    ],
)
def test_a_race_that_cannot_be_is_damage(place: tuple[Any, ...], value: object) -> None:
    header, arrays = to_state(raced(64))
    header = json.loads(json.dumps(header))
    at = header
    for key in place[:-1]:
        at = at[key]
    at[place[-1]] = value
    with pytest.raises(ModelError):
        from_state(header, arrays)


@pytest.mark.parametrize(("seen", "racing"), [(4032, 2), (4064, 1), (4096, 2)])
def test_whether_to_go_on_rehearsing_is_settled_at_row_4064(seen: int, racing: int) -> None:
    """However close it is; before the row where scales are looked at, 4,096."""
    only = new_model().racers[0]
    close = [
        candidates.Candidate(only.learner, only.learned._replace(seen=seen), evidence)
        for evidence in (1.0, 0.9)
    ]
    kept = candidates._eliminate_candidates(tuple(close))
    assert len(kept) == racing
    assert kept[0] is close[0]
