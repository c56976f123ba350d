"""A campaign of faults: outputs that fail in sixty ways, two thousand damaged data files, models
that others replace during training, forged models and fleets, and columns of any Arrow type.

No row is lost, no file is corrupt with exit code 0, nothing ends in a traceback or in an
"unexpected error", nothing hangs. Run with `-m slow`.
"""

from __future__ import annotations

import copy
import csv
import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.ipc as ipc
import pyarrow.parquet as pq
import pytest

from kbnn.errors import KbnnError
from kbnn.fleet.store import MODELS_FILE
from kbnn.model.file import load
from kbnn.model.serialize import from_state
from tests.commands import SAMPLES, Ran, kbnn, trained
from tests.data.test_arrow_types import ODD
from tests.faults.test_hostile_fleets import check_sound, mutate_counts, with_packed
from tests.faults.test_mutated_models import FIXTURES, leaves, stored, used
from tests.fleets import made, write
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
            assert found.rows + found.skipped + found.rejected_rows == len(seen.rows)
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


@contextmanager
def seconds(limit: float) -> Iterator[None]:
    """Fail where something takes longer."""

    def late(number: int, frame: object) -> None:
        raise AssertionError(f"it takes more than {limit:g} seconds")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, limit)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


# Models that others replace, change or move while they are trained.

CHANGES = ("renamed", "in place", "removed", "folder moved", "folder replaced")
MOMENTS = 6


def interfere(home: Path, name: str, how: str) -> None:
    if how == "renamed":
        shutil.copyfile("other", "spare")
        os.replace("spare", home / name)
    elif how == "in place":
        shutil.copyfile("other", home / name)
    elif how == "removed":
        (home / name).unlink()
    else:
        home.rename("elsewhere")
        if how == "folder replaced":
            home.mkdir()


@pytest.mark.parametrize("moment", range(MOMENTS))
@pytest.mark.parametrize("how", CHANGES)
@pytest.mark.parametrize("fleet", [False, True], ids=["model", "fleet"])
def test_models_that_others_change(fleet: bool, how: str, moment: int, here: Path) -> None:
    """At any moment of a run that saves all the time: nothing of theirs is overwritten."""
    rows = write(here / "rows.csv", *made(4, 30000))
    few = write(here / "few.csv", *made(4, 20))
    words = ["--key", "device"] if fleet else ["--ignore", "device"]
    assert kbnn("train", few, "-m", "first" if fleet else "first.npz", *words, "-q").code == 0
    shutil.copyfile(Path("first") / MODELS_FILE if fleet else "first.npz", "other")
    home, name = Path("home"), MODELS_FILE if fleet else "m.npz"
    if not fleet:
        home.mkdir()
    line = [sys.executable, "-m", "kbnn_cli.app", "train", str(rows), "-q", "--layers", "4"]
    line += ["-m", str(home if fleet else home / name), "--checkpoint-every", "0.01", *words]
    there = home / ("fleet.json" if fleet else name)
    with subprocess.Popen(line, stderr=subprocess.PIPE, text=True) as run:
        with seconds(60):
            while not there.exists() and run.poll() is None:
                pass
        try:
            run.wait(0.02 * moment)
        except subprocess.TimeoutExpired:
            interfere(home, name, how)
        assert run.stderr is not None
        said = run.stderr.read()
    assert "unexpected" not in said
    assert "Traceback" not in said
    assert run.returncode in (0, 1), said
    print(f"{how}: exit {run.returncode}")
    if run.returncode == 1:
        assert said.count("\n") == 1
        assert "rename it to continue with it." in said, said
        (recovered,) = [*here.glob("*.recovered"), *here.glob("home/*.recovered")]
        assert kbnn("inspect", recovered).code == 0
        if how in ("renamed", "in place"):
            assert (home / name).read_bytes() == Path("other").read_bytes()
        elif how == "folder replaced":
            assert not (home / name).exists()
    # Exit 0: the change came after the last save, or in place while SQLite wrote the same file.


# Forged models and fleets.

NUMBERS = (1e308, -1e308, 1e-308, 2**53 - 1, 10**15, 2**31, -1, 0, 1, 0.5, 2**70)


@pytest.mark.parametrize("name", sorted(stored()))
def test_every_number_of_a_header_replaced(name: str) -> None:
    header, arrays = stored()[name]
    known: set[tuple[str, ...]] = set()
    tried = refused = 0
    for path in leaves(header):
        holder: Any = header
        for key in path[:-1]:
            holder = holder[key]
        kind = tuple(key if isinstance(key, str) else "#" for key in path)
        odd = isinstance(holder[path[-1]], str | dict | list | bool) and path[-1] != "noise"
        if odd or kind in known:
            continue
        known.add(kind)
        for number in NUMBERS:
            forged = copy.deepcopy(header)
            holder = forged
            for key in path[:-1]:
                holder = holder[key]
            holder[path[-1]] = number
            tried += 1
            with seconds(20):
                try:
                    own = {at: array.copy() for at, array in arrays.items()}
                    used(from_state(forged, own), str(FIXTURES / "real.npz"))
                except KbnnError as error:
                    refused += "\n" not in str(error)
    print(f"{name}: {tried} forged numbers, {refused} refused")
    assert refused > tried // 10


@pytest.fixture
def fleet(here: Path) -> Path:
    rows = write(here / "rows.csv", *made(4, 60))
    assert kbnn("train", rows, "--key", "device", "-m", "fleet", "-q", "--layers", "3").code == 0
    return here


def opened() -> list[Ran]:
    with seconds(30):
        return [
            kbnn("predict", "fleet", "rows.csv", "--only-predictions", "-q"),
            kbnn("inspect", "fleet", "--json"),
            kbnn("inspect", "fleet", "--key", "d1", "--json"),
        ]


@pytest.mark.parametrize("part", range(4))
def test_forged_counts_of_a_fleet(part: int, fleet: Path) -> None:
    with seconds(120):
        refused = mutate_counts(150, 100 + part)
    print(f"{refused} of 150 refused")
    assert refused > 75


@pytest.mark.parametrize("part", range(4))
def test_forged_numbers_of_packed_models(part: int, fleet: Path) -> None:
    draw, refused = random.Random(part), 0
    shutil.copytree("fleet", "good")
    for _ in range(75):

        def change(form: Any, row: Any) -> None:
            for _ in range(draw.choice((1, 1, 3))):
                at = draw.randrange(form.length(form.of(row, "counts")))
                row[at] = draw.choice((np.nan, np.inf, -np.inf, -1.0, 0.0, 1e60, 1e300, 5e-324))

        with_packed(change)
        runs = opened()
        for ran in runs:
            check_sound(ran)
        refused += runs[0].code == 1
        shutil.rmtree("fleet")
        shutil.copytree("good", "fleet")
    print(f"{refused} of 75 refused")
    assert refused > 30


@pytest.mark.parametrize("part", range(4))
def test_damaged_databases(part: int, fleet: Path) -> None:
    """Bytes of a fleet's file changed anywhere, above all in its first page."""
    content = (fleet / "fleet" / MODELS_FILE).read_bytes()
    draw, refused = np.random.default_rng(part), 0
    for at in range(75):
        for end in ("-wal", "-shm"):
            (fleet / "fleet" / f"{MODELS_FILE}{end}").unlink(missing_ok=True)
        head = 4096 if at % 2 else len(content)
        (fleet / "fleet" / MODELS_FILE).write_bytes(mutated(content[:head], draw) + content[head:])
        runs = opened()
        for ran in runs:
            check_sound(ran)
        refused += runs[0].code == 1
    print(f"{refused} of 75 refused")


# Columns of any Arrow type.


def odd_column(draw: random.Random, depth: int = 0) -> pa.Array:
    """An odd column, wrapped a few times at random."""
    column = ODD[draw.choice(sorted(ODD))]
    size = len(column)
    for _ in range(draw.randrange(4)):
        wrap: Callable[[], pa.Array] = draw.choice(
            (
                lambda column=column: pa.StructArray.from_arrays([column], names=["s"]),
                lambda column=column: pa.ListArray.from_arrays(
                    pa.array(range(size + 1), pa.int32()), column
                ),
                lambda column=column: pa.DictionaryArray.from_arrays(
                    pa.array(range(size), pa.int32()), column
                ),
                lambda column=column: pa.RunEndEncodedArray.from_arrays(
                    pa.array(range(1, size + 1), pa.int32()), column
                ),
                lambda column=column: pc.if_else(
                    pa.array([at % 5 > 0 for at in range(size)]), column, None
                ),
            )
        )
        try:
            column = wrap()
        except (pa.ArrowException, TypeError, ValueError):  # no such type
            continue
    return column


@pytest.mark.parametrize("part", range(4))
def test_columns_of_any_type(part: int, here: Path) -> None:
    draw, learned = random.Random(part), 0
    for _ in range(60):
        column = odd_column(draw)
        size = len(column)
        x = np.random.default_rng(1).standard_normal(size)
        table = pa.table({"x": x, "c": column, "y": 2.0 * x})
        try:
            if draw.random() < 0.5:
                file = "t.arrow"
                with ipc.new_file(file, table.schema) as out:
                    out.write_table(table)
                ipc.open_file(file).read_all().validate(full=True)
            else:
                file = "t.parquet"
                pq.write_table(table, file)
                pq.read_table(file).validate(full=True)
        except (pa.ArrowException, OSError):  # Arrow itself cannot write or read it
            continue
        train = ("train", file, "--target", "y", "--layers", "2", "--fresh", "-q")
        runs = [kbnn(*train, "-m", "m.npz"), kbnn(*train, "-m", "i.npz", "--ignore", "c")]
        runs += [kbnn("predict", "i.npz", file, "-o", f"o.{end}", "-q") for end in ("csv", "jsonl")]
        assert [ran.code for ran in runs] == [0] * 4, (column.type, runs)
        runs = [kbnn("predict", "i.npz", file, "-o", "o.parquet", "-q")]
        runs += [kbnn("train", file, "--target", "c", "--layers", "2", "-m", "c.npz", "--fresh")]
        for ran in runs:
            assert ran.code in (0, 1), (column.type, ran)
            assert "unexpected" not in ran.err
        learned += 1
    print(f"{learned} tables")
    assert learned > 20


def test_there_are_enough_of_them() -> None:
    assert len(WRITTEN) * len(PLACES) + len(CHANNELS) >= 60
    assert len(FORMATS) * EACH >= 2000
    assert os.name == "posix"
