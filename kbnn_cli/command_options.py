"""Turn the declared options of a command into those of the command line.

`kbnn.option_table` declares every option; `add_command` gives a command those that are declared
for it, parsed, by their names.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Mapping, Sequence
from inspect import Parameter, Signature
from typing import Annotated, Any

import typer

from kbnn.option_table import ARGUMENTS, HELP, Option, list_options, parse_options
from kbnn_cli.help_screens import Command, show_all_help

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


def add_command(
    app: typer.Typer, epilog: str
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add a function to the command line as the command of its name.

    The function receives the parsed value of every option that `kbnn.option_table` declares for
    the command, None if it was not given.
    """

    def add_function(function: Callable[..., None]) -> Callable[..., None]:
        def run_command(**given: Any) -> None:
            function(**parse_command_line(function.__name__, given))

        parameters = [_make_parameter(option) for option in _list_typed(function.__name__)]
        parameters.append(
            Parameter("help_all", Parameter.KEYWORD_ONLY, default=False, annotation=HelpAll)
        )
        run_command.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
        run_command.__annotations__ = {one.name: one.annotation for one in parameters}
        run_command.__doc__ = function.__doc__
        app.command(function.__name__, cls=Command, epilog=epilog)(run_command)
        return function

    return add_function


def parse_command_line(command: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Parse the texts of a command line; None for what was not given and has no default."""
    options = _list_typed(command)
    split = {o.name: split_names(given[o.name] or ()) for o in options if o.splits}
    values = parse_options(command, {**given, **split})
    return {option.name: values.get(option.name) for option in options}


def _list_typed(command: str) -> list[Option]:
    return [option for option in list_options(command) if not option.python_only]


def split_names(values: Iterable[str]) -> tuple[str, ...] | None:
    """Return column names from repeated options, each a list with commas; quotes keep a comma."""
    rows = csv.reader(values, skipinitialspace=True)
    return tuple(name.strip() for row in rows for name in row if name.strip()) or None


def make_completer(
    words: Callable[[], Iterable[str]], many: bool = False
) -> Callable[[str], list[str]]:
    """Make the shell completion of an option that takes fixed words, or `many` joined by commas."""

    def complete_word(incomplete: str) -> list[str]:
        before, comma, last = incomplete.rpartition(",") if many else ("", "", incomplete)
        return [before + comma + word for word in words() if word.startswith(last)]

    return complete_word


def _make_parameter(option: Option) -> Parameter:
    """Declare an option or argument as Typer reads it; its text is parsed later."""
    default_text = option.describe_default() if option.metavar else option.shown_default
    kind: Any = str if option.metavar else bool
    if option.repeats or option.splits:
        kind = list[str]
    if option.group == ARGUMENTS:
        declared = typer.Argument(metavar=option.metavar, help=option.help, show_default=False)
    else:
        declared = typer.Option(
            *_list_flags(option),
            metavar=option.metavar or None,
            help=option.help,
            show_default=default_text or True,
            autocompletion=make_completer(option.list_words, option.name == "activation")
            if option.words
            else None,
            rich_help_panel=option.group,
        )
    default = Parameter.empty if option.required else None if option.metavar else option.default
    annotation: Any = Annotated[kind if option.required else kind | None, declared]
    return Parameter(option.name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _list_flags(option: Option) -> Sequence[str]:
    if option.negated:
        return [f"{option.flag}/--no-{option.flag[2:]}"]
    return [*([f"-{option.letter}"] if option.letter else []), option.flag]
