"""Outputs that fail: exit 0 means all of it, lost talk stops nothing, every fault is a sentence."""

from __future__ import annotations

import fcntl
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kbnn.errors import DataError, ReaderLeft
from kbnn.model.file import load
from kbnn.sink import Sink, open_sink, write_atomically
from tests.commands import SAMPLES, program, trained

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="channels of POSIX")

CUBIC = SAMPLES / "cubic_small.csv"
KBNN = f"{sys.executable} -m kbnn_cli.app"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return trained(tmp_path_factory.mktemp("model") / "m.npz", "cubic_small.csv")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    rows = "".join(f"{at},{at % 7},{2 * at}\n" for at in range(5000))
    Path("long.csv").write_text(f"a,b,y\n{rows}")
    return tmp_path


def shell(line: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A line for bash, `kbnn` being the program; fails when any part of a pipe does."""
    return subprocess.run(
        ["bash", "-o", "pipefail", "-c", re.sub(r"\bkbnn\b", KBNN, line)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, **environment},
    )


class Half:
    """A raw file that takes three bytes at a time, and sometimes none."""

    def __init__(self) -> None:
        self.got = b""
        self.turns = 0

    def write(self, data: memoryview) -> int | None:
        self.turns += 1
        if self.turns % 2:
            return None
        self.got += data[:3].tobytes()
        return min(3, len(data))

    def fileno(self) -> int:
        return 1


def test_short_writes_are_gone_on_with() -> None:
    half = Half()
    sink = Sink(half, "half", owned=False)
    assert sink.write(b"all of these bytes") == 18
    assert half.got == b"all of these bytes"


def test_a_refusal_is_a_sentence_and_a_reader_who_left_is_none(tmp_path: Path) -> None:
    with (
        open_sink("/dev/full") as sink,
        pytest.raises(DataError, match=r"^/dev/full: cannot be wr"),
    ):
        sink.write(b"x")
    read, write = os.pipe()
    os.close(read)
    with open(write, "wb", buffering=0) as raw, pytest.raises(ReaderLeft):
        Sink(raw, "pipe", owned=False).write(b"x")
    (tmp_path / "folder").mkdir()
    with pytest.raises(DataError, match=r"folder: cannot be written \(is a directory\)$"):
        write_atomically(str(tmp_path / "folder"), b"x")
    assert os.listdir(tmp_path) == ["folder"]


def test_a_file_written_whole_keeps_its_link(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "file")
    write_atomically(str(tmp_path / "link"), b"page")
    assert (tmp_path / "file").read_bytes() == b"page"
    assert (tmp_path / "link").is_symlink()


@pytest.mark.parametrize("unbuffered", [pytest.param("", marks=pytest.mark.slow), "1"])
def test_a_pipe_that_does_not_block_gets_every_line(model: str, unbuffered: str) -> None:
    read, write = os.pipe()
    fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, 4096)
    fcntl.fcntl(write, fcntl.F_SETFL, os.O_NONBLOCK)
    words = [sys.executable, "-m", "kbnn_cli.app", "predict", model, str(SAMPLES / "cubic.csv")]
    process = subprocess.Popen(
        words, stdout=write, env={**os.environ, "PYTHONUNBUFFERED": unbuffered}
    )
    os.close(write)
    time.sleep(1.5)  # it fills the pipe meanwhile
    with open(read, "rb") as pipe:
        assert len(pipe.readlines()) == 801
    assert process.wait() == 0


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_disk_behind_standard_output_is_code_1(
    model: str, here: Path, unbuffered: str
) -> None:
    ran = shell(
        f"ulimit -f 8; kbnn predict {model} {SAMPLES}/cubic.csv > out.csv",
        PYTHONUNBUFFERED=unbuffered,
    )
    assert (ran.returncode, ran.stderr) == (
        1,
        "kbnn: standard output: cannot be written (file too large)\n",
    )


EVERY = {
    "help": "--help",
    "command help": "train --help",
    "version": "--version",
    "inspect": "inspect {m}",
    "inspect json": "inspect {m} --json",
    "weights": "inspect {m} --weights",
    "diff": "inspect {m} --diff {m}",
    "predict": "predict {m} {d}",
    "evaluate": "evaluate {m} {d}",
    "evaluate json": "evaluate {m} {d} --json",
    "train json": "train {d} -q --json",
    "train predictions": "train {d} -q --predictions -",
    "dry run": "train {d} -q --dry-run",
}


ALIKE = (
    "train json",
    "inspect",
    "inspect json",
    "weights",
    "diff",
    "evaluate json",
    "dry run",
    "command help",
)
"""Commands that go the way of one that is run by default."""


@pytest.mark.thinned(2)
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.slow) if name in ALIKE else name for name in EVERY],
)
def test_standard_output_full_or_closed(name: str, model: str, here: Path) -> None:
    line = EVERY[name].format(m=model, d=CUBIC)
    for where, why in ((">/dev/full", "no space left on device"), (">&-", "it is closed")):
        ran = shell(f"kbnn {line} {where}")
        assert ran.stderr == f"kbnn: standard output: cannot be written ({why})\n"
        assert ran.returncode == 1


@pytest.mark.thinned(3)
@pytest.mark.parametrize("talk", ["2>&1 | head -2", "2>/dev/full", "2>&-"])
def test_lost_talk_stops_nothing(talk: str, here: Path) -> None:
    ran = shell(f"kbnn train long.csv --layers 3 {talk}")
    assert ran.returncode == 0
    assert len(ran.stdout.splitlines()) == (2 if "head" in talk else 0)
    assert load("model.npz").rows == 5000


def test_a_log_that_fails_is_said_once_and_costs_the_zero(here: Path) -> None:
    ran = shell("kbnn train long.csv --layers 3 -q --log /dev/full")
    assert (ran.returncode, ran.stderr) == (
        1,
        "kbnn: /dev/full: cannot be written (no space left on device); "
        "training continues without the log\n",
    )
    assert load("model.npz").rows == 5000


def test_data_cut_by_their_reader_are_141(model: str, here: Path) -> None:
    ran = shell("kbnn train long.csv --layers 3 -q --predictions - | head -1")
    assert (ran.returncode, ran.stderr) == (141, "")
    assert 0 < load("model.npz").rows < 5000
    assert shell("kbnn predict model.npz long.csv | head -1").returncode == 141


@pytest.mark.slow
def test_the_report_is_written_for_a_reader_who_left(model: str, here: Path) -> None:
    ran = shell(f"kbnn evaluate {model} {CUBIC} --report r.html --fail-if 'rmse>0' | true")
    assert ran.returncode == 141
    assert "so 'rmse>0' is met" in ran.stderr
    assert Path("r.html").read_text().endswith("</html>\n")
    assert shell(f"kbnn inspect {model} --plot p.svg | true").returncode == 141
    assert Path("p.svg").read_text().endswith("</svg>\n")


FAULTS = {
    "kbnn train - <&-": (1, "stdin: cannot be read (it is closed)"),
    "kbnn predict {m} - <&-": (1, "stdin: cannot be read (it is closed)"),
    "KBNN_ENGINE=bogus kbnn inspect {m}": (
        2,
        "KBNN_ENGINE=bogus: this machine offers numpy, portable and, where the CPU has them, "
        "avx2 and avx512",
    ),
    "mkdir model.npz.tmp; kbnn train long.csv -q": (
        1,
        "model.npz: cannot be saved, since model.npz.tmp is in the way (is a directory): remove it",
    ),
    "mkfifo m; kbnn inspect m": (1, "m: is a pipe or a device, not a model file"),
    "printf '{{}}\\n{{}}\\n' > e; kbnn train e": (
        1,
        "e: every object is empty: there are no columns",
    ),
    "ulimit -v 200000; kbnn train long.csv -q": (
        1,
        "out of memory (a smaller --layers or --group-size needs less)",
    ),
    "ulimit -f 1; kbnn evaluate {m} {d} --report r.html > /dev/null": (
        1,
        "r.html: cannot be written (file too large)",
    ),
    "ulimit -f 0; printf 'a,y\\n1\\n' | kbnn train - --bad-rows b": (
        1,
        "b: cannot be written (file too large)",
    ),
    "ulimit -f 1; cat long.csv | kbnn train - -q --epochs 2": (
        1,
        "stdin: cannot be kept in a temporary file (file too large; "
        "set TMPDIR to use another folder)",
    ),
}


@pytest.mark.thinned(2)
@pytest.mark.parametrize("line", FAULTS)
def test_ordinary_faults_are_one_sentence(line: str, model: str, here: Path) -> None:
    code, said = FAULTS[line]
    ran = shell(line.format(m=model, d=CUBIC))
    assert ran.stderr.splitlines()[-1:] == [f"kbnn: {said}"]
    assert ran.returncode == code
    assert not {"r.html", "r.html.part", "model.npz"} & set(os.listdir())


def test_empty_objects_are_predicted_as_all_missing(model: str, here: Path) -> None:
    Path("e").write_text("{}\n{}\n")
    ran = program("predict", model, "e")
    assert ran.code == 0
    assert ran.out.splitlines()[0] == "x,mean,sd,lower,upper"
    assert len(ran.out.splitlines()) == 3


@pytest.mark.parametrize("delay", [0.02, 0.1, 0.2, 0.4, 0.7])
def test_ctrl_c_while_loading_is_130_without_a_word(delay: float, here: Path) -> None:
    program = "from kbnn_cli.startup import main; print('go', flush=True); main()"
    process = subprocess.Popen(
        [sys.executable, "-c", program, "train", "-"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    process.stdout.readline()
    time.sleep(delay)
    process.send_signal(signal.SIGINT)
    assert process.communicate()[1] == b""
    assert process.returncode in (130, -signal.SIGINT)  # 130 to a shell


HIDDEN = "\x1b[31mred\x1b]0_t\x07\x9b2J\u202egnp\u200b\x7f"
LEAK = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2066-\u2069]")


@pytest.mark.slow
@pytest.mark.parametrize("target", ["number", "class"])
def test_nothing_hidden_is_shown(target: str, here: Path) -> None:
    data, model, page = f"d{HIDDEN}.csv", f"m{HIDDEN}.npz", f"r{HIDDEN}.html"
    truth = [f"k{HIDDEN}{at % 3}" if target == "class" else str(at) for at in range(60)]
    lines = "".join(f"{at},k{HIDDEN}{at % 3},{y}\n" for at, y in enumerate(truth))
    Path(data).write_text(f"a{HIDDEN},b{HIDDEN},y{HIDDEN}\n{lines}")
    Path("damaged.parquet").write_bytes(b"PAR1" + HIDDEN.encode() * 99 + b"PAR1")
    for code, *words in (
        (0, "train", data, "-m", model, "--layers", "3", "--log", "log", "--json"),
        (0, "train", data, "-m", model, "--dry-run"),
        (0, "train", data, "-m", model, "--dry-run", "--json"),
        (0, "inspect", model),
        (0, "inspect", model, "--json"),
        (0, "inspect", model, "--diff", model),
        (0, "evaluate", model, data, "--report", page, "--plot", "p.svg"),
        (0, "evaluate", model, data, "--json"),
        (0, "predict", model, data, "-o", f"{HIDDEN}.csv", "--json"),
        (2, "evaluate", model, data, "--fail-if", f"{HIDDEN}>1"),
        (2, "train", data, "--layers", HIDDEN),
        (2, "train", data, "--limit", HIDDEN),
        (2, "train", data, f"--{HIDDEN}"),
        (2, HIDDEN),
        (1, "train", data, "--target", HIDDEN, "-m", "other.npz"),
        (1, "train", f"none{HIDDEN}.csv"),
        (1, "train", "damaged.parquet", "-m", "other.npz"),
        (1, "inspect", HIDDEN),
    ):
        ran = program(*words)
        assert ran.code == code, ran.err
        assert not LEAK.search(ran.out + ran.err), words
    for path in (page, "p.svg", "log"):
        assert not LEAK.search(Path(path).read_text(encoding="utf-8"))
    found = json.loads(program("inspect", model, "--json").out)
    assert found["targets"] == [f"y{HIDDEN}"]  # escaped, not lost


def test_a_file_name_that_is_no_utf8_can_be_learned_from(here: Path) -> None:
    os.rename("long.csv", b"l\xff.csv")
    name = os.fsdecode(b"l\xff.csv")
    assert program("train", name, "--layers", "3", "-q", "--json").code == 0
    assert program("train", name, "--resume").err.startswith("kbnn: nothing left to learn")
    assert program("evaluate", "model.npz", name, "--json").code == 0
