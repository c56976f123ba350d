"""The page of commands and the types of keywords, made from the table of options.

    python -m docs.commands

writes `docs/reference/commands.md` and `kbnn/api/keywords.py`; a test fails when they are not what
this makes.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from kbnn.api.estimator_parameters import find_parameters
from kbnn.option_table import (
    COLUMNS,
    FORMER_FLAGS,
    GROUPS,
    LEARNING,
    NETWORK,
    OUTPUT,
    READING,
    list_keywords,
)
from kbnn_cli.app import COMMANDS, load_command
from kbnn_cli.command_options import find_group

PAGE = Path(__file__).parent / "reference" / "commands.md"
KEYWORDS = Path(__file__).parents[1] / "kbnn" / "api" / "keywords.py"

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

ESTIMATORS = """## Parameters of the estimators

The estimators for scikit-learn and river take these options as parameters. Those for scikit-learn
have `random_state` in place of `seed`, and `epochs` and `shuffle` for `fit`. `lags` and `task` are
parameters of the regressor for river.

| | | default |
|---|---|---|
"""

FORMER = """## Former spellings

These spellings still work; help and messages show the present ones.

| former | present |
|---|---|
"""


def made() -> str:
    """The whole page."""
    commands = [command_page(name) for name in COMMANDS]
    return "\n".join([HEAD, *commands, estimator_page(), former_page()])


def estimator_page() -> str:
    """The parameters of the estimators for scikit-learn and river."""
    found = find_parameters("lags", "task")
    rows = [(f"`{name}`", one.description, f"`{one.default!r}`") for name, one in found.items()]
    return ESTIMATORS + "".join(f"| {' | '.join(map(_cell, row))} |\n" for row in rows)


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


KEYWORDS_HEAD = '''"""Types of the keywords of Python calls, for type checkers and editors.

`python -m docs.commands` generates this module from `kbnn.option_table`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from kbnn.option_table import ColumnNames
'''


def build_keywords() -> str:
    """Return the source of the module of keywords."""
    train, evaluate = list_keywords("train"), list_keywords("evaluate")
    read = {name for name in evaluate if evaluate[name].group == READING}
    learn = {name for name, option in train.items() if option.group in (LEARNING, OUTPUT)}
    learn |= {"intervals"}
    columns = {name for name, option in train.items() if option.group in (COLUMNS, READING)}
    network = {name for name, option in train.items() if option.group == NETWORK} - learn
    columns -= {*read, "target"}
    run = set(train) - read - learn - columns - network - {"target"}
    shown = {"interval", "quantiles", "decompose", "surprise"}
    return "".join(
        [
            KEYWORDS_HEAD,
            _write_type("ReadKeywords", "TypedDict", "Options of calls that read rows.", read),
            _write_type("LearnKeywords", "ReadKeywords", "Options of `Model.learn`.", learn),
            _write_type("ColumnKeywords", "TypedDict", "The columns of a model.", columns),
            _write_type("NetworkKeywords", "TypedDict", "The network of a model.", network),
            _write_type("ModelKeywords", "ColumnKeywords, NetworkKeywords", "Options of `Model`."),
            _write_type(
                "TrainKeywords", "LearnKeywords, ModelKeywords", "Options of `kbnn.train`.", run
            ),
            _write_type("StepKeywords", "ModelKeywords, ReadKeywords", "Options of `kbnn.step`."),
            _write_type("PredictKeywords", "ReadKeywords", "Options of `Model.predict`.", shown),
        ]
    )


def _write_type(name: str, bases: str, doc: str, keywords: Iterable[str] = ()) -> str:
    known = {**list_keywords("predict"), **list_keywords()}
    lines = [f"\n\nclass {name}({bases}, total=False):", f'    """{doc}"""', ""]
    for word, option in known.items():
        if word in keywords:
            lines.append(f"    {word}: {option.python_type} | None")
            if option.former:
                lines.append(f"    {option.former}: {option.python_type} | None  # former name")
    return "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    PAGE.write_text(made(), encoding="utf-8")
    KEYWORDS.write_text(build_keywords(), encoding="utf-8")
