"""Tasks and scores: what is stated of each kind of target, judged, told, counted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from zlib import crc32

import numpy as np

from kbnn.array_types import FloatArray
from kbnn.core.kernel import Prediction
from kbnn.data.schema import Column, Schema
from kbnn.distributions import (
    calibration,
    negative_binomial,
    predictive,
    transformed_normal,
)
from kbnn.distributions.dispatch import read_distribution
from kbnn.distributions.negative_binomial import NegativeBinomial
from kbnn.distributions.normal_mixture import NormalMixture
from kbnn.distributions.predictive import PARAM
from kbnn.distributions.transformed_normal import Hurdle, LogLink
from kbnn.errors import DataError, UsageError
from kbnn.metrics.class_metrics import ClassScore
from kbnn.metrics.class_metrics import ScoredClassBatch as JudgedLabels
from kbnn.metrics.figures import PinballLoss, explain_met_checks, parse_check
from kbnn.metrics.numeric_metrics import NumericScore, ScoredNumericBatch
from kbnn.metrics.samples import (
    FeatureHistograms,
    PitHistogram,
    PrioritySample,
    StreamSummaries,
    choose_sample_rows,
    fitting_level,
    hash_row_order,
)
from kbnn.metrics.scorecard import Scorecard
from kbnn.metrics.sections import list_effect_quantities
from kbnn.metrics.verdicts import (
    chance_calibration_error,
    choose_headline,
    describe_accuracy,
    describe_bias,
    describe_coverage,
    describe_spread,
    find_metrics,
    judge_class_score,
)
from kbnn.model.settings import Settings
from kbnn.output.fields import OutputOptions, list_class_probabilities, list_output_fields
from kbnn.targets.base import CalibrationUpdate, TargetScale, TargetType, make_empty_forecast
from kbnn.targets.classification import apply_class_temperature, init_class_temperature
from kbnn.targets.prediction import Forecast, log_density
from kbnn.targets.registry import (
    TARGET_TYPES,
    TargetSample,
    candidate_types,
    choose_target_type,
    make_target_type,
    widen_target_type,
)
from tests.pinned.record import Case, bells, grouped, parts, table, uniform
from tests.pinned.stated import rows as mixtures


def words(*texts: str) -> FloatArray:
    """Texts as numbers: another text is another number."""
    return np.array([float(crc32(text.encode())) for text in texts])


def schema_of(kind: str, targets: Sequence[str] = ("y",), classes: Sequence[str] = ()) -> Schema:
    """Of one kind of target and no features."""
    labels = kind == "classification"
    columns = [Column(name, "category" if labels else "number", "target") for name in targets]
    return Schema(columns, kind, list(classes))


def task(kind: str, targets: Sequence[str] = ("y",), classes: Sequence[str] = ()) -> TargetType:
    """A task without a model."""
    return make_target_type(schema_of(kind, targets, classes), Settings())


def told_of(kind: int) -> tuple[FloatArray, FloatArray]:
    """What is stated of rows of a kind, and values beside it."""
    told = mixtures()
    told[:, PARAM.kind] = kind
    count = len(told)
    y = told[:, PARAM.place] + told[:, PARAM.spread] * 2.0 * bells(count, 1, 4)[:, 0]
    if kind == NormalMixture.code:
        return told, y
    told[:, PARAM.ratio] = np.minimum(told[:, PARAM.ratio], 50.0)
    told[:, PARAM.shift] *= 0.1
    told[:, PARAM.unit] = np.where(np.arange(count) % 3, 0.8, 0.0)
    if kind == NegativeBinomial.code:
        told[:, PARAM.place] = 0.1 + 9.0 * uniform(count, 1, 8)[:, 0]
        told[5, PARAM.place], told[6, PARAM.spread] = 4e4, 1e-4
        y = np.floor(2.0 * told[:, PARAM.place] * uniform(count, 1, 9)[:, 0])
        y[3:5] = [0.0, 500.0]
        return told, y
    y = np.exp(0.5 * y)
    y[::4] = np.rint(y[::4]) + 1.0
    if kind == Hurdle.code:
        told[:, PARAM.none] = 0.02 + 0.9 * uniform(count, 1, 6)[:, 0]
        y = np.where(uniform(count, 1, 7)[:, 0] < 0.4, 0.0, y)
    return told, y


def kinds() -> dict[str, Any]:
    """Distributions: quantiles, intervals, densities, judgement."""
    found: dict[str, Any] = {}
    mixed = []
    for kind, name in enumerate(("real", "positive", "count", "amount")):
        told, y = told_of(kind)
        mixed.append((told[:5], y[:5]))
        for share in (0.02, 0.3, 0.5, 0.9, 0.999):
            found[f"{name} quantile {share:g}"] = read_distribution(told).quantile(share)
        for share in (0.4, 0.5, 0.8, 0.9, 0.97):
            found[f"{name} interval {share:g}"] = np.column_stack(
                read_distribution(told).interval(share)
            )
        judged = read_distribution(told).score_values(y)._asdict()
        found |= {f"{name} {part}": value for part, value in judged.items()}
        for finest in (1.0, 0.01):
            found[f"{name} density {finest:g}"] = read_distribution(told).log_density(y, finest)
        odd = np.array([-1.0, 0.0, 0.5, 3.0, np.inf, np.nan, 2.0**54])
        found[f"{name} possible"] = table(read_distribution(told[: len(odd)]).in_support(odd))
    told, y = np.concatenate([t for t, _ in mixed]), np.concatenate([v for _, v in mixed])
    found |= {
        f"mixed {part}": value
        for part, value in read_distribution(told).score_values(y)._asdict().items()
    }
    count, _ = told_of(NegativeBinomial.code)
    ks = np.where(np.arange(len(count)) % 2, 2.5, -0.5)
    found["count cdf"] = NegativeBinomial(count).cdf(ks)
    found["count hashed"] = table(negative_binomial.hash_uniform(np.arange(8.0), mixtures(8)))
    amount, y = told_of(Hurdle.code)
    found["amount cdf"] = Hurdle(amount).cdf(np.where(y > 1.0, y, -y))
    found["amount finest"] = transformed_normal.zero_bin_width(np.array([0.0, 3.0]))
    found["logged crps"] = LogLink(told_of(LogLink.code)[0]).crps(np.maximum(y, 0.2))
    found["powers"] = table(transformed_normal.exp_clipped(np.array([-999.0, 0.5, 999.0])))
    return found


def links() -> dict[str, Any]:
    """Of positive targets."""
    y = np.array([1e-30, 1e-3, 0.2, 1.0, 5.0, 700.0, 1e200, 0.0, -1.0, np.nan])
    z = np.array([-800.0, -31.0, -29.0, -3.0, 0.0, 2.0, 50.0, 900.0])
    found: dict[str, Any] = {
        "units": table(
            transformed_normal.choose_link_unit(y), transformed_normal.choose_link_unit(-np.abs(y))
        )
    }
    for unit in (0.0, 0.3, 40.0):
        u = np.array([unit])
        found[f"linked {unit:g}"] = table(transformed_normal.apply_link(y, u))
        found[f"valued {unit:g}"] = table(transformed_normal.apply_inverse_link(z, u))
        found[f"slope {unit:g}"] = table(transformed_normal.log_slope(y[:7], u))
    found["times"] = table(
        transformed_normal.multiply_clipped(np.array([1e300, 2.0]), np.array([1e300, 3.0]))
    )
    return found


def said(outputs: int, rows: int = 14) -> Prediction:
    """What a network may say."""
    none = np.zeros((rows, 0))
    inlier, status = uniform(rows, 1, 3)[:, 0], np.ones(rows)
    parts = bells(rows, outputs, 1), uniform(rows, outputs, 2), 0.1 + uniform(rows, outputs, 4)
    return Prediction(*parts, none, inlier, status)


def forecasts() -> dict[str, Any]:
    """From what a network says to what is stated in the user's units, and figures of it."""
    found: dict[str, Any] = {}
    for name in ("regression", "positive", "count", "amount"):
        one = task(name, ("a", "b"))
        raw = np.exp(bells(14, 2, 5))
        raw = np.floor(3.0 * raw) if name == "count" else raw
        raw = np.where(uniform(14, 2, 6) < 0.3, 0.0, raw) if name == "amount" else raw
        raw[3, 0] = np.nan
        y = one.link(raw, one.init_calibration(True, raw))
        found[f"{name} linked"] = y
        outputs = one.count_outputs(y)
        made = said(outputs)
        scaled = TargetScale(np.array([0.5, -1.0]), np.array([2.0, 0.3]))
        if not one.scaled:
            scaled = TargetScale(np.zeros(0), np.zeros(0))
        for mixed in (True, False):
            known = one.init_calibration(mixed, raw)
            told = one.build_forecast(made, scaled, mixed, known)
            found |= _parts(f"{name} {mixed}", told)
        # u of counts and of zeros is drawn by a hash of bits: what follows it is left out.
        tracked = name in ("regression", "positive")
        following = CalibrationUpdate(y, True, tracked)
        known = one.init_calibration(True, raw)
        told = one.build_forecast(made, scaled, True, known, following)
        found |= _parts(f"{name} followed", told)
        found[f"{name} known"] = known
        found[f"{name} back"] = one.inverse_link(y, one.init_calibration(True, raw))
        found[f"{name} likelihood"] = one.log_likelihood(made, y)
        found[f"{name} density"] = log_density(told, raw)
        found[f"{name} finest"] = np.array([one.zero_bin_width(known)])
        begin = one.initial_output_mean(y)
        found[f"{name} output mean"] = np.zeros(0) if begin is None else begin
        early = one.make_cold_start()
        found[f"{name} varied"] = np.array(
            [early.rows_until_varied(raw), early.rows_until_varied(raw[:1])]
        )
        for at, part in enumerate((raw[:5], raw[5:])):
            found |= _parts(f"{name} early {at}", early.predict_then_update(part))
        wanted = OutputOptions(0.8, (0.05, 0.5), decompose=True, outlier=True)
        for field in list_output_fields(one, wanted):
            found[f"{name} {field.name}"] = np.asarray(field.values(told), np.float64)
        metrics = find_metrics(one)
        columns = metrics.prediction_columns(told, metrics.score_forecasts(raw, told, None))
        found[f"{name} said"] = columns
        found[f"{name} errors"] = metrics.errors(raw, columns)
        quantities = list_effect_quantities(one, outputs)
        found[f"{name} quantities"] = table(*(made.values(told) for made in quantities))
    labels = task("classification", classes=("u", "v", "w"))
    y = np.floor(3.0 * uniform(14, 1, 6))
    y[2] = np.nan
    p = uniform(14, 3, 7) ** 3
    made = said(3)._replace(probability=p / p.sum(axis=1, keepdims=True))
    told = labels.build_forecast(
        made, TargetScale(np.zeros(0), np.zeros(0)), True, np.zeros((0, 0))
    )
    known = init_class_temperature(labels.labels, True, 3, y)
    sharp = apply_class_temperature(told, known, CalibrationUpdate(y, True, True))
    found["labels sharp"], found["labels known"] = sharp.probability, known
    found["labels at rest"] = apply_class_temperature(told, known).probability
    found["labels likelihood"] = labels.log_likelihood(made, y)
    found["labels density"] = log_density(sharp, y)
    found["labels errors"] = find_metrics(labels).errors(y, sharp.probability)
    early = labels.make_cold_start()
    found["labels early"] = early.predict_then_update(y[:6]).probability
    found["labels early then"] = early.predict_then_update(y[6:]).probability
    found["labels quantities"] = table(
        *(made.values(sharp) for made in list_effect_quantities(labels, 3))
    )
    found["labels padded"] = list_class_probabilities(labels, told._replace(probability=p[:, :2]))
    return found


def _parts(prefix: str, told: Forecast) -> dict[str, Any]:
    made = told._asdict().items()
    return grouped({f"{prefix}/{name}": part for name, part in made if part.size})


def chosen() -> dict[str, Any]:
    """Which kinds of target first values call for."""
    schema = schema_of("regression")
    streams = {
        "any": [-1.0, 2.5, 3.0],
        "positive": [0.3, 2.0, 9.5],
        "small counts": [1.0, 2.0, 9.0],
        "counts": [0.0, 1.0, 4.0],
        "binary": [0.0, 1.0, 1.0],
        "prices": [100.0, 120.0, 99.0, 250.0],
        "nearly prices": [99.0, 120.0, 99.0, 90.0],
        "amounts": [0.0, 0.0, 2.5],
        "one none": [0.0, 1.5, 2.5],
        "few none": [0.0, 0.0, *[2.5] * 39],
        "too few none": [0.0, 0.0, *[2.5] * 40],
        "whole amounts": [0.0, 0.0, 10.0, 12.0],
        "small whole amounts": [0.0, 0.0, 9.0, 9.0],
        "large whole amounts": [0.0, 0.0, 100.0, 150.0],
        "none": [0.0, 0.0],
        "unknown": [np.nan, 2.0],
    }
    found = {
        name: words(",".join(candidate_types(schema, np.array(y)[:, None])))
        for name, y in streams.items()
    }
    targets = {
        "numbers": TargetSample("y", "number", {"1", "2.5"}, {1.0, 2.5}),
        "binary": TargetSample("y", "number", {"0", "1"}, {0.0, 1.0}),
        "truths": TargetSample("y", "boolean", {"true", "false"}, None),
        "texts": TargetSample("y", "category", {"u", "v"}, None),
    }
    for name, seen in targets.items():
        for said_of in ("auto", "regression", "classification", "positive"):
            try:
                choice = choose_target_type([seen], said_of)
                text = f"{choice.task} {choice.classes} {choice.closed} {bool(choice.notice)}"
            except (DataError, UsageError) as error:
                text = type(error).__name__
            found[f"chosen {name} {said_of}"] = words(text)
    for kind in TARGET_TYPES:
        found[f"wider {kind}"] = words(
            *(widen_target_type(kind, np.array([[v]])) for v in (-1.0, 0.0, 1.5, np.inf))
        )
    return found


def sentences() -> dict[str, Any]:
    """What is said of figures, close to where it turns."""
    found: dict[str, Any] = {}
    for rows in (30, 400, 20_000):
        found[f"coverage {rows}"] = table(
            *(
                describe_coverage(level, inside, rows)[0]
                for level in (20, 50, 90, 95)
                for inside in np.round(np.arange(0.1, 1.0, 0.013), 3)
            )
        )
        found[f"accuracy {rows}"] = table(
            *(describe_accuracy(rmse, 1.0, rows)[0] for rmse in np.arange(0.9, 1.01, 0.0013))
        )
        ratios = np.arange(0.5, 1.6, 0.011)
        found[f"spread {rows}"] = table(*(describe_spread(ratio, rows)[0] for ratio in ratios))
        biases = np.arange(-1.0, 1.01, 0.037)
        found[f"bias {rows}"] = table(*(describe_bias(bias, 1.0, rows)[0] for bias in biases))
        found[f"bias words {rows}"] = words(*(describe_bias(b, 1.0, rows)[1] for b in biases))
    found["headlines"] = words(
        *(
            choose_headline(useful, severity, spread, biased, gross)[0]
            + choose_headline(useful, severity, spread, biased, gross)[1][:9]
            for useful in (True, False)
            for severity in range(-3, 4)
            for spread in (-1, 0, 1)
            for biased in (True, False)
            for gross in (True, False)
        )
    )
    for rows in (40, 3000):
        for name, sure in (("even", 0.6), ("sure", 0.9), ("unsure", 0.45), ("blind", 0.35)):
            levels = []
            for right in np.arange(0.3, 0.98, 0.04):
                score = ClassScore()
                p = np.tile([sure, 0.98 - sure, 0.02], (rows, 1))
                label = np.where(np.arange(rows) < right * rows, 0.0, 1.0 + np.arange(rows) % 2)
                score.add(JudgedLabels(label, p))
                verdict = judge_class_score(score)
                levels.append(verdict.level + verdict.headline[:7])
            found[f"labels {name} {rows}"] = words(*levels)
    found["constant"] = table(describe_accuracy(0.4, 0.0, 50)[0], describe_bias(0.0, 0.0, 50)[0])
    return found


def judged_card(kind: str, weights: bool) -> Scorecard:
    """A record of rows, in blocks that cross the points of its curve."""
    one = task(kind, ("a", "b") if kind == "regression" else ("a",), ("u", "v", "w"))
    card = Scorecard(one, 2, seed=3)
    count = 150
    x = bells(count, 2, 1)
    x[5, 0], x[40, 1] = np.nan, 300.0
    weight = 0.5 + uniform(count, 1, 2)[:, 0] if weights else None
    if kind == "classification":
        p = uniform(count, 3, 3) ** 3
        p = p / p.sum(axis=1, keepdims=True)
        y = np.where(uniform(count, 1, 4) < 0.6, np.argmax(p, axis=1)[:, None], 1.0)
        made = make_empty_forecast(count, 0)._replace(probability=p)
    else:
        targets = len(one.targets)
        mean, sd = bells(count, targets, 5), 0.4 + uniform(count, targets, 6)
        y = mean + sd * 1.2 * bells(count, targets, 7) + 0.1
        known = calibration.init_calibration(targets)
        known[:, calibration.FIRST_GAIN : calibration.MEAN_SCALE_FACTOR] = 1.2
        told = calibration.apply_calibration(known, mean, sd)
        made = make_empty_forecast(count, targets)._replace(
            mean=mean, sd=sd, noise_sd=sd, stated=told
        )
    y[9, 0] = np.nan
    number = np.arange(count) * 2
    for start, stop in ((0, 20), (20, 21), (21, 100), (100, count)):
        here = slice(start, stop)
        part = Forecast._make(array[here] for array in made)
        w = None if weight is None else weight[here]
        card.add(x[here], y[here], part, w, number[here])
    return card


def records() -> dict[str, Any]:
    """Figures, curves, summaries, verdicts."""
    found: dict[str, Any] = {}
    for kind in ("regression", "classification"):
        for weights in (True, False):
            name = f"{kind} {weights}"
            card = judged_card(kind, weights)
            header, arrays = card.to_state()
            found |= parts(name, {"scores": header["scores"], "figures": card.metric_values()})
            found |= parts(name, {"curve": header["curve"], **header["summaries"]})
            found |= {f"{name} {part}": array.ravel() for part, array in arrays.items()}
            points = [[p.to_json() for p in one] for one in card.curve_points()]
            found |= parts(name, {"points": points})
            verdicts = [find_metrics(card.task).judge(score) for score in card.scores]
            found[f"{name} verdict"] = words(*(v.level for v in verdicts))
            quantiles = card.summaries.feature_quantiles(0, np.array([0.1, 0.5, 0.9]))
            found[f"{name} quantiles"] = table(quantiles, card.summaries.sample.rank_rows())
            if kind == "classification":
                score: Any = card.scores[0]
                found[f"{name} reliability"] = table(
                    *score.reliability_curve(), chance_calibration_error(score)
                )
            else:
                pit = card.scores[0].pit  # type: ignore[attr-defined]
                found[f"{name} pit"] = table(pit.bar_counts(), *pit.coverage_curve())
                edges, counts = card.summaries.features.used_bins(0)
                found[f"{name} bins"] = table(edges, counts)
    return found


def kept() -> dict[str, Any]:
    """Histograms, samples, quantiles' losses and checks."""
    found: dict[str, Any] = {}
    histograms = FeatureHistograms(2)
    x = bells(60, 3, 2) * np.array([1.0, 1e-5, 400.0])
    x[3, 1] = np.nan
    for start, stop in ((0, 10), (10, 11), (11, 60)):
        histograms.add(x[start:stop, : 2 if start < 11 else 3])
    histograms.add_features(5, np.array([0.0, 0.0, 0.0, np.nan, 0.0]))
    found |= parts("features", histograms.to_json())
    found["counts"] = table(histograms.counts)
    pairs = ((0.0, 0.0), (-1.0, 1.0), (3.0, 3.0), (1e-300, 2e-300), (-5.0, 1e9), (0.0, 64.0))
    found["levels"] = table(*(fitting_level(*pair) for pair in pairs))
    pit = PitHistogram()
    pit.add(uniform(70, 1, 3)[:, 0])
    pit.add(np.array([0.0, 1.0]))
    found["pit"] = table(pit.counts, pit.bar_counts(), *pit.coverage_curve())
    rows = PrioritySample(9)
    order = np.arange(30.0)
    priority = np.where(order % 4 == 0, 2.0, hash_row_order(order, 5))
    for part in (slice(0, 12), slice(12, 13), slice(13, 30)):
        y = x[part, :1]
        rows.offer_rows(order[part], order[part] + 1.0, priority[part], x[part], y, y)
    rows.add_columns(np.array([0.0, 0.0, 0.0, 7.0]))
    found |= {f"rows {name}": array.ravel() for name, array in rows.to_arrays("kept").items()}
    found["sample rows"] = table(*(choose_sample_rows(n) for n in (0, 1, 128, 129, 500, 2000)))
    found["hash"] = table(hash_row_order(np.arange(5.0), 0), hash_row_order(np.arange(5.0), 9))
    many = StreamSummaries(1, 1, 8)
    told = bells(5000, 1, 4)
    for part in (slice(0, 4000), slice(4000, 4099), slice(4099, 5000)):
        many.add(told[part], told[part], told[part], np.abs(told[part, 0]))
    header, arrays = many.to_state()
    found |= parts("many", header)
    found |= {f"many {name}": array.ravel() for name, array in arrays.items()}
    losses = PinballLoss((0.1, 0.5, 0.9))
    losses.add(x[:30, 0], x[:30, :1] + np.array([-1.0, 0.1, 0.8]), None)
    losses.add(x[30:, 0], x[30:, :1] + np.array([-1.0, 0.1, 0.8]), uniform(30, 1, 8)[:, 0])
    found["pinball"] = table(*losses.mean_losses())
    figures = {"rmse": 3.0, "baseline_rmse": 4.0, "coverage": {"90": 0.85}, "nll": None}
    names = ["rmse", "baseline_rmse", "coverage_90", "nll"]
    checks = ["rmse>3", "rmse>=3", "rmse<3", "rmse<=3", "coverage.90<86%", "coverage_90<0.85",
              "rmse<baseline_rmse", "nll>1", "a.rmse>2", "rmse>nll"]  # fmt: skip
    found["checks"] = table(
        *(len(explain_met_checks([parse_check(c, names, ["a"])], {"a": figures})) for c in checks)
    )
    return found


def judged_rows() -> dict[str, Any]:
    """Terms of every figure, row by row."""
    found: dict[str, Any] = {}
    told, y = told_of(NormalMixture.code)
    told[2, PARAM.spread], y[4], y[6] = 0.0, np.nan, 1e150
    made = ScoredNumericBatch(y, told[:, PARAM.place], told, uniform(len(y), 1, 3)[:, 0])
    for figure in NumericScore.figures_listed:
        if figure.term is not None:
            found[figure.name] = np.asarray(figure.term(made))
    found["surprise"], found["edges"] = made.row_losses, np.column_stack(made.interval_edges)
    found["counts"] = table(made.skipped, made.invalid, made.is_unweighted)
    p = uniform(12, 3, 5)
    p = p / p.sum(axis=1, keepdims=True)
    label = np.array([0.0, 1, 2, 2, 1, 0, np.nan, -1.0, 4.0, 1, 1, 0])
    p[10] = np.nan
    p[11] = [0.0, 0.5, 0.5]
    labels = JudgedLabels(label, p)
    for name in ("confidence", "p_label", "correct", "log_loss", "brier", "row_losses", "top"):
        shown = "surprise" if name == "row_losses" else name
        found[f"label {shown}"] = np.asarray(getattr(labels, name), np.float64)
    found["label counts"] = table(
        labels.skipped, labels.invalid, labels.is_unweighted, labels.p.shape
    )
    found["mixture"] = np.array([float(predictive.GAIN_COUNT)])
    return found


def cases() -> dict[str, Case]:
    """All of them."""
    return {
        "kinds": Case(kinds),
        "links": Case(links),
        "forecasts": Case(forecasts),
        "chosen": Case(chosen),
        "sentences": Case(sentences),
        "records": Case(records),
        "kept": Case(kept),
        "judged": Case(judged_rows),
    }
