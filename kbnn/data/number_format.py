"""Detect and parse the number format of a column: decimal mark, thousands mark, sign, gap.

Numbers may be written as `1.234,56`, `$14,612.87`, `14.5 %`, `(250.00)` or `-3 km`. The format is
detected in the first rows and stored in the schema, so that later rows are parsed the same way; a
text that does not match the format is an error. `12,5` has a decimal comma and `1,250,000` a
thousands comma. `2,984` is ambiguous: the other columns of the table decide and, failing that, it
is read as thousands. The detected format is reported with an example; options override it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from kbnn.data.chunk import shorten
from kbnn.errors import UsageError

THOUSANDS_MARKS: Final = (",", ".", " ", "'")
_SPACE_VARIANTS: Final = re.compile("[\u00a0\u2007\u2009\u202f]")
_PLAIN_NUMBER: Final = re.compile(
    r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?|[-+]?(inf|infinity)", re.I
)
_REQUIRED_SIGNS: Final = ("%", "‰")
"""Signs that every number of a column must have, because they change its value."""


@dataclass(frozen=True)
class Form:
    """The number format of a column; the default is the plain format, `-1234.5e6`."""

    decimal: str = "."
    thousands: str = ""
    sign: str = ""  # a currency, a unit or per cent, before or after the number
    gap: str = ""  # a text that means missing

    def __post_init__(self) -> None:
        marks = self.decimal in (".", ",") and self.thousands in ("", *THOUSANDS_MARKS)
        if not marks or self.decimal == self.thousands:
            raise ValueError(
                f"cannot combine decimal mark '{self.decimal}' and thousands mark "
                f"'{self.thousands}'"
            )

    @property
    def is_plain(self) -> bool:
        """Whether this is the plain format."""
        return self.decimal == "." and not (self.thousands or self.sign or self.gap)

    def parse_number(self, text: str) -> float | None:
        """Parse a trimmed text; None if it is not a number in this format."""
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
        """How often the sign may occur with a number."""
        return (1,) if self.sign in _REQUIRED_SIGNS else (0, 1)


PLAIN_FORM: Final = Form()


def normalize_marks(text: str) -> str:
    """Replace typographic spaces, apostrophes and minus signs by their ASCII versions."""
    if text.isascii():
        return text
    return _SPACE_VARIANTS.sub(" ", text).replace("\u2019", "'").replace("\u2212", "-")


def digits_pattern(form: Form) -> str:
    """Return a regular expression, valid in Python and Arrow, for a number without signs."""
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


_NUMBER_WITH_SIGN: Final = re.compile(
    r"\(?[-+]? ?(?P<left>[^\d\s.,'()+-][^\d\s,'()+-]{0,3})? ?[-+]?"
    r"(?P<digits>[.,]?\d(?:[\d.,' ]*\d)?[.,]?)(?P<space> ?)"
    r"(?P<right>[^\d\s.,'()+-][^\s,'()+-]{0,4})?\)?"
)
_POINT_GROUP: Final = re.compile(r"[-+]?[1-9]\d{0,2}\.\d{3}")
MIN_GROUPED_VALUES: Final = 20
"""Numbers with exactly three decimals each, from which on a notice is given."""
DECIMAL_MARKS: Final = (".", ",")
_POINT_FORMATS: Final = tuple(Form(".", mark) for mark in ("", ",", " ", "'"))
_COMMA_FORMATS: Final = tuple(Form(",", mark) for mark in (".", "", " ", "'"))


class NumberMarks:
    """The decimal and thousands marks stated by the user, "" if not stated."""

    def __init__(self, decimal: str = "", thousands: str = "") -> None:
        thousands = {"space": " ", "\u00a0": " ", "\u2019": "'"}.get(thousands, thousands)
        if decimal not in ("", *DECIMAL_MARKS):
            raise UsageError(f"--decimal must be {' or '.join(DECIMAL_MARKS)} (got '{decimal}')")
        if thousands not in ("", *THOUSANDS_MARKS):
            raise UsageError(f"--thousands must be , or . or ' or space (got '{thousands}')")
        if decimal and decimal == thousands:
            raise UsageError(f"--decimal and --thousands cannot both be '{decimal}'")
        self.decimal = decimal or {".": ",", ",": "."}.get(thousands, "")
        self.thousands = thousands

    def list_formats(self, first: str) -> list[Form]:
        """List the possible formats, the likeliest first; `first` is the table's decimal mark."""
        marks = (
            [*_COMMA_FORMATS, *_POINT_FORMATS]
            if first == ","
            else [*_POINT_FORMATS, *_COMMA_FORMATS]
        )
        return [
            form
            for form in marks
            if self.decimal in ("", form.decimal) and self.thousands in ("", form.thousands)
        ]


def detect_number_format(
    values: Sequence[str], stated: NumberMarks, first: str = "", *, any_sign: bool = False
) -> Form:
    """Return the format in which most values are numbers, or the plain one if fewer than 3/4."""
    free = not stated.decimal and not stated.thousands and first != ","
    if free and all(PLAIN_FORM.parse_number(value) is not None for value in values):
        return PLAIN_FORM
    sign = _find_common_sign(values, any_sign)
    values = [value for value in values if value.lower() not in GAP_SPELLINGS] or values
    if first == "," and _has_grouped_digits(values, ","):
        first = ""
    best, most = PLAIN_FORM, 0
    for form in stated.list_formats(first):
        form = replace(form, sign=sign)
        fits = sum(form.parse_number(value) is not None for value in values)
        if fits > most:
            best, most = form, fits
    return best if 4 * most >= 3 * len(values) else PLAIN_FORM


def _has_grouped_digits(values: Sequence[str], mark: str) -> bool:
    """Return whether a mark always precedes three digits and is absent from small numbers.

    Such a mark separates thousands: a decimal mark would occur in small numbers too.
    """
    digits = [re.sub(r"[^\d.,' ]", "", value).strip() for value in values]
    grouped = re.compile(rf"[1-9]\d{{0,2}}({re.escape(mark)}\d{{3}})+")
    marked = [text for text in digits if mark in text]
    small = [text for text in digits if mark not in text]
    return (
        len(marked) > 1
        and bool(small)
        and all(map(grouped.fullmatch, marked))
        and all(text.isdecimal() and len(text) < 4 for text in small)
    )


def _are_all_grouped(values: Sequence[str]) -> bool:
    """Return whether every number has a point before three digits, some ending in 0."""
    return (
        len(values) >= MIN_GROUPED_VALUES
        and all(map(_POINT_GROUP.fullmatch, values))
        and any(value.endswith("0") for value in values)
    )


def report_ambiguous_points(
    name: str, values: Sequence[str], notice: Callable[[str], None]
) -> None:
    """Report decimal points that may be thousands marks."""
    if _has_grouped_digits(values, ".") or _are_all_grouped(values):
        shown = max((value for value in values if "." in value), key=len)
        whole = Form(",", ".").parse_number(shown)
        if whole is not None:
            notice(
                f"column '{shorten(name)}': '{shorten(shown)}' is read as {float(shown):.15g} "
                f"(--thousands . if it is {whole:.15g})"
            )


def add_gap_spelling(form: Form, values: Sequence[str]) -> Form:
    """Add the spelling of missing values to a format, if exactly one occurs in the values."""
    others = {value for value in values if form.parse_number(value) is None}
    numbers = sum(form.parse_number(value) is not None for value in values)
    if len(others) != 1 or numbers < 2 or min(others).lower() not in GAP_SPELLINGS:
        return form
    return replace(form, gap=min(others))


def detect_decimal_mark(columns: Iterable[Sequence[str]]) -> str:
    """Return the decimal mark that some columns have for certain; "" if none or they disagree."""
    proved = {mark for values in columns for mark in _find_certain_marks(values)}
    return proved.pop() if len(proved) == 1 else ""


def looks_numeric(text: str) -> bool:
    """Return whether a text is a number in any format without a sign."""
    return any(form.parse_number(text) is not None for form in (*_POINT_FORMATS, *_COMMA_FORMATS))


def _find_certain_marks(values: Sequence[str]) -> set[str]:
    """Return the decimal marks that more than half of the values of a column require."""
    sign = _find_common_sign(values, any_sign=False)
    points = [replace(form, sign=sign) for form in _POINT_FORMATS]
    commas = [replace(form, sign=sign) for form in _COMMA_FORMATS]
    read = [
        (
            any(f.parse_number(v) is not None for f in points),
            any(f.parse_number(v) is not None for f in commas),
        )
        for v in values
    ]
    only = {".": sum(p and not c for p, c in read), ",": sum(c and not p for p, c in read)}
    return {mark for mark, count in only.items() if 2 * count > len(values)}


def _find_common_sign(values: Sequence[str], any_sign: bool) -> str:
    """Return the only sign that occurs with the numbers; "" if there is none or several."""
    signs: set[str] = set()
    for value in values:
        found = _NUMBER_WITH_SIGN.fullmatch(normalize_marks(value))
        if found is None:
            continue
        left, right = found["left"] or "", found["right"] or ""
        known = (
            left in CURRENCIES
            or right in CURRENCIES | UNITS
            or (right in SPACED_UNITS and bool(found["space"]))
        )
        if (left and right) or ((left or right) and not (known or any_sign)):
            return ""
        signs.add(left or right)
    signs.discard("")
    return signs.pop() if len(signs) == 1 else ""


def report_number_formats(
    forms: Mapping[str, Form],
    columns: Mapping[str, Sequence[str]],
    stated: NumberMarks,
    notice: Callable[[str], None],
) -> None:
    """Report each format that is not plain, with an example and the columns that use it."""
    alike: dict[tuple[Form, bool], list[str]] = {}
    for name, form in forms.items():
        marks, values = replace(form, gap=""), columns[name]
        shown = _choose_example(marks, values)
        if shown is not None:
            doubt = not stated.decimal and _suggest_other_mark(marks, values, shown) != ""
            alike.setdefault((marks, doubt), []).append(name)
        if stated.decimal == "," and form.decimal == "." and any("." in v for v in values):
            shown = next(v for v in values if "." in v)
            notice(f"column '{shorten(name)}': '{shorten(shown)}' is read with a decimal point")
        if form.gap:
            gap = shorten(form.gap)
            notice(f"column '{shorten(name)}': '{gap}' is read as missing, as with --na '{gap}'")
    for (form, doubt), names in alike.items():
        values = columns[names[0]]
        text = _choose_example(form, values) or ""
        where = ", ".join(f"'{shorten(name)}'" for name in names[:4])
        where += f" and {len(names) - 4} more" if len(names) > 4 else ""
        noun = "column" if len(names) == 1 else "columns"
        other = _suggest_other_mark(form, values, text) if doubt else ""
        notice(
            f"{noun} {where}: '{shorten(text)}' is read as {form.parse_number(text):.15g}{other}"
        )


def _choose_example(form: Form, values: Sequence[str]) -> str | None:
    """Return the value that shows a format best; None if all are in the plain format."""
    odd = [
        v
        for v in values
        if form.parse_number(v) is not None and PLAIN_FORM.parse_number(v) != form.parse_number(v)
    ]
    return max(odd, key=len) if odd else None


def _suggest_other_mark(form: Form, values: Sequence[str], text: str) -> str:
    """Suggest the option for the other reading of ambiguous values; "" if unambiguous."""
    others = {
        (".", ","): [Form(",", "", form.sign)],
        (",", "."): [Form(".", "", form.sign), Form(".", ",", form.sign)],
    }
    odd = [v for v in values if PLAIN_FORM.parse_number(v) != form.parse_number(v) or "." in v]
    for other in others.get((form.decimal, form.thousands), []):
        if all(other.parse_number(value) is not None for value in odd):
            return f" (--decimal {other.decimal} if it is {other.parse_number(text):.15g})"
    return ""


def normalize_numbers(array: pa.Array, form: Form) -> pa.Array | None:
    """Convert trimmed texts to the plain format; None if any is not a number in `form`."""
    sign = re.escape(form.sign)
    left, right = (f"(?:{sign} ?)?", f"(?: ?{sign})?") if sign else ("", "")
    if len(form.allowed_sign_counts) == 1 and sign:
        left = ""
        right = f" ?{sign}"
    pattern = f"^[-+]?{left}{digits_pattern(form)}{right}$"
    if form.thousands == " ":
        array = pc.replace_substring_regex(array, "[\u00a0\u2007\u2009\u202f]", " ")
    if not pc.all(pc.match_substring_regex(array, pattern), min_count=0).as_py():
        return None
    if form.sign and pc.any(pc.greater(pc.count_substring(array, form.sign), 1)).as_py():
        return None
    for mark in (form.sign, form.thousands, " "):
        if mark:
            array = pc.replace_substring(array, mark, "")
    return array if form.decimal == "." else pc.replace_substring(array, form.decimal, ".")


def suggest_mark_option(text: str, form: Form) -> str | None:
    """Suggest the option with which a text would be a number; None if there is none."""
    if PLAIN_FORM.parse_number(text) is not None:  # it only lacks the sign of the column
        return None
    found = [
        f"--{'decimal' if other.decimal != form.decimal else 'thousands'} "
        f"'{other.decimal if other.decimal != form.decimal else format_mark(other.thousands)}'"
        for other in (Form(".", ","), Form(",", "."), Form(".", " "), Form(".", "'"))
        if other.parse_number(text) is not None
    ]
    return " or ".join(dict.fromkeys(found)) or None


def format_mark(mark: str) -> str:
    """Format a thousands mark as typed on the command line."""
    return "space" if mark == " " else mark


_CURRENCIES: Final = """
$ € £ ¥ ₹ ₽ ₩ ₺ ₪ ฿ ¢ US$ A$ C$ R$ EUR USD GBP CHF JPY CNY INR SEK NOK DKK PLN CZK HUF kr Kč zł
Fr. Rs Rs.
"""
_UNITS: Final = """
% ‰ ° km cm mm µm nm mi ft yd kg mg lb lbs oz ml mL cl gal ms sec min hr hrs days kW MW Wh kWh MWh
mV kV mA Hz kHz MHz GHz °C °F Pa hPa kPa bar mbar psi km/h kmh mph m/s kn kB KB MB GB TB px pt dB
rpm hp PS cc ppm m² m2 m³ km² ha sqft
"""
_GAP_SPELLINGS: Final = """
? ?? - -- --- \u2013 \u2014 * ** _ n.a. n.a n.d. n/d n/k nd k.a. missing unknown unbekannt tbd
"""

CURRENCIES: Final = frozenset(_CURRENCIES.split())
UNITS: Final = frozenset(_UNITS.split())
SPACED_UNITS: Final = frozenset(
    ["m", "g", "t", "l", "L", "s", "h", "d", "W", "V", "A", "K", "J", "N"]
)
"""Units that count as units only after a space: a bare letter may be part of a code."""
GAP_SPELLINGS: Final = frozenset(_GAP_SPELLINGS.split())
"""Spellings of missing values, in lower case."""
