"""Targets that are not just any number: counts, positive ones, and which kind a stream takes."""

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
from scipy import integrate, special, stats

from kbnn import Config, init, predict
from kbnn.array_types import FloatArray
from kbnn.core import kernel, likelihoods
from kbnn.data.batch import Rows
from kbnn.distributions import calibration, negative_binomial, transformed_normal
from kbnn.distributions.dispatch import read_distribution
from kbnn.distributions.negative_binomial import NegativeBinomial
from kbnn.distributions.predictive import PARAM, PARAM_COUNT
from kbnn.distributions.transformed_normal import LogLink
from kbnn.metrics.sections import describe_dependence, describe_target
from kbnn.model.model import OnlineModel
from kbnn.model.serialize import from_state, to_state
from kbnn.model.settings import Settings
from kbnn.targets.base import TargetScale, TargetType
from kbnn.targets.registry import candidate_types, make_target_type
from kbnn.workflows.evaluating import UnlearnedRowNotices
from tests.bench.data import block, schema
from tests.commands import SAMPLES, kbnn

RATES = [(m, q, y, phi) for m in (-2.0, 1.0, 4.0) for q in (0.01, 0.5) for y in (0, 1, 7, 90)
         for phi in (0.01, 1.0, 8.0)]  # fmt: skip


def exact(m: float, q: float, y: int, phi: float) -> tuple[float, float]:
    """Mean and variance of the posterior of the logarithm of a rate, by quadrature."""
    k = 1.0 / phi
    eta = np.linspace(m - 14.0 * math.sqrt(q) - 3.0, m + 14.0 * math.sqrt(q) + 8.0, 40_001)
    log_p = -0.5 * (eta - m) ** 2 / q + y * eta - (y + k) * np.log(k + np.exp(eta))
    p = np.exp(log_p - log_p.max())
    mean = np.sum(p * eta) / np.sum(p)
    return float(mean), float(np.sum(p * (eta - mean) ** 2) / np.sum(p))


def test_the_update_by_a_count_is_near_that_of_quadrature() -> None:
    """In prior standard deviations .002 on average, .03 at most; variances within 2 %."""
    off, wide = [], []
    for m, q, y, phi in RATES:
        mean, var = exact(m, q, y, phi)
        found = likelihoods.log_rate_posterior(likelihoods.LogRate(m, q), float(y), phi)
        off.append(abs(found.mean - mean) / math.sqrt(q))
        wide.append(abs(found.var / var - 1.0))
    assert np.mean(off) < 0.004
    assert np.max(off) < 0.04
    assert np.mean(wide) < 0.02


def count_task() -> TargetType:
    return make_target_type(schema(1), Settings(kind="count"))


def test_a_count_before_the_first_row_is_learned_has_the_spread_that_was_seen() -> None:
    """Where a negative binomial can have it: no less than a Poisson, and fifty means at most."""
    task = count_task()
    mu, sd = np.full((3, 1), 4.0), np.array([[1.0], [6.0], [1000.0]])
    mean, spread = NegativeBinomial(task.cold_start_distribution(mu, sd)).mean_and_sd()  # type: ignore[attr-defined]
    assert mean[:, 0] == pytest.approx([4.0, 4.0, 4.0])
    assert spread[:, 0] ** 2 == pytest.approx([4.0016, 36.0, 804.0])


def test_the_spread_of_a_count_has_two_parts() -> None:
    """mu^2 (e^q - 1), which more rows mend, and mu + mu^2 e^q phi, which none do."""
    config = Config(inputs=1, hidden=(), observation="count")
    made = predict(init(config), np.zeros((2, 1)))._replace(
        mean=2.0 * np.log(np.array([[3.0], [20.0]])),
        function_var=np.array([[0.4], [2.0]]),
        noise_var=np.array([[0.3], [0.05]]),
    )
    task = count_task()
    said = task.build_forecast(
        made, TargetScale(np.zeros(0), np.zeros(0)), False, task.init_calibration(False)
    )
    q, phi = np.array([0.1, 0.5]), np.array([0.3, 0.05])
    mu = np.array([3.0, 20.0]) * np.exp(q / 2.0)
    assert said.function_sd[:, 0] ** 2 == pytest.approx(mu**2 * np.expm1(q))
    assert said.noise_sd[:, 0] ** 2 == pytest.approx(mu + mu**2 * np.exp(q) * phi)
    assert said.sd**2 == pytest.approx(said.function_sd**2 + said.noise_sd**2)


def count_rows(mu: list[float], inverse: list[float], share: float = 0.0) -> FloatArray:
    rows = np.ones((len(mu), PARAM_COUNT))
    rows[:, PARAM.place], rows[:, PARAM.spread], rows[:, PARAM.share] = mu, inverse, share
    rows[:, PARAM.kind] = NegativeBinomial.code
    return rows


@pytest.mark.parametrize("mu", [0.02, 0.5, 8.0, 300.0])
@pytest.mark.parametrize("inverse", [1e-4, 0.3, 4.0])
@pytest.mark.parametrize("share", [0.0, 1.0, 3.0])
def test_a_count_is_judged_as_summation_would(mu: float, inverse: float, share: float) -> None:
    y = round(share * mu)
    rows = count_rows([mu], [inverse])
    truth = stats.nbinom(1.0 / inverse, 1.0 / (1.0 + mu * inverse))
    at = np.arange(int(mu * (40.0 + 400.0 * inverse)) + 200)
    told = NegativeBinomial(rows).score_values(np.array([float(y)]))
    assert told.nll[0] == pytest.approx(-truth.logpmf(y), rel=1e-9, abs=1e-9)
    assert told.crps[0] == pytest.approx(
        np.sum((truth.cdf(at) - (at >= y)) ** 2), rel=1e-9, abs=1e-9
    )
    assert truth.cdf(y - 1) - 1e-12 <= told.below[0] <= truth.cdf(y) + 1e-12
    for level in (0.05, 0.5, 0.975):
        assert NegativeBinomial(rows).quantile(level)[0] == truth.ppf(level)
    lower, upper = (float(edge[0]) for edge in NegativeBinomial(rows).interval(0.9))
    assert 0.0 <= lower <= upper
    assert truth.cdf(upper) - truth.cdf(lower - 1) >= 0.9 - 1e-9


@pytest.mark.thinned(5)
@pytest.mark.parametrize(("mu", "inverse"), [(0.02, 1e-4), (0.5, 0.3), (3.0, 60.0), (300.0, 4.0)])
@pytest.mark.parametrize("eps", [1e-9, 0.01, 0.4])
@pytest.mark.parametrize("y", [0, 2, 500])
def test_a_count_among_outliers_is_judged_as_summation_would(
    mu: float, inverse: float, eps: float, y: int
) -> None:
    rows, s = count_rows([mu], [inverse], eps), mu + 1.0
    near = stats.nbinom(1.0 / inverse, 1.0 / (1.0 + mu * inverse))
    at = np.arange(300_000.0)
    below = (1.0 - eps) * near.cdf(at) + eps * (at + 1.0) / (s + at + 1.0)
    mass = (1.0 - eps) * near.pmf(y) + eps * s / ((s + y) * (s + y + 1.0))
    told = NegativeBinomial(rows).score_values(np.array([float(y)]))
    assert told.nll[0] == pytest.approx(-math.log(mass), rel=1e-9, abs=1e-9)
    beyond = (eps * s) ** 2 * special.polygamma(1, s + at[-1] + 2.0)  # all of it the outliers'
    total = np.sum((below - (at >= y)) ** 2) + beyond
    assert told.crps[0] == pytest.approx(total, rel=1e-9, abs=1e-9)
    assert NegativeBinomial(rows).cdf(np.array([float(y)]))[0] == pytest.approx(below[y], rel=1e-9)
    for level in (0.05, 0.5, 0.975):
        assert NegativeBinomial(rows).quantile(level)[0] == np.argmax(below >= level)


@pytest.mark.parametrize("mu", [0.02, 3.0, 4000.0])
@pytest.mark.parametrize("inverse", [1e-4, 0.7, 1e6])
def test_what_a_count_asks_of_the_dispersion_is_the_slope_of_its_mass(
    mu: float, inverse: float
) -> None:
    step = 1e-3
    for y in (0.0, 1.0, 30.0, 5000.0):
        mass = [
            NegativeBinomial(count_rows([mu], [inverse * math.exp(move)])).log_density(
                np.array([y])
            )[0]
            for move in (-step, step)
        ]
        slope = (mass[1] - mass[0]) / (2.0 * step)
        assert likelihoods.dispersion_slope(y, mu, inverse) == pytest.approx(
            slope, rel=1e-4, abs=1e-6
        )
    for x in (1e-6, 0.3, 5.0, 1e9):
        assert likelihoods.digamma(x) == pytest.approx(special.digamma(x), rel=1e-12)


def test_counts_far_off_are_stated_as_outliers() -> None:
    rng = np.random.default_rng(0)
    y = rng.poisson(3.0, 3000).astype(float)
    y[::50] = 400.0
    tail, rows = (
        calibration.init_count_calibration(1, True)[0],
        count_rows([3.0] * 3000, [0.05] * 3000),
    )
    calibration.update_count_mixture(tail, y, rows)
    assert 0.01 < rows[-1, PARAM.share] < 0.06
    assert rows[-1, PARAM.spread] < 0.2
    plain = -NegativeBinomial(count_rows([3.0] * 3000, [0.05] * 3000)).log_density(y).mean()
    assert -NegativeBinomial(rows).log_density(y).mean() < plain - 5.0


def log_rows(shape: tuple[float, float, float], unit: float) -> FloatArray:
    rows = np.ones((1, PARAM_COUNT))
    rows[0, : PARAM.gain] = (0.7, 0.4, *shape)
    rows[:, PARAM.kind], rows[:, PARAM.unit] = LogLink.code, unit
    rows[:, PARAM.none] = 0.0
    return rows


@pytest.mark.thinned(5)
@pytest.mark.parametrize("unit", [0.0, 2.0, 5.0, 40.0])
@pytest.mark.parametrize("shape", [(0.0, 1.0, 0.0), (0.05, 9.0, 1.0), (0.2, 40.0, -1.0)])
@pytest.mark.parametrize("y", [0.3, 2.0, 9.0])
def test_a_positive_value_is_judged_as_integration_would(
    shape: tuple[float, float, float], y: float, unit: float
) -> None:
    rows = log_rows(shape, unit)
    share, ratio, shift = shape
    near, far = stats.norm(0.7, 0.4), stats.norm(0.7 + 0.4 * shift, 0.4 * math.sqrt(ratio))

    def linked(t: float) -> float:
        return math.log(math.expm1(t / unit)) if unit else math.log(t)

    def value(z: float) -> float:
        return unit * math.log1p(math.exp(z)) if unit else math.exp(z)

    def slope(z: float) -> float:
        return unit / (1.0 + math.exp(-z)) if unit else math.exp(z)

    def cdf(t: float) -> float:
        return float((1.0 - share) * near.cdf(linked(t)) + share * far.cdf(linked(t)))

    told = LogLink(rows).score_values(np.array([y]))
    z = linked(y)
    density = ((1.0 - share) * near.pdf(z) + share * far.pdf(z)) / slope(z)
    assert told.nll[0] == pytest.approx(-math.log(density), rel=1e-9)
    points = sorted({-20.0, -3.0, -1.0, 0.0, 0.7, 1.5, 3.0, 6.0, 15.0, 40.0, z})
    total = 0.0
    for a, b in pairwise(points):
        below = 0.5 * (a + b) < z
        total += integrate.quad(
            lambda u, below=below: (cdf(value(u)) - (not below)) ** 2 * slope(u),
            a, b, limit=400, epsabs=1e-13, epsrel=1e-12,
        )[0]  # fmt: skip
    assert told.crps[0] == pytest.approx(total, rel=1e-9 if unit else 1e-7)
    assert cdf(float(LogLink(rows).quantile(0.3)[0])) == pytest.approx(0.3, rel=1e-9)
    whole = LogLink(rows).log_density(np.array([2.0]))[0]
    assert whole == pytest.approx(math.log(cdf(2.5) - cdf(1.5)), rel=1e-9)


@pytest.mark.parametrize("unit", [0.0, 2.0, 1e5])
def test_the_link_of_positive_values_goes_there_and_back(unit: float) -> None:
    y = np.geomspace(1e-120, 1e120, 241) if unit == 0.0 else np.geomspace(1e-60, 1e3, 64) * unit
    units = np.full(len(y), unit)
    z = transformed_normal.apply_link(y, units)
    assert np.all(np.diff(z) > 0.0)
    np.testing.assert_allclose(
        transformed_normal.apply_inverse_link(z, units), y, rtol=1e-13 if unit else 1e-11
    )
    step = 1e-6
    slope = (
        transformed_normal.apply_inverse_link(z + step, units)
        - transformed_normal.apply_inverse_link(z - step, units)
    ) / (2.0 * step)
    np.testing.assert_allclose(np.log(slope), transformed_normal.log_slope(y, units), atol=1e-6)
    assert transformed_normal.apply_link(np.array([0.0, -1.0]), units[:2]).tolist() == [
        np.inf,
        np.inf,
    ]


def test_kernel_and_twin_follow_counts_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    if not kernel.is_compiled():
        pytest.skip("there is no kernel here")
    rng = np.random.default_rng(0)
    y = rng.poisson(2.0, 900).astype(float)
    y[rng.random(900) < 0.1] = np.nan
    y[rng.random(900) < 0.02] = 1e6
    u, none = rng.random(900), rng.random(900) * 0.2
    found = []
    for compiled in (True, False):
        monkeypatch.setattr(kernel, "is_compiled", lambda compiled=compiled: compiled)
        known, rows = (
            calibration.init_count_calibration(1, True)[0],
            count_rows([2.0] * 900, [0.1] * 900),
        )
        calibration.update_count_mixture(known, y, rows)
        calibration.update_count_intervals(known, y, u, none, True, rows)
        found.append((known, rows))
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-11)


def made(kind: str, rows: int, seed: int = 0) -> tuple[FloatArray, FloatArray]:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((rows, 3))
    f = np.sin(1.5 * x[:, 0]) + 0.5 * x[:, 1]
    if kind == "count":
        return x, rng.poisson(np.exp(1.0 + f) * rng.gamma(1.5, 1 / 1.5, rows)).astype(float)
    if kind == "positive":
        return x, np.exp(8.0 + f + 0.4 * rng.standard_normal(rows))
    return x, 3.0 + f + 0.3 * rng.standard_normal(rows)


def learned(what: str, rows: int, **settings: Any) -> OnlineModel:
    x, y = made(what, rows)
    model = OnlineModel(Settings(hidden=(12,), **settings), schema(3))
    model.learn(block(x, y))
    return model


@pytest.mark.parametrize("kind", ["count", "positive", "regression"])
def test_the_kind_of_target_is_chosen_by_evidence(kind: str) -> None:
    model = learned(kind, 700)
    assert model.task.name == kind
    assert {candidate.learner.settings.kind for candidate in model.candidates} == {kind}
    beside = learned(kind, 700, kind="regression")
    assert beside.task.name == "regression"
    gain = beside.card.metric_values()["nll"] - model.card.metric_values()["nll"]
    assert gain > 0.05 if kind != "regression" else gain == 0.0


@pytest.mark.parametrize("kind", ["count", "positive"])
def test_nothing_below_zero_is_said_of_what_cannot_be(kind: str) -> None:
    model = learned(kind, 900)
    x, y = made(kind, 900)
    far = np.vstack([x, 6.0 * x, -6.0 * x])
    said = model.predict(block(far, np.zeros(len(far))))
    lower, upper = read_distribution(said.stated[:, 0]).interval(0.99)
    assert np.all(lower >= 0.0)
    assert np.all(np.isfinite(upper))
    assert np.all(said.mean <= max(y.max(), 0.5) * (1.0 + 1e-12))
    assert np.all(said.mean > 0.0)


def assert_same_bits(one: OnlineModel, other: OnlineModel) -> None:
    first, second = to_state(one)[1], to_state(other)[1]
    assert first.keys() == second.keys()
    for name in first:
        np.testing.assert_array_equal(first[name], second[name], err_msg=name)


@pytest.mark.parametrize("kind", ["count", "positive", "regression"])
def test_cuts_and_copies_change_no_bit_while_kinds_race(kind: str) -> None:
    x, y = made(kind, 620)
    whole = learned(kind, 620)
    cut = OnlineModel(Settings(hidden=(12,)), schema(3))
    for start, stop in ((0, 1), (1, 40), (40, 200), (200, 511), (511, 513), (513, 620)):
        cut.learn(block(x[start:stop], y[start:stop], first=start + 1))
        header, arrays = to_state(cut)
        cut = from_state(json.loads(json.dumps(header)), {k: a.copy() for k, a in arrays.items()})
    assert_same_bits(whole, cut)
    rows = block(*made(kind, 90, seed=3))
    for one, other in zip(whole.predict(rows), cut.predict(rows), strict=True):
        np.testing.assert_array_equal(one, other)
    assert whole.card.metric_values() == cut.card.metric_values()


@pytest.mark.parametrize("kind", ["count", "positive"])
def test_a_few_absurd_values_do_not_bend_the_mean(kind: str) -> None:
    x, y = made(kind, 1500)
    spoilt = y.copy()
    spoilt[np.random.default_rng(3).choice(1500, 30, replace=False)] = (
        1e6 if kind == "count" else 1e12
    )
    errors = []
    for values in (y, spoilt):
        model = OnlineModel(Settings(hidden=(12,), kind=kind), schema(3))
        model.learn(block(x[:1200], values[:1200]))
        said = model.predict(block(x[1200:], y[1200:]))
        errors.append(float(np.sqrt(np.mean((said.mean[:, 0] - y[1200:]) ** 2))))
    assert errors[1] < 1.1 * errors[0]


def test_values_that_cannot_be_are_rejected_and_counted() -> None:
    for kind, wrong in (("count", [-1.0, 0.5, 1e17]), ("positive", [0.0, -3.0])):
        x, y = made(kind, 300)
        y[100 : 100 + len(wrong)] = wrong
        model = OnlineModel(Settings(hidden=(12,), kind=kind), schema(3))
        model.learn(block(x, y))
        assert model.rejected_rows == len(wrong)
        assert model.card.scores[0].invalid == len(wrong)
        assert math.isfinite(model.card.metric_values()["nll"])


def table(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_counts_from_the_command_line(tmp_path: Path) -> None:
    model = tmp_path / "v.npz"
    ran = kbnn("train", SAMPLES / "visits.csv", "-m", model)
    assert ran.code == 0
    assert "kbnn: task: count, " in ran.err
    assert "(override: --task regression)" in ran.err
    said = kbnn("predict", model, SAMPLES / "visits.csv", "--quantiles", "5%,0.5,0.975")
    first = table(said.out)[0]
    assert list(first)[-8:] == ["mean", "sd", "lower", "upper", "q05", "q50", "q975", "p_0"]
    assert all(
        float(row["lower"]) >= 0.0 and 0.0 < float(row["p_0"]) < 1.0 for row in table(said.out)
    )
    got = json.loads(
        kbnn("evaluate", model, SAMPLES / "visits.csv", "--quantiles", "0.5", "--json").out
    )
    y = np.array([float(row["visits"]) for row in table(said.out)])
    middle = np.array([float(row["q50"]) for row in table(said.out)])
    assert got["pinball"] == {"q50": pytest.approx(np.mean(np.abs(y - middle)) / 2.0, rel=1e-12)}
    assert got["intervals"] == "tracked"
    plain = kbnn("evaluate", model, SAMPLES / "visits.csv", "--intervals", "stated", "--json")
    assert json.loads(plain.out)["intervals"] == "stated"


def test_a_price_is_never_negative_and_the_verdict_is_told(tmp_path: Path) -> None:
    model = tmp_path / "p.npz"
    ran = kbnn("train", SAMPLES / "prices.csv", "-m", model)
    assert ran.code == 0
    assert "kbnn: task: positive, " in ran.err
    assert "Good: useful predictions with honest error bars" in ran.err
    rows = table(kbnn("predict", model, SAMPLES / "prices.csv").out)
    assert all(0.0 < float(row["lower"]) < float(row["mean"]) < float(row["upper"]) for row in rows)
    again = kbnn("train", SAMPLES / "prices.csv", "-m", model, "--task", "count", "--again")
    assert again.code == 2
    assert "--task count contradicts" in again.err


def test_intervals_that_were_not_tracked_cannot_be_asked_for(tmp_path: Path) -> None:
    model = tmp_path / "s.npz"
    kbnn("train", SAMPLES / "cubic.csv", "-m", model, "--intervals", "stated", "-q")
    ran = kbnn("predict", model, SAMPLES / "cubic.csv", "--intervals", "tracked")
    assert ran.code == 2
    assert "trained with --intervals model" in ran.err
    wrong = kbnn("predict", model, SAMPLES / "cubic.csv", "--intervals", "wide")
    assert (wrong.code, wrong.err) == (2, "kbnn: --intervals is calibrated or model, not 'wide'\n")
    wrong = kbnn("predict", model, SAMPLES / "cubic.csv", "--quantiles", "0.5,1.5")
    assert (wrong.code, wrong.err) == (2, "kbnn: --quantiles must lie between 0 and 1, not 1.5\n")


@pytest.mark.parametrize(
    ("task", "sentence"),
    [
        ("count", "--task count is for whole numbers from 0 on"),
        ("positive", "is for numbers above 0"),
    ],
)
def test_first_values_that_a_stated_kind_cannot_have_are_refused(
    task: str, sentence: str, tmp_path: Path
) -> None:
    ran = kbnn("train", SAMPLES / "cubic.csv", "--task", task, "-m", tmp_path / "m.npz")
    assert ran.code == 1
    assert sentence in ran.err
    assert "target 'y' holds -" in ran.err
    assert "(use --task regression)" in ran.err
    assert not (tmp_path / "m.npz").exists()


@pytest.mark.parametrize(
    ("task", "odd", "words"),
    [
        ("count", "-4", "whole numbers from 0 on"),
        ("count", "2.5", "whole numbers from 0 on"),
        ("positive", "-0.5", "numbers above 0"),
    ],
)
def test_a_later_value_that_a_kind_cannot_have_is_told_once(
    task: str, odd: str, words: str, tmp_path: Path
) -> None:
    rng = np.random.default_rng(1)
    cells = [odd if at in (80, 90) else str(1 + rng.poisson(3)) for at in range(120)]
    path, model = tmp_path / "t.csv", tmp_path / "m.npz"
    path.write_text("a,y\n" + "".join(f"{at % 7},{y}\n" for at, y in enumerate(cells)))
    ran = kbnn("train", str(path), "-m", str(model), "--task", task, "--json")
    assert ran.code == 0
    assert json.loads(ran.out)["rejected"] == 2
    sentence = (
        f"row 81: target 'y' is {odd}, and --task {task} is for {words}: such rows are left out "
        "(--task regression takes any number)"
    )
    assert ran.err.count("such rows are left out") == ran.err.count(sentence) == 1
    ran = kbnn("evaluate", str(model), str(path), "--json")
    assert ran.err.count(sentence) == 1
    figures = json.loads(ran.out)
    assert (figures["rows"], figures["skipped"]) == (118, 2)  # left out, and told of


def refuted_rows(rows: int = 900, at: int = 700) -> tuple[FloatArray, FloatArray]:
    """A target that is positive for a long time, and then 0 now and then."""
    x, y = made("positive", rows)
    y[at::3] = 0.0
    return x, y


def test_a_kind_found_by_evidence_is_given_up_when_a_row_refutes_it() -> None:
    x, y = refuted_rows()
    model = OnlineModel(Settings(hidden=(12,)), schema(3))
    model.learn(block(x[:700], y[:700]))
    assert model.task.name == "positive"
    taught = model.learn_batch(block(x[700:], y[700:], first=701))
    assert model.task.name == "amount"
    assert (model.rows, model.rejected_rows, model.rows_seen) == (900, 0, 900)
    assert taught.type_changes == (("positive", 701, 0.0, "amount"),)
    plain = OnlineModel(Settings(hidden=(12,), kind="regression"), schema(3))
    plain.learn(block(x, y))
    off = [float(np.std(m.predict(block(x, y)).mean[:, 0] - y)) for m in (model, plain)]
    assert off[0] < 1.2 * off[1]
    stays = OnlineModel(Settings(hidden=(12,), kind="positive"), schema(3))
    stays.learn(block(x, y))
    assert (stays.task.name, stays.rejected_rows) == ("positive", int(np.sum(y == 0.0)))


def test_what_no_amount_can_be_is_learned_as_any_number() -> None:
    x, y = refuted_rows()
    y[800] = -1.0
    model = OnlineModel(Settings(hidden=(12,)), schema(3))
    taught = model.learn_batch(block(x, y))
    assert (model.task.name, model.rows, model.rejected_rows) == ("regression", 900, 0)
    given_up = ("positive", 701, 0.0, "amount"), ("amount", 801, -1.0, "regression")
    assert taught.type_changes == given_up
    assert np.count_nonzero(model.learner_state.buffer.rows().y == 0.0) == np.count_nonzero(
        y == 0.0
    )
    below = OnlineModel(Settings(hidden=(12,)), schema(3))
    below.learn(block(x[:700], y[:700]))
    taught = below.learn_batch(block(x[800:], y[800:], first=801))
    assert taught.type_changes == (("positive", 801, -1.0, "regression"),)


@pytest.mark.parametrize("at", [299, 700])
def test_a_kind_is_given_up_at_the_same_row_however_rows_are_cut(at: int) -> None:
    x, y = refuted_rows(at=at)
    whole, cut = (OnlineModel(Settings(hidden=(12,)), schema(3)) for _ in range(2))
    whole.learn(block(x, y))
    for start, stop in ((0, 300), (300, 700), (700, 701), (701, 900)):
        cut.learn(block(x[start:stop], y[start:stop], first=start + 1))
        header, arrays = to_state(cut)
        cut = from_state(json.loads(json.dumps(header)), {k: a.copy() for k, a in arrays.items()})
    assert_same_bits(whole, cut)


def test_a_row_that_refutes_the_kind_while_it_races_brings_one_that_can_have_it() -> None:
    x, y = refuted_rows(at=200)
    model = OnlineModel(Settings(hidden=(12,)), schema(3))
    model.learn(block(x, y))
    assert (model.task.name, model.rows, model.rejected_rows) == ("amount", 900, 0)
    assert all(candidate.learner.settings.kind == "amount" for candidate in model.candidates)
    model = OnlineModel(Settings(hidden=(12,)), schema(3))
    model.learn(block(x[:202], y[:202]))
    kinds = {candidate.learner.settings.kind for candidate in model.candidates}
    assert kinds == {"regression", "amount"}
    assert np.ptp([max(r.evidence for r in model.candidates if r.learner.settings.kind == kind)
                   for kind in kinds]) < 11.0  # two rows, five nats each  # fmt: skip
    y[201] = -1.0
    model = OnlineModel(Settings(hidden=(12,)), schema(3))
    model.learn(block(x, y))
    assert (model.task.name, model.rows, model.rejected_rows) == ("regression", 900, 0)


def test_the_command_says_which_row_refuted_the_kind(tmp_path: Path) -> None:
    x, y = refuted_rows()
    lines = [f"{a:.4f},{b:.4f},{c:.4f},{v:.3f}" for (a, b, c), v in zip(x, y, strict=True)]
    (tmp_path / "t.csv").write_text("\n".join(["a,b,c,y", *lines]) + "\n")
    said = kbnn("train", tmp_path / "t.csv", "-m", tmp_path / "m.npz", "--layers", "12")
    assert said.code == 0
    assert (
        "row 701: target 'y' is 0, so it is not positive: the rows so far are learned again as 0 "
        "and numbers above it (--task positive leaves such rows out)"
    ) in said.err
    assert "left out (--task regression" not in said.err


@pytest.mark.parametrize(
    ("kind", "words"), [("positive", "positive regression of y0"), ("count", "count of y0")]
)
def test_pictures_and_words_are_those_of_the_kind(kind: str, words: str) -> None:
    model = learned(kind, 620)
    assert describe_target(model.task) == words
    drawn = describe_dependence(model.task, model.card.scores[0], model.card.summaries, 0)
    made_of = drawn.values(model.predict(block(*made(kind, 300, seed=5))))
    assert made_of.lower is not None
    assert made_of.upper is not None
    assert np.all((made_of.lower >= 0.0) & (made_of.lower < made_of.upper))
    assert np.any(made_of.value - 1.645 * made_of.sd < 0.0)


@pytest.mark.parametrize(
    ("values", "kinds"),
    [
        ([0.0, 3.0, 1.0], ["count", "regression"]),
        ([0.0, 1.0, 0.0], ["regression", "count"]),
        ([2.0, 3.0, 1.0], ["regression", "positive", "count"]),
        ([0.0, 2.5, 1.0], ["regression"]),
        ([200.0, 300.0], ["regression", "positive"]),
    ],
)
def test_which_kinds_race_and_who_speaks_first(values: list[float], kinds: list[str]) -> None:
    assert candidate_types(schema(1), np.array(values)[:, None]) == kinds
    first = Settings().list_candidates(kinds)[0]
    assert first.kind == kinds[0]
    assert [one.kind for one in Settings(noise=1.0).list_candidates(kinds)] == ["regression"]


@pytest.mark.parametrize("level", [0.5, 0.8, 0.9, 0.95])
def test_an_interval_from_0_has_both_shares_above_its_upper_edge(level: float) -> None:
    rows = count_rows([0.3], [0.1])
    rows[:, PARAM.gain + 1 : PARAM.most : 2] = 1.5  # of the upper edges
    low, high = negative_binomial.find_interval_levels(rows, 0.5 - level / 2.0, np.array([0.99]))
    assert low[0] == 0.0
    assert high[0] == pytest.approx(special.ndtr(1.5 * special.ndtri(level)))


def test_where_only_zeros_were_seen_a_mean_may_be_a_half() -> None:
    rows = count_rows([0.2, 3.0, 3.0, 3.0], [0.1] * 4)
    rows[:, PARAM.most] = [0.0, 0.0, 2.0, -np.inf]
    mean, sd = NegativeBinomial(rows).mean_and_sd()
    assert mean.tolist() == [0.2, 0.5, 2.0, 3.0]
    assert sd == pytest.approx(np.sqrt(mean + 0.1 * mean**2))


def test_a_row_against_a_kind_that_may_still_come_is_remembered() -> None:
    """Told once, when the target is of that kind; of a settled kind the others are no matter."""
    odd = Rows(np.zeros((3, 1)), np.array([[1.0], [-2.0], [-3.0]]), np.arange(7, 10))
    fine = odd._replace(y=np.ones((3, 1)))
    racing, settled = UnlearnedRowNotices(), UnlearnedRowNotices()
    assert racing.notice_invalid_target(odd, "regression", ["y"], settled=False) is None
    assert settled.notice_invalid_target(odd, "regression", ["y"]) is None
    said = racing.notice_invalid_target(fine, "positive", ["y"], settled=False)
    assert said is not None
    assert said.startswith("row 8: target 'y' is -2, and --task positive is for numbers above 0")
    assert racing.notice_invalid_target(odd, "positive", ["y"], settled=False) is None
    assert settled.notice_invalid_target(fine, "positive", ["y"]) is None
    assert settled.notice_invalid_target(odd, "positive", ["y"]) == said


def test_one_extreme_count_does_not_decide_the_first_bias() -> None:
    task = make_target_type(schema(1), Settings(kind="count"))
    usual = np.tile([2.0, 3.0, 4.0], 11)[:, None]
    wild = usual.copy()
    wild[5] = 1e9
    plain, told = (task.initial_output_mean(y) for y in (usual, wild))
    assert plain is not None
    assert told is not None
    assert abs(float(told[0] - plain[0])) < 1.5  # a mean of millions would be 25 away
