"""`train --alerts`: what is written, exactly once after any end, and what is refused."""

from __future__ import annotations

import csv
import json
import math
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kbnn as kbnn_api
from kbnn.model.file import load
from kbnn.workflows import alerts
from tests.commands import kbnn

ROWS = 3000
SPIKE, FLAT = 2000, 2500
QUICK = ("--layers", "5", "-q")


def write_rows(path: Path, rows: int = ROWS) -> None:
    """Write a stream with times, a spike and a flat line."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal(rows)
    y = 2.0 * x + 0.3 * rng.standard_normal(rows)
    y[SPIKE : SPIKE + 1] += 50.0
    y[FLAT : FLAT + 60] = y[FLAT : FLAT + 1]
    times = np.datetime64("2026-01-01T00:00:00") + 300 * np.arange(rows)
    lines = [f"{t},{a:.6f},{b:.6f}" for t, a, b in zip(times, x, y, strict=True)]
    path.write_text("\n".join(["time,x,y", *lines, ""]))


@pytest.fixture
def stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write_rows(tmp_path / "rows.csv")
    return tmp_path


def read_alerts(path: Path) -> list[dict[str, Any]]:
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def test_each_anomaly_is_one_line(stream: Path) -> None:
    ran = kbnn("train", "rows.csv", "--alerts", "a.csv", *QUICK)
    assert (ran.code, ran.out, ran.err) == (0, "", "")
    found = {int(alert["row"]): alert for alert in read_alerts(stream / "a.csv")}
    spike = found[SPIKE + 1]
    assert spike["kind"] == "spike"
    assert spike["time"] == "2026-01-07T22:40:00"
    assert spike["target"] == "y"
    assert float(spike["lower"]) < float(spike["upper"]) < float(spike["value"])
    assert float(spike["surprise"]) > 3.0
    assert float(spike["score"]) > 3.0
    assert (spike["start"], spike["length"]) == (str(SPIKE + 1), "1")
    flat = [row for row, alert in found.items() if FLAT < row <= FLAT + 60]
    assert len(flat) == 1
    assert found[flat[0]]["kind"] == "flat line"
    assert abs(int(found[flat[0]]["start"]) - FLAT) <= 2
    assert len(found) <= 8  # 3 false alarms are expected


def test_json_lines_hold_the_same_alerts(stream: Path) -> None:
    assert kbnn("train", "rows.csv", "--alerts", "a.csv", *QUICK).code == 0
    assert kbnn("train", "rows.csv", "--alerts", "a.jsonl", "--fresh", *QUICK).code == 0
    lines = [json.loads(line) for line in (stream / "a.jsonl").read_text().splitlines()]
    as_text = [{k: "" if v is None else str(v) for k, v in line.items()} for line in lines]
    assert as_text == read_alerts(stream / "a.csv")


def test_alerts_change_no_prediction(stream: Path) -> None:
    words = ("train", "rows.csv", "--fresh", *QUICK)
    assert kbnn(*words, "--predictions", "plain.csv").code == 0
    assert kbnn(*words, "--predictions", "watched.csv", "--alerts", "a.csv").code == 0
    assert (stream / "plain.csv").read_bytes() == (stream / "watched.csv").read_bytes()


CRASH = """
import os, sys
from kbnn.workflows import training
from kbnn.workflows.checkpoint import Checkpoint
from kbnn_cli.startup import main
save, left = Checkpoint.save_model, [int(sys.argv.pop(1))]
def save_or_die(self, model):
    if not left[0]:
        os._exit(137)
    left[0] -= 1
    return save(self, model)
Checkpoint.save_model = save_or_die
training.MIN_LEARN_SAVE_RATIO = 0.0
sys.exit(main())
"""


@pytest.mark.thinned(2)
@pytest.mark.parametrize("name", ["a.csv", "a.jsonl"])
@pytest.mark.parametrize("saves", [0, 1, 3])
def test_every_alert_is_written_once_after_a_crash(stream: Path, saves: int, name: str) -> None:
    words = ["train", "rows.csv", "--alerts", name, "--alert-rate", "0.01", *QUICK]
    words += ["--checkpoint-every", "1e-9"]
    assert kbnn(*words, "-m", "whole.npz").code == 0
    whole = (stream / name).read_bytes()
    assert whole.count(b"\n") > 5
    (stream / name).unlink()
    died = subprocess.run(
        [sys.executable, "-c", CRASH, str(saves), *words, "-m", "m.npz"], check=False
    )
    assert died.returncode == 137
    assert kbnn(*words, "-m", "m.npz", *(["--resume"] if saves else [])).code == 0
    assert (stream / name).read_bytes() == whole
    model = load(str(stream / "m.npz"))
    assert model.position["alerts_bytes"] == len(whole)


def test_a_model_stays_monitored(stream: Path) -> None:
    words = ("train", "rows.csv", "-m", "m.npz", *QUICK)
    assert kbnn(*words, "--alerts", "a.csv", "--alert-rate", "1/week").code == 0
    model = load(str(stream / "m.npz"))
    assert model.monitor is not None
    assert model.monitor.rate == pytest.approx(300.0 / (7 * 86400.0))
    assert kbnn(*words).code == 0
    again = load(str(stream / "m.npz"))
    assert again.monitor is not None
    assert again.monitor.detectors[0].scalars[2] == 2 * ROWS
    assert again.monitor.rate == model.monitor.rate


def test_the_number_of_alerts_can_fail_a_run(stream: Path) -> None:
    words = ("train", "rows.csv", "--fresh", "--alerts", "a.csv", *QUICK)
    ran = kbnn(*words, "--json", "--fail-if", "alerts>0")
    assert ran.code == 3
    assert "so 'alerts>0' is met" in ran.err
    assert json.loads(ran.out)["alerts"] == len(read_alerts(stream / "a.csv")) > 1
    assert kbnn(*words, "--fail-if", "alerts>1000").code == 0
    assert kbnn(*words, "--fail-if", "rmse>0").code == 2


def test_classes_have_alerts_with_labels(stream: Path) -> None:
    rng = np.random.default_rng(1)
    x = rng.standard_normal(ROWS)
    labels = np.where(x + 0.1 * rng.standard_normal(ROWS) > 0.0, "up", "down")
    labels[SPIKE : SPIKE + 20] = np.where(x[SPIKE : SPIKE + 20] > 0.0, "down", "up")
    lines = [f"{a:.6f},{b}" for a, b in zip(x, labels, strict=True)]
    (stream / "classes.csv").write_text("\n".join(["x,y", *lines, ""]))
    assert kbnn("train", "classes.csv", "--alerts", "a.csv", *QUICK).code == 0
    found = [alert for alert in read_alerts(stream / "a.csv") if int(alert["row"]) > SPIKE]
    assert int(found[0]["row"]) <= SPIKE + 20
    assert found[0]["value"] in ("up", "down")
    assert (found[0]["lower"], found[0]["time"]) == ("", "")


def test_an_alert_names_the_id_of_its_row(stream: Path) -> None:
    rng = np.random.default_rng(1)
    x = rng.standard_normal(1000)
    y = x + 0.1 * rng.standard_normal(1000)
    y[900] += 50.0
    lines = [f"r{k},{a:.6f},{b:.6f}" for k, (a, b) in enumerate(zip(x, y, strict=True))]
    (stream / "ids.csv").write_text("\n".join(["name,x,y", *lines, ""]))
    assert kbnn("train", "ids.csv", "--id", "name", "--alerts", "a.csv", *QUICK).code == 0
    assert "r900" in [alert["id"] for alert in read_alerts(stream / "a.csv")]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--alerts", "a.parquet"], "alerts are written as .csv"),
        (["--alerts", "rows.csv"], "would write over the source"),
        (["--alerts", "-", "--predictions", "-"], "cannot both go to standard output"),
        (["--alerts", "-", "--json"], "cannot both go to standard output"),
        (["--alerts", "a.csv", "--shuffle"], "leave out --shuffle"),
        (
            ["--alerts", "a.csv", "--key", "x", "--lags", "off", "--alert-rate", "1/week"],
            "the keys of a fleet have no common clock",
        ),
        (["--alert-rate", "1e-3"], "add --alerts FILE"),
        (["--alerts", "a.csv", "--alert-rate", "2"], "is a rate per row from 1e-09 to 0.01"),
        (["--alerts", "a.csv", "--alert-rate", "9/hour"], "the rate per row must lie between"),
        (["--alerts", "a.csv", "--alert-rate", "1/moon"], "not '1/moon'"),
        (["--fail-if", "alerts>0"], "add --alerts FILE"),
        (["--alert-exec", ""], "the command is empty"),
        (["--alert-exec", "'"], "cannot parse the command"),
        (["--alert-exec", "no-such-program -x"], "cannot find the program 'no-such-program'"),
        (["--surprise"], "add --predictions FILE"),
    ],
)
def test_what_cannot_be_done_is_said(stream: Path, words: list[str], reason: str) -> None:
    ran = kbnn("train", "rows.csv", *words, "-q")
    assert ran.code == 2, ran
    assert reason in ran.err
    assert len(ran.err.splitlines()) == 1
    assert not (stream / "a.csv").exists()


def write_fleet_rows(path: Path) -> None:
    """Write the rows of three devices, one of which has a spike at its row 800."""
    rng = np.random.default_rng(0)
    lines = ["device,x,y"]
    for i in range(1000):
        for k in range(3):
            x, e = rng.standard_normal(2)
            y = (k + 1) * x + 0.3 * e + (50.0 if (i, k) == (800, 2) else 0.0)
            lines.append(f"d{k},{x:.6f},{y:.6f}")
    path.write_text("\n".join([*lines, ""]))


def test_each_key_of_a_fleet_has_its_own_alerts(stream: Path) -> None:
    write_fleet_rows(stream / "rows.csv")
    words = ("train", "rows.csv", "--key", "device", *QUICK, "--surprise", "--alert-rate", "0.01")
    for name, limits in {"a": (), "b": ("--open", "1")}.items():
        outputs = ("-m", name, "--alerts", f"{name}.csv", "--predictions", f"{name}-p.csv")
        assert kbnn(*words, *outputs, *limits).code == 0
    for name in ("b.csv", "b-p.csv"):  # results do not depend on which detectors are in memory
        assert (stream / name).read_bytes() == (stream / name.replace("b", "a", 1)).read_bytes()
    found = {int(alert["row"]): alert for alert in read_alerts(stream / "a.csv")}
    spike = found[3 * 800 + 3]
    assert (spike["key"], spike["kind"], spike["start"], spike["length"]) == (
        "d2",
        "spike",
        "",
        "1",
    )
    alone = [line for line in (stream / "rows.csv").read_text().splitlines() if line[:2] == "d2"]
    (stream / "d2.csv").write_text("\n".join(["device,x,y", *alone, ""]))
    scored = kbnn("evaluate", "a", "d2.csv", "--alerts", "e.csv", "--json", "--fail-if", "alerts>0")
    assert scored.code == 3
    assert {alert["key"] for alert in read_alerts(stream / "e.csv")} == {"d2"}
    assert kbnn("evaluate", "a", "d2.csv", "--learn", "--alerts", "f.csv", "-q").code == 0
    assert len(read_alerts(stream / "f.csv")) > 0
    said = kbnn("predict", "a", "d2.csv", "--surprise").out.splitlines()
    surprise = [float(line.split(",")[-2]) for line in said[1:]]
    assert int(np.argmax(surprise)) == 800


KILLED = ["train", "-", "--alerts", "a.csv", "--alert-rate", "0.01", "-q", "--resume"]
KILLED += ["--predictions", "p.csv", "--checkpoint-every", "0.001", "--target", "y"]


def train_from_pipe(words: list[str], kill_after: float | None = None) -> tuple[bool, int]:
    """Train on rows.csv through a pipe, in small pieces; kill the trainer some time after an alert.

    Returns whether it was killed, and the size of the file of alerts then.
    """
    alerts, first = Path("a.csv"), read_size(Path("a.csv"))
    trainer = subprocess.Popen(
        [sys.executable, "-m", "kbnn_cli.startup", *words], stdin=subprocess.PIPE, bufsize=0
    )
    assert trainer.stdin is not None
    if sys.platform == "linux":  # a small pipe: the rows wait until the trainer takes them
        import fcntl

        fcntl.fcntl(trainer.stdin, fcntl.F_SETPIPE_SZ, 4096)
    end, is_killed = math.inf, False
    with suppress(BrokenPipeError):
        data = Path("rows.csv").read_bytes()
        for at in range(0, len(data), 2000):
            trainer.stdin.write(data[at : at + 2000])
            time.sleep(0.004)
            if kill_after is not None and end == math.inf and read_size(alerts) != first:
                end = time.monotonic() + kill_after
            if time.monotonic() > end:
                trainer.kill()
                is_killed = True
                break
    trainer.stdin.close()
    assert trainer.wait() == (-9 if is_killed else 0)
    return is_killed, read_size(alerts)


def read_size(path: Path) -> int:
    return path.stat().st_size if path.exists() else -1


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
@pytest.mark.parametrize(
    "rounds", [pytest.param(1, id="short"), pytest.param(60, id="long", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("kind", ["model", "fleet"])
def test_every_alert_is_written_once_after_kills(
    stream: Path, kind: str, rounds: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """Kill a trainer at random moments and resume it, from scratch in every round.

    Run the long campaign with `-m slow -n 0`; it prints how many kills came between alerts.
    """
    words = [*KILLED, "--layers", "5", "--watch", "all"]
    if kind == "fleet":
        write_fleet_rows(stream / "rows.csv")
        words = [*KILLED, "--key", "device"]
    train_from_pipe([*words, "-m", "whole"])
    whole = [(stream / name).read_bytes() for name in ("a.csv", "p.csv")]
    assert whole[0].count(b"\n") > 5
    dice = np.random.default_rng(len(kind))
    killed = amid = 0
    for at in range(rounds):
        (stream / "a.csv").unlink()
        for _ in range(3):
            is_killed, size = train_from_pipe([*words, "-m", f"m{at}"], dice.uniform(0.0, 0.05))
            killed += is_killed
            amid += is_killed and size < len(whole[0])
        train_from_pipe([*words, "-m", f"m{at}"])
        assert [(stream / name).read_bytes() for name in ("a.csv", "p.csv")] == whole
    if rounds > 1:
        with capsys.disabled():
            print(f"\n{kind}: {killed} kills, {amid} of them between the first and the last alert")
    assert amid >= rounds * (sys.platform == "linux")


@pytest.mark.parametrize("cell", ["text", b"", b"short", bytes(15_064), None])
def test_a_damaged_detector_of_a_key_is_one_sentence_and_nothing_is_lost(
    stream: Path, cell: str | bytes | None
) -> None:
    write_fleet_rows(stream / "rows.csv")
    words = ("train", "rows.csv", "--key", "device", "-m", "f", "-q", "--alerts", "a.csv")
    assert kbnn(*words).code == 0
    before = kbnn("predict", "f", "rows.csv").out
    with sqlite3.connect(stream / "f" / "models.sqlite") as database:
        (size,) = database.execute("SELECT max(length(detectors)) FROM monitors").fetchone()
        if isinstance(cell, bytes) and len(cell) > 10:  # the right length, no value in range
            cell = np.full(size // 8, -1.0).tobytes()
        database.execute("UPDATE monitors SET detectors = ?", (cell,))
    database.close()
    alerts = (stream / "a.csv").read_bytes()
    for command in (
        ("train", "rows.csv", "-m", "f", "-q", "--alerts", "b.csv"),
        ("evaluate", "f", "rows.csv", "-q", "--alerts", "b.csv"),
        ("predict", "f", "rows.csv", "--surprise"),
    ):
        ran = kbnn(*command)
        assert ran.code == 1, ran
        assert ran.err.count("\n") == 1, ran.err
        assert "is damaged (the detectors of a key)" in ran.err
    assert kbnn("predict", "f", "rows.csv").out == before
    assert (stream / "a.csv").read_bytes() == alerts


RECORD = "import sys, os; open(f'{os.getpid()}.json', 'w').write(sys.stdin.read())"


def test_a_command_receives_each_alert_as_json(stream: Path) -> None:
    command = f'{sys.executable} -c "{RECORD}"'
    words = ("train", "rows.csv", "--alerts", "a.jsonl", "--alert-exec", command, *QUICK)
    ran = kbnn(*words)
    assert (ran.code, ran.err) == (0, "")
    received = [json.loads(path.read_text()) for path in stream.glob("*.json")]
    written = [json.loads(line) for line in (stream / "a.jsonl").read_text().splitlines()]
    assert sorted(received, key=lambda alert: alert["row"]) == written
    assert len(written) >= 2


def test_data_cannot_reach_a_shell(stream: Path) -> None:
    command = f"{sys.executable} -c pass ; touch hacked"
    assert kbnn("train", "rows.csv", "--alert-exec", command, *QUICK).code == 0
    assert not (stream / "hacked").exists()


def test_failing_commands_are_reported_and_stop_nothing(
    stream: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alerts, "MAX_SECONDS", 0.3)
    for script, reason in (("import sys; sys.exit(7)", "exit code 7"), ("while 1: 1", "killed")):
        command = f'{sys.executable} -c "{script}"'
        words = ("train", "rows.csv", "--alert-exec", command, "--fresh", "--layers", "5")
        ran = kbnn(*words, "--json")
        assert ran.code == 0
        assert json.loads(ran.out)["alerts"] >= 2
        assert reason in ran.err
        assert "commands failed" in ran.err


def test_commands_are_bounded(stream: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    running, most = [0], [0]
    lock = threading.Lock()

    def count_running(words: list[str], text: bytes) -> str:
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
        time.sleep(0.02)
        with lock:
            running[0] -= 1
        return ""

    monkeypatch.setattr(alerts, "_run_command", count_running)
    with alerts.AlertCommand(sys.executable, print) as command:
        for row in range(20):
            command.run({"row": row})
    assert running[0] == 0
    assert 1 < most[0] <= alerts.MAX_RUNNING


def write_inputs(path: Path, rows: int = ROWS) -> None:
    """Write a stream with two related inputs: `a` has a spike at SPIKE, `b` is stuck at FLAT."""
    rng = np.random.default_rng(1)
    a, c = rng.standard_normal(rows), rng.standard_normal(rows)
    b = 10.0 + 3.0 * a + 0.5 * rng.standard_normal(rows)
    y = a + c + 0.3 * rng.standard_normal(rows)
    a[SPIKE] -= 3.0  # ordinary by itself, impossible beside b
    b[FLAT : FLAT + 60] = b[FLAT]
    kinds = np.array(["x", "y"])[rng.integers(0, 2, rows)]
    table = zip(a, b, c, kinds, y, strict=True)
    lines = [f"{a:.6f},{b:.6f},{c:.6f},{kind},{y:.6f}" for a, b, c, kind, y in table]
    path.write_text("\n".join(["a,b,c,kind,y", *lines, ""]))


def test_alerts_name_the_inputs_that_moved_most(stream: Path) -> None:
    rng = np.random.default_rng(1)
    a, b = rng.normal(5.0, 1.0, 2000), rng.normal(0.0, 10.0, 2000)
    y = a + 0.1 * rng.standard_normal(2000)
    a[1500], b[1500], y[1500] = 11.0, -35.0, 40.0
    y[1800] = -40.0
    lines = [f"{one:.4f},{two:.4f},{y:.4f}" for one, two, y in zip(a, b, y, strict=True)]
    (stream / "rows.csv").write_text("\n".join(["a,b,y", *lines, ""]))
    for name, words in (("a.csv", ()), ("b.jsonl", ("--checkpoint-every", "100"))):
        assert kbnn("train", "rows.csv", "--fresh", "--alerts", name, *words, *QUICK).code == 0
    found = {one["row"]: one["inputs"] for one in read_alerts(stream / "a.csv")}
    first, second = found["1501"].split(", ")
    assert first.startswith("a +")
    assert second.startswith("b -3")
    assert first.endswith(" sd")
    assert found["1801"] == ""
    rows = [json.loads(line) for line in (stream / "b.jsonl").read_text().splitlines()]
    assert {str(one["row"]): one["inputs"] or "" for one in rows} == found


def test_faults_of_inputs_name_the_column(stream: Path) -> None:
    write_inputs(stream / "rows.csv")
    words = ("train", "rows.csv", "--target", "y", "--fresh", *QUICK)
    assert kbnn(*words, "--watch", "all", "--alerts", "a.csv").code == 0
    found = read_alerts(stream / "a.csv")
    (spike,) = [one for one in found if one["row"] == str(SPIKE + 1)]
    assert (spike["target"], spike["kind"]) == ("a", "spike")
    assert float(spike["value"]) < float(spike["lower"]) < float(spike["upper"])
    stuck = [one for one in found if FLAT < int(one["row"]) <= FLAT + 60]
    assert stuck[0]["target"] == "b"
    assert len(found) <= 8  # 3 false alarms are expected
    kbnn_api.train("rows.csv", "y", model="api.npz", layers=5, watch="all", alerts="b.csv")
    assert read_alerts(stream / "b.csv") == found
    assert kbnn(*words, "--watch", "a", "--alerts", "a.csv").code == 0  # b predicts it all the same
    (alone,) = [one for one in read_alerts(stream / "a.csv") if one["row"] == str(SPIKE + 1)]
    assert alone["lower"] == spike["lower"]
    assert kbnn(*words, "--watch", "c,y", "--alerts", "a.csv").code == 0
    assert {one["target"] for one in read_alerts(stream / "a.csv")} <= {"c", "y"}
    assert kbnn(*words, "--watch", "inputs", "--alerts", "a.csv").code == 0
    assert "y" not in {one["target"] for one in read_alerts(stream / "a.csv")}


@pytest.mark.parametrize(
    ("chosen", "others"), [("all", ()), ("b", ("a", "c")), ("b,y", ("a", "c"))]
)
def test_watched_inputs_resume_and_evaluate_bit_for_bit(
    stream: Path, chosen: str, others: tuple[str, ...]
) -> None:
    write_inputs(stream / "rows.csv")
    lines = (stream / "rows.csv").read_text().splitlines(keepends=True)
    (stream / "first.csv").write_text("".join(lines[:2101]))
    (stream / "rest.csv").write_text("".join([lines[0], *lines[2101:]]))
    watch = ("--watch", chosen)
    assert kbnn("train", "rows.csv", "--target", "y", *watch, "--alerts", "a.csv", *QUICK).code == 0
    whole = read_alerts(stream / "a.csv")
    words = ("-m", "m.npz", "--alerts", "b.csv", "-q")
    assert kbnn("train", "first.csv", "--target", "y", "--layers", "5", *watch, *words).code == 0
    before = read_alerts(stream / "b.csv")
    assert kbnn("evaluate", "m.npz", "rest.csv", "--learn", "--alerts", "c.csv", "-q").code == 0
    assert kbnn("train", "rest.csv", *words).code == 0  # the model knows what it watches
    after = read_alerts(stream / "b.csv")
    assert read_alerts(stream / "c.csv") == after
    for one in after:
        one.update(row=str(int(one["row"]) + 2100), start=str(int(one["start"]) + 2100))
    assert before + after == whole
    found = load("m.npz").monitor.inputs.chosen  # type: ignore[union-attr]
    assert found.others == others
    assert sorted(found.columns + others) == ["a", "b", "c"]
    assert found.has_targets == (chosen != "b")


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--watch", "all"], "--watch chooses columns for alerts: add --alerts FILE"),
        (["--alerts", "a.csv", "--watch", "z"], "'z' is not a column. Numeric inputs: a, b, c."),
        (["--alerts", "a.csv", "--watch", "kind"], "'kind' is not a numeric input"),
        (["--alerts", "a.csv", "--watch", "all", "--key", "kind"], "a fleet are watched for"),
        (["--alerts", "a.csv", "--watch", "all", "--id", "c"], "cannot be combined with --id"),
        (["--alerts", "a.csv", "--watch", "all", "--features", "kind"], "no input is a number"),
    ],
)
def test_what_cannot_be_watched_is_refused(stream: Path, words: list[str], reason: str) -> None:
    write_inputs(stream / "rows.csv")
    ran = kbnn("train", "rows.csv", "--target", "y", *words, *QUICK)
    assert ran.code == 2, ran
    assert reason in ran.err
    assert len(ran.err.splitlines()) == 1


def test_surprise_is_written_by_train_and_empty_without_a_target(stream: Path) -> None:
    rng = np.random.default_rng(3)
    x = rng.standard_normal(900)
    y = [f"{value:.4f}" for value in (x + 0.1 * rng.standard_normal(900)).tolist()]
    y[500:560] = [""] * 60
    lines = [f"{a:.4f},{b}" for a, b in zip(x.tolist(), y, strict=True)]
    (stream / "rows.csv").write_text("\n".join(["x,y", *lines, ""]))
    words = (
        "-m",
        "m.npz",
        "--alerts",
        "a.csv",
        "--predictions",
        "p.csv",
        "--surprise",
        "--plot",
        "a.png",
    )
    assert kbnn("train", "rows.csv", "-m", "m.npz", "--fresh", *words, *QUICK).code == 0
    assert (stream / "a.png").stat().st_size > 5_000  # missing targets leave a gap in the chart
    assert kbnn("predict", "m.npz", "rows.csv", "--surprise", "-o", "q.csv", "-q").code == 0
    for name, first in (("p.csv", 64), ("q.csv", 0)):
        found = read_alerts(stream / name)
        told = [(one["surprise"] != "", one["pit"] != "") for one in found]
        assert set(told[500:560]) == {(False, False)}, name
        assert set(told[first:500] + told[560:]) == {(True, True)}, name


def test_a_resumed_run_counts_the_alerts_before_the_interruption(stream: Path) -> None:
    write_rows(stream / "rows.csv")
    for name in ("a.jsonl", "a.csv"):
        words = ("rows.csv", "-m", "m.npz", "--fresh", "--alerts", name, "--json", *QUICK)
        count = json.loads(kbnn("train", *words).out)["alerts"]
        assert count > 1
        size = (stream / name).stat().st_size
        with alerts.AlertWriter(name, load("m.npz").schema, keep=size) as kept:
            assert kept.kept_alerts == count
