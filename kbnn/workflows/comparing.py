"""Compare two models (`kbnn inspect --diff`), join models (`kbnn join`) and list weights by name.

`compare_models` lists the differences in settings, columns, metrics, effects and weights.
`join_model_files` merges models of disjoint parts of the rows into one.

`save_weights` writes weights with their covariances to a NumPy archive without pickle:

    network<k>/layer, unit, source  (W,) of each weight; layers and units from 1, source 0: the bias
    network<k>/mean, prior_mean, prior_var  (W,)
    network<k>/block<b>/weights     (d,) indices of the weights in a covariance block, from 0
    network<k>/block<b>/cov         (d, d); weights of different blocks are independent
"""

from __future__ import annotations

import io
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kbnn.array_types import FloatArray
from kbnn.core.layout import layout_of
from kbnn.core.state import State
from kbnn.errors import UsageError
from kbnn.metrics.figures import flatten_metrics
from kbnn.model import file as modelfile
from kbnn.model.diagnostics import Effect
from kbnn.model.ensemble import list_bin_names, list_inputs
from kbnn.model.merge import merge_models
from kbnn.model.model import OnlineModel
from kbnn.model.serialize import to_state
from kbnn.sink import write_atomically
from kbnn.workflows.inspecting import Inspection, inspect_model
from kbnn.workflows.keyed import is_fleet
from kbnn.workflows.options import check_outputs


class Weight(NamedTuple):
    """One weight, in the network's standardised units.

    `layer` and `unit` count from 1; `source` is "bias", a feature or "unit <n>".
    """

    network: int
    layer: int
    unit: int
    source: str
    mean: float
    sd: float
    prior_mean: float
    prior_sd: float


def iter_weights(model: OnlineModel) -> Iterator[Weight]:
    """Yield every weight of every network: by layer, by unit, the bias first."""
    names = model.schema.encoded_names()
    for network, member in enumerate(model.learner_state.members, start=1):
        state = member.state()
        sd = np.sqrt(weight_variances(state))
        layout = layout_of(state.config)
        bins = list_bin_names(model.learner_state.bins[network - 1], names)
        spec = model.learner_state.specs[network - 1]
        own = [names[at] for at in list_inputs(spec, len(names))]
        first = [*(f"direction {k + 1}" for k in range(state.config.directions)), *bins, *own]
        for layer in range(layout.layers):
            parts = [
                layout.weight_matrix(values, layer)
                for values in (state.mean, sd, state.prior_mean, np.sqrt(state.prior_var))
            ]
            for unit, rows in enumerate(zip(*(part.tolist() for part in parts), strict=True)):
                for column, values in enumerate(zip(*rows, strict=True)):
                    inner = first[column - 1] if layer == 0 and column else f"unit {column}"
                    source = inner if column else "bias"
                    yield Weight(network, layer + 1, unit + 1, source, *values)


def save_weights(model: OnlineModel, path: str) -> None:
    """Write means and covariances of all weights to a file, atomically."""
    arrays: dict[str, NDArray[Any]] = {}
    for network, member in enumerate(model.learner_state.members, start=1):
        found = _weight_arrays(member.state())
        arrays.update({f"network{network}/{name}": array for name, array in found.items()})
    content = io.BytesIO()
    np.savez(content, allow_pickle=False, **arrays)
    write_atomically(path, content.getvalue())


def check_weights_path(path: str) -> None:
    """Refuse a name that does not end in .npz."""
    if not path.endswith(".npz"):
        raise UsageError(f"--weights-file '{path}': the name must end in .npz")


def _weight_arrays(state: State) -> dict[str, NDArray[Any]]:
    layout = layout_of(state.config)
    places = np.concatenate(
        [
            np.indices((units, inputs + 1)).reshape(2, -1)
            for inputs, units in pairwise(layout.widths)
        ],
        axis=1,
    )
    found: dict[str, NDArray[Any]] = {
        "layer": np.repeat(np.arange(1, layout.layers + 1), np.diff(layout.layer_starts)),
        "unit": places[0] + 1,
        "source": places[1],
        "mean": state.mean,
        "prior_mean": state.prior_mean,
        "prior_var": state.prior_var,
    }
    for b, (order, cov) in enumerate(
        zip(layout.block_positions, layout.unpack_blocks(state.cov), strict=True), start=1
    ):
        found[f"block{b}/weights"], found[f"block{b}/cov"] = order, cov
    if state.config.directions:
        found["loose/weights"], found["loose/var"] = (
            layout.loose_positions,
            layout.loose_var(state.cov),
        )
        found["view"] = state.view
    return found


def weight_variances(state: State) -> FloatArray:
    """Return the variance of every weight."""
    return np.asarray(state.cov[layout_of(state.config).variance_positions])


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
