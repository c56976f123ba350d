"""Models written by earlier versions of the format load, predict the same and can go on."""

from __future__ import annotations

import csv
import io
import json
import shutil
import zipfile
from pathlib import Path

import numpy as np
import pytest

from kbnn.errors import ModelError
from kbnn.fleet import store
from kbnn.model import file as modelfile
from kbnn.model.migrations import MIGRATIONS, migrate_state
from tests.commands import kbnn
from tests.modelling import differences, restored

FIXTURES = Path(__file__).parent.parent / "fixtures"
FIRST = FIXTURES / "format1"
THIRD = FIXTURES / "format3"
MODELS = sorted(f"{path.parent.name}/{path.stem}" for path in FIXTURES.glob("format*/*.npz"))


def rows_of(name: str) -> Path:
    """The table that the models of a name learned."""
    if name.endswith("series"):
        return FIXTURES / f"{name}.csv"
    tables = {"classes": "labels.csv", "positive": "prices.csv", "waiting": "late.csv"}
    table = tables.get(name.split("/")[1], "mixed.csv")
    return (THIRD if table in ("prices.csv", "late.csv") else FIRST) / table


def table(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_every_version_has_a_step_and_a_fixture() -> None:
    assert len(MIGRATIONS) == modelfile.VERSION - 1
    for version in range(1, modelfile.VERSION):
        assert list((FIXTURES / f"format{version}").glob("*.npz"))


@pytest.mark.parametrize("name", MODELS)
def test_a_model_of_an_earlier_format_predicts_the_same(name: str) -> None:
    parts = () if name.endswith("classes") else ("--decompose",)
    said = kbnn("predict", FIXTURES / f"{name}.npz", rows_of(name), *parts, "--digits", "17")
    assert (said.code, said.err) == (0, "")
    wanted = table((FIXTURES / f"{name}.predicted.csv").read_text())
    got = table(said.out)
    assert [list(row) for row in got] == [list(row) for row in wanted]
    for row, other in zip(got, wanted, strict=True):
        for column, value in other.items():
            if value and column.startswith(("mean", "sd", "lower", "upper", "function", "noise")):
                # Rows that were held are learned by this version, which states a mixture.
                edge = "held" in name and column.startswith(("lower", "upper"))
                # Since format 8 one-step forecasts of a series are weighted and widened anew.
                is_weighted_anew = name.endswith("series") and not name.startswith("format9")
                near = 1.2 if is_weighted_anew else 0.1 if edge else 0.0
                allowed = 1e-9 * abs(float(value)) + (near and near * float(other["sd"]))
                assert float(row[column]) == pytest.approx(float(value), abs=allowed), column
            elif value and column.startswith("p_"):
                # Before format 5 three classes were surer: now they follow from pairs' odds.
                surer = name.endswith("classes") and not name.startswith("format5")
                allowed = 0.1 if surer else 1e-9 * float(value)
                assert float(row[column]) == pytest.approx(float(value), abs=allowed), column
            else:
                assert row[column] == value


@pytest.mark.parametrize("name", MODELS)
def test_a_model_of_an_earlier_format_keeps_its_record(name: str) -> None:
    raw = json.loads(_header(FIXTURES / f"{name}.npz"))
    assert raw["version"] == int(name.split("/")[0].removeprefix("format"))
    model = modelfile.load(str(FIXTURES / f"{name}.npz"))
    assert [score.rows for score in model.card.scores] == [
        score["rows"] for score in raw["model"]["record"]["scores"]
    ]
    for score, old in zip(model.card.scores, raw["model"]["record"]["scores"], strict=True):
        figures = score.metric_values()
        if score.rows and raw["version"] > 1:
            assert figures["rows"] == old["rows"]
        elif score.rows and "square" in old["sums"]:
            assert figures["rmse"] == np.sqrt(old["sums"]["square"] / old["weight"])
            assert figures["coverage"]["80"] == old["sums"]["in80"] / old["weight"]
        elif score.rows:
            assert figures["accuracy"] == old["sums"]["correct"] / old["sums"]["weight"]
    assert model.card.curve_points()[0][0].rows if model.card.curve.rows else True
    assert differences(model, restored(model)) == []


@pytest.mark.parametrize(
    "name", [m for m in MODELS if m.endswith(("real", "classes", "held", "positive", "series"))]
)
def test_a_model_of_an_earlier_format_goes_on(name: str, tmp_path: Path) -> None:
    model = tmp_path / "model.npz"
    model.write_bytes((FIXTURES / f"{name}.npz").read_bytes())
    before = modelfile.load(str(model)).rows
    ran = kbnn("train", rows_of(name), "-m", model, "-q")
    assert ran.code == 0, ran.err
    after = modelfile.load(str(model))
    assert after.rows > before
    assert after.settings == modelfile.load(str(FIXTURES / f"{name}.npz")).settings
    assert json.loads(_header(model))["version"] == modelfile.VERSION


@pytest.mark.parametrize("name", ["numbers", "classes"])
def test_a_fleet_that_was_written_once_predicts_the_same_and_goes_on(
    name: str, tmp_path: Path
) -> None:
    """Packed models, model files, one that is still held, a common start and none."""
    here = FIXTURES / f"fleet{store.FLEET_VERSION}"
    fleet, rows = tmp_path / name, here / "readings.csv"
    shutil.copytree(here / name, fleet)
    said = kbnn("predict", fleet, rows, "--limit", "40", "--digits", "17")
    assert (said.code, said.err) == (0, "")
    wanted = table((here / f"{name}.predicted.csv").read_text())
    got = table(said.out)
    assert [list(row) for row in got] == [list(row) for row in wanted]
    for row, other in zip(got, wanted, strict=True):
        for column, value in other.items():
            if column.startswith(("mean", "sd", "lower", "upper", "p_")):
                assert float(row[column]) == pytest.approx(float(value), rel=1e-9), column
            else:
                assert row[column] == value
    before = json.loads(kbnn("inspect", fleet, "--json").out)
    ran = kbnn("train", rows, "--key", "site", "-m", fleet, "-q")
    assert ran.code == 0, ran.err
    after = json.loads(kbnn("inspect", fleet, "--json").out)
    assert (before["rows"], after["rows"]) == (200, 400)


def test_what_cannot_be_migrated_is_damaged() -> None:
    with pytest.raises(ModelError, match=r"^is damaged \(its parts do not fit together\)$"):
        migrate_state(1, {"networks": []}, {})


def _header(path: Path) -> str:
    with zipfile.ZipFile(path) as archive:
        return archive.read("header.json").decode()
