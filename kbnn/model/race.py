"""Candidates that learn side by side until the stream has told which is best.

A candidate is a model's settings with every choice made. All of them begin with the same rows and
meet every row; what each says of a row before it learns it is its evidence, the logarithm of the
density of what came true. The leader speaks. A candidate 20 nats behind is dropped, and after 1,024
rows only the leader goes on. No row counts for more than five nats between two candidates, so that
no outlier decides. The race is looked at where row counts say, not where blocks end.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np

from kbnn.core.normal import FloatArray
from kbnn.model.learner import Events, Learned, Learner
from kbnn.model.rehearsal import BURST, YOUNG
from kbnn.model.rows import Rows, sliced
from kbnn.model.settings import Settings
from kbnn.task.forecast import Forecast, joined

DROPPED: Final = 20.0
DECIDED: Final = YOUNG
MOST_A_ROW: Final = 5.0
MOST_ALARMS: Final = 100


@dataclass(frozen=True, eq=False)
class Racer:
    """A candidate on its way."""

    learner: Learner
    learned: Learned
    evidence: float = 0.0  # nats
    alarms: tuple[int, ...] = ()  # rows that raised one, the last hundred

    def after(self, learned: Learned, events: Events) -> Racer:
        """The racer that has learned rows among which this happened."""
        alarms = self.alarms
        if not events.restarted and not events.alarms:
            return Racer(self.learner, learned, self.evidence, alarms)
        alarms = tuple(events.alarms) if events.restarted else (*alarms, *events.alarms)
        return replace(self, learned=learned, alarms=alarms[-MOST_ALARMS:])


class Lost(NamedTuple):
    """A candidate that is no more, and by how much it was behind at which row."""

    settings: Settings
    nats: float
    row: int


class Step(NamedTuple):
    """The racers after some rows, leader first, what the leader had said of them, and who left."""

    racers: tuple[Racer, ...]
    said: Forecast
    skipped: int  # rows without a target
    lost: tuple[Lost, ...] = ()


def learn(racers: tuple[Racer, ...], rows: Rows, first: int, again: bool) -> Step:
    """Learn rows up to where the race is looked at: at least one, perhaps not all.

    `first` is the number of the first row; rows learned `again` end the race: they are no news.
    """
    if len(racers) == 1:
        racer, said, skipped = _advance(racers[0], rows, first, again)
        return Step((racer,), said, skipped)
    if again:
        row = racers[0].learned.seen
        step = learn(racers[:1], rows, first, again)
        return step._replace(lost=_lost(racers, racers[:1], row))
    seen = racers[0].learned.seen
    rows = sliced(rows, 0, BURST - seen % BURST)
    moved: list[Racer] = []
    spoken: list[Forecast] = []
    for racer in racers:
        racer, said, skipped = _whole(racer, rows, first)
        moved.append(racer)
        spoken.append(said)
    density = [r.learner.task.log_density(s, rows.y) for r, s in zip(moved, spoken, strict=True)]
    racers = tuple(
        replace(racer, evidence=_after(racer.evidence, gained))
        for racer, gained in zip(moved, _bounded(np.stack(density)), strict=True)
    )
    said = spoken[0]
    if (seen + len(rows.y)) % BURST:
        return Step(racers, said, skipped)
    kept = _looked_at(racers)
    return Step(kept, said, skipped, _lost(racers, kept, seen + len(rows.y)))


def _advance(racer: Racer, rows: Rows, first: int, again: bool) -> tuple[Racer, Forecast, int]:
    y = racer.learner.task.linked(rows.y)
    linked = rows if y is rows.y else rows._replace(y=y)
    learned, said, events = racer.learner.advance(racer.learned, linked, first, again)
    return racer.after(learned, events), said, events.skipped


def _whole(racer: Racer, rows: Rows, first: int) -> tuple[Racer, Forecast, int]:
    """All of the rows."""
    parts: list[Forecast] = []
    at, skipped = 0, 0
    while at < len(rows.y):
        rest = rows if at == 0 else sliced(rows, at, len(rows.y))
        racer, said, more = _advance(racer, rest, first + at, False)
        parts.append(said)
        at += len(said.status)
        skipped += more
    return racer, joined(parts), skipped


def _bounded(density: FloatArray) -> FloatArray:
    """The log densities (R, n), none more than so far below the best of its row."""
    return np.asarray(np.maximum(density, np.max(density, axis=0) - MOST_A_ROW))


def _after(evidence: float, gained: FloatArray) -> float:
    """The evidence after more rows, added one by one: cutting a stream changes no bit."""
    return float(np.cumsum(np.append(evidence, gained))[-1])


def _looked_at(racers: tuple[Racer, ...]) -> tuple[Racer, ...]:
    """The leader first, and those still in the race."""
    order = sorted(racers, key=lambda racer: -racer.evidence)
    if order[0].learned.seen >= DECIDED:
        return (order[0],)
    return tuple(r for r in order if r.evidence > order[0].evidence - DROPPED)


def _lost(before: tuple[Racer, ...], after: tuple[Racer, ...], row: int) -> tuple[Lost, ...]:
    return tuple(
        Lost(racer.learner.settings, after[0].evidence - racer.evidence, row)
        for racer in before
        if racer not in after
    )
