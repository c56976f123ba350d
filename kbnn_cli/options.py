"""Options and arguments that several commands share, each declared once."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable
from typing import Annotated

import typer

from kbnn.stream.formats import FORMATS

COLUMNS = "Columns"
READING = "Reading"
CLUSTER = "Cluster"
OUTPUT = "Output"


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
    from kbnn.run.choices import ON_ERROR_CHOICES

    return ON_ERROR_CHOICES


def _interval_words() -> Iterable[str]:
    from kbnn.model.settings import INTERVALS

    return INTERVALS


def _engine_words() -> Iterable[str]:
    from kbnn.run.trainoptions import ENGINES

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
        metavar="tracked|stated",
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


Engine = Annotated[
    str,
    typer.Option(
        "--engine",
        metavar="here|dask",
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
