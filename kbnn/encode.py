"""Encode rows to arrays: schema and chunk in, Block out, and the flaws of the rows left out.

Nothing here depends on how rows are grouped into chunks. Categories and classes are admitted row by
row, and within a row in the order of the columns; a block is as wide as the schema at its end, with
0 in an indicator column for rows before its category was first seen, which is what a narrower
earlier block stands for. A missing category is NaN in the indicators known by that row.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

import numpy as np
import pyarrow as pa

from kbnn.chunk import Chunk, Flaw, shorten
from kbnn.infer import Notice, kind_of, sample
from kbnn.schema import MAX_CLASSES, Column, Schema
from kbnn.values import (
    FloatArray,
    IntArray,
    Labels,
    labels,
    missing_tokens,
    number_text,
    numbers,
    present,
    truths,
)

OnError = Literal["stop", "skip", "keep"]
_SKIP: Final = "use --on-error skip"


class Block(NamedTuple):
    """Rows in the user's units; NaN is missing."""

    x: FloatArray  # (n, D)
    x_sd: FloatArray | None  # (n, D) stated standard deviations, 0 = exact
    y: FloatArray  # (n, T); the class index in a classification
    weight: FloatArray | None  # (n,) positive
    rows: IntArray  # (n,) row number in the source, from 1
    batch: pa.RecordBatch | None  # the original columns, when asked for


class Encoded(NamedTuple):
    """A block (None: no row left), the flawed rows, and whether the first of them ends it all."""

    block: Block | None
    flaws: dict[int, Flaw]
    stopped: bool


class Encoder:
    """Turns chunks into blocks and lets the schema grow on the way."""

    def __init__(
        self,
        schema: Schema,
        *,
        on_error: OnError = "stop",
        admit: bool = True,
        use_target: bool = True,
        original: bool = False,
        notice: Notice = lambda text: None,
    ) -> None:
        self.schema = schema
        self._on_error = on_error
        self._admit = admit
        self._use_target = use_target
        self._original = original
        self._notice = notice
        self._tokens = pa.array(missing_tokens(schema.missing), pa.string())
        self._rank = {column.name: at for at, column in enumerate(schema.columns)}

    def encode(self, chunk: Chunk) -> Encoded:
        """Encode all rows of a chunk, in order."""
        work = _Work(self, chunk)
        work.read_numbers()
        work.decide_undecided()
        work.read_classes()
        work.read_categories()
        return work.finish()


class _Work:
    """The encoding of one chunk, step by step."""

    def __init__(self, encoder: Encoder, chunk: Chunk) -> None:
        self.encoder = encoder
        self.schema = encoder.schema
        self.chunk = chunk
        self.size = chunk.size
        self.stop = encoder._on_error == "stop"
        self.values: dict[str, FloatArray] = {}
        self.labels: dict[str, Labels] = {}
        self.admitted: dict[int, int] = {}  # place in x -> row of first sight
        self.flaws: dict[int, tuple[int, Flaw]] = {}
        self.good = np.ones(self.size, np.bool_)
        for at, flaw in chunk.flaws.items():
            self._flaw(at, -1, flaw)

    def _flaw(self, at: int, rank: int, flaw: Flaw) -> None:
        """Note a flaw: of several in one row, that of the first column counts."""
        if at not in self.flaws or rank < self.flaws[at][0]:
            self.flaws[at] = (rank, flaw)
        self.good[at : None if self.stop else at + 1] = False

    def _array(self, name: str) -> pa.Array:
        at = self.chunk.batch.schema.get_field_index(name)
        return self.chunk.batch.column(at) if at >= 0 else pa.nulls(self.size)

    def _columns(self) -> list[Column]:
        """The columns that are read at all."""
        unused = {"none"} if self.encoder._use_target else {"none", "target", "weight"}
        return [column for column in self.schema.columns if column.role not in unused]

    def read_numbers(self) -> None:
        """Read numbers and truth values, and note what is none or not finite."""
        for column in self._columns():
            if column.kind in ("number", "boolean"):
                self._read_column(column)

    def _read_column(self, column: Column) -> None:
        name, rank = column.name, self.encoder._rank[column.name]
        read = (numbers if column.kind == "number" else truths)(
            self._array(name), self.encoder._tokens
        )
        what = "a number" if column.kind == "number" else "true or false"
        for at, text in read.unread.items():
            shown = shorten(text)
            reason = f"cannot read '{shown}' as {what}"
            self._flaw(at, rank, Flaw(name, text, reason, f"use --na '{shown}' or --on-error skip"))
        values = read.values
        self._refuse(column, np.isinf(values), values, "{} is not a finite number")
        if column.role == "weight":
            self._refuse(column, ~(values > 0), values, "a weight must be positive, not {}")
        elif column.role == "input_sd":
            self._refuse(column, values < 0, values, "a standard deviation cannot be {}")
            values = np.nan_to_num(values, nan=0.0)
        self.values[name] = values

    def _refuse(self, column: Column, where: np.ndarray, values: FloatArray, reason: str) -> None:
        for at in np.flatnonzero(where).tolist():
            shown = "missing" if np.isnan(values[at]) else number_text(values[at])
            flaw = Flaw(column.name, shown, reason.format(shown), _SKIP)
            self._flaw(at, self.encoder._rank[column.name], flaw)

    def decide_undecided(self) -> None:
        """Settle columns that now have their first value, in row order."""
        if not self.encoder._admit:
            return
        open_columns = [
            column
            for column in self._columns()
            if column.kind == "undecided" and column.role == "feature"
        ]
        held = {c.name: present(self._array(c.name), self.encoder._tokens) for c in open_columns}
        while True:
            firsts = [
                (int(np.argmax(held[c.name] & self.good)), self.encoder._rank[c.name], c)
                for c in open_columns
                if (held[c.name] & self.good).any()
            ]
            if not firsts:
                return
            at, _, column = min(firsts, key=lambda first: first[:2])
            open_columns.remove(column)
            value = self._array(column.name).slice(at, 1)
            column.kind, what = kind_of(sample([value], self.encoder._tokens))
            if column.kind == "ignored":
                self.encoder._notice(f"column '{column.name}' is ignored: it holds {what}")
            elif column.kind in ("number", "boolean"):
                self._read_column(column)

    def _new(self, column: Column, found: Labels, known: dict[str, int]) -> list[tuple[int, int]]:
        """Labels not known yet, each as (first good row that has it, its number)."""
        codes = np.where(self.good, found.codes, -1)
        unknown = [at for at, name in enumerate(found.names) if name not in known]
        firsts = [(int(np.argmax(codes == at)), at) for at in unknown if (codes == at).any()]
        return sorted(firsts)

    def read_classes(self) -> None:
        """Read the target of a classification as class indices; new classes are admitted."""
        if self.schema.task != "classification" or not self.encoder._use_target:
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
                self._flaw(position, self.encoder._rank[column.name], refusal)
        index = np.array([known.get(name, np.nan) for name in found.names] + [np.nan], np.float64)
        self.values[column.name] = index[found.codes]

    def _class_labels(self, column: Column) -> Labels:
        if column.kind == "category":
            return labels(self._array(column.name), self.encoder._tokens)
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
        if self.schema.closed:
            reason = f"{shown} is neither {' nor '.join(self.schema.classes)}"
            return Flaw(column.name, name, reason, "use --task regression or --on-error skip")
        if not self.encoder._admit:
            return Flaw(column.name, name, f"class '{shown}' was never learned", _SKIP)
        if len(self.schema.classes) >= MAX_CLASSES:
            reason = f"'{shown}' is one class too many (there are {MAX_CLASSES} already)"
            return Flaw(column.name, name, reason, _SKIP)
        return None

    def read_categories(self) -> None:
        """Read category columns; new categories are admitted in row order, then column order."""
        events: list[tuple[int, int, Column, str]] = []
        for column in self._columns():
            if column.kind == "category" and column.role == "feature":
                found = labels(self._array(column.name), self.encoder._tokens)
                self.labels[column.name] = found
                known = {name: at for at, name in enumerate(column.categories)}
                rank = self.encoder._rank[column.name]
                new = self._new(column, found, known) if self.encoder._admit else []
                events += [(row, rank, column, found.names[at]) for row, at in new]
        for row, _, column, name in sorted(events, key=lambda event: event[:2]):
            first = not column.categories
            place = self.schema.admit(column, name)
            if place is not None and not first:
                self.admitted[place] = row

    def finish(self) -> Encoded:
        """Put the arrays together."""
        flaws = {at: flaw for at, (_, flaw) in sorted(self.flaws.items())}
        if self.stop and flaws:
            first = min(flaws)
            flaws = {first: flaws[first]}
        keep = self.encoder._on_error == "keep"
        chosen = None if keep or self.good.all() else np.flatnonzero(self.good)
        block = None
        if chosen is None or len(chosen):
            block = self._block(chosen, ~self.good if keep and flaws else None)
        return Encoded(block, flaws, self.stop and bool(flaws))

    def _block(self, chosen: IntArray | None, spoilt: np.ndarray | None) -> Block:
        schema = self.schema
        x = np.zeros((self.size, schema.width))
        places: dict[str, list[int]] = {}
        for at, place in enumerate(schema.layout):
            places.setdefault(place.column, []).append(at)
        for name, own in places.items():
            if name in self.labels:
                self._indicators(x, own, name)
            else:
                x[:, own[0]] = self.values.get(name, np.nan)
        y = np.full((self.size, len(schema.targets)), np.nan)
        for at, name in enumerate(schema.targets):
            y[:, at] = self.values.get(name, np.nan)
        weight = self.values.get(schema.weight) if schema.weight else None
        x_sd = self._x_sd(places)
        if spoilt is not None:
            y[spoilt] = np.nan
            self._spoil(x, spoilt)
            weight = None if weight is None else np.where(spoilt, 1.0, weight)
            if x_sd is not None:
                x_sd[spoilt] = 0.0
        rows = self.chunk.first_row + np.arange(self.size)
        batch = self.chunk.batch if self.encoder._original else None
        if chosen is None:
            return Block(x, x_sd, y, weight, rows, batch)
        return Block(
            x[chosen],
            None if x_sd is None else x_sd[chosen],
            y[chosen],
            None if weight is None else weight[chosen],
            rows[chosen],
            None if batch is None else batch.take(pa.array(chosen)),
        )

    def _indicators(self, x: FloatArray, own: list[int], name: str) -> None:
        """Set the indicator columns of one feature: 1 for the label, NaN when it is missing."""
        found = self.labels[name]
        at = {self.schema.layout[place].category: place for place in own}
        target = np.array([at.get(label, -1) for label in found.names] + [-1], np.int64)[
            found.codes
        ]
        rows = np.flatnonzero(target >= 0)
        x[rows, target[rows]] = 1.0
        missing = np.flatnonzero(found.codes < 0)
        for place in own:
            x[missing[missing >= self.admitted.get(place, 0)], place] = np.nan

    def _spoil(self, x: FloatArray, spoilt: np.ndarray) -> None:
        rows = np.flatnonzero(spoilt)
        for place in range(x.shape[1]):
            x[rows, place] = 0.0
            x[rows[rows >= self.admitted.get(place, 0)], place] = np.nan

    def _x_sd(self, places: dict[str, list[int]]) -> FloatArray | None:
        pairs = [c for c in self.schema.columns if c.role == "input_sd"]
        if not pairs:
            return None
        x_sd = np.zeros((self.size, self.schema.width))
        for column in pairs:
            if column.of in places and column.name in self.values:
                x_sd[:, places[column.of][0]] = self.values[column.name]
        return x_sd
