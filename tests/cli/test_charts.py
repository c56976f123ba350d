"""Terminal charts: they fit the width, survive ASCII and no colour, and show what the data say."""

from __future__ import annotations

import io

import numpy as np
import pytest
from rich.console import Console

from kbnn.metrics.scorecard import Scorecard
from kbnn.metrics.sections import TargetSection, build_target_section, describe_dependence
from kbnn.targets.base import TargetType
from kbnn_cli.charts import (
    Axis,
    Canvas,
    calibration_chart,
    draw_bars,
    fold_classes,
    format_tick,
    merge_bins,
    section_charts,
    shorten_class_name,
    span_values,
)
from tests.judging import label_card, label_task, labels, number_card, numbers


def numeric_card(n: int = 1000, stated: float = 1.0) -> Scorecard:
    """Honest forecasts, or with their standard deviation multiplied by `stated`."""
    rng = np.random.default_rng(0)
    mean = rng.normal(0, 3, (n, 1))
    sd = np.exp(rng.normal(0, 0.3, (n, 1)))
    card = number_card(1, 1)
    card.add(mean, mean + sd * rng.normal(size=(n, 1)), numbers(mean, sd * stated))
    return card


def class_card(classes: int, n: int = 600) -> Scorecard:
    """Probabilities with some knowledge of the label."""
    rng = np.random.default_rng(1)
    label = rng.integers(0, classes, n)
    p = rng.dirichlet(np.ones(classes), n)
    p[np.arange(n), label] += 0.5
    card = label_card(1)
    y = label[:, None].astype(np.float64)
    card.add(y, y, labels(p / p.sum(axis=1, keepdims=True)))
    return card


def section_of(
    card: Scorecard, names: list[str] | None = None, learning: bool = True
) -> TargetSection:
    """What the task shows of the card's first target."""
    task = card.task if names is None else label_task(names)
    assert isinstance(task, TargetType)
    return build_target_section(
        task, card.scores[0], card.summaries, 0, card.curve_points()[0] if learning else []
    )


def printed(
    card: Scorecard, width: int, encoding: str = "utf-8", names: list[str] | None = None
) -> str:
    """What a terminal of that width and encoding would show, colours removed."""
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding=encoding, errors="strict", write_through=True)
    console = Console(file=file, width=width, no_color=True, color_system=None)
    for part in section_charts(section_of(card, names)):
        console.print(part)
    return raw.getvalue().decode(encoding)


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
@pytest.mark.parametrize("width", [40, 60, 80, 120, 200])
def test_charts_fit_every_width_and_encoding(width: int, encoding: str) -> None:
    for card in (numeric_card(), class_card(3), class_card(14)):
        text = printed(card, width, encoding)
        assert max(len(line) for line in text.splitlines()) <= width
        assert "…" not in text or width < 80


def test_two_columns_at_80_and_three_at_120() -> None:
    at_80 = printed(numeric_card(), 80).splitlines()
    assert at_80[0].split("  ")[0] == "Calibration"
    assert "PIT histogram" in at_80[0]
    assert "Predicted and true" not in at_80[0]
    assert "Predicted and true" in printed(numeric_card(), 120).splitlines()[0]
    for title in ("Residuals by width of interval", "RMSE by rows seen", "NLL by rows seen"):
        assert title in printed(numeric_card(), 80)


def test_the_learning_curve_may_be_left_out() -> None:
    console = Console(file=io.StringIO(), width=80)
    for part in section_charts(section_of(numeric_card(), learning=False)):
        console.print(part)
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert "rows seen" not in text
    assert "Residuals by width of interval" in text


def levels_of(card: Scorecard) -> list[float]:
    """Where the charts of how it learned have their constants."""
    group = section_of(card).groups[-1]
    assert group.title == "How it learned"
    return [chart.data["baseline"] for chart in group.charts]


def test_learning_is_beside_what_one_constant_would_have() -> None:
    card = label_card(1)
    y = np.repeat([0.0, 1.0, 2.0], [50, 30, 20])[:, None]
    card.add(y, y, labels(np.full((100, 3), 1.0 / 3.0)))
    entropy = -(0.5 * np.log(0.5) + 0.3 * np.log(0.3) + 0.2 * np.log(0.2))
    assert levels_of(card) == pytest.approx([0.5, entropy])
    card = number_card(1, 1)
    value = np.repeat([-3.0, 5.0], 50)[:, None]
    card.add(value, value, numbers(0.0 * value, 1.0 + 0.0 * value))
    assert levels_of(card) == pytest.approx([4.0, 0.5 * np.log(2.0 * np.pi * np.e * 16.0), 0.9])


@pytest.mark.parametrize(
    ("shares", "shown"), [([9], 0), ([9, 1], 1), ([2, 3, 7], 2), ([7, 2, 3], 0)]
)
def test_of_one_class_it_is_drawn_of_two_the_second_of_more_the_commonest(
    shares: list[int], shown: int
) -> None:
    card, names = label_card(1), ["a", "b", "c"][: len(shares)]
    y = np.repeat(np.arange(len(shares)), shares)[:, None].astype(np.float64)
    p = np.tile([0.2, 0.3, 0.5], (len(y), 1))
    card.add(y, y, labels(p))
    drawn = describe_dependence(label_task(names), card.scores[0], card.summaries, 0)
    assert drawn.name == f"probability of {names[shown]}"
    curve, chance = drawn.values(labels(p[:1])), p[0, shown]
    assert curve.value == pytest.approx([chance])
    assert curve.sd == pytest.approx([np.sqrt(chance * (1.0 - chance))])
    assert np.sum(drawn.truth(y)) == shares[shown]


def test_too_narrow_intervals_fall_below_the_diagonal() -> None:
    levels = np.arange(1, 20) / 20
    below = calibration_chart(levels, 0.6 * levels, 100)(38, True)
    rows = [line.plain for line in below[:10]]
    for row in rows[1:7]:
        assert row.rindex("*") > row.rindex(".")


def test_pit_bars_count_and_mark_the_uneven() -> None:
    assert merge_bins([1] * 20, 70) == [1] * 20
    assert merge_bins([1] * 20, 34) == [2] * 10
    lines = draw_bars([400, *[10] * 8, 400], 34, 10, True)
    assert lines[0].plain.count("#") == 4
    assert any(span.style == "yellow" for span in lines[0].spans)
    assert draw_bars([0] * 20, 34, 10, False)[-1].plain.split() == ["0", "0.5", "1"]


def test_classes_beyond_the_width_are_added_up() -> None:
    counts = [[i + j for j in range(6)] for i in range(6)]
    table, names = fold_classes(counts, ["a", "b", "c", "d", "e", "f"], 2)
    assert names == ["e", "f", "4 others"]
    assert sum(map(sum, table)) == sum(map(sum, counts))
    assert table[0][:2] == [8, 9]
    assert shorten_class_name("a\x1b[31mvery long class name") == "a [31mvery l.."
    assert fold_classes(counts, ["a"], 10)[1][1] == "1"


def test_names_from_strangers_are_text() -> None:
    text = printed(class_card(2), 80, names=["[red]no[/red]", "b\x1b[2J"])
    assert "[red]no[/red]" in text
    assert "\x1b" not in text


def test_nothing_scored_says_so() -> None:
    assert "nothing to draw" in printed(number_card(1, 2), 80)


def test_degenerate_data_still_draws() -> None:
    card = number_card(1, 1)
    one = np.ones((40, 1))
    card.add(one, one, numbers(one, one))
    assert "Calibration" in printed(card, 80)


def test_axes() -> None:
    assert Axis(0, 100).ticks(5) == [0, 20, 40, 60, 80, 100]
    assert Axis(32, 5000, log=True).ticks(4) == [100, 1000]
    assert Axis(32, 64, log=True).ticks(4) == [32, 64]
    assert [format_tick(v) for v in (0, 0.25, 200, 1000, 32_000, 1e6, 2e-5)] == [
        "0",
        "0.25",
        "200",
        "1k",
        "32k",
        "1M",
        "2.0e-05",
    ]
    assert span_values([3.0, 3.0]).low < 3 < span_values([3.0, 3.0]).high
    assert span_values([]).low < span_values([]).high
    assert Axis(1, 100, log=True).position_of(10) == pytest.approx(0.5)


def test_canvas_draws_inside_its_frame() -> None:
    canvas = Canvas(20, 5, Axis(0, 1), Axis(0, 1), plain=True)
    canvas.draw_points([(0.5, 0.5), (2.0, 0.5), (float("nan"), 0.5)], "cyan")
    text = "\n".join(line.plain for line in canvas.render_lines())
    assert text.count("o") == 1
