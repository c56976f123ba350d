"""`kbnn help`, and messages for wrong command lines that name the option or command meant."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from typing import Annotated, Any, Final

import typer

from kbnn_cli.app import COMMANDS, load_command
from kbnn_cli.command_options import Command, HelpAll, make_completer

EXAMPLES = """\b
Examples:
  kbnn help            the commands
  kbnn help train      the options of one, as kbnn train --help
"""

app = typer.Typer(add_completion=False, rich_markup_mode=None)


def _list_commands() -> Iterable[str]:
    from kbnn_cli.app import COMMANDS

    return COMMANDS


Named = Annotated[
    str | None,
    typer.Argument(
        metavar="COMMAND",
        autocompletion=make_completer(_list_commands),
        help="Show the help of this command.",
        show_default=False,
    ),
]


@app.command(cls=Command, epilog=EXAMPLES)
def help(ctx: typer.Context, command: Named = None, help_all: HelpAll = False) -> None:
    """Show the commands, or the options of one of them."""
    from kbnn.errors import UsageError
    from kbnn_cli.app import COMMANDS, load_command
    from kbnn_cli.commands.help import suggest_command

    program = ctx.parent or ctx
    if command is None:
        print(program.get_help())
        return
    if command not in COMMANDS:
        raise UsageError(f"{suggest_command(command)} (see 'kbnn --help')")
    asked = load_command(command)
    with typer.Context(asked, info_name=command, parent=program) as shown:
        print(asked.get_help(shown))


def format_usage_error(error: Any) -> str:
    """Format an error of the parser, with the help command that answers it."""
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "kbnn"
    kind = type(error).__name__
    if kind == "NoSuchOption":
        return _suggest_option(error.option_name, command)
    text = " ".join(error.format_message().split()).rstrip(".")
    text = text[:1].lower() + text[1:]
    if text.startswith("no such command"):
        wanted = re.search(r"'(.*)'", text)
        text = suggest_command(wanted[1] if wanted else "")
    return f"{text} (see '{command} --help')"


def suggest_command(typed: str) -> str:
    """Report an unknown command and suggest the nearest one."""
    known = _COMMAND_SYNONYMS.get(typed.lower())
    close = [known] if known else difflib.get_close_matches(typed, COMMANDS, 1, 0.5)
    message = f"no such command '{typed}'"
    return f"{message}: did you mean '{close[0]}'?" if close else message


def _suggest_option(typed: str, command: str) -> str:
    """Report an unknown option; suggest the nearest, or the command that has it."""
    message = f"no such option: {typed}"
    options = {name: list_option_names(name) for name in COMMANDS}
    own = command.partition(" ")[2]
    elsewhere = [name for name in COMMANDS if typed in options[name] and name != own]
    known = _OPTION_SYNONYMS.get(typed.lower().replace("_", "-"), "")
    if known.startswith("--") and known.split()[0] not in options.get(own, []):
        known = ""
    if known:
        message += f": did you mean {known}?" if known.startswith("--") else f": {known}"
    elif elsewhere:
        others = " and ".join(f"'kbnn {name}'" for name in elsewhere)
        message += f", which is an option of {others}"
        instead = _OPTION_REPLACEMENTS.get((own, typed))
        message += f"; here it is {instead}" if instead else ""
    elif close := difflib.get_close_matches(typed, options.get(own, []), 1, 0.5):
        message += f": did you mean {close[0]}?"
    return f"{message} (see '{command} --help')"


def list_option_names(command: str) -> list[str]:
    """Return every present spelling of the options of a command."""
    found = load_command(command).params
    return [name for option in found for name in option.opts if name.startswith("-")]


_COMMAND_SYNONYMS: Final = {
    **dict.fromkeys(("fit", "learn", "update", "partial_fit"), "train"),
    **dict.fromkeys(("forecast", "infer", "apply", "transform"), "predict"),
    **dict.fromkeys(("score", "test", "eval", "validate", "backtest"), "evaluate"),
    **dict.fromkeys(("info", "show", "describe", "summary"), "inspect"),
    **dict.fromkeys(("merge", "combine", "average"), "join"),
}
"""Names of commands in other tools, with ours."""

_NOTHING_TO_TUNE: Final = "there is none, since rows are learned in closed form"
_OPTION_SYNONYMS: Final = {
    **dict.fromkeys(
        ("--passes", "--epoch", "--iterations", "--max-iter", "--n-epochs"), "--epochs"
    ),
    **dict.fromkeys(("--label", "--labels", "--y", "--response", "--target-column"), "--target"),
    **dict.fromkeys(("--test", "--test-size", "--holdout", "--validation"), "--test-split"),
    **dict.fromkeys(("--hidden", "--hidden-layer-sizes", "--nn"), "--layers"),
    **dict.fromkeys(("--columns", "--inputs", "--x"), "--features"),
    **dict.fromkeys(("--exclude", "--drop"), "--ignore"),
    **dict.fromkeys(("--sep", "--separator"), "--delimiter"),
    **dict.fromkeys(("--random-state", "--random-seed"), "--seed"),
    **dict.fromkeys(("--timestamp", "--date", "--time-column"), "--time"),
    **dict.fromkeys(("--group", "--group-by", "--by"), "--key"),
    **dict.fromkeys(("--sample-weight", "--weights", "--importance"), "--weight"),
    **dict.fromkeys(("--loss-function", "--loss", "--objective"), "--task"),
    **dict.fromkeys(("--alpha", "--confidence", "--level"), "--interval"),
    **dict.fromkeys(("--steps", "--ahead", "--fh"), "--horizon"),
    **dict.fromkeys(("--out", "--predictions-file"), "--output"),
    **dict.fromkeys(("--n-jobs", "--threads", "--workers"), "--engine dask"),
    **dict.fromkeys(("--learning-rate", "--lr", "-l", "--power-t", "--momentum"), _NOTHING_TO_TUNE),
    **dict.fromkeys(
        ("--batch-size", "--minibatch"), "there is none, since rows are learned one at a time"
    ),
    **dict.fromkeys(("--l1", "--l2", "--dropout"), "there is none, since the prior regularises"),
}
"""Names of options in other tools, with ours or the reason why there is none."""

_OPTION_REPLACEMENTS: Final = {
    ("train", "--output"): "--predictions",
    ("train", "-o"): "--predictions",
    ("predict", "--predictions"): "--output",
}
"""Options that have another name in another command."""
