"""Read the columns of a chunk, note what is wrong with its rows, and let the schema grow.

Everything happens in row order, and within a row in the order of the columns, so that kinds,
classes and categories come out the same however rows are grouped into chunks.
"""

from __future__ import annotations

from typing import Final, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kbnn.core.engine import beyond
from kbnn.model.form import USUAL
from kbnn.model.rows import LARGEST, SMALLEST
from kbnn.model.schema import MAX_CLASSES, MAX_LATE, Column, Kind, Schema
from kbnn.stream.chunk import Chunk, Flaw, shorten
from kbnn.stream.forms import Stated, remedy, tell_forms
from kbnn.stream.hashing import hashed
from kbnn.stream.hints import Notice, tell_column
from kbnn.stream.kinds import kind_of, sample, written
from kbnn.stream.times import times
from kbnn.stream.values import (
    MAX_LABEL,
    FloatArray,
    Labels,
    Read,
    are_usual,
    labels,
    number_text,
    numbers,
    present,
    texts,
    truths,
)
from kbnn.task.table import TASKS, otherwise

OnError = Literal["stop", "skip", "keep"]
_SKIP: Final = "use --on-error skip"


class Admission:
    """What one chunk holds; the steps are called in the order they are written."""

    def __init__(
        self,
        schema: Schema,
        chunk: Chunk,
        tokens: pa.Array,
        *,
        stop: bool,
        admit: bool,
        use_target: bool,
        late: bool = False,
        notice: Notice,
    ) -> None:
        self.schema = schema
        self.chunk = chunk
        self.size = chunk.size
        self.stop = stop
        self.values: dict[str, FloatArray] = {}
        self.labels: dict[str, Labels] = {}
        self.time: FloatArray | None = None
        self.admitted: dict[int, int] = {}  # place in x -> row of first sight
        self.flaws: dict[int, tuple[int, Flaw]] = {}  # row -> (position of the column, flaw)
        self.good = np.ones(self.size, np.bool_)
        self._tokens = tokens
        self._admit = admit
        self._use_target = use_target
        self._late = late
        self._notice = notice
        self.tiny: set[str] = set()  # columns with values that count as 0
        self._places = {name: at for at, name in enumerate(chunk.batch.schema.names)}
        self._rank = {column.name: at for at, column in enumerate(schema.columns)}
        for at, flaw in chunk.flaws.items():
            self._flaw(at, -1, flaw)

    def _flaw(self, at: int, rank: int, flaw: Flaw) -> None:
        """Note a flaw: of several in one row, that of the first column counts."""
        if at not in self.flaws or rank < self.flaws[at][0]:
            self.flaws[at] = (rank, flaw)
        self.good[at : None if self.stop else at + 1] = False

    def _array(self, name: str) -> pa.Array:
        at = self._places.get(name)
        return pa.nulls(self.size) if at is None else self.chunk.batch.column(at)

    def _columns(self) -> list[Column]:
        """The columns that are read at all."""
        unused = {"none"} if self._use_target else {"none", "target", "weight"}
        return [column for column in self.schema.columns if column.role not in unused]

    def read_numbers(self) -> None:
        """Read numbers and truth values, and note what is none or not finite.

        Of plain decimals none is missing, and none is beyond what can be reckoned with.
        """
        table = self.chunk.table if are_usual(self._tokens) else None
        for column in self._columns():
            at = self._places.get(column.name)
            any_size = column.kind == "number" and column.role in ("feature", "target")
            if table is not None and at is not None and any_size:
                self.values[column.name] = table[at]
            elif column.kind in ("number", "boolean"):
                self._read_column(column)
            elif column.kind == "time":
                self._read_clock(column)

    def _read_clock(self, column: Column) -> None:
        clock = self.schema.clock
        assert clock is not None
        read = times(self._array(column.name), clock.unit, clock.day_first, self._tokens)
        for at, text in read.unread.items():
            shown = shorten(text)
            reason = f"cannot read '{shown}' as a point of time"
            remedy = f"use --na '{shown}' or --on-error skip"
            self._flaw(at, self._rank[column.name], Flaw(column.name, text, reason, remedy))
        self.time = read.values

    def _read_column(self, column: Column) -> None:
        name, rank = column.name, self._rank[column.name]
        if column.kind == "number":
            sign = f" with '{column.form.sign}'" if column.form.sign else ""
            read, what = self._numbers(column), f"a number{sign}"
        else:
            read, what = truths(self._array(name), self._tokens), "true or false"
        for at, text in read.unread.items():
            reason = f"cannot read '{shorten(text)}' as {what}"
            self._flaw(at, rank, Flaw(name, text, reason, self._remedy(column, text)))
        values = read.values
        large, small = beyond(values, SMALLEST, LARGEST)
        if large:
            self._refuse(column, np.isinf(values), values, "{} is not a finite number")
            vast = np.isfinite(values) & (np.abs(values) > LARGEST)
            self._refuse(column, vast, values, "{} is too large to reckon with")
        if column.role == "weight" and self.schema.id is not None:
            values = np.nan_to_num(values, nan=1.0)  # it stands in the row that the target is for
        if column.role == "weight":
            self._refuse(column, ~(values > 0), values, "a weight must be positive, not {}")
        elif column.role == "input_sd":
            self._refuse(column, values < 0, values, "a standard deviation cannot be {}")
            values = np.nan_to_num(values, nan=0.0)
        if small and column.role != "weight":
            self.tiny.add(name)
            values = np.where(np.abs(values) < SMALLEST, 0.0, values)
        self.values[name] = values

    def _numbers(self, column: Column) -> Read:
        """The texts of a column in its form; a number that was never text means what it means."""
        array = self._array(column.name)
        read = numbers(array, self._tokens, column.form)
        typed = self.chunk.typed.get(column.name)
        if typed is None or column.form.usual:
            return read
        plain = numbers(array, self._tokens)
        unread = {at: text for at, text in read.unread.items() if not typed[at]}
        return Read(np.where(typed, plain.values, read.values), unread)

    def _remedy(self, column: Column, text: str) -> str:
        """What to do about a text that is no number, or neither true nor false."""
        shown, name = shorten(text), shorten(column.name)
        marks = remedy(text, column.form) if column.kind == "number" and self._admit else None
        if marks is not None:
            return f"use {marks}, or --on-error skip"
        plain = USUAL.number(text) is not None
        code = (not plain and any(map(str.isdigit, text))) or (text.isupper() and len(text) <= 3)
        if self._admit and column.role == "feature" and code:
            return (
                f"use --categorical {name} if these are labels, --na '{shown}' or --on-error skip"
            )
        return f"use --na '{shown}' or --on-error skip"

    def _refuse(
        self, column: Column, where: npt.NDArray[np.bool_], values: FloatArray, reason: str
    ) -> None:
        for at in np.flatnonzero(where).tolist():
            shown = "missing" if np.isnan(values[at]) else number_text(values[at])
            flaw = Flaw(column.name, shown, reason.format(shown), _SKIP)
            self._flaw(at, self._rank[column.name], flaw)

    def ids(self) -> list[str | None] | None:
        """The id of each row, None where the stream has none."""
        name = self.schema.id
        return None if name is None else texts(self._array(name), self._tokens)

    def decide_undecided(self) -> None:
        """Settle columns that now have their first value, in row order; new ones come last."""
        if not self._admit:
            return
        waiting = {
            column.name: (self._rank[column.name], column.name)
            for column in self._columns()
            if column.kind == "undecided" and column.role == "feature"
        }
        new = [name for name in self._places if name not in self._rank] if self._late else []
        waiting.update((name, (len(self._rank), name)) for name in new if name)
        held = {name: present(self._array(name), self._tokens) for name in waiting}
        while True:
            firsts = [
                (int(np.argmax(held[name] & self.good)), rank)
                for name, rank in waiting.items()
                if (held[name] & self.good).any()
            ]
            if not firsts:
                return
            at, (_, name) = min(firsts)
            del waiting[name]
            seen = sample([self._array(name).slice(at, 1)], self._tokens)
            marks = Stated(self.schema.decimal, self.schema.thousands)
            form = written(seen, marks)
            kind, what = kind_of(seen, form)
            column = self._settled(name, kind, what, at)
            if kind == "number" and column.kind == "number":
                column.form = form
                tell_forms({name: form}, {name: seen.present}, marks, self._notice)
            tell_column(column, seen, self._notice)
            if column.kind in ("number", "boolean"):
                self._read_column(column)

    def _settled(self, name: str, kind: Kind, what: str, at: int) -> Column:
        """A column whose kind is known now, a new one among them."""
        if name in self._rank:
            column = self.schema.column(name)
            column.kind = kind
            if kind == "ignored":
                self._notice(f"column '{name}' is ignored: it holds {what}")
            return column
        first = f"{self.chunk.source}: the column '{shorten(name)}' comes first in row"
        first = f"{first} {self.chunk.first_row + at:,}"
        if kind != "ignored" and self.schema.late >= MAX_LATE:
            kind, what = "ignored", f"one more than the {MAX_LATE} that may come late"
            self._notice(f"{first} and is ignored: it is {what}")
        elif kind == "ignored":
            self._notice(f"{first} and is ignored: it holds {what}")
        else:
            self._notice(f"{first}: it is learned from now on (--features names those to learn)")
        self._rank[name] = len(self._rank)
        return self.schema.add_late(name, kind)

    def _new(self, column: Column, found: Labels, known: dict[str, int]) -> list[tuple[int, int]]:
        """Labels not known yet, each as (first good row that has it, its number)."""
        codes = np.where(self.good, found.codes, -1)
        unknown = [at for at, name in enumerate(found.names) if name not in known]
        firsts = [(int(np.argmax(codes == at)), at) for at in unknown if (codes == at).any()]
        return sorted(firsts)

    def read_classes(self) -> None:
        """Read the target of a classification as class indices; new classes are admitted."""
        if not TASKS[self.schema.task].labels or not self._use_target:
            return
        column = self.schema.column(self.schema.targets[0])
        found = self._class_labels(column)
        known = {name: at for at, name in enumerate(self.schema.classes)}
        for row, at in self._new(column, found, known):
            if self.stop and not self.good[row]:
                break
            name = found.names[at]
            refusal = self._refusal(column, name)
            if refusal is None:
                known[name] = len(self.schema.classes)
                self.schema.classes.append(name)
                continue
            for position in np.flatnonzero((found.codes == at) & self.good).tolist():
                self._flaw(position, self._rank[column.name], refusal)
        index = np.array([known.get(name, np.nan) for name in found.names] + [np.nan], np.float64)
        self.values[column.name] = index[found.codes]

    def _class_labels(self, column: Column) -> Labels:
        if column.kind == "category":
            return labels(self._array(column.name), self._tokens)
        values = self.values[column.name]
        names = ["false", "true"] if column.kind == "boolean" else []
        codes = np.full(self.size, -1, np.int64)
        there = ~np.isnan(values)
        if column.kind == "boolean":
            codes[there] = values[there].astype(np.int64)
            return Labels(names, codes)
        unique, inverse = np.unique(values[there], return_inverse=True)
        codes[there] = inverse
        return Labels([number_text(value) for value in unique.tolist()], codes)

    def _refusal(self, column: Column, name: str) -> Flaw | None:
        """Why a class cannot be admitted; None when it can."""
        shown = shorten(name)
        if len(name) > MAX_LABEL:
            reason = f"a text of {len(name):,} characters is no class, {MAX_LABEL} are the most"
            return Flaw(column.name, name, reason, _SKIP)
        if self.schema.closed:
            reason = f"{shown} is neither {' nor '.join(self.schema.classes)}"
            value = float(name) if column.kind == "number" else None
            return Flaw(column.name, name, reason, otherwise(value))
        if not self._admit:
            return Flaw(column.name, name, f"class '{shown}' was never learned", _SKIP)
        if len(self.schema.classes) >= MAX_CLASSES:
            reason = f"'{shown}' would be class {MAX_CLASSES + 1}, {MAX_CLASSES} are the most"
            return Flaw(column.name, name, reason, _SKIP)
        return None

    def _category_labels(self, column: Column) -> Labels:
        """The labels of a feature; a text too long to be one counts as missing."""
        found = labels(self._array(column.name), self._tokens)
        if column.buckets:
            return hashed(found, column.buckets)
        long = [at for at, name in enumerate(found.names) if len(name) > MAX_LABEL]
        if long:
            found.codes[np.isin(found.codes, long)] = -1
            self._notice(
                f"{self.chunk.source}: column '{shorten(column.name)}': a text of more than "
                f"{MAX_LABEL} characters is no category: read as missing"
            )
        return found

    def read_categories(self) -> None:
        """Read category columns; new categories are admitted in row order, then column order."""
        events: list[tuple[int, int, Column, str]] = []
        for column in self._columns():
            if column.kind == "category" and column.role == "feature":
                found = self._category_labels(column)
                self.labels[column.name] = found
                known = {name: at for at, name in enumerate(column.categories)}
                rank = self._rank[column.name]
                new = self._new(column, found, known) if self._admit else []
                events += [(row, rank, column, found.names[at]) for row, at in new]
        full: dict[str, None] = {}
        for row, _, column, name in sorted(events, key=lambda event: event[:2]):
            first = not column.categories
            place = self.schema.admit(column, name)
            if place is None:
                full[column.name] = None
            if place is not None and (column.late or not first):
                self.admitted[place] = row
        for name in full:
            shown, most = shorten(name), self.schema.max_categories
            self._notice(
                f"column '{shown}' has more than {most} values: those after the first {most} are "
                f"not told apart (--hash {shown}:32 gives each its share of 32 inputs)"
            )
