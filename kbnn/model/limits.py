"""Limits of what a model holds, shared by learning, saving and loading.

Learning keeps within them, so that every model that was saved can be read again; the reader refuses
whatever is beyond them, so that a damaged or forged file cannot make predictions overflow.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from kbnn.core.state import ARRAYS, State
from kbnn.data.batch import MAX_ABS_VALUE
from kbnn.model.replay import REPLAY_ROWS
from kbnn.model.settings import MAX_REPLAY_RATIO

BELIEF_LIMIT: Final = 1e60
"""Of every number of a network's state; a row moves one by at most constants.STEP_LIMIT."""

MAX_CANDIDATES: Final = 64
MAX_REPLAY_BACKLOG: Final = 2.0 * MAX_REPLAY_RATIO * REPLAY_ROWS

ROW_EVIDENCE_LIMIT: Final = 1e5
"""Nats. What no candidate has foreseen, such as a value a million standard deviations away, counts
as this much against all of them: only differences between candidates matter, and beside sums of
1e16 these would be lost to rounding."""

EVIDENCE_LIMIT: Final = 1e9
"""Nats: candidates are compared for at most a few thousand rows."""

TARGET_LIMIT: Final = 2.0 * MAX_ABS_VALUE
"""Of a stored target: with lags it is the difference of two values."""


def is_within_limits(state: State) -> bool:
    """Whether every number of a network's state is finite and small enough to be stored."""
    return all(bool(np.all(np.abs(getattr(state, name)) <= BELIEF_LIMIT)) for name in ARRAYS)
