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
One that begins to rehearse at the end of youth (kbnn.model.race) keeps its surplus as long as that
is on trial.

After a drift alarm the rows before it are no longer what is to be learned: with the next burst they
are dropped, and the stream is young again.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from kbnn.core.layout import IntArray, inverse, layout_of
from kbnn.core.state import COUNT, State

YOUNG: Final = 1024
OLD: Final = 16 * YOUNG
"""From here on a stream has rows enough of its own."""
BURST: Final = 32
"""New rows between two bursts while the stream is young."""
LONGEST: Final = 256
"""And in a long stream: an alarm is acted upon at the next burst."""
BUDGET: Final = 512
"""Rows rehearsed between two new ones at most, those learned anew there counted in."""
OFTEN: Final = 8
"""How often a row is rehearsed while the stream is young, where nothing else was said."""


AFTER_ALARM: Final = 2
"""The same after a drift alarm, at most: few rows are known of a new world, and would be learned by
heart."""


class Rehearsal(NamedTuple):
    """How far rehearsal has come."""

    debt: float = 0.0  # rows still to be rehearsed
    since: int = 0  # rows of the stream when it became young
    settled: bool = False  # the surplus was taken back: means alone from now on
    rows: int = 0  # rehearsed in all, anew after the scale was learned anew
    alarm: int = 0  # number of the row that raised the last one, until the next burst
    grown: int = YOUNG  # rows of the stream when the surplus is taken back


def interval(n: int) -> int:
    """New rows from one burst to the next, n after the stream became young."""
    return min(BURST << max(0, (n // YOUNG).bit_length() - 1), LONGEST)


def next_burst(rehearsal: Rehearsal, seen: int) -> int:
    """The row count after `seen` at which a burst is due; after an alarm old debts wait."""
    if rehearsal.debt >= 1.0 and not rehearsal.alarm:
        return seen + 1
    n = seen - rehearsal.since
    step = interval(n)
    return rehearsal.since + (n // step + 1) * step


def accrues(rehearsal: Rehearsal, seen: int) -> bool:
    """Whether rows are due here anew, and not only what is owed."""
    n = seen - rehearsal.since
    return n % interval(n - 1) == 0


def accrued(rehearsal: Rehearsal, seen: int, often: int) -> Rehearsal:
    """What the rows of an interval add to the debt."""
    n = seen - rehearsal.since
    often = min(often, AFTER_ALARM) if rehearsal.since else often
    share = min(1.0, YOUNG / n) if n <= OLD else 0.0
    return rehearsal._replace(debt=rehearsal.debt + interval(n - 1) * often * share)


def drawn(seed: int, seen: int, rows: int, count: int) -> IntArray:
    """Which of so many kept rows are rehearsed: all in random order, once or more, and a part."""
    generator = np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, seen, rows])))
    rounds = [generator.permutation(rows) for _ in range(count // rows)]
    return np.concatenate([*rounds, generator.choice(rows, count % rows, replace=False)])


def taken_back(state: State) -> State:
    """The belief without the information that rehearsed rows pretended to be."""
    rows, more = int(state.counts[COUNT.rows]), int(state.counts[COUNT.rehearsed])
    if not rows or not more:
        return state
    layout = layout_of(state.config)
    dense = layout.unpack(state.cov)
    for index, order in enumerate(layout.order):
        prior = np.diag(1.0 / state.prior_var[order])
        precision = inverse(dense[index])
        if precision is None:
            continue
        wider = inverse(prior + (precision - prior) * (rows / (rows + more)))
        dense[index] = dense[index] if wider is None else wider
    prior = 1.0 / state.prior_var[layout.loose]
    precision = 1.0 / layout.loose_var(state.cov)
    loose = 1.0 / (prior + (precision - prior) * (rows / (rows + more)))
    counts = state.counts.copy()
    counts[COUNT.rehearsed] = 0
    return state._replace(cov=layout.pack(dense, loose), counts=counts)
