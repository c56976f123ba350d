"""Relevance of inputs: networks that restart expect more of the inputs that mattered so far.

In the first rows, networks restart from their prior several times (kbnn.model.learner). A prior
that treats 32 inputs alike spends most of its variance on inputs that do not matter. Before a
restart the effect of each input j on the pooled prediction f is therefore measured over the last
rows, with the value of a random other row in place of the row's own:

    r_j = mean (f(x) - f(x with x_j replaced))^2

For independent inputs this is twice the total sensitivity index, interactions included. An input is
relevant to the degree

    q_j = (r_j / (r_j + t))^2
    t = (D / MANY_INPUTS)^2 min(IRRELEVANT_SHARE max_i r_i, IRRELEVANT_ERRORS s^2)

with s^2 the mean squared error over these rows. Weak inputs among few do not count as irrelevant,
since an even prior costs little there, nor are inputs whose effect exceeds the error by far. If
half of the inputs or more are irrelevant, q_j < 1/4, and there are many of these or many rows, the
prior means and standard deviations of the first layer's weights of input j, and of its bins, are
multiplied by

    g_j = sqrt((1 - a) D q_j / sum_i q_i + a),   a = e + (1 - e) n0 / (n + n0)

so that the prior variance of a unit stays the same. a is the share of the variance that is divided
equally: nearly all after few rows n, and at least e, so that an input that matters later is still
learned. D counts the inputs that varied in these rows; the others keep g = 1, and so do all inputs
otherwise.

The constants were chosen by prequential log score on training parts of 38 tables.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Final

import numpy as np

from kbnn.array_types import FloatArray, IntArray
from kbnn.core.layout import layout_of, multiply
from kbnn.core.state import State

MEASURED_ROWS: Final = 128
"""Last rows over which effects are measured."""
IRRELEVANT_SHARE: Final = 0.3
MANY_INPUTS: Final = 32
IRRELEVANT_ERRORS: Final = 9.0
"""Effect at which an input counts a quarter, among MANY_INPUTS inputs: relative to the largest one,
and at most relative to the squared error."""
IRRELEVANT_INPUTS: Final = 0.5
"""Least share of irrelevant inputs for which the prior changes."""
IRRELEVANT_EVIDENCE: Final = 1500
"""Least number of irrelevant inputs times rows: after few rows an input seems irrelevant by chance.
"""
EQUAL_SHARE: Final = 0.05
"""e: share of the prior variance that is always divided equally."""
EQUAL_ROWS: Final = 64.0
"""n0: rows after which half of the rest follows the relevance."""
LEAST_GAIN, MOST_GAIN = 0.2, 4.0
"""Range of g."""
GAIN_MARGIN: Final = max(1.0 / LEAST_GAIN, MOST_GAIN)


def compute_input_gains(effects: FloatArray, square_error: float, rows: int) -> FloatArray:
    """Return the factors g (D,) of the prior for the effects r (D,) measured after `rows` rows."""
    largest = float(np.max(effects, initial=0.0))
    if not 0.0 < largest < np.inf:
        return np.ones_like(effects)
    count = int(np.count_nonzero(effects))
    level = min(IRRELEVANT_SHARE * largest, IRRELEVANT_ERRORS * square_error)
    level = max(level * (count / MANY_INPUTS) ** 2, 1e-12 * largest)
    relevant = (effects / (effects + level)) ** 2
    irrelevant = int(np.count_nonzero(relevant[effects > 0.0] < 0.25))
    if irrelevant < IRRELEVANT_INPUTS * count or irrelevant * rows < IRRELEVANT_EVIDENCE:
        return np.ones_like(effects)
    equal = EQUAL_SHARE + (1.0 - EQUAL_SHARE) * EQUAL_ROWS / (rows + EQUAL_ROWS)
    gain = np.sqrt((1.0 - equal) * count * relevant / np.sum(relevant) + equal)
    return np.where(effects > 0.0, np.clip(gain, LEAST_GAIN, MOST_GAIN), 1.0)


def draw_other_rows(seed: int, rows: int, count: int) -> IntArray:
    """Draw, for each of `count` rows, the row whose values replace its own."""
    generator = np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, rows, count])))
    return generator.permutation(count)


def measure_effects(
    states: Sequence[State],
    weights: FloatArray,
    inputs: Sequence[FloatArray],
    columns: Sequence[IntArray],
    order: IntArray,
) -> tuple[FloatArray, FloatArray]:
    """Return how much the pooled prediction depends on each column, r (D,), and the prediction.

    Parameters
    ----------
    states
        The networks. Their weights are taken at their means.
    weights : (K,)
        Weights of the networks.
    inputs : (n, I_k) each
        Encoded inputs of each network; NaN is replaced by 0.
    columns : (I_k,) each
        Column that each input belongs to.
    order : (n,)
        Row whose values replace those of a row.
    """
    networks = [
        _MeanNetwork(state, x, at) for state, x, at in zip(states, inputs, columns, strict=True)
    ]
    width = 1 + int(np.max(columns[0], initial=-1))
    effects = np.zeros(width)
    for column in range(width):
        changes = [network.replace_column(column, order) for network in networks]
        effects[column] = np.mean(np.sum(_add_weighted(changes, weights) ** 2, axis=1))
    return effects, _add_weighted([network.output for network in networks], weights)


def _add_weighted(parts: Sequence[FloatArray], weights: FloatArray) -> FloatArray:
    """Return the weighted sum of arrays, in order."""
    total = np.zeros_like(parts[0])
    for weight, part in zip(weights.tolist(), parts, strict=True):
        total += weight * part
    return total


class _MeanNetwork:
    """A network with the means of its weights, at some rows."""

    def __init__(self, state: State, x: FloatArray, columns: IntArray) -> None:
        layout, config = layout_of(state.config), state.config
        matrices = [layout.weight_matrix(state.mean, k) for k in range(layout.layers)]
        self.x = np.clip(np.nan_to_num(x), -config.input_limit, config.input_limit)
        self.rest = matrices[1:]
        self.functions = [one.function for one in config.activations]
        weights, shift = matrices[0][:, 1:], np.zeros(config.inputs)
        if config.directions:  # x in units of its own, then directions and residuals
            k, gain, v = config.directions, state.view[:, 0], state.view[:, 2:]
            of_s, of_r = weights[:, :k], weights[:, k:]
            weights = (of_r + (of_s - of_r @ v) @ v.T) * gain
            shift = state.view[:, 1] / gain
        self.sum = matrices[0][:, 0] + multiply(self.x - shift, weights.T)
        by_column = np.argsort(columns, kind="stable")
        ends = np.searchsorted(columns[by_column], np.arange(2 + int(np.max(columns, initial=-1))))
        self.inputs_of = [by_column[a:b] for a, b in itertools.pairwise(ends)]
        self.weights = np.ascontiguousarray(weights.T)
        self.output = self._run_rest(self.sum)

    def replace_column(self, column: int, order: IntArray) -> FloatArray:
        """Return the change of the outputs (n, outputs) with a column's values of other rows."""
        at = self.inputs_of[column]
        own = self.x[:, at]
        change = own[order] - own
        if not change.any():
            return np.zeros_like(self.output)
        return self._run_rest(self.sum + change @ self.weights[at]) - self.output

    def _run_rest(self, sums: FloatArray) -> FloatArray:
        """Return the outputs that follow from the sums into the first layer's units."""
        for matrix, function in zip(self.rest, self.functions, strict=True):
            sums = matrix[:, 0] + multiply(function(sums), matrix[:, 1:].T)
        return sums
