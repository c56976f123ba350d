"""Estimators for river: `KBNNRegressor` and `KBNNClassifier`.

    from kbnn.river import KBNNRegressor
    model = KBNNRegressor()
    for x, y in stream:
        distribution = model.predict_one(x, with_dist=True)
        model.learn_one(x, y)

They need no scaler and no encoder: numbers, truth values and text are used as they are. Features
may appear late, disappear, or come in any order.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

from river import base, proba

from kbnn.api.arrays import learn_block
from kbnn.api.estimator_parameters import add_parameters, find_parameters
from kbnn.api.online_model import Model
from kbnn.data.values import value_to_text

if TYPE_CHECKING:
    import pandas as pd

_first_row_lock: Final = Lock()
"""Lets only one of several threads create the model from its first row."""
_BOOLEAN_LABELS: Final[dict[str, Hashable]] = {"false": False, "true": True}
_NETWORK: Final = find_parameters()
_PARAMETERS: Final = find_parameters("lags", "task")


class _RiverEstimator(base.Estimator):  # type: ignore[misc]  # river is untyped
    """Base of both estimators: parameters, and learning."""

    model: Model | None = None
    """The model; None before the first row."""

    @property
    def _supervised(self) -> bool:
        return True

    def _get_or_create_model(self, x: Mapping[str, Any]) -> Model:
        """Return the model; create it with the first row."""
        with _first_row_lock:
            if self.model is not None:
                return self.model
            target = "target"
            while target in x:
                target += "_"
            words: Any = {name: getattr(self, name) for name in _PARAMETERS}
            self.model = Model(target, **words)
            return self.model

    def learn_one(self, x: dict[Any, Any], y: Any, w: float = 1.0) -> None:
        """Learn one row.

        Parameters
        ----------
        x
            Features by name.
        y
            The target, or the class.
        w
            Weight of the row.

        Raises
        ------
        DataError
            If a value cannot be read; the model stays as it was.

        Examples
        --------
        >>> from kbnn.river import KBNNRegressor
        >>> model = KBNNRegressor(layers=5)
        >>> model.learn_one({"x": 1.0, "color": "red"}, 2.5)
        >>> model.model.rows
        1
        """
        self._remember_label(y)
        features = _stringify_names(x)
        model = self.model
        if model is None:
            features = dict(sorted(features.items()))  # columns must not depend on the dict's order
            model = self._get_or_create_model(features)
        model.learn_one(features, y, w)

    def learn_many(self, X: pd.DataFrame, y: pd.Series) -> None:
        """Learn the rows of a table, in order.

        Parameters
        ----------
        X
            Features, one column each.
        y
            The target or the class of each row.

        Raises
        ------
        DataError
            If a value cannot be read; the rows before it are learned.

        Examples
        --------
        >>> import pandas as pd
        >>> from kbnn.river import KBNNClassifier
        >>> model = KBNNClassifier(layers=5)
        >>> model.learn_many(pd.DataFrame({"x": [1.0, 2.0]}), pd.Series(["red", "blue"]))
        >>> sorted(model.model.classes)
        ['blue', 'red']
        """
        targets = y.tolist()
        for target in targets:
            self._remember_label(target)
        if self.model is not None and learn_block(self.model, X, targets):
            return
        for x, target in zip(X.to_dict("records"), targets, strict=True):
            self.learn_one(x, target)

    def _remember_label(self, y: Any) -> None:
        """Remember a label as it was given, if the target is a class."""


def _stringify_names(x: Mapping[Any, Any]) -> Mapping[str, Any]:
    """Return the features with their names as text."""
    for name in x:
        if type(name) is not str:
            return {str(key): value for key, value in x.items()}
        break
    return x


@add_parameters(_PARAMETERS, positional=len(_PARAMETERS))
class KBNNRegressor(_RiverEstimator, base.MiniBatchRegressor):  # type: ignore[misc]  # river is untyped
    """Online Bayesian neural network for regression, with standard deviations.

    Examples
    --------
    >>> from river import datasets, evaluate, metrics
    >>> from kbnn.river import KBNNRegressor
    >>> stream = datasets.TrumpApproval().take(200)
    >>> score = evaluate.progressive_val_score(stream, KBNNRegressor(), metrics.MAE())
    >>> score.get() < 1.0
    True
    """

    def predict_one(self, x: dict[Any, Any], with_dist: bool = False) -> Any:
        """Predict one row.

        Parameters
        ----------
        x
            Features by name.
        with_dist
            Whether to return a Gaussian instead of the mean.

        Returns
        -------
        float or river.proba.Gaussian
            The mean, or the Gaussian with the predicted mean and variance; mean 0 and variance 1
            before the first row.

        Examples
        --------
        >>> from kbnn.river import KBNNRegressor
        >>> model = KBNNRegressor(layers=5)
        >>> model.predict_one({"x": 1.0})
        0.0
        >>> model.predict_one({"x": 1.0}, with_dist=True).sigma
        1.0
        """
        mean, sd = 0.0, 1.0
        if self.model is not None:
            made = self.model.predict_one(_stringify_names(x))
            if math.isfinite(made.mean):
                mean, sd = made.mean, made.sd
        if not with_dist:
            return mean
        return proba.Gaussian._from_state(n=1, m=mean, var=sd * sd, ddof=0)

    def predict_many(self, X: pd.DataFrame) -> pd.Series:
        """Predict the rows of a table.

        Parameters
        ----------
        X
            Features, one column each.

        Returns
        -------
        pandas.Series
            The means, with the index of X.

        Examples
        --------
        >>> import pandas as pd
        >>> from kbnn.river import KBNNRegressor
        >>> KBNNRegressor(layers=5).predict_many(pd.DataFrame({"x": [1.0, 2.0]})).tolist()
        [0.0, 0.0]
        """
        import pandas as pd

        means = [self.predict_one(x) for x in X.to_dict("records")]
        return pd.Series(means, index=X.index, dtype="float64")


@add_parameters(_NETWORK, positional=len(_NETWORK))
class KBNNClassifier(_RiverEstimator, base.MiniBatchClassifier):  # type: ignore[misc]  # river is untyped
    """Online Bayesian neural network for classification, with calibrated probabilities.

    New classes may appear at any time.

    Examples
    --------
    >>> from river import datasets, evaluate, metrics
    >>> from kbnn.river import KBNNClassifier
    >>> stream = datasets.Phishing().take(300)
    >>> score = evaluate.progressive_val_score(stream, KBNNClassifier(), metrics.Accuracy())
    >>> score.get() > 0.8
    True
    """

    task = "classification"
    lags = None

    @property
    def _multiclass(self) -> bool:
        return True

    def _remember_label(self, y: Hashable) -> None:
        """Remember the original label; the model stores its text."""
        labels: dict[str, Hashable] = self.__dict__.setdefault("_labels", {})
        labels.setdefault(value_to_text(y) or "", y)

    def predict_proba_one(self, x: dict[Any, Any]) -> dict[Any, float]:
        """Predict the probability of every known class.

        Parameters
        ----------
        x
            Features by name.

        Returns
        -------
        dict
            Probability by class; empty before the first row.

        Examples
        --------
        >>> from kbnn.river import KBNNClassifier
        >>> model = KBNNClassifier(layers=5)
        >>> model.predict_proba_one({"x": 1.0})
        {}
        """
        if self.model is None:
            return {}
        shares = self.model.predict_one(_stringify_names(x)).probability
        total = sum(shares.values())
        return {self._original_label(name): share / total for name, share in shares.items()}

    def _original_label(self, name: str) -> Hashable:
        return self._labels[name] if name in self._labels else _BOOLEAN_LABELS.get(name, name)

    def predict_proba_many(self, X: pd.DataFrame) -> pd.DataFrame:
        """Predict the probability of every known class for the rows of a table.

        Parameters
        ----------
        X
            Features, one column each.

        Returns
        -------
        pandas.DataFrame
            One column per class, with the index of X.

        Examples
        --------
        >>> import pandas as pd
        >>> from kbnn.river import KBNNClassifier
        >>> model = KBNNClassifier(layers=5)
        >>> model.learn_many(pd.DataFrame({"x": [1.0, 2.0]}), pd.Series(["red", "blue"]))
        >>> model.predict_proba_many(pd.DataFrame({"x": [1.0, 2.0]})).shape
        (2, 2)
        """
        import pandas as pd

        shares = [self.predict_proba_one(x) for x in X.to_dict("records")]
        return pd.DataFrame(shares, index=X.index)
