"""What commands print, part by part: counts, names and places are those of the numbers beneath."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from rich.console import Console, RenderableType

import kbnn
from kbnn.core.config import Config
from kbnn.core.state import State
from kbnn.core.state import init as init_state
from kbnn.data.batch import Rows
from kbnn.data.dataset import open_stream
from kbnn.fleet.key_index import KeyScores
from kbnn.metrics.scorecard import CurvePoint
from kbnn.model.diagnostics import Effect
from kbnn.model.learner import LearnerState
from kbnn.model.model import OnlineModel
from kbnn.model.settings import Settings
from kbnn.wording import format_number
from kbnn.workflows import model_report, run_results
from kbnn.workflows.checkpoint import Position
from kbnn.workflows.comparing import ValueChange, WeightChange, diff_effects
from kbnn.workflows.evaluating import Evaluation, EvaluationTiming
from kbnn.workflows.inspecting import inspect_model
from kbnn.workflows.options import build_train_options
from kbnn.workflows.training import Training
from kbnn_cli import display, result_screens
from kbnn_cli.charts import (
    Axis,
    Canvas,
    build_confusion_table,
    draw_whiskers,
    fold_classes,
    format_bar_cell,
    merge_bins,
    reliability_chart,
    span_values,
    trim_tails,
)
from tests.bench.data import block, schema
from tests.judging import label_task, number_card, number_task, numbers
from tests.modelling import train_line


def printed(*parts: RenderableType, width: int = 100) -> list[str]:
    """What a terminal without colours shows, without blanks at the ends of lines."""
    file = io.StringIO()
    console = Console(file=file, width=width, color_system=None)
    for part in parts:
        console.print(part)
    return [line.rstrip() for line in file.getvalue().splitlines()]


def small(targets: int = 1) -> OnlineModel:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((80, 2))
    made = OnlineModel(Settings(hidden=(3,), rehearse=0, kind="regression"), schema(2, targets))
    made.learn(block(x, np.tile(x[:, :1], (1, targets))))
    return made


def test_a_class_that_would_be_alone_among_others_keeps_its_name() -> None:
    counts = [[5, 1, 0], [0, 4, 0], [1, 0, 3]]
    assert fold_classes(counts, ["a", "b", "c"], 2)[1] == ["a", "b", "c"]
    assert fold_classes(counts, ["a", "b", "c"], 1) == ([[5, 1], [1, 7]], ["a", "2 others"])


def test_classes_are_found_as_often_as_rows_of_theirs_were_right() -> None:
    head, *rows = printed(build_confusion_table([[6, 2], [0, 0]], ["a", "b"], 5))
    assert head.split() == ["a", "b", "found"]
    assert [row.split() for row in rows] == [["a", "6", "2", "75.0", "%"], ["b", "0", "0", "-"]]


def test_powers_of_ten_are_thinned_out_evenly() -> None:
    axis = Axis(1.0, 1e6, log=True)
    assert axis.ticks(4) == [1.0, 100.0, 1e4, 1e6]
    assert axis.ticks(3) == [1.0, 1e3, 1e6]
    assert len(axis.ticks(7)) == 7
    assert span_values([0.0, 5.0, 50.0], log=True) == Axis(5.0, 50.0, True)
    assert span_values([1.0, 2.0]) == Axis(0.96, 2.04)


def test_the_middle_of_the_values_sets_a_scale() -> None:
    assert trim_tails(list(range(40)), 20) == list(range(2, 38))
    assert trim_tails([3.0, 1.0, 2.0]) == [1.0, 2.0, 3.0]


def test_bars_are_eighths_of_a_cell_and_join_where_there_is_no_room() -> None:
    assert [format_bar_cell(2.5, row, False) for row in range(4)] == ["█", "█", "▄", " "]
    assert [format_bar_cell(1.5, row, True) for row in range(3)] == ["#", "#", " "]
    assert merge_bins([1, 2, 3, 4, 5, 6], 18) == [1, 2, 3, 4, 5, 6]
    assert merge_bins([1, 2, 3, 4, 5, 6], 17) == [3, 7, 11]


def test_a_canvas_has_its_low_end_below_and_left() -> None:
    canvas = Canvas(24, 5, Axis(0, 1), Axis(0, 1), plain=True)
    canvas.draw_points([(0.0, 0.0), (1.0, 1.0)], "cyan")
    rows = [line.plain[canvas.gutter :] for line in canvas.render_lines()[:5]]
    assert rows[0].rstrip().endswith("o")
    assert rows[4].startswith("o")
    assert [row.count("o") for row in rows] == [1, 0, 0, 0, 1]


def test_an_interval_is_a_stroke_about_its_value_and_grey_where_it_holds_zero() -> None:
    sure, unsure = draw_whiskers([6.0, -1.0], [2.0, 3.0], True, width=12)
    assert sure.plain == "    |   --o-"
    assert (sure.style, unsure.style) == ("cyan", "bright_black")
    assert unsure.plain == "---o---     "


@pytest.mark.parametrize(
    ("sources", "named"),
    [
        (["-"], "stdin"),
        (["a", "b", "c"], "a, b, c"),
        (["a", "b", "c", "d"], "a, b and 2 others"),
        (["a", "b", "c", "d", "e"], "a, b and 3 others"),
    ],
)
def test_few_sources_are_named_and_the_others_counted(sources: list[str], named: str) -> None:
    assert result_screens.format_source_names(sources) == named


def test_what_became_of_rows_is_counted_in_words() -> None:
    card = number_card(2, 1)
    y = np.array([[1.0, np.nan], [2.0, np.nan], [np.nan, np.nan], [0.0, 1.0]])
    card.add(np.zeros((4, 1)), y, numbers(np.zeros((4, 2)), np.ones((4, 2))))
    made = Evaluation(
        number_task("a", "b"), card, "tracked", timing=EvaluationTiming(1.0, 2.0, 1.0)
    )
    assert result_screens.format_rows_line(made) == (
        "3 rows scored, 1 without a target, calibrated intervals"
    )
    assert result_screens.format_time_line(made) == (
        "4.00 s (read 1.0, predict 2.0, score 1.0), 1 rows/s"
    )
    made.bad_rows = 1200
    assert result_screens.format_rows_line(made) == (
        "3 rows scored, 1 without a target, 1,200 unreadable, calibrated intervals"
    )
    assert made.rows == 1204


@pytest.mark.parametrize(
    ("rows", "alarms", "told"),
    [
        ([70], 1, "1 alarm, at row 70"),
        ([70, 1080], 2, "2 alarms, at rows 70, 1,080"),
        (list(range(1, 10)), 9, "9 alarms, the last at rows 2, 3, 4, 5, 6, 7, 8, 9"),
    ],
)
def test_alarms_are_counted_and_the_last_named(
    rows: list[int], alarms: int, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(OnlineModel, "alarms", rows)
    monkeypatch.setattr(LearnerState, "get_count", lambda *_: alarms)
    assert display._format_alarms(small()) == told


def test_a_run_of_several_passes_says_in_which_it_is() -> None:
    run = Training(build_train_options("a.csv", "y"))
    run.position = Position(("a.csv",), rows=1200)
    assert display._format_place(run) == "after row 1,200"
    run.position = Position(("a.csv",), epochs=3, epoch=1, rows=7)
    assert display._format_place(run) == "after row 7 of pass 2"


def test_lines_of_several_targets_have_one_for_each_beneath_their_heads() -> None:
    shown = display.DoublingLines(small(2))
    points = (
        [CurvePoint(32, 2.0, 1.0, 0.875, 2.0, 1.0, 0.875)],
        [CurvePoint(32, 3.0, 1.5, None, 3.0, 1.5, None)],
    )
    first, *lines = shown.format_points(points, 1234.4)
    assert first.split()[0] == "rows"
    assert first.endswith("  target")
    assert [(line.split()[0], line.split()[1]) for line in lines] == [
        ("32", "2.000"),
        ("32", "3.000"),
    ]
    assert all("1,234" in line for line in lines)
    again = list(shown.format_points(points, 10.0))
    assert len(again) == 2  # the heads come once


def test_many_categories_are_counted_after_the_first() -> None:
    names = [f"c{at}" for at in range(9)]
    assert result_screens.format_category_names(names[:8]) == "c0, c1, c2, c3, c4, c5, c6, c7"
    assert result_screens.format_category_names(names).endswith("c6, c7 and 1 more")


def test_the_largest_effects_come_first_and_the_smaller_are_counted() -> None:
    effects = [Effect(f"f{at}", 0.0, 0.0, (-1.0) ** at * at, 0.1, 1.0) for at in range(1, 18)]
    lines = printed(result_screens.EffectsTable(effects))
    assert [line.split()[0] for line in lines[1:4]] == ["f17", "f16", "f15"]
    assert lines[-1] == "and 2 smaller ones (--json has them all)"
    assert not any("smaller" in line for line in printed(result_screens.EffectsTable(effects[:15])))


def test_differences_have_a_sign_and_truth_values_none() -> None:
    changes = [
        ValueChange("rows", 10, 1200),
        ValueChange("rmse", 0.5, 0.25),
        ValueChange("robust", True, False),
    ]
    changes += [ValueChange("noise", None, 2.0), ValueChange("hidden", [10, 5], [4])]
    lines = [line.split() for line in printed(result_screens.changes_table(changes))[1:]]
    assert lines == [
        ["rows", "10", "1,200", "+1,190"],
        ["rmse", "0.5000", "0.2500", "-0.250"],
        ["robust", "on", "off"],
        ["noise", "-", "2.000"],
        ["hidden", "10,", "5", "4"],
    ]


def overview(keys: int) -> dict[str, Any]:
    one = {"loss": 0.5, "coverage_90": 0.9, "alarms": 0}
    listed = [{"key": f"k{at}" * (1 + 30 * (at == 1)), "rows": 9, **one} for at in range(keys)]
    made = small()
    return {
        "fleet": "fleet",
        "key": ["site", "device"],
        "rows": 9 * keys,
        "prequential": made.card.metric_values(made.schema.targets),
        "keys": listed,
    }


def test_the_keys_of_a_fleet_are_counted_and_the_first_listed() -> None:
    lines = printed(*result_screens.overview_parts(small(), overview(23)))
    assert lines[0] == "fleet: regression of y0 by site, device, 23 keys, 207 rows learned"
    assert lines[-1] == "and 3 more (--json lists all)"
    assert any(line.startswith("k1k1k1k1k1k1k1k1k1k1k1k1k1k1k1k1k1k1k...") for line in lines)
    assert sum(line.startswith("k") for line in lines) == 20
    whole = printed(*result_screens.overview_parts(small(), overview(20)))
    assert not any("more" in line for line in whole)
    assert "1 key, 9 rows" in printed(*result_screens.overview_parts(small(), overview(1)))[0]


def test_the_best_the_median_and_the_worst_key_are_shown() -> None:
    scores = KeyScores(number_task())
    y = np.array([[1.0], [3.0], [2.0]])
    rows = Rows(np.zeros((3, 1)), y, np.arange(1, 4))
    scores.add(["a", "b", "c"], rows, numbers(np.zeros(3), np.ones(3)))
    _, head, *lines = printed(*result_screens.key_ranking_parts(scores.to_json()))
    assert head.split()[:3] == ["of", "3", "keys"]
    assert [line.split()[:4] for line in lines] == [
        ["best", "a", "1", "1.000"],
        ["median", "c", "1", "2.000"],
        ["worst", "b", "1", "3.000"],
    ]


def test_classes_have_no_intervals_to_tell_of() -> None:
    for task, told in ((label_task(["a", "b"]), ""), (number_task(), ", calibrated intervals")):
        made = Evaluation(task, number_card(1, 1), None if task.labels else "tracked")
        assert result_screens.format_rows_line(made) == f"0 rows scored{told}"
        assert ("intervals" in made.to_json()) == bool(told)


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        (31, "the first 32 rows only set the scale"),
        (32, "rows are held until every target has varied"),
    ],
)
def test_why_there_are_no_figures_yet(rows: int, told: str) -> None:
    run = Training(
        build_train_options({"a": [float(k % 7) for k in range(rows)], "y": [1.5] * rows})
    )
    run.run()
    assert printed(*display.summary_parts(run))[0] == f"no figures yet: {told}"


def test_a_weight_is_told_with_its_network_where_there_are_several() -> None:
    one = WeightChange(1, 1, 2, "bias", 0.5, 0.25, -0.125)
    lines = printed(result_screens.moves_table([one]))
    assert lines[1].split() == [
        "layer",
        "1,",
        "unit",
        "2,",
        "from",
        "bias",
        "0.500",
        "0.250",
        "-0.125",
    ]
    several = printed(result_screens.moves_table([one, one._replace(network=2)]))
    assert [line.split(", layer")[0] for line in several[1:]] == ["network 1", "network 2"]


def test_every_pass_is_part_of_what_learning_will_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a,y\n" + "".join(f"{at % 7},{at % 5}\n" for at in range(40_000)))
    monkeypatch.setattr(run_results, "measure_row_seconds", lambda model: 0.01)
    settings = Settings(hidden=(3,), rehearse=0, kind="regression", preset="fast")
    model = OnlineModel(settings, schema(1))
    with open_stream([str(path)]) as stream:
        said = [run_results.describe_cost(model, stream, passes) for passes in (1, 3)]
    assert said[0] is not None
    assert said[0].startswith("1 column: 10 ms a row to learn, about ")
    minutes = [float(str(text).partition("about ")[2].split()[0]) for text in said]
    assert minutes[1] - minutes[0] == pytest.approx(2 * 400 / 60, abs=0.7)


@pytest.mark.parametrize(("encoding", "inputs"), [("none", 3), ("piecewise", 3 + 3 * 8)])
def test_the_cost_of_a_row_is_that_of_the_networks_with_their_bins(
    encoding: Literal["none", "piecewise"], inputs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    widths = []

    def init(config: Config, **more: Any) -> State:
        widths.append(config.inputs)
        return init_state(config, **more)

    monkeypatch.setattr(run_results, "init", init)
    model = OnlineModel(Settings(hidden=(3,), kind="regression", encoding=encoding), schema(3))
    seconds = run_results.measure_row_seconds(model)
    assert seconds is not None
    assert seconds > 0.0
    assert widths == [inputs]


def test_bins_of_one_row_in_two_hundred_are_drawn_and_rarer_ones_not() -> None:
    weight = np.array([0.0, 1.0, 5.0, 994.0])
    sure = np.array([np.nan, 0.3, 0.5, 0.9])
    lines = reliability_chart(weight, sure, sure)(60, True)
    assert "".join(line.plain for line in lines).count("o") == 2


def test_columns_are_listed_with_center_scale_and_what_is_missing() -> None:
    number_of: dict[str, Any] = {"name": "heat", "kind": "number", "role": "feature", "of": None}
    columns = [
        {**number_of, "center": 20.0, "scale": 3.5, "missing": 0.25},
        {**number_of, "name": "town", "kind": "category", "center": 1.0, "scale": 1.0,
         "missing": None},
        {**number_of, "name": "e", "role": "input_sd", "of": "heat", "center": None, "scale": None,
         "missing": 0.0},
        {**number_of, "name": "note", "kind": "ignored", "role": "none", "center": None,
         "scale": None, "missing": None},
    ]  # fmt: skip
    head, *lines = (line.split() for line in printed(result_screens.columns_table(columns)))
    assert head == ["name", "kind", "role", "center", "scale", "missing"]
    assert lines == [
        ["heat", "number", "feature", "20.00", "3.500", "25.0", "%"],
        ["town", "category", "feature"],
        ["e", "number", "sd", "of", "heat", "0.0", "%"],
        ["note", "ignored", "not", "used"],
    ]


def test_a_model_of_classes_has_no_intervals() -> None:
    for y, mode in ((["u", "v"] * 40, None), ([0.1, 0.7] * 40, "tracked")):
        model = kbnn.Model("y", layers=2)
        model.learn({"x": np.arange(80.0), "y": y})
        assert model._require_model().interval_mode == mode


@pytest.mark.parametrize(
    ("alarms", "rows", "told"),
    [(4, 1_000, False), (5, 1_000, True), (5, 10_000, True), (5, 10_001, False), (9, 18_000, True)],
)
def test_many_alarms_for_the_number_of_rows_are_reported(
    alarms: int, rows: int, told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = train_line()
    model.learner_state = model.learner_state._replace(seen=rows)
    monkeypatch.setattr(LearnerState, "get_count", lambda *_: alarms)
    [(_, verdict)] = run_results.judge_targets(model)
    assert any(text.startswith("The stream changed") for text in verdict.sentences) == told


def test_rows_are_shown_with_categories_by_name_and_without_clock_inputs() -> None:
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


@pytest.mark.parametrize(("networks", "told"), [(1, None), (2, "2 networks")])
def test_ensembles_are_shown_from_two_networks_on(networks: int, told: str | None) -> None:
    made = OnlineModel(Settings(hidden=(3,), ensemble=networks, kind="regression"), schema(1))
    assert (
        dict(inspect_model(made, "m", 0).identity_lines()).get("ensemble") == told
    )  # before there is any
    x = np.random.default_rng(0).standard_normal((60, 1))
    made.learn(block(x, x))
    assert dict(inspect_model(made, "m", 0).identity_lines()).get("ensemble") == told


def test_effects_differ_if_their_sd_differs_or_one_model_lacks_them() -> None:
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
