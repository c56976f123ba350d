"""The block filter in numpy: the readable reference of the compiled kernel.

One row, with W the weight means and P the block-diagonal weight covariance:

    forward   mu_a = W z,  var_a = z' C z + sum_i w_i^2 vz_i,  z <- E f(a),  F = E f'(a),
              vz <- F^2 var_a, layer by layer; C is the unit's own part of P; the expectations are
              taken over a share of var_a (Config.activation_spread)
    Jacobian  H = dE[y]/dw, back-propagated with F in place of f' and every var_a held fixed
    filter    G = P H', Q = H G; the label becomes b, B in output space (kbnn.core.likelihoods):
              w += G b, P -= (G B)(G B)'

For one real target that is S = Q + r, w += G e/S, P -= G G'/S. The variance of the function is Q
alone: moment-matched terms that the update cannot learn from are left out. For a unit of a second
or later hidden layer var_a uses its own incoming weights and the diagonal of the layer below, for
every covariance structure.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kbnn.array_types import FloatArray
from kbnn.core.belief import Belief
from kbnn.core.constants import SMALLEST_VAR, STEP_LIMIT
from kbnn.core.input_moments import InputMoments, WideInputs
from kbnn.core.likelihoods import OutputMoments


class ForwardPass(NamedTuple):
    """Each layer's inputs [1, z] and each hidden layer's expected slopes."""

    inputs: list[FloatArray]
    slopes: list[FloatArray]


def run_forward(belief: Belief, inputs: InputMoments | WideInputs) -> ForwardPass:
    """Propagate moments layer by layer from the inputs to the last hidden layer."""
    activations = belief.config.activations
    z = np.concatenate([[1.0], inputs.mean])
    vz = np.concatenate([[0.0], inputs.var])
    layer_inputs, slopes = [z], []
    for layer in range(belief.layout.layers - 1):
        weights = belief.layer_weights(layer)
        mu_a = weights @ z
        var_a = belief.own_gain(layer, z) @ z + weights**2 @ vz
        if layer == 0:
            var_a += belief.own_diagonal(layer) @ vz
        var_a = np.maximum(var_a, SMALLEST_VAR)
        seen_var = np.maximum(belief.config.activation_spread * var_a, SMALLEST_VAR)
        out = activations[layer].moments(mu_a, seen_var)
        slope = out.cov / seen_var
        z = np.concatenate([[1.0], out.mean])
        vz = np.concatenate([[0.0], slope * slope * var_a])
        layer_inputs.append(z)
        slopes.append(slope)
    return ForwardPass(layer_inputs, slopes)


def backpropagate_slopes(belief: Belief, fw: ForwardPass) -> list[FloatArray]:
    """Return dE[y]/da (outputs, units) of every layer, back-propagated with expected slopes."""
    chain = [np.eye(belief.config.outputs)]
    for layer in range(belief.layout.layers - 1, 0, -1):
        back = chain[0] @ belief.layer_weights(layer)[:, 1:]
        chain.insert(0, back * fw.slopes[layer - 1])
    return chain


def predict_outputs(
    belief: Belief, inputs: InputMoments | WideInputs
) -> tuple[OutputMoments, list[FloatArray]]:
    """Return the moments of the outputs (mean, Q, input variance), and G = P H' per stack."""
    fw = run_forward(belief, inputs)
    last = belief.layout.layers - 1
    chain = backpropagate_slopes(belief, fw)
    h = np.concatenate(
        [
            np.einsum("om,i->omi", c, z).reshape(len(c), -1)
            for c, z in zip(chain, fw.inputs, strict=True)
        ],
        axis=1,
    )
    q = np.zeros((len(h), len(h)))
    gains = []
    for stack in belief.stacks:
        h_blocks = h[:, stack.positions].transpose(1, 2, 0)
        gain = stack.cov @ h_blocks
        q += np.einsum("kdo,kdp->op", h_blocks, gain)
        gains.append(gain)
    mean = belief.layer_weights(last) @ fw.inputs[last]
    return OutputMoments(mean, q, _input_var(belief, inputs.var, chain[0]), fw.inputs[last]), gains


def _input_var(belief: Belief, var: FloatArray, coefficients: FloatArray) -> FloatArray:
    """Return sum_i v_i ((dE[y]/dx_i)^2 + sum_n c_n^2 C_n,ii): the effect of uncertain inputs."""
    jacobian = coefficients @ belief.layer_weights(0)[:, 1:]
    own = coefficients**2 @ belief.own_diagonal(0)[:, 1:]
    return np.asarray((jacobian**2 + own) @ var)


def update_belief(
    belief: Belief, gains: list[FloatArray], pull: FloatArray, spread: FloatArray
) -> bool:
    """Apply w += G b, P -= (G B)(G B)'; return False, without a change, if a step is too large."""
    moves = [gain @ pull for gain in gains]
    shrinks = [gain @ spread for gain in gains]
    falls = [u * u for u in shrinks]
    if not all(np.all(np.abs(step) <= STEP_LIMIT) for step in (*moves, *falls)):
        return False
    for stack, u, move in zip(belief.stacks, shrinks, moves, strict=True):
        belief.mean[stack.positions] += move
        # The columns of a separate unit are parallel, so one step is enough; joint columns are
        # subtracted one by one, with the variance floor applied after each.
        for columns in [u] if belief.layout.separate else np.split(u, u.shape[2], axis=2):
            belief.shrink_covariance(stack, columns, belief.config.variance_floor)
    return True
