"""`kbnn join`: join models that were trained on parts of the rows."""

from __future__ import annotations

from typing import Annotated

import typer

from kbnn_cli import command_options
from kbnn_cli.help_screens import Command

EXAMPLES = """\b
Examples:
  kbnn train half1.csv -m a.npz              train on one machine
  kbnn train half2.csv -m b.npz              train on another
  kbnn join a.npz b.npz -o c.npz             join them as an ensemble
  kbnn train more.csv -m c.npz               continue training
"""

app = typer.Typer(add_completion=False, rich_markup_mode=None)

Models = Annotated[
    list[str], typer.Argument(metavar="MODELS...", help="Read two or more model files.")
]
Output = Annotated[
    str,
    typer.Option(
        "-o",
        "--output",
        metavar="FILE.npz",
        help="Write the joined model to this file.",
        rich_help_panel=command_options.OUTPUT,
    ),
]


@app.command(cls=Command, epilog=EXAMPLES)
def join(
    models: Models,
    output: Output,
    force: command_options.Force = False,
    json: command_options.Json = False,
    quiet: command_options.Quiet = False,
    help_all: command_options.HelpAll = False,
) -> None:
    """Join models that were trained on parts of the rows into a weighted ensemble."""
    from kbnn.workflows.comparing import join_model_files as together
    from kbnn.workflows.comparing import list_ensemble_weights
    from kbnn_cli import display

    made = together(models, output, force=force)
    members, shares = made.settings.ensemble, list_ensemble_weights(made)
    if json:
        display.print_json(
            {
                "model": output,
                "joined": models,
                "members": members,
                "rows": made.rows,
                "weights": shares,
            }
        )
    elif not quiet:
        shown = ", ".join(f"{100 * weight:.0f} %" for weight in shares)
        text = f"{output}: {members} networks, {made.rows:,} rows learned, weights {shown}"
        display.make_notifier(quiet)(text)
