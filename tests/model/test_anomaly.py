"""The anomaly detector: calibration, alerts, kinds, and agreement of its two versions."""

from __future__ import annotations

import io
import math
from typing import Any

import numpy as np
import pytest
from scipy import integrate, stats

from kbnn.array_types import FloatArray
from kbnn.core import kernel
from kbnn.model import anomaly_reference
from kbnn.model.anomaly import (
    Alert,
    DetectorScores,
    count_bytes,
    init_detector,
    measure_surprise,
    update_detector,
)
from kbnn.model.anomaly_reference import DetectorState
from kbnn.targets.prediction import score_labels


def detect(
    value: FloatArray,
    noise: FloatArray,
    rate: float = 1e-3,
    seconds: FloatArray | None = None,
    **options: Any,
) -> tuple[DetectorState, DetectorScores]:
    """Run a detector on values whose forecast errors are `noise`, stated as standard normal."""
    start = init_detector(has_clock=seconds is not None, **options)
    return update_detector(start, value, noise, rate=rate, seconds=seconds)


def log_tail(noise: FloatArray) -> FloatArray:
    return np.asarray(math.log(2.0) + stats.norm.logsf(np.abs(noise)))


def opened(found: DetectorScores) -> list[Alert]:
    return [alert for alert in found.alerts if alert.is_open]


def eventful_stream(rows: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Make a seasonal stream with a flat line, a gap, a spike and a level shift."""
    rng = np.random.default_rng(5)
    noise = rng.standard_normal(rows)
    seconds: FloatArray = 300.0 * np.arange(rows, dtype=np.float64)
    value = 3.0 * np.sin(2.0 * np.pi * seconds / 86400.0) + noise
    value[600:620] = value[600]
    value[800:810] = np.nan
    noise[1000] = 12.0
    value[1000] += 12.0
    noise[1200:1240] += 4.0
    value[1200:1240] += 4.0
    return value, noise, seconds


@pytest.mark.skipif(not kernel.is_compiled(), reason="the kernel is not built")
@pytest.mark.parametrize("has_value", [True, False])
def test_compiled_version_agrees_with_the_reference(has_value: bool) -> None:
    value, noise, seconds = eventful_stream(1500)
    stated = np.where(np.isnan(value), np.nan, -log_tail(noise))
    stated[:2] = np.nan
    given = value if has_value else np.full_like(value, np.nan)
    missing = np.isnan(value) * 1.0
    rows = np.column_stack([given, stated, noise, seconds, missing])
    states = [init_detector(has_value=has_value, has_clock=True, history=256) for _ in range(2)]
    fixed = anomaly_reference.list_constants()
    fast = kernel.detect_anomalies(states[0], rows, math.log(1e3), fixed)
    slow = anomaly_reference.detect_anomalies(states[1], rows, math.log(1e3))
    assert slow[:, anomaly_reference.EVENT].any()
    np.testing.assert_allclose(fast, slow, rtol=1e-9, atol=1e-9)
    for a, b in zip(*states, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)


def test_batches_do_not_change_a_bit() -> None:
    value, noise, seconds = eventful_stream(1500)
    whole, found = detect(value, noise, seconds=seconds, history=300)
    state = init_detector(has_clock=True, history=300)
    scores, alerts = [], []
    for cut in np.split(np.arange(1500), [1, 7, 601, 605, 1000, 1001, 1300]):
        state, part = update_detector(
            state,
            value[cut],
            noise[cut],
            rate=1e-3,
            seconds=seconds[cut],
        )
        file = io.BytesIO()
        np.savez(file, **state._asdict())
        file.seek(0)
        with np.load(file) as stored:
            state = DetectorState(**stored)
        scores.append(part.score)
        alerts += part.alerts
    assert alerts == found.alerts
    assert np.array_equal(np.concatenate(scores), found.score)
    for a, b in zip(whole, state, strict=True):
        assert np.array_equal(a, b, equal_nan=True)


def test_update_leaves_the_old_state_as_it_was() -> None:
    state = init_detector()
    before = [part.copy() for part in state]
    noise = np.random.default_rng(0).standard_normal(200)
    update_detector(state, noise, noise, rate=1e-3)
    for a, b in zip(before, state, strict=True):
        assert np.array_equal(a, b, equal_nan=True)


def test_memory_is_constant_and_small() -> None:
    value, noise, seconds = eventful_stream(3000)
    first, _ = detect(value[:100], noise[:100], seconds=seconds[:100])
    last, _ = detect(value, noise, seconds=seconds)
    assert count_bytes(first) == count_bytes(last) <= 100_000


@pytest.mark.parametrize(
    ("make", "most"), [("normal", 1.0), ("t3", 1.5), ("correlated", 1.5), ("class", 1.5)]
)
@pytest.mark.parametrize("rate", [1e-2, 1e-3])
def test_alerts_of_ordinary_rows_keep_the_rate(make: str, most: float, rate: float) -> None:
    rng = np.random.default_rng(3)
    rows = 20_000 if kernel.is_compiled() else 3_000
    noise = rng.standard_t(3, rows) if make == "t3" else rng.standard_normal(rows)
    value = noise.copy()
    if make == "correlated":
        for i in range(1, rows):
            value[i] += 0.9 * value[i - 1]
    state = init_detector(has_value=make != "class")
    _, found = update_detector(state, value, noise, rate=rate)
    asked = rate * rows
    assert len(opened(found)) <= most * asked + 2.0 * math.sqrt(asked)
    assert len(opened(found)) >= 0.1 * asked - 2.0


def test_surprise_is_calibrated_where_the_model_is_overconfident() -> None:
    rng = np.random.default_rng(4)
    noise = 3.0 * rng.standard_normal(6000)  # stated as sd 1
    _, found = detect(noise, noise)
    late = found.surprise[2000:]
    for nats in (1.0, 2.0):
        assert np.mean(late > nats) == pytest.approx(10.0**-nats, rel=0.3)


def test_surprise_without_learning_is_that_of_the_history() -> None:
    noise = np.random.default_rng(6).standard_normal(3000)
    state, _ = detect(noise, noise)
    p = np.array([0.5, 0.1, 0.01, 0.001])
    np.testing.assert_allclose(
        measure_surprise(state, stats.norm.isf(p / 2.0)), -np.log10(p), atol=0.3
    )


@pytest.mark.skipif(not kernel.is_compiled(), reason="the kernel is not built")
def test_history_forgets_an_earlier_scale() -> None:
    noise = np.random.default_rng(7).standard_normal(40_000)
    noise[:4000] *= 10.0
    state, _ = detect(noise, noise, history=512)
    held = state.history[anomaly_reference.VALUE]
    assert np.mean(np.abs(held) > 5.0) < 0.025  # 0.062 of all rows


@pytest.mark.skipif(not kernel.is_compiled(), reason="the kernel is not built")
@pytest.mark.parametrize("rate", [1e-3, 1e-4])
def test_rate_recovers_within_2000_rows_of_a_lasting_change(rate: float) -> None:
    alerts = 0
    for seed in range(20):
        value = np.random.default_rng(seed).standard_t(3, 24_000)
        noise = value.copy()  # the model has adapted its error bars
        value[12_000:] *= 3.0
        found = detect(value, noise, rate)[1]
        alerts += sum(a.row >= 14_000 for a in opened(found))
    asked = 20 * 10_000 * rate
    assert alerts <= asked + 2.0 * math.sqrt(asked)


@pytest.mark.skipif(not kernel.is_compiled(), reason="the kernel is not built")
def test_periods_of_the_stream_are_sampled_evenly() -> None:
    rows = np.arange(30_000)
    for period in (2, 16, 24, 96):
        value = (rows % period).astype(float)
        state, _ = detect(value, np.zeros(30_000))
        share = np.mean(state.history[anomaly_reference.VALUE] < period // 2)
        assert share == pytest.approx(0.5, abs=0.02)


def find_kind(value: FloatArray, noise: FloatArray, row: int, within: int) -> list[str]:
    """Return the kinds of the episode that opens within some rows: at first and when it closes."""
    _, found = detect(value, noise)
    first = next(i for i, a in enumerate(found.alerts) if a.is_open and a.row >= row)
    assert found.alerts[first].row < row + within
    return [found.alerts[first].kind, found.alerts[first + 1].kind]


def quiet_noise(rows: int = 2400) -> FloatArray:
    return np.random.default_rng(8).standard_normal(rows)


def test_spike_is_found_at_its_row() -> None:
    noise = quiet_noise()
    noise[2000] = 7.0
    assert find_kind(noise, noise, 2000, 1)[0] == "spike"


def test_level_shift_is_found() -> None:
    noise = quiet_noise()
    noise[2000:2200] += 3.0
    assert "level shift" in find_kind(noise, noise, 2000, 30)


def test_variance_change_is_found() -> None:
    noise = quiet_noise()
    noise[2000:2200] *= 2.5
    assert "variance change" in find_kind(noise, noise, 2000, 60)


def test_flat_line_is_found_within_ten_rows() -> None:
    noise = quiet_noise()
    value = noise.copy()
    value[2000:2100] = value[2000]
    assert find_kind(value, noise, 2000, 10) == ["flat line", "flat line"]


def test_sensor_that_only_jitters_is_a_flat_line() -> None:
    noise = quiet_noise()
    value = noise.copy()
    value[2000:2200] *= 0.01
    assert find_kind(value, noise, 2000, 60)[0] == "flat line"


def test_repeated_values_that_are_usual_raise_no_alert() -> None:
    rng = np.random.default_rng(9)
    value = np.repeat(rng.integers(0, 5, 400), rng.integers(1, 15, 400)).astype(float)
    noise = rng.standard_normal(len(value))
    _, found = detect(value, noise)
    assert not [a for a in opened(found) if a.kind == "flat line" and a.row > 500]


def test_missing_block_is_found_and_single_gaps_are_not() -> None:
    noise = quiet_noise()
    value = noise.copy()
    value[::50] = np.nan
    _, usual = detect(value, noise)
    assert not [a for a in opened(usual) if a.kind == "missing data"]
    value[2001:2040] = np.nan
    _, found = detect(value, noise)
    (alert,) = [a for a in opened(found) if a.kind == "missing data"]
    assert alert.start == 2000
    assert alert.row < 2010


def test_slow_ramp_that_forecasts_follow_is_a_drift() -> None:
    noise = quiet_noise()
    value = noise.copy()
    value[2000:] += 0.05 * np.arange(400)
    assert "drift" in find_kind(value, noise, 2000, 150)


def test_one_alert_per_episode() -> None:
    noise = quiet_noise()
    noise[2000:2040:4] = 8.0
    _, found = detect(noise, noise)
    assert len([a for a in opened(found) if 1990 < a.row < 2100]) == 1


def test_bets_have_mean_one_under_a_uniform_tail_probability() -> None:
    mean, _ = integrate.quad(
        lambda c: anomaly_reference._bet_against(c) * math.exp(-c), 0.0, 500.0, limit=400
    )
    assert mean == pytest.approx(1.0, abs=0.01)  # beyond exp(-500) the mean of 1/c^2 is 0.002


def test_labels_have_uniform_tail_probabilities() -> None:
    rng = np.random.default_rng(10)
    probability = rng.dirichlet([0.5, 1.0, 2.0, 2.0], 20_000)
    probability[::3] = [0.1, 0.1, 0.4, 0.4]
    label = np.array([rng.choice(4, p=p) for p in probability])
    z = score_labels(probability, label, np.arange(20_000))
    assert stats.kstest(2.0 * stats.norm.sf(z), "uniform").pvalue > 0.01


def test_empty_batch_changes_nothing() -> None:
    state, found = detect(np.zeros(0), np.zeros(0))
    assert len(found.score) == 0
    assert found.alerts == []
    assert state.scalars[anomaly_reference.SCALAR.row] == 0.0
