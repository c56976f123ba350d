"""Batches of encoded rows, as passed from a stream to a model, and the result of learning them.

`Rows` holds the arrays of one batch. The module also defines the rule by which a column counts as
silent, and it selects, concatenates, widens, shuffles and splits batches.

Shuffling uses a buffer of fixed size: each further row replaces a random row of the buffer, which
is delivered; at the end the buffer is delivered in random order. One random number is drawn per
row, in row order, so the result does not depend on batches. Held-out rows are chosen by their
number in the source and the seed alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kbnn.array_types import FloatArray, IntArray
from kbnn.data.schema import Schema
from kbnn.data.values import cast_to_text
from kbnn.metrics.samples import hash_row_order
from kbnn.targets.prediction import Forecast

GAP_ROWS: Final = 200
GAP_VALUES: Final = 20
"""A column counts as dead after GAP_ROWS rows without a value in which GAP_VALUES were expected."""


def longest_usual_gap(active: int, rows: int) -> int:
    """Compute the number of rows in which GAP_VALUES values are expected, at least GAP_ROWS.

    The expected gap is GAP_VALUES * max(rows, GAP_ROWS) / active, rounded up, where `active` of
    `rows` rows had a value. The lower bound on rows keeps the first few values from deciding.
    """
    return max(GAP_ROWS, -(-GAP_VALUES * max(rows, GAP_ROWS) // active))


class Rows(NamedTuple):
    """A batch of n rows; NaN means missing."""

    x: FloatArray  # (n, D) as the schema lays it out
    y: FloatArray  # (n, T); the class index where the target is a label
    number: IntArray  # (n,) row number in the source, from 1
    x_sd: FloatArray | None = None  # (n, D) standard deviations of the inputs, 0 = exact
    weight: FloatArray | None = None  # (n,) positive
    unreadable: NDArray[np.bool_] | None = None  # (n,) rows that could not be parsed
    schema: Schema | None = None  # the schema after these rows, which may have added to it
    original: Any = None  # the columns as read (an Arrow batch), if requested
    time: FloatArray | None = None  # (n, 2) instant and local time, see kbnn.data.clock
    id: list[str | None] | None = None  # matches labels to rows, see kbnn.model.pending_labels

    @property
    def count(self) -> int:  # type: ignore[override]  # rows, not equal entries
        """The number of rows."""
        return len(self.number)


class TargetTypeChange(NamedTuple):
    """A switch of an inferred target type, caused by a row whose target does not fit it."""

    old_type: str
    row: int
    value: float
    new_type: str  # the target type from this row on


class RowAlert(NamedTuple):
    """An alert: the first row of an anomaly at which it was detected."""

    at: int  # position in the batch
    target: int
    kind: str  # see kbnn.model.anomaly
    start: int  # number of the row where the anomaly began, estimated; 0 in a fleet
    length: int  # rows since then, of the same key
    surprise: float  # of the row; NaN without a forecast
    score: float  # -log10 of the rate at which so high a score occurs on an ordinary stream
    column: str = ""  # the input, if it is one; `target` then counts on after the targets
    value: float = float("nan")  # of the input
    mean: float = float("nan")  # of the input, predicted from the others
    sd: float = float("nan")
    inputs: str = ""  # the inputs that are farthest from their level, as text


class Anomalies(NamedTuple):
    """How unlikely the targets of n rows were, see kbnn.model.anomaly."""

    surprise: FloatArray  # (n, T) -log10 of the calibrated tail probability
    pit: FloatArray  # (n, T)
    alerts: tuple[RowAlert, ...] = ()


class LearnResult(NamedTuple):
    """The predictions for a batch, made before learning it, and the target type changes in it."""

    forecast: Forecast
    type_changes: tuple[TargetTypeChange, ...] = ()
    anomalies: Anomalies | None = None  # if the model has a monitor


def join_anomalies(parts: Sequence[tuple[int, Anomalies | None]], targets: int) -> Anomalies | None:
    """Concatenate the anomalies of consecutive parts (rows, anomalies); None if no part has any."""
    if not any(part is not None for _, part in parts):
        return None
    first, alerts = 0, []
    arrays: list[tuple[FloatArray, FloatArray]] = []
    for rows, part in parts:
        none = np.full((rows, targets), np.nan)
        arrays.append((none, none) if part is None else part[:2])
        if part is not None:
            alerts += [alert._replace(at=first + alert.at) for alert in part.alerts]
        first += rows
    surprise, pit = (np.concatenate(column) for column in zip(*arrays, strict=True))
    return Anomalies(surprise, pit, tuple(alerts))


def slice_anomalies(anomalies: Anomalies | None, start: int, stop: int) -> Anomalies | None:
    """Return the anomalies of the rows from `start` up to `stop`."""
    if anomalies is None:
        return None
    alerts = [
        alert._replace(at=alert.at - start)
        for alert in anomalies.alerts
        if start <= alert.at < stop
    ]
    return Anomalies(anomalies.surprise[start:stop], anomalies.pit[start:stop], tuple(alerts))


def slice_rows(rows: Rows, start: int, stop: int) -> Rows:
    """Return the rows from `start` up to `stop`, without copying."""
    return Rows(
        rows.x[start:stop],
        rows.y[start:stop],
        rows.number[start:stop],
        None if rows.x_sd is None else rows.x_sd[start:stop],
        None if rows.weight is None else rows.weight[start:stop],
        None if rows.unreadable is None else rows.unreadable[start:stop],
        rows.schema,
        None if rows.original is None else rows.original[start:stop],
        None if rows.time is None else rows.time[start:stop],
        None if rows.id is None else rows.id[start:stop],
    )


def make_fill_values(indicators: FloatArray) -> FloatArray:
    """Return the values of new columns of x in earlier rows: 0 for indicators, NaN for numbers."""
    return np.where(indicators > 0.0, 0.0, np.nan)


def pad_columns(rows: FloatArray, width: int, fill: FloatArray | None = None) -> FloatArray:
    """Cut or pad x to `width` columns; new columns on the right take `fill`, or zeros."""
    known = rows.shape[1]
    if known >= width:
        return rows[:, :width]
    wide = np.zeros((len(rows), width))
    if fill is not None and len(fill) > known:
        wide[:, : len(fill)] = fill[:width]
    wide[:, :known] = rows
    return wide


def take_rows(rows: Rows, order: IntArray) -> Rows:
    """Return the rows at the given positions, in that order."""
    return Rows(
        rows.x[order],
        rows.y[order],
        rows.number[order],
        None if rows.x_sd is None else rows.x_sd[order],
        None if rows.weight is None else rows.weight[order],
        None if rows.unreadable is None else rows.unreadable[order],
        rows.schema,
        None if rows.original is None else rows.original.take(pa.array(order)),
        None if rows.time is None else rows.time[order],
        None if rows.id is None else [rows.id[at] for at in order.tolist()],
    )


def widen_batch(rows: Rows, schema: Schema | None, width: int) -> Rows:
    """Pad x to `width` columns for columns added later: indicators are 0, numbers missing."""
    known = rows.x.shape[1]
    if width == known:
        return rows
    indicators = np.ones(width)
    if schema is not None:
        indicators[:] = [place.category is not None for place in schema.layout]
    x_sd = None if rows.x_sd is None else np.pad(rows.x_sd, ((0, 0), (0, width - known)))
    return rows._replace(x=pad_columns(rows.x, width, make_fill_values(indicators)), x_sd=x_sd)


def concat_rows(parts: Sequence[Rows]) -> Rows:
    """Concatenate batches; the result has the width and the schema of the last one."""
    width = parts[-1].x.shape[1]
    parts = [widen_batch(part, parts[-1].schema, width) for part in parts]
    x_sd = [part.x_sd for part in parts if part.x_sd is not None]
    weight = [part.weight for part in parts if part.weight is not None]
    batches = [part.original for part in parts if part.original is not None]
    time = [part.time for part in parts if part.time is not None]
    unreadable = [
        np.zeros(len(part.y), np.bool_) if part.unreadable is None else part.unreadable
        for part in parts
    ]
    return Rows(
        np.concatenate([part.x for part in parts]),
        np.concatenate([part.y for part in parts]),
        np.concatenate([part.number for part in parts]),
        np.concatenate(x_sd) if x_sd else None,
        np.concatenate(weight) if weight else None,
        np.concatenate(unreadable) if any(part.any() for part in unreadable) else None,
        parts[-1].schema,
        _concat_batches(batches) if batches else None,
        np.concatenate(time) if time else None,
        _concat_ids(parts),
    )


def _concat_ids(parts: Sequence[Rows]) -> list[str | None] | None:
    if all(part.id is None for part in parts):
        return None
    return [name for part in parts for name in part.id or [None] * len(part.y)]


def _concat_batches(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Concatenate Arrow batches, whose extra columns and types may differ between sources."""
    tables = [pa.Table.from_batches([batch]) for batch in batches]
    try:
        table = pa.concat_tables(tables, promote_options="permissive")
    except pa.ArrowException:
        written = [
            pa.table({name: cast_to_text(batch.column(name)) for name in batch.schema.names})
            for batch in batches
        ]
        table = pa.concat_tables(written, promote_options="default")
    return table.combine_chunks().to_batches()[0]


SHUFFLE_ROWS: Final = 16_384


def shuffle_batches(blocks: Iterator[Rows], size: int, seed: int, epoch: int) -> Iterator[Rows]:
    """Yield the rows in random order, in batches as wide as the widest before them."""
    random = np.random.default_rng([seed, epoch])
    held: Rows | None = None
    filling: list[Rows] = []
    room = size
    for block in blocks:
        rest = block
        if room > 0:
            head = slice_rows(block, 0, room)
            rest = slice_rows(block, room, len(block.y))
            filling.append(head)
            room -= len(head.y)
        if len(rest.y):
            if held is None:
                held, filling = concat_rows(filling), []
            slots = (random.random(len(rest.y)) * size).astype(np.int64)
            held, leaving = _exchange_rows(held, rest, slots.tolist())
            yield leaving
    if held is None and filling:
        held = concat_rows(filling)
    if held is not None:
        # One random number per row, as above, so that the order depends on nothing else.
        order = np.argsort(random.random(len(held.y)), kind="stable")
        yield take_rows(held, order)


def _exchange_rows(held: Rows, block: Rows, slots: list[int]) -> tuple[Rows, Rows]:
    """Put each row of `block` into its slot; return the buffer and the replaced rows."""
    size = len(held.y)
    pool = concat_rows([held, block])
    content = list(range(size))
    leaving: list[int] = []
    for row, slot in enumerate(slots, size):
        leaving.append(content[slot])
        content[slot] = row
    return take_rows(pool, np.array(content)), take_rows(pool, np.array(leaving))


_HELD_OUT_SALT: Final = 0x5EED_7E57
"""Makes the held-out rows independent of the rows sampled for figures."""


def is_held_out(number: IntArray, share: float, seed: int) -> NDArray[np.bool_]:
    """Return which rows are held out."""
    return hash_row_order(number.astype(np.float64), seed + _HELD_OUT_SALT) < share


def select_split(
    blocks: Iterator[Rows], share: float, seed: int, *, testing: bool
) -> Iterator[Rows]:
    """Yield the held-out rows (`testing`) or the others; empty batches are dropped."""
    for block in blocks:
        wanted = is_held_out(block.number, share, seed) == testing
        if wanted.all():
            yield block
        elif wanted.any():
            yield take_rows(block, np.flatnonzero(wanted))
