"""How the numbers of a column are written: decimal mark, thousands mark, a sign, a gap.

`1.234,56`, `$14,612.87`, `14.5 %`, `(250.00)` and `-3 km` are numbers to whoever wrote them. The
form is found in the first rows and kept in the schema, so that every later row, whatever chunk it
comes in, is read alike. A text that does not keep to the form is no number: groups have three
digits, and a per cent sign is there or not.

Find out how the numbers of columns are written, and read them.

A form is taken where the first values leave no doubt. `12,5` can only have a decimal comma,
`1,250,000` only a thousands comma. `2,984` could be either: the other columns of the table decide,
and where they are silent it is thousands, for hardly anybody writes every number with exactly three
decimals. What was found is announced with an example, and the options win over all of it.

What may stand with a number: currencies, units, and what is written where there is none.
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
            raise ValueError(
                f"cannot combine decimal mark '{self.decimal}' and thousands mark "
                f"'{self.thousands}'"
            )

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


_NUMBER_WITH_SIGN: Final = re.compile(
    r"\(?[-+]? ?(?P<left>[^\d\s.,'()+-][^\d\s,'()+-]{0,3})? ?[-+]?"
    r"(?P<digits>[.,]?\d(?:[\d.,' ]*\d)?[.,]?)(?P<space> ?)"
    r"(?P<right>[^\d\s.,'()+-][^\s,'()+-]{0,4})?\)?"
)
_POINT_GROUP: Final = re.compile(r"[-+]?[1-9]\d{0,2}\.\d{3}")
MIN_GROUPED_VALUES: Final = 20
"""Numbers of three decimals each, from which on that is worth a word."""
DECIMAL_MARKS: Final = (".", ",")
_POINT_FORMATS: Final = tuple(Form(".", mark) for mark in ("", ",", " ", "'"))
_COMMA_FORMATS: Final = tuple(Form(",", mark) for mark in (".", "", " ", "'"))


class NumberMarks:
    """The marks that the user stated, "" where nothing was said."""

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
        """The forms in question, the likeliest first; `first` is the decimal mark of the table."""
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
    """The form in which most values are numbers, the usual one where none is."""
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
    """Whether a mark stands before three digits wherever it stands, and small numbers have none.

    Decimals of that many digits would be there in all numbers.
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
    """Whether every number has a point before three digits, zeros at the end among them."""
    return (
        len(values) >= MIN_GROUPED_VALUES
        and all(map(_POINT_GROUP.fullmatch, values))
        and any(value.endswith("0") for value in values)
    )


def report_ambiguous_points(
    name: str, values: Sequence[str], notice: Callable[[str], None]
) -> None:
    """Say so when points that are read as decimal might as well be those of thousands."""
    if _has_grouped_digits(values, ".") or _are_all_grouped(values):
        shown = max((value for value in values if "." in value), key=len)
        whole = Form(",", ".").parse_number(shown)
        if whole is not None:
            notice(
                f"column '{shorten(name)}': '{shorten(shown)}' is read as {float(shown):.15g} "
                f"(--thousands . if it is {whole:.15g})"
            )


def add_gap_spelling(form: Form, values: Sequence[str]) -> Form:
    """The form, with the one spelling of a gap that stands among its numbers."""
    others = {value for value in values if form.parse_number(value) is None}
    numbers = sum(form.parse_number(value) is not None for value in values)
    if len(others) != 1 or numbers < 2 or min(others).lower() not in GAP_SPELLINGS:
        return form
    return replace(form, gap=min(others))


def detect_decimal_mark(columns: Iterable[Sequence[str]]) -> str:
    """The decimal mark of which some columns leave no doubt; "" where they disagree."""
    proved = {mark for values in columns for mark in _find_certain_marks(values)}
    return proved.pop() if len(proved) == 1 else ""


def looks_numeric(text: str) -> bool:
    """Whether a text is a number in any form, signs left aside."""
    return any(form.parse_number(text) is not None for form in (*_POINT_FORMATS, *_COMMA_FORMATS))


def _find_certain_marks(values: Sequence[str]) -> set[str]:
    """The decimal marks of which a column leaves no doubt."""
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
    """The one sign that stands with the numbers, "" where there is none or more than one."""
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
    """Say of each form that is not the usual one what it makes of a value, and in which columns."""
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
    """The value that shows a form best; None where all are written as usual."""
    odd = [
        v
        for v in values
        if form.parse_number(v) is not None and PLAIN_FORM.parse_number(v) != form.parse_number(v)
    ]
    return max(odd, key=len) if odd else None


def _suggest_other_mark(form: Form, values: Sequence[str], text: str) -> str:
    """The option for the other reading of values that could be read twice."""
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
    """Trimmed texts, all of them numbers of a form (or null), in the usual form; None if not."""
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
    """The option that makes a number of a text which is none in a column's form."""
    if PLAIN_FORM.parse_number(text) is not None:  # it lacks the sign of all others
        return None
    found = [
        f"--{'decimal' if other.decimal != form.decimal else 'thousands'} "
        f"'{other.decimal if other.decimal != form.decimal else format_mark(other.thousands)}'"
        for other in (Form(".", ","), Form(",", "."), Form(".", " "), Form(".", "'"))
        if other.parse_number(text) is not None
    ]
    return " or ".join(dict.fromkeys(found)) or None


def format_mark(mark: str) -> str:
    """A thousands mark as it is typed."""
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
"""Units that are told from a mere letter by the space before them."""
GAP_SPELLINGS: Final = frozenset(_GAP_SPELLINGS.split())
"""In lower case."""
