"""Schedule of replay: rows learned again, so that one pass is nearly as good as ten.

In the first 1,024 rows each new row is followed by K rows drawn from the replay buffer, later by K
1024/n, and after 16,384 rows by none, so that the cost of a long stream tends to that of learning
it once. The large ensemble of `--preset best` replays twice as long. Rows are replayed in bursts
whose positions depend on row counts alone. A burst is limited, because a live stream must not wait;
the remaining backlog is replayed after each of the next rows.

Repeated rows are not new information. After 1,024 rows the surplus is removed, block by block, P^-1
<- P0^-1 + (P^-1 - P0^-1)/phi with phi = rows learned/new rows. From then on replay updates means,
noise and head but restores the covariances, so that the network can still learn. Before that, the
surplus speeds up the start: updating means alone from the first row learns slower. A candidate that
starts to replay after 1,024 rows (kbnn.model.candidates) keeps its surplus until the comparison
ends.

After a drift alarm, the rows before it are dropped at the next burst and the schedule restarts.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from kbnn.array_types import IntArray
from kbnn.core.layout import invert_spd, layout_of
from kbnn.core.state import COUNT, State

REPLAY_ROWS: Final = 1024
REPLAY_END_ROWS: Final = 16 * REPLAY_ROWS
"""Rows after which nothing is replayed."""
REPLAY_INTERVAL_ROWS: Final = 32
"""New rows between two bursts during the first REPLAY_ROWS rows."""
MAX_REPLAY_INTERVAL_ROWS: Final = 256
"""New rows between two bursts at most: a drift alarm takes effect at the next burst."""
MAX_BURST_ROWS: Final = 512
"""Rows replayed between two new rows at most, including rows relearned in a new scale."""
DEFAULT_REPLAY_RATIO: Final = 8
"""Default number of replayed rows per new row during the first REPLAY_ROWS rows."""

ALARM_REPLAY_RATIO: Final = 2
"""Largest replay ratio after a drift alarm: the few rows since then would be overfitted."""


class ReplayState(NamedTuple):
    """Progress of the replay schedule."""

    debt: float = 0.0  # backlog: rows still to be replayed
    since: int = 0  # row count at which the schedule (re)started
    settled: bool = False  # the surplus was removed: replay no longer changes covariances
    rows: int = 0  # rows replayed; restarts when the networks restart in a new scale
    alarm: int = 0  # number of the row that raised the last alarm, until the next burst
    grown: int = REPLAY_ROWS  # row count at which the surplus is removed


def compute_replay_interval(n: int) -> int:
    """Return the new rows from one burst to the next, n rows after the schedule started."""
    return min(
        REPLAY_INTERVAL_ROWS << max(0, (n // REPLAY_ROWS).bit_length() - 1),
        MAX_REPLAY_INTERVAL_ROWS,
    )


def find_next_burst(replay: ReplayState, seen: int) -> int:
    """Return the next row count after `seen` with a burst; after an alarm the backlog waits."""
    if replay.debt >= 1.0 and not replay.alarm:
        return seen + 1
    n = seen - replay.since
    step = compute_replay_interval(n)
    return replay.since + (n // step + 1) * step


def is_replay_due(replay: ReplayState, seen: int) -> bool:
    """Whether rows are added to the backlog here; other bursts only continue it."""
    n = seen - replay.since
    return n % compute_replay_interval(n - 1) == 0


def compute_replay_share(n: int, full_rows: int = REPLAY_ROWS) -> float:
    """Return the share of the replay ratio that applies n rows after the schedule started.

    It is 1 up to `full_rows` rows, then full_rows/n, and 0 after 16 times as many.
    """
    return min(1.0, full_rows / max(n, 1)) if n <= 16 * full_rows else 0.0


def add_to_backlog(
    replay: ReplayState, seen: int, ratio: int, full_rows: int = REPLAY_ROWS
) -> ReplayState:
    """Add the rows to replay for the interval that ends at `seen`."""
    n = seen - replay.since
    ratio = min(ratio, ALARM_REPLAY_RATIO) if replay.since else ratio
    share = compute_replay_share(n, full_rows)
    return replay._replace(debt=replay.debt + compute_replay_interval(n - 1) * ratio * share)


def draw_replay_rows(seed: int, seen: int, rows: int, count: int) -> IntArray:
    """Draw `count` of `rows` buffered rows: whole random permutations, then part of one."""
    generator = np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, seen, rows])))
    rounds = [generator.permutation(rows) for _ in range(count // rows)]
    return np.concatenate([*rounds, generator.choice(rows, count % rows, replace=False)])


def remove_replayed_information(state: State) -> State:
    """Remove the surplus information of replayed rows from the covariances.

    With phi = (rows + replayed rows)/rows, each block becomes P^-1 <- P0^-1 + (P^-1 - P0^-1)/phi.
    """
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
