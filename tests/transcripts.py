"""Runs the README's console transcripts: `$ command` lines and what they must print.

A transcript is a fenced block marked `console`. Its commands run in order in one scratch folder
that holds the samples, as a reader would run them. In the expected text `...` stands for anything
within a line, and a line of only `...` for any number of lines: times differ from run to run.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

README = Path(__file__).parent.parent / "README.md"


class Step(NamedTuple):
    """A command and the lines it must print, on stdout and stderr together."""

    command: str
    expected: list[str]


def transcripts(text: str) -> list[list[Step]]:
    """The steps of every console block."""
    found = []
    for block in re.findall(r"^```console\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        steps: list[Step] = []
        for line in block.splitlines():
            if line.startswith("$ "):
                steps.append(Step(line[2:], []))
            else:
                steps[-1].expected.append(line)
        found.append(steps)
    return found


def run(command: str, folder: Path) -> str:
    """Run a shell command as a reader would, 80 columns wide; both streams in one text."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {
        **os.environ,
        "PATH": path,
        "COLUMNS": "80",
        "NO_COLOR": "1",
        "PYTHONIOENCODING": "utf-8",
        "KBNN_ENGINE": "",
    }
    done = subprocess.run(
        command,
        shell=True,
        cwd=folder,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=120,
        encoding="utf-8",
        stdin=subprocess.DEVNULL,
    )
    return done.stdout


def matches(expected: list[str], printed: str) -> bool:
    """Whether the printed lines are the expected ones, `...` standing for anything."""
    pattern = ""
    for line in expected:
        text = line.rstrip()
        if text == "...":
            pattern += r"(?:.*\n)*"
        else:
            parts = (re.escape(part) for part in text.split("..."))
            pattern += ".*".join(parts) + r"[ \t]*\n"
    return (
        re.fullmatch(pattern, printed if printed.endswith("\n") or not printed else printed + "\n")
        is not None
    )
