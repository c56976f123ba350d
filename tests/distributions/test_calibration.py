"""What is stated of a real target: the mixture, its tails learned on the way, its intervals."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

from kbnn.array_types import FloatArray
from kbnn.core import constants
from kbnn.core import kernel as kernel_module
from kbnn.distributions import calibration, predictive
from kbnn.distributions.normal_mixture import NormalMixture
from kbnn.distributions.predictive import PARAM, PARAM_COUNT

SHAPES = [(0.0, 1.0, 0.0), (0.003, 50.0, 0.0), (0.1, 4.0, 1.5), (0.3, 1e4, -20.0), (0.02, 1e8, 3.0)]


@pytest.fixture(params=["kernel", "twin"])
def either(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The compiled functions, then those in numpy."""
    if request.param == "kernel" and not kernel_module.is_compiled():
        pytest.skip("there is no kernel here")
    monkeypatch.setattr(kernel_module, "is_compiled", lambda: request.param == "kernel")
    return str(request.param)


def rows_of(
    shape: tuple[float, float, float], place: float = 3.0, spread: float = 0.7
) -> FloatArray:
    row = np.ones((1, predictive.PARAM_COUNT))
    row[0, : PARAM.gain] = (place, spread, *shape)
    row[0, [PARAM.most, PARAM.kind]] = 0.0
    return row


def parts(shape: tuple[float, float, float], place: float = 3.0, spread: float = 0.7) -> Any:
    share, ratio, shift = shape
    wide = stats.norm(place + shift * spread, math.sqrt(ratio) * spread)
    return share, stats.norm(place, spread), wide


def cdf(shape: tuple[float, float, float], y: float) -> float:
    share, near, far = parts(shape)
    return float((1.0 - share) * near.cdf(y) + share * far.cdf(y))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("y", [-40.0, 1.0, 3.0, 3.3, 9.0])
def test_a_value_is_judged_as_integration_would(
    either: str, shape: tuple[float, float, float], y: float
) -> None:
    found = NormalMixture(rows_of(shape)).score_values(np.array([y]))
    share, near, far = parts(shape)
    density = (1.0 - share) * near.pdf(y) + share * far.pdf(y)
    if density > 1e-280:
        assert found.nll[0] == pytest.approx(-math.log(density), abs=1e-9)
    assert found.below[0] == pytest.approx(cdf(shape, y), abs=1e-12)
    if 1e-12 < found.below[0] < 1.0 - 1e-12:
        assert found.score[0] == pytest.approx(stats.norm.ppf(found.below[0]), rel=1e-4)
    assert found.crps[0] == pytest.approx(integrated(shape, y), rel=1e-9, abs=1e-9)


def test_a_value_beyond_all_numbers_of_spreads_is_judged_without_a_word(either: str) -> None:
    found = NormalMixture(rows_of(SHAPES[0], spread=1e-20)).score_values(np.array([1e300]))
    assert np.all(np.isfinite(found.nll) & (found.nll > 1e100))
    assert found.below[0] == 1.0


def integrated(shape: tuple[float, float, float], y: float) -> float:
    """The integral of (F(t) - 1[t >= y])^2 over panels that grow away from all that happens."""
    share, near, far = parts(shape)
    steps = np.concatenate(([0.0], np.geomspace(1e-3, 14.0, 120)))
    scales = [(near.mean(), 0.7), (far.mean(), far.std()), (y, 0.7)]
    edges = np.unique([m + side * s * steps for m, s in scales for side in (-1, 1)])
    nodes, weights = np.polynomial.legendre.leggauss(16)
    middle, half = (edges[1:] + edges[:-1]) / 2, np.diff(edges) / 2
    t = middle[:, None] + half[:, None] * nodes
    gap = (1.0 - share) * near.cdf(t) + share * far.cdf(t) - (middle[:, None] >= y)
    return float(np.sum(half[:, None] * weights * gap**2))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("share", [1e-6, 0.05, 0.5, 0.9, 0.999])
def test_a_quantile_has_its_share_below(
    either: str, shape: tuple[float, float, float], share: float
) -> None:
    y = float(NormalMixture(rows_of(shape)).quantile(share)[0])
    assert cdf(shape, y) == pytest.approx(share, rel=1e-9)


def test_an_interval_is_two_quantiles_until_it_is_tracked(either: str) -> None:
    rows = rows_of((0.1, 9.0, 1.0))
    lower, upper = NormalMixture(rows).interval(0.9)
    assert lower[0] == pytest.approx(NormalMixture(rows).quantile(0.05)[0], rel=1e-12)
    assert upper[0] == pytest.approx(NormalMixture(rows).quantile(0.95)[0], rel=1e-12)
    median = NormalMixture(rows).quantile(0.5)[0]
    rows[0, PARAM.gain + 4 : PARAM.gain + 6] = (2.0, 0.5)  # the gains of 90 %
    kept = NormalMixture(rows).interval(0.9)
    assert kept[0][0] == pytest.approx(median - 2.0 * (median - lower[0]), rel=1e-12)
    assert kept[1][0] == pytest.approx(median + 0.5 * (upper[0] - median), rel=1e-12)
    between = (
        NormalMixture(rows).interval(0.85)[0][0],
        NormalMixture(rows_of((0.1, 9.0, 1.0))).interval(0.85)[0][0],
    )
    assert between[0] < between[1]  # its gain lies between those of 80 and 90 %


def test_a_value_lies_inside_an_interval_up_to_its_very_edge(either: str) -> None:
    """Of shapes from no outliers to almost only such, next to one another as in a stream."""
    shares, ratios, shifts = (
        (0.0, 1e-4, 0.01, 0.1, 0.3, 0.49, 0.9),
        (1.5, 10.0, 1e4),
        (-3.0, 0.0, 2.0),
    )
    shapes = np.array(list(itertools.product(shares, ratios, shifts)))
    rows = np.zeros((len(shapes), predictive.PARAM_COUNT))
    rows[:, PARAM.place], rows[:, PARAM.spread] = 3.0, 2.0
    rows[:, PARAM.share : PARAM.gain] = shapes
    gains = np.random.default_rng(0).uniform(
        0.7, 1.4, (len(shapes), 2 * len(predictive.INTERVAL_PERCENTS))
    )
    rows[:, PARAM.gain : PARAM.most] = gains
    for level, name in zip(
        predictive.INTERVAL_PERCENTS, predictive.RowScores._fields[-4:], strict=True
    ):
        for side, edge in zip((-1.0, 1.0), NormalMixture(rows).interval(level / 100), strict=True):
            for beyond, inside in ((-1e-6, 1.0), (1e-6, 0.0)):
                y = edge + side * beyond * (1.0 + np.abs(edge))
                found = getattr(NormalMixture(rows).score_values(y), name)
                np.testing.assert_array_equal(found, np.full(len(rows), inside))


def test_the_mass_of_whole_numbers_is_that_between_the_halves() -> None:
    for shape in SHAPES:
        for y in (-3.0, 0.0, 4.0):
            expected = cdf(shape, y + 0.5) - cdf(shape, y - 0.5)
            found = math.exp(NormalMixture(rows_of(shape)).log_density(np.array([y]))[0])
            assert found == pytest.approx(expected, rel=1e-9, abs=1e-14)
    far = NormalMixture(rows_of((0.0, 1.0, 0.0))).log_density(np.array([500.0]))[0]
    assert far == pytest.approx(
        stats.norm(3.0, 0.7).logpdf(499.5), rel=1e-2
    )  # where masses underflow


def stream(rows: int, seed: int = 0) -> tuple[FloatArray, FloatArray, FloatArray]:
    rng = np.random.default_rng(seed)
    mean, sd = rng.normal(size=(rows, 2)), np.exp(0.3 * rng.normal(size=(rows, 2)))
    y = mean + sd * rng.standard_t(3, size=(rows, 2))
    y[rng.random((rows, 2)) < 0.05] = np.nan
    y[:40, 1] *= 1e6
    y[100, 0] = np.inf
    return mean, sd, y


def followed(
    data: tuple[FloatArray, FloatArray, FloatArray], cuts: list[int]
) -> tuple[FloatArray, FloatArray]:
    known = calibration.init_calibration(2)
    said = [
        calibration.update_calibration(known, data[0][a:b], data[1][a:b], data[2][a:b], True, True)
        for a, b in itertools.pairwise(cuts)
    ]
    return known, np.concatenate(said)


def test_kernel_and_twin_follow_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    if not kernel_module.is_compiled():
        pytest.skip("there is no kernel here")
    data = stream(1500)
    kernel = followed(data, [0, 1500])
    monkeypatch.setattr(kernel_module, "is_compiled", lambda: False)
    twin = followed(data, [0, 1500])
    for one, other in zip(kernel, twin, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-12)
    y = data[2][:, 0]
    known = np.isfinite(y)
    slow = NormalMixture(kernel[1][known, 0]).score_values(y[known])
    monkeypatch.undo()
    fast = NormalMixture(kernel[1][known, 0]).score_values(y[known])
    for name, one, other in zip(fast._fields, fast, slow, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12, err_msg=name)


def test_cutting_a_stream_changes_no_bit() -> None:
    data = stream(900)
    whole = followed(data, [0, 900])
    pieces = followed(data, [0, 1, 2, 31, 32, 33, 511, 512, 513, 800, 900])
    for one, other in zip(whole, pieces, strict=True):
        np.testing.assert_array_equal(one, other)


def test_heavy_tails_are_learned_and_light_ones_left_alone() -> None:
    rng = np.random.default_rng(5)
    mean, sd = np.zeros((8000, 1)), np.ones((8000, 1))
    heavy, light = rng.standard_t(3, size=(8000, 1)), rng.normal(size=(8000, 1))
    for y, least, most in ((heavy, 0.1, 0.6), (light, -0.002, 0.005)):
        known = calibration.init_calibration(1)
        said = calibration.update_calibration(known, mean, sd, y, mix=True, track=True)
        late = slice(2000, None)
        told = NormalMixture(said[late, 0]).score_values(y[late, 0])
        gaussian = -stats.norm.logpdf(y[late, 0], 0.0, np.std(y[late, 0]))
        gain = float(np.mean(gaussian) - np.mean(told.nll))
        assert least < gain < most
        assert 0.89 < np.mean(told.in_90) < 0.91


def test_intervals_come_back_to_their_promise_when_the_world_widens() -> None:
    rng = np.random.default_rng(1)
    y = rng.normal(size=(6000, 1)) * np.where(np.arange(6000) < 3000, 1.0, 2.0)[:, None]
    known = calibration.init_calibration(1)
    said = calibration.update_calibration(
        known, np.zeros_like(y), np.ones_like(y), y, mix=False, track=True
    )
    told = NormalMixture(said[:, 0]).score_values(y[:, 0])
    for start in (1000, 4000):
        for level in ("in_50", "in_80", "in_90", "in_95"):
            inside = np.mean(getattr(told, level)[start : start + 2000])
            assert abs(inside - int(level[-2:]) / 100) < 0.02
    stated = calibration.update_calibration(
        calibration.init_calibration(1),
        np.zeros_like(y),
        np.ones_like(y),
        y,
        mix=False,
        track=False,
    )
    assert np.mean(NormalMixture(stated[:, 0]).score_values(y[:, 0]).in_90[4000:]) < 0.65


@pytest.mark.parametrize("factor", [1.5, 1 / 1.5])
def test_intervals_keep_up_with_forecasts_that_become_wrong_slowly(factor: float) -> None:
    y = np.random.default_rng(2).normal(size=(4000, 1))
    y *= factor ** np.clip((np.arange(4000)[:, None] - 2000) / 2000, 0.0, 1.0)
    said = calibration.update_calibration(
        calibration.init_calibration(1), np.zeros_like(y), np.ones_like(y), y, mix=False, track=True
    )
    inside = np.mean(NormalMixture(said[:, 0]).score_values(y[:, 0]).in_90[2000:])
    assert 0.89 < inside < 0.91


def test_what_a_file_holds_is_checked() -> None:
    good = calibration.init_calibration(2)
    assert calibration.is_valid_calibration(good)
    for field, value in (
        (calibration.OUTLIER_ROWS, 0.0),
        (calibration.OUTLIERS, -1.0),
        (calibration.OUTLIERS, 400.0),
        (calibration.SHARE, 1.0),
        (calibration.RATIO, 0.0),
        (calibration.SCALE_FACTOR, math.nan),
        (calibration.FIRST_GAIN, 0.0),
        (calibration.FIRST_GAIN, math.inf),
        (calibration.LARGEST_VALUE, math.inf),
    ):
        bad = good.copy()
        bad[1, field] = value
        assert not calibration.is_valid_calibration(bad), (field, value)


@pytest.mark.parametrize(
    ("square", "more", "width"),
    [(0.1, 2.0, 0.2), (0.1, 1.5, 0.15), (0.4, 2.0, 0.8), (3.0, 1.0, 1.0), (1e9, 1.0, 1.0)],
)
def test_networks_that_overstate_are_narrowed_to_what_known_rows_promise_of_new_ones(
    square: float, more: float, width: float
) -> None:
    known = calibration.init_calibration(1)
    known[0, [calibration.ROWS_SEEN, calibration.SCALE_FACTOR, calibration.MEAN_SCALE_FACTOR]] = (
        100.0,
        3.0,
        2.0,
    )
    known[0, calibration.FIRST_GAIN] = 1.3
    before = known.copy()
    after = known
    for _ in range(10):
        after = calibration.shrink_scale(after, np.full((100, 1), square), np.full(100, more))
    assert after[0, calibration.MEAN_SCALE_FACTOR] == pytest.approx(width, rel=0.001)
    assert after[0, calibration.FIRST_GAIN] == 1.0  # new rows had asked for it
    assert np.array_equal(known, before)
    assert calibration.is_valid_calibration(after)


def test_narrowing_leaves_out_what_is_missing_and_is_the_same_however_rows_are_cut() -> None:
    squares = np.random.default_rng(0).chisquare(1.0, (300, 2)) * 0.3
    squares[::7, 1] = np.nan
    more = np.linspace(1.0, 3.0, 300)
    start = calibration.init_calibration(2)
    start[:, calibration.ROWS_SEEN] = 300.0
    whole = calibration.shrink_scale(start, squares, more)
    pieces = start
    for part in np.split(np.arange(300), [1, 2, 90, 299]):
        pieces = calibration.shrink_scale(pieces, squares[part], more[part])
    assert np.array_equal(whole, pieces)
    seen = np.isfinite(squares[:, 1])
    there = calibration.shrink_scale(start[1:], squares[seen, 1:], more[seen])
    assert np.array_equal(there[0], whole[1])
    assert whole[0, calibration.SCALE_FACTOR] < 0.9


def test_what_is_stated_of_outliers_is_looked_at_less_often_later(either: str) -> None:
    """With every row of the first 512, and then with every 32nd."""
    y = np.random.default_rng(6).standard_t(2, (640, 1))
    rows = calibration.update_calibration(
        calibration.init_calibration(1), np.zeros((640, 1)), np.ones((640, 1)), y, True, False
    )
    changed = np.flatnonzero(np.diff(rows[:, 0, PARAM.share])) + 1
    assert changed.tolist() == [*range(1, 513), 544, 576, 608]


def after_values(t: FloatArray, either: str) -> FloatArray:
    """Tails after forecasts of N(0, 1) and these values."""
    known = calibration.init_calibration(1)
    zeros, ones = np.zeros((len(t), 1)), np.ones((len(t), 1))
    calibration.update_calibration(known, zeros, ones, t[:, None], True, True, either == "kernel")
    return np.asarray(known[0])


def test_a_young_width_follows_forecasts_that_become_too_sure(either: str) -> None:
    """As those of a small set with little noise do: wide at first, too narrow in the end."""
    draw = np.random.default_rng(0).standard_normal(300)
    wide = after_values(np.where(np.arange(300) < 100, 0.5, 1.4) * draw, either)
    assert 1.4 < wide[calibration.SCALE_FACTOR] < 2.8
    assert 1.2 < wide[calibration.MEAN_SCALE_FACTOR] < wide[calibration.SCALE_FACTOR]
    trust = 300.0 / (300.0 + constants.WIDTH_REST)
    assert wide[calibration.MEAN_SCALE_FACTOR] == pytest.approx(
        wide[calibration.SCALE_FACTOR] ** trust
    )


def test_a_target_that_has_not_varied_yet_is_not_taken_for_certain(either: str) -> None:
    for rows in (100, 1000):
        known = after_values(np.zeros(rows), either)
        few = constants.WIDTH_FEW
        assert known[calibration.SCALE_FACTOR] == pytest.approx(few / (rows - 1.0 + few))


def test_gains_count_on_average_beside_512_rows_that_asked_for_none(either: str) -> None:
    t = np.random.default_rng(3).standard_normal((200, 1)) * 1.5
    known = calibration.init_calibration(1)
    rows = calibration.update_calibration(
        known, np.zeros_like(t), np.ones_like(t), t, True, True, either == "kernel"
    )
    after = np.vstack(
        [
            rows[1:, 0, PARAM.gain : PARAM.most],
            known[:, calibration.FIRST_GAIN : calibration.FIRST_MEAN],
        ]
    )
    wanted = (constants.TAILS_YOUNG + np.sum(after, axis=0)) / (constants.TAILS_YOUNG + len(t))
    assert np.ptp(wanted) > 0.01
    assert known[0, calibration.FIRST_MEAN : calibration.MEAN_SCALE_FACTOR] == pytest.approx(
        wanted, rel=1e-12
    )


@pytest.mark.parametrize("y", [38.2e3, 41e3, -45e3])
def test_the_mass_of_a_whole_number_far_away_is_its_density(y: float) -> None:
    """Less than 1e-300, and as good as even between its halves."""
    found = NormalMixture(rows_of((0.0, 1.0, 0.0), spread=1000.0)).log_density(np.array([y]))[0]
    assert found == pytest.approx(stats.norm(3.0, 1000.0).logpdf(y), rel=1e-6)


def test_an_error_at_a_known_row_is_cut_before_it_speaks_for_new_ones() -> None:
    """A square of at most 9, times what new rows have more."""
    known = calibration.init_calibration(1)
    known[0, calibration.ROWS_SEEN] = 99.0
    after = calibration.shrink_scale(known, np.array([[50.0]]), np.array([2.0]))
    assert after[0, calibration.SCALE_FACTOR] == pytest.approx(1.0 + (2.0 * 9.0 - 1.0) / 100.0)


def test_a_row_beyond_an_edge_moves_it_out_and_any_other_in(either: str) -> None:
    """By exp(0.045 (1 - beyond)) and exp(-0.045 beyond), each side by itself."""
    gains = after_values(np.array([1.8]), either)[calibration.FIRST_GAIN : calibration.FIRST_MEAN]
    beyond = np.repeat([0.25, 0.1, 0.05, 0.025], 2)
    missed = np.array([0, 1, 0, 1, 0, 1, 0, 0])  # above the upper edges up to 90 %
    assert np.log(gains) == pytest.approx(0.045 * (missed - beyond), rel=1e-12)


def test_size_and_place_of_outliers_are_taken_over_the_last_hundred(either: str) -> None:
    """Welford's step by one that is surely an outlier, and 100 of the 101 are kept."""
    known = calibration.init_calibration(1)
    known[0, [calibration.EXTREMES, calibration.SQUARES, calibration.MEAN]] = 100.0, 2500.0, 1.0
    mean, sd, y = np.array([[[0.0]], [[1.0]], [[50.0]]])
    calibration.update_calibration(known, mean, sd, y, True, False, either == "kernel")
    place = 1.0 + 49.0 / 101.0
    assert known[0, calibration.EXTREMES] == pytest.approx(100.0)
    assert known[0, calibration.MEAN] == pytest.approx(place)
    assert known[0, calibration.SQUARES] == pytest.approx((2500.0 + 49.0 * (50.0 - place)) / 1.01)


def test_where_the_lower_edge_of_a_count_is_0_its_upper_one_leaves_out_both_shares(
    either: str,
) -> None:
    """0 came with a probability of 0.9, and u is 0.97: beyond the edges at 0.8, 0.9 and 0.95."""
    known, rows = calibration.init_count_calibration(1, True)[0], np.ones((1, PARAM_COUNT))
    y, u, none = np.array([[4.0], [0.97], [0.9]])
    calibration.update_count_intervals(known, y, u, none, True, rows)
    moves = np.log(known[calibration.FIRST_GAIN : calibration.FIRST_MEAN]).reshape(-1, 2)
    assert not moves[:, 0].any()  # nothing lies below 0
    assert moves[:, 1] == pytest.approx(0.045 * np.array([0.0, 1.0 - 0.2, 1.0 - 0.1, 1.0 - 0.05]))


def test_an_error_where_no_spread_was_stated_counts_as_the_farthest(either: str) -> None:
    """And where there is neither error nor spread, nothing is learned: 0/0 is no distance."""
    off, far = (calibration.init_calibration(1) for _ in range(2))
    zero, one = np.zeros((1, 1)), np.ones((1, 1))
    calibration.update_calibration(off, zero, zero, one, True, True, either == "kernel")
    calibration.update_calibration(far, zero, 1e-12 * one, one, True, True, either == "kernel")
    shown = [
        *range(calibration.VALUE_MEAN),
        *range(calibration.SHARE, calibration.CALIBRATION_FIELDS),
    ]
    assert np.array_equal(off[0, shown], far[0, shown])
    assert off[0, calibration.ROWS_SEEN] == 1.0
    calibration.update_calibration(off, zero, zero, zero, True, True, either == "kernel")
    assert off[0, calibration.ROWS_SEEN] == 1.0


@pytest.mark.parametrize("gain", [constants.LEAST_GAIN, constants.MOST_GAIN])
def test_gains_may_have_come_to_their_very_bounds(gain: float) -> None:
    known = calibration.init_calibration(1)
    known[:, calibration.FIRST_GAIN : calibration.MEAN_SCALE_FACTOR] = gain
    assert calibration.is_valid_calibration(known)
    beyond = np.nextafter(gain, 0.0 if gain < 1.0 else np.inf)
    known[0, calibration.FIRST_GAIN] = beyond
    assert not calibration.is_valid_calibration(known)
