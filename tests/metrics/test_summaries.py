"""Summaries are bounded, exact through storage, and blind to how the rows came in blocks."""

from __future__ import annotations

import itertools
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from kbnn.array_types import FloatArray
from kbnn.errors import ModelError
from kbnn.metrics.class_metrics import ClassScore
from kbnn.metrics.numeric_metrics import NumericScore
from kbnn.metrics.samples import (
    FEATURE_BINS,
    FeatureHistograms,
    PitHistogram,
    StreamSummaries,
    fitting_level,
    hash_row_order,
    lattice_index,
)
from kbnn.metrics.scorecard import FIRST_POINT_ROWS, Scorecard
from tests.judging import judged, label_card, labels, number_card, numbers


def stream(n: int, targets: int = 1, seed: int = 0) -> dict[str, FloatArray]:
    """Rows with missing features and targets, one heavy-tailed column and one indicator."""
    rng = np.random.default_rng(seed)
    x = np.column_stack(
        (rng.normal(size=n), 1e6 * rng.standard_cauchy(n), rng.integers(0, 2, n), np.full(n, 0.1))
    )
    x[3::41, 0] = np.nan
    mean = rng.normal(size=(n, targets))
    sd = np.exp(rng.normal(0, 0.3, (n, targets)))
    y = mean + sd * rng.normal(size=(n, targets))
    y[10::29, 0] = np.nan
    return {"x": x, "y": y, "mean": mean, "sd": sd}


def fed(card: Scorecard, data: dict[str, FloatArray], borders: list[int]) -> list[int]:
    """Add the rows in blocks; the row counts at which points fell."""
    at = []
    for a, b in itertools.pairwise(borders):
        x, y, mean, sd = (data[name][a:b] for name in ("x", "y", "mean", "sd"))
        known = len(card.curve.points[0])
        card.add(x, y, numbers(mean, sd))
        at += [p.rows for p in card.curve.points[0][known:]]
    return at


def frozen(card: Scorecard) -> tuple[str, dict[str, bytes]]:
    """Every bit of the state."""
    header, arrays = card.to_state()
    return json.dumps(header, allow_nan=False), {k: v.tobytes() for k, v in arrays.items()}


def reloaded(card: Scorecard) -> Scorecard:
    """The card after a trip through its stored form."""
    header, arrays = card.to_state()
    copies = {name: np.array(values) for name, values in arrays.items()}
    assert all(values.dtype == np.float64 for values in copies.values())
    return Scorecard.from_state(card.task, json.loads(json.dumps(header)), copies)


@pytest.mark.parametrize("targets", [1, 2])
@pytest.mark.parametrize("size", [1, 7, 64, 1000])
def test_a_scorecard_is_blind_to_blocks(targets: int, size: int) -> None:
    n = 1500
    data = stream(n, targets)
    whole, parts = number_card(targets, 4), number_card(targets, 4)
    at = fed(whole, data, [0, n])
    assert at == [FIRST_POINT_ROWS << j for j in range(6)]
    assert fed(parts, data, [*range(0, n, size), n]) == at
    assert frozen(parts) == frozen(whole)
    assert parts.curve_points() == whole.curve_points()


def test_saving_in_the_middle_changes_nothing() -> None:
    data = stream(900)
    whole = number_card(1, 4, seed=5)
    fed(whole, data, [0, 900])
    parts = number_card(1, 4, seed=5)
    for a, b in itertools.pairwise([0, 1, 33, 500, 900]):
        fed(parts, data, [a, b])
        parts = reloaded(parts)
    assert frozen(parts) == frozen(whole)


def damaged() -> list[Any]:
    """Ways to break a stored state, each as a function of header and arrays."""
    return [
        lambda h, a: h.pop("curve"),
        lambda h, a: h["scores"].append(h["scores"][0]),
        lambda h, a: h["scores"][0]["sums"].update(nll=float("nan")),
        lambda h, a: h["scores"][0]["constant"].update(origin="far"),
        lambda h, a: h["scores"][0].update(pit=[0] * 3),
        lambda h, a: h["scores"][0].update(rows=-1),
        lambda h, a: h["scores"][0].update(began=[]),
        lambda h, a: h["scores"][0].update(rows=None),
        lambda h, a: h["curve"].update(points=[]),
        lambda h, a: h["curve"].update(points=[[[1, 2]]]),
        lambda h, a: h["summaries"].update(rows="3"),
        lambda h, a: h["summaries"].update(sample_size=0),
        lambda h, a: h["summaries"].update(sample_size=1 << 60),
        lambda h, a: h["summaries"]["features"].update(level=[10**9] * 4),
        lambda h, a: h["summaries"]["features"].update(low=[0.0]),
        lambda h, a: a.pop("sample.x"),
        lambda h, a: a.update({"worst.y": np.zeros((99, 1))}),
        lambda h, a: a.update(feature_counts=np.full((4, 64), np.inf)),
    ]


@pytest.mark.parametrize("harm", damaged())
def test_a_damaged_state_is_refused_in_one_sentence(harm: Any) -> None:
    card = number_card(1, 4)
    fed(card, stream(100), [0, 100])
    header, arrays = card.to_state()
    header = json.loads(json.dumps(header))
    harm(header, arrays)
    with pytest.raises(
        ModelError, match=r"^the model: its record of past forecasts is damaged \(.*\)$"
    ):
        Scorecard.from_state(card.task, header, arrays)


def test_classes_and_columns_may_grow() -> None:
    rng = np.random.default_rng(2)
    n = 400
    x = np.zeros((n, 3))
    x[:, 0] = rng.normal(size=n)
    x[200:, 2] = 1
    label = np.minimum(rng.integers(0, 3, n), np.where(np.arange(n) < 200, 1, 2)).astype(float)
    p = rng.dirichlet(np.ones(3), n)
    p[:200, 2] = 0
    wide, grown = label_card(3), label_card(2)
    wide.add(x, label[:, None], labels(p))
    grown.add(x[:200, :2], label[:200, None], labels(p[:200, :2]))
    grown = reloaded(grown)
    grown.add(x[200:], label[200:, None], labels(p[200:]))
    assert frozen(grown) == frozen(wide)
    score = wide.scores[0]
    assert isinstance(score, ClassScore)
    assert score.confusion.sum() == n
    naive = np.zeros((3, 3), dtype=int)
    for c, row in zip(label.astype(int), p, strict=True):
        naive[c, row.argmax()] += 1
    np.testing.assert_array_equal(score.confusion, naive)


@pytest.mark.parametrize("size", [17, 64, 700, 6000])
def test_a_growing_stream_leaves_no_trace_of_its_blocks(size: int) -> None:
    """A block is as wide as the schema at its end, with 0 in what its earlier rows did not know."""
    rng = np.random.default_rng(4)
    n, late = 6000, 5500
    x = np.zeros((n, 3))
    x[:, :2] = rng.normal(size=(n, 2))
    x[late, 2] = 1
    label = rng.integers(0, 2, n).astype(np.float64)
    label[late] = 2
    p = np.zeros((n, 3))
    p[:, :2] = rng.dirichlet(np.ones(2), n)
    whole, parts = label_card(3), label_card(2)
    whole.add(x, label[:, None], labels(p))
    for a in range(0, n, size):
        width = 3 if a + size > late else 2
        block = slice(a, a + size)
        parts.add(x[block, :width], label[block, None], labels(p[block, :width]))
    assert frozen(parts) == frozen(whole)


def test_the_state_stays_small() -> None:
    data = stream(30_000)
    card = number_card(1, 4)
    fed(card, data, [*range(0, 30_000, 5000), 30_000])
    header, arrays = card.to_state()
    assert len(json.dumps(header)) < 6000
    assert sum(values.nbytes for values in arrays.values()) < 60_000
    assert number_card(1, 5000).summaries.sample.size == 64


def test_the_learning_curve_gives_the_figures_of_its_stretches() -> None:
    data = stream(300)
    card = number_card(1, 4)
    fed(card, data, [0, 100, 300])
    y, mean, sd = data["y"][:, 0], data["mean"][:, 0], data["sd"][:, 0]
    points = card.curve_points()[0]
    assert [p.rows for p in points] == [32, 64, 128, 256, 300]
    before = 0
    for p in points:
        overall, since = NumericScore(), NumericScore()
        overall.add(judged(y[: p.rows], mean[: p.rows], sd[: p.rows]))
        stretch = slice(before, p.rows)
        since.add(judged(y[stretch], mean[stretch], sd[stretch]))
        assert p.loss == overall.metric_values()["rmse"]
        assert p.nll == overall.metric_values()["nll"]
        assert p.since_loss == since.metric_values()["rmse"]
        assert p.since_coverage_90 == since.metric_values()["coverage"]["90"]
        before = p.rows


def test_several_targets_are_listed_by_name() -> None:
    card = number_card(2, 4)
    fed(card, stream(200, 2), [0, 200])
    figures: dict[str, Any] = card.metric_values(["a", "b"])
    assert list(figures["targets"]) == ["a", "b"]
    assert figures["rows"] == 200
    assert figures["targets"]["a"]["skipped"] == 7
    assert figures["targets"]["b"]["skipped"] == 0


def test_pit_counts_and_coverage() -> None:
    rng = np.random.default_rng(0)
    z = rng.normal(size=5000)
    pit = PitHistogram()
    u = stats.norm.cdf(z)
    pit.add(u)
    np.testing.assert_array_equal(pit.bar_counts(), np.histogram(u, np.linspace(0, 1, 21))[0])
    levels, observed = pit.coverage_curve()
    for level, share in zip(levels, observed, strict=True):
        inside = np.abs(z) <= stats.norm.ppf(0.5 + level / 2)
        assert share == pytest.approx(inside.mean(), abs=1e-12)


@settings(max_examples=50, deadline=None)
@given(
    st.lists(
        st.floats(-1e150, 1e150).filter(lambda v: v == 0 or abs(v) > 1e-150),
        min_size=1,
        max_size=40,
    ),
    st.randoms(use_true_random=False),
)
def test_feature_histograms_depend_on_the_values_alone(values: list[float], random: Any) -> None:
    whole = FeatureHistograms(1)
    whole.add(np.array(values)[:, None])
    shuffled = list(values)
    random.shuffle(shuffled)
    single = FeatureHistograms(1)
    for value in shuffled:
        single.add(np.array([[value]]))
    assert single.to_json() == whole.to_json()
    np.testing.assert_array_equal(single.counts, whole.counts)
    edges, counts = whole.used_bins(0)
    assert len(counts) <= FEATURE_BINS
    assert counts.sum() == len(values)
    expected = [
        sum(lattice_index(v, int(whole.level[0])) == int(whole.first[0]) + j for v in values)
        for j in range(len(counts))
    ]
    assert counts.tolist() == expected
    assert edges[0] <= min(values)
    assert max(values) <= edges[-1]


def test_a_tiny_value_after_zeros_is_counted() -> None:
    for tiny in (1.22e-116, -1e-200, 5e-324):
        found = FeatureHistograms(1)
        for value in (0.0, 0.0, tiny, 1.0):
            found.add(np.array([[value]]))
        assert found.used_bins(0)[1].sum() == 4


def test_the_bins_of_a_feature_are_as_fine_as_they_can_be() -> None:
    level = fitting_level(-1.0, 1.0)
    assert lattice_index(1.0, level) - lattice_index(-1.0, level) < FEATURE_BINS
    assert lattice_index(1.0, level - 1) - lattice_index(-1.0, level - 1) >= FEATURE_BINS


def test_the_sample_is_even_over_the_stream() -> None:
    order = np.arange(100_000, dtype=np.float64)
    hashed = hash_row_order(order, 1)
    assert np.unique(hashed).size == order.size
    counts = np.histogram(hashed, 50)[0]
    assert counts.min() > 1800
    assert abs(np.corrcoef(hashed[:-1], hashed[1:])[0, 1]) < 0.02
    assert not np.array_equal(hashed, hash_row_order(order, 2))
    summaries = StreamSummaries(1)
    summaries.add(order[:, None], order[:, None], order[:, None], np.ones(100_000))
    assert len(summaries.sample) == 512
    assert abs(summaries.sample.order.mean() / 50_000 - 1) < 0.1
    np.testing.assert_array_equal(summaries.sample.row, summaries.sample.order + 1)


def test_the_worst_rows_are_those_of_highest_nll() -> None:
    data = stream(2000)
    card = number_card(1, 4)
    fed(card, data, [*range(0, 2000, 300), 2000])
    z = (data["y"] - data["mean"])[:, 0] / data["sd"][:, 0]
    nll = np.log(data["sd"][:, 0]) + 0.5 * z * z
    expected = np.argsort(np.where(np.isnan(nll), -np.inf, -nll * -1))[::-1][:20]
    worst = card.summaries.worst_rows
    np.testing.assert_array_equal(worst.order[worst.rank_rows()], expected)
    top = worst.rank_rows()[0]
    np.testing.assert_array_equal(worst.x[top], data["x"][expected[0]])
    mean, sd = (float(data[name][expected[0], 0]) for name in ("mean", "sd"))
    reach = 1.6448536269514722 * sd
    assert worst.forecast[top].tolist() == pytest.approx([mean, sd, mean - reach, mean + reach])


def test_quantiles_come_from_the_sample() -> None:
    summaries = StreamSummaries(2)
    x = np.column_stack((np.arange(101.0), np.full(101, np.nan)))
    one = np.ones((101, 1))
    summaries.add(x, one, one, one[:, 0])
    levels = np.array([0.0, 0.5, 1.0])
    assert summaries.feature_quantiles(0, levels).tolist() == [0, 50, 100]
    assert np.isnan(summaries.feature_quantiles(1, levels)).all()
    assert summaries.features.missing[1] == 101
    assert np.isnan(StreamSummaries(2).feature_quantiles(1, levels)).all()  # of no rows at all


@pytest.mark.parametrize(("field", "by"), [("first", 1), ("first", -1), ("level", 1), ("low", 9.0)])
def test_a_stored_histogram_must_begin_where_its_smallest_value_is(field: str, by: float) -> None:
    histograms = FeatureHistograms(1)
    histograms.add(np.array([[1.5], [2.5], [8.0]]))
    plain, counts = histograms.to_json(), histograms.counts.astype(np.float64)
    assert np.array_equal(FeatureHistograms.from_json(plain, counts).counts, histograms.counts)
    plain[field] = [plain[field][0] + by]
    with pytest.raises(ValueError, match="does not fit its range"):
        FeatureHistograms.from_json(plain, counts)


def test_a_value_next_to_nothing_stays_in_the_first_bin_beside_a_huge_one() -> None:
    """Its place in wide bins is -0.0, not -1: it underflows."""
    histograms = FeatureHistograms(1)
    for value in (-1e-300, 1e300):
        histograms.add(np.array([[value]]))
    _, counts = histograms.used_bins(0)
    assert counts.sum() == 2
    assert counts[0] >= 1
