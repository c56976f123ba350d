"""No command writes over a model, a source or anything inside a fleet."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kbnn.model.file import load
from tests.commands import kbnn
from tests.fleets import made, write


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("files")
    write(folder / "rows.csv", *made(4, 40))
    rows = str(folder / "rows.csv")
    words = ("--layers", "3", "-q")
    assert kbnn("train", rows, "--key", "device", "-m", str(folder / "fleet"), *words).code == 0
    for name, limit in (("m.npz", "120"), ("other.npz", "90")):
        model = str(folder / name)
        assert kbnn("train", rows, "-m", model, "--limit", limit, *words).code == 0
    (folder / "notes.txt").write_text("precious")
    return folder


@pytest.fixture
def here(files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(files, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def contents(folder: Path) -> dict[str, bytes]:
    """All files but what SQLite keeps beside a database that is read."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and not path.name.endswith(("-wal", "-shm"))
    }


EXPORT = "inspect fleet --key d1 --export"
THERE = "is there already (--force replaces it)"
IN_FLEET = "Choose another folder."
MODEL = "would write over a kbnn model"


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (f"{EXPORT} notes.txt", f"--export notes.txt: {THERE}"),
        (f"{EXPORT} other.npz", THERE),
        (f"{EXPORT} fleet/models.sqlite", "is inside the model fleet"),
        (f"{EXPORT} fleet/models.sqlite --force", "is inside the model fleet"),
        (f"{EXPORT} fleet/new.npz", "is inside the model fleet"),
        ("inspect m.npz --export fleet/fleet.json --force", IN_FLEET),
        ("inspect m.npz --export other.npz --diff other.npz --force", "would write over the model"),
        ("inspect m.npz --export x.npz --weights-file x.npz", "would write over"),
        ("inspect m.npz --weights-file other.npz", MODEL),
        ("inspect m.npz --force", "--force replaces the file of --export"),
        ("predict m.npz rows.csv -o fleet/p.csv", IN_FLEET),
        ("predict m.npz rows.csv --bad-rows other.npz", MODEL),
        ("evaluate m.npz rows.csv --bad-rows other.npz", MODEL),
        ("evaluate m.npz rows.csv --report fleet/r.html", IN_FLEET),
        ("train rows.csv -m new.npz -q --bad-rows other.npz", MODEL),
        ("train rows.csv -m new.npz -q --log other.npz", MODEL),
        ("train rows.csv -m fleet/new.npz -q", IN_FLEET),
        ("train rows.csv --key device -m new -q --bad-rows new/models.sqlite", "inside --model"),
        ("join m.npz other.npz -o fleet/models.sqlite --force", IN_FLEET),
        ("join m.npz other.npz -o notes.txt", THERE),
    ],
)
def test_outputs_replace_nothing_of_value(here: Path, line: str, why: str) -> None:
    before = contents(here)
    ran = kbnn(*line.split())
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1), ran
    assert why in ran.err
    assert contents(here) == before


def test_force_replaces_a_file_that_is_there(here: Path) -> None:
    assert kbnn("inspect", "fleet", "--key", "d1", "--export", "notes.txt", "--force").code == 0
    assert load("notes.txt").rows > 0
    assert kbnn("inspect", "fleet", "--key", "d1", "--export", "fresh.npz").code == 0
    assert Path("fresh.npz").read_bytes() == Path("notes.txt").read_bytes()


def test_tables_and_pages_of_before_are_replaced(here: Path) -> None:
    for _ in range(2):
        assert kbnn("predict", "m.npz", "rows.csv", "-o", "p.csv").code == 0
        assert kbnn("inspect", "m.npz", "--weights-file", "w.npz").code == 0
