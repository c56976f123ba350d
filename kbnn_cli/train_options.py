"""The options of `train` alone, and what their texts mean."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from inspect import Parameter, Signature, signature
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kbnn.task.table import TARGET_TYPES
from kbnn_cli.options import (
    COLUMNS,
    OUTPUT,
    READING,
    integer_parser,
    make_completer,
    parse_seconds,
    share_parser,
)

if TYPE_CHECKING:
    from kbnn.model.settings import Option

NETWORK = "Network"
MODEL = "Model file"
FLEET = "Fleet"


def _decimal_words() -> Iterable[str]:
    from kbnn.stream.forms import DECIMAL_MARKS

    return DECIMAL_MARKS


def _thousands_words() -> Iterable[str]:
    from kbnn.model.form import THOUSANDS_MARKS
    from kbnn.stream.forms import format_mark

    return [
        format_mark(mark) for mark in THOUSANDS_MARKS if mark != "'"
    ]  # shells would take it for a quote


def _time_unit_words() -> Iterable[str]:
    from kbnn.stream.clock import TIME_UNITS

    return TIME_UNITS


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
        help="Go on at the row where a run on the same sources was cut short, or say why not.",
        rich_help_panel=MODEL,
    ),
]
Again = Annotated[
    bool,
    typer.Option(
        "--again",
        help="Learn sources from their first row, though a run on them was cut short.",
        rich_help_panel=MODEL,
    ),
]
CheckpointEvery = Annotated[
    float,
    typer.Option(
        "--checkpoint-every",
        metavar="SECONDS",
        parser=parse_seconds,
        help="How often the model is saved on the way.",
        rich_help_panel=MODEL,
    ),
]
Key = Annotated[
    list[str] | None,
    typer.Option(
        "--key",
        metavar="COLUMNS",
        help="A model for every value of this column, in a folder (fleet if not said): a fleet.",
        rich_help_panel=FLEET,
    ),
]
Common = Annotated[
    bool,
    typer.Option(
        "--common/--no-common",
        help="Whether a new key begins from a model of all rows.",
        rich_help_panel=FLEET,
    ),
]
Open = Annotated[
    int | None,
    typer.Option(
        "--open",
        metavar="N",
        parser=integer_parser("--open"),
        help="Models in memory at a time; 10000 if not said. The others rest on the disk.",
        rich_help_panel=FLEET,
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
Categorical = Annotated[
    list[str] | None,
    typer.Option(
        "--categorical",
        metavar="COLUMNS",
        help="Labels, though they look like numbers: zip,month.",
        rich_help_panel=COLUMNS,
    ),
]
Numeric = Annotated[
    list[str] | None,
    typer.Option(
        "--numeric",
        metavar="COLUMNS",
        help="Numbers, though some look like text.",
        rich_help_panel=COLUMNS,
    ),
]
Hash = Annotated[
    list[str] | None,
    typer.Option(
        "--hash",
        metavar="COLUMN:N",
        help="Labels of any number in N inputs: device:32.",
        rich_help_panel=COLUMNS,
    ),
]
Decimal = Annotated[
    str | None,
    typer.Option(
        "--decimal",
        metavar="MARK",
        autocompletion=make_completer(_decimal_words),
        help="The decimal mark of numbers, . or a comma; found out if not said.",
        rich_help_panel=READING,
    ),
]
Thousands = Annotated[
    str | None,
    typer.Option(
        "--thousands",
        metavar="MARK",
        autocompletion=make_completer(_thousands_words),
        help="The thousands mark: , . ' or space; found out if not said.",
        rich_help_panel=READING,
    ),
]
Task = Annotated[
    str,
    typer.Option(
        "--task",
        metavar="TASK",
        autocompletion=make_completer(lambda: ("auto", *TARGET_TYPES)),
        help=f"auto, {' or '.join(TARGET_TYPES)}; auto: text, true/false and 0/1 are classes.",
        rich_help_panel=COLUMNS,
    ),
]
Time = Annotated[
    str | None,
    typer.Option(
        "--time",
        metavar="COLUMN",
        help="The clock: its calendar is learned from; the first column of timestamps if not said.",
        rich_help_panel=COLUMNS,
    ),
]
TimeUnit = Annotated[
    str,
    typer.Option(
        "--time-unit",
        metavar="UNIT",
        autocompletion=make_completer(_time_unit_words),
        help="Of a clock in numbers: s, ms, us or ns since 1970, or year; auto goes by their size.",
        rich_help_panel=COLUMNS,
    ),
]
Lags = Annotated[
    str | None,
    typer.Option(
        "--lags",
        metavar="LAGS",
        help="Values before the row to learn from: 1,2,24 (rows) or 1h,7d of the target, or of "
        "columns: temp:1,2;load:24; or off.",
        rich_help_panel=COLUMNS,
    ),
]
Id = Annotated[
    str | None,
    typer.Option(
        "--id",
        metavar="COLUMN",
        help="Labels may come late: a row without a target waits for a later one of its id.",
        rich_help_panel=COLUMNS,
    ),
]
Wait = Annotated[
    int | None,
    typer.Option(
        "--wait",
        metavar="ROWS",
        parser=integer_parser("--wait"),
        help="With --id: rows that may wait, the oldest is given up; 10000 if not said.",
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
TestSplit = Annotated[
    float,
    typer.Option(
        "--test-split",
        metavar="SHARE",
        parser=share_parser("--test-split"),
        help="Hold out a share of the rows, 0.1 or 10%, never learn them, score them at the end.",
        rich_help_panel=READING,
    ),
]
Epochs = Annotated[
    int,
    typer.Option(
        "--epochs",
        metavar="N",
        parser=integer_parser("--epochs"),
        help="Passes over the sources.",
        rich_help_panel=READING,
    ),
]
Predictions = Annotated[
    str | None,
    typer.Option(
        "--predictions",
        metavar="FILE",
        help="Each row's prediction before it was learned: .csv, .tsv, .jsonl, .parquet, .arrow, "
        "or -.",
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


def with_settings(command: Callable[..., None]) -> Callable[..., None]:
    """The command with an option in place of `**stated` for each of a model's settings.

    The settings are listed by the model (`kbnn.model.settings.OPTIONS`) and nowhere else.
    """
    from kbnn.model.settings import OPTIONS

    declared = list(signature(command, eval_str=True).parameters.values())
    parameters = [one for one in declared if one.kind is not Parameter.VAR_KEYWORD]
    parameters += [_make_parameter(option) for option in OPTIONS]
    command.__signature__ = Signature(parameters)  # type: ignore[attr-defined]  # what typer reads
    command.__annotations__ = {one.name: one.annotation for one in parameters}
    return command


def select_settings(stated: dict[str, str | None]) -> Any:
    """The settings by the names of their options, as `kbnn.run.trainoptions.stated` takes them."""
    return {name: text for name, text in stated.items() if text is not None}


def _make_parameter(option: Option) -> Parameter:
    many = option.name == "activation"
    shown = typer.Option(
        option.flag,
        metavar=option.metavar,
        autocompletion=make_completer(lambda: option.words, many) if option.words else None,
        help=option.help,
        rich_help_panel=NETWORK,
    )
    kind = Annotated[str | None, shown]
    word = option.flag.removeprefix("--").replace("-", "_")
    return Parameter(word, Parameter.KEYWORD_ONLY, default=None, annotation=kind)
