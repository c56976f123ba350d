"""A hard link gives a model a second name, and no second trainer."""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path

import pytest

from kbnn.errors import ModelError
from kbnn.model.file import load
from kbnn.workflows.checkpoint import Checkpoint
from tests.commands import SAMPLES, kbnn, trained
from tests.modelling import small_state

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="locks and links of POSIX")

STATE = small_state()
REFUSED = r"another process is training this model under another name \(a hard link\)$"


def saved(path: Path) -> str:
    with Checkpoint(str(path)) as checkpoint:
        checkpoint.save_state(*STATE)
    return str(path)


def test_a_hard_link_does_not_evade_the_lock(tmp_path: Path) -> None:
    one, other = saved(tmp_path / "m.npz"), str(tmp_path / "n.npz")
    os.link(one, other)
    with Checkpoint(one), pytest.raises(ModelError, match=REFUSED):
        Checkpoint(other)
    Checkpoint(other).close()
    assert sorted(os.listdir(tmp_path)) == ["m.npz", "n.npz"]


def test_the_lock_goes_with_the_file_that_was_saved_last(tmp_path: Path) -> None:
    one, before, after = saved(tmp_path / "m.npz"), str(tmp_path / "b.npz"), str(tmp_path / "a.npz")
    os.link(one, before)
    with Checkpoint(one) as checkpoint:
        assert checkpoint.name_count == 2
        for _ in range(3):
            checkpoint.save_state(*STATE)
        os.link(one, after)
        with pytest.raises(ModelError, match=REFUSED):
            Checkpoint(after)
        Checkpoint(before).close()  # no longer the same file: a copy of what was
    Checkpoint(after).close()


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="counts open files as Linux does")
def test_saving_leaves_no_file_open(tmp_path: Path) -> None:
    gc.collect()  # what other tests left to be closed
    before = len(os.listdir("/proc/self/fd"))
    with Checkpoint(str(tmp_path / "m.npz")) as checkpoint:
        for _ in range(5):
            checkpoint.save_state(*STATE)
        assert len(os.listdir("/proc/self/fd")) == before + 2
        (tmp_path / "m.npz.tmp").mkdir()
        with pytest.raises(ModelError):
            checkpoint.save_state(*STATE)
    assert len(os.listdir("/proc/self/fd")) == before


def test_training_says_what_becomes_of_the_other_name(tmp_path: Path) -> None:
    one = trained(tmp_path / "m.npz", "cubic_small.csv")
    other = str(tmp_path / "n.npz")
    os.link(one, other)
    rows = load(other).rows
    ran = kbnn("train", SAMPLES / "cubic_small.csv", "-m", one)
    assert ran.code == 0
    assert "m.npz has another name (a hard link), which keeps the model as it is now" in ran.err
    assert (load(one).rows, load(other).rows) == (2 * rows, rows)
    assert "hard link" not in kbnn("train", SAMPLES / "cubic_small.csv", "-m", one).err


def test_a_file_system_without_locks_is_trained_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import errno
    import fcntl

    def none(descriptor: int, how: int) -> None:
        raise OSError(errno.ENOLCK, "no locks available")

    monkeypatch.setattr(fcntl, "flock", none)
    saved(tmp_path / "m.npz")
    saved(tmp_path / "m.npz")
