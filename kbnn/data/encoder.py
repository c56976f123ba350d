"""Encode chunks as arrays of rows, and report irregular times and features that stop.

A batch is as wide as the schema at its end. An indicator column holds 0 for rows before its
category first appeared, just as in earlier, narrower batches; a missing category is NaN in all
indicators known at that row. Nothing depends on how rows are grouped into chunks.

`ClockMonitor` reports times that go backwards, repeat or leave a gap. `DeadColumns` reports, once
per column, features without values and numbers that no longer change, and when they resume. A gap
is reported after 200 rows, or after as many rows as should have held 20 values in a sparse column.
Repetition is reported after 1,000 rows of a column that changed in at least half of its rows.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from kbnn.array_types import MIN_ABS_VALUE, BoolArray, FloatArray, IntArray
from kbnn.core.kernel import stack_columns
from kbnn.data.batch import GAP_ROWS, Rows, longest_usual_gap, take_rows
from kbnn.data.chunk import Chunk, OnError, RowError, shorten
from kbnn.data.column_types import Notice, SentinelDetector
from kbnn.data.decoder import ChunkDecoder
from kbnn.data.schema import Schema
from kbnn.data.values import MissingSpellings


class ClockMonitor:
    """Reports, once each, times that go backwards, repeat or leave a gap."""

    def __init__(self, schema: Schema, notice: Notice, *, keyed: bool = False) -> None:
        """Watch the clock of a schema; `keyed` rows belong to many series and are not checked."""
        self._clock = None if keyed else schema.clock
        self._by_rows = any(lag.rows for lag in schema.lags)
        self._notice = notice
        self._last = np.nan
        self._reported: set[str] = set()

    def check_chunk(self, time: FloatArray | None, chunk: Chunk) -> None:
        """Check the times of a chunk, in row order."""
        clock = self._clock
        if time is None or clock is None or not clock.step:
            return
        instants = time[:, 0]
        known = np.flatnonzero(np.isfinite(instants))
        if not len(known):
            return
        passed = np.diff(np.concatenate(([self._last], instants[known])))
        self._last = float(instants[known[-1]])
        ways = [("back", passed < 0.0), ("twice", passed == 0.0)]
        if self._by_rows:
            ways.append(("gap", passed > clock.longest_step + 0.5 * clock.step))
        for way, found in ways:
            if way not in self._reported and found.any():
                self._reported.add(way)
                at = int(known[np.argmax(found)])
                self._notice(f"{chunk.source}: {_CLOCK_NOTICES[way].format(chunk.first_row + at)}")


_CLOCK_NOTICES = {
    "back": "the time goes backwards in row {:,}: rows are processed in the given order "
    "(if another series begins there, --key COLUMN keeps one model per series)",
    "twice": "row {:,} has the same time as the row before it: both are processed, in this order",
    "gap": "there is a time gap before row {:,}: lags count rows (--lags 1h,1d count time)",
}


REPEATED_ROWS: Final = 1000


class _Event(NamedTuple):
    """A column that stopped or resumed, at a position among all rows."""

    position: int
    column: int
    resumed: bool
    row: int  # of the source: the first without activity, or the first with it again
    source: str
    silent: int  # rows without activity after which it is reported
    value: float  # in the row


class _Activity:
    """Tracks when each column was last active, and whether that was too long ago."""

    def __init__(self, least: int, patience: Callable[[int, int], int]) -> None:
        """Set the rule: `patience(active, rows)` is the number of silent rows that is usual.

        It is at least `least`, for a column that was active in `active` of `rows` rows.
        """
        self._least = least
        self._patience = patience
        self._position = 0  # rows so far
        self._active = np.zeros(0, np.int64)  # active rows of each column so far
        self._first = np.zeros(0, np.int64)  # position of the first one
        self._last = np.zeros(0, np.int64)  # position of the last one
        self._since = np.zeros(0, np.int64)  # row number in the source after the last one
        self._source = np.zeros(0, object)  # the source of that row
        self._stopped = np.zeros(0, np.bool_)  # whether a stop was reported
        self._resumed = np.zeros(0, np.bool_)  # whether a resumption was reported
        self._waiting = False  # whether a column has stopped and not resumed

    def follow(
        self,
        active: BoolArray,
        broken: BoolArray | None,
        x: FloatArray,
        rows: IntArray,
        source: str,
    ) -> Iterator[_Event]:
        """Process rows (n, columns) and yield the columns that stop or resume.

        A silent period also ends where `broken` is true, which does not count as activity. `rows`
        are the row numbers in the source.
        """
        size, width = active.shape
        self._widen(width)
        ends = active if broken is None else active | broken
        acting = np.count_nonzero(active, axis=0)
        if not self._waiting and ends.all():  # fast path for the usual case
            self._count(active, acting)
            self._position += size
            self._last.fill(self._position - 1)
            return
        ending = np.count_nonzero(ends, axis=0)
        before = self._position - 1 - self._last
        fresh = before == 0
        self._since[fresh], self._source[fresh] = rows[0], source
        possible = ~self._stopped & (size - ending + before >= self._least)
        possible &= self._active + acting > 0
        back = self._stopped & ~self._resumed & (acting > 0)
        for column in np.flatnonzero(possible | back).tolist():
            yield from self._report(column, active[:, column], ends[:, column], x, rows, source)
        self._waiting = bool(np.any(self._stopped & ~self._resumed))
        self._count(active, acting)
        some = np.flatnonzero(ending)
        last = size - 1 - np.argmax(ends[::-1, some], axis=0)
        self._last[some] = self._position + last
        inside = last < size - 1
        self._since[some[inside]] = rows[last[inside] + 1]
        self._source[some[inside]] = source
        self._position += size

    def _count(self, active: BoolArray, acting: IntArray) -> None:
        """Add the active rows of each column, and note the first one."""
        begun = (self._active == 0) & (acting > 0)
        self._active += acting
        if begun.any():
            self._first[begun] = self._position + np.argmax(active[:, begun], axis=0)

    def _widen(self, width: int) -> None:
        more = width - len(self._active)
        if more > 0:
            for name in ("_active", "_first", "_since"):
                setattr(self, name, np.append(getattr(self, name), np.zeros(more, np.int64)))
            self._last = np.append(self._last, np.full(more, self._position - 1))
            self._source = np.append(self._source, np.full(more, "", object))
            for name in ("_stopped", "_resumed"):
                setattr(self, name, np.append(getattr(self, name), np.zeros(more, np.bool_)))

    def _report(
        self,
        column: int,
        active: BoolArray,
        ends: BoolArray,
        x: FloatArray,
        rows: IntArray,
        source: str,
    ) -> Iterator[_Event]:
        """Yield the events of one column among these rows."""
        values, start, silent = x[:, column], 0, 0
        if not self._stopped[column]:
            at = np.flatnonzero(ends)
            places = np.concatenate(([self._last[column]], self._position + at))
            after = np.concatenate((places[1:], [self._position + len(ends)]))
            counted = self._active[column] + np.concatenate(([0], np.cumsum(active)[at]))
            first = self._first[column]
            if not self._active[column]:
                first = self._position + int(np.argmax(active))
            for gap in np.flatnonzero(after - places - 1 >= self._least).tolist():
                if not counted[gap]:
                    continue
                total = int(places[gap] - first + 1)
                silent = self._patience(int(counted[gap]), total)
                if after[gap] - places[gap] - 1 >= silent:
                    break
            else:
                return
            self._stopped[column] = True
            since, its_source = int(self._since[column]), self._source[column]
            if gap:
                start = int(at[gap - 1]) + 1
                since, its_source = int(rows[start]), source
            position = int(places[gap]) + silent
            yield _Event(position, column, False, since, its_source, silent, float(values[start]))
        again = start + np.flatnonzero(active[start:])
        if len(again):
            self._resumed[column] = True
            row = int(again[0])
            position = self._position + row
            yield _Event(position, column, True, int(rows[row]), source, silent, float(values[row]))


def _longest_usual_repetition(changes: int, rows: int) -> int:
    """Return REPEATED_ROWS if at least half of the rows, and 100, changed; else no limit."""
    return REPEATED_ROWS if 2 * changes >= max(rows, GAP_ROWS) else sys.maxsize


class DeadColumns:
    """Reports features that no longer have values or no longer change."""

    def __init__(self, notice: Notice) -> None:
        self._notice = notice
        self._names: list[str] = []
        self._places: IntArray = np.zeros(0, np.int64)
        self._numbers: BoolArray = np.zeros(0, np.bool_)
        self._schema: Schema | None = None
        self._before = np.zeros(0)  # the previous row
        self._values = _Activity(GAP_ROWS, longest_usual_gap)
        self._changes = _Activity(REPEATED_ROWS, _longest_usual_repetition)

    def look(self, rows: Rows, schema: Schema, source: str) -> None:
        """Check rows that are learned, in the order of the source."""
        if schema is not self._schema:
            self._find_places(schema)
        x, number = rows.x[:, self._places], rows.number
        there = ~np.isnan(x)
        if schema.id is not None:  # a row with a late target has no features
            with_features = there.any(axis=1)
            x, there, number = x[with_features], there[with_features], number[with_features]
        if not x.size:
            return
        new = x.shape[1] - len(self._before)
        if new:
            self._before = np.append(self._before, np.full(new, np.nan))
        earlier = np.concatenate((self._before[None], x[:-1]))
        self._before = x[-1].copy()
        compared = there & ~np.isnan(earlier) & self._numbers
        changed = compared & (x != earlier)
        events = [
            *((event, False) for event in self._values.follow(there, None, x, number, source)),
            *(
                (event, True)
                for event in self._changes.follow(changed, ~compared, x, number, source)
            ),
        ]
        for event, repeated in sorted(events, key=lambda pair: (pair[0][:3], pair[1])):
            self._notice(self._describe(event, repeated))

    def _find_places(self, schema: Schema) -> None:
        """Find one column of x per feature; the indicators of a category are missing together."""
        kinds = {column.name: column.kind for column in schema.columns if column.role == "feature"}
        first: dict[str, int] = {}
        for at, place in enumerate(schema.layout):
            if place.column in kinds:
                first.setdefault(place.column, at)
        self._schema = schema
        self._names += [name for name in first if name not in self._names]
        self._places = np.array([first[name] for name in self._names], np.int64)
        self._numbers = np.array([kinds[name] == "number" for name in self._names], np.bool_)

    def _describe(self, event: _Event, repeated: bool) -> str:
        where = f"{event.source}, row {event.row:,}: column '{shorten(self._names[event.column])}'"
        if event.resumed:
            return f"{where} {'changes' if repeated else 'has values'} again"
        if repeated:
            return (
                f"{where} repeats the value {event.value:.6g} from here on ({event.silent:,} rows "
                "so far). Check where it comes from; predictions continue with it."
            )
        return (
            f"{where} has no value from here on ({event.silent:,} rows so far). Check where it "
            "comes from; predictions continue without it."
        )


class EncodedChunk(NamedTuple):
    """The encoded rows (None if none is left), the row errors, and whether to stop at the first."""

    rows: Rows | None
    row_errors: dict[int, RowError]
    stopped: bool


class ChunkEncoder:
    """Encodes chunks as batches and adds new columns and labels to the schema."""

    def __init__(
        self,
        schema: Schema,
        *,
        on_error: OnError = "stop",
        admit: bool = True,
        use_target: bool = True,
        original: bool = False,
        late: bool = False,
        keyed: bool = False,
        notice: Notice = lambda text: None,
    ) -> None:
        self.schema = schema
        self._sent_schema = schema.copy()  # attached to rows, so it must never be modified
        self._size = measure_schema(schema)  # size of the schema that was last attached
        self._on_error = on_error
        self._admit = admit
        self._use_target = use_target
        self._original = original
        self._late = late
        self._notice = notice
        self._tiny: set[str] = set()
        self._watch = ClockMonitor(schema, notice, keyed=keyed)
        self._sentinels = SentinelDetector(notice)
        self._dead_columns = DeadColumns(notice)
        self._missing = MissingSpellings(schema.missing)

    def encode(self, chunk: Chunk) -> EncodedChunk:
        """Encode all rows of a chunk, in order."""
        found = ChunkDecoder(
            self.schema,
            chunk,
            self._missing,
            stop=self._on_error == "stop",
            admit=self._admit,
            use_target=self._use_target,
            late=self._late,
            notice=self._notice,
        )
        found.read_numbers()
        self._report_tiny_values(found.tiny_columns)
        self._watch.check_chunk(found.time, chunk)
        found.decide_kinds()
        found.read_classes()
        found.read_categories()
        if self._admit:
            self._sentinels.check_chunk(found.values, found.good, chunk)
        row_errors = found.row_errors
        stopped = found.stop and bool(row_errors)
        size = measure_schema(self.schema)
        if size != self._size:
            self._sent_schema, self._size = self.schema.copy(), size
        if self._on_error == "keep":
            rows = self._make_rows(found, None, ~found.good if row_errors else None)
        elif found.good.all():
            rows = self._make_rows(found, None, None)
        elif found.good.any():
            rows = self._make_rows(found, np.flatnonzero(found.good), None)
        else:
            return EncodedChunk(None, row_errors, stopped)
        if self._admit:
            self._dead_columns.look(rows, self._sent_schema, chunk.source)
        return EncodedChunk(rows, row_errors, stopped)

    def _report_tiny_values(self, names: set[str]) -> None:
        """Report, once per column, that it has values so small that they count as 0."""
        for name in sorted(names - self._tiny):
            self._notice(f"column '{name}': values closer to 0 than {MIN_ABS_VALUE:g} count as 0")
        self._tiny |= names

    def _make_rows(
        self, found: ChunkDecoder, chosen: IntArray | None, unreadable: BoolArray | None
    ) -> Rows:
        rows = _assemble_rows(found, unreadable, found.chunk.batch if self._original else None)
        rows = rows._replace(schema=self._sent_schema)
        return rows if chosen is None else take_rows(rows, chosen)


def measure_schema(schema: Schema) -> tuple[int, ...]:
    """Return a tuple that changes whenever the schema grows."""
    labels = sum(len(column.categories) for column in schema.columns)
    bare = sum(place.category is None for place in schema.layout)
    decided = sum(column.kind != "undecided" for column in schema.columns)
    return schema.width, bare, labels, decided, len(schema.classes)


def _assemble_rows(
    found: ChunkDecoder, unreadable: BoolArray | None, original: pa.RecordBatch | None
) -> Rows:
    """Assemble the arrays of a batch; all values of unreadable rows are missing."""
    schema, size = found.schema, found.size
    places: dict[str, list[int]] = {}
    for at, place in enumerate(schema.layout):
        places.setdefault(place.column, []).append(at)
    missing = np.full(size if places.keys() - found.values.keys() else 0, np.nan)
    x = stack_columns([found.values.get(place.column, missing) for place in schema.layout], size)
    for name in found.labels.keys() & places.keys():
        _fill_indicators(found, x, places[name], name)
    if schema.clock is not None and found.time is not None:
        x[:, [places[name][0] for name in schema.clock.names]] = schema.clock.encode_times(
            found.time
        )
    y = np.full((size, len(schema.targets)), np.nan)
    for at, name in enumerate(schema.targets):
        y[:, at] = found.values.get(name, np.nan)
    weight = found.values.get(schema.weight) if schema.weight else None
    x_sd = _assemble_input_sd(found, places)
    if unreadable is not None:
        rows = np.flatnonzero(unreadable)
        for at in range(schema.width):
            x[rows, at] = np.where(rows >= found.admitted.get(at, 0), np.nan, 0.0)
        y[rows] = np.nan
        weight = None if weight is None else np.where(unreadable, 1.0, weight)
        if x_sd is not None:
            x_sd[rows] = 0.0
    number = found.chunk.first_row + np.arange(size)
    return Rows(
        x,
        y,
        number,
        x_sd,
        weight,
        unreadable,
        original=original,
        time=found.time,
        id=found.read_ids(),
    )


def _fill_indicators(found: ChunkDecoder, x: FloatArray, own: list[int], name: str) -> None:
    """Set the indicator columns of one feature: 1 for its label, NaN if it is missing."""
    names, codes = found.labels[name]
    at = {found.schema.layout[place].category: place for place in own}
    x[:, own] = 0.0
    targets = np.array([at.get(label, -1) for label in names] + [-1], np.int64)[codes]
    rows = np.flatnonzero(targets >= 0)
    x[rows, targets[rows]] = 1.0
    missing = np.flatnonzero(codes < 0)
    for place in own:
        x[missing[missing >= found.admitted.get(place, 0)], place] = np.nan


def _assemble_input_sd(found: ChunkDecoder, places: dict[str, list[int]]) -> FloatArray | None:
    """Assemble the standard deviations of the inputs, 0 for inputs without one."""
    pairs = [column for column in found.schema.columns if column.role == "input_sd"]
    if not pairs:
        return None
    x_sd = np.zeros((found.size, found.schema.width))
    for column in pairs:
        if column.of in places and found.schema.get_column(column.of).kind == "number":
            x_sd[:, places[column.of][0]] = found.values[column.name]
    return x_sd
