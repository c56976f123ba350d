"""How the numbers of a column are written: decimal mark, thousands mark, a sign, a gap.

`1.234,56`, `$14,612.87`, `14.5 %`, `(250.00)` and `-3 km` are numbers to whoever wrote them. The
form is found in the first rows and kept in the schema, so that every later row, whatever chunk it
comes in, is read alike. A text that does not keep to the form is no number: groups have three
digits, and a per cent sign is there or not.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

THOUSANDS_MARKS: Final = (",", ".", " ", "'")
_SPACE_VARIANTS: Final = re.compile("[\u00a0\u2007\u2009\u202f]")
_PLAIN_NUMBER: Final = re.compile(
    r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?|[-+]?(inf|infinity)", re.I
)
_REQUIRED_SIGNS: Final = ("%", "‰")
"""Signs without which a number would be another one."""


@dataclass(frozen=True)
class Form:
    """The marks of a column's numbers; the default is the usual form, `-1234.5e6`."""

    decimal: str = "."
    thousands: str = ""
    sign: str = ""  # a currency, a unit or per cent, before or behind
    gap: str = ""  # a text that stands for no value

    def __post_init__(self) -> None:
        marks = self.decimal in (".", ",") and self.thousands in ("", *THOUSANDS_MARKS)
        if not marks or self.decimal == self.thousands:
            raise ValueError(f"no number has the marks '{self.decimal}' and '{self.thousands}'")

    @property
    def is_plain(self) -> bool:
        """Whether numbers are written as computers do."""
        return self.decimal == "." and not (self.thousands or self.sign or self.gap)

    def parse_number(self, text: str) -> float | None:
        """What a trimmed text stands for; None when it is no number of this form."""
        if self.is_plain:
            return float(text) if _PLAIN_NUMBER.fullmatch(text) else None
        found = _compile_pattern(self).fullmatch(normalize_marks(text))
        if found is None:
            return None
        minus = [found[name] for name in ("before", "after") if found[name]]
        bracket = found["open"] is not None
        if bracket != (found["close"] is not None) or len(minus) + bracket > 1:
            return None
        if self.sign and bool(found["left"]) + bool(found["right"]) not in self.allowed_sign_counts:
            return None
        digits = found["digits"].replace(self.thousands, "") if self.thousands else found["digits"]
        value = float(digits.replace(self.decimal, "."))
        return -value if bracket or minus == ["-"] else value

    @property
    def allowed_sign_counts(self) -> tuple[int, ...]:
        """How often the sign may stand with a number."""
        return (1,) if self.sign in _REQUIRED_SIGNS else (0, 1)


PLAIN_FORM: Final = Form()


def normalize_marks(text: str) -> str:
    """A text with the plain one of each kind of space, apostrophe and minus."""
    if text.isascii():
        return text
    return _SPACE_VARIANTS.sub(" ", text).replace("\u2019", "'").replace("\u2212", "-")


def digits_pattern(form: Form) -> str:
    """A number without minus and sign, as a regular expression of any dialect."""
    mark, whole = re.escape(form.decimal), "[0-9]+"
    if form.thousands:
        whole = f"(?:[0-9]{{1,3}}(?:{re.escape(form.thousands)}[0-9]{{3}})+|[0-9]+)"
    return f"(?:{whole}(?:{mark}[0-9]*)?|{mark}[0-9]+)(?:[eE][-+]?[0-9]+)?"


@lru_cache(maxsize=256)
def _compile_pattern(form: Form) -> re.Pattern[str]:
    sign = re.escape(form.sign)
    left = f"(?P<left>{sign} ?)?" if sign else "(?P<left>)"
    right = f"(?P<right> ?{sign})?" if sign else "(?P<right>)"
    minus = "(?P<{}>[-+])? ?"
    return re.compile(
        rf"(?P<open>\( ?)?{minus.format('before')}{left}{minus.format('after')}"
        rf"(?P<digits>{digits_pattern(form)}){right}(?P<close> ?\))?"
    )
