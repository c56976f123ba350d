"""Labels asked for against random labels: how many reach the same error.

    python -m tests.bench.asking --data DIR [--repeats 20] [--sets power breast_cancer wine_classes]

Starting from 40 random labels, a model learns further labels in batches, chosen by `rank_queries`
or at random, and predicts test rows after each. Both means over the repeats are compared: the share
is the number of labels with which asking reaches the error that random labels have at the end. Its
standard error is from 200 bootstrap samples of the repeats. Exits with 1 if the share of a set with
a limit is above it. The sets without a limit show where asking gains little.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
from sklearn import datasets

from kbnn.array_types import FloatArray
from kbnn.model.function_posterior import rank_queries
from kbnn.model.model import OnlineModel
from kbnn.model.settings import Settings
from tests.bench.data import block, folder, load, schema

FIRST_LABELS = 40
MAX_POOL_ROWS, MAX_TEST_ROWS = 3000, 2000


class LabelBudget(NamedTuple):
    """How many labels a set gets, in batches of which size, and the largest share allowed."""

    labels: int
    batch: int
    limit: float | None = None


SETS = {
    "power": LabelBudget(240, 10, 0.6),
    "breast_cancer": LabelBudget(200, 10, 0.6),
    "wine_classes": LabelBudget(120, 5, 0.6),
    "yacht": LabelBudget(210, 10),
    "concrete": LabelBudget(320, 20),
    "energy": LabelBudget(240, 20),
    "boston": LabelBudget(240, 20),
}
CLASS_SETS = {
    "breast_cancer": datasets.load_breast_cancer,
    "wine_classes": datasets.load_wine,
}


def load_set(data: Path, name: str) -> tuple[FloatArray, FloatArray, int]:
    """Return inputs, target and the number of classes (0: a number)."""
    if name in CLASS_SETS:
        x, y = CLASS_SETS[name](return_X_y=True)
        return x.astype(np.float64), y.astype(np.float64), int(y.max()) + 1
    x, y = load(data, name)
    return x, y[:, 0], 0


def run(data: Path, name: str, seed: int, asks: bool) -> FloatArray:
    """Return the test error after each batch: RMSE, or the share of wrong labels."""
    x, y, classes = load_set(data, name)
    budget = SETS[name]
    order = np.random.default_rng(seed).permutation(len(x))
    cut = round(0.7 * len(x))
    pool, test = order[:cut][:MAX_POOL_ROWS], order[cut:][:MAX_TEST_ROWS]
    model = OnlineModel(Settings(seed=seed), schema(x.shape[1], classes=classes))
    taken, pool = pool[:FIRST_LABELS], pool[FIRST_LABELS:]
    model.learn(block(x[taken], y[taken]))
    labels, errors = FIRST_LABELS, []
    while True:
        told = model.predict(block(x[test], y[test]))
        if classes:
            errors.append(float(np.mean(told.probability.argmax(axis=1) != y[test])))
        else:
            errors.append(float(np.sqrt(np.mean((told.mean[:, 0] - y[test]) ** 2))))
        if labels + budget.batch > budget.labels:
            return np.array(errors)
        at = np.arange(budget.batch)
        if asks:
            at = rank_queries(model, block(x[pool], y[pool]), budget.batch).rows
        model.learn(block(x[pool[at]], y[pool[at]], first=labels + 1))
        pool = np.delete(pool, at)
        labels += budget.batch


def labels_share(asked: FloatArray, random: FloatArray, batch: int) -> float:
    """Return labels asked for to reach the last error of random ones, as a share; inf if never."""
    reached = np.flatnonzero(asked.mean(axis=0) <= random.mean(axis=0)[-1])
    if not len(reached):
        return float("inf")
    labels = FIRST_LABELS + batch * np.array([reached[0], random.shape[1] - 1])
    return float(labels[0] / labels[1])


def main() -> int:
    """Run all sets, and print one line each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data")
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--sets", nargs="*", default=list(SETS))
    options = parser.parse_args()
    data, missed = folder(options.data), 0
    for name in options.sets:
        budget = SETS[name]
        asked, random = (
            np.array([run(data, name, seed, asks) for seed in range(options.repeats)])
            for asks in (True, False)
        )
        share = labels_share(asked, random, budget.batch)
        rng = np.random.default_rng(0)
        samples = [rng.integers(options.repeats, size=options.repeats) for _ in range(200)]
        shares = np.array([labels_share(asked[at], random[at], budget.batch) for at in samples])
        spread = float(np.std(np.minimum(shares, 2.0)))
        mark = "    "
        if budget.limit is not None:
            mark = "ok  " if share <= budget.limit else "MISS"
            missed += mark == "MISS"
        print(
            f"{mark} {name}: {100 * share:.0f} % +- {100 * spread:.0f} of {budget.labels} random "
            f"labels; error at the end: asked {asked.mean(axis=0)[-1]:.4g}, "
            f"random {random.mean(axis=0)[-1]:.4g}",
            flush=True,
        )
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
