"""The options of `train` alone, and what their texts mean."""

from __future__ import annotations

from typing import Annotated

import typer

from kbnn_cli.options import COLUMNS, OUTPUT, READING, seconds, whole

NETWORK = "Network"
MODEL = "Model file"

ModelFile = Annotated[
    str,
    typer.Option(
        "-m", "--model", metavar="FILE", help="Created, or continued.", rich_help_panel=MODEL
    ),
]
Fresh = Annotated[
    bool,
    typer.Option("--fresh", help="Start over, whatever model is there.", rich_help_panel=MODEL),
]
Resume = Annotated[
    bool,
    typer.Option(
        "--resume",
        help="Go on at the row where a run on the same sources was cut short.",
        rich_help_panel=MODEL,
    ),
]
CheckpointEvery = Annotated[
    float,
    typer.Option(
        "--checkpoint-every",
        metavar="SECONDS",
        parser=seconds,
        help="How often the model is saved on the way.",
        rich_help_panel=MODEL,
    ),
]
Target = Annotated[
    list[str] | None,
    typer.Option(
        "--target",
        metavar="COLUMNS",
        help="What to predict; the last column if not said. Several: a,b.",
        rich_help_panel=COLUMNS,
    ),
]
Features = Annotated[
    list[str] | None,
    typer.Option(
        "--features",
        metavar="COLUMNS",
        help="What to learn from; all others if not said.",
        rich_help_panel=COLUMNS,
    ),
]
Ignore = Annotated[
    list[str] | None,
    typer.Option("--ignore", metavar="COLUMNS", help="What to leave out.", rich_help_panel=COLUMNS),
]
Weight = Annotated[
    str | None,
    typer.Option(
        "--weight", metavar="COLUMN", help="How often each row counts.", rich_help_panel=COLUMNS
    ),
]
InputSd = Annotated[
    bool,
    typer.Option(
        "--input-sd",
        help="Column x_sd holds the standard deviation of column x.",
        rich_help_panel=COLUMNS,
    ),
]
Task = Annotated[
    str,
    typer.Option(
        "--task",
        metavar="TASK",
        help="auto, regression or classification; auto: text, true/false and 0/1 are classes.",
        rich_help_panel=COLUMNS,
    ),
]
Shuffle = Annotated[
    bool,
    typer.Option(
        "--shuffle",
        help="Mix the rows, in bounded memory; for files that are sorted.",
        rich_help_panel=READING,
    ),
]
Epochs = Annotated[
    int,
    typer.Option(
        "--epochs",
        metavar="N",
        parser=whole("--epochs"),
        help="Passes over the sources.",
        rich_help_panel=READING,
    ),
]
Seed = Annotated[
    int | None,
    typer.Option(
        "--seed",
        metavar="N",
        parser=whole("--seed"),
        help="Of the first weights and of --shuffle; 0 if not said.",
        rich_help_panel=NETWORK,
    ),
]
Layers = Annotated[
    str | None,
    typer.Option(
        "--layers",
        metavar="SIZES",
        help="Hidden layers: 50, or 50,50, or none for a linear model; 50 if not said.",
        rich_help_panel=NETWORK,
    ),
]
Activation = Annotated[
    str | None,
    typer.Option(
        "--activation",
        metavar="NAME",
        help="Of the hidden units: linear, relu, leaky_relu, sigmoid, tanh, probit, step or "
        "max(alpha,beta); relu if not said.",
        rich_help_panel=NETWORK,
    ),
]
Covariance = Annotated[
    str | None,
    typer.Option(
        "--covariance",
        metavar="KIND",
        help="Which weights are correlated: auto, paper, neuron, group or full.",
        rich_help_panel=NETWORK,
    ),
]
GroupSize = Annotated[
    int | None,
    typer.Option(
        "--group-size",
        metavar="N",
        parser=whole("--group-size"),
        help="Hidden units of one group; 10 if not said.",
        rich_help_panel=NETWORK,
    ),
]
Noise = Annotated[
    str | None,
    typer.Option(
        "--noise",
        metavar="NOISE",
        help="auto (may depend on the input), constant, or a standard deviation in the target's "
        "units.",
        rich_help_panel=NETWORK,
    ),
]
Robust = Annotated[
    str | None,
    typer.Option(
        "--robust",
        metavar="auto|off",
        help="Whether outliers count less.",
        rich_help_panel=NETWORK,
    ),
]
Drift = Annotated[
    str | None,
    typer.Option(
        "--drift",
        metavar="auto|off",
        help="Whether the model forgets when the stream changes.",
        rich_help_panel=NETWORK,
    ),
]
Ensemble = Annotated[
    int | None,
    typer.Option(
        "--ensemble",
        metavar="K",
        parser=whole("--ensemble"),
        help="Networks that predict together; 1 if not said.",
        rich_help_panel=NETWORK,
    ),
]
Predictions = Annotated[
    str | None,
    typer.Option(
        "--predictions",
        metavar="FILE",
        help="Each row's prediction before it was learned: .csv, .tsv, .parquet, or -.",
        rich_help_panel=OUTPUT,
    ),
]
Log = Annotated[
    str | None,
    typer.Option(
        "--log",
        metavar="FILE.jsonl",
        help="Append the history of the run, one JSON object a line.",
        rich_help_panel=OUTPUT,
    ),
]
DryRun = Annotated[
    bool,
    typer.Option(
        "--dry-run",
        help="Show what the columns are taken for, and stop.",
        rich_help_panel=OUTPUT,
    ),
]


def one_of(option: str, value: str, allowed: tuple[str, ...]) -> str:
    """A word from a list."""
    if value not in allowed:
        from kbnn.errors import UsageError

        words = f"{', '.join(allowed[:-1])} or {allowed[-1]}"
        raise UsageError(f"{option} is {words}, not '{value}'")
    return value


def on_or_off(option: str, value: str | None) -> bool | None:
    """`auto` or `off`; None if not said."""
    return None if value is None else one_of(option, value, ("auto", "off")) == "auto"


def layers(value: str | None) -> tuple[int, ...] | None:
    """The sizes of the hidden layers; None if not said."""
    if value is None:
        return None
    text = value.strip()
    if text in ("none", "0"):
        return ()
    sizes = [part.strip() for part in text.split(",")]
    if not all(size.isdecimal() and 0 < int(size) <= MOST_UNITS for size in sizes):
        from kbnn.errors import UsageError

        raise UsageError(f"--layers takes sizes such as 50 or 50,50, or none; not '{value}'")
    return tuple(int(size) for size in sizes)


MOST_UNITS = 100_000


def noise(value: str | None) -> str | float | None:
    """`auto`, `constant`, or a standard deviation; None if not said."""
    if value is None or value in ("auto", "constant"):
        return value
    try:
        number = float(value)
    except ValueError:
        number = -1.0
    if not 0.0 <= number < float("inf"):
        from kbnn.errors import UsageError

        words = "auto, constant, or a standard deviation in the target's units"
        raise UsageError(f"--noise is {words}; not '{value}'")
    return number
