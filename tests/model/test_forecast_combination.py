"""Combined forecasts: errors of forecasts as made then, weights, widths, and the saved state."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kbnn
from kbnn.array_types import FloatArray
from kbnn.core.series_models import SeriesState, learn_series
from kbnn.data.lags import MIN_HISTORY_ROWS
from kbnn.distributions.calibration import WIDTH_FIELDS, apply_widths, learn_widths
from kbnn.distributions.normal_mixture import NormalMixture
from kbnn.errors import ModelError
from kbnn.model import forecast_combination, serialize
from kbnn.model.forecast_candidates import (
    CANDIDATES,
    COMBINED_STEPS,
    FULL_PATH_ORIGINS,
    SHORT_STEPS,
    CandidatePaths,
    build_candidates,
    count_path_steps,
    count_rows_to_origin,
    is_origin,
)
from kbnn.model.forecast_combination import (
    CalibrationOptions,
    CombinedForecast,
    StepErrors,
)
from kbnn.model.migrations import migrate_state
from kbnn.model.recursive_forecast import forecast_candidates
from tests.commands import kbnn as command

ROWS = 420


def table(rows: int = ROWS, seed: int = 3) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    hour = np.arange(rows)
    y = 40.0 + 10.0 * np.sin(hour * np.pi / 12) + np.cumsum(rng.normal(0.0, 0.4, rows))
    return {"time": make_times(rows), "y": y.tolist()}


def make_times(rows: int) -> list[str]:
    start = np.datetime64("2026-01-01T00:00")
    return [str(start + 60 * k) for k in range(rows)]


def part(data: dict[str, Any], start: int, stop: int) -> dict[str, Any]:
    return {name: values[start:stop] for name, values in data.items()}


def learn_in_parts(data: dict[str, Any], size: int) -> Any:
    model: Any = kbnn.Model("y", layers=[4])
    model.learn(part(data, 0, 30))
    for start in range(30, ROWS, size):
        model.learn(part(data, start, start + size))
    return model


def assert_same_errors(one: Any, other: Any) -> None:
    for name, a, b in zip(StepErrors._fields, one, other, strict=True):
        np.testing.assert_array_equal(a, b, err_msg=name)


@pytest.mark.parametrize("size", [1, 7, 100])
def test_errors_do_not_depend_on_the_size_of_chunks(size: int) -> None:
    data = table()
    whole, parts = learn_in_parts(data, ROWS), learn_in_parts(data, size)
    assert whole._model.step_errors.number[0, 0] > 20
    assert_same_errors(whole._model.step_errors, parts._model.step_errors)
    assert np.array_equal(whole.forecast(60).sd, parts.forecast(60).sd)


def test_a_saved_model_continues_bit_for_bit(tmp_path: Path) -> None:
    data = table()
    first: Any = kbnn.Model("y", layers=[4])
    first.learn(part(data, 0, 251))
    first.save(tmp_path / "m.npz")
    second: Any = kbnn.load(tmp_path / "m.npz")
    assert_same_errors(first._model.step_errors, second._model.step_errors)
    for model in (first, second):
        model.learn(part(data, 251, ROWS))
    assert_same_errors(first._model.step_errors, second._model.step_errors)


@pytest.mark.parametrize("at", [1, 5])
def test_interrupted_rows_are_completed_bit_for_bit(
    at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = table()
    models: list[Any] = [kbnn.Model("y", layers=[4]), kbnn.Model("y", layers=[4])]
    for model in models:
        model.learn(part(data, 0, 200))
    real, calls = StepErrors.add_origin, []

    def add_then_stop(self: StepErrors, *args: Any) -> StepErrors:
        calls.append(1)
        if len(calls) == at:
            raise KeyboardInterrupt
        return real(self, *args)

    monkeypatch.setattr(StepErrors, "add_origin", add_then_stop)
    with pytest.raises(KeyboardInterrupt):
        models[0]._model.learn_batch(rows_of(models[0], part(data, 200, ROWS)))
    monkeypatch.undo()
    models[1]._model.learn_batch(rows_of(models[1], part(data, 200, ROWS)))
    assert_same_errors(models[0]._model.step_errors, models[1]._model.step_errors)


def rows_of(model: Any, data: dict[str, Any]) -> Any:
    """The rows as the model is given them."""
    from kbnn.data.batch import Rows

    schema = model._model.schema
    instant = np.array(data["time"], "datetime64[s]").astype(np.float64)
    time = np.column_stack((instant, instant))
    x = np.full((len(time), schema.width), np.nan)
    names = schema.encoded_names()
    x[:, [names.index(name) for name in schema.clock.names]] = schema.clock.encode_times(time)
    return Rows(x, np.array(data["y"])[:, None], np.arange(1, len(time) + 1), time=time)


def test_errors_are_those_of_forecasts_as_made_then() -> None:
    """Stop at every origin, forecast, and compare with what followed."""
    data = table(260)
    y = np.array(data["y"])
    model: Any = kbnn.Model("y", layers=[4])
    count, square = np.zeros((2, CANDIDATES, COMBINED_STEPS))
    made: list[tuple[int, FloatArray]] = []
    done = 0
    for row in range(1, 261):
        if not is_origin(row):
            continue
        model.learn(part(data, done, row))
        decay = 0.5 ** ((row - done) / 500.0)
        count, square = count * decay, square * decay
        for origin, mean in made:
            for step in range(max(1, done - origin + 1), min(row - origin, mean.shape[1]) + 1):
                found = mean[:, step - 1]
                known = np.isfinite(found)
                count[known, step - 1] += 1.0
                square[known, step - 1] += (found[known] - y[origin + step - 1]) ** 2
        done, inner = row, model._model
        if not inner.is_warming_up:
            paths = forecast_candidates(
                inner.forecast_context, inner.history, count_path_steps(row)
            )
            made.append((row, paths.mean[0]))
    assert len(made) >= 20
    errors = model._model.step_errors
    np.testing.assert_allclose(errors.number, count, rtol=1e-9)
    np.testing.assert_allclose(errors.square, square, rtol=1e-9)
    assert errors.simple_number[0, 0] > 200  # naive candidates have an error at every row
    apart = np.sum(0.5 ** (np.arange(done - 6)[::-1] / 500.0) * (y[6:done] - y[: done - 6]) ** 2)
    assert errors.simple_square[0, 5] == pytest.approx(apart, rel=0.02)
    naive = y[24:done] - y[: done - 24]
    assert errors.simple_square[1, 9] == pytest.approx(np.sum(naive**2), rel=0.2)


def build_naive(
    mean: FloatArray, var: FloatArray, values: FloatArray, season: int, first_step: int = 1
) -> CandidatePaths:
    """Candidates without series models."""
    modeled = np.full((len(mean), 2, mean.shape[1]), np.nan)
    return build_candidates(mean, var, values, season, modeled, first_step=first_step)


def add_unknown(forecasts: FloatArray) -> FloatArray:
    """Return forecasts (n, 5) of the simple candidates; those that are not given are unknown."""
    missing = CANDIDATES - 1 - forecasts.shape[1]
    return np.pad(forecasts, ((0, 0), (0, missing)), constant_values=np.nan)


def test_naive_candidates_are_past_values() -> None:
    values = np.arange(1.0, 11.0)[None] ** 2
    found = build_naive(np.zeros((1, 6)), np.ones((1, 6)), values, 4).mean[0]
    assert found[1].tolist() == [100.0] * 6
    assert found[2].tolist() == [49.0, 64.0, 81.0, 100.0, 49.0, 64.0]
    # moved by the change of the last season, and then by the same drift for another season
    assert found[3].tolist() == [113.0, 128.0, 145.0, 164.0, 177.0, 192.0]
    later = build_naive(np.zeros((1, 2)), np.ones((1, 2)), values, 4, 5).mean[0]
    np.testing.assert_array_equal(later, found[:, 4:])
    values[0, -1] = np.nan
    found = build_naive(np.zeros((1, 2)), np.ones((1, 2)), values, 0).mean[0]
    assert found[1].tolist() == [81.0, 81.0]
    assert np.isnan(found[2]).all()


def test_the_drift_is_the_mean_change_of_the_last_48_rows() -> None:
    values = np.append(np.zeros(100), 2.0 * np.arange(49))[None]
    for season in (0, 4, 12):
        found = build_naive(np.zeros((1, 24)), np.ones((1, 24)), values, season).mean[0]
        np.testing.assert_allclose(found[3], 96.0 + 2.0 * np.arange(1, 25))
    # half the rows where there are not enough, and 0 without any
    found = build_naive(np.zeros((1, 3)), np.ones((1, 3)), values[:, -40:], 0).mean[0]
    np.testing.assert_allclose(found[3], [98.0, 100.0, 102.0])
    found = build_naive(np.zeros((1, 3)), np.ones((1, 3)), values[:, -1:], 0).mean[0]
    np.testing.assert_allclose(found[3], 96.0)
    made = build_naive(np.zeros((1, 48)), np.ones((1, 48)), values, 12).mean[0, 3]
    truth = np.append(values[0], made)  # where it is right, its recorded error is 0
    errors = StepErrors.create().advance(1).resolve_pending(truth, 12)
    assert errors.simple_number[2, -1] == 1.0
    assert errors.simple_square[2, -1] == pytest.approx(0.0, abs=1e-18)
    assert errors.simple_square[0, -1] == pytest.approx(96.0**2)


def simulate(errors: FloatArray, season: bool = True) -> tuple[StepErrors, list[CombinedForecast]]:
    """Origins at every third row; candidate c misses the truth, 0, by errors[k, c]."""
    state, made = StepErrors.create(), []
    errors = np.column_stack((errors[:, 0], add_unknown(errors[:, 1:])))
    for k in range(len(errors)):
        state = state.advance(3).resolve_pending(np.zeros(3 * k + 3), 0)
        state = state._replace(simple_number=state.number[1:], simple_square=state.square[1:])
        mean = np.repeat(errors[k][None, :, None], COMBINED_STEPS, axis=2)
        if not season:
            mean[:, 2:] = np.nan
        paths = CandidatePaths(mean, np.ones((1, COMBINED_STEPS)))
        made.append(state.open_combiner().combine(paths))
        state = state.add_origin(paths, made[-1])
    return state, made


def test_the_candidate_with_the_least_errors_has_the_weight() -> None:
    rng = np.random.default_rng(0)
    _, made = simulate(rng.normal(size=(300, 4)) * [3.0, 1.0, 4.0, 2.0])
    weights = made[-1].weights[0, :, 10]
    assert weights.sum() == pytest.approx(1.0)
    assert weights[1] > 0.9
    assert weights[3] >= weights[[0, 2]].max()
    _, made = simulate(rng.normal(size=(300, 4)) * [3.0, 1.0, 4.0, 2.0], season=False)
    assert made[-1].weights[0, 2:].max() == 0.0


def simulate_network(share: float) -> CombinedForecast:
    """The last value misses by 1 sd; the network moves from it by 0.5 sd, in part rightly."""
    rng = np.random.default_rng(3)
    last = rng.normal(size=(400, 1))
    move = 0.5 * rng.normal(size=(400, 1))
    network = last - share * (last - move) + (1.0 - share) * move
    none = np.full((400, 2), np.nan)
    return simulate(np.concatenate((network, last, none), axis=1))[1][-1]


def test_means_without_proven_gain_are_near_the_best_naive_forecast() -> None:
    useless, useful = simulate_network(0.0), simulate_network(0.6)
    assert useless.weights[0, 1].min() > 0.9
    assert useful.weights[0, 0].min() > 0.9
    np.testing.assert_allclose(useful.weights.sum(axis=1), 1.0)


def test_bands_of_later_steps_follow_the_volatility() -> None:
    rng = np.random.default_rng(6)
    paths = CandidatePaths(np.zeros((1, CANDIDATES, COMBINED_STEPS)), np.ones((1, COMBINED_STEPS)))
    sds = []
    for factor in (1.0, 3.0):
        y = rng.normal(size=900)
        y[800:] *= factor
        state, _ = StepErrors.create().learn_one_step(
            np.zeros(900), np.ones(900), add_unknown(np.zeros((900, 3))), y, OPTIONS
        )
        sds.append(state.open_combiner().combine(paths).sd[0])
    ratio = sds[1] / sds[0]
    assert 1.2 < ratio[1] < 3.0
    assert 1.0 < ratio[-1] < ratio[1]


def test_bands_and_weights_resist_a_network_that_is_suddenly_unsure() -> None:
    rng = np.random.default_rng(9)
    y = 100.0 + np.cumsum(rng.normal(size=900))
    state, _ = StepErrors.create().learn_one_step(
        y[:-1], np.ones(899), add_unknown(y[:-1, None]), y[1:], OPTIONS
    )
    for row in range(60, 899, 12):  # the network forecasts the last value, as the naive candidate
        state = state.advance(row - int(state.rows[0])).resolve_pending(y[: row + 1], 0)
        flat = np.full((1, CANDIDATES, COMBINED_STEPS), np.nan)
        flat[:, :2] = y[row]
        paths = CandidatePaths(flat, np.ones((1, COMBINED_STEPS)))
        state = state.add_origin(paths, state.open_combiner().combine(paths, calibrated=False))
    combiner = state.open_combiner()
    usual = combiner.combine(paths)
    unsure = combiner.combine(paths._replace(var=1e6 * paths.var))
    assert np.all(unsure.weights[0, 0] < 0.2 * usual.weights[0, 0])
    assert np.all(unsure.sd < 2.5 * usual.sd)


def test_candidates_that_hardly_count_do_not_widen_bands() -> None:
    rng = np.random.default_rng(0)
    _, made = simulate(rng.normal(size=(30, 4)) * [0.5, 3.0, 3.0, 3.0])
    assert made[-1].weights[0, 1, 5] == pytest.approx(0.02, abs=0.002)
    assert made[-1].sd[0, 5] < 0.57  # 0.61 with the weights of the mean


@pytest.mark.parametrize(("late", "weight"), [(900, 0.01), (24, 0.9)])
def test_a_candidate_that_comes_late_does_not_win_by_a_few_small_errors(
    late: int, weight: float
) -> None:
    """The first errors of a season of 900 rows; those of a day are compared as they are."""
    rng = np.random.default_rng(5)
    y = rng.normal(size=1000)
    y[late : late + 10] = y[:10]  # the season before repeats by chance
    y = y[: late + 10]
    errors = StepErrors.create()
    for row in range(1, len(y)):
        errors = errors.advance(1).resolve_pending(y[max(row - 950, 0) : row + 1], late)
    mean = np.full((1, CANDIDATES, COMBINED_STEPS), np.nan)
    mean[0, 1:3] = np.array([[0.0], [1.0]])
    paths = CandidatePaths(mean, np.ones((1, COMBINED_STEPS)))
    made = errors.open_combiner().combine(paths)
    assert made.weights[0, 2, 5] == pytest.approx(weight, abs=0.1)


def test_the_network_cannot_widen_bands_far_beyond_naive_errors() -> None:
    rng = np.random.default_rng(9)
    y = 100.0 + np.cumsum(rng.normal(size=900))
    naive = add_unknown(y[:-1, None])
    state, _ = StepErrors.create().learn_one_step(
        0.5 * (y[:-1] + y[1:]), np.full(899, 0.5), naive, y[1:], OPTIONS
    )
    for row in range(60, 850, 12):  # the network knows the future well
        state = state.advance(row - int(state.rows[0])).resolve_pending(y[: row + 1], 0)
        mean = np.full((1, CANDIDATES, COMBINED_STEPS), np.nan)
        mean[:, 0] = y[row + 1 : row + 49] + 0.3 * rng.normal(size=COMBINED_STEPS)
        mean[:, 1] = y[row]
        paths = CandidatePaths(mean, np.full((1, COMBINED_STEPS), 0.25))
        state = state.add_origin(paths, state.open_combiner().combine(paths, calibrated=False))
    unsure = state.open_combiner().combine(paths._replace(var=1e3 * paths.var))
    assert unsure.weights[0, 0, 5] > 0.8
    assert unsure.sd[0, 5] < 6.0**0.5  # the root mean square of naive errors


def test_bands_start_from_the_shape_of_naive_errors() -> None:
    rng = np.random.default_rng(10)
    heavy = np.cumsum(np.where(rng.random(900) < 0.02, 10.0, 0.3) * rng.normal(size=900))
    light = np.cumsum(rng.uniform(-1.0, 1.0, size=900))
    factors = []
    for y in (heavy, light):
        state = StepErrors.create().advance(240).resolve_pending(y[:240], 0)
        for row in range(300, 900, 60):
            state = state.advance(60).resolve_pending(y[row - 240 : row], 0)
        flat = CandidatePaths(
            np.full((1, CANDIDATES, COMBINED_STEPS), np.nan), np.ones((1, COMBINED_STEPS))
        )
        flat.mean[:, :2] = y[-1]
        made = state.open_combiner().combine(flat)
        factors.append(made.sd[0] / made.raw_sd[0])
    assert factors[0][0] < 0.75  # rare jumps: nine in ten errors are far below their sd
    assert factors[1][0] == pytest.approx(1.8 * 3**0.5 / 2 / 1.6449, abs=0.05)  # of a uniform
    np.testing.assert_allclose(factors[1][-1], 1.0, atol=0.15)  # of a sum of uniforms


@pytest.mark.parametrize("tails", [2.5, 1e6])
def test_intervals_hold_nine_in_ten(tails: float) -> None:
    rng = np.random.default_rng(1)
    draws = rng.standard_t(tails, size=(900, 1)) * np.ones(4)
    _, made = simulate(draws)
    inside = [abs(one.mean[0, 5]) <= 1.6449 * one.sd[0, 5] for one in made[100:]]
    assert 0.87 <= np.mean(inside) <= 0.93


def test_extremes_give_finite_forecasts() -> None:
    for draws in (np.zeros((50, 4)), np.full((50, 4), 1e140), np.full((50, 4), 1e-300)):
        state, made = simulate(draws)
        assert state.is_valid()
        assert np.isfinite(made[-1].mean).all()
        assert np.isfinite(made[-1].sd).all()


def test_beyond_the_recorded_steps_a_walk_goes_on_and_a_level_stays() -> None:
    paths = CandidatePaths(np.zeros((1, CANDIDATES, 960)), np.ones((1, 960)))
    state = StepErrors.create()
    ramp = np.arange(1.0, COMBINED_STEPS + 1) * np.ones((CANDIDATES, 1))
    for square, growth in ((ramp, 2.0**0.5), (np.ones_like(ramp), 1.0)):
        known = state._replace(number=np.full_like(ramp, 1e6), square=square * 1e6,
                               simple_number=np.full_like(ramp[1:], 1e6),
                               simple_square=square[1:] * 1e6, ratio=square[0] * 1e6)  # fmt: skip
        sd = known.open_combiner().combine(paths).sd[0]
        assert sd[95] / sd[47] == pytest.approx(growth, rel=0.05)
        assert sd[959] == sd[479]


def test_origins_are_spread_evenly() -> None:
    rows = [row for row in range(34, 50_000) if is_origin(row)]
    assert max(np.diff(rows)) < MIN_HISTORY_ROWS
    for start, stop, spacing in ((34, 512, 12), (513, 2048, 42), (4097, 16_384, 144)):
        inside = [row for row in rows if start <= row <= stop]
        assert len(inside) == pytest.approx((stop - start) / spacing, rel=0.05)
    full = np.array([row for row in rows if count_path_steps(row) == COMBINED_STEPS])
    assert len(full) == pytest.approx(len(rows) / FULL_PATH_ORIGINS, rel=0.05)
    assert {count_path_steps(row) for row in rows} == {SHORT_STEPS, COMBINED_STEPS}
    for season in (5, 7, 12, 24):
        assert np.bincount(full % season).min() > 0.4 * len(full) / season
    assert count_rows_to_origin(rows[3]) == rows[4] - rows[3]


def make_version_9(arrays: dict[str, Any]) -> dict[str, Any]:
    """Return the arrays of a model without series models, as version 9 stored them."""
    added = ("series/", "ahead/modeled")
    old = {name: array for name, array in arrays.items() if not name.startswith(added)}
    for name in ("number", "square"):
        old[f"ahead/{name}"] = old[f"ahead/{name}"][:4]
    for name in ("number", "square", "histogram"):
        old[f"ahead/naive_{name}"] = old.pop(f"ahead/simple_{name}")[:3]
    old["ahead/one_step"] = old["ahead/one_step"][:, :, :4]
    old["ahead/pending"] = np.delete(old["ahead/pending"], [4, 5], axis=1)
    return old


def test_models_of_version_9_learn_their_history_with_series_models() -> None:
    model = learn_in_parts(table(), ROWS)._model
    header, arrays = serialize.to_state(model)
    old = make_version_9(arrays)
    restored = serialize.from_state(*migrate_state(9, header, old))
    errors, known = restored.step_errors, model.history.values[:, 0]
    np.testing.assert_array_equal(errors.number[:4], old["ahead/number"])
    np.testing.assert_array_equal(errors.simple_square[:3], old["ahead/naive_square"])
    np.testing.assert_array_equal(errors.pending[:, 6:], old["ahead/pending"][:, 4:])
    series, _ = learn_series(SeriesState.create(24), known)
    assert restored.history.series is not None
    for one, other in zip(series, restored.history.series, strict=True):
        np.testing.assert_array_equal(one, other)
    assert errors.modeled_errors[0].min() > len(known) - 70
    made = errors.combine_one_step(np.zeros(1), np.ones(1), np.full((1, 5), 9.0))
    assert made.mean[0] < 9.0


def test_series_models_are_checked() -> None:
    header, arrays = serialize.to_state(learn_in_parts(table(), ROWS)._model)
    other, _ = learn_series(SeriesState.create(7), np.arange(100.0))
    wrong = {f"series/{name}": part for name, part in other._asdict().items()}
    for broken in (wrong, {"series/cov": np.full_like(arrays["series/cov"], np.nan)}):
        with pytest.raises(ModelError, match="series models"):
            serialize.from_state(header, {**arrays, **broken})


def test_models_without_recorded_errors_load_and_others_are_checked() -> None:
    model = learn_in_parts(table(), ROWS)._model
    header, arrays = serialize.to_state(model)
    old = {name: array for name, array in arrays.items() if not name.startswith("ahead/")}
    old["past/missed"] = np.zeros((3, 1))
    assert serialize.from_state(header, old).step_errors.number.sum() == 0.0
    added = ("widths", "combined_square", "gain", "volatility", "naive_histogram")
    for without in (added, added[2:], added[4:]):
        old = make_version_9(arrays)
        for name in without:
            del old[f"ahead/{name}"]
        old["ahead/pending"] = old["ahead/pending"][:, :7]
        restored = serialize.from_state(*migrate_state(8, header, old)).step_errors
        names = [name.replace("naive", "simple") for name in without]
        assert all(np.sum(getattr(restored, name)) == 0.0 for name in names)
        np.testing.assert_array_equal(restored.pending[:, 6:9], old["ahead/pending"][:, 4:])
        assert restored.advance(9).resolve_pending(np.arange(300.0), 0).is_valid()
    for name, value in (
        ("number", -1e9),
        ("age", 48.0),
        ("square", np.nan),
        ("rows", 1e300),
        ("one_step", -1e9),
        ("simple_square", -1e9),
        ("level", np.nan),
        ("pull", -np.inf),
        ("calibration", -1e9),
        ("widths", np.nan),
        ("combined_square", -1e9),
        ("gain", -1e12),
        ("volatility", -1e12),
        ("simple_histogram", -1e12),
        ("modeled", np.inf),
        ("modeled_errors", -1e9),
    ):
        broken = {**arrays, f"ahead/{name}": arrays[f"ahead/{name}"] + value}
        with pytest.raises(ModelError, match="errors of past forecasts"):
            serialize.from_state(header, broken)


def test_the_first_step_of_a_horizon_is_the_next_row(tmp_path: Path) -> None:
    model = tmp_path / "m.npz"
    assert command("train", "samples/load.csv", "-m", model, "-q").code == 0
    ahead = command("predict", model, "--horizon", "2").out.splitlines()
    when = ahead[1].split(",")[1]
    (tmp_path / "next.csv").write_text(f"{ahead[0].split(',')[1]}\n{when}\n")
    alone = command("predict", model, tmp_path / "next.csv").out.splitlines()
    assert ahead[1].split(",")[2:] == alone[1].split(",")[-4:]


def test_a_random_walk_is_forecast_as_its_last_value() -> None:
    rng = np.random.default_rng(5)
    y = 100.0 + np.cumsum(rng.normal(size=900))
    data = {"time": make_times(900), "y": y.tolist()}
    model, errors = kbnn.Model("y"), []
    for origin in range(300, 870, 30):
        model.learn(part(data, 0 if origin == 300 else origin - 30, origin))
        made = model.forecast(24).mean
        errors.append((made[[5, 23]] - y[[origin + 5, origin + 23]],
                       y[origin - 1] - y[[origin + 5, origin + 23]]))  # fmt: skip
    ours, naive = np.sqrt(np.mean(np.array(errors) ** 2, axis=0))
    assert (ours < 1.03 * naive).all()


def test_train_predict_and_evaluate_make_the_same_forecast_of_the_next_row() -> None:
    data = table()
    first: Any = kbnn.Model("y", layers=[4])
    first.learn(part(data, 0, 300))
    said, ahead = first.predict(part(data, 300, 301)), first.forecast(1)
    judged = first.evaluate(part(data, 300, 301))
    learned = first._model.learn(rows_of(first, part(data, 300, 301)))
    assert said.mean[0] == learned.mean[0, 0] == ahead.mean[0]
    assert said.sd[0] == ahead.sd[0]
    assert judged["rmse"] == abs(said.mean[0] - data["y"][300])


OPTIONS = CalibrationOptions(mixed=True, tracked=True)


def combine_by_loop(sd: FloatArray, made: FloatArray, y: FloatArray) -> list[tuple[float, float]]:
    """One-step combination row by row, as its equations are written: mean and sd."""
    decay = 0.5 ** (1 / 1000)
    count, square = np.zeros((5, 4)), np.zeros((5, 4))  # of all rows, then by level
    level, rows, xx, xt = 0.0, 0.0, 0.0, 0.0
    found = []
    for s, f, truth in zip(sd, made, y, strict=True):
        gap = 2.0 * np.log(s) - level / rows if rows else 0.0
        at = 1 + int(np.sum(gap > np.array([-1.0, 0.0, 1.0])))
        known = [k for k in range(4) if not np.isnan(f[k]) and (count[0, k] or not k)]
        own = square[0, 0] / max(count[0, 0], 1.0)
        weight = np.zeros(4)
        for k in known:
            error = (square[0, k] + 4.0 * own) / (count[0, k] + 2.0) if k else own
            error = (square[at, k] + 100.0 * error) / (count[at, k] + 100.0)
            weight[k] = error**-4.0 if error else 1.0
        weight /= weight.sum()
        mean = float(np.nansum(weight * f))
        prior = 5.0 * xx / max(rows, 1.0)
        naive = {k: square[0, k] / count[0, k] for k in known if k and count[0, k]}
        is_last = not naive or min(naive, key=lambda k: naive[k]) == 1
        doubt = 1.0 * is_last * np.sqrt(naive.get(1, 0.0) / (xx + prior)) if xx else 0.0
        b = min(max((xt + prior) / (xx + prior) - doubt, 0.0), 1.0) if xx else 1.0
        moved, change = mean - f[1], truth - f[1]
        weight *= b
        weight[1] += 1.0 - b
        mean = f[1] + b * moved
        found.append((mean, np.sqrt(s**2 + np.nansum(weight[1:] * (f[1:] - mean) ** 2))))
        count, square, level, rows = decay * count, decay * square, decay * level, decay * rows
        for k in np.flatnonzero(~np.isnan(f)).tolist():
            for place in (0, at):
                count[place, k] += 1.0
                square[place, k] += min(abs(f[k] - truth), 50.0 * s) ** 2
        level, rows = level + 2.0 * np.log(s), rows + 1.0
        xx, xt = decay * xx + moved**2, decay * xt + moved * change
    return found


def combine_widths_by_loop(mean: FloatArray, sd: FloatArray, y: FloatArray) -> list[float]:
    """Combine predicted sds with past errors, row by row as the docstring states."""
    slow, fast = 0.5 ** (1 / 1000), 0.5 ** (1 / 50)
    number, square = np.zeros(2), np.zeros(2)
    rows, ratio, score = 0.0, np.zeros(3), np.zeros(3)
    logs, log_squares = 0.0, 0.0
    found = []
    for m, s, truth in zip(mean, sd, y, strict=True):
        log = np.log(s**2)
        center = (logs + 3.0 * log) / (rows + 3.0)
        spread = np.sqrt((log_squares + 3.0 * log**2) / (rows + 3.0) - center**2)
        excess = np.exp(max(log - center - 2.0 * max(spread, 0.3), 0.0))
        var = np.array([s**2, *(excess * square + 3.0 * s**2) / (number + 3.0)])
        logs, log_squares = slow * logs + log, slow * log_squares + log**2
        scaled = var * (ratio + 10.0) / (rows + 10.0)
        weight = np.exp(score - score.max())
        found.append(float(np.exp(0.5 * weight @ np.log(scaled) / weight.sum())))
        error = min(abs(truth - m), 8.0 * s) ** 2
        number = np.array([slow, fast]) * number + 1.0
        square = np.array([slow, fast]) * square + error
        rows, ratio = slow * rows + 1.0, slow * ratio + np.minimum(error / var, 50.0)
        score = slow * score - 0.5 * (np.log(scaled) + np.minimum(error / scaled, 25.0))
    return found


def test_a_width_without_information_gives_way_to_past_errors() -> None:
    rng = np.random.default_rng(13)
    spread = np.exp(0.5 * rng.normal(size=4000))  # of the predicted sd, not of the values
    y = np.where(np.arange(4000) < 3000, 1.0, 3.0) * rng.normal(size=4000)
    widths, sd = learn_widths(np.zeros(WIDTH_FIELDS), np.zeros(4000), spread, y)
    assert np.std(np.log(sd[1000:3000])) < 0.1
    assert sd[1000:3000].mean() == pytest.approx(1.0, rel=0.1)
    assert sd[3500:].mean() == pytest.approx(3.0, rel=0.25)  # errors grew a while ago
    np.testing.assert_array_equal(apply_widths(widths, np.array([0.0, np.nan])), [0.0, np.nan])
    wide = apply_widths(widths, np.array([1.0, 30.0]))
    assert wide[1] > 5.0 * wide[0]  # far more than usual: an input may be missing
    known = np.exp(0.5 * rng.normal(size=4000))
    _, sd = learn_widths(
        np.zeros(WIDTH_FIELDS), np.zeros(4000), known, known * rng.normal(size=4000)
    )
    assert np.corrcoef(np.log(sd[500:]), np.log(known[500:]))[0, 1] > 0.99


def test_one_step_weights_follow_the_errors_of_all_rows_before() -> None:
    rng = np.random.default_rng(8)
    y = rng.normal(size=300)
    made = y[:, None] + rng.normal(size=(300, 4)) * [1.0, 0.8, 1.5, 2.0]
    made[:40, 2:] = np.nan
    sd = np.exp(0.7 * rng.normal(size=300))
    errors, found = StepErrors.create().learn_one_step(
        made[:, 0], sd, add_unknown(made[:, 1:]), y, OPTIONS
    )
    mean, wide = np.array(combine_by_loop(sd, made, y)).T
    np.testing.assert_allclose(found.mean, mean, rtol=1e-9)
    combined = combine_widths_by_loop(mean, wide, y)
    np.testing.assert_allclose(found.raw_sd, combined, rtol=1e-9)
    assert np.mean((mean - y)[100:] ** 2) < 0.9 * np.mean((made[100:, 1] - y[100:]) ** 2)
    frozen = errors.combine_one_step(made[:, 0], sd, add_unknown(made[:, 1:]))
    assert frozen.mean[0] != mean[0]


def test_one_step_intervals_hold_for_the_combined_mean() -> None:
    """The network's sd is wrong for the combined errors, and differs between rows."""
    rng = np.random.default_rng(11)
    sd = np.where(np.arange(4000) % 2, 0.2, 3.0)
    y = rng.normal(size=4000)
    made = y[:, None] + np.column_stack((sd, *[np.full(4000, 1.0)] * 3)) * rng.normal(
        size=(4000, 4)
    )
    _, found = StepErrors.create().learn_one_step(
        made[:, 0], sd, add_unknown(made[:, 1:]), y, OPTIONS
    )
    inside = NormalMixture(found.stated).score_values(y).in_90[1000:]
    assert 0.88 <= np.mean(inside) <= 0.92
    sure = np.abs(found.mean - y)[1001::2]
    assert np.sqrt(np.mean(sure**2)) < 0.4  # 0.57 if all rows had the same weights


def test_a_walk_is_pulled_to_its_last_value() -> None:
    rng = np.random.default_rng(12)
    y = np.cumsum(rng.normal(size=3000))
    last = np.concatenate(([0.0], y[:-1]))
    made = np.column_stack((last + 0.3 * rng.normal(size=3000), last, last + 2.0, last - 2.0))
    _, found = StepErrors.create().learn_one_step(
        made[:, 0], np.ones(3000), add_unknown(made[:, 1:]), y, OPTIONS
    )
    assert np.mean(np.abs(found.mean - last)[1000:]) < 0.03


def test_candidates_are_compared_also_where_the_network_is_certain() -> None:
    """On an exact line sds are 0: that the last value misses must count all the same."""
    y = np.arange(0.0, 120.0, 2.0)
    made = np.column_stack((y, y - 2.0))
    _, found = StepErrors.create().learn_one_step(
        y, np.zeros(60), add_unknown(made[:, 1:]), y, OPTIONS
    )
    gap = np.abs(found.mean - y)
    assert np.all(gap[1:] < 1.0)  # 1.0 is the mean of both
    assert gap[-1] < 0.3
    assert np.all(np.diff(gap[5:]) < 0.0)


def test_an_outlier_does_not_make_one_step_weights_equal() -> None:
    rng = np.random.default_rng(9)
    y = rng.normal(size=400)
    made = y[:, None] + rng.normal(size=(400, 4)) * [0.3, 2.0, 2.0, 2.0]
    y[200] = 1e9
    sd = np.full(400, 0.3)
    errors, _ = StepErrors.create().learn_one_step(
        made[:, 0], sd, add_unknown(made[:, 1:]), y, OPTIONS
    )
    mean = errors.combine_one_step(np.zeros(1), sd[:1], add_unknown(np.ones((1, 3)))).mean
    assert abs(mean[0]) < 0.05


def test_constants_fit_the_history() -> None:
    assert COMBINED_STEPS <= MIN_HISTORY_ROWS
    assert forecast_combination._GAUSSIAN_COUNTS.sum() == pytest.approx(1.0)


@pytest.mark.parametrize("sd", [0.0, 1e-200])
def test_a_best_forecast_without_spread_tells_nothing_of_the_gain(sd: float) -> None:
    """Warnings are errors here: a constant series has no spread."""
    values = np.full(200, 7.0)
    errors = StepErrors.create().advance(100)
    paths = build_naive(np.full((1, 48), 7.0), np.full((1, 48), sd), values[None, :100], 24)
    errors = errors.resolve_pending(values[:100], 24)
    made = errors.open_combiner().combine(paths)
    found = errors.add_origin(paths, made).advance(60).resolve_pending(values[:160], 24)
    assert np.isfinite(found.gain).all()
