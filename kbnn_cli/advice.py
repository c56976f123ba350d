"""What to say about a command line that makes no sense: what is wrong, and what may be meant."""

from __future__ import annotations

import difflib
import re
from typing import Any, Final

from kbnn_cli.app import COMMANDS, load


def about_command_line(error: Any) -> str:
    """The parser's message as our sentence, with the way to the help that answers it."""
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "kbnn"
    kind = type(error).__name__
    if kind == "NoSuchOption":
        return _no_such_option(error.option_name, command)
    text = " ".join(error.format_message().split()).rstrip(".")
    text = text[:1].lower() + text[1:]
    if text.startswith("no such command"):
        wanted = re.search(r"'(.*)'", text)
        text = no_such_command(wanted[1] if wanted else "")
    return f"{text} (see '{command} --help')"


def no_such_command(typed: str) -> str:
    """That there is none of that name, and which may be meant."""
    close = difflib.get_close_matches(typed, COMMANDS, 1, 0.5)
    said = f"no such command '{typed}'"
    return f"{said}: did you mean '{close[0]}'?" if close else said


def _no_such_option(typed: str, command: str) -> str:
    """The nearest option of the command, or the command that has such an option."""
    said = f"no such option: {typed}"
    options = {name: option_names(name) for name in COMMANDS}
    own = command.partition(" ")[2]
    elsewhere = [name for name in COMMANDS if typed in options[name] and name != own]
    if elsewhere:
        others = " and ".join(f"'kbnn {name}'" for name in elsewhere)
        said += f", which is an option of {others}"
        instead = _INSTEAD.get((own, typed))
        said += f"; here it is {instead}" if instead else ""
    elif close := difflib.get_close_matches(typed, options.get(own, []), 1, 0.5):
        said += f": did you mean {close[0]}?"
    return f"{said} (see '{command} --help')"


def option_names(command: str) -> list[str]:
    """The options of a command, every spelling."""
    found = load(command).params
    return [name for option in found for name in option.opts if name.startswith("-")]


_INSTEAD: Final = {
    ("train", "--output"): "--predictions",
    ("train", "-o"): "--predictions",
    ("predict", "--predictions"): "--output",
    ("predict", "-m"): "the first argument",
    ("predict", "--model"): "the first argument",
    ("evaluate", "-m"): "the first argument",
    ("evaluate", "--model"): "the first argument",
    ("inspect", "-m"): "the first argument",
    ("inspect", "--model"): "the first argument",
}
"""Options that go by another name in another command."""
