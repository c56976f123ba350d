"""Which columns a prediction becomes: mean and error bars, or the probabilities of classes."""

from __future__ import annotations

from collections.abc import Callable
from statistics import NormalDist
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from kbnn.errors import UsageError
from kbnn.model.schema import Schema
from kbnn.stream.encode import Block
from kbnn.stream.values import FloatArray


class Forecasts(Protocol):
    """What is predicted for n rows (see `kbnn.model.model.Forecast`)."""

    @property
    def mean(self) -> FloatArray: ...
    @property
    def sd(self) -> FloatArray: ...
    @property
    def function_sd(self) -> FloatArray: ...
    @property
    def noise_sd(self) -> FloatArray: ...
    @property
    def probability(self) -> FloatArray | None: ...
    @property
    def outlier(self) -> FloatArray | None: ...


class Field(NamedTuple):
    """One predicted column."""

    name: str
    text: bool
    values: Callable[[Forecasts], Any]  # (n,) float64, or a list of texts


def prediction_fields(
    schema: Schema,
    *,
    interval: float = 0.9,
    decompose: bool = False,
    outlier: bool = False,
    frozen: bool = True,
) -> list[Field]:
    """The predicted columns.

    Numbers: mean, sd, and lower = mean - z sd, upper = mean + z sd, with z the quantile that
    encloses `interval` of a Gaussian; `decompose` adds the two parts of sd. Classes: the label and
    each class's probability; while classes may still come (not `frozen`), the label's alone.
    """
    check_interval(interval)
    if schema.task == "classification":
        fields = _class_fields(schema, frozen or schema.closed)
    else:
        z = NormalDist().inv_cdf(0.5 + interval / 2.0)
        several = len(schema.targets) > 1
        fields = []
        for j, target in enumerate(schema.targets):
            fields += _number_fields(j, f"_{target}" if several else "", z, decompose)
    if outlier:
        fields.append(Field("outlier", False, _outlier))
    return fields


def check_interval(interval: float) -> None:
    """Refuse what is no probability, or one that no interval has."""
    if not 0.0 < interval < 1.0:
        raise UsageError(f"--interval must lie between 0 and 1, not {interval:g}")


def _number_fields(j: int, suffix: str, z: float, decompose: bool) -> list[Field]:
    fields = [
        Field(f"mean{suffix}", False, lambda f: f.mean[:, j]),
        Field(f"sd{suffix}", False, lambda f: f.sd[:, j]),
        Field(f"lower{suffix}", False, lambda f: f.mean[:, j] - z * f.sd[:, j]),
        Field(f"upper{suffix}", False, lambda f: f.mean[:, j] + z * f.sd[:, j]),
    ]
    if decompose:
        fields += [
            Field(f"function_sd{suffix}", False, lambda f: f.function_sd[:, j]),
            Field(f"noise_sd{suffix}", False, lambda f: f.noise_sd[:, j]),
        ]
    return fields


def _class_fields(schema: Schema, frozen: bool) -> list[Field]:
    def label(forecast: Forecasts) -> list[str | None]:
        chosen = _probability(forecast)
        if not chosen.shape[1]:
            return [None] * len(chosen)
        known = np.atleast_1d(np.isfinite(chosen).all(axis=1))
        best = chosen.argmax(axis=1).tolist()
        return [schema.classes[k] if sure else None for k, sure in zip(best, known, strict=True)]

    def certainty(forecast: Forecasts) -> FloatArray:
        chosen = _probability(forecast)
        return chosen.max(axis=1) if chosen.shape[1] else np.full(len(chosen), np.nan)

    def probability(k: int) -> Callable[[Forecasts], FloatArray]:
        return lambda forecast: _probability(forecast)[:, k]

    fields = [Field("label", True, label)]
    if not frozen:
        return [*fields, Field("probability", False, certainty)]
    return fields + [
        Field(f"p_{name}", False, probability(k)) for k, name in enumerate(schema.classes)
    ]


def _probability(forecast: Forecasts) -> FloatArray:
    assert forecast.probability is not None
    return forecast.probability


def _outlier(forecast: Forecasts) -> FloatArray:
    return np.full(len(forecast.mean), np.nan) if forecast.outlier is None else forecast.outlier


def leading_columns(block: Block, schema: Schema) -> pa.RecordBatch:
    """What stands before the predictions: the row's number and what came true."""
    columns = {"row": pa.array(block.rows)}
    for j, name in enumerate(schema.targets):
        truth = block.y[:, j]
        if schema.task == "classification":
            index = np.where(np.isnan(truth), -1.0, truth).astype(int).tolist()
            labels = [schema.classes[k] if k >= 0 else None for k in index]
            columns[name] = pa.array(labels, pa.string())
        else:
            columns[name] = pa.array(truth, from_pandas=True)
    return pa.RecordBatch.from_pydict(columns)
