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
from kbnn.core.series_models import AUTOREGRESSION, forecast_series
from kbnn.core.state import State
from kbnn.data.batch import Rows, concat_rows, slice_rows
from kbnn.data.lags import History
from kbnn.distributions.predictive import INTERVAL_HALF_WIDTHS_SD
from kbnn.model import recursive_forecast
from kbnn.model.model import OnlineModel
from kbnn.model.recursive_forecast import (
    HorizonPath,
    NetworkPath,
    _make_gaussian_forecast,
    forecast_origins,
    make_future_rows,
)
from kbnn.targets.prediction import Forecast, join_forecasts
from kbnn.workflows import forecast
from kbnn.workflows.inspecting import inspect_model
from tests.commands import kbnn as command
from tests.data.test_lags import moment, series, trained, values

STEPS = 30


def future_rows(model: OnlineModel, steps: int) -> Rows:
    return make_future_rows(model.schema, model.history, steps)


def path_of(model: OnlineModel, steps: int = STEPS) -> Forecast:
    rows = future_rows(model, steps)
    path = HorizonPath(model.forecast_context, [model.history])
    return join_forecasts([path.forecast_step(slice_rows(rows, k, k + 1)) for k in range(steps)])


def with_state(model: OnlineModel, **changes: Any) -> None:
    """The model with another belief."""
    state = model.learner_state.members[0].state()._replace(**changes)
    model.learner_state = model.learner_state._replace(members=(kernel.open_session(state),))


def state_of(model: OnlineModel) -> State:
    return model.learner_state.members[0].state()


@pytest.fixture
def learned(tmp_path: Path) -> OnlineModel:
    return trained(series(tmp_path / "s.csv", 400), layers=[7], widen="off", rehearse="off")


def test_the_first_step_is_the_forecast_of_the_next_row(learned: OnlineModel) -> None:
    made, said = path_of(learned, 1), learned.open_predictor()(future_rows(learned, 1))
    for part, other in zip(made[:-1], said[:-1], strict=True):  # all but the naive forecasts
        np.testing.assert_array_equal(part, other)


def test_without_other_inputs_the_first_step_has_the_weights_of_one_step() -> None:
    rng = np.random.default_rng(3)
    day = np.datetime64("2024-01-01") + np.arange(300) * np.timedelta64(1, "D")
    model = kbnn.Model("y")
    model.learn({"time": day.astype(str), "c": rng.normal(size=300), "y": rng.normal(size=300)})
    inner: OnlineModel = model._model  # type: ignore[assignment]
    context, rows = inner.forecast_context, future_rows(inner, 1)
    x = NetworkPath(context, [inner.history]).look_up_inputs(rows.x, rows.time)
    alone = inner.predict(rows._replace(x=x))
    naive = inner.timeline.look_up_naive(inner.history, rows)[:, 0]
    made = forecast_origins(context, [inner.history], [rows])
    of_origins = context.errors.open_combiner().combine(made.candidates)
    first = path_of(inner, 1)
    assert first.mean[0, 0] == context.combine_one_step(alone, naive)[0].mean[0, 0]
    assert first.mean[0, 0] != of_origins.mean[0, 0]
    assert first.sd[0, 0] == of_origins.sd[0, 0]


def test_origins_together_are_origins_alone(learned: OnlineModel) -> None:
    other = learned.history.copy()
    row = future_rows(learned, 1)._replace(y=np.array([[77.0]]))
    learned.timeline.append_rows(other, row)
    rows, context = future_rows(learned, 5), learned.forecast_context
    steps = [slice_rows(rows, k, k + 1) for k in range(5)]
    both = forecast_origins(
        context, [learned.history, other], [concat_rows([step, step]) for step in steps]
    )
    for k, past in enumerate((learned.history, other)):
        alone = forecast_origins(context, [past], steps)
        for part, same in zip(both.select_origin(k).candidates, alone.candidates, strict=True):
            np.testing.assert_allclose(part, same, rtol=1e-12)
        path = HorizonPath(context, [past])
        made = context.errors.open_combiner().combine(alone.candidates)
        each = join_forecasts([path.forecast_step(step) for step in steps])
        np.testing.assert_allclose(
            alone.apply_combination(made, context).mean, each.mean, rtol=1e-12
        )
        np.testing.assert_allclose(alone.apply_combination(made, context).sd, each.sd, rtol=1e-12)


def test_the_path_stays_in_reach(learned: OnlineModel) -> None:
    state = state_of(learned)
    with_state(learned, mean=state.mean * 40.0)
    made = path_of(learned, 200)
    low, high = learned.history.low[0], learned.history.high[0]
    assert made.mean[1:].min() >= low - 0.25 * (high - low) - 1e-9
    assert made.mean[1:].max() <= high + 0.25 * (high - low) + 1e-9
    assert np.isfinite(made.sd).all()


def test_lags_of_a_path_are_those_of_rows(tmp_path: Path) -> None:
    """With its own means as targets, `predict` of each row has the inputs of the path."""
    for lags in ("1,2,24", "1h,2h,24h"):
        model = trained(series(tmp_path / "s.csv", 300), layers=[5], lags=lags, rehearse="off")
        rows, context = future_rows(model, 60), model.forecast_context
        path, history = NetworkPath(context, [model.history]), model.history.copy()
        for k in range(60):
            row = slice_rows(rows, k, k + 1)
            x = path.look_up_inputs(row.x, row.time)
            np.testing.assert_array_equal(x, model.timeline.look_up_lags(history, row).rows.x)
            mean, function_var, noise_var = path.forecast_step(x)
            model.timeline.append_rows(history, row._replace(y=mean[:, None]))
            said = context.learner.predict(context.learned, x, None)
            assert np.isfinite(mean + function_var + noise_var).all()
            if k == 0:
                level = said.mean[0] + (model.history.last if model.schema.changes else 0.0)
                assert mean == pytest.approx(level, rel=1e-9)


def test_an_ensemble_goes_on_together(tmp_path: Path) -> None:
    model = trained(series(tmp_path / "s.csv", 300), layers=[4], ensemble=3)
    made = path_of(model, 6)
    assert np.isfinite(made.sd).all()
    assert made.mean[0, 0] == model.open_predictor()(future_rows(model, 1)).mean[0, 0]


def test_predict_goes_on_from_the_last_row(tmp_path: Path) -> None:
    path, model = series(tmp_path / "s.csv", 300), tmp_path / "m.npz"
    assert command("train", path, "-m", model, "-q").code == 0
    ran = command("predict", model, "--horizon", "48", "--digits", "17")
    assert ran.code == 0, ran.err
    rows = list(csv.DictReader(io.StringIO(ran.out)))
    assert [*rows[0]] == ["step", "time", "mean", "sd", "lower", "upper"]
    assert [row["step"] for row in rows] == [str(k) for k in range(1, 49)]
    assert rows[0]["time"] == moment(300)
    assert rows[47]["time"] == moment(347)
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
    assert ran.code == 0
    assert "'heat' missing in the steps to forecast: without future values" in ran.err
    ran = command("predict", model, future, "--horizon", "24")
    assert ran.code == 0, ran.err
    mean = [float(row["mean"]) for row in csv.DictReader(io.StringIO(ran.out))]
    assert np.sqrt(np.mean((np.array(mean) - load[436:]) ** 2)) < 3.0
    ran = command("predict", model, future, "--horizon", "25")
    assert ran.code == 1
    assert f"--horizon 25 needs 25 rows after the model's end, but {future} has 24" in ran.err


def test_a_miss_costs_twenty_times_what_it_is_beside_the_width(learned: OnlineModel) -> None:
    rows = future_rows(learned, 3)._replace(y=np.array([[1.0], [5.0], [-4.0]]))
    made = [_make_gaussian_forecast(np.zeros(1), np.ones(1), np.zeros(1)) for _ in range(3)]
    past, places = learned.history, np.arange(3)
    found = forecast._compare_with_truth(learned, past, rows, places, made)
    [step] = forecast._score_steps(found).steps
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
    assert "--horizon needs a model with lags of 'load': train one with --lags 1,2" in ran.err
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
    title, _, *rest = ran.out.splitlines()
    assert title == "steps ahead, from 42 rows on:"
    shown = [1, 2, 3, 6, 12, 18, 24, 29]  # some, and the last of them
    assert [int(line.split()[0]) for line in rest[:8]] == shown
    assert rest[8].startswith("score: ")
    ran = command("evaluate", model, tmp_path / "b.csv", "--horizon", "999", "-q")
    assert "--horizon 999 needs 999 rows or more, but there are 70" in ran.err


def test_paths_may_leave_the_range_seen_by_a_quarter() -> None:
    history = History(1, 1)
    history.low[0], history.high[0] = 10.0, 30.0
    low, high = recursive_forecast._compute_path_range([history])
    reach = 20.0 * recursive_forecast.RANGE_MARGIN_SHARE
    assert reach > 0.0
    assert (low[0], high[0]) == (10.0 - reach, 30.0 + reach)


def test_a_trend_goes_on_beyond_the_range_seen() -> None:
    rng = np.random.default_rng(2)
    months = np.datetime64("2000-01") + np.arange(240)
    y = 100.0 + 2.0 * np.arange(240) + 2.0 * rng.normal(size=240)
    made = kbnn.train({"month": months.astype(str), "y": y}).forecast(400)
    truth = 100.0 + 2.0 * np.arange(240, 640)
    for step in (24, 96, 200, 400):
        assert abs(made.mean[step - 1] - truth[step - 1]) < 3.0 * made.sd[step - 1], step
    assert np.all(made.sd < 100.0)


def test_an_exact_line_is_continued() -> None:
    hours = np.datetime64("2024-01-01T00:00") + np.arange(600).astype("timedelta64[h]")
    model = kbnn.train({"time": hours, "y": 2.5 * np.arange(600)})
    np.testing.assert_allclose(model.forecast(24).mean, 2.5 * np.arange(600, 624), rtol=1e-9)


def test_bands_are_narrow_where_the_network_is_far_better_than_naive_forecasts() -> None:
    rng = np.random.default_rng(5)
    t = np.arange(2400)  # no season of the clock
    y = 10.0 * np.sin(2 * np.pi * t / 17.3) + 5.0 * np.sin(2 * np.pi * t / 5.1)
    y += 0.1 * rng.normal(size=len(t))
    hours = np.datetime64("2024-01-01T00:00") + t.astype("timedelta64[h]")
    model, error, sd = kbnn.Model("y"), [], []
    model.learn({"time": hours[:1500], "y": y[:1500]})
    for place in range(1500, 2350, 50):
        made = model.forecast(12)
        error.append(made.mean - y[place : place + 12])
        sd.append(made.sd)
        model.learn({"time": hours[place : place + 50], "y": y[place : place + 50]})
    rmse, width = np.sqrt(np.mean(np.square(error), axis=0)), np.mean(sd, axis=0)
    assert np.all(rmse < 1.0)  # the last value misses by 8
    assert np.all(width < 2.5 * rmse + 0.2), (rmse, width)


def make_cycle(rows: int, seed: int) -> dict[str, Any]:
    noise = np.random.default_rng(seed).normal(size=rows)
    y = -50.0 - 5.0 * np.sin(2.0 * np.pi * np.arange(rows) / 24) + noise
    time = np.datetime64("2024-01-01T00") + np.arange(rows).astype("timedelta64[h]")
    return {"time": time, "y": y}


@pytest.mark.parametrize("seed", [1, 2])
def test_long_forecasts_stay_in_the_range_seen(seed: int) -> None:
    """The autoregressions of these series are not stable: recursive forecasts explode."""
    data = make_cycle(600, seed)
    model = kbnn.train(data, layers=4)
    series = model._model.history.series  # type: ignore[union-attr]
    assert series is not None
    far = forecast_series(series, 2000)[AUTOREGRESSION]
    assert np.ptp(far[-24:]) > 5.0 * np.ptp(data["y"])
    made = model.forecast(2000)
    assert made.mean.min() > data["y"].min()
    assert made.mean.max() < data["y"].max()
    truth = -50.0 - 5.0 * np.sin(2.0 * np.pi * np.arange(600, 2600) / 24)
    assert np.sqrt(np.mean((made.mean - truth)[48:] ** 2)) < 1.5
    assert np.all(made.sd[48:] < 3.0)


def test_bands_of_later_steps_resist_a_glitch() -> None:
    data = make_cycle(600, 3)
    data["y"][300] += 1e6
    made = kbnn.train(data, layers=4).forecast(24)
    assert np.all(np.abs(made.mean[1:] + 50.0) < 9.0)
    assert np.all(made.sd[1:] < 25.0)  # 40,000 if errors were not limited


def test_bands_are_not_empty_where_candidates_of_an_exact_season_differ() -> None:
    quarters = np.datetime64("2000-01") + 3 * np.arange(40).astype("timedelta64[M]")
    y = np.tile([1.0, 2.0, 3.0, 7.0], 10)
    made = kbnn.train({"quarter": quarters.astype(str), "y": y}, layers=4).forecast(60)
    gap = np.abs(made.mean - np.tile([1.0, 2.0, 3.0, 7.0], 15))
    assert np.all((gap < 1e-6) | (made.sd > 0.3 * gap))
