"""Draws of the predictive function, and the rows to label next, for commands and Python."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from kbnn.array_types import FloatArray
from kbnn.data.batch import Rows
from kbnn.data.row_blocks import concat_rows
from kbnn.errors import UsageError
from kbnn.model.function_posterior import FunctionSampler, QueryRanking, rank_queries
from kbnn.model.model import OnlineModel
from kbnn.output.writers import AddedField
from kbnn.targets.prediction import Forecast
from kbnn.workflows.predicting import AddedColumns


def check_independent_rows(model: OnlineModel, asked: str) -> None:
    """Raise UsageError if rows depend on the rows before them."""
    if model.schema.lags:
        raise UsageError(f"{asked} is for models without lags: their rows depend on earlier ones")


def sample_batches(
    model: OnlineModel, batches: Iterable[Rows], count: int, seed: int
) -> FloatArray:
    """Draw functions and evaluate them at all rows: (count, n, targets or classes)."""
    sampler = FunctionSampler(model, count, seed)
    parts = [_draw(sampler, rows) for rows in batches]
    return np.concatenate(parts, axis=1)


def _draw(sampler: FunctionSampler, rows: Rows) -> FloatArray:
    drawn = sampler.draw(rows)
    if rows.unreadable is not None:
        drawn[:, rows.unreadable] = np.nan
    return drawn


def add_samples(model: OnlineModel, count: int, seed: int) -> AddedColumns:
    """Add draws of the function: `sample_1`, ..., or the probabilities `sample_1_p_CLASS`, ..."""
    check_independent_rows(model, "--samples")
    sampler = FunctionSampler(model, count, seed)
    task = model.task
    suffixes = [f"_{target}" for target in task.targets] if len(task.targets) > 1 else [""]
    if task.labels:
        suffixes = [f"_p_{name}" for name in model.schema.classes]
    fields = [
        AddedField(f"sample_{draw + 1}{suffix}", False, _select_draw(draw, part))
        for draw in range(count)
        for part, suffix in enumerate(suffixes)
    ]
    return AddedColumns(fields, lambda rows, forecast: _draw(sampler, rows))


def _select_draw(draw: int, part: int) -> Callable[[FloatArray], FloatArray]:
    return lambda drawn: drawn[draw, :, part]


def rank_batches(model: OnlineModel, batches: Sequence[Rows], count: int) -> QueryRanking:
    """Choose the rows whose labels reduce the uncertainty about all readable rows most."""
    if not batches:
        return QueryRanking(np.zeros(0, dtype=np.int64), np.zeros(0))
    rows = concat_rows([part._replace(original=None) for part in batches])
    readable = np.arange(len(rows.y))
    if rows.unreadable is not None:
        readable = np.flatnonzero(~rows.unreadable)
    if not len(readable):
        return QueryRanking(readable[:0], np.zeros(0))
    x_sd = None if rows.x_sd is None else rows.x_sd[readable]
    known = Rows(rows.x[readable], rows.y[readable], rows.number[readable], x_sd)
    found = rank_queries(model, known, count)
    return found._replace(rows=readable[found.rows])


def add_ranks(ranking: QueryRanking) -> AddedColumns:
    """Add the column `ask`: 1 for the row to label first, and so on; empty in other rows."""
    rank = {int(row): float(at + 1) for at, row in enumerate(ranking.rows)}
    written = 0

    def find_ranks(rows: Rows, forecast: Forecast) -> FloatArray:
        nonlocal written
        places = range(written, written + len(rows.y))
        written += len(rows.y)
        return np.array([rank.get(place, np.nan) for place in places])

    return AddedColumns([AddedField("ask", False, lambda ranks: ranks)], find_ranks)
