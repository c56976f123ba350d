"""What can be said of a model without data: health, scales, sensitivity."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from kbnn.core.layout import layout_of
from kbnn.core.normal import FloatArray
from kbnn.core.sensitivity import sensitivity
from kbnn.core.state import COUNT
from kbnn.model import scaling
from kbnn.model.model import Model

SAMPLE_ROWS = 128


class TargetSensitivity(NamedTuple):
    """Slope of a target (or a class's score) per unit of each input, and its part in the whole."""

    names: list[str]
    slope: FloatArray  # target units per input unit
    sd: FloatArray
    standardised: FloatArray  # typical size of the effect of one standard deviation, in target sds


def health(model: Model) -> dict[str, Any]:
    """Figures that show whether the belief is sound."""
    learner = model.learner
    return {
        "smallest_variance_ratio": smallest_variance_ratio(model),
        "repairs": model.repairs,
        "rejected": model.rejected,
        "clipped": learner.count(COUNT.clipped),
        "alarms": model.alarm_count,
        "alarm_rows": model.alarms,
        "warming_up": model.warming_up,
        "held_rows": len(model.held),
        "unit_changes": learner.refits,
    }


def smallest_variance_ratio(model: Model) -> float | None:
    """The smallest weight variance as a share of its prior; None before the first network."""
    ratios = []
    for state in model.learner.members:
        layout = layout_of(state.config)
        for dim, start, order in zip(layout.dims, layout.offsets, layout.order, strict=False):
            i = np.arange(dim)
            diagonal = state.cov[start + i * dim - i * (i - 1) // 2]
            ratios.append(float(np.min(diagonal / state.prior_var[order])))
    return min(ratios) if ratios else None


def scales(model: Model) -> list[dict[str, Any]]:
    """Center, scale and rows seen of every target and every column of x."""
    learner = model.learner
    names = [] if model.classes else list(model.schema.targets)
    roles = ["target"] * len(names)
    names += model.schema.encoded_names()[: learner.width]
    roles += [
        "indicator" if place.category is not None else "feature"
        for place in model.schema.layout[: learner.width]
    ]
    out = []
    for name, role, column in zip(names, roles, learner.columns, strict=False):
        fixed = role == "indicator"
        out.append(
            {
                "name": name,
                "role": role,
                "center": 0.0 if fixed else float(column[scaling.CENTER]),
                "scale": 1.0 if fixed else float(column[scaling.SCALE]),
                "rows": None if fixed else int(column[scaling.COUNT]),
            }
        )
    return out


def sensitivities(model: Model) -> list[TargetSensitivity]:
    """One per target, or per class; over the rows that the record has kept."""
    if model.warming_up:
        return []
    learner = model.learner
    t = learner.targets
    inputs = learner.columns[t:]
    kept = model.card.summaries.sample.x[:SAMPLE_ROWS]
    rows = np.zeros((max(1, len(kept)), learner.width))
    if len(kept):
        wide = np.zeros((len(kept), max(learner.width, kept.shape[1])))
        wide[:, : kept.shape[1]] = kept
        fixed = np.array(
            [place.category is not None for place in model.schema.layout[: learner.width]],
            dtype=np.float64,
        )
        rows = scaling.standardise(inputs, wide[:, : learner.width], fixed)
        per_unit = np.where(fixed > 0, 1.0, inputs[:, scaling.SCALE])
    else:
        per_unit = inputs[:, scaling.SCALE]
    found = sensitivity(learner.members[0], rows)
    target = learner.target_scale if t else np.ones(len(found.slope))
    safe = np.where(per_unit > 0.0, per_unit, np.inf)
    names = model.schema.encoded_names()[: learner.width]
    return [
        TargetSensitivity(
            names, target[o] * found.slope[o] / safe, target[o] * found.sd[o] / safe, found.size[o]
        )
        for o in range(len(found.slope))
    ]
