"""Checkpoints: atomic, locked, and clean after a kill at any moment."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kbnn.errors import ModelError
from kbnn.model import file as modelfile
from kbnn.workflows.checkpoint import Checkpoint, Position, format_sources
from tests.modelling import small_state
from tests.training_data import rows_of_numbers, state_of, train, write_csv

STATE = small_state()


def beside(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if ".npz" in path.name)


def test_save_replaces_the_file_and_leaves_nothing_else(tmp_path: Path) -> None:
    with Checkpoint(str(tmp_path / "m.npz")) as checkpoint:
        assert beside(tmp_path) == ["m.npz.lock"]
        checkpoint.save_state(*STATE)
        checkpoint.save_state({**STATE[0], "position": {"rows": 3}}, STATE[1])
    assert beside(tmp_path) == ["m.npz"]
    assert modelfile.load(str(tmp_path / "m.npz")).position == {"rows": 3}


def test_second_trainer_is_refused_until_the_first_has_ended(tmp_path: Path) -> None:
    path = str(tmp_path / "m.npz")
    with Checkpoint(path) as first:
        for _ in range(2):
            with pytest.raises(
                ModelError, match=r"m\.npz: another process is training this model$"
            ):
                Checkpoint(path)
            first.save_state(*STATE)  # the lock outlives the rename
    Checkpoint(path).close()


def test_leftovers_of_a_kill_are_removed(tmp_path: Path) -> None:
    (tmp_path / "m.npz.lock").touch()
    (tmp_path / "m.npz.tmp").write_bytes(b"half a mod")
    with Checkpoint(str(tmp_path / "m.npz")):
        assert beside(tmp_path) == ["m.npz.lock"]
    assert beside(tmp_path) == []


def test_a_failed_save_keeps_the_old_model(tmp_path: Path) -> None:
    with Checkpoint(str(tmp_path / "m.npz")) as checkpoint:
        checkpoint.save_state(*STATE)
        before = (tmp_path / "m.npz").read_bytes()
        (tmp_path / "m.npz.tmp").mkdir()
        with pytest.raises(ModelError, match=r"m\.npz: cannot be saved \(is a directory\)$"):
            checkpoint.save_state(*STATE)
        assert (tmp_path / "m.npz").read_bytes() == before


def test_a_link_goes_on_pointing_at_the_model_and_its_mode_stays(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "m.npz").symlink_to(tmp_path / "real" / "m.npz")
    with Checkpoint(str(tmp_path / "m.npz")) as checkpoint:
        checkpoint.save_state(*STATE)
        os.chmod(tmp_path / "real" / "m.npz", 0o640)
        checkpoint.save_state(*STATE)
    assert (tmp_path / "m.npz").is_symlink()
    assert (tmp_path / "real" / "m.npz").stat().st_mode & 0o777 == 0o640


def test_places_where_no_model_can_be(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"is not a file, so no model can be saved there$"):
        Checkpoint(str(tmp_path))
    with pytest.raises(ModelError, match=r"the folder .*nowhere does not exist$"):
        Checkpoint(str(tmp_path / "nowhere" / "m.npz"))


NURSERY = """
import os, sys
from kbnn.data.read_options import ReadOptions
from kbnn.workflows.options import SettingOverrides, TrainOptions
from kbnn.workflows.training import Listener, Training

class Told(Listener):
    def on_save(self, training):
        print("saved", flush=True)

read = ReadOptions(block_rows=40, epochs=10**6)
options = TrainOptions(
    (sys.argv[1],), sys.argv[2], read, SettingOverrides(hidden=(6,)),
    resume=True, checkpoint_every=1e-9)
for line in sys.stdin:
    child = os.fork()
    if not child:
        Training(options, Told()).run()
    print(child, flush=True)
    os.waitpid(child, 0)
    print("dead", flush=True)
"""
"""Starts trainers that save after every 40 rows and never come to an end, one at a time."""


def kill_again_and_again(folder: Path, times: int, seed: int) -> None:
    """Kill trainers at any moment; each goes on where the one before was last saved."""
    data = write_csv(folder / "a.csv", rows_of_numbers(600))
    model = folder / "m.npz"
    dice = random.Random(seed)
    with subprocess.Popen(
        [sys.executable, "-c", NURSERY, data, str(model)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as nursery:
        assert nursery.stdin is not None
        assert nursery.stdout is not None
        for _ in range(times):
            print("next", file=nursery.stdin, flush=True)
            child = saves = 0
            wanted = dice.randrange(1, 5)
            while not child or saves < wanted:
                said = nursery.stdout.readline().strip()
                saves += said == "saved"
                child = child or (int(said) if said.isdecimal() else 0)
                assert said not in ("", "dead")
            for _ in range(dice.randrange(100_000)):
                pass  # saving, learning and reading go on meanwhile
            os.kill(child, signal.SIGKILL)
            while nursery.stdout.readline().strip() != "dead":
                pass
            modelfile.load(str(model))
        nursery.stdin.close()
    passes = int(str(modelfile.load(str(model)).position["epoch"])) + 1
    train([data], model, resume=True, read={"epochs": passes})
    train([data], folder / "whole.npz", read={"epochs": passes})
    assert state_of(model) == state_of(folder / "whole.npz")
    assert beside(folder) == ["m.npz", "whole.npz"]


needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="trainers are forked")


@needs_fork
def test_a_kill_at_any_moment_leaves_the_last_checkpoint(tmp_path: Path) -> None:
    kill_again_and_again(tmp_path, 6, seed=1)


@needs_fork
@pytest.mark.slow
def test_a_hundred_kills(tmp_path: Path) -> None:
    kill_again_and_again(tmp_path, 100, seed=2)


def test_a_pipe_is_never_the_same_source_again() -> None:
    for source, same in (("a.csv", True), ("-", False)):
        run = Position((source,))
        assert run.reads_same_rows(Position((source,))) == same


def test_few_sources_are_named() -> None:
    assert format_sources(("a", "b", "c")) == "a b c"
    assert format_sources(("a", "b", "c", "d")) == "a and 3 others"
