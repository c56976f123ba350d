"""One model from several that learned shares of the rows: an ensemble, with weights by evidence.

The networks of all models are carried over to one scale (kbnn.model.rescale), that of all rows
together, and go on side by side as the members of one ensemble (kbnn.model.ensemble). What a member
weighs at first is what its model's forecasts were worth: with mean log score l a row since the last
point of its learning curve, its evidence is that of ten rows, 10 l. From the next row on weights
follow evidence as in any ensemble. Counts add up; the record begins anew, since the ensemble has
said nothing yet.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from kbnn.core import sharpness
from kbnn.core.engine import open_session
from kbnn.core.normal import FloatArray
from kbnn.core.state import State
from kbnn.core.tails import MOST, UNIT
from kbnn.errors import ModelError
from kbnn.model import ensemble, scaling
from kbnn.model.growth import grow
from kbnn.model.learned import Learned
from kbnn.model.model import Model
from kbnn.model.race import Racer
from kbnn.model.rescale import rescaled
from kbnn.model.scaling import COUNT, FIELDS, MEAN, SCALE, SQUARES, Scale
from kbnn.model.settings import Settings
from kbnn.model.warmup import Kept, KeptRows, widened

MOST_MEMBERS = 64
EVIDENCE = 10.0
"""Rows that what a model's forecasts were worth counts for. Members of shares of one stream differ
by chance as much as by merit; chosen on parts of the training rows of five sets, where 0 to 3 rows
cost log density and 30 to 100 cost error."""


def joined(models: Sequence[Model], names: Sequence[str]) -> Model:
    """The ensemble of all; ModelError says what keeps them apart."""
    _check(models, names)
    first = models[0]
    wide = max(len(model.learned.columns) for model in models)
    columns = _together([_wide(model, wide) for model in models], first.learner.passing[:wide])
    states = [_carried(model, columns) for model in models]
    members = [state for some in states for state in some]
    settings = replace(first.settings, ensemble=len(members))
    model = Model(settings, first.schema)
    seen = sum(one.learned.seen for one in models)
    counts = np.sum([some[0].counts for some in states], axis=0)
    learned = Learned(
        tuple(open_session(state._replace(counts=counts)) for state in members),
        columns,
        _evidence(models),
        seen,
        max(one.learned.changes for one in models),
        _kept(models),
        _tails(models),
        first.learned.rehearsal._replace(debt=0.0, since=seen, alarm=0),
        sharpness.joined([one.learned.sharpness for one in models], _rows(models)),
    )
    own = replace(first.learner.settings, ensemble=len(members))
    model.racers = (Racer(model.learner_of(own, first.task), learned),)
    model.skipped = sum(one.skipped for one in models)
    model.met = model.rows + model.rejected + model.skipped
    return model


def _check(models: Sequence[Model], names: Sequence[str]) -> None:
    first, name = models[0], names[0]
    for model, other in zip(models, names, strict=True):
        if model.warming_up:
            raise ModelError(
                f"{other}: holds {model.held} rows and has not begun, so there is nothing to join"
            )
        if model.schema.lags or model.schema.wait:
            raise ModelError(
                f"{other}: its rows follow one another (--lags or --id), so shares of them cannot "
                "be joined"
            )
        differs = _difference(first, model)
        if differs:
            raise ModelError(f"{other}: cannot be joined with {name}: {differs}")
    if sum(len(model.learned.members) for model in models) > MOST_MEMBERS:
        raise ModelError(f"a model has at most {MOST_MEMBERS} networks: join fewer")


def _difference(one: Model, other: Model) -> str:
    """What keeps two models apart, in words; empty if nothing does."""
    if one.schema.targets != other.schema.targets:
        mine, theirs = (", ".join(m.schema.targets) for m in (one, other))
        return f"it has the target {theirs}, not {mine}"
    if one.task.name != other.task.name:
        return f"its task is {other.task.name}, not {one.task.name} (say --task for both)"
    if one.schema.classes != other.schema.classes:
        return "their classes differ, or came in another order"
    mine_columns = [(c.name, c.kind, c.role, c.buckets) for c in one.schema.columns]
    if mine_columns != [(c.name, c.kind, c.role, c.buckets) for c in other.schema.columns]:
        return "their columns differ (learn all shares with the same columns)"
    if one.schema.layout != other.schema.layout:
        return "their categories differ, or came in another order (--hash makes them the same)"
    configs = [model.learned.members[0].config for model in (one, other)]
    shapes = [(c.hidden, c.activations, c.covariance, c.observation) for c in configs]
    if shapes[0] != shapes[1] or configs[0].learns_noise != configs[1].learns_noise:
        return "their networks differ (say --layers and --covariance for both)"
    if not np.array_equal(one.learned.tails[:, UNIT], other.learned.tails[:, UNIT]):
        return "their targets are learned in other units (say --task regression for both)"
    if _apart(one.settings) != _apart(other.settings):
        return "they were trained with other options"
    return ""


def _apart(settings: Settings) -> Settings:
    """Settings but for what members may differ in."""
    return replace(settings, seed=0, ensemble=1, kind="auto")


def _wide(model: Model, width: int) -> FloatArray:
    """The columns' statistics, with those that rows of other shares needed."""
    known = model.learned.columns
    blank = scaling.blank_columns if model.settings.units else scaling.given_columns
    return np.vstack([known, blank(width - len(known))])


def _together(parts: Sequence[FloatArray], fixed: FloatArray) -> FloatArray:
    """Statistics of all rows: means and squares add up as variances of groups do."""
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
        columns[j, scaling.RECENT_SQUARE] = 1.0
        columns[j, scaling.CENTER], columns[j, SCALE] = center, np.sqrt(spread / total[j])
    return np.asarray(columns)


def _carried(model: Model, columns: FloatArray) -> list[State]:
    """The networks of a model in the scale of all."""
    t = model.task.scaled
    inputs, outputs = len(columns) - t, model.learned.members[0].config.outputs
    old = scaling.scale_of(_wide(model, len(columns)))
    new = scaling.scale_of(columns)
    gain, shift = scaling.moved(old, new, t, outputs)
    from_, to = (Scale(s.center[t:], s.scale[t:]) for s in (old, new))
    return [
        rescaled(grow(member.state(), inputs, outputs), from_, to, gain, shift)
        for member in model.learned.members
    ]


def _evidence(models: Sequence[Model]) -> FloatArray:
    """The log weights of all members, the best 0."""
    found: list[FloatArray] = []
    for model in models:
        lines = [score.lines()["nll"] for score in model.card.scores]
        means = [overall if lately is None else lately for overall, lately in lines]
        within = np.log(ensemble.mixture_weights(model.learned.log_weight)) / ensemble.TEMPER
        found.append(within - EVIDENCE * sum(mean or 0.0 for mean in means))
    log_weight = np.concatenate(found)
    return np.asarray(np.maximum(log_weight - np.max(log_weight), -1e6))


def _tails(models: Sequence[Model]) -> FloatArray:
    """What is known of the tails, each model's by its rows."""
    rows = np.array(_rows(models))
    tails = np.stack([model.learned.tails for model in models])
    mixed = np.einsum("m,mtf->tf", rows / rows.sum(), np.where(np.isfinite(tails), tails, 0.0))
    if mixed.size:
        mixed[:, MOST] = np.max(tails[..., MOST], axis=0)
    return np.asarray(mixed)


def _rows(models: Sequence[Model]) -> list[float]:
    """How much each model counts."""
    return [float(max(model.rows, 1)) for model in models]


def _kept(models: Sequence[Model]) -> Kept:
    """The last rows of each, in the order of the models, numbered as they would be in one run."""
    most = min(model.learned.kept.most for model in models)
    share = max(1, most // len(models))
    parts, before = [], 0.0
    rows = [model.learned.kept.rows() for model in models]
    width = max(part.x.shape[1] for part in rows)
    exact = not any(part.x_sd.any() for part in rows)
    for model, part in zip(models, rows, strict=True):
        x_sd = np.zeros((len(part.y), 0)) if exact else widened(part.x_sd, width)
        whole = part._replace(x=widened(part.x, width), x_sd=x_sd, number=part.number + before)
        parts.append(KeptRows._make(array[-share:] for array in whole))
        before += float(model.met)
    together = KeptRows._make(np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    return Kept(most, models[0].learned.kept.targets, together)
