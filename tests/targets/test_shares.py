"""Shares between 0 and 1: their distribution against quadrature, and what is learned from them."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from scipy import integrate, stats

import kbnn
from kbnn.array_types import FloatArray
from kbnn.distributions.dispatch import read_distribution
from kbnn.distributions.predictive import PARAM, PARAM_COUNT
from kbnn.distributions.transformed_normal import DEFAULT_EDGE, LogitLink
from kbnn.errors import DataError

EDGE = 0.004
SHAPES = [(-0.5, 0.3, 0.0), (0.2, 1.4, 0.1), (3.0, 0.8, 0.02), (-2.0, 2.5, 0.05)]


def share_rows(place: float, spread: float, outliers: float, edge: float = EDGE) -> FloatArray:
    rows = np.zeros((1, PARAM_COUNT))
    rows[0, : PARAM.gain] = place, spread, outliers, 6.0, 0.4
    rows[0, PARAM.gain : PARAM.most] = 1.0
    rows[0, PARAM.kind], rows[0, PARAM.unit] = LogitLink.code, edge
    return rows


def exact_density(y: float, place: float, spread: float, outliers: float) -> float:
    """Density of the inverse logit of the mixture."""
    z = math.log(y) - math.log1p(-y)
    near = stats.norm.pdf(z, place, spread)
    far = stats.norm.pdf(z, place + 0.4 * spread, math.sqrt(6.0) * spread)
    return float(((1.0 - outliers) * near + outliers * far) / (y * (1.0 - y)))


@pytest.mark.parametrize("shape", SHAPES)
def test_density_and_distribution_function_agree_with_quadrature(
    shape: tuple[float, float, float],
) -> None:
    told = read_distribution(share_rows(*shape))
    for y in (0.01, 0.3, 0.77, 0.99):
        exact = integrate.quad(exact_density, 0.0, y, args=shape, limit=400, points=[y / 100])[0]
        assert told.cdf(np.array([y]))[0] == pytest.approx(exact, rel=1e-6, abs=1e-9)
        assert -told.score_values(np.array([y])).nll[0] == pytest.approx(
            math.log(exact_density(y, *shape)), rel=1e-10
        )


@pytest.mark.parametrize("shape", SHAPES)
def test_a_value_beyond_the_edge_is_scored_by_the_average_density_there(
    shape: tuple[float, float, float],
) -> None:
    told = read_distribution(share_rows(*shape))
    below = told.cdf(np.array([EDGE]))[0]
    above = 1.0 - told.cdf(np.array([1.0 - EDGE]))[0]
    for y, mass in ((0.0, below), (0.5 * EDGE, below), (1.0, above)):
        if mass < 1e-9:  # the complement of the cdf is not exact
            continue
        found = -told.score_values(np.array([y])).nll[0]
        assert found == pytest.approx(math.log(mass / EDGE), rel=1e-6)
    inside = integrate.quad(
        lambda y: math.exp(told.log_density(np.array([y]))[0]), EDGE, 1.0 - EDGE, limit=400
    )[0]
    assert inside + below + above == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize("shape", SHAPES)
def test_mean_sd_and_crps_agree_with_quadrature(shape: tuple[float, float, float]) -> None:
    told = read_distribution(share_rows(*shape))

    def moment(power: int) -> float:
        def term(z: float) -> float:
            return float(stats.norm.pdf(z, *shape[:2]) / (1.0 + math.exp(-z)) ** power)

        return float(integrate.quad(term, shape[0] - 9 * shape[1], shape[0] + 9 * shape[1])[0])

    assert told.mean()[0] == pytest.approx(moment(1), rel=1e-6)
    assert told.sd()[0] == pytest.approx(math.sqrt(moment(2) - moment(1) ** 2), rel=1e-5)
    for y in (0.0, 0.02, 0.5, 0.98, 1.0):

        def square(x: float, y: float = y) -> float:
            return float((told.cdf(np.array([x]))[0] - (x >= y)) ** 2)

        parts = [integrate.quad(square, a, b, limit=400)[0] for a, b in ((0.0, y), (y, 1.0))]
        assert told.crps(np.array([y]))[0] == pytest.approx(sum(parts), rel=1e-5, abs=1e-10)


@pytest.mark.parametrize("shape", SHAPES)
def test_quantiles_and_samples_are_between_0_and_1(shape: tuple[float, float, float]) -> None:
    told = read_distribution(np.repeat(share_rows(*shape), 20_000, axis=0))
    for share in (0.001, 0.3, 0.5, 0.95):
        q = told.quantile(share)[:1]
        assert 0.0 < q[0] < 1.0
        assert told[:1].cdf(q)[0] == pytest.approx(share, rel=1e-9)
    drawn = told.sample(np.random.default_rng(0))
    assert np.all((drawn > 0.0) & (drawn < 1.0))
    assert np.mean(drawn < 0.4) == pytest.approx(told[:1].cdf(np.array([0.4]))[0], abs=0.012)


def test_the_edge_is_a_tenth_of_the_smallest_distance_from_0_and_1() -> None:
    assert LogitLink.choose_link_unit(np.array([0.0, 0.3, 0.98, 1.0, np.nan])) == pytest.approx(
        0.002
    )
    assert LogitLink.choose_link_unit(np.array([0.0, 1.0])) == DEFAULT_EDGE


def beta_table(rows: int, precision: float, seed: int = 0) -> dict[str, FloatArray]:
    rng = np.random.default_rng(seed)
    a, b = rng.normal(size=(2, rows))
    mean = 1.0 / (1.0 + np.exp(-(1.2 * a - 0.8 * np.sin(2.0 * b) - 1.0)))
    return {"a": a, "b": b, "y": rng.beta(mean * precision, (1.0 - mean) * precision)}


@pytest.mark.parametrize("precision", [3.0, 30.0])
def test_shares_have_a_better_log_score_than_any_number(precision: float) -> None:
    table = beta_table(1500, precision)
    found = {}
    for task in ("share", "regression"):
        model = kbnn.Model("y", task=task, layers=10)
        model.learn(table)
        found[task] = model.record()
    assert found["share"]["nll"] < found["regression"]["nll"] - 0.05
    assert found["share"]["rmse"] < 1.05 * found["regression"]["rmse"]
    assert found["share"]["coverage"]["90"] == pytest.approx(0.9, abs=0.03)


def test_exact_0_and_1_are_learned_and_scored() -> None:
    table = beta_table(800, 2.0, seed=1)
    table["y"] = np.round(table["y"], 2)
    assert np.any(table["y"] == 0.0)
    assert np.any(table["y"] == 1.0)
    model = kbnn.Model("y", task="share", layers=6)
    model.learn(table)
    assert model.record()["rows"] > 700
    assert model.record()["coverage"]["90"] == pytest.approx(0.9, abs=0.04)
    made = model.predict(table)
    assert np.all((made.lower > 0.0) & (made.upper < 1.0))
    assert np.all((made.mean > made.lower) & (made.mean < made.upper))


def test_a_value_outside_0_and_1_is_refused_at_first_and_left_out_later(tmp_path: Path) -> None:
    table = beta_table(100, 5.0)
    with pytest.raises(DataError, match="--task share is for numbers from 0 to 1"):
        kbnn.Model("y", task="share").learn({**table, "y": table["y"] + 0.9})
    model = kbnn.Model("y", task="share", layers=3)
    model.learn(table)
    before = model.predict({"a": [0.1], "b": [0.2]}).mean[0]
    model.learn({"a": [0.1], "b": [0.2], "y": [1.7]})
    assert model.predict({"a": [0.1], "b": [0.2]}).mean[0] == before
    path = tmp_path / "share.npz"
    model.save(path)
    assert kbnn.load(path).predict({"a": [0.1], "b": [0.2]}).mean[0] == before
