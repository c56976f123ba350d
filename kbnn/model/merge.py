"""Merge models that learned shares of the rows into one ensemble, weighted by evidence.

The networks of all models are converted to one scale (kbnn.model.rescale), that of all rows
together, and become the members of one ensemble (kbnn.model.ensemble). The initial weight of a
member follows from its model's forecasts: with mean log score l per row since the last point of its
learning curve, its evidence is that of ten rows, 10 l. From the next row on, weights follow
evidence as in any ensemble. Counts add up; the record starts empty, since the ensemble has not
predicted any row yet.

Shares may contain categories and classes in different orders, and different categories. The merged
schema has the categories of the first model, then those that the others add. Every network is grown
by the inputs that it lacks and then reordered. A class that is missing in a share is an error: its
network would predict the class from the prior alone, with a weight earned on other classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from kbnn.array_types import FloatArray, IntArray
from kbnn.core.kernel import open_session
from kbnn.core.state import State
from kbnn.data.batch import make_fill_values, pad_columns
from kbnn.data.clock import DAY_SECONDS, Clock
from kbnn.data.schema import Place, Schema
from kbnn.distributions import categorical
from kbnn.distributions.calibration import LARGEST_VALUE, LINK_UNIT
from kbnn.errors import ModelError
from kbnn.model import scaler
from kbnn.model.candidates import Candidate
from kbnn.model.ensemble import (
    MIN_WEIGHT,
    PRIOR_VARIANTS,
    PoolWeights,
    make_equal_weights,
    prepend_bins,
    reorder_bins,
    rescale_bins,
)
from kbnn.model.learner import Learner, LearnerState, make_learner
from kbnn.model.model import OnlineModel
from kbnn.model.replay import BufferedRows, ReplayBuffer
from kbnn.model.rescale import grow_state, reorder, rescale_state
from kbnn.model.scaler import COUNT, FIELDS, MEAN, SCALE, SQUARES, Scale
from kbnn.model.settings import Settings
from kbnn.wording import clean_text

MAX_MEMBERS = 64
MERGE_EXPONENT = 0.3
"""Power of a model's evidence in the weight of its networks: errors of shares are correlated."""
MERGE_EVIDENCE_ROWS = 10.0
"""Rows of evidence that set a member's initial weight. Shares of one stream differ by chance as
much as by quality. Chosen on parts of the training rows of five data sets, where 0 to 3 rows worsen
the log density and 30 to 100 the error."""


class _Share(NamedTuple):
    """State of one model, with inputs and classes in the order of the merged model."""

    members: list[State]
    bins: list[FloatArray]
    columns: FloatArray
    rows: BufferedRows
    temperature: FloatArray


def merge_models(models: Sequence[OnlineModel], names: Sequence[str]) -> OnlineModel:
    """Return the ensemble of all models; ModelError if they cannot be merged."""
    _check_mergeable(models, names)
    first = models[0]
    schema = _union(models, names)
    shares = _align(models, schema)
    settings = replace(first.settings, ensemble=sum(len(share.members) for share in shares))
    model = OnlineModel(settings, schema)
    own = replace(first.learner.settings, ensemble=settings.ensemble)
    learner = make_learner(model.schema, own, first.task)
    columns = _merge_columns([share.columns for share in shares], learner.unscaled_columns)
    moved = [_rescale_members(share, columns, learner) for share in shares]
    states = [some for some, _ in moved]
    members = [state for some in states for state in some]
    seen = sum(one.learner_state.seen for one in models)
    counts = np.sum([some[0].counts for some in states], axis=0)
    kept = _merge_buffers(models, [share.rows for share in shares])
    kept.fill_values = make_fill_values(learner.indicators)
    learned = LearnerState(
        tuple(open_session(state._replace(counts=counts)) for state in members),
        columns,
        _merge_weights(models),
        seen,
        max(one.learner_state.changes for one in models),
        kept,
        _merge_calibration(models),
        first.learner_state.replay_state._replace(backlog=0.0, since=seen, alarm=0),
        categorical.merge_temperatures(
            [share.temperature for share in shares], _count_rows(models)
        ),
        tuple(
            spec._replace(variant=spec.variant + PRIOR_VARIANTS * k)
            for k, one in enumerate(models)
            for spec in one.learner_state.specs
        ),
        tuple(bins for _, some in moved for bins in some),
    )
    model.candidates = (Candidate(learner, learned),)
    for one in models:
        for name, count in zip(one.schema.classes, one.class_counts.tolist(), strict=False):
            at = schema.classes.index(name)
            model.class_counts = np.pad(
                model.class_counts, (0, max(0, at + 1 - len(model.class_counts)))
            )
            model.class_counts[at] += count
    model.skipped = sum(one.skipped for one in models)
    model.rows_seen = model.rows + model.rejected_rows + model.skipped
    return model


def _check_mergeable(models: Sequence[OnlineModel], names: Sequence[str]) -> None:
    """Raise ModelError if the models cannot be merged."""
    first, name = models[0], names[0]
    for model, other in zip(models, names, strict=True):
        if model.is_warming_up:
            raise ModelError(
                f"{other}: is still warming up (it holds {model.held_rows} rows). Train it on more "
                "rows before joining"
            )
        if model.schema.lags or model.schema.wait:
            raise ModelError(
                f"{other}: cannot be joined: its rows depend on one another (--lags or --id)"
            )
        differs = _describe_difference(first, model)
        if differs:
            raise ModelError(f"{other}: cannot be joined with {name}: {differs}")
    if sum(len(model.learner_state.members) for model in models) > MAX_MEMBERS:
        raise ModelError(f"a model has at most {MAX_MEMBERS} networks: join fewer models")


def _describe_difference(one: OnlineModel, other: OnlineModel) -> str:
    """Describe why two models cannot be merged; empty if they can."""
    if one.schema.targets != other.schema.targets:
        mine, theirs = (", ".join(m.schema.targets) for m in (one, other))
        return f"it has the target {theirs}, not {mine}"
    if one.task.name != other.task.name:
        return f"its task is {other.task.name}, not {one.task.name} (give --task for both)"
    if one.schema.closed != other.schema.closed:
        return "only one of them allows new classes (train both with the same --task)"
    mine_columns = [(c.name, c.kind, c.role, c.buckets) for c in one.schema.columns]
    if mine_columns != [(c.name, c.kind, c.role, c.buckets) for c in other.schema.columns]:
        return "their columns differ (train all shares with the same columns)"
    if _calendar(one.schema) != _calendar(other.schema):
        return "they parse times differently (train both with the same --time options)"
    seen_by_one = set(one.schema.classes) ^ set(other.schema.classes)
    if seen_by_one:
        label = clean_text(min(seen_by_one))
        return f"only one of them has seen class '{label}' (give every share rows of every class)"
    configs = [model.learner_state.members[0].config for model in (one, other)]
    if one.schema.classes != other.schema.classes and not configs[0].kind.supports_growth:
        return "their classes are in a different order (--link probit allows this)"
    shapes = [
        (model.settings.hidden, model.settings.covariance, config.activations, config.observation)
        for model, config in zip((one, other), configs, strict=True)
    ]
    if shapes[0] != shapes[1] or configs[0].learns_noise != configs[1].learns_noise:
        return "their networks differ (give --layers and --covariance for both)"
    if not np.array_equal(
        one.learner_state.calibration[:, LINK_UNIT], other.learner_state.calibration[:, LINK_UNIT]
    ):
        return "their targets are in different units (give --task regression for both)"
    if _without_member_settings(one.settings) != _without_member_settings(other.settings):
        return "they were trained with different options"
    return ""


def _without_member_settings(settings: Settings) -> Settings:
    """Reset the settings in which members may differ."""
    return replace(settings, seed=0, ensemble=1, kind="auto")


def _calendar(schema: Schema) -> Clock | None:
    """Return the clock without start and step, in which shares may differ."""
    return None if schema.clock is None else replace(schema.clock, start=0.0, step=0.0)


def _union(models: Sequence[OnlineModel], names: Sequence[str]) -> Schema:
    """Return the first model's schema with the categories of the others added."""
    schema = models[0].schema.copy()
    for model, name in zip(models, names, strict=True):
        for place in model.schema.layout:
            column = None if place.category is None else schema.get_column(place.column)
            if column is None or place.category is None or place.category in column.categories:
                continue
            if schema.add_category(column, place.category) is None:
                raise ModelError(
                    f"{name}: cannot be joined with {names[0]}: column '{column.name}' would have "
                    f"more than {schema.max_categories} categories (train all shares with "
                    f"--hash {column.name}:32)"
                )
    return schema


def _align(models: Sequence[OnlineModel], schema: Schema) -> list[_Share]:
    """Return the states of all models with the inputs and classes of the schema, in its order."""
    at = {place: index for index, place in enumerate(schema.layout)}
    known: list[IntArray] = []
    labels: list[IntArray] = []
    for model in models:
        config = model.learner_state.members[0].config
        layout = model.schema.layout[: len(model.learner_state.columns) - model.task.scaled]
        known.append(np.array([at.get(place, -1) for place in layout], np.int64))
        named = [schema.classes.index(label) for label in model.schema.classes[: config.outputs]]
        labels.append(np.array([*named, *[-1] * (config.outputs - len(named))], np.int64))
    has_class_outputs = models[0].learner_state.members[0].config.kind.supports_growth
    if not has_class_outputs:
        labels = [np.arange(len(places)) for places in labels]
    inputs = max(_extent(places) for places in known)
    outputs = max(_extent(places) for places in labels)
    indicators = np.array([place.category is not None for place in schema.layout], np.float64)
    blank = scaler.blank_columns if models[0].settings.units else scaler.identity_columns
    aligned = []
    for model, mine, shown in zip(models, known, labels, strict=True):
        into, classes = _permutation(mine, inputs), _permutation(shown, outputs)
        t, learned = model.task.scaled, model.learner_state
        columns = np.vstack([learned.columns, blank(inputs - len(mine))])
        columns[t + into] = columns[t:].copy()
        rows = learned.buffer.rows()
        x = np.tile(make_fill_values(indicators[:inputs]), (len(rows.y), 1))
        x[:, into[: rows.x.shape[1]]] = rows.x
        x_sd = np.zeros((len(rows.y), inputs if rows.x_sd.shape[1] else 0))
        x_sd[:, into[: rows.x_sd.shape[1]]] = rows.x_sd
        y, sharp = rows.y, learned.temperature
        if has_class_outputs:
            y = _reorder_labels(y, classes)
            sharp = categorical.reorder_classes(categorical.extend_classes(sharp, outputs), classes)
        elapsed = _count_elapsed_steps(schema, model.schema)
        if elapsed is not None:
            place, days = elapsed
            columns[t + place, [scaler.MEAN, scaler.CENTER]] += days
            x[:, place] += days
        aligned.append(
            _Share(
                [
                    _align_network(member.state(), len(bins), into, outputs, classes)
                    for member, bins in zip(learned.members, learned.bins, strict=True)
                ],
                [reorder_bins(bins, into) for bins in learned.bins],
                columns,
                rows._replace(x=x, x_sd=x_sd, y=y),
                sharp,
            )
        )
    return aligned


def _align_network(
    state: State, bins: int, inputs: IntArray, outputs: int, classes: IntArray
) -> State:
    """Grow and reorder a network; its first inputs, the components of bins, keep their places."""
    places = np.concatenate((np.arange(bins), bins + inputs))
    return reorder(grow_state(state, len(places), outputs), places, classes)


def _extent(places: IntArray) -> int:
    """Return how many positions there must be at least."""
    return max(len(places), int(np.max(places, initial=-1)) + 1)


def _permutation(places: IntArray, size: int) -> IntArray:
    """Return positions of all `size` inputs; those without one fill the free positions in order."""
    free = np.setdiff1d(np.arange(size), places)
    whole = np.concatenate((places, np.full(size - len(places), -1)))
    whole[whole < 0] = free
    return whole


def _reorder_labels(y: FloatArray, classes: IntArray) -> FloatArray:
    """Map class indices to those of the merged model; NaN where a label is missing."""
    known = np.isfinite(y)
    return np.where(known, classes[np.where(known, y, 0.0).astype(np.int64)], np.nan)


def _count_elapsed_steps(schema: Schema, other: Schema) -> tuple[int, float] | None:
    """Return the input with the elapsed days, and by how many days the other's start is later."""
    clock, its = schema.clock, other.clock
    if clock is None or its is None or len(clock.names) == 2 * len(clock.cycles):
        return None
    place = schema.layout.index(Place(clock.names[-1], None))
    return place, (its.start - clock.start) / DAY_SECONDS


def _merge_columns(parts: Sequence[FloatArray], fixed: FloatArray) -> FloatArray:
    """Combine statistics: counts add up, means and squares as those of groups."""
    stacked = np.stack(parts)
    columns = stacked[0].copy()
    count, mean, squares = stacked[..., COUNT], stacked[..., MEAN], stacked[..., SQUARES]
    total = np.sum(count, axis=0)
    moved = np.flatnonzero((fixed[: len(columns)] == 0.0) & (total > 0.0))
    for j in moved:
        center = float(np.sum(count[:, j] * mean[:, j]) / total[j])
        spread = float(np.sum(squares[:, j] + count[:, j] * (mean[:, j] - center) ** 2))
        columns[j] = np.zeros(FIELDS)
        columns[j, [COUNT, MEAN, SQUARES]] = total[j], center, spread
        columns[j, scaler.RECENT_SQUARE] = 1.0
        columns[j, scaler.CENTER], columns[j, SCALE] = center, np.sqrt(spread / total[j])
    return np.asarray(columns)


def _rescale_members(
    share: _Share, columns: FloatArray, learner: Learner
) -> tuple[list[State], list[FloatArray]]:
    """Convert networks and bins of a model to the common scale.

    Indicators and cycles have none.
    """
    t = learner.task.scaled
    old, new = scaler.get_scale(share.columns), scaler.get_scale(columns)
    gain, shift = scaler.compute_output_map(old, new, t, share.members[0].config.outputs)
    as_is = learner.unscaled_inputs[: len(columns) - t] > 0.0
    from_, to = (
        Scale(np.where(as_is, 0.0, s.center[t:]), np.where(as_is, 1.0, s.scale[t:]))
        for s in (old, new)
    )
    states = [
        rescale_state(member, prepend_bins(from_, bins), prepend_bins(to, bins), gain, shift)
        for member, bins in zip(share.members, share.bins, strict=True)
    ]
    return states, [rescale_bins(bins, from_, to) for bins in share.bins]


def _merge_weights(models: Sequence[OnlineModel]) -> PoolWeights:
    """Return the weights of all networks: those within a model times that of the model."""
    evidence = []
    for model in models:
        lines = [score.curve_values()["nll"] for score in model.card.scores]
        means = [overall if lately is None else lately for overall, lately in lines]
        evidence.append(-MERGE_EVIDENCE_ROWS * sum(mean or 0.0 for mean in means))
    share = np.exp(MERGE_EXPONENT * (np.array(evidence) - max(evidence)))
    pools = [model.learner_state.pool for model in models]
    weight = np.concatenate([s * pool.weight for s, pool in zip(share, pools, strict=True)])
    weight = np.maximum(weight / np.sum(weight), MIN_WEIGHT)
    return make_equal_weights(len(weight))._replace(weight=weight / np.sum(weight))


def _merge_calibration(models: Sequence[OnlineModel]) -> FloatArray:
    """Average the calibration of all models, weighted by rows."""
    rows = np.array(_count_rows(models))
    calibration = np.stack([model.learner_state.calibration for model in models])
    mixed = np.einsum(
        "m,mtf->tf", rows / rows.sum(), np.where(np.isfinite(calibration), calibration, 0.0)
    )
    if mixed.size:
        mixed[:, LARGEST_VALUE] = np.max(calibration[..., LARGEST_VALUE], axis=0)
    return np.asarray(mixed)


def _count_rows(models: Sequence[OnlineModel]) -> list[float]:
    """Return the weight of each model: its rows, at least 1."""
    return [float(max(model.rows, 1)) for model in models]


def _merge_buffers(models: Sequence[OnlineModel], rows: Sequence[BufferedRows]) -> ReplayBuffer:
    """Concatenate the last buffered rows of each model, numbered as in one run."""
    most = min(model.learner_state.buffer.max_rows for model in models)
    share = max(1, most // len(models))
    parts, before = [], 0.0
    exact = not any(part.x_sd.any() for part in rows)
    for model, part in zip(models, rows, strict=True):
        x_sd = np.zeros((len(part.y), 0)) if exact else pad_columns(part.x_sd, part.x.shape[1])
        whole = part._replace(x_sd=x_sd, number=part.number + before)
        parts.append(BufferedRows._make(array[-share:] for array in whole))
        before += float(model.rows_seen)
    together = BufferedRows._make(np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    return ReplayBuffer(most, models[0].learner_state.buffer.targets, together)
