"""More than sixty spellings of the real tables of `wild_sets`."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from datetime import date
from typing import Any

from tests.wild_real import File, Spell, plain

_SWAP = str.maketrans(",.", ".,")
_MONTHS = [date(2000, month, 1).strftime("%B") for month in range(1, 13)]


def comma(value: Any) -> str:
    """12,5"""
    return plain(value).replace(".", ",")


def us(value: Any) -> str:
    """1,234.5"""
    return f"{value:,}"


def euro(value: Any) -> str:
    """1.234,5"""
    return us(value).translate(_SWAP)


def swiss(value: Any) -> str:
    """1'234.5"""
    return us(value).replace(",", "'")


def spaced(value: Any) -> str:
    """1 234,5 with the space that French locales write"""
    return us(value).replace(",", "\u202f").replace(".", ",")


def _all(spell: Spell, *names: str) -> dict[str, Spell]:
    return dict.fromkeys(names, spell)


_CARS = ("Displacement", "Horsepower", "Weight_in_lbs", "Miles_per_Gallon")
_WEATHER = ("precipitation", "wind", "temp_max")
_JOBS = ("construction", "manufacturing", "mining_and_logging", "nonfarm")
_MACRO = ("realcons", "infl", "unemp", "realgdp")


def _numbers() -> Iterator[File]:
    read = "is read as"
    yield File("decimal commas", "weather", _all(comma, *_WEATHER), said=read)
    yield File("decimal commas, tabs", "iris", _all(comma, "sepalLength", "sepalWidth",
               "petalLength"), "\t", said=read)  # fmt: skip
    yield File("decimal commas, quoted between commas", "diabetes",
               _all(comma, "age", "bmi", "bp", "s5"), ",", said=read)  # fmt: skip
    yield File("1.234,5", "macro", _all(euro, *_MACRO), said=read)
    yield File("1.234,5 in wine", "wine", _all(euro, "alcohol", "ash", "proline"), said=read)
    yield File("thousands points and nothing else", "employment", _all(euro, *_JOBS),
               becomes="told", said="(--thousands . if it is 135450)")  # fmt: skip
    yield File("thousands points beside decimal commas", "grunfeld",
               _all(euro, "value", "capital", "invest"), said=read)  # fmt: skip
    yield File("thousands commas", "employment", _all(us, *_JOBS), ",", said=read)
    yield File("thousands commas and points", "macro", _all(us, *_MACRO), ",", said=read)
    yield File("1'234.5", "grunfeld", _all(swiss, "value", "capital", "invest"), said=read)
    yield File("1 234,5", "macro", _all(spaced, *_MACRO), said=read)
    yield File("$ before", "stocks", {"price": lambda v: f"${v:,}"}, ",", said=read)
    yield File("12,5 €", "stocks", {"price": lambda v: f"{comma(v)} €"}, said=read)
    yield File("USD 1,234.5", "grunfeld", _all(lambda v: f"USD {us(v)}", "invest", "value"), ",",
               said=read)  # fmt: skip
    yield File("£ and (12.5)", "macro", {"infl": lambda v: f"(£{-v})" if v < 0 else f"£{v}"}, ",",
               said=read)  # fmt: skip
    yield File("14.5%", "schools", _all(lambda v: f"{v}%", "LOWINC", "PERMINTE"), ",", said=read)
    yield File("14,5 %", "schools", _all(lambda v: f"{comma(v)} %", "LOWINC", "PERMINTE"),
               said=read)  # fmt: skip
    yield File("3504 lbs", "cars", {"Weight_in_lbs": lambda v: f"{v} lbs"}, ",", said=read)
    yield File("12.8°C", "weather", {"temp_max": lambda v: f"{v}°C"}, ",", said=read)
    yield File("true minus signs", "airports", {"longitude": lambda v: f"{v}".replace("-", "\u2212")
               }, ",", said=read)  # fmt: skip
    yield File("-5 written 5-", "macro", {"infl": lambda v: f"{-v}-" if v < 0 else f"{v}"}, ",",
               "refused")  # fmt: skip
    yield File("1,35E+05", "employment", _all(lambda v: f"{v:.5E}".replace(".", ","), *_JOBS),
               said=read)  # fmt: skip
    yield File("--decimal ,", "weather", _all(comma, *_WEATHER), said=read,
               options={"decimal": ","})  # fmt: skip
    yield File("--thousands .", "employment", _all(euro, *_JOBS), said=read,
               options={"thousands": "."})  # fmt: skip
    late = iter(range(10**6))
    yield File("a decimal comma comes late", "weather",
               {"wind": lambda v: comma(v) if next(late) % 300 > 250 else f"{int(v)}"},
               becomes="refused", said="--decimal ','")  # fmt: skip
    two = iter(range(10**6))
    yield File("miles and km", "travel",
               {"invt": lambda v: f"{v} {('mi', 'km')[next(two) % 2]}"}, ",", "told",
               "--numeric invt")  # fmt: skip
    cash = iter(range(10**6))
    yield File("$ and €", "stocks", {"price": lambda v: f"{'$€'[next(cash) % 2]}{v}"}, ",",
               "refused", "holds values that nearly all differ")  # fmt: skip


def _excel(text: str) -> bytes:
    return b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode()


def _exports() -> Iterator[File]:
    read = "is read as"
    euros = {**_all(euro, *_MACRO)}
    yield File("Excel: BOM and CRLF", "macro", euros, said=read, dress=_excel)
    yield File("Excel: sep=;", "macro", euros, said=read,
               dress=lambda text: _excel("sep=;\n" + text))  # fmt: skip
    yield File("Excel: sep=, with a BOM", "stocks", {}, ",",
               dress=lambda text: _excel("sep=,\n" + text))  # fmt: skip
    yield File("Excel: all quoted", "cars", {}, quoting=csv.QUOTE_ALL, dress=_excel)
    yield File("Excel: Windows-1252", "stocks", {"price": lambda v: f"{comma(v)} €"},
               becomes="refused", said="UTF-8", dress=lambda t: t.encode("cp1252"))  # fmt: skip
    yield File("Excel: Unicode text", "macro", euros, "\t", "refused", "UTF-16",
               dress=lambda text: text.encode("utf-16"))  # fmt: skip
    yield File('Excel: ="0012"', "travel", {"individual": lambda v: f'="{v:04}"'}, ",", "told",
               "individual")  # fmt: skip
    yield File("Excel: #N/A", "cars", {}, gap="#N/A")
    yield File("Excel: empty columns at the end", "iris", {}, becomes="same",
               dress=lambda text: text.replace("\n", ";;\n").encode())  # fmt: skip
    yield File("Excel: a title above", "barley", {}, ",", "refused",
               dress=lambda text: f"Yields of barley\n\n{text}".encode())  # fmt: skip
    yield File("Excel: a line of totals", "electricity", {}, ",", "refused", "Total",
               dress=lambda text: f"{text}Total,,\n".encode())  # fmt: skip
    yield File("WAHR and FALSCH", "visits", {"idp": lambda v: ("FALSCH", "WAHR")[v]}, ",")
    yield File("lone carriage returns", "iris", {}, dress=lambda t: t.replace("\n", "\r").encode())
    yield File("bars", "grunfeld", {}, "|")
    yield File("blanks around cells", "grunfeld", _all(lambda v: f" {v} ", "value", "invest"), ",")
    yield File("blank lines at the end", "iris", {}, ",", dress=lambda t: f"{t}\n\n\n".encode())
    yield File("a row index of pandas", "barley", {}, ",", "told", "counts the rows",
               dress=_indexed)  # fmt: skip


def _indexed(text: str) -> bytes:
    head, *lines = text.splitlines()
    return "\n".join([f",{head}", *(f"{at},{line}" for at, line in enumerate(lines)), ""]).encode()


def _gaps() -> Iterator[File]:
    for gap in ("NA", "NaN", "null", ".", "<NA>", "\\N", "#DIV/0!"):
        yield File(f"gaps: {gap}", "cars", {}, gap=gap)
    for gap in ("-", "?", "n/a", "n.a.", "--", "missing"):
        yield File(f"gaps: {gap}", "co2", {}, ",", gap=gap)
    yield File("gaps: -999", "riots", {}, ",", "told", "--na -999", gap="-999")
    yield File("gaps: -999 from row 39 on", "cars", {}, ",", "told", "'Horsepower': -999 in row 39",
               gap="-999")  # fmt: skip
    yield File("gaps: --na -999", "cars", {}, ",", gap="-999.0", options={"na": ("-999",)})
    yield File("gaps: --na 999", "riots", {}, ",", gap="999", options={"na": ("999",)})
    yield File("gaps: unbekannt", "cars", {}, ",", "refused", "--na 'unbekannt'", gap="unbekannt")


def _kinds() -> Iterator[File]:
    yield File("codes with zeros before them", "travel", {"individual": lambda v: f"{v:05}"}, ",",
               said="--categorical individual")  # fmt: skip
    coded = iter(range(10**6))
    yield File("a code turns alphanumeric", "travel",
               {"mode": lambda v: f"{v}" if next(coded) % 300 < 200 else f"A{v}"}, ",", "refused",
               "--categorical mode")  # fmt: skip
    yield File("ids as texts", "travel", {"individual": lambda v: f"P-{v:05}"}, ",", "told",
               "'individual'")  # fmt: skip
    yield File("airports, as they are", "airports", {}, ",")
    yield File("--categorical", "travel", {"mode": lambda v: f" {v}"}, ",",
               options={"categorical": ("mode",)}, shared=True)  # fmt: skip
    yield File("--hash", "airports", {"state": lambda v: f'{v} '}, ",",
               options={"hashed": (("state", 16),)}, shared=True)  # fmt: skip
    yield File("classes as numbers", "wine", {"target": lambda v: f"{v}.0"}, ",")
    yes = iter(range(10**6))
    yield File("Yes, yes, N, no", "visits",
               {"idp": lambda v: ("no", "Yes", "N", "yes")[v + 2 * (next(yes) % 2)]}, ",",
               said="as true and false")  # fmt: skip
    yield File("counts with a decimal", "visits", {"mdvis": lambda v: f"{v}.00"}, ",")


_DATES: dict[str, Spell] = {
    "2012/01/05": lambda d: f"{d:%Y/%m/%d}",
    "05.01.2012": lambda d: f"{d:%d.%m.%Y}",
    "5.1.2012": lambda d: f"{d.day}.{d.month}.{d.year}",
    "01/25/2012": lambda d: f"{d:%m/%d/%Y}",
    "25/01/2012": lambda d: f"{d:%d/%m/%Y}",
    "2012-01-05T00:00:00Z": lambda d: f"{d:%Y-%m-%dT00:00:00Z}",
    "2012-01-05 00:00:00": lambda d: f"{d:%Y-%m-%d} 00:00:00",
    "5 Jan 2012": lambda d: f"{d.day} {_MONTHS[d.month - 1][:3]} {d.year}",
    "05-Jan-2012": lambda d: f"{d:%d}-{_MONTHS[d.month - 1][:3]}-{d.year}",
    "January 5, 2012": lambda d: f"{_MONTHS[d.month - 1]} {d.day}, {d.year}",
    "Jan 5 2012 12:00 AM": lambda d: f"{_MONTHS[d.month - 1][:3]} {d.day} {d.year} 12:00 AM",
    "Thu, 05 Jan 2012": lambda d: f"{d:%a, %d} {_MONTHS[d.month - 1][:3]} {d.year}",
    "5-Jan-12": lambda d: f"{d.day}-{_MONTHS[d.month - 1][:3]}-{d:%y}",
    "01/25/12": lambda d: f"{d:%m/%d/%y}",
    "5. Januar 2012": lambda d: f"{d.day}. Januar {d.year}",
    "Excel's 40909": lambda d: str((d - date(1899, 12, 30)).days),
}
_ODD = {"01/25/12": "told", "5. Januar 2012": "told", "Excel's 40909": "told"}


def _dates() -> Iterator[File]:
    for name, spell in _DATES.items():
        spelt = {"date": spell}
        yield File(f"dates: {name}", "weather", spelt, ",", _ODD.get(name, "same"))
    yield File("dates: 20120105, --time", "weather", {"date": lambda d: f"{d:%Y%m%d}"}, ",",
               options={"time": "date"})  # fmt: skip
    yield File("months: Jan 2000", "stocks",
               {"date": lambda d: f"{_MONTHS[d.month - 1][:3]} {d.year}"}, ",")  # fmt: skip
    yield File("months: 2000-01", "stocks", {"date": lambda d: f"{d:%Y-%m}"}, ",")


def files() -> list[File]:
    """All of them."""
    return [*_numbers(), *_exports(), *_gaps(), *_kinds(), *_dates()]
