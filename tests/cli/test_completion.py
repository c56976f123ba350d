"""Shells complete the values of options that have a fixed set, and file names elsewhere.

The protocol is that of the script which `kbnn --install-completion` installs.
"""

from __future__ import annotations

import io
from contextlib import redirect_stdout

import pytest
import typer

from kbnn.core.activations import ACTIVATIONS
from kbnn.core.config import COVARIANCES
from kbnn.core.state import PRIORS
from kbnn.data.formats import FORMATS
from kbnn.data.timestamps import TIME_UNITS
from kbnn.model.settings import PRESETS
from kbnn.option_table import list_keywords
from kbnn.targets.registry import TARGET_TYPES
from kbnn_cli.app import COMMANDS, app
from tests.commands import program

WORDS = {
    "train x.csv --covariance ": ["auto", *COVARIANCES],
    "train x.csv --covariance=": ["auto", *COVARIANCES],
    "train x.csv --covariance n": ["neuron"],
    "train --task ": ["auto", *TARGET_TYPES],
    "train --preset ": list(PRESETS),
    "train --activation ": list(ACTIVATIONS),
    "train --activation relu,ta": ["relu,tanh"],
    "train --prior-variance ": list(PRIORS),
    "train --layers ": ["none", "auto", "best"],
    "train --standardize ": ["auto", "off"],
    "train --replay ": ["auto", "off"],
    "train --noise ": ["auto", "constant"],
    "train --link ": ["probit", "sigmoid"],
    "train --sigmoid-variance ": ["exact", "printed"],
    "train --time-unit ": list(TIME_UNITS),
    "train --decimal ": [".", ","],
    "train --engine ": ["local", "dask"],
    "train --format ": list(FORMATS),
    "train --intervals ": ["calibrated", "model"],
    "predict m.npz --intervals ": ["calibrated", "model"],
    "predict m.npz --on-error ": ["stop", "skip"],
    "evaluate m.npz --on-error sk": ["skip"],
    "help ": list(COMMANDS),
    "train --model ": [],
    "train --predictions ": [],
    "predict m.npz --output ": [],
    "inspect m.npz --export ": [],
    "train ": [],
}


def ask(line: str) -> list[str]:
    """What bash is told to offer at the end of a line."""
    environment = {
        "_KBNN_COMPLETE": "complete_bash",
        "COMP_WORDS": f"kbnn {line}",
        "COMP_CWORD": str(len(line.split(" "))),
    }
    told = io.StringIO()
    command = typer.main.get_command(app)
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(told):
        for name, value in environment.items():
            patch.setenv(name, value)
        with pytest.raises(SystemExit, match="0"):
            command(prog_name="kbnn")
    return told.getvalue().split()


@pytest.mark.parametrize("line", WORDS)
def test_fixed_values_are_offered(line: str) -> None:
    assert ask(line) == WORDS[line]


def test_every_setting_with_choices_in_its_help_offers_them() -> None:
    for option in list_keywords().values():
        if option.home != "settings":
            continue
        shown = [word for word in option.metavar.split("|") if word.islower()]
        offered = ask(f"train {option.flag} ")
        assert not callable(option.words)
        assert offered == list(option.words)
        assert not shown or offered == shown
        for word in offered:
            option.parse_value(word)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_program_itself_answers_each_shell(shell: str) -> None:
    def ask_program(line: str) -> tuple[int, str]:
        words = line.split(" ")
        environment = {
            "_KBNN_COMPLETE": f"complete_{shell}",
            "COMP_WORDS": line,
            "COMP_CWORD": str(len(words) - 1),
            "_TYPER_COMPLETE_ARGS": line,
            "_TYPER_COMPLETE_FISH_ACTION": "get-args",
        }
        done = program(stdin=b"", **environment)
        assert done.err == ""
        return done.code, done.out

    code, out = ask_program("kbnn train data.csv --preset ")
    assert code == 0
    for word in PRESETS:
        assert word in out
    files = "_files" if shell == "zsh" else ""
    assert ask_program("kbnn train data.csv --model ")[1].strip() == files
