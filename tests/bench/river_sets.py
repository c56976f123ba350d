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


def scaled(model: Any) -> Any:
    """With the scaler that linear models and neighbours want."""
    return preprocessing.StandardScaler() | model


def regressors() -> dict[str, Callable[[], Any]]:
    """Ours and river's, made anew for each set."""
    return {
        OURS: KBNNRegressor,
        "linear": lambda: scaled(linear_model.LinearRegression()),
        "linear, Adam": lambda: scaled(linear_model.LinearRegression(optim.Adam(0.1))),
        "Bayesian linear": lambda: scaled(linear_model.BayesianLinearRegression()),
        "passive aggressive": lambda: scaled(linear_model.PARegressor()),
        "neighbours": lambda: scaled(neighbors.KNNRegressor()),
        "Hoeffding tree": tree.HoeffdingTreeRegressor,
        "Hoeffding adaptive tree": lambda: tree.HoeffdingAdaptiveTreeRegressor(seed=0),
        "SGT": tree.SGTRegressor,
        "adaptive random forest": lambda: forest.ARFRegressor(seed=0),
        "Mondrian forest": lambda: forest.AMFRegressor(seed=0),
        "SRP of trees": lambda: ensemble.SRPRegressor(tree.HoeffdingTreeRegressor(), seed=0),
        "bagged trees": lambda: ensemble.BaggingRegressor(tree.HoeffdingTreeRegressor(), seed=0),
        "mean so far": lambda: dummy.StatisticRegressor(stats.Mean()),
    }


def classifiers() -> dict[str, Callable[[], Any]]:
    """Ours and river's."""
    return {
        OURS: KBNNClassifier,
        "logistic": lambda: scaled(
            multiclass.OneVsRestClassifier(linear_model.LogisticRegression())
        ),
        "softmax": lambda: scaled(linear_model.SoftmaxRegression()),
        "passive aggressive": lambda: scaled(
            multiclass.OneVsRestClassifier(linear_model.PAClassifier())
        ),
        "neighbours": lambda: scaled(neighbors.KNNClassifier()),
        "naive Bayes": naive_bayes.GaussianNB,
        "Hoeffding tree": tree.HoeffdingTreeClassifier,
        "Hoeffding adaptive tree": lambda: tree.HoeffdingAdaptiveTreeClassifier(seed=0),
        "adaptive random forest": lambda: forest.ARFClassifier(seed=0),
        "Mondrian forest": lambda: forest.AMFClassifier(seed=0),
        "SRP of trees": lambda: ensemble.SRPClassifier(tree.HoeffdingTreeClassifier(), seed=0),
        "leveraging bagging": lambda: ensemble.LeveragingBaggingClassifier(
            tree.HoeffdingTreeClassifier(), seed=0
        ),
    }


SETS: dict[str, tuple[Any, Callable[[], Any], bool]] = {
    "TrumpApproval": (datasets.TrumpApproval, metrics.RMSE, False),
    "ChickWeights": (datasets.ChickWeights, metrics.RMSE, False),
    "Phishing": (datasets.Phishing, metrics.Accuracy, True),
    "ImageSegments": (datasets.ImageSegments, metrics.Accuracy, True),
}


def main() -> int:
    """Print each set's best; 1 when ours is not the first."""
    best_of_all = True
    for name, (stream, metric, classes) in SETS.items():
        found = []
        for title, make in (classifiers() if classes else regressors()).items():
            start = process_time()
            first, *rest = stream()
            model = make()
            model.learn_one(*first)
            score = evaluate.progressive_val_score(rest, model, metric()).get()
            found.append((-score if classes else score, title, score, process_time() - start))
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
