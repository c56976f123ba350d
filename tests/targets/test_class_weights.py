"""Weights of classes: what they do, that they are learned as row weights, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kbnn
from kbnn.array_types import FloatArray
from kbnn.errors import UsageError
from kbnn.targets.classification import balance_classes
from tests.commands import kbnn as command

utils = pytest.importorskip("sklearn.utils.class_weight")

ROWS = 900


def table(seed: int = 0) -> dict[str, Any]:
    """One row in ten is a fault."""
    rng = np.random.default_rng(seed)
    fault = rng.random(ROWS) < 0.1
    x = rng.standard_normal(ROWS) + 1.3 * fault
    return {"x": x, "label": np.where(fault, "fault", "ok")}


def probabilities(model: kbnn.Model) -> FloatArray:
    """Predicted probabilities of a fault along x."""
    forecast = model.predict({"x": np.linspace(-2.0, 3.0, 21)})
    return np.asarray(forecast.probability)[:, model.classes.index("fault")]


def test_balanced_weights_are_those_of_scikit_learn_at_the_last_row() -> None:
    labels = np.random.default_rng(1).choice(4, 500, p=[0.6, 0.3, 0.07, 0.03]).astype(float)
    weights, counts = balance_classes(np.zeros(0), labels)
    wanted = utils.compute_class_weight("balanced", classes=np.arange(4), y=labels.astype(int))
    assert weights[-1] == pytest.approx(wanted[int(labels[-1])], rel=1e-12)
    np.testing.assert_array_equal(counts, np.bincount(labels.astype(int)))


@pytest.mark.parametrize("cuts", [[1, 2, 250], [499]])
def test_balanced_weights_do_not_depend_on_batches(cuts: list[int]) -> None:
    labels = np.random.default_rng(2).integers(0, 5, 500).astype(float)
    labels[::7] = np.nan
    whole, _ = balance_classes(np.zeros(0), labels)
    counts, parts = np.zeros(0), []
    for part in np.split(labels, cuts):
        weights, counts = balance_classes(counts, part)
        parts.append(weights)
    np.testing.assert_array_equal(np.concatenate(parts), whole)
    assert np.all(whole[::7] == 1.0)


def test_weights_of_classes_are_learned_as_weights_of_rows() -> None:
    data = table()
    weighted = {**data, "w": np.where(data["label"] == "fault", 8.0, 1.0)}
    by_class = kbnn.train(data, target="label", layers=5, class_weight={"fault": 8.0})
    by_row = kbnn.train(weighted, target="label", layers=5, weight="w")
    np.testing.assert_array_equal(probabilities(by_class), probabilities(by_row))


def test_balanced_classes_raise_the_probability_of_a_rare_class() -> None:
    plain = kbnn.train(table(), target="label", layers=5)
    balanced = kbnn.train(table(), target="label", layers=5, class_weight="balanced")
    assert np.all(probabilities(balanced) > probabilities(plain))
    # With equal weights the classes are as likely half way between their means.
    assert np.interp(0.65, np.linspace(-2.0, 3.0, 21), probabilities(balanced)) == pytest.approx(
        0.5, abs=0.2
    )


def test_scores_are_those_of_the_rows_as_they_are() -> None:
    model = kbnn.train(table(), target="label", layers=5, class_weight="balanced")
    figures = model.record()
    rare = float(np.mean(table()["label"][32:] == "fault"))
    assert figures["baseline_accuracy"] == pytest.approx(1.0 - rare, abs=1e-9)


def test_a_model_resumes_with_its_counts(tmp_path: Path) -> None:
    data = table()
    first, second = ({k: v[part] for k, v in data.items()} for part in (np.s_[:400], np.s_[400:]))
    whole = kbnn.train(data, target="label", layers=5, class_weight="balanced")
    model = kbnn.train(first, target="label", layers=5, class_weight="balanced")
    model.save(tmp_path / "m.npz")
    again = kbnn.load(tmp_path / "m.npz")
    again.learn(second)
    np.testing.assert_array_equal(probabilities(again), probabilities(whole))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("fault,abc\n", "needs a number as the weight of class 'fault', not 'abc'"),
        ("fault,-1\n", "has -1 as the weight of class 'fault'"),
        ("fault\n", "has 1 fields; needed are class,weight"),
        (None, "cannot be read (No such file or directory)"),
    ],
)
def test_files_of_weights_are_checked(tmp_path: Path, content: str | None, words: str) -> None:
    path = tmp_path / "w.csv"
    if content is not None:
        path.write_text(content)
    with pytest.raises((UsageError, TypeError)) as caught:
        kbnn.train(table(), target="label", class_weight=str(path))
    assert words in str(caught.value)


def test_a_file_of_weights_is_a_mapping(tmp_path: Path) -> None:
    path = tmp_path / "w.csv"
    path.write_text("class,weight\nfault,8\nok,1\n")
    by_file = kbnn.train(table(), target="label", layers=5, class_weight=str(path))
    by_name = kbnn.train(table(), target="label", layers=5, class_weight={"fault": 8, "ok": 1})
    np.testing.assert_array_equal(probabilities(by_file), probabilities(by_name))


def test_numbers_have_no_classes_to_weigh() -> None:
    with pytest.raises(UsageError, match="holds numbers"):
        kbnn.train({"x": [1.0, 2.0] * 30, "y": list(range(60))}, class_weight="balanced")


def test_weights_of_classes_that_do_not_occur_are_reported(tmp_path: Path) -> None:
    rows = tmp_path / "rows.csv"
    lines = [f"{k % 7},{'ok' if k % 3 else 'fault'}" for k in range(90)]
    rows.write_text("\n".join(["x,label", *lines, ""]))
    weights = tmp_path / "weights.csv"
    words = ("train", rows, "-m", tmp_path / "m.npz", "--fresh", "--class-weight", weights)
    weights.write_text("class,weight\nfualt,5\nok,1\n")
    ran = command(*words)
    assert ran.code == 0
    assert "no row has the class 'fualt'. Classes without a weight count 1" in ran.err
    weights.write_text("fault,5\n")
    assert "--class-weight: no row" not in command(*words).err
    weights.write_text("class,weight\n")
    ran = command(*words)
    assert ran.code == 2
    assert "has no weights in" in ran.err
