"""What can be said of a model without data: its soundness and its scales."""

from __future__ import annotations

from typing import Any

import numpy as np

from kbnn.core.layout import layout_of
from kbnn.core.sharpness import inverse_temperature
from kbnn.model import scaling
from kbnn.model.model import OnlineModel
from kbnn.model.rows import GAP_ROWS, longest_usual_gap


def collect_health(model: OnlineModel) -> dict[str, Any]:
    """Figures that show whether the belief is sound."""
    return {
        "smallest_variance_ratio": smallest_variance_ratio(model),
        "repairs": model.repair_count,
        "rejected": model.rejected_rows,
        "clipped": model.get_network_count("clipped"),
        "bounded": model.get_network_count("bounded"),
        "raised": model.get_network_count("raised"),
        "alarms": model.alarm_count,
        "alarm_rows": model.alarms,
        "warming_up": model.is_warming_up,
        "held_rows": model.held_rows,
        "scale_changes": model.learner_state.changes,
        "rehearsed": model.learner_state.rehearsal.rows,
        "sharpness": inverse_temperature(known)
        if len(known := model.learner_state.sharpness)
        else None,
        "missing_lately": missing_lately(model),
        "waiting": {"rows": len(model.pending_rows.rows), **model.pending_rows.counts},
    }


def missing_lately(model: OnlineModel) -> dict[str, int]:
    """Features without a value in the last rows kept, unusually many: how many rows."""
    schema = model.schema
    x = model.learner_state.kept.rows().x
    decided = {c.name for c in schema.columns if c.role == "feature" and c.kind != "undecided"}
    found: dict[str, int] = {}
    looked_at = set[str]()
    for at, place in enumerate(schema.layout[: x.shape[1]]):
        if place.column not in decided or place.column in looked_at:
            continue
        looked_at.add(place.column)  # the indicators of a category are missing together
        there = np.flatnonzero(~np.isnan(x[:, at]))
        total = int(there[-1]) + 1 if len(there) else 0
        gap = len(x) - total
        if gap >= (longest_usual_gap(len(there), total) if total else GAP_ROWS):
            found[place.column] = gap
    return found


def smallest_variance_ratio(model: OnlineModel) -> float | None:
    """The smallest weight variance as a share of its prior; None before the first network."""
    states = [member.state() for member in model.learner_state.members]
    ratios = [
        state.cov[layout_of(state.config).variance_positions] / state.prior_var for state in states
    ]
    return min((float(np.min(ratio)) for ratio in ratios), default=None)


def describe_scales(model: OnlineModel) -> list[dict[str, Any]]:
    """Center, scale and rows seen of every scaled target and every column of x, in its units."""
    columns, targets = model.learner_state.columns.copy(), model.task.scaled
    if len(columns):
        columns[:targets, scaling.CENTER], columns[:targets, scaling.SCALE] = model.shown_scales
    width = len(columns) - targets
    names = [*model.task.targets[:targets], *model.schema.encoded_names()[:width]]
    fixed = [False] * targets + [bool(one) for one in model.learner.unscaled_inputs[:width]]
    waves = model.schema.cycle_columns
    found = []
    for at, (name, as_is, column) in enumerate(zip(names, fixed, columns, strict=False)):
        passing = "cycle" if name in waves else "indicator"
        found.append(
            {
                "name": name,
                "role": "target" if at < targets else passing if as_is else "feature",
                "center": 0.0 if as_is else float(column[scaling.CENTER]),
                "scale": 1.0 if as_is else float(column[scaling.SCALE]),
                "rows": None if as_is else int(column[scaling.COUNT]),
            }
        )
    return found
