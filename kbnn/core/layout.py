"""Which weights share a covariance block, and how the blocks lie in memory.

All weight means form one vector: layer after layer, unit after unit, the bias first. A *piece* is a
run of one unit's incoming weights; a *block* is a list of pieces whose weights are correlated;
different blocks are independent.

    neuron, paper   a block is one unit's incoming weights
    full            one block
    group           the units of each hidden layer in even groups of at most ten units and 192
                    weights: a group's incoming weights and, in the last hidden layer of a network
                    with one output, its outgoing ones too. What is left of the output layer (its
                    bias; all of it for several outputs) is a block per output.

    wide            as group, but of the first layer's weights only those of the bias and of the
                    leading directions (kbnn.core.input_moments); each of the others is *loose*:
                    independent, its variance stored behind the blocks, unit after unit

Only the upper triangle of a block is stored, row after row: entry (i, j), i <= j, of a block of
dimension d lies at i d - i (i - 1)/2 + (j - i). Triangles follow each other in the order of blocks.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Final, NamedTuple

import numpy as np

from kbnn.array_types import FloatArray, IntArray
from kbnn.core.config import MAX_COVARIANCE, Config

MAX_GROUP_UNITS = 10
MAX_GROUP_WEIGHTS = 192


class Piece(NamedTuple):
    """Weights `first` to `first + length - 1` into unit `unit` of weight layer `layer`."""

    layer: int
    unit: int
    first: int
    length: int


Block = tuple[Piece, ...]


@dataclass(frozen=True)
class Layout:
    """The blocks of a configuration and their positions in the mean and covariance vectors."""

    widths: tuple[int, ...]
    separate: bool
    blocks: tuple[Block, ...]
    joint: int = 0  # weights of a unit of the first layer that are in blocks; 0: all of them

    @property
    def layers(self) -> int:
        """Number of weight layers: hidden layers plus one."""
        return len(self.widths) - 1

    @cached_property
    def layer_starts(self) -> tuple[int, ...]:
        """Start of each weight layer in the mean vector, and its end."""
        sizes = [m * (n + 1) for n, m in zip(self.widths[:-1], self.widths[1:], strict=True)]
        return tuple(int(start) for start in np.concatenate([[0], np.cumsum(sizes)]))

    @cached_property
    def block_dims(self) -> tuple[int, ...]:
        """Dimension of each block."""
        return tuple(sum(piece.length for piece in block) for block in self.blocks)

    @cached_property
    def block_offsets(self) -> tuple[int, ...]:
        """Start of each block's triangle in the covariance vector, and its end."""
        ends = np.cumsum([0] + [dim * (dim + 1) // 2 for dim in self.block_dims])
        return tuple(int(end) for end in ends)

    @cached_property
    def loose_positions(self) -> IntArray:
        """Positions of the loose weights in the mean vector, (units, weights)."""
        each = self.widths[0] + 1
        units = self.widths[1] if self.joint else 0
        return np.arange(units * each, dtype=np.int64).reshape(units, each)[:, self.joint :]

    @property
    def size(self) -> int:
        """Length of the covariance vector."""
        return self.block_offsets[-1] + self.loose_positions.size

    @cached_property
    def block_positions(self) -> tuple[IntArray, ...]:
        """Positions of each block's weights in the mean vector."""
        return tuple(
            np.concatenate([self._piece_positions(piece) for piece in block])
            for block in self.blocks
        )

    @cached_property
    def variance_positions(self) -> IntArray:
        """Position of each weight's variance, in the order of the mean vector."""
        places = np.empty(self.layer_starts[-1], dtype=np.int64)
        for dim, start, order in zip(
            self.block_dims, self.block_offsets[:-1], self.block_positions, strict=True
        ):
            places[order] = start + diagonal_positions(dim)
        places[self.loose_positions.ravel()] = self.block_offsets[-1] + np.arange(
            self.loose_positions.size
        )
        return places

    def _piece_positions(self, piece: Piece) -> IntArray:
        row = self.layer_starts[piece.layer] + piece.unit * (self.widths[piece.layer] + 1)
        return np.arange(row + piece.first, row + piece.first + piece.length, dtype=np.int64)

    def weight_matrix(self, mean: FloatArray, layer: int) -> FloatArray:
        """Return the weight matrix (units, inputs + 1) of a layer as a view of the mean vector."""
        flat = mean[self.layer_starts[layer] : self.layer_starts[layer + 1]]
        return flat.reshape(self.widths[layer + 1], self.widths[layer] + 1)

    def unpack_blocks(self, cov: FloatArray) -> list[FloatArray]:
        """Return the dense symmetric matrix of every block."""
        return [
            unpack_triangle(cov[start:end], dim)
            for start, end, dim in zip(
                self.block_offsets[:-1], self.block_offsets[1:], self.block_dims, strict=True
            )
        ]

    def pack_blocks(self, dense: list[FloatArray], loose: FloatArray | None = None) -> FloatArray:
        """Return the covariance vector of dense blocks and loose variances."""
        parts = [pack_triangle(block) for block in dense]
        return np.concatenate(parts if loose is None else [*parts, loose.ravel()])

    def loose_var(self, cov: FloatArray) -> FloatArray:
        """Return the variances of the loose weights, (units, weights), as a view."""
        return cov[self.block_offsets[-1] :].reshape(self.loose_positions.shape)


def diagonal_positions(dim: int) -> IntArray:
    """Return the positions of the diagonal in a packed triangle."""
    i = np.arange(dim, dtype=np.int64)
    return i * dim - i * (i - 1) // 2


def pack_triangle(matrix: FloatArray) -> FloatArray:
    """Return the upper triangle of a symmetric matrix, row after row."""
    return np.asarray(matrix[_upper_indices(len(matrix))])


def triangle_dimension(size: int) -> int:
    """Return the dimension of the matrix whose triangle has `size` entries."""
    return (math.isqrt(8 * size + 1) - 1) // 2


def unpack_triangle(row: FloatArray, dim: int) -> FloatArray:
    """Return the symmetric matrix of a packed upper triangle."""
    matrix = np.zeros((dim, dim))
    upper = _upper_indices(dim)
    matrix[upper] = row
    matrix.T[upper] = row
    return matrix


@lru_cache(maxsize=64)
def _upper_indices(dim: int) -> tuple[IntArray, IntArray]:
    return np.triu_indices(dim)


@lru_cache(maxsize=64)
def layout_of(config: Config) -> Layout:
    """Return the layout of a configuration."""
    layout = Layout(
        config.widths,
        config.covariance in ("paper", "neuron"),
        _BLOCK_BUILDERS[config.covariance](config),
        1 + config.directions if config.directions else 0,
    )
    if layout.size > MAX_COVARIANCE:
        raise ValueError(
            f"covariance {config.covariance!r} of this network has {layout.size:,} "
            f"entries, more than {MAX_COVARIANCE:,} (choose fewer units or 'neuron')"
        )
    return layout


def _neuron_blocks(config: Config) -> tuple[Block, ...]:
    widths = config.widths
    return tuple(
        (Piece(layer, unit, 0, widths[layer] + 1),)
        for layer in range(len(widths) - 1)
        for unit in range(widths[layer + 1])
    )


def _full_block(config: Config) -> tuple[Block, ...]:
    return (tuple(piece for block in _neuron_blocks(config) for piece in block),)


def _group_blocks(config: Config) -> tuple[Block, ...]:
    widths = config.widths
    if not config.hidden and config.directions:
        return tuple((Piece(0, unit, 0, 1 + config.directions),) for unit in range(config.outputs))
    if not config.hidden:
        return _neuron_blocks(config)
    output = len(widths) - 2
    joined = config.outputs == 1
    blocks: list[Block] = []
    for layer in range(output):
        inputs = widths[layer] + 1 if layer or not config.directions else 1 + config.directions
        outgoing = joined and layer == output - 1
        for first, end in group_bounds(widths[layer + 1], config.group_size, inputs + outgoing):
            pieces = [Piece(layer, unit, 0, inputs) for unit in range(first, end)]
            if outgoing:
                pieces.append(Piece(output, 0, 1 + first, end - first))
            blocks.append(tuple(pieces))
    rest = 1 if joined else widths[output] + 1
    blocks += [(Piece(output, unit, 0, rest),) for unit in range(config.outputs)]
    return tuple(blocks)


def group_bounds(units: int, size: int | None, unit_weights: int) -> list[tuple[int, int]]:
    """Return (first, end) of consecutive groups of at most `size` units, as even as possible."""
    if size is None:
        size = max(1, min(MAX_GROUP_UNITS, MAX_GROUP_WEIGHTS // unit_weights))
    count = -(-units // size)
    bounds = [units * i // count for i in range(count + 1)]
    return list(itertools.pairwise(bounds))


_BLOCK_BUILDERS = {
    "paper": _neuron_blocks,
    "neuron": _neuron_blocks,
    "group": _group_blocks,
    "wide": _group_blocks,
    "full": _full_block,
}


SINGLE_THREAD_PRODUCTS: Final = 1 << 18
"""Multiplications up to which OpenBLAS uses one thread. Other threads would wait busily for a tenth
of a second after each product, which costs more than all products."""


SINGLE_THREAD_SIZE: Final = 64
"""Size of a matrix from which LAPACK uses threads for Cholesky factors."""


def multiply(a: FloatArray, b: FloatArray) -> FloatArray:
    """Return a @ b for matrices (..., n, k) and (..., k, m), some rows at a time if it is small."""
    rows = SINGLE_THREAD_PRODUCTS // max(1, b.shape[-2] * b.shape[-1])
    if a.shape[-2] <= rows or rows < 8:  # large products are worth threads
        return np.asarray(a @ b)
    alike = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    out = np.empty((*alike, a.shape[-2], b.shape[-1]))
    for at in range(0, a.shape[-2], rows):
        np.matmul(a[..., at : at + rows, :], b, out=out[..., at : at + rows, :])
    return out


def invert_spd(matrix: FloatArray) -> FloatArray | None:
    """Invert symmetric positive definite matrices (..., n, n); the result is exactly symmetric.

    None if any of them is not positive definite.
    """
    try:
        root = _inverse_root(matrix)
    except np.linalg.LinAlgError:
        return None
    with np.errstate(over="ignore", invalid="ignore"):
        inverse = _multiply_root(root)
    return inverse if np.all(np.isfinite(inverse)) else None


def _multiply_root(root: FloatArray) -> FloatArray:
    """Return L' L for lower triangular matrices L, exactly symmetric, by parts."""
    first = root.shape[-1] // 2
    if first < SINGLE_THREAD_SIZE // 2:
        inverse = root.swapaxes(-1, -2) @ root
        return np.asarray(0.5 * (inverse + inverse.swapaxes(-1, -2)))
    below, last = root[..., first:, :first], root[..., first:, first:]
    square = multiply(below.swapaxes(-1, -2), below)
    out = np.empty_like(root)
    out[..., :first, :first] = _multiply_root(root[..., :first, :first])
    out[..., :first, :first] += 0.5 * (square + square.swapaxes(-1, -2))
    out[..., first:, first:] = _multiply_root(last)
    out[..., first:, :first] = multiply(last.swapaxes(-1, -2), below)
    out[..., :first, first:] = out[..., first:, :first].swapaxes(-1, -2)
    return out


def _inverse_root(matrix: FloatArray) -> FloatArray:
    """Return L^-1 with L the Cholesky factors of matrices, by parts.

    LAPACK would start threads for factors of larger matrices, see `multiply`.
    """
    if matrix.shape[-1] < SINGLE_THREAD_SIZE:
        return _invert_root(np.asarray(np.linalg.cholesky(matrix), np.float64))
    first = min(matrix.shape[-1] // 2, SINGLE_THREAD_SIZE - 1)
    out = np.zeros_like(matrix)
    upper = out[..., :first, :first] = _inverse_root(matrix[..., :first, :first])
    with np.errstate(over="ignore", invalid="ignore"):
        below = multiply(matrix[..., first:, :first], upper.swapaxes(-1, -2))
        rest = matrix[..., first:, first:] - multiply(below, below.swapaxes(-1, -2))
    lower = out[..., first:, first:] = _inverse_root(rest)
    out[..., first:, :first] = multiply(-lower, multiply(below, upper))
    return out


def _invert_root(root: FloatArray) -> FloatArray:
    """Invert lower triangular matrices by halves, in a third of the time of full ones."""
    if root.shape[-1] <= 24:
        return np.asarray(np.linalg.inv(root), np.float64)
    half = root.shape[-1] // 2
    out = np.zeros_like(root)
    upper = out[..., :half, :half] = _invert_root(root[..., :half, :half])
    lower = out[..., half:, half:] = _invert_root(root[..., half:, half:])
    out[..., half:, :half] = -lower @ (root[..., half:, :half] @ upper)
    return out
