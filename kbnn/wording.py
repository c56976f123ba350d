"""Numbers as people read them: four significant digits, thousands separated, percent spaced."""

from __future__ import annotations

import math


def number(value: float | None, digits: int = 4) -> str:
    """Significant digits: 12,346, 3.142, 0.001234, 1.2e-07; a dash for None."""
    if value is None or math.isnan(value):
        return "-"
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    size = abs(float(f"{value:.{digits - 1}e}"))
    if size != 0 and not 1e-4 <= size < 1e7:
        return f"{value:.{digits - 1}g}"
    places = digits - 1 - math.floor(math.log10(size)) if size else digits - 1
    text = f"{value:,.{max(places, 0)}f}"
    return text.removeprefix("-") if float(text.replace(",", "")) == 0 else text


def percent(share: float | None, places: int = 1) -> str:
    """A share as `88.7 %`; a dash for None."""
    if share is None or math.isnan(share):
        return "-"
    return f"{100 * share:.{places}f} %"


def count(rows: float) -> str:
    """A whole number with its thousands separated: 1,024."""
    return f"{round(rows):,}"


def rows_of(rows: int) -> str:
    """`1 row`, `1,024 rows`."""
    return f"{count(rows)} row{'' if rows == 1 else 's'}"


def clean(name: str) -> str:
    """The name with every character that is not printable (controls, bidi marks) made visible."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in name)


def reason_of(error: OSError) -> str:
    """Why the system refused, as the rest of a sentence: `no such file or directory`."""
    why = error.strerror or str(error)
    return f"{why[:1].lower()}{why[1:]}"
