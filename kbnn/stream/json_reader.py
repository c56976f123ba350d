"""JSON lines to chunks: one object per line, its keys are the columns.

A chunk is parsed in bulk with the types the schema pins; whatever does not fit them sends the chunk
through a reading line by line, which gives the same values and finds the lines at fault.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.json

from kbnn.errors import DataError
from kbnn.stream.chunk import BoolArray, Chunk, Flaw, Pins, not_utf8, shorten
from kbnn.stream.header import MAX_COLUMNS, check_unique, check_width
from kbnn.stream.latekeys import LateKeys
from kbnn.stream.records import MAX_RECORD, RecordSplitter, line_finder, record_starts
from kbnn.stream.values import number_text

_REMEDY: Final = "use --on-error skip"
_FEWER: Final = "keep those that are needed: jq -c '{a, b, y}' makes such lines"
_WHOLE_LINE: Final = re.compile(rb"^\{.*\}\r?$", re.M)
_ANY_LINE: Final = re.compile(rb"^[^\r\n]", re.M)


class JsonReader:
    """Reads JSON lines; the columns are the keys of the first rows, in order of first sight."""

    def __init__(
        self,
        name: str,
        pieces: Iterator[bytes],
        pins: Pins,
        known: Sequence[str] | None = None,
        check: Callable[[list[str]], None] = lambda keys: None,
        notice: Callable[[str], None] = lambda text: None,
        admit: bool = False,
    ) -> None:
        """`admit`: keys that come late are columns too."""
        self.name = name
        self._admit = admit
        self.columns: list[str] = []
        self.seen_at: dict[str, int] = {}  # the row in which a key was first seen
        self._pins = pins
        self._known = known
        self._check = check
        self._late = LateKeys(name, notice, known is not None, self._meet_late if admit else None)
        self._line = 1
        self._row = 1
        self._settled = False
        self._refusal: tuple[int, DataError] | None = None
        self._chunks = self._all_chunks(pieces)

    def chunks(self) -> Iterator[Chunk]:
        """All lines, as they become complete."""
        return self._chunks

    def _all_chunks(self, pieces: Iterator[bytes]) -> Iterator[Chunk]:
        splitter = RecordSplitter(None)
        for piece in chain(pieces, [b"\n"]):
            data = splitter.feed(piece)
            if data.strip():
                chunk = self._chunk(data)
                if self._refusal is None:
                    yield chunk
                else:
                    row, error = self._refusal
                    yield chunk.slice(0, row - chunk.first_row)
                    raise error
            self._line += data.count(b"\n")
            if splitter.size > MAX_RECORD:
                size = f"{MAX_RECORD >> 20} MiB"
                raise DataError(f"{self.name}:{self._line}: a line is longer than {size}")
        if self._row == 1:
            raise DataError(f"{self.name}: is empty")

    def _chunk(self, data: bytes) -> Chunk:
        data = _blank_lines_emptied(data)
        flaws: dict[int, Flaw] = {}
        if self._settled:
            self._late.look(data, self._row)
        batch = self._read(data) if self._settled else None
        typed: dict[str, BoolArray] = {}
        if batch is None:
            batch, flaws, typed = self._read_lines(data)
        row, self._row = self._row, self._row + batch.num_rows
        line_of = line_finder(data, self._line, None)
        return Chunk(self.name, batch, row, flaws, line_of, typed=typed)

    def settle(self, names: Iterable[str]) -> None:
        """Fix the columns: keys that come later are late."""
        self.columns = list(names)
        self._settled = True
        check_unique(self.columns, self.name)
        self._late.settle(self.columns, self.seen_at)

    def _meet_late(self, key: str) -> None:
        """One more column, from here on; of more than are read no more are."""
        if len(self.columns) < MAX_COLUMNS:
            self.columns.append(key)

    def _meet(self, rows: list[dict[str, Any]]) -> None:
        """Learn the columns from the keys; where columns are known, the first object suffices."""
        for row, found in enumerate(rows, self._row):
            for key in found:
                self.seen_at.setdefault(key, row)
            check_width(len(self.seen_at), self.name, self._pins)
            if found and self._known is not None:
                try:
                    self._check(list(found))
                except DataError as error:
                    self._refusal = (row, error)  # raised in its place, after the rows before it
                self.settle(dict.fromkeys([*found, *self._known]))
                return
        self.columns = list(self.seen_at) or list(self._known or ())

    def _wanted(self) -> list[str]:
        return [name for name in self.columns if self._pins.wants(name)]

    def _read(self, data: bytes) -> pa.RecordBatch | None:
        """Parse in bulk; None when anything is unusual."""
        rows = len(_ANY_LINE.findall(data))
        names = self._wanted()
        if not names or len(_WHOLE_LINE.findall(data)) != rows or not _is_utf8(data):
            return None
        pins = self._pins
        types = [
            pa.float64() if n in pins.numbers else pa.bool_() if n in pins.booleans else pa.string()
            for n in names
        ]
        try:
            table = pyarrow.json.read_json(
                pa.BufferReader(data),
                read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=len(data) + 1),
                parse_options=pyarrow.json.ParseOptions(
                    explicit_schema=pa.schema(list(zip(names, types, strict=True))),
                    unexpected_field_behavior="ignore",
                ),
            )
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            return None
        batches = table.select(names).combine_chunks().to_batches()
        return batches[0] if batches and batches[0].num_rows == rows else None

    def _read_lines(
        self, data: bytes
    ) -> tuple[pa.RecordBatch, dict[int, Flaw], dict[str, BoolArray]]:
        """Parse line by line; a line that is no object becomes an empty row with a flaw.

        Of columns of text it is said which values were numbers.
        """
        starts = [*record_starts(data, None), len(data)]
        flaws: dict[int, Flaw] = {}
        rows: list[dict[str, Any]] = []
        for at, (start, end) in enumerate(pairwise(starts)):
            found = _parse_line(data[start:end], any_width=self._pins.wanted is not None)
            if isinstance(found, Flaw):
                flaws[at] = found
                found = {}
            rows.append(found)
        if not self._settled:
            self._meet(rows)
        chosen = self._settled or len(self.columns) > MAX_COLUMNS
        names = self._wanted() if chosen else self.columns
        columns: list[pa.Array] = []
        typed: dict[str, BoolArray] = {}
        for name in names:
            values = [row.get(name) for row in rows]
            columns.append(_column(values))
            if pa.types.is_string(columns[-1].type):
                which = np.array([_kind(value) == "number" for value in values])
                if which.any():
                    typed[name] = which
        if not columns:  # nothing but flawed lines so far: only the number of rows counts
            columns, names = [pa.nulls(len(rows))], [""]
        return pa.RecordBatch.from_arrays(columns, names=names), flaws, typed


def _blank_lines_emptied(data: bytes) -> bytes:
    """Make lines of spaces empty, so that every reading skips them alike."""
    return (
        re.sub(rb"^[ \t]+$", b"", data, flags=re.M) if b" \n" in data or b"\t\n" in data else data
    )


def _is_utf8(data: bytes) -> bool:
    if data.isascii():
        return True
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _parse_line(line: bytes, *, any_width: bool) -> dict[str, Any] | Flaw:
    if not any_width and line.count(b'":') > MAX_COLUMNS:
        reason = f"has more than {MAX_COLUMNS:,} keys"
        return Flaw("", shorten(line[:99].decode(errors="replace")), reason, _FEWER)
    try:
        text = line.decode()
    except UnicodeDecodeError as error:
        return not_utf8("", error)
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        what = error.msg[:1].lower() + error.msg[1:]
        reason = f"is not valid JSON: {what}, at character {error.colno}"
        return Flaw("", shorten(text.strip()), reason, _REMEDY)
    except (ValueError, RecursionError):
        return Flaw("", shorten(text.strip()), "is not usable JSON", _REMEDY)
    if not isinstance(found, dict):
        return Flaw("", shorten(text.strip()), "is not a JSON object", _REMEDY)
    try:
        # Escapes may spell halves of characters, which no text can hold.
        json.dumps(found, ensure_ascii=False).encode()
    except (UnicodeEncodeError, ValueError, RecursionError):
        return Flaw("", shorten(text.strip()), "holds text that is not Unicode", _REMEDY)
    return found


def _column(values: list[Any]) -> pa.Array:
    """One key's values as a typed column, or as text when the types are mixed or nested."""
    kinds = {_kind(value) for value in values if value is not None}
    if not kinds:
        return pa.nulls(len(values))
    if kinds == {"boolean"}:
        return pa.array(values, pa.bool_())
    if kinds == {"number"}:
        return pa.array([None if v is None else _float(v) for v in values], pa.float64())
    return pa.array([None if v is None else _text(v) for v in values], pa.string())


def _kind(value: object) -> str:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    return "text" if isinstance(value, str) else "nested"


def _float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return number_text(_float(value))
    return value if isinstance(value, str) else json.dumps(value)
