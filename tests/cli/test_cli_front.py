"""The way into the command line: python -m kbnn, help, versions, and where tables come and go."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq
import pytest

import kbnn
from tests.commands import SAMPLES
from tests.commands import kbnn as command


def test_python_m_is_the_program() -> None:
    for words in (["-V"], ["help", "train"], ["predikt"]):
        ran = [
            subprocess.run(
                [sys.executable, "-m", module, *words],
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
            for module in ("kbnn", "kbnn_cli.app")
        ]
        assert (ran[0].returncode, ran[0].stdout, ran[0].stderr) == (
            ran[1].returncode,
            ran[1].stdout,
            ran[1].stderr,
        )
        assert "Traceback" not in ran[0].stderr


def test_the_version_has_a_short_name() -> None:
    assert command("-V") == command("--version")
    assert command("-V").out.startswith("kbnn 0.2.0 (")


def test_help_is_a_command() -> None:
    assert command("help").out == command("--help").out
    for name in ("train", "predict", "evaluate", "inspect"):
        assert command("help", name).out == command(name, "--help").out
    ran = command("help", "trian")
    assert ran.code == 2
    assert ran.err == "kbnn: no such command 'trian': did you mean 'train'? (see 'kbnn --help')\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["pedict"], "no such command 'pedict': did you mean 'predict'?"),
        (["train", "x.csv", "--epoch", "3"], "no such option: --epoch: did you mean --epochs?"),
        (["predict", "m", "x", "--intervall", "1"], "did you mean --interval?"),
        (["hlep"], "did you mean 'help'?"),
    ],
)
def test_what_is_misspelt_is_pointed_out(words: list[str], said: str) -> None:
    ran = command(*words)
    assert ran.code == 2
    assert said in ran.err


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "m.npz"
    assert command("train", SAMPLES / "moons.csv", "--layers", "5", "-m", path, "-q").code == 0
    return path


def test_predictions_as_json_lines_and_arrow(model: Path, tmp_path: Path) -> None:
    for ending in ("parquet", "arrow", "jsonl"):
        out = tmp_path / f"x.{ending}"
        ran = command("predict", model, SAMPLES / "moons.csv", "-o", out, "--digits", "17")
        assert ran.code == 0
    table = pq.read_table(tmp_path / "x.parquet")
    with pa.ipc.open_file(tmp_path / "x.arrow") as file:
        assert file.read_all().equals(table)
    lines = (tmp_path / "x.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == table.to_pylist()
    again = command("train", tmp_path / "x.jsonl", "--target", "label", "-m", tmp_path / "n.npz")
    assert again.code == 0


def test_what_is_unknown_is_null_in_json(model: Path, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("x1,x2\n1,2\nnonsense,3\n")
    out = tmp_path / "o.ndjson"
    assert command("predict", model, tmp_path / "t.csv", "-o", out, "-q").code == 0
    first, second = map(json.loads, out.read_text().splitlines())
    assert first["x1"] == 1.0
    assert second["p_0"] is None
    ran = command("predict", model, tmp_path / "t.csv", "-o", tmp_path / "o.xlsx")
    assert ran.code == 2
    assert ".csv, .tsv, .txt, .jsonl, .parquet or .arrow, not .xlsx" in ran.err


def test_json_predictions_of_training_can_be_resumed(tmp_path: Path) -> None:
    whole, parts = tmp_path / "whole.jsonl", tmp_path / "parts.jsonl"
    data = SAMPLES / "cubic.csv"
    common = ["--layers", "4", "-q"]
    command("train", data, "-m", tmp_path / "a.npz", "--predictions", whole, *common)
    lines = data.read_text().splitlines()
    (tmp_path / "d.csv").write_text("\n".join([*lines[:301], "bad,", *lines[301:]]) + "\n")
    resumed = ["-m", str(tmp_path / "b.npz"), "--predictions", str(parts), *common]
    assert command("train", tmp_path / "d.csv", *resumed).code == 1
    (tmp_path / "d.csv").write_text("\n".join(lines) + "\n")
    assert command("train", tmp_path / "d.csv", *resumed, "--resume").code == 0
    assert parts.read_text() == whole.read_text()


def test_folders_named_like_columns_are_columns(tmp_path: Path) -> None:
    root = tmp_path / "set"
    for year, kind in ((2023, "a%20b"), (2024, "__HIVE_DEFAULT_PARTITION__")):
        folder = root / f"year={year}" / f"kind={kind}"
        folder.mkdir(parents=True)
        pq.write_table(
            pa.table({"x": [0.1 * i for i in range(30)], "y": [i + year for i in range(30)]}),
            folder / "part.parquet",
        )
    ran = command("train", root, "-m", tmp_path / "m.npz", "--layers", "4")
    assert ran.code == 0
    assert f"kbnn: {root}: folder names are read as columns: year, kind" in ran.err
    assert "kbnn: target: last column 'y' (choose with --target)" in ran.err
    model = kbnn.load(tmp_path / "m.npz")
    assert model.features == ["year", "kind", "x"]
    schema = model._require_model().schema
    assert schema.get_column("year").kind == "number"
    assert schema.get_column("kind").categories == ["a b"]
    out = tmp_path / "o.csv"
    assert command("predict", tmp_path / "m.npz", root, "-o", out, "-q").code == 0
    first = out.read_text().splitlines()[:2]
    assert first[0].startswith("year,kind,x,y,mean")
    assert first[1].startswith("2023,a b,")
    direct = command("train", root / "year=2023" / "kind=a%20b" / "part.parquet", "--dry-run")
    assert "year" not in direct.out
