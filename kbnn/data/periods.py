"""Periods of pandas: months, quarters, weeks and other spans of time as one column.

Arrow stores a period as a number that counts periods from 1970, with its frequency in the type or,
where pandas is not imported, in the metadata of the field.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

import numpy as np
import pyarrow as pa

from kbnn.array_types import IntArray
from kbnn.data.clock import DAY_NAMES, MONTH_NAMES

_PERIOD_TYPE: Final = "pandas.period"
_FREQUENCY: Final = re.compile(
    r"\d*(?P<unit>Y|A|Q|M|W|D|B|h|H|min|T|s|S|ms|L|us|U|ns|N)(-(?P<anchor>[A-Z]{3}))?"
)
_UNITS: Final = {
    **{"D": "D", "h": "h", "H": "h", "min": "m", "T": "m", "s": "s", "S": "s"},
    **{"ms": "ms", "L": "ms", "us": "us", "U": "us", "ns": "ns", "N": "ns"},
}
"""Units of numpy by the frequency of pandas."""
_MONTH_CODES: Final = [name[:3].upper() for name in MONTH_NAMES]
_DAY_CODES: Final = [name[:3].upper() for name in DAY_NAMES]


def match_period_frequency(field: pa.Field) -> re.Match[str] | None:
    """Match the frequency of a column of pandas periods; None for other columns."""
    if isinstance(field.type, pa.BaseExtensionType):
        name, stated = field.type.extension_name, _read_extension_metadata(field.type)
    else:
        metadata = field.metadata or {}
        name = metadata.get(b"ARROW:extension:name", b"").decode(errors="replace")
        stated = metadata.get(b"ARROW:extension:metadata", b"")
    if name != _PERIOD_TYPE:
        return None
    try:
        return _FREQUENCY.fullmatch(json.loads(stated)["freq"])
    except (ValueError, KeyError, TypeError):
        return None


def _read_extension_metadata(kind: Any) -> bytes:
    """Return the parameters of an extension type, empty for types that Arrow defines itself."""
    serialize = getattr(kind, "__arrow_ext_serialize__", None)
    return b"" if serialize is None else serialize()


def decode_periods(column: pa.Array, frequency: re.Match[str]) -> pa.Array:
    """Convert months and quarters to texts (2026-03, 2026Q1), other periods to their starts."""
    numbers = getattr(column, "storage", column).cast(pa.int64())
    count = numbers.fill_null(0).to_numpy(zero_copy_only=False)
    missing = numbers.is_null().to_numpy(zero_copy_only=False)
    unit, anchor = frequency["unit"], frequency["anchor"] or ""
    if unit == "M":
        return pa.array(count.astype("datetime64[M]").astype(str), pa.string(), mask=missing)
    if unit == "Q" and anchor in ("", "DEC"):
        texts = [f"{1970 + number // 4}Q{number % 4 + 1}" for number in count.tolist()]
        return pa.array(np.array(texts, dtype=object), pa.string(), mask=missing)
    starts = _find_starts(count, unit, anchor)
    ticks = np.datetime_data(starts.dtype)[0]
    ticks = ticks if ticks in ("s", "ms", "us", "ns") else "s"
    starts = starts.astype(f"datetime64[{ticks}]")
    return pa.array(starts.astype(np.int64), mask=missing).cast(pa.timestamp(ticks))


def _find_starts(count: IntArray, unit: str, anchor: str) -> np.ndarray[Any, Any]:
    """Return the starts of periods; `anchor` is the last month of years, or the last weekday."""
    if unit in ("Q", "Y", "A"):
        late = _MONTH_CODES.index(anchor) - 11 if anchor in _MONTH_CODES else 0
        return np.asarray(count * (3 if unit == "Q" else 12) + late, np.int64).astype("M8[M]")
    if unit == "W":
        last = _DAY_CODES.index(anchor) if anchor in _DAY_CODES else 6
        # Week 1 of those that end on Sunday began 3 days before 1970.
        return np.asarray(7 * (count - 1) - 3 + (last + 1) % 7, np.int64).astype("M8[D]")
    if unit == "B":
        return np.busday_offset(np.zeros(len(count), "M8[D]"), count)
    return count.astype(f"M8[{_UNITS[unit]}]")
