"""Scores against integration, scikit-learn and naive loops; the same bits at every chunking."""

from __future__ import annotations

import itertools
import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

from kbnn.array_types import FloatArray
from kbnn.distributions import normal_mixture
from kbnn.distributions.normal_mixture import NormalMixture
from kbnn.distributions.predictive import INTERVAL_PERCENTS
from kbnn.metrics.class_metrics import CONFIDENCE_BINS, ClassScore
from kbnn.metrics.class_metrics import ScoredClassBatch as Labelled
from kbnn.metrics.figures import Metric, PinballLoss
from kbnn.metrics.numeric_metrics import NumericScore
from tests.judging import judged, numbers


def rows(n: int, seed: int = 0) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Targets, means, standard deviations and weights on several scales."""
    rng = np.random.default_rng(seed)
    mean = rng.normal(40, 9, n)
    sd = np.exp(rng.normal(0, 0.7, n))
    y = mean + sd * rng.normal(0.1, 1.2, n)
    return y, mean, sd, rng.uniform(0.2, 3, n)


def class_rows(n: int, classes: int, seed: int = 0) -> tuple[FloatArray, FloatArray]:
    """Labels and probabilities that know something about them."""
    rng = np.random.default_rng(seed)
    label = rng.integers(0, classes, n)
    logit = rng.normal(0, 1, (n, classes))
    logit[np.arange(n), label] += 1.5
    p = np.exp(logit)
    return label.astype(np.float64), p / p.sum(axis=1, keepdims=True)


def cuts(n: int, seed: int) -> list[int]:
    """Random borders of blocks, single rows among them."""
    rng = np.random.default_rng(seed)
    inner = np.unique(np.concatenate((rng.integers(1, n, 7), [1, 2, n // 2, n // 2 + 1])))
    return [0, *inner.tolist(), n]


@pytest.mark.parametrize("z", [-6.0, -1.3, 0.0, 0.4, 2.0, 5.0])
@pytest.mark.parametrize("sd", [0.01, 1.0, 30.0])
def test_crps_is_the_integral_it_claims_to_be(z: float, sd: float) -> None:
    y = z * sd

    def gap(t: float) -> float:
        return float((stats.norm.cdf(t / sd) - (t >= y)) ** 2)

    reach = (abs(z) + 12) * sd
    left, _ = integrate.quad(gap, -reach, y, epsabs=1e-13, epsrel=1e-12, limit=200)
    right, _ = integrate.quad(gap, y, reach, epsabs=1e-13, epsrel=1e-12, limit=200)
    closed = judged(np.array([y]), np.zeros(1), np.array([sd])).told.crps[0]
    assert closed == pytest.approx(left + right, rel=1e-9, abs=1e-11)


def test_nll_is_minus_the_log_density() -> None:
    y, mean, sd, _ = rows(500)
    expected = -stats.norm.logpdf(y, mean, sd)
    np.testing.assert_allclose(judged(y, mean, sd).nll, expected, rtol=1e-12, atol=1e-12)


def test_figures_agree_with_whole_array_formulas() -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    y, mean, sd, weight = rows(3000)
    for w in (None, weight):
        score = NumericScore()
        score.add(judged(y, mean, sd, w))
        got = score.metric_values()
        square = metrics.mean_squared_error(y, mean, sample_weight=w)
        assert got["rmse"] == pytest.approx(math.sqrt(square), rel=1e-12)
        assert got["mae"] == pytest.approx(
            metrics.mean_absolute_error(y, mean, sample_weight=w), rel=1e-12
        )
        assert got["r2"] == pytest.approx(metrics.r2_score(y, mean, sample_weight=w), rel=1e-11)
        assert got["nll"] == pytest.approx(
            np.average(-stats.norm.logpdf(y, mean, sd), weights=w), rel=1e-12
        )
        for level in INTERVAL_PERCENTS:
            low, high = stats.norm.interval(level / 100, mean, sd)
            inside = np.average((low <= y) & (y <= high), weights=w)
            assert got["coverage"][str(level)] == pytest.approx(inside, rel=1e-12)
        low, high = stats.norm.interval(0.9, mean, sd)
        assert got["interval_width_90"] == pytest.approx(np.average(high - low, weights=w))
        centre = np.average(y, weights=w)
        variance = np.average((y - centre) ** 2, weights=w)
        assert got["baseline_rmse"] == pytest.approx(math.sqrt(variance), rel=1e-12)
        best = np.average(-stats.norm.logpdf(y, centre, math.sqrt(variance)), weights=w)
        assert got["baseline_nll"] == pytest.approx(best, rel=1e-12)
        assert score.constant.mean == pytest.approx(centre, rel=1e-12)


def test_crps_agrees_with_properscoring() -> None:
    properscoring = pytest.importorskip("properscoring", reason="properscoring is not installed")
    y, mean, sd, _ = rows(400)
    expected = properscoring.crps_gaussian(y, mu=mean, sig=sd)
    np.testing.assert_allclose(judged(y, mean, sd).told.crps, expected, rtol=1e-9)


def test_figures_agree_with_uncertainty_toolbox() -> None:
    toolbox = pytest.importorskip(
        "uncertainty_toolbox", reason="uncertainty-toolbox is not installed"
    )
    y, mean, sd, _ = rows(400)
    score = NumericScore()
    score.add(judged(y, mean, sd))
    figures = score.metric_values()
    assert figures["crps"] == pytest.approx(toolbox.crps_gaussian(mean, sd, y), rel=1e-9)
    assert figures["nll"] == pytest.approx(toolbox.nll_gaussian(mean, sd, y), rel=1e-9)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_regression_bits_do_not_depend_on_blocks(seed: int, weighted: bool) -> None:
    y, mean, sd, weight = rows(1037, seed)
    y[5::97] = np.nan
    w = weight if weighted else None
    whole = NumericScore()
    whole.add(judged(y, mean, sd, w))
    parts = NumericScore()
    borders = cuts(y.shape[0], seed)
    for a, b in itertools.pairwise(borders):
        parts.add(judged(y[a:b], mean[a:b], sd[a:b], None if w is None else w[a:b]))
        parts = NumericScore.from_json(json.loads(json.dumps(parts.to_json())))
    assert parts.to_json() == whole.to_json()
    assert whole.skipped == np.isnan(y).sum()
    strided = NumericScore()
    table = np.column_stack((y, mean, sd))
    strided.add(judged(table[:, 0], table[:, 1], table[:, 2], w))
    assert strided.to_json() == whole.to_json()


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_class_bits_do_not_depend_on_blocks(seed: int, weighted: bool) -> None:
    label, p = class_rows(911, 5, seed)
    label[::53] = np.nan
    w = rows(911, seed)[3] if weighted else None
    whole = ClassScore()
    whole.add(Labelled(label, p, w))
    parts = ClassScore()
    borders = cuts(label.shape[0], seed)
    for a, b in itertools.pairwise(borders):
        parts.add(Labelled(label[a:b], p[a:b], None if w is None else w[a:b]))
        parts = ClassScore.from_json(json.loads(json.dumps(parts.to_json())))
    assert parts.to_json() == whole.to_json()


bad = st.sampled_from([0.0, 1.0, -1.0, 1e308, -1e308, 1e-308, math.inf, -math.inf, math.nan])


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(bad, bad, bad), min_size=1, max_size=6))
def test_no_row_can_spoil_the_figures(table: list[tuple[float, float, float]]) -> None:
    y, mean, sd = np.array(table).T.copy()
    score = NumericScore()
    score.add(judged(y, mean, sd))
    good = rows(50)
    score.add(judged(*good[:3]))
    text = json.dumps(score.metric_values(), allow_nan=False)
    assert json.loads(text)["rows"] + score.skipped + score.invalid == len(table) + 50
    json.dumps(score.to_json(), allow_nan=False)


def test_nothing_scored_is_none_not_nan() -> None:
    score = NumericScore()
    score.add(judged(np.array([np.nan]), np.array([1.0]), np.array([1.0])))
    figures = score.metric_values()
    assert figures["rows"] == 0
    assert figures["skipped"] == 1
    assert figures["rmse"] is None
    assert figures["coverage"]["90"] is None
    json.dumps(figures, allow_nan=False)
    json.dumps(ClassScore().metric_values(), allow_nan=False)


def test_a_constant_target_has_no_r2_and_a_perfect_baseline() -> None:
    score = NumericScore()
    score.add(judged(np.full(31, 0.1), np.zeros(31), np.ones(31)))
    figures = score.metric_values()
    assert figures["baseline_rmse"] == 0
    assert figures["r2"] is None
    assert figures["baseline_nll"] is None


def test_baseline_survives_a_large_offset() -> None:
    y = 1e9 + np.random.default_rng(3).normal(0, 1, 20_000)
    score = NumericScore()
    score.add(judged(y, y, np.ones_like(y)))
    assert score.metric_values()["baseline_rmse"] == pytest.approx(y.std(), rel=1e-9)


def test_since_covers_only_the_rows_after_the_mark() -> None:
    y, mean, sd, _ = rows(200)
    score, tail = NumericScore(), NumericScore()
    score.add(judged(y[:120], mean[:120], sd[:120]))
    score.start_curve_segment()
    score.add(judged(y[120:], mean[120:], sd[120:]))
    tail.add(judged(y[120:], mean[120:], sd[120:]))
    since = {name: value for name, (_, value) in score.curve_values().items()}
    assert since["loss"] == tail.metric_values()["rmse"]
    assert since["nll"] == tail.metric_values()["nll"]
    assert since["coverage_90"] == tail.metric_values()["coverage"]["90"]


@pytest.mark.parametrize("classes", [2, 3, 7])
def test_class_figures_agree_with_scikit_learn(classes: int) -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    label, p = class_rows(2000, classes)
    weight = np.random.default_rng(9).uniform(0.1, 2, 2000)
    for w in (None, weight):
        score = ClassScore()
        score.add(Labelled(label, p, w))
        got = score.metric_values()
        assert got["accuracy"] == pytest.approx(
            metrics.accuracy_score(label, p.argmax(axis=1), sample_weight=w), rel=1e-12
        )
        assert got["log_loss"] == pytest.approx(
            metrics.log_loss(label, p, sample_weight=w), rel=1e-9
        )
        indicator = np.eye(classes)[label.astype(int)]
        naive = np.average(((p - indicator) ** 2).sum(axis=1), weights=w)
        assert got["brier"] == pytest.approx(naive / 2, rel=1e-12)
        if classes == 2:
            expected = metrics.brier_score_loss(label, p[:, 1], sample_weight=w)
            assert got["brier"] == pytest.approx(expected, rel=1e-12)
        frequency = np.average(indicator, axis=0, weights=w)
        constant = metrics.log_loss(label, np.tile(frequency, (2000, 1)), sample_weight=w)
        assert got["baseline_log_loss"] == pytest.approx(constant, rel=1e-9)
        assert got["baseline_accuracy"] == pytest.approx(frequency.max(), rel=1e-12)


def naive_ece(label: FloatArray, p: FloatArray) -> float:
    """Expected calibration error, one bin and one row after the other."""
    total = 0.0
    for j in range(CONFIDENCE_BINS):
        inside = [
            (row.max(), row.argmax() == c)
            for row, c in zip(p, label, strict=True)
            if j / CONFIDENCE_BINS < row.max() <= (j + 1) / CONFIDENCE_BINS
        ]
        if inside:
            sure = sum(float(q) for q, _ in inside) / len(inside)
            right = sum(bool(hit) for _, hit in inside) / len(inside)
            total += len(inside) / len(label) * abs(sure - right)
    return total


@pytest.mark.parametrize("classes", [2, 4])
def test_calibration_error_agrees_with_a_loop(classes: int) -> None:
    label, p = class_rows(700, classes, 5)
    score = ClassScore()
    score.add(Labelled(label, p))
    assert score.metric_values()["ece"] == pytest.approx(naive_ece(label, p), abs=1e-12)


def test_classes_may_be_admitted_on_the_way() -> None:
    label, p = class_rows(300, 3)
    narrow = p[:100, :2] / p[:100, :2].sum(axis=1, keepdims=True)
    early = np.minimum(label[:100], 1)
    early[7] = 2.0  # a label the model has not met: probability 0
    grown = ClassScore()
    grown.add(Labelled(early, narrow))
    grown.add(Labelled(label[100:], p[100:]))
    wide = ClassScore()
    padded = np.column_stack((narrow, np.zeros(100)))
    wide.add(Labelled(np.concatenate((early, label[100:])), np.vstack((padded, p[100:]))))
    assert grown.to_json() == wide.to_json()
    assert grown.class_count == 3
    json.dumps(grown.metric_values(), allow_nan=False)


def test_a_record_without_a_figure_starts_it_empty() -> None:
    y, mean, sd, weight = rows(300)
    old = NumericScore()
    old.add(judged(y[:200], mean[:200], sd[:200], weight[:200]))
    stored = json.loads(json.dumps(old.to_json()))
    del stored["sums"]["crps"], stored["recent"]["nll"]
    score = NumericScore.from_json(stored)
    assert score.metric_values()["crps"] is None
    assert score.metric_values()["rmse"] == old.metric_values()["rmse"]
    late, later = NumericScore(), judged(y[200:], mean[200:], sd[200:], weight[200:])
    late.add(later)
    for _ in range(2):  # and after another trip through storage
        score = NumericScore.from_json(json.loads(json.dumps(score.to_json())))
    score.add(later)
    assert score.metric_values()["crps"] == pytest.approx(late.metric_values()["crps"], rel=1e-12)
    assert score.metric_values()["rows"] == 300


@pytest.mark.parametrize("share", [0.01, 0.5, 0.9, 0.999])
def test_the_gaussian_is_that_of_scipy(share: float) -> None:
    y, mean, sd, _ = rows(200)
    said = numbers(mean, sd).stated[:, 0]
    expected = stats.norm.ppf(share, mean, sd)
    np.testing.assert_allclose(NormalMixture(said).quantile(share), expected, rtol=1e-12)
    low, high = stats.norm.interval(share, mean, sd)
    np.testing.assert_allclose(NormalMixture(said).interval(share), (low, high), rtol=1e-9)
    np.testing.assert_allclose(normal_mixture.cdf(y, said), stats.norm.cdf(y, mean, sd), rtol=1e-11)
    density = stats.norm.logpdf(y, mean, sd)
    np.testing.assert_allclose(normal_mixture.log_pdf(y, said), density, rtol=1e-11)


@pytest.mark.parametrize("figures", [NumericScore.figures_listed, ClassScore.figures_listed])
def test_every_figure_is_listed_once_and_says_what_it_needs(figures: tuple[Metric, ...]) -> None:
    names = [figure.name for figure in figures]
    assert len(set(names)) == len(names)
    for figure in figures:
        assert figure.term is not None or figure.derive is not None
        if isinstance(figure.baseline, str) and figure.baseline:
            assert figure.baseline in names
    assert {figure.curve for figure in figures} >= {"loss", "nll"}


def test_quantiles_cost_what_they_miss_by_their_share_and_weight() -> None:
    y = np.array([10.0, 10.0, np.nan, 10.0])
    told = np.array([[7.0, 12.0], [11.0, 9.0], [1.0, 1.0], [np.nan, 9.0]])
    loss = PinballLoss([0.1, 0.8])
    assert loss.mean_losses() == [None, None]
    loss.add(y, told, np.array([3.0, 1.0, 5.0, 5.0]))
    tenth = (3.0 * 0.1 * 3.0 + 1.0 * 0.9 * 1.0) / 4.0
    most = (3.0 * 0.2 * 2.0 + 1.0 * 0.8 * 1.0) / 4.0
    assert loss.mean_losses() == pytest.approx([tenth, most])
    even = PinballLoss([0.1, 0.8])
    for row in range(4):
        even.add(y[row : row + 1], told[row : row + 1], None)
    assert even.mean_losses() == pytest.approx([(0.3 + 0.9) / 2.0, (0.4 + 0.8) / 2.0])
