"""Warm-up: the first rows are held until their scale is known, then learned in order.

At the start the last rows, at most 512, are held until 32 rows with a target were seen and every
target has varied. Then the scale is fitted to them and they are learned in order. Until then
forecasts come from a cold-start predictor (kbnn.targets.base), and a prediction learns the
held rows in a temporary state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kbnn.array_types import FloatArray, IntArray
from kbnn.core.reference import UNLABELLED
from kbnn.data.batch import Rows, slice_rows
from kbnn.model.candidates import Candidate
from kbnn.model.learner import LearnerState, make_learner
from kbnn.model.replay import MAX_HELD_ROWS, ReplayBuffer
from kbnn.targets.base import ColdStart
from kbnn.targets.prediction import IN_WARMUP, Forecast, select_rows
from kbnn.targets.registry import candidate_types

if TYPE_CHECKING:
    from kbnn.model.model import OnlineModel

WARM_UP_ROWS = 32


def hold_rows(model: OnlineModel, rows: Rows) -> Forecast:
    """Hold rows until the scale is known; forecasts come from the cold-start predictor."""
    kept = model.learner_state.buffer
    held = len(kept)
    since, room = find_cold_start_window(model.dropped_rows + held)
    cold_start = _get_cold_start(model, since)
    count, ready = count_rows_to_hold(cold_start, held, rows.y[:MAX_HELD_ROWS], room)
    rows = slice_rows(rows, 0, count)
    labelled = np.isfinite(rows.y).any(axis=1)
    first = model.rows_seen + 1
    # A row without a target gets the forecast of the next row with one.
    place: IntArray = np.cumsum(labelled) - labelled
    y = np.concatenate((rows.y[labelled], np.full((1, rows.y.shape[1]), np.nan)))
    forecast = select_rows(cold_start.predict_then_update(y), place)
    framed = np.concatenate(([False], labelled, [False]))
    edges = np.flatnonzero(framed[1:] != framed[:-1]).tolist()
    for start, stop in zip(edges[::2], edges[1::2], strict=True):
        kept.add(slice_rows(rows, start, stop), rows.x.shape[1], first + start)
    model.cold_start = since, cold_start
    model.skipped += int(np.sum(~labelled))
    model.dropped_rows += held + int(np.sum(labelled)) - len(kept)
    model.rows_seen += count
    if ready:
        finish_warmup(model)
    return forecast._replace(status=np.where(labelled, IN_WARMUP, UNLABELLED))


def finish_warmup(model: OnlineModel) -> None:
    """End the warm-up: fit the scale to the held rows, and learn them in order."""
    model.trial_state = None
    schema, leader = model.schema, model.learner
    # With lags, targets are also inputs and keep their target type.
    if schema.lags or model.settings.kind != "auto":
        kinds = [leader.settings.kind]
    else:
        kinds = candidate_types(schema, _copy_held_rows(model).rows().y)
    started = []
    for settings in model.settings.list_candidates(kinds):
        same = settings.kind == leader.settings.kind
        learner = make_learner(schema, settings, leader.task if same else None)
        started.append(
            Candidate(learner, model.learner_state).record_rows(
                *learner.initialize_state(_copy_held_rows(model))
            )
        )
    model.candidates = tuple(started)


def find_prediction_state(model: OnlineModel) -> LearnerState:
    """Return the leader's state, or during the warm-up that of a temporary learner."""
    learned = model.learner_state
    if learned.members:
        return learned
    if model.trial_state is None:
        model.trial_state, _ = model.learner.initialize_state(_copy_held_rows(model))
    return model.trial_state


def _get_cold_start(model: OnlineModel, since: int) -> ColdStart:
    """Return the cold-start predictor, fitted to the held rows from `since` on."""
    before, model.cold_start = model.cold_start, None
    if before is not None and before[0] == since:
        return before[1]
    cold_start = model.task.make_cold_start()
    held = model.learner_state.buffer.rows().y[since - model.dropped_rows :]
    if len(held):
        cold_start.predict_then_update(held)
    return cold_start


def _copy_held_rows(model: OnlineModel) -> ReplayBuffer:
    kept = model.learner_state.buffer
    return ReplayBuffer(kept.max_rows, kept.targets, kept.rows())


def find_cold_start_window(count: int) -> tuple[int, int]:
    """Return from which row on the cold-start predictor is fitted, and for how many rows.

    `count` is the number of rows with a target so far. The window moves in steps of half the rows
    held, which bounds the cost and depends on counts alone.
    """
    half = MAX_HELD_ROWS // 2
    return max(0, count // half - 1) * half, half - count % half


def count_rows_to_hold(early: ColdStart, held: int, y: FloatArray, room: int) -> tuple[int, bool]:
    """Return how many rows with targets y to hold, and whether the warm-up then ends.

    `held` rows are held already. Rows without a target do not count; of those with a target at most
    `room` are taken.
    """
    labelled = np.flatnonzero(np.isfinite(y).any(axis=1))
    if len(labelled) > room:
        y, labelled = y[: labelled[room]], labelled[:room]
    needed = max(1, WARM_UP_ROWS - held, early.rows_until_varied(y[labelled]))
    if needed > len(labelled):
        return len(y), False
    return int(labelled[needed - 1]) + 1, True
