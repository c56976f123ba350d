"""What the experiments ask of a learner, the paper's own among them, and how answers are judged.

Answers are in the user's units. Two ways of running it are compared throughout:

paper    the paper's algorithm with nothing learned but the weights: one Gaussian per neuron,
         layer-wise smoothing, fixed noise. The paper states neither a prior nor a noise; ours are
         weight means N(0, 1/fan_in), variances 1/fan_in, and a variance of 0.01 on every layer. The
         rows it is going to learn give the scale.
default  what `kbnn train` does when nothing but the layers is asked for, the same on every data
         set: rows in their order, the scale learned on the way (samples.paper.learners).
"""

from collections.abc import Iterator
from typing import Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

import kbnn
from kbnn.core import activations

FloatArray = NDArray[np.float64]
Mode = Literal["paper", "default"]
MODES: tuple[Mode, ...] = ("paper", "default")
MODE_NAMES = {"paper": "paper mode", "default": "kbnn"}

PAPER_NOISE = 0.01
Z90 = 1.6448536269514722  # the central 90 % of a normal lie within this many standard deviations


class Scale(NamedTuple):
    """Means and standard deviations of the training rows."""

    x_mean: FloatArray
    x_sd: FloatArray
    y_mean: FloatArray
    y_sd: FloatArray


class Answer(NamedTuple):
    """Mean and both parts of the variance in the user's units; for classes before the sigmoid."""

    mean: FloatArray
    function_var: FloatArray
    noise_var: FloatArray
    probability: FloatArray | None = None  # of class 1, where the learner states it itself

    @property
    def var(self) -> FloatArray:
        """The variance of a new observation."""
        return self.function_var + self.noise_var


class Learner(Protocol):
    """Something that learns rows in order and answers."""

    def learn(self, x: FloatArray, y: FloatArray, again: bool = False) -> None:
        """Learn the rows in order; `again`: they were learned before, in an earlier pass."""

    def ask(self, x: FloatArray) -> Answer:
        """What is said about rows, without learning from them."""


class Printed:
    """The paper's algorithm, in a scale known beforehand; it knows no passes: every row is new."""

    def __init__(self, state: kbnn.State, scale: Scale) -> None:
        self.state, self.scale = state, scale

    def learn(self, x: FloatArray, y: FloatArray, again: bool = False) -> None:
        """Learn the rows in order."""
        scale = self.scale
        z, target = (x - scale.x_mean) / scale.x_sd, (y - scale.y_mean) / scale.y_sd
        self.state, _ = kbnn.learn(self.state, z, target)

    def ask(self, x: FloatArray) -> Answer:
        """What the network says about rows."""
        scale = self.scale
        said = kbnn.predict(self.state, (x - scale.x_mean) / scale.x_sd)
        return Answer(
            scale.y_mean + scale.y_sd * said.mean,
            scale.y_sd**2 * said.function_var,
            scale.y_sd**2 * said.noise_var,
        )


def printed(
    hidden: tuple[int, ...],
    x: FloatArray,
    y: FloatArray,
    seed: int,
    classes: bool = False,
    noise: float = PAPER_NOISE,
    hidden_noise: float = PAPER_NOISE,
    sd_scale: float = 1.0,
) -> Printed:
    """The paper's network that has learned nothing yet, scaled by the rows it is going to learn."""
    config = kbnn.Config(
        inputs=x.shape[1],
        outputs=y.shape[1],
        hidden=hidden,
        covariance="paper",
        observation="sigmoid" if classes else "gaussian",
        noise=noise,
        hidden_noise=hidden_noise,
        noise_head=False,
        robust=False,
        drift=False,
    )
    one = np.ones(y.shape[1])
    y_mean, y_sd = (0.0 * one, one) if classes else (y.mean(axis=0), _spread(y))
    scale = Scale(x.mean(axis=0), _spread(x), y_mean, y_sd)
    return Printed(kbnn.init(config, seed, sd_scale=sd_scale), scale)


def passes(learner: Learner, x: FloatArray, y: FloatArray, epochs: int) -> Iterator[Learner]:
    """The learner after each pass, all in the order given."""
    for epoch in range(epochs):
        learner.learn(x, y, again=epoch > 0)
        yield learner


def after_sigmoid(answer: Answer) -> tuple[FloatArray, FloatArray]:
    """Mean and variance of the class probability sigmoid(a), a ~ N(mean, function_var)."""
    z = activations.ACTIVATIONS["sigmoid"].moments(answer.mean, answer.function_var)
    return z.mean if answer.probability is None else answer.probability, z.var


def rmse(answer: Answer, y: FloatArray) -> float:
    """Root mean squared error."""
    return float(np.sqrt(np.mean((y - answer.mean) ** 2)))


def nll(mean: FloatArray, var: FloatArray, y: FloatArray) -> float:
    """The paper's NLL: the mean of -log N(y | mean, var)."""
    return float(np.mean(0.5 * (np.log(2.0 * np.pi * var) + (y - mean) ** 2 / var)))


def coverage(answer: Answer, y: FloatArray) -> float:
    """Percentage of rows inside the central 90 % interval."""
    return float(100.0 * np.mean(np.abs(y - answer.mean) <= Z90 * np.sqrt(answer.var)))


def log_loss(probability: FloatArray, label: FloatArray) -> float:
    """Mean of -log of the probability given to the class that was right."""
    right = np.where(label > 0.5, probability, 1.0 - probability)
    return float(-np.mean(np.log(np.maximum(right, 1e-15))))


def accuracy(probability: FloatArray, label: FloatArray) -> float:
    """Percentage of rows put into the right class."""
    return float(100.0 * np.mean((probability > 0.5) == (label > 0.5)))


def _spread(values: FloatArray) -> FloatArray:
    """Standard deviation of each column, 1 for a column that does not vary."""
    sd: FloatArray = values.std(axis=0)
    return np.where(sd > 0.0, sd, 1.0)
