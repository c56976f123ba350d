"""Read JSON lines into chunks: one object per line, whose keys are the columns.

A chunk is parsed in bulk with the types of the schema. If it does not fit them, it is parsed line
by line, which gives the same values and finds the bad lines. Keys that first appear after the
columns are fixed are added as columns or reported; a scan of the bytes finds possible new keys, so
that only their lines are parsed again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.json

from kbnn.array_types import BoolArray
from kbnn.data.chunk import Chunk, ReadHints, RowError, encoding_error, shorten
from kbnn.data.csv_records import (
    MAX_COLUMNS,
    MAX_RECORD_BYTES,
    RecordSplitter,
    check_unique_names,
    check_width,
    find_record_starts,
    make_line_finder,
)
from kbnn.data.values import number_to_text
from kbnn.errors import DataError

_JSON_SKIP_HINT: Final = "use --on-error skip"
_FEWER_KEYS_HINT: Final = "keep only the needed keys, for example with jq -c '{a, b, y}'"
_WHOLE_LINE: Final = re.compile(rb"^\{.*\}\r?$", re.M)
_ANY_LINE: Final = re.compile(rb"^[^\r\n]", re.M)


class JsonReader:
    """Read JSON lines; the columns are the keys of the first rows, in order of appearance."""

    def __init__(
        self,
        name: str,
        pieces: Iterator[bytes],
        hints: ReadHints,
        known: Sequence[str] | None = None,
        check: Callable[[list[str]], None] = lambda keys: None,
        notice: Callable[[str], None] = lambda text: None,
        admit: bool = False,
    ) -> None:
        """Open a source; with `admit`, keys that first appear later become columns too."""
        self.name = name
        self._admit = admit
        self.columns: list[str] = []
        self.seen_at: dict[str, int] = {}  # the row in which a key was first seen
        self._hints = hints
        self._known = known
        self._check = check
        self._late = LateKeyDetector(
            name, notice, known is not None, self._add_late_column if admit else None
        )
        self._line = 1
        self._row = 1
        self._has_columns = False
        self._refusal: tuple[int, DataError] | None = None
        self._chunks = self._iter_chunks(pieces)

    def read_chunks(self) -> Iterator[Chunk]:
        """Yield all lines in chunks, as they become complete."""
        return self._chunks

    def _iter_chunks(self, pieces: Iterator[bytes]) -> Iterator[Chunk]:
        splitter = RecordSplitter(None)
        for piece in chain(pieces, [b"\n"]):
            data = splitter.feed(piece)
            if data.strip():
                chunk = self._make_chunk(data)
                if self._refusal is None:
                    yield chunk
                else:
                    row, error = self._refusal
                    yield chunk.slice(0, row - chunk.first_row)
                    raise error
            self._line += data.count(b"\n")
            if splitter.pending_bytes > MAX_RECORD_BYTES:
                size = f"{MAX_RECORD_BYTES >> 20} MiB"
                raise DataError(f"{self.name}:{self._line}: a line is longer than {size}")
        if self._row == 1:
            raise DataError(f"{self.name}: is empty")

    def _make_chunk(self, data: bytes) -> Chunk:
        data = _empty_blank_lines(data)
        row_errors: dict[int, RowError] = {}
        if self._has_columns:
            self._late.scan_lines(data, self._row)
        batch = self._parse_bulk(data) if self._has_columns else None
        typed: dict[str, BoolArray] = {}
        if batch is None:
            batch, row_errors, typed = self._read_lines(data)
        row, self._row = self._row, self._row + batch.num_rows
        line_of = make_line_finder(data, self._line, None)
        return Chunk(self.name, batch, row, row_errors, line_of, typed=typed)

    def fix_columns(self, names: Iterable[str]) -> None:
        """Fix the columns; keys that appear from now on are late."""
        self.columns = list(names)
        self._has_columns = True
        check_unique_names(self.columns, self.name)
        self._late.set_columns(self.columns, self.seen_at)

    def _add_late_column(self, key: str) -> None:
        """Add a column from here on, unless there are MAX_COLUMNS already."""
        if len(self.columns) < MAX_COLUMNS:
            self.columns.append(key)

    def _collect_columns(self, rows: list[dict[str, Any]]) -> None:
        """Collect the columns from the keys; with known columns, the first object suffices."""
        for row, found in enumerate(rows, self._row):
            for key in found:
                self.seen_at.setdefault(key, row)
            check_width(len(self.seen_at), self.name, self._hints)
            if found and self._known is not None:
                try:
                    self._check(list(found))
                except DataError as error:
                    self._refusal = (row, error)  # raised after the rows before it are delivered
                self.fix_columns(dict.fromkeys([*found, *self._known]))
                return
        self.columns = list(self.seen_at) or list(self._known or ())

    def _list_wanted(self) -> list[str]:
        return [name for name in self.columns if self._hints.is_wanted(name)]

    def _parse_bulk(self, data: bytes) -> pa.RecordBatch | None:
        """Parse in bulk; None if any line needs to be parsed by itself."""
        rows = len(_ANY_LINE.findall(data))
        names = self._list_wanted()
        if not names or len(_WHOLE_LINE.findall(data)) != rows or not _is_utf8(data):
            return None
        pins = self._hints
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

    def parse_line(self, line: bytes) -> dict[str, Any] | RowError:
        """Parse one line to the values of its keys, or return its error."""
        return _parse_line(line, any_width=self._hints.wanted is not None)

    def _read_lines(
        self, data: bytes
    ) -> tuple[pa.RecordBatch, dict[int, RowError], dict[str, BoolArray]]:
        """Parse line by line; a line that is not an object becomes an empty row with an error.

        For text columns, also return which values were JSON numbers.
        """
        starts = [*find_record_starts(data, None), len(data)]
        row_errors: dict[int, RowError] = {}
        rows: list[dict[str, Any]] = []
        for at, (start, end) in enumerate(pairwise(starts)):
            found = self.parse_line(data[start:end])
            if isinstance(found, RowError):
                row_errors[at] = found
                found = {}
            rows.append(found)
        if not self._has_columns:
            self._collect_columns(rows)
        chosen = self._has_columns or len(self.columns) > MAX_COLUMNS
        names = self._list_wanted() if chosen else self.columns
        columns: list[pa.Array] = []
        typed: dict[str, BoolArray] = {}
        for name in names:
            values = [row.get(name) for row in rows]
            columns.append(_make_json_column(values))
            if pa.types.is_string(columns[-1].type):
                which = np.array([_json_kind(value) == "number" for value in values])
                if which.any():
                    typed[name] = which
        if not columns:  # only bad lines so far: a dummy column keeps the number of rows
            columns, names = [pa.nulls(len(rows))], [""]
        return pa.RecordBatch.from_arrays(columns, names=names), row_errors, typed


def _empty_blank_lines(data: bytes) -> bytes:
    """Empty lines that hold only spaces, so that both parsers skip them."""
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


def _parse_line(line: bytes, *, any_width: bool) -> dict[str, Any] | RowError:
    if not any_width and line.count(b'":') > MAX_COLUMNS:
        reason = f"has more than {MAX_COLUMNS:,} keys"
        return RowError("", shorten(line[:99].decode(errors="replace")), reason, _FEWER_KEYS_HINT)
    try:
        text = line.decode()
    except UnicodeDecodeError as error:
        return encoding_error("", error)
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        what = error.msg[:1].lower() + error.msg[1:]
        reason = f"is not valid JSON: {what}, at character {error.colno}"
        return RowError("", shorten(text.strip()), reason, _JSON_SKIP_HINT)
    except (ValueError, RecursionError):
        return RowError("", shorten(text.strip()), "is not usable JSON", _JSON_SKIP_HINT)
    if not isinstance(found, dict):
        return RowError("", shorten(text.strip()), "is not a JSON object", _JSON_SKIP_HINT)
    try:
        # Escapes may encode lone surrogates, which cannot be encoded as UTF-8.
        json.dumps(found, ensure_ascii=False).encode()
    except (UnicodeEncodeError, ValueError, RecursionError):
        return RowError(
            "", shorten(text.strip()), "holds text that is not Unicode", _JSON_SKIP_HINT
        )
    return found


def _make_json_column(values: list[Any]) -> pa.Array:
    """Convert the values of one key to a typed column, or to text if mixed or nested."""
    kinds = {_json_kind(value) for value in values if value is not None}
    if not kinds:
        return pa.nulls(len(values))
    if kinds == {"boolean"}:
        return pa.array(values, pa.bool_())
    if kinds == {"number"}:
        return pa.array([None if v is None else _clamp_float(v) for v in values], pa.float64())
    return pa.array([None if v is None else _format_json_value(v) for v in values], pa.string())


def _json_kind(value: object) -> str:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    return "text" if isinstance(value, str) else "nested"


def _clamp_float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


def _format_json_value(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return number_to_text(_clamp_float(value))
    return value if isinstance(value, str) else json.dumps(value)


_KEY: Final = re.compile(rb'"((?:[^"\\]|\\.)*)"\s*:')
_MAX_REPORTED_KEYS: Final = 5  # keys named in notices
_MAX_SCANNED_CHUNKS: Final = 50  # chunks with possible new keys that are searched for notices


class LateKeyDetector:
    """Detects keys of a source that are not columns, at their first row."""

    def __init__(
        self,
        name: str,
        notice: Callable[[str], None],
        known: bool,
        admit: Callable[[str], None] | None = None,
    ) -> None:
        """Watch a source; `admit` is called with each late key, without it they are reported."""
        self._name = name
        self._admit = admit
        self._notice = notice
        self._why = "unknown to the model" if known else "to learn from it, use --features"
        self._columns: frozenset[str] = frozenset()
        self._known_keys: set[bytes] = set()
        self._reported_keys: set[str] = set()
        self._looks = 0

    def set_columns(self, columns: Iterable[str], seen_at: Mapping[str, int]) -> None:
        """Set the columns; keys seen before that are not among them are late."""
        self._columns = frozenset(columns)
        self._known_keys = {json.dumps(name)[1:-1].encode() for name in self._columns}
        for key, row in seen_at.items():
            self._report_key(key, row)

    def scan_lines(self, data: bytes, first_row: int) -> None:
        """Search complete lines for new keys."""
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
            self._notice(f"{self._name}: further new keys from row {row:,} on are ignored")
        else:
            first = f"the key '{shorten(key)}' comes first in row {row:,}"
            self._notice(f"{self._name}: {first} and is ignored ({self._why})")


def _parse_keys(line: bytes) -> list[str]:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return []
    return list(found) if isinstance(found, dict) else []
