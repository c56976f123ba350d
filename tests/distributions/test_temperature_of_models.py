"""Models of classes learn their sharpness, keep it in their file, and others have none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kbnn.array_types import FloatArray
from kbnn.core.kernel import predict_parallel
from kbnn.distributions import categorical as sharp
from kbnn.errors import ModelError
from kbnn.model import file as modelfile
from kbnn.model import scaler
from kbnn.model.merge import merge_models
from kbnn.model.migrations import migrate_state
from kbnn.model.model import OnlineModel
from kbnn.model.serialize import from_state, to_state
from kbnn.model.settings import PRESETS, Settings
from kbnn.workflows.inspecting import list_paper_deviations
from tests.bench.class_streams import learned, log_loss, probabilities
from tests.bench.data import block, schema
from tests.bench.made import clumps
from tests.commands import kbnn
from tests.modelling import differences, learn_in, mixed_rows, new_model, restored, same

APART = 6.0 * np.random.default_rng(4).standard_normal((4, 1, 3))
MIXED = 0.3 * np.random.default_rng(4).standard_normal((4, 1, 3))


def rows(count: int, centers: FloatArray = APART, seed: int = 0) -> tuple[FloatArray, FloatArray]:
    """Four classes that are told apart, or hardly."""
    return clumps(np.random.default_rng(seed), count, 4, centers)


def by_the_network(model: OnlineModel, x: FloatArray) -> FloatArray:
    """What the network says before it is sharpened."""
    z = scaler.standardize_rows(model.learner_state.columns, x, np.zeros(x.shape[1]))
    return predict_parallel(model.learner_state.members[0], z, None).probability


def wishing(power: float) -> FloatArray:
    """Evidence of one sharpness alone."""
    known = sharp.init_temperature(np.arange(4.0), 4)
    known[sharp.EVIDENCE_ROWS] = 1.0
    known[sharp.EVIDENCE] = np.where(np.isclose(sharp.POWERS, power), 0.0, -1e4)
    return known


def test_classes_that_are_apart_are_sharpened_and_mixed_ones_softened() -> None:
    for centers, sharper in ((APART, True), (MIXED, False)):
        x, y = rows(700, centers)
        x_test, y_test = rows(1000, centers, 1)
        model = learned(x, y, 4)
        plain = log_loss(by_the_network(model, x_test), y_test)
        assert log_loss(probabilities(model, x_test), y_test) < plain
        assert (sharp.inverse_temperature(model.learner_state.temperature) > 1.2) == sharper


@pytest.mark.parametrize("covariance", ["group", "neuron"])
def test_cutting_a_stream_changes_no_bit(covariance: Any) -> None:
    x, y = rows(700, MIXED)
    y[[3, 40, 300]] = np.nan
    y[:400] = np.where(y[:400] == 3.0, 0.0, y[:400])  # the fourth class comes late
    weight = np.random.default_rng(1).choice([0.5, 1.0, 2.0], 700)
    whole = OnlineModel(Settings(hidden=(6,), covariance=covariance), schema(3, 1, 4))
    said = whole.learn(block(x, y, weight=weight))
    for sizes in ([1] * 700, [37] * 18 + [34], [33, 255, 1, 411]):
        model = OnlineModel(Settings(hidden=(6,), covariance=covariance), schema(3, 1, 4))
        assert same(learn_in(model, block(x, y, weight=weight), sizes), said)
        assert differences(model, whole) == []
    assert len(whole.learner_state.temperature[sharp.CLASS_COUNTS]) == 4
    assert whole.learner_state.temperature[sharp.EVIDENCE_ROWS] > 600.0


def test_a_model_that_was_saved_goes_on_as_if_it_had_not_been() -> None:
    x, y = rows(500)
    model, other = (OnlineModel(Settings(hidden=(6,)), schema(3, 1, 4)) for _ in range(2))
    model.learn(block(x[:300], y[:300]))
    other.learn(block(x[:300], y[:300]))
    other = restored(other)
    said = [one.learn(block(x[300:], y[300:], first=301)) for one in (model, other)]
    assert same(*said)
    assert differences(model, other) == []


def test_what_is_learned_of_sharpness_is_what_is_stated() -> None:
    x, y = rows(300, MIXED)
    model = learned(x, y, 4, hidden=(6,))
    p = by_the_network(model, x)
    for power in (2.0, 4.0):
        model.learner_state = model.learner_state._replace(temperature=wishing(power))
        wanted = p**power / np.sum(p**power, axis=1, keepdims=True)
        assert probabilities(model, x) == pytest.approx(wanted, rel=1e-9)


def test_what_was_known_before_rows_stays_as_it_was() -> None:
    """Candidates that go apart begin from the same: neither learns for the other."""
    x, y = rows(400, MIXED)
    model = learned(x[:300], y[:300], 4, hidden=(6,))
    known = model.learner_state.temperature
    before = known.copy()
    model.learn(block(x[300:], y[300:], first=301))
    assert np.array_equal(known, before)
    assert not np.array_equal(model.learner_state.temperature, before)


def test_rows_held_say_how_common_classes_are() -> None:
    x, y = rows(40, MIXED)
    model = learned(x, y, 4, hidden=(6,))
    assert (
        model.learner_state.temperature[sharp.CLASS_COUNTS].tolist()
        == np.bincount(y.astype(int)).tolist()
    )
    assert model.learner_state.temperature[sharp.EVIDENCE_ROWS] == 8.0


def test_a_model_that_predicts_learns_nothing_of_sharpness() -> None:
    x, y = rows(300, MIXED)
    model = learned(x, y, 4, hidden=(6,))
    before = model.learner_state.temperature.copy()
    probabilities(model, x)
    assert np.array_equal(model.learner_state.temperature, before)


def test_rows_of_a_later_pass_are_no_news_of_sharpness() -> None:
    x, y = rows(300, MIXED)
    once, more = (learned(x, y, 4, passes, hidden=(6,)) for passes in (1, 3))
    assert np.array_equal(once.learner_state.temperature, more.learner_state.temperature)


def test_what_weights_make_common_is_common() -> None:
    """Rows that count more are common in the shares that uncertain forecasts are drawn to."""
    x, y = rows(2000, 0.0 * MIXED)
    weight = np.where(y == 1.0, 5.0, 1.0)
    model = OnlineModel(Settings(hidden=(6,)), schema(3, 1, 4))
    model.learn(block(x, y, weight=weight))
    p = np.mean(probabilities(model, x), axis=0)
    assert p[1] == pytest.approx(5.0 / 8.0, abs=0.06)


@pytest.mark.parametrize(
    "settings", [{"robust": False}, {**PRESETS["paper"], "hidden": (6,)}], ids=["off", "paper"]
)
def test_without_guards_probabilities_are_the_networks(settings: dict[str, Any]) -> None:
    x, y = rows(400, MIXED)
    y = np.minimum(y, 1.0)
    model = OnlineModel(Settings(**{"hidden": (6,), **settings}), schema(3, 1, 2))
    model.learn(block(x, y))
    assert len(model.learner_state.temperature) == 0
    assert np.array_equal(probabilities(model, x), by_the_network(model, x))
    assert differences(model, restored(model)) == []


def test_two_classes_by_a_sigmoid_have_a_sharpness_too() -> None:
    x, y = rows(400)
    model = learned(x, np.minimum(y, 1.0), 2, hidden=(6,), link="sigmoid")
    assert len(model.learner_state.temperature[sharp.CLASS_COUNTS]) == 2
    assert differences(model, restored(model)) == []


def test_the_papers_algorithm_with_a_sharpness_is_not_as_printed() -> None:
    x, y = rows(200)
    said = "the temperature of probabilities is learned"
    for robust in (False, True):
        options = {**PRESETS["paper"], "hidden": (6,), "robust": robust}
        model = learned(x, np.minimum(y, 1.0), 2, **options)
        found = list_paper_deviations(model)
        assert found is not None
        assert (said in found) == robust


@pytest.mark.parametrize(
    "settings",
    [{}, {"robust": False}, {"link": "sigmoid"}, {"ensemble": 2}],
    ids=["usual", "off", "sigmoid", "ensemble"],
)
@pytest.mark.parametrize("count", [20, 200])
def test_a_model_of_format_5_begins_without_evidence(count: int, settings: dict[str, Any]) -> None:
    x, y = rows(count)
    model = learned(x, np.minimum(y, 1.0), 2, **{"hidden": (6,), **settings})
    header, arrays = to_state(model)
    old = {name: a for name, a in arrays.items() if not name.endswith("sharpness")}
    found = from_state(*migrate_state(5, header, old))
    known = found.learner_state.temperature
    assert known.shape == model.learner_state.temperature.shape
    assert not known.any()
    if model.learner_state.members:
        assert np.array_equal(
            probabilities(found, x),
            probabilities(replaced(model, np.zeros_like(known)), x),
        )


def replaced(model: OnlineModel, known: FloatArray) -> OnlineModel:
    model.learner_state = model.learner_state._replace(temperature=known)
    return model


def test_numbers_have_no_sharpness() -> None:
    model = new_model()
    model.learn(mixed_rows(100))
    assert len(model.learner_state.temperature) == 0


@pytest.mark.parametrize(
    "wrong",
    [
        lambda known: known[:-1],
        lambda known: np.append(known, 0.0),
        lambda known: known[:0],
        lambda known: np.where(np.arange(len(known)) == 3, np.nan, known),
        lambda known: -np.abs(known),
    ],
    ids=["short", "long", "none", "nan", "negative"],
)
def test_a_sharpness_that_does_not_fit_is_refused(wrong: Any) -> None:
    x, y = rows(100)
    header, arrays = to_state(learned(x, y, 4, hidden=(4,)))
    name = "racer0/stated/sharpness"
    arrays[name] = wrong(arrays[name])
    with pytest.raises(ModelError, match="invalid temperature"):
        from_state(header, arrays)


def test_joined_models_know_what_each_knew() -> None:
    x, y = rows(600)
    one, two = learned(x[:300], y[:300], 4, hidden=(6,)), learned(x[300:], y[300:], 4, hidden=(6,))
    whole = merge_models([one, two], ["one", "two"])
    assert sharp.inverse_temperature(whole.learner_state.temperature) > 1.2
    assert whole.learner_state.temperature[sharp.CLASS_COUNTS] == pytest.approx(
        one.learner_state.temperature[sharp.CLASS_COUNTS]
        + two.learner_state.temperature[sharp.CLASS_COUNTS]
    )
    assert differences(whole, restored(whole)) == []


def test_an_ensemble_is_sharpened_after_it_is_mixed() -> None:
    x, y = rows(400)
    model = learned(x, y, 4, hidden=(6,), ensemble=2)
    assert model.learner_state.temperature.shape == (sharp.CLASS_COUNTS.start + 4,)
    assert log_loss(probabilities(model, x), y) < 0.1
    assert differences(model, restored(model)) == []


def lines(count: int, keys: int = 0) -> str:
    x, y = rows(count)
    cells = [f"{a:.4f},{b:.4f},{c:.4f},k{k:.0f}" for (a, b, c), k in zip(x, y, strict=True)]
    if keys:
        cells = [f"d{i % keys},{cell}" for i, cell in enumerate(cells)]
    return "\n".join([f"{'key,' if keys else ''}a,b,c,label", *cells]) + "\n"


def test_inspect_says_how_sharp_it_is(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text(lines(500))
    model = tmp_path / "m.npz"
    assert kbnn("train", tmp_path / "rows.csv", "-m", model, "-q", "--layers", "10").code == 0
    known = modelfile.load(str(model)).learner_state.temperature
    told = kbnn("inspect", model).out
    assert f"{int(known[sharp.EVIDENCE_ROWS])} rows" in told
    assert "probabilities are raised to this power, learned from" in told
    plain = json.loads(kbnn("inspect", model, "--json").out)
    assert plain["health"]["sharpness"] == pytest.approx(sharp.inverse_temperature(known))
    assert plain["health"]["sharpness"] > 1.0


def test_the_models_of_a_fleet_have_a_sharpness_each(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text(lines(900, keys=3))
    fleet = tmp_path / "fleet"
    done = kbnn("train", tmp_path / "rows.csv", "--key", "key", "-m", fleet, "-q")
    assert done.code == 0, done.err
    assert kbnn("inspect", fleet, "--key", "d1", "--export", tmp_path / "d1.npz").code == 0
    known = modelfile.load(str(tmp_path / "d1.npz")).learner_state.temperature
    assert 100.0 < known[sharp.EVIDENCE_ROWS] < 300.0
