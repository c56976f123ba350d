"""Real tables as people export them: each file beside the plain spelling of the same table.

A file may be read to the same values, read otherwise in words that name the column, or refused in
words. `verdict` compares; `Verdict.silent` lists what was read otherwise without a word.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping
from datetime import date
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from kbnn.data.schema import Schema
from tests.streams import Seen, look
from tests.wild_sets import PACKAGES, table

Spell = Callable[[Any], str]
_NONE: Mapping[str, Any] = MappingProxyType({})


class File(NamedTuple):
    """A table of `wild_sets`, and how it is spelt; columns without a spelling are plain."""

    name: str
    table: str
    spell: Mapping[str, Spell]
    delimiter: str = ";"
    becomes: str = "same"  # "same" values, "told" what else, or "refused"
    said: str = ""
    options: Mapping[str, Any] = _NONE
    gap: str = ""
    dress: Callable[[str], bytes] = str.encode  # the whole text as the bytes of the file
    shared: bool = False  # whether the plain file is read with the options too
    quoting: int = csv.QUOTE_MINIMAL


class Verdict(NamedTuple):
    """What became of a file, what was said, and what differs in silence."""

    became: str
    said: list[str]
    silent: list[str]


def plain(value: Any) -> str:
    """A value as a plain CSV has it."""
    return value.isoformat() if isinstance(value, date) else str(value)


def text_of(file: File, *, clean: bool = False) -> str:
    """The table as delimited text."""
    columns = table(file.table)
    out = io.StringIO()
    quoting: Any = csv.QUOTE_MINIMAL if clean else file.quoting
    writer = csv.writer(
        out, delimiter="," if clean else file.delimiter, quoting=quoting, lineterminator="\n"
    )
    writer.writerow(columns)
    spell = {} if clean else file.spell
    cells = [
        [
            ("" if clean else file.gap) if value is None else spell.get(name, plain)(value)
            for value in values
        ]
        for name, values in columns.items()
    ]
    writer.writerows(zip(*cells, strict=True))
    return out.getvalue()


def verdict(file: File, folder: Path) -> Verdict:
    """Read a file, and the plain spelling of its table, and compare."""
    path, clean_path = folder / "t", folder / "clean"
    path.write_bytes(file.dress(text_of(file)))
    clean_path.write_text(text_of(file, clean=True))
    seen = look([path], **file.options)
    clean = look([clean_path], **(file.options if file.shared else {}))
    assert clean.error == "", clean.error
    if seen.error:
        return Verdict("refused", [seen.error.replace(str(path), "t")], [])
    known = {note.replace(str(clean_path), "t") for note in clean.notices}
    said = [n for note in seen.notices if (n := note.replace(str(path), "t")) not in known]
    other = _differing(seen, clean)
    silent = [name for name in other if not any(f"'{name}'" in note for note in said)]
    if len(seen.rows) != len(clean.rows) and not seen.bad:
        silent.append(f"{len(seen.rows)} rows of {len(clean.rows)}")
    return Verdict("told" if other else "same", said, silent)


def print_table(folder: Path) -> int:
    """Print what became of every file; 1 where something was wrong in silence."""
    from tests.wild_spelt import files

    absent = missing_packages()
    if absent:
        print(f"not installed: {', '.join(absent)}")
        return 1
    print("| file | table | a row | what became of it | what was said |\n|---|---|---|---|---|")
    wrong = 0
    for file in files():
        found = verdict(file, folder)
        row = file.dress(text_of(file)).decode(errors="replace").splitlines()[2][:48]
        silent = f"**in silence: {', '.join(found.silent)}**; " if found.silent else ""
        words = f"{silent}{'; '.join(found.said)}".replace("|", "\\|")
        shown = row.replace("|", "\\|").replace("\x00", "")
        print(f"| {file.name} | {file.table} | `{shown}` | {_BECAME[found.became]} | {words} |")
        wrong += bool(found.silent)
    print(f"\n{len(files())} files, {wrong} wrong in silence")
    return 1 if wrong else 0


_BECAME = {"same": "read, same inputs", "told": "read otherwise, said", "refused": "refused"}


def missing_packages() -> list[str]:
    """Packages that tables come with and that are not here."""
    return [name for name in PACKAGES if find_spec(name) is None]


def _differing(seen: Seen, clean: Seen) -> list[str]:
    """Columns of the table whose values are not those of the plain spelling."""
    one, other = _by_column(seen), _by_column(clean)
    return [
        name
        for name in {**other, **one}
        if not (name in one and name in other and _equal(one[name], other[name]))
        and not (name not in other and all(np.isnan(value).all() for value in one[name].values()))
    ]


def _by_column(seen: Seen) -> dict[str, dict[str, Any]]:
    """Of each column what reached the network, by the name of the input."""
    assert seen.schema is not None
    schema = Schema.from_json(seen.schema)
    clock = None if schema.clock is None else schema.clock.column
    found: dict[str, dict[str, Any]] = {}
    for at, (place, name) in enumerate(zip(schema.layout, schema.encoded_names(), strict=True)):
        if place.column not in {lag.name for lag in schema.lags}:
            source = clock if clock and place.column in schema.derived_columns else place.column
            found.setdefault(source, {})[name] = seen.x[:, at]
    target = schema.targets[0]
    found[target] = {"y": seen.y, "classes": np.array(schema.classes)}
    return found


def _equal(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two columns reach the network alike: the same numbers, or labels one for one."""
    if one.keys() != other.keys():
        labelled = any("=" in name for name in (*one, *other))
        return labelled and _told_apart(one) == _told_apart(other)
    return all(
        np.array_equal(value, other[name], equal_nan=value.dtype.kind == "f")
        for name, value in one.items()
    )


def _told_apart(column: dict[str, Any]) -> list[int]:
    """Each row's value by its number in order of first sight."""
    rows = np.stack(list(column.values()), axis=1)
    known: dict[bytes, int] = {}
    return [known.setdefault(row.tobytes(), len(known)) for row in rows]
