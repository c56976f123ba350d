"""The paper's layer-wise filter and smoother in numpy, following its two algorithms.

Forward (Algorithm 1): mu_a = W m (eq. mua), var_a = m' C m + sum_i v_i (w_i^2 + C_ii) (eq. sigmaa),
activation moments (eqs. muz, varz). Backward (Algorithm 2), written in changes D(.) = posterior -
prior and scaled by the variances, alpha = Dmu_a/var_a and beta = -Dvar_a/var_a^2:

    output         alpha = e/S, beta = 1/S with S = var_a + r (kbnn.core.likelihoods: b and B)
    smoothing II   mu += C m alpha,  C -= C m (C m)' beta                (eqs. muwupdate, cwupdate)
    smoothing I    Dmu_a = cov_az sum_n w_n alpha_n,
                   Dvar_a = -cov_az^2 sum_n w_n^2 beta_n                 (eq. smootheda)

with the weights from before their update. Dividing by var_z is never needed: k = cov_az/var_z
cancels against Dmu_z = var_z sum(..).

Deviations from the printed algorithm are counted (kbnn.core.state.Counts). Several units above can
remove more than all of a unit's variance, so Dvar_z >= -var_z is enforced (`bounded`). The printed
variance of a sigmoid is raised to cov_az^2 / var_a where it lies below (`raised`), or replaced by
the exact one (Config.printed_variance). Config.noise and hidden_noise are 0 in the paper. A var_a
below SMALLEST_VAR, which only rounding or exact labels can produce, is raised to it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kbnn.array_types import FloatArray
from kbnn.core.belief import Belief
from kbnn.core.constants import SMALLEST_VAR, STEP_LIMIT, TINY
from kbnn.core.input_moments import InputMoments
from kbnn.core.likelihoods import OutputMoments
from kbnn.core.state import COUNT


class LayerPass(NamedTuple):
    """What the backward pass needs from one layer's forward pass."""

    gain: FloatArray  # (units, inputs + 1): C m of every unit
    var_a: FloatArray
    cov_az: FloatArray
    var_z: FloatArray
    raised: int = 0


def predict_outputs(belief: Belief, inputs: InputMoments) -> tuple[OutputMoments, list[LayerPass]]:
    """Run the forward pass: moments of the outputs before their activation."""
    m = np.concatenate([[1.0], inputs.mean])
    v = np.concatenate([[0.0], inputs.var])
    passes: list[LayerPass] = []
    last = belief.layout.layers - 1
    for layer in range(last + 1):
        weights = belief.layer_weights(layer)
        gain = belief.own_gain(layer, m)
        mu_a = weights @ m
        var_a = gain @ m + (weights**2 + belief.own_diagonal(layer)) @ v
        var_a = np.maximum(var_a, SMALLEST_VAR)
        if layer == last:
            passes.append(LayerPass(gain, var_a, var_a, var_a))
            return OutputMoments(mu_a, np.diag(var_a), np.zeros_like(mu_a), m), passes
        activation = belief.config.activations[layer]
        out = activation.moments(mu_a, var_a)
        var_z, raised = out.var, 0
        if belief.config.printed_variance and activation.printed_var is not None:
            var_z, raised = activation.printed_var(out.mean, var_a, out.cov)
        var_z = var_z + belief.config.hidden_noise
        passes.append(LayerPass(gain, var_a, out.cov, var_z, raised))
        m = np.concatenate([[1.0], out.mean])
        v = np.concatenate([[0.0], var_z])
    raise AssertionError("a network has an output layer")


def update_belief(
    belief: Belief, passes: list[LayerPass], pull: FloatArray, spread: FloatArray
) -> bool:
    """Run the backward pass; return False, without a change, if a step is too large."""
    alpha, beta = pull, np.sum(spread**2, axis=1)
    plan: list[tuple[FloatArray, FloatArray]] = [(alpha, beta)]
    bounded = 0
    for layer in range(belief.layout.layers - 1, 0, -1):
        weights = belief.layer_weights(layer)[:, 1:]
        below = passes[layer - 1]
        pull = weights.T @ alpha
        asked, most = weights.T**2 @ beta, 1.0 / np.maximum(below.var_z, TINY)
        shrink = np.minimum(asked, most)
        bounded += int(np.sum(asked > most))
        alpha = below.cov_az / below.var_a * pull
        beta = (below.cov_az / below.var_a) ** 2 * shrink
        plan.insert(0, (alpha, beta))
    steps = [
        np.maximum(np.abs(alpha)[:, None], beta[:, None] * np.abs(passed.gain)) * passed.gain
        for (alpha, beta), passed in zip(plan, passes, strict=True)
    ]
    if not all(np.all(np.abs(step) <= STEP_LIMIT) for step in steps):
        return False
    belief.counts[COUNT.bounded] += bounded
    belief.counts[COUNT.raised] += sum(below.raised for below in passes)
    floor = belief.config.variance_floor
    for layer, (alpha, beta) in enumerate(plan):
        gain = passes[layer].gain
        belief.layer_weights(layer)[:] += alpha[:, None] * gain
        belief.shrink_covariance(
            belief.stacks[layer], (np.sqrt(beta)[:, None] * gain)[:, :, None], floor
        )
    return True
