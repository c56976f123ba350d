"""Tables of plain decimals, the usual content of a text, read by the compiled module.

A plain decimal is [-]digits[.digits]; what it is read as is the double nearest to it, as from any
other reading. Whatever else a text holds (a missing value, a quote, an exponent, an empty line) is
left to others.
"""

from __future__ import annotations

from kbnn.core.normal import FloatArray
from kbnn.stream.formats import DELIMITERS

try:
    from kbnn.core import _kernel

    _BUILT = True
except ImportError:  # built without a compiler
    _BUILT = False


def decimals(text: bytes, delimiter: str, columns: int) -> FloatArray | None:
    """Numbers (columns, lines) of a text; None when it is anything else or split otherwise."""
    if not _BUILT or delimiter not in DELIMITERS:
        return None
    return _kernel.decimals(text, delimiter, columns)


def lines(text: bytes) -> int:
    """How many newlines there are."""
    return _kernel.lines(text) if _BUILT else text.count(b"\n")
