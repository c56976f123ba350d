"""Classes: one pass against scikit-learn's network fed row by row, and classes that come late."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from kbnn.model.model import OnlineModel
from kbnn.model.settings import Settings
from tests.bench import data, made
from tests.bench.data import FloatArray

Result = dict[str, Any]
SETS = ("digits", "wine", "iris", "breast_cancer")
RATES = (0.001, 0.01)


def log_loss(probability: FloatArray, label: FloatArray) -> float:
    """Mean of -log p of the class that came."""
    p = probability[np.arange(len(label)), label.astype(np.int64)]
    return float(-np.mean(np.log(np.maximum(p, 1e-12))))


def learned(
    x: FloatArray, y: FloatArray, classes: int, passes: int = 1, **settings: Any
) -> OnlineModel:
    """A model of classes after some passes."""
    model = OnlineModel(Settings(**settings), data.schema(x.shape[1], 1, classes))
    for number in range(passes):
        model.learn(data.block(x, y), again=number > 0)
    return model


def probabilities(model: OnlineModel, x: FloatArray) -> FloatArray:
    """Class probabilities of rows."""
    found = model.predict(data.block(x, np.zeros(len(x)))).probability
    assert found is not None
    return found


def against_mlp(name: str, seed: int) -> Result:
    """Log-loss on a tenth of a set after one pass over the rest, ours and scikit-learn's.

    Its network has 50 units too and gets inputs standardised with the whole training part.
    """
    from sklearn import datasets
    from sklearn.neural_network import MLPClassifier

    x, y = getattr(datasets, f"load_{name}")(return_X_y=True)
    order = np.random.default_rng([seed, 17]).permutation(len(y))
    cut = round(0.9 * len(y))
    train, test = order[:cut], order[cut:]
    x, y = x.astype(np.float64), y.astype(np.float64)
    classes = int(y.max()) + 1
    found: Result = {}
    for what, passes in (("kbnn", 1), ("kbnn, ten passes", 10)):
        model = learned(x[train], y[train], classes, passes, seed=seed)
        p = probabilities(model, x[test])
        found[what] = (log_loss(p, y[test]), float(np.mean(np.argmax(p, axis=1) == y[test])))
    center, scale = x[train].mean(axis=0), x[train].std(axis=0)
    z = (x - center) / np.where(scale > 0.0, scale, 1.0)
    for rate in RATES:
        net = MLPClassifier((50,), learning_rate_init=rate, random_state=seed)
        for row in train:
            net.partial_fit(z[row : row + 1], y[row : row + 1], classes=np.arange(classes))
        p = net.predict_proba(z[test])
        found[f"MLP {rate}"] = (
            log_loss(p, y[test]),
            float(np.mean(np.argmax(p, axis=1) == y[test])),
        )
    return found


def show_mlp(runs: dict[str, list[Result]]) -> Iterator[str]:
    """Bar: lower log-loss than the default rate (and, beyond it, than the better of two)."""
    won = best = 0
    for name, found in runs.items():
        mean = {what: np.mean([one[what] for one in found], axis=0) for what in found[0]}
        won += bool(mean["kbnn"][0] < mean["MLP 0.001"][0])
        best += bool(mean["kbnn"][0] < min(mean[f"MLP {rate}"][0] for rate in RATES))
        yield (
            f"  {name:14s}"
            + "; ".join(f"{what} {m[0]:.3f} ({100 * m[1]:.1f} %)" for what, m in mean.items())
        )
    yield (
        f"{'ok  ' if won == len(runs) else 'MISS'} log-loss in one pass below scikit-learn's "
        f"network row by row on {won}/{len(runs)} (its better rate: {best}/{len(runs)})"
    )


def late_class(before: int, seed: int) -> Result:
    """A class first seen at row 10,000 of a stream of overlapping clumps."""
    generator = np.random.default_rng([seed, 18])
    classes = before + 1
    centers = 1.5 * generator.standard_normal((classes, 3, 4))
    x, y = made.clumps(generator, 30_000, classes, centers)
    early = np.flatnonzero(y < before)[:10_000]
    late = np.arange(20_000, 30_000)
    x_test, y_test = made.clumps(generator, 4_000, classes, centers)
    new = y_test == before
    schema = data.schema(4, 1, before)
    model = OnlineModel(Settings(seed=seed), schema)
    model.learn(data.block(x[early], y[early]))
    schema.classes.append(str(before))
    found: Result = {}
    learned_rows = 0
    for rows in (10, 50, 200, 2_000, 10_000):
        part = late[learned_rows:rows]
        model.learn(data.block(x[part], y[part]))
        learned_rows = rows
        p = probabilities(model, x_test)
        if p.shape[1] < classes:
            p = np.hstack([p, np.zeros((len(p), 1))])
        found[str(rows)] = (
            log_loss(p[~new], y_test[~new]),
            log_loss(p[new], y_test[new]),
            float(np.mean(np.argmax(p[new], axis=1) == before)),
        )
    whole = learned(x[:20_000], y[:20_000], classes, seed=seed)
    p = probabilities(whole, x_test)
    found["known from the start"] = (
        log_loss(p[~new], y_test[~new]),
        log_loss(p[new], y_test[new]),
        float(np.mean(np.argmax(p[new], axis=1) == before)),
    )
    found["alarms"] = (model.learner_state.get_count("alarms"), 0, 0)
    return found


def show_late(runs: dict[str, list[Result]]) -> Iterator[str]:
    """Log-loss of old classes, of the new one, and how often the new one is found."""
    for name, found in runs.items():
        yield (f"  {name}, new at row 10,000, rows after: old / new / found")
        for what in found[0]:
            m = np.mean([one[what] for one in found], axis=0)
            yield (f"    {what:22s} {m[0]:.3f} / {m[1]:.3f} / {100 * m[2]:.0f} %")
