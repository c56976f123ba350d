"""Options and arguments that several commands share, each declared once.

Options of the commands that show a model: `evaluate` and `inspect`.

The options of `train` alone, and what their texts mean.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable
from inspect import Parameter, Signature, signature
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kbnn.data.formats import FORMATS
from kbnn.targets.registry import TARGET_TYPES
from kbnn_cli.help_screens import (
    CLUSTER,
    COLUMNS,
    FLEET,
    HELP,
    LEARNING,
    MODEL,
    NETWORK,
    OUTPUT,
    READING,
    show_all_help,
)

if TYPE_CHECKING:
    from kbnn.model.settings import Option


HelpAll = Annotated[
    bool,
    typer.Option(
        "--help-all",
        callback=show_all_help,
        is_eager=True,
        expose_value=False,
        help="Show every option and exit.",
        rich_help_panel=HELP,
    ),
]


def make_completer(
    words: Callable[[], Iterable[str]], many: bool = False
) -> Callable[[str], list[str]]:
    """What completes an option that takes fixed words, or `many` of them with commas between.

    The words are asked for when a shell completes: the tables that have them take time to load.
    """

    def complete_word(incomplete: str) -> list[str]:
        before, comma, last = incomplete.rpartition(",") if many else ("", "", incomplete)
        return [before + comma + word for word in words() if word.startswith(last)]

    return complete_word


def _on_error_words() -> Iterable[str]:
    from kbnn.workflows.options import ON_ERROR_CHOICES

    return ON_ERROR_CHOICES


def _interval_words() -> Iterable[str]:
    from kbnn.model.settings import INTERVAL_MODES

    return INTERVAL_MODES


def _engine_words() -> Iterable[str]:
    from kbnn.workflows.options import ENGINES

    return ENGINES


complete_on_error = make_completer(_on_error_words)


def integer_parser(option: str) -> Callable[[str], int]:
    """What reads the whole number of an option."""

    def parse_integer(text: str) -> int:
        try:
            return int(text)
        except ValueError:
            raise _usage_error(option, "takes a whole number", text) from None

    return parse_integer


def parse_seconds(text: str) -> float:
    """What `--checkpoint-every` takes."""
    try:
        return float(text)
    except ValueError:
        raise _usage_error("--checkpoint-every", "takes a number of seconds", text) from None


def share_parser(option: str) -> Callable[[str], float]:
    """What reads the share of an option: 0.9 or 90%."""

    def parse_share(text: str) -> float:
        try:
            return _share_value(str(text))
        except ValueError:
            raise _usage_error(option, "takes a share such as 0.9 or 90%", text) from None

    return parse_share


def parse_shares(text: str | None) -> tuple[float, ...]:
    """What `--quantiles` takes: 0.05,0.5,0.95 or 5%,50%,95%."""
    if text is None:
        return ()
    try:
        return tuple(_share_value(part) for part in text.split(","))
    except ValueError:
        raise _usage_error("--quantiles", "takes shares such as 0.05,0.5,0.95", text) from None


def _share_value(text: str) -> float:
    bare = text.strip()
    value = float(bare.removesuffix("%"))
    return value / 100.0 if bare.endswith("%") else value


def _usage_error(option: str, takes: str, text: str) -> Exception:
    from kbnn.errors import UsageError

    return UsageError(f"{option} {takes}, not '{text}'")


Sources = Annotated[
    list[str],
    typer.Argument(
        metavar="SOURCES",
        help="CSV, TSV, Parquet, Arrow or JSON lines (also .gz .zst .bz2), folders of Parquet, "
        "globs, or - for standard input.",
        show_default=False,
    ),
]
MaybeSources = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="SOURCES", help="As for train; none with --horizon.", show_default=False
    ),
]
Horizon = Annotated[
    int | None,
    typer.Option(
        "--horizon",
        metavar="STEPS",
        parser=integer_parser("--horizon"),
        help="So many steps ahead, each looking back to the one before (of models with lags).",
    ),
]
Model = Annotated[
    str,
    typer.Argument(metavar="MODEL", help="A model file; -m MODEL works too.", show_default=False),
]

Na = Annotated[
    list[str] | None,
    typer.Option(
        "--na",
        metavar="TEXT",
        help="One more spelling of a missing value; may be repeated.",
        rich_help_panel=READING,
    ),
]
Header = Annotated[
    bool | None,
    typer.Option(
        "--header/--no-header",
        help="Whether the first line names the columns; found out if not said.",
        rich_help_panel=READING,
        show_default=False,
    ),
]
Delimiter = Annotated[
    str | None,
    typer.Option(
        "--delimiter",
        metavar="CHAR",
        help=r"What separates the fields; found out if not said. \t is a tab.",
        rich_help_panel=READING,
    ),
]
Format = Annotated[
    str,
    typer.Option(
        "--format",
        metavar="FORMAT",
        autocompletion=make_completer(lambda: FORMATS),
        help=f"{', '.join(FORMATS[:-1])} or {FORMATS[-1]}.",
        rich_help_panel=READING,
    ),
]
OnError = Annotated[
    str,
    typer.Option(
        "--on-error",
        metavar="stop|skip",
        autocompletion=complete_on_error,
        help="What to do at a row that cannot be read.",
        rich_help_panel=READING,
    ),
]
BadRows = Annotated[
    str | None,
    typer.Option(
        "--bad-rows",
        metavar="FILE",
        help="Write the rows that could not be read to a CSV file: where, what and why.",
        rich_help_panel=READING,
    ),
]
Limit = Annotated[
    int | None,
    typer.Option(
        "--limit",
        metavar="N",
        parser=integer_parser("--limit"),
        help="Read at most N rows of each pass.",
        rich_help_panel=READING,
    ),
]
Interval = Annotated[
    float,
    typer.Option(
        "--interval",
        metavar="SHARE",
        parser=share_parser("--interval"),
        help="The probability that lower and upper enclose: 0.9 or 90%.",
        rich_help_panel=OUTPUT,
    ),
]
Intervals = Annotated[
    str | None,
    typer.Option(
        "--intervals",
        metavar="calibrated|model",
        autocompletion=make_completer(_interval_words),
        help="Edges as they were kept to their promise, or as the distribution has them; as the "
        "model was trained if not said.",
        rich_help_panel=OUTPUT,
    ),
]
Quantiles = Annotated[
    str | None,
    typer.Option(
        "--quantiles",
        metavar="SHARES",
        help="Further columns: 0.05,0.5,0.95 gives q05, q50 and q95.",
        rich_help_panel=OUTPUT,
    ),
]
Json = Annotated[
    bool,
    typer.Option(
        "--json", help="Print one JSON object on standard output.", rich_help_panel=OUTPUT
    ),
]
Quiet = Annotated[
    bool,
    typer.Option("-q", "--quiet", help="Say nothing but errors.", rich_help_panel=OUTPUT),
]

Force = Annotated[
    bool,
    typer.Option(
        "--force", help="Replace the new model's file if it exists.", rich_help_panel=OUTPUT
    ),
]


def parse_names(values: list[str] | None) -> tuple[str, ...]:
    """Column names from repeated options, each a list with commas; quotes protect a comma."""
    found: list[str] = []
    for row in csv.reader(values or [], skipinitialspace=True):
        found.extend(name.strip() for name in row if name.strip())
    return tuple(found)


def parse_engine(text: str) -> str:
    """Accept the former name of the local engine."""
    from kbnn.workflows.options import rename_former_engine

    return rename_former_engine(text)


Engine = Annotated[
    str,
    typer.Option(
        "--engine",
        metavar="local|dask",
        parser=parse_engine,
        autocompletion=make_completer(_engine_words),
        help="Where rows are learned and answered: here, or in the workers of a Dask cluster.",
        rich_help_panel=CLUSTER,
    ),
]
Cluster = Annotated[
    str,
    typer.Option(
        "--cluster",
        metavar="local:N|ADDRESS",
        help="With --engine dask: so many workers here, or those of a scheduler.",
        rich_help_panel=CLUSTER,
    ),
]


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


def _decimal_words() -> Iterable[str]:
    from kbnn.data.number_format import DECIMAL_MARKS

    return DECIMAL_MARKS


def _thousands_words() -> Iterable[str]:
    from kbnn.data.number_format import THOUSANDS_MARKS, format_mark

    return [
        format_mark(mark) for mark in THOUSANDS_MARKS if mark != "'"
    ]  # shells would take it for a quote


def _time_unit_words() -> Iterable[str]:
    from kbnn.data.timestamps import TIME_UNITS

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
Relearn = Annotated[
    bool,
    typer.Option(
        "--relearn",
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
Pooling = Annotated[
    bool,
    typer.Option(
        "--pooling/--no-pooling",
        help="Whether a new key begins from a model of all rows.",
        rich_help_panel=FLEET,
    ),
]
MaxOpenModels = Annotated[
    int | None,
    typer.Option(
        "--max-open-models",
        metavar="N",
        parser=integer_parser("--max-open-models"),
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
MaxPending = Annotated[
    int | None,
    typer.Option(
        "--max-pending",
        metavar="ROWS",
        parser=integer_parser("--max-pending"),
        help="With --id: rows that may wait, the oldest is given up; 10000 if not said.",
        rich_help_panel=COLUMNS,
    ),
]
Shuffle = Annotated[
    bool,
    typer.Option(
        "--shuffle",
        help="Mix the rows, in bounded memory; for files that are sorted.",
        rich_help_panel=LEARNING,
    ),
]
TestSplit = Annotated[
    float,
    typer.Option(
        "--test-split",
        metavar="SHARE",
        parser=share_parser("--test-split"),
        help="Hold out a share of the rows, 0.1 or 10%, never learn them, score them at the end.",
        rich_help_panel=LEARNING,
    ),
]
Epochs = Annotated[
    int,
    typer.Option(
        "--epochs",
        metavar="N",
        parser=integer_parser("--epochs"),
        help="Passes over the sources.",
        rich_help_panel=LEARNING,
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
    """The settings by the names of their options, as `kbnn.workflows.options.stated` takes them."""
    return {name: text for name, text in stated.items() if text is not None}


def _make_parameter(option: Option) -> Parameter:
    from kbnn.model.settings import get_keyword

    many = option.name == "activation"
    shown = typer.Option(
        option.flag,
        metavar=option.metavar,
        autocompletion=make_completer(lambda: option.words, many) if option.words else None,
        help=option.help,
        rich_help_panel=NETWORK,
    )
    kind = Annotated[str | None, shown]
    return Parameter(
        get_keyword(option.flag), Parameter.KEYWORD_ONLY, default=None, annotation=kind
    )
