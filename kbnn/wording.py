"""Format numbers and texts for people: four significant digits, no invisible characters."""

from __future__ import annotations

import errno
import json
import math
import re
from typing import Any, Final

MAX_SHOWN_CHARS: Final = 1000
"""Maximum number of characters shown of a text; a name or a value may have millions."""

_PLACEHOLDER: Final = "\N{REPLACEMENT CHARACTER}"
_INVISIBLE_CHARS: Final = re.compile(
    # controls, soft hyphen, direction marks and joiners, line separators, surrogates, tags
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    "\ud800-\udfff\ufeff\ufff9-\ufffb\U000e0000-\U000e0fff]"
)


def format_number(value: float | None, digits: int = 4) -> str:
    """Format with significant digits: 12,346, 3.142, 0.001234, 1.2e-07; a dash for None."""
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
    """Format a share as `88.7 %`; a dash for None."""
    if share is None or math.isnan(share):
        return "-"
    return f"{100 * share:.{places}f} %"


def format_count(rows: float) -> str:
    """Format a whole number with thousands separators: 1,024."""
    return f"{round(rows):,}"


def format_rows(rows: int) -> str:
    """Format a number of rows: `1 row`, `1,024 rows`."""
    return f"{format_count(rows)} row{'' if rows == 1 else 's'}"


def clean_text(text: str) -> str:
    """Return the text on one line, without invisible characters, and at most MAX_SHOWN_CHARS long.

    Names of columns and files, categories and foreign messages may contain characters that move the
    cursor, change colours or reverse the direction of writing: each is replaced by a visible one.
    """
    if len(text) > MAX_SHOWN_CHARS:
        text = f"{text[: MAX_SHOWN_CHARS - 3]}..."
    return clean_page(text).replace("\n", _PLACEHOLDER)


def clean_page(text: str) -> str:
    """Replace invisible characters in a text of any length, keeping line breaks."""
    return _INVISIBLE_CHARS.sub(_PLACEHOLDER, text)


def format_json(found: Any, indent: int | None = None) -> str:
    """Format as JSON in which every character that is not printable is escaped."""
    text = json.dumps(found, ensure_ascii=False, allow_nan=False, indent=indent)
    return _INVISIBLE_CHARS.sub(lambda hidden: json.dumps(hidden[0])[1:-1], text)


def describe_os_error(error: OSError) -> str:
    """Return the system's reason as the rest of a sentence: `no such file or directory`."""
    if error.errno == errno.EBADF:
        return "it is closed"
    why = error.strerror or str(error)
    return f"{why[:1].lower()}{why[1:]}"
