"""How forecasts of each target type are scored and summarised, and verdicts in plain words.

Every judgement compares a deviation with its sampling error over n independent rows:

    coverage of level p               sqrt(p (1 - p) / n)
    mean error (bias)                 sqrt((RMSE^2 - bias^2) / n)
    mean of z^2 (1 if calibrated)     sqrt(2 / n)
    share of variance explained       about 4 / n is what chance alone gives

so a small test set is not judged harshly, and a large one is not judged by a tiny deviation. A
series must also beat its last value and its value a season ago, over the same rows.

The baseline of classes predicts the class frequencies. Confidence is judged by the mean of max p
against the accuracy a, whose sampling error is sqrt(a (1 - a) / n). The expected calibration error
of calibrated probabilities is not 0 on n rows: a bin of n_b rows with confidence q adds about
sqrt(2 q (1 - q) n_b / pi) / n by chance, and twice that is allowed.

`METRICS_BY_TYPE` names the types that differ from other numbers; a numeric type without an entry is
scored as `NUMERIC`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import numpy as np

from kbnn.array_types import FloatArray
from kbnn.metrics.class_metrics import ClassScore, ScoredClassBatch
from kbnn.metrics.figures import MetricTable, MetricValues, Score, ScoredRows, format_metric_rows
from kbnn.metrics.numeric_metrics import NumericScore, ScoredNumericBatch
from kbnn.targets.base import TargetType
from kbnn.targets.prediction import Forecast
from kbnn.wording import format_number, format_percent, format_rows

if TYPE_CHECKING:
    from kbnn.metrics.scorecard import CurvePoint

Level = Literal["good", "fair", "poor", "unknown"]

MIN_VERDICT_ROWS = 20
"""Minimum number of scored rows for a verdict."""


@dataclass(frozen=True)
class Verdict:
    """A judgement: a level, a headline, and the sentences that give the reasons."""

    level: Level
    headline: str
    sentences: tuple[str, ...]
    overconfident: bool = False  # coverage or accuracy is clearly below its nominal value


def too_few_rows_verdict(rows: int) -> Verdict:
    """Return the verdict for fewer than MIN_VERDICT_ROWS scored rows."""
    text = f"{format_rows(rows)} scored: a verdict needs at least {MIN_VERDICT_ROWS} rows."
    return Verdict("unknown", "Too few rows to judge", (text.capitalize(),))


GROSS_BIAS_SHARE = 0.5
"""A bias beyond this share of the RMSE makes predictions poor; below, it adds 15 % to the RMSE."""


def describe_coverage(level: int, inside: float, rows: int) -> tuple[int, str]:
    """Compare the coverage of the central `level` % interval with its nominal value.

    Returns a severity from -3 (far too narrow) to 2 (too wide), and a sentence.
    """
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
    # Coverage cannot exceed 100 %, so near 100 % a smaller excess already means too wide.
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
    beaten_by, naive_text = describe_naive(score)
    severity, coverage = describe_coverage(90, figures["coverage"]["90"], n)
    ratio = figures["spread"] or 0.0
    spread, spread_text = describe_spread(ratio, n)
    biased, bias = describe_bias(figures["bias"], figures["rmse"], n)
    sentences = [accuracy, naive_text, capitalize_first(coverage) + ".", spread_text, bias]
    sentences = [text for text in sentences if text]
    if figures["baseline_nll"] is not None and figures["nll"] > figures["baseline_nll"] and useful:
        sentences.append(
            f"The NLL of {format_number(figures['nll'])} is worse than the constant's "
            f"{format_number(figures['baseline_nll'])}: the predictions are useful, "
            "but the error bars mislead."
        )
    gross = abs(figures["bias"]) > GROSS_BIAS_SHARE * figures["rmse"]
    level, head = choose_headline(useful, severity, spread, biased, gross, beaten_by)
    return Verdict(level, head, tuple(sentences), severity <= -2)


NAIVE_WORDS = {"last": "the last value", "season": "the value a season ago"}
MIN_NAIVE_SHARE = 0.5
"""Share of the rows for which a naive forecast must be known to be compared."""


def describe_naive(score: NumericScore) -> tuple[str, str]:
    """Compare a series with the better naive forecast, over the rows where it is known.

    Returns the name of a naive forecast that the model does not beat (empty if it beats both), and
    a sentence; both are empty if there is nothing to compare.
    """
    found = {name: score.naive.measure(name) for name in NAIVE_WORDS}
    least = MIN_NAIVE_SHARE * score.rows
    known = {name: one for name, one in found.items() if one is not None and one[0] >= least}
    if not known:
        return "", ""
    name = min(known, key=lambda one: known[one][1] / max(known[one][2], 1e-300))
    _, naive, own = known[name]
    against = (
        f"RMSE {format_number(math.sqrt(own))} against {format_number(math.sqrt(naive))} for "
        f"{NAIVE_WORDS[name]}"
    )
    if own >= naive:
        return name, f"{against}: no better than repeating it."
    return "", f"{against}: {format_percent(1 - math.sqrt(own / naive), 0)} smaller."


def choose_headline(
    useful: bool,
    severity: int,
    spread: int,
    biased: bool,
    gross: bool = True,
    beaten_by: str = "",
) -> tuple[Level, str]:
    """Choose level and headline by the most severe finding.

    `beaten_by` names a naive forecast that is at least as accurate.
    """
    if not useful:
        return "poor", "No better than a constant"
    if beaten_by:
        return "poor", f"No better than {NAIVE_WORDS[beaten_by]}"
    if severity <= -2 or (spread > 0 and severity < 0):
        return "poor", "Over-confident: the error bars are too small"
    if biased and gross:
        return "poor", "Biased: the predictions are off to one side"
    if severity >= 2 and spread <= 0:
        return "fair", "Under-confident: the error bars are larger than necessary"
    if biased:
        return "fair", "Useful, but slightly biased to one side"
    if spread > 0:
        return "fair", "Good in general, but some errors are far larger than predicted"
    if severity:
        side = "narrow" if severity < 0 else "wide"
        return "good", f"Good: useful predictions, error bars slightly too {side}"
    return "good", "Good: useful predictions with honest error bars"


class StepFigures(NamedTuple):
    """What a verdict on forecasts of one step ahead is based on."""

    step: int
    rows: int
    rmse: float
    last_rmse: float
    season_rmse: float | None
    coverage_90: float

    @property
    def best_naive(self) -> float:
        """The smaller RMSE of the two naive forecasts."""
        season = self.season_rmse
        return self.last_rmse if season is None or not season < self.last_rmse else season


BAND_RANGE = (0.83, 0.96)
"""Share of values inside 90 % bands that counts as holding: origins overlap, so that the sampling
error of independent rows is too strict."""
TIED_RATIO = 1.03
"""Largest RMSE, in that of the better naive forecast, that counts as equal."""
MOST_STEPS_SHARE = 0.8
ROUNDING_SHARE = 1e-9
"""RMSE, in that of the last value, below which forecasts are exact."""


def judge_steps(steps: Sequence[StepFigures]) -> Verdict:
    """Judge forecasts of several steps: do they beat naive ones, and do the bands hold?"""
    most = max((one.rows for one in steps), default=0)
    steps = [one for one in steps if one.rows >= MIN_VERDICT_ROWS]
    if not steps:
        return too_few_rows_verdict(most)
    if all(one.last_rmse == 0.0 for one in steps):
        text = "The values do not change: repeating the last one has no error."
        return Verdict("unknown", "Nothing to forecast", (text,))
    better = [one.step for one in steps if one.rmse < one.best_naive]
    worse = [
        one.step for one in steps if not (one.rmse <= TIED_RATIO * one.best_naive or _is_exact(one))
    ]
    low, high = BAND_RANGE
    narrow = [one.step for one in steps if one.coverage_90 < low]
    wide = [one.step for one in steps if one.coverage_90 > high and not _is_exact(one)]
    has_season = any(one.season_rmse is not None for one in steps)
    naive = "the last value and the value a season ago" if has_season else "the last value"
    better_naive = f"the better of {naive}" if has_season else naive
    every = f"all {len(steps)} steps" if len(steps) > 1 else f"step {steps[0].step}"
    sentences = []
    if len(better) == len(steps):
        sentences.append(f"More accurate than {naive} at {every}.")
    elif better:
        sentences.append(f"More accurate than {naive} at {_list_steps(better)}.")
    if worse:
        sentences.append(
            f"Worse than the better of them by more than 3 % at {_list_steps(worse)}."
            if better
            else f"Worse than {better_naive} by more than 3 % at {_list_steps(worse)}."
        )
    elif not better:
        sentences.append(f"As accurate as {better_naive} at {every} (within 3 %).")
    elif len(better) < len(steps):
        sentences.append("At the other steps as accurate as the better of them (within 3 %).")
    inside = [one.coverage_90 for one in steps]
    least, most_inside = format_percent(min(inside), 0), format_percent(max(inside), 0)
    held = least if least == most_inside else f"{least} to {most_inside}"
    if not narrow and not wide:
        sentences.append(f"The 90 % bands hold at {every}: {held} of the values are inside.")
    for found, word in ((narrow, "narrow"), (wide, "wide")):
        if found:
            sentences.append(
                f"The 90 % bands are too {word} at {_list_steps(found)} (in all, {held} of the "
                "values are inside)."
            )
    overconfident = len(narrow) > (1 - MOST_STEPS_SHARE) * len(steps)
    if not better or len(worse) > len(better):
        return Verdict("poor", "No better than naive forecasts", tuple(sentences), overconfident)
    if overconfident:
        return Verdict("poor", "Over-confident: the bands are too narrow", tuple(sentences), True)
    if worse or len(better) < MOST_STEPS_SHARE * len(steps):
        return Verdict("fair", "Better than naive forecasts at some steps", tuple(sentences))
    if narrow or wide:
        return Verdict("fair", "Accurate, but some bands do not hold", tuple(sentences))
    return Verdict(
        "good", "Good: better than naive forecasts, and the bands hold", tuple(sentences)
    )


def _is_exact(step: StepFigures) -> bool:
    """Return whether forecasts miss by rounding alone."""
    return step.rmse <= ROUNDING_SHARE * step.last_rmse


def _list_steps(steps: Sequence[int]) -> str:
    """List steps, consecutive ones as a range: steps 1 to 6, 9."""
    runs: list[list[int]] = []
    for step in steps:
        if runs and step == runs[-1][-1] + 1:
            runs[-1].append(step)
        else:
            runs.append([step])
    texts = [f"{run[0]} to {run[-1]}" if len(run) > 1 else str(run[0]) for run in runs]
    if len(texts) > MAX_STEP_RANGES:
        return f"{len(steps)} steps between {steps[0]} and {steps[-1]}"
    return f"step{'s' if len(steps) > 1 else ''} {', '.join(texts)}"


MAX_STEP_RANGES = 4


MOST_RATIO = 1e100
"""Limit of RMSE / baseline, so that its square does not overflow."""


def describe_accuracy(rmse: float, baseline: float, rows: int) -> tuple[bool, str]:
    """Say whether the predictions beat the best constant, by R2 = 1 - (RMSE / baseline)^2."""
    if baseline == 0:
        return (
            True,
            f"RMSE {format_number(rmse)}; the target never varies, so a constant is perfect.",
        )
    r2 = 1 - min(rmse / baseline, MOST_RATIO) ** 2
    against = f"RMSE {format_number(rmse)} against {format_number(baseline)} for the best constant"
    if r2 <= max(0.01, 4 / rows):
        return False, f"{against}: no better than always predicting the mean."
    return True, f"{against}: it explains {format_percent(r2)} of the variance."


def describe_spread(ratio: float, rows: int) -> tuple[int, str]:
    """Judge the root mean square of error / predicted sd: 1 (too large), -1 (too small) or 0."""
    error = math.sqrt(0.5 / rows)
    if ratio > 1 + max(0.15, 3 * error):
        return (
            1,
            f"Errors are {format_number(ratio, 3)} times as large as predicted (root mean square).",
        )
    if ratio < 1 - max(0.15, 3 * error):
        return -1, f"Errors are only {format_number(ratio, 3)} times as large as predicted."
    return 0, ""


def describe_bias(bias: float, rmse: float, rows: int) -> tuple[bool, str]:
    """Say whether the mean error exceeds both chance and a fifth of the RMSE.

    The limit of 3 standard errors grows for few rows, where the standard error is itself uncertain.
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
    """Return the text with its first letter in upper case."""
    return text[:1].upper() + text[1:]


def chance_calibration_error(score: ClassScore) -> float:
    """Compute the calibration error that calibrated probabilities show on these rows by chance."""
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
        f"Correct for {format_percent(accuracy)} of {format_rows(n)}; always predicting the most "
        f"common class is correct for {format_percent(constant)}."
    )
    loss = (
        f"Log-loss {format_number(log_loss)} against {format_number(frequency)} "
        "for the class frequencies"
    )
    sure = f"Mean confidence {format_percent(confidence)}, accuracy {format_percent(accuracy)}"
    useful = accuracy > constant + error or log_loss < frequency - 2 / n
    if abs(gap) <= max(0.02, 2.5 * error) and not uneven:
        sure += ": well calibrated."
    elif abs(gap) <= max(0.02, 2.5 * error):
        sure += f", but the calibration error is {format_percent(figures['ece'])}."
    else:
        sure += ": over-confident." if gap > 0 else ": under-confident."
    sentences = (right, f"{loss}{'.' if log_loss < frequency else ': no better.'}", sure)
    overconfident = gap > max(0.02, 2.5 * error)
    if not useful:
        return Verdict("poor", "No better than the class frequencies", sentences, overconfident)
    if abs(gap) > max(0.02, 2.5 * error):
        if gap > 0:
            level: Level = "poor" if gap > 0.05 or log_loss > frequency else "fair"
            return Verdict(
                level, "Over-confident: confidence exceeds accuracy", sentences, overconfident
            )
        return Verdict("fair", "Under-confident: accuracy exceeds confidence", sentences)
    if uneven:
        return Verdict("fair", "Useful, but the probabilities are poorly calibrated", sentences)
    return Verdict("good", "Good: useful predictions with honest probabilities", sentences)


class ProgressColumn(NamedTuple):
    """One column of the progress lines of training: head, width and cell."""

    head: str
    width: int
    cell: Callable[[CurvePoint, float | None], str]  # from a point and the noise sd


class TargetMetrics(NamedTuple):
    """Scoring of one target type.

    score               streaming metrics of one target
    baseline_name       name of the best constant in tables
    baseline_phrase     name of the best constant in a remark: for ...
    score_forecasts     pair the forecasts of each target with the true values y (n, T)
    prediction_columns  the forecast as columns (n, F) for the sampled rows
    errors              error of each sampled row (n,), from y (n, T) and these columns
    error_power         power of the errors: 2 for squared errors, 1 for error rates
    format_error        format the mean of the errors, given the number of targets
    judge               turn the metrics into a verdict in plain words
    format_headline     format the most important metric
    progress_columns    columns of the progress lines of training
    """

    score: type[Score]
    baseline_name: str
    baseline_phrase: str
    score_forecasts: Callable[[FloatArray, Forecast, FloatArray | None], Sequence[ScoredRows]]
    prediction_columns: Callable[[Forecast, Sequence[ScoredRows]], FloatArray]
    errors: Callable[[FloatArray, FloatArray], FloatArray]
    error_power: int
    format_error: Callable[[float, int], str]
    judge: Callable[[Any], Verdict]
    format_headline: Callable[[MetricValues], str]
    progress_columns: Sequence[ProgressColumn]


def _score_numbers(
    y: FloatArray, forecast: Forecast, weight: FloatArray | None
) -> list[ScoredNumericBatch]:
    return [
        ScoredNumericBatch(
            y[:, j],
            forecast.mean[:, j],
            forecast.stated[:, j],
            weight,
            naive=forecast.naive[:, 2 * j : 2 * j + 2],
        )
        for j in range(y.shape[1])
    ]


def _number_columns(forecast: Forecast, scored: Sequence[ScoredRows]) -> FloatArray:
    """Return the means, then the sds, then the lower and upper edges of 90 % intervals."""
    edges = [one.interval_edges for one in scored if isinstance(one, ScoredNumericBatch)]
    return np.column_stack(
        (forecast.mean, forecast.sd, *(e[0] for e in edges), *(e[1] for e in edges))
    )


def _squared_errors(y: FloatArray, columns: FloatArray) -> FloatArray:
    """Return squared errors, averaged over targets in units of their variance if several."""
    targets = y.shape[1]
    scale = np.nanvar(y, axis=0) if targets > 1 else np.ones(1)
    squares = (y - columns[:, :targets]) ** 2 / np.where(scale > 0.0, scale, 1.0)
    return np.asarray(np.mean(squares, axis=1))


def _format_squared_error(mean: float, targets: int) -> str:
    what = "RMSE" if targets == 1 else "a standardised RMSE of"
    return f"{what} {format_number(float(np.sqrt(mean)), 3)}"


def _score_classes(
    y: FloatArray, forecast: Forecast, weight: FloatArray | None
) -> list[ScoredClassBatch]:
    return [ScoredClassBatch(y[:, 0], forecast.probability, weight)]


def _wrong_classes(y: FloatArray, columns: FloatArray) -> FloatArray:
    """Return 1 where the most probable class was wrong."""
    wrong = np.argmax(columns, axis=1) != y[:, 0]
    return np.where(np.isfinite(y[:, 0]), wrong.astype(np.float64), np.nan)


NUMERIC: Final = TargetMetrics(
    NumericScore,
    "constant",
    "for the best constant",
    _score_numbers,
    _number_columns,
    _squared_errors,
    2,
    _format_squared_error,
    judge_numeric_score,
    lambda values: f"RMSE {format_number(values['rmse'], 3)}",
    (
        ProgressColumn("RMSE", 10, lambda point, noise: format_number(point.loss)),
        ProgressColumn("since last", 12, lambda point, noise: format_number(point.since_loss)),
        ProgressColumn("NLL", 10, lambda point, noise: format_number(point.nll)),
        ProgressColumn("in 90 %", 10, lambda point, noise: format_percent(point.coverage_90)),
        ProgressColumn("noise sd", 10, lambda point, noise: format_number(noise)),
    ),
)

METRICS_BY_TYPE: Final = {
    "count": NUMERIC._replace(
        progress_columns=(
            *NUMERIC.progress_columns[:-1],
            ProgressColumn("dispersion", 12, lambda point, noise: format_number(noise)),
        )
    ),
    "classification": TargetMetrics(
        ClassScore,
        "class shares",
        "for the class shares",
        _score_classes,
        lambda forecast, scored: forecast.probability,
        _wrong_classes,
        1,
        lambda mean, targets: f"{format_percent(1.0 - mean)} right",
        judge_class_score,
        lambda values: f"accuracy {format_percent(values['accuracy'])}",
        (
            ProgressColumn("errors", 10, lambda point, noise: format_percent(point.loss)),
            ProgressColumn("since last", 12, lambda point, noise: format_percent(point.since_loss)),
            ProgressColumn("log-loss", 10, lambda point, noise: format_number(point.nll)),
            ProgressColumn("since last", 12, lambda point, noise: format_number(point.since_nll)),
        ),
    ),
}
"""Target types that are not scored as `NUMERIC`, by name."""


def find_metrics(task: TargetType) -> TargetMetrics:
    """Return how a target type is scored."""
    return METRICS_BY_TYPE.get(task.name, NUMERIC)


def build_metric_table(
    task: TargetType, values: MetricValues, target: str, *, brief: bool = False
) -> MetricTable:
    """Build the table of one target's metrics beside those of the best constant."""
    known = find_metrics(task)
    rows = format_metric_rows(known.score.figures_listed, values, target, brief=brief)
    return MetricTable(known.baseline_name, rows)
