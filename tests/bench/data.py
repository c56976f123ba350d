"""Rows for the measurements: the UCI sets, their splits, and blocks made from arrays."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kbnn.core.config import Config
from kbnn.core.kernel import learn, predict
from kbnn.core.state import init
from kbnn.data.batch import Rows
from kbnn.data.schema import Column, Place, Schema
from kbnn.distributions import calibration
from kbnn.distributions.dispatch import read_distribution
from kbnn.model.model import Forecast, OnlineModel
from kbnn.model.settings import Settings
from kbnn.targets.base import make_empty_forecast

FloatArray = NDArray[np.float64]

SETS = ("boston", "concrete", "energy", "wine", "naval", "yacht", "kin8nm", "power")
SMALL = ("boston", "concrete", "energy", "yacht")  # under 1,100 rows
INTERVAL = 1.6448536269514722  # half the width of a central 90 % interval, in standard deviations


class Split(NamedTuple):
    """Rows to learn from and rows to be judged on, in the units of the file."""

    x: FloatArray
    y: FloatArray
    x_test: FloatArray
    y_test: FloatArray


class Scores(NamedTuple):
    """How good a Gaussian forecast was: nats per row, and the share inside the 90 % interval."""

    rmse: float
    nll: float
    coverage: float


def folder(given: str | None) -> Path:
    """Where the UCI files are: what was said, or KBNN_DATA."""
    path = given or os.environ.get("KBNN_DATA")
    if not path:
        raise SystemExit("Say --data DIR (or set KBNN_DATA): a folder with boston.csv and so on.")
    return Path(path)


@lru_cache(maxsize=16)
def load(data: Path, name: str) -> tuple[FloatArray, FloatArray]:
    """One set: a CSV file with a header line and the target in the last column."""
    file = data / f"{name}.csv"
    if not file.is_file():
        raise SystemExit(f"There is no {file}; --data must hold {name}.csv with the target last.")
    table = np.loadtxt(file, delimiter=",", skiprows=1, ndmin=2)
    return table[:, :-1], table[:, -1:]


def split(data: Path, name: str, seed: int) -> Split:
    """The first nine tenths of a permutation to learn from, the rest to be judged on."""
    x, y = load(data, name)
    order = np.random.RandomState(seed).permutation(len(x))  # the splits of the anchors
    cut = round(0.9 * len(x))
    train, test = order[:cut], order[cut:]
    return Split(x[train], y[train], x[test], y[test])


def schema(inputs: int, targets: int = 1, classes: int = 0) -> Schema:
    """Columns of numbers named x0, x1, .. and the target."""
    names = [f"x{i}" for i in range(inputs)]
    columns = [Column(name, "number", "feature") for name in names]
    columns += [
        Column(f"y{i}", "category" if classes else "number", "target") for i in range(targets)
    ]
    return Schema(
        columns,
        "classification" if classes else "regression",
        classes=[str(k) for k in range(classes)],
        layout=[Place(name, None) for name in names],
    )


def block(
    x: FloatArray,
    y: FloatArray,
    x_sd: FloatArray | None = None,
    weight: FloatArray | None = None,
    first: int = 1,
) -> Rows:
    """Rows as the model takes them; y may be a vector."""
    y = y[:, None] if y.ndim == 1 else y
    return Rows(
        np.ascontiguousarray(x),
        np.ascontiguousarray(y),
        np.arange(first, first + len(x)),
        x_sd,
        weight,
    )


def trained(x: FloatArray, y: FloatArray, passes: int = 1, **settings: object) -> OnlineModel:
    """A model in its default settings but for those given, after some passes."""
    rows = block(x, y)
    model = OnlineModel(Settings(**settings), schema(x.shape[1], rows.y.shape[1]))  # type: ignore[arg-type]  # keyword options of several types
    for number in range(passes):
        model.learn(rows, again=number > 0)
    return model


def scores(forecast: Forecast, y: FloatArray) -> Scores:
    """Scores of the first target, by what was stated of it."""
    y = y[:, 0] if y.ndim == 2 else y
    told = read_distribution(forecast.stated[:, 0]).score_values(y)
    return Scores(
        float(np.sqrt(np.mean((y - forecast.mean[:, 0]) ** 2))),
        float(np.mean(told.nll)),
        float(np.mean(told.in_90)),
    )


def error(values: Sequence[float]) -> float:
    """The standard error of a mean over splits; 0 of a single one."""
    count = len(values)
    return float(np.std(values, ddof=1) / np.sqrt(count)) if count > 1 else 0.0


def judged(model: OnlineModel, x: FloatArray, y: FloatArray) -> Scores:
    """Scores of a model's predictions of rows it has not learned."""
    return scores(model.predict(block(x, y)), y)


def known_units(rows: Split, seed: int) -> Scores:
    """Scores of the default network when scales of the whole training part are known."""
    center, scale = rows.x.mean(axis=0), rows.x.std(axis=0)
    scale = np.where(scale > 0.0, scale, 1.0)
    middle, spread = rows.y.mean(axis=0), rows.y.std(axis=0)
    state = init(Config(rows.x.shape[1]), seed)
    state, _ = learn(state, (rows.x - center) / scale, (rows.y - middle) / spread)
    said = predict(state, (rows.x_test - center) / scale)
    sd = spread * np.sqrt(said.function_var + said.noise_var)
    mean = middle + spread * said.mean
    told = calibration.apply_calibration(
        calibration.init_calibration(sd.shape[1], mixed=False), mean, sd
    )
    made = make_empty_forecast(*sd.shape)._replace(mean=mean, sd=sd, stated=told)
    return scores(made, rows.y_test)
