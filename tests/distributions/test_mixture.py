"""Mixtures of predictive distributions: against quadrature, Monte Carlo and their members."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from scipy import integrate, optimize

from kbnn.array_types import FloatArray
from kbnn.distributions.calibration import apply_calibration, init_calibration
from kbnn.distributions.dispatch import read_distribution
from kbnn.distributions.hurdle import Hurdle
from kbnn.distributions.log_link import LogLink
from kbnn.distributions.mixture import MixtureDistribution, join_params, stack_members
from kbnn.distributions.negative_binomial import NegativeBinomial
from kbnn.distributions.normal_mixture import NormalMixture
from kbnn.distributions.predictive import PARAM, PARAM_COUNT, PredictiveDistribution
from kbnn.targets.prediction import (
    Forecast,
    join_forecasts,
    log_density,
    mix_forecasts,
    select_rows,
    shift_forecast,
)
from tests.judging import label_card, labels, number_card, numbers

KINDS: dict[str, Any] = {
    "normal": NormalMixture,
    "log": LogLink,
    "count": NegativeBinomial,
    "amount": Hurdle,
}
MIXES = [
    ("normal", "normal"),
    ("log", "log"),
    ("count", "count"),
    ("amount", "amount"),
    ("normal", "log"),
    ("log", "amount"),
    ("normal", "count"),
]


def member(kind: str, rows: int, seed: int) -> FloatArray:
    """Parameters of distributions that overlap but differ, some with many outliers."""
    rng = np.random.default_rng(seed)
    made = np.zeros((rows, PARAM_COUNT))
    made[:, PARAM.place] = rng.normal(1.0, 0.6, rows)
    made[:, PARAM.spread] = rng.uniform(0.3, 1.2, rows)
    made[:, PARAM.share] = rng.choice([0.0, 0.02, 0.2], rows)
    made[:, PARAM.ratio] = rng.uniform(2.0, 9.0, rows)
    made[:, PARAM.shift] = rng.normal(0.0, 0.5, rows)
    made[:, PARAM.gain : PARAM.most] = rng.uniform(0.8, 1.3, (rows, PARAM.most - PARAM.gain))
    made[:, PARAM.most] = np.inf
    made[:, PARAM.kind] = KINDS[kind].code
    if kind in ("log", "amount"):
        made[:, PARAM.unit] = rng.choice([0.0, 3.0], rows)
        made[:, PARAM.place] *= 0.5
    if kind == "amount":
        made[:, PARAM.none] = rng.uniform(0.1, 0.6, rows)
    if kind == "count":
        made[:, PARAM.place] = np.exp(made[:, PARAM.place])
    return made


def mixture(kinds: tuple[str, ...], rows: int = 6, seed: int = 0) -> MixtureDistribution:
    rng = np.random.default_rng(seed)
    weight = rng.dirichlet(np.ones(len(kinds)), rows)
    params = [member(kind, rows, seed + 10 * k) for k, kind in enumerate(kinds, start=1)]
    made = read_distribution(stack_members(params, weight))
    assert isinstance(made, MixtureDistribution)
    return made


def values(kinds: tuple[str, ...], rows: int) -> FloatArray:
    y = np.random.default_rng(5).gamma(2.0, 1.5, rows)
    if "amount" in kinds and kinds[0] == kinds[1]:
        y[:2] = 0.0
    return np.floor(y) if "count" in kinds else y


@pytest.mark.parametrize("kinds", MIXES)
def test_distribution_function_density_and_moments_are_weighted_sums(
    kinds: tuple[str, ...],
) -> None:
    mixed = mixture(kinds)
    parts = [read_distribution(mixed.rows[:, k, :PARAM_COUNT]) for k in range(len(kinds))]
    y, weight = values(kinds, len(mixed)), mixed.weight.T
    each = list(zip(weight, parts, strict=True))
    assert mixed.cdf(y) == pytest.approx(sum(w * p.cdf(y) for w, p in each), rel=1e-13)
    density = sum(w * np.exp(p.log_density(y)) for w, p in each)
    assert np.exp(mixed.log_density(y)) == pytest.approx(density, rel=1e-12)
    mean = sum(w * p.mean() for w, p in each)
    square = sum(w * (p.sd() ** 2 + p.mean() ** 2) for w, p in each)
    assert mixed.mean() == pytest.approx(mean, rel=1e-13)
    assert mixed.sd() == pytest.approx(np.sqrt(square - mean**2), rel=1e-9)
    between, within = mixed.split_sd()
    assert np.hypot(between, within) == pytest.approx(mixed.sd(), rel=1e-12)
    assert np.all(between > 0.0)


@pytest.mark.parametrize("kinds", MIXES)
@pytest.mark.parametrize("share", [0.001, 0.05, 0.5, 0.8, 0.999])
def test_a_quantile_is_the_smallest_value_that_reaches_its_level(
    kinds: tuple[str, ...], share: float
) -> None:
    mixed = mixture(kinds, 40)
    q = mixed.quantile(share)
    assert np.all(mixed.cdf(q) >= share * (1.0 - 1e-9))
    step = 1.0 if set(kinds) == {"count"} else 1e-9 * (1e-3 + np.abs(q))
    below = np.where(q == 0.0, -1.0, q - step) if kinds[0] != "normal" else q - step
    assert np.all(mixed.cdf(below) <= share)
    for row in range(3):
        if "count" in kinds or q[row] == 0.0:
            continue
        one = mixed[row : row + 1]
        exact = optimize.brentq(
            lambda y, one=one: float(one.cdf(np.array([y]))[0]) - share,
            q[row] - 1.0 if kinds[0] == "normal" else 1e-12,
            q[row] + 1.0,
            xtol=1e-14,
            rtol=1e-13,
        )
        assert q[row] == pytest.approx(exact, rel=1e-9, abs=1e-12)


def crps_by_quadrature(one: PredictiveDistribution, y: float, discrete: bool) -> float:
    if discrete:
        k = np.arange(0.0, 200_000.0)
        f = np.array([one.cdf(part)[:, 0] for part in k.reshape(-1, 1000, 1)]).ravel()
        return float(np.sum((f - (k >= y)) ** 2))

    def square(x: float) -> float:
        return float((one.cdf(np.array([x]))[0] - (x >= y)) ** 2)

    edges = np.unique([-40.0, -10.0, -3.0, 0.0, 0.3, 1.0, 2.0, 4.0, 8.0, 20.0, 100.0, y])
    inner = sum(
        integrate.quad(square, a, b, limit=400, epsabs=1e-11)[0]
        for a, b in itertools.pairwise(edges)
    )
    tail = integrate.quad(
        lambda v: square(math.exp(v)) * math.exp(v), math.log(100.0), 60.0, limit=400
    )[0]
    return float(inner + tail)


@pytest.mark.parametrize("kinds", [mix for mix in MIXES if mix != ("normal", "count")])
def test_the_crps_is_the_integral_of_the_squared_difference(kinds: tuple[str, ...]) -> None:
    mixed = mixture(kinds)
    y = values(kinds, len(mixed))
    discrete = set(kinds) == {"count"}
    exact = [
        crps_by_quadrature(mixed[row : row + 1], float(y[row]), discrete)
        for row in range(len(mixed))
    ]
    assert mixed.crps(y) == pytest.approx(exact, rel=1e-4 if discrete else 1e-6)


def test_the_crps_of_large_counts_is_within_its_stated_error() -> None:
    params = [member("count", 2, 1), member("count", 2, 2)]
    for k, part in enumerate(params):
        part[:, PARAM.place], part[:, PARAM.spread] = (500.0, 3000.0)[k], 0.2
        part[:, PARAM.share] = 0.0
    mixed = read_distribution(stack_members(params, np.full((2, 2), 0.5)))
    y = np.array([700.0, 4000.0])
    exact = [crps_by_quadrature(mixed[row : row + 1], float(y[row]), True) for row in (0, 1)]
    assert mixed.crps(y) == pytest.approx(exact, rel=1e-5)


@pytest.mark.parametrize("kinds", MIXES)
def test_samples_have_the_distribution(kinds: tuple[str, ...]) -> None:
    one = mixture(kinds, 1, seed=3)[np.zeros(40_000, np.int64)]
    drawn = one.sample(np.random.default_rng(0))
    for y in np.quantile(drawn, [0.1, 0.4, 0.6, 0.9]):
        below = float(one[:1].cdf(np.array([y]))[0])
        assert np.mean(drawn <= y) == pytest.approx(below, abs=0.012)
    y = float(np.median(drawn))
    crps = np.mean(np.abs(drawn - y)) - 0.5 * np.mean(np.abs(drawn - np.roll(drawn, 1)))
    if max(one.rows[0, :, PARAM.share]) == 0.0:
        assert one[:1].crps(np.array([y]))[0] == pytest.approx(crps, rel=0.03)


@pytest.mark.parametrize("kind", KINDS)
def test_one_member_or_a_weight_of_1_gives_the_numbers_of_the_member(kind: str) -> None:
    own = member(kind, 30, 4)
    alone = read_distribution(own)
    y = values((kind, kind), 30)
    weight = np.zeros((30, 3))
    weight[:, 1] = 1.0
    unknown = np.full_like(own, np.nan)
    unknown[:, PARAM.kind] = own[:, PARAM.kind]
    for mixed in (
        read_distribution(stack_members([own], np.ones((30, 1)))),
        read_distribution(stack_members([unknown, own, member(kind, 30, 9)], weight)),
    ):
        with np.errstate(all="ignore"):
            for found, exact in zip(mixed.score_values(y), alone.score_values(y), strict=True):
                assert np.array_equal(found, exact)
            assert np.array_equal(mixed.quantile(0.3), alone.quantile(0.3))
            assert np.array_equal(mixed.interval(0.9), alone.interval(0.9))
            assert np.array_equal(mixed.mean_and_sd(), alone.mean_and_sd())
            assert np.array_equal(mixed.cdf(y), alone.cdf(y))
            assert mixed.log_density(y) == pytest.approx(alone.log_density(y), rel=1e-13)
            assert np.array_equal(mixed.crps(y), alone.crps(y))
            assert mixed.has_forecast().all()


@pytest.mark.parametrize("kind", KINDS)
def test_members_that_agree_give_their_numbers(kind: str) -> None:
    own = member(kind, 30, 4)
    alone = read_distribution(own)
    weight = np.random.default_rng(0).dirichlet(np.ones(3), 30)
    mixed = read_distribution(stack_members([own] * 3, weight))
    y = values((kind, kind), 30)
    exact, found = alone.score_values(y), mixed.score_values(y)
    for name in ("nll", "crps", "below", "score", "lower", "upper"):
        assert getattr(found, name) == pytest.approx(getattr(exact, name), rel=1e-9, abs=1e-12)
    if kind != "count":  # the randomised edge of a count is averaged
        assert np.array_equal(found.in_90, exact.in_90)
    assert np.array_equal(mixed.quantile(0.3), alone.quantile(0.3))
    assert np.array_equal(mixed.interval(0.9), alone.interval(0.9))


@pytest.mark.parametrize("kinds", [mix for mix in MIXES if mix != ("normal", "count")])
def test_scores_of_values_from_the_mixture_are_calibrated(kinds: tuple[str, ...]) -> None:
    one = mixture(kinds, 1, seed=8)
    params = [np.repeat(one.rows[:, k], 6000, axis=0) for k in (0, 1)]
    for part in params:
        part[:, PARAM.gain : PARAM.most] = 1.0
        if "count" in kinds or "amount" in kinds:  # u is drawn by a hash of these numbers
            part[:, PARAM.place] *= 1.0 + 1e-9 * np.random.default_rng(2).random(6000)
    many = read_distribution(stack_members(params, np.repeat(one.weight, 6000, axis=0)))
    y = many.sample(np.random.default_rng(1))
    scores = many.score_values(y)
    assert np.mean(scores.below) == pytest.approx(0.5, abs=0.015)
    assert np.var(scores.below) == pytest.approx(1.0 / 12.0, abs=0.004)
    assert np.mean(scores.score**2) == pytest.approx(1.0, abs=0.06)
    for name, share in (("in_50", 0.5), ("in_80", 0.8), ("in_90", 0.9), ("in_95", 0.95)):
        inside = np.mean(getattr(scores, name))
        assert inside == pytest.approx(share, abs=0.02)
    if "count" not in kinds and "amount" not in kinds:
        assert np.array_equal((y >= scores.lower) & (y <= scores.upper), scores.in_90 > 0.5)


def test_far_tails_keep_their_normal_scores() -> None:
    made = np.stack([member("normal", 2, 1)] * 2)
    made[..., PARAM.share], made[..., PARAM.spread] = 0.0, 1.0
    made[0, :, PARAM.place], made[1, :, PARAM.place] = 0.0, 0.5
    mixed = read_distribution(stack_members(list(made), np.full((2, 2), 0.5)))
    scores = mixed.score_values(np.array([20.0, -20.0]))
    assert 19.0 < scores.score[0] < 20.0
    assert -20.6 < scores.score[1] < -20.0


def test_values_that_only_some_members_allow_are_scored_by_those() -> None:
    mixed = mixture(("normal", "log"), 4)
    y = np.array([-0.5, -2.0, 0.7, 1.5])
    assert mixed.in_support(y).all()
    normal = NormalMixture(mixed.rows[:, 0, :PARAM_COUNT])
    density = -mixed.score_values(y).nll[:2]
    expected = np.log(mixed.weight[:2, 0]) - normal.score_values(y).nll[:2]
    assert density == pytest.approx(expected, rel=1e-12)
    exact = [crps_by_quadrature(mixed[k : k + 1], float(y[k]), False) for k in range(4)]
    assert mixed.score_values(y).crps == pytest.approx(exact, rel=1e-6)
    counts = mixture(("normal", "count"), 2)
    assert counts.in_support(np.array([1.5, -3.0])).all()
    assert not mixture(("log", "count"), 1).in_support(np.array([-1.0]))[0]


def forecast(kind: str, rows: int, seed: int) -> Forecast:
    params = member(kind, rows, seed)[:, None]
    mean, sd = KINDS[kind](params).mean_and_sd()
    made = numbers(mean, sd)
    return made._replace(
        stated=params, function_sd=0.3 * sd, noise_sd=np.sqrt(0.91) * sd, outlier=np.zeros(rows)
    )


def test_a_mixture_passes_through_forecasts_scores_and_joins() -> None:
    parts = [forecast("normal", 50, 1), forecast("log", 50, 2)]
    weight = np.random.default_rng(3).dirichlet(np.ones(2), 50)
    mixed = mix_forecasts(parts, weight)
    told = read_distribution(mixed.stated[:, 0])
    assert mixed.mean[:, 0] == pytest.approx(told.mean())
    assert mixed.sd[:, 0] == pytest.approx(told.sd())
    assert np.hypot(mixed.function_sd, mixed.noise_sd) == pytest.approx(mixed.sd)
    assert np.all(
        mixed.function_sd**2
        >= (weight * 0.09 * np.column_stack([part.sd[:, 0] ** 2 for part in parts])).sum(axis=1)[
            :, None
        ]
        * (1 - 1e-12)
    )
    y = np.abs(np.random.default_rng(4).normal(1.0, 1.0, (50, 1)))
    x = np.zeros((50, 1))
    whole, cut = number_card(1, 1), number_card(1, 1)
    whole.add(x, y, mixed)
    for start in (0, 7, 33):
        rows = slice(start, {0: 7, 7: 33, 33: 50}[start])
        cut.add(x[rows], y[rows], select_rows(mixed, rows))
    assert whole.metric_values() == cut.metric_values()
    assert whole.scores[0].metric_values()["nll"] == pytest.approx(
        float(np.mean(told.score_values(y[:, 0]).nll))
    )
    assert log_density(mixed, y) == pytest.approx(told.log_density(y[:, 0]))
    # A single network's rows, then mixtures of two and of three.
    three = mix_forecasts([*parts, forecast("normal", 50, 5)], np.full((50, 3), 1.0 / 3.0))
    joined = join_forecasts([parts[0], mixed, three])
    found = read_distribution(joined.stated[:, 0]).interval(0.8)
    for at, part in enumerate((parts[0], mixed, three)):
        edges = read_distribution(part.stated[:, 0]).interval(0.8)
        for k in (0, 1):
            assert found[k][50 * at : 50 * (at + 1)] == pytest.approx(edges[k], rel=1e-12)


def test_a_mixture_of_real_forecasts_can_be_shifted() -> None:
    parts = [forecast("normal", 20, 1), forecast("normal", 20, 2)]
    mixed = mix_forecasts(parts, np.full((20, 2), 0.5))
    base = np.random.default_rng(0).normal(0.0, 5.0, (20, 1))
    moved = shift_forecast(mixed, base)
    before, after = (read_distribution(one.stated[:, 0]) for one in (mixed, moved))
    assert after.quantile(0.2) == pytest.approx(before.quantile(0.2) + base[:, 0], rel=1e-10)
    assert moved.mean == pytest.approx(mixed.mean + base)


def test_class_probabilities_are_averaged() -> None:
    first, second = labels(np.array([[0.2, 0.8]])), labels(np.array([[0.5, 0.3, 0.2]]))
    mixed = mix_forecasts([first, second], np.array([[0.25, 0.75]]))
    assert mixed.probability == pytest.approx(np.array([[0.425, 0.425, 0.15]]))
    card = label_card(1)
    card.add(np.zeros((1, 1)), np.array([[2.0]]), mixed)
    assert card.scores[0].metric_values()["log_loss"] == pytest.approx(-math.log(0.15))


def test_rows_without_a_forecast_are_not_scored() -> None:
    parts = [member("normal", 3, 1), member("normal", 3, 2)]
    parts[1][1] = np.nan
    mixed = read_distribution(stack_members(parts, np.full((3, 2), 0.5)))
    assert mixed.has_forecast().tolist() == [True, False, True]


def test_parameters_of_plain_forecasts_are_joined_as_they_are() -> None:
    plain = apply_calibration(init_calibration(1), np.zeros((2, 1)), np.ones((2, 1)))
    assert np.array_equal(join_params([plain, plain]), np.concatenate((plain, plain)))


def test_rows_of_different_kinds_are_evaluated_each_by_its_own() -> None:
    rows = np.concatenate([member(kind, 3, seed) for seed, kind in enumerate(KINDS)])
    y = np.array([0.3, 1.2, 2.5, 0.4, 1.7, 3.1, 0.0, 1.0, 4.0, 0.0, 0.8, 2.2])
    together = read_distribution(rows)
    found = together.score_values(y)
    for at, kind in enumerate(KINDS.values()):
        here = slice(3 * at, 3 * at + 3)
        exact = kind(rows[here]).score_values(y[here])
        for part, own in zip(found, exact, strict=True):
            assert np.array_equal(part[here], own)
        assert np.array_equal(together.cdf(y)[here], kind(rows[here]).cdf(y[here]))
    assert together.in_support(-y - 1.0).tolist() == [True] * 3 + [False] * 9
    assert len(together[y > 100.0].quantile(0.5)) == 0
    assert type(together[:3]) is NormalMixture
