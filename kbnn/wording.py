"""Words and numbers as people read them: four significant digits, nothing that cannot be seen."""

from __future__ import annotations

import errno
import json
import math
import re
from typing import Any, Final

MAX_SHOWN_CHARS: Final = 1000
"""Characters of a text that is shown; a name or a value may have millions."""

_PLACEHOLDER: Final = "\N{REPLACEMENT CHARACTER}"
_INVISIBLE_CHARS: Final = re.compile(
    # controls, soft hyphen, directions and joints of writing, line separators, halves, tags
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    "\ud800-\udfff\ufeff\ufff9-\ufffb\U000e0000-\U000e0fff]"
)


def format_number(value: float | None, digits: int = 4) -> str:
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


def format_percent(share: float | None, places: int = 1) -> str:
    """A share as `88.7 %`; a dash for None."""
    if share is None or math.isnan(share):
        return "-"
    return f"{100 * share:.{places}f} %"


def format_count(rows: float) -> str:
    """A whole number with its thousands separated: 1,024."""
    return f"{round(rows):,}"


def format_rows(rows: int) -> str:
    """`1 row`, `1,024 rows`."""
    return f"{format_count(rows)} row{'' if rows == 1 else 's'}"


def clean_text(text: str) -> str:
    """The text as it may be shown to anybody: on one line, nothing hidden, not endless.

    Names of columns and files, categories and the messages of others may hold what would move a
    cursor, change colours or turn the direction of writing: each such character becomes visible.
    """
    if len(text) > MAX_SHOWN_CHARS:
        text = f"{text[: MAX_SHOWN_CHARS - 3]}..."
    return clean_page(text).replace("\n", _PLACEHOLDER)


def clean_page(text: str) -> str:
    """The same for a text of many lines and any length."""
    return _INVISIBLE_CHARS.sub(_PLACEHOLDER, text)


def format_json(found: Any, indent: int | None = None) -> str:
    """JSON in which whatever is not printable is escaped: no value is lost, none acts."""
    text = json.dumps(found, ensure_ascii=False, allow_nan=False, indent=indent)
    return _INVISIBLE_CHARS.sub(lambda hidden: json.dumps(hidden[0])[1:-1], text)


def describe_os_error(error: OSError) -> str:
    """Why the system refused, as the rest of a sentence: `no such file or directory`."""
    if error.errno == errno.EBADF:
        return "it is closed"
    why = error.strerror or str(error)
    return f"{why[:1].lower()}{why[1:]}"
