"""Small networks and streams for the tests of the numerical core, and how to compare beliefs."""

from __future__ import annotations

from itertools import combinations, product
from typing import Any, NamedTuple

import numpy as np

from kbnn import Config, State
from kbnn.array_types import FloatArray
from kbnn.core.layout import layout_of
from kbnn.core.reference import Records
from kbnn.core.state import ARRAYS, init

COMPARED = [name for name in ARRAYS if name not in ("prior_var", "counts")]


class Stream(NamedTuple):
    """Rows as the engines take them."""

    x: FloatArray
    y: FloatArray
    x_var: FloatArray
    weight: FloatArray

    def part(self, rows: slice) -> Stream:
        return Stream(*(array[rows] for array in self))


def stream(
    config: Config, rows: int, seed: int = 0, missing: float = 0.0, noisy: float = 0.0
) -> Stream:
    """A smooth function of the inputs with noise; labels to suit the observation model."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((rows, config.inputs))
    signal = np.tanh(x @ rng.standard_normal((config.inputs, config.outputs)))
    if config.observation == "gaussian":
        y = signal + 0.2 * rng.standard_normal(signal.shape)
    elif config.observation == "count":
        rate = np.exp(1.0 + signal) * rng.gamma(2.0, 0.5, size=signal.shape)
        y = rng.poisson(rate).astype(np.float64)
    elif config.observation == "amount":
        much, whether = np.split(signal + 0.2 * rng.standard_normal(signal.shape), 2, axis=1)
        y = np.where(whether > 0.0, much, -np.inf)
    elif config.observation == "categorical":
        best = np.argmax(signal + 0.5 * rng.gumbel(size=signal.shape), axis=1)
        y = best[:, None].astype(np.float64)
    else:
        y = (signal[:, :1] + 0.5 * rng.standard_normal((rows, 1)) > 0.0).astype(np.float64)
    x_var = np.where(rng.random(x.shape) < noisy, 0.3, 0.0)
    x = x + np.sqrt(x_var) * rng.standard_normal(x.shape)
    x[rng.random(x.shape) < missing] = np.nan
    return Stream(x, y, x_var, np.ones(rows))


def plain(inputs: int, **options: Any) -> Config:
    """A configuration with every convenience off."""
    return Config(inputs=inputs, **{"robust": False, "drift": False, "noise_head": False} | options)


def spread_state(config: Config, seed: int, scale: float = 1.0) -> State:
    """A belief with correlated blocks, as if rows had been learned."""
    state = init(config, seed)
    rng = np.random.default_rng(seed)
    blocks = []
    for order in layout_of(config).block_positions:
        root = rng.standard_normal((len(order), len(order))) / np.sqrt(len(order))
        blocks.append(scale * (root @ root.T + 0.1 * np.eye(len(order))))
    return state._replace(cov=layout_of(config).pack_blocks(blocks))


def distance(a: State, b: State) -> float:
    """The largest difference of two beliefs, each array in units of its largest entry."""
    worst = 0.0
    for name in COMPARED:
        one, other = getattr(a, name), getattr(b, name)
        size = np.max(np.abs(other), initial=1e-300)
        worst = max(worst, float(np.max(np.abs(one - other), initial=0.0) / size))
    return worst


def record_distance(a: Records, b: Records) -> float:
    """The same for what was predicted."""
    return max(
        float(np.max(np.abs(one - other), initial=0.0) / np.max(np.abs(other), initial=1e-300))
        for one, other in zip(a, b, strict=True)
    )


def identical(a: State, b: State) -> bool:
    """Bit for bit."""
    return all(np.array_equal(getattr(a, name), getattr(b, name)) for name in ARRAYS)


def pairwise(factors: dict[str, list[Any]]) -> list[dict[str, Any]]:
    """Rows of levels in which every pair of levels of two factors occurs, greedily few."""
    names = list(factors)
    open_pairs = {
        ((a, x), (b, y))
        for a, b in combinations(range(len(names)), 2)
        for x, y in product(range(len(factors[names[a]])), range(len(factors[names[b]])))
    }
    rng = np.random.default_rng(0)
    rows = []
    while open_pairs:
        first = min(open_pairs)
        best: tuple[int, list[int]] = (-1, [])
        for _ in range(60):
            row = [int(rng.integers(len(factors[name]))) for name in names]
            for factor, level in first:
                row[factor] = level
            covered = sum(pair in open_pairs for pair in combinations(enumerate(row), 2))
            best = max(best, (covered, row))
        open_pairs -= set(combinations(enumerate(best[1]), 2))
        rows.append(
            {name: factors[name][level] for name, level in zip(names, best[1], strict=True)}
        )
    return rows
