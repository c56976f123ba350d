"""`kbnn predict`: one row out for every row in, whatever the rows are like."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.commands import SAMPLES, Ran, kbnn, program, trained


@pytest.fixture(scope="module")
def cubic(tmp_path_factory: pytest.TempPathFactory) -> str:
    return trained(tmp_path_factory.mktemp("models") / "cubic.npz", "cubic.csv")


@pytest.fixture(scope="module")
def moons(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("models")
    return trained(folder / "moons.npz", "moons.csv", "--layers", "10", "--limit", "500")


@pytest.fixture(scope="module")
def plant(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("models")
    return trained(folder / "plant.npz", "sensors.csv", "--layers", "10", "--limit", "500")


def rows(ran: Ran) -> list[dict[str, str]]:
    """What was written as CSV."""
    return list(csv.DictReader(io.StringIO(ran.out)))


def written(folder: Path, text: str) -> Path:
    """A file of that text."""
    path = folder / "in.csv"
    path.write_text(text, encoding="utf-8")
    return path


def test_input_columns_verbatim_then_the_prediction(plant: str) -> None:
    ran = kbnn("predict", plant, SAMPLES / "sensors_test.csv", "--limit", "50")
    with open(SAMPLES / "sensors_test.csv", encoding="utf-8") as file:
        source = list(csv.DictReader(file))[:50]
    assert (ran.code, ran.err) == (0, "")
    got = rows(ran)
    assert list(got[0]) == [*source[0], "mean", "sd", "lower", "upper"]
    assert [{name: row[name] for name in source[0]} for row in got] == source
    for row in got:
        mean, sd = float(row["mean"]), float(row["sd"])
        assert float(row["upper"]) == pytest.approx(mean + 1.6448536269514722 * sd, rel=0.05)
        assert float(row["lower"]) == pytest.approx(mean - 1.6448536269514722 * sd, rel=0.05)


def test_the_target_is_not_needed(cubic: str, tmp_path: Path) -> None:
    bare = kbnn("predict", cubic, written(tmp_path, "x\n-2\n3\n"), "--only-predictions")
    with_target = kbnn("predict", cubic, written(tmp_path, "x,y\n-2,1\n3,\n"), "--only-predictions")
    assert bare == with_target
    assert bare.code == 0
    assert list(rows(bare)[0]) == ["mean", "sd", "lower", "upper"]


def test_decompose_and_interval(cubic: str, tmp_path: Path) -> None:
    ran = kbnn("predict", cubic, written(tmp_path, "x\n1\n"), "--decompose", "--interval", "0.5")
    (row,) = rows(ran)
    assert list(row) == ["x", "mean", "sd", "lower", "upper", "function_sd", "noise_sd"]
    parts = float(row["function_sd"]) ** 2 + float(row["noise_sd"]) ** 2
    assert float(row["sd"]) ** 2 == pytest.approx(parts)
    half = float(row["upper"]) - float(row["mean"])
    assert half == pytest.approx(0.6744897501960817 * float(row["sd"]), rel=0.2)


def test_classes_have_probabilities_and_a_label(moons: str, tmp_path: Path) -> None:
    ran = kbnn("predict", moons, written(tmp_path, "x1,x2\n0,1\n1,-0.5\n"))
    got = rows(ran)
    assert list(got[0]) == ["x1", "x2", "label", "p_0", "p_1"]
    assert [row["label"] for row in got] == ["0", "1"]
    assert [float(row["p_0"]) + float(row["p_1"]) for row in got] == pytest.approx([1, 1])


def test_what_only_numbers_have_is_refused_of_classes(moons: str, tmp_path: Path) -> None:
    refused = "is for numbers, and the target holds classes"
    for option in (["--quantiles", "0.1"], ["--decompose"]):
        ran = kbnn("predict", moons, SAMPLES / "moons.csv", *option)
        assert (ran.code, ran.out) == (2, "")
        assert f"{option[0]} {refused}" in ran.err
    words = ("-m", tmp_path / "m.npz", "--predictions", tmp_path / "p.csv", "--quantiles", "0.1")
    ran = kbnn("train", SAMPLES / "moons.csv", *words)
    assert (ran.code, list(tmp_path.iterdir())) == (2, [])
    assert f"--quantiles {refused}" in ran.err


def test_broken_rows_stay_in_place_without_a_prediction(cubic: str, tmp_path: Path) -> None:
    source = written(tmp_path, "x,z\n1,a\nabc,b\n2,c,d\nNA,e\n4,f\n")
    bad = tmp_path / "bad.csv"
    ran = kbnn("predict", cubic, source, "--bad-rows", bad)
    got = rows(ran)
    assert ran.code == 0
    assert len(got) == 5
    # A row of which nothing is known is no broken row: it has a prediction.
    assert [row["mean"] == "" for row in got] == [False, True, True, False, False]
    assert got[1] == {"x": "abc", "z": "b", "mean": "", "sd": "", "lower": "", "upper": ""}
    assert ran.err.splitlines()[-1] == (
        f"kbnn: 2 rows could not be read: no prediction (see {bad})"
    )
    assert bad.read_text().splitlines() == [
        "source,row,column,value,reason",
        f"{source},3,x,abc,cannot read 'abc' as a number",
        f'{source},4,,"2,c,d","has 3 fields, the header has 2"',
    ]


@pytest.mark.parametrize("option", ["-o", "--bad-rows"])
def test_what_is_read_is_never_written_over(cubic: str, tmp_path: Path, option: str) -> None:
    source = written(tmp_path, "x\n1\n")
    before = Path(cubic).read_bytes()
    for target in (str(source), cubic):
        ran = kbnn("predict", cubic, str(tmp_path / "*.csv"), option, target)
        assert (ran.code, ran.out) == (2, "")
        assert f"{target}: would write over the " in ran.err
    assert source.read_text() == "x\n1\n"
    assert Path(cubic).read_bytes() == before


def test_only_broken_rows_go_without_a_label(moons: str, tmp_path: Path) -> None:
    got = rows(kbnn("predict", moons, written(tmp_path, "x1,x2\n0,1\nabc,1\nNA,NA\n")))
    assert [row["label"] == "" for row in got] == [False, True, False]


def test_a_missing_value_alone_is_predicted(cubic: str, tmp_path: Path) -> None:
    (row,) = rows(kbnn("predict", cubic, written(tmp_path, "x\nNA\n")))
    assert float(row["sd"]) > 5


def test_a_broken_row_has_no_label(moons: str, tmp_path: Path) -> None:
    ran = kbnn("predict", moons, written(tmp_path, "x1,x2\nq,1\n1,-0.5\n"))
    assert [(row["label"], row["p_1"] == "") for row in rows(ran)] == [("", True), ("1", False)]
    assert ran.err == (
        "kbnn: 1 row could not be read: no prediction (--bad-rows FILE lists them)\n"
    )


def test_quiet_says_nothing(cubic: str, tmp_path: Path) -> None:
    assert kbnn("predict", cubic, written(tmp_path, "x\nabc\n1\n"), "-q").err == ""


def test_another_spelling_of_missing(cubic: str, tmp_path: Path) -> None:
    ran = kbnn("predict", cubic, written(tmp_path, "x\nabc\n1\n"), "--na", "abc")
    assert ran.err == ""
    assert all(row["mean"] for row in rows(ran))


def test_parquet_holds_the_same(cubic: str, tmp_path: Path) -> None:
    out = tmp_path / "out.parquet"
    ran = kbnn("predict", cubic, SAMPLES / "cubic.csv", "-o", out, "--json")
    text = rows(kbnn("predict", cubic, SAMPLES / "cubic.csv", "--digits", "17"))
    table = pq.read_table(out)
    assert table.column("mean").to_pylist() == [float(row["mean"]) for row in text]
    summary = json.loads(ran.out)
    assert (summary["output"], summary["rows"], summary["unreadable"]) == (str(out), 800, 0)


def test_a_pipe_gives_what_a_file_gives(cubic: str) -> None:
    source = SAMPLES / "cubic.csv"
    piped = program("predict", cubic, "-", stdin=source.read_bytes())
    assert piped == kbnn("predict", cubic, source)


def test_a_live_row_is_answered_before_the_next_comes(cubic: str) -> None:
    command = [sys.executable, "-m", "kbnn_cli.app", "predict", cubic, "-"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as live:
        assert live.stdin is not None
        assert live.stdout is not None
        live.stdin.write(b"x\n1\n")
        live.stdin.flush()
        assert live.stdout.readline() == b"x,mean,sd,lower,upper\n"
        assert live.stdout.readline().startswith(b"1,")
        live.stdin.write(b"2\n")
        live.stdin.flush()
        assert live.stdout.readline().startswith(b"2,")
        live.stdin.close()
        assert live.wait(timeout=30) == 0


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--interval", "1.5"], 2, "--interval must lie between 0 and 1, not 1.5"),
        (["--on-error", "keep"], 2, "--on-error is skip or stop, not 'keep'"),
        (["--limit", "0"], 2, "--limit must be at least 1, not 0"),
        (
            ["--format", "xml"],
            2,
            "--format is auto, csv, tsv, json, parquet or arrow, not 'xml'",
        ),
        (["--delimiter", "ab"], 2, "--delimiter is one character, not 'ab'"),
        (
            ["--json"],
            2,
            "--json and the predictions cannot both go to standard output (add -o FILE)",
        ),
        (
            ["-o", "x.xlsx"],
            2,
            "x.xlsx: tables are written as .csv, .tsv, .txt, .jsonl, .parquet or .arrow, not .xlsx",
        ),
        (["--bad-rows", "-"], 2, "--bad-rows needs a file: standard output carries the result"),
        (
            ["--bad-rows", "no/b.csv"],
            1,
            "no/b.csv: cannot be written (no such file or directory)",
        ),
        (["-o", "no/x.csv"], 1, "no/x.csv: cannot be written (no such file or directory)"),
    ],
)
def test_wrong_options(
    options: list[str],
    code: int,
    message: str,
    cubic: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert kbnn("predict", cubic, SAMPLES / "cubic.csv", *options) == (
        code,
        "",
        f"kbnn: {message}\n",
    )


def test_wrong_files(cubic: str, tmp_path: Path) -> None:
    source = SAMPLES / "cubic.csv"
    absent = tmp_path / "absent.npz"
    assert kbnn("predict", absent, source).err == f"kbnn: {absent}: no such model file\n"
    assert kbnn("predict", source, source).err == f"kbnn: {source}: is not a model file\n"
    other = written(tmp_path, "a\n1\n")
    ran = kbnn("predict", cubic, other)
    assert (ran.code, ran.out) == (1, "")
    assert ran.err == (
        f"kbnn: {other}:1: the first line is neither the expected header (x, y) nor data: "
        "column 'x': cannot read 'a' as a number\n"
    )


def test_stop_gives_the_rows_before(cubic: str, tmp_path: Path) -> None:
    source = written(tmp_path, "x\n1\nabc\n2\n")
    ran = kbnn("predict", cubic, source, "--on-error", "stop")
    assert ran.code == 1
    assert len(rows(ran)) == 1
    assert ran.err == (
        f"kbnn: {source}:3: column 'x': cannot read 'abc' as a number "
        "(use --na 'abc' or --on-error skip)\n"
    )


def test_help_ends_with_examples() -> None:
    ran = kbnn("predict", "--help")
    assert ran.code == 0
    assert ran.out.rstrip().splitlines()[-1].strip().startswith("kbnn predict model.npz")
