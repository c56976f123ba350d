"""Limits of the numbers in a model, shared by learning, saving and loading.

Learning stays within them, so that every saved model can be loaded. The reader rejects values
beyond them, so that a damaged or forged file cannot make predictions overflow.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from kbnn.core.state import ARRAYS, State
from kbnn.data.batch import MAX_ABS_VALUE
from kbnn.model.replay import REPLAY_ROWS
from kbnn.model.settings import MAX_REPLAY_RATIO

BELIEF_LIMIT: Final = 1e60
"""Limit of every number in a network's state; one row changes it by at most STEP_LIMIT."""

MAX_CANDIDATES: Final = 64
MAX_REPLAY_BACKLOG: Final = 2.0 * MAX_REPLAY_RATIO * REPLAY_ROWS

ROW_EVIDENCE_LIMIT: Final = 1e5
"""Largest loss of one row in nats. A value that is extreme for every candidate, such as one a
million standard deviations away, counts this much against all of them: only differences between
candidates matter, and rounding would lose them beside sums of 1e16."""

EVIDENCE_LIMIT: Final = 1e9
"""Limit in nats: candidates are compared for at most a few thousand rows."""

TARGET_LIMIT: Final = 2.0 * MAX_ABS_VALUE
"""Limit of a stored target: with lags it may be the difference of two values."""


def is_within_limits(state: State) -> bool:
    """Whether every number of a network's state is finite and within BELIEF_LIMIT."""
    return all(bool(np.all(np.abs(getattr(state, name)) <= BELIEF_LIMIT)) for name in ARRAYS)
