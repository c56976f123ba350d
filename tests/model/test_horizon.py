"""Steps ahead: the closed form against finite differences, simulation, and what the user sees."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kbnn
from kbnn.core import kernel
from kbnn.core.belief import open_belief
from kbnn.core.jacobian import compute_slopes, function_var
from kbnn.core.state import State
from kbnn.data.batch import slice_rows
from kbnn.data.row_blocks import concat_rows
from kbnn.distributions.calibration import MEAN_SCALE_FACTOR
from kbnn.distributions.predictive import INTERVAL_HALF_WIDTHS_SD, PARAM
from kbnn.model import recursive_forecast, scaler
from kbnn.model.model import OnlineModel
from kbnn.model.recursive_forecast import MultiStepForecast
from kbnn.workflows import backtest
from kbnn.workflows.forecast import forecast_steps, make_future_rows
from kbnn.workflows.inspecting import inspect_model
from tests.commands import kbnn as command
from tests.data.test_lags import moment, series, trained, values

STEPS = 30


def path_of(model: OnlineModel, steps: int = STEPS) -> MultiStepForecast:
    rows = make_future_rows(model, steps)
    return forecast_steps(
        model, [model.history], [slice_rows(rows, k, k + 1) for k in range(steps)]
    )


def with_state(model: OnlineModel, **changes: Any) -> None:
    """The model with another belief."""
    state = model.learner_state.members[0].state()._replace(**changes)
    model.learner_state = model.learner_state._replace(members=(kernel.open_session(state),))


def state_of(model: OnlineModel) -> State:
    return model.learner_state.members[0].state()


@pytest.fixture
def learned(tmp_path: Path) -> OnlineModel:
    model = trained(series(tmp_path / "s.csv", 400), layers=[7], widen="off", rehearse="off")
    model.history.missed = model.history.missed[:0]
    return model


def test_the_first_step_is_the_forecast_of_the_next_row(learned: OnlineModel) -> None:
    made = path_of(learned, 1)
    said = learned.open_predictor()(make_future_rows(learned, 1))
    assert made.mean[0, 0] == pytest.approx(said.mean[0, 0], rel=1e-9)
    assert made.sd[0, 0] == pytest.approx(said.sd[0, 0], rel=1e-6)


@pytest.mark.parametrize("layers", [[], [6], [5, 4]])
def test_the_total_derivative_is_that_of_finite_differences(layers: Any, tmp_path: Path) -> None:
    """With all that is not known along one direction v of the weights, sd = |D v|."""
    options = {"widen": "off", "rehearse": "off", "activation": "tanh"}
    model = trained(series(tmp_path / "s.csv", 400), layers=layers, covariance="full", **options)
    model.history.missed = model.history.missed[:0]
    model.learner_state.tails[:, MEAN_SCALE_FACTOR] = 1.0
    model.history.low, model.history.high = np.array([-1e6]), np.array([1e6])
    state = state_of(model)
    size = len(state.mean)
    direction = np.random.default_rng(0).normal(size=size) * 1e-5
    upper = np.triu_indices(size)
    with_state(model, cov=np.outer(direction, direction)[upper])
    stated = np.sqrt(path_of(model).function_var[0])
    with_state(model, cov=np.zeros_like(state.cov))
    moved = []
    for sign in (-1.0, 1.0):
        with_state(model, mean=state.mean + sign * direction)
        moved.append(path_of(model).mean[0])
    np.testing.assert_allclose(stated, np.abs(moved[1] - moved[0]) / 2.0, rtol=2e-3)
    assert stated[-1] > 1.5 * stated[0]  # and it adds up along the way


@pytest.mark.slow
def test_variances_are_those_of_simulated_paths(tmp_path: Path) -> None:
    """Weights drawn once for each path and noise at each step, through the model itself."""
    model = trained(
        series(tmp_path / "s.csv", 400), layers=[], noise="constant", widen="off", rehearse="off"
    )
    model.history.missed = model.history.missed[:0]
    model.learner_state.tails[:, MEAN_SCALE_FACTOR] = 1.0
    state, steps, paths = state_of(model), 8, 1500
    made = path_of(model, steps)
    rng = np.random.default_rng(1)
    belief = open_belief(state)
    draws = np.tile(state.mean, (paths, 1))
    for stack in belief.stacks:
        for cov, order in zip(stack.cov, stack.positions, strict=True):
            draws[:, order] += rng.multivariate_normal(np.zeros(len(cov)), cov, paths)
    columns = model.learner_state.columns
    center, scale = columns[0, scaler.CENTER], columns[0, scaler.SCALE]
    rows = make_future_rows(model, steps)
    noise_sd = scale * np.sqrt(state.noise[0, 1] / state.noise[0, 0])
    ends = np.zeros((paths, steps))
    for k, w in enumerate(draws):
        history = model.history.copy()
        for h in range(steps):
            row = slice_rows(rows, h, h + 1)
            placed = model.timeline.look_up_lags(history, row)
            z = scaler.standardize_rows(columns[1:], placed.rows.x, model.learner.unscaled_inputs)[
                0
            ]
            assert placed.base is not None
            level = placed.base[0, 0] + center + scale * (w[0] + w[1:] @ z)
            ends[k, h] = level + noise_sd * rng.normal()
            model.timeline.append_rows(history, row._replace(y=ends[k : k + 1, h : h + 1]))
    np.testing.assert_allclose(made.mean[0], ends.mean(axis=0), atol=4 * ends.std() / 50)
    np.testing.assert_allclose(made.sd[0], ends.std(axis=0), rtol=0.06)


def test_many_rows_at_once_are_the_rows_one_by_one(learned: OnlineModel) -> None:
    belief = open_belief(state_of(learned))
    x = np.random.default_rng(0).normal(size=(9, belief.config.inputs))
    x[3, 2] = np.nan
    x[5, 1] = 30.0
    found = compute_slopes(belief, x)
    said = kernel.predict_arrays(state_of(learned), x)
    np.testing.assert_allclose(found.mean, said.mean[:, 0], rtol=1e-9)
    own = function_var(belief, found.weights) + found.new_var
    np.testing.assert_allclose(own, (said.function_var + said.noise_var)[:, 0], rtol=1e-9)
    assert found.inputs[5, 1] == 0.0  # beyond its limit an input moves nothing


def test_origins_together_are_origins_alone(learned: OnlineModel) -> None:
    other = learned.history.copy()
    row = make_future_rows(learned, 1)._replace(y=np.array([[77.0]]))
    learned.timeline.append_rows(other, row)
    rows = make_future_rows(learned, 5)
    steps = [slice_rows(rows, k, k + 1) for k in range(5)]
    alone = [forecast_steps(learned, [past], steps) for past in (learned.history, other)]
    both = forecast_steps(
        learned, [learned.history, other], [concat_rows([step, step]) for step in steps]
    )
    for part in range(2):
        np.testing.assert_allclose(both.mean[part], alone[part].mean[0], rtol=1e-12)
        np.testing.assert_allclose(both.sd[part], alone[part].sd[0], rtol=1e-12)


def test_the_path_stays_in_reach(learned: OnlineModel) -> None:
    state = state_of(learned)
    with_state(learned, mean=state.mean * 40.0)
    made = path_of(learned, 200)
    low, high = learned.history.low[0], learned.history.high[0]
    assert made.mean.min() >= low - 0.25 * (high - low) - 1e-9
    assert made.mean.max() <= high + 0.25 * (high - low) + 1e-9
    most = recursive_forecast.OWN_WIDTH_LIMITS[1] * recursive_forecast.CARRIED_WIDTH_LIMITS[1]
    assert made.sd.max() <= 1.5 * (high - low) * most + 1e-9


def test_what_is_not_known_is_cut_where_its_deviation_is_beyond_all_that_was_seen() -> None:
    var, most = np.array([4.0, 9.0, 16.0, 0.2, 9.0]), np.array([3.5, 2.0, 5.0, 0.5, 0.0])
    assert np.array_equal(
        recursive_forecast._compute_sd_shrinkage(var, most), [1.0, 2.0 / 3.0, 1.0, 1.0, 1.0]
    )


def test_an_ensemble_goes_on_together(tmp_path: Path) -> None:
    model = trained(series(tmp_path / "s.csv", 300), layers=[4], ensemble=3)
    made = path_of(model, 6)
    assert np.isfinite(made.sd).all()
    assert (
        abs(made.mean[0, 0] - model.open_predictor()(make_future_rows(model, 1)).mean[0, 0]) < 1e-9
    )


def test_bands_widen_where_the_last_forecasts_missed(learned: OnlineModel) -> None:
    plain = path_of(learned).sd
    learned.history.missed = 1.2 * np.random.default_rng(0).normal(size=(200_000, 1))
    np.testing.assert_allclose(path_of(learned).sd, plain * 1.2, rtol=0.01)
    learned.history.missed = np.full((recursive_forecast.MIN_ERROR_ROWS - 1, 1), 50.0)
    np.testing.assert_array_equal(path_of(learned).sd, plain)


def test_errors_carried_along_are_those_of_their_sums() -> None:
    rng = np.random.default_rng(1)
    walk = np.ones(16)
    assert recursive_forecast.compute_width_factor(rng.normal(size=100_000), walk) == pytest.approx(
        1.0, abs=0.02
    )
    tails = rng.standard_t(3, size=100_000)  # a sum of many is nearly Gaussian again
    sums = np.abs(np.convolve(tails, walk, "valid")) / 4.0
    expected = np.quantile(sums, 0.9) / INTERVAL_HALF_WIDTHS_SD[90]
    assert recursive_forecast.compute_width_factor(tails, walk) == pytest.approx(expected, rel=0.01)
    even = rng.normal(size=100_000)
    back = even[1:] - 0.9 * even[:-1]  # what goes up comes down: the sum stays where it is
    assert recursive_forecast.compute_width_factor(back / np.std(back), walk) == pytest.approx(
        recursive_forecast.CARRIED_WIDTH_LIMITS[0], abs=0.02
    )
    assert (
        recursive_forecast.compute_width_factor(
            rng.normal(size=recursive_forecast.MIN_ERROR_ROWS - 1), walk
        )
        == 1.0
    )
    assert recursive_forecast.compute_width_factor(np.zeros(100), walk) == 1.0
    assert recursive_forecast.compute_width_factor(rng.normal(size=100), np.zeros(3)) == 1.0


@pytest.mark.parametrize(
    ("size", "alone"), [(0.1, 0.9), (1.5, 0.91193), (1.64485, 1.0), (2.0, 1.21591), (9.0, 1.5)]
)
def test_errors_that_are_all_as_large_are_followed_only_so_far(size: float, alone: float) -> None:
    """Alone by their size; of one sign, two are the root of two times as much, or else nothing."""
    same, one = np.full(100, size), np.ones(1)
    turning = same * (-1.0) ** np.arange(100)
    for missed in (same, turning):
        assert recursive_forecast.compute_width_factor(missed, one) == pytest.approx(
            alone, rel=1e-5
        )
    more = np.sqrt(2.0) ** (100 / 102)
    assert recursive_forecast.compute_width_factor(same, np.ones(2)) == pytest.approx(
        alone * more, rel=1e-5
    )
    assert recursive_forecast.compute_width_factor(same, np.ones(4)) == pytest.approx(
        alone * 1.5, rel=1e-5
    )
    assert recursive_forecast.compute_width_factor(turning, np.ones(2)) == pytest.approx(
        alone * 0.7, rel=1e-5
    )


def test_a_path_states_what_it_does_not_know_and_what_nobody_could() -> None:
    path = MultiStepForecast(
        np.array([[1.0, -2.0]]), np.array([[9.0, 0.0]]), np.array([[16.0, 0.25]])
    )
    said = path.to_forecast()
    assert said.mean[:, 0] == pytest.approx([1.0, -2.0])
    for sd in (said.sd[:, 0], said.stated[:, 0, PARAM.spread]):
        assert sd == pytest.approx([5.0, 0.5])
    assert said.function_sd[:, 0] == pytest.approx([3.0, 0.0])
    assert said.noise_sd[:, 0] == pytest.approx([4.0, 0.5])


def test_predict_goes_on_from_the_last_row(tmp_path: Path) -> None:
    path, model = series(tmp_path / "s.csv", 300), tmp_path / "m.npz"
    assert command("train", path, "-m", model, "-q").code == 0
    ran = command("predict", model, "--horizon", "48")
    assert ran.code == 0, ran.err
    rows = list(csv.DictReader(io.StringIO(ran.out)))
    assert [*rows[0]] == ["step", "time", "mean", "sd", "lower", "upper"]
    assert [row["step"] for row in rows] == [str(k) for k in range(1, 49)]
    assert rows[0]["time"] == moment(300).replace(" ", "T") + ":00"
    assert rows[47]["time"] == moment(347).replace(" ", "T") + ":00"
    truth = values(348)[300:]
    mean = [float(row["mean"]) for row in rows]
    assert np.sqrt(np.mean((np.array(mean) - truth) ** 2)) < 6.0
    here = kbnn.load(model).forecast(48)
    assert here.mean.tolist() == mean
    assert here.when == [row["time"] for row in rows]
    parts = kbnn.load(model).forecast(48, interval=0.5, decompose=True)
    assert parts.columns == ["mean", "sd", "lower", "upper", "function_sd", "noise_sd"]
    assert np.hypot(parts["function_sd"], parts["noise_sd"]) == pytest.approx(parts["sd"])
    assert (parts["upper"] - parts["lower"] < here["upper"] - here["lower"]).all()
    drawn = command("predict", model, "--horizon", "48", "--plot", tmp_path / "p.svg", "-o",
                    tmp_path / "o.csv")  # fmt: skip
    assert drawn.code == 0, drawn.err
    assert "<svg" in (tmp_path / "p.svg").read_text()


def test_inputs_of_the_future_come_from_a_file(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    heat = rng.normal(size=460).round(2)
    load = [50.0]
    for at in range(1, 460):
        load.append(round(0.5 * load[-1] + 25 + 8 * float(heat[at]), 2))
    lines = [f"{moment(at)},{heat[at]},{load[at]}\n" for at in range(460)]
    (tmp_path / "s.csv").write_text("time,heat,load\n" + "".join(lines[:436]))
    future = tmp_path / "f.csv"
    future.write_text(
        "time,heat\n" + "".join(f"{moment(at)},{heat[at]}\n" for at in range(436, 460))
    )
    model = tmp_path / "m.npz"
    assert command("train", tmp_path / "s.csv", "-m", model, "-q", "--lags", "1,2").code == 0
    ran = command("predict", model, "--horizon", "24")
    assert "the model learns from 'heat' too: name a file with its future values" in ran.err
    ran = command("predict", model, future, "--horizon", "24")
    assert ran.code == 0, ran.err
    mean = [float(row["mean"]) for row in csv.DictReader(io.StringIO(ran.out))]
    assert np.sqrt(np.mean((np.array(mean) - load[436:]) ** 2)) < 3.0
    ran = command("predict", model, future, "--horizon", "25")
    assert ran.code == 1
    assert f"--horizon 25 needs 25 rows after the model's end, but {future} has 24" in ran.err


def test_a_miss_costs_twenty_times_what_it_is_beside_the_width(learned: OnlineModel) -> None:
    rows = make_future_rows(learned, 3)._replace(y=np.array([[1.0], [5.0], [-4.0]]))
    made = MultiStepForecast(np.zeros((3, 1)), np.full((3, 1), 0.75), np.full((3, 1), 0.25))
    [step] = backtest._score_steps(learned, learned.history, rows, np.arange(3), made).steps
    missed = (5.0 - INTERVAL_HALF_WIDTHS_SD[90]) + (4.0 - INTERVAL_HALF_WIDTHS_SD[90])
    assert step.rows == 3
    assert step.coverage_90 == pytest.approx(1 / 3)
    assert step.width_90 == pytest.approx(2 * INTERVAL_HALF_WIDTHS_SD[90])
    assert step.interval_score_90 == pytest.approx(
        2 * INTERVAL_HALF_WIDTHS_SD[90] + 20.0 * missed / 3
    )
    assert step.rmse == pytest.approx(np.sqrt((1.0 + 25.0 + 16.0) / 3))


@pytest.mark.parametrize(
    ("steps", "sentence"),
    [
        ("0", "--horizon must be between 1 and 10,000, not 0"),
        ("x", "--horizon takes a whole number, not 'x'"),
    ],
)
def test_horizons_that_cannot_be(steps: str, sentence: str, tmp_path: Path) -> None:
    model = tmp_path / "m.npz"
    assert command("train", series(tmp_path / "s.csv", 60), "-m", model, "-q").code == 0
    ran = command("predict", model, "--horizon", steps)
    assert (ran.code, sentence in ran.err) == (2, True)


@pytest.mark.parametrize(("minutes", "drawn"), [(1440, 24), (60, 24), (30, 48), (10, 96)])
def test_a_day_is_drawn_ahead_or_as_many_steps_as_can_be_seen(minutes: int, drawn: int) -> None:
    start = np.datetime64("2026-01-01T00:00")
    when = [str(start + np.timedelta64(minutes * at, "m")) for at in range(60)]
    model = kbnn.train({"time": when, "load": values(60)}, layers=3)._require_single_model()
    (section,) = inspect_model(model, "m.npz", 0).sections
    assert section.groups[-1].title == "What comes next"
    assert len(section.groups[-1].charts[0].data["mean"]) == drawn


def test_a_model_without_lags_sees_no_steps(tmp_path: Path) -> None:
    model = tmp_path / "m.npz"
    path = series(tmp_path / "s.csv", 60)
    assert command("train", path, "-m", model, "-q", "--lags", "off").code == 0
    ran = command("predict", model, "--horizon", "3")
    assert "--horizon needs a model with lags of 'load' (kbnn train --lags)" in ran.err
    ran = command("predict", model)
    assert "nothing to predict:" in ran.err


def test_evaluate_judges_every_step(tmp_path: Path) -> None:
    text = series(tmp_path / "s.csv", 470, gaps=()).read_text().splitlines(keepends=True)
    (tmp_path / "a.csv").write_text("".join(text[:401]))
    (tmp_path / "b.csv").write_text(text[0] + "".join(text[401:]))
    model = tmp_path / "m.npz"
    assert command("train", tmp_path / "a.csv", "-m", model, "-q").code == 0
    ran = command("evaluate", model, tmp_path / "b.csv", "--horizon", "29", "--json", "-q")
    assert ran.code == 0, ran.err
    found = json.loads(ran.out)
    assert found["origins"] == 470 - 400 - 29 + 1
    assert [step["step"] for step in found["steps"]] == list(range(1, 30))
    level = np.array(values(470))
    origin = np.arange(400, 442)
    for h, ago in ((0, 24), (11, 24), (28, 48)):  # what was known a season ago, or two
        naive = np.sqrt(np.mean((level[origin + h] - level[origin - 1]) ** 2))
        season = np.sqrt(np.mean((level[origin + h] - level[origin + h - ago]) ** 2))
        assert found["steps"][h]["last_rmse"] == pytest.approx(naive)
        assert found["steps"][h]["season_rmse"] == pytest.approx(season)
        assert found["steps"][h]["rmse"] < naive
    assert 0.7 < found["steps"][0]["coverage_90"] <= 1.0
    ran = command("evaluate", model, tmp_path / "b.csv", "--horizon", "29", "-q")
    title, _, *listed, _ = ran.out.splitlines()
    assert title == "steps ahead, from 42 rows on:"
    shown = [1, 2, 3, 6, 12, 18, 24, 29]  # some, and the last of them
    assert [int(line.split()[0]) for line in listed] == shown
    ran = command("evaluate", model, tmp_path / "b.csv", "--horizon", "999", "-q")
    assert "--horizon 999 needs 999 rows or more, but there are 70" in ran.err
