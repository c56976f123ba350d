"""Effects, centers and scales are in the units of the predictions, for every kind of target.

Held against finite differences of `kbnn.Model.predict`, on tables that are made anew from the rows
that the record has kept.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kbnn
from kbnn import Config, init
from kbnn.array_types import FloatArray
from kbnn.core.jacobian import Sensitivity, compute_sensitivity
from kbnn.core.layout import layout_of
from kbnn.data.batch import Rows
from kbnn.model.diagnostics import SAMPLE_ROWS, _build_effects, compute_effects
from kbnn.model.model import OnlineModel
from kbnn.model.scaler import CENTER
from tests.commands import kbnn as run

Table = dict[str, Any]
ROWS = 400


def table(seed: int = 0) -> Table:
    """Columns of very different units, with gaps in one of them."""
    rng = np.random.default_rng(seed)
    carat = np.exp(rng.normal(-0.4, 0.5, ROWS))
    return {
        "carat": carat,
        "gap": np.where(rng.random(ROWS) < 0.1, np.nan, rng.normal(1000.0, 5.0, ROWS)),
        "cut": rng.choice(["fair", "good", "ideal"], ROWS),
    }


def score_of(made: Table) -> FloatArray:
    """A function of the columns of about the size of 1."""
    steps = {"fair": -0.3, "good": 0.0, "ideal": 0.4}
    cut = np.array([steps[name] for name in made["cut"]])
    return np.asarray(1.5 * np.log(made["carat"]) + cut + 0.05 * np.nan_to_num(made["gap"] - 1000))


def draw(kind: str, made: Table) -> Any:
    """Targets of that kind."""
    rng, score = np.random.default_rng(7), score_of(made)
    if kind == "regression":
        return 50.0 + 20.0 * score + rng.standard_normal(ROWS)
    if kind == "positive":
        return np.round(np.exp(8.0 + score + 0.1 * rng.standard_normal(ROWS)), 2)
    if kind == "count":
        return rng.poisson(np.exp(1.0 + 0.6 * score)).astype(float)
    if kind == "amount":
        some = rng.random(ROWS) < 1.0 / (1.0 + np.exp(-score))
        return np.where(some, np.round(np.exp(2.0 + 0.5 * score), 3), 0.0)
    if kind == "two classes":
        return np.where(rng.random(ROWS) < 1.0 / (1.0 + np.exp(-2.0 * score)), "yes", "no")
    return np.array(["a", "b", "c"])[np.digitize(score + 0.3 * rng.standard_normal(ROWS), [-1, 0])]


def kept_rows(model: OnlineModel) -> Table:
    """The rows that effects are averaged over, as a table; missing values at their mean."""
    names = model.schema.encoded_names()
    x = model.card.summaries.sample.x[:SAMPLE_ROWS]
    centers = dict(
        zip(names, model.learner_state.columns[model.task.scaled :, CENTER], strict=True)
    )
    found: Table = {}
    for name in ("carat", "gap"):
        column = x[:, names.index(name)]
        found[name] = np.where(np.isnan(column), centers[name], column)
    cuts = [name for name in names if name.startswith("cut=")]
    places = np.argmax(x[:, [names.index(name) for name in cuts]], axis=1)
    found["cut"] = np.array([cuts[place].removeprefix("cut=") for place in places])
    return found


def differences(predict: Callable[[Table], FloatArray], rows: Table, scale: float) -> Table:
    """The mean change of what is predicted: by a unit of each number, by each category."""
    found: Table = {}
    for name, step in (("carat", 1e-3), ("gap", 1e-2)):
        up, down = ({**rows, name: rows[name] + sign * step} for sign in (1, -1))
        found[name] = np.mean(predict(up) - predict(down)) / (2 * step)
    for name in ("fair", "good", "ideal"):
        one, unseen = ({**rows, "cut": [cut] * len(rows["cut"])} for cut in (name, "unheard"))
        found[f"cut={name}"] = np.mean(predict(one) - predict(unseen))
    return {name: value / scale for name, value in found.items()}


def check(model: kbnn.Model, values: dict[str, Callable[[kbnn.Forecasts], FloatArray]]) -> None:
    """Every effect shown is a finite difference of what `predict` answers."""
    inner = model._require_single_model()
    rows = kept_rows(inner)
    shown = {told.name: told for told in compute_effects(inner)}
    assert set(shown) == set(values)
    for name, value in values.items():
        expected = differences(lambda t, v=value: v(model.predict(t)), rows, 1.0)  # type: ignore[misc]
        got = {effect.feature: effect.slope for effect in shown[name].effects}
        largest = max(abs(e.effect) for e in shown[name].effects)
        assert got == pytest.approx(expected, rel=2e-3, abs=2e-4 * largest)
        assert all(0.0 < e.effect_sd < 1e3 * max(largest, 1e-9) for e in shown[name].effects)


@pytest.mark.parametrize("kind", ["regression", "positive", "count", "amount"])
@pytest.mark.parametrize("ensemble", [1, 2])
def test_effects_on_numbers_are_differences_of_predicted_means(kind: str, ensemble: int) -> None:
    made = table()
    model = kbnn.Model(target="y", task=kind, layers=8, ensemble=ensemble)
    model.learn({**made, "y": draw(kind, made)})
    values: dict[str, Callable[[kbnn.Forecasts], FloatArray]] = {"y": lambda f: f.mean}
    if kind == "amount":
        values["y > 0"] = lambda f: 1.0 - np.asarray(f.to_arrow()["p_0"])
    check(model, values)
    units = {told.name: told.unit for told in compute_effects(model._require_single_model())}
    assert units["y"] == "units of y"


def test_effects_on_several_targets_are_each_in_its_units() -> None:
    made = table()
    y = {"price": draw("positive", made), "weight": 1e-6 * draw("positive", table(3))}
    model = kbnn.Model(target=["price", "weight"], task="positive", layers=8)
    model.learn({**made, **y})
    check(model, {"price": lambda f: f.mean[:, 0], "weight": lambda f: f.mean[:, 1]})


@pytest.mark.parametrize("options", [{}, {"link": "sigmoid", "noise": 0.3}])
def test_effects_on_two_classes_are_differences_of_a_probability(options: dict[str, Any]) -> None:
    made = table()
    model = kbnn.Model(target="y", layers=8, **options)
    model.learn({**made, "y": draw("two classes", made)})
    name = model.classes[1]
    check(model, {name: lambda f: f.probability[:, 1]})
    (told,) = compute_effects(model._require_single_model())
    assert (told.title, told.unit) == (f"the probability of {name}", "probability")


def test_effects_on_three_classes_are_differences_of_their_probabilities() -> None:
    made = table()
    model = kbnn.Model(target="y", layers=8)
    model.learn({**made, "y": draw("three", made)})
    check(
        model,
        {name: lambda f, k=k: f.probability[:, k] for k, name in enumerate(model.classes)},  # type: ignore[misc]
    )


def test_the_last_value_of_a_series_adds_to_its_forecast_as_it_is() -> None:
    """What is learned is the change from the last value; what is shown is the next value."""
    rng = np.random.default_rng(2)
    y = 100.0 + np.cumsum(rng.standard_normal(300))
    model = kbnn.train({"x": np.zeros(300), "y": y}, "y", lags="1,2")
    inner = model._require_single_model()
    assert inner.schema.changes
    shown = {effect.feature: effect.slope for effect in compute_effects(inner)[0].effects}
    sample = inner.card.summaries.sample.x[:SAMPLE_ROWS]

    def next_value(one: FloatArray, two: FloatArray) -> FloatArray:
        """What is forecast after two values, as the model goes on from its history."""
        found = []
        for last, before in zip(one, two, strict=True):
            values = np.array([before, last, np.nan])[:, None]
            inner.start_pass()
            blank = np.zeros((3, inner.schema.width))
            found.append(inner.open_predictor()(Rows(blank, values, np.arange(3))).mean[2, 0])
        return np.array(found)

    whole = np.isfinite(sample).all(axis=1)
    one, two = sample[whole][:, 1:].T
    expected = {
        "y lag 1": np.mean(next_value(one + 0.01, two) - next_value(one - 0.01, two)) / 0.02,
        "y lag 2": np.mean(next_value(one, two + 0.01) - next_value(one, two - 0.01)) / 0.02,
    }
    assert shown == pytest.approx({"x": 0.0, **expected}, rel=0.02, abs=0.02)
    assert shown["y lag 1"] > 0.5


def test_wide_networks_by_the_chain_rule_agree_with_differences() -> None:
    from kbnn.model import diagnostics as module

    rng = np.random.default_rng(1)
    x = rng.standard_normal((600, 40))
    y = np.exp(5.0 + 0.5 * x[:, 0] - 0.3 * x[:, 1] + 0.1 * rng.standard_normal(600))
    names = [f"x{k}" for k in range(40)]
    model = kbnn.Model(target="y", task="positive", layers=8)
    model.learn({**dict(zip(names, x.T, strict=True)), "y": y})
    inner = model._require_single_model()
    (exact,) = compute_effects(inner)
    module.MAX_DIFFERENCED_INPUTS, before = 0, module.MAX_DIFFERENCED_INPUTS
    try:
        (chained,) = compute_effects(inner)
    finally:
        module.MAX_DIFFERENCED_INPUTS = before
    largest = max(abs(effect.effect) for effect in exact.effects)
    for one, two in zip(exact.effects, chained.effects, strict=True):
        assert two.effect == pytest.approx(one.effect, abs=0.05 * largest)
        assert two.effect_sd == one.effect_sd


def test_center_and_scale_of_a_positive_target_are_in_its_units(tmp_path: Path) -> None:
    made = table()
    y = draw("positive", made)
    model = kbnn.Model(target="y", task="positive", layers=8)
    model.learn({**made, "y": y})
    path = str(tmp_path / "m.npz")
    model.save(path)
    got = json.loads(run("inspect", path, "--json").out)
    (shown,) = [column for column in got["columns"] if column["name"] == "y"]
    low, high = np.quantile(y, [0.05, 0.95])
    assert low < shown["center"] < high
    assert 0.3 * np.std(y) < shown["scale"] < 2.0 * np.std(y)
    assert got["sensitivity_unit"] == {"y": "units of y"}
    assert "change in units of y per unit" in run("inspect", path).out


def test_variances_of_a_difference_of_outputs_add_up() -> None:
    config = Config(inputs=1, hidden=(), outputs=2, observation="categorical", covariance="full")
    cov = np.diag([1.0, 9.0, 1.0, 16.0])
    mean = np.array([0.0, 3.0, 0.0, 1.0])
    state = init(config)._replace(mean=mean, cov=layout_of(config).pack_blocks([cov]))
    found = compute_sensitivity(state, np.zeros((1, 1)), np.array([[[1.0, -1.0]]]))
    one = Sensitivity(*(part[0] for part in found))
    (effect,) = _build_effects(one, np.zeros(1), np.array([2.0]), 1.0, ["a"])
    assert (effect.slope, effect.slope_sd) == pytest.approx((1.0, 2.5))
    assert (effect.effect, effect.effect_sd, effect.size) == pytest.approx((2.0, 5.0, 2.0))
