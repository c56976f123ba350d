"""Keys of JSON lines that come after the columns are settled: they are admitted, or it is said.

A look at the bytes finds what may be a new key; only where there is one is a line taken apart.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from typing import Final

from kbnn.stream.chunk import shorten
from kbnn.stream.records import find_record_starts

_KEY: Final = re.compile(rb'"((?:[^"\\]|\\.)*)"\s*:')
_MAX_REPORTED_KEYS: Final = 5  # keys that are named
_MAX_SCANNED_CHUNKS: Final = (
    50  # chunks in which something like a new key was looked for, to tell of it
)


class LateKeyDetector:
    """Notices each key of a source that is none of the columns, at its first row."""

    def __init__(
        self,
        name: str,
        notice: Callable[[str], None],
        known: bool,
        admit: Callable[[str], None] | None = None,
    ) -> None:
        """`admit` takes each late key; without it they are told of."""
        self._name = name
        self._admit = admit
        self._notice = notice
        self._why = "none of the known columns" if known else "to learn from it use --features"
        self._columns: frozenset[str] = frozenset()
        self._known_keys: set[bytes] = set()
        self._reported_keys: set[str] = set()
        self._looks = 0

    def set_columns(self, columns: Iterable[str], seen_at: Mapping[str, int]) -> None:
        """These are the columns: a key that was seen meanwhile and is none of them is late."""
        self._columns = frozenset(columns)
        self._known_keys = {json.dumps(name)[1:-1].encode() for name in self._columns}
        for key, row in seen_at.items():
            self._report_key(key, row)

    def scan_lines(self, data: bytes, first_row: int) -> None:
        """Look through complete lines."""
        if self._admit is None and (
            self._looks >= _MAX_SCANNED_CHUNKS or len(self._reported_keys) > _MAX_REPORTED_KEYS
        ):
            return
        new = set(_KEY.findall(data)) - self._known_keys
        if not new:
            return
        self._looks += 1
        self._known_keys |= new
        starts = [*find_record_starts(data, None), len(data)]
        for row, (start, end) in enumerate(pairwise(starts), first_row):
            line = data[start:end]
            if not new.isdisjoint(_KEY.findall(line)):
                for key in _parse_keys(line):
                    self._report_key(key, row)

    def _report_key(self, key: str, row: int) -> None:
        if key in self._columns or key in self._reported_keys:
            return
        if self._admit is not None:
            self._reported_keys.add(key)
            self._admit(key)
            return
        if len(self._reported_keys) > _MAX_REPORTED_KEYS:
            return
        self._reported_keys.add(key)
        if len(self._reported_keys) > _MAX_REPORTED_KEYS:
            self._notice(f"{self._name}: more keys come from row {row:,} on and are ignored")
        else:
            first = f"the key '{shorten(key)}' comes first in row {row:,}"
            self._notice(f"{self._name}: {first} and is ignored ({self._why})")


def _parse_keys(line: bytes) -> list[str]:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return []
    return list(found) if isinstance(found, dict) else []
