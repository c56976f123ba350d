"""Class figures in plain words, with the doubt that the number of rows leaves.

The baseline knows the class frequencies. Confidence is judged by the mean of max p against the
share correct, whose sampling error is sqrt(a (1 - a) / n). The calibration error of honest
probabilities is not 0 on n rows: a bin of n_b rows with confidence q adds about
sqrt(2 q (1 - q) n_b / pi) / n by chance, and twice that is forgiven.
"""

from __future__ import annotations

import math

from kbnn.score.verdict import MIN_VERDICT_ROWS, Level, Verdict, too_few_rows_verdict
from kbnn.task.class_score import ClassScore
from kbnn.wording import format_number, format_percent, format_rows


def chance_calibration_error(score: ClassScore) -> float:
    """Calibration error that honest probabilities show on these rows by chance."""
    weight, confidence, _ = score.reliability_curve()
    total = float(weight.sum())
    noise = [
        math.sqrt(2 * q * max(1 - q, 0.0) * w / math.pi)
        for q, w in zip(confidence.tolist(), weight.tolist(), strict=True)
        if w > 0
    ]
    return math.fsum(noise) / total if total > 0 else 0.0


def judge_class_score(score: ClassScore) -> Verdict:
    """Judge the probabilities of one class target."""
    n = score.rows
    if n < MIN_VERDICT_ROWS:
        return too_few_rows_verdict(n)
    figures = score.metric_values()
    if any(value is None for value in figures.values()):  # an older record may lack a figure
        return too_few_rows_verdict(n)
    accuracy, log_loss = figures["accuracy"], figures["log_loss"]
    constant, frequency = figures["baseline_accuracy"], figures["baseline_log_loss"]
    confidence = score.mean_term("confidence") or 0.0
    error = math.sqrt(max(accuracy * (1 - accuracy), 0.25 / n) / n)
    gap = confidence - accuracy
    chance = chance_calibration_error(score)
    uneven = figures["ece"] > chance + max(0.03, chance)
    right = (
        f"Right for {format_percent(accuracy)} of {format_rows(n)}; the commonest class alone is right for "
        f"{format_percent(constant)}."
    )
    loss = f"Log-loss {format_number(log_loss)} against {format_number(frequency)} for the class frequencies"
    sure = f"On average {format_percent(confidence)} sure and {format_percent(accuracy)} right"
    useful = accuracy > constant + error or log_loss < frequency - 2 / n
    if abs(gap) <= max(0.02, 2.5 * error) and not uneven:
        sure += ": honest."
    elif abs(gap) <= max(0.02, 2.5 * error):
        sure += f", but the calibration error is {format_percent(figures['ece'])}."
    else:
        sure += ": over-confident." if gap > 0 else ": under-confident."
    sentences = (right, f"{loss}{'.' if log_loss < frequency else ': no better.'}", sure)
    surer = gap > max(0.02, 2.5 * error)
    if not useful:
        return Verdict("poor", "No better than the class frequencies", sentences, surer)
    if abs(gap) > max(0.02, 2.5 * error):
        if gap > 0:
            level: Level = "poor" if gap > 0.05 or log_loss > frequency else "fair"
            return Verdict(level, "Over-confident: surer than it is right", sentences, surer)
        return Verdict("fair", "Under-confident: righter than it is sure", sentences)
    if uneven:
        return Verdict("fair", "Useful, but the probabilities are uneven", sentences)
    return Verdict("good", "Good: useful predictions with honest probabilities", sentences)
