"""Watch for features that stop: no value any more, or the same value again and again.

A dead sensor seldom ends a stream: its cells stay empty, or repeat the last value. Both are
reported once per column, with the row where it began, and so is the row where the column comes
back. Rows are looked at in the order of the sources, and the reports are the same however rows are
grouped.

A gap is reported after 200 rows, or more where the column was sparse before: rows in which 20
values were to be expected from the share of rows that had one. Repetition is reported after 1,000
rows of a column of numbers that changed in at least half of the rows before.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kbnn.core.layout import IntArray
from kbnn.core.normal import FloatArray
from kbnn.model.rows import GAP_ROWS, Rows, longest_usual_gap
from kbnn.model.schema import Schema
from kbnn.stream.chunk import shorten
from kbnn.stream.hints import Notice

REPEATED_ROWS: Final = 1000

BoolArray = NDArray[np.bool_]


class _Event(NamedTuple):
    """A column that has stopped, or goes on again, at a position among all rows."""

    position: int
    column: int
    resumed: bool
    row: int  # of the source: the first without activity, or the first with it again
    source: str
    silent: int  # rows without activity after which it is reported
    value: float  # in the row


class _Activity:
    """When each column was last active, and whether that was too long ago."""

    def __init__(self, least: int, patience: Callable[[int, int], int]) -> None:
        """`patience` gives the silent rows that are usual, `least` or more, from active rows among
        all rows.
        """
        self._least = least
        self._patience = patience
        self._position = 0  # rows so far
        self._active = np.zeros(0, np.int64)  # active rows of each column so far
        self._first = np.zeros(0, np.int64)  # position of the first one
        self._last = np.zeros(0, np.int64)  # position of the last one
        self._since = np.zeros(0, np.int64)  # row of the source after the last one
        self._source = np.zeros(0, object)  # and its source
        self._stopped = np.zeros(0, np.bool_)  # reported
        self._resumed = np.zeros(0, np.bool_)  # reported too
        self._waiting = False  # whether a column has stopped and not resumed

    def follow(
        self,
        active: BoolArray,
        broken: BoolArray | None,
        x: FloatArray,
        rows: IntArray,
        source: str,
    ) -> Iterator[_Event]:
        """Look at rows (n, columns); silence also ends where it is `broken`, which is no activity.

        `rows` are their numbers in the source.
        """
        size, width = active.shape
        self._widen(width)
        ends = active if broken is None else active | broken
        acting = np.count_nonzero(active, axis=0)
        if not self._waiting and ends.all():  # the usual case, which live streams have row by row
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
        """Count active rows, so many of each column."""
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
        """The events of one column among these rows."""
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
    """REPEATED_ROWS where half of the rows changed, and 100 at least; else without limit."""
    return REPEATED_ROWS if 2 * changes >= max(rows, GAP_ROWS) else sys.maxsize


class DeadColumns:
    """Reports features that have no value any more, or do not change any more."""

    def __init__(self, notice: Notice) -> None:
        self._notice = notice
        self._names: list[str] = []
        self._places: IntArray = np.zeros(0, np.int64)
        self._numbers: BoolArray = np.zeros(0, np.bool_)
        self._schema: Schema | None = None
        self._before = np.zeros(0)  # the row before
        self._values = _Activity(GAP_ROWS, longest_usual_gap)
        self._changes = _Activity(REPEATED_ROWS, _longest_usual_repetition)

    def look(self, rows: Rows, schema: Schema, source: str) -> None:
        """Look at rows that are learned, in the order of the source."""
        if schema is not self._schema:
            self._find_places(schema)
        x, number = rows.x[:, self._places], rows.number
        there = ~np.isnan(x)
        if schema.id is not None:  # a row that brings a late target has no features
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
        """One column of x for each feature: of a category any, they are missing together."""
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
