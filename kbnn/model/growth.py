"""A network that gains inputs (a new category) or outputs (a new class) while it runs.

Old weights keep their belief; new ones start from the prior they would have had from the start, and
are independent of the rest. Rows seen before are as if the new input had been 0 in all of them.
Where more inputs make groups smaller, correlations across the new borders are dropped, which keeps
every block a part of a covariance.
"""

from __future__ import annotations

import numpy as np

from kbnn.core.layout import IntArray, Layout, layout_of, pack_triangle, unpack_triangle
from kbnn.core.normal import FloatArray
from kbnn.core.state import State, head_width, prior_draws


def grow(state: State, inputs: int, outputs: int) -> State:
    """The state with at least so many inputs and outputs, added at the end."""
    if inputs == state.config.inputs and outputs == state.config.outputs:
        return state
    config = state.config.grown(inputs, outputs)
    old, new = layout_of(state.config), layout_of(config)
    places = _places(old, new)
    prior_mean, prior_var = _prior(state, old, new)
    mean = prior_mean.copy()
    mean[places], prior_mean[places] = state.mean, state.prior_mean
    loose = prior_var.copy()
    loose[places[old.loose]] = old.loose_var(state.cov)
    cov = new.pack(_blocks(old, new, places, state.cov, prior_var), loose[new.loose])
    added = inputs - state.config.inputs
    head_mean, head_cov = state.head_mean, state.head_cov
    if not config.hidden and len(head_mean):
        head_mean, head_cov = _grow_head(state, head_width(config))
    return state._replace(
        config=config,
        mean=mean,
        cov=cov,
        prior_mean=prior_mean,
        prior_var=prior_var,
        input_mean=np.concatenate([state.input_mean, np.zeros(added)]),
        input_cov=_spread(state, inputs),
        view=_view(state, inputs),
        head_mean=head_mean,
        head_cov=head_cov,
    )


def _spread(state: State, inputs: int) -> FloatArray:
    """The inputs' covariance, that of new ones as before the first row."""
    known = state.config.inputs
    if state.config.directions:
        return np.concatenate([state.input_cov, np.ones(inputs - known)])
    spread = np.eye(inputs)
    spread[:known, :known] = unpack_triangle(state.input_cov, known)
    return pack_triangle(spread)


def _view(state: State, inputs: int) -> FloatArray:
    """New inputs belong to no direction."""
    if not state.config.directions:
        return state.view
    view = np.zeros((inputs, state.view.shape[1]))
    view[:, 0] = 1.0
    view[: len(state.view)] = state.view
    return view


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
    for layer in range(new.layers):
        level = float(old.matrix(state.prior_var, layer)[0, 0])
        scale = level / (state.config.kind.prior_scale if layer == new.layers - 1 else 1.0)
        new.matrix(var, layer)[:] = level
        for column in range(new.widths[layer] + 1):
            new.matrix(mean, layer)[:, column] = np.sqrt(scale) * prior_draws(
                state.seed, layer, column, new.widths[layer + 1]
            )
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


def _grow_head(state: State, width: int) -> tuple[FloatArray, FloatArray]:
    known = state.head_mean.shape[1]
    mean = np.zeros((len(state.head_mean), width))
    mean[:, :known] = state.head_mean
    covs = []
    for row in state.head_cov:
        cov = np.eye(width) / width
        cov[:known, :known] = unpack_triangle(row, known)
        covs.append(pack_triangle(cov))
    return mean, np.array(covs)
