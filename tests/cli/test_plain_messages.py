"""What training, inspect and evaluate print is true where signs and kinds of target change."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path

import numpy as np
import pytest

from kbnn.distributions import categorical
from kbnn.metrics.class_metrics import ClassScore, ScoredClassBatch
from kbnn.metrics.sections import describe_classes
from kbnn.model.candidates import format_evidence
from kbnn.targets.classification import Classes
from tests.bench.data import schema
from tests.commands import SAMPLES, kbnn


def test_nats_are_ahead_or_behind_and_never_negative() -> None:
    assert format_evidence(6.89, "--rehearse off") == "6.89 nats ahead of --rehearse off"
    assert format_evidence(-6.89, "--rehearse off") == "6.89 nats behind --rehearse off"


@pytest.mark.parametrize(
    ("favoured", "words"),
    [
        (0.0, "left as they are"),
        (2.0, "raised to this power"),
        (-2.0, "drawn towards the class shares"),
    ],
)
def test_a_sharpness_of_1_leaves_probabilities_as_they_are(favoured: float, words: str) -> None:
    known = categorical.init_temperature(np.array([0.0, 1.0]), 2)
    known[categorical.EVIDENCE_ROWS] = 100.0
    known[categorical.EVIDENCE] = favoured * categorical.LOG2_POWERS
    (told,) = [
        text
        for label, text in describe_classes(Classes(schema(1, 1, 2)), known)
        if label == "sharpness"
    ]
    assert f"probabilities are {words}, learned from 100 rows" in told


@pytest.mark.parametrize("classes", [2, 3, 10])
def test_the_brier_score_has_one_definition(classes: int) -> None:
    """Between 0 and 1: certain and wrong is 1, whatever the number of classes."""
    p = np.zeros((1, classes))
    p[0, 0] = 1.0
    for label, expected in ((0.0, 0.0), (1.0, 1.0)):
        score = ClassScore()
        score.add(ScoredClassBatch(np.array([label]), p))
        assert score.metric_values()["brier"] == expected
    even = ClassScore()
    even.add(
        ScoredClassBatch(np.arange(float(classes)), np.full((classes, classes), 1.0 / classes))
    )
    figures = even.metric_values()
    assert figures["brier"] == pytest.approx(0.5 * (1.0 - 1.0 / classes))
    assert figures["baseline_brier"] == pytest.approx(figures["brier"])


def test_evaluate_does_not_say_that_rows_are_learned(tmp_path: Path) -> None:
    lines = (SAMPLES / "load.csv").read_text().splitlines()[:201]
    (tmp_path / "a.csv").write_text("\n".join(lines) + "\n")
    (tmp_path / "b.csv").write_text("\n".join([*lines[:50], lines[49], *lines[40:60]]) + "\n")
    model = tmp_path / "m.npz"
    assert kbnn("train", tmp_path / "a.csv", "-m", model, "-q").code == 0
    said = kbnn("evaluate", model, tmp_path / "b.csv").err
    assert "has the same time as the row before it" in said
    assert "the time goes backwards" in said
    assert "learned" not in said


@pytest.mark.parametrize(
    ("sample", "head"), [("prices", "noise sd"), ("rain", "noise sd"), ("visits", "dispersion")]
)
def test_every_line_of_training_has_the_noise_of_its_kind(
    sample: str, head: str, tmp_path: Path
) -> None:
    ran = kbnn("train", SAMPLES / f"{sample}.csv", "-m", tmp_path / "m.npz")
    heads = [line for line in ran.err.splitlines() if "since last" in line]
    assert head in heads[-1]
    shown = re.findall(r"^ +[\d,]+ .* % +(\S+) +[\d,]+$", ran.err, re.MULTILINE)
    assert len(shown) >= 5
    assert all(float(value.replace(",", "")) > 0.0 for value in shown)


@pytest.mark.parametrize("labels", ["red,blue,red", "0,1,1", "true,false,true"])
def test_nothing_is_forecast_of_the_first_row_of_classes(labels: str, tmp_path: Path) -> None:
    rows = "".join(f"{at},{label}\n" for at, label in enumerate(labels.split(",")))
    (tmp_path / "c.csv").write_text(f"x,y\n{rows}")
    ran = kbnn("train", tmp_path / "c.csv", "-m", tmp_path / "m.npz", "-q", "--predictions", "-")
    first, second, _ = csv.DictReader(io.StringIO(ran.out))
    assert first["label"] == ""
    assert {first[name] for name in first if name.startswith("p")} == {"0.5"}
    assert second["label"] == first["y"]


def test_the_columns_of_predictions_are_documented(tmp_path: Path) -> None:
    page = (Path(__file__).parent.parent.parent / "docs/howto/live_stream.md").read_text()
    for sample in ("cubic", "visits", "moons"):
        model = tmp_path / f"{sample}.npz"
        source = SAMPLES / f"{sample}.csv"
        more = ("--limit", "60", "-q", "--predictions", "-")
        out = kbnn("train", source, "-m", model, *more).out
        given = source.read_text().split("\n", 1)[0].split(",")
        for name in set(out.split("\n", 1)[0].split(",")) - set(given):
            plain = "p_CLASS" if re.fullmatch(r"p_\d", name) and sample == "moons" else name
            assert f"`{plain.removeprefix('kbnn_')}`" in page, name
