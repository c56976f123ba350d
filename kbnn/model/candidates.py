"""Online selection of the target type: candidates learn side by side until one is chosen.

A candidate is the model's settings with a fixed target type. All candidates learn the same rows.
The evidence of a candidate is its prequential log score, the sum of the log densities of the
targets, each predicted before it is learned. The leader's forecasts are the model's forecasts. A
candidate 100 nats behind is eliminated, and after 480 rows only the leader remains, since tails
show only after many rows. Whenever the row count doubles, the evidence so far is halved, because
the best type may start slowly. One row changes the difference between two candidates by at most
five nats, so that a single outlier does not decide. Candidates are compared at fixed row counts,
independent of batches. A positive type replaces the real type only if it is at least 10 nats ahead.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np

from kbnn.array_types import FloatArray
from kbnn.core.kernel import open_session
from kbnn.data.batch import Rows, TargetTypeChange, slice_rows
from kbnn.data.schema import Schema
from kbnn.model.learner import Learner, LearnerState, LearnEvents, make_learner
from kbnn.model.replay import REPLAY_INTERVAL_ROWS, ReplayBuffer
from kbnn.model.settings import REPLAY_ROWS, ROW_EVIDENCE_LIMIT, Settings
from kbnn.targets.base import first_invalid_row
from kbnn.targets.prediction import Forecast, join_forecasts, log_density
from kbnn.targets.registry import find_rival_type, may_lead, widen_target_type
from kbnn.wording import format_number

ELIMINATION_MARGIN_NATS: Final = 100.0
TARGET_TYPE_SELECTION_ROWS: Final = REPLAY_ROWS // 2 - REPLAY_INTERVAL_ROWS
"""Ends just before the scale is checked, where all remaining candidates may relearn rows."""
MAX_ROW_ADVANTAGE_NATS: Final = 5.0
MAX_ALARM_ROWS: Final = 100


@dataclass(eq=False, slots=True)
class Candidate:
    """Settings that compete, with their state and evidence.

    Treat it as immutable; a frozen dataclass would cost a microsecond per row.
    """

    learner: Learner
    learned: LearnerState
    evidence: float = 0.0  # nats
    alarms: tuple[int, ...] = ()  # last MAX_ALARM_ROWS rows that raised a drift alarm

    def record_rows(self, learned: LearnerState, events: LearnEvents) -> Candidate:
        """Return the candidate with a new state and with the alarms of the rows learned."""
        alarms = self.alarms
        if not events.restarted and not events.alarms:
            return Candidate(self.learner, learned, self.evidence, alarms)
        alarms = tuple(events.alarms) if events.restarted else (*alarms, *events.alarms)
        return replace(self, learned=learned, alarms=alarms[-MAX_ALARM_ROWS:])


class EliminatedCandidate(NamedTuple):
    """Settings of an eliminated candidate, the row, and its distance to the leader then."""

    settings: Settings
    nats_behind: float
    row: int
    leader: Settings


class SelectionStep(NamedTuple):
    """Candidates after some rows (leader first), the leader's forecasts, and those eliminated."""

    candidates: tuple[Candidate, ...]
    forecast: Forecast
    skipped: int  # rows without a target
    eliminated: tuple[EliminatedCandidate, ...] = ()


class RankedCandidate(NamedTuple):
    """A candidate other than the leader, and by how many nats it is behind.

    `row` is where it was eliminated; 0 if it still competes. `leader` and `settings` describe only
    the settings in which the two differ.
    """

    leader: str
    settings: str
    nats: float
    row: int


def rank_candidates(
    candidates: tuple[Candidate, ...], eliminated: tuple[EliminatedCandidate, ...]
) -> list[RankedCandidate]:
    """List all candidates other than the leader."""
    leader = candidates[0]
    won = leader.learner.settings
    racing = [
        EliminatedCandidate(r.learner.settings, leader.evidence - r.evidence, 0, won)
        for r in candidates[1:]
    ]
    return [
        RankedCandidate(f"--task {ahead.kind}", f"--task {other.kind}", nats, row)
        for other, nats, row, ahead in [*eliminated, *racing]
    ]


def format_evidence(nats: float, other: str) -> str:
    """Format the difference in evidence between the leader and another candidate.

    It may be negative, because the leader is chosen only every 32 rows.
    """
    side = "ahead of" if nats >= 0.0 else "behind"
    return f"{format_number(abs(nats), 3)} nats {side} {other}"


def compare_target_types(
    candidates: tuple[Candidate, ...], eliminated: tuple[EliminatedCandidate, ...]
) -> tuple[str, str, float] | None:
    """Return the leader's target type, the best other one, and by how many nats that is behind.

    None if the leader has the default type, or if no other type competed.
    """
    leader = candidates[0]
    kind = leader.learner.settings.kind
    behind = [(one.nats_behind, one.settings.kind) for one in eliminated if one.leader.kind == kind]
    behind += [(leader.evidence - r.evidence, r.learner.settings.kind) for r in candidates[1:]]
    found = find_rival_type(kind, behind)
    return None if found is None else (kind, found[1], found[0])


def find_first_invalid_row(candidates: tuple[Candidate, ...], y: FloatArray) -> int:
    """Return the first row whose target (n, T) some candidate's target type excludes; n if none."""
    return min([first_invalid_row(candidate.learner.task, y) for candidate in candidates])


def select_valid_candidates(
    candidates: tuple[Candidate, ...], y: FloatArray
) -> tuple[Candidate, ...]:
    """Select the candidates whose target type allows the targets (1, T)."""
    return tuple(
        candidate for candidate in candidates if find_first_invalid_row((candidate,), y) == len(y)
    )


def split_at_invalid_target(
    candidates: tuple[Candidate, ...], schema: Schema, rows: Rows
) -> tuple[tuple[Candidate, ...], Rows, tuple[TargetTypeChange, ...]]:
    """Return candidates, and rows up to the next target that a selected target type excludes.

    If the first row is excluded, the selected type was wrong: the buffered rows are relearned
    with a type that allows the target. While target types compete, such a type joins the
    candidates with the evidence of the best one.
    """
    stop = find_first_invalid_row(candidates, rows.y)
    if stop:
        return candidates, rows if stop == len(rows.y) else slice_rows(rows, 0, stop), ()
    if not len(candidates[0].learned.buffer):  # in a later pass nothing is buffered
        return candidates, slice_rows(rows, 0, 1), ()
    valid = select_valid_candidates(candidates, rows.y[:1])
    if not valid:
        before = candidates[0].learner.task.name
        kind = widen_target_type(before, rows.y[:1])
        change = TargetTypeChange(before, int(rows.number[0]), float(rows.y[0, 0]), kind)
        candidates = (_restart_as(candidates[0], schema, kind),)
        candidates, rest, more_changes = split_at_invalid_target(candidates, schema, rows)
        return candidates, rest, (change, *more_changes)
    known = {candidate.learner.settings.kind for candidate in valid}
    best = max(candidate.evidence for candidate in valid)
    more = [
        replace(_restart_as(candidate, schema, kind), evidence=best)
        for candidate in candidates
        if candidate not in valid
        and (kind := widen_target_type(candidate.learner.settings.kind, rows.y[:1])) not in known
    ]
    return split_at_invalid_target((*valid, *more), schema, rows)


def _restart_as(leader: Candidate, schema: Schema, kind: str) -> Candidate:
    """Restart a candidate with another target type from its buffered rows."""
    before, task = leader.learned, leader.learner.task
    kept = before.buffer.rows(len(before.columns) - task.scaled)
    raw = kept._replace(y=task.inverse_link(kept.y, before.calibration))
    settings = replace(leader.learner.settings, kind=kind)
    learner = make_learner(schema, settings)
    began, events = learner.initialize_state(ReplayBuffer(len(raw.y), raw.y.shape[1], raw))
    pairs = zip(began.members, before.members, strict=True)
    members = [new.state()._replace(counts=old.state().counts) for new, old in pairs]
    whole = began.seen == before.seen
    began = began._replace(
        members=tuple(map(open_session, members)),
        seen=before.seen,
        replay_state=began.replay_state if whole else before.replay_state,
    )
    return Candidate(learner, began, 0.0, leader.alarms).record_rows(
        began, events._replace(restarted=False)
    )


def learn_candidates(
    candidates: tuple[Candidate, ...], rows: Rows, first: int, again: bool
) -> SelectionStep:
    """Learn rows up to the next comparison of candidates: at least one, perhaps not all.

    `first` is the number of the first row. Rows of a later pass (`again`) end the selection: they
    are not new evidence.
    """
    if again and len(candidates) > 1:
        step = learn_candidates(candidates[:1], rows, first, again)
        return step._replace(
            eliminated=_list_eliminated(candidates, candidates[:1], candidates[0].learned.seen)
        )
    alone = len(candidates) == 1
    if not alone:
        rows = slice_rows(
            rows, 0, REPLAY_INTERVAL_ROWS - candidates[0].learned.seen % REPLAY_INTERVAL_ROWS
        )
    moved: tuple[Candidate, ...] = ()
    forecasts: list[Forecast] = []
    for candidate in candidates:
        candidate, forecast, skipped = _learn_candidate(
            candidate, rows, first, again, whole=not alone
        )
        moved += (candidate,)
        forecasts.append(forecast)
    if not alone:
        moved = _add_evidence(moved, forecasts, rows.y)
    seen = moved[0].learned.seen
    if alone or again or seen % REPLAY_INTERVAL_ROWS:
        return SelectionStep(moved, forecasts[0], skipped)
    kept = _eliminate_candidates(moved)
    lost = _list_eliminated(moved, kept, seen)
    return SelectionStep(_discount_evidence(kept, seen), forecasts[0], skipped, lost)


def _learn_candidate(
    candidate: Candidate, rows: Rows, first: int, again: bool, whole: bool
) -> tuple[Candidate, Forecast, int]:
    """Return the candidate after rows, its forecasts of them, and how many had no target.

    Learn all rows if `whole`, else up to where its networks or its scale change.
    """
    parts: list[Forecast] = []
    at = skipped = 0
    while not parts or (whole and at < len(rows.y)):
        rest = rows if at == 0 else slice_rows(rows, at, len(rows.y))
        y = candidate.learner.task.link(rest.y, candidate.learned.calibration)
        linked = rest if y is rest.y else rest._replace(y=y)
        learned, forecast, events = candidate.learner.learn_rows(
            candidate.learned, linked, first + at, again
        )
        candidate = candidate.record_rows(learned, events)
        parts.append(forecast)
        at += len(forecast.status)
        skipped += events.skipped
    return candidate, join_forecasts(parts), skipped


def _add_evidence(
    candidates: tuple[Candidate, ...], forecasts: list[Forecast], y: FloatArray
) -> tuple[Candidate, ...]:
    """Add the log densities of the targets (n, T) to the evidence of each candidate."""
    # All candidates must be scored on the same event.
    bin_width = min(r.learner.task.zero_bin_width(r.learned.calibration) for r in candidates)
    pairs = zip(candidates, forecasts, strict=True)
    density = [log_density(forecast, y, bin_width) for _, forecast in pairs]
    return tuple(
        replace(candidate, evidence=_sum_evidence(candidate.evidence, gained))
        for candidate, gained in zip(
            candidates, _clip_log_densities(np.stack(density)), strict=True
        )
    )


def _clip_log_densities(density: FloatArray) -> FloatArray:
    """Clip log densities (R, n) to at most MAX_ROW_ADVANTAGE_NATS below the best of each row.

    Rows that are nearly impossible for every candidate are raised to -ROW_EVIDENCE_LIMIT together.
    Their differences are kept, and sums stay small enough to resolve them.
    """
    density = np.clip(density, -1e300, 1e300)
    best = np.max(density, axis=0)
    excess = np.minimum(best + ROW_EVIDENCE_LIMIT, 0.0)
    return np.asarray(np.maximum(density, best - MAX_ROW_ADVANTAGE_NATS) - excess)


def _sum_evidence(evidence: float, gained: FloatArray) -> float:
    """Add gains one by one, so that the result does not depend on how rows are batched."""
    return float(np.cumsum(np.append(evidence, gained))[-1])


def _eliminate_candidates(candidates: tuple[Candidate, ...]) -> tuple[Candidate, ...]:
    """Return the leader, then the candidates that are not eliminated."""
    order = sorted(candidates, key=lambda candidate: -candidate.evidence)
    nats = {candidate.learner.settings.kind: candidate.evidence for candidate in order}
    leader = next(r for r in order if may_lead(r.learner.settings.kind, r.evidence, nats))
    if leader.learned.seen >= TARGET_TYPE_SELECTION_ROWS:
        return (leader,)
    near = [r for r in order if r.evidence > order[0].evidence - ELIMINATION_MARGIN_NATS]
    return (leader, *(candidate for candidate in near if candidate is not leader))


def _discount_evidence(candidates: tuple[Candidate, ...], seen: int) -> tuple[Candidate, ...]:
    """Halve the evidence whenever the row count has doubled, because a fast start can mislead."""
    if seen & (seen - 1) or len(candidates) == 1:
        return candidates
    return tuple(replace(candidate, evidence=0.5 * candidate.evidence) for candidate in candidates)


def _list_eliminated(
    before: tuple[Candidate, ...], after: tuple[Candidate, ...], row: int
) -> tuple[EliminatedCandidate, ...]:
    """List the candidates of `before` that are missing in `after`."""
    return tuple(
        EliminatedCandidate(
            candidate.learner.settings,
            after[0].evidence - candidate.evidence,
            row,
            after[0].learner.settings,
        )
        for candidate in before
        if candidate not in after
    )
