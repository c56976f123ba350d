"""Progressive validation on river's own sets, beside river's own learners, in the same run.

    python -m tests.bench.river_sets

RMSE on TrumpApproval and ChickWeights, accuracy on Phishing and ImageSegments: each row is
predicted, then learned. The very first row is learned only: before it some say 0 and others
nothing. Learners that want it are given a scaler, ours gets none. Exit code 1 when one of river's
is better on a set.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from time import process_time
from typing import Any

from river import (
    datasets,
    dummy,
    ensemble,
    evaluate,
    forest,
    linear_model,
    metrics,
    multiclass,
    naive_bayes,
    neighbors,
    optim,
    preprocessing,
    stats,
    tree,
)

from kbnn.river import KBNNClassifier, KBNNRegressor

OURS = "kbnn"
SHOWN = 3
SEEDS = 5
"""Learners that draw are run with so many seeds, ours too, and their figures averaged."""


def scaled(model: Any) -> Any:
    """With the scaler that linear models and neighbours want."""
    return preprocessing.StandardScaler() | model


Makers = dict[str, Callable[[int], Any]]
"""By name, made anew for each set and seed."""


def drawing_regressors() -> Makers:
    """Ours, and those of river that draw."""
    trees = tree.HoeffdingTreeRegressor
    return {
        OURS: lambda seed: KBNNRegressor(seed=seed),
        "Hoeffding adaptive tree": lambda seed: tree.HoeffdingAdaptiveTreeRegressor(seed=seed),
        "adaptive random forest": lambda seed: forest.ARFRegressor(seed=seed),
        "Mondrian forest": lambda seed: forest.AMFRegressor(seed=seed),
        "SRP of trees": lambda seed: ensemble.SRPRegressor(trees(), seed=seed),
        "bagged trees": lambda seed: ensemble.BaggingRegressor(trees(), seed=seed),
    }


def other_regressors() -> Makers:
    """Those that draw nothing."""
    return {
        "linear": lambda _: scaled(linear_model.LinearRegression()),
        "linear, Adam": lambda _: scaled(linear_model.LinearRegression(optim.Adam(0.1))),
        "Bayesian linear": lambda _: scaled(linear_model.BayesianLinearRegression()),
        "passive aggressive": lambda _: scaled(linear_model.PARegressor()),
        "neighbours": lambda _: scaled(neighbors.KNNRegressor()),
        "Hoeffding tree": lambda _: tree.HoeffdingTreeRegressor(),
        "SGT": lambda _: tree.SGTRegressor(),
        "mean so far": lambda _: dummy.StatisticRegressor(stats.Mean()),
    }


def drawing_classifiers() -> Makers:
    """Ours, and those of river that draw."""
    trees = tree.HoeffdingTreeClassifier
    return {
        OURS: lambda seed: KBNNClassifier(seed=seed),
        "Hoeffding adaptive tree": lambda seed: tree.HoeffdingAdaptiveTreeClassifier(seed=seed),
        "adaptive random forest": lambda seed: forest.ARFClassifier(seed=seed),
        "Mondrian forest": lambda seed: forest.AMFClassifier(seed=seed),
        "SRP of trees": lambda seed: ensemble.SRPClassifier(trees(), seed=seed),
        "leveraging bagging": lambda seed: ensemble.LeveragingBaggingClassifier(trees(), seed=seed),
    }


def other_classifiers() -> Makers:
    """Those that draw nothing."""
    each = multiclass.OneVsRestClassifier
    return {
        "logistic": lambda _: scaled(each(linear_model.LogisticRegression())),
        "softmax": lambda _: scaled(linear_model.SoftmaxRegression()),
        "passive aggressive": lambda _: scaled(each(linear_model.PAClassifier())),
        "neighbours": lambda _: scaled(neighbors.KNNClassifier()),
        "naive Bayes": lambda _: naive_bayes.GaussianNB(),
        "Hoeffding tree": lambda _: tree.HoeffdingTreeClassifier(),
    }


SETS: dict[str, tuple[Any, Callable[[], Any], bool]] = {
    "TrumpApproval": (datasets.TrumpApproval, metrics.RMSE, False),
    "ChickWeights": (datasets.ChickWeights, metrics.RMSE, False),
    "Phishing": (datasets.Phishing, metrics.Accuracy, True),
    "ImageSegments": (datasets.ImageSegments, metrics.Accuracy, True),
}


def scored(stream: Any, model: Any, metric: Any) -> float:
    """What a learner reaches on all rows but the first, which it is given."""
    first, *rest = stream
    model.learn_one(*first)
    return float(evaluate.progressive_val_score(rest, model, metric).get())


def main() -> int:
    """Print each set's best; 1 when ours is not the first."""
    best_of_all = True
    for name, (stream, metric, classes) in SETS.items():
        found = []
        drawing = drawing_classifiers() if classes else drawing_regressors()
        others = other_classifiers() if classes else other_regressors()
        for title, make in {**drawing, **others}.items():
            start = process_time()
            seeds = SEEDS if title in drawing else 1
            scores = [scored(stream(), make(seed), metric()) for seed in range(seeds)]
            score = sum(scores) / seeds
            spent = (process_time() - start) / seeds
            found.append((-score if classes else score, title, score, spent))
        found.sort()
        ours = next(at for at, row in enumerate(found) if row[1] == OURS)
        best_of_all &= ours == 0
        print(f"\n{name}, {type(metric()).__name__}")
        for at, (_, title, score, seconds) in enumerate(found):
            if at <= SHOWN or title == OURS:
                print(f"  {at + 1:>2}. {title:<26}{score:>9.4f}  {seconds:>6.1f} s", flush=True)
    print("\nours is the best on every set" if best_of_all else "\nOURS IS NOT THE BEST EVERYWHERE")
    return 0 if best_of_all else 1


if __name__ == "__main__":
    sys.exit(main())
