"""`kbnn help`: the help of a command."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import typer

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
    from kbnn_cli.suggestions import suggest_command

    program = ctx.parent or ctx
    if command is None:
        print(program.get_help())
        return
    if command not in COMMANDS:
        raise UsageError(f"{suggest_command(command)} (see 'kbnn --help')")
    asked = load_command(command)
    with typer.Context(asked, info_name=command, parent=program) as shown:
        print(asked.get_help(shown))
