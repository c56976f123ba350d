"""Rows whose labels come late: predicted when they come, learned when their label does.

A row without a target is predicted and its inputs are kept under its id; what was learned stays as
it is. When a row of the same id brings the target, it is learned with the inputs of then, and
judged by the forecast made then: the model learns as if rows had come in the order of their labels.

An id that comes again without a target takes the place of the one before it. A target whose id does
not wait (it came before its row, or twice, or its row was given up) is learned if the row has
inputs of its own, and is counted otherwise. The oldest row is given up when too many wait.
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
from kbnn.distributions.normal_mixture import PARAM_COUNT
from kbnn.targets.base import make_empty_forecast
from kbnn.targets.prediction import Forecast, join_forecasts, select_rows
from kbnn.wording import format_count, format_rows

COUNTER_NAMES: Final = ("found", "given_up", "replaced", "strangers")


class PendingRow(NamedTuple):
    """One row that waits for its target."""

    x: FloatArray  # (1, D) as wide as it was
    x_sd: FloatArray  # (1, D), or without columns
    weight: float
    forecast: Forecast
    serial: int = 0  # ascending from the oldest to the newest

    @property
    def has_forecast(self) -> bool:
        """Whether anything was said of it: not while a model warms up."""
        return bool(np.isfinite(self.forecast.mean).all()) and (
            self.forecast.mean.size > 0 or self.forecast.probability.size > 0
        )


class PendingRows:
    """The rows that wait, oldest first, and what became of the others."""

    def __init__(self, most: int) -> None:
        self.max_rows = most
        self.rows: dict[str, PendingRow] = {}
        self.found = 0  # rows whose target came
        self.given_up = 0  # for want of room
        self.replaced = 0  # by another row of their id
        self.strangers = 0  # targets whose row did not wait, and that had no inputs of their own
        self._changed: list[tuple[str, PendingRow | None]] = []  # since the mark: id, what it had

    @property
    def counts(self) -> dict[str, int]:
        """What became of rows, by name."""
        return {name: getattr(self, name) for name in COUNTER_NAMES}

    def format_summary(self) -> str:
        """How many wait, and what became of the others, in words."""
        words = {
            "found": "had their target come late",
            "given_up": "given up",
            "replaced": "replaced by another of their id",
            "strangers": "targets whose row did not wait",
        }
        rest = [f"{format_count(self.counts[name])} {text}" for name, text in words.items()
                if self.counts[name]]  # fmt: skip
        return ", ".join([f"{format_rows(len(self.rows))} for a target", *rest])

    def mark(self) -> tuple[int, ...]:
        """What `reset` needs to undo all that happens later; the last mark alone counts."""
        self._changed = []
        return tuple(self.counts.values())

    def reset(self, mark: tuple[int, ...]) -> None:
        """Go back to the mark."""
        rows = dict(self.rows)
        for name, before in reversed(self._changed):
            rows.pop(name, None)
            if before is not None:
                rows[name] = before
        in_order = sorted(rows.items(), key=lambda item: item[1].serial)
        self.rows, self._changed = dict(in_order), []
        self.found, self.given_up, self.replaced, self.strangers = mark

    def _set_row(self, name: str, pending: PendingRow | None) -> PendingRow | None:
        """Have a row, or none, wait under an id; the row that waited there."""
        before = self.rows.get(name)
        self._changed.append((name, before))
        self.rows.pop(name, None)
        if pending is not None:
            last = next(reversed(self.rows.values()), None)
            serial = 0 if last is None else last.serial + 1
            self.rows[name] = pending._replace(serial=serial)
        return before

    def add_rows(self, rows: Rows, said: Forecast) -> None:
        """Let rows wait."""
        sd = np.zeros((len(rows.y), 0)) if rows.x_sd is None else rows.x_sd
        for at, name in enumerate(rows.id or []):
            if name is None:
                continue
            here = slice(at, at + 1)
            weight = 1.0 if rows.weight is None else float(rows.weight[at])
            waiting = PendingRow(
                rows.x[here].copy(), sd[here].copy(), weight, select_rows(said, here)
            )
            self.replaced += self._set_row(name, waiting) is not None
            if len(self.rows) > self.max_rows:
                self._set_row(next(iter(self.rows)), None)
                self.given_up += 1

    def pop_row(self, name: str) -> PendingRow | None:
        """The row that waits under an id, which waits no more."""
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
    """Let rows without a target wait, and learn those with one, in order."""
    parts: list[Forecast] = []
    refuted: tuple[TargetTypeChange, ...] = ()
    for start, stop in _split_runs(rows):
        part = slice_rows(rows, start, stop)
        if not np.any(np.isfinite(part.y[0])):
            parts.append(predict_unlabelled(part))
            pending.add_rows(part, parts[-1])
            continue
        met = _match_labels(part, pending, indicators)
        for first, end in _split_learnable(met.is_learnable):
            piece = slice_rows(met.rows, first, end)
            if met.is_learnable[first]:
                then = {at - first: said for at, said in met.forecasts.items() if first <= at < end}
                taught = learn(piece, then)
                parts.append(taught.forecast)
                refuted += taught.type_changes
            else:
                parts.append(predict_unlabelled(piece._replace(y=np.full_like(piece.y, np.nan))))
    return LearnResult(join_forecasts(parts), refuted)


def _split_runs(rows: Rows) -> Iterator[tuple[int, int]]:
    """Rows that can be taken together, as (start, stop): all wait, or all have a target.

    No id comes twice in one, so that each meets what the others left behind.
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
    """Neighbours that are all known, or all not."""
    start = 0
    for at in range(1, len(known) + 1):
        if at == len(known) or known[at] != known[start]:
            yield start, at
            start = at


class MatchedRows(NamedTuple):
    """Rows with targets, with the inputs of then; which can be learned; what was said then."""

    rows: Rows
    is_learnable: list[bool]
    forecasts: dict[int, Forecast]  # by place, of rows that waited and of which something was said


def _match_labels(rows: Rows, pending: PendingRows, indicators: FloatArray) -> MatchedRows:
    """Put targets beside the rows that wait for them."""
    x, x_sd = rows.x.copy(), None if rows.x_sd is None else rows.x_sd.copy()
    weight = None if rows.weight is None else rows.weight.copy()
    known, said = [], {}
    empty = np.all(np.isnan(x) | ((indicators > 0.0) & (x == 0.0)), axis=1)
    for at, name in enumerate(rows.id or []):
        waited = None if name is None else pending.pop_row(name)
        known.append(waited is not None or name is None or not empty[at])
        pending.strangers += not known[-1]
        if waited is None:
            continue
        x[at] = pad_columns(waited.x, x.shape[1], make_fill_values(indicators))[0]
        if x_sd is not None:
            x_sd[at] = pad_columns(waited.x_sd, x.shape[1])[0]
        if weight is not None:
            weight[at] = waited.weight
        if waited.has_forecast:
            said[at] = waited.forecast
    return MatchedRows(rows._replace(x=x, x_sd=x_sd, weight=weight), known, said)


def restore_pending_forecasts(made: Forecast, then: dict[int, Forecast]) -> Forecast:
    """Forecasts with those of then for rows that waited; what became of rows stays."""
    if not then:
        return made
    rows = [select_rows(made, slice(at, at + 1)) for at in range(len(made.status))]
    return join_forecasts(
        [
            then[at]._replace(status=row.status, outlier=row.outlier) if at in then else row
            for at, row in enumerate(rows)
        ]
    )


class PendingArrays(NamedTuple):
    """The rows that wait as arrays, oldest first, all as wide as the widest."""

    x: FloatArray
    x_sd: FloatArray
    weight: FloatArray
    spoken: FloatArray  # 1 where something was said
    mean: FloatArray
    sd: FloatArray
    function_sd: FloatArray
    noise_sd: FloatArray
    probability: FloatArray
    stated: FloatArray  # one target after another


_FORECAST_FIELDS: Final = ("mean", "sd", "function_sd", "noise_sd")


def pack_pending_rows(pending: PendingRows, indicators: FloatArray, targets: int) -> PendingArrays:
    """What `restored` makes the same rows of."""
    rows = list(pending.rows.values())
    width, before = len(indicators), make_fill_values(indicators)
    exact = not any(row.x_sd.any() for row in rows)
    classes = max((row.forecast.probability.shape[1] for row in rows), default=0)

    def stack_parts(parts: list[FloatArray], columns: int) -> FloatArray:
        return np.concatenate([np.zeros((0, columns)), *parts])

    said = {
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
        **said,
    )


def unpack_pending_rows(pending: PendingRows, ids: list[str], rows: PendingArrays) -> None:
    """Let rows wait that waited before."""
    for at, name in enumerate(ids):
        here = slice(at, at + 1)
        parts = [getattr(rows, part)[here] for part in _FORECAST_FIELDS]
        probability = rows.probability[here] if rows.spoken[at] else np.zeros((1, 0))
        said = make_empty_forecast(1, 0)._replace(
            **dict(zip(_FORECAST_FIELDS, parts, strict=True)),
            probability=probability,
            stated=rows.stated[here].reshape(1, -1, PARAM_COUNT),
            status=np.full(1, UNLABELLED),
        )
        weight = float(rows.weight[at])
        pending.rows[name] = PendingRow(rows.x[here], rows.x_sd[here], weight, said, serial=at)
