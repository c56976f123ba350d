"""The command line and its commands, each of which is imported when it runs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from kbnn_cli import exit_codes

COMMANDS = {
    "train": "Train a model on a stream, row by row.",
    "predict": "Predict rows with error bars or class probabilities.",
    "evaluate": "Score a model on rows that it has not learned.",
    "inspect": "Show the settings, data, weights and scores of a model.",
    "join": "Join models that were trained on parts of the rows.",
    "help": "Show the help of a command: kbnn help train.",
}
"""The commands in the order of use, with their help: `kbnn --help` imports none of them."""

EXAMPLES = """\b
Examples:
  kbnn train data.csv --target price      train on a file, save model.npz
  tail -n +1 -f log.csv | kbnn train -    train on a live stream
  kbnn predict model.npz new.csv          predict with error bars
  kbnn evaluate model.npz test.csv        score the predictions
  kbnn inspect model.npz                  show the model
"""


class CommandGroup(TyperGroup):
    """The commands: `kbnn_cli.commands.NAME.app` holds the only command of NAME."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names in the order of use."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Load a command; return None if there is none of that name."""
        return load_command(cmd_name) if cmd_name in COMMANDS else None

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """List the commands without loading them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


def load_command(name: str) -> Any:
    """Load a command by its name."""
    return typer.main.get_command(import_module(f"kbnn_cli.commands.{name}").app)


app = typer.Typer(
    cls=CommandGroup,
    name="kbnn",
    no_args_is_help=True,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from kbnn import __version__
        from kbnn.core import kernel

        print(f"kbnn {__version__} ({kernel.describe_engine()})")
        raise typer.Exit


@app.callback(epilog=EXAMPLES)
def kbnn(
    version: Annotated[
        bool,
        typer.Option(
            "-V",
            "--version",
            callback=_print_version,
            is_eager=True,
            help="Show the version and the kernel, and exit.",
        ),
    ] = False,
) -> None:
    """Online Bayesian neural network: learns row by row, predicts with error bars."""


def run_command_line(arguments: Sequence[str] | None = None) -> int:
    """Run a command line (that of the process by default) and return its exit code."""
    command = typer.main.get_command(app)
    return exit_codes.run_guarded(
        partial(command, arguments, prog_name="kbnn", standalone_mode=False)
    )


if __name__ == "__main__":
    from kbnn_cli.startup import main

    main()
