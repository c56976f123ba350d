"""The weights of a model by name: source, unit, mean, sd and prior.

`save_weights` writes them with their covariances to a NumPy archive without pickle:

    network<k>/layer, unit, source  (W,) of each weight; layers and units from 1, source 0: the bias
    network<k>/mean, prior_mean, prior_var  (W,)
    network<k>/block<b>/weights     (d,) indices of the weights in a covariance block, from 0
    network<k>/block<b>/cov         (d, d); weights of different blocks are independent
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kbnn.array_types import FloatArray
from kbnn.core.layout import layout_of
from kbnn.core.state import State
from kbnn.errors import UsageError
from kbnn.model.encoding import list_bin_names
from kbnn.model.model import OnlineModel
from kbnn.sink import write_atomically


class Weight(NamedTuple):
    """One weight, in the network's standardised units.

    `layer` and `unit` count from 1; `source` is "bias", a feature or "unit <n>".
    """

    network: int
    layer: int
    unit: int
    source: str
    mean: float
    sd: float
    prior_mean: float
    prior_sd: float


def iter_weights(model: OnlineModel) -> Iterator[Weight]:
    """Yield every weight of every network: by layer, by unit, the bias first."""
    names = model.schema.encoded_names()
    for network, member in enumerate(model.learner_state.members, start=1):
        state = member.state()
        sd = np.sqrt(weight_variances(state))
        layout = layout_of(state.config)
        bins = list_bin_names(model.learner_state.bins[network - 1], names)
        first = [*(f"direction {k + 1}" for k in range(state.config.directions)), *bins, *names]
        for layer in range(layout.layers):
            parts = [
                layout.weight_matrix(values, layer)
                for values in (state.mean, sd, state.prior_mean, np.sqrt(state.prior_var))
            ]
            for unit, rows in enumerate(zip(*(part.tolist() for part in parts), strict=True)):
                for column, values in enumerate(zip(*rows, strict=True)):
                    inner = first[column - 1] if layer == 0 and column else f"unit {column}"
                    source = inner if column else "bias"
                    yield Weight(network, layer + 1, unit + 1, source, *values)


def save_weights(model: OnlineModel, path: str) -> None:
    """Write means and covariances of all weights to a file, atomically."""
    arrays: dict[str, NDArray[Any]] = {}
    for network, member in enumerate(model.learner_state.members, start=1):
        found = _weight_arrays(member.state())
        arrays.update({f"network{network}/{name}": array for name, array in found.items()})
    content = io.BytesIO()
    np.savez(content, allow_pickle=False, **arrays)
    write_atomically(path, content.getvalue())


def check_weights_path(path: str) -> None:
    """Refuse a name that does not end in .npz."""
    if not path.endswith(".npz"):
        raise UsageError(f"--weights-file '{path}': the name must end in .npz")


def _weight_arrays(state: State) -> dict[str, NDArray[Any]]:
    layout = layout_of(state.config)
    places = np.concatenate(
        [
            np.indices((units, inputs + 1)).reshape(2, -1)
            for inputs, units in pairwise(layout.widths)
        ],
        axis=1,
    )
    found: dict[str, NDArray[Any]] = {
        "layer": np.repeat(np.arange(1, layout.layers + 1), np.diff(layout.layer_starts)),
        "unit": places[0] + 1,
        "source": places[1],
        "mean": state.mean,
        "prior_mean": state.prior_mean,
        "prior_var": state.prior_var,
    }
    for b, (order, cov) in enumerate(
        zip(layout.block_positions, layout.unpack_blocks(state.cov), strict=True), start=1
    ):
        found[f"block{b}/weights"], found[f"block{b}/cov"] = order, cov
    if state.config.directions:
        found["loose/weights"], found["loose/var"] = (
            layout.loose_positions,
            layout.loose_var(state.cov),
        )
        found["view"] = state.view
    return found


def weight_variances(state: State) -> FloatArray:
    """Return the variance of every weight."""
    return np.asarray(state.cov[layout_of(state.config).variance_positions])
