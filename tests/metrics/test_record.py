"""What the record of a stream keeps and leaves out: small cases by hand."""

from __future__ import annotations

import numpy as np
import pytest

from kbnn.array_types import FloatArray
from kbnn.core import kernel as kernel_module
from kbnn.core.constants import LARGEST_TERM
from kbnn.metrics.class_metrics import confidence_bin_index
from kbnn.metrics.figures import check_stored_count
from kbnn.metrics.numeric_metrics import ConstantBaseline, NumericScore
from kbnn.metrics.samples import FeatureHistograms, PrioritySample, StreamSummaries, hash_row_order
from kbnn.metrics.scorecard import FIRST_POINT_ROWS, LearningCurve, Scorecard
from tests.judging import judged, number_card, numbers

NAN = np.nan


def offered(kept: PrioritySample, order: list[int], priority: list[float]) -> None:
    at = np.array(order, dtype=np.float64)
    one = np.zeros((len(order), 1))
    kept.offer_rows(at, at + 1, np.array(priority), one, one, one)


@pytest.mark.parametrize("cut", [0, 1, 2, 3, 5])
def test_of_equally_surprising_rows_the_earlier_stay(cut: int) -> None:
    order, priority = list(range(5)), [1.0, 3.0, 1.0, 3.0, 3.0]
    kept = PrioritySample(2)
    offered(kept, order[:cut], priority[:cut])
    offered(kept, order[cut:], priority[cut:])
    kept.merge_new_rows()
    assert kept.order.tolist() == [1.0, 3.0]
    assert kept.row.tolist() == [2.0, 4.0]


def test_rows_that_wait_are_few_and_are_found_when_asked_for() -> None:
    kept = PrioritySample(2)
    for at in range(200):
        offered(kept, [at], [float(at)])
        assert sum(len(part[0]) for part in kept._new) <= 64
    assert len(kept) == 2
    assert kept.merge_new_rows().order.tolist() == [198.0, 199.0]
    assert not kept._new


def test_while_there_is_room_any_row_is_kept() -> None:
    kept = PrioritySample(3)
    for at, priority in enumerate([2.0, 3.0, 1.0, 1.5, 0.5]):
        offered(kept, [at], [priority])
        kept.merge_new_rows()
    assert kept.order.tolist() == [0.0, 1.0, 3.0]


def test_rows_that_wait_are_as_wide_as_those_before_a_column_was_known() -> None:
    kept = PrioritySample(5)
    offered(kept, [0, 1], [1.0, 2.0])
    kept.add_columns(np.array([0.0, NAN, 0.0]))
    assert len(kept) == 2
    np.testing.assert_array_equal(kept.x, [[0.0, NAN, 0.0]] * 2)


def test_rows_read_from_a_file_are_gone_on_with() -> None:
    draw = np.random.default_rng(3)
    priority = draw.permutation(300) / 300.0
    whole = PrioritySample(7)
    offered(whole, list(range(300)), priority.tolist())
    part = PrioritySample(7)
    offered(part, list(range(90)), priority[:90].tolist())
    part = PrioritySample.from_arrays(7, "sample", part.merge_new_rows().to_arrays("sample"))
    offered(part, list(range(90, 300)), priority[90:].tolist())
    assert part.merge_new_rows().order.tolist() == whole.merge_new_rows().order.tolist()


@pytest.mark.parametrize("engine_too", [True, False])
@pytest.mark.parametrize("scale", [1.0, 1e98, 1e-98])
def test_the_best_constant_is_counted_one_by_one(
    engine_too: bool, scale: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows after rows, all at once, and by Welford's recursion as it stands in books."""
    if not engine_too:
        monkeypatch.setattr(kernel_module, "is_compiled", lambda: False)
    draw = np.random.default_rng(8)
    y, w = scale * (3.0 + draw.normal(size=200)), draw.uniform(0.5, 2.0, 200)
    whole, single = ConstantBaseline(), ConstantBaseline()
    whole.add(y, w)
    for at in range(200):
        single.add(y[at : at + 1], w[at : at + 1])
    assert whole.sums.tolist() == single.sums.tolist()
    mean = total = squares = 0.0
    for value, weight in zip(y.tolist(), w.tolist(), strict=True):
        total += weight
        away = value - mean
        mean += away * weight / total
        squares += weight * away * (value - mean)
    assert whole.mean == pytest.approx(mean, rel=1e-9)
    assert whole.variance == pytest.approx(squares / total, rel=1e-9, abs=0.0)
    assert ConstantBaseline.from_json(whole.to_json()).sums.tolist() == whole.sums.tolist()


@pytest.mark.skipif(not kernel_module.is_compiled(), reason="the kernel is not built")
def test_the_kernel_counts_the_best_constant_as_numpy_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    draw = np.random.default_rng(9)
    y = draw.normal(size=500) * 10.0 ** draw.integers(-8, 105, 500)
    w = draw.uniform(0.5, 2.0, 500)
    w[:3] = w[100] = 0.0
    kernel, numpy = ConstantBaseline(), ConstantBaseline()
    kernel.add(y, w)
    monkeypatch.setattr(kernel_module, "is_compiled", lambda: False)
    numpy.add(y, w)
    assert kernel.sums.tolist() == numpy.sums.tolist()
    with pytest.raises(ValueError, match="four sums"):
        kernel_module.update_constant(np.zeros(3), y, w, LARGEST_TERM)
    with pytest.raises(ValueError, match="a weight for each"):
        kernel_module.update_constant(np.zeros(4), y, w[1:], LARGEST_TERM)


@pytest.mark.parametrize(
    "wrong", [{"shift": 1e150}, {"shift": -1e150}, {"spread": -1.0}, {"weight": NAN}]
)
def test_a_best_constant_that_no_rows_can_have_is_refused(wrong: dict[str, float]) -> None:
    sound = {"origin": 1.0, "weight": 2.0, "shift": 3.0, "spread": 4.0}
    assert ConstantBaseline.from_json(sound).mean == 2.5
    assert (
        ConstantBaseline.from_json({**sound, "origin": None, "weight": 0.0, "shift": 0.0}).mean
        is None
    )
    with pytest.raises(ValueError, match=r"baseline is invalid|finite"):
        ConstantBaseline.from_json({**sound, **wrong})


def test_the_sample_shrinks_for_wide_rows_down_to_64() -> None:
    sizes = [StreamSummaries(features).sample.size for features in (0, 10, 128, 1000, 2000)]
    assert sizes == [512, 512, 512, 65, 64]
    assert StreamSummaries(2000, sample=20).sample.size == 20


def test_another_seed_samples_other_rows() -> None:
    order = np.arange(1000.0)
    assert abs(np.corrcoef(hash_row_order(order, 1), hash_row_order(order, 2))[0, 1]) < 0.15


def filled(rows: int) -> StreamSummaries:
    summaries = StreamSummaries(1)
    one = np.ones((rows, 1))
    summaries.add(one, one, one, np.zeros(rows))
    return summaries


def test_histograms_count_every_row_at_first_and_one_in_sixteen_later() -> None:
    assert filled(100).features.counts.sum() == 100
    assert filled(4096).features.counts.sum() == 4096
    assert filled(4096 + 160).features.counts.sum() == 4096 + 10


def test_rows_before_a_column_was_known_count_as_zero_in_it() -> None:
    histograms = FeatureHistograms(1)
    histograms.add(np.array([[NAN], [1.0], [2.0]]))
    histograms.add(np.array([[1.0, 5.0]]))
    edges, counts = histograms.used_bins(1)
    assert counts.sum() == 4
    assert counts[0] == 3
    assert edges[0] <= 0.0 < edges[1]


def test_a_confidence_at_a_border_belongs_to_the_bin_below() -> None:
    """(j/15, (j + 1)/15]: 0.6 is 9/15 and ends the ninth bin."""
    confidence = np.array([0.0, 0.01, 0.2, 0.6, 0.61, 0.8, 0.99, 1.0])
    assert confidence_bin_index(confidence).tolist() == [0, 0, 2, 8, 9, 11, 14, 14]


def scored(y: FloatArray, sd: float = 1.0) -> Scorecard:
    card = number_card(y.shape[1])
    card.add(np.zeros((len(y), 1)), y, numbers(np.zeros_like(y), np.full_like(y, sd)))
    return card


@pytest.mark.parametrize(
    ("rows", "at"),
    [(0, []), (5, [5]), (32, [32]), (33, [32, 33]), (64, [32, 64]), (130, [32, 64, 128, 130])],
)
def test_the_curve_has_its_points_at_doubled_rows_and_now(rows: int, at: list[int]) -> None:
    (points,) = scored(np.ones((rows, 1))).curve_points()
    assert [point.rows for point in points] == at


def test_a_row_counts_for_the_targets_that_it_has() -> None:
    y = np.full((10, 2), 0.1)
    y[[1, 2, 3], 0] = NAN
    y[3, 1] = NAN
    y[2, 1] = 7.0  # the worst, though nothing is known of its first target
    card = scored(y)
    figures = card.metric_values(["a", "b"])
    assert (figures["rows"], figures["skipped"]) == (10, 1)
    assert (figures["targets"]["a"]["rows"], figures["targets"]["b"]["rows"]) == (7, 9)
    worst = card.summaries.worst_rows
    assert len(worst) == 9
    first = worst.rank_rows()[0]
    assert worst.row[first] == 3.0
    assert worst.priority[first] == pytest.approx(24.5 + 0.5 * np.log(2.0 * np.pi))
    two = worst.priority[worst.row == 1.0]
    assert two == pytest.approx(2.0 * (0.005 + 0.5 * np.log(2.0 * np.pi)))


def test_a_row_surprises_by_the_sum_of_its_targets_though_they_be_below_0() -> None:
    worst = scored(np.zeros((1, 2)), sd=0.1).summaries.worst_rows
    assert worst.priority == pytest.approx(2.0 * (np.log(0.1) + 0.5 * np.log(2.0 * np.pi)))
    assert worst.priority[0] < 0.0


@pytest.mark.parametrize("value", [-1, 2**53, True, 1.0, "1", None])
def test_what_a_file_has_for_a_count_is_a_whole_number_that_a_float_tells_apart(
    value: object,
) -> None:
    assert check_stored_count(0) == 0
    assert check_stored_count(2**53 - 1) == 2**53 - 1
    with pytest.raises(ValueError, match="expected a count"):
        check_stored_count(value)


def test_points_of_the_learning_curve_have_the_loss_since_the_last_point() -> None:
    curve, score = LearningCurve(1), NumericScore()
    for error in (8.0, 2.0):
        for piece in curve.split_at_points(FIRST_POINT_ROWS):
            n = piece.stop - piece.start
            score.add(judged(np.full(n, error), np.zeros(n), np.ones(n)))
            curve.advance_rows(n, [score])
    first, second = curve.points[0]
    assert (first.loss, first.since_loss) == (8.0, 8.0)
    assert second.since_loss == 2.0
    assert second.loss == pytest.approx(np.sqrt((64.0 + 4.0) / 2.0))
