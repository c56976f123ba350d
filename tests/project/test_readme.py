"""The README keeps its word: its transcripts are run, its commands are there."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.transcripts import README, Step, matches, run, transcripts

SAMPLES = README.parent / "samples"
BLOCKS = transcripts(README.read_text(encoding="utf-8"))


@pytest.mark.parametrize("steps", BLOCKS, ids=[block[0].command for block in BLOCKS])
def test_transcript_prints_what_it_says(steps: list[Step], tmp_path: Path) -> None:
    (tmp_path / "samples").mkdir()
    for sample in SAMPLES.glob("*.csv"):
        shutil.copy(sample, tmp_path / "samples")
    for step in steps:
        printed = run(step.command, tmp_path)
        assert matches(step.expected, printed), f"$ {step.command}\n{printed}"


def test_there_are_transcripts_of_all_four_commands() -> None:
    commands = " ".join(step.command for block in BLOCKS for step in block)
    for name in ("train", "predict", "evaluate", "inspect"):
        assert f"kbnn {name}" in commands


def test_two_commands_set_everything_up() -> None:
    lines = README.read_text(encoding="utf-8").splitlines()
    setups = [line for line in lines if line.startswith("python3 -m venv")]
    assert len(setups) == 2
    assert re.search(r"kbnn train samples/\S+\.csv", setups[0])
    assert setups[1].endswith("-m pytest")


def test_matching_is_strict_but_for_the_dots() -> None:
    assert matches(["a 1 b", "..."], "a 1 b\nx\ny\n")
    assert matches(["t ... s"], "t 0.12 s\n")
    assert not matches(["a 1 b"], "a 2 b\n")
    assert not matches(["a"], "a\nb\n")
