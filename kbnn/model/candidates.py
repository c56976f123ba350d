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

from kbnn.array_types import FloatArray
from kbnn.data.batch import Rows, slice_rows
from kbnn.model.learner import Learner, LearnerState, LearnEvents, copy_state
from kbnn.model.limits import ROW_EVIDENCE_LIMIT
from kbnn.model.replay import DEFAULT_REPLAY_RATIO, REPLAY_INTERVAL_ROWS, REPLAY_ROWS, ReplayState
from kbnn.model.settings import Settings
from kbnn.targets.prediction import Forecast, join_forecasts
from kbnn.targets.registry import find_rival_type, may_lead
from kbnn.wording import format_number

ELIMINATION_MARGIN_NATS: Final = 100.0
SELECTION_ROWS: Final = REPLAY_ROWS
REPLAY_SELECTION_ROWS: Final = 4 * REPLAY_ROWS - REPLAY_INTERVAL_ROWS
TARGET_TYPE_SELECTION_ROWS: Final = REPLAY_ROWS // 2 - REPLAY_INTERVAL_ROWS
"""Both before a row where the scale is looked at: all that races then is learned anew at once."""
MAX_ROW_ADVANTAGE_NATS: Final = 5.0
MAX_ALARM_ROWS: Final = 100


@dataclass(eq=False, slots=True)
class Candidate:
    """A candidate on its way; never changed, but frozen it would take a microsecond more a row."""

    learner: Learner
    learned: LearnerState
    evidence: float = 0.0  # nats
    alarms: tuple[int, ...] = ()  # rows that raised one, the last hundred

    def record_rows(self, learned: LearnerState, events: LearnEvents) -> Candidate:
        """The racer that has learned rows among which this happened."""
        alarms = self.alarms
        if not events.restarted and not events.alarms:
            return Candidate(self.learner, learned, self.evidence, alarms)
        alarms = tuple(events.alarms) if events.restarted else (*alarms, *events.alarms)
        return replace(self, learned=learned, alarms=alarms[-MAX_ALARM_ROWS:])


class EliminatedCandidate(NamedTuple):
    """A candidate that is no more, and by how much it was behind at which row."""

    settings: Settings
    nats_behind: float
    row: int
    leader: Settings


class SelectionStep(NamedTuple):
    """The racers after some rows, leader first, what the leader had said of them, and who left."""

    candidates: tuple[Candidate, ...]
    forecast: Forecast
    skipped: int  # rows without a target
    lost: tuple[EliminatedCandidate, ...] = ()


class RankedCandidate(NamedTuple):
    """A candidate that does not lead: by how many nats it is behind, where it was dropped.

    Row 0: it still races. Both are told by what sets them apart.
    """

    leader: str
    settings: str
    nats: float
    row: int


def rank_candidates(
    candidates: tuple[Candidate, ...], eliminated: tuple[EliminatedCandidate, ...]
) -> list[RankedCandidate]:
    """All candidates beside the leader."""
    leader = candidates[0]
    won = leader.learner.settings
    racing = [
        EliminatedCandidate(r.learner.settings, leader.evidence - r.evidence, 0, won)
        for r in candidates[1:]
    ]
    return [
        RankedCandidate(
            ahead.describe_difference(other), other.describe_difference(ahead), nats, row
        )
        for other, nats, row, ahead in [*eliminated, *racing]
    ]


def format_evidence(nats: float, other: str) -> str:
    """By how much the leader has more evidence than others, or less.

    It may be behind: who leads is decided anew every 32 rows.
    """
    side = "ahead of" if nats >= 0.0 else "behind"
    return f"{format_number(abs(nats), 3)} nats {side} {other}"


def compare_target_types(
    candidates: tuple[Candidate, ...], eliminated: tuple[EliminatedCandidate, ...]
) -> tuple[str, str, float] | None:
    """The leader's kind of target, another, and by how many nats that is behind.

    None where that is what is believed until something else is shown, or no other kind ran.
    """
    leader = candidates[0]
    kind = leader.learner.settings.kind
    behind = [(one.nats_behind, one.settings.kind) for one in eliminated if one.leader.kind == kind]
    behind += [(leader.evidence - r.evidence, r.learner.settings.kind) for r in candidates[1:]]
    found = find_rival_type(kind, behind)
    return None if found is None else (kind, found[1], found[0])


def find_first_invalid_row(candidates: tuple[Candidate, ...], y: FloatArray) -> int:
    """The first row whose target (n, T) a racer's kind cannot have; n if there is none."""
    return min([racer.learner.task.first_invalid_row(y) for racer in candidates])


def select_valid_candidates(
    candidates: tuple[Candidate, ...], y: FloatArray
) -> tuple[Candidate, ...]:
    """The racers whose kind can have these targets (1, T)."""
    return tuple(racer for racer in candidates if find_first_invalid_row((racer,), y) == len(y))


def learn_candidates(
    candidates: tuple[Candidate, ...], rows: Rows, first: int, again: bool
) -> SelectionStep:
    """Learn rows up to where the race is looked at: at least one, perhaps not all.

    `first` is the number of the first row; rows learned `again` end the race: they are no news.
    """
    if again and len(candidates) > 1:
        step = learn_candidates(candidates[:1], rows, first, again)
        return step._replace(
            lost=_list_eliminated(candidates, candidates[:1], candidates[0].learned.seen)
        )
    alone = len(candidates) == 1
    if not alone:
        rows = slice_rows(
            rows, 0, REPLAY_INTERVAL_ROWS - candidates[0].learned.seen % REPLAY_INTERVAL_ROWS
        )
    moved: tuple[Candidate, ...] = ()
    spoken: list[Forecast] = []
    for racer in candidates:
        racer, said, skipped = _learn_candidate(racer, rows, first, again, whole=not alone)
        moved += (racer,)
        spoken.append(said)
    if not alone:
        moved = _add_evidence(moved, spoken, rows.y)
    seen = moved[0].learned.seen
    if again or seen % REPLAY_INTERVAL_ROWS or (alone and seen != SELECTION_ROWS):
        return SelectionStep(moved, spoken[0], skipped)
    kept = _eliminate_candidates(moved)
    lost = _list_eliminated(moved, kept, seen)
    after = (
        _fork_replay_candidates(kept) if seen == SELECTION_ROWS else _discount_evidence(kept, seen)
    )
    return SelectionStep(after, spoken[0], skipped, lost)


def _learn_candidate(
    candidate: Candidate, rows: Rows, first: int, again: bool, whole: bool
) -> tuple[Candidate, Forecast, int]:
    """The racer after rows, what it said of them, and how many had no target.

    All of the rows if `whole`, else up to where its network or its scale changes.
    """
    parts: list[Forecast] = []
    at = skipped = 0
    while not parts or (whole and at < len(rows.y)):
        rest = rows if at == 0 else slice_rows(rows, at, len(rows.y))
        y = candidate.learner.task.link(rest.y, candidate.learned.tails)
        linked = rest if y is rest.y else rest._replace(y=y)
        learned, said, events = candidate.learner.learn_rows(
            candidate.learned, linked, first + at, again
        )
        candidate = candidate.record_rows(learned, events)
        parts.append(said)
        at += len(said.status)
        skipped += events.skipped
    return candidate, join_forecasts(parts), skipped


def _add_evidence(
    candidates: tuple[Candidate, ...], forecasts: list[Forecast], y: FloatArray
) -> tuple[Candidate, ...]:
    """The racers with the evidence of what each had said of these targets (n, T)."""
    fine = min(
        r.learner.task.zero_bin_width(r.learned.tails) for r in candidates
    )  # the same event for all
    pairs = zip(candidates, forecasts, strict=True)
    density = [r.learner.task.log_density(said, y, fine) for r, said in pairs]
    return tuple(
        replace(racer, evidence=_sum_evidence(racer.evidence, gained))
        for racer, gained in zip(candidates, _clip_log_densities(np.stack(density)), strict=True)
    )


def _clip_log_densities(density: FloatArray) -> FloatArray:
    """The log densities (R, n), none more than so far below the best of its row.

    Rows that every candidate finds next to impossible are raised to ROW_EVIDENCE_LIMIT together:
    their differences stay, and sums stay small enough to tell candidates apart.
    """
    density = np.clip(density, -1e300, 1e300)
    best = np.max(density, axis=0)
    excess = np.minimum(best + ROW_EVIDENCE_LIMIT, 0.0)
    return np.asarray(np.maximum(density, best - MAX_ROW_ADVANTAGE_NATS) - excess)


def _sum_evidence(evidence: float, gained: FloatArray) -> float:
    """The evidence after more rows, added one by one: cutting a stream changes no bit."""
    return float(np.cumsum(np.append(evidence, gained))[-1])


def _eliminate_candidates(candidates: tuple[Candidate, ...]) -> tuple[Candidate, ...]:
    """The leader first, and those still in the race."""
    order = sorted(candidates, key=lambda racer: -racer.evidence)
    best = {racer.learner.settings.kind: racer for racer in reversed(order)}
    nats = {kind: racer.evidence for kind, racer in best.items()}
    leader = next(r for r in order if may_lead(r.learner.settings.kind, r.evidence, nats))
    seen, kind = leader.learned.seen, leader.learner.settings.kind
    if seen in (SELECTION_ROWS, REPLAY_SELECTION_ROWS):
        return (leader,)
    if seen >= TARGET_TYPE_SELECTION_ROWS:
        order = [racer for racer in order if racer.learner.settings.kind == kind]
    kept = [
        r
        for r in order
        if r.evidence > best[r.learner.settings.kind].evidence - ELIMINATION_MARGIN_NATS
    ]
    return (leader, *(racer for racer in kept if racer is not leader))


def _discount_evidence(candidates: tuple[Candidate, ...], seen: int) -> tuple[Candidate, ...]:
    """Whenever rows have doubled, what was before counts half: a fast start is no good end."""
    if seen & (seen - 1) or len(candidates) == 1:
        return candidates
    return tuple(replace(racer, evidence=0.5 * racer.evidence) for racer in candidates)


def _fork_replay_candidates(candidates: tuple[Candidate, ...]) -> tuple[Candidate, ...]:
    """At the end of youth: the winner goes on as it did, and beside it a copy that does not."""
    winner = candidates[0]
    settings = winner.learner.settings
    if not isinstance(settings.rehearse, str):
        return candidates
    other, behind = copy_state(winner.learned), 0.0
    if settings.replay_ratio:
        other = winner.learner.correct_replayed_state(other)
    else:
        other = other._replace(rehearsal=ReplayState(grown=REPLAY_SELECTION_ROWS))
        behind = MAX_ROW_ADVANTAGE_NATS
    goes_on = replace(settings, rehearse=settings.replay_ratio)
    does_not = replace(settings, rehearse=0 if settings.replay_ratio else DEFAULT_REPLAY_RATIO)
    return (
        Candidate(replace(winner.learner, settings=goes_on), winner.learned, 0.0, winner.alarms),
        Candidate(replace(winner.learner, settings=does_not), other, -behind, winner.alarms),
    )


def _list_eliminated(
    before: tuple[Candidate, ...], after: tuple[Candidate, ...], row: int
) -> tuple[EliminatedCandidate, ...]:
    return tuple(
        EliminatedCandidate(
            racer.learner.settings,
            after[0].evidence - racer.evidence,
            row,
            after[0].learner.settings,
        )
        for racer in before
        if racer not in after
    )
