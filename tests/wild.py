"""Sixty files as they are met in the wild: one table in many spellings.

    python -m tests.wild        what was done with each and with those of tests/wild_spelt.py, and
                                what was said; 1 where something is wrong in silence

A case names the column in question, what becomes of it (values by row, a kind, or an error), and
words that must be said; nothing that is read otherwise than written may go unsaid.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

ROWS = 60
_RNG = np.random.default_rng(16)
SIZE = _RNG.integers(20, 900, ROWS)
PRICE = _RNG.uniform(900, 90_000, ROWS).round(2)
RATE = _RNG.uniform(0, 60, ROWS).round(1)
Y = (0.01 * PRICE + SIZE + _RNG.normal(0, 5, ROWS)).round(2)
_SWAP = str.maketrans(",.", ".,")


class Wild(NamedTuple):
    """A file, and what is to become of its column `a`."""

    name: str
    data: bytes
    said: tuple[str, ...] = ()
    values: Mapping[int, float | None] | None = None
    kind: str = ""
    error: str = ""
    options: Mapping[str, Any] = MappingProxyType({})


def _de(value: float, digits: int = 2) -> str:
    return f"{value:,.{digits}f}".translate(_SWAP)


def _file(
    cells: Callable[[int], str],
    delimiter: str = ";",
    target: Callable[[int], str] = lambda at: f"{Y[at]}",
    head: str = "a{}b{}y",
    end: str = "\n",
) -> bytes:
    lines = [delimiter.join((cells(at), f"{SIZE[at]}", target(at))) for at in range(ROWS)]
    return end.join([head.format(delimiter, delimiter), *lines, ""]).encode()


def _numbers() -> Iterator[Wild]:
    price = {0: float(PRICE[0]), 7: float(PRICE[7])}
    size = {0: float(SIZE[0]), 9: float(SIZE[9])}
    rate = {3: float(RATE[3]), 8: float(RATE[8])}
    read = "is read as"
    comma: Any = lambda at: f"{Y[at]}".replace(".", ",")  # noqa: E731
    yield Wild("decimal comma", _file(lambda at: _de(RATE[at], 1)), (read,), rate)
    yield Wild("1.234,56", _file(lambda at: _de(PRICE[at])), (read,), price)
    whole = {0: float(int(PRICE[0])), 7: float(int(PRICE[7]))}
    cells: Callable[[int], str] = lambda at: _de(int(PRICE[at]), 0)  # noqa: E731
    yield Wild("1.234 beside a decimal comma", _file(cells, target=comma), (read,), whole)
    yield Wild("1 234,56", _file(lambda at: _de(PRICE[at]).replace(".", " ")), (read,), price)
    cells = lambda at: _de(PRICE[at]).replace(".", "\u202f")  # noqa: E731
    yield Wild("1 234,56, narrow spaces", _file(cells), (read,), price)
    cells = lambda at: f"{PRICE[at]:,.2f}".replace(",", "'")  # noqa: E731
    yield Wild("1'234.56", _file(cells), (read,), price)
    yield Wild('"2,984"', _file(lambda at: f'"{int(PRICE[at]):,}"', ","), (read,), whole)
    yield Wild('"12,984.50"', _file(lambda at: f'"{PRICE[at]:,.2f}"', ","), (read,), price)
    yield Wild("$14,612.87", _file(lambda at: f"${PRICE[at]:,.2f}"), (read,), price)
    yield Wild("12,50 €", _file(lambda at: f"{_de(PRICE[at])} €"), (read,), price)
    yield Wild("EUR 1.250,00", _file(lambda at: f"EUR {_de(PRICE[at])}"), (read,), price)
    cells = lambda at: f"({PRICE[at]:.2f})" if at % 3 == 0 else f"{PRICE[at]:.2f}"  # noqa: E731
    yield Wild("(250.00)", _file(cells), (read,), {0: -float(PRICE[0]), 7: float(PRICE[7])})
    cells = lambda at: f"{'-' if at % 2 else ''}£{PRICE[at]}"  # noqa: E731
    yield Wild("-£5", _file(cells), (read,), {0: float(PRICE[0]), 7: -float(PRICE[7])})
    yield Wild("14.5%", _file(lambda at: f"{RATE[at]}%"), (read,), rate)
    yield Wild("14,5 %", _file(lambda at: f"{_de(RATE[at], 1)} %"), (read,), rate)
    yield Wild("20 km", _file(lambda at: f"{SIZE[at]} km"), (read,), size)
    yield Wild("20°C", _file(lambda at: f"{RATE[at]}°C"), (read,), rate)
    cells = lambda at: f"\u2212{RATE[at]}"  # noqa: E731
    yield Wild("-5, a true minus", _file(cells), (read,), {3: -float(RATE[3])})
    yield Wild("+5", _file(lambda at: f"+{RATE[at]}"), values=rate)
    yield Wild("1.5e-3", _file(lambda at: f"{RATE[at]:.3e}"), values=rate)
    yield Wild("2,984 and nothing else", _file(lambda at: f"{int(PRICE[at]) + 1000:,}",
               target=lambda at: str(at)), ("(--decimal , if it is",),
               {0: int(PRICE[0]) + 1000.0})  # fmt: skip
    yield Wild("--decimal ,", _file(lambda at: f"{SIZE[at]},125"), (read,),
               {0: SIZE[0] + 0.125}, options={"decimal": ","})  # fmt: skip
    yield Wild("--thousands .", _file(lambda at: f"{1 + at % 8}.250"), (read,), {0: 1250.0},
               options={"thousands": "."})  # fmt: skip
    kind = {"kind": "category", "said": ("are read as categories",)}
    some = [f"{at % 9} {'km' if at % 2 else 'mi'}" for at in range(ROWS)]
    yield Wild("km and mi", _file(some.__getitem__), **kind)  # type: ignore[arg-type]
    some = [f"{'$' if at % 2 else '€'}{at % 9}" for at in range(ROWS)]
    yield Wild("$ and €", _file(some.__getitem__), **kind)  # type: ignore[arg-type]
    some_k = [f"{at % 9}K" for at in range(ROWS)]
    yield Wild("5K", _file(some_k.__getitem__), **kind)  # type: ignore[arg-type]
    cells = lambda at: f"{RATE[at]}%" if at < 40 else f"{RATE[at] / 100:.3f}"  # noqa: E731
    yield Wild("14.5% and then 0.145", _file(cells), error="as a number with '%' (use --na")
    cells = lambda at: f"{SIZE[at]}" if at < 40 else f"{SIZE[at]},5"  # noqa: E731
    yield Wild("a decimal comma comes late", _file(cells), error="(use --decimal ','")
    cells = lambda at: f"{SIZE[at]}" if at < 40 else f"{int(PRICE[at]) + 1000:,}"  # noqa: E731
    yield Wild("a thousands comma comes late", _file(cells), error="(use --thousands ','")


def _exports() -> Iterator[Wild]:
    price = {0: float(PRICE[0]), 7: float(PRICE[7])}
    excel = _file(lambda at: _de(PRICE[at]), end="\r\n")
    yield Wild("Excel, BOM and CRLF", b"\xef\xbb\xbf" + excel, ("is read as",), price)
    latin = _file(lambda at: f"{_de(PRICE[at])} €").decode().encode("cp1252")
    yield Wild("Excel, Windows-1252", latin, error="is not UTF-8")
    yield Wild("UTF-16", excel.decode().encode("utf-16"), error="UTF-16")
    yield Wild("tabs", _file(lambda at: _de(PRICE[at]), "\t"), ("is read as",), price)
    bare = b"\n".join(_file(lambda at: _de(PRICE[at])).split(b"\n")[1:])
    said = ("has no header", "is read as")
    yield Wild("no header, decimal commas", bare, said, price, options={"target": ("column3",)})
    yield Wild(
        "unquoted 1,5 between commas", _file(lambda at: f"{at},5", ","), error="has 4 fields"
    )
    quoted = _file(lambda at: f'"{_de(PRICE[at])}"', ",")
    yield Wild('quoted "1,5" between commas', quoted, ("is read as",), price)
    lines = [f'{{"a": "{_de(PRICE[at])}", "b": {at}, "y": {Y[at]}}}\n' for at in range(ROWS)]
    yield Wild("JSON strings", "".join(lines).encode(), ("is read as",), price)
    mixed = [f'{{"a": {p if at % 2 else f"{chr(34)}{_de(p)}{chr(34)}"}, "b": {at}, "y": {Y[at]}}}\n'
             for at, p in enumerate(PRICE.tolist())]  # fmt: skip
    yield Wild("JSON strings and numbers", "".join(mixed).encode(), kind="ignored",
               said=("column 'a' is ignored",))  # fmt: skip


def _gaps() -> Iterator[Wild]:
    def holed(gap: str) -> bytes:
        return _file(lambda at: gap if at % 4 == 2 else f"{RATE[at]}")

    rate = {2: None, 3: float(RATE[3])}
    for gap in ("", "NA", "null", "NaN", ".", "#N/A", "#DIV/0!", "<NA>", "\\N"):
        yield Wild(f"gaps: {gap or 'nothing'}", holed(gap), values=rate)
    for gap in ("-", "?", "n.a.", "--", "missing"):
        yield Wild(f"gaps: {gap}", holed(gap), (f"'{gap}' is read as missing",), rate)
    yield Wild("gaps: -999", holed("-999"), ("-999 in row 3", "--na -999"), {2: -999.0})
    late = _file(lambda at: "tbc" if at == 50 else f"{RATE[at]}")
    yield Wild("a gap of its own comes late", late, error="(use --na 'tbc' or --on-error skip)")


def _kinds() -> Iterator[Wild]:
    zips = _file(lambda at: f"0{2100 + at % 50}")
    yield Wild("zip codes", zips, ("--categorical a or --hash a:32",), {0: 2100.0})
    yield Wild("--categorical", zips, kind="category", options={"categorical": ("a",)})
    code = _file(lambda at: str(at % 7) if at < 50 else "A0")
    yield Wild("a code turns alphanumeric", code, error="(use --categorical a if these are labels")
    yield Wild("ids", _file(str, head="id{}b{}y"), ("counts the rows",))
    devices = _file(lambda at: f"dev-{(at * 37) % 211}")
    yield Wild("devices", devices, ("--hash a:32 learns",), kind="ignored")
    yield Wild("--hash", devices, kind="category", options={"hashed": (("a", 32),)})
    yield Wild("yes and no", _file(lambda at: "yes" if at % 3 else "no"), kind="category")
    truth = ("Yes", "yes", "N", "no")
    yield Wild("Yes, yes, N, no", _file(lambda at: truth[at % 4]), ("as true and false",),
               {0: 1.0, 3: 0.0})  # fmt: skip
    yield Wild("TRUE and False", _file(lambda at: "TRUE" if at % 3 else "False"), (), {0: 0.0})
    yield Wild("classes 1, 2, 3", _file(lambda at: str(at), target=lambda at: str(1 + at % 3)),
               ("3 different whole numbers", "--task classification"), {5: 5.0})  # fmt: skip
    prose = _file(lambda at: "a sentence of many words " * 12)
    yield Wild("prose", prose, ("it holds free text",), kind="ignored")


def _dates() -> Iterator[Wild]:
    day = [(2020 + at // 28, 1 + at % 12, 1 + at % 28) for at in range(ROWS)]
    spelled: dict[str, Callable[[int, int, int], str]] = {
        "2024-01-05": lambda y, m, d: f"{y}-{m:02}-{d:02}",
        "2024/01/05": lambda y, m, d: f"{y}/{m:02}/{d:02}",
        "05.01.2024": lambda y, m, d: f"{d:02}.{m:02}.{y}",
        "01/05/2024": lambda y, m, d: f"{m:02}/{d:02}/{y}",
        "2024-01-05T10:30:00Z": lambda y, m, d: f"{y}-{m:02}-{d:02}T10:30:00Z",
        "5 Jan 2024": lambda y, m, d: f"{d} Jan {y + m}",
        "Jan 5, 2024": lambda y, m, d: f"Jan {d}, {y + m}",
    }
    for name, spell in spelled.items():
        data = _file([spell(*one) for one in day].__getitem__)
        yield Wild(f"dates: {name}", data, ("column 'a' is the clock",), kind="time")
    short = _file(lambda at: f"{day[at][2]}-Jan-{at % 30:02}")
    said = "years 1969 to 2068 in two digits"
    yield Wild("dates: 5-Jan-24", short, (said,), kind="time")
    short = _file(lambda at: f"{day[at][2]}/{day[at][1]}/24")
    yield Wild("dates: 5/1/24", short, ("write years with four digits",), kind="ignored")
    said = "column 'a' is the clock, days before months"
    euro = _file(lambda at: "{2}.{1}.{0}".format(*day[at]), target=lambda at: _de(Y[at], 3))
    stated: dict[str, Any] = {"decimal": ","}
    yield Wild("dates and numbers: 5.1.2024;1.234,567", euro, (said,), kind="time", options=stated)
    number = _file(lambda at: "{}{:02}{:02}".format(*day[at]))
    yield Wild("dates: 20240105", number, ("looks like a date",), {0: 20200101.0})
    yield Wild("dates: 20240105 as the clock", number, ("'a' is the clock",), options={"time": "a"})
    target = _file(lambda at: str(SIZE[at]), target=lambda at: "{}-{:02}-{:02}".format(*day[at]))
    yield Wild("a date at the end", target, ("last column except the clock, 'b'",))
    error = "holds dates or times such as '2020-01-01'"
    yield Wild("a date as target", target, error=error, options={"target": ("y",)})


def cases() -> list[Wild]:
    """All of them."""
    return [*_numbers(), *_exports(), *_gaps(), *_kinds(), *_dates()]


def main() -> int:
    """Print what became of all files; 1 where one is wrong in silence."""
    from tests.wild_real import print_table

    print("Made tables: the column `a` of each\n")
    print("| file | first value | what became of it | what was said |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for case in cases():
            _print_case(case, Path(folder, "t"))
        print("\nReal tables: each file beside the plain spelling of the same table\n")
        return print_table(Path(folder))


def _print_case(case: Wild, path: Path) -> None:
    from tests.streams import look

    path.write_bytes(case.data)
    seen = look([path], **case.options)
    column = {} if seen.schema is None else seen.schema["columns"][0]
    became = "refused" if seen.error else f"{column['kind']}, {column['role']}"
    usual = ("target: last", "task: ")
    said = [note for note in seen.notices if not note.startswith(usual)]
    words = "; ".join([*said, seen.error]).replace(f"{path}", "t").replace("|", "\\|")
    first = case.data.decode(errors="replace").splitlines()[1].split(";")[0]
    print(f"| {case.name} | `{first[:24]}` | {became} | {words} |")


if __name__ == "__main__":
    sys.exit(main())
