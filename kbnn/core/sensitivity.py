"""How the prediction moves with each input: the expected Jacobian, with error bars.

For one row dE[y]/dx_i = sum_n c_n w_ni, c_n the expected derivative of the output with respect to
first-layer unit n; its variance is that of the first layer's weights, sum_n c_n^2 C_n,ii. Averaged
over a sample of rows.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kbnn.core import filter as block_filter
from kbnn.core import wide
from kbnn.core.belief import Belief, open_belief
from kbnn.core.inputs import InputMoments
from kbnn.core.normal import FloatArray
from kbnn.core.state import State


class Sensitivity(NamedTuple):
    """Per quantity and input: mean slope, its standard deviation, and its size whatever the sign.

    The quantities are the outputs, or functions of them.
    """

    slope: FloatArray  # (quantities, inputs) average over the sample
    sd: FloatArray  # (quantities, inputs) of that average, by the belief about the weights
    size: FloatArray  # (quantities, inputs) root mean square over the sample


def compute_sensitivity(state: State, x: FloatArray, gain: FloatArray | None = None) -> Sensitivity:
    """The expected Jacobian over standardised rows x, missing values at their mean.

    `gain` (n, quantities, outputs) holds the derivatives of the quantities with respect to the
    outputs at each row; without it the quantities are the outputs.
    """
    belief = open_belief(state)
    if gain is None:
        gain = np.tile(np.eye(state.config.outputs), (len(x), 1, 1))
    shape = (gain.shape[1], state.config.inputs)
    total, square, var = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    limit = state.config.input_limit
    weights, own = input_weights(belief)
    for row, outer in zip(np.clip(np.nan_to_num(x), -limit, limit), gain, strict=True):
        fw = block_filter.run_forward(belief, _network_inputs(belief, row))
        c = outer @ block_filter.backpropagate_slopes(belief, fw)[0]
        jacobian = c @ weights
        total += jacobian
        square += jacobian**2
        var += c**2 @ own
    n = max(1, len(x))
    return Sensitivity(total / n, np.sqrt(var / n), np.sqrt(square / n))


def _network_inputs(belief: Belief, row: FloatArray) -> InputMoments | wide.WideInputs:
    if not belief.config.directions:
        return InputMoments(row, None)
    return wide.condition_wide_inputs(
        belief.view, belief.input_mean, belief.input_cov, row, np.zeros_like(row)
    )


def input_weights(belief: Belief) -> tuple[FloatArray, FloatArray]:
    """First-layer weights (units, inputs) of the inputs themselves, and their variances.

    A wide network's pre-activation is w_s' V' x + w_r' (x - V V' x), x in units of its own.
    """
    weights, var = belief.layer_weights(0)[:, 1:], belief.own_diagonal(0)[:, 1:]
    if not belief.config.directions:
        return weights, var
    k, gain, v = belief.config.directions, belief.view[:, 0], belief.view[:, 2:]
    of_s, of_r = weights[:, :k], weights[:, k:]
    seen = of_r + (of_s - of_r @ v) @ v.T
    return seen * gain, (var[:, k:] + var[:, :k] @ (v**2).T) * gain**2
