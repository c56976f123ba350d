"""Tables of plain decimals, the usual content of a text, read by the compiled module.

A plain decimal is [-]digits[.digits]; what it is read as is the double nearest to it, as from any
other reading. Whatever else a text holds (a missing value, a quote, an exponent, an empty line) is
left to others.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kbnn.core.normal import FloatArray
from kbnn.model.rows import MAX_ABS_VALUE, MIN_ABS_VALUE
from kbnn.stream.formats import DELIMITERS

try:
    from kbnn.core import _kernel

    _BUILT = True
except ImportError:  # built without a compiler
    _BUILT = False


def parse_decimals(text: bytes, delimiter: str, columns: int) -> FloatArray | None:
    """Numbers (columns, lines) of a text; None when it is anything else or split otherwise."""
    if not _BUILT or delimiter not in DELIMITERS:
        return None
    return _kernel.parse_decimals(text, delimiter, columns)


def count_lines(text: bytes) -> int:
    """How many newlines there are."""
    return _kernel.count_lines(text) if _BUILT else text.count(b"\n")


def read_plain_row(x: Mapping[str, Any], names: list[str]) -> FloatArray | None:
    """(1, D) of one row with a plain float by each name; None when it is anything else."""
    return _kernel.read_plain_row(x, names, MIN_ABS_VALUE, MAX_ABS_VALUE) if _BUILT else None
