"""`kbnn join`: join models that were trained on parts of the rows."""

from __future__ import annotations

import typer

from kbnn_cli.command_options import add_command

EXAMPLES = """\b
Examples:
  kbnn train half1.csv -m a.npz              train on one machine
  kbnn train half2.csv -m b.npz              train on another
  kbnn join a.npz b.npz -o c.npz             join them as an ensemble
  kbnn train more.csv -m c.npz               continue training
"""

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@add_command(app, EXAMPLES)
def join(models: list[str], output: str, force: bool, json: bool, quiet: bool) -> None:
    """Join models that were trained on parts of the rows into a weighted ensemble."""
    from kbnn.workflows.comparing import join_model_files, list_ensemble_weights
    from kbnn_cli import display

    made = join_model_files(models, output, force=force)
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
