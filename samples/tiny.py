"""The paper's algorithm on one screen: a Bayesian network that learns a row at a time.

Every weight is Gaussian. Forward, means and variances pass through the layers (Algorithm 1);
backward, the label's news passes from layer to layer as a Kalman smoother (Algorithm 2). No
gradient, no learning rate. A neuron has its own covariance; neurons are independent.

    python -m samples.tiny          learns a cubic from 800 rows and says how well
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

Array = NDArray[np.float64]


class Layer(NamedTuple):
    """M neurons with n inputs each, the bias first."""

    mean: Array  # (M, n + 1)
    cov: Array  # (M, n + 1, n + 1)


def new(sizes: list[int], rng: np.random.Generator) -> list[Layer]:
    """Means N(0, 1/fan_in), variances 1/fan_in."""
    layers = []
    for n, m in pairwise(sizes):
        var = 1.0 / (n + 1)
        mean = rng.normal(0.0, np.sqrt(var), (m, n + 1))
        layers.append(Layer(mean, np.tile(np.eye(n + 1) * var, (m, 1, 1))))
    return layers


def relu(mu: Array, var: Array) -> tuple[Array, Array, Array]:
    """E f(a), Var f(a) and Cov(a, f(a)) of a rectified a ~ N(mu, var)."""
    s = np.sqrt(var)
    u = mu / s
    above = ndtr(u)
    excess = u * above + np.exp(-0.5 * u * u) / np.sqrt(2.0 * np.pi)
    return s * excess, var * (above - excess * (excess - u)), var * above


class Pass(NamedTuple):
    """What the backward pass needs of a layer."""

    gain: Array  # C z of every neuron
    mu_a: Array
    var_a: Array
    cov_az: Array


def forward(layers: list[Layer], x: Array) -> list[Pass]:
    """Algorithm 1; the last pass holds mean and variance of the prediction."""
    z, vz, passes = np.append(1.0, x), np.zeros(len(x) + 1), []
    for layer in layers:
        gain = layer.cov @ z
        mu_a = layer.mean @ z  # eq. mua
        own = np.einsum("mii->mi", layer.cov)
        var_a = gain @ z + (layer.mean**2 + own) @ vz  # eq. sigmaa
        mu_z, var_z, cov_az = relu(mu_a, var_a)  # eqs. muz, varz
        passes.append(Pass(gain, mu_a, var_a, cov_az))
        z, vz = np.append(1.0, mu_z), np.append(0.0, var_z)
    return passes


def learn(layers: list[Layer], passes: list[Pass], y: float, noise: float) -> list[Layer]:
    """Algorithm 2: alpha = D mu_a / var_a and beta = -D var_a / var_a^2, layer by layer."""
    last = passes[-1]
    alpha, beta = (y - last.mu_a) / (last.var_a + noise), 1.0 / (last.var_a + noise)
    learned = []
    for i in range(len(layers) - 1, -1, -1):
        (mean, cov), gain = layers[i], passes[i].gain
        outer = gain[:, :, None] * gain[:, None, :]
        learned.append(  # eqs. muwupdate, cwupdate
            Layer(mean + alpha[:, None] * gain, cov - beta[:, None, None] * outer)
        )
        if i:  # eq. smootheda, with the weights from before their update
            slope, weights = passes[i - 1].cov_az / passes[i - 1].var_a, mean[:, 1:].T
            alpha, beta = slope * (weights @ alpha), slope**2 * (weights**2 @ beta)
    return learned[::-1]


if __name__ == "__main__":
    rng = np.random.default_rng(0)
    xs = rng.uniform(-2.0, 2.0, (800, 1))
    ys = xs[:, 0] ** 3 / 4.0 + 0.1 * rng.standard_normal(800)
    net, misses = new([1, 50, 1], rng), []
    for row, label in zip(xs, ys, strict=True):
        said = forward(net, row)
        misses.append((label - said[-1].mu_a[0]) ** 2)
        net = learn(net, said, label, 0.01)
    print(f"RMSE of rows 1-100: {np.mean(misses[:100]) ** 0.5:.3f}")
    print(f"RMSE of rows 701-800: {np.mean(misses[-100:]) ** 0.5:.3f}; the noise is 0.1")
