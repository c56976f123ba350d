"""When a scale changes, and to what: columns of statistics made and worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from kbnn.array_types import FloatArray
from kbnn.model.learner import next_refit
from kbnn.model.scaler import (
    CENTER,
    COUNT,
    MEAN,
    RECENT,
    RECENT_SQUARE,
    SCALE,
    SQUARES,
    Scale,
    fit_scaler,
    is_large_change,
    refit_scale,
)


def column(
    mean: float, sd: float, recent: float = 0.0, recent_square: float = 1.0, count: float = 900.0
) -> FloatArray:
    """Statistics of a column in use with center 10 and scale 2."""
    made = np.zeros((1, 7))
    made[0, [COUNT, MEAN, SQUARES]] = count, mean, count * sd * sd
    made[0, [RECENT, RECENT_SQUARE, CENTER, SCALE]] = recent, recent_square, 10.0, 2.0
    return made


def scales(center: float, scale: float) -> Scale:
    return Scale(np.array([0.0, center]), np.array([1.0, scale]))


@pytest.mark.parametrize(
    ("center", "scale", "far"),
    [
        (0.0, 1.0, False),
        (0.45, 1.0, False),
        (-0.45, 1.0, False),
        (0.55, 1.0, True),
        (-0.55, 1.0, True),  # to the left is as far as to the right
        (0.0, 1.45, False),
        (0.0, 1.55, True),
        (0.0, 1.0 / 1.45, False),
        (0.0, 1.0 / 1.55, True),  # smaller counts as much as larger
        (0.65, 1.4, False),  # the shift is measured in the new scale
    ],
)
def test_far_apart_is_half_a_scale_or_half_as_much_again(
    center: float, scale: float, far: bool
) -> None:
    assert is_large_change(scales(0.0, 1.0), scales(center, scale)) is far


def test_a_column_that_has_just_begun_to_vary_is_not_far_from_anything() -> None:
    assert not is_large_change(scales(0.0, 0.0), scales(50.0, 3.0))


@pytest.mark.parametrize(
    ("mean", "sd", "changes"),
    [
        (10.0, 2.0, False),
        (10.0, 2.15, False),
        (10.0, 2.25, True),
        (10.0, 1.85, False),
        (10.0, 1.75, True),
        (10.18, 2.0, False),
        (9.82, 2.0, False),
        (10.22, 2.0, True),
        (9.78, 2.0, True),
    ],
)
def test_a_scale_changes_when_it_is_a_tenth_off(mean: float, sd: float, changes: bool) -> None:
    """In either direction; then the running mean and spread take over."""
    old = column(mean, sd, recent=0.3, recent_square=1.3)
    new = refit_scale(old, np.zeros(1))
    if not changes:
        assert np.array_equal(new, old)
        return
    assert new[0] == pytest.approx([900.0, mean, 900.0 * sd * sd, 0.0, 1.0, mean, sd])
    assert old[0, CENTER] == 10.0  # the given statistics stay as they are
    assert np.array_equal(refit_scale(old, np.ones(1)), old)  # an indicator has no scale


@pytest.mark.parametrize(("count", "left"), [(900.0, 64.0), (40.0, 40.0)])
def test_what_outgrew_its_scale_takes_the_recent_mean_and_spread(count: float, left: float) -> None:
    """z of mean 3 and mean square 13 about center 10 and scale 2: mean 16, spread 2 sqrt(13 - 9).

    All but the last 64 rows are forgotten.
    """
    new = refit_scale(column(10.0, 2.0, 3.0, 13.0, count), np.zeros(1))
    assert new[0] == pytest.approx([left, 16.0, left * 16.0, 0.0, 1.0, 16.0, 4.0])


def test_a_jump_without_spread_keeps_the_scale() -> None:
    new = refit_scale(column(10.0, 2.0, -4.0, 16.1), np.zeros(1))
    assert new[0, [CENTER, SCALE]] == pytest.approx([2.0, 2.0])


def test_the_warm_up_bounds_values_at_eight_normal_deviations_about_the_median() -> None:
    """The median of |x - 5| is 2, so the border lies at 5 + 8 * 1.4826 * 2 = 28.7216."""
    raw = np.array([1.0, 3.0, 5.0, 7.0, 1000.0])
    seen = np.array([1.0, 3.0, 5.0, 7.0, 28.7216])
    found = fit_scaler(raw[:, None])[0]
    assert found[[CENTER, SCALE]] == pytest.approx([seen.mean(), seen.std()])
    inside = np.array([1.0, 3.0, 5.0, 7.0, 28.0])
    assert fit_scaler(inside[:, None])[0, SCALE] == pytest.approx(inside.std())


def test_the_scale_is_looked_at_when_the_rows_have_doubled() -> None:
    seen = [1, 32, 63, 64, 100, 127, 128, 2047, 2048, 5000]
    wanted = [64, 64, 64, 128, 128, 128, 256, 2048, 4096, 8192]
    assert [next_refit(rows) for rows in seen] == wanted
