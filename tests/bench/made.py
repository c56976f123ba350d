"""Streams that are made: teachers that change, scales that grow, labels that are wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from tests.bench.data import FloatArray

Teacher = Callable[[FloatArray], FloatArray]


class Stream(NamedTuple):
    """Rows in order; `clean` is the target before outliers were added."""

    x: FloatArray
    y: FloatArray
    clean: FloatArray


def teacher(generator: np.random.Generator, inputs: int = 5, units: int = 10) -> Teacher:
    """A random tanh network with outputs of mean 0 and standard deviation 1."""
    w = generator.standard_normal((units, inputs)) * 1.5 / np.sqrt(inputs)
    b = 0.5 * generator.standard_normal(units)
    v = generator.standard_normal(units)

    def raw(x: FloatArray) -> FloatArray:
        return np.asarray(np.tanh(x @ w.T + b) @ v)

    sample = raw(generator.standard_normal((4000, inputs)))
    mean, sd = float(np.mean(sample)), float(np.std(sample))
    return lambda x: (raw(x) - mean) / sd


DRIFTS = (
    "quiet",
    "two abrupt changes",
    "an input turns its sign",
    "the target jumps",
    "slow blend",
    "outliers",
    "outliers and two changes",
    "six outliers in a row",
    "heavy tails",
)


def drifting(kind: str, seed: int, rows: int = 12_000) -> Stream:
    """Five inputs, noise 0.25; changes at thirds or in the middle."""
    generator = np.random.default_rng([seed, 11])
    x = generator.standard_normal((rows, 5))
    first, second, third = (teacher(generator) for _ in range(3))
    noise = 0.25 * generator.standard_normal(rows)
    wrong = generator.random(rows) < 0.1
    size = generator.choice([-1.0, 1.0], rows) * generator.uniform(5.0, 10.0, rows)
    f = first(x)
    third_part, half = rows // 3, rows // 2
    if "two" in kind:
        f[third_part : 2 * third_part] = second(x[third_part : 2 * third_part])
        f[2 * third_part :] = third(x[2 * third_part :])
    if kind == "an input turns its sign":
        turned = x[half:].copy()
        turned[:, 0] *= -1.0
        f[half:] = first(turned)
    if kind == "the target jumps":
        f[half:] += 2.0
    if kind == "slow blend":
        share = np.linspace(0.0, 1.0, rows)
        f = (1.0 - share) * f + share * second(x)
    if kind == "heavy tails":
        noise = 0.25 / np.sqrt(3.0) * generator.standard_t(3, rows)
    clean = f + noise
    y = clean.copy()
    if kind.startswith("outliers"):
        y += wrong * size
    if kind == "six outliers in a row":
        y[half : half + 6] += 8.0
    return Stream(x, y, clean)


def corrupted(y: FloatArray, seed: int, share: float = 0.1) -> FloatArray:
    """A share of the targets moved by 5 to 10 standard deviations, up or down."""
    generator = np.random.default_rng([seed, 12])
    hit = generator.random(y.shape) < share
    step = generator.choice([-1.0, 1.0], y.shape) * generator.uniform(5.0, 10.0, y.shape)
    return np.asarray(y + hit * step * np.std(y))


GROWING = (
    "one input, steadily",
    "one input, at once",
    "inputs and target, steadily",
    "inputs and target, at once",
    "target, at once",
)


def growing(kind: str, seed: int, rows: int = 6_000) -> Stream:
    """A stream whose scale grows a thousandfold; the function stays what it is."""
    generator = np.random.default_rng([seed, 13])
    u = generator.standard_normal((rows, 5))
    step = np.arange(rows) / rows
    factor = 1000.0**step if "steadily" in kind else np.where(step < 0.25, 1.0, 1000.0)
    noise = 0.1 * generator.standard_normal(rows)
    f = teacher(generator)
    if kind.startswith("one input"):
        x = u.copy()
        x[:, 0] *= factor
        scaled = x.copy()
        scaled[:, 0] /= 500.0
        y = f(scaled) + noise
    elif kind.startswith("target"):
        x = np.hstack([u, np.log10(factor)[:, None]])
        y = factor * (f(u) + noise)
    else:
        # Piecewise linear without a bias: the same function at every scale.
        w = generator.standard_normal((6, 5)) / np.sqrt(5.0)
        v = generator.standard_normal(6)
        x = u * factor[:, None]
        y = np.maximum(x @ w.T, 0.0) @ v + factor * noise
    return Stream(x, y, y)


def clumps(
    generator: np.random.Generator, rows: int, classes: int, centers: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Classes of overlapping Gaussian clumps; centers (classes, clumps, inputs)."""
    label = generator.integers(classes, size=rows)
    which = generator.integers(centers.shape[1], size=rows)
    x = centers[label, which] + 0.7 * generator.standard_normal((rows, centers.shape[2]))
    return x, label.astype(np.float64)
