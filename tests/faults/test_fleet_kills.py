"""Trainers of a fleet killed at any moment: what is there at last is what nobody disturbed."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kbnn.model.file import load_bytes
from tests.commands import program
from tests.fleet.test_fleet import models
from tests.fleets import made, write

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX"),
]

KILLS = 100
TRAIN = ["--key", "device", "--open", "20", "--checkpoint-every", "0.02", "-q"]
BAD = ("Traceback", "unexpected error", "Exception ignored")


def counts(fleet: str) -> dict[str, int]:
    return {key: load_bytes(content).rows for key, content in models(fleet).items()}


def test_a_fleet_outlives_kills(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "rows.csv", *made(30, 60))
    whole = program("train", "rows.csv", *TRAIN, "-m", "whole", "--predictions", "whole.csv")
    assert whole.code == 0
    draw, killed, rounds = random.Random(0), 0, 0
    while killed < KILLS:
        rounds += 1
        folder, said = f"fleet{rounds}", f"p{rounds}.csv"
        words = ["train", "rows.csv", *TRAIN, "-m", folder, "--predictions", said, "--resume"]
        while True:
            command = [sys.executable, "-m", "kbnn_cli.app", *words]
            trainer = subprocess.Popen(command, stderr=subprocess.PIPE)
            time.sleep(draw.uniform(0.5, 2.5))
            trainer.kill()
            _, err = trainer.communicate()
            assert not any(bad in err.decode() for bad in BAD), err.decode()
            if trainer.returncode == 0:
                break
            assert trainer.returncode < 0, err.decode()
            killed += 1
        assert counts(folder) == counts("whole")
        assert models(folder) == models("whole")
        assert (tmp_path / said).read_bytes() == (tmp_path / "whole.csv").read_bytes()
    print(f"{killed} kills in {rounds} rounds")
