"""Learners from PyPI behind one function each: learn a split, say what the test rows will be."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from tests.bench.data import FloatArray, Split, block, trained

MANY = 2000
"""Rows above which slow learners are left out unless all are asked for."""
FEW = 1100
"""Rows above which a Gaussian process is left out."""


class Said(NamedTuple):
    """A forecast of the test rows; sd is None where a learner states no distribution."""

    mean: FloatArray
    sd: FloatArray | None = None


class Rival(NamedTuple):
    """A learner, the package it comes in, and how it is set."""

    name: str
    package: str
    settings: str
    passes: str
    learn: Callable[[Split, int], Said]
    slow: bool = False
    most: int | None = None  # rows


def own(passes: int, rows: Split, seed: int, **settings: object) -> Said:
    """kbnn by the way of `kbnn train`."""
    model = trained(rows.x, rows.y, passes, seed=seed, **settings)
    forecast = model.predict(block(rows.x_test, rows.y_test))
    return Said(forecast.mean[:, 0], forecast.sd[:, 0])


def wabbit(options: str, rows: Split, seed: int) -> Said:
    """Vowpal Wabbit, one pass; in raw units it is many times worse on some sets."""
    import vowpalwabbit

    center, spread = rows.x.mean(axis=0), rows.x.std(axis=0)
    spread = np.where(spread > 0.0, spread, 1.0)
    middle, scale = float(rows.y.mean()), float(rows.y.std())
    machine = vowpalwabbit.Workspace(f"{options} --random_seed {seed} --quiet")
    for x, y in zip((rows.x - center) / spread, rows.y[:, 0], strict=True):
        machine.learn(f"{(float(y) - middle) / scale!r} {_features(x)}")
    mean = [machine.predict(_features(x)) for x in (rows.x_test - center) / spread]
    machine.finish()
    return Said(middle + scale * np.array(mean, dtype=np.float64))


def _features(x: FloatArray) -> str:
    return "| " + " ".join(f"x{i}:{float(value)!r}" for i, value in enumerate(x))


def river(kind: str, rows: Split, seed: int) -> Said:
    """river, one pass."""
    from river import forest, linear_model, preprocessing

    model: Any
    if kind == "forest":
        model = forest.ARFRegressor(seed=seed)
    else:
        model = preprocessing.StandardScaler() | preprocessing.TargetStandardScaler(
            regressor=linear_model.LinearRegression()
        )
    for x, y in zip(rows.x, rows.y[:, 0], strict=True):
        model.learn_one(_named(x), float(y))
    return Said(np.array([model.predict_one(_named(x)) for x in rows.x_test]))


def _named(x: FloatArray) -> dict[str, float]:
    return {f"x{i}": float(value) for i, value in enumerate(x)}


def perceptron(rows: Split, seed: int) -> Said:
    """scikit-learn's network."""
    from sklearn.compose import TransformedTargetRegressor
    from sklearn.neural_network import MLPRegressor
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    network = MLPRegressor(hidden_layer_sizes=(50,), random_state=seed)
    model = make_pipeline(
        StandardScaler(), TransformedTargetRegressor(network, transformer=StandardScaler())
    )
    return Said(model.fit(rows.x, rows.y[:, 0]).predict(rows.x_test))


def process(rows: Split, seed: int) -> Said:
    """scikit-learn's Gaussian process."""
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    kernel = ConstantKernel() * RBF(np.ones(rows.x.shape[1])) + WhiteKernel()
    model = make_pipeline(
        StandardScaler(),
        GaussianProcessRegressor(kernel, normalize_y=True, random_state=seed),
    )
    return Said(*model.fit(rows.x, rows.y[:, 0]).predict(rows.x_test, return_std=True))


def boosting(rows: Split, seed: int) -> Said:
    """scikit-learn's gradient boosting."""
    from sklearn.ensemble import HistGradientBoostingRegressor

    model = HistGradientBoostingRegressor(random_state=seed)
    return Said(model.fit(rows.x, rows.y[:, 0]).predict(rows.x_test))


def natural(rows: Split, seed: int) -> Said:
    """NGBoost."""
    from ngboost import NGBRegressor

    model = NGBRegressor(random_state=seed, verbose=False).fit(rows.x, rows.y[:, 0])
    said = model.pred_dist(rows.x_test)
    return Said(said.loc, said.scale)


def quietly(rival: Rival, rows: Split, seed: int) -> Said:
    """What a rival says, without its warnings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return rival.learn(rows, seed)


RIVALS = (
    Rival("kbnn", "kbnn", "defaults", "1", partial(own, 1)),
    Rival("kbnn best", "kbnn", "--preset best", "1", partial(own, 1, hidden="best")),
    Rival("kbnn 10", "kbnn", "--epochs 10", "10", partial(own, 10)),
    Rival(
        "kbnn best 10", "kbnn", "--preset best --epochs 10", "10", partial(own, 10, hidden="best")
    ),
    Rival("VW linear", "vowpalwabbit", "inputs and target standardised", "1", partial(wabbit, "")),
    Rival(
        "VW --nn 50",
        "vowpalwabbit",
        "--nn 50, inputs and target standardised",
        "1",
        partial(wabbit, "--nn 50"),
    ),
    Rival(
        "river linear",
        "river",
        "StandardScaler | TargetStandardScaler(LinearRegression())",
        "1",
        partial(river, "linear"),
    ),
    Rival("river forest", "river", "ARFRegressor()", "1", partial(river, "forest"), slow=True),
    Rival(
        "scikit-learn MLP",
        "scikit-learn",
        "MLPRegressor(hidden_layer_sizes=(50,)), inputs and target standardised",
        "up to 200",
        perceptron,
    ),
    Rival(
        "scikit-learn GP",
        "scikit-learn",
        "ConstantKernel * RBF (a length a feature) + WhiteKernel, inputs standardised, normalize_y",
        "batch",
        process,
        most=FEW,
    ),
    Rival(
        "scikit-learn boosting",
        "scikit-learn",
        "HistGradientBoostingRegressor()",
        "batch",
        boosting,
    ),
    Rival("NGBoost", "ngboost", "NGBRegressor()", "batch", natural, slow=True),
)
