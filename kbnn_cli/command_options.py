"""Options and arguments of the commands, each declared once.

The options of a model's settings are declared in `kbnn.model.settings`; `with_settings` adds them
to `train`. Functions here parse the values that need more than a type.
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
        allow_from_autoenv=False,
        help="Show every option and exit.",
        rich_help_panel=HELP,
    ),
]


def make_completer(
    words: Callable[[], Iterable[str]], many: bool = False
) -> Callable[[str], list[str]]:
    """Make the shell completion of an option that takes fixed words, or `many` joined by commas.

    `words` is called only when a shell completes, since the tables of words take time to import.
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
    """Make the parser of an option that takes a whole number."""

    def parse_integer(text: str) -> int:
        try:
            return int(text)
        except ValueError:
            raise _usage_error(option, "takes a whole number", text) from None

    return parse_integer


def parse_seconds(text: str) -> float:
    """Parse the value of `--checkpoint-every`."""
    try:
        return float(text)
    except ValueError:
        raise _usage_error("--checkpoint-every", "takes a number of seconds", text) from None


def share_parser(option: str) -> Callable[[str], float]:
    """Make the parser of an option that takes a share: 0.9 or 90%."""

    def parse_share(text: str) -> float:
        try:
            return _share_value(str(text))
        except ValueError:
            raise _usage_error(option, "takes a share such as 0.9 or 90%", text) from None

    return parse_share


def parse_shares(text: str | None) -> tuple[float, ...]:
    """Parse the value of `--quantiles`: 0.05,0.5,0.95 or 5%,50%,95%."""
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
        help="Read CSV, TSV, Parquet, Arrow or JSON lines; folders, globs, or - for stdin.",
        show_default=False,
    ),
]
MaybeSources = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="SOURCES",
        help="Read these sources, as for train; optional with --horizon.",
        show_default=False,
    ),
]
Horizon = Annotated[
    int | None,
    typer.Option(
        "--horizon",
        metavar="STEPS",
        parser=integer_parser("--horizon"),
        help="Forecast this many steps ahead of the last row (models with lags).",
    ),
]
Model = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="Read this model file or fleet folder; -m MODEL works too.",
        show_default=False,
    ),
]

Na = Annotated[
    list[str] | None,
    typer.Option(
        "--na",
        metavar="TEXT",
        help="Treat this text as a missing value too (repeatable).",
        rich_help_panel=READING,
    ),
]
Header = Annotated[
    bool | None,
    typer.Option(
        "--header/--no-header",
        help="Read column names from the first line, or treat it as data.",
        show_default="detected",
        rich_help_panel=READING,
    ),
]
Delimiter = Annotated[
    str | None,
    typer.Option(
        "--delimiter",
        metavar="CHAR",
        help=r"Separate fields by this character; \t is a tab.",
        show_default="detected",
        rich_help_panel=READING,
    ),
]
Format = Annotated[
    str,
    typer.Option(
        "--format",
        metavar="FORMAT",
        autocompletion=make_completer(lambda: FORMATS),
        help=f"Set the format: {', '.join(FORMATS[:-1])} or {FORMATS[-1]}.",
        rich_help_panel=READING,
    ),
]
OnError = Annotated[
    str,
    typer.Option(
        "--on-error",
        metavar="stop|skip",
        autocompletion=complete_on_error,
        help="Stop at a row that cannot be read, or skip it.",
        rich_help_panel=READING,
    ),
]
BadRows = Annotated[
    str | None,
    typer.Option(
        "--bad-rows",
        metavar="FILE",
        help="Write rows that cannot be read to a CSV file, with place and reason.",
        rich_help_panel=READING,
    ),
]
Limit = Annotated[
    int | None,
    typer.Option(
        "--limit",
        metavar="N",
        parser=integer_parser("--limit"),
        help="Read at most N rows per pass.",
        show_default="all",
        rich_help_panel=READING,
    ),
]
Interval = Annotated[
    float,
    typer.Option(
        "--interval",
        metavar="SHARE",
        parser=share_parser("--interval"),
        help="Set the probability that lower and upper enclose: 0.9 or 90%.",
        rich_help_panel=OUTPUT,
    ),
]
Intervals = Annotated[
    str | None,
    typer.Option(
        "--intervals",
        metavar="calibrated|model",
        autocompletion=make_completer(_interval_words),
        help="Use intervals calibrated on the stream, or those of the model alone.",
        show_default="as trained",
        rich_help_panel=OUTPUT,
    ),
]
Quantiles = Annotated[
    str | None,
    typer.Option(
        "--quantiles",
        metavar="SHARES",
        help="Add quantile columns: 0.05,0.5,0.95 adds q05, q50 and q95.",
        rich_help_panel=OUTPUT,
    ),
]
Json = Annotated[
    bool,
    typer.Option(
        "--json", help="Print one JSON object to standard output.", rich_help_panel=OUTPUT
    ),
]
Quiet = Annotated[
    bool,
    typer.Option("-q", "--quiet", help="Print nothing but errors.", rich_help_panel=OUTPUT),
]

Force = Annotated[
    bool,
    typer.Option("--force", help="Replace the output file if it exists.", rich_help_panel=OUTPUT),
]


def parse_names(values: list[str] | None) -> tuple[str, ...]:
    """Return column names from repeated options, each a list with commas; quotes keep a comma."""
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
        help="Run in this process, or on the workers of a Dask cluster.",
        rich_help_panel=CLUSTER,
    ),
]
Cluster = Annotated[
    str,
    typer.Option(
        "--cluster",
        metavar="local:N|ADDRESS",
        help="Start N local workers, or connect to a Dask scheduler (--engine dask).",
        rich_help_panel=CLUSTER,
    ),
]


Report = Annotated[
    str | None,
    typer.Option(
        "--report",
        metavar="FILE.html",
        help="Write an HTML report with all metrics and figures, in a single file.",
        rich_help_panel=OUTPUT,
    ),
]
Plot = Annotated[
    str | None,
    typer.Option(
        "--plot",
        metavar="FILE.png|svg|pdf",
        help="Write the main figure as an image.",
        rich_help_panel=OUTPUT,
    ),
]
NoPlots = Annotated[
    bool,
    typer.Option(
        "--no-plots",
        help="Print no charts; charts are printed on terminals only.",
        rich_help_panel=OUTPUT,
    ),
]


def _decimal_words() -> Iterable[str]:
    from kbnn.data.number_format import DECIMAL_MARKS

    return DECIMAL_MARKS


def _thousands_words() -> Iterable[str]:
    from kbnn.data.number_format import THOUSANDS_MARKS, format_mark

    # Shells would read an apostrophe as a quote.
    return [format_mark(mark) for mark in THOUSANDS_MARKS if mark != "'"]


def _time_unit_words() -> Iterable[str]:
    from kbnn.data.timestamps import TIME_UNITS

    return TIME_UNITS


ModelFile = Annotated[
    str,
    typer.Option(
        "-m",
        "--model",
        metavar="FILE",
        help="Create this model file, or continue training it.",
        show_default="model.npz; with --key: fleet",
        rich_help_panel=MODEL,
    ),
]
Fresh = Annotated[
    bool,
    typer.Option(
        "--fresh", help="Start a new model, even if the file holds one.", rich_help_panel=MODEL
    ),
]
Resume = Annotated[
    bool,
    typer.Option(
        "--resume",
        help="Continue an interrupted run on the same sources, or explain why not.",
        rich_help_panel=MODEL,
    ),
]
Relearn = Annotated[
    bool,
    typer.Option(
        "--relearn",
        help="Learn all rows from the first, even if a run on them was interrupted.",
        rich_help_panel=MODEL,
    ),
]
CheckpointEvery = Annotated[
    float,
    typer.Option(
        "--checkpoint-every",
        metavar="SECONDS",
        parser=parse_seconds,
        help="Save the model this often during training.",
        rich_help_panel=MODEL,
    ),
]
Key = Annotated[
    list[str] | None,
    typer.Option(
        "--key",
        metavar="COLUMNS",
        help="Train one model per value of these columns: a fleet, in a folder.",
        rich_help_panel=FLEET,
    ),
]
Pooling = Annotated[
    bool,
    typer.Option(
        "--pooling/--no-pooling",
        help="Start models of new keys from a model of all rows, or from scratch.",
        rich_help_panel=FLEET,
    ),
]
MaxOpenModels = Annotated[
    int | None,
    typer.Option(
        "--max-open-models",
        metavar="N",
        parser=integer_parser("--max-open-models"),
        help="Keep at most N models of a fleet in memory; the rest stay on disk.",
        show_default="10000",
        rich_help_panel=FLEET,
    ),
]
Target = Annotated[
    list[str] | None,
    typer.Option(
        "--target",
        metavar="COLUMNS",
        help="Predict these columns: price, or several: a,b.",
        show_default="the last column",
        rich_help_panel=COLUMNS,
    ),
]
Features = Annotated[
    list[str] | None,
    typer.Option(
        "--features",
        metavar="COLUMNS",
        help="Learn from these columns only.",
        show_default="all other columns",
        rich_help_panel=COLUMNS,
    ),
]
Ignore = Annotated[
    list[str] | None,
    typer.Option(
        "--ignore", metavar="COLUMNS", help="Leave these columns out.", rich_help_panel=COLUMNS
    ),
]
Weight = Annotated[
    str | None,
    typer.Option(
        "--weight",
        metavar="COLUMN",
        help="Weight each row by this column.",
        rich_help_panel=COLUMNS,
    ),
]
InputSd = Annotated[
    bool,
    typer.Option(
        "--input-sd",
        help="Use column x_sd as the standard deviation of column x.",
        rich_help_panel=COLUMNS,
    ),
]
Categorical = Annotated[
    list[str] | None,
    typer.Option(
        "--categorical",
        metavar="COLUMNS",
        help="Treat these columns as categories, even if they look numeric: zip,month.",
        rich_help_panel=COLUMNS,
    ),
]
Numeric = Annotated[
    list[str] | None,
    typer.Option(
        "--numeric",
        metavar="COLUMNS",
        help="Treat these columns as numbers, even if some values look like text.",
        rich_help_panel=COLUMNS,
    ),
]
Hash = Annotated[
    list[str] | None,
    typer.Option(
        "--hash",
        metavar="COLUMN:N",
        help="Hash a column with many categories into N inputs: device:32.",
        rich_help_panel=COLUMNS,
    ),
]
Decimal = Annotated[
    str | None,
    typer.Option(
        "--decimal",
        metavar="MARK",
        autocompletion=make_completer(_decimal_words),
        help="Set the decimal mark of numbers: . or a comma.",
        show_default="detected",
        rich_help_panel=READING,
    ),
]
Thousands = Annotated[
    str | None,
    typer.Option(
        "--thousands",
        metavar="MARK",
        autocompletion=make_completer(_thousands_words),
        help="Set the thousands mark of numbers: , . ' or space.",
        show_default="detected",
        rich_help_panel=READING,
    ),
]
Task = Annotated[
    str,
    typer.Option(
        "--task",
        metavar="TASK",
        autocompletion=make_completer(lambda: ("auto", *TARGET_TYPES)),
        help=f"Set the target type: auto, {', '.join(TARGET_TYPES)}.",
        rich_help_panel=COLUMNS,
    ),
]
Time = Annotated[
    str | None,
    typer.Option(
        "--time",
        metavar="COLUMN",
        help="Use this column as the time, and learn from its calendar.",
        show_default="the first column of timestamps",
        rich_help_panel=COLUMNS,
    ),
]
TimeUnit = Annotated[
    str,
    typer.Option(
        "--time-unit",
        metavar="UNIT",
        autocompletion=make_completer(_time_unit_words),
        help="Set the unit of numeric times since 1970: s, ms, us, ns; or year.",
        rich_help_panel=COLUMNS,
    ),
]
Lags = Annotated[
    str | None,
    typer.Option(
        "--lags",
        metavar="LAGS",
        help="Learn from past values: 1,2,24 rows; 1h,7d; temp:1,2;load:24; or off.",
        show_default="detected",
        rich_help_panel=COLUMNS,
    ),
]
KnownAhead = Annotated[
    list[str] | None,
    typer.Option(
        "--known-ahead",
        metavar="COLUMNS",
        help="Name inputs that are known when forecasts are made, or none.",
        rich_help_panel=COLUMNS,
    ),
]
Id = Annotated[
    str | None,
    typer.Option(
        "--id",
        metavar="COLUMN",
        help="Match late labels by this column: rows without a target wait for it.",
        rich_help_panel=COLUMNS,
    ),
]
MaxPending = Annotated[
    int | None,
    typer.Option(
        "--max-pending",
        metavar="ROWS",
        parser=integer_parser("--max-pending"),
        help="Keep at most this many rows waiting for a label (--id); evict the oldest.",
        show_default="10000",
        rich_help_panel=COLUMNS,
    ),
]
Shuffle = Annotated[
    bool,
    typer.Option(
        "--shuffle",
        help="Shuffle the rows in bounded memory, for sorted files.",
        rich_help_panel=LEARNING,
    ),
]
TestSplit = Annotated[
    float,
    typer.Option(
        "--test-split",
        metavar="SHARE",
        parser=share_parser("--test-split"),
        help="Hold out this share of the rows, 0.1 or 10%, for a final test.",
        rich_help_panel=LEARNING,
    ),
]
Epochs = Annotated[
    int,
    typer.Option(
        "--epochs",
        metavar="N",
        parser=integer_parser("--epochs"),
        help="Make N passes over the sources.",
        rich_help_panel=LEARNING,
    ),
]
Predictions = Annotated[
    str | None,
    typer.Option(
        "--predictions",
        metavar="FILE",
        help="Write each prediction made before learning the row; - is stdout.",
        rich_help_panel=OUTPUT,
    ),
]
Log = Annotated[
    str | None,
    typer.Option(
        "--log",
        metavar="FILE.jsonl",
        help="Append the history of the run, one JSON object per line.",
        rich_help_panel=OUTPUT,
    ),
]
DryRun = Annotated[
    bool,
    typer.Option(
        "--dry-run",
        help="Show the detected columns and exit.",
        rich_help_panel=OUTPUT,
    ),
]


def with_settings(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command an option in place of `**settings` for each of a model's settings.

    `kbnn.model.settings.OPTIONS` is the only list of settings.
    """
    from kbnn.model.settings import OPTIONS

    declared = list(signature(command, eval_str=True).parameters.values())
    parameters = [one for one in declared if one.kind is not Parameter.VAR_KEYWORD]
    parameters += [_make_parameter(option) for option in OPTIONS]
    command.__signature__ = Signature(parameters)  # type: ignore[attr-defined]  # what typer reads
    command.__annotations__ = {one.name: one.annotation for one in parameters}
    return command


def select_settings(settings: dict[str, str | None]) -> Any:
    """Return the settings that were given, as `build_train_options` takes them."""
    return {name: text for name, text in settings.items() if text is not None}


def _make_parameter(option: Option) -> Parameter:
    from kbnn.model.settings import get_keyword

    many = option.name == "activation"
    shown = typer.Option(
        option.flag,
        metavar=option.metavar,
        autocompletion=make_completer(lambda: option.words, many) if option.words else None,
        help=option.help,
        show_default=option.describe_default(),
        rich_help_panel=NETWORK,
    )
    kind = Annotated[str | None, shown]
    return Parameter(
        get_keyword(option.flag), Parameter.KEYWORD_ONLY, default=None, annotation=kind
    )
