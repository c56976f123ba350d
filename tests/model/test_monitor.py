"""Surprise and PIT of every target type, and the monitor of a model: order, files, damage."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kbnn
from kbnn.data.batch import Anomalies, concat_rows, join_anomalies, slice_rows
from kbnn.data.dataset import open_stream
from kbnn.errors import ModelError, UsageError
from kbnn.model import file as modelfile
from kbnn.model.anomaly import set_alert_rate, unpack_monitor
from kbnn.model.anomaly_reference import SCALAR
from kbnn.model.model import OnlineModel
from kbnn.model.serialize import from_state, to_state
from kbnn.model.settings import AlertRate, parse_alert_rate
from kbnn.workflows.options import build_train_options
from kbnn.workflows.training import create_model

ROWS = 1500


def make_stream(kind: str, rows: int = ROWS) -> dict[str, Any]:
    """Make a stream whose target has the given type."""
    rng = np.random.default_rng(4)
    x = rng.standard_normal(rows)
    y: Any = 2.0 * x + rng.standard_normal(rows)
    if kind == "count":
        y = rng.poisson(np.exp(0.5 * x + 1.0)).astype(float)
    elif kind == "positive":
        y = np.exp(0.3 * y)
    elif kind == "amount":
        y = np.where(rng.random(rows) < 0.3, 0.0, np.exp(0.3 * y))
    elif kind == "classification":
        y = np.where(y > 0.5, "high", np.where(y > -0.5, "middle", "low"))
    return {"x": x, "y": y}


def open_model(data: Any, rate: AlertRate | None = None, **options: Any) -> Any:
    """Return a monitored model that has learned nothing, and all rows as one batch."""
    chosen = build_train_options(data, **options)
    with open_stream(data, options=chosen.read) as stream:
        model = create_model(chosen.choices.make_settings(), stream.schema.copy())
        set_alert_rate(model, rate)
        rows = concat_rows(list(stream))
    return model, rows._replace(schema=model.schema)


def learn_all(data: Any, size: int = 10_000, **options: Any) -> tuple[OnlineModel, Anomalies]:
    """Train a monitored model with batches of a size; return it with what it found."""
    model, rows = open_model(data, **options)
    found = []
    for at in range(0, len(rows.y), size):
        part = slice_rows(rows, at, min(at + size, len(rows.y)))
        found.append((len(part.y), model.learn_batch(part).anomalies))
    joined = join_anomalies(found, rows.y.shape[1])
    assert joined is not None
    return model, joined


@pytest.mark.parametrize("kind", ["regression", "count", "positive", "amount", "classification"])
def test_pit_is_uniform_for_every_target_type(kind: str) -> None:
    _, found = learn_all(make_stream(kind), target="y", task=kind, layers=8, seed=1)
    pit = found.pit[500:, 0]
    assert np.isfinite(pit).all()
    grid = np.arange(1, len(pit) + 1) / len(pit)
    distance = np.max(np.abs(np.sort(pit) - grid))
    assert distance < 1.95 / np.sqrt(len(pit))  # Kolmogorov-Smirnov at 0.1 %
    surprise = found.surprise[500:, 0]
    assert np.mean(surprise > 1.0) == pytest.approx(0.1, abs=0.04)  # 10 % beyond 1 in 10


def test_every_target_has_its_own_surprise() -> None:
    data = make_stream("regression")
    data["z"] = -data["x"] + 0.1 * np.random.default_rng(1).standard_normal(ROWS)
    data["z"][1200] += 20.0
    _, found = learn_all(data, target=["y", "z"], features="x", layers=8, seed=1)
    assert found.surprise.shape == (ROWS, 2)
    assert found.surprise[1200, 1] > 3.0 > found.surprise[1200, 0]
    assert (1200, 1) in [(alert.at, alert.target) for alert in found.alerts]


def test_anomalies_do_not_depend_on_batches() -> None:
    data = make_stream("regression")
    data["y"][900:903] += 20.0
    data["y"][1000:1010] = np.nan
    whole, once = learn_all(data, target="y", layers=5, seed=1)
    parts, many = learn_all(data, 7, target="y", layers=5, seed=1)
    np.testing.assert_array_equal(once.surprise, many.surprise)
    np.testing.assert_array_equal(once.pit, many.pit)
    assert repr(once.alerts) == repr(many.alerts)  # NaN is not equal to itself
    assert 900 in [alert.at for alert in once.alerts]
    assert modelfile.to_bytes(*to_state(whole)) == modelfile.to_bytes(*to_state(parts))


def test_a_saved_monitor_continues_bit_for_bit() -> None:
    data = make_stream("regression")
    data["y"][1300] += 20.0
    model, rows = open_model(data, AlertRate(1e-2), target="y", layers=5, seed=1)
    model.learn_batch(slice_rows(rows, 0, 1000))
    again = modelfile.load_bytes(modelfile.to_bytes(*to_state(model)), "copy")
    last = slice_rows(rows, 1000, ROWS)
    first, second = model.learn_batch(last).anomalies, again.learn_batch(last).anomalies
    assert first is not None
    assert second is not None
    np.testing.assert_array_equal(first.surprise, second.surprise)
    assert first.alerts == second.alerts
    assert 300 in [alert.at for alert in first.alerts]
    assert again.monitor is not None
    assert again.monitor.rate == 1e-2


def test_an_interrupted_batch_is_monitored_once(monkeypatch: pytest.MonkeyPatch) -> None:
    data = make_stream("regression", 400)
    model, rows = open_model(data, target="y", layers=5, seed=1)
    model.learn_batch(slice_rows(rows, 0, 300))
    before = model.record.add_rows

    def fail(*args: Any) -> None:
        monkeypatch.setattr(model.record, "add_rows", before)
        raise KeyboardInterrupt

    monkeypatch.setattr(model.record, "add_rows", fail)
    with pytest.raises(KeyboardInterrupt):
        model.learn_batch(slice_rows(rows, 300, 400))
    assert model.monitor is not None
    assert model.monitor.detectors[0].scalars[2] == 400


def test_late_labels_are_monitored_when_they_arrive() -> None:
    rng = np.random.default_rng(2)
    n = 600
    x, ids = rng.standard_normal(n), [f"r{k}" for k in range(n)]
    y = 2.0 * x + 0.1 * rng.standard_normal(n)
    y[500] += 50.0
    rows: list[dict[str, Any]] = []
    for k in range(n + 10):
        if k < n:
            rows.append({"id": ids[k], "x": x[k], "y": None})
        if k >= 10:
            rows.append({"id": ids[k - 10], "x": None, "y": y[k - 10]})
    _, found = learn_all(rows, target="y", id="id", layers=5, seed=1)
    label = next(k for k, row in enumerate(rows) if row["id"] == "r500" and row["y"] is not None)
    assert label in [alert.at for alert in found.alerts]
    assert np.isnan(found.surprise[[k for k, row in enumerate(rows) if row["y"] is None]]).all()


@pytest.mark.parametrize(
    ("name", "index", "value"),
    [
        ("counts", (0, 0), 1e9),
        ("counts", (0, 0), -1.0),
        ("scalars", 10, 0.5),
        ("scalars", 2, np.nan),
        ("scalars", 16, 99.0),
        ("history", (0, 0), np.nan),
        ("tails", (0, 5), 0.0),
    ],
)
def test_a_damaged_detector_is_refused(name: str, index: Any, value: float) -> None:
    model, _ = learn_all(make_stream("regression", 300), target="y", layers=5, seed=1)
    header, arrays = to_state(model)
    arrays[f"detector0/{name}"] = arrays[f"detector0/{name}"].copy()
    arrays[f"detector0/{name}"][index] = value
    with pytest.raises(ModelError, match="detector"):
        from_state(header, arrays)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("watch/counts", np.array([64.0, 64.0])),
        ("watch/counts", np.array([1.5, 64.0])),
        ("watch/counts", np.array([3.0, 65.0])),
        ("watch/mean", np.array([np.nan])),
        ("watch/cov", np.array([[-1.0]])),
        ("watch/cov", np.zeros((2, 2))),
        ("detector1/counts", np.full((6, 2), -1.0)),
        ("levels/var", np.array([-1.0])),
        ("levels/mean", np.array([np.inf])),
        ("levels/mean", np.zeros(300)),
        ("levels/filled", np.array([64.0])),
    ],
)
def test_damaged_watched_inputs_are_refused(name: str, value: Any) -> None:
    model, rows = open_model(make_stream("regression", 300), target="y", layers=5, seed=1)
    set_alert_rate(model, watch=("all",))
    model.learn_batch(rows)
    header, arrays = to_state(model)
    assert from_state(header, arrays).monitor.inputs.chosen.columns == ("x",)  # type: ignore[union-attr]
    with pytest.raises(ModelError, match=r"watched inputs|detector|levels of inputs"):
        from_state(header, {**arrays, name: value})


def test_a_monitor_saved_without_levels_of_inputs_opens() -> None:
    model, _ = learn_all(make_stream("regression", 300), target="y", layers=5, seed=1)
    header, arrays = to_state(model)
    old = {name: part for name, part in arrays.items() if not name.startswith("levels/")}
    assert len(old) == len(arrays) - 5
    opened = from_state(header, old)
    assert opened.monitor is not None
    assert opened.monitor.levels is None
    set_alert_rate(opened)
    assert opened.monitor.levels is not None


def test_detectors_without_the_test_for_a_lasting_change_still_open() -> None:
    """Model files and fleets written before it have fewer scalars."""
    model, _ = learn_all(make_stream("regression", 300), target="y", layers=5, seed=1)
    header, arrays = to_state(model)
    old = arrays["detector0/scalars"][: SCALAR.changes]
    monitor = from_state(header, {**arrays, "detector0/scalars": old}).monitor
    assert model.monitor is not None
    assert monitor is not None
    state = monitor.detectors[0]
    np.testing.assert_array_equal(state.scalars, [*old[:17], 0.0, *old[18:], *[0.0] * 6])
    *parts, _ = model.monitor.detectors[0]
    content = b"".join(part.tobytes() for part in (*parts, old))
    for part, other in zip(unpack_monitor(content, model.monitor).detectors[0], state, strict=True):
        np.testing.assert_array_equal(part, other)
    with pytest.raises(ValueError, match="detector"):
        unpack_monitor(content[:-8], model.monitor)


def test_a_rate_per_period_needs_a_clock() -> None:
    data = make_stream("regression", 100)
    with pytest.raises(UsageError, match="time column"):
        learn_all(data, rate=parse_alert_rate("1/week"), target="y", layers=5)
    data["t"] = (np.datetime64("2026-01-01T00:00") + np.arange(100)).astype(str)
    model, _ = learn_all(data, rate=parse_alert_rate("1/week"), target="y", layers=5)
    assert model.monitor is not None
    assert model.monitor.rate == pytest.approx(60.0 / (7 * 86400.0))


@pytest.mark.parametrize("text", ["0", "0.5", "-1", "x", "1/fortnight", "1/", "0/week", "nan"])
def test_an_invalid_rate_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="rate per row"):
        parse_alert_rate(text)


def test_forecasts_have_surprise_only_when_asked() -> None:
    data = make_stream("classification", 400)
    model = kbnn.Model("y", layers=5, seed=1)
    model.learn(data)
    plain, scored = model.predict(data), model.predict(data, surprise=True)
    assert "surprise" not in plain.columns
    assert scored.columns == [*plain.columns, "surprise", "pit"]
    np.testing.assert_array_equal(plain.probability, scored.probability)
    np.testing.assert_array_equal(scored.surprise, scored["surprise"])
    # Of three labels, the least probable has the probability of itself as tail at most.
    own = scored.probability[np.arange(400), [scored.classes.index(label) for label in data["y"]]]
    least = own == scored.probability.min(axis=1)
    assert least.any()
    assert (scored.pit[least] <= own[least] + 1e-12).all()
    with pytest.raises(UsageError, match="surprise=True"):
        _ = plain.surprise
    assert np.isnan(model.predict({"x": data["x"]}, surprise=True).surprise).all()


def test_a_value_that_only_its_forecast_excludes_is_a_spike() -> None:
    """The value is ordinary among all values, and 10 sd from its forecast."""
    found = 0
    for seed in range(4):
        rng = np.random.default_rng(seed)
        x, e = rng.standard_normal(1500), rng.standard_normal(1500)
        x[1200], e[1200] = -0.5, 10.0
        data = {"x": x, "y": 2.0 * x + 0.3 * e}
        assert abs(data["y"][1200]) < 2.5
        _, anomalies = learn_all(data, target="y", layers=8, seed=1)
        found += (1200, "spike") in [(alert.at, alert.kind) for alert in anomalies.alerts]
    assert found >= 3
