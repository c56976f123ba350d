"""Exit codes, and the one sentence that goes with each."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kbnn.errors import DataError, ModelError, UsageError
from kbnn_cli import exit_codes
from kbnn_cli.app import run_command_line


def raising(error: BaseException) -> Callable[[], object]:
    def call_it() -> object:
        raise error

    return call_it


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (DataError("a.csv: no such file"), 1, "kbnn: a.csv: no such file\n"),
        (ModelError("m.npz: is empty"), 1, "kbnn: m.npz: is empty\n"),
        (UsageError("this contradicts that"), 2, "kbnn: this contradicts that\n"),
        (
            MemoryError(),
            1,
            "kbnn: out of memory (a smaller --layers or --group-size needs less)\n",
        ),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_errors_become_a_code_and_a_sentence(
    error: BaseException, code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_codes.run_guarded(raising(error)) == code
    assert capsys.readouterr() == ("", said)


def test_codes_are_passed_on() -> None:
    assert exit_codes.run_guarded(lambda: exit_codes.EXIT_CONDITION) == 3
    assert exit_codes.run_guarded(lambda: None) == 0


def test_debugging_shows_the_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KBNN_DEBUG", "1")
    assert exit_codes.run_guarded(raising(DataError("bad"))) == 1
    said = capsys.readouterr().err
    assert "Traceback" in said
    assert said.endswith("kbnn: bad\n")


COMMAND_LINES = {
    "trian a.csv": "no such command 'trian': did you mean 'train'? (see 'kbnn --help')",
    "train": "missing argument 'SOURCES' (see 'kbnn train --help')",
    "train a.csv --zzzz": "no such option: --zzzz (see 'kbnn train --help')",
    "train none.csv": "none.csv: no such file",
}


@pytest.mark.parametrize("line", COMMAND_LINES)
def test_command_lines_that_make_no_sense(
    line: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    code = run_command_line(line.split())
    assert code == (1 if "none.csv" in line else 2)
    assert capsys.readouterr() == ("", f"kbnn: {COMMAND_LINES[line]}\n")


def test_nothing_asked_shows_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line([]) == 2
    assert "Usage: kbnn" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["train", "predict", "evaluate", "inspect"])
def test_help_ends_with_examples(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line([command, "--help"]) == 0
    shown = capsys.readouterr().out
    assert f"kbnn {command} " in shown[shown.index("Examples:") :]
    assert max(len(line) for line in shown.splitlines()) <= 100


def python(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    ("words", "packages"),
    [
        (["--help"], ["numpy", "pyarrow", "scipy", "rich"]),
        (["train", "--help"], ["pyarrow", "scipy"]),
    ],
)
def test_help_loads_no_heavy_packages(words: list[str], packages: list[str]) -> None:
    done = python(
        "import sys; from kbnn_cli.app import run_command_line\n"
        f"assert run_command_line({words}) == 0\n"
        f"heavy = set({packages}) & set(sys.modules)\n"
        "sys.exit(f'loaded: {heavy}' if heavy else 0)"
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "train" in done.stdout


def test_a_defect_is_one_sentence() -> None:
    done = python(
        "import sys, kbnn_cli.app as app\n"
        "from kbnn_cli.startup import main\n"
        "def call(): raise ZeroDivisionError('over\\nnothing')\n"
        "app.run_command_line = call\n"
        "main()"
    )
    assert done.returncode == 1
    assert done.stderr == (
        "kbnn: unexpected error, ZeroDivisionError: over nothing "
        "(KBNN_DEBUG=1 shows where; please report it)\n"
    )


def test_version_names_the_engine(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["--version"]) == 0
    assert capsys.readouterr().out.startswith("kbnn 0.2.0 (")


def test_the_first_line_loads_nothing_else() -> None:
    done = python(
        "import sys; before = set(sys.modules)\n"
        "import kbnn_cli.startup\n"
        "print(*sorted(set(sys.modules) - before))",
    )
    assert (done.returncode, done.stdout.split()) == (0, ["kbnn_cli", "kbnn_cli.startup"])


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
@pytest.mark.parametrize("ignored", [False, True])
def test_ctrl_c_is_the_systems_from_the_first_line_on(ignored: bool) -> None:
    done = python(
        "import os, signal\n"
        f"if {ignored}: signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "import kbnn_cli.startup\n"
        "os.kill(os.getpid(), signal.SIGINT)\n"
        "print('going on')"
    )
    assert done.stderr == ""
    assert (done.returncode, done.stdout) == ((0, "going on\n") if ignored else (-2, ""))


def test_ctrl_c_where_nothing_can_be_raised_ends_the_program() -> None:
    """Python shows and drops what is raised while it clears up, modules being loaded among it."""
    done = python(
        "import os, signal, sys, weakref\n"
        "import kbnn_cli.app as app\n"
        "from kbnn_cli.startup import main\n"
        "class Thing: pass\n"
        "def call():\n"
        "    thing = Thing()\n"
        "    watch = weakref.ref(thing, lambda _: os.kill(os.getpid(), signal.SIGINT))\n"
        "    del thing\n"
        "    print('going on')\n"
        "app.run_command_line = call\n"
        "main()"
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_what_else_cannot_be_raised_is_pythons_to_tell() -> None:
    done = python(
        "import kbnn_cli.app as app\n"
        "from kbnn_cli.startup import main\n"
        "class Thing:\n"
        "    def __del__(self): raise ValueError('left')\n"
        "def call():\n"
        "    Thing()\n"
        "    return 0\n"
        "app.run_command_line = call\n"
        "main()"
    )
    assert done.returncode == 0
    assert "Exception ignored" in done.stderr


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="this system has no such terminals")
@pytest.mark.parametrize("columns", [40, 300])
def test_on_a_terminal_a_sentence_goes_on_below_between_two_words(columns: int) -> None:
    import fcntl
    import struct
    import termios

    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    words = "it is --task count-things of '日本語日本' " * 5  # letters that take two columns
    code = f"from kbnn_cli import exit_codes; exit_codes.print_message({words!r})"
    subprocess.run([sys.executable, "-c", code], stderr=theirs, check=True)
    os.close(theirs)
    shown = os.read(ours, 4096).decode().replace("\r", "")
    os.close(ours)
    lines = shown.splitlines()
    assert " ".join(lines) == f"kbnn: {words}".rstrip()
    assert max(len(line) + sum(letter in "日本語" for letter in line) for line in lines) <= columns
    assert (len(lines) == 1) == (columns == 300)
