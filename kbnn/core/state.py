"""The belief: everything the next row needs, and nothing else."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kbnn.core.config import Config
from kbnn.core.layout import IntArray, layout_of
from kbnn.core.normal import FloatArray

NOISE_START = (1.0, 0.03)
"""Shape and scale of the inverse-gamma belief about the noise variance before the first row."""

HEAD_BIAS_VAR = 0.01
"""Prior variance of the log-variance head's bias: the discounted scale carries the level."""


class Counts(NamedTuple):
    """Positions in `State.counts`."""

    rows: int = 0
    rejected: int = 1
    repairs: int = 2
    clipped: int = 3
    alarms: int = 4
    distinct: int = 5


COUNT = Counts()


class State(NamedTuple):
    """Gaussian beliefs about all weights, the noise and the inputs.

    mean, cov          weights, see `kbnn.core.layout`
    prior_mean         where information is counted from; prior_var its variances (diagonal)
    noise              (outputs, 2): shape and scale of the inverse-gamma noise belief
    head_mean, head_cov  (outputs, units + 1) and its packed triangles: log-variance head
    input_mean, input_cov  the running Gaussian of the inputs (triangle packed) and its row count
    surprise           the drift detector's evidence
    counts             see `Counts`
    """

    config: Config
    seed: int
    mean: FloatArray
    cov: FloatArray
    prior_mean: FloatArray
    prior_var: FloatArray
    noise: FloatArray
    head_mean: FloatArray
    head_cov: FloatArray
    input_mean: FloatArray
    input_cov: FloatArray
    surprise: FloatArray
    counts: IntArray


ARRAYS: tuple[str, ...] = State._fields[2:]
"""The arrays of a belief; the kernel takes them in this order."""


def init(config: Config, seed: int = 0, *, mean_scale: float = 1.0, sd_scale: float = 1.0) -> State:
    """The belief before the first row: weight means N(0, 1/fan_in), variances 1/fan_in.

    The bias is drawn too: it breaks the symmetry of the units. The scales stretch the prior's
    means and standard deviations.
    """
    layout = layout_of(config)
    mean = np.empty(config.weights)
    prior_var = np.empty(config.weights)
    for layer, (inputs, units) in enumerate(
        zip(config.widths[:-1], config.widths[1:], strict=True)
    ):
        scale = 1.0 / (inputs + 1)
        wide = config.kind.prior_scale if layer == len(config.hidden) else 1.0
        layout.matrix(prior_var, layer)[:] = sd_scale**2 * scale * wide
        for column in range(inputs + 1):
            layout.matrix(mean, layer)[:, column] = (
                mean_scale * np.sqrt(scale) * prior_draws(seed, layer, column, units)
            )
    dense = [np.diag(prior_var[order]) for order in layout.order]
    heads = config.outputs if config.has_head else 0
    width = head_width(config)
    head_prior = np.full(width, 1.0 / width)
    head_prior[0] = HEAD_BIAS_VAR
    upper = np.triu_indices(width)
    return State(
        config=config,
        seed=seed,
        mean=mean,
        cov=layout.pack(dense),
        prior_mean=mean.copy(),
        prior_var=prior_var,
        noise=np.tile(np.asarray(NOISE_START), (config.outputs if config.learns_noise else 0, 1)),
        head_mean=np.zeros((heads, width)),
        head_cov=np.tile(np.diag(head_prior)[upper], (heads, 1)),
        input_mean=np.zeros(config.inputs),
        input_cov=np.eye(config.inputs)[np.triu_indices(config.inputs)],
        surprise=np.zeros(1),
        counts=np.zeros(len(COUNT), dtype=np.int64),
    )


def prior_draws(seed: int, layer: int, column: int, units: int) -> FloatArray:
    """Standard normal draws for one input column of a layer.

    Each column has a generator of its own and draws unit after unit, so a network that grows by an
    input or an output gets the numbers it would have had from the start.
    """
    generator = np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, layer, column])))
    return generator.standard_normal(units)


def head_width(config: Config) -> int:
    """Inputs of the log-variance head: a bias and the last hidden layer (or the inputs)."""
    return config.widths[-2] + 1
