"""The page of commands, made from the commands themselves.

    python -m docs.commands

writes `docs/reference/commands.md`; a test fails when the page is not what this makes.
"""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

from kbnn_cli.app import COMMANDS, load_command

PAGE = Path(__file__).parent / "reference" / "commands.md"

HEAD = """# Commands

`kbnn COMMAND --help` or `kbnn help COMMAND` shows the same on a terminal; `kbnn -V` (`--version`)
says which version and engine serve, and `python -m kbnn` is `kbnn`. This page is made from the
commands by `python -m docs.commands`.
"""


def made() -> str:
    """The whole page."""
    return "\n".join([HEAD, *(command_page(name) for name in COMMANDS)])


def command_page(name: str) -> str:
    """One command: what it does, its arguments and options, its examples."""
    command = load_command(name)
    usage = " ".join([f"kbnn {name}", *_arguments(command)])
    parts = [f"## kbnn {name}\n", f"{inspect.cleandoc(command.help or '')}\n"]
    parts.append(f"```text\n{usage} [OPTIONS]\n```\n")
    for title, rows in _groups(command).items():
        parts.append(f"### {title} of {name}\n")
        parts.append("| | | |\n|---|---|---|")
        parts += [f"| {' | '.join(map(_cell, row))} |" for row in rows]
        parts.append("")
    examples = (command.epilog or "").replace("\b", "").strip()
    parts.append(f"```text\n{examples}\n```\n")
    return "\n".join(parts)


def _arguments(command: Any) -> list[str]:
    return [p.metavar or p.name for p in command.params if p.param_type_name == "argument"]


def _groups(command: Any) -> dict[str, list[tuple[str, str, str]]]:
    """Rows of (what is typed, what it does, default), by group."""
    found: dict[str, list[tuple[str, str, str]]] = {}
    for one in command.params:
        if one.name == "help":
            continue
        if one.param_type_name == "argument":
            row = (f"`{one.metavar}`", one.help or "", "")
            found.setdefault("Arguments", []).append(row)
            continue
        names = ", ".join(f"`{name}`" for name in [*one.opts, *one.secondary_opts])
        value = "" if one.is_flag else f" `{one.metavar}`"
        title = getattr(one, "rich_help_panel", None) or "Options"
        found.setdefault(title, []).append((names + value, one.help or "", _default(one)))
    return found


def _default(option: Any) -> str:
    value = option.default
    if option.is_flag or value in (None, ()) or callable(value):
        return ""
    return f"`{value}`"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(made(), encoding="utf-8")
