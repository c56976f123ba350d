"""The verdict is right on forecasts made to be wrong in one way, and mild on small samples."""

from __future__ import annotations

import numpy as np
import pytest

from kbnn.metrics.class_metrics import ClassScore
from kbnn.metrics.class_metrics import ScoredClassBatch as Labelled
from kbnn.metrics.numeric_metrics import NumericScore
from kbnn.metrics.verdicts import (
    MIN_VERDICT_ROWS,
    choose_headline,
    describe_bias,
    describe_coverage,
    describe_spread,
    judge_class_score,
    judge_numeric_score,
)
from kbnn.wording import format_count, format_number, format_percent
from tests.judging import judged


def made(
    n: int = 2000,
    signal: float = 3.0,
    noise: float = 1.0,
    stated: float = 1.0,
    shift: float = 0.0,
    seed: int = 0,
) -> NumericScore:
    """A forecast that knows `signal` of the target, is off by `shift`, and states `stated` sd."""
    rng = np.random.default_rng(seed)
    mean = rng.normal(0, signal, n)
    y = mean + rng.normal(0, noise, n)
    score = NumericScore()
    score.add(judged(y, mean - shift, np.full(n, stated)))
    return score


def test_good() -> None:
    result = judge_numeric_score(made())
    assert result.level == "good"
    assert result.headline.startswith("Good")
    assert "explains 9" in result.sentences[0]
    assert not any("biased" in text for text in result.sentences)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("n", [25, 100, 1000])
def test_honest_forecasts_are_never_called_poor(n: int, seed: int) -> None:
    assert judge_numeric_score(made(n, seed=seed)).level in ("good", "fair")


def test_over_confident() -> None:
    result = judge_numeric_score(made(stated=0.5))
    assert result.level == "poor"
    assert result.headline.startswith("Over-confident")
    assert "far too narrow" in result.sentences[1]
    assert "times as large as predicted" in result.sentences[2]


def test_under_confident() -> None:
    result = judge_numeric_score(made(stated=2.0))
    assert result.level == "fair"
    assert result.headline.startswith("Under-confident")
    assert "too wide" in result.sentences[1]
    assert "only 0.49" in result.sentences[2]


def test_biased_to_the_low_and_to_the_high_side() -> None:
    low = judge_numeric_score(made(shift=0.6, stated=1.2))
    assert low.headline.startswith("Biased")
    assert "Predictions are too low by 0.5" in low.sentences[-1]
    high = judge_numeric_score(made(shift=-0.6, stated=1.2))
    assert "too high by" in high.sentences[-1]


def test_a_small_bias_is_not_a_disaster() -> None:
    result = judge_numeric_score(made(shift=0.3))
    assert (result.level, result.headline) == ("fair", "Useful, but slightly biased to one side")
    assert result.sentences[-1].endswith(" % of the RMSE: slightly biased.")


def test_forecasts_without_any_error_state_too_much() -> None:
    result = judge_numeric_score(made(noise=0.0))
    assert any("only 0.00 times as large as predicted" in sentence for sentence in result.sentences)


def test_useless_even_with_honest_error_bars() -> None:
    rng = np.random.default_rng(0)
    y = rng.normal(5, 2, 3000)
    score = NumericScore()
    score.add(judged(y, np.full(3000, 5.0), np.full(3000, 2.0)))
    result = judge_numeric_score(score)
    assert result.level == "poor"
    assert result.headline == "No better than a constant"
    assert "no better than always predicting the mean" in result.sentences[0]
    worse = NumericScore()
    worse.add(judged(y, rng.normal(5, 2, 3000), np.full(3000, 3.0)))
    assert judge_numeric_score(worse).headline == "No better than a constant"


def test_useful_means_with_misleading_bars_are_named() -> None:
    result = judge_numeric_score(made(stated=0.2))
    assert "the predictions are useful, but the error bars mislead" in result.sentences[-1]


def test_a_handful_of_rows_is_not_judged() -> None:
    result = judge_numeric_score(made(8))
    assert result.level == "unknown"
    assert result.headline == "Too few rows to judge"
    assert judge_numeric_score(NumericScore()).level == "unknown"
    assert judge_class_score(ClassScore()).level == "unknown"


@pytest.mark.parametrize(
    ("rows", "judged_at_all"), [(MIN_VERDICT_ROWS - 1, False), (MIN_VERDICT_ROWS, True)]
)
def test_as_many_rows_as_are_asked_for_are_enough(rows: int, judged_at_all: bool) -> None:
    labels = ClassScore()
    labels.add(Labelled((np.arange(rows) % 2).astype(np.float64), np.full((rows, 2), 0.5)))
    for verdict in (judge_numeric_score(made(rows)), judge_class_score(labels)):
        assert (verdict.level != "unknown") == judged_at_all


@pytest.mark.parametrize(
    ("inside", "rows", "severity", "words"),
    [
        (0.887, 1024, -1, "the 90 % intervals held 88.7 % of 1,024 rows: slightly too narrow"),
        (0.896, 100_000, 0, "as they should"),
        (0.85, 20, 0, "as they should"),
        (0.88, 10_000, -1, "slightly too narrow"),
        (0.82, 10_000, -2, ": too narrow"),
        (0.60, 500, -3, "far too narrow"),
        (0.60, 20, -3, "far too narrow"),
        (0.78, 50, -2, ": too narrow"),  # beyond a tenth, but within 3.5 errors
        (0.92, 10_000, 1, "slightly too wide"),
        (0.98, 10_000, 2, ": too wide"),
        (1.0, 25, 1, "slightly too wide, though chance alone can do that"),
    ],
)
def test_coverage_words(inside: float, rows: int, severity: int, words: str) -> None:
    got, text = describe_coverage(90, inside, rows)
    assert (got, words in text) == (severity, True), text


@pytest.mark.parametrize(("inside", "doubt"), [(0.871, True), (0.869, False), (0.929, True)])
def test_chance_is_blamed_within_two_errors_alone(inside: float, doubt: bool) -> None:
    """The sampling error of 90 % of 400 rows is 1.5 %."""
    severity, text = describe_coverage(90, inside, 400)
    assert abs(severity) == 1
    assert text.endswith(", though chance alone can do that") == doubt


@pytest.mark.parametrize(
    ("ratio", "rows", "side"),
    [(1.2, 10_000, 1), (1.14, 10_000, 0), (0.84, 10_000, -1), (0.86, 10_000, 0), (1.25, 50, 0)],
)
def test_errors_larger_or_smaller_than_stated(ratio: float, rows: int, side: int) -> None:
    assert describe_spread(ratio, rows)[0] == side


def sure(*bins: tuple[float, int, int]) -> ClassScore:
    """Two equally common classes; per bin the confidence, the rows, and how many were right."""
    score = ClassScore()
    for confidence, rows, right in bins:
        label = np.arange(rows) % 2
        said = np.where(np.arange(rows) < right, label, 1 - label)
        p = np.where(np.arange(2) == said[:, None], confidence, 1.0 - confidence)
        score.add(Labelled(label.astype(np.float64), p))
    return score


def test_too_sure_by_a_twentieth_is_poor_and_by_less_is_fair() -> None:
    levels = [judge_class_score(sure((0.9, 10_000, right))).level for right in (9000, 8700, 8300)]
    assert levels == ["good", "fair", "poor"]


def test_a_calibration_error_is_forgiven_up_to_twice_what_chance_does() -> None:
    """Chance makes 0.079 of these 40 rows; the errors are 0.125 and 0.2."""
    assert judge_class_score(sure((0.6, 20, 9), (0.8, 20, 18))).level == "good"
    assert "poorly calibrated" in judge_class_score(sure((0.6, 20, 6), (0.8, 20, 20))).headline


def classes(n: int, sharpen: float, informed: float = 2.0, seed: int = 0) -> ClassScore:
    """Labels drawn from known probabilities; the forecast states them, sharpened by a power."""
    rng = np.random.default_rng(seed)
    logit = rng.normal(0, informed, (n, 3))
    p = np.exp(logit)
    p /= p.sum(axis=1, keepdims=True)
    label = (rng.random((n, 1)) > np.cumsum(p, axis=1)).sum(axis=1)
    stated = p**sharpen
    score = ClassScore()
    score.add(Labelled(label.astype(np.float64), stated / stated.sum(axis=1, keepdims=True)))
    return score


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("n", [50, 400, 5000])
def test_honest_classes_are_good(n: int, seed: int) -> None:
    assert judge_class_score(classes(n, 1.0, seed=seed)).level == "good"


def test_class_confidence_is_judged() -> None:
    over = judge_class_score(classes(3000, 3.0))
    assert over.headline.startswith("Over-confident")
    assert over.sentences[2].endswith("over-confident.")
    under = judge_class_score(classes(3000, 0.3))
    assert under.headline.startswith("Under-confident")
    assert judge_class_score(classes(3000, 0.3)) == under


def test_useless_classes() -> None:
    rng = np.random.default_rng(1)
    score = ClassScore()
    score.add(Labelled(rng.integers(0, 2, 1000).astype(np.float64), np.full((1000, 2), 0.5)))
    assert judge_class_score(score).headline == "No better than the class frequencies"


def test_numbers_read_well() -> None:
    assert [format_number(v) for v in (12345.678, 3.14159, 0.00123456, 1.23e-7, 0.0, -0.5)] == [
        "12,346",
        "3.142",
        "0.001235",
        "1.23e-07",
        "0.000",
        "-0.5000",
    ]
    assert format_number(99999.6) == "100,000"
    assert format_number(None) == "-"
    assert format_percent(0.8874) == "88.7 %"
    assert format_count(1024) == "1,024"


@pytest.mark.parametrize(("better", "useful"), [(0.005, False), (0.015, True)])
def test_few_rows_must_be_told_apart_by_more_than_chance(better: float, useful: bool) -> None:
    """Of 100 rows two hundredths of a nat are chance; the commonest class is said each time."""
    label = np.array([0.0] * 90 + [1.0] * 10)
    first = np.where(label == 0.0, 0.9 + better, 0.9 - better)
    score = ClassScore()
    score.add(Labelled(label, np.stack([first, 1.0 - first], axis=1)))
    headline = judge_class_score(score).headline
    assert (headline != "No better than the class frequencies") == useful


@pytest.mark.parametrize("side", [1.0, -1.0])
@pytest.mark.parametrize(("bias", "word"), [(0.4, "slightly biased"), (0.6, "biased")])
def test_a_bias_of_more_than_half_the_rmse_is_more_than_slight_on_either_side(
    side: float, bias: float, word: str
) -> None:
    _, text = describe_bias(side * bias, 1.0, 10_000)
    assert text.endswith(f" % of the RMSE: {word}.")


@pytest.mark.parametrize(
    ("severity", "level"), [(-3, "poor"), (-2, "poor"), (-1, "good"), (1, "good"), (2, "fair")]
)
def test_the_verdict_depends_on_how_far_intervals_are_off(severity: int, level: str) -> None:
    assert choose_headline(True, severity, 0, False)[0] == level


@pytest.mark.parametrize(
    ("rows", "errors", "told"), [(150, 3.3, True), (20, 3.3, False), (20, 4.3, True)]
)
def test_bias_is_reported_if_it_is_large_for_the_number_of_rows(
    rows: int, errors: float, told: bool
) -> None:
    """`errors` is the bias in standard errors, of an RMSE of 1."""
    bias = errors / np.sqrt(rows + errors**2)
    assert describe_bias(float(bias), 1.0, rows)[0] == told
