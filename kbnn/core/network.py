"""The public face of the numerical core: predict, then learn, in standardised units.

>>> import numpy as np
>>> state = init(Config(inputs=1, hidden=(20,)), seed=1)
>>> x = np.linspace(-2.0, 2.0, 500)[:, None]
>>> state, _ = learn(state, np.random.default_rng(0).permutation(x), np.zeros(500))
>>> predict(state, x).mean.shape
(500, 1)
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import ArrayLike

from kbnn.core import engine
from kbnn.core.config import Config
from kbnn.core.engine import Session
from kbnn.core.normal import FloatArray
from kbnn.core.state import State, init
from kbnn.core.twin import ALARM, LEARNED, REJECTED, UNLABELLED
from kbnn.core.twin import Records as Prediction

__all__ = [
    "ALARM",
    "LEARNED",
    "REJECTED",
    "UNLABELLED",
    "Config",
    "Prediction",
    "State",
    "init",
    "learn",
    "predict",
]

_MIN_THREAD_ROWS = 256
"""Fewer rows than this are not worth a thread of their own."""


def learn(
    state: State,
    x: ArrayLike,
    y: ArrayLike,
    *,
    x_var: ArrayLike | None = None,
    weight: ArrayLike | None = None,
    again: bool = False,
) -> tuple[State, Prediction]:
    """Learn rows in order; row i is predicted before y[i] is looked at.

    x        (n, inputs); NaN is missing, infinite rejects the row
    y        (n,) or (n, outputs), NaN not observed; for classes (n,) of class indices
    x_var    (n, inputs) measurement variance of each input
    weight   (n,) how often each row counts
    again    these rows were learned before, in an earlier pass

    The given state stays as it is; the new one is returned.
    """
    rows = _check_inputs(state.config, x)
    labels = _check_labels(state.config, y, len(rows))
    variances = _check_variances(x_var, rows, "x_var")
    weights = None if weight is None else _to_floats(weight, "weight")
    if weights is not None and weights.shape != (len(rows),):
        raise ValueError(f"weight must have shape ({len(rows)},), got {weights.shape}")
    return engine.learn_arrays(state, rows, labels, variances, weights, again=again)


def predict(state: State, x: ArrayLike, *, x_var: ArrayLike | None = None) -> Prediction:
    """Predict rows, on all cores when there are many."""
    rows = _check_inputs(state.config, x)
    return predict_parallel(
        engine.open_session(state), rows, _check_variances(x_var, rows, "x_var")
    )


def predict_parallel(
    session: Session, rows: FloatArray, variances: FloatArray | None = None
) -> Prediction:
    """What an open belief says of rows: many are shared out among sessions, one for each core."""
    if len(rows) < 2 * _MIN_THREAD_ROWS or not engine.is_compiled():
        return session.predict(rows, variances)
    threads = min(os.cpu_count() or 1, len(rows) // _MIN_THREAD_ROWS)
    if threads < 2:
        return session.predict(rows, variances)
    state = session.state()
    cuts = [len(rows) * i // threads for i in range(threads + 1)]

    def predict_part(k: int) -> Prediction:
        span = slice(cuts[k], cuts[k + 1])
        var = None if variances is None else variances[span]
        return engine.open_session(state).predict(rows[span], var)

    with ThreadPoolExecutor(threads) as pool:
        parts = list(pool.map(predict_part, range(threads)))
    return Prediction(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def _to_floats(values: ArrayLike, name: str) -> FloatArray:
    try:
        return np.ascontiguousarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be numbers: {error}") from None


def _check_inputs(config: Config, x: ArrayLike) -> FloatArray:
    rows = _to_floats(x, "x")
    if rows.ndim != 2 or rows.shape[1] != config.inputs:
        raise ValueError(f"x must have shape (rows, {config.inputs}), got {rows.shape}")
    return rows


def _check_labels(config: Config, y: ArrayLike, rows: int) -> FloatArray:
    labels = _to_floats(y, "y")
    if labels.ndim == 1:
        labels = labels[:, None]
    if labels.shape != (rows, config.labels):
        raise ValueError(f"y must have shape ({rows}, {config.labels}), got {labels.shape}")
    return np.ascontiguousarray(labels)


def _check_variances(values: ArrayLike | None, rows: FloatArray, name: str) -> FloatArray | None:
    if values is None:
        return None
    array = _to_floats(values, name)
    if array.shape != rows.shape:
        raise ValueError(f"{name} must have the shape of x, {rows.shape}, got {array.shape}")
    if np.any(array < 0.0) or np.any(np.isnan(array)):
        raise ValueError(f"{name} must hold variances >= 0")
    return array
