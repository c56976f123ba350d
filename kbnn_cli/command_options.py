"""The commands' options on the command line: parsing, help screens, completion, environment.

`kbnn.option_table` declares every option; `add_command` gives a command those that are declared
for it, parsed, by their names. Help is plain text for any terminal: `--help` lists the common
options of a long command, `--help-all` every option. Each option can also be set by an environment
variable.
"""

from __future__ import annotations

import copy
import csv
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from inspect import Parameter, Signature
from typing import Annotated, Any, Final

import typer
from typer.core import TyperCommand

from kbnn.option_table import (
    ARGUMENTS,
    FORMER_FLAGS,
    GENERAL,
    GROUPS,
    HELP,
    LONG_COMMANDS,
    Option,
    list_options,
    parse_options,
)

_SHOWS_ALL: Final = "kbnn.help_all"


def show_all_help(ctx: typer.Context, wanted: bool) -> None:
    """Print the help with every option, and exit."""
    if wanted and not ctx.resilient_parsing:
        ctx.meta[_SHOWS_ALL] = True
        print(ctx.get_help())
        raise typer.Exit


class Command(TyperCommand):
    """A command with former spellings, grouped help and environment variables."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the command line; `-m MODEL` may stand for a first argument MODEL."""
        ctx.auto_envvar_prefix = get_environment_prefix(self)
        options: list[Any] = self.params
        for option in options:
            option.envvar_list_splitter = "\n"  # names of columns may contain spaces
            option.show_envvar = False  # one line describes them all
        if self.params and self.params[0].name == "model":
            args = self._move_model_first(args)
        return list(super().parse_args(ctx, args))

    def make_parser(self, ctx: Any) -> Any:
        """Make the parser, which also knows the former spellings of options."""
        parser = super().make_parser(ctx)
        for option in self.params:
            former = _list_former_flags(option.opts)
            if former:
                alias = copy.copy(option)
                alias.opts = former
                alias.secondary_opts = _list_former_flags(option.secondary_opts)
                alias.add_to_parser(parser, ctx)
        return parser

    def _move_model_first(self, args: list[str]) -> list[str]:
        with_value = {
            name
            for option in self.params
            if not getattr(option, "is_flag", True)
            for name in option.opts
        }
        model: list[str] = []
        rest: list[str] = []
        words = iter(args)
        for word in words:
            if word == "--":
                rest += [word, *words]
            elif word.startswith("--model="):
                model = [word.partition("=")[2]]
            elif word in ("-m", "--model"):
                model = list(itertools.islice(words, 1))
            else:
                rest += [word, *itertools.islice(words, int(word in with_value))]
        return model + rest

    def get_help_option(self, ctx: Any) -> Any:
        """Return the help option, which no environment variable sets."""
        option = super().get_help_option(ctx)
        if option is not None:
            option.allow_from_autoenv = False
        return option

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the words after the command's name."""
        return [piece.strip("{}").replace("}", "") for piece in super().collect_usage_pieces(ctx)]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write arguments and options, group by group."""
        groups: dict[str, list[tuple[str, str]]] = {name: [] for name in GROUPS}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if param.param_type_name == "argument":
                text = record[1] if record else ""
                groups[ARGUMENTS].append((str(param.metavar), text))
            elif record and self._is_shown(ctx, param):
                groups[find_group(param)].append((record[0], _unwrap_default(param, record[1])))
        for title, records in groups.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)
        if self.name != "help":  # which has no options of its own
            with formatter.section("Environment"):
                formatter.write_dl([describe_environment(self)])

    def _is_shown(self, ctx: Any, option: Any) -> bool:
        if ctx.meta.get(_SHOWS_ALL) or self.name not in LONG_COMMANDS or find_group(option) == HELP:
            return True
        return any(one.common for one in list_options(self.name) if one.name == option.name)


def _list_former_flags(flags: list[str]) -> list[str]:
    return [old for old, new in FORMER_FLAGS.items() if new in flags]


def _unwrap_default(option: Any, text: str) -> str:
    """Return the help text without the parentheses that click puts around a described default."""
    described = option.show_default
    if not isinstance(described, str):
        return text
    return text.replace(f"default: ({described})", f"default: {described}")


def get_environment_prefix(command: Any) -> str:
    """Return how the environment variables of a command begin."""
    return f"KBNN_{command.name.upper()}"


def describe_environment(command: Any) -> tuple[str, str]:
    """Return the scheme of a command's environment variables, and an example."""
    names = [one.name for one in command.params if one.param_type_name == "option"]
    example, value = next(
        (pair for pair in (("layers", "20"), ("interval", "0.8")) if pair[0] in names),
        ("json", "1"),
    )
    prefix = get_environment_prefix(command)
    typed = f"--{example}" if value == "1" else f"--{example} {value}"
    text = f"Set an option, unless it is given: {prefix}_{example.upper()}={value} is {typed}."
    return f"{prefix}_OPTION", text


def find_group(option: Any) -> str:
    """Return the title of the group to which an option belongs."""
    if option.name == "help":
        return HELP
    return getattr(option, "rich_help_panel", None) or GENERAL


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
