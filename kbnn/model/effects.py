"""Effects of the features: the expected slope of each, with its doubt, in units people know."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from kbnn.core.normal import FloatArray
from kbnn.core.sensitivity import Sensitivity, sensitivity
from kbnn.model import scaling
from kbnn.model.model import Model
from kbnn.model.warmup import widened

SAMPLE_ROWS = 128


class Effect(NamedTuple):
    """One column of x: what a unit of it, and what a typical change of it, does to the target.

    slope, slope_sd    target units per unit of the feature, averaged over rows
    effect, effect_sd  the same per standard deviation of the feature; of an indicator, its presence
    size               root mean square effect over rows, whatever its sign, in target sds
    """

    feature: str
    slope: float
    slope_sd: float
    effect: float
    effect_sd: float
    size: float


class Told(NamedTuple):
    """What is told of one target, or of one class's score: its name, a title, its effects."""

    name: str
    title: str
    effects: list[Effect]


def effects(model: Model) -> list[Told]:
    """The effects on everything that the task tells of, over rows that the record has kept.

    Empty while the model is warming up: nothing has been learned yet.
    """
    if model.warming_up:
        return []
    columns, fixed = _inputs(model)
    width = len(columns)
    kept = model.card.summaries.sample.x[:SAMPLE_ROWS]
    rows = np.zeros((1, width))
    if len(kept):
        rows = scaling.standardise(columns, widened(kept, width), fixed)
    found = sensitivity(model.learned.members[0].state(), rows)
    names = model.schema.encoded_names()[:width]
    step = np.where(fixed > 0, 1.0, columns[:, scaling.SCALE])
    scale = np.ones(len(found.slope))  # of outputs that no target is the scale of
    scale[: model.task.scaled] = model.target_scale
    return [
        Told(name, title, _listed(found, parts, scale, step, names))
        for name, title, parts in model.task.effects(len(found.slope))
    ]


def _inputs(model: Model) -> tuple[FloatArray, FloatArray]:
    columns = model.learned.columns[model.task.scaled :]
    return columns, model.learner.as_is[: len(columns)]


def _listed(
    found: Sensitivity,
    parts: list[tuple[int, float]],
    scale: FloatArray,
    step: FloatArray,
    names: list[str],
) -> list[Effect]:
    """The effects on a sum of outputs, whose weights are independent."""
    safe = np.where(step > 0.0, step, np.inf)
    slope = sum(sign * scale[o] * found.slope[o] / safe for o, sign in parts)
    sd = np.hypot.reduce([scale[o] * found.sd[o] / safe for o, _ in parts])
    size = np.hypot.reduce([found.size[o] for o, _ in parts])
    table = np.column_stack((slope, sd, slope * step, sd * step, size))
    return [Effect(name, *row) for name, row in zip(names, table.tolist(), strict=True)]


def ranked(model: Model, found: list[Effect]) -> list[str]:
    """The features, categories as one, from the largest size of effect to the smallest."""
    sizes: dict[str, float] = {}
    for place, effect in zip(model.schema.layout, found, strict=False):
        sizes[place.column] = math.hypot(sizes.get(place.column, 0.0), effect.size)
    return sorted(sizes, key=lambda name: -sizes[name])
