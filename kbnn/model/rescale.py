"""Exact change of scale: the same knowledge in other units of measure, with the prior swapped.

Inputs (x - c)/s become (x - c')/s', outputs y become a y + b. A block's weights follow
theta' = A theta + d: for a unit of the first layer w_i' = w_i s_i'/s_i and
bias' = bias + sum_i w_i (c_i' - c_i)/s_i; weights into an output are multiplied by a and its bias
moves by b. Carrying mean and covariance over would preserve the function and change nothing. What
the data said is separated from the prior instead,
    Pd = C^-1 - P0,  hd = C^-1 mu - P0 mu0,
carried over, Pd' = A^-T Pd A^-1, hd' = A^-T hd + Pd' d, and joined with the prior *in the new
scale*: C' = (Pd' + P0)^-1, mu' = C' (hd' + P0 mu0). After a drift alarm information is counted from
the mean at the alarm, which then is carried along.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from kbnn.core.layout import Layout, Piece, invert_spd, layout_of, pack_triangle, unpack_triangle
from kbnn.core.normal import FloatArray
from kbnn.core.state import COUNT, State
from kbnn.model.scaling import Scale

BLOCKS_PER_BATCH: Final = 64
"""Blocks that are carried over at once: more would need memory, and gain nothing."""


def rescale_state(
    state: State, old: Scale, new: Scale, gain: FloatArray, shift: FloatArray, share: float = 1.0
) -> State:
    """The state for inputs in the `new` instead of the `old` scale and outputs y' = gain y + shift.

    Only `share` of the information Pd, hd is carried over.
    """
    layout = layout_of(state.config)
    if state.config.directions:  # which has units of its own
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
    """Scales, where a column that has not varied borrows the other's (its values are 0 anyway)."""
    scale = np.where(one.scale > 0.0, one.scale, other.scale)
    return np.where(scale > 0.0, scale, 1.0)


def _compute_scale_ratio(old: Scale, new: Scale) -> FloatArray:
    return np.asarray(_get_effective_scale(new, old) / _get_effective_scale(old, new))


def _first_layer_map(old: Scale, new: Scale) -> FloatArray:
    """T of one unit's [bias, weights]."""
    t = np.diag(np.concatenate([[1.0], _compute_scale_ratio(old, new)]))
    t[0, 1:] = (new.center - old.center) / _get_effective_scale(old, new)
    return t


def _group_alike_blocks(layout: Layout) -> list[list[int]]:
    """Blocks that follow the same map, a run of them at a time: they are carried over at once."""
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
    """Blocks (n, d) and (n, d, d) in the new scale, `back` the inverse of A.

    Where the information cannot be separated from the prior the function is kept instead.
    """
    precision = invert_spd(cov)
    if precision is not None:
        prior = np.eye(len(a)) / var0[:, None]
        data = share * (back.T @ (precision - prior) @ back)
        new_cov = invert_spd(data + prior)
        if new_cov is not None:
            pull = share * ((_multiply_each(precision, mu) - mu0 / var0) @ back)
            return _multiply_each(new_cov, pull + data @ d + anchor / var0), new_cov
    if len(mu) > 1:  # not for want of one of them
        parts = zip(
            *(np.split(part, len(mu)) for part in (mu, cov, mu0, var0, anchor)), strict=True
        )
        each = [_carry_blocks(m, c, m0, v0, a, back, d, to, share) for m, c, m0, v0, to in parts]
        return np.concatenate([one for one, _ in each]), np.concatenate([one for _, one in each])
    # A variance of zero (noise 0) has no precision.
    kept = a @ cov @ a.T
    return mu @ a.T + d, 0.5 * (kept + kept.swapaxes(1, 2))


def _multiply_each(matrices: FloatArray, vectors: FloatArray) -> FloatArray:
    return np.asarray((matrices @ vectors[..., None])[..., 0])


def _carry_head(state: State, first: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Without a hidden layer the log-variance head reads the inputs and follows them."""
    if state.config.hidden or not len(state.head_mean):
        return state.head_mean, state.head_cov
    size = len(first)
    covs = [pack_triangle(first @ unpack_triangle(row, size) @ first.T) for row in state.head_cov]
    return state.head_mean @ first.T, np.array(covs)


def _carry_loose(
    state: State, layout: Layout, gain: FloatArray, anchored: bool
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Means, prior means and variances of loose weights, where these lead into an output."""
    at, a = layout.loose_positions, gain[:, None]
    mean, before = state.mean[at], state.prior_mean[at]
    var, prior = layout.loose_var(state.cov), state.prior_var[at]
    data = (1.0 / var - 1.0 / prior) / a**2
    new = 1.0 / (data + 1.0 / prior)
    pull = (mean / var - before / prior) / a
    anchor = before * a if anchored else before
    return new * (pull + anchor / prior), anchor, new
