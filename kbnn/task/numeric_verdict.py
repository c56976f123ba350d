"""The figures in plain words, with the doubt that the number of rows leaves.

Every judgement compares a deviation with its sampling error over n independent rows:

    coverage of level p          sqrt(p (1 - p) / n)
    mean error (bias)            sqrt((RMSE^2 - bias^2) / n)
    mean of z^2 (1 when honest)  sqrt(2 / n)
    share of variance explained  about 4 / n is what chance alone gives

so a small test set is not judged harshly, and a large one is not praised for a tiny flaw.
"""

from __future__ import annotations

import math

from kbnn.score.verdict import MIN_VERDICT_ROWS, Level, Verdict, too_few_rows_verdict
from kbnn.task.numeric_score import NumericScore
from kbnn.wording import format_number, format_percent, format_rows

GROSS_BIAS_SHARE = 0.5
"""A bias beyond this share of the RMSE makes predictions poor; below, it adds 15 % to the RMSE."""


def describe_coverage(level: int, inside: float, rows: int) -> tuple[int, str]:
    """How the central `level` % interval did: severity -3 (far too narrow) to 3, and a sentence."""
    p = level / 100
    gap = inside - p
    error = math.sqrt(p * (1 - p) / rows)
    size = abs(gap)
    side = "narrow" if gap < 0 else "wide"
    sign = -1 if gap < 0 else 1
    text = f"the {level} % intervals held {format_percent(inside)} of {format_rows(rows)}: "
    if size <= max(0.01, error):
        return 0, text + "as they should"
    if size > max(min(0.10, p / 4), 3.5 * error) and sign < 0:
        return -3, text + "far too narrow"
    # Nothing can hold more than all rows, so too wide shows in smaller steps near 100 %.
    room = (1 - p) if sign > 0 else 0.06
    if size > max(room / 2, 2.5 * error):
        return 2 * sign, text + f"too {side}"
    doubt = ", though chance alone can do that" if size <= 2 * error else ""
    return sign, text + f"slightly too {side}{doubt}"


def judge_numeric_score(score: NumericScore) -> Verdict:
    """Judge the forecasts of one numeric target."""
    n = score.rows
    figures = score.metric_values()
    needed = ("rmse", "nll", "bias", "spread", "baseline_rmse")
    known = [figures["coverage"]["90"], *(figures[name] for name in needed)]
    if n < MIN_VERDICT_ROWS or any(
        value is None for value in known
    ):  # an older record may lack a figure
        return too_few_rows_verdict(n)
    useful, accuracy = describe_accuracy(figures["rmse"], figures["baseline_rmse"], n)
    severity, coverage = describe_coverage(90, figures["coverage"]["90"], n)
    ratio = figures["spread"] or 0.0
    spread, spread_text = describe_spread(ratio, n)
    biased, bias = describe_bias(figures["bias"], figures["rmse"], n)
    sentences = [accuracy, capitalize_first(coverage) + "."]
    sentences += [text for text in (spread_text, bias) if text]
    if figures["baseline_nll"] is not None and figures["nll"] > figures["baseline_nll"] and useful:
        sentences.append(
            f"Its NLL of {format_number(figures['nll'])} is worse than the constant's "
            f"{format_number(figures['baseline_nll'])}: the predictions help, the error bars mislead."
        )
    gross = abs(figures["bias"]) > GROSS_BIAS_SHARE * figures["rmse"]
    level, head = choose_headline(useful, severity, spread, biased, gross)
    return Verdict(level, head, tuple(sentences), severity <= -2)


def choose_headline(
    useful: bool, severity: int, spread: int, biased: bool, gross: bool = True
) -> tuple[Level, str]:
    """The gravest of the findings names the verdict."""
    if not useful:
        return "poor", "No better than a constant"
    if severity <= -2 or (spread > 0 and severity < 0):
        return "poor", "Over-confident: the error bars are too small"
    if biased and gross:
        return "poor", "Biased: the predictions are off to one side"
    if severity >= 2 and spread <= 0:
        return "fair", "Under-confident: the error bars are larger than they need be"
    if biased:
        return "fair", "Useful, but slightly biased to one side"
    if spread > 0:
        return "fair", "Good in general, but some errors are far larger than stated"
    if severity:
        side = "narrow" if severity < 0 else "wide"
        return "good", f"Good: useful predictions, error bars slightly too {side}"
    return "good", "Good: useful predictions with honest error bars"


MOST_RATIO = 1e100
"""Of two errors, beyond which nothing more is said: its square is a number yet."""


def describe_accuracy(rmse: float, baseline: float, rows: int) -> tuple[bool, str]:
    """Whether the predictions beat the best constant, R2 = 1 - (RMSE / baseline)^2, and by what."""
    if baseline == 0:
        return (
            True,
            f"RMSE {format_number(rmse)}; the target never varies, so a constant is perfect.",
        )
    r2 = 1 - min(rmse / baseline, MOST_RATIO) ** 2
    against = f"RMSE {format_number(rmse)} against {format_number(baseline)} for the best constant"
    if r2 <= max(0.01, 4 / rows):
        return False, f"{against}: no better than always saying the mean."
    return True, f"{against}: it explains {format_percent(r2)} of the variance."


def describe_spread(ratio: float, rows: int) -> tuple[int, str]:
    """Root mean square of error / stated sd: 1 (errors larger), -1 (smaller) or 0, and words."""
    error = math.sqrt(0.5 / rows)
    if ratio > 1 + max(0.15, 3 * error):
        return (
            1,
            f"Errors are {format_number(ratio, 3)} times as large as stated (root mean square).",
        )
    if ratio < 1 - max(0.15, 3 * error):
        return -1, f"Errors are only {format_number(ratio, 3)} times as large as stated."
    return 0, ""


def describe_bias(bias: float, rmse: float, rows: int) -> tuple[bool, str]:
    """Whether the mean error is more than chance and more than a fifth of the RMSE, and words.

    The limit of 3 standard errors grows for few rows, where that error is itself uncertain.
    """
    error = math.sqrt(max(rmse**2 - bias**2, 0.0) / rows)
    if rmse == 0 or abs(bias) <= max(0.2 * rmse, (3 + 15 / rows) * error):
        return False, ""
    side = "low" if bias > 0 else "high"
    share = format_percent(abs(bias) / rmse, 0)
    word = "biased" if abs(bias) > GROSS_BIAS_SHARE * rmse else "slightly biased"
    return True, (
        f"Predictions are too {side} by {format_number(abs(bias), 3)} on average, "
        f"{share} of the RMSE: {word}."
    )


def capitalize_first(text: str) -> str:
    """First letter upper case, the rest as it is."""
    return text[:1].upper() + text[1:]
