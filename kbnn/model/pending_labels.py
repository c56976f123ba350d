"""Pending labels: rows are predicted when they arrive and learned when their label arrives.

A row without a target is predicted, and its inputs are stored under its id. When a later row with
the same id brings the target, the stored inputs are learned with it, and the stored forecast is
scored: the model learns as if rows had arrived in the order of their labels.

A row without a target replaces a pending row with the same id. A target without a pending row (it
came before its row, or twice, or its row was evicted) is learned if its row has inputs of its own,
and only counted otherwise. When too many rows are pending, the oldest is evicted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

import numpy as np

from kbnn.array_types import FloatArray
from kbnn.core.reference import UNLABELLED
from kbnn.data.batch import (
    LearnResult,
    Rows,
    TargetTypeChange,
    make_fill_values,
    pad_columns,
    slice_rows,
)
from kbnn.distributions.predictive import PARAM_COUNT
from kbnn.targets.base import make_empty_forecast
from kbnn.targets.prediction import Forecast, join_forecasts, select_rows
from kbnn.wording import format_count, format_rows

COUNTER_NAMES: Final = ("found", "given_up", "replaced", "strangers")


class PendingRow(NamedTuple):
    """One row that waits for its target."""

    x: FloatArray  # (1, D) with the columns known at that time
    x_sd: FloatArray  # (1, D), or without columns
    weight: float
    forecast: Forecast
    serial: int = 0  # ascending from the oldest to the newest

    @property
    def has_forecast(self) -> bool:
        """Whether it was predicted; rows of the warm-up are not."""
        return bool(np.isfinite(self.forecast.mean).all()) and (
            self.forecast.mean.size > 0 or self.forecast.probability.size > 0
        )


class PendingRows:
    """Pending rows, oldest first, and counts of rows that are no longer pending."""

    def __init__(self, most: int) -> None:
        self.max_rows = most
        self.rows: dict[str, PendingRow] = {}
        self.found = 0  # rows whose target arrived
        self.given_up = 0  # rows evicted because too many were pending
        self.replaced = 0  # rows replaced by another row of the same id
        self.strangers = 0  # targets without a pending row and without inputs of their own
        self._changed: list[tuple[str, PendingRow | None]] = []  # since the mark: id, old row

    @property
    def counts(self) -> dict[str, int]:
        """Counts of rows that are no longer pending, by name."""
        return {name: getattr(self, name) for name in COUNTER_NAMES}

    def format_summary(self) -> str:
        """Format how many rows are pending, and what became of the others."""
        words = {
            "found": "matched with a late target",
            "given_up": "evicted",
            "replaced": "replaced by another row of the same id",
            "strangers": "targets without a pending row",
        }
        rest = [f"{format_count(self.counts[name])} {text}" for name, text in words.items()
                if self.counts[name]]  # fmt: skip
        return ", ".join([f"{format_rows(len(self.rows))} for a target", *rest])

    def mark(self) -> tuple[int, ...]:
        """Return what `reset` needs to undo later changes; only the last mark is valid."""
        self._changed = []
        return tuple(self.counts.values())

    def reset(self, mark: tuple[int, ...]) -> None:
        """Return to the mark."""
        rows = dict(self.rows)
        for name, before in reversed(self._changed):
            rows.pop(name, None)
            if before is not None:
                rows[name] = before
        in_order = sorted(rows.items(), key=lambda item: item[1].serial)
        self.rows, self._changed = dict(in_order), []
        self.found, self.given_up, self.replaced, self.strangers = mark

    def _set_row(self, name: str, pending: PendingRow | None) -> PendingRow | None:
        """Set or remove the pending row of an id; return the row that was pending there."""
        before = self.rows.get(name)
        self._changed.append((name, before))
        self.rows.pop(name, None)
        if pending is not None:
            last = next(reversed(self.rows.values()), None)
            serial = 0 if last is None else last.serial + 1
            self.rows[name] = pending._replace(serial=serial)
        return before

    def add_rows(self, rows: Rows, forecast: Forecast) -> None:
        """Add rows without a target, with their forecasts."""
        sd = np.zeros((len(rows.y), 0)) if rows.x_sd is None else rows.x_sd
        for at, name in enumerate(rows.id or []):
            if name is None:
                continue
            here = slice(at, at + 1)
            weight = 1.0 if rows.weight is None else float(rows.weight[at])
            waiting = PendingRow(
                rows.x[here].copy(), sd[here].copy(), weight, select_rows(forecast, here)
            )
            self.replaced += self._set_row(name, waiting) is not None
            if len(self.rows) > self.max_rows:
                self._set_row(next(iter(self.rows)), None)
                self.given_up += 1

    def pop_row(self, name: str) -> PendingRow | None:
        """Remove and return the pending row of an id; None if there is none."""
        if name not in self.rows:
            return None
        self.found += 1
        return self._set_row(name, None)


def learn_by_id(
    pending: PendingRows,
    rows: Rows,
    indicators: FloatArray,
    predict_unlabelled: Callable[[Rows], Forecast],
    learn: Callable[[Rows, dict[int, Forecast]], LearnResult],
) -> LearnResult:
    """Store rows without a target, and learn those with one, in order."""
    parts: list[Forecast] = []
    type_changes: tuple[TargetTypeChange, ...] = ()
    for start, stop in _split_runs(rows):
        part = slice_rows(rows, start, stop)
        if not np.any(np.isfinite(part.y[0])):
            parts.append(predict_unlabelled(part))
            pending.add_rows(part, parts[-1])
            continue
        matched = _match_labels(part, pending, indicators)
        for first, end in _split_learnable(matched.is_learnable):
            piece = slice_rows(matched.rows, first, end)
            if matched.is_learnable[first]:
                earlier = {
                    at - first: forecast
                    for at, forecast in matched.forecasts.items()
                    if first <= at < end
                }
                result = learn(piece, earlier)
                parts.append(result.forecast)
                type_changes += result.type_changes
            else:
                parts.append(predict_unlabelled(piece._replace(y=np.full_like(piece.y, np.nan))))
    return LearnResult(join_forecasts(parts), type_changes)


def _split_runs(rows: Rows) -> Iterator[tuple[int, int]]:
    """Split rows into runs (start, stop) that are all unlabelled or all labelled.

    No id occurs twice in a run, so that each row sees the changes of those before it.
    """
    labelled: list[bool] = np.any(np.isfinite(rows.y), axis=1).tolist()
    start, seen = 0, set[str | None]()
    for at, name in enumerate(rows.id or []):
        if at > start and (labelled[at] != labelled[start] or name in seen):
            yield start, at
            start, seen = at, set()
        if name is not None:
            seen.add(name)
    yield start, len(rows.y)


def _split_learnable(known: list[bool]) -> Iterator[tuple[int, int]]:
    """Split into runs (start, stop) that are all learnable or all not."""
    start = 0
    for at in range(1, len(known) + 1):
        if at == len(known) or known[at] != known[start]:
            yield start, at
            start = at


class MatchedRows(NamedTuple):
    """Labelled rows with their stored inputs, which of them are learnable, and stored forecasts."""

    rows: Rows
    is_learnable: list[bool]
    forecasts: dict[int, Forecast]  # by position, of pending rows that were predicted


def _match_labels(rows: Rows, pending: PendingRows, indicators: FloatArray) -> MatchedRows:
    """Match targets with the pending rows of the same id."""
    x, x_sd = rows.x.copy(), None if rows.x_sd is None else rows.x_sd.copy()
    weight = None if rows.weight is None else rows.weight.copy()
    known, forecasts = [], {}
    empty = np.all(np.isnan(x) | ((indicators > 0.0) & (x == 0.0)), axis=1)
    for at, name in enumerate(rows.id or []):
        match = None if name is None else pending.pop_row(name)
        known.append(match is not None or name is None or not empty[at])
        pending.strangers += not known[-1]
        if match is None:
            continue
        x[at] = pad_columns(match.x, x.shape[1], make_fill_values(indicators))[0]
        if x_sd is not None:
            x_sd[at] = pad_columns(match.x_sd, x.shape[1])[0]
        if weight is not None:
            weight[at] = match.weight
        if match.has_forecast:
            forecasts[at] = match.forecast
    return MatchedRows(rows._replace(x=x, x_sd=x_sd, weight=weight), known, forecasts)


def restore_pending_forecasts(made: Forecast, earlier: dict[int, Forecast]) -> Forecast:
    """Replace forecasts of pending rows by those made when they arrived; status is kept."""
    if not earlier:
        return made
    rows = [select_rows(made, slice(at, at + 1)) for at in range(len(made.status))]
    return join_forecasts(
        [
            earlier[at]._replace(status=row.status, outlier=row.outlier) if at in earlier else row
            for at, row in enumerate(rows)
        ]
    )


class PendingArrays(NamedTuple):
    """Pending rows as arrays, oldest first, all as wide as the widest."""

    x: FloatArray
    x_sd: FloatArray
    weight: FloatArray
    spoken: FloatArray  # 1 where the row was predicted
    mean: FloatArray
    sd: FloatArray
    function_sd: FloatArray
    noise_sd: FloatArray
    probability: FloatArray
    stated: FloatArray  # parameters of the predictive distributions, target by target


_FORECAST_FIELDS: Final = ("mean", "sd", "function_sd", "noise_sd")


def pack_pending_rows(pending: PendingRows, indicators: FloatArray, targets: int) -> PendingArrays:
    """Convert pending rows to arrays; `unpack_pending_rows` restores them."""
    rows = list(pending.rows.values())
    width, before = len(indicators), make_fill_values(indicators)
    exact = not any(row.x_sd.any() for row in rows)
    classes = max((row.forecast.probability.shape[1] for row in rows), default=0)

    def stack_parts(parts: list[FloatArray], columns: int) -> FloatArray:
        return np.concatenate([np.zeros((0, columns)), *parts])

    fields = {
        part: stack_parts([getattr(row.forecast, part) for row in rows], targets)
        for part in _FORECAST_FIELDS
    }
    return PendingArrays(
        x=stack_parts([pad_columns(row.x, width, before) for row in rows], width),
        x_sd=stack_parts(
            [pad_columns(r.x_sd, 0 if exact else width) for r in rows], 0 if exact else width
        ),
        weight=np.array([row.weight for row in rows], np.float64),
        spoken=np.array([row.has_forecast for row in rows], np.float64),
        probability=stack_parts(
            [pad_columns(row.forecast.probability, classes) for row in rows], classes
        ),
        stated=stack_parts(
            [row.forecast.stated.reshape(1, -1) for row in rows], targets * PARAM_COUNT
        ),
        **fields,
    )


def unpack_pending_rows(pending: PendingRows, ids: list[str], rows: PendingArrays) -> None:
    """Restore pending rows from arrays."""
    for at, name in enumerate(ids):
        here = slice(at, at + 1)
        parts = [getattr(rows, part)[here] for part in _FORECAST_FIELDS]
        probability = rows.probability[here] if rows.spoken[at] else np.zeros((1, 0))
        forecast = make_empty_forecast(1, 0)._replace(
            **dict(zip(_FORECAST_FIELDS, parts, strict=True)),
            probability=probability,
            stated=rows.stated[here].reshape(1, -1, PARAM_COUNT),
            status=np.full(1, UNLABELLED),
        )
        weight = float(rows.weight[at])
        pending.rows[name] = PendingRow(rows.x[here], rows.x_sd[here], weight, forecast, serial=at)
