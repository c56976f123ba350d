"""Configuration of a network: its shape, its covariance structure and its observation model."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, get_args

from kbnn.core import activations
from kbnn.core import likelihoods as kinds
from kbnn.core.constants import LEAST_NOISE_RATIO, VARIANCE_FLOOR

Covariance = Literal["paper", "neuron", "group", "full", "wide"]
COVARIANCES = get_args(Covariance)

INPUT_LIMIT = 8.0
"""Standard deviations at which an input is clipped."""

DIRECTIONS = 16
"""Leading directions of the inputs of a wide network."""

NO_LIMIT = 1e20
"""An input limit that clips nothing: larger values cannot be measurements in any units."""

MAX_NOISE_VARIANCE = 1e60
"""Largest given noise variance, in standardised units."""

MAX_WEIGHTS = 1 << 26
MAX_COVARIANCE = 1 << 31


@dataclass(frozen=True)
class Config:
    """Configuration of a network; every number is in standardised units.

    directions
        with covariance "wide": the number of leading directions of the inputs that the network sees
        beside the residual inputs (kbnn.core.input_moments), 16 by default; otherwise 0
    group_size
        hidden units per group; None is ten, or fewer where their weights would exceed 192
    activation
        a name, or one per hidden layer separated by commas
    observation
        gaussian     a real target with Gaussian noise
        bernoulli    one output, labels 0 and 1, probit link
        categorical  one output per class, the label is the index of the class
        count        a count, one output each, whose rate is an exponential
        amount       0 or a positive amount, two outputs each: all amounts, then all presences
        sigmoid      as in the paper: a Gaussian label 0 or 1 on a sigmoid output
    noise
        the variance of a Gaussian observation; None learns it from the stream, 0 as in the paper
    noise_head
        let the learned noise depend on the input
    activation_spread
        the share of a pre-activation's variance that the activation sees in the block filter:
        1 averages f over all of it, 0 evaluates f at the mean. A quarter learned fastest on every
        data set tried; covariance "paper" always uses 1
    hidden_noise
        variance added to every hidden unit's output (covariance "paper" only)
    printed_variance
        use the paper's variance of sigmoid and tanh, also of a sigmoid output, instead of the exact
        one (covariance "paper" only)
    robust, drift
        down-weight outliers; detect changes of the stream
    repeats
        rows learned repeatedly are counted as new information each time, although they add none:
        the function's variance is multiplied by passes to this power, and by 1 + replayed rows per
        row to the same power, at most a half. The more weights share a block, the more information
        is counted twice
    input_limit
        standardised inputs are clipped to plus or minus this; NO_LIMIT clips none
    """

    inputs: int
    outputs: int = 1
    hidden: tuple[int, ...] = (50,)
    activation: str = "relu"
    covariance: Covariance = "group"
    group_size: int | None = None
    directions: int = 0
    observation: str = "gaussian"
    noise: float | None = None
    noise_head: bool = True
    activation_spread: float = 0.25
    hidden_noise: float = 0.0
    printed_variance: bool = False
    robust: bool = True
    drift: bool = True
    input_limit: float = INPUT_LIMIT
    repeats: float = 0.5

    def __post_init__(self) -> None:
        object.__setattr__(self, "hidden", tuple(int(width) for width in self.hidden))
        if self.covariance == "wide" and not self.directions:
            object.__setattr__(self, "directions", DIRECTIONS)
        group = () if self.group_size is None else (self.group_size,)
        for size in (self.outputs, *group, *self.hidden):
            _require(size >= 1, f"sizes must be at least 1, got {size}")
        _require(self.inputs >= 0, f"inputs must not be negative, got {self.inputs}")
        _require(self.weights <= MAX_WEIGHTS, f"{self.weights} weights are more than {MAX_WEIGHTS}")
        _require(self.covariance in COVARIANCES, f"unknown covariance {self.covariance!r}")
        _require(
            self.directions > 0 if self.covariance == "wide" else self.directions == 0,
            f"covariance {self.covariance!r} cannot have {self.directions} directions",
        )
        activations.parse_activations(self.activation, len(self.hidden))
        _require(
            self.kind.supports_many_outputs or self.outputs == 1,
            f"{self.observation} has one output, got {self.outputs}",
        )
        _require(
            not self.kind.has_none or self.outputs % 2 == 0,
            f"{self.observation} has two outputs each, got {self.outputs}",
        )
        _require(
            self.noise is None or 0.0 <= self.noise <= MAX_NOISE_VARIANCE,
            f"noise must be a finite variance >= 0, got {self.noise}",
        )
        _require(
            0.0 <= self.hidden_noise <= MAX_NOISE_VARIANCE,
            f"hidden_noise must be a finite variance >= 0, got {self.hidden_noise}",
        )
        _require(
            0.0 <= self.activation_spread <= 1.0,
            f"activation_spread must lie in [0, 1], got {self.activation_spread}",
        )
        _require(0.0 <= self.repeats <= 4.0, f"repeats must lie in [0, 4], got {self.repeats}")
        _require(self.input_limit > 0, f"input_limit must be positive, got {self.input_limit}")
        paper_only = self.hidden_noise > 0 or self.printed_variance
        _require(
            not paper_only or self.covariance == "paper",
            "hidden_noise and printed_variance belong to covariance 'paper'",
        )

    def resize(self, inputs: int, outputs: int) -> Config:
        """Return the configuration with other numbers of inputs and outputs."""
        _require(
            outputs == self.outputs or self.kind.supports_growth,
            f"only classes can be added, not outputs of a {self.observation} observation",
        )
        return replace(self, inputs=inputs, outputs=outputs)

    @cached_property
    def widths(self) -> tuple[int, ...]:
        """Units per layer, inputs first and outputs last; directions count as inputs."""
        return (self.directions + self.inputs, *self.hidden, self.outputs)

    @cached_property
    def weights(self) -> int:
        """Number of weights, biases included."""
        widths = self.widths
        return sum(m * (n + 1) for n, m in itertools.pairwise(widths))

    @cached_property
    def activations(self) -> tuple[activations.Activation, ...]:
        """Activation of each hidden layer."""
        return activations.parse_activations(self.activation, len(self.hidden))

    @cached_property
    def kind(self) -> kinds.Likelihood:
        """Likelihood of a label."""
        return kinds.find_likelihood(self.observation)

    @cached_property
    def classes(self) -> int:
        """Number of classes whose probabilities are predicted; 0 for a real target."""
        return self.kind.class_count(self.outputs)

    @cached_property
    def labels(self) -> int:
        """Number of values in a row's label."""
        return self.kind.label_count(self.outputs)

    @cached_property
    def learns_noise(self) -> bool:
        """Whether the observation noise is learned from the stream."""
        return self.kind.has_noise and self.noise is None

    @property
    def variance_floor(self) -> float:
        """Least variance of a weight relative to its prior's; 0 for the paper's exact labels."""
        exact = self.covariance == "paper" and self.kind.has_noise and self.noise == 0.0
        return 0.0 if exact else VARIANCE_FLOOR

    @property
    def least_noise(self) -> float:
        """Least noise, as a share of an output's variance."""
        return 0.0 if self.covariance == "paper" else LEAST_NOISE_RATIO

    @cached_property
    def has_head(self) -> bool:
        """Whether the learned noise depends on the input."""
        seen = bool(self.hidden) or not self.directions  # a wide input would make a wide head
        return self.learns_noise and self.noise_head and self.kind.supports_noise_head and seen


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ValueError(message)
