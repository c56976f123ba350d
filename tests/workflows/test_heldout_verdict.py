"""Rows that were held out decide the verdict at the end of training."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.commands import kbnn


def write(path: Path, turns: int, rows: int = 1500) -> str:
    """A relation that turns round so many times, slowly enough to be followed row by row."""
    rng = np.random.default_rng(1)
    x = rng.standard_normal(rows)
    slope = 5.0 * np.cos(np.pi * turns * np.arange(rows) / rows)
    y = slope * x + 100.0 * np.abs(slope) + 0.3 * rng.standard_normal(rows)
    lines = [f"{a:.6f},{b:.6f}" for a, b in zip(x, y, strict=True)]
    path.write_text("x,y\n" + "\n".join(lines) + "\n")
    return str(path)


def closing(err: str) -> str:
    """The last paragraph of the summary."""
    return " ".join(err.rstrip().split("\n\n")[-1].split())


def test_the_verdict_is_that_of_rows_held_out(tmp_path: Path) -> None:
    source = write(tmp_path / "turning.csv", 6)
    ran = kbnn("train", source, "-m", tmp_path / "m.npz", "--test-split", "20%")
    assert ran.code == 0
    said = closing(ran.err)
    assert said.startswith(("No better", "Over-confident", "Biased"))
    assert "held out, which the model never learned" in said
    assert "while it was learning, it did better" in said
    alone = closing(kbnn("train", source, "-m", tmp_path / "m2.npz").err)
    assert alone.startswith(("Good", "Useful"))
    assert "held out" not in alone


@pytest.mark.parametrize(("share", "judged"), [("20%", True), ("0.5%", False)])
def test_rows_held_out_that_are_too_few_decide_nothing(
    share: str, judged: bool, tmp_path: Path
) -> None:
    source = write(tmp_path / "steady.csv", 0)
    said = closing(kbnn("train", source, "-m", tmp_path / "m.npz", "--test-split", share).err)
    assert said.startswith("Good")
    assert ("held out, which the model never learned" in said) == judged
