"""The weights of a model by name: where each leads from and to, its belief and its prior."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from kbnn.core.layout import layout_of
from kbnn.core.normal import FloatArray
from kbnn.core.state import State
from kbnn.model.model import Model


class Weight(NamedTuple):
    """One weight, in the network's own (standardised) units.

    layer 1 is the first; `unit` counts from 1; `source` is "bias", a feature or "unit <n>".
    """

    network: int
    layer: int
    unit: int
    source: str
    mean: float
    sd: float
    prior_mean: float
    prior_sd: float


def weights(model: Model) -> Iterator[Weight]:
    """Every weight of every network, layer after layer, unit after unit, the bias first."""
    names = model.schema.encoded_names()
    for network, member in enumerate(model.learned.members, start=1):
        state = member.state()
        sd = np.sqrt(variances(state))
        layout = layout_of(state.config)
        for layer in range(layout.layers):
            parts = [
                layout.matrix(values, layer)
                for values in (state.mean, sd, state.prior_mean, np.sqrt(state.prior_var))
            ]
            for unit, rows in enumerate(zip(*(part.tolist() for part in parts), strict=True)):
                for column, belief in enumerate(zip(*rows, strict=True)):
                    inner = names[column - 1] if layer == 0 and column else f"unit {column}"
                    source = inner if column else "bias"
                    yield Weight(network, layer + 1, unit + 1, source, *belief)


def variances(state: State) -> FloatArray:
    """The variance of every weight."""
    return np.asarray(state.cov[layout_of(state.config).diagonal])
