"""The state of a network: everything the next row needs."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from kbnn.array_types import FloatArray, IntArray
from kbnn.core.config import Config
from kbnn.core.layout import diagonal_positions, layout_of

PRIORS: dict[str, Callable[[int, int], float]] = {
    "fan-in": lambda inputs, units: 1.0 / inputs,
    "he": lambda inputs, units: 2.0 / inputs,
    "glorot": lambda inputs, units: 2.0 / (inputs + units),
}
"""Prior variance of a layer's weights, given its inputs (with the bias) and its units."""

HEAD_BIAS_VAR = 0.01
"""Prior variance of the log-variance head's bias; the level is learned by the noise state."""


class Counts(NamedTuple):
    """Positions in `State.counts`."""

    rows: int = 0
    rejected: int = 1
    repairs: int = 2
    clipped: int = 3
    alarms: int = 4
    distinct: int = 5  # rows of the first pass
    rehearsed: int = 6  # replayed rows, see kbnn.model.replay
    moved: int = 7  # rows replayed for the means alone
    bounded: int = 8  # units whose variance the paper's smoother would have made negative
    raised: int = 9  # sigmoid variances of the paper's formula that were too low to be variances


COUNT = Counts()


class State(NamedTuple):
    """Gaussian state of all weights, the noise and the inputs.

    mean, cov
        weights, see `kbnn.core.layout`
    prior_mean, prior_var
        reference point of the information, and its variances (diagonal)
    noise
        (outputs, 2): shape and scale of the inverse-gamma noise, or for counts the two sums of the
        dispersion
    head_mean, head_cov
        (outputs, units + 1) and its packed triangles: log-variance head
    input_mean, input_cov
        running Gaussian of the inputs (packed triangle)
    surprise
        evidence of the drift detector
    counts
        see `Counts`
    view
        (inputs, 2 + directions): units and directions of a wide network's inputs, see
        kbnn.core.input_moments; empty for others
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
    view: FloatArray


ARRAYS: tuple[str, ...] = State._fields[2:]
"""The arrays of a state; the kernel takes them in this order."""
WEIGHT_ARRAYS: tuple[str, ...] = ARRAYS[:4]
"""The arrays of all weights, ordered by their layout; others grow at their ends."""


@lru_cache(maxsize=4)  # networks are restarted a few times during the first rows
def _draw_weights(
    config: Config, seed: int, mean_scale: float, sd_scale: float, prior_variance: str | float
) -> tuple[FloatArray, FloatArray]:
    """Draw means and variances of all weights before the first row."""
    layout = layout_of(config)
    mean = np.empty(config.weights)
    prior_var = np.empty(config.weights)
    for layer, draws in enumerate(prior_draws(config.widths, seed)):
        scale = 1.0 / draws.shape[1]
        wide = config.kind.prior_scale if layer == len(config.hidden) else 1.0
        if isinstance(prior_variance, str):
            var = PRIORS[prior_variance](draws.shape[1], draws.shape[0]) * wide
        else:
            var = prior_variance
        layout.weight_matrix(prior_var, layer)[:] = sd_scale**2 * var
        layout.weight_matrix(mean, layer)[:] = mean_scale * np.sqrt(scale) * draws
    return mean, prior_var


def init(
    config: Config,
    seed: int = 0,
    *,
    mean_scale: float = 1.0,
    sd_scale: float = 1.0,
    prior_variance: str | float = "fan-in",
    directions: FloatArray | None = None,
    output_mean: FloatArray | None = None,
    input_gain: FloatArray | None = None,
) -> State:
    """Make the state before the first row: weight means N(0, 1/fan_in), variances 1/fan_in.

    The bias is drawn too: it breaks the symmetry of the units. The scales stretch the prior's means
    and standard deviations. Another prior variance, by a rule of PRIORS or one number for all
    weights, does not change the means. A wide network needs its `directions`; `output_mean` is
    added to the outputs' biases. `input_gain` (inputs,) stretches means and standard deviations of
    the weights of single inputs; a wide network's inputs get these units instead.
    """
    layout = layout_of(config)
    mean, prior_var = map(
        np.copy, _draw_weights(config, seed, mean_scale, sd_scale, prior_variance)
    )
    if output_mean is not None:
        layout.weight_matrix(mean, len(config.hidden))[:, 0] += output_mean
    view = _initial_view(config, directions)
    if input_gain is not None and config.directions:
        view[:, 0] = input_gain
    elif input_gain is not None:
        layout.weight_matrix(mean, 0)[:, 1:] *= input_gain
        layout.weight_matrix(prior_var, 0)[:, 1:] *= input_gain**2
    noise, head_mean, head_cov, input_cov = map(np.copy, _noise_and_inputs(config))
    return State(
        config=config,
        seed=seed,
        mean=mean,
        cov=_diagonal_covariance(prior_var, layout.variance_positions, layout.size),
        prior_mean=mean.copy(),
        prior_var=prior_var,
        noise=noise,
        head_mean=head_mean,
        head_cov=head_cov,
        input_mean=np.zeros(config.inputs),
        input_cov=input_cov,
        surprise=np.zeros(1),
        counts=np.zeros(len(COUNT), dtype=np.int64),
        view=view,
    )


@lru_cache(maxsize=4)
def _noise_and_inputs(config: Config) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Return noise, its head and the inputs' covariance before the first row."""
    heads = config.labels if config.has_head else 0
    width = head_width(config)
    head_prior = np.full(width, 1.0 / width)
    head_prior[0] = HEAD_BIAS_VAR
    noises = config.labels if config.learns_noise else 0
    return (
        np.tile(np.asarray(config.kind.initial_noise), (noises, 1)),
        np.zeros((heads, width)),
        np.tile(_diagonal_triangle(head_prior), (heads, 1)),
        _initial_input_cov(config),
    )


def _initial_input_cov(config: Config) -> FloatArray:
    """Return the inputs' covariance before the first row: of directions, and of each residual."""
    if not config.directions:
        return _diagonal_triangle(np.ones(config.inputs))
    return np.concatenate([_diagonal_triangle(np.ones(config.directions)), np.ones(config.inputs)])


def _initial_view(config: Config, directions: FloatArray | None) -> FloatArray:
    """Return inputs unchanged, gain 1 and shift 0, and their directions."""
    if not config.directions:
        return np.zeros((0, 0))
    view = np.zeros((config.inputs, 2 + config.directions))
    view[:, 0] = 1.0
    if directions is not None:
        view[:, 2 : 2 + directions.shape[1]] = directions[:, : config.directions]
    return view


def _diagonal_covariance(var: FloatArray, places: IntArray, size: int) -> FloatArray:
    """Return the covariance vector of independent weights."""
    cov = np.zeros(size)
    cov[places] = var
    return cov


def _diagonal_triangle(var: FloatArray) -> FloatArray:
    """Return the packed triangle of a diagonal matrix."""
    return _diagonal_covariance(var, diagonal_positions(len(var)), len(var) * (len(var) + 1) // 2)


@lru_cache(maxsize=16)
def prior_draws(widths: tuple[int, ...], seed: int) -> tuple[FloatArray, ...]:
    """Return the draws of all layers, (units, inputs + 1) each; cached by shape and seed."""
    return tuple(
        np.stack([_draw_column(seed, layer, column, units) for column in range(inputs + 1)], axis=1)
        for layer, (inputs, units) in enumerate(itertools.pairwise(widths))
    )


@lru_cache(maxsize=2048)
def _draw_column(seed: int, layer: int, column: int, units: int) -> FloatArray:
    """Draw standard normal numbers for one input column of a layer.

    Each column has a generator of its own and draws unit after unit, so a network that grows by an
    input or an output gets the numbers it would have had from the start.
    """
    generator = np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, layer, column])))
    return generator.standard_normal(units)


def head_width(config: Config) -> int:
    """Return the inputs of the log-variance head: a bias and the last hidden layer (or inputs)."""
    return config.widths[-2] + 1
