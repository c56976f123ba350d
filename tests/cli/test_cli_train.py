"""`kbnn train` as users meet it: what it says, where, and how it ends."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

from kbnn.model.file import load
from kbnn.workflows.checkpoint import Checkpoint
from kbnn_cli.app import run_command_line
from tests.training_data import rows_of_classes, rows_of_numbers, state_of, write_csv

HEADER = "a,b,kind,y"


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a.csv in it, entered."""
    write_csv(tmp_path / "a.csv", rows_of_numbers(100))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def talk(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    capsys.readouterr()
    code = run_command_line(["train", *arguments])
    return code, *capsys.readouterr()


def test_creates_then_continues(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = talk(capsys, "a.csv", "--layers", "6", "--epochs", "1")
    assert (code, out) == (0, "")
    lines = err.splitlines()
    assert lines[:3] == [
        "kbnn: target: last column 'y' (choose with --target)",
        "kbnn: task: regression, since 'y' holds numbers",
        "kbnn: new model model.npz",
    ]
    assert lines[3].split() == (
        ["rows", "RMSE", "since", "last", "NLL", "in", "90", "%", "noise", "sd", "rows/s"]
    )
    assert "rows    100 learned, 0 rejected" in err
    for word in ("RMSE", "NLL", "inside 90 %", "constant", "read", "encode", "learn", "save"):
        assert word in err
    assert max(map(len, lines)) <= 80
    assert "\x1b" not in err  # no colours, no animation off a terminal
    code, _, err = talk(capsys, "a.csv")
    assert code == 0
    assert "kbnn: continuing model.npz, which has learned 100 rows" in err.splitlines()
    assert "rows    100 learned, 0 rejected, 200 in the model" in err


def test_json_is_the_only_thing_on_stdout(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = talk(capsys, "a.csv", "--layers", "6", "--json", "-q", "--epochs", "2")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert found["model"] == "model.npz"
    assert (found["rows"], found["epochs"], found["rejected"]) == (200, 2, 0)
    assert set(found["seconds"]) == {"read", "encode", "learn", "save", "start", "total"}
    figures = found["prequential"]
    assert {"rmse", "nll"} <= set(figures)
    assert figures["coverage_90"] == figures["coverage"]["90"] != figures["coverage"]["80"]
    assert {"skipped", "rows_per_second", "microseconds_per_row"} <= set(found)


def test_prequential_figures_are_those_of_the_first_pass(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    figures = []
    for passes in ("1", "3"):
        _, out, _ = talk(capsys, "a.csv", "--fresh", "--json", "-q", "--epochs", passes)
        figures.append(json.loads(out)["prequential"])
    assert figures[0] == figures[1]


def test_classes(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_csv(data / "c.csv", rows_of_classes(100), "a,b,label")
    code, out, err = talk(capsys, "c.csv", "--predictions", "-")
    assert code == 0
    assert out.splitlines()[0] == "row,label,kbnn_label,probability"
    assert len(out.splitlines()) == 101
    assert "kbnn: task: classification, since 'label' holds text" in err
    assert "accuracy" in err
    assert "class shares" in err
    heads = next(line for line in err.splitlines() if line.lstrip().startswith("rows "))
    assert heads.split("  ")[-1] == "rows/s"
    assert "log-loss  since last" in heads


def test_several_targets(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = talk(capsys, "a.csv", "--target", "y,b", "--predictions", "-", "--json")
    assert code == 2
    code, out, err = talk(capsys, "a.csv", "--target", "y,b", "--predictions", "-")
    assert code == 0
    assert out.splitlines()[0].startswith("row,b,y,mean_b,sd_b,lower_b,upper_b,mean_y")
    assert "b\n" in err
    assert max(len(line) for line in err.splitlines()) <= 80


def test_dry_run_shows_the_columns_and_writes_nothing(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = talk(capsys, "a.csv", "--dry-run")
    assert code == 0
    assert [line.split() for line in out.splitlines()[1:5]] == [
        ["a", "number", "feature"],
        ["b", "number", "feature"],
        ["kind", "category", "feature"],
        ["y", "number", "target"],
    ]
    assert os.listdir(data) == ["a.csv"]


def test_log_holds_the_history(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert talk(capsys, "a.csv", "-q", "--log", "log.jsonl")[0] == 0
    events = [json.loads(line) for line in (data / "log.jsonl").read_text().splitlines()]
    assert [event["event"] for event in events][0::2] in (
        ["start", "point", "end"],
        ["start", "saved"],
    )
    assert events[-1]["summary"]["rows"] == 100


BAD_OPTIONS = {
    "--layers abc": "--layers takes sizes such as 50 or 50,50, none, auto or best; not 'abc'",
    "--layers 50,,2": "--layers takes sizes such as 50 or 50,50, none, auto or best; not '50,,2'",
    "--layers 99999,99999": "--layers: 10000199998 weights are more than 67108864",
    "--noise=-1": "--noise is auto, constant, or a standard deviation in the target's units, at "
    "most 1e+100; not '-1'",
    "--noise x": "--noise is auto, constant, or a standard deviation in the target's units, at "
    "most 1e+100; not 'x'",
    "--covariance x": "--covariance is auto, paper, neuron, group, full or wide, not 'x'",
    "--group-size 0": "--group-size must be at least 1, not 0",
    "--task x": "--task is auto, regression, classification, positive, count, amount or share, "
    "not 'x'",
    "--on-error x": "--on-error is stop or skip, not 'x'",
    "--robust maybe": "--robust is auto or off, not 'maybe'",
    "--drift maybe": "--drift is auto or off, not 'maybe'",
    "--seed -1": "--seed must lie between 0 and 2^63 - 1, not -1",
    "--ensemble 0": "--ensemble must lie between 1 and 64, not 0",
    "--epochs 0": "--epochs must be at least 1, not 0",
    "--limit 0": "--limit must be at least 1, not 0",
    "--delimiter ab": "--delimiter is one character, not 'ab'",
    "--format xls": "--format is auto, csv, tsv, json, parquet or arrow, not 'xls'",
    "--interval 2": "--interval must lie between 0 and 1, not 2",
    "--checkpoint-every 0": "--checkpoint-every must be positive, not 0",
    "--fresh --resume": "--fresh and --resume contradict each other",
    "--relearn --resume": "--relearn and --resume contradict each other",
    "--json --predictions -": "--json and --predictions - cannot both go to standard output",
    "--predictions p.json": "p.json: tables are written as .csv, .tsv, .txt, .jsonl, .parquet or "
    ".arrow, not .json",
    "--predictions a.csv": "--predictions a.csv: would write over the source a.csv",
    "-m -": "--model cannot be -: a model is saved to a file",
    "--log a.csv": "--log a.csv: would write over the source a.csv",
    "-m a.csv": "--model a.csv: would write over the source a.csv",
    "--input-sd": "--input-sd: no column is named like another column with _sd appended",
    "--ignore y --target y": "column 'y' cannot be both the target and ignored",
}


@pytest.mark.parametrize("options", BAD_OPTIONS)
def test_bad_options(options: str, data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = talk(capsys, "a.csv", "-q", *options.split(" "))
    assert (code, out, err) == (2, "", f"kbnn: {BAD_OPTIONS[options]}\n")
    assert sorted(os.listdir(data)) == ["a.csv"]


def test_second_trainer_is_refused(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Checkpoint("model.npz"):
        code, _, err = talk(capsys, "a.csv", "-q")
    assert (code, err) == (1, "kbnn: model.npz: another process is training this model\n")


def test_a_broken_model_is_left_alone(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (data / "model.npz").write_text("not a model")
    code, _, err = talk(capsys, "a.csv", "-q")
    assert (code, err) == (1, "kbnn: model.npz: is not a model file\n")
    assert (data / "model.npz").read_text() == "not a model"
    assert sorted(os.listdir(data)) == ["a.csv", "model.npz"]
    (data / "model.npz").unlink()
    assert talk(capsys, "a.csv", "-q")[0] == 0
    whole = (data / "model.npz").read_bytes()
    (data / "model.npz").write_bytes(whole[:2000])  # cut short, but a model once
    assert talk(capsys, "a.csv", "-q")[0] == 1
    assert talk(capsys, "a.csv", "-q", "--fresh")[0] == 0


class Live:
    """A trainer that reads a pipe which is still open."""

    def __init__(self, folder: Path, *options: str) -> None:
        program = "from kbnn_cli.startup import main; main()"
        command = [sys.executable, "-c", program, "train", "-", "--layers", "6", *options]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, cwd=folder)
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        self.stdin, self.stdout, self.stderr = (
            self.process.stdin,
            self.process.stdout,
            self.process.stderr,
        )

    def send(self, lines: list[str]) -> None:
        self.stdin.write("".join(f"{line}\n" for line in lines).encode())
        self.stdin.flush()

    def end(self, number: signal.Signals) -> tuple[int, str]:
        """Send a signal while the trainer waits for rows; exit code and what it said."""
        self.process.send_signal(number)
        said = self.process.communicate()[1].decode()
        return self.process.returncode, said


posix = pytest.mark.skipif(sys.platform == "win32", reason="signals and pipes of POSIX")


@posix
@pytest.mark.parametrize(("name", "code"), [("SIGINT", 130), ("SIGTERM", 143), ("SIGHUP", 129)])
def test_signals_save_first_even_in_a_silent_pipe(tmp_path: Path, name: str, code: int) -> None:
    lines = rows_of_numbers(60)
    live = Live(tmp_path, "--predictions", "-")
    live.send([HEADER, *lines[:40]])
    for _ in range(41):
        live.stdout.readline()
    for line in lines[40:]:
        live.send([line])
        assert live.stdout.readline().count(b",") == 6  # out before the next row is sent
    ended, said = live.end(getattr(signal, name))
    assert ended == code, said
    assert "kbnn: stopped after row 60; model.npz is saved" in said
    assert load(str(tmp_path / "model.npz")).rows == 60
    assert os.listdir(tmp_path) == ["model.npz"]
    write_csv(tmp_path / "a.csv", lines)
    again = ["train", str(tmp_path / "a.csv"), "-q", "-m", str(tmp_path / "b.npz")]
    assert run_command_line([*again, "--layers", "6"]) == 0
    assert state_of(tmp_path / "model.npz") == state_of(tmp_path / "b.npz")


@posix
def test_a_silent_pipe_is_saved_meanwhile(tmp_path: Path) -> None:
    live = Live(tmp_path, "--log", "/dev/stderr", "-q", "--checkpoint-every", "0.05")
    live.send([HEADER, *rows_of_numbers(50)])
    while True:
        event = json.loads(live.stderr.readline())
        if event["event"] == "saved" and event["rows"] == 50:
            break
    assert load(str(tmp_path / "model.npz")).rows == 50
    assert live.end(signal.SIGTERM)[0] == 143


@posix
def test_a_signal_before_the_first_row_leaves_nothing(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "bad")
    live = Live(tmp_path, "--bad-rows", "bad")
    with open(tmp_path / "bad", "rb") as bad:
        assert bad.readline().startswith(b"source")  # from here on it waits for rows
        live.send([HEADER, "1,2,u,3"])
        assert live.end(signal.SIGINT) == (130, "")
    assert os.listdir(tmp_path) == ["bad"]


@posix
def test_a_reader_who_leaves_ends_it_quietly_after_saving(tmp_path: Path) -> None:
    live = Live(tmp_path, "--predictions", "-", "-q")
    live.send([HEADER, *rows_of_numbers(40)])
    live.stdout.readline()
    live.stdout.close()
    with suppress(BrokenPipeError):
        live.send(rows_of_numbers(1, seed=5))
    assert live.stderr.read() == b""
    live.stdin.close()
    live.stderr.close()
    assert live.process.wait() == 141
    assert load(str(tmp_path / "model.npz")).rows >= 40


def test_stdin_equals_the_file(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run_command_line(["train", "a.csv", "-q", "-m", "file.npz"]) == 0
    with open(data / "a.csv", "rb") as file:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(file))
        assert run_command_line(["train", "-", "-q", "-m", "pipe.npz"]) == 0
    assert state_of(data / "pipe.npz") == state_of(data / "file.npz")


def test_few_rows_have_no_figures_and_it_says_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "few.csv"
    source.write_text("a,y\n" + "".join(f"{at},{at * at}\n" for at in range(9)))
    assert run_command_line(["train", str(source), "-m", str(tmp_path / "m.npz")]) == 0
    said = capsys.readouterr().err
    assert "no figures yet: the first 32 rows only set the scale" in said
    assert "RMSE" not in said


@posix
def test_a_signal_that_is_ignored_stays_ignored(tmp_path: Path) -> None:
    write_csv(tmp_path / "a.csv", rows_of_numbers(300))
    script = (
        "import signal, sys, threading, os, time\n"
        "signal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
        "import kbnn_cli.app\n"
        "from kbnn.workflows.checkpoint import InterruptGuard\n"
        "with InterruptGuard() as noted:\n"
        "    os.kill(os.getpid(), signal.SIGHUP)\n"
        "    time.sleep(0.01)\n"
        "    assert noted.number is None\n"
        "assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, cwd=tmp_path)


def test_fresh_writes_over_models_only(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (data / "notes.txt").write_text("what I must not forget")
    code, out, err = talk(capsys, "a.csv", "-m", "notes.txt", "--fresh", "-q")
    said = "kbnn: notes.txt: is not a kbnn model, and --fresh would overwrite it\n"
    assert (code, out, err) == (1, "", said)
    assert (data / "notes.txt").read_text() == "what I must not forget"
    assert talk(capsys, "a.csv", "-q")[0] == talk(capsys, "a.csv", "-q", "--fresh")[0] == 0


def test_the_log_says_the_row_of_the_pass_and_the_rows_of_the_model(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert talk(capsys, "a.csv", "--layers", "3", "--epochs", "2", "--log", "l", "-q")[0] == 0
    entries = [json.loads(line) for line in Path("l").read_text().splitlines()]
    assert [entry["event"] for entry in entries[-2:]] == ["saved", "end"]
    first, last = entries[0], entries[-1]
    assert (first["event"], first["epoch"], first["row"], first["rows"]) == ("start", 0, 0, 0)
    assert (last["epoch"], last["row"], last["rows"]) == (1, 100, 200)
    points = [entry for entry in entries if entry["event"] == "point"]
    assert [point["rows_scored"] for point in points] == [32, 64]


def test_a_folder_that_holds_the_model_can_be_learned(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = pa_csv.read_csv(data / "a.csv")
    pq.write_table(table, data / "a.parquet")
    for _ in range(2):
        assert talk(capsys, ".", "-q")[0] == 0
    assert load(str(data / "model.npz")).rows == 2 * table.num_rows
