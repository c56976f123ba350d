"""Whole columns of numbers: the kernel and numpy agree, to the bit where bits count."""

from __future__ import annotations

import numpy as np
import pytest

from kbnn.core import engine
from kbnn.core.normal import FloatArray


@pytest.fixture(params=["as built", "numpy"])
def either(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "numpy":
        monkeypatch.setattr(engine, "_BUILT", False)


def awkward(count: int = 1000) -> FloatArray:
    draw = np.random.default_rng(0)
    return draw.normal(size=count) * 10.0 ** draw.integers(-12, 12, count)


@pytest.mark.usefixtures("either")
def test_a_total_is_added_one_by_one() -> None:
    values, carry = awkward(), 0.1
    for value in values.tolist():
        carry += value
    assert engine.total(0.1, values) == carry
    assert engine.total(0.1, values[::-1][::-1]) == carry
    assert engine.total(2.0, np.array([True, False, True])) == 4.0
    assert engine.total(2.0, np.zeros(0)) == 2.0


@pytest.mark.usefixtures("either")
def test_however_it_is_cut_a_total_is_the_same() -> None:
    values = awkward()
    for cut in (1, 3, 500, 999):
        assert engine.total(engine.total(0.0, values[:cut]), values[cut:]) == engine.total(
            0.0, values
        )


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
    assert engine.beyond(values, 1e-5, 1e5) == found
    assert engine.beyond(np.stack([values, values], axis=1)[:, 0], 1e-5, 1e5) == found


@pytest.mark.usefixtures("either")
def test_columns_lie_side_by_side() -> None:
    columns = [awkward(7), np.full(7, np.nan), awkward(14)[::2]]
    x = engine.side_by_side(columns, 7)
    assert x.flags.c_contiguous
    assert np.array_equal(x, np.stack(columns, axis=1), equal_nan=True)
    assert engine.side_by_side([], 3).shape == (3, 0)
    with pytest.raises(ValueError, match=r"one number of rows|broadcast"):
        engine.side_by_side([np.zeros(2)], 3)
