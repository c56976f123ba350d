"""Whole columns of numbers: the kernel and numpy agree, to the bit where bits count."""

from __future__ import annotations

import numpy as np
import pytest

from kbnn.array_types import FloatArray
from kbnn.core import kernel


@pytest.fixture(params=["as built", "numpy"])
def either(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "numpy":
        monkeypatch.setattr(kernel, "_BUILT", False)


def awkward(count: int = 1000) -> FloatArray:
    draw = np.random.default_rng(0)
    return draw.normal(size=count) * 10.0 ** draw.integers(-12, 12, count)


@pytest.mark.usefixtures("either")
@pytest.mark.parametrize("width", [1, 7, 8, 19])
def test_totals_are_added_one_by_one(width: int) -> None:
    columns = [awkward(1000 + j)[j:] for j in range(width)]
    sums = awkward(width)
    expected = sums.tolist()
    for j, column in enumerate(columns):
        for value in column.tolist():
            expected[j] += value
    assert kernel.sum_in_order(sums, columns).tolist() == expected
    assert (
        kernel.sum_in_order(sums, [column[::-1][::-1] for column in columns]).tolist() == expected
    )
    assert kernel.sum_in_order(sums, [np.zeros(0)] * width).tolist() == sums.tolist()
    assert sums.tolist() == awkward(width).tolist()


@pytest.mark.usefixtures("either")
def test_truth_values_are_counted() -> None:
    assert kernel.sum_in_order(np.array([2.0]), [np.array([True, False, True])]).tolist() == [4.0]


@pytest.mark.usefixtures("either")
def test_however_it_is_cut_a_total_is_the_same() -> None:
    values, none = awkward(), np.zeros(1)
    whole = kernel.sum_in_order(none, [values])
    for cut in (1, 3, 500, 999):
        assert (
            kernel.sum_in_order(kernel.sum_in_order(none, [values[:cut]]), [values[cut:]]) == whole
        )


@pytest.mark.skipif(not kernel.is_compiled(), reason="the kernel is not built")
def test_the_kernel_takes_a_column_for_each_sum_of_one_length() -> None:
    with pytest.raises(ValueError, match="a column for each sum"):
        kernel.sum_in_order(np.zeros(2), [np.zeros(3)])
    with pytest.raises(ValueError, match="one number of rows"):
        kernel.sum_in_order(np.zeros(2), [np.zeros(3), np.zeros(4)])


@pytest.mark.usefixtures("either")
@pytest.mark.parametrize(
    ("value", "found"),
    [
        (0.0, (False, False)),
        (-0.0, (False, False)),
        (np.nan, (False, False)),
        (1e-5, (False, False)),
        (-1e5, (False, False)),
        (9e-6, (False, True)),
        (-5e-324, (False, True)),
        (1.1e5, (True, False)),
        (-np.inf, (True, False)),
    ],
)
@pytest.mark.parametrize("place", [0, 7, 16])
def test_what_is_too_large_or_too_small_is_found(
    value: float, found: tuple[bool, bool], place: int
) -> None:
    values = np.ones(17)
    values[place] = value
    assert kernel.exceeds_limits(values, 1e-5, 1e5) == found
    assert kernel.exceeds_limits(np.stack([values, values], axis=1)[:, 0], 1e-5, 1e5) == found


@pytest.mark.usefixtures("either")
def test_columns_lie_side_by_side() -> None:
    columns = [awkward(7), np.full(7, np.nan), awkward(14)[::2]]
    x = kernel.stack_columns(columns, 7)
    assert x.flags.c_contiguous
    assert np.array_equal(x, np.stack(columns, axis=1), equal_nan=True)
    assert kernel.stack_columns([], 3).shape == (3, 0)
    with pytest.raises(ValueError, match=r"one number of rows|broadcast"):
        kernel.stack_columns([np.zeros(2)], 3)
