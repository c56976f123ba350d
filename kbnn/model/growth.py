"""A network that gains inputs (a new category) or outputs (a new class), or has them reordered.

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
    layout_of,
    pack_triangle,
    triangle_dimension,
    unpack_triangle,
)
from kbnn.core.normal import FloatArray
from kbnn.core.state import ARRAYS, WEIGHT_ARRAYS, State, init, prior_draws


def grow_state(state: State, inputs: int, outputs: int, config: Config | None = None) -> State:
    """The state with at least so many inputs and outputs, added at the end.

    `config`, if given, is the grown network with smaller blocks than the state has.
    """
    if inputs == state.config.inputs and outputs == state.config.outputs:
        return state
    config = config or state.config.resize(inputs, outputs)
    old, new = layout_of(state.config), layout_of(config)
    places = _map_old_weights(old, new)
    prior_mean, prior_var = _extend_prior(state, old, new)
    mean = prior_mean.copy()
    mean[places], prior_mean[places] = state.mean, state.prior_mean
    loose = prior_var.copy()
    loose[places[old.loose_positions]] = old.loose_var(state.cov)
    cov = new.pack_blocks(
        _extend_blocks(old, new, places, state.cov, prior_var), loose[new.loose_positions]
    )
    first = init(config, state.seed)
    triangles = ("head_cov",) if config.directions else ("head_cov", "input_cov")
    arrays: dict[str, Any] = {}
    for name in ARRAYS[len(WEIGHT_ARRAYS) :]:
        grown = _fill_triangles if name in triangles else _fill_corner
        arrays[name] = grown(getattr(state, name), getattr(first, name))
    return State(config, state.seed, mean, cov, prior_mean, prior_var, **arrays)


def reorder(state: State, inputs: IntArray, outputs: IntArray) -> State:
    """The same network with its inputs and outputs in another order.

    Parameters
    ----------
    state : State
        The network; it must have every input and output already (see `grow`).
    inputs, outputs : permutations
        Input i becomes input inputs[i], output k becomes output outputs[k].
    """
    if np.all(inputs == np.arange(len(inputs))) and np.all(outputs == np.arange(len(outputs))):
        return state
    config = state.config
    layout = layout_of(config)
    shown = np.arange(1 + config.directions)  # the bias and the directions stay where they are
    columns = np.concatenate((shown, len(shown) + inputs))
    index = np.arange(layout.layer_starts[-1], dtype=np.float64)
    moved = []
    for layer in range(layout.layers):
        weights = layout.weight_matrix(index, layer)
        rows = outputs if layer == layout.layers - 1 else np.arange(len(weights))
        moved.append(weights[rows] if layer else weights[rows][:, columns])
    places = np.concatenate([part.ravel() for part in moved]).astype(np.int64)
    loose = np.empty(len(places))
    loose[places[layout.loose_positions]] = layout.loose_var(state.cov)
    input_order = np.argsort(inputs)
    view, spread = state.view, state.input_cov
    if config.directions:
        size = len(spread) - config.inputs
        view, spread = view[input_order], np.append(spread[:size], spread[size:][input_order])
    else:
        spread = _reorder_triangle(spread, input_order)
    head_mean, head_cov = state.head_mean, state.head_cov
    if not config.hidden and head_mean.size:  # the log-variance head reads the inputs
        head_order = np.argsort(columns)
        head_mean = head_mean[:, head_order]
        head_cov = np.array([_reorder_triangle(row, head_order) for row in head_cov])
    source = np.argsort(places)
    return state._replace(
        mean=state.mean[source],
        prior_mean=state.prior_mean[source],
        prior_var=state.prior_var[source],
        cov=layout.pack_blocks(
            _extend_blocks(layout, layout, places, state.cov, state.prior_var[source]),
            loose[layout.loose_positions],
        ),
        head_mean=np.ascontiguousarray(head_mean),
        head_cov=head_cov,
        input_mean=state.input_mean[input_order],
        input_cov=spread,
        view=view,
    )


def _reorder_triangle(packed: FloatArray, order: IntArray) -> FloatArray:
    """A packed symmetric matrix whose row i is the old row order[i]."""
    return pack_triangle(unpack_triangle(packed, len(order))[np.ix_(order, order)])


def _fill_corner(known: Any, first: Any) -> Any:
    """What is known, and of what is new what is believed before the first row."""
    grown = first.copy()
    grown[tuple(map(slice, known.shape))] = known
    return grown


def _fill_triangles(known: FloatArray, first: FloatArray) -> FloatArray:
    """The same of packed triangles (.., size)."""
    if known.ndim > 1:
        pairs = zip(known, first[: len(known)], strict=True)
        return np.array([_fill_triangles(*pair) for pair in pairs]).reshape(first.shape)
    sizes = [triangle_dimension(len(packed)) for packed in (known, first)]
    return pack_triangle(_fill_corner(*map(unpack_triangle, (known, first), sizes)))


def _map_old_weights(old: Layout, new: Layout) -> IntArray:
    """Where each old weight lies in the new mean vector."""
    index = np.arange(new.layer_starts[-1], dtype=np.float64)
    kept = [
        new.weight_matrix(index, layer)[: old.widths[layer + 1], : old.widths[layer] + 1].ravel()
        for layer in range(old.layers)
    ]
    return np.concatenate(kept).astype(np.int64)


def _extend_prior(state: State, old: Layout, new: Layout) -> tuple[FloatArray, FloatArray]:
    """Prior means and variances of the larger network, in the smaller one's scale.

    The means of new weights have the spread of their own prior variance.
    """
    mean, var = np.empty(new.layer_starts[-1]), np.empty(new.layer_starts[-1])
    for layer, draws in enumerate(prior_draws(new.widths, state.seed)):
        level = float(old.weight_matrix(state.prior_var, layer)[0, 0])
        scale = level / (state.config.kind.prior_scale if layer == new.layers - 1 else 1.0)
        new.weight_matrix(var, layer)[:] = level
        new.weight_matrix(mean, layer)[:] = np.sqrt(scale) * draws
    return mean, var


def _extend_blocks(
    old: Layout, new: Layout, places: IntArray, cov: FloatArray, prior_var: FloatArray
) -> list[FloatArray]:
    owner = np.full(new.layer_starts[-1], -1)
    position = np.zeros(new.layer_starts[-1], dtype=np.int64)
    for index, order in enumerate(old.block_positions):
        owner[places[order]] = index
        position[places[order]] = np.arange(len(order))
    dense = old.unpack_blocks(cov)
    grown = []
    for order in new.block_positions:
        block = np.diag(prior_var[order])
        for index in np.unique(owner[order[owner[order] >= 0]]):
            here = np.flatnonzero(owner[order] == index)
            there = position[order[here]]
            block[np.ix_(here, here)] = dense[index][np.ix_(there, there)]
        grown.append(block)
    return grown
