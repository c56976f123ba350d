"""What has been learned, and what happened among the rows of a step."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kbnn.core.engine import Session, open_session
from kbnn.core.network import ALARM, UNLABELLED
from kbnn.core.normal import FloatArray
from kbnn.core.sharpness import NONE
from kbnn.model.rehearsal import Rehearsal
from kbnn.model.warmup import Kept
from kbnn.task.forecast import Forecast


class Learned(NamedTuple):
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
    kept: Kept
    tails: FloatArray  # of what is stated, see kbnn.core.tails
    rehearsal: Rehearsal = Rehearsal()
    sharpness: FloatArray = NONE  # of what is stated of classes, see kbnn.core.sharpness


class Events(NamedTuple):
    """What happened among the rows of one step."""

    alarms: list[int]  # numbers of the rows that raised one
    skipped: int = 0  # rows without a target
    restarted: bool = False  # all rows were learned anew: these are all alarms there were


def copied(learned: Learned) -> Learned:
    """The same, to go another way."""
    return learned._replace(
        members=tuple(open_session(member.state()) for member in learned.members),
        kept=learned.kept.copy(),
    )


def warned(learned: Learned, number: int) -> Learned:
    """After an alarm raised by the row of that number."""
    return learned._replace(rehearsal=learned.rehearsal._replace(alarm=number))


def events_of(said: Forecast, first: int) -> Events:
    """What the status of rows tells, the first of them row `first` of the stream."""
    if not int(np.bitwise_or.reduce(said.status)) & (ALARM | UNLABELLED):
        return Events([])
    raised = np.flatnonzero(said.status & ALARM)
    skipped = int(np.count_nonzero(said.status & UNLABELLED))
    return Events([first + int(at) for at in raised], skipped)
