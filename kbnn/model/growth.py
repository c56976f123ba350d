"""A network that gains inputs (a new category) or outputs (a new class) while it runs.

Old weights keep their belief; new ones start from the prior they would have had from the start, and
are independent of the rest. Rows seen before are as if the new input had been 0 in all of them.
Where more inputs make groups smaller, or many classes split them into neurons, correlations across
the new borders are dropped, which keeps every block a part of a covariance.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kbnn.core.config import Config
from kbnn.core.layout import (
    IntArray,
    Layout,
    dimension,
    layout_of,
    pack_triangle,
    unpack_triangle,
)
from kbnn.core.normal import FloatArray
from kbnn.core.state import ARRAYS, WEIGHTS, State, init, prior_draws


def grow(state: State, inputs: int, outputs: int, config: Config | None = None) -> State:
    """The state with at least so many inputs and outputs, added at the end.

    `config`, if given, is the grown network with smaller blocks than the state has.
    """
    if inputs == state.config.inputs and outputs == state.config.outputs:
        return state
    config = config or state.config.grown(inputs, outputs)
    old, new = layout_of(state.config), layout_of(config)
    places = _places(old, new)
    prior_mean, prior_var = _prior(state, old, new)
    mean = prior_mean.copy()
    mean[places], prior_mean[places] = state.mean, state.prior_mean
    loose = prior_var.copy()
    loose[places[old.loose]] = old.loose_var(state.cov)
    cov = new.pack(_blocks(old, new, places, state.cov, prior_var), loose[new.loose])
    first = init(config, state.seed)
    triangles = ("head_cov",) if config.directions else ("head_cov", "input_cov")
    arrays: dict[str, Any] = {}
    for name in ARRAYS[len(WEIGHTS) :]:
        grown = _triangles if name in triangles else _corner
        arrays[name] = grown(getattr(state, name), getattr(first, name))
    return State(config, state.seed, mean, cov, prior_mean, prior_var, **arrays)


def _corner(known: Any, first: Any) -> Any:
    """What is known, and of what is new what is believed before the first row."""
    grown = first.copy()
    grown[tuple(map(slice, known.shape))] = known
    return grown


def _triangles(known: FloatArray, first: FloatArray) -> FloatArray:
    """The same of packed triangles (.., size)."""
    if known.ndim > 1:
        pairs = zip(known, first[: len(known)], strict=True)
        return np.array([_triangles(*pair) for pair in pairs]).reshape(first.shape)
    sizes = [dimension(len(packed)) for packed in (known, first)]
    return pack_triangle(_corner(*map(unpack_triangle, (known, first), sizes)))


def _places(old: Layout, new: Layout) -> IntArray:
    """Where each old weight lies in the new mean vector."""
    index = np.arange(new.starts[-1], dtype=np.float64)
    kept = [
        new.matrix(index, layer)[: old.widths[layer + 1], : old.widths[layer] + 1].ravel()
        for layer in range(old.layers)
    ]
    return np.concatenate(kept).astype(np.int64)


def _prior(state: State, old: Layout, new: Layout) -> tuple[FloatArray, FloatArray]:
    """Prior means and variances of the larger network, in the smaller one's scale.

    The means of new weights have the spread of their own prior variance.
    """
    mean, var = np.empty(new.starts[-1]), np.empty(new.starts[-1])
    for layer, draws in enumerate(prior_draws(new.widths, state.seed)):
        level = float(old.matrix(state.prior_var, layer)[0, 0])
        scale = level / (state.config.kind.prior_scale if layer == new.layers - 1 else 1.0)
        new.matrix(var, layer)[:] = level
        new.matrix(mean, layer)[:] = np.sqrt(scale) * draws
    return mean, var


def _blocks(
    old: Layout, new: Layout, places: IntArray, cov: FloatArray, prior_var: FloatArray
) -> list[FloatArray]:
    owner = np.full(new.starts[-1], -1)
    position = np.zeros(new.starts[-1], dtype=np.int64)
    for index, order in enumerate(old.order):
        owner[places[order]] = index
        position[places[order]] = np.arange(len(order))
    dense = old.unpack(cov)
    grown = []
    for order in new.order:
        block = np.diag(prior_var[order])
        for index in np.unique(owner[order[owner[order] >= 0]]):
            here = np.flatnonzero(owner[order] == index)
            there = position[order[here]]
            block[np.ix_(here, here)] = dense[index][np.ix_(there, there)]
        grown.append(block)
    return grown
