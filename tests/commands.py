"""Helpers for tests of the commands: run one, here or as a program, and keep all it says."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import NamedTuple

import typer

from kbnn_cli import exit_codes
from kbnn_cli.app import app

SAMPLES = Path(__file__).parent.parent / "samples"


class Ran(NamedTuple):
    """The exit code and the two outputs."""

    code: int
    out: str
    err: str


def kbnn(*arguments: str | Path) -> Ran:
    """Run a command in this process: errors and exit codes as the program gives them."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", newline="") for _ in range(2))
    hook = sys.excepthook
    command = typer.main.get_command(app)
    words = [str(argument) for argument in arguments]
    try:
        with redirect_stdout(out), redirect_stderr(err):
            code = exit_codes.run_guarded(
                lambda: command(words, prog_name="kbnn", standalone_mode=False)
            )
    finally:
        sys.excepthook = hook
    texts = []
    for stream in (out, err):
        stream.flush()
        stream.seek(0)
        texts.append(stream.read())
    return Ran(code, *texts)


def program(*arguments: str | Path, stdin: bytes = b"", **environment: str) -> Ran:
    """Run the program itself, with something on its standard input."""
    done = subprocess.run(
        [sys.executable, "-m", "kbnn_cli.app", *(str(argument) for argument in arguments)],
        input=stdin,
        capture_output=True,
        timeout=60,
        check=False,
        env={**os.environ, **environment},
    )
    return Ran(done.returncode, done.stdout.decode(), done.stderr.decode())


def trained(path: Path, source: str, *options: str) -> str:
    """A model of a sample, at `path`."""
    ran = kbnn("train", SAMPLES / source, "-m", path, "-q", *options)
    assert ran.code == 0, ran.err
    return str(path)
