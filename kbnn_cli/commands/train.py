"""`kbnn train`: learn from a stream, row by row."""

from __future__ import annotations

import typer

from kbnn_cli import options

EXAMPLES = """\b
Examples:
  kbnn train data.csv --target price --layers 50
  cat stream.csv | kbnn train -
"""

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command(epilog=EXAMPLES)
def train(sources: options.Sources) -> None:
    """Learn from a stream, row by row, into a model file."""
