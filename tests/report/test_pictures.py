"""The charts of a page, each by itself: what is drawn is what the numbers say."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from kbnn.array_types import FloatArray
from kbnn.distributions.predictive import INTERVAL_HALF_WIDTHS_SD
from kbnn.metrics.scorecard import CurvePoint
from kbnn.metrics.sections import PredictionCurve, describe_dependence
from kbnn.model.dependence import Dependence
from kbnn.model.diagnostics import Effect
from kbnn.report import PictureData, page, plots
from kbnn.report.plots import BLUE, GREEN, INK, MUTED, ORANGE
from tests.judging import number_card, number_task, numbers

pytest.importorskip("matplotlib", reason="the extra kbnn[report] is not installed")


def drawn(draw: Callable[..., None], *data: Any) -> Any:
    """The axes on which a chart was drawn."""
    from matplotlib.figure import Figure

    ax = Figure().add_subplot()
    draw(ax, *data)
    return ax


def lines(ax: Any, colour: str) -> list[tuple[list[float], list[float]]]:
    """The lines and dots of a colour, each as x and y."""
    own = [line for line in ax.lines if line.get_color() == colour]
    return [(list(line.get_xdata()), list(line.get_ydata())) for line in own]


def bars(ax: Any) -> list[float]:
    return [float(bar.get_height()) for bar in ax.patches]


def edges(ax: Any, place: int = 0) -> tuple[FloatArray, FloatArray]:
    """The lower and the upper edge of an area that is filled."""
    points = ax.collections[place].get_paths()[0].vertices
    found: dict[float, list[float]] = {}
    for x, y in points:
        found.setdefault(round(float(x), 9), []).append(float(y))
    order = sorted(found)
    return np.array([min(found[x]) for x in order]), np.array([max(found[x]) for x in order])


Y = np.array([0.0, 5.0, 1.0, -5.0])
MEAN = np.array([0.5, 1.0, 1.0, 1.0])
LOWER, UPPER = MEAN - 2.0, MEAN + 1.0


def test_calibration_is_drawn_in_percent_with_what_chance_allows() -> None:
    levels, inside = np.array([0.5, 0.9]), np.array([0.4, 0.95])
    ax = drawn(plots.draw_calibration, levels, inside, 100)
    [(promised, held)] = lines(ax, BLUE)
    assert promised == pytest.approx([0.0, 50.0, 90.0, 100.0])
    assert held == pytest.approx([0.0, 40.0, 95.0, 100.0])
    low, high = edges(ax)
    assert low == pytest.approx([0.0, 40.0, 84.0, 100.0])
    assert high == pytest.approx([0.0, 60.0, 96.0, 100.0])


def test_bars_of_the_pit_are_counts_beside_even_ones() -> None:
    ax = drawn(plots.draw_pit, np.array([30, 10, 10, 50]))
    height = bars(ax)
    assert height[:4] == pytest.approx([1.2, 0.4, 0.4, 2.0])
    band = ax.patches[4]
    reach = 2.0 * np.sqrt(0.75 / 25.0)
    assert (band.get_y(), band.get_height()) == pytest.approx((1.0 - reach, 2.0 * reach))


def test_rows_outside_their_interval_on_either_side_are_orange() -> None:
    for chart in (plots.draw_predicted_true, plots.draw_residuals, plots.draw_width_error):
        ax = drawn(
            chart, Y, MEAN, LOWER, UPPER, *(["y"] if chart is plots.draw_predicted_true else [])
        )
        [held], [missed] = lines(ax, BLUE), lines(ax, ORANGE)
        assert (len(held[0]), len(missed[0])) == (2, 2)
    [(x, y)] = lines(drawn(plots.draw_predicted_true, Y, MEAN, LOWER, UPPER, "y"), ORANGE)
    assert (x, y) == ([5.0, -5.0], [1.0, 1.0])
    [(x, y)] = lines(drawn(plots.draw_width_error, Y, MEAN, LOWER, UPPER), ORANGE)
    assert (x, y) == ([3.0, 3.0], [4.0, 6.0])


def test_an_error_is_measured_by_the_reach_on_its_side() -> None:
    [(x, y)] = lines(drawn(plots.draw_residuals, Y, MEAN, LOWER, UPPER), ORANGE)
    assert x == [1.0, 1.0]
    assert y == pytest.approx([4.0 / 1.0, -6.0 / 2.0])
    [(_, held)] = lines(drawn(plots.draw_residuals, Y, MEAN, LOWER, UPPER), BLUE)
    assert held == pytest.approx([-0.5 / 2.0, 0.0])


def test_errors_beside_the_bell_have_90_percent_within_their_reach() -> None:
    z = np.random.default_rng(0).standard_normal(20_000)
    half = np.full(len(z), INTERVAL_HALF_WIDTHS_SD[90])
    ax = drawn(plots.draw_error_histogram, z, np.zeros(len(z)), -half, half)
    [(grid, bell)] = lines(ax, ORANGE)
    middles = np.array([bar.get_x() for bar in ax.patches]) + 0.15
    assert bars(ax) == pytest.approx(np.interp(middles, grid, bell), abs=0.03)


def test_the_scale_is_that_of_most_values() -> None:
    values = np.concatenate((np.linspace(0.0, 100.0, 1001), [1e6]))
    low, high = plots.central_range(values)
    assert -10.0 < low < 0.5
    assert 99.0 < high < 110.0
    assert plots.central_range(np.full(5, 3.0)) == (1.5, 4.5)
    assert plots.evenly_spaced(1000, 5).tolist() == [0, 249, 499, 749, 999]
    assert plots.evenly_spaced(3, 5).tolist() == [0, 1, 2]


def test_learning_shows_the_latest_rows_and_all_beside_the_constant() -> None:
    points = [
        CurvePoint(32, 4.0, 1.0, 0.9, 4.0, 1.0, 0.9),
        CurvePoint(64, 3.0, 0.8, 0.91, 2.0, 0.6, 0.92),
        CurvePoint(128, None, None, None, None, None, None),
    ]
    ax = drawn(plots.draw_learning_curve, points, "loss", "RMSE", 5.0)
    assert lines(ax, BLUE) == [([32, 64], [4.0, 2.0])]
    assert lines(ax, GREEN) == [([32, 64], [4.0, 3.0])]
    [(_, constant)] = lines(ax, MUTED)
    assert set(constant) == {5.0}
    assert lines(drawn(plots.draw_learning_curve, points, "nll", "NLL", None), MUTED) == []


def test_the_largest_effects_are_on_top_whatever_their_sign() -> None:
    sizes = [(f"f{at}", (-1.0) ** at * at, 0.5 * at + 0.1) for at in range(1, 15)]
    effects = [Effect(name, value, sd, value, sd, 1.0) for name, value, sd in sizes]
    ax = drawn(plots.draw_sensitivities, effects)
    names = [text.get_text() for text in ax.get_yticklabels()]
    assert names == [f"f{at}" for at in range(3, 15)]  # from the bottom up, the twelve largest


def test_an_effect_that_may_be_zero_is_grey() -> None:
    effects = [
        Effect("sure", -2.0, 1.0, -2.0, 1.0, 1.0),
        Effect("may be none", 1.5, 1.0, 1.5, 1.0, 1.0),
    ]
    ax = drawn(plots.draw_sensitivities, effects)
    assert lines(ax, BLUE) == [([-2.0], [1])]
    assert lines(ax, MUTED) == [([1.5], [0])]
    [(start, end)] = ax.collections[0].get_segments()[0][:, 0].reshape(1, 2).tolist()
    assert (start, end) == pytest.approx(
        (-2.0 - INTERVAL_HALF_WIDTHS_SD[90], -2.0 + INTERVAL_HALF_WIDTHS_SD[90])
    )


def test_a_dependence_has_its_band_and_where_the_data_lie() -> None:
    grid = np.array([0.0, 1.0, 2.0])
    data = Dependence(
        "a", grid, grid + 1.0, np.array([0.1, 0.2, 0.3]), np.arange(-2.0, 5.0),
        np.array([9, 1, 4, 2, 7, 7]),
    )  # fmt: skip
    ax = drawn(plots.draw_dependence, data, "y")
    assert lines(ax, BLUE) == [([0.0, 1.0, 2.0], [1.0, 2.0, 3.0])]
    low, high = edges(ax)
    assert high - low == pytest.approx(2.0 * INTERVAL_HALF_WIDTHS_SD[90] * data.sd)
    assert [bar.get_x() for bar in ax.patches] == [0.0, 1.0]  # bins within the grid
    heights = bars(ax)
    assert heights[0] == pytest.approx(2.0 * heights[1])
    named = Dependence("c", np.arange(2.0), np.array([3.0, 4.0]), np.ones(2), categories=["u", "v"])
    ax = drawn(plots.draw_dependence, named, "y")
    assert lines(ax, BLUE) == [([0, 1], [3.0, 4.0])]
    assert [text.get_text() for text in ax.get_xticklabels()] == ["u", "v"]


def test_probabilities_are_drawn_beside_what_was_right() -> None:
    weight = np.array([0.0, 4.0, 16.0, 80.0])
    sure, right = np.array([np.nan, 0.4, 0.7, 0.9]), np.array([np.nan, 0.5, 0.5, 0.95])
    ax = drawn(plots.draw_reliability, weight, sure, right)
    dots = ax.collections[-1]
    assert dots.get_offsets()[:, 0].tolist() == pytest.approx([40.0, 70.0, 90.0])
    assert dots.get_offsets()[:, 1].tolist() == pytest.approx([50.0, 50.0, 95.0])
    shares = (0.04, 0.16, 0.8)
    assert dots.get_sizes().tolist() == pytest.approx([8 + 120 * share for share in shares])
    [(x, y)] = lines(ax, BLUE)
    assert x == pytest.approx([70.0, 90.0])  # no line through bins of a few rows
    assert y == pytest.approx([50.0, 95.0])
    stroke = ax.collections[0].get_segments()[1][:, 1]
    assert stroke.tolist() == pytest.approx([50.0 - 25.0, 50.0 + 25.0])


def test_how_sure_it_was_is_a_share_of_all_rows() -> None:
    ax = drawn(plots.draw_confidence_bars, np.array([0.0, 10.0, 30.0]), 0.8, 0.7)
    assert bars(ax) == pytest.approx([0.0, 25.0, 75.0])
    assert lines(ax, ORANGE)[0][0] == pytest.approx([80.0, 80.0])


def test_rows_below_a_confidence_are_set_aside() -> None:
    weight, right = np.array([0.0, 10.0, 30.0]), np.array([np.nan, 0.5, 0.9])
    ax = drawn(plots.draw_selective_accuracy, weight, right)
    [(least, share)], [(_, kept)] = lines(ax, BLUE), lines(ax, GREEN)
    assert least == pytest.approx([0.0, 100.0 / 3.0, 200.0 / 3.0])
    assert share == pytest.approx([80.0, 80.0, 90.0])
    assert kept == pytest.approx([100.0, 100.0, 75.0])


def test_a_forecast_goes_on_after_the_last_row() -> None:
    past, mean, sd = np.array([1.0, 2.0, 3.0]), np.array([4.0, 5.0]), np.array([1.0, 2.0])
    half = INTERVAL_HALF_WIDTHS_SD[90] * sd
    times = ["Mon", "Tue", "Wed", "Thu", "Fri"]
    ax = drawn(plots.draw_horizon, past, mean, mean - half, mean + half, "y", times, mean + 1.0)
    assert [label.get_text() for label in ax.get_xticklabels()] == ["Mon", "Tue", "Wed", "Fri"]
    assert any(list(line.get_ydata()) == [3.0, 5.0, 6.0] for line in ax.lines)
    assert lines(ax, BLUE) == [([1, 2], [4.0, 5.0])]
    assert any(list(line.get_xdata()) == [-2, -1, 0] for line in ax.lines)
    low, high = edges(ax)
    assert low == pytest.approx(mean - INTERVAL_HALF_WIDTHS_SD[90] * sd)
    assert high == pytest.approx(mean + INTERVAL_HALF_WIDTHS_SD[90] * sd)


def drawing(
    x: FloatArray, truth: FloatArray, make: Callable[[FloatArray], PredictionCurve]
) -> PictureData:
    card = number_card(1, x.shape[1])
    mean = make(x).value
    card.add(x, truth[:, None], numbers(mean, np.ones(len(mean))))
    told = describe_dependence(number_task("y"), card.scores[0], card.summaries, 0)
    return PictureData("y", ["a", "b"][: x.shape[1]], x, truth, told, make)


def test_what_is_known_of_one_input_is_a_band_within_that_of_the_data() -> None:
    def make(x: FloatArray) -> PredictionCurve:
        a = x[:, 0]
        return PredictionCurve(2.0 * a, 1.0 + a, 0.5 + a, 2.0 * a - 2.0, 2.0 * a + 1.0)

    x = np.array([[0.0], [1.0], [np.nan]])
    ax = drawn(page.draw_band, drawing(x, np.array([0.5, 1.5, 1.0]), make))
    assert ax.get_xlim() == pytest.approx((-0.1, 1.1))  # a tenth of air
    [(grid, mean)], [(_, rows)] = lines(ax, BLUE), lines(ax, INK)
    a = np.array(grid)
    assert mean == pytest.approx(2.0 * a)
    assert rows == [0.5, 1.5, 1.0]
    low, high = edges(ax, 0)
    assert low == pytest.approx(2.0 * a - 2.0)
    assert high == pytest.approx(2.0 * a + 1.0)
    low, high = edges(ax, 1)
    half = INTERVAL_HALF_WIDTHS_SD[90] * (0.5 + a)
    assert low == pytest.approx(2.0 * a - np.minimum(half, 2.0))
    assert high == pytest.approx(2.0 * a + np.minimum(half, 1.0))


def test_two_inputs_lie_across_and_up() -> None:
    from matplotlib.figure import Figure

    def make(x: FloatArray) -> PredictionCurve:
        return PredictionCurve(x[:, 0] + 100.0 * x[:, 1], 1.0 + x[:, 1] ** 2)

    figure = Figure()
    x = np.array([[0.0, 0.0], [1.0, 1.0]])
    page.draw_planes(figure, drawing(x, np.array([0.0, 100.0]), make))
    left, right = figure.axes[:2]
    values, sds = (
        np.asarray(ax.collections[0].get_array()).reshape(page.GRID_POINTS, -1)
        for ax in (left, right)
    )
    across, up = (np.linspace(-0.1, 1.1, page.GRID_POINTS) for _ in range(2))
    assert values == pytest.approx(across[None, :] + 100.0 * up[:, None])
    assert sds == pytest.approx(np.tile(1.0 + up[:, None] ** 2, (1, page.GRID_POINTS)))
    assert (left.get_xlabel(), left.get_ylabel()) == ("a", "b")
    assert (left.get_title(), right.get_title()) == ("mean", "standard deviation")
