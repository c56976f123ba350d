"""The help screens: arguments by name, options in groups, plain text for any terminal."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Mapping
from typing import Any

from typer.core import TyperCommand


class Command(TyperCommand):
    """A command whose help groups the options as they are declared (`rich_help_panel`)."""

    former_names: Mapping[str, str] = {}
    """Spellings of options that are accepted but not shown, with the present ones."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the command line; `-m MODEL` may stand for a first argument MODEL."""
        if self.params and self.params[0].name == "model":
            args = self._move_model_first(args)
        return list(super().parse_args(ctx, args))

    def make_parser(self, ctx: Any) -> Any:
        """Make the parser, which also knows the former spellings of options."""
        parser = super().make_parser(ctx)
        for option in self.params:
            former = (
                self._list_former_names(option.opts),
                self._list_former_names(option.secondary_opts),
            )
            if former[0]:
                alias = copy.copy(option)
                alias.opts, alias.secondary_opts = former
                alias.add_to_parser(parser, ctx)
        return parser

    def _list_former_names(self, names: list[str]) -> list[str]:
        return [old for old, new in self.former_names.items() if new in names]

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

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """The words after the command's name."""
        return [piece.strip("{}").replace("}", "") for piece in super().collect_usage_pieces(ctx)]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write arguments and options, group by group."""
        groups: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if param.param_type_name == "argument":
                text = record[1] if record else ""
                groups.setdefault("Arguments", []).append((str(param.metavar), text))
            elif record:
                title = getattr(param, "rich_help_panel", None) or "Options"
                groups.setdefault(title, []).append(record)
        for title, records in groups.items():
            with formatter.section(title):
                formatter.write_dl(records)
