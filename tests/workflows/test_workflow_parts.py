"""Small parts above the mathematics whose change larger tests would not notice, each by itself."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pytest

import kbnn
from kbnn import Config, init
from kbnn.array_types import FloatArray
from kbnn.core.jacobian import Sensitivity, compute_sensitivity
from kbnn.core.layout import layout_of
from kbnn.data.batch import Rows
from kbnn.data.column_types import ColumnSample, suggest_classification
from kbnn.data.csv_records import missing_column_error
from kbnn.data.number_format import report_ambiguous_points
from kbnn.data.read_options import ReadOptions
from kbnn.data.schema import Column, Schema
from kbnn.data.timestamps import parse_timestamp
from kbnn.errors import UsageError
from kbnn.fleet.key_index import KeyScores
from kbnn.fleet.pooling import KEY_DISCOUNT, BetweenKeyVariance, create_pooled_model
from kbnn.metrics.numeric_metrics import NumericScore
from kbnn.metrics.scorecard import FIRST_POINT_ROWS, LearningCurve
from kbnn.metrics.sections import list_effect_quantities
from kbnn.metrics.verdicts import choose_headline, describe_bias, find_metrics
from kbnn.model import merge, scaler
from kbnn.model.diagnostics import Effect, _build_effects
from kbnn.model.learner import LearnerState
from kbnn.model.model import OnlineModel
from kbnn.model.settings import Settings
from kbnn.targets.registry import make_target_type
from kbnn.wording import format_number
from kbnn.workflows import model_report, run_results
from kbnn.workflows.checkpoint import Position, format_sources
from kbnn.workflows.comparing import diff_effects
from kbnn.workflows.inspecting import inspect_model
from kbnn.workflows.options import check_columns
from tests.bench.data import block, schema
from tests.judging import judged, number_task, numbers


def learned(rows: int = 200, targets: int = 1, seed: int = 0) -> OnlineModel:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((rows, 2))
    y = np.column_stack([(10.0**k) * (x[:, 0] + 0.1 * x[:, 1]) for k in range(targets)])
    made = OnlineModel(Settings(hidden=(4,), rehearse=0, kind="regression"), schema(2, targets))
    made.learn(block(x, y))
    return made


def test_a_stretch_of_the_curve_tells_of_its_own_rows() -> None:
    curve, score = LearningCurve(1), NumericScore()
    for error in (8.0, 2.0):
        for piece in curve.split_at_points(FIRST_POINT_ROWS):
            n = piece.stop - piece.start
            score.add(judged(np.full(n, error), np.zeros(n), np.ones(n)))
            curve.advance_rows(n, [score])
    first, second = curve.points[0]
    assert (first.loss, first.since_loss) == (8.0, 8.0)
    assert second.since_loss == 2.0
    assert second.loss == pytest.approx(np.sqrt((64.0 + 4.0) / 2.0))


@pytest.mark.parametrize(
    ("severity", "level"), [(-3, "poor"), (-2, "poor"), (-1, "good"), (1, "good"), (2, "fair")]
)
def test_how_grave_it_is_that_intervals_are_off(severity: int, level: str) -> None:
    assert choose_headline(True, severity, 0, False)[0] == level


@pytest.mark.parametrize(
    ("rows", "errors", "told"), [(150, 3.3, True), (20, 3.3, False), (20, 4.3, True)]
)
def test_few_rows_must_be_further_off_to_be_biased(rows: int, errors: float, told: bool) -> None:
    """`errors` is the bias in standard errors, of an RMSE of 1."""
    bias = errors / np.sqrt(rows + errors**2)
    assert describe_bias(float(bias), 1.0, rows)[0] == told


@pytest.mark.parametrize(("ratio", "told"), [(1.4, False), (1.8, True)])
def test_a_quarter_more_error_is_a_half_more_of_its_square(
    ratio: float, told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = learned()
    answers = iter((ratio, 1.0))

    def errors(y: FloatArray, said: FloatArray) -> FloatArray:
        return np.full(len(y), next(answers))

    metrics = find_metrics(model.task)._replace(errors=errors)
    monkeypatch.setattr(run_results, "find_metrics", lambda task: metrics)
    assert (run_results.measure_forgetting(model) is not None) == told


def test_errors_of_several_targets_count_each_in_its_scale() -> None:
    model = learned(targets=2)
    y = np.array([[0.0, 0.0], [1.0, 100.0], [2.0, 200.0]])
    said = y + np.array([[0.5, 0.0], [0.0, 50.0], [0.0, 0.0]])
    errors = find_metrics(model.task).errors(y, said)
    assert errors[0] == pytest.approx(errors[1])
    assert errors[2] == 0.0


def test_statistics_of_shares_are_those_of_all_rows() -> None:
    rng = np.random.default_rng(1)
    near, far = rng.normal(0.0, 1.0, (90, 1)), rng.normal(50.0, 2.0, (60, 1))
    together = merge._merge_columns([scaler.fit_scaler(near), scaler.fit_scaler(far)], np.zeros(1))
    every = np.concatenate((near, far))
    assert together[0, scaler.COUNT] == 150
    assert together[0, scaler.CENTER] == pytest.approx(every.mean())
    assert together[0, scaler.SCALE] == pytest.approx(every.std())


def test_rows_of_shares_are_numbered_one_share_after_another() -> None:
    models = [learned(60), learned(50, seed=1)]
    kept = merge._merge_buffers(
        models, [model.learner_state.buffer.rows() for model in models]
    ).rows()
    assert kept.number.tolist() == list(range(1, 111))


def test_a_pipe_never_has_the_same_rows_again() -> None:
    for source, same in (("a.csv", True), ("-", False)):
        run = Position((source,))
        assert run.reads_same_rows(Position((source,))) == same


def test_a_key_begins_with_as_many_networks_as_a_race_chose_for_all() -> None:
    settings = Settings(hidden=(4,), rehearse=0, kind="regression")
    common = OnlineModel(replace(settings, ensemble=3), schema(2))
    rng = np.random.default_rng(3)
    x = rng.standard_normal((80, 2))
    common.learn(block(x, x[:, :1]))
    key = create_pooled_model(settings, common, BetweenKeyVariance())
    assert len(key.learner_state.members) == len(key.learner_state.pool.weight) == 3
    key.learn(block(x[:5], x[:5, :1]))
    assert np.isfinite(key.predict(block(x[:2], x[:2, :1])).mean).all()


def test_a_key_counts_for_less_with_every_one_after_it() -> None:
    widths, one = BetweenKeyVariance(), np.array([1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, np.nan])
    for _ in range(3):
        widths.add_shift(one)
    counted = 1.0 + KEY_DISCOUNT + KEY_DISCOUNT**2
    assert widths.squared_shifts[0, 0] == widths.information_gains[0, 0] == pytest.approx(counted)
    assert widths.keys == 0.0  # none of them had a noise of its own


def test_what_is_unknown_of_a_difference_of_outputs_adds_up_as_variances() -> None:
    config = Config(inputs=1, hidden=(), outputs=2, observation="categorical", covariance="full")
    cov = np.diag([1.0, 9.0, 1.0, 16.0])
    mean = np.array([0.0, 3.0, 0.0, 1.0])
    state = init(config)._replace(mean=mean, cov=layout_of(config).pack_blocks([cov]))
    found = compute_sensitivity(state, np.zeros((1, 1)), np.array([[[1.0, -1.0]]]))
    one = Sensitivity(*(part[0] for part in found))
    (effect,) = _build_effects(one, np.zeros(1), np.array([2.0]), 1.0, ["a"])
    assert (effect.slope, effect.slope_sd) == pytest.approx((1.0, 2.5))
    assert (effect.effect, effect.effect_sd, effect.size) == pytest.approx((2.0, 5.0, 2.0))


@pytest.mark.parametrize(
    ("text", "year"), [("5-Jan-68", 2068), ("5-Jan-69", 1969), ("5-Jan-99", 1999)]
)
def test_years_of_two_digits_are_those_of_posix(text: str, year: int) -> None:
    found = parse_timestamp(text)
    assert found is not None
    assert datetime.fromtimestamp(found.local, UTC).year == year


@pytest.mark.parametrize(("values", "told"), [(1, True), (2, True), (10, True), (11, False)])
def test_a_target_of_few_whole_numbers_may_be_a_class(values: int, told: bool) -> None:
    said: list[str] = []
    seen = ColumnSample([str(k % values) for k in range(40)], None)
    suggest_classification(Column("y", "number", "target"), seen, said.append)
    assert bool(said) == told


@pytest.mark.parametrize(
    ("alarms", "rows", "told"),
    [(4, 1_000, False), (5, 1_000, True), (5, 10_000, True), (5, 10_001, False), (9, 18_000, True)],
)
def test_a_stream_that_changed_often_for_its_length_is_remarked_on(
    alarms: int, rows: int, told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = learned()
    model.learner_state = model.learner_state._replace(seen=rows)
    monkeypatch.setattr(LearnerState, "get_count", lambda *_: alarms)
    [(_, verdict)] = run_results.judge_targets(model)
    assert any(text.startswith("The stream changed") for text in verdict.sentences) == told


def test_every_output_of_amounts_is_told_of_by_its_own_name() -> None:
    known = Schema([Column(name, "number", "target") for name in ("rain", "snow")], "amount")
    task = make_target_type(known, Settings(kind="amount"))
    assert [(made.name, made.unit, made.target) for made in list_effect_quantities(task, 4)] == [
        ("rain", "units of rain", 0),
        ("snow", "units of snow", 1),
        ("rain > 0", "probability", None),
        ("snow > 0", "probability", None),
    ]


def test_rows_of_a_key_count_by_their_weight_and_keys_are_ranked_by_their_loss() -> None:
    y, said = np.array([[1.0], [3.0], [2.0], [9.0]]), np.zeros(4)
    weight = np.array([3.0, 1.0, 1.0, 0.5])
    scores = KeyScores(number_task())
    rows = Rows(np.zeros((4, 1)), y, np.arange(1, 5), weight=weight)
    scores.add(["b", "b", "a", "c"], rows, numbers(said, np.ones(4)))
    found = [(one["key"], one["rows"], one["loss"]) for one in scores.rank_keys()]
    assert found == [("b", 2, pytest.approx(np.sqrt(3.0))), ("a", 1, 2.0), ("c", 1, 9.0)]
    told = scores.to_json()
    assert told["count"] == 3
    assert [told[which]["key"] for which in ("best", "median", "worst")] == ["b", "a", "c"]


def test_a_row_is_shown_with_its_categories_by_name_and_its_lags_for_the_clock() -> None:
    town = ["Ulm", "Bern", "Graz", ""] * 15
    hours = [f"2026-01-{1 + at // 24:02} {at % 24:02}:00" for at in range(60)]
    columns = {"when": hours, "town": town, "heat": [at % 7 for at in range(60)]}
    y = [0.25 * (at % 5) for at in range(60)]
    model = kbnn.train(
        {**columns, "y": y}, layers=3, lags="1", task="regression"
    )._require_single_model()
    assert model_report.list_shown_columns(model) == ["town", "heat", "y lag 1"]
    sample = model.card.summaries.sample
    rows = [model_report.format_row_cells(model, x) for x in sample.x]
    for at, cells in zip(sample.row.astype(int) - 1, rows, strict=True):
        past = "-" if at == 0 else format_number(y[at - 1])
        assert cells == [town[at] or "-", format_number(float(at % 7)), past]


def test_few_sources_of_a_run_are_named() -> None:
    assert format_sources(("a", "b", "c")) == "a b c"
    assert format_sources(("a", "b", "c", "d")) == "a and 3 others"


@pytest.mark.parametrize(("networks", "told"), [(1, None), (2, "2 networks")])
def test_an_ensemble_is_told_from_two_networks_on(networks: int, told: str | None) -> None:
    made = OnlineModel(Settings(hidden=(3,), ensemble=networks, kind="regression"), schema(1))
    assert (
        dict(inspect_model(made, "m", 0).identity_lines()).get("ensemble") == told
    )  # before there is any
    x = np.random.default_rng(0).standard_normal((60, 1))
    made.learn(block(x, x))
    assert dict(inspect_model(made, "m", 0).identity_lines()).get("ensemble") == told


def test_an_effect_differs_where_its_doubt_does_and_one_may_have_it_alone() -> None:
    def effect(name: str, value: float, sd: float) -> Effect:
        return Effect(name, value, sd, value, sd, 1.0)

    one = [effect("a", 1.0, 0.3), effect("b", 2.0, 0.3), effect("old", 1.0, 0.1)]
    two = [effect("a", 1.0, 0.4), effect("b", 2.0, 0.3), effect("new", 5.0, 0.1)]
    found = {change.feature: change[1:] for change in diff_effects(one, two)}
    assert found == {
        "a": (1.0, 0.3, 1.0, 0.4, 0.0),
        "old": (1.0, 0.1, None, None, None),
        "new": (None, None, 5.0, 0.1, None),
    }


@pytest.mark.parametrize(
    ("known", "stated", "fits"),
    [("", ".", True), ("", ",", False), (",", ",", True), (",", ".", False), (",", "", True)],
)
def test_a_decimal_mark_that_a_model_reads_by_is_no_contradiction(
    known: str, stated: str, fits: bool
) -> None:
    schema_ = replace(schema(1), decimal=known)
    with nullcontext() if fits else pytest.raises(UsageError, match="--decimal"):
        check_columns("m.npz", ReadOptions(decimal=stated), schema_)


@pytest.mark.parametrize(("rows", "last", "told"), [(20, 0, True), (20, 1, False), (19, 0, False)])
def test_points_before_three_digits_may_be_those_of_thousands(
    rows: int, last: int, told: bool
) -> None:
    """Where there are many of them, and zeros at the end, which decimals would not have."""
    values = [f"{1 + at}.25{last if at == 3 else 1 + at % 9}" for at in range(rows)]
    said: list[str] = []
    report_ambiguous_points("a", values, said.append)
    assert any("--thousands . if it is" in text for text in said) == told


def test_columns_that_are_there_are_named_as_far_as_they_are_few() -> None:
    assert str(missing_column_error("x", list("abcd"))) == "no column 'x' (available: a, b, c, d)"
    assert (
        str(missing_column_error("x", list("abcde")))
        == "no column 'x' (available: a, b, c, d, ...)"
    )
    assert (
        str(missing_column_error("hat", ["heat", "y"])) == "no column 'hat' (did you mean 'heat'?)"
    )
