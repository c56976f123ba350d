"""A model that others replace, change or move while it is trained is left as it is."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kbnn.model.file import load
from tests.commands import Ran, kbnn

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="files that are open can be moved")

ROWS = 120


def lines(first: int, rows: int = ROWS) -> bytes:
    rising = range(first, first + rows)
    return "".join(f"d{at % 3},{at % 17 / 10},{at % 17 / 5 + at % 3}\n" for at in rising).encode()


def train_beside(model: str, change: Callable[[], object], *words: str, saved: str = "") -> Ran:
    """Train from a pipe; once `saved` is there and has rows, change something and go on."""
    line = [sys.executable, "-m", "kbnn_cli.app", "train", "-", "-m", model, "-q"]
    line += ["--layers", "2", "--checkpoint-every", "0.05" if saved else "60", *words]
    with subprocess.Popen(
        line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as run:
        assert run.stdin is not None
        assert run.stdout is not None
        assert run.stderr is not None
        run.stdin.write(b"d,x,y\n" + lines(0))
        run.stdin.flush()
        wait_for(saved or f"{model}.lock")
        change()
        try:
            run.stdin.write(lines(ROWS))
            run.stdin.close()
        except BrokenPipeError:  # it stopped as soon as it found the change
            pass
        out, err = run.stdout.read(), run.stderr.read()
    return Ran(run.returncode, out.decode(), err.decode())


def wait_for(path: str) -> None:
    for _ in range(3000):
        if os.path.exists(path):
            time.sleep(0.2)  # a save that is under way comes to its end
            return
        time.sleep(0.01)
    raise AssertionError(path)


def check_stopped(ran: Ran, why: str, recovered: str) -> None:
    """One message that says what happened and where the learned state is, which loads."""
    assert (ran.code, ran.out, ran.err.count("\n")) == (1, "", 1), ran
    assert why in ran.err
    assert f"{recovered}: rename it to continue with it." in ran.err
    assert kbnn("inspect", recovered).code == 0
    rows = load(recovered).rows if os.path.isfile(recovered) else ROWS
    assert rows >= ROWS


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("few.csv").write_bytes(b"d,x,y\n" + lines(0, 40))
    return tmp_path


def other_model(name: str = "other.npz") -> bytes:
    assert kbnn("train", "few.csv", "-m", name, "-q", "--layers", "2").code == 0
    return Path(name).read_bytes()


@pytest.mark.parametrize("how", ["renamed", "in place", "same size", "removed", "link"])
def test_a_model_file_that_others_changed_is_not_overwritten(here: Path, how: str) -> None:
    content = other_model()
    path, told = Path("m.npz"), "was changed by another process during training"
    if how == "link":
        Path("real.npz").write_bytes(content)
        path.symlink_to("real.npz")
        told = "its name leads to another place than when training began"

    def change() -> None:
        nonlocal content
        if how == "renamed":
            os.replace("other.npz", path)
        elif how == "in place":
            path.write_bytes(content)
        elif how == "same size":
            content = path.read_bytes()
            path.write_bytes(content)
        elif how == "removed":
            path.unlink()
        else:
            path.unlink()
            path.symlink_to("other.npz")

    told = "was removed or moved during training" if how == "removed" else told
    ran = train_beside("m.npz", change, saved="real.npz.lock" if how == "link" else "m.npz")
    name = "m.npz.recovered" if how != "link" else "other.npz.recovered"
    check_stopped(ran, told, name)
    assert how == "removed" or path.read_bytes() == content
    assert not list(here.glob("*.tmp"))
    assert not list(here.glob("*.lock"))


def test_a_model_that_appears_during_training_is_not_overwritten(here: Path) -> None:
    content = other_model()
    ran = train_beside("m.npz", lambda: os.replace("other.npz", "m.npz"))
    check_stopped(ran, "was created by another process during training", "m.npz.recovered")
    assert load("m.npz.recovered").rows == 2 * ROWS
    assert Path("m.npz").read_bytes() == content


@pytest.mark.parametrize("again", [False, True], ids=["gone", "made anew"])
@pytest.mark.parametrize("saved", ["", "a/m.npz"], ids=["new", "saved"])
def test_no_model_is_written_where_a_folder_was_moved(here: Path, again: bool, saved: str) -> None:
    Path("a").mkdir()

    def change() -> None:
        os.rename("a", "b")
        if again:
            Path("a").mkdir()

    ran = train_beside("a/m.npz", change, saved=saved)
    check_stopped(ran, "during training", "a/m.npz.recovered" if again else "m.npz.recovered")
    assert not Path("a/m.npz").exists()
    assert Path("b/m.npz").exists() == bool(saved)


def test_what_is_recovered_replaces_nothing_and_goes_on(here: Path) -> None:
    Path("m.npz.recovered").write_text("precious")
    other_model()
    ran = train_beside("m.npz", lambda: os.replace("other.npz", "m.npz"))
    check_stopped(ran, "by another process", "m.npz.recovered2")
    assert Path("m.npz.recovered").read_text() == "precious"
    os.replace("m.npz.recovered2", "m.npz")
    assert kbnn("train", "few.csv", "-m", "m.npz", "-q").code == 0
    assert load("m.npz").rows == 2 * ROWS + 40


@pytest.mark.parametrize("how", ["renamed", "in place", "removed", "moved", "moved, made anew"])
def test_a_fleet_that_others_changed_is_not_overwritten(here: Path, how: str) -> None:
    assert kbnn("train", "few.csv", "--key", "d", "-m", "o", "-q", "--layers", "2").code == 0
    content = Path("o/models.sqlite").read_bytes()

    def change() -> None:
        if how == "renamed":
            os.replace("o/models.sqlite", "a/models.sqlite")
        elif how == "in place":
            shutil.copyfile("o/models.sqlite", "a/models.sqlite")
        elif how == "removed":
            os.remove("a/models.sqlite")
        else:
            os.rename("a", "b")
        if how == "moved, made anew":
            Path("a").mkdir()

    ran = train_beside("a", change, "--key", "d", saved="a/fleet.json")
    check_stopped(ran, "during training", "a.recovered")
    if how in ("renamed", "in place"):
        assert Path("a/models.sqlite").read_bytes() == content
        assert "40 rows learned" in kbnn("inspect", "a").out
    elif how == "moved, made anew":
        assert not list(Path("a").iterdir())
    elif how == "moved":
        assert not Path("a").exists()
    rows = kbnn("inspect", "a.recovered").out.splitlines()[0]
    assert "120 rows learned" in rows or "240 rows learned" in rows
