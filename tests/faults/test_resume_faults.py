"""A disk that fills up, then --resume: the predictions are complete and exact."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from kbnn.model.file import exists, load
from tests.training_data import state_of

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="limits of POSIX")

KBNN = f"{sys.executable} -m kbnn_cli.app"
TRAIN = "kbnn train rows.csv -m {0}.npz --layers 3 --rehearse off --predictions {0}.csv"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    x = rng.standard_normal((9000, 2))
    rows = np.column_stack([x, x[:, 0] + 0.1 * rng.standard_normal(9000)])
    np.savetxt("rows.csv", rows, fmt="%.4f", delimiter=",", header="a,b,y", comments="")
    return tmp_path


def shell(line: str) -> subprocess.CompletedProcess[str]:
    command = ["bash", "-c", re.sub(r"\bkbnn\b", KBNN, line)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("every", "blocks"),
    [
        (30.0, 400),
        (0.01, 600),
        *(
            pytest.param(every, blocks, marks=pytest.mark.slow)
            for every, blocks in [(30.0, 200), (30.0, 600), (0.01, 200), (0.01, 400)]
        ),
    ],
)
def test_predictions_are_whole_after_a_full_disk(here: Path, every: float, blocks: int) -> None:
    assert shell(TRAIN.format("whole") + " -q").returncode == 0
    full = shell(f"ulimit -f {blocks}; {TRAIN.format('part')} --checkpoint-every {every}")
    assert full.returncode == 1
    assert "part.csv: cannot be written (file too large)" in full.stderr
    written = (here / "part.csv").read_bytes()
    if exists("part.npz"):
        position = load("part.npz").position
        assert written[: position["predictions_bytes"]].count(b"\n") == position["rows"] + 1
        assert f"stays as it was saved after row {position['rows']:,}" in full.stderr
    went_on = shell(f"{TRAIN.format('part')} -q --resume")
    assert (went_on.returncode, went_on.stderr) == (0, "")
    assert (here / "part.csv").read_bytes() == (here / "whole.csv").read_bytes()
    assert state_of(here / "part.npz") == state_of(here / "whole.npz")
    assert not [name for name in os.listdir() if name.endswith((".tmp", ".lock"))]
