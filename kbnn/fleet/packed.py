"""The model of a key as a few arrays: a tenth of the memory of an object, and what rests on disk.

A model is packed that has begun, has one network of one real target, nothing that races or is
rehearsed, and a record without samples: what a fleet's models are by default once they have begun.
What all such models share, their settings and the shape of their network, is their `Form`. Packed
and unpacked a model is the same to the bit, and so are the bytes of its model file.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kbnn.core import engine, tails
from kbnn.core.config import Config
from kbnn.core.constants import LARGEST_TERM
from kbnn.core.engine import open_session
from kbnn.core.layout import layout_of
from kbnn.core.normal import FloatArray
from kbnn.errors import ModelError
from kbnn.fleet.form import (
    BUFFERED_ROWS,
    CHANGES,
    CURVE,
    DROPPED_ROWS,
    INVALID,
    LAST_ALARM,
    MAX_PACKED_NUMBERS,
    NUMBER,
    REPLAY_CORRECTED,
    REPLAY_SINCE,
    REPLAYED_ROWS,
    ROW_META_FIELDS,
    ROWS_SEEN,
    SCORED,
    SEEN,
    SKIPPED,
    TRUST,
    UNSCORED,
    WEIGHT,
    PackedLayout,
    Y,
)
from kbnn.model.learned import LearnerState
from kbnn.model.model import OnlineModel
from kbnn.model.race import MAX_ALARM_ROWS, Candidate
from kbnn.model.rehearsal import ReplayState
from kbnn.model.schema import Schema
from kbnn.model.settings import Settings
from kbnn.model.warmup import BufferedRows, ReplayBuffer, compute_buffer_rows
from kbnn.score.curve import CurvePoint, LearningCurve
from kbnn.score.score import LARGEST_SUM
from kbnn.score.scorecard import Scorecard
from kbnn.task import score_parts
from kbnn.task.base import TargetType


class PackedModel(NamedTuple):
    """A model: a row of numbers as its form lays them out, points of its curve, its alarms."""

    row: FloatArray
    points: tuple[CurvePoint, ...] = ()
    alarms: tuple[int, ...] = ()


def supports_packing(settings: Settings, schema: Schema) -> bool:
    """Whether models of a fleet are packed, once they have begun."""
    return (
        engine.is_compiled()
        and settings.sample == 0
        and settings.ensemble == 1
        and settings.units
        and settings.covariance != "paper"  # its width is not the kernel's
        and len(schema.targets) == 1
        and not schema.lags
        and not schema.wait
    )


def describe_layout(model: OnlineModel) -> tuple[Settings, Config, int] | None:
    """What the form of a model is of, None where it cannot be packed as it is now."""
    racer = model.racers[0]
    learned, settings = racer.learned, racer.learner.settings
    plain = (
        not model.is_warming_up
        and len(model.racers) == 1
        and len(learned.members) == 1
        and racer.learner.task.supports_batched_kernel
        and not settings.replay_ratio
        and not model.lost
        and racer.evidence == 0.0
        and not learned.log_weight.any()
        and learned.rehearsal.debt == 0.0
        and not learned.kept.rows().x_sd.any()
        and not model.card.scores[0]._start_weights.any()  # every figure has all rows
        and learned.kept.max_rows
        == compute_buffer_rows(learned.members[0].config.inputs, settings.keep)
    )
    if not plain or learned.members[0].config.directions:
        return None
    config = learned.members[0].config
    if config.weights + layout_of(config).size > MAX_PACKED_NUMBERS:
        return None
    return settings, config, learned.members[0].state().seed


def pack_model(form: PackedLayout, model: OnlineModel) -> PackedModel:
    """A model of that form in arrays."""
    racer, card = model.racers[0], model.card
    learned, score = racer.learned, card.scores[0]
    kept, again = learned.kept.rows(form.inputs), learned.rehearsal
    counts = [learned.seen, learned.changes, model.met, model.skipped, model.let_go, len(kept.y)]
    counts += [score.rows, score.skipped, score.invalid, card.curve.rows]
    counts += [again.since, int(again.settled), again.rows, again.alarm]
    row = np.zeros(form.size)
    for name, part in {
        "belief": form.pack_state(learned.members[0].state()),
        "columns": learned.columns,
        "tails": learned.tails[0],
        **score_parts.pack_score(score),
        "counts": np.array(counts),
    }.items():
        form.view_part(row, name)[:] = part
    form.view_part(row, "kept")[: len(kept.y)] = np.column_stack(
        (kept.y, kept.weight, kept.number, kept.trust, kept.x)
    )
    return PackedModel(row, tuple(card.curve.points[0]), racer.alarms)


def unpack_model(
    form: PackedLayout, whole: PackedModel, settings: Settings, schema: Schema
) -> OnlineModel:
    """The model that was packed."""
    model = OnlineModel(settings, schema)
    learner = model.make_learner(form.settings)
    check_layout(form, learner.task, schema.width)
    row = whole.row
    counts = form.view_part(row, "counts").tolist()
    rows = _order_buffer(form.view_part(row, "kept"), counts[BUFFERED_ROWS])
    kept = BufferedRows(
        rows[:, ROW_META_FIELDS:].copy(),
        np.zeros((len(rows), 0)),
        rows[:, [Y]],
        *(rows[:, at].copy() for at in (WEIGHT, NUMBER, TRUST)),
    )
    learned = LearnerState(
        (open_session(form.unpack_state(form.view_part(row, "belief"))),),
        form.view_part(row, "columns").copy(),
        np.zeros(1),
        counts[SEEN],
        counts[CHANGES],
        ReplayBuffer(form.keep, 1, kept),
        form.view_part(row, "tails")[None].copy(),
        ReplayState(
            0.0,
            counts[REPLAY_SINCE],
            bool(counts[REPLAY_CORRECTED]),
            counts[REPLAYED_ROWS],
            counts[LAST_ALARM],
        ),
    )
    model.racers = (Candidate(learner, learned, 0.0, whole.alarms),)
    model.met, model.skipped, model.let_go = (
        counts[ROWS_SEEN],
        counts[SKIPPED],
        counts[DROPPED_ROWS],
    )
    model.set_record(lambda: _build_scorecard(model, form, whole))
    return model


def check_numbers(form: PackedLayout, whole: PackedModel) -> None:
    """Refuse numbers that the reader of a model file would refuse.

    Raises
    ------
    ModelError
        Where a number is out of range, or numbers contradict each other.
    """
    row, limits = whole.row, form.limits
    counts = form.view_part(row, "counts")
    used = form.used_length(counts)
    inside = (row >= limits.low) & (row <= limits.high) | limits.free
    inside |= limits.unknown & np.isnan(row)
    whole_numbers = np.concatenate((counts, form.view_part(row, "pit"), form.view_counts(row)))
    sound = (
        inside[:used].all()
        and whole_numbers.min() >= 0
        and whole_numbers.max() < 2**53
        and tails.is_valid_calibration(form.view_part(row, "tails")[None])
        and counts[REPLAY_SINCE] <= counts[SEEN]
        and counts[REPLAY_CORRECTED] <= 1
        and len(whole.alarms) <= MAX_ALARM_ROWS
        and all(0 <= alarm < 2**53 for alarm in whole.alarms)
    )
    for name in ("sums", "recent"):  # no mean of terms is larger than the largest of them
        weight, *sums = form.view_part(row, name).tolist()
        sound = sound and max(map(abs, sums), default=0.0) <= LARGEST_SUM * weight
    _, total, shift, _ = form.view_part(row, "constant").tolist()
    if not sound or abs(shift) > 2.0 * LARGEST_TERM * total:
        raise ModelError("is damaged (the numbers of a model are out of range)")
    try:
        LearningCurve.restore(int(counts[CURVE]), [list(whole.points)])
    except ValueError as error:
        raise ModelError(f"is damaged ({error})") from error


def check_layout(form: PackedLayout, task: TargetType, width: int) -> None:
    """Refuse a form that models of a fleet with that task and so many inputs cannot have."""
    config = form.config
    fits = (
        config.observation == task.observation
        and task.is_valid_output_count(config.outputs)
        and task.supports_batched_kernel
    )
    if not fits or config.inputs > width:
        raise ModelError("is damaged (the form of a model does not fit the fleet)")


def _order_buffer(kept: FloatArray, count: int) -> FloatArray:
    """The rows kept, oldest first: once all places are taken, each new one takes the oldest's."""
    most = len(kept)
    return kept[:count] if count <= most else np.roll(kept, -(count % most), axis=0)


def _build_scorecard(model: OnlineModel, form: PackedLayout, whole: PackedModel) -> Scorecard:
    card = Scorecard(model.task, seed=model.settings.seed, sample=0)
    row = whole.row
    score, counts = card.scores[0], form.view_part(row, "counts").tolist()
    score.rows, score.skipped, score.invalid = counts[SCORED], counts[UNSCORED], counts[INVALID]
    kept = {name: form.view_part(row, name) for name in ("sums", "recent", "constant", "pit")}
    score_parts.unpack_score(score, kept, form.figures, form.curve_figures)
    card.curve = LearningCurve.restore(counts[CURVE], [list(whole.points)])
    card.summaries.rows = counts[CURVE]
    return card
