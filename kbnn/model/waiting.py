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

from kbnn.core.mixture import STATED_FIELDS
from kbnn.core.network import UNLABELLED
from kbnn.core.normal import FloatArray
from kbnn.model.rows import Lesson, Refuted, Rows, sliced
from kbnn.model.warmup import unseen, widened
from kbnn.task.base import blank
from kbnn.task.forecast import Forecast, joined, taken
from kbnn.wording import count, rows_of

WAIT: Final = 10_000
"""Rows that may wait where nothing else was said."""
MOST_WAITING: Final = 1_000_000
COUNTS: Final = ("found", "given_up", "replaced", "strangers")


class Waiting(NamedTuple):
    """One row that waits for its target."""

    x: FloatArray  # (1, D) as wide as it was
    x_sd: FloatArray  # (1, D), or without columns
    weight: float
    said: Forecast
    serial: int = 0  # ascending from the oldest to the newest

    @property
    def spoken(self) -> bool:
        """Whether anything was said of it: not while a model warms up."""
        return bool(np.isfinite(self.said.mean).all()) and (
            self.said.mean.size > 0 or self.said.probability.size > 0
        )


class Room:
    """The rows that wait, oldest first, and what became of the others."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.rows: dict[str, Waiting] = {}
        self.found = 0  # rows whose target came
        self.given_up = 0  # for want of room
        self.replaced = 0  # by another row of their id
        self.strangers = 0  # targets whose row did not wait, and that had no inputs of their own
        self._changed: list[tuple[str, Waiting | None]] = []  # since the mark: id, what it had

    @property
    def counts(self) -> dict[str, int]:
        """What became of rows, by name."""
        return {name: getattr(self, name) for name in COUNTS}

    def told(self) -> str:
        """How many wait, and what became of the others, in words."""
        words = {
            "found": "had their target come late",
            "given_up": "given up",
            "replaced": "replaced by another of their id",
            "strangers": "targets whose row did not wait",
        }
        rest = [f"{count(self.counts[name])} {text}" for name, text in words.items()
                if self.counts[name]]  # fmt: skip
        return ", ".join([f"{rows_of(len(self.rows))} for a target", *rest])

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

    def _put(self, name: str, waiting: Waiting | None) -> Waiting | None:
        """Have a row, or none, wait under an id; the row that waited there."""
        before = self.rows.get(name)
        self._changed.append((name, before))
        self.rows.pop(name, None)
        if waiting is not None:
            last = next(reversed(self.rows.values()), None)
            serial = 0 if last is None else last.serial + 1
            self.rows[name] = waiting._replace(serial=serial)
        return before

    def keep(self, rows: Rows, said: Forecast) -> None:
        """Let rows wait."""
        sd = np.zeros((len(rows.y), 0)) if rows.x_sd is None else rows.x_sd
        for at, name in enumerate(rows.id or []):
            if name is None:
                continue
            here = slice(at, at + 1)
            weight = 1.0 if rows.weight is None else float(rows.weight[at])
            waiting = Waiting(rows.x[here].copy(), sd[here].copy(), weight, taken(said, here))
            self.replaced += self._put(name, waiting) is not None
            if len(self.rows) > self.most:
                self._put(next(iter(self.rows)), None)
                self.given_up += 1

    def take(self, name: str) -> Waiting | None:
        """The row that waits under an id, which waits no more."""
        if name not in self.rows:
            return None
        self.found += 1
        return self._put(name, None)


def learn_by_id(
    room: Room,
    rows: Rows,
    indicators: FloatArray,
    pass_by: Callable[[Rows], Forecast],
    learn: Callable[[Rows, dict[int, Forecast]], Lesson],
) -> Lesson:
    """Let rows without a target wait, and learn those with one, in order."""
    parts: list[Forecast] = []
    refuted: tuple[Refuted, ...] = ()
    for start, stop in _runs(rows):
        part = sliced(rows, start, stop)
        if not np.any(np.isfinite(part.y[0])):
            parts.append(pass_by(part))
            room.keep(part, parts[-1])
            continue
        met = _meet(part, room, indicators)
        for first, end in _alike(met.known):
            piece = sliced(met.rows, first, end)
            if met.known[first]:
                then = {at - first: said for at, said in met.said.items() if first <= at < end}
                taught = learn(piece, then)
                parts.append(taught.said)
                refuted += taught.refuted
            else:
                parts.append(pass_by(piece._replace(y=np.full_like(piece.y, np.nan))))
    return Lesson(joined(parts), refuted)


def _runs(rows: Rows) -> Iterator[tuple[int, int]]:
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


def _alike(known: list[bool]) -> Iterator[tuple[int, int]]:
    """Neighbours that are all known, or all not."""
    start = 0
    for at in range(1, len(known) + 1):
        if at == len(known) or known[at] != known[start]:
            yield start, at
            start = at


class Met(NamedTuple):
    """Rows with targets, with the inputs of then; which can be learned; what was said then."""

    rows: Rows
    known: list[bool]
    said: dict[int, Forecast]  # by place, of rows that waited and of which something was said


def _meet(rows: Rows, room: Room, indicators: FloatArray) -> Met:
    """Put targets beside the rows that wait for them."""
    x, x_sd = rows.x.copy(), None if rows.x_sd is None else rows.x_sd.copy()
    weight = None if rows.weight is None else rows.weight.copy()
    known, said = [], {}
    empty = np.all(np.isnan(x) | ((indicators > 0.0) & (x == 0.0)), axis=1)
    for at, name in enumerate(rows.id or []):
        waited = None if name is None else room.take(name)
        known.append(waited is not None or name is None or not empty[at])
        room.strangers += not known[-1]
        if waited is None:
            continue
        x[at] = widened(waited.x, x.shape[1], unseen(indicators))[0]
        if x_sd is not None:
            x_sd[at] = widened(waited.x_sd, x.shape[1])[0]
        if weight is not None:
            weight[at] = waited.weight
        if waited.spoken:
            said[at] = waited.said
    return Met(rows._replace(x=x, x_sd=x_sd, weight=weight), known, said)


def told(made: Forecast, then: dict[int, Forecast]) -> Forecast:
    """Forecasts with those of then for rows that waited; what became of rows stays."""
    if not then:
        return made
    rows = [taken(made, slice(at, at + 1)) for at in range(len(made.status))]
    return joined(
        [
            then[at]._replace(status=row.status, outlier=row.outlier) if at in then else row
            for at, row in enumerate(rows)
        ]
    )


class Stored(NamedTuple):
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


_PARTS: Final = ("mean", "sd", "function_sd", "noise_sd")


def stored(room: Room, indicators: FloatArray, targets: int) -> Stored:
    """What `restored` makes the same rows of."""
    rows = list(room.rows.values())
    width, before = len(indicators), unseen(indicators)
    exact = not any(row.x_sd.any() for row in rows)
    classes = max((row.said.probability.shape[1] for row in rows), default=0)

    def stacked(parts: list[FloatArray], columns: int) -> FloatArray:
        return np.concatenate([np.zeros((0, columns)), *parts])

    said = {part: stacked([getattr(row.said, part) for row in rows], targets) for part in _PARTS}
    return Stored(
        x=stacked([widened(row.x, width, before) for row in rows], width),
        x_sd=stacked([widened(r.x_sd, 0 if exact else width) for r in rows], 0 if exact else width),
        weight=np.array([row.weight for row in rows], np.float64),
        spoken=np.array([row.spoken for row in rows], np.float64),
        probability=stacked([widened(row.said.probability, classes) for row in rows], classes),
        stated=stacked([row.said.stated.reshape(1, -1) for row in rows], targets * STATED_FIELDS),
        **said,
    )


def restored(room: Room, ids: list[str], rows: Stored) -> None:
    """Let rows wait that waited before."""
    for at, name in enumerate(ids):
        here = slice(at, at + 1)
        parts = [getattr(rows, part)[here] for part in _PARTS]
        probability = rows.probability[here] if rows.spoken[at] else np.zeros((1, 0))
        said = blank(1, 0)._replace(
            **dict(zip(_PARTS, parts, strict=True)),
            probability=probability,
            stated=rows.stated[here].reshape(1, -1, STATED_FIELDS),
            status=np.full(1, UNLABELLED),
        )
        weight = float(rows.weight[at])
        room.rows[name] = Waiting(rows.x[here], rows.x_sd[here], weight, said, serial=at)
