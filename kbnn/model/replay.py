"""Rows learned once more while a stream is young, so that one pass is nearly as good as ten.

A network that meets a row once takes from it what its weights, as they were, allowed. While fewer
than 1,024 rows have come, each new row is therefore followed by K rows drawn from those kept; later
by K 1024/n, and after 16,384 by none, so that the cost of a long stream tends to that of learning
it once. Rows are rehearsed in bursts between two new ones, whose places depend on row counts alone.
What one burst leaves, since a live stream must not wait, is rehearsed after each of the next rows
until nothing is owed.

Repeated rows are no new information. When youth ends, the surplus is taken back, block by block,
P^-1 <- P0^-1 + (P^-1 - P0^-1)/phi with phi = rows learned/new rows, and from then on rehearsal
moves means, noise and head and puts the covariances back: a long stream must stay able to learn.
A young network gains a fast start by its surplus; means alone from the first row learn slower.
One that begins to rehearse at the end of youth (kbnn.model.candidates) keeps its surplus as long as that
is on trial.

After a drift alarm the rows before it are no longer what is to be learned: with the next burst they
are dropped, and the stream is young again.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from kbnn.array_types import IntArray
from kbnn.core.layout import invert_spd, layout_of
from kbnn.core.state import COUNT, State

REPLAY_ROWS: Final = 1024
REPLAY_END_ROWS: Final = 16 * REPLAY_ROWS
"""From here on a stream has rows enough of its own."""
REPLAY_INTERVAL_ROWS: Final = 32
"""New rows between two bursts while the stream is young."""
MAX_REPLAY_INTERVAL_ROWS: Final = 256
"""And in a long stream: an alarm is acted upon at the next burst."""
MAX_BURST_ROWS: Final = 512
"""Rows rehearsed between two new ones at most, those learned anew there counted in."""
DEFAULT_REPLAY_RATIO: Final = 8
"""How often a row is rehearsed while the stream is young, where nothing else was said."""


ALARM_REPLAY_RATIO: Final = 2
"""The same after a drift alarm, at most: few rows are known of a new world, and would be learned by
heart."""


class ReplayState(NamedTuple):
    """How far rehearsal has come."""

    debt: float = 0.0  # rows still to be rehearsed
    since: int = 0  # rows of the stream when it became young
    settled: bool = False  # the surplus was taken back: means alone from now on
    rows: int = 0  # rehearsed in all, anew after the scale was learned anew
    alarm: int = 0  # number of the row that raised the last one, until the next burst
    grown: int = REPLAY_ROWS  # rows of the stream when the surplus is taken back


def compute_replay_interval(n: int) -> int:
    """New rows from one burst to the next, n after the stream became young."""
    return min(
        REPLAY_INTERVAL_ROWS << max(0, (n // REPLAY_ROWS).bit_length() - 1),
        MAX_REPLAY_INTERVAL_ROWS,
    )


def find_next_burst(replay: ReplayState, seen: int) -> int:
    """The row count after `seen` at which a burst is due; after an alarm old debts wait."""
    if replay.debt >= 1.0 and not replay.alarm:
        return seen + 1
    n = seen - replay.since
    step = compute_replay_interval(n)
    return replay.since + (n // step + 1) * step


def is_replay_due(replay: ReplayState, seen: int) -> bool:
    """Whether rows are due here anew, and not only what is owed."""
    n = seen - replay.since
    return n % compute_replay_interval(n - 1) == 0


def add_to_backlog(replay: ReplayState, seen: int, ratio: int) -> ReplayState:
    """What the rows of an interval add to the debt."""
    n = seen - replay.since
    ratio = min(ratio, ALARM_REPLAY_RATIO) if replay.since else ratio
    share = min(1.0, REPLAY_ROWS / n) if n <= REPLAY_END_ROWS else 0.0
    return replay._replace(debt=replay.debt + compute_replay_interval(n - 1) * ratio * share)


def draw_replay_rows(seed: int, seen: int, rows: int, count: int) -> IntArray:
    """Which of so many kept rows are rehearsed: all in random order, once or more, and a part."""
    generator = np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, seen, rows])))
    rounds = [generator.permutation(rows) for _ in range(count // rows)]
    return np.concatenate([*rounds, generator.choice(rows, count % rows, replace=False)])


def remove_replayed_information(state: State) -> State:
    """The belief without the information that rehearsed rows pretended to be."""
    rows, more = int(state.counts[COUNT.rows]), int(state.counts[COUNT.rehearsed])
    if not rows or not more:
        return state
    layout = layout_of(state.config)
    dense = layout.unpack_blocks(state.cov)
    for index, order in enumerate(layout.block_positions):
        prior = np.diag(1.0 / state.prior_var[order])
        precision = invert_spd(dense[index])
        if precision is None:
            continue
        wider = invert_spd(prior + (precision - prior) * (rows / (rows + more)))
        dense[index] = dense[index] if wider is None else wider
    prior = 1.0 / state.prior_var[layout.loose_positions]
    precision = 1.0 / layout.loose_var(state.cov)
    loose = 1.0 / (prior + (precision - prior) * (rows / (rows + more)))
    counts = state.counts.copy()
    counts[COUNT.rehearsed] = 0
    return state._replace(cov=layout.pack_blocks(dense, loose), counts=counts)
