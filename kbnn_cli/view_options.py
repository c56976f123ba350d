"""Options of the commands that show a model: `evaluate` and `inspect`."""

from __future__ import annotations

from typing import Annotated

import typer

from kbnn_cli.options import OUTPUT

Report = Annotated[
    str | None,
    typer.Option(
        "--report",
        metavar="FILE.html",
        help="Write a page with all figures and pictures; it needs nothing but itself.",
        rich_help_panel=OUTPUT,
    ),
]
Plot = Annotated[
    str | None,
    typer.Option(
        "--plot",
        metavar="FILE.png|svg|pdf",
        help="Write the main picture: the band (one feature), the fields (two), or predicted "
        "against true.",
        rich_help_panel=OUTPUT,
    ),
]
NoPlots = Annotated[
    bool,
    typer.Option(
        "--no-plots",
        help="No charts; there are none anyway when the output is not a terminal.",
        rich_help_panel=OUTPUT,
    ),
]
