"""`kbnn evaluate`: the figures of the model's own predictions, and everything around them."""

from __future__ import annotations

import csv
import io
import json
import os
import re
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import norm

from tests.commands import SAMPLES, kbnn, program, trained

NUMBER_KEYS = ["rows", "skipped", "rmse", "mae", "r2", "nll", "crps", "coverage"]
NUMBER_KEYS += ["interval_width_90", "bias", "spread", "last_rmse", "season_rmse"]
NUMBER_KEYS += ["baseline_rmse", "baseline_nll"]
CLASS_KEYS = ["rows", "skipped", "accuracy", "log_loss", "brier", "ece", "confidence"]
CLASS_KEYS += ["baseline_accuracy", "baseline_log_loss", "baseline_brier"]
NUMBER_KEYS += ["mape", "smape", "median_absolute_error", "approximation"]
CLASS_KEYS += ["auc", "average_precision", "f1_macro", "mcc", "f1", "precision", "recall"]
CLASS_KEYS += ["confusion", "approximation", "positive_class"]
TIME_KEYS = ["learning", "seconds", "rows_per_second"]


@pytest.fixture(scope="module")
def cubic(tmp_path_factory: pytest.TempPathFactory) -> str:
    return trained(tmp_path_factory.mktemp("models") / "cubic.npz", "cubic.csv")


@pytest.fixture(scope="module")
def moons(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("models")
    return trained(folder / "moons.npz", "moons.csv", "--layers", "10", "--limit", "500")


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("models")
    options = ["--target", "power_kw,inlet_temp_c", "--layers", "5", "--limit", "400"]
    return trained(folder / "two.npz", "sensors.csv", *options)


def test_json_agrees_with_the_predictions(cubic: str) -> None:
    got = json.loads(kbnn("evaluate", cubic, SAMPLES / "cubic.csv", "--json").out)
    assert list(got) == [*NUMBER_KEYS, "intervals", *TIME_KEYS]
    assert list(got["coverage"]) == ["50", "80", "90", "95"]
    table = csv.DictReader(io.StringIO(kbnn("predict", cubic, SAMPLES / "cubic.csv").out))
    names = ("y", "mean", "sd", "lower", "upper")
    y, mean, sd, lower, upper = np.array([[float(r[k]) for k in names] for r in table]).T
    assert (got["rows"], got["skipped"]) == (800, 0)
    assert got["rmse"] == pytest.approx(np.sqrt(np.mean((y - mean) ** 2)), rel=1e-9)
    assert got["mae"] == pytest.approx(np.mean(np.abs(y - mean)), rel=1e-9)
    assert got["nll"] == pytest.approx(-np.mean(norm.logpdf(y, mean, sd)), abs=0.05)
    assert got["baseline_rmse"] == pytest.approx(np.std(y), rel=1e-9)
    assert got["coverage"]["90"] == pytest.approx(np.mean((lower <= y) & (y <= upper)))
    assert got["interval_width_90"] == pytest.approx(np.mean(upper - lower), rel=1e-9)


def test_json_of_classes(moons: str) -> None:
    got = json.loads(kbnn("evaluate", moons, SAMPLES / "moons.csv", "--json").out)
    assert list(got) == CLASS_KEYS + TIME_KEYS
    assert got["accuracy"] > 0.95


def test_json_of_several_targets(two: str) -> None:
    got = json.loads(kbnn("evaluate", two, SAMPLES / "sensors_test.csv", "--json").out)
    assert list(got) == ["rows", "skipped", "targets", "intervals", *TIME_KEYS]
    assert sorted(got["targets"]) == ["inlet_temp_c", "power_kw"]
    assert all(list(figures) == NUMBER_KEYS for figures in got["targets"].values())
    assert got["targets"]["inlet_temp_c"]["skipped"] > 0
    scored = [figures["rows"] for figures in got["targets"].values()]
    assert min(scored) < max(scored) == got["rows"]  # a row counts where any target is known


def test_the_model_stays_as_it_is(cubic: str) -> None:
    before = Path(cubic).read_bytes()
    first, second = (
        json.loads(kbnn("evaluate", cubic, SAMPLES / "cubic.csv", "--json").out) for _ in range(2)
    )
    assert Path(cubic).read_bytes() == before
    assert [first[key] for key in NUMBER_KEYS] == [second[key] for key in NUMBER_KEYS]


def test_the_answer_in_words(cubic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(SAMPLES)
    name = os.path.relpath(cubic)
    ran = kbnn("evaluate", name, "cubic.csv")
    assert (ran.code, ran.err) == (0, "")
    lines = ran.out.splitlines()
    assert any(line.startswith("The 90 % intervals held") for line in lines)
    assert [line.split()[0] for line in lines if re.match("(RMSE|MAE|R2|NLL|CRPS) {2}", line)] == [
        "RMSE",
        "MAE",
        "R2",
        "NLL",
        "CRPS",
    ]
    assert sum(line.startswith("inside ") for line in lines) == 4
    assert lines[-2] == "800 rows scored, calibrated intervals"
    assert re.fullmatch(r"\S+ s \(read \S+, predict \S+, score \S+\), [\d,]+ rows/s", lines[-1])
    assert not any(line.endswith(" ") or len(line) > 80 for line in lines)
    assert "Calibration" not in ran.out  # no charts off a terminal
    assert "\x1b" not in ran.out


def test_charts_on_a_terminal(cubic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kbnn_cli.display.on_terminal", lambda: True)
    assert "PIT histogram" in kbnn("evaluate", cubic, SAMPLES / "cubic.csv").out
    bare = kbnn("evaluate", cubic, SAMPLES / "cubic.csv", "--no-plots")
    assert "PIT histogram" not in bare.out


def test_fail_if(cubic: str) -> None:
    source = SAMPLES / "cubic.csv"
    assert kbnn("evaluate", cubic, source, "--fail-if", "rmse>10").code == 0
    ran = kbnn("evaluate", cubic, source, "--fail-if", "rmse>10", "--fail-if", "rows>=800")
    assert (ran.code, ran.err) == (3, "kbnn: rows is 800.0, so 'rows>=800' is met\n")
    assert "RMSE" in ran.out  # the answer comes all the same
    assert kbnn("evaluate", cubic, source, "--fail-if", "coverage_90<99%").code == 3


def test_fail_if_of_one_target(two: str) -> None:
    source = SAMPLES / "sensors_test.csv"
    ran = kbnn("evaluate", two, source, "--fail-if", "power_kw.rmse>0")
    assert ran.code == 3
    assert ran.err.startswith("kbnn: power_kw: rmse is ")


def test_rows_that_cannot_be_read_or_scored(cubic: str, tmp_path: Path) -> None:
    source = tmp_path / "in.csv"
    source.write_text("x,y\n1,1\nabc,2\n2,8\n3,\n")
    ran = kbnn("evaluate", cubic, source, "--on-error", "skip", "--json")
    assert ran.err == "kbnn: 1 row could not be read: skipped (--bad-rows FILE lists them)\n"
    got = json.loads(ran.out)
    assert (got["rows"], got["skipped"]) == (2, 2)
    words = kbnn("evaluate", cubic, source, "--on-error", "skip", "-q")
    assert words.err == ""
    assert "2 rows scored, 1 without a target, 1 unreadable" in words.out


def test_a_target_that_never_varied_has_no_score(tmp_path: Path) -> None:
    source, model = tmp_path / "flat.csv", tmp_path / "flat.npz"
    source.write_text("a,y\n" + "".join(f"{i},5\n" for i in range(40)))
    assert kbnn("train", source, "-m", model, "-q").code == 0
    ran = kbnn("evaluate", model, source)
    assert (ran.code, ran.out) == (1, "")
    assert "It needs more rows, with different values of 'y'." in ran.err


def test_report_and_plot(moons: str, tmp_path: Path) -> None:
    page, picture = tmp_path / "r.html", tmp_path / "p.svg"
    ran = kbnn("evaluate", moons, SAMPLES / "moons.csv", "--report", page, "--plot", picture)
    assert (ran.code, ran.err) == (0, "")
    text = page.read_text(encoding="utf-8")
    assert "moons.npz on moons.csv" in text
    assert "Accuracy of the most confident rows" in text
    assert "by rows seen" not in text  # the model stood still
    assert str(tmp_path) not in text
    assert "probability of 1" in picture.read_text(encoding="utf-8")
    assert sorted(os.listdir(tmp_path)) == ["p.svg", "r.html"]


def test_a_pipe_gives_what_a_file_gives(cubic: str) -> None:
    source = SAMPLES / "cubic.csv"
    piped = json.loads(
        program("evaluate", cubic, "-", "--json", stdin=source.read_bytes(), NO_COLOR="1").out
    )
    filed = json.loads(kbnn("evaluate", cubic, source, "--json").out)
    assert [piped[key] for key in NUMBER_KEYS] == [filed[key] for key in NUMBER_KEYS]


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--fail-if", "rmse"], 2, "--fail-if 'rmse': write a check such as 'rmse>3'"),
        (
            ["--fail-if", "foo>3"],
            2,
            "--fail-if 'foo>3': unknown metric 'foo' (choose from rows, skipped, rmse, mae, "
            "r2, nll, crps, coverage_50, coverage_80, coverage_90, coverage_95, "
            "interval_width_90, bias, spread, last_rmse, season_rmse, baseline_rmse, baseline_nll, "
            "mape, smape, "
            "median_absolute_error)",
        ),
        (["--on-error", "keep"], 2, "--on-error is stop or skip, not 'keep'"),
        (["--report", "x.pdf"], 2, "--report 'x.pdf': the name must end in .html or .htm"),
        (["--report", "-"], 2, "--report '-': the name must end in .html or .htm"),
        (["--plot", "x.gif"], 2, "--plot 'x.gif': the name must end in .png, .svg or .pdf"),
        (
            ["--plot", "no/x.png"],
            1,
            "no/x.png: cannot be written (no such file or directory)",
        ),
        (["--bad-rows", "-"], 2, "--bad-rows needs a file: standard output carries the result"),
        (["--limit", "-1"], 2, "--limit must be at least 1, not -1"),
        (["--delimiter", ";;"], 2, "--delimiter is one character, not ';;'"),
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
    ran = kbnn("evaluate", cubic, SAMPLES / "cubic.csv", *options)
    assert ran == (code, "", f"kbnn: {message}\n")


def test_wrong_data(cubic: str, tmp_path: Path) -> None:
    source = tmp_path / "in.csv"
    source.write_text("x,y\n1,\n2,NA\n")
    ran = kbnn("evaluate", cubic, source)
    assert ran == (
        1,
        "",
        "kbnn: nothing to evaluate: none of the 2 rows has a value of 'y'\n",
    )
    source.write_text("x,y\n1,2\n2,abc\n")
    assert kbnn("evaluate", cubic, source) == (
        1,
        "",
        f"kbnn: {source}:3: column 'y': cannot read 'abc' as a number "
        "(use --na 'abc' or --on-error skip)\n",
    )


def test_help_ends_with_examples_and_exit_codes() -> None:
    ran = kbnn("evaluate", "--help")
    assert ran.code == 0
    assert "kbnn evaluate model.npz test.csv --fail-if 'rmse>3'" in ran.out
    assert ran.out.rstrip().endswith("141 the reader closed the output early.")
    assert max(len(line) for line in ran.out.splitlines()) <= 80


def test_the_page_counts_rows_as_the_terminal_does(cubic: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="the extra kbnn[report] is not installed")
    lines = (SAMPLES / "cubic_small.csv").read_text().splitlines()
    data, page = tmp_path / "rows.csv", tmp_path / "r.html"
    x = lines[1].split(",")[0]
    gaps = [f"{x},", f"{x},", f"{x},", "what,1.0", "1.0,what"]
    data.write_text("\n".join([*lines, *gaps]) + "\n")
    ran = kbnn("evaluate", cubic, data, "--on-error", "skip", "--report", page)
    assert ran.code == 0, ran.err
    assert "40 rows scored, 3 without a target, 2 unreadable" in ran.out
    assert "3 without a target, 2 unreadable" in page.read_text(encoding="utf-8")
