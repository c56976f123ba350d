"""Which weights share a covariance block, and how the blocks lie in memory.

All weight means form one vector: layer after layer, unit after unit, the bias first. A *piece* is a
run of one unit's incoming weights; a *block* is a list of pieces whose weights are correlated;
different blocks are independent.

    neuron, paper   a block is one unit's incoming weights
    full            one block
    group           the hidden units of the last hidden layer in groups of `group_size`: a group's
                    incoming weights together with its outgoing weights to all outputs; units of
                    earlier hidden layers in groups of their incoming weights; output biases alone

Only the upper triangle of a block is stored, row after row: entry (i, j), i <= j, of a block of
dimension d lies at i d - i (i - 1)/2 + (j - i). A layer of separate neurons wide enough to fill a
vector register is *interleaved*: triangle entries outermost, neurons innermost.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kbnn.config import MAX_COVARIANCE, Config
from kbnn.normal import FloatArray

IntArray = NDArray[np.int64]

INTERLEAVE_FROM = 4
"""Layers of at least this many separate neurons are interleaved."""


class Piece(NamedTuple):
    """Weights `first` to `first + length - 1` into unit `unit` of weight layer `layer`."""

    layer: int
    unit: int
    first: int
    length: int


Block = tuple[Piece, ...]


class Stack(NamedTuple):
    """`count` blocks of dimension `dim`, stored from `offset`; interleaved or one after another."""

    offset: int
    count: int
    dim: int
    interleaved: bool

    @property
    def triangle(self) -> int:
        """Stored entries per block."""
        return self.dim * (self.dim + 1) // 2

    @property
    def size(self) -> int:
        """Stored entries of all blocks."""
        return self.count * self.triangle


@dataclass(frozen=True)
class Layout:
    """The blocks of a configuration and their place in the mean and covariance vectors."""

    widths: tuple[int, ...]
    separate: bool
    blocks: tuple[Block, ...]
    stacks: tuple[Stack, ...]

    @property
    def layers(self) -> int:
        """Number of weight layers: hidden layers plus one."""
        return len(self.widths) - 1

    @cached_property
    def starts(self) -> tuple[int, ...]:
        """Where each weight layer begins in the mean vector, and its end."""
        sizes = [m * (n + 1) for n, m in zip(self.widths[:-1], self.widths[1:], strict=True)]
        return tuple(int(start) for start in np.concatenate([[0], np.cumsum(sizes)]))

    @property
    def covariance_size(self) -> int:
        """Length of the covariance vector."""
        last = self.stacks[-1]
        return last.offset + last.size

    @cached_property
    def order(self) -> tuple[IntArray, ...]:
        """For each block the positions of its weights in the mean vector."""
        return tuple(np.concatenate([self._positions(piece) for piece in block])
                     for block in self.blocks)

    def _positions(self, piece: Piece) -> IntArray:
        row = self.starts[piece.layer] + piece.unit * (self.widths[piece.layer] + 1)
        return np.arange(row + piece.first, row + piece.first + piece.length, dtype=np.int64)

    def matrix(self, mean: FloatArray, layer: int) -> FloatArray:
        """The weight matrix (units, inputs + 1) of a layer as a view of the mean vector."""
        flat = mean[self.starts[layer]:self.starts[layer + 1]]
        return flat.reshape(self.widths[layer + 1], self.widths[layer] + 1)

    def unpack(self, cov: FloatArray) -> list[FloatArray]:
        """The dense symmetric matrix of every block."""
        dense: list[FloatArray] = []
        for stack in self.stacks:
            part = cov[stack.offset:stack.offset + stack.size]
            rows = (part.reshape(stack.triangle, stack.count).T if stack.interleaved
                    else part.reshape(stack.count, stack.triangle))
            dense.extend(_unpack_triangle(row, stack.dim) for row in rows)
        return dense

    def pack(self, dense: list[FloatArray]) -> FloatArray:
        """The covariance vector of dense blocks: the inverse of `unpack`."""
        cov = np.empty(self.covariance_size)
        at = 0
        for stack in self.stacks:
            upper = np.triu_indices(stack.dim)
            rows = np.stack([block[upper] for block in dense[at:at + stack.count]])
            cov[stack.offset:stack.offset + stack.size] = (
                rows.T if stack.interleaved else rows).ravel()
            at += stack.count
        return cov


def _unpack_triangle(row: FloatArray, dim: int) -> FloatArray:
    matrix = np.zeros((dim, dim))
    upper = np.triu_indices(dim)
    matrix[upper] = row
    matrix.T[upper] = row
    return matrix


@lru_cache(maxsize=64)
def layout_of(config: Config) -> Layout:
    """The layout that a configuration asks for."""
    separate = config.covariance in ("paper", "neuron")
    blocks = _BLOCKS[config.covariance](config)
    stacks = _interleaved(config) if separate else _one_by_one(blocks)
    last = stacks[-1]
    if last.offset + last.size > MAX_COVARIANCE:
        raise ValueError(
            f"covariance {config.covariance!r} of this network has {last.offset + last.size:,} "
            f"entries, more than {MAX_COVARIANCE:,} (choose fewer units or 'neuron')")
    return Layout(config.widths, separate, blocks, stacks)


def _neuron_blocks(config: Config) -> tuple[Block, ...]:
    widths = config.widths
    return tuple((Piece(layer, unit, 0, widths[layer] + 1),)
                 for layer in range(len(widths) - 1) for unit in range(widths[layer + 1]))


def _full_block(config: Config) -> tuple[Block, ...]:
    return (tuple(piece for block in _neuron_blocks(config) for piece in block),)


def _group_blocks(config: Config) -> tuple[Block, ...]:
    widths = config.widths
    if not config.hidden:
        return _neuron_blocks(config)
    output = len(widths) - 2
    blocks: list[Block] = []
    for layer in range(output):
        for first, end in groups(widths[layer + 1], config.group_size):
            pieces = [Piece(layer, unit, 0, widths[layer] + 1) for unit in range(first, end)]
            if layer == output - 1:
                pieces += [Piece(output, unit, 1 + first, end - first)
                           for unit in range(config.outputs)]
            blocks.append(tuple(pieces))
    blocks += [(Piece(output, unit, 0, 1),) for unit in range(config.outputs)]
    return tuple(blocks)


def groups(units: int, size: int) -> list[tuple[int, int]]:
    """(first, end) of consecutive groups of at most `size` units, as even as can be."""
    count = -(-units // size)
    bounds = [units * i // count for i in range(count + 1)]
    return list(zip(bounds[:-1], bounds[1:], strict=True))


_BLOCKS = {"paper": _neuron_blocks, "neuron": _neuron_blocks, "group": _group_blocks,
           "full": _full_block}


def _one_by_one(blocks: tuple[Block, ...]) -> tuple[Stack, ...]:
    stacks, offset = [], 0
    for block in blocks:
        stack = Stack(offset, 1, sum(piece.length for piece in block), interleaved=False)
        stacks.append(stack)
        offset += stack.size
    return tuple(stacks)


def _interleaved(config: Config) -> tuple[Stack, ...]:
    stacks, offset = [], 0
    widths = config.widths
    for inputs, units in zip(widths[:-1], widths[1:], strict=True):
        stack = Stack(offset, units, inputs + 1, interleaved=units >= INTERLEAVE_FROM)
        stacks.append(stack)
        offset += stack.size
    return tuple(stacks)
