"""The UCI sets, their splits, and a stand-in for the one that is too large to ship."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from samples.paper import published

FloatArray = NDArray[np.float64]

SETS = tuple(name for name in published.SIZES if name != "year")
SIX = tuple(published.LAYERS_RMSE)  # the sets of the paper's supplement
YEAR_ROWS = 463_715  # the training part of the Year set


class Split(NamedTuple):
    """Rows to learn from and rows to be judged on, in the units of the file."""

    x: FloatArray
    y: FloatArray
    x_test: FloatArray
    y_test: FloatArray


def load(folder: Path | None, name: str) -> tuple[FloatArray, FloatArray]:
    """Read one UCI set: a CSV file with a header line and the target in the last column."""
    if folder is None:
        raise SystemExit("The UCI experiments need --data DIR, a folder with boston.csv and so on.")
    path = folder / f"{name}.csv"
    if not path.is_file():
        raise SystemExit(f"There is no {path}; --data must hold {name}.csv with the target last.")
    table = np.loadtxt(path, delimiter=",", skiprows=1, ndmin=2)
    expected = published.SIZES[name]
    if table.shape != (expected[0], expected[1] + 1):
        raise SystemExit(f"{path} has shape {table.shape}, but the paper's has {expected}.")
    return table[:, :-1], table[:, -1:]


def split(folder: Path | None, name: str, seed: int) -> Split:
    """Nine tenths to learn from, in random order, and one tenth to be judged on.

    The permutation is that of numpy's legacy generator, whose stream is frozen.
    """
    x, y = load(folder, name)
    order = np.random.RandomState(seed).permutation(len(x))
    cut = round(0.9 * len(x))
    train, test = order[:cut], order[cut:]
    return Split(x[train], y[train], x[test], y[test])


def stand_in(rows: int, inputs: int, seed: int = 0) -> tuple[FloatArray, FloatArray]:
    """Random numbers of a given shape: for time and memory, not for accuracy."""
    generator = np.random.default_rng(seed)
    x = generator.standard_normal((rows, inputs))
    y = np.tanh(x[:, :1]) + x[:, 1:2] * x[:, 2:3] + 0.5 * generator.standard_normal((rows, 1))
    return x, y
