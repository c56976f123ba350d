"""Change a network's scale, size or order without losing what it has learned.

Rescaling: inputs (x - c)/s become (x - c')/s', outputs y become a y + b. The weights of a block
follow theta' = A theta + d: for a unit of the first layer w_i' = w_i s_i'/s_i and bias' = bias +
sum_i w_i (c_i' - c_i)/s_i; weights into an output are multiplied by a and its bias moves by b.
Converting mean and covariance alone would preserve the function and keep the old prior. Instead,
the information of the data is separated from the prior,

    Pd = C^-1 - P0,  hd = C^-1 mu - P0 mu0,

converted, Pd' = A^-T Pd A^-1, hd' = A^-T hd + Pd' d, and combined with the prior *in the new
scale*: C' = (Pd' + P0)^-1, mu' = C' (hd' + P0 mu0). After a drift alarm, information is counted
from the mean at the alarm, which is then converted as well.

Growing: a network gains inputs (a new category) or outputs (a new class). Old weights keep their
mean and covariance; new ones start from their prior, independent of the rest, as if the new input
had been 0 in all earlier rows. Where blocks become smaller (smaller groups, or groups split into
neurons), correlations between the new blocks are dropped, so that every block stays a valid
covariance.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import numpy as np

from kbnn.array_types import FloatArray, IntArray
from kbnn.core.config import Config
from kbnn.core.layout import (
    Layout,
    Piece,
    invert_spd,
    layout_of,
    multiply,
    pack_triangle,
    triangle_dimension,
    unpack_triangle,
)
from kbnn.core.state import ARRAYS, COUNT, WEIGHT_ARRAYS, State, init, prior_draws
from kbnn.model.scaler import Scale

BLOCKS_PER_BATCH: Final = 64
"""Blocks converted at once: more would need more memory without a gain in speed."""


def rescale_state(
    state: State, old: Scale, new: Scale, gain: FloatArray, shift: FloatArray, share: float = 1.0
) -> State:
    """Convert a state from inputs in the `old` to the `new` scale, and outputs to gain y + shift.

    Only `share` of the information Pd, hd is kept.
    """
    layout = layout_of(state.config)
    if state.config.directions:  # the projected inputs have a scale of their own
        first = first_back = np.eye(1 + state.config.directions)
    else:
        first, first_back = _first_layer_map(old, new), _first_layer_map(new, old)
    mean, prior_mean = state.mean.copy(), state.prior_mean.copy()
    anchored = bool(state.counts[COUNT.alarms])
    dense = layout.unpack_blocks(state.cov)
    for alike in _group_alike_blocks(layout):
        a, d = _block_map(layout, layout.blocks[alike[0]], first, gain, shift)
        if np.array_equal(a, np.eye(len(a))) and not np.any(d):
            continue
        back, _ = _block_map(layout, layout.blocks[alike[0]], first_back, 1.0 / gain, shift)
        order = np.stack([layout.block_positions[index] for index in alike])
        mu0, var0 = prior_mean[order], state.prior_var[order]
        anchor = mu0 @ a.T + d if anchored else mu0
        cov = np.stack([dense[index] for index in alike])
        mean[order], carried = _carry_blocks(mean[order], cov, mu0, var0, a, back, d, anchor, share)
        prior_mean[order] = anchor
        for index, block in zip(alike, carried, strict=True):
            dense[index] = block
    loose = layout.loose_var(state.cov).copy()
    if not state.config.hidden and loose.size:
        at = layout.loose_positions
        mean[at], prior_mean[at], loose = _carry_loose(state, layout, gain, anchored)
    config = state.config
    if config.noise is not None:
        config = replace(config, noise=config.noise * float(gain[0]) ** 2)
    noise = state.noise.copy()
    if len(noise):
        noise[:, 1] *= gain[: len(noise)] ** 2
    ratio = _compute_scale_ratio(old, new)
    center = (old.center - new.center) / _get_effective_scale(new, old)
    head_mean, head_cov = _carry_head(state, first)
    view, input_mean, input_cov = state.view.copy(), state.input_mean, state.input_cov
    if config.directions:
        view[:, 1] += view[:, 0] * center * ratio
        view[:, 0] *= ratio
    else:
        input_mean = input_mean / ratio + center
        spread = unpack_triangle(input_cov, config.inputs) / np.outer(ratio, ratio)
        input_cov = pack_triangle(spread)
    return state._replace(
        config=config,
        mean=mean,
        prior_mean=prior_mean,
        cov=layout.pack_blocks(dense, loose),
        noise=noise,
        head_mean=head_mean,
        head_cov=head_cov,
        input_mean=input_mean,
        input_cov=input_cov,
        view=view,
    )


def _get_effective_scale(one: Scale, other: Scale) -> FloatArray:
    """Return scales; a column that has not varied uses the other's (its values are 0 anyway)."""
    scale = np.where(one.scale > 0.0, one.scale, other.scale)
    return np.where(scale > 0.0, scale, 1.0)


def _compute_scale_ratio(old: Scale, new: Scale) -> FloatArray:
    return np.asarray(_get_effective_scale(new, old) / _get_effective_scale(old, new))


def _first_layer_map(old: Scale, new: Scale) -> FloatArray:
    """Return the matrix that maps one unit's [bias, weights] to the new scale."""
    t = np.diag(np.concatenate([[1.0], _compute_scale_ratio(old, new)]))
    t[0, 1:] = (new.center - old.center) / _get_effective_scale(old, new)
    return t


def _group_alike_blocks(layout: Layout) -> list[list[int]]:
    """Group blocks that are converted by the same map, at most BLOCKS_PER_BATCH at a time."""
    last, found = layout.layers - 1, dict[object, list[int]]()
    for index, block in enumerate(layout.blocks):
        kind = tuple((p.layer, p.first, p.length, p.unit if p.layer == last else 0) for p in block)
        found.setdefault((kind, index // BLOCKS_PER_BATCH), []).append(index)
    return list(found.values())


def _block_map(
    layout: Layout,
    pieces: tuple[Piece, ...],
    first: FloatArray,
    gain: FloatArray,
    shift: FloatArray,
) -> tuple[FloatArray, FloatArray]:
    """Return A and d of theta' = A theta + d for one block."""
    size = sum(piece.length for piece in pieces)
    a, d = np.eye(size), np.zeros(size)
    at = 0
    for piece in pieces:
        span = slice(at, at + piece.length)
        if piece.layer == 0:
            a[span, span] = first
        if piece.layer == layout.layers - 1:
            a[span, span] *= gain[piece.unit]
            if piece.first == 0:
                d[at] = shift[piece.unit]
        at += piece.length
    return a, d


def _carry_blocks(
    mu: FloatArray,
    cov: FloatArray,
    mu0: FloatArray,
    var0: FloatArray,
    a: FloatArray,
    back: FloatArray,
    d: FloatArray,
    anchor: FloatArray,
    share: float,
) -> tuple[FloatArray, FloatArray]:
    """Convert blocks (n, d) and (n, d, d) to the new scale; `back` is the inverse of A.

    Where the information cannot be separated from the prior, the function is preserved instead.
    """
    precision = invert_spd(cov)
    if precision is not None:
        prior = np.eye(len(a)) / var0[:, None]
        data = share * multiply(multiply(back.T, precision - prior), back)
        new_cov = invert_spd(data + prior)
        if new_cov is not None:
            pull = share * ((_multiply_each(precision, mu) - mu0 / var0) @ back)
            return _multiply_each(new_cov, pull + data @ d + anchor / var0), new_cov
    if len(mu) > 1:  # one singular block must not affect the others
        parts = zip(
            *(np.split(part, len(mu)) for part in (mu, cov, mu0, var0, anchor)), strict=True
        )
        each = [_carry_blocks(m, c, m0, v0, a, back, d, to, share) for m, c, m0, v0, to in parts]
        return np.concatenate([one for one, _ in each]), np.concatenate([one for _, one in each])
    # A variance of zero (noise 0) has no precision: preserve the function.
    kept = multiply(multiply(a, cov), a.T)
    return mu @ a.T + d, 0.5 * (kept + kept.swapaxes(1, 2))


def _multiply_each(matrices: FloatArray, vectors: FloatArray) -> FloatArray:
    return np.asarray((matrices @ vectors[..., None])[..., 0])


def _carry_head(state: State, first: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Convert the log-variance head, which reads the inputs if there are no hidden layers."""
    if state.config.hidden or not len(state.head_mean):
        return state.head_mean, state.head_cov
    size = len(first)
    covs = [pack_triangle(first @ unpack_triangle(row, size) @ first.T) for row in state.head_cov]
    return state.head_mean @ first.T, np.array(covs)


def _carry_loose(
    state: State, layout: Layout, gain: FloatArray, anchored: bool
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Convert means, prior means and variances of loose weights that lead into an output."""
    at, a = layout.loose_positions, gain[:, None]
    mean, before = state.mean[at], state.prior_mean[at]
    var, prior = layout.loose_var(state.cov), state.prior_var[at]
    data = (1.0 / var - 1.0 / prior) / a**2
    new = 1.0 / (data + 1.0 / prior)
    pull = (mean / var - before / prior) / a
    anchor = before * a if anchored else before
    return new * (pull + anchor / prior), anchor, new


def grow_state(state: State, inputs: int, outputs: int, config: Config | None = None) -> State:
    """Append inputs and outputs to a network, up to the given numbers.

    `config`, if given, describes the grown network with smaller blocks than the state has.
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
    """Reorder the inputs and outputs of a network.

    Parameters
    ----------
    state : State
        The network; it must have every input and output already (see `grow_state`).
    inputs, outputs : permutations
        Input i becomes input inputs[i], output k becomes output outputs[k].
    """
    if np.all(inputs == np.arange(len(inputs))) and np.all(outputs == np.arange(len(outputs))):
        return state
    config = state.config
    layout = layout_of(config)
    shown = np.arange(1 + config.directions)  # the bias and the directions keep their positions
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
    """Reorder a packed symmetric matrix: row i of the result is the old row order[i]."""
    return pack_triangle(unpack_triangle(packed, len(order))[np.ix_(order, order)])


def _fill_corner(known: Any, first: Any) -> Any:
    """Copy the old array into the corner of the initial larger one."""
    grown = first.copy()
    grown[tuple(map(slice, known.shape))] = known
    return grown


def _fill_triangles(known: FloatArray, first: FloatArray) -> FloatArray:
    """Copy packed triangles (.., size) into the corners of the initial larger ones."""
    if known.ndim > 1:
        pairs = zip(known, first[: len(known)], strict=True)
        return np.array([_fill_triangles(*pair) for pair in pairs]).reshape(first.shape)
    sizes = [triangle_dimension(len(packed)) for packed in (known, first)]
    return pack_triangle(_fill_corner(*map(unpack_triangle, (known, first), sizes)))


def _map_old_weights(old: Layout, new: Layout) -> IntArray:
    """Return the position of each old weight in the new mean vector."""
    index = np.arange(new.layer_starts[-1], dtype=np.float64)
    kept = [
        new.weight_matrix(index, layer)[: old.widths[layer + 1], : old.widths[layer] + 1].ravel()
        for layer in range(old.layers)
    ]
    return np.concatenate(kept).astype(np.int64)


def _extend_prior(state: State, old: Layout, new: Layout) -> tuple[FloatArray, FloatArray]:
    """Return prior means and variances of the larger network, in the smaller one's scale.

    The means of new weights are drawn with the spread of their own prior variance.
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
    """Build the new covariance blocks from the old ones, with prior variances for new weights."""
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
