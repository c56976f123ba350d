"""Candidates that learn side by side until the stream has told which is best.

A candidate is a model's settings with every choice made. All of them begin with the same rows and
meet every row; what each says of a row before it learns it is its evidence, the logarithm of the
density of what came true. The leader speaks. Whenever rows have doubled, what was before counts
half: what a fast start has won is no promise, and shapes that will be best often start slowly. A
candidate 100 nats behind is dropped, and after 1,024 rows only the leader goes on. No row counts
for more than five nats between two candidates, so that no outlier decides. The race is looked at
where row counts say, not where blocks end.

What kind of number the target is races too: kinds are compared, each by its best candidate, for 480
rows, since it takes that long for tails to show. A real target is given up for a positive one only
where that is 10 nats ahead; counts show themselves, or not, by far more.

A young stream gains by rehearsal nearly always; whether an older one does depends on how long its
rows stay true. A second race tells, up to row 4,064: beside a winner that goes on to rehearse runs
its copy that stops. Rows that are noisy enough were better not rehearsed, until there are many:
beside a winner that did not runs its copy that begins to, five nats behind.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np

from kbnn.core.normal import FloatArray
from kbnn.model.learned import Events, Learned, copied
from kbnn.model.learner import Learner
from kbnn.model.limits import ROW_EVIDENCE_LIMIT
from kbnn.model.rehearsal import BURST, OFTEN, YOUNG, Rehearsal
from kbnn.model.rows import Rows, sliced
from kbnn.model.settings import Settings
from kbnn.task.forecast import Forecast, joined
from kbnn.task.table import believed, rival
from kbnn.wording import number

DROPPED: Final = 100.0
DECIDED: Final = YOUNG
DECIDED_LATE: Final = 4 * YOUNG - BURST
KIND_DECIDED: Final = YOUNG // 2 - BURST
"""Both before a row where the scale is looked at: all that races then is learned anew at once."""
MOST_A_ROW: Final = 5.0
MOST_ALARMS: Final = 100


@dataclass(eq=False, slots=True)
class Racer:
    """A candidate on its way; never changed, but frozen it would take a microsecond more a row."""

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
    leader: Settings


class Step(NamedTuple):
    """The racers after some rows, leader first, what the leader had said of them, and who left."""

    racers: tuple[Racer, ...]
    said: Forecast
    skipped: int  # rows without a target
    lost: tuple[Lost, ...] = ()


class Standing(NamedTuple):
    """A candidate that does not lead: by how many nats it is behind, where it was dropped.

    Row 0: it still races. Both are told by what sets them apart.
    """

    leader: str
    settings: str
    nats: float
    row: int


def standings(racers: tuple[Racer, ...], lost: tuple[Lost, ...]) -> list[Standing]:
    """All candidates beside the leader."""
    leader = racers[0]
    won = leader.learner.settings
    racing = [Lost(r.learner.settings, leader.evidence - r.evidence, 0, won) for r in racers[1:]]
    return [
        Standing(ahead.told(other), other.told(ahead), nats, row)
        for other, nats, row, ahead in [*lost, *racing]
    ]


def evidence_text(nats: float, other: str) -> str:
    """By how much the leader has more evidence than others, or less.

    It may be behind: who leads is decided anew every 32 rows.
    """
    side = "ahead of" if nats >= 0.0 else "behind"
    return f"{number(abs(nats), 3)} nats {side} {other}"


def kinds_told(racers: tuple[Racer, ...], lost: tuple[Lost, ...]) -> tuple[str, str, float] | None:
    """The leader's kind of target, another, and by how many nats that is behind.

    None where that is what is believed until something else is shown, or no other kind ran.
    """
    leader = racers[0]
    kind = leader.learner.settings.kind
    behind = [(one.nats, one.settings.kind) for one in lost if one.leader.kind == kind]
    behind += [(leader.evidence - r.evidence, r.learner.settings.kind) for r in racers[1:]]
    found = rival(kind, behind)
    return None if found is None else (kind, found[1], found[0])


def beyond(racers: tuple[Racer, ...], y: FloatArray) -> int:
    """The first row whose target (n, T) a racer's kind cannot have; n if there is none."""
    return min([racer.learner.task.refuted(y) for racer in racers])


def able(racers: tuple[Racer, ...], y: FloatArray) -> tuple[Racer, ...]:
    """The racers whose kind can have these targets (1, T)."""
    return tuple(racer for racer in racers if beyond((racer,), y) == len(y))


def learn(racers: tuple[Racer, ...], rows: Rows, first: int, again: bool) -> Step:
    """Learn rows up to where the race is looked at: at least one, perhaps not all.

    `first` is the number of the first row; rows learned `again` end the race: they are no news.
    """
    if again and len(racers) > 1:
        step = learn(racers[:1], rows, first, again)
        return step._replace(lost=_lost(racers, racers[:1], racers[0].learned.seen))
    alone = len(racers) == 1
    if not alone:
        rows = sliced(rows, 0, BURST - racers[0].learned.seen % BURST)
    moved: tuple[Racer, ...] = ()
    spoken: list[Forecast] = []
    for racer in racers:
        racer, said, skipped = _advance(racer, rows, first, again, whole=not alone)
        moved += (racer,)
        spoken.append(said)
    if not alone:
        moved = _weighed(moved, spoken, rows.y)
    seen = moved[0].learned.seen
    if again or seen % BURST or (alone and seen != DECIDED):
        return Step(moved, spoken[0], skipped)
    kept = _looked_at(moved)
    lost = _lost(moved, kept, seen)
    after = _forked(kept) if seen == DECIDED else _aged(kept, seen)
    return Step(after, spoken[0], skipped, lost)


def _advance(
    racer: Racer, rows: Rows, first: int, again: bool, whole: bool
) -> tuple[Racer, Forecast, int]:
    """The racer after rows, what it said of them, and how many had no target.

    All of the rows if `whole`, else up to where its network or its scale changes.
    """
    parts: list[Forecast] = []
    at = skipped = 0
    while not parts or (whole and at < len(rows.y)):
        rest = rows if at == 0 else sliced(rows, at, len(rows.y))
        y = racer.learner.task.linked(rest.y, racer.learned.tails)
        linked = rest if y is rest.y else rest._replace(y=y)
        learned, said, events = racer.learner.advance(racer.learned, linked, first + at, again)
        racer = racer.after(learned, events)
        parts.append(said)
        at += len(said.status)
        skipped += events.skipped
    return racer, joined(parts), skipped


def _weighed(racers: tuple[Racer, ...], spoken: list[Forecast], y: FloatArray) -> tuple[Racer, ...]:
    """The racers with the evidence of what each had said of these targets (n, T)."""
    fine = min(r.learner.task.finest(r.learned.tails) for r in racers)  # the same event for all
    pairs = zip(racers, spoken, strict=True)
    density = [r.learner.task.log_density(said, y, fine) for r, said in pairs]
    return tuple(
        replace(racer, evidence=_after(racer.evidence, gained))
        for racer, gained in zip(racers, _bounded(np.stack(density)), strict=True)
    )


def _bounded(density: FloatArray) -> FloatArray:
    """The log densities (R, n), none more than so far below the best of its row.

    Rows that every candidate finds next to impossible are raised to ROW_EVIDENCE_LIMIT together:
    their differences stay, and sums stay small enough to tell candidates apart.
    """
    density = np.clip(density, -1e300, 1e300)
    best = np.max(density, axis=0)
    excess = np.minimum(best + ROW_EVIDENCE_LIMIT, 0.0)
    return np.asarray(np.maximum(density, best - MOST_A_ROW) - excess)


def _after(evidence: float, gained: FloatArray) -> float:
    """The evidence after more rows, added one by one: cutting a stream changes no bit."""
    return float(np.cumsum(np.append(evidence, gained))[-1])


def _looked_at(racers: tuple[Racer, ...]) -> tuple[Racer, ...]:
    """The leader first, and those still in the race."""
    order = sorted(racers, key=lambda racer: -racer.evidence)
    best = {racer.learner.settings.kind: racer for racer in reversed(order)}
    nats = {kind: racer.evidence for kind, racer in best.items()}
    leader = next(r for r in order if believed(r.learner.settings.kind, r.evidence, nats))
    seen, kind = leader.learned.seen, leader.learner.settings.kind
    if seen in (DECIDED, DECIDED_LATE):
        return (leader,)
    if seen >= KIND_DECIDED:
        order = [racer for racer in order if racer.learner.settings.kind == kind]
    kept = [r for r in order if r.evidence > best[r.learner.settings.kind].evidence - DROPPED]
    return (leader, *(racer for racer in kept if racer is not leader))


def _aged(racers: tuple[Racer, ...], seen: int) -> tuple[Racer, ...]:
    """Whenever rows have doubled, what was before counts half: a fast start is no good end."""
    if seen & (seen - 1) or len(racers) == 1:
        return racers
    return tuple(replace(racer, evidence=0.5 * racer.evidence) for racer in racers)


def _forked(racers: tuple[Racer, ...]) -> tuple[Racer, ...]:
    """At the end of youth: the winner goes on as it did, and beside it a copy that does not."""
    winner = racers[0]
    settings = winner.learner.settings
    if not isinstance(settings.rehearse, str):
        return racers
    other, behind = copied(winner.learned), 0.0
    if settings.often:
        other = winner.learner.settled(other)
    else:
        other = other._replace(rehearsal=Rehearsal(grown=DECIDED_LATE))
        behind = MOST_A_ROW
    goes_on = replace(settings, rehearse=settings.often)
    does_not = replace(settings, rehearse=0 if settings.often else OFTEN)
    return (
        Racer(replace(winner.learner, settings=goes_on), winner.learned, 0.0, winner.alarms),
        Racer(replace(winner.learner, settings=does_not), other, -behind, winner.alarms),
    )


def _lost(before: tuple[Racer, ...], after: tuple[Racer, ...], row: int) -> tuple[Lost, ...]:
    return tuple(
        Lost(
            racer.learner.settings,
            after[0].evidence - racer.evidence,
            row,
            after[0].learner.settings,
        )
        for racer in before
        if racer not in after
    )
