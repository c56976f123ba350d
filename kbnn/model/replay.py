"""Replay: rows learned again, so that one pass is nearly as good as ten.

The replay buffer holds the rows of the warm-up (kbnn.model.warmup), later the last rows learned.

A later change of scale converts what was learned about the weights. The conversion is exact for a
linear model; a network with hidden layers represents another function of the same weights
afterwards. After a large change the last 2,048 rows are therefore learned again. While the buffer
holds all rows ever learned, the network restarts from its prior instead, as if the better scale had
been known in advance.

The buffer is saved with the model, so that a run can be continued exactly.

The schedule depends on row counts. In the first 1,024 rows each new row is followed by K rows drawn
from the replay buffer, later by K 1024/n, and after 16,384 rows by none, so that the cost of a long
stream tends to that of learning it once. The large ensemble of `--preset best` replays twice as
long. Rows are replayed in bursts whose positions depend on row counts alone. A burst is limited,
because a live stream must not wait; the remaining backlog is replayed after each of the next rows.

Repeated rows are not new information. After 1,024 rows the surplus is removed, block by block, P^-1
<- P0^-1 + (P^-1 - P0^-1)/phi with phi = rows learned/new rows. From then on replay updates means,
noise and head but restores the covariances, so that the network can still learn. Before that, the
surplus speeds up the start: updating means alone from the first row learns slower. A candidate that
starts to replay after 1,024 rows (kbnn.model.candidates) keeps its surplus until the comparison
ends.

After a drift alarm, the rows before it are dropped at the next burst and the schedule restarts. A
gradual change raises no alarm. Where every network replays, the oldest 64 rows of the buffer are
therefore compared with the newest 64 at each burst: if their log likelihood is lower by four
standard errors, the older half of the buffer is dropped. In an ensemble, the network without
replay follows gradual changes: after row 2,048 its information beyond the prior decays, by a factor
of e in FORGETTING_ROWS rows. It starts to do so late, and is dropped like any network that does not
pay, so that stationary streams lose next to nothing.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from kbnn.array_types import FloatArray, IntArray
from kbnn.core import kernel
from kbnn.core.layout import layout_of
from kbnn.core.state import COUNT, State
from kbnn.data.batch import Rows, pad_columns
from kbnn.model.settings import REPLAY_ROWS

MAX_HELD_ROWS = 512
MAX_BUFFER_CELLS = 1 << 18
"""Limit of buffered input values: fewer wide rows are buffered, but at least MAX_HELD_ROWS."""
MIN_BUFFER_CAPACITY_ROWS = 16
"""Smallest number of free rows allocated at once, for rows that are added one by one."""


class BufferedRows(NamedTuple):
    """Rows in the user's units; x_sd has no columns where every input was exact.

    `number` counts the rows of the stream from 1; `trust` is the probability that the target was
    not an outlier.
    """

    x: FloatArray
    x_sd: FloatArray
    y: FloatArray
    weight: FloatArray
    number: FloatArray
    trust: FloatArray


class ReplayBuffer:
    """The last `most` rows, independent of how they were batched.

    Rows are appended to arrays with spare capacity. When these are full, the last rows are copied
    to new arrays, so that arrays returned by `rows` never change.
    """

    def __init__(self, most: int, targets: int, rows: BufferedRows | None = None) -> None:
        self.max_rows, self.targets = most, targets
        self._set_rows(make_empty_rows(targets) if rows is None else rows)
        self.fill_values = np.zeros(0)
        """Values of the columns of x in rows before the column existed; 0 beyond its end."""

    def _set_rows(self, rows: BufferedRows) -> None:
        self._room, self._stop = rows, len(rows.y)

    def __len__(self) -> int:
        return min(self._stop, self.max_rows)

    def add(self, rows: Rows, width: int, first: int, trust: FloatArray | None = None) -> None:
        """Append rows with `width` columns of x; the first is row `first` of the stream."""
        skipped = max(0, len(rows.y) - self.max_rows)
        number = first + skipped
        at, stop = self._stop, self._stop + len(rows.y) - skipped
        exact = rows.x_sd is None or not np.count_nonzero(rows.x_sd)
        room = self._room
        known = room.x.shape[1]
        if stop > len(room.y) or width > known or not (exact or room.x_sd.shape[1]):
            self._make_room(stop - at, max(width, known), exact)
            room, at = self._room, self._stop
            stop, known = at + len(rows.y) - skipped, room.x.shape[1]
        x, y = rows.x[:, :width], rows.y
        if skipped or width < known:
            x, y = pad_columns(x[skipped:], known, self.fill_values), y[skipped:]
        kernel.copy_rows([room.x, room.y], at, (x, y))
        if rows.x_sd is not None and not exact:
            room.x_sd[at:stop] = pad_columns(rows.x_sd[skipped:, :width], known)
        if rows.weight is not None:
            room.weight[at:stop] = rows.weight[skipped:]
        if trust is not None:
            room.trust[at:stop] = trust[skipped:]
        room.number[at:stop] = number if stop - at == 1 else np.arange(number, number + stop - at)
        self._stop = stop

    def _make_room(self, more: int, width: int, exact: bool) -> None:
        """Allocate arrays for more rows; defaults are x_sd 0, weight 1 and trust 1."""
        kept = self.rows(width)
        if more >= self.max_rows:  # the new rows replace them all
            kept = BufferedRows._make(array[:0] for array in kept)
        held = len(kept.y)
        size = held + max(more, min(held, self.max_rows // 2), MIN_BUFFER_CAPACITY_ROWS)
        exact = exact and not kept.x_sd.shape[1]
        room = BufferedRows(
            np.empty((size, width)),
            np.zeros((size, 0 if exact else width)),
            np.empty((size, self.targets)),
            np.ones(size),
            np.empty(size),
            np.ones(size),
        )
        for new, old in zip(room, kept, strict=True):
            if old.shape[1:] == new.shape[1:]:
                new[:held] = old
        self._room, self._stop = room, held

    def mark(self) -> tuple[BufferedRows, int, FloatArray]:
        """Return what `reset` needs to discard all rows that are added later."""
        return self._room, self._stop, self.fill_values

    def reset(self, mark: tuple[BufferedRows, int, FloatArray]) -> None:
        """Return to a mark; values written after it are reset to their defaults."""
        self._room, self._stop, self.fill_values = mark
        if self._stop < len(self._room.y):
            self._room.x_sd[self._stop :] = 0.0
            self._room.weight[self._stop :] = self._room.trust[self._stop :] = 1.0

    def clear(self) -> None:
        """Discard all rows."""
        self._set_rows(make_empty_rows(self.targets))

    def set_trust(self, trust: FloatArray) -> None:
        """Set the trust of all rows, or of the last len(trust) rows."""
        rows = self.rows()
        older = max(0, len(rows.y) - len(trust))
        last = trust[len(trust) - len(rows.y) + older :]
        self._set_rows(rows._replace(trust=np.concatenate((rows.trust[:older], last))))

    def drop_before(self, number: int) -> None:
        """Discard rows with smaller numbers."""
        rows = self.rows()
        self._set_rows(BufferedRows._make(array[rows.number >= number] for array in rows))

    def copy(self) -> ReplayBuffer:
        """Copy the buffer; rows added later to one do not appear in the other."""
        copied = ReplayBuffer(self.max_rows, self.targets, self.rows())
        copied.fill_values = self.fill_values
        return copied

    def shrink_to_fit(self) -> None:
        """Release spare capacity."""
        self._set_rows(BufferedRows._make(array.copy() for array in self.rows()))

    def rows(self, width: int = 0) -> BufferedRows:
        """Return all rows, oldest first, with at least `width` columns of x."""
        room, stop = self._room, self._stop
        start = max(0, stop - self.max_rows)
        if start or stop < len(room.y):
            room = BufferedRows._make([array[start:stop] for array in room])
        width = max(width, room.x.shape[1])
        exact = not room.x_sd.shape[1]
        if exact and width == room.x.shape[1]:
            return room
        sd = pad_columns(room.x_sd, 0 if exact or not room.x_sd.any() else width)
        return room._replace(x=pad_columns(room.x, width, self.fill_values), x_sd=sd)


def make_empty_rows(targets: int) -> BufferedRows:
    """Return zero rows."""
    none = np.zeros((0, 0))
    return BufferedRows(none, none, np.zeros((0, targets)), np.zeros(0), np.zeros(0), np.zeros(0))


def compute_buffer_rows(inputs: int, most: int) -> int:
    """Return how many rows with `inputs` inputs are buffered, at most `most`."""
    return min(most, max(MAX_HELD_ROWS, MAX_BUFFER_CELLS // max(inputs, 1)))


REPLAY_END_ROWS: Final = 16 * REPLAY_ROWS
"""Rows after which nothing is replayed."""
REPLAY_INTERVAL_ROWS: Final = 32
"""New rows between two bursts during the first REPLAY_ROWS rows."""
MAX_REPLAY_INTERVAL_ROWS: Final = 256
"""New rows between two bursts at most: a drift alarm takes effect at the next burst."""
MAX_BURST_ROWS: Final = 512
"""Rows replayed between two new rows at most, including rows relearned in a new scale."""

FORGETTING_ROWS: Final = 4000.0
"""Rows over which the information of a network that forgets decays by a factor of e."""
FORGETTING_START_ROWS: Final = 2048
"""Rows of which nothing is forgotten: few rows are worth more than following a change."""
FORGETTING_INTERVAL_ROWS: Final = 512
"""Rows from one decay to the next; it inverts the covariances."""

ALARM_REPLAY_RATIO: Final = 2
"""Largest replay ratio after a drift alarm: the few rows since then would be overfitted."""

COMPARED_ROWS: Final = 64
OUTDATED_STANDARD_ERRORS: Final = 4.0
"""Rows at each end of the buffer that are compared, and the difference that counts."""


class ReplayState(NamedTuple):
    """Progress of the replay schedule."""

    backlog: float = 0.0  # rows still to be replayed
    since: int = 0  # row count at which the schedule (re)started
    is_corrected: bool = False  # the surplus was removed: replay no longer changes covariances
    rows: int = 0  # rows replayed; restarts when the networks restart in a new scale
    alarm: int = 0  # number of the row that raised the last alarm, until the next burst
    correction_row: int = REPLAY_ROWS  # row count at which the surplus is removed


def compute_replay_interval(n: int) -> int:
    """Return the new rows from one burst to the next, n rows after the schedule started."""
    return min(
        REPLAY_INTERVAL_ROWS << max(0, (n // REPLAY_ROWS).bit_length() - 1),
        MAX_REPLAY_INTERVAL_ROWS,
    )


def find_next_burst(replay: ReplayState, seen: int) -> int:
    """Return the next row count after `seen` with a burst; after an alarm the backlog waits."""
    if replay.backlog >= 1.0 and not replay.alarm:
        return seen + 1
    n = seen - replay.since
    step = compute_replay_interval(n)
    return replay.since + (n // step + 1) * step


def is_replay_due(replay: ReplayState, seen: int) -> bool:
    """Whether rows are added to the backlog here; other bursts only continue it."""
    n = seen - replay.since
    return n % compute_replay_interval(n - 1) == 0


def is_forgetting_due(replay: ReplayState, seen: int) -> bool:
    """Whether the information of networks that forget decays here; a burst is due here too."""
    n = seen - replay.since
    return seen > FORGETTING_START_ROWS and n > 0 and n % FORGETTING_INTERVAL_ROWS == 0


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
    return replay._replace(backlog=replay.backlog + compute_replay_interval(n - 1) * ratio * share)


def are_outdated(oldest: FloatArray, newest: FloatArray) -> bool:
    """Return whether the oldest rows have a lower log likelihood, by four standard errors."""
    with np.errstate(over="ignore", invalid="ignore"):
        error = np.sqrt((np.var(oldest) + np.var(newest)) / len(oldest))
        return bool(np.mean(newest) - np.mean(oldest) > OUTDATED_STANDARD_ERRORS * error)


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
    counts = state.counts.copy()
    counts[COUNT.rehearsed] = 0
    return keep_information(state, rows / (rows + more))._replace(counts=counts)


def keep_information(state: State, share: float) -> State:
    """Keep this share of the information beyond the prior: P^-1 <- P0^-1 + share (P^-1 - P0^-1)."""
    if share >= 1.0:
        return state
    layout, cov = layout_of(state.config), state.cov.copy()
    prior_var = state.prior_var[np.concatenate(layout.block_positions)]
    dims = np.array(layout.block_dims, dtype=np.int64)
    if kernel.is_compiled():
        kernel.keep_information(cov, prior_var, dims, share)
    else:
        blocks = np.split(cov, layout.block_offsets[1:])
        for block, prior in zip(blocks, np.split(prior_var, np.cumsum(dims)[:-1]), strict=False):
            keep_block_information(block, prior, share)
    prior = 1.0 / state.prior_var[layout.loose_positions]
    precision = 1.0 / layout.loose_var(cov)
    layout.loose_var(cov)[:] = 1.0 / (prior + (precision - prior) * share)
    return state._replace(cov=cov)


def keep_block_information(block: FloatArray, prior_var: FloatArray, share: float) -> None:
    """Keep a share of the information in a packed triangle, in place; numpy version of the kernel.

    The result has the inverse share P^-1 + (1 - share) P0^-1: it is P/share after each weight was
    measured once more, with the variance P0/(1 - share).
    """
    block /= share
    at, other = np.triu_indices(len(prior_var))
    for i, noise in enumerate((prior_var / (1.0 - share)).tolist()):
        column = np.empty(len(prior_var))
        column[at[other == i]] = block[other == i]
        column[other[at == i]] = block[at == i]
        block -= (column / (column[i] + noise))[at] * column[other]
