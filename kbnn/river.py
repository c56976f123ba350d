"""Estimators for river: `KBNNRegressor` and `KBNNClassifier`.

    from kbnn.river import KBNNRegressor
    model = KBNNRegressor()
    for x, y in stream:
        distribution = model.predict_one(x, with_dist=True)
        model.learn_one(x, y)

No scaler and no encoder goes before them: numbers, truth values and text are taken as they are.
Features may come late, vanish, or come in any order.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

from river import base, proba

from kbnn.api.arrays import learn_block
from kbnn.api.online_model import Model
from kbnn.data.row_encoder import value_to_text
from kbnn.workflows.options import ModelKeywords

if TYPE_CHECKING:
    import pandas as pd

_first_row_lock: Final = Lock()
"""Of several threads that learn first rows one makes the model."""
_BOOLEAN_LABELS: Final[dict[str, Hashable]] = {"false": False, "true": True}


class _RiverEstimator(base.Estimator):  # type: ignore[misc]  # river is untyped
    """What both estimators share."""

    def __init__(
        self,
        layers: Any = 50,
        activation: str = "relu",
        covariance: str = "auto",
        group_size: int | None = None,
        noise: str | float = "auto",
        robust: bool = True,
        drift: bool = True,
        ensemble: int = 1,
        rehearse: str | int = "auto",
        seed: int = 0,
        lags: str | None = None,
        task: str = "auto",
    ) -> None:
        self.layers = layers
        self.activation = activation
        self.covariance = covariance
        self.group_size = group_size
        self.noise = noise
        self.robust = robust
        self.drift = drift
        self.ensemble = ensemble
        self.rehearse = rehearse
        self.seed = seed
        self.lags = lags
        self.task = task
        self.model: Model | None = None

    @property
    def _supervised(self) -> bool:
        return True

    def _get_or_create_model(self, x: Mapping[str, Any]) -> Model:
        """The model, made when the first row has come."""
        with _first_row_lock:
            if self.model is not None:
                return self.model
            target = "target"
            while target in x:
                target += "_"
            words: ModelKeywords = {
                "task": self.task,
                "layers": self.layers,
                "activation": self.activation,
                "covariance": self.covariance,
                "noise": self.noise,
                "robust": self.robust,
                "drift": self.drift,
                "ensemble": self.ensemble,
                "rehearse": self.rehearse,
                "seed": 0 if self.seed is None else self.seed,
            }
            if self.group_size is not None:
                words["group_size"] = self.group_size
            if self.lags is not None:
                words["lags"] = self.lags
            self.model = Model(target, **words)
            return self.model

    def _learn(self, x: Mapping[Any, Any], y: Any, w: float) -> None:
        x = _stringify_names(x)
        model = self.model
        if model is None:
            x = dict(sorted(x.items()))  # the order of features means nothing
            model = self._get_or_create_model(x)
        model.learn_one(x, y, w)

    def _learn_many(self, X: pd.DataFrame, y: list[Any]) -> None:
        if self.model is not None and learn_block(self.model, X, y):
            return
        for x, one in zip(X.to_dict("records"), y, strict=True):
            self._learn(x, one, 1.0)


def _stringify_names(x: Mapping[Any, Any]) -> Mapping[str, Any]:
    """The features by names that are texts."""
    for name in x:
        if type(name) is not str:
            return {str(key): value for key, value in x.items()}
        break
    return x


class KBNNRegressor(_RiverEstimator, base.MiniBatchRegressor):  # type: ignore[misc]  # river is untyped
    """Online Bayesian neural network for regression, with error bars.

    Parameters
    ----------
    layers
        Hidden layers: 50, or (50, 50), or () for a linear model.
    activation
        Of the hidden units.
    covariance
        Which weights are correlated: auto, neuron, group, full or paper.
    group_size
        Hidden units of one group.
    noise
        auto (may depend on the input), constant, or a standard deviation in the target's units.
    robust
        Whether outliers count less.
    drift
        Whether the model forgets when the stream changes.
    ensemble
        Networks that predict together.
    rehearse
        How often each of the first rows is learned once more: auto, off or a number.
    seed
        Of the first weights.
    lags
        Targets of rows before to learn from: "1,2,24".
    task
        What kind of number the target is: regression (any), positive, count, amount, or auto.

    Examples
    --------
    >>> from river import datasets, evaluate, metrics
    >>> from kbnn.river import KBNNRegressor
    >>> stream = datasets.TrumpApproval().take(200)
    >>> score = evaluate.progressive_val_score(stream, KBNNRegressor(), metrics.MAE())
    >>> score.get() < 1.0
    True

    """

    def learn_one(self, x: dict[Any, Any], y: float, w: float = 1.0) -> None:
        """Learn a row, which counts `w` times."""
        self._learn(x, y, w)

    def predict_one(self, x: dict[Any, Any], with_dist: bool = False) -> Any:
        """The expected value, 0 before the first row; `with_dist`: a Gaussian."""
        mean, sd = 0.0, 1.0
        if self.model is not None:
            said = self.model.predict_one(_stringify_names(x))
            if math.isfinite(said.mean):
                mean, sd = said.mean, said.sd
        if not with_dist:
            return mean
        return proba.Gaussian._from_state(n=1, m=mean, var=sd * sd, ddof=0)

    def learn_many(self, X: pd.DataFrame, y: pd.Series) -> None:
        """Learn the rows of a table, in order."""
        self._learn_many(X, y.tolist())

    def predict_many(self, X: pd.DataFrame) -> pd.Series:
        """The expected values."""
        import pandas as pd

        said = [self.predict_one(x) for x in X.to_dict("records")]
        return pd.Series(said, index=X.index, dtype="float64")


class KBNNClassifier(_RiverEstimator, base.MiniBatchClassifier):  # type: ignore[misc]  # river is untyped
    """Online Bayesian neural network for classification, with calibrated probabilities.

    Classes are learned of as they come. The parameters are those of `KBNNRegressor`.

    Examples
    --------
    >>> from river import datasets, evaluate, metrics
    >>> from kbnn.river import KBNNClassifier
    >>> stream = datasets.Phishing().take(300)
    >>> score = evaluate.progressive_val_score(stream, KBNNClassifier(), metrics.Accuracy())
    >>> score.get() > 0.8
    True

    """

    def __init__(
        self,
        layers: Any = 50,
        activation: str = "relu",
        covariance: str = "auto",
        group_size: int | None = None,
        noise: str | float = "auto",
        robust: bool = True,
        drift: bool = True,
        ensemble: int = 1,
        rehearse: str | int = "auto",
        seed: int = 0,
    ) -> None:
        super().__init__(
            layers,
            activation,
            covariance,
            group_size,
            noise,
            robust,
            drift,
            ensemble,
            rehearse,
            seed,
            task="classification",
        )
        self._labels: dict[str, Hashable] = {}

    @property
    def _multiclass(self) -> bool:
        return True

    def _remember_label(self, y: Hashable) -> None:
        """Remember a label as it was given: the model knows it as text."""
        self._labels.setdefault(value_to_text(y) or "", y)

    def learn_one(self, x: dict[Any, Any], y: Hashable, w: float = 1.0) -> None:
        """Learn a row, which counts `w` times."""
        self._remember_label(y)
        self._learn(x, y, w)

    def predict_proba_one(self, x: dict[Any, Any]) -> dict[Any, float]:
        """The probability of every class known; none before the first row."""
        if self.model is None:
            return {}
        said = self.model.predict_one(_stringify_names(x)).probability
        total = sum(said.values())
        return {self._original_label(name): share / total for name, share in said.items()}

    def _original_label(self, name: str) -> Hashable:
        return self._labels[name] if name in self._labels else _BOOLEAN_LABELS.get(name, name)

    def learn_many(self, X: pd.DataFrame, y: pd.Series) -> None:
        """Learn the rows of a table, in order."""
        labels = y.tolist()
        for label in labels:
            self._remember_label(label)
        self._learn_many(X, labels)

    def predict_proba_many(self, X: pd.DataFrame) -> pd.DataFrame:
        """The probability of every class known."""
        import pandas as pd

        said = [self.predict_proba_one(x) for x in X.to_dict("records")]
        return pd.DataFrame(said, index=X.index)
