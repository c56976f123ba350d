"""Amounts: none at all, or a number above 0; what is stated of them, and how they are learned."""

from __future__ import annotations

import csv
import io
import json
import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import integrate, stats

import kbnn as library
from kbnn.array_types import FloatArray
from kbnn.core import kernel, reference
from kbnn.core.config import Config
from kbnn.core.constants import PRESENCE_RATE, PROBIT_VAR
from kbnn.core.likelihoods import presence_probability
from kbnn.core.reference import Records
from kbnn.core.state import init
from kbnn.data.schema import Column, Schema
from kbnn.distributions.calibration import FIRST_MEAN, MEAN_SCALE_FACTOR
from kbnn.distributions.dispatch import read_distribution
from kbnn.distributions.normal_mixture import NormalMixture
from kbnn.distributions.predictive import PARAM, PARAM_COUNT
from kbnn.distributions.transformed_normal import Hurdle
from kbnn.metrics.sections import list_effect_quantities
from kbnn.model.learner import _select_replayable_rows
from kbnn.model.model import OnlineModel
from kbnn.model.replay import BufferedRows
from kbnn.model.serialize import from_state, to_state
from kbnn.model.settings import Settings
from kbnn.targets.base import TargetScale
from kbnn.targets.registry import candidate_types, make_target_type
from tests.bench.data import block, schema
from tests.commands import kbnn

SHAPES = [(0.0, 1.0, 0.0), (0.05, 9.0, 1.0), (0.2, 40.0, -1.0)]


def rows_of(none: float, shape: tuple[float, float, float], unit: float) -> FloatArray:
    rows = np.ones((1, PARAM_COUNT))
    rows[:, PARAM.place], rows[:, PARAM.spread] = 0.7, 0.4
    rows[:, PARAM.share : PARAM.gain] = shape
    rows[:, PARAM.unit], rows[:, PARAM.none] = unit, none
    rows[:, PARAM.kind] = Hurdle.code
    return rows


class Exact:
    """The same distribution, written plainly."""

    def __init__(self, none: float, shape: tuple[float, float, float], unit: float) -> None:
        self.none, self.unit, (self.share, ratio, shift) = none, unit, shape
        self.near = stats.norm(0.7, 0.4)
        self.far = stats.norm(0.7 + 0.4 * shift, 0.4 * math.sqrt(ratio))

    def linked(self, y: float) -> float:
        return math.log(math.expm1(y / self.unit)) if self.unit else math.log(y)

    def value(self, z: float) -> float:
        return self.unit * math.log1p(math.exp(z)) if self.unit else math.exp(z)

    def slope(self, z: float) -> float:
        return self.unit / (1.0 + math.exp(-z)) if self.unit else math.exp(z)

    def below(self, z: float) -> float:
        amounts = (1.0 - self.share) * self.near.cdf(z) + self.share * self.far.cdf(z)
        return float(self.none + (1.0 - self.none) * amounts)

    def above(self, z: float) -> float:
        return float((1.0 - self.share) * self.near.sf(z) + self.share * self.far.sf(z))

    def density(self, z: float) -> float:
        amounts = (1.0 - self.share) * self.near.pdf(z) + self.share * self.far.pdf(z)
        return float((1.0 - self.none) * amounts)

    def crps(self, y: float) -> float:
        """The integral over z, from where the slope of the link is nothing."""
        seen = self.linked(y) if y > 0.0 else -60.0
        points = sorted({-60.0, -20.0, -3.0, -1.0, 0.0, 0.7, 1.5, 3.0, 6.0, 15.0, 40.0, seen})
        total = 0.0
        for a, b in pairwise(points):
            reached = 0.5 * (a + b) >= seen
            total += integrate.quad(
                lambda u, reached=reached: (self.below(u) - reached) ** 2 * self.slope(u),
                a, b, limit=400, epsabs=1e-14, epsrel=1e-12,
            )[0]  # fmt: skip
        return total


@pytest.mark.thinned(4)
@pytest.mark.parametrize("unit", [0.0, 2.0, 40.0])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("none", [1e-6, 0.3, 0.97])
@pytest.mark.parametrize("y", [0.0, 0.3, 9.0])
def test_an_amount_is_judged_as_integration_would(
    none: float, shape: tuple[float, float, float], unit: float, y: float
) -> None:
    rows, exact = rows_of(none, shape, unit), Exact(none, shape, unit)
    told = read_distribution(rows).score_values(np.array([y]))
    if y > 0.0:
        z = exact.linked(y)
        nll = math.log(exact.slope(z)) - math.log(exact.density(z))
        assert Hurdle(rows).cdf(np.array([y]))[0] == pytest.approx(exact.below(z), rel=1e-9)
        assert told.below[0] == pytest.approx(exact.below(z), rel=1e-9)
    else:
        nll = math.log(unit / 400.0 if unit else np.finfo(float).tiny) - math.log(none)
        assert Hurdle(rows).cdf(np.array([y]))[0] == none
        assert 0.0 <= told.below[0] <= none
    assert told.nll[0] == pytest.approx(nll, rel=1e-9)
    assert told.crps[0] == pytest.approx(exact.crps(y), rel=1e-9 if unit else 1e-7)
    for level in (0.01, 0.31, 0.5, 0.9, 0.999):
        found = float(read_distribution(rows).quantile(level)[0])
        if level <= none:
            assert found == 0.0
        else:
            assert exact.below(exact.linked(found)) == pytest.approx(level, rel=1e-9)
    assert Hurdle(rows).cdf(np.array([-1.0]))[0] == 0.0
    z = exact.linked(float(read_distribution(rows).quantile(1.0 - 2.0**-45)[0]))
    assert 2.0**45 * (1.0 - none) * exact.above(z) == pytest.approx(1.0, rel=1e-5)


def test_the_score_of_an_amount_is_the_normal_quantile_of_what_is_below() -> None:
    y = np.linspace(0.2, 9.0, 60)
    told = read_distribution(np.repeat(rows_of(0.3, SHAPES[1], 2.0), len(y), axis=0)).score_values(
        y
    )
    assert told.below[0] < 0.4
    assert told.below[-1] > 0.95
    assert told.score == pytest.approx(stats.norm.ppf(told.below), abs=1e-9)


@pytest.mark.parametrize("shape", SHAPES)
def test_all_that_is_stated_adds_up_to_one(shape: tuple[float, float, float]) -> None:
    """With respect to length, and at 0 to what is rounded to it."""
    rows, exact = rows_of(0.4, shape, 5.0), Exact(0.4, shape, 5.0)

    def density(z: float) -> float:
        told = read_distribution(rows).score_values(np.array([exact.value(z)]))
        return math.exp(-float(told.nll[0])) * exact.slope(z)

    parts = pairwise([-25.0, -12.0, -4.0, -1.0, 0.0, 0.7, 1.4, 3.0, 8.0, 20.0, 40.0])
    total = sum(integrate.quad(density, a, b, epsabs=1e-12, epsrel=1e-11)[0] for a, b in parts)
    at_zero = (
        math.exp(-float(read_distribution(rows).score_values(np.zeros(1)).nll[0])) * 5.0 / 400.0
    )
    assert total + at_zero == pytest.approx(1.0, abs=1e-9)


@pytest.mark.thinned(2)
@pytest.mark.parametrize("none", [0.02, 0.3, 0.93, 0.99])
def test_values_drawn_from_what_is_stated_lie_where_it_says(none: float) -> None:
    """Intervals hold their share, u is even, and mean and spread are those of draws."""
    rng = np.random.default_rng(1)
    rows = np.repeat(rows_of(none, (0.0, 1.0, 0.0), 5.0), 40_000, axis=0)
    rows[:, PARAM.place] += 1e-3 * rng.standard_normal(len(rows))  # u is drawn by it
    z = 0.7 + 0.4 * rng.standard_normal(len(rows))
    y = np.where(rng.random(len(rows)) < none, 0.0, 5.0 * np.log1p(np.exp(z)))
    told = read_distribution(rows).score_values(y)
    for share, inside in zip((0.5, 0.8, 0.9, 0.95), told[-4:], strict=True):
        assert np.mean(inside) == pytest.approx(share, abs=0.01)
    assert stats.kstest(told.below, "uniform").pvalue > 1e-4
    assert np.all((told.lower >= 0.0) & (told.lower <= told.upper))
    lower, upper = read_distribution(rows[:1]).interval(0.9)
    assert (lower[0], upper[0]) == pytest.approx((told.lower[0], told.upper[0]), rel=1e-3)
    assert (lower[0] == 0.0) == (none > 0.05)


def test_kinds_are_compared_by_the_same_event() -> None:
    """A 0 by the mass of what is rounded to it, whole numbers by a half on each side."""
    amount, exact = rows_of(0.3, SHAPES[1], 5.0), Exact(0.3, SHAPES[1], 5.0)
    real = amount.copy()
    real[:, PARAM.kind] = NormalMixture.code
    rest, wide = stats.norm(0.7, 0.4), stats.norm(1.1, 1.2)
    found = [read_distribution(rows).log_density(np.zeros(1), 0.2)[0] for rows in (amount, real)]
    mass = 0.95 * (rest.cdf(0.1) - rest.cdf(-0.1)) + 0.05 * (wide.cdf(0.1) - wide.cdf(-0.1))
    wanted = [math.log(exact.below(exact.linked(0.1))), math.log(mass)]
    assert found == pytest.approx(wanted, rel=1e-9)
    assert read_distribution(amount).log_density(np.array([3.0]), 0.2)[0] == pytest.approx(
        math.log(exact.below(exact.linked(3.5)) - exact.below(exact.linked(2.5))), rel=1e-9
    )
    z = exact.linked(0.3)
    assert read_distribution(amount).log_density(np.array([0.3]), 0.2)[0] == pytest.approx(
        math.log(exact.density(z) / exact.slope(z)), rel=1e-9
    )


def observed(label: float, config: Config) -> tuple[reference.Records, reference.Records, Any]:
    """One row before and after its label was learned, and the belief."""
    state = init(config, 3)
    x = np.full((1, config.inputs), 0.5)
    after, _ = kernel.learn_arrays(state, x, np.array([[label]]), None, None)
    return kernel.predict_arrays(state, x), kernel.predict_arrays(after, x), after


@pytest.mark.parametrize("label", [-np.inf, 0.4])
def test_the_update_by_an_amount_is_that_of_quadrature(label: float) -> None:
    """Of a network that is linear, whose outputs are independent: whether there is any is a probit,
    whose first two moments are exact; how much is a Gaussian, and is left alone by none at all.
    """
    config = Config(
        inputs=2, outputs=2, hidden=(), observation="amount", covariance="full",
        noise=0.3, robust=False, drift=False,
    )  # fmt: skip
    before, after, _ = observed(label, config)
    m, v = float(before.mean[0, 1]), float(before.function_var[0, 1])
    a = np.linspace(m - 12.0 * math.sqrt(v), m + 12.0 * math.sqrt(v), 200_001)
    sign = 1.0 if np.isfinite(label) else -1.0
    p = stats.norm.pdf(a, m, math.sqrt(v))
    p = p * stats.norm.cdf(sign * PRESENCE_RATE * a / math.sqrt(PROBIT_VAR))
    p /= p.sum()
    mean = float(np.sum(p * a))
    assert after.mean[0, 1] == pytest.approx(mean, rel=1e-9)
    assert after.function_var[0, 1] == pytest.approx(float(np.sum(p * (a - mean) ** 2)), rel=1e-9)
    m, v = float(before.mean[0, 0]), float(before.function_var[0, 0])
    gain = v / (v + 0.3) if np.isfinite(label) else 0.0
    assert after.mean[0, 0] == pytest.approx(m + gain * (label - m) if gain else m, rel=1e-9)
    assert after.function_var[0, 0] == pytest.approx(v * (1.0 - gain), rel=1e-9)


def test_the_probability_of_an_amount_is_the_expected_one() -> None:
    a = np.linspace(-40.0, 40.0, 400_001)
    for m, v in ((0.3, 0.5), (-2.0, 3.0)):
        p = stats.norm.pdf(a, m, math.sqrt(v))
        wanted = np.sum(p * stats.norm.cdf(PRESENCE_RATE * a / math.sqrt(PROBIT_VAR))) / np.sum(p)
        assert float(presence_probability(np.array(m), np.array(v))) == pytest.approx(
            wanted, rel=1e-9
        )


def test_what_is_unknown_of_an_amount_is_what_draws_of_the_network_differ_by() -> None:
    """Both parts drawn from what is believed of them: their product varies by function_sd."""
    rng = np.random.default_rng(0)
    task = make_target_type(schema(1), Settings(kind="amount"))
    known = task.init_calibration(False, np.array([[1.0], [2.0], [4.0]]))
    scaled = TargetScale(np.array([0.2]), np.array([0.5]))
    for how_much, whether in ((0.02, 1e-9), (1e-9, 0.3), (0.01, 0.1)):
        mean, var = np.array([[0.4, 0.3]]), np.array([[how_much, whether]])
        none = np.zeros((1, 0))
        records = Records(mean, var, np.array([[0.04, 0.0]]), none, np.ones(1), np.ones(1))
        said = task.build_forecast(records, scaled, False, known)
        draws = mean + np.sqrt(var) * rng.standard_normal((4000, 2))
        exact = np.zeros((len(draws), 2)) + 1e-12
        many = Records(
            draws, exact, np.tile([0.04, 0.0], (len(draws), 1)), np.zeros((len(draws), 0)),
            np.ones(len(draws)), np.ones(len(draws)),
        )  # fmt: skip
        spread = np.std(task.build_forecast(many, scaled, False, known).mean)
        assert said.function_sd[0, 0] == pytest.approx(spread, rel=0.08)
        assert said.sd[0, 0] == pytest.approx(
            math.hypot(said.function_sd[0, 0], said.noise_sd[0, 0]), rel=1e-9
        )


def made(rows: int, seed: int = 0, targets: int = 1) -> tuple[FloatArray, FloatArray]:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((rows, 3))
    y = []
    for _ in range(targets):
        f = np.sin(1.5 * x[:, 0]) + 0.5 * x[:, 1]
        some = rng.random(rows) < 1.0 / (1.0 + np.exp(-2.0 * x[:, 1] - x[:, 2]))
        y.append(np.where(some, np.exp(2.0 + f + 0.4 * rng.standard_normal(rows)), 0.0))
    return x, np.stack(y, axis=1) if targets > 1 else y[0]


def learned(rows: int, **settings: Any) -> OnlineModel:
    x, y = made(rows)
    model = OnlineModel(Settings(**{"hidden": (12,), **settings}), schema(3))
    model.learn(block(x, y))
    return model


def test_amounts_are_found_by_evidence_and_better_forecast() -> None:
    model, beside = learned(900), learned(900, kind="regression")
    assert model.task.name == "amount"
    assert {candidate.learner.settings.kind for candidate in model.candidates} == {"amount"}
    mine, other = model.card.metric_values(), beside.card.metric_values()
    assert mine["nll"] < other["nll"] - 1.0
    assert mine["crps"] < 0.9 * other["crps"]
    assert mine["rmse"] < other["rmse"]
    x, y = made(900)
    said = model.predict(block(5.0 * x, y))
    for level in (0.5, 0.9, 0.99):
        lower, upper = read_distribution(said.stated[:, 0]).interval(level)
        assert np.all((lower >= 0.0) & (lower <= upper) & np.isfinite(upper))
    assert np.all((said.mean > 0.0) & (said.mean <= y.max()))
    kept = model.learner_state.calibration[1, FIRST_MEAN:MEAN_SCALE_FACTOR]
    assert np.all(said.stated[:, 0, PARAM.gain : PARAM.most] == kept)
    assert not np.all(kept == 1.0)
    parts = np.hypot(said.function_sd, said.noise_sd)
    np.testing.assert_allclose(parts, said.sd, rtol=1e-9)


def test_intervals_of_amounts_are_kept_when_the_world_changes() -> None:
    rng = np.random.default_rng(3)
    x = rng.standard_normal((8000, 3))
    late = np.arange(8000) >= 4000
    some = rng.random(8000) < np.where(late, 0.8, 0.3)
    y = np.where(
        some, np.exp(1.0 + x[:, 0] + np.where(late, 0.8, 0.3) * rng.standard_normal(8000)), 0
    )
    model = OnlineModel(Settings(hidden=(12,), kind="amount"), schema(3))
    model.learn(block(x[:100], y[:100]))
    inside = []
    for start in range(100, 8000, 500):
        rows = slice(start, start + 500)
        said = model.learn(block(x[rows], y[rows], first=start + 1))
        inside.append(read_distribution(said.stated[:, 0]).score_values(y[rows]).in_90)
    share = np.concatenate(inside)[1900:].reshape(3, 2000).mean(axis=1)
    assert np.all(np.abs(share - 0.9) < 0.01)


@pytest.mark.parametrize(
    ("values", "kinds"),
    [
        ([0.0, 0.0, 2.5, 1.3], ["amount", "regression"]),
        ([0.0, 0.0, 2.5, -1.3], ["regression"]),
        ([0.0, 2.5, 1.3], ["regression"]),
        ([0.0, 0.0, 130.0, 250.0], ["amount", "regression"]),
        ([0.0, 0.0, 3.0, 2.0], ["count", "regression"]),
        ([0.0, 0.0, 30.0, 20.0], ["count", "amount", "regression"]),
        ([0.0, 0.0] + [2.5] * 60, ["regression"]),
        ([0.0, 300.0, 200.0], ["count", "regression"]),
        ([0.0, 0.0, 0.0], ["regression", "count"]),
    ],
)
def test_which_first_values_may_be_amounts(values: list[float], kinds: list[str]) -> None:
    assert candidate_types(schema(1), np.array(values)[:, None]) == kinds


def same_bits(one: OnlineModel, other: OnlineModel) -> None:
    first, second = to_state(one)[1], to_state(other)[1]
    assert first.keys() == second.keys()
    for name in first:
        np.testing.assert_array_equal(first[name], second[name], err_msg=name)


@pytest.mark.parametrize("settings", [{}, {"kind": "amount", "ensemble": 2}])
def test_cutting_the_stream_and_saving_in_between_changes_no_bit(settings: dict[str, Any]) -> None:
    x, y = made(700)
    y[::17] = np.nan
    x[::11, 1] = np.nan
    whole, cut = (OnlineModel(Settings(hidden=(8,), **settings), schema(3)) for _ in range(2))
    weight = np.where(np.arange(700) % 3, 1.0, 2.0)
    whole.learn(block(x, y)._replace(weight=weight))
    edges = [0, 3, 40, 41, 300, 512, 700]
    for start, stop in pairwise(edges):
        rows = block(x[start:stop], y[start:stop], first=start + 1)
        cut.learn(rows._replace(weight=weight[start:stop]))
        header, arrays = to_state(cut)
        cut = from_state(json.loads(json.dumps(header)), {k: a.copy() for k, a in arrays.items()})
    same_bits(whole, cut)
    first, second = (m.predict(block(x, y)) for m in (whole, cut))
    for one, other in zip(first, second, strict=True):
        np.testing.assert_array_equal(one, other)


def test_kernel_and_twin_say_the_same_of_amounts(monkeypatch: pytest.MonkeyPatch) -> None:
    if not kernel.is_compiled():
        pytest.skip("there is no kernel here")
    x, y = made(150)
    found = []
    for choice in ("", "numpy"):
        monkeypatch.setenv("KBNN_ENGINE", choice)
        model = OnlineModel(Settings(hidden=(4,), kind="amount", rehearse=0), schema(3))
        found.append(model.learn(block(x, y)).stated[:, 0])
    parts = [*range(PARAM.gain), PARAM.none, PARAM.most]  # gains follow a hash of the place
    np.testing.assert_allclose(found[0][:, parts], found[1][:, parts], rtol=1e-7, atol=1e-9)


def test_several_amounts_are_learned_together() -> None:
    x, y = made(600, targets=2)
    y[::7, 1] = np.nan
    model = OnlineModel(Settings(hidden=(8,), kind="amount"), schema(3, 2))
    model.learn(block(x, y))
    said = model.predict(block(x, y))
    assert said.mean.shape == (600, 2)
    for j in range(2):
        wet = said.stated[:, j, PARAM.none] < 0.3
        assert np.mean(y[wet, j] > 0.0) > 0.6
        assert model.card.scores[j].metric_values()["coverage"]["90"] == pytest.approx(
            0.9, abs=0.05
        )


@pytest.mark.parametrize("options", [{"units": False}, {"covariance": "paper"}, {"hidden": ()}])
def test_amounts_go_with_other_options(options: dict[str, Any]) -> None:
    model = learned(400, kind="amount", **options)
    x, y = made(400)
    assert (model.rows, model.rejected_rows) == (400, 0)
    said = model.predict(block(x, y))
    assert np.all(np.isfinite(said.mean))
    wet = said.stated[:, 0, PARAM.none] < 0.3
    assert np.mean(y[wet] > 0.0) > 0.6


def test_rows_without_an_amount_are_rehearsed_too() -> None:
    y = np.array([[-np.inf], [np.nan], [np.inf], [1.0]])
    rows = BufferedRows(np.zeros((4, 1)), np.zeros((4, 0)), y, *np.ones((3, 4)))
    assert _select_replayable_rows(rows).tolist() == [0, 3]


def written(path: Path, rows: int = 700) -> Path:
    x, y = made(rows)
    lines = [f"{a:.4f},{b:.4f},{c:.4f},{v:.2f}" for (a, b, c), v in zip(x, y, strict=True)]
    path.write_text("\n".join(["a,b,c,rain", *lines]) + "\n")
    return path


def test_the_commands_speak_of_amounts(tmp_path: Path) -> None:
    rows, model, page = written(tmp_path / "t.csv"), tmp_path / "m.npz", tmp_path / "r.html"
    said = kbnn("train", rows, "-m", model, "--layers", "8", "--predictions", tmp_path / "p.csv")
    assert said.code == 0
    assert "task: amount, " in said.err
    assert "(override: --task regression)" in said.err
    live = list(csv.DictReader(io.StringIO((tmp_path / "p.csv").read_text())))
    assert len(live) == 700
    assert all(float(row["lower"]) >= 0.0 for row in live[40:])
    said = kbnn("predict", model, rows, "--quantiles", "0.05,0.5,0.95", "--decompose")
    found = list(csv.DictReader(io.StringIO(said.out)))
    assert list(found[0])[4:] == [
        "mean", "sd", "lower", "upper", "q05", "q50", "q95", "function_sd", "noise_sd", "p_0",
    ]  # fmt: skip
    for row in found:
        dry = float(row["p_0"])
        assert 0.0 < dry < 1.0
        assert (float(row["q50"]) == 0.0) == (dry >= 0.5)
        assert float(row["q05"]) <= float(row["q50"]) <= float(row["q95"])
    judged = kbnn("evaluate", model, rows, "--json", "--quantiles", "0.5,0.9")
    assert judged.code == 0
    assert {"q50", "q90"} == set(json.loads(judged.out)["pinball"])
    shown = kbnn("inspect", model, "--report", page)
    assert shown.code == 0
    assert "amount of rain" in shown.out
    assert "Sensitivity of the probability of rain > 0" in shown.out
    assert "Change of rain per standard deviation" in page.read_text()


def test_a_value_below_zero_is_told_and_left_out_where_amounts_were_asked_for(
    tmp_path: Path,
) -> None:
    rows = written(tmp_path / "t.csv")
    text = rows.read_text().splitlines()
    text[500] = "0.1,0.2,0.3,-4"
    rows.write_text("\n".join(text) + "\n")
    said = kbnn("train", rows, "-m", tmp_path / "m.npz", "--task", "amount", "--layers", "8")
    assert said.code == 0
    assert (
        "row 500: target 'rain' is -4, and --task amount is for 0 and numbers above it: such rows "
        "are left out (--task regression takes any number)"
    ) in said.err
    text[3] = "0.1,0.2,0.3,-4"
    rows.write_text("\n".join(text) + "\n")
    said = kbnn("train", rows, "-m", tmp_path / "n.npz", "--task", "amount")
    assert said.code != 0
    assert (
        "holds -4: --task amount is for 0 and numbers above it (use --task regression)" in said.err
    )


def test_amounts_in_python() -> None:
    x, y = made(700)
    table = {"a": x[:, 0], "b": x[:, 1], "c": x[:, 2], "rain": y}
    model = library.train(table, "rain", layers=8)
    assert model.task == "amount"
    said = model.predict(table, quantiles=[0.05, 0.95])
    assert (said.lower >= 0.0).all()
    assert (said["q05"] <= said["q95"]).all()
    assert ((said["p_0"] > 0.0) & (said["p_0"] < 1.0)).all()
    stream = library.Model("rain", layers=8, task="amount")
    for at in range(80):
        stream.learn_one({"a": x[at, 0], "b": x[at, 1], "c": x[at, 2]}, y[at])
    assert stream.task == "amount"


def test_effects_on_both_outputs_of_amounts_have_names() -> None:
    known = Schema([Column(name, "number", "target") for name in ("rain", "snow")], "amount")
    task = make_target_type(known, Settings(kind="amount"))
    assert [(made.name, made.unit, made.target) for made in list_effect_quantities(task, 4)] == [
        ("rain", "units of rain", 0),
        ("snow", "units of snow", 1),
        ("rain > 0", "probability", None),
        ("snow > 0", "probability", None),
    ]
