"""How sharp the probabilities of classes are is learned: what that promises, and when it moves."""

from __future__ import annotations

import numpy as np
import pytest

from kbnn.array_types import FloatArray
from kbnn.core import kernel
from kbnn.core.constants import SHARPNESS_EVERY
from kbnn.distributions import categorical as sharp

EVERY = int(SHARPNESS_EVERY)
both = pytest.mark.parametrize("compiled", [True, False], ids=["kernel", "twin"])


@pytest.fixture(autouse=True)
def _kernel_there(request: pytest.FixtureRequest) -> None:
    if request.node.name.endswith("[kernel]") and not kernel.is_compiled():
        pytest.skip("built without a compiler")


def said(count: int, classes: int = 3, power: float = 1.0, seed: int = 0) -> tuple[FloatArray, ...]:
    """Probabilities, and labels drawn from these to a power."""
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.full(classes, 0.7), count)
    true = p**power / np.sum(p**power, axis=1, keepdims=True)
    y = np.array([rng.choice(classes, p=one) for one in true], dtype=np.float64)
    return p, y, true


def known_to_all(classes: int) -> FloatArray:
    """As after one row of each class."""
    return sharp.init_temperature(np.arange(float(classes)), classes)


def loss(p: FloatArray, y: FloatArray) -> FloatArray:
    return -np.log(p[np.arange(len(y)), y.astype(np.int64)])


@pytest.mark.thinned(3)
@both
@pytest.mark.parametrize("power", [0.5, 1.0, 2.0, 3.5])
def test_the_sharpness_of_a_stream_is_found(power: float, compiled: bool) -> None:
    p, y, true = said(1500, power=power)
    known = known_to_all(3)
    made = sharp.apply_temperature(known, p, y, None, compiled)
    assert sharp.inverse_temperature(known) == pytest.approx(power, rel=0.25)
    assert np.mean(loss(made, y)) < np.mean(loss(true, y)) + 0.01
    assert np.allclose(np.sum(made, axis=1), 1.0, atol=1e-12)


@both
def test_where_nothing_can_be_told_the_shares_are_stated(compiled: bool) -> None:
    rng = np.random.default_rng(1)
    shares = np.array([0.8, 0.15, 0.05])
    p, y = rng.dirichlet(np.ones(3), 2000), rng.choice(3, 2000, p=shares).astype(np.float64)
    known = sharp.init_temperature(np.zeros(0), 3)
    made = sharp.apply_temperature(known, p, y, None, compiled)
    assert sharp.inverse_temperature(known) < 0.3
    assert np.mean(made[-500:], axis=0) == pytest.approx(shares, abs=0.06)
    assert np.mean(loss(made, y)[500:]) < np.mean(loss(p, y)) - 0.5
    assert np.mean(loss(made, y)[500:]) < -np.sum(shares * np.log(shares)) + 0.05


def test_a_mixture_costs_no_more_than_the_prior_of_the_best() -> None:
    """Of rows that nothing has aged: sum of losses <= that of any s, less log prior."""
    for power in (0.2, 1.0, 6.0):
        p, y, _ = said(EVERY - 2, power=power)
        known = known_to_all(3)
        known[sharp.EVIDENCE_ROWS] = 1.0  # the first row is stated as it is
        total = np.sum(loss(sharp.apply_temperature(known, p, y), y))
        for s, log_prior in zip(
            sharp.POWERS[sharp.POWERS >= 1.0], sharp.LOG_PRIOR[6:], strict=True
        ):
            alone = p**s / np.sum(p**s, axis=1, keepdims=True)
            assert total <= np.sum(loss(alone, y)) - log_prior + 1e-9


@both
def test_one_surprise_is_never_infinite(compiled: bool) -> None:
    p = np.tile([1.0 - 1e-3, 1e-3], (2000, 1))
    y = np.zeros(2000)
    y[-1] = 1.0
    made = sharp.apply_temperature(known_to_all(2), p, y, None, compiled)
    assert 1e-8 < made[-1, 1] < 1e-3


@both
def test_the_kernel_and_its_twin_agree(compiled: bool) -> None:
    p, y, _ = said(700, classes=4, power=1.7)
    rng = np.random.default_rng(2)
    weight = rng.choice([0.5, 1.0, 3.0, 1e9], 700)
    p[5], p[6] = np.nan, [1.0, 0.0, 0.0, 0.0]
    y[[7, 300]], y[8], y[9] = np.nan, -1.0, 4.0
    one, other = (
        sharp.init_temperature(np.array([0.0, np.nan]), 4),
        sharp.init_temperature(np.array([0.0, np.nan]), 4),
    )
    made = sharp.apply_temperature(one, p, y, weight, compiled)
    wanted = sharp.apply_temperature(other, p, y, weight, False)
    assert made == pytest.approx(wanted, rel=1e-9, nan_ok=True)
    assert one == pytest.approx(other, rel=1e-9)
    assert sharp.apply_temperature(one, p, compiled=compiled) == pytest.approx(
        sharp.apply_temperature(other, p, compiled=False), rel=1e-9, nan_ok=True
    )


@both
@pytest.mark.parametrize("sizes", [[1] * 600, [37] * 16 + [8], [0, 255, 1, 1, 343]])
def test_cutting_changes_no_bit(sizes: list[int], compiled: bool) -> None:
    p, y, _ = said(600, power=2.0)
    y[[7, 255, 256, 400]] = np.nan
    whole = sharp.init_temperature(np.zeros(0), 3)
    wanted = sharp.apply_temperature(whole, p, y, None, compiled)
    known, parts, at = sharp.init_temperature(np.zeros(0), 3), [], 0
    for size in sizes:
        parts.append(
            sharp.apply_temperature(known, p[at : at + size], y[at : at + size], None, compiled)
        )
        at += size
    assert np.array_equal(np.concatenate(parts), wanted)
    assert np.array_equal(known, whole)


@both
def test_a_label_is_learned_after_it_was_stated(compiled: bool) -> None:
    p, y, _ = said(60)
    other = y.copy()
    other[40:] = (y[40:] + 1.0) % 3.0
    one, two = (
        sharp.apply_temperature(known_to_all(3), p, labels, None, compiled) for labels in (y, other)
    )
    assert np.array_equal(one[:41], two[:41])
    assert not np.any(np.all(one[41:] == two[41:], axis=1))


@both
def test_without_evidence_probabilities_are_as_they_are(compiled: bool) -> None:
    p, y, _ = said(50)
    known = known_to_all(3)
    assert np.array_equal(sharp.apply_temperature(known, p, compiled=compiled), p)
    assert np.array_equal(sharp.apply_temperature(known, p, np.full(50, np.nan), None, compiled), p)
    assert np.array_equal(known, known_to_all(3))
    assert sharp.inverse_temperature(known) == 1.0
    made = sharp.apply_temperature(known, p, y, None, compiled)
    assert np.array_equal(made[0], p[0])
    assert not np.any(np.all(made[1:] == p[1:], axis=1))


@both
def test_the_first_row_of_a_class_says_nothing_of_sharpness(compiled: bool) -> None:
    known = sharp.init_temperature(np.array([0.0, 1.0]), 3)
    sharp.apply_temperature(
        known, np.array([[0.6, 0.4 - 1e-9, 1e-9]]), np.array([2.0]), None, compiled
    )
    assert known[sharp.EVIDENCE_ROWS] == 0.0
    assert np.all(known[sharp.EVIDENCE] == 0.0)
    assert known[sharp.CLASS_COUNTS].tolist() == [1.0, 1.0, 1.0]


@both
def test_a_weight_counts_as_so_many_rows_and_no_row_for_more_than_are_remembered(
    compiled: bool,
) -> None:
    p, y = np.array([[0.7, 0.2, 0.1]]), np.array([0.0])
    known = {w: known_to_all(3) for w in (1.0, 3.0, SHARPNESS_EVERY, 1e300)}
    for w, one in known.items():
        sharp.apply_temperature(one, p, y, np.array([w]), compiled)
    assert known[3.0][sharp.EVIDENCE] == pytest.approx(3.0 * known[1.0][sharp.EVIDENCE])
    assert known[3.0][sharp.CLASS_COUNTS].tolist() == [4.0, 1.0, 1.0]
    assert np.array_equal(known[1e300], known[SHARPNESS_EVERY])


@both
def test_what_was_before_counts_half_after_so_many_rows(compiled: bool) -> None:
    p, y, _ = said(EVERY + 1, power=2.0)
    known = known_to_all(3)
    sharp.apply_temperature(known, p[: EVERY - 1], y[: EVERY - 1], None, compiled)
    assert np.sum(known[sharp.CLASS_COUNTS]) == EVERY + 2.0
    before = known.copy()
    sharp.apply_temperature(known, p[EVERY - 1 : EVERY], y[EVERY - 1 : EVERY], None, compiled)
    assert np.sum(known[sharp.CLASS_COUNTS]) == (EVERY + 3.0) / 2.0
    assert np.max(known[sharp.EVIDENCE]) == 0.0
    width, halved = (np.ptp(k[sharp.EVIDENCE]) for k in (before, known))
    assert halved == pytest.approx(width / 2.0, rel=0.05)


def test_a_stream_that_changes_is_followed() -> None:
    p, y, _ = said(3000, power=3.0)
    p2, y2, true = said(1500, power=0.5, seed=1)
    known = known_to_all(3)
    sharp.apply_temperature(known, p, y)
    made = sharp.apply_temperature(known, p2, y2)
    assert sharp.inverse_temperature(known) == pytest.approx(0.5, rel=0.25)
    assert np.mean(loss(made, y2)[600:]) < np.mean(loss(true, y2)[600:]) + 0.02


def test_more_classes_take_nothing_away_and_numbers_have_none() -> None:
    known = known_to_all(3)
    wider = sharp.extend_classes(known, 5)
    assert wider[: len(known)].tolist() == known.tolist()
    assert wider[sharp.CLASS_COUNTS].tolist() == [1.0, 1.0, 1.0, 0.0, 0.0]
    assert sharp.extend_classes(wider, 2) is not known
    assert len(sharp.extend_classes(wider, 2)) == len(wider)
    assert len(sharp.extend_classes(sharp.NO_TEMPERATURE, 4)) == 0


def test_of_several_streams_evidence_is_each_ones_by_its_rows() -> None:
    one, two = known_to_all(2), known_to_all(3)
    one[sharp.EVIDENCE], two[sharp.EVIDENCE] = -1.0, -4.0
    one[sharp.EVIDENCE_ROWS], two[sharp.EVIDENCE_ROWS] = 30.0, 10.0
    whole = sharp.merge_temperatures([one, two], [30.0, 10.0])
    assert whole[sharp.EVIDENCE] == pytest.approx(-1.75)
    assert (whole[sharp.EVIDENCE_ROWS], whole[sharp.CLASS_COUNTS].tolist()) == (
        40.0,
        [2.0, 2.0, 1.0],
    )
    assert len(sharp.merge_temperatures([one, sharp.NO_TEMPERATURE], [1.0, 1.0])) == 0


def test_numbers_that_cannot_be_known_are_not_sound() -> None:
    known = known_to_all(3)
    assert sharp.is_valid_temperature(known)
    assert sharp.is_valid_temperature(sharp.NO_TEMPERATURE)
    for at, value in ((0, -1.0), (0, 0.5), (0, np.inf), (3, np.nan), (3, 1e13), (14, -0.1)):
        wrong = known.copy()
        wrong[at] = value
        assert not sharp.is_valid_temperature(wrong), (at, value)


def test_the_sharpness_that_is_told_is_the_middle_in_octaves() -> None:
    """Weights alike on both sides of 1 have it there."""
    known = known_to_all(2)
    assert sharp.inverse_temperature(known) == 1.0
    known[sharp.EVIDENCE_ROWS] = 5.0
    assert sharp.inverse_temperature(known) == pytest.approx(1.0, rel=1e-12)
    known[sharp.EVIDENCE] = np.where(np.isin(sharp.POWERS, [2.0, 8.0]), 0.0, -1e3)
    two, eight = np.exp(-2.0), np.exp(-6.0)  # by the prior: steps of half an octave
    assert np.log2(sharp.inverse_temperature(known)) == pytest.approx(
        (two + 3.0 * eight) / (two + eight)
    )


@both
def test_rows_of_any_weight_are_rows_where_evidence_is_halved(compiled: bool) -> None:
    p, y, _ = said(EVERY)
    known, light = known_to_all(3), known_to_all(3)
    sharp.apply_temperature(known, p, y, None, compiled)
    sharp.apply_temperature(light, p, y, np.full(EVERY, 0.25), compiled)
    assert known[sharp.EVIDENCE_ROWS] == light[sharp.EVIDENCE_ROWS] == EVERY
    assert np.sum(light[sharp.CLASS_COUNTS]) == pytest.approx((3.0 + 0.25 * EVERY) / 2.0)
