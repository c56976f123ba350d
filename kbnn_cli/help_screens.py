"""Command lines and help screens: former spellings, options by group, environment variables.

Help is plain text for any terminal. `--help` lists the options that a command marks as common,
`--help-all` every option. Each option can also be set by an environment variable.
"""

from __future__ import annotations

import copy
import itertools
from typing import Any, Final

import typer
from typer.core import TyperCommand

from kbnn.option_table import (
    ARGUMENTS,
    FORMER_FLAGS,
    GENERAL,
    GROUPS,
    HELP,
    LONG_COMMANDS,
    list_options,
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
