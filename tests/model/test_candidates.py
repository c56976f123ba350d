"""Selection of the target type: who leads, who is eliminated, and that chunks change nothing."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kbnn.data.batch import slice_rows
from kbnn.errors import ModelError
from kbnn.model import candidates
from kbnn.model.candidates import (
    TARGET_TYPE_SELECTION_ROWS,
    EliminatedCandidate,
)
from kbnn.model.learner import make_learner
from kbnn.model.model import OnlineModel
from kbnn.model.serialize import from_state, to_state
from kbnn.model.settings import Settings
from tests.bench.data import FloatArray, block, schema
from tests.commands import kbnn
from tests.modelling import differences, learn_in, mixed_rows, new_model, restored, same


def curve(count: int, noise: float = 0.1, seed: int = 0) -> tuple[FloatArray, FloatArray]:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((count, 3))
    return x, np.sin(2.0 * x[:, 0]) + x[:, 1] * x[:, 2] + noise * rng.standard_normal(count)


def test_of_the_other_kinds_a_real_target_is_told_else_the_nearest() -> None:
    model = OnlineModel(Settings(), schema(3))
    count, positive, amount, real = (
        Settings(kind=kind) for kind in ("count", "positive", "amount", "regression")
    )
    leader, second = (
        candidates.Candidate(make_learner(model.schema, one), model.learner_state, nats)
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


def positive_curve(count: int, seed: int = 0) -> tuple[FloatArray, FloatArray]:
    """Positive targets with an error that grows with their size."""
    x, y = curve(count, seed=seed)
    return x, np.exp(y + 0.3 * np.random.default_rng(seed + 1).standard_normal(count))


def test_target_types_compete_until_row_480() -> None:
    x, y = positive_curve(600)
    model = OnlineModel(Settings(hidden=(12,)), schema(3))
    model.learn(block(x[:100], y[:100]))
    assert {one.learner.settings.kind for one in model.candidates} == {"regression", "positive"}
    model.learn(block(x[100:], y[100:]))
    assert [one.learner.settings.kind for one in model.candidates] == ["positive"]
    assert model.eliminated[-1].row <= TARGET_TYPE_SELECTION_ROWS


def test_forecasts_are_those_of_the_leader() -> None:
    x, y = positive_curve(160)
    model = OnlineModel(Settings(hidden=(12,)), schema(3))
    model.learn(block(x[:128], y[:128]))
    assert len(model.candidates) == 2
    alone = OnlineModel(Settings(hidden=(12,), kind=model.task.name), schema(3))
    alone.learn(block(x[:128], y[:128]))
    assert same(model.predict(block(x[128:], y[128:])), alone.predict(block(x[128:], y[128:])))


def test_a_requested_target_type_has_no_rivals() -> None:
    x, y = positive_curve(200)
    model = OnlineModel(Settings(hidden=(12,), kind="positive"), schema(3))
    model.learn(block(x, y))
    assert len(model.candidates) == 1
    assert model.eliminated == ()


def test_no_row_decides_the_race_alone() -> None:
    density = np.array([[-1.0, -900.0], [-2.0, -1.0]])
    assert candidates._clip_log_densities(density).tolist() == [[-1.0, -6.0], [-2.0, -1.0]]


def test_a_later_pass_ends_the_race() -> None:
    x, y = positive_curve(200)
    model = OnlineModel(Settings(hidden=(12,)), schema(3))
    model.learn(block(x, y))
    racing, leader = len(model.candidates), model.learner.settings
    model.learn(block(x, y), again=True)
    assert (racing, len(model.candidates)) == (2, 1)
    assert model.learner.settings == leader
    assert model.eliminated[-1].row == 200


@pytest.mark.parametrize(
    "settings",
    [
        {"hidden": (12,)},
        {"hidden": "auto"},
        pytest.param({"hidden": "best"}, marks=pytest.mark.slow),
        {"hidden": (12,), "ensemble": 2},
    ],
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


def _part(stream: Any, start: int, stop: int) -> Any:

    return slice_rows(stream, start, stop)


def _said(forecast: Any, start: int, stop: int) -> Any:
    from kbnn.targets.prediction import select_rows

    return select_rows(forecast, slice(start, stop))


def test_train_announces_the_target_type_and_inspect_shows_the_networks(tmp_path: Path) -> None:
    x, y = positive_curve(600)
    lines = ["a,b,c,y", *(",".join(f"{v:.5f}" for v in (*r, t)) for r, t in zip(x, y, strict=True))]
    (tmp_path / "d.csv").write_text("\n".join(lines) + "\n")
    model = tmp_path / "m.npz"
    ran = kbnn("train", tmp_path / "d.csv", "-m", model)
    assert ran.code == 0
    assert re.search(r"task: positive, [0-9.]+ nats ahead of regression after 480 rows", ran.err)
    told = json.loads(kbnn("inspect", model, "--json").out)
    assert {"leader", "settings", "nats", "row"} == set(told["race"][0])
    assert told["health"]["rehearsed"] > 0
    assert told["network"]["members"] == len(told["networks"]) == 4
    assert sum(one["weight"] for one in told["networks"]) == pytest.approx(1.0)
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
        (("racers", 1, "scale", "rows"), 7),
        (("racers", 0, "networks", 0, "member", "hidden"), [0]),
        (("racers", 0, "networks", 0, "member", "encoding"), "other"),
        (("racers", 0, "pool", "scale"), 0.0),
        (("racers", 0, "pool", "rows"), -1),
        (("racers",), []),
        (("racers",), {}),
        (("lost",), [3]),
        (("lost",), [{"settings": {}, "nats": "x", "row": 1}]),
    ],
)
def test_a_race_that_cannot_be_is_damage(place: tuple[Any, ...], value: object) -> None:
    x, y = positive_curve(64)
    model = OnlineModel(Settings(hidden=(12,)), schema(3))
    model.learn(block(x, y))
    header, arrays = to_state(model)
    header = json.loads(json.dumps(header))
    at = header
    for key in place[:-1]:
        at = at[key]
    at[place[-1]] = value
    with pytest.raises(ModelError):
        from_state(header, arrays)


@pytest.mark.parametrize(("seen", "left"), [(480, 1.0), (512, 0.5), (1024, 0.5), (1056, 1.0)])
def test_evidence_is_halved_when_rows_have_doubled(seen: int, left: float) -> None:
    candidate = OnlineModel(Settings(), schema(1)).candidates[0]
    two = (replace(candidate, evidence=30.0), replace(candidate, evidence=-8.0))
    aged = candidates._discount_evidence(two, seen)
    assert [one.evidence for one in aged] == [30.0 * left, -8.0 * left]
    assert (
        candidates._discount_evidence(two[:1], seen)[0].evidence == 30.0
    )  # alone there is nothing to compare


def test_one_of_two_target_types_remains_after_row_480() -> None:
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
