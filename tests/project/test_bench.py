"""The measurements measure what the tool does, and say so when a promise is not kept."""

from __future__ import annotations

import json
import os
import re
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from samples.paper import benchmark, options, published
from samples.paper.runs import Case
from tests.bench import accuracy, bars, data, peers, tables
from tests.bench.rivals import RIVALS, Said
from tests.commands import kbnn
from tests.transcripts import README

RESULTS = README.parent / "docs" / "results.md"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A made set of 200 rows in the place of Boston, a column of zeros and ones among them."""
    rng = np.random.default_rng(0)
    x = np.column_stack([rng.random((200, 2)), rng.integers(0, 2, 200)])
    y = 100.0 + np.sin(6.0 * x[:, 0]) * x[:, 1] + x[:, 2] + 0.05 * rng.standard_normal(200)
    _write(tmp_path / "boston.csv", x, y)
    monkeypatch.setitem(published.SIZES, "boston", (200, 3))
    return tmp_path


def _write(path: Path, x: data.FloatArray, y: data.FloatArray) -> None:
    header = ",".join([*(f"x{i}" for i in range(x.shape[1])), "y"])
    lines = [",".join(map(repr, row)) for row in np.column_stack([x, y]).tolist()]
    path.write_text("\n".join([header, *lines]) + "\n")


def said_by_the_tool(split: data.Split, folder: Path, *said: str) -> dict[str, Any]:
    """What `kbnn evaluate` finds on the test rows after `kbnn train`."""
    _write(folder / "train.csv", split.x, split.y)
    _write(folder / "test.csv", split.x_test, split.y_test)
    model = folder / "m.npz"
    assert kbnn("train", folder / "train.csv", "-m", model, "--fresh", "-q", *said).code == 0
    ran = kbnn("evaluate", model, folder / "test.csv", "--json")
    assert ran.code == 0
    return dict(json.loads(ran.out))


@pytest.mark.parametrize("passes", [1, 3])
def test_the_tool_the_bench_and_the_papers_tables_agree(folder: Path, passes: int) -> None:
    seed = 2
    job = accuracy.Job(folder, "boston", "single", seed, (passes,))
    measured = accuracy.run(job)[-1]
    split = data.split(folder, "boston", seed)
    asked = ("--layers", "50", "--epochs", str(passes), "--seed", str(seed))
    told = said_by_the_tool(split, folder, *asked)
    case: Case = {
        "set": "boston",
        "mode": "default",
        "hidden": [50],
        "seed": seed,
        "epochs": passes,
    }
    curves = benchmark.curves(case, options.Options(data=folder))
    for measure in ("rmse", "nll"):
        value = getattr(measured, measure)
        assert told[measure] == pytest.approx(value, rel=1e-9), measure
    assert told["coverage"]["90"] == pytest.approx(measured.coverage)
    # The paper's NLL is that of a Gaussian; what is stated has other tails.
    assert curves["rmse"][-1] == pytest.approx(measured.rmse, rel=1e-9)
    assert curves["nll"][-1] == pytest.approx(measured.nll, abs=0.05)


def figures(**changed: float) -> dict[str, float]:
    """Figures below all anchors of Power but for those given."""
    low = {"rmse": 1.0, "nll": 1.0, "coverage": 90.0, "micros": 1.0, "alarms": 0.0}
    return {**low, "rmse_error": 0.001, "nll_error": 0.001, **changed}


def pbp_bar(**changed: float) -> bars.Bar:
    ours = {"power": figures(**changed)}
    return bars.against("defaults, 1 pass", ours, "rmse", "PBP 40", 8)


def test_a_tie_is_no_win_and_is_named() -> None:
    assert (pbp_bar(rmse=4.0).met, pbp_bar(rmse=4.0).ties) == (1, [])
    equal = pbp_bar(rmse=4.0579)  # 4.06 to the digits that are known
    assert equal.met == 0
    assert equal.ties == ["power 4.058 against 4.06"]
    assert not equal.kept
    near = pbp_bar(rmse=4.04, rmse_error=0.05)
    assert near.met == 1
    assert near.ties
    behind = pbp_bar(rmse=4.2)
    assert (behind.met, behind.ties) == (0, [])
    assert behind.behind


def test_rehearsal_may_not_cost_accuracy() -> None:
    found = {("off", 1, "power"): figures(), ("defaults", 1, "power"): figures(rmse=1.009)}
    assert all(bar.kept for bar in bars.bars(found))
    found["defaults", 1, "power"] = figures(nll=1.011)
    missed = [bar.what for bar in bars.bars(found) if not bar.kept]
    assert missed == ["1 pass: rehearsal costs no more than 0.01 nats of NLL"]


def test_intervals_that_are_too_narrow_are_a_miss() -> None:
    found = {("defaults", 1, "power"): figures(coverage=85.0)}
    missed = [str(bar) for bar in bars.bars(found) if not bar.kept]
    assert len(missed) == 1
    assert "not: power 85.0" in missed[0]


def test_the_accuracy_bench_ends_with_1_when_a_promise_is_not_kept(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    quick = ["--data", str(folder), "--sets", "boston", "--passes", "1", "--seeds", "1"]
    monkeypatch.setattr(accuracy, "bars", lambda found: [bars.Bar("kept", 1, 1, 8)])
    said = [*quick, "--processes", "1", "--ways", "off"]
    assert accuracy.main([*said, "--json", str(folder / "all.json")]) == 0
    assert json.loads((folder / "all.json").read_text())["runs"][0]["name"] == "boston"
    monkeypatch.setattr(accuracy, "bars", lambda found: [bars.Bar("broken", 0, 1, 8)])
    assert accuracy.main(said) == 1
    assert "MISS broken" in capsys.readouterr().out


def test_peers_are_compared_split_by_split() -> None:
    found = {
        ("kbnn", "power", "rmse"): [1.0, 2.0, 3.0],
        ("VW linear", "power", "rmse"): [1.1, 2.1, 3.1],  # behind on each, though splits differ
        ("river linear", "power", "rmse"): [0.5, 2.7, 2.8],
        ("NGBoost", "power", "rmse"): [0.9, 1.9, 2.9],
    }
    kinds = [peers.verdict(found, "kbnn", who, "power", "rmse") for who, _, _ in found]
    assert kinds == ["tie", "ours", "tie", "theirs"]
    assert peers.verdict(found, "kbnn", "NGBoost", "power", "nll") == ""
    lines = [line for line in peers.table(found, ["power"], "rmse") if line.startswith("| ")]
    cells = {line.split("|")[1].strip(): line for line in lines}
    assert "**1.900**" in cells["NGBoost (batch)"]
    assert "2.000 =" in cells["river linear (1)"]
    assert [bar.met for bar in peers.promises(found)] == [1, 0]


def test_peers_that_are_not_installed_are_left_out_with_a_word(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing(package: str) -> str:
        if package != "kbnn":
            raise PackageNotFoundError(package)
        return "1"

    monkeypatch.setattr(peers, "version", missing)
    quick = ["--data", str(folder), "--sets", "boston", "--processes", "1"]
    told = folder / "peers.json"
    assert peers.main([*quick, "--only", "kbnn", "VW linear", "--json", str(told)]) == 0
    shown = capsys.readouterr()
    assert "vowpalwabbit is not installed and left out" in shown.err
    assert "kbnn: kbnn 1, defaults" in shown.out
    written = json.loads(told.read_text())
    assert {run["rival"] for run in written["runs"]} == {"kbnn"}
    assert written["versions"] == {"kbnn": "1"}


def test_large_sets_are_spared_what_is_slow() -> None:
    by_name = {rival.name: rival for rival in RIVALS}
    assert peers.suits(by_name["VW linear"], 10_000, everything=False)
    assert not peers.suits(by_name["NGBoost"], 2001, everything=False)
    assert peers.suits(by_name["NGBoost"], 2001, everything=True)
    assert not peers.suits(by_name["scikit-learn GP"], 1100, everything=True)


def test_a_distribution_is_scored_only_where_one_is_stated(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = data.split(folder, "boston", 0)
    mean, sd = rows.y_test[:, 0] + 2.0, np.full(len(rows.y_test), 2.0)
    for said, nll in ((Said(mean), None), (Said(mean, sd), 0.5 + 0.5 * np.log(8.0 * np.pi))):
        monkeypatch.setattr(peers, "quietly", lambda rival, rows, seed, said=said: said)
        run = peers.work(peers.Job(folder, "kbnn", "boston", 0))
        assert run.rmse == pytest.approx(2.0)
        assert run.nll == (None if nll is None else pytest.approx(nll))


@pytest.mark.slow
@pytest.mark.skipif("KBNN_DATA" not in os.environ, reason="needs KBNN_DATA, a folder of UCI sets")
@pytest.mark.parametrize(
    ("row", "name", "passes", "measure"),
    [
        ("**RMSE** kbnn, 1 pass", "yacht", 1, "rmse"),
        ("**NLL** kbnn, 1 pass", "boston", 1, "nll"),
        ("**RMSE** kbnn, 10 passes", "energy", 10, "rmse"),
    ],
)
def test_figures_of_the_readme_are_what_the_bench_prints(
    row: str, name: str, passes: int, measure: str
) -> None:
    runs = [
        accuracy.run(accuracy.Job(data.folder(None), name, "defaults", seed, (passes,)))[0]
        for seed in range(5)
    ]
    found = accuracy.averages(runs, 5)["defaults", passes, name]
    line = re.search(rf"^\| {re.escape(row)} \|(.*)\|$", RESULTS.read_text(), re.MULTILINE)
    assert line is not None
    shown = line[1].split("|")[data.SETS.index(name)].strip()
    assert shown == tables.text(found[measure], name, measure)
