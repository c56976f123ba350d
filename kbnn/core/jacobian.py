"""Derivatives of the outputs with respect to weights and inputs, for many rows.

`compute_slopes` does for one output and many rows what kbnn.core.block_filter does for one row: H =
dE[y]/dw and J = dE[y]/dx, with every var_a held fixed, and the variance that is new in each row:
noise and uncertain inputs. Successive forecast steps share the weights, so their epistemic error is
common: for a sum of derivatives D its variance is kappa D P D'.

`compute_sensitivity` averages the expected Jacobian over a sample of rows. For one row dE[y]/dx_i =
sum_n c_n w_ni, c_n the expected derivative of the output with respect to first-layer unit n; its
variance is that of the first layer's weights, sum_n c_n^2 C_n,ii.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kbnn.array_types import FloatArray, IntArray
from kbnn.core import block_filter, input_moments, reference
from kbnn.core.belief import Belief, open_belief
from kbnn.core.constants import SMALLEST_VAR
from kbnn.core.input_moments import InputMoments
from kbnn.core.state import State


class OutputSlopes(NamedTuple):
    """Output and derivatives of n rows."""

    mean: FloatArray  # (n,)
    weights: FloatArray  # (n, weights) H
    inputs: FloatArray  # (n, inputs) J, 0 where an input is beyond its limit
    new_var: FloatArray  # (n,) noise, and variance due to uncertain inputs


def compute_slopes(belief: Belief, x: FloatArray) -> OutputSlopes:
    """Compute the single output and its derivatives at standardised rows x; NaN is missing."""
    known = [reference.condition_row(belief, row, np.zeros_like(row)) for row in x]
    z = _prepend_column(np.stack([row.mean for row in known]), 1.0)
    vz = _prepend_column(np.stack([row.var for row in known]), 0.0)
    input_var, activations = vz[:, 1:], belief.config.activations
    layers, expected = [z], []
    for layer in range(belief.layout.layers - 1):
        weights = belief.layer_weights(layer)
        mu_a = z @ weights.T
        var_a = _own_var(belief, layer, z) + vz @ (weights**2).T
        if layer == 0:
            var_a += vz @ belief.own_diagonal(layer).T
        var_a = np.maximum(var_a, SMALLEST_VAR)
        seen_var = np.maximum(belief.config.activation_spread * var_a, SMALLEST_VAR)
        out = activations[layer].moments(mu_a, seen_var)
        slope = out.cov / seen_var
        z = _prepend_column(out.mean, 1.0)
        vz = _prepend_column(slope * slope * var_a, 0.0)
        layers.append(z)
        expected.append(slope)
    chain = [np.ones((len(x), 1))]
    for layer in range(belief.layout.layers - 1, 0, -1):
        chain.insert(0, chain[0] @ belief.layer_weights(layer)[:, 1:] * expected[layer - 1])
    parts = [
        np.einsum("nm,ni->nmi", c, a).reshape(len(x), -1)
        for c, a in zip(chain, layers, strict=True)
    ]
    jacobian = chain[0] @ belief.layer_weights(0)[:, 1:]
    own = chain[0] ** 2 @ belief.own_diagonal(0)[:, 1:]
    unknown = np.sum((jacobian**2 + own) * input_var, axis=1)
    noise = np.array([reference.noise_var(belief, row) for row in layers[-1]])
    inside = np.abs(np.nan_to_num(x)) <= belief.config.input_limit
    return OutputSlopes(
        layers[-1] @ belief.layer_weights(belief.layout.layers - 1)[0],
        np.concatenate(parts, axis=1),
        np.where(inside, chain[0] @ input_weights(belief)[0], 0.0),
        noise + unknown,
    )


def function_var(belief: Belief, d: FloatArray) -> FloatArray:
    """Return kappa D P D' of derivatives (n, weights)."""
    total = np.zeros(len(d))
    for stack in belief.stacks:
        blocks = d[:, stack.positions]
        gain = np.einsum("kde,nke->nkd", stack.cov, blocks, optimize=True)
        total += np.einsum("nkd,nkd->n", blocks, gain)
    return np.asarray(belief.variance_inflation * np.maximum(total, 0.0))


def _prepend_column(values: FloatArray, first: float) -> FloatArray:
    return np.concatenate((np.full((len(values), 1), first), values), axis=1)


def _own_var(belief: Belief, layer: int, z: FloatArray) -> FloatArray:
    """Return z' C z of every unit (n, units), C the unit's own part of the covariance."""
    out = np.zeros((len(z), len(belief.layer_weights(layer))))
    for unit, first, cov in belief.own[layer]:
        part = z[:, first : first + len(cov)]
        out[:, unit] += np.einsum("ni,ni->n", part @ cov, part)
    if layer == 0 and belief.loose.size:
        out += z[:, belief.layout.joint :] ** 2 @ belief.loose.T
    return out


class Sensitivity(NamedTuple):
    """Mean slope, its sd and its root mean square, per quantity and input.

    The quantities are the outputs, or functions of them.
    """

    slope: FloatArray  # (quantities, inputs) average over the sample
    sd: FloatArray  # (quantities, inputs) sd of that average, from the weight covariance
    size: FloatArray  # (quantities, inputs) root mean square over the sample


def compute_sensitivity(
    state: State,
    x: FloatArray,
    gain: FloatArray | None = None,
    components: tuple[FloatArray, IntArray] | None = None,
) -> Sensitivity:
    """Average the expected Jacobian over standardised rows x, missing values at their mean.

    `gain` (n, quantities, outputs) holds the derivatives of the quantities with respect to the
    outputs at each row; without it the quantities are the outputs. `components` describes the first
    inputs if these are functions of the others: their derivatives (n, B), and of which input (B,).
    """
    belief = open_belief(state)
    if gain is None:
        gain = np.tile(np.eye(state.config.outputs), (len(x), 1, 1))
    if components is None:
        components = np.zeros((len(x), 0)), np.zeros(0, np.int64)
    slopes, at = components
    shape = (gain.shape[1], state.config.inputs - len(at))
    total, square, var = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    limit = state.config.input_limit
    weights, own = input_weights(belief)
    clipped = np.clip(np.nan_to_num(x), -limit, limit)
    for row, outer, slope in zip(clipped, gain, slopes, strict=True):
        fw = block_filter.run_forward(belief, _network_inputs(belief, row))
        c = outer @ block_filter.backpropagate_slopes(belief, fw)[0]
        jacobian = _add_components(c @ weights, slope, at)
        total += jacobian
        square += jacobian**2
        var += _add_components(c**2 @ own, slope**2, at)
    n = max(1, len(x))
    return Sensitivity(total / n, np.sqrt(var / n), np.sqrt(square / n))


def _add_components(found: FloatArray, slope: FloatArray, at: IntArray) -> FloatArray:
    """Add what the first inputs contribute to the inputs that they are functions of."""
    whole = found[:, len(at) :].copy()
    for k, column in enumerate(at.tolist()):
        whole[:, column] += found[:, k] * slope[k]
    return whole


def _network_inputs(belief: Belief, row: FloatArray) -> InputMoments | input_moments.WideInputs:
    if not belief.config.directions:
        return InputMoments(row, None)
    return input_moments.condition_wide_inputs(
        belief.view, belief.input_mean, belief.input_cov, row, np.zeros_like(row)
    )


def input_weights(belief: Belief) -> tuple[FloatArray, FloatArray]:
    """Return first-layer weights (units, inputs) of the inputs themselves, and their variances.

    A wide network's pre-activation is w_s' V' x + w_r' (x - V V' x), x in units of its own.
    """
    weights, var = belief.layer_weights(0)[:, 1:], belief.own_diagonal(0)[:, 1:]
    if not belief.config.directions:
        return weights, var
    k, gain, v = belief.config.directions, belief.view[:, 0], belief.view[:, 2:]
    of_s, of_r = weights[:, :k], weights[:, k:]
    seen = of_r + (of_s - of_r @ v) @ v.T
    return seen * gain, (var[:, k:] + var[:, :k] @ (v**2).T) * gain**2
