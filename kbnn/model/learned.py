"""What has been learned, and what happened among the rows of a step."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kbnn.core.engine import Session, open_session
from kbnn.core.network import ALARM, UNLABELLED
from kbnn.core.normal import FloatArray
from kbnn.core.sharpness import NO_TEMPERATURE
from kbnn.model.rehearsal import ReplayState
from kbnn.model.warmup import ReplayBuffer
from kbnn.task.forecast import Forecast


class LearnerState(NamedTuple):
    """What has been learned; `advance` uses it up.

    The members are open beliefs that move on in place, and so do the rows kept. `columns` holds
    the statistics of the scaled targets and then of the inputs. While there are no members, the
    rows kept are those held.
    """

    members: tuple[Session, ...]
    columns: FloatArray
    log_weight: FloatArray
    seen: int  # rows counted into the scale
    changes: int  # of the scale
    kept: ReplayBuffer
    tails: FloatArray  # of what is stated, see kbnn.core.tails
    rehearsal: ReplayState = ReplayState()
    sharpness: FloatArray = NO_TEMPERATURE  # of what is stated of classes, see kbnn.core.sharpness


class LearnEvents(NamedTuple):
    """What happened among the rows of one step."""

    alarms: list[int]  # numbers of the rows that raised one
    skipped: int = 0  # rows without a target
    restarted: bool = False  # all rows were learned anew: these are all alarms there were


def copy_state(state: LearnerState) -> LearnerState:
    """The same, to go another way."""
    return state._replace(
        members=tuple(open_session(member.state()) for member in state.members),
        kept=state.kept.copy(),
    )


def record_alarm(state: LearnerState, number: int) -> LearnerState:
    """After an alarm raised by the row of that number."""
    return state._replace(rehearsal=state.rehearsal._replace(alarm=number))


def events_of(said: Forecast, first: int) -> LearnEvents:
    """What the status of rows tells, the first of them row `first` of the stream."""
    if not int(np.bitwise_or.reduce(said.status)) & (ALARM | UNLABELLED):
        return LearnEvents([])
    raised = np.flatnonzero(said.status & ALARM)
    skipped = int(np.count_nonzero(said.status & UNLABELLED))
    return LearnEvents([first + int(at) for at in raised], skipped)
