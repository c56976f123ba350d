"""A campaign of faults: outputs that fail in sixty ways, and two thousand damaged data files.

No row is lost, no file is corrupt with exit code 0, nothing ends in a traceback or in an
"unexpected error". Run with `-m slow`.
"""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow.parquet as pq
import pytest

from kbnn.model.file import load
from tests.commands import SAMPLES, kbnn, trained
from tests.streams import every_format, look, mixed_table

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform == "win32", reason="limits and mounts of POSIX"),
]

ROWS = 3000
TEST = SAMPLES / "cubic.csv"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return trained(tmp_path_factory.mktemp("model") / "m.npz", "cubic_small.csv")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    rows = "".join(f"{at},{'x' if at % 50 == 49 else at % 7},{2 * at}\n" for at in range(ROWS))
    Path("d.csv").write_text(f"a,b,y\n{rows}")
    return tmp_path


class Written(NamedTuple):
    """A command, the file it writes, and that file's ending."""

    words: str
    ending: str


TRAIN = "kbnn train d.csv -q --layers 3 --on-error skip"
WRITTEN = {
    "model": Written(f"{TRAIN} -m {{f}}", ".npz"),
    "predictions csv": Written(f"{TRAIN} --predictions {{f}}", ".csv"),
    "predictions parquet": Written(f"{TRAIN} --predictions {{f}}", ".parquet"),
    "bad rows": Written(f"{TRAIN} --bad-rows {{f}}", ".csv"),
    "log": Written(f"{TRAIN} --checkpoint-every 0.001 --log {{f}}", ".jsonl"),
    "output csv": Written("kbnn predict {m} {d} -o {f}", ".csv"),
    "output parquet": Written("kbnn predict {m} {d} -o {f}", ".parquet"),
    "report": Written("kbnn evaluate {m} {d} --report {f} > /dev/null", ".html"),
    "plot": Written("kbnn evaluate {m} {d} --plot {f} > /dev/null", ".png"),
    "inspect report": Written("kbnn inspect {m} --report {f} > /dev/null", ".html"),
}
PLACES = ("ulimit 0", "ulimit 4", "full tmpfs", "read-only", "no folder", "not a folder")
CHANNELS = {
    "inspect, full": ("kbnn inspect {m} > /dev/full", 1),
    "inspect, closed": ("kbnn inspect {m} >&-", 1),
    "predict, closed": ("kbnn predict {m} {d} >&-", 1),
    "predict, left": ("kbnn predict {m} {d} | true", 141),
    "stdin closed": ("kbnn train - <&-", 1),
    "talk closed": (f"{TRAIN.replace(' -q', '')} 2>&-", 0),
    "talk full": (f"{TRAIN.replace(' -q', '')} 2> /dev/full", 0),
    "talk left": (f"{TRAIN.replace(' -q', '')} 2>&1 | true", 0),
    "all closed": (f"{TRAIN} <&- >&- 2>&-", 0),
    "log full, talk closed": (f"{TRAIN} --log /dev/full 2>&-", 1),
    "little memory": ("ulimit -v 60000; " + TRAIN, 1),
    "less memory": ("ulimit -v 200000; " + TRAIN, 1),
    "no memory to predict": ("ulimit -v 150000; kbnn predict {m} {d}", 1),
    "no memory to evaluate": ("ulimit -v 200000; kbnn evaluate {m} {d}", 1),
}


def shell(line: str) -> subprocess.CompletedProcess[bytes]:
    program = f'kbnn() {{ {sys.executable} -m kbnn_cli.app "$@"; }}; '
    return subprocess.run(
        ["bash", "-o", "pipefail", "-c", program + line],
        capture_output=True,
        timeout=120,
        check=False,
    )


def sound(ran: subprocess.CompletedProcess[bytes]) -> None:
    said = ran.stdout + ran.stderr
    for word in (b"Traceback", b"unexpected error", b"Exception ignored"):
        assert word not in said, said
    assert ran.returncode in (0, 1, 2, 3, 141), (ran.returncode, said)
    if ran.returncode in (1, 2) and ran.stderr:
        assert ran.stderr.splitlines()[-1].startswith(b"kbnn: ")


@pytest.fixture
def small(here: Path) -> Iterator[Path]:
    """A mount point: a file system of a few pages."""
    folder = here / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=12k", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mounting needs root")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", WRITTEN)
def test_every_file_in_every_bad_place(
    name: str, place: str, model: str, small: Path, here: Path
) -> None:
    words, ending = WRITTEN[name]
    folder = {"full tmpfs": "small/", "read-only": "small/", "no folder": "none/"}.get(place, "")
    folder = "d.csv/" if place == "not a folder" else folder
    target = f"{folder}out{ending}"
    limit = ""
    if place.startswith("ulimit"):
        limit = f"ulimit -f {place.split()[1]}; "
    elif place == "full tmpfs":
        (small / "ballast").write_bytes(bytes(8 << 10))
    elif place == "read-only":
        subprocess.run(["mount", "-o", "remount,ro", str(small)], check=True)
    ran = shell(limit + words.format(m=model, d=TEST, f=target))
    sound(ran)
    if ran.returncode == 0:
        check_whole(name, here / target)
    else:
        assert ran.returncode == 1
    for left in (here, small):
        assert not list(left.glob("*.part"))
        assert not list(left.glob("*.tmp"))


def check_whole(name: str, path: Path) -> None:
    """With exit code 0 the file is all that it should be."""
    if name == "model":
        assert load(str(path)).rows == ROWS - ROWS // 50
    elif path.suffix == ".parquet":
        assert pq.read_table(path).num_rows in (800, ROWS - ROWS // 50)
    elif name == "bad rows":
        assert len(path.read_text().splitlines()) == 1 + ROWS // 50
    elif path.suffix == ".csv":
        assert len(path.read_text().splitlines()) in (801, 1 + ROWS - ROWS // 50)
    elif path.suffix == ".html":
        assert path.read_text().endswith("</html>\n")
    elif path.suffix == ".jsonl":
        assert '"end"' in path.read_text().splitlines()[-1]
    else:
        assert path.read_bytes().endswith(b"IEND\xaeB\x60\x82")


@pytest.mark.parametrize("name", CHANNELS)
def test_every_bad_channel(name: str, model: str, here: Path) -> None:
    line, code = CHANNELS[name]
    ran = shell(line.format(m=model, d=TEST))
    sound(ran)
    assert ran.returncode == code, ran.stderr
    if code == 0:
        assert load("model.npz").rows == ROWS - ROWS // 50


FORMATS = every_format(mixed_table(70))
EACH = 2000 // len(FORMATS) + 1
PARTS = 5


def mutated(data: bytes, random: np.random.Generator) -> bytes:
    """The bytes with one to four accidents."""
    made = bytearray(data)
    for _ in range(int(random.integers(1, 5))):
        size = len(made)
        if size < 2:
            break
        at = int(random.integers(0, size))
        long = int(random.integers(1, min(64, size)))
        kind = int(random.integers(0, 7))
        if kind == 0:
            made[at] ^= 1 << int(random.integers(0, 8))
        elif kind == 1:
            made[at] = int(random.integers(0, 256))
        elif kind == 2:
            del made[at : at + long]
        elif kind == 3:
            made[at:at] = random.integers(0, 256, long, dtype=np.uint8).tobytes()
        elif kind == 4:
            made[at:at] = made[max(0, at - long) : at]
        elif kind == 5:
            made[at:at] = [b'"', b"\n", b",", b"\0", b"{", b"1e999", b"\xff"][at % 7]
        else:
            del made[size - long :]
    return bytes(made)


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("name", FORMATS)
def test_damaged_data(
    name: str, part: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("good.csv").write_bytes(FORMATS["csv"])
    assert kbnn("train", "good.csv", "-q", "-m", "good.npz", "--layers", "2").code == 0
    schema = load("good.npz").schema
    random = np.random.default_rng([part, *name.encode()])
    for _ in range(EACH * (part + 1) // PARTS - EACH * part // PARTS):
        Path("t").write_bytes(mutated(FORMATS[name], random))
        for file in ("m.npz", "o.csv"):
            Path(file).unlink(missing_ok=True)
        seen = look(["t"], on_error="skip", read_size=1 << 20)
        again = look(["t"], on_error="skip", read_size=37)
        # What is found first in compressed bytes depends on how much is unpacked at a time.
        whole = min(len(again.rows), len(seen.rows)) if seen.error else len(seen.rows)
        assert again.rows[:whole] == seen.rows[:whole]
        assert bool(again.error) == bool(seen.error)
        assert seen.error or (again.rows, again.bad) == (seen.rows, seen.bad)
        assert seen.error or len(seen.rows) + len(seen.bad) >= seen.rows[-1]
        learned = kbnn("train", "t", "-m", "m.npz", "--layers", "2", "-q", "--on-error", "skip")
        assert learned.code == (1 if seen.error else learned.code)
        assert learned.code in (0, 1, 2), learned.err
        if learned.code == 0:
            found = load("m.npz")
            assert found.rows + found.skipped + found.rejected == len(seen.rows)
        else:
            assert learned.err.startswith("kbnn: ")
        kept = look(["t"], schema, on_error="keep", admit=False, use_target=False, original=True)
        said = kbnn("predict", "good.npz", "t", "-o", "o.csv", "-q")
        assert said.code == (1 if kept.error else 0), said.err
        if said.code == 0:
            with open("o.csv", newline="", encoding="utf-8") as table:
                cells = list(csv.reader(table))
            assert len(cells) == 1 + len(kept.rows)
            assert {len(row) for row in cells} == {len(cells[0])}


def test_there_are_enough_of_them() -> None:
    assert len(WRITTEN) * len(PLACES) + len(CHANNELS) >= 60
    assert len(FORMATS) * EACH >= 2000
    assert os.name == "posix"
