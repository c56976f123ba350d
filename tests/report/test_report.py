"""The report page and the main picture: complete, self-contained, and deaf to hostile names."""

from __future__ import annotations

import builtins
import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kbnn.array_types import FloatArray
from kbnn.errors import UsageError
from kbnn.metrics.scorecard import Scorecard
from kbnn.metrics.sections import (
    ConfusionMatrix,
    PredictionCurve,
    build_target_section,
    describe_dependence,
)
from kbnn.model.dependence import Dependence, Interaction
from kbnn.model.diagnostics import Effect
from kbnn.model.explain import Importance
from kbnn.report import (
    PictureData,
    ReportData,
    TargetReport,
    report_html,
    worst_rows,
    write_picture,
    write_report,
)
from kbnn.report.page import build_confusion_table, load_templates
from kbnn.report.plots import escape_html, format_row_tick, shorten_label
from kbnn.targets.base import TargetType
from kbnn.targets.prediction import Forecast
from kbnn.wording import clean_text
from tests.judging import label_card, label_task, labels, number_card, number_task, numbers

HOSTILE = "<script>alert(1)</script>"
NAMES = ["temperature", HOSTILE, "$x^2$ & \"quoted\" 'too' \x00\u202e", "温度"]


def predict(x: FloatArray) -> tuple[FloatArray, FloatArray]:
    """A known function of the first two features."""
    return 3 * x[:, 0] + x[:, 1] ** 2, 0.5 + 0.1 * np.abs(x[:, 0])


def numeric_card(n: int = 400, targets: int = 1) -> Scorecard:
    """Honest forecasts of a known function."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, 4))
    mean, sd = (np.repeat(part[:, None], targets, axis=1) for part in predict(x))
    card = number_card(targets, 4)
    card.add(x, mean + sd * rng.normal(size=(n, targets)), numbers(mean, sd))
    return card


def class_card(n: int = 300) -> Scorecard:
    """Three classes, probabilities that know something."""
    rng = np.random.default_rng(1)
    p = rng.dirichlet(np.full(3, 0.6), n)
    label_ = (rng.random((n, 1)) > np.cumsum(p, axis=1)[:, :2]).sum(axis=1)
    card = label_card(2)
    card.add(rng.normal(size=(n, 2)), label_[:, None].astype(np.float64), labels(p))
    return card


def told(
    card: Scorecard,
    task: TargetType,
    at: int,
    features: list[str],
    *,
    learning: bool = True,
    **more: Any,
) -> TargetReport:
    """All that a card knows of a target."""
    section = build_target_section(
        task, card.scores[at], card.summaries, at, card.curve_points()[at] if learning else []
    )
    worst = worst_rows(task, card.summaries, at, features)
    return TargetReport(section, drawn=task.targets[at], worst=worst, **more)


def numeric_data(targets: int = 1, *, learning: bool = True, name: str = "yield") -> ReportData:
    """A report with every part filled in."""
    card = numeric_card(targets=targets)
    edges, counts = card.summaries.features.used_bins(0)
    grid = np.linspace(-2, 2, 15)
    along = [
        Dependence(NAMES[1], grid, np.sin(grid), 0.1 + 0.1 * grid**2, edges, counts),
        Dependence("site", np.arange(2.0), np.ones(2), np.ones(2), categories=["<b>", "south"]),
    ]
    sizes = zip(NAMES, (3.0, -0.2, 0.1, 0.0), (0.1, 0.2, 0.2, 0.1), strict=True)
    shares = [Effect(feature, value, sd, value, sd, value) for feature, value, sd in sizes]
    pair = Interaction(
        (NAMES[0], "site"),
        (grid, np.arange(2.0)),
        (None, ["<b>", "south"]),
        np.outer(grid, [1.0, -1.0]),
        0.93,
        0.05,
    )
    extra: Any = {}
    if targets == 1:
        importance = [Importance(name, 2.0 - k / 4, 0.1) for k, name in enumerate(NAMES)]
        extra = {"effects": shares, "dependence": along, "interaction": pair}
        extra["importance"] = importance
    task = number_task(*(f"{name}{j}" for j in range(targets)))
    reports = [told(card, task, j, NAMES, learning=learning, **extra) for j in range(targets)]
    card_rows = [("features", ", ".join(NAMES)), ("noise", "sd 0.5")]
    return ReportData(f"Is {HOSTILE} good?", "Judged on 400 rows", reports, card_rows, "0.1.0")


def class_data() -> ReportData:
    """A report on classes with a hostile class name."""
    names = ["setosa", HOSTILE, "virginica"]
    return ReportData(
        "Classes",
        "300 rows",
        [told(class_card(), label_task(names, "species"), 0, ["a", "b"])],
    )


class Reader(HTMLParser):
    """Collects what a browser would see: tags, attributes, visible text, open elements."""

    VOID = frozenset({"meta", "link", "br", "hr", "img", "input"})

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.text: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def read(page: str) -> Reader:
    """The page as a browser would take it in."""
    reader = Reader()
    reader.feed(page)
    reader.close()
    assert reader.open == []
    return reader


@pytest.fixture(scope="module")
def numeric_page() -> str:
    pytest.importorskip("matplotlib", reason="the extra kbnn[report] is not installed")
    return report_html(numeric_data())


@pytest.fixture(scope="module")
def class_page() -> str:
    pytest.importorskip("matplotlib", reason="the extra kbnn[report] is not installed")
    return report_html(class_data())


def test_every_picture_and_part_is_there(numeric_page: str) -> None:
    reader = read(numeric_page)
    words = " ".join(reader.text)
    for title in (
        "Calibration",
        "PIT histogram",
        "Interval width and error",
        "Predicted and true",
        "Residuals",
        "Errors and the bell curve",
        "RMSE by rows seen",
        "NLL by rows seen",
        "90 % intervals by rows seen",
        "Sensitivity",
        "Along site",
        "Rows that surprised the model most",
        "Model card",
        "R2",
        "The 90 % intervals held",
    ):
        assert title in words, title
    assert reader.tags.count("svg") == reader.tags.count("figure") == 14
    assert all(numeric_page.count(f'aria-label="{name}"') for name in ("Calibration", "Residuals"))


def test_class_report_has_its_own_pictures(class_page: str) -> None:
    reader = read(class_page)
    words = " ".join(reader.text)
    for title in ("Reliability", "Confidence", "Confusion", "Log-loss", "Brier", "Accuracy"):
        assert title in words, title
    assert reader.tags.count("svg") == 5
    assert reader.tags.count("table") == 2


@pytest.mark.parametrize("which", ["numeric_page", "class_page"])
def test_nothing_is_loaded_and_nothing_runs(which: str, request: pytest.FixtureRequest) -> None:
    page: str = request.getfixturevalue(which)
    reader = read(page)
    assert not {"script", "iframe", "object", "embed", "img", "image", "foreignobject"} & set(
        reader.tags
    )
    for tag, name, value in reader.attributes:
        assert not name.startswith("on"), (tag, name)
        if name in ("href", "src", "xlink:href"):
            assert value.startswith("#") or value == "data:,", (tag, name, value)
        if "url(" in value:
            assert "url(#" in value
    style = re.search(r"<style>(.*?)</style>", page, re.DOTALL)
    assert style is not None
    assert "url(" not in style[1]
    assert "@import" not in style[1]
    assert "default-src 'none'" in page


@pytest.mark.parametrize("which", ["numeric_page", "class_page"])
def test_hostile_names_show_as_text(which: str, request: pytest.FixtureRequest) -> None:
    page: str = request.getfixturevalue(which)
    assert HOSTILE not in page
    assert HOSTILE in " ".join(read(page).text)
    assert "\x00" not in page
    assert "\u202e" not in page


def test_hostile_names_show_as_text_inside_the_pictures(numeric_page: str) -> None:
    drawings = re.findall(r"<svg.*?</svg>", numeric_page, re.DOTALL)
    assert any("&lt;script&gt;alert(1)&lt;/script&gt;" in text for text in drawings)
    assert any("$x^2$ &amp;" in text for text in drawings)


def test_ids_are_unique_and_every_reference_resolves(numeric_page: str) -> None:
    ids = re.findall(r'\bid="([^"]+)"', numeric_page)
    assert len(ids) == len(set(ids))
    used = re.findall(r'href="#([^"]+)"|url\(#([^)]+)\)', numeric_page)
    assert {a or b for a, b in used} <= set(ids)


def test_colours_follow_the_reader(numeric_page: str) -> None:
    assert "prefers-color-scheme: dark" in numeric_page
    assert "@media print" in numeric_page
    for drawing in re.findall(r"<svg.*?</svg>", numeric_page, re.DOTALL):
        assert "var(--" in drawing
        assert not re.search(r"(fill|stroke): #", drawing)


def test_the_same_data_make_the_same_page(class_page: str) -> None:
    assert report_html(class_data()) == class_page


def test_several_targets_get_a_section_each(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="the extra kbnn[report] is not installed")
    path = tmp_path / "report.html"
    write_report(numeric_data(2, learning=False), path)
    page = path.read_text(encoding="utf-8")
    reader = read(page)
    assert "nav" in reader.tags
    assert reader.tags.count("h2") == 2
    assert "rows seen" not in page
    assert [p.name for p in tmp_path.iterdir()] == ["report.html"]


def test_a_model_that_has_seen_nothing_still_has_a_page() -> None:
    pytest.importorskip("matplotlib", reason="the extra kbnn[report] is not installed")
    for card, task in ((number_card(1, 2), number_task("y")), (label_card(2), label_task())):
        data = ReportData("Empty", "", [told(card, task, 0, ["a", "b"])])
        assert "Too few rows to judge" in report_html(data)


def test_extreme_rows_do_not_stop_the_report() -> None:
    pytest.importorskip("matplotlib", reason="the extra kbnn[report] is not installed")
    card = numeric_card(60)
    x = np.array([[1e300, np.nan, -1e300, 0.0]])
    one = np.array([[1.0]])
    card.add(x, 1e200 * one, numbers(one, 1e-12 * one))
    data = ReportData("Extreme", "", [told(card, number_task("y"), 0, NAMES)])
    read(report_html(data))


def test_worst_rows_come_first_and_say_what_was_forecast() -> None:
    card = numeric_card()
    table = worst_rows(number_task("yield"), card.summaries, 0, NAMES)
    assert list(table.columns)[:4] == ["row", "yield, true", "forecast", "NLL, nats"]
    surprise = [float(row[3]) for row in table.rows]
    assert surprise == sorted(surprise, reverse=True)
    assert len(table.rows) == 10
    assert "±" in table.rows[0][2]
    species = label_task(["r", "s", "t"], "species")
    classes = worst_rows(species, class_card().summaries, 0, ["a", "b"])
    assert classes.rows[0][2].endswith("%)")


def test_mistaken_classes_are_shaded_by_their_share_of_the_true_one() -> None:
    counts = [[30, 10, 0], [0, 5, 5], [0, 0, 0]]
    table = build_confusion_table(ConfusionMatrix("Confusion", ["a", "b", "c"], counts))
    page = str(load_templates().get_template("parts.html").module.confusion_table(table))
    cells = re.findall(r'<td class="(\w+)" style="--p: (\d+)%">(\d+)</td>', page)
    assert cells[:6] == [
        ("own", "52", "30"), ("wrong", "18", "10"), ("zero", "0", "0"),
        ("zero", "0", "0"), ("own", "35", "5"), ("wrong", "35", "5"),
    ]  # fmt: skip
    assert re.findall(r"<td>([^<]*)</td></tr>", page) == ["75.0 %", "50.0 %", "-"]


def picture_data(features: int) -> PictureData:
    """A picture over so many features."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, features))

    def model(table: FloatArray) -> PredictionCurve:
        mean, sd = np.sin(table[:, 0]), 0.1 + 0.1 * np.abs(table[:, -1])
        return PredictionCurve(mean, sd, 0.5 * sd, mean - sd, mean + 2.0 * sd)

    mean, sd, *_ = model(x)
    names = [HOSTILE, "$y$", "c"][:features]
    card, task = number_card(1, features), number_task("yield")
    card.add(x, mean[:, None] + 0.1, numbers(mean, sd))
    drawn = describe_dependence(task, card.scores[0], card.summaries, 0)
    return PictureData("yield", names, x, mean + 0.1, drawn, model)


SIGNATURE = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}


@pytest.mark.parametrize(
    ("features", "kind"), [(1, "svg"), (1, "pdf"), (2, "png"), (3, "svg"), (3, "png")]
)
def test_the_main_picture_in_every_format(features: int, kind: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="the extra kbnn[report] is not installed")
    first, second = tmp_path / f"a.{kind}", tmp_path / f"b.{kind}"
    write_picture(picture_data(features), first)
    write_picture(picture_data(features), second)
    content = first.read_bytes()
    assert content.startswith(SIGNATURE[kind])
    assert content == second.read_bytes()
    if kind == "svg":
        assert HOSTILE.encode() not in content


def test_classes_get_a_reliability_picture(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="the extra kbnn[report] is not installed")
    card, task = class_card(), label_task(["r", "s", "t"], "species")
    drawn = describe_dependence(task, card.scores[0], card.summaries, 0)

    def predict(x: FloatArray) -> PredictionCurve:
        said: Forecast = labels(np.tile([0.2, 0.3, 0.5], (len(x), 1)))
        return drawn.values(said)

    for features in (3, 2, 1):
        x, truth = np.zeros((4, features)), drawn.truth(np.array([0.0, 1.0, 2.0, 1.0]))
        names = ["a", "b", "c"][:features]
        data = PictureData("species", names, x, truth, drawn, predict)
        write_picture(data, tmp_path / f"{features}.svg")
    assert b"right, %" in (tmp_path / "3.svg").read_bytes()
    assert b"probability of" in (tmp_path / "1.svg").read_bytes()


def test_a_picture_needs_a_known_ending(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"must end in \.png, \.svg or \.pdf\.$"):
        write_picture(picture_data(1), tmp_path / "plot.gif")


def test_without_jinja_the_error_names_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    load_templates.cache_clear()
    with pytest.raises(UsageError, match=r"needs Jinja2.*pip install 'kbnn\[report\]'"):
        report_html(numeric_data())


def test_without_the_extra_the_error_names_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def refuse(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.split(".")[0] == "matplotlib":
            raise ModuleNotFoundError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(UsageError) as caught:
        report_html(numeric_data())
    assert str(caught.value) == (
        "Charts need matplotlib, which is not installed: "
        "run pip install 'kbnn[report]' and try again."
    )


def test_words() -> None:
    assert clean_text("a\tb\x1b") == "a\ufffdb\ufffd"
    assert shorten_label("x" * 40) == "x" * 27 + "…"
    assert escape_html("<a href='x'>") == "&lt;a href=&#x27;x&#x27;&gt;"
    assert [format_row_tick(v) for v in (32, 1000, 1e6)] == ["32", "1k", "1M"]
