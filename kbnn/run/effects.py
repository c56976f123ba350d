"""Effects of the features: the expected slope of each, with its doubt, in units people know."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from kbnn.model.health import TargetSensitivity, scales, sensitivities
from kbnn.model.model import Model


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


def effects(model: Model) -> dict[str, list[Effect]]:
    """The effects on each target; on each class's score, or with two classes on their difference.

    Empty while the model is warming up: nothing has been learned yet.
    """
    found = sensitivities(model)
    if not found:
        return {}
    steps = {column["name"]: column["scale"] for column in scales(model)
             if column["role"] != "target"}  # fmt: skip
    if not model.classes:
        return {name: _list(one, steps)
                for name, one in zip(model.schema.targets, found, strict=True)}  # fmt: skip
    names = model.schema.classes
    if len(found) == 2 and len(names) == 2:
        return {names[1]: _list(_difference(*found), steps)}
    return {name: _list(one, steps) for name, one in zip(names, found, strict=False)}


def _list(found: TargetSensitivity, steps: dict[str, float]) -> list[Effect]:
    return [
        Effect(name, slope, sd, slope * steps[name], sd * steps[name], size)
        for name, slope, sd, size in zip(
            found.names,
            found.slope.tolist(),
            found.sd.tolist(),
            found.standardised.tolist(),
            strict=True,
        )
    ]


def _difference(first: TargetSensitivity, second: TargetSensitivity) -> TargetSensitivity:
    """How the second class's score gains on the first's; their weights are independent."""
    return TargetSensitivity(
        first.names,
        second.slope - first.slope,
        np.hypot(first.sd, second.sd),
        np.hypot(first.standardised, second.standardised),
    )


def ranked(model: Model, found: list[Effect]) -> list[str]:
    """The features, categories as one, from the largest size of effect to the smallest."""
    sizes: dict[str, float] = {}
    for place, effect in zip(model.schema.layout, found, strict=False):
        sizes[place.column] = math.hypot(sizes.get(place.column, 0.0), effect.size)
    return sorted(sizes, key=lambda name: -sizes[name])
