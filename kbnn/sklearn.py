"""Estimators for scikit-learn: `KBNNRegressor` and `KBNNClassifier`.

    from kbnn.sklearn import KBNNRegressor
    mean, sd = KBNNRegressor().fit(X, y).predict(X, return_std=True)

Numbers may be missing (NaN). If X holds text, categories, times or durations, its columns are
treated as in a file for `kbnn train`: categories (new ones may appear later), a clock, numbers (a
duration is its seconds). Ignored data raise a UserWarning. `partial_fit` continues after `fit` or
`partial_fit`. Any number of threads may predict and learn, see `kbnn.Model`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import date, timedelta
from decimal import Decimal
from threading import RLock
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    _check_feature_names,
    _check_n_features,
    _check_sample_weight,
    check_array,
    check_consistent_length,
    check_is_fitted,
    column_or_1d,
    validate_data,
)

from kbnn.api import arrays
from kbnn.api.estimator_parameters import (
    EstimatorParameter,
    add_parameters,
    find_parameters,
)
from kbnn.api.forecasts import Forecasts
from kbnn.api.notices import log_notice
from kbnn.array_types import FloatArray
from kbnn.data.batch import Rows, take_rows
from kbnn.data.inputs import to_arrow_table
from kbnn.data.schema import MAX_CLASSES
from kbnn.errors import KbnnError
from kbnn.targets.registry import DeclaredTarget, declare_class_target, declare_numeric_target


def _is_table(X: Any) -> bool:
    """Return whether X holds anything but numbers, so that its cells must be decoded."""
    if isinstance(X, pa.Table):
        return True
    if hasattr(X, "dtypes") and hasattr(X, "columns"):
        return not all(map(_is_number, X.dtypes))
    kind = getattr(getattr(X, "dtype", None), "kind", "")
    return kind in ("m", "M", "U") or (
        kind == "O" and any(isinstance(v, str | date | timedelta | Decimal) for v in np.ravel(X))
    )


def _is_number(dtype: Any) -> bool:
    """Return whether the type of a DataFrame's column is numeric or boolean."""
    numeric = getattr(dtype, "is_numeric", None)  # polars has a method for it
    if callable(numeric):
        return bool(numeric()) or str(dtype) == "Boolean"
    return getattr(dtype, "kind", "O") in "iufb"


def _as_table(X: Any, names: list[str]) -> pa.Table:
    """Convert X to an Arrow table with these column names."""
    if isinstance(X, np.ndarray):
        columns = X if X.dtype.kind in "mM" else X.astype(object)
        return to_arrow_table({name: columns[:, at] for at, name in enumerate(names)})
    if _has_times_as_index(X):
        X = X.reset_index(drop=True)
    return to_arrow_table(X).rename_columns(names)


def _convert_durations(y: Any) -> Any:
    """Convert targets that are durations to seconds, as in tables; others stay as they are."""
    values = np.asarray(y)
    if values.dtype.kind != "m":
        return y
    seconds = values / np.timedelta64(1, "s")
    return np.asarray(seconds, np.float64)


def _list_category_columns(X: Any, names: list[str]) -> list[str]:
    """List the columns of a DataFrame with a categorical type, whatever their values look like."""
    dtypes = [str(dtype).split("(")[0].lower() for dtype in getattr(X, "dtypes", ())]
    return [name for name, dtype in zip(names, dtypes, strict=False) if dtype in _CATEGORY_DTYPES]


def _has_times_as_index(X: Any) -> bool:
    return type(getattr(X, "index", None)).__name__ in ("DatetimeIndex", "PeriodIndex")


_CATEGORY_DTYPES: Final = ("category", "categorical", "enum")

_NETWORK: Final = {name: one for name, one in find_parameters().items() if name != "seed"}
_PARAMETERS: Final = {
    **_NETWORK,
    "epochs": EstimatorParameter(1, "Set the number of passes of `fit`."),
    "shuffle": EstimatorParameter(True, "Shuffle the rows in `fit`."),
    "random_state": EstimatorParameter(0, "Seed the first weights and the shuffling."),
}


_CLASS_PARAMETERS: Final = {
    **_PARAMETERS,
    "class_weight": EstimatorParameter(None, "Weigh classes: None, 'balanced' or a dict."),
}


class _SklearnEstimator(BaseEstimator):  # type: ignore[misc]  # scikit-learn is untyped
    """Base of both estimators: parameters, passes, and conversion of rows."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    def _build_keywords(self) -> Any:
        """Return the parameters as options of `kbnn.Model`."""
        seed = self.random_state
        if not isinstance(seed, int | np.integer):
            seed = check_random_state(seed).randint(2**31)
        made = {**{name: getattr(self, name) for name in _NETWORK}, "seed": int(seed)}
        if getattr(self, "class_weight", None) is not None:
            made["class_weight"] = self.class_weight
        return made

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit a new model; an earlier one is discarded.

        Parameters
        ----------
        X
            Features (rows, features): an array or a DataFrame; NaN is a missing value.
        y
            Targets (rows,) or (rows, targets), or classes (rows,).
        sample_weight
            Weight of each row; 0 leaves a row out.

        Returns
        -------
        Self
            The estimator itself.

        Raises
        ------
        ValueError
            If X, y or a parameter is invalid, or there are too many classes.

        Examples
        --------
        >>> from kbnn.sklearn import KBNNRegressor
        >>> KBNNRegressor(layers=5).fit([[1.0], [2.0], [3.0]], [2.0, 4.0, 6.0]).n_features_in_
        1
        """
        fitted: Self = self._fit(X, y, sample_weight, self.epochs, self.shuffle, new=True)
        return fitted

    def _check_features(self, X: Any, *, reset: bool) -> Any:
        """Validate X: float64, or a table if it holds text, times or other types."""
        if reset and _has_times_as_index(X):
            log_notice(
                f"the {type(X.index).__name__} of X is ignored, as scikit-learn ignores every "
                "index (X.reset_index() makes it a column)"
            )
        if not _is_table(X):
            return validate_data(
                self, X, reset=reset, dtype=np.float64, order="C", ensure_all_finite="allow-nan"
            )
        _check_feature_names(self, X, reset=reset)
        _check_n_features(self, X, reset=reset)
        names = self._list_feature_names()
        if reset:
            self._categorical = _list_category_columns(X, names)
        with _raise_value_errors():
            return _as_table(X, names)

    def _list_feature_names(self) -> list[str]:
        """List the names of the features; x0, x1, ... if X has none."""
        names = getattr(self, "feature_names_in_", None)
        return [f"x{at}" for at in range(self.n_features_in_)] if names is None else list(names)

    def _create_model(self, X: Any, targets: int, target: DeclaredTarget) -> None:
        """Create `model_` for the columns of X."""
        known = self._list_feature_names()
        wanted = ["y"] if targets == 1 else [f"y{at}" for at in range(targets)]
        names_of_targets = [f"{name}_" if name in known else name for name in wanted]
        with _raise_value_errors():
            self.model_ = (
                arrays.new_table_model(
                    X, names_of_targets, target, self._build_keywords(), self._categorical
                )
                if isinstance(X, pa.Table)
                else arrays.new_model(known, names_of_targets, target, self._build_keywords())
            )

    def _encode_rows(self, X: Any, *, admit: bool) -> Rows:
        """Encode X; `admit` allows new categories."""
        if isinstance(X, pa.Table) or not arrays.takes_numbers(self.model_):
            table = X if isinstance(X, pa.Table) else _as_table(X, self._list_feature_names())
            return arrays.encode_table(self.model_, table, admit=admit)
        return arrays.rows_from_numbers(X)

    def _check_weights(self, weight: Any, X: Any) -> FloatArray | None:
        """Validate the sample weights; none may be negative."""
        if weight is None:
            return None
        found: FloatArray = np.asarray(_check_sample_weight(weight, X), np.float64)
        if np.any(found < 0.0):
            row = int(np.argmax(found < 0.0))
            raise ValueError(
                f"sample_weight[{row}] is {found[row]:g}: a weight cannot be negative "
                "(0 leaves a row out)"
            )
        return found

    def _learn(self, X: Any, y: FloatArray, weight: Any, epochs: int, shuffle: bool) -> None:
        """Learn rows in `epochs` passes; rows of weight 0 are left out."""
        chosen = np.arange(len(y)) if weight is None else np.flatnonzero(weight > 0.0)
        draw = check_random_state(self.random_state)
        with _raise_value_errors(), self.model_._learning_lock:
            rows = self._encode_rows(X, admit=True)
            for epoch in range(epochs):
                order = draw.permutation(chosen) if shuffle else chosen
                some = None if weight is None else weight[order]
                arrays.learn_rows(
                    self.model_, take_rows(rows, order), y[order], some, again=epoch > 0
                )

    def _predict_rows(self, X: Any) -> Forecasts:
        check_is_fitted(self, "model_")
        X = self._check_features(X, reset=False)
        with _raise_value_errors():
            return arrays.predict_rows(self.model_, lambda: self._encode_rows(X, admit=False))


@add_parameters(_PARAMETERS, positional=1)
class KBNNRegressor(RegressorMixin, _SklearnEstimator):  # type: ignore[misc]  # scikit-learn is untyped
    """Bayesian neural network for regression, with standard deviations and intervals.

    `fit` shuffles the rows and makes `epochs` passes; `partial_fit` learns the rows in their order,
    once.

    Attributes
    ----------
    model_
        The fitted `kbnn.Model`.
    n_features_in_
        Number of features.
    feature_names_in_
        Names of the features, if X has names.

    Examples
    --------
    >>> import numpy as np
    >>> from kbnn.sklearn import KBNNRegressor
    >>> X = np.linspace(-2.0, 2.0, 200)[:, None]
    >>> model = KBNNRegressor(layers=10).fit(X, 3.0 * X[:, 0])
    >>> model.score(X, 3.0 * X[:, 0]) > 0.9
    True
    """

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Learn further rows once, in their order.

        Parameters
        ----------
        X
            Features (rows, features).
        y
            Targets (rows,) or (rows, targets).
        sample_weight
            Weight of each row; 0 leaves a row out.

        Returns
        -------
        KBNNRegressor
            The estimator itself.

        Raises
        ------
        ValueError
            If X or y is invalid, or their shape differs from the first call.

        Examples
        --------
        >>> from kbnn.sklearn import KBNNRegressor
        >>> model = KBNNRegressor(layers=5).partial_fit([[1.0], [2.0]], [2.0, 4.0])
        >>> model.partial_fit([[3.0]], [6.0]).model_.rows
        3
        """
        with _lock_first_call(self):
            return self._fit(X, y, sample_weight, 1, False, new=not hasattr(self, "model_"))

    def _fit(self, X: Any, y: Any, weight: Any, epochs: int, shuffle: bool, *, new: bool) -> Self:
        """Validate and learn the rows; `new` creates the model first."""
        X = self._check_features(X, reset=new)
        if y is None:
            raise ValueError("KBNNRegressor requires y to be passed, but the target y is None")
        y = check_array(
            _convert_durations(y), dtype=np.float64, ensure_2d=False, input_name="y", order="C"
        )
        check_consistent_length(X, y)
        weight = self._check_weights(weight, X)
        if new:
            self._shape = y.shape[1:]
            self._create_model(X, 1 if y.ndim == 1 else y.shape[1], declare_numeric_target())
        elif y.shape[1:] != self._shape:
            raise ValueError(f"y has the shape {y.shape}, not (rows, {self._shape})")
        self._learn(X, y.reshape(len(y), -1), weight, epochs, shuffle)
        return self

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Predict the means, and on request the standard deviations.

        Parameters
        ----------
        X
            Features (rows, features).
        return_std
            Whether to return the standard deviations of the predictive distributions too.

        Returns
        -------
        ndarray or tuple of ndarray
            Means in the shape of y; with `return_std` the pair (mean, sd).

        Raises
        ------
        ValueError
            If X is invalid.

        Examples
        --------
        >>> from kbnn.sklearn import KBNNRegressor
        >>> model = KBNNRegressor(layers=5).fit([[1.0], [2.0], [3.0]], [2.0, 4.0, 6.0])
        >>> mean, sd = model.predict([[1.5], [2.5]], return_std=True)
        >>> mean.shape, sd.shape
        ((2,), (2,))
        """
        made = self._predict_rows(X)
        mean = self._restore_shape(made.mean)
        return (mean, self._restore_shape(made.sd)) if return_std else mean

    def predict_interval(self, X: Any, coverage: float = 0.9) -> FloatArray:
        """Predict central intervals.

        Parameters
        ----------
        X
            Features (rows, features).
        coverage
            Probability of the intervals, between 0 and 1.

        Returns
        -------
        ndarray
            Lower and upper ends along the last axis: (rows, 2) or (rows, targets, 2).

        Raises
        ------
        ValueError
            If X is invalid or `coverage` is not between 0 and 1.

        Examples
        --------
        >>> from kbnn.sklearn import KBNNRegressor
        >>> model = KBNNRegressor(layers=5).fit([[1.0], [2.0], [3.0]], [2.0, 4.0, 6.0])
        >>> model.predict_interval([[1.5], [2.5]], coverage=0.8).shape
        (2, 2)
        """
        return self.predict_quantiles(X, (0.5 - 0.5 * coverage, 0.5 + 0.5 * coverage))

    def predict_quantiles(self, X: Any, quantiles: Any = (0.05, 0.5, 0.95)) -> FloatArray:
        """Predict quantiles.

        Parameters
        ----------
        X
            Features (rows, features).
        quantiles
            Levels, each between 0 and 1.

        Returns
        -------
        ndarray
            Quantiles along the last axis: (rows, levels) or (rows, targets, levels).

        Raises
        ------
        ValueError
            If X is invalid or a level is not between 0 and 1.

        Examples
        --------
        >>> from kbnn.sklearn import KBNNRegressor
        >>> model = KBNNRegressor(layers=5).fit([[1.0], [2.0], [3.0]], [2.0, 4.0, 6.0])
        >>> model.predict_quantiles([[1.5]], quantiles=[0.1, 0.5, 0.9]).shape
        (1, 3)
        """
        made = self._predict_rows(X)
        with _raise_value_errors():
            return np.stack(
                [self._restore_shape(made.quantile(float(q))) for q in quantiles], axis=-1
            )

    def _restore_shape(self, values: FloatArray) -> FloatArray:
        return np.asarray(values.reshape(len(values), *self._shape))


@add_parameters(_CLASS_PARAMETERS, positional=1)
class KBNNClassifier(ClassifierMixin, _SklearnEstimator):  # type: ignore[misc]  # scikit-learn is untyped
    """Bayesian neural network for classification, with calibrated probabilities.

    The first call of `partial_fit` needs all `classes`.

    Attributes
    ----------
    model_
        The fitted `kbnn.Model`.
    classes_
        The classes, sorted.

    Examples
    --------
    >>> import numpy as np
    >>> from kbnn.sklearn import KBNNClassifier
    >>> X = np.linspace(-2.0, 2.0, 200)[:, None]
    >>> y = np.where(X[:, 0] > 0.0, "warm", "cold")
    >>> KBNNClassifier(layers=10).fit(X, y).score(X, y) > 0.9
    True
    """

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Self:
        """Learn further rows once, in their order.

        Parameters
        ----------
        X
            Features (rows, features).
        y
            Classes (rows,).
        classes
            All classes; needed with the first call.
        sample_weight
            Weight of each row; 0 leaves a row out.

        Returns
        -------
        KBNNClassifier
            The estimator itself.

        Raises
        ------
        ValueError
            If X or y is invalid, `classes` is missing in the first call, or y has another class.

        Examples
        --------
        >>> from kbnn.sklearn import KBNNClassifier
        >>> model = KBNNClassifier(layers=5).partial_fit([[1.0]], ["a"], classes=["a", "b"])
        >>> model.partial_fit([[2.0]], ["b"]).model_.rows
        2
        """
        with _lock_first_call(self):
            new = not hasattr(self, "model_")
            if new and classes is None:
                raise ValueError("the first call of partial_fit needs all classes")
            return self._fit(X, y, sample_weight, 1, False, new=new, classes=classes)

    def _check_labels(self, X: Any, y: Any) -> Any:
        """Validate the labels and their number."""
        y = column_or_1d(y, warn=True)
        check_consistent_length(X, y)
        check_classification_targets(y)
        return y

    def _create_class_model(self, X: Any) -> None:
        """Create `model_`; classes without a unique text are named by their index."""
        names = [str(label).strip() for label in self.classes_.tolist()]
        if len(set(names)) < len(names) or "" in names:
            names = [str(at) for at in range(len(names))]
        if len(names) > MAX_CLASSES:
            raise ValueError(f"y has {len(names)} classes, at most {MAX_CLASSES} are supported")
        self._create_model(X, 1, declare_class_target(names))

    def _fit(
        self,
        X: Any,
        y: Any,
        weight: Any,
        epochs: int,
        shuffle: bool,
        *,
        new: bool,
        classes: Any = None,
    ) -> Self:
        """Learn the rows with the index of each label in `classes_`."""
        X, y = self._check_features(X, reset=new), self._check_labels(X, y)
        weight = self._check_weights(weight, X)
        if new:
            self.classes_ = np.unique(y if classes is None else classes)
            self._create_class_model(X)
        index = np.searchsorted(self.classes_, y)
        index = np.minimum(index, len(self.classes_) - 1)
        if not np.array_equal(self.classes_[index], y):
            raise ValueError("y has a class that is not among the classes of the first call")
        self._learn(X, index.astype(np.float64)[:, None], weight, epochs, shuffle)
        return self

    def predict_proba(self, X: Any) -> FloatArray:
        """Predict the probability of every class.

        Parameters
        ----------
        X
            Features (rows, features).

        Returns
        -------
        ndarray
            (rows, classes), in the order of `classes_`; each row sums to 1.

        Raises
        ------
        ValueError
            If X is invalid.

        Examples
        --------
        >>> from kbnn.sklearn import KBNNClassifier
        >>> model = KBNNClassifier(layers=5).fit([[1.0], [2.0], [3.0]], ["a", "b", "a"])
        >>> model.predict_proba([[1.5], [2.5]]).shape
        (2, 2)
        """
        made = self._predict_rows(X).probability
        return np.asarray(made / made.sum(axis=1, keepdims=True))

    def predict(self, X: Any) -> Any:
        """Predict the most probable class.

        Parameters
        ----------
        X
            Features (rows, features).

        Returns
        -------
        ndarray
            Classes (rows,).

        Raises
        ------
        ValueError
            If X is invalid.

        Examples
        --------
        >>> import numpy as np
        >>> from kbnn.sklearn import KBNNClassifier
        >>> X = np.linspace(-2.0, 2.0, 200)[:, None]
        >>> model = KBNNClassifier(layers=10).fit(X, np.where(X[:, 0] > 0.0, "warm", "cold"))
        >>> model.predict([[-1.5], [1.5]]).tolist()
        ['cold', 'warm']
        """
        best = np.argmax(self.predict_proba(X), axis=1)
        return self.classes_[best]


def _lock_first_call(estimator: _SklearnEstimator) -> AbstractContextManager[Any]:
    """Let one thread at a time create an estimator's model; later calls take no lock here."""
    return nullcontext() if hasattr(estimator, "model_") else _first_call_lock


_first_call_lock: Final = RLock()


@contextmanager
def _raise_value_errors() -> Iterator[None]:
    """Turn kbnn's errors into ValueError, as scikit-learn's conventions ask."""
    try:
        yield
    except KbnnError as error:
        raise ValueError(str(error)) from error
