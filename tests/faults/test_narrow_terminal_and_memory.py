"""Little memory and very wide lines: an answer or a sentence, never a wait."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from kbnn.model.file import load
from tests.commands import kbnn

WIDE = 20_100
LOADING = """
import resource, sys
import numpy as np
from kbnn.core import normal
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (60 << 20), resource.RLIM_INFINITY))
try:
    normal.hazard(np.zeros(1))
except OSError as error:
    print(error.strerror)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="limits memory the way Linux does")
def test_scipy_is_not_waited_for_without_memory() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOADING], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "Cannot allocate memory\n"


@pytest.mark.slow
def test_of_very_many_keys_those_chosen_are_read(tmp_path: Path) -> None:
    lines = [{**{f"k{j}": i * j % 7 for j in range(WIDE)}, "y": i} for i in range(40)]
    path, model = tmp_path / "wide.jsonl", tmp_path / "m.npz"
    path.write_text("\n".join(map(json.dumps, lines)) + "\n")
    ran = kbnn("train", path, "-m", model, "--target", "y", "--features", "k1,k2", "--layers", "2")
    assert (ran.code, load(str(model)).schema.features) == (0, ["k1", "k2"])
    assert "comes first in row" not in ran.err
    assert load(str(model)).rows == 40
    said = kbnn("predict", model, path, "--only-predictions", "-q")
    assert (said.code, len(said.out.splitlines())) == (0, 41)
    refused = kbnn("train", path, "-m", tmp_path / "n.npz", "--target", "y")
    assert refused.code == 1
    assert "has more than 20,000 keys" in refused.err
