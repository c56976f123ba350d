"""Comparing two models (`kbnn inspect --diff`) and joining models (`kbnn join`).

`compare_models` lists the differences in settings, columns, metrics, effects and weights.
`join_model_files` merges models of disjoint parts of the rows into one.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from kbnn.errors import UsageError
from kbnn.metrics.figures import flatten_metrics
from kbnn.model import file as modelfile
from kbnn.model.diagnostics import Effect
from kbnn.model.merge import merge_models
from kbnn.model.model import OnlineModel
from kbnn.model.serialize import to_state
from kbnn.sink import write_atomically
from kbnn.workflows.inspecting import Inspection, inspect_model
from kbnn.workflows.keyed import is_fleet
from kbnn.workflows.model_weights import iter_weights
from kbnn.workflows.options import check_outputs

MAX_WEIGHT_CHANGES = 10


class ValueChange(NamedTuple):
    """A value that differs between the two models."""

    name: str
    first: Any
    second: Any


class EffectChange(NamedTuple):
    """The effect of a feature per standard deviation in both models.

    `gap` is the difference divided by its standard deviation.
    """

    feature: str
    first: float | None
    first_sd: float | None
    second: float | None
    second_sd: float | None
    gap: float | None


class WeightChange(NamedTuple):
    """A weight that differs, with the difference in prior standard deviations."""

    network: int
    layer: int
    unit: int
    source: str
    first: float
    second: float
    prior_sds: float


@dataclass
class Comparison:
    """All differences; every list is empty if there are none."""

    settings: list[ValueChange] = field(default_factory=list)
    columns: list[ValueChange] = field(default_factory=list)
    facts: list[ValueChange] = field(default_factory=list)
    figures: dict[str, list[ValueChange]] = field(default_factory=dict)
    effects: dict[str, list[EffectChange]] = field(default_factory=dict)
    moves: list[WeightChange] = field(default_factory=list)
    weights_compared: int = 0
    root_mean_square_move: float | None = None

    @property
    def is_same(self) -> bool:
        """Whether no difference was found."""
        listed = (self.settings, self.columns, self.facts, self.figures, self.effects, self.moves)
        return not any(listed)

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        plain = asdict(self)
        for name in ("settings", "columns", "facts", "moves"):
            plain[name] = [item._asdict() for item in getattr(self, name)]
        for name in ("figures", "effects"):
            plain[name] = {
                key: [item._asdict() for item in found]
                for key, found in getattr(self, name).items()
            }
        return plain


def compare_models(
    first: OnlineModel, first_path: str, second: OnlineModel, second_path: str
) -> Comparison:
    """List the differences between two models."""
    one, two = inspect_model(first, first_path), inspect_model(second, second_path)
    made = Comparison(
        settings=diff_values(one.settings, two.settings),
        columns=diff_values(describe_columns(one), describe_columns(two)),
        facts=diff_values(list_facts(one), list_facts(two)),
    )
    for target in one.figures.keys() & two.figures.keys():
        found = diff_values(
            flatten_metrics(one.figures[target]), flatten_metrics(two.figures[target])
        )
        if found:
            made.figures[target] = found
    known = {found.name: found.effects for found in two.effects}
    for name, before, now in [
        (found.name, found.effects, known[found.name])
        for found in one.effects
        if found.name in known
    ]:
        effects = diff_effects(before, now)
        if effects:
            made.effects[name] = effects
    compare_weights(made, first, second)
    return made


def diff_values(first: dict[str, Any], second: dict[str, Any]) -> list[ValueChange]:
    """List entries that differ or exist in only one dict (None in the other)."""
    names = [*first, *(name for name in second if name not in first)]
    return [
        ValueChange(name, first.get(name), second.get(name))
        for name in names
        if first.get(name) != second.get(name)
    ]


def describe_columns(found: Inspection) -> dict[str, str]:
    """Describe role and type of each column in words."""
    return {
        column["name"]: " ".join(
            [column["role"], column["kind"]]
            + ([f"of {len(column['categories'])}"] if column["categories"] else [])
        )
        for column in found.columns
    }


def list_facts(found: Inspection) -> dict[str, Any]:
    """Return counts and noise levels by name."""
    health = found.health
    return {
        "rows": found.rows,
        "skipped": found.skipped,
        **{name: health[name] for name in ("rejected", "alarms", "scale_changes", "repairs")},
        **{f"noise sd of {name}": sd for name, sd in found.noise_sd.items()},
        "bytes": found.bytes,
    }


def diff_effects(one: list[Effect], two: list[Effect]) -> list[EffectChange]:
    """List effects that differ, the most significant difference first."""
    first = {effect.feature: effect for effect in one}
    second = {effect.feature: effect for effect in two}
    found = []
    for feature in [*first, *(key for key in second if key not in first)]:
        a, b = first.get(feature), second.get(feature)
        if a is not None and b is not None and a == b:
            continue
        gap = None
        if a is not None and b is not None:
            doubt = math.hypot(a.effect_sd, b.effect_sd)
            gap = (b.effect - a.effect) / doubt if doubt > 0 else None
        found.append(
            EffectChange(
                feature,
                a.effect if a else None,
                a.effect_sd if a else None,
                b.effect if b else None,
                b.effect_sd if b else None,
                gap,
            )
        )
    return sorted(found, key=lambda change: -abs(change.gap or 0.0))


def has_same_shape(first: OnlineModel, second: OnlineModel) -> bool:
    """Return whether units correspond in both models; features may have been added."""
    shapes = [
        (model.settings.activation, model.settings.seed, model.learner_state.specs)
        for model in (first, second)
    ]
    return shapes[0] == shapes[1] and first.schema.task == second.schema.task


def compare_weights(made: Comparison, first: OnlineModel, second: OnlineModel) -> None:
    """Record the largest changes among the weights that both models have, in standardised units."""
    if not has_same_shape(first, second):
        return  # units of different networks do not correspond
    known = {(w.network, w.layer, w.unit, w.source): w for w in iter_weights(first)}
    moves, squares = [], 0.0
    for weight in iter_weights(second):
        before = known.get((weight.network, weight.layer, weight.unit, weight.source))
        if before is None:
            continue
        made.weights_compared += 1
        size = (weight.mean - before.mean) / before.prior_sd
        squares += size * size
        if size:
            moves.append(
                WeightChange(*weight[:4], first=before.mean, second=weight.mean, prior_sds=size)
            )
    moves.sort(key=lambda move: -abs(move.prior_sds))
    made.moves = moves[:MAX_WEIGHT_CHANGES]
    if made.weights_compared:
        made.root_mean_square_move = math.sqrt(squares / made.weights_compared)


def join_model_files(paths: Sequence[str], output: str, *, force: bool = False) -> OnlineModel:
    """Join model files into one file, which is written atomically."""
    if len(paths) < 2:
        raise UsageError("join needs two models or more")
    for path in (*paths, output):
        if is_fleet(path):
            raise UsageError(f"{path}: is a fleet, and only single models can be joined")
    real = [os.path.realpath(path) for path in paths]
    for at, path in enumerate(real):
        if path in real[:at]:
            raise UsageError(f"{paths[at]}: is named twice")
    check_outputs((), {}, models=paths, new_models={"-o": output}, force=force)
    model = merge_models([modelfile.load(path) for path in paths], paths)
    write_atomically(output, modelfile.to_bytes(*to_state(model)))
    return model


def list_ensemble_weights(model: OnlineModel) -> list[float]:
    """Return the mixture weight of each network of a model."""
    return [float(weight) for weight in model.learner_state.pool.weight]
