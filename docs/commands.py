"""The page of commands, made from the commands themselves.

    python -m docs.commands

writes `docs/reference/commands.md`; a test fails when the page is not what this makes.
"""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

from kbnn.model.settings import FORMER_FLAGS
from kbnn_cli.app import COMMANDS, load_command
from kbnn_cli.help_screens import GROUPS, find_group

PAGE = Path(__file__).parent / "reference" / "commands.md"

HEAD = """# Commands

`kbnn COMMAND --help-all` shows the same on a terminal. `kbnn COMMAND --help` and
`kbnn help COMMAND` leave out the options of `train` that few people need. `kbnn -V` (`--version`)
shows the version and the engine; `python -m kbnn` is the same as `kbnn`. `python -m docs.commands`
generates this page.

An environment variable `KBNN_COMMAND_OPTION` sets an option of a command unless the command line
gives it: `KBNN_TRAIN_LAYERS=20` is `kbnn train --layers 20`, `KBNN_TRAIN_SHUFFLE=1` is
`kbnn train --shuffle`, and `KBNN_TRAIN_POOLING=0` is `--no-pooling`. Options that can be repeated
take one value per line. `KBNN_ENGINE`, which selects the kernel, belongs to no option.
"""

FORMER = """## Former spellings

These spellings still work; help and messages show the present ones.

| former | present |
|---|---|
"""


def made() -> str:
    """The whole page."""
    return "\n".join([HEAD, *(command_page(name) for name in COMMANDS), former_page()])


def former_page() -> str:
    """Former spellings of options and values, with the present ones."""
    values = {
        "--engine here": "--engine local",
        "--intervals tracked": "--intervals calibrated",
        "--intervals stated": "--intervals model",
    }
    return FORMER + "".join(
        f"| `{old}` | `{new}` |\n" for old, new in {**FORMER_FLAGS, **values}.items()
    )


def command_page(name: str) -> str:
    """One command: what it does, its arguments and options, its examples."""
    command = load_command(name)
    usage = " ".join([f"kbnn {name}", *_arguments(command)])
    parts = [f"## kbnn {name}\n", f"{inspect.cleandoc(command.help or '')}\n"]
    parts.append(f"```text\n{usage} [OPTIONS]\n```\n")
    for title, rows in _groups(command).items():
        parts.append(f"### {title} of {name}\n")
        parts.append("| | | default |\n|---|---|---|")
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
        if one.name in ("help", "help_all"):
            continue
        if one.param_type_name == "argument":
            row = (f"`{one.metavar}`", one.help or "", "")
            found.setdefault("Arguments", []).append(row)
            continue
        names = ", ".join(f"`{name}`" for name in [*one.opts, *one.secondary_opts])
        value = "" if one.is_flag else f" `{one.metavar}`"
        found.setdefault(find_group(one), []).append((names + value, one.help or "", _default(one)))
    return {title: found[title] for title in GROUPS if title in found}


def _default(option: Any) -> str:
    if isinstance(option.show_default, str):
        return option.show_default
    value = option.default
    if option.is_flag and option.secondary_opts and value is not None:
        return f"`{(option.opts if value else option.secondary_opts)[0]}`"
    if option.is_flag or value in (None, ()) or callable(value):
        return ""
    return f"`{value}`"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(made(), encoding="utf-8")
