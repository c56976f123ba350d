"""The working copy of a state for the numpy reference, with dense covariance blocks."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

import numpy as np

from kbnn.array_types import FloatArray, IntArray
from kbnn.core.config import Config
from kbnn.core.constants import MOVED_SHARE, REHEARSED_POWER
from kbnn.core.layout import Layout, layout_of, pack_triangle, unpack_triangle
from kbnn.core.state import COUNT, State


class BlockStack(NamedTuple):
    """Neighbouring blocks of equal dimension: covariances (k, d, d) and weight positions (k, d)."""

    cov: FloatArray
    positions: IntArray


class UnitCovariance(NamedTuple):
    """A unit's incoming weights `first`, `first + 1`, ... and a view of their covariance."""

    unit: int
    first: int
    cov: FloatArray


@dataclass
class Belief:
    """The working copy of a state: its arrays are its own and may be written."""

    config: Config
    layout: Layout
    mean: FloatArray
    prior_mean: FloatArray
    prior_var: FloatArray
    stacks: list[BlockStack]
    own: list[list[UnitCovariance]]
    noise: FloatArray
    head_mean: FloatArray
    head_cov: list[FloatArray]
    input_mean: FloatArray
    input_cov: FloatArray
    surprise: FloatArray
    counts: IntArray
    view: FloatArray
    loose: FloatArray  # variances of the first layer's loose weights, a view of the last stack

    @property
    def variance_inflation(self) -> float:
        """Factor kappa on the function's variance, see `repeats` in kbnn.core.config."""
        rows, distinct, rehearsed, moved = (
            float(self.counts[at])
            for at in (COUNT.rows, COUNT.distinct, COUNT.rehearsed, COUNT.moved)
        )
        power, distinct = self.config.repeats, max(1.0, distinct)
        more = 1.0 + (rehearsed + MOVED_SHARE * moved) / distinct
        return float(max(1.0, rows / distinct) ** power * more ** min(power, REHEARSED_POWER))

    def layer_weights(self, layer: int) -> FloatArray:
        """Return the weight means (units, inputs + 1) of a layer; a view."""
        return self.layout.weight_matrix(self.mean, layer)

    def own_gain(self, layer: int, z: FloatArray) -> FloatArray:
        """Return C z of every unit of a layer, C the unit's own part of the covariance."""
        gain = np.zeros_like(self.layer_weights(layer))
        for unit, first, cov in self.own[layer]:
            gain[unit, first : first + len(cov)] = cov @ z[first : first + len(cov)]
        if layer == 0 and self.loose.size:
            gain[:, self.layout.joint :] = self.loose * z[self.layout.joint :]
        return gain

    def own_diagonal(self, layer: int) -> FloatArray:
        """Return the variance of every weight of a layer."""
        diagonal = np.zeros_like(self.layer_weights(layer))
        for unit, first, cov in self.own[layer]:
            diagonal[unit, first : first + len(cov)] = np.diagonal(cov)
        if layer == 0 and self.loose.size:
            diagonal[:, self.layout.joint :] = self.loose
        return diagonal

    def shrink_covariance(self, stack: BlockStack, u: FloatArray, floor: float) -> None:
        """Apply P -= u u' to every block, u (k, d, rank); nothing else writes a covariance."""
        stack.cov[:] -= u @ u.transpose(0, 2, 1)
        diagonal = np.einsum("kii->ki", stack.cov)
        least = floor * self.prior_var[stack.positions]
        self.counts[COUNT.repairs] += int(np.sum(diagonal < least))
        np.maximum(diagonal, least, out=diagonal)

    def forget_toward_prior(self, share: float) -> None:
        """Move every covariance this share of the way back to its prior; keep the means."""
        for stack in self.stacks:
            stack.cov[:] *= 1.0 - share
            np.einsum("kii->ki", stack.cov)[:] += share * self.prior_var[stack.positions]
        self.prior_mean[:] = self.mean


class BeliefBackup:
    """A copy of a belief's arrays, restored if learning a row fails."""

    _FIELDS = (
        "mean",
        "prior_mean",
        "noise",
        "head_mean",
        "input_mean",
        "input_cov",
        "surprise",
        "counts",
    )

    def __init__(self, belief: Belief) -> None:
        self._arrays = {name: getattr(belief, name).copy() for name in self._FIELDS}
        self._heads = [cov.copy() for cov in belief.head_cov]
        self._covs = [stack.cov.copy() for stack in belief.stacks]

    def restore_belief(self, belief: Belief) -> None:
        """Restore everything."""
        self.restore_covariances(belief)
        for name, array in self._arrays.items():
            setattr(belief, name, array)
        belief.head_cov = self._heads

    def restore_covariances(self, belief: Belief) -> None:
        """Restore the covariances of the weights; repairs made to them do not count."""
        for stack, cov in zip(belief.stacks, self._covs, strict=True):
            stack.cov[:] = cov
        belief.counts[COUNT.repairs] = self._arrays["counts"][COUNT.repairs]


def open_belief(state: State) -> Belief:
    """Make a working copy of a state, which is never written."""
    layout = layout_of(state.config)
    stacks = _stack_blocks(layout, state.cov)
    own = _own_parts(layout, [block for stack in stacks for block in stack.cov])
    loose = layout.loose_var(state.cov).copy()
    if loose.size:  # blocks of one weight each
        stacks.append(BlockStack(loose.reshape(-1, 1, 1), layout.loose_positions.reshape(-1, 1)))
    wide = state.config.directions > 0
    return Belief(
        config=state.config,
        layout=layout,
        mean=state.mean.copy(),
        prior_mean=state.prior_mean.copy(),
        prior_var=state.prior_var,
        stacks=stacks,
        own=own,
        noise=state.noise.copy(),
        head_mean=state.head_mean.copy(),
        head_cov=[unpack_triangle(row, state.head_mean.shape[1]) for row in state.head_cov],
        input_mean=state.input_mean.copy(),
        input_cov=state.input_cov.copy()
        if wide
        else unpack_triangle(state.input_cov, state.config.inputs),
        surprise=state.surprise.copy(),
        counts=state.counts.copy(),
        view=state.view,
        loose=loose,
    )


def close_belief(belief: Belief, state: State) -> State:
    """Return the state of a working copy, which may change afterwards."""
    heads = [pack_triangle(cov) for cov in belief.head_cov]
    blocks = belief.stacks[:-1] if belief.loose.size else belief.stacks
    wide = belief.config.directions > 0
    return state._replace(
        mean=belief.mean.copy(),
        prior_mean=belief.prior_mean.copy(),
        cov=belief.layout.pack_blocks(
            [block for stack in blocks for block in stack.cov], belief.loose
        ),
        noise=belief.noise.copy(),
        head_mean=belief.head_mean.copy(),
        head_cov=np.array(heads).reshape(state.head_cov.shape),
        input_mean=belief.input_mean.copy(),
        input_cov=belief.input_cov.copy() if wide else pack_triangle(belief.input_cov),
        surprise=belief.surprise.copy(),
        counts=belief.counts.copy(),
    )


def _stack_blocks(layout: Layout, cov: FloatArray) -> list[BlockStack]:
    """Stack equal neighbouring blocks; a stack never spans two layers of separate neurons."""
    dense = layout.unpack_blocks(cov)
    keys = [
        (dim, block[0].layer if layout.separate else 0)
        for dim, block in zip(layout.block_dims, layout.blocks, strict=True)
    ]
    stacks = []
    for _, members in groupby(range(len(dense)), key=keys.__getitem__):
        index = list(members)
        stacks.append(
            BlockStack(
                np.stack([dense[i] for i in index]),
                np.stack([layout.block_positions[i] for i in index]),
            )
        )
    return stacks


def _own_parts(layout: Layout, blocks: list[FloatArray]) -> list[list[UnitCovariance]]:
    parts: list[list[UnitCovariance]] = [[] for _ in range(layout.layers)]
    for pieces, cov in zip(layout.blocks, blocks, strict=True):
        at = 0
        for piece in pieces:
            end = at + piece.length
            parts[piece.layer].append(UnitCovariance(piece.unit, piece.first, cov[at:end, at:end]))
            at = end
    return parts
